/* cost.c: how long an operation takes, by a model that is good for comparing: what is worth having
   beside what. In picoseconds: whole numbers, so that equal times are equal on every machine.

   The model. A GPU of the kind that the CUDA target is for multiplies so many numbers and moves so
   many bytes of its memory a second, as below, one thing at a time; a collective takes the links'
   latency and bandwidth (traffic.c), and sends what its kind does with equal parts in a ring. Sizes
   are those of rank 0. */
#include "moves.h"

#include <math.h>
#include <string.h>

/* What products of float32, of float32 rounded to TF32 and of narrower numbers reach, and what
   memory carries. Starting a kernel, and having a collective on another stream than what it works
   on: an event there and one back. */
static const double FLOPS = 50e12, FLOPS_TF32 = 300e12, FLOPS_NARROW = 500e12, BYTES = 2e12;
static const double KERNEL_SECONDS = 3e-6, EVENTS_SECONDS = 4e-6;

static double local_size(int value)
{
  return (double)elements(local_shape(value, 0));
}

static double local_bytes(int value)
{
  return local_size(value) * (double)type_bytes(graph->value[value].type);
}

/* The multiplications and additions of a product: its letters' sizes, each once. */
static double product_flops(const struct op *op)
{
  bool met[128] = {false};
  double n = 2;
  const char *letter = op->equation;
  for (int o = 0; o < 2; o++, letter++) {
    struct shape here = local_shape(op->in[o], 0);
    for (int d = 0; d < here.ndim; d++, letter++) {
      if (!met[*letter & 127]) n *= (double)here.size[d];
      met[*letter & 127] = true;
    }
  }
  return n;
}

/* Of attention's rows the half that is not masked; its backward has five products for two. */
static double attention_flops(const struct op *op)
{
  int q = op->in[op->kind == OP_attention_back], k = op->in[1 + (op->kind == OP_attention_back)];
  struct shape keys = local_shape(k, 0);
  double length = keys.ndim >= 2 ? (double)keys.size[keys.ndim - 2] : 1;
  double flops = 2 * 2 * local_size(q) * length / 2;
  return op->kind == OP_attention_back ? flops * 5 / 2 : flops;
}

static double flops_of(const struct op *op)
{
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  if (op->kind == OP_matmul) return product_flops(op);
  return op->kind == OP_attention || op->kind == OP_attention_back ? attention_flops(op) : 0;
}

/* All that an operation reads and writes. */
static double bytes_of(const struct op *op)
{
  static int *list, room;
  double bytes = 0;
  while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
  for (int n = op_reads(op, list); n--;) bytes += local_bytes(list[n]);
  for (int n = op_writes(op, list); n--;) bytes += local_bytes(list[n]);
  return bytes;
}

static double flops_a_second(const struct op *op)
{
  if (graph->value[op->in[0]].type == BF16) return FLOPS_NARROW;
  return graph->tf32 ? FLOPS_TF32 : FLOPS;
}

static int64_t arithmetic_time(const struct op *op)
{
  double flops = flops_of(op), bytes = bytes_of(op);
  int64_t computing = flops > 0 ? picoseconds(flops / flops_a_second(op)) : 0;
  return picoseconds(KERNEL_SECONDS) + most(computing, picoseconds(bytes / BYTES));
}

/* What a rank of n sends, or receives, of the bytes that are whole in the end, or were before. */
static double bytes_sent(const struct op *op, double n)
{
  if (op->kind == OP_exchange) return local_bytes(op->in[0]);
  double bytes = (double)collective_bytes(op, 0);
  if (op->kind == OP_all_gather) bytes = local_bytes(op->out);
  return (op->kind == OP_all_reduce ? 2 : 1) * bytes * (n - 1) / n;
}

static int64_t collective_time(const struct op *op)
{
  const struct group *g = &graph->group[op->group];
  double latency = 0, bandwidth = 0;
  for (int i = 0; i < g->n; i++) {
    if (graph->mesh.size[g->dim[i]] == 1) continue;
    double b = link_bandwidth(g->dim[i]);
    latency = fmax(latency, link_latency(g->dim[i]));
    bandwidth = bandwidth > 0 ? fmin(bandwidth, b) : b;
  }
  if (bandwidth == 0) return picoseconds(KERNEL_SECONDS);
  return picoseconds(latency) + picoseconds(bytes_sent(op, group_size(op->group)) / bandwidth);
}

int64_t time_taken(const struct op *op)
{
  if (is_collective(op->kind)) return least(collective_time(op), LONGEST_TIME);
  bool works = op->kind != OP_view && op->kind != OP_await;
  return works ? least(arithmetic_time(op), LONGEST_TIME) : 0;
}

int64_t events_time(void)
{
  return picoseconds(EVENTS_SECONDS);
}
