// SPDX-License-Identifier: MIT
// How a program generates.
#include "text/chat/settings.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "tensors/tensor_table.h"
#include "text/chat/prompts.h"

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

static void take_float(const json_t *object, const char *name, double least, double most, float *to)
{
  const json_t *number = json_object_get(object, name);
  const double value = json_number_value(number);
  if (json_is_number(number) && value >= least && value <= most) *to = (float)value;
}

// generation_config.json's sampling, which counts where it says do_sample.
static void take_sampling(struct sampling *s, const json_t *object)
{
  const json_t *k = json_object_get(object, "top_k");
  take_float(object, "repetition_penalty", 1e-3, 1000, &s->penalty);
  if (!json_is_true(json_object_get(object, "do_sample"))) return;
  s->temperature = 1;
  take_float(object, "temperature", 0, 1000, &s->temperature);
  take_float(object, "top_p", 0, 1, &s->top_p);
  take_float(object, "min_p", 0, 1, &s->min_p);
  if (json_is_integer(k) && json_integer_value(k) >= 0 && json_integer_value(k) < INT_MAX)
    s->top_k = (int)json_integer_value(k);
}

static bool read_files(struct text_settings *s, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  json_t *object = NULL;
  bool ok = true;
  if (beside_weights(o, "generation_config.json", path)) {
    ok = read_object(path, 0, &object, why) && take_ends(s, object, path, why);
    if (ok) take_sampling(&s->sampling, object);
    json_decref(object);
    object = NULL;
  }
  if (ok && s->nend == 0 && beside_weights(o, "config.json", path)) {
    ok = read_object(path, 0, &object, why) && take_ends(s, object, path, why);
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

bool settings_chat(struct chat **c, const struct options *o, struct failure *why)
{
  char path[PATH_MAX];
  json_t *object = NULL;
  char *file = NULL;
  size_t length = 0;
  bool ok = true;
  if (o->raw) return (*c = chat_raw()) != NULL || failed(why, "out of memory");
  // Where a length has no bound Hugging Face writes 1e30 with all its digits.
  if (beside_tokenizer(o, "tokenizer_config.json", path))
    ok = read_object(path, JSON_DECODE_INT_AS_REAL, &object, why);
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
