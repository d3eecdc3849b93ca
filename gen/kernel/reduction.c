/* reduction.c: the reductions of a kernel, as statements before, in and after its loops.

   A bfloat16 is reduced as a float, and rounded at the end. Sums of floats are accumulated in
   double on the CPU, in float by each thread on CUDA and, for columns, in memory; sums of whole
   numbers in long. A maximum or minimum is NaN if one of the numbers is. */
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

/* "mean_sum", "d_weight_sum", after the value made from it; "sum_of" if that name says so already.
 */
static const char *accumulator(const struct kernel_builder *k, int n)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  const struct op *op = body_op(k->group, n);
  const char *how = word[reduction_of(op)];
  const char *stored = argument_if_any(k, op->out), *what = stored ? stored : op_name(op);
  return strstr(what, how) ? text("%s_of", what) : text("%s_%s", what, how);
}

const char *result_name(struct kernel_builder *k, int n)
{
  const char *name = accumulator(k, n);
  int before = 0;
  for (int i = 0; i < n; i++)
    before += is_reduce(body_op(k->group, i)->kind) && !strcmp(accumulator(k, i), name);
  return free_name(k, before ? text("%s_%d", name, before + 1) : name);
}

const char *accumulator_type(const struct op *op)
{
  enum type type = type_reduced(op);
  if (reduction_of(op) == SUM)
    return !is_floating(type) ? "long" : has_blocks() ? "float" : "double";
  return type == BOOL ? "int" : is_floating(type) ? "float" : c_type(type);
}

void add_starts(struct code *c, struct kernel_builder *k, const bool *these)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    add_declaration(c, accumulator_type(op), result_name(k, n), word_expr(neutral_text(op)));
  }
}

void add_vector_starts(struct code *c, struct kernel_builder *k, const bool *these, int64_t several)
{
  bool vector = k->vectors.width > 1;
  const char *many = several > 1 ? text("[%d]", (int)several) : "";
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n] && is_reduce(body_op(k->group, n)->kind))
      add_declaration(c, vector ? vector_type(k, "float") : "float",
                      text("%s%s", result_name(k, n), many),
                      word_expr(vector || *many ? "{}" : "0"));
}

const struct expr *output_place(struct kernel_builder *k, int n)
{
  return output_element(k, body_op(k->group, n));
}

const struct expr *result_expr(struct kernel_builder *k, int n)
{
  return word_expr(result_name(k, n));
}

void add_terms(struct code *c, struct kernel_builder *k, const bool *these, place_of_term *place)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    const struct expr *term = element_expr(c, k, op);
    if (place == output_place && op->scalar != 1 && reduction_of(op) == SUM)
      term = sign_expr("*", float_factor(op->scalar), term);
    add_reduction(c, op, place(k, n), term);
  }
}

void add_combines(struct code *c, struct kernel_builder *k, const bool *these, int threads)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (these[n] && is_reduce(op->kind)) add_combine(c, op, result_expr(k, n), threads);
  }
}

/* ---------------------------------------------------------------- parts that threads go through */

static const char *parts_name(struct kernel_builder *k, int n)
{
  return free_name(k, text("%s_part", result_name(k, n)));
}

const struct expr *part_of_result(struct kernel_builder *k, int n, const struct expr *index)
{
  const struct expr *part = expr("%s[part]", parts_name(k, n));
  return index ? index_expr(part, index) : part;
}

void declare_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   int64_t columns)
{
  const char *many = columns ? text("[%d]", (int)columns) : "";
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      add_declaration(c, columns ? "float" : accumulator_type(body_op(k->group, n)),
                      text("%s[%d]%s", parts_name(k, n), (int)parts, many), NULL);
}

void add_part_results(struct code *c, struct kernel_builder *k, const bool *these)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n]) add_assignment(c, part_of_result(k, n, NULL), result_expr(k, n));
}

void combine_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   const struct expr *index)
{
  add_starts(c, k, these);
  struct code *in = add_for(c, "int", "part", int_expr(0), int_expr(parts))->body;
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      add_reduction(in, body_op(k->group, n), result_expr(k, n), part_of_result(k, n, index));
}

/* -------------------------------------------------------------------------------------- results */

const struct expr *stored_result(const struct op *op, const char *name)
{
  enum type type = graph->value[op->out].type;
  const struct expr *result = word_expr(name);
  if (reduction_of(op) == SUM) {
    const char *cast = text("(%s)", type == BF16 ? "float" : c_type(type));
    bool floats = has_blocks() && is_float_sum(op); /* on the CPU the sum is a double */
    if (op->scalar != 1)
      result =
          sign_expr("*", result, floats ? float_factor(op->scalar) : double_factor(op->scalar));
    if (!floats) result = prefix_expr(cast, result);
  } else if (type_reduced(op) == BOOL) {
    result = prefix_expr("(unsigned char)", result);
  }
  return type == BF16 ? call_expr("float_to_bf16", &result, 1) : result;
}

void add_results(struct code *c, struct kernel_builder *k, const bool *these)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    const struct expr *result = stored_result(op, result_name(k, n));
    if (is_read_by_rows(k, op->out)) result = named_element(c, k, op, result);
    if (graph->value[op->out].stored)
      add_assignment(add_condition(c, k->guard), output_element(k, op), result);
  }
}
