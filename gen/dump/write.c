/* write.c: the graph as text, in one form after every pass: `tpgen --dump=PASS plan.lua`. read.c
   reads it, and has the grammar in its head comment.

     v0 in_proj.weight = parameter f32[32, 10] S(0) its_line 14
     v12 in_proj = matmul(input, in_proj.weight) rule mk,nk->mn  f32[20, 32] S(1)  line 8 in in_proj

   It writes the operations that the program runs, the values that they touch, all values outside of
   the arena, and everything to which those refer. Values keep their numbers. */
#include "dump/dump.h"

#include <inttypes.h>
#include <string.h>

/* --------------------------------------------------------------------------------------- values */

/* The operation that makes the stack's values of modules after the first; else NONE. */
static int maker_by_stack(int value)
{
  return is_other_of_stack(value) ? graph->value[in_loop(value)->stack].op : NONE;
}

/* The role, the type, the shape, the layout, and the unusual fields of a value. */
static void put_kind(int value, const struct op *maker)
{
  static const char *const role[] = {ROLE_WORDS};
  const struct value *v = &graph->value[value];
  struct value usual = usual_value(maker, v->type, d.after);
  struct in_loop usual_loop = in_no_loop;
  struct allocation a = allocation_of(value), own = no_place(value);
  usual.op = maker ? (int)(maker - graph->op) : maker_by_stack(value);
  usual_loop.sibling = d.sibling[value];
  if (v->role != ACTIVATION || !maker) put(&d.b, " %s", role[v->role]);
  put(&d.b, " %s", type_name(v->type));
  put_shape(&v->shape);
  if (v->placed) put(&d.b, graph->mesh.ndim ? " " : "");
  if (v->placed) put_layout(&v->layout);
  put_value_fields(v, &usual);
  put_in_loop_fields(in_loop(value), &usual_loop);
  put_concat_slice_fields(concat_slice(value), &no_concat_slice);
  if (d.after == PASS_MEMORY) put_allocation_fields(&a, &own);
}

/* The name in the value's line: its own, or one that follows from its operation. */
static void put_value_name(int value, const struct op *maker)
{
  const struct value *v = &graph->value[value];
  bool is_usual =
      maker && takes_usual_name(v) && !strcmp(v->name, usual_value(maker, v->type, d.after).name);
  put_name(is_usual ? value_name(value) : v->name);
}

/* ----------------------------------------------------------------------------------- operations */

/* `to dp=S(0)[1]` on the dimensions that a redistribute changes; for others the whole layout. */
static void put_requested(const struct op *op)
{
  if (op->asked) put(&d.b, " to");
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (op->asked >> m & 1) {
      put(&d.b, " ");
      put_name(graph->mesh.name[m]);
      put(&d.b, "=");
      put_placement(op->to.on[m]);
    }
  struct layout none = {0};
  if (op->asked || !memcmp(&none, &op->to, sizeof none)) return;
  put(&d.b, " as ");
  put_layout(&op->to);
}

static void put_op(int id, enum phase phase, int indent, const struct task *task);

