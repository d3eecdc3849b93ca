/* The dim order of values in memory: which packings are removed, which stay, and why; that equal
   modules get equal orders; and a minimum cut against every possible cut. */
#include "check/check.h"
#include "unit.h"

/* ------------------------------------------------------------------------ programs made by hand */

enum { RANKS = 2, B = 4, T = 6, W = 32, H = 64 }; /* batch, sequence, width, hidden */

static int here; /* the module in which operations are added */

static void new_program(void)
{
  new_graph(1, (int[]){RANKS});
  here = NONE;
}

/* Adds an operation that leaves its value so. */
static int step(struct op op, const char *layout)
{
  op.module = here;
  op.line = 1;
  op.group = add_group(1);
  int out = append_op(op);
  graph->value[out].layout = parse_layout(layout);
  graph->value[out].placed = true;
  return out;
}

static struct shape sizes(int a, int b, int c)
{
  return (struct shape){3, {a, b, c}};
}

static int input(int a, int b, int c, const char *layout)
{
  return given(BATCH, "x", sizes(a, b, c), parse_layout(layout));
}

static int weight(int rows, int columns, const char *layout)
{
  struct shape s = {2, {rows, columns}};
  const char *path = here == NONE ? "" : graph->module[here].path;
  int w = given(PARAMETER, text("%s.w%dx%d", path, rows, columns), s, parse_layout(layout));
  graph->value[w].module = here;
  return w;
}

static int one(enum op_kind kind, int a, const char *layout)
{
  return step((struct op){.kind = kind, .nin = 1, .in = {a}, .scalar = 1}, layout);
}

static int two(enum op_kind kind, int a, int b, const char *layout)
{
  return step((struct op){.kind = kind, .nin = 2, .in = {a, b}, .scalar = 1}, layout);
}

static int product(const char *equation, int a, int b, const char *layout)
{
  return step((struct op){.kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = equation}, layout);
}

static int by(enum op_kind kind, const char *equation, int a, const char *layout)
{
  return step((struct op){.kind = kind, .nin = 1, .in = {a}, .equation = equation}, layout);
}

static int packing(enum op_kind kind, int a, int dim, const char *layout)
{
  struct layout parts = {{S(dim)}};
  return step((struct op){.kind = kind, .nin = 1, .in = {a}, .dim = dim, .to = parts}, layout);
}

static int gather(int a, int dim)
{
  a = step((struct op){.kind = OP_all_gather, .nin = 1, .in = {a}, .dim = dim}, "R");
  return packing(OP_unpack, a, dim, "R");
}

static int scatter(int a, int dim)
{
  struct op op = {.kind = OP_reduce_scatter, .nin = 1, .dim = dim};
  op.in[0] = packing(OP_pack, a, dim, "P");
  return step(op, text("S(%d)", dim));
}

static int all_to_all(int a, int from, int to)
{
  struct op op = {.kind = OP_all_to_all, .nin = 1, .dim = from, .dim_to = to};
  op.in[0] = packing(OP_pack, a, to, text("S(%d)", from));
  return packing(OP_unpack, step(op, text("S(%d)", to)), from, text("S(%d)", to));
}

/* "relu.1 all_gather.1 permute.0213": the program's operations and how what they make lies, where
   that is not as it is written: which dimension is outermost, or the order of all. */
static const char *program(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    const struct value *v = &graph->value[op->out];
    int first = dimension_at(op->out, 0);
    put(&b, "%s%s", i ? " " : "", op_name(op));
    if (v->order) put(&b, ".%d", first);
    for (int at = 1; v->order != moved_to_front(first, v->shape.ndim) && at < v->shape.ndim; at++)
      put(&b, "%d", dimension_at(op->out, at));
  }
  return b.text;
}

static int packings(void)
{
  int n = 0;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    n += op->kind == OP_pack || op->kind == OP_unpack;
  }
  return n;
}

static void assign_and_check(void)
{
  assign_dim_order();
  check(PASS_ASSIGN_DIM_ORDER);
}

