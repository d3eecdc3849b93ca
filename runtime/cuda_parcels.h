// Packs and unpacks the buffers of collectives, for generated CUDA: all parcels of a buffer in one
// launch.
#ifndef CUDA_PARCELS_H
#define CUDA_PARCELS_H

#include "elements.h"
#include "parcels.h"
#include "program.h"

// The parcels as a kernel's arguments: the blocks from first[k] on copy the k-th, by vectors if
// `wide` says that all its starts and ends are aligned to vectors.
template <int N> struct parcels {
  struct parcel parcel[N];
  unsigned first[N + 1];
  bool wide[N];
};

enum {
  PARCEL_THREADS = 256,
  PARCEL_VECTORS = 4 // copied by a thread: it reads all before it writes any
};

template <class T, int N> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) elements_of {
  T at[N];
};

// Converts a value from one type to the other.
__device__ static inline void convert(float *to, bf16 from)
{
  *to = bf16_to_float(from);
}
__device__ static inline void convert(bf16 *to, float from)
{
  *to = float_to_bf16(from);
}
template <class T> __device__ static inline void convert(T *to, T from)
{
  *to = from;
}

__device__ static inline unsigned long quotient(unsigned long a, unsigned long b)
{
  return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b;
}

// The position of the i-th element of a parcel in the value, and in the buffer.
struct parcel_place {
  long here, there;
};
__device__ static inline struct parcel_place place_of(const struct parcel &p, long chunk, long i)
{
  if (p.parts == 1 && p.rows == 1) return {i, p.place + i};
  const long line = (long)quotient((unsigned long)i, (unsigned long)p.run), x = i - line * p.run;
  const long part = (long)quotient((unsigned long)line, (unsigned long)p.rows);
  const long row = line - part * p.rows;
  return {row * p.of + part * p.run + x, part * chunk + p.place + row * p.run + x};
}

// One thread's share of block `block`, V elements at a time: into the buffer, of T, or out of it.
template <class T, class Here, int V, bool IN>
__device__ static inline void copy_parcel(T *buffer, const struct parcel &p, long chunk,
                                          unsigned block)
{
  const long all = p.parts * p.rows * p.run;
  const long begin = ((long)block * PARCEL_VECTORS * PARCEL_THREADS + threadIdx.x) * V;
  struct elements_of<Here, V> here[PARCEL_VECTORS] = {
  };
  struct elements_of<T, V> there[PARCEL_VECTORS] = {
  };
  struct parcel_place place[PARCEL_VECTORS];
#pragma unroll
  for (int k = 0; k < PARCEL_VECTORS; k++) {
    const long i = begin + (long)k * PARCEL_THREADS * V;
    place[k] = place_of(p, chunk, i);
    if (i >= all) continue;
    if (!IN) there[k] = *(const struct elements_of<T, V> *)(buffer + place[k].there);
    if (IN && p.at) here[k] = *(const struct elements_of<Here, V> *)((Here *)p.at + place[k].here);
  }
#pragma unroll
  for (int k = 0; k < PARCEL_VECTORS; k++) {
    const long i = begin + (long)k * PARCEL_THREADS * V;
    if (i >= all) continue;
    for (int e = 0; e < V; e++)
      if (IN)
        convert(&there[k].at[e], here[k].at[e]);
      else
        convert(&here[k].at[e], there[k].at[e]);
    if (IN) *(struct elements_of<T, V> *)(buffer + place[k].there) = there[k];
    if (!IN) *(struct elements_of<Here, V> *)((Here *)p.at + place[k].here) = here[k];
  }
}

// The type of values that are cast to or from T in the copy; for the other types T itself.
template <class T> struct cast_of {
  typedef T type;
};
template <> struct cast_of<float> {
  typedef bf16 type;
};
template <> struct cast_of<bf16> {
  typedef float type;
};

// Elements of a vector: 16 bytes of the narrower of two types.
template <class T, class Here> struct vector_of {
  enum { SIZE = 16 / (sizeof(T) < sizeof(Here) ? sizeof(T) : sizeof(Here)) };
};

