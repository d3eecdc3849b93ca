// Filling and saving a program's tensors, with a program made here whose rank can be changed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// As they are, so that the test can be any rank and needs no MPI.
#include "../../runtime/tensors.c"
#include "../../runtime/save.c"

// ---- a program of seven tensors, over a row of ranks -------------------------------------------

enum { WEIGHT, BIAS, NORMED, MOMENT, IDS, SEEN, RESULT, TENSORS, MEMORY = 4096, MOST_RANKS = 8 };

static struct tensor tensors[TENSORS] = {
    [WEIGHT] = {{"weight", NULL},
                {NULL, NULL},
                1,
                PARAMETER,
                F32,
                0,
                0,
                2,
                {5, 3},
                {0},
                {UNIFORM, -0.5, 0.5}},
    [BIAS] =
        {{"bias", NULL}, {NULL, NULL}, 1, PARAMETER, F32, 256, 0, 1, {3}, {0}, {CONSTANT, 0.25, 0}},
    [NORMED] = {{"normed", NULL},
                {NULL, NULL},
                1,
                PARAMETER,
                BF16,
                512,
                0,
                2,
                {2, 7},
                {0},
                {NORMAL, 1, 2}},
    [MOMENT] = {{"optim.exp_avg.weight", NULL},
                {NULL, NULL},
                1,
                STATE,
                F32,
                768,
                0,
                2,
                {5, 3},
                {0},
                {CONSTANT, 0, 0}},
    [IDS] =
        {{"tokens", NULL}, {NULL, NULL}, 1, BATCH, I32, 1024, 0, 1, {11}, {0}, {UNIFORM, 0, 100}},
    [SEEN] = {{"seen", NULL}, {NULL, NULL}, 1, BATCH, BOOL, 1152, 0, 1, {40}, {0}, {UNIFORM, 0, 2}},
    [RESULT] =
        {{"result", NULL}, {NULL, NULL}, 1, OUTPUT, F32, 1280, 0, 1, {4}, {0}, {CONSTANT, 0, 0}},
};
// Which dimension is cut over the ranks; -1: each has the whole.
static const int cut[TENSORS] = {0, -1, 1, 0, 0, 0, -1};

static long firsts[TENSORS][MAX_DIMS];
static char owned[TENSORS];
static char memories[MOST_RANKS][MEMORY];
static void *memory;

const struct program program = {.plan = "plan.lua",
                                .hash = "0123456789abcdef",
                                .world = 1,
                                .seed = 45,
                                .memory = &memory,
                                .bytes = MEMORY,
                                .loss = 2048,
                                .tensors = tensors,
                                .ntensors = TENSORS};
const struct rank rank = {.first = (const long (*)[MAX_DIMS])firsts, .owns = owned};

