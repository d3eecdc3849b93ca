// A stand-in for CUDA, for tests only: cuBLASLt over CBLAS, for float32, bfloat16 and float8. Of
// float8 it takes, as a GPU of compute capability 9 does, only aligned operands whose terms are
// side by side.
//
// Its heuristics return one algorithm, which records the request: cublasLtMatmul accepts it for
// that product alone, with matrices of the requested alignment. It overwrites the workspace that it
// requested with garbage.
#include "cublasLt.h"
#include "cuda_fp8.h"
#include "stand_in.h"

#include <cblas.h>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

using namespace cuda_on_cpu;

struct cublasLtContext {
  int unused;
};

struct cublasLtLayout {
  cudaDataType type;
  long long rows, columns, ld, step;
  int batch;
};

struct cublasLtOperation {
  cublasComputeType_t compute;
  cublasOperation_t op_a, op_b;
  cublasLtEpilogue_t epilogue;
  void *bias, *aux;
  long long aux_ld, aux_step; // aux_step: distance within a batch
  void *scale_a = nullptr, *scale_b = nullptr;
};

struct cublasLtPreference {
  uint64_t workspace;
  uint32_t sums, aligned[4]; // of a, b, c and d
};

namespace
{
std::set<const void *> alive;

template <class T> T *new_one(T what)
{
  T *made = new T(what);
  alive.insert(made);
  return made;
}

template <class T> void check_alive(const char *call, const char *what, const T *p)
{
  if (!alive.count(p)) fail(call, "%p is no live %s", (const void *)p, what);
}

template <class T> cublasStatus_t destroy(const char *call, const char *what, T *p)
{
  host_call(call);
  check_alive(call, what, p);
  alive.erase(p);
  delete p;
  return CUBLAS_STATUS_SUCCESS;
}

// An attribute's new value, with a check of its size.
template <class T> T attribute(const char *call, int which, const void *from, size_t bytes)
{
  T value;
  if (bytes != sizeof value)
    fail(call, "attribute %d of %zu bytes; it has %zu", which, bytes, sizeof value);
  need_host(call, "the attribute", from, bytes);
  memcpy(&value, from, sizeof value);
  return value;
}

size_t size_of(const char *call, cudaDataType type)
{
  if (type == CUDA_R_32F) return 4;
  if (type == CUDA_R_16BF) return 2;
  if (type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2) return 1;
  fail(call, "type %d; the stand-in knows CUDA_R_32F, CUDA_R_16BF and float8", (int)type);
}

CBLAS_TRANSPOSE transpose(const char *call, cublasOperation_t op)
{
  if (op == CUBLAS_OP_N) return CblasNoTrans;
  if (op == CUBLAS_OP_T || op == CUBLAS_OP_C) return CblasTrans; // real numbers
  fail(call, "unknown operation %d", (int)op);
}

// ---- numbers

float read_number(const char *at, size_t bytes)
{
  float x = 0;
  memcpy(bytes == 4 ? reinterpret_cast<char *>(&x) : reinterpret_cast<char *>(&x) + 2, at, bytes);
  return x;
}

// To the nearest with so many bits of the fraction, ties to even.
float rounded(float x, int bits)
{
  uint32_t u, below = 1u << (23 - bits);
  memcpy(&u, &x, sizeof u);
  if (x != x) return x;
  u += below / 2 - 1 + (u / below & 1);
  u &= ~(below - 1);
  memcpy(&x, &u, sizeof x);
  return x;
}

void write_number(char *at, size_t bytes, float x)
{
  if (bytes == 2) x = rounded(x, 7);
  const char *from = reinterpret_cast<const char *>(&x);
  memcpy(at, bytes == 4 ? from : from + 2, bytes);
}

float gelu(float x)
{
  return 0.5f * x * (1 + tanhf(0.79788456f * x * (1 + 0.044715f * x * x)));
}

float gelu_slope(float x)
{
  const float tanh_u = tanhf(0.79788456f * x * (1 + 0.044715f * x * x));
  const float u_slope = 0.79788456f * (1 + 3 * 0.044715f * x * x);
  return 0.5f * (1 + tanh_u) + 0.5f * x * (1 - tanh_u * tanh_u) * u_slope;
}

// ---- a product

struct matrix {
  const char *name;
  char *at;
  cublasLtLayout is;
  size_t size;

