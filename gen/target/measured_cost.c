/* measured_cost.c: the time of an operation on a device that tpgen --calibrate has measured.

   A product is the call, or the calls, that the program makes: rows, columns, terms, and which
   operands are stored transposed. Attention is a number of tiles for the busiest thread. Any other
   kernel takes what the functions in its elements' expressions take, and its memory: each value at
   the rate of the cache in which it still is. The simulation of a step says which one, by `reach`:
   the bytes that were read and written since the value was. Sizes are those of rank 0. */
#include "target/target.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- products */

static double calls_seconds(const struct product *p, enum arithmetic type)
{
  const struct gemm *x = &p->call;
  if (!x->m) return 0; /* an empty part */
  const bool swapped = x->matrix[GEMM_C].transposed;
  const enum gemm_operand a = swapped ? GEMM_B : GEMM_A, b = swapped ? GEMM_A : GEMM_B;
  struct measured_product s = {.type = type,
                               .form = {x->matrix[a].transposed != swapped ? 't' : 'n',
                                        x->matrix[b].transposed != swapped ? 't' : 'n'},
                               .rows = (double)(swapped ? x->n : x->m)->size,
                               .columns = (double)(swapped ? x->m : x->n)->size,
                               .terms = (double)x->k->size,
                               .count = p->batch ? (double)p->batch->size : 1};
  double times = 1;
  for (int i = 0; i < p->nloop; i++) times *= (double)p->loop[i]->size;
  return times * (measured_kernel() + measured_product(&s));
}

static double product_seconds_of(const struct op *op)
{
  struct product p;
  struct op first;
  if (op->kind == OP_products)
    choose_products(&p, op, &first, 0);
  else
    choose_product(&p, op, 0);
  return calls_seconds(&p, arithmetic_of(op->kind == OP_products ? &graph->op[op->body[0]] : op));
}

/* Rows by expert: each of the rank's experts has the rows in balance. */
static double grouped_seconds(const struct op *op)
{
  const bool of_weight = op->kind == OP_grouped_linear_back_weight;
  const int weight = of_weight ? op->out : op->in[1];
  const struct shape w = local_shape(weight, 0);
  const double experts = (double)w.size[0], outputs = (double)w.size[1], inputs = (double)w.size[2];
  const double rows =
      local_size(op->in[0]) / (op->kind == OP_grouped_linear ? inputs : outputs) / experts;
  struct measured_product s = {arithmetic_of(op), "nt", rows, outputs, inputs, experts};
  if (op->kind == OP_grouped_linear_back_input)
    s = (struct measured_product){s.type, "nn", rows, inputs, outputs, experts};
  else if (of_weight)
    s = (struct measured_product){s.type, "tn", outputs, inputs, rows, experts};
  return measured_kernel() + measured_groups(&s);
}

/* Others that multiply: as a product of large matrices does. */
static double multiplying_seconds(const struct op *op)
{
  const double side = 256, all = flops_of(op) / ranks_that_share(op);
  struct measured_product s = {arithmetic_of(op), "nn", side, side, side, 1};
  return measured_kernel() + measured_product(&s) * all / (2 * side * side * side);
}

/* ------------------------------------------------------------------------------------ attention */

/* The tiles of keys that a tile of queries meets, of so many keys. */
static double tiles_of_keys(const struct op *op, double queries, double keys)
{
  enum { TILE = 64 };
  const double all = ceil(keys / TILE), window = (double)reach_of(op);
  const bool ring = is_block_of_keys(op);
  double most = all;
  if (ring) {
    if (is_causal(op) && is_own_block(op)) most = (all + 1) / 2;
  } else if (is_causal(op)) {
    /* Of the keys behind the first query; the rest are before it, or after. */
    const double behind = ceil(fmin(queries, keys) / TILE);
    most = fmax(all - behind, 0) / 2 + (behind + 1) / 2;
  }
  if (window > 0) most = fmin(most, ceil((is_causal(op) ? window : 2 * window) / TILE) + 1);
  return most;
}

