/* memory.c: the pass `memory`: where every value lies.

   Takes   functions in their final order, each value marked if it is stored.
   Leaves  for each stored activation a range of bytes in the arena, such that no two which live at
           the same time overlap; the same on every rank (sizes are those of the largest shard, on
           rank 0). A value that is only changed in place shares the bytes of what it was made from,
           and a view those of what it shows. Parameters, gradients, states, batch, loss and outputs
           have places of their own. Of a value that the modules of a list make alike, one is kept
           for all of them, two where the neighbour reads it, or one for each where the backward
           does. Which range, place.c finds. */
#include "tpgen.h"

#include <string.h>

enum { ALIGNMENT = 64 };

/* --------------------------------------------------------------------- what is asked many times */

/* An array that serves again at the next call, zeroed. */
struct reused {
  const struct graph *of;
  size_t room;
  void *at;
};

static void *cleared(struct reused *r, size_t bytes)
{
  if (r->of != graph || r->room < bytes)
    *r = (struct reused){.of = graph, .room = bytes, .at = alloc(bytes)};
  else
    memset(r->at, 0, bytes);
  return r->at;
}

static void *by_value(struct reused *r, size_t size)
{
  return cleared(r, (size_t)(graph->nvalue + 1) * size);
}

/* The values that are looked at, in their order: all; or, where only the bytes are asked that live
   at once, those that the program touches: of a list of modules few but the first one's. */
static struct list known;

/* ----------------------------------------------------------------- places in the program, loops */

/* Operations in the order of each_op: the place of an operation is its index here. */
static int nplace, place_room, *op_at;
static int *function_of;            /* by operation */
static int *loop_first, *loop_last; /* by function: the places of a loop's body */
static int end_of_batches;          /* the place behind all that runs for each batch */
static int *await_at;               /* by operation: the place of its await, or NONE */

static void add_place(void *to, int op, int times)
{
  (void)to, (void)times;
  GROW(op_at, nplace, place_room);
  op_at[nplace++] = op;
}

static void find_places(void)
{
  static const struct graph *of;
  static struct reused functions, awaits;
  if (of != graph) op_at = NULL, place_room = 0;
  of = graph;
  nplace = 0;
  each_op(add_place, NULL);
  function_of = cleared(&functions, (size_t)(graph->nop + 1) * sizeof *function_of);
  loop_first = alloc((size_t)graph->nfunction * sizeof *loop_first);
  loop_last = alloc((size_t)graph->nfunction * sizeof *loop_last);
  for (int i = 0; i < graph->nfunction; i++) loop_first[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) function_of[graph->function[i].op[k]] = i;
  await_at = cleared(&awaits, (size_t)(graph->nop + 1) * sizeof *await_at);
  for (int at = 0; at < nplace; at++) await_at[op_at[at]] = NONE;
  for (int at = 0; at < nplace; at++) {
    const struct op *op = &graph->op[op_at[at]];
    if (op->kind == OP_await) await_at[op->begun] = at;
  }
  for (int at = 0; at < nplace; at++) {
    int f = function_of[op_at[at]];
    if (loop_first[f] == NONE) loop_first[f] = at;
    loop_last[f] = at;
    if (is_of_batch(graph->function[f].phase)) end_of_batches = at + 1;
  }
}

static bool is_loop(int function)
{
  return graph->function[function].count > 1;
}

/* ------------------------------------------------------------------------ lifetimes and depths */

static bool is_part_of(int function, int body)
{
  return graph->function[function].is_part && graph->function[function].body == body;
}

/* How many rounds ahead the part of a loop's body is called. */
static int rounds_ahead(int part)
{
  const struct function *f = &graph->function[part];
  return graph->op[f->op[f->nop - 1]].ahead;
}

/* How much of a family must be kept for a reader: only this module's value, the neighbour's too, or
   all. Outside the loop only what the last module made is there without keeping more. */
