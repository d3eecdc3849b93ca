/* describe.c: the comment above a statement. */
#include "emit/emit.h"

static char *shown_layout(int value)
{
  return holds_pieces(value) ? copy_text("pieces") : layout_text(graph->value[value].layout);
}

char *layouts_text(const struct op *op)
{
  struct buffer b = {0};
  const struct move *m = op->kind == OP_exchange ? &graph->exchange[op->exchange].move : NULL;
  if (m) return text("%s -> %s", layout_text(m->from), layout_text(m->to));
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int i = 0, n = op_reads(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", shown_layout(list[i]));
  put(&b, "%s-> ", b.length ? " " : "");
  for (int i = 0, n = op_writes(op, list); i < n; i++)
    put(&b, "%s%s", i ? ", " : "", shown_layout(list[i]));
  return b.text;
}

static char *where(int line)
{
  return line > 0 ? place_shown(line) : copy_text(plan_shown());
}

/* "plans/toy.lua:14, 34": the plan's lines of the operations of a kernel. */
static char *lines_of(const struct op *op)
{
  if (!op_row[op->kind].composed) return where(op->line);
  struct buffer b = {0};
  int last = 0;
  for (int k = 0; k < op->nbody; k++) {
    int line = graph->op[op->body[k]].line;
    bool is_shown = false;
    for (int i = 0; i < k; i++) is_shown |= graph->op[op->body[i]].line == line;
    if (is_shown) continue;
    bool same_file = b.length && line / LINES_OF_FILE == last / LINES_OF_FILE;
    put(&b, "%s%s", b.length ? ", " : "",
        same_file ? text("%d", line % LINES_OF_FILE) : place_shown(line));
    last = line;
  }
  return b.text;
}

char *reduced_text(const struct op *op)
{
  if (op->out != NONE && graph->value[storage_of(op->out)].role == GRADIENT)
    return text("%d gradients", op->nbody);
  if (graph->value[op->in[0]].role == PARAMETER) return text("%d parameters", op->nbody);
  struct buffer b = {0};
  for (int k = 0; k < op->nbody; k++)
    put(&b, "%s%s", k ? ", " : "", shown_operand(graph->op[op->body[k]].in[0]));
  return b.text;
}

/* "S(0) R -> R R over a" */
static char *move_text(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  struct layout from = graph->value[in].layout, to = graph->value[op->out].layout;
  struct buffer over = {0};
  if (op->kind == OP_exchange) {
    from = graph->exchange[op->exchange].move.from;
    to = graph->exchange[op->exchange].move.to;
  }
  if (is_collective(op->kind)) put(&over, "%s", printable(graph->group[op->group].name));
  for (int d = 0; d < graph->mesh.ndim && !is_collective(op->kind); d++)
    if (!same_placement(from.on[d], to.on[d]) && graph->mesh.size[d] > 1)
      put(&over, "%s%s", over.length ? "_" : "", printable(graph->mesh.name[d]));
  return text("%s -> %s%s%s", layout_text(from), layout_text(to), over.length ? " over " : "",
              over.length ? over.text : "");
}

/* The purpose of a packing. */
static char *packing_purpose(const struct op *op)
{
  switch (op->kind) {
  case OP_pack:
    return text("its parts along dimension %d, contiguous, for %s", op->dim,
                printable(graph->group[op->group].name));
  case OP_unpack:
    return text("the parts of %s, joined along dimension %d",
                printable(graph->group[op->group].name), op->dim);
  case OP_pack_pieces:
    return copy_text("the pieces for other ranks, one after the other");
  default:
    return copy_text("the pieces of other ranks, each in its place");
  }
}

/* Whether the backward runs all of it again. */
static bool is_again(const struct op *op)
{
  for (int k = 0; k < op->nbody; k++)
    if (!graph->op[op->body[k]].recomputed) return false;
  return op->recomputed || op->nbody;
}

/* "On tp's stream, overlapping with d_wq, d_wk." */
static char *stream_text(const struct op *op)
{
  const char *group = printable(graph->group[op->group].name);
  const struct op *before = predecessor_of(op);
  if (before && before->group != op->group)
    group = text("%s's stream, after %s", group, printable(graph->group[before->group].name));
  const char *with = beside_text(op, shown_operand);
  if (!target->streams) return text("Overlapping with %s.", with);
  return text("On %s's stream, overlapping with %s.", group, with);
}

/* "wait for tp's stream", or, where there are no streams, "wait for the collective". */
static const char *wait_text(const struct op *begun)
{
  if (!target->streams) return "wait for the collective";
  return text("wait for %s's stream", printable(graph->group[begun->group].name));
}

/* "up.weight, ahead for the module that follows", "d_up.weight of the module before". */
static char *iteration_comment(const struct op *op)
{
  static const char *const nth[MOST_PREFETCHED] = {"first", "second", "third", "fourth"};
  const struct function *part = &graph->function[op->function];
  const struct op *last = &graph->op[part->op[part->nop - 1]];
  const struct op *c = last->kind == OP_await ? &graph->op[last->awaits] : last;
  const char *what =
      c->nbody ? reduced_text(c) : shown_operand(is_issued_by_part(c) ? c->in[0] : c->out);
  int module = module_of_iteration(part, iteration_called(op, 0));
  switch (op->iteration) {
  case FIRST_ITERATION:
    return text("%s of module %d, for the %s iteration", what, module, nth[op->first]);
  case LAST_ITERATION:
    return text("%s of module %d, of the last iteration: %s", what, module, wait_text(c));
  case IN_LAST_ITERATION:
    return text("%s of what follows the loop, in its last iteration", what);
  case NEXT_ITERATION:
    if (op->ahead > 1)
      return text("%s of module l %c %d, %d iterations ahead", what, part->upward ? '+' : '-',
                  op->ahead, op->ahead);
    return text("%s of the next module, one iteration ahead", what);
  default:
    return text("%s of the module before: %s", what, wait_text(c));
  }
}

/* "Chunk 1 of 4: ", counted from 1. */
static char *piece_text(const struct op *op)
{
  return op->pieces ? text("Chunk %d of %d: ", op->piece + 1, op->pieces) : copy_text("");
}

/* The facts that a reader needs before the statement of an operation. */
/* "layers.1: At(0) -> At(1) over pp, 64 bytes: to stage 1, plan.lua:4" */
static char *transfer_comment(const struct op *op)
{
  int value = op->kind == OP_send ? op->in[0] : op->out;
  const int64_t bytes = elements(local_shape(value, 0)) * type_bytes(graph->value[value].type);
  return text("%s: At(%d) -> At(%d) over %s, %s bytes: to stage %d, %s",
              printable(value_name(value)), coordinate_of_stage((int)op->number[1]),
              coordinate_of_stage((int)op->number[2]),
              printable(graph->mesh.name[graph->stages->mesh_dim]), grouped(bytes),
              (int)op->number[2], where(op->line));
}

char *comment_text(const struct op *op)
{
  if (op->kind == OP_buffer)
    return text("%d buffer%s at once, contiguous in memory", op->nbody, op->nbody > 1 ? "s" : "");
  if (is_update(op) && optimizer_of(op)->noperation)
    return text("%s: the part that is computed by element    %s", optimizer_of(op)->name,
                where(optimizer_of(op)->line));
  if (is_update(op))
    return text("%s over %d parameters at once, contiguous in memory    %s", optimizer_of(op)->name,
                op->nbody, where(optimizer_of(op)->line));
  if (op->kind == OP_squares && plan_options->norm_of_largest)
    return text("the largest element of all %d gradients, by its amount", op->nbody);
  if (op->kind == OP_squares)
    return text("the squares of all %d gradients, summed%s", op->nbody,
                same_layout(graph->value[op->out].layout, (struct layout){0})
                    ? ""
                    : "; elements that several ranks hold count once");
  if (op->kind == OP_norm) return copy_text("the norm of all gradients");
  if (op->kind == OP_loop)
    return text("%s, %d modules", printable(graph->module[op->module].path),
                graph->function[op->function].count);
  if (is_transfer(op->kind)) return transfer_comment(op);
  if (op->kind == OP_await) {
    const struct op *begun = &graph->op[op->awaits];
    const char *what = begun->nbody ? reduced_text(begun) : shown_operand(begun->out);
    return text("%s: %s", what, wait_text(begun));
  }
  if (op->kind == OP_iteration) return iteration_comment(op);
  const char *again = is_again(op) ? "again: " : "";
  if (!op->why || op->kind == OP_view)
    return text("%s%s%s%s    %s    %s", piece_text(op), again, short_formula_text(op),
                op->kind == OP_products ? "    one product: the operands are adjacent" : "",
                lines_of(op), layouts_text(op));
  struct buffer b = {0};
  bool packs = op_row[op->kind].step == PACKING || op_row[op->kind].step == PIECES_PACKING;
  const char *what = shown_operand(op->kind == OP_unpack_pieces ? op->out : op->in[0]);
  put(&b, "%s%s%s: %s", is_collective(op->kind) ? piece_text(op) : "", again,
      op->nbody ? reduced_text(op) : what, packs ? packing_purpose(op) : move_text(op));
  struct max_rank_volume most =
      op->kind == OP_exchange ? max_volume_of(op) : (struct max_rank_volume){0};
  if (op->kind == OP_exchange) /* whose ranks differ */
    put(&b, ", at most %s bytes from a rank, %s to one", grouped(most.sent),
        grouped(most.received));
  else if (is_collective(op->kind))
    put(&b, ", %s bytes", grouped(collective_bytes(op, 0)));
  put(&b, ": %s", printable(op->why));
  if (!op->nbody || has_chunks(op)) put(&b, ", %s", where(op->line));
  if (runs_beside(op)) put(&b, ". %s", stream_text(op));
  return b.text;
}

static const struct function *function_with(int id)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (graph->function[i].op[k] == id) return &graph->function[i];
  bug_at("emit", id, "no function runs it");
}

