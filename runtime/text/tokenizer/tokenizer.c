// SPDX-License-Identifier: MIT
// A tokenizer: texts to ids, and back.
#include "text/tokenizer/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "text/tokenizer/normalizers.h"

// A token that is found in the text before all else.
struct added {
  char *text;
  size_t count;
  int id;
  bool special, left, right; // white space on its left, or right, belongs to it
  bool alone;                // it is no part of a word
  bool normalized;           // it is found after the normalizer
};

struct tokenizer {
  struct token_model *model;
  struct added *added; // the longest first
  size_t nadded;
  struct vocabulary extra; // their texts in the file
  int *added_at;           // by id, below extra.ids: its place there, or -1
  struct steps normalizer, pre_tokenizer, decoder;
  struct ids before, behind; // by the post-processor
};

// ---- reading -----------------------------------------------------------------------------------

static bool read_added(struct tokenizer *t, const json_t *object, const char *path,
                       struct failure *why)
{
  const json_t *content = json_object_get(object, "content"), *id = json_object_get(object, "id");
  if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id) ||
      json_integer_value(id) < 0 || json_integer_value(id) > 1 << 24)
    return failed(why, "%s: added_tokens has an entry without content or id", path);
  struct added *all = realloc(t->added, (t->nadded + 1) * sizeof *all);
  if (all) t->added = all;
  const size_t count = json_string_length(content);
  char *text = all ? malloc(count + 1) : NULL;
  if (!text) return failed(why, "%s: out of memory", path);
  memcpy(text, json_string_value(content), count + 1);
  t->added[t->nadded++] =
      (struct added){.text = text,
                     .count = count,
                     .id = (int)json_integer_value(id),
                     .special = json_is_true(json_object_get(object, "special")),
                     .left = json_is_true(json_object_get(object, "lstrip")),
                     .right = json_is_true(json_object_get(object, "rstrip")),
                     .alone = json_is_true(json_object_get(object, "single_word")),
                     .normalized = json_is_true(json_object_get(object, "normalized"))};
  // The model may have it, too.
  size_t known_count;
  const struct vocabulary *tokens = token_model_tokens(t->model);
  const int own = t->added[t->nadded - 1].id, known = vocabulary_id(tokens, text, count);
  const char *other = vocabulary_text(tokens, own, &known_count);
  if (known >= 0 && known != own)
    return failed(why, "%s: the added token '%.40s' has the ids %d and %d", path, text, known, own);
  if (other && (known_count != count || memcmp(other, text, count) != 0))
    return failed(why, "%s: '%.40s' and '%.40s' are both token %d", path, other, text, own);
  const int before = vocabulary_id(&t->extra, text, count);
  if (before >= 0 && before != own)
    return failed(why, "%s: the added token '%.40s' has the ids %d and %d", path, text, before,
                  own);
  return vocabulary_add(&t->extra, text, count, own, path, why);
}

static int by_length(const void *a, const void *b)
{
  const struct added *x = a, *y = b;
  if (x->count != y->count) return x->count > y->count ? -1 : 1;
  return (x->id > y->id) - (x->id < y->id);
}

static bool read_all_added(struct tokenizer *t, const json_t *list, const char *path,
                           struct failure *why)
{
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!read_added(t, json_array_get(list, i), path, why)) return false;
  return true;
}

// A token that is found after the normalizer is found as it is then, too.
static bool normalize_added(struct tokenizer *t, struct failure *why)
{
  for (size_t i = 0; i < t->nadded; i++) {
    struct added *a = &t->added[i];
    struct bytes text = {0};
    bool begins = true;
    if (!a->normalized) continue;
    add_bytes(&text, a->text, a->count);
    if (text.failed || !steps_normalize(&t->normalizer, &text, &begins, why)) {
      free_bytes(&text);
      return false;
    }
    if (text.count == 0) { // the library finds it everywhere
      failed(why, "the added token '%.40s' is empty behind the normalizer", a->text);
      free_bytes(&text);
      return false;
    }
    free(a->text);
    a->text = text.at;
    a->count = text.count;
  }
  if (t->nadded) qsort(t->added, t->nadded, sizeof *t->added, by_length);
  t->added_at = malloc(((size_t)t->extra.ids + 1) * sizeof *t->added_at);
  if (!t->added_at) return failed(why, "out of memory for a tokenizer");
  for (int id = 0; id < t->extra.ids; id++) t->added_at[id] = -1;
  for (size_t i = 0; i < t->nadded; i++) t->added_at[t->added[i].id] = (int)i;
  return true;
}

