/* bucket_merge.c: merges several collectives into one, for the pass `bucket`.

   Takes   collectives of a function that are of one kind (same_kind).
   Leaves  one operation in their place, whose body is its members. Members that travel in a buffer
           absorb the operations around them: the copy into or out of the buffer does an adjacent
           cast, and the packing of parts, so that a member reads and writes values in their own
           layout in memory.

   A merged gather is at the place of its first member, and the operations that the others need move
   before it. A merged reduction is at the place of the last member, and the operations that need
   the others move after it. */
#include "function_passes/function_passes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- dependences */

/* The reads and writes of marked operations in one walk over a function: the number of the last
   walk that recorded it. */
struct touched {
  int read, written;
};

/* The function that runs an operation, and its place there; NONE: none. */
struct running {
  int function, place;
};

/* The number of operations that read a value, or a member of its stack; the number of them that
   unpack it; and the sum of their numbers: with one reader, its number. */
struct readers {
  int count, unpacks;
  int64_t sum;
};

struct merging {
  struct touched *touched; /* by value; one member of a stack represents all */
  int touched_room, pass_now;
  bool found;              /* a look-up found that the operation depends on those noted */
  struct running *running; /* by operation */
  int running_room;
  struct readers *readers; /* by value */
  int readers_room;
  int *member_in; /* by operation: the number of the last walk with it as a member */
  int member_room;
  const uint64_t **sets; /* by value: see struct ancestry */
  int set_room;
  struct list beyond, order; /* reused from call to call */
};

int alias_root(int value)
{
  int stack = in_loop(value)->stack;
  return stack == NONE ? value : stack;
}

typedef void visitor(void *to, int value, bool writes);

static void visit_op(const struct op *op, visitor *visit, void *to)
{
  if (op->kind == OP_loop) {
    const struct function *body = &graph->function[op->function];
    for (int i = 0; i < body->nop; i++) visit_op(&graph->op[body->op[i]], visit, to);
    return;
  }
  for (struct list in = values_read(op); in.n--;) {
    const struct in_loop *loop = in_loop(in.at[in.n]);
    visit(to, alias_root(in.at[in.n]), false);
    if (loop->step) visit(to, alias_root(loop->initial), false);
  }
  for (int k = 0; k < op->nout; k++) visit(to, alias_root(op->out + k), true);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    visit(to, alias_root(inner->out == NONE ? inner->in[0] : inner->out), true);
  }
  if (op->out == NONE && op->nin) visit(to, alias_root(op->in[0]), true);
}

void begin_noting(struct merging *m)
{
  while (m->touched_room <= graph->nvalue)
    m->touched = grow(m->touched, m->touched_room, &m->touched_room, sizeof *m->touched);
  m->pass_now++;
}

static void bucket_merge_note(void *to, int value, bool writes)
{
  struct merging *m = to;
  *(writes ? &m->touched[value].written : &m->touched[value].read) = m->pass_now;
}

static void look_up(void *to, int value, bool writes)
{
  struct merging *m = to;
  const struct touched *t = &m->touched[value];
  m->found |= t->written == m->pass_now || (writes && t->read == m->pass_now);
}

bool depends(struct merging *m, const struct op *op)
{
  m->found = false;
  visit_op(op, look_up, m);
  return m->found;
}

void note_op(struct merging *m, const struct op *op)
{
  visit_op(op, bucket_merge_note, m);
}

bool is_in_the_way(struct merging *m, const struct op *op, bool back)
{
  return back ? m->touched[alias_root(op->out)].read == m->pass_now
              : m->touched[alias_root(op->in[0])].written == m->pass_now;
}

static void widen_tables(struct merging *m)
{
  while (m->readers_room <= graph->nvalue)
    m->readers = grow(m->readers, m->readers_room, &m->readers_room, sizeof *m->readers);
  for (int known = m->running_room; known <= graph->nop; known = m->running_room) {
    m->running = grow(m->running, known, &m->running_room, sizeof *m->running);
    for (int i = known; i < m->running_room; i++) m->running[i] = (struct running){NONE, NONE};
  }
}

