/* open_loops.c: the distribution of a kernel's loops. On the CPU threads share the outer ones,
   vector lanes the innermost. On a GPU a thread's iterations follow from its number in the block
   and from the block's number. */
#include "kernel/kernel.h"

#include <inttypes.h>

bool has_blocks(void)
{
  return target->thread_grids;
}

/* ----------------------------------------------------------------------------------- loops in C */

const char *counted_text(const struct loops *loops, int64_t of_row)
{
  return of_row == 1 ? loops->rows : text("%s * %" PRId64, loops->rows, of_row);
}

/* The end of the n-th loop. */
static const char *end_text(const struct loops *loops, int n)
{
  return n || !loops->rows ? text("%" PRId64, loops->size[n]) : counted_text(loops, loops->of_row);
}

static struct statement *add_loop(struct code *c, const struct loops *loops, int n)
{
  return add_for(c, loops->type, variable_text(loops, loops->last[n]), "0", end_text(loops, n));
}

struct code *open_loops(struct code *c, const struct loops *loops, int from, int to)
{
  for (int n = from; n < to; n++) c = add_loop(c, loops, n)->body;
  return c;
}

struct code *open_shared_loops(struct code *c, const struct loops *loops, int n)
{
  enum { ENOUGH = 64 };
  struct code *within = open_loops(c, loops, 0, n);
  if (!n || !has_threads(loops)) return within;
  struct statement *outermost = &c->list[c->n - 1];
  outermost->marks = PARALLEL;
  if (loops->size[0] < ENOUGH) outermost->collapse = n;
  return within;
}

struct code *open_inner_loops(struct code *c, const struct loops *loops, int from, bool shared)
{
  int last = loops->n - 1;
  if (last < from) return c;
  c = shared ? open_shared_loops(c, loops, last) : open_loops(c, loops, from, last);
  struct statement *innermost = add_loop(c, loops, last);
  if (has_threads(loops)) innermost->marks = shared && !last ? PARALLEL | VECTOR : VECTOR;
  return innermost->body;
}

int64_t thread_parts(const struct loops *loops)
{
  enum { PARTS = 16 };
  return loops->size[0] < PARTS ? loops->size[0] : PARTS;
}

struct code *open_parts(struct code *c, const struct loops *loops)
{
  struct statement *parts =
      add_for(c, loops->type, "part", "0", text("%" PRId64, thread_parts(loops)));
  parts->marks = PARALLEL;
  return parts->body;
}

struct statement *open_part(struct code *c, const struct loops *loops)
{
  int64_t n = loops->size[0], parts = thread_parts(loops);
  char *from = text("part * %" PRId64 " / %" PRId64, n, parts);
  char *to = text("(part + 1) * %" PRId64 " / %" PRId64, n, parts);
  if (n % parts == 0) {
    from = n == parts ? "part" : text("part * %" PRId64, n / parts);
    to = text("%s + %" PRId64, from, n / parts);
  }
  return add_for(c, loops->type, variable_text(loops, loops->last[0]), from, to);
}

/* ------------------------------------------------------------------- loops in blocks of threads */

char *thread_number(const char *type, int threads)
{
  return text("(%s)blockIdx.x * %d + (%s)threadIdx.x", type, threads, type);
}

void add_thread(struct code *c, const struct loops *loops, int width)
{
  int64_t all = count_of(loops, false);
  char *number = thread_number(loops->type, BLOCK);
  bool one = loops->n == 1, ends = all / width % BLOCK || loops->rows;
  const char *variable = one ? variable_text(loops, loops->last[0]) : "n";
  const char *end = text("%" PRId64, one ? all : all / width), *at = variable;
  if (loops->rows) end = counted_text(loops, all / loops->size[0] * loops->of_row);
  if (loops->rows && !one && width > 1) at = text("n * %d", width);
  if (one && width > 1) number = text("(%s) * %d", number, width);
  if (loops->n || ends) add_declaration(c, text("const %s", loops->type), variable, number);
  if (ends) add_statement(add_condition(c, text("%s >= %s", at, end)), "return");
  if (!one) declare_variables(c, loops, false, "n", width, false);
}

struct code *open_block_loop(struct code *c, const struct kernel_builder *k, int64_t parts)
{
  const struct loops *loops = &k->loops;
  const char *type = loops->type;
  int width = k->vectors.width;
  int64_t all = count_of(loops, true), step = BLOCK * parts;
  bool one =
      loops->n && loops->reduced[loops->n - 1] && (loops->n == 1 || !loops->reduced[loops->n - 2]);
  const char *variable = one ? variable_text(loops, loops->last[loops->n - 1]) : "n";
  char *start = parts > 1 ? thread_number(type, BLOCK) : text("(%s)threadIdx.x", type);
  if (one && width > 1) start = text("%s * %d", parts > 1 ? text("(%s)", start) : start, width);
  struct statement *n =
      add_for(c, type, variable, start, text("%" PRId64, one ? all : all / width));
  n->step = text("%" PRId64, one ? step * width : step);
  if (!one) declare_variables(n->body, loops, true, "n", width, true);
  return n->body;
}

struct code *open_block_part(struct code *c, const struct loops *loops, int64_t parts)
{
  bool outermost = parts > 1;
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    struct statement *made = add_loop(c, loops, n);
    if (outermost) {
      made->value = text("(%s)blockIdx.y", loops->type);
      made->step = text("%" PRId64, parts);
    }
    outermost = false;
    c = made->body;
  }
  return c;
}
