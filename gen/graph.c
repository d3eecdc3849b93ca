/* graph.c: how values and operations are added, and what the table of operators says of a kind. */
#include "tpgen.h"

#include <string.h>

const struct op_row op_row[OP_COUNT] = {
#define OP(name, rule, linear, gradient, numbers, element)                                         \
  [OP_##name] = {#name, rule, linear, numbers, element},
#include "ops.h"
#undef OP
};

static bool has_reduced_rule(enum op_kind k)
{
  return *op_row[k].element && !strncmp(op_row[k].rule, "...D->...", strlen("...D->...")) &&
         op_row[k].rule[strlen("...D->...")] != 'D';
}

bool is_reduce(enum op_kind k)
{
  static enum { NOT_ASKED, NO, YES } known[OP_COUNT]; /* passes ask it of every operation */
  if (known[k] == NOT_ASKED) known[k] = has_reduced_rule(k) ? YES : NO;
  return known[k] == YES;
}

bool is_pointwise(enum op_kind k)
{
  return *op_row[k].element && !is_reduce(k);
}

bool is_broadcast(enum op_kind k)
{
  const char *rule = op_row[k].rule;
  return !strncmp(rule, "...", 3) && rule[strspn(rule, ".,->")] == 0;
}

bool has_kernel(enum op_kind k)
{
  return *op_row[k].rule && !*op_row[k].element && k != OP_matmul && k != OP_view && k != OP_cat;
}

const char *rule_of(const struct op *op)
{
  if (op->kind == OP_custom) return graph->custom[op->custom].rule;
  const char *rule = op_row[op->kind].rule;
  return strcmp(rule, "equation") ? rule : op->equation;
}

const char *linear_of(const struct op *op)
{
  return op->kind == OP_custom ? graph->custom[op->custom].linear : op_row[op->kind].linear;
}

int64_t number_of(const struct op *op, const char *name)
{
  size_t length = strlen(name);
  const char *c = op_row[op->kind].numbers;
  for (int i = 0; *c; i++, c += strspn(c, " ")) {
    size_t n = strcspn(c, " ");
    if (n == length && !strncmp(c, name, n)) return op->number[i];
    c += n;
  }
  bug("ops", NONE, "%s has no number '%s'", op_row[op->kind].name, name);
}

bool is_of_batch(enum phase phase)
{
  return phase == FORWARD || phase == BACKWARD;
}

bool is_gradient(int value)
{
  return graph->value[value].role == GRADIENT || graph->value[value].role == SUMS;
}

bool is_collective(enum op_kind k)
{
  return k == OP_all_reduce || k == OP_all_gather || k == OP_reduce_scatter || k == OP_all_to_all ||
         k == OP_exchange;
}

int64_t elements(struct shape s)
{
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++) n *= s.size[i];
  return n;
}

bool same_shape(struct shape a, struct shape b)
{
  if (a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; i++)
    if (a.size[i] != b.size[i]) return false;
  return true;
}

int64_t type_bytes(enum type t)
{
  static const int64_t bytes[] = {
      [F32] = 4, [BF16] = 2, [I32] = 4, [I64] = 8, [BOOL] = 1, [F64] = 8};
  return bytes[t];
}

const char *type_name(enum type t)
{
  static const char *const name[] = {
      [F32] = "f32", [BF16] = "bf16", [I32] = "i32", [I64] = "i64", [BOOL] = "bool", [F64] = "f64"};
  return name[t];
}

/* The name stays where it is. */
static int add_value_named(enum role role, const char *name, enum type type, struct shape shape,
                           int module, int line)
{
  GROW(graph->value, graph->nvalue, graph->value_room);
  struct value *v = &graph->value[graph->nvalue];
  *v = (struct value){.name = name,
                      .role = role,
                      .type = type,
                      .shape = shape,
                      .used_as = type,
                      .reduced_as = type,
                      .of = NONE,
                      .op = NONE,
                      .module = module,
                      .line = line,
                      .style = NONE,
                      .unit = NONE,
                      .family = NONE,
                      .sibling = NONE,
                      .depth = 1,
                      .storage = graph->nvalue};
  return graph->nvalue++;
}

int add_value(enum role role, const char *name, enum type type, struct shape shape, int module,
              int line)
{
  return add_value_named(role, copy_text(name), type, shape, module, line);
}

