/* pipeline_trace.c: a step of a pipeline as trace.json, for Perfetto: a row for each rank along the
   pipeline, with the actions of its schedule, by the simulated times of each stage's forward and
   backward and of what they send.

   Takes   what simulate.c has found of each place of the pipeline, one after the other. */
#include "report/report.h"

/* Picoseconds. */
struct work_times {
  int64_t work[STAGE_WORKS], sent_forward, sent_backward;
};

static const struct graph *program;
static struct work_times *times_of; /* by stage */

static void mark(void *is_of, int op, int times)
{
  (void)times;
  ((bool *)is_of)[op] = true;
}

/* From the function's first operation to its last one. */
static int64_t time_of(const struct function *f)
{
  const struct simulated *s = simulated();
  bool *is_of = alloc((size_t)graph->nop + 1);
  int64_t begin = INT64_MAX, end = 0;
  each_op_of(f, mark, is_of);
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    if (!is_of[r->op]) continue;
    if (begin > r->begin) begin = r->begin;
    if (end < r->end) end = r->end;
  }
  return end > begin ? end - begin : 0;
}

static void add_sent(void *unused, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)unused, (void)times;
  if (op->kind != OP_send || !is_of_batch(op->phase)) return;
  struct work_times *t = &times_of[op->number[1]];
  const int dim = graph->stages->mesh_dim;
  const double seconds = link_latency(dim) + (double)largest_bytes(op->in[0]) / link_bandwidth(dim);
  *(op->phase == FORWARD ? &t->sent_forward : &t->sent_backward) += (int64_t)(seconds * 1e12);
}

void note_stage_times(void)
{
  const struct pipeline_stages *s = graph->stages;
  if (program != s->program) times_of = alloc((size_t)s->n * sizeof *times_of);
  program = s->program;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f) || !is_of_batch(f->phase) || f->stage == NONE) continue;
    times_of[f->stage].work[work_of_function(f)] += time_of(f);
  }
  each_op(add_sent, NULL);
}

/* ------------------------------------------------------------------------------------ the schedule
 */

/* When each stage has ended a micro-batch's forward and backward; 0: not yet. */
struct ended {
  int64_t *forward, *backward;
};

/* When what the action takes is there; -1: not yet. What remains of a backward for the weights
   takes only what its rank has. */
static int64_t ready_at(const struct pipeline *p, const struct ended *ended, const struct action *a)
{
  const bool forward = a->kind == ACTION_F;
  const int s = a->stage, other = forward ? s - 1 : s + 1;
  if (a->kind == ACTION_W || other < 0 || other == p->stages) return 0;
  const struct work_times *t = &times_of[other];
  const bool is_near = p->rank_of[other] == p->rank_of[s];
  const int64_t at = (forward ? ended[other].forward : ended[other].backward)[a->microbatch];
  if (!at) return -1;
  return at + (is_near ? 0 : forward ? t->sent_forward : t->sent_backward);
}

static int64_t time_taken_by(const struct action *a)
{
  const int64_t *work = times_of[a->stage].work;
  switch (a->kind) {
  case ACTION_F:
    return work[STAGE_FORWARD];
  case ACTION_I:
    return work[STAGE_BACKWARD];
  case ACTION_W:
    return work[STAGE_WEIGHTS];
  default:
    return work[STAGE_BACKWARD] + work[STAGE_WEIGHTS];
  }
}

static void put_ran(struct buffer *b, const struct action *a, int rank, int64_t begin, int64_t end)
{
  put(b,
      ",\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": "
      "%.3f, \"dur\": %.3f, \"args\": {\"stage\": %d, \"micro-batch\": %d}}",
      action_text(a), phase_name[a->kind == ACTION_F ? FORWARD : BACKWARD], rank,
      (double)begin * 1e-6, (double)(end - begin) * 1e-6, a->stage, a->microbatch);
}

/* Runs a rank's action, or both of an overlap, if what they take is there. */
static bool run_action(struct buffer *b, const struct pipeline *p, const struct ended *ended,
                       int rank, int64_t *now, const struct action *a)
{
  struct action part[ACTION_PARTS];
  const int n = action_parts(a, part);
  for (int k = 0; k < n; k++)
    if (ready_at(p, ended, &part[k]) < 0) return false;
  for (int k = 0; k < n; k++) {
    const int64_t ready = ready_at(p, ended, &part[k]), begin = ready > *now ? ready : *now;
    *now = begin + time_taken_by(&part[k]) + 1; /* 0: not ended */
    if (part[k].kind == ACTION_F)
      ended[part[k].stage].forward[part[k].microbatch] = *now;
    else if (part[k].kind != ACTION_W)
      ended[part[k].stage].backward[part[k].microbatch] = *now;
    put_ran(b, &part[k], rank, begin, *now);
  }
  return true;
}

static void put_schedule(struct buffer *b, const struct pipeline *p)
{
  struct ended *ended = alloc((size_t)p->stages * sizeof *ended);
  int64_t *now = alloc((size_t)p->ranks * sizeof *now);
  int *next = alloc((size_t)p->ranks * sizeof *next);
  const size_t n = (size_t)p->microbatches * sizeof(int64_t);
  for (int s = 0; s < p->stages; s++) ended[s] = (struct ended){alloc(n), alloc(n)};
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < p->ranks; r++)
      while (next[r] < p->order[r].n &&
             run_action(b, p, ended, r, &now[r], &p->order[r].at[next[r]])) {
        next[r]++;
        moved = true;
      }
  }
}

void add_pipeline_trace(void)
{
  if (!options.trace || !graph->stages) return;
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  struct buffer b = {0};
  put(&b, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  for (int r = 0; r < p->ranks; r++)
    put(&b,
        "%s{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"args\": "
        "{\"name\": \"%s %d\"}}",
        r ? ",\n" : "\n", r, printable(graph->mesh.name[graph->stages->mesh_dim]), r);
  put_schedule(&b, p);
  put(&b, "\n]}\n");
  add_file("trace.json", b.text, b.length, false);
}
