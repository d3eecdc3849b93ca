/* archive_mutants.c: see archive_mutants.h. */
#include "archive_mutants.h"
#include "splitmix64.h"

#include <inttypes.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

enum { MOST_BYTES = 1 << 22, MOST_MEMBERS = 256, SECONDS = 60, LOCAL = 30, CENTRAL = 46, END = 22 };

static unsigned char archive[MOST_BYTES], mutant[4 * MOST_BYTES];
static size_t archive_length, length;

static struct member {
  char name[256];
  const unsigned char *at;
  size_t n;
} members[MOST_MEMBERS];
static size_t nmembers;

static uint64_t state;

static size_t below(size_t n)
{
  return n ? (size_t)(splitmix64(&state) % n) : 0;
}

static unsigned number_at(const unsigned char *at, int bytes)
{
  unsigned n = 0;
  while (bytes-- > 0) n = n << 8 | at[bytes];
  return n;
}

void open_archive(const char *path)
{
  FILE *file = fopen(path, "rb");
  archive_length = file ? fread(archive, 1, sizeof archive, file) : 0;
  if (file) fclose(file);
  bool right = archive_length > END;
  const unsigned char *end = archive + archive_length - END;
  const unsigned char *at = right ? archive + number_at(end + 16, 4) : NULL;
  for (unsigned i = 0; right && i < number_at(end + 10, 2) && nmembers < MOST_MEMBERS; i++) {
    struct member *m = &members[nmembers++];
    const unsigned char *local = archive + number_at(at + 42, 4);
    snprintf(m->name, sizeof m->name, "%.*s", (int)number_at(at + 28, 2), at + CENTRAL);
    m->n = number_at(at + 20, 4);
    m->at = local + LOCAL + number_at(local + 26, 2) + number_at(local + 28, 2);
    at += CENTRAL + number_at(at + 28, 2) + number_at(at + 30, 2) + number_at(at + 32, 2);
  }
  if (nmembers) return;
  fprintf(stderr, "%s: no archive\n", path);
  exit(2);
}

/* ------------------------------------------------------------------------------------ a new ZIP */

static void put(const void *bytes, size_t n)
{
  if (n > sizeof mutant - length) n = sizeof mutant - length;
  memcpy(mutant + length, bytes, n);
  length += n;
}

static void put_number(uint64_t n, int bytes)
{
  unsigned char at[8];
  for (int i = 0; i < bytes; i++) at[i] = (unsigned char)(n >> 8 * i);
  put(at, (size_t)bytes);
}

/* What a ZIP says of a member that is not so: 0: nothing. */
enum lie { NONE_SAID, SIZE, OFFSET, METHOD, CRC, ZIP64, ENCRYPTED, NAME, LIES };

static uint64_t strange(void)
{
  static const uint64_t numbers[] = {0,          1,          7,          0x7fffffff, 0x80000000,
                                     0xffffffff, 0xfffffffe, 0x10000000, 1 << 20,    65536};
  return numbers[below(sizeof numbers / sizeof *numbers)];
}

static void put_zip64(bool there)
{
  if (!there) return;
  put_number(1, 2);
  put_number(24, 2);
  for (int i = 0; i < 3; i++)
    put_number(below(2) ? strange() << below(33) : UINT64_MAX >> below(60), 8);
}

static void put_header(const struct member *m, bool central, uint64_t offset, enum lie lie)
{
  const char *name = lie == NAME ? "../../../etc/passwd" : m->name;
  const uint64_t crc = lie == CRC ? strange() : crc32(0, m->at, (unsigned)m->n);
  const uint64_t size = lie == SIZE ? strange() : lie == ZIP64 ? 0xffffffff : m->n;
  put_number(central ? 0x02014b50 : 0x04034b50, 4);
  if (central) put_number(20, 2);
  put_number(20, 2);
  put_number(lie == ENCRYPTED ? 1 : 0, 2);
  put_number(lie == METHOD ? 8 : 0, 2);
  put_number(0, 4);
  put_number(crc, 4);
  put_number(lie == SIZE && below(2) ? m->n : size, 4);
  put_number(size, 4);
  put_number(strlen(name), 2);
  put_number(lie == ZIP64 ? 28 : 0, 2);
  if (central) {
    put_number(0, 2);
    put_number(0, 2);
    put_number(0, 2);
    put_number(0, 4);
    put_number(lie == OFFSET ? strange() : lie == ZIP64 ? 0xffffffff : offset, 4);
  }
  put(name, strlen(name));
  put_zip64(lie == ZIP64);
}

/* All members, the one at `changed` with other bytes; of the one at `liar` the ZIP lies. Perhaps
   one is there twice. */
