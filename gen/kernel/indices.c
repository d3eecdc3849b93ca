/* indices.c: indices of operands' elements, for the loops over a kernel's space.

   Takes   a fused operation; the letters of the operations in it (rule.c).
   Leaves  the loops over a rank's part; indices in terms of the loops' variables.

   An operand's letters may be in any order, and some may be missing: each of its dimensions runs
   along one of the space with a stride of its own, or along none if it is broadcast. The loops
   follow the memory order of the value that is written. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

void declare_variables(struct code *c, const struct loops *loops, bool reduced,
                       const struct expr *number, int step, bool lazy)
{
  int64_t below = count_of(loops, reduced) / step;
  bool first = true;
  for (int n = 0; n < loops->n; n++) {
    if (loops->reduced[n] != reduced) continue;
    bool innermost = n == innermost_loop(loops);
    int64_t size = loops->size[n] / (innermost ? step : 1);
    below /= size;
    const struct expr *high = times_expr(number, "/", below);
    const struct expr *value = first ? high : expr("%e % %ld", high, size);
    if (innermost) value = times_expr(value, "*", step);
    if (size == 1) value = word_expr("0");
    first = false;
    (lazy ? add_lazy_declaration : add_declaration)(c, text("const %s", loops->type),
                                                    loop_variable[n], value);
  }
}

static const struct expr *loop_index(const struct loops *loops, int n)
{
  return loops->inner && n == innermost_loop(loops) ? loops->inner : word_expr(loop_variable[n]);
}

/* -------------------------------------------------------------------------------------- indices */

const struct expr *variable_of(const struct loops *loops, int dim)
{
  int n = dim == NONE ? NONE : loop_that_ends(loops, dim);
  return n == NONE ? word_expr("0") : loop_index(loops, n);
}

const char *innermost_variable(const struct loops *loops)
{
  return loop_variable[innermost_loop(loops)];
}

const struct expr *index_of(const struct loops *loops, const struct operand *operand, int dim,
                            const struct expr *at)
{
  const struct expr *sum = NULL;
  for (int place = 0; place < operand->ndim; place++) {
    int d = dimension_at(operand->value, place);
    int n = operand->along[d] == NONE ? NONE : loop_that_ends(loops, operand->along[d]);
    if (d == dim && !is_zero_expr(at))
      sum = plus_expr(sum, "+", times_expr(at, "*", operand->stride[d]));
    else if (d != dim && n != NONE)
      sum = plus_expr(sum, "+", times_expr(loop_index(loops, n), "*", operand->stride[d]));
  }
  return sum ? sum : word_expr("0");
}

const struct expr *row_index(const struct loops *loops)
{
  const struct expr *sum = NULL;
  int64_t stride = row_elements(loops);
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    stride /= loops->size[n];
    sum = plus_expr(sum, "+", times_expr(word_expr(loop_variable[n]), "*", stride));
  }
  return sum ? sum : word_expr("0");
}

/* ------------------------------------------------------------- where a part begins in the whole */

const char *coordinate_text(int mesh_dim)
{
  return graph->mesh.microbatch_axis[mesh_dim] ? "microbatch"
                                               : text("rank->coordinate[%d]", mesh_dim);
}

char *begin_text(const struct layout *layout, const int *cut, int ncut, int64_t n, int64_t factor)
{
  struct buffer b = {0};
  const char *size = NULL; /* the program knows it */
  for (int i = 0; i < ncut; i++) {
    int parts = graph->mesh.size[cut[i]];
    int64_t chunk = (n + parts - 1) / parts;
    /* The number of the part that the rank holds. */
    int k = graph->mesh.size[cut[i]];
    const char *own = coordinate_text(cut[i]);
    const char *part = layout->on[cut[i]].shift ? text("((%s + %d) %% %d)", own,
                                                       k - (int)layout->on[cut[i]].shift % k, k)
                                                : own;
    const char *split = graph->mesh.microbatch_axis[cut[i]] ? "split" : "part";
    bool is_even = n % parts == 0;
    if (b.length) put(&b, " + ");
    if (!size && (is_even || (i + 1 == ncut && !graph->mesh.microbatch_axis[cut[i]]))) {
      put(&b, "%" PRId64 "L * %s", chunk * factor, part);
      n = chunk;
      continue;
    }
    if (!size) size = text("%" PRId64, n);
    if (factor != 1) put(&b, "%" PRId64 " * ", factor);
    put(&b, "%s_first(%s, %d, %s)", split, size, parts, part);
    size = text("%s_size(%s, %d, %s)", split, size, parts, part);
  }
  return b.text ? b.text : "0";
}

/* Adds `factor` times the start of a rank's part in dimension `dim`. */
static void put_first_index(struct buffer *b, int value, int dim, int64_t factor)
{
  const struct value *v = &graph->value[value];
  int cut[MAX_MESH], ncut = cuts_of(&graph->mesh, v->layout, dim, cut);
  if (is_strided(&graph->mesh, v->layout, dim))
    bug_at("emit", v->op, "a kernel asks where a strided part begins");
  if (!ncut) return;
  const char *begin = begin_text(&v->layout, cut, ncut, v->shape.size[dim], factor);
  put(b, "%s%s", b->length ? " + " : "", begin);
}

char *first_text(int value, int dim)
{
  struct buffer b = {0};
  put_first_index(&b, value, dim, 1);
  return b.length ? b.text : "0";
}

char *flat_first_text(int value)
{
  struct buffer b = {0};
  const struct shape *whole = &graph->value[value].shape;
  int64_t stride = elements(*whole);
  for (int d = 0; d < whole->ndim; d++) {
    stride /= whole->size[d];
    put_first_index(&b, value, d, stride);
  }
  return b.length ? b.text : "0";
}
