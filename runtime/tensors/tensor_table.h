// SPDX-License-Identifier: MIT
// The program's table of tensors, with the members of stacks listed one by one.
#ifndef TENSOR_TABLE_H
#define TENSOR_TABLE_H

#include "base/failure.h"
#include "base/program.h"
#include "base/weight_blocks.h"
#include "formats/safetensors.h"

// Shards are copied between files and the program's memory in pieces of at most this size.
enum { STAGED_BYTES = 4 << 20 };

struct type_row {
  const char *name; // in files
  size_t bytes;     // of an element
};

static inline struct type_row table_type(enum type type)
{
  static const struct type_row rows[] = {
      [F32] = {"F32", 4},   [BF16] = {"BF16", 2},      [I32] = {"I32", 4},      [I64] = {"I64", 8},
      [BOOL] = {"BOOL", 1}, [INT8_BLOCKS] = {"U8", 1}, [NF4_BLOCKS] = {"U8", 1}};
  return rows[type];
}

// The numbers of a block of the type; 0: it has none.
static inline int table_block(enum type type)
{
  return type == INT8_BLOCKS ? BLOCK_NUMBERS : type == NF4_BLOCKS ? NF4_NUMBERS : 0;
}

// This rank's part of a tensor, or of each tensor of a stack, as the program has it.
static inline struct slice table_slice(int row)
{
  const struct tensor *t = &program->tensors[row];
  return (struct slice){(size_t)t->ndim, t->of, t->here, rank->parts[row].first};
}

// Which tensor of a file: that of the program's own name, or that of the alias.
enum naming { OWN_NAME, ALIAS };

// Its place in the tensor of its alias; NULL: it is that tensor.
static inline const struct joined *table_joined(int row)
{
  const struct joined *j = program->joined;
  while (j && j->row >= 0 && j->row != row) j++;
  return j && j->row >= 0 ? j : NULL;
}

// The same in numbers, as files of weights have it, also of blocks; and within the tensor of the
// alias.
struct numbers_slice {
  long of[MAX_DIMS], here[MAX_DIMS], first[MAX_DIMS];
  struct slice slice; // of these
};
static inline void table_numbers(int row, enum naming naming, struct numbers_slice *to)
{
  const struct joined *joined = naming == ALIAS ? table_joined(row) : NULL;
  const struct tensor *t = &program->tensors[row];
  const bool in_blocks = table_block(t->type) != 0;
  const int ndim = t->ndim - in_blocks;
  for (int d = 0; d < ndim; d++) {
    const long numbers = in_blocks && d == ndim - 1 ? table_block(t->type) : 1;
    to->of[d] = joined ? joined->of[d] : t->of[d] * numbers;
    to->here[d] = t->here[d] * numbers;
    to->first[d] = rank->parts[row].first[d] * numbers + (joined ? joined->at[d] : 0);
  }
  to->slice = (struct slice){(size_t)ndim, to->of, to->here, to->first};
}

// One tensor: member `k` of the stack in a row of the program's table. Members of one name are
// parts of one tensor in files; they have its shape, and each has a place of its own in it. Those
// of one alias are parts of one tensor in files of others.
struct member {
  int row, k;
  const char *name;
  const char *alias;                    // NULL: none
  struct member *next;                  // the next part of the tensor, or NULL
  struct member *of;                    // its first part: mostly the member itself
  struct member *alias_next, *alias_of; // likewise of the tensor of the alias
};

// The address of this rank's shard of it.
static inline char *table_memory(const struct member *m)
{
  const struct tensor *t = &program->tensors[m->row];
  return (char *)rank_memory + t->offset + (size_t)m->k * t->stride;
}

struct called {
  const char *name;
  size_t member;
};

struct members {
  struct member *all; // in the order of the table; a stack's by their numbers
  size_t count;
  struct called *names; // all names and aliases, ascending; of a tensor in parts that of the first
  size_t nnames;
  char *text; // storage of the names
};

// Lists all tensors. False, and why, if out of memory.
bool table_members(struct members *members, struct failure *why);
void table_free(struct members *members);

// A checksum of names, roles, types and whole shapes, in the order of the table.
uint32_t table_sum(const struct members *members);

// The number of tensors that a member is under its alias, one for each index of its first
// dimension: the alias has "{}" for that. 0: one.
long table_stacked(const struct member *m);

// The elements of all whole tensors of the role, and their bytes; 0 if out of memory.
double table_elements(enum role role);
double table_bytes_of(enum role role);

// The tensor with this name or alias, by its first part; or NULL.
const struct member *table_find(const struct members *members, const char *name);

#endif
