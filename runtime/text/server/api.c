// SPDX-License-Identifier: MIT
// Requests of OpenAI's kind.
#include "text/server/api.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "text/chat/answer.h"
#include "text/chat/prompts.h"
#include "text/chat/slots.h"

// A request, from when it is taken until its sequence has ended.
struct request {
  struct call *call; // NULL: its client has gone
  struct job job;
  struct text_answer text;
  const char *stops[MOST_STOPS + 1];
  json_t *body; // the stops are in it
  const json_t *stop_tokens;
  bool chats, streams, tells_usage, ended;
  char id[40];
  long created;
  struct request *next, **from;
};

static struct {
  const struct api *how;
  struct request *all;
  int count;
  uint32_t number; // of the next request without a seed
  int turn_end;    // the token that ends a turn of a chat, or -1
  bool stops;      // the server
} api;

void api_open(const struct api *how)
{
  api.how = how;
  api.number = 1;
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

static const char *reason_of(const struct request *r)
{
  return r->job.why == AT_STOP ? "stop" : r->job.why ? "length" : NULL;
}

static json_t *usage_of(const struct request *r)
{
  const int prompt = r->job.prompt_count, made = r->job.count - prompt;
  return json_pack("{sisisi}", "prompt_tokens", prompt, "completion_tokens", made, "total_tokens",
                   prompt + made);
}

// The part that all answers have, with these choices.
static json_t *answer_of(const struct request *r, const char *object, json_t *choices)
{
  return json_pack("{sssssIssso}", "id", r->id, "object", object, "created", (json_int_t)r->created,
                   "model", api.how->model, "choices", choices);
}

static json_t *choice_of(const struct request *r, const char *name, json_t *value)
{
  json_t *choice = json_pack("{siso}", "index", 0, name, value);
  json_object_set_new(choice, "logprobs", json_null());
  const char *reason = reason_of(r);
  json_object_set_new(choice, "finish_reason", reason ? json_string(reason) : json_null());
  return json_pack("[o]", choice);
}

static void send_event(struct request *r, json_t *object)
{
  char *text = dumped(object);
  if (text) call_event(r->call, text);
  free(text);
}

// A piece of the text, as an event.
static void send_piece(struct request *r, const char *text, size_t count, bool begins)
{
  if (!r->chats) {
    send_event(r, answer_of(r, "text_completion", choice_of(r, "text", string_of(text, count))));
    return;
  }
  json_t *delta = json_object();
  if (begins) json_object_set_new(delta, "role", json_string("assistant"));
  if (begins || count > 0) json_object_set_new(delta, "content", string_of(text, count));
  send_event(r, answer_of(r, "chat.completion.chunk", choice_of(r, "delta", delta)));
}

static void end_events(struct request *r)
{
  send_piece(r, "", 0, false);
  if (r->tells_usage) {
    json_t *last =
        answer_of(r, r->chats ? "chat.completion.chunk" : "text_completion", json_array());
    json_object_set_new(last, "usage", usage_of(r));
    send_event(r, last);
  }
  call_event(r->call, "[DONE]");
  call_end(r->call);
}

static void send_answer(struct request *r)
{
  json_t *text = string_of(r->text.whole.at, r->text.whole.count), *choices;
  if (r->chats)
    choices = choice_of(r, "message", json_pack("{ssso}", "role", "assistant", "content", text));
  else
    choices = choice_of(r, "text", text);
  json_t *whole = answer_of(r, r->chats ? "chat.completion" : "text_completion", choices);
  json_object_set_new(whole, "usage", usage_of(r));
  call_answer(r->call, HTTP_OK, dumped(whole));
}

static void free_request(struct request *r)
{
  answer_free(&r->text);
  free(r->job.ids);
  json_decref(r->body);
  free(r);
}

// ---- a sequence --------------------------------------------------------------------------------

static bool is_stop_token(const struct request *r, int token);

static bool made(struct job *job, int token, const struct candidate *best)
{
  struct request *r = job->of;
  const char *text;
  (void)best;
  if (settings_end_at(api.how->settings, token) || (r->chats && token == api.turn_end) ||
      is_stop_token(r, token))
    return true;
  const bool stops = answer_grow(&r->text, job->ids + job->prompt_count,
                                 (size_t)(job->count - job->prompt_count), r->stops);
  if (!r->streams || !r->call) return stops;
  const size_t count = answer_next(&r->text, stops, &text);
  if (count > 0) send_piece(r, text, count, false);
  return stops;
}

static void ended(struct job *job)
{
  struct request *r = job->of;
  const char *text;
  if (r->call && r->streams) {
    const enum why_ended why = job->why;
    const size_t count = answer_next(&r->text, true, &text);
    job->why = NOT_ENDED; // until the last event
    if (count > 0) send_piece(r, text, count, false);
    job->why = why;
    end_events(r);
  } else if (r->call && r->text.failed) {
    call_answer(r->call, HTTP_INTERNAL_SERVER_ERROR, NULL);
  } else if (r->call && job->why == CANCELLED && job->count == job->prompt_count) {
    call_refuse(r->call, HTTP_SERVICE_UNAVAILABLE, "server_error", NULL,
                "the server is about to stop");
  } else if (r->call) {
    send_answer(r);
  }
  *r->from = r->next;
  if (r->next) r->next->from = r->from;
  api.count--;
  free_request(r);
}

void api_gone(void *of)
{
  struct request *r = of;
  r->call = NULL;
  jobs_cancel(&r->job);
}

void api_end(void)
{
  api.stops = true;
  for (struct request *r = api.all; r; r = r->next) jobs_cancel(&r->job);
}

// ---- reading -----------------------------------------------------------------------------------

static bool refuse(struct call *call, const char *param, const char *message)
{
  call_refuse(call, HTTP_BAD_REQUEST, "invalid_request_error", param, message);
  return false;
}

// A member of the body, if it exists and is not null.
static const json_t *member(const json_t *body, const char *name)
{
  const json_t *value = json_object_get(body, name);
  return json_is_null(value) ? NULL : value;
}

// A number between these; `to` stays if there is none.
static bool read_number(struct call *call, const json_t *body, const char *name, double least,
                        double most, double *to)
{
  char message[160];
  const json_t *value = member(body, name);
  const double number = json_number_value(value);
  if (!value) return true;
  snprintf(message, sizeof message, "'%s' is to be a number from %g to %g", name, least, most);
  if (!json_is_number(value) || !(number >= least && number <= most))
    return refuse(call, name, message);
  *to = number;
  return true;
}

static bool read_whole(struct call *call, const json_t *body, const char *name, double least,
                       double most, int *to)
{
  char message[160];
  double number = *to;
  const json_t *value = member(body, name);
  snprintf(message, sizeof message, "'%s' is to be a whole number", name);
  if (value && !json_is_integer(value)) return refuse(call, name, message);
  if (!read_number(call, body, name, least, most, &number)) return false;
  *to = (int)number;
  return true;
}

static bool read_flag(struct call *call, const json_t *body, const char *name, bool *to)
{
  const json_t *value = member(body, name);
  if (value && !json_is_boolean(value)) return refuse(call, name, "it is to be true or false");
  *to = json_is_true(value);
  return true;
}

static bool is_one_of(const char *const *list, const char *name)
{
  for (; *list; list++)
    if (strcmp(*list, name) == 0) return true;
  return false;
}

// Whether the member asks for nothing: false, 0 where that is the usual number, nothing in a list
// or an object, "none", {"type": "text"}.
static bool asks_nothing(const char *name, const json_t *value)
{
  const json_t *type = json_object_get(value, "type");
  const bool is_one = strcmp(name, "n") == 0 || strcmp(name, "best_of") == 0;
  const bool counts_from_0 = strcmp(name, "logprobs") == 0 || strcmp(name, "top_logprobs") == 0;
  if (json_is_array(value)) return json_array_size(value) == 0;
  if (json_is_object(value))
    return type ? json_is_string(type) && strcmp(json_string_value(type), "text") == 0
                : json_object_size(value) == 0;
  if (json_is_string(value)) return strcmp(json_string_value(value), "none") == 0;
  if (json_is_number(value)) return json_number_value(value) == is_one && !counts_from_0;
  return json_is_null(value) || json_is_false(value);
}

// Members that do not change an answer are left unread; any other one that is not read, and asks
// for something, is refused.
static bool read_others(struct call *call, const struct request *r)
{
  static const char *const read[] = {"max_tokens",     "max_completion_tokens", "stream", "stop",
                                     "stop_token_ids", "temperature",           "top_p",  "min_p",
                                     "top_k",          "repetition_penalty",    "seed",   NULL};
  static const char *const of_chats[] = {
      "messages", "chat_template_kwargs", "add_generation_prompt", "reasoning_effort", "documents",
      NULL};
  static const char *const of_texts[] = {"prompt", NULL};
  static const char *const harmless[] = {"model",
                                         "user",
                                         "metadata",
                                         "store",
                                         "stream_options",
                                         "service_tier",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "parallel_tool_calls",
                                         "include_reasoning",
                                         "skip_special_tokens",
                                         "request_id",
                                         "priority",
                                         NULL};
  const char *name;
  json_t *value;
  char message[160];
  json_object_foreach(r->body, name, value)
  {
    const json_t *modalities = strcmp(name, "modalities") == 0 ? value : NULL;
    const char *first = json_string_value(json_array_get(modalities, 0));
    const bool is_text = first && json_array_size(modalities) == 1 && strcmp(first, "text") == 0;
    if (is_one_of(read, name) || is_one_of(r->chats ? of_chats : of_texts, name) ||
        is_one_of(harmless, name) || is_text || asks_nothing(name, value))
      continue;
    const bool is_one = strcmp(name, "n") == 0 || strcmp(name, "best_of") == 0;
    snprintf(message, sizeof message, is_one ? "'%.60s' can only be 1" : "'%.60s' is not supported",
             name);
    return refuse(call, name, message);
  }
  return true;
}

// Tokens that end the answer.
static bool read_stop_tokens(struct call *call, struct request *r)
{
  const json_t *list = member(r->body, "stop_token_ids");
  if (list && !json_is_array(list))
    return refuse(call, "stop_token_ids", "'stop_token_ids' is to be a list of tokens");
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!json_is_integer(json_array_get(list, i)))
      return refuse(call, "stop_token_ids", "'stop_token_ids' is to be a list of tokens");
  r->stop_tokens = list;
  return true;
}

