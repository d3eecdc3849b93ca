// SPDX-License-Identifier: MIT
// --profile: the time of each part of a step, by the device's clock.
//
// note (program.h) marks the start of each piece of work on its stream; the piece ends at the next
// mark there. A wait of arithmetic for a collective on another stream is a piece of its own; the
// time of others includes their waits.
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H

// Waits for the issued step, and adds it to the profile.
void profile_step();

// Writes the milliseconds, calls and names of a step to standard output, the longest first.
void profile_tell();

#endif
