/* Styles become placements of parameters and redistributions at the start and end of modules. */
#include "lua/lua.h"
#include "emit/emit.h"
#include "unit.h"

/* A model of two modules that are called one after the other within a third: out =
   second(first(x)). */
static int root, first, second, x, w, y, z;

static int apply(enum op_kind kind, int in, int module)
{
  return append_op((struct op){.kind = kind, .nin = 1, .in = {in}, .module = module, .line = 4});
}

static void add_call(int module, int parent, int from, int to, int in, int out)
{
  GROW(graph->call, graph->ncall, graph->call_room);
  graph->call[graph->ncall++] = (struct call){.module = module,
                                              .within = module,
                                              .parent = parent,
                                              .first = from,
                                              .last = to,
                                              .nin = 1,
                                              .in = {in},
                                              .nout = 1,
                                              .out = {out}};
}

static void model(int ndim, const int *size)
{
  new_graph(ndim, size);
  root = add_module("", "Model", NONE, 1);
  first = add_module("first", "First", root, 2);
  second = add_module("second", "Second", root, 3);
  x = add_value(BATCH, "x", F32, parse_shape("8x6"), NONE, 1);
  w = add_value(PARAMETER, "first.weight", F32, parse_shape("8x6"), first, 1);
  y = apply(OP_exp, x, first);
  z = apply(OP_tanh, y, second);
  add_call(root, NONE, 0, 2, x, z);
  add_call(first, 0, 0, 1, x, y);
  add_call(second, 0, 1, 2, y, z);
}

static struct style *add_style(const char *name, int module, int mesh_dim, int line)
{
  GROW(graph->style, graph->nstyle, graph->style_room);
  graph->style[graph->nstyle] =
      (struct style){.name = name, .module = module, .mesh_dim = mesh_dim, .line = line};
  return &graph->style[graph->nstyle++];
}

static void request(struct style *s, int what, int which, struct placement to)
{
  struct layout_request *list = alloc((size_t)(s->nrequest + 1) * sizeof *list);
  if (s->nrequest) memcpy(list, s->request, (size_t)s->nrequest * sizeof *list);
  list[s->nrequest].what = what;
  list[s->nrequest].value = what == REQUEST_PARAMETER ? which : 0;
  list[s->nrequest].index = what == REQUEST_PARAMETER ? 0 : which;
  list[s->nrequest].to = to;
  s->request = list;
  s->nrequest++;
}

/* The program, an operation's number and inputs: "v3 = exp v0". */
static const char *program(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    bool move = op->kind == OP_redistribute;
    put(&b, "%sv%d = %s", i ? "; " : "", op->out, move ? "move" : op_row[op->kind].name);
    for (int k = 0; k < op->nin; k++) put(&b, " v%d", op->in[k]);
    for (int d = 0; move && d < graph->mesh.ndim; d++)
      if (op->asked >> d & 1) put(&b, " %s:%s", graph->mesh.name[d], placement_text(op->to.on[d]));
  }
  return b.text;
}

static void runs(const char *expected)
{
  must(!strcmp(program(), expected), "%s, not %s", program(), expected);
}

/* ----------------------------------------------------------------------------------- parameters */

static void without_styles(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  plan();
  runs("v2 = exp v0; v3 = tanh v2");
  must(graph->value[w].placed && graph->value[x].placed, "not placed");
  must(same_layout(graph->value[w].layout, parse_layout("R")), "the weight is %s",
       layout_text(graph->value[w].layout));
}

static void place_parameters(const void *with)
{
  (void)with;
  model(3, (int[]){2, 3, 1});
  request(add_style("A", first, 0, 10), REQUEST_PARAMETER, w, S(-1));
  request(add_style("B", first, 1, 11), REQUEST_PARAMETER, w, S(0));
  request(add_style("C", first, 2, 12), REQUEST_PARAMETER, w, S(1));
  graph->value[x].layout = parse_layout("S(0) R S(0)");
  plan();
  struct layout expected = parse_layout("S(1) S(0) R");
  for (int d = 0; d < 3; d++)
    must(same_placement(graph->value[w].layout.on[d], expected.on[d]),
         "the weight is %s on dimension %d", placement_text(graph->value[w].layout.on[d]), d);
  must(graph->value[x].layout.on[0].kind == SHARD && graph->value[x].layout.on[2].kind == REPLICATE,
       "the input is sharded over one rank");
}

static void place_twice_alike(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("A", first, 0, 10), REQUEST_PARAMETER, w, S(1));
  request(add_style("B", root, 0, 11), REQUEST_PARAMETER, w, S(-1));
  plan();
  must(same_layout(graph->value[w].layout, parse_layout("S(1)")), "elsewhere");
}

static void place_twice_apart(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("Colwise", first, 0, 10), REQUEST_PARAMETER, w, S(1));
  request(add_style("Rowwise", root, 0, 11), REQUEST_PARAMETER, w, S(0));
  plan();
}

static void place_beyond(const void *with)
{
  model(1, (int[]){2});
  request(add_style("Colwise", first, 0, 10), REQUEST_PARAMETER, w, S(*(const int *)with));
  plan();
}

static void test_parameters(void **state)
{
  (void)state;
  passes(without_styles, NULL);
  passes(place_parameters, NULL);
  passes(place_twice_alike, NULL);
  refused(place_twice_apart, NULL, 1, "unit.lua:11: error:", "Rowwise", "first.weight", "S(0)",
          "Colwise", "line 10", "S(1)", NULL);
  refused(place_beyond, &(int){2}, 1, "unit.lua:10: error:", "Colwise", "Shard(2)", "[8, 6]", NULL);
  refused(place_beyond, &(int){-3}, 1, "unit.lua:10: error:", "Colwise", "Shard(-3)", "[8, 6]",
          NULL);
}

