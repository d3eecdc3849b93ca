// The program's tensors: filled from files or by Philox, and saved whole.
#ifndef TENSORS_H
#define TENSORS_H

#include "failure.h"

// Fills every PARAMETER, STATE and BATCH tensor of this rank. `weights` and `data` are files, or
// NULL; what no file gives comes from its init. *step is where training stands: the step that
// `weights` was saved after where it holds all of the program's STATE, else 0.
bool tensors_fill(const char *weights, const char *data, int *step, struct failure *why);

// A save in three parts, each to be agreed on by all ranks before the next; step: the last one
// done.
//   begin   rank 0 makes the directory, and beside the file a new one of full size, with its header
//   write   each rank puts its shards into the new file
//   commit  rank 0 gives the new file its name
// abandon: rank 0 removes the new file after a part has failed anywhere.
// A training program saves PARAMETER and STATE as model.safetensors, an inference program its
// OUTPUT as outputs.safetensors.
bool save_begin(const char *directory, int step, struct failure *why);
bool save_write(const char *directory, int step, struct failure *why);
bool save_commit(const char *directory, struct failure *why);
void save_abandon(const char *directory);

// Makes the directory and what leads to it, where they are missing.
bool save_directory(const char *directory, struct failure *why);

#endif
