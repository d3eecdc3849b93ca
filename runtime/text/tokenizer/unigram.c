// SPDX-License-Identifier: MIT
// Unigram.
#include "text/tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/unicode.h"

struct unigram {
  const struct vocabulary *tokens;
  double *score; // by id
  double least;  // of all scores
  int unknown;   // or -1
  bool falls_back;
  int byte[256];
};

// The number as the library reads it from a file: its digits as a whole number, divided by a power
// of ten. This may be another float than the nearest one, and decides between equal sums.
static double as_library_reads(double x)
{
  char text[40] = "";
  int precision = 0;
  do snprintf(text, sizeof text, "%.*e", precision, x);
  while (strtod(text, NULL) != x && ++precision < 17);
  const char *e = strchr(text, 'e');
  if (!e || !isfinite(x)) return x;
  uint64_t whole = 0;
  for (const char *at = text; at < e; at++)
    if (*at >= '0' && *at <= '9') whole = 10 * whole + (uint64_t)(*at - '0');
  const int power = atoi(e + 1) - precision;
  const double scale = pow(10, abs(power)),
               size = power < 0 ? (double)whole / scale : (double)whole * scale;
  return x < 0 ? -size : size;
}

// An entry of the vocabulary: ["token", score].
static bool read_entry(struct unigram *u, struct vocabulary *tokens, const json_t *entry, size_t id,
                       const char *path, struct failure *why)
{
  const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
  if (!json_is_string(text) || !json_is_number(score) || json_array_size(entry) != 2)
    return failed(why, "%s: entry %zu of model.vocab is not a token and its score", path, id);
  u->score[id] = as_library_reads(json_number_value(score));
  if (u->score[id] < u->least) u->least = u->score[id];
  return vocabulary_add(tokens, json_string_value(text), json_string_length(text), (int64_t)id,
                        path, why);
}

static bool read_model(struct unigram *u, const json_t *model, struct vocabulary *tokens,
                       const char *path, struct failure *why)
{
  const json_t *vocab = json_object_get(model, "vocab"),
               *unknown = json_object_get(model, "unk_id");
  const size_t count = json_array_size(vocab);
  if (!json_is_array(vocab)) return failed(why, "%s: model.vocab is not a list of tokens", path);
  u->score = calloc(count + 1, sizeof *u->score);
  if (!u->score) return failed(why, "%s: out of memory", path);
  for (size_t i = 0; i < count; i++)
    if (!read_entry(u, tokens, json_array_get(vocab, i), i, path, why)) return false;
  if (unknown && !json_is_null(unknown)) {
    const json_int_t id = json_integer_value(unknown);
    if (!json_is_integer(unknown) || id < 0 || (size_t)id >= count)
      return failed(why, "%s: model.unk_id is not a token of the vocabulary", path);
    u->unknown = (int)id;
  }
  u->falls_back = json_is_true(json_object_get(model, "byte_fallback"));
  vocabulary_bytes(tokens, u->byte);
  return true;
}

struct unigram *unigram_open(const json_t *model, struct vocabulary *tokens, const char *path,
                             struct failure *why)
{
  struct unigram *u = calloc(1, sizeof *u);
  if (!u) {
    failed(why, "%s: out of memory", path);
    return NULL;
  }
  *u = (struct unigram){.tokens = tokens, .least = INFINITY, .unknown = -1};
  if (read_model(u, model, tokens, path, why)) return u;
  unigram_close(u);
  return NULL;
}

void unigram_close(struct unigram *u)
{
  if (!u) return;
  free(u->score);
  free(u);
}

// The best tokens of the text up to a place: the last of them, and where it begins.
struct path {
  double score;
  size_t from, to; // to: where the next of the best tokens ends
  int id;          // -1: no tokens end here
};

static void offer(struct path *to, double score, size_t from, int id)
{
  if (to->id < 0 || score > to->score) *to = (struct path){.score = score, .from = from, .id = id};
}

// False: a character is unknown, and there is no token for that.
static bool find_paths(const struct unigram *u, const char *word, size_t count, struct path *path)
{
  const double unknown = u->least - 10; // sentencepiece's
  for (size_t i = 0; i <= count; i++) path[i].id = -1;
  path[0].score = 0;
  for (size_t at = 0; at < count;) {
    uint32_t code;
    const int n = utf8_at(word + at, count - at, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    const size_t left = count - at, most = left < u->tokens->longest ? left : u->tokens->longest;
    uint64_t hash = HASH_OF_NOTHING;
    bool is_known = false;
    for (size_t length = 1; length <= most; length++) {
      hash = hash_on(hash, word + at + length - 1, 1);
      if (length < left && ((unsigned char)word[at + length] & 0xc0) == 0x80) continue;
      const int id = vocabulary_id_of(u->tokens, hash, word + at, length, "", 0);
      if (id < 0) continue;
      offer(&path[at + length], u->score[id] + path[at].score, at, id);
      is_known |= length == size;
    }
    if (!is_known && u->unknown < 0) return false;
    if (!is_known) offer(&path[at + size], unknown + path[at].score, at, u->unknown);
    at += size;
  }
  return true;
}

// A piece of the word: unknown characters that follow each other are one.
static bool add_piece(const struct unigram *u, const char *piece, size_t count, struct ids *ids)
{
  const int id = vocabulary_id(u->tokens, piece, count);
  bool has_bytes = u->falls_back && id < 0;
  for (size_t i = 0; i < count && has_bytes; i++) has_bytes = u->byte[(unsigned char)piece[i]] >= 0;
  if (id >= 0)
    add_id(ids, id);
  else if (has_bytes)
    for (size_t i = 0; i < count; i++) add_id(ids, u->byte[(unsigned char)piece[i]]);
  else
    add_id(ids, u->unknown);
  return !ids->failed;
}

bool unigram_encode(const struct unigram *u, const char *word, size_t count, struct ids *ids,
                    struct failure *why)
{
  struct path *path = calloc(count + 1, sizeof *path);
  if (!path) return failed(why, "out of memory for a text");
  bool ok = find_paths(u, word, count, path) ||
            failed(why, "the tokenizer has no token for unknown characters");
  for (size_t end = count; ok && end > 0; end = path[end].from) path[path[end].from].to = end;
  for (size_t at = 0, end; ok && at < count; at = end) {
    end = path[at].to;
    while (path[end].id == u->unknown && end < count && path[path[end].to].id == u->unknown)
      end = path[end].to;
    ok = add_piece(u, word + at, end - at, ids) || failed(why, "out of memory for a text");
  }
  free(path);
  return ok;
}
