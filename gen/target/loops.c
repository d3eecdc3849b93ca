/* loops.c: the loops over the elements of a kernel: their sizes and order, and the operands'
   strides along them. */
#include "target/target.h"

#include <ctype.h>
#include <string.h>

/* Rows may have no elements, but the values that are reduced over them are still read. */
bool has_rows(const struct kernel_builder *k)
{
  struct shape here = local_shape(k->stages.space, k->rank);
  for (int d = 0; d < here.ndim; d++)
    if (!here.size[d] && (k->stages.rows == NONE || d < k->stages.rows)) return false;
  return true;
}

int kept_outside(const struct loops *loops)
{
  int n = 0;
  while (n < loops->n && !loops->reduced[n]) n++;
  for (int i = n; i < loops->n; i++)
    if (!loops->reduced[i]) return NONE;
  return n;
}

int64_t count_of(const struct loops *loops, bool reduced)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++)
    if (loops->reduced[i] == reduced) n *= loops->size[i];
  return n;
}

int64_t worth_threads = 1 << 14;

bool has_threads(const struct loops *loops)
{
  return count_of(loops, false) * count_of(loops, true) >= worth_threads;
}

const char loop_variable[][2] = {"i", "j", "k", "l", "p", "q", "r", "s"};

static int loops_dimension_with(const struct op *op, const struct letters *l,
                                const struct axis *axis)
{
  const struct axis *space = space_axes(op, l);
  if (axis->n != 1) return NONE;
  for (int d = 0; d < graph->value[space_of(op)].shape.ndim; d++)
    if (space[d].n && space[d].letter[0] == axis->letter[0]) return d;
  return NONE;
}

void find_operand(const struct op *op, const struct letters *l, int i, int rank,
                  struct operand *operand)
{
  int value = i < op->nin ? op->in[i] : op->out;
  const struct axis *axis = i < op->nin ? l->in[i] : l->out[0];
  struct shape here = local_shape(value, rank);
  *operand = (struct operand){.value = value, .ndim = here.ndim};
  local_strides(value, rank, operand->stride);
  for (int d = 0; d < here.ndim; d++) {
    operand->along[d] = loops_dimension_with(op, l, &axis[d]);
    operand->size[d] = here.size[d];
  }
}

int space_dimension(const struct op *op, const struct letters *l, char name)
{
  const struct axis *space = space_axes(op, l);
  for (int d = 0; d < graph->value[space_of(op)].shape.ndim; d++)
    if (space[d].n && l->name[space[d].letter[0]] == name) return d;
  return NONE;
}

/* Places in the order of the loops at which a loop must begin: the dimension there cannot be merged
   with the one before. */
typedef bool borders[MAX_DIMS + 1];

/* Whether the value has exactly the elements of the kernel's space. */
static bool fills(const struct kernel_builder *k, int value)
{
  return same_shape(local_shape(value, k->rank), k->loops.space);
}

/* The value whose order in memory the loops follow: one that is written, else one that is read;
   NONE if nothing has the shape of the space. */
static int value_followed(const struct kernel_builder *k)
{
  int *list = alloc((size_t)op_width(k->group) * sizeof *list);
  for (int i = 0, n = op_writes(k->group, list); i < n; i++)
    if (graph->value[list[i]].stored && fills(k, list[i])) return list[i];
  for (int i = 0, n = op_reads(k->group, list); i < n; i++)
    if (fills(k, list[i])) return list[i];
  return NONE;
}

/* The dimensions that do not share a loop with others: a row's, or those that are reduced. */
static unsigned marked_dims(const struct kernel_builder *k)
{
  unsigned dims = 0;
  for (int d = 0; d < k->loops.space.ndim; d++)
    if (k->stages.rows != NONE && d >= k->stages.rows) dims |= 1u << d;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (k->stages.rows == NONE && is_reduce(op->kind)) dims = op->dims;
  }
  return dims;
}

bool names_letter(const struct op *op, const char *name)
{
  bool is_input = name[0] >= 'a' && name[0] < 'a' + op->nin;
  bool goes_on = isalnum((unsigned char)name[1]) || name[1] == '_';
  return isalpha((unsigned char)name[0]) && !goes_on && !is_input && name[0] != 's';
}

/* An index that the expression uses has a loop of its own. */
static void part_at_letters(const struct loops *loops, const struct op *op, const struct letters *l,
                            borders apart)
{
  for (const char *c = op_row[op->kind].element; (c = strchr(c, '$'));) {
    int d = names_letter(op, ++c) ? space_dimension(op, l, *c) : NONE;
    for (int at = 0; at < loops->space.ndim; at++)
      if (loops->order[at] == d) apart[at] = apart[at + 1] = true;
  }
}

/* An element's random number depends on its index in the whole tensor. */
static void part_at_cuts(const struct loops *loops, int value, borders apart)
{
  for (int at = 1; at < loops->space.ndim; at++) {
    int d = loops->order[at];
    apart[at] |= is_cut(value, d) || loops->order[at - 1] + 1 != d;
  }
}