static void put_archive(size_t changed, const void *bytes, size_t n, size_t liar, enum lie lie)
{
  static uint64_t offset[MOST_MEMBERS + 1];
  struct member all[MOST_MEMBERS + 1];
  size_t count = 0;
  for (size_t i = 0; i < nmembers; i++) {
    all[count] = members[i];
    if (i == changed) all[count].at = bytes, all[count].n = n;
    count++;
  }
  if (!below(16)) all[count++] = all[below(nmembers)];
  for (size_t i = 0; i < count; i++) {
    offset[i] = length;
    put_header(&all[i], false, 0, i == liar && below(2) ? lie : NONE_SAID);
    put(all[i].at, all[i].n);
  }
  const size_t directory = length;
  for (size_t i = 0; i < count; i++)
    put_header(&all[i], true, offset[i], i == liar ? lie : NONE_SAID);
  const size_t end = length;
  put_number(0x06054b50, 4);
  put_number(0, 4);
  put_number(count, 2);
  put_number(count, 2);
  put_number(end - directory, 4);
  put_number(directory, 4);
  put_number(0, 2);
}

/* ------------------------------------------------------------------------------------- mutations
 */

static char text[2 * MOST_BYTES];
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

/* A value of the text from a random place on: a string, a number, or what stands in brackets. */
static size_t find_value(size_t *n)
{
  size_t at = below(text_length);
  while (at < text_length && !strchr("\"{[-0123456789", text[at])) at++;
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

static void change_text(void)
{
  static const char *const values[] = {
      "-1",
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
      "\"weight_0\"",
      "\"/etc/passwd\"",
      "\"a\\u0000b\"",
      "\"\\u001b[2J\"",
      "\"NaN\"",
      "\"Infinity\"",
      "{\"as_int\": 3}",
      "{\"as_none\": true}",
      "{\"as_tensor\": {\"name\": \"input\"}}",
      "{\"as_ints\": [0, 1]}",
      "{\"as_name\": \"x\"}",
      "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
      "\"torch.ops.aten.view.default\"",
      "\"torch.ops.aten.index.Tensor\"",
      "\"torch.ops.aten.as_strided.default\"",
      "\"torch.ops.aten.add_.Tensor\"",
      "\"torch.ops.higher_order.wrap_with_set_grad_enabled\"",
      "{\"as_expr\": {\"expr_str\": \"Mul(Integer(9999999999), Pow(Integer(99), Integer(99)))\"}}"};
  size_t n, m, at = find_value(&n);
  switch (below(6)) {
  case 0:
  case 1: {
    const char *with = values[below(sizeof values / sizeof *values)];
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

static bool is_json(const struct member *m)
{
  const char *dot = strrchr(m->name, '.');
  return dot && !strcmp(dot, ".json");
}

static void change_json(void)
{
  size_t k = below(nmembers);
  while (!is_json(&members[k])) k = (k + 1) % nmembers;
  text_length = members[k].n;
  memcpy(text, members[k].at, text_length);
  for (size_t i = 1 + below(3); i-- > 0 && text_length > 8;) change_text();
  put_archive(k, text, text_length, nmembers, NONE_SAID);
}

static void change_bytes(void)
{
  put(archive, archive_length);
  for (size_t i = 1 + below(8); i-- > 0;) {
    /* The directory at the end is a small part, where most is decided. */
    size_t at = below(2) ? below(length) : length - 1 - below(length < 4096 ? length : 4096);
    mutant[at] = below(2) ? (unsigned char)below(256) : (unsigned char)(mutant[at] ^ 1 << below(8));
  }
  if (!below(8)) length = below(length);
}

void write_mutant(uint64_t number, const char *path)
{
  state = number * 0x9e3779b97f4a7c15;
  length = 0;
  switch (below(8)) {
  case 0:
  case 1:
    change_bytes();
    break;
  case 2:
    put_archive(nmembers, NULL, 0, below(nmembers), (enum lie)(1 + below(LIES - 1)));
    break;
  default:
    change_json();
  }
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(mutant, 1, length, file) != length || fclose(file)) {
    fprintf(stderr, "%s: cannot write\n", path);
    exit(2);
  }
}

/* -------------------------------------------------------------------------------------- running */

static bool is_right(int status, const char *said)
{
  const char *end = strchr(said, '\n');
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  return WIFEXITED(status) && WEXITSTATUS(status) == 1 && end && !end[1] && strstr(said, ": ");
}

int run_mutants(const char *path, uint64_t first, uint64_t count, void (*body)(const char *path))
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
      alarm(SECONDS);
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
