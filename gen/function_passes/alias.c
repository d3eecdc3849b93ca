/* alias.c: finds the values that share bytes.

   Values that share bytes have one representative: the storage. A view shares the bytes of its
   input, a result those of the input that it overwrites, a member of a bucket those of the bucket's
   buffer. Gradients that several batches accumulate share one place, and so do losses. */
#include "function_passes/function_passes.h"

static int root(const struct lifetimes *l, int value)
{
  return representative(l->plan, value);
}

/* ----------------------------------------------------------------------------------------- sums */

/* The field that holds the place of an accumulator: of all losses, or of a parameter's gradients or
   sums; NULL: the value is no accumulator. */
static int *place_of_sums(struct lifetimes *l, int value, int *loss)
{
  const struct value *v = &graph->value[value];
  if (v->role == LOSS) return loss;
  if (!is_gradient(value)) return NULL;
  return v->role == SUMS ? &l->note[v->of].sum : &l->note[v->of].gradient;
}

/* Whether the value there is kept from batch to batch. */
static bool is_added_up(const struct lifetimes *l, int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == LOSS || is_of_metric(value)) return adds_up_loss();
  if (v->is_output) return false; /* the update makes it */
  return runs_in_step() > 1 && !(v->role == GRADIENT && !l->note[v->of].added_up);
}

/* ---------------------------------------------------------------------------------------- views */

/* The bytes of one slice, if the value is a part of a whole one with others of its stack; or 0. */
static int64_t slice_bytes(const struct lifetimes *l, int value)
{
  int stack = in_loop(value)->step ? NONE : in_loop(value)->stack;
  return l->plan->of[stack == NONE ? value : stack].slice;
}

static void show(struct lifetimes *l, int in, int out)
{
  l->plan->of[out].slice = slice_bytes(l, in);
  const struct in_loop *a = in_loop(in);
  bool alone = a->stack != NONE && in_loop(out)->stack == NONE;
  l->note[out].slot = alone ? a->index : l->note[in].slot;
  int storage = stack_representative(l->plan, in), depth = l->plan->of[out].depth;
  struct allocation *shown = &l->plan->of[storage];
  if (in_loop(storage)->stack != NONE && shown->depth < depth) shown->depth = depth;
  l->plan->of[out].storage = storage;
}

/* ---------------------------------------------------------------------------------------- scans */

/* The steps' values are slices of the whole value. */
static void lay_slices(struct lifetimes *l, int stack, int whole)
{
  struct allocation *a = &l->plan->of[stack];
  a->storage = root(l, whole);
  a->slice = largest_bytes(stack);
}

/* The slices of a value that a scan goes over stay in place, and the values that its steps put
   together are made in their final place. */
static void share_slices(struct lifetimes *l)
{
  for (int at = 0; at < l->op.n; at++) {
    const struct op *op = op_at(l, at);
    int body = function_running_at(l, at);
    if (op->kind == OP_scan_take && in_loop(op->in[0])->stack == NONE && is_loop_body(body))
      lay_slices(l, op->out, op->in[0]);
    if (op->kind != OP_scan_stack) continue;
    int slices = op->in[0], maker = l->plan->of[slices].made_by;
    lay_slices(l, slices, op->out);
    l->plan->of[slices].depth = graph->function[maker].count;
  }
  for (int at = 0; at < l->op.n; at++) {
    const struct op *op = op_at(l, at);
    if (op->kind != OP_scan_put) continue;
    int in = op->in[0], out = op->out;
    struct allocation *a = &l->plan->of[in];
    bool made_here = a->made_by == function_running_at(l, at) && in_loop(in)->stack == in;
    if (!made_here || !in_arena(in) || a->storage != in || !have_same_parts(in, out)) continue;
    a->storage = root(l, out);
    a->slice = l->plan->of[out].slice;
    a->depth = l->plan->of[out].depth;
  }
}

/* ------------------------------------------------------------------------------ concat buffers */

