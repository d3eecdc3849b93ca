/* step_constants.c: the constants of a step that a GPU's program reads from memory. The work of a
   step on the device is the same at every step, so that it can be one CUDA graph. The host writes
   the values that change (the batch, and those that depend on the step's number) into memory before
   each step. */
#include "naming/naming.h"

const char *batch_number(void)
{
  return plan_options->accumulate > 1 ? target_syntax()->batch_number
                                      : target_syntax()->step_number;
}

bool has_step_constants(void)
{
  return target->steps_in_memory && (updates_have_numbers() || step_has(knows_step));
}

/* kernels.h has it, which the programs of all stages share. */
char *constants_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!target->steps_in_memory) return b.text;
  put(&b, "%s", step_number_members());
  if (has_step_number() && plan_options->accumulate > 1)
    put(&b, "  int batch[%d]; // the numbers of its batches\n", plan_options->accumulate);
  else if (has_step_number())
    put(&b, "  int step; // its number\n");
  if (!b.length) return b.text;
  return text("// What changes from step to step: the host writes it before each step.\n"
              "struct constants {\n%s};\n\n",
              b.text);
}
