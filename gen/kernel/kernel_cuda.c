/* kernel_cuda.c: the body of a kernel in CUDA: a thread for each vector of neighbouring elements
   (vector.c), or for each element. By rows, kernel_rows.c has it.

   Reductions in the plain way: a block for each result whose loops are inside; a thread for each
   whose loops are outside, so that neighbours read neighbouring elements. Where that is too few for
   a whole device, sums are made in parts (partial_sums.c). */
#include "kernel/kernel.h"

#include <inttypes.h>

/* --------------------------------------------------------------------------- without reductions */

/* The number of this thread's vector, and the variables that it makes. */
static void put_thread(struct buffer *b, const struct loops *loops, int width)
{
  const char *type = loops->type;
  int64_t all = count_of(loops, false);
  char *number = text("(%s)blockIdx.x * %d + (%s)threadIdx.x", type, BLOCK, type);
  bool one = loops->n == 1, ends = all / width % BLOCK;
  const char *variable = one ? variable_text(loops, loops->last[0]) : "n";
  if (one && width > 1) number = text("(%s) * %d", number, width);
  if (loops->n || ends) put(b, "  const %s %s = %s;\n", type, variable, number);
  if (ends) put(b, "  if (%s >= %" PRId64 ") return;\n", variable, one ? all : all / width);
  if (!one) put_variables(b, loops, false, "n", width, NULL, 2);
}

static void find_of_rows(const struct draft *k, bool of_row, bool *these)
{
  for (int n = 0; n < k->group->nbody; n++) these[n] = k->stages.task[n].of_row == of_row;
}

/* Each thread computes for itself what its row has one of; the row's first one stores that. */
static void put_flat(struct buffer *b, struct draft *k, struct launch *launch)
{
  struct loops every = k->loops;
  struct buffer first = {0}, body = {0};
  bool made[MOST_IN_KERNEL];
  int width = k->vectors.width = vector_width(k), within = width > 1 ? 4 : 2;
  for (int n = 0; n < every.n; n++) {
    every.reduced[n] = false;
    if (k->loops.reduced[n])
      put(&first, "%s%s == 0", first.length ? " && " : "if (",
          variable_text(&every, every.last[n]));
  }
  k->guard = first.length ? text("%s) ", first.text) : "";
  launch->blocks = (count_of(&every, false) / width + BLOCK - 1) / BLOCK;
  put_thread(b, &every, width);
  find_of_rows(k, true, made);
  put_elements(b, k, made, 2);
  put_text(&body, "", 0);
  begin_vector(k);
  if (k->stages.rows == NONE)
    find_of_rows(k, false, made);
  else
    made_in_stage(k->group->body, &k->stages, 0, made);
  put_elements(&body, k, made, within);
  end_vector(b, k, body.text, 2);
}

/* ----------------------------------------------------------------------------------- reductions */

/* A loop in which the threads of a block, or of all blocks, share the iterations of all reduced
   loops. */
static void put_shared_loop(struct buffer *b, struct draft *k, int64_t parts, const bool *all)
{
  const struct loops *loops = &k->loops;
  const char *type = loops->type;
  int width = k->vectors.width, within = width > 1 ? 6 : 4;
  int64_t elements_in_all = count_of(loops, true);
  bool one =
      loops->n && loops->reduced[loops->n - 1] && (loops->n == 1 || !loops->reduced[loops->n - 2]);
  const char *variable = one ? variable_text(loops, loops->last[loops->n - 1]) : "n";
  char *start = text("(%s)threadIdx.x", type);
  struct buffer body = {0}, inside = {0};
  int64_t step = BLOCK * parts;
  if (parts > 1) start = text("(%s)blockIdx.x * %d + %s", type, BLOCK, start);
  if (one && width > 1)
    start = parts > 1 ? text("(%s) * %d", start, width) : text("%s * %d", start, width);
  put_text(&body, "", 0);
  put_text(&inside, "", 0);
  begin_vector(k);
  put_elements(&body, k, all, within);
  put_terms(&body, k, all, within);
  end_vector(&inside, k, body.text, 4);
  int64_t end = one ? elements_in_all : elements_in_all / width;
  put(b, "  for (%s %s = %s; %s < %" PRId64 "; %s += %" PRId64 ") {\n", type, variable, start,
      variable, end, variable, one ? step * width : step);
  if (!one) put_variables(b, loops, true, "n", width, inside.text, 4);
  put(b, "%s  }\n", inside.text);
}

static void put_inner_reductions(struct buffer *b, struct draft *k, int64_t parts, const bool *all,
                                 struct launch *launch)
{
  bool one = count_of(&k->loops, false) == 1;
  k->vectors.width = vector_width(k);
  launch->blocks = one ? parts : count_of(&k->loops, false);
  put_variables(b, &k->loops, false, one ? "0" : text("(%s)blockIdx.x", k->loops.type), 1, NULL, 2);
  put_starts(b, k, all, "float", 2);
  put_shared_loop(b, k, parts, all);
  put_block_results(b, k, all, BLOCK, 2);
  put(b, "  if (threadIdx.x == 0) {\n");
  if (parts == 1)
    put_results(b, k, all, "", 4);
  else
    for (int n = 0; n < k->group->nbody; n++)
      if (ends_in_parts(k, n))
        put(b, "    %s[blockIdx.x] = %s;\n", add_parts(k, n, parts, launch), result_name(k, n));
  put(b, "  }\n");
}

