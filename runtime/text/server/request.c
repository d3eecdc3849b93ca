// SPDX-License-Identifier: MIT
// A request's members: read, or refused.
#include "text/server/request.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "text/chat/prompts.h"

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

// Whether the member has a value that asks for nothing but what the server does.
static bool is_usual(const char *name, const json_t *value, bool chats)
{
  static const struct {
    const char *name, *value, *of_chats; // of_chats NULL: the same value
  } usual[] = {{"frequency_penalty", "0", NULL},
               {"presence_penalty", "0", NULL},
               {"logit_bias", "{}", NULL},
               {"suffix", "\"\"", NULL},
               {"echo", "false", NULL},
               {"best_of", "1", NULL},
               {"top_logprobs", "0", NULL},
               {"tools", "[]", NULL},
               {"tool_choice", "\"none\"", NULL},
               {"functions", "[]", NULL},
               {"function_call", "\"none\"", NULL},
               {"response_format", "{\"type\": \"text\"}", NULL},
               {"modalities", "[\"text\"]", NULL},
               {"min_tokens", "0", NULL},
               {"ignore_eos", "false", NULL},
               {"bad_words", "[]", NULL},
               {"length_penalty", "1", NULL},
               {"use_beam_search", "false", NULL},
               {"skip_special_tokens", "true", NULL},
               {"include_stop_str_in_output", "false", NULL},
               {"include_reasoning", "true", NULL},
               {"continue_final_message", "false", NULL},
               {"add_special_tokens", "true", "false"}};
  if (json_is_null(value)) return true;
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    if (strcmp(name, usual[i].name) != 0) continue;
    const char *text = chats && usual[i].of_chats ? usual[i].of_chats : usual[i].value;
    return is_json(value, text);
  }
  return false;
}

