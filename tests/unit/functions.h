/* functions.h: programs made by hand as the passes after outline find them: functions of
   operations. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "function_passes/function_passes.h"
#include "unit.h"

/* The function of a phase, made when it is first asked for. */
__attribute__((unused)) static struct function *function_of_phase(enum phase phase)
{
  static const char *const name[PHASES] = {"forward", "backward", "update"};
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].phase == phase) return &graph->function[i];
  if (!graph->function) graph->function = alloc(PHASES * sizeof *graph->function);
  struct function *f = &graph->function[graph->nfunction++];
  *f = (struct function){.name = name[phase], .phase = phase, .count = 1, .upward = true};
  f->op = alloc(1024 * sizeof *f->op);
  return f;
}

/* Adds an operation to the function of its phase; gives the value it makes, laid out as its first
   input. */
__attribute__((unused)) static int run_in_phase(struct op op)
{
  op.module = NONE;
  int i = make_op(op);
  for (int k = 0; k < graph->op[i].nout; k++) {
    struct value *out = &graph->value[graph->op[i].out + k];
    if (op.nin) out->layout = graph->value[op.in[0]].layout;
    out->placed = true;
  }
  struct function *f = function_of_phase(op.phase);
  f->op[f->nop++] = i;
  return graph->op[i].out;
}

/* The value that a view shows, or a view of it; of any other itself. */
__attribute__((unused)) static int shown_by(int value)
{
  int op = graph->value[value].op;
  if (op == NONE || graph->op[op].kind != OP_view) return value;
  return shown_by(graph->op[op].in[0]);
}

/* The i-th operation of a phase's function. */
__attribute__((unused)) static const struct op *nth_op(enum phase phase, int i)
{
  const struct function *f = function_of_phase(phase);
  must(i < f->nop, "%s has %d operations", f->name, f->nop);
  return &graph->op[f->op[i]];
}

/* ------------------------------------------------------------------------------ random programs */

__attribute__((unused)) static struct shape random_shape(void)
{
  struct shape s = {.ndim = 2};
  s.size[0] = 1 + draw_below(9);
  s.size[1] = 1 + draw_below(40);
  return s;
}

/* One of the last few values, of any shape or of this one. */
static int recent(const int *made, int n, const struct shape *shape)
{
  for (int tries = 0; tries < 20; tries++) {
    int back = draw_below(10) ? draw_below(n < 6 ? n : 6) : draw_below(n);
    int v = made[n - 1 - back];
    if (!shape || same_shape(graph->value[v].shape, *shape)) return v;
  }
  return NONE;
}

/* An operation of a random kind on what was made before. */
static int random_step(const int *made, int n, enum phase phase)
{
  struct op op = {.phase = phase, .nin = 1, .in = {recent(made, n, NULL)}, .scalar = 2};
  struct shape shape = graph->value[op.in[0]].shape;
  switch (draw_below(10)) {
  case 0:
    op.kind = OP_all_reduce;
    op.group = add_group(1);
    break;
  case 1:
    op.kind = OP_to_partial;
    break;
  case 2:
    op.kind = OP_sum;
    op.dims = 1;
    op.keepdim = true;
    break;
  case 3:
    op.kind = OP_matmul;
    op.equation = "ab,ab->aa";
    op.in[op.nin++] = op.in[0];
    break;
  case 4:
    op.kind = OP_scale;
    break;
  case 5:
    op.kind = OP_view;
    op.equation = "ab->1(ab)";
    break;
  case 6:
    op.kind = OP_custom;
    break;
  default:
    op.kind = draw_below(2) ? OP_add : OP_relu_back;
    op.in[1] = recent(made, n, &shape);
    op.nin += op.in[1] != NONE;
    if (op.nin == 1) op.kind = OP_relu;
    break;
  }
  int out = run_in_phase(op);
  return out + draw_below(graph->op[graph->value[out].op].nout);
}

/* Two phases of random operations over some values of random sizes, on so many ranks. */
__attribute__((unused)) static void random_program_on(int ranks, int length)
{
  static struct custom two_values = {.name = "pair", .rule = "ab->ab,a 1", .linear = ""};
  new_graph(1, &ranks);
  graph->custom = &two_values;
  graph->ncustom = 1;
  int *made = alloc((size_t)(length + 4) * sizeof *made), n = 0;
  for (int i = 0; i < 4; i++) {
    int x = given(BATCH, "x", random_shape(), (struct layout){0});
    made[n++] = run_in_phase((struct op){.kind = OP_pack, .nin = 1, .in = {x}, .phase = FORWARD});
  }
  for (int i = 0; i < length; i++) {
    made[n] = random_step(made, n, i < length / 2 ? FORWARD : BACKWARD);
    n++;
  }
  graph->value[made[n - 1]].is_output = true;
  graph->value[made[n / 2]].is_output = draw_below(2);
  fuse();
}

__attribute__((unused)) static void random_program(int length)
{
  random_program_on(1, length);
}

#endif
