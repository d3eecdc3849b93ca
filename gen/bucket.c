/* bucket.c: the pass `bucket`: few large collectives in the place of many small ones.

   Takes   functions with single collectives.
   Leaves  every gradient that is summed over ranks summed in its own place; and all-reduces of the
           same kind over the same group as one: an all_reduce whose body is the operations it
           stands for, at the place of the last of them. Values keep their layouts; what is computed
           is unchanged.

   The gradients of a rank lie in one block in the order of the parameters (memory.c), so that a run
   of them is reduced in place, with no copy in or out. What is small, so that to start a collective
   takes longer than to send it, travels with others that lie elsewhere: packed one after the other
   in a buffer before, and unpacked after, but where memory.c lets them lie in it anyway. Small
   gradients of a list's modules leave their loop for it. A bucket is kept to BUCKET_BYTES, so that
   the first can travel while the rest of the backward is still computed. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

static const int64_t BUCKET_BYTES = 25 << 20;

static bool is_gradient_sum(const struct op *op)
{
  return op->kind == OP_all_reduce && graph->value[op->out].role == GRADIENT;
}

static bool same_kind(int a, int b)
{
  const struct op *x = &graph->op[a], *y = &graph->op[b];
  return x->group == y->group && x->reduction == y->reduction &&
         graph->value[x->out].type == graph->value[y->out].type;
}

/* Whether to start a collective over the group takes longer than to send so many bytes. */
static bool is_small(int group, int64_t bytes)
{
  const struct group *g = &graph->group[group];
  double latency = 0, bandwidth = link_bandwidth(g->dim[0]);
  for (int i = 0; i < g->n; i++) {
    if (link_latency(g->dim[i]) > latency) latency = link_latency(g->dim[i]);
    if (link_bandwidth(g->dim[i]) < bandwidth) bandwidth = link_bandwidth(g->dim[i]);
  }
  return (double)bytes < latency * bandwidth;
}

/* ------------------------------------------------------------- gradients that nobody else reads */

/* How many operations read the value, or one of its family. */
static int readers(int value)
{
  int count = 0, family = graph->value[value].family;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      for (int j = 0; j < op->nin; j++)
        count += op->in[j] == value || (family != NONE && graph->value[op->in[j]].family == family);
    }
  return count;
}

static int copy_of(int value, const struct op *reader)
{
  struct op op = {.kind = OP_scale,
                  .nin = 1,
                  .in = {value},
                  .scalar = 1,
                  .phase = reader->phase,
                  .module = reader->module,
                  .line = reader->line};
  int id = make_op(op);
  struct value *v = &graph->value[graph->op[id].out];
  v->name = graph->value[value].name;
  v->layout = graph->value[value].layout;
  v->placed = true;
  return id;
}

static bool runs(const struct function *f, int op)
{
  for (int i = 0; i < f->nop; i++)
    if (f->op[i] == op) return true;
  return false;
}

/* Whether the value's bytes are made here, and read by one operation alone: they may be changed. A
   view's are those of what it shows. */
static bool is_own(const struct function *f, int value)
{
  const struct value *v = &graph->value[value];
  if (is_gradient(value)) return true; /* what batches have added up */
  if (readers(value) > 1 || !runs(f, v->op) || v->role != ACTIVATION || v->is_output) return false;
  const struct op *op = &graph->op[v->op];
  return op->kind != OP_view || is_own(f, op->in[0]);
}

/* Parameters that are added to each other have one gradient, which may also travel on to what lies
   before them. A sum in place would spoil it for the others: it gets a copy. */
static void own_inputs(struct function *f)
{
  int *op = alloc((size_t)(2 * f->nop + 1) * sizeof *op), n = 0;
  for (int i = 0; i < f->nop; i++) {
    int id = f->op[i], value = graph->op[id].nin ? graph->op[id].in[0] : NONE;
    if (is_gradient_sum(&graph->op[id]) && !is_own(f, value)) {
      int copy = copy_of(value, &graph->op[id]);
      op[n++] = copy;
      graph->op[id].in[0] = graph->op[copy].out;
    }
    op[n++] = id;
  }
  f->op = op;
  f->nop = n;
}

