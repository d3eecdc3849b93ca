/* form.c: the form of a fused kernel: its scheme, and on a device the width of its vectors, its
   threads and blocks, and the number of parts of its sums. The pass `kernel_forms` calls it. */
#include "target/target.h"

const struct op *body_op(const struct op *group, int k)
{
  return &graph->op[group->body[k]];
}

bool has_reductions(const struct op *group)
{
  for (int k = 0; k < group->nbody; k++)
    if (is_reduce(body_op(group, k)->kind)) return true;
  return false;
}

enum reduction reduction_of(const struct op *op)
{
  struct letters l;
  op_letters(op, &l);
  return l.reduction[0];
}

enum type type_reduced(const struct op *op)
{
  return graph->value[op->in[0]].type;
}

bool is_float_sum(const struct op *op)
{
  return is_reduce(op->kind) && reduction_of(op) == SUM && is_floating(type_reduced(op));
}

int64_t partial_sums_of(const struct kernel_builder *k, int n)
{
  return elements(local_shape(graph->op[k->group->body[n]].out, k->rank));
}

bool ends_in_parts(const struct kernel_builder *k, int n)
{
  enum reach reach = k->stages.task[n].reach;
  return reach == OVER_COLUMN || reach == OVER_SOME;
}

struct operand sum_operand(const struct kernel_builder *k, int n)
{
  const struct op *op = &graph->op[k->group->body[n]];
  struct letters l;
  struct operand operand;
  op_letters(op, &l);
  find_operand(op, &l, op->nin, k->rank, &operand);
  return operand;
}

int64_t sum_room(int64_t sums, int64_t parts)
{
  return (sums * parts + 3) / 4 * 4;
}

/* The floats that a kernel stores for so many parts. */
static int64_t room_of_parts(const struct kernel_builder *k, int64_t parts)
{
  int64_t room = 0;
  for (int n = 0; n < k->group->nbody; n++)
    if (ends_in_parts(k, n)) room += sum_room(partial_sums_of(k, n), parts);
  return room;
}

bool is_vector(const struct kernel_builder *k, int value, const struct operand *operand)
{
  const struct value *v = &graph->value[value];
  return v->stored && elements(local_shape(value, k->rank)) &&
         stride_along(&k->loops, operand, innermost_loop(&k->loops)) == 1;
}

bool fits_vector(const struct kernel_builder *k, int value, const struct operand *operand,
                 int width)
{
  int64_t bytes = width * type_bytes(graph->value[value].type);
  for (int n = 0; n < innermost_loop(&k->loops); n++)
    if (stride_along(&k->loops, operand, n) % width) return false;
  return alignment_of(value, k->rank) % (bytes < 16 ? bytes : 16) == 0;
}

/* Calls `each` for every operand of the operations on elements that is read at its own index. */
static void each_operand(const struct kernel_builder *k, int *width,
                         void (*each)(const struct kernel_builder *, int, const struct operand *,
                                      int *))
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    struct letters l;
    op_letters(op, &l);
    for (int i = 0; i <= op->nin; i++) {
      struct operand operand;
      bool other_place = (i < op->nin && reads_by_index(op, i)) || k->stages.task[n].of_row ||
                         (i == op->nin && is_reduce(op->kind));
      if (other_place) continue;
      find_operand(op, &l, i, k->rank, &operand);
      int value = i < op->nin ? op->in[i] : op->out;
      if (is_vector(k, value, &operand)) each(k, value, &operand, width);
    }
  }
}

/* 16 bytes of the smallest elements, except those of one byte. */
static void find_widest(const struct kernel_builder *k, int value, const struct operand *operand,
                        int *width)
{
  (void)k, (void)operand;
  int here = type_bytes(graph->value[value].type) == 2 ? 8 : 4;
  if (*width < here) *width = here;
}

static void narrow(const struct kernel_builder *k, int value, const struct operand *operand,
                   int *width)
{
  while (*width > 1 && !fits_vector(k, value, operand, *width)) *width /= 2;
}

static int vector_width(const struct kernel_builder *k)
{
  int width = 1, n = innermost_loop(&k->loops);
  if (n == NONE) return 1;
  each_operand(k, &width, find_widest);
  while (width > 1 && k->loops.size[n] % width) width /= 2;
  each_operand(k, &width, narrow);
  return width;
}

