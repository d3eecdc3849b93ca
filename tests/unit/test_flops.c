/* The floating-point operations of a row, against counts by hand. */
#include "target/target.h"
#include "unit.h"

static int input(const char *name, const char *shape)
{
  return given(BATCH, name, parse_shape(shape), (struct layout){0});
}

/* Of the operation that makes a value of this shape. */
static double flops_made(struct op op, const char *shape)
{
  op.module = NONE;
  op.line = 1;
  int made = append_op_shaped(op, parse_shape(shape));
  return flops_of(&graph->op[graph->value[made].op]);
}

static void test_rows(void **state)
{
  (void)state;
  new_graph(1, (int[]){1});
  int a = input("a", "4x6"), b = input("b", "6x5");
  struct op product = {.kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = "mk,kn->mn"};
  must(flops_made(product, "4x5") == 2. * 4 * 6 * 5, "a product of matrices");
  /* 8 images of 3 x 9 x 7 and 10 kernels of 3 x 3 x 2: sums of 3 x 3 x 2 products, 8 x 10 x 7 x 6
     of them. */
  int x = input("x", "8x3x9x7"), w = input("w", "10x3x3x2");
  struct op conv = {.kind = OP_conv2d, .nin = 2, .in = {x, w}, .number = {1, 1, 0, 0, 1, 1}};
  must(flops_made(conv, "8x10x7x6") == 2. * (8 * 10 * 7 * 6) * (3 * 3 * 2), "a convolution");
  /* In two groups each kernel sees half of the channels. */
  int y = input("y", "8x6x9x7");
  struct op halves = {.kind = OP_conv2d, .nin = 2, .in = {y, w}, .number = {1, 1, 0, 0, 1, 1}};
  must(flops_made(halves, "8x10x7x6") == 2. * (8 * 10 * 7 * 6) * (3 * 3 * 2),
       "a convolution in groups");
  must(flops_made((struct op){.kind = OP_relu, .nin = 1, .in = {x}}, "8x3x9x7") == 0, "no product");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
