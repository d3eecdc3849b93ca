// SPDX-License-Identifier: MIT
// WordPiece, BERT's model: a word's longest beginning that is a token, then that of the rest.
#ifndef TEXT_WORDPIECE_H
#define TEXT_WORDPIECE_H

#include <jansson.h>
#include "text/tokenizer/vocabulary.h"

struct wordpiece;

// A model of type WordPiece, whose tokens must stay. NULL, and why, if it is damaged.
struct wordpiece *wordpiece_open(const json_t *model, const struct vocabulary *tokens,
                                 const char *path, struct failure *why);
void wordpiece_close(struct wordpiece *w);

// Adds the ids of a word, in UTF-8, that is not empty. False, and why.
bool wordpiece_encode(const struct wordpiece *w, const char *word, size_t count, struct ids *ids,
                      struct failure *why);

#endif
