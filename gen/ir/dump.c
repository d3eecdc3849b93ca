/* dump.c: the graph as text, in one form after every pass: `tpgen --dump=PASS plan.lua`.

     in_proj.weight = parameter f32[32, 10] S(0)
     v12 in_proj = matmul(input, in_proj.weight) mk,nk->mn  f32[20, 32] S(1)  line 8 in in_proj

   Values with a name of their own (parameters, batch) stand under it, others as v<index>. */
#include "ir/ir.h"

#include <inttypes.h>
#include <string.h>

const char *const pass_name[PASS_COUNT] = {
#define PASS(NAME, name) #name,
#include "ir/passes.h"
#undef PASS
};

static const char *const role_name[] = {"activation", "parameter", "gradient", "sums",
                                        "state",      "batch",     "loss",     "norm"};

static char *called(int value)
{
  const struct value *v = &graph->value[value];
  if (v->step) return text("v%d[%+d]|%s", v->family, v->step, called(v->initial));
  if (v->op == NONE) return printable(v->name);
  if (v->family != NONE && v->index > 0) return text("v%d[%d]", v->family, v->index);
  return text("v%d", value);
}

static char *kind_of(int value)
{
  const struct value *v = &graph->value[value];
  struct buffer b = {0};
  put(&b, "%s%s", type_name(v->type), shape_text(v->shape));
  if (v->placed) put(&b, " %s", layout_text(v->layout));
  if (v->order) put(&b, ", %s", order_text(v));
  return b.text;
}

static void dump_inputs(struct buffer *b, const struct op *op)
{
  put(b, "%s(", op_row[op->kind].name);
  for (int i = 0; i < op->nin; i++) put(b, "%s%s", i ? ", " : "", called(op->in[i]));
  put(b, ")");
  if (op->equation) put(b, " %s", op->equation);
  if (op->scalar != 0) put(b, " scalar %.9g", op->scalar);
  if (op->dims) put(b, " dims %#x%s", op->dims, op->keep ? " kept" : "");
}

/* The placement that is asked for, with its turn: where another dimension of the mesh is asked for
   the same, it tells which cuts first. */
static char *asked_text(struct placement p)
{
  const char *to = placement_text(p);
  return p.kind == SHARD && p.turn ? text("%s[%d]", to, p.turn) : copy_text(to);
}

static void dump_exchange(struct buffer *b, const struct exchange *e)
{
  put(b, " %s%s %s", type_name(e->type), shape_text(e->whole), layout_text(e->move.from));
  put(b, " -> %s", layout_text(e->move.to));
}

static void dump_redistribution(struct buffer *b, const struct op *op)
{
  bool packs = op->kind == OP_pack || op->kind == OP_unpack;
  bool packs_pieces = op->kind == OP_pack_pieces || op->kind == OP_unpack_pieces;
  if (op->kind == OP_redistribute) {
    put(b, "%s to", op->finishes ? " what is pending" : "");
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (op->asked >> d & 1)
        put(b, " %s=%s", printable(graph->mesh.name[d]), asked_text(op->to.on[d]));
  }
  if (is_collective(op->kind) || packs || packs_pieces)
    put(b, " over %s", printable(graph->group[op->group].name));
  if (packs) put(b, " as %s", layout_text(op->to));
  if (op->kind == OP_exchange || packs_pieces) dump_exchange(b, &graph->exchange[op->exchange]);
  if (op->why) put(b, "  \"%s\"", printable(op->why));
}

static void dump_value(struct buffer *b, int value)
{
  const struct value *v = &graph->value[value];
  put(b, "  %s", kind_of(value));
  if (v->role != ACTIVATION) put(b, "  %s", role_name[v->role]);
  if (is_gradient(value)) put(b, " of %s", printable(graph->value[v->of].name));
  if (v->is_output) put(b, "  output %s", printable(v->name));
}

static void dump_await(struct buffer *b, const struct op *begun)
{
  int value = begun->packed ? begun->buffer : begun->out;
  put(b, "await v%d over %s\n", value, printable(graph->group[begun->group].name));
}

static const char *begun_text(const struct op *op)
{
  if (!scheduled(op)->overlapped) return "";
  if (predecessor_of(op))
    return text("  begun behind v%d%s", predecessor_of(op)->out,
                scheduled(op)->awaited_next_iteration ? ", awaited behind" : "");
  return scheduled(op)->prefetch_distance        ? "  begun ahead"
         : scheduled(op)->awaited_next_iteration ? "  begun, awaited behind"
                                                 : "  begun";
}

