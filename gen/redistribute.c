/* redistribute.c: the pass `redistribute`: from wishes to collectives.

   Takes   a graph in which every value is placed, with redistribute operations.
   Leaves  none of them: in their place collectives, local slices and packings, each along one
           dimension of the mesh, or nothing where nothing moves. From here on an operation is what
           each rank does with its own parts.

   The steps are those of DTensor's greedy planner. From the inner dimensions of the mesh to the outer, a
   sharding that does not nest as the target's does is made whole; then from the outer to the inner
   each dimension goes to its target. */
#include "tpgen.h"

#include <string.h>

/* -------------------------------------------------------------------------------- the planner */

/* Whether both layouts cut dimension `dim` by the same mesh dimensions before `end`. */
static bool nests_alike(struct layout a, struct layout b, int dim, int end)
{
  for (int i = 0; i < end; i++) {
    bool in_a = a.on[i].kind == SHARD && a.on[i].dim == dim;
    bool in_b = b.on[i].kind == SHARD && b.on[i].dim == dim;
    if (in_a != in_b) return false;
  }
  return true;
}

static void step(struct move *moves, int *n, struct layout *now, int mesh_dim, struct placement to)
{
  if (same_placement(now->on[mesh_dim], to)) return;
  moves[(*n)++] = (struct move){.mesh_dim = mesh_dim, .from = now->on[mesh_dim], .to = to};
  now->on[mesh_dim] = to;
}

int plan_moves(struct layout from, struct layout to, struct move *moves)
{
  int n = 0, shards = 0, ndim = graph->mesh.ndim;
  for (int i = 0; i < ndim; i++) shards += from.on[i].kind == SHARD;
  for (int i = ndim - 1; i >= 0 && shards > 0; i--) {
    bool nested = to.on[i].kind == SHARD && !nests_alike(from, to, to.on[i].dim, i);
    step(moves, &n, &from, i, nested ? (struct placement){0} : to.on[i]);
  }
  for (int i = 0; i < ndim; i++) step(moves, &n, &from, i, to.on[i]);
  return n;
}

static double bytes_here(struct shape whole, enum type type, struct layout layout)
{
  int origin[MAX_MESH] = {0};
  return (double)(elements(local_part(&graph->mesh, whole, layout, origin).shape) *
                  type_bytes(type));
}

/* Bytes received along one mesh dimension of n ranks, by the counts of a ring. */
double move_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  struct move moves[MAX_MOVES];
  double cost = 0;
  int count = plan_moves(from, to, moves);
  for (int k = 0; k < count; k++) {
    double n = graph->mesh.size[moves[k].mesh_dim], here = bytes_here(whole, type, from);
    enum placement_kind a = moves[k].from.kind, b = moves[k].to.kind;
    if (a == PARTIAL && b == REPLICATE) cost += 2 * here * (n - 1) / n;
    if (a == PARTIAL && b == SHARD) cost += here * (n - 1) / n;
    if (a == SHARD && b == REPLICATE) cost += here * (n - 1);
    if (a == SHARD && b == SHARD) cost += here * (n - 1) / n;
    from.on[moves[k].mesh_dim] = moves[k].to;
  }
  return cost;
}

/* ----------------------------------------------------------------------------------- the pass */

static int *stands_for; /* the value that an operation now takes instead of a value */
static int *new_order, new_norder, new_order_room;

static void emit_op(int op)
{
  GROW(new_order, new_norder, new_order_room);
  new_order[new_norder++] = op;
}

/* Whether parts along dimension `dim` lie one after the other in a value that is contiguous. */
static bool outermost(int value, int dim)
{
  for (int d = 0; d < dim; d++)
    if (local_shape(value, 0).size[d] != 1) return false;
  return true;
}

/* Adds one local or collective operation on `value`, leaving it in `layout`. */
static int add(struct op op, int value, struct layout layout)
{
  op.nin = 1;
  op.in[0] = value;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  out->layout = layout;
  out->placed = true;
  out->name = value_name(value);
  emit_op(i);
  return graph->op[i].out;
}

