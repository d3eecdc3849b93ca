/* check.c: after every pass, what it promises to leave. A failure is a mistake of tpgen's, but for
   the pass `lua`: its graph comes from another process, and is looked at as a stranger's. */
#include "tpgen.h"

#include <float.h>
#include <string.h>

static const char *now;

static void hold(bool fact, int op, const char *what)
{
  if (!fact) bug(now, op, "%s", what);
}

/* ------------------------------------------------------------------------ facts about one thing */

static bool is_value(int v)
{
  return v >= 0 && v < graph->nvalue;
}

/* As it is written, or each dimension once in another order. */
static bool is_sane_order(unsigned order, int ndim)
{
  unsigned seen = 0;
  if (!order) return true;
  for (int at = 0; at < ndim; at++) seen |= 1u << (order >> 3 * at & 7);
  return seen == (1u << ndim) - 1 && !(order >> 3 * ndim) && order != raised(0, ndim);
}

/* What a value says of other things. */
static void sane_links(const struct value *v)
{
  hold(v->op >= NONE && v->op < graph->nop, NONE, "a value is made by no operation");
  hold(v->shape.ndim >= 0 && v->shape.ndim <= MAX_DIMS, v->op, "a value has too many dimensions");
  hold(v->module >= NONE && v->module < graph->nmodule, v->op, "a value lies in no module");
  hold(!v->order || v->role == ACTIVATION, v->op, "its dimensions lie in an order that may not be");
  if (v->role == GRADIENT || v->role == SUMS || v->role == STATE)
    hold(is_value(v->of), v->op, "it belongs to nothing");
}

/* What it is itself: nothing is looked at here but what mark_of_value tells apart. */
static void sane_form(const struct value *v)
{
  for (int d = 0; d < v->shape.ndim; d++)
    hold(v->shape.size[d] >= 0, v->op, "a value has a negative size");
  hold(is_sane_order(v->order, v->shape.ndim), v->op,
       "its dimensions lie in an order that may not be");
  for (int d = 0; v->placed && d < graph->mesh.ndim; d++) {
    const struct placement *p = &v->layout.on[d];
    hold(p->kind != SHARD || (p->dim >= 0 && p->dim < v->shape.ndim), v->op,
         "a value is sharded on a dimension that it has not");
  }
}

static void sane_value(const struct value *v)
{
  sane_links(v);
  sane_form(v);
}

static void sane_op(int id)
{
  const struct op *op = &graph->op[id];
  hold(op->kind < OP_COUNT, NONE, "an operation of no kind");
  hold(op->nin >= 0 && op->nin <= MAX_INPUTS, id, "too many inputs");
  for (int i = 0; i < op->nin; i++) hold(is_value(op->in[i]), id, "an input is no value");
  hold(op->nout >= 0 && op->nout <= MAX_OUTPUTS, id, "too many outputs");
  hold((op->out == NONE) == (op->nout == 0), id, "it counts its outputs wrongly");
  for (int k = 0; k < op->nout; k++) hold(is_value(op->out + k), id, "an output is no value");
  hold(op->module >= NONE && op->module < graph->nmodule, id, "it lies in no module");
}

/* Of an operation that runs, what it does inside, and what it takes and makes. */
static void sane_run(int id)
{
  sane_op(id);
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin; i++) sane_value(&graph->value[op->in[i]]);
  for (int k = 0; k < op->nout; k++) sane_value(&graph->value[op->out + k]);
  for (int k = 0; k < op->nbody; k++) sane_run(op->body[k]);
}

static void sane_in_program(void *unused, int id, int times)
{
  (void)unused, (void)times;
  sane_run(id);
}

/* ---------------------------------------------------------------------- facts about the program */

/* A value of a family is made by the loop, a carried one where its initial value is. */
static bool is_made(int value, const bool *made)
{
  const struct value *v = &graph->value[value];
  if (v->step) return is_made(v->initial, made);
  return made[value] || v->op == NONE || (v->family != NONE && made[v->family]);
}

