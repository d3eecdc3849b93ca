// A stand-in for CUDA that exists for tests only: what the sources that run kernels share.
#ifndef CUDA_ON_CPU_KERNEL_INSIDE_H
#define CUDA_ON_CPU_KERNEL_INSIDE_H

#include "stand_in.h"

namespace cuda_on_cpu
{
const unsigned WARP = 32, MAX_THREADS = 1024;
const unsigned AHEAD = 16; // how many calls a lane may be ahead of another

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

// A call in which all lanes that have not ended meet, and what each gives. A lane that needs the
// value of one other goes on as soon as that one has come, so that some are ahead of others.
struct meeting {
  unsigned number; // of those of its warp, from 1
  unsigned arrived, taken;
  unsigned waiting_for_all, waiting_for[WARP]; // by lane: those that need what it gives
  warp_call call;
  place at;
  unsigned first; // the thread that came first
  uint64_t given[WARP], made;
};

// A bit for each lane: those that have not begun, that may go on, that wait in a call of the warp
// or at the block's barrier, and all that have not ended. One that runs is in `live` alone.
struct warp {
  unsigned unstarted, ready, in_call, at_barrier, live;
  unsigned meetings[WARP]; // that each lane has come to
  meeting last[AHEAD];     // number n is at n % AHEAD
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

// The current thread waits until all lanes of its warp have come to the calls that it has behind
// it: before it waits for them elsewhere, or ends.
void wait_for_warp();

// Lets those go on that waited for a lane which has ended.
void try_calls(warp &w);

inline bool same_place(const place &a, const place &b)
{
  return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}
} // namespace cuda_on_cpu

#endif
