// SPDX-License-Identifier: MIT
#include "tensors/stored_blocks.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/elements.h"
#include "base/names.h"
#include "base/program.h"
#include "base/target.h"

static const char NESTED_NAME[] = "_nested";
enum { VALUES = 16, SIZES = 256 };

const struct member *blocks_nested(const struct members *members, const struct member *m)
{
  char name[1024];
  if (program->tensors[m->row].type != NF4_BLOCKS) return NULL;
  if ((size_t)snprintf(name, sizeof name, "%s%s", m->name, NESTED_NAME) >= sizeof name) return NULL;
  return table_find(members, name);
}

const struct member *blocks_of_nested(const struct members *members, const struct member *nested)
{
  char name[1024];
  const size_t length = strlen(nested->name), end = sizeof NESTED_NAME - 1;
  if (program->tensors[nested->row].init.how != NESTED || length >= sizeof name) return NULL;
  memcpy(name, nested->name, length - end);
  name[length - end] = 0;
  return table_find(members, name);
}

bool blocks_tables(const struct members *members, const struct member *m, float **nested,
                   struct failure *why)
{
  const struct member *tables = blocks_nested(members, m);
  *nested = NULL;
  if (!tables) return true;
  const size_t count = (size_t)program->tensors[tables->row].of[0];
  *nested = malloc(count * sizeof **nested);
  if (!*nested) return failed(why, "out of memory for the tables of %s", m->name);
  target_get(*nested, table_memory(tables), count * sizeof **nested);
  return true;
}

// ---- NF4 ---------------------------------------------------------------------------------------

// The values of QLoRA's paper, as bitsandbytes has them: of 16 parts of the normal distribution.
static const float values[VALUES] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// The sizes of 8 bits, above 0: bitsandbytes' dynamic map. Below 0 are the same, and 1 is the
// largest.
static const float sizes_above_0[127] = {
    5.5000004e-7f, 3.2500002e-6f, 7.75e-6f,      2.1249998e-5f, 4.375e-5f,     6.625e-5f,
    8.875e-5f,     1.5625001e-4f, 2.6875004e-4f, 3.8125002e-4f, 4.9375003e-4f, 6.062501e-4f,
    7.1875006e-4f, 8.3125e-4f,    9.437501e-4f,  1.2812499e-3f, 1.84375e-3f,   2.40625e-3f,
    2.96875e-3f,   3.5312497e-3f, 4.09375e-3f,   4.6562497e-3f, 5.2187503e-3f, 5.78125e-3f,
    6.34375e-3f,   6.90625e-3f,   7.46875e-3f,   8.03125e-3f,   8.59375e-3f,   9.156249e-3f,
    9.71875e-3f,   1.140625e-2f,  1.421875e-2f,  1.703125e-2f,  1.9843752e-2f, 2.265625e-2f,
    2.546875e-2f,  2.8281251e-2f, 3.109375e-2f,  3.390625e-2f,  3.6718752e-2f, 3.953125e-2f,
    4.2343747e-2f, 4.515625e-2f,  4.796875e-2f,  5.078125e-2f,  5.359375e-2f,  5.640625e-2f,
    5.9218753e-2f, 6.203125e-2f,  6.484375e-2f,  6.7656256e-2f, 7.0468746e-2f, 7.328125e-2f,
    7.609375e-2f,  7.890625e-2f,  8.171876e-2f,  8.453125e-2f,  8.734375e-2f,  9.015625e-2f,
    9.2968754e-2f, 9.578126e-2f,  9.859375e-2f,  0.107031256f,  0.12109375f,   0.13515624f,
    0.14921875f,   0.16328125f,   0.17734376f,   0.19140625f,   0.20546874f,   0.21953125f,
    0.23359375f,   0.24765624f,   0.26171875f,   0.27578127f,   0.28984374f,   0.30390626f,
    0.31796873f,   0.33203125f,   0.34609374f,   0.36015624f,   0.37421876f,   0.38828123f,
    0.40234375f,   0.41640624f,   0.43046874f,   0.44453126f,   0.45859373f,   0.47265625f,
    0.4867187f,    0.50078124f,   0.5148437f,    0.5289062f,    0.54296875f,   0.5570313f,
    0.5710938f,    0.58515626f,   0.5992187f,    0.61328125f,   0.6273438f,    0.6414063f,
    0.65546876f,   0.6695312f,    0.68359375f,   0.6976563f,    0.7117188f,    0.72578126f,
    0.7398437f,    0.75390625f,   0.7679688f,    0.78203124f,   0.79609376f,   0.8101562f,
    0.82421875f,   0.8382813f,    0.85234374f,   0.86640626f,   0.8804687f,    0.89453125f,
    0.9085938f,    0.92265624f,   0.93671876f,   0.9507812f,    0.96484375f,   0.9789063f,
    0.99296874f,
};

static float size_code(int i)
{
  if (i == SIZES - 1) return 1;
  const int away = i - 127;
  return away == 0 ? 0 : away > 0 ? sizes_above_0[away - 1] : -sizes_above_0[-away - 1];
}