/* Marks what `op` makes, having seen that what it takes is there. */
static void run(int id, bool *made)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin && !op->nbody; i++)
    hold(is_made(op->in[i], made), id, "it reads a value not made yet");
  for (int k = 0; k < op->nbody && is_collective(op->kind); k++)
    hold(is_made(graph->op[op->body[k]].in[0], made), id, "a member reads a value not made yet");
  for (int k = 0; k < op->nbody; k++) run(op->body[k], made);
  for (int k = 0; k < op->nout; k++) made[op->out + k] = true;
}

static void run_in_program(void *made, int id, int times)
{
  (void)times;
  run(id, made);
}

/* Constants of one element are written as numbers: fuse.c drops what makes them. */
static void mark_constants(bool *made)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_full) made[graph->op[i].out] = true;
}

/* The choice by which the operation runs on one dimension of the mesh, or NONE. */
static int choice_taken(const struct op *op, const struct choice *list, int n, int d)
{
  for (int c = 0; c < n; c++) {
    bool taken = true;
    for (int i = 0; i < op->nin; i++)
      taken &= same_placement(list[c].in[i], graph->value[op->in[i]].layout.on[d]);
    for (int k = 0; k < op->nout; k++)
      taken &= same_placement(list[c].out[k], graph->value[op->out + k].layout.on[d]);
    if (taken) return c;
  }
  return NONE;
}

/* A plan may have pending sums moved in a narrower type: then they are rounded as they lie, which
   no way of a cast's rule does. */
static bool rounds_alike(const struct op *op)
{
  if (op->kind != OP_cast || op->type != BF16) return false;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  return is_floating(in->type) && same_layout(in->layout, out->layout);
}

/* A gradient is added to those of the batches before it as it lies: its parameter may be cut along
   a dimension of size 1, which no way of a rule does. */
static bool adds_batch(const struct op *op)
{
  if (op->kind != OP_add || !is_gradient(op->out)) return false;
  struct layout layout = graph->value[op->out].layout;
  return same_layout(graph->value[op->in[0]].layout, layout) &&
         same_layout(graph->value[op->in[1]].layout, layout);
}

/* A copy lies as what it is of, which may be cut along a dimension of size 1 too. */
static bool is_plain_copy(const struct op *op)
{
  if (op->kind != OP_view) return false;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  return same_shape(in->shape, out->shape) && same_layout(in->layout, out->layout);
}

/* By value a mark of its form, by operation one of itself and its operands' forms, when they were
   last looked at: between two passes most stay as they are, and what was found true of them is.
   Marks are 64 bits of a hash: equal ones are of equal things. What is to be true of values differs
   once they are laid out, of operations once these are steps: marks begin with that. */
static struct marks {
  const struct graph *of;
  int nvalue, nop, value_room, op_room;
  uint64_t *value, *op;
} marks;

/* The numbers of a list are the coefficients of a polynomial, the factor is where its value is
   taken: one multiplication each. */
static uint64_t mixed(uint64_t hash, uint64_t n)
{
  return hash * UINT64_C(0x9e3779b97f4a7c15) + n;
}

/* Its fields fill 64 bits. */
static uint64_t mark_of_placement(uint64_t h, const struct placement *p)
{
  uint64_t bits;
  _Static_assert(sizeof *p == sizeof bits, "a placement is not eight bytes");
  memcpy(&bits, p, sizeof bits);
  return mixed(h, bits);
}

static uint64_t mark_of_value(const struct value *v, bool laid_out)
{
  uint64_t h = mixed(HASH_START, (uint64_t)v->type << 16 | (uint64_t)v->shape.ndim << 8 |
                                     (uint64_t)v->placed << 1 | laid_out);
  h = mixed(h, v->order);
  for (int d = 0; d < v->shape.ndim; d++) h = mixed(h, (uint64_t)v->shape.size[d]);
  for (int d = 0; d < graph->mesh.ndim; d++) h = mark_of_placement(h, &v->layout.on[d]);
  return h ^ h >> 32;
}

/* Whether it is a step that redistribute leaves. */
static bool moves_data(enum op_kind k)
{
  return is_collective(k) || k == OP_slice || k == OP_to_partial || k == OP_pack ||
         k == OP_unpack || k == OP_pack_pieces || k == OP_unpack_pieces;
}

