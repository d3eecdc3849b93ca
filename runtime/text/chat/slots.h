// SPDX-License-Identifier: MIT
// Sequences that are generated side by side: each takes a slot as one comes free, goes through its
// prompt, then grows by a token a call, until it ends. Rank 0's.
#ifndef TEXT_JOBS_H
#define TEXT_JOBS_H

#include "text/chat/engine.h"

enum why_ended { NOT_ENDED, AT_STOP, AT_LENGTH, AT_CONTEXT, CANCELLED };

struct job {
  // given
  int *ids; // the prompt's tokens, then those that were made; room for the context
  int prompt_count;
  int most; // tokens to make
  struct sampling how;
  uint32_t number;   // of the prompt, for draws
  int top;           // see slot_work
  bool scores;       // each token that is made, and
  bool scores_known; // those of the prompt behind its first one
  // Called for each new token, which is in ids already, with what is known of it; returns whether
  // the sequence ends there. Also for tokens of the prompt that are scored: these end nothing.
  bool (*made)(struct job *job, const struct slot_work *t);
  void (*ended)(struct job *job);
  void *of; // the caller's
  // the state
  int count;    // of ids
  int in_cache; // of them
  int slot;
  enum why_ended why;
  double began, first_token; // seconds of the clock: it took a slot; it made its first token
  struct job *next;          // waiting, or running
};

// The work done so far.
struct jobs_figures {
  long prompt_tokens, made_tokens; // made by calls of decode
  double prompt_seconds, decode_seconds;
  long decode_calls;
};
extern struct jobs_figures jobs_figures;

bool jobs_open(struct failure *why);
void jobs_close(void);
void jobs_add(struct job *job);    // after those that wait
void jobs_cancel(struct job *job); // ends it at the next step
// Gives free slots to those that wait, takes a chunk of each prompt, and makes a token of all other
// sequences. False: there is nothing more to do.
bool jobs_step(void);

#endif