static void put_op(int id, enum phase phase, int indent, const struct task *task)
{
  const struct op *op = &graph->op[id];
  struct op usual = usual_op(op->kind, phase);
  put(&d.b, "%*s", indent, "");
  if (d.label[id]) put(&d.b, "@%d ", d.label[id]);
  for (int k = 0; k < op->nout; k++) {
    put(&d.b, "v%d", op->out + k);
    if (!op->nbody && !d.is_written[op->out + k]) {
      put(&d.b, " ");
      put_value_name(op->out + k, op);
    }
    put(&d.b, k + 1 < op->nout ? ", " : " = ");
  }
  put(&d.b, "%s", op_row[op->kind].name);
  if (op->nout || op->nin) put(&d.b, "(");
  for (int i = 0; i < op->nin; i++) {
    if (i) put(&d.b, ", ");
    put_value(op->in[i]);
  }
  if (op->nout || op->nin) put(&d.b, ")");
  if (!op->nout && op->out != NONE) put(&d.b, " out v%d", op->out);
  put_op_fields(op, &usual);
  put_scheduled_fields(scheduled(op), &(struct scheduled){.chained_to = NONE});
  put_work_of_stage(id);
  put_requested(op);
  int last = MAX_NUMBERS;
  while (last && !op->number[last - 1]) last--;
  for (int i = 0; i < last; i++) put(&d.b, "%s%" PRId64, i ? "," : " numbers ", op->number[i]);
  if (task) put_task_fields(task, &(struct task){0});
  for (int k = 0; k < op->nout && !op->nbody; k++)
    if (!d.is_written[op->out + k]) {
      put(&d.b, " ");
      put_kind(op->out + k, op);
      d.is_written[op->out + k] = true;
    }
  if (op->nbody) {
    const struct stages *s = op->stages, none = {0};
    put(&d.b, " {");
    if (s) put_stages_fields(s, &(struct stages){.space = NONE});
    put(&d.b, "\n");
    for (int k = 0; k < op->nbody; k++)
      put_op(op->body[k], op->phase, indent + 2, s ? &s->task[k] : NULL);
    put(&d.b, "%*s}", indent, "");
    (void)none;
  }
  put(&d.b, "\n");
}

/* A block of the flat program for each interval of one phase. */
static void put_flat(void)
{
  static const char *const words[] = {PHASE_WORDS};
  for (int i = 0; i < graph->norder; i++) {
    enum phase phase = graph->op[graph->order[i]].phase;
    if (!i || phase != graph->op[graph->order[i - 1]].phase)
      put(&d.b, "%s%s {\n", i ? "}\n" : "", words[phase]);
    put_op(graph->order[i], phase, 2, NULL);
  }
  if (graph->norder) put(&d.b, "}\n");
}

/* ------------------------------------------------------------------------------------- the rest */

#define NAMED(member) x->member
#define NAMELESS      NULL
#define LINE(word, of, array, type, record, NAME, usual)                                           \
  static void put_##word##_lines(void)                                                             \
  {                                                                                                \
    for (int i = 0; i < of->n##array; i++) {                                                       \
      const type *x = &of->array[i];                                                               \
      const char *name = NAME;                                                                     \
      const type left_out = usual;                                                                 \
      put(&d.b, name ? #word " " : #word);                                                         \
      if (name) put_name(name);                                                                    \
      put_##record##_fields(x, &left_out);                                                         \
      put(&d.b, "\n");                                                                             \
    }                                                                                              \
  }
LINES(LINE)
#undef LINE

static void put_mesh(void)
{
  const struct mesh *m = &graph->mesh;
  const struct device *device = &m->device;
  for (int i = 0; i < m->ndim; i++) {
    put(&d.b, "mesh ");
    put_name(m->name[i]);
    put(&d.b, " %d", m->size[i]);
    put_REAL("bandwidth", m->bandwidth[i], 0);
    put_REAL("latency", m->latency[i], 0);
    put_TEXT("whole", m->whole[i], NULL);
    put(&d.b, "%s\n", m->microbatch_axis[i] ? " microbatch_axis" : "");
  }
  if (device->name) {
    put(&d.b, "device ");
    put_name(device->name);
    put_device_fields(device, &(struct device){0});
    put(&d.b, "\n");
  }
  if (m->cluster.nodes) {
    put(&d.b, "cluster ");
    put_name(m->cluster.name);
    put_cluster_fields(&m->cluster, &(struct cluster){0});
    put(&d.b, "\n");
  }
}

static void put_group(int i)
{
  const struct group *g = &graph->group[i];
  put(&d.b, "group");
  if (g->is_edge)
    put(&d.b, " from %d to %d", g->from, g->to);
  else
    put_GROUP("over", i, NONE);
  put(&d.b, "\n");
}

static void put_exchanges(void)
{
  for (int i = 0; i < graph->nexchange; i++) {
    const struct exchange *e = &graph->exchange[i];
    put(&d.b, "exchange %s", type_name(e->type));
    put_shape(&e->whole);
    put_GROUP("over", e->group, NONE);
    put(&d.b, " by %s", op_row[e->move.kind].name);
    for (int k = 0; k < e->move.n; k++) put_MESH_DIM("among", e->move.dim[k], NONE);
    const struct move usual = {.from = e->move.from, .to = e->move.to};
    put_move_fields(&e->move, &usual);
    put(&d.b, "\n");
  }
}

static void put_customs(void)
{
  for (int i = 0; i < graph->ncustom; i++) {
    const struct custom *c = &graph->custom[i];
    put(&d.b, "operator ");
    put_name(c->name);
    for (int k = 0; k < MAX_INPUTS; k++) put(&d.b, "%s%d", k ? "," : " backward ", c->backward[k]);
    put_custom_fields(c, &(struct custom){0});
    put(&d.b, "\n");
  }
}

static void put_index_uses(void)
{
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *u = &graph->index_use[i];
    struct shape first = {.ndim = u->part.ndim};
    memcpy(first.size, u->first, sizeof first.size);
    put(&d.b, "index_use ");
    put_name(u->what);
    put_index_use_fields(u, &(struct index_use){.input = NONE});
    put_SHAPE("first", first, first);
    put(&d.b, "\n");
  }
}

