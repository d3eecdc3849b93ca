// The runtime's products of matrices (runtime/cuda/kernels/products.cu) with each epilogue: in both
// types, with operands stored either way and memory that is aligned or not, they come to the same
// by cuBLASLt's epilogues and by the runtime's own kernels, which stand in where the heuristics
// know none.
#define TPGEN_CUDA
#include "../../runtime/cuda/kernels/products.cu"

#include "check.h"
#include "of_runtime.h"

#include <cmath>
#include <cstring>
#include <vector>

enum { M = 5, N = 16, K = 7, MATRIX = 128, WORKSPACE = 4096 };

// Of each type in turn, in bytes: a, b, c, the bias or the sums, what is kept.
struct memory {
  alignas(256) unsigned char workspace[WORKSPACE];
  alignas(16) unsigned char part[5][(MATRIX + 1) * 4];
};
static struct memory *m;

static struct product all[12 * 4 * 3];
static const struct products products = {all, sizeof all / sizeof *all,
                                         offsetof(struct memory, workspace), WORKSPACE};
static struct program its;
const struct program *program = &its;
void *rank_memory;
static const struct rank this_rank = {};
const struct rank *rank = &this_rank;

static void describe_all()
{
  int i = 0;
  for (int then = NOTHING_MORE; then <= SUMS_OF_B; then++)
    for (int flips = 0; flips < 4; flips++)
      for (int types = 0; types < 3; types++) {
        struct product &p = all[i++];
        p.a = flips % 2 ? 't' : 'n', p.b = flips / 2 ? 't' : 'n';
        p.m = M, p.n = N, p.k = K;
        p.of = p.b_of = types ? BF16 : F32, p.makes = types == 1 ? BF16 : F32;
        p.then = (enum epilogue)then;
      }
}

static std::vector<unsigned char> some(enum type type, int seed)
{
  std::vector<unsigned char> bytes(MATRIX * bytes_of(type));
  for (size_t i = 0; i < MATRIX; i++) {
    const float x = (float)((i * 37 + (size_t)seed * 11) % 19) / 8 - 1;
    const bf16 y = float_to_bf16(x);
    memcpy(&bytes[i * bytes_of(type)], type == BF16 ? (const void *)&y : &x, bytes_of(type));
  }
  return bytes;
}

// What a product leaves in c, in the sums or the bias, and in what is kept, as floats.
static std::vector<float> results(const struct product &p, bool unaligned)
{
  std::vector<float> left;
  unsigned char *at[5];
  for (int i = 0; i < 5; i++) {
    const enum type type = i < 2 ? p.of : p.makes;
    at[i] = m->part[i] + (unaligned ? bytes_of(type) : 0);
    std::vector<unsigned char> bytes = some(type, i);
    CHECK_CUDA(cudaMemcpyAsync(at[i], bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
  }
  matmul(&p, at[2], at[0], at[1], has_bias(p.then) ? at[3] : NULL, keeps(p.then) ? at[4] : NULL);
  for (int i = 2; i < 5; i++) {
    std::vector<unsigned char> bytes(MATRIX * bytes_of(p.makes));
    CHECK_CUDA(cudaMemcpyAsync(bytes.data(), at[i], bytes.size(), cudaMemcpyDeviceToHost, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (size_t k = 0; k < MATRIX; k++) {
      float x;
      bf16 y;
      memcpy(p.makes == BF16 ? (void *)&y : &x, &bytes[k * bytes_of(p.makes)], bytes_of(p.makes));
      left.push_back(p.makes == BF16 ? bf16_to_float(y) : x);
    }
  }
  return left;
}

static std::vector<std::vector<float>> all_results(const char *epilogues)
{
  std::vector<std::vector<float>> left;
  setenv("CUDA_ON_CPU_EPILOGUES", epilogues, 1);
  its.products = &products;
  prepare_products();
  for (const struct product &p : all) {
    CHECK(p.prepared->apart == (p.then != NOTHING_MORE && *epilogues == '0'));
    left.push_back(results(p, false));
    left.push_back(results(p, true));
  }
  forget_products();
  return left;
}

int main()
{
  describe_all();
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaMalloc((void **)&m, sizeof *m));
  rank_memory = m;
  const auto by_library = all_results("1"), by_kernels = all_results("0");
  size_t changed = 0;
  for (size_t i = 0; i < by_library.size(); i++)
    for (size_t k = 0; k < by_library[i].size(); k++) {
      const float x = by_library[i][k], y = by_kernels[i][k];
      const bool narrow = all[i / 2].makes == BF16;
      // One more rounding, of the product alone, and of a sum's terms.
      CHECK(fabsf(x - y) <= 1e-4f + (narrow ? 0.05f + fabsf(x) / 64 : fabsf(x) * 1e-5f));
      changed += x != by_library[0][k];
    }
  CHECK(changed > 0);
  printf("products: %zu come to the same by epilogues and by kernels\n", by_library.size());
}
