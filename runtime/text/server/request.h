// SPDX-License-Identifier: MIT
// What a request of OpenAI's kind asks for.
#ifndef TEXT_REQUEST_H
#define TEXT_REQUEST_H

#include <jansson.h>
#include "text/chat/answer.h"
#include "text/chat/slots.h"
#include "text/server/api.h"
#include "text/server/logprobs.h"

// One of its answers: a sequence.
struct choice {
  struct job job;
  struct text_answer text;
  struct logprobs logprobs;
  struct request *of;
  int index;
  bool ended, ended_by_token;
};

struct request {
  struct call *call; // NULL: its client has gone
  struct choice *choice;
  int choices, ended; // their number; of these, those that have ended
  int prompt_tokens;
  const char *stops[MOST_STOPS + 1];
  json_t *body; // the stops are in it
  const json_t *stop_tokens;
  bool chats, streams, tells_usage;
  bool echoes;         // the prompt
  bool scores;         // log-probabilities
  int top;             // so many alternatives of each token
  struct sampling how; // tokens are chosen
  bool has_seed;
  int most; // tokens of an answer
  char id[40];
  long created;
  struct request *next, **from;
};

// Reads the members of the body, and makes the choices, whose jobs have their prompts. False: the
// call is answered, as something is wrong with the request.
bool request_read(struct request *r, struct call *call, const struct api *api);
void request_free(struct request *r);

// Whether the request says that this token ends its answers.
bool request_stops_at(const struct request *r, int token);

// The most sequences that there can be at once, the waiting ones included.
int most_sequences(const struct api *api);

#endif