static uint64_t mark_of_op(const struct op *op, bool are_steps)
{
  uint64_t h = mixed(HASH_START, (uint64_t)op->kind << 32 | op->dims);
  h = mixed(h, (uint64_t)op->nin << 32 | (uint64_t)op->nout << 16 | (uint64_t)op->keep << 1 |
                   are_steps);
  h = mixed(mixed(h, (uint64_t)op->type << 32 | (uint64_t)op->custom), (uintptr_t)op->equation);
  for (int i = 0; i < op->nin; i++) h = mixed(h, marks.value[op->in[i]]);
  for (int k = 0; k < op->nout; k++) h = mixed(h, marks.value[op->out + k]);
  if (!are_steps || !moves_data(op->kind)) return h ^ h >> 32;
  h = mixed(h, (uint64_t)op->dim << 32 | (uint32_t)op->dim_to);
  h = mixed(h, (uint64_t)op->reduction << 32 | (uint32_t)op->group);
  h = mixed(h, (uint32_t)op->exchange);
  for (int d = 0; d < graph->mesh.ndim; d++) h = mark_of_placement(h, &op->to.on[d]);
  return h ^ h >> 32;
}

static void make_marks(void)
{
  if (marks.of != graph) marks = (struct marks){.of = graph};
  while (marks.value_room < graph->nvalue)
    marks.value = grow(marks.value, marks.nvalue, &marks.value_room, sizeof *marks.value);
  marks.nvalue = graph->nvalue;
  while (marks.op_room < graph->nop)
    marks.op = grow(marks.op, marks.nop, &marks.op_room, sizeof *marks.op);
  marks.nop = graph->nop;
}

/* Whether an operation of the same rule was looked at whose operands lay alike. */
static bool is_known(const struct op *op)
{
  static struct memo memo;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_rule(&q, op);
  ask_number(&q, (int64_t)op->type);
  for (int d = 0; d < graph->mesh.ndim; d++) ask_number(&q, graph->mesh.size[d]);
  for (int i = 0; i < op->nin; i++) ask_number(&q, (int64_t)marks.value[op->in[i]]);
  for (int k = 0; k < op->nout; k++) ask_number(&q, (int64_t)marks.value[op->out + k]);
  answer_to(&memo, &q, 1, &is_new);
  return !is_new;
}

/* What the operation makes lies as one way of its rule leaves it, its inputs as that way asks. */
static void check_placed(int id)
{
  const struct op *op = &graph->op[id];
  for (int k = 0; k < op->nout; k++)
    hold(graph->value[op->out + k].placed, id, "its value is not placed");
  if (op->nout == 0 || !*rule_of(op)) return;
  if (rounds_alike(op) || adds_batch(op) || is_plain_copy(op) || is_known(op)) return;
  struct letters l;
  struct choice list[MAX_CHOICES];
  int pick[MAX_MESH] = {0};
  op_letters(op, &l);
  int n = choices(op, &l, list);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    pick[d] = choice_taken(op, list, n, d);
    hold(pick[d] != NONE, id, "it does not run on its inputs as they lie");
  }
  hold(fits_together(&l, op->nin, list, pick), id, "its merged dimensions are not where they seem");
}

/* ------------------------------------------------------------------------- steps that move data */

/* An operation that redistribute left, the layouts of what it takes and makes, and its group. */
struct step {
  const struct op *op;
  const struct value *in, *out;
  struct layout from, to;
  const struct group *group; /* of a collective, pack and unpack */
};

/* Whether dimension `dim` is cut alike, but for the last cuts of the first layout: how many more
   it has is in *more. */
static bool cut_alike(const struct layout *a, const struct layout *b, int dim, int *more)
{
  int x[MAX_MESH], y[MAX_MESH];
  int n = cuts_of(&graph->mesh, *a, dim, x), m = cuts_of(&graph->mesh, *b, dim, y);
  *more = n - m;
  if (n < m) return false;
  for (int i = 0; i < m; i++)
    if (x[i] != y[i] || shard_stride(a->on[x[i]]) != shard_stride(b->on[y[i]])) return false;
  return true;
}

