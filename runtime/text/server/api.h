// SPDX-License-Identifier: MIT
// Requests of OpenAI's kind: /v1/completions, /v1/chat/completions, /v1/models, /health.
#ifndef TEXT_API_H
#define TEXT_API_H

#include "text/chat/settings.h"
#include "text/server/http.h"

struct api {
  const struct text_settings *settings;
  const struct tokenizer *tokenizer;
  const struct chat *chat; // NULL: no chats, for the reason why_no_chat
  const char *why_no_chat;
  const char *model;        // its name
  const char *const *stops; // for all requests; NULL-terminated
  int most;                 // tokens of an answer, by the command line; 0: it says none
  int queue;                // requests that wait for a slot
};

void api_open(const struct api *api);

// For http: takes a request; its client has gone.
void api_take(struct call *call, const char *method, const char *path, const char *body,
              size_t count);
void api_gone(void *of);

// Ends all answers with what they have: the server stops.
void api_end(void);

#endif
