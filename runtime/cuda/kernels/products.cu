// SPDX-License-Identifier: MIT
// The products of a CUDA program (cuda/kernels/math.h), by cuBLASLt.
//
// cuBLASLt is column-major: for row-major matrices it computes the transposed product, C^T = B^T
// A^T, so its A is our b and its B is our a. cuBLASLt's heuristics choose the algorithm of each
// product once, the same on all ranks with the same GPU; it sums in one order, so that runs repeat
// bit for bit. If they have no algorithm with an epilogue, kernels of this file compute the
// epilogue. If they have none of float8 for operands as they are stored, as before compute
// capability 10, a kernel transposes those whose terms are not side by side.
#include <cublasLt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/elements.h"
#include "cuda/kernels/math.h"

#define CHECK_CUBLAS(call)                                                                         \
  do {                                                                                             \
    cublasStatus_t error_ = (call);                                                                \
    if (error_ != CUBLAS_STATUS_SUCCESS)                                                           \
      fail_call(__FILE__, __LINE__, #call, cublasLtGetStatusString(error_));                       \
  } while (0)

enum { ALIGNED = 16, BLOCK = 256 };     // bytes, required by the fast algorithms; threads
enum { TILE = 64, COPY_ALIGNED = 256 }; // bytes: the side of what a block transposes

struct prepared {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t aligned, any; // for matrices with that alignment, and for any
  bool takes_any;
  char text[96];           // a description of the product
  bool apart;              // kernels compute the epilogue
  bool copies_a, copies_b; // of float8: the operand is transposed before
};

static cublasLtHandle_t library;

// ---- preparing ---------------------------------------------------------------------------------

static uint32_t bytes_of(enum type t)
{
  return t == F32 ? 4 : t == BF16 ? 2 : 1;
}

static cudaDataType_t library_type(enum type t)
{
  return t == E4M3   ? CUDA_R_8F_E4M3
         : t == E5M2 ? CUDA_R_8F_E5M2
         : t == BF16 ? CUDA_R_16BF
                     : CUDA_R_32F;
}

static const char *name_of(enum type t)
{
  return t == E4M3 ? "float8 E4M3" : t == E5M2 ? "float8 E5M2" : t == BF16 ? "bfloat16" : "float32";
}

// A stored matrix of so many rows and columns.
static cublasLtMatrixLayout_t layout(enum type type, int rows, int columns, int ld, int batch,
                                     int64_t step)
{
  cublasLtMatrixLayout_t made;
  CHECK_CUBLAS(cublasLtMatrixLayoutCreate(&made, library_type(type), (uint64_t)columns,
                                          (uint64_t)rows, ld ? ld : columns));
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

static void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which,
                const void *to, size_t bytes)
{
  CHECK_CUBLAS(cublasLtMatmulDescSetAttribute(operation, which, to, bytes));
}

static bool has_bias(enum epilogue e)
{
  return e != NOTHING_MORE && e != RELU && e != GELU && e != GELU_KEPT && e != GELU_BACK &&
         e != SCALED;
}

static bool keeps(enum epilogue e)
{
  return e == GELU_KEPT || e == BIAS_GELU_KEPT || e == GELU_BACK || e == GELU_BACK_SUMS;
}

// The heuristics take the alignment of the bias and of the kept argument into account.
static void describe_epilogue(const struct product *p, struct prepared *made, uintptr_t aligned)
{
  static const cublasLtEpilogue_t known[] = {
      CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU,
      CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADB,        CUBLASLT_EPILOGUE_BGRADA,
      CUBLASLT_EPILOGUE_DEFAULT};
  const uint32_t epilogue = made->apart ? CUBLASLT_EPILOGUE_DEFAULT : known[p->then];
  const int64_t ld = p->n, step = p->step_c; // the kept argument has the layout of c
  set(made->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (made->apart) return;
  if (has_bias(p->then))
    set(made->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &aligned, sizeof aligned);
  if (!keeps(p->then)) return;
  set(made->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aligned, sizeof aligned);
  set(made->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
  if (p->batch)
    set(made->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &step, sizeof step);
}

static void describe(const struct product *p, struct prepared *made)
{
  bool ta = p->a == 't' && !made->copies_a, tb = p->b == 't' || made->copies_b;
  const int ld_a = made->copies_a ? 0 : p->ld_a, ld_b = made->copies_b ? 0 : p->ld_b;
  const int64_t step_a = made->copies_a ? (int64_t)p->m * p->k : p->step_a;
  const int64_t step_b = made->copies_b ? (int64_t)p->n * p->k : p->step_b;
  CHECK_CUBLAS(cublasLtMatmulDescCreate(
      &made->operation, p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set_operand(made->operation, CUBLASLT_MATMUL_DESC_TRANSA, tb ? 't' : 'n');
  set_operand(made->operation, CUBLASLT_MATMUL_DESC_TRANSB, ta ? 't' : 'n');
  made->a = layout(p->of, ta ? p->k : p->m, ta ? p->m : p->k, ld_a, p->batch, step_a);
  made->b = layout(p->b_of, tb ? p->n : p->k, tb ? p->k : p->n, ld_b, p->batch, step_b);
  made->c = layout(p->makes, p->m, p->n, p->ld_c, p->batch, p->step_c);
}

static void destroy(const struct prepared *made)
{
  cublasLtMatrixLayoutDestroy(made->a);
  cublasLtMatrixLayoutDestroy(made->b);
  cublasLtMatrixLayoutDestroy(made->c);
  cublasLtMatmulDescDestroy(made->operation);
}

static void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                   const void *is, size_t bytes)
{
  CHECK_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, is, bytes));
}

// The first that cuBLASLt's heuristics return; false if they return none. Split sums are kept as
// float32, and added in one order.
static bool choose(const struct product *p, struct prepared *made, uint32_t aligned,
                   cublasLtMatmulAlgo_t *algorithm)
{
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t found;
  uint64_t most = program->products->workspace_bytes;
  uint32_t sums = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint32_t of = aligned ? aligned : bytes_of(p->of), makes = aligned ? aligned : bytes_of(p->makes);
  int n = 0;
  describe_epilogue(p, made, makes);
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
  snprintf(text, room, "product %c%c, m %d, n %d, k %d, of %s, makes %s, batch %d", p->a, p->b,
           p->m, p->n, p->k, name_of(p->of), name_of(p->makes), p->batch);
}

static void fail_product(const struct product *p, const char *why)
{
  char which[96], text[256];
  tell(p, which, sizeof which);
  snprintf(text, sizeof text, "%s: %s", why, which);
  fail_call(__FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic", text);
}

// The bytes of a transposed operand with so many columns.
static size_t bytes_of_copy(const struct product *p, int columns)
{
  const size_t bytes = (size_t)p->k * (size_t)columns * (size_t)(p->batch ? p->batch : 1);
  return (bytes + COPY_ALIGNED - 1) / COPY_ALIGNED * COPY_ALIGNED;
}

// All algorithms of float8 need aligned matrices. Before compute capability 10 they also need the
// terms of each operand side by side.
static void prepare_float8(const struct product *p, struct prepared *made)
{
  describe(p, made);
  if (choose(p, made, ALIGNED, &made->aligned)) return;
  destroy(made);
  made->copies_a = p->a == 't';
  made->copies_b = p->b == 'n';
  if ((made->copies_a ? bytes_of_copy(p, p->m) : 0) +
          (made->copies_b ? bytes_of_copy(p, p->n) : 0) >
      program->products->copies_bytes)
    fail_product(p, "no room for transposed operands");
  describe(p, made);
  if (!choose(p, made, ALIGNED, &made->aligned))
    fail_product(p,
                 "cuBLASLt has no algorithm: float8 takes a GPU of compute capability 8.9 or more");
}

static struct prepared *prepare(const struct product *p)
{
  struct prepared *made = (struct prepared *)calloc(1, sizeof *made);
  if (!made) fail_product(p, "no memory");
  tell(p, made->text, sizeof made->text);
  if (bytes_of(p->of) == 1) {
    prepare_float8(p, made);
    return made;
  }
  describe(p, made);
  made->apart = p->then != NOTHING_MORE && !choose(p, made, 0, &made->any);
  made->takes_any = choose(p, made, 0, &made->any);
  if (!choose(p, made, ALIGNED, &made->aligned)) fail_product(p, "cuBLASLt has no algorithm");
  return made;
}

void prepare_products()
{
  CHECK_CUBLAS(cublasLtCreate(&library));
  const struct products *all = program->products;
  for (int i = 0; i < all->count; i++) all->list[i].prepared = prepare(&all->list[i]);
}

void forget_products()
{
  const struct products *all = program->products;
  for (int i = 0; i < all->count; i++) {
    struct prepared *made = all->list[i].prepared;
    destroy(made);
    free(made);
    all->list[i].prepared = NULL;
  }
  cublasLtDestroy(library);
}

// ---- epilogues by kernels ----------------------------------------------------------------------

__device__ static inline float read(const float *x)
{
  return *x;
}
__device__ static inline float read(const bf16 *x)
{
  return bf16_to_float(*x);
}
__device__ static inline void write(float *x, float y)
{
  *x = y;
}
__device__ static inline void write(bf16 *x, float y)
{
  *x = float_to_bf16(y);
}

// For `count` elements, in rows of n.
template <class T>
__global__ void finish(T *c, const T *bias, T *kept, long count, int n, enum epilogue then)
{
  const long i = (long)blockIdx.x * BLOCK + threadIdx.x;
  if (i >= count) return;
  float x = read(c + i);
  if (then == GELU_BACK || then == GELU_BACK_SUMS) {
    write(c + i, x * gelu_tanh_slope(read(kept + i)));
    return;
  }
  if (bias) x += read(bias + i % n);
  if (kept) write(kept + i, x);
  if (then == RELU || then == BIAS_RELU)
    x = x < 0 ? 0 : x;
  else if (then != BIAS)
    x = 0.5f * x * (1 + tanhf(0.79788456f * x * (1 + 0.044715f * x * x)));
  write(c + i, x);
}

// to[j] = the sum of x[j step + i other], i < terms.
template <class T, class S>
__global__ void sum_over(S *to, const T *x, int count, int terms, long step, long other)
{
  const int j = (int)(blockIdx.x * BLOCK + threadIdx.x);
  if (j >= count) return;
  float sum = 0;
  for (int i = 0; i < terms; i++) sum += read(x + j * step + i * other);
  write(to + j, sum);
}

static int blocks_for(long count)
{
  return (int)((count + BLOCK - 1) / BLOCK);
}

template <class T, class S>
static void sum_terms(const struct product *p, S *to, const T *a, const T *b)
{
  const bool of_a = p->then == SUMS_OF_A, transposed = (of_a ? p->a : p->b) == 't';
  const int count = of_a ? p->m : p->n;
  const bool side_by_side = transposed == of_a; // those of one term
  const int tight = side_by_side ? count : p->k, gaps = of_a ? p->ld_a : p->ld_b;
  const long ld = gaps ? gaps : tight;
  const auto kernel = sum_over<T, S>;
  LAUNCH(kernel, blocks_for(count), BLOCK, stream)
  (to, of_a ? a : b, count, p->k, side_by_side ? 1 : ld, side_by_side ? ld : 1);
}

template <class T> static void finish_rows(const struct product *p, T *c, T *bias, T *kept)
{
  const long count = (long)p->m * p->n;
  const auto kernel = finish<T>;
  const auto sum = sum_over<T, T>;
  const int blocks = blocks_for(count);
  for (int i = 0; i < (p->batch ? p->batch : 1); i++) {
    T *const before = kept ? kept + i * p->step_c : kept, *const made = c + i * p->step_c;
    LAUNCH(kernel, blocks, BLOCK, stream)(made, bias, before, count, p->n, p->then);
  }
  if (p->then != GELU_BACK_SUMS) return;
  LAUNCH(sum, blocks_for(p->n), BLOCK, stream)(bias, (const T *)c, p->n, p->m, 1, p->n);
}

static void finish_apart(const struct product *p, void *c, const void *a, const void *b, void *bias,
                         void *kept)
{
  const bool sums = p->then == SUMS_OF_A || p->then == SUMS_OF_B;
  if (sums && p->of == F32)
    sum_terms(p, (float *)bias, (const float *)a, (const float *)b);
  else if (sums && p->makes == F32)
    sum_terms(p, (float *)bias, (const bf16 *)a, (const bf16 *)b);
  else if (sums)
    sum_terms(p, (bf16 *)bias, (const bf16 *)a, (const bf16 *)b);
  else if (p->makes == F32)
    finish_rows(p, (float *)c, (float *)bias, (float *)kept);
  else
    finish_rows(p, (bf16 *)c, (bf16 *)bias, (bf16 *)kept);
}

// ---- transposing --------------------------------------------------------------------------------

// to[columns][rows] = from[rows][columns], with ld between rows; all are multiples of four.
__global__ void transpose_bytes(unsigned char *to, const unsigned char *from, int rows, int columns,
                                long ld)
{
  __shared__ unsigned char tile[TILE][TILE + 4];
  const int x = (int)threadIdx.x % 16 * 4, y = (int)threadIdx.x / 16;
  const int row = (int)blockIdx.y * TILE, column = (int)blockIdx.x * TILE;
  for (int i = y; i < TILE; i += 16) {
    if (row + i >= rows || column + x >= columns) continue;
    *(uchar4 *)&tile[i][x] = *(const uchar4 *)(from + (row + i) * ld + column + x);
  }
  __syncthreads();
  for (int i = y; i < TILE; i += 16) {
    if (column + i >= columns || row + x >= rows) continue;
    *(uchar4 *)(to + (long)(column + i) * rows + row + x) =
        make_uchar4(tile[x][i], tile[x + 1][i], tile[x + 2][i], tile[x + 3][i]);
  }
}

// A copy of the operand, which has rows of so many columns, with its terms side by side; *room
// moves behind it.
static const void *transposed(const struct product *p, char **room, const void *from, int columns,
                              int ld, long step)
{
  const dim3 blocks((unsigned)(columns + TILE - 1) / TILE, (unsigned)(p->k + TILE - 1) / TILE);
  char *to = *room;
  for (int i = 0; i < (p->batch ? p->batch : 1); i++) LAUNCH(transpose_bytes, blocks, BLOCK, stream)
  ((unsigned char *)to + (long)p->k * columns * i, (const unsigned char *)from + i * step, p->k,
   columns, ld ? ld : columns);
  *room += bytes_of_copy(p, columns);
  return to;
}

// ---- multiplying -------------------------------------------------------------------------------

static bool is_aligned(const void *c, const void *a, const void *b, const void *bias,
                       const void *kept)
{
  return (((uintptr_t)c | (uintptr_t)a | (uintptr_t)b | (uintptr_t)bias | (uintptr_t)kept) &
          (ALIGNED - 1)) == 0;
}

static void point_epilogue(const struct product *p, void *bias, void *kept)
{
  cublasLtMatmulDesc_t operation = p->prepared->operation;
  if (p->then == SCALED) { // cuBLASLt's A is our b
    set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &kept, sizeof kept);
    set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &bias, sizeof bias);
  }
  if (has_bias(p->then)) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (keeps(p->then)) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &kept, sizeof kept);
}