/* Whether either layout cuts the dimension. */
static bool is_cut_in(const struct layout *a, const struct layout *b, int dim)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if ((a->on[i].kind == SHARD && a->on[i].dim == dim) ||
        (b->on[i].kind == SHARD && b->on[i].dim == dim))
      return true;
  return false;
}

/* Whether the second layout lacks nothing but the last cuts of some plain dimensions; other ones,
   `except`, are not looked at. */
static bool lacks_last_cuts(const struct layout *a, const struct layout *b, unsigned except)
{
  int more;
  for (int d = 0; d < MAX_DIMS; d++) {
    if (except >> d & 1 || !is_cut_in(a, b, d)) continue;
    if (!cut_alike(a, b, d, &more)) return false;
    if (more && is_strided(&graph->mesh, *a, d)) return false;
  }
  return true;
}

static bool all_cut_alike(const struct layout *a, const struct layout *b, unsigned except)
{
  return lacks_last_cuts(a, b, except) && lacks_last_cuts(b, a, except);
}

/* Whether a group's cuts are the last ones of a plain dimension, in its order, and the others are
   those of `rest`. */
static bool ends_with(struct layout layout, int dim, const struct group *g, struct layout rest)
{
  int cut[MAX_MESH], n = cuts_of(&graph->mesh, layout, dim, cut), more;
  if (is_strided(&graph->mesh, layout, dim) || !cut_alike(&layout, &rest, dim, &more)) return false;
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

/* Whether the layout is of this kind, and where it is pending of this reduction, on all of these
   mesh dimensions. */
static bool all_on(struct layout layout, unsigned dims, enum placement_kind kind, enum reduction r)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (dims >> i & 1 &&
        (layout.on[i].kind != kind || (kind == PARTIAL && layout.on[i].reduction != r)))
      return false;
  return true;
}

/* Each of these says whether the step is what its kind is by definition. */

static bool is_all_reduce(const struct step *s)
{
  return changed(s) == s->group->dims &&
         all_on(s->from, s->group->dims, PARTIAL, s->op->reduction) &&
         all_on(s->to, s->group->dims, REPLICATE, SUM) && all_cut_alike(&s->from, &s->to, 0);
}

static bool is_all_gather(const struct step *s)
{
  return changed(s) == s->group->dims && all_on(s->to, s->group->dims, REPLICATE, SUM) &&
         ends_with(s->from, s->op->dim, s->group, s->to) &&
         all_cut_alike(&s->from, &s->to, 1u << s->op->dim);
}

static bool is_reduce_scatter(const struct step *s)
{
  return changed(s) == s->group->dims &&
         all_on(s->from, s->group->dims, PARTIAL, s->op->reduction) &&
         ends_with(s->to, s->op->dim, s->group, s->from) &&
         all_cut_alike(&s->from, &s->to, 1u << s->op->dim);
}

