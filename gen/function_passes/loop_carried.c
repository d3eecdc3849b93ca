/* loop_carried.c: part of the pass `schedule`: collectives that are in flight from one iteration of
   a loop to another.

   Takes   a loop's body, and the function that calls the loop.
   Leaves  each collective of the body whose inputs the loop does not make (the gather of a
           parameter) prefetched: it is awaited at its place, and issued there for the next
           iteration, or, with a larger prefetch distance, for a later one. For the first iterations
           it is issued before the loop. And each collective whose result nothing in the loop needs
           (the reduction of a gradient) awaited in the next iteration: it is issued at its place,
           and awaited in the next iteration before its operands are written again; that of the last
           iteration is awaited after the loop. The operations that issue, or await, a collective
           for another iteration are a part of the body, a function of its own:

             body     ...  await v12;  body_ahead for the next iteration;  ...  readers of v12  ...
             part     body_ahead { v12 = all_gather(weight) }
             forward  body_ahead for the first iteration;  ...  the loop

   So a collective has the time of a whole iteration, or of several. A prefetched value is kept once
   for each iteration of the prefetch distance, and once for the current one; it lives from before
   the loop to its end. A collective that the next iteration awaits lives as long. That must fit the
   memory that device_mesh gives a rank. If it gives none, it may cost at most half of the bytes
   that live at once without it.

   Targets without streams call their collectives where they are issued: they would gain nothing. */
#include "function_passes/function_passes.h"

#include <string.h>

/* A collective of a body that can be loop-carried, with the operations that only it needs. */
struct carried_collective {
  int op;
  int predecessor; /* awaited_next: the collective of the body that it is chained to, or NONE */
  bool awaited_next;
  struct list before; /* operations that make its input only from parameters: they move with it */
  struct list after;  /* awaited_next: operations that add its result to the sum of the batches */
};

struct carried_list {
  int n, room;
  struct carried_collective *at;
};

/* ------------------------------------------------------------------------------- the candidates */

/* The number of operations of the program that read the value in memory, or a member of its
   stack. */
static int reads_in_memory(int value)
{
  int count = 0;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      for (struct list in = values_read(op); in.n--;) count += is_of_stack(in.at[in.n], value);
    }
  return count;
}

/* The operation of the function that stores the value, or NONE; *alone: whether it stores no other
   value. */
static int maker_in(const struct function *f, int value, bool *alone)
{
  for (int k = 0; k < f->nop; k++) {
    const struct list made = values_made(&graph->op[f->op[k]]);
    *alone = made.n == 1;
    if (lists_number(made.at, made.n, value)) return f->op[k];
  }
  return NONE;
}

/* Whether another loop over the same list made the value for every module. */
static bool is_kept_for_all(const struct function *f, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (loop->stack != value || loop->step || v->role != ACTIVATION || v->op == NONE) return false;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *maker = &graph->function[i];
    bool alone;
    if (maker != f && maker->count > 1 && maker_in(maker, value, &alone) != NONE) return true;
  }
  return false;
}

/* Whether the inputs of the operation exist before the loop. Values of the body count if they are
   made only from parameters, by operations that nothing else needs: these are added to `before`, in
   their order. */
static bool needs_no_iteration(const struct function *f, const struct op *op, struct list *before)
{
  enum { FEW = 8 };
  int *reads = alloc((size_t)op_width(op) * sizeof *reads), n = op_reads(op, reads);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[reads[i]];
    if (is_of_module(v) || v->role == BATCH || is_kept_for_all(f, reads[i])) continue;
    if (in_loop(reads[i])->step || v->role != ACTIVATION || v->is_output || v->op == NONE)
      return false;
    bool alone;
    int id = maker_in(f, reads[i], &alone);
    if (id == NONE || !alone || before->n == FEW) return false;
    const struct op *maker = &graph->op[id];
    if (is_collective(maker->kind) || reads_in_memory(reads[i]) != 1) return false;
    if (!needs_no_iteration(f, maker, before)) return false;
    add(before, id);
  }
  return true;
}