bool is_kept_in_vector(const struct vector *v)
{
  return v->until > v->from;
}

/* The floats that a thread keeps from one stage to the next. */
static int64_t kept_elements(const struct kernel_builder *k)
{
  int64_t n = 0;
  for (int i = 0; i < k->vectors.n; i++)
    if (is_kept_in_vector(&k->vectors.list[i])) n += k->vectors.width;
  return n;
}

/* So many threads, or blocks, keep a large device busy; fewer rows than LEAST_ROWS are not worth a
   part. */
enum { ENOUGH_THREADS = 1 << 17, ENOUGH_BLOCKS = 512, MOST_PARTS = 1024, LEAST_ROWS = 8 };

static bool only_float_sums(const struct kernel_builder *k)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (is_reduce(op->kind) && !is_float_sum(op)) return false;
  }
  return true;
}

static bool is_inner_reduction(const struct loops *loops)
{
  return count_of(loops, true) > 1 && kept_outside(loops) != NONE;
}

static int64_t plain_parts(const struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  int64_t kept = count_of(loops, false), reduced = count_of(loops, true), parts = 1;
  if (!only_float_sums(k) || !kept || !reduced) return 1;
  if (is_inner_reduction(loops)) {
    if (kept == 1) parts = reduced / (BLOCK * 32);
    return parts < 8 ? 1 : parts < ENOUGH_BLOCKS ? parts : ENOUGH_BLOCKS;
  }
  int64_t outermost = NONE;
  for (int n = loops->n; n-- > 0;)
    if (loops->reduced[n]) outermost = loops->size[n];
  parts = ENOUGH_THREADS / kept;
  if (parts > MOST_PARTS) parts = MOST_PARTS;
  if (parts > outermost / LEAST_ROWS) parts = outermost / LEAST_ROWS;
  return parts < 4 ? 1 : parts;
}

bool find_row_sums(const struct kernel_builder *k, enum reach reach, int stage, bool *these)
{
  bool any = false;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct task *m = &k->stages.task[n];
    these[n] = m->reach == reach && (stage == NONE || m->stage == stage);
    any |= these[n];
  }
  return any;
}

static int count_columns(const struct kernel_builder *k)
{
  bool columns[MOST_IN_KERNEL];
  int n = 0;
  find_row_sums(k, OVER_COLUMN, NONE, columns);
  for (int i = 0; i < k->group->nbody; i++) n += columns[i];
  return n;
}

/* ---------------------------------------------------------------------------------- the schemes */

/* Whether a vector spans several rows: rows have one element each, and the kernel computes per-row
   values. */
static bool is_vector_of_rows(const struct kernel_builder *k)
{
  int last = innermost_loop(&k->loops);
  if (last == NONE || k->loops.reduced[last]) return false;
  for (int n = 0; n < k->group->nbody; n++)
    if (k->stages.task[n].of_row) return true;
  return false;
}

static int64_t divided(int64_t n, int64_t by)
{
  return (n + by - 1) / by;
}

/* Rows are distributed over blocks, or over warps if a row is short. */
static void spread_rows(const struct kernel_builder *k, struct kernel_form *f)
{
  int last = innermost_loop(&k->loops);
  f->width = last != NONE && k->loops.reduced[last] ? vector_width(k) : 1;
  f->threads = WARP;
  f->row = row_elements(&k->loops);
  f->rows = count_of(&k->loops, false);
  int64_t vectors = f->row / f->width;
  if (f->row > WARP * OF_LANE) f->threads = 2 * WARP;
  while (f->threads > WARP && f->threads < WIDEST && f->threads * OF_THREAD < f->row)
    f->threads *= 2;
  f->several = divided(vectors, f->threads);
  f->columns = f->row && count_columns(k);
  f->unrolled = f->columns || (f->width > 1 && f->several <= MOST_UNROLLED);
  f->guarded = f->width == 1 || vectors % f->threads;
  int64_t most = f->threads > BLOCK ? BLOCKS / 2 : f->threads == BLOCK ? BLOCKS : 2 * BLOCKS;
  int64_t of_block = f->threads == WARP ? BLOCK / WARP : 1, groups = f->rows;
  if (f->columns) groups = f->parts = divided(f->rows < most ? f->rows : most, of_block) * of_block;
  f->blocks = divided(groups, of_block);
  if (f->columns) f->scratch = room_of_parts(k, f->parts);
}