/* A concat buffer lives as long as any of its parts, and has their depth. A value that shows a part
   has the part's place. */
static void share_wide(struct lifetimes *l)
{
  struct allocation *of = l->plan->of;
  for (int k = 0; k < l->value.n; k++) {
    int i = l->value.at[k], wide = concat_slice(i)->buffer;
    if (wide == NONE || of[i].storage != i) continue;
    struct allocation *place = &of[wide];
    if (place->first == NONE) *place = of[i];
    place->storage = wide;
    if (of[i].first != NONE && of[i].first < place->first) place->first = of[i].first;
    if (of[i].last > place->last) place->last = of[i].last;
    if (of[i].depth > place->depth) place->depth = of[i].depth;
    l->note[wide].loop_carried |= l->note[i].loop_carried;
    l->note[i].within = concat_slice(i)->first * type_bytes(graph->value[i].type);
    of[i].storage = wide;
  }
}

/* ------------------------------------------------------------------------------------- in place */

/* Whether a value of the arena may give its place to `out`, made at `at`, whose place is `to`. In a
   loop an iteration may only take the place of a value of the same iteration, with the same number
   of slots. Accumulators over batches keep their own place. */
static bool may_give_way(const struct lifetimes *l, int in, int out, int to)
{
  const struct allocation *a = &l->plan->of[in], *b = &l->plan->of[out],
                          *from = &l->plan->of[root(l, in)];
  if (!in_arena(to) && is_added_up(l, to)) return false;
  if (is_loop_body(b->made_by) && (a->made_by != b->made_by || from->made_by != b->made_by))
    return false;
  return from->depth == (in_arena(to) ? b->depth : 1);
}

/* Whether the two are in stacks of different lists: steps of a scan find no gradient of a list of
   modules by the number of the step. */
static bool are_of_two_lists(int in, int out)
{
  int a = in_loop(in)->stack, b = in_loop(out)->stack;
  return a != NONE && b != NONE && in_loop(a)->list != in_loop(b)->list;
}

/* Lets `out`, made at `at`, take the bytes of `in`, of the same size, which nothing reads later.
   Values outside the arena keep their place. */
static bool share(struct lifetimes *l, int in, int out, int at)
{
  const struct allocation *b = &l->plan->of[out];
  if (!graph->value[in].stored || !graph->value[out].stored || b->made != at || !ends_at(l, in, at))
    return false;
  if (slice_bytes(l, in) || slice_bytes(l, out))
    return false; /* the bytes also hold other slices
                     of a scan */
  if (l->note[out].is_sum) return false;
  int from = root(l, in), to = root(l, out);
  if (from == to) return true;
  if (l->note[to].loop_carried && in_arena(to)) return false;
  if (!in_arena(from) || !may_give_way(l, in, out, to)) return false;
  struct allocation *place = &l->plan->of[from];
  if (!in_arena(to)) {
    const bool leaves = are_of_two_lists(from, to); /* only `in` takes the place of `out`, not its
                                                       storage */
    if (leaves && (in == from || are_of_two_lists(in, to))) return false;
    l->plan->of[leaves ? in : from].storage = to;
    return true;
  }
  l->plan->of[to].storage = from;
  if (place->first > b->first) place->first = b->first;
  if (place->last < b->last) place->last = b->last;
  return true;
}

/* Each module of a list makes a term of a sum, which runs for all of them after their loop and
   becomes the gradient. The term takes the place of the gradient: bucket.c has made sure that
   nothing else reads it. */
static void share_gradient(struct lifetimes *l, int in, int out)
{
  int storage = root(l, in);
  if (in_loop(in)->stack != in || in_loop(out)->stack != out) return;
  if (graph->value[out].role != GRADIENT || !in_arena(storage)) return;
  if (are_of_two_lists(storage, out)) return;
  if (in_loop(storage)->stack == storage) l->plan->of[storage].storage = out;
}