static void becomes(const char *expected)
{
  assign_and_check();
  must(!strcmp(program(), expected), "the program is\n  %s\nnot\n  %s", program(), expected);
}

/* The value's elements are reduced to one number, which is written out. */
static void use(int value)
{
  const struct value *v = &graph->value[value];
  bool whole = v->layout.on[0].kind == REPLICATE;
  struct op op = {.kind = OP_sum, .nin = 1, .in = {value}, .scalar = 1};
  op.dims = (1u << v->shape.ndim) - 1;
  int out = step(op, whole ? "R" : "P");
  if (!whole) out = one(OP_all_reduce, out, "R");
  graph->value[out].is_output = true;
}

/* --------------------------------------------------------------------------- what need not stay */

/* Between the norms and within: x is cut along the sequence, hidden units are cut inside. */
static int mlp(int x)
{
  int up = product("abk,nk->abn", gather(x, 1), weight(H, W, "S(0)"), "S(2)");
  int down = product("abk,nk->abn", one(OP_tanh, up, "S(2)"), weight(W, H, "S(1)"), "P");
  return scatter(down, 1);
}

static void check_mlp(const void *with)
{
  (void)with;
  new_program();
  int x = one(OP_relu, input(B, T, W, "S(1)"), "S(1)");
  use(two(OP_add, x, mlp(x), "S(1)"));
  becomes("relu.1 all_gather.1 matmul.1 tanh.1 matmul.1 reduce_scatter.1 add.1 sum all_reduce");
}

static void test_an_mlp_cut_along_the_sequence_packs_nothing(void **state)
{
  (void)state;
  passes(check_mlp, NULL);
}

/* Its backward: the gathers' gradients are scattered, and weights' gradients take both. */
static void check_backward(const void *with)
{
  (void)with;
  new_program();
  int x = one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), w = weight(H, W, "S(0)");
  int whole = gather(x, 1), y = product("abk,nk->abn", whole, w, "S(2)");
  int g = one(OP_tanh, y, "S(2)"), dw = product("abn,abk->nk", g, whole, "S(0)");
  graph->value[dw].role = GRADIENT;
  graph->value[dw].of = w;
  use(scatter(product("abn,nk->abk", g, w, "P"), 1));
  becomes("relu.1 all_gather.1 matmul.1 tanh.1 matmul matmul.1 reduce_scatter.1 sum all_reduce");
}

static void test_gradients_of_weights_take_both_operands_so(void **state)
{
  (void)state;
  passes(check_backward, NULL);
}

static int heads(int x)
{
  int wide = product("abk,nk->abn", x, weight(W, W, "S(0)"), "S(2)");
  return by(OP_permute, "abcd->acbd", by(OP_view, "a4b6(c8d4)->a4b6c8d4", wide, "S(2)"), "S(1)");
}

/* Attention has a kernel of its own, which takes its inputs as they are written; what comes before
   turns them about anyway, or is a view. */
static void check_attention(const void *with)
{
  (void)with;
  new_program();
  int x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  int q = one(OP_tanh, heads(x), "S(1)"), k = heads(x), v = heads(x);
  struct op op = {.kind = OP_attention, .nin = 3, .in = {q, k, v}, .scalar = 0.5};
  int y = step(op, "S(1)");
  graph->value[y + 1].layout = parse_layout("S(1)");
  graph->value[y + 1].placed = true;
  y = by(OP_view, "a4b6c8d4->a4b6(c8d4)", by(OP_permute, "acbd->abcd", y, "S(2)"), "S(2)");
  use(scatter(product("abk,nk->abn", y, weight(W, W, "S(1)"), "P"), 1));
  becomes(
      "relu.1 all_gather.1 matmul.1 view.1 view.2 tanh.2 matmul.1 view.1 view.2 matmul.1 view.1 "
      "view.2 attention.2 view.1 view.1 matmul.1 reduce_scatter.1 sum all_reduce");
}

