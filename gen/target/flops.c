/* flops.c: the floating-point operations and the tokens of a step, and what of an operation is a
   rank's. */
#include "target/target.h"

#include <string.h>

/* Which part of the keys is in a query's window. */
static double share_in_window(const struct op *op)
{
  double keys = (double)graph->value[op->in[op->kind == OP_attention ? 1 : 2]].shape.size[2];
  double window = (double)reach_of(op);
  double most = is_causal(op) ? window : 2 * window - 1;
  return window > 0 && most < keys ? most / keys : 1;
}

double flops_of(const struct op *op)
{
  double all = 0;
  struct letters l;
  struct op plain = *op;
  if (!*op_row[op->kind].flops) return 0;
  if (op->kind == OP_matmul) plain.nin = 2; /* the third is what it adds to */
  op_letters(&plain, &l);
  for (const char *term = op_row[op->kind].flops; *term; term += strspn(term, " ")) {
    size_t n = strcspn(term, " ");
    double products = 1;
    for (int i = 0; i < l.n; i++)
      if (*term == '*' || memchr(term, l.name[i], n)) products *= (double)l.size[i];
    all += 2 * products;
    term += n;
  }
  if (is_attention(op)) all *= share_in_window(op);
  if (is_block_of_keys(op)) all /= graph->mesh.size[-number_of(op, "ring") - 1];
  return op->pieces ? all / op->pieces : all;
}

double local_size(int value)
{
  return elements_in_balance(value, 0);
}

double local_bytes(int value)
{
  return local_size(value) * (double)type_bytes(graph->value[value].type);
}

/* The bytes sent for rows by expert: the rows, or a slot for each other rank. */
double bytes_of_rows(const struct op *op, int n)
{
  int tokens = op->dim_to == 0 ? op->in[0] : op->out;
  struct shape here = local_shape(tokens, 0);
  double row = (double)here.size[here.ndim - 1] * (double)type_bytes(graph->value[tokens].type);
  double all = target->streams ? (double)rows_of_slot(tokens, n) * row * n : local_bytes(tokens);
  return all * (n - 1) / n;
}

enum arithmetic arithmetic_of(const struct op *op)
{
  if (graph->value[op->in[0]].type == BF16) return IN_BFLOAT16;
  return plan_options->tf32 ? IN_TFLOAT32 : IN_FLOAT32;
}

double ranks_that_share(const struct op *op)
{
  double ranks = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    bool cut = false;
    for (int i = 0; i < op->nin; i++) cut |= graph->value[op->in[i]].layout.on[d].kind == SHARD;
    for (int k = 0; k < op->nout; k++)
      cut |= graph->value[op->out + k].layout.on[d].kind != REPLICATE;
    if (cut) ranks *= graph->mesh.size[d];
  }
  return ranks;
}

bool is_own_block(const struct op *op)
{
  int mesh_dim = -(int)number_of(op, "ring") - 1, k = op->in[op->kind == OP_attention ? 1 : 2];
  return number_of(op, "places") || !graph->value[k].layout.on[mesh_dim].shift;
}

/* By the type of the factors. */
static void add_flops(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  double *flops = to;
  for (int k = 0; k < op->nbody && op->kind == OP_products; k++) add_flops(to, op->body[k], times);
  if (op->kind == OP_products) return;
  if (op->phase != FORWARD) return;
  /* Its operands are those of all micro-batches. */
  flops[graph->value[op->in[0]].type == BF16] += flops_of(op) * times / microbatches();
}

void forward_flops(double forward[2])
{
  for (int i = 0; i < 2; i++) forward[i] = all_stages() ? all_stages()->flops[i] : 0;
  if (all_stages()) return;
  for (int at = 0; at < graph->norder; at++) add_flops(forward, graph->order[at], runs_in_step());
  each_op(add_flops, forward);
}

double step_flops(void)
{
  double forward[2];
  forward_flops(forward);
  double all = forward[0] + forward[1];
  return graph->loss == NONE ? all : 3 * all;
}

enum arithmetic step_arithmetic(void)
{
  double forward[2];
  forward_flops(forward);
  if (forward[1] > forward[0]) return IN_BFLOAT16;
  return plan_options->tf32 ? IN_TFLOAT32 : IN_FLOAT32;
}

double step_tokens(void)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == BATCH && graph->value[i].init.kind == INIT_TOKENS)
      return (double)elements(graph->value[i].shape) * plan_options->accumulate;
  return 0;
}
