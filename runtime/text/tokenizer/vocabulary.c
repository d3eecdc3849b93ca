// SPDX-License-Identifier: MIT
// The tokens of a tokenizer.
#include "text/tokenizer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDS = 1 << 24 };

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

uint64_t hash_on(uint64_t hash, const char *text, size_t count)
{
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
  return hash;
}

static int *place_of(const struct vocabulary *v, uint64_t hash, const char *first, size_t nfirst,
                     const char *rest, size_t nrest)
{
  size_t at = (hash ^ hash >> 29) & (v->places - 1);
  for (;; at = (at + 1) & (v->places - 1)) {
    const int id = v->place[at];
    if (id < 0) return &v->place[at];
    const struct token *t = &v->token[id];
    if (t->count == nfirst + nrest && memcmp(t->text, first, nfirst) == 0 &&
        memcmp(t->text + nfirst, rest, nrest) == 0)
      return &v->place[at];
  }
}

int vocabulary_id_of(const struct vocabulary *v, uint64_t hash, const char *first, size_t nfirst,
                     const char *rest, size_t nrest)
{
  return v->places ? *place_of(v, hash, first, nfirst, rest, nrest) : -1;
}

int vocabulary_id(const struct vocabulary *v, const char *text, size_t count)
{
  return vocabulary_id_of(v, hash_on(HASH_OF_NOTHING, text, count), text, count, "", 0);
}

const char *vocabulary_text(const struct vocabulary *v, int id, size_t *count)
{
  if (id < 0 || id >= v->ids || !v->token[id].text) return NULL;
  *count = v->token[id].count;
  return v->token[id].text;
}

static void take_place(struct vocabulary *v, int id)
{
  const struct token *t = &v->token[id];
  *place_of(v, hash_on(HASH_OF_NOTHING, t->text, t->count), t->text, t->count, "", 0) = id;
}

// Room for as many texts as there are ids, in the order of the ids.
static bool make_places(struct vocabulary *v)
{
  size_t places = 16;
  while (places < 4 * (size_t)v->ids) places *= 2;
  int *place = malloc(places * sizeof *place);
  if (!place) return false;
  free(v->place);
  v->place = place;
  v->places = places;
  for (size_t i = 0; i < places; i++) v->place[i] = -1;
  for (int id = 0; id < v->ids; id++)
    if (v->token[id].text) take_place(v, id);
  return true;
}

bool vocabulary_add(struct vocabulary *v, const char *text, size_t count, int64_t id,
                    const char *path, struct failure *why)
{
  if (id < 0 || id >= MOST_IDS)
    return failed(why, "%s: the token '%.40s' has the id %lld", path, text, (long long)id);
  if (id >= v->ids) {
    const int ids = (int)id + 1 + v->ids / 2;
    struct token *token = realloc(v->token, (size_t)ids * sizeof *token);
    if (!token) return failed(why, "%s: out of memory", path);
    memset(token + v->ids, 0, (size_t)(ids - v->ids) * sizeof *token);
    v->token = token;
    v->ids = ids;
  }
  struct token *t = &v->token[id];
  if (t->text && (t->count != count || memcmp(t->text, text, count) != 0))
    return failed(why, "%s: '%.40s' and '%.40s' are both token %lld", path, t->text, text,
                  (long long)id);
  if (t->text) return true;
  t->text = malloc(count + 1);
  if (!t->text) return failed(why, "%s: out of memory", path);
  memcpy(t->text, text, count);
  t->text[count] = 0;
  t->count = count;
  if (count > v->longest) v->longest = count;
  if (v->places < 2 * (size_t)v->ids)
    return make_places(v) || failed(why, "%s: out of memory", path);
  take_place(v, (int)id);
  return true;
}

void vocabulary_bytes(const struct vocabulary *v, int byte[256])
{
  for (int i = 0; i < 256; i++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    byte[i] = vocabulary_id(v, text, 6);
  }
}

void vocabulary_free(struct vocabulary *v)
{
  for (int i = 0; i < v->ids; i++) free(v->token[i].text);
  free(v->token);
  free(v->place);
  *v = (struct vocabulary){0};
}