static bool is_stop_token(const struct request *r, int token)
{
  for (size_t i = 0; i < json_array_size(r->stop_tokens); i++)
    if (json_integer_value(json_array_get(r->stop_tokens, i)) == token) return true;
  return false;
}

static bool add_stop(struct call *call, struct request *r, const json_t *stop)
{
  int n = 0;
  while (r->stops[n]) n++;
  const size_t length = json_string_length(stop);
  if (!json_is_string(stop) || length == 0 || strlen(json_string_value(stop)) != length)
    return refuse(call, "stop", "'stop' is to be a text, or a list of texts, that are not empty");
  if (n >= MOST_STOPS) return refuse(call, "stop", "'stop' has too many texts");
  r->stops[n] = json_string_value(stop);
  return true;
}

static bool read_stops(struct call *call, struct request *r)
{
  const json_t *stop = member(r->body, "stop");
  for (int i = 0; api.how->stops[i]; i++) r->stops[i] = api.how->stops[i];
  if (!json_is_array(stop)) return !stop || add_stop(call, r, stop);
  for (size_t i = 0; i < json_array_size(stop); i++)
    if (!add_stop(call, r, json_array_get(stop, i))) return false;
  return true;
}

static bool read_sampling(struct call *call, struct request *r)
{
  struct sampling *how = &r->job.how;
  *how = api.how->settings->sampling;
  double temperature = how->temperature, top_p = how->top_p, min_p = how->min_p,
         penalty = how->penalty;
  const json_t *seed = member(r->body, "seed");
  if (seed && !json_is_integer(seed)) return refuse(call, "seed", "'seed' is to be a whole number");
  if (!read_number(call, r->body, "temperature", 0, 1000, &temperature) ||
      !read_number(call, r->body, "top_p", 0, 1, &top_p) ||
      !read_number(call, r->body, "min_p", 0, 1, &min_p) ||
      !read_number(call, r->body, "repetition_penalty", 1e-3, 1000, &penalty) ||
      !read_whole(call, r->body, "top_k", -1, INT_MAX / 2, &how->top_k))
    return false;
  how->temperature = (float)temperature;
  how->top_p = (float)top_p;
  how->min_p = (float)min_p;
  how->penalty = (float)penalty;
  if (how->top_k < 0) how->top_k = 0;
  if (seed) how->seed = (uint64_t)json_integer_value(seed);
  r->job.number = seed ? 0 : api.number++;
  return true;
}