static bool is_all_to_all(const struct step *s)
{
  unsigned both = 1u << s->op->dim | 1u << s->op->dim_to;
  return changed(s) == s->group->dims && s->op->dim != s->op->dim_to &&
         ends_with(s->from, s->op->dim, s->group, s->to) &&
         ends_with(s->to, s->op->dim_to, s->group, s->from) &&
         all_cut_alike(&s->from, &s->to, both);
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

static bool is_packing(const struct step *s)
{
  struct layout rest = s->op->to;
  for (int i = 0; i < s->group->n; i++) rest.on[s->group->dim[i]] = (struct placement){0};
  return same_layout(s->from, s->to) && s->op->dim >= 0 && s->op->dim < s->in->shape.ndim &&
         ends_with(s->op->to, s->op->dim, s->group, rest);
}

/* Whether the pieces of each exchange are given and got in runs: asked once in a check. */
static struct runs {
  bool known, given, got;
} * runs;

static const struct runs *runs_of(int exchange)
{
  const struct exchange *e = &graph->exchange[exchange];
  struct runs *r = &runs[exchange];
  if (!r->known)
    *r = (struct runs){true, gives_runs(&e->move, e->whole), gets_runs(&e->move, e->whole)};
  return r;
}

static bool is_flat(const struct value *v)
{
  return v->shape.ndim == 1 && same_layout(v->layout, (struct layout){0});
}

/* Whether the value lies as the exchange has it on this side, or in a flat buffer where its pieces
   are no runs. */
static bool is_side(const struct exchange *e, const struct value *v, struct layout side, bool runs)
{
  if (v->type != e->type) return false;
  if (!runs) return is_flat(v);
  return same_shape(v->shape, e->whole) && same_layout(v->layout, side);
}

/* Whether among the members of its group all is there that any of them is to have: in every
   dimension, behind the cuts that stay, all are the group's. */
static bool is_complete(const struct exchange *e)
{
  const struct group *g = &graph->group[e->group];
  struct layout from = e->move.from, to = e->move.to;
  for (int d = 0; d < e->whole.ndim; d++) {
    int x[MAX_MESH], y[MAX_MESH], same = 0;
    int n = cuts_of(&graph->mesh, from, d, x), m = cuts_of(&graph->mesh, to, d, y);
    while (same < n && same < m && x[same] == y[same]) same++;
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

static bool is_exchange(const struct step *s)
{
  if (s->op->exchange < 0 || s->op->exchange >= graph->nexchange) return false;
  const struct exchange *e = &graph->exchange[s->op->exchange];
  const struct move *m = &e->move;
  const struct group *g = &graph->group[e->group];
  if (g->n != m->n || memcmp(g->dim, m->dim, (size_t)g->n * sizeof *g->dim)) return false;
  if (!is_complete(e)) return false;
  bool packed = !runs_of(s->op->exchange)->given, unpacked = !runs_of(s->op->exchange)->got;
  switch (s->op->kind) {
  case OP_pack_pieces:
    return packed && is_side(e, s->in, m->from, true) && is_side(e, s->out, m->from, false);
  case OP_unpack_pieces:
    return unpacked && is_side(e, s->in, m->to, false) && is_side(e, s->out, m->to, true);
  default:
    return s->op->group == e->group && is_side(e, s->in, m->from, !packed) &&
           is_side(e, s->out, m->to, !unpacked);
  }
}

static bool is_what_it_says(const struct step *s)
{
  switch (s->op->kind) {
  case OP_all_reduce:
    return is_all_reduce(s);
  case OP_all_gather:
    return is_all_gather(s);
  case OP_reduce_scatter:
    return is_reduce_scatter(s);
  case OP_all_to_all:
    return is_all_to_all(s);
  case OP_slice:
    return is_slice(s);
  case OP_to_partial:
    return is_to_partial(s);
  case OP_pack:
  case OP_unpack:
    return is_packing(s);
  case OP_exchange:
  case OP_pack_pieces:
  case OP_unpack_pieces:
    return is_exchange(s);
  default:
    return true;
  }
}

/* Whether a copy between a value of one type and one of the other is a cast that a bucket does. */
static bool is_copied_as(enum type type, enum type travels)
{
  return type == travels || ((type == F32 || type == BF16) && (travels == F32 || travels == BF16));
}

/* No rank has a larger part of any value than rank 0. */
static int64_t largest_sum(const struct op *bucket)
{
  int64_t sum = 0;
  for (int k = 0; k < bucket->nbody; k++)
    sum += elements(local_shape(graph->op[bucket->body[k]].out, 0));
  return sum;
}

/* One call can do what all members would, on a buffer that holds them. */
static void check_bucket(int id)
{
  const struct op *op = &graph->op[id];
  enum type travels = moved_type(op);
  hold(op->nbody > 1, id, "a bucket of less than two");
  hold(op->packed || op->kind == OP_all_reduce, id, "parts that lie nowhere together");
  for (int k = 0; k < op->nbody; k++) {
    const struct op *m = &graph->op[op->body[k]];
    enum type in = graph->value[m->in[0]].type, out = graph->value[m->out].type;
    hold(m->kind == op->kind && m->group == op->group && m->reduction == op->reduction, id,
         "a member is of another kind");
    hold(op->packed ? is_copied_as(in, travels) && is_copied_as(out, travels)
                    : in == travels && out == travels,
         id, "a member is of another type");
    hold(graph->value[m->in[0]].order == graph->value[m->out].order, id,
         "a member lies otherwise after than before");
    for (int j = 0; j < op->nbody; j++)
      hold(m->in[0] != graph->op[op->body[j]].out, id, "a member needs another");
  }
  if (!op->packed) return;
  int64_t room = elements(graph->value[op->buffer].shape);
  hold(graph->value[op->buffer].role == ACTIVATION && graph->value[op->buffer].op == id, id,
       "its buffer is another's");
  hold(room == (op->kind == OP_all_reduce ? largest_sum(op)
                                          : group_size(op->group) * bucket_chunk(op, op->nbody)),
       id, "its buffer does not fit its members");
}

/* In a packed bucket a member may lie in any order: it is copied. */
static void check_step(int id, bool is_copied)
{
  const struct op *op = &graph->op[id];
  bool is_bucket = is_collective(op->kind) && op->nbody;
  if (is_bucket) check_bucket(id);
  for (int k = 0; k < op->nbody; k++) check_step(op->body[k], is_bucket && op->packed);
  hold(is_copied || is_bucket || is_arranged(op), id,
       "its operands lie in orders that it does not take");
  if (op->nbody || op->out == NONE || op->nin != 1) return;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  struct step s = {op, in, out, in->layout, out->layout, NULL};
  if (is_collective(op->kind) || op->kind == OP_pack || op->kind == OP_unpack) {
    hold(op->group >= 0 && op->group < graph->ngroup, id, "it has no group");
    s.group = &graph->group[op->group];
  }
  if (!is_what_it_says(&s))
    bug(now, id, "%s -> %s over %s is not what a step of its kind does", layout_text(s.from),
        layout_text(s.to), s.group ? s.group->name : "itself");
}

static void check_step_of_program(void *unused, int id, int times)
{
  (void)unused, (void)times;
  check_step(id, false);
}

/* ---------------------------------------------------------------------------------- the layouts */

static bool no_sum_left(int value)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->value[value].layout.on[d].kind == PARTIAL) return false;
  return true;
}

static bool has_usual_turns(const struct layout *layout)
{
  bool turned = false;
  for (int d = 0; d < graph->mesh.ndim; d++) turned |= layout->on[d].turn != 0;
  struct layout usual = turned ? usual_turns(*layout) : *layout;
  for (int d = 0; d < graph->mesh.ndim && turned; d++)
    if (usual.on[d].turn != layout->on[d].turn) return false;
  return true;
}

/* Of a gradient, and of what leaves the program. */
static void check_end(int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == GRADIENT)
    hold(same_layout(v->layout, graph->value[v->of].layout) ||
             (graph->accumulate > 1 && as_large(v->layout, graph->value[v->of].layout)),
         v->op, "a gradient does not lie as its parameter");
  if (value == graph->loss || v->role == NORM || v->is_output)
    hold(no_sum_left(value), v->op, "a pending sum is left in it");
}

