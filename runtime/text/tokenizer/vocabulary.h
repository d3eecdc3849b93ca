// SPDX-License-Identifier: MIT
// The tokens of a tokenizer: texts and ids.
#ifndef TEXT_VOCABULARY_H
#define TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/failure.h"

// Ids that grow; to be freed.
struct ids {
  int *at;
  size_t count, room;
  bool failed; // out of memory: some were not added
};
void add_id(struct ids *ids, int id);

struct token {
  char *text; // NULL: there is none of this id
  size_t count;
};

struct vocabulary {
  struct token *token; // by id
  int ids;             // all are below it
  int *place;          // of texts: id, or -1
  size_t places;
  size_t longest; // bytes of a token
};

void vocabulary_free(struct vocabulary *v);

// Adds a token. Of several ids with one text the last counts. False, and why, if the id has another
// text, or is too large.
bool vocabulary_add(struct vocabulary *v, const char *text, size_t count, int64_t id,
                    const char *path, struct failure *why);

// The id of a text, or -1; the text of an id, or NULL.
int vocabulary_id(const struct vocabulary *v, const char *text, size_t count);
const char *vocabulary_text(const struct vocabulary *v, int id, size_t *count);

// The same of a text in two parts, by a hash that grows byte by byte, for texts with a common
// beginning.
uint64_t hash_on(uint64_t hash, const char *text, size_t count); // begins with HASH_OF_NOTHING
#define HASH_OF_NOTHING UINT64_C(0xcbf29ce484222325)
int vocabulary_id_of(const struct vocabulary *v, uint64_t hash, const char *first, size_t nfirst,
                     const char *rest, size_t nrest);

// The tokens "<0x00>" to "<0xFF>", or -1.
void vocabulary_bytes(const struct vocabulary *v, int byte[256]);

#endif
