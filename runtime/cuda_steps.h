// What cuda.cu and cuda_steps.cu know of each other.
#ifndef CUDA_STEPS_H
#define CUDA_STEPS_H

// Whether steps are to be graphs.
bool wants_graph();

// Gives back what steps have taken.
void close_steps();

// Gives back what finite.h notes in.
void close_finite();

#endif
