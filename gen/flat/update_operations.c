/* update_operations.c: the operations of an update that looks at more than one element of its
   tensors, of the phase UPDATE: ordinary ones, which propagate places and fuse joins. What the
   update itself takes of them is moved to the layout of the parameter or of the state; single
   numbers are whole. */
#include "flat/flat.h"

static struct list *known_numbers; /* by optimizer: the values of its numbers, or NONE */

static struct op of_update(enum op_kind kind, int parameter)
{
  const struct value *p = &graph->value[parameter];
  return (struct op){.kind = kind,
                     .phase = UPDATE,
                     .module = p->module,
                     .line = plan_options->optimizer[p->optimizer].line};
}

static int named(int value, int parameter, const char *what)
{
  graph->value[value].name = text("%s.%s", graph->value[parameter].name, what);
  return value;
}

static int two(enum op_kind kind, int a, int b, int parameter)
{
  struct op op = of_update(kind, parameter);
  op.nin = 2;
  op.in[0] = a;
  op.in[1] = b;
  return named(append_op(op), parameter, op_row[kind].name);
}

/* A constant, of the type of what stands beside it. */
static int constant(double x, enum type type, int parameter)
{
  struct op op = of_update(OP_full, parameter);
  op.scalar = x;
  op.type = type;
  return append_op_shaped(op, (struct shape){0});
}

/* A number that the host computes once a step: one value for all updates of the optimizer. */
static int number_of_step(int optimizer, int number)
{
  struct list *known = &known_numbers[optimizer];
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

/* The gradient, less as far as the norm of all is above what the plan allows: as in clip.c. */
static int clipped(int gradient, int parameter)
{
  if (plan_options->clip <= 0) return gradient;
  int norm = two(OP_add, graph->norm, constant(1e-6, F32, parameter), parameter);
  int factor = two(OP_div, constant(plan_options->clip, F32, parameter), norm, parameter);
  factor = two(OP_minimum, factor, constant(1, F32, parameter), parameter);
  return two(OP_mul, gradient, factor, parameter);
}

/* The values of one update's operands, as far as they are made. */
struct operands {
  const struct optimizer *o;
  int parameter, *value;
};

static bool is_number(const struct optimizer *o, int operand)
{
  return operand >= first_number_operand(o) && operand < first_step_operand(o);
}

static int operand_value(struct operands *of, int operand, enum type type)
{
  const struct optimizer *o = of->o;
  if (!is_number(o, operand)) return of->value[operand];
  const struct step_number *n = &o->number[operand - first_number_operand(o)];
  if (!n->text) return constant(n->value, type, of->parameter);
  int number =
      number_of_step(graph->value[of->parameter].optimizer, operand - first_number_operand(o));
  if (type == F32) return number;
  struct op op = of_update(OP_cast, of->parameter);
  op.type = type;
  op.nin = 1;
  op.in[0] = number;
  return append_op(op);
}

/* The floating type of what a step takes besides numbers. */
static enum type type_beside(const struct operands *of, const struct update_step *step)
{
  for (int i = 0; i < inputs_of_step(step->kind); i++)
    if (!is_number(of->o, step->in[i]) && is_floating(graph->value[of->value[step->in[i]]].type))
      return graph->value[of->value[step->in[i]]].type;
  return F32;
}

static int operate(struct operands *of, const struct update_step *step)
{
  struct op op = of_update(step->kind, of->parameter);
  enum type type = type_beside(of, step);
  op.dims = step->dims;
  op.keep = step->keep;
  op.scalar = step->scalar;
  op.equation = step->equation;
  op.nin = inputs_of_step(step->kind);
  for (int i = 0; i < op.nin; i++) op.in[i] = operand_value(of, step->in[i], type);
  if (step->kind == OP_cast) op.type = step->type;
  if (step->kind == OP_redistribute) {
    op.type = op.backward_type = graph->value[op.in[0]].type;
    op.asked = (1u << graph->mesh.ndim) - 1;
    op.why = text("%s's replicate", of->o->name);
  }
  return named(append_op(op), of->parameter, op_row[step->kind].name);
}

/* The layout of a state that has size 1 in some dimensions of the parameter. */
static struct layout layout_without(struct layout l, unsigned ones)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (l.on[d].kind == SHARD && ones >> l.on[d].dim & 1) l.on[d] = (struct placement){0};
  return usual_turns(l);
}

