/* chains.c: the steps of each redistribution, for the reports.

   Takes   the finished program.
   Leaves its moves, gathered into chains: each step works on the result of the one before. */
#include "report/report.h"

static struct chain *chain;
static int nchain, chain_room;
static int *chain_of; /* by operation, or NONE */

/* The chain that an operation continues, or NONE. */
static int continued(const struct op *op)
{
  int maker = op->nbody ? NONE : graph->value[op->in[0]].op;
  if (maker == NONE || chain_of[maker] == NONE) return NONE;
  const struct op *before = &graph->op[maker];
  return op->continues && before->phase == op->phase && !before->nbody ? chain_of[maker] : NONE;
}

static void add_step(void *unused, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)unused;
  if (!is_collective(op->kind) && !(op->why && is_copy(op->kind))) return;
  int which = continued(op);
  if (which == NONE) {
    which = nchain;
    GROW(chain, nchain, chain_room);
    chain[nchain++] = (struct chain){.times = times};
  }
  struct chain *c = &chain[which];
  GROW(c->step, c->nstep, c->room);
  c->step[c->nstep++] = id;
  chain_of[id] = which;
}

const struct chain *find_chains(int *n)
{
  nchain = 0;
  chain_of = alloc((size_t)(graph->nop + 1) * sizeof *chain_of);
  for (int i = 0; i < graph->nop; i++) chain_of[i] = NONE;
  each_op(add_step, NULL);
  *n = nchain;
  return chain;
}

const struct op *first_step(const struct chain *c)
{
  return &graph->op[c->step[0]];
}

const struct op *last_step(const struct chain *c)
{
  return &graph->op[c->step[c->nstep - 1]];
}

const struct value *moved_value(const struct chain *c)
{
  const struct op *op = first_step(c);
  return &graph->value[op->nbody ? graph->op[op->body[0]].in[0] : op->in[0]];
}

struct layout layout_before(const struct chain *c)
{
  return moved_value(c)->layout;
}

struct layout layout_reached(const struct chain *c)
{
  return graph->value[last_step(c)->out].layout;
}

static bool has_strides(const struct chain *c)
{
  for (int d = 0; d < moved_value(c)->shape.ndim; d++)
    if (is_strided(&graph->mesh, layout_before(c), d) ||
        is_strided(&graph->mesh, layout_reached(c), d))
      return true;
  return false;
}

int64_t bound_of(const struct chain *c)
{
  const struct value *v = moved_value(c);
  if (first_step(c)->nbody || has_strides(c)) return NONE;
  int64_t bytes =
      least_bytes(cost_model_of_graph(), v->shape, v->type, layout_before(c), layout_reached(c));
  return first_step(c)->pieces ? bytes / first_step(c)->pieces : bytes;
}

int count_steps(const struct chain *c)
{
  int n = 0;
  for (int i = 0; i < c->nstep; i++) {
    enum op_kind k = graph->op[c->step[i]].kind;
    n += is_collective(k) || op_row[k].step == LOCAL_STEP;
  }
  return n;
}

double seconds_of(const struct chain *c)
{
  const struct value *v = moved_value(c);
  if (first_step(c)->nbody || has_strides(c)) return 0;
  const struct moves *moves = plan_moves(v->shape, v->type, layout_before(c), layout_reached(c));
  return moves->n == count_steps(c) ? moves->time : 0;
}
