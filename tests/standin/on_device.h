// Device memory that holds a vector's contents and gives them back.
#ifndef ON_DEVICE_H
#define ON_DEVICE_H

#include "check.h"

#include <cuda_runtime.h>

#include <vector>

template <class T> struct on_device {
  T *at;
  size_t count;
  explicit on_device(const std::vector<T> &from) : at(nullptr), count(from.size())
  {
    CHECK(cudaMalloc((void **)&at, count * sizeof(T)) == cudaSuccess);
    CHECK(cudaMemcpy(at, from.data(), count * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~on_device()
  {
    cudaFree(at);
  }
  std::vector<T> read() const
  {
    std::vector<T> to(count);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaMemcpy(to.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return to;
  }
};

#endif
