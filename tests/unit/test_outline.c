/* Which modules of a list become one function called in a loop, what its body reads, and which
   modules stay separate. test_program.c tests that the folded programs compute the same. */
#include "graph_passes/graph_passes.h"
#include "unit.h"

/* A list of three layers; a test writes what each does. */
enum { LAYERS = 3 };
static int root, list, layer[LAYERS], weight[LAYERS], start;

static int apply(enum op_kind kind, int a, int b, int module, double scalar)
{
  int v = append_op((struct op){.kind = kind,
                                .nin = b == NONE ? 1 : 2,
                                .in = {a, b},
                                .scalar = scalar,
                                .module = module,
                                .line = 5});
  graph->value[v].layout = graph->value[a].layout;
  graph->value[v].placed = true;
  return v;
}

static int multiply(int x, int w, int module)
{
  int v = append_op((struct op){.kind = OP_matmul,
                                .nin = 2,
                                .in = {x, w},
                                .equation = "mk,nk->mn",
                                .module = module,
                                .line = 4});
  graph->value[v].placed = true;
  return v;
}

static void model_on(int ranks)
{
  new_graph(1, (int[]){ranks});
  root = add_module("", "Model", NONE, 1);
  list = add_module("layers", "ModuleList", root, 1);
  for (int l = 0; l < LAYERS; l++) {
    layer[l] = add_module(text("%d", l), "Layer", list, 2);
    weight[l] = given(PARAMETER, text("layers.%d.w", l), parse_shape("4x4"), (struct layout){0});
    graph->value[weight[l]].module = layer[l];
  }
  start = apply(OP_exp, given(BATCH, "x", parse_shape("4x4"), (struct layout){0}), NONE, root, 1);
}

static void model(void)
{
  model_on(1);
}

/* All functions: "layers_forward x3 up: matmul tanh; forward x1 up: exp loop scale". */
static const char *program(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    put(&b, "%s%s x%d %s:", i ? "; " : "", f->name, f->count, f->upward ? "up" : "down");
    for (int k = 0; k < f->nop; k++) put(&b, " %s", op_row[graph->op[f->op[k]].kind].name);
  }
  return b.text;
}

static void becomes(int output, const char *expected)
{
  graph->value[output].is_output = true;
  fold_modules();
  must(!strcmp(program(), expected), "%s\n  not %s", program(), expected);
}

static const struct function *named(const char *name)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (!strcmp(graph->function[i].name, name)) return &graph->function[i];
  give_up("no function %s", name);
  return NULL;
}

static const struct op *op_in(const char *function, int i)
{
  return &graph->op[named(function)->op[i]];
}

/* ------------------------------------------------------------------------------- what is folded */

static void equal_layers(const void *with)
{
  (void)with;
  model();
  int x = start, made[LAYERS][2];
  for (int l = 0; l < LAYERS; l++) {
    made[l][0] = multiply(x, weight[l], layer[l]);
    x = made[l][1] = apply(OP_tanh, made[l][0], NONE, layer[l], 1);
  }
  int y = apply(OP_scale, x, NONE, root, 2), z = apply(OP_add, y, made[1][0], root, 1);
  becomes(z, "layers_forward x3 up: matmul tanh; forward x1 up: exp loop scale add");
  for (int l = 0; l < LAYERS; l++) {
    must(in_loop(weight[l])->stack == weight[0] && in_loop(weight[l])->index == l, "weights");
    for (int k = 0; k < 2; k++)
      must(in_loop(made[l][k])->stack == made[0][k] && in_loop(made[l][k])->index == l, "values");
  }
  const struct op *product = op_in("layers_forward", 0);
  const struct in_loop *carried = in_loop(product->in[0]);
  must(carried->step == -1 && carried->stack == made[0][1] && carried->initial == start,
       "the layer before is not carried");
  must(product->in[1] == weight[0] && product->out == made[0][0], "the body is not module 0's");
  must(op_in("layers_forward", 1)->in[0] == made[0][0], "the body reads another");
  must(graph->function[op_in("forward", 1)->function].count == LAYERS, "the loop calls another");
  must(op_in("forward", 2)->in[0] == made[2][1], "after the loop not the last is read");
  must(op_in("forward", 3)->in[1] == made[1][0], "after the loop another is read");
}