static void put_outer_reductions(struct buffer *b, struct draft *k, const bool *all,
                                 struct launch *launch)
{
  const struct loops *loops = &k->loops;
  launch->blocks = (count_of(loops, false) + BLOCK - 1) / BLOCK;
  put(b, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", loops->type, loops->type, BLOCK,
      loops->type);
  put(b, "  if (n >= %" PRId64 ") return;\n", count_of(loops, false));
  put_variables(b, loops, false, "n", 1, NULL, 2);
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

/* The reduced loops, of the outermost a part; gives the indentation within them. */
static int open_part(struct buffer *b, const struct loops *loops, int64_t parts)
{
  int indent = 2;
  for (int n = 0; n < loops->n; n++) {
    const char *i = variable_text(loops, loops->last[n]);
    if (!loops->reduced[n]) continue;
    if (indent > 2)
      put_loop(b, loops, n, indent);
    else
      put(b, "  for (%s %s = (%s)blockIdx.y; %s < %" PRId64 "; %s += %" PRId64 ") {\n", loops->type,
          i, loops->type, i, loops->size[n], i, parts);
    indent += 2;
  }
  return indent;
}

static void put_outer_terms(struct buffer *b, struct draft *k, const bool *all, int indent)
{
  struct buffer body = {0};
  int within = k->vectors.width > 1 ? indent + 2 : indent;
  const char *element = k->vectors.width > 1 ? "[v]" : "";
  put_text(&body, "", 0);
  begin_vector(k);
  put_elements(&body, k, all, within);
  for (int n = 0; n < k->group->nbody; n++) {
    if (!ends_in_parts(k, n)) continue;
    char *term = element_text(&body, k, &graph->op[k->group->body[n]], within);
    put(&body, "%*s%s%s += %s;\n", within, "", result_name(k, n), element, term);
  }
  end_vector(b, k, body.text, indent);
}

/* The number of this thread's vector of results, and what it has of them before the loops. */
static void put_outer_thread(struct buffer *b, const struct draft *k, int64_t vectors, int threads)
{
  const struct loops *loops = &k->loops;
  int width = k->vectors.width;
  put(b, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", loops->type, loops->type,
      threads, loops->type);
  if (vectors % threads) put(b, "  if (n >= %" PRId64 ") return;\n", vectors);
  put_variables(b, loops, false, "n", width, NULL, 2);
  for (int n = 0; n < k->group->nbody; n++)
    if (ends_in_parts(k, n))
      put(b, "  %s %s = %s;\n", width > 1 ? vector_type(k, "float") : "float", result_name(k, n),
          width > 1 ? "{}" : "0");
}

/* A thread for each vector of results in each row of blocks, which has its part of the outermost
   reduced loop. */
static void put_outer_parts(struct buffer *b, struct draft *k, int64_t parts, const bool *all,
                            struct launch *launch)
{
  struct loops *loops = &k->loops;
  bool along = !loops->reduced[innermost_loop(loops)];
  k->vectors.width = along ? vector_width(k) : 1;
  int64_t kept = count_of(loops, false), vectors = kept / k->vectors.width;
  launch->threads = vectors >= BLOCK ? BLOCK : (int)((vectors + 31) / 32 * 32);
  launch->blocks = (vectors + launch->threads - 1) / launch->threads;
  launch->rows = parts;
  put_outer_thread(b, k, vectors, launch->threads);
  int indent = open_part(b, loops, parts);
  put_outer_terms(b, k, all, indent);
  close_loops(b, (indent - 2) / 2, 2);
  for (int n = 0; n < k->group->nbody; n++) {
    if (!ends_in_parts(k, n)) continue;
    put_part(b, k, n, add_parts(k, n, parts, launch),
             text("(%s)blockIdx.y * %" PRId64, loops->type, kept), result_name(k, n), 2);
  }
}

/* ------------------------------------------------------------------------------------ all kinds */

static bool reduces_rows(const struct draft *k)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (k->stages.task[n].reach != NO_REDUCTION) return true;
  return false;
}

char *cuda_body(struct draft *k, struct launch *launch)
{
  struct buffer b = {0};
  bool all[MOST_IN_KERNEL];
  for (int n = 0; n < MOST_IN_KERNEL; n++) all[n] = true;
  *launch = (struct launch){.rows = 1, .threads = BLOCK};
  k->vectors.width = 1;
  put_text(&b, "", 0);
  if (k->stages.rows != NONE && (reduces_rows(k) || !row_elements(&k->loops)))
    return cuda_rows_body(k, launch);
  int64_t parts = has_reductions(k->group) ? plain_parts(k) : 1;
  if (!has_reductions(k->group))
    put_flat(&b, k, launch);
  else if (is_inner_reduction(&k->loops))
    put_inner_reductions(&b, k, parts, all, launch);
  else if (parts > 1)
    put_outer_parts(&b, k, parts, all, launch);
  else
    put_outer_reductions(&b, k, all, launch);
  return b.text;
}
