// SPDX-License-Identifier: MIT
// The entries of a program that generates, for rank 0, which decides what is generated: it calls
// engine_run, and the other ranks follow. Nothing but tokens, logits' best candidates and settings
// travels between ranks.
#ifndef TEXT_ENGINE_H
#define TEXT_ENGINE_H

#include "base/failure.h"
#include "text/chat/sampling.h"

enum { MOST_TOP = 64 };

// The work of a slot in a call: it takes tokens, and asks for the next one.
struct slot_work {
  int slot;
  int start;              // of the sequence's tokens, those that are in the slot's caches
  const int *ids;         // the next tokens
  int count;              // more than 1: of a prompt
  bool asks;              // for the token after them
  int known;              // it, where the prompt has it; -1: it is chosen
  struct sampling how;    // by this
  uint32_t prompt;        // the number of the prompt, for draws
  int top;                // the number of best candidates by the model's own logits to report
  bool scores;            // asks for its log-probability, too, by the model's own logits
  int token;              // result
  struct candidate *best; // result: `top` of them, with their logits
  double log_probability; // result
  double log_sum;         // result: a logit less this is a log-probability
};

// Finds the entries' tensors. False, and why, if out of memory.
bool engine_open(struct failure *why);
void engine_close(void);

// Rank 0: runs the work of different slots. Work of several tokens is a prompt's, and runs by
// itself.
void engine_run(struct slot_work *work, int n);

// The other ranks: follow until rank 0 calls engine_end.
void engine_follow(void);
void engine_end(void);

// Rank 0, which has nothing to do: the others sleep so long instead of waiting for its next call.
void engine_rest(int milliseconds);

#endif