/* Whether the operation touches the bytes of this value, which another operation makes, for any
   module; for a gradient, all bytes of its parameter's gradients. */
static bool touches(const struct op *op, int value)
{
  const struct value *v = &graph->value[value];
  const struct list read = values_read(op), made = values_made(op);
  for (int r = 0; r < read.n + made.n; r++) {
    int touched = r < read.n ? read.at[r] : made.at[r - read.n];
    const struct value *w = &graph->value[touched];
    if (v->role == GRADIENT && w->role == GRADIENT && w->of == v->of) return true;
    if (v->role == ACTIVATION && is_of_stack(touched, value)) return true;
  }
  return false;
}

/* Whether the operation only adds the collective's result to gradients in place, which nothing
   else in the body touches: it can as well run when a later iteration awaits the collective. */
static bool adds_up(const struct function *f, const struct op *op, const struct op *collective)
{
  int *list = alloc((size_t)op_width(op) * sizeof *list), n = op_reads(op, list);
  int *made = alloc((size_t)op_width(collective) * sizeof *made),
      count = op_makes(collective, made);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[list[i]];
    int k = 0;
    while (k < count && made[k] != list[i]) k++;
    if (k == count && !(v->role == GRADIENT && v->op == NONE)) return false;
  }
  n = op_makes(op, list);
  for (int i = 0; i < n; i++) {
    bool is_of_gradient = graph->value[list[i]].role == GRADIENT;
    if (!is_of_gradient || in_loop(list[i])->stack != list[i]) return false;
  }
  if (op->kind != OP_fused || !n) return false;
  /* Whether nothing else in the body touches the bytes of these values. */
  for (int i = 0; i < n; i++)
    for (int k = 0; k < f->nop; k++) {
      const struct op *other = &graph->op[f->op[k]];
      if (other != op && touches(other, list[i])) return false;
    }
  return true;
}

/* Whether nothing else in the body touches the operation's result, except a chained collective and
   the operations that accumulate it. The result has its own place in every module: it is a
   gradient, or becomes one after the loop. after: the operations that accumulate it; NULL: none
   may. */
static bool serves_no_iteration(const struct function *f, const struct op *op, int successor,
                                struct list *after)
{
  int *writes = alloc((size_t)op_width(op) * sizeof *writes), n = op_makes(op, writes);
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[writes[i]];
    const struct in_loop *loop = in_loop(writes[i]);
    if (op->packed && writes[i] == op->buffer) continue;
    bool has_places =
        v->role == GRADIENT || (v->role == ACTIVATION && !v->is_output && !loop->step);
    if (!has_places || loop->stack != writes[i]) return false;
    for (int k = 0; k < f->nop; k++) {
      const struct op *other = &graph->op[f->op[k]];
      if (other == op || f->op[k] == successor || !touches(other, writes[i])) continue;
      if (!after || !adds_up(f, other, op)) return false;
      add_once(after, f->op[k]);
    }
  }
  if (after) {
    /* The operations of the list, in the order in which the function runs them. */
    int j = 0;
    for (int k = 0; k < f->nop; k++)
      for (int i = j; i < after->n; i++)
        if (after->at[i] == f->op[k]) {
          after->at[i] = after->at[j];
          after->at[j++] = f->op[k];
        }
  }
  return n > 0;
}

/* The only collective of the body that works on this one's result and on nothing else (the sum over
   replicas of the result of a reduction over shards): it can be chained to this one, and one await
   then serves both; or NONE. */
static int successor_in(const struct function *f, int id, struct list *after)
{
  const struct op *op = &graph->op[id];
  if (!target->streams || !scatters_sum(op->kind)) return NONE;
  for (int k = runs_at(f, id) + 1; k < f->nop; k++) {
    const struct op *other = &graph->op[f->op[k]];
    if (!is_collective(other->kind) || !can_chain(other, op)) continue;
    bool alone =
        serves_no_iteration(f, op, f->op[k], NULL) && serves_no_iteration(f, other, NONE, after);
    return alone ? f->op[k] : NONE;
  }
  return NONE;
}

