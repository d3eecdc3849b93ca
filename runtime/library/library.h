// SPDX-License-Identifier: MIT
// A model as a library: the declarations that library.c and its helpers share. The caller's header
// is generated; in this folder its names begin with library_ (library_names.h maps them).
//
// The runtime's state is OF_MODEL: a thread has that of the model whose function it is in. `enter`
// sets it from struct library, and `leave` takes back what has changed. A call that fails in the
// depth of the runtime ends by fail_call, which jumps back to the entry.
#ifndef LIBRARY_H
#define LIBRARY_H

#include "library_names.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include "base/failure.h"
#include "base/library_target.h"
#include "base/program.h"
#include "checkpoint/save_folder.h"
#include "metrics/validation_results.h"
#include "tensors/tensor_table.h"

// Calls the caller's `late` where a collective takes longer than the deadline (library/watch.c).
struct watch {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool runs, stopping;
  // The thread that is in a function of the model sets these; NULL: none is.
  const struct place *const *pending;
  const unsigned long *collectives;
  int deadline_factor; // deadlines
};

struct library {
  struct library_options options;
  const struct rank *rank;
  MPI_Comm everyone; // the library's own
  struct ranks *ranks;
  void *memory;
  struct members members;
  struct validations validations;
  int step;
  double rate_factor;
  long *lengths;            // of a model that generates: the tokens of each slot; or NULL
  const void *const *batch; // of the step in work: whole tensors, or NULL
  struct folder folder;     // held while a save is in work
  void *stage;              // STAGED_BYTES
  struct watch watch;
  atomic_flag busy;
  bool joined, broken, lost; // lost: by a call that failed
  jmp_buf failed;
  struct failure error;
};

// The constants of each rank: generated, library_ranks.c.
extern const struct rank *const library_ranks[];

// Does the work as a call of the model: the status that its function returns.
int library_call(struct library *m, bool (*work)(struct library *m, void *with), void *with);

// Starts to watch, if there is a deadline; and ends.
bool library_watch_start(struct library *m);
void library_watch_stop(struct library *m);

// Inputs and outputs in the order of the table, as the caller counts them; NULL: no more.
const struct member *library_input(const struct library *m, int i);
const struct member *library_output(const struct library *m, int i);

// Copies this rank's part of the whole tensor to memory; and the parts of all ranks to the whole
// (collective).
void library_put(struct library *m, const struct member *input, const void *whole);
void library_gather(struct library *m, const struct member *output, void *whole);

// Collective. Whether all integers of the inputs are valid: of the whole tensors, for so many
// batches; or, with NULL, of those in memory.
bool library_inputs_hold(struct library *m, const void *const *whole, long batches);

#endif
