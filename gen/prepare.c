/* prepare.c: the host's part of a CUDA program's step, as text. What a step does on the device is
   the same at every step, so that it can be one graph; what changes from one to the next, the batch
   and what depends on the step's number, the host puts into memory before. */
#include "tpgen.h"

#include <string.h>

bool reads_tokens(void)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH && graph->value[i].init.kind == INIT_TOKENS) return true;
  return false;
}

bool is_update(const struct op *op)
{
  return op->kind == OP_adamw || op->kind == OP_sgd;
}

bool is_random(const struct op *op)
{
  bool random = op->kind != OP_custom && strstr(op_row[op->kind].element, "$random");
  for (int k = 0; k < op->nbody; k++) random |= is_random(&graph->op[op->body[k]]);
  return random;
}

static bool has(bool (*such)(const struct op *op))
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (such(&graph->op[graph->function[i].op[k]])) return true;
  return false;
}

/* "&m->now.batch[i]": where the number is that a batch's random numbers depend on. */
const char *batch_number(void)
{
  return graph->accumulate > 1 ? "&m->now.batch[i]" : "&m->now.step";
}

bool keeps_batches(void)
{
  return options.cuda && graph->accumulate > 1 && reads_tokens();
}

char *constants_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!options.cuda) return b.text;
  if (has(is_update)) put(&b, "  float %s;\n", update_rates());
  if (has(is_random) && graph->accumulate > 1)
    put(&b, "  int batch[%d]; // the numbers of its batches\n", graph->accumulate);
  else if (has(is_random))
    put(&b, "  int step; // its number\n");
  if (!b.length) return b.text;
  return text("// What is the same in all of a step, and another at the next.\n"
              "struct constants {\n%s};\n\n",
              b.text);
}

static void put_constants(struct buffer *b)
{
  put(b, "  struct constants now;\n");
  if (has(is_update)) put(b, "%s", update_constants());
  if (has(is_random) && graph->accumulate > 1)
    put(b, "  for (int i = 0; i < %d; i++) now.batch[i] = %d * (t - 1) + i + 1;\n",
        graph->accumulate, graph->accumulate);
  else if (has(is_random))
    put(b, "  now.step = t;\n");
  put(b, "  target_put(&m->now, &now, sizeof now);\n");
}

static void put_next_batches(struct buffer *b)
{
  int n = graph->accumulate;
  if (n == 1) {
    put(b, "  next_batch(t - 1);\n");
    return;
  }
  if (!has_some_of(BATCH)) return;
  put(b, "  for (int i = 0; i < %d; i++) {\n    next_batch(%d * (t - 1) + i);\n", n, n);
  put(b, "    CHECK_CUDA(cudaMemcpyAsync(&m->batches[i], &m->batch, sizeof m->batch,\n"
         "                               cudaMemcpyDeviceToDevice, stream));\n  }\n");
}

char *prepare_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (!options.cuda) return b.text;
  if (reads_tokens()) put_next_batches(&b);
  if (*constants_text()) put_constants(&b);
  if (!b.length) return b.text;
  return text("// What the host does before step t: the device's part is the same at every "
              "step.\nstatic void prepare(int t)\n{\n%s}\n\n",
              b.text);
}
