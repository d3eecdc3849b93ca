/* What the backward recomputes and what is kept for it: for SwiGLU, a norm, a dropout, for the
   sources of a value's views and casts; that recomputation never keeps more; and layers under
   checkpoints. checkpoint.sh tests that the results are the same bit by bit. */
#include "check/check.h"
#include "unit.h"

static int root, list, here; /* here: the module in which operations are added */

static void new_program(int ranks)
{
  new_graph(1, (int[]){ranks});
  here = root = add_module("", "Model", NONE, 1);
  graph->loss = NONE;
}

static int step(struct op op)
{
  op.module = here;
  op.line = 7;
  return append_op(op);
}

static int one(enum op_kind kind, int a)
{
  return step((struct op){.kind = kind, .nin = 1, .in = {a}, .scalar = 0.5, .type = BF16});
}

static int two(enum op_kind kind, int a, int b)
{
  return step((struct op){.kind = kind, .nin = 2, .in = {a, b}, .scalar = 1});
}

static int calls_named(const char *name, int value)
{
  graph->value[value].name = name;
  return value;
}

static int input(const char *name, const char *shape)
{
  int v = given(BATCH, name, parse_shape(shape), (struct layout){0});
  graph->value[v].module = here;
  return v;
}

static int weight(const char *name, const char *shape, const char *layout)
{
  int v = given(PARAMETER, name, parse_shape(shape), parse_layout(layout));
  graph->value[v].module = here;
  return v;
}

static int product(int x, int w)
{
  return step((struct op){.kind = OP_matmul, .nin = 2, .in = {x, w}, .equation = "mk,nk->mn"});
}

/* x / sqrt(mean(x^2) + 1), its factor a row by the name of "factor". */
static int rms(int x)
{
  int squares = one(OP_square, x);
  int mean = step((struct op){
      .kind = OP_sum, .nin = 1, .in = {squares}, .dims = 2, .keepdim = true, .scalar = 0.125});
  int offset = append_op_shaped(
      (struct op){.kind = OP_full, .scalar = 1, .module = here, .line = 7}, (struct shape){0});
  return two(OP_mul, x, calls_named("factor", one(OP_rsqrt, two(OP_add, mean, offset))));
}

/* Runs the passes up to the one under test, with the sum of the value's squares as the loss. */
static void train(int value)
{
  here = root;
  int squares = one(OP_square, value);
  graph->loss = calls_named(
      "loss", step((struct op){.kind = OP_sum, .nin = 1, .in = {squares}, .dims = 3, .scalar = 1}));
  use_sgd();
  propagate();
  grad();
  optimize();
  redistribute();
}

/* ----------------------------------------------------------------------------- what came of it */

static const char *sorted(const char **name, int n)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < n; i++)
    for (int k = i + 1; k < n; k++)
      if (strcmp(name[i], name[k]) > 0) {
        const char *other = name[i];
        name[i] = name[k];
        name[k] = other;
      }
  for (int i = 0; i < n; i++) put(&b, "%s%s", i ? " " : "", name[i]);
  return b.text;
}

static bool is_forward(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == ACTIVATION && v->op != NONE && graph->op[v->op].phase == FORWARD;
}

/* By value: a value of the forward that an operation of the backward reads. */
static bool *find_kept(void)
{
  bool *kept = alloc((size_t)graph->nvalue);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin && op->phase == BACKWARD; i++)
      kept[op->in[i]] |= is_forward(op->in[i]);
  }
  return kept;
}

static int64_t kept_bytes(void)
{
  const bool *kept = find_kept();
  int64_t bytes = 0;
  for (int v = 0; v < graph->nvalue; v++)
    if (kept[v] && (graph->op[graph->value[v].op].kind != OP_full)) bytes += largest_bytes(v);
  return bytes;
}

/* The names of what is kept, but for numbers, in the order of the alphabet. */
static const char *kept_names(void)
{
  const bool *kept = find_kept();
  const char **name = alloc((size_t)graph->nvalue * sizeof *name);
  int n = 0;
  for (int v = 0; v < graph->nvalue; v++)
    if (kept[v] && graph->op[graph->value[v].op].kind != OP_full) name[n++] = value_name(v);
  return sorted(name, n);
}

/* The operators that are run again, in order. */
static const char *run_again(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (!op->recomputed) continue;
    must(op->phase == BACKWARD, "%s is not in the backward", op_name(op));
    put(&b, "%s%s", b.length ? " " : "", op_row[op->kind].name);
  }
  return b.text;
}

/* Each value is made once, before it is read. */
static void check_cut_order(void)
{
  bool *made = alloc((size_t)graph->nvalue);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin; i++)
      must(made[op->in[i]] || graph->value[op->in[i]].op == NONE, "v%d is read too early",
           op->in[i]);
    for (int k = 0; k < op->nout; k++) {
      must(!made[op->out + k], "v%d is made twice", op->out + k);
      made[op->out + k] = true;
    }
  }
}

