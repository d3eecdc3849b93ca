/* What async_tp cuts in pieces: a layer's gathers and reduce-scatters with their products, forward
   and backward; and the checker finds a piece that is left out, made twice, or read too early. */
#include "unit.h"

static void compile(const char *pieces)
{
  static struct definition list[2];
  list[0] = (struct definition){"tp", "2"};
  list[1] = (struct definition){"async_tp", pieces};
  options.definition = list;
  options.ndefinition = 2;
  options.plan = "plans/llama3.lua";
  options.cuda = true;
  arena_open();
  lua(), plan(), propagate(), grad(), optimize(), redistribute(), uncast(), recompute(), arrange();
  outline(), pipeline();
}

static struct function *named(const char *name)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (!strcmp(graph->function[i].name, name)) return &graph->function[i];
  give_up("no function %s", name);
  return NULL;
}

/* The operations of this kind that are in pieces. */
static int count(const struct function *f, enum op_kind kind)
{
  int n = 0;
  for (int k = 0; k < f->nop; k++)
    n += graph->op[f->op[k]].kind == kind && graph->op[f->op[k]].pieces;
  return n;
}

static void has_its_pieces(const void *unused)
{
  (void)unused;
  compile("4");
  const struct function *f = named("layers_forward");
  must(count(f, OP_all_gather) == 2 * 4, "%d gathers", count(f, OP_all_gather));
  must(count(f, OP_reduce_scatter) == 2 * 4, "%d scatters", count(f, OP_reduce_scatter));
  must(count(f, OP_matmul) == 7 * 4, "%d products", count(f, OP_matmul));
  check(PASS_PIPELINE);
}

/* wq, wk, wv and w1, w3 read what is gathered, wo and w2 make what is reduced. */
static void test_layer(void **state)
{
  (void)state;
  passes(has_its_pieces, NULL);
}

static int find(const struct function *f, enum op_kind kind, int piece)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (op->kind == kind && op->pieces && op->piece == piece) return k;
  }
  give_up("no such piece");
  return NONE;
}

static void leave_out(struct function *f, int k)
{
  memmove(f->op + k, f->op + k + 1, (size_t)(f->nop - k - 1) * sizeof *f->op);
  f->nop--;
}

static void swap(struct function *f, int k, int l)
{
  int op = f->op[k];
  f->op[k] = f->op[l];
  f->op[l] = op;
}

static void gather_left_out(struct function *f)
{
  leave_out(f, find(f, OP_all_gather, 1));
}
static void product_left_out(struct function *f)
{
  leave_out(f, find(f, OP_matmul, 3));
}
static void scatter_left_out(struct function *f)
{
  leave_out(f, find(f, OP_reduce_scatter, 3));
}
static void gather_twice(struct function *f)
{
  graph->op[f->op[find(f, OP_all_gather, 2)]].piece = 1;
}
static void piece_too_far(struct function *f)
{
  graph->op[f->op[find(f, OP_all_gather, 3)]].piece = 4;
}
static void other_pieces(struct function *f)
{
  graph->op[f->op[find(f, OP_all_gather, 0)]].pieces = 2;
}
static void read_too_early(struct function *f)
{
  swap(f, find(f, OP_all_gather, 0), find(f, OP_matmul, 0));
}

static const struct fault {
  void (*put)(struct function *f);
  const char *found;
} faults[] = {
    {gather_left_out, "a piece is left out"},
    {product_left_out, "reads what is not whole yet"},
    {scatter_left_out, "reads what is not whole yet"},
    {gather_twice, "a piece is left out, or made twice"},
    {piece_too_far, "a piece that there is not"},
    {other_pieces, "in other pieces"},
    {read_too_early, "a piece that is not there yet"},
};

static void put_fault(const void *with)
{
  const struct fault *fault = with;
  compile("4");
  if (fault->put) fault->put(named("layers_forward"));
  check_in_pieces();
}

static void test_faults(void **state)
{
  (void)state;
  struct fault none = {0};
  passes(put_fault, &none);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refused(put_fault, &faults[i], -SIGABRT, "pipeline", faults[i].found, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer), cmocka_unit_test(test_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
