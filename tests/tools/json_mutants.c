/* json_mutants.c: see json_mutants.h. */
#include "json_mutants.h"
#include "splitmix64.h"

#include <inttypes.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60, PATIENCE = 10 * SECONDS }; /* of the processor, and in all */

static uint64_t state;

void begin_mutant(uint64_t number)
{
  state = number * 0x9e3779b97f4a7c15;
}

size_t below(size_t n)
{
  return n ? (size_t)(splitmix64(&state) % n) : 0;
}

/* ------------------------------------------------------------------------------------- changes */

static char text[MOST_TEXT];
static size_t text_length;

static void replace(size_t at, size_t n, const char *with, size_t m)
{
  if (at > text_length) return;
  if (n > text_length - at) n = text_length - at;
  if (text_length - n + m > sizeof text) return;
  memmove(text + at + m, text + at + n, text_length - at - n);
  memcpy(text + at, with, m);
  text_length += m - n;
}

/* A value of the text from a random place on: a string, a number, or what stands in brackets; most
   often one that is not within a string. */
static size_t find_value(size_t *n)
{
  const size_t from = below(text_length);
  size_t at = below(4) ? 0 : from;
  for (bool within = false; at < text_length; at++) {
    if (!within && at >= from && text[at] && strchr("\"{[-0123456789", text[at])) break;
    if (text[at] == '"' && (at == 0 || text[at - 1] != '\\')) within = !within;
  }
  size_t end = at;
  int depth = 0;
  bool quoted = false;
  if (at < text_length && text[at] != '"' && text[at] != '{' && text[at] != '[') {
    while (end < text_length && strchr("-+.eE0123456789", text[end])) end++;
  } else {
    do {
      if (text[end] == '"') quoted = !quoted;
      if (!quoted && (text[end] == '{' || text[end] == '[')) depth++;
      if (!quoted && (text[end] == '}' || text[end] == ']')) depth--;
      end++;
    } while (end < text_length && (quoted || depth > 0));
  }
  *n = end - at;
  return at;
}

static void nest_deeply(size_t at, size_t n)
{
  static char deep[4096];
  const size_t depth = 1 + below(sizeof deep / 2 - 1);
  memset(deep, '[', depth);
  memset(deep + depth, ']', depth);
  replace(at, n, deep, 2 * depth);
}

static void change_value(const char *const *own, size_t nown)
{
  static const char *const values[] = {"-1",
                                       "0",
                                       "1",
                                       "2",
                                       "3",
                                       "7",
                                       "2147483648",
                                       "4294967296",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "99999999999999999999",
                                       "1e308",
                                       "1e999",
                                       "0.5",
                                       "1099511627776",
                                       "null",
                                       "true",
                                       "false",
                                       "\"\"",
                                       "{}",
                                       "[]",
                                       "\"..\"",
                                       "\"../../x\"",
                                       "\"/etc/passwd\"",
                                       "\"a\\u0000b\"",
                                       "\"\\u001b[2J\"",
                                       "\"NaN\"",
                                       "\"Infinity\""};
  const size_t usual = sizeof values / sizeof *values;
  size_t n, m, at = find_value(&n);
  switch (below(6)) {
  case 0:
  case 1: {
    const size_t k = below(usual + nown);
    const char *with = k < usual ? values[k] : own[k - usual];
    replace(at, n, with, strlen(with));
    return;
  }
  case 2: { /* another value of the text */
    static char copy[1 << 14];
    size_t from = find_value(&m);
    if (m > sizeof copy) m = sizeof copy;
    memcpy(copy, text + from, m);
    replace(at, n, copy, m);
    return;
  }
  case 3: /* the value, and what follows it, is gone */
    replace(at, n + below(3), "", 0);
    return;
  case 4:
    if (below(8))
      text[below(text_length)] = (char)below(256);
    else
      nest_deeply(at, n);
    return;
  default: { /* it stands there several times */
    static char copy[1 << 12];
    if (n > sizeof copy - 2) return;
    memcpy(copy, text + at, n);
    copy[n] = ',';
    for (size_t i = 1 + below(4); i-- > 0;) replace(at, 0, copy, n + 1);
  }
  }
}

void change_json(char *to, size_t *count, const char *const *own, size_t nown)
{
  text_length = *count;
  memcpy(text, to, text_length);
  for (size_t i = 1 + below(3); i-- > 0 && text_length > 8;) change_value(own, nown);
  memcpy(to, text, text_length);
  *count = text_length;
}

void change_bytes(char *to, size_t *count, size_t end)
{
  for (size_t i = 1 + below(8); i-- > 0 && *count > 0;) {
    /* The end may be a small part, where most is decided. */
    size_t at = below(2) ? below(*count) : *count - 1 - below(*count < end ? *count : end);
    to[at] = (char)(below(2) ? (int)below(256) : to[at] ^ 1 << below(8));
  }
  if (!below(8)) *count = below(*count);
}

size_t read_whole(const char *path, char *to, size_t most)
{
  FILE *file = fopen(path, "rb");
  const size_t count = file ? fread(to, 1, most, file) : 0;
  if (file) fclose(file);
  if (count > 0 && count < most) return count;
  fprintf(stderr, "%s: cannot be read, or is too large\n", path);
  exit(2);
}

void write_whole(const char *path, const void *bytes, size_t count)
{
  FILE *file = fopen(path, "wb");
  if (file && fwrite(bytes, 1, count, file) == count && !fclose(file)) return;
  fprintf(stderr, "%s: cannot write\n", path);
  exit(2);
}

/* -------------------------------------------------------------------------------------- running */

static bool is_right(int status, const char *said)
{
  static const char *const of_lua[] = {
      "attempt to ",      "bad argument",   "no integer representation", "table: 0x", "mistake in",
      "is declared here", "stack traceback"};
  const char *end = strchr(said, '\n');
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  for (size_t i = 0; i < sizeof of_lua / sizeof *of_lua; i++)
    if (strstr(said, of_lua[i])) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 1 && end && !end[1] && strstr(said, ": ");
}

int run_mutants(const char *path, uint64_t first, uint64_t count,
                void (*write_mutant)(uint64_t number, const char *path),
                void (*body)(const char *path))
{
  int wrong = 0;
  uint64_t taken = 0;
  char log[4096];
  snprintf(log, sizeof log, "%s.log", path);
  for (uint64_t number = first; number < first + count; number++) {
    char said[1 << 15] = "";
    int status = 0;
    write_mutant(number, path);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      int to = open(log, O_RDWR | O_CREAT | O_TRUNC, 0666);
      dup2(to, STDERR_FILENO);
      setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
      alarm(PATIENCE);
      body(path);
      exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0) return -1;
    int from = open(log, O_RDONLY);
    ssize_t n = from < 0 ? 0 : read(from, said, sizeof said - 1);
    said[n > 0 ? n : 0] = 0;
    if (from >= 0) close(from);
    taken += status == 0;
    if (is_right(status, said)) continue;
    wrong++;
    printf("mutant %" PRIu64 ": status %x: %s\n", number, (unsigned)status, said);
    fflush(stdout);
  }
  printf("%" PRIu64 " mutants, %" PRIu64 " taken, %d wrong\n", count, taken, wrong);
  return wrong;
}