// The text of a message: a string, or parts of text, one after the other.
static bool read_content(struct call *call, const json_t *content, struct bytes *to)
{
  add_bytes(to, "", 0);
  if (json_is_string(content)) {
    add_bytes(to, json_string_value(content), json_string_length(content));
    return true;
  }
  for (size_t i = 0; i < json_array_size(content); i++) {
    const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
      return refuse(call, "messages", "a message's content can only have parts of text");
    add_bytes(to, json_string_value(text), json_string_length(text));
  }
  return json_is_array(content) || refuse(call, "messages", "a message has no content");
}

// A message as templates take it: its content is one text; developers are the system's; the rest
// stays.
static json_t *message_of(struct call *call, const json_t *given)
{
  static const char *const roles[] = {"system", "user", "assistant", "tool", NULL};
  const char *role = json_string_value(json_object_get(given, "role"));
  const json_t *content = member(given, "content");
  struct bytes text = {0};
  if (role && strcmp(role, "developer") == 0) role = "system";
  if (!role || !is_one_of(roles, role)) {
    refuse(call, "messages", "a message's role is to be system, user, assistant or tool");
    return NULL;
  }
  // An answer that calls tools may have none.
  const bool may_lack = strcmp(role, "assistant") == 0 && json_object_get(given, "content");
  add_bytes(&text, "", 0);
  json_t *message = NULL;
  if ((content || !may_lack) && !read_content(call, content, &text)) {
    free_bytes(&text);
    return NULL;
  }
  if (!text.failed) message = json_copy((json_t *)given);
  json_object_set_new(message, "role", json_string(role));
  json_object_set_new(message, "content", json_stringn(text.at ? text.at : "", text.count));
  free_bytes(&text);
  if (!message || json_memory_ended()) {
    json_decref(message);
    refuse(call, "messages", "out of memory");
    return NULL;
  }
  return message;
}

