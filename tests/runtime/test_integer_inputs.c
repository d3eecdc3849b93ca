// Integers of inputs: from every type of a file to every type of a program, values that do not fit,
// and invalid indices.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/program.h"
#include "temporary.h"

// ---- a program with inputs of every type
// ---------------------------------------------------------

enum {
  NARROW,
  WIDE,
  TRUTH,
  DRAWN,
  CLASSES,
  MADE,
  TENSORS,
  ROWS = 3,
  COLUMNS = 2,
  ALL = ROWS * COLUMNS
};

#define INPUT_OF(text, of_type, ...)                                                               \
  {                                                                                                \
    {text, NULL}, {NULL, NULL}, 1, BATCH, of_type, 0, 0, 2, {ROWS, COLUMNS}, {ROWS, COLUMNS},      \
        __VA_ARGS__                                                                                \
  }
static struct tensor tensors[TENSORS] = {
    [NARROW] = INPUT_OF("narrow", I32, {CONSTANT, {0}}),
    [WIDE] = INPUT_OF("wide", I64, {CONSTANT, {0}}),
    [TRUTH] = INPUT_OF("truth", BOOL, {CONSTANT, {0}}),
    [DRAWN] = INPUT_OF("drawn", I32, {UNIFORM, {-2, 5}}),
    [CLASSES] = INPUT_OF("classes", I32, {UNIFORM, {0, 5}}),
    [MADE] = INPUT_OF("made", I32, {TOKENS, {5, 0}}),
};
static const struct index_use uses[] = {
    {"embedding", 4, 10, false, 0, NARROW, {0, 1}, {ROWS, 1}}, // the second column alone
    {"nll_loss", 7, 10, true, -100, WIDE, {0, 0}, {ROWS, COLUMNS}},
    {"gather", 9, 5, false, 0, -1, {0}, {0}},
    {"cross_entropy", 11, 5, true, -100, CLASSES, {0, 0}, {ROWS, COLUMNS}},
    {"cross_entropy", 12, 0, true, -100, MADE, {0, 0}, {ROWS, COLUMNS}},
};
static struct {
  char before[8];
  unsigned long long noted[5];
} space;
void *rank_memory = &space;
static struct program this_program = {.plan = "plan.lua",
                                      .world = 1,
                                      .tensors = tensors,
                                      .ntensors = TENSORS,
                                      .index_uses = uses,
                                      .nindex_uses = sizeof uses / sizeof *uses,
                                      .noted = offsetof(__typeof__(space), noted)};
static struct own_part own[TENSORS];
static struct rank this_rank = {.parts = own};

const struct program *program = &this_program;
const struct rank *rank = &this_rank;

// As it is, but for whose program it is.
#include "../../runtime/tensors/integer_inputs.c"