/* --------------------------------------------------------------------------------- out of loops */

/* Whether it sums what each module of a list makes for itself, and nothing in the loop reads that.
 */
static bool may_leave(const struct function *body, int id)
{
  const struct op *op = &graph->op[id];
  if (!is_gradient_sum(op)) return false;
  if (graph->value[op->in[0]].family != op->in[0] || graph->value[op->out].family != op->out)
    return false;
  for (int i = 0; i < body->nop; i++) {
    const struct op *reader = &graph->op[body->op[i]];
    for (int k = 0; k < reader->nin; k++)
      if (graph->value[reader->in[k]].family == op->out) return false;
  }
  return true;
}

/* What a round of the loop sums of this kind. */
static int64_t bytes_of_round(const struct function *body, int like)
{
  int64_t bytes = 0;
  for (int i = 0; i < body->nop; i++)
    if (may_leave(body, body->op[i]) && same_kind(body->op[i], like))
      bytes += largest_bytes(graph->op[body->op[i]].out);
  return bytes;
}

/* Adds the operations that the other modules of the list have for it. */
static void add_members(struct list *list, int id)
{
  int family = graph->op[id].out;
  for (int v = 0; v < graph->nvalue; v++)
    if (graph->value[v].family == family && graph->value[v].role == GRADIENT)
      add(list, graph->value[v].op);
}

static void bring_out(struct function *body, struct list *order)
{
  int *op = alloc((size_t)(body->nop + 1) * sizeof *op), n = 0;
  for (int i = 0; i < body->nop; i++) {
    int id = body->op[i];
    if (may_leave(body, id) && is_small(graph->op[id].group, bytes_of_round(body, id)))
      add_members(order, id);
    else
      op[n++] = id;
  }
  body->op = op;
  body->nop = n;
}

/* What leaves a loop stands behind its call, or in its place where nothing is left. */
static void bring_out_of_loops(struct function *f)
{
  struct list order = {0};
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    struct list out = {0};
    if (op->kind == OP_loop) bring_out(&graph->function[op->function], &out);
    if (op->kind != OP_loop || graph->function[op->function].nop) add(&order, f->op[i]);
    for (int k = 0; k < out.n; k++) add(&order, out.at[k]);
  }
  f->op = order.at;
  f->nop = order.n;
}

static void leave_out_empty_loops(void)
{
  int kept = 0, *place = alloc((size_t)(graph->nfunction + 1) * sizeof *place);
  for (int i = 0; i < graph->nfunction; i++) {
    place[i] = kept;
    if (graph->function[i].nop) graph->function[kept++] = graph->function[i];
  }
  graph->nfunction = kept;
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_loop) graph->op[i].function = place[graph->op[i].function];
}

/* -------------------------------------------------------------------------------------- merging */

/* What the operations read and write that have to stay in their order, by value: one of a family
   speaks for all of it. */
struct touched {
  bool *read, *written;
};

static int speaker(int value)
{
  int family = graph->value[value].family;
  return family == NONE ? value : family;
}

typedef void visitor(struct touched *t, int value, bool writes, bool *found);

static void visit_op(const struct op *op, visitor *visit, struct touched *t, bool *found)
{
  static int *list, room;
  if (op->kind == OP_loop) {
    const struct function *body = &graph->function[op->function];
    for (int i = 0; i < body->nop; i++) visit_op(&graph->op[body->op[i]], visit, t, found);
    return;
  }
  while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
  for (int n = op_reads(op, list); n--;) {
    visit(t, speaker(list[n]), false, found);
    if (graph->value[list[n]].step) visit(t, speaker(graph->value[list[n]].initial), false, found);
  }
  for (int k = 0; k < op->nout; k++) visit(t, speaker(op->out + k), true, found);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    visit(t, speaker(inner->out == NONE ? inner->in[0] : inner->out), true, found);
  }
  if (op->out == NONE && op->nin) visit(t, speaker(op->in[0]), true, found);
}

static void note(struct touched *t, int value, bool writes, bool *found)
{
  (void)found;
  *(writes ? &t->written[value] : &t->read[value]) = true;
}