int add_module(const char *name, const char *class_name, int parent, int line)
{
  GROW(graph->module, graph->nmodule, graph->module_room);
  const char *above = parent == NONE ? "" : graph->module[parent].path;
  const char *path = parent == NONE ? "" : *above ? text("%s.%s", above, name) : copy_text(name);
  graph->module[graph->nmodule] = (struct module){.name = copy_text(name),
                                                  .path = path,
                                                  .class_name = copy_text(class_name),
                                                  .parent = parent,
                                                  .line = line,
                                                  .unit = NONE};
  return graph->nmodule++;
}

bool is_within(int mesh_dim)
{
  const struct mesh *m = &graph->mesh;
  return mesh_dim > 0 && m->whole[mesh_dim] && m->whole[mesh_dim] == m->whole[mesh_dim - 1];
}

int add_ordered_group(int n, const int *dim)
{
  for (int i = 0; i < graph->ngroup; i++)
    if (graph->group[i].n == n && !memcmp(graph->group[i].dim, dim, (size_t)n * sizeof *dim))
      return i;
  GROW(graph->group, graph->ngroup, graph->group_room);
  struct group *g = &graph->group[graph->ngroup];
  struct buffer name = {0};
  *g = (struct group){.n = n};
  for (int i = 0; i < n; i++) {
    g->dim[i] = dim[i];
    g->dims |= 1u << dim[i];
  }
  for (int i = 0; i < n; i++) {
    bool both = i + 1 < n && is_within(dim[i + 1]) && dim[i + 1] == dim[i] + 1;
    put(&name, "%s%s", i ? "_" : "", both ? graph->mesh.whole[dim[i]] : graph->mesh.name[dim[i]]);
    i += both;
  }
  g->name = name.text;
  return graph->ngroup++;
}

int add_group(unsigned dims)
{
  int n = 0, dim[MAX_MESH];
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (dims >> i & 1) dim[n++] = i;
  return add_ordered_group(n, dim);
}

static int store_op(struct op op)
{
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  return graph->nop++;
}

static void append(int op)
{
  GROW(graph->order, graph->norder, graph->order_room);
  graph->order[graph->norder++] = op;
}

static const char *made_in(int module)
{
  return module == NONE ? "" : graph->module[module].path;
}

int unit_of(const struct op *op)
{
  return op->unit_plus_1 - 1;
}

enum type moved_type(const struct op *op)
{
  if (op->packed) return graph->value[op->buffer].type;
  return graph->value[op->nbody ? graph->op[op->body[0]].out : op->in[0]].type;
}

/* Where each member begins: found once for all of a bucket's, which are asked for one after the
   other. */
static const int64_t *chunk_begins(const struct op *op)
{
  static const struct graph *of;
  static const int *body;
  static int64_t *begin;
  static int room;
  if (of == graph && body == op->body) return begin;
  if (of != graph) room = 0;
  while (room <= op->nbody) begin = grow(begin, 0, &room, sizeof *begin);
  of = graph;
  body = op->body;
  begin[0] = 0;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *member = &graph->op[op->body[k]];
    int part = op->kind == OP_all_gather ? member->in[0] : member->out;
    begin[k + 1] = begin[k] + elements(local_shape(part, 0)); /* no rank has more than the first */
  }
  return begin;
}

int64_t bucket_chunk(const struct op *op, int k)
{
  return chunk_begins(op)[k];
}

const char *value_name(int value)
{
  const struct value *v = &graph->value[value];
  if (*v->name || v->op == NONE) return v->name;
  return op_name(&graph->op[v->op]);
}

bool has_name_of_op(int value)
{
  const struct value *v = &graph->value[value];
  const char *dot = strrchr(v->name, '.'), *last = dot ? dot + 1 : v->name;
  const char *name = v->op == NONE ? "" : op_name(&graph->op[v->op]);
  return *name && (!*last || !strncmp(last, name, strlen(name)));
}

int shown_value(int value)
{
  enum { FAR_ENOUGH = 128 }; /* names would be no better for more */
  for (int steps = 0; steps < FAR_ENOUGH; steps++) {
    int id = graph->value[value].op;
    enum op_kind kind = id == NONE ? OP_COUNT : graph->op[id].kind;
    bool shows = kind == OP_view || kind == OP_permute || kind == OP_cast;
    int in = id == NONE ? NONE : graph->op[id].in[0];
    bool moves =
        kind == OP_redistribute && !strcmp(graph->value[value].name, graph->value[in].name);
    if (!moves && !(shows && has_name_of_op(value))) return value;
    value = in;
  }
  return value;
}

