/* The memory checker: faults of each kind are injected into the result of the pass memory for whole
   plans, so that a value is not where it is read; the checker has to find them. */
#include "driver/driver.h"
#include "unit.h"

/* ---------------------------------------------------------------------------------------- plans */

struct plan {
  const char *path;
  bool cuda;
  const char *arguments[16]; /* "tp", "2", ... */
};

static void compile_to_schedule(const struct plan *p)
{
  static struct definition list[8];
  options.plan = p->path;
  set_target(p->cuda ? "cuda" : "cpu");
  options.definition = list;
  for (int i = 0; p->arguments[i]; i += 2)
    list[options.ndefinition++] = (struct definition){p->arguments[i], p->arguments[i + 1]};
  graph_open();
  run_until(PASS_SCHEDULE);
}

static void compile(const struct plan *p)
{
  compile_to_schedule(p);
  run_passes(PASS_SCHEDULE + 1, PASS_LAST);
}

static void check_it(const void *with)
{
  (void)with;
  check(PASS_MEMORY);
}

static void must_be_sound(const struct plan *p)
{
  struct ending e = run_child(check_it, NULL);
  must(!e.status, "%s: %s", p->path, e.said);
}

static bool is_placed(int value)
{
  const struct allocation *a = &graph->memory->of[value];
  return in_arena(value) && a->storage == value && a->first != NONE && largest_bytes(value);
}

/* --------------------------------------------------------------------- what is in order anyway */

/* The step as it is run, an operation at each time, which shows of two values that they
   may have the same bytes, though memory.c says that they are there at once: each time that one of
   them is made, all that touches the other is in order before all that touches it, or behind. An
   operation is in order behind another of the same stream, behind what it is issued behind on
   `stream` or follows, and a collective is over when it is awaited, or a later one of its group's
   stream is. */
enum { MAIN = -1, MOST_TIMES = 20000 };
static struct {
  int n, op[MOST_TIMES], module[MOST_TIMES];
} ran;

/* What an operation does to a value: `stream` is MAIN or a group, `since` the time up to which what
   MAIN was given is over, and `over` the time at which what MAIN is given then waits for it. */
struct touch {
  int at, stream, since, over, value, index;
  int64_t from, to; /* its bytes in the arena */
  bool writes;
};
static struct {
  int n, room;
  struct touch *at;
} touches;

static const struct op *at_time(int t)
{
  return &graph->op[ran.op[t]];
}

/* When the operation was run last, of this module, at or before this time. */
static int begun_at(int op, int module, int t)
{
  while (t >= 0 && (ran.op[t] != op || ran.module[t] != module)) t--;
  return t;
}

/* When that was begun which the collective of this time follows, or NONE. */
static int led_at(int t)
{
  int leader = scheduled(at_time(t))->chained_to;
  return leader < 0 ? NONE : begun_at(leader, ran.module[t], t);
}

static bool is_beside(int t)
{
  return is_collective(at_time(t)->kind) && scheduled(at_time(t))->overlapped;
}

/* Whether the collective of time t, or one that it follows, is behind that of time x on its stream,
   or is that one. */
static bool is_behind(int t, int x)
{
  for (; t != NONE; t = led_at(t))
    if (t >= x && at_time(t)->group == at_time(x)->group) return true;
  return false;
}

static int time_over(int x)
{
  for (int t = x + 1; t < ran.n; t++) {
    if (at_time(t)->kind != OP_await) continue;
    int begun = begun_at(at_time(t)->awaits, ran.module[t], t);
    if (begun != NONE && is_behind(begun, x)) return t;
  }
  return MOST_TIMES;
}

static bool is_before(const struct touch *x, const struct touch *y)
{
  if (x->at >= y->at) return false;
  if (x->stream == y->stream) return true;
  if (x->stream == MAIN) return x->at < y->since;
  return x->over <= y->since || (y->stream != MAIN && is_behind(y->at, x->at));
}

