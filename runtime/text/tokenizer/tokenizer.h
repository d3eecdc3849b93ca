// SPDX-License-Identifier: MIT
// A tokenizer of Hugging Face's tokenizer.json: byte pair encoding (GPT-2, Llama, Qwen, Mistral),
// Unigram (T5, XLNet), WordPiece (BERT) and WordLevel.
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/failure.h"
#include "text/tokenizer/token_model.h"
#include "text/tokenizer/unicode.h"

struct tokenizer;

// Reads the file. NULL, and why, if it is damaged, or has a part that is not known here.
struct tokenizer *tokenizer_open(const char *path, struct failure *why);
void tokenizer_close(struct tokenizer *t);

// Adds the ids of a text; special: with the tokens that the post-processor puts around it. The text
// may hold any bytes: those that are not UTF-8 count as U+FFFD. False, and why.
bool tokenizer_encode(const struct tokenizer *t, const char *text, size_t count, bool special,
                      struct ids *ids, struct failure *why);

// Adds the text of ids, which is UTF-8; skip: special tokens are left out. Ids that are unknown
// give nothing. False, and why.
bool tokenizer_decode(const struct tokenizer *t, const int *ids, size_t count, bool skip,
                      struct bytes *text, struct failure *why);

// Adds the bytes that a token has in a text; first: at its beginning. They may be a part of a
// character. An id that is unknown has none. False, and why.
bool tokenizer_bytes(const struct tokenizer *t, int id, bool first, struct bytes *bytes,
                     struct failure *why);

// Whether decoding leaves it out: it is a special token.
bool tokenizer_skips(const struct tokenizer *t, int id);

// The id of a token, or -1; of the special token with which a text begins, behind white space.
int tokenizer_id(const struct tokenizer *t, const char *token);
int tokenizer_special_at(const struct tokenizer *t, const char *text);

#endif
