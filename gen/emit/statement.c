/* statement.c: one operation as text: its C, and the comment above it. */
#include "emit/emit.h"

char *kernel_call(const struct op *op, int rank)
{
  return op->kind == OP_fused ? fused_call(op, rank) : update_call(op, rank);
}

void reserve_kernel_names(int rank)
{
  static const char *const words[] = {"fill",
                                      "add_parts",
                                      "assign",
                                      "sum_of_squares",
                                      "add_to_sum_of_squares",
                                      "square_root",
                                      "largest_of",
                                      "add_to_largest_of",
                                      "largest_norm"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) reserve_kernel_name(words[i]);
  for (int size = NONE; next_size(sizes_of_step(), &size);) {
    /* Names of kernels contain their sizes, which may differ between micro-batches. */
    for (int i = 0; i < graph->nfunction; i++)
      for (int k = 0; k < graph->function[i].nop; k++) {
        const struct op *op = &graph->op[graph->function[i].op[k]];
        if (op->kind == OP_fused) reserve_fused_name(op, rank);
        if (has_kernel(op->kind)) reserve_file_name(op, rank);
        if (is_update(op)) reserve_kernel_name(update_name(op));
      }
  }
}

/* The C of one operation, or "" where this rank has nothing to do. */
char *statement_text(const struct op *op, int rank)
{
  switch (op->kind) {
  case OP_matmul:
    return matmul_text(op, rank);
  case OP_products:
    return products_text(op, rank);
  case OP_epilogue:
    return epilogue_text(op, rank);
  case OP_fused:
    return kernel_call(op, rank);
  case OP_squares:
    return squares_text(op, rank);
  case OP_norm:
    return norm_text(op);
  case OP_step_number:
    return step_number_text(op);
  case OP_clamp_to_capacity:
    return clamp_to_capacity_text(op, rank);
  case OP_await:
    return await_text(op, rank);
  case OP_send:
  case OP_receive:
    return transfer_text(op, rank);
  default:
    if (is_update(op)) return kernel_call(op, rank);
    if (is_copy(op->kind)) return copies_text(op, rank);
    return has_kernel(op->kind) ? file_kernel_call(op, rank) : collective_text(op, rank);
  }
}
