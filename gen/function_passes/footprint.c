/* footprint.c: the bytes that a rank needs, by purpose: the one account that the limits, the
   reports and the generated program share. */
#include "function_passes/function_passes.h"

#include <inttypes.h>
#include <string.h>

int64_t parts_bytes(void)
{
  return graph->memory ? graph->memory->scratch_bytes : 0;
}

/* The library may split a product along its terms and then add the partial results: the workspace
   holds sixteen of the largest result, up to the most that the library uses. */
static int64_t workspace_for(const struct op *op)
{
  enum { PARTS = 16, LEAST = 1 << 20 };
  int64_t bytes = elements(local_shape(op->out, 0)), most = target->most_workspace;
  if (bytes > most / PARTS / 4) return most;
  bytes *= PARTS * 4;
  return bytes < LEAST ? LEAST : bytes;
}

/* The workspace of a product that is several in one. */
static int64_t workspace_of_all(const struct op *op)
{
  int64_t bytes = 0;
  for (int k = 0; k < op->nbody; k++) bytes += workspace_for(&graph->op[op->body[k]]);
  return bytes < target->most_workspace ? bytes : target->most_workspace;
}

/* Where the copies of operands begin: COPY_ALIGNED of products.cu. */
static int64_t aligned_for_copies(int64_t bytes)
{
  enum { ALIGNED = 256 };
  return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* The room for operands of products of float8, which the library may take only transposed. */
static int64_t copies_of(const struct op *op)
{
  int64_t bytes = 0;
  for (int k = 0; k < op->nbody && op->kind == OP_products; k++)
    bytes += copies_of(&graph->op[op->body[k]]);
  if (op->kind != OP_matmul || type_bytes(graph->value[op->in[0]].type) != 1) return bytes;
  for (int i = 0; i < 2; i++) bytes += aligned_for_copies(elements(local_shape(op->in[i], 0)));
  return bytes;
}

static int64_t workspace_of(const struct op *op)
{
  return op->kind == OP_matmul     ? workspace_for(op)
         : op->kind == OP_products ? workspace_of_all(op)
                                   : 0;
}

/* The most that any product of the program needs. */
static int64_t most_of_products(int64_t (*bytes_of)(const struct op *op))
{
  int64_t most = 0;
  for (int i = 0; i < graph->nfunction && target->most_workspace; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      int64_t bytes = bytes_of(op->kind == OP_epilogue ? &graph->op[op->body[0]] : op);
      if (most < bytes) most = bytes;
    }
  return most;
}

int64_t product_copies(void)
{
  return most_of_products(copies_of);
}

int64_t product_workspace(void)
{
  const int64_t copies = product_copies(), most = most_of_products(workspace_of);
  return copies ? aligned_for_copies(most) + copies : most;
}

int64_t held_elements(enum role role, int rank)
{
  int64_t sum = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == role && v->init.kind != INIT_NESTED)
      sum += numbers_in(v->type, rank == NONE ? v->shape : local_shape(i, rank));
  }
  return sum;
}

int64_t frozen_bytes(void)
{
  int64_t sum = 0;
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].frozen)
      sum += elements(local_shape(i, 0)) * type_bytes(graph->value[i].type);
  return sum;
}

const int64_t *memory_by_role(void)
{
  int64_t *bytes = alloc((NORM + 1) * sizeof *bytes);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == ACTIVATION && !v->is_output) continue;
    if (is_gradient(i) && storage_of(i) != i) continue; /* accumulated in its own place */
    bytes[v->role == SUMS ? GRADIENT : v->role] +=
        elements(local_shape(i, 0)) * type_bytes(v->type);
  }
  if (keeps_batches()) bytes[BATCH] *= 1 + plan_options->accumulate;
  return bytes;
}

const struct memory_part memory_part[MEMORY_PARTS] = {
    {"parameters", PARAMETER}, {"gradients", GRADIENT}, {"optimizer", STATE},
    {"batch", BATCH},          {"cache", CACHE},        {"outputs", ACTIVATION}};

int64_t memory_of_rank(void)
{
  const int64_t *held = memory_by_role();
  int64_t bytes = arena_bytes() + parts_bytes() + product_workspace();
  for (int i = 0; i < MEMORY_PARTS; i++) bytes += held[memory_part[i].role];
  return bytes;
}

int64_t memory_of_role(enum role role)
{
  return memory_by_role()[role];
}

int64_t library_reserve(void)
{
  return reserve_of_device();
}

char *size_text(int64_t bytes)
{
  static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 10240) return text("%" PRId64 " B", bytes);
  int u = 0;
  int64_t one = 1024;
  for (; u < 3 && bytes / one >= 1024; u++) one *= 1024;
  int64_t tenths = bytes / one * 10 + (bytes % one * 10 + one - 1) / one;
  return text("%" PRId64 ".%" PRId64 " %s", tenths / 10, tenths % 10, unit[u]);
}