/* --------------------------------------------------------------------------- inputs and outputs */

static void ask_for_an_input(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("A", first, 0, 10), REQUEST_INPUT, 0, S(-2));
  plan();
  runs("v4 = move v0 a:S(0); v2 = exp v4; v3 = tanh v2");
  const struct op *op = &graph->op[graph->order[0]];
  must(op->line == 10 && op->module == first && !strcmp(op->why, "A's input layout"),
       "who asked is lost");
  must(!strcmp(graph->value[4].name, "x"), "the value is called %s", graph->value[4].name);
}

static void ask_for_an_output(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("A", first, 0, 10), REQUEST_OUTPUT, 0, R);
  plan();
  runs("v2 = exp v0; v4 = move v2 a:R; v3 = tanh v4");
  must(!strcmp(graph->op[graph->order[1]].why, "A's output layout"), "who asked is lost");
}

/* Inside a module its input is as asked; outside it stays what it was. */
static void leave_the_outside(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  graph->op[graph->value[z].op].kind = OP_add;
  graph->op[graph->value[z].op].nin = 2;
  graph->op[graph->value[z].op].in[1] = x;
  request(add_style("A", first, 0, 10), REQUEST_INPUT, 0, S(1));
  plan();
  runs("v4 = move v0 a:S(1); v2 = exp v4; v3 = add v2 v0");
}

static void ask_around_and_inside(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("Outer", root, 0, 10), REQUEST_INPUT, 0, S(0));
  request(add_style("Inner", first, 0, 11), REQUEST_INPUT, 0, S(1));
  request(add_style("Outer", root, 0, 10), REQUEST_OUTPUT, 0, R);
  request(add_style("Inner", second, 0, 12), REQUEST_OUTPUT, 0, S(0));
  plan();
  runs("v4 = move v0 a:S(0); v5 = move v4 a:S(1); v2 = exp v5; v3 = tanh v2; v6 = move v3 a:S(0); "
       "v7 = move v6 a:R");
}

static void ask_along_two_dimensions(const void *with)
{
  (void)with;
  model(2, (int[]){2, 3});
  request(add_style("A", first, 0, 10), REQUEST_INPUT, 0, S(0));
  request(add_style("B", first, 1, 11), REQUEST_INPUT, 0, S(1));
  plan();
  runs("v4 = move v0 a:S(0) b:S(1); v2 = exp v4; v3 = tanh v2");
}

static void ask_of_one_rank(const void *with)
{
  (void)with;
  model(2, (int[]){1, 2});
  request(add_style("A", first, 0, 10), REQUEST_INPUT, 0, S(0));
  plan();
  runs("v4 = move v0 a:R; v2 = exp v4; v3 = tanh v2");
}

static void ask_for_too_many(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("PrepareModuleInput", first, 0, 10), REQUEST_INPUT, 1, S(0));
  plan();
}

static void ask_for_a_wrong_dimension(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  request(add_style("A", second, 0, 10), REQUEST_OUTPUT, 0, S(2));
  plan();
}

static void test_inputs_and_outputs(void **state)
{
  (void)state;
  passes(ask_for_an_input, NULL);
  passes(ask_for_an_output, NULL);
  passes(leave_the_outside, NULL);
  passes(ask_around_and_inside, NULL);
  passes(ask_along_two_dimensions, NULL);
  passes(ask_of_one_rank, NULL);
  refused(ask_for_too_many, NULL, 1, "unit.lua:10: error:", "PrepareModuleInput",
          "input 1 of first", "which has 1", NULL);
  refused(ask_for_a_wrong_dimension, NULL, 1, "unit.lua:10: error:", "Shard(2)", "[8, 6]", NULL);
}

/* The same module called twice: each call has its own. */
static void call_twice(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  graph->call[2].module = graph->call[2].within = first;
  request(add_style("A", first, 0, 10), REQUEST_OUTPUT, 0, S(0));
  plan();
  runs("v2 = exp v0; v4 = move v2 a:S(0); v3 = tanh v4; v5 = move v3 a:S(0)");
}

static void test_calls(void **state)
{
  (void)state;
  passes(call_twice, NULL);
}

/* ---------------------------------------------------------------------- what leaves the program */

static void move_the_loss(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  graph->loss = z;
  request(add_style("A", second, 0, 10), REQUEST_OUTPUT, 0, R);
  plan();
  must(graph->loss == 4, "the loss is v%d", graph->loss);
}

static void move_an_output(const void *with)
{
  (void)with;
  model(1, (int[]){2});
  graph->value[z].is_output = true;
  graph->value[z].name = "result";
  request(add_style("A", second, 0, 10), REQUEST_OUTPUT, 0, R);
  plan();
  must(graph->value[4].is_output && !graph->value[z].is_output,
       "the output is not what was asked for");
  must(!strcmp(graph->value[4].name, "result"), "it is called %s", graph->value[4].name);
}

static void test_what_leaves(void **state)
{
  (void)state;
  passes(move_the_loss, NULL);
  passes(move_an_output, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_parameters),
      cmocka_unit_test(test_inputs_and_outputs),
      cmocka_unit_test(test_calls),
      cmocka_unit_test(test_what_leaves),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
