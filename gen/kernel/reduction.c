/* reduction.c: the reductions in a kernel, as statements before, in and after its loops.

   A bfloat16 is reduced as a float, and rounded at the end. Sums of floats are added up in double
   on the CPU, in float by each thread on CUDA and, where they go on in memory, over columns; sums
   of whole numbers in long. The greatest and the least number is NaN where one of them is. */
#include "kernel/kernel.h"

#include <string.h>

const char *neutral_text(const struct op *op)
{
  static const char *const least[] = {[F32] = "-INFINITY",
                                      [BF16] = "-INFINITY",
                                      [I32] = "INT_MIN",
                                      [I64] = "LONG_MIN",
                                      [BOOL] = "0"};
  static const char *const greatest[] = {
      [F32] = "INFINITY", [BF16] = "INFINITY", [I32] = "INT_MAX", [I64] = "LONG_MAX", [BOOL] = "1"};
  enum reduction reduction = reduction_of(op);
  if (reduction == SUM) return "0";
  return reduction == MAX ? least[type_reduced(op)] : greatest[type_reduced(op)];
}

/* "mean_sum", "d_weight_sum" after what becomes of it; where that says it already, "sum_of". */
static const char *accumulator(const struct draft *k, int n)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  const struct op *op = body_op(k->group, n);
  const char *how = word[reduction_of(op)];
  const char *stored = argument_if_any(k, op->out), *what = stored ? stored : op_name(op);
  return strstr(what, how) ? text("%s_of", what) : text("%s_%s", what, how);
}

const char *result_name(const struct draft *k, int n)
{
  const char *name = accumulator(k, n);
  int before = 0;
  for (int i = 0; i < n; i++)
    before += is_reduce(body_op(k->group, i)->kind) && !strcmp(accumulator(k, i), name);
  return free_name(k, before ? text("%s_%d", name, before + 1) : name);
}

static const char *kept_type(const struct op *op, const char *float_type)
{
  enum type type = type_reduced(op);
  if (reduction_of(op) == SUM) return is_floating(type) ? float_type : "long";
  return type == BOOL ? "int" : is_floating(type) ? "float" : c_type(type);
}

void put_starts(struct buffer *b, const struct draft *k, const bool *these, const char *float_type,
                int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    put(b, "%*s%s %s = %s;\n", indent, "", kept_type(op, float_type), result_name(k, n),
        neutral_text(op));
  }
}

static char *term_text(const struct op *op, const char *to, const char *term)
{
  enum reduction reduction = reduction_of(op);
  enum type type = type_reduced(op);
  if (reduction == SUM) return text("%s += %s;", to, term);
  if (is_floating(type))
    return text("%s = %s(%s, %s);", to, reduction == MAX ? "larger" : "smaller", to, term);
  return text("if (%s %c %s) %s = %s;", term, reduction == MAX ? '>' : '<', to, to, term);
}

void put_terms(struct buffer *b, struct draft *k, const bool *these, int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    const char *element = element_text(b, k, op, indent);
    put(b, "%*s%s\n", indent, "", term_text(op, result_name(k, n), element));
  }
}

void put_terms_in_place(struct buffer *b, struct draft *k, const bool *these, int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    char *element = element_text(b, k, op, indent);
    if (op->scalar != 1 && reduction_of(op) == SUM)
      element = text("%s * %s", float_factor(op->scalar), in_brackets(element));
    put(b, "%*s%s\n", indent, "", term_text(op, output_text(k, op), element));
  }
}

/* ---------------------------------------------------------------- parts that threads go through */

static const char *parts_name(const struct draft *k, int n)
{
  return free_name(k, text("%s_part", result_name(k, n)));
}

void put_sum_parts(struct buffer *b, const struct draft *k, const bool *these, int64_t parts)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      put(b, "  %s %s[%d];\n", kept_type(body_op(k->group, n), "double"), parts_name(k, n),
          (int)parts);
}

void put_part_results(struct buffer *b, const struct draft *k, const bool *these, int indent)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n]) put(b, "%*s%s[part] = %s;\n", indent, "", parts_name(k, n), result_name(k, n));
}

void put_parts_together(struct buffer *b, const struct draft *k, const bool *these, int64_t parts)
{
  put_starts(b, k, these, "double", 2);
  put(b, "  for (int part = 0; part < %d; part++) {\n", (int)parts);
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      put(b, "    %s\n",
          term_text(body_op(k->group, n), result_name(k, n), text("%s[part]", parts_name(k, n))));
  put(b, "  }\n");
}

