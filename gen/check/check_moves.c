/* check_moves.c: a part of check.c: an operation that moves data does what its kind says.

   Takes   the program from the pass `redistribute` on.
   Holds   each step of a redistribution changes the layout exactly as an operation of its kind
           does, over its group. It takes its operands' orders in memory. The one call of a bucket
           can do what all of its members would. */
#include "check/check.h"

#include <string.h>

/* An operation that redistribute left, the layouts of its input and output, and its group. */
struct step {
  const struct op *op;
  const struct value *in, *out;
  struct layout from, to;
  const struct group *group; /* of a collective, pack and unpack */
};

/* Whether both layouts cut dimension `dim` equally, except for the last cuts of the first layout,
   which *more counts. */
static bool check_moves_same_cuts(const struct layout *a, const struct layout *b, int dim,
                                  int *more)
{
  int x[MAX_MESH], y[MAX_MESH];
  int n = cuts_of(&graph->mesh, *a, dim, x), m = cuts_of(&graph->mesh, *b, dim, y);
  *more = n - m;
  if (n < m) return false;
  for (int i = 0; i < m; i++)
    if (x[i] != y[i] || shard_stride(a->on[x[i]]) != shard_stride(b->on[y[i]]) ||
        a->on[x[i]].shift != b->on[y[i]].shift)
      return false;
  return true;
}

/* Whether the second layout is the first without the last cuts of some plain dimensions. The
   dimensions `except` are not compared. */
static bool lacks_last_cuts(const struct layout *a, const struct layout *b, unsigned except)
{
  int more;
  for (int d = 0; d < MAX_DIMS; d++) {
    if (except >> d & 1) continue;
    /* Whether either layout cuts the dimension. */
    bool is_cut = false;
    for (int i = 0; i < graph->mesh.ndim && !is_cut; i++)
      is_cut = (a->on[i].kind == SHARD && a->on[i].dim == d) ||
               (b->on[i].kind == SHARD && b->on[i].dim == d);
    if (!is_cut) continue;
    if (!check_moves_same_cuts(a, b, d, &more)) return false;
    if (more && is_strided(&graph->mesh, *a, d)) return false;
  }
  return true;
}

static bool all_cuts_equal(const struct layout *a, const struct layout *b, unsigned except)
{
  return lacks_last_cuts(a, b, except) && lacks_last_cuts(b, a, except);
}

/* Whether a group's cuts are the last ones of a plain dimension, in its order, and the others are
   those of `rest`. */
static bool ends_with(struct layout layout, int dim, const struct group *g, struct layout rest)
{
  int cut[MAX_MESH], n = cuts_of(&graph->mesh, layout, dim, cut), more;
  if (is_strided(&graph->mesh, layout, dim) || !check_moves_same_cuts(&layout, &rest, dim, &more))
    return false;
  return more == g->n && !memcmp(cut + n - g->n, g->dim, (size_t)g->n * sizeof *cut);
}

/* A bit for each mesh dimension on which the placements are of different kinds. */
static unsigned changed(const struct step *s)
{
  unsigned dims = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement a = s->from.on[i], b = s->to.on[i];
    if (a.kind != b.kind || (a.kind == SHARD && a.dim != b.dim) ||
        (a.kind == PARTIAL && a.reduction != b.reduction))
      dims |= 1u << i;
  }
  return dims;
}

/* Whether the layout has this kind, and if pending this reduction, on all of these mesh
   dimensions. */
static bool all_on(struct layout layout, unsigned dims, enum placement_kind kind, enum reduction r)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (dims >> i & 1 &&
        (layout.on[i].kind != kind || (kind == PARTIAL && layout.on[i].reduction != r)))
      return false;
  return true;
}

/* Each of these says whether the step is what its kind is by definition. */

static bool is_all_to_all(const struct step *s)
{
  unsigned both = 1u << s->op->dim | 1u << s->op->dim_to;
  return changed(s) == s->group->dims && s->op->dim != s->op->dim_to &&
         ends_with(s->from, s->op->dim, s->group, s->to) &&
         ends_with(s->to, s->op->dim_to, s->group, s->from) &&
         all_cuts_equal(&s->from, &s->to, both);
}

