/* The pass `absorb`: attention over a latent has the numbers of the attention whose keys and values
   are projections of it, for drawn sizes, orders of features and ways of writing them; what is no
   such attention stays. */
#include "interpreter.h"
#include "unit.h"

static struct machine machine;

static int tensor(enum role role, struct shape shape)
{
  return given(role, text("x%d", graph->nvalue), shape, (struct layout){0});
}

static int step(struct op op, struct shape shape)
{
  op.module = NONE;
  op.line = 1;
  return append_op_shaped(op, shape);
}

static struct shape four(int64_t a, int64_t b, int64_t c, int64_t d)
{
  return (struct shape){4, {a, b, c, d}};
}

static int view(int x, struct shape shape)
{
  const char *rule = view_equation(graph->value[x].shape, shape, 1);
  return step((struct op){.kind = OP_view, .nin = 1, .in = {x}, .equation = rule}, shape);
}

static int part(int x, int64_t first, int64_t size)
{
  struct shape shape = graph->value[x].shape;
  shape.size[3] = size;
  struct op op = {.kind = OP_narrow, .nin = 1, .in = {x}, .dims = 8};
  set_number(&op, "start", first);
  return step(op, shape);
}

static int joined(int a, int b)
{
  struct shape shape = graph->value[a].shape;
  shape.size[3] += graph->value[b].shape.size[3];
  return step((struct op){.kind = OP_cat, .nin = 2, .in = {a, b}, .dims = 8}, shape);
}

/* How the attention is drawn. */
struct drawn {
  int64_t heads, tokens, rank, nope, rope, wide;
  bool rope_first, by_parts, two_weights, is_latent;
};

static struct drawn drawn_attention(void)
{
  return (struct drawn){.heads = 2 + draw_below(3),
                        .tokens = 1 + draw_below(6),
                        .rank = 2 + draw_below(4),
                        .nope = 2 + draw_below(4),
                        .rope = draw_below(3),
                        .wide = 2 + draw_below(4),
                        .rope_first = draw_below(2),
                        .by_parts = draw_below(2),
                        .two_weights = draw_below(2),
                        .is_latent = draw_below(4)};
}

/* A projection of the latent in heads: [1, heads, tokens, features]. */
static int in_heads(const struct drawn *d, int latent, int64_t features)
{
  const int w = tensor(PARAMETER, (struct shape){2, {d->heads * features, d->rank}});
  struct op linear = {
      .kind = OP_matmul, .nin = 2, .in = {latent, w}, .equation = "abk,nk->abn", .line = 1};
  linear.module = NONE;
  const int x = view(append_op(linear), four(1, d->tokens, d->heads, features));
  struct op swap = {.kind = OP_permute, .nin = 1, .in = {x}, .equation = "abcd->acbd", .line = 1};
  swap.module = NONE;
  return append_op(swap);
}

static int make_attention(const struct drawn *d)
{
  const int q = tensor(BATCH, four(1, d->heads, d->tokens, d->nope + d->rope));
  const int latent = tensor(BATCH, (struct shape){3, {1, d->tokens, d->rank}});
  int keys, values;
  if (d->two_weights) {
    keys = in_heads(d, latent, d->nope);
    values = in_heads(d, latent, d->wide);
  } else {
    const int both = in_heads(d, latent, d->nope + d->wide);
    keys = part(both, 0, d->nope);
    values = part(both, d->nope, d->wide);
  }
  if (!d->is_latent)
    keys = step((struct op){.kind = OP_relu, .nin = 1, .in = {keys}}, graph->value[keys].shape);
  if (d->by_parts) keys = joined(part(keys, 0, 1), part(keys, 1, d->nope - 1));
  if (d->rope) {
    const int rope = tensor(BATCH, four(1, 1, d->tokens, d->rope));
    const struct op expand = {
        .kind = OP_expand, .nin = 1, .in = {rope}, .dims = 2, .keepdim = true, .scalar = 1};
    const int all = step(expand, four(1, d->heads, d->tokens, d->rope));
    keys = d->rope_first ? joined(all, keys) : joined(keys, all);
  }
  struct op op = {
      .kind = OP_attention, .nin = 3, .in = {q, keys, values}, .scalar = 0.7, .line = 1};
  op.module = NONE;
  set_number(&op, "causal", 1);
  const struct shape made[2] = {four(1, d->heads, d->tokens, d->wide),
                                {3, {1, d->heads, d->tokens}}};
  const int y = append_op_outputs(op, made, 2);
  return step((struct op){.kind = OP_neg, .nin = 1, .in = {y}}, made[0]);
}

