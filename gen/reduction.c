/* reduction.c: the reductions in a kernel, as statements before, in and after its loops.

   A bfloat16 is reduced as a float, and rounded at the end. Sums of floats are added up in double
   on the CPU, in float by each thread on CUDA; sums of whole numbers in long. The greatest and the
   least number is NaN where one of them is. */
#include "kernel.h"

#include <string.h>

static const struct op *inner(const struct op *group, int k)
{
  return &graph->op[group->body[k]];
}

bool has_reductions(const struct op *group)
{
  for (int k = 0; k < group->nbody; k++)
    if (is_reduce(inner(group, k)->kind)) return true;
  return false;
}

static enum reduction reduction_of(const struct op *op)
{
  struct letters l;
  op_letters(op, &l);
  return l.reduction[0];
}

static enum type type_reduced(const struct op *op)
{
  return graph->value[op->in[0]].type;
}

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

/* The variable that a reduction's result is kept in. */
static const char *result_name(const struct op *group, int k)
{
  const char *kind = op_name(inner(group, k));
  for (int i = 0; i < k; i++)
    if (is_reduce(inner(group, i)->kind)) return text("%s_of_%d", kind, k);
  return text("%s_of", kind);
}

static const char *kept_type(const struct op *op, const char *float_type)
{
  enum type type = type_reduced(op);
  if (reduction_of(op) == SUM) return is_floating(type) ? float_type : "long";
  return type == BOOL ? "int" : is_floating(type) ? "float" : c_type(type);
}

void put_starts(struct buffer *b, const struct op *group, const char *float_type, int indent)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = inner(group, k);
    if (!is_reduce(op->kind)) continue;
    put(b, "%*s%s %s = %s;\n", indent, "", kept_type(op, float_type), result_name(group, k),
        neutral_text(op));
  }
}

/* The statement that takes one more term into `to`. */
static char *term_text(const struct op *op, const char *to, const char *term)
{
  enum reduction reduction = reduction_of(op);
  enum type type = type_reduced(op);
  if (reduction == SUM) return text("%s += %s;", to, term);
  if (is_floating(type))
    return text("%s = %s(%s, %s);", to, reduction == MAX ? "larger" : "smaller", to, term);
  return text("if (%s %c %s) %s = %s;", term, reduction == MAX ? '>' : '<', to, to, term);
}

void put_terms(struct buffer *b, struct draft *k, int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = inner(k->group, n);
    if (!is_reduce(op->kind)) continue;
    const char *element = element_text(b, k, op, indent);
    put(b, "%*s%s\n", indent, "", term_text(op, result_name(k->group, n), element));
  }
}

void put_terms_in_place(struct buffer *b, struct draft *k, int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = inner(k->group, n);
    if (!is_reduce(op->kind)) continue;
    char *element = element_text(b, k, op, indent);
    if (op->scalar != 1 && reduction_of(op) == SUM)
      element = text("%s * %s", number_text(op->scalar), element);
    put(b, "%*s%s\n", indent, "", term_text(op, output_text(k, op), element));
  }
}

void put_block_results(struct buffer *b, const struct op *group, int indent)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  for (int k = 0; k < group->nbody; k++) {
    if (!is_reduce(inner(group, k)->kind)) continue;
    const char *name = result_name(group, k);
    put(b, "%*s%s = block_%s(%s);\n", indent, "", name, word[reduction_of(inner(group, k))], name);
  }
}

/* The result as it is stored. */
static char *result_text(const struct op *op, const char *name)
{
  enum type type = graph->value[op->out].type;
  char *result = copy_text(name);
  if (reduction_of(op) == SUM) {
    char *factor = op->scalar == 1 ? "" : text(" * %s", double_text(op->scalar));
    result = text("(%s)(%s%s)", type == BF16 ? "float" : c_type(type), name, factor);
  } else if (type_reduced(op) == BOOL) {
    result = text("(unsigned char)%s", name);
  }
  return type == BF16 ? text("float_to_bf16(%s)", result) : result;
}

void put_results(struct buffer *b, const struct draft *k, int indent)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = inner(k->group, n);
    if (!is_reduce(op->kind)) continue;
    put(b, "%*s%s = %s;\n", indent, "", output_text(k, op),
        result_text(op, result_name(k->group, n)));
  }
}
