// A stand-in for CUDA that exists for tests only: the vector types, with the sizes and alignments
// of the real ones. Included by cuda_runtime.h.
#ifndef CUDA_ON_CPU_VECTORS_H
#define CUDA_ON_CPU_VECTORS_H

// A vector of T and the function that makes one: two, three and four of T, aligned as given.
#define CUDA_ON_CPU_VECTORS(T, name, align2, align4)                                               \
  struct alignas(align2) name##2                                                                   \
  {                                                                                                \
    T x, y;                                                                                        \
  };                                                                                               \
  struct name##3                                                                                   \
  {                                                                                                \
    T x, y, z;                                                                                     \
  };                                                                                               \
  struct alignas(align4) name##4                                                                   \
  {                                                                                                \
    T x, y, z, w;                                                                                  \
  };                                                                                               \
  static inline name##2 make_##name##2(T x, T y)                                                   \
  {                                                                                                \
    return {x, y};                                                                                 \
  }                                                                                                \
  static inline name##3 make_##name##3(T x, T y, T z)                                              \
  {                                                                                                \
    return {x, y, z};                                                                              \
  }                                                                                                \
  static inline name##4 make_##name##4(T x, T y, T z, T w)                                         \
  {                                                                                                \
    return {x, y, z, w};                                                                           \
  }
CUDA_ON_CPU_VECTORS(signed char, char, 2, 4)
CUDA_ON_CPU_VECTORS(unsigned char, uchar, 2, 4)
CUDA_ON_CPU_VECTORS(short, short, 4, 8)
CUDA_ON_CPU_VECTORS(unsigned short, ushort, 4, 8)
CUDA_ON_CPU_VECTORS(int, int, 8, 16)
CUDA_ON_CPU_VECTORS(unsigned, uint, 8, 16)
CUDA_ON_CPU_VECTORS(float, float, 8, 16)
#undef CUDA_ON_CPU_VECTORS

#define CUDA_ON_CPU_PAIR(T, name)                                                                  \
  struct alignas(16) name##2                                                                       \
  {                                                                                                \
    T x, y;                                                                                        \
  };                                                                                               \
  static inline name##2 make_##name##2(T x, T y)                                                   \
  {                                                                                                \
    return {x, y};                                                                                 \
  }
CUDA_ON_CPU_PAIR(double, double)
CUDA_ON_CPU_PAIR(long long, longlong)
CUDA_ON_CPU_PAIR(unsigned long long, ulonglong)
#undef CUDA_ON_CPU_PAIR

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
  {
  }
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
  {
  }
};

#endif
