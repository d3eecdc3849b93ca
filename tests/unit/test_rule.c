/* Soundness, exhaustively: every sharding of an operation that the rule engine allows is run, on
   small meshes, with sizes that divide evenly, unevenly and not at all: the inputs are cut, each
   rank computes its part, and the ranks' results must equal the whole operation's. (test_offers.c
   is the converse: correct shardings must be offered. test_sharded.c runs whole programs.)

   A row of the table of operators without a reference (reference.h) or an instance (instances.h)
   fails. TPGEN_ROWS, names of rows separated by blanks: tries these alone. */
#include "sharding/sharding.h"
#include "force.h"

/* --------------------------------------------------------------------------- every row is tried */

static void test_every_row_has_instance_and_reference(void **state)
{
  (void)state;
  int rows = 0;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    bool has_rule = *op_row[kind].rule != 0;
    rows += has_rule;
    bool found = false;
    for (int i = 0; i < INSTANCES; i++) found |= (int)instances[i].kind == kind;
    must(found == has_rule, "%s %s", op_row[kind].name,
         has_rule ? "has no instance: add sizes to try it with to instances.h" : "has no rule");
    must(has_reference((enum op_kind)kind) == has_rule,
         "%s has no reference: add one to reference.h", op_row[kind].name);
  }
  print_message("%d rows\n", rows);
}

/* ------------------------------------------------------------------------------------ soundness */

/* A sum of maxima is not a maximum of sums: what a rank should reduce first nobody could tell. */
static bool mixes(struct layout layout)
{
  unsigned kinds = 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == PARTIAL) kinds |= 1u << layout.on[d].reduction;
  return (kinds & (kinds - 1)) != 0;
}

/* Each stride has to divide the next, and the last the dimension. */
static bool nests(struct layout layout, struct shape whole)
{
  for (int d = 0; d < whole.ndim; d++) {
    int64_t outer[MAX_MESH + 2];
    int n = outers_of(layout, d, outer);
    outer[n] = whole.size[d];
    for (int j = 0; j < n; j++)
      if (outer[j + 1] % outer[j]) return false;
  }
  return true;
}

/* NULL if every operand's layout is one that a value can have, else what is wrong. */
static const char *no_layout(const struct trial *t, const struct op_sharding *way)
{
  for (int i = 0; i < t->op->nin; i++)
    if (!nests(way->in[i], t->in[i].shape)) return "strides that do not nest";
  for (int k = 0; k < t->op->nout; k++) {
    if (!nests(way->out[k], t->out[k].shape)) return "strides that do not nest";
    if (mixes(way->out[k])) return "a sum of maxima";
  }
  return NULL;
}

static struct op_sharding way_of(const struct op *op, const struct choice *list, const int *pick)
{
  struct op_sharding way = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) {
    for (int i = 0; i < op->nin; i++) way.in[i].on[d] = list[pick[d]].in[i];
    for (int k = 0; k < op->nout; k++) way.out[k].on[d] = list[pick[d]].out[k];
  }
  return way;
}

typedef bool kind_of_layout(struct layout layout);

static bool is_any_cut(struct layout layout)
{
  (void)layout;
  return true;
}

static bool has_strides(struct layout layout)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == SHARD && layout.on[d].outer > 1) return true;
  return false;
}

/* Two cuts of one dimension, in strides alike, of which the second is made first. */
static bool has_cut_order(struct layout layout)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    for (int e = 0; e < d; e++) {
      struct placement p = layout.on[e], q = layout.on[d];
      if (p.kind == SHARD && q.kind == SHARD && p.dim == q.dim && outer_of(p) == outer_of(q) &&
          p.cut_order > q.cut_order)
        return true;
    }
  return false;
}

static bool has_both(struct layout layout)
{
  return has_strides(layout) && has_cut_order(layout);
}

static bool takes(const struct op *op, const struct op_sharding *way, kind_of_layout *is_expected)
{
  for (int i = 0; i < op->nin; i++)
    if (is_expected(way->in[i])) return true;
  return op->nin == 0 && is_expected == is_any_cut;
}

/* The first wrong way of a row is printed, all are counted. */
static int wrong;
static void tell(const struct trial *t, const struct op_sharding *way, const char *why)
{
  static bool is_printed[OP_COUNT];
  wrong++;
  if (!is_printed[t->op->kind]) print_error("%s: %s\n", way_text(t, way), why);
  is_printed[t->op->kind] = true;
}