static void bucket_merge_count_reads(struct merging *m, int id, int times)
{
  const struct op *op = &graph->op[id];
  const int *body = op->nbody ? op->body : &id;
  widen_tables(m);
  for (int n = 0; n < (op->nbody ? op->nbody : 1); n++)
    for (int j = 0; j < graph->op[body[n]].nin; j++) {
      struct readers *r = &m->readers[alias_root(graph->op[body[n]].in[j])];
      r->count += times;
      r->unpacks += op->kind == OP_unpack ? times : 0;
      r->sum += (int64_t)times * id;
    }
}

static void note_running(struct merging *m, const struct function *f, int first)
{
  widen_tables(m);
  for (int k = first; k < f->nop; k++)
    m->running[f->op[k]] = (struct running){(int)(f - graph->function), k};
}

struct merging *find_running(void)
{
  struct merging *m = alloc(sizeof *m);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    note_running(m, f, 0);
    for (int k = 0; k < f->nop; k++) bucket_merge_count_reads(m, f->op[k], 1);
  }
  return m;
}

void run_now(struct merging *m, const struct function *f, int id)
{
  bucket_merge_count_reads(m, id, 1);
  m->running[id] = (struct running){(int)(f - graph->function), NONE};
}

void read_instead(struct merging *m, int id, int value)
{
  bucket_merge_count_reads(m, id, -1);
  graph->op[id].in[0] = value;
  bucket_merge_count_reads(m, id, 1);
}

static void run_no_more(struct merging *m, int id)
{
  bucket_merge_count_reads(m, id, -1);
  m->running[id] = (struct running){NONE, NONE};
}

bool runs_in(struct merging *m, const struct function *f, int id)
{
  return id != NONE && m->running[id].function == f - graph->function;
}

int readers_of(struct merging *m, int value)
{
  return m->readers[alias_root(value)].count;
}

static bool is_member(struct merging *m, int id)
{
  return m->member_in[id] == m->pass_now;
}

static void mark_members(struct merging *m, const int *member, int n)
{
  widen_tables(m);
  if (m->member_room < m->running_room) {
    m->member_room = m->running_room;
    m->member_in = alloc((size_t)m->member_room * sizeof *m->member_in);
  }
  for (int k = 0; k < n; k++) m->member_in[member[k]] = m->pass_now;
}

/* From the first of the members to the last. */
struct place_range {
  int first, last;
};

static struct place_range places_of(struct merging *m, const int *member, int n)
{
  struct place_range s = {m->running[member[0]].place, m->running[member[0]].place};
  for (int k = 1; k < n; k++) {
    int place = m->running[member[k]].place;
    if (s.first > place) s.first = place;
    if (s.last < place) s.last = place;
  }
  return s;
}

/* Whether the members can be merged: at the place of the last or, for gathers, of the first.
   Operations between them that depend on the others, or on which the others depend, move to the
   other side. Leaves the order from the first member to the last, with one member for all. */
static bool gather(struct merging *m, const struct function *f, const int *member, int n,
                   struct list *order)
{
  begin_noting(m);
  mark_members(m, member, n);
  struct place_range s = places_of(m, member, n);
  bool back = gathers_shards(graph->op[member[0]].kind); /* from the last to the first */
  int left = n;
  m->beyond.n = order->n = 0;
  for (int i = s.first; i <= s.last; i++) {
    int id = f->op[back ? s.last + s.first - i : i];
    const struct op *op = &graph->op[id];
    bool mine = is_member(m, id);
    if (mine && is_in_the_way(m, op, back)) return false;
    bool goes_beyond = !mine && depends(m, op);
    if (mine || goes_beyond) note_op(m, op);
    left -= mine;
    if (goes_beyond)
      add(&m->beyond, id);
    else if (!mine || !left)
      add(order, id);
  }
  for (int k = 0; k < m->beyond.n; k++) add(order, m->beyond.at[k]);
  if (back) {
    for (int i = 0, k = order->n - 1; i < k; i++, k--) {
      int id = order->at[i];
      order->at[i] = order->at[k];
      order->at[k] = id;
    }
  }
  return true;
}

static void take_one_by_one(struct merging *m, const struct function *f, const struct list *all,
                            struct list *member, struct list *rest)
{
  for (int k = 0; k < all->n; k++) {
    add(member, all->at[k]);
    if (gather(m, f, member->at, member->n, &m->order)) continue;
    member->n--;
    add(rest, all->at[k]);
  }
}

