// SPDX-License-Identifier: MIT
// Requests of OpenAI's kind, and their answers.
#include "text/server/api.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "text/server/request.h"

static struct {
  const struct api *how;
  struct request *all;
  int count;    // of their sequences
  int turn_end; // the token that ends a turn of a chat, or -1
  bool stops;   // the server
} api;

void api_open(const struct api *how)
{
  api.how = how;
  api.turn_end = how->chat ? settings_turn_end(how->tokenizer, how->chat) : -1;
}

// ---- answers -----------------------------------------------------------------------------------

static char *dumped(json_t *object)
{
  char *text = json_dumps(object, JSON_COMPACT);
  json_decref(object);
  if (!json_memory_ended()) return text;
  free(text);
  return NULL;
}

static json_t *string_of(const char *text, size_t count)
{
  return json_stringn(count ? text : "", count);
}

static json_t *usage_of(const struct request *r)
{
  int made = 0;
  for (int i = 0; i < r->choices; i++)
    made += r->choice[i].job.count - r->choice[i].job.prompt_count;
  return json_pack("{sisisi}", "prompt_tokens", r->prompt_tokens, "completion_tokens", made,
                   "total_tokens", r->prompt_tokens + made);
}

// The part that all answers have, with these choices.
static json_t *answer_of(const struct request *r, const char *object, json_t *choices)
{
  return json_pack("{sssssIssso}", "id", r->id, "object", object, "created", (json_int_t)r->created,
                   "model", api.how->model, "choices", choices);
}

// The log-probabilities of the next tokens, up to this one; null where none are asked for.
static json_t *next_logprobs(struct choice *c, size_t end)
{
  const size_t first = c->logprobs.given;
  if (!c->of->scores || (end <= first && !c->ended)) return json_null();
  c->logprobs.given = end > first ? end : first;
  return (c->of->chats ? logprobs_of_chat : logprobs_of_text)(&c->logprobs, first,
                                                              c->logprobs.given);
}

// The tokens that an answer has log-probabilities of: a chat's has none of those that are not in
// its text.
static size_t scored_tokens(const struct choice *c)
{
  size_t count = c->logprobs.count;
  if (!c->of->chats) return count;
  const size_t begun = logprobs_begun(&c->logprobs, c->text.whole.count);
  if (c->ended_by_token && count > 0) count--;
  return c->job.why == AT_STOP && !c->ended_by_token && begun < count ? begun : count;
}

static json_t *choice_of(struct choice *c, const char *name, json_t *value, size_t scored)
{
  json_t *choice = json_pack("{siso}", "index", c->index, name, value);
  json_object_set_new(choice, "logprobs", next_logprobs(c, scored));
  json_object_set_new(choice, "finish_reason",
                      c->ended ? json_string(c->job.why == AT_STOP ? "stop" : "length")
                               : json_null());
  return choice;
}

static void send_event(struct request *r, json_t *object)
{
  char *text = dumped(object);
  if (text) call_event(r->call, text);
  free(text);
}

// A piece of the text, as an event, with the tokens that end with it; the last one has the rest.
static void send_piece(struct choice *c, const char *text, size_t count, bool begins)
{
  struct request *r = c->of;
  const size_t scored = c->ended ? scored_tokens(c) : logprobs_ended(&c->logprobs, c->text.given);
  json_t *piece = string_of(text, count);
  if (r->chats) {
    json_t *delta = json_object();
    if (begins) json_object_set_new(delta, "role", json_string("assistant"));
    if (begins || count > 0) json_object_set(delta, "content", piece);
    json_decref(piece);
    piece = delta;
  }
  json_t *choice = choice_of(c, r->chats ? "delta" : "text", piece, scored);
  json_t *event = answer_of(r, r->chats ? "chat.completion.chunk" : "text_completion",
                            json_pack("[o]", choice));
  if (r->tells_usage) json_object_set_new(event, "usage", json_null());
  send_event(r, event);
}

static void end_events(struct request *r)
{
  if (r->tells_usage) {
    json_t *last =
        answer_of(r, r->chats ? "chat.completion.chunk" : "text_completion", json_array());
    json_object_set_new(last, "usage", usage_of(r));
    send_event(r, last);
  }
  call_event(r->call, "[DONE]");
  call_end(r->call);
}

static json_t *whole_choice(struct choice *c)
{
  json_t *text = string_of(c->text.whole.at, c->text.whole.count);
  const size_t scored = scored_tokens(c);
  if (!c->of->chats) return choice_of(c, "text", text, scored);
  json_t *message =
      json_pack("{sssoso}", "role", "assistant", "content", text, "refusal", json_null());
  return choice_of(c, "message", message, scored);
}

static void send_answer(struct request *r)
{
  json_t *choices = json_array();
  bool failed = false, none = false;
  for (int i = 0; i < r->choices; i++) {
    struct choice *c = &r->choice[i];
    json_array_append_new(choices, whole_choice(c));
    failed |= c->text.failed || c->logprobs.failed;
    none |= c->job.why == CANCELLED && c->job.count == c->job.prompt_count;
  }
  json_t *whole = answer_of(r, r->chats ? "chat.completion" : "text_completion", choices);
  json_object_set_new(whole, "usage", usage_of(r));
  char *text = dumped(whole);
  if (none)
    call_refuse(r->call, HTTP_SERVICE_UNAVAILABLE, "server_error", NULL,
                "the server is about to stop");
  else if (failed)
    call_answer(r->call, HTTP_INTERNAL_SERVER_ERROR, NULL);
  else
    call_answer(r->call, HTTP_OK, text);
  if (none || failed) free(text);
}

