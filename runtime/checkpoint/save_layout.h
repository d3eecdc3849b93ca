// SPDX-License-Identifier: MIT
// The layout of a save: its tensors, their files and names. Private to checkpoint.c.
#ifndef SAVE_LAYOUT_H
#define SAVE_LAYOUT_H

#include "checkpoint/checkpoint.h"
#include "data/batches.h"
#include "formats/safetensors.h"
#include "metrics/validation_results.h"
#include "tensors/tensor_table.h"

struct json_t;

enum { NAME = 80 + TOKEN }; // room for a file's name

// One of the new files: entries first .. first + count - 1.
struct part {
  size_t first, count;
  uint64_t bytes;  // of data
  size_t length;   // of its header; the data begins after it
  uint64_t device; // of the file that create made
  uint64_t inode;
};

struct save {
  struct saving what;
  char *directory;
  struct members members;
  struct entry *entries;       // the saved tensors, in the order of the table
  const struct member **saved; // the member of each: its first part
  long *index; // -1: the whole member; else one index of its first dimension, which others name
  uint32_t *shares; // of their checksums
  size_t count;
  struct part *parts;
  size_t nparts;
  int generation;                 // of the names of several parts: above 1 the names contain it
  size_t named;                   // the number of parts with their final names
  bool committed;                 // the new index may be valid
  bool has_crcs;                  // tensors have checksums, as in checkpoints
  uint32_t of_all;                // the checksum of them all
  struct position at;             // where the data stands after the step
  struct validations validations; // and what is best of them
  long (*shapes)[MAX_DIMS];       // of outputs of several batches
  uint64_t first_sample, samples; // of the batch that is written
  const char *copy;               // of what this rank saves, or NULL
  size_t *copied;                 // where each member is in it
};

// Whether it is saved as float32, and the program stores it narrower: an export of weights that are
// only read.
bool save_widens(const struct save *s, const struct member *m);

// The next part of the tensor of an entry, or NULL.
const struct member *save_next(const struct save *s, const struct member *m);

const char *single_name(const struct save *s);

// The name of part i after the commit, and before: a name that no other job uses.
void final_name(const struct save *s, size_t i, char to[NAME]);
void new_name(const struct save *s, size_t i, char to[NAME]);
void new_index_name(const struct save *s, char to[NAME]);

// Whether it is the name of a part of this save.
bool is_own_part(const struct save *s, const char *name);

// All bytes of part i before the data, *length of them, to be freed by the caller; NULL, and why.
char *make_head(struct save *s, size_t i, size_t *length, struct failure *why);

// NULL, and why, if out of memory.
struct json_t *make_index(const struct save *s, struct failure *why);

#endif