/* --------------------------------------------------------------------------------- the programs */

static bool is_laid_out(enum pass after)
{
  return after >= PASS_PROPAGATE && after <= PASS_ARRANGE;
}

/* There are many values and operations: each is looked at once, for all that is to be seen. */
static void check_values(enum pass after, struct list *ends)
{
  bool laid_out = is_laid_out(after);
  make_marks();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    sane_links(v);
    uint64_t mark = mark_of_value(v, laid_out);
    if (marks.value[i] != mark) {
      marks.value[i] = mark;
      sane_form(v);
      hold(!laid_out || !v->placed || has_usual_turns(&v->layout), v->op,
           "its turns are not told as usual");
    }
    if (!laid_out) continue;
    if (v->role == GRADIENT || v->role == NORM || v->is_output || i == graph->loss) add(ends, i);
  }
}

static void check_op(enum pass after, int id, bool *made, struct list *changed)
{
  sane_op(id);
  run(id, made);
  hold(after < PASS_REDISTRIBUTE || graph->op[id].kind != OP_redistribute, id,
       "a redistribution is left");
  if (!is_laid_out(after)) return;
  /* What was found true of it, and of what it takes and makes, is so as long as they stay. */
  uint64_t mark = mark_of_op(&graph->op[id], after >= PASS_REDISTRIBUTE);
  if (marks.op[id] == mark && !graph->op[id].nbody) return;
  marks.op[id] = mark;
  check_placed(id);
  add(changed, id);
}

