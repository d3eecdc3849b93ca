/* merge.c: several collectives as one, for the pass `bucket`.

   Takes   collectives of a function that are of one kind (same_kind).
   Leaves  one operation in their place, whose body is the members that it stands for. Where they
           travel in a buffer the members take in what stands around them: a cast before or behind
           it is done by the copy into the buffer or out of it, and so is what packs the parts one
           after the other, or unpacks them: a member reads and writes values that lie as their
           dimensions do.

   A gather stands where the first of its members stood, and what the others need is brought before
   it; a reduction stands where the last did, and what needs the others goes behind it. */
#include "bucket.h"

#include <limits.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- dependences */

/* What the operations read and write that have to stay in their order, by value: one of a family
   speaks for all of it. */
struct touched {
  bool *read, *written, found;
};

int speaker(int value)
{
  int family = graph->value[value].family;
  return family == NONE ? value : family;
}

typedef void visitor(void *to, int value, bool writes);

static void visit_op(const struct op *op, visitor *visit, void *to)
{
  static int *list, room;
  if (op->kind == OP_loop) {
    const struct function *body = &graph->function[op->function];
    for (int i = 0; i < body->nop; i++) visit_op(&graph->op[body->op[i]], visit, to);
    return;
  }
  while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
  for (int n = op_reads(op, list); n--;) {
    visit(to, speaker(list[n]), false);
    if (graph->value[list[n]].step) visit(to, speaker(graph->value[list[n]].initial), false);
  }
  for (int k = 0; k < op->nout; k++) visit(to, speaker(op->out + k), true);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    visit(to, speaker(inner->out == NONE ? inner->in[0] : inner->out), true);
  }
  if (op->out == NONE && op->nin) visit(to, speaker(op->in[0]), true);
}

static void note(void *touched, int value, bool writes)
{
  struct touched *t = touched;
  *(writes ? &t->written[value] : &t->read[value]) = true;
}

static void look_up(void *touched, int value, bool writes)
{
  struct touched *t = touched;
  t->found |= t->written[value] || (writes && t->read[value]);
}

/* Whether the operation and what is noted have to stay in their order. */
static bool depends(const struct op *op, struct touched *t)
{
  t->found = false;
  visit_op(op, look_up, t);
  return t->found;
}

static bool is_among(const int *list, int n, int id)
{
  for (int i = 0; i < n; i++)
    if (list[i] == id) return true;
  return false;
}

/* Whether the members can run as one: at the place of the last, or, where they gather, of the
   first. What depends on the others of those between, or they on it, goes to its other side. Leaves
   the order, in which that member stands for all. */
static bool gather(const struct function *f, const int *member, int n, struct list *order)
{
  struct touched t = {.read = alloc((size_t)graph->nvalue + 1),
                      .written = alloc((size_t)graph->nvalue + 1)};
  struct list beyond = {0};
  bool back = graph->op[member[0]].kind == OP_all_gather; /* from the last to the first */
  int left = n;
  for (int i = 0; i < f->nop; i++) {
    int id = f->op[back ? f->nop - 1 - i : i];
    const struct op *op = &graph->op[id];
    bool mine = is_among(member, n, id), between = left > 0 && left < n;
    if (mine && (back ? t.read[speaker(op->out)] : t.written[speaker(op->in[0])])) return false;
    bool goes_beyond = !mine && between && depends(op, &t);
    if (mine || goes_beyond) visit_op(op, note, &t);
    left -= mine;
    if (goes_beyond)
      add(&beyond, id);
    else if (!mine || !left)
      add(order, id);
    for (int k = 0; k < beyond.n && mine && !left; k++) add(order, beyond.at[k]);
  }
  for (int i = 0, k = order->n - 1; i < k && back; i++, k--) {
    int id = order->at[i];
    order->at[i] = order->at[k];
    order->at[k] = id;
  }
  return true;
}

bool can_merge(const struct function *f, const int *member, int n)
{
  struct list order = {0};
  return gather(f, member, n, &order);
}

/* By value which of the singles have to be there before it, a bit for each; and of the operation
   under work. */
struct ancestry {
  uint64_t **of, *now;
  int words;
};

static void collect(void *ancestry, int value, bool writes)
{
  struct ancestry *a = ancestry;
  (void)writes;
  for (int i = 0; i < a->words && a->of[value]; i++) a->now[i] |= a->of[value][i];
}

static void hand_on(void *ancestry, int value, bool writes)
{
  struct ancestry *a = ancestry;
  if (!writes) return;
  if (!a->of[value]) a->of[value] = alloc((size_t)a->words * sizeof **a->of);
  for (int i = 0; i < a->words; i++) a->of[value][i] |= a->now[i];
}

