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
    add_declaration(c, accumulator_type(op), result_name(k, n), neutral_text(op));
  }
}

void add_vector_starts(struct code *c, struct kernel_builder *k, const bool *these, int64_t several)
{
  bool vector = k->vectors.width > 1;
  const char *many = several > 1 ? text("[%d]", (int)several) : "";
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n] && is_reduce(body_op(k->group, n)->kind))
      add_declaration(c, vector ? vector_type(k, "float") : "float",
                      text("%s%s", result_name(k, n), many), vector || *many ? "{}" : "0");
}

const char *output_place(struct kernel_builder *k, int n)
{
  return output_text(k, body_op(k->group, n));
}

void add_terms(struct code *c, struct kernel_builder *k, const bool *these, place_of_term *place)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    char *term = element_text(c, k, op);
    if (place == output_place && op->scalar != 1 && reduction_of(op) == SUM)
      term = text("%s * %s", float_factor(op->scalar), in_brackets(term));
    add_reduction(c, op, place(k, n), term);
  }
}

void add_combines(struct code *c, struct kernel_builder *k, const bool *these, int threads)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (these[n] && is_reduce(op->kind)) add_combine(c, op, result_name(k, n), threads);
  }
}

/* ---------------------------------------------------------------- parts that threads go through */

const char *part_text(struct kernel_builder *k, int n, const char *index)
{
  const char *name = free_name(k, text("%s_part", result_name(k, n)));
  return text("%s[part]%s", name, *index ? text("[%s]", index) : "");
}

void declare_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   int64_t columns)
{
  const char *many = columns ? text("[%d]", (int)columns) : "";
  for (int n = 0; n < k->group->nbody; n++) {
    if (!these[n]) continue;
    const char *name = part_text(k, n, ""), *type = accumulator_type(body_op(k->group, n));
    name = text("%.*s[%d]%s", (int)strcspn(name, "["), name, (int)parts, many);
    add_declaration(c, columns ? "float" : type, name, NULL);
  }
}

void add_part_results(struct code *c, struct kernel_builder *k, const bool *these)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n]) add_assignment(c, part_text(k, n, ""), result_name(k, n));
}

void combine_parts(struct code *c, struct kernel_builder *k, const bool *these, int64_t parts,
                   const char *index)
{
  add_starts(c, k, these);
  struct code *in = add_for(c, "int", "part", "0", text("%d", (int)parts))->body;
  for (int n = 0; n < k->group->nbody; n++)
    if (these[n])
      add_reduction(in, body_op(k->group, n), result_name(k, n), part_text(k, n, index));
}

/* -------------------------------------------------------------------------------------- results */

char *result_text(const struct op *op, const char *name)
{
  enum type type = graph->value[op->out].type;
  char *result = copy_text(name);
  if (reduction_of(op) == SUM) {
    const char *to = type == BF16 ? "float" : c_type(type);
    bool floats = has_blocks() && is_float_sum(op); /* on the CPU the sum is a double */
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

void add_results(struct code *c, struct kernel_builder *k, const bool *these)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!these[n] || !is_reduce(op->kind)) continue;
    const char *result = result_text(op, result_name(k, n));
    if (is_read_by_rows(k, op->out)) result = named_element(c, k, op, result);
    if (graph->value[op->out].stored)
      add_assignment(add_condition(c, k->guard), output_text(k, op), result);
  }
}