static void put_options(void)
{
  put_options_fields(plan_options, &(struct plan_options){.accumulate = 1});
  for (int i = 0; i < plan_options->ncap; i++) put_LONG("bucket", plan_options->cap[i], -1);
  put(&d.b, "\n");
  put_optimizers();
  if (!plan_options->expected.given) return;
  put(&d.b, "expect");
  put_LONG("line", plan_options->expected.line, 0);
  for (int k = 0; k < OP_COUNT; k++) put_LONG(op_row[k].name, plan_options->expected.most[k], 0);
  put(&d.b, "\n");
}

static void put_styles(void)
{
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    put(&d.b, "style ");
    put_name(s->name);
    put_style_fields(s, &(struct style){.module = NONE});
    put(&d.b, " {\n");
    for (int k = 0; k < s->nrequest; k++) {
      const struct layout_request *w = &s->request[k];
      put(&d.b, "  %s ",
          w->what == REQUEST_PARAMETER ? "parameter"
          : w->what == REQUEST_INPUT   ? "input"
                                       : "output");
      if (w->what == REQUEST_PARAMETER)
        put_value(w->value);
      else
        put(&d.b, "%d", w->index);
      put(&d.b, " ");
      put_placement(w->to);
      put(&d.b, "\n");
    }
    put(&d.b, "}\n");
  }
}

/* Only the pass `plan` uses them. */
static void put_calls(void)
{
  for (int i = 0; i < graph->ncall && d.after < PASS_PLAN; i++) {
    const struct call *c = &graph->call[i];
    put(&d.b, "call ");
    put_module(c->module);
    put_call_fields(
        c, &(struct call){.parent = NONE, .first = NONE, .last = NONE, .within = c->module});
    for (int k = 0; k < c->nin; k++) put_VALUE("in", c->in[k], NONE);
    for (int k = 0; k < c->nout; k++) put_VALUE("out", c->out[k], NONE);
    put(&d.b, "\n");
  }
}

/* --------------------------------------------------------------------------------- the contents */

static void write_keep_value(struct list *todo, int value)
{
  if (value == NONE || d.kept[value]) return;
  d.kept[value] = true;
  add(todo, value);
}

static void write_keep_op(struct list *todo, int id)
{
  if (id == NONE || d.op_kept[id]) return;
  const struct op *op = &graph->op[id];
  d.op_kept[id] = true;
  for (int i = 0; i < op->nin; i++) write_keep_value(todo, op->in[i]);
  for (int k = 0; k < op->nout; k++) write_keep_value(todo, op->out + k);
  for (int k = 0; k < op->nout && !op->nbody; k++) d.made[op->out + k] = true;
  for (int k = 0; k < op->nbody; k++) {
    write_keep_op(todo, op->body[k]);
    d.has_line[op->body[k]] = true;
  }
  if (op->packed) write_keep_value(todo, op->buffer);
}

