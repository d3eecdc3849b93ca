// SPDX-License-Identifier: MIT
// Sends and receives between stages of a pipeline, for generated CUDA. Two stages have a
// communicator and a stream for each direction, so that no call waits for one of another direction:
//
//   begin_on(stage_0_to_1_stream);   as collectives beside arithmetic: cuda/streams.h
//   ncclSend(at_mul(), ..., stage_0_to_1_stream);
//   end_on(stage_0_to_1_stream, done[1 + in_flight / 4096]);
//   ...                              `stream` does not wait for it, but before it writes there:
//   await_sent(done[1 + in_flight / 4096]);
//
// At the end of a step all is awaited: a step can be captured as one graph.
#ifndef CUDA_STAGES_H
#define CUDA_STAGES_H

#include "cuda/streams.h"

// If a send of this step ends with the event, and has not been awaited.
static inline void await_sent(cudaEvent_t event)
{
  if (is_unawaited(event)) await(event);
}

static inline void await_all_sent()
{
  for (int i = 0; i < program->nevents; i++) await_sent(program->events[i]);
}

#endif