template <class T, int N, bool IN>
__global__
__launch_bounds__(PARCEL_THREADS) void copy_parcels(T *buffer, long chunk,
                                                    const __grid_constant__ struct parcels<N> all)
{
  typedef typename cast_of<T>::type Other;
  int k = 0;
  while (blockIdx.x >= all.first[k + 1]) k++;
  const struct parcel &p = all.parcel[k];
  const unsigned block = blockIdx.x - all.first[k];
  if (p.bytes == (long)sizeof(T)) {
    if (all.wide[k])
      copy_parcel<T, T, vector_of<T, T>::SIZE, IN>(buffer, p, chunk, block);
    else
      copy_parcel<T, T, 1, IN>(buffer, p, chunk, block);
  } else {
    if (all.wide[k])
      copy_parcel<T, Other, vector_of<T, Other>::SIZE, IN>(buffer, p, chunk, block);
    else
      copy_parcel<T, Other, 1, IN>(buffer, p, chunk, block);
  }
}

// Whether the starts and ends of all runs of the parcel are aligned to vectors of V elements.
static inline bool fits_vectors(const void *buffer, const struct parcel &p, long chunk, long v)
{
  const long steps = (p.parts > 1 ? chunk : 0) | (p.rows > 1 ? p.of : 0) | p.place | p.run;
  return steps % v == 0 && ((size_t)buffer | (size_t)p.at) % 16 == 0;
}

template <class T, int N, bool IN>
static inline void launch_parcels(cudaStream_t on, T *buffer, long chunk,
                                  const struct parcel *parcel)
{
  struct parcels<N> all;
  all.first[0] = 0;
  for (int k = 0; k < N; k++) {
    const struct parcel &p = parcel[k];
    const long narrow = p.bytes < (long)sizeof(T) ? p.bytes : (long)sizeof(T);
    all.parcel[k] = p;
    all.wide[k] = fits_vectors(buffer, p, chunk, 16 / narrow);
    const long in_block = PARCEL_THREADS * PARCEL_VECTORS * (all.wide[k] ? 16 / narrow : 1);
    all.first[k + 1] =
        all.first[k] + (unsigned)((p.parts * p.rows * p.run + in_block - 1) / in_block);
  }
  if (all.first[N] == 0) return;
  LAUNCH((copy_parcels<T, N, IN>), all.first[N], PARCEL_THREADS, on)(buffer, chunk, all);
  CHECK_CUDA(cudaGetLastError());
}

// The most that fit a kernel's arguments; more parcels take several launches.
enum { MOST_PARCELS = 400 };

template <class T, int N, bool IN>
static inline void launch_all_parcels(cudaStream_t on, T *buffer, long chunk,
                                      const struct parcel *parcel)
{
  constexpr int LAST = N % MOST_PARCELS;
  for (int k = 0; k + MOST_PARCELS <= N; k += MOST_PARCELS)
    launch_parcels < T, N<MOST_PARCELS ? N : MOST_PARCELS, IN>(on, buffer, chunk, parcel + k);
  if (LAST) launch_parcels<T, LAST ? LAST : 1, IN>(on, buffer, chunk, parcel + N - LAST);
}

// Copies n parcels into the buffer at `at`, whose chunks have `chunk` elements; unpack_parcels is
// the reverse; unpack_parcels_on is the reverse on the stream of the collective that brought them.
template <class T, int N>
static inline void pack_parcels(T *at, long bytes, long chunk, int n, const struct parcel (&p)[N])
{
  (void)bytes, (void)n;
  launch_all_parcels<T, N, true>(stream, at, chunk, p);
}

template <class T, int N>
static inline void unpack_parcels_on(cudaStream_t on, T *at, long bytes, long chunk, int n,
                                     const struct parcel (&p)[N])
{
  (void)bytes, (void)n;
  launch_all_parcels<T, N, false>(on, at, chunk, p);
}

template <class T, int N>
static inline void unpack_parcels(T *at, long bytes, long chunk, int n, const struct parcel (&p)[N])
{
  unpack_parcels_on(stream, at, bytes, chunk, n, p);
}

#endif