static const char *const round_text[] = {[FIRST_ITERATION] = "the first round",
                                         [LAST_ITERATION] = "the last round",
                                         [NEXT_ITERATION] = "the next round",
                                         [PREVIOUS_ITERATION] = "the round before",
                                         [IN_LAST_ITERATION] = "what follows, in the last round"};

static const char *round_called_text(const struct op *op)
{
  if (op->iteration == FIRST_ITERATION && op->distance) return text("round %d", op->distance + 1);
  if (op->iteration == NEXT_ITERATION && op->distance > 1)
    return text("the round %d on", op->distance);
  return round_text[op->iteration];
}

static void dump_op(struct buffer *b, int id, int indent, bool places)
{
  const struct op *op = &graph->op[id];
  put(b, "%*s", indent, "");
  if (op->kind == OP_await) {
    dump_await(b, &graph->op[op->awaits]);
    return;
  }
  if (op->kind == OP_loop) {
    const struct function *f = &graph->function[op->function];
    put(b, "%s for %d modules, %s\n", f->name, f->count, f->upward ? "upward" : "downward");
    return;
  }
  if (op->kind == OP_round) {
    put(b, "%s for %s\n", graph->function[op->function].name, round_called_text(op));
    return;
  }
  if (op->nbody) {
    put(b, "%s%s%s {\n", op_row[op->kind].name, op->packed ? ", packed," : "",
        begun_text(op) + (scheduled(op)->overlapped ? 1 : 0));
    for (int k = 0; k < op->nbody; k++) dump_op(b, op->body[k], indent + 2, places);
    put(b, "%*s}\n", indent, "");
    return;
  }
  for (int k = 0; k < op->nout; k++)
    put(b, "v%d %s%s", op->out + k, printable(value_name(op->out + k)),
        k + 1 < op->nout ? ", " : " = ");
  dump_inputs(b, op);
  dump_redistribution(b, op);
  for (int k = 0; k < op->nout; k++) dump_value(b, op->out + k);
  if (op->pieces) put(b, "  piece %d of %d", op->piece + 1, op->pieces);
  put(b, "%s%s  line %d", begun_text(op), op->again ? "  again" : "", op->line);
  if (op->module != NONE && *graph->module[op->module].path)
    put(b, " in %s", printable(graph->module[op->module].path));
  if (places && op->out != NONE) {
    const struct value *v = &graph->value[op->out];
    struct allocation a = allocation_of(op->out);
    if (!v->stored)
      put(b, "  not stored");
    else if (a.storage != op->out)
      put(b, "  in place of v%d", a.storage);
    else if (v->role == ACTIVATION && !v->is_output)
      put(b, "  at %" PRId64 ", lives %d..%d", a.offset, a.first, a.last);
    if (v->stored && a.depth > 1) put(b, ", %d kept", a.depth);
  }
  put(b, "\n");
}

static void dump_header(struct buffer *b)
{
  put(b, "mesh");
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(b, " %s=%d", printable(graph->mesh.name[d]), graph->mesh.size[d]);
  put(b, "\n");
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->op == NONE && !v->step)
      put(b, "%s = %s %s\n", printable(v->name), role_name[v->role], kind_of(i));
  }
}

static void dump_styles(struct buffer *b)
{
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    put(b, "style %s on %s over %s, line %d:", s->name, printable(graph->module[s->module].path),
        printable(graph->mesh.name[s->mesh_dim]), s->line);
    for (int k = 0; k < s->nwish; k++) {
      const struct wish *w = &s->wish[k];
      const char *to = placement_text(w->to);
      if (w->what == WISH_PARAMETER)
        put(b, " %s %s", printable(graph->value[w->value].name), to);
      else
        put(b, " %s %d %s", w->what == WISH_INPUT ? "input" : "output", w->index, to);
    }
    put(b, "\n");
  }
}

void dump(enum pass after)
{
  if (!options.dump || strcmp(options.dump, pass_name[after])) return;
  struct buffer b = {0};
  dump_header(&b);
  if (after == PASS_LUA) dump_styles(&b);
  if (after < PASS_OUTLINE)
    for (int i = 0; i < graph->norder; i++) dump_op(&b, graph->order[i], 0, false);
  else
    for (int i = 0; i < graph->nfunction; i++) {
      const struct function *f = &graph->function[i];
      put(&b, "%s {\n", f->name);
      for (int k = 0; k < f->nop; k++) dump_op(&b, f->op[k], 2, after == PASS_MEMORY);
      put(&b, "}\n");
    }
  if (graph->loss != NONE) put(&b, "loss v%d\n", graph->loss);
  if (after == PASS_MEMORY)
    put(&b, "arena %" PRId64 " bytes, %" PRId64 " live at most\n", graph->arena_bytes,
        graph->live_bytes);
  fputs(b.text, stdout);
  end_printing();
}