static void add_touches(int t, int stream, bool writes, int n, const int *value)
{
  int since = t;
  for (int led = t; stream != MAIN && led != NONE; led = led_at(led)) since = led;
  for (int k = 0; k < n; k++) {
    struct one one = one_of(value[k], ran.module[t]);
    if (one.index == NONE || !is_placed(graph->memory->of[one.value].storage)) continue;
    struct place p = place_of(value[k], ran.module[t]);
    GROW(touches.at, touches.n, touches.room);
    touches.at[touches.n++] = (struct touch){
        t,      stream, since, stream == MAIN ? t : time_over(t), one.value, one.index,
        p.from, p.to,   writes};
  }
}

static void add_reads(int t, int stream, const struct op *op)
{
  int *list = alloc((size_t)op_width(op) * sizeof *list), n = op_reads(op, list);
  add_touches(t, stream, false, n, list);
}

static void add_writes(int t, int stream, const struct op *op)
{
  int *list = alloc((size_t)op_width(op) * sizeof *list), n = op_makes(op, list);
  add_touches(t, stream, true, n, list);
}

/* A bucket that is reduced has copied its members on `stream` when it begins, those that are not in
   its buffer anyway, and an await may copy out of it: both are said to do so of every bucket. */
static void add_all_touches(int t)
{
  const struct op *op = at_time(t), *begun = op->kind == OP_await ? &graph->op[op->awaits] : op;
  if (op->kind == OP_loop || op->kind == OP_iteration) return;
  if (begun != op) {
    if (begun->packed) add_touches(t, MAIN, false, 1, &begun->buffer), add_writes(t, MAIN, begun);
    return;
  }
  if (!is_beside(t) || op->packed) add_reads(t, MAIN, op);
  if (!is_beside(t)) {
    add_writes(t, MAIN, op);
    return;
  }
  if (op->packed) add_touches(t, MAIN, true, 1, &op->buffer);
  if (!op->packed || op->kind == OP_all_gather) add_reads(t, op->group, op);
  if (op->kind == OP_all_gather && copies_late(op) && !scheduled(op)->has_chained)
    add_touches(t, op->group, true, 1, &op->buffer);
  else
    add_writes(t, op->group, op);
}

static void note_time(void *unused, int op, int module)
{
  (void)unused;
  must(ran.n < MOST_TIMES - 1, "the step has more operations than there is room for");
  ran.op[ran.n] = op;
  ran.module[ran.n++] = module;
}

static void run_phases(enum phase first, enum phase last)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (is_phase(f) && f->phase >= first && f->phase <= last) each_run_of(f, note_time, NULL);
  }
}

/* All that touches a value from one time that it is made up to the next. */
struct life {
  int root; /* the value in whose place it lies */
  int64_t from, to;
  int n, room, *touch;
};
static struct {
  int n, room;
  struct life *at;
} lives;

static bool are_of_one(const struct touch *x, const struct touch *y)
{
  return x->value == y->value && x->index == y->index;
}

/* A piece, and what is added up, belong to the life that was begun before. */
static bool begins_life(int k)
{
  const struct touch *x = &touches.at[k], *first = NULL;
  for (int i = 0; i <= k && !first; i++)
    if (touches.at[i].writes && are_of_one(&touches.at[i], x)) first = &touches.at[i];
  for (int i = k; i-- > 0 && touches.at[i].at == x->at;)
    if (touches.at[i].writes && are_of_one(&touches.at[i], x)) return false;
  return x->writes && ran.op[first->at] == ran.op[x->at];
}

static void find_lives(void)
{
  for (int k = 0; k < touches.n; k++) {
    if (!begins_life(k)) continue;
    const struct touch *x = &touches.at[k];
    struct life l = {graph->memory->of[x->value].storage, x->from, x->to, 0, 0, NULL};
    for (int i = 0; i < touches.n; i++) {
      if (touches.at[i].at < x->at || !are_of_one(&touches.at[i], x)) continue;
      if (touches.at[i].at > x->at && begins_life(i)) break;
      GROW(l.touch, l.n, l.room);
      l.touch[l.n++] = i;
    }
    GROW(lives.at, lives.n, lives.room);
    lives.at[lives.n++] = l;
  }
}

static bool all_before(const struct life *a, const struct life *b)
{
  for (int i = 0; i < a->n; i++)
    for (int k = 0; k < b->n; k++) {
      const struct touch *x = &touches.at[a->touch[i]], *y = &touches.at[b->touch[k]];
      if ((x->writes || y->writes) && !is_before(x, y)) return false;
    }
  return true;
}

