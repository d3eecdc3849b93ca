// SPDX-License-Identifier: MIT
// Unigram, sentencepiece's model: the tokens of a text whose scores have the largest sum.
#ifndef TEXT_UNIGRAM_H
#define TEXT_UNIGRAM_H

#include <jansson.h>
#include "text/tokenizer/vocabulary.h"

struct unigram;

// A model of type Unigram, whose tokens go to `tokens`, which must stay. NULL, and why, if it is
// damaged.
struct unigram *unigram_open(const json_t *model, struct vocabulary *tokens, const char *path,
                             struct failure *why);
void unigram_close(struct unigram *u);

// Adds the ids of a word, in UTF-8, that is not empty. False, and why.
bool unigram_encode(const struct unigram *u, const char *word, size_t count, struct ids *ids,
                    struct failure *why);

#endif
