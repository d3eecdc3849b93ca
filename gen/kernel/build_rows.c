/* build_rows.c: the code of a kernel by rows (row_passes.c): loops over the rows; within them the
   per-row values, and for each stage the loops over a row.

   On the CPU threads share the rows. Reductions over the rows have partial results, one for each of
   a fixed number of parts of the rows, so that every run gives the same result.

   On a GPU a warp has a short row, a block a longer one; a thread has every 32nd, or 256th, vector
   of it. It loops over its vectors once in each stage. Vectors that several stages read stay in
   registers, unless they are too many: then each stage loads them. With sums over the rows, for
   each place in them (columns), a warp or a block has many rows, and every thread sums the places
   that it has over all these rows; its results are a part (partial_sums.c). */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

static bool any_of(const bool *these, int n)
{
  while (n-- > 0)
    if (these[n]) return true;
  return false;
}

/* ------------------------------------------------------------------ a row of a block, or a warp */

static const char *thread_text(const struct kernel_form *f)
{
  return f->threads == WARP ? "lane" : "(int)threadIdx.x";
}

/* The variable that counts over a row's elements: its loop's variable, if it has one loop; else the
   variables of its loops are computed from it. */
static const char *row_variable(const struct loops *loops)
{
  int n = innermost_loop(loops);
  bool one = n != NONE && loops->reduced[n] && (n == 0 || !loops->reduced[n - 1]);
  return one ? variable_text(loops, loops->last[n]) : "n";
}

static const char *times(const char *number, int factor)
{
  return factor == 1 ? number : text("%s * %d", number, factor);
}

/* The variables of the row's loops, computed from the one that counts over its elements. */
static void declare_row_variables(struct code *c, const struct kernel_builder *k)
{
  if (*row_variable(&k->loops) == 'n') declare_variables(c, &k->loops, true, "n", 1, true);
}

/* The start of a thread's part. */
static void declare_row_index(struct code *c, const struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  const char *number = thread_text(f);
  if (f->several > 1) number = text("part * %d + %s", f->threads, number);
  if (f->several > 1 && f->width > 1) number = text("(%s)", number);
  add_lazy_declaration(c, text("const %s", k->loops.type), row_variable(&k->loops),
                       times(number, f->width));
  declare_row_variables(c, k);
}

static struct code *open_row_of_threads(struct code *c, const struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  const char *variable = row_variable(&k->loops), *row = text("%" PRId64, f->row);
  if (!f->unrolled) {
    struct statement *n = add_for(c, k->loops.type, variable, times(thread_text(f), f->width), row);
    n->step = text("%d", f->threads * f->width);
    declare_row_variables(n->body, k);
    return n->body;
  }
  if (f->several > 1) {
    struct statement *n = add_for(c, "int", "part", "0", text("%" PRId64, f->several));
    n->marks = UNROLLED;
    c = n->body;
    declare_row_index(c, k);
  }
  return add_condition(c, f->guarded ? text("%s < %s", variable, row) : "");
}

/* --------------------------------------------------------------------------------------- columns
 */

/* The accumulator of a column: on the CPU the output, or an element of the part; on a GPU the
   thread's own, "sum_of[part][v]". */
static const char *column_place(struct kernel_builder *k, int n)
{
  const struct kernel_form *f = k->form;
  if (has_blocks())
    return text("%s%s%s", result_name(k, n), f->several > 1 ? "[part]" : "",
                f->width > 1 ? "[v]" : "");
  return k->parted ? part_text(k, n, row_index_text(&k->loops)) : output_place(k, n);
}

static void start_columns(struct code *c, struct kernel_builder *k, const bool *columns)
{
  c = open_loops(c, &k->loops, kept_outside(&k->loops), k->loops.n);
  for (int n = 0; n < k->group->nbody; n++)
    if (columns[n]) add_assignment(c, column_place(k, n), neutral_text(body_op(k->group, n)));
}

/* ------------------------------------------------------------------------------------------ a row
 */

static void add_row(struct code *c, struct kernel_builder *k, const bool *made, const bool *sums)
{
  const struct loops *loops = &k->loops;
  int kept = kept_outside(loops), known = k->ntemporary;
  bool columns[MOST_IN_KERNEL];
  bool any_columns = find_row_sums(k, OVER_COLUMN, k->vectors.stage, columns);
  bool plain = !any_of(sums, k->group->nbody) && !any_columns;
  if (!row_elements(loops)) return;
  struct code *within =
      has_blocks() ? open_row_of_threads(c, k) : open_inner_loops(c, loops, kept, !kept && plain);
  struct code *body = begin_vector(k);
  add_elements(body, k, made);
  add_terms(body, k, sums, result_name);
  add_terms(body, k, columns, has_blocks() || k->parted ? column_place : output_place);
  end_vector(within, k, body);
  if (has_blocks() || within != c) k->ntemporary = known; /* they are the loop's own */
}

