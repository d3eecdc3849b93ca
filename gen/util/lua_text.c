/* lua_text.c: texts and names as a Lua script writes them. */
#include "util/util.h"

#include <ctype.h>
#include <string.h>

char *lua_string(const char *s)
{
  struct buffer b = {0};
  put(&b, "\"");
  for (const unsigned char *c = (const unsigned char *)s; *c; c++)
    if (*c == '"' || *c == '\\')
      put(&b, "\\%c", *c);
    else
      put(&b, *c < 0x20 || *c >= 0x7f ? "\\%03d" : "%c", *c);
  put(&b, "\"");
  return b.text;
}

bool is_lua_name(const char *s)
{
  static const char *const words[] = {"and",   "break", "do",       "else", "elseif", "end",
                                      "false", "for",   "function", "goto", "if",     "in",
                                      "local", "nil",   "not",      "or",   "repeat", "return",
                                      "then",  "true",  "until",    "while"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(s, words[i])) return false;
  if (!isalpha((unsigned char)*s) && *s != '_') return false;
  while (isalnum((unsigned char)*s) || *s == '_') s++;
  return !*s;
}

char *lua_key(const char *s)
{
  return is_lua_name(s) ? text("%s", s) : text("[%s]", lua_string(s));
}
