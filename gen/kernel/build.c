/* build.c: the code of a fused kernel. By rows, build_rows.c has it.

   Without reductions, a loop makes every element: on the CPU threads and the lanes of vectors share
   it, on a GPU a thread has a vector of neighbouring elements, or one.

   Where all kept loops are outside, a reduction is finished before the next element of its output
   begins: within the kept loops, on a GPU in a block for each result, whose threads share the
   reduced loops. All becomes one number in parts, which threads, or blocks, share: a fixed number
   of them, so that the result is the same in every run.

   Else, on the CPU, outputs begin as they are over nothing, and every element is added to its own:
   the loops go through memory in order. What is rounded when it is stored can only be stored once:
   then the kept loops are put outside. A GPU has a thread for each result, so that neighbours read
   neighbouring elements, and where these are too few for a whole device makes sums in parts
   (partial_sums.c). */
#include "kernel/kernel.h"

#include <inttypes.h>

/* --------------------------------------------------------------------------- without reductions */

/* Whether neighbours are of several rows, as rows have one element each, and what rows have one of
   is computed. */
static bool is_vector_of_rows(const struct draft *k)
{
  int last = innermost_loop(&k->loops);
  if (last == NONE || k->loops.reduced[last]) return false;
  for (int n = 0; n < k->group->nbody; n++)
    if (k->stages.task[n].of_row) return true;
  return false;
}

/* Each thread computes for itself what its row has one of; the row's first one stores that. */
static void add_flat(struct code *c, struct draft *k)
{
  struct loops every = k->loops;
  struct buffer first = {0};
  bool made[MOST_IN_KERNEL], of_row[MOST_IN_KERNEL];
  k->vectors.width = is_vector_of_rows(k) ? 1 : vector_width(k);
  put_text(&first, "", 0);
  for (int n = 0; n < every.n; n++) {
    every.reduced[n] = false;
    if (k->loops.reduced[n])
      put(&first, "%s%s == 0", first.length ? " && " : "", variable_text(&every, every.last[n]));
  }
  k->guard = first.text;
  k->launch->blocks = (count_of(&every, false) / k->vectors.width + BLOCK - 1) / BLOCK;
  add_thread(c, &every, k->vectors.width);
  for (int n = 0; n < k->group->nbody; n++) {
    of_row[n] = k->stages.task[n].of_row;
    made[n] = !of_row[n];
  }
  add_elements(c, k, of_row);
  struct code *body = begin_vector(k);
  if (k->stages.rows != NONE) made_in_stage(k->group->body, &k->stages, 0, made);
  add_elements(body, k, made);
  end_vector(c, k, body);
}

/* ----------------------------------------------------------------------------------- reductions */

static void add_parts_of_blocks(struct code *c, struct draft *k, int64_t parts)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (ends_in_parts(k, n))
      add_assignment(c, text("%s[blockIdx.x]", add_parts(k, n, parts)), result_name(k, n));
}

/* The kept loops, or the block that has one result, or a part of it. */
static struct code *open_kept(struct code *c, struct draft *k, int64_t parts)
{
  int64_t results = count_of(&k->loops, false);
  if (!has_blocks()) return open_shared_loops(c, &k->loops, kept_outside(&k->loops));
  k->vectors.width = vector_width(k);
  k->launch->blocks = results == 1 ? parts : results;
  const char *number = results == 1 ? "0" : text("(%s)blockIdx.x", k->loops.type);
  declare_variables(c, &k->loops, false, number, 1, false);
  return c;
}

static void add_inner_reductions(struct code *c, struct draft *k, int64_t parts, const bool *all)
{
  c = open_kept(c, k, parts);
  add_starts(c, k, all);
  struct code *within = has_blocks()
                            ? open_block_loop(c, k, parts)
                            : open_inner_loops(c, &k->loops, kept_outside(&k->loops), false);
  struct code *body = begin_vector(k);
  add_elements(body, k, all);
  add_terms(body, k, all, result_name);
  end_vector(within, k, body);
  if (has_blocks()) {
    add_combines(c, k, all, BLOCK);
    c = add_condition(c, "threadIdx.x == 0");
  }
  if (parts == 1)
    add_results(c, k, all);
  else
    add_parts_of_blocks(c, k, parts);
}

