// SPDX-License-Identifier: MIT
// sentencepiece's precompiled rules of normalization: texts of one or more characters, each with
// another text in its place.
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include "text/tokenizer/unicode.h"

struct charsmap;

// Reads a precompiled_charsmap, in base64. NULL, and why, if it is damaged.
struct charsmap *charsmap_open(const char *text, size_t count, struct failure *why);
void charsmap_close(struct charsmap *m);

// Adds the text, in UTF-8, with the rules applied.
void charsmap_add(const struct charsmap *m, struct bytes *to, const char *text, size_t count);

#endif
