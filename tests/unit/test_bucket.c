/* The bytes and the size of a bucket. tests/passes/NAME.bucket.in test which sums share a bucket,
   and its place in the program. */
#include "function_passes/function_passes.h"
#include "functions.h"

static int parameter(const char *shape, const char *layout)
{
  return given(PARAMETER, "w", parse_shape(shape), parse_layout(layout));
}

/* A gradient that is pending, computed from something. */
static int made_of(int value)
{
  return run_in_phase((struct op){.kind = OP_neg, .nin = 1, .in = {value}, .phase = BACKWARD});
}

/* The all-reduce of it, over these dimensions of the mesh. */
static int sum_into(int of, int pending, unsigned dims)
{
  int out = run_in_phase((struct op){.kind = OP_all_reduce,
                                     .nin = 1,
                                     .in = {pending},
                                     .phase = BACKWARD,
                                     .group = add_group(dims)});
  graph->value[out].role = GRADIENT;
  graph->value[out].of = of;
  return graph->value[out].op;
}

/* The all-reduce of a gradient of the parameter. */
static int sum_gradient(int of, unsigned dims)
{
  int x = given(BATCH, "x", graph->value[of].shape, graph->value[of].layout);
  return sum_into(of, made_of(x), dims);
}

/* The i-th operation, but for those that compute pending gradients; NONE if there is none. */
static int at(int i)
{
  const struct function *f = function_of_phase(BACKWARD);
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind != OP_neg && i-- == 0) return f->op[k];
  return NONE;
}

static void are(int count)
{
  assert_int_not_equal(at(count - 1), NONE);
  assert_int_equal(at(count), NONE);
}

/* The i-th operation is a bucket of these, in this order, NONE last. */
static void is_bucket(int i, const int *members)
{
  const struct op *op = &graph->op[at(i)];
  int n = 0;
  while (members[n] != NONE) n++;
  assert_int_equal(op->kind, OP_all_reduce);
  assert_int_equal(op->nbody, n);
  for (int k = 0; k < n; k++) assert_int_equal(op->body[k], members[k]);
}

static void is_op(int i, int op)
{
  assert_int_equal(at(i), op);
}

/* What a bucket where its values lie reads and writes, and how much. */
static void test_bytes_in_place(void **state)
{
  (void)state;
  new_graph(1, (int[]){2});
  int a = parameter("4x3", "R"), b = parameter("5", "R"), c = parameter("2x2", "R");
  int of_a = sum_gradient(a, 1), list[64];
  sum_gradient(b, 1);
  sum_gradient(c, 1);
  bucket();
  int64_t give[2], get[2];
  const struct op *op = &graph->op[at(0)];
  collective_counts(op, 0, give, get);
  assert_int_equal(give[0], 12 + 5 + 4);
  assert_int_equal(get[1], 12 + 5 + 4);
  assert_int_equal(collective_bytes(op, 0), 4 * (12 + 5 + 4));
  assert_int_equal(op_reads(op, list), 3);
  assert_int_equal(list[0], graph->op[of_a].in[0]);
  assert_int_equal(op_writes(op, list), 0);
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].stored = true;
  assert_int_equal(op_writes(op, list), 3);
}

/* So too of one that is packed: a rank's parts of its values, and the buffer. */
static void test_bytes_packed(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 3});
  sum_gradient(parameter("7x3", "R S(0)"), 1);
  parameter("4", "R R");
  sum_gradient(parameter("5", "R R"), 1);
  bucket();
  int64_t give[2], get[2];
  const struct op *op = &graph->op[at(0)];
  assert_true(op->packed);
  assert_int_equal(elements(graph->value[op->buffer].shape), 3 * 3 + 5);
  collective_counts(op, 2, give, get);
  assert_int_equal(give[0], 1 * 3 + 5);
  int list[64], n = op_writes(op, list);
  assert_int_equal(list[n - 1], op->buffer);
}