static double attention_seconds_of(const struct op *op)
{
  enum { TILE = 64 };
  const bool back = op->kind != OP_attention;
  const int q = op->in[back], k = op->in[1 + back];
  const struct shape queries = local_shape(q, 0), keys = local_shape(k, 0);
  if (queries.ndim < 2 || keys.ndim < 2) return multiplying_seconds(op);
  const double depth = (double)queries.size[queries.ndim - 1];
  const double length = (double)queries.size[queries.ndim - 2];
  const double of_keys = (double)keys.size[keys.ndim - 2];
  if (length <= 0 || of_keys <= 0 || depth <= 0) return 0;
  const double heads = local_size(q) / depth / length;
  const double groups = local_size(k) / (double)keys.size[keys.ndim - 1] / of_keys;
  const double met = tiles_of_keys(op, length, of_keys), tiles = ceil(length / TILE);
  /* Threads share tiles of queries; in the backward of CPUs, groups of heads. */
  const bool by_group = back && !target->thread_grids;
  const double threads = measured_threads(), parts = by_group ? groups : heads * tiles;
  const double of_thread = ceil(parts / threads) / parts * heads * tiles * met;
  struct measured_attention a = {.type = arithmetic_of(op),
                                 .is_back = back,
                                 .depth = depth,
                                 .keys = TILE * (2 * met - 1),
                                 .tiles = of_thread};
  const double seconds = measured_attention(&a);
  return seconds < 0 ? multiplying_seconds(op) : measured_kernel() + seconds;
}

/* -------------------------------------------------------------------------------- other kernels */

/* What elements' expressions call, and which measured functions that is. */
static const struct {
  const char *call;
  enum element_function_kind is[2];
} function_of_call[] = {
    {"expf(", {FUNCTION_EXP, FUNCTION_COPY}},
    {"expm1f(", {FUNCTION_EXP, FUNCTION_COPY}},
    {"logf(", {FUNCTION_LOG, FUNCTION_COPY}},
    {"log1pf(", {FUNCTION_LOG, FUNCTION_COPY}},
    {"sinf(", {FUNCTION_SIN, FUNCTION_COPY}},
    {"cosf(", {FUNCTION_SIN, FUNCTION_COPY}},
    {"sqrtf(", {FUNCTION_SQRT, FUNCTION_COPY}},
    {"powf(", {FUNCTION_POW, FUNCTION_COPY}},
    {"tanhf(", {FUNCTION_TANH, FUNCTION_COPY}},
    {"erff(", {FUNCTION_ERF, FUNCTION_COPY}},
    {" / ", {FUNCTION_DIV, FUNCTION_COPY}},
    {"silu_slope(", {FUNCTION_EXP, FUNCTION_DIV}},
    {"inverse_erf(", {FUNCTION_LOG, FUNCTION_SQRT}},
    {"lgammaf(", {FUNCTION_LOG, FUNCTION_POW}},
    {"digamma(", {FUNCTION_LOG, FUNCTION_POW}},
    {"trigamma(", {FUNCTION_SIN, FUNCTION_POW}},
    {"gelu_tanh_slope(", {FUNCTION_TANH, FUNCTION_COPY}},
    {"$random", {FUNCTION_POW, FUNCTION_COPY}}, /* ten rounds of multiplications */
    {"$uniform", {FUNCTION_POW, FUNCTION_COPY}},
    {"$normal", {FUNCTION_POW, FUNCTION_SIN}},
};

/* More than a copy takes, which the memory's rate has. A call hinders the loads of the elements
   after it, and was measured so: the two times add up. */
static double beyond_copy(enum element_function_kind f, double elements)
{
  return fmax(0, measured_function(f, elements) - measured_function(FUNCTION_COPY, elements));
}