void multiply(const struct product *p, void *c, const void *a, const void *b, bool add, void *bias,
              void *kept)
{
  const struct products *all = program->products;
  const struct prepared *with = p->prepared;
  const float one = 1, beta = add ? 1 : 0;
  const bool scaled = p->then == SCALED;
  char *copies = (char *)rank_memory + all->workspace + all->workspace_bytes;
  if (with->copies_a) a = transposed(p, &copies, a, p->m, p->ld_a, p->step_a);
  if (with->copies_b) b = transposed(p, &copies, b, p->n, p->ld_b, p->step_b);
  const bool aligned = is_aligned(c, a, b, scaled ? NULL : bias, scaled ? NULL : kept);
  if (!aligned && !with->takes_any)
    fail_product(p, "cuBLASLt has no algorithm for matrices that begin anywhere");
  note(with->text, stream);
  if (!with->apart) point_epilogue(p, bias, kept);
  CHECK_CUBLAS(cublasLtMatmul(library, with->operation, &one, b, with->b, a, with->a, &beta, c,
                              with->c, c, with->c, aligned ? &with->aligned : &with->any,
                              (char *)rank_memory + all->workspace, all->workspace_bytes, stream));
  if (with->apart && p->then != NOTHING_MORE) finish_apart(p, c, a, b, bias, kept);
}
