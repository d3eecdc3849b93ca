/* update_operations.c: the operations of an update that looks at more than one element of its
   tensors, of the phase UPDATE: ordinary ones, which propagate places and fuse joins. What the
   update itself takes of them is moved to the layout of the parameter or of the state; single
   numbers are whole.

   What an update does at home: the matrices of equal modules are stacked, [modules, rows, columns],
   and the stack is cut along its first dimension over all ranks. So each matrix is whole on one
   rank, its home. The operations on it are those of the stack. Behind them the stack is cut as the
   parameters are, and each module takes its slice. */
#include "flat/flat.h"

static struct list *known_numbers; /* by optimizer: the values of its numbers, or NONE */

/* By parameter: those that are updated together with it, in the order of their modules; and the
   list of these. n is 0 where it is updated alone. */
struct together {
  struct list parameter;
  int list;
};
static struct together *together;

/* What the operations of an update are made for, and the values of its operands, as far as they are
   made. Of a stack: the first of its parameters. */
struct operands {
  const struct optimizer *o;
  int parameter, module, *value;
  const char *name;
  bool stacked;
};

static struct op of_update(enum op_kind kind, const struct operands *of)
{
  return (struct op){.kind = kind, .phase = UPDATE, .module = of->module, .line = of->o->line};
}

static int named(int value, const struct operands *of, const char *what)
{
  graph->value[value].name = text("%s.%s", of->name, what);
  return value;
}

static int one(struct op op, int in, const struct operands *of, const char *what)
{
  op.nin = 1;
  op.in[0] = in;
  return named(append_op(op), of, what);
}

static int two(enum op_kind kind, int a, int b, const struct operands *of)
{
  struct op op = of_update(kind, of);
  op.nin = 2;
  op.in[0] = a;
  op.in[1] = b;
  return named(append_op(op), of, op_row[kind].name);
}