/* A rank's parts of them are what is counted. */
static void test_parts_are_counted(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 3});
  sum_gradient(parameter("7x3", "R S(0)"), 1);
  sum_gradient(parameter("4", "R R"), 1);
  bucket();
  int64_t give[2], get[2];
  collective_counts(&graph->op[at(0)], 2, give, get);
  assert_int_equal(give[0], 1 * 3 + 4);
  collective_counts(&graph->op[at(0)], 3, give, get);
  assert_int_equal(give[0], 3 * 3 + 4);
}

/* ------------------------------------------------------------------------------- other values */

static int pending(const char *shape)
{
  int x = given(BATCH, "x", parse_shape(shape), parse_layout("P"));
  return run_in_phase((struct op){.kind = OP_neg, .nin = 1, .in = {x}, .phase = BACKWARD});
}

static int sum_of(int value, enum reduction reduction)
{
  return run_in_phase((struct op){.kind = OP_all_reduce,
                                  .nin = 1,
                                  .in = {value},
                                  .phase = BACKWARD,
                                  .reduction = reduction,
                                  .group = add_group(1)});
}

static int maker(int value)
{
  return graph->value[value].op;
}

/* As many as that; the backward makes the last ones first, and so the first bucket is theirs. */
static void cap(int n, const int64_t *mb)
{
  plan_options->ncap = n;
  for (int i = 0; i < n; i++) plan_options->cap[i] = mb[i] << 20;
}

static void test_buckets_have_a_size(void **state)
{
  (void)state;
  int op[6];
  new_graph(1, (int[]){2});
  cap(1, (int64_t[]){25});
  for (int i = 0; i < 4; i++) op[i] = sum_gradient(parameter("1024x2560", "R"), 1);
  op[4] = sum_gradient(parameter("4096x4096", "R"), 1);
  op[5] = sum_gradient(parameter("8", "R"), 1);
  bucket();
  are(4);
  is_bucket(0, (int[]){op[0], op[1], NONE});
  is_bucket(1, (int[]){op[2], op[3], NONE});
  is_op(2, op[4]);
  is_op(3, op[5]);

  new_graph(1, (int[]){2});
  cap(1, (int64_t[]){25});
  for (int i = 0; i < 3; i++) op[i] = sum_gradient(parameter("1024x3200", "R"), 1);
  bucket();
  are(2);
  is_op(0, op[0]);
  is_bucket(1, (int[]){op[1], op[2], NONE});
}

/* A product that takes some hundred microseconds. */
static void long_work(void)
{
  int x = given(BATCH, "x", parse_shape("2048x2048"), (struct layout){0});
  run_in_phase((struct op){
      .kind = OP_matmul, .nin = 2, .in = {x, x}, .equation = "mk,kn->mn", .phase = BACKWARD});
}

/* What the plan's smallest cap does not hold_part goes with the next ones. */
static void test_small_values_keep_to_the_cap(void **state)
{
  (void)state;
  int a[5];
  new_graph(1, (int[]){2});
  plan_options->ncap = 2;
  plan_options->cap[0] = 1 << 20;
  plan_options->cap[1] = 3 * 4 * 4;
  for (int i = 0; i < 5; i++) a[i] = maker(sum_of(pending("4"), SUM));
  bucket();
  are(2);
  is_bucket(0, (int[]){a[0], a[1], a[2], NONE});
  is_bucket(1, (int[]){a[3], a[4], NONE});
}

/* Without caps a bucket goes early where there is work that hides it, and late where there is none:
   to start one costs time too. */
static void test_caps_by_the_links(void **state)
{
  (void)state;
  for (int works = 0; works < 2; works++) {
    new_graph(1, (int[]){2});
    graph->mesh.bandwidth[0] = 100e9;
    graph->mesh.latency[0] = 20e-6;
    int w[4];
    for (int i = 0; i < 4; i++) w[i] = parameter("1024x1024", "R");
    for (int i = 4; i-- > 0;) {
      int x = given(BATCH, "x", graph->value[w[i]].shape, graph->value[w[i]].layout);
      for (int k = 0; k < 20 && works; k++) long_work();
      sum_into(w[i], made_of(x), 1);
    }
    bucket();
    const struct function *f = function_of_phase(BACKWARD);
    int sums = 0, of_all = 0;
    for (int i = 0; i < f->nop; i++) {
      const struct op *o = &graph->op[f->op[i]];
      sums += o->kind == OP_all_reduce;
      of_all += o->nbody == 4;
    }
    assert_int_equal(sums, works ? 4 : 1);
    assert_int_equal(of_all, works ? 0 : 1);
  }
}