static void from_outside(const void *with)
{
  (void)with;
  model();
  int shared = given(PARAMETER, "shared", parse_shape("4x4"), (struct layout){0}), x = start;
  graph->value[shared].module = root;
  for (int l = 0; l < LAYERS; l++)
    x = apply(OP_add, multiply(x, shared, layer[l]), start, layer[l], 1);
  x = apply(OP_neg, x, NONE, root, 1);
  becomes(x, "layers_forward x3 up: matmul add; forward x1 up: exp loop neg");
  must(op_in("layers_forward", 0)->in[1] == shared, "the shared weight is lost");
  must(op_in("layers_forward", 1)->in[1] == start, "the value from outside is lost");
}

/* From the last layer to the first, reading what the forward's loop has made. */
static void downward(const void *with)
{
  (void)with;
  model();
  int x = start, made[LAYERS];
  for (int l = 0; l < LAYERS; l++) x = made[l] = multiply(x, weight[l], layer[l]);
  x = apply(OP_neg, x, NONE, root, 1);
  for (int l = LAYERS; l-- > 0;) x = apply(OP_mul, x, made[l], layer[l], 1);
  x = apply(OP_neg, x, NONE, root, 1);
  for (int i = graph->norder - LAYERS - 1; i < graph->norder; i++)
    graph->op[graph->order[i]].phase = BACKWARD;
  becomes(x, "layers_forward x3 up: matmul; forward x1 up: exp loop neg; "
             "layers_backward x3 down: mul; backward x1 up: loop neg");
  const struct op *op = op_in("layers_backward", 0);
  must(in_loop(op->in[0])->step == 1 && in_loop(op->in[1])->stack == made[0], "other inputs");
}

static void two_walks(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int again = 0; again < 2; again++) {
    for (int l = 0; l < LAYERS; l++) x = multiply(x, weight[l], layer[l]);
    x = apply(OP_neg, x, NONE, root, 1);
  }
  becomes(x, "layers_forward x3 up: matmul; layers_forward_2 x3 up: matmul; "
             "forward x1 up: exp loop neg loop neg");
}

/* Two values of one operation are two stacks. */
static void several_outputs(const void *with)
{
  (void)with;
  model();
  static struct custom two_values = {.name = "pair", .rule = "ab->ab,a 1", .linear = ""};
  graph->custom = &two_values;
  int x = start, made[LAYERS];
  for (int l = 0; l < LAYERS; l++) {
    made[l] = apply(OP_custom, x, NONE, layer[l], 1);
    graph->value[made[l] + 1].placed = true;
    x = apply(OP_sub, made[l], made[l] + 1, layer[l], 1);
  }
  x = apply(OP_neg, x, NONE, root, 1);
  for (int l = LAYERS; l-- > 0;) x = apply(OP_mul, x, made[l] + 1, layer[l], 1);
  x = apply(OP_neg, x, NONE, root, 1);
  for (int i = graph->norder - LAYERS - 1; i < graph->norder; i++)
    graph->op[graph->order[i]].phase = BACKWARD;
  becomes(x, "layers_forward x3 up: custom sub; forward x1 up: exp loop neg; "
             "layers_backward x3 down: mul; backward x1 up: loop neg");
  for (int l = 0; l < LAYERS; l++)
    for (int k = 0; k < 2; k++)
      must(in_loop(made[l] + k)->stack == made[0] + k && in_loop(made[l] + k)->index == l,
           "the outputs of layer %d are stacks %d and %d", l, in_loop(made[l])->stack,
           in_loop(made[l] + 1)->stack);
  const struct op *sub = op_in("layers_forward", 1);
  must(sub->in[0] == made[0] && sub->in[1] == made[0] + 1, "the body reads another output");
  must(op_in("layers_backward", 0)->in[1] == made[0] + 1, "the backward reads another output");
}

