/* kernel_cuda.c: the body of a kernel in CUDA: a thread for each element; a block for each row that
   is reduced, and for each reduction whose loops are inside; a thread for each whose loops are
   outside, so that neighbours read neighbouring elements. */
#include "kernel.h"

#include <inttypes.h>

static int64_t count(const struct loops *loops, bool reduced)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++)
    if (loops->reduced[i] == reduced) n *= loops->size[i];
  return n;
}

/* The loops' variables out of one number that counts over them all: those that the body, if it is
   given, names. */
static void put_variables(struct buffer *b, const struct loops *loops, bool reduced,
                          const char *number, const char *body, int indent)
{
  int64_t below = count(loops, reduced);
  bool first = true;
  for (int n = 0; n < loops->n; n++) {
    if (loops->reduced[n] != reduced) continue;
    below /= loops->size[n];
    char *high = below == 1 ? copy_text(number) : text("%s / %" PRId64, number, below);
    char *value = first ? high : text("%s %% %" PRId64, high, loops->size[n]);
    const char *variable = variable_text(loops, loops->last[n]);
    first = false;
    if (body && !has_word(body, variable)) continue;
    put(b, "%*sconst %s %s = %s;\n", indent, "", loops->type, variable, value);
  }
}

static void put_thread(struct buffer *b, const struct loops *loops)
{
  const char *type = loops->type;
  put(b, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", type, type, BLOCK, type);
  put(b, "  if (n >= %" PRId64 ") return;\n", count(loops, false));
  put_variables(b, loops, false, "n", NULL, 2);
}

/* A loop in which the threads of a block share the iterations of all reduced loops. */
static void put_shared_loop(struct buffer *b, struct draft *k, const bool *made, const bool *sums)
{
  const char *type = k->loops.type;
  struct buffer body = {0};
  put_text(&body, "", 0);
  put_elements(&body, k, made, 4);
  put_terms(&body, k, sums, 4);
  put(b, "  for (%s n = (%s)threadIdx.x; n < %" PRId64 "; n += %d) {\n", type, type,
      count(&k->loops, true), BLOCK);
  put_variables(b, &k->loops, true, "n", body.text, 4);
  put(b, "%s  }\n", body.text);
}

/* The loops' variables of the block, out of its number. */
static void put_block(struct buffer *b, const struct loops *loops)
{
  bool one = count(loops, false) == 1;
  put_variables(b, loops, false, one ? "0" : text("(%s)blockIdx.x", loops->type), NULL, 2);
}

static void put_inner_reductions(struct buffer *b, struct draft *k, const bool *all)
{
  put_block(b, &k->loops);
  put_starts(b, k, all, "float", 2);
  put_shared_loop(b, k, all, all);
  put_block_results(b, k, all, 2);
  put(b, "  if (threadIdx.x == 0) {\n");
  put_results(b, k, all, "", 4);
  put(b, "  }\n");
}

static void put_outer_reductions(struct buffer *b, struct draft *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  put_thread(b, loops);
  put_starts(b, k, all, "float", 2);
  int indent = 2;
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    put_loop(b, loops, n, indent);
    indent += 2;
  }
  put_elements(b, k, all, indent);
  put_terms(b, k, all, indent);
  close_loops(b, (indent - 2) / 2, 2);
  put_results(b, k, all, "", 2);
}

/* -------------------------------------------------------------------------------------- by rows */

/* What rows have one of, and is made in this stage. */
static void find_of_rows(const struct draft *k, int stage, bool *these)
{
  for (int n = 0; n < k->group->nbody; n++)
    these[n] = k->stages.task[n].of_row && k->stages.task[n].stage == stage;
}

static bool find_sums(const struct draft *k, int stage, bool *these)
{
  bool any = false;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct task *m = &k->stages.task[n];
    these[n] = m->reach == OVER_ROW && (stage == NONE || m->stage == stage);
    any |= these[n];
  }
  return any;
}

/* A block for each row: its threads go through it together, once in each stage. */
static void put_rows(struct buffer *b, struct draft *k)
{
  bool made[MOST_IN_KERNEL], sums[MOST_IN_KERNEL], of_rows[MOST_IN_KERNEL];
  k->guard = "if (threadIdx.x == 0) ";
  put_block(b, &k->loops);
  for (int stage = 0; stage < k->stages.count; stage++) {
    find_of_rows(k, stage, of_rows);
    put_elements(b, k, of_rows, 2);
    find_sums(k, stage, sums);
    put_starts(b, k, sums, "float", 2);
    if (made_in_stage(k->group->body, &k->stages, stage, made) && row_elements(&k->loops)) {
      int known = k->ntemporary;
      put_shared_loop(b, k, made, sums);
      k->ntemporary = known; /* they were the loop's own */
    }
    put_block_results(b, k, sums, 2);
    put_results(b, k, sums, k->guard, 2);
  }
}

/* Nothing is reduced: a thread for each element, which computes for itself what its row has one of.
   The row's first one stores that. */
static void put_elements_of_rows(struct buffer *b, struct draft *k, int64_t *blocks)
{
  struct loops every = k->loops;
  bool made[MOST_IN_KERNEL], of_rows[MOST_IN_KERNEL];
  struct buffer first = {0};
  for (int n = 0; n < every.n; n++) {
    every.reduced[n] = false;
    if (k->loops.reduced[n])
      put(&first, "%s%s == 0", first.length ? " && " : "if (",
          variable_text(&every, every.last[n]));
  }
  k->guard = first.length ? text("%s) ", first.text) : "";
  *blocks = (count(&every, false) + BLOCK - 1) / BLOCK;
  put_thread(b, &every);
  find_of_rows(k, 0, of_rows);
  put_elements(b, k, of_rows, 2);
  made_in_stage(k->group->body, &k->stages, 0, made);
  put_elements(b, k, made, 2);
}

char *cuda_body(struct draft *k, int64_t *blocks)
{
  struct buffer b = {0};
  bool all[MOST_IN_KERNEL], sums[MOST_IN_KERNEL];
  for (int n = 0; n < MOST_IN_KERNEL; n++) all[n] = true;
  put_text(&b, "", 0);
  int64_t kept = count(&k->loops, false);
  *blocks = (kept + BLOCK - 1) / BLOCK;
  if (k->stages.rows != NONE && !find_sums(k, NONE, sums) && row_elements(&k->loops)) {
    put_elements_of_rows(&b, k, blocks);
  } else if (k->stages.rows != NONE) {
    put_rows(&b, k);
    *blocks = kept;
  } else if (!has_reductions(k->group)) {
    put_thread(&b, &k->loops);
    put_elements(&b, k, all, 2);
  } else if (count(&k->loops, true) > 1 && kept_outside(&k->loops) != NONE) {
    put_inner_reductions(&b, k, all);
    *blocks = kept;
  } else {
    put_outer_reductions(&b, k, all);
  }
  return b.text;
}
