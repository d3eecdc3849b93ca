/* fuzz_config PLAN CONFIG PATH FIRST COUNT [NAME=VALUE]...: mutants of a config.json, which the
   plan reads from PATH with further definitions: tpgen makes a program of each, or refuses it with
   one line in words of its own. The mutant is left at PATH. */
#include "json_mutants.h"
#include "driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

static struct definition list[MOST];
static int count;
static char original[MOST_TEXT];
static size_t original_size;

static void write_mutant(uint64_t number, const char *path)
{
  static const char *const values[] = {
      "64",
      "0.25",
      "16",
      "\"gelu\"",
      "\"yarn\"",
      "\"longrope\"",
      "\"linear\"",
      "{\"rope_type\": \"dynamic\", \"factor\": 2.0}",
      "{\"type\": \"yarn\", \"factor\": 1e30, \"original_max_position_embeddings\": 8}",
      "{\"rope_type\": \"llama3\", \"factor\": 0}",
      "{\"rope_type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [0]}",
      "[\"sliding_attention\", \"full_attention\"]",
      "[0, 1, 2, 3]",
      "[-1]",
      "-0.0",
      "1e-320"};
  static char text[MOST_TEXT];
  size_t n = original_size;
  begin_mutant(number);
  memcpy(text, original, n);
  if (below(12))
    change_json(text, &n, values, sizeof values / sizeof *values);
  else
    change_bytes(text, &n, n);
  write_whole(path, text, n);
}

static void compile(const char *path)
{
  list[0] = (struct definition){"config", path};
  options.definition = list;
  options.ndefinition = count;
  set_target("cpu");
  graph_open();
  for (enum pass pass = 0; pass < PASS_COUNT; pass++) run_passes(pass, pass);
}

int main(int argc, char **argv)
{
  if (argc < 6) return 2;
  options.plan = argv[1];
  original_size = read_whole(argv[2], original, sizeof original);
  count = 1;
  for (int i = 6; i < argc && count < MOST; i++) {
    char *value = strchr(argv[i], '=');
    if (!value) return 2;
    *value++ = 0;
    list[count++] = (struct definition){argv[i], value};
  }
  return run_mutants(argv[3], strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10),
                     write_mutant, compile) != 0;
}
