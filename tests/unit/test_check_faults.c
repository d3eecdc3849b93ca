/* The checks share no predicate with what they check: a pass whose predicate returns a wrong answer
   is caught. The linker replaces the predicate NAME by __wrap_NAME. */
#include "driver/driver.h"
#include "unit.h"

bool __real_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);
bool __wrap_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);
bool __real_is_view(const struct op *op);
bool __wrap_is_view(const struct op *op);
bool __real_follows_dim_order(const struct op *op);
bool __wrap_follows_dim_order(const struct op *op);
bool __real_find_stages(const int *body, int n, struct stages *s);
bool __wrap_find_stages(const int *body, int n, struct stages *s);

/* The wrong answer that is given. */
static enum fault {
  NO_FAULT,
  MAY_OVERWRITE,
  SLICES_ARE_VIEWS,
  ALL_HAVE_PARTS,
  ANY_ORDER_IS_SHOWN,
  ALL_IS_READ,
  ROWS_AT_ONCE,
  ROWS_ARE_COLUMNS
} planted;

/* Whatever a kernel reads, when and where, it may write over it. */
bool __wrap_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out)
{
  bool fits = have_same_parts(in, out) && op->kind == OP_fused;
  return (planted == MAY_OVERWRITE && fits) || __real_may_overwrite(plan, op, in, out);
}

bool __wrap_is_view(const struct op *op)
{
  return (planted == SLICES_ARE_VIEWS && op->kind == OP_slice) || __real_is_view(op);
}

bool __wrap_follows_dim_order(const struct op *op)
{
  return (planted == ALL_HAVE_PARTS && is_collective(op->kind)) ||
         (planted == ANY_ORDER_IS_SHOWN && op->kind == OP_view) || __real_follows_dim_order(op);
}

/* Whether all go through one space, whatever one reads of the other. */
static bool is_one_space(const int *body, const struct stages *s)
{
  for (int k = 0; k < s->n; k++) {
    struct shape here = graph->value[space_of(&graph->op[body[k]])].shape;
    if (!same_shape(here, graph->value[s->space].shape) || s->task[k].reach == UNFIT) return false;
  }
  return s->rows == NONE;
}

bool __wrap_find_stages(const int *body, int n, struct stages *s)
{
  bool can = __real_find_stages(body, n, s);
  if (planted == ALL_IS_READ && !can && n <= MOST_IN_KERNEL && is_one_space(body, s)) return true;
  for (int k = 0; k < n && can && s->rows != NONE; k++) {
    if (planted == ROWS_AT_ONCE) s->task[k].stage = 0;
    if (planted == ROWS_ARE_COLUMNS && s->task[k].reach == OVER_COLUMN) s->task[k].reach = OVER_ROW;
  }
  return can;
}

struct attempt {
  const char *plan;
  enum target_number target;
  int ndefinition;
  struct definition definition[2];
  const char *caught; /* what is said */
};

static void compile(const void *with)
{
  const struct attempt *a = with;
  static struct definition list[2];
  memcpy(list, a->definition, sizeof list);
  options.plan = a->plan;
  options.definition = list;
  options.ndefinition = a->ndefinition;
  target = &targets[a->target];
  graph_open();
  run_until(PASS_LAST);
}

static void is_caught(enum fault fault, const struct attempt *a, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    planted = NO_FAULT;
    passes(compile, &a[i]);
    planted = fault;
    refused(compile, &a[i], -SIGABRT, a[i].caught, NULL);
  }
}
#define CAUGHT(fault, ...)                                                                         \
  do {                                                                                             \
    static const struct attempt attempts[] = {__VA_ARGS__};                                        \
    is_caught(fault, attempts, sizeof attempts / sizeof *attempts);                                \
  } while (0)

static void test_overwriting(void **state)
{
  (void)state;
  CAUGHT(MAY_OVERWRITE,
         {.plan = "tests/equal/rows.lua", .caught = "it writes over what it still reads"},
         {.plan = "tests/equal/transformer.lua", .caught = "it writes over what it still reads"},
         {.plan = "tests/equal/means.lua", .caught = "it writes over what it still reads"});
}

static void test_views(void **state)
{
  (void)state;
  CAUGHT(SLICES_ARE_VIEWS, {.plan = "tests/equal/orders_moves.lua",
                            .ndefinition = 1,
                            .definition = {{"b", "2"}},
                            .caught = "it writes over what it still reads"});
}

static void test_orders(void **state)
{
  (void)state;
  CAUGHT(ALL_HAVE_PARTS, {.plan = "tests/equal/orders.lua",
                          .ndefinition = 2,
                          .definition = {{"dp", "2"}, {"tp", "2"}},
                          .caught = "its operands have dimension orders that it does not take"});
  CAUGHT(ANY_ORDER_IS_SHOWN,
         {.plan = "tests/equal/orders.lua",
          .ndefinition = 2,
          .definition = {{"dp", "2"}, {"tp", "2"}},
          .caught = "its operands have dimension orders that it does not take"});
}

static void test_kernels(void **state)
{
  (void)state;
  CAUGHT(ALL_IS_READ, {.plan = "tests/equal/means.lua",
                       .caught = "what is reduced to the kernel's end is read"});
  CAUGHT(ROWS_AT_ONCE,
         {.plan = "tests/equal/transformer.lua", .caught = "a row is read before it is reduced"},
         {.plan = "tests/equal/transformer.lua",
          .target = TARGET_CUDA,
          .caught = "a row is read before it is reduced"});
  CAUGHT(ROWS_ARE_COLUMNS, {.plan = "tests/equal/transformer.lua",
                            .caught = "reduces other dimensions than its kernel does"});
}

/* A product's result that is read elsewhere, too, is not its epilogue's to change. */
static void store_results(const void *with)
{
  compile(with);
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_epilogue)
      graph->value[graph->op[graph->op[i].body[0]].out].stored = true;
  check(PASS_LAST);
}

static void test_epilogues(void **state)
{
  static const struct attempt attempt = {.plan = "tests/equal/epilogues.lua",
                                         .target = TARGET_CUDA};
  (void)state;
  passes(compile, &attempt);
  refused(store_results, &attempt, -SIGABRT, "what a function is applied to is stored", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_overwriting), cmocka_unit_test(test_views),
      cmocka_unit_test(test_orders),      cmocka_unit_test(test_kernels),
      cmocka_unit_test(test_epilogues),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
