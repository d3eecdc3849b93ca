// SPDX-License-Identifier: MIT
// The log-probabilities of an answer's tokens, by the model's own logits, as OpenAI's answers have
// them.
#ifndef TEXT_LOGPROBS_H
#define TEXT_LOGPROBS_H

#include <jansson.h>
#include "text/chat/engine.h"
#include "text/tokenizer/tokenizer.h"

// A token, and its log-probability.
struct logprob {
  int id;
  double is;
};

struct logprobs {
  const struct tokenizer *tokenizer;
  int top; // so many alternatives of each token
  struct scored_token *at;
  struct logprob *best;      // `top` of each
  size_t count, room, given; // given: for the caller
  size_t bytes, characters;  // of the text so far, but for
  char begun[4];             // a character that has begun
  size_t nbegun;
  bool failed; // out of memory
};

// Adds a token; t: what was made of it, or NULL for a text's first token.
void logprobs_add(struct logprobs *l, int id, const struct slot_work *t);

// The number of the tokens that begin, or end, within so many bytes of the text.
size_t logprobs_begun(const struct logprobs *l, size_t bytes);
size_t logprobs_ended(const struct logprobs *l, size_t bytes);

// Those of tokens from `first` to `end`, as completions and as chats have them.
json_t *logprobs_of_text(struct logprobs *l, size_t first, size_t end);
json_t *logprobs_of_chat(struct logprobs *l, size_t first, size_t end);

void logprobs_free(struct logprobs *l);

#endif