static bool *as_flags(const uint64_t *bits, int n)
{
  bool *flag = alloc((size_t)n);
  for (int i = 0; i < n; i++) flag[i] = bits[i / 64] >> i % 64 & 1;
  return flag;
}

void find_needs(const struct function *f, const int *op, struct single *s, int n)
{
  struct ancestry a = {.words = n / 64 + 1};
  a.of = alloc((size_t)(graph->nvalue + 1) * sizeof *a.of);
  a.now = alloc((size_t)a.words * sizeof *a.now);
  for (int i = 0, k = 0; i < f->nop && k < n; i++) {
    for (int w = 0; w < a.words; w++) a.now[w] = 0;
    visit_op(&graph->op[f->op[i]], collect, &a);
    if (f->op[i] == op[k]) {
      s[k].needs = as_flags(a.now, n);
      a.now[k / 64] |= UINT64_C(1) << k % 64;
      k++;
    }
    visit_op(&graph->op[f->op[i]], hand_on, &a);
  }
}

/* ----------------------------------------------------------------------- what a member takes in */

int readers_of(int value, int *last)
{
  int count = 0, family = graph->value[value].family;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      int id = graph->function[i].op[k];
      const struct op *op = &graph->op[id];
      const int *body = op->nbody ? op->body : &id;
      for (int n = 0; n < (op->nbody ? op->nbody : 1); n++)
        for (int j = 0; j < graph->op[body[n]].nin; j++) {
          int in = graph->op[body[n]].in[j];
          if (in != value && (family == NONE || graph->value[in].family != family)) continue;
          count++;
          *last = id;
        }
    }
  return count;
}

static bool is_cast(const struct op *op)
{
  enum type from = graph->value[op->in[0]].type, to = graph->value[op->out].type;
  return op->kind == OP_cast && (from == F32 || from == BF16) && (to == F32 || to == BF16);
}

static bool keeps_order(const struct op *op)
{
  return graph->value[op->in[0]].order == graph->value[op->out].order;
}

/* The operation of this function that makes what the collective takes, if that is of the kind. */
static int maker_of(const struct function *f, int value, enum op_kind kind)
{
  int id = graph->value[value].op;
  if (runs_at(f, id) == NONE || graph->op[id].kind != kind || !keeps_order(&graph->op[id]))
    return NONE;
  return kind != OP_cast || is_cast(&graph->op[id]) ? id : NONE;
}

/* The one that takes what the collective makes, if nothing else does and it is of the kind. */
static int taker_of(const struct function *f, int value, enum op_kind kind)
{
  const struct value *v = &graph->value[value];
  int id = NONE;
  if (v->role != ACTIVATION || v->is_output || readers_of(value, &id) != 1) return NONE;
  if (runs_at(f, id) == NONE || graph->op[id].kind != kind || !keeps_order(&graph->op[id]))
    return NONE;
  return kind != OP_cast || is_cast(&graph->op[id]) ? id : NONE;
}

bool is_mergeable(const struct function *f, int id)
{
  const struct op *op = &graph->op[id];
  int maker = graph->value[op->in[0]].op, reader = NONE;
  if (op->nbody || op->pieces) return false;
  if (op->kind == OP_reduce_scatter && runs_at(f, maker) != NONE &&
      graph->op[maker].kind == OP_pack)
    return maker_of(f, op->in[0], OP_pack) != NONE;
  if (op->kind != OP_all_gather || !readers_of(op->out, &reader)) return true;
  return graph->op[reader].kind != OP_unpack || taker_of(f, op->out, OP_unpack) != NONE;
}

/* The collective as a member of a packed bucket: with the casts and packings around it. Those whose
   values nobody reads any more are added to `gone`, if nobody else does. */
static int with_surroundings(const struct function *f, int id, struct list *gone)
{
  struct op op = graph->op[id];
  if (op.kind == OP_reduce_scatter) {
    int pack = maker_of(f, op.in[0], OP_pack);
    if (pack != NONE) add(gone, pack), op.in[0] = graph->op[pack].in[0];
  }
  int cast = maker_of(f, op.in[0], OP_cast);
  if (cast != NONE) add(gone, cast), op.in[0] = graph->op[cast].in[0];
  int behind = taker_of(f, op.out, op.kind == OP_all_gather ? OP_unpack : OP_cast);
  if (behind != NONE) add(gone, behind), op.out = graph->op[behind].out;
  if (op.in[0] == graph->op[id].in[0] && op.out == graph->op[id].out) return id;
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  graph->value[op.out].op = graph->nop;
  return graph->nop++;
}

