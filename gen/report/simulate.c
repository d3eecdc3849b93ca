/* simulate.c: the time of a step on rank 0, by the model that also decides the schedule.

   Takes   the finished program.
   Leaves  it unchanged, and when each operation begins and ends.

   The main stream runs the operations in their order, for the times of cost.c; collectives run
   beside them by the model of target/stream_times.c. A blocking one is awaited at once: on the CPU
   target all are, but for those of a plan with overlap. Loops are simulated iteration by iteration.
   Arithmetic is slower beside a collective. Where the last of several batches also reduces the sums
   of all, it is simulated by itself, after one of the others. On a GPU that was measured the host
   starts one kernel after the other: none begins before. In a graph (run.sh --graph) the host
   starts them all at once. In the end the step is as much longer as the slowest of many GPUs is
   slower (device.c). Not modelled: links that groups share. */
#include "report/report.h"

#include <string.h>

/* The figures of cost.c for an operation. */
struct costs {
  bool known; /* for good: not of a kernel whose memory counts */
  int64_t takes, copies_in, copies_out;
};

static struct {
  const struct graph *of;
  struct simulated result;
  struct stream_times times;
  int *pending; /* by operation, and prefetch distance: the index in `ran` of a collective that is
                   not awaited yet */
  int64_t *taken, *waited;
  int *runs;              /* by operation, like the two before */
  int module;             /* of the operation that runs */
  bool is_before_last;    /* a batch runs that others follow */
  int64_t launch, issued; /* picoseconds of the host for a kernel, and when it has issued all */
  int64_t starting;       /* of a phase, for the host */
  struct costs *cost;     /* by operation, too: loops run each a hundred times */
} run;

static const struct costs *cost_of(int id)
{
  const struct op *op = &graph->op[id];
  struct costs *c = &run.cost[id];
  if (c->known) return c;
  const bool by_use = is_measured() && !is_collective(op->kind);
  *c = (struct costs){.known = !by_use,
                      .takes =
                          by_use ? time_taken_here(op, bytes_since, &run.module) : time_taken(op)};
  if (!is_collective(op->kind)) return c;
  c->copies_in = copies_in_time(op);
  c->copies_out = copies_out_time(op);
  return c;
}

static struct ran *note(int op, int module, int stream, int64_t begin, int64_t end)
{
  struct simulated *t = &run.result;
  GROW(t->ran, t->n, t->room);
  t->ran[t->n] =
      (struct ran){.op = op, .module = module, .stream = stream, .begin = begin, .end = end};
  return &t->ran[t->n++];
}

/* The host issues a kernel, or a collective. */
static void issue(void)
{
  run.issued += run.launch;
  if (run.times.now >= run.issued) return;
  run.starting += run.issued - run.times.now;
  run.times.now = run.issued;
}

static void compute(int op, int module, int64_t takes, bool copies)
{
  issue();
  const int64_t end = plus_times(run.times.now, 1, time_beside_streams(&run.times, takes));
  struct ran *r = note(op, module, NONE, run.times.now, end);
  r->what = copies ? COPIES : COMPUTES;
  run.times.now = end;
}

static void wait_for(struct ran *r)
{
  r->waited = wait_for_stream(&run.times, r->end);
  run.result.waited[graph->op[r->op].phase] += r->waited;
  run.waited[r->op] += r->waited;
}

static int *pending_of(int id, int module)
{
  return &run.pending[id * MOST_PREFETCHED + (module == NONE ? 0 : module % MOST_PREFETCHED)];
}

/* When the predecessor of this collective ends. */
static int64_t end_of_predecessor(const struct op *op, int module)
{
  int before = scheduled(op)->chained_to;
  if (before == NONE || *pending_of(before, module) == NONE) return 0;
  return run.result.ran[*pending_of(before, module)].end;
}

static void begin_collective(int id, int module)
{
  const struct op *op = &graph->op[id];
  bool beside = runs_beside(op);
  const struct costs *cost = cost_of(id);
  if (cost->copies_in) compute(id, module, cost->copies_in, true);
  issue();
  const struct stream_issue issue = {.group = op->group,
                                     .async = beside,
                                     .has_chained = beside && scheduled(op)->has_chained,
                                     .takes = cost->takes,
                                     .copies_out = cost->copies_out,
                                     .predecessor_ends = end_of_predecessor(op, module)};
  const int64_t begin = issue_on_stream(&run.times, &issue);
  struct ran *r = note(id, module, beside ? op->group : NONE, begin, run.times.until[op->group]);
  r->what = MOVES;
  run.taken[id] += r->end - r->begin;
  run.runs[id]++;
  if (beside) {
    *pending_of(id, module) = run.result.n - 1;
    return;
  }
  wait_for(r);
  if (cost->copies_out) compute(id, module, cost->copies_out, true);
}

