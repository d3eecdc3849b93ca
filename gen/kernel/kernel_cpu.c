/* kernel_cpu.c: the body of a kernel in C, as loops.

   By rows (row_passes.c) the outer loops are those over the rows; within them what rows have one
   of, and for each stage the loops over a row. What is reduced over the rows has a place in each of
   a fixed number of parts of them, so that threads which take a part each come to the same result
   in every run.

   In the plain way one nest of loops makes every element. Where all kept loops are outside, a
   reduction is finished before the next element of its output begins. Else its outputs begin as
   they are over nothing, and every element is added to its own: the loops go through memory in
   order. What is rounded when it is stored can only be stored once: then the kept loops are put
   outside. */
#include "kernel/kernel.h"

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

/* Those from `from` on, before `to`; the first at this indentation. */
static void put_loops(struct buffer *b, const struct loops *loops, int from, int to, int indent)
{
  for (int n = from; n < to; n++) put_loop(b, loops, n, indent + 2 * (n - from));
}

/* -------------------------------------------------------------------------------------- threads */

int64_t worth_threads = 1 << 14;

enum { PARTS = 16 };

static bool has_threads(const struct loops *loops)
{
  int64_t all = 1;
  for (int i = 0; i < loops->n; i++) all *= loops->size[i];
  return all >= worth_threads;
}

/* Several threads share the iterations of the outermost `n` loops, always in the same way: the
   inner of them are taken in only where the outermost alone has few. */
static void put_threads(struct buffer *b, const struct loops *loops, int n, const char *clauses)
{
  enum { ENOUGH = 64 };
  if (!n || !has_threads(loops)) return;
  bool collapse = n > 1 && loops->size[0] < ENOUGH;
  put(b, "#pragma omp parallel for%s schedule(static)%s\n", clauses,
      collapse ? text(" collapse(%d)", n) : "");
}

/* The innermost loop, which follows, may go over several elements at once. */
static void put_simd(struct buffer *b, const struct loops *loops, const char *clauses)
{
  if (has_threads(loops)) put(b, "#pragma omp simd%s\n", clauses);
}

/* The loops from `from` on, the innermost of them over several elements at once; in threads, where
   there are no loops around them that are. */
static void put_inner_loops(struct buffer *b, const struct loops *loops, int from, bool threads,
                            const char *clauses, int indent)
{
  int last = loops->n - 1;
  if (last < from) return;
  if (threads) put_threads(b, loops, last ? last : 1, last ? "" : " simd");
  put_loops(b, loops, from, last, indent);
  if (last || !threads) put_simd(b, loops, clauses);
  put_loop(b, loops, last, indent + 2 * (last - from));
}

/* How many parts the outermost loop is cut into. */
static int64_t parts_of(const struct loops *loops)
{
  return loops->size[0] < PARTS ? loops->size[0] : PARTS;
}

/* The loop over the parts, and the outermost loop within one. */
static void put_part_loops(struct buffer *b, const struct loops *loops, const char *starts)
{
  int64_t n = loops->size[0], parts = parts_of(loops);
  const char *i = variable_text(loops, loops->last[0]), *type = loops->type;
  char *from, *to;
  if (n % parts == 0) {
    from = n == parts ? "part" : text("part * %" PRId64, n / parts);
    to = text("%s + %" PRId64, from, n / parts);
  } else {
    from = text("part * %" PRId64 " / %" PRId64, n, parts);
    to = text("(part + 1) * %" PRId64 " / %" PRId64, n, parts);
  }
  put(b, "#pragma omp parallel for schedule(static)\n");
  put(b, "  for (%s part = 0; part < %" PRId64 "; part++) {\n%s", type, parts, starts);
  put(b, "    for (%s %s = %s; %s < %s; %s++) {\n", type, i, from, i, to, i);
}

/* -------------------------------------------------------------------------------------- by rows */

/* The operations of one sort. */
static void find_tasks(const struct draft *k, enum reach reach, int stage, bool *these)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct task *m = &k->stages.task[n];
    these[n] = m->reach == reach && (stage == NONE || m->stage == stage);
  }
}

