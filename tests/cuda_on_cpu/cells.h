// A stand-in for CUDA that exists for tests only: what it keeps of each two bytes of device memory.
#ifndef CUDA_ON_CPU_CELLS_H
#define CUDA_ON_CPU_CELLS_H

#include "stand_in.h"

namespace cuda_on_cpu
{
// The operation that wrote them last, and one that has read them since, or several (order.cpp).
struct cell {
  uint32_t write, read;
};
static_assert(sizeof(cell) == 8, "a cell has eight bytes");

// All device memory lies in one stretch of addresses (memory.cpp), its cells in another.
extern uintptr_t device_begin, device_bytes, cells_begin;

inline bool in_device_addresses(const void *p)
{
  return reinterpret_cast<uintptr_t>(p) - device_begin < device_bytes;
}
inline cell *cells_at(const void *p)
{
  const uintptr_t offset = reinterpret_cast<uintptr_t>(p) - device_begin;
  return reinterpret_cast<cell *>(cells_begin) + offset / 2;
}

extern uint32_t now; // the operation that is done now, or 0
} // namespace cuda_on_cpu

#endif
