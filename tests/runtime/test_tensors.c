// Filling a program's tensors: by Philox, from checkpoints and from files of other programs.
#include "row_of_ranks.h"
// As it is, for what it keeps to itself.
#include "../../runtime/tensors/tensors.c"

// ---- filling -----------------------------------------------------------------------------------

static void values_are_in_their_bounds(void **state)
{
  (void)state;
  fill(1, NULL);
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
  char one[2 * MEMORY], many[2 * MEMORY];
  fill(1, NULL);
  save(1, 3);
  size_t bytes = read_file(saved, one, sizeof one);
  for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
    fill(ranks, NULL);
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
  float x = draw_below(F32, limit * (1 - 1e-12), limit);
  assert_true((double)x < limit);
  assert_true((double)nextafterf(x, 1) >= limit);
  // Where rounding to bfloat16 would come to it: the one before.
  static const float limits[] = {1, 0.5f, 100, -1, -0.25f, 0x1p-130f};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    x = draw_below(BF16, (double)nextafterf(limits[i], -INFINITY), (double)limits[i]);
    uint16_t bits = float_to_bf16(x);
    assert_true(x < limits[i] && bf16_to_float(bits) >= x && bf16_to_float(bits) <= x);
    uint16_t next = (uint16_t)(limits[i] > 0 ? bits + 1 : bits - 1);
    assert_true(bf16_to_float(next) >= limits[i]);
  }
  assert_true(draw_below(BF16, -1e-45, 0) < 0);
}

// Drawn as floats are, and rounded.
static void bf16_is_drawn(void **state)
{
  (void)state;
  float drawn[15];
  fill(1, NULL);
  memcpy(drawn, memories[0] + tensors[WEIGHT].offset, sizeof drawn);
  tensors[WEIGHT].type = BF16;
  fill(1, NULL);
  tensors[WEIGHT].type = F32;
  const uint16_t *rounded = (const uint16_t *)(memories[0] + tensors[WEIGHT].offset);
  for (int i = 0; i < 15; i++) assert_int_equal(rounded[i], float_to_bf16(drawn[i]));
}

// Each of a stack is drawn by its own whole name, as a tensor alone would be.
static void stacks_are_drawn_by_name(void **state)
{
  (void)state;
  float drawn[STACK][12], alone[12];
  fill(1, NULL);
  for (int k = 0; k < STACK; k++)
    memcpy(drawn[k], memories[0] + tensors[LAYERS].offset + 48 * k, sizeof drawn[k]);
  const struct tensor stack = tensors[LAYERS];
  tensors[LAYERS].count = 1;
  tensors[LAYERS].name = (struct file_name){"layers.11.w", NULL};
  fill(1, NULL);
  memcpy(alone, memories[0] + stack.offset, sizeof alone);
  tensors[LAYERS] = stack;
  assert_memory_equal(alone, drawn[11], sizeof alone);
  assert_memory_not_equal(drawn[1], drawn[11], sizeof alone);
}

// ---- files -------------------------------------------------------------------------------------

// Element i of the whole tensor, of what all ranks have.
static float element(int row, int k, int ranks, long i)
{
  for (int id = 0; id < ranks; id++) {
    become(id, ranks);
    const struct tensor *t = &tensors[row];
    long columns = t->ndim == 2 ? t->of[1] : 1, at[2] = {i / columns, i % columns};
    bool here = true;
    for (int d = 0; d < t->ndim; d++) {
      at[d] -= own[row].first[d];
      here = here && at[d] >= 0 && at[d] < t->here[d];
    }
    if (here)
      return float_at(
          id, t->offset + (size_t)k * t->stride)[at[0] * (t->ndim == 2 ? t->here[1] : 1) + at[1]];
  }
  fail_msg("no rank has it");
  return 0;
}

// A file of one tensor of 16 bits, [2, 7].
static void write_narrow(const char *dtype, const uint16_t values[14])
{
  char header[200];
  int length =
      snprintf(header, sizeof header,
               "{\"normed\":{\"dtype\":\"%s\",\"shape\":[2,7],\"data_offsets\":[0,28]}}", dtype);
  FILE *f = fopen(saved, "wb");
  assert_non_null(f);
  for (int i = 0; i < 8; i++) fputc(i < 2 ? length >> 8 * i & 0xff : 0, f);
  fwrite(header, 1, (size_t)length, f);
  fwrite(values, 2, 14, f);
  assert_int_equal(fclose(f), 0);
}

// What is of 16 bits in a file becomes the same numbers as floats, on every mesh.
static void narrow_floats_are_widened(void **state)
{
  (void)state;
  static const uint16_t half[14] = {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0x83ff, 0x8000,
                                    0x7c00, 0xfc00, 0x3555, 0x0000, 0x7e00, 0xb800, 0x5640};
  static const float from_half[14] = {
      1,        -2,        65504,       0x1p-14f, 0x1p-24f, -0x1.ff8p-15f, 0,
      INFINITY, -INFINITY, 0x1.554p-2f, 0,        NAN,      -0.5f,         100};
  const struct tensor kept[TENSORS] = {tensors[NORMED]};
  const int rows[] = {WEIGHT, BIAS, LAYERS};
  tensors[NORMED].type = F32;
  for (size_t i = 0; i < 3; i++) tensors[rows[i]].role = OUTPUT;
  for (int pass = 0; pass < 2; pass++) {
    write_narrow(pass ? "F16" : "BF16", half);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
      fill_from(ranks, &(struct origins){.weights = saved});
      for (long i = 0; i < 14; i++) {
        float expected = pass ? from_half[i] : bf16_to_float(half[i]);
        float got = element(NORMED, 0, ranks, i);
        if (isnan(expected))
          assert_true(isnan(got));
        else
          assert_true(got >= expected && got <= expected);
      }
    }
  }
  for (size_t i = 0; i < 3; i++) tensors[rows[i]].role = PARAMETER;
  tensors[NORMED] = kept[0];
  assert_int_equal(unlink(saved), 0);
}