static int depth_for(int value, int reader)
{
  const struct value *v = &graph->value[value];
  if (v->family == NONE) return 1;
  int maker = v->made_by, count = graph->function[maker].count;
  if (v->step) return reader == maker ? 2 : count;
  if (reader == maker || is_part_of(reader, maker)) return 1;
  /* What is begun for rounds to come is written while this round's is read. */
  if (is_part_of(maker, reader)) return 1 + rounds_ahead(maker);
  int last = graph->function[maker].upward ? count - 1 : 0;
  return !is_loop(reader) && v->index == last ? 1 : count;
}

static int root(int value)
{
  while (graph->value[value].storage != value) value = graph->value[value].storage;
  return value;
}

static void make_at(int value, int at)
{
  struct value *v = &graph->value[value];
  if (v->pieces && v->first != NONE) {
    v->last = at;
    return;
  }
  v->made = v->first = v->last = at;
  v->made_by = function_of[op_at[at]];
}

/* What is gathered for all batches of a step is there until the last has read it. */
static int until_batches_end(const struct value *kept, int reader)
{
  bool gathered = kept->op != NONE && graph->op[kept->op].phase == GATHER;
  return gathered && is_of_batch(graph->function[reader].phase) ? end_of_batches : 0;
}

/* A loop reads what it did not make itself in each of its rounds: that lives until the last. */
static void read_at(int value, int at)
{
  struct value *v = &graph->value[value];
  int reader = function_of[op_at[at]];
  if (v->step) read_at(v->initial, at);
  struct value *kept = v->family == NONE ? v : &graph->value[v->family];
  bool own = kept->op != NONE && kept->made_by == reader && !v->step;
  int until = is_loop(reader) && !own ? loop_last[reader] : at;
  if (until < until_batches_end(kept, reader)) until = end_of_batches;
  if (kept->last < until) kept->last = until;
}

static void widen(int value, int reader)
{
  struct value *v = &graph->value[value];
  if (v->family == NONE) return;
  int family = v->family;
  v->made_by = graph->value[family].made_by;
  int depth = depth_for(value, reader);
  if (graph->value[family].depth < depth) graph->value[family].depth = depth;
  if (v->step) widen(v->initial, reader);
}

static bool *told_apart; /* by value: one of its family is read by itself, not as the module's */

static void note_reader(int value, int at)
{
  const struct value *v = &graph->value[value];
  if (v->family == NONE) return;
  if (v->family != value || !is_loop(function_of[op_at[at]])) told_apart[v->family] = true;
}

/* An await stands for the end of what it awaits, and of what that follows, if that has not been
   awaited before. */
static int reads_at(int at, int *list)
{
  const struct op *op = &graph->op[op_at[at]];
  int n = 0;
  if (op->kind != OP_await) return op_reads(op, list);
  for (const struct op *c = &graph->op[op->begun]; c; c = leader_of(c)) {
    int await = await_at[c - graph->op];
    if (await != NONE && await < at) continue;
    n += pending_reads(c, list + n);
    n += pending_writes(c, list + n);
  }
  return n;
}

static void each_access(void (*on_write)(int, int), void (*on_read)(int, int))
{
  static struct reused lists;
  int widest = 0;
  for (int at = 0; at < nplace; at++)
    if (op_width(&graph->op[op_at[at]]) > widest) widest = op_width(&graph->op[op_at[at]]);
  int *list = cleared(&lists, (size_t)widest * sizeof *list);
  for (int at = 0; at < nplace; at++) {
    const struct op *op = &graph->op[op_at[at]];
    if (on_write)
      for (int n = op_writes(op, list); n--;) on_write(list[n], at);
    if (on_read)
      for (int n = reads_at(at, list); n--;) on_read(list[n], at);
  }
}

/* What a collective takes that is begun for the next round, and awaited, needs no second place:
   that of the round before is done when it is made. One for each round that it is ahead by. */
