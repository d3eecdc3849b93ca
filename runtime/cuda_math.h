// The products of matrices that generated CUDA calls: cuBLASLt's, on the program's stream.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "program.h"

// What is done to a product's result before it is stored. BIAS: what is `n` long is added to each
// row. RELU, GELU: the function of that; gelu in its tanh form. KEPT: what gelu was applied to is
// stored, too, in another matrix like c. GELU_BACK: the result times gelu's slope at what was kept.
// SUMS: the sum of all rows of this is stored, too. SUMS_OF_A, SUMS_OF_B: c is the plain product;
// the sum over k of a, which is m long, or of b, which is n long, is stored, too.
enum epilogue {
  NOTHING_MORE,
  BIAS,
  RELU,
  BIAS_RELU,
  GELU,
  BIAS_GELU,
  GELU_KEPT,
  BIAS_GELU_KEPT,
  GELU_BACK,
  GELU_BACK_SUMS,
  SUMS_OF_A,
  SUMS_OF_B,
};

// c[m, n] = a[m, k] b[k, n], row-major. What is 0 here: an operand has no gaps between its rows,
// and there is one product, not a batch of them.
struct product {
  char a = 'n', b = 'n'; // 't': stored transposed
  int m = 0, n = 0, k = 0;
  enum type of = F32, makes = of;          // a and b; c, and what else is stored or added
  bool tf32 = false;                       // of float32 operands 10 bits of the fraction are read
  int ld_c = 0, ld_a = 0, ld_b = 0;        // elements from a stored row to the next
  int batch = 0;                           // so many products, whose matrices begin
  long step_c = 0, step_a = 0, step_b = 0; // so many elements after each other's
  enum epilogue then = NOTHING_MORE;
  struct prepared *prepared = NULL; // the runtime's
};

// What step.cu says of its products, and where in the rank's memory cuBLASLt may work.
struct products {
  struct product *list;
  int count;
  size_t workspace, workspace_bytes;
};
extern const struct products products;

// Before the first step, and after the last: chooses an algorithm for each.
void prepare_products();
void forget_products();

// c = a b, or c += a b where `add` is true. bias: what is added, or the sums; kept: what gelu is,
// or was, applied to.
void multiply(const struct product *p, void *c, const void *a, const void *b, bool add, void *bias,
              void *kept);

static inline void matmul(const struct product *p, void *c, const void *a, const void *b,
                          void *bias = NULL, void *kept = NULL)
{
  multiply(p, c, a, b, false, bias, kept);
}

static inline void matmul_add(const struct product *p, void *c, const void *a, const void *b,
                              bool add = true)
{
  multiply(p, c, a, b, add, NULL, NULL);
}

#endif
