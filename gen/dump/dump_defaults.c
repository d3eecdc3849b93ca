/* dump_defaults.c: usual records: a dump leaves their fields out, and its reader starts with them.
 */
#include "dump/dump.h"

#include <string.h>

struct op usual_op(enum op_kind kind, enum phase phase)
{
  enum local_step step = op_row[kind].step;
  bool joins = is_collective(kind) || step == PACKING || step == PIECES_PACKING;
  return (struct op){.kind = kind,
                     .phase = phase,
                     .out = NONE,
                     .module = graph->nmodule ? 0 : NONE,
                     .group = joins ? NONE : 0,
                     .function = op_row[kind].calls ? NONE : 0,
                     .awaits = kind == OP_await ? NONE : 0};
}

struct value usual_value(const struct op *maker, enum type type, enum pass after)
{
  bool has_module = maker && maker->module != NONE;
  return (struct value){.role = ACTIVATION,
                        .name = has_module ? graph->module[maker->module].path : "",
                        .type = type,
                        .used_as = type,
                        .reduced_as = type,
                        .stored = after >= PASS_FUSE,
                        .of = NONE,
                        .op = NONE,
                        .module = maker            ? maker->module
                                  : graph->nmodule ? 0
                                                   : NONE,
                        .line = maker ? maker->line : 0,
                        .style = NONE,
                        .unit = NONE,
                        .counts = NONE};
}

bool is_other_of_stack(int value)
{
  const struct in_loop *loop = in_loop(value);
  return loop->stack != NONE && loop->index > 0 && !loop->step;
}

bool takes_usual_name(const struct value *v)
{
  return v->role == ACTIVATION && !v->is_output && v->op != NONE;
}

struct module usual_module(const char *path, int index)
{
  const char *dot = strrchr(path, '.');
  size_t above = dot ? (size_t)(dot - path) : 0;
  int parent = index ? 0 : NONE;
  for (int i = 0; i < index && above; i++)
    if (strlen(graph->module[i].path) == above && !strncmp(graph->module[i].path, path, above))
      parent = i;
  return (struct module){
      .path = path, .name = dot ? dot + 1 : path, .parent = parent, .unit = NONE};
}

struct graph usual_graph(void)
{
  return (struct graph){.loss = NONE, .norm = NONE};
}