/* Between the first dimension and one of the places: the one that cuts it last. A micro-batch of
   experts' rows belongs to all members, whose parts of the tokens it cuts: it is innermost. */
static bool is_exchange_rows(const struct step *whole)
{
  struct step in_parts = *whole, *s = &in_parts;
  int time = time_dimension();
  if (time != NONE && !same_placement(s->from.on[time], s->to.on[time])) return false;
  s->from = over_time(s->from);
  s->to = over_time(s->to);
  int dim = s->op->dim, to = s->op->dim_to;
  if (s->op->nin != 2 || s->in->counts == NONE || s->out->counts == NONE) return false;
  if (dim > 3 || to > 3 || (dim == 0) == (to == 0)) return false;
  struct layout counted = graph->value[s->op->in[1]].layout;
  return is_all_to_all(s) && all_on(counted, s->group->dims, PARTIAL, SUM);
}

static bool is_slice(const struct step *s)
{
  unsigned dims = changed(s);
  return dims && all_on(s->from, dims, REPLICATE, SUM) && all_on(s->to, dims, SHARD, SUM) &&
         lacks_last_cuts(&s->to, &s->from, 0);
}

static bool is_to_partial(const struct step *s)
{
  unsigned dims = changed(s);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (dims >> i & 1 && s->from.on[i].kind == PARTIAL) return false;
  return dims && all_on(s->to, dims, PARTIAL, s->op->reduction) &&
         lacks_last_cuts(&s->from, &s->to, 0);
}

static bool check_moves_is_packing(const struct step *s)
{
  struct layout rest = s->op->to;
  for (int i = 0; i < s->group->n; i++) rest.on[s->group->dim[i]] = (struct placement){0};
  return same_layout(s->from, s->to) && s->op->dim >= 0 && s->op->dim < s->in->shape.ndim &&
         ends_with(s->op->to, s->op->dim, s->group, rest);
}

/* Found once for each check. */
static struct known_runs {
  bool known;
  struct piece_runs runs;
} * known_runs;

static const struct piece_runs *runs_of(int exchange)
{
  struct known_runs *k = &known_runs[exchange];
  if (!k->known) *k = (struct known_runs){true, piece_runs_of(&graph->exchange[exchange])};
  return &k->runs;
}

static bool is_flat(const struct value *v)
{
  return v->shape.ndim == 1 && same_layout(v->layout, (struct layout){0});
}

/* Whether the value has the exchange's layout on this side; packed: it is a flat buffer. */
static bool is_side(const struct exchange *e, const struct value *v, struct layout side,
                    bool packed)
{
  if (v->type != e->type) return false;
  if (packed) return is_flat(v);
  return same_shape(v->shape, e->whole) && same_layout(v->layout, side);
}

/* A side of the exchange itself: packed where pieces are not contiguous, and only there. */
static bool is_end(const struct exchange *e, const struct value *v, struct layout side, bool runs,
                   bool all)
{
  return runs ? is_side(e, v, side, false) || (!all && is_flat(v)) : is_side(e, v, side, true);
}

/* Whether the members of a group together have everything that any of them receives: in every
   dimension, after the cuts that stay, all cuts are the group's. */
static bool is_complete(const struct exchange *e)
{
  const struct group *g = &graph->group[e->group];
  struct layout from = e->move.from, to = e->move.to;
  for (int d = 0; d < e->whole.ndim; d++) {
    int x[MAX_MESH], y[MAX_MESH], same = 0;
    int n = cuts_of(&graph->mesh, from, d, x), m = cuts_of(&graph->mesh, to, d, y);
    while (same < n && same < m && x[same] == y[same] &&
           from.on[x[same]].shift == to.on[y[same]].shift)
      same++;
    for (int i = same; i < n; i++)
      if (!(g->dims >> x[i] & 1)) return false;
    for (int i = same; i < m; i++)
      if (!(g->dims >> y[i] & 1)) return false;
    bool strided = is_strided(&graph->mesh, from, d) || is_strided(&graph->mesh, to, d);
    if (strided && (same < n || same < m)) return false;
  }
  for (int i = 0; i < graph->mesh.ndim; i++) {
    bool pending = from.on[i].kind == PARTIAL || to.on[i].kind == PARTIAL;
    if (pending && (g->dims >> i & 1 || !same_placement(from.on[i], to.on[i]))) return false;
  }
  return true;
}

