// SPDX-License-Identifier: MIT
// Byte pair encoding: merges of tokens.
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <jansson.h>
#include "text/tokenizer/vocabulary.h"

struct bpe;

// A model of type BPE, whose tokens must stay. NULL, and why, if it is damaged.
struct bpe *bpe_open(const json_t *model, const struct vocabulary *tokens, const char *path,
                     struct failure *why);
void bpe_close(struct bpe *b);

// Adds the ids of a word, in UTF-8, that is not empty. False, and why.
bool bpe_encode(const struct bpe *b, const char *word, size_t count, struct ids *ids,
                struct failure *why);

#endif
