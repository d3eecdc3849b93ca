// SPDX-License-Identifier: MIT
// A conversation on a terminal: --chat.
#ifndef TEXT_TALK_H
#define TEXT_TALK_H

#include "base/failure.h"
#include "base/options.h"
#include "text/chat/settings.h"

// Rank 0, while the others follow: answers each line of standard input, until /exit or its end.
// False, and why, if the output cannot be written, or out of memory.
bool talk(const struct options *o, const struct text_settings *settings,
          const struct tokenizer *tokenizer, const struct chat *chat, struct failure *why);

#endif
