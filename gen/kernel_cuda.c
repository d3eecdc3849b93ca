/* kernel_cuda.c: the body of a kernel in CUDA: a thread for each element; a block for each
   reduction whose loops are inside; a thread for each whose loops are outside, so that neighbours
   read neighbouring elements. */
#include "kernel.h"

#include <inttypes.h>

static int64_t count(const struct loops *loops, bool reduced)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++)
    if (loops->reduced[i] == reduced) n *= loops->size[i];
  return n;
}

/* The loops' variables out of one number that counts over them all. */
static void put_variables(struct buffer *b, const struct loops *loops, bool reduced,
                          const char *number, int indent)
{
  int64_t below = count(loops, reduced);
  bool first = true;
  for (int n = 0; n < loops->n; n++) {
    if (loops->reduced[n] != reduced) continue;
    below /= loops->size[n];
    char *high = below == 1 ? copy_text(number) : text("%s / %" PRId64, number, below);
    char *value = first ? high : text("%s %% %" PRId64, high, loops->size[n]);
    put(b, "%*sconst %s %s = %s;\n", indent, "", loops->type, variable_text(loops, loops->last[n]),
        value);
    first = false;
  }
}

static void put_thread(struct buffer *b, const struct loops *loops)
{
  const char *type = loops->type;
  put(b, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", type, type, BLOCK, type);
  put(b, "  if (n >= %" PRId64 ") return;\n", count(loops, false));
  put_variables(b, loops, false, "n", 2);
}

static void put_inner_reductions(struct buffer *b, struct draft *k)
{
  const struct loops *loops = &k->loops;
  int64_t n = count(loops, true);
  const char *type = loops->type;
  put_variables(b, loops, false, count(loops, false) == 1 ? "0" : text("(%s)blockIdx.x", type), 2);
  put_starts(b, k->group, "float", 2);
  put(b, "  for (%s n = (%s)threadIdx.x; n < %" PRId64 "; n += %d) {\n", type, type, n, BLOCK);
  put_variables(b, loops, true, "n", 4);
  put_elements(b, k, 4);
  put_terms(b, k, 4);
  put(b, "  }\n");
  put_block_results(b, k->group, 2);
  put(b, "  if (threadIdx.x == 0) {\n");
  put_results(b, k, 4);
  put(b, "  }\n");
}

static void put_outer_reductions(struct buffer *b, struct draft *k)
{
  const struct loops *loops = &k->loops;
  put_thread(b, loops);
  put_starts(b, k->group, "float", 2);
  int indent = 2;
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    put_loop(b, loops, n, indent);
    indent += 2;
  }
  put_elements(b, k, indent);
  put_terms(b, k, indent);
  close_loops(b, (indent - 2) / 2, 2);
  put_results(b, k, 2);
}

char *cuda_body(struct draft *k, int64_t *blocks)
{
  struct buffer b = {0};
  int64_t kept = count(&k->loops, false);
  *blocks = (kept + BLOCK - 1) / BLOCK;
  if (!has_reductions(k->group)) {
    put_thread(&b, &k->loops);
    put_elements(&b, k, 2);
  } else if (count(&k->loops, true) > 1 && kept_outside(&k->loops) != NONE) {
    put_inner_reductions(&b, k);
    *blocks = kept;
  } else {
    put_outer_reductions(&b, k);
  }
  return b.text;
}
