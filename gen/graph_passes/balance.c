/* balance.c: chooses the modules with which the stages of a pipeline begin, if the plan does not.

   Takes   the forward, before it is laid out; the modules with which a stage may begin.
   Leaves  first_module of each stage, such that the slowest stage is as fast as possible, by the
           times of the model; among equals, one whose fullest rank holds as little as possible; and
           among these the most even one.

   Times and bytes are those of whole tensors, divided by the ranks of a stage and the
   micro-batches. A stage takes three times its forward, and the time in which the links of the
   pipeline's dimension move the values that cross its ends: so a cut that few bytes cross is cheap.
   A rank holds its parameters, their gradients and states, and the values that its forwards have
   made for the micro-batches in flight. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* Piece i of the model comes before the i-th module with which a stage may begin, and after the one
   before. */
struct balance {
  int n, *first_module;    /* of piece i, from 1 on */
  int64_t *time, *crosses; /* of the pieces before the i-th; at the beginning of the i-th */
  double *parameters, *activations; /* bytes of the pieces before the i-th */
  const struct pipeline_cost *cost;
  const struct pipeline *p;
  int64_t longest; /* no stage may take more, and no rank hold more */
  double fullest;
};

/* The cost of a stage that has pieces [from, to). */
typedef double cost_of_stage(const struct balance *b, int stage, int from, int to);

static double bytes_of(int value)
{
  const struct value *v = &graph->value[value];
  return (double)elements(v->shape) * (double)type_bytes(v->type);
}

/* A gather, such as an embedding, reads as many bytes of its first input as it makes. */
static double seconds_of(const struct op *op)
{
  double bytes = 0;
  enum elements reads = op_row[op->kind].elements;
  for (int i = 0; i < operand_count(op); i++) {
    bool some = !i && op->nout && (reads == SOME_OF_FIRST || reads == SOME_OR_ZERO);
    bytes += bytes_of(some ? op->out : nth_operand(op, i));
  }
  bool half = op->nin && graph->value[op->in[0]].type == BF16;
  double computing = arithmetic_seconds(flops_of(op), half ? IN_BFLOAT16 : IN_FLOAT32);
  double moving = memory_seconds(bytes);
  return computing > moving ? computing : moving;
}

/* The part of an input that a rank has for a micro-batch. */
static double part_of_batch(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == BATCH && v->shape.ndim)
      return (double)elements(local_shape(i, 0)) / (double)elements(v->shape) / microbatches();
  }
  return 1.0 / microbatches();
}

/* ----------------------------------------------------------------------------------- the pieces */

/* By place in the order, the piece of the operation. Modules that may begin a stage do so in this
   order. */
static int *find_pieces(struct balance *b)
{
  const struct pipeline_stages *s = graph->stages;
  int *begins = alloc((size_t)(graph->nmodule + 1) * sizeof *begins);
  int *piece = alloc((size_t)(graph->norder + 1) * sizeof *piece);
  for (int k = 0; k < s->nmay_begin; k++) begins[s->may_begin[k]] = k + 1;
  for (int i = 0; i < graph->nmodule; i++)
    if (!begins[i] && graph->module[i].parent != NONE) begins[i] = begins[graph->module[i].parent];
  b->first_module = alloc((size_t)(s->nmay_begin + 1) * sizeof *b->first_module);
  b->n = 1;
  for (int at = 0, last = 0; at < graph->norder; at++) {
    int module = graph->op[graph->order[at]].module, here = module == NONE ? 0 : begins[module];
    if (here > last) b->first_module[b->n++] = s->may_begin[here - 1], last = here;
    piece[at] = b->n - 1;
  }
  return piece;
}

static void measure(struct balance *b)
{
  const int *piece = find_pieces(b);
  size_t n = (size_t)b->n + 1, values = (size_t)graph->nvalue + 1;
  int *made_in = alloc(values * sizeof *made_in), *read_in = alloc(values * sizeof *read_in);
  double *seconds = alloc(n * sizeof *seconds), *crosses = alloc(n * sizeof *crosses);
  double part = part_of_batch(),
         share =
             ((double)world_size() / graph->mesh.size[graph->stages->mesh_dim]) * microbatches();
  b->time = alloc(n * sizeof *b->time);
  b->crosses = alloc(n * sizeof *b->crosses);
  b->parameters = alloc(n * sizeof *b->parameters);
  b->activations = alloc(n * sizeof *b->activations);
  for (size_t i = 0; i < values; i++) made_in[i] = read_in[i] = NONE;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    int here = piece[at];
    seconds[here] += seconds_of(op);
    for (int i = 0; i < op->nin; i++) {
      bool first = graph->value[op->in[i]].role == PARAMETER && read_in[op->in[i]] == NONE;
      if (first) {
        int parameter = op->in[i];
        const struct value *v = &graph->value[parameter];
        int states = v->frozen || !plan_options->noptimizer
                         ? 0
                         : 1 + plan_options->optimizer[v->optimizer].nstate;
        double bytes_of_states = (double)elements(local_shape(parameter, 0)) *
                                 (double)type_bytes(v->type) * (1 + states);
        b->parameters[here + 1] += bytes_of_states;
      }
      read_in[op->in[i]] = here;
    }
    for (int k = 0; k < op->nout; k++) {
      made_in[op->out + k] = here;
      if (is_floating(graph->value[op->out + k].type))
        b->activations[here + 1] += bytes_of(op->out + k) / share;
    }
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (made_in[i] != NONE && is_floating(graph->value[i].type)) {
      /* Adds the bytes of an activation to each boundary between the piece that makes it and the
         one that reads it. */
      int from = made_in[i];
      int to = read_in[i];
      for (int k = from + 1; k <= to; k++) crosses[k] += bytes_of(i);
    }
  for (int i = 1; i <= b->n; i++) {
    const double picoseconds = 1e12;
    b->time[i] = b->time[i - 1] + (int64_t)(3 * seconds[i - 1] / share * picoseconds);
    b->parameters[i] += b->parameters[i - 1];
    b->activations[i] += b->activations[i - 1];
    if (i < b->n)
      b->crosses[i] = sending_time((int64_t)(crosses[i] * part), graph->stages->mesh_dim);
  }
}

