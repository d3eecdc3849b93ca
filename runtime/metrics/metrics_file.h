// SPDX-License-Identifier: MIT
// The file of --metrics: one JSON object a line.
#ifndef METRICS_FILE_H
#define METRICS_FILE_H

#include <stdio.h>
#include "base/failure.h"

// Creates it, where the job begins at step 0. Where it goes on from the checkpoint of a later step,
// new lines follow those up to that step; what a job that was lost has written behind them is
// removed. NULL, and why; also if the file has other lines.
FILE *metrics_file_open(const char *path, int step, struct failure *why);

#endif