static struct array result(int value)
{
  return machine.part[0][value];
}

static void run(int first_value, const struct machine *before)
{
  machine = new_machine();
  for (int v = 0; v < first_value; v++)
    if (graph->value[v].op == NONE)
      load(&machine, v, before ? before->part[0][v] : random_array(graph->value[v].shape));
  for (int i = 0; i < graph->norder; i++) run_op(&machine, &graph->op[graph->order[i]]);
}

static void test_numbers_stay(void **state)
{
  int absorbed = 0;
  (void)state;
  for (int round = 0; round < 300; round++) {
    new_graph(1, (int[]){1});
    plan_options->generate.caches = SMALL_CACHES;
    const struct drawn d = drawn_attention();
    const int y = make_attention(&d), known = graph->nvalue, before = graph->norder;
    run(known, NULL);
    const struct machine first = machine;
    absorb();
    check(PASS_ABSORB);
    const bool smaller = d.rank + d.rope < d.heads * (d.nope + d.rope + d.wide);
    assert_int_equal(graph->norder != before, d.is_latent && smaller);
    absorbed += graph->norder != before;
    run(known, &first);
    const struct array a = first.part[0][y], b = result(y);
    for (int64_t i = 0; i < elements(a.shape); i++)
      assert_true(fabs(a.at[i] - b.at[i]) < 1e-9 * (1 + fabs(a.at[i])));
  }
  assert_in_range(absorbed, 150, 299);
}

/* ------------------------------------------------------------------- faults that the check finds
 */

enum fault { NO_FAULT, LATER_VALUES, FEATURE_TWICE, OTHER_QUERIES, LOST_PART, OTHER_RESULT };

static struct op *operation(enum op_kind kind, const char *rule)
{
  for (int i = graph->norder - 1; i >= 0; i--) {
    struct op *op = &graph->op[graph->order[i]];
    if (op->kind == kind && (!rule || !strcmp(rule_of(op), rule))) return op;
  }
  return NULL;
}

static struct op *maker(int value)
{
  return &graph->op[graph->value[value].op];
}

static void check_with_fault(const void *with)
{
  const struct drawn d = {.heads = 3,
                          .tokens = 4,
                          .rank = 3,
                          .nope = 4,
                          .rope = 2,
                          .wide = 3,
                          .by_parts = true,
                          .is_latent = true};
  new_graph(1, (int[]){1});
  plan_options->generate.caches = SMALL_CACHES;
  make_attention(&d);
  absorb();
  const struct op *attention = operation(OP_attention, NULL);
  struct op *queries = maker(attention->in[0]), *product = maker(queries->in[0]);
  switch (*(const enum fault *)with) {
  case NO_FAULT:
    break;
  case LATER_VALUES:
    set_number(maker(attention->in[2]), "start", 1);
    break;
  case FEATURE_TWICE: /* the shared part's queries are some that met the latent */
    set_number(maker(queries->in[queries->nin - 1]), "start", 1);
    break;
  case OTHER_QUERIES: /* by numbers of the tokens, not by a weight */
    product->in[1] = tensor(BATCH, graph->value[product->in[1]].shape);
    break;
  case LOST_PART: /* its queries would meet other features of the keys */
    queries->nin--;
    break;
  case OTHER_RESULT: {
    struct op *result = operation(OP_matmul, "bhtr,her->bhte");
    result->in[1] = tensor(BATCH, graph->value[result->in[1]].shape);
  }
  }
  check(PASS_ABSORB);
}

static void test_faults_are_found(void **state)
{
  static const struct {
    enum fault fault;
    const char *said;
  } faults[] = {
      {LATER_VALUES, "its values are not the first features of keys that all heads share"},
      {FEATURE_TWICE, "it has a feature of the queries twice"},
      {OTHER_QUERIES, "the queries' product is another one"},
      {LOST_PART, "its queries have other parts than its keys"},
      {OTHER_RESULT, "it reads sums of the latent, and is not their product"},
  };
  static const enum fault none = NO_FAULT;
  (void)state;
  passes(check_with_fault, &none);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refused(check_with_fault, &faults[i].fault, -SIGABRT, faults[i].said, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_stay),
                                     cmocka_unit_test(test_faults_are_found)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