void target_get(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

// ---- files
// -----------------------------------------------------------------------------------------

// A file of one tensor, of six numbers.
static void write_file(const char *name, const char *dtype, size_t size, const int64_t x[ALL])
{
  char head[200];
  int length = snprintf(head, sizeof head,
                        "{\"%s\":{\"dtype\":\"%s\",\"shape\":[3,2],\"data_offsets\":[0,%zu]}}",
                        name, dtype, ALL * size);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  for (int i = 0; i < 8; i++) fputc((int)((uint64_t)length >> 8 * i & 0xff), f);
  fputs(head, f);
  for (int k = 0; k < ALL; k++)
    for (size_t i = 0; i < size; i++) fputc((int)((uint64_t)x[k] >> 8 * i & 0xff), f);
  assert_int_equal(fclose(f), 0);
}

// Reads it as the program's tensor and looks at it; `says`: why not, or NULL: it is right.
static void take(int row, int64_t to[ALL], const char *says)
{
  struct failure why = {""};
  struct archive archive;
  struct member m = {.row = row, .name = tensors[row].name.name};
  struct slice slice = table_slice(row);
  char room[8 * ALL];
  if (!archive_open(&archive, path, &why)) fail_msg("%s", why.text);
  const struct kept *kept = archive_find(&archive, m.name);
  size_t count = slice_elements(&slice);
  assert_true(kept && numbers_take(&tensors[row], kept->entry->dtype));
  bool ok = numbers_read(kept, &m, &slice, 0, count, room, &why) &&
            numbers_hold(kept, &m, &slice, 0, 0, count, room, &why);
  archive_close(&archive);
  if (ok && says) fail_msg("taken, though: %s", says);
  if (!ok && (!says || !strstr(why.text, says)))
    fail_msg("said: %s\nnot: %s", why.text, says ? says : "");
  for (size_t i = 0; ok && to && i < count; i++) to[i] = element_at(tensors[row].type, room, i);
}

// ---- tests
// -----------------------------------------------------------------------------------------

static void every_type(void **state)
{
  (void)state;
  static const struct {
    const char *dtype;
    size_t size;
    int64_t x[ALL];
  } rows[] = {{"BOOL", 1, {0, 1, 1, 0, 1, 0}},        {"U8", 1, {0, 1, 200, 9, 255, 3}},
              {"I8", 1, {-128, 1, 127, 9, -1, 3}},    {"U16", 2, {0, 1, 65535, 9, 300, 3}},
              {"I16", 2, {-32768, 1, 300, 9, -1, 3}}, {"U32", 4, {0, 1, 1 << 30, 9, 70000, 3}},
              {"I32", 4, {-5, 1, 1 << 30, 9, -1, 3}}, {"U64", 8, {0, 1, 1 << 30, 9, 70000, 3}},
              {"I64", 8, {-5, 1, 1 << 30, 9, -1, 3}}};
  this_program.nindex_uses = 1; // of the second column alone
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
    for (int row = NARROW; row <= WIDE; row++) {
      int64_t got[ALL];
      write_file(tensors[row].name.name, rows[r].dtype, rows[r].size, rows[r].x);
      take(row, got, NULL);
      for (int i = 0; i < ALL; i++) assert_int_equal(got[i], rows[r].x[i]);
    }
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    int64_t got[ALL];
    write_file("truth", rows[r].dtype, rows[r].size, rows[0].x);
    take(TRUTH, got, NULL);
    for (int i = 0; i < ALL; i++) assert_int_equal(got[i], rows[0].x[i]);
  }
  this_program.nindex_uses = sizeof uses / sizeof *uses;
  assert_false(numbers_take(&tensors[NARROW], "F32"));
  assert_false(numbers_take(&tensors[NARROW], "F8_E4M3"));
}

static void what_does_not_fit(void **state)
{
  (void)state;
  write_file("narrow", "I64", 8, (const int64_t[]){1, 2, 3, INT64_C(1) << 32, 5, 6});
  take(NARROW, NULL, "narrow[1, 1] (sample 1) is 4294967296, which is not an int32");
  write_file("narrow", "I64", 8, (const int64_t[]){INT64_MIN, 2, 3, 4, 5, 6});
  take(NARROW, NULL, "narrow[0, 0] (sample 0) is -9223372036854775808, which is not an int32");
  write_file("narrow", "U32", 4, (const int64_t[]){1, 2, 3, 4, INT64_C(1) << 31, 6});
  take(NARROW, NULL, "narrow[2, 0] (sample 2) is 2147483648, which is not an int32");
  write_file("wide", "U64", 8, (const int64_t[]){1, 2, 3, 4, 5, -1});
  take(WIDE, NULL, "wide[2, 1] (sample 2) is 18446744073709551615, which is not an int64");
  write_file("truth", "BOOL", 1, (const int64_t[]){1, 0, 7, 0, 1, 0});
  take(TRUTH, NULL, "truth[1, 0] (sample 1) is 7, but the program takes a truth there, 0 or 1");
}

