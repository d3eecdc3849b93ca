/* build.c: the code of a fused kernel.

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
   in parts (partial_sums.c).

   A kernel by rows (row_passes.c) is loops over the rows; within them the per-row values, and for
   each stage the loops over a row. On the CPU threads share the rows. Reductions over the rows have
   partial results, one for each of a fixed number of parts of the rows, so that every run gives the
   same result. On a GPU a warp has a short row, a block a longer one; a thread has every 32nd, or
   256th, vector of it. It loops over its vectors once in each stage. Vectors that several stages
   read stay in registers, unless they are too many: then each stage loads them. With sums over the
   rows, for each place in them (columns), a warp or a block has many rows, and every thread sums
   the places that it has over all these rows; its results are a part (partial_sums.c). */
#include "kernel/kernel.h"

#include <string.h>

/* --------------------------------------------------------------------------- without reductions */

/* Each thread computes its row's values for itself; the row's first thread stores them. */
static void add_flat(struct code *c, struct kernel_builder *k)
{
  struct loops every = k->loops;
  const struct expr *first = NULL;
  bool made[MOST_IN_KERNEL], of_row[MOST_IN_KERNEL];
  for (int n = 0; n < every.n; n++) {
    every.reduced[n] = false;
    const struct expr *is_first = expr("%s == 0", loop_variable[n]);
    if (k->loops.reduced[n]) first = first ? sign_expr("&&", first, is_first) : is_first;
  }
  k->guard = first;
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

/* The kept loops, or the block that has one result or a part of it. */
static struct code *open_kept(struct code *c, struct kernel_builder *k)
{
  if (!has_blocks()) return open_shared_loops(c, &k->loops, kept_outside(&k->loops));
  bool one = count_of(&k->loops, false) == 1;
  const struct expr *number = one ? int_expr(0) : converted_to(k->loops.type, "blockIdx.x");
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
  add_terms(body, k, all, result_expr);
  end_vector(within, k, body);
  if (has_blocks()) {
    add_combines(c, k, all, BLOCK);
    c = add_condition(c, expr("threadIdx.x == 0"));
  }
  if (parts == 1)
    add_results(c, k, all);
  else {
    for (int n = 0; n < k->group->nbody; n++)
      if (ends_in_parts(k, n))
        add_assignment(c, expr("%s[blockIdx.x]", add_parts(k, n, parts)), result_expr(k, n));
  }
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
  add_terms(within, k, sums, result_expr);
  add_part_results(part, k, sums);
  combine_parts(c, k, sums, thread_parts(loops), NULL);
  add_results(c, k, sums);
}

static void add_reductions_in_place(struct code *c, struct kernel_builder *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  int64_t count = count_of(loops, false);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!is_reduce(op->kind)) continue;
    struct code *each = add_for(c, counter_type(count), "i", int_expr(0), int_expr(count))->body;
    add_assignment(each, expr("%s[i]", argument_name(k, op->out)), word_expr(neutral_text(op)));
  }
  c = open_loops(c, loops, 0, loops->n);
  add_elements(c, k, all);
  add_terms(c, k, all, output_place);
}

/* The variable of a thread's results. */
static const struct expr *thread_result(struct kernel_builder *k, int n)
{
  return k->vectors.width > 1 ? expr("%s[v]", result_name(k, n)) : result_expr(k, n);
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
    add_statement(add_condition(c, expr("n >= %ld", vectors)), word_expr("return"));
  declare_variables(c, loops, false, word_expr("n"), k->vectors.width, false);
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
    const struct expr *start = expr("%e * %ld", converted_to(loops->type, "blockIdx.y"), kept);
    store_part(c, k, n, add_parts(k, n, parts), start, result_expr(k, n));
  }
}

static bool any_of(const bool *these, int n)
{
  while (n-- > 0)
    if (these[n]) return true;
  return false;
}

/* ------------------------------------------------------------------ a row of a block, or a warp */

static const struct expr *thread_of_row(const struct kernel_form *f)
{
  return f->threads == WARP ? word_expr("lane") : expr("(int)threadIdx.x");
}

/* The variable that counts over a row's elements: its loop's variable, if it has one loop; else the
   variables of its loops are computed from it. */
static const char *row_variable(const struct loops *loops)
{
  int n = innermost_loop(loops);
  bool one = n != NONE && loops->reduced[n] && (n == 0 || !loops->reduced[n - 1]);
  return one ? loop_variable[n] : "n";
}

/* The variables of the row's loops, computed from the one that counts over its elements. */
static void declare_row_variables(struct code *c, const struct kernel_builder *k)
{
  if (*row_variable(&k->loops) == 'n')
    declare_variables(c, &k->loops, true, word_expr("n"), 1, true);
}

/* The start of a thread's part. */
static void declare_row_index(struct code *c, const struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  const struct expr *number = thread_of_row(f);
  if (f->several > 1) number = expr("part * %d + %e", f->threads, number);
  add_lazy_declaration(c, text("const %s", k->loops.type), row_variable(&k->loops),
                       times_expr(number, "*", f->width));
  declare_row_variables(c, k);
}

