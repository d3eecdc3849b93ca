// Collectives that run beside arithmetic, on their group's stream: what generated CUDA calls around
// them.
//
//   begin_on(tp_stream);        what tp_stream is given now waits for all that `stream` was given
//   ncclReduceScatter(..., tp_stream);
//   end_on(tp_stream, done[0]);
//   ...                         arithmetic, on `stream`, of other bytes
//   await(done[0]);             `stream` waits for the collective
//
// To wait for an event is to wait for what it was last recorded behind when the wait was issued:
// `ready` can be recorded again at once, and done[0] by the next collective after its await, in
// every round of a loop and in every step. No collective is pending where a function ends, so that
// a step can be captured as one graph: all that left `stream` has come back to it.
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "program.h"

static inline void begin_on(cudaStream_t on)
{
  CHECK_CUDA(cudaEventRecord(ready, stream));
  CHECK_CUDA(cudaStreamWaitEvent(on, ready, 0));
}

// As begin_on, of what works on nothing but the result of the collective that this event tells the
// end of: it waits for that alone, and so does the await of what is begun here.
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
  CHECK_CUDA(cudaStreamWaitEvent(stream, event, 0));
  mark_awaited(event);
}

#endif
