/* kernel_traits.c: what a kernel's file declares: its parameters, and whether it takes any order of
   dimensions. */
#include "target/target.h"

#include <ctype.h>
#include <string.h>

/* The file's text, or NULL if the plan names none. */
const char *kernel_file(const struct op *of, int rank)
{
  if (of->kind != OP_custom)
    return embedded_text(text("templates/kernels/%s%s.%s", op_row[of->kind].name,
                              attention_variant(of, rank), target->source));
  return graph->custom[of->custom].kernel[target->language];
}

/* The operand for the functions' n-th parameter: the outputs come first. */
int operand_of_parameter(const struct op *of, int n)
{
  return n < of->nout ? of->nin + n : n - of->nout;
}

/* The name of operand i's parameter in the file. */
const char *kernel_parameter(const struct op *of, const char *file, int i)
{
  const char *c = strstr(file, "$name$(");
  if (!c) return "";
  c += strlen("$name$");
  for (int n = 0; n < of->nin + of->nout && (*c == '(' || *c == ','); n++) {
    const char *begin = ++c, *end = c += strcspn(c, ",)");
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    begin = end;
    while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') begin--;
    if (operand_of_parameter(of, n) == i) return text("%.*s", (int)(end - begin), begin);
  }
  return "";
}

static bool asks_for_steps(const struct op *of, int i)
{
  const char *file = kernel_file(of, NONE);
  return file && strstr(file, text("$step_%s_", kernel_parameter(of, file, i)));
}

bool takes_steps(const struct op *of, int i)
{
  enum { UNKNOWN, NO, YES };
  static unsigned char known[OP_COUNT][MAX_INPUTS + MAX_OUTPUTS];
  static const struct target *files_of;
  if (files_of != target) memset(known, UNKNOWN, sizeof known);
  files_of = target;
  if (of->kind == OP_custom) return asks_for_steps(of, i);
  unsigned char *answer = &known[of->kind][i];
  if (*answer == UNKNOWN) *answer = asks_for_steps(of, i) ? YES : NO;
  return *answer == YES;
}
