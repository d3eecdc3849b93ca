/* async_tp: it chunks a layer's gathers and reduce-scatters with their products, forward and
   backward; into the number of chunks that is fastest by the model, or not at all; and the checker
   finds a chunk that is missing, made twice, or read too early. */

#include "driver/driver.h"
#include "unit.h"

static void compile_model(const char *preset, const char *tp, const char *pieces)
{
  static struct definition list[3];
  list[0] = (struct definition){"tp", tp};
  list[1] = (struct definition){"async_tp", pieces};
  list[2] = (struct definition){"preset", preset};
  options.definition = list;
  options.ndefinition = 3;
  options.plan = "plans/llama3.lua";
  set_target("cuda");
  graph_open();
  run_until(PASS_ASYNC_TP);
}

static void compile(const char *pieces)
{
  compile_model("debug", "2", pieces);
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
  check(PASS_ASYNC_TP);
}

/* wq, wk, wv and w1, w3 read what is gathered, wo and w2 make what is reduced. */
static void test_layer(void **state)
{
  (void)state;
  passes(has_its_pieces, NULL);
}

/* All that could be cut is as quick as it can be; how many are in pieces. */
static int count_quickest(void)
{
  int cut = 0;
  for (int i = 0; i < graph->nasync_tp_result; i++) {
    const struct async_tp_result *p = &graph->async_tp_result[i];
    const char *kind = op_row[graph->op[p->op].kind].name;
    must(!p->tried == !!p->why_not, "%s: no reason", kind);
    if (p->why_not) continue;
    bool pays = p->in_pieces < p->whole;
    must(p->pieces == (pays ? p->tried : 0), "%s: in %d pieces", kind, p->pieces);
    must(graph->op[p->op].pieces == p->pieces, "%s: in other pieces", kind);
    cut += pays;
  }
  return cut;
}

/* A layer's products of a hundred rows are computed before a piece could be begun. */
static void small_stays_whole(const void *unused)
{
  (void)unused;
  compile("true");
  must(graph->nasync_tp_result > 8 && count_quickest() == 0, "%d are cut", count_quickest());
  for (int i = 0; i < graph->nop; i++) must(!graph->op[i].pieces, "operation %d is cut", i);
  struct buffer report = {0};
  put_async_tp(&report);
  must(strstr(report.text, "none of 12 collectives is in chunks: by the model"), "%s", report.text);
  check(PASS_ASYNC_TP);
}

static void large_is_cut(const void *unused)
{
  (void)unused;
  compile_model("8b", "8", "true");
  const struct function *f = named("layers_forward");
  must(count_quickest() >= 8, "%d are cut", count_quickest());
  must(count(f, OP_all_gather) >= 2 * 2, "%d gathers", count(f, OP_all_gather));
  must(count(f, OP_reduce_scatter) >= 2 * 2, "%d scatters", count(f, OP_reduce_scatter));
  check(PASS_ASYNC_TP);
}

/* Where the plan says in how many, the model is not asked. */
static void plan_decides(const void *unused)
{
  (void)unused;
  compile("2");
  int cut = 0;
  for (int i = 0; i < graph->nasync_tp_result; i++) {
    const struct async_tp_result *p = &graph->async_tp_result[i];
    must(!p->tried && p->pieces == (p->why_not ? 0 : 2), "in %d pieces", p->pieces);
    cut += p->pieces == 2;
  }
  must(cut > 8, "%d are cut", cut);
}

static void test_numbers(void **state)
{
  (void)state;
  passes(small_stays_whole, NULL);
  passes(large_is_cut, NULL);
  passes(plan_decides, NULL);
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
/* The last scatter's value is what the layer gives. */
static void last_left_out(struct function *f)
{
  int last = NONE;
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_reduce_scatter) last = k;
  while (f->nop > last) leave_out(f, f->nop - 1);
}
/* The first of two products whose sum is reduced. */
static void term_left_out(struct function *f)
{
  (void)f;
  struct function *back = named("layers_backward");
  int k = 0;
  while (graph->op[back->op[k]].nin < 3 || !graph->op[back->op[k]].pieces) k++;
  leave_out(back, k - 1);
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
    {gather_left_out, "a piece that is not there yet"},
    {product_left_out, "reads what is not whole yet"},
    {scatter_left_out, "reads what is not whole yet"},
    {last_left_out, "a piece of what it makes is left out"},
    {term_left_out, "it adds to nothing"},
    {gather_twice, "a piece is made twice"},
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
    refused(put_fault, &faults[i], -SIGABRT, "async_tp", faults[i].found, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layer), cmocka_unit_test(test_numbers),
                                     cmocka_unit_test(test_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
