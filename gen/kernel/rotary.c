/* rotary.c: rotations of rows in C: one function for all of them, which takes sizes and strides.

   Takes   a kernel whose loops and arguments are known.
   Leaves  the call of that function, made from templates/program/rotary.c, if the kernel is one
           rotation of floats in at most three loops around a row. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

enum { AROUND = 3 }; /* loops around a row */

/* No line breaks within the braces. */
static const char comma[] = {',', KEPT_BLANK, 0};

/* "(const long[]){256, 64, 16}": the operand's strides along the loops around a row. */
static char *rotary_strides(const struct loops *loops, const struct operand *operand)
{
  struct buffer b = {0};
  int missing = AROUND + 1 - loops->n;
  for (int i = 0; i < AROUND; i++)
    put(&b, "%s%" PRId64, i ? comma : "(const long[]){",
        i < missing ? 0 : stride_along(loops, operand, i - missing));
  put(&b, "}");
  return b.text;
}

char *rotary_call(const struct kernel_builder *k)
{
  const struct loops *loops = &k->loops;
  const struct op *op = body_op(k->group, 0);
  struct letters l;
  struct operand operand[4]; /* x, the cosines, the sines; what is made */
  const char *stride[4];
  if (has_blocks() || k->group->nbody > 1 || op->kind != OP_rotary || k->nargument != 4)
    return NULL;
  if (loops->n < 1 || loops->n > AROUND + 1 || loops->of_row) return NULL;
  op_letters(op, &l);
  for (int i = 0; i < 4; i++) {
    int value = i < 3 ? op->in[i] : op->out, ndim = graph->value[value].shape.ndim;
    if (graph->value[value].type != F32) return NULL;
    find_operand(op, &l, i, k->rank, &operand[i]);
    if (operand[i].stride[ndim - 1] != 1) return NULL;
    stride[i] = rotary_strides(loops, &operand[i]);
  }
  int64_t half = number_of(op, "half");
  if (strcmp(stride[1], stride[2]) || loops->size[loops->n - 1] != 2 * half) return NULL;
  struct buffer size = {0};
  for (int i = 0; i < AROUND; i++) {
    int n = i - (AROUND + 1 - loops->n);
    put(&size, "%s%" PRId64, i ? comma : "(const long[]){", n < 0 ? 1 : loops->size[n]);
  }
  put(&size, "%s%" PRId64 "}", comma, half);
  char *all = fill(embedded_template("rotary.c"), "enough", text("%" PRId64, worth_threads), NULL);
  size_t comment = (size_t)(strstr(all, "void $name$") - all);
  const char *head = text("%.*s", (int)(strstr(all, "\n{") - all - (long)comment), all + comment);
  const char *name = add_kernel("rotate_rows", in_one_line(head, head + strlen(head)),
                                text("%.*s", (int)comment, all), all + comment, true);
  char *call =
      text("%s(%s, %s, %s, %s, %s, %s, %s, %s);", name, c_name(op->out), c_name(op->in[0]),
           c_name(op->in[1]), c_name(op->in[2]), size.text, stride[3], stride[0], stride[1]);
  return wrapped(text("  %s", call), ", ", "      ") + 2;
}