static void add_stages_once(struct code *c, struct kernel_builder *k)
{
  bool made[MOST_IN_KERNEL], these[MOST_IN_KERNEL];
  for (int stage = 0; stage < k->stages.count; stage++) {
    k->vectors.stage = stage;
    find_sums_of_rows(k, stage, these);
    add_elements(c, k, these);
    find_row_sums(k, OVER_ROWS, stage, these);
    add_terms(c, k, these, result_name);
    find_row_sums(k, OVER_ROW, stage, these);
    for (int n = 0; n < k->group->nbody; n++) {
      int out = body_op(k->group, n)->out;
      these[n] &= graph->value[out].stored || is_read_by_rows(k, out);
    }
    add_starts(c, k, these);
    if (made_in_stage(k->group->body, &k->stages, stage, made)) add_row(c, k, made, these);
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
  if (any_of(rows, k->group->nbody)) combine_parts(c, k, rows, parts, "");
  add_results(c, k, rows);
  if (!any_columns) return;
  c = open_loops(c, loops, kept_outside(loops), loops->n);
  combine_parts(c, k, columns, parts, row_index_text(loops));
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

/* ----------------------------------------------------------------------------- all rows in blocks
 */

/* The number of this block, or warp. */
static char *group_text(const struct kernel_builder *k)
{
  const char *type = k->loops.type;
  if (k->form->threads != WARP) return text("(%s)blockIdx.x", type);
  return text("(%s)blockIdx.x * %d + (%s)threadIdx.x / %d", type, BLOCK / WARP, type, WARP);
}

/* The counter over the rows: their loop's variable, if there is one loop. */
static const char *count_variable(const struct loops *loops)
{
  bool one = loops->n && !loops->reduced[0] && (loops->n == 1 || loops->reduced[1]);
  return one ? variable_text(loops, loops->last[0]) : "row";
}

/* A row for each block, or warp; with columns, many of them. */
static struct code *open_rows_of_blocks(struct code *c, const struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  const struct kernel_form *f = k->form;
  const char *row = count_variable(loops), *rows = text("%" PRId64, f->rows);
  bool ends = (f->threads == WARP && f->rows % (BLOCK / WARP)) || loops->rows;
  if (loops->rows) rows = counted_text(loops, f->rows / loops->size[0] * loops->of_row);
  if (f->columns) {
    struct statement *n = add_for(c, loops->type, row, group_text(k), rows);
    n->step = text("%" PRId64, f->parts);
    c = n->body;
  } else {
    if (f->rows > 1 || ends) add_declaration(c, text("const %s", loops->type), row, group_text(k));
    if (ends) add_statement(add_condition(c, text("%s >= %s", row, rows)), "return");
  }
  if (!strcmp(row, "row")) declare_variables(c, loops, false, row, 1, false);
  return c;
}

static void store_columns(struct code *c, struct kernel_builder *k, const bool *columns)
{
  const struct kernel_form *f = k->form;
  char *group = group_text(k);
  if (f->threads == WARP) group = text("(%s)", group);
  c = open_row_of_threads(c, k);
  for (int n = 0; n < k->group->nbody; n++) {
    if (!columns[n]) continue;
    const char *sums = text("%s%s", result_name(k, n), f->several > 1 ? "[part]" : "");
    store_part(c, k, n, add_parts(k, n, f->parts), text("%s * %" PRId64, group, f->row), sums);
  }
}

static void add_rows_in_blocks(struct code *c, struct kernel_builder *k)
{
  const struct kernel_form *f = k->form;
  bool columns[MOST_IN_KERNEL];
  k->vectors.several = f->several > 1;
  k->vectors.declared = f->several > 1 || f->guarded;
  k->guard = f->threads == WARP ? "lane == 0" : "threadIdx.x == 0";
  if (f->threads == WARP)
    add_declaration(c, "const int", "lane", text("(int)threadIdx.x %% %d", WARP));
  if (f->row && f->unrolled && f->several == 1) declare_row_index(c, k);
  find_row_sums(k, OVER_COLUMN, NONE, columns);
  if (f->columns) add_vector_starts(c, k, columns, f->several);
  add_stages(open_rows_of_blocks(c, k), k);
  if (f->columns) store_columns(c, k, columns);
}

void add_rows(struct code *c, struct kernel_builder *k)
{
  if (has_blocks())
    add_rows_in_blocks(c, k);
  else
    add_rows_in_loops(c, k);
}