static void keep_line(struct list *todo, int id)
{
  write_keep_op(todo, id);
  if (d.has_line[id]) bug("dump", "operation %d is run in two places", id);
  d.has_line[id] = true;
}

static void write_find_kept(void)
{
  struct list todo = {0};
  for (int i = 0; i < graph->norder; i++) keep_line(&todo, graph->order[i]);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) keep_line(&todo, graph->function[i].op[k]);
  for (int i = 0; i < graph->nasync_tp_result; i++)
    write_keep_op(&todo, graph->async_tp_result[i].op);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role != ACTIVATION || graph->value[i].is_output) write_keep_value(&todo, i);
  write_keep_value(&todo, graph->loss);
  write_keep_value(&todo, graph->norm);
  for (int i = 0; i < graph->ncall && d.after < PASS_PLAN; i++) {
    const struct call *c = &graph->call[i];
    for (int k = 0; k < c->nin; k++) write_keep_value(&todo, c->in[k]);
    for (int k = 0; k < c->nout; k++) write_keep_value(&todo, c->out[k]);
  }
  while (todo.n) {
    int value = todo.at[--todo.n];
    const struct value *v = &graph->value[value];
    const struct in_loop *loop = in_loop(value);
    write_keep_op(&todo, v->op);
    write_keep_value(&todo, loop->stack);
    write_keep_value(&todo, loop->sibling);
    write_keep_value(&todo, v->of);
    write_keep_value(&todo, concat_slice(value)->buffer);
    write_keep_value(&todo, v->counts);
    if (loop->step) write_keep_value(&todo, loop->initial);
    if (graph->memory) write_keep_value(&todo, storage_of(value));
  }
}

static void label_op(int id)
{
  if (id != NONE) d.label[id] = 1;
}

/* By default a value's operation is the one in the first line that makes it. */
static void note_maker(int *maker, int id)
{
  const struct op *op = &graph->op[id];
  for (int k = 0; k < op->nout && !op->nbody; k++)
    if (maker[op->out + k] == NONE) maker[op->out + k] = id;
  for (int k = 0; k < op->nbody; k++) note_maker(maker, op->body[k]);
}

static void number_label(int id, int *n)
{
  if (d.label[id]) d.label[id] = ++*n;
  for (int k = 0; k < graph->op[id].nbody; k++) number_label(graph->op[id].body[k], n);
}

static void find_labels(void)
{
  struct list l = {0}; /* the operations with a line of their own, in the order of the lines */
  for (int i = 0; i < graph->norder; i++) add(&l, graph->order[i]);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) add(&l, graph->function[i].op[k]);
  for (int i = 0; i < graph->nop; i++)
    if (d.op_kept[i] && !d.has_line[i]) add(&l, i);
  int n = 0, *maker = alloc((size_t)(graph->nvalue + 1) * sizeof *maker);
  for (int i = 0; i < graph->nvalue; i++) maker[i] = maker_by_stack(i);
  for (int i = 0; i < graph->nvalue; i++)
    if (d.made[i]) maker[i] = NONE;
  for (int i = 0; i < l.n; i++) note_maker(maker, l.at[i]);
  for (int i = 0; i < graph->nvalue; i++)
    if (d.kept[i] && graph->value[i].op != maker[i]) label_op(graph->value[i].op);
  for (int i = 0; i < graph->nop; i++) {
    if (!d.op_kept[i]) continue;
    if (graph->op[i].kind == OP_await) label_op(graph->op[i].awaits);
    label_op(scheduled(&graph->op[i])->chained_to);
  }
  for (int i = 0; i < graph->nasync_tp_result; i++) label_op(graph->async_tp_result[i].op);
  for (int i = 0; i < l.n; i++) number_label(l.at[i], &n);
}