// What the chat template sees of a request.
static bool read_messages(struct call *call, const json_t *body, struct ids *ids)
{
  const json_t *list = member(body, "messages"), *more = member(body, "chat_template_kwargs"), *one;
  static const char *const passed[] = {"reasoning_effort", "documents", NULL};
  struct failure why = {"out of memory"};
  size_t i;
  if (more && !json_is_object(more))
    return refuse(call, "chat_template_kwargs", "'chat_template_kwargs' is to be an object");
  const json_t *prompts = member(body, "add_generation_prompt");
  if (prompts && !json_is_boolean(prompts))
    return refuse(call, "add_generation_prompt", "it is to be true or false");
  json_t *messages = json_array(), *variables = json_object();
  json_array_foreach((json_t *)list, i, one)
  {
    json_t *message = message_of(call, one);
    if (!message) {
      json_decref(messages);
      json_decref(variables);
      return false;
    }
    json_array_append_new(messages, message);
  }
  json_object_set_new(variables, "add_generation_prompt", json_boolean(!json_is_false(prompts)));
  for (i = 0; passed[i]; i++)
    if (member(body, passed[i]))
      json_object_set(variables, passed[i], json_object_get(body, passed[i]));
  if (more) json_object_update(variables, (json_t *)more);
  json_object_set_new(variables, "messages", messages);
  const bool ok = !json_memory_ended() &&
                  conversation_ids(api.how->chat, api.how->tokenizer, variables, ids, &why);
  json_decref(variables);
  return ok || refuse(call, "messages", why.text);
}

static bool read_ids(struct call *call, const json_t *list, struct ids *ids)
{
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    const json_int_t number = json_integer_value(id);
    if (!json_is_integer(id) || number < 0 || number >= vocabulary())
      return refuse(call, "prompt",
                    "'prompt' is to be a text, or a list of tokens that the model knows");
    add_id(ids, (int)number);
  }
  return true;
}

