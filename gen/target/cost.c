/* cost.c: a cost model of operations, good enough to decide which operations to overlap. Times are
   whole picoseconds, so that equal times are equal on every machine.

   The plan's device (device.c) has a rate of arithmetic and a memory bandwidth; a kernel takes the
   longer of the two times, and kernels run one after the other. A collective takes the links'
   latency and bandwidth (traffic.c), and sends what its kind sends in a ring with equal parts.
   Sizes are those of rank 0. All experts have as many rows. */
#include "target/target.h"

#include <math.h>
#include <string.h>

/* The start of a kernel; and a collective on another stream than its inputs and outputs: an event
   there and one back. */
static const double KERNEL_SECONDS = 3e-6, EVENTS_SECONDS = 4e-6;

/* The role of each letter of its operands: a letter in both and the result counts products, one
   only in the first rows, one only in the second columns; one that is summed counts terms. */
static struct product_sizes product_of(const struct op *op)
{
  struct product_sizes p = {1, 1, 1, 1};
  const char *second = strchr(op->equation, ',') + 1, *result = strchr(second, '>') + 1;
  for (int o = 0; o < 2; o++) {
    const char *letter = o ? second : op->equation, *other = o ? op->equation : second;
    struct shape here = local_shape(op->in[o], 0);
    for (int d = 0; d < here.ndim; d++, letter++) {
      bool shared = memchr(other, *letter, strcspn(other, ",-")), kept = strchr(result, *letter);
      if (shared && o) continue;
      double size = (double)here.size[d];
      if (op->pieces && *letter == result[op->piece_dim]) { /* each member's part by itself */
        size /= op->pieces * group_size(op->piece_group);
        p.count *= group_size(op->piece_group);
      }
      *(shared ? kept ? &p.count : &p.terms : o ? &p.columns : &p.rows) *= size;
    }
  }
  return p;
}

double multiplications(const struct op *op)
{
  struct product_sizes p = product_of(op);
  return p.rows * p.columns * p.terms;
}

/* The number of keys that a query computes with, of so many: with a causal mask, half of them; with
   a window, those in it and in the rest of its tiles. Documents are not known. */
static double keys_of_query(const struct op *op, double keys)
{
  enum { TILE = 64 };
  bool causal = is_causal(op), full = is_block_of_keys(op) && !is_own_block(op);
  double most = causal && !full ? keys / 2 : keys, window = (double)reach_of(op);
  if (window == 0) return most;
  double near = (causal ? window : 2 * window) + TILE;
  return near < most ? near : most;
}

/* The backward has five products instead of two, that of a bias two. */
static double seconds_of_attention(const struct op *op)
{
  bool back = op->kind != OP_attention;
  int q = op->in[back], k = op->in[1 + back];
  struct shape keys = local_shape(k, 0);
  double length = keys.ndim >= 2 ? (double)keys.size[keys.ndim - 2] : 1;
  double head = keys.ndim >= 1 ? (double)keys.size[keys.ndim - 1] : 1;
  double flops = 2 * 2 * local_size(q) * keys_of_query(op, length);
  if (op->kind == OP_attention_back) flops = flops * 5 / 2;
  return attention_seconds(flops, head, length, back, arithmetic_of(op));
}

static double computing_seconds(const struct op *op)
{
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  double seconds = 0;
  for (int k = 0; k < op->nbody && op->kind == OP_products; k++)
    seconds += computing_seconds(&graph->op[op->body[k]]);
  if (op->kind == OP_products) return seconds;
  if (is_attention(op)) return seconds_of_attention(op);
  if (op->kind != OP_matmul)
    return arithmetic_seconds(flops_of(op) / ranks_that_share(op), arithmetic_of(op));
  struct product_sizes p = product_of(op);
  return product_seconds(&p, arithmetic_of(op));
}

/* The number of pieces in which the operation reads the value: a product reads an operand without
   the dimension in pieces as a whole. */
