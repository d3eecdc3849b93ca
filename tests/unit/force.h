/* force.h: one operation, its inputs cut as somebody says, run on every rank, and held against the
   whole operation. */
#ifndef FORCE_H
#define FORCE_H

#include "check/check.h"
#include "instances.h"

/* TPGEN_ROWS, names of rows parted by blanks: these alone are tried. */
__attribute__((unused)) static bool is_tried(enum op_kind kind)
{
  const char *rows = getenv("TPGEN_ROWS");
  char all[1024], one[64];
  if (!rows) return true;
  snprintf(all, sizeof all, " %s ", rows);
  snprintf(one, sizeof one, " %s ", op_row[kind].name);
  return strstr(all, one) != NULL;
}

/* An operation, what it takes and what it makes as a whole. */
struct trial {
  const struct op *op;
  struct letters letters;
  struct array in[MAX_INPUTS], out[MAX_OUTPUTS];
};

__attribute__((unused)) static void prepare(struct trial *t, const struct op *op)
{
  t->op = op;
  op_letters(op, &t->letters);
  suitable_inputs(op, t->in);
  for (int k = 0; k < op->nout; k++) t->out[k] = zeros(graph->value[op->out + k].shape);
  must(evaluate(op, t->in, t->out, NULL), "%s refuses its own inputs", op_name(op));
}

__attribute__((unused)) static char *way_text(const struct trial *t, const struct op_sharding *way)
{
  struct buffer b = {0};
  put(&b, "%s %s", op_name(t->op), rule_of(t->op));
  for (int i = 0; i < t->op->nin; i++)
    put(&b, "%s %s %s", i ? "," : "", shape_text(t->in[i].shape), layout_text(way->in[i]));
  put(&b, " ->");
  for (int k = 0; k < t->op->nout; k++)
    put(&b, "%s %s %s", k ? "," : "", shape_text(t->out[k].shape), layout_text(way->out[k]));
  return b.text;
}

/* Runs all ranks on their parts of the inputs; false if the parts do not fit each other. */
static bool run_parts(const struct trial *t, const struct op_sharding *way,
                      struct array *const part[MAX_INPUTS], struct array *made[MAX_OUTPUTS])
{
  const struct op *op = t->op;
  int world = world_size();
  for (int k = 0; k < op->nout; k++) made[k] = take((size_t)world * sizeof **made);
  for (int r = 0; r < world; r++) {
    struct array in[MAX_INPUTS], out[MAX_OUTPUTS];
    for (int i = 0; i < op->nin; i++) in[i] = part[i][r];
    for (int k = 0; k < op->nout; k++)
      out[k] = zeros(part_of(t->out[k].shape, way->out[k], r).shape);
    struct places at = places_at(op, &t->letters, way->in, way->out, r);
    if (!evaluate(op, in, out, &at)) return false;
    for (int k = 0; k < op->nout; k++) made[k][r] = out[k];
  }
  return true;
}

/* NULL if what the ranks make of their parts is what the whole operation makes. */
__attribute__((unused)) static const char *unsound(const struct trial *t,
                                                   const struct op_sharding *way)
{
  struct array *part[MAX_INPUTS], *made[MAX_OUTPUTS];
  for (int i = 0; i < t->op->nin; i++)
    part[i] = scatter_type(t->in[i], graph->value[t->op->in[i]].type, way->in[i]);
  if (!run_parts(t, way, part, made)) return "the parts do not fit each other";
  for (int k = 0; k < t->op->nout; k++) {
    const char *why = not_the_whole(made[k], t->out[k], way->out[k], 1e-9);
    if (why) return t->op->nout > 1 ? text("output %d: %s", k, why) : why;
  }
  return NULL;
}

__attribute__((unused)) static void new_mesh(const char *sizes)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(sizes, size), size);
}

#endif
