// SPDX-License-Identifier: MIT
// Byte pair encoding.
#include "text/tokenizer/bpe.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDS = 1 << 24, NOBODY_YET = -1 };

struct token {
  char *text; // NULL: there is none of this id
  size_t count;
};

// Tokens `left` and `right` become `made`; the lower the rank, the earlier.
struct merge {
  int left, right, made, rank; // left -1: empty
};

struct bpe {
  struct token *token; // by id
  int ids;
  int *place; // of texts: id, or -1
  size_t places;
  struct merge *merge;
  size_t merges;
  int byte[256]; // the token of a byte; or -1
  int unknown;   // or -1
  bool ignores_merges, falls_back, fuses_unknown;
  struct bytes suffix; // of the last character of a word
};

void add_id(struct ids *ids, int id)
{
  if (ids->count == ids->room) {
    const size_t room = 2 * ids->room + 16;
    int *at = realloc(ids->at, room * sizeof *at);
    ids->failed |= !at;
    if (!at) return;
    ids->at = at;
    ids->room = room;
  }
  ids->at[ids->count++] = id;
}

// ---- tables ------------------------------------------------------------------------------------

static uint64_t hash_of(const void *bytes, size_t count)
{
  uint64_t h = 0xcbf29ce484222325;
  for (size_t i = 0; i < count; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
  return h ^ h >> 29;
}

static int *place_of(const struct bpe *b, const char *text, size_t count)
{
  size_t at = hash_of(text, count) & (b->places - 1);
  for (;; at = (at + 1) & (b->places - 1)) {
    const int id = b->place[at];
    if (id < 0) return &b->place[at];
    const struct token *t = &b->token[id];
    if (t->count == count && memcmp(t->text, text, count) == 0) return &b->place[at];
  }
}

static struct merge *merge_of(const struct bpe *b, int left, int right)
{
  const int pair[] = {left, right};
  size_t at = hash_of(pair, sizeof pair) & (b->merges - 1);
  while (b->merge[at].left >= 0 && (b->merge[at].left != left || b->merge[at].right != right))
    at = (at + 1) & (b->merges - 1);
  return &b->merge[at];
}

static size_t power_above(size_t n)
{
  size_t power = 16;
  while (power < 2 * n) power *= 2;
  return power;
}

static bool make_places(struct bpe *b, size_t texts)
{
  b->places = power_above(texts);
  free(b->place);
  b->place = malloc(b->places * sizeof *b->place);
  for (size_t i = 0; b->place && i < b->places; i++) b->place[i] = NOBODY_YET;
  for (int id = 0; b->place && id < b->ids; id++)
    if (b->token[id].text) *place_of(b, b->token[id].text, b->token[id].count) = id;
  return b->place != NULL;
}

int bpe_id(const struct bpe *b, const char *text, size_t count)
{
  return *place_of(b, text, count);
}

const char *bpe_text(const struct bpe *b, int id, size_t *count)
{
  if (id < 0 || id >= b->ids || !b->token[id].text) return NULL;
  *count = b->token[id].count;
  return b->token[id].text;
}

int bpe_ids(const struct bpe *b)
{
  return b->ids;
}

static bool store(struct bpe *b, const char *text, size_t count, json_int_t id, const char *path,
                  struct failure *why)
{
  if (id < 0 || id >= MOST_IDS)
    return failed(why, "%s: the token '%.40s' has the id %lld", path, text, (long long)id);
  if (id >= b->ids) {
    const int ids = (int)id + 1 + b->ids / 2;
    struct token *token = realloc(b->token, (size_t)ids * sizeof *token);
    if (!token) return failed(why, "%s: out of memory", path);
    memset(token + b->ids, 0, (size_t)(ids - b->ids) * sizeof *token);
    b->token = token;
    b->ids = ids;
  }
  struct token *t = &b->token[id];
  if (t->text && (t->count != count || memcmp(t->text, text, count) != 0))
    return failed(why, "%s: '%.40s' and '%.40s' are both token %lld", path, t->text, text,
                  (long long)id);
  if (t->text) return true;
  t->text = malloc(count + 1);
  if (!t->text) return failed(why, "%s: out of memory", path);
  memcpy(t->text, text, count);
  t->text[count] = 0;
  t->count = count;
  return true;
}

// ---- reading -----------------------------------------------------------------------------------

int byte_of_token(const char *text, size_t count)
{
  unsigned byte;
  char end;
  if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  for (int i = 3; i < 5; i++)
    if (!strchr("0123456789ABCDEF", text[i]) || !text[i]) return -1;
  return sscanf(text + 3, "%2x%c", &byte, &end) == 2 ? (int)byte : -1;
}

static bool read_vocabulary(struct bpe *b, const json_t *vocab, const char *path,
                            struct failure *why)
{
  const char *text;
  json_t *id;
  if (!json_is_object(vocab) || json_object_size(vocab) == 0)
    return failed(why, "%s: model.vocab is not a table of tokens", path);
  json_object_foreach((json_t *)vocab, text, id)
  {
    if (!json_is_integer(id)) return failed(why, "%s: the token '%.40s' has no id", path, text);
    if (!store(b, text, strlen(text), json_integer_value(id), path, why)) return false;
  }
  return make_places(b, json_object_size(vocab)) || failed(why, "%s: out of memory", path);
}

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
  add_bytes(&all, left, nleft);
  add_bytes(&all, right, strlen(right));
  const int a = bpe_id(b, left, nleft), c = bpe_id(b, right, strlen(right)),
            made = all.failed ? -1 : bpe_id(b, all.at, all.count);
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
  b->merges = power_above(n);
  b->merge = malloc(b->merges * sizeof *b->merge);
  if (!b->merge) return failed(why, "%s: out of memory", path);
  for (size_t i = 0; i < b->merges; i++) b->merge[i].left = NOBODY_YET;
  for (size_t i = 0; i < n; i++)
    if (!read_merge(b, json_array_get(merges, i), (int)i, path, why)) return false;
  return true;
}