/* Like gather, but forwards, from the first of them. */
static void take_in_order(struct merging *m, const struct function *f, const struct list *all,
                          struct list *member, struct list *rest)
{
  begin_noting(m);
  mark_members(m, all->at, all->n);
  struct place_range s = places_of(m, all->at, all->n);
  for (int i = s.first; i <= s.last; i++) {
    const struct op *op = &graph->op[f->op[i]];
    bool one = is_member(m, f->op[i]), taken = one && !is_in_the_way(m, op, false);
    if (one) add(taken ? member : rest, f->op[i]);
    if (taken || depends(m, op)) note_op(m, op);
  }
}

static bool stand_in_order(struct merging *m, const struct list *list)
{
  for (int k = 1; k < list->n; k++)
    if (m->running[list->at[k]].place < m->running[list->at[k - 1]].place) return false;
  return true;
}

void take_of_one_kind(struct merging *m, const struct function *f, const struct list *all,
                      struct list *member, struct list *rest)
{
  bool forth = !gathers_shards(graph->op[all->at[0]].kind);
  (forth && stand_in_order(m, all) ? take_in_order : take_one_by_one)(m, f, all, member, rest);
}

/* By value, the collectives that must come before it, a bit for each, NULL for none; the same
   for the current operation; and the set that has just these, or NULL. Sets are shared, so one
   never changes after it was handed on. */
struct ancestry {
  const uint64_t **of, *same;
  uint64_t *now;
  int words;
};

static void collect(void *ancestry, int value, bool writes)
{
  struct ancestry *a = ancestry;
  const uint64_t *set = a->of[value];
  bool none = true, grows = false;
  (void)writes;
  if (!set || set == a->same) return;
  for (int i = 0; i < a->words; i++) {
    none &= !a->now[i];
    grows |= (set[i] & ~a->now[i]) != 0;
    a->now[i] |= set[i];
  }
  if (grows) a->same = none ? set : NULL;
}

/* The set of the collectives recorded now. */
static const uint64_t *set_now(struct ancestry *a)
{
  bool none = true;
  for (int i = 0; i < a->words && !a->same; i++) none &= !a->now[i];
  if (a->same || none) return a->same;
  size_t bytes = (size_t)a->words * sizeof *a->now;
  return a->same = memcpy(alloc(bytes), a->now, bytes);
}

static void hand_on(void *ancestry, int value, bool writes)
{
  struct ancestry *a = ancestry;
  if (writes) a->of[value] = set_now(a);
}

void find_needs(struct merging *m, const struct function *f, const int *op, struct single *s, int n)
{
  struct ancestry a = {.words = n / 64 + 1};
  widen_tables(m);
  if (m->set_room <= graph->nvalue) {
    m->set_room = m->readers_room;
    m->sets = alloc((size_t)m->set_room * sizeof *m->sets);
  }
  memset(m->sets, 0, (size_t)m->set_room * sizeof *m->sets);
  a.of = m->sets;
  a.now = alloc((size_t)a.words * sizeof *a.now);
  for (int i = 0, k = 0; i < f->nop && k < n; i++) {
    memset(a.now, 0, (size_t)a.words * sizeof *a.now);
    a.same = NULL;
    visit_op(&graph->op[f->op[i]], collect, &a);
    if (f->op[i] == op[k]) {
      s[k].needs = set_now(&a);
      a.now[k / 64] |= UINT64_C(1) << k % 64;
      a.same = NULL;
      k++;
    }
    visit_op(&graph->op[f->op[i]], hand_on, &a);
  }
}

/* ------------------------------------------------------------- operations that a member absorbs */

static bool is_cast(const struct op *op)
{
  enum type from = graph->value[op->in[0]].type, to = graph->value[op->out].type;
  return op->kind == OP_cast && (from == F32 || from == BF16) && (to == F32 || to == BF16);
}

static bool bucket_merge_keeps_order(const struct op *op)
{
  return graph->value[op->in[0]].order == graph->value[op->out].order;
}

/* The operation of this function that makes the collective's input, if it is of this kind. */
static int bucket_merge_maker_of(struct merging *m, const struct function *f, int value,
                                 enum op_kind kind)
{
  int id = graph->value[value].op;
  if (!runs_in(m, f, id) || graph->op[id].kind != kind || !bucket_merge_keeps_order(&graph->op[id]))
    return NONE;
  return kind != OP_cast || is_cast(&graph->op[id]) ? id : NONE;
}

