/* kernel.c: the kernels of fused operations, and the statements that call them. The code of a
   kernel (kernel_ir.h, build.c) is a loop over the elements of a rank's part, with a statement for
   each operation, made from the expressions of the table of operators. Kernels that differ only in
   the names within them are one. Kernels of other operators are templates: update.c,
   kernel_file.c. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

/* --------------------------------------------------------------------------- all of the kernels */

/* Adds a kernel that is one function; returns its name. */
static const char *add_kernel_function(const char *name, const char *parameters,
                                       const char *comment, const char *body,
                                       const struct launch *launch)
{
  const char *head = text("void $name$(%s)", parameters), *mark = target_syntax()->kernel_mark;
  const char *bounds =
      fill(target_syntax()->kernel_bounds, "threads", text("%d", launch->threads), NULL);
  const char *definition = text("%s%s\n{\n%s}\n", bounds, head, without_braces(body));
  return add_kernel(name, text("%s%s", mark, head), comment, definition, true);
}

char *kernel_call_text(const char *name, const char *blocks, int threads, const char *arguments)
{
  return fill(target_syntax()->kernel_call, "name", name, "blocks", blocks, "threads",
              text("%d", threads), "arguments", arguments, NULL);
}

static char *kernel_launch_text(const char *name, const struct launch *launch,
                                const char *arguments)
{
  const char *blocks = text("%" PRId64, launch->blocks);
  if (launch->rows > 1) blocks = text("dim3(%s, %" PRId64 ")", blocks, launch->rows);
  char *call = kernel_call_text(name, blocks, launch->threads, arguments);
  return launch->then ? text("%s\n  %s", call, launch->then) : call;
}

/* ----------------------------------------------------------------------------- fused operations */

/* The plan's function to which the operation belongs, "rms_norm"; for an operator that Lua writes
   as a sign, the operation's own name. */
static const char *part_name(const struct op *op)
{
  bool word = op->part_of && *op->part_of >= 'a' && *op->part_of <= 'z';
  return word ? identifier(op->part_of) : op_name(op);
}

static bool lists_word(const char **word, int n, const char *name)
{
  for (int i = 0; i < n; i++)
    if (!strcmp(word[i], name)) return true;
  return false;
}

/* Whether all operations of the kernel are of functions of the plan: then these say more than the
   operations do. */
static bool is_of_functions(const struct op *group)
{
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = body_op(group, k);
    if (op->kind != OP_expand && !strcmp(part_name(op), op_name(op))) return false;
  }
  return true;
}

/* "add_relu": the names of a kernel's operations; if they are many, or all are of functions of the
   plan, these functions, "add_rms_norm"; if these are many, the first few. */
static char *kernel_words(const struct op *group)
{
  struct buffer b = {0};
  enum { MOST = 4 };
  const char **word = alloc((size_t)(group->nbody + 1) * sizeof *word);
  int n = 0;
  for (int i = 0; i < group->nbody; i++) {
    const struct op *op = body_op(group, i);
    if (op->kind != OP_expand || group->nbody == 1) word[n++] = op_name(op);
  }
  if (!n) word[n++] = op_name(body_op(group, 0));
  if (n > MOST || (n > 1 && is_of_functions(group))) {
    /* The words of a long kernel's name: each function of the plan once, with "_back" in the
       backward, which may recompute some of the forward. Returns their number. */
    int i = 0;
    for (int backward = 1; backward >= 0; backward--)
      for (int k = 0; k < group->nbody; k++) {
        const struct op *op = &graph->op[group->body[k]];
        const char *name = part_name(op), *back = text("%s_back", name);
        bool of_backward = op->phase == BACKWARD && !op->recomputed && strcmp(name, op_name(op));
        if (of_backward != backward || lists_word(word, i, back)) continue;
        if (of_backward) name = back;
        if (!lists_word(word, i, name)) word[i++] = name;
      }
    n = i;
  }
  for (int i = 0; i < n; i++) {
    if (n > MOST && i == MOST - 1) {
      put(&b, "_and_%d_more", n - i);
      break;
    }
    put(&b, "%s%s", i ? "_" : "", word[i]);
  }
  return b.text;
}

/* "add_relu_20x16". The name of a kernel that overwrites an operand ends in "_inplace": its call
   does not show that operand. */
static char *fused_kernel_name(const char *words, struct shape space, bool in_place)
{
  struct buffer b = {0};
  put(&b, "%s", words);
  for (int d = 0; d < space.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "_", space.size[d]);
  if (!space.ndim) put(&b, "_1");
  if (in_place) put(&b, "_inplace");
  return b.text;
}

