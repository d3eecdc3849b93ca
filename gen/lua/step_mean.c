/* step_mean.c: the mean of a number over the batches of a step, known before the first of them.

   Takes a value that depends only on the inputs of a batch: the number of its labels that count.
   Leaves operations of the phase COUNT that make it of each batch, and add it to a sum with the
           role SUMS. The forward of each batch reads the sum.

   A mean over labels divides by it: so a step of several batches has the mean over all of its
   labels, and a batch without any adds nothing. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>

/* The operations so far; by value: the same made in COUNT, or NONE. */
struct counting {
  int known, *made;
};

static struct op counted_op(struct op op)
{
  op.phase = COUNT;
  op.module = NONE;
  return op;
}

static int is_counted(struct counting *c, int value);

/* Redistributions along the dimension in time stay out: a batch is counted as a whole. */
static int counted_by_op(struct counting *c, int maker, int value)
{
  struct op op = graph->op[maker];
  struct shape shape[MAX_OUTPUTS];
  const int first = op.out;
  for (int i = 0; i < op.nin; i++) op.in[i] = is_counted(c, op.in[i]);
  if (op.kind == OP_redistribute && time_dimension() != NONE) {
    op.asked &= ~(1u << time_dimension());
    op.to.on[time_dimension()] = (struct placement){0};
    if (!op.asked) return op.in[0];
  }
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[first + k].shape;
  int made = make_op_outputs(counted_op(op), shape, op.nout);
  append_to_order(graph->value[made].op);
  for (int k = 0; k < op.nout; k++) {
    graph->value[made + k].type = graph->value[first + k].type;
    graph->value[made + k].name = graph->value[first + k].name;
    c->made[first + k] = made + k;
  }
  return made + (value - first);
}

static int is_counted(struct counting *c, int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == BATCH) return value;
  if (v->role == PARAMETER)
    plan_fails("how many labels of a batch count depends on %s, and a step of several batches has "
               "to know it before: say accumulate_mean = \"batches\" in train{}, for the mean of "
               "the batches' means",
               printable(v->name));
  if (value < c->known && c->made[value] != NONE) return c->made[value];
  return counted_by_op(c, v->op, value);
}

static int append_counted(struct op op)
{
  return append_op(counted_op(op));
}

int step_mean(lua_State *L)
{
  const int value = argument_value(L, 1), batches = (int)luaL_checkinteger(L, 2);
  struct counting c = {graph->nvalue, alloc((size_t)graph->nvalue * sizeof *c.made)};
  for (int i = 0; i < c.known; i++) c.made[i] = NONE;
  const int line = graph->value[value].line, of_batch = is_counted(&c, value);
  const int whole = append_counted((struct op){.kind = OP_redistribute,
                                               .nin = 1,
                                               .in = {of_batch},
                                               .type = F32,
                                               .backward_type = F32,
                                               .asked = (1u << graph->mesh.ndim) - 1,
                                               .finishes = true,
                                               .line = line,
                                               .why = "the labels of a batch on every rank"});
  const int share = append_counted((struct op){
      .kind = OP_scale, .nin = 1, .in = {whole}, .scalar = 1.0 / batches, .line = line});
  const int before = add_value(SUMS, "labels", F32, graph->value[share].shape, NONE, line);
  const int after =
      append_counted((struct op){.kind = OP_add, .nin = 2, .in = {before, share}, .line = line});
  graph->value[after].role = SUMS;
  graph->value[after].name = "labels";
  graph->value[before].of = graph->value[after].of = before;
  push_tensor(L, after);
  return 1;
}