static void widen_at(int value, int at)
{
  const struct op *op = &graph->op[op_at[at]];
  int ahead = op->kind == OP_await ? graph->op[op->begun].ahead : 0;
  struct value *v = &graph->value[value];
  if (!ahead)
    widen(value, function_of[op_at[at]]);
  else if (v->family == value && is_part_of(v->made_by, function_of[op_at[at]]) && v->depth < ahead)
    v->depth = ahead;
}

/* What a round does for another, by a part of the body, each_op meets once: it is done at each
   call. What the part makes and reads itself is there as long as it runs. */
static void run_part_at(int part, int at)
{
  static struct reused lists;
  const struct function *f = &graph->function[part];
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int *list = cleared(&lists, (size_t)op_width(op) * sizeof *list);
    for (int n = op_writes(op, list); n--;) {
      struct value *v = &graph->value[list[n]];
      if (v->first > at) v->first = at;
      if (v->last < at) v->last = at;
    }
    for (int n = op_reads(op, list); n--;) {
      struct value *v = &graph->value[list[n]];
      if (v->op == NONE || v->made_by != part) read_at(list[n], at);
      if (v->last < at) v->last = at;
    }
  }
}

static void run_parts(void)
{
  for (int at = 0; at < nplace; at++) {
    const struct op *op = &graph->op[op_at[at]];
    if (op->kind == OP_round) run_part_at(op->function, at);
  }
}

static void find_lifetimes(void)
{
  static struct reused apart;
  for (int k = 0; k < known.n; k++) {
    struct value *v = &graph->value[known.at[k]];
    v->made = v->first = v->last = NONE;
    v->depth = 1;
  }
  each_access(make_at, NULL);
  told_apart = by_value(&apart, sizeof *told_apart);
  each_access(NULL, note_reader);
  each_access(NULL, widen_at);
  each_access(NULL, read_at);
  run_parts();
}

/* What a collective that is pending between the rounds of a loop reads and writes. The bytes are
   not to be those of anything else in the round. */
static bool *crosses; /* by value that others share the bytes of */

static void hold_crossing(int value, int body)
{
  struct value *v = &graph->value[root(value)];
  crosses[root(value)] = true;
  if (v->first != NONE && v->first > loop_first[body]) v->first = loop_first[body];
}

static void hold_crossings(void)
{
  static struct reused kept;
  crosses = by_value(&kept, sizeof *crosses);
  for (int at = 0; at < nplace; at++) {
    const struct op *op = &graph->op[op_at[at]];
    if (!is_collective(op->kind) || !op->behind) continue;
    int *list = alloc((size_t)op_width(op) * sizeof *list), body = function_of[op_at[at]];
    for (int n = pending_reads(op, list); n--;) hold_crossing(list[n], body);
    for (int n = pending_writes(op, list); n--;) hold_crossing(list[n], body);
  }
}

static void widen_lifetimes(void)
{
  /* What is kept for several modules lives from the first round to, at least, the last; though its
     last maker is the part that is called behind the loop. */
  for (int k = 0; k < known.n; k++) {
    struct value *v = &graph->value[known.at[k]];
    if (v->depth == 1) continue;
    if (v->first > loop_first[v->made_by]) v->first = loop_first[v->made_by];
    if (v->last < loop_last[v->made_by]) v->last = loop_last[v->made_by];
  }
}

/* -------------------------------------------------------------------------------------- storage */

bool in_arena(int value)
{
  const struct value *v = &graph->value[value];
  bool stands_for_itself = v->family == NONE || v->family == value;
  return v->stored && v->role == ACTIVATION && !v->is_output && v->op != NONE && stands_for_itself;
}

/* Of one of a family, where all of it lies. */
static int place_of(int value)
{
  const struct value *v = &graph->value[value];
  return root(v->family != NONE && !v->step && v->role == ACTIVATION ? v->family : value);
}

/* --------------------------------------------------------------------------------------- views */

static int
    *slot_of; /* by value: of a view of one of a family, made outside the loop: which of them */

