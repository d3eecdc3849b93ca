// SPDX-License-Identifier: MIT
// HTTP for a server: requests come whole, and are answered at once, later, or piece by piece. All
// happens in http_run, in the thread that calls it. Limits hold for each client: a body's and
// headers' size, the time that a request takes to come, the number of connections.
#ifndef TEXT_HTTP_H
#define TEXT_HTTP_H

#include "base/failure.h"
#include "text/tokenizer/unicode.h"

enum { MOST_BODY = 4 << 20 };

enum {
  HTTP_OK = 200,
  HTTP_BAD_REQUEST = 400,
  HTTP_UNAUTHORIZED = 401,
  HTTP_NOT_FOUND = 404,
  HTTP_METHOD_NOT_ALLOWED = 405,
  HTTP_CONTENT_TOO_LARGE = 413,
  HTTP_UNSUPPORTED_MEDIA_TYPE = 415,
  HTTP_HEAD_TOO_LARGE = 431,
  HTTP_INTERNAL_SERVER_ERROR = 500,
  HTTP_SERVICE_UNAVAILABLE = 503,
};

// A request, until its answer is sent or its client has gone.
struct call;

struct http {
  int port;
  const char *host;
  const char *token; // that a client must have, but for /health; NULL: none
  // Takes a request that has come whole, and answers it now or later.
  void (*take)(struct call *call, const char *method, const char *path, const char *body,
               size_t count);
  // Its client has gone: `of` of the call must not answer it any more.
  void (*gone)(void *of);
};

// Begins to listen; h must stay. False, and why.
bool http_open(const struct http *h, struct failure *why);

// Does the pending work, and waits at most so long for more.
void http_run(int milliseconds);

// No new connections.
void http_hush(void);
// Whether an answer is not yet sent.
bool http_is_busy(void);
void http_close(void);

// The owner of the call, for `gone`.
void call_is_of(struct call *call, void *of);

// Answers with JSON; text is taken over, and freed. NULL: out of memory.
void call_answer(struct call *call, unsigned status, char *text);

// Answers with events: call_events, then call_event for each, then call_end. The text is copied.
void call_events(struct call *call);
void call_event(struct call *call, const char *text);
void call_end(struct call *call);

// Answers with an error of OpenAI's form. param: the field that is wrong, or NULL.
void call_refuse(struct call *call, unsigned status, const char *type, const char *param,
                 const char *message);

#endif