/* Takes out of the function what has been taken in, but for what others still read. */
static void leave_out(struct function *f, const struct list *gone)
{
  for (int i = 0; i < gone->n; i++) {
    int reader, kept = 0;
    const struct op *op = &graph->op[gone->at[i]];
    const struct value *v = &graph->value[op->out];
    bool is_made_here = v->op == gone->at[i];
    if (is_made_here && (v->is_output || readers_of(op->out, &reader))) continue;
    for (int k = 0; k < f->nop; k++)
      if (f->op[k] != gone->at[i]) f->op[kept++] = f->op[k];
    f->nop = kept;
  }
}

/* ----------------------------------------------------------------------------------- the bucket */

/* Room for the members' parts: of a reduction those of a rank, one after the other; else a chunk
   for each of the group. No rank has more than the first. */
static int buffer_for(const struct op *op, enum type type, const char *name)
{
  struct shape most = {.ndim = 1, .size = {0}};
  if (op->kind != OP_all_reduce) most.size[0] = group_size(op->group) * bucket_chunk(op, op->nbody);
  for (int k = 0; k < op->nbody && op->kind == OP_all_reduce; k++)
    most.size[0] += elements(local_shape(graph->op[op->body[k]].out, 0));
  int buffer = add_value(ACTIVATION, name, type, most, op->module, op->line);
  graph->value[buffer].placed = true;
  return buffer;
}

/* Why the members are there, each reason once. */
static const char *reasons(const int *member, int n)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    const char *why = graph->op[member[i]].why;
    bool told = !why;
    for (int k = 0; k < i && !told; k++)
      told = graph->op[member[k]].why && !strcmp(graph->op[member[k]].why, why);
    if (!told) put(&b, "%s%s", b.length ? "; " : "", why);
  }
  return b.text;
}

static bool makes_gradients(const struct op *op)
{
  return graph->value[op->out].role == GRADIENT;
}

static const char *why_together(const struct op *op)
{
  if (op->kind == OP_reduce_scatter && makes_gradients(op)) return "their parameters are kept so";
  if (op->packed && graph->bucketing == BUCKETS_GREEDY && makes_gradients(op))
    return "bucketing = greedy, and they follow one another";
  if (op->kind != OP_all_reduce || !makes_gradients(op)) return reasons(op->body, op->nbody);
  return op->packed ? "they are small, and travel together" : "they lie side by side";
}

/* The parameter that a member gathers, or whose gradient it makes; of others none, behind all. */
static int parameter_of(int id)
{
  const struct op *op = &graph->op[id];
  if (graph->value[op->in[0]].role == PARAMETER) return op->in[0];
  return is_gradient(op->out) ? graph->value[op->out].of : INT_MAX;
}

/* What is copied then lies in one run, mostly. */
void put_in_order(int *member, int n)
{
  for (int k = 1; k < n; k++)
    for (int i = k; i > 0 && parameter_of(member[i - 1]) > parameter_of(member[i]); i--) {
      int id = member[i];
      member[i] = member[i - 1];
      member[i - 1] = id;
    }
}

static int bucket_of(const int *member, int n, bool packed, enum type type)
{
  int *body = alloc((size_t)n * sizeof *body);
  memcpy(body, member, (size_t)n * sizeof *body);
  struct op op = graph->op[member[0]];
  op.nbody = n;
  op.body = body;
  op.packed = packed;
  op.buffer = NONE;
  const char *name = op.kind == OP_all_gather ? "gathered" : "together";
  if (packed) op.buffer = buffer_for(&op, type, makes_gradients(&op) ? "gradients" : name);
  op.why = why_together(&op);
  int unit = unit_of(&op);
  if (unit >= 0 && unit < graph->nunit) op.line = graph->unit[unit].line;
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  if (packed) graph->value[op.buffer].op = graph->nop;
  return graph->nop++;
}

bool merge(struct function *f, const int *member, int n, bool packed)
{
  struct list order = {0}, body = {0}, gone = {0};
  if (n < 2 || !gather(f, member, n, &order)) return false;
  enum type type = moved_type(&graph->op[member[0]]);
  for (int k = 0; k < n; k++)
    add(&body, packed ? with_surroundings(f, member[k], &gone) : member[k]);
  if (packed && graph->op[member[0]].kind != OP_all_reduce) put_in_order(body.at, n);
  int id = bucket_of(body.at, n, packed, type);
  for (int i = 0; i < order.n; i++)
    if (is_among(member, n, order.at[i])) order.at[i] = id;
  f->op = order.at;
  f->nop = order.n;
  leave_out(f, &gone);
  return true;
}