static void check_flat(enum pass after, bool *made)
{
  struct list ends = {0}, changed = {0};
  check_values(after, &ends);
  /* Those that no pass will run are looked at where they come from another process. */
  for (int i = 0; i < graph->nop && after == PASS_LUA; i++) sane_op(i);
  for (int i = 0; i < graph->norder; i++) check_op(after, graph->order[i], made, &changed);
  for (int i = 0; i < ends.n; i++) check_end(ends.at[i]);
  for (int i = 0; i < changed.n && after >= PASS_REDISTRIBUTE; i++)
    check_step(changed.at[i], false);
}

/* Once equal modules are folded, what only the others of a list do is looked at no more. */
static void check_folded(enum pass after, bool *made)
{
  struct list ends = {0};
  if (after == PASS_OUTLINE) check_values(after, &ends);
  each_op(sane_in_program, NULL);
  if (after >= PASS_FUSE) mark_constants(made);
  each_op(run_in_program, made);
  each_op(check_step_of_program, NULL);
}

/* ---------------------------------------------------------------------- what is computed again */

/* The module of the outermost ModuleList in which `module` lies, or NONE. */
static int layer_of(int module)
{
  int layer = NONE;
  for (int parent; module != NONE; module = parent) {
    parent = graph->module[module].parent;
    if (parent != NONE && !strcmp(graph->module[parent].class_name, "ModuleList")) layer = module;
  }
  return layer;
}

/* Whether the backward keeps the value for the module of a list that made it. */
static bool is_kept_inside(int value, const struct op *reader)
{
  const struct value *v = &graph->value[value];
  if (v->role != ACTIVATION || v->is_output || v->op == NONE) return false;
  const struct op *maker = &graph->op[v->op];
  if (gathers(maker) && !reshards(maker)) return false;
  return maker->phase == FORWARD && layer_of(reader->module) != NONE &&
         layer_of(reader->module) == layer_of(maker->module);
}

static void check_recomputed(void)
{
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    hold(!op->again || op->phase == BACKWARD, id, "what is computed again is not in the backward");
    if (!graph->checkpoint)
      hold(!op->again || is_cheap(op), id, "it is not cheap to compute again");
    for (int i = 0; i < op->nin && graph->checkpoint && op->phase == BACKWARD; i++)
      hold(!is_kept_inside(op->in[i], op), id, "it reads what is not to be kept");
  }
}

/* The parameters of a module and of all below it follow one another: the structs of names.c, and
   the runs that bucket and fuse make, rely on it. */
static bool is_under(int value, int module)
{
  for (int m = graph->value[value].module; m != NONE; m = graph->module[m].parent)
    if (m == module) return true;
  return false;
}

static void check_parameter_order(void)
{
  bool *ended = alloc((size_t)graph->nmodule + 1); /* by module: all of its parameters were there */
  int before = NONE;
  for (int v = 0; v < graph->nvalue; v++) {
    if (graph->value[v].role != PARAMETER) continue;
    for (int m = before == NONE ? NONE : graph->value[before].module; m != NONE;
         m = graph->module[m].parent)
      ended[m] |= !is_under(v, m);
    for (int m = graph->value[v].module; m != NONE; m = graph->module[m].parent)
      hold(!ended[m], NONE, "the parameters do not stand in the order of the modules");
    before = v;
  }
}