static void share_in_place(struct lifetimes *l, const struct op *op, int at)
{
  /* A view that could not show its input's bytes may still take them. */
  if (op->kind == OP_view) share(l, op->in[0], op->out, at);
  if (op->kind == OP_all_reduce && op->nbody) {
    /* One value may be summed for several readers: only the first member takes its bytes. */
    struct list taken = {.at = l->in, .room = l->width};
    for (int k = 0; k < op->nbody; k++) {
      const struct op *inner = &graph->op[op->body[k]];
      int in = inner->in[0];
      if (have_same_parts(in, inner->out) && !l->note[root(l, in)].taken) {
        share(l, in, inner->out, at);
        share_gradient(l, in, inner->out);
      }
      l->note[root(l, in)].taken = true;
      add(&taken, root(l, in));
    }
    for (int k = 0; k < taken.n; k++) l->note[taken.at[k]].taken = false;
    return;
  }
  /* Whether it sums, outside of buckets, a gradient of a list's module that the loop makes: others
     of the list may be in buckets. */
  bool sums_behind_loop = false;
  if (op->kind == OP_all_reduce && !is_loop_body(function_running_at(l, at))) {
    int maker = l->plan->of[op->in[0]].made_by;
    sums_behind_loop = maker != NONE && is_loop_body(maker);
  }
  if (sums_behind_loop) share_gradient(l, op->in[0], op->out);
  if (op->kind == OP_fused || adds_to_another(op) || collective_row[op->kind].in_place ||
      op->kind == OP_to_partial) {
    /* Each result may take the place of one input. */
    int *in = l->in, *out = l->out;
    int nin = op_reads(op, in), nout = op_writes(op, out), ending = 0;
    for (int i = 0; i < nin; i++)
      if (graph->value[in[i]].stored && ends_at(l, in[i], at)) in[ending++] = in[i];
    nin = ending;
    for (int k = 0; k < nout; k++) {
      int taken = NONE;
      for (int i = 0; i < nin && taken == NONE; i++)
        if (may_overwrite(l->plan, op, in[i], out[k]) && share(l, in[i], out[k], at))
          taken = stack_representative(l->plan, in[i]);
      int left = 0;
      for (int i = 0; i < nin; i++)
        if (stack_representative(l->plan, in[i]) != taken) in[left++] = in[i];
      nin = left;
    }
  }
}

/* -------------------------------------------------------------------------------------- buckets */

/* The address of a member is one for all ranks and all micro-batches, so the members before it must
   have one size on all of them. */
static bool has_one_size(int value)
{
  if (!is_even_in_time(value)) return false;
  int64_t n = elements(local_shape(value, 0));
  for (int r = 1; r < world_size(); r++)
    if (elements(local_shape(value, r)) != n) return false;
  return true;
}

static bool are_free(struct lifetimes *l, const struct op *op)
{
  int n = 0;
  while (n < op->nbody) {
    const struct op *member = &graph->op[op->body[n]];
    bool *taken = &l->note[root(l, member->out)].taken;
    /* Whether a member of a bucket, which is reduced in place, can be put anywhere: nothing else
       shares its bytes. */
    int storage = root(l, member->in[0]);
    bool alias_is_free = in_arena(storage) && storage == root(l, member->out) &&
                         in_loop(storage)->stack == NONE && l->plan->of[storage].depth == 1 &&
                         has_one_size(storage) &&
                         largest_bytes(storage) == largest_bytes(member->out);
    if (!alias_is_free || *taken) break;
    *taken = true;
    n++;
  }
  for (int k = 0; k < n; k++) l->note[root(l, graph->op[op->body[k]].out)].taken = false;
  return n == op->nbody;
}

