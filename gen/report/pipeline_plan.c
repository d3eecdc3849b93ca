/* pipeline_plan.c: plan.txt and plan.json of a pipeline: its schedule, and its step by the model:
   the work of each stage, the idle time of its rank, the bytes that it sends and holds.
   plan_stage<N>.txt and .json have the rest about the stages at a place.

   Takes   the figures of each stage, which note_stage() has when the stage's passes have run.

   A forward and a backward take what simulate.c finds. They begin when their rank has ended the
   actions before them, and has received their inputs from other ranks. The update begins when all
   ranks have ended, for it sums the loss and the norm over them. */
#include "report/report.h"

#include <jansson.h>
#include <string.h>

/* The figures of a stage, for a micro-batch. */
struct stage_figures {
  int64_t forward, backward, weights; /* picoseconds; weights: of the second part of a backward */
  int64_t forward_bytes, backward_bytes; /* that it sends */
  struct slots slots;
};

/* The figures of the ranks at one place of the pipeline, for a step. */
struct place_figures {
  int64_t gather, update, exposed; /* picoseconds; exposed: of collectives */
  int64_t memory;
};

static struct stage_figures *of_stage;
static struct place_figures *of_place;

static void add_sent(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)to, (void)times;
  if (op->kind != OP_send || !is_of_batch(op->phase)) return;
  struct stage_figures *f = &of_stage[op->number[1]];
  *(op->phase == FORWARD ? &f->forward_bytes : &f->backward_bytes) += largest_bytes(op->in[0]);
}

static void note_function(const struct function *f, int64_t took, struct place_figures *place)
{
  if (f->phase == GATHER) place->gather = plus_times(place->gather, runs_of_phase(GATHER), took);
  if (f->phase == UPDATE) place->update += took;
  if (f->stage == NONE || !is_of_batch(f->phase)) return;
  struct stage_figures *s = &of_stage[f->stage];
  *(f->phase == FORWARD ? &s->forward : f->of_weights ? &s->weights : &s->backward) += took;
}

void note_stage(void)
{
  static const struct all_stages *of;
  const struct pipeline_stages *s = graph->stages;
  const struct simulated *t = simulated();
  if (of != s->all) {
    of = s->all;
    of_stage = alloc((size_t)s->n * sizeof *of_stage);
    of_place = alloc((size_t)graph->mesh.size[s->mesh_dim] * sizeof *of_place);
  }
  struct place_figures *place = &of_place[s->here];
  *place = (struct place_figures){.memory = memory_of_rank()};
  for (int i = 0; i < s->n; i++)
    if (is_stage_here(i)) of_stage[i] = (struct stage_figures){.slots = graph->memory->slots[i]};
  for (int i = 0; i < graph->nfunction; i++)
    if (is_phase(&graph->function[i])) note_function(&graph->function[i], t->took[i], place);
  for (int phase = 0; phase < PHASES; phase++) {
    int64_t times = runs_of_phase((enum phase)phase);
    if (phase != CONSTANTS) place->exposed = plus_times(place->exposed, times, t->waited[phase]);
  }
  each_op(add_sent, NULL);
}

/* The stage of the place that is the k-th there. */
static int nth_stage_at(int place, int k)
{
  int stage = 0;
  while (coordinate_of_stage(stage) != place || k--) stage++;
  return stage;
}

void note_equal_stage(int other)
{
  const struct pipeline_stages *stages = graph->stages;
  const char *why;
  const struct actions here = actions_here(), there = actions_of(pipeline_here(&why), other);
  const struct rank_slots of_here = slots_of_rank(&here), of_there = slots_of_rank(&there);
  struct slots *slots = alloc((size_t)stages->n * sizeof *slots);
  struct place_figures *place = &of_place[stages->here];
  *place = of_place[other];
  for (int k = 0; k < stages_here(); k++) {
    const int stage = nth_stage_at(stages->here, k), like = nth_stage_at(other, k);
    of_stage[stage] = of_stage[like];
    slots[stage] = slots[like] = of_stage[like].slots;
    of_stage[stage].slots.n = stages_here() == 1 ? of_here.n : of_here.most[stage];
  }
  place->memory += slot_begins(&of_here, slots)[of_here.n];
  place->memory -= slot_begins(&of_there, slots)[of_there.n];
}

/* --------------------------------------------------------------------------------- the schedule */

/* "F3", or "2F3" where ranks have several stages; of an overlap "2F3+5B1". */
static const char *step_text(const struct pipeline *p, const struct action *a)
{
  struct buffer b = {0};
  struct action part[ACTION_PARTS];
  put_text(&b, "", 0);
  for (int k = 0, n = action_parts(a, part); k < n; k++) {
    const char *step = action_text(&part[k]);
    if (p->stages == p->ranks) step += strspn(step, "0123456789");
    put(&b, "%s%s", k ? "+" : "", step);
  }
  return b.text;
}