static bool read_prompt(struct call *call, const json_t *prompt, struct ids *ids)
{
  struct failure why;
  if (json_is_array(prompt) && json_array_size(prompt) == 1 &&
      !json_is_integer(json_array_get(prompt, 0)))
    prompt = json_array_get(prompt, 0);
  if (json_is_array(prompt) && json_is_integer(json_array_get(prompt, 0)))
    return read_ids(call, prompt, ids);
  if (!json_is_string(prompt))
    return refuse(call, "prompt", "'prompt' is to be one text, or one list of tokens");
  return tokenizer_encode(api.how->tokenizer, json_string_value(prompt), json_string_length(prompt),
                          true, ids, &why) ||
         refuse(call, "prompt", why.text);
}

static bool read_tokens(struct call *call, struct request *r)
{
  const char *of = r->chats ? "messages" : "prompt";
  const int context = program->generation->context;
  struct ids ids = {0};
  char message[160];
  if (r->chats && !api.how->chat) return refuse(call, of, api.how->why_no_chat);
  bool ok =
      r->chats ? read_messages(call, r->body, &ids) : read_prompt(call, member(r->body, of), &ids);
  snprintf(message, sizeof message,
           "'%s' has %zu tokens, and the context is %d: leave one for the answer", of, ids.count,
           context);
  if (ok && (ids.count == 0 || ids.count >= (size_t)context)) ok = refuse(call, of, message);
  for (size_t i = 0; ok && i < ids.count; i++)
    if (ids.at[i] >= vocabulary())
      ok = refuse(call, of, "the tokenizer has a token that the model does not know");
  r->job.ids = ok ? calloc((size_t)context, sizeof *r->job.ids) : NULL;
  if (ok && (ids.failed || !r->job.ids)) {
    call_answer(call, HTTP_INTERNAL_SERVER_ERROR, NULL);
    ok = false;
  }
  if (ok) memcpy(r->job.ids, ids.at, ids.count * sizeof *ids.at);
  r->job.prompt_count = (int)ids.count;
  free(ids.at);
  return ok;
}

static bool read_request(struct call *call, struct request *r)
{
  enum { USUAL = 16 }; // OpenAI's, of a completion
  const json_t *options = member(r->body, "stream_options");
  int most = r->chats ? INT_MAX : USUAL;
  if (api.how->most) most = api.how->most;
  if (!read_whole(call, r->body, "max_tokens", 1, INT_MAX, &most) ||
      !read_whole(call, r->body, "max_completion_tokens", 1, INT_MAX, &most) ||
      !read_flag(call, r->body, "stream", &r->streams) || !read_others(call, r) ||
      !read_stops(call, r) || !read_stop_tokens(call, r) || !read_sampling(call, r) ||
      !read_tokens(call, r))
    return false;
  r->tells_usage = json_is_true(json_object_get(options, "include_usage"));
  r->job.most = most;
  return true;
}

// ---- paths -------------------------------------------------------------------------------------

static void begin_request(struct call *call, struct request *r)
{
  static unsigned long number;
  snprintf(r->id, sizeof r->id, "%s-%lu", r->chats ? "chatcmpl" : "cmpl", ++number);
  r->created = (long)time(NULL);
  r->call = call;
  r->text.tokenizer = api.how->tokenizer;
  r->job.made = made;
  r->job.ended = ended;
  r->job.of = r;
  r->next = api.all;
  r->from = &api.all;
  if (r->next) r->next->from = &r->next;
  api.all = r;
  api.count++;
  call_is_of(call, r);
  jobs_add(&r->job);
  if (!r->streams) return;
  call_events(call);
  if (r->chats) send_piece(r, "", 0, true);
}

static void complete(struct call *call, bool chats, const char *body, size_t count)
{
  json_error_t error;
  if (api.stops || api.count >= api.how->queue + program->generation->slots) {
    call_refuse(call, HTTP_SERVICE_UNAVAILABLE, "server_error", NULL,
                api.stops ? "the server is about to stop"
                          : "too many requests wait: try again later");
    return;
  }
  struct request *r = calloc(1, sizeof *r);
  if (r) r->body = json_loadb(body, count, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (!r || json_memory_ended()) {
    call_answer(call, HTTP_INTERNAL_SERVER_ERROR, NULL);
  } else if (!json_is_object(r->body)) {
    refuse(call, NULL, r->body ? "the body is to be a JSON object" : error.text);
  } else {
    r->chats = chats;
    if (read_request(call, r)) {
      begin_request(call, r);
      return;
    }
  }
  if (r) free_request(r);
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
