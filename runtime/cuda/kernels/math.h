// SPDX-License-Identifier: MIT
// Products of matrices by cuBLASLt on the program's stream, for generated CUDA.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "base/program.h"

// The operation on a product's result before it is stored. BIAS: adds a vector of length n to each
// row. RELU, GELU: that function of the sum; gelu in its tanh form. KEPT: also stores the argument
// of gelu in another matrix like c. GELU_BACK: the result times gelu's derivative at the kept
// argument. SUMS: also stores the sum of all rows of this. SUMS_OF_A, SUMS_OF_B: c is the plain
// product; also stores the sum over k of a, of length m, or of b, of length n. SCALED: times the
// two numbers in the places of bias and kept.
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
  SCALED,
};

// c[m, n] = a[m, k] b[k, n], row-major. A leading dimension of 0: no gaps between the rows; a batch
// of 0: one product.
struct product {
  char a = 'n', b = 'n'; // 't': stored transposed
  int m = 0, n = 0, k = 0;
  enum type of = F32, b_of = of;           // a; b, which has another type only in float8
  enum type makes = of;                    // c, and all that is stored or added
  bool tf32 = false;                       // reads 10 fraction bits of float32 operands
  int ld_c = 0, ld_a = 0, ld_b = 0;        // distance of stored rows in elements
  int batch = 0;                           // number of products, whose matrices are
  long step_c = 0, step_a = 0, step_b = 0; // so many elements apart
  enum epilogue then = NOTHING_MORE;
  struct prepared *prepared = NULL; // the runtime's
};

// The products of a step, and cuBLASLt's workspace in the rank's memory.
struct products {
  struct product *list;
  int count;
  size_t workspace, workspace_bytes;
  size_t copies_bytes = 0; // behind it: for operands of float8 that are transposed
};

// Chooses an algorithm for each, before the first step; forget_products releases them.
void prepare_products();
void forget_products();

// c = a b, or c += a b if `add` is true. bias: the vector that is added, or the sums; kept: the
// argument of gelu.
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