static void becomes(int value, const char *kept, const char *again)
{
  train(value);
  int64_t before = kept_bytes();
  recompute();
  check(PASS_RECOMPUTE);
  check_cut_order();
  must(kept_bytes() <= before, "more is kept than before");
  must(!strcmp(kept_names(), kept), "%s are kept, not %s", kept_names(), kept);
  must(!strcmp(run_again(), again), "%s are run again, not %s", run_again(), again);
}

/* ----------------------------------------------------------------------------------- cheap work */

static void swiglu(const void *with)
{
  (void)with;
  new_program(1);
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "R")));
  int w1 = calls_named("w1", product(x, weight("v1", "16x8", "R")));
  int w3 = calls_named("w3", product(x, weight("v3", "16x8", "R")));
  int y = product(two(OP_mul, one(OP_silu, w1), w3), weight("v2", "8x16", "R"));
  becomes(calls_named("y", y), "w1 w3 x y", "silu mul");
}

/* The norm's output is read by a product's backward, and its input by that of the norm. */
static void norm(const void *with)
{
  (void)with;
  new_program(1);
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "R")));
  int n = two(OP_mul, rms(x), weight("scale", "8", "R"));
  becomes(calls_named("y", product(n, weight("w", "4x8", "R"))), "factor x y", "mul mul");
}

/* The mask is drawn again by its counter. */
static void dropout(const void *with)
{
  (void)with;
  new_program(1);
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "R")));
  int d = step((struct op){
      .kind = OP_dropout, .nin = 1, .in = {one(OP_gelu, x)}, .scalar = 0.1, .number = {3}});
  becomes(calls_named("y", product(d, weight("w", "4x8", "R"))), "x y", "gelu dropout");
  for (int i = 0; i < graph->nop; i++)
    must(graph->op[i].kind != OP_dropout || graph->op[i].number[0] == 3, "another stream");
}

/* Parameters cost nothing: what is made of them alone is not kept. */
static void of_parameters(const void *with)
{
  (void)with;
  new_program(1);
  int w = one(OP_tanh, weight("w", "8x8", "R"));
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "R")));
  becomes(calls_named("y", product(x, w)), "x y", "tanh");
}

/* The same bytes either way: nothing is run again. */
static void as_many_bytes(const void *with)
{
  (void)with;
  new_program(1);
  int x = product(input("in", "4x8"), weight("w0", "8x8", "R"));
  int t = calls_named("t", one(OP_scale, x));
  becomes(calls_named("y", product(t, weight("w", "4x8", "R"))), "t y", "");
}

/* A sum of three, of which two are kept anyhow; but the third would have to be kept for it. */
static void not_at_hand(const void *with)
{
  (void)with;
  new_program(1);
  int in = input("in", "4x8");
  int a = calls_named("a", product(in, weight("wa", "8x8", "R")));
  int b = product(in, weight("wb", "8x8", "R"));
  int sum = calls_named("sum", two(OP_add, one(OP_square, a), b));
  becomes(calls_named("y", product(sum, weight("w", "4x8", "R"))), "a sum y", "");
}

/* A collective is not run again: what it leaves is kept, though its input would be smaller. */
static void collectives(const void *with)
{
  (void)with;
  new_program(2);
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "S(0)")));
  int whole = step((struct op){
      .kind = OP_redistribute, .nin = 1, .in = {x}, .asked = 1, .why = "it is asked for"});
  int y = product(one(OP_silu, whole), weight("w", "4x8", "R"));
  becomes(calls_named("y", y), "x y", "silu");
  const bool *kept = find_kept();
  for (int v = 0; v < graph->nvalue; v++)
    must(!kept[v] || graph->value[v].layout.on[0].kind == REPLICATE, "a part of x is kept");
}

/* What is compared with its maximum is not made again. */
static void compared(const void *with)
{
  (void)with;
  new_program(1);
  int x = calls_named("x", product(input("in", "4x8"), weight("w0", "8x8", "R")));
  int y = step((struct op){.kind = OP_amax,
                           .nin = 1,
                           .in = {calls_named("t", one(OP_gelu, x))},
                           .dims = 2,
                           .keepdim = true});
  becomes(calls_named("y", y), "t x y", "");
}

static void test_cheap_work(void **state)
{
  (void)state;
  passes(swiglu, NULL);
  passes(norm, NULL);
  passes(dropout, NULL);
  passes(of_parameters, NULL);
  passes(as_many_bytes, NULL);
  passes(not_at_hand, NULL);
  passes(collectives, NULL);
  passes(compared, NULL);
}

/* --------------------------------------------------------------------------- programs at random */

static int any_of(const int *value, int n)
{
  return value[draw_below(n)];
}

/* Never is more kept than before, every value is made before it is read, and the forward is what it
   was. */
