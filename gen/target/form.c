/* form.c: the form of a fused kernel: vector width, sums in parts, rows and columns, and the
   scratch memory that it needs. */
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

int64_t partial_sums_of(const struct draft *k, int n)
{
  return elements(local_shape(graph->op[k->group->body[n]].out, k->rank));
}

bool ends_in_parts(const struct draft *k, int n)
{
  enum reach reach = k->stages.task[n].reach;
  return reach == OVER_COLUMN || reach == OVER_SOME;
}

struct operand sum_operand(const struct draft *k, int n)
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

/* How many floats a kernel stores in as many parts. */
static int64_t room_of_parts(const struct draft *k, int64_t parts)
{
  int64_t room = 0;
  for (int n = 0; n < k->group->nbody; n++)
    if (ends_in_parts(k, n)) room += sum_room(partial_sums_of(k, n), parts);
  return room;
}

bool is_vector(const struct draft *k, int value, const struct operand *operand)
{
  const struct value *v = &graph->value[value];
  return v->stored && elements(local_shape(value, k->rank)) &&
         stride_along(&k->loops, operand, innermost_loop(&k->loops)) == 1;
}

bool fits_vector(const struct draft *k, int value, const struct operand *operand, int width)
{
  int64_t bytes = width * type_bytes(graph->value[value].type);
  for (int n = 0; n < innermost_loop(&k->loops); n++)
    if (stride_along(&k->loops, operand, n) % width) return false;
  return alignment_of(value) % (bytes < 16 ? bytes : 16) == 0;
}

/* Calls `each` with every operand of the operations on elements that is read at its own place. */
static void each_operand(const struct draft *k, int *width,
                         void (*each)(const struct draft *, int, const struct operand *, int *))
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

/* 16 bytes of the smallest elements, but of those of one byte. */
static void find_widest(const struct draft *k, int value, const struct operand *operand, int *width)
{
  (void)k, (void)operand;
  int here = type_bytes(graph->value[value].type) == 2 ? 8 : 4;
  if (*width < here) *width = here;
}

static void narrow(const struct draft *k, int value, const struct operand *operand, int *width)
{
  while (*width > 1 && !fits_vector(k, value, operand, *width)) *width /= 2;
}

int vector_width(const struct draft *k)
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

/* How many floats a thread keeps from one stage to the next. */
static int64_t kept_elements(const struct draft *k)
{
  int64_t n = 0;
  for (int i = 0; i < k->vectors.n; i++)
    if (is_kept_in_vector(&k->vectors.list[i])) n += k->vectors.width;
  return n;
}

/* So many threads, or blocks, keep a large device busy; fewer rows are not worth a part. */
enum { ENOUGH_THREADS = 1 << 17, ENOUGH_BLOCKS = 512, MOST_PARTS = 1024, LEAST_ROWS = 8 };

static bool only_float_sums(const struct draft *k)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (is_reduce(op->kind) && !is_float_sum(op)) return false;
  }
  return true;
}

bool is_inner_reduction(const struct loops *loops)
{
  return count_of(loops, true) > 1 && kept_outside(loops) != NONE;
}

int64_t plain_parts(const struct draft *k)
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

bool find_row_sums(const struct draft *k, enum reach reach, int stage, bool *these)
{
  bool any = false;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct task *m = &k->stages.task[n];
    these[n] = m->reach == reach && (stage == NONE || m->stage == stage);
    any |= these[n];
  }
  return any;
}

static int count_columns(const struct draft *k)
{
  bool columns[MOST_IN_KERNEL];
  int n = 0;
  find_row_sums(k, OVER_COLUMN, NONE, columns);
  for (int i = 0; i < k->group->nbody; i++) n += columns[i];
  return n;
}

struct rows_form form_of(const struct draft *k)
{
  int last = innermost_loop(&k->loops);
  struct rows_form f = {.width = last != NONE && k->loops.reduced[last] ? vector_width(k) : 1,
                        .threads = WARP,
                        .row = row_elements(&k->loops),
                        .rows = count_of(&k->loops, false)};
  int64_t vectors = f.row / f.width;
  if (f.row > WARP * OF_LANE) f.threads = 2 * WARP;
  while (f.threads > WARP && f.threads < WIDEST && f.threads * OF_THREAD < f.row) f.threads *= 2;
  f.several = (vectors + f.threads - 1) / f.threads;
  f.columns = f.row && count_columns(k);
  f.unrolled = f.columns || (f.width > 1 && f.several <= MOST_UNROLLED);
  f.guarded = f.width == 1 || vectors % f.threads;
  int64_t most = f.threads > BLOCK ? BLOCKS / 2 : f.threads == BLOCK ? BLOCKS : 2 * BLOCKS;
  f.parts = f.rows < most ? f.rows : most;
  if (f.threads == WARP) f.parts = (f.parts + BLOCK / WARP - 1) / (BLOCK / WARP) * (BLOCK / WARP);
  return f;
}

/* In how many parts that leaves sums. */
static int64_t cuda_rows_parts(const struct draft *k)
{
  struct rows_form f = form_of(k);
  return f.columns ? f.parts : 0;
}

static int64_t room_of(const struct op *group, int rank)
{
  struct draft k = {.group = group, .rank = rank, .stages = *group->stages, .guard = ""};
  if (!has_rows(&k)) return 0;
  find_loops(&k);
  if (k.stages.rows != NONE) return room_of_parts(&k, cuda_rows_parts(&k));
  int64_t parts = has_reductions(group) ? plain_parts(&k) : 1;
  return parts > 1 ? room_of_parts(&k, parts) : 0;
}

int64_t parts_room(int rank)
{
  int64_t most = 0;
  for (int i = 0; i < graph->nfunction && target->thread_grids; i++) {
    const struct function *f = &graph->function[i];
    for (int n = 0; n < f->nop; n++) {
      const struct op *op = &graph->op[f->op[n]];
      int64_t room = op->kind == OP_fused ? room_of(op, rank) : 0;
      if (most < room) most = room;
    }
  }
  return most;
}

void find_sums_of_rows(const struct draft *k, int stage, bool *these)
{
  for (int n = 0; n < k->group->nbody; n++)
    these[n] = k->stages.task[n].of_row && k->stages.task[n].stage == stage;
}

bool fits_in_registers(const struct draft *k, const struct rows_form *f)
{
  int64_t sums = count_columns(k) * f->width, room = f->threads < 512      ? 96
                                                     : f->threads < WIDEST ? 64
                                                                           : 40;
  return f->unrolled && (kept_elements(k) + sums) * f->several <= room;
}