/* The next step reads what was computed before the first one. */
static void add_reads_of_next_step(void)
{
  struct list kept = kept_constants();
  ran.module[ran.n] = NONE;
  add_touches(ran.n, MAIN, false, kept.n, kept.at);
}

static void run_step(void)
{
  begin_run();
  run_phases(CONSTANTS, CONSTANTS);
  run_phases(GATHER, GATHER);
  for (int batch = 0; batch < (plan_options->accumulate > 1 ? 2 : 1); batch++)
    run_phases(FORWARD, BACKWARD);
  run_phases(UPDATE, UPDATE);
  for (int t = 0; t < ran.n; t++) add_all_touches(t);
  add_reads_of_next_step();
  end_run();
  find_lives();
}

/* Whether all that lies where `moves` does may lie so many bytes further on. */
static bool are_in_order(int moves, int64_t by)
{
  for (int i = 0; i < lives.n; i++)
    for (int k = 0; k < lives.n; k++) {
      const struct life *a = &lives.at[i], *b = &lives.at[k];
      if (a->root == moves || b->root != moves) continue;
      if (a->from >= b->to + by || b->from + by >= a->to) continue;
      if (!all_before(a, b) && !all_before(b, a)) return false;
    }
  return true;
}

/* ------------------------------------------------------------------------ all pairs of values */

struct pair {
  int stays, moves;
};

/* All that lies where the one does goes to where the other lies. */
static void put_together(const void *with)
{
  const struct pair *p = with;
  int64_t by = graph->memory->of[p->stays].offset - graph->memory->of[p->moves].offset;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->memory->of[i].storage == p->moves) graph->memory->of[i].offset += by;
  graph->memory->arena_bytes *= 2; /* it may be the longer one */
  check(PASS_MEMORY);
}

/* Whether the second is made while the first is there, or together with it. */
static bool is_made_beside(int i, int k)
{
  const struct allocation *v = &graph->memory->of[i], *w = &graph->memory->of[k];
  if (i == k || !is_placed(i) || !is_placed(k) || w->first > v->last) return false;
  return w->first > v->first || (w->first == v->first && i < k);
}

/* What the checker says, of each at least once in all plans. */
static const char *const kinds[] = {
    "it reads what a pending collective writes",  "it writes what a pending collective reads",
    "it writes what a pending collective writes", "two values that it makes overlap",
    "it writes over what it still reads",         "what it reads is not there any more",
};
enum { FAULT_KINDS = sizeof kinds / sizeof *kinds };

/* For each pair of values of which memory.c says that they are there at once: what if it were
   wrong? That is found, unless memory.c is too careful and all is in order still: what the first
   iteration alone reads is there in the others too, and who awaits a collective has waited for
   those before it on its stream. only_parts: of what is done for another round alone. Gives which
   kinds of fault were found. */
struct sweep {
  struct plan plan;
  bool only_parts;
};

static void put_all_together(const void *with)
{
  const struct sweep *s = with;
  int pairs = 0, met = 0;
  compile(&s->plan);
  must_be_sound(&s->plan);
  run_step();
  for (int i = 0; i < graph->nvalue; i++)
    must(!is_placed(i) || are_in_order(i, 0), "%s: v%d is in no order as it lies", s->plan.path, i);
  for (int i = 0; i < graph->nvalue; i++)
    for (int k = 0; k < graph->nvalue; k++) {
      if (!is_made_beside(i, k)) continue;
      if (s->only_parts && !graph->function[graph->memory->of[k].made_by].is_part) continue;
      bool in_order = are_in_order(k, graph->memory->of[i].offset - graph->memory->of[k].offset);
      struct ending e = run_child(put_together, &(struct pair){i, k});
      must(e.status == (in_order ? 0 : -SIGABRT), "%s: v%d and v%d, which are %s order: %d, %s",
           s->plan.path, i, k, in_order ? "in" : "not in", e.status, e.said);
      pairs += !in_order;
      for (int n = 0; n < FAULT_KINDS; n++)
        if (strstr(e.said, kinds[n])) met |= 1 << n;
    }
  must(pairs > 10, "%s: %d pairs", s->plan.path, pairs);
  exit(100 + met); /* for the parent: 0 is what a body that holds ends with */
}

