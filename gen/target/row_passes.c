/* row_passes.c: how one kernel runs several operations that are pointwise or reductions.

   Takes   the operations, each after those whose values it reads.
   Leaves  whether one kernel can run them and, for each, its stage.

   A kernel walks over a space, the shape of one value. In the plain scheme every operation makes,
   or reduces, elements of that space; reductions end with the kernel, which reads none of them.

   By rows: the last dimensions of the space form a row. An operation is then either one of
   elements, or one of rows: it makes one element for each row. A row's reduction is complete after
   a pass over the row; operations that read it belong to a later stage. Each stage is one pass over
   the row. Values of an earlier stage are loaded if they are stored, else computed again.
   Reductions over the rows, for each place in them (columns) or over them all, end with the
   kernel. */
#include "target/target.h"

/* ------------------------------------------------------------------------------ spaces and rows */

static bool same_cuts(const struct value *x, const struct value *y, int dims)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = x->layout.on[d], q = y->layout.on[d];
    if (p.kind == SHARD && p.dim >= dims) p = (struct placement){0};
    if ((p.kind == SHARD || q.kind == SHARD) && !same_placement(p, q)) return false;
  }
  return true;
}

static int innermost(const struct value *v)
{
  int last = v->shape.ndim - 1;
  return v->order ? (int)(v->order >> 3 * last & 7) : last;
}

/* Whether one walk goes along the contiguous dimension of both. */
static bool same_rows(const struct value *x, const struct value *y)
{
  int last = x->shape.ndim - 1;
  return x->order == y->order || (innermost(x) == last && innermost(y) == last);
}

static bool same_space(const struct value *x, const struct value *y)
{
  return same_shape(x->shape, y->shape) && same_rows(x, y) && same_cuts(x, y, MAX_DIMS);
}

/* The number of dimensions of x before those of a row, if y has one element for each row; else
   NONE. The dimensions of a row are absent from y, or of size 1. */
static int rows_in(const struct value *x, const struct value *y)
{
  int rows = 0;
  while (rows < x->shape.ndim && rows < y->shape.ndim && x->shape.size[rows] == y->shape.size[rows])
    rows++;
  for (int d = rows; d < y->shape.ndim; d++)
    if (y->shape.size[d] != 1) return NONE;
  bool keeps = y->shape.ndim == x->shape.ndim, drops = y->shape.ndim == rows;
  return (keeps || drops) && rows < x->shape.ndim && same_cuts(x, y, rows) ? rows : NONE;
}

/* The largest of the spaces. */
static int largest_space(const int *body, int n)
{
  int best = space_of(&graph->op[body[0]]);
  for (int k = 1; k < n; k++) {
    int next = space_of(&graph->op[body[k]]);
    struct shape a = graph->value[best].shape, b = graph->value[next].shape;
    int64_t more = elements(b) - elements(a);
    if (more > 0 || (more == 0 && b.ndim > a.ndim)) best = next;
  }
  return best;
}

/* The dimensions from `first` on, or before it. */
static unsigned dims_from(int first, int ndim)
{
  return (1u << ndim) - (1u << first);
}

static bool set_rows(struct stages *s, int rows)
{
  bool fits = s->rows == NONE || s->rows == rows;
  s->rows = rows;
  return fits;
}

/* Finds the operations of rows, and the number of dimensions before those of a row. */
static bool find_rows(const int *body, struct stages *s)
{
  const struct value *space = &graph->value[s->space];
  for (int k = 0; k < s->n; k++) {
    const struct op *op = &graph->op[body[k]];
    const struct value *here = &graph->value[space_of(op)];
    if (same_space(space, here)) continue;
    int rows = rows_in(space, here);
    if (rows == NONE || !set_rows(s, rows)) return false;
    s->task[k].of_row = true;
  }
  int ndim = space->shape.ndim;
  for (int k = 0; k < s->n; k++) {
    const struct op *op = &graph->op[body[k]];
    if (!is_reduce(op->kind) || s->task[k].of_row) continue;
    int first = op->dims ? __builtin_ctz(op->dims) : 0;
    if (first && op->dims == dims_from(first, ndim) && !set_rows(s, first)) return false;
  }
  return true;
}

/* ----------------------------------------------------------------------------------- reductions */

/* The elements of a whole row. */
static int64_t row_size(const struct stages *s)
{
  const struct shape *shape = &graph->value[s->space].shape;
  int64_t n = 1;
  for (int d = s->rows; d < shape->ndim; d++) n *= shape->size[d];
  return n;
}

/* Whether a kernel by rows may reduce columns: each thread keeps sums of its own for all of them.
 */
static bool takes_columns(const struct stages *s, const struct op *op)
{
  enum { MOST = 8192 };
  bool floats = graph->value[op->in[0]].type == F32 && graph->value[op->out].type == F32;
  struct letters l;
  op_letters(op, &l);
  bool fits = !target->thread_grids || l.reduction[0] == SUM; /* what partial_sums.c can sum */
  return floats && fits && row_size(s) <= MOST;
}

static bool reduces_columns(const struct op *op, int ndim)
{
  int rows = op->dims ? 32 - __builtin_clz(op->dims) : 0;
  return rows && rows < ndim && op->dims == dims_from(0, rows);
}

/* If every operation is of elements and all reductions are of columns, they go by rows too. */
static void find_columns(const int *body, struct stages *s)
{
  if (target->thread_grids) return; /* rows that share nothing are tiles (build.c) */
  int ndim = graph->value[s->space].shape.ndim;
  for (int k = 0; k < s->n && s->rows == NONE; k++) {
    const struct op *op = &graph->op[body[k]];
    if (!is_reduce(op->kind) || !reduces_columns(op, ndim)) continue;
    s->rows = 32 - __builtin_clz(op->dims);
    if (!takes_columns(s, op)) s->rows = NONE;
    return;
  }
}

