// SPDX-License-Identifier: MIT
// What a job saves: its checkpoints, at once or beside the next steps, and at its end what it
// exports.
#ifndef SAVES_H
#define SAVES_H

#include <limits.h>
#include <stdbool.h>
#include "base/failure.h"
#include "base/options.h"

// The folder of --weights, which may be a file; NULL: there are none.
const char *weights_folder(const struct options *o, char to[PATH_MAX]);

// Collective. Names the job, and takes its folders before there is work to lose. False, and a
// report.
bool saves_open(const struct options *o);

// The bytes of this rank that saves beside the steps take for their copy; 0: there are none.
size_t saves_copy_bytes(const struct options *o);

// The steps begin, beside which there will be saves.
void saves_prepare(const struct options *o);

// Collective. Saves the checkpoint of step t, unless it is saved already. False, and a report.
bool saves_now(const struct options *o, int t);

// Collective. A program that only goes forward runs all samples (forward_all.h), and their outputs
// are saved if the job saves.
bool saves_of_all(const struct options *o);

// Collective. Begins to save that of step t, just done, beside the next steps, if there is memory
// for a copy, or saves it at once. A failure beside the steps is a note; at once it is one that
// ends the job.
bool saves_during(const struct options *o, int t);

// Collective, now and then between steps: goes on with what is saved beside them.
void saves_look(void);

// Collective. Waits for that.
void saves_wait(void);

// Collective. Exports what the job has by step t: the last use of the weights.
bool saves_export(const struct options *o, int t);

// Collective. Gives the folders to others.
void saves_close(void);

#endif
