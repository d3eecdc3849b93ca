/* read_optimizers.c: a dump's lines of optimizers, which write_optimizers.c writes. */
#include "dump/dump.h"

static void read_step_of_update(struct optimizer *o, bool of_tensors)
{
  if (o->nstep == MOST_STEPS_OF_UPDATE) unexpected("no further step");
  if (of_tensors && o->noperation++ != o->nstep) unexpected("operations before all steps");
  struct update_step *s = &o->step[o->nstep++];
  *s = (struct update_step){.kind = read_op_kind()};
  int n = of_tensors ? inputs_of_step(s->kind) : inputs_of_row(s->kind);
  if (!n) unexpected("an operation of an update");
  for (int i = 0; i < n; i++) {
    if (i) need_sign(',');
    s->in[i] = (int)token_number(0, first_step_operand(o) + o->nstep - 2);
  }
  while (of_tensors && !at_line_end() && read_update_step_field(s)) continue;
}

static void read_state_of_update(struct optimizer *o)
{
  if (o->nstate == MAX_OPTIMIZER_STATES || o->nnumber || o->nstep) unexpected("no further state");
  o->state[o->nstate++] = token_name();
  if (!at_line_end() && take_word("ones")) o->ones[o->nstate - 1] = (unsigned)token_bits();
}

/* An item of an update's computation, if it is next. */
static bool read_recipe(struct optimizer *o, int *nout)
{
  bool is_constant = take_word("constant"), is_number = !is_constant && take_word("number");
  if (is_constant || is_number) {
    if (o->nnumber == MOST_STEP_NUMBERS || o->nstep) unexpected("no further number");
    struct step_number *n = &o->number[o->nnumber++];
    *n = (struct step_number){0};
    if (is_constant) return n->value = token_real(), true;
    n->name = token_name();
    return n->text = token_text(), true;
  }
  if (take_word("state")) return read_state_of_update(o), true;
  if (take_word("operation")) return read_step_of_update(o, true), true;
  if (take_word("step")) return read_step_of_update(o, false), true;
  if (*nout > o->nstate || !take_word("out")) return false;
  return o->out[(*nout)++] = (int)token_number(0, first_step_operand(o) + o->nstep - 1), true;
}

void read_optimizer(void)
{
  static int room;
  if (!plan_options->noptimizer) room = 0;
  GROW(plan_options->optimizer, plan_options->noptimizer, room);
  struct optimizer *o = &plan_options->optimizer[plan_options->noptimizer++];
  *o = (struct optimizer){.name = token_name(), .settings = "", .schedule = ""};
  o->number = alloc(MOST_STEP_NUMBERS * sizeof *o->number);
  o->step = alloc(MOST_STEPS_OF_UPDATE * sizeof *o->step);
  int nout = 0;
  while (!at_line_end())
    if (!read_recipe(o, &nout) && !read_optimizer_field(o))
      unexpected("a field, or the line's end");
  if (nout != 1 + o->nstate) unexpected("an out for the parameter and for each state");
}