// Others' names are as good as the program's own, and an export has them.
static void aliases_are_known(void **state)
{
  (void)state;
  float before[STACK][12];
  struct safetensors file;
  struct failure why = {""};
  fill(2, NULL);
  for (int k = 0; k < STACK; k++)
    for (long i = 0; i < 12; i++) before[k][i] = element(LAYERS, k, 2, i);
  save_as(2, &(struct saving){directory, EXPORT, 1, 0, TOKEN_HERE, &folder, 0});
  assert_true(safetensors_open(&file, saved, &why));
  assert_int_equal(file.count, 3 + STACK);
  assert_non_null(safetensors_find(&file, "model.h.11.weight"));
  assert_non_null(safetensors_find(&file, "w.weight"));
  assert_non_null(safetensors_find(&file, "bias"));
  assert_null(safetensors_find(&file, "layers.11.w"));
  assert_null(safetensors_metadata(&file, "step"));
  safetensors_close(&file);
  for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
    assert_int_equal(fill_from(ranks, &(struct origins){.weights = directory}), 0);
    for (int k = 0; k < STACK; k++)
      for (long i = 0; i < 12; i++) {
        float got = element(LAYERS, k, ranks, i);
        assert_memory_equal(&got, &before[k][i], sizeof got);
      }
  }
}

static void refused(const struct origins *from, const char *says)
{
  struct progress at;
  struct failure why = {""};
  become(0, 2);
  if (tensors_fill(from, &at, &why)) fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
}

static void not_loaded(const char *says)
{
  refused(&(struct origins){.load = saved}, says);
}

static void misfits(void **state)
{
  (void)state;
  fill(2, NULL);
  save(2, 1);
  refused(&(struct origins){.load = "/nonexistent"}, "/nonexistent: cannot open");
  refused(&(struct origins){.data = saved}, "it has no tokens and 1 more, which the program needs");

  tensors[WEIGHT].of[0] = 6;
  not_loaded("weight is F32 [5, 3] in the file, but F32 [6, 3] in the program");
  tensors[WEIGHT].of[0] = 5;
  tensors[BIAS].ndim = 0;
  not_loaded("bias is F32 [3] in the file, but F32 [] in the program");
  tensors[BIAS].ndim = 1;
  tensors[BIAS].type = I32;
  not_loaded("bias is F32 [3] in the file, but I32 [3] in the program");
  tensors[BIAS].type = F32;
  tensors[WEIGHT].type = BOOL;
  not_loaded("weight is F32 [5, 3] in the file, but BOOL [5, 3] in the program");
  tensors[WEIGHT].type = F32;
  tensors[LAYERS].of[1] = 4;
  not_loaded("layers.0.w is F32 [4, 3] in the file, but F32 [4, 4] in the program");
  tensors[LAYERS].of[1] = 3;

  tensors[BIAS].name.name = "offset";
  not_loaded("it holds bias, which the program does not know");
  tensors[BIAS].name.name = "bias";
  tensors[IDS].role = PARAMETER;
  not_loaded("it has no tokens, which the program needs");
  tensors[IDS].role = BATCH;
  tensors[RESULT].role = STATE;
  not_loaded("it has no result, which the program needs");
  tensors[RESULT].role = OUTPUT;
  tensors[LAYERS].count = 10;
  not_loaded("it holds layers.10.w, which the program does not know");
  tensors[LAYERS].count = STACK;
  assert_int_equal(fill(2, saved), 1);

  tensors[LAYERS].count = STACK + 3;
  refused(&(struct origins){.weights = saved},
          "it has no layers.12.w (model.h.12.weight) and 2 more, which the program needs");
  tensors[LAYERS].count = STACK;
  save_as(2, &(struct saving){directory, EXPORT, 1, 0, TOKEN_HERE, &folder, 0});
  not_loaded("it has no optim.exp_avg.weight and 12 more, which the program needs");
  for (int row = 0; row < TENSORS; row++)
    if (tensors[row].role == STATE) tensors[row].role = OUTPUT;
  not_loaded("no checkpoint: it does not say which step");
  tensors[MOMENT].role = tensors[MOMENTS].role = STATE;
}

// The names of two tensors must not become one.
static void both_names(void **state)
{
  (void)state;
  struct failure why = {""};
  tensors[BIAS].name.name = "w.weight";
  become(0, 1);
  assert_null(save_plan(&(struct saving){directory, EXPORT, 1, 0, TOKEN_HERE, NULL, 0}, &why));
  assert_non_null(strstr(why.text, "two tensors of the file would have one name"));
  fill(1, NULL);
  save(1, 1);
  tensors[BIAS].name.name = "bias";
  refused(&(struct origins){.weights = saved}, "it holds both weight and w.weight");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_in_their_bounds),
      cmocka_unit_test(same_on_every_mesh),
      cmocka_unit_test(bf16_is_to_nearest),
      cmocka_unit_test(uniform_stays_below_its_limit),
      cmocka_unit_test(bf16_is_drawn),
      cmocka_unit_test(stacks_are_drawn_by_name),
      cmocka_unit_test(narrow_floats_are_widened),
      cmocka_unit_test(aliases_are_known),
      cmocka_unit_test(misfits),
      cmocka_unit_test(both_names),
  };
  return cmocka_run_group_tests(tests, make_paths, remove_directory);
}
