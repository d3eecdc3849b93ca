/* pipeline_stages.c: the pipeline stage of each operation, and the values that stages make for each
   other. */
#include "ir/ir.h"

static struct work_of_stage *work_of(int op)
{
  struct pipeline_stages *s = graph->stages;
  int before = s->room;
  while (op >= s->room) s->of_op = grow(s->of_op, s->room, &s->room, sizeof *s->of_op);
  for (int i = before; i < s->room; i++) s->of_op[i] = (struct work_of_stage){.stage = NONE};
  return &s->of_op[op];
}

void set_stage(int op, int stage)
{
  if (graph->stages) work_of(op)->stage = stage;
}

void set_of_weights(int op)
{
  work_of(op)->of_weights = true;
}

void set_stage_of(int op, int like)
{
  if (!graph->stages || stage_of(like) == NONE) return;
  struct work_of_stage w = *work_of(like);
  *work_of(op) = w;
}

void move_stage(int op, int to)
{
  if (!graph->stages) return;
  struct work_of_stage w = *work_of(op);
  *work_of(op) = (struct work_of_stage){.stage = NONE};
  if (to != NONE) *work_of(to) = w;
}

int stage_of(int op)
{
  const struct pipeline_stages *s = graph->stages;
  return s && op != NONE && op < s->room ? s->of_op[op].stage : NONE;
}

bool is_of_weights(int op)
{
  const struct pipeline_stages *s = graph->stages;
  return s && op < s->room && s->of_op[op].of_weights;
}

enum stage_work stage_work(int op)
{
  if (graph->op[op].phase == FORWARD) return STAGE_FORWARD;
  return is_of_weights(op) ? STAGE_WEIGHTS : STAGE_BACKWARD;
}

enum stage_work work_of_function(const struct function *f)
{
  if (f->phase == FORWARD) return STAGE_FORWARD;
  return f->of_weights ? STAGE_WEIGHTS : STAGE_BACKWARD;
}

bool is_posted(const struct op *op)
{
  return op->kind == OP_receive && is_of_batch(op->phase) && target->posts_receives;
}

bool is_over_stages(int mesh_dim)
{
  return graph->stages && graph->stages->mesh_dim == mesh_dim;
}

bool runs_here(int rank)
{
  int at[MAX_MESH];
  coordinate_of(rank, at);
  const struct pipeline_stages *s = graph->stages;
  return !s || s->here == NONE || at[s->mesh_dim] == s->here;
}

bool is_same_way(const struct op *a, const struct op *b)
{
  return is_transfer(a->kind) && a->kind == b->kind && a->number[1] == b->number[1] &&
         a->number[2] == b->number[2];
}

bool joins_stages(const struct op *op)
{
  return graph->stages && is_collective(op->kind) &&
         graph->group[op->group].dims >> graph->stages->mesh_dim & 1;
}

bool keeps_stage_order(const struct op *a, const struct op *b)
{
  return is_same_way(a, b) || (joins_stages(a) && joins_stages(b));
}

int edge_of(const struct op *op)
{
  if (!target->edge_groups) return NONE;
  return add_edge((int)op->number[1], (int)op->number[2]);
}

void make_edges(void)
{
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (is_transfer(op->kind)) edge_of(op);
  }
  graph->stages->ends = alloc((size_t)(graph->ngroup + 1) * sizeof *graph->stages->ends);
  graph->stages->joins = alloc(sizeof *graph->stages->joins);
}

int coordinate_of_stage(int stage)
{
  return stage == NONE ? NONE : graph->stages->coordinate[stage];
}

bool is_stage_here(int stage)
{
  return coordinate_of_stage(stage) == graph->stages->here;
}

int stages_here(void)
{
  int n = 0;
  for (int s = 0; s < graph->stages->n; s++) n += is_stage_here(s);
  return n;
}

void add_stage_edge(struct stage_edge edge)
{
  struct pipeline_stages *s = graph->stages;
  for (int i = 0; i < s->nedge; i++) {
    const struct stage_edge *e = &s->edge[i];
    if (e->from == edge.from && e->to == edge.to && e->made == edge.made && e->read == edge.read)
      return;
  }
  GROW(s->edge, s->nedge, s->edge_room);
  s->edge[s->nedge++] = edge;
}

/* A value of two stages is with the first of them. A recomputation in the backward of the second
   one may take it to a third one. */
int last_stage_with(int stage)
{
  const struct pipeline_stages *s = graph->stages;
  int last = stage;
  for (int before = NONE; before != last;) {
    before = last;
    for (int i = 0; i < s->nedge; i++) {
      int a = s->edge[i].from, b = s->edge[i].to, low = a < b ? a : b, high = a < b ? b : a;
      if (s->coordinate[a] != s->coordinate[b] || s->coordinate[a] != s->coordinate[stage])
        continue;
      if (low >= stage && low <= last && high > last) last = high;
    }
  }
  return last;
}
