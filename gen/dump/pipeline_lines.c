/* pipeline_lines.c: the lines of a pipeline in a dump; read.c has the grammar. After the pass
   `redistribute` each place of the pipeline has a program of its own, and the dump has all of them:
   each one repeats the lines that all have in common. */
#include "dump/dump.h"

#include <string.h>

bool has_work_of_stages(enum pass after)
{
  return graph->stages && after < PASS_OUTLINE;
}

/* -------------------------------------------------------------------------------------- writing */

void put_pipeline_lines(int usual_place)
{
  const struct pipeline_stages *s = graph->stages;
  static const char *const work[] = {WORK_WORDS};
  if (!s) return;
  put(&d.b, "pipeline %d over ", s->n);
  put_name(graph->mesh.name[s->mesh_dim]);
  put_pipeline_fields(s, &(struct pipeline_stages){.here = usual_place});
  if (s->here != NONE) put_all_stages_fields(s->all, &(struct all_stages){0});
  for (int i = 0; i < s->nmay_begin; i++) {
    put(&d.b, " may_begin ");
    put_module(s->may_begin[i]);
  }
  put(&d.b, "\n");
  for (int i = 0; i < s->n; i++) {
    put(&d.b, "stage at %d", s->coordinate[i]);
    put(&d.b, s->is_split[i] ? " split" : "");
    put(&d.b, i ? " begins " : "");
    if (i) put_module(s->first_module[i]);
    if (d.after == PASS_MEMORY) put_slots_fields(&graph->memory->slots[i], &(struct slots){0});
    put(&d.b, "\n");
  }
  for (int i = 0; i < s->nedge; i++)
    put(&d.b, "stage_edge %d %d %s %s\n", s->edge[i].from, s->edge[i].to, work[s->edge[i].made],
        work[s->edge[i].read]);
}

void put_work_of_stage(int op)
{
  if (!has_work_of_stages(d.after)) return;
  const struct work_of_stage w = {stage_of(op), is_of_weights(op)};
  put_work_of_stage_fields(&w, &(struct work_of_stage){.stage = NONE});
}

/* -------------------------------------------------------------------------------------- reading */

/* The names of inputs go to the program's script. */
static void check_texts(const struct text_inputs *of)
{
  const char *const names[] = {of->input, of->target, of->ends, of->rating};
  bool fits = of->rows >= 0 && of->rows <= 2 && of->batch >= 0 && of->sequence >= 0 &&
              of->vocabulary >= 0 && (of->sequence == 0 || (of->input && of->target));
  for (int i = 0; i < 4; i++) fits &= !names[i] || is_plain_name(names[i]);
  if (!fits) dump_error(token_line(), "these are no inputs of texts");
}

/* Up to `redistribute` the graph is that of all places, and after it that of the next place. */
static void check_place(const struct pipeline_stages *s)
{
  const int line = token_line(), here = s->here, next = r.place;
  const char *last = pass_name[PASS_REDISTRIBUTE];
  if (r.after <= PASS_REDISTRIBUTE && here != NONE)
    dump_error(line, "up to %s the graph is that of all places of a pipeline, and of none alone",
               last);
  if (r.after <= PASS_REDISTRIBUTE) return;
  if (here == NONE)
    dump_error(line, "after %s each place of a pipeline has a graph of its own: here is missing",
               last);
  if (here < 0 || here >= graph->mesh.size[s->mesh_dim])
    dump_error(line, "here %d: there is no such place of the pipeline", here);
  if (here < next) dump_error(line, "place %d of the pipeline stands above, too", here);
  if (here > next)
    dump_error(line, "here %d: place %d of the pipeline is missing before it", here, next);
  const double *flops = s->all->flops;
  for (int i = 0; i < 2; i++)
    if (!(flops[i] >= 0 && flops[i] <= MOST_FLOPS))
      dump_error(line, "the flops of a step are between 0 and %g", MOST_FLOPS);
}

void read_pipeline(void)
{
  if (graph->stages) dump_error(token_line(), "there is a pipeline above");
  struct pipeline_stages *s = alloc(sizeof *s);
  struct list may_begin = {0};
  int n = (int)token_number(1, MOST_STAGES_READ);
  if (!take_word("over")) unexpected("over");
  *s = (struct pipeline_stages){.n = n, .mesh_dim = read_MESH_DIM(), .here = NONE};
  s->all = alloc(sizeof *s->all);
  while (!at_line_end())
    if (take_word("may_begin"))
      add(&may_begin, read_MODULE());
    else if (!read_pipeline_field(s) && !read_all_stages_field(s->all))
      unexpected("a field of a pipeline, or the line's end");
  if (!s->schedule) dump_error(token_line(), "the pipeline has no schedule");
  check_place(s);
  check_texts(&s->all->text);
  r.slots = alloc((size_t)n * sizeof *r.slots);
  s->first_module = alloc((size_t)n * sizeof *s->first_module);
  s->coordinate = alloc((size_t)n * sizeof *s->coordinate);
  s->is_split = alloc((size_t)n);
  s->may_begin = may_begin.at;
  s->nmay_begin = may_begin.n;
  graph->stages = s;
}

