/* fuzz_safetensors FILE PATH FIRST COUNT: mutants of a safetensors file, or of an index of some
   (*.index.json), which the runtime reads from PATH: all of each tensor, or it says in one line why
   not. An index must be in the folder of its files, and so must PATH, with a name that ends like
   its own. */
#include "json_mutants.h"
#include "formats/safetensors_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 4096, LENGTH = 8, HEADER_END = 256 };

static char original[MOST_TEXT];
static size_t original_size, header; // its length; 0: of an index

static size_t length_of(const char *at)
{
  size_t length = 0;
  for (int i = LENGTH - 1; i >= 0; i--) length = length << 8 | (unsigned char)at[i];
  return length;
}

static void put_length(char *at, size_t length)
{
  for (int i = 0; i < LENGTH; i++) at[i] = (char)(length >> 8 * i);
}

static void write_mutant(uint64_t number, const char *path)
{
  static const char *const values[] = {
      "\"F32\"",
      "\"F4\"",
      "\"BOOL\"",
      "\"C64\"",
      "\"F6_E2M3\"",
      "[0, 0]",
      "[0, 8]",
      "[8, 0]",
      "[9223372036854775807, 9223372036854775807]",
      "[4294967296, 4294967296, 0]",
      "[0, 9223372036854775807, 9223372036854775807]",
      "-0",
      "{\"crc32c\": \"00000000\"}",
      "{\"dtype\": \"U8\", \"shape\": [], \"data_offsets\": [0, 1]}",
      "[\"F32\", [1], [0, 4]]",
      "\"__metadata__\"",
      "\"\\ud800\"",
      "\"a\xff\""};
  static char text[2 * MOST_TEXT];
  const size_t behind = original_size - header - LENGTH;
  size_t n;
  begin_mutant(number);
  if (!below(4)) {
    n = original_size;
    memcpy(text, original, n);
    if (below(2) && header) n = LENGTH + header; // what it has before its data
    change_bytes(text, &n, HEADER_END);
    if (n == LENGTH + header) n = original_size;
  } else if (!header) {
    n = original_size;
    memcpy(text, original, n);
    change_json(text, &n, values, sizeof values / sizeof *values);
  } else {
    n = header;
    memcpy(text + LENGTH, original + LENGTH, n);
    change_json(text + LENGTH, &n, values, sizeof values / sizeof *values);
    put_length(text, below(8) ? n : n + below(64) - 32);
    memcpy(text + LENGTH + n, original + LENGTH + header, behind);
    n += LENGTH + behind - (below(8) ? 0 : below(behind));
  }
  write_whole(path, text, n);
}

static bool read_tensor(const struct kept *kept, struct failure *why)
{
  static char bytes[8 * AT_ONCE];
  static const long zeros[64];
  const struct entry *e = kept->entry;
  if (e->ndim > sizeof zeros / sizeof *zeros) return true;
  const struct slice whole = {e->ndim, e->shape, e->shape, zeros};
  const size_t elements = slice_elements(&whole);
  // Fewer bits than a byte: the first of each tensor's elements begin with one.
  const size_t most = safetensors_bits(e->dtype) < 8 ? 0 : AT_ONCE;
  for (size_t from = 0; from < elements && most > 0; from += most) {
    const size_t n = elements - from < most ? elements - from : most;
    if (!safetensors_read(kept->file, e, &whole, from, n, bytes, why)) return false;
  }
  return true;
}

static void read_all(const char *path)
{
  struct archive archive;
  struct failure why = {""};
  bool ok = archive_open(&archive, path, &why);
  const bool is_open = ok;
  for (size_t i = 0; ok && i < archive.count; i++) {
    const struct kept *kept = &archive.all[i], *found;
    ok = archive_find(&archive, kept->entry->name) == kept || failed(&why, "it finds another one");
    ok = ok && archive_stack(&archive, "model.layers.{}.input_layernorm.weight", 2, &found, &why);
    ok = ok && read_tensor(kept, &why);
  }
  if (is_open) archive_close(&archive);
  if (ok) return;
  fprintf(stderr, "%s\n", why.text);
  exit(1);
}

int main(int argc, char **argv)
{
  if (argc < 5) return 2;
  const char *dot = strrchr(argv[1], '.');
  original_size = read_whole(argv[1], original, sizeof original);
  if (!dot || strcmp(dot, ".json") != 0) header = length_of(original);
  if (header + LENGTH > original_size) return 2;
  return run_mutants(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                     write_mutant, read_all) != 0;
}
