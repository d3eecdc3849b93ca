// SPDX-License-Identifier: MIT
// The interface between cuda.cu and cuda/steps.cu.
#ifndef CUDA_STEPS_H
#define CUDA_STEPS_H

// Whether steps run as graphs.
bool wants_graph();

// Releases the resources of steps.
void close_steps();

// Releases the notes of finite.h.
void close_finite();

#endif