bool is_next_parameter(int one, int next)
{
  for (int v = one + 1; v < next; v++)
    if (graph->value[v].role == PARAMETER) return false;
  return one < next;
}

static bool is_mean(const struct op *op)
{
  if (op->kind != OP_sum || op->scalar == 1) return false;
  struct shape s = graph->value[op->in[0]].shape;
  double n = 1;
  for (int d = 0; d < s.ndim; d++)
    if (op->dims >> d & 1) n *= (double)s.size[d];
  return op->scalar == 1 / n;
}

/* "abc->abc": from one order in memory to another (arrange.c). */
static bool is_reordering(const struct op *op)
{
  if (op->kind != OP_permute) return false;
  size_t n = strcspn(op->equation, "-");
  return !strncmp(op->equation, op->equation + n + strlen("->"), n);
}

const char *op_name(const struct op *op)
{
  if (op->kind == OP_custom) return graph->custom[op->custom].name;
  if (is_reordering(op)) return "reorder";
  return is_mean(op) ? "mean" : op_row[op->kind].name;
}

static int make_op_shaped(struct op op, const struct shape *shape, int nout)
{
  enum type type[MAX_OUTPUTS];
  for (int k = 0; k < nout; k++) type[k] = type_of(&op, k);
  op.nout = nout;
  op.out = graph->nvalue;
  int i = store_op(op);
  for (int k = 0; k < nout; k++) {
    int out =
        add_value_named(ACTIVATION, made_in(op.module), type[k], shape[k], op.module, op.line);
    graph->value[out].op = i;
  }
  return i;
}

int make_op(struct op op)
{
  struct shape made[MAX_OUTPUTS];
  op.nout = 0;
  int nout = shapes(&op, made);
  return make_op_shaped(op, made, nout);
}

int append_op(struct op op)
{
  int i = make_op(op);
  append(i);
  return graph->op[i].out;
}

int append_op_outputs(struct op op, const struct shape *shape, int nout)
{
  int i = make_op_shaped(op, shape, nout);
  append(i);
  return graph->op[i].out;
}

int append_op_like(struct op op, int like)
{
  struct shape shape[MAX_OUTPUTS];
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[like + k].shape;
  return append_op_outputs(op, shape, op.nout);
}

int append_op_shaped(struct op op, struct shape shape)
{
  return append_op_outputs(op, &shape, 1);
}

int append_update(struct op op)
{
  op.out = NONE;
  op.nout = 0;
  int i = store_op(op);
  append(i);
  return i;
}

/* The values that one call of op_reads or op_writes has met: an update of all parameters has
   many. */
static int *met_in, met_room, call_now; /* by value: the last call that met it */

static void meet_none_yet(void)
{
  static const struct graph *known; /* tests have several, each with memory of its own */
  if (known != graph) met_room = 0;
  known = graph;
  while (met_room < graph->nvalue) met_in = grow(met_in, met_room, &met_room, sizeof *met_in);
  call_now++;
}

/* Whether the value is met for the first time. */
static bool meet(int value)
{
  bool first = met_in[value] != call_now;
  met_in[value] = call_now;
  return first;
}

int op_width(const struct op *op)
{
  if (op->kind == OP_await) {
    int width = 0;
    for (const struct op *c = &graph->op[op->begun]; c; c = leader_of(c)) width += 2 * op_width(c);
    return width;
  }
  return MAX_INPUTS * (op->nbody + 1) + 1;
}

bool copies_late(const struct op *op)
{
  return options.cuda && op->beside && op->packed && op->kind != OP_all_reduce;
}

int pending_reads(const struct op *op, int *list)
{
  return copies_late(op) && op->kind == OP_reduce_scatter ? 0 : op_reads(op, list);
}

int pending_writes(const struct op *op, int *list)
{
  if (!copies_late(op) || op->leads) return op_makes(op, list);
  int n = op->kind == OP_reduce_scatter ? op_makes(op, list) : 0;
  if (!n) list[n++] = op->buffer;
  return n;
}

/* An await stands for the end of what it awaits, and of what that follows: all that has to be there
   until then. */
static int await_reads(const struct op *op, int *list)
{
  int n = pending_reads(op, list);
  n += pending_writes(op, list + n);
  return leader_of(op) ? n + await_reads(leader_of(op), list + n) : n;
}