static bool is_token(const struct tokenizer *t, json_int_t id)
{
  size_t count;
  return id >= 0 && id <= INT_MAX &&
         (vocabulary_text(token_model_tokens(t->model), (int)id, &count) ||
          vocabulary_text(&t->extra, (int)id, &count));
}

// TemplateProcessing's template of one text: special tokens around it.
static bool read_template(struct tokenizer *t, const json_t *object, const char *path,
                          struct failure *why)
{
  const json_t *single = json_object_get(object, "single"),
               *known = json_object_get(object, "special_tokens");
  int texts = 0;
  for (size_t i = 0; i < json_array_size(single); i++) {
    const json_t *part = json_array_get(single, i),
                 *special = json_object_get(part, "SpecialToken"),
                 *sequence = json_object_get(part, "Sequence");
    const char *which = json_string_value(json_object_get(sequence, "id"));
    if (!special && which && strcmp(which, "A") == 0 && texts++ == 0) continue;
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *ids = name ? json_object_get(json_object_get(known, name), "ids") : NULL;
    if (!json_is_array(ids))
      return failed(why, "%s: the post_processor has a token without ids", path);
    for (size_t k = 0; k < json_array_size(ids); k++) {
      const json_t *id = json_array_get(ids, k);
      if (!json_is_integer(id) || !is_token(t, json_integer_value(id)))
        return failed(why, "%s: the post_processor has a token without ids", path);
      add_id(texts ? &t->behind : &t->before, (int)json_integer_value(id));
    }
  }
  if (t->before.failed || t->behind.failed) return failed(why, "%s: out of memory", path);
  return texts == 1 || failed(why, "%s: the post_processor has no text between its tokens", path);
}

// "cls": ["<s>", 0]
static bool read_pair(const struct tokenizer *t, const json_t *object, const char *name,
                      struct ids *to, const char *path, struct failure *why)
{
  const json_t *id = json_array_get(json_object_get(object, name), 1);
  if (!json_is_integer(id) || !is_token(t, json_integer_value(id)))
    return failed(why, "%s: the post_processor's %s is no token with its id", path, name);
  add_id(to, (int)json_integer_value(id));
  return true;
}

static bool read_processor(struct tokenizer *t, const json_t *object, const char *path, int depth,
                           struct failure *why)
{
  const char *type = json_string_value(json_object_get(object, "type"));
  const json_t *list = json_object_get(object, "processors");
  if (!object || json_is_null(object)) return true;
  if (!type || depth > 8) return failed(why, "%s: the post_processor has no type", path);
  if (strcmp(type, "ByteLevel") == 0) return true;
  const bool is_template = strcmp(type, "TemplateProcessing") == 0;
  if (is_template || strcmp(type, "RobertaProcessing") == 0 ||
      strcmp(type, "BertProcessing") == 0) {
    // The library gives a second one the tokens of the first as texts of their own.
    if (t->before.count || t->behind.count)
      return failed(why, "%s: its post_processor has several processors that add tokens", path);
    if (is_template) return read_template(t, object, path, why);
    return read_pair(t, object, "cls", &t->before, path, why) &&
           read_pair(t, object, "sep", &t->behind, path, why) &&
           (!(t->before.failed || t->behind.failed) || failed(why, "%s: out of memory", path));
  }
  if (strcmp(type, "Sequence") != 0)
    return failed(why, "%s: its post_processor %.40s is not known to this program", path, type);
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!read_processor(t, json_array_get(list, i), path, depth + 1, why)) return false;
  return true;
}

static bool read_file(struct tokenizer *t, const json_t *file, const char *path,
                      struct failure *why)
{
  t->model = token_model_open(json_object_get(file, "model"), path, why);
  return t->model && read_all_added(t, json_object_get(file, "added_tokens"), path, why) &&
         steps_read(&t->normalizer, file, "normalizer", path, why) && normalize_added(t, why) &&
         steps_read(&t->pre_tokenizer, file, "pre_tokenizer", path, why) &&
         steps_read(&t->decoder, file, "decoder", path, why) &&
         read_processor(t, json_object_get(file, "post_processor"), path, 0, why);
}