/* -------------------------------------------------------------------------------------- columns */

void put_column_parts(struct buffer *b, const struct draft *k, const bool *these, int64_t parts)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      put(b, "  float %s[%d][%d];\n", parts_name(k, n), (int)parts, (int)row_elements(&k->loops));
}

void put_column_starts(struct buffer *b, struct draft *k, const bool *these, bool parted,
                       int indent)
{
  const char *index = row_index_text(&k->loops);
  for (int n = 0; n < k->group->nbody; n++) {
    if (!these[n]) continue;
    const char *to = parted ? text("%s[part][%s]", parts_name(k, n), index)
                            : output_text(k, body_op(k->group, n));
    put(b, "%*s%s = %s;\n", indent, "", to, neutral_text(body_op(k->group, n)));
  }
}

void put_column_terms(struct buffer *b, struct draft *k, const bool *these, int indent)
{
  const char *index = row_index_text(&k->loops);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n]) continue;
    char *element = element_text(b, k, op, indent);
    put(b, "%*s%s\n", indent, "",
        term_text(op, text("%s[part][%s]", parts_name(k, n), index), element));
  }
}

/* In loops over the columns: each one's parts become the output. */
void put_columns_together(struct buffer *b, const struct draft *k, const bool *these, int64_t parts,
                          int indent)
{
  const char *index = row_index_text(&k->loops);
  put_starts(b, k, these, "double", indent);
  put(b, "%*sfor (int part = 0; part < %d; part++) {\n", indent, "", (int)parts);
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      put(b, "%*s%s\n", indent + 2, "",
          term_text(body_op(k->group, n), result_name(k, n),
                    text("%s[part][%s]", parts_name(k, n), index)));
  put(b, "%*s}\n", indent, "");
}

/* -------------------------------------------------------------------------------------- results */

void put_block_results(struct buffer *b, const struct draft *k, const bool *these, int threads,
                       int indent)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  for (int n = 0; n < k->group->nbody; n++) {
    if (!these[n] || !is_reduce(body_op(k->group, n)->kind)) continue;
    const char *name = result_name(k, n);
    const char *kind = word[reduction_of(body_op(k->group, n))];
    const char *all = threads == 32      ? text("warp_%s", kind)
                      : threads == BLOCK ? text("block_%s", kind)
                                         : text("block_%s<%d>", kind, threads);
    put(b, "%*s%s = %s(%s);\n", indent, "", name, all, name);
  }
}

char *result_text(const struct op *op, const char *name)
{
  enum type type = graph->value[op->out].type;
  char *result = copy_text(name);
  if (reduction_of(op) == SUM) {
    const char *to = type == BF16 ? "float" : c_type(type);
    bool floats = options.cuda && is_float_sum(op); /* on the CPU the sum is a double */
    if (op->scalar != 1 && floats)
      result = text("%s * %s", name, float_factor(op->scalar));
    else if (op->scalar != 1)
      result = text("(%s)(%s * %s)", to, name, double_factor(op->scalar));
    else if (!floats)
      result = text("(%s)%s", to, name);
  } else if (type_reduced(op) == BOOL) {
    result = text("(unsigned char)%s", name);
  }
  return type == BF16 ? text("float_to_bf16(%s)", result) : result;
}

void put_results(struct buffer *b, struct draft *k, const bool *these, const char *guard,
                 int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    const char *result = result_text(op, result_name(k, n));
    if (is_read_by_rows(k, op->out)) result = named_element(b, k, op, result, indent);
    if (graph->value[op->out].stored)
      put(b, "%*s%s%s = %s;\n", indent, "", guard, output_text(k, op), result);
  }
}

/* "reduction(+ : sum_of)": of those that a loop may take its terms of in any order. */
char *simd_clauses(const struct draft *k, const bool *these)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    enum reduction reduction = reduction_of(op);
    bool floats = is_floating(type_reduced(op));
    const char *by = reduction == SUM   ? "+"
                     : reduction == MAX ? (floats ? "larger" : "max")
                                        : (floats ? "smaller" : "min");
    put(&b, " reduction(%s : %s)", by, result_name(k, n));
  }
  return b.text;
}
