/* details.c: what plan.json has more with --report: the settings, the machine, the activations, the
   timeline of a step, the memory over it, and the bytes between ranks.

   Takes   the finished program, and what simulate.c has found.
   Leaves  it unchanged. The page (page.c) shows these members, and no number of its own. */
#include "report/report.h"

#include <string.h>

/* ---------------------------------------------------------------------- settings and the machine
 */

static json_t *json_settings(void)
{
  json_t *list = json_array();
  for (int i = 0; i < plan_options->nshown; i++) {
    const struct shown_setting *s = &plan_options->shown[i];
    json_append(list, json_pack("{s:s, s:s, s:b}", "name", printable(s->name), "value",
                                printable(s->value), "given", s->is_given));
  }
  return list;
}

/* The devices, and the link of each dimension of the mesh; in_node: its neighbours are in one
   node. */
static json_t *json_machine(void)
{
  const struct device *d = device();
  const struct mesh *mesh = &graph->mesh;
  const struct cluster c = has_cluster() ? mesh->cluster : usual_cluster(d);
  json_t *links = json_array();
  json_t *machine = json_pack("{s:s, s:f, s:s, s:f, s:I}", "device", printable(d->name), "flops",
                              d->flops[step_arithmetic()], "arithmetic", arithmetic_text(),
                              "bandwidth", d->bandwidth, "memory", (json_int_t)memory_limit());
  if (c.devices > 0) json_member(machine, "devices_of_node", json_integer(c.devices));
  for (int i = 0, stride = world_size(); i < mesh->ndim; i++) {
    if (mesh->microbatch_axis[i]) continue;
    const struct link link = link_of_dimension(i);
    stride /= mesh->size[i];
    json_t *row = json_pack("{s:s, s:f, s:f}", "dimension", printable(mesh->name[i]), "bandwidth",
                            link.bandwidth, "latency", link.latency);
    if (c.devices > 0)
      json_member(row, "in_node", json_boolean(c.devices % (stride * mesh->size[i]) == 0));
    json_append(links, row);
  }
  json_member(machine, "links", links);
  return machine;
}

/* -------------------------------------------------------------------------------- activations */

/* Of a stack only the first. */
static void add_activation(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)times;
  for (int k = 0; k < op->nout; k++) {
    const int value = op->out + k;
    const struct value *v = &graph->value[value];
    if (v->role != ACTIVATION || v->op != id) continue;
    const bool is_held = in_arena(storage_of(value)) && storage_of(value) == value;
    json_t *row = json_pack(
        "{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:I, s:i}", "name", shown_name(value), "module",
        v->module == NONE ? "" : printable(graph->module[v->module].path), "type",
        type_name(v->type), "shape", json_shape(v->shape), "placement", json_layout(v->layout),
        "local", json_shape(local_shape(value, 0)), "phase", phase_name[op->phase], "bytes",
        (json_int_t)(is_held ? arena_size(graph->memory, value) : 0), "line",
        op->line % LINES_OF_FILE);
    if (is_held && allocation_of(value).depth > 1)
      json_member(row, "kept", json_integer(allocation_of(value).depth));
    add_file_of(row, op->line);
    json_append(to, row);
  }
}

/* --------------------------------------------------------------------------- bytes between ranks
 */

enum { MOST_ROWS = 64 };

struct rank_pairs {
  int rows, columns, block; /* a column is so many ranks */
  int64_t *bytes;           /* that a row's rank sends to a column's */
  int64_t *give, *get;
};

static void add_pair(struct rank_pairs *p, int from, int to, int64_t times, int64_t bytes)
{
  int64_t *sum = &p->bytes[from * p->columns + to / p->block];
  *sum = plus_times(*sum, times, bytes);
}

/* A stage sends to the ranks of another one that have the same place along the other dimensions. */
static void add_sends(struct rank_pairs *p, const struct op *op, int times)
{
  for (int rank = 0; rank < p->rows; rank++) {
    int at[MAX_MESH];
    if (!runs_here(rank)) continue;
    coordinate_of(rank, at);
    at[graph->stages->mesh_dim] = coordinate_of_stage((int)op->number[2]);
    add_pair(p, rank, rank_at_coordinate(at), times,
             elements(local_shape(op->in[0], rank)) * type_bytes(graph->value[op->in[0]].type));
  }
}

/* What a rank has and another one needs: each way of a collective sends at least that. Of an
   all_reduce each rank adds up a part, and sends it to all. */
