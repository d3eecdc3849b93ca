/* row_exchange.c: the calls for rows by expert (ir/rows.c): the collective that moves them, and the
   count that is clamped to their capacity. The number of rows is known only at run time; the text
   has the experts of each rank, the sizes of a row, and the place that records rows beyond the
   capacity: row_bound[]. */
#include "emit/emit.h"

#include <inttypes.h>
#include <string.h>

/* By library. Without streams the library counts the rows for each rank. Otherwise the host does
   not know the counts, and each pair of ranks exchanges a slot of a size that is known in
   advance. */
static const char *const form[LIBRARIES] = {
    [LIBRARY_MPI] = "{\n    static const int first[] = {$first$};\n$rooms$"
                    "    const struct row_ranks ranks = {.first = first, $limits$};\n"
                    "    COLLECTIVE($line$, $call$($out$, $room$, $work$, $in$, $counts$, &ranks, "
                    "$width$ * $bytes$, $group$));\n  }",
    [LIBRARY_NCCL] = "{\n    static const int first[] = {$first$};\n"
                     "    const struct row_slots slots = {.ranks = $ranks$, .here = $here$, "
                     ".first = first, .most = $most$, .bytes = $width$ * $bytes$, "
                     ".room = $rows$, $limits$};\n"
                     "    COLLECTIVE($line$, $stream$, $call$($out$, $room$, $work$, $in$, "
                     "$counts$, slots, $group$, $stream$));\n  }"};

/* ------------------------------------------------------------------------------ records of rows */

/* The list of modules for which the operation's function runs, or NONE. */
static int list_around(const struct op *op)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (f->count == 1 || runs_at(f, (int)(op - graph->op)) == NONE) continue;
    int loop = loop_of(i);
    for (int k = 0; k < graph->nop; k++)
      if (graph->op[k].kind == OP_loop && graph->op[k].function == loop) return graph->op[k].module;
  }
  return NONE;
}

/* The number of the module in its list, in the function: "l + 3" where the loop begins with 3. */
static const char *module_number(const struct op *op)
{
  int list = list_around(op), first = list == NONE ? NONE : element_within(op->module, list);
  if (first == NONE) return "0";
  return place_in_list(first) ? text("l + %d", place_in_list(first)) : "l";
}

/* "layers.*.mlp", of all modules for which it runs; in the root module the name of its count. */
static const char *path_of_all(const struct op *op)
{
  int list = list_around(op), first = list == NONE ? NONE : element_within(op->module, list);
  const char *path = graph->module[op->module].path;
  if (!*path) return value_name(op->in[1]);
  if (first == NONE) return path;
  return text("%.*s*%s",
              (int)(strlen(graph->module[first].path) - strlen(graph->module[first].name)), path,
              path + strlen(graph->module[first].path));
}

/* "{.at = &m->noted_rows, .bound = 2, .module = l}": the place where the operation records rows,
   the index of their bound for the current micro-batches, and the module. Rows that go back to the
   tokens were recorded on their way to the experts. */
static const char *note_text(const struct op *op)
{
  struct list notes = row_notes();
  int first = notes.n * size_of_microbatch(sizes_of_step(), graph->mesh.now);
  for (int i = 0; i < notes.n; i++)
    if (notes.at[i] == (int)(op - graph->op))
      return text("{.at = &m->noted_rows, .bound = %d, .module = %s}", first + i,
                  module_number(op));
  return text("{.at = %s, .bound = 0, .module = 0}",
              has_less_room(rows_of_experts(op)) ? "&m->noted_rows" : "NULL");
}

/* The rank's capacity in rows as one with experts. */
static int64_t room_of_experts(const struct op *exchange, int rank)
{
  return room_for_rows(rows_of_experts(exchange), rank);
}