/* Whether members are idle only around a ring: after its end they would get its blocks. */
static bool has_right_idle(const struct exchange *e, const struct piece_runs *r)
{
  const struct move *m = &e->move;
  if (!m->idle_first && !m->idle_last) return true;
  struct placement from = m->from.on[m->dim[0]], to = m->to.on[m->dim[0]];
  bool around = m->n == 1 && from.kind == SHARD && to.kind == SHARD && from.dim == to.dim;
  int most_first = to.shift > from.shift ? (int)to.shift : 0;
  int most_last = to.shift == 0 ? (int)from.shift : 0;
  return around && r->given && r->got && m->idle_first >= 0 && m->idle_first <= most_first &&
         m->idle_last >= 0 && m->idle_last <= most_last;
}

static bool is_exchange(const struct step *s)
{
  if (s->op->exchange < 0 || s->op->exchange >= graph->nexchange) return false;
  const struct exchange *e = &graph->exchange[s->op->exchange];
  const struct move *m = &e->move;
  const struct group *g = &graph->group[e->group];
  if (g->n != m->n || memcmp(g->dim, m->dim, (size_t)g->n * sizeof *g->dim)) return false;
  if (!is_complete(e) || !has_right_idle(e, runs_of(s->op->exchange))) return false;
  const struct piece_runs *r = runs_of(s->op->exchange);
  switch (s->op->kind) {
  case OP_pack_pieces:
    return !(r->given && r->all) && is_side(e, s->in, m->from, false) &&
           is_side(e, s->out, m->from, true);
  case OP_unpack_pieces:
    return !(r->got && r->all) && is_side(e, s->in, m->to, true) &&
           is_side(e, s->out, m->to, false);
  default:
    return s->op->group == e->group && is_end(e, s->in, m->from, r->given, r->all) &&
           is_end(e, s->out, m->to, r->got, r->all);
  }
}

/* Whether the step is what its kind is by definition. */
static bool is_what_it_says(const struct step *s)
{
  const unsigned group = s->group ? s->group->dims : 0;
  switch (s->op->kind) {
  case OP_all_reduce:
    return changed(s) == group && all_on(s->from, group, PARTIAL, s->op->reduction) &&
           all_on(s->to, group, REPLICATE, SUM) && all_cuts_equal(&s->from, &s->to, 0);
  case OP_all_gather:
    return changed(s) == group && all_on(s->to, group, REPLICATE, SUM) &&
           ends_with(s->from, s->op->dim, s->group, s->to) &&
           all_cuts_equal(&s->from, &s->to, 1u << s->op->dim);
  case OP_reduce_scatter:
    return changed(s) == group && all_on(s->from, group, PARTIAL, s->op->reduction) &&
           ends_with(s->to, s->op->dim, s->group, s->from) &&
           all_cuts_equal(&s->from, &s->to, 1u << s->op->dim);
  case OP_all_to_all:
    return is_all_to_all(s);
  case OP_exchange_rows:
    return is_exchange_rows(s);
  case OP_slice:
    return is_slice(s);
  case OP_to_partial:
    return is_to_partial(s);
  case OP_pack:
  case OP_unpack:
    return check_moves_is_packing(s);
  case OP_exchange:
  case OP_pack_pieces:
  case OP_unpack_pieces:
    return is_exchange(s);
  default:
    return true;
  }
}

/* Whether a copy between these types is a cast that a bucket does. */
static bool is_copied_as(enum type type, enum type travels)
{
  return type == travels || ((type == F32 || type == BF16) && (travels == F32 || travels == BF16));
}