/* A row for each rank; of large ones tpgen --schedule prints it. */
static void put_schedule(struct buffer *b, const struct pipeline *p)
{
  enum { MOST_RANKS = 32, COLUMNS = 114 };
  int widest = 0, most = 0;
  for (int r = 0; r < p->ranks; r++) {
    if (p->order[r].n > most) most = p->order[r].n;
    for (int i = 0; i < p->order[r].n; i++) {
      int width = (int)strlen(step_text(p, &p->order[r].at[i]));
      if (width > widest) widest = width;
    }
  }
  if (p->ranks > MOST_RANKS || most * (widest + 1) > COLUMNS) return;
  put(b, "\n");
  for (int r = 0; r < p->ranks; r++) {
    put(b, "  %3d ", r);
    for (int i = 0; i < p->order[r].n; i++)
      put(b, " %-*s", widest, step_text(p, &p->order[r].at[i]));
    while (b->text[b->length - 1] == ' ') b->text[--b->length] = 0;
    put(b, "\n");
  }
}

/* The modules that begin stages: the plan, or the balance, cuts before them. */
static char *split_text(void)
{
  const struct pipeline_stages *s = graph->stages;
  struct buffer names = {0};
  put(&names, "%s",
      s->n == 2 ? "stage 1 begins with " : text("stages 1 to %d begin with ", s->n - 1));
  for (int i = 1; i < s->n; i++)
    put(&names, "%s%s", i > 1 ? ", " : "", printable(graph->module[s->first_module[i]].path));
  return wrapped(names.text, ", ", "             ");
}

/* ----------------------------------------------------------------------------------- the step */

struct stage_times *times_of_stages(const struct pipeline *p)
{
  struct stage_times *times = alloc((size_t)p->stages * sizeof *times);
  int dim = graph->stages->mesh_dim;
  for (int i = 0; i < p->stages; i++) {
    const struct stage_figures *f = &of_stage[i];
    times[i].takes[ACTION_F] = f->forward;
    times[i].takes[ACTION_B] = f->backward + f->weights;
    times[i].takes[ACTION_I] = f->backward;
    times[i].takes[ACTION_W] = f->weights;
    times[i].sends_forward = sending_time(f->forward_bytes, dim);
    times[i].sends_backward = sending_time(f->backward_bytes, dim);
  }
  return times;
}

static void put_share(struct buffer *b, const char *what, double part, double whole)
{
  put(b, "  %-12s %12s   %.1f %% of the step\n", what, duration_text(part),
      whole > 0 ? 100 * part / whole : 0.0);
}

/* The step of all stages, in seconds. */
struct pipeline_step {
  double pipeline, idle, update, all, exposed, slowest;
  double flops; /* a second, of a rank */
};

static struct pipeline_step pipeline_step(const struct pipeline *p,
                                          const struct pipeline_cost *cost)
{
  int64_t gather = 0, update = 0; /* ranks gather, and update, at once */
  double exposed = 0;
  for (int r = 0; r < p->ranks; r++) {
    const struct place_figures *place = &of_place[r];
    if (gather < place->gather) gather = place->gather;
    if (update < place->update) update = place->update;
    exposed += (double)place->exposed * 1e-12;
  }
  struct pipeline_step s = {.pipeline = (double)cost->time * 1e-12 * plan_options->accumulate,
                            .update = (double)(gather + update) * 1e-12,
                            .exposed = exposed / p->ranks};
  s.all = s.pipeline + s.update;
  s.slowest = (slowest_of_ranks(world_size()) - 1) * s.all;
  s.all += s.slowest;
  s.idle = cost->idle * s.pipeline;
  s.flops = step_flops() / world_size() / s.all;
  return s;
}

double pipeline_seconds(void)
{
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  const struct pipeline_cost cost = pipeline_cost_of(p, times_of_stages(p));
  return pipeline_step(p, &cost).all;
}

static void put_times(struct buffer *b, const struct pipeline *p, const struct pipeline_cost *cost)
{
  const struct pipeline_step s = pipeline_step(p, cost);
  put_machine(b);
  put(b, "  %-12s %12s", "in all", duration_text(s.all));
  if (step_tokens() > 0)
    put(b, "   %s tokens a second, %s on each rank\n%27s",
        grouped((int64_t)(step_tokens() / s.all)),
        grouped((int64_t)(step_tokens() / s.all / world_size())), "");
  put(b, "   %s a rank, %.1f %% of the peak (MFU)\n", scaled_text(s.flops, "FLOP/s"),
      100 * s.flops / peak_of_device(device(), step_arithmetic()));
  put_share(b, "pipeline", s.pipeline, s.all);
  put_share(b, "idle", s.idle, s.all);
  put_share(b, "update", s.update, s.all);
  put_share(b, "exposed", s.exposed, s.all);
  put_slowest(b, s.slowest, s.all);
  put(b,
      "  idle: a rank waits for other stages; exposed: for collectives; the mean of the ranks\n");
}