static void test_what_is_there_at_once_lies_apart(void **state)
{
  (void)state;
  static const struct sweep list[] = {
      {{"tests/dump/ahead.lua", true, {"bucketing", "none"}}, false},
      {{"tests/dump/ahead.lua", true, {"bucketing", "units", "prefetch", "2"}}, false},
      {{"tests/dump/ahead.lua", true, {"bucketing", "units", "copies", "2"}}, false},
      {{"tests/dump/ahead.lua", false, {NULL}}, false},
      {{"tests/dump/async_tp.lua", true, {NULL}}, false},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1", "each", "false"}}, false},
      {{"tests/equal/checkpoint.lua", true, {"tp", "2", "checkpoint", "layer"}}, false},
      {{"tests/equal/nested.lua", false, {"b", "2", "c", "3"}}, false},
      /* Before its gather a weight is cast, and a part of it taken, for the next round: nothing
         that is kept may lie there, in that round either. */
      {{"plans/llama3.lua",
        true,
        {"preset", "405b", "n_layers", "4", "dp", "8", "tp", "8", "device", "H100", "dtype",
         "bfloat16", "checkpoint", "layer", NULL}},
       true},
  };
  int met = 0;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    struct ending e = run_child(put_all_together, &list[i]);
    if (e.status < 100) fail_msg("%s: %d: %s", list[i].plan.path, e.status, e.said);
    met |= e.status - 100;
  }
  for (int n = 0; n < FAULT_KINDS; n++)
    if (!(met >> n & 1)) fail_msg("nothing was found of which '%s' is said", kinds[n]);
}

/* ------------------------------------------------------------------------------ single faults */

static int value_that(bool (*fits)(const struct value *v))
{
  for (int i = 0; i < graph->nvalue; i++)
    if (fits(&graph->value[i])) return i;
  give_up("there is no such value");
  return NONE;
}

static bool is_kept_twice(const struct value *v)
{
  int value = (int)(v - graph->value);
  return graph->memory->of[value].depth == 2 && is_placed(value) &&
         scheduled(&graph->op[v->op])->prefetch_distance;
}

static bool is_kept_for_each(const struct value *v)
{
  int value = (int)(v - graph->value);
  return graph->memory->of[value].depth > 2 && is_placed(value) && in_loop(value)->stack != NONE;
}

static void keep_one_less(int value)
{
  int depth = graph->memory->of[value].depth - 1;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->memory->of[i].storage == value) graph->memory->of[i].depth = depth;
}

/* What is gathered for the next module while this one's is read. */
static void neighbour_over_it(void)
{
  keep_one_less(value_that(is_kept_twice));
}

/* What the backward reads of each module. */
static void last_module_over_the_first(void)
{
  int value = value_that(is_kept_for_each);
  keep_one_less(value);
  /* What outside of the loops reads of a single module is where it was. */
  for (int i = 0; i < graph->nvalue; i++) {
    if (in_loop(i)->stack == value) graph->memory->of[i].offset = graph->memory->of[value].offset;
  }
}

static bool is_gathered_once(const struct value *v)
{
  bool gathered = v->op != NONE && graph->op[v->op].phase == GATHER;
  return gathered && is_placed((int)(v - graph->value));
}

static bool is_of_backward(const struct value *v)
{
  int value = (int)(v - graph->value);
  return v->op != NONE && graph->op[v->op].phase == BACKWARD && is_placed(value);
}

/* The second batch would find there what the first one has left. */
static void batch_over_what_all_read(void)
{
  int kept = value_that(is_gathered_once), moves = value_that(is_of_backward);
  put_together(&(struct pair){kept, moves});
}

static bool is_before_batch(const struct value *v)
{
  return v->role == SUMS && v->op == NONE && !is_of_metric((int)(v - graph->value));
}

static void batch_over_its_sums(void)
{
  graph->memory->of[value_that(is_of_backward)].storage = value_that(is_before_batch);
}

static bool is_weight(const struct value *v)
{
  return v->role == PARAMETER;
}

static void over_a_weight(void)
{
  graph->memory->of[value_that(is_of_backward)].storage = value_that(is_weight);
}

static void never_made(void)
{
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    if (f->phase == FORWARD && f->count > 1 && !f->is_part) f->nop--;
  }
}

