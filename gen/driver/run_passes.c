/* run_passes.c: runs the passes one after the other, in the order of ir/passes.h. */
#include "driver/driver.h"

#include <string.h>

static void (*const run[PASS_COUNT])(void) = {
#define PASS(NAME, name) [PASS_##NAME] = name,
#include "ir/passes.h"
#undef PASS
};

void run_passes(enum pass first, enum pass last)
{
  for (enum pass pass = first; pass <= last; pass++) {
    if (pass == PASS_OUTLINE && options.explain) {
      leave_out_dead(); /* outline does this first, too */
      gather_explained();
    }
    run[pass]();
    check(pass);
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
   micro-batches in flight or more: nothing is to be found out about this one. */
static int equal_place(int place, uint64_t *hash)
{
  const char *why;
  const int *in_flight = pipeline_cost(pipeline_here(&why)).in_flight;
  hash[place] = hash_of_program();
  if (options.dump || options.explain || are_written()) return NONE;
  for (int other = 0; other < place; other++)
    if (hash[other] == hash[place] && in_flight[other] >= in_flight[place]) return other;
  return NONE;
}

/* At how many places behind this one there are ranks for which files are written. */
static int written_behind(const struct graph *whole, int place)
{
  const int dim = whole->stages->mesh_dim;
  bool *is_written = alloc((size_t)whole->mesh.size[dim] * sizeof *is_written);
  int coordinate[MAX_MESH], n = 0;
  for (int r = options.first_rank; r < world_size() && r <= options.last_rank; r++) {
    coordinate_of(r, coordinate);
    is_written[coordinate[dim]] = true;
  }
  for (int other = place + 1; other < whole->mesh.size[dim]; other++) n += is_written[other];
  return n;
}

/* Places take about as much memory each, which stays taken. */
static void check_room(const struct graph *whole, int place, size_t before)
{
  const double each = (double)(arena_used() - before), left = written_behind(whole, place);
  if (place && are_written() && (double)arena_used() + each * left > (double)arena_room())
    plan_error(
        0,
        "there is no room for the programs of all places of the pipeline: each takes %.0f of "
        "%zu MiB; say which ranks to write, as in --ranks 0-7",
        each / (1 << 20), arena_room() >> 20);
}

/* The passes after `redistribute`, for the ranks at each place of the pipeline. */
static void run_stages(struct graph *whole, void (*finish)(void))
{
  int places = whole->mesh.size[whole->stages->mesh_dim];
  uint64_t *hash = alloc((size_t)places * sizeof *hash);
  struct graph *finished = NULL;
  struct stage_room room = {0};
  for (int place = 0; place < places; place++) {
    const size_t before = arena_used();
    graph = program_of_stages(whole, place, &room);
    int other = equal_place(place, hash);
    if (other != NONE) {
      note_equal_stage(other);
      continue;
    }
    finished = graph;
    run_passes(PASS_REDISTRIBUTE + 1, options.dump ? pass_of(options.dump) : PASS_LAST);
    if (options.dump) continue;
    finish();
    check_room(whole, place, before);
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
  run_stages(whole, finish);
}

void run_all(void (*finish)(void))
{
  if (!options.from) {
    run_passes(0, 0);
    run_rest(0, finish);
    return;
  }
  enum pass pass = pass_of(options.from);
  read_dump(options.plan, dump_file(options.plan), pass);
  check_ranks();
  check(pass);
  if (pass >= PASS_KERNEL_FORMS) kernel_forms(); /* a dump has them as comments */
  bugs_are_of(options.plan, NULL, 0);            /* operations are numbered anew */
  continue_stages(pass);
  dump(pass);
  run_rest(pass, finish);
}