static bool same_parts(int in, int out)
{
  const struct value *a = &graph->value[in], *b = &graph->value[out];
  if (a->type != b->type || !same_shape(a->shape, b->shape) || a->order != b->order) return false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = a->layout.on[d], q = b->layout.on[d];
    if ((p.kind == SHARD || q.kind == SHARD) && !same_placement(p, q)) return false;
  }
  return true;
}

bool is_view(const struct op *op)
{
  return op->kind == OP_view ||
         (op->kind == OP_to_partial && op->reduction != SUM && same_parts(op->in[0], op->out));
}

/* Whether a view made by this function may show the bytes of `in` themselves, wherever the view is
   read. What is carried has no place of its own; what lies outside the arena is called by its name,
   and so not known by a module's number. */
static bool can_show(int in, int out, int function)
{
  const struct value *a = &graph->value[in], *b = &graph->value[out];
  if (!a->stored || !in_arena(out)) return false;
  bool outside = !in_arena(place_of(in));
  if (outside && b->family != NONE && told_apart[out]) return false;
  if (a->family == NONE) return true;
  if (is_loop(function)) return a->family == in && b->family == out;
  return !outside && b->family == NONE;
}

static void show(int in, int out)
{
  const struct value *a = &graph->value[in];
  struct value *b = &graph->value[out];
  bool alone = a->family != NONE && b->family == NONE;
  slot_of[out] = alone ? a->index : slot_of[in];
  int from = place_of(in);
  struct value *place = &graph->value[from];
  if (place->family != NONE && place->depth < b->depth) place->depth = b->depth;
  b->storage = from;
}

/* What shows the same bytes is needed as long, and kept as often. */
static void join_lifetimes(void)
{
  for (int k = 0; k < known.n; k++) {
    int i = known.at[k];
    struct value *place = &graph->value[root(i)];
    if (in_arena(root(i)) && place->last < graph->value[i].last) place->last = graph->value[i].last;
  }
  for (int k = 0; k < known.n; k++) {
    int i = known.at[k];
    if (root(i) == i || !in_arena(root(i))) continue;
    graph->value[i].last = graph->value[root(i)].last;
    graph->value[i].depth = graph->value[root(i)].depth;
  }
}

static void share_views(void)
{
  static struct reused slots;
  slot_of = by_value(&slots, sizeof *slot_of);
  for (int at = 0; at < nplace; at++) {
    const struct op *op = &graph->op[op_at[at]];
    if (is_view(op) && can_show(op->in[0], op->out, function_of[op_at[at]]))
      show(op->in[0], op->out);
  }
}

/* ----------------------------------------------------------------------------------- in place */

static bool reads_place(int at, int storage)
{
  static int *list, room;
  while (room < op_width(&graph->op[op_at[at]])) list = grow(list, 0, &room, sizeof *list);
  for (int n = reads_at(at, list); n--;)
    if (root(list[n]) == storage) return true;
  return false;
}

/* Whether nothing needs the value any more when the operation at `at` has come to its end, which is
   where it is awaited. */
static bool ends_at(int value, int at)
{
  int last = graph->value[value].last, await = await_at[op_at[at]];
  if (last == at) return true;
  if (await == NONE || last != await) return false;
  int leader = graph->op[op_at[at]].follows_plus_1 - 1; /* it is done when this one begins */
  for (int k = at + 1; k < await; k++) {
    const struct op *op = &graph->op[op_at[k]];
    if (op->kind == OP_await && op->begun == leader) continue;
    if (reads_place(k, root(value))) return false;
  }
  return true;
}

static bool *added_up; /* by parameter: batches add its gradient up where it lies */

/* Whether what lies there is kept from batch to batch. */
static bool is_added_up(int value)
{
  const struct value *v = &graph->value[value];
  return graph->accumulate > 1 && !(v->role == GRADIENT && !added_up[v->of]);
}

