// Metrics as TensorBoard reads them: numbers of steps in a file of events.
//
// A file is records: a length, a checksum of it, an event in the form of protocol buffers, and a
// checksum of that.
#ifndef EVENTS_H
#define EVENTS_H

#include "failure.h"

// Makes a new file in the folder, which is made where it is missing: several runs of a job are one
// there. NULL, and why. The file's name goes to `name`.
enum { EVENTS_NAME = 512 };
FILE *events_open(const char *folder, char name[EVENTS_NAME], struct failure *why);

// A step's numbers: begin, each of them, and end, which writes the event. `time` is that of the
// clock, in seconds since 1970.
void events_begin(double time, int step);
void events_number(const char *name, double x);
void events_end(FILE *file);

#endif
