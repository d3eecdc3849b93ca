/* open_loops.c: the distribution of a kernel's loops. On the CPU threads share the outer ones,
   vector lanes the innermost. On a GPU a thread's iterations follow from its number in the block
   and from the block's number. */
#include "kernel/kernel.h"

bool has_blocks(void)
{
  return target->thread_grids;
}

/* ----------------------------------------------------------------------------------- loops in C */

const struct expr *counted_rows(const struct loops *loops, int64_t of_row)
{
  return times_expr(loops->rows, "*", of_row);
}

static struct statement *add_kernel_loop(struct code *c, const struct loops *loops, int n)
{
  bool counted = !n && loops->rows;
  return add_for(c, loops->type, loop_variable[n], int_expr(0),
                 counted ? counted_rows(loops, loops->of_row) : int_expr(loops->size[n]));
}

struct code *open_loops(struct code *c, const struct loops *loops, int from, int to)
{
  for (int n = from; n < to; n++) c = add_kernel_loop(c, loops, n)->body;
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
  struct statement *innermost = add_kernel_loop(c, loops, last);
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
      add_for(c, loops->type, "part", int_expr(0), int_expr(thread_parts(loops)));
  parts->marks = PARALLEL;
  return parts->body;
}

struct statement *open_part(struct code *c, const struct loops *loops)
{
  int64_t n = loops->size[0], parts = thread_parts(loops);
  const struct expr *from = expr("part * %ld / %ld", n, parts);
  const struct expr *to = expr("(part + 1) * %ld / %ld", n, parts);
  if (n % parts == 0) {
    from = times_expr(word_expr("part"), "*", n / parts);
    to = expr("%e + %ld", from, n / parts);
  }
  return add_for(c, loops->type, loop_variable[0], from, to);
}

/* ------------------------------------------------------------------- loops in blocks of threads */

const struct expr *converted_to(const char *type, const char *name)
{
  return prefix_expr(text("(%s)", type), word_expr(name));
}

const struct expr *thread_number(const char *type, int threads)
{
  return expr("%e * %d + %e", converted_to(type, "blockIdx.x"), threads,
              converted_to(type, "threadIdx.x"));
}

void add_thread(struct code *c, const struct loops *loops, int width)
{
  int64_t all = count_of(loops, false);
  const struct expr *number = thread_number(loops->type, BLOCK);
  bool one = loops->n == 1, ends = all / width % BLOCK || loops->rows;
  const char *variable = one ? loop_variable[0] : "n";
  const struct expr *end = int_expr(one ? all : all / width), *at = word_expr(variable);
  if (loops->rows) end = counted_rows(loops, all / loops->size[0] * loops->of_row);
  if (loops->rows && !one) at = times_expr(word_expr("n"), "*", width);
  if (one) number = times_expr(number, "*", width);
  if (loops->n || ends) add_declaration(c, text("const %s", loops->type), variable, number);
  if (ends) add_statement(add_condition(c, expr("%e >= %e", at, end)), word_expr("return"));
  if (!one) declare_variables(c, loops, false, word_expr("n"), width, false);
}

struct code *open_block_loop(struct code *c, const struct kernel_builder *k, int64_t parts)
{
  const struct loops *loops = &k->loops;
  const char *type = loops->type;
  int width = k->vectors.width;
  int64_t all = count_of(loops, true), step = BLOCK * parts;
  bool one =
      loops->n && loops->reduced[loops->n - 1] && (loops->n == 1 || !loops->reduced[loops->n - 2]);
  const char *variable = one ? loop_variable[loops->n - 1] : "n";
  const struct expr *start =
      parts > 1 ? thread_number(type, BLOCK) : converted_to(type, "threadIdx.x");
  if (one) start = times_expr(start, "*", width);
  struct statement *n = add_for(c, type, variable, start, int_expr(one ? all : all / width));
  n->step = int_expr(one ? step * width : step);
  if (!one) declare_variables(n->body, loops, true, word_expr("n"), width, true);
  return n->body;
}

struct code *open_block_part(struct code *c, const struct loops *loops, int64_t parts)
{
  bool outermost = parts > 1;
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    struct statement *made = add_kernel_loop(c, loops, n);
    if (outermost) {
      made->value = converted_to(loops->type, "blockIdx.y");
      made->step = int_expr(parts);
    }
    outermost = false;
    c = made->body;
  }
  return c;
}