static void at_random(const void *with)
{
  static const enum op_kind unary[] = {OP_silu, OP_tanh, OP_square, OP_exp, OP_scale, OP_gelu};
  static const enum op_kind binary[] = {OP_add, OP_mul, OP_sub, OP_maximum};
  unit_seed = *(const uint64_t *)with;
  new_program(1);
  int value[64], n = 0;
  value[n++] = product(input("in", "8x8"), weight("w0", "8x8", "R"));
  for (int i = 0; i < 30; i++) {
    int kind = draw_below(8), a = any_of(value, n), b = any_of(value, n);
    if (kind == 0)
      value[n++] = product(a, weight(text("w%d", i + 1), "8x8", "R"));
    else if (kind < 4)
      value[n++] = two(binary[draw_below(4)], a, b);
    else
      value[n++] = one(unary[draw_below(6)], a);
  }
  train(two(OP_add, value[n - 1], any_of(value, n)));
  int forward = 0, still = 0;
  for (int at = 0; at < graph->norder; at++)
    forward += graph->op[graph->order[at]].phase == FORWARD;
  int64_t before = kept_bytes();
  recompute();
  check(PASS_RECOMPUTE);
  check_cut_order();
  for (int at = 0; at < graph->norder; at++) still += graph->op[graph->order[at]].phase == FORWARD;
  must(still == forward, "the forward is another");
  must(kept_bytes() <= before, "%" PRId64 " bytes are kept, %" PRId64 " before", kept_bytes(),
       before);
  if (kept_bytes() < before) exit(7);
}

static void test_random_programs(void **state)
{
  (void)state;
  int better = 0;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    struct ending e = run_child(at_random, &seed);
    if (e.status && e.status != 7)
      fail_msg("seed %d ended with %d: %s", (int)seed, e.status, e.said);
    better += e.status == 7;
  }
  print_message("in %d of 200 programs less is kept\n", better);
  assert_true(better > 100);
}

/* ---------------------------------------------------------------------------- under checkpoints */

enum { LAYERS = 3 };

/* Layers of two products, a dropout and a residual. */
static int layers(void)
{
  list = add_module("layers", "ModuleList", root, 2);
  int x = product(input("in", "4x8"), weight("first", "8x8", "R"));
  for (int l = 0; l < LAYERS; l++) {
    here = add_module(text("%d", l), "Layer", list, 3);
    int up = product(x, weight(text("layers.%d.up", l), "16x8", "R"));
    int d = step((struct op){
        .kind = OP_dropout, .nin = 1, .in = {one(OP_silu, up)}, .scalar = 0.1, .number = {l}});
    x = two(OP_add, x, product(d, weight(text("layers.%d.down", l), "8x16", "R")));
    graph->value[x].name = text("layers.%d", l);
  }
  return x;
}

static int count_again(enum op_kind kind)
{
  int n = 0;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    n += op->recomputed && op->kind == kind;
  }
  return n;
}

/* Nothing is kept but what each layer takes; each is run again in its own backward, and no further
   than its backward needs. */
static void checkpoints(const void *with)
{
  (void)with;
  new_program(1);
  plan_options->checkpoint = true;
  train(layers());
  recompute();
  check(PASS_RECOMPUTE);
  check_cut_order();
  must(!strcmp(kept_names(), "layers.0 layers.1 layers.2 matmul"), "%s are kept", kept_names());
  must(count_again(OP_matmul) == LAYERS, "%d products", count_again(OP_matmul));
  must(count_again(OP_add) == 0, "a layer's end is run again");
  int last = LAYERS;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->phase != BACKWARD || graph->module[op->module].parent != list) continue;
    int layer = atoi(graph->module[op->module].name);
    must(layer <= last, "layer %d is run after %d", layer, last);
    last = layer;
    if (op->recomputed && op->kind == OP_dropout)
      must(op->number[0] == layer, "layer %d draws from %d", layer, (int)op->number[0]);
  }
}

/* The layers stay equal: a loop for their forward, and one for their backward. */
static void folded(const void *with)
{
  new_program(1);
  plan_options->checkpoint = *(const bool *)with;
  train(layers());
  recompute();
  outline();
  int loops = 0;
  for (int i = 0; i < graph->nfunction; i++)
    loops += graph->function[i].count == LAYERS && graph->function[i].phase != UPDATE;
  must(loops == 2, "%d loops", loops);
}

static void without_a_list(const void *with)
{
  (void)with;
  new_program(1);
  plan_options->checkpoint = true;
  train(product(input("in", "4x8"), weight("w", "8x8", "R")));
  recompute();
}

static void test_checkpoints(void **state)
{
  (void)state;
  passes(checkpoints, NULL);
  passes(folded, &(bool){false});
  passes(folded, &(bool){true});
  refused(without_a_list, NULL, 1, "nn.ModuleList", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cheap_work),
      cmocka_unit_test(test_random_programs),
      cmocka_unit_test(test_checkpoints),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