void target_put(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

void target_get(void *to, const void *from, size_t bytes)
{
  memcpy(to, from, bytes);
}

static void become(int id, int ranks)
{
  memory = memories[id];
  for (int i = 0; i < TENSORS; i++) {
    struct tensor *t = &tensors[i];
    memcpy(t->here, t->of, sizeof t->here);
    memset(firsts[i], 0, sizeof firsts[i]);
    owned[i] = cut[i] >= 0 || id == 0;
    if (cut[i] < 0) continue;
    long size = t->of[cut[i]], part = (size + ranks - 1) / ranks, first = id * part;
    firsts[i][cut[i]] = first < size ? first : size;
    t->here[cut[i]] = first >= size ? 0 : first + part < size ? part : size - first;
  }
}

static char directory[] = "/tmp/tensors.XXXXXX";
static char saved[128], beside[128];

static int make_directory(void **state)
{
  (void)state;
  if (!mkdtemp(directory)) return -1;
  snprintf(saved, sizeof saved, "%s/model.safetensors", directory);
  snprintf(beside, sizeof beside, "%s/.model.safetensors.tmp", directory);
  return 0;
}

static int remove_directory(void **state)
{
  (void)state;
  unlink(saved);
  return rmdir(directory);
}

static int fill(int ranks, const char *weights, const char *data)
{
  int step = -1;
  struct failure why = {""};
  memset(memories, 0, sizeof memories);
  for (int id = 0; id < ranks; id++) {
    become(id, ranks);
    if (!tensors_fill(weights, data, &step, &why)) fail_msg("rank %d: %s", id, why.text);
  }
  return step;
}

static void save(int ranks, int step)
{
  struct failure why = {""};
  become(0, ranks);
  if (!save_begin(directory, step, &why)) fail_msg("%s", why.text);
  for (int id = 0; id < ranks; id++) {
    become(id, ranks);
    if (!save_write(directory, step, &why)) fail_msg("rank %d: %s", id, why.text);
  }
  become(0, ranks);
  if (!save_commit(directory, &why)) fail_msg("%s", why.text);
}

static size_t read_file(const char *path, char *to, size_t most)
{
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  size_t bytes = fread(to, 1, most, f);
  assert_int_equal(fclose(f), 0);
  return bytes;
}

// ---- filling -----------------------------------------------------------------------------------

static void values_are_in_their_bounds(void **state)
{
  (void)state;
  fill(1, NULL, NULL);
  const float *weight = (const float *)(memories[0] + tensors[WEIGHT].offset);
  const float *bias = (const float *)(memories[0] + tensors[BIAS].offset);
  const int32_t *tokens = (const int32_t *)(memories[0] + tensors[IDS].offset);
  bool differ = false;
  for (int i = 0; i < 15; i++) {
    assert_true(weight[i] >= -0.5f && weight[i] < 0.5f);
    differ = differ || weight[i] < weight[0] || weight[i] > weight[0];
  }
  assert_true(differ);
  for (int i = 0; i < 3; i++) assert_true(bias[i] >= 0.25f && bias[i] <= 0.25f);
  differ = false;
  for (int i = 0; i < 11; i++) {
    assert_in_range(tokens[i], 0, 99);
    differ = differ || tokens[i] != tokens[0];
  }
  const char *seen = memories[0] + tensors[SEEN].offset;
  int truths = 0;
  for (int i = 0; i < 40; i++) {
    assert_in_range(seen[i], 0, 1);
    truths += seen[i];
  }
  assert_in_range(truths, 8, 32);
  assert_true(differ);
}

// The whole tensors that a mesh makes, read back from what it saves, are the same for every mesh.
static void same_on_every_mesh(void **state)
{
  (void)state;
  char one[MEMORY], many[MEMORY];
  fill(1, NULL, NULL);
  save(1, 3);
  size_t bytes = read_file(saved, one, sizeof one);
  for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
    fill(ranks, NULL, NULL);
    save(ranks, 3);
    assert_int_equal(read_file(saved, many, sizeof many), bytes);
    assert_memory_equal(many, one, bytes);
  }
}

static void bf16_is_to_nearest(void **state)
{
  (void)state;
  static const struct {
    float x;
    uint16_t bits;
  } rows[] = {{1, 0x3f80},         {-2, 0xc000},       {0x1.01p0f, 0x3f80}, {0x1.010002p0f, 0x3f81},
              {0x1.03p0f, 0x3f82}, {0x1.ffp0f, 0x4000}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    assert_int_equal(float_to_bf16(rows[i].x), rows[i].bits);
}

static void uniform_stays_below_its_limit(void **state)
{
  (void)state;
  double limit = 0.31622776601683794; // the nearest float is above it
  float x = below(F32, limit * (1 - 1e-12), limit);
  assert_true((double)x < limit);
  assert_true((double)nextafterf(x, 1) >= limit);
  // Where rounding to bfloat16 would come to it: the one before.
  static const float limits[] = {1, 0.5f, 100, -1, -0.25f, 0x1p-130f};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    x = below(BF16, (double)nextafterf(limits[i], -INFINITY), (double)limits[i]);
    uint16_t bits = float_to_bf16(x);
    assert_true(x < limits[i] && bf16_to_float(bits) >= x && bf16_to_float(bits) <= x);
    uint16_t next = (uint16_t)(limits[i] > 0 ? bits + 1 : bits - 1);
    assert_true(bf16_to_float(next) >= limits[i]);
  }
  assert_true(below(BF16, -1e-45, 0) < 0);
}

