// A stand-in for CUDA that exists for tests only: cuBLAS over CBLAS, float32 only.
#include "cublas_v2.h"
#include "stand_in.h"

#include <cblas.h>
#include <set>

struct cublasContext {
  cudaStream_t stream;
};

using namespace cuda_on_cpu;

namespace
{
std::set<cublasHandle_t> handles;

void check_handle(const char *call, cublasHandle_t handle)
{
  host_call(call);
  if (!handles.count(handle)) fail(call, "%p is no live handle", (void *)handle);
}

CBLAS_TRANSPOSE transpose(const char *call, cublasOperation_t op)
{
  switch (op) {
  case CUBLAS_OP_N:
    return CblasNoTrans;
  case CUBLAS_OP_T:
    return CblasTrans;
  case CUBLAS_OP_C:
    return CblasTrans; // of real numbers
  }
  fail(call, "unknown operation %d", (int)op);
}

// A matrix as it lies in memory, column after column, and how far the next one of a batch is.
struct matrix {
  const char *name;
  const float *at;
  int rows, columns, ld;
  long long stride;
};

stretches columns_of(const matrix &x, int batch)
{
  return {reinterpret_cast<const char *>(x.at + batch * x.stride), (size_t)x.rows * sizeof(float),
          (size_t)x.ld * sizeof(float), (size_t)x.columns};
}

void check_matrix(const char *call, const matrix &x, int batches)
{
  if (x.ld < (x.rows > 1 ? x.rows : 1))
    fail(call, "leading dimension %d of %s, which has %d rows", x.ld, x.name, x.rows);
  for (int i = 0; i < batches; i++) {
    stretches part = columns_of(x, i);
    need_device(call, x.name, part.at, part.extent());
  }
}

void check_apart(const char *call, const matrix &c, const matrix &x, int batches)
{
  for (int i = 0; i < batches; i++)
    for (int j = 0; j < batches; j++)
      if (!(&c == &x && i == j) && overlap(columns_of(c, i), columns_of(x, j)))
        fail(call, "c overlaps %s%s", x.name, &c == &x ? " of another batch" : "");
}

float scalar(const char *call, const char *name, const float *p)
{
  need_host(call, name, p, sizeof *p);
  return *p;
}

struct product {
  cublasOperation_t op_a, op_b;
  int m, n, k;
  const float *alpha, *beta;
  int batches;
};

cublasStatus_t multiply(const char *call, cublasHandle_t handle, const product &p, const float *a,
                        int lda, long long stride_a, const float *b, int ldb, long long stride_b,
                        float *c, int ldc, long long stride_c)
{
  check_handle(call, handle);
  CBLAS_TRANSPOSE op_a = transpose(call, p.op_a), op_b = transpose(call, p.op_b);
  bool flip_a = op_a == CblasTrans, flip_b = op_b == CblasTrans;
  if (p.m < 0 || p.n < 0 || p.k < 0 || p.batches < 0)
    fail(call, "sizes m %d, n %d, k %d, batches %d", p.m, p.n, p.k, p.batches);
  matrix x = {"a", a, flip_a ? p.k : p.m, flip_a ? p.m : p.k, lda, stride_a};
  matrix y = {"b", b, flip_b ? p.n : p.k, flip_b ? p.k : p.n, ldb, stride_b};
  matrix z = {"c", c, p.m, p.n, ldc, stride_c};
  int batches = p.m && p.n ? p.batches : 0; // else there is nothing to compute, nor to look at
  check_matrix(call, x, batches);
  check_matrix(call, y, batches);
  check_matrix(call, z, batches);
  check_apart(call, z, x, batches);
  check_apart(call, z, y, batches);
  check_apart(call, z, z, batches);
  float alpha = scalar(call, "alpha", p.alpha), beta = scalar(call, "beta", p.beta);
  on_stream(call, handle->stream, [=, m = p.m, n = p.n, k = p.k] {
    for (int i = 0; i < batches; i++) {
      reads(columns_of(x, i));
      reads(columns_of(y, i));
      writes(columns_of(z, i));
    }
    for (int i = 0; i < batches; i++)
      cblas_sgemm(CblasColMajor, op_a, op_b, m, n, k, alpha, a + i * stride_a, lda,
                  b + i * stride_b, ldb, beta, c + i * stride_c, ldc);
  });
  return CUBLAS_STATUS_SUCCESS;
}

void need_float(const char *call, const char *name, cudaDataType type)
{
  if (type != CUDA_R_32F)
    fail(call, "type %d of %s; the stand-in multiplies CUDA_R_32F only", (int)type, name);
}

void need_float_product(const char *call, cudaDataType a, cudaDataType b, cudaDataType c,
                        cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
  need_float(call, "a", a);
  need_float(call, "b", b);
  need_float(call, "c", c);
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC &&
      compute != CUBLAS_COMPUTE_32F_FAST_TF32)
    fail(call, "compute type %d; the stand-in computes in 32F only", (int)compute);
  if (algorithm != CUBLAS_GEMM_DEFAULT && algorithm != CUBLAS_GEMM_DEFAULT_TENSOR_OP)
    fail(call, "unknown algorithm %d", (int)algorithm);
}

