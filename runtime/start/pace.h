// SPDX-License-Identifier: MIT
// Steps between which the ranks ask each other what no step tells: about one in a second.
#ifndef PACE_H
#define PACE_H

#include <stdbool.h>

// The steps begin.
void pace_open(void);

// Collective, after step t. Whether the ranks ask each other now: the same on all of them. Never
// before pace_open.
bool pace_is_due(int t);

#endif
