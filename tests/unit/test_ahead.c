/* Loop-carried collectives: when they are issued and awaited, for which module, where their bytes
   are; and the checker finds faults there. The plan is tests/dump/ahead.lua: four layers, each a
   unit of two weights. */
#include "driver/driver.h"
#include "unit.h"

enum { LAYERS = 4 };

static const char *bucketing = "none";
static const char *copies;  /* of the parameters that are cut over four ranks, or NULL */
static const char *batches; /* in a step, each of which reduces its gradients, or NULL */

static void run_schedule(void)
{
  graph_open();
  run_until(PASS_SCHEDULE);
}

static void schedule_with(const char *prefetch, const char *limit)
{
  static struct definition list[5];
  list[0] = (struct definition){"bucketing", bucketing};
  options.definition = list;
  options.ndefinition = 1;
  if (prefetch) list[options.ndefinition++] = (struct definition){"prefetch", prefetch};
  if (copies) list[options.ndefinition++] = (struct definition){"copies", copies};
  if (batches) list[options.ndefinition++] = (struct definition){"accumulate", batches};
  if (limit) list[options.ndefinition++] = (struct definition){"memory", limit};
  options.plan = "tests/dump/ahead.lua";
  run_schedule();
}

static void compile(const char *prefetch, const char *limit)
{
  set_target("cuda");
  schedule_with(prefetch, limit);
  run_passes(PASS_SCHEDULE + 1, PASS_LAST);
}

static struct function *named(const char *name)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (!strcmp(graph->function[i].name, name)) return &graph->function[i];
  give_up("no function %s", name);
  return NULL;
}

static bool calls(const struct op *op, const char *part, enum iteration iteration)
{
  return op->kind == OP_iteration && op->iteration == iteration &&
         !strcmp(graph->function[op->function].name, part);
}

/* Where the function calls the part for this iteration. */
static int call_in(const char *function, const char *part, enum iteration iteration)
{
  const struct function *f = named(function);
  for (int k = 0; k < f->nop; k++)
    if (calls(&graph->op[f->op[k]], part, iteration)) return k;
  give_up("%s does not call %s", function, part);
  return NONE;
}

static int loop_in(const char *function)
{
  const struct function *f = named(function);
  for (int k = 0; k < f->nop; k++)
    if (graph->op[f->op[k]].kind == OP_loop) return k;
  give_up("%s calls no loop", function);
  return NONE;
}

static const struct op *op_in(const char *function, int k)
{
  const struct function *f = named(function);
  must(k >= 0 && k < f->nop, "%s has %d operations", function, f->nop);
  return &graph->op[f->op[k]];
}

static bool reads(const struct op *op, int value)
{
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  for (int n = op_reads(op, list); n--;)
    if (list[n] == value) return true;
  return false;
}

/* --------------------------------------------------------------------------------- the schedule */

/* A iteration awaits its own weights before it reads them, and begins the next one's at once. */
static void gathered_ahead(const void *with)
{
  (void)with;
  compile(NULL, NULL);
  const struct op *gather = op_in("layers_forward_ahead", 0);
  must(gather->kind == OP_all_gather && scheduled(gather)->prefetch_distance &&
           scheduled(gather)->overlapped,
       "it is not begun ahead");
  int next = call_in("layers_forward", "layers_forward_ahead", NEXT_ITERATION);
  must(op_in("layers_forward", next - 1)->kind == OP_await, "it is not awaited before the next");
  must(&graph->op[op_in("layers_forward", next - 1)->awaits] == gather, "another one is awaited");
  must(reads(op_in("layers_forward", next + 1), gather->out), "what awaits it comes later");
  must(call_in("forward", "layers_forward_ahead", FIRST_ITERATION) < loop_in("forward"),
       "the first iteration's is begun late");
  must(graph->memory->of[gather->out].depth == 2, "%d of it are kept",
       graph->memory->of[gather->out].depth);
  must(scheduled(gather)->exposed < scheduled(gather)->time / 8, "it is waited for");
}