/* Lets `out`, made at `at`, take the bytes of `in`, as many, which nobody reads later. */
static bool share(int in, int out, int at)
{
  const struct value *a = &graph->value[in], *b = &graph->value[out];
  if (!a->stored || !b->stored || b->made != at || !ends_at(in, at)) return false;
  int from = root(in), to = root(out);
  if (from == to) return true;
  if (crosses[to] && in_arena(to)) return false;
  /* What has a place of its own keeps it; only what is in the arena can give way, and not to what
     batches add up. */
  if (!in_arena(from)) return false;
  if (!in_arena(to) && is_added_up(to)) return false;
  struct value *place = &graph->value[from];
  /* A round of a loop may only take the place of what the same round made, and where as many
     rounds' values are kept. */
  if (is_loop(b->made_by) && (a->made_by != b->made_by || place->made_by != b->made_by))
    return false;
  if (place->depth != (in_arena(to) ? b->depth : 1)) return false;
  if (!in_arena(to)) {
    place->storage = to;
    return true;
  }
  graph->value[to].storage = from;
  if (place->first > b->first) place->first = b->first;
  if (place->last < b->last) place->last = b->last;
  return true;
}

static bool is_made_in(const struct op *kernel, int value)
{
  int op = graph->value[value].op;
  for (int k = 0; k < kernel->nbody; k++)
    if (kernel->body[k] == op) return true;
  return false;
}

static bool all_placed; /* before, offsets are those of a trial, or of none */

/* Whether they lie beside each other in one place, as members of a bucket do when they have theirs.
 */
static bool lie_apart(int a, int b)
{
  if (!all_placed) return false;
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  return v->offset + largest_bytes(a) <= w->offset || w->offset + largest_bytes(b) <= v->offset;
}

/* A read in a kernel of what the kernel doesn't make itself: all that is asked of it but where the
   value lies, which is asked for each pair of what a kernel reads and writes. */
struct outer_read {
  int value, n;       /* of body[n] */
  int last;           /* stage in which it reads it */
  bool ends_with_row; /* it is done with its row when the next stage begins */
  bool elsewhere;     /* or of a part of the space: other elements than the one at hand */
  bool reduces;
};
struct outer_reads {
  const int *body; /* of which they are */
  int n;
  struct outer_read *at;
};

static struct outer_read outer_read(const struct op *kernel, int n, int i)
{
  const struct op *op = &graph->op[kernel->body[n]];
  const struct stages *stages = kernel->stages;
  struct shape read = graph->value[op->in[i]].shape, space = graph->value[space_of(op)].shape;
  return (struct outer_read){.value = op->in[i],
                             .n = n,
                             .last = last_stage(kernel->body, stages, n),
                             .ends_with_row =
                                 stages->task[n].of_row && stays_in_row(op, i, stages->rows),
                             .elsewhere = reads_elsewhere(op, i) || !same_shape(read, space),
                             .reduces = is_reduce(op->kind)};
}

/* Those of a kernel of the graph: found once. */
static const struct outer_reads *outer_reads_of(const struct op *kernel)
{
  static const struct graph *of;
  static struct outer_reads *known_reads; /* by operation */
  static int count;
  if (of != graph) count = 0;
  of = graph;
  while (count <= kernel - graph->op)
    known_reads = grow(known_reads, count, &count, sizeof *known_reads);
  struct outer_reads *reads = &known_reads[kernel - graph->op];
  if (reads->body == kernel->body) return reads;
  *reads = (struct outer_reads){.body = kernel->body};
  reads->at = alloc((size_t)(kernel->nbody * MAX_INPUTS) * sizeof *reads->at);
  for (int n = 0; n < kernel->nbody; n++) {
    const struct op *op = &graph->op[kernel->body[n]];
    for (int i = 0; i < op->nin; i++)
      if (!is_made_in(kernel, op->in[i])) reads->at[reads->n++] = outer_read(kernel, n, i);
  }
  return reads;
}

/* Whether a kernel that writes over `value` when it has come to body[k] still finds what it needs:
   every read of these bytes is of the element that is written, and comes no later. What it makes
   itself it has at hand, wherever it leaves it. */