static void add_pairs(void *to, int id, int times)
{
  struct rank_pairs *p = to;
  const struct op *op = &graph->op[id];
  if (op->kind == OP_send) add_sends(p, op, times);
  if (!is_collective(op->kind)) return;
  const int n = group_size(op->group);
  const int64_t each = type_bytes(moved_type(op));
  for (int rank = 0; rank < p->rows; rank++) {
    if (!runs_here(rank)) continue;
    collective_counts(op, rank, p->give, p->get);
    const int *member = members_of(op->group, rank);
    int mine = 0;
    while (mine < n && member[mine] != rank) mine++;
    for (int k = 0; k < n; k++) {
      if (member[k] == rank) continue;
      const int64_t elements = gathers_shards(op->kind)    ? p->give[mine]
                               : op->kind == OP_all_reduce ? 2 * p->give[k] / n
                                                           : p->give[k];
      add_pair(p, rank, member[k], times, elements * each);
    }
  }
}

static json_t *json_pairs(void)
{
  const int world = world_size();
  struct rank_pairs p = {.rows = world < MOST_ROWS ? world : MOST_ROWS,
                         .block = (world + MOST_ROWS - 1) / MOST_ROWS};
  p.columns = (world + p.block - 1) / p.block;
  p.bytes = alloc((size_t)p.rows * (size_t)p.columns * sizeof *p.bytes);
  p.give = alloc((size_t)world * sizeof *p.give);
  p.get = alloc((size_t)world * sizeof *p.get);
  each_op(add_pairs, &p);
  json_t *rows = json_array();
  for (int r = 0; r < p.rows; r++) {
    json_t *row = json_array();
    for (int c = 0; c < p.columns; c++) json_append(row, json_integer(p.bytes[r * p.columns + c]));
    json_append(rows, row);
  }
  return json_pack("{s:i, s:o}", "ranks_of_column", p.block, "bytes", rows);
}

/* --------------------------------------------------------------------------------- the timeline */

static int64_t nanoseconds(int64_t picoseconds)
{
  return (picoseconds + 500) / 1000;
}

/* Operations once; their runs as rows of numbers: the operation, the module of a loop or -1, the
   stream, what it is, when it begins, how long it takes, how long the arithmetic waits for it.
   times: how often a step has what is here once, by phase; an operation that is `once` it has once.
 */
static json_t *json_timeline(void)
{
  const struct simulated *s = simulated();
  json_t *streams = json_array(), *operations = json_array(), *runs = json_array();
  int *number = alloc((size_t)(graph->nop + 1) * sizeof *number), n = 0;
  int *stream = alloc((size_t)(graph->ngroup + 1) * sizeof *stream);
  json_append(streams, json_string("arithmetic"));
  for (int g = 0; g < graph->ngroup; g++) {
    if (!has_stream(g)) continue;
    stream[g] = (int)json_array_size(streams);
    json_append(streams, json_string(printable(graph->group[g].name)));
  }
  for (int i = 0; i < graph->nop; i++) number[i] = NONE;
  for (int i = 0; i < s->n; i++) {
    const struct ran *r = &s->ran[i];
    const struct op *op = &graph->op[r->op];
    if (number[r->op] == NONE) {
      number[r->op] = n++;
      json_t *row = json_pack("{s:s, s:s, s:s, s:i}", "name",
                              is_collective(op->kind) ? kind_of(op) : called(op, shown_name),
                              "phase", phase_name[op->phase], "module",
                              op->module == NONE ? "" : printable(graph->module[op->module].path),
                              "line", op->line % LINES_OF_FILE);
      if (op->last_batch) json_member(row, "once", json_true());
      if (is_collective(op->kind))
        json_member(row, "group", json_string(printable(graph->group[op->group].name)));
      add_file_of(row, op->line);
      json_append(operations, row);
    }
    json_append(runs, json_pack("[i, i, i, i, I, I, I]", number[r->op], r->module,
                                r->stream == NONE ? 0 : stream[r->stream], (int)r->what,
                                (json_int_t)nanoseconds(r->begin),
                                (json_int_t)(nanoseconds(r->end) - nanoseconds(r->begin)),
                                (json_int_t)nanoseconds(r->waited)));
  }
  json_t *times = json_object();
  for (int phase = 0; phase < PHASES; phase++)
    if (phase != CONSTANTS)
      json_member(times, phase_name[phase], json_integer(runs_of_phase((enum phase)phase)));
  return json_pack("{s:o, s:o, s:o, s:o}", "streams", streams, "operations", operations, "times",
                   times, "runs", runs);
}

