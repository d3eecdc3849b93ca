/* report.c: what was decided: plan.txt, for people; a step file's head; --explain. */
#include "report.h"
#include "simulate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_name[] = {"forward", "backward", "update", "gather"};

/* --------------------------------------------------------------------------------------- counts */

int64_t bytes_brought(const struct op *op)
{
  return op->kind == OP_exchange ? busiest_of(op).sent : collective_bytes(op, 0);
}

struct totals {
  int collectives;
  int64_t bytes;
};

static void add_up(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct totals *t = to;
  if (!is_collective(op->kind)) return;
  t->collectives += times;
  t->bytes = plus_times(t->bytes, times, bytes_brought(op));
}

static struct totals totals(void)
{
  struct totals t = {0};
  each_op(add_up, &t);
  return t;
}

/* Of all ranks together: two for each product of two numbers. Attention is two products, and is
   counted as if nothing were masked. By the type of what is multiplied. */
static void add_flops(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  double *flops = to;
  struct letters l;
  if (op->phase != FORWARD || (op->kind != OP_matmul && op->kind != OP_attention)) return;
  double products = 1, width = op->kind == OP_attention ? 0 : 1;
  op_letters(op, &l);
  for (int i = 0; i < l.n; i++)
    if (op->kind == OP_attention && (l.name[i] == 'd' || l.name[i] == 'e'))
      width += (double)l.size[i];
    else
      products *= (double)l.size[i];
  if (op->pieces) products /= op->pieces;
  flops[graph->value[op->in[0]].type == BF16] += 2 * products * width * times;
}

double step_flops(void)
{
  double forward[2] = {0};
  each_op(add_flops, forward);
  double all = forward[0] + forward[1];
  return graph->loss == NONE ? all : 3 * all;
}

enum arithmetic step_arithmetic(void)
{
  double forward[2] = {0};
  each_op(add_flops, forward);
  if (forward[1] > forward[0]) return IN_BFLOAT16;
  return graph->tf32 ? IN_TFLOAT32 : IN_FLOAT32;
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

/* Bytes of rank 0's values by role, of outputs for ACTIVATION. */
static int64_t held[NORM + 1];

static void find_held(void)
{
  memset(held, 0, sizeof held);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == ACTIVATION && !v->is_output) continue;
    if (is_gradient(i) && v->storage != i) continue; /* added up in its own place */
    held[v->role == SUMS ? GRADIENT : v->role] += elements(local_shape(i, 0)) * type_bytes(v->type);
  }
  if (keeps_batches()) held[BATCH] *= 1 + graph->accumulate;
}

const struct memory_part memory_part[MEMORY_PARTS] = {{"parameters", PARAMETER},
                                                      {"gradients", GRADIENT},
                                                      {"optimizer", STATE},
                                                      {"batch", BATCH},
                                                      {"outputs", ACTIVATION}};

static int64_t held_in_all(void)
{
  int64_t bytes = graph->arena_bytes + parts_bytes() + product_workspace();
  for (int i = 0; i < MEMORY_PARTS; i++) bytes += held[memory_part[i].role];
  return bytes;
}

const int64_t *memory_by_role(void)
{
  find_held();
  return held;
}

int64_t memory_of_role(enum role role)
{
  return memory_by_role()[role];
}

int64_t memory_of_rank(void)
{
  find_held();
  return held_in_all();
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

/* Where not all is float32. */
static void put_precision(struct buffer *b)
{
  const struct value *mixed = NULL;
  int of = 0, all = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    all += v->role == PARAMETER;
    if (v->role != PARAMETER || v->used_as == v->type) continue;
    mixed = v;
    of++;
  }
  if (mixed)
    put(b,
        "precision    %s%d parameters of %s are computed with as %s, their gradients move as %s\n",
        of < all ? text("%d of ", of) : "", all, type_name(mixed->type), type_name(mixed->used_as),
        type_name(mixed->reduced_as));
  if (graph->tf32) put(b, "precision    products of f32 may round what they take to TF32\n");
}

static char *asked_by(int value)
{
  const struct value *v = &graph->value[value];
  const char *path = plan_shown();
  const char *by = v->style == NONE ? text("%s:%d", path, v->line)
                                    : text("%s:%d %s", path, graph->style[v->style].line,
                                           graph->style[v->style].name);
  if (!is_kept_cut(value)) return (char *)by;
  return text("%s, :%d %s", by, graph->unit[v->unit].line, graph->unit[v->unit].who);
}

static bool *trained; /* by value, of a parameter: an update writes it */

static void find_trained(void)
{
  trained = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == GRADIENT) trained[graph->value[i].of] = true;
}

static int unit_line(int parameter)
{
  int unit = graph->value[parameter].unit;
  return unit == NONE ? 0 : graph->unit[unit].line;
}

/* Whether all is told of the parameter that is told of the family's. */
static bool is_told_alike(const struct family *f, int value)
{
  int first = f->member.at[0], a = graph->value[first].style, b = graph->value[value].style;
  if (!same_tensor(first, value) || trained[first] != trained[value]) return false;
  if (unit_line(first) != unit_line(value)) return false;
  if (a == NONE || b == NONE) return a == b && graph->value[first].line == graph->value[value].line;
  return graph->style[a].line == graph->style[b].line &&
         !strcmp(graph->style[a].name, graph->style[b].name);
}

