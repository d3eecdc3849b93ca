/* update_operations.c: the operations of an update that reads more than one element of its tensors,
   of the phase UPDATE: ordinary ones, which propagate places and fuse joins. The results that the
   update itself takes are moved to the layout of the parameter or of the state; single numbers are
   whole. update_parts.c has the updates of parameters that the program keeps in parts,
   update_owner.c the operations on owner ranks. */
#include "graph_passes/graph_passes.h"

struct op op_of_update(enum op_kind kind, const struct operands *of)
{
  return (struct op){.kind = kind, .phase = UPDATE, .module = of->module, .line = of->o->line};
}

int name_of_update(int value, const struct operands *of, const char *what)
{
  graph->value[value].name = text("%s.%s", of->name, what);
  return value;
}

int append_of_update(struct op op, int in, const struct operands *of, const char *what)
{
  op.nin = 1;
  op.in[0] = in;
  return name_of_update(append_op(op), of, what);
}

int append_pair_of_update(enum op_kind kind, int a, int b, const struct operands *of)
{
  struct op op = op_of_update(kind, of);
  op.nin = 2;
  op.in[0] = a;
  op.in[1] = b;
  return name_of_update(append_op(op), of, op_row[kind].name);
}

/* A constant, of the type of the operand beside it. */
static int constant(double x, enum type type, const struct operands *of)
{
  struct op op = op_of_update(OP_full, of);
  op.scalar = x;
  op.type = type;
  return append_op_shaped(op, (struct shape){0});
}

/* A number that the host computes once a step: one value for all updates of the optimizer. */
static int number_of_step(const struct operands *of, int number)
{
  const int optimizer = graph->value[of->parameter].optimizer;
  struct list *known = of->numbers;
  while (known->n <= number) add(known, NONE);
  if (known->at[number] != NONE) return known->at[number];
  const struct optimizer *o = &plan_options->optimizer[optimizer];
  struct op op = {.kind = OP_step_number, .phase = UPDATE, .module = NONE, .line = o->line};
  op.number[0] = optimizer;
  op.number[1] = number;
  int out = append_op_shaped(op, (struct shape){0});
  graph->value[out].name = text("step.%s", o->number[number].name);
  graph->value[out].placed = true;
  return known->at[number] = out;
}

bool is_number_operand(const struct optimizer *o, int operand)
{
  return operand >= first_number_operand(o) && operand < first_step_operand(o);
}

int value_of_operand(const struct operands *of, int operand, enum type type)
{
  const struct optimizer *o = of->o;
  if (!is_number_operand(o, operand)) return of->value[operand];
  const struct step_number *n = &o->number[operand - first_number_operand(o)];
  if (!n->text) return constant(n->value, type, of);
  int number = number_of_step(of, operand - first_number_operand(o));
  if (type == F32) return number;
  struct op op = op_of_update(OP_cast, of);
  op.type = type;
  return append_of_update(op, number, of, "number");
}

/* The floating type of the inputs of a step that are not numbers. */
static enum type type_beside(const struct operands *of, const struct update_step *step)
{
  for (int i = 0; i < inputs_of_step(step->kind); i++)
    if (!is_number_operand(of->o, step->in[i]) &&
        is_floating(graph->value[of->value[step->in[i]]].type))
      return graph->value[of->value[step->in[i]]].type;
  return F32;
}

struct op move_of_update(struct layout to, int value, const struct operands *of, const char *why)
{
  struct op op = op_of_update(OP_redistribute, of);
  op.type = op.backward_type = graph->value[value].type;
  op.to = to;
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.why = why;
  return op;
}

int append_step_of_update(const struct operands *of, const struct update_step *step)
{
  struct op op = op_of_update(step->kind, of);
  enum type type = type_beside(of, step);
  if (step->kind == OP_scan_take) return of->value[step->in[0]];
  op.dims = step->dims;
  op.keepdim = step->keepdim;
  op.scalar = step->scalar;
  op.equation = step->equation;
  op.nin = inputs_of_step(step->kind);
  for (int i = 0; i < op.nin; i++) op.in[i] = value_of_operand(of, step->in[i], type);
  if (step->kind == OP_cast) op.type = step->type;
  if (of->stacked) {
    /* Turns the operation on a matrix into one on a stack of them. Its result has as many
       dimensions as the stack. */
    op.dims <<= 1;
    op.keepdim |= is_reduce(op.kind);
    if (op.equation) {
      /* "zmk,zkn->zmn" of "mk,kn->mn" */
      struct buffer b = {0};
      put(&b, "z");
      for (const char *c = op.equation; *c; c++) put(&b, *c == ',' || *c == '>' ? "%cz" : "%c", *c);
      op.equation = b.text;
    }
  }
  if (step->kind == OP_redistribute || step->kind == OP_scan_stack) {
    const char *what = step->kind == OP_redistribute ? "replicate" : "to_owner";
    op = move_of_update((struct layout){0}, op.in[0], of, text("%s's %s", of->o->name, what));
    return append_of_update(op, of->value[step->in[0]], of, what);
  }
  return name_of_update(append_op(op), of, op_row[step->kind].name);
}