// Drawn as floats are, and rounded.
static void bf16_is_drawn(void **state)
{
  (void)state;
  float drawn[15];
  fill(1, NULL, NULL);
  memcpy(drawn, memories[0] + tensors[WEIGHT].offset, sizeof drawn);
  tensors[WEIGHT].type = BF16;
  fill(1, NULL, NULL);
  tensors[WEIGHT].type = F32;
  const uint16_t *rounded = (const uint16_t *)(memories[0] + tensors[WEIGHT].offset);
  for (int i = 0; i < 15; i++) assert_int_equal(rounded[i], float_to_bf16(drawn[i]));
}

// ---- files -------------------------------------------------------------------------------------

// What one mesh saves, another loads, bit by bit; and training goes on at its step.
static void loads_on_another_mesh(void **state)
{
  (void)state;
  char before[MEMORY], after[MEMORY];
  fill(3, NULL, NULL);
  for (int id = 0; id < 3; id++) // a state to tell apart
    for (int i = 0; i < 6; i++)
      ((float *)(memories[id] + tensors[MOMENT].offset))[i] = (float)(100 * id + i);
  save(3, 7);
  size_t bytes = read_file(saved, before, sizeof before);
  for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
    assert_int_equal(fill(ranks, saved, NULL), 7);
    save(ranks, 7);
    assert_int_equal(read_file(saved, after, sizeof after), bytes);
    assert_memory_equal(after, before, bytes);
  }
}

// What is bfloat16 in a file becomes the same numbers as floats, on every mesh.
static void bf16_is_widened(void **state)
{
  (void)state;
  uint16_t narrow[14];
  fill(1, NULL, NULL);
  memcpy(narrow, memories[0] + tensors[NORMED].offset, sizeof narrow);
  fill(3, NULL, NULL);
  save(3, 1);
  tensors[NORMED].type = F32;
  for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
    fill(ranks, saved, NULL);
    for (int id = 0; id < ranks; id++) {
      become(id, ranks);
      const float *wide = (const float *)(memories[id] + tensors[NORMED].offset);
      long columns = tensors[NORMED].here[1], first = firsts[NORMED][1];
      for (long i = 0; i < 2 * columns; i++) {
        float wanted = bf16_to_float(narrow[i / columns * 7 + first + i % columns]);
        assert_memory_equal(&wide[i], &wanted, sizeof wanted);
      }
    }
  }
  tensors[NORMED].type = BF16;
}

static void saved_metadata(void **state)
{
  (void)state;
  struct safetensors file;
  struct failure why = {""};
  fill(2, NULL, NULL);
  save(2, 42);
  assert_true(safetensors_open(&file, saved, &why));
  assert_int_equal(file.count, 4); // PARAMETER and STATE
  assert_string_equal(safetensors_metadata(&file, "step"), "42");
  assert_string_equal(safetensors_metadata(&file, "plan_hash"), program.hash);
  assert_null(safetensors_find(&file, "tokens"));
  assert_null(safetensors_find(&file, "result"));
  safetensors_close(&file);
  assert_int_equal(access(beside, F_OK), -1);
}

static void refused(const char *weights, const char *data, const char *says)
{
  int step;
  struct failure why = {""};
  become(0, 2);
  if (tensors_fill(weights, data, &step, &why)) fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
}

