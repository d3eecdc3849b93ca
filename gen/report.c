/* report.c: what was decided: plan.txt for people, plan.json for programs, a step file's head. */
#include "tpgen.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const phase_name[] = {"forward", "backward", "update"};

/* What the ring algorithms send from each rank, on the whole, for a collective of these bytes. */
static int64_t sent_bytes(const struct op *op)
{
  int64_t n = group_size(op->group), bytes = collective_bytes(op, 0);
  switch (op->kind) {
  case OP_all_reduce:
    return 2 * bytes * (n - 1) / n;
  case OP_all_gather:
    return bytes * (n - 1);
  default:
    return bytes * (n - 1) / n;
  }
}

struct totals {
  int collectives;
  int64_t bytes, sent;
};

static void add_up(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct totals *t = to;
  if (!is_collective(op->kind)) return;
  t->collectives += times;
  t->bytes += times * collective_bytes(op, 0);
  t->sent += times * sent_bytes(op);
}

static struct totals totals(void)
{
  struct totals t = {0};
  each_op(add_up, &t);
  return t;
}

/* Elements of the values with this role: of a rank's parts, or of the whole with rank NONE. */
static int64_t count_elements(enum role role, int rank)
{
  int64_t sum = 0;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == role)
      sum += rank == NONE ? elements(graph->value[i].shape) : elements(local_shape(i, rank));
  return sum;
}

/* Bytes of rank 0's values with this role, outputs for ACTIVATION. */
static int64_t held(enum role role)
{
  int64_t sum = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != role || (role == ACTIVATION && !v->is_output)) continue;
    sum += elements(local_shape(i, 0)) * type_bytes(v->type);
  }
  return sum;
}

/* 1234567 as "1,234,567". */
static char *grouped(int64_t n)
{
  char *digits = text("%" PRId64, n);
  struct buffer b = {0};
  size_t length = strlen(digits);
  for (size_t i = 0; i < length; i++)
    put(&b, "%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
  return b.text;
}

static char *mesh_text(void)
{
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(&b, "%s%s=%d", d ? " " : "", printable(graph->mesh.name[d]), graph->mesh.size[d]);
  return b.text;
}

char *summary_text(int rank)
{
  struct totals t = totals();
  return text("//   mesh         %s\n"
              "//   parameters   %s elements of %s on each of these ranks\n"
              "//   a step       %d collective%s, %s bytes\n",
              mesh_text(), grouped(count_elements(PARAMETER, rank)),
              grouped(count_elements(PARAMETER, NONE)), t.collectives,
              t.collectives == 1 ? "" : "s", grouped(t.bytes));
}

/* ------------------------------------------------------------------------------------- plan.txt */

static char *asked_by(int value)
{
  const struct value *v = &graph->value[value];
  const char *path = plan_shown();
  if (v->style == NONE) return text("%s:%d", path, v->line);
  return text("%s:%d %s", path, graph->style[v->style].line, graph->style[v->style].name);
}

/* For each parameter, whether an update writes it. */
static bool *find_trained(void)
{
  bool *trained = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == GRADIENT) trained[graph->value[i].of] = true;
  return trained;
}

static void put_parameters(struct buffer *b)
{
  bool *trained = find_trained();
  put(b, "\n%-28s %-14s %-14s ", "parameters", "here", "of");
  for (int d = 0; d < graph->mesh.ndim; d++) put(b, "%-6s ", printable(graph->mesh.name[d]));
  put(b, "asked for by\n");
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER) continue;
    put(b, "  %-26s %-14s %-14s ", printable(v->name), shape_text(local_shape(i, 0)),
        shape_text(v->shape));
    for (int d = 0; d < graph->mesh.ndim; d++) put(b, "%-6s ", placement_text(v->layout.on[d]));
    put(b, "%s%s\n", asked_by(i),
        graph->loss != NONE && !trained[i] ? "; not trained: the loss does not depend on it" : "");
  }
  put(b, "  %s of %s elements here\n", grouped(count_elements(PARAMETER, 0)),
      grouped(count_elements(PARAMETER, NONE)));
}

static void put_collective(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct buffer *b = to;
  if (!is_collective(op->kind)) return;
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  put(b, "  %-9s %-15s %-8s %14s   %s -> %s: %s", phase_name[op->phase], op_row[op->kind].name,
      printable(graph->group[op->group].name), grouped(collective_bytes(op, 0)),
      layout_text(graph->value[in].layout), layout_text(graph->value[op->out].layout),
      printable(op->why));
  if (!op->nbody) put(b, ", %s:%d", plan_shown(), op->line);
  put(b, times > 1 ? ", %d times\n" : "\n", times);
}

static void put_issue(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct buffer *b = to;
  if (!is_collective(op->kind)) return;
  if (b->length) put(b, ", ");
  if (times > 1) put(b, "%d times ", times);
  put(b, "%s %s over %s", op_row[op->kind].name, grouped(collective_bytes(op, 0)),
      printable(graph->group[op->group].name));
}