/* The place in the function of the operation, of the part that runs it, or of that part's call;
   NONE if it has none. */
static int place_in_function(const struct function *f, int id)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (f->op[k] == id) return k;
    if (op->kind == OP_iteration && place_in_function(&graph->function[op->function], id) != NONE)
      return k;
  }
  return NONE;
}

/* Whether the operation awaits the collective, or a successor of it, or calls something that
   does. */
static bool awaits(const struct op *op, int id)
{
  if (op->kind == OP_iteration) op = &graph->op[graph->function[op->function].op[0]];
  if (op->kind != OP_await) return false;
  return op->awaits == id || scheduled(&graph->op[op->awaits])->chained_to == id;
}

/* A collective in flight between iterations overlaps with the operations after its begin and, in
   the next iteration, with those before its await. */
struct list beside(const struct op *op)
{
  struct list found = {0};
  if (!scheduled(op)->overlapped) return found;
  int id = (int)(op - graph->op), end = 0;
  const struct function *f = function_with(id);
  if (f->is_part) f = &graph->function[f->body];
  int begin = place_in_function(f, id);
  while (end < f->nop && !awaits(&graph->op[f->op[end]], id)) end++;
  for (int k = begin + 1; k != end && found.n < f->nop; k++) {
    if (k == f->nop && !is_loop_carried(op)) break;
    if (k == f->nop) k = 0;
    if (k == end) break;
    if (!op_row[graph->op[f->op[k]].kind].idle && !is_collective(graph->op[f->op[k]].kind))
      add(&found, f->op[k]);
  }
  return found;
}

const char *called(const struct op *op, const char *(*name)(int value))
{
  if (op->kind == OP_loop) return graph->function[op->function].name;
  if (!op_row[op->kind].composed) return name(op->out == NONE ? op->in[0] : op->out);
  const struct op *inner = NULL;
  for (int k = 0; k < op->nbody; k++)
    if (graph->value[graph->op[op->body[k]].out].stored) inner = &graph->op[op->body[k]];
  return name(inner ? inner->out : graph->op[op->body[0]].out);
}

char *beside_text(const struct op *op, const char *(*name)(int value))
{
  enum { MOST_SHOWN = 4 };
  struct list found = beside(op);
  struct buffer b = {0};
  if (!found.n) return copy_text("nothing");
  int shown = found.n > MOST_SHOWN + 1 ? MOST_SHOWN : found.n;
  for (int i = 0; i < shown; i++)
    put(&b, "%s%s", i ? ", " : "", called(&graph->op[found.at[i]], name));
  if (shown < found.n) put(&b, " and %d more", found.n - shown);
  return b.text;
}