static bool reduces_rows(const struct kernel_builder *k)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (k->stages.task[n].reach != NO_REDUCTION) return true;
  return false;
}

static enum kernel_scheme scheme_in_blocks(const struct kernel_builder *k)
{
  bool by_rows = k->stages.rows != NONE && (reduces_rows(k) || !row_elements(&k->loops));
  if (by_rows) return ROW_BY_ROW;
  if (!has_reductions(k->group)) return ELEMENT_BY_ELEMENT;
  return is_inner_reduction(&k->loops) ? RESULT_BY_RESULT : RESULTS_SIDE_BY_SIDE;
}

static enum kernel_scheme scheme_in_loops(const struct kernel_builder *k)
{
  int kept = kept_outside(&k->loops);
  if (k->stages.rows != NONE) return ROW_BY_ROW;
  if (!has_reductions(k->group)) return ELEMENT_BY_ELEMENT;
  if (kept == 0 && k->loops.n && has_threads(&k->loops)) return ONE_RESULT;
  return kept != NONE ? RESULT_BY_RESULT : RESULTS_IN_PLACE;
}

struct kernel_form form_of(const struct op *group, int rank)
{
  struct kernel_builder k = {.group = group, .rank = rank, .stages = *group->stages};
  struct kernel_form f = {.scheme = NO_KERNEL,
                          .width = 1,
                          .threads = target->thread_grids ? BLOCK : 0,
                          .block_rows = 1,
                          .parts = 1};
  if (!has_rows(&k)) return f;
  find_loops(&k);
  f.scheme = target->thread_grids ? scheme_in_blocks(&k) : scheme_in_loops(&k);
  if (!target->thread_grids) return f;
  if (f.scheme == ELEMENT_BY_ELEMENT) {
    /* Blocks of threads; each thread has a vector of the elements. */
    f.width = is_vector_of_rows(&k) ? 1 : vector_width(&k);
    f.blocks = divided(count_of(&k.loops, false) * count_of(&k.loops, true) / f.width, BLOCK);
  }
  if (f.scheme == ROW_BY_ROW) spread_rows(&k, &f);
  if (f.scheme == RESULT_BY_RESULT) {
    /* A block for each result; if there is only one result, for each part of it. */
    int64_t results = count_of(&k.loops, false);
    f.width = vector_width(&k);
    f.parts = plain_parts(&k);
    f.blocks = results == 1 ? f.parts : results;
    if (f.parts > 1) f.scratch = room_of_parts(&k, f.parts);
  }
  if (f.scheme == RESULTS_SIDE_BY_SIDE) {
    /* A thread for each vector of results; a row of blocks for each part of the sums. */
    f.parts = plain_parts(&k);
    bool along = f.parts > 1 && !k.loops.reduced[innermost_loop(&k.loops)];
    f.width = along ? vector_width(&k) : 1;
    int64_t vectors = count_of(&k.loops, false) / f.width;
    if (f.parts > 1 && vectors < BLOCK) f.threads = (int)(divided(vectors, WARP) * WARP);
    f.blocks = divided(vectors, f.threads);
    f.block_rows = f.parts;
    if (f.parts > 1) f.scratch = room_of_parts(&k, f.parts);
  }
  return f;
}

void find_sums_of_rows(const struct kernel_builder *k, int stage, bool *these)
{
  for (int n = 0; n < k->group->nbody; n++)
    these[n] = k->stages.task[n].of_row && k->stages.task[n].stage == stage;
}

bool fits_in_registers(const struct kernel_builder *k, const struct kernel_form *f)
{
  int64_t sums = count_columns(k) * f->width, room = f->threads < 512      ? 96
                                                     : f->threads < WIDEST ? 64
                                                                           : 40;
  return f->unrolled && (kept_elements(k) + sums) * f->several <= room;
}
