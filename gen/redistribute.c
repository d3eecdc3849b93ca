/* redistribute.c: the pass `redistribute`: from wishes to collectives.

   Takes   a graph in which every value is placed, with redistribute operations.
   Leaves  none of them: in their place collectives, local slices and packings, each along one
           dimension of the mesh, or nothing where nothing moves. From here on an operation is what
           each rank does with its own parts.

   The steps are those of DTensor's greedy planner. From the inner dimensions of the mesh to the
   outer, a sharding that does not nest as the target's does is made whole; then from the outer to
   the inner each dimension goes to its target.

   The planner knows plain shards only. Where a dimension is cut in strides, before or after, the
   value is seen with that dimension taken apart at every stride: there each cut is plain, and a
   view moves nothing. */
#include "tpgen.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- dimensions that are taken apart
 */

/* A value's dimensions, some of them taken apart into factors. */
struct factors {
  struct shape shape;                     /* a factor each */
  int of[MAX_DIMS + 2 * MAX_MESH];        /* the dimension that it is of */
  int64_t outer[MAX_DIMS + 2 * MAX_MESH]; /* how much of that dimension is outside it */
};

static bool is_cut(struct placement p, int dim)
{
  return p.kind == SHARD && p.dim == dim;
}

/* The least stride of either layout's cuts of the dimension that is more than `least`; or `size`.
 */
static int64_t next_stride(struct layout a, struct layout b, int dim, int64_t least, int64_t size)
{
  int64_t next = size;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = a.on[i], q = b.on[i];
    if (is_cut(p, dim) && shard_stride(p) > least && shard_stride(p) < next) next = shard_stride(p);
    if (is_cut(q, dim) && shard_stride(q) > least && shard_stride(q) < next) next = shard_stride(q);
  }
  return next;
}

/* Whether cutting a dimension of outer * inner elements over the mesh dimensions `cut`, one after
   the other, leaves each rank what cutting its outer factor alone does. */
static bool is_aligned(int64_t outer, int64_t inner, unsigned cut)
{
  if (!cut || !outer) return true;
  int d = 0;
  while (!(cut >> d & 1)) d++;
  int64_t n = graph->mesh.size[d], chunk = (outer + n - 1) / n;
  if ((outer * inner + n - 1) / n != chunk * inner) return false;
  cut &= cut - 1;
  return is_aligned(chunk, inner, cut) && is_aligned(outer % chunk, inner, cut);
}

/* Whether the layout's cuts of a dimension are cuts of its factors where it is taken apart at the
   strides of `other` too. */
static bool goes_apart(struct layout layout, struct layout other, int dim, int64_t size)
{
  for (int64_t at = 1, next; at < size; at = next) {
    next = next_stride(layout, other, dim, at, size);
    if (next % at) return false;
    int64_t end = next_stride(layout, layout, dim, at, size);
    unsigned cut = 0;
    for (int i = 0; i < graph->mesh.ndim; i++)
      if (is_cut(layout.on[i], dim) && shard_stride(layout.on[i]) == at) cut |= 1u << i;
    if (!is_aligned(next / at, end / next, cut)) return false;
  }
  return true;
}

static bool differ(struct layout a, struct layout b, int dim)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if ((is_cut(a.on[i], dim) || is_cut(b.on[i], dim)) && !same_placement(a.on[i], b.on[i]))
      return true;
  return false;
}

/* The dimensions that have to be taken apart between two layouts. */
static unsigned strided_dims(struct shape whole, struct layout a, struct layout b)
{
  unsigned dims = 0;
  for (int d = 0; d < whole.ndim; d++)
    if (differ(a, b, d) && (is_strided(&graph->mesh, a, d) || is_strided(&graph->mesh, b, d)))
      dims |= 1u << d;
  return dims;
}

/* False if there are more than a shape can have. */
static bool take_apart(struct shape whole, struct layout a, struct layout b, struct factors *f)
{
  unsigned strided = strided_dims(whole, a, b);
  int n = 0;
  int64_t size[MAX_DIMS + 2 * MAX_MESH];
  for (int d = 0; d < whole.ndim; d++) {
    for (int64_t at = 1, next; n == 0 || f->of[n - 1] != d || at < whole.size[d]; at = next) {
      next = strided >> d & 1 ? next_stride(a, b, d, at, whole.size[d]) : whole.size[d];
      f->of[n] = d;
      f->outer[n] = at;
      size[n++] = next / at;
    }
  }
  f->shape.ndim = n;
  if (n > MAX_DIMS) return false;
  memcpy(f->shape.size, size, (size_t)n * sizeof *size);
  return true;
}

static int factor_at(const struct factors *f, int dim, int64_t stride)
{
  for (int i = 0; i < f->shape.ndim; i++)
    if (f->of[i] == dim && f->outer[i] == stride) return i;
  bug("redistribute", NONE, "dimension %d is not cut inside %" PRId64 " parts", dim, stride);
}

