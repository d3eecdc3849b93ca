// The products of matrices of a CUDA program (cuda_math.h), as cuBLASLt has them.
//
// cuBLASLt takes columns first: of row-major matrices it is given the transposed product,
// C^T = B^T A^T, so that its A is our b and its B is our a. The algorithm of each product is chosen
// once, by cuBLASLt's heuristics, the same on all ranks with the same GPU; it sums in one order, so
// that runs repeat bit for bit.
#include <cublasLt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "cuda_math.h"

#define CHECK_CUBLAS(call)                                                                         \
  do {                                                                                             \
    cublasStatus_t error_ = (call);                                                                \
    if (error_ != CUBLAS_STATUS_SUCCESS)                                                           \
      fail_call(__FILE__, __LINE__, #call, cublasLtGetStatusString(error_));                       \
  } while (0)

enum { ALIGNED = 16 }; // bytes; what the quick algorithms ask of matrices

struct prepared {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t aligned, any; // where all matrices begin at multiples of that, or anywhere
  bool takes_any;
  char told[96]; // which product it is
};

static cublasLtHandle_t library;

// ---- preparing ---------------------------------------------------------------------------------

static uint32_t bytes_of(enum type t)
{
  return t == BF16 ? 2 : 4;
}

// A matrix of so many rows, as it is stored, and columns.
static cublasLtMatrixLayout_t layout(enum type type, int rows, int columns, int ld, int batch,
                                     int64_t step)
{
  cublasLtMatrixLayout_t made;
  CHECK_CUBLAS(cublasLtMatrixLayoutCreate(&made, type == BF16 ? CUDA_R_16BF : CUDA_R_32F,
                                          (uint64_t)columns, (uint64_t)rows, ld ? ld : columns));
  if (batch) {
    int32_t count = batch;
    CHECK_CUBLAS(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count));
    CHECK_CUBLAS(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &step, sizeof step));
  }
  return made;
}

static void set_operand(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which,
                        char is)
{
  int32_t transposed = is == 't' ? CUBLAS_OP_T : CUBLAS_OP_N;
  CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(operation, which, &transposed, sizeof transposed));
}

static void describe(const struct product *p, struct prepared *made)
{
  bool ta = p->a == 't', tb = p->b == 't';
  CHECK_CUBLAS(cublasLtMatmulDescCreate(
      &made->operation, p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set_operand(made->operation, CUBLASLT_MATMUL_DESC_TRANSA, p->b);
  set_operand(made->operation, CUBLASLT_MATMUL_DESC_TRANSB, p->a);
  made->a = layout(p->of, ta ? p->k : p->m, ta ? p->m : p->k, p->ld_a, p->batch, p->step_a);
  made->b = layout(p->of, tb ? p->n : p->k, tb ? p->k : p->n, p->ld_b, p->batch, p->step_b);
  made->c = layout(p->makes, p->m, p->n, p->ld_c, p->batch, p->step_c);
}

static void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                   const void *is, size_t bytes)
{
  CHECK_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, is, bytes));
}

// The first that cuBLASLt's heuristics name; false where they name none. Parts of a sum are kept as
// float32, and put together in one order.
static bool choose(const struct product *p, const struct prepared *made, uint32_t aligned,
                   cublasLtMatmulAlgo_t *algorithm)
{
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  uint64_t most = products.workspace_bytes;
  uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint32_t of = aligned ? aligned : bytes_of(p->of), makes = aligned ? aligned : bytes_of(p->makes);
  int n = 0;
  CHECK_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of, sizeof of);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of, sizeof of);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &makes, sizeof makes);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &makes, sizeof makes);
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library, made->operation, made->b, made->a, made->c, made->c, preference, 1, &found, &n);
  CHECK_CUBLAS(cublasLtMatmulPreferenceDestroy(preference));
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) CHECK_CUBLAS(status);
  if (status != CUBLAS_STATUS_SUCCESS || !n || found.state != CUBLAS_STATUS_SUCCESS) return false;
  *algorithm = found.algo;
  return true;
}

static void tell(const struct product *p, char *text, size_t room)
{
  snprintf(text, room, "product %c%c, m %d, n %d, k %d, of %s, makes %s, batch %d", p->a, p->b, p->m,
           p->n, p->k, p->of == BF16 ? "bfloat16" : "float32",
           p->makes == BF16 ? "bfloat16" : "float32", p->batch);
}

static void fail_product(const struct product *p, const char *why)
{
  char which[96], text[256];
  tell(p, which, sizeof which);
  snprintf(text, sizeof text, "%s: %s", why, which);
  fail_call(__FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic", text);
}

static struct prepared *prepare(const struct product *p)
{
  struct prepared *made = (struct prepared *)calloc(1, sizeof *made);
  if (!made) fail_product(p, "no memory");
  tell(p, made->told, sizeof made->told);
  describe(p, made);
  made->takes_any = choose(p, made, 0, &made->any);
  if (!choose(p, made, ALIGNED, &made->aligned)) fail_product(p, "cuBLASLt has no algorithm");
  return made;
}

void prepare_products()
{
  CHECK_CUBLAS(cublasLtCreate(&library));
  for (int i = 0; i < products.count; i++) products.list[i].prepared = prepare(&products.list[i]);
}

void forget_products()
{
  for (int i = 0; i < products.count; i++) {
    struct prepared *made = products.list[i].prepared;
    cublasLtMatrixLayoutDestroy(made->a);
    cublasLtMatrixLayoutDestroy(made->b);
    cublasLtMatrixLayoutDestroy(made->c);
    cublasLtMatmulDescDestroy(made->operation);
    free(made);
    products.list[i].prepared = NULL;
  }
  cublasLtDestroy(library);
}

// ---- multiplying -------------------------------------------------------------------------------

static bool is_aligned(const void *c, const void *a, const void *b)
{
  return (((uintptr_t)c | (uintptr_t)a | (uintptr_t)b) & (ALIGNED - 1)) == 0;
}

void multiply(const struct product *p, void *c, const void *a, const void *b, bool add)
{
  const struct prepared *with = p->prepared;
  const float one = 1, beta = add ? 1 : 0;
  const bool aligned = is_aligned(c, a, b);
  if (!aligned && !with->takes_any)
    fail_product(p, "cuBLASLt has no algorithm for matrices that begin anywhere");
  note(with->told, stream);
  CHECK_CUBLAS(cublasLtMatmul(library, with->operation, &one, b, with->b, a, with->a, &beta, c,
                              with->c, c, with->c, aligned ? &with->aligned : &with->any,
                              (char *)*program.memory + products.workspace,
                              products.workspace_bytes, stream));
}