static enum reach reach_by_rows(const struct stages *s, int k, const struct op *op)
{
  int ndim = graph->value[s->space].shape.ndim;
  unsigned all = dims_from(0, ndim), of_row = dims_from(s->rows, ndim);
  bool no_rows = s->rows == 0; /* only one, which threads cannot share */
  if (no_rows || (target->thread_grids && s->task[k].of_row)) return UNFIT;
  if (s->task[k].of_row) {
    unsigned rest = dims_from(0, s->rows) & ~op->dims;
    return rest ? UNFIT : OVER_ROWS;
  }
  if (op->dims == of_row) return OVER_ROW;
  return op->dims == (all & ~of_row) && takes_columns(s, op) ? OVER_COLUMN : UNFIT;
}

static bool find_reach(const int *body, struct stages *s)
{
  const struct op *first = NULL;
  for (int k = 0; k < s->n; k++) {
    const struct op *op = &graph->op[body[k]];
    if (!is_reduce(op->kind)) continue;
    if (!first) first = op;
    s->task[k].reach = s->rows == NONE ? OVER_SOME : reach_by_rows(s, k, op);
    if (s->task[k].reach == UNFIT) return false;
    if (s->rows == NONE && (op->dims != first->dims || op->keepdim != first->keepdim)) return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------- who reads what */

/* Whether an operation reads input i, one number for each row, only for the current row. */
static bool reads_its_row(const struct op *op, int i, int rows)
{
  struct letters l;
  op_letters(op, &l);
  if (reads_by_index(op, i)) return false;
  const struct axis *space = is_reduce(op->kind) ? l.in[0] : l.out[0];
  int ndim = graph->value[space_of(op)].shape.ndim;
  for (int d = 0; d < l.ndim_in[i]; d++) {
    const struct axis *axis = &l.in[i][d];
    if (!axis->n) continue;
    if (d >= rows || d >= ndim || space[d].n != axis->n || space[d].letter[0] != axis->letter[0])
      return false;
  }
  return true;
}

bool stays_in_row(const struct op *op, int i, int rows)
{
  struct letters l;
  op_letters(op, &l);
  const struct axis *space = is_reduce(op->kind) ? l.in[0] : l.out[0];
  if (l.ndim_in[i] < rows || graph->value[space_of(op)].shape.ndim < rows) return false;
  if (reads_by_index(op, i) && indexed_dimension(op, i) < rows) return false;
  for (int d = 0; d < rows; d++)
    if (l.in[i][d].n != space[d].n || (space[d].n && l.in[i][d].letter[0] != space[d].letter[0]))
      return false;
  return true;
}

/* Whether member k may read the output of member m in the same kernel. */
static bool may_read(const struct stages *s, int k, const struct op *op, int i, int m)
{
  const struct task *maker = &s->task[m];
  if (maker->reach != NO_REDUCTION && maker->reach != OVER_ROW) return false;
  if (maker->of_row || maker->reach == OVER_ROW) return reads_its_row(op, i, s->rows);
  return !s->task[k].of_row && !reads_elsewhere(op, i);
}

static bool find_stage(const int *body, struct stages *s, int k)
{
  const struct op *op = &graph->op[body[k]];
  struct task *task = &s->task[k];
  for (int i = 0; i < op->nin; i++) {
    for (int m = 0; m < k; m++) {
      if (graph->op[body[m]].out != op->in[i]) continue;
      if (!may_read(s, k, op, i, m)) return false;
      int stage = s->task[m].stage + (s->task[m].reach == OVER_ROW);
      if (task->stage < stage) task->stage = stage;
    }
  }
  if (s->count <= task->stage) s->count = task->stage + 1;
  return true;
}

bool find_stages(const int *body, int n, struct stages *s)
{
  if (n > MOST_IN_KERNEL) return false;
  *s = (struct stages){.n = n, .space = largest_space(body, n), .rows = NONE, .count = 1};
  if (!find_rows(body, s)) return false;
  find_columns(body, s);
  if (!find_reach(body, s)) return false;
  for (int k = 0; k < n; k++)
    if (!find_stage(body, s, k)) return false;
  return true;
}

/* --------------------------------------------------------------------------- when they are made */

static bool is_stored(const struct op *op)
{
  return graph->value[op->out].stored;
}

/* Whether the pass over the row in this stage must compute this operation for its own sake. */
static bool is_due(const int *body, const struct stages *s, int k, int stage)
{
  const struct task *m = &s->task[k];
  return !m->of_row && m->stage == stage &&
         (m->reach != NO_REDUCTION || is_stored(&graph->op[body[k]]));
}

bool made_in_stage(const int *body, const struct stages *s, int stage, bool *made)
{
  bool any = false;
  for (int k = s->n - 1; k >= 0; k--) {
    const struct op *op = &graph->op[body[k]];
    made[k] = is_due(body, s, k, stage);
    any |= made[k];
    bool can = !s->task[k].of_row && s->task[k].reach == NO_REDUCTION && !is_stored(op);
    for (int r = k + 1; r < s->n && can && !made[k]; r++)
      for (int i = 0; i < graph->op[body[r]].nin && made[r]; i++)
        made[k] |= graph->op[body[r]].in[i] == op->out;
  }
  return any;
}

int last_stage(const int *body, const struct stages *s, int k)
{
  bool made[MOST_IN_KERNEL];
  int last = s->task[k].stage;
  if (s->task[k].of_row || s->task[k].reach != NO_REDUCTION) return last;
  for (int stage = last + 1; stage < s->count; stage++) {
    made_in_stage(body, s, stage, made);
    if (made[k]) last = stage;
  }
  return last;
}