static int buckets; /* number of buckets checked */

/* By value: the last checked bucket with a member that makes it. */
static const int *check_moves_made_in(const struct op *bucket)
{
  static const struct graph *of;
  static int *made, room;
  if (of != graph) room = 0;
  of = graph;
  while (room <= graph->nvalue) made = grow(made, room, &room, sizeof *made);
  buckets++;
  for (int k = 0; k < bucket->nbody; k++) made[graph->op[bucket->body[k]].out] = buckets;
  return made;
}

/* One call can do what all members would, on a buffer that holds them. */
static void check_bucket(int id)
{
  const struct op *op = &graph->op[id];
  enum type travels = moved_type(op);
  require(op->nbody > 1, id, "a bucket of less than two");
  require(op->packed || !moves_shards(op->kind), id, "parts that are adjacent nowhere");
  const int *made = check_moves_made_in(op);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *m = &graph->op[op->body[k]];
    enum type in = graph->value[m->in[0]].type, out = graph->value[m->out].type;
    require(m->kind == op->kind && m->group == op->group && m->reduction == op->reduction, id,
            "a member is of another kind");
    require(op->packed ? is_copied_as(in, travels) && is_copied_as(out, travels)
                       : in == travels && out == travels,
            id, "a member is of another type");
    require(graph->value[m->in[0]].order == graph->value[m->out].order, id,
            "a member has another dimension order after than before");
    require(made[m->in[0]] != buckets, id, "a member needs another");
  }
  if (!op->packed) return;
  int64_t room = elements(graph->value[op->buffer].shape);
  require(graph->value[op->buffer].role == ACTIVATION && graph->value[op->buffer].op == id, id,
          "its buffer is another's");
  /* No rank has a larger part of any value than rank 0. */
  require(room ==
              elements_together(op, 0) * (op->kind == OP_all_reduce ? 1 : group_size(op->group)),
          id, "its buffer does not fit its members");
}

/* ------------------------------------------------------------------------------------ in memory */

/* The size of a letter on the first rank, from an operand that has it as a dimension. Otherwise no
   inner part of the letter is cut, and its size is that in the whole tensor. */
static int64_t letter_size(const struct op *view, const struct letters *l, int letter)
{
  for (int i = 0; i < operand_count(view); i++) {
    const struct axis *axis = operand_axes(view, l, i);
    struct shape here = local_shape(nth_operand(view, i), 0);
    for (int d = 0; d < here.ndim; d++)
      if (axis[d].n == 1 && axis[d].letter[0] == letter) return here.size[d];
  }
  return l->size[letter];
}

/* The stride of a letter of operand i in memory, on the first rank; 0 if its size there is 1. */
static int64_t letter_stride(const struct op *view, const struct letters *l, int i, int letter)
{
  int64_t stride[MAX_DIMS];
  int value = nth_operand(view, i);
  const struct axis *axis = operand_axes(view, l, i);
  local_strides(value, 0, stride);
  for (int d = 0; d < graph->value[value].shape.ndim; d++) {
    int64_t inside = stride[d];
    for (int k = axis[d].n; k-- > 0; inside *= letter_size(view, l, axis[d].letter[k]))
      if (axis[d].letter[k] == letter) return letter_size(view, l, letter) > 1 ? inside : 0;
  }
  return 0;
}

/* Whether the parts of a value along a dimension are contiguous. If other dimensions are written
   before it, a packing next to the collective has made them so. */
static bool has_contiguous_parts(int value, int dim)
{
  struct shape here = local_shape(value, 0);
  int64_t stride[MAX_DIMS];
  local_strides(value, 0, stride);
  for (int d = 0; d < dim; d++)
    if (here.size[d] != 1) return true;
  return here.size[dim] <= 1 || stride[dim] * here.size[dim] == elements(here);
}

/* Whether the operation takes its operands' orders in memory. Generated kernels and products use
   strides. Kernels from files use strides only if they ask for them, and then along neighbours. A
   move keeps the order. */
