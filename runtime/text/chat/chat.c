// SPDX-License-Identifier: MIT
// The text of a conversation.
#include "text/chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include "text/chat/jinja.h"

struct chat {
  struct jinja *template; // NULL: --raw
  json_t *tokens;         // "bos_token" and others, by name
  char *behind;           // an answer
};

static bool lacks_memory(struct failure *why)
{
  return failed(why, "out of memory for a conversation");
}

const json_t *chat_special_token(const json_t *config, const char *name)
{
  const json_t *token = json_object_get(config, name);
  if (json_is_object(token)) token = json_object_get(token, "content");
  return json_is_string(token) ? token : NULL;
}

static json_t *tokens_of(const json_t *config)
{
  static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
  json_t *tokens = json_object();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *token = chat_special_token(config, names[i]);
    if (token) json_object_set(tokens, names[i], (json_t *)token);
  }
  return tokens;
}

static json_t *message(const char *role, const char *text, size_t count)
{
  struct bytes valid = {0};
  add_bytes(&valid, "", 0);
  add_lossy(&valid, text, count);
  json_t *m = valid.failed
                  ? NULL
                  : json_pack("{s:s, s:s%}", "role", role, "content", valid.at, valid.count);
  free_bytes(&valid);
  return m;
}

// Without a template: a line for each message.
static bool add_lines(const json_t *messages, struct bytes *text, struct failure *why)
{
  const json_t *one;
  size_t i;
  json_array_foreach((json_t *)messages, i, one)
  {
    const json_t *content = json_object_get(one, "content");
    if (json_is_string(content))
      add_bytes(text, json_string_value(content), json_string_length(content));
    add_bytes(text, "\n", 1);
  }
  return !text->failed || lacks_memory(why);
}

bool chat_render(const struct chat *c, const json_t *variables, const char *date,
                 struct bytes *text, struct spans *answers, struct failure *why)
{
  const json_t *messages = json_object_get(variables, "messages");
  if (json_array_size(messages) == 0) return failed(why, "a conversation has no messages");
  if (!c->template) return add_lines(messages, text, why);
  json_t *all = json_copy(c->tokens);
  bool ok = all && json_object_update(all, (json_t *)variables) == 0;
  // transformers names these, also where nobody gives them.
  static const char *const named[] = {"tools", "documents"};
  for (int i = 0; ok && i < 2; i++)
    if (!json_object_get(all, named[i])) ok = json_object_set_new(all, named[i], json_null()) == 0;
  ok = ok ? jinja_render(c->template, all, date, text, answers, why) : lacks_memory(why);
  json_decref(all);
  return ok;
}

json_t *chat_variables(const struct turn_of_chat *turns, size_t count)
{
  static const char *const roles[] = {"system", "user", "assistant"};
  json_t *messages = json_array();
  bool ok = messages != NULL;
  for (size_t i = 0; i < count && ok; i++)
    ok = json_array_append_new(messages,
                               message(roles[turns[i].role], turns[i].text, turns[i].count)) == 0;
  json_t *variables =
      ok ? json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1) : NULL;
  json_decref(messages);
  return variables;
}

// Renders a conversation with an answer, and finds what comes behind it.
static char *find_behind(const struct chat *c)
{
  static const char answer[] = "An answer that nobody else gives";
  struct failure why;
  struct bytes text = {0};
  json_t *variables =
      json_pack("{s:[{s:s, s:s}, {s:s, s:s}], s:b}", "messages", "role", "user", "content",
                "A question", "role", "assistant", "content", answer, "add_generation_prompt", 0);
  const bool ok = variables && chat_render(c, variables, NULL, &text, NULL, &why);
  const char *at = ok ? strstr(text.at, answer) : NULL;
  char *behind = strdup(at ? at + strlen(answer) : "");
  json_decref(variables);
  free_bytes(&text);
  return behind;
}

struct chat *chat_of(const char *text, const json_t *config, struct failure *why)
{
  struct chat *c = calloc(1, sizeof *c);
  if (!c) {
    lacks_memory(why);
    return NULL;
  }
  c->template = jinja_open(text, why);
  if (c->template) {
    c->tokens = tokens_of(config);
    c->behind = c->tokens ? find_behind(c) : NULL;
    if (c->behind) return c;
    lacks_memory(why);
  }
  chat_close(c);
  return NULL;
}

struct chat *chat_raw(void)
{
  struct chat *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->behind = strdup("");
  if (c->behind) return c;
  chat_close(c);
  return NULL;
}

void chat_close(struct chat *c)
{
  if (!c) return;
  jinja_close(c->template);
  json_decref(c->tokens);
  free(c->behind);
  free(c);
}

const char *chat_behind_answer(const struct chat *c)
{
  return c->behind;
}

bool chat_is_special(const struct chat *c)
{
  return c->template != NULL;
}