// ---- a sequence --------------------------------------------------------------------------------

static bool made(struct job *job, const struct slot_work *t)
{
  struct choice *c = job->of;
  struct request *r = c->of;
  const char *text;
  if (r->scores) logprobs_add(&c->logprobs, t->token, t);
  if (t->known >= 0) return false;
  c->ended_by_token = settings_end_at(api.how->settings, t->token) ||
                      (r->chats && t->token == api.turn_end) || request_stops_at(r, t->token);
  if (c->ended_by_token) return true;
  const int first = r->echoes ? 0 : job->prompt_count;
  const bool stops =
      answer_grow(&c->text, job->ids + first, (size_t)(job->count - first), r->stops);
  if (!r->streams || !r->call) return stops;
  const size_t count = stops ? 0 : answer_next(&c->text, false, &text);
  if (count > 0) send_piece(c, text, count, false);
  return stops;
}

static void ended(struct job *job)
{
  struct choice *c = job->of;
  struct request *r = c->of;
  const char *text;
  if (r->call && r->streams) {
    const size_t count = answer_next(&c->text, true, &text);
    if (count > 0) send_piece(c, text, count, false);
    c->ended = true;
    send_piece(c, "", 0, false);
  }
  c->ended = true;
  api.count--;
  if (++r->ended < r->choices) return;
  if (r->call && r->streams)
    end_events(r);
  else if (r->call)
    send_answer(r);
  *r->from = r->next;
  if (r->next) r->next->from = r->from;
  request_free(r);
}

static void cancel(struct request *r)
{
  for (int i = 0; i < r->choices; i++)
    if (!r->choice[i].ended) jobs_cancel(&r->choice[i].job);
}

void api_gone(void *of)
{
  struct request *r = of;
  r->call = NULL;
  cancel(r);
}

void api_end(void)
{
  api.stops = true;
  for (struct request *r = api.all; r; r = r->next) cancel(r);
}

// ---- paths -------------------------------------------------------------------------------------

static void begin_request(struct call *call, struct request *r)
{
  static unsigned long number;
  snprintf(r->id, sizeof r->id, "%s-%lu", r->chats ? "chatcmpl" : "cmpl", ++number);
  r->created = (long)time(NULL);
  r->call = call;
  r->next = api.all;
  r->from = &api.all;
  if (r->next) r->next->from = &r->next;
  api.all = r;
  api.count += r->choices;
  call_is_of(call, r);
  if (r->streams) call_events(call);
  for (int i = 0; i < r->choices; i++) {
    struct choice *c = &r->choice[i];
    c->job.made = made;
    c->job.ended = ended;
    c->job.of = c;
    jobs_add(&c->job);
    if (r->streams && r->chats) send_piece(c, "", 0, true);
  }
}

static void complete(struct call *call, bool chats, const char *body, size_t count)
{
  json_error_t error;
  const char *busy =
      api.stops ? "the server is about to stop" : "too many requests wait: try again later";
  if (api.stops || api.count >= most_sequences(api.how)) {
    call_refuse(call, HTTP_SERVICE_UNAVAILABLE, "server_error", NULL, busy);
    return;
  }
  struct request *r = calloc(1, sizeof *r);
  if (r) r->body = json_loadb(body, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!r || json_memory_ended()) {
    call_answer(call, HTTP_INTERNAL_SERVER_ERROR, NULL);
  } else if (!json_is_object(r->body)) {
    call_refuse(call, HTTP_BAD_REQUEST, "invalid_request_error", NULL,
                r->body ? "the body is to be a JSON object" : error.text);
  } else {
    r->chats = chats;
    if (request_read(r, call, api.how)) {
      if (api.count + r->choices <= most_sequences(api.how)) {
        begin_request(call, r);
        return;
      }
      call_refuse(call, HTTP_SERVICE_UNAVAILABLE, "server_error", NULL, busy);
    }
  }
  if (r) request_free(r);
}

static void tell_models(struct call *call)
{
  json_t *model = json_pack("{sssssIss}", "id", api.how->model, "object", "model", "created",
                            (json_int_t)0, "owned_by", "tpgen");
  call_answer(call, HTTP_OK, dumped(json_pack("{sss[o]}", "object", "list", "data", model)));
}

void api_take(struct call *call, const char *method, const char *path, const char *body,
              size_t count)
{
  static const struct {
    const char *path, *method;
  } known[] = {{"/health", "GET"},
               {"/v1/models", "GET"},
               {"/v1/completions", "POST"},
               {"/v1/chat/completions", "POST"}};
  size_t i = 0;
  while (i < 4 && strcmp(path, known[i].path) != 0) i++;
  if (i == 4)
    call_refuse(call, HTTP_NOT_FOUND, "invalid_request_error", NULL,
                "there are /v1/completions, /v1/chat/completions, /v1/models and /health");
  else if (strcmp(method, known[i].method) != 0)
    call_refuse(call, HTTP_METHOD_NOT_ALLOWED, "invalid_request_error", NULL,
                "it takes another method");
  else if (i == 0)
    call_answer(call, HTTP_OK, strdup("{\"status\":\"ok\"}"));
  else if (i == 1)
    tell_models(call);
  else
    complete(call, i == 3, body, count);
}