static void open_dump(enum pass after)
{
  memset(&d, 0, sizeof d);
  d.after = after;
  d.kept = alloc((size_t)graph->nvalue + 1);
  d.is_written = alloc((size_t)graph->nvalue + 1);
  d.made = alloc((size_t)graph->nvalue + 1);
  d.op_kept = alloc((size_t)graph->nop + 1);
  d.has_line = alloc((size_t)graph->nop + 1);
  d.label = alloc((size_t)(graph->nop + 1) * sizeof *d.label);
  d.sibling = alloc((size_t)(graph->nvalue + 1) * sizeof *d.sibling);
  write_find_kept();
  for (int i = 0; i < graph->nvalue; i++) d.sibling[i] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct in_loop *loop = in_loop(i);
    if (d.kept[i] && is_other_of_stack(i) && loop->index == 1) d.sibling[loop->stack] = i;
  }
  find_labels();
}

static void put_plan(void)
{
  put(&d.b, " plan ");
  put_quoted(plan_options->path ? plan_options->path : "");
  put(&d.b, " for %s\n", target->name);
  for (int i = 1; i <= plan_files(); i++) {
    put(&d.b, "file ");
    put_quoted(file_of_line("", i * LINES_OF_FILE));
    put(&d.b, "\n");
  }
}

const char *text_of_all_places(void)
{
  int n = graph->ngroup;
  memset(&d, 0, sizeof d);
  put_plan();
  put_mesh();
  put_pipeline_lines(graph->stages->here);
  while (n && !graph->group[n - 1].is_edge) n--;
  for (int i = 0; i < n; i++) put_group(i);
  put_options();
  return d.b.text;
}

const char *dump_text(enum pass after)
{
  open_dump(after);
  put(&d.b, "after %s", pass_name[d.after]);
  put_plan();
  put_mesh();
  put_module_lines();
  put_pipeline_lines(NONE);
  for (int i = 0; i < graph->ngroup; i++) put_group(i);
  put_unit_lines();
  put_customs();
  put_exchanges();
  put_function_lines();
  for (int i = 0; i < graph->nvalue; i++) {
    if (!d.kept[i] || d.made[i]) continue;
    put(&d.b, "v%d ", i);
    put_value_name(i, NULL);
    put(&d.b, " =");
    put_kind(i, NULL);
    put(&d.b, "\n");
    note_bearer(&d.bearers, i);
    d.is_written[i] = true;
  }
  put_styles();
  put_async_tp_lines();
  put_calls();
  put_index_uses();
  struct graph usual = usual_graph();
  put(&d.b, "program");
  put_graph_fields(graph, &usual);
  if (graph->memory) put_arena_fields(graph->memory, &(struct memory_plan){0});
  if (graph->schedule) put_LONG("events", graph->schedule->nevent, 0);
  put_options();
  put_flat();
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    put(&d.b, "%s {\n", f->name);
    for (int k = 0; k < f->nop; k++) put_op(f->op[k], f->phase, 2, NULL);
    put(&d.b, "}\n");
  }
  /* Operations that never run, but that other lines refer to. */
  bool any = false;
  for (int i = 0; i < graph->nop; i++) {
    if (!d.op_kept[i] || d.has_line[i]) continue;
    if (!any) put(&d.b, "aside {\n");
    any = true;
    put_op(i, FORWARD, 2, NULL);
  }
  if (any) put(&d.b, "}\n");
  put_cut_lines();
  put_ended_early_lines();
  put_kernel_forms();
  return d.b.text;
}

void dump(enum pass after)
{
  if (!options.dump || strcmp(options.dump, pass_name[after])) return;
  const struct pipeline_stages *s = graph->stages;
  fputs(dump_text(after), stdout);
  if (s && s->here != NONE && s->here + 1 < graph->mesh.size[s->mesh_dim]) return;
  end_printing();
}