/* The ways of a collective that can be loop-carried. A gather may be several iterations ahead. */
static const char WITHIN[] = "within its iteration", AHEAD[] = "1 iteration ahead",
                  FURTHER_AHEAD[] = "2 iterations ahead",
                  BEHIND[] = "awaited in the next iteration";

static const char *carried_subject(const struct function *f, int id)
{
  const struct op *op = &graph->op[id];
  return text("%s of %s%s in %s", op_row[op->kind].name, starred_name(value_name(op->in[0])),
              op->nbody > 1 ? text(" and %d more", op->nbody - 1) : "", f->name);
}

/* The way that --explain-cost forces on the collective, or NULL. */
static const char *forced_carry(const struct function *f, int id)
{
  return are_decisions_explained() ? forced_way_of("prefetch", carried_subject(f, id)) : NULL;
}

static void note_carried(const struct function *f, const struct carried_collective *c)
{
  const struct op *op = &graph->op[c->op];
  const struct scheduled *s = scheduled(op);
  if (!is_op_explained(op)) return;
  const double bytes = (double)max_volume_of(op).received, takes = (double)time_taken(op) * 1e-12;
  struct alternative list[3] = {{WITHIN, bytes, takes}};
  int n = 1, taken = 0;
  if (c->awaited_next) {
    list[n++] = (struct alternative){BEHIND, bytes, takes};
    taken = s->awaited_next_iteration;
  } else {
    list[n++] = (struct alternative){AHEAD, bytes, takes};
    if (f->count > 2) list[n++] = (struct alternative){FURTHER_AHEAD, bytes, takes};
    taken = s->prefetch_distance < 2 ? s->prefetch_distance : n - 1;
  }
  const char *subject = carried_subject(f, c->op);
  if (taken) forget_decision("overlap", subject);
  note_decision("prefetch", subject, list, n, taken);
}

static struct carried_list find_carried(const struct function *f)
{
  struct carried_list all = {0};
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (!is_collective(op->kind) || !is_worth_it(op)) continue;
    const char *forced = forced_carry(f, f->op[k]);
    if (forced && !strcmp(forced, WITHIN)) continue;
    struct carried_collective c = {.op = f->op[k], .predecessor = NONE};
    bool prefetched = needs_no_iteration(f, op, &c.before);
    struct list after = {0}, after_both = {0};
    if (!prefetched) c.awaited_next = serves_no_iteration(f, op, NONE, &after);
    int successor = prefetched || c.awaited_next ? NONE : successor_in(f, c.op, &after_both);
    if (c.awaited_next) c.after = after;
    if (successor != NONE)
      c = (struct carried_collective){
          .op = successor, .predecessor = c.op, .awaited_next = true, .after = after_both};
    if (!prefetched && !c.awaited_next) continue;
    bool is_among = false;
    for (int i = 0; i < all.n && !is_among; i++) is_among = all.at[i].op == c.op;
    if (is_among) continue;
    GROW(all.at, all.n, all.room);
    all.at[all.n++] = c;
  }
  return all;
}

/* ----------------------------------------------------------------------------------- the change */

/* The place of the loop in the function that calls it. */
static int find_loop(int body, int *caller)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (op->kind != OP_loop || op->function != body) continue;
      *caller = i;
      return k;
    }
  bug(pass_name[PASS_SCHEDULE], "%s is not a loop's body", graph->function[body].name);
}

static bool loop_carried_is_loop(int op)
{
  return graph->op[op].kind == OP_loop;
}

/* The place of the issue for one of the first iterations: after the loop before this one, or
   where the function begins; after earlier issues for this loop, but not those of later
   iterations. */
