/* partial_sums.c: sums that the blocks of a CUDA kernel make in parts.

   Blocks have no fixed order in which they could add to one number. So each stores its part of
   every sum, part after part, and a second kernel, made from add_parts.cu, adds them in
   the order of the parts. The parts are in scratch of struct memory, which every kernel reuses:
   kernels run one after the other. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

/* The statement that adds the parts, and its kernel. */
static char *adding_call(const struct kernel_builder *k, int n, int64_t parts, const char *from)
{
  const struct op *op = &graph->op[k->group->body[n]];
  int64_t sums = partial_sums_of(k, n);
  const char *result = expr_text(stored_result(op, "sum")),
             *type = c_type(graph->value[op->out].type);
  char *all = fill(embedded_template("add_parts.cu"), "n", text("%" PRId64, sums), "parts",
                   text("%" PRId64, parts), "type", type, "result", result, "at",
                   sums == 1 ? "part" : text("part * %" PRId64 " + i", sums), NULL);
  const char *head = text("__global__ void $name$(%s *__restrict__ sums, const float "
                          "*__restrict__ parts)",
                          type);
  size_t comment = strcspn(all, "\n") + 1;
  const char *name = add_kernel(text("add_parts_%" PRId64 "x%" PRId64, parts, sums), head,
                                text("%.*s", (int)comment, all), all + comment, true);
  return text("LAUNCH(%s, %" PRId64 ", 1024, stream)(%s, %s);", name, (sums + 31) / 32,
              c_name(op->out), from);
}

const char *add_parts(struct kernel_builder *k, int n, int64_t parts)
{
  struct launch *launch = k->launch;
  int64_t before = 0;
  for (int i = 0; i < n; i++)
    if (ends_in_parts(k, i)) before += sum_room(partial_sums_of(k, i), parts);
  const char *place = before ? text("m->parts + %" PRId64, before) : "m->parts";
  const char *call = adding_call(k, n, parts, place);
  launch->then = launch->then ? text("%s\n  %s", launch->then, call) : copy_text(call);
  const char *sums = argument_name(k, graph->op[k->group->body[n]].out);
  return add_extra(k, "float *__restrict__", text("%s_parts", sums), place);
}

void store_part(struct code *c, struct kernel_builder *k, int n, const char *parts,
                const struct expr *start, const struct expr *sum)
{
  struct operand operand = sum_operand(k, n);
  int width = k->vectors.width, last = innermost_loop(&k->loops);
  const struct expr *at = place_after(start, index_of(&k->loops, &operand, NONE, NULL));
  if (width == 1) {
    add_assignment(c, expr("%s[%e]", parts, at), sum);
  } else if (stride_along(&k->loops, &operand, last) == 1) {
    add_statement(c, expr("store(%e, %e)", place_after(word_expr(parts), at), sum));
  } else { /* the sums are not contiguous */
    k->loops.inner = expr("%s + v", loop_variable[last]);
    at = place_after(start, index_of(&k->loops, &operand, NONE, NULL));
    k->loops.inner = NULL;
    add_assignment(add_for(c, "int", "v", int_expr(0), int_expr(width))->body,
                   expr("%s[%e]", parts, at), expr("%e[v]", sum));
  }
}
