// SPDX-License-Identifier: MIT
// Metrics for TensorBoard: the numbers of steps in a file of events.
//
// A file is records: a length, its checksum, an event as a protocol buffer, and its checksum.
#ifndef EVENTS_H
#define EVENTS_H

#include "base/failure.h"

// Creates a new file in the folder, and the folder if it is missing; several runs of a job share a
// folder. NULL, and why. The file's name is written to `name`.
enum { EVENTS_NAME = 512 };
FILE *events_open(const char *folder, char name[EVENTS_NAME], struct failure *why);

// A step's numbers: begin, each of them, then end, which writes the event. `time` is the time of
// day, in seconds since 1970.
void events_begin(double time, int step);
void events_number(const char *name, double x);
void events_end(FILE *file);

#endif
