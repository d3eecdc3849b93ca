// SPDX-License-Identifier: MIT
// Prompts that are read from a file or the command line, and the file of their answers.
#ifndef TEXT_PROMPTS_H
#define TEXT_PROMPTS_H

#include "base/failure.h"
#include "base/options.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

struct prompt {
  int *ids; // room for the program's context
  int count;
};

struct prompts {
  struct prompt *all;
  size_t count;
};

// Reads --prompts and --prompt: lines of text, or JSON objects {"text": ...} or {"ids": [...]}, one
// a line. False, and why, if one is no prompt, is longer than the context, or is text and there is
// no tokenizer (NULL).
bool prompts_read(struct prompts *p, const struct options *o, const struct tokenizer *tokenizer,
                  struct failure *why);
void prompts_free(struct prompts *p);

// The number of tokens that the model knows.
long vocabulary(void);

// Adds the ids of a text, or those of a list of JSON. where: for messages. False, and why.
bool text_ids(const struct tokenizer *tokenizer, const char *text, size_t length, struct ids *ids,
              const char *where, struct failure *why);
bool listed_ids(const json_t *list, struct ids *ids, const char *where, struct failure *why);

// Whether the model knows all of them. False, and why.
bool ids_are_known(const struct ids *ids, const char *where, struct failure *why);

// Adds the ids of a conversation: of what the template makes of these variables. False, and why.
bool conversation_ids(const struct chat *c, const struct tokenizer *tokenizer,
                      const json_t *variables, struct ids *ids, struct failure *why);

#endif
