/* timeline.c: the simulated step for a reader of plan.txt: its time, and, module by module, the
   work of each stream; then one iteration of each loop. And its figures for plan.json.

   Takes   what simulate.c has found. */
#include "report/report.h"

#include <string.h>

/* ---------------------------------------------------------------------------------- the figures */

char *scaled_text(double x, const char *unit)
{
  static const char *const prefix[] = {"", "k", "M", "G", "T", "P"};
  int p = 0;
  while (x >= 1000 && p < 5) x /= 1000, p++;
  return text("%.*f %s%s", x < 10 ? 2 : x < 100 ? 1 : 0, x, prefix[p], unit);
}

char *duration_text(double seconds)
{
  if (seconds == 0) return copy_text("0");
  return seconds < 1 ? seconds_text(seconds) : text("%.3f s", seconds);
}

static char *share_text(double part, double whole)
{
  return text("%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
}

const char *arithmetic_text(void)
{
  static const char *const type[] = {"float32", "TF32", "bfloat16"};
  return type[step_arithmetic()];
}

void put_machine(struct buffer *b)
{
  const struct device *d = device();
  struct buffer line = {0};
  put(&line, "a step, simulated: %s (%s in %s, %s of memory)", printable(d->name),
      scaled_text(d->flops[step_arithmetic()], "FLOP/s"), arithmetic_text(),
      scaled_text(d->bandwidth, "B/s"));
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.size[i] > 1 && !is_measured())
      put(&line, ", %s over links of %s and %s", printable(graph->mesh.name[i]),
          scaled_text(link_of_dimension(i).bandwidth, "B/s"),
          duration_text(link_of_dimension(i).latency));
  put(&line, "%s", collectives_overlap() ? "" : ", nothing overlaps");
  put(b, "\n%s\n", wrapped(line.text, ", ", "    "));
  if (is_measured()) put_measured(b);
}

void put_slowest(struct buffer *b, double seconds, double step)
{
  if (seconds > 0)
    put(b, "  %-12s %12s   %s of the step: so much slower is the slowest of %s ranks\n",
        "stragglers", duration_text(seconds), share_text(seconds, step), grouped(world_size()));
}

static void put_figures(struct buffer *b)
{
  const struct simulated *s = simulated();
  put(b, "  %-12s %12s", graph->stages ? "its own" : "in all", duration_text(s->step));
  if (graph->stages)
    put(b, "   without waiting for other stages: plan.txt has the step of all");
  else if (step_tokens() > 0 && s->step > 0)
    put(b, "   %s tokens a second, %s on each rank", grouped((int64_t)(step_tokens() / s->step)),
        grouped((int64_t)(step_tokens() / s->step / world_size())));
  if (step_mfu() > 0 && !graph->stages)
    put(b, "%s%s a rank, %.1f %% of the peak (MFU)", step_tokens() > 0 ? text("\n%30s", "") : "   ",
        scaled_text(step_flops() / world_size() / s->step, "FLOP/s"), 100 * step_mfu());
  put(b, "\n  %-12s %12s   %s of the step\n", "arithmetic", duration_text(s->computing),
      share_text(s->computing, s->step));
  put(b, "  %-12s %12s   %s of it exposed, %s of the step\n", "collectives",
      duration_text(s->moving), duration_text(s->waiting), share_text(s->waiting, s->step));
  put_slowest(b, s->slowest, s->step);
  if (s->in_graph > 0)
    put(b, "  %-12s %12s   %s of the step; as one graph (--graph) it takes %s\n", "the host's",
        duration_text(s->starting), share_text(s->starting, s->step), duration_text(s->in_graph));
}

json_t *json_step(void)
{
  const struct simulated *s = simulated();
  json_t *step = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "device", printable(device()->name),
                           "seconds", s->step, "arithmetic", s->computing, "collectives", s->moving,
                           "exposed", s->waiting, "flops", step_flops());
  if (step && s->slowest > 0) json_member(step, "stragglers", json_real(s->slowest));
  if (step && s->in_graph > 0) {
    json_member(step, "starting", json_real(s->starting));
    json_member(step, "in_graph", json_real(s->in_graph));
  }
  if (graph->stages) return step; /* its own work: tokens and MFU are of all stages together */
  if (step && step_tokens() > 0 && s->step > 0)
    json_member(step, "tokens_per_second", json_real(step_tokens() / s->step));
  if (step && step_mfu() > 0) json_member(step, "mfu", json_real(step_mfu()));
  return step;
}

/* ------------------------------------------------------------------------------------ the chart */

/* The content of one line: operations that follow one another on a stream. */
struct row {
  const char *phase, *name;
  int stream;
  int64_t begin, busy;
  struct list ran;
};
static struct {
  int n, room;
  struct row *row;
  int64_t begin, end; /* the range that the bars show */
} chart;