struct tokenizer *tokenizer_open(const char *path, struct failure *why)
{
  json_error_t error;
  json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  struct tokenizer *t = file ? calloc(1, sizeof *t) : NULL;
  bool ok = false;
  if (json_memory_ended() || (file && !t))
    failed(why, "%s: out of memory", path);
  else if (!file)
    failed(why, "%s:%d: %s", path, error.line, error.text);
  else
    ok = read_file(t, file, path, why);
  json_decref(file);
  if (ok) return t;
  tokenizer_close(t);
  return NULL;
}

void tokenizer_close(struct tokenizer *t)
{
  if (!t) return;
  token_model_close(t->model);
  vocabulary_free(&t->extra);
  free(t->added_at);
  for (size_t i = 0; i < t->nadded; i++) free(t->added[i].text);
  free(t->added);
  steps_free(&t->normalizer);
  steps_free(&t->pre_tokenizer);
  steps_free(&t->decoder);
  free(t->before.at);
  free(t->behind.at);
  free(t);
}

int tokenizer_id(const struct tokenizer *t, const char *token)
{
  const int added = vocabulary_id(&t->extra, token, strlen(token));
  return added >= 0 ? added : vocabulary_id(token_model_tokens(t->model), token, strlen(token));
}

int tokenizer_special_at(const struct tokenizer *t, const char *text)
{
  text += strspn(text, " \n");
  for (size_t i = 0; i < t->nadded; i++) { // the longest come first
    const struct added *a = &t->added[i];
    if (a->special && a->count && !strncmp(a->text, text, a->count)) return a->id;
  }
  return -1;
}

// ---- encoding ----------------------------------------------------------------------------------

// The character that ends before `at`; 0: none.
static uint32_t code_before(const struct bytes *text, size_t at)
{
  uint32_t code = 0;
  size_t first = at;
  while (first > 0 && at - first < 4) {
    first--;
    if (((unsigned char)text->at[first] & 0xc0) != 0x80) break;
  }
  return first < at && utf8_at(text->at + first, at - first, &code) > 0 ? code : 0;
}

// The added token at this place, the longest; or NULL.
static const struct added *added_at(const struct tokenizer *t, const struct bytes *text, size_t at,
                                    bool normalized)
{
  for (size_t i = 0; i < t->nadded; i++) {
    const struct added *a = &t->added[i];
    if (a->normalized == normalized && a->count && a->count <= text->count - at &&
        a->text[0] == text->at[at] && memcmp(a->text, text->at + at, a->count) == 0)
      return a;
  }
  return NULL;
}

// Whether a token from `at` on is a part of a word.
static bool is_in_word(const struct added *a, const struct bytes *text, size_t at)
{
  uint32_t code;
  const size_t end = at + a->count;
  return is_of_word(code_before(text, at)) ||
         (end < text->count && utf8_at(text->at + end, text->count - end, &code) > 0 &&
          is_of_word(code));
}

// The ids of a piece between added tokens, which is normalized.
static bool encode_words(const struct tokenizer *t, const char *text, size_t count, bool starts,
                         struct ids *ids, struct failure *why)
{
  struct words words = {0};
  if (count == 0) return true;
  add_text_as_word(&words, text, count);
  bool ok = !words.text.failed && steps_cut(&t->pre_tokenizer, &words, starts, why);
  for (size_t i = 0; i < words.count && ok; i++)
    ok = token_model_encode(t->model, words.text.at + words.at[i].first,
                            words.at[i].end - words.at[i].first, ids, why);
  words_free(&words);
  return ok;
}

typedef bool (*encoder)(const struct tokenizer *t, const char *text, size_t count, bool starts,
                        struct ids *ids, struct failure *why);

// Cuts out the added tokens, and gives `rest` the texts between them.
static bool encode_around(const struct tokenizer *t, const char *from, size_t count, bool starts,
                          bool normalized, encoder rest, struct ids *ids, struct failure *why)
{
  const struct bytes text = {.at = (char *)from, .count = count};
  size_t begin = 0;
  for (size_t at = 0; at < count;) {
    const struct added *a = added_at(t, &text, at, normalized);
    uint32_t code;
    if (!a || (a->alone && is_in_word(a, &text, at))) {
      at += a ? a->count : 1;
      continue;
    }
    // The blanks that the token before has taken may have tokens, too, but for one that takes them.
    size_t end = a->left && at < begin ? begin : at, next = at + a->count;
    while (a->left && end > begin && is_space(code_before(&text, end))) {
      do end--;
      while (end > begin && ((unsigned char)from[end] & 0xc0) == 0x80);
    }
    for (int n; a->right && next < count; next += (size_t)n) {
      n = utf8_at(from + next, count - next, &code);
      if (n < 0 || !is_space(code)) break;
    }
    if (begin < end && !rest(t, from + begin, end - begin, starts && begin == 0, ids, why))
      return false;
    if (end < next) add_id(ids, a->id);
    at += a->count;
    begin = next;
  }
  return rest(t, from + begin, count - begin, starts && begin == 0, ids, why);
}

