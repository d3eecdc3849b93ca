/* graph.c: adds values and operations to the graph. */
#include "ir/ir.h"

#include <string.h>

bool is_of_module(const struct value *v)
{
  return v->role == PARAMETER || v->role == CACHE;
}

bool is_gradient(int value)
{
  return graph->value[value].role == GRADIENT || graph->value[value].role == SUMS;
}

bool is_of_metric(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == SUMS && graph->value[v->of].role == SUMS;
}

/* The caller keeps the name. */
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
                      .counts = NONE};
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
  const char *whole = m->whole[mesh_dim];
  if (!mesh_dim || !whole || !m->whole[mesh_dim - 1]) return false;
  return !strcmp(whole, m->whole[mesh_dim - 1]);
}

int add_ordered_group(int n, const int *dim)
{
  for (int i = 0; i < graph->ngroup; i++)
    if (!graph->group[i].is_edge && graph->group[i].n == n &&
        !memcmp(graph->group[i].dim, dim, (size_t)n * sizeof *dim))
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

int add_edge(int from, int to)
{
  for (int i = 0; i < graph->ngroup; i++)
    if (graph->group[i].is_edge && graph->group[i].from == from && graph->group[i].to == to)
      return i;
  int dim = graph->stages->mesh_dim;
  GROW(graph->group, graph->ngroup, graph->group_room);
  graph->group[graph->ngroup] = (struct group){.n = 1,
                                               .dim = {dim},
                                               .dims = 1u << dim,
                                               .name = text("stage_%d_to_%d", from, to),
                                               .is_edge = true,
                                               .from = from,
                                               .to = to};
  return graph->ngroup++;
}

int store_op(struct op op)
{
  GROW(graph->op, graph->nop, graph->op_room);
  graph->op[graph->nop] = op;
  return graph->nop++;
}

void append_to_order(int op)
{
  GROW(graph->order, graph->norder, graph->order_room);
  graph->order[graph->norder++] = op;
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
  enum { FAR_ENOUGH = 128 }; /* more would not make better names */
  for (int steps = 0; steps < FAR_ENOUGH; steps++) {
    int id = graph->value[value].op;
    enum op_kind kind = id == NONE ? OP_COUNT : graph->op[id].kind;
    if (id == NONE || op_row[kind].elements != ALL_OF_FIRST) return value;
    int in = graph->op[id].in[0];
    bool shows = kind == OP_redistribute ? !strcmp(graph->value[value].name, graph->value[in].name)
                                         : has_name_of_op(value);
    if (!shows) return value;
    value = in;
  }
  return value;
}

bool is_next_parameter(int one, int next)
{
  for (int v = one + 1; v < next; v++)
    if (graph->value[v].role == PARAMETER && graph->value[v].frozen == graph->value[next].frozen)
      return false;
  return one < next && graph->value[one].frozen == graph->value[next].frozen;
}

static int make_op_shaped(struct op op, const struct shape *shape, int nout)
{
  enum type type[MAX_OUTPUTS];
  for (int k = 0; k < nout; k++) type[k] = type_of(&op, k);
  op.nout = nout;
  op.out = graph->nvalue;
  int i = store_op(op);
  for (int k = 0; k < nout; k++) {
    int out = add_value_named(ACTIVATION, op.module == NONE ? "" : graph->module[op.module].path,
                              type[k], shape[k], op.module, op.line);
    graph->value[out].op = i;
    graph->value[out].counts = counts_of(&op, k);
  }
  return i;
}

int make_op_outputs(struct op op, const struct shape *shape, int nout)
{
  int i = make_op_shaped(op, shape, nout); /* which may move graph->op */
  return graph->op[i].out;
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
  append_to_order(i);
  return graph->op[i].out;
}

int append_op_outputs(struct op op, const struct shape *shape, int nout)
{
  int i = make_op_shaped(op, shape, nout);
  append_to_order(i);
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
  append_to_order(i);
  return i;
}
