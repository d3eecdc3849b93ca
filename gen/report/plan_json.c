/* plan_json.c: plan.json: the content of plan.txt, for programs. */
#include "report/report.h"

/* In the form that plans/plan.schema.json describes. */
enum { PLAN_VERSION = 1 };

static json_t *json_files(void)
{
  json_t *list = json_array();
  for (int i = 1; i <= plan_files(); i++)
    json_append(list, json_string(file_shown(i * LINES_OF_FILE)));
  return list;
}

static void add_collective(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (!is_collective(op->kind)) return;
  struct max_rank_volume most = max_volume_of(op);
  json_t *object =
      json_pack("{s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:s, s:i, s:s}", "kind", kind_of(op), "group",
                printable(graph->group[op->group].name), "bytes", (json_int_t)bytes_brought(op),
                "sent", (json_int_t)most.sent, "received", (json_int_t)most.received, "ranks",
                group_size(op->group), "times", times, "phase", phase_name[op->phase], "line",
                op->line % LINES_OF_FILE, "why", printable(op->why));
  add_file_of(object, op->line);
  if (collectives_overlap()) {
    /* Its stream, if there are any, and what overlaps with it; its time by the model, and its
       exposed time. */
    json_t *list = json_array();
    struct list others = beside(op);
    for (int i = 0; i < others.n; i++)
      json_append(list, json_string(called(&graph->op[others.at[i]], shown_name)));
    if (target->streams)
      json_member(object, "stream",
                  json_string(scheduled(op)->overlapped ? stream_name(op->group) : "stream"));
    json_member(object, "beside", list);
  }
  if (collectives_overlap() && device()) {
    int64_t takes, waited;
    simulated_mean((int)(op - graph->op), &takes, &waited);
    json_member(object, "takes_ns", json_integer(takes / 1000));
    json_member(object, "waited_for_ns", json_integer(waited / 1000));
  }
  json_append(to, object);
}

static json_t *json_steps(const struct chain *c)
{
  json_t *list = json_array();
  for (int i = 0; i < c->nstep; i++) {
    const struct op *op = &graph->op[c->step[i]];
    json_t *step = json_pack("{s:s}", "kind", kind_of(op));
    if (*over_text(op)) json_member(step, "over", json_string(over_text(op)));
    if (*step_layouts(op)) json_member(step, "move", json_string(step_layouts(op)));
    if (is_collective(op->kind)) {
      struct max_rank_volume most = max_volume_of(op);
      json_member(step, "sent", json_integer(most.sent));
      json_member(step, "received", json_integer(most.received));
    }
    json_append(list, step);
  }
  return list;
}

/* Bytes are those of the busiest rank. */
static json_t *json_chain(const struct chain *c)
{
  const struct op *op = first_step(c);
  const struct value *v = moved_value(c);
  struct max_rank_volume most = max_volume_of_ops(c->nstep, c->step, NULL);
  json_t *object = json_pack(
      "{s:s, s:s, s:o, s:s, s:s, s:o, s:I, s:I, s:i, s:s, s:i, s:s}", "value",
      printable(value_name((int)(v - graph->value))), "type", type_name(v->type), "shape",
      json_shape(v->shape), "from", layout_text(layout_before(c)), "to",
      layout_text(layout_reached(c)), "steps", json_steps(c), "sent", (json_int_t)most.sent,
      "received", (json_int_t)most.received, "times", c->times, "phase", phase_name[op->phase],
      "line", op->line % LINES_OF_FILE, "why", printable(op->why));
  add_file_of(object, op->line);
  if (bound_of(c) != NONE) json_member(object, "bound", json_integer(bound_of(c)));
  if (seconds_of(c) > 0) json_member(object, "seconds", json_real(seconds_of(c)));
  return object;
}

static json_t *json_chains(void)
{
  json_t *list = json_array();
  int n;
  const struct chain *chain = find_chains(&n);
  for (int i = 0; i < n; i++) json_append(list, json_chain(&chain[i]));
  return list;
}

/* "0-2, 5" */
static char *ranks_with(int value, struct shape here)
{
  struct buffer b = {0};
  int world = world_size();
  for (int r = 0; r < world; r++) {
    if (!same_shape(local_shape(value, r), here)) continue;
    int last = r;
    while (last + 1 < world && same_shape(local_shape(value, last + 1), here)) last++;
    put(&b, last > r ? "%s%d-%d" : "%s%d", b.length ? ", " : "", r, last);
    r = last;
  }
  return b.text;
}

/* The shapes of a value's parts, each with its ranks: [{"ranks": "0-1", "shape": [11]}]. */
static json_t *json_parts(int value)
{
  struct shape *seen = NULL;
  int n = 0, room = 0;
  json_t *list = json_array();
  for (int r = 0; r < world_size(); r++) {
    struct shape here = local_shape(value, r);
    int k = 0;
    while (k < n && !same_shape(seen[k], here)) k++;
    if (k < n) continue;
    GROW(seen, n, room);
    seen[n++] = here;
    json_append(
        list, json_pack("{s:s, s:o}", "ranks", ranks_with(value, here), "shape", json_shape(here)));
  }
  return list;
}