static bool read_in_step(const struct op *op, int k, int value)
{
  const struct outer_reads *reads = outer_reads_of(op);
  int now = op->stages->task[k].stage, place = place_of(value);
  if (op->stages->task[k].of_row) return false;
  for (const struct outer_read *r = reads->at; r < reads->at + reads->n; r++) {
    if (place_of(r->value) != place || lie_apart(r->value, value)) continue;
    if (r->ends_with_row && r->last < now) continue;
    if (r->elsewhere || r->last > now) return false;
    if (r->last == now && (r->n > k || r->reduces)) return false;
  }
  return true;
}

static bool kernel_overwrites(const struct op *op, int in, int out)
{
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (inner->out == out) return !is_reduce(inner->kind) && read_in_step(op, k, in);
  }
  return false;
}

bool overwrites(const struct op *op, int out, int *in)
{
  *in = NONE;
  if (op->kind == OP_fused) return true;
  if (op->kind != OP_all_reduce && op->kind != OP_to_partial) return false;
  /* What a bucket makes is made of one value each. */
  *in = graph->op[graph->value[out].op].in[0];
  return true;
}

bool may_overwrite(const struct op *op, int in, int out)
{
  int only;
  if (!overwrites(op, out, &only) || !same_parts(in, out)) return false;
  return only == NONE ? kernel_overwrites(op, in, out) : only == in;
}

/* What each module of a list makes for the sum that becomes its gradient, which a bucket runs for
   all of them, lies where the gradient will: bucket.c saw to it that nothing else reads it. */
static void share_gradient(int in, int out)
{
  const struct value *a = &graph->value[in], *b = &graph->value[out];
  int place = root(in);
  if (a->family != in || b->family != out || b->role != GRADIENT || !in_arena(place)) return;
  if (graph->value[place].family == place) graph->value[place].storage = out;
}

static void share_in_bucket(const struct op *op, int at)
{
  /* By value that others share the bytes of: a member has taken it, where one value is summed for
     several readers. */
  static struct reused places;
  bool *taken = by_value(&places, sizeof *taken);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (same_parts(inner->in[0], inner->out) && !taken[root(inner->in[0])]) {
      share(inner->in[0], inner->out, at);
      share_gradient(inner->in[0], inner->out);
    }
    taken[root(inner->in[0])] = true;
  }
}

/* Of what the operation makes each may take the place of one that it reads. */
static void share_in(const struct op *op, int at)
{
  /* A view that could not show its input's bytes may still take them. */
  if (op->kind == OP_view) share(op->in[0], op->out, at);
  if (op->kind == OP_all_reduce && op->nbody) {
    share_in_bucket(op, at);
    return;
  }
  if (op->kind != OP_fused && op->kind != OP_all_reduce && op->kind != OP_to_partial) return;
  static struct reused ins, outs;
  size_t bytes = (size_t)op_width(op) * sizeof(int);
  int *in = cleared(&ins, bytes), *out = cleared(&outs, bytes);
  int nin = op_reads(op, in), nout = op_writes(op, out), ending = 0;
  for (int i = 0; i < nin; i++)
    if (graph->value[in[i]].stored && ends_at(in[i], at)) in[ending++] = in[i];
  nin = ending;
  for (int k = 0; k < nout; k++) {
    int taken = NONE;
    for (int i = 0; i < nin && taken == NONE; i++)
      if (may_overwrite(op, in[i], out[k]) && share(in[i], out[k], at)) taken = place_of(in[i]);
    int left = 0;
    for (int i = 0; i < nin; i++)
      if (place_of(in[i]) != taken) in[left++] = in[i];
    nin = left;
  }
}

/* ------------------------------------------------------------------------------------ buckets */

static int64_t *within; /* by value: where it begins in the bucket that it lies in */

