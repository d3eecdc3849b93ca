/* accumulate.c: gradients of steps with several batches. Each gradient is added in place to the sum
   of the batches before, in the layout in which the backward leaves it. A gradient that is pending
   over ranks is reduced once, beside the last batch's backward or in the update. For parameters
   that are sharded over ranks (fully_shard, zero) each batch's gradients are reduced, and the parts
   are accumulated; or the whole gradients, still pending, are accumulated in values with the role
   SUMS and reduced to parts at the end: fewer collectives, more memory. The plan says which, or
   driver/reductions.c decides. */
#include "graph_passes/graph_passes.h"

/* The state of accumulate_gradients. */
struct accumulating {
  const int *readers; /* by value: the number of operations that read it */
  bool *unused;       /* by operation: nothing needs it any more */
};

static void set_as_sum(int value, const struct summand *s)
{
  struct value *v = &graph->value[value];
  v->role = s->role;
  v->of = s->of;
  v->name = s->name;
  v->layout = over_time(graph->value[s->value].layout);
  v->placed = true;
}

/* An operation that adds it to the sum `before`. */
static int add_behind(int before, const struct summand *s)
{
  struct op sum = {.kind = OP_add, .nin = 2, .phase = s->phase, .line = s->line};
  sum.module = outside_scans(graph->value[s->value].module);
  sum.in[0] = before;
  sum.in[1] = s->value;
  int id = make_op(sum);
  set_as_sum(graph->op[id].out, s);
  return id;
}

int add_to_sum(const struct summand *s)
{
  struct value v = graph->value[s->value];
  int before = add_value(s->role, s->name, v.type, v.shape, outside_scans(v.module), s->line);
  set_as_sum(before, s);
  return add_behind(before, s);
}

static struct summand gradient_of(int gradient, int of, enum role role)
{
  struct summand s = {.value = gradient, .of = of, .role = role, .phase = BACKWARD};
  s.name = text("d_%s", graph->value[of].name);
  s.line = graph->value[gradient].line;
  return s;
}

/* An operation that adds this batch's gradient to the sum of the batches before. */
static int added_up(int gradient, int of, enum role role)
{
  struct summand s = gradient_of(gradient, of, role);
  return add_to_sum(&s);
}

/* Whether an operation of the backward makes the value, for one reader only. */
static const struct op *made_for_one(struct accumulating *a, int value)
{
  const struct value *v = &graph->value[value];
  const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
  return op && op->phase == BACKWARD && a->readers[value] == 1 && v->role == ACTIVATION ? op : NULL;
}

/* The value that the backward makes before it is moved for no other use than as the gradient.
   Consecutive redistributions count as one move, with the casts between them. The operations of
   the move are listed. */
static int unmoved(struct accumulating *a, int value, struct list *way)
{
  int from = value, nway = 0;
  for (const struct op *op; (op = made_for_one(a, value));) {
    if (op->kind != OP_redistribute && op->kind != OP_cast) break;
    add(way, graph->value[op->out].op);
    value = op->in[0];
    if (op->kind == OP_cast) continue;
    from = value;
    nway = way->n;
  }
  way->n = nway;
  return from;
}

/* The layout in which gradients of batches are accumulated: a pending dimension stays pending if
   the gradient is not cut there in the end, or if the reduction shall wait. */
static struct layout while_added(struct layout from, struct layout to, unsigned waits)
{
  struct layout between = to;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == PARTIAL && (to.on[d].kind != SHARD || waits >> d & 1))
      between.on[d] = from.on[d];
  return usual_cut_order(between);
}

/* Appends an operation of the backward on a gradient. */
static int appended(struct op op, int gradient, const struct op *like, struct list *order)
{
  op.nin = 1;
  op.in[0] = gradient;
  op.phase = BACKWARD;
  op.module = like->module;
  op.line = like->line;
  op.of_unit = like->of_unit;
  op.unit = like->unit;
  int id = make_op(op), out = graph->op[id].out;
  graph->value[out].name = graph->value[gradient].name;
  graph->value[out].placed = true;
  add(order, id);
  return out;
}

/* The layout of a micro-batch's term of a sum in that layout. */
static struct layout as_term(struct layout sum)
{
  if (time_dimension() != NONE)
    sum.on[time_dimension()] = (struct placement){.kind = PARTIAL, .reduction = SUM};
  return sum;
}

