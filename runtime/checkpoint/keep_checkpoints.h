// SPDX-License-Identifier: MIT
// Checkpoints that are not replaced by the next save: the best, and some of the last.
#ifndef KEEP_H
#define KEEP_H

#include "base/failure.h"

// Whether a checkpoint may be kept under this name: there is none, or nothing but one. False, and
// why.
bool keep_is_free(const char *folder, const char *name, struct failure *why);

// Keeps the folder's newest save under this name in the folder, such as "best": as a folder of its
// own, which replaces the old one of that name. Its files are hard links. False, and why.
bool keep_checkpoint(const char *folder, const char *name, struct failure *why);

// The name of a checkpoint saved after a step: "step-00000100".
enum { KEPT_NAME = 24 };
const char *keep_name(int step, char to[KEPT_NAME]);

// Removes all but the last `count` of the checkpoints kept by step. False, and why.
bool keep_last(const char *folder, int count, struct failure *why);

#endif