static int place_of_first_issue(const struct function *f, int loop, int iteration)
{
  int at = loop;
  while (at > 0 && !loop_carried_is_loop(f->op[at - 1])) at--;
  for (; at < loop; at++) {
    const struct op *op = &graph->op[f->op[at]];
    if (op->kind != OP_iteration || (op->iteration == FIRST_ITERATION && op->first > iteration))
      break;
  }
  return at;
}

/* The place at which the last iteration's reduction is awaited: as late as possible. */
static int place_of_last_await(const struct function *f, int loop,
                               const struct carried_collective *c)
{
  for (int k = loop + 1; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (loop_carried_is_loop(f->op[k]) || touches_gradients_of(op, &graph->op[c->op])) return k;
    for (int i = 0; i < c->after.n; i++)
      if (touches_gradients_of(op, &graph->op[c->after.at[i]])) return k;
  }
  return f->nop;
}

/* The plan's prefetch distance, at most the number of the other modules. */
static int prefetch_distance(int body, int id)
{
  int others = graph->function[body].count - 1;
  const char *forced = forced_carry(&graph->function[body], id);
  const int asked = forced && !strcmp(forced, FURTHER_AHEAD) ? 2 : plan_options->prefetched;
  return asked < others ? asked : others;
}

/* Each of several in flight has a buffer of its own, and so a value of its own. */
static void stack_buffer(const struct op *op)
{
  if (!op->packed) return;
  bool several = scheduled(op)->prefetch_distance > 1;
  row_in_loop(op->buffer)->stack = several ? op->buffer : NONE;
}

static void prefetch_in(int body, const struct carried_collective *c)
{
  struct list part = {0};
  int caller, await = await_of(c->op);
  for (int i = 0; i < c->before.n; i++) {
    add(&part, c->before.at[i]);
    leave_out_of(&graph->function[body], c->before.at[i]);
  }
  add(&part, c->op);
  int function = add_part(body, text("%s_ahead", graph->function[body].name), &part);
  const struct op *op = &graph->op[c->op];
  int distance = prefetch_distance(body, c->op),
      next = call_for(function, NEXT_ITERATION, distance, op);
  schedule_of(c->op)->overlapped = true;
  schedule_of(c->op)->prefetch_distance = distance;
  stack_buffer(&graph->op[c->op]);
  struct function *f = &graph->function[body];
  int at = runs_at(f, c->op);
  insert(f, at, await);
  insert(f, at + 1, next);
  leave_out_of(f, c->op);
  for (int k = 0; k < distance; k++) {
    int loop = find_loop(body, &caller);
    int first = call_for(function, FIRST_ITERATION, k, &graph->op[c->op]);
    insert(&graph->function[caller], place_of_first_issue(&graph->function[caller], loop, k),
           first);
  }
}

/* The first place that touches operands of the previous iteration's reduction, or of its
   predecessor; or the place of the first of the two. */
static int first_touch(const struct function *f, const struct carried_collective *c, int await)
{
  int first = c->predecessor == NONE ? c->op : c->predecessor;
  const struct op *end = &graph->op[await];
  int *held = alloc((size_t)op_width(end) * sizeof *held), n = op_reads(end, held);
  for (int k = 0; f->op[k] != first; k++) {
    for (struct list made = values_made(&graph->op[f->op[k]]); made.n--;)
      for (int i = 0; i < n; i++)
        if (alias_class(held[i]) == alias_class(made.at[made.n])) return k;
  }
  return runs_at(f, first);
}

/* Issues the one directly after the other. */
static void loop_carried_chain(struct function *f, const struct carried_collective *c)
{
  struct scheduled *predecessor = schedule_of(c->predecessor);
  predecessor->overlapped = predecessor->awaited_next_iteration = predecessor->has_chained = true;
  schedule_of(c->op)->chained_to = c->predecessor;
  leave_out_of(f, c->op);
  insert(f, runs_at(f, c->predecessor) + 1, c->op);
}

