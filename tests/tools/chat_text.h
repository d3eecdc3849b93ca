/* chat_text: the text of a conversation for the tests of chat templates. */
#ifndef CHAT_TEXT_H
#define CHAT_TEXT_H

#include "text/chat/chat.h"

/* Adds what the chat makes of the turns; date: that of the day. False, and why, as chat_render. */
static inline bool chat_text(const struct chat *c, const struct turn_of_chat *turns, size_t n,
                             const char *date, struct bytes *text, struct failure *why)
{
  json_t *variables = chat_variables(turns, n);
  const bool ok = chat_render(c, variables, date, text, NULL, why);
  json_decref(variables);
  return ok;
}

#endif