static bool read_model(struct bpe *b, const json_t *model, const char *path, struct failure *why)
{
  const char *type = json_string_value(json_object_get(model, "type"));
  static const char *const unknown[] = {"dropout", "continuing_subword_prefix"};
  if (type && strcmp(type, "BPE") != 0)
    return failed(why, "%s: its model is %s; this program knows BPE", path, type);
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    const json_t *given = json_object_get(model, unknown[i]);
    const bool is_empty = json_is_string(given) && json_string_length(given) == 0;
    const bool is_zero = json_is_number(given) && json_number_value(given) == 0;
    if (given && !json_is_null(given) && !is_empty && !is_zero)
      return failed(why, "%s: model.%s is not known to this program", path, unknown[i]);
  }
  const json_t *suffix = json_object_get(model, "end_of_word_suffix");
  if (suffix && !json_is_null(suffix) && !json_is_string(suffix))
    return failed(why, "%s: model.end_of_word_suffix is not text", path);
  if (json_is_string(suffix))
    add_bytes(&b->suffix, json_string_value(suffix), json_string_length(suffix));
  if (b->suffix.failed) return failed(why, "%s: out of memory", path);
  b->ignores_merges = json_is_true(json_object_get(model, "ignore_merges"));
  b->falls_back = json_is_true(json_object_get(model, "byte_fallback"));
  b->fuses_unknown = json_is_true(json_object_get(model, "fuse_unk"));
  if (!read_vocabulary(b, json_object_get(model, "vocab"), path, why) ||
      !read_merges(b, json_object_get(model, "merges"), path, why))
    return false;
  const char *name = json_string_value(json_object_get(model, "unk_token"));
  b->unknown = name ? bpe_id(b, name, strlen(name)) : -1;
  if (name && b->unknown < 0)
    return failed(why, "%s: model.unk_token '%.40s' is not in the vocabulary", path, name);
  for (int i = 0; i < 256; i++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    b->byte[i] = bpe_id(b, text, 6);
  }
  return true;
}

struct bpe *bpe_open(const json_t *model, const char *path, struct failure *why)
{
  struct bpe *b = calloc(1, sizeof *b);
  if (!b) {
    failed(why, "%s: out of memory", path);
    return NULL;
  }
  if (read_model(b, model, path, why)) return b;
  bpe_close(b);
  return NULL;
}

void bpe_close(struct bpe *b)
{
  if (!b) return;
  for (int i = 0; i < b->ids; i++) free(b->token[i].text);
  free(b->token);
  free(b->place);
  free(b->merge);
  free_bytes(&b->suffix);
  free(b);
}

bool bpe_add(struct bpe *b, const char *text, size_t count, int id, const char *path,
             struct failure *why)
{
  const int known = bpe_id(b, text, count);
  if (known == id) return true;
  if (known >= 0)
    return failed(why, "%s: the added token '%.40s' has the ids %d and %d", path, text, known, id);
  if (!store(b, text, count, id, path, why)) return false;
  if (b->places < 2 * (size_t)b->ids && !make_places(b, (size_t)b->ids))
    return failed(why, "%s: out of memory", path);
  *place_of(b, text, count) = id;
  return true;
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

// The last character of a word.
static int id_with_suffix(struct merging *m, const char *character, size_t size)
{
  struct bytes both = {0};
  add_bytes(&both, character, size);
  add_bytes(&both, m->bpe->suffix.at, m->bpe->suffix.count);
  const int id = both.failed ? -1 : bpe_id(m->bpe, both.at, both.count);
  m->failed |= both.failed;
  free_bytes(&both);
  return id;
}

// The characters of the word, as tokens.
static void add_characters(struct merging *m, const char *word, size_t count)
{
  const struct bpe *b = m->bpe;
  bool was_unknown = false;
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(word + i, count - i, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    const bool is_last = i + size == count && b->suffix.count;
    const int id = is_last ? id_with_suffix(m, word + i, size) : bpe_id(b, word + i, size);
    bool has_bytes = b->falls_back && id < 0;
    for (size_t k = 0; k < size; k++) has_bytes &= b->byte[(unsigned char)word[i + k]] >= 0;
    if (id >= 0) {
      add_part(m, id);
    } else if (has_bytes) {
      for (size_t k = 0; k < size; k++) add_part(m, b->byte[(unsigned char)word[i + k]]);
    } else if (b->unknown >= 0 && !(was_unknown && b->fuses_unknown)) {
      add_part(m, b->unknown);
    }
    was_unknown = id < 0 && !has_bytes;
    i += size;
  }
}

bool bpe_encode(const struct bpe *b, const char *word, size_t count, struct ids *ids)
{
  const int whole = b->ignores_merges ? bpe_id(b, word, count) : -1;
  if (count == 0) return true;
  if (whole >= 0) {
    add_id(ids, whole);
    return !ids->failed;
  }
  struct merging m = {.bpe = b, .part = malloc((count + 1) * sizeof *m.part)};
  if (!m.part) return false;
  add_characters(&m, word, count);
  merge_parts(&m);
  for (int i = 0; i < m.parts && !m.failed; i++)
    if (m.part[i].id != MERGED) add_id(ids, m.part[i].id);
  free(m.part);
  free(m.heap);
  return !m.failed && !ids->failed;
}
