// An inference program: which tensors of a file of weights it may ignore, and what it saves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint/checkpoint.h"
#include "host_target.h"
#include "base/program.h"
#include "tensors/tensor_table.h"
#include "tensors/tensors.h"
#include "temporary.h"

static const struct tensor tensors[] = {
    {{"w", NULL}, {NULL, NULL}, 1, PARAMETER, F32, 0, 0, 1, {2}, {2}, {UNIFORM, {0, 1}}},
    {{"input", NULL}, {NULL, NULL}, 1, BATCH, F32, 8, 0, 1, {2}, {2}, {UNIFORM, {0, 1}}},
    {{"output", NULL}, {NULL, NULL}, 1, OUTPUT, F32, 16, 0, 1, {2}, {2}, {CONSTANT, {0, 0}}},
};
static const struct own_part parts[3] = {{{0}, true}, {{0}, true}, {{0}, true}};
static float values[6];
void *rank_memory = values;

static const struct program this_program = {.hash = "0123456789abcdef",
                                            .world = 1,
                                            .bytes = sizeof values,
                                            .loss = -1,
                                            .tensors = tensors,
                                            .ntensors = 3};
static const struct rank this_rank = {.parts = parts};
const struct program *program = &this_program;
const struct rank *rank = &this_rank;

static char saved[64];

static int make_paths(void **state)
{
  if (make_directory(state) != 0) return -1;
  snprintf(saved, sizeof saved, "%s/outputs.safetensors", directory);
  return 0;
}

// Nothing else may be left there.
static int remove_paths(void **state)
{
  unlink(path);
  unlink(saved);
  return rmdir(directory) == 0 ? 0 : (remove_directory(state), -1);
}

// A file with these tensors, each of two float32: 1, 2 in the first, 3, 4 in the next ...
static void write_file(const char *const *names)
{
  char header[1000] = "{", *end = header + 1;
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  int n = 0;
  for (; names[n]; n++)
    end += sprintf(end, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%d,%d]}",
                   n ? "," : "", names[n], 8 * n, 8 * n + 8);
  end += sprintf(end, "}");
  uint64_t length = (uint64_t)(end - header);
  for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 0xff), f);
  fwrite(header, 1, length, f);
  for (int i = 0; i < 2 * n; i++) fwrite(&(float){(float)(i + 1)}, 4, 1, f);
  assert_int_equal(fclose(f), 0);
}

static void needless_tensors(void **state)
{
  (void)state;
  struct progress at;
  struct failure why = {""};
  write_file((const char *const[]){"optim.exp_avg.w", "w", "input", "target", NULL});
  assert_false(tensors_fill(&(struct origins){.weights = path}, &at, &why));
  assert_non_null(strstr(why.text, "it holds target, which the program does not know"));
  assert_true(tensors_fill(&(struct origins){.weights = path, .data = path}, &at,
                           &why)); // the data's file, too
  assert_int_equal(at.step, 0);
  for (int i = 0; i < 4; i++) assert_int_equal((int)values[i], i + 3); // w, then input

  write_file((const char *const[]){"optim.exp_avg.w", "w", NULL});
  assert_true(tensors_fill(&(struct origins){.weights = path}, &at, &why));
  write_file((const char *const[]){"w", "output", NULL});
  assert_false(tensors_fill(&(struct origins){.weights = path}, &at, &why));
}

static void outputs(void **state)
{
  (void)state;
  struct safetensors file;
  struct failure why = {""};
  values[4] = 40;
  values[5] = 50;
  struct folder folder;
  struct failure note;
  assert_true(folder_take(&folder, directory, "here-1-0", &note, &why));
  struct save *save =
      save_plan(&(struct saving){directory, CHECKPOINT, 1, 1, "here-1-0", &folder, 0}, &why);
  assert_non_null(save);
  assert_true(save_create(save, &why) && save_write(save, &why) && save_commit(save, &why));
  save_end(save);
  folder_release(&folder);
  assert_true(safetensors_open(&file, saved, &why));
  assert_int_equal(file.count, 1);
  float got[2];
  struct slice slice = table_slice(2);
  const struct entry *output = safetensors_find(&file, "output");
  assert_non_null(output);
  assert_true(safetensors_read(&file, output, &slice, 0, 2, got, &why));
  assert_memory_equal(got, values + 4, sizeof got);
  safetensors_close(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(needless_tensors),
      cmocka_unit_test(outputs),
  };
  return cmocka_run_group_tests(tests, make_paths, remove_paths);
}
