// The copies that generated CUDA makes into the buffers of collectives and out of them
// (runtime/cuda/kernels/segments.h), against what runtime/base/segments.h says of each element:
// random segments, of both types in either's buffer, that begin and end where vectors may or not;
// more of them than one launch takes, and longer than a block's.
#define TPGEN_CUDA
#include "../../runtime/cuda/kernels/segments.h"

#include "check.h"
#include "of_runtime.h"
#include "on_device.h"

#include <random>
#include <vector>

static std::mt19937 generator(7);

static long below(long n)
{
  return (long)(generator() % (unsigned long)n);
}

// Mostly a multiple of what any vector holds.
static long length(long most)
{
  return below(4) ? (1 + below(most)) * 8 : 1 + below(8 * most);
}

static long gap()
{
  return below(4) ? below(3) * 8 : below(20);
}

// Numbers that bfloat16 has, too.
static float number_at(const void *at, long bytes, long i)
{
  return bytes == 2 ? bf16_to_float(((const bf16 *)at)[i]) : ((const float *)at)[i];
}

static void set_number(void *at, long bytes, long i, float x)
{
  if (bytes == 2)
    ((bf16 *)at)[i] = float_to_bf16(x);
  else
    ((float *)at)[i] = x;
}

// Some segments, the values of all of which lie in one array of bytes, from begin[k] on.
template <int N> struct scene {
  struct segment segment[N];
  size_t begin[N], bytes;
  long chunk, chunks;
};

// zeros: some segments are.
template <int N> static struct scene<N> random_scene(long most, bool zeros) {
  struct scene<N> s = {
  };
  s.bytes = 16;
  for (int k = 0; k < N; k++) {
    struct segment &p = s.segment[k];
    p.bytes = below(2) ? 2 : 4;
    p.parts = 1 + below(3);
    p.rows = 1 + below(3);
    p.run = length(most);
    p.of = p.parts * p.run + gap();
    p.place = s.chunk + gap();
    s.chunk = p.place + p.rows * p.run;
    s.chunks = p.parts > s.chunks ? p.parts : s.chunks;
    if (zeros && !below(4)) continue;
    s.begin[k] = (s.bytes + 15) / 16 * 16 + (below(4) ? 0 : (size_t)p.bytes);
    s.bytes = s.begin[k] + (size_t)(p.rows * p.of * p.bytes) + 16;
  }
  s.chunk += gap() + 1;
  return s;
}

// Calls what(element of the value, element of the buffer) for each of the segment.
template <class F>
static void each(const struct segment &p, long chunk, F what)
{
  for (long part = 0; part < p.parts; part++)
    for (long row = 0; row < p.rows; row++)
      for (long i = 0; i < p.run; i++)
        what(row * p.of + part * p.run + i, part * chunk + p.place + row * p.run + i);
}

template <class T, int N>
static void copy_plainly(const struct scene<N> &s, char *values, T *buffer, bool in)
{
  for (int k = 0; k < N; k++)
    each(s.segment[k], s.chunk, [&](long here, long there) {
      const long bytes = s.segment[k].bytes, own = (long)sizeof(T);
      char *value = values + s.begin[k];
      if (in)
        set_number(buffer, own, there, s.begin[k] ? number_at(value, bytes, here) : 0);
      else
        set_number(value, bytes, here, number_at(buffer, own, there));
    });
}

template <class T, int N> static void test_copies(long most, bool in)
{
  struct scene<N> s = random_scene<N>(most, in);
  std::vector<char> values(s.bytes);
  std::vector<T> buffer((size_t)(s.chunk * s.chunks));
  for (size_t i = 0; i < values.size() / sizeof(T); i++)
    set_number(values.data(), sizeof(T), (long)i, (float)(1 + below(255)));
  for (size_t i = 0; i < buffer.size(); i++)
    set_number(buffer.data(), sizeof(T), (long)i, (float)(1 + below(255)));
  for (int k = 0; k < N; k++)
    for (long i = 0; s.begin[k] && i < s.segment[k].rows * s.segment[k].of; i++)
      set_number(values.data() + s.begin[k], s.segment[k].bytes, i, (float)(1 + below(255)));
  on_device<char> there(values);
  on_device<T> flat(buffer);
  for (int k = 0; k < N; k++) s.segment[k].at = s.begin[k] ? there.at + s.begin[k] : NULL;
  if (in)
    pack_segments(flat.at, sizeof(T), s.chunk, N, s.segment);
  else
    unpack_segments(flat.at, sizeof(T), s.chunk, N, s.segment);
  copy_plainly(s, values.data(), buffer.data(), in);
  CHECK(flat.read() == buffer);
  CHECK(there.read() == values);
}

template <class T> static void test_type()
{
  for (int in = 0; in < 2; in++) {
    for (int i = 0; i < 100; i++) test_copies<T, 3>(12, in);
    for (int i = 0; i < 6; i++) test_copies<T, 2>(2500, in);
    test_copies<T, MOST_SEGMENTS>(3, in);
    test_copies<T, MOST_SEGMENTS + 1>(3, in);
    test_copies<T, 2 * MOST_SEGMENTS + 3>(3, in);
  }
}

// Vectors are for what begins and ends at multiples of them, in the value and in the buffer, and
// for all of that.
static void test_fits()
{
  alignas(16) static char memory[64];
  int fit = 0;
  for (int i = 0; i < 20000; i++) {
    struct scene<1> s = random_scene<1>(3, false);
    struct segment &p = s.segment[0];
    const long v = 4 << below(2);
    p.at = memory + (below(4) ? 16 : p.bytes);
    char *const buffer = memory + (below(4) ? 0 : p.bytes);
    bool fits = (size_t)p.at % 16 == 0 && (size_t)buffer % 16 == 0 && p.run % v == 0;
    each(p, s.chunk, [&](long here, long there) {
      const bool begins = (here - here / p.of * p.of) % p.run == 0;
      if (begins) fits &= here % v == 0 && there % v == 0;
    });
    CHECK(fits_vectors(buffer, p, s.chunk, v) == fits);
    fit += fits;
  }
  CHECK(fit > 1000);
}

static __global__ void divide(unsigned long *to, unsigned long a, unsigned long b)
{
  *to = quotient(a, b);
}

static void test_quotients()
{
  const unsigned long numbers[] = {1, 3, 1000, 4294967295, 4294967296, 4294967299, 1UL << 40};
  on_device<unsigned long> to(std::vector<unsigned long>(1, 0));
  for (unsigned long a : numbers)
    for (unsigned long b : numbers) {
      LAUNCH(divide, 1, 1, stream)(to.at, a, b);
      CHECK(to.read()[0] == a / b);
    }
}

int main()
{
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  test_type<float>();
  test_type<bf16>();
  test_fits();
  test_quotients();
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  puts("segments: ok");
}
