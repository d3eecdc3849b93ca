// SPDX-License-Identifier: MIT
// The text of an answer as its tokens come: characters whose bytes are not all there are held back.
#ifndef TEXT_ANSWER_H
#define TEXT_ANSWER_H

#include "text/tokenizer/tokenizer.h"

struct text_answer {
  const struct tokenizer *tokenizer; // NULL: no text
  struct bytes whole;                // the text of all tokens
  size_t prompt;                     // of its bytes, those in which no stop text counts
  size_t given;                      // of its bytes, those that were given
  size_t held;                       // bytes at the end that may change with the next token
  bool failed;                       // out of memory
};

// Takes the answer's tokens so far; whether its text has one of the stop texts (NULL-terminated):
// then it ends ahead of that.
bool answer_grow(struct text_answer *a, const int *ids, size_t count, const char *const *stops);

// The number of bytes that can be given now; at *from. ends: nothing more follows.
size_t answer_next(struct text_answer *a, bool ends, const char **from);

// Prints them. False: they cannot be written.
bool answer_print(struct text_answer *a, FILE *to, bool ends);

void answer_free(struct text_answer *a);

#endif