static void put_memory(struct buffer *b)
{
  static const struct {
    const char *name;
    enum role role;
  } row[] = {{"parameters", PARAMETER},
             {"gradients", GRADIENT},
             {"optimizer", STATE},
             {"batch", BATCH},
             {"outputs", ACTIVATION}};
  put(b, "\nmemory of a rank\n");
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    if (held(row[i].role)) put(b, "  %-12s %16s B\n", row[i].name, grouped(held(row[i].role)));
  put(b, "  %-12s %16s B   %.3f of the lower bound, what lives at once\n", "activations",
      grouped(graph->arena_bytes),
      graph->live_bytes ? (double)graph->arena_bytes / (double)graph->live_bytes : 1.0);
}

void report_text(struct buffer *b)
{
  struct totals t = totals();
  put(b, "tpgen %s   %s (%s)   target %s\n\nmesh         %s: %d ranks\n", TPGEN_VERSION,
      plan_shown(), graph->hash, options.cuda ? "cuda" : "cpu", mesh_text(), world_size());
  put_parameters(b);
  put(b, "\ncollectives of a step                %11s   what and why\n", "bytes");
  each_op(put_collective, b);
  put(b, "  %d collective%s, %s bytes; rings send %s bytes from each rank\n", t.collectives,
      t.collectives == 1 ? "" : "s", grouped(t.bytes), grouped(t.sent));
  put_memory(b);
  struct buffer order = {0};
  put_text(&order, "", 0);
  each_op(put_issue, &order);
  put(b, "\norder        every rank issues: %s. Proved free of deadlock on %d ranks.\n",
      order.length ? order.text : "nothing", world_size());
}

/* ------------------------------------------------------------------------------------ plan.json */

static json_t *json_shape(struct shape s)
{
  json_t *list = json_array();
  for (int d = 0; d < s.ndim; d++) json_array_append_new(list, json_integer(s.size[d]));
  return list;
}

static json_t *json_layout(struct layout layout)
{
  json_t *object = json_object();
  for (int d = 0; d < graph->mesh.ndim; d++)
    json_object_set_new(object, printable(graph->mesh.name[d]),
                        json_string(placement_text(layout.on[d])));
  return object;
}

static void add_collective(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (!is_collective(op->kind)) return;
  json_array_append_new(
      to,
      json_pack("{s:s, s:s, s:I, s:i, s:i, s:s, s:i, s:s}", "kind", op_row[op->kind].name, "group",
                printable(graph->group[op->group].name), "bytes",
                (json_int_t)collective_bytes(op, 0), "ranks", group_size(op->group), "times", times,
                "phase", phase_name[op->phase], "line", op->line, "why", printable(op->why)));
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

/* The shapes of a value's parts, each with the ranks that hold one: [{"ranks": "0-1", "shape":
 * [11]}]. */
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
    json_array_append_new(
        list, json_pack("{s:s, s:o}", "ranks", ranks_with(value, here), "shape", json_shape(here)));
  }
  return list;
}

static json_t *json_parameters(void)
{
  json_t *list = json_array();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER) continue;
    json_array_append_new(list,
                          json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", printable(v->name), "type",
                                    type_name(v->type), "shape", json_shape(v->shape), "placement",
                                    json_layout(v->layout), "local", json_parts(i)));
  }
  return list;
}

void report_json(struct buffer *b)
{
  json_t *mesh = json_array(), *collectives = json_array();
  for (int d = 0; d < graph->mesh.ndim; d++)
    json_array_append_new(mesh, json_pack("{s:s, s:i}", "name", printable(graph->mesh.name[d]),
                                          "size", graph->mesh.size[d]));
  each_op(add_collective, collectives);
  json_t *memory =
      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)held(PARAMETER),
                "gradients", (json_int_t)held(GRADIENT), "optimizer", (json_int_t)held(STATE),
                "batch", (json_int_t)held(BATCH), "outputs", (json_int_t)held(ACTIVATION),
                "activations", (json_int_t)graph->arena_bytes);
  json_t *whole = json_pack(
      "{s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "tpgen", TPGEN_VERSION, "plan", plan_shown(),
      "hash", graph->hash, "target", options.cuda ? "cuda" : "cpu", "ranks", world_size(), "mesh",
      mesh, "parameters", json_parameters(), "collectives", collectives, "memory_of_rank", memory);
  char *text = whole ? json_dumps(whole, JSON_INDENT(2)) : NULL;
  if (!text) usage_error(3, "no memory for plan.json");
  put(b, "%s\n", text);
  free(text);
  json_decref(whole);
}

/* ------------------------------------------------------------------------------------ --explain */

static void explain_value(int value)
{
  const struct value *v = &graph->value[value];
  printf("%s  %s%s  %s  (%s:%d)\n", printable(value_name(value)), type_name(v->type),
         shape_text(v->shape), layout_text(v->layout), plan_shown(), v->line);
  if (v->role == PARAMETER) printf("  placed by %s\n", asked_by(value));
  if (v->op != NONE) printf("  made by %s\n", expression_text(&graph->op[v->op]));
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] == value)
        printf("  %s: read by %s at line %d, %s%s%s\n", phase_name[op->phase],
               op_row[op->kind].name, op->line, layouts_text(op), op->why ? ": " : "",
               op->why ? printable(op->why) : "");
  }
}

void explain(void)
{
  if (!options.explain) return;
  bool found = false;
  for (int i = 0; i < graph->nvalue; i++) {
    if (strcmp(value_name(i), options.explain)) continue;
    found = true;
    explain_value(i);
  }
  if (!found) plan_error(0, "no value is called %s", printable(options.explain));
  exit(0);
}