/* ---------------------------------------------------------------------- the memory over a step */

/* A range of the arena, as each of its users has it. */
struct arena_range {
  int value, first, last; /* program points */
  int makes, takes;       /* loops that fill its stack, and that read it last; or NONE */
  int depth;
  int64_t bytes;
  bool is_kept; /* a forward leaves it for a backward */
};

struct memory_sample {
  int64_t kept, temporary;
};

struct over_time {
  int n, nop;
  struct arena_range *held;
  int *op, *at, *loop; /* by program point: the operation; by operation: the point, the loop */
  int samples, room;
  struct {
    int op, module;
    struct memory_sample bytes;
  } * sample;
  int64_t most;
  int most_at, most_op, most_module;
};

static void note_point(void *to, int id, int times)
{
  struct over_time *t = to;
  (void)times;
  t->at[id] = t->nop;
  t->op[t->nop++] = id;
}

/* Those of the values in slots of micro-batches are held as long as the slots. */
static void find_held(struct over_time *t)
{
  t->held = alloc((size_t)(graph->nvalue + 1) * sizeof *t->held);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct allocation a = allocation_of(i);
    if (!in_arena(i) || a.storage != i || a.first == NONE || a.in_flight != NONE) continue;
    if (a.first >= t->nop || a.last >= t->nop) continue;
    const int makes = t->op[a.first], takes = t->op[a.last];
    t->held[t->n++] = (struct arena_range){.value = i,
                                           .first = a.first,
                                           .last = a.last,
                                           .makes = t->loop[makes],
                                           .takes = t->loop[takes],
                                           .depth = a.depth,
                                           .bytes = arena_size(graph->memory, i),
                                           .is_kept = graph->op[makes].phase == FORWARD &&
                                                      graph->op[takes].phase == BACKWARD};
  }
}

/* The bytes of it when an operation runs: a loop fills a stack value by value, and another one
   takes it apart. */
static int64_t bytes_when(const struct over_time *t, const struct arena_range *h, int id,
                          int module)
{
  const int at = t->at[id], loop = t->loop[id];
  if (at < h->first || at > h->last) return 0;
  if (h->depth == 1 || loop == NONE || module == NONE) return h->bytes;
  const struct function *f = &graph->function[loop];
  const int begun = f->upward ? module + 1 : f->count - module, left = f->count - begun + 1;
  const int n = loop == h->makes ? begun : loop == h->takes ? left : h->depth;
  return n < h->depth ? h->bytes / h->depth * n : h->bytes;
}

static void sample_memory(void *to, int id, int module)
{
  struct over_time *t = to;
  struct memory_sample now = {0};
  for (int i = 0; i < t->n; i++)
    *(t->held[i].is_kept ? &now.kept : &now.temporary) += bytes_when(t, &t->held[i], id, module);
  if (now.kept + now.temporary > t->most) {
    t->most = now.kept + now.temporary;
    t->most_op = id;
    t->most_module = module;
  }
  const struct memory_sample *last = t->samples ? &t->sample[t->samples - 1].bytes : NULL;
  if (last && last->kept == now.kept && last->temporary == now.temporary) return;
  GROW(t->sample, t->samples, t->room);
  t->sample[t->samples].op = id;
  t->sample[t->samples].module = module;
  t->sample[t->samples++].bytes = now;
}

/* The largest values when the most are held. */
static json_t *json_peak(const struct over_time *t)
{
  enum { LARGEST = 20 };
  json_t *list = json_array();
  struct list shown = {0};
  while (shown.n < LARGEST && shown.n < t->n) {
    int best = NONE;
    int64_t most = 0;
    for (int i = 0; i < t->n; i++) {
      const int64_t bytes = bytes_when(t, &t->held[i], t->most_op, t->most_module);
      bool is_shown = false;
      for (int k = 0; k < shown.n; k++) is_shown |= shown.at[k] == i;
      if (!is_shown && bytes > most) most = bytes, best = i;
    }
    if (best == NONE) break;
    add(&shown, best);
    const struct arena_range *h = &t->held[best];
    const struct value *v = &graph->value[h->value];
    json_append(list, json_pack("{s:s, s:s, s:I, s:i, s:b}", "name", shown_name(h->value), "module",
                                v->module == NONE ? "" : printable(graph->module[v->module].path),
                                "bytes", (json_int_t)most, "count", h->depth, "kept", h->is_kept));
  }
  return list;
}

