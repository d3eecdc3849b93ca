// SPDX-License-Identifier: MIT
// The text of a conversation, as a model's chat template has it. Templates are programs of Jinja;
// those of known families are recognised by what they have, and none is run.
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H

#include "base/failure.h"
#include "text/tokenizer/unicode.h"

enum chat_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };

struct turn_of_chat {
  enum chat_role role;
  const char *text;
  size_t count;
};

struct chat;

// A template, with the text of the tokens that begin and end a sequence ("" if there is none).
// NULL, and why, if it is of no known family.
struct chat *chat_of(const char *text, const char *bos, const char *eos, struct failure *why);

// Without a template (--raw): the turns' texts are lines. NULL: out of memory.
struct chat *chat_raw(void);
void chat_close(struct chat *c);

// Adds the text of a conversation, up to where the next answer begins. date: for templates that
// have the day's. False, and why, if the template does not take these turns.
bool chat_text(const struct chat *c, const struct turn_of_chat *turns, size_t count,
               const char *date, struct bytes *text, struct failure *why);

// The day's date as templates have it, "24 Nov 2026".
const char *chat_date(void);

// The token that ends an answer; NULL: that of the model.
const char *chat_end(const struct chat *c);

// Whether the text has special tokens itself, also that which begins a sequence.
bool chat_is_special(const struct chat *c);

#endif