static struct code *open_row_of_threads(struct code *c, const struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  const char *variable = row_variable(&k->loops);
  if (!f->unrolled) {
    struct statement *n = add_for(c, k->loops.type, variable,
                                  times_expr(thread_of_row(f), "*", f->width), int_expr(f->row));
    n->step = int_expr(f->threads * f->width);
    declare_row_variables(n->body, k);
    return n->body;
  }
  if (f->several > 1) {
    struct statement *n = add_for(c, "int", "part", int_expr(0), int_expr(f->several));
    n->marks = UNROLLED;
    c = n->body;
    declare_row_index(c, k);
  }
  return add_condition(c, f->guarded ? expr("%s < %ld", variable, f->row) : NULL);
}

/* -------------------------------------------------------------------------------------- columns */

/* The accumulator of a column: on the CPU the output, or an element of the part; on a GPU the
   thread's own, "sum_of[part][v]". */
static const struct expr *column_place(struct kernel_builder *k, int n)
{
  const struct kernel_form *f = k->form;
  if (!has_blocks())
    return k->parted ? part_of_result(k, n, row_index(&k->loops)) : output_place(k, n);
  const struct expr *place = result_expr(k, n);
  if (f->several > 1) place = expr("%e[part]", place);
  return f->width > 1 ? expr("%e[v]", place) : place;
}

static void start_columns(struct code *c, struct kernel_builder *k, const bool *columns)
{
  c = open_loops(c, &k->loops, kept_outside(&k->loops), k->loops.n);
  for (int n = 0; n < k->group->nbody; n++)
    if (columns[n])
      add_assignment(c, column_place(k, n), word_expr(neutral_text(body_op(k->group, n))));
}

/* ---------------------------------------------------------------------------------------- a row */

static void add_stages_once(struct code *c, struct kernel_builder *k)
{
  bool made[MOST_IN_KERNEL], these[MOST_IN_KERNEL];
  for (int stage = 0; stage < k->stages.count; stage++) {
    k->vectors.stage = stage;
    find_sums_of_rows(k, stage, these);
    add_elements(c, k, these);
    find_row_sums(k, OVER_ROWS, stage, these);
    add_terms(c, k, these, result_expr);
    find_row_sums(k, OVER_ROW, stage, these);
    for (int n = 0; n < k->group->nbody; n++) {
      int out = body_op(k->group, n)->out;
      these[n] &= graph->value[out].stored || is_read_by_rows(k, out);
    }
    add_starts(c, k, these);
    if (made_in_stage(k->group->body, &k->stages, stage, made)) {
      const struct loops *loops = &k->loops;
      int kept = kept_outside(loops), known = k->ntemporary;
      bool columns[MOST_IN_KERNEL];
      bool any_columns = find_row_sums(k, OVER_COLUMN, k->vectors.stage, columns);
      bool plain = !any_of(these, k->group->nbody) && !any_columns;
      if (row_elements(loops)) {
        struct code *within = has_blocks() ? open_row_of_threads(c, k)
                                           : open_inner_loops(c, loops, kept, !kept && plain);
        struct code *body = begin_vector(k);
        add_elements(body, k, made);
        add_terms(body, k, these, result_expr);
        add_terms(body, k, columns, has_blocks() || k->parted ? column_place : output_place);
        end_vector(within, k, body);
        if (has_blocks() || within != c) k->ntemporary = known; /* they are the loop's own */
      }
    }
    if (has_blocks()) add_combines(c, k, these, k->form->threads);
    add_results(c, k, these);
  }
}

/* A first run, into code that is dropped, finds the vectors that several stages use. */
static void add_stages(struct code *c, struct kernel_builder *k)
{
  if (has_blocks()) {
    struct kernel_builder before = *k;
    k->vectors.kept = true;
    add_stages_once(new_code(), k);
    bool kept = fits_in_registers(k, k->form);
    if (kept) before.vectors = k->vectors;
    *k = before;
    if (kept) declare_kept_vectors(c, k, k->form->several);
  }
  add_stages_once(c, k);
}

/* -------------------------------------------------------------------------------- all rows in C */

/* With sums over the rows, in parts that threads share. */
static void add_rows_in_parts(struct code *c, struct kernel_builder *k, const bool *rows,
                              const bool *columns)
{
  const struct loops *loops = &k->loops;
  int64_t parts = thread_parts(loops);
  bool any_columns = any_of(columns, k->group->nbody);
  k->parted = true;
  declare_parts(c, k, rows, parts, 0);
  declare_parts(c, k, columns, parts, row_elements(loops));
  struct code *part = open_parts(c, loops);
  add_starts(part, k, rows);
  if (any_columns) start_columns(part, k, columns);
  struct statement *n = open_part(part, loops);
  add_stages(open_loops(n->body, loops, 1, kept_outside(loops)), k);
  add_part_results(part, k, rows);
  if (any_of(rows, k->group->nbody)) combine_parts(c, k, rows, parts, NULL);
  add_results(c, k, rows);
  if (!any_columns) return;
  c = open_loops(c, loops, kept_outside(loops), loops->n);
  combine_parts(c, k, columns, parts, row_index(loops));
  add_results(c, k, columns);
}