/* Two modules ahead: two are on their way while a third is read, each with a place and an event. */
static void gathered_further_ahead(const void *with)
{
  (void)with;
  compile("2", NULL);
  const struct op *gather = op_in("layers_forward_ahead", 0);
  must(scheduled(gather)->prefetch_distance == 2 && event_slots(gather) == 2, "it is %d ahead",
       scheduled(gather)->prefetch_distance);
  must(graph->memory->of[gather->out].depth == 3, "%d of it are kept",
       graph->memory->of[gather->out].depth);
  int next = call_in("layers_forward", "layers_forward_ahead", NEXT_ITERATION), firsts[2], n = 0;
  must(op_in("layers_forward", next)->ahead == 2, "not the one after the next is begun");
  for (int k = 0; k < loop_in("forward"); k++)
    if (calls(op_in("forward", k), "layers_forward_ahead", FIRST_ITERATION)) firsts[n++ % 2] = k;
  must(n == 2 && op_in("forward", firsts[0])->first == 0 && op_in("forward", firsts[1])->first == 1,
       "the first two are not begun before the loop");
  must(iteration_called(op_in("layers_forward", next), LAYERS - 2) == NONE,
       "one is begun that is none");
  check_order();
}

static void buffers_further_ahead(const void *with)
{
  (void)with;
  bucketing = "units";
  compile("3", NULL);
  const struct op *gather = op_in("layers_forward_ahead", 0);
  must(gather->packed && scheduled(gather)->prefetch_distance == 3,
       "two weights do not come together");
  must(graph->memory->of[gather->buffer].depth == 3, "%d buffers",
       graph->memory->of[gather->buffer].depth);
  for (int k = 0; k < 2; k++)
    must(graph->memory->of[graph->op[gather->body[k]].out].depth == 1, "a weight is kept twice");
  check_order();
}

static int late_in_forward(void)
{
  return call_in("layers_forward", "forward_ahead", IN_LAST_ITERATION);
}

static int await_in(const char *function, const struct op *begun)
{
  const struct function *f = named(function);
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (op->kind == OP_await && &graph->op[op->awaits] == begun) return k;
  }
  give_up("%s does not await it", function);
  return NONE;
}

static void count_late(void *to, int id, int times)
{
  if (scheduled(&graph->op[id])->issued_in_last_iteration) *(int *)to += times;
}

/* What follows the layers is gathered in the last layer's iteration, and takes memory from there
 * on. */
static void gathered_in_the_last_round(const void *with)
{
  (void)with;
  compile(NULL, NULL);
  const struct op *gather = op_in("forward_ahead", 0), *call;
  must(gather->kind == OP_all_gather && scheduled(gather)->issued_in_last_iteration &&
           scheduled(gather)->overlapped,
       "it is not begun late");
  must(late_in_forward() > call_in("layers_forward", "layers_forward_ahead", NEXT_ITERATION),
       "it is begun before the iterations' own");
  call = op_in("layers_forward", late_in_forward());
  for (int iteration = 0; iteration < LAYERS; iteration++)
    must((iteration_called(call, iteration) != NONE) == (iteration == LAYERS - 1),
         "iteration %d begins it", iteration);
  must(await_in("forward", gather) > loop_in("forward"), "it is awaited in the loop");
  int times = 0, made = graph->memory->of[gather->out].first;
  each_op(count_late, &times);
  must(times == 1, "it is counted %d times", times);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    const struct allocation *a = &graph->memory->of[i];
    bool kept = v->stored && v->role == ACTIVATION && a->depth == LAYERS && in_loop(i)->stack == i;
    if (!kept || &graph->function[a->made_by] != named("layers_forward")) continue;
    must(a->first < made, "what a module keeps is said to live from the last iteration on");
  }
  check_order();
}