static bool encode_normalized(const struct tokenizer *t, const char *from, size_t count,
                              bool starts, struct ids *ids, struct failure *why)
{
  struct bytes text = {0};
  bool begins = true;
  add_bytes(&text, from, count);
  const bool ok =
      !text.failed && (count == 0 || steps_normalize(&t->normalizer, &text, &begins, why)) &&
      encode_around(t, text.at, text.count, starts && begins, true, encode_words, ids, why);
  free_bytes(&text);
  return ok;
}

static void add_ids(struct ids *to, const struct ids *from)
{
  for (size_t i = 0; i < from->count; i++) add_id(to, from->at[i]);
}

bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t count, bool special,
                      struct ids *ids, struct failure *why)
{
  struct bytes valid = {0};
  add_bytes(&valid, "", 0);
  add_lossy(&valid, text, count);
  if (special) add_ids(ids, &t->before);
  const bool ok = !valid.failed &&
                  encode_around(t, valid.at, valid.count, true, false, encode_normalized, ids, why);
  if (ok && special) add_ids(ids, &t->behind);
  free_bytes(&valid);
  return ok && (!ids->failed || failed(why, "out of memory for a text"));
}

// ---- decoding ----------------------------------------------------------------------------------

static const struct added *added_of(const struct tokenizer *t, int id)
{
  const int at = id >= 0 && id < t->extra.ids ? t->added_at[id] : -1;
  return at >= 0 ? &t->added[at] : NULL;
}

// The text of a token: of an added one as it is found in texts. NULL: there is none.
static const char *text_of(const struct tokenizer *t, int id, size_t *count)
{
  const struct added *a = added_of(t, id);
  if (!a) return vocabulary_text(token_model_tokens(t->model), id, count);
  *count = a->count;
  return a->text;
}

bool tokenizer_decode(const struct tokenizer *t, const int *ids, size_t count, bool skip,
                      struct bytes *text, struct failure *why)
{
  struct words tokens = {0};
  add_bytes(&tokens.text, "", 0);
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *token = text_of(t, ids[i], &length);
    if (token && !(skip && tokenizer_skips(t, ids[i]))) add_text_as_word(&tokens, token, length);
  }
  const bool ok = !tokens.text.failed && steps_decode(&t->decoder, &tokens, text, why);
  if (tokens.text.failed) failed(why, "out of memory for a text");
  words_free(&tokens);
  return ok;
}

bool tokenizer_skips(const struct tokenizer *t, int id)
{
  const struct added *a = added_of(t, id);
  return a && a->special;
}

bool tokenizer_bytes(const struct tokenizer *t, int id, bool first, struct bytes *bytes,
                     struct failure *why)
{
  size_t length;
  const char *token = text_of(t, id, &length);
  struct bytes own = {0}, alone = {0};
  if (!token) return true;
  add_bytes(&own, "", 0);
  add_bytes(&alone, "", 0);
  bool ok = true;
  if (tokenizer_skips(t, id))
    add_bytes(&own, token, length);
  else
    ok = steps_decode_token(&t->decoder, token, length, &own, why);
  // A text loses the blank that its first token begins with, say.
  if (ok && first) ok = tokenizer_decode(t, &id, 1, false, &alone, why);
  if (ok && first && alone.count < own.count && !own.failed && !alone.failed &&
      memcmp(own.at + own.count - alone.count, alone.at, alone.count) == 0)
    add_bytes(bytes, alone.at, alone.count);
  else
    add_bytes(bytes, own.at, own.count);
  bytes->failed |= own.failed || alone.failed;
  free_bytes(&own);
  free_bytes(&alone);
  return ok && (!bytes->failed || failed(why, "out of memory for a text"));
}
