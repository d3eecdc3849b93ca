/* Several threads ask for moves, their costs and shardings at once, each with a model and an arena
   of its own: they get what one thread gets. With -fsanitize=thread the test also finds shared
   state. */
#include "driver/driver.h"
#include "unit.h"

#include <pthread.h>

enum { THREADS = 4, MOST_LAYOUTS = 4096 };

/* Everything that a thread asks. */
static struct shape whole;
static int nlayout;
static struct layout layout[MOST_LAYOUTS];
static struct def_use uses;

struct answers {
  struct moves *moves; /* by question */
  double *cost;
  struct op_sharding *sharding; /* by place in the order */
};

static int questions(void)
{
  return nlayout * nlayout;
}

static bool is_sharded(const struct op *op)
{
  return op->kind != OP_redistribute && op->kind != OP_full && !is_update(op) && *rule_of(op) &&
         op->nin > 0 && op->nout > 0;
}

/* Asks all questions, from the `first` on and around. */
static void ask_all(struct answers *a, int first)
{
  struct cost_model *m = new_cost_model();
  struct chooser chooser = {.m = m, .uses = &uses, .assumed = NONE};
  a->moves = alloc((size_t)questions() * sizeof *a->moves);
  a->cost = alloc((size_t)questions() * sizeof *a->cost);
  a->sharding = alloc((size_t)graph->norder * sizeof *a->sharding);
  for (int i = 0; i < questions(); i++) {
    int k = (first + i) % questions();
    struct layout from = layout[k / nlayout], to = layout[k % nlayout];
    a->cost[k] = move_cost(m, whole, F32, from, to);
    a->moves[k] = *find_moves(m, whole, F32, from, to);
  }
  for (int i = 0; i < graph->norder; i++) {
    int k = (first + i) % graph->norder;
    const struct op *op = &graph->op[graph->order[k]];
    if (is_sharded(op)) a->sharding[k] = find_sharding(&chooser, op);
  }
}

static bool same_move(const struct move *a, const struct move *b)
{
  return a->kind == b->kind && a->n == b->n &&
         !memcmp(a->dim, b->dim, (size_t)a->n * sizeof *a->dim) && same_layout(a->from, b->from) &&
         same_layout(a->to, b->to);
}

/* How many answers differ. */
static int differ(const struct answers *a, const struct answers *b)
{
  int n = 0;
  for (int k = 0; k < questions(); k++) {
    const struct moves *x = &a->moves[k], *y = &b->moves[k];
    bool same = x->n == y->n && x->time == y->time && x->bytes == y->bytes &&
                x->ended_early == y->ended_early && a->cost[k] == b->cost[k];
    for (int i = 0; i < x->n && same; i++) same = same_move(&x->move[i], &y->move[i]);
    n += !same;
  }
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    bool same = true;
    for (int i = 0; i < op->nin && same; i++)
      same = same_layout(a->sharding[k].in[i], b->sharding[k].in[i]);
    for (int i = 0; i < op->nout && same; i++)
      same = same_layout(a->sharding[k].out[i], b->sharding[k].out[i]);
    n += !same;
  }
  return n;
}

struct asking {
  pthread_t thread;
  int first, differ;
  const struct answers *expected;
};

static void *ask_in_thread(void *data)
{
  struct asking *t = data;
  struct answers a;
  arena_of_thread();
  ask_all(&a, t->first);
  t->differ = differ(&a, t->expected);
  end_arena_of_thread();
  return NULL;
}

static void compare_threads(void)
{
  struct answers expected;
  struct asking t[THREADS];
  ask_all(&expected, 0);
  int searched = 0;
  for (int k = 0; k < questions(); k++) searched += expected.moves[k].n > 0;
  for (int i = 0; i < THREADS; i++) {
    t[i] = (struct asking){.first = i * questions() / THREADS, .expected = &expected};
    assert_int_equal(pthread_create(&t[i].thread, NULL, ask_in_thread, &t[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(t[i].thread, NULL);
  for (int i = 0; i < THREADS; i++) must(!t[i].differ, "%d answers differ", t[i].differ);
  print_message("%d threads, %d layouts, %d moves\n", THREADS, nlayout, searched);
}

/* All layouts of these placements. */
static void set_layouts(void)
{
  static const struct placement list[] = {
      {.kind = REPLICATE}, {.kind = SHARD, .dim = 0}, {.kind = SHARD, .dim = 1}, {.kind = PARTIAL}};
  enum { PLACEMENTS = sizeof list / sizeof *list };
  int n = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) n *= graph->mesh.size[d] > 1 ? PLACEMENTS : 1;
  nlayout = 0;
  for (int i = 0; i < n; i++) {
    struct layout l = {0};
    for (int d = 0, rest = i; d < graph->mesh.ndim; d++) {
      if (graph->mesh.size[d] == 1) continue;
      l.on[d] = list[rest % PLACEMENTS];
      rest /= PLACEMENTS;
    }
    layout[nlayout++] = l;
  }
}

/* A Llama on a mesh of two dimensions, before its redistributions are planned. */
static void test_threads_agree(void **state)
{
  (void)state;
  static struct definition list[] = {
      {"dp_shard", "2"}, {"tp", "3"}, {"n_heads", "6"}, {"n_kv_heads", "6"}, {"dim", "96"}};
  options.plan = "plans/llama3.lua";
  options.definition = list;
  options.ndefinition = sizeof list / sizeof *list;
  graph_open();
  run_until(PASS_STAGES);
  const size_t values = (size_t)graph->nvalue + 1, ops = (size_t)graph->nop + 1;
  uses = (struct def_use){alloc(values * sizeof(int)), alloc(values * sizeof(int)),
                          alloc(values * sizeof(int)), alloc(ops * sizeof(int))};
  memset(uses.asked_of, NONE, values * sizeof(int));
  memset(uses.taken_by, NONE, values * sizeof(int));
  memset(uses.moved_to, NONE, values * sizeof(int));
  memset(uses.moved_before, NONE, ops * sizeof(int));
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin && is_sharded(op); i++)
      if (uses.taken_by[op->in[i]] == NONE) uses.taken_by[op->in[i]] = graph->order[at];
  }
  whole = parse_shape("24x17x6");
  set_layouts();
  compare_threads();
}

/* More moves than those of a plan: three dimensions of a mesh, links of two speeds. */
static void test_threads_agree_on_moves(void **state)
{
  (void)state;
  int size[MAX_MESH];
  new_graph(parse_mesh("2x2x3", size), size);
  graph->mesh.bandwidth[0] = 25e9;
  whole = parse_shape("24x18");
  set_layouts();
  compare_threads();
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_agree),
      cmocka_unit_test(test_threads_agree_on_moves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