static void await_in_next(int body, const struct carried_collective *c)
{
  struct list part = {0};
  int caller, await = await_of(c->op);
  add(&part, await);
  for (int i = 0; i < c->after.n; i++) {
    add(&part, c->after.at[i]);
    leave_out_of(&graph->function[body], c->after.at[i]);
  }
  int function = add_part(body, text("%s_behind", graph->function[body].name), &part);
  if (c->predecessor != NONE) loop_carried_chain(&graph->function[body], c);
  schedule_of(c->op)->overlapped = schedule_of(c->op)->awaited_next_iteration = true;
  int before = call_for(function, PREVIOUS_ITERATION, 1, &graph->op[c->op]);
  struct function *f = &graph->function[body];
  insert(f, first_touch(f, c, await), before);
  int loop = find_loop(body, &caller);
  struct function *outside = &graph->function[caller];
  int last = call_for(function, LAST_ITERATION, 0, &graph->op[c->op]);
  insert(outside, place_of_last_await(outside, loop, c), last);
}

/* ----------------------------------------------------------------------------------- the choice */

/* The bytes that the arena may have: device_mesh's figure, less the values that have places of
   their own. */
static int64_t room_in_arena(int64_t lives)
{
  if (!graph->mesh.memory) return lives + lives / 2;
  bool *counted = alloc((size_t)graph->nvalue + 1);
  int64_t room = graph->mesh.memory - library_reserve() - product_workspace();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    int of = v->role == GRADIENT ? v->of : i;
    bool held = v->role != ACTIVATION || v->is_output;
    const bool is_later_sum = v->role == SUMS && v->op != NONE; /* at the place of that before */
    if (!held || is_later_sum || (v->role == GRADIENT && counted[of])) continue;
    if (v->role == GRADIENT) counted[of] = true;
    room -= largest_bytes(i);
  }
  return room - room / 128; /* the loss of fitting values into the arena */
}

static void apply(int body, const struct carried_list *all)
{
  for (int i = 0; i < all->n; i++)
    if (all->at[i].awaited_next)
      await_in_next(body, &all->at[i]);
    else
      prefetch_in(body, &all->at[i]);
}

static int64_t overlap(struct overlap *o, int body, int64_t most_live)
{
  return overlap_function(o, &graph->function[body], most_live);
}

/* The collectives that are prefetched, or awaited in the next iteration. */
static struct carried_list of_kind(const struct carried_list *all, bool prefetched,
                                   bool awaited_next)
{
  struct carried_list some = {0};
  for (int i = 0; i < all->n; i++) {
    if (all->at[i].awaited_next ? !awaited_next : !prefetched) continue;
    GROW(some.at, some.n, some.room);
    some.at[some.n++] = all->at[i];
  }
  return some;
}

static const char *modules_text(void)
{
  return plan_options->prefetched > 1 ? text("%d modules", plan_options->prefetched) : "a module";
}

/* Makes these loop-carried, if they fit into the memory and the loop is quicker with them or the
   plan asks for them. Returns the bytes that are then alive at once, NONE if they stay as they
   were. */
static int64_t try_carried(struct overlap *o, int body, const struct carried_list *some, bool asked,
                           int64_t room, int64_t time)
{
  struct edit_state before = remember_program();
  if (!some->n) return NONE;
  apply(body, some);
  int64_t lives = live_bytes();
  if (lives <= room && (overlap(o, body, lives) < time || asked)) return lives;
  go_back(&before);
  return NONE;
}

/* A prefetch that the plan asks for is bounded only by the plan's own limit. A search compares with
   that itself. */
