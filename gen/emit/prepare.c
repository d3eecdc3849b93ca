/* prepare.c: the function `prepare`, in which the host writes the values that change from step to
   step into memory. */
#include "emit/emit.h"

static void put_next_batches(struct buffer *b)
{
  int n = plan_options->accumulate;
  if (n == 1) {
    put(b, "  next_batch(t - 1);\n");
    return;
  }
  if (!has_some_of(BATCH)) return;
  put(b, "  for (int i = 0; i < %d; i++) {\n    next_batch(%d * (t - 1) + i);\n", n, n);
  put(b, "    %s  }\n",
      fill(target_syntax()->copy_member, "to", "m->batches[i]", "from", "m->batch", "batch",
           "m->batch", NULL));
}

char *prepare_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!target->steps_in_memory) return b.text;
  if (takes_batches()) put_next_batches(&b);
  if (has_step_constants()) {
    /* other stages may have more of them */
    put(&b, "  struct constants now%s;\n", graph->stages ? " = {}" : "");
    if (step_has(is_update)) put(&b, "%s", update_constants(NULL));
    if (step_has(knows_step) && plan_options->accumulate > 1)
      put(&b, "  for (int i = 0; i < %d; i++) now.batch[i] = %d * (t - 1) + i + 1;\n",
          plan_options->accumulate, plan_options->accumulate);
    else if (step_has(knows_step))
      put(&b, "  now.step = t;\n");
    put(&b, "  target_put(&m->now, &now, sizeof now);\n");
  }
  if (!b.length) return b.text;
  return text("// Runs on the host before step t. The device's work is the same at every "
              "step.\nstatic void prepare(int t)\n{\n%s}\n\n",
              b.text);
}