static bool takes_orders(const struct op *op)
{
  bool written = true;
  for (int i = 0; i < operand_count(op); i++) written &= !graph->value[nth_operand(op, i)].order;
  if (written || is_pointwise(op->kind) || is_reduce(op->kind) || op->kind == OP_matmul)
    return true;
  if (op->kind == OP_view) {
    /* A view leaves each element in place: a letter has the same stride in both operands. */
    struct letters l;
    op_letters(op, &l);
    for (int letter = 0; letter < l.n; letter++)
      if (letter_stride(op, &l, 0, letter) != letter_stride(op, &l, 1, letter)) return false;
    return graph->value[op->in[0]].type == graph->value[op->out].type;
  }
  for (int i = 0; i < operand_count(op) && has_kernel(op->kind); i++) {
    int value = nth_operand(op, i), last = graph->value[value].shape.ndim - 1;
    int64_t stride[MAX_DIMS];
    if (!graph->value[value].order) continue;
    local_strides(value, 0, stride);
    /* Whether the kernel's file has the steps of the operand's parameter. The parameters of its
       function are the outputs and then the inputs, each a type and a name. */
    const char *file = kernel_file(op, 0), *c = file ? strstr(file, "$name$(") : NULL;
    int at = i < op->nin ? op->nout + i : i - op->nin;
    bool asks_steps = false;
    if (c) {
      for (c += strlen("$name$("); at > 0; at--) c += strcspn(c, ",)") + 1;
      size_t n = strcspn(c, ",)"), begin = n;
      while (begin > 0 && !strchr(" *\n", c[begin - 1])) begin--;
      asks_steps = strstr(file, text("$step_%.*s_", (int)(n - begin), c + begin)) != NULL;
    }
    if (!asks_steps || stride[last] != 1) return false;
  }
  if (has_kernel(op->kind)) return true;
  bool moves = is_collective(op->kind) || op_row[op->kind].step != NO_LOCAL_STEP;
  if (!moves || op->nin != 1 || graph->value[op->in[0]].order != graph->value[op->out].order)
    return false;
  if (op->kind == OP_exchange || op_row[op->kind].step == PIECES_PACKING) return false;
  if (!is_collective(op->kind)) return true;
  int from = collective_row[op->kind].from, to = collective_row[op->kind].to;
  return (to != SHARD || has_contiguous_parts(op->in[0], from == SHARD ? op->dim_to : op->dim)) &&
         (from != SHARD || has_contiguous_parts(op->out, op->dim));
}

/* A member of a packed bucket may have any order: it is copied. */
static void check_step(int id, bool is_copied)
{
  const struct op *op = &graph->op[id];
  bool is_bucket = is_collective(op->kind) && op->nbody;
  if (is_bucket) check_bucket(id);
  for (int k = 0; k < op->nbody; k++) check_step(op->body[k], is_bucket && op->packed);
  if (!op->nbody && is_known(op, IS_MOVE | (is_copied ? IS_COPIED : 0))) return;
  require(is_copied || is_bucket || takes_orders(op), id,
          "its operands have dimension orders that it does not take");
  bool of_rows = op->kind == OP_exchange_rows;
  if (op->nbody || op->out == NONE || (op->nin != 1 && !of_rows)) return;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  struct step s = {op, in, out, in->layout, out->layout, NULL};
  if (is_collective(op->kind) || op_row[op->kind].step == PACKING) {
    require(op->group >= 0 && op->group < graph->ngroup, id, "it has no group");
    s.group = &graph->group[op->group];
  }
  if (!is_what_it_says(&s))
    bug_at(checked_pass, id, "%s -> %s over %s is not what a step of its kind does",
           layout_text(s.from), layout_text(s.to), s.group ? s.group->name : "itself");
}

void check_moves_of(int id)
{
  check_step(id, false);
}

void begin_moves(void)
{
  known_runs = alloc((size_t)(graph->nexchange + 1) * sizeof *known_runs);
}
