// SPDX-License-Identifier: MIT
// Packs and unpacks the buffers of collectives, for generated CUDA: all segments of a buffer in one
// launch.
#ifndef CUDA_SEGMENTS_H
#define CUDA_SEGMENTS_H

#include "base/elements.h"
#include "base/program.h"
#include "base/segments.h"

// The segments as a kernel's arguments: the blocks from first[k] on copy the k-th, by vectors if
// `wide` says that all its starts and ends are aligned to vectors.
template <int N> struct segments {
  struct segment segment[N];
  unsigned first[N + 1];
  bool wide[N];
};

enum {
  SEGMENT_THREADS = 256,
  SEGMENT_VECTORS = 4 // copied by a thread: it reads all before it writes any
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

// The position of the i-th element of a segment in the value, and in the buffer.
struct segment_place {
  long here, there;
};
__device__ static inline struct segment_place place_of(const struct segment &p, long chunk, long i)
{
  if (p.parts == 1 && p.rows == 1) return {i, p.place + i};
  const long line = (long)quotient((unsigned long)i, (unsigned long)p.run), x = i - line * p.run;
  const long part = (long)quotient((unsigned long)line, (unsigned long)p.rows);
  const long row = line - part * p.rows;
  return {row * p.of + part * p.run + x, part * chunk + p.place + row * p.run + x};
}

// One thread's share of block `block`, V elements at a time: into the buffer, of T, or out of it.
template <class T, class Here, int V, bool IN>
__device__ static inline void copy_segment(T *buffer, const struct segment &p, long chunk,
                                           unsigned block)
{
  const long all = p.parts * p.rows * p.run;
  const long begin = ((long)block * SEGMENT_VECTORS * SEGMENT_THREADS + threadIdx.x) * V;
  struct elements_of<Here, V> here[SEGMENT_VECTORS] = {
  };
  struct elements_of<T, V> there[SEGMENT_VECTORS] = {
  };
  struct segment_place place[SEGMENT_VECTORS];
#pragma unroll
  for (int k = 0; k < SEGMENT_VECTORS; k++) {
    const long i = begin + (long)k * SEGMENT_THREADS * V;
    place[k] = place_of(p, chunk, i);
    if (i >= all) continue;
    if (!IN) there[k] = *(const struct elements_of<T, V> *)(buffer + place[k].there);
    if (IN && p.at) here[k] = *(const struct elements_of<Here, V> *)((Here *)p.at + place[k].here);
  }
#pragma unroll
  for (int k = 0; k < SEGMENT_VECTORS; k++) {
    const long i = begin + (long)k * SEGMENT_THREADS * V;
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
__global__ __launch_bounds__(SEGMENT_THREADS) void copy_segments(
    T *buffer, long chunk, const __grid_constant__ struct segments<N> all)
{
  typedef typename cast_of<T>::type Other;
  int k = 0;
  while (blockIdx.x >= all.first[k + 1]) k++;
  const struct segment &p = all.segment[k];
  const unsigned block = blockIdx.x - all.first[k];
  if (p.bytes == (long)sizeof(T)) {
    if (all.wide[k])
      copy_segment<T, T, vector_of<T, T>::SIZE, IN>(buffer, p, chunk, block);
    else
      copy_segment<T, T, 1, IN>(buffer, p, chunk, block);
  } else {
    if (all.wide[k])
      copy_segment<T, Other, vector_of<T, Other>::SIZE, IN>(buffer, p, chunk, block);
    else
      copy_segment<T, Other, 1, IN>(buffer, p, chunk, block);
  }
}

// Whether the starts and ends of all runs of the segment are aligned to vectors of V elements.
static inline bool fits_vectors(const void *buffer, const struct segment &p, long chunk, long v)
{
  const long steps = (p.parts > 1 ? chunk : 0) | (p.rows > 1 ? p.of : 0) | p.place | p.run;
  return steps % v == 0 && ((size_t)buffer | (size_t)p.at) % 16 == 0;
}

template <class T, int N, bool IN>
static inline void launch_segments(cudaStream_t on, T *buffer, long chunk,
                                   const struct segment *segment)
{
  struct segments<N> all;
  all.first[0] = 0;
  for (int k = 0; k < N; k++) {
    const struct segment &p = segment[k];
    const long narrow = p.bytes < (long)sizeof(T) ? p.bytes : (long)sizeof(T);
    all.segment[k] = p;
    all.wide[k] = fits_vectors(buffer, p, chunk, 16 / narrow);
    const long in_block = SEGMENT_THREADS * SEGMENT_VECTORS * (all.wide[k] ? 16 / narrow : 1);
    all.first[k + 1] =
        all.first[k] + (unsigned)((p.parts * p.rows * p.run + in_block - 1) / in_block);
  }
  if (all.first[N] == 0) return;
  LAUNCH((copy_segments<T, N, IN>), all.first[N], SEGMENT_THREADS, on)(buffer, chunk, all);
  CHECK_CUDA(cudaGetLastError());
}

// The most that fit a kernel's arguments; more segments take several launches.
enum { MOST_SEGMENTS = 400 };

template <class T, int N, bool IN>
static inline void launch_all_segments(cudaStream_t on, T *buffer, long chunk,
                                       const struct segment *segment)
{
  constexpr int LAST = N % MOST_SEGMENTS;
  for (int k = 0; k + MOST_SEGMENTS <= N; k += MOST_SEGMENTS)
    launch_segments < T, N<MOST_SEGMENTS ? N : MOST_SEGMENTS, IN>(on, buffer, chunk, segment + k);
  if (LAST) launch_segments<T, LAST ? LAST : 1, IN>(on, buffer, chunk, segment + N - LAST);
}

// Copies n segments into the buffer at `at`, whose chunks have `chunk` elements; unpack_segments is
// the reverse; unpack_segments_on is the reverse on the stream of the collective that brought them.
template <class T, int N>
static inline void pack_segments(T *at, long bytes, long chunk, int n, const struct segment (&p)[N])
{
  (void)bytes, (void)n;
  launch_all_segments<T, N, true>(stream, at, chunk, p);
}

template <class T, int N>
static inline void unpack_segments_on(cudaStream_t on, T *at, long bytes, long chunk, int n,
                                      const struct segment (&p)[N])
{
  (void)bytes, (void)n;
  launch_all_segments<T, N, false>(on, at, chunk, p);
}

template <class T, int N>
static inline void unpack_segments(T *at, long bytes, long chunk, int n,
                                   const struct segment (&p)[N])
{
  unpack_segments_on(stream, at, bytes, chunk, n, p);
}

#endif