/* A constant, of the type of what stands beside it. */
static int constant(double x, enum type type, const struct operands *of)
{
  struct op op = of_update(OP_full, of);
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
static int clipped(int gradient, const struct operands *of)
{
  if (plan_options->clip <= 0) return gradient;
  int norm = two(OP_add, graph->norm, constant(1e-6, F32, of), of);
  int factor = two(OP_div, constant(plan_options->clip, F32, of), norm, of);
  factor = two(OP_minimum, factor, constant(1, F32, of), of);
  return two(OP_mul, gradient, factor, of);
}

static bool is_number(const struct optimizer *o, int operand)
{
  return operand >= first_number_operand(o) && operand < first_step_operand(o);
}

static int operand_value(const struct operands *of, int operand, enum type type)
{
  const struct optimizer *o = of->o;
  if (!is_number(o, operand)) return of->value[operand];
  const struct step_number *n = &o->number[operand - first_number_operand(o)];
  if (!n->text) return constant(n->value, type, of);
  int number =
      number_of_step(graph->value[of->parameter].optimizer, operand - first_number_operand(o));
  if (type == F32) return number;
  struct op op = of_update(OP_cast, of);
  op.type = type;
  return one(op, number, of, "number");
}

/* The floating type of what a step takes besides numbers. */
static enum type type_beside(const struct operands *of, const struct update_step *step)
{
  for (int i = 0; i < inputs_of_step(step->kind); i++)
    if (!is_number(of->o, step->in[i]) && is_floating(graph->value[of->value[step->in[i]]].type))
      return graph->value[of->value[step->in[i]]].type;
  return F32;
}

static struct op moved(struct layout to, int value, const struct operands *of, const char *why)
{
  struct op op = of_update(OP_redistribute, of);
  op.type = op.backward_type = graph->value[value].type;
  op.to = to;
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.why = why;
  return op;
}

/* "zmk,zkn->zmn" of "mk,kn->mn" */
static const char *stacked_equation(const char *equation)
{
  struct buffer b = {0};
  put(&b, "z");
  for (const char *c = equation; *c; c++) put(&b, *c == ',' || *c == '>' ? "%cz" : "%c", *c);
  return b.text;
}

/* The operation on a matrix as that on a stack of them. What it makes has as many dimensions as the
   stack. */
static void stack(struct op *op)
{
  bool reduces = op->kind == OP_sum || op->kind == OP_amax || op->kind == OP_amin;
  op->dims <<= 1;
  op->keep |= reduces;
  if (op->equation) op->equation = stacked_equation(op->equation);
}

static int operate(const struct operands *of, const struct update_step *step)
{
  struct op op = of_update(step->kind, of);
  enum type type = type_beside(of, step);
  if (step->kind == OP_scan_take) return of->value[step->in[0]];
  op.dims = step->dims;
  op.keep = step->keep;
  op.scalar = step->scalar;
  op.equation = step->equation;
  op.nin = inputs_of_step(step->kind);
  for (int i = 0; i < op.nin; i++) op.in[i] = operand_value(of, step->in[i], type);
  if (step->kind == OP_cast) op.type = step->type;
  if (of->stacked) stack(&op);
  if (step->kind == OP_redistribute || step->kind == OP_scan_stack) {
    const char *what = step->kind == OP_redistribute ? "replicate" : "home";
    op = moved((struct layout){0}, op.in[0], of, text("%s's %s", of->o->name, what));
    return one(op, of->value[step->in[0]], of, what);
  }
  return named(append_op(op), of, op_row[step->kind].name);
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

/* The shape of an operand: of one matrix. */
static struct shape shape_of(const struct operands *of, int operand)
{
  struct shape shape = graph->value[of->value[operand]].shape;
  if (!of->stacked) return shape;
  for (int d = 0; d < shape.ndim - 1; d++) shape.size[d] = shape.size[d + 1];
  shape.ndim--;
  return shape;
}

/* Where the update takes an operand of that shape: like the parameter, like the state that it
   becomes, or whole. `of` has the states. */
static struct layout layout_taken(const struct operands *of, int operand, struct shape shape)
{
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

static int taken(const struct operands *of, int operand)
{
  int value = of->value[operand];
  if (!fits(of, operand) || graph->value[value].type != F32)
    plan_error(of->o->line, "the update of %s takes a tensor of another shape or type",
               of->o->name);
  const char *why = text("the update of %s", graph->value[of->parameter].name);
  struct layout to = layout_taken(of, operand, graph->value[value].shape);
  return one(moved(to, value, of, why), value, of, "new");
}

/* ------------------------------------------------------------------------------------- at home */

/* When a step runs: for each parameter, then once for the stack, then for each parameter what needs
   it. */
enum when { BEFORE, AT_HOME, BEHIND };

static enum when when_made(const struct optimizer *o, const enum when *of_step, int operand)
{
  return operand < first_step_operand(o) ? BEFORE : of_step[operand - first_step_operand(o)];
}

static const enum when *find_when(const struct optimizer *o)
{
  enum when *when = alloc(((size_t)o->nstep + 1) * sizeof *when);
  for (int s = 0; s < o->noperation; s++) {
    bool goes = o->step[s].kind == OP_scan_stack, any = goes;
    bool all = o->step[s].kind != OP_scan_take;
    for (int i = 0; i < inputs_of_step(o->step[s].kind) && !goes; i++)
      if (!is_number(o, o->step[s].in[i])) all &= when_made(o, when, o->step[s].in[i]) == AT_HOME;
    for (int i = 0; i < inputs_of_step(o->step[s].kind); i++)
      any |= when_made(o, when, o->step[s].in[i]) != BEFORE;
    when[s] = !any ? BEFORE : all ? AT_HOME : BEHIND;
  }
  return when;
}

/* Each matrix whole on one rank. */
static struct layout home(void)
{
  struct layout l = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->mesh.size[d] > 1) l.on[d] = (struct placement){.kind = SHARD};
  return usual_turns(l);
}

/* Operations have a bound of inputs: an operation that is no work holds what is beyond it. */
static void hold(const struct operands *of, const struct operands *each, int n, int operand)
{
  for (int i = MAX_INPUTS; i < n;) {
    struct op op = of_update(OP_scan_hold, of);
    while (op.nin < MAX_INPUTS && i < n) op.in[op.nin++] = each[i++].value[operand];
    if (op.nin == 1) op.in[op.nin++] = op.in[0];
    append_update(op);
  }
}

/* The slices of that step, put together, and taken home. */
static int taken_home(const struct operands *of, const struct operands *each, int n, int step)
{
  int operand = first_step_operand(of->o) + step;
  struct op op = of_update(OP_scan_stack, of);
  struct shape shape = {.ndim = 3, .size = {n}};
  for (int d = 0; d < 2; d++) shape.size[1 + d] = graph->value[each->value[operand]].shape.size[d];
  op.dims = 1;
  while (op.nin < n && op.nin < MAX_INPUTS) {
    op.in[op.nin] = each[op.nin].value[operand];
    op.nin++;
  }
  int whole = named(append_op_shaped(op, shape), of, "stack");
  hold(of, each, n, operand);
  return one(moved(home(), whole, of, text("%s's home", of->o->name)), whole, of, "home");
}

/* The stack of an operand, cut as the update takes it. */
static int brought_back(const struct operands *of, const struct operands *each, int operand)
{
  int value = of->value[operand];
  struct layout to = layout_taken(each, operand, shape_of(of, operand));
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (to.on[d].kind == SHARD) to.on[d].dim++;
  return one(moved(to, value, of, text("the update of %s", of->name)), value, of, "new");
}

/* A module's slice of a stack. */
static int slice_of(const struct operands *of, int stack)
{
  struct op op = of_update(OP_scan_take, of);
  op.dims = 1;
  return one(op, stack, of, "slice");
}

/* Whether an operand that is at home is needed behind it. */
static bool leaves_home(const struct optimizer *o, const enum when *when, int operand)
{
  if (when_made(o, when, operand) != AT_HOME) return false;
  for (int s = 0; s < o->noperation; s++)
    for (int i = 0; i < inputs_of_step(o->step[s].kind) && when[s] == BEHIND; i++)
      if (o->step[s].in[i] == operand) return true;
  return update_takes(o, operand);
}

/* ---------------------------------------------------------------------------- updated together */

static bool works_at_home(const struct optimizer *o)
{
  for (int s = 0; s < o->noperation; s++)
    if (o->step[s].kind == OP_scan_stack) return world_size() > 1;
  return false;
}

/* Whether the stack of n of them, cut as they are and at home, has a size that collectives count.
 */
static bool can_be_stacked(int parameter, int n)
{
  enum { MOST = 1 << 30 };
  int64_t whole = elements(graph->value[parameter].shape);
  int ranks = world_size(), at_home = (n + ranks - 1) / ranks;
  return elements(local_shape(parameter, 0)) <= MOST / n && whole <= MOST / at_home;
}

/* So many loops are in an update at most: other matrices are whole on every rank. */
enum { MOST_TOGETHER = 128 };
static int ntogether;

/* The parameters of one name in the modules of a list, if all are updated alike, and none is
   together with others. */
static void join(int list, int count, const struct list *of, int k, const int *gradient)
{
  int first = of[0].at[k], optimizer = graph->value[first].optimizer;
  for (int m = 0; m < count; m++) {
    int p = of[m].at[k];
    if (gradient[p] == NONE || graph->value[p].optimizer != optimizer || together[p].parameter.n)
      return;
  }
  if (!works_at_home(&plan_options->optimizer[optimizer]) || !can_be_stacked(first, count) ||
      ntogether == MOST_TOGETHER)
    return;
  ntogether++;
  struct together all = {.list = list};
  for (int m = 0; m < count; m++) add(&all.parameter, of[m].at[k]);
  for (int m = 0; m < count; m++) together[of[m].at[k]] = all;
}

static void find_together(const int *gradient)
{
  const int *counts = count_elements();
  const struct list *inner = parameters_of_lists(counts);
  together = alloc((size_t)(graph->nvalue + 1) * sizeof *together);
  ntogether = 0;
  for (int list = 0; list < graph->nmodule; list++) {
    if (counts[list] < 2 || graph->module[list].steps) continue;
    const struct list *of = equal_parameters(&inner[list], list, counts[list]);
    for (int k = 0; of && k < of->n; k++) join(list, counts[list], of, k, gradient);
  }
}

struct list updated_together(int parameter)
{
  struct list l = together[parameter].parameter;
  if (!l.n) add(&l, parameter);
  return l;
}

/* --------------------------------------------------------------------------------- the updates */

void begin_update_operations(const int *gradient)
{
  known_numbers = alloc((size_t)(plan_options->noptimizer + 1) * sizeof *known_numbers);
  find_together(gradient);
}

static struct operands operands_of(const struct op *update)
{
  const struct optimizer *o = optimizer_of(update);
  const struct value *p = &graph->value[update->in[0]];
  int n = first_step_operand(o) + o->nstep;
  if (p->file_size && !o->by_part)
    plan_error(
        o->line,
        "%s looks at the whole of a parameter, and %s is kept in parts: leave out the style's "
        "parts, or give it another optimizer in train's groups, or say by_part = true in "
        "optimizer{} where it may take each part as a tensor of its own",
        o->name, printable(p->name));
  struct operands of = {.o = o,
                        .parameter = update->in[0],
                        .module = p->module,
                        .name = p->name,
                        .value = alloc(((size_t)n + 1) * sizeof(int))};
  for (int k = 0; k < 2 + o->nstate; k++) of.value[k] = update->in[k];
  of.value[1] = clipped(update->in[1], &of);
  return of;
}

/* Runs the steps of that time. */
static void run(const struct operands *of, const enum when *when, enum when now)
{
  for (int s = 0; s < of->o->noperation; s++)
    if (when[s] == now) of->value[first_step_operand(of->o) + s] = operate(of, &of->o->step[s]);
}

static void take_results(struct op *update, const struct operands *of)
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

static void update_alone(struct op *update)
{
  struct operands of = operands_of(update);
  for (int s = 0; s < of.o->noperation; s++)
    of.value[first_step_operand(of.o) + s] = operate(&of, &of.o->step[s]);
  take_results(update, &of);
}

/* The operands of the stack of these. */
static struct operands operands_of_stack(const struct operands *each)
{
  struct operands of = *each;
  int list = together[of.parameter].list;
  const char *path = graph->module[list].path;
  of.stacked = true;
  of.module = list;
  of.name = text("%s%s", path, behind_number(path, of.name) + !*path);
  of.value = alloc((size_t)(first_step_operand(of.o) + of.o->nstep) * sizeof(int));
  return of;
}

/* Makes the numbers of the step, so that the operations of equal modules are equal. */
static void make_numbers(const struct operands *of)
{
  for (int s = 0; s < of->o->noperation; s++)
    for (int i = 0; i < inputs_of_step(of->o->step[s].kind); i++)
      if (is_number(of->o, of->o->step[s].in[i])) operand_value(of, of->o->step[s].in[i], F32);
}

static void work_at_home(const struct operands *each, int n, const enum when *when)
{
  const struct optimizer *o = each->o;
  struct operands of = operands_of_stack(each);
  int first = first_step_operand(o);
  for (int s = 0; s < o->noperation; s++) {
    if (when[s] != AT_HOME) continue;
    bool goes = o->step[s].kind == OP_scan_stack;
    of.value[first + s] = goes ? taken_home(&of, each, n, s) : operate(&of, &o->step[s]);
  }
  for (int k = first; k < first + o->noperation; k++) {
    if (!leaves_home(o, when, k)) continue;
    int back = brought_back(&of, each, k);
    for (int i = 0; i < n; i++) each[i].value[k] = back;
  }
}

void append_updates(struct op *update, int n)
{
  const struct optimizer *o = optimizer_of(update);
  const enum when *when = find_when(o);
  if (n == 1) {
    update_alone(update);
    return;
  }
  struct operands *each = alloc((size_t)n * sizeof *each);
  int first = first_step_operand(o);
  for (int i = 0; i < n; i++) {
    each[i] = operands_of(&update[i]);
    if (i == 0) make_numbers(each);
    run(&each[i], when, BEFORE);
    for (int s = 0; s < o->noperation; s++)
      if (o->step[s].kind == OP_scan_stack)
        each[i].value[first + s] = one(of_update(OP_scan_put, &each[i]),
                                       each[i].value[o->step[s].in[0]], &each[i], "part");
  }
  work_at_home(each, n, when);
  for (int i = 0; i < n; i++) {
    for (int k = first; k < first + o->noperation; k++)
      if (leaves_home(o, when, k)) each[i].value[k] = slice_of(&each[i], each[i].value[k]);
    run(&each[i], when, BEHIND);
    take_results(&update[i], &each[i]);
  }
}