static int *loop_at; /* by operation: the body of a loop that contains it, or NONE */

/* The operation that calls the loop's body, or NULL. */
static const struct op *timeline_call_of(int function)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (op->kind == OP_loop && op->function == function) return op;
    }
  return NULL;
}

static const char *list_path(int function)
{
  const struct op *call = timeline_call_of(function);
  return call && call->module != NONE ? graph->module[call->module].path : "";
}

/* In the loop over "layers", the text after the number of "layers.0.attention.wq". */
static const char *path_in(const char *path, int function)
{
  const char *list = list_path(function);
  size_t n = strlen(list);
  if (strncmp(path, list, n)) return path;
  path += n;
  path += *path == '.';
  path += strspn(path, "0123456789");
  return path + (*path == '.');
}

static const char *path_of_op(const struct ran *r)
{
  int module = graph->op[r->op].module, loop = loop_at[r->op];
  const char *path = module == NONE ? "" : graph->module[module].path;
  if (!*path) return NULL;
  return loop == NONE ? path : path_in(path, loop);
}

/* "all_gather dp: attention.wq" */
static const char *name_of_collective(const struct ran *r)
{
  const struct op *op = &graph->op[r->op];
  const char *path = path_of_op(r), *of = path && *path ? printable(path) : NULL;
  if (of && loop_at[r->op] == NONE) of = text("%.*s", (int)strcspn(of, "."), of);
  const char *plain = text("%s %s", kind_of(op), printable(graph->group[op->group].name));
  if (r->what == COPIES) plain = text("copies, %s", plain);
  if (op->nbody) of = text("bucket of %d", op->nbody);
  return of ? text("%s: %s", plain, of) : plain;
}

static const char *name_of(const struct ran *r)
{
  const struct op *op = &graph->op[r->op];
  const char *path = path_of_op(r);
  if (is_collective(op->kind)) return name_of_collective(r);
  if (is_update(op)) return op->kind == OP_buffer ? "buffers" : optimizer_of(op)->name;
  if (path && *path && loop_at[r->op] == NONE)
    return text("%.*s", (int)strcspn(path, "."), printable(path));
  if (path && *path) return printable(path);
  const char *name = called(op, shown_name);
  int loop = loop_at[r->op];
  if (loop == NONE) return name;
  name = path_in(name, loop);
  return *name ? name : text("%s.*", printable(list_path(loop)));
}

/* In the chart of a step a loop is one line; by stream, the operations outside of loops. */
static const char *name_in_step(const struct ran *r)
{
  int loop = loop_at[r->op];
  if (loop == NONE) return name_of(r);
  return text("%s, %d iterations", printable(graph->function[loop].name),
              graph->function[loop].count);
}

static void timeline_put_in(struct row *row, int which)
{
  const struct ran *r = &simulated()->ran[which];
  row->busy += r->end - r->begin;
  add(&row->ran, which);
}

static void put_in_row(int which, const char *name)
{
  const struct ran *r = &simulated()->ran[which];
  const char *phase = phase_name[graph->op[r->op].phase];
  struct row *row = NULL; /* the last of the stream */
  for (int i = chart.n; i-- > 0 && !row;)
    if (chart.row[i].stream == r->stream) row = &chart.row[i];
  if (!row || strcmp(row->phase, phase) || strcmp(row->name, name)) {
    GROW(chart.row, chart.n, chart.room);
    row = &chart.row[chart.n++];
    *row = (struct row){.phase = phase, .name = name, .stream = r->stream, .begin = r->begin};
  }
  timeline_put_in(row, which);
}

static bool is_small_row(const struct row *row)
{
  return row->busy < (chart.end - chart.begin) / 250;
}

/* Consecutive lines that are too short to be seen in a bar become one. */
static void join_small_rows(void)
{
  int left = 0, joined = 0;
  bool open = false;
  for (int i = 0; i < chart.n; i++) {
    struct row *row = &chart.row[i], *before = &chart.row[left - 1];
    bool joins = open && is_small_row(row) && before->stream == row->stream &&
                 !strcmp(before->phase, row->phase);
    open = is_small_row(row);
    if (!joins) {
      chart.row[left++] = *row;
      joined = 0;
      continue;
    }
    for (int k = 0; k < row->ran.n; k++) timeline_put_in(before, row->ran.at[k]);
    size_t name =
        joined ? strlen(before->name) - strlen(text(" and %d more", joined)) : strlen(before->name);
    before->name = text("%.*s and %d more", (int)name, before->name, joined + 1);
    joined++;
  }
  chart.n = left;
}

enum { BAR = 32 };

