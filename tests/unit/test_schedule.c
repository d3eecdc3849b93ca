/* The order in which operations run: whatever it is, each value is made before it is read, nothing
   is lost, and no more lives at once than before. */
#include "functions.h"

struct program {
  uint64_t seed;
  int length;
};

static int places(void)
{
  int n = 0;
  for (int i = 0; i < graph->nfunction; i++) n += graph->function[i].nop;
  return n;
}

/* All operations, one function after the other. */
static int *flat(void)
{
  int *list = alloc((size_t)places() * sizeof *list), n = 0;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) list[n++] = graph->function[i].op[k];
  return list;
}

static void check_dependences(const int *order, int n)
{
  bool *made = alloc((size_t)graph->nvalue);
  int list[64];
  for (int i = 0; i < n; i++) {
    const struct op *op = &graph->op[order[i]];
    for (int k = op_reads(op, list); k--;)
      must(made[list[k]] || graph->value[list[k]].op == NONE, "v%d is read before it is made",
           list[k]);
    for (int k = op_writes(op, list); k--;) made[list[k]] = true;
  }
}

/* The same operations within each function. */
static void check_complete(const int *before, const int *after)
{
  int at = 0;
  for (int i = 0; i < graph->nfunction; i++) {
    int n = graph->function[i].nop;
    for (int k = 0; k < n; k++) {
      int seen = 0;
      for (int j = 0; j < n; j++) seen += after[at + j] == before[at + k];
      must(seen == 1, "operation %d runs %d times in %s", before[at + k], seen,
           graph->function[i].name);
    }
    at += n;
  }
}

/* Writes what lives at once to the file, in the old order or the new one. */
struct trial {
  struct program program;
  bool scheduled;
  FILE *live;
};

static void run_random(const void *with)
{
  const struct trial *t = with;
  unit_seed = t->program.seed;
  random_program(t->program.length);
  int n = places(), *before = flat();
  if (t->scheduled) schedule();
  int *after = flat();
  must(places() == n, "%d operations, not %d", places(), n);
  check_complete(before, after);
  check_dependences(after, n);
  memory();
  fprintf(t->live, "%" PRId64 "\n", graph->live_bytes);
  fflush(t->live);
}

/* The new order is no worse: what memory.c finds to live at once, what is written in place counted
   once. */
static void test_random_programs(void **state)
{
  (void)state;
  int better = 0;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    struct trial t = {.program = {seed, 4 + (int)(seed % 60)}, .live = tmpfile()};
    int64_t was, is;
    passes(run_random, &t);
    t.scheduled = true;
    passes(run_random, &t);
    rewind(t.live);
    assert_int_equal(fscanf(t.live, "%" SCNd64 "%" SCNd64, &was, &is), 2);
    fclose(t.live);
    if (is > was)
      fail_msg("seed %d: %" PRId64 " bytes live at once, %" PRId64 " before", (int)seed, is, was);
    better += is < was;
  }
  print_message("%d of 300 programs are better for it\n", better);
  assert_true(better > 50);
}

/* Three products are made, then each is summed: better one after the other. */
static void products_then_sums(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("64x64"), (struct layout){0}), product[3];
  for (int i = 0; i < 3; i++)
    product[i] = run_in_phase(
        (struct op){.kind = OP_matmul, .nin = 2, .in = {x, x}, .equation = "mk,nk->mn"});
  for (int i = 0; i < 3; i++) {
    int s = run_in_phase(
        (struct op){.kind = OP_matmul, .nin = 2, .in = {product[i], x}, .equation = "ab,ab->a"});
    graph->value[s].is_output = true;
  }
  fuse();
  schedule();
  for (int i = 0; i < 3; i++) {
    must(nth_op(FORWARD, 2 * i)->out == product[i], "product %d is not made when it is needed", i);
    must(nth_op(FORWARD, 2 * i + 1)->in[0] == product[i], "product %d is kept", i);
  }
}

/* What an earlier operation takes in no case moves before the loop that makes it, or a later one.
 */
static void around_a_loop(const void *with)
{
  (void)with;
  new_graph(1, (int[]){1});
  int x = given(BATCH, "x", parse_shape("64x64"), (struct layout){0});
  int a =
      run_in_phase((struct op){.kind = OP_matmul, .nin = 2, .in = {x, x}, .equation = "mk,nk->mn"});
  struct function *f = function_of_phase(FORWARD), *body = &graph->function[1];
  graph->nfunction = 2;
  *body = (struct function){.name = "body", .count = 2, .upward = true, .op = alloc(sizeof(int))};
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = (struct op){.kind = OP_loop, .out = NONE, .function = 1, .module = NONE};
  int loop = graph->nop++;
  f->op[f->nop++] = loop;
  int b =
      run_in_phase((struct op){.kind = OP_matmul, .nin = 2, .in = {a, x}, .equation = "ab,ab->a"});
  graph->value[b].is_output = true;
  fuse();
  schedule();
  must(f->nop == 3 && f->op[1] == loop, "something passes the loop");
}

static void test_orders(void **state)
{
  (void)state;
  passes(products_then_sums, NULL);
  passes(around_a_loop, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_programs),
      cmocka_unit_test(test_orders),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