struct status_text {
  cublasStatus_t status;
  const char *name, *text;
};

const status_text status_texts[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the architecture of the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR",
     "the functionality requested requires some license"},
};

const status_text &find_status(const char *call, cublasStatus_t status)
{
  for (const status_text &s : status_texts)
    if (s.status == status) return s;
  fail(call, "status %d is unknown here", (int)status);
}
} // namespace

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
  host_call("cublasCreate");
  *handle = new cublasContext{};
  handles.insert(*handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
  check_handle("cublasDestroy", handle);
  handles.erase(handle);
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
  check_handle("cublasSetStream", handle);
  check_stream("cublasSetStream", stream);
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t *stream)
{
  check_handle("cublasGetStream", handle);
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

// All modes known allow float32 arithmetic, which is what is done here in any of them.
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
  check_handle("cublasSetMathMode", handle);
  int base = (int)mode & ~(int)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  if (base != CUBLAS_DEFAULT_MATH && base != CUBLAS_PEDANTIC_MATH &&
      base != CUBLAS_TF32_TENSOR_OP_MATH)
    fail("cublasSetMathMode", "unknown mode %d", (int)mode);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
  check_handle("cublasSetPointerMode", handle);
  if (mode != CUBLAS_POINTER_MODE_HOST)
    fail("cublasSetPointerMode", "mode %d; the stand-in reads alpha and beta on the host only",
         (int)mode);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
  check_handle("cublasSetAtomicsMode", handle);
  if (mode != CUBLAS_ATOMICS_NOT_ALLOWED && mode != CUBLAS_ATOMICS_ALLOWED)
    fail("cublasSetAtomicsMode", "unknown mode %d", (int)mode);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t bytes)
{
  check_handle("cublasSetWorkspace", handle);
  need_device("cublasSetWorkspace", "the workspace", workspace, bytes);
  if (reinterpret_cast<uintptr_t>(workspace) % 256)
    fail("cublasSetWorkspace", "the workspace is not aligned to 256 bytes");
  return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusName(cublasStatus_t status)
{
  return find_status("cublasGetStatusName", status).name;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
  return find_status("cublasGetStatusString", status).text;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                           int m, int n, int k, const float *alpha, const float *a, int lda,
                           const float *b, int ldb, const float *beta, float *c, int ldc)
{
  return multiply("cublasSgemm", handle, {op_a, op_b, m, n, k, alpha, beta, 1}, a, lda, 0, b, ldb,
                  0, c, ldc, 0);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a,
                                         cublasOperation_t op_b, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int batches)
{
  return multiply("cublasSgemmStridedBatched", handle, {op_a, op_b, m, n, k, alpha, beta, batches},
                  a, lda, stride_a, b, ldb, stride_b, c, ldc, stride_c);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType type_a, int lda, const void *b, cudaDataType type_b,
                            int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
  need_float_product("cublasGemmEx", type_a, type_b, type_c, compute, algorithm);
  return multiply(
      "cublasGemmEx", handle,
      {op_a, op_b, m, n, k, static_cast<const float *>(alpha), static_cast<const float *>(beta), 1},
      static_cast<const float *>(a), lda, 0, static_cast<const float *>(b), ldb, 0,
      static_cast<float *>(c), ldc, 0);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                          cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType type_a,
                                          int lda, long long stride_a, const void *b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void *beta, void *c, cudaDataType type_c, int ldc,
                                          long long stride_c, int batches,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
  need_float_product("cublasGemmStridedBatchedEx", type_a, type_b, type_c, compute, algorithm);
  return multiply("cublasGemmStridedBatchedEx", handle,
                  {op_a, op_b, m, n, k, static_cast<const float *>(alpha),
                   static_cast<const float *>(beta), batches},
                  static_cast<const float *>(a), lda, stride_a, static_cast<const float *>(b), ldb,
                  stride_b, static_cast<float *>(c), ldc, stride_c);
}
