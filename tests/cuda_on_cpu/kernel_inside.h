// A stand-in for CUDA that exists for tests only: what the sources that run kernels share.
#ifndef CUDA_ON_CPU_KERNEL_INSIDE_H
#define CUDA_ON_CPU_KERNEL_INSIDE_H

#include "stand_in.h"

namespace cuda_on_cpu
{
const unsigned WARP = 32, MAX_THREADS = 1024;

struct place {
  const char *file;
  int line;
};

struct thread {
  fiber *on;
  uint3 index;
  place at;       // of the barrier or warp call that it waits in
  warp_call call; // while it waits in one, and what follows
  unsigned mask;
  uint64_t given, taken;
  int argument, width;
  const char *name; // of what all do together, and what that is
  void (*work)(void *const *lanes);
};

// A call in which all lanes that have not ended meet: what each gives; then what is made of it.
struct meeting {
  unsigned arrived, members;
  unsigned first; // the thread that came first
  uint64_t given[WARP], made;
};

// A bit for each lane: those that have not begun, that may go on, that wait in a call of the warp
// or at the block's barrier, and all that have not ended. One that runs is in `live` alone. Lanes
// may be late to take what a meeting gives them, so it stays until the next but one begins.
struct warp {
  unsigned unstarted, ready, in_call, at_barrier, live;
  unsigned turn; // which of the two is the next meeting
  meeting whole[2];
};

// ---- launch.cpp

// Of the kernel that this thread runs, or null. A program may have other threads, such as a watch.
extern thread_local const char *kernel_name;
extern thread threads[MAX_THREADS];
extern warp warps[MAX_THREADS / WARP];
extern unsigned current; // the thread that runs

std::string describe(unsigned t);
std::string waits_in(unsigned t);

// Lets other threads run until the current one, which waits, may go on.
void wait_here();

// ---- warp.cpp

const char *name_of(const thread &w);

// Lets the lanes that wait for no other one go on: a lane has ended.
void try_calls(warp &w);

inline bool same_place(const place &a, const place &b)
{
  return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}
} // namespace cuda_on_cpu

#endif
