// SPDX-License-Identifier: MIT
// How a program generates.
#include "text/chat/settings.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json_memory.h"
#include "text/chat/text_file.h"

// The path of a file in a folder, or beside another file. False: there is none.
static bool beside(const char *of, const char *file, char path[PATH_MAX])
{
  struct stat about;
  if (!of || stat(of, &about) != 0) return false;
  const char *slash = strrchr(of, '/');
  const int n = S_ISDIR(about.st_mode) ? snprintf(path, PATH_MAX, "%s/%s", of, file)
                : slash ? snprintf(path, PATH_MAX, "%.*s/%s", (int)(slash - of), of, file)
                        : snprintf(path, PATH_MAX, "%s", file);
  return n > 0 && n < PATH_MAX && stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

static bool beside_weights(const struct options *o, const char *file, char path[PATH_MAX])
{
  return beside(o->weights, file, path);
}

static bool beside_tokenizer(const struct options *o, const char *file, char path[PATH_MAX])
{
  return beside(o->tokenizer, file, path) || beside_weights(o, file, path);
}

// What says how to generate: an archive's weights have none, and the model's folder is then that of
// the tokenizer.
static bool beside_model(const struct options *o, const char *file, char path[PATH_MAX])
{
  return beside_weights(o, file, path) || beside(o->tokenizer, file, path);
}

static bool read_object(const char *path, size_t flags, json_t **object, struct failure *why)
{
  json_error_t error;
  *object = json_load_file(path, flags, &error);
  if (json_memory_ended()) return failed(why, "out of memory for %s", path);
  if (!*object) return failed(why, "%s:%d: %s", path, error.line, error.text);
  return json_is_object(*object) || failed(why, "%s: not a JSON object", path);
}

static bool add_end(struct text_settings *s, const json_t *id, const char *path,
                    struct failure *why)
{
  const json_int_t number = json_integer_value(id);
  if (!json_is_integer(id) || number < 0 || number > INT_MAX)
    return failed(why, "%s: eos_token_id is not a token", path);
  int *end = realloc(s->end, (s->nend + 1) * sizeof *end);
  if (!end) return failed(why, "out of memory for %s", path);
  s->end = end;
  s->end[s->nend++] = (int)number;
  return true;
}

// eos_token_id: a number, a list of them, or null.
static bool take_ends(struct text_settings *s, const json_t *object, const char *path,
                      struct failure *why)
{
  const json_t *ids = json_object_get(object, "eos_token_id");
  if (json_is_integer(ids)) return add_end(s, ids, path, why);
  if (ids && !json_is_null(ids) && !json_is_array(ids))
    return failed(why, "%s: eos_token_id is not a token", path);
  for (size_t i = 0; i < json_array_size(ids); i++)
    if (!add_end(s, json_array_get(ids, i), path, why)) return false;
  return true;
}

bool is_json(const json_t *value, const char *text)
{
  json_t *known = json_loads(text, JSON_DECODE_ANY, NULL);
  const bool equal = json_is_number(value) && json_is_number(known)
                         ? json_number_value(value) == json_number_value(known)
                         : json_equal(known, value);
  json_decref(known);
  return equal;
}

// A number of generation_config.json; `to` stays if the file has none. whole: it has no fraction.
static bool take_number(const json_t *object, const char *name, bool whole, double least,
                        double most, double *to, const char *path, struct failure *why)
{
  const json_t *number = json_object_get(object, name);
  const double value = json_number_value(number);
  if (!number || json_is_null(number)) return true;
  if (!(whole ? json_is_integer(number) : json_is_number(number)) || !(value >= least) ||
      value > most)
    return failed(why, "%s: %s is not a %s from %g to %g", path, name,
                  whole ? "whole number" : "number", least, most);
  *to = value;
  return true;
}

// Members of generation_config.json by which transformers chooses other tokens, unless they have
// these values, or are null.
static bool refuse_others(const json_t *object, bool samples, const char *path, struct failure *why)
{
  static const struct {
    const char *name, *value;
    bool of_sampling; // it counts only with do_sample
  } others[] = {{"typical_p", "1", true},
                {"top_h", "null", true},
                {"epsilon_cutoff", "0", true},
                {"eta_cutoff", "0", true},
                {"num_beams", "1", false},
                {"num_beam_groups", "1", false},
                {"num_return_sequences", "1", false},
                {"diversity_penalty", "0", false},
                {"penalty_alpha", "0", false},
                {"dola_layers", "null", false},
                {"no_repeat_ngram_size", "0", false},
                {"encoder_no_repeat_ngram_size", "0", false},
                {"encoder_repetition_penalty", "1", false},
                {"bad_words_ids", "[]", false},
                {"force_words_ids", "[]", false},
                {"constraints", "[]", false},
                {"min_length", "0", false},
                {"min_new_tokens", "0", false},
                {"max_time", "null", false},
                {"stop_strings", "[]", false},
                {"forced_bos_token_id", "null", false},
                {"forced_eos_token_id", "null", false},
                {"exponential_decay_length_penalty", "null", false},
                {"suppress_tokens", "[]", false},
                {"begin_suppress_tokens", "[]", false},
                {"sequence_bias", "{}", false},
                {"guidance_scale", "1", false},
                {"token_healing", "false", false},
                {"watermarking_config", "null", false}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const json_t *value = json_object_get(object, others[i].name);
    if (!value || json_is_null(value) || (others[i].of_sampling && !samples) ||
        is_json(value, others[i].value))
      continue;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    failed(why,
           "%s: %s is %.40s, which this program does not do: it chooses tokens by temperature, "
           "top_k, top_p, min_p and repetition_penalty. Without that line other tokens are chosen",
           path, others[i].name, text ? text : "");
    free(text);
    return false;
  }
  return true;
}

// What generation_config.json says of the choice of tokens, with transformers' defaults. Most of it
// counts where it says do_sample.
static bool take_sampling(struct text_settings *s, const json_t *object, const char *path,
                          struct failure *why)
{
  const json_t *do_sample = json_object_get(object, "do_sample");
  const bool samples = json_is_true(do_sample);
  double penalty = 1, temperature = 1, top_k = 50, top_p = 1, min_p = 0, most = 0;
  if (do_sample && !json_is_boolean(do_sample) && !json_is_null(do_sample))
    return failed(why, "%s: do_sample is not true or false", path);
  if (!refuse_others(object, samples, path, why) ||
      !take_number(object, "repetition_penalty", false, 1e-3, 1000, &penalty, path, why) ||
      !take_number(object, "max_new_tokens", true, 1, INT_MAX, &most, path, why))
    return false;
  s->sampling.penalty = (float)penalty;
  s->most = (int)most;
  if (!samples) return true;
  if (!take_number(object, "temperature", false, 1e-6, 1000, &temperature, path, why) ||
      !take_number(object, "top_k", true, 0, INT_MAX / 2, &top_k, path, why) ||
      !take_number(object, "top_p", false, 0, 1, &top_p, path, why) ||
      !take_number(object, "min_p", false, 0, 1, &min_p, path, why))
    return false;
  s->sampling.temperature = (float)temperature;
  s->sampling.top_k = (int)top_k;
  s->sampling.top_p = (float)top_p;
  s->sampling.min_p = (float)min_p;
  return true;
}

// Without a generation_config.json transformers reads all of it from config.json.
static bool read_files(struct text_settings *s, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  json_t *object = NULL;
  bool ok = true;
  const bool has_own = beside_model(o, "generation_config.json", path);
  if (has_own) {
    ok = read_object(path, 0, &object, why) && take_ends(s, object, path, why) &&
         take_sampling(s, object, path, why);
    json_decref(object);
    object = NULL;
  }
  if (ok && s->nend == 0 && beside_model(o, "config.json", path)) {
    ok = read_object(path, 0, &object, why) && take_ends(s, object, path, why) &&
         (has_own || take_sampling(s, object, path, why));
    json_decref(object);
  }
  return ok;
}

bool settings_read(struct text_settings *s, const struct options *o, struct failure *why)
{
  *s = (struct text_settings){.sampling = {.top_p = 1, .penalty = 1, .seed = o->draw_seed}};
  if (!read_files(s, o, why)) return false;
  struct sampling *how = &s->sampling;
  const bool filters = o->top_p >= 0 || o->min_p >= 0 || o->top_k >= 0;
  if (filters && o->temperature < 0 && how->temperature == 0) how->temperature = 1;
  if (o->temperature >= 0) how->temperature = (float)o->temperature;
  if (o->top_p >= 0) how->top_p = (float)o->top_p;
  if (o->min_p >= 0) how->min_p = (float)o->min_p;
  if (o->top_k >= 0) how->top_k = o->top_k;
  if (o->repetition_penalty > 0) how->penalty = (float)o->repetition_penalty;
  if (o->make) s->most = o->make;
  return true;
}

void settings_free(struct text_settings *s)
{
  free(s->end);
}

bool settings_end_at(const struct text_settings *s, int token)
{
  for (size_t i = 0; i < s->nend; i++)
    if (s->end[i] == token) return true;
  return false;
}

bool settings_tokenizer(struct tokenizer **t, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  struct stat about;
  const bool is_file = o->tokenizer && (stat(o->tokenizer, &about) != 0 || !S_ISDIR(about.st_mode));
  const char *of = o->tokenizer ? o->tokenizer : o->weights;
  if (!is_file && !beside(of, "tokenizer.json", path))
    return !o->tokenizer || failed(why, "%s: the folder has no tokenizer.json", o->tokenizer);
  *t = tokenizer_open(is_file ? o->tokenizer : path, why);
  return *t != NULL;
}

// The chat template of a tokenizer_config.json: a text, or a list of them by name.
static const char *template_of(const json_t *object)
{
  const json_t *list = json_object_get(object, "chat_template"), *one;
  size_t i;
  json_array_foreach((json_t *)list, i, one)
  {
    const char *name = json_string_value(json_object_get(one, "name"));
    if (name && strcmp(name, "default") == 0)
      return json_string_value(json_object_get(one, "template"));
  }
  return json_string_value(list);
}

// *object stays NULL if there is none.
static bool read_tokenizer_config(json_t **object, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  // Where a length has no bound Hugging Face writes 1e30 with all its digits.
  return !beside_tokenizer(o, "tokenizer_config.json", path) ||
         read_object(path, JSON_DECODE_INT_AS_REAL, object, why);
}

bool settings_special_token(char **to, const struct options *o, const char *name,
                            struct failure *why)
{
  json_t *config = NULL;
  bool ok = read_tokenizer_config(&config, o, why);
  const json_t *token = ok ? chat_special_token(config, name) : NULL;
  if (ok) {
    *to = strdup(token ? json_string_value(token) : "");
    ok = *to || failed(why, "out of memory for the tokenizer");
  }
  json_decref(config);
  return ok;
}

bool settings_chat(struct chat **c, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  json_t *object = NULL;
  char *file = NULL;
  size_t length = 0;
  if (o->raw) return (*c = chat_raw()) != NULL || failed(why, "out of memory");
  bool ok = read_tokenizer_config(&object, o, why);
  const char *text = template_of(object);
  if (ok && beside_tokenizer(o, "chat_template.jinja", path))
    ok = (text = file = whole_file(path, &length, why)) != NULL;
  if (ok && text)
    *c = chat_of(text, object, why);
  else if (ok)
    failed(why, "there is no chat template, in tokenizer_config.json or chat_template.jinja beside "
                "the tokenizer: with --raw the turns' texts are lines without a template");
  json_decref(object);
  free(file);
  return *c != NULL;
}

int settings_turn_end(const struct tokenizer *t, const struct chat *c)
{
  return tokenizer_special_at(t, chat_behind_answer(c));
}