/* An operation lives while anything needs one of its outputs. */
static void one_output_is_needed(const void *with)
{
  (void)with;
  model();
  static struct custom two_values = {.name = "pair", .rule = "ab->ab,a 1", .linear = ""};
  graph->custom = &two_values;
  int second = apply(OP_custom, start, NONE, root, 1) + 1,
      dead = apply(OP_custom, start, NONE, root, 1);
  graph->value[second].placed = true;
  apply(OP_neg, dead + 1, NONE, root, 1);
  becomes(apply(OP_neg, second, NONE, root, 1), "forward x1 up: exp custom neg");
}

/* Streams that grow by as much from each layer to the next. */
static int drop(int x, int64_t stream, int module)
{
  int v = apply(OP_dropout, x, NONE, module, 0.5);
  graph->op[graph->value[v].op].number[0] = stream;
  return v;
}

static void growing_streams(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) x = drop(drop(x, 5 + 2 * l, layer[l]), 20 - 3 * l, layer[l]);
  becomes(apply(OP_neg, x, NONE, root, 1),
          "layers_forward x3 up: dropout dropout; forward x1 up: exp loop neg");
  for (int k = 0; k < 2; k++) {
    const struct op *op = op_in("layers_forward", k);
    must(op->number[0] == (k ? 20 : 5) && op->stream_growth == (k ? -3 : 2),
         "stream %d and %d more for each module", (int)op->number[0], (int)op->stream_growth);
  }
}

/* The same mask in every layer. */
static void equal_streams(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) x = drop(x, 4, layer[l]);
  becomes(apply(OP_neg, x, NONE, root, 1),
          "layers_forward x3 up: dropout; forward x1 up: exp loop neg");
  must(op_in("layers_forward", 0)->stream_growth == 0, "the stream grows");
}

static void uneven_streams(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) x = drop(x, l == 2 ? 3 : l, layer[l]);
  becomes(apply(OP_neg, x, NONE, root, 1), "forward x1 up: exp dropout dropout dropout neg");
}

/* What the last module does beyond the others stands behind the loop. */
static void more_in_the_last(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) x = multiply(x, weight[l], layer[l]);
  x = apply(OP_tanh, x, NONE, layer[LAYERS - 1], 1);
  becomes(apply(OP_neg, x, NONE, root, 1),
          "layers_forward x3 up: matmul; forward x1 up: exp loop tanh neg");
}

/* What one loop has by the layer's number no other has by that of a module within the layer. */
static void lists_in_lists(const void *with)
{
  (void)with;
  model();
  int cell[LAYERS][2], w[LAYERS][2], x = start;
  for (int l = 0; l < LAYERS; l++) {
    int inner = add_module("inner", "ModuleList", layer[l], 2);
    for (int i = 0; i < 2; i++) {
      cell[l][i] = add_module(text("%d", i), "Cell", inner, 3);
      w[l][i] = given(PARAMETER, text("layers.%d.inner.%d.w", l, i), parse_shape("4x4"),
                      (struct layout){0});
      graph->value[w[l][i]].module = cell[l][i];
      x = multiply(x, w[l][i], cell[l][i]);
    }
  }
  x = apply(OP_neg, x, NONE, root, 1);
  for (int i = 0; i < 2; i++) x = multiply(x, w[1][i], cell[1][i]);
  x = apply(OP_neg, x, NONE, root, 1);
  for (int i = graph->norder - 3; i < graph->norder; i++)
    graph->op[graph->order[i]].phase = BACKWARD;
  becomes(x, "layers_forward x3 up: matmul matmul; forward x1 up: exp loop neg; "
             "backward x1 up: matmul matmul neg");
}

