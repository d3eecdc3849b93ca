// SPDX-License-Identifier: MIT
// WordPiece.
#include "text/tokenizer/wordpiece.h"

#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/unicode.h"

struct wordpiece {
  const struct vocabulary *tokens;
  struct bytes prefix; // of a token that goes on with a word
  uint64_t hash;       // of it
  json_int_t most;     // characters of a word; one with more is unknown
  int unknown;         // or -1
};

static bool read_model(struct wordpiece *w, const json_t *model, const char *path,
                       struct failure *why)
{
  const json_t *prefix = json_object_get(model, "continuing_subword_prefix"),
               *most = json_object_get(model, "max_input_chars_per_word"),
               *unknown = json_object_get(model, "unk_token");
  if (!json_is_string(prefix) || !json_is_string(unknown) || !json_is_integer(most) ||
      json_integer_value(most) < 0)
    return failed(why,
                  "%s: model.continuing_subword_prefix, unk_token or max_input_chars_per_word is "
                  "missing, or no text and no whole number",
                  path);
  add_bytes(&w->prefix, json_string_value(prefix), json_string_length(prefix));
  if (w->prefix.failed) return failed(why, "%s: out of memory", path);
  w->hash = hash_on(HASH_OF_NOTHING, w->prefix.at, w->prefix.count);
  w->most = json_integer_value(most);
  w->unknown = vocabulary_id(w->tokens, json_string_value(unknown), json_string_length(unknown));
  return true;
}

struct wordpiece *wordpiece_open(const json_t *model, const struct vocabulary *tokens,
                                 const char *path, struct failure *why)
{
  struct wordpiece *w = calloc(1, sizeof *w);
  if (!w) {
    failed(why, "%s: out of memory", path);
    return NULL;
  }
  w->tokens = tokens;
  if (read_model(w, model, path, why)) return w;
  wordpiece_close(w);
  return NULL;
}

void wordpiece_close(struct wordpiece *w)
{
  if (!w) return;
  free_bytes(&w->prefix);
  free(w);
}

// The longest beginning of a text that is a token: its bytes, or 0.
static size_t longest(const struct wordpiece *w, const char *text, size_t count, bool goes_on,
                      int *id)
{
  const char *prefix = goes_on ? w->prefix.at : "";
  const size_t skips = goes_on ? w->prefix.count : 0, room = w->tokens->longest;
  const size_t most = room < skips ? 0 : room - skips < count ? room - skips : count;
  uint64_t hash = goes_on ? w->hash : HASH_OF_NOTHING;
  size_t best = 0;
  for (size_t length = 1; length <= most; length++) {
    hash = hash_on(hash, text + length - 1, 1);
    if (length < count && ((unsigned char)text[length] & 0xc0) == 0x80) continue;
    const int found = vocabulary_id_of(w->tokens, hash, prefix, skips, text, length);
    if (found < 0) continue;
    best = length;
    *id = found;
  }
  return best;
}

bool wordpiece_encode(const struct wordpiece *w, const char *word, size_t count, struct ids *ids,
                      struct failure *why)
{
  const size_t before = ids->count;
  json_int_t characters = 0;
  size_t at = 0;
  for (size_t i = 0; i < count; i++) characters += ((unsigned char)word[i] & 0xc0) != 0x80;
  while (characters <= w->most && at < count) {
    int id = -1;
    const size_t length = longest(w, word + at, count - at, at > 0, &id);
    if (length == 0) break;
    add_id(ids, id);
    at += length;
  }
  if (at < count) {
    ids->count = before;
    if (w->unknown < 0) return failed(why, "the tokenizer has no token for unknown words");
    add_id(ids, w->unknown);
  }
  return !ids->failed || failed(why, "out of memory for a text");
}