int add_state(int parameter, const struct optimizer *o, int state)
{
  struct value p = graph->value[parameter];
  for (int d = 0; d < p.shape.ndim; d++)
    if (o->ones[state] >> d & 1) p.shape.size[d] = 1;
  int s = add_value(STATE, text("optim.%s.%s", o->state[state], p.name), p.type, p.shape, p.module,
                    p.line);
  graph->value[s].of = parameter;
  graph->value[s].layout = o->ones[state] ? layout_without(p.layout, o->ones[state]) : p.layout;
  graph->value[s].placed = true;
  return s;
}

/* Where the update takes an operand: like the parameter, like the state that it becomes, or whole.
 */
static struct layout layout_taken(const struct operands *of, int operand)
{
  struct shape shape = graph->value[of->value[operand]].shape;
  for (int k = 0; k < of->o->nstate; k++)
    if (of->o->ones[k] && of->o->out[1 + k] == operand)
      return graph->value[of->value[2 + k]].layout;
  if (same_shape(shape, graph->value[of->parameter].shape))
    return graph->value[of->parameter].layout;
  return (struct layout){0};
}

/* Whether what a state of another shape becomes has its shape; and all else one that the kernel
   reads. */
static bool fits(const struct operands *of, int operand)
{
  struct shape shape = graph->value[of->value[operand]].shape;
  bool fit = true;
  for (int k = 0; k < of->o->nstate; k++)
    if (of->o->ones[k] && of->o->out[1 + k] == operand)
      fit &= same_shape(shape, graph->value[of->value[2 + k]].shape);
  bool read = same_shape(shape, graph->value[of->parameter].shape) || elements(shape) == 1;
  return fit && (read || !kernel_takes(of->o, operand));
}

static int taken(struct operands *of, int operand)
{
  struct op op = of_update(OP_redistribute, of->parameter);
  int value = of->value[operand];
  if (!fits(of, operand) || graph->value[value].type != F32)
    plan_error(op.line, "the update of %s takes a tensor of another shape or type", of->o->name);
  op.nin = 1;
  op.in[0] = value;
  op.type = op.backward_type = graph->value[value].type;
  op.to = layout_taken(of, operand);
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.why = text("the update of %s", graph->value[of->parameter].name);
  return named(append_op(op), of->parameter, "new");
}

void begin_update_operations(void)
{
  known_numbers = alloc((size_t)(plan_options->noptimizer + 1) * sizeof *known_numbers);
}

void add_update_operations(struct op *update)
{
  const struct optimizer *o = optimizer_of(update);
  int n = first_step_operand(o) + o->nstep, parameter = update->in[0];
  struct operands of = {.o = o, .parameter = parameter, .value = alloc((size_t)n * sizeof(int))};
  const struct value *p = &graph->value[parameter];
  if (!o->noperation) return;
  if (p->file_size)
    plan_error(
        o->line,
        "%s looks at the whole of a parameter, and %s is kept in parts: leave out the style's "
        "parts, or give it another optimizer in train's groups",
        o->name, printable(p->name));
  for (int k = 0; k < 2 + o->nstate; k++) of.value[k] = update->in[k];
  of.value[1] = clipped(update->in[1], parameter);
  for (int s = 0; s < o->noperation; s++)
    of.value[first_step_operand(o) + s] = operate(&of, &o->step[s]);
  for (int k = first_step_operand(o); k < first_step_operand(o) + o->noperation; k++) {
    if (!update_takes(o, k)) continue;
    if (update->nin == MAX_INPUTS)
      plan_error(o->line, "the update of %s takes more than %d tensors", o->name, MAX_INPUTS);
    update->in[update->nin++] = taken(&of, k);
  }
}