/* All becomes one number: that of each part first. */
static void add_reductions_in_parts(struct code *c, struct draft *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  bool sums[MOST_IN_KERNEL];
  find_row_sums(k, OVER_SOME, NONE, sums);
  declare_parts(c, k, sums, thread_parts(loops), 0);
  struct code *part = open_parts(c, loops);
  add_starts(part, k, sums);
  struct statement *n = open_part(part, loops);
  if (loops->n == 1) n->marks = VECTOR;
  struct code *within = open_inner_loops(n->body, loops, 1, false);
  add_elements(within, k, all);
  add_terms(within, k, sums, result_name);
  add_part_results(part, k, sums);
  combine_parts(c, k, sums, thread_parts(loops), "");
  add_results(c, k, sums);
}

static void add_reductions_in_place(struct code *c, struct draft *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  int64_t count = count_of(loops, false);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!is_reduce(op->kind)) continue;
    struct code *each = add_for(c, counter_type(count), "i", "0", text("%" PRId64, count))->body;
    add_assignment(each, text("%s[i]", argument_name(k, op->out)), neutral_text(op));
  }
  c = open_loops(c, loops, 0, loops->n);
  add_elements(c, k, all);
  add_terms(c, k, all, output_place);
}

/* The variable of a thread's results, and what it is before the loops. */
static const char *thread_result(struct draft *k, int n)
{
  return text("%s%s", result_name(k, n), k->vectors.width > 1 ? "[v]" : "");
}

/* A thread for each vector of results, in each row of blocks, which has its part of the outermost
   reduced loop. */
static void add_reductions_of_threads(struct code *c, struct draft *k, int64_t parts,
                                      const bool *all)
{
  const struct loops *loops = &k->loops;
  bool along = parts > 1 && !loops->reduced[innermost_loop(loops)];
  k->vectors.width = along ? vector_width(k) : 1;
  int64_t kept = count_of(loops, false), vectors = kept / k->vectors.width;
  int threads = parts == 1 || vectors >= BLOCK ? BLOCK : (int)((vectors + 31) / 32 * 32);
  *k->launch = (struct launch){
      .threads = threads, .blocks = (vectors + threads - 1) / threads, .rows = parts};
  add_declaration(c, text("const %s", loops->type), "n", thread_number(loops->type, threads));
  if (parts == 1 || vectors % threads)
    add_statement(add_condition(c, text("n >= %" PRId64, vectors)), "return");
  declare_variables(c, loops, false, "n", k->vectors.width, false);
  if (k->vectors.width > 1)
    add_vector_starts(c, k, all, 1);
  else
    add_starts(c, k, all);
  struct code *within = open_block_part(c, loops, parts), *body = begin_vector(k);
  add_elements(body, k, all);
  add_terms(body, k, all, thread_result);
  end_vector(within, k, body);
  if (parts == 1) {
    add_results(c, k, all);
    return;
  }
  for (int n = 0; n < k->group->nbody; n++) {
    if (!ends_in_parts(k, n)) continue;
    const char *start = text("(%s)blockIdx.y * %" PRId64, loops->type, kept);
    store_part(c, k, n, add_parts(k, n, parts), start, result_name(k, n));
  }
}

/* ------------------------------------------------------------------------------------ all kinds */

static bool rounds_results(const struct op *group)
{
  for (int n = 0; n < group->nbody; n++) {
    const struct op *op = body_op(group, n);
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

static bool reduces_rows(const struct draft *k)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (k->stages.task[n].reach != NO_REDUCTION) return true;
  return false;
}

struct code *kernel_code(struct draft *k)
{
  struct code *c = new_code();
  const struct loops *loops = &k->loops;
  bool all[MOST_IN_KERNEL], rows = k->stages.rows != NONE, blocks = has_blocks();
  for (int n = 0; n < MOST_IN_KERNEL; n++) all[n] = true;
  *k->launch = (struct launch){.rows = 1, .threads = BLOCK};
  k->vectors.width = 1;
  if (!blocks && !rows && rounds_results(k->group)) k->loops = kept_first(loops);
  bool reduces = has_reductions(k->group), inner = kept_outside(loops) != NONE;
  if (blocks && rows) rows = reduces_rows(k) || !row_elements(loops);
  if (blocks) inner = is_inner_reduction(loops);
  if (rows)
    add_rows(c, k);
  else if (!reduces && blocks)
    add_flat(c, k);
  else if (!reduces)
    add_elements(open_inner_loops(c, loops, 0, true), k, all);
  else if (!blocks && kept_outside(loops) == 0 && loops->n && has_threads(loops))
    add_reductions_in_parts(c, k, all);
  else if (inner)
    add_inner_reductions(c, k, blocks ? plain_parts(k) : 1, all);
  else if (blocks)
    add_reductions_of_threads(c, k, plain_parts(k), all);
  else
    add_reductions_in_place(c, k, all);
  drop_unnamed(c);
  return c;
}
