/* What overlaps with a collective: work that neither needs it nor is needed by it. And the checker
   finds the possible faults. */
#include "check/check.h"
#include "functions.h"

static int x, a, b, sum, d;

static int product(int of, int by, const char *equation)
{
  return run_in_phase(
      (struct op){.kind = OP_matmul, .nin = 2, .in = {of, by}, .equation = equation});
}

static int summed(int value)
{
  return run_in_phase(
      (struct op){.kind = OP_all_reduce, .nin = 1, .in = {value}, .group = add_group(1)});
}

/* Two products, the sum over the ranks of the first, and what needs that. */
static void two_products(void)
{
  new_graph(1, (int[]){2});
  x = given(BATCH, "x", parse_shape("512x512"), (struct layout){0});
  a = product(x, x, "mk,kn->mn");
  b = product(x, x, "mk,nk->mn");
  sum = summed(a);
  d = product(sum, x, "mk,kn->mn");
  graph->value[b].is_output = graph->value[d].is_output = true;
  fuse();
  schedule();
}

static const struct op *maker(int value)
{
  return &graph->op[graph->value[value].op];
}

static void begins_and_awaits(const void *with)
{
  (void)with;
  two_products();
  must(nth_op(FORWARD, 0)->out == a && nth_op(FORWARD, 1)->out == sum, "the sum begins late");
  must(scheduled(nth_op(FORWARD, 1))->overlapped && nth_op(FORWARD, 2)->out == b,
       "nothing runs beside the sum");
  must(nth_op(FORWARD, 3)->kind == OP_await && nth_op(FORWARD, 4)->out == d, "it is not awaited");
  must(graph->schedule->nevent == 1 && scheduled(maker(sum))->event == 0, "%d events",
       graph->schedule->nevent);
  const struct scheduled *s = scheduled(maker(sum));
  must(s->exposed == s->time + events_time() - time_taken(maker(b)),
       "it is waited for %" PRId64 " ps", s->exposed);
}

/* Where all needs the sum nothing runs beside it. */
static void nothing_beside(const void *with)
{
  (void)with;
  new_graph(1, (int[]){2});
  x = given(BATCH, "x", parse_shape("512x512"), (struct layout){0});
  sum = summed(product(x, x, "mk,kn->mn"));
  d = product(sum, x, "mk,kn->mn");
  graph->value[d].is_output = true;
  fuse();
  schedule();
  must(function_of_phase(FORWARD)->nop == 3, "there is an await");
  must(!scheduled(maker(sum))->overlapped && !graph->schedule->nevent,
       "it runs on a stream of its own");
  must(scheduled(maker(sum))->exposed == scheduled(maker(sum))->time, "it is not waited for");
}

/* Four products, each summed and used; and what lives from the first to the last. */
static void four_sums(int *made, const char *besides)
{
  new_graph(1, (int[]){2});
  x = given(BATCH, "x", parse_shape("512x512"), (struct layout){0});
  int y = given(BATCH, "y", parse_shape(besides), (struct layout){0});
  int kept = product(y, y, "mk,nk->mn");
  for (int i = 0; i < 4; i++) {
    made[i] = summed(product(x, x, "mk,kn->mn"));
    graph->value[product(made[i], x, "mk,mk->m")].is_output = true;
  }
  graph->value[product(kept, kept, "mk,mk->m")].is_output = true;
  fuse();
  schedule();
}

static void several_are_pending(const void *with)
{
  (void)with;
  int made[4];
  four_sums(made, "4096x16");
  for (int i = 0; i < 3; i++)
    must(scheduled(maker(made[i]))->overlapped, "sum %d has nothing beside it", i);
  must(graph->schedule->nevent > 1, "%d events", graph->schedule->nevent);
  memory();
  check_order();
}

/* A product beside a pending sum is one more that lives: that may not be much more than lives
   without. The first has the small ones. */
static void too_much_memory(const void *with)
{
  (void)with;
  int made[4];
  four_sums(made, "16x16");
  for (int i = 1; i < 4; i++) must(!scheduled(maker(made[i]))->overlapped, "sum %d is pending", i);
}

/* A product that is summed over two groups, one after the other, and one of what is large beside
   that. The second is issued right behind the first, and both are awaited with it. */