/* Without a collective too: heads are where the products leave them. */
static void check_plain_attention(const void *with)
{
  (void)with;
  new_program();
  int x = one(OP_relu, input(B, T, W, "R"), "R");
  int q = one(OP_tanh, heads(x), "S(1)"), k = heads(x), v = heads(x);
  struct op op = {.kind = OP_attention, .nin = 3, .in = {q, k, v}, .scalar = 0.5};
  int y = step(op, "S(1)");
  graph->value[y + 1].layout = parse_layout("S(1)");
  graph->value[y + 1].placed = true;
  use(by(OP_view, "a4b6c8d4->a4b6(c8d4)", by(OP_permute, "acbd->abcd", y, "S(2)"), "S(2)"));
  becomes("relu matmul view view.0213 tanh.0213 matmul view view.0213 matmul view view.0213 "
          "attention.0213 view view sum all_reduce");
}

static void test_attention_takes_heads_from_wherever_they_lie(void **state)
{
  (void)state;
  passes(check_attention, NULL);
  passes(check_plain_attention, NULL);
}

/* Along the last dimension: the product is written transposed. */
static void check_last_dimension(const void *with)
{
  (void)with;
  new_program();
  int x = one(OP_relu, input(B, T, W, "R"), "R");
  int y = gather(product("abk,nk->abn", x, weight(H, W, "S(0)"), "S(2)"), 2);
  use(product("abk,nk->abn", y, weight(W, H, "S(0)"), "S(2)"));
  becomes("relu matmul.2 all_gather.2 matmul sum all_reduce");
}

static void test_a_product_may_be_written_transposed(void **state)
{
  (void)state;
  passes(check_last_dimension, NULL);
}

/* Where both dimensions would have to be outermost one of the two packings is left. */
static void check_all_to_all(const void *with)
{
  (void)with;
  new_program();
  int x = one(OP_relu, input(B, T, W, "S(1)"), "S(1)");
  use(one(OP_exp, all_to_all(one(OP_tanh, all_to_all(x, 1, 2), "S(2)"), 2, 1), "S(1)"));
  becomes("relu.1 pack.1 all_to_all.1 tanh.1 all_to_all.1 unpack.1 exp.1 sum all_reduce");
}

static void test_an_all_to_all_packs_once(void **state)
{
  (void)state;
  passes(check_all_to_all, NULL);
}

/* ----------------------------------------------------------------------------------- what stays */

static void check_roles(const void *with)
{
  (void)with;
  new_program();
  int x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  graph->value[x].is_output = true;
  becomes("relu all_gather unpack");

  new_program();
  use(product("abk,nk->abn", input(B, T, W, "R"), gather(weight(H, W, "S(1)"), 1), "R"));
  becomes("all_gather unpack matmul sum");
}

static void test_what_leaves_the_step_is_as_it_is_written(void **state)
{
  (void)state;
  passes(check_roles, NULL);
}

static void check_kernels_of_their_own(const void *with)
{
  (void)with;
  new_program();
  int x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  use(step((struct op){.kind = OP_cumsum, .nin = 1, .in = {x}, .dims = 2}, "R"));
  becomes("relu all_gather unpack cumsum sum");

  new_program();
  x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  use(step((struct op){.kind = OP_cat, .nin = 2, .in = {x, x}, .dims = 2}, "R"));
  becomes("relu all_gather unpack cat sum");

  new_program();
}

static void test_what_knows_no_other_order_gets_none(void **state)
{
  (void)state;
  passes(check_kernels_of_their_own, NULL);
}

