/* optimizers.c: the optimizers: how each updates a parameter, a row for each way. To add one: a row
   here, and what gen/README.md lists. */
#include "ir/ir.h"

#include <string.h>

static const struct update_rule rules[] = {
    {.optimizer = "AdamW",
     .kind = OP_adamw,
     .kernel = "adamw",
     .rates = "adamw_rates",
     .rate_names = "keep, rate, root",
     .state = {"exp_avg", "exp_avg_sq"}},
    {.optimizer = "SGD",
     .kind = OP_sgd,
     .kernel = "sgd",
     .rates = "sgd_rates",
     .rate_names = "rate"},
    {.optimizer = "SGD",
     .kind = OP_sgd,
     .momentum = true,
     .kernel = "sgd_momentum",
     .rates = "sgd_rates",
     .rate_names = "rate",
     .state = {"momentum"}},
    {.optimizer = "SGD",
     .kind = OP_sgd,
     .momentum = true,
     .nesterov = true,
     .kernel = "sgd_nesterov",
     .rates = "sgd_rates",
     .rate_names = "rate",
     .state = {"momentum"}},
};

const struct update_rule *update_rule(void)
{
  const struct optimizer *o = &plan_options->optimizer;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (o->name && !strcmp(rules[i].optimizer, o->name) && rules[i].momentum == (o->momentum > 0) &&
        rules[i].nesterov == o->nesterov)
      return &rules[i];
  return NULL;
}
