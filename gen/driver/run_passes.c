/* run_passes.c: runs the passes one after the other, in the order of ir/passes.h. */
#include "driver/driver.h"

#include <string.h>

static void (*const run[PASS_COUNT])(void) = {
#define PASS(NAME, name) [PASS_##NAME] = name,
#include "ir/passes.h"
#undef PASS
};

static void run_rest(enum pass last, void (*finish)(void));

/* From `plan` on, in a trial. */
static void try_from_plan(void)
{
  run_rest(PASS_PLAN - 1, note_trial);
  if (graph->stages) note_trial_of_pipeline();
}

/* From `absorb` on, in a trial: a program that generates has no pipeline. */
static void try_from_absorb(void)
{
  run_rest(PASS_ABSORB - 1, note_trial);
}

/* From `optimize` on, in a trial. */
static void try_from_optimize(void)
{
  run_rest(PASS_OPTIMIZE - 1, note_trial);
  if (graph->stages) note_trial_of_pipeline();
}

/* From `recompute` on, at one place of a pipeline. */
static void try_from_recompute(void)
{
  run_passes(PASS_RECOMPUTE, PASS_LAST);
  note_trial();
}

void try_from_propagate(void)
{
  run_rest(PASS_PROPAGATE - 1, note_trial);
  if (graph->stages) note_trial_of_pipeline();
}

void run_passes(enum pass first, enum pass last)
{
  for (enum pass pass = first; pass <= last; pass++) {
    if (pass == PASS_ABSORB) decide_caches(try_from_absorb);
    if (pass == PASS_OPTIMIZE) decide_reductions(try_from_optimize);
    if (pass == PASS_RECOMPUTE) decide_recomputation(try_from_recompute);
    if (pass == PASS_OUTLINE && are_decisions_explained()) note_names();
    if (pass == PASS_OUTLINE && options.explain) {
      leave_out_dead(); /* outline does this first, too */
      gather_explained();
    }
    run[pass]();
    if (pass == PASS_LUA) search_parallel_plan(run_all);
    if (pass == PASS_PLAN - 1) decide_placements(try_from_plan);
    if (in_trial()) continue;
    if (!options.estimates) check(pass);
    dump(pass);
  }
}

void run_until(enum pass last)
{
  run_passes(0, last);
}

static enum pass pass_of(const char *name)
{
  enum pass pass = 0;
  while (strcmp(pass_name[pass], name)) pass++;
  return pass;
}

/* The text of the file, which is no longer than any dump. */
static const char *dump_file(const char *path)
{
  const size_t most = (size_t)1 << 28;
  size_t length;
  const char *why, *dump = read_file(path, most, &length, &why);
  if (!dump) usage_error(3, "cannot read %s: %s", path, why);
  if (strlen(dump) != length) usage_error(3, "%s: it has a byte 0, and is not text", path);
  return dump;
}

/* Whether files are written for ranks of the graph. */
static bool are_written(void)
{
  for (int r = 0; r < world_size(); r++)
    if (r >= options.first_rank && r <= options.last_rank && runs_here(r)) return true;
  return false;
}

/* A place before this one, whose ranks run the same program for other layers, with as many
   micro-batches in flight or more: this place needs no analysis of its own. */
static int equal_place(int place, uint64_t *hash, const int *in_flight)
{
  hash[place] = hash_of_program();
  if (options.dump || options.explain || are_decisions_explained() || are_written()) return NONE;
  for (int other = 0; other < place; other++)
    if (hash[other] == hash[place] && in_flight[other] >= in_flight[place]) return other;
  return NONE;
}

/* The number of places behind this one that have ranks for which files are written. */
static int written_behind(int place)
{
  const int dim = graph->stages->mesh_dim;
  bool *is_written = alloc((size_t)graph->mesh.size[dim] * sizeof *is_written);
  int coordinate[MAX_MESH], n = 0;
  for (int r = options.first_rank; r < world_size() && r <= options.last_rank; r++) {
    coordinate_of(r, coordinate);
    is_written[coordinate[dim]] = true;
  }
  for (int other = place + 1; other < graph->mesh.size[dim]; other++) n += is_written[other];
  return n;
}