/* A view that merges batch and sequence, and a product of many matrices that would fall apart. */
static void check_conflicts(const void *with)
{
  (void)with;
  new_program();
  int x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  use(by(OP_view, "a4b6c32->(a4b6)c32", x, "R"));
  becomes("relu all_gather unpack view sum");

  new_program();
  x = gather(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
  int plain = input(B, T, H, "R");
  int scores = product("abk,abn->nk", x, plain, "R");
  use(scores);
  becomes("relu all_gather unpack matmul sum");
}

static void test_what_has_to_agree_with_a_plain_value_is_plain(void **state)
{
  (void)state;
  passes(check_conflicts, NULL);
}

/* One value, packed along two dimensions: one of them can be outermost. */
static void check_two_dimensions(const void *with)
{
  (void)with;
  new_program();
  int y = one(OP_neg, input(B, T, W, "P"), "P");
  use(scatter(y, 1));
  use(scatter(y, 2));
  becomes("neg.1 reduce_scatter.1 sum all_reduce pack.1 reduce_scatter.1 sum all_reduce");
}

static void test_one_dimension_is_outermost_at_a_time(void **state)
{
  (void)state;
  passes(check_two_dimensions, NULL);
}

/* Where many operands that are plain would be read across, a packing is cheaper. */
static void check_costs(const void *with)
{
  (void)with;
  new_program();
  int x = gather(one(OP_relu, input(B, T, 2, "S(1)"), "S(1)"), 1), sum = x;
  for (int i = 0; i < 4; i++) sum = two(OP_add, sum, input(B, T, 2, "R"), "R");
  use(sum);
  becomes("relu all_gather unpack add add add add sum");
}

static void test_short_rows_are_not_read_across(void **state)
{
  (void)state;
  passes(check_costs, NULL);
}

/* The batch is an input: the copy goes into the kernel before the gather. Behind it a copy is left,
   which is one kernel and joins the next. */
static void check_copies(const void *with)
{
  (void)with;
  new_program();
  int x = mlp(one(OP_relu, input(B, T, W, "S(1)"), "S(1)")), y = gather(x, 1);
  use(step((struct op){.kind = OP_cumsum, .nin = 1, .in = {one(OP_exp, y, "R")}, .dims = 2}, "R"));
  becomes(
      "relu.1 all_gather.1 matmul.1 tanh.1 matmul.1 reduce_scatter.1 all_gather.1 exp cumsum sum");

  new_program();
  y = gather(mlp(one(OP_relu, input(B, T, W, "S(1)"), "S(1)")), 1);
  use(step((struct op){.kind = OP_cumsum, .nin = 1, .in = {y}, .dims = 2}, "R"));
  becomes(
      "relu.1 all_gather.1 matmul.1 tanh.1 matmul.1 reduce_scatter.1 all_gather.1 reorder cumsum "
      "sum");
}

static void test_what_copies_are_left_are_kernels(void **state)
{
  (void)state;
  passes(check_copies, NULL);
}

/* -------------------------------------------------------------------------------- equal modules */

enum { LAYERS = 3 };

/* Layers over x, each with what the one before makes. */
static void check_layers(int x, int front)
{
  int root = add_module("", "Model", NONE, 1), list = add_module("layers", "List", root, 1);
  int made[LAYERS];
  for (int i = 0; i < LAYERS; i++) {
    here = add_module(text("%d", i), "Layer", list, 1);
    x = made[i] = two(OP_add, x, mlp(one(OP_relu, x, "S(1)")), "S(1)");
  }
  here = root;
  use(x);
  assign_and_check();
  for (int i = 0; i < LAYERS; i++)
    must(dimension_at(made[i], 0) == front, "layer %d makes another order: %s", i, program());
  must(packings() == 0, "packings stay: %s", program());
  outline();
  must(graph->nfunction == 2, "the layers are not folded: %d functions", graph->nfunction);
}

/* The first layer may take what is plain for good. */
static void check_plain_layers(const void *with)
{
  (void)with;
  new_program();
  check_layers(one(OP_slice, input(B, T, W, "R"), "S(1)"), 0);
}

static void check_raised_layers(const void *with)
{
  (void)with;
  new_program();
  check_layers(one(OP_relu, input(B, T, W, "S(1)"), "S(1)"), 1);
}

static void test_equal_modules_are_decided_alike(void **state)
{
  (void)state;
  passes(check_plain_layers, NULL);
  passes(check_raised_layers, NULL);
}

/* ---------------------------------------------------------------------------- many of all kinds */

/* A value of three dimensions, pending or not, of the last few. */
static int recent(const int *made, int n, enum placement_kind kind)
{
  for (int tries = 0; tries < 50; tries++) {
    int v = made[n - 1 - draw_below(n < 5 ? n : 5)];
    if (graph->value[v].layout.on[0].kind == kind) return v;
  }
  return NONE;
}

static int random_step(const int *made, int n)
{
  int whole = recent(made, n, REPLICATE), cut = recent(made, n, SHARD);
  int pending = recent(made, n, PARTIAL);
  int dim = cut == NONE ? 0 : graph->value[cut].layout.on[0].dim;
  const char *layout = text("S(%d)", dim);
  switch (draw_below(11)) {
  case 10:
    return cut == NONE ? NONE : all_to_all(cut, dim, (dim + 1 + draw_below(2)) % 3);
  case 9:
    if (dim != 2) return NONE;
    return product("abk,nk->abn", cut, weight(8, 8, "S(1)"), "P");
  case 0:
    return cut == NONE ? NONE : gather(cut, dim);
  case 1:
    return pending == NONE ? NONE : scatter(pending, draw_below(3));
  case 2:
    return whole == NONE ? NONE : product("abk,nk->abn", whole, weight(8, 8, "S(0)"), "S(2)");
  case 3:
    return whole == NONE ? NONE : by(OP_permute, "abc->bac", whole, "R");
  case 4:
    return whole == NONE ? NONE : by(OP_view, "a8b8c8->c8a8b8", whole, "R");
  case 5:
    if (whole == NONE) return NONE;
    return step((struct op){.kind = OP_cumsum, .nin = 1, .in = {whole}, .dims = 2}, "R");
  case 6:
    return pending == NONE ? NONE : one(OP_all_reduce, pending, "R");
  case 7:
    return cut == NONE ? NONE : two(OP_add, cut, cut, layout);
  default:
    return whole == NONE ? NONE : one(OP_tanh, whole, "R");
  }
}

static void random_program(uint64_t seed)
{
  int made[64], n = 0;
  unit_seed = seed;
  new_program();
  made[n++] = input(8, 8, 8, "R");
  made[n++] = input(8, 8, 8, "S(1)");
  made[n++] = one(OP_neg, input(8, 8, 8, "P"), "P");
  while (n < 40) {
    int v = random_step(made, n);
    if (v != NONE) made[n++] = v;
  }
  for (int i = n - 6; i < n; i++) use(made[i]);
}

static void check_random(const void *with)
{
  int before = 0, after = 0;
  (void)with;
  for (uint64_t seed = 1; seed <= 300; seed++) {
    random_program(seed);
    before += packings();
    int was = packings();
    assign_and_check();
    const char *first = program();
    must(packings() <= was, "more packings than before: %s", first);
    after += packings();
    random_program(seed);
    assign_and_check();
    must(!strcmp(first, program()), "once it is\n  %s\nand once\n  %s", first, program());
  }
  printf("%d of %d packings stay\n", after, before);
  fflush(stdout);
  must(after < before * 3 / 4, "%d of %d packings stay", after, before);
}

static void test_random_programs_get_sound_orders_and_always_the_same(void **state)
{
  (void)state;
  passes(check_random, NULL);
}

/* ----------------------------------------------------------------------- what the check refuses */

static void check_wrong(const void *with)
{
  const char *which = with;
  new_program();
  int plain = input(B, T, W, "R"), x = one(OP_relu, input(B, T, W, "S(1)"), "S(1)");
  int whole = gather(x, 1), y = one(OP_relu, plain, "R");
  int merged = by(OP_view, "a4b6c32->(a4b6)c32", y, "R");
  int sums = step((struct op){.kind = OP_cumsum, .nin = 1, .in = {y}, .dims = 2}, "R");
  use(two(OP_add, whole, sums, "R"));
  use(merged);
  check(PASS_ASSIGN_DIM_ORDER);
  if (!strcmp(which, "gather"))
    graph->value[x].order = moved_to_front(1, graph->value[x].shape.ndim);
  if (!strcmp(which, "unpack"))
    graph->value[whole].order = moved_to_front(1, graph->value[whole].shape.ndim);
  if (!strcmp(which, "kernel"))
    graph->value[sums].order = moved_to_front(2, graph->value[sums].shape.ndim);
  if (!strcmp(which, "view")) graph->value[y].order = moved_to_front(1, graph->value[y].shape.ndim);
  if (!strcmp(which, "batch"))
    graph->value[plain].order = moved_to_front(1, graph->value[plain].shape.ndim);
  check(PASS_ASSIGN_DIM_ORDER);
}

static void test_the_check_knows_what_lies_wrong(void **state)
{
  (void)state;
  static const char *const wrong[] = {"gather", "unpack", "kernel", "view"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refused(check_wrong, wrong[i], -SIGABRT, "assign_dim_order", "orders that it does not take",
            NULL);
  refused(check_wrong, "batch", -SIGABRT, "assign_dim_order", "its dimensions have an order", NULL);
  passes(check_wrong, "nothing");
}

/* ----------------------------------------------------------------------------------- least cuts */

enum { NODES = 7 };

static int64_t price[NODES][NODES], own[NODES];

static int64_t price_of(unsigned near)
{
  int64_t sum = 0;
  for (int i = 0; i < NODES; i++) {
    bool in = near >> i & 1;
    if (in && own[i] > 0) sum += own[i];
    if (!in && own[i] < 0) sum -= own[i];
    for (int j = 0; j < NODES; j++)
      if (in && !(near >> j & 1)) sum += price[i][j];
  }
  return sum;
}

static void check_cuts(const void *with)
{
  (void)with;
  for (int round = 0; round < 2000; round++) {
    graph_open();
    struct cut *c = new_cut();
    for (int i = 0; i < NODES; i++) assert_int_equal(add_node(c), i);
    for (int i = 0; i < NODES; i++) {
      own[i] = draw_below(21) - 10;
      add_own_price(c, i, own[i]);
      for (int j = 0; j < NODES; j++) {
        price[i][j] = i != j && draw_below(3) == 0 ? draw_below(8) : 0;
        add_price(c, i, j, price[i][j]);
      }
    }
    unsigned side = 0, smallest = 0;
    bool *near = near_side(c);
    for (int i = 0; i < NODES; i++) side |= (unsigned)near[i] << i;
    smallest = (1u << NODES) - 1;
    for (unsigned s = 0; s < 1u << NODES; s++) {
      must(price_of(side) <= price_of(s), "%#x costs %" PRId64 ", %#x only %" PRId64, side,
           price_of(side), s, price_of(s));
      if (price_of(s) == price_of(side)) smallest &= s;
    }
    must(side == smallest, "%#x is no larger than %#x has to be", smallest, side);
  }
}

static void test_cuts_are_least(void **state)
{
  (void)state;
  passes(check_cuts, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_mlp_cut_along_the_sequence_packs_nothing),
      cmocka_unit_test(test_gradients_of_weights_take_both_operands_so),
      cmocka_unit_test(test_attention_takes_heads_from_wherever_they_lie),
      cmocka_unit_test(test_a_product_may_be_written_transposed),
      cmocka_unit_test(test_an_all_to_all_packs_once),
      cmocka_unit_test(test_what_leaves_the_step_is_as_it_is_written),
      cmocka_unit_test(test_what_knows_no_other_order_gets_none),
      cmocka_unit_test(test_what_has_to_agree_with_a_plain_value_is_plain),
      cmocka_unit_test(test_one_dimension_is_outermost_at_a_time),
      cmocka_unit_test(test_short_rows_are_not_read_across),
      cmocka_unit_test(test_what_copies_are_left_are_kernels),
      cmocka_unit_test(test_equal_modules_are_decided_alike),
      cmocka_unit_test(test_random_programs_get_sound_orders_and_always_the_same),
      cmocka_unit_test(test_the_check_knows_what_lies_wrong),
      cmocka_unit_test(test_cuts_are_least),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
