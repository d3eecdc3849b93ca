// SPDX-License-Identifier: MIT
// A checkpoint that is written while the training goes on: its tensors are copied at the end of a
// step, and a thread of each rank writes the copy. The parts of a save (checkpoint.h) follow one
// another as the ranks find, between steps, that all of them have done the one before.
#ifndef BACKGROUND_SAVE_H
#define BACKGROUND_SAVE_H

#include <stdbool.h>
#include "checkpoint/checkpoint.h"

struct background_save {
  struct saving what;
  // Of rank 0, in the thread, when the files have their names: more work, or NULL. False, and why.
  bool (*then)(const struct background_save *, struct failure *why);
  const void *context; // of `then`
  bool is_best;        // likewise
};

// The bytes of this rank's copy for such a save.
size_t background_save_bytes(const struct saving *what);

// A save such as this will come: a thread gets the memory for its copy meanwhile.
void background_save_prepare(const struct saving *what);

// Collective. Copies and begins. False if there is no memory for a copy on a rank: nothing has
// begun. None may be under way.
bool background_save_begin(const struct background_save *what);

// Collective, between steps: goes on with the next part if all ranks have done the last one.
void background_save_look(void);

// Collective. Waits for its end. The step that is saved, or -1: none was under way, or it failed,
// which a note has reported.
int background_save_finish(void);

bool background_save_is_under_way(void);

// Collective. Releases the memory of copies.
void background_save_close(void);

#endif