/* ------------------------------------------------------------------------------------- the cuts */

static int64_t takes(const struct balance *b, int from, int to)
{
  return b->time[to] - b->time[from] + b->crosses[from] + b->crosses[to];
}

static double holds(const struct balance *b, int stage, int from, int to)
{
  return b->parameters[to] - b->parameters[from] +
         b->cost->in_flight[b->p->rank_of[stage]] * (b->activations[to] - b->activations[from]);
}

static const double NEVER = 1e300;

static double by_time(const struct balance *b, int stage, int from, int to)
{
  (void)stage;
  return (double)takes(b, from, to);
}

static double by_memory(const struct balance *b, int stage, int from, int to)
{
  return takes(b, from, to) > b->longest ? NEVER : holds(b, stage, from, to);
}

static double by_evenness(const struct balance *b, int stage, int from, int to)
{
  double time = (double)takes(b, from, to);
  if (takes(b, from, to) > b->longest || holds(b, stage, from, to) > b->fullest) return NEVER;
  return time * time;
}

/* The least cost of all stages together: the largest of them, or their sum. begin[s]: the first
   piece of stage s. */
static double best_cuts(const struct balance *b, int stages, cost_of_stage *cost, bool sums,
                        int *begin)
{
  size_t width = (size_t)b->n + 1;
  double *best = alloc((size_t)(stages + 1) * width * sizeof *best);
  int *from = alloc((size_t)(stages + 1) * width * sizeof *from);
  for (size_t i = 0; i < (size_t)(stages + 1) * width; i++) best[i] = NEVER;
  best[0] = 0;
  for (int s = 1; s <= stages; s++)
    for (int to = s; to <= b->n - (stages - s); to++)
      for (int at = s - 1; at < to; at++) {
        double before = best[(size_t)(s - 1) * width + (size_t)at];
        double here = before < NEVER ? cost(b, s - 1, at, to) : NEVER;
        double all = here >= NEVER ? NEVER : sums ? before + here : here > before ? here : before;
        if (all >= best[(size_t)s * width + (size_t)to]) continue;
        best[(size_t)s * width + (size_t)to] = all;
        from[(size_t)s * width + (size_t)to] = at;
      }
  for (int s = stages, to = b->n; s > 0; s--)
    begin[s - 1] = to = from[(size_t)s * width + (size_t)to];
  return best[(size_t)stages * width + (size_t)b->n];
}

void balance_stages(const struct pipeline *p)
{
  enum { MOST_TRIED = 100000000 };
  struct pipeline_stages *s = graph->stages;
  struct pipeline_cost cost = pipeline_cost(p);
  struct balance b = {.cost = &cost, .p = p};
  int *begin = alloc((size_t)(s->n + 1) * sizeof *begin);
  measure(&b);
  s->npiece = b.n;
  if (b.n < s->n)
    plan_error(s->line,
               "pipeline: %d stages, and only %d modules of the list run, one after the other: say "
               "where stages begin, as in split = {\"layers.2\"}",
               s->n, b.n);
  if ((int64_t)s->n * b.n * b.n > MOST_TRIED) {
    ended_early("stages", "where stages begin", MOST_TRIED, "cuts");
    /* For very many pieces: cuts where the time is divided evenly. */
    for (int i = 1, at = 0; i < s->n; i++) {
      at++;
      while (at < b.n - (s->n - i) && b.time[at] < b.time[b.n] / s->n * i) at++;
      begin[i] = at;
    }
  } else {
    b.longest = (int64_t)best_cuts(&b, s->n, by_time, false, begin);
    b.fullest = best_cuts(&b, s->n, by_memory, false, begin);
    best_cuts(&b, s->n, by_evenness, true, begin);
  }
  for (int i = 1; i < s->n; i++) s->first_module[i] = b.first_module[begin[i]];
}
