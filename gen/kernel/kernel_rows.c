/* kernel_rows.c: the body of a CUDA kernel by rows (row_passes.c).

   A short row is a warp's, a longer one a block's; a thread has every 32nd, or 256th, vector of it.
   It goes through its part once in each stage, and what several stages read stays in registers,
   unless that is too much: then the part is read anew.

   With sums over the rows, for each place in them (columns), a warp or a block takes many rows, and
   every thread adds up its own places of them all; what it has in the end is a part
   (partial_sums.c). */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

/* ----------------------------------------------------------------------------- loops over a row */

static const char *thread_text(const struct rows_form *f)
{
  return f->threads == WARP ? "lane" : "(int)threadIdx.x";
}

/* The variable that counts over a row's elements, if it has one loop; else that from which those of
   its loops are made. */
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

/* Where a thread's part begins: the variables of the row's loops that the body names. */
static void put_row_index(struct buffer *b, const struct draft *k, const struct rows_form *f,
                          const char *body, int indent)
{
  const char *variable = row_variable(&k->loops), *thread = thread_text(f);
  struct buffer parts = {0};
  put_text(&parts, "", 0);
  if (*variable == 'n') put_variables(&parts, &k->loops, true, "n", 1, body, indent);
  if (!parts.length && !f->guarded && !has_word(body, variable)) return;
  char *number = copy_text(thread);
  if (f->several > 1) number = text("part * %d + %s", f->threads, thread);
  if (f->several > 1 && f->width > 1) number = text("(%s)", number);
  put(b, "%*sconst %s %s = %s;\n%s", indent, "", k->loops.type, variable, times(number, f->width),
      parts.text);
}

/* How far within the loop over a row its body stands. */
static int depth_in_row(const struct rows_form *f, int indent)
{
  if (!f->unrolled) return indent + 2;
  return indent + 2 * (f->several > 1) + 2 * f->guarded;
}

static void open_row(struct buffer *b, const struct draft *k, const struct rows_form *f,
                     const char *body, int indent)
{
  const char *variable = row_variable(&k->loops), *type = k->loops.type;
  if (!f->unrolled) {
    put(b, "%*sfor (%s %s = %s; %s < %" PRId64 "; %s += %d) {\n", indent, "", type, variable,
        times(thread_text(f), f->width), variable, f->row, variable, f->threads * f->width);
    if (*variable == 'n') put_variables(b, &k->loops, true, "n", 1, body, indent + 2);
    return;
  }
  if (f->several > 1) {
    put(b, "#pragma unroll\n%*sfor (int part = 0; part < %" PRId64 "; part++) {\n", indent, "",
        f->several);
    indent += 2;
    put_row_index(b, k, f, body, indent);
  }
  if (f->guarded) put(b, "%*sif (%s < %" PRId64 ") {\n", indent, "", variable, f->row);
}

static void close_row(struct buffer *b, int from, int to)
{
  for (; from > to; from -= 2) put(b, "%*s}\n", from - 2, "");
}

/* The part of the sums of a column that a thread has: of one place, "sum_of[part][v]". */
static const char *column_text(const struct draft *k, const struct rows_form *f, int n,
                               bool element)
{
  return text("%s%s%s", result_name(k, n), f->several > 1 ? "[part]" : "",
              element && f->width > 1 ? "[v]" : "");
}

static void put_column_sums(struct buffer *b, struct draft *k, const struct rows_form *f, int stage,
                            int indent)
{
  bool columns[MOST_IN_KERNEL];
  find_row_sums(k, OVER_COLUMN, stage, columns);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (!columns[n]) continue;
    char *element = element_text(b, k, op, indent);
    put(b, "%*s%s += %s;\n", indent, "", column_text(k, f, n, true), element);
  }
}

static void put_stage_elements(struct buffer *b, struct draft *k, const struct rows_form *f,
                               const bool *made, const bool *sums, int indent)
{
  int known = k->ntemporary, within = indent + (f->width > 1 ? 2 : 0);
  struct buffer body = {0};
  put_text(&body, "", 0);
  begin_vector(k);
  put_elements(&body, k, made, within);
  put_terms(&body, k, sums, within);
  if (f->columns) put_column_sums(&body, k, f, k->vectors.stage, within);
  end_vector(b, k, body.text, indent);
  k->ntemporary = known; /* they were the loop's own */
}

/* ---------------------------------------------------------------------------------------- a row */

static void put_stages(struct buffer *b, struct draft *k, const struct rows_form *f, int indent)
{
  bool made[MOST_IN_KERNEL], sums[MOST_IN_KERNEL], of_rows[MOST_IN_KERNEL];
  for (int stage = 0; stage < k->stages.count; stage++) {
    k->vectors.stage = stage;
    find_sums_of_rows(k, stage, of_rows);
    put_elements(b, k, of_rows, indent);
    find_row_sums(k, OVER_ROW, stage, sums);
    put_starts(b, k, sums, "float", indent);
    if (made_in_stage(k->group->body, &k->stages, stage, made) && f->row) {
      struct buffer body = {0};
      int within = depth_in_row(f, indent);
      put_stage_elements(&body, k, f, made, sums, within);
      open_row(b, k, f, body.text, indent);
      put(b, "%s", body.text);
      close_row(b, within, indent);
    }
    put_block_results(b, k, sums, f->threads, indent);
    put_results(b, k, sums, k->guard, indent);
  }
}

