/* update_rates.c: the learning rate and the other numbers of an update that change from step to
   step. */
#include "names/names.h"

#include <string.h>

char *optimizer_text(void)
{
  const struct optimizer *o = &plan_options->optimizer;
  struct buffer b = {0};
  put(&b, "lr %s", double_text(o->lr));
  if (o->beta1 > 0 || o->beta2 > 0)
    put(&b, ", betas %s %s", double_text(o->beta1), double_text(o->beta2));
  if (o->eps > 0) put(&b, ", eps %s", double_text(o->eps));
  if (o->momentum > 0)
    put(&b, ", momentum %s%s", double_text(o->momentum), o->nesterov ? ", nesterov" : "");
  put(&b, ", weight decay %s", double_text(o->weight_decay));
  if (plan_options->clip > 0)
    put(&b, ", gradients clipped to norm %s", double_text(plan_options->clip));
  return b.text;
}

const char *update_template(const char *name)
{
  return embedded_text(text("templates/%s.%s", name, target->source));
}

/* What the whole update computes once, from the number of the step. */
char *update_constants(void)
{
  const struct optimizer *o = &plan_options->optimizer;
  return fill(update_template(update_rule()->rates), "decay", double_text(o->weight_decay), "beta1",
              double_text(o->beta1), "beta2", double_text(o->beta2), NULL);
}

char *learning_rate_text(void)
{
  const struct rates *r = &plan_options->rates;
  double most = plan_options->optimizer.lr;
  if (!r->steps)
    return fill(embedded_text("templates/rate_constant.c"), "lr", double_text(most), NULL);
  char *up = "", *climb = "", *down = text("t / %d", r->steps);
  if (r->warmup) {
    up = text("a line up to step %d,\n// ", r->warmup);
    climb = text("  if (t <= %d) return most * t / %d;\n", r->warmup, r->warmup);
    down = text("(t - %d) / %d", r->warmup, r->steps - r->warmup);
  }
  return fill(embedded_text("templates/rate_warmup_cosine.c"), "most", double_text(most), "least",
              double_text(r->least * most), "up", up, "climb", climb, "down", down, "steps",
              text("%d", r->steps), NULL);
}
