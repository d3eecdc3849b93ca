// Where the time of a step goes, by the device's own clock: --profile.
//
// Each piece of work is noted on its stream before it begins (note, in program.h); it lasted until
// the next note there. What it waited for counts as its own.
#ifndef CUDA_PROFILE_H
#define CUDA_PROFILE_H

// The step is begun: waits for it, and counts it.
void profile_step();

// Of a step the milliseconds, the calls and the names, the longest first, to standard output.
void profile_tell();

#endif
