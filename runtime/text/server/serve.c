// SPDX-License-Identifier: MIT
// A server.
#include "text/server/serve.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/local_ranks.h"
#include "base/watchdog.h"
#include "text/chat/engine.h"
#include "text/chat/prompts.h"
#include "text/chat/slots.h"
#include "text/chat/text_file.h"
#include "text/server/api.h"

static bool asked_to_stop;

static void stop(void)
{
  __atomic_store_n(&asked_to_stop, true, __ATOMIC_RELAXED);
}

void serve_signals(bool leads)
{
  watch_serves(leads ? stop : neighbours_ask_first);
}

// The token of --token-file or the environment, to be freed; "": none. NULL, and why.
static char *read_token(const struct options *o, struct failure *why)
{
  const char *given = getenv("TPGEN_API_KEY");
  size_t length = 0;
  char *token =
      o->token_file ? whole_file(o->token_file, &length, why) : strdup(given ? given : "");
  if (!token) return NULL;
  token[strcspn(token, "\r\n")] = 0;
  if (*token || (!o->token_file && !given)) return token;
  failed(why, "%s: there is no token", o->token_file ? o->token_file : "TPGEN_API_KEY");
  free(token);
  return NULL;
}

// "weights/Llama-3.2-1B/" is Llama-3.2-1B.
static char *name_of(const struct options *o)
{
  struct bytes name = {0}; // of any bytes
  char *path = o->weights ? realpath(o->weights, NULL) : NULL;
  const char *slash = path ? strrchr(path, '/') : NULL,
             *last = slash && slash[1] ? slash + 1 : "model";
  add_lossy(&name, last, strlen(last));
  add_bytes(&name, "", 1);
  free(path);
  return name.at;
}

// Answers until a signal; then ends the answers in progress.
static void answer_all(void)
{
  enum { LONGEST = 100, SHARE = 8, LAST = 25, ROUND = 20 }; // milliseconds, but for SHARE
  double busy = seconds_now();
  while (!__atomic_load_n(&asked_to_stop, __ATOMIC_RELAXED) && !neighbours_asked()) {
    const bool works = jobs_step();
    // The longer the server was idle, the longer the pause before the next look.
    const double idle = 1e3 * (seconds_now() - busy) / SHARE;
    const int rest = idle < 1 ? 1 : idle < LONGEST ? (int)idle : LONGEST;
    if (works)
      busy = seconds_now();
    else
      engine_rest(rest);
    http_run(works ? 0 : rest);
  }
  http_hush();
  api_end();
  while (jobs_step()) {
  }
  for (int i = 0; i < LAST && http_is_busy(); i++) http_run(ROUND);
}

bool serve(const struct options *o, const struct text_settings *settings,
           const struct tokenizer *tokenizer, struct failure *why)
{
  struct failure no_chat = {""};
  struct chat *chat = NULL;
  char *token = read_token(o, why), *model = name_of(o);
  if (token && !settings_chat(&chat, o, &no_chat))
    fprintf(stderr, "note: no chats: %s\n", no_chat.text);
  const struct api api = {.settings = settings,
                          .tokenizer = tokenizer,
                          .chat = chat,
                          .why_no_chat = no_chat.text,
                          .model = model ? model : "model",
                          .stops = o->stop,
                          .most = o->make,
                          .queue = o->queue >= 0 ? o->queue : 64};
  const struct http http = {.port = o->serve,
                            .host = o->host ? o->host : "127.0.0.1",
                            .token = token && *token ? token : NULL,
                            .take = api_take,
                            .gone = api_gone};
  const bool ok = token && http_open(&http, why);
  if (ok) {
    api_open(&api);
    fprintf(stderr, "listening at http://%s:%d/v1\n", http.host, http.port);
    answer_all();
    http_close();
  }
  chat_close(chat);
  free(token);
  free(model);
  return ok;
}