/* Tries all combinations of choices in which an input lies in a way of this kind. Gives how
   many. */
static int try_every_choice(struct trial *t, kind_of_layout *is_expected)
{
  struct choice list[MAX_CHOICES];
  int ndim = graph->mesh.ndim, tried = 0, n = choices(t->op, &t->letters, list);
  must(n >= 1 && n <= MAX_CHOICES, "%d choices for %s", n, op_name(t->op));
  size_t used = pool_used;
  for (int which = 0, all = power(n, ndim); which < all; which++) {
    int pick[MAX_MESH];
    for (int d = 0, rest = which; d < ndim; d++, rest /= n) pick[d] = rest % n;
    struct op_sharding way = way_of(t->op, list, pick);
    if (!takes(t->op, &way, is_expected)) continue;
    if (!fits_together(&t->letters, t->op->nin, list, pick)) continue;
    bool can_be = true;
    for (int i = 0; i < t->op->nin; i++) can_be &= !mixes(way.in[i]);
    if (!can_be) continue;
    tried++;
    pool_used = used;
    const char *why = no_layout(t, &way);
    if (!why) why = unsound(t, &way);
    if (why) tell(t, &way, why);
  }
  return tried;
}

static const char *const mesh[] = {"2", "3", "4", "2x2", "2x3"};
enum { MESHES = sizeof mesh / sizeof *mesh };

/* Whole tensors that are large take too long, and tell nothing that smaller ones do not. */
static bool is_small_op(const struct op *op)
{
  int64_t n = 0;
  for (int i = 0; i < op->nin; i++) n += elements(graph->value[op->in[i]].shape);
  for (int k = 0; k < op->nout; k++) n += elements(graph->value[op->out + k].shape);
  return n <= 3000;
}

static void test_every_choice_is_sound(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {{12, 12, 12, 12}, {5, 7, 9, 3}, {2, 1, 3, 2},
                                         {1, 2, 1, 3},     {6, 3, 4, 5}, {4, 2, 2, 6},
                                         {2, 6, 3, 4},     {3, 4, 4, 2}, {3, 5, 2, 4}};
  int tried = 0, tried_of[INSTANCES] = {0};
  for (int m = 0; m < MESHES; m++) {
    new_mesh(mesh[m]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int i = 0; i < INSTANCES; i++) {
        if (!is_tried(instances[i].kind)) continue;
        const struct op *op = instantiate(&instances[i], sizes[s]);
        if (!is_small_op(op)) continue;
        forget();
        struct trial t;
        prepare(&t, op);
        int n = try_every_choice(&t, is_any_cut);
        tried += n;
        tried_of[i] += n;
      }
  }
  for (int i = 0; i < INSTANCES; i++)
    must(!is_tried(instances[i].kind) || tried_of[i] >= MESHES, "instance %d of %s is not tried", i,
         op_row[instances[i].kind].name);
  print_message("%d combinations, %d wrong\n", tried, wrong);
  assert_int_equal(wrong, 0);
  assert_true(getenv("TPGEN_ROWS") || tried > 50000);
}

/* Inputs that lie in strides: what a merge leaves. */
static void test_every_choice_of_strides_is_sound(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {{6, 8, 12, 4}, {12, 6, 4, 6}, {10, 4, 6, 9}};
  static const int64_t strides[][2] = {{2, 2}, {3, 2}, {2, 4}};
  int tried = 0;
  for (int m = 0; m < MESHES; m++) {
    new_mesh(mesh[m]);
    for (int v = 0; v < 3; v++)
      for (int i = 0; i < INSTANCES; i++) {
        if (!is_tried(instances[i].kind)) continue;
        const struct op *op = instantiate(&instances[i], sizes[v]);
        if (!is_small_op(op)) continue;
        forget();
        struct trial t;
        prepare(&t, op);
        for (int k = 0; k < op->nin; k++)
          for (int d = 0, ndim = t.in[k].shape.ndim; d < graph->mesh.ndim && ndim; d++) {
            struct placement *p = &graph->value[op->in[k]].layout.on[d];
            *p = S((d + k + v) % ndim);
            p->outer = strides[v][d];
          }
        tried += try_every_choice(&t, has_strides);
      }
  }
  print_message("%d combinations, %d wrong\n", tried, wrong);
  assert_int_equal(wrong, 0);
  assert_true(getenv("TPGEN_ROWS") || tried > 5000);
}

/* Every dimension of the mesh cuts one dimension of each input, in the order `order`; in strides,
   too, if those are not NULL. */