/* Adds to the columns of a bar how much of each these operations fill. */
static void cover(double column[BAR], const struct row *row, bool collectives)
{
  double scale = BAR / (double)(chart.end - chart.begin);
  for (int i = 0; i < row->ran.n; i++) {
    const struct ran *r = &simulated()->ran[row->ran.at[i]];
    if ((r->what == MOVES) != collectives) continue;
    double from = (double)(r->begin - chart.begin) * scale;
    double to = (double)(r->end - chart.begin) * scale;
    for (int c = from > 0 ? (int)from : 0; c < BAR && c < to; c++)
      column[c] += (to < c + 1 ? to : c + 1) - (from > c ? from : c);
  }
}

/* # arithmetic, = a collective, whichever is more; together less than half: . */
static char *bar_text(const struct row *row)
{
  double works[BAR] = {0}, moves[BAR] = {0};
  char bar[BAR + 1] = "";
  int last = 0;
  cover(works, row, false);
  cover(moves, row, true);
  for (int c = 0; c < BAR; c++) {
    double both = works[c] + moves[c];
    bar[c] = both >= 0.5 ? works[c] >= moves[c] ? '#' : '=' : both > 0 ? '.' : ' ';
    if (both > 0) last = c + 1;
  }
  return text("%.*s", last, bar);
}

static void put_rows(struct buffer *b)
{
  join_small_rows();
  /* In the order in which they begin: a collective may wait long after others of its stream. */
  for (int i = 1; i < chart.n; i++) {
    struct row row = chart.row[i];
    int at = i;
    for (; at > 0 && chart.row[at - 1].begin > row.begin; at--) chart.row[at] = chart.row[at - 1];
    chart.row[at] = row;
  }
  for (int i = 0; i < chart.n; i++) {
    const struct row *row = &chart.row[i];
    const char *on = row->stream == NONE ? "stream" : stream_name(row->stream);
    put(b, "  %-8s %-38.38s %-12s %10s %10s  |%s\n", row->phase, row->name, on,
        row->begin < chart.begin ? "before"
                                 : duration_text((double)(row->begin - chart.begin) * 1e-12),
        duration_text((double)row->busy * 1e-12), bar_text(row));
  }
}

static void put_head(struct buffer *b, const char *what)
{
  put(b, "\n%-49s %-12s %10s %10s  |0%*s\n", what, "on", "begins", "works", BAR - 2,
      duration_text((double)(chart.end - chart.begin) * 1e-12));
}

/* From the start of an iteration's arithmetic to that of the next: an iteration in the middle,
   since the first and the last do additional work. */
static void find_window(int function)
{
  const struct simulated *s = simulated();
  const struct function *f = &graph->function[function];
  int middle = f->count / 2, next = f->upward ? middle + 1 : middle - 1;
  chart.begin = chart.end = INT64_MAX;
  int64_t end = 0;
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    if (loop_at[r->op] != function || r->stream != NONE || r->what == COPIES) continue;
    if (r->module == middle && r->begin < chart.begin) chart.begin = r->begin;
    if (r->module == middle && r->end > end) end = r->end;
    if (r->module == next && r->begin < chart.end) chart.end = r->begin;
  }
  if (chart.end <= chart.begin || chart.end == INT64_MAX) chart.end = end;
}

static void put_iteration(struct buffer *b, int function)
{
  const struct simulated *s = simulated();
  const struct function *f = &graph->function[function];
  chart.n = 0;
  find_window(function);
  if (chart.begin == INT64_MAX) return;
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    if (loop_at[r->op] == function && r->begin < chart.end && r->end > chart.begin)
      put_in_row(i, name_of(r));
  }
  put_head(b, text("%s, iteration %d of %d", printable(f->name), f->count / 2 + 1, f->count));
  put_rows(b);
}

void put_step(struct buffer *b)
{
  if (!device() || !simulated()->n) return;
  loop_at = alloc((size_t)(graph->nop + 1) * sizeof *loop_at);
  functions_of_ops(loop_at);
  for (int i = 0; i < graph->nop; i++) loop_at[i] = loop_of(loop_at[i]);
  put_machine(b);
  put_figures(b);
  put(b, "  %-12s %12s   # arithmetic, = a collective, . less than half of the time\n", "bars", "");
  /* One of several batches, and the update. */
  const struct simulated *s = simulated();
  chart.n = 0;
  chart.begin = chart.end = 0;
  for (int i = 0; i < s->n; i++)
    if (s->ran[i].end > chart.end) chart.end = s->ran[i].end;
  const char **name = alloc((size_t)graph->nop * sizeof *name);
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    bool is_named = loop_at[r->op] != NONE && name[r->op]; /* the same in each iteration */
    if (!is_named) name[r->op] = name_in_step(r);
    put_in_row(i, name[r->op]);
  }
  put_head(b, microbatches() > 1             ? "timeline of a micro-batch, and the update"
              : plan_options->accumulate > 1 ? "timeline of a batch, and the update"
                                             : "timeline");
  put_rows(b);
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].count > 1 && !graph->function[i].is_part) put_iteration(b, i);
}