/* ------------------------------------------------------------------------------------ greedily */

/* A collective of a value of so many MiB as a whole, or as what is pending; in a unit of its own.
 */
static int move_greedily(enum op_kind kind, int64_t mb, enum type type)
{
  static int units;
  bool gathers = kind == OP_all_gather;
  struct shape whole = {2, {1024 / type_bytes(type), 1024 * mb}};
  int x = given(BATCH, "x", whole, parse_layout(gathers ? "S(0)" : "P"));
  graph->value[x].type = type;
  struct op op = {.kind = OP_neg, .nin = 1, .in = {x}, .phase = BACKWARD};
  op.in[0] = run_in_phase(op);
  op.kind = kind;
  op.group = add_group(1);
  op.of_unit = true;
  op.unit = units++ % 2;
  int out = run_in_phase(op);
  graph->value[out].layout = parse_layout(kind == OP_reduce_scatter ? "S(0)" : "R");
  return graph->value[out].op;
}

static void begin_greedily(void)
{
  new_graph(1, (int[]){2});
  plan_options->bucketing = BUCKETS_GREEDY;
  graph->nunit = 2;
  graph->unit = alloc(2 * sizeof *graph->unit);
  for (int i = 0; i < 2; i++) graph->unit[i] = (struct unit){.name = "", .shards = 1};
}

/* How many of these kinds a bucket has, by turns of the collectives: "3 2" are five, in two. */
static void check_bucket_sizes(enum op_kind kind, const char *expected)
{
  const struct function *f = function_of_phase(BACKWARD);
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < f->nop; i++) {
    const struct op *op = &graph->op[f->op[i]];
    if (op->kind == kind) put(&b, "%s%d", b.length ? " " : "", op->nbody ? op->nbody : 1);
  }
  assert_string_equal(b.text, expected);
}

/* Of each kind those that follow one another, whatever units they are of, under caps for each kind
   from the first on; a gather counts as what it makes, in the type in which it moves. */
static void test_greedily(void **state)
{
  (void)state;
  static const enum op_kind kinds[] = {OP_all_gather, OP_reduce_scatter, OP_all_reduce};
  for (int type = 0; type < 2; type++) {
    begin_greedily();
    cap(2, (int64_t[]){2, 3});
    for (int i = 0; i < 6; i++)
      for (int k = 0; k < 3; k++) move_greedily(kinds[k], 1, type ? BF16 : F32);
    bucket();
    for (int k = 0; k < 3; k++) check_bucket_sizes(kinds[k], "2 3 1");
  }
}

/* Without caps it is 2,000 MiB; and what is small is not packed beside. */
static void test_greedily_without_caps(void **state)
{
  (void)state;
  begin_greedily();
  for (int i = 0; i < 5; i++) move_greedily(OP_all_gather, 500, F32);
  sum_of(pending("4"), SUM);
  sum_of(pending("4"), MAX);
  sum_of(pending("4"), SUM);
  bucket();
  check_bucket_sizes(OP_all_gather, "4 1");
  check_bucket_sizes(OP_all_reduce, "1 1 1");
}

/* Of many, those that need a member of the bucket stay alone: wherever in it that is. The last one
   needs the one that stands 64 behind one that is in no bucket. */
