/* text.c: texts in the arena: formatting, growing buffers, templates, hashes. */
#include "util/util.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whether this is in a comment: one to the end of the line, or a short one within the line. */
static bool in_comment(const char *text, const char *at)
{
  const char *line = at;
  while (line > text && line[-1] != '\n') line--;
  bool quoted = false, within = false;
  for (; line < at; line++) {
    if (*line == '"' && !within) quoted = !quoted;
    if (quoted || line[0] != '/') continue;
    if (line[1] == '/' && !within) return true;
    within = within ? line[-1] != '*' : line[1] == '*';
  }
  return within;
}

static bool is_word_letter(char c)
{
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

size_t word_length(const char *s)
{
  size_t n = 0;
  while (is_word_letter(s[n])) n++;
  return n;
}

bool has_word(const char *text, const char *word)
{
  size_t n = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at++) {
    /* "m->w.c" names no variable c or w, nor does 'c'. */
    bool begins = at == text || (!is_word_letter(at[-1]) && at[-1] != '\''),
         arrow = at > text + 1 && at[-1] == '>' && at[-2] == '-',
         member = begins && at > text && (at[-1] == '.' || arrow);
    bool whole = begins && !member && !is_word_letter(at[n]);
    if (whole && !in_comment(text, at)) return true;
  }
  return false;
}

/* The number's text, which ends at `end`. */
static char *digits_before(char *end, long long number)
{
  unsigned long long rest = (unsigned long long)number;
  if (number < 0) rest = 0 - rest;
  do *--end = (char)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) *--end = '-';
  return end;
}

/* ----------------------------------------------------------------------------------------- text */

/* Like vsnprintf, but several times as fast, for formats of %s, %.*s, %c, %d, %ld and %lld.
   Returns false for others, and where there is no room. */
static bool print_plain(char *at, size_t room, const char *format, va_list list, size_t *length)
{
  size_t n = 0;
  for (const char *c = format; *c; c++) {
    char digits[24], *end = digits + sizeof digits;
    const char *piece = c;
    size_t size = 0;
    while (c[size] && c[size] != '%') size++;
    if (size) {
      c += size - 1;
    } else {
      c++;
      bool cut = c[0] == '.' && c[1] == '*' && c[2] == 's';
      bool wide = c[0] == 'l' && c[1] == 'd', wider = c[0] == 'l' && c[1] == 'l' && c[2] == 'd';
      bool plain = *c == 's' || *c == 'c' || *c == 'd';
      int most = cut ? va_arg(list, int) : -1;
      if (cut ? most < 0 : !plain && !wide && !wider) return false;
      if (cut || *c == 's') {
        piece = va_arg(list, const char *);
        if (!piece) return false;
        size = cut ? strnlen(piece, (size_t)most) : strlen(piece);
      } else if (*c == 'c') {
        *digits = (char)va_arg(list, int);
        piece = digits;
        size = 1;
      } else {
        piece = digits_before(end, wider  ? va_arg(list, long long)
                                   : wide ? va_arg(list, long)
                                          : va_arg(list, int));
        size = (size_t)(end - piece);
      }
      c += cut || wider ? 2 : wide;
    }
    if (size >= room - n) return false;
    memcpy(at + n, piece, size);
    n += size;
  }
  at[n] = 0;
  *length = n;
  return true;
}

/* Like vsnprintf. */
static size_t print(char *at, size_t room, const char *format, va_list list)
{
  size_t length;
  va_list again;
  va_copy(again, list);
  if (!print_plain(at, room, format, list, &length))
    length = (size_t)vsnprintf(at, room, format, again);
  va_end(again);
  return length;
}

char *text(const char *format, ...)
{
  /* Written after the end of the arena, then made part of it. */
  char *at = arena_end();
  size_t room = arena_room() - arena_used();
  va_list list;
  va_start(list, format);
  size_t length = print(at, room, format, list);
  va_end(list);
  return alloc(length < room ? length + 1 : arena_room());
}

char *copy_text(const char *s)
{
  size_t n = strlen(s) + 1;
  return memcpy(alloc(n), s, n);
}

void put_text(struct buffer *b, const char *s, size_t length)
{
  if (b->length + length + 1 > b->room) {
    size_t needed = b->length + length + 1, least = 48;
    size_t room = 2 * b->room > needed ? 2 * b->room : needed > least ? needed : least;
    char *at = b->text;
    if (!arena_widen(at, b->room, room)) {
      at = alloc(room);
      if (b->length) memcpy(at, b->text, b->length);
    }
    b->text = at;
    b->room = room;
  }
  memcpy(b->text + b->length, s, length);
  b->length += length;
  b->text[b->length] = 0;
}

