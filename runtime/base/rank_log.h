// SPDX-License-Identifier: MIT
// --logs DIR: a file of each rank, with all that the rank and its libraries print.
#ifndef RANK_LOG_H
#define RANK_LOG_H

#include <stdbool.h>
#include "base/failure.h"

#ifdef __cplusplus
extern "C" {
#endif

// From now on DIR/rankN.log gets all that this rank prints. Makes DIR if it does not exist. A
// process that has threads must not call this.
bool rank_log_open(const char *dir, int rank, struct failure *why);

// Whether there is such a file.
bool rank_log_is_open(void);

// Writes a line to the file, and not to the terminal; takes what printf takes.
__attribute__((format(printf, 1, 2))) void rank_log_tell(const char *format, ...);

// Waits until all is in the file. Nothing can be printed behind this.
void rank_log_close(void);

#ifdef __cplusplus
}
#endif

#endif