static int cast_to(enum type type, int gradient, const struct op *like, struct list *order)
{
  if (graph->value[gradient].type == type) return gradient;
  struct op op = {.kind = OP_cast, .type = type};
  int out = appended(op, gradient, like, order);
  graph->value[out].layout = graph->value[gradient].layout;
  return out;
}

static int moved_to(struct layout to, int gradient, const struct op *like, struct list *order)
{
  if (same_layout_but_units(graph->value[gradient].layout, to)) return gradient;
  struct op op = {.kind = OP_redistribute, .type = like->type, .backward_type = like->type};
  op.to = to;
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.why = like->why;
  int out = appended(op, gradient, like, order);
  graph->value[out].type = graph->value[gradient].type;
  graph->value[out].layout = to;
  return out;
}

static void leave_out(struct accumulating *a, const struct list *way)
{
  for (int i = 0; i < way->n; i++) a->unused[way->at[i]] = true;
}

/* Whether the batches' gradients wait for all of their reductions, not only for some. */
static bool waits_for_all(struct layout from, struct layout between)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == PARTIAL && between.on[d].kind != PARTIAL) return false;
  return true;
}

/* The operation brings the sum of all batches to the parameter's layout. Where a collective can
   overlap with arithmetic it does so in the backward of the last batch, as soon as the sum is
   complete; else in the update. There, too, where each batch's gradients are reduced over other
   dimensions of the mesh: the two would hinder each other. */
static int brought_to(int id, int sum, bool waits, struct layout to, struct list *order,
                      struct list *later)
{
  struct op *op = &graph->op[id];
  op->in[0] = sum;
  op->last_batch = waits && collectives_overlap() && !graph->stages;
  op->phase = op->last_batch ? BACKWARD : UPDATE;
  op->to = graph->value[op->out].layout = to;
  add(op->last_batch ? order : later, id);
  return op->out;
}

/* ---------------------------------------------------------------- a parameter of several stages */

/* Whether one stage makes the value. If *stage is NONE, sets it to that stage. An operation that
   `propagate` has added has no stage yet: it counts for the stages that make its inputs. */
static bool is_of_one_stage(int value, int *stage)
{
  const int maker = graph->value[value].op, own = maker == NONE ? NONE : stage_of(maker);
  if (maker == NONE) return true;
  bool one = own == NONE || *stage == NONE || own == *stage;
  if (own != NONE)
    *stage = own;
  else
    for (int i = 0; i < graph->op[maker].nin; i++)
      one &= is_of_one_stage(graph->op[maker].in[i], stage);
  return one;
}

/* The stage that makes the value; NONE if none does, or several do. */
static int made_by_stage(int value)
{
  int stage = NONE;
  return is_of_one_stage(value, &stage) ? stage : NONE;
}

/* The terms of a gradient that several stages make together, one of each stage; and the additions.
   False: one stage makes it, or its terms are mixed otherwise. */
static bool find_terms(struct accumulating *a, int value, struct list *terms,
                       struct list *additions)
{
  const struct op *op = made_for_one(a, value);
  if (op && op->kind == OP_add) {
    add(additions, graph->value[value].op);
    return find_terms(a, op->in[0], terms, additions) && find_terms(a, op->in[1], terms, additions);
  }
  int stage = made_by_stage(value);
  for (int i = 0; i < terms->n; i++)
    if (made_by_stage(terms->at[i]) == stage) return false;
  add(terms, value);
  return stage != NONE;
}

/* A gradient that several stages make: the stages of a rank accumulate their terms in one sum. In
   the update the others send their sums to the stage that has the parameter. */
struct shared_gradient {
  int of, owner; /* the stage that has the parameter */
  enum type type;
  struct layout to, between;
  struct list terms;
  const struct op *end;
};

static int coordinate_of_term(const struct shared_gradient *g, int term)
{
  return coordinate_of_stage(made_by_stage(g->terms.at[term]));
}

/* Adds one of its terms to the sum of the micro-batches, after the term of the stage `before`, if
   it has one. */
static int sum_of_term(const struct shared_gradient *g, int term, int before, struct list *order)
{
  int stage = made_by_stage(g->terms.at[term]), first = graph->nop;
  bool is_owner = coordinate_of_term(g, term) == coordinate_of_stage(g->owner);
  int value = cast_to(g->type, g->terms.at[term], g->end, order);
  value = moved_to(as_term(g->between), value, g->end, order);
  struct summand s =
      gradient_of(value, g->of, is_owner && same_local_shape(g->between, g->to) ? GRADIENT : SUMS);
  int sum = before == NONE ? add_to_sum(&s) : add_behind(before, &s);
  add(order, sum);
  for (int id = first; id < graph->nop; id++) set_stage(id, stage);
  return graph->op[sum].out;
}

