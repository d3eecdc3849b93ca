// Checkpoints that stay when a job saves the next one: the best, and some of the last.
#ifndef KEEP_H
#define KEEP_H

#include "failure.h"

// What the folder has just been given by a save stays under this name in it, as "best": a folder of
// its own, in the place of one that was there. Its files are links to the same bytes. False, and
// why.
bool keep_checkpoint(const char *folder, const char *name, struct failure *why);

// The name for what was saved after a step: "step-00000100".
enum { KEPT_NAME = 24 };
const char *keep_name(int step, char to[KEPT_NAME]);

// Removes all but the last `count` of what is kept by step. False, and why.
bool keep_last(const char *folder, int count, struct failure *why);

#endif