static void begins_behind(const void *with)
{
  (void)with;
  int sums[2];
  set_target("cuda");
  new_graph(2, (int[]){2, 2});
  x = given(BATCH, "x", parse_shape("512x512"), (struct layout){0});
  int y = given(BATCH, "y", parse_shape("4096x16"), (struct layout){0});
  int kept = product(y, y, "mk,nk->mn");
  a = product(x, x, "mk,kn->mn");
  b = product(kept, kept, "mk,nk->mn");
  for (int i = 0, last = a; i < 2; i++)
    last = sums[i] = run_in_phase(
        (struct op){.kind = OP_all_reduce, .nin = 1, .in = {last}, .group = add_group(1u << i)});
  d = product(sums[1], x, "mk,kn->mn");
  graph->value[b].is_output = graph->value[d].is_output = true;
  fuse();
  schedule();
  int at = runs_at(function_of_phase(FORWARD), graph->value[sums[0]].op);
  must(nth_op(FORWARD, at + 1)->out == sums[1], "it is not issued behind the first");
  must(predecessor_of(maker(sums[1])) == maker(sums[0]), "it follows nothing");
  must(runs_at(function_of_phase(FORWARD), graph->value[b].op) > at, "nothing is beside them");
  int awaits = 0;
  for (int k = 0; k < function_of_phase(FORWARD)->nop; k++)
    awaits += nth_op(FORWARD, k)->kind == OP_await;
  must(awaits == 1, "there are %d awaits", awaits);
  memory();
  check_order();
}

static void test_what_runs_beside(void **state)
{
  (void)state;
  passes(begins_and_awaits, NULL);
  passes(nothing_beside, NULL);
  passes(several_are_pending, NULL);
  passes(too_much_memory, NULL);
  passes(begins_behind, NULL);
}

/* --------------------------------------------------------------------------------------- faults */

static struct function *forward(void)
{
  return function_of_phase(FORWARD);
}

static void swap(int i, int k)
{
  int *op = forward()->op, was = op[i];
  op[i] = op[k];
  op[k] = was;
}

static void put_nothing(void)
{
}
static void no_await(void)
{
  forward()->op[3] = forward()->op[4];
  forward()->nop--;
}
static void awaited_never(void)
{
  forward()->nop = 3;
}
static void awaited_late(void)
{
  swap(3, 4);
}
static void awaited_early(void)
{
  swap(1, 3);
}
static void awaited_again(void)
{
  forward()->op[5] = forward()->op[3];
  forward()->nop++;
}
static void overwritten(void)
{
  graph->value[b].is_output = false;
  graph->memory->of[b].storage = a;
  graph->memory->of[b].offset = graph->memory->of[a].offset;
}
static void read_too_soon(void)
{
  graph->op[graph->value[b].op].in[1] = sum;
}
static void no_event(void)
{
  graph->schedule->nevent = 0;
}
static void another_of_the_group(void)
{
  int c = summed(x);
  graph->value[c].is_output = true;
  forward()->nop--;
  for (int k = 5; k > 2; k--) forward()->op[k] = forward()->op[k - 1];
  forward()->op[2] = graph->value[c].op;
  forward()->nop++;
}

static const struct fault {
  void (*put)(void);
  const char *found;
} faults[] = {
    {no_await, "it reads what a pending collective writes"},
    {awaited_never, "it is not awaited where its function ends"},
    {awaited_late, "it reads what a pending collective writes"},
    {awaited_early, "it awaits what is not pending"},
    {awaited_again, "it awaits what is not pending"},
    {overwritten, "it writes what a pending collective writes"},
    {read_too_soon, "it reads what a pending collective writes"},
    {no_event, "it has no event"},
    {another_of_the_group, "a collective passes one of its group that is pending"},
};

static void put_fault(const void *with)
{
  void (*const *put)(void) = with;
  two_products();
  memory();
  (*put)();
  check_order();
}

static void test_faults(void **state)
{
  (void)state;
  void (*nothing)(void) = put_nothing;
  passes(put_fault, &nothing);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refused(put_fault, &faults[i].put, -SIGABRT, "memory", faults[i].found, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_runs_beside),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
