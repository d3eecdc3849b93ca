/* row_exchange.c: the call of a collective that moves rows by expert (ir/rows.c). How many rows
   there are is known when it runs; the text has the experts of each rank, and the sizes of a row.
 */
#include "emit/emit.h"

#include <inttypes.h>

/* By library. Without streams the library counts the rows for each rank; else the host does not
   know them, and each pair of ranks exchanges the most that there can be. */
static const char *const form[LIBRARIES] = {
    [LIBRARY_MPI] = "{\n    static const int first[] = {$first$};\n"
                    "    COLLECTIVE($line$, $call$($out$, $room$, $work$, $in$, $counts$, first, "
                    "$width$, $type$, $group$));\n  }",
    [LIBRARY_NCCL] =
        "{\n    static const int first[] = {$first$};\n"
        "    const struct row_slots slots = {$ranks$, $here$, first, $most$, $width$ * $bytes$};\n"
        "    COLLECTIVE($line$, $stream$, $call$($out$, $room$, $work$, $in$, $counts$, slots, "
        "$group$, $stream$));\n  }"};

/* The first expert of each member, and how many there are in all. */
static char *first_experts(const struct op *op, int64_t experts)
{
  struct buffer b = {0};
  int n = group_size(op->group);
  for (int r = 0; r <= n; r++) {
    int64_t first = (experts + n - 1) / n * r;
    put(&b, "%s%" PRId64, r ? ", " : "", first < experts ? first : experts);
  }
  return b.text;
}

static const char *pointer(int value)
{
  const char *name = c_name(value);
  return name ? name : "NULL";
}

char *row_exchange_text(const struct op *op, int rank)
{
  const struct value *in = &graph->value[op->in[0]];
  bool to_experts = op->dim_to == 0;
  int tokens = to_experts ? op->in[0] : op->out, ranks = group_size(op->group);
  int64_t experts = in->shape.size[0], most = elements(local_shape(tokens, 0));
  struct shape here = local_shape(tokens, rank);
  int64_t width = here.size[here.ndim - 1];
  check_count(op->line, ranks * most);
  return fill(form[target->library], "first", first_experts(op, experts), "call",
              to_experts ? "rows_to_experts" : "rows_to_tokens", "out", pointer(op->out), "room",
              pointer(op->out + 1), "work", pointer(op->out + 2), "in", pointer(op->in[0]),
              "counts", pointer(op->in[1]), "width", text("%" PRId64, width), "bytes",
              text("%" PRId64, type_bytes(in->type)), "type", library_type(in->type), "ranks",
              text("%d", ranks), "here",
              text("%" PRId64, chunk_size(experts, ranks, place_in_group(op->group, rank))), "most",
              text("%" PRId64, most / width), "group", group_name(op->group), "line",
              plan_line_text(op->line), "stream", collective_stream(op), NULL);
}