/* Modules whose parameters are the next one's are a loop, also behind one that has others. */
static void run_of_modules(const void *with)
{
  (void)with;
  model();
  int more = given(PARAMETER, "layers.0.b", parse_shape("4"), (struct layout){0}), x = start;
  graph->value[more].module = layer[0];
  for (int l = 0; l < LAYERS; l++) {
    x = multiply(x, weight[l], layer[l]);
    if (l == 0) x = apply(OP_add, x, more, layer[0], 1);
  }
  becomes(apply(OP_neg, x, NONE, root, 1),
          "layers_forward x2 up: matmul; forward x1 up: exp matmul add loop neg");
  must(in_loop(weight[2])->stack == weight[1] && in_loop(weight[2])->index == 1,
       "the second module of the run is not its stack's second");
}

static void test_what_is_folded(void **state)
{
  (void)state;
  passes(equal_layers, NULL);
  passes(from_outside, NULL);
  passes(downward, NULL);
  passes(two_walks, NULL);
  passes(several_outputs, NULL);
  passes(growing_streams, NULL);
  passes(equal_streams, NULL);
  passes(more_in_the_last, NULL);
  passes(lists_in_lists, NULL);
  passes(run_of_modules, NULL);
}

/* ----------------------------------------------------------------------------- what stays apart */

enum difference {
  NO_DIFFERENCE,
  KIND,
  SCALAR,
  DIMS,
  LINE,
  EQUATION,
  LAYOUT,
  OUTPUT,
  TIED,
  OF_FIRST,
  FURTHER_BACK,
  LENGTH,
  NUMBER,
  TYPE,
  CONSTANT,
  CUSTOM,
  DIFFERENCES
};

static void unlike_layers(const void *with)
{
  enum difference what = *(const enum difference *)with;
  model_on(2);
  int x = start, first = NONE, before = start;
  for (int l = 0; l < LAYERS; l++) {
    bool odd = l == 1;
    int w = what == TIED ? weight[0] : weight[l], into = x;
    if (what == LAYOUT && odd) graph->value[w].layout.on[0] = S(0);
    x = multiply(what == FURTHER_BACK && l == 2 ? before : x, w, layer[l]);
    if (what == EQUATION && odd) graph->op[graph->value[x].op].equation = "mk,kn->mn";
    if (l == 0) first = x;
    x = apply(what == KIND && odd ? OP_neg : OP_scale, x, NONE, layer[l],
              what == SCALAR && odd ? 2 : 3);
    int mean = append_op((struct op){.kind = OP_sum,
                                     .nin = 1,
                                     .in = {x},
                                     .dims = what == DIMS && odd ? 1 : 2,
                                     .keepdim = true,
                                     .scalar = 1,
                                     .module = layer[l],
                                     .line = 5});
    graph->value[mean].placed = true;
    if (what == DIMS) graph->value[mean].shape = parse_shape("4x4");
    x = apply(OP_sub, x, mean, layer[l], 1);
    if (what == LINE && odd) graph->op[graph->value[x].op].line = 6;
    if (what == OUTPUT && odd) graph->value[x].is_output = true;
    if (what == OF_FIRST) x = apply(OP_add, x, first, layer[l], 1);
    struct op *last = &graph->op[graph->value[x].op];
    if (what == NUMBER && odd) last->number[MAX_NUMBERS - 1] = 1;
    if (what == TYPE && odd) last->type = I32;
    if (what == CONSTANT && odd) last->constant = true;
    if (what == CUSTOM && odd) last->custom = 1;
    if (what == LENGTH && odd) x = apply(OP_exp, x, NONE, layer[l], 1);
    before = into;
  }
  x = apply(OP_neg, x, NONE, root, 1);
  graph->value[x].is_output = true;
  fold_modules();
  int expected = what == NO_DIFFERENCE ? 2 : 1;
  must(graph->nfunction == expected, "difference %d: %s", (int)what, program());
}