char *row_bounds_text(int rank)
{
  struct buffer b = {0};
  struct list notes = row_notes();
  if (!has_row_bounds()) return "";
  if (!notes.n) return "\nstatic const struct row_bounds row_bounds = {NULL, -1};\n";
  put(&b, "\n// Where a rank may get more rows of experts than it has room for. A row: the module, "
          "its line in\n"
          "// the plan, the bound, the rows for which there is room, and whether they are those "
          "for one\n"
          "// rank, or all of this rank.\n"
          "static const struct row_bound row_bound[] = {\n");
  for (int size = NONE; next_size(sizes_of_step(), &size);)
    for (int i = 0; i < notes.n; i++) {
      const struct op *op = &graph->op[notes.at[i]];
      bool holds = op->kind == OP_clamp_to_capacity,
           slot = op->kind == OP_exchange_rows && target->streams;
      int made = holds ? op->in[1] : graph->value[op->in[0]].counts;
      int64_t room = holds  ? room_of_count(op, rank)
                     : slot ? rows_of_slot(op->in[0], group_size(op->group))
                            : room_of_experts(op, rank);
      put(&b, "    {%s, %d, %s, %" PRId64 ", %s},\n", string_text(path_of_all(op)),
          graph->op[graph->value[made].op].line, double_text(bound_of_count(made)), room,
          slot ? "true" : "false");
    }
  put(&b, "};\nstatic const struct row_bounds row_bounds = {row_bound, "
          "offsetof(struct memory, noted_rows)};\n");
  return b.text;
}

char *clamp_to_capacity_text(const struct op *op, int rank)
{
  if (!c_name(op->out)) return "";
  return text("{\n    const struct row_note noted = %s;\n"
              "    clamp_to_capacity(%s, %s, /* experts */ %" PRId64 ", /* room */ %" PRId64
              ", noted%s);\n  }",
              note_text(op), c_name(op->out), c_name(op->in[0]), local_shape(op->out, rank).size[0],
              room_of_count(op, rank), target->streams ? ", stream" : "");
}

/* ------------------------------------------------------------------------------- the collective */

static const char *rows_pointer(int value)
{
  const char *name = c_name(value);
  return name ? name : "NULL";
}

/* Rows are counted by an int, and so are the bytes of one. */
static void check_row_counts(const struct op *op, int tokens)
{
  struct shape here = local_shape(tokens, 0);
  int64_t bytes = here.size[here.ndim - 1] * type_bytes(graph->value[tokens].type);
  int64_t rows = group_size(op->group) * room_for_rows(tokens, 0);
  if (rows > INT32_MAX || bytes > INT32_MAX)
    plan_error(op->line,
               "%" PRId64 " rows by expert may come to a rank, of %" PRId64
               " bytes each: more of either than %d cannot be counted",
               rows, bytes, INT32_MAX);
}

char *row_exchange_text(const struct op *op, int rank)
{
  const struct value *in = &graph->value[op->in[0]];
  bool to_experts = op->dim_to == 0;
  int tokens = to_experts ? op->in[0] : op->out, ranks = group_size(op->group);
  int64_t experts = in->shape.size[0];
  struct shape here = local_shape(tokens, rank);
  int64_t width = here.size[here.ndim - 1];
  const char *rooms = "", *note = note_text(op);
  struct buffer first = {0}, room = {0}; /* the first expert of each member, and the total */
  int *member = alloc((size_t)ranks * sizeof *member);
  check_row_counts(op, tokens);
  group_members(op->group, rank, member);
  for (int r = 0; r <= ranks; r++) {
    int64_t begin = chunk_size(experts, ranks, 0) * r;
    put(&first, "%s%" PRId64, r ? ", " : "", begin < experts ? begin : experts);
    if (r < ranks) put(&room, "%s%" PRId64, r ? ", " : "", room_of_experts(op, member[r]));
  }
  if (has_less_room(rows_of_experts(op))) /* some member's capacity is below the possible number of
                                             rows */
    rooms = text("    static const long room[] = {%s};\n", room.text);
  return fill(form[target->library], "first", first.text, "call",
              to_experts ? "rows_to_experts" : "rows_to_tokens", "out", rows_pointer(op->out),
              "room", rows_pointer(op->out + 1), "work", rows_pointer(op->out + 2), "in",
              rows_pointer(op->in[0]), "counts", rows_pointer(op->in[1]), "width",
              text("%" PRId64, width), "bytes", text("%" PRId64, type_bytes(in->type)), "ranks",
              text("%d", ranks), "here",
              text("%" PRId64, chunk_size(experts, ranks, place_in_group(op->group, rank))), "most",
              text("%" PRId64, rows_of_slot(tokens, ranks)), "rows",
              text("%" PRId64, room_of_experts(op, rank)), "rooms", rooms, "limits",
              text("%s.note = %s", *rooms && !target->streams ? ".room = room, " : "", note),
              "group", group_name(op->group), "line", plan_line_text(op->line), "stream",
              collective_stream(op), NULL);
}