/* The layout of a state that has size 1 in some dimensions of the parameter. */
static struct layout layout_without(struct layout l, unsigned ones)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (l.on[d].kind == SHARD && ones >> l.on[d].dim & 1) l.on[d] = (struct placement){0};
  return usual_cut_order(l);
}

int add_state(int parameter, const struct optimizer *o, int state)
{
  struct value p = graph->value[parameter];
  for (int d = 0; d < p.shape.ndim; d++)
    if (o->ones[state] >> d & 1) p.shape.size[d] = 1;
  int s = add_value(STATE, text("optim.%s.%s", o->state[state], p.name), p.type, p.shape, p.module,
                    p.line);
  graph->value[s].of = parameter;
  if (p.file_size && !(o->ones[state] >> p.file_dim & 1)) {
    graph->value[s].file_dim = p.file_dim;
    graph->value[s].file_first = p.file_first;
    graph->value[s].file_size = p.file_size;
  }
  graph->value[s].layout = o->ones[state] ? layout_without(p.layout, o->ones[state]) : p.layout;
  graph->value[s].placed = true;
  return s;
}

struct layout layout_in_update(const struct operands *of, int operand, struct shape shape)
{
  for (int k = 0; k < of->o->nstate; k++)
    if (of->o->ones[k] && of->o->out[1 + k] == operand)
      return graph->value[of->value[2 + k]].layout;
  if (same_shape(shape, graph->value[of->parameter].shape))
    return graph->value[of->parameter].layout;
  return (struct layout){0};
}

static int taken(const struct operands *of, int operand)
{
  int value = of->value[operand];
  /* Whether the new value of a state of another shape has the state's shape; and any other operand
     has a shape that the kernel reads. */
  struct shape shape = graph->value[of->value[operand]].shape;
  bool fit = true;
  for (int k = 0; k < of->o->nstate; k++)
    if (of->o->ones[k] && of->o->out[1 + k] == operand)
      fit &= same_shape(shape, graph->value[of->value[2 + k]].shape);
  bool read = same_shape(shape, graph->value[of->parameter].shape) || elements(shape) == 1;
  if (!(fit && (read || !kernel_takes(of->o, operand))) || graph->value[value].type != F32)
    plan_error(of->o->line, "the update of %s takes a tensor of another shape or type",
               of->o->name);
  const char *why = text("the update of %s", graph->value[of->parameter].name);
  struct layout to = layout_in_update(of, operand, graph->value[value].shape);
  return append_of_update(move_of_update(to, value, of, why), value, of, "new");
}

/* --------------------------------------------------------------------------------- the updates */

struct operands operands_of_update(const struct updating *u, const struct op *update)
{
  const struct optimizer *o = optimizer_of(update);
  const struct value *p = &graph->value[update->in[0]];
  int n = first_step_operand(o) + o->nstep;
  struct operands of = {.o = o,
                        .numbers = &u->numbers[p->optimizer],
                        .parameter = update->in[0],
                        .module = p->module,
                        .name = p->name,
                        .value = alloc(((size_t)n + 1) * sizeof(int))};
  for (int k = 0; k < 2 + o->nstate; k++) of.value[k] = update->in[k];
  /* The gradient, scaled down by the factor by which the norm of all exceeds the plan's limit: as
     in clip.c. */
  int gradient = update->in[1];
  int clipped = gradient;
  if (!(plan_options->clip <= 0)) {
    int norm = append_pair_of_update(OP_add, graph->norm, constant(1e-6, F32, &of), &of);
    int factor = append_pair_of_update(OP_div, constant(plan_options->clip, F32, &of), norm, &of);
    factor = append_pair_of_update(OP_minimum, factor, constant(1, F32, &of), &of);
    clipped = append_pair_of_update(OP_mul, gradient, factor, &of);
  }
  of.value[1] = clipped;
  return of;
}

void append_update_taking(struct op *update, const struct operands *of)
{
  const struct optimizer *o = of->o;
  for (int k = first_step_operand(o); k < first_step_operand(o) + o->noperation; k++) {
    if (!update_takes(o, k)) continue;
    if (update->nin == MAX_INPUTS)
      plan_error(o->line, "the update of %s takes more than %d tensors", o->name, MAX_INPUTS);
    update->in[update->nin++] = taken(of, k);
  }
  append_update(*update);
}

void append_update_alone(const struct updating *u, struct op *update)
{
  struct operands of = operands_of_update(u, update);
  for (int s = 0; s < of.o->noperation; s++)
    of.value[first_step_operand(of.o) + s] = append_step_of_update(&of, &of.o->step[s]);
  append_update_taking(update, &of);
}