/* Packs `value` so that its parts along `dim`, as the ranks of the mesh dimension hold them under
   `parts`, lie one after the other; unpack is the way back. */
static int pack(struct op op, enum op_kind kind, int value, int dim, struct layout parts)
{
  if (outermost(value, dim)) return value;
  op.kind = kind;
  op.dim = dim;
  op.to = parts;
  return add(op, value, graph->value[value].layout);
}

static int run_move(const struct op *why, int value, struct move m)
{
  struct layout from = graph->value[value].layout, to = from;
  to.on[m.mesh_dim] = m.to;
  struct op op = {.module = why->module,
                  .line = why->line,
                  .phase = why->phase,
                  .why = why->why,
                  .mesh_dim = m.mesh_dim,
                  .group = add_group(1u << m.mesh_dim)};
  enum placement_kind a = m.from.kind, b = m.to.kind;
  if (a == REPLICATE) {
    op.kind = b == SHARD ? OP_slice : OP_to_partial;
    op.dim = m.to.dim;
    return add(op, value, to);
  }
  if (a == PARTIAL && b == REPLICATE) {
    op.kind = OP_all_reduce;
    op.reduction = m.from.reduction;
    return add(op, value, to);
  }
  if (a == PARTIAL && b == SHARD) {
    value = pack(op, OP_pack, value, m.to.dim, to);
    op.kind = OP_reduce_scatter;
    op.reduction = m.from.reduction;
    op.dim = m.to.dim;
    return add(op, value, to);
  }
  if (a == SHARD && b == REPLICATE) {
    op.kind = OP_all_gather;
    op.dim = m.from.dim;
    return pack(op, OP_unpack, add(op, value, to), m.from.dim, from);
  }
  if (a == SHARD && b == SHARD) {
    value = pack(op, OP_pack, value, m.to.dim, to);
    op.kind = OP_all_to_all;
    op.dim = m.from.dim;
    op.dim_to = m.to.dim;
    return pack(op, OP_unpack, add(op, value, to), m.from.dim, from);
  }
  plan_error(why->line, "%s: %s -> %s over %s cannot be done: make it whole first", why->why,
             placement_text(m.from), placement_text(m.to), printable(graph->mesh.name[m.mesh_dim]));
}

/* The value `last` takes over what the redistribution's own value was meant for. */
static int take_over(const struct op *op, int last)
{
  struct value *made = &graph->value[op->out], *v = &graph->value[last];
  bool leaves = made->role != ACTIVATION || made->is_output;
  if (leaves && (v->role != ACTIVATION || v->is_output || v->op == NONE)) {
    struct op copy = {
        .kind = OP_scale, .scalar = 1, .module = op->module, .line = op->line, .phase = op->phase};
    last = add(copy, last, v->layout);
    made = &graph->value[op->out];
    v = &graph->value[last];
  }
  if (leaves) {
    v->role = made->role;
    v->of = made->of;
    v->is_output = made->is_output;
    v->name = made->name;
    if (made->role == LOSS) graph->loss = last;
    made->role = ACTIVATION;
    made->is_output = false;
  }
  return last;
}

void redistribute(void)
{
  int known = graph->nvalue, norder = graph->norder;
  stands_for = alloc((size_t)known * sizeof *stands_for);
  for (int i = 0; i < known; i++) stands_for[i] = i;
  for (int at = 0; at < norder; at++) {
    int id = graph->order[at];
    struct op op = graph->op[id];
    for (int i = 0; i < op.nin; i++) op.in[i] = stands_for[op.in[i]];
    graph->op[id] = op;
    if (op.kind != OP_redistribute) {
      emit_op(id);
      continue;
    }
    struct move moves[MAX_MOVES];
    int last = op.in[0];
    int n = plan_moves(graph->value[last].layout, graph->value[op.out].layout, moves);
    for (int k = 0; k < n; k++) last = run_move(&op, last, moves[k]);
    stands_for[op.out] = take_over(&op, last);
  }
  graph->order = new_order;
  graph->norder = new_norder;
  graph->order_room = new_order_room;
}