// Members that do not change an answer are left unread; any other one that is not read, and asks
// for something, is refused.
static bool read_others(struct call *call, const struct request *r)
{
  static const char *const read[] = {"max_tokens",     "max_completion_tokens", "stream", "stop",
                                     "stop_token_ids", "temperature",           "top_p",  "min_p",
                                     "top_k",          "repetition_penalty",    "seed",   "n",
                                     "logprobs",       "stream_options",        NULL};
  static const char *const of_chats[] = {"messages",
                                         "chat_template_kwargs",
                                         "add_generation_prompt",
                                         "reasoning_effort",
                                         "documents",
                                         "top_logprobs",
                                         NULL};
  static const char *const of_texts[] = {"prompt", "echo", "best_of", NULL};
  static const char *const harmless[] = {"model",
                                         "user",
                                         "metadata",
                                         "store",
                                         "service_tier",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "prompt_cache_options",
                                         "prompt_cache_retention",
                                         "prediction",
                                         "parallel_tool_calls", // no tools are called
                                         "request_id",
                                         "priority",
                                         NULL};
  const char *name;
  json_t *value;
  char message[160];
  json_object_foreach(r->body, name, value)
  {
    if (is_one_of(read, name) || is_one_of(r->chats ? of_chats : of_texts, name) ||
        is_one_of(harmless, name) || is_usual(name, value, r->chats))
      continue;
    snprintf(message, sizeof message, "'%.60s' is not supported", name);
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

bool request_stops_at(const struct request *r, int token)
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

static bool read_stops(struct call *call, struct request *r, const struct api *api)
{
  const json_t *stop = member(r->body, "stop");
  for (int i = 0; api->stops[i]; i++) r->stops[i] = api->stops[i];
  if (!json_is_array(stop)) return !stop || add_stop(call, r, stop);
  for (size_t i = 0; i < json_array_size(stop); i++)
    if (!add_stop(call, r, json_array_get(stop, i))) return false;
  return true;
}

static bool read_sampling(struct call *call, struct request *r, const struct api *api)
{
  struct sampling *how = &r->how;
  *how = api->settings->sampling;
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
  r->has_seed = seed != NULL;
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
static bool read_messages(struct call *call, const json_t *body, const struct api *api,
                          struct ids *ids)
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
  const bool ok =
      !json_memory_ended() && conversation_ids(api->chat, api->tokenizer, variables, ids, &why);
  json_decref(variables);
  return ok || refuse(call, "messages", why.text);
}

static bool read_ids(struct call *call, const json_t *list, struct ids *ids)
{
  const long known = vocabulary();
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    const json_int_t number = json_integer_value(id);
    if (!json_is_integer(id) || number < 0 || number >= known)
      return refuse(call, "prompt", "a list of tokens is to have tokens that the model knows");
    add_id(ids, (int)number);
  }
  return true;
}

static bool read_prompt(struct call *call, const json_t *prompt, const struct api *api,
                        struct ids *ids)
{
  struct failure why;
  if (json_is_array(prompt)) return read_ids(call, prompt, ids);
  if (!json_is_string(prompt))
    return refuse(call, "prompt", "'prompt' is to be a text, a list of tokens, or a list of these");
  return tokenizer_encode(api->tokenizer, json_string_value(prompt), json_string_length(prompt),
                          true, ids, &why) ||
         refuse(call, "prompt", why.text);
}

int most_sequences(const struct api *api)
{
  return api->queue + program->generation->slots;
}

// Makes a choice of a prompt with these tokens.
static bool add_choice(struct request *r, const struct ids *ids, uint32_t number,
                       const struct api *api)
{
  struct choice *c = &r->choice[r->choices];
  *c = (struct choice){.of = r,
                       .index = r->choices,
                       .text.tokenizer = api->tokenizer,
                       .logprobs = {.tokenizer = api->tokenizer, .top = r->top},
                       .job = {.ids = calloc((size_t)program->generation->context, sizeof(int)),
                               .prompt_count = (int)ids->count,
                               .most = r->most,
                               .how = r->how,
                               .number = number,
                               .top = r->top,
                               .scores = r->scores,
                               .scores_known = r->scores && r->echoes}};
  if (!c->job.ids || ids->failed) {
    free(c->job.ids);
    return false;
  }
  r->choices++;
  memcpy(c->job.ids, ids->at, ids->count * sizeof *ids->at);
  if (!r->echoes) return true;
  if (r->scores) logprobs_add(&c->logprobs, ids->at[0], NULL);
  answer_grow(&c->text, ids->at, ids->count, NULL);
  c->text.prompt = c->text.whole.count - c->text.held;
  return !c->logprobs.failed && !c->text.failed;
}

// The choices of a prompt: `answers` of them.
static bool take_prompt(struct call *call, struct request *r, const json_t *prompt, int answers,
                        const struct api *api)
{
  static uint32_t next; // of requests without a seed
  const char *of = r->chats ? "messages" : "prompt";
  // A text that is only scored may fill the context.
  const int room = program->generation->context - (r->most > 0);
  struct ids ids = {0};
  char message[160];
  bool ok =
      r->chats ? read_messages(call, r->body, api, &ids) : read_prompt(call, prompt, api, &ids);
  snprintf(message, sizeof message, "'%s' has %zu tokens, and the context is %d%s", of, ids.count,
           program->generation->context, r->most > 0 ? ": leave one for the answer" : "");
  if (ok && (ids.count == 0 || ids.count > (size_t)room)) ok = refuse(call, of, message);
  for (size_t i = 0; ok && i < ids.count; i++)
    if (ids.at[i] >= vocabulary())
      ok = refuse(call, of, "the tokenizer has a token that the model does not know");
  if (ok) r->prompt_tokens += (int)ids.count;
  for (int i = 0; i < answers && ok; i++) {
    ok = add_choice(r, &ids, r->has_seed ? (uint32_t)i : ++next, api);
    if (!ok) call_answer(call, HTTP_INTERNAL_SERVER_ERROR, NULL);
  }
  free(ids.at);
  return ok;
}

static bool is_prompt(const json_t *value)
{
  return json_is_string(value) || json_is_array(value);
}

// The prompts, and `answers` choices of each.
static bool read_prompts(struct call *call, struct request *r, int answers, const struct api *api)
{
  const json_t *prompt = r->chats ? NULL : member(r->body, "prompt");
  const bool is_list = json_is_array(prompt) && is_prompt(json_array_get(prompt, 0));
  const size_t count = is_list ? json_array_size(prompt) : 1, most = (size_t)most_sequences(api);
  char message[160];
  if (r->chats && !api->chat) return refuse(call, "messages", api->why_no_chat);
  const size_t all = count * (size_t)answers;
  snprintf(message, sizeof message, "it asks for %zu answers; this server takes %zu at once", all,
           most);
  if (all > most) return refuse(call, is_list ? "prompt" : "n", message);
  r->choice = calloc(all, sizeof *r->choice);
  if (!r->choice) {
    call_answer(call, HTTP_INTERNAL_SERVER_ERROR, NULL);
    return false;
  }
  for (size_t i = 0; i < count; i++)
    if (!take_prompt(call, r, is_list ? json_array_get(prompt, i) : prompt, answers, api))
      return false;
  return true;
}

// Which log-probabilities are asked for.
static bool read_scores(struct call *call, struct request *r)
{
  enum { MOST = 20 }; // OpenAI's, of a chat
  const json_t *asked = member(r->body, "logprobs");
  int top = 0;
  if (!r->chats) {
    r->scores = json_is_integer(asked);
    if (!json_is_false(asked) && !read_whole(call, r->body, "logprobs", 0, MOST, &top))
      return false;
  } else {
    if (!read_flag(call, r->body, "logprobs", &r->scores) ||
        !read_whole(call, r->body, "top_logprobs", 0, MOST, &top))
      return false;
    if (top > 0 && !r->scores)
      return refuse(call, "top_logprobs", "'top_logprobs' wants \"logprobs\": true");
  }
  r->top = top < vocabulary() ? top : (int)vocabulary();
  return true;
}

static bool read_stream_options(struct call *call, struct request *r)
{
  const json_t *options = member(r->body, "stream_options");
  const char *name;
  json_t *value;
  if (options && !json_is_object(options))
    return refuse(call, "stream_options", "'stream_options' is to be an object");
  if (options && !r->streams)
    return refuse(call, "stream_options", "'stream_options' wants \"stream\": true");
  json_object_foreach((json_t *)options, name, value)
  {
    // Obfuscation pads events against those who listen, and is no part of the answer.
    if (strcmp(name, "include_usage") != 0 && strcmp(name, "include_obfuscation") != 0)
      return refuse(call, "stream_options", "it knows only include_usage and include_obfuscation");
  }
  return read_flag(call, options, "include_usage", &r->tells_usage);
}

bool request_read(struct request *r, struct call *call, const struct api *api)
{
  enum { USUAL = 16, ANSWERS = 128 }; // OpenAI's: of a completion's tokens; of `n`
  const int least = r->chats ? 1 : 0;
  int answers = 1, best_of;
  r->most = r->chats ? INT_MAX : USUAL;
  if (r->chats && api->settings->most) r->most = api->settings->most;
  if (api->most) r->most = api->most;
  if (!read_whole(call, r->body, "max_tokens", least, INT_MAX, &r->most) ||
      !read_whole(call, r->body, "max_completion_tokens", least, INT_MAX, &r->most) ||
      !read_whole(call, r->body, "n", 1, ANSWERS, &answers) ||
      !read_flag(call, r->body, "stream", &r->streams) || !read_others(call, r) ||
      !read_stream_options(call, r) || !read_stops(call, r, api) || !read_stop_tokens(call, r) ||
      !read_sampling(call, r, api) || !read_scores(call, r))
    return false;
  best_of = answers;
  if (!r->chats && (!read_flag(call, r->body, "echo", &r->echoes) ||
                    !read_whole(call, r->body, "best_of", 1, ANSWERS, &best_of)))
    return false;
  if (best_of != answers) return refuse(call, "best_of", "'best_of' can only be the same as 'n'");
  return read_prompts(call, r, answers, api);
}

void request_free(struct request *r)
{
  for (int i = 0; i < r->choices; i++) {
    answer_free(&r->choice[i].text);
    logprobs_free(&r->choice[i].logprobs);
    free(r->choice[i].job.ids);
  }
  free(r->choice);
  json_decref(r->body);
  free(r);
}