static bool any_of(const bool *these, int n)
{
  while (n-- > 0)
    if (these[n]) return true;
  return false;
}

/* The loops over a row in one stage. */
static void put_row_loops(struct buffer *b, struct draft *k, int kept, const bool *made, int stage,
                          bool parted, int indent)
{
  const struct loops *loops = &k->loops;
  bool sums[MOST_IN_KERNEL], columns[MOST_IN_KERNEL];
  int known = k->ntemporary, innermost = indent + 2 * (loops->n - kept);
  find_tasks(k, OVER_ROW, stage, sums);
  find_tasks(k, OVER_COLUMN, stage, columns);
  if (!row_elements(loops)) return;
  bool plain = !any_of(sums, k->group->nbody) && !any_of(columns, k->group->nbody);
  put_inner_loops(b, loops, kept, !kept && plain, simd_clauses(k, sums), indent);
  put_elements(b, k, made, innermost);
  put_terms(b, k, sums, innermost);
  if (parted)
    put_column_terms(b, k, columns, innermost);
  else
    put_terms_in_place(b, k, columns, innermost);
  close_loops(b, loops->n - kept, indent);
  if (loops->n > kept) k->ntemporary = known; /* they were the loop's own */
}

static void put_row(struct buffer *b, struct draft *k, int kept, bool parted, int indent)
{
  bool made[MOST_IN_KERNEL], these[MOST_IN_KERNEL];
  for (int stage = 0; stage < k->stages.count; stage++) {
    find_tasks(k, NO_REDUCTION, stage, these);
    for (int n = 0; n < k->group->nbody; n++) these[n] &= k->stages.task[n].of_row;
    put_elements(b, k, these, indent);
    find_tasks(k, OVER_ROWS, stage, these);
    put_terms(b, k, these, indent);
    find_tasks(k, OVER_ROW, stage, these);
    for (int n = 0; n < k->group->nbody; n++) {
      int out = graph->op[k->group->body[n]].out;
      these[n] &= graph->value[out].stored || is_read_by_rows(k, out);
    }
    put_starts(b, k, these, "double", indent);
    if (made_in_stage(k->group->body, &k->stages, stage, made))
      put_row_loops(b, k, kept, made, stage, parted, indent);
    put_results(b, k, these, "", indent);
  }
}

/* What columns, or rows, begin with in each part. */
static char *part_starts(struct draft *k, int kept, const bool *rows, const bool *columns)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_starts(&b, k, rows, "double", 4);
  if (any_of(columns, k->group->nbody)) {
    put_loops(&b, &k->loops, kept, k->loops.n, 4);
    put_column_starts(&b, k, columns, true, 4 + 2 * (k->loops.n - kept));
    close_loops(&b, k->loops.n - kept, 4);
  }
  return b.text;
}

/* With sums over the rows, in parts that threads share. */
static void put_rows_in_parts(struct buffer *b, struct draft *k, int kept, const bool *rows,
                              const bool *columns)
{
  const struct loops *loops = &k->loops;
  int64_t parts = parts_of(loops);
  put_sum_parts(b, k, rows, parts);
  put_column_parts(b, k, columns, parts);
  put_part_loops(b, loops, part_starts(k, kept, rows, columns));
  put_loops(b, loops, 1, kept, 6);
  put_row(b, k, kept, true, 4 + 2 * kept);
  close_loops(b, kept, 4);
  put_part_results(b, k, rows, 4);
  put(b, "  }\n");
  if (any_of(rows, k->group->nbody)) put_parts_together(b, k, rows, parts);
  put_results(b, k, rows, "", 2);
  if (!any_of(columns, k->group->nbody)) return;
  int inside = 2 + 2 * (loops->n - kept);
  put_loops(b, loops, kept, loops->n, 2);
  put_columns_together(b, k, columns, parts, inside);
  put_results(b, k, columns, "", inside);
  close_loops(b, loops->n - kept, 2);
}