static int64_t prefetch(struct overlap *o, int body, const struct carried_list *all, int64_t room)
{
  struct carried_list prefetched = of_kind(all, true, false);
  if (!graph->mesh.memory || options.estimates) room = INT64_MAX;
  int64_t lives = try_carried(o, body, all, true, room, 0);
  if (lives == NONE) lives = try_carried(o, body, &prefetched, true, room, 0);
  if (lives != NONE) return lives;
  apply(body, &prefetched);
  plan_error(plan_options->train_line,
             "prefetch = %d: where %s has its parameters %s ahead a rank has activations of "
             "%s, and device_mesh leaves %s for them. To make it fit: prefetch = %d, more ranks to "
             "cut the parameters over, or a smaller batch",
             plan_options->prefetched, printable(graph->function[body].name), modules_text(),
             size_text(live_bytes()), size_text(room), plan_options->prefetched - 1);
}

static int64_t carry_or_overlap(struct overlap *o, int body, int64_t most_live)
{
  struct edit_state before = remember_program();
  int64_t time = overlap(o, body, most_live), room = room_in_arena(most_live), lives = NONE;
  int caller, loop = find_loop(body, &caller);
  const struct function *f = &graph->function[body], *outside = &graph->function[caller];
  bool is_short = f->nop <= LONGEST_ORDERED / 2 && outside->nop <= LONGEST_ORDERED / 2;
  if (!(collectives_overlap() && is_of_batch(f->phase) && is_short && loop != NONE))
    return most_live;
  struct edit_state without = remember_program();
  go_back(&before);
  bool may_prefetch = plan_options->prefetch != PREFETCH_NOTHING;
  struct carried_list all = find_carried(&graph->function[body]);
  all = of_kind(&all, may_prefetch, true);
  if (!all.n) {
    go_back(&without);
    return most_live;
  }
  if (plan_options->prefetch == PREFETCH_ALL && of_kind(&all, true, false).n)
    return prefetch(o, body, &all, room);
  /* both; the prefetched ones; the others */
  for (int kinds = 3; kinds > 0 && lives == NONE; kinds--) {
    struct carried_list some = of_kind(&all, kinds != 1, kinds != 2);
    if (kinds == 3 || some.n < all.n) lives = try_carried(o, body, &some, false, room, time);
  }
  if (lives != NONE) return lives;
  overlap(o, body, most_live);
  return most_live;
}

int64_t overlap_body(struct overlap *o, int body, int64_t most_live)
{
  if (collectives_overlap() && are_decisions_explained()) {
    const struct carried_list may = find_carried(&graph->function[body]);
    const int64_t lives = carry_or_overlap(o, body, most_live);
    for (int i = 0; i < may.n; i++) note_carried(&graph->function[body], &may.at[i]);
    return lives;
  }
  if (collectives_overlap()) return carry_or_overlap(o, body, most_live);
  overlap(o, body, most_live);
  return most_live;
}

struct gathers {
  bool any; /* of units */
  int most; /* the largest prefetch distance */
};

static void note_gather(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct gathers *g = to;
  (void)times;
  if (!gathers_shards(op->kind) || unit_of(op) == NONE) return;
  g->any = true;
  if (g->most < scheduled(op)->prefetch_distance) g->most = scheduled(op)->prefetch_distance;
}

void check_prefetch(void)
{
  struct gathers g = {0};
  if (plan_options->prefetch != PREFETCH_ALL) return;
  each_op(note_gather, &g);
  if (!g.any)
    plan_error(plan_options->train_line,
               "prefetch = %d: nothing is gathered ahead of its use, as no parameters are cut over "
               "several ranks by fully_shard: make units, or leave prefetch out",
               plan_options->prefetched);
  if (!collectives_overlap()) return;
  if (!g.most)
    plan_error(
        plan_options->train_line,
        "prefetch = %d: nothing that is gathered is gathered in a loop over the modules of a "
        "list, so nothing can come %s ahead. The modules of an nn.ModuleList become a loop "
        "where they are equal and each is a unit of fully_shard",
        plan_options->prefetched, modules_text());
  if (g.most < plan_options->prefetched)
    plan_error(plan_options->train_line,
               "prefetch = %d: no list has more than %d modules, so none comes more than %d ahead",
               plan_options->prefetched, g.most + 1, g.most);
}