/* The comment above a kernel: the values that it computes, and those that it overwrites. */
static char *kernel_comment(const struct op *group)
{
  int *written = alloc((size_t)op_width(group) * sizeof *written);
  int *read = alloc((size_t)op_width(group) * sizeof *read);
  int nwritten = op_writes(group, written), nread = op_reads(group, read);
  struct buffer b = {0};
  put(&b, "%s", comment_lines(formula_text(group), 0));
  for (int i = 0; i < nwritten; i++) {
    /* The value, read by the kernel and of another name, whose memory `value` takes; or NONE. */
    int value = written[i];
    int in = NONE;
    for (int k = 0; k < nread && in == NONE; k++)
      if (read[k] != value && same_place(read[k], value) &&
          strcmp(display_name(read[k]), display_name(value)))
        in = read[k];
    if (in != NONE)
      put(&b, "%s",
          comment_lines(text("%s is in place of %s", printable(display_name(written[i])),
                             printable(display_name(in))),
                        0));
  }
  return b.text;
}

/* The output of a reduction over no elements. */
static char *neutral_call(const struct op *op, int rank)
{
  const char *neutral = neutral_text(op), *type = c_type(graph->value[op->out].type);
  if (!strcmp(neutral, "0")) return zero_text(op->out, rank);
  if (graph->value[op->out].type == BF16) neutral = text("float_to_bf16(%s)", neutral);
  int64_t n = elements(local_shape(op->out, rank));
  const char *counter = counter_type(n + BLOCK);
  struct launch launch = {.blocks = (n + BLOCK - 1) / BLOCK, .threads = BLOCK};
  struct buffer body = {0};
  if (has_blocks()) {
    put(&body, "  const %s n = (%s)blockIdx.x * %d + (%s)threadIdx.x;\n", counter, counter, BLOCK,
        counter);
    put(&body, "  if (n < %" PRId64 ") y[n] = %s;\n", n, neutral);
  } else {
    put(&body, "  for (%s i = 0; i < %" PRId64 "; i++) y[i] = %s;\n", counter, n, neutral);
  }
  const char *name =
      add_kernel_function(text("%s_of_none_%" PRId64, op_name(op), n), text("%s *y", type),
                          text("// %s over no elements\n", op_name(op)), body.text, &launch);
  return kernel_launch_text(name, &launch, c_name(op->out));
}

static const char *fused_kernel(struct kernel_builder *k, const struct code *body)
{
  struct buffer b = {0};
  k->words = kernel_words(k->group);
  bool is_in_place = false;
  for (int i = 0; i < k->nargument && !is_in_place; i++) is_in_place = k->argument[i].in_place;
  const char *name = fused_kernel_name(k->words, k->loops.space, is_in_place);
  /* The entry for a kernel with this code, apart from the names within it, and these parameters: 0,
     or one more than the number of the kernel. */
  int *known = planned(text("%s %d %s", name, k->launch->threads, signature_of(k, body, true))),
      before = nkernels;
  if (*known) return kernels[*known - 1].name;
  put_text(&b, "", 0);
  print_code(&b, body, 2);
  name = add_kernel_function(name, parameters_text(k), kernel_comment(k->group), b.text, k->launch);
  if (nkernels > before) {
    struct kernel_builder *kept = alloc(sizeof *kept);
    *kept = *k;
    kernels[nkernels - 1].builder = kept;
    kernels[nkernels - 1].code = body;
    *known = nkernels;
  }
  return name;
}

void reserve_fused_name(const struct op *group, int rank)
{
  const char *words = kernel_words(group);
  struct shape space = local_shape(group->stages->space, rank);
  for (int in_place = 0; in_place < 2; in_place++)
    reserve_kernel_name(fused_kernel_name(words, space, in_place));
  if (body_op(group, 0)->kind == OP_rotary) reserve_kernel_name("rotate_rows");
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (is_reduce(op->kind)) reserve_kernel_name(text("%s_of_none", op_name(op)));
  }
}

char *fused_call(const struct op *group, int rank)
{
  struct launch launch = {0};
  struct kernel_builder k = {.group = group,
                             .rank = rank,
                             .stages = *group->stages,
                             .form = kernel_form(group, rank),
                             .launch = &launch};
  if (k.form->scheme == NO_KERNEL) {
    /* A kernel over no elements sets only its reductions' outputs. */
    struct buffer b = {0};
    put_text(&b, "", 0);
    for (int i = 0; i < group->nbody; i++) {
      const struct op *op = &graph->op[group->body[i]];
      if (is_reduce(op->kind) && c_name(op->out))
        put(&b, "%s%s", b.length ? "\n  " : "", neutral_call(op, rank));
    }
    return b.text;
  }
  find_loops(&k);
  find_arguments(&k);
  char *rotary = rotary_call(&k);
  if (rotary) return rotary;
  struct code *body = kernel_code(&k);
  drop_unused(&k, body);
  /* Nothing to do: the rank has no part of these columns. */
  if (!k.nargument && !launch.then) return copy_text("");
  return kernel_launch_text(fused_kernel(&k, body), &launch, arguments_text(&k));
}