static void test_greedily_what_needs(void **state)
{
  (void)state;
  enum { MANY = 70, ALONE = 2, NEEDED = 41, LAST_NEEDED = ALONE + 64 };
  int made[MANY];
  begin_greedily();
  for (int i = 0; i < MANY; i++) {
    int needed = i == ALONE             ? made[0]
                 : i == LAST_NEEDED + 1 ? made[NEEDED]
                 : i == MANY - 1        ? made[LAST_NEEDED]
                                        : NONE;
    struct op op = {.kind = OP_slice, .nin = 1, .in = {needed}, .phase = BACKWARD};
    int part = needed == NONE ? given(BATCH, "x", parse_shape("4"), parse_layout("S(0)"))
                              : run_in_phase(op);
    graph->value[part].layout = parse_layout("S(0)");
    op = (struct op){.kind = OP_all_gather, .nin = 1, .in = {part}, .phase = BACKWARD};
    op.group = add_group(1);
    made[i] = run_in_phase(op);
    graph->value[made[i]].layout = parse_layout("R");
  }
  bucket();
  check_bucket_sizes(OP_all_gather, "67 1 1 1");
  for (int i = 0; i < graph->nop; i++) /* nor does it say that a bucket has come to be several */
    assert_true(!graph->op[i].why || !*graph->op[i].why);
}

/* Gradients that lie side by side are summed where they lie; others are packed. */
static void test_greedily_in_place(void **state)
{
  (void)state;
  for (int gap = 0; gap < 2; gap++) {
    begin_greedily();
    int a = sum_gradient(parameter("4x3", "R"), 1);
    if (gap) parameter("4", "R");
    int b = sum_gradient(parameter("5", "R"), 1);
    bucket();
    are(1);
    is_bucket(0, (int[]){a, b, NONE});
    assert_int_equal(graph->op[at(0)].packed, gap);
  }
}

/* How many copies there are: they scale by 1. */
static int copies(void)
{
  const struct function *f = function_of_phase(BACKWARD);
  int n = 0;
  for (int k = 0; k < f->nop; k++) n += graph->op[f->op[k]].kind == OP_scale;
  return n;
}

static int view_of(int value)
{
  return run_in_phase((struct op){
      .kind = OP_view, .nin = 1, .in = {value}, .equation = "(a2b2)->a2b2", .phase = BACKWARD});
}

static int as_given(void)
{
  return given(BATCH, "x", parse_shape("4"), parse_layout("R"));
}

/* What others read too, by its own name or by a view's, is not summed where it lies. */
static void copied(int (*pending)(void), int expected)
{
  new_graph(1, (int[]){2});
  int value = pending(), w = parameter("4", "R");
  graph->value[w].shape = graph->value[value].shape;
  sum_into(w, value, 1);
  bucket();
  assert_int_equal(copies(), expected);
}

static int read_once(void)
{
  return made_of(as_given());
}

static int read_twice(void)
{
  int value = read_once();
  made_of(value);
  return value;
}

static int view_read_once(void)
{
  return view_of(read_once());
}

static int view_of_what_is_read(void)
{
  return view_of(read_twice());
}

static int view_of_view_of_what_is_read(void)
{
  int value = view_of(read_twice());
  return run_in_phase((struct op){
      .kind = OP_view, .nin = 1, .in = {value}, .equation = "ab->(ab)", .phase = BACKWARD});
}

static int view_of_given(void)
{
  return view_of(as_given());
}

static int made_in_another_function(void)
{
  int x = as_given();
  return run_in_phase((struct op){.kind = OP_neg, .nin = 1, .in = {x}, .phase = FORWARD});
}

static void test_what_others_read_is_copied(void **state)
{
  (void)state;
  copied(read_once, 0);
  copied(read_twice, 1);
  copied(view_read_once, 0);
  copied(view_of_what_is_read, 1);
  copied(view_of_view_of_what_is_read, 1);
  copied(as_given, 1);
  copied(view_of_given, 1);
  copied(made_in_another_function, 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bytes_in_place),
      cmocka_unit_test(test_bytes_packed),
      cmocka_unit_test(test_parts_are_counted),
      cmocka_unit_test(test_buckets_have_a_size),
      cmocka_unit_test(test_small_values_keep_to_the_cap),
      cmocka_unit_test(test_caps_by_the_links),
      cmocka_unit_test(test_greedily),
      cmocka_unit_test(test_greedily_without_caps),
      cmocka_unit_test(test_greedily_what_needs),
      cmocka_unit_test(test_greedily_in_place),
      cmocka_unit_test(test_what_others_read_is_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