/* The layout of the factors. Dimensions that are not taken apart keep their strides. */
static struct layout on_factors(const struct factors *f, struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement *p = &layout.on[i];
    if (p->kind != SHARD) continue;
    int at = 0;
    while (f->of[at] != p->dim) at++;
    bool alone = at + 1 == f->shape.ndim || f->of[at + 1] != p->dim;
    if (!alone) at = factor_at(f, p->dim, shard_stride(*p));
    *p = (struct placement){.kind = SHARD, .dim = at, .outer = alone ? p->outer : 0};
  }
  return layout;
}

/* -------------------------------------------------------------------------------------- the legs
 */

/* A redistribution goes from stop to stop. Between two of them every dimension comes apart alike.
 */
enum { MAX_STOPS = 5 };

/* The layout with everything whole that cuts one of these dimensions. */
static struct layout whole_along(struct layout layout, unsigned dims)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == SHARD && dims >> layout.on[i].dim & 1)
      layout.on[i] = (struct placement){0};
  return layout;
}

/* Where cuts do not come apart alike the dimension is made whole on the way. So is, while there are
   views, a dimension of one element: a view's rule has no letter for it. */
static int find_stops(struct shape whole, struct layout from, struct layout to, struct layout *stop)
{
  unsigned strided = strided_dims(whole, from, to), ones = 0, apart = 0;
  for (int d = 0; d < whole.ndim; d++) {
    if (strided && whole.size[d] == 1) ones |= 1u << d;
    if (strided >> d & 1 &&
        !(goes_apart(from, to, d, whole.size[d]) && goes_apart(to, from, d, whole.size[d])))
      apart |= 1u << d;
  }
  struct layout way[] = {from, whole_along(from, ones), whole_along(from, ones | apart),
                         whole_along(to, ones), to};
  int n = 0;
  for (int i = 0; i < MAX_STOPS; i++)
    if (n == 0 || !same_layout(stop[n - 1], way[i])) stop[n++] = way[i];
  return n;
}

static double bytes_here(struct shape whole, enum type type, struct layout layout)
{
  int origin[MAX_MESH] = {0};
  return (double)(elements(local_part(&graph->mesh, whole, layout, origin).shape) *
                  type_bytes(type));
}

/* Bytes received along one mesh dimension of n ranks, by the counts of a ring. */
static double plain_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  const struct moves *moves = plan_moves(whole, type, from, to);
  double cost = 0;
  for (int k = 0; k < moves->n; k++) {
    const struct move *m = &moves->move[k];
    double n = graph->mesh.size[m->dim[0]], here = bytes_here(whole, type, m->from);
    if (m->kind == OP_all_reduce) cost += 2 * here * (n - 1) / n;
    if (m->kind == OP_reduce_scatter || m->kind == OP_all_to_all) cost += here * (n - 1) / n;
    if (m->kind == OP_all_gather) cost += here * (n - 1);
  }
  return cost;
}

double move_cost(struct shape whole, enum type type, struct layout from, struct layout to)
{
  struct layout stop[MAX_STOPS];
  struct factors f;
  double cost = 0;
  for (int i = 1, n = find_stops(whole, from, to, stop); i < n; i++) {
    if (!take_apart(whole, stop[i - 1], stop[i], &f)) return INFINITY;
    cost += plain_cost(f.shape, type, on_factors(&f, stop[i - 1]), on_factors(&f, stop[i]));
  }
  return cost;
}

/* ----------------------------------------------------------------------------------- the pass */

static int *stands_for; /* the value that an operation now takes instead of a value */
static struct list new_order;

/* Whether parts along dimension `dim` lie one after the other in a value that is contiguous. */
static bool outermost(int value, int dim)
{
  for (int d = 0; d < dim; d++)
    if (local_shape(value, 0).size[d] != 1) return false;
  return true;
}

/* Adds one local or collective operation on `value`, leaving it in `layout`. */
static int moved(struct op op, int value, struct layout layout)
{
  op.nin = 1;
  op.in[0] = value;
  int i = make_op(op);
  struct value *out = &graph->value[graph->op[i].out];
  out->layout = layout;
  out->placed = true;
  out->name = value_name(value);
  add(&new_order, i);
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
  return moved(op, value, graph->value[value].layout);
}

static struct op asked_for_by(const struct op *op)
{
  return (struct op){.module = op->module, .line = op->line, .phase = op->phase, .why = op->why};
}