/* Members of a packed bucket that can be put anywhere become its parts, which saves copies. */
static void share_buffer(struct lifetimes *l, const struct op *op)
{
  if (!op->packed || !are_free(l, op)) return;
  struct allocation *buffer = &l->plan->of[op->buffer];
  int64_t at = 0;
  for (int k = 0; k < op->nbody; k++) {
    int storage = root(l, graph->op[op->body[k]].out);
    struct allocation *member = &l->plan->of[storage];
    l->note[storage].within = at;
    at += largest_bytes(storage);
    if (member->first < buffer->first) buffer->first = member->first;
    if (member->last > buffer->last) buffer->last = member->last;
    member->storage = op->buffer;
  }
}

/* ----------------------------------------------------------------------------------- in the end */

void find_aliases(struct lifetimes *l)
{
  /* An accumulator over several batches, a parameter's gradient or the loss, is one place: that of
     the first value that is in a stack, which loops find by their modules; without such a value,
     that of the first. */
  int loss = NONE;
  for (int k = 0; k < l->value.n; k++) {
    int value = l->value.at[k], *first = place_of_sums(l, value, &loss);
    const struct value *v = &graph->value[value];
    if (!first) continue;
    if (v->role == GRADIENT && v->op == NONE) l->note[v->of].added_up = true;
    if (*first == NONE || (in_loop(*first)->stack == NONE && in_loop(value)->stack != NONE))
      *first = value;
  }
  for (int k = 0; k < l->value.n; k++) {
    int value = l->value.at[k];
    const int *first = place_of_sums(l, value, &loss);
    if (first) l->plan->of[value].storage = *first;
  }
  share_slices(l);
  /* A sum over the steps of a scan has one place, from the zeros with which it begins. */
  for (int k = 0; k < l->value.n; k++) {
    const struct in_loop *loop = in_loop(l->value.at[k]);
    if (!l->note[l->value.at[k]].sums_up) continue;
    l->plan->of[loop->initial].storage = loop->stack;
    l->note[loop->stack].is_sum = true;
  }
  for (int at = 0; at < l->op.n; at++) {
    const struct op *op = op_at(l, at);
    if (is_view(op)) {
      /* Whether a view made by this function may share the bytes of `in` wherever the view is read.
         A loop-carried value has no place of its own; a value outside the arena has a name, and so
         no place by module index. */
      const struct in_loop *a = in_loop(op->in[0]), *b = in_loop(op->out);
      bool can_show = false;
      if (graph->value[op->in[0]].stored && in_arena(op->out)) {
        bool outside = !in_arena(stack_representative(l->plan, op->in[0]));
        can_show = (!outside || b->stack == NONE || !l->note[op->out].by_own_name) &&
                   (a->stack == NONE || (is_loop_body(function_running_at(l, at))
                                             ? a->stack == op->in[0] && b->stack == op->out
                                             : !outside && b->stack == NONE));
      }
      if (can_show) show(l, op->in[0], op->out);
    }
  }
  hold_loop_carried(l);
  widen_lifetimes(l);
  /* The storage lives as long as each of its views, and each view has its depth. */
  struct allocation *of = l->plan->of;
  for (int k = 0; k < l->value.n; k++) {
    int i = l->value.at[k], storage = root(l, i);
    if (!in_arena(storage)) continue;
    if (of[storage].last < of[i].last) of[storage].last = of[i].last;
    if (of[i].first != NONE && of[storage].first > of[i].first) of[storage].first = of[i].first;
  }
  for (int k = 0; k < l->value.n; k++) {
    int i = l->value.at[k], storage = root(l, i);
    if (storage == i || !in_arena(storage)) continue;
    of[i].last = of[storage].last;
    of[i].depth = of[storage].depth;
  }
  share_wide(l);
  for (int at = 0; at < l->op.n; at++) share_in_place(l, op_at(l, at), at);
  for (int at = 0; at < l->op.n; at++) share_buffer(l, op_at(l, at));
}

int64_t offset_within(const struct lifetimes *l, int value)
{
  int64_t at = 0;
  for (; l->plan->of[value].storage != value; value = l->plan->of[value].storage)
    at += l->note[value].within;
  return at;
}