static void reduced_behind(const void *with)
{
  (void)with;
  compile(NULL, NULL);
  const struct op *end = op_in("layers_backward_behind", 0), *sum = &graph->op[end->awaits];
  must(end->kind == OP_await && sum->kind == OP_reduce_scatter &&
           scheduled(sum)->awaited_next_iteration,
       "it is no reduction");
  int before = call_in("layers_backward", "layers_backward_behind", PREVIOUS_ITERATION);
  must(op_in("layers_backward", before + 1)->out == sum->in[0],
       "it is awaited too soon, or too late");
  must(op_in("layers_backward", before + 2) == sum, "it is not begun where it can be");
  must(call_in("backward", "layers_backward_behind", LAST_ITERATION) > loop_in("backward"),
       "the last iteration's is awaited in the loop");
  must(graph->memory->of[sum->in[0]].depth == 1, "a gradient is kept twice");
}

/* Weights that travel together are copied out of their buffer when they are awaited, gradients into
   it when they are begun: nothing is kept twice, and the gradients themselves not at all. */
static void in_buckets(const void *with)
{
  (void)with;
  bucketing = "units";
  compile(NULL, NULL);
  const struct op *gather = op_in("layers_forward_ahead", 0);
  must(gather->packed && gather->nbody == 2 && scheduled(gather)->prefetch_distance,
       "two weights do not come together");
  for (int k = 0; k < 2; k++)
    must(graph->memory->of[graph->op[gather->body[k]].out].depth == 1, "a weight is kept twice");
  const struct op *sum = &graph->op[op_in("layers_backward_behind", 0)->awaits];
  int before = call_in("layers_backward", "layers_backward_behind", PREVIOUS_ITERATION);
  must(sum->packed && scheduled(sum)->awaited_next_iteration,
       "two gradients are not reduced together");
  must(op_in("layers_backward", before + 1) == sum, "the iteration before is awaited too soon");
  int loop = loop_in("backward"),
      end = call_in("backward", "layers_backward_behind", LAST_ITERATION);
  struct allocation buffer = allocation_of(storage_of(sum->buffer));
  struct allocation in = allocation_of(storage_of(graph->op[sum->body[0]].in[0]));
  must(end > loop && in.last < buffer.last && buffer.first < in.first, "a gradient is held");
  check_order();
}

/* Where each batch of a step reduces its gradients, what is reduced is added to those of the
   batches before when it is awaited: in the next iteration, too. */
static void added_up_behind(const void *with)
{
  bucketing = with;
  batches = "2";
  compile(NULL, NULL);
  const struct function *behind = named("layers_backward_behind"), *f = named("layers_backward");
  const struct op *sum = &graph->op[graph->op[behind->op[0]].awaits];
  must(sum->kind == OP_reduce_scatter && scheduled(sum)->awaited_next_iteration &&
           scheduled(sum)->overlapped,
       "it is no reduction");
  must(behind->nop > 1, "what is reduced is not added up where it is awaited");
  for (int k = 1; k < behind->nop; k++) {
    const struct op *adds = &graph->op[behind->op[k]];
    int *made = alloc((size_t)op_width(adds) * sizeof *made);
    must(op_makes(adds, made) && graph->value[made[0]].role == GRADIENT, "it adds to no gradient");
    must(runs_at(f, behind->op[k]) == NONE, "it is added up twice");
  }
  must(scheduled(sum)->exposed < scheduled(sum)->time / 2, "it is waited for");
  check(PASS_MEMORY);
}

/* What is reduced over the parts and then over the copies is pending as one: the second follows the
   first, and is awaited for both. */