struct families find_parameters(void)
{
  int n = 0, *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  find_trained();
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER) list[n++] = i;
  return find_families(n, list, is_told_alike);
}

static void put_parameters(struct buffer *b)
{
  struct families parameters = find_parameters();
  int width = 26;
  for (int i = 0; i < parameters.n; i++) {
    int length = (int)strlen(printable(family_text(&parameters.at[i])));
    if (width < length) width = length;
  }
  put(b, "\n%-*s %-14s %-14s ", width + 2, "parameters", "here", "of");
  for (int d = 0; d < graph->mesh.ndim; d++) put(b, "%-6s ", printable(graph->mesh.name[d]));
  put(b, "asked for by\n");
  for (int i = 0; i < parameters.n; i++) {
    int first = parameters.at[i].member.at[0];
    const struct value *v = &graph->value[first];
    put(b, "  %-*s %-14s %-14s ", width, printable(family_text(&parameters.at[i])),
        shape_text(local_shape(first, 0)), shape_text(v->shape));
    for (int d = 0; d < graph->mesh.ndim; d++) put(b, "%-6s ", placement_text(v->layout.on[d]));
    bool lost = graph->loss != NONE && !trained[first];
    put(b, "%s%s\n", asked_by(first), lost ? "; not trained: the loss does not depend on it" : "");
  }
  put(b, "  %s of %s elements here\n", grouped(count_elements(PARAMETER, 0)),
      grouped(count_elements(PARAMETER, NONE)));
}

char *seconds_text(double seconds)
{
  if (seconds < 1e-6) return text("%.1f ns", seconds * 1e9);
  return seconds < 1e-3 ? text("%.1f us", seconds * 1e6) : text("%.3f ms", seconds * 1e3);
}

char *over_text(const struct op *op)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (is_collective(op->kind)) return printable(graph->group[op->group].name);
  struct layout from = graph->value[op->in[0]].layout, to = graph->value[op->out].layout;
  for (int d = 0; d < graph->mesh.ndim && (op->kind == OP_slice || op->kind == OP_to_partial); d++)
    if (!same_placement(from.on[d], to.on[d]))
      put(&b, "%s%s", b.length ? "_" : "", printable(graph->mesh.name[d]));
  return b.text;
}

char *step_layouts(const struct op *op)
{
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  struct layout from = graph->value[in].layout, to = graph->value[op->out].layout;
  if (op->kind == OP_exchange) {
    from = graph->exchange[op->exchange].move.from;
    to = graph->exchange[op->exchange].move.to;
  } else if (!is_collective(op->kind) && op->kind != OP_slice && op->kind != OP_to_partial) {
    return "";
  }
  return text("%s -> %s", layout_text(from), layout_text(to));
}

const char *kind_of(const struct op *op)
{
  if (op->kind != OP_exchange) return op_row[op->kind].name;
  const struct exchange *x = &graph->exchange[op->exchange];
  return is_permutation(&x->move, x->whole) ? "permute" : "exchange";
}

static void put_bytes(struct buffer *b, struct busiest most, int64_t bound)
{
  put(b, " %15s %15s %15s   ", grouped(most.sent), grouped(most.received),
      bound == NONE ? "" : grouped(bound));
}

static void put_move(struct buffer *b, const struct op *op)
{
  put(b, "    %s", kind_of(op));
  if (!*step_layouts(op)) {
    put(b, "\n");
    return;
  }
  put(b, "%*s %-10s", 18 - (int)strlen(kind_of(op)), "", over_text(op));
  if (is_collective(op->kind))
    put_bytes(b, busiest_of(op), NONE);
  else
    put(b, "%51s", "");
  put(b, "%s\n", step_layouts(op));
}

/* The step that is no packing, where there is one alone; else NULL. */
static const struct op *only_step(const struct chain *c)
{
  const struct op *only = NULL;
  for (int i = 0; i < c->nstep; i++) {
    const struct op *op = &graph->op[c->step[i]];
    if (!*step_layouts(op)) continue;
    if (only) return NULL;
    only = op;
  }
  return only;
}

static const char *packing_text(const struct chain *c)
{
  bool before = !*step_layouts(first_step(c)), after = !*step_layouts(last_step(c));
  if (before && after) return ", packed before and unpacked after";
  return before ? ", packed before" : after ? ", unpacked after" : "";
}