static void put_rows(struct buffer *b, struct draft *k)
{
  const struct loops *loops = &k->loops;
  int kept = kept_outside(loops);
  bool rows[MOST_IN_KERNEL], columns[MOST_IN_KERNEL];
  find_tasks(k, OVER_ROWS, NONE, rows);
  find_tasks(k, OVER_COLUMN, NONE, columns);
  bool any_columns = any_of(columns, k->group->nbody) && row_elements(loops);
  bool ends = any_columns || any_of(rows, k->group->nbody);
  if (ends && kept && has_threads(loops)) {
    put_rows_in_parts(b, k, kept, rows, columns);
    return;
  }
  put_starts(b, k, rows, "double", 2);
  if (any_columns) {
    put_loops(b, loops, kept, loops->n, 2);
    put_column_starts(b, k, columns, false, 2 + 2 * (loops->n - kept));
    close_loops(b, loops->n - kept, 2);
  }
  if (!ends) put_threads(b, loops, kept, "");
  put_loops(b, loops, 0, kept, 2);
  put_row(b, k, kept, false, 2 + 2 * kept);
  close_loops(b, kept, 2);
  put_results(b, k, rows, "", 2);
}

/* ----------------------------------------------------------------------------- in the plain way */

static void put_inner_reductions(struct buffer *b, struct draft *k, int kept, const bool *all)
{
  const struct loops *loops = &k->loops;
  int innermost = 2 + 2 * loops->n;
  put_threads(b, loops, kept, "");
  put_loops(b, loops, 0, kept, 2);
  put_starts(b, k, all, "double", 2 + 2 * kept);
  put_inner_loops(b, loops, kept, false, simd_clauses(k, all), 2 + 2 * kept);
  put_elements(b, k, all, innermost);
  put_terms(b, k, all, innermost);
  close_loops(b, loops->n - kept, 2 + 2 * kept);
  put_results(b, k, all, "", 2 + 2 * kept);
  close_loops(b, kept, 2);
}

/* All becomes one number: that of each part first. */
static void put_reductions_in_parts(struct buffer *b, struct draft *k, const bool *all)
{
  const struct loops *loops = &k->loops;
  int64_t parts = parts_of(loops);
  bool sums[MOST_IN_KERNEL];
  struct buffer starts = {0};
  find_tasks(k, OVER_SOME, NONE, sums);
  put_sum_parts(b, k, sums, parts);
  put_starts(&starts, k, sums, "double", 4);
  if (loops->n == 1) put(&starts, "#pragma omp simd%s\n", simd_clauses(k, sums));
  put_part_loops(b, loops, starts.text);
  put_inner_loops(b, loops, 1, false, simd_clauses(k, sums), 6);
  put_elements(b, k, all, 4 + 2 * loops->n);
  put_terms(b, k, sums, 4 + 2 * loops->n);
  close_loops(b, loops->n, 4);
  put_part_results(b, k, sums, 4);
  put(b, "  }\n");
  put_parts_together(b, k, sums, parts);
  put_results(b, k, sums, "", 2);
}

static void put_outer_reductions(struct buffer *b, struct draft *k, const bool *all)
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
  put_loops(b, loops, 0, loops->n, 2);
  put_elements(b, k, all, 2 + 2 * loops->n);
  put_terms_in_place(b, k, all, 2 + 2 * loops->n);
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

static void put_elements_alone(struct buffer *b, struct draft *k, const bool *all)
{
  put_inner_loops(b, &k->loops, 0, true, "", 2);
  put_elements(b, k, all, 2 + 2 * k->loops.n);
  close_loops(b, k->loops.n, 2);
}

char *cpu_body(struct draft *k)
{
  struct buffer b = {0};
  bool all[MOST_IN_KERNEL];
  for (int n = 0; n < MOST_IN_KERNEL; n++) all[n] = true;
  put_text(&b, "", 0);
  if (k->stages.rows != NONE) {
    put_rows(&b, k);
    return b.text;
  }
  if (rounds_results(k->group)) k->loops = kept_first(&k->loops);
  int kept = kept_outside(&k->loops);
  if (!has_reductions(k->group))
    put_elements_alone(&b, k, all);
  else if (kept == 0 && k->loops.n && has_threads(&k->loops))
    put_reductions_in_parts(&b, k, all);
  else if (kept != NONE)
    put_inner_reductions(&b, k, kept, all);
  else
    put_outer_reductions(&b, k, all);
  return b.text;
}