/* A fused operation is one that a kernel can run: what it reads of its own is there by then. */
static void check_kernel(void *unused, int id, int times)
{
  struct stages stages;
  (void)unused, (void)times;
  const struct op *op = &graph->op[id];
  if (op->kind == OP_fused)
    hold(find_stages(op->body, op->nbody, &stages), id, "no kernel can run what is fused in it");
  if (op->kind != OP_epilogue) return;
  const struct op *product = &graph->op[op->body[0]];
  hold(product->kind == OP_matmul && op->nbody > 1, id, "an epilogue of no product");
  struct epilogue e = epilogue_of(op);
  hold(e.function == OP_matmul || !graph->value[product->out].stored, id,
       "what a function is applied to is stored, and not as what is kept");
  hold(graph->value[e.result].stored, id, "the result is not stored");
}

static void check_memory(void)
{
  struct list placed = {0};
  for (int i = 0; i < graph->nvalue; i++)
    if (in_arena(i) && graph->value[i].storage == i) add(&placed, i);
  for (int i = 0; i < placed.n; i++) {
    const struct value *a = &graph->value[placed.at[i]];
    int64_t end = a->offset + arena_size(placed.at[i]);
    hold(a->offset >= 0 && end <= graph->arena_bytes, a->op, "a value lies outside the arena");
    for (int k = 0; k < i; k++) {
      const struct value *b = &graph->value[placed.at[k]];
      bool live = a->first <= b->last && b->first <= a->last;
      bool apart = end <= b->offset || b->offset + arena_size(placed.at[k]) <= a->offset;
      hold(!live || apart, a->op, "two values that live at once overlap");
    }
  }
}

/* The numbers of the training are what train.lua lets through. */
static void check_training(void)
{
  const struct rates *r = &graph->rates;
  hold(graph->accumulate >= 1 && graph->accumulate <= 4096, NONE, "a step takes no batches");
  hold(graph->ncap >= 0 && graph->ncap <= MAX_CAPS && graph->bucketing <= BUCKETS_NONE, NONE,
       "buckets are made in no way");
  for (int i = 0; i < graph->ncap; i++)
    hold(graph->cap[i] > 0, NONE, "a bucket has room for nothing");
  hold(graph->clip >= 0 && graph->clip <= DBL_MAX, NONE, "gradients are clipped to no number");
  hold(r->warmup >= 0 && r->warmup <= r->steps && r->least >= 0 && r->least <= 1, NONE,
       "the learning rate goes nowhere");
}

/* They come from another process. */
static void check_units(void)
{
  unsigned all = (1u << graph->mesh.ndim) - 1;
  for (int i = 0; i < graph->nunit; i++) {
    const struct unit *u = &graph->unit[i];
    hold((u->shards | u->copies) && !(u->shards & u->copies) && !((u->shards | u->copies) & ~all),
         NONE, "a unit lies over no dimension of the mesh");
    hold(!(u->again & ~u->shards), NONE, "a unit is gathered again where it is not cut");
    hold(u->module >= 0 && u->module < graph->nmodule, NONE, "a unit has no module");
    hold(u->dim >= -MAX_DIMS && u->dim <= ANY_DIM, NONE, "a unit is cut nowhere");
  }
  for (int i = 0; i < graph->nvalue; i++)
    hold(graph->value[i].unit >= NONE && graph->value[i].unit < graph->nunit, NONE,
         "a value is of no unit that there is");
  for (int m = 0; m < graph->nmodule; m++)
    hold(graph->module[m].unit >= NONE && graph->module[m].unit < graph->nunit, NONE,
         "a module is of no unit that there is");
}

void check(enum pass after)
{
  now = pass_name[after];
  runs = alloc((size_t)(graph->nexchange + 1) * sizeof *runs);
  bool *made = alloc((size_t)graph->nvalue + 1);
  if (after < PASS_OUTLINE)
    check_flat(after, made);
  else
    check_folded(after, made);
  if (graph->loss != NONE) hold(made[graph->loss], NONE, "the loss is not made");
  if (after == PASS_LUA) check_parameter_order();
  if (after == PASS_LUA) check_training();
  if (after == PASS_LUA) check_units();
  if (after == PASS_RECOMPUTE) check_recomputed();
  if (after >= PASS_PIPELINE) check_in_pieces();
  if (after >= PASS_FUSE) each_op(check_kernel, NULL);
  if (after == PASS_MEMORY) check_memory();
  if (after == PASS_MEMORY) check_pending();
}
