/* update_parts.c: updates of a parameter that files hold as one tensor and the program in parts, by
   an optimizer that reads the whole. Its operations run for each part. A reduction over the
   dimension in which the parts are side by side also reduces over the parts: a sum is the sum of
   the parts' sums. Before a collective, the parts' pending sums are added, and reduced once. Such a
   result is one value for all parts, and so is a value that is made only of such results. */
#include "graph_passes/graph_passes.h"

/* The parts' operands; and by operand the dimension in which its parts are side by side, from the
   end: -1 is the last one. 0: it is the same for all parts. */
struct parts {
  struct operands *of;
  int n, *along;
};

static const char TRANSPOSED[] = "an operation on it and its transpose";

static void refuse(const struct parts *p, const char *what)
{
  plan_error(p->of->o->line,
             "%s looks at the whole of a parameter, and %s is kept in parts; tpgen cannot make %s "
             "from these: leave out the style's parts, or give it another optimizer in train's "
             "groups, or say by_part = true in optimizer{} where it may take each part as a tensor "
             "of its own",
             p->of->o->name, printable(p->of->name), what);
}

static const struct shape *shape_of_operand(const struct parts *p, int operand)
{
  return &graph->value[p->of->value[operand]].shape;
}

/* The dimension in which the parts of the step's inputs are side by side: the same for all
   inputs. */
static int along_of_inputs(const struct parts *p, const struct update_step *step)
{
  int along = 0;
  for (int i = 0; i < inputs_of_step(step->kind); i++) {
    int its = is_number_operand(p->of->o, step->in[i]) ? 0 : p->along[step->in[i]];
    if (along && its && along != its) refuse(p, TRANSPOSED);
    if (its) along = its;
  }
  for (int i = 0; i < inputs_of_step(step->kind) && along; i++) {
    if (is_number_operand(p->of->o, step->in[i]) || p->along[step->in[i]]) continue;
    const struct shape *s = shape_of_operand(p, step->in[i]);
    if (s->ndim + along >= 0 && s->size[s->ndim + along] != 1)
      refuse(p, "an operation on it and a tensor of its size that is not in parts");
  }
  return along;
}

/* The dimension in which the parts of the result are side by side, if those of the input are so in
   dimension `along`; 0: none. */
static int along_of_result(const struct parts *p, const struct update_step *step, int along)
{
  int ndim = shape_of_operand(p, step->in[0])->ndim;
  if (step->kind == OP_permute) return -3 - along;
  if (!is_reduce(step->kind)) return along;
  if (step->dims >> (ndim + along) & 1) return 0;
  for (int d = ndim - 1; d > ndim + along && !step->keepdim; d--) along += step->dims >> d & 1;
  return along;
}

static void do_step(const struct parts *p, int s)
{
  const struct optimizer *o = p->of->o;
  const struct update_step *step = &o->step[s];
  int along = along_of_inputs(p, step), operand = first_step_operand(o) + s;
  if (along && step->kind == OP_matmul) refuse(p, "products");
  if (step->kind == OP_scan_stack) refuse(p, "what is whole on one rank");
  for (int k = 0; k < p->n; k++)
    p->of[k].value[operand] =
        k && !along ? p->of[0].value[operand] : append_step_of_update(&p->of[k], step);
  p->along[operand] = along ? along_of_result(p, step, along) : 0;
  if (along && !p->along[operand]) {
    /* Combines the parts' results, each of its own elements, into one. */
    int all = p->of[0].value[operand];
    for (int k = 1; k < p->n; k++) {
      enum op_kind joining = OP_maximum;
      if (step->kind != OP_amax) {
        joining = step->kind == OP_amin ? OP_minimum : OP_add;
      }
      all = append_pair_of_update(joining, all, p->of[k].value[operand], p->of);
    }
    for (int k = 0; k < p->n; k++) p->of[k].value[operand] = all;
  }
}

static struct parts begin(const struct updating *u, const struct op *update, int n)
{
  const struct value *v = &graph->value[update->in[0]];
  struct parts p = {.of = alloc((size_t)n * sizeof *p.of), .n = n};
  for (int k = 0; k < n; k++) p.of[k] = operands_of_update(u, &update[k]);
  const struct optimizer *o = p.of->o;
  p.along = alloc((size_t)(first_step_operand(o) + o->nstep) * sizeof *p.along);
  for (int i = 0; i < first_number_operand(o); i++) {
    bool same = i > 1 && o->ones[i - 2] >> v->file_dim & 1;
    p.along[i] = same ? 0 : v->file_dim - v->shape.ndim;
  }
  return p;
}

void append_updates_of_parts(const struct updating *u, struct op *update, int n)
{
  struct parts p = begin(u, update, n);
  for (int s = 0; s < p.of->o->noperation; s++) do_step(&p, s);
  /* The operands that the kernel goes over with the parameter have the parameter's layout. */
  const struct optimizer *o = p.of->o;
  for (int s = 0; s < o->noperation; s++) {
    int operand = first_step_operand(o) + s;
    if (kernel_takes(o, operand) && p.along[operand] && p.along[operand] != p.along[0])
      refuse(&p, TRANSPOSED);
  }
  for (int k = 0; k < n; k++) append_update_taking(&update[k], &p.of[k]);
}