/* The only reader of the collective's result, if it is of this kind. */
static int taker_of(struct merging *m, const struct function *f, int value, enum op_kind kind)
{
  const struct value *v = &graph->value[value];
  if (v->role != ACTIVATION || v->is_output || readers_of(m, value) != 1) return NONE;
  int id = (int)m->readers[alias_root(value)].sum;
  if (!runs_in(m, f, id) || graph->op[id].kind != kind || !bucket_merge_keeps_order(&graph->op[id]))
    return NONE;
  return kind != OP_cast || is_cast(&graph->op[id]) ? id : NONE;
}

bool is_mergeable(struct merging *m, const struct function *f, int id)
{
  const struct op *op = &graph->op[id];
  int maker = graph->value[op->in[0]].op;
  if (op->nbody || op->pieces) return false;
  if (scatters_sum(op->kind) && runs_in(m, f, maker) && graph->op[maker].kind == OP_pack)
    return bucket_merge_maker_of(m, f, op->in[0], OP_pack) != NONE;
  if (!gathers_shards(op->kind)) return true;
  return !m->readers[alias_root(op->out)].unpacks || taker_of(m, f, op->out, OP_unpack) != NONE;
}

/* The collective as a member of a packed bucket, with the casts and packings around it. Those
   whose values have no other reader are added to `gone`. */
static int with_absorbed(struct merging *m, const struct function *f, int id, struct list *gone)
{
  struct op op = graph->op[id];
  if (scatters_sum(op.kind)) {
    int pack = bucket_merge_maker_of(m, f, op.in[0], OP_pack);
    if (pack != NONE) add(gone, pack), op.in[0] = graph->op[pack].in[0];
  }
  int cast = bucket_merge_maker_of(m, f, op.in[0], OP_cast);
  if (cast != NONE) add(gone, cast), op.in[0] = graph->op[cast].in[0];
  int behind = taker_of(m, f, op.out, gathers_shards(op.kind) ? OP_unpack : OP_cast);
  if (behind != NONE) add(gone, behind), op.out = graph->op[behind].out;
  if (op.in[0] == graph->op[id].in[0] && op.out == graph->op[id].out) return id;
  return graph->value[op.out].op = store_op(op);
}

/* ----------------------------------------------------------------------------------- the bucket */

/* A buffer for the members' parts: for a reduction, those of a rank, one after the other; otherwise
   a chunk for each rank of the group. No rank has more than the first. */
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

static bool makes_gradients(const struct op *op)
{
  return graph->value[op->out].role == GRADIENT;
}

struct ranked {
  int parameter, place, id;
};

static int by_parameter(const void *a, const void *b)
{
  const struct ranked *x = a, *y = b;
  if (x->parameter != y->parameter) return x->parameter < y->parameter ? -1 : 1;
  return x->place < y->place ? -1 : x->place > y->place;
}

/* In this order the copies are mostly one contiguous run. */
void put_in_order(int *member, int n)
{
  struct ranked *ranked = alloc((size_t)(n + 1) * sizeof *ranked);
  for (int k = 0; k < n; k++) {
    /* The parameter that a member gathers, or whose gradient it makes; members without one come
       last. */
    const struct op *op = &graph->op[member[k]];
    int parameter = op->in[0];
    if (graph->value[op->in[0]].role != PARAMETER) {
      parameter = is_gradient(op->out) ? graph->value[op->out].of : INT_MAX;
    }
    ranked[k] = (struct ranked){parameter, k, member[k]};
  }
  qsort(ranked, (size_t)n, sizeof *ranked, by_parameter);
  for (int k = 0; k < n; k++) member[k] = ranked[k].id;
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
  const char *name = gathers_shards(op.kind) ? "gathered" : "bucket";
  if (packed) op.buffer = buffer_for(&op, type, makes_gradients(&op) ? "gradients" : name);
  const char *why_together = "the layout of their parameters";
  if (!scatters_sum(op.kind) || !makes_gradients(&op)) {
    if (op.packed && plan_options->bucketing == BUCKETS_GREEDY && makes_gradients(&op)) {
      why_together = "bucketing = greedy, consecutive";
    } else {
      if (op.kind != OP_all_reduce || !makes_gradients(&op)) {
        /* The reasons of the members, each once. */
        struct buffer b = {0};
        struct memo shown = {0};
        struct query q = {0};
        for (int i = 0; i < op.nbody; i++) {
          const char *why = graph->op[op.body[i]].why;
          int known = shown.n;
          if (!why) continue;
          begin_query(&q);
          ask_text(&q, why);
          if (number_of_query(&shown, &q) == known) put(&b, "%s%s", b.length ? "; " : "", why);
        }
        why_together = b.text;
      } else {
        why_together = op.packed ? "small values in one bucket" : "contiguous values in one bucket";
      }
    }
  }
  op.why = why_together;
  int unit = unit_of(&op);
  if (unit >= 0 && unit < graph->nunit) op.line = graph->unit[unit].line;
  int bucket = store_op(op);
  if (packed) graph->value[op.buffer].op = bucket;
  return bucket;
}