static void await(int id, int module)
{
  int *pending = pending_of(id, module);
  if (*pending == NONE) return;
  wait_for(&run.result.ran[*pending]);
  *pending = NONE;
  int before = scheduled(&graph->op[id])->chained_to;
  if (before != NONE) *pending_of(before, module) = NONE;
  int64_t after = scheduled(&graph->op[id])->has_chained ? 0 : cost_of(id)->copies_out;
  if (after) compute(id, module, after, true);
}

static void run_op(void *unused, int id, int module)
{
  const struct op *op = &graph->op[id];
  (void)unused;
  run.module = module;
  if (op->kind == OP_loop || (op->last_batch && run.is_before_last)) return;
  if (is_collective(op->kind))
    begin_collective(id, module);
  else if (op->kind == OP_await)
    await(op->awaits, module);
  else {
    const int64_t takes = cost_of(id)->takes;
    if (takes) compute(id, module, takes, false);
  }
  if (is_measured()) note_use(op, module);
}

static void only_note_use(void *unused, int id, int module)
{
  (void)unused;
  note_use(&graph->op[id], module);
}

/* The step before leaves its bytes in the caches. */
static void use_in_step_before(void)
{
  begin_uses();
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (is_phase(f) && f->phase != CONSTANTS) each_run_of(f, only_note_use, NULL);
  }
}

static void note_last_batch(void *has, int id, int module)
{
  (void)module;
  *(bool *)has |= graph->op[id].last_batch;
}

/* Runs a function of a phase, as often as a step does. Returns the picoseconds of all runs. */
static double run_phase(int i)
{
  const struct function *f = &graph->function[i];
  struct simulated *t = &run.result;
  int runs = runs_of_phase(f->phase);
  bool differs = false;
  double before = 0;
  each_run_of(f, note_last_batch, &differs);
  for (int last = !(differs && runs > 1); last < 2; last++) {
    const int first = t->n, times = last ? runs : runs - 1;
    const int64_t began = run.times.now, issued = run.issued;
    run.is_before_last = !last;
    run.starting = 0;
    each_run_of(f, run_op, NULL);
    t->took[i] = run.times.now - began;
    t->starting += times * (double)run.starting;
    for (int k = first; k < t->n; k++) {
      const struct ran *r = &t->ran[k];
      *(r->what == MOVES ? &t->moving : &t->computing) += times * (double)(r->end - r->begin);
    }
    if (last) break;
    t->n = first;
    before = times * (double)t->took[i];
    runs = 1;
    run.times.now = began; /* no stream is busy where a phase ends */
    run.issued = issued;
    for (int g = 0; g < graph->ngroup; g++) run.times.until[g] = 0;
  }
  return before + runs * (double)t->took[i];
}

static void simulate(double launch)
{
  memset(&run, 0, sizeof run);
  run.of = graph;
  run.launch = picoseconds(launch);
  open_stream_times(&run.times);
  run.result.took = alloc((size_t)(graph->nfunction + 1) * sizeof *run.result.took);
  run.result.took_all = alloc((size_t)(graph->nfunction + 1) * sizeof *run.result.took_all);
  run.pending = alloc((size_t)graph->nop * MOST_PREFETCHED * sizeof *run.pending);
  run.taken = alloc((size_t)graph->nop * sizeof *run.taken);
  run.waited = alloc((size_t)graph->nop * sizeof *run.waited);
  run.runs = alloc((size_t)graph->nop * sizeof *run.runs);
  run.cost = alloc((size_t)graph->nop * sizeof *run.cost);
  for (int i = 0; i < graph->nop * MOST_PREFETCHED; i++) run.pending[i] = NONE;
  if (is_measured()) use_in_step_before();
  double picoseconds = 0;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f) || f->phase == CONSTANTS) continue;
    run.result.took_all[i] = run_phase(i);
    picoseconds += run.result.took_all[i];
  }
  struct simulated *t = &run.result;
  t->step = picoseconds * 1e-12;
  t->computing *= 1e-12;
  t->moving *= 1e-12;
  t->starting *= 1e-12;
  t->waiting = t->step - t->computing - t->starting;
  if (graph->stages) return; /* the step of all stages has it */
  t->slowest = (slowest_of_ranks(world_size()) - 1) * t->step;
  t->step += t->slowest;
}

const struct simulated *simulated(void)
{
  if (run.of == graph) return &run.result;
  const double launch = is_measured() ? measured_launch() : 0;
  simulate(0);
  const double in_graph = run.result.step;
  if (launch <= 0) return &run.result;
  simulate(launch);
  run.result.in_graph = in_graph;
  return &run.result;
}

void simulated_mean(int op, int64_t *takes, int64_t *waited)
{
  simulated();
  int times = run.runs[op] ? run.runs[op] : 1;
  *takes = run.taken[op] / times;
  *waited = run.waited[op] / times;
}

double step_mfu(void)
{
  const struct device *d = device();
  double seconds = simulated()->step;
  if (!d || seconds <= 0) return 0;
  return step_flops() / world_size() / seconds / peak_of_device(d, step_arithmetic());
}