static double pieces_read(const struct op *op, int value)
{
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  bool is_operand = value == op->in[0] || value == op->in[1];
  if (!op->pieces || !is_operand || op->kind != OP_matmul) return op->pieces ? op->pieces : 1;
  const char *a = op->equation, *b = strchr(a, ',') + 1, *c = strchr(b, '>') + 1;
  bool first = op->in[0] == value;
  return memchr(first ? a : b, c[op->piece_dim], first ? strcspn(a, ",") : strcspn(b, "-"))
             ? op->pieces
             : 1;
}

/* All that an operation reads and writes. */
static double cost_bytes_of(const struct op *op)
{
  double bytes = 0;
  for (struct list in = values_read(op); in.n--;)
    bytes += local_bytes(in.at[in.n]) / pieces_read(op, in.at[in.n]);
  for (struct list out = values_written(op); out.n--;)
    bytes += local_bytes(out.at[out.n]) / (op->pieces ? op->pieces : 1);
  return bytes;
}

static int64_t arithmetic_time(const struct op *op)
{
  int64_t moving = picoseconds(memory_seconds(cost_bytes_of(op)));
  return picoseconds(KERNEL_SECONDS) + greater(picoseconds(computing_seconds(op)), moving);
}

/* The bytes that a rank of n sends, or receives, of the whole value after or before. */
static double bytes_sent(const struct op *op, double n)
{
  if (op->kind == OP_exchange_rows) return bytes_of_rows(op, (int)n);
  if (op->kind == OP_exchange) return local_bytes(op->in[0]);
  double bytes = op->packed ? local_bytes(op->buffer) : (double)collective_bytes(op, 0);
  if (op->packed) return collective_row[op->kind].passes * bytes * (n - 1) / n;
  if (gathers_shards(op->kind)) bytes = local_bytes(op->out) / (op->pieces ? op->pieces : 1);
  return collective_row[op->kind].passes * bytes * (n - 1) / n;
}

static int64_t collective_time(const struct op *op)
{
  const struct group *g = &graph->group[op->group];
  unsigned dims = 0;
  for (int i = 0; i < g->n; i++)
    if (graph->mesh.size[g->dim[i]] > 1) dims |= 1u << g->dim[i];
  if (!dims) return picoseconds(KERNEL_SECONDS);
  struct link link = collective_link(op->kind, dims);
  return picoseconds(link.latency) +
         picoseconds(bytes_sent(op, group_size(op->group)) / link.bandwidth);
}

/* A rank begins to send, or to receive, and goes on. */
int64_t sending_time(int64_t bytes, int mesh_dim)
{
  double measured = is_measured() ? measured_sending((double)bytes, mesh_dim) : -1;
  if (measured >= 0) return lesser(picoseconds(measured), LONGEST_TIME);
  struct link link = link_of_dimension(mesh_dim);
  return lesser(picoseconds(link.latency + (double)bytes / link.bandwidth), LONGEST_TIME);
}

int64_t time_taken_here(const struct op *op, value_reach *reach, void *of)
{
  const double seconds =
      is_measured() && !is_transfer(op->kind) ? measured_seconds(op, reach, of) : -1;
  if (seconds >= 0) return lesser(picoseconds(seconds), LONGEST_TIME);
  if (is_transfer(op->kind)) return picoseconds(KERNEL_SECONDS);
  if (is_collective(op->kind)) return lesser(collective_time(op), LONGEST_TIME);
  return op_row[op->kind].idle ? 0 : lesser(arithmetic_time(op), LONGEST_TIME);
}

int64_t time_taken(const struct op *op)
{
  return time_taken_here(op, NULL, NULL);
}

/* The time of a kernel that reads and writes so many bytes, each once. */
static int64_t copying_time(double bytes)
{
  return picoseconds(KERNEL_SECONDS) + picoseconds(memory_seconds(2 * bytes));
}

int64_t copies_in_time(const struct op *op)
{
  if (!is_copied_in(op)) return 0;
  double bytes = local_bytes(op->buffer);
  return copying_time(gathers_shards(op->kind) ? bytes / group_size(op->group) : bytes);
}

int64_t copies_out_time(const struct op *op)
{
  if (!is_copied_out(op)) return 0;
  double bytes = local_bytes(op->buffer);
  return copying_time(scatters_sum(op->kind) ? bytes / group_size(op->group) : bytes);
}

int64_t events_time(void)
{
  return picoseconds(EVENTS_SECONDS);
}
