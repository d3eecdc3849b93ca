/* tiles.c: which of its files a kernel of attention is made of, and how large its tiles are.

   On CUDA attention has two: NAME_mma.cu multiplies on the tensor cores, bfloat16 or TF32; NAME.cu
   computes in float32, and whatever the other does not take. On the CPU NAME_bf16.c is for
   bfloat16.

   The tensor cores' kernels work by strips: 16 rows of a matrix, which one warp has. The more
   strips a warp has, the less often it loads the other side of a product, until its registers are
   full: 255 floats, of which the sums take 16 COLUMNS / 32 for each strip and matrix, and the
   scores as many for theirs. The tables say what fits, by how many bytes a row has; `nvcc
   -Xptxas=-v` shows it. A block's shared memory stays below the 163 KiB that sm_80 has, and mostly
   below half of that, so that two blocks share a multiprocessor and one computes while the other
   waits. */
#include "tpgen.h"

#include <string.h>

/* Of a kernel: rows of a block and strips of a warp, how many rows of the other side are taken at a
   time, whether the left side stays in registers, and over how many blocks the columns are spread.
 */
struct tiles {
  int row_bytes; /* at most */
  int rows, strips, some;
  bool kept;
  int parts;
};

static const struct tiles forward[] = {
    {128, 128, 2, 64, true, 1},
    {256, 128, 2, 32, false, 1},
    {512, 128, 1, 64, false, 1},
    {1024, 64, 1, 32, false, 1},
};
/* The gradients of k and v: rows are keys. */
static const struct tiles of_keys[] = {
    {128, 64, 1, 64, true, 1},
    {256, 64, 1, 32, false, 1},
    {512, 64, 1, 32, false, 2},
    {1024, 32, 1, 16, false, 2},
};
static const struct tiles of_queries[] = {
    {128, 128, 2, 32, true, 1},
    {256, 64, 1, 64, true, 1},
    {512, 64, 1, 32, false, 1},
    {1024, 32, 1, 16, false, 1},
};

static int size_of(const struct op *op)
{
  return (int)type_bytes(graph->value[op->in[0]].type);
}

static int64_t whole_strips(int64_t n)
{
  return (n + 15) / 16 * 16;
}

/* What 16 bytes hold: rows begin at a multiple of that, and tensor cores take as many at least. */
static bool fits_tensor_cores(const struct op *op, int64_t depth, int64_t width)
{
  int unit = 16 / size_of(op);
  int64_t more = depth > width ? depth : width;
  return depth % unit == 0 && width % unit == 0 && whole_strips(more) * size_of(op) <= 1024 &&
         more <= 256;
}

static bool is_attention(const struct op *op)
{
  return op->kind == OP_attention || op->kind == OP_attention_back;
}

const char *attention_variant(const struct op *op)
{
  enum type type = graph->value[op->in[0]].type;
  if (!is_attention(op)) return "";
  if (!options.cuda) return type == BF16 ? "_bf16" : "";
  /* q and v, or the output's gradient and q */
  const struct shape *one = &graph->value[op->in[op->kind == OP_attention ? 0 : 1]].shape;
  const struct shape *two = &graph->value[op->in[op->kind == OP_attention ? 2 : 0]].shape;
  bool is_narrow = type == BF16 || (type == F32 && graph->tf32);
  return is_narrow && fits_tensor_cores(op, one->size[3], two->size[3]) ? "_mma" : "";
}

static const struct tiles *tiles_for(const struct tiles *table, int64_t bytes)
{
  while (table->row_bytes < bytes) table++;
  return table;
}

/* "rows", "rows_2nd": whether the hole is of that name, and of which kernel. */
static bool is_hole(const char *hole, const char *name, const char *suffix)
{
  size_t n = strlen(name);
  return !strncmp(hole, name, n) && !strcmp(hole + n, suffix);
}

const char *attention_hole(const struct op *op, const char *hole, int64_t depth, int64_t width)
{
  if (!is_attention(op)) return NULL;
  if (strcmp(attention_variant(op), "_mma") != 0) return NULL;
  bool back = op->kind == OP_attention_back,
       second = strstr(hole, "_2nd") || !strcmp(hole, "parts") || !strcmp(hole, "some_queries");
  const char *suffix = !back ? "" : second ? "_2nd" : "_3rd";
  int64_t size = size_of(op), more = depth > width ? depth : width;
  const struct tiles *t = tiles_for(!back    ? forward
                                    : second ? of_keys
                                             : of_queries,
                                    whole_strips(more) * size);
  int64_t row = (whole_strips(depth) + whole_strips(width)) * size + 32; /* of both tiles */
  int64_t wide = whole_strips(depth) * size + 16;
  int64_t shared = !back ? t->rows * wide + t->some * row : (t->rows + 2 * t->some) * row;
  if (second) shared += 4 * t->some * 4;
  if (is_hole(hole, "rows", suffix)) return text("%d", t->rows);
  if (is_hole(hole, "strips", suffix)) return text("%d", t->strips);
  if (is_hole(hole, "shared", suffix)) return text("%d", (int)shared);
  if (is_hole(hole, "kept", suffix)) return t->kept ? "true" : "false";
  if (!strcmp(hole, "some_keys") || !strcmp(hole, "some_queries")) return text("%d", t->some);
  if (!strcmp(hole, "parts")) return text("%d", t->parts);
  return NULL;
}