static void part_at(const struct kernel_builder *k, const struct op *op, borders apart)
{
  struct letters l;
  op_letters(op, &l);
  for (int i = 0; i <= op->nin; i++) {
    struct operand o;
    find_operand(op, &l, i, k->rank, &o);
    bool indexed = i < op->nin && reads_by_index(op, i);
    /* A loop begins where an operand's rows are not contiguous. */
    const struct loops *loops = &k->loops;
    int replaced = indexed ? indexed_dimension(op, i) : NONE;
    int64_t stride[MAX_DIMS] = {0};
    for (int d = 0; d < o.ndim; d++)
      if (o.along[d] != NONE && d != replaced) stride[o.along[d]] = o.stride[d];
    for (int at = 1; at < loops->space.ndim; at++) {
      int d = loops->order[at];
      apart[at] |= stride[loops->order[at - 1]] != stride[d] * loops->space.size[d];
    }
  }
  part_at_letters(&k->loops, op, &l, apart);
  if (draws_stream(op->kind)) part_at_cuts(&k->loops, op->out, apart);
}

/* The largest index. */
static int64_t farthest(const struct kernel_builder *k)
{
  int64_t most = 0;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    bool is_whole_counted = draws_stream(op->kind);
    for (int i = 0; i <= op->nin; i++) {
      int value = i < op->nin ? op->in[i] : op->out;
      int64_t size =
          elements(is_whole_counted ? graph->value[value].shape : local_shape(value, k->rank));
      if (most < size) most = size;
    }
  }
  return most;
}

static bool rounds_results(const struct op *group)
{
  for (int n = 0; n < group->nbody; n++) {
    const struct op *op = &graph->op[group->body[n]];
    if (is_reduce(op->kind) && graph->value[op->out].type == BF16) return true;
  }
  return false;
}

/* The kept loops, then the reduced ones. */
static struct loops kept_first(const struct loops *loops)
{
  struct loops sorted = *loops;
  sorted.n = 0;
  for (int reduced = 0; reduced < 2; reduced++)
    for (int n = 0; n < loops->n; n++) {
      if (loops->reduced[n] != reduced) continue;
      sorted.size[sorted.n] = loops->size[n];
      sorted.first[sorted.n] = loops->first[n];
      sorted.last[sorted.n] = loops->last[n];
      sorted.reduced[sorted.n++] = reduced;
    }
  return sorted;
}

/* Rows that are counted have one loop, the outermost. */
static int64_t find_counted(const struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  int64_t bound = 1, all = 1;
  if (counts_of_kernel(k->group) == NONE || !loops->n || loops->reduced[0]) return 0;
  for (int d = 0; d < ROW_DIMS; d++) bound *= loops->space.size[d];
  for (int at = 0; at < loops->space.ndim; at++)
    if (loops->order[at] != at) return 0;
  for (int d = 0; d <= loops->last[0]; d++) all *= loops->space.size[d];
  bool covers = all == loops->size[0] && all % bound == 0 && all >= bound;
  for (int d = loops->last[0] + 1; d < ROW_DIMS; d++) covers &= loops->space.size[d] == 1;
  return covers ? all / bound : 0;
}

/* On the CPU a value that is rounded when it is stored can only be stored once. */
void find_loops(struct kernel_builder *k)
{
  struct loops *loops = &k->loops;
  borders apart = {false};
  *loops = (struct loops){.space = local_shape(k->stages.space, k->rank),
                          .type = counter_type(farthest(k) + BLOCK * target->widest_vector)};
  unsigned reduced = marked_dims(k);
  /* The number of pieces in which the operation reads the value: a product reads an operand without
     the dimension in pieces as a whole. */
  int value = value_followed(k), n = 0, ndim = k->loops.space.ndim;
  for (int within = 0; within < 2; within++)
    for (int at = 0; at < ndim; at++) {
      int d = value == NONE ? at : dimension_at(value, at);
      bool of_row = k->stages.rows != NONE && d >= k->stages.rows;
      if (of_row == within) k->loops.order[n++] = d;
    }
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    part_at(k, op, apart);
  }
  for (int at = 0; at < loops->space.ndim; at++) {
    int d = loops->order[at];
    if (loops->space.size[d] == 1) {
      apart[at + 1] = true;
      continue;
    }
    int n = loops->n;
    bool joins = n && !apart[at] && loops->reduced[n - 1] == (reduced >> d & 1);
    if (!joins) {
      loops->size[n] = 1;
      loops->first[n] = d;
      loops->reduced[n] = reduced >> d & 1;
      n = ++loops->n;
    }
    loops->last[n - 1] = d;
    loops->size[n - 1] *= loops->space.size[d];
  }
  bool by_rows = k->stages.rows != NONE;
  if (!target->thread_grids && !by_rows && rounds_results(k->group)) *loops = kept_first(loops);
  loops->of_row = find_counted(k);
}

int loop_that_ends(const struct loops *loops, int dim)
{
  for (int n = 0; n < loops->n; n++)
    if (loops->last[n] == dim) return n;
  return NONE;
}

int innermost_loop(const struct loops *loops)
{
  return loops->n ? loops->n - 1 : NONE;
}

int64_t stride_along(const struct loops *loops, const struct operand *operand, int n)
{
  for (int d = 0; d < operand->ndim; d++)
    if (operand->along[d] == loops->last[n]) return operand->stride[d];
  return 0;
}

int64_t row_elements(const struct loops *loops)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++) n *= loops->reduced[i] ? loops->size[i] : 1;
  return n;
}

static bool list_cuts(int mesh_dim, int value, int dim)
{
  struct placement p = graph->value[value].layout.on[mesh_dim];
  return p.kind == SHARD && p.dim == dim && graph->mesh.size[mesh_dim] > 1;
}

bool is_cut(int value, int dim)
{
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (list_cuts(m, value, dim)) return true;
  return false;
}