static void cut_in_order(const struct trial *t, int which, const int *order, const int64_t *stride)
{
  for (int k = 0; k < t->op->nin; k++)
    for (int d = 0, ndim = t->in[k].shape.ndim; d < graph->mesh.ndim && ndim; d++) {
      struct placement p = S((k + which) % ndim);
      p.cut_order = order[d];
      p.outer = stride ? stride[d] : 0;
      graph->value[t->op->in[k]].layout.on[d] = p;
    }
}

static int try_cut_orders(const int64_t *sizes, const int *order, const int64_t *stride)
{
  int tried = 0;
  for (int i = 0; i < INSTANCES; i++) {
    if (!is_tried(instances[i].kind)) continue;
    const struct op *op = instantiate(&instances[i], sizes);
    if (!is_small_op(op)) continue;
    for (int which = 0; which < 2; which++) {
      forget();
      struct trial t;
      prepare(&t, op);
      cut_in_order(&t, which, order, stride);
      tried += try_every_choice(&t, stride ? has_both : has_cut_order);
    }
  }
  return tried;
}

/* Inputs that are cut in another order than the mesh's. */
static void test_every_choice_of_cut_orders_is_sound(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {{12, 6, 4, 8}, {5, 7, 9, 3}, {1, 3, 2, 5}};
  static const struct {
    const char *mesh;
    int cut_order[MAX_MESH];
  } list[] = {{"2x2", {1, 0}}, {"2x3", {1, 0}}, {"2x2x2", {2, 1, 0}}, {"3x2x2", {2, 0, 1}}};
  int tried = 0;
  for (size_t m = 0; m < sizeof list / sizeof *list; m++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      new_mesh(list[m].mesh);
      tried += try_cut_orders(sizes[s], list[m].cut_order, NULL);
    }
  print_message("%d combinations, %d wrong\n", tried, wrong);
  assert_int_equal(wrong, 0);
  assert_true(getenv("TPGEN_ROWS") || tried > 5000);
}

static bool takes_as_it_lies(const struct op *op, const struct op_sharding *way)
{
  for (int i = 0; i < op->nin; i++) {
    struct layout lies = graph->value[op->in[i]].layout;
    if (lies.on[0].kind == SHARD && same_layout(way->in[i], lies)) return true;
  }
  return false;
}

/* How many combinations go together in which an input that is cut stays where it lies. */
static int count_choices(const struct op *op)
{
  struct choice list[MAX_CHOICES];
  struct letters l;
  op_letters(op, &l);
  int count = 0, n = choices(op, &l, list);
  for (int which = 0; which < n * n; which++) {
    int pick[] = {which / n, which % n};
    struct op_sharding way = way_of(op, list, pick);
    count += takes_as_it_lies(op, &way) && fits_together(&l, op->nin, list, pick);
  }
  return count;
}

static int count_ordered(int which, const int64_t *sizes, int input, bool ordered)
{
  new_mesh(ordered ? "2x3" : "3x2");
  const struct op *op = instantiate(&instances[which], sizes);
  for (int k = 0; k < op->nin; k++)
    for (int d = 0, ndim = graph->value[op->in[k]].shape.ndim; d < 2 && ndim; d++) {
      struct placement *p = &graph->value[op->in[k]].layout.on[d];
      *p = S((k + input) % ndim);
      p->cut_order = ordered && d == 0;
    }
  return count_choices(op);
}

/* Cut over the second dimension of the mesh before the first, an operation may run in all ways in
   which it may on a mesh whose dimensions are the other way round. */
static void test_another_cut_order_offers_as_much(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {
      {12, 6, 4, 8}, {5, 7, 9, 3}, {6, 9, 2, 5}, {8, 4, 3, 7}, {2, 10, 5, 4}};
  int all = 0;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int i = 0; i < INSTANCES; i++)
      for (int input = 0; input < 2; input++) {
        if (!is_tried(instances[i].kind)) continue;
        int n = count_ordered(i, sizes[s], input, true),
            m = count_ordered(i, sizes[s], input, false);
        must(n == m, "instance %d of %s: %d ways in another cut order, and %d as the mesh is", i,
             op_row[instances[i].kind].name, n, m);
        all += n;
      }
  print_message("%d combinations\n", all);
  assert_true(getenv("TPGEN_ROWS") || all > 1000);
}