static void check_places(void)
{
  check(PASS_MEMORY);
}

struct fault {
  struct plan plan;
  void (*put)(void);
  const char *found;
};

static void put_fault(const void *with)
{
  const struct fault *fault = with;
  compile(&fault->plan);
  must_be_sound(&fault->plan);
  fault->put();
  check_places();
}

static void test_single_faults(void **state)
{
  (void)state;
  static const struct fault list[] = {
      {{"tests/dump/ahead.lua", true, {"bucketing", "none"}},
       neighbour_over_it,
       "pending collective"},
      {{"tests/dump/ahead.lua", false, {NULL}}, last_module_over_the_first, "not there any more"},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1", "each", "false"}},
       batch_over_what_all_read,
       "not there any more"},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1", "each", "false"}},
       batch_over_its_sums,
       "what stays over batches"},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1", "each", "false"}},
       over_a_weight,
       "what stays over batches"},
      {{"tests/dump/ahead.lua", false, {NULL}}, never_made, "made"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    refused(put_fault, &list[i], -SIGABRT, "memory", list[i].found, NULL);
}

/* What begins behind another waits for that one alone. Where it is issued later, memory that nobody
   needs any more by then is not free for it. */
static void follow_late(const void *with)
{
  const struct plan *p = with;
  compile_to_schedule(p);
  int moved = 0;
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    for (int k = f->nop; k-- > 0;) {
      int id = f->op[k];
      if (!predecessor_of(&graph->op[id])) continue;
      for (moved++; graph->op[f->op[k + 1]].kind != OP_await; k++) {
        f->op[k] = f->op[k + 1];
        f->op[k + 1] = id;
      }
      k = runs_at(f, (int)(predecessor_of(&graph->op[id]) - graph->op));
    }
  }
  must(moved, "nothing follows");
  run_passes(PASS_SCHEDULE + 1, PASS_LAST);
}

static void test_what_follows_late(void **state)
{
  (void)state;
  static const struct plan plan = {"tests/equal/chain.lua", true, {"dp", "2", "tp", "2", NULL}};
  refused(follow_late, &plan, -SIGABRT, "memory", "it writes what the stream may still read", NULL);
}

/* The k-th operation of a function, which awaits, and the one behind it. */
struct late {
  int function, k;
};

static void await_late(const void *with)
{
  const struct late *late = with;
  int *op = graph->function[late->function].op + late->k, was = op[0];
  op[0] = op[1];
  op[1] = was;
  check(PASS_MEMORY);
}

/* An await stands right before what needs it: each that comes one operation later is found. */
static void await_each_late(const void *with)
{
  const struct plan *p = with;
  int awaits = 0, found = 0;
  compile(p);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k + 1 < graph->function[i].nop; k++) {
      const int *op = graph->function[i].op + k;
      enum op_kind next = graph->op[op[1]].kind;
      if (graph->op[op[0]].kind != OP_await || next == OP_await || next == OP_view) continue;
      if (next == OP_loop || next == OP_iteration) continue;
      awaits++;
      found += run_child(await_late, &(struct late){i, k}).status == -SIGABRT;
    }
  must(awaits > 0 && found == awaits, "%s: %d of %d are found", p->path, found, awaits);
}

static void test_awaits_that_come_late(void **state)
{
  (void)state;
  static const struct plan list[] = {
      {"tests/dump/ahead.lua", true, {"bucketing", "none"}},
      {"tests/dump/ahead.lua", true, {"bucketing", "units", "prefetch", "2"}},
      {"tests/dump/ahead.lua", true, {"bucketing", "units", "copies", "2"}},
      {"tests/dump/async_tp.lua", true, {NULL}},
      {"tests/equal/chain.lua", true, {"dp", "2", "tp", "2"}},
      {"tests/equal/copies.lua", true, {"copies", "2", "dp", "3"}},
      {"tests/equal/checkpoint.lua", true, {"tp", "2", "checkpoint", "layer"}},
      {"tests/equal/nested.lua", true, {"b", "2", "c", "3"}},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(await_each_late, &list[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_there_at_once_lies_apart),
      cmocka_unit_test(test_single_faults),
      cmocka_unit_test(test_what_follows_late),
      cmocka_unit_test(test_awaits_that_come_late),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
