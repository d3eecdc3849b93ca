// SPDX-License-Identifier: MIT
// Byte pair encoding.
#include "text/tokenizer/bpe.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/unicode.h"

enum { NOBODY_YET = -1 };

// Tokens `left` and `right` become `made`; the lower the rank, the earlier.
struct merge {
  int left, right, made, rank; // left -1: empty
};

struct bpe {
  const struct vocabulary *tokens;
  struct merge *merge;
  size_t merges;
  int byte[256]; // the token of a byte; or -1
  int unknown;   // or -1
  bool ignores_merges, falls_back, fuses_unknown;
  struct bytes prefix; // of all characters of a word but the first
  struct bytes suffix; // of the last one
};

static struct merge *merge_of(const struct bpe *b, int left, int right)
{
  const int pair[] = {left, right};
  const uint64_t hash = hash_on(HASH_OF_NOTHING, (const char *)pair, sizeof pair);
  size_t at = (hash ^ hash >> 29) & (b->merges - 1);
  while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
    at = (at + 1) & (b->merges - 1);
  return &b->merge[at];
}

// ---- reading -----------------------------------------------------------------------------------

// A merge is "a b" or ["a", "b"].
static bool read_merge(struct bpe *b, const json_t *merge, int rank, const char *path,
                       struct failure *why)
{
  const char *left = json_string_value(json_array_get(merge, 0)),
             *right = json_string_value(json_array_get(merge, 1)), *both = json_string_value(merge);
  size_t nleft = left ? strlen(left) : 0;
  if (both) {
    const char *blank = strchr(both, ' ');
    left = both;
    nleft = blank ? (size_t)(blank - both) : 0;
    right = blank ? blank + 1 : NULL;
  }
  if (!left || !right || nleft == 0 || !*right)
    return failed(why, "%s: merge %d is not of two tokens", path, rank);
  struct bytes all = {0};
  const size_t nright = strlen(right), skips = b->prefix.count < nright ? b->prefix.count : nright;
  add_bytes(&all, left, nleft);
  add_bytes(&all, right + skips, nright - skips);
  const int a = vocabulary_id(b->tokens, left, nleft), c = vocabulary_id(b->tokens, right, nright),
            made = all.failed ? -1 : vocabulary_id(b->tokens, all.at, all.count);
  const bool lacks_memory = all.failed;
  free_bytes(&all);
  if (lacks_memory) return failed(why, "%s: out of memory", path);
  if (a < 0 || c < 0 || made < 0)
    return failed(why,
                  "%s: merge %d, of '%.*s' and '%.40s', is of tokens that are not in the "
                  "vocabulary",
                  path, rank, nleft < 40 ? (int)nleft : 40, left, right);
  struct merge *at = merge_of(b, a, c);
  *at = (struct merge){a, c, made, rank}; // of two the later counts
  return true;
}

static bool read_merges(struct bpe *b, const json_t *merges, const char *path, struct failure *why)
{
  const size_t n = json_array_size(merges);
  if (!json_is_array(merges)) return failed(why, "%s: model.merges is not a list", path);
  b->merges = 16;
  while (b->merges < 2 * n) b->merges *= 2;
  b->merge = malloc(b->merges * sizeof *b->merge);
  if (!b->merge) return failed(why, "%s: out of memory", path);
  for (size_t i = 0; i < b->merges; i++) b->merge[i].left = NOBODY_YET;
  for (size_t i = 0; i < n; i++)
    if (!read_merge(b, json_array_get(merges, i), (int)i, path, why)) return false;
  return true;
}

// A text of the model, which may be null.
static bool take_text(struct bytes *to, const json_t *model, const char *name, const char *path,
                      struct failure *why)
{
  const json_t *text = json_object_get(model, name);
  if (text && !json_is_null(text) && !json_is_string(text))
    return failed(why, "%s: model.%s is not text", path, name);
  if (json_is_string(text)) add_bytes(to, json_string_value(text), json_string_length(text));
  return !to->failed || failed(why, "%s: out of memory", path);
}

static bool read_model(struct bpe *b, const json_t *model, const char *path, struct failure *why)
{
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) &&
      !(json_is_number(dropout) && json_number_value(dropout) == 0))
    return failed(why, "%s: model.dropout is not known to this program", path);
  if (!take_text(&b->suffix, model, "end_of_word_suffix", path, why) ||
      !take_text(&b->prefix, model, "continuing_subword_prefix", path, why))
    return false;
  b->ignores_merges = json_is_true(json_object_get(model, "ignore_merges"));
  b->falls_back = json_is_true(json_object_get(model, "byte_fallback"));
  b->fuses_unknown = json_is_true(json_object_get(model, "fuse_unk"));
  if (!read_merges(b, json_object_get(model, "merges"), path, why)) return false;
  const json_t *name = json_object_get(model, "unk_token");
  b->unknown = -1;
  if (json_is_string(name))
    b->unknown = vocabulary_id(b->tokens, json_string_value(name), json_string_length(name));
  if (json_is_string(name) && b->unknown < 0)
    return failed(why, "%s: model.unk_token '%.40s' is not in the vocabulary", path,
                  json_string_value(name));
  vocabulary_bytes(b->tokens, b->byte);
  return true;
}

struct bpe *bpe_open(const json_t *model, const struct vocabulary *tokens, const char *path,
                     struct failure *why)
{
  struct bpe *b = calloc(1, sizeof *b);
  if (!b) {
    failed(why, "%s: out of memory", path);
    return NULL;
  }
  b->tokens = tokens;
  if (read_model(b, model, path, why)) return b;
  bpe_close(b);
  return NULL;
}

void bpe_close(struct bpe *b)
{
  if (!b) return;
  free(b->merge);
  free_bytes(&b->prefix);
  free_bytes(&b->suffix);
  free(b);
}