static int await_writes(const struct op *op, int *list)
{
  int n = 0;
  for (int k = 0; k < op->nbody && copies_late(op) && !op->leads; k++)
    list[n++] = graph->op[op->body[k]].out;
  return n;
}

int op_reads(const struct op *op, int *list)
{
  int n = 0;
  if (op->kind == OP_await) return await_reads(&graph->op[op->begun], list);
  meet_none_yet();
  for (int i = 0; i < op->nin && !op->nbody; i++)
    if (meet(op->in[i])) list[n++] = op->in[i];
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    for (int i = 0; i < inner->nin; i++)
      if (meet(inner->in[i])) list[n++] = inner->in[i];
    if (inner->out != NONE) meet(inner->out);
  }
  return n;
}

int op_writes(const struct op *op, int *list)
{
  if (op->kind == OP_await) return await_writes(&graph->op[op->begun], list);
  return copies_late(op) ? pending_writes(op, list) : op_makes(op, list);
}

/* adamw's and sgd's first input and the states are written in place. */
int op_makes(const struct op *op, int *list)
{
  int n = 0;
  meet_none_yet();
  bool alone = !op->nbody || op->kind == OP_squares;
  for (int k = 0; k < op->nout && alone; k++) list[n++] = op->out + k;
  for (int k = 0; k < op->nbody && !alone; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (inner->out != NONE && graph->value[inner->out].stored && meet(inner->out))
      list[n++] = inner->out;
    if (inner->out == NONE && meet(inner->in[0])) list[n++] = inner->in[0];
  }
  if (op->out == NONE && !op->nbody && op->nin) list[n++] = op->in[0];
  if (op->packed) list[n++] = op->buffer;
  return n;
}

int runs_at(const struct function *f, int op)
{
  for (int k = 0; k < f->nop; k++)
    if (f->op[k] == op) return k;
  return NONE;
}

bool is_phase(const struct function *f)
{
  return f->count == 1 && !f->is_part;
}

int module_of_round(const struct function *f, int round)
{
  return f->upward ? round : f->count - 1 - round;
}

int round_called(const struct op *op, int from)
{
  int count = graph->function[op->function].count;
  switch (op->round) {
  case FIRST_ROUND:
    return op->far;
  case LAST_ROUND:
    return count - 1;
  case IN_LAST_ROUND:
    return from + 1 < graph->function[graph->function[op->function].body].count ? NONE : 0;
  case NEXT_ROUND:
    return from + op->far < count ? from + op->far : NONE;
  default:
    return from - 1;
  }
}

const struct op *leader_of(const struct op *op)
{
  return op->follows_plus_1 ? &graph->op[op->follows_plus_1 - 1] : NULL;
}

int event_slots(const struct op *op)
{
  return op->ahead > 1 ? op->ahead : 1;
}

static void run_function(const struct function *f, int round,
                         void (*visit)(void *to, int op, int module), void *to)
{
  int module = f->count > 1 ? module_of_round(f, round) : NONE;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    visit(to, f->op[k], module);
    int first = op->kind == OP_loop ? 0 : op->kind == OP_round ? round_called(op, round) : NONE;
    int last = op->kind == OP_loop ? graph->function[op->function].count - 1 : first;
    for (int r = first; first != NONE && r <= last; r++)
      run_function(&graph->function[op->function], r, visit, to);
  }
}

void each_run_of(const struct function *f, void (*visit)(void *to, int op, int module), void *to)
{
  run_function(f, 0, visit, to);
}

/* Whether what the operation calls is visited there: what rounds do for each other is, where it is
   done around the loop. */
static bool is_visited_in(const struct op *call)
{
  if (call->kind == OP_loop) return true;
  if (call->kind != OP_round) return false;
  bool first = call->round == FIRST_ROUND && !call->far;
  return first || call->round == LAST_ROUND || call->round == IN_LAST_ROUND;
}

static void visit_function(const struct function *f, int runs,
                           void (*visit)(void *to, int op, int times), void *to)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    visit(to, f->op[k], runs * f->count);
    if (is_visited_in(op)) visit_function(&graph->function[op->function], runs, visit, to);
  }
}

void each_op_of(const struct function *f, void (*visit)(void *to, int op, int times), void *to)
{
  if (!is_phase(f)) return;
  visit_function(f, is_of_batch(f->phase) ? graph->accumulate : 1, visit, to);
}

void each_op(void (*visit)(void *to, int op, int times), void *to)
{
  for (int i = 0; i < graph->nfunction; i++) each_op_of(&graph->function[i], visit, to);
}
