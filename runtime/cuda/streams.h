// SPDX-License-Identifier: MIT
// Collectives that overlap with arithmetic, on their group's stream: the calls around them in
// generated CUDA.
//
//   begin_on(tp_stream);        later work on tp_stream waits for all earlier work on `stream`
//   ncclReduceScatter(..., tp_stream);
//   end_on(tp_stream, done[0]);
//   ...                         arithmetic on `stream` that uses other bytes
//   await(done[0]);             `stream` waits for the collective
//
// A wait refers to the last record of the event before the wait was issued: so `ready` can be
// recorded again at once, and done[0] by the next collective after its await, in every iteration of
// a loop and in every step. No collective is pending at the end of a function, so a step can be
// captured as one graph: all work that forked from `stream` has joined it again.
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "base/program.h"

static inline void begin_on(cudaStream_t on)
{
  CHECK_CUDA(cudaEventRecord(ready, stream));
  CHECK_CUDA(cudaStreamWaitEvent(on, ready, 0));
}

// Like begin_on, for a collective that uses only the result of the collective that `event` ends: it
// waits only for that event, and so does the await of this collective.
static inline void begin_behind(cudaStream_t on, cudaEvent_t event)
{
  CHECK_CUDA(cudaStreamWaitEvent(on, event, 0));
}

static inline void end_on(cudaStream_t on, cudaEvent_t event)
{
  note(NULL, on);
  CHECK_CUDA(cudaEventRecord(event, on));
  mark_end(event);
}

static inline void await(cudaEvent_t event)
{
  note(WAITS, stream);
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  mark_awaited(event);
}

#endif