static struct pipeline_stages *pipeline_above(void)
{
  if (!graph->stages) dump_error(token_line(), "there is no pipeline above");
  return graph->stages;
}

void read_stage(void)
{
  struct pipeline_stages *s = pipeline_above();
  if (r.nstage == s->n) dump_error(token_line(), "the pipeline has %d stages", s->n);
  int stage = r.nstage++;
  if (!take_word("at")) unexpected("at");
  s->coordinate[stage] = (int)token_number(0, graph->mesh.size[s->mesh_dim] - 1);
  s->is_split[stage] = take_word("split");
  if (stage && take_word("begins")) s->first_module[stage] = read_MODULE();
  while (r.after == PASS_MEMORY && read_slots_field(&r.slots[stage])) continue;
}

static int read_stage_number(void)
{
  return (int)token_number(0, graph->stages->n - 1);
}

void read_edge(void)
{
  pipeline_above();
  int from = read_stage_number();
  if (!take_word("to")) unexpected("to");
  add_edge(from, read_stage_number());
}

static enum stage_work read_work(void)
{
  static const char *const work[] = {WORK_WORDS};
  int which = take_word_of(work, STAGE_WORKS);
  if (which == NONE) unexpected("what a stage computes");
  return (enum stage_work)which;
}

void read_stage_edge(void)
{
  pipeline_above();
  struct stage_edge e = {.from = read_stage_number(), .to = read_stage_number()};
  e.made = read_work();
  e.read = read_work();
  add_stage_edge(e);
}

void note_work(struct work_of_stage work)
{
  GROW(r.work, r.nwork, r.work_room);
  r.work[r.nwork++] = work;
}

void give_work(const int *at)
{
  for (int i = 0; i < graph->nop && has_work_of_stages(r.after); i++) {
    const struct work_of_stage *w = &r.work[at[i]];
    set_stage(i, w->stage);
    if (w->of_weights) set_of_weights(i);
  }
}

/* Whether the stage exists, and the graph's ranks have it. */
static bool is_here(int64_t stage)
{
  const struct pipeline_stages *s = graph->stages;
  return stage >= 0 && stage < s->n && (s->here == NONE || is_stage_here((int)stage));
}

static void check_folded(void)
{
  enum { MOST_SLOTS = 1 << 20 };
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (is_of_batch(f->phase) ? !is_here(f->stage) : f->stage != NONE)
      dump_error(0, "%s: it is of a stage that is not at this place", f->name);
  }
  if (r.after != PASS_MEMORY) return;
  for (int i = 0; i < graph->nvalue; i++)
    if (r.value_line[i] && r.allocation[i].in_flight != NONE && !is_here(r.allocation[i].in_flight))
      dump_error(r.value_line[i], "it is in flight with a stage that is not at this place");
  for (int s = 0; s < graph->stages->n; s++) {
    const struct slots *of = &r.slots[s];
    if (of->n < is_here(s) || of->n > MOST_SLOTS || of->bytes < 0 || of->bytes > MOST_ARENA_BYTES)
      dump_error(0, "stage %d has no such slots", s);
  }
}

void check_pipeline(void)
{
  const struct pipeline_stages *s = graph->stages;
  if (!s && r.place) dump_error(0, "a graph is of no place of a pipeline, and the first one is");
  if (!s) return;
  if (r.nstage != s->n)
    dump_error(0, "the pipeline has %d stages, and lines for %d", s->n, r.nstage);
  for (int i = 0; i < s->nmay_begin; i++)
    if (s->may_begin[i] == NONE) dump_error(0, "a stage may begin with no module");
  for (int i = 1; i < s->n; i++)
    if (s->first_module[i] < 0) dump_error(0, "stage %d begins with no module", i);
  if (s->spare_slots < 0 || s->spare_slots > MOST_SLOTS_READ)
    dump_error(0, "the stages have no such number of slots to spare");
  for (int i = 0; i < r.nwork; i++) {
    /* A transfer between stages is done by the stage that its numbers say. */
    const struct op *o = &graph->op[i];
    const int n = graph->stages->n, stage = r.work[i].stage, line = r.op_line.at[i];
    if (stage != NONE && !is_here(stage)) dump_error(line, "there is no such stage at its place");
    if (!is_transfer(o->kind)) continue;
    bool known = o->number[0] >= 0 && o->number[0] <= MOST_VALUES;
    for (int k = 1; k <= 2; k++) known &= o->number[k] >= 0 && o->number[k] < n;
    const int64_t own = o->number[o->kind == OP_send ? 1 : 2];
    if (!known || !is_here(own) || (has_work_of_stages(r.after) && stage != own))
      dump_error(line, "its numbers say another stage");
    if (coordinate_of_stage((int)o->number[1]) == coordinate_of_stage((int)o->number[2]))
      dump_error(line, "the same ranks have both stages");
    const int before = graph->ngroup;
    if (graph->stages->here != NONE && edge_of(o) == before)
      dump_error(line, "there is no group from its one stage to the other");
  }
  if (r.after >= PASS_OUTLINE) check_folded();
}
