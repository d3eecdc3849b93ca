// The products of matrices that generated CUDA calls: cuBLASLt's, on the program's stream.
#ifndef CUDA_MATH_H
#define CUDA_MATH_H

#include "program.h"

// c[m, n] = a[m, k] b[k, n], row-major. What is 0 here: an operand has no gaps between its rows,
// and there is one product, not a batch of them.
struct product {
  char a = 'n', b = 'n'; // 't': stored transposed
  int m = 0, n = 0, k = 0;
  enum type of = F32, makes = F32;         // a and b, and c; sums are float32
  bool tf32 = false;                       // of float32 operands 10 bits of the fraction are read
  int ld_c = 0, ld_a = 0, ld_b = 0;        // elements from a stored row to the next
  int batch = 0;                           // so many products, whose matrices begin
  long step_c = 0, step_a = 0, step_b = 0; // so many elements after each other's
  struct prepared *prepared = NULL;        // the runtime's
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

// c = a b, or c += a b where `add` is true.
void multiply(const struct product *p, void *c, const void *a, const void *b, bool add);

static inline void matmul(const struct product *p, void *c, const void *a, const void *b)
{
  multiply(p, c, a, b, false);
}

static inline void matmul_add(const struct product *p, void *c, const void *a, const void *b,
                              bool add = true)
{
  multiply(p, c, a, b, add);
}

#endif
