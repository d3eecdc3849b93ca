/* pipeline_lines.c: the lines of a pipeline in a dump, up to the pass after which each place of it
   has a program of its own; read.c has the grammar. */
#include "dump/dump.h"

#include <string.h>

bool has_work_of_stages(enum pass after)
{
  return graph->stages && after <= PASS_REDISTRIBUTE;
}

/* ---------------------------------------------------------------------------------------- writing
 */

static void put_stage(const struct pipeline_stages *s, int stage)
{
  put(&d.b, "stage at %d", s->coordinate[stage]);
  put(&d.b, s->is_split[stage] ? " split" : "");
  put(&d.b, stage ? " begins " : "");
  if (stage) put_module(s->first_module[stage]);
  put(&d.b, "\n");
}

void put_pipeline_lines(void)
{
  const struct pipeline_stages *s = graph->stages;
  static const char *const work[] = {WORK_WORDS};
  if (!s) return;
  put(&d.b, "pipeline %d over ", s->n);
  put_name(graph->mesh.name[s->mesh_dim]);
  put_pipeline_fields(s, &(struct pipeline_stages){.here = NONE});
  for (int i = 0; i < s->nmay_begin; i++) {
    put(&d.b, " may_begin ");
    put_module(s->may_begin[i]);
  }
  put(&d.b, "\n");
  for (int i = 0; i < s->n; i++) put_stage(s, i);
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

/* ---------------------------------------------------------------------------------------- reading
 */

void read_pipeline(void)
{
  if (graph->stages) dump_error(token_line(), "there is a pipeline above");
  struct pipeline_stages *s = alloc(sizeof *s);
  struct list may_begin = {0};
  int n = (int)token_number(1, MOST_STAGES_READ);
  if (!take_word("over")) unexpected("over");
  *s = (struct pipeline_stages){.n = n, .mesh_dim = read_MESH_DIM(), .here = NONE};
  while (!at_line_end())
    if (take_word("may_begin"))
      add(&may_begin, read_MODULE());
    else if (!read_pipeline_field(s))
      unexpected("a field of a pipeline, or the line's end");
  if (!s->schedule) dump_error(token_line(), "the pipeline has no schedule");
  if (s->here != NONE || r.after > PASS_REDISTRIBUTE)
    dump_error(
        token_line(),
        "this dump has the ranks at one place of a pipeline alone: tpgen reads one after %s, "
        "or after a pass before it",
        pass_name[PASS_REDISTRIBUTE]);
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
}

static int read_stage_number(void)
{
  return (int)token_number(0, graph->stages->n - 1);
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

/* What moves between stages is done by the one that its numbers say. */
static void check_work(int op)
{
  const struct op *o = &graph->op[op];
  const int n = graph->stages->n, stage = r.work[op].stage;
  if (stage < NONE || stage >= n) dump_error(r.op_line.at[op], "there is no such stage");
  if (!is_transfer(o->kind) || r.after > PASS_REDISTRIBUTE) return;
  bool known = true;
  for (int k = 1; k <= 2; k++) known &= o->number[k] >= 0 && o->number[k] < n;
  if (!known || stage != o->number[o->kind == OP_send ? 1 : 2] || o->number[0] < 0)
    dump_error(r.op_line.at[op], "its numbers say another stage");
  if (coordinate_of_stage((int)o->number[1]) == coordinate_of_stage((int)o->number[2]))
    dump_error(r.op_line.at[op], "the same ranks have both stages");
}

void check_pipeline(void)
{
  const struct pipeline_stages *s = graph->stages;
  if (!s) return;
  if (r.nstage != s->n)
    dump_error(0, "the pipeline has %d stages, and lines for %d", s->n, r.nstage);
  for (int i = 0; i < s->nmay_begin; i++)
    if (s->may_begin[i] == NONE) dump_error(0, "a stage may begin with no module");
  for (int i = 1; i < s->n; i++)
    if (s->first_module[i] < 0) dump_error(0, "stage %d begins with no module", i);
  if (s->spare_slots < 0 || s->spare_slots > MOST_SLOTS_READ)
    dump_error(0, "the stages have no such number of slots to spare");
  for (int i = 0; i < r.nwork; i++) check_work(i);
}
