/* fuzz_archive_reader ARCHIVE PATH FIRST COUNT: mutants of an archive, whose tensors the runtime
   reads: all of each, or it says in one line why not. */
#include "archive_mutants.h"
#include "json_mutants.h"
#include "formats/safetensors.h"
#include "formats/torch_archive.h"

#include <stdio.h>
#include <stdlib.h>

enum { AT_ONCE = 4096 };

static void read_all(const char *path)
{
  static char bytes[8 * AT_ONCE];
  struct safetensors file;
  struct failure why;
  bool ok = torch_archive_open(&file, path, &why);
  for (size_t i = 0; ok && i < file.count; i++) {
    const struct entry *e = &file.entries[i];
    static const long zeros[32];
    const struct slice whole = {e->ndim, e->shape, e->shape, zeros};
    const size_t elements = slice_elements(&whole);
    ok =
        safetensors_read(&file, e, &whole, 0, elements < AT_ONCE ? elements : AT_ONCE, bytes, &why);
  }
  if (ok) {
    safetensors_close(&file);
    return;
  }
  fprintf(stderr, "%s\n", why.text);
  exit(1);
}

int main(int argc, char **argv)
{
  if (argc < 5) return 2;
  open_archive(argv[1]);
  return run_mutants(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                     write_mutant, read_all) != 0;
}