static double element_seconds(const struct op *op, enum element_function_kind each)
{
  const char *element = op_row[op->kind].element;
  const int space = is_reduce(op->kind) ? op->in[0] : op->out;
  if (space == NONE) return 0;
  const double n = local_size(space) / measured_threads();
  double seconds = measured_function(each, n);
  for (size_t i = 0; i < sizeof function_of_call / sizeof *function_of_call; i++)
    for (const char *at = element; (at = strstr(at, function_of_call[i].call)); at++)
      seconds +=
          beyond_copy(function_of_call[i].is[0], n) + beyond_copy(function_of_call[i].is[1], n);
  if (is_reduce(op->kind) && each != FUNCTION_NORM) seconds += beyond_copy(FUNCTION_SUM, n);
  return seconds;
}

static double kernel_arithmetic(const struct op *op)
{
  if (is_update(op)) return 0; /* the optimizer's rate has it */
  const int n = op->nbody ? op->nbody : 1;
  enum element_function_kind each = FUNCTION_GATE;
  for (int k = 0; k < n; k++)
    if (is_reduce((op->nbody ? &graph->op[op->body[k]] : op)->kind)) each = FUNCTION_NORM;
  double seconds = 0;
  for (int k = 0; k < n; k++)
    seconds += element_seconds(op->nbody ? &graph->op[op->body[k]] : op, each);
  /* A value of bfloat16 is converted where it is read or written: that is half of it. */
  double converted = 0;
  for (struct list in = values_read(op); in.n--;)
    if (graph->value[in.at[in.n]].type == BF16) converted += local_size(in.at[in.n]);
  for (struct list out = values_written(op); out.n--;)
    if (graph->value[out.at[out.n]].type == BF16) converted += local_size(out.at[out.n]);
  return seconds + beyond_copy(FUNCTION_BF16, converted / 2 / measured_threads());
}

/* The place of a list's number, or NONE. */
static bool is_in(const struct list *list, int storage)
{
  for (int i = 0; i < list->n; i++)
    if (storage_of(list->at[i]) == storage) return true;
  return false;
}

static double bytes_read_here(const struct op *op, int value)
{
  /* Of a table only the rows that are named. */
  const bool by_index =
      op->kind == OP_embedding || op->kind == OP_index_select || op->kind == OP_gather;
  if (by_index && value == op->in[0]) return local_bytes(op->out);
  return local_bytes(value) / (op->pieces ? op->pieces : 1);
}

/* The kind of kernel by which memory is read and written: read or write, or both in one place. */
static enum memory_use use_of(const struct op *op, enum memory_use use)
{
  if (is_update(op)) return use == WRITTEN_BYTES ? use : OPTIMIZER_BYTES;
  if (!target->streams) return use;
  const int n = op->nbody ? op->nbody : 1;
  for (int k = 0; k < n; k++)
    if (is_reduce((op->nbody ? &graph->op[op->body[k]] : op)->kind)) return ROW_BYTES;
  return use;
}

static double kernel_memory(const struct op *op, value_reach *reach, void *of)
{
  double all = 0, seconds = 0;
  struct list in = values_read(op), out = values_written(op);
  for (int i = 0; i < in.n; i++) all += bytes_read_here(op, in.at[i]);
  for (int i = 0; i < out.n; i++) all += local_bytes(out.at[i]);
  for (int i = 0; i < in.n; i++) {
    const double bytes = bytes_read_here(op, in.at[i]);
    const double far = fmax(all, reach ? reach(of, in.at[i]) : 0);
    if (!is_in(&out, storage_of(in.at[i])))
      seconds += measured_memory(use_of(op, READ_BYTES), bytes, far);
    else
      seconds += measured_memory(use_of(op, UPDATED_BYTES), 2 * bytes, far);
  }
  for (int i = 0; i < out.n; i++)
    if (!is_in(&in, storage_of(out.at[i])))
      seconds += measured_memory(use_of(op, WRITTEN_BYTES),
                                 local_bytes(out.at[i]) / (op->pieces ? op->pieces : 1),
                                 fmax(all, reach ? reach(of, out.at[i]) : 0));
  return seconds;
}