static void indices(void **state)
{
  (void)state;
  const int64_t right[] = {77, 9, -1, 0, 77, 5};
  write_file("narrow", "I64", 8, right);
  take(NARROW, NULL, NULL); // the first column is used by nobody
  write_file("narrow", "U8", 1, (const int64_t[]){77, 9, 0, 10, 77, 5});
  take(NARROW, NULL, "narrow[1, 1] (sample 1) is 10, but embedding at plan.lua:4 takes 0 to 9");
  write_file("narrow", "I32", 4, (const int64_t[]){77, 9, 0, 1, 77, -1});
  take(NARROW, NULL, "narrow[2, 1] (sample 2) is -1, but embedding at plan.lua:4 takes 0 to 9");
  write_file("wide", "I16", 2, (const int64_t[]){0, -100, 9, 1, -100, 2});
  take(WIDE, NULL, NULL);
  write_file("wide", "I64", 8, (const int64_t[]){0, -100, 9, 1, -99, 2});
  take(WIDE, NULL, "is -99, but nll_loss at plan.lua:7 takes 0 to 9, or -100");
  write_file("drawn", "I64", 8, (const int64_t[]){-2, 4, 0, 1, 2, 3});
  take(DRAWN, NULL, NULL);
  write_file("drawn", "I64", 8, (const int64_t[]){-2, 4, 0, 5, 2, 3});
  take(DRAWN, NULL, "drawn[1, 1] (sample 1) is 5, but randint of plan.lua declares -2 to 4");
}

// Labels may be what their loss ignores, whatever the plan declares.
static void ignored(void **state)
{
  (void)state;
  write_file("classes", "I64", 8, (const int64_t[]){-100, 4, 0, 1, -100, 3});
  take(CLASSES, NULL, NULL);
  write_file("classes", "I64", 8, (const int64_t[]){-100, 4, 0, 1, -1, 3});
  take(CLASSES, NULL, "classes[2, 0] (sample 2) is -1, but randint of plan.lua declares 0 to 4");
  write_file("made", "I64", 8, (const int64_t[]){0, 4, 0, -100, 2, 3});
  take(MADE, NULL, NULL);
  // Where batches may be smaller, what the loss itself ignores is not known.
  this_program.last_batch = LAST_SMALLER;
  take(MADE, NULL, "made[1, 1] (sample 1) is -100, but tokens of plan.lua declares 0 to 4");
  this_program.last_batch = LAST_NOT_GIVEN;
}

// A rank's part is what it looks at, and it tells the places of the whole.
static void parts(void **state)
{
  (void)state;
  write_file("narrow", "I64", 8, (const int64_t[]){0, 0, 0, 50, 0, 60});
  own[NARROW].first[0] = 2;
  tensors[NARROW].here[0] = 1;
  take(NARROW, NULL, "narrow[2, 1] (sample 2) is 60, but");
  own[NARROW].first[0] = 0;
  take(NARROW, NULL, NULL);
  tensors[NARROW].here[0] = ROWS;
}

// Of what a step notes the least number stays, in whatever order they are met.
static void computed(void **state)
{
  (void)state;
  static const long long some[] = {5, 7, -1, 1ll << 40, -(1ll << 50), 0, 4, -100};
  struct failure why = {""};
  assert_true(numbers_computed(1, &why));
  for (int i = 0; i < 2; i++) assert_int_equal(index_within(4 * i, 5, 0, &space.noted[2]), 4 * i);
  assert_int_equal(index_within(-100, 5, -100, &space.noted[2]), -100);
  assert_true(numbers_computed(1, &why));
  for (int turn = 0; turn < 2; turn++) {
    space.noted[2] = 0;
    for (int i = 0; i < 8; i++) {
      long long x = some[turn ? 7 - i : i];
      int y = index_within(x, 5, 0, &space.noted[2]);
      assert_int_equal(y, x >= 0 && x < 5 ? (int)x : -1);
    }
    assert_false(numbers_computed(3, &why));
    assert_string_equal(why.text, "plan.lua:9: gather takes indices from 0 to 4, but by step 3 it "
                                  "was given -1125899906842624");
  }
  space.noted[2] = 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type), cmocka_unit_test(what_does_not_fit),
      cmocka_unit_test(indices),    cmocka_unit_test(ignored),
      cmocka_unit_test(parts),      cmocka_unit_test(computed)};
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
