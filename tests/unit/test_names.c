/* Names of kernels and of variables: no variable has a name that a kernel may have, whatever its
   number. */
#include "unit.h"

#include "naming/naming.h"

static void test_variables_spare_kernels(void **state)
{
  (void)state;
  graph_open();
  struct scope scope = {.local = true};
  reserve_kernel_name("relu_4");
  reserve_kernel_name("attention_4x4x64x16");
  reserve_kernel_name("twice");
  reserve_kernel_name("cast_2");
  static const char *const expected[][2] = {
      {"relu", "relu"},
      {"relu", "relu_2"},
      {"relu", "relu_3"},
      {"relu", "relu_5"}, /* relu_4 is the kernel */
      {"relu_4", "own_relu_4"},
      {"relu_4", "own_relu_4_2"},
      {"relu_4_2", "own_relu_4_2_2"}, /* the kernel's second of that name */
      {"relu_40", "relu_40"},
      {"attention_4x4x64x16_2nd", "own_attention_4x4x64x16_2nd"}, /* its second function */
      {"attention_4x4x64x16_out", "attention_4x4x64x16_out"},
      {"twice", "own_twice"},
      {"cast", "cast"},
      {"cast", "cast_3"},
      {"twice_more", "twice_more"},
      {"at_add", "own_at_add"}, /* at_add() is that of an activation "add" */
  };
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    assert_string_equal(unique_name(&scope, expected[i][0]), expected[i][1]);
}

static void test_members_may_be_named_so(void **state)
{
  (void)state;
  struct scope members = {0};
  assert_string_equal(unique_name(&members, "relu_4"), "relu_4");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_variables_spare_kernels),
                                     cmocka_unit_test(test_members_may_be_named_so)};
  return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
