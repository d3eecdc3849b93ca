/* The checks share no predicate with what they check: a pass whose own question is answered wrongly
   is caught. The linker puts __wrap_may_overwrite in the place of the pass memory's may_overwrite.
 */
#include "driver/driver.h"
#include "unit.h"

bool __real_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);
bool __wrap_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out);
static bool is_wrong;

/* Whatever a kernel reads, when and where, it may write over it. */
bool __wrap_may_overwrite(const struct memory_plan *plan, const struct op *op, int in, int out)
{
  bool fits = have_same_parts(in, out) && op->kind == OP_fused;
  return (is_wrong && fits) || __real_may_overwrite(plan, op, in, out);
}

static void compile(const void *path)
{
  options.plan = path;
  graph_open();
  run_until(PASS_LAST);
}

static void test_overwriting(void **state)
{
  (void)state;
  static const char *const plans[] = {"tests/equal/rows.lua", "tests/equal/transformer.lua",
                                      "tests/equal/means.lua"};
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    is_wrong = false;
    passes(compile, plans[i]);
    is_wrong = true;
    refused(compile, plans[i], -SIGABRT, "it writes over what it still reads", NULL);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_overwriting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
