/* The simulated step: what overlaps, what is awaited, and by which figures. */
#include "report/report.h"
#include "functions.h"

static int x, a, b, sum, d;

static int product(int of, int by, const char *equation)
{
  return run_in_phase(
      (struct op){.kind = OP_matmul, .nin = 2, .in = {of, by}, .equation = equation});
}

/* Two products, the sum over the ranks of the first beside the second, and what needs that. */
static void two_products(void)
{
  new_graph(1, (int[]){2});
  graph->mesh.device = *device_named("H100");
  x = given(BATCH, "x", parse_shape("512x512"), (struct layout){0});
  a = product(x, x, "mk,kn->mn");
  b = product(x, x, "mk,nk->mn");
  sum =
      run_in_phase((struct op){.kind = OP_all_reduce, .nin = 1, .in = {a}, .group = add_group(1)});
  d = product(sum, x, "mk,kn->mn");
  graph->value[b].is_output = graph->value[d].is_output = true;
  fuse();
  schedule();
}

static int64_t time_of(int value)
{
  return time_taken(&graph->op[graph->value[value].op]);
}

static void near(double seconds, int64_t picoseconds, const char *what)
{
  must(fabs(seconds - (double)picoseconds * 1e-12) < 1e-15, "%s: %g s, not %g", what, seconds,
       (double)picoseconds * 1e-12);
}

static void sum_runs_beside(const void *with)
{
  (void)with;
  set_target("cuda");
  two_products();
  const struct simulated *s = simulated();
  int64_t pending = time_of(sum) + events_time(), beside = time_of(b);
  int64_t waited = pending > beside ? pending - beside : 0;
  must(waited > 0, "the sum is hidden");
  near(s->step, time_of(a) + pending + time_of(d), "the step");
  near(s->computing, time_of(a) + time_of(b) + time_of(d), "arithmetic");
  near(s->moving, pending, "collectives");
  near(s->waiting, waited, "what is waited for");
  must(s->n == 4, "%d operations", s->n);
}

/* The CPU's collectives run where they begin. */
static void nothing_beside_on_cpu(const void *with)
{
  (void)with;
  set_target("cpu");
  two_products();
  const struct simulated *s = simulated();
  near(s->step, time_of(a) + time_of(b) + time_of(sum) + time_of(d), "the step");
  near(s->waiting, time_of(sum), "what is waited for");
}

static void several_batches(const void *with)
{
  (void)with;
  set_target("cuda");
  two_products();
  double one = simulated()->step, moving = simulated()->moving;
  two_products();
  plan_options->accumulate = 3;
  must(fabs(simulated()->step - 3 * one) < 1e-15, "three batches are not three times one");
  must(fabs(simulated()->moving - 3 * moving) < 1e-15, "nor are their collectives");
}

/* What is gathered of an input is gathered for each batch. */
static void for_each_batch(const void *with)
{
  (void)with;
  set_target("cuda");
  two_products();
  double one = simulated()->step;
  two_products();
  plan_options->accumulate = 3;
  function_of_phase(FORWARD)->phase = GATHER;
  for (int i = 0; i < graph->nop; i++) graph->op[i].phase = GATHER;
  must(fabs(simulated()->step - 3 * one) < 1e-15, "a gather of an input is counted once");
}

/* What is gathered for all batches of a step runs once in it. */
static void once_for_all_batches(const void *with)
{
  (void)with;
  set_target("cuda");
  two_products();
  double one = simulated()->step, moving = simulated()->moving;
  two_products();
  plan_options->accumulate = 3;
  function_of_phase(FORWARD)->phase = GATHER;
  for (int i = 0; i < graph->nop; i++) graph->op[i].phase = GATHER;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH) graph->value[i].role = PARAMETER;
  must(fabs(simulated()->step - one) < 1e-15, "it is counted for each batch");
  must(fabs(simulated()->moving - moving) < 1e-15, "its collectives are");
}

/* A list of modules: each round of the loop is gone through. */
static void rounds_of_a_loop(const void *with)
{
  (void)with;
  set_target("cuda");
  two_products();
  struct function *forward = function_of_phase(FORWARD);
  struct op call = {.kind = OP_loop, .out = NONE, .module = NONE, .function = graph->nfunction};
  struct function body = *forward;
  GROW(graph->function, graph->nfunction, graph->function_room);
  body.count = 5;
  graph->function[graph->nfunction++] = body;
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = call;
  forward = function_of_phase(FORWARD);
  forward->op = alloc(sizeof *forward->op);
  *forward->op = graph->nop++;
  forward->nop = 1;
  int64_t round = time_of(a) + time_of(sum) + events_time() + time_of(d), takes, waited;
  near(simulated()->step, 5 * round, "five rounds");
  must(simulated()->n == 5 * 4 && simulated()->ran[8].module == 2, "which round it is");
  simulated_mean(graph->value[sum].op, &takes, &waited);
  must(takes == time_of(sum) + events_time() && waited == takes - time_of(b), "the mean");
}

static void test_what_is_waited_for(void **state)
{
  (void)state;
  passes(sum_runs_beside, NULL);
  passes(nothing_beside_on_cpu, NULL);
  passes(several_batches, NULL);
  passes(for_each_batch, NULL);
  passes(once_for_all_batches, NULL);
  passes(rounds_of_a_loop, NULL);
}

/* ----------------------------------------------------------------------------------- the device */

static double reached(double rows, double columns, double terms)
{
  struct product_sizes p = {1, rows, columns, terms};
  return 2 * rows * columns * terms / product_seconds(&p, IN_BFLOAT16) / 989e12;
}

static void products_reach(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  graph->mesh.device = *device_named("H100");
  const double most = graph->mesh.device.products, large = reached(8192, 8192, 8192);
  must(large > 0.9 * most && large < most, "a large product: %g of %g", large, most);
  must(reached(1024, 1024, 1024) < 0.75 * most, "a small one: %g", reached(1024, 1024, 1024));
  must(reached(16, 16384, 16384) < 0.1, "a flat one: %g", reached(16, 16384, 16384));
  /* One more row of tiles than the multiprocessors have room for. */
  must(reached(256 * 12 + 1, 128 * 11, 8192) < 0.85 * reached(256 * 12, 128 * 11, 8192),
       "the last round costs nothing");
}

static void plain_device(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  graph->mesh.device =
      (struct device){"mine", {1e12, 1e12, 1e12}, 1e11, 0, 0.8, 0.4, 0.4, 0.8, NULL};
  struct product_sizes p = {2, 100, 10, 1000};
  must(fabs(product_seconds(&p, IN_FLOAT32) - 4e6 / 0.8e12) < 1e-15, "of a product");
  must(fabs(memory_seconds(8e10) - 1) < 1e-12, "of memory");
}

static void test_devices(void **state)
{
  (void)state;
  assert_null(device_named("H100 "));
  assert_non_null(device_named("B200"));
  passes(products_reach, NULL);
  passes(plain_device, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_waited_for),
      cmocka_unit_test(test_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