/* The first time it is seen which vectors several stages speak of. */
static char *stages_text(struct draft *k, const struct rows_form *f, int indent)
{
  struct buffer b = {0}, seen = {0};
  struct draft before = *k;
  k->vectors.kept = true;
  put_stages(&seen, k, f, indent);
  bool kept = fits_in_registers(k, f);
  if (kept) before.vectors = k->vectors;
  *k = before;
  put_text(&b, "", 0);
  if (kept) put_kept_vectors(&b, k, f->several, indent);
  put_stages(&b, k, f, indent);
  return b.text;
}

/* ------------------------------------------------------------------------------------- all rows */

/* The number of this block, or warp. */
static char *group_text(const struct draft *k, const struct rows_form *f)
{
  const char *type = k->loops.type;
  if (f->threads != WARP) return text("(%s)blockIdx.x", type);
  return text("(%s)blockIdx.x * %d + (%s)threadIdx.x / %d", type, BLOCK / WARP, type, WARP);
}

/* What counts over the rows: their loop's variable, if it is one. */
static const char *count_variable(const struct loops *loops)
{
  bool one = loops->n && !loops->reduced[0] && (loops->n == 1 || loops->reduced[1]);
  return one ? variable_text(loops, loops->last[0]) : "row";
}

static void put_row_variables(struct buffer *b, const struct loops *loops, int indent)
{
  const char *row = count_variable(loops);
  if (!strcmp(row, "row")) put_variables(b, loops, false, row, 1, NULL, indent);
}

/* A row for each block, or warp. */
static void put_rows_alone(struct buffer *b, struct draft *k, const struct rows_form *f)
{
  const struct loops *loops = &k->loops;
  const char *row = count_variable(loops);
  bool ends = f->threads == WARP && f->rows % (BLOCK / WARP);
  if (count_of(loops, false) > 1 || ends)
    put(b, "  const %s %s = %s;\n", loops->type, row, group_text(k, f));
  if (ends) put(b, "  if (%s >= %" PRId64 ") return;\n", row, f->rows);
  put_row_variables(b, loops, 2);
  put(b, "%s", stages_text(k, f, 2));
}

static const char *sums_type(const struct draft *k, const struct rows_form *f)
{
  return f->width > 1 ? vector_type(k, "float") : "float";
}

/* What a thread has of the columns begins as nothing. */
static void begin_columns(struct buffer *b, const struct draft *k, const struct rows_form *f,
                          const bool *columns)
{
  for (int n = 0; n < k->group->nbody; n++) {
    if (!columns[n]) continue;
    const char *many = f->several > 1 ? text("[%" PRId64 "]", f->several) : "";
    const char *nothing = f->several > 1 || f->width > 1 ? "{}" : "0";
    put(b, "  %s %s%s = %s;\n", sums_type(k, f), result_name(k, n), many, nothing);
  }
}

static void store_columns(struct buffer *b, struct draft *k, const struct rows_form *f,
                          const bool *columns, struct launch *launch)
{
  int within = depth_in_row(f, 2);
  struct buffer body = {0};
  put_text(&body, "", 0);
  for (int n = 0; n < k->group->nbody; n++) {
    if (!columns[n]) continue;
    char *group = group_text(k, f);
    if (f->threads == WARP) group = text("(%s)", group);
    put_part(&body, k, n, add_parts(k, n, f->parts, launch), text("%s * %" PRId64, group, f->row),
             column_text(k, f, n, false), within);
  }
  open_row(b, k, f, body.text, 2);
  put(b, "%s", body.text);
  close_row(b, within, 2);
}

/* Many rows for each block, or warp. */
static void put_rows_and_columns(struct buffer *b, struct draft *k, const struct rows_form *f,
                                 struct launch *launch)
{
  const struct loops *loops = &k->loops;
  const char *row = count_variable(loops);
  bool columns[MOST_IN_KERNEL];
  find_row_sums(k, OVER_COLUMN, NONE, columns);
  begin_columns(b, k, f, columns);
  put(b, "  for (%s %s = %s; %s < %" PRId64 "; %s += %" PRId64 ") {\n", loops->type, row,
      group_text(k, f), row, f->rows, row, f->parts);
  put_row_variables(b, loops, 4);
  put(b, "%s  }\n", stages_text(k, f, 4));
  store_columns(b, k, f, columns, launch);
}

char *cuda_rows_body(struct draft *k, struct launch *launch)
{
  struct buffer b = {0};
  struct rows_form f = form_of(k);
  int64_t groups = f.columns ? f.parts : f.rows, of_block = f.threads == WARP ? BLOCK / WARP : 1;
  *launch = (struct launch){.blocks = (groups + of_block - 1) / of_block,
                            .threads = f.threads == WARP ? BLOCK : f.threads};
  k->vectors.width = f.width;
  k->vectors.several = f.several > 1;
  k->vectors.declared = f.several > 1 || f.guarded;
  k->guard = f.threads == WARP ? "if (lane == 0) " : "if (threadIdx.x == 0) ";
  put_text(&b, "", 0);
  if (f.threads == WARP) put(&b, "  const int lane = (int)threadIdx.x %% %d;\n", WARP);
  struct buffer rest = {0};
  put_text(&rest, "", 0);
  if (f.columns)
    put_rows_and_columns(&rest, k, &f, launch);
  else
    put_rows_alone(&rest, k, &f);
  if (f.row && f.unrolled && f.several == 1) put_row_index(&b, k, &f, rest.text, 2);
  put(&b, "%s", rest.text);
  return b.text;
}
