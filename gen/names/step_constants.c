/* step_constants.c: what a program on a GPU has of a step's number in memory. What a step does on
   the device is the same at every step, so that it can be one graph; what changes from one to the
   next, the batch and what depends on the step's number, the host puts into memory before. */
#include "names/names.h"

const char *batch_number(void)
{
  return plan_options->accumulate > 1 ? forms()->batch_number : forms()->step_number;
}

char *constants_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!target->steps_in_memory) return b.text;
  if (step_has(is_update)) put(&b, "  float %s;\n", update_rates());
  if (step_has(is_random) && plan_options->accumulate > 1)
    put(&b, "  int batch[%d]; // the numbers of its batches\n", plan_options->accumulate);
  else if (step_has(is_random))
    put(&b, "  int step; // its number\n");
  if (!b.length) return b.text;
  return text("// What is the same in all of a step, and another at the next.\n"
              "struct constants {\n%s};\n\n",
              b.text);
}
