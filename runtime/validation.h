// Validations: the loss of other data, with what training has made of the weights so far.
#ifndef VALIDATION_H
#define VALIDATION_H

#include <stdbool.h>
#include "failure.h"
#include "options.h"
#include "validations.h"

// Opens the data, where options or plan tell of any. False, and why.
bool validation_open(const struct options *o, struct failure *why);

// Looks at its whole numbers, this rank at its share of them. False, and why.
bool validation_check(struct failure *why);

// Is there one after step t? The last step always has one.
bool validation_is_due(const struct options *o, int t, bool is_last);

// Collective. Runs one after step t, and notes it in `validations`: the mean over all labels that
// count, or over all samples where none are ignored.
void validation_run(int t);

#endif