static bool equal_on_all_ranks(int value)
{
  int64_t n = elements(local_shape(value, 0));
  for (int r = 1; r < world_size(); r++)
    if (elements(local_shape(value, r)) != n) return false;
  return true;
}

/* Whether a member of a bucket, which is reduced where it lies, can lie anywhere: nothing else has
   a part in its bytes. */
static bool is_free(const struct op *member)
{
  int place = root(member->in[0]);
  const struct value *v = &graph->value[place];
  return in_arena(place) && place == root(member->out) && v->family == NONE && v->depth == 1 &&
         equal_on_all_ranks(place) && largest_bytes(place) == largest_bytes(member->out);
}

static bool are_free(const struct op *op)
{
  static struct reused places;
  bool *taken = by_value(&places, sizeof *taken); /* by value that others share the bytes of */
  for (int k = 0; k < op->nbody; k++) {
    const struct op *member = &graph->op[op->body[k]];
    if (!is_free(member) || taken[root(member->out)]) return false;
    taken[root(member->out)] = true;
  }
  return true;
}

/* Members of a packed bucket that can lie anywhere are its parts, so that nothing is copied. */
static void place_in_bucket(const struct op *op)
{
  struct value *bucket = &graph->value[op->buffer];
  int64_t at = 0;
  if (!op->packed || !are_free(op)) return;
  for (int k = 0; k < op->nbody; k++) {
    int place = root(graph->op[op->body[k]].out);
    struct value *v = &graph->value[place];
    within[place] = at;
    at += largest_bytes(place);
    if (v->first < bucket->first) bucket->first = v->first;
    if (v->last > bucket->last) bucket->last = v->last;
    v->storage = op->buffer;
  }
}

/* Where a value begins in the place that it lies in. */
static int64_t offset_within(int value)
{
  int64_t at = 0;
  for (; graph->value[value].storage != value; value = graph->value[value].storage)
    at += within[value];
  return at;
}

/* ------------------------------------------------------------------------------------ placing */

int64_t arena_stride(int value)
{
  int64_t bytes = largest_bytes(value);
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int64_t arena_size(int value)
{
  return arena_stride(value) * graph->value[value].depth;
}

static int **gradient; /* by family: the gradients in it, by index */

static void find_gradients(void)
{
  int *count = alloc((size_t)(graph->nvalue + 1) * sizeof *count);
  gradient = alloc((size_t)(graph->nvalue + 1) * sizeof *gradient);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role != GRADIENT || v->family == NONE) continue;
      if (!pass && v->index >= count[v->family]) count[v->family] = v->index + 1;
      if (pass && !gradient[v->family])
        gradient[v->family] = alloc((size_t)count[v->family] * sizeof **gradient);
      if (pass) gradient[v->family][v->index] = i;
    }
}

/* Where a value lies in the end; offset[storage] is known. */
static void find_place(int value)
{
  struct value *v = &graph->value[value];
  bool is_one = v->family != NONE && !v->step && v->role == ACTIVATION;
  int storage = place_of(value), slot = is_one ? v->index : slot_of[value];
  const struct value *place = &graph->value[storage];
  if (is_one && place->role == GRADIENT && place->family == storage) {
    v->storage = gradient[storage][v->index];
    v->offset = 0;
    v->depth = 1;
    return;
  }
  int64_t inside = offset_within(is_one && v->family != value ? v->family : value);
  v->storage = storage;
  within[value] = inside;
  v->depth = place->depth;
  v->offset = place->offset + slot % place->depth * arena_stride(storage) + inside;
}

/* What several batches add up lies in one place, before and after: a parameter's gradient, and the
   loss. */
static void join_sums(void)
{
  static struct reused gradients, sums, places;
  added_up = by_value(&places, sizeof *added_up);
  int *first = by_value(&gradients, sizeof *first), *first_sum = by_value(&sums, sizeof *first_sum),
      loss = 0; /* 0: none yet, else it and 1 */
  for (int k = 0; k < known.n; k++) {
    struct value *v = &graph->value[known.at[k]];
    if (!is_gradient(known.at[k]) && v->role != LOSS) continue;
    if (v->role == GRADIENT && v->op == NONE) added_up[v->of] = true;
    int *at = v->role == LOSS ? &loss : v->role == SUMS ? &first_sum[v->of] : &first[v->of];
    if (!*at) *at = known.at[k] + 1;
    v->storage = *at - 1;
  }
}