// ---- encoding ----------------------------------------------------------------------------------

// A part of the word, in a list.
struct part {
  int id, before, after; // -1: none; id -2: it was merged into the one before
};
enum { MERGED = -2 };

// A pair that may be merged, in a heap: the lowest rank first, then the leftmost.
struct pair {
  int rank, at, left, right;
};

struct merging {
  const struct bpe *bpe;
  struct part *part;
  int parts;
  struct pair *heap;
  size_t pairs, room;
  bool failed;
};

static bool comes_first(const struct pair *a, const struct pair *b)
{
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void swap(struct pair *a, struct pair *b)
{
  const struct pair moved = *a;
  *a = *b;
  *b = moved;
}

static void offer(struct merging *m, int at)
{
  if (at < 0 || m->part[at].after < 0) return;
  const int left = m->part[at].id, right = m->part[m->part[at].after].id;
  if (left < 0 || right < 0) return;
  const struct merge *merge = merge_of(m->bpe, left, right);
  if (merge->left < 0) return;
  if (m->pairs == m->room) {
    const size_t room = 2 * m->room + 64;
    struct pair *heap = realloc(m->heap, room * sizeof *heap);
    m->failed |= !heap;
    if (!heap) return;
    m->heap = heap;
    m->room = room;
  }
  size_t i = m->pairs++;
  m->heap[i] = (struct pair){merge->rank, at, left, right};
  for (; i > 0 && comes_first(&m->heap[i], &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
    swap(&m->heap[i], &m->heap[(i - 1) / 2]);
}

static struct pair take_first(struct merging *m)
{
  const struct pair first = m->heap[0];
  m->heap[0] = m->heap[--m->pairs];
  for (size_t i = 0;;) {
    size_t least = i;
    for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < m->pairs; child++)
      if (comes_first(&m->heap[child], &m->heap[least])) least = child;
    if (least == i) return first;
    swap(&m->heap[i], &m->heap[least]);
    i = least;
  }
}

static void merge_parts(struct merging *m)
{
  for (int i = 0; i + 1 < m->parts; i++) offer(m, i);
  while (m->pairs > 0 && !m->failed) {
    const struct pair p = take_first(m);
    struct part *left = &m->part[p.at];
    if (left->id != p.left || left->after < 0 || m->part[left->after].id != p.right) continue;
    struct part *right = &m->part[left->after];
    left->id = merge_of(m->bpe, p.left, p.right)->made;
    left->after = right->after;
    right->id = MERGED;
    if (left->after >= 0) m->part[left->after].before = p.at;
    offer(m, left->before);
    offer(m, p.at);
  }
}

static void add_part(struct merging *m, int id)
{
  const int i = m->parts++;
  m->part[i] = (struct part){id, i - 1, -1};
  if (i > 0) m->part[i - 1].after = i;
}

// A character as the vocabulary has it: behind the prefix, unless it is the first of a word; the
// last one with the suffix.
static const char *as_token(const struct bpe *b, struct bytes *room, const char *at, size_t *size,
                            bool first, bool last)
{
  if ((first || !b->prefix.count) && !(last && b->suffix.count)) return at;
  room->count = 0;
  if (!first) add_bytes(room, b->prefix.at, b->prefix.count);
  add_bytes(room, at, *size);
  if (last) add_bytes(room, b->suffix.at, b->suffix.count);
  *size = room->count;
  return room->at;
}

// The characters of the word, as tokens.
static void add_characters(struct merging *m, const char *word, size_t count)
{
  const struct bpe *b = m->bpe;
  struct bytes room = {0};
  bool holds = false; // an unknown one: it comes ahead of the next one that is a token
  add_bytes(&room, "", 0);
  for (size_t i = 0; i < count && !room.failed;) {
    uint32_t code;
    const int n = utf8_at(word + i, count - i, &code);
    const size_t step = (size_t)(n > 0 ? n : -n);
    size_t size = step;
    const char *text = as_token(b, &room, word + i, &size, i == 0, i + step == count);
    const int id = room.failed ? -1 : vocabulary_id(b->tokens, text, size);
    bool has_bytes = b->falls_back && id < 0;
    for (size_t k = 0; k < size && has_bytes; k++) has_bytes = b->byte[(unsigned char)text[k]] >= 0;
    if (id >= 0) {
      if (holds) add_part(m, b->unknown);
      holds = false;
      add_part(m, id);
    } else if (has_bytes) {
      for (size_t k = 0; k < size; k++) add_part(m, b->byte[(unsigned char)text[k]]);
    } else if (b->unknown >= 0) {
      if (holds && !b->fuses_unknown) add_part(m, b->unknown);
      holds = true;
    }
    i += step;
  }
  if (holds) add_part(m, b->unknown);
  m->failed |= room.failed;
  free_bytes(&room);
}

bool bpe_encode(const struct bpe *b, const char *word, size_t count, struct ids *ids,
                struct failure *why)
{
  const int whole = b->ignores_merges ? vocabulary_id(b->tokens, word, count) : -1;
  if (whole >= 0) {
    add_id(ids, whole);
    return !ids->failed || failed(why, "out of memory for a text");
  }
  const size_t most = count * (1 + b->prefix.count) + b->suffix.count + 1;
  struct merging m = {.bpe = b, .part = malloc(most * sizeof *m.part)};
  if (!m.part) return failed(why, "out of memory for a text");
  add_characters(&m, word, count);
  merge_parts(&m);
  for (int i = 0; i < m.parts && !m.failed; i++)
    if (m.part[i].id != MERGED) add_id(ids, m.part[i].id);
  free(m.part);
  free(m.heap);
  return (!m.failed && !ids->failed) || failed(why, "out of memory for a text");
}