static void look_up(struct touched *t, int value, bool writes, bool *found)
{
  *found |= t->written[value] || (writes && t->read[value]);
}

/* Whether the operation has to come after what is noted. */
static bool depends(const struct op *op, struct touched *t)
{
  bool found = false;
  visit_op(op, look_up, t, &found);
  return found;
}

static bool is_among(const int *list, int n, int id)
{
  for (int i = 0; i < n; i++)
    if (list[i] == id) return true;
  return false;
}

/* Whether the members can run as one at the place of the last: what depends on the others of those
   between goes behind it. Leaves the order, in which the last stands for all. */
static bool gather(const struct function *f, const int *member, int n, struct list *order)
{
  struct touched t = {alloc((size_t)graph->nvalue + 1), alloc((size_t)graph->nvalue + 1)};
  struct list behind = {0};
  int left = n;
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    bool mine = is_among(member, n, f->op[i]), between = left > 0 && left < n;
    if (mine && t.written[speaker(op->in[0])]) return false;
    bool goes_behind = !mine && between && depends(op, &t);
    if (mine || goes_behind) visit_op(op, note, &t, NULL);
    left -= mine;
    if (goes_behind)
      add(&behind, f->op[i]);
    else if (!mine || !left)
      add(order, f->op[i]);
    for (int k = 0; k < behind.n && mine && !left; k++) add(order, behind.at[k]);
  }
  return true;
}

