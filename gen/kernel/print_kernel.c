/* print_kernel.c: the code of a kernel as C or CUDA. They differ in the marks of loops: OpenMP's
   pragmas, or unrolling; the code has the work of a GPU's blocks and threads already. */
#include "kernel/kernel.h"

#include <string.h>

/* "to += term;": the term becomes a part of a reduction. */
static char *term_text(const struct statement *n)
{
  const char *to = expr_text(n->to), *value = expr_text(n->value);
  if (n->how == SUM) return text("%s += %s;", to, value);
  if (is_floating(n->of))
    return text("%s = %s(%s, %s);", to, n->how == MAX ? "larger" : "smaller", to, value);
  return text("if (%s) %s = %s;", expr_text(sign_expr(n->how == MAX ? ">" : "<", n->value, n->to)),
              to, value);
}

/* "reduction(+ : sum_of)" for each variable that the loop reduces into: each lane has a part of it.
 */
static void put_clauses(struct buffer *b, const struct code *body)
{
  for (int i = 0; i < body->n; i++) {
    const struct statement *n = &body->list[i];
    bool floats = is_floating(n->of);
    const char *how = n->how == SUM   ? "+"
                      : n->how == MAX ? (floats ? "larger" : "max")
                                      : (floats ? "smaller" : "min");
    if (n->kind == REDUCE && n->to->kind == NAME_EXPR)
      put(b, " reduction(%s : %s)", how, n->to->word);
    if (n->body) put_clauses(b, n->body);
  }
}

/* "warp_sum(x)", "block_max<512>(x)" */
static char *combined_text(const struct statement *n)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  const char *group = n->threads == WARP ? "warp" : "block";
  const char *many = n->threads == WARP || n->threads == BLOCK ? "" : text("<%d>", n->threads);
  return text("%s = %s_%s%s(%s);", expr_text(n->to), group, word[n->how], many,
              expr_text(n->value));
}

static void print_statement(struct buffer *b, const struct statement *n, int indent)
{
  const char *value = n->value ? expr_text(n->value) : NULL;
  switch (n->kind) {
  case DECLARE:
    put_statement(b, indent,
                  value ? text("%s %s = %s;", n->type, n->name, value)
                        : text("%s %s;", n->type, n->name));
    break;
  case SET:
    put_statement(b, indent, text("%s = %s;", expr_text(n->to), value));
    break;
  case REDUCE:
    put(b, "%*s%s\n", indent, "", term_text(n));
    break;
  case COMBINE:
    put(b, "%*s%s\n", indent, "", combined_text(n));
    break;
  case RUN:
    put_statement(b, indent, text("%s;", value));
    break;
  case WHEN:
    put(b, "%*sif (%s) {\n", indent, "", value);
    break;
  case LOOP:
    if (n->marks) {
      put(b, "#pragma %s", n->marks & UNROLLED ? "unroll" : "omp");
      if (n->marks & PARALLEL) put(b, " parallel for");
      if (n->marks & VECTOR) put(b, " simd");
      if (n->marks & PARALLEL) put(b, " schedule(static)");
      if (n->collapse > 1) put(b, " collapse(%d)", n->collapse);
      if (n->marks & VECTOR) put_clauses(b, n->body);
      put(b, "\n");
    }
    put(b, "%*sfor (%s %s = %s; %s < %s; %s%s) {\n", indent, "", n->type, n->name, value, n->name,
        expr_text(n->below), n->name, n->step ? text(" += %s", expr_text(n->step)) : "++");
    break;
  }
}

void print_code(struct buffer *b, const struct code *c, int indent)
{
  for (int i = 0; i < c->n; i++) {
    print_statement(b, &c->list[i], indent);
    if (!c->list[i].body) continue;
    print_code(b, c->list[i].body, indent + 2);
    put(b, "%*s}\n", indent, "");
  }
}
