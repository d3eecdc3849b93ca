/* build.c: the code of a fused kernel; for kernels by rows see build_rows.c.

   Without reductions, a loop makes every element: on the CPU threads and vector lanes share it, on
   a GPU a thread has a vector of neighbouring elements, or one.

   If all kept loops are outside, a reduction ends before the next element of its output begins: on
   the CPU within the kept loops; on a GPU a block has one result, and its threads share the reduced
   loops. A reduction to one number is made in parts, which threads, or blocks, share: their number
   is fixed, so that the result is the same in every run.

   Else, on the CPU, outputs start with the neutral element, and every element is added to its
   output: the loops follow the order of memory. A value that is rounded when it is stored can only
   be stored once: then the kept loops are put outside. A GPU has a thread for each result, so that
   neighbours read neighbouring elements; if these threads are too few for the device, sums are made
   in parts (partial_sums.c). */
#include "kernel/kernel.h"

#include <inttypes.h>

/* --------------------------------------------------------------------------- without reductions */

/* Each thread computes its row's values for itself; the row's first thread stores them. */
static void add_flat(struct code *c, struct kernel_builder *k)
{
  struct loops every = k->loops;
  struct buffer first = {0};
  bool made[MOST_IN_KERNEL], of_row[MOST_IN_KERNEL];
  put_text(&first, "", 0);
  for (int n = 0; n < every.n; n++) {
    every.reduced[n] = false;
    if (k->loops.reduced[n])
      put(&first, "%s%s == 0", first.length ? " && " : "", variable_text(&every, every.last[n]));
  }
  k->guard = first.text;
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

static void add_parts_of_blocks(struct code *c, struct kernel_builder *k, int64_t parts)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (ends_in_parts(k, n))
      add_assignment(c, text("%s[blockIdx.x]", add_parts(k, n, parts)), result_name(k, n));
}

/* The kept loops, or the block that has one result or a part of it. */
static struct code *open_kept(struct code *c, struct kernel_builder *k)
{
  if (!has_blocks()) return open_shared_loops(c, &k->loops, kept_outside(&k->loops));
  const char *number =
      count_of(&k->loops, false) == 1 ? "0" : text("(%s)blockIdx.x", k->loops.type);
  declare_variables(c, &k->loops, false, number, 1, false);
  return c;
}

static void add_inner_reductions(struct code *c, struct kernel_builder *k, const bool *all)
{
  int64_t parts = k->form->parts;
  c = open_kept(c, k);
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

/* Reduces all to one number: first each part. */
static void add_reductions_in_parts(struct code *c, struct kernel_builder *k, const bool *all)
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

static void add_reductions_in_place(struct code *c, struct kernel_builder *k, const bool *all)
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

/* The variable of a thread's results. */
static const char *thread_result(struct kernel_builder *k, int n)
{
  return text("%s%s", result_name(k, n), k->vectors.width > 1 ? "[v]" : "");
}

/* A thread for each vector of results; each row of blocks has its part of the outermost reduced
   loop. */
static void add_reductions_of_threads(struct code *c, struct kernel_builder *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  int threads = k->form->threads;
  int64_t parts = k->form->parts, kept = count_of(loops, false), vectors = kept / k->form->width;
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

/* A kernel of elements, or by rows, ends after the last row that there is. */
static void declare_rows(struct code *c, struct kernel_builder *k)
{
  struct loops *loops = &k->loops;
  enum kernel_scheme scheme = k->form->scheme;
  if (!loops->of_row || (scheme != ELEMENT_BY_ELEMENT && scheme != ROW_BY_ROW)) return;
  int counts = counts_of_kernel(k->group);
  loops->rows = free_name(k, "rows");
  name_temporary(k, NONE, loops->rows);
  add_declaration(c, text("const %s", loops->type), loops->rows,
                  text("all_rows(%s, %" PRId64 ")", argument_name(k, counts),
                       elements(local_shape(counts, k->rank))));
}

struct code *kernel_code(struct kernel_builder *k)
{
  struct code *c = new_code();
  declare_rows(c, k);
  const struct kernel_form *f = k->form;
  bool all[MOST_IN_KERNEL], warps = has_blocks() && f->scheme == ROW_BY_ROW && f->threads == WARP;
  for (int n = 0; n < MOST_IN_KERNEL; n++) all[n] = true;
  *k->launch = (struct launch){
      .blocks = f->blocks, .rows = f->block_rows, .threads = warps ? BLOCK : f->threads};
  k->vectors.width = f->width;
  switch (f->scheme) {
  case NO_KERNEL:
    bug_at("emit", (int)(k->group - graph->op), "it has no kernel");
  case ELEMENT_BY_ELEMENT:
    if (has_blocks())
      add_flat(c, k);
    else
      add_elements(open_inner_loops(c, &k->loops, 0, true), k, all);
    break;
  case ROW_BY_ROW:
    add_rows(c, k);
    break;
  case RESULT_BY_RESULT:
    add_inner_reductions(c, k, all);
    break;
  case RESULTS_SIDE_BY_SIDE:
    add_reductions_of_threads(c, k, all);
    break;
  case RESULTS_IN_PLACE:
    add_reductions_in_place(c, k, all);
    break;
  case ONE_RESULT:
    add_reductions_in_parts(c, k, all);
    break;
  }
  drop_unnamed(c);
  return c;
}