/* Room for the members' parts of any rank, one after the other. */
static int buffer_for(const int *member, int n, const char *name)
{
  const struct op *first = &graph->op[member[0]];
  struct shape most = {.ndim = 1};
  for (int r = 0; r < world_size(); r++) {
    int64_t sum = 0;
    for (int k = 0; k < n; k++) sum += elements(local_shape(graph->op[member[k]].out, r));
    if (sum > most.size[0]) most.size[0] = sum;
  }
  int buffer =
      add_value(ACTIVATION, name, graph->value[first->out].type, most, first->module, first->line);
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

static int bucket_of(const int *member, int n, bool packed)
{
  int *body = alloc((size_t)n * sizeof *body), buffer = NONE;
  memcpy(body, member, (size_t)n * sizeof *body);
  bool gradients = graph->value[graph->op[member[0]].out].role == GRADIENT;
  if (packed) buffer = buffer_for(member, n, gradients ? "gradients" : "together");
  struct op op = graph->op[member[0]];
  op.nbody = n;
  op.body = body;
  op.packed = packed;
  op.buffer = buffer;
  op.why = !gradients ? reasons(member, n)
           : packed   ? "they are small, and travel together"
                      : "they lie side by side";
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  if (packed) graph->value[buffer].op = graph->nop;
  return graph->nop++;
}

/* Makes one of the members, if there are several and nothing is between that cannot be. */
static void merge(struct function *f, const int *member, int n, bool packed)
{
  struct list order = {0};
  if (n < 2 || !gather(f, member, n, &order)) return;
  int id = bucket_of(member, n, packed);
  for (int i = 0; i < order.n; i++)
    if (is_among(member, n, order.at[i])) order.at[i] = id;
  f->op = order.at;
  f->nop = order.n;
}

/* ------------------------------------------------------------------------------------ gradients */

/* Sums of gradients that follow one another in memory. */
struct run {
  const int *member;
  int n;
  int64_t bytes;
};

static int parameter_of(const struct run *r)
{
  return graph->value[graph->op[r->member[0]].out].of;
}

static bool joins(const struct run *r, int op, int64_t bytes)
{
  return same_kind(r->member[0], op) && r->bytes + bytes <= BUCKET_BYTES;
}

/* By parameter the all-reduce of its gradient in this function, or NONE. */
static int *sums_in(const struct function *f)
{
  int *sum = alloc((size_t)graph->nvalue * sizeof *sum);
  for (int i = 0; i < graph->nvalue; i++) sum[i] = NONE;
  for (int i = f->nop; i-- > 0;) {
    const struct op *op = &graph->op[f->op[i]];
    if (is_gradient_sum(op)) sum[graph->value[op->out].of] = f->op[i];
  }
  return sum;
}

/* In the order of the parameters; gives how many. */
static int find_runs(const struct function *f, struct run *run)
{
  int *sum = sums_in(f), *member = alloc((size_t)(f->nop + 1) * sizeof *member), n = 0, nrun = 0;
  bool open = false; /* the last may go on */
  for (int p = 0; p < graph->nvalue; p++) {
    if (graph->value[p].role != PARAMETER) continue;
    if (sum[p] == NONE) {
      open = false;
      continue;
    }
    int64_t bytes = largest_bytes(graph->op[sum[p]].out);
    member[n] = sum[p];
    if (!open || !joins(&run[nrun - 1], sum[p], bytes))
      run[nrun++] = (struct run){.member = member + n};
    run[nrun - 1].n++;
    run[nrun - 1].bytes += bytes;
    n++;
    open = true;
  }
  return nrun;
}

/* Those of the modules of a list, which can be copied at once, after one another. */
static int by_family(const void *a, const void *b)
{
  int p = parameter_of(a), q = parameter_of(b), x = speaker(p), y = speaker(q);
  if (x != y) return x < y ? -1 : 1;
  return p < q ? -1 : p > q;
}

/* The small ones of one kind, packed into as few as their bytes allow. */
static void pack_runs(struct function *f, struct run *run, int n)
{
  qsort(run, (size_t)n, sizeof *run, by_family);
  for (int first = 0, next; first < n; first = next) {
    struct list member = {0};
    int64_t bytes = 0;
    for (next = first; next < n; next++) {
      if (next > first && bytes + run[next].bytes > BUCKET_BYTES) break;
      bytes += run[next].bytes;
      for (int k = 0; k < run[next].n; k++) add(&member, run[next].member[k]);
    }
    merge(f, member.at, member.n, next - first > 1);
  }
}

static void bucket_gradients(struct function *f)
{
  struct run *run = alloc((size_t)(f->nop + 1) * sizeof *run);
  struct run *small = alloc((size_t)(f->nop + 1) * sizeof *small);
  for (int n = find_runs(f, run); n > 0;) {
    int left = 0, nsmall = 0, group = graph->op[run[0].member[0]].group;
    struct run first = run[0];
    for (int i = 0; i < n; i++) {
      bool joined = i == 0 || same_kind(first.member[0], run[i].member[0]);
      if (!joined)
        run[left++] = run[i];
      else if (is_small(group, run[i].bytes))
        small[nsmall++] = run[i];
      else
        merge(f, run[i].member, run[i].n, false);
    }
    pack_runs(f, small, nsmall);
    n = left;
  }
}

/* --------------------------------------------------------------------------------- other values */

static bool is_small_sum(int id)
{
  const struct op *op = &graph->op[id];
  return op->kind == OP_all_reduce && !op->nbody && !is_gradient_sum(op) &&
         is_small(op->group, largest_bytes(op->out));
}

/* The members that can run as one with the first, until one cannot. */
static void gather_small(const struct function *f, int first, struct list *member)
{
  int64_t bytes = largest_bytes(graph->op[f->op[first]].out);
  add(member, f->op[first]);
  for (int i = first + 1; i < f->nop; i++) {
    struct list order = {0};
    if (!is_small_sum(f->op[i]) || !same_kind(f->op[first], f->op[i])) continue;
    bytes += largest_bytes(graph->op[f->op[i]].out);
    if (bytes > BUCKET_BYTES) return;
    add(member, f->op[i]);
    if (gather(f, member->at, member->n, &order)) continue;
    member->n--;
    return;
  }
}

static void bucket_small(struct function *f)
{
  for (int i = 0; i < f->nop; i++) {
    struct list member = {0};
    if (!is_small_sum(f->op[i])) continue;
    gather_small(f, i, &member);
    if (member.n < 2) continue;
    merge(f, member.at, member.n, true);
    i--;
  }
}

void bucket(void)
{
  for (int i = 0; i < graph->nfunction; i++) own_inputs(&graph->function[i]);
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].count == 1) bring_out_of_loops(&graph->function[i]);
  leave_out_empty_loops();
  for (int i = 0; i < graph->nfunction; i++) {
    bucket_gradients(&graph->function[i]);
    bucket_small(&graph->function[i]);
  }
}
