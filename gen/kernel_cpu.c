/* kernel_cpu.c: the body of a kernel in C, as loops.

   Without a reduction one nest of loops makes every element. Where all kept loops are outside, a
   reduction is finished before the next element of its output begins. Else its outputs begin as
   they are over nothing, and every element is added to its own: the loops go through memory in
   order. What is rounded when it is stored can only be stored once: then the kept loops are put
   outside. */
#include "kernel.h"

#include <inttypes.h>

void put_loop(struct buffer *b, const struct loops *loops, int n, int indent)
{
  const char *i = variable_text(loops, loops->last[n]);
  put(b, "%*sfor (%s %s = 0; %s < %" PRId64 "; %s++) {\n", indent, "", loops->type, i, i,
      loops->size[n], i);
}

void close_loops(struct buffer *b, int n, int indent)
{
  for (int i = n; i-- > 0;) put(b, "%*s}\n", indent + 2 * i, "");
}

int kept_outside(const struct loops *loops)
{
  int n = 0;
  while (n < loops->n && !loops->reduced[n]) n++;
  for (int i = n; i < loops->n; i++)
    if (!loops->reduced[i]) return NONE;
  return n;
}

static void put_loops(struct buffer *b, const struct loops *loops, int from, int to)
{
  for (int n = from; n < to; n++) put_loop(b, loops, n, 2 + 2 * n);
}

int64_t worth_threads = 1 << 14;

/* Several threads share the iterations of the outermost `n` loops, always in the same way: the
   inner of them are taken in only where the outermost alone has few. */
static void put_threads(struct buffer *b, const struct loops *loops, int n, const char *clauses)
{
  enum { ENOUGH = 64 };
  int64_t all = 1;
  for (int i = 0; i < loops->n; i++) all *= loops->size[i];
  if (!n || all < worth_threads) return;
  bool collapse = n > 1 && loops->size[0] < ENOUGH;
  put(b, "#pragma omp parallel for%s schedule(static)%s\n", clauses,
      collapse ? text(" collapse(%d)", n) : "");
}

static void put_inner_reductions(struct buffer *b, struct draft *k, int kept)
{
  const struct loops *loops = &k->loops;
  int innermost = 2 + 2 * loops->n;
  put_threads(b, loops, kept, "");
  put_loops(b, loops, 0, kept);
  put_starts(b, k->group, "double", 2 + 2 * kept);
  put_loops(b, loops, kept, loops->n);
  put_elements(b, k, innermost);
  put_terms(b, k, innermost);
  close_loops(b, loops->n - kept, 2 + 2 * kept);
  put_results(b, k, 2 + 2 * kept);
  close_loops(b, kept, 2);
}

static void put_outer_reductions(struct buffer *b, struct draft *k)
{
  const struct loops *loops = &k->loops;
  int64_t count = 1;
  for (int n = 0; n < loops->n; n++) count *= loops->reduced[n] ? 1 : loops->size[n];
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (is_reduce(op->kind))
      put(b, "  for (%s i = 0; i < %" PRId64 "; i++) %s[i] = %s;\n", counter_type(count), count,
          argument_name(k, op->out), neutral_text(op));
  }
  put_loops(b, loops, 0, loops->n);
  put_elements(b, k, 2 + 2 * loops->n);
  put_terms_in_place(b, k, 2 + 2 * loops->n);
  close_loops(b, loops->n, 2);
}

static bool rounds_results(const struct op *group)
{
  for (int n = 0; n < group->nbody; n++) {
    const struct op *op = &graph->op[group->body[n]];
    if (is_reduce(op->kind) && graph->value[op->out].type == BF16) return true;
  }
  return false;
}

/* The kept loops, then the reduced ones. */
static struct loops kept_first(const struct loops *loops)
{
  struct loops sorted = *loops;
  sorted.n = 0;
  for (int reduced = 0; reduced < 2; reduced++)
    for (int n = 0; n < loops->n; n++) {
      if (loops->reduced[n] != reduced) continue;
      sorted.size[sorted.n] = loops->size[n];
      sorted.first[sorted.n] = loops->first[n];
      sorted.last[sorted.n] = loops->last[n];
      sorted.reduced[sorted.n++] = reduced;
    }
  return sorted;
}

char *cpu_body(struct draft *k)
{
  struct buffer b = {0};
  if (rounds_results(k->group)) k->loops = kept_first(&k->loops);
  int kept = kept_outside(&k->loops);
  if (!has_reductions(k->group)) {
    bool one = k->loops.n == 1;
    put_threads(&b, &k->loops, one ? 1 : k->loops.n - 1, one ? " simd" : "");
    put_loops(&b, &k->loops, 0, k->loops.n);
    put_elements(&b, k, 2 + 2 * k->loops.n);
    close_loops(&b, k->loops.n, 2);
  } else if (kept != NONE) {
    put_inner_reductions(&b, k, kept);
  } else {
    put_outer_reductions(&b, k);
  }
  return b.text;
}