static int nearest(const float *ascending, int count, float x)
{
  int low = 0, high = count - 1;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (ascending[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return x > (ascending[low] + ascending[high]) / 2 ? high : low;
}

void nf4_sizes(const float *numbers, size_t count, float *sizes)
{
  for (size_t i = 0; i < count / NF4_NUMBERS; i++) {
    float most = 0;
    for (int c = 0; c < NF4_NUMBERS; c++)
      most = larger(fabsf(numbers[i * NF4_NUMBERS + (size_t)c]), most);
    sizes[i] = most;
  }
}

void nf4_make_tables(float *sizes, size_t blocks, size_t begin, size_t groups, float *nested)
{
  double sum = 0;
  for (size_t i = 0; i < blocks; i++) sum += sizes[i];
  const float offset = (float)(sum / (double)blocks);
  nested[NESTED_OFFSET] = offset;
  nested[NESTED_SHIFT] = (float)(begin % NF4_GROUP);
  memcpy(nested + NESTED_VALUES, values, sizeof values);
  for (int i = 0; i < SIZES; i++) nested[NESTED_SIZES + i] = size_code(i);
  for (size_t k = 0; k < groups; k++) {
    const size_t first = (begin / NF4_GROUP + k) * NF4_GROUP;
    float most = 0;
    for (size_t i = first; i < first + NF4_GROUP && i < blocks; i++)
      most = larger(fabsf(sizes[i] - offset), most);
    nested[NESTED_GROUPS + k] = most;
  }
}

static void pack_nf4(struct nf4_block *block, const float *nested, size_t at, const float *numbers)
{
  float size;
  nf4_sizes(numbers, NF4_NUMBERS, &size);
  const float per = size > 0 ? 1 / size : 0;
  const size_t group = (at + (size_t)nested[NESTED_SHIFT]) / NF4_GROUP;
  const float most = nested[NESTED_GROUPS + group], rest = size - nested[NESTED_OFFSET];
  block->size = (uint8_t)nearest(nested + NESTED_SIZES, SIZES, most > 0 ? rest / most : 0);
  for (int c = 0; c < NF4_NUMBERS; c += 2) {
    const int first = nearest(values, VALUES, numbers[c] * per);
    const int second = nearest(values, VALUES, numbers[c + 1] * per);
    block->two[c / 2] = (uint8_t)(first << 4 | second);
  }
}

// ---- in place ----------------------------------------------------------------------------------

size_t blocks_bytes(enum type type, size_t numbers)
{
  if (type == INT8_BLOCKS) return numbers / BLOCK_NUMBERS * sizeof(struct weight_block);
  if (type == NF4_BLOCKS) return numbers / NF4_NUMBERS * sizeof(struct nf4_block);
  return numbers * table_type(type).bytes;
}

// The number of the block, in the whole tensor, with the shard's own number `from`.
static size_t block_at(const struct slice *slice, size_t from)
{
  return slice_run(slice, from, NF4_NUMBERS).first / NF4_NUMBERS;
}

size_t blocks_pack(const struct member *m, size_t from, size_t count, const float *nested,
                   void *numbers)
{
  const enum type type = program->tensors[m->row].type;
  const float *x = numbers;
  char *to = numbers; // is never ahead of x
  struct numbers_slice whole;
  table_numbers(m->row, OWN_NAME, &whole);
  for (size_t i = 0; type == BF16 && i < count; i++, to += sizeof(bf16)) {
    const bf16 narrow = float_to_bf16(x[i]);
    memcpy(to, &narrow, sizeof narrow);
  }
  for (size_t i = 0; type == INT8_BLOCKS && i < count; i += BLOCK_NUMBERS) {
    struct weight_block block;
    weight_block_pack(&block, x + i);
    memcpy(to, &block, sizeof block);
    to += sizeof block;
  }
  for (size_t i = 0; type == NF4_BLOCKS && i < count; i += NF4_NUMBERS) {
    struct nf4_block block;
    pack_nf4(&block, nested, block_at(&whole.slice, from + i), x + i);
    memcpy(to, &block, sizeof block);
    to += sizeof block;
  }
  return (size_t)(to - (char *)numbers);
}

void blocks_unpack(const struct member *m, size_t from, size_t count, const float *nested,
                   const void *stored, float *numbers)
{
  const enum type type = program->tensors[m->row].type;
  struct numbers_slice whole;
  table_numbers(m->row, OWN_NAME, &whole);
  for (size_t i = 0; type == BF16 && i < count; i++)
    numbers[i] = bf16_to_float(((const bf16 *)stored)[i]);
  for (size_t i = 0; type == INT8_BLOCKS && i < count; i++) {
    const struct weight_block *block = (const struct weight_block *)stored + i / BLOCK_NUMBERS;
    numbers[i] = bf16_to_float(block->scale) * (float)block->q[i % BLOCK_NUMBERS];
  }
  for (size_t i = 0; type == NF4_BLOCKS && i < count; i += NF4_NUMBERS) {
    const struct nf4_block *block = (const struct nf4_block *)stored + i / NF4_NUMBERS;
    const float size = nf4_size(block, nested, (long)block_at(&whole.slice, from + i));
    for (int c = 0; c < NF4_NUMBERS; c++)
      numbers[i + (size_t)c] = nf4_number(block, nested, size, c);
  }
}