static void put_chain(struct buffer *b, const struct chain *c)
{
  const struct op *op = first_step(c), *only = only_step(c);
  const struct value *v = moved_value(c);
  if (only)
    put(b, "  %-8s %-15s %-6s", phase_name[op->phase], kind_of(only), over_text(only));
  else
    put(b, "  %-8s %-22s", phase_name[op->phase], text("%d steps", count_steps(c)));
  put_bytes(b, busiest_in(c->nstep, c->step, NULL), bound_of(c));
  if (op->nbody)
    put(b, "%s: %s: %s%s", reduced_text(op), step_layouts(op), printable(op->why),
        op->packed && !lies_in_buffer(op) ? ", packed before and unpacked after" : "");
  else
    put(b, "%s %s%s: %s -> %s: %s, %s:%d", printable(value_name((int)(v - graph->value))),
        type_name(v->type), shape_text(v->shape), layout_text(layout_before(c)),
        layout_text(layout_reached(c)), printable(op->why), plan_shown(), op->line);
  if (only) put(b, "%s", packing_text(c));
  if (!only && seconds_of(c) > 0) put(b, ", %s by the model", seconds_text(seconds_of(c)));
  put(b, c->times > 1 ? ", %d times\n" : "\n", c->times);
  for (int i = 0; i < c->nstep && !only; i++) put_move(b, &graph->op[c->step[i]]);
}

/* All collectives of a step of the program. */
struct issued {
  struct list op, times;
};

static void add_issued(void *to, int id, int times)
{
  struct issued *all = to;
  add(&all->op, id);
  add(&all->times, times);
}

static void put_chains(struct buffer *b)
{
  struct totals t = totals();
  struct issued all = {0};
  int n;
  const struct chain *chain = find_chains(&n);
  put(b, "\n%-33s %15s %15s %15s   %s\n", "redistributions of a step", "sent", "received",
      "at least", "what and why");
  for (int i = 0; i < n; i++) put_chain(b, &chain[i]);
  each_op(add_issued, &all);
  struct busiest most = busiest_in(all.op.n, all.op.at, all.times.at);
  put(b, "  %d collective%s of %s bytes; the busiest rank sends %s bytes and receives %s\n",
      t.collectives, t.collectives == 1 ? "" : "s", grouped(t.bytes), grouped(most.sent),
      grouped(most.received));
  if (n)
    put(b, "  sent, received: bytes of the rank that has most; at least: what no way can do "
           "without\n");
}

static void put_memory(struct buffer *b)
{
  find_held();
  put(b, "\nmemory of a rank\n");
  for (int i = 0; i < MEMORY_PARTS; i++) {
    int64_t bytes = held[memory_part[i].role];
    if (bytes) put(b, "  %-12s %16s B\n", memory_part[i].name, grouped(bytes));
  }
  put(b, "  %-12s %16s B   %.3f of the lower bound, what lives at once\n", "activations",
      grouped(graph->arena_bytes),
      graph->live_bytes ? (double)graph->arena_bytes / (double)graph->live_bytes : 1.0);
  if (parts_bytes())
    put(b, "  %-12s %16s B   of sums that many blocks add up\n", "parts", grouped(parts_bytes()));
  if (product_workspace())
    put(b, "  %-12s %16s B   of the products of matrices\n", "workspace",
        grouped(product_workspace()));
  put(b, "  %-12s %16s B\n", "in all", grouped(held_in_all()));
  if (options.cuda)
    put(b, "  %-12s %16s B   what CUDA and NCCL keep for themselves: an allowance\n", "besides",
        grouped(memory_besides()));
  if (graph->mesh.memory)
    put(b, "  %-12s %16s B   of a rank, %s:%d\n", "limit", grouped(graph->mesh.memory),
        plan_shown(), graph->mesh.line);
}

void report_text(struct buffer *b)
{
  put(b, "tpgen %s   %s (%s)   target %s\n\nmesh         %s: %d ranks\n", TPGEN_VERSION,
      plan_shown(), graph->hash, options.cuda ? "cuda" : "cpu", mesh_text(), world_size());
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (idle_text(d)) put(b, "             %s\n", idle_text(d));
  put_precision(b);
  put_parameters(b);
  put_chains(b);
  put_pipelined(b);
  put_step(b);
  if (options.cuda) put_streams(b);
  put_memory(b);
  put_order(b);
}

/* ------------------------------------------------------------------------------------ --explain */

/* Whether the value is one of the program's own: made by something that is still there, and no
   buffer of pieces. */
static bool is_there(int value)
{
  if (graph->value[value].op == NONE) return true;
  if (holds_pieces(value)) return false;
  for (int i = 0; i < graph->norder; i++)
    if (graph->order[i] == graph->value[value].op) return true;
  return false;
}

static char *made_by(const struct op *op)
{
  return op->why && op->kind != OP_view ? comment_text(op) : expression_text(op);
}

static void explain_value(int value)
{
  const struct value *v = &graph->value[value];
  printf("%s  %s%s  %s  (%s:%d)\n", printable(value_name(value)), type_name(v->type),
         shape_text(v->shape), layout_text(v->layout), plan_shown(), v->line);
  if (v->role == PARAMETER) printf("  placed by %s\n", asked_by(value));
  if (v->op != NONE) printf("  made by %s\n", made_by(&graph->op[v->op]));
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
    if (strcmp(value_name(i), options.explain) || !is_there(i)) continue;
    found = true;
    explain_value(i);
  }
  if (!found) plan_error(0, "no value is called %s", printable(options.explain));
  end_printing();
}