void report_pipeline(struct buffer *b)
{
  const struct pipeline_stages *s = graph->stages;
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  struct pipeline_cost units = pipeline_cost(p), cost = pipeline_cost_of(p, times_of_stages(p));
  put_plan_head(b);
  put(b,
      "\npipeline     %d stages over %s, schedule %s, %d micro-batches%s; idle %.1f %%, if all "
      "stages take the same time\n",
      s->n, printable(graph->mesh.name[s->mesh_dim]), printable(s->schedule), microbatches(),
      plan_options->accumulate > 1 ? text(" of each of %d batches", plan_options->accumulate) : "",
      100 * units.idle);
  put(b, "             %s\n", split_text());
  put_schedule(b, p);
  if (device()) put_times(b, p, &cost);
  put(b, "\n  %5s %4s", "stage", "at");
  if (device()) put(b, " %11s %11s %10s", "forward", "backward", "idle");
  put(b, " %15s %15s %9s %20s\n", "sends forward", "sends back", "in flight", "memory of a rank");
  for (int i = 0; i < p->stages; i++) {
    int place = p->rank_of[i];
    const struct stage_figures *f = &of_stage[i];
    put(b, "  %5d %4d", i, place);
    if (device())
      put(b, " %11s %11s %8.1f %%", duration_text((double)f->forward * 1e-12),
          duration_text((double)(f->backward + f->weights) * 1e-12),
          100 * (1 - (double)cost.busy[place] / (double)cost.time));
    put(b, " %15s %15s %9d %20s\n", grouped(f->forward_bytes), grouped(f->backward_bytes),
        f->slots.n, grouped(of_place[place].memory));
  }
  put(b, "  at: its coordinate on %s; sends%s: for a micro-batch; in flight: micro-batches%s\n",
      printable(graph->mesh.name[graph->stages->mesh_dim]),
      device() ? ", forward and backward" : "",
      p->stages > p->ranks ? "; a rank has the memory of all its stages" : "");
}

/* ------------------------------------------------------------------------------ its plan.json */

static json_t *json_stage(const struct pipeline *p, int stage)
{
  const struct stage_figures *f = &of_stage[stage];
  const int place = p->rank_of[stage];
  json_t *row =
      json_pack("{s:i, s:i, s:s, s:I, s:I, s:i, s:I}", "stage", stage, "at", place, "plan",
                text("plan_stage%d.json", place), "sends_forward", (json_int_t)f->forward_bytes,
                "sends_backward", (json_int_t)f->backward_bytes, "in_flight", f->slots.n,
                "memory_of_rank", (json_int_t)of_place[place].memory);
  if (!device()) return row;
  json_member(row, "forward", json_real((double)f->forward * 1e-12));
  json_member(row, "backward", json_real((double)(f->backward + f->weights) * 1e-12));
  return row;
}

static json_t *json_pipeline_step(const struct pipeline *p, const struct pipeline_cost *cost)
{
  const struct pipeline_step s = pipeline_step(p, cost);
  json_t *step =
      json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "device", printable(device()->name),
                "seconds", s.all, "pipeline", s.pipeline, "idle", s.idle, "update", s.update,
                "exposed", s.exposed, "flops", step_flops());
  if (s.slowest > 0) json_member(step, "stragglers", json_real(s.slowest));
  if (step_tokens() > 0) json_member(step, "tokens_per_second", json_real(step_tokens() / s.all));
  json_member(step, "mfu", json_real(s.flops / peak_of_device(device(), step_arithmetic())));
  return step;
}

struct step_figures pipeline_figures(void)
{
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  const struct pipeline_cost cost = pipeline_cost_of(p, times_of_stages(p));
  const struct pipeline_step s = pipeline_step(p, &cost);
  struct step_figures f = {
      .seconds = s.all, .exposed = s.exposed, .idle = s.idle, .tokens = step_tokens()};
  if (device()) f.mfu = s.flops / peak_of_device(device(), step_arithmetic());
  for (int r = 0; r < p->ranks; r++)
    if (of_place[r].memory > f.bytes) f.bytes = of_place[r].memory;
  return f;
}

void report_pipeline_json(struct buffer *b)
{
  const struct pipeline_stages *s = graph->stages;
  const char *why;
  const struct pipeline *p = pipeline_here(&why);
  json_t *stages = json_array(), *whole = json_head();
  for (int i = 0; i < p->stages; i++) json_append(stages, json_stage(p, i));
  json_member(whole, "pipeline",
              json_pack("{s:s, s:s, s:i, s:i, s:o}", "over",
                        printable(graph->mesh.name[s->mesh_dim]), "schedule",
                        printable(s->schedule), "microbatches", microbatches(), "batches",
                        plan_options->accumulate, "stages", stages));
  if (device()) {
    struct pipeline_cost cost = pipeline_cost_of(p, times_of_stages(p));
    json_member(whole, "simulated_step", json_pipeline_step(p, &cost));
  }
  if (options.report) add_pipeline_details(whole, p, times_of_stages(p));
  put(b, "%s\n", plan_json_text(whole));
}
