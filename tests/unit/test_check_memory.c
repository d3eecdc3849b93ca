/* Values that are found where they are read, and those that are not: faults of each kind are put
   into what the pass memory leaves of whole plans, and the checker has to find them. */
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
  options.cuda = p->cuda;
  options.definition = list;
  for (int i = 0; p->arguments[i]; i += 2)
    list[options.ndefinition++] = (struct definition){p->arguments[i], p->arguments[i + 1]};
  arena_open();
  lua(), plan(), propagate(), grad(), optimize(), redistribute(), uncast(), recompute(), arrange();
  outline(), pipeline(), bucket(), fuse(), epilogue(), schedule();
}

static void compile(const struct plan *p)
{
  compile_to_schedule(p);
  memory();
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
  const struct value *v = &graph->value[value];
  return in_arena(value) && v->storage == value && v->first != NONE && largest_bytes(value);
}

/* ------------------------------------------------------------------------ all pairs of values */

struct pair {
  int stays, moves;
};

/* All that lies where the one does goes to where the other lies. */
static void put_together(const void *with)
{
  const struct pair *p = with;
  int64_t by = graph->value[p->stays].offset - graph->value[p->moves].offset;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].storage == p->moves) graph->value[i].offset += by;
  graph->arena_bytes *= 2; /* it may be the longer one */
  check(PASS_MEMORY);
}

/* Whether the second is made while the first is there, or together with it. */
static bool is_made_beside(int i, int k)
{
  const struct value *v = &graph->value[i], *w = &graph->value[k];
  if (i == k || !is_placed(i) || !is_placed(k) || w->first > v->last) return false;
  return w->first > v->first || (w->first == v->first && i < k);
}

/* What the checker says, of each at least once in all plans. */
static const char *const kinds[] = {
    "it reads what a pending collective writes",  "it writes what a pending collective reads",
    "it writes what a pending collective writes", "two values that it makes overlap",
    "it writes over what it still reads",         "what it reads is not there any more",
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* For each pair of values of which memory.c says that they are there at once: what if it were
   wrong? Where it is too careful nothing is: what the first round alone reads is there in the
   others too, and who awaits a collective has waited for those before it on its stream. only_parts:
   of what is done for another round alone. Gives which kinds of fault were found. */
struct sweep {
  struct plan plan;
  bool only_parts;
};

static void put_all_together(const void *with)
{
  const struct sweep *s = with;
  int pairs = 0, found = 0, met = 0;
  compile(&s->plan);
  must_be_sound(&s->plan);
  for (int i = 0; i < graph->nvalue; i++)
    for (int k = 0; k < graph->nvalue; k++) {
      if (!is_made_beside(i, k)) continue;
      if (s->only_parts && !graph->function[graph->value[k].made_by].is_part) continue;
      struct ending e = run_child(put_together, &(struct pair){i, k});
      must(!e.status || e.status == -SIGABRT, "v%d and v%d: %d, %s", i, k, e.status, e.said);
      pairs++;
      found += e.status != 0;
      for (int n = 0; n < KINDS; n++)
        if (strstr(e.said, kinds[n])) met |= 1 << n;
    }
  must(pairs > 10 && 100 * found >= 94 * pairs, "%s: %d of %d are found", s->plan.path, found,
       pairs);
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
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1"}}, false},
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
  for (int n = 0; n < KINDS; n++)
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
  return v->depth == 2 && is_placed((int)(v - graph->value)) && graph->op[v->op].ahead;
}

static bool is_kept_for_each(const struct value *v)
{
  return v->depth > 2 && is_placed((int)(v - graph->value)) && v->family != NONE;
}

static void keep_one_less(int value)
{
  int depth = graph->value[value].depth - 1;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].storage == value) graph->value[i].depth = depth;
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
    struct value *v = &graph->value[i];
    if (v->family == value) v->offset = graph->value[value].offset;
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
  return v->role == SUMS && v->op == NONE;
}

static void batch_over_its_sums(void)
{
  graph->value[value_that(is_of_backward)].storage = value_that(is_before_batch);
}

static bool is_weight(const struct value *v)
{
  return v->role == PARAMETER;
}

static void over_a_weight(void)
{
  graph->value[value_that(is_of_backward)].storage = value_that(is_weight);
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
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1"}},
       batch_over_what_all_read,
       "not there any more"},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1"}},
       batch_over_its_sums,
       "what stays over batches"},
      {{"tests/equal/data.lua", false, {"dp", "3", "zero", "1"}},
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
      if (!leader_of(&graph->op[id])) continue;
      for (moved++; graph->op[f->op[k + 1]].kind != OP_await; k++) {
        f->op[k] = f->op[k + 1];
        f->op[k + 1] = id;
      }
      k = runs_at(f, (int)(leader_of(&graph->op[id]) - graph->op));
    }
  }
  must(moved, "nothing follows");
  memory();
  check(PASS_MEMORY);
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
      if (next == OP_loop || next == OP_round) continue;
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