static json_t *json_parameters(void)
{
  json_t *list = json_array();
  struct stacks parameters = find_parameters();
  for (int i = 0; i < parameters.n; i++) {
    const struct stack *f = &parameters.at[i];
    const struct value *v = &graph->value[f->member.at[0]];
    json_t *row =
        json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}", "name", printable(stack_text(f)), "count",
                  f->member.n, "type", type_name(v->type), "shape", json_shape(v->shape),
                  "placement", json_layout(v->layout), "local", json_parts(f->member.at[0]));
    if (v->frozen) json_member(row, "frozen", json_true());
    if (options.report) json_member(row, "asked", json_string(asked_by(f->member.at[0])));
    json_append(list, row);
  }
  return list;
}

static json_t *json_caches(void)
{
  json_t *list = json_array();
  const struct stacks caches = find_caches();
  for (int i = 0; i < caches.n; i++) {
    const struct stack *f = &caches.at[i];
    const struct value *v = &graph->value[f->member.at[0]];
    json_append(list,
                json_pack("{s:s, s:i, s:s, s:o, s:o, s:o, s:I, s:s}", "name",
                          printable(stack_text(f)), "count", f->member.n, "type",
                          type_name(v->type), "shape", json_shape(v->shape), "placement",
                          json_layout(v->layout), "local", json_parts(f->member.at[0]), "bytes",
                          (json_int_t)bytes_of_caches(f), "why", v->why ? printable(v->why) : ""));
  }
  return list;
}

static void set_bytes(json_t *memory, const char *name, int64_t bytes)
{
  json_member(memory, name, json_integer(bytes));
}

static json_t *json_memory(void)
{
  json_t *memory = json_object();
  const int64_t *held = memory_by_role();
  for (int i = 0; i < MEMORY_PARTS; i++)
    set_bytes(memory, memory_part[i].name, held[memory_part[i].role]);
  if (frozen_bytes()) {
    set_bytes(memory, "trained", held[PARAMETER] - frozen_bytes());
    set_bytes(memory, "frozen", frozen_bytes());
  }
  set_bytes(memory, "activations", arena_bytes());
  set_bytes(memory, "activations_bound", graph->memory->live_bytes);
  set_bytes(memory, "total", memory_of_rank());
  if (parts_bytes()) set_bytes(memory, "parts", parts_bytes());
  if (product_workspace()) set_bytes(memory, "workspace", product_workspace());
  if (target->libraries) set_bytes(memory, "libraries", library_reserve());
  if (graph->mesh.memory) set_bytes(memory, "limit", graph->mesh.memory);
  return memory;
}

static json_t *json_early_ends(void)
{
  json_t *list = json_array();
  for (int i = 0; i < graph->nended; i++) {
    const struct early_end *e = &graph->ended[i];
    json_append(list, json_pack("{s:s, s:s, s:I, s:s}", "where", e->where, "what", e->what, "after",
                                (json_int_t)e->most, "of", e->unit));
  }
  return list;
}

json_t *json_head(void)
{
  json_t *mesh = json_array();
  for (int d = 0; d < graph->mesh.ndim; d++) {
    json_t *row = json_pack("{s:s, s:i}", "name", printable(graph->mesh.name[d]), "size",
                            graph->mesh.size[d]);
    if (options.report && graph->mesh.microbatch_axis[d])
      json_member(row, "is_of_microbatches", json_true());
    json_append(mesh, row);
  }
  return json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:o}", "version", PLAN_VERSION, "tpgen",
                   TPGEN_VERSION, "plan", plan_shown(), "hash", plan_options->hash, "target",
                   target->name, "ranks", world_size(), "mesh", mesh);
}

void report_json(struct buffer *b)
{
  json_t *whole = json_head(), *collectives = json_array();
  each_op(add_collective, collectives);
  json_t *memory = json_memory(), *rows = json_rows_by_expert();
  json_member(whole, "parameters", json_parameters());
  json_member(whole, "collectives", collectives);
  json_member(whole, "redistributions", json_chains());
  json_member(whole, "memory_of_rank", memory);
  if (memory_of_role(CACHE)) json_member(whole, "caches", json_caches());
  if (json_array_size(rows)) json_member(whole, "rows_by_expert", rows);
  if (plan_files()) json_member(whole, "files", json_files());
  if (plan_options->reductions)
    json_member(whole, "gradients", json_string(plan_options->reductions));
  if (graph->recomputation) json_member(whole, "made_again", json_string(graph->recomputation));
  if (graph->nended) json_member(whole, "ended_early", json_early_ends());
  if (plan_options->nasync) json_member(whole, "async_tp", json_async_tp());
  if (device()) json_member(whole, "simulated_step", json_step());
  if (options.report) add_plan_details(whole);
  put(b, "%s\n", plan_json_text(whole));
}
