// SPDX-License-Identifier: MIT
// A line of a file of texts as tokens to learn: a conversation, a prompt with its completion, or a
// text.
#ifndef TEXT_SAMPLE_H
#define TEXT_SAMPLE_H

#include <stdbool.h>
#include "base/failure.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

// What makes samples of lines.
struct sampling_rules {
  const struct tokenizer *tokenizer;
  const struct chat *chat; // NULL: there is no template
  const char *turn_end;    // the token that ends a turn by the template; "": none
  const char *end;         // the token that ends a text; "": none
  bool learns_all;         // not only answers
};

struct sample {
  struct ids ids;
  bool *learned; // of each: whether it is a label
};

// The sample of a line, a JSON object:
//   {"messages": [...], ...}  by the template, with the other members as its variables. Answers are
//                             learned: what {% generation %} marks, where the template has that;
//                             else from behind the generation's prompt to the end of the turn, with
//                             its mark
//   {"prompt": , "completion": }  two texts, or two lists of messages: what follows the prompt is
//   learned
//   {"text": }                all of it is learned
// where: the line, for messages. To be freed by sample_free, also after an error. False, and why.
bool sample_of_line(const struct sampling_rules *by, const char *line, size_t length,
                    const char *where, struct sample *to, struct failure *why);
void sample_free(struct sample *s);

// The two samples of a line with a better and a worse answer:
//   {"prompt": , "chosen": , "rejected": }  texts, or lists of messages, without "prompt" or with
//   it
// Without a prompt of their kind both have one prompt: the messages, or the text, that they begin
// with. As sample_of_line.
bool pair_of_line(const struct sampling_rules *by, const char *line, size_t length,
                  const char *where, struct sample to[2], struct failure *why);

// The sample of a line with an answer that is good or bad, {"prompt": , "completion": , "label":
// true}. As sample_of_line.
bool rated_of_line(const struct sampling_rules *by, const char *line, size_t length,
                   const char *where, struct sample *to, bool *is_good, struct failure *why);

#endif