/* When each run of an operation begins, by the simulated step; without a device the samples are
   numbered. */
static json_t *json_memory_over_time(void)
{
  struct over_time t = {.most_op = NONE};
  const size_t n = (size_t)graph->nop + 1;
  t.op = alloc(n * sizeof *t.op);
  t.at = alloc(n * sizeof *t.at);
  t.loop = alloc(n * sizeof *t.loop);
  functions_of_ops(t.loop);
  for (int i = 0; i < graph->nop; i++) t.loop[i] = loop_of(t.loop[i]);
  each_op(note_point, &t);
  find_held(&t);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (is_phase(f) && f->phase != CONSTANTS) each_run_of(f, sample_memory, &t);
  }
  json_t *rows = json_array();
  const struct simulated *s = device() ? simulated() : NULL;
  int64_t now = 0;
  for (int i = 0, r = 0; i < t.samples; i++) {
    /* Operations that take no time are not among those that ran. */
    for (int k = r; s && k < s->n; k++)
      if (s->ran[k].op == t.sample[i].op && s->ran[k].module == t.sample[i].module) {
        r = k;
        now = s->ran[k].begin;
        break;
      }
    json_append(rows, json_pack("[I, I, I]", (json_int_t)(s ? nanoseconds(now) : i),
                                (json_int_t)t.sample[i].bytes.kept,
                                (json_int_t)t.sample[i].bytes.temporary));
  }
  json_t *whole = json_pack("{s:b, s:o, s:o}", "in_nanoseconds", s != NULL, "activations", rows,
                            "at_peak", json_peak(&t));
  if (t.most_op != NONE)
    json_member(whole, "peak_in", json_string(called(&graph->op[t.most_op], shown_name)));
  return whole;
}

/* --------------------------------------------------------------------------------- all together */

void add_plan_details(json_t *whole)
{
  json_t *activations = json_array();
  each_op(add_activation, activations);
  if (plan_options->nshown) json_member(whole, "settings", json_settings());
  if (device()) json_member(whole, "machine", json_machine());
  json_member(whole, "activations", activations);
  if (device() && simulated()->n) json_member(whole, "timeline", json_timeline());
  json_member(whole, "memory_over_time", json_memory_over_time());
  if (world_size() > 1) json_member(whole, "pairs", json_pairs());
}

void add_pipeline_details(json_t *whole, const struct pipeline *p, const struct stage_times *times)
{
  if (plan_options->nshown) json_member(whole, "settings", json_settings());
  if (!device()) return;
  const struct pipeline_cost cost = pipeline_cost_of(p, times);
  json_t *actions = json_array();
  for (int r = 0; r < p->ranks; r++) {
    struct action part[ACTION_PARTS];
    for (int i = 0; i < p->order[r].n; i++) {
      int64_t now = cost.begin[r][i];
      for (int k = 0, n = action_parts(&p->order[r].at[i], part); k < n; k++) {
        const int64_t took = times[part[k].stage].takes[part[k].kind];
        json_append(actions,
                    json_pack("[i, s, i, i, I, I]", r, action_text(&part[k]), part[k].stage,
                              part[k].microbatch, (json_int_t)nanoseconds(now),
                              (json_int_t)nanoseconds(took)));
        now += took;
      }
    }
  }
  json_member(whole, "machine", json_machine());
  json_member(whole, "actions", actions);
}

char *plan_json_text(const json_t *whole)
{
  static const char *const wide[] = {"timeline", "memory_over_time", "pairs", "actions", NULL};
  if (!options.report) return json_text(whole, JSON_INDENT(2));
  /* Rows of numbers would take a line for each of them. */
  struct buffer b = {0};
  const char *name;
  json_t *member;
  put(&b, "{");
  json_object_foreach((json_t *)whole, name, member)
  {
    const bool is_wide = is_word_of(wide, name);
    put(&b, "%s\n%s: ", b.length > 1 ? "," : "", json_text(json_string(name), JSON_ENCODE_ANY));
    put(&b, "%s", json_text(member, JSON_ENCODE_ANY | (is_wide ? JSON_COMPACT : JSON_INDENT(1))));
  }
  put(&b, "\n}");
  return b.text;
}