/* The sum of the terms that ranks at this coordinate make, those of later stages first, as the
   backward goes; or NONE. */
static int sum_at(const struct shared_gradient *g, int coordinate, struct list *order)
{
  int sum = NONE;
  for (int stage = graph->stages->n; stage-- > 0;)
    for (int i = 0; i < g->terms.n; i++)
      if (made_by_stage(g->terms.at[i]) == stage && coordinate_of_term(g, i) == coordinate)
        sum = sum_of_term(g, i, sum, order);
  return sum;
}

/* The sum of all terms, which the update makes. */
static int sum_of_terms(const struct shared_gradient *g, struct list *order, struct list *later)
{
  int owner = coordinate_of_stage(g->owner), sum = sum_at(g, owner, order);
  for (int c = 0; c < graph->mesh.size[graph->stages->mesh_dim]; c++) {
    int other = c == owner ? NONE : sum_at(g, c, order);
    if (other == NONE) continue;
    struct op op = {.kind = OP_add, .nin = 2, .phase = UPDATE, .module = NONE};
    op.line = g->end->line;
    op.in[0] = sum;
    op.in[1] = other;
    int id = make_op(op), out = graph->op[id].out;
    struct value *v = &graph->value[out];
    v->role = graph->value[sum].role;
    v->of = g->of;
    v->name = graph->value[sum].name;
    v->layout = graph->value[sum].layout;
    v->placed = true;
    set_stage(id, g->owner);
    add(later, id);
    sum = out;
  }
  return sum;
}

/* Operation `id` brings a gradient to its parameter's layout. Its reductions over ranks apply to
   the sum of the batches. Its cuts stay before the accumulation, unless
   they shall wait. Returns the parameter's gradient. */
static int accumulate(struct accumulating *a, int id, struct list *order, struct list *later)
{
  const struct op end = graph->op[id];
  int of = graph->value[end.out].of;
  struct list way = {0};
  int in = unmoved(a, end.in[0], &way);
  enum type type = graph->value[end.out].type;
  struct layout from = over_time(graph->value[in].layout);
  struct layout to = over_time(graph->value[end.out].layout);
  /* The mesh dimensions over which the batches' gradients wait to be reduced and cut. */
  int unit = graph->value[of].unit;
  unsigned int waits_over =
      unit != NONE && graph->unit[unit].sums_whole ? graph->unit[unit].shards : 0;
  struct layout between = while_added(from, to, waits_over);
  struct shared_gradient shared = {of, NONE, type, to, between, {0}, &end};
  struct list additions = {0};
  bool is_shared = false;
  if (graph->stages && find_terms(a, in, &shared.terms, &additions) && shared.terms.n >= 2) {
    shared.owner = stages_of_parameters()[shared.of];
    is_shared = false;
    for (int i = 0; i < shared.terms.n && !is_shared; i++)
      is_shared = made_by_stage(shared.terms.at[i]) == shared.owner;
  }
  if (is_shared) {
    leave_out(a, &way);
    leave_out(a, &additions);
    int sum = sum_of_terms(&shared, order, later);
    if (!same_layout_but_units(between, to)) return brought_to(id, sum, false, to, order, later);
    graph->value[end.out].role = ACTIVATION;
    return sum;
  }
  if (same_layout_but_units(between, to)) {
    bool stays = same_layout_but_units(from, to) && graph->value[in].type == type;
    if (stays)
      leave_out(a, &way);
    else
      add(order, id);
    int sum = added_up(stays ? in : end.out, of, GRADIENT);
    add(order, sum);
    graph->value[end.out].role = ACTIVATION;
    return graph->op[sum].out;
  }
  leave_out(a, &way);
  in = moved_to(as_term(between), cast_to(type, in, &end, order), &end, order);
  int sum = added_up(in, of, same_local_shape(between, to) ? GRADIENT : SUMS);
  add(order, sum);
  return brought_to(id, graph->op[sum].out, waits_for_all(from, between), to, order, later);
}

void accumulate_gradients(int *gradient)
{
  struct list order = {0}, later = {0};
  struct accumulating run = {count_readers(), alloc((size_t)graph->nop + 1)}, *a = &run;
  int nop = graph->nop;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    int of = op->kind == OP_redistribute && graph->value[op->out].role == GRADIENT
                 ? graph->value[op->out].of
                 : NONE;
    if (of == NONE)
      add(&order, graph->order[i]);
    else
      gradient[of] = accumulate(a, graph->order[i], &order, &later);
  }
  graph->norder = 0;
  graph->order = NULL;
  graph->order_room = 0;
  for (int i = 0; i < order.n; i++)
    if (order.at[i] >= nop || !a->unused[order.at[i]]) append_to_order(order.at[i]);
  for (int i = 0; i < later.n; i++) append_to_order(later.at[i]);
}

