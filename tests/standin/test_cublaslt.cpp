// The products of cuBLASLt on the stand-in, against loops: all transposes, types, leading
// dimensions, batches, matrices that lie interleaved, and epilogues. And each misuse ends the
// program with a message: run with its name, this program commits one.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "on_device.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

typedef std::vector<float> floats;

static cublasLtHandle_t handle;
static char *workspace;
static const size_t workspace_bytes = 4096;

// ---- numbers, and device memory of either type

static float as_bf16(float x)
{
  return __bfloat162float(__float2bfloat16_rn(x));
}

// Multiples of 1/8, which both types hold.
static floats some(size_t count, int seed)
{
  floats x(count);
  for (size_t i = 0; i < count; i++) x[i] = (float)((i * 37 + (size_t)seed * 11) % 19) / 8 - 1;
  return x;
}

struct device {
  char *at;
  size_t count;
  bool narrow;
  device(const floats &from, bool is_narrow) : at(nullptr), count(from.size()), narrow(is_narrow)
  {
    std::vector<__nv_bfloat16> small(count);
    for (size_t i = 0; i < count; i++) small[i] = __float2bfloat16_rn(from[i]);
    const void *bytes = narrow ? (const void *)small.data() : from.data();
    CHECK(cudaMalloc((void **)&at, count * size()) == cudaSuccess);
    CHECK(cudaMemcpy(at, bytes, count * size(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~device()
  {
    cudaFree(at);
  }
  size_t size() const
  {
    return narrow ? 2 : 4;
  }
  floats read() const
  {
    floats to(count);
    std::vector<__nv_bfloat16> small(count);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    void *bytes = narrow ? (void *)small.data() : to.data();
    CHECK(cudaMemcpy(bytes, at, count * size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    for (size_t i = 0; i < count && narrow; i++) to[i] = __bfloat162float(small[i]);
    return to;
  }
};

// ---- a product, column after column

struct shape {
  bool flip_a, flip_b;
  int m, n, k, lda, ldb, ldc, batches;
  long long stride_a, stride_b, stride_c;
  bool of_bf16, makes_bf16, tf32;
  int epilogue;
  int aux_ld;
  long long aux_step;
};

static shape plain(bool flip_a, bool flip_b, int m, int n, int k, int more)
{
  shape s = {};
  s.flip_a = flip_a, s.flip_b = flip_b, s.m = m, s.n = n, s.k = k, s.batches = 1;
  s.lda = (flip_a ? k : m) + more, s.ldb = (flip_b ? n : k) + more, s.ldc = m + more;
  s.stride_a = (long long)s.lda * (flip_a ? m : k) + more;
  s.stride_b = (long long)s.ldb * (flip_b ? k : n);
  s.stride_c = (long long)s.ldc * n + more;
  s.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return s;
}

struct prepared {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulHeuristicResult_t found;
};

template <class T, class W> static void set(cublasLtMatmulDesc_t operation, W which, T value)
{
  CHECK(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value) ==
        CUBLAS_STATUS_SUCCESS);
}

static cublasLtMatrixLayout_t layout(bool narrow, int rows, int columns, int ld, int32_t batches,
                                     int64_t stride)
{
  cublasLtMatrixLayout_t made;
  CHECK(cublasLtMatrixLayoutCreate(&made, narrow ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)rows,
                                   (uint64_t)columns, ld) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                                         sizeof batches) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                         sizeof stride) == CUBLAS_STATUS_SUCCESS);
  return made;
}

template <class T>
static void prefer(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t which, T is)
{
  CHECK(cublasLtMatmulPreferenceSetAttribute(p, which, &is, sizeof is) == CUBLAS_STATUS_SUCCESS);
}

static prepared prepare(const shape &s, void *bias, void *aux, uint32_t aligned)
{
  prepared p;
  cublasLtMatmulPreference_t preference;
  int n = 0;
  CHECK(cublasLtMatmulDescCreate(&p.operation,
                                 s.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  set(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)(s.flip_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(p.operation, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)(s.flip_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)s.epilogue);
  if (bias) set(p.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (aux) set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  if (aux) set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (int64_t)s.aux_ld);
  if (aux && s.batches > 1)
    set(p.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, (int64_t)s.aux_step);
  p.a = layout(s.of_bf16, s.flip_a ? s.k : s.m, s.flip_a ? s.m : s.k, s.lda, s.batches, s.stride_a);
  p.b = layout(s.of_bf16, s.flip_b ? s.n : s.k, s.flip_b ? s.k : s.n, s.ldb, s.batches, s.stride_b);
  p.c = layout(s.makes_bf16, s.m, s.n, s.ldc, s.batches, s.stride_c);
  CHECK(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (uint64_t)workspace_bytes);
  prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         (uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (int i = 0; i < 4; i++)
    prefer(preference,
           (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
           aligned);
  CHECK(cublasLtMatmulAlgoGetHeuristic(handle, p.operation, p.a, p.b, p.c, p.c, preference, 1,
                                       &p.found, &n) == CUBLAS_STATUS_SUCCESS);
  CHECK(n == 1 && p.found.state == CUBLAS_STATUS_SUCCESS);
  CHECK(p.found.workspaceSize <= workspace_bytes);
  CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
  return p;
}

static void run(const prepared &p, float alpha, const void *a, const void *b, float beta, void *c)
{
  CHECK(cublasLtMatmul(handle, p.operation, &alpha, a, p.a, b, p.b, &beta, c, p.c, c, p.c,
                       &p.found.algo, workspace, workspace_bytes, 0) == CUBLAS_STATUS_SUCCESS);
}

static void drop(prepared &p)
{
  CHECK(cublasLtMatrixLayoutDestroy(p.a) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatrixLayoutDestroy(p.b) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatrixLayoutDestroy(p.c) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasLtMatmulDescDestroy(p.operation) == CUBLAS_STATUS_SUCCESS);
}

// ---- what is right

static size_t at_a(const shape &s, int z, int i, int p)
{
  return (size_t)(z * s.stride_a + (s.flip_a ? i * s.lda + p : p * s.lda + i));
}
static size_t at_b(const shape &s, int z, int p, int j)
{
  return (size_t)(z * s.stride_b + (s.flip_b ? p * s.ldb + j : j * s.ldb + p));
}

static void multiply(const shape &s, float alpha, const floats &a, const floats &b, float beta,
                     floats &c)
{
  for (int z = 0; z < s.batches; z++)
    for (int i = 0; i < s.m; i++)
      for (int j = 0; j < s.n; j++) {
        double sum = 0;
        for (int p = 0; p < s.k; p++) sum += (double)a[at_a(s, z, i, p)] * b[at_b(s, z, p, j)];
        float &to = c[(size_t)(z * s.stride_c + j * s.ldc + i)];
        to = (float)(alpha * sum + (beta != 0 ? (double)beta * to : 0));
      }
}

// A number of the result's type that was rounded once.
static bool is_near(float got, float want, bool narrow)
{
  return fabsf(got - want) <= 1e-4f + (narrow ? fabsf(want) / 256 : fabsf(want) * 1e-5f);
}

// The elements between the matrices must come out untouched: c is compared whole.
static void compare(const shape &s, const floats &a, const floats &b, const floats &c)
{
  const float scales[3][2] = {{1, 0}, {0.5f, 1}, {-2, 0.25f}};
  prepared p = prepare(s, nullptr, nullptr, 4);
  for (const auto &scale : scales) {
    floats want = c;
    multiply(s, scale[0], a, b, scale[1], want);
    device x(a, s.of_bf16), y(b, s.of_bf16), z(c, s.makes_bf16);
    run(p, scale[0], x.at, y.at, scale[1], z.at);
    floats got = z.read();
    for (size_t i = 0; i < got.size(); i++) CHECK(is_near(got[i], want[i], s.makes_bf16));
  }
  drop(p);
}

static void test_shapes()
{
  const int sizes[][3] = {{1, 1, 1}, {16, 20, 10}, {5, 20, 16}, {7, 3, 33}, {1, 9, 4}, {6, 1, 2}};
  for (const auto &size : sizes)
    for (int flips = 0; flips < 4; flips++)
      for (int more = 0; more < 4; more += 3)
        for (int batches = 1; batches <= 3; batches += 2)
          for (int types = 0; types < 3; types++) {
            shape s = plain(flips % 2 != 0, flips / 2 != 0, size[0], size[1], size[2], more);
            s.batches = batches;
            s.of_bf16 = types > 0, s.makes_bf16 = types == 1;
            compare(s, some((size_t)(s.stride_a * batches), 1),
                    some((size_t)(s.stride_b * batches), 2),
                    some((size_t)(s.stride_c * batches), 3));
          }
}

// Three heads side by side in each row, and one b for all of them.
static void test_interleaved()
{
  const int heads = 3, wide = 4, rows = 5, k = 6;
  shape s = plain(false, false, wide, rows, k, 0);
  s.lda = s.ldc = heads * wide, s.batches = heads, s.stride_a = s.stride_c = wide, s.stride_b = 0;
  compare(s, some((size_t)(heads * wide * k), 1), some((size_t)(k * rows), 2),
          some((size_t)(heads * wide * rows), 3));
}

// 1 + 2^-11 is 1 in TF32, and is not in float32, nor where the environment forbids TF32.
static void test_tf32()
{
  shape s = plain(false, false, 1, 1, 1, 0);
  const floats a = {1 + 1.0f / 2048}, one = {1};
  for (int i = 0; i < 3; i++) {
    const bool tf32 = i == 1;
    s.tf32 = i > 0;
    setenv("NVIDIA_TF32_OVERRIDE", i == 2 ? "0" : "1", 1);
    prepared p = prepare(s, nullptr, nullptr, 4);
    device x(a, false), y(one, false), z(one, false);
    run(p, 1, x.at, y.at, 0, z.at);
    CHECK(z.read()[0] == (tf32 ? 1 : a[0]));
    drop(p);
  }
}

// ---- epilogues

static float gelu(float x)
{
  return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float slope(float x)
{
  const float h = 1e-2f;
  return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

static bool has(const shape &s, int bits)
{
  return (s.epilogue & bits) == bits;
}

// The epilogue done to what one of the batch makes, but for sums over terms.
static void finish_one(const shape &s, int of, floats &c, const floats &bias, floats &aux,
                       std::vector<double> &rows)
{
  for (int j = 0; j < s.n; j++)
    for (int i = 0; i < s.m; i++) {
      float &x = c[(size_t)(of * s.stride_c + j * s.ldc + i)];
      float &kept = aux[(size_t)(of * s.aux_step + j * s.aux_ld + i)];
      if (has(s, CUBLASLT_EPILOGUE_BIAS)) x += bias[(size_t)i];
      if (has(s, CUBLASLT_EPILOGUE_RELU)) x = x > 0 ? x : 0;
      if (has(s, CUBLASLT_EPILOGUE_GELU_AUX)) kept = s.makes_bf16 ? as_bf16(x) : x;
      if (has(s, CUBLASLT_EPILOGUE_GELU)) x = gelu(x);
      if (has(s, CUBLASLT_EPILOGUE_DGELU)) x *= slope(kept);
      rows[(size_t)i] += x;
    }
}

// The epilogue done to a product's result: c is it, afterwards, and so are bias and aux.
static void finish(const shape &s, const floats &a, const floats &b, floats &c, floats &bias,
                   floats &aux)
{
  std::vector<double> rows((size_t)s.m), of_a((size_t)s.m), of_b((size_t)s.n);
  for (int of = 0; of < s.batches; of++) finish_one(s, of, c, bias, aux, rows);
  for (int p = 0; p < s.k; p++) {
    for (int i = 0; i < s.m; i++) of_a[(size_t)i] += a[at_a(s, 0, i, p)];
    for (int j = 0; j < s.n; j++) of_b[(size_t)j] += b[at_b(s, 0, p, j)];
  }
  const std::vector<double> *sums = has(s, CUBLASLT_EPILOGUE_DGELU_BGRAD) ? &rows
                                    : has(s, CUBLASLT_EPILOGUE_BGRADA)    ? &of_a
                                    : has(s, CUBLASLT_EPILOGUE_BGRADB)    ? &of_b
                                                                          : nullptr;
  for (size_t i = 0; sums && i < sums->size(); i++) bias[i] = (float)(*sums)[i];
}

static void compare_epilogue(shape s)
{
  s.aux_ld = 16, s.aux_step = s.aux_ld * s.n + 8;
  const floats a = some((size_t)(s.batches * s.stride_a), 1),
               b = some((size_t)(s.batches * s.stride_b), 2),
               c = some((size_t)(s.batches * s.stride_c), 3);
  floats want = c, bias = some((size_t)(s.m + s.n), 4),
         aux = some((size_t)(s.batches * s.aux_step), 5);
  device x(a, s.of_bf16), y(b, s.of_bf16), z(c, s.makes_bf16), u(bias, s.makes_bf16),
      v(aux, s.makes_bf16);
  bool takes_aux = has(s, CUBLASLT_EPILOGUE_GELU_AUX) || has(s, CUBLASLT_EPILOGUE_DGELU);
  prepared p = prepare(s, u.at, takes_aux ? v.at : nullptr, 4);
  run(p, 1, x.at, y.at, 0, z.at);
  multiply(s, 1, a, b, 0, want);
  finish(s, a, b, want, bias, aux);
  floats got = z.read(), got_bias = u.read(), got_aux = v.read();
  for (size_t i = 0; i < got.size(); i++)
    CHECK(fabsf(got[i] - want[i]) <= 1e-3f + fabsf(want[i]) * (s.makes_bf16 ? 0.01f : 1e-3f));
  for (size_t i = 0; i < bias.size(); i++)
    CHECK(fabsf(got_bias[i] - bias[i]) <= 2e-2f + fabsf(bias[i]) * (s.makes_bf16 ? 0.01f : 1e-3f));
  for (size_t i = 0; i < aux.size(); i++) CHECK(is_near(got_aux[i], aux[i], s.makes_bf16));
  drop(p);
}

// A batch takes one bias, and sums nothing.
static void test_epilogues()
{
  const int epilogues[] = {
      CUBLASLT_EPILOGUE_RELU,        CUBLASLT_EPILOGUE_BIAS,          CUBLASLT_EPILOGUE_RELU_BIAS,
      CUBLASLT_EPILOGUE_GELU,        CUBLASLT_EPILOGUE_GELU_BIAS,     CUBLASLT_EPILOGUE_GELU_AUX,
      CUBLASLT_EPILOGUE_DGELU,       CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BGRADA,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADB};
  enum { OF_BATCHES = 8 }; // so many of them
  for (int e = 0; e < (int)(sizeof epilogues / sizeof *epilogues); e++)
    for (int flips = 0; flips < 4; flips++)
      for (int types = 0; types < 3; types++) {
        shape s = plain(flips % 2 != 0, flips / 2 != 0, 13, 6, 5, 2);
        s.epilogue = epilogues[e];
        s.of_bf16 = types > 0, s.makes_bf16 = types == 1;
        compare_epilogue(s);
        s.batches = 3;
        if (e < OF_BATCHES) compare_epilogue(s);
      }
}

// ---- misuses: each a product of 4 x 4 matrices, but for one thing

static const char *misuse;

static bool is(const char *name)
{
  return !strcmp(misuse, name);
}

static void commit_misuse()
{
  shape s = plain(false, false, 4, 4, 4, 0);
  if (is("leading dimension")) s.lda = 3;
  if (is("out of bounds")) s.ldb = 5;
  if (is("interleaved results")) s.batches = 2, s.stride_a = s.stride_b = 0, s.stride_c = 8;
  if (is("no bias")) s.epilogue = CUBLASLT_EPILOGUE_BIAS;
  if (is("aux layout")) s.epilogue = CUBLASLT_EPILOGUE_GELU_AUX, s.aux_ld = 12;
  if (is("types")) s.makes_bf16 = true;
  if (is("epilogue")) s.epilogue = CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADA;
  if (is("epilogue of a batch"))
    s.batches = 2, s.stride_a = s.stride_b = 0, s.epilogue = CUBLASLT_EPILOGUE_BGRADA;
  if (is("aux of a batch"))
    s.batches = 2, s.stride_a = s.stride_b = 0, s.epilogue = CUBLASLT_EPILOGUE_GELU_AUX,
    s.aux_ld = 8, s.aux_step = 16;
  const floats x = some(64, 1);
  device a(x, false), b(floats(x.begin(), x.begin() + 16), false), c(x, false);
  prepared p = prepare(s, nullptr, !strncmp(misuse, "aux", 3) ? c.at : nullptr,
                       is("alignment of none") ? 2
                       : is("unaligned")       ? 16
                                               : 4);
  if (is("another product"))
    p.found.algo = prepare(plain(true, false, 4, 4, 4, 0), nullptr, nullptr, 4).found.algo;
  if (is("made up")) p.found.algo = cublasLtMatmulAlgo_t();
  const float one = 1;
  float *on_device = (float *)c.at + 32;
  const void *alpha = is("alpha on the device") ? on_device : &one, *from = a.at;
  if (is("host memory")) from = x.data();
  if (is("unaligned")) from = a.at + 4;
  if (is("into itself")) from = c.at;
  if (is("dead layout")) cublasLtMatrixLayoutDestroy(p.b);
  if (is("batches")) p.a = layout(false, 4, 4, 4, 2, 0);
  size_t bytes = is("workspace too small") ? 64 : workspace_bytes;
  char *work = is("workspace out of bounds") ? workspace + 256 : workspace;
  if (is("workspace unaligned")) work += 16, bytes -= 16;
  cudaStream_t stream = is("dead stream") ? (cudaStream_t)c.at : 0;
  void *other = is("out of place") ? c.at + 128 : c.at;
  cublasLtMatmul(is("dead handle") ? (cublasLtHandle_t)c.at : handle, p.operation, alpha, from, p.a,
                 b.at, p.b, &one, other, p.c, c.at, p.c,
                 is("no algorithm") ? nullptr : &p.found.algo, work, bytes, stream);
}

static const struct {
  const char *name, *message;
} misuses[] = {
    {"leading dimension", "leading dimension 3 of a, which has 4 rows"},
    {"out of bounds", "b is out of bounds: 76 bytes"},
    {"interleaved results", "d overlaps d of another batch"},
    {"batches", "batches of 2, 1 and 1"},
    {"no bias", "epilogue 4 without bias"},
    {"aux layout", "whose leading dimension is 12"},
    {"types", "types 0 and 0 make 14"},
    {"epilogue", "cublasLtMatmulDescSetAttribute: epilogue 260"},
    {"aux of a batch", "aux of a batch, each 16 behind the one before"},
    {"epilogue of a batch", "no epilogue 256 of a batch"},
    {"alignment of none", "an alignment of 2 bytes"},
    {"another product", "the algorithm was chosen for another product"},
    {"made up", "none that the heuristics named"},
    {"no algorithm", "no algorithm is given"},
    {"alpha on the device", "cublasLtMatmul: alpha, 0x"},
    {"host memory", "cublasLtMatmul: a, 0x"},
    {"unaligned", "the algorithm takes multiples of 16"},
    {"into itself", "d overlaps a"},
    {"dead layout", "is no live layout"},
    {"dead handle", "is no live handle"},
    {"dead stream", "is no live stream"},
    {"workspace too small", "a workspace of 64 bytes; the algorithm needs"},
    {"workspace out of bounds", "the workspace is out of bounds"},
    {"workspace unaligned", "the workspace, 0x"},
    {"out of place", "c is not d"},
};

static void test_misuses()
{
  for (const auto &m : misuses) {
    std::string output;
    int status = run_command(own_command(0, "'" + std::string(m.name) + "'"), output);
    bool is_reported = output.find(m.message) != std::string::npos;
    if (!status || !is_reported)
      fprintf(stderr, "%s: status %d: %s\n", m.name, status, output.c_str());
    CHECK(status && is_reported);
  }
}

int main(int argc, char **argv)
{
  CHECK(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaMalloc((void **)&workspace, workspace_bytes) == cudaSuccess);
  if (argc > 1) {
    misuse = argv[1];
    commit_misuse();
    return 0;
  }
  test_shapes();
  test_interleaved();
  test_tf32();
  test_epilogues();
  test_misuses();
  CHECK(std::string(cublasLtGetStatusName(CUBLAS_STATUS_INVALID_VALUE)) ==
        "CUBLAS_STATUS_INVALID_VALUE");
  CHECK(cublasLtGetStatusString(CUBLAS_STATUS_SUCCESS)[0]);
  CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  printf("cublasLt: %zu misuses are caught\n", sizeof misuses / sizeof *misuses);
}