static void misfits(void **state)
{
  (void)state;
  fill(2, NULL, NULL);
  save(2, 1);
  refused("/nonexistent", NULL, "/nonexistent: cannot open");
  refused(NULL, saved, "it has no tokens, which the program needs");

  tensors[WEIGHT].of[0] = 6;
  refused(saved, NULL, "weight is F32 [5, 3] in the file, but F32 [6, 3] in the program");
  tensors[WEIGHT].of[0] = 5;
  tensors[BIAS].ndim = 0;
  refused(saved, NULL, "bias is F32 [3] in the file, but F32 [] in the program");
  tensors[BIAS].ndim = 1;
  tensors[BIAS].type = I32;
  refused(saved, NULL, "bias is F32 [3] in the file, but I32 [3] in the program");
  tensors[BIAS].type = F32;
  tensors[WEIGHT].type = BF16; // would be rounded
  refused(saved, NULL, "weight is F32 [5, 3] in the file, but BF16 [5, 3] in the program");
  tensors[WEIGHT].type = F32;

  tensors[BIAS].name.name = "offset";
  refused(saved, NULL, "it holds bias, which the program does not know");
  tensors[BIAS].name.name = "bias";
  tensors[IDS].role = PARAMETER;
  refused(saved, NULL, "it has no tokens, which the program needs");
  tensors[IDS].role = BATCH;
  tensors[RESULT].role = STATE;
  refused(saved, NULL, "it holds a part of the training's state, but no result");
  tensors[RESULT].role = OUTPUT;
  assert_int_equal(fill(2, saved, NULL), 1);
}

// A save that fails leaves the old file as it was, and nothing beside it.
static void old_file_stays(void **state)
{
  (void)state;
  char before[MEMORY], after[MEMORY];
  struct failure why = {""};
  fill(2, NULL, NULL);
  save(2, 1);
  size_t bytes = read_file(saved, before, sizeof before);

  become(0, 2);
  assert_true(save_begin(directory, 2, &why));
  assert_int_equal(access(beside, F_OK), 0);
  assert_true(save_write(directory, 2, &why));
  save_abandon(directory);
  assert_int_equal(access(beside, F_OK), -1);
  assert_false(save_write(directory, 2, &why)); // rank 0 has made nothing
  assert_non_null(strstr(why.text, "cannot open what rank 0 made"));
  assert_false(save_commit(directory, &why));

  assert_int_equal(read_file(saved, after, sizeof after), bytes);
  assert_memory_equal(after, before, bytes);
}

// What a killed job left beside is no obstacle.
static void leftovers_are_replaced(void **state)
{
  (void)state;
  FILE *f = fopen(beside, "wb");
  assert_non_null(f);
  for (int i = 0; i < 100000; i++) fputc('x', f);
  assert_int_equal(fclose(f), 0);
  fill(2, NULL, NULL);
  save(2, 5);
  assert_int_equal(fill(2, saved, NULL), 5);
}

static void directories(void **state)
{
  (void)state;
  char deep[200], part[200];
  struct failure why = {""};
  snprintf(deep, sizeof deep, "%s/a/b//c/", directory);
  assert_true(save_directory(deep, &why));
  assert_int_equal(access(deep, F_OK), 0);
  assert_true(save_directory(deep, &why));
  for (const char *const *p = (const char *const[]){"a/b/c", "a/b", "a", NULL}; *p; p++) {
    snprintf(part, sizeof part, "%s/%s", directory, *p);
    assert_int_equal(rmdir(part), 0);
  }
  fill(1, NULL, NULL);
  save(1, 1);
  assert_false(save_directory(saved, &why));
  assert_non_null(strstr(why.text, "Not a directory"));
  assert_false(save_begin("/proc/none", 1, &why));
  assert_false(save_directory("", &why));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_in_their_bounds),
      cmocka_unit_test(same_on_every_mesh),
      cmocka_unit_test(bf16_is_to_nearest),
      cmocka_unit_test(uniform_stays_below_its_limit),
      cmocka_unit_test(bf16_is_drawn),
      cmocka_unit_test(loads_on_another_mesh),
      cmocka_unit_test(bf16_is_widened),
      cmocka_unit_test(saved_metadata),
      cmocka_unit_test(misfits),
      cmocka_unit_test(old_file_stays),
      cmocka_unit_test(leftovers_are_replaced),
      cmocka_unit_test(directories),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
