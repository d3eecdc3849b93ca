/* tokens.c: the words, names, numbers and texts of a dump, line by line. */
#include "dump/dump.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *at;
static int line;

/* Skips blank lines, and comments after --. */
static void skip_comments(void)
{
  for (;;) {
    const char *s = at + strspn(at, " ");
    if (*s != '\n' && strncmp(s, "--", 2)) return;
    s += strcspn(s, "\n");
    at = *s ? s + 1 : s;
    line += *s == '\n';
  }
}

void open_tokens(const char *path, const char *dump)
{
  errors_are_of(path);
  at = dump;
  line = 1;
  skip_comments();
}

void dump_error(int where, const char *format, ...)
{
  char what[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  plan_error(where, "%s", what);
}

static void tokens_skip_blanks(void)
{
  while (*at == ' ') at++;
}

void unexpected(const char *expected)
{
  tokens_skip_blanks();
  size_t n = strcspn(at, " \n");
  if (!n) dump_error(line, "the line ends where %s is expected", expected);
  dump_error(line, "'%s': %s is expected", printable(text("%.*s", n > 60 ? 60 : (int)n, at)),
             expected);
}

int token_line(void)
{
  return line;
}

bool tokens_end(void)
{
  return !*at;
}

bool at_line_end(void)
{
  tokens_skip_blanks();
  return !*at || *at == '\n';
}

void to_next_line(void)
{
  if (!at_line_end()) unexpected("the line's end");
  if (!*at) return;
  at++;
  line++;
  skip_comments();
}

bool take_sign(char sign)
{
  tokens_skip_blanks();
  if (*at != sign || !*at) return false;
  at++;
  return true;
}

void need_sign(char sign)
{
  if (!take_sign(sign)) unexpected(text("%c", sign));
}

bool take_word(const char *word)
{
  tokens_skip_blanks();
  size_t n = strlen(word);
  if (strncmp(at, word, n) || (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '.'))
    return false;
  at += n;
  return true;
}

int64_t token_number(int64_t least, int64_t most)
{
  char *end;
  tokens_skip_blanks();
  errno = 0;
  long long n = isdigit((unsigned char)*at) || *at == '-' ? strtoll(at, &end, 10) : (end = NULL, 0);
  if (!end || end == at) unexpected("a number");
  if (errno || n < least || n > most)
    dump_error(line, "%.*s: a number from %lld to %lld is expected", (int)(end - at), at,
               (long long)least, (long long)most);
  at = end;
  return n;
}

uint64_t token_bits(void)
{
  char *end;
  tokens_skip_blanks();
  errno = 0;
  unsigned long long n = isdigit((unsigned char)*at) ? strtoull(at, &end, 0) : (end = NULL, 0);
  if (!end || end == at || errno) unexpected("a number");
  at = end;
  return n;
}

double token_real(void)
{
  char *end;
  tokens_skip_blanks();
  if (isspace((unsigned char)*at)) unexpected("a number");
  double x = strtod(at, &end);
  if (end == at) unexpected("a number");
  at = end;
  return x;
}

bool is_quoted(void)
{
  tokens_skip_blanks();
  return *at == '"';
}

static int hex(char c)
{
  return isdigit((unsigned char)c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : NONE;
}

static char *take_quoted(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (at++; *at != '"'; at++) {
    char c = *at;
    if (!c || c == '\n') unexpected("the end of a text in quotes");
    if (c == '\\' && at[1] == 'n') {
      c = '\n';
      at++;
    } else if (c == '\\') {
      int high = at[1] == 'x' ? hex(at[2]) : NONE, low = high == NONE ? NONE : hex(at[3]);
      if (low == NONE || !(high | low)) unexpected("\\n or \\x and two digits");
      c = (char)(high << 4 | low);
      at += 3;
    }
    put_text(&b, &c, 1);
  }
  at++;
  return b.text;
}

static char *take_plain(const char *signs)
{
  const char *from = at;
  while (*at && (isalnum((unsigned char)*at) || strchr(signs, *at))) at++;
  if (at == from) unexpected("a name");
  return text("%.*s", (int)(at - from), from);
}

char *token_name(void)
{
  return is_quoted() ? take_quoted() : take_plain(NAME_SIGNS);
}

char *token_text(void)
{
  return is_quoted() ? take_quoted() : take_plain(TEXT_SIGNS);
}

int take_word_of(const char *const *words, int n)
{
  for (int i = 0; i < n; i++)
    if (take_word(words[i])) return i;
  return NONE;
}

const char *token_place(void)
{
  tokens_skip_blanks();
  return at;
}

void return_to(const char *place)
{
  at = place;
}