static void know_none(void)
{
  static const struct graph *of;
  if (of != graph) known = (struct list){0};
  of = graph;
  known.n = 0;
}

static void know_all(void)
{
  know_none();
  for (int i = 0; i < graph->nvalue; i++) add(&known, i);
}

static bool *met; /* by value */

static void meet(int value)
{
  const struct value *v = &graph->value[value];
  met[value] = true;
  if (v->family != NONE) met[v->family] = true;
  if (v->step) meet(v->initial);
}

static void meet_touched(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)to, (void)times;
  for (int i = 0; i < op->nin; i++) meet(op->in[i]);
  for (int k = 0; k < op->nout; k++) meet(op->out + k);
  for (int k = 0; k < op->nbody; k++) meet_touched(NULL, op->body[k], 1);
  if (op->packed) meet(op->buffer);
}

/* Sums have one place, whether or not the program touches all of them. */
static void know_touched(void)
{
  static const struct graph *of;
  static struct reused touched;
  static struct list sums;
  static int nvalue;
  if (of != graph) sums = (struct list){0};
  for (int i = of == graph ? nvalue : 0; i < graph->nvalue; i++)
    if (is_gradient(i) || graph->value[i].role == LOSS) add(&sums, i);
  of = graph;
  nvalue = graph->nvalue;
  met = by_value(&touched, sizeof *met);
  each_op(meet_touched, NULL);
  for (int k = 0; k < sums.n; k++) met[sums.at[k]] = true;
  know_none();
  for (int i = 0; i < graph->nvalue; i++)
    if (met[i]) add(&known, i);
}

/* Finds lifetimes and what shares whose bytes; gives the storages in the arena, and how many. */
static int *find_storages(int *count)
{
  static struct reused offsets, storages;
  all_placed = false;
  find_places();
  find_lifetimes();
  for (int k = 0; k < known.n; k++) graph->value[known.at[k]].storage = known.at[k];
  join_sums();
  share_views();
  hold_crossings();
  widen_lifetimes();
  join_lifetimes();
  for (int at = 0; at < nplace; at++) share_in(&graph->op[op_at[at]], at);
  within = by_value(&offsets, sizeof *within);
  for (int at = 0; at < nplace; at++) place_in_bucket(&graph->op[op_at[at]]);
  int *value = by_value(&storages, sizeof *value);
  *count = 0;
  for (int k = 0; k < known.n; k++) {
    int i = known.at[k];
    if (in_arena(i) && root(i) == i && graph->value[i].first != NONE) value[(*count)++] = i;
  }
  return value;
}

static void forget_storages(void)
{
  for (int k = 0; k < known.n; k++) graph->value[known.at[k]].storage = known.at[k];
}

int64_t live_bytes(void)
{
  int n;
  know_touched();
  const int *value = find_storages(&n);
  int64_t most = most_live(value, n);
  forget_storages();
  return most;
}

bool can_live_in(int64_t bytes)
{
  know_touched();
  int n, *value = find_storages(&n);
  int64_t most = most_live(value, n);
  bool fits = most <= bytes && place_values(value, n, most, false) <= most + most / 256;
  forget_storages();
  return fits;
}

void memory(void)
{
  know_all();
  int n, *value = find_storages(&n);
  graph->live_bytes = most_live(value, n);
  graph->arena_bytes = place_values(value, n, graph->live_bytes, true);
  find_gradients();
  for (int i = 0; i < graph->nvalue; i++) find_place(i);
  all_placed = true;
}

bool same_place(int a, int b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  return v->storage == w->storage && v->offset == w->offset;
}
