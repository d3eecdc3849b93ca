// SPDX-License-Identifier: MIT
// How a program generates: what the command line says, else the generation_config.json beside the
// weights, else what their config.json says.
#ifndef TEXT_SETTINGS_H
#define TEXT_SETTINGS_H

#include <jansson.h>
#include "base/failure.h"
#include "base/options.h"
#include "text/chat/chat.h"
#include "text/chat/sampling.h"
#include "text/tokenizer/tokenizer.h"

struct text_settings {
  struct sampling sampling;
  int *end; // ids that end an answer
  size_t nend;
  int most; // tokens of an answer; 0: as many as fit
};

// Reads them. False, and why, if a file is damaged, or asks for what the program does not do.
bool settings_read(struct text_settings *s, const struct options *o, struct failure *why);
void settings_free(struct text_settings *s);

// Whether the value is that of this JSON text.
bool is_json(const json_t *value, const char *text);

bool settings_end_at(const struct text_settings *s, int token);

// The tokenizer of --tokenizer, or of the weights' folder; NULL: there is none. False, and why, if
// it is damaged.
bool settings_tokenizer(struct tokenizer **t, const struct options *o, struct failure *why);

// A special token of the tokenizer_config.json beside the tokenizer, such as "eos_token": *to is to
// be freed, "" if there is none. False, and why, if the file is damaged.
bool settings_special_token(char **to, const struct options *o, const char *name,
                            struct failure *why);

// The chat template of the tokenizer's or the weights' folder, in chat_template.jinja or
// tokenizer_config.json; with --raw none. False, and why, if there is none, or none that is known.
bool settings_chat(struct chat **c, const struct options *o, struct failure *why);

// The token that ends a turn by the template, and so an answer of a chat, too; -1: none.
int settings_turn_end(const struct tokenizer *t, const struct chat *c);

#endif
