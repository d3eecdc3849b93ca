/* write_optimizers.c: a dump's lines of optimizers, which read_optimizers.c reads. */
#include "dump/dump.h"

/* The computation of an update, at the end of the optimizer's line. */
static void put_recipe(const struct optimizer *o)
{
  for (int k = 0; k < o->nstate; k++) {
    put(&d.b, " state ");
    put_name(o->state[k]);
    if (o->ones[k]) put(&d.b, " ones %x", o->ones[k]);
  }
  for (int k = 0; k < o->nnumber; k++) {
    const struct step_number *n = &o->number[k];
    if (!n->text) put(&d.b, " constant %.17g", n->value);
    if (!n->text) continue;
    put(&d.b, " number %s ", n->name);
    put_quoted(n->text);
  }
  for (int k = 0; k < o->nstep; k++) {
    const struct update_step *s = &o->step[k];
    put(&d.b, " %s %s", k < o->noperation ? "operation" : "step", op_row[s->kind].name);
    for (int i = 0; i < inputs_of_step(s->kind); i++) put(&d.b, "%s%d", i ? "," : " ", s->in[i]);
    if (k < o->noperation) put_update_step_fields(s, &(struct update_step){0});
  }
  for (int k = 0; k <= o->nstate; k++) put(&d.b, " out %d", o->out[k]);
}

void put_optimizers(void)
{
  for (int i = 0; i < plan_options->noptimizer; i++) {
    const struct optimizer *o = &plan_options->optimizer[i];
    put(&d.b, "optimizer ");
    put_name(o->name);
    put_optimizer_fields(o, &(struct optimizer){0});
    put_recipe(o);
    put(&d.b, "\n");
  }
}
