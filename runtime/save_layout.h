// What a save consists of: which tensors, in which files, under which names. Of checkpoint.c alone.
#ifndef SAVE_LAYOUT_H
#define SAVE_LAYOUT_H

#include "checkpoint.h"
#include "safetensors.h"
#include "tensor_table.h"

struct json_t;

enum { NAME = 80 + TOKEN }; // room for a file's name

// One of the new files: entries first .. first + count - 1.
struct part {
  size_t first, count;
  uint64_t bytes;  // of data
  size_t length;   // of its header: the data begins there
  uint64_t device; // which file create made
  uint64_t inode;
};

struct save {
  struct saving what;
  char *directory;
  struct members members;
  struct entry *entries;       // what is saved, in the order of the table
  const struct member **saved; // which tensor each of them is
  uint32_t *shares;            // of their checksums
  size_t count;
  struct part *parts;
  size_t nparts;
  int turn;        // of the names of several parts: where it is above 1 they have it in them
  size_t named;    // so many parts have their final names
  bool committed;  // the new index may count
  bool has_crcs;   // tensors get checksums: those of a checkpoint do
  uint32_t of_all; // the number of them all
};

// NULL, and why.
struct save *save_layout(const struct saving *what, struct failure *why);

const char *single_name(const struct save *s);

// What part i is called when it is committed, and before that: a name that no other job has.
void final_name(const struct save *s, size_t i, char to[NAME]);
void new_name(const struct save *s, size_t i, char to[NAME]);
void new_index_name(const struct save *s, char to[NAME]);

// Is it the name of a part of this save?
bool is_own_part(const struct save *s, const char *name);

// All bytes of part i before the data, *length of them, for the caller to free; NULL, and why.
char *make_head(struct save *s, size_t i, size_t *length, struct failure *why);

// NULL, and why, where memory ends.
struct json_t *make_index(const struct save *s, struct failure *why);

#endif