static void test_every_choice_of_strides_and_cut_orders_is_sound(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {{8, 12, 4, 6}, {12, 8, 6, 4}};
  static const struct {
    const char *mesh;
    int cut_order[MAX_MESH];
    int64_t stride[MAX_MESH];
  } list[] = {{"2x2", {1, 0}, {2, 2}},
              {"2x3", {1, 0}, {2, 2}},
              {"2x2x2", {1, 0, 0}, {2, 2, 0}},
              {"2x2x2", {1, 0, 0}, {0, 2, 0}},
              {"2x2x2", {2, 1, 0}, {2, 2, 4}}};
  int tried = 0;
  for (size_t m = 0; m < sizeof list / sizeof *list; m++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      new_mesh(list[m].mesh);
      tried += try_cut_orders(sizes[s], list[m].cut_order, list[m].stride);
    }
  print_message("%d combinations, %d wrong\n", tried, wrong);
  assert_int_equal(wrong, 0);
  assert_true(getenv("TPGEN_ROWS") || tried > 1000);
}

/* ---------------------------------------------------------------------------------- their order */

static char *choices_text(const struct op *op)
{
  struct letters l;
  struct choice list[MAX_CHOICES];
  struct buffer b = {0};
  op_letters(op, &l);
  for (int c = 0, n = choices(op, &l, list); c < n; c++) {
    put(&b, "%s", c ? "; " : "");
    for (int i = 0; i < op->nin; i++) put(&b, "%s%s", i ? "," : "", placement_text(list[c].in[i]));
    for (int k = 0; k < op->nout; k++)
      put(&b, "%s%s", k ? "," : ">", placement_text(list[c].out[k]));
  }
  return b.text;
}

static void lists(struct instance instance, const char *expected)
{
  new_mesh("2");
  assert_string_equal(choices_text(instantiate(&instance, (int64_t[SIZES]){4, 6, 8, 10})),
                      expected);
}

/* Ties are broken by it: everything replicated, then cut along each letter in the order of the
   operand that is walked over, then pending. */
static void test_order_of_ways(void **state)
{
  (void)state;
  lists((struct instance){OP_matmul, .in = {"ab", "bc"}, .equation = "mk,kn->mn"},
        "R,R>R; S(0),R>S(0); R,S(1)>S(1); S(1),S(0)>P(sum); P(sum),R>P(sum); R,P(sum)>P(sum)");
  lists((struct instance){OP_matmul, .in = {"dab", "cb"}, .equation = "bmk,nk->bmn"},
        "R,R>R; S(0),R>S(0); S(1),R>S(1); R,S(0)>S(2); S(2),S(1)>P(sum); P(sum),R>P(sum); "
        "R,P(sum)>P(sum)");
  lists((struct instance){OP_mul, .in = {"a1", "ab"}},
        "R,R>R; S(0),S(0)>S(0); R,S(1)>S(1); P(sum),R>P(sum); R,P(sum)>P(sum)");
  lists((struct instance){OP_silu, .in = {"1b"}}, "R>R; S(1)>S(1)");
  lists((struct instance){OP_sum, .in = {"ab"}, .dims = 1},
        "R>R; S(0)>P(sum); S(1)>S(0); P(sum)>P(sum)");
  lists((struct instance){OP_amax, .in = {"ab"}, .dims = 2, .keepdim = true},
        "R>R; S(0)>S(0); S(1)>P(max); P(max)>P(max)");
  lists((struct instance){OP_full, .out = {"ab1"}}, ">R; >S(0); >S(1)");
  lists((struct instance){OP_embedding, .in = {"ab", "#c"}},
        "R,R>R; R,S(0)>S(0); S(1),R>S(1); S(0),R>P(sum); P(sum),R>P(sum); P(max),R>P(max); "
        "P(min),R>P(min)");
  lists((struct instance){OP_view, .in = {"ab"}, .equation = "ab->(ab)", .out = {"(ab)"}},
        "R>R; S(0)>S(0); S(1)>S(0/4); P(sum)>P(sum); P(max)>P(max); P(min)>P(min)");
}

int main(void)
{
  counts_rows = false;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_row_has_instance_and_reference),
      cmocka_unit_test(test_every_choice_is_sound),
      cmocka_unit_test(test_every_choice_of_strides_is_sound),
      cmocka_unit_test(test_every_choice_of_cut_orders_is_sound),
      cmocka_unit_test(test_another_cut_order_offers_as_much),
      cmocka_unit_test(test_every_choice_of_strides_and_cut_orders_is_sound),
      cmocka_unit_test(test_order_of_ways),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