static double kernel_seconds(const struct op *op, value_reach *reach, void *of)
{
  return measured_kernel() + kernel_arithmetic(op) + kernel_memory(op, reach, of);
}

/* ---------------------------------------------------------------------------------- collectives */

/* The bytes of the whole value, before or after. */
static double bytes_of_whole(const struct op *op)
{
  if (op->packed) return local_bytes(op->buffer);
  const int value = gathers_shards(op->kind) ? op->out : op->in[0];
  return local_bytes(value) / (op->pieces ? op->pieces : 1);
}

/* Of the nearest group that was measured; if that is another one, as much longer as the model of
   links says. Below 0: none was. */
static double seconds_in_group(enum op_kind kind, const struct group_spread *s, double bytes,
                               bool is_bf16)
{
  struct group_spread near;
  const double seconds = measured_collective(kind, s, bytes, is_bf16);
  if (seconds < 0 || !target->streams || !measured_group(kind, s, &near)) return seconds;
  double by_model[2];
  const struct group_spread *const of[] = {s, &near};
  for (int i = 0; i < 2; i++) {
    const double n = of[i]->members, sent = collective_row[kind].passes * bytes * (n - 1) / n;
    const struct link link = modeled_link(kind, of[i]);
    by_model[i] = link.latency + sent / link.bandwidth;
  }
  return seconds * by_model[0] / by_model[1];
}

static double collective_seconds(const struct op *op)
{
  const int n = group_size(op->group);
  const bool is_bf16 = graph->value[op->packed ? op->buffer : op->in[0]].type == BF16;
  const double bytes = bytes_of_whole(op);
  if (n == 1) return measured_kernel();
  struct group_spread s = {.members = n, .nodes = 1, .in_node = n};
  if (target->streams) {
    const unsigned dims = graph->group[op->group].dims;
    if (gives_links(dims)) return -1;
    s = spread_of_dimensions(dims);
  }
  if (op->kind == OP_exchange_rows) { /* counts, then rows */
    const double rows = target->streams ? bytes_of_rows(op, n) * n / (n - 1) : bytes;
    return seconds_in_group(OP_all_to_all, &s, 256, false) +
           seconds_in_group(OP_all_to_all, &s, rows, false);
  }
  if (op->kind == OP_exchange)
    return seconds_in_group(target->streams ? OP_all_to_all : OP_send, &s, bytes, false);
  return seconds_in_group(op->kind, &s, bytes, is_bf16);
}

double measured_sending(double bytes, int mesh_dim)
{
  const unsigned dims = 1u << mesh_dim;
  if (!target->streams)
    return measured_collective(OP_send, &(struct group_spread){2, 1, 2}, bytes, false);
  if (gives_links(dims)) return -1;
  /* Neighbours are of two nodes, or of one. */
  const bool over_nodes = spread_of_dimensions(dims).nodes > 1;
  const struct group_spread two = {2, over_nodes ? 2 : 1, over_nodes ? 1 : 2};
  return measured_collective(OP_send, &two, bytes, false);
}

/* -------------------------------------------------------------------------------- the operation */

double measured_seconds(const struct op *op, value_reach *reach, void *of)
{
  if (is_collective(op->kind)) return collective_seconds(op);
  if (op_row[op->kind].idle) return 0;
  if (op->kind == OP_epilogue) op = &graph->op[op->body[0]];
  if (op->kind == OP_matmul && op->pieces) return -1; /* the model of pieces knows them */
  if (op->kind == OP_matmul || op->kind == OP_products) return product_seconds_of(op);
  if (is_attention(op)) return attention_seconds_of(op);
  if (op->kind == OP_grouped_linear || op->kind == OP_grouped_linear_back_input ||
      op->kind == OP_grouped_linear_back_weight)
    return grouped_seconds(op);
  const double moving = kernel_seconds(op, reach, of);
  return *op_row[op->kind].flops ? fmax(moving, multiplying_seconds(op)) : moving;
}