static void chained(const void *with)
{
  bucketing = with;
  copies = "2";
  compile(NULL, NULL);
  const struct op *end = op_in("layers_backward_behind", 0), *sum = &graph->op[end->awaits];
  const struct op *parts = predecessor_of(sum);
  must(sum->kind == OP_all_reduce && scheduled(sum)->awaited_next_iteration &&
           scheduled(sum)->overlapped,
       "the copies are not pending");
  must(parts && parts->kind == OP_reduce_scatter, "it follows nothing");
  must(scheduled(parts)->has_chained && scheduled(parts)->awaited_next_iteration &&
           scheduled(parts)->overlapped,
       "it is not pending");
  const struct function *f = named("layers_backward");
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    must(op->kind != OP_await || op->awaits != (int)(parts - graph->op), "the parts are awaited");
    must(op != parts || &graph->op[f->op[k + 1]] == sum, "it does not follow at once");
  }
  int *held = alloc((size_t)op_width(end) * sizeof *held), n = op_reads(end, held), all = 0;
  for (int i = 0; i < n; i++) all += held[i] == parts->in[0] || held[i] == parts->buffer;
  must(all > 0, "the await does not hold_part what the first works on");
  check_order();
}

/* A layer of the Llama: its norms' gradients are still to be summed over tp, by one collective for
   all layers. */
static void compile_llama(void)
{
  static struct definition list[] = {
      {"preset", "8b"},        {"dp", "16"},          {"tp", "4"},       {"batch", "32"},
      {"checkpoint", "layer"}, {"dtype", "bfloat16"}, {"device", "H100"}};
  set_target("cuda");
  options.plan = "plans/llama3.lua";
  options.definition = list;
  options.ndefinition = sizeof list / sizeof *list;
  run_schedule();
  run_passes(PASS_SCHEDULE + 1, PASS_LAST);
}

/* Where the function reads one of the value's stack. */
static int reader_in(const char *function, int value)
{
  const struct function *f = named(function);
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int *list = alloc((size_t)op_width(op) * sizeof *list);
    for (int n = op_reads(op, list); n--;)
      if (in_loop(list[n])->stack == value) return k;
  }
  return NONE;
}

/* What becomes a gradient behind the loop is there when the last iteration's is awaited. */
static void what_is_summed_later(const void *with)
{
  (void)with;
  compile_llama();
  const struct op *sum = &graph->op[op_in("layers_backward_behind", 0)->awaits];
  int last = call_in("backward", "layers_backward_behind", LAST_ITERATION), summed_later = 0;
  must(sum->packed && scheduled(sum)->awaited_next_iteration && sum->kind == OP_reduce_scatter,
       "they are not together");
  for (int k = 0; k < sum->nbody; k++) {
    int out = graph->op[sum->body[k]].out, reader = reader_in("backward", out);
    if (graph->value[out].role != ACTIVATION) continue;
    summed_later++;
    must(op_in("backward", reader)->kind == OP_all_reduce, "something else reads it");
    must(reader > last, "it is read before it is there");
    must(graph->value[graph->memory->of[out].storage].role == GRADIENT, "it lies elsewhere");
  }
  must(summed_later == 2, "%d of the norms'", summed_later);
  check_order();
}

/* Which modules' weights are gathered, in the order of a step: each once in each direction, all of
   the others' awaited by then. */
struct run {
  int n, begun[4 * LAYERS], pending;
};

static void note_run(void *to, int id, int module)
{
  struct run *r = to;
  const struct op *op = &graph->op[id];
  const struct op *c = op->kind == OP_await ? &graph->op[op->awaits] : op;
  if (!scheduled(c)->prefetch_distance) return;
  r->pending += op == c ? 1 : -1;
  must(r->pending >= 0 && r->pending <= 1 + 2 * scheduled(c)->prefetch_distance, "%d are pending",
       r->pending);
  if (op == c && r->n < 4 * LAYERS) r->begun[r->n++] = module;
}

static void each_module_once(const void *with)
{
  compile(with, NULL);
  static const char *const phase[] = {"forward", "backward"};
  for (int p = 0; p < 2; p++) {
    struct run r = {0};
    each_run_of(named(phase[p]), note_run, &r);
    must(r.n == 2 * LAYERS && r.pending == 0, "%d are gathered, %d not awaited", r.n, r.pending);
    for (int i = 0; i < r.n; i++) {
      int expected = p ? LAYERS - 1 - i / 2 : i / 2;
      must(r.begun[i] == expected, "the %d-th gather of the %s is module %d's", i, phase[p],
           r.begun[i]);
    }
  }
}

