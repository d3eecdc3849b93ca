// SPDX-License-Identifier: MIT
// The "model" of a tokenizer.json: how a word becomes tokens.
#ifndef TEXT_TOKEN_MODEL_H
#define TEXT_TOKEN_MODEL_H

#include <jansson.h>
#include "text/tokenizer/vocabulary.h"

struct token_model;

// Reads it: BPE, Unigram, WordPiece or WordLevel. NULL, and why, if it is damaged, or of another
// type.
struct token_model *token_model_open(const json_t *model, const char *path, struct failure *why);
void token_model_close(struct token_model *m);

// Its tokens.
const struct vocabulary *token_model_tokens(const struct token_model *m);

// Adds the ids of a word, in UTF-8. False, and why: out of memory, or there is no token for unknown
// words.
bool token_model_encode(const struct token_model *m, const char *word, size_t count,
                        struct ids *ids, struct failure *why);

#endif
