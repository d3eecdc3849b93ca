/* print_kernel.c: the code of a kernel as C or CUDA. They differ in the marks of loops: OpenMP's
   pragmas, or unrolling; the code has the work of a GPU's blocks and threads already. */
#include "kernel/kernel.h"

#include <string.h>

/* "to += term;": the term becomes a part of a reduction. */
static char *term_text(const struct statement *n)
{
  bool floats = is_floating(n->of);
  if (n->how == SUM) return text("%s += %s;", n->to, n->value);
  if (floats)
    return text("%s = %s(%s, %s);", n->to, n->how == MAX ? "larger" : "smaller", n->to, n->value);
  return text("if (%s %c %s) %s = %s;", n->value, n->how == MAX ? '>' : '<', n->to, n->to,
              n->value);
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
    if (n->kind == REDUCE && !strchr(n->to, '[')) put(b, " reduction(%s : %s)", how, n->to);
    if (n->body) put_clauses(b, n->body);
  }
}

static void put_marks(struct buffer *b, const struct statement *loop)
{
  if (!loop->marks) return;
  put(b, "#pragma %s", loop->marks & UNROLLED ? "unroll" : "omp");
  if (loop->marks & PARALLEL) put(b, " parallel for");
  if (loop->marks & VECTOR) put(b, " simd");
  if (loop->marks & PARALLEL) put(b, " schedule(static)");
  if (loop->collapse > 1) put(b, " collapse(%d)", loop->collapse);
  if (loop->marks & VECTOR) put_clauses(b, loop->body);
  put(b, "\n");
}

/* "warp_sum(x)", "block_max<512>(x)" */
static char *combined_text(const struct statement *n)
{
  static const char *const word[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min"};
  const char *group = n->threads == WARP ? "warp" : "block";
  const char *many = n->threads == WARP || n->threads == BLOCK ? "" : text("<%d>", n->threads);
  return text("%s = %s_%s%s(%s);", n->to, group, word[n->how], many, n->value);
}

static void print_statement(struct buffer *b, const struct statement *n, int indent)
{
  const char *step = n->step ? text(" += %s", n->step) : "++";
  switch (n->kind) {
  case DECLARE: {
    const char *value = n->value ? text(" = %s", n->value) : "";
    put_statement(b, indent, text("%s %s%s;", n->type, n->to, value));
    break;
  }
  case SET:
    put_statement(b, indent, text("%s = %s;", n->to, n->value));
    break;
  case REDUCE:
    put(b, "%*s%s\n", indent, "", term_text(n));
    break;
  case COMBINE:
    put(b, "%*s%s\n", indent, "", combined_text(n));
    break;
  case RUN:
    put_statement(b, indent, text("%s;", n->value));
    break;
  case WHEN:
    put(b, "%*sif (%s) {\n", indent, "", n->value);
    break;
  case LOOP:
    put_marks(b, n);
    put(b, "%*sfor (%s %s = %s; %s < %s; %s%s) {\n", indent, "", n->type, n->to, n->value, n->to,
        n->below, n->to, step);
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