/* The second walk reads in each layer what the first layer made in the first walk. */
static void back_to_the_first(const void *with)
{
  (void)with;
  model();
  int x = start, first = NONE;
  for (int l = 0; l < LAYERS; l++) {
    x = multiply(x, weight[l], layer[l]);
    if (l == 0) first = x;
  }
  x = apply(OP_neg, x, NONE, root, 1);
  for (int l = 0; l < LAYERS; l++) x = apply(OP_add, x, first, layer[l], 1);
  x = apply(OP_neg, x, NONE, root, 1);
  becomes(x, "layers_forward x3 up: matmul; forward x1 up: exp loop neg add add add neg");
}

/* The last layer's value is written as an output. */
static void output_at_the_end(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) x = multiply(x, weight[l], layer[l]);
  becomes(x, "forward x1 up: exp matmul matmul matmul");
}

/* Layers whose parameters differ are no array of structs, whatever is done with them. */
static void unlike_parameters(const void *with)
{
  (void)with;
  model();
  int more = given(PARAMETER, "layers.1.b", parse_shape("4"), (struct layout){0}), x = start;
  graph->value[more].module = layer[1];
  for (int l = 0; l < LAYERS; l++) x = multiply(x, weight[l], layer[l]);
  x = apply(OP_add, x, more, root, 1);
  becomes(x, "forward x1 up: exp matmul matmul matmul add");
}

static void other_names(const void *with)
{
  (void)with;
  model();
  int x = start;
  graph->module[layer[2]].name = "last";
  for (int l = 0; l < LAYERS; l++) x = multiply(x, weight[l], layer[l]);
  becomes(apply(OP_neg, x, NONE, root, 1), "forward x1 up: exp matmul matmul matmul neg");
}

static void interrupted(const void *with)
{
  (void)with;
  model();
  int x = start;
  for (int l = 0; l < LAYERS; l++) {
    x = multiply(x, weight[l], layer[l]);
    if (l == 1) x = apply(OP_neg, x, NONE, root, 1);
  }
  becomes(apply(OP_neg, x, NONE, root, 1), "forward x1 up: exp matmul matmul neg matmul neg");
}

static void test_what_stays_apart(void **state)
{
  (void)state;
  for (enum difference what = NO_DIFFERENCE; what < DIFFERENCES; what++)
    passes(unlike_layers, &what);
  passes(unlike_parameters, NULL);
  passes(back_to_the_first, NULL);
  passes(output_at_the_end, NULL);
  passes(other_names, NULL);
  passes(interrupted, NULL);
  passes(uneven_streams, NULL);
}

/* -------------------------------------------------------------------------- phases and the dead */

static void phases(const void *with)
{
  (void)with;
  model();
  int a = apply(OP_neg, start, NONE, root, 1), b = apply(OP_tanh, a, NONE, root, 1);
  graph->op[graph->value[b].op].phase = BACKWARD;
  append_update((struct op){
      .kind = OP_update, .nin = 2, .in = {weight[0], b}, .module = NONE, .phase = UPDATE});
  becomes(a, "forward x1 up: exp neg; backward x1 up: tanh; update x1 up: update");
}

/* What neither the loss, nor an output, nor an update needs is left out; the rest keeps its
   order. */
static void the_dead(const void *with)
{
  (void)with;
  model();
  int output = apply(OP_neg, start, NONE, root, 1), dead = apply(OP_tanh, start, NONE, root, 1);
  apply(OP_sigmoid, dead, NONE, root, 1);
  int used = apply(OP_silu, start, NONE, root, 1);
  graph->loss = apply(OP_square, start, NONE, root, 1);
  append_update((struct op){
      .kind = OP_update, .nin = 2, .in = {weight[0], used}, .module = NONE, .phase = UPDATE});
  becomes(output, "forward x1 up: exp neg silu square; update x1 up: update");
}

static void test_phases_and_the_dead(void **state)
{
  (void)state;
  passes(phases, NULL);
  passes(the_dead, NULL);
  passes(one_output_is_needed, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_folded),
      cmocka_unit_test(test_what_stays_apart),
      cmocka_unit_test(test_phases_and_the_dead),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