static void add_rows_in_loops(struct code *c, struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  int kept = kept_outside(loops);
  bool rows[MOST_IN_KERNEL], columns[MOST_IN_KERNEL];
  bool any_rows = find_row_sums(k, OVER_ROWS, NONE, rows);
  bool any_columns = find_row_sums(k, OVER_COLUMN, NONE, columns) && row_elements(loops);
  bool reduces = any_rows || any_columns;
  if (reduces && kept && has_threads(loops)) {
    add_rows_in_parts(c, k, rows, columns);
    return;
  }
  add_starts(c, k, rows);
  if (any_columns) start_columns(c, k, columns);
  add_stages(reduces ? open_loops(c, loops, 0, kept) : open_shared_loops(c, loops, kept), k);
  add_results(c, k, rows);
}

/* --------------------------------------------------------------------------- all rows in blocks */

/* The number of this block, or warp. */
static const struct expr *group_number(const struct kernel_builder *k)
{
  const struct expr *block = converted_to(k->loops.type, "blockIdx.x");
  if (k->form->threads != WARP) return block;
  return expr("%e * %d + %e / %d", block, BLOCK / WARP, converted_to(k->loops.type, "threadIdx.x"),
              WARP);
}

/* A row for each block, or warp; with columns, many of them. */
static struct code *open_rows_of_blocks(struct code *c, const struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  const struct kernel_form *f = k->form;
  /* The counter over the rows: their loop's variable, if there is one loop. */
  bool one = loops->n && !loops->reduced[0] && (loops->n == 1 || loops->reduced[1]);
  const char *row = one ? loop_variable[0] : "row";
  const struct expr *rows = int_expr(f->rows);
  bool ends = (f->threads == WARP && f->rows % (BLOCK / WARP)) || loops->rows;
  if (loops->rows) rows = counted_rows(loops, f->rows / loops->size[0] * loops->of_row);
  if (f->columns) {
    struct statement *n = add_for(c, loops->type, row, group_number(k), rows);
    n->step = int_expr(f->parts);
    c = n->body;
  } else {
    if (f->rows > 1 || ends)
      add_declaration(c, text("const %s", loops->type), row, group_number(k));
    if (ends) add_statement(add_condition(c, expr("%s >= %e", row, rows)), word_expr("return"));
  }
  if (!strcmp(row, "row")) declare_variables(c, loops, false, word_expr(row), 1, false);
  return c;
}

static void add_rows_in_blocks(struct code *c, struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  bool columns[MOST_IN_KERNEL];
  k->vectors.several = f->several > 1;
  k->vectors.declared = f->several > 1 || f->guarded;
  k->guard = expr(f->threads == WARP ? "lane == 0" : "threadIdx.x == 0");
  if (f->threads == WARP)
    add_declaration(c, "const int", "lane", expr("(int)threadIdx.x % %d", WARP));
  if (f->row && f->unrolled && f->several == 1) declare_row_index(c, k);
  find_row_sums(k, OVER_COLUMN, NONE, columns);
  if (f->columns) add_vector_starts(c, k, columns, f->several);
  add_stages(open_rows_of_blocks(c, k), k);
  if (f->columns) {
    const struct expr *start = times_expr(group_number(k), "*", f->row);
    c = open_row_of_threads(c, k);
    for (int n = 0; n < k->group->nbody; n++) {
      if (!columns[n]) continue;
      const struct expr *sums = result_expr(k, n);
      if (f->several > 1) sums = expr("%e[part]", sums);
      store_part(c, k, n, add_parts(k, n, f->parts), start, sums);
    }
  }
}

/* ------------------------------------------------------------------------------------ all kinds */

/* A kernel of elements, or by rows, ends after the last existing row. */
static void declare_rows(struct code *c, struct kernel_builder *k)
{
  struct loops *loops = &k->loops;
  enum kernel_scheme scheme = k->form->scheme;
  if (!loops->of_row || (scheme != ELEMENT_BY_ELEMENT && scheme != ROW_BY_ROW)) return;
  int counts = counts_of_kernel(k->group);
  const char *rows = new_temporary(k, NONE, "rows");
  loops->rows = word_expr(rows);
  add_declaration(
      c, text("const %s", loops->type), rows,
      expr("all_rows(%s, %ld)", argument_name(k, counts), elements(local_shape(counts, k->rank))));
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
    if (has_blocks())
      add_rows_in_blocks(c, k);
    else
      add_rows_in_loops(c, k);
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
