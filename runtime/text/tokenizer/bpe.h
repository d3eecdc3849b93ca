// SPDX-License-Identifier: MIT
// Byte pair encoding: a vocabulary, and the merges of its tokens.
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/failure.h"
#include "text/tokenizer/unicode.h"

// Ids that grow; to be freed.
struct ids {
  int *at;
  size_t count, room;
  bool failed; // out of memory: some were not added
};
void add_id(struct ids *ids, int id);

struct bpe;

// The "model" of a tokenizer.json, of type BPE. NULL, and why, if it is damaged.
struct bpe *bpe_open(const json_t *model, const char *path, struct failure *why);
void bpe_close(struct bpe *b);

// Adds a token of its own: of "added_tokens".
bool bpe_add(struct bpe *b, const char *text, size_t count, int id, const char *path,
             struct failure *why);

// The id of a token, or -1; the token's text, or NULL; ids are below bpe_ids.
int bpe_id(const struct bpe *b, const char *text, size_t count);
const char *bpe_text(const struct bpe *b, int id, size_t *count);
int bpe_ids(const struct bpe *b);

// Adds the ids of a word, in UTF-8. False: out of memory.
bool bpe_encode(const struct bpe *b, const char *word, size_t count, struct ids *ids);

// "<0x0A>": the byte, or -1.
int byte_of_token(const char *text, size_t count);

#endif