static void count_crossing(void *to, int id, int times)
{
  (void)times;
  int *n = to;
  const struct op *op = &graph->op[id];
  n[0] += scheduled(op)->prefetch_distance > 0;
  n[1] += scheduled(op)->awaited_next_iteration;
}

struct asked {
  bool cuda;
  const char *prefetch, *memory;
  int ahead, behind;
};

/* Of four gathers and two reductions. */
static void so_many_cross(const void *with)
{
  const struct asked *a = with;
  int n[2] = {0};
  set_target(a->cuda ? "cuda" : "cpu");
  schedule_with(a->prefetch, a->memory);
  each_op(count_crossing, n);
  must(n[0] == a->ahead && n[1] == a->behind, "%d ahead, %d behind", n[0], n[1]);
}

static void test_schedule(void **state)
{
  (void)state;
  static const struct asked asked[] = {
      {true, NULL, NULL, 4, 2},      {true, "1", NULL, 4, 2},    {true, "3", NULL, 4, 2},
      {true, "0", NULL, 0, 0},       {true, NULL, "2GiB", 4, 2}, {true, "1", "2GiB", 4, 2},
      {true, NULL, "1780MiB", 2, 0}, /* there is room for the forward's */
      {true, NULL, "1GiB", 0, 0},    {false, NULL, NULL, 0, 0},  {false, "1", NULL, 0, 0},
  };
  passes(gathered_ahead, NULL);
  passes(reduced_behind, NULL);
  passes(in_buckets, NULL);
  passes(added_up_behind, "none");
  passes(added_up_behind, "units");
  passes(chained, "none");
  passes(chained, "units");
  passes(what_is_summed_later, NULL);
  passes(each_module_once, NULL);
  passes(each_module_once, "2");
  passes(each_module_once, "3");
  passes(gathered_further_ahead, NULL);
  passes(gathered_in_the_last_round, NULL);
  passes(buffers_further_ahead, NULL);
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) passes(so_many_cross, &asked[i]);
}

/* --------------------------------------------------------------------------------------- faults */

static void leave_out(const char *function, int k)
{
  struct function *f = named(function);
  memmove(f->op + k, f->op + k + 1, (size_t)(--f->nop - k) * sizeof *f->op);
}

static void swap(const char *function, int i, int k)
{
  int *op = named(function)->op, was = op[i];
  op[i] = op[k];
  op[k] = was;
}

static int next_in_forward(void)
{
  return call_in("layers_forward", "layers_forward_ahead", NEXT_ITERATION);
}
static int before_in_backward(void)
{
  return call_in("layers_backward", "layers_backward_behind", PREVIOUS_ITERATION);
}
static int id_of(const struct op *op)
{
  return (int)(op - graph->op);
}

static struct op *gather(void)
{
  return &graph->op[named("layers_forward_ahead")->op[0]];
}

/* A trial that is given up leaves nothing behind. */
static void tried_and_given_up(const void *with)
{
  (void)with;
  set_target("cuda");
  schedule_with(NULL, NULL);
  const int op = (int)(gather() - graph->op), value = gather()->out, stack = in_loop(value)->stack;
  const int distance = scheduled(gather())->prefetch_distance, rows = graph->in_loops->nvalue;
  const int nop = named("layers_forward")->nop, nfunction = graph->nfunction;
  const struct edit_state before = remember_program();
  row_in_loop(value)->stack = stack == NONE ? value : NONE;
  row_in_loop(rows)->stack = value;
  schedule_of(op)->prefetch_distance++;
  add_part((int)(named("layers_forward") - graph->function), "of_trial", &(struct list){0});
  leave_out_of(named("layers_forward"), named("layers_forward")->op[0]);
  go_back(&before);
  must(in_loop(value)->stack == stack && in_loop(rows)->stack == NONE, "a value is in a stack");
  must(scheduled(gather())->prefetch_distance == distance, "a gather is issued for another layer");
  must(named("layers_forward")->nop == nop, "a function lacks an operation");
  must(graph->nfunction == nfunction, "there is a function more");
}