  char *element(int of, long long row, long long column) const
  {
    return at + (of * is.step + column * is.ld + row) * (long long)size;
  }
  stretches columns(int of) const
  {
    return {element(of, 0, 0), (size_t)is.rows * size, (size_t)is.ld * size, (size_t)is.columns};
  }
  // One matrix of the batch without gaps, as float32.
  std::vector<float> widened(int of, bool tf32) const
  {
    std::vector<float> x((size_t)(is.rows * is.columns));
    for (long long j = 0; j < is.columns; j++) {
      if (size == 4 && !tf32) {
        memcpy(x.data() + j * is.rows, element(of, 0, j), (size_t)is.rows * size);
        continue;
      }
      for (long long i = 0; i < is.rows; i++) {
        const char *at_element = element(of, i, j);
        const float y = size == 1
                            ? cuda_on_cpu_float8((unsigned char)*at_element,
                                                 is.type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2)
                            : read_number(at_element, size);
        x[(size_t)(j * is.rows + i)] = tf32 ? rounded(y, 10) : y;
      }
    }
    return x;
  }
};

matrix matrix_of(const char *call, const char *name, const void *at, cublasLtMatrixLayout_t layout)
{
  check_alive(call, "layout", layout);
  return {name, static_cast<char *>(const_cast<void *>(at)), *layout, size_of(call, layout->type)};
}

struct product {
  cublasLtOperation is;
  matrix a, b, d;
  bool flip_a, flip_b;
  int m, n, k;
};

bool has_bias(cublasLtEpilogue_t e)
{
  return e & (CUBLASLT_EPILOGUE_BIAS | 16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB);
}

bool has_aux(cublasLtEpilogue_t e)
{
  return e & 128;
}

bool is_known(cublasLtEpilogue_t e)
{
  static const cublasLtEpilogue_t known[] = {
      CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,
      CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
  for (cublasLtEpilogue_t k : known)
    if (k == e) return true;
  return false;
}

void check_layout(const char *call, const matrix &x)
{
  const cublasLtLayout &is = x.is;
  if (is.rows < 1 || is.columns < 1 || is.rows > INT32_MAX || is.columns > INT32_MAX)
    fail(call, "%s has %lld rows and %lld columns", x.name, is.rows, is.columns);
  if (is.ld < is.rows)
    fail(call, "leading dimension %lld of %s, which has %lld rows", is.ld, x.name, is.rows);
}

// The product of the descriptors, without the addresses of the matrices.
product described(const char *call, cublasLtMatmulDesc_t operation, const matrix &a,
                  const matrix &b, const matrix &c, const matrix &d)
{
  check_alive(call, "operation", operation);
  const cublasLtOperation &is = *operation;
  for (const matrix *x : {&a, &b, &c, &d}) check_layout(call, *x);
  if (memcmp(&c.is, &d.is, sizeof c.is)) fail(call, "c and d have layouts of their own");
  const bool float8 = a.size == 1 && b.size == 1;
  const bool two_wide = a.is.type == CUDA_R_8F_E5M2 && b.is.type == CUDA_R_8F_E5M2;
  const bool narrow = d.is.type == (float8 ? CUDA_R_16BF : a.is.type);
  if ((a.is.type != b.is.type && !float8) || two_wide || (!narrow && d.is.type != CUDA_R_32F))
    fail(call, "types %d and %d make %d", (int)a.is.type, (int)b.is.type, (int)d.is.type);
  if (is.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.is.type != CUDA_R_32F)
    fail(call, "TF32 is of float32");
  if (a.is.batch != d.is.batch || b.is.batch != d.is.batch)
    fail(call, "batches of %d, %d and %d", a.is.batch, b.is.batch, d.is.batch);
  bool ta = transpose(call, is.op_a) == CblasTrans, tb = transpose(call, is.op_b) == CblasTrans;
  long long m = ta ? a.is.columns : a.is.rows, k = ta ? a.is.rows : a.is.columns;
  long long n = tb ? b.is.rows : b.is.columns, terms = tb ? b.is.columns : b.is.rows;
  if (k != terms || m != d.is.rows || n != d.is.columns)
    fail(call, "%lld x %lld times %lld x %lld into %lld x %lld", m, k, terms, n, d.is.rows,
         d.is.columns);
  const bool sums = has_bias(is.epilogue) && !(is.epilogue & CUBLASLT_EPILOGUE_BIAS);
  if (sums && d.is.batch > 1)
    fail(call, "the stand-in knows no epilogue %d of a batch", (int)is.epilogue);
  if (has_bias(is.epilogue) && !is.bias) fail(call, "epilogue %d without bias", (int)is.epilogue);
  if (has_aux(is.epilogue) && (!is.aux || is.aux_ld < m || is.aux_ld % 8))
    fail(call, "epilogue %d with aux %p, whose leading dimension is %lld; d has %lld rows",
         (int)is.epilogue, is.aux, is.aux_ld, m);
  if (has_aux(is.epilogue) && d.is.batch > 1 && (is.aux_step < is.aux_ld * n || is.aux_step % 8))
    fail(call, "aux of a batch, each %lld behind the one before", is.aux_step);
  return {is, a, b, d, ta, tb, (int)m, (int)n, (int)k};
}

// Whether it is of float8, and as the devices take it.
bool is_float8(const product &p)
{
  return p.a.size == 1;
}

bool takes_float8(const product &p, const uint32_t *aligned)
{
  for (int i = 0; i < 4; i++)
    if (aligned[i] < 16) return false;
  return p.flip_a && !p.flip_b && p.is.epilogue == CUBLASLT_EPILOGUE_DEFAULT && p.m % 16 == 0 &&
         p.k % 16 == 0 && p.a.is.ld % 16 == 0 && p.b.is.ld % 16 == 0 &&
         p.d.is.ld * (long long)p.d.size % 16 == 0;
}

// ---- an algorithm: what it was made for

enum { MAGIC = 0x74c0b1a5, SCRATCH = 1024 };

uint64_t hash_of(const product &p)
{
  uint64_t h = 0xcbf29ce484222325;
  auto mix = [&h](long long x) {
    for (size_t i = 0; i < sizeof x; i++) h = (h ^ (uint64_t)(x >> 8 * i & 0xff)) * 0x100000001b3;
  };
  for (const matrix *x : {&p.a, &p.b, &p.d})
    for (long long y : {(long long)x->is.type, x->is.rows, x->is.columns, x->is.ld, x->is.step,
                        (long long)x->is.batch})
      mix(y);
  for (long long y : {(long long)p.is.compute, (long long)p.is.epilogue, (long long)p.flip_a,
                      (long long)p.flip_b, p.is.aux_ld, p.is.aux_step})
    mix(y);
  return h;
}

// data: magic, the product, alignments of the matrices, of the bias and of aux, the workspace
uint64_t alignment_of(const void *p)
{
  const uint64_t at = reinterpret_cast<uintptr_t>(p), lowest = at & (~at + 1);
  return lowest && lowest < 256 ? lowest : 256;
}

void check_aligned(const char *call, const char *name, const void *p, uint64_t to)
{
  if (reinterpret_cast<uintptr_t>(p) % to)
    fail(call, "%s, %p: the algorithm takes multiples of %d", name, p, (int)to);
}

void check_algorithm(const char *call, const product &p, const cublasLtMatmulAlgo_t *algorithm,
                     const void *workspace, size_t workspace_bytes)
{
  if (!algorithm) fail(call, "no algorithm is given: one would be looked for in every call");
  const uint64_t *data = algorithm->data;
  if (data[0] != MAGIC) fail(call, "the algorithm is none that the heuristics named");
  if (data[1] != hash_of(p)) fail(call, "the algorithm was chosen for another product");
  check_aligned(call, "a", p.a.at, data[2] & 0xffff);
  check_aligned(call, "b", p.b.at, data[2] >> 16 & 0xffff);
  check_aligned(call, "d", p.d.at, data[2] >> 32 & 0xffff);
  if (has_bias(p.is.epilogue)) check_aligned(call, "the bias", p.is.bias, data[3]);
  if (has_aux(p.is.epilogue)) check_aligned(call, "aux", p.is.aux, data[4]);
  if (workspace_bytes < data[5])
    fail(call, "a workspace of %zu bytes; the algorithm needs %d", workspace_bytes, (int)data[5]);
  need_device(call, "the workspace", workspace, workspace_bytes);
  if (workspace_bytes) check_aligned(call, "the workspace", workspace, 256);
}

// ---- where all of it lies

void check_apart(const char *call, const matrix &c, const matrix &x)
{
  for (int i = 0; i < c.is.batch; i++)
    for (int j = 0; j < x.is.batch; j++)
      if (!(&c == &x && i == j) && overlap(c.columns(i), x.columns(j)))
        fail(call, "d overlaps %s%s", x.name, &c == &x ? " of another batch" : "");
}

size_t bias_bytes(const product &p)
{
  if (!has_bias(p.is.epilogue)) return 0;
  return (size_t)(p.is.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m) * p.d.size;
}

// For one product of the batch.
stretches aux_of(const product &p, int of)
{
  bool has = has_aux(p.is.epilogue);
  return {static_cast<char *>(p.is.aux) + of * p.is.aux_step * (long long)p.d.size,
          has ? (size_t)p.m * p.d.size : 0, (size_t)p.is.aux_ld * p.d.size, has ? (size_t)p.n : 0};
}

void check_places(const char *call, const product &p)
{
  for (const matrix *x : {&p.a, &p.b, &p.d})
    for (int i = 0; i < x->is.batch; i++) {
      stretches part = x->columns(i);
      need_device(call, x->name, part.at, part.extent());
    }
  check_apart(call, p.d, p.a);
  check_apart(call, p.d, p.b);
  check_apart(call, p.d, p.d);
  stretches bias = {static_cast<char *>(p.is.bias), bias_bytes(p), 1, 1};
  if (bias.bytes) need_device(call, "the bias", bias.at, bias.bytes);
  for (const void *scale : {p.is.scale_a, p.is.scale_b})
    if (scale) need_device(call, "a scale", scale, sizeof(float));
  for (int i = 0; i < p.d.is.batch; i++) {
    stretches aux = aux_of(p, i);
    if (aux.bytes) need_device(call, "aux", aux.at, aux.extent());
    for (const stretches &x : {aux, bias})
      for (int j = 0; j < p.d.is.batch; j++)
        if (x.bytes && overlap(x, p.d.columns(j))) fail(call, "d overlaps the bias or aux");
  }
}

// ---- computing

// The sums of one product of the batch, without gaps.
std::vector<float> sums_of(const product &p, int of, float alpha, float beta)
{
  for (const void *scale : {p.is.scale_a, p.is.scale_b})
    if (scale) alpha *= *static_cast<const float *>(scale);
  const bool tf32 = p.is.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && rounds_to_tf32();
  std::vector<float> a = p.a.widened(of, tf32), b = p.b.widened(of, tf32);
  std::vector<float> sums((size_t)p.m * (size_t)p.n);
  if (beta != 0) sums = p.d.widened(of, false);
  cblas_sgemm(CblasColMajor, p.flip_a ? CblasTrans : CblasNoTrans,
              p.flip_b ? CblasTrans : CblasNoTrans, p.m, p.n, p.k, alpha, a.data(),
              (int)p.a.is.rows, b.data(), (int)p.b.is.rows, beta, sums.data(), p.m);
  return sums;
}

// The sums over the terms of one operand: of the rows of a, or of the columns of b.
void sum_terms(const product &p)
{
  const bool of_a = p.is.epilogue == CUBLASLT_EPILOGUE_BGRADA;
  const matrix &x = of_a ? p.a : p.b;
  const bool terms_are_rows = of_a ? p.flip_a : !p.flip_b;
  for (int i = 0; i < (of_a ? p.m : p.n); i++) {
    double sum = 0;
    for (int k = 0; k < p.k; k++)
      sum += (double)read_number(terms_are_rows ? x.element(0, k, i) : x.element(0, i, k), x.size);
    write_number(static_cast<char *>(p.is.bias) + (size_t)i * p.d.size, p.d.size, (float)sum);
  }
}

void finish_column(const product &p, int of, float *x, int j, std::vector<double> &over_columns)
{
  const int e = p.is.epilogue;
  for (int i = 0; i < p.m; i++) {
    char *bias = static_cast<char *>(p.is.bias) + (size_t)i * p.d.size;
    char *aux = static_cast<char *>(p.is.aux) +
                (size_t)(of * p.is.aux_step + j * p.is.aux_ld + i) * p.d.size;
    if (e & CUBLASLT_EPILOGUE_BIAS) x[i] += read_number(bias, p.d.size);
    if (e & CUBLASLT_EPILOGUE_RELU) x[i] = x[i] > 0 ? x[i] : 0; // NaN becomes 0, too
    if ((e & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX)
      write_number(aux, p.d.size, x[i]);
    if (e & CUBLASLT_EPILOGUE_GELU) x[i] = gelu(x[i]);
    if ((e & CUBLASLT_EPILOGUE_DGELU) == CUBLASLT_EPILOGUE_DGELU)
      x[i] *= gelu_slope(read_number(aux, p.d.size));
    over_columns[(size_t)i] += x[i];
  }
}

void compute(const product &p, float alpha, float beta)
{
  for (int of = 0; of < p.d.is.batch; of++) {
    std::vector<float> sums = sums_of(p, of, alpha, beta);
    std::vector<double> over_columns((size_t)p.m);
    for (int j = 0; j < p.n; j++) {
      float *column = sums.data() + (size_t)j * (size_t)p.m;
      finish_column(p, of, column, j, over_columns);
      for (int i = 0; i < p.m; i++) write_number(p.d.element(of, i, j), p.d.size, column[i]);
    }
    for (int i = 0; i < p.m && p.is.epilogue & 16; i++)
      write_number(static_cast<char *>(p.is.bias) + (size_t)i * p.d.size, p.d.size,
                   (float)over_columns[(size_t)i]);
  }
  if (p.is.epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) sum_terms(p);
}

void tell_accesses(const product &p, void *workspace, size_t scratch)
{
  for (int i = 0; i < p.d.is.batch; i++) {
    reads(p.a.columns(i));
    reads(p.b.columns(i));
    writes(p.d.columns(i));
  }
  const bool makes_bias = !(p.is.epilogue & CUBLASLT_EPILOGUE_BIAS);
  const bool makes_aux = p.is.epilogue & CUBLASLT_EPILOGUE_GELU;
  const stretches bias = {static_cast<char *>(p.is.bias), bias_bytes(p), 1, 1};
  if (bias.bytes) makes_bias ? writes(bias) : reads(bias);
  for (int i = 0; i < p.d.is.batch; i++) {
    const stretches aux = aux_of(p, i);
    if (aux.bytes) makes_aux ? writes(aux) : reads(aux);
  }
  for (void *scale : {p.is.scale_a, p.is.scale_b})
    if (scale) reads({static_cast<char *>(scale), sizeof(float), sizeof(float), 1});
  if (scratch) writes({static_cast<char *>(workspace), scratch, scratch, 1});
}

float scalar(const char *call, const char *name, const void *p)
{
  float x;
  need_host(call, name, p, sizeof x);
  memcpy(&x, p, sizeof x);
  return x;
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

// ---- the calls

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
  host_call("cublasLtCreate");
  *handle = new_one(cublasLtContext{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
  return destroy("cublasLtDestroy", "handle", handle);
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
  return find_status("cublasLtGetStatusName", status).name;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
  return find_status("cublasLtGetStatusString", status).text;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
  host_call("cublasLtMatrixLayoutCreate");
  size_of("cublasLtMatrixLayoutCreate", type);
  *layout = new_one(cublasLtLayout{type, (long long)rows, (long long)columns, ld, 0, 1});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
  return destroy("cublasLtMatrixLayoutDestroy", "layout", layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void *from, size_t bytes)
{
  const char *call = "cublasLtMatrixLayoutSetAttribute";
  host_call(call);
  check_alive(call, "layout", layout);
  switch (which) {
  case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
    layout->batch = attribute<int32_t>(call, which, from, bytes);
    if (layout->batch < 1) fail(call, "a batch of %d", layout->batch);
    return CUBLAS_STATUS_SUCCESS;
  case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
    layout->step = attribute<int64_t>(call, which, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
  default:
    fail(call, "the stand-in sets no attribute %d", (int)which);
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                        cublasComputeType_t compute, cudaDataType scale)
{
  const char *call = "cublasLtMatmulDescCreate";
  host_call(call);
  if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
    fail(call, "compute type %d; the stand-in computes in 32F, and in TF32", (int)compute);
  if (scale != CUDA_R_32F) fail(call, "scale type %d", (int)scale);
  *operation =
      new_one(cublasLtOperation{compute, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                                nullptr, nullptr, 0, 0, nullptr, nullptr});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
  return destroy("cublasLtMatmulDescDestroy", "operation", operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void *from, size_t bytes)
{
  const char *call = "cublasLtMatmulDescSetAttribute";
  host_call(call);
  check_alive(call, "operation", operation);
  switch (which) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
    operation->op_a = (cublasOperation_t)attribute<int32_t>(call, which, from, bytes);
    transpose(call, operation->op_a);
    break;
  case CUBLASLT_MATMUL_DESC_TRANSB:
    operation->op_b = (cublasOperation_t)attribute<int32_t>(call, which, from, bytes);
    transpose(call, operation->op_b);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    operation->epilogue = (cublasLtEpilogue_t)attribute<uint32_t>(call, which, from, bytes);
    if (!is_known(operation->epilogue)) fail(call, "epilogue %d", (int)operation->epilogue);
    break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    operation->bias = attribute<void *>(call, which, from, bytes);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    operation->aux = attribute<void *>(call, which, from, bytes);
    break;
  case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    operation->scale_a = attribute<void *>(call, which, from, bytes);
    break;
  case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
    operation->scale_b = attribute<void *>(call, which, from, bytes);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    operation->aux_ld = attribute<int64_t>(call, which, from, bytes);
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
    operation->aux_step = attribute<int64_t>(call, which, from, bytes);
    break;
  default:
    fail(call, "the stand-in sets no attribute %d", (int)which);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
  host_call("cublasLtMatmulPreferenceCreate");
  *preference =
      new_one(cublasLtPreference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
  return destroy("cublasLtMatmulPreferenceDestroy", "preference", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *from, size_t bytes)
{
  const char *call = "cublasLtMatmulPreferenceSetAttribute";
  host_call(call);
  check_alive(call, "preference", preference);
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    preference->workspace = attribute<uint64_t>(call, which, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  uint32_t value = attribute<uint32_t>(call, which, from, bytes);
  if (which == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && value <= 7) {
    preference->sums = value;
    return CUBLAS_STATUS_SUCCESS;
  }
  int of = (int)which - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (of < 0 || of > 3 || !value || value & (value - 1) || value > 256)
    fail(call, "attribute %d is %u", (int)which, value);
  preference->aligned[of] = value;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int expected,
                                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
  const char *call = "cublasLtMatmulAlgoGetHeuristic";
  host_call(call);
  check_alive(call, "handle", handle);
  check_alive(call, "preference", preference);
  if (expected < 1) fail(call, "%d algorithms are asked for", expected);
  product p =
      described(call, operation, matrix_of(call, "a", nullptr, a), matrix_of(call, "b", nullptr, b),
                matrix_of(call, "c", nullptr, c), matrix_of(call, "d", nullptr, d));
  *n = 0;
  if (p.is.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !setting("CUDA_ON_CPU_EPILOGUES", 1))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t *aligned = preference->aligned;
  if (is_float8(p) && !takes_float8(p, aligned)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const matrix *of[] = {&p.a, &p.b, &p.d, &p.d};
  for (int i = 0; i < 4; i++)
    if (aligned[i] < of[i]->size) fail(call, "an alignment of %u bytes", aligned[i]);
  uint64_t most = SCRATCH;
  if (preference->workspace < most) most = preference->workspace;
  uint32_t of_d = aligned[2] < aligned[3] ? aligned[2] : aligned[3];
  memset(found, 0, sizeof *found);
  found->algo = {{MAGIC, hash_of(p), aligned[0] | (uint64_t)aligned[1] << 16 | (uint64_t)of_d << 32,
                  alignment_of(p.is.bias), alignment_of(p.is.aux), most, 0, 0}};
  found->workspaceSize = most;
  found->state = CUBLAS_STATUS_SUCCESS;
  *n = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t layout_a,
                              const void *b, cublasLtMatrixLayout_t layout_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
  const char *call = "cublasLtMatmul";
  host_call(call);
  check_alive(call, "handle", handle);
  product p = described(call, operation, matrix_of(call, "a", a, layout_a),
                        matrix_of(call, "b", b, layout_b), matrix_of(call, "c", c, layout_c),
                        matrix_of(call, "d", d, layout_d));
  if (c != d) fail(call, "c is not d: the stand-in adds in place only");
  check_algorithm(call, p, algorithm, workspace, workspace_bytes);
  check_places(call, p);
  const float times = scalar(call, "alpha", alpha), keep = scalar(call, "beta", beta);
  const size_t scratch = algorithm->data[5];
  on_stream(call, stream, [=] {
    tell_accesses(p, workspace, scratch);
    compute(p, times, keep);
    memset(workspace, 0xff, scratch);
  });
  return CUBLAS_STATUS_SUCCESS;
}
