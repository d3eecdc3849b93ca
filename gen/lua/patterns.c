/* patterns.c: the one language of patterns, for names of modules and of parameters. Names have
   parts, separated by dots: layers.0.attention.wq.weight.

     *      any letters of a part, or none
     **     any letters, dots too; "**." also matches no part at all: **.bias matches bias
     ?      one letter of a part
     [a-c]  one of these letters; [!a-c]: any other letter
     a|b    either pattern: the whole of it, not a part

   If a name matches in several ways each star matches as little as possible, the first one
   first. */
#include "lua/lua.h"

#include <string.h>

struct match {
  const char *pattern, *end, *name;
  size_t length;       /* of the name */
  unsigned char *dead; /* by the indices of the star and the letter: no match from there; NULL:
                          there is one star at most */
  struct starred *part;
  int n;
};

/* Whether the set that begins at p, a '[', contains the letter; *behind: the end of the set. A '['
   without an end is a letter. */
static bool set_has(const char *p, const char *end, char c, const char **behind)
{
  const char *at = p + 1;
  bool none_of = at < end && (*at == '!' || *at == '^'), has = false;
  at += none_of;
  const char *close = at < end ? memchr(at + 1, ']', (size_t)(end - at - 1)) : NULL;
  *behind = close ? close + 1 : p + 1;
  if (!close) return c == '[';
  for (; at < close; at++) {
    bool is_range = at + 2 < close && at[1] == '-';
    has |= is_range ? at[0] <= c && c <= at[2] : *at == c;
    if (is_range) at += 2;
  }
  return has != none_of && c != '.';
}

static bool fits_from(struct match *m, const char *p, const char *s);

static bool is_letter(char c)
{
  return c != '*' && c != '?' && c != '[' && c != ']';
}

/* Matches the star at p with the text from s on. */
static bool fits_star(struct match *m, const char *p, const char *s)
{
  unsigned char *dead =
      m->dead ? &m->dead[(size_t)(p - m->pattern) * (m->length + 1) + (size_t)(s - m->name)] : NULL;
  if (dead && *dead) return false;
  bool deep = p + 1 < m->end && p[1] == '*', begins = p == m->pattern || p[-1] == '.';
  const char *next = p + 1 + deep;
  int k = m->n++;
  if (k < MOST_STARS) m->part[k] = (struct starred){s, 0};
  if (deep && begins && next < m->end && *next == '.' && fits_from(m, next + 1, s)) return true;
  bool literal = next < m->end && is_letter(*next); /* the letter that must follow */
  for (const char *t = s;; t++) {
    if (!literal || *t == *next) {
      if (k < MOST_STARS) m->part[k] = (struct starred){s, (size_t)(t - s)};
      m->n = k + 1;
      if (fits_from(m, next, t)) return true;
    }
    if (!*t || (*t == '.' && !deep)) break;
  }
  m->n = k;
  if (dead) *dead = 1;
  return false;
}

static bool fits_from(struct match *m, const char *p, const char *s)
{
  while (p < m->end && *p != '*') {
    const char *behind = p + 1;
    bool fits = *p == '?' ? *s != '.' : *p == '[' ? set_has(p, m->end, *s, &behind) : *p == *s;
    if (!*s || !fits) return false;
    p = behind;
    s++;
  }
  return p == m->end ? !*s : fits_star(m, p, s);
}

/* Whether the name ends with the pattern's last letters. The dot of "**." may match nothing. */
static bool fits_end(const char *name, size_t length, const char *pattern, size_t n)
{
  for (; n && is_letter(pattern[n - 1]); n--, length--) {
    if (n > 1 && pattern[n - 2] == '*' && pattern[n - 1] == '.') return true;
    if (!length || name[length - 1] != pattern[n - 1]) return false;
  }
  return true;
}

static bool fits_one(const char *name, const char *pattern, size_t n, struct starred *part,
                     int *nparts)
{
  struct starred own[MOST_STARS];
  if (nparts) *nparts = 0;
  if (n && is_letter(*pattern) && *pattern != *name) return false;
  size_t length = strlen(name);
  if (!fits_end(name, length, pattern, n)) return false;
  struct match m = {pattern, pattern + n, name, length, NULL, part ? part : own, 0};
  const char *star = memchr(pattern, '*', n), *end = pattern + n;
  if (star && star + 1 < end && memchr(star + 1, '*', (size_t)(end - star - 1))) {
    static unsigned char *room;
    static size_t size;
    size_t bytes = (n + 1) * (length + 1);
    if (bytes > size) room = alloc(size = 2 * bytes);
    memset(room, 0, bytes);
    m.dead = room;
  }
  bool fits = fits_from(&m, pattern, name);
  if (nparts) *nparts = m.n < MOST_STARS ? m.n : MOST_STARS;
  return fits;
}

bool fits_pattern(const char *name, const char *pattern, struct starred *part, int *n)
{
  if (n) *n = 0;
  if (!strcmp(name, pattern)) return true;
  for (const char *c = pattern;; c++) {
    size_t length = (size_t)(strchrnul(c, '|') - c);
    if (fits_one(name, c, length, part, n)) return true;
    c += length;
    if (!*c) return false;
  }
}

bool is_pattern(const char *text)
{
  return strpbrk(text, "*?[|") != NULL;
}