static void test_trial(void **state)
{
  (void)state;
  passes(tried_and_given_up, NULL);
}

static void put_nothing(void)
{
}
static void kept_twice(void)
{
  graph->memory->of[gather()->out].depth = 2;
}
static void buffered_twice(void)
{
  graph->memory->of[gather()->buffer].depth = 2;
}
static void second_not_begun(void)
{
  struct function *f = named("forward");
  int k = 0;
  while (!calls(&graph->op[f->op[k]], "layers_forward_ahead", FIRST_ITERATION) ||
         !graph->op[f->op[k]].first)
    k++;
  leave_out("forward", k);
}
static void events_in_common(void)
{
  schedule_of(named("layers_forward_ahead_2")->op[0])->event = scheduled(gather())->event + 1;
}
static void next_of_two_begun(void)
{
  graph->op[named("layers_forward")->op[next_in_forward()]].ahead = 1;
}
static struct op *copies_summed(void)
{
  return &graph->op[graph->op[named("layers_backward_behind")->op[0]].awaits];
}
static void follows_nothing(void)
{
  schedule_of(id_of(copies_summed()))->chained_to = NONE;
}
static void follows_another(void)
{
  int other = graph->op[named("layers_backward_behind_2")->op[0]].awaits;
  schedule_of(id_of(copies_summed()))->chained_to = other;
}
static void event_of_its_leader(void)
{
  int event = scheduled(copies_summed())->event;
  schedule_of(id_of(predecessor_of(copies_summed())))->event = event;
}
static struct op *late(void)
{
  return &graph->op[named("forward_ahead")->op[0]];
}
static void late_not_begun(void)
{
  leave_out("layers_forward", late_in_forward());
}
static void late_not_awaited(void)
{
  leave_out("forward", await_in("forward", late()));
}
static void late_begun_twice(void)
{
  int *op = named("layers_forward")->op, k = late_in_forward();
  op[k + 1] = op[k];
}
static void late_awaited_late(void)
{
  int k = await_in("forward", late());
  swap("forward", k, k + 1);
}
static void not_awaited(void)
{
  leave_out("layers_forward", next_in_forward() - 1);
}
static void not_begun(void)
{
  leave_out("layers_forward", next_in_forward());
}
static void first_not_begun(void)
{
  leave_out("forward", call_in("forward", "layers_forward_ahead", FIRST_ITERATION));
}
static void first_begun_twice(void)
{
  struct function *f = named("forward");
  int k = call_in("forward", "layers_forward_ahead", FIRST_ITERATION);
  f->op[k + 1] = f->op[k];
}
static void awaited_late(void)
{
  swap("layers_forward", next_in_forward() - 1, next_in_forward() + 1);
}
static void begun_too_soon(void)
{
  swap("layers_forward", next_in_forward() - 1, next_in_forward());
}
static void kept_once(void)
{
  graph->memory->of[gather()->out].depth = 1;
}
static void one_event(void)
{
  int event = schedule_of(named("layers_forward_ahead_2")->op[0])->event;
  schedule_of(id_of(gather()))->event = event;
}
static void never_awaited(void)
{
  leave_out("layers_backward", before_in_backward());
}
static void awaited_behind_late(void)
{
  swap("layers_backward", before_in_backward(), before_in_backward() + 1);
}
static void last_not_awaited(void)
{
  leave_out("backward", call_in("backward", "layers_backward_behind", LAST_ITERATION));
}
static void passed_in_its_group(void)
{
  struct function *f = named("layers_forward");
  const struct function *first = named("forward");
  for (int k = 0; k < first->nop; k++) {
    const struct op *op = &graph->op[first->op[k]];
    if (is_collective(op->kind) && !scheduled(op)->overlapped) f->op[f->nop++] = first->op[k];
    if (is_collective(op->kind) && !scheduled(op)->overlapped) return;
  }
  give_up("forward has no collective");
}

