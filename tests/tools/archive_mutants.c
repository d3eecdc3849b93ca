/* archive_mutants.c: see archive_mutants.h. */
#include "archive_mutants.h"
#include "json_mutants.h"

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

enum {
  MOST_BYTES = 1 << 22,
  MOST_MEMBERS = 256,
  LOCAL = 30,
  CENTRAL = 46,
  END = 22,
  DIRECTORY = 4096
};

static unsigned char archive[MOST_BYTES], mutant[4 * MOST_BYTES];
static size_t archive_length, length;

static struct member {
  char name[256];
  const unsigned char *at;
  size_t n;
} members[MOST_MEMBERS];
static size_t nmembers;

static unsigned number_at(const unsigned char *at, int bytes)
{
  unsigned n = 0;
  while (bytes-- > 0) n = n << 8 | at[bytes];
  return n;
}

void open_archive(const char *path)
{
  archive_length = read_whole(path, (char *)archive, sizeof archive);
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

static bool is_json(const struct member *m)
{
  const char *dot = strrchr(m->name, '.');
  return dot && !strcmp(dot, ".json");
}

static void change_member(void)
{
  static const char *const values[] = {
      "\"weight_0\"",
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
  static char text[MOST_TEXT];
  size_t k = below(nmembers), n;
  while (!is_json(&members[k])) k = (k + 1) % nmembers;
  n = members[k].n;
  memcpy(text, members[k].at, n);
  change_json(text, &n, values, sizeof values / sizeof *values);
  put_archive(k, text, n, nmembers, NONE_SAID);
}

void write_mutant(uint64_t number, const char *path)
{
  begin_mutant(number);
  length = 0;
  switch (below(8)) {
  case 0:
  case 1:
    put(archive, archive_length);
    change_bytes((char *)mutant, &length, DIRECTORY);
    break;
  case 2:
    put_archive(nmembers, NULL, 0, below(nmembers), (enum lie)(1 + below(LIES - 1)));
    break;
  default:
    change_member();
  }
  write_whole(path, mutant, length);
}
