/* attention_tiles.c: the file that a kernel of attention is made from, and the sizes of its tiles.

   On CUDA attention has two files: NAME_mma.cu multiplies on the tensor cores, bfloat16 or TF32;
   NAME.cu computes in float32, and covers the cases that the other cannot. On the CPU NAME_bf16.c
   is for bfloat16.

   The tensor cores' kernels work by strips: 16 rows of a matrix, owned by one warp. The more strips
   a warp has, the less often it loads the other side of a product, until its registers are full:
   255 floats. The sums take 16 COLUMNS / 32 of them for each strip and matrix, and the scores as
   many for theirs. The tables give the largest that fit, by the bytes of a row; `nvcc -Xptxas=-v`
   shows it. A block's shared memory stays below the 163 KiB of sm_80, and mostly below half of
   that, so that two blocks share a multiprocessor and one computes while the other waits. */
#include "target/target.h"

#include <string.h>

/* The tiles of a kernel: rows of a block, strips of a warp, rows of the other side that are loaded
   at a time, whether the left side stays in registers, and the number of blocks that share the
   columns. */
struct tiles {
  int row_bytes; /* the largest size */
  int rows, strips, some;
  bool kept;
  int parts;
};

enum { MOST_ROW = 512 };
static const struct tiles forward[] = {
    {128, 128, 2, 64, true, 1},
    {256, 128, 2, 32, false, 1},
    {512, 128, 1, 64, false, 1},
};
/* The gradients of k and v: rows are keys. */
static const struct tiles of_keys[] = {
    {128, 128, 2, 32, false, 1},
    {256, 64, 1, 32, false, 1},
    {512, 64, 1, 16, false, 2},
};
static const struct tiles of_queries[] = {
    {128, 128, 2, 32, true, 1},
    {256, 64, 1, 32, true, 1},
    {512, 64, 1, 16, false, 1},
};

static int64_t whole_strips(int64_t n)
{
  return (n + 15) / 16 * 16;
}

/* Rows are copied in chunks of 16 bytes, which begin at multiples of 16. */
static bool fits_tensor_cores(const struct op *op, int rank, int64_t depth, int64_t width)
{
  int64_t size = type_bytes(graph->value[op->in[0]].type), unit = 16 / size;
  int64_t more = depth > width ? depth : width;
  int tiled = op->kind == OP_attention ? 3 : 6; /* what follows is read element by element */
  for (int i = 0; i < tiled; i++)
    if (alignment_of(op->in[i], rank) < 16) return false;
  for (int k = 0; k < op->nout; k++)
    if (alignment_of(op->out + k, rank) < 16) return false;
  return depth % unit == 0 && width % unit == 0 && whole_strips(more) * size <= MOST_ROW;
}

const char *attention_variant(const struct op *op, int rank)
{
  if (op->kind == OP_cached_attention) /* one new token of each sequence has a file of its own */
    return !target->thread_grids && graph->value[op->in[0]].shape.size[3] == 1 ? "_one" : "";
  if (!is_attention(op) || op->kind == OP_attention_back_bias) return "";
  bool back = op->kind == OP_attention_back;
  enum type type = graph->value[op->in[0]].type;
  if (!target->tensor_cores) return type == BF16 && back ? "_bf16" : "";
  int64_t depth = graph->value[op->in[back ? 1 : 0]].shape.size[3]; /* of q */
  int64_t width = graph->value[op->in[back ? 0 : 2]].shape.size[3]; /* of the output or of v */
  bool is_narrow = type == BF16 || (type == F32 && plan_options->tf32);
  return is_narrow && fits_tensor_cores(op, rank, depth, width) ? "_mma" : "";
}

/* The kernel with this hole: the forward one, "_2nd" for the keys' gradients, "_3rd". */
static const struct tiles *table_of(bool back, const char *hole)
{
  static const char *const keys[] = {"rows_2nd", "strips_2nd",   "shared_2nd",
                                     "kept_2nd", "some_queries", "parts"};
  if (!back) return forward;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(hole, keys[i])) return of_keys;
  return of_queries;
}

/* The shared memory of a block: its rows, one stage of the other side or two, and two stages of the
   queries' logarithms and means. */
static int64_t shared_bytes(const struct tiles *table, const struct tiles *t, int64_t size,
                            int64_t depth, int64_t width)
{
  int64_t one = whole_strips(depth) * size + 16, both = one + whole_strips(width) * size + 16;
  if (table == forward) return t->rows * one + t->some * both;
  int64_t numbers = table == of_keys ? 2 * t->some * 2 * type_bytes(F32) : 0;
  return (t->rows + 2 * t->some) * both + numbers;
}

/* "rows", "rows_2nd". */
static bool is_hole(const char *hole, const char *name)
{
  size_t n = strlen(name);
  return !strncmp(hole, name, n) && (!hole[n] || hole[n] == '_');
}

const char *attention_tile_hole(bool back, const char *hole, int64_t size, int64_t depth,
                                int64_t width)
{
  const int64_t more = depth > width ? depth : width;
  const struct tiles *table = table_of(back, hole), *t = table;
  while (t->row_bytes < whole_strips(more) * size) t++;
  if (is_hole(hole, "rows")) return text("%d", t->rows);
  if (is_hole(hole, "strips")) return text("%d", t->strips);
  if (is_hole(hole, "some")) return text("%d", t->some);
  if (is_hole(hole, "kept")) return t->kept ? "true" : "false";
  if (is_hole(hole, "parts")) return text("%d", t->parts);
  if (!is_hole(hole, "shared")) return NULL;
  return text("%d", (int)shared_bytes(table, t, size, depth, width));
}

const char *attention_hole(const struct op *op, int rank, const char *hole, int64_t depth,
                           int64_t width)
{
  if (strcmp(attention_variant(op, rank), "_mma") != 0) return NULL;
  const int64_t size = type_bytes(graph->value[op->in[0]].type);
  return attention_tile_hole(op->kind != OP_attention, hole, size, depth, width);
}