static const struct fault {
  void (*put)(void);
  const char *found, *prefetch, *bucketing, *copies;
} faults[] = {
    {late_not_begun, "it awaits what is not pending", NULL, "none", NULL},
    {late_not_awaited, "it reads what a pending collective writes", NULL, "none", NULL},
    {late_begun_twice, "two that are pending have one event", NULL, "none", NULL},
    {late_awaited_late, "it reads what a pending collective writes", NULL, "none", NULL},
    {follows_nothing, "it reads what a pending collective writes", NULL, "none", "2"},
    {follows_another, "it reads what a pending collective writes", NULL, "none", "2"},
    {event_of_its_leader, "two that are pending have one event", NULL, "none", "2"},
    {never_awaited, "it writes what a pending collective reads", NULL, "none", "2"},
    {last_not_awaited, "it is not awaited where its function ends", NULL, "none", "2"},
    {never_awaited, "it writes what a pending collective writes", NULL, "units", "2"},
    {kept_twice, "pending collective writes", "2", "none", NULL},
    {kept_twice, "pending collective writes", "3", "none", NULL},
    {buffered_twice, "pending collective writes", "3", "units", NULL},
    {second_not_begun, "it awaits what is not pending", "2", "none", NULL},
    {events_in_common, "two that are pending have one event", "2", "none", NULL},
    {next_of_two_begun, "", "2", "none", NULL},
    {last_not_awaited, "it is not awaited where its function ends", "2", "none", NULL},
    {not_awaited, "two that are pending have one event", NULL, NULL, NULL},
    {not_begun, "it awaits what is not pending", NULL, NULL, NULL},
    {first_not_begun, "it awaits what is not pending", NULL, NULL, NULL},
    {first_begun_twice, "two that are pending have one event", NULL, NULL, NULL},
    {awaited_late, "it reads what a pending collective writes", NULL, NULL, NULL},
    {begun_too_soon, "two that are pending have one event", NULL, NULL, NULL},
    {kept_once, "pending collective writes", NULL, NULL, NULL},
    {one_event, "two that are pending have one event", NULL, NULL, NULL},
    {never_awaited, "it writes what a pending collective reads", NULL, NULL, NULL},
    {awaited_behind_late, "it writes what a pending collective reads", NULL, NULL, NULL},
    {last_not_awaited, "it is not awaited where its function ends", NULL, NULL, NULL},
    {passed_in_its_group, "a collective passes one of its group that is pending", NULL, NULL, NULL},
};

static void put_fault(const void *with)
{
  const struct fault *fault = with;
  if (fault->bucketing) bucketing = fault->bucketing;
  copies = fault->copies;
  compile(fault->prefetch, NULL);
  fault->put();
  check_order();
}

static void put_llama_fault(const void *with)
{
  (void)with;
  compile_llama();
  int last = call_in("backward", "layers_backward_behind", LAST_ITERATION);
  struct function *f = named("backward");
  for (bool passed = false; !passed && last + 1 < f->nop; last++) {
    passed = op_in("backward", last + 1)->kind == OP_all_reduce;
    swap("backward", last, last + 1);
  }
  check(PASS_MEMORY);
}

static void test_faults(void **state)
{
  (void)state;
  static const struct fault nothing = {put_nothing, "", NULL, NULL, NULL};
  passes(put_fault, &nothing);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refused(put_fault, &faults[i], -SIGABRT, "memory", faults[i].found, NULL);
  refused(put_llama_fault, NULL, -SIGABRT, "memory", "it reads what nothing has made yet", NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schedule),
      cmocka_unit_test(test_trial),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
