/* util.c: memory, text and errors.

   All memory comes from one arena, reserved once and shared with the process that reads the plan,
   so that the graph which that process builds is there when it has ended. */
#include "tpgen.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 16 };
#define ARENA_BYTES ((size_t)384 << 20)

/* At the arena's start. */
struct arena {
  size_t used;
  bool has_message;
  char message[4096];
};

static struct arena *arena;
static bool in_child;
struct graph *graph;

/* Values and operations lie behind the arena, with room for more than most plans need: what is
   reserved and not written takes no memory, and what grows by moving takes it twice. */
enum { ROOM = 1 << 16, HUGE = 2 << 20 };
static const size_t RESERVED = ARENA_BYTES + ROOM * sizeof(struct value) + ROOM * sizeof(struct op);

/* At the start of a huge page, so that these can be moved as they are. */
static char *reserve(int kind)
{
  char *at = mmap(NULL, RESERVED + HUGE, PROT_READ | PROT_WRITE,
                  kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at + (HUGE - (uintptr_t)at % HUGE) % HUGE;
}

static bool is_own; /* the arena is this process's alone */

static void forget(void *block)
{
  (void)block;
}

void arena_open(void)
{
  /* One of before, as tests have it, does not count against what the process that reads a plan may
     have: memory of its own that can be written. */
  if (is_own) mprotect(arena, RESERVED, PROT_READ);
  is_own = false;
  char *at = reserve(MAP_SHARED);
  if (!at) usage_error(3, "no memory: cannot reserve %zu bytes", RESERVED);
  arena = (struct arena *)at;
  arena->used = (sizeof *arena + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  graph = alloc(sizeof *graph);
  graph->loss = graph->norm = NONE;
  graph->accumulate = 1;
  graph->value = (struct value *)(at + ARENA_BYTES);
  graph->op = (struct op *)(at + ARENA_BYTES + ROOM * sizeof *graph->value);
  graph->value_room = graph->op_room = ROOM;
  json_set_alloc_funcs(alloc, forget); /* jansson would go on without what it has no memory for */
  json_object_seed(1);                 /* no file is opened for a random one */
}

static char *own; /* what arena_own moves the arena to, or NULL */

static char *reserve_own(void)
{
  if (!own) own = reserve(MAP_PRIVATE);
  if (own) madvise(own, RESERVED, MADV_HUGEPAGE);
  return own;
}

void arena_prepare(bool (*is_over)(void))
{
#ifdef MADV_POPULATE_WRITE
  enum { ROUNDS = 3 };
  size_t values = ARENA_BYTES, ops = values + ROOM * sizeof *graph->value;
  if (!reserve_own()) return;
  for (size_t i = 0; i < ROUNDS; i++) {
    size_t piece[] = {values + i * HUGE, ops + i * HUGE, 3 * i * HUGE, (3 * i + 1) * HUGE,
                      (3 * i + 2) * HUGE};
    for (size_t k = 0; k < sizeof piece / sizeof *piece; k++)
      if (is_over() || madvise(own + piece[k], HUGE, MADV_POPULATE_WRITE)) return;
  }
#else
  (void)is_over;
#endif
}

static void copy_to_own(const void *from, size_t size)
{
  memcpy(own + ((const char *)from - (const char *)arena), from, size);
}

void arena_own(void)
{
  is_own = true;
  if (!reserve_own()) return;
  copy_to_own(arena, arena->used);
  copy_to_own(graph->value, (size_t)graph->nvalue * sizeof *graph->value);
  copy_to_own(graph->op, (size_t)graph->nop * sizeof *graph->op);
  if (mremap(own, RESERVED, RESERVED, MREMAP_MAYMOVE | MREMAP_FIXED, arena) == MAP_FAILED)
    munmap(own, RESERVED);
  own = NULL;
}

size_t arena_used(void)
{
  return arena->used;
}

size_t arena_room(void)
{
  return ARENA_BYTES;
}

void *alloc(size_t size)
{
  if (size > ARENA_BYTES - arena->used - ALIGNMENT)
    plan_error(0, "the plan needs more than %zu MiB to compile", ARENA_BYTES >> 20);
  void *at = (char *)arena + arena->used;
  arena->used += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at;
}

void *grow(void *array, int n, int *room, size_t size)
{
  int wider = *room ? 2 * *room : 16;
  void *at = alloc((size_t)wider * size);
  if (n) memcpy(at, array, (size_t)n * size);
  *room = wider;
  return at;
}

int64_t plus_times(int64_t sum, int64_t n, int64_t each)
{
  int64_t product, all;
  bool over = __builtin_mul_overflow(n, each, &product);
  return over || __builtin_add_overflow(sum, product, &all) ? INT64_MAX : all;
}

void add(struct list *list, int number)
{
  GROW(list->at, list->n, list->room);
  list->at[list->n++] = number;
}

/* ----------------------------------------------------------------------------------------- text */

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

/* As vsnprintf, at several times its speed, of a format with nothing but %s, %.*s, %c, %d, %ld and
   %lld in it; false, and nothing said, of others, or where there is no room. */
static bool print_plain(char *at, size_t room, const char *format, va_list list, size_t *length)
{
  size_t n = 0;
  for (const char *c = format; *c; c++) {
    char digits[24], *end = digits + sizeof digits;
    const char *piece = c;
    size_t size = 1;
    if (*c == '%') {
      c++;
      bool cut = !strncmp(c, ".*s", 3), wide = !strncmp(c, "ld", 2), wider = !strncmp(c, "lld", 3);
      int most = cut ? va_arg(list, int) : -1;
      if (cut ? most < 0 : !wide && !wider && !memchr("scd", *c, 3)) return false;
      if (cut || *c == 's') {
        piece = va_arg(list, const char *);
        if (!piece) return false;
        size = cut ? strnlen(piece, (size_t)most) : strlen(piece);
      } else if (*c == 'c') {
        *digits = (char)va_arg(list, int);
        piece = digits;
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

/* As vsnprintf. */
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
  /* Written where the arena ends, and then made part of it. */
  char *at = (char *)arena + arena->used;
  size_t room = ARENA_BYTES - arena->used;
  va_list list;
  va_start(list, format);
  size_t length = print(at, room, format, list);
  va_end(list);
  return alloc(length < room ? length + 1 : ARENA_BYTES);
}

char *copy_text(const char *s)
{
  size_t n = strlen(s) + 1;
  return memcpy(alloc(n), s, n);
}

/* Whether nothing was taken from the arena after these bytes: then they can grow where they lie. */
static bool is_last(const char *at, size_t size)
{
  size_t taken = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return size && at + taken == (char *)arena + arena->used;
}

void put_text(struct buffer *b, const char *s, size_t length)
{
  if (b->length + length + 1 > b->room) {
    size_t needed = b->length + length + 1, least = 48;
    size_t room = 2 * b->room > needed ? 2 * b->room : needed > least ? needed : least;
    if (!is_last(b->text, b->room)) {
      char *at = alloc(room);
      if (b->length) memcpy(at, b->text, b->length);
      b->text = at;
    } else {
      arena->used = (size_t)(b->text - (char *)arena);
      b->text = alloc(room);
    }
    b->room = room;
  }
  memcpy(b->text + b->length, s, length);
  b->length += length;
  b->text[b->length] = 0;
}

void put(struct buffer *b, const char *format, ...)
{
  static char room[1 << 16]; /* whole texts are put into others */
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
      put(&b, "%s", value);
      c += n + 2;
    } else {
      put_text(&b, c++, 1);
    }
  }
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

char *printable(const char *s)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
    bool ends_comment = c[0] == '*' && c[1] == '/';
    bool starts_comment = c[0] == '/' && c[1] == '*';
    bool trigraph = c[0] == '?' && c[1] == '?';
    bool plain = *c >= 0x20 && *c < 0x7f && *c != '\\' && *c != '"' && *c != '$';
    if (plain && !ends_comment && !starts_comment && !trigraph)
      put_text(&b, (const char *)c, 1);
    else
      put(&b, "%%%02x", *c);
  }
  return b.text;
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

/* --------------------------------------------------------------------------------------- errors */

enum { LONGEST_MESSAGE = sizeof((struct arena *)0)->message };

void child_mode(void)
{
  in_child = true;
  if (own) munmap(own, RESERVED); /* it would count against what the process may have */
  own = NULL;
}

void say(const char *format, ...)
{
  static char message[LONGEST_MESSAGE], shown[4 * LONGEST_MESSAGE + 2];
  char *at = shown;
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  for (const unsigned char *c = (const unsigned char *)message; *c; c++)
    at += *c >= 0x20 && *c < 0x7f ? sprintf(at, "%c", *c) : sprintf(at, "\\x%02x", *c);
  *at++ = '\n';
  fwrite(shown, 1, (size_t)(at - shown), stderr);
}

static void (*before_leaving)(void);

void on_failure(void (*f)(void))
{
  before_leaving = f;
}

static void prepare_to_leave(void)
{
  void (*f)(void) = before_leaving;
  before_leaving = NULL; /* what fails in there does not begin it anew */
  if (f && !in_child) f();
}

void end_printing(void)
{
  if (fflush(stdout) || ferror(stdout)) usage_error(3, "cannot write to standard output");
  exit(0);
}

void fail_with(int status)
{
  prepare_to_leave();
  exit(status);
}

void fail_by_abort(void)
{
  prepare_to_leave();
  abort();
}

void report_child_error(void)
{
  if (!arena->has_message) return;
  say("%s", arena->message);
  fail_with(1);
}

void plan_error(int line, const char *format, ...)
{
  char what[3072];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  const char *path = graph && graph->path ? graph->path : "plan";
  const char *at = line > 0 ? ":" : "";
  char digits[16] = "";
  if (line > 0) snprintf(digits, sizeof digits, "%d", line);
  snprintf(arena->message, sizeof arena->message, "%s%s%s: error: %s", path, at, digits, what);
  arena->has_message = true;
  if (in_child) _exit(1);
  report_child_error();
  fail_with(1);
}

void usage_error(int status, const char *format, ...)
{
  char what[LONGEST_MESSAGE];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  say("tpgen: error: %s", what);
  fail_with(status);
}

void bug(const char *pass, int op, const char *format, ...)
{
  char what[LONGEST_MESSAGE], where[256] = "";
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (op >= 0)
    snprintf(where, sizeof where, " at operation %d (%s, line %d of the plan)", op,
             op_row[graph->op[op].kind].name, graph->op[op].line);
  say("tpgen: a mistake in tpgen itself, found in %s%s: %s", pass, where, what);
  fail_by_abort();
}