void put(struct buffer *b, const char *format, ...)
{
  static _Thread_local char room[1 << 16]; /* whole texts are inserted into others */
  char *at = room;
  va_list list, again;
  va_start(list, format);
  va_copy(again, list);
  size_t length = print(room, sizeof room, format, list);
  if (length >= sizeof room) vsnprintf(at = alloc(length + 1), length + 1, format, again);
  put_text(b, at, length);
  va_end(again);
  va_end(list);
}

char *fill(const char *template, ...)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *c = template; *c;) {
    size_t plain = strcspn(c, "$");
    put_text(&b, c, plain);
    c += plain;
    if (!*c) break;
    size_t n = strcspn(c + 1, "$ \n");
    va_list list;
    va_start(list, template);
    const char *name, *value = NULL;
    while ((name = va_arg(list, const char *))) {
      value = va_arg(list, const char *);
      if (c[n + 1] == '$' && strlen(name) == n && !strncmp(name, c + 1, n)) break;
      value = NULL;
    }
    va_end(list);
    if (value) {
      put_text(&b, value, strlen(value));
      c += n + 2;
    } else {
      put_text(&b, c++, 1);
    }
  }
  arena_widen(b.text, b.room, b.length + 1); /* gives back what is left, which is still zero */
  return b.text;
}

char *wrapped(const char *line, const char *separator, const char *lead)
{
  enum { COLUMNS = 100 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  size_t begun = 0;
  while (strlen(line) + begun > COLUMNS && !strchr(line, '\n')) {
    size_t at = 0;
    for (const char *c = line; (c = strstr(c, separator));) {
      c += strlen(separator);
      if ((size_t)(c - line) + begun > COLUMNS && at) break;
      at = (size_t)(c - line);
    }
    if (!at || !line[at]) break;
    size_t end = at;
    while (end && line[end - 1] == ' ') end--;
    put(&b, "%.*s\n%s", (int)end, line, lead);
    line += at;
    while (*line == ' ') line++;
    begun = strlen(lead);
  }
  put(&b, "%s", line);
  for (char *c = b.text; (c = strchr(c, KEPT_BLANK));) *c = ' ';
  return b.text;
}

const char *next_line(const char *line)
{
  line += strcspn(line, "\n");
  return *line ? line + 1 : line;
}

static bool is_ascii(const unsigned char *c)
{
  return *c >= 0x20 && *c < 0x7f;
}

static bool is_plain_in_c(const unsigned char *c)
{
  bool ends_comment = c[0] == '*' && c[1] == '/';
  bool starts_comment = c[0] == '/' && c[1] == '*';
  bool trigraph = c[0] == '?' && c[1] == '?';
  return is_ascii(c) && *c != '\\' && *c != '"' && *c != '$' && !ends_comment && !starts_comment &&
         !trigraph;
}

/* The text; a character that does not stay is its number, as %0a. */
static char *escaped(const char *s, bool (*stays)(const unsigned char *c))
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const unsigned char *c = (const unsigned char *)s; *c; c++)
    if (stays(c))
      put_text(&b, (const char *)c, 1);
    else
      put(&b, "%%%02x", *c);
  return b.text;
}

char *printable(const char *s)
{
  return escaped(s, is_plain_in_c);
}

char *ascii_text(const char *s)
{
  return escaped(s, is_ascii);
}

char *grouped(int64_t n)
{
  char *digits = text("%" PRId64, n);
  struct buffer b = {0};
  size_t length = strlen(digits);
  for (size_t i = 0; i < length; i++)
    put(&b, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
  return b.text;
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
  const unsigned char *b = bytes;
  for (size_t i = 0; i < n; i++) hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
  return hash;
}

ssize_t read_up_to(int file, void *to, size_t size)
{
  size_t n = 0;
  while (n < size) {
    ssize_t got = read(file, (char *)to + n, size - n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    n += (size_t)got;
  }
  return (ssize_t)n;
}

char *file_of_line(const char *plan, int line)
{
  const char *name = required_file(line);
  return name ? text("%.*s%s", folder_length(plan), plan, name) : copy_text(plan);
}