/* The passes from this one on, for the ranks at one place. */
static void run_place(enum pass first, size_t before, void (*finish)(void))
{
  run_passes(first, options.dump ? pass_of(options.dump) : PASS_LAST);
  if (options.dump) return;
  finish();
  /* Places take about as much memory each, which is not freed. */
  const int place = graph->stages->here;
  const double each = (double)(arena_used() - before), left = written_behind(place);
  if (place && are_written() && (double)arena_used() + each * left > (double)arena_room())
    plan_error(
        0,
        "there is no room for the programs of all places of the pipeline: each takes %.0f of "
        "%zu MiB; say which ranks to write, as in --ranks 0-7",
        each / (1 << 20), arena_room() >> 20);
}

/* The passes after `redistribute`, for the ranks at each place of the pipeline. */
static void run_places(struct graph *whole, void (*finish)(void))
{
  int places = whole->mesh.size[whole->stages->mesh_dim];
  uint64_t *hash = alloc((size_t)places * sizeof *hash);
  struct graph *finished = NULL;
  struct stage_room room = {0};
  const char *why;
  const int *in_flight = pipeline_cost(pipeline_here(&why)).in_flight;
  for (int place = 0; place < places; place++) {
    const size_t before = arena_used();
    graph = program_of_stages(whole, place, &room);
    int other = equal_place(place, hash, in_flight);
    if (other != NONE) {
      note_equal_stage(other);
      continue;
    }
    own_program_of_stages();
    finished = graph;
    run_place(PASS_REDISTRIBUTE + 1, before, finish);
  }
  graph = finished;
}

/* The passes after that one. */
static void run_rest(enum pass last, void (*finish)(void))
{
  struct graph *whole = graph;
  if (!graph->stages || last >= PASS_LAST) {
    run_passes(last + 1, PASS_LAST);
    finish();
    return;
  }
  if (last < PASS_REDISTRIBUTE) run_passes(last + 1, PASS_REDISTRIBUTE);
  make_edges();
  /* The facts about all stages that the programs of places need. */
  struct all_stages *all = alloc(sizeof *all);
  forward_flops(all->flops);
  all->gathers_each_batch = gathers_each_batch();
  all->has_row_bounds = has_row_bounds();
  all->has_values_by_rows = has_values_by_rows();
  all->multiplies_by_onednn = multiplies_by_onednn();
  all->has_step_number = has_step_number();
  all->text = text_inputs();
  graph->stages->all = all;
  run_places(whole, finish);
}

/* The graphs of a dump, and the options that each one states. */
struct graphs {
  int n, room;
  struct {
    struct graph *graph;
    struct plan_options *options;
  } * at;
};

static struct graphs read_graphs(enum pass pass)
{
  struct graphs all = {0};
  open_dump_file(options.plan, dump_file(options.plan), pass);
  while (read_graph()) {
    if (!all.n) check_ranks();
    continue_stages(pass);
    check(pass);
    if (pass >= PASS_KERNEL_FORMS) kernel_forms(); /* a dump has them as comments */
    GROW(all.at, all.n, all.room);
    all.at[all.n].graph = graph;
    all.at[all.n++].options = plan_options;
  }
  bugs_are_of(options.plan, NULL, 0); /* operations are numbered anew */
  return all;
}

/* async_tp notes in the options which matches it found at this place or one before. */
static void keep_met(const struct plan_options *before)
{
  for (int i = 0; i < plan_options->nasync && i < before->nasync; i++)
    plan_options->async[i].met |= before->async[i].met;
}

void run_all(void (*finish)(void))
{
  if (!options.from) {
    run_passes(0, 0);
    run_rest(0, finish);
    return;
  }
  enum pass pass = pass_of(options.from);
  const struct graphs read = read_graphs(pass);
  if (graph->stages && pass > PASS_REDISTRIBUTE) {
    /* The passes after that one, for each graph of a dump. */
    for (int i = 0; i < read.n; i++) {
      const size_t before = arena_used();
      const struct plan_options *last = plan_options;
      graph = read.at[i].graph;
      plan_options = read.at[i].options;
      if (i) keep_met(last);
      dump(pass);
      run_place(pass + 1, before, finish);
    }
    return;
  }
  dump(pass);
  run_rest(pass, finish);
}