bool merge(struct merging *m, struct function *f, const int *member, int n, bool packed)
{
  struct list *order = &m->order, body = {0}, gone = {0};
  if (n < 2 || !gather(m, f, member, n, order)) return false;
  struct place_range s = places_of(m, member, n);
  int stands = f->op[gathers_shards(graph->op[member[0]].kind) ? s.first : s.last];
  enum type type = moved_type(&graph->op[member[0]]);
  for (int k = 0; k < n; k++) run_no_more(m, member[k]);
  for (int k = 0; k < n; k++)
    add(&body, packed ? with_absorbed(m, f, member[k], &gone) : member[k]);
  if (packed && graph->op[member[0]].kind != OP_all_reduce) put_in_order(body.at, n);
  int id = bucket_of(body.at, n, packed, type);
  for (int i = 0; i < order->n; i++)
    if (order->at[i] == stands) order->at[i] = id;
  /* Replaces the order of the section that contains the members. */
  int end = s.first + order->n, behind = f->nop - s.last - 1;
  memcpy(f->op + s.first, order->at, (size_t)order->n * sizeof *f->op);
  memmove(f->op + end, f->op + s.last + 1, (size_t)behind * sizeof *f->op);
  f->nop = end + behind;
  bucket_merge_count_reads(m, id, 1);
  note_running(m, f, s.first);
  /* Removes absorbed operations from the function, unless others read their values. */
  int first = f->nop;
  for (int i = 0; i < gone.n; i++) {
    const struct op *op = &graph->op[gone.at[i]];
    const struct value *v = &graph->value[op->out];
    bool is_made_here = v->op == gone.at[i], is_gone = !runs_in(m, f, gone.at[i]);
    if (is_gone || (is_made_here && (v->is_output || readers_of(m, op->out)))) continue;
    if (first > m->running[gone.at[i]].place) first = m->running[gone.at[i]].place;
    run_no_more(m, gone.at[i]);
  }
  if (first != f->nop) {
    int kept = first;
    for (int k = first; k < f->nop; k++)
      if (runs_in(m, f, f->op[k])) f->op[kept++] = f->op[k];
    f->nop = kept;
    note_running(m, f, first);
  }
  return true;
}

static double seconds_taken(const struct op *op)
{
  return (double)(time_taken(op) + copies_in_time(op) + copies_out_time(op)) * 1e-12;
}

bool merge_explained(struct merging *m, struct function *f, const int *member, int n, bool packed)
{
  if (!are_decisions_explained() || n < 2) return merge(m, f, member, n, packed);
  const struct op *first = &graph->op[member[0]];
  const char *subject = text("%s of %s and %d more in %s", op_row[first->kind].name,
                             starred_name(value_name(first->in[0])), n - 1, f->name);
  const char *apart = text("%d collectives", n), *forced = forced_way_of("bucket", subject);
  if (forced && !strcmp(forced, apart)) return false;
  struct alternative list[2] = {{text("one collective of %d", n), 0, 0}, {apart, 0, 0}};
  bool is_asked = false;
  for (int i = 0; i < n; i++) {
    const struct op *op = &graph->op[member[i]];
    is_asked |= is_op_explained(op);
    list[1].seconds += seconds_taken(op);
    list[1].bytes += (double)max_volume_of(op).received;
  }
  if (!merge(m, f, member, n, packed)) return false;
  const struct op *bucket = &graph->op[graph->nop - 1];
  list[0].seconds = seconds_taken(bucket);
  list[0].bytes = (double)max_volume_of(bucket).received;
  if (is_asked) note_decision("bucket", subject, list, 2, 0);
  return true;
}