/* ---------------------------------------------------------------------- products add themselves */

static void add_products_of(const int *readers, struct function *f)
{
  int kept = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *add = &graph->op[f->op[k]];
    /* The product that only this addition reads, and that is made directly before it; or NONE. */
    int product = NONE;
    if (add->kind == OP_add && is_gradient(add->out)) {
      const struct value *before = &graph->value[add->in[0]], *part = &graph->value[add->in[1]];
      product = NONE;
      if (is_gradient(add->in[0]) && before->op == NONE && readers[add->in[1]] == 1 &&
          part->op != NONE && graph->op[part->op].kind == OP_matmul && part->role == ACTIVATION &&
          part->order == graph->value[add->out].order && !part->pieces)
        for (int i = 0; i < f->nop && product == NONE; i++)
          if (f->op[i] == part->op) product = part->op;
    }
    if (product == NONE) {
      f->op[kept++] = f->op[k];
      continue;
    }
    struct op *op = &graph->op[product];
    op->in[op->nin++] = add->in[0];
    op->out = add->out;
    graph->value[op->out].op = product;
  }
  f->nop = kept;
}

/* The product that makes the value for only one reader; or NONE. In bfloat16 a kernel that adds
   rounds less often. */
static int product_for_one(const int *readers, const struct function *f, int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || readers[value] != 1 || v->role != ACTIVATION || v->is_output) return NONE;
  const struct op *op = &graph->op[v->op];
  if (op->kind != OP_matmul || op->pieces || v->type != F32) return NONE;
  return runs_at(f, v->op);
}

/* Whether the two have one shape, and equal places on every rank. */
static bool have_equal_places(int a, int b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  return v->type == w->type && same_shape(v->shape, w->shape) && v->order == w->order &&
         v->is_separate == w->is_separate && same_layout(v->layout, w->layout);
}

/* In a sum of two products the later one adds itself to the earlier one: mostly in the gradient of
   an input of several products. */
static bool add_to_earlier(const int *readers, struct function *f, const struct op *add)
{
  if (add->kind != OP_add || graph->value[add->out].role != ACTIVATION) return false;
  int earlier = product_for_one(readers, f, add->in[0]),
      later = product_for_one(readers, f, add->in[1]);
  if (earlier == NONE || later == NONE || earlier == later) return false;
  if (!have_equal_places(add->in[0], add->in[1]) || !have_equal_places(add->in[0], add->out))
    return false;
  if (graph->value[add->out].is_output) return false;
  int first = add->in[earlier > later];
  struct op *op = &graph->op[f->op[earlier > later ? earlier : later]];
  if (op->nin != 2) return false;
  op->in[op->nin++] = first;
  op->out = add->out;
  graph->value[op->out].op = (int)(op - graph->op);
  return true;
}

/* In a scan, the product adds itself to the sum of the steps before. */
static bool add_to_step_before(const int *readers, struct function *f, const struct op *add)
{
  if (add->kind != OP_add || add->nout != 1) return false;
  int sum = add->in[0], product = product_for_one(readers, f, add->in[1]);
  const struct in_loop *loop = in_loop(sum);
  if (product == NONE || !loop->step || loop->stack != add->out || readers[sum] != 1) return false;
  struct op *op = &graph->op[f->op[product]];
  if (op->nin != 2 || !have_equal_places(sum, add->out) || !have_equal_places(add->in[1], add->out))
    return false;
  op->in[op->nin++] = sum;
  op->out = add->out;
  graph->value[op->out].op = (int)(op - graph->op);
  return true;
}

void add_products_in_place(void)
{
  const int *readers = count_readers();
  for (int i = 0; i < graph->nfunction; i++) {
    if (runs_in_step() > 1) add_products_of(readers, &graph->function[i]);
    struct function *f = &graph->function[i];
    int kept = 0;
    for (int k = 0; k < f->nop; k++)
      if (!add_to_earlier(readers, f, &graph->op[f->op[k]]) &&
          !add_to_step_before(readers, f, &graph->op[f->op[k]]))
        f->op[kept++] = f->op[k];
    f->nop = kept;
  }
}
