/* uses.c: how many bytes a step reads and writes between two uses of the same memory. From that a
   simulation knows in which cache a value still is.

   Memory is the arena in blocks, and each value outside of it. The clock is the number of bytes
   that the operations so far have read and written, as if each had been touched once. */
#include "report/report.h"

#include <string.h>

enum { BLOCK_BITS = 16 };

static struct {
  double now, *block; /* block: when each block of the arena was used last */
  int blocks;
  struct apart { /* a value outside the arena: when that of each module was */
    int n;
    double *at;
  } * value;
} uses;

/* Long ago. */
static const double NEVER = -1e15;

void begin_uses(void)
{
  memset(&uses, 0, sizeof uses);
  uses.blocks = (int)(arena_bytes() >> BLOCK_BITS) + 1;
  uses.block = alloc((size_t)uses.blocks * sizeof *uses.block);
  for (int i = 0; i < uses.blocks; i++) uses.block[i] = NEVER;
  uses.value = alloc((size_t)(graph->nvalue + 1) * sizeof *uses.value);
}

/* Where a value is when an operation of this module uses it. */
struct use_place {
  int value, module; /* outside the arena */
  int first, last;   /* blocks of the arena; first NONE: outside */
};

static struct use_place use_place(int value, int module)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->step && module != NONE) {
    const int from = module + loop->step, maker = allocation_of(loop->stack).made_by;
    const int count = maker == NONE ? 0 : graph->function[maker].count;
    const bool is_there = from >= 0 && from < count;
    value = is_there ? loop->stack : loop->initial;
    module = is_there ? from : NONE;
    if (value == NONE) return (struct use_place){0, 0, NONE, NONE};
    loop = in_loop(value);
  }
  if (loop->stack != NONE && loop->stack != value && !loop->step) { /* one of a stack by itself */
    module = loop->index;
    value = loop->stack;
  }
  const struct allocation a = allocation_of(value);
  const int64_t bytes = largest_bytes(value);
  const bool in_arena = graph->value[a.storage].role == ACTIVATION && a.in_flight == NONE;
  if (!in_arena || a.offset < 0 || a.offset + bytes > arena_bytes())
    return (struct use_place){a.storage, module == NONE ? 0 : module, NONE, NONE};
  int64_t at = a.offset;
  if (a.depth > 1 && module != NONE) at += module % a.depth * arena_stride(a.storage);
  if (at + bytes > arena_bytes()) at = a.offset;
  const int first = (int)(at >> BLOCK_BITS), last = (int)((at + bytes - 1) >> BLOCK_BITS);
  return (struct use_place){value, 0, first, last < first ? first : last};
}

static double *apart_at(const struct use_place *p)
{
  struct apart *v = &uses.value[p->value];
  if (p->module >= v->n) {
    const int n = p->module + 1;
    double *at = alloc((size_t)n * sizeof *at);
    for (int i = 0; i < n; i++) at[i] = i < v->n ? v->at[i] : NEVER;
    *v = (struct apart){n, at};
  }
  return &v->at[p->module];
}

double bytes_since(void *module, int value)
{
  const struct use_place p = use_place(value, *(const int *)module);
  if (p.first == NONE) return uses.now - *apart_at(&p);
  double sum = 0;
  for (int i = p.first; i <= p.last; i++) sum += uses.now - uses.block[i];
  return sum / (p.last - p.first + 1);
}

static void use_value(int value, int module)
{
  const struct use_place p = use_place(value, module);
  if (p.first == NONE) *apart_at(&p) = uses.now;
  for (int i = p.first; i <= p.last && i != NONE; i++) uses.block[i] = uses.now;
}

void note_use(const struct op *op, int module)
{
  if (op_row[op->kind].calls || op_row[op->kind].idle) return;
  struct list in = values_read(op), out = values_written(op);
  for (int i = 0; i < in.n; i++) uses.now += (double)largest_bytes(in.at[i]);
  for (int i = 0; i < out.n; i++) uses.now += (double)largest_bytes(out.at[i]);
  for (int i = 0; i < in.n; i++) use_value(in.at[i], module);
  for (int i = 0; i < out.n; i++) use_value(out.at[i], module);
}
