/* update.c: the kernels that update parameters: a template with the optimizer's numbers and how
   many elements a rank has. */
#include "kernel.h"

#include <inttypes.h>
#include <string.h>

static char *optimizer_text(void)
{
  const struct optimizer *o = &graph->optimizer;
  if (strcmp(o->name, "AdamW"))
    return text("lr %s, weight decay %s", double_text(o->lr), double_text(o->weight_decay));
  return text("lr %s, betas %s %s, eps %s, weight decay %s, step t from 1", double_text(o->lr),
              double_text(o->beta1), double_text(o->beta2), double_text(o->eps),
              double_text(o->weight_decay));
}

char *update_call(const struct op *op, int rank)
{
  const struct optimizer *o = &graph->optimizer;
  int64_t n = 0;
  const struct op *first = NULL;
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    int64_t here = elements(local_shape(inner->in[0], rank));
    if (here && !first) first = inner;
    n += here;
  }
  if (!first) return "";
  if (graph->value[first->in[0]].type != F32)
    plan_error(graph->optimizer.line, "%s: %s is %s; only parameters of float32 are trained",
               o->name, printable(value_name(first->in[0])),
               type_name(graph->value[first->in[0]].type));
  const char *kind = op_row[op->kind].name;
  const char *template = embedded_text(text("templates/%s.%s", kind, options.cuda ? "cu" : "c"));
  char *definition =
      fill(template, "n", text("%" PRId64, n), "counter", counter_type(n), "lr", number_text(o->lr),
           "beta1", double_text(o->beta1), "beta2", double_text(o->beta2), "keep1",
           number_text(o->beta1), "take1", number_text(1 - o->beta1), "keep2",
           number_text(o->beta2), "take2", number_text(1 - o->beta2), "eps", number_text(o->eps),
           "decay", number_text(1 - o->lr * o->weight_decay), NULL);
  /* The template is a whole function: its head up to the brace is the prototype. */
  size_t head = strcspn(definition, "{");
  while (head && (definition[head - 1] == '\n' || definition[head - 1] == ' ')) head--;
  const char *comment = text("// %s: %s\n", o->name, optimizer_text());
  const char *name = add_kernel(text("%s_%" PRId64, kind, n), text("%.*s", (int)head, definition),
                                comment, definition);
  struct buffer b = {0};
  for (int i = 0; i < first->nin; i++) put(&b, "%s%s", i ? ", " : "", c_name(first->in[i]));
  if (options.cuda) {
    put(&b, "%s", op->kind == OP_adamw ? ", c1, c2" : "");
    return text("LAUNCH(%s, %" PRId64 ", %d, stream)(%s);", name, (n + BLOCK - 1) / BLOCK, BLOCK,
                b.text);
  }
  return text("%s(%s%s);", name, b.text, op->kind == OP_adamw ? ", t" : "");
}