static int run_move(const struct op *why, int value, const struct move *m)
{
  struct op op = asked_for_by(why);
  struct placement from = m->from.on[m->dim[0]], to = m->to.on[m->dim[0]];
  op.kind = m->kind;
  if (is_collective(m->kind)) op.group = add_ordered_group(m->n, m->dim);
  op.reduction = m->kind == OP_to_partial ? to.reduction : from.reduction;
  if (m->kind == OP_all_reduce || m->kind == OP_slice) return moved(op, value, m->to);
  if (m->kind == OP_to_partial && from.kind == REPLICATE) return moved(op, value, m->to);
  if (m->kind == OP_reduce_scatter) {
    value = pack(op, OP_pack, value, to.dim, m->to);
    op.dim = to.dim;
    return moved(op, value, m->to);
  }
  if (m->kind == OP_all_gather) {
    op.dim = from.dim;
    return pack(op, OP_unpack, moved(op, value, m->to), from.dim, m->from);
  }
  if (m->kind == OP_all_to_all) {
    value = pack(op, OP_pack, value, to.dim, m->to);
    op.dim = from.dim;
    op.dim_to = to.dim;
    return pack(op, OP_unpack, moved(op, value, m->to), from.dim, m->from);
  }
  plan_error(why->line, "%s: %s -> %s over %s cannot be done: make it whole first", why->why,
             placement_text(from), placement_text(to), printable(graph->mesh.name[m->dim[0]]));
}

/* "(a4b3)c" for two factors of a dimension and another one; apart, "a4b3c". */
static void put_factors(struct buffer *b, const struct factors *f, bool apart)
{
  for (int i = 0; i < f->shape.ndim; i++) {
    bool first = i == 0 || f->of[i - 1] != f->of[i];
    bool last = i + 1 == f->shape.ndim || f->of[i + 1] != f->of[i];
    put(b, "%s%c", first && !last && !apart ? "(" : "", 'a' + i);
    if (!first || !last) put(b, "%" PRId64, f->shape.size[i]);
    put(b, "%s", last && !first && !apart ? ")" : "");
  }
}

/* The value with its dimensions taken apart, or put together again. */
static int seen(const struct op *why, int value, const struct factors *f, bool apart,
                struct layout layout)
{
  struct buffer equation = {0};
  put_factors(&equation, f, !apart);
  put(&equation, "->");
  put_factors(&equation, f, apart);
  struct op op = asked_for_by(why);
  op.kind = OP_view;
  op.equation = equation.text;
  return moved(op, value, layout);
}

static int run_leg(const struct op *why, int value, struct layout to)
{
  struct value v = graph->value[value];
  struct factors f;
  if (!take_apart(v.shape, v.layout, to, &f))
    plan_error(why->line,
               "%s: %s, which is cut in strides, cannot be moved: taken apart at them it has %d "
               "dimensions, more than %d",
               why->why, shape_text(v.shape), f.shape.ndim, MAX_DIMS);
  struct layout from_here = on_factors(&f, v.layout), to_here = on_factors(&f, to);
  bool apart = f.shape.ndim > v.shape.ndim;
  if (apart) value = seen(why, value, &f, true, from_here);
  const struct moves *moves = plan_moves(f.shape, v.type, from_here, to_here);
  for (int k = 0; k < moves->n; k++) value = run_move(why, value, &moves->move[k]);
  return apart ? seen(why, value, &f, false, to) : value;
}

/* "abc->abc" */
static int copy_of(const struct op *why, int value)
{
  struct op op = {.kind = OP_view, .module = why->module, .line = why->line, .phase = why->phase};
  char *letters = text("%.*s", graph->value[value].shape.ndim, "abcdefgh");
  op.equation = text("%s->%s", letters, letters);
  return moved(op, value, graph->value[value].layout);
}

/* The value `last` takes over what the redistribution's own value was meant for. */
static int take_over(const struct op *op, int last)
{
  struct value *made = &graph->value[op->out], *v = &graph->value[last];
  bool leaves = made->role != ACTIVATION || made->is_output;
  if (leaves && (v->role != ACTIVATION || v->is_output || v->op == NONE)) {
    last = copy_of(op, last);
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
  new_order = (struct list){0};
  for (int i = 0; i < known; i++) stands_for[i] = i;
  for (int at = 0; at < norder; at++) {
    int id = graph->order[at];
    struct op op = graph->op[id];
    for (int i = 0; i < op.nin; i++) op.in[i] = stands_for[op.in[i]];
    graph->op[id] = op;
    if (op.kind != OP_redistribute) {
      add(&new_order, id);
      continue;
    }
    struct layout stop[MAX_STOPS];
    int last = op.in[0];
    const struct value *v = &graph->value[last];
    int n = find_stops(v->shape, v->layout, graph->value[op.out].layout, stop);
    for (int i = 1; i < n; i++) last = run_leg(&op, last, stop[i]);
    stands_for[op.out] = take_over(&op, last);
  }
  graph->order = new_order.at;
  graph->norder = new_order.n;
  graph->order_room = new_order.room;
}
