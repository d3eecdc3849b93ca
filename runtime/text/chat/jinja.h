// SPDX-License-Identifier: MIT
// Templates of Jinja, as chat templates use it: they see what they are given and nothing else, and
// a template that takes too long or too much memory ends with an error.
#ifndef TEXT_JINJA_H
#define TEXT_JINJA_H

#include <jansson.h>
#include "base/failure.h"
#include "text/tokenizer/unicode.h"

struct jinja;

// A template. NULL, and why, with the line: it has something that is not known here.
struct jinja *jinja_open(const char *text, struct failure *why);
void jinja_close(struct jinja *j);

// Parts of a text: bytes begin .. end - 1.
struct spans {
  struct span {
    size_t begin, end;
  } * at; // to be freed
  size_t count;
  bool failed; // out of memory: some are missing
};

// Adds the text that the template makes with these variables, as transformers renders it: blocks
// take the end of their line, and the blanks before them. date: what strftime_now gives.
// generation: where it puts blocks of {% generation %}; or NULL. False, and why, with the line: the
// template raises an exception, or does what is not known here.
bool jinja_render(const struct jinja *j, const json_t *variables, const char *date,
                  struct bytes *text, struct spans *generation, struct failure *why);

#endif
