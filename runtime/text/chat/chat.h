// SPDX-License-Identifier: MIT
// The text of a conversation, as the model's chat template makes it: a template of Jinja, which is
// run as transformers' apply_chat_template runs it.
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include <jansson.h>
#include "base/failure.h"
#include "text/chat/jinja.h"
#include "text/tokenizer/unicode.h"

enum chat_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };

struct turn_of_chat {
  enum chat_role role;
  const char *text;
  size_t count;
};

struct chat;

// A template. config: the tokenizer_config.json beside it, whose special tokens the template sees;
// or NULL. NULL, and why, if it has something that is not known here.
struct chat *chat_of(const char *text, const json_t *config, struct failure *why);

// A special token of tokenizer_config.json, such as "eos_token": a text there, or an object with it
// as its content. NULL: there is none.
const json_t *chat_special_token(const json_t *config, const char *name);

// Without a template (--raw): the turns' texts are lines. NULL: out of memory.
struct chat *chat_raw(void);
void chat_close(struct chat *c);

// The variables of a conversation that asks for the next answer. NULL: out of memory.
json_t *chat_variables(const struct turn_of_chat *turns, size_t count);

// Adds what the template makes of these variables: "messages", "add_generation_prompt", "tools" and
// whatever else it takes. date: what templates take for the day's; NULL: that. answers: where the
// template marks them by {% generation %}; or NULL. False, and why.
bool chat_render(const struct chat *c, const json_t *variables, const char *date,
                 struct bytes *text, struct spans *answers, struct failure *why);

// The text behind an answer, which begins with the token that ends it; "": there is none.
const char *chat_behind_answer(const struct chat *c);

// Whether the text has special tokens itself, also that which begins a sequence.
bool chat_is_special(const struct chat *c);

#endif
