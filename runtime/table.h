// Short ways into the program's table of tensors.
#ifndef TABLE_H
#define TABLE_H

#include "program.h"
#include "safetensors.h"

// Shards pass between files and the program's memory in pieces of at most so much.
enum { STAGED_BYTES = 4 << 20 };

struct type_row {
  const char *name; // in files
  size_t bytes;     // of an element
};

static inline struct type_row table_type(enum type type)
{
  static const struct type_row rows[] = {[F32] = {"F32", 4},
                                         [BF16] = {"BF16", 2},
                                         [I32] = {"I32", 4},
                                         [I64] = {"I64", 8},
                                         [BOOL] = {"BOOL", 1}};
  return rows[type];
}

// This rank's part of a tensor.
static inline struct slice table_slice(int index)
{
  const struct tensor *t = &program.tensors[index];
  return (struct slice){(size_t)t->ndim, t->of, t->here, rank.first[index]};
}

#endif
