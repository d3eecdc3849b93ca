// The products of cuBLAS on the stand-in, against loops: all transposes, leading dimensions,
// batches, and matrices that lie interleaved.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "check.h"

#include <cmath>
#include <vector>

typedef std::vector<float> floats;

static cublasHandle_t handle;

static floats some(size_t count, int seed)
{
  floats x(count);
  for (size_t i = 0; i < count; i++) x[i] = (float)((i * 37 + (size_t)seed * 11) % 19) / 8 - 1;
  return x;
}

static float *to_device(const floats &x)
{
  float *at;
  CHECK(cudaMalloc((void **)&at, x.size() * 4) == cudaSuccess);
  CHECK(cudaMemcpy(at, x.data(), x.size() * 4, cudaMemcpyHostToDevice) == cudaSuccess);
  return at;
}

struct shape {
  bool flip_a, flip_b;
  int m, n, k, lda, ldb, ldc, batches;
  long long stride_a, stride_b, stride_c;
};

static void multiply(const shape &s, float alpha, const floats &a, const floats &b, float beta,
                     floats &c)
{
  for (int z = 0; z < s.batches; z++)
    for (int i = 0; i < s.m; i++)
      for (int j = 0; j < s.n; j++) {
        double sum = 0;
        for (int p = 0; p < s.k; p++) {
          long long at_a = z * s.stride_a + (s.flip_a ? i * s.lda + p : p * s.lda + i);
          long long at_b = z * s.stride_b + (s.flip_b ? p * s.ldb + j : j * s.ldb + p);
          sum += (double)a[(size_t)at_a] * b[(size_t)at_b];
        }
        float &to = c[(size_t)(z * s.stride_c + j * s.ldc + i)];
        to = (float)(alpha * sum + (beta != 0 ? (double)beta * to : 0));
      }
}

// how: 0 cublasSgemm or its batched form, 1 the Ex form
static void call(const shape &s, int how, float alpha, const float *a, const float *b, float beta,
                 float *c)
{
  cublasOperation_t op_a = s.flip_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t op_b = s.flip_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasStatus_t status;
  if (s.batches == 1 && how == 0)
    status =
        cublasSgemm(handle, op_a, op_b, s.m, s.n, s.k, &alpha, a, s.lda, b, s.ldb, &beta, c, s.ldc);
  else if (s.batches == 1)
    status =
        cublasGemmEx(handle, op_a, op_b, s.m, s.n, s.k, &alpha, a, CUDA_R_32F, s.lda, b, CUDA_R_32F,
                     s.ldb, &beta, c, CUDA_R_32F, s.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  else if (how == 0)
    status =
        cublasSgemmStridedBatched(handle, op_a, op_b, s.m, s.n, s.k, &alpha, a, s.lda, s.stride_a,
                                  b, s.ldb, s.stride_b, &beta, c, s.ldc, s.stride_c, s.batches);
  else
    status = cublasGemmStridedBatchedEx(handle, op_a, op_b, s.m, s.n, s.k, &alpha, a, CUDA_R_32F,
                                        s.lda, s.stride_a, b, CUDA_R_32F, s.ldb, s.stride_b, &beta,
                                        c, CUDA_R_32F, s.ldc, s.stride_c, s.batches,
                                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  CHECK(status == CUBLAS_STATUS_SUCCESS);
}

// The elements between the matrices must come out untouched: c is compared whole.
static void compare(const shape &s, const floats &a, const floats &b, const floats &c)
{
  const float scales[3][2] = {{1, 0}, {0.5f, 1}, {-2, 0.25f}};
  for (const auto &scale : scales)
    for (int how = 0; how < 2; how++) {
      floats want = c, got(c.size());
      multiply(s, scale[0], a, b, scale[1], want);
      float *x = to_device(a), *y = to_device(b), *z = to_device(c);
      call(s, how, scale[0], x, y, scale[1], z);
      CHECK(cudaMemcpy(got.data(), z, got.size() * 4, cudaMemcpyDeviceToHost) == cudaSuccess);
      for (size_t i = 0; i < got.size(); i++) CHECK(fabsf(got[i] - want[i]) < 1e-4f);
      cudaFree(x), cudaFree(y), cudaFree(z);
    }
}

static void test_shapes()
{
  const int sizes[][3] = {{1, 1, 1}, {16, 20, 10}, {5, 20, 16}, {7, 3, 33}, {1, 9, 4}, {6, 1, 2}};
  for (const auto &size : sizes)
    for (int flips = 0; flips < 4; flips++)
      for (int more = 0; more < 4; more += 3)
        for (int batches = 1; batches <= 3; batches += 2) {
          shape s = {
              flips % 2 != 0, flips / 2 != 0, size[0], size[1], size[2], 0, 0, 0, batches, 0, 0, 0};
          s.lda = (s.flip_a ? s.k : s.m) + more;
          s.ldb = (s.flip_b ? s.n : s.k) + more;
          s.ldc = s.m + more;
          s.stride_a = (long long)s.lda * (s.flip_a ? s.m : s.k) + more;
          s.stride_b = (long long)s.ldb * (s.flip_b ? s.k : s.n);
          s.stride_c = (long long)s.ldc * s.n + more;
          compare(s, some((size_t)(s.stride_a * batches), 1),
                  some((size_t)(s.stride_b * batches), 2), some((size_t)(s.stride_c * batches), 3));
        }
}

// Three heads side by side in each row, and one b for all of them.
static void test_interleaved()
{
  const int heads = 3, wide = 4, rows = 5, k = 6;
  shape s = {false, false, wide, rows, k, heads * wide, k, heads * wide, heads, wide, 0, wide};
  compare(s, some((size_t)(heads * wide * k), 1), some((size_t)(k * rows), 2),
          some((size_t)(heads * wide * rows), 3));
}

static void test_nothing_to_do()
{
  const float one = 1, half = 0.5f;
  floats c = some(6, 1), got(6);
  float *x = to_device(c);
  CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 3, 2, &one, nullptr, 1, nullptr, 2, &half,
                    nullptr, 1) == CUBLAS_STATUS_SUCCESS);
  // A sum over nothing: c is only scaled.
  CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 0, &one, x, 2, x, 1, &half, x, 2) ==
        CUBLAS_STATUS_SUCCESS);
  CHECK(cudaMemcpy(got.data(), x, 24, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (size_t i = 0; i < 6; i++) CHECK(got[i] == c[i] / 2);
  cudaFree(x);
}

static void test_settings()
{
  cudaStream_t stream, same;
  void *space;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaMalloc(&space, 4096) == cudaSuccess);
  CHECK(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasGetStream(handle, &same) == CUBLAS_STATUS_SUCCESS && same == stream);
  CHECK(cublasSetMathMode(handle, CUBLAS_PEDANTIC_MATH) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetAtomicsMode(handle, CUBLAS_ATOMICS_NOT_ALLOWED) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasSetWorkspace(handle, space, 4096) == CUBLAS_STATUS_SUCCESS);
  CHECK(std::string(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE)) ==
        "CUBLAS_STATUS_INVALID_VALUE");
  CHECK(cublasGetStatusString(CUBLAS_STATUS_SUCCESS)[0]);
}

int main()
{
  CHECK(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  test_shapes();
  test_interleaved();
  test_nothing_to_do();
  test_settings();
  CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  puts("cublas: ok");
}
