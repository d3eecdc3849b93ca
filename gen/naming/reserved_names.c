/* reserved_names.c: names that no variable may have: those that generated statements use
   themselves, and those of kernels. */
#include "naming/naming.h"

#include <ctype.h>
#include <string.h>

/* Identifiers in the statements of generated functions and kernels, beside element_function[]. */
static const char *const listed[] = {"abs",
                                     "all_rows",
                                     "all_rows_have_room",
                                     "ask_for_blas_memory",
                                     "await",
                                     "await_all_sent",
                                     "await_received",
                                     "await_sent",
                                     "b",
                                     "backward",
                                     "begin_behind",
                                     "begin_on",
                                     "bf16_narrow_part",
                                     "bf16_pair",
                                     "bf16_part",
                                     "bf16_to_float",
                                     "blockIdx",
                                     "block_max",
                                     "block_min",
                                     "block_of",
                                     "block_sum",
                                     "c1",
                                     "c2",
                                     "column_of_floats",
                                     "communicator",
                                     "constants",
                                     "copy_lines",
                                     "copy_operand",
                                     "copy_panel",
                                     "copy_strip",
                                     "cos",
                                     "counted",
                                     "counts",
                                     "counts_in",
                                     "done",
                                     "edge_of",
                                     "end_on",
                                     "exp",
                                     "expm1",
                                     "few_rows_product",
                                     "fill",
                                     "first",
                                     "float_to_bf16",
                                     "forward",
                                     "gather_segments",
                                     "gemm",
                                     "gemm_batch",
                                     "gemm_batch_bf16",
                                     "gemm_batch_bf16_f32",
                                     "gemm_bf16",
                                     "gemm_bf16_f32",
                                     "gemm_on_one_thread",
                                     "grouped_nn",
                                     "grouped_nt",
                                     "grouped_tn",
                                     "groups",
                                     "clamp_to_capacity",
                                     "i",
                                     "in_flight",
                                     "index_use",
                                     "index_uses",
                                     "is_reading",
                                     "j",
                                     "k",
                                     "keep",
                                     "l",
                                     "lane_bits",
                                     "lanes",
                                     "larger",
                                     "learning_rate",
                                     "least",
                                     "load_lanes",
                                     "log",
                                     "log1p",
                                     "lr",
                                     "m",
                                     "matmul",
                                     "matmul_add",
                                     "matmul_nn",
                                     "matmul_nn_batch",
                                     "matmul_nn_bf16",
                                     "matmul_nn_bf16_f32",
                                     "matmul_nt",
                                     "matmul_nt_batch",
                                     "matmul_nt_bf16",
                                     "matmul_nt_bf16_f32",
                                     "matmul_tn",
                                     "matmul_tn_batch",
                                     "matmul_tn_bf16",
                                     "matmul_tn_bf16_f32",
                                     "matmul_tt",
                                     "matmul_tt_batch",
                                     "matmul_tt_bf16",
                                     "matmul_tt_bf16_f32",
                                     "memcpy",
                                     "memset",
                                     "microbatch",
                                     "multiply_bf16",
                                     "multiply_by_parts",
                                     "n",
                                     "ncclGroupEnd",
                                     "ncclGroupStart",
                                     "ncclRecv",
                                     "ncclReduceScatter",
                                     "ncclSend",
                                     "next_batch",
                                     "note_index",
                                     "noted",
                                     "noted_index",
                                     "noted_rows",
                                     "now",
                                     "of",
                                     "p",
                                     "pack_parts",
                                     "pack_pieces",
                                     "pack_segments",
                                     "pair_along",
                                     "pair_down",
                                     "pair_down_floats",
                                     "pair_first",
                                     "pair_of",
                                     "pair_second",
                                     "pair_transposed",
                                     "part",
                                     "part_begin",
                                     "part_first",
                                     "part_size",
                                     "parts_of_rows",
                                     "plus_product",
                                     "post_receive",
                                     "pow",
                                     "prepare",
                                     "product",
                                     "product_of_rows",
                                     "product_on_one_thread",
                                     "products",
                                     "program",
                                     "put_box",
                                     "put_rows",
                                     "q",
                                     "r",
                                     "random_at",
                                     "random_stream",
                                     "range",
                                     "rank",
                                     "ranks",
                                     "rate",
                                     "ready",
                                     "receive_from",
                                     "reduce_scatter",
                                     "reduce_segments",
                                     "room",
                                     "root",
                                     "row_bound",
                                     "row_bounds",
                                     "rows_of_places",
                                     "rows_to_experts",
                                     "rows_to_tokens",
                                     "s",
                                     "segment",
                                     "send_to",
                                     "shown",
                                     "sin",
                                     "size",
                                     "slice_box",
                                     "slice_rows",
                                     "slot",
                                     "slots",
                                     "smaller",
                                     "sqrt",
                                     "starts",
                                     "starts_in",
                                     "step",
                                     "stored",
                                     "stored_at",
                                     "stored_from",
                                     "stream",
                                     "stream_of",
                                     "strip_of",
                                     "sum_of_lanes",
                                     "t",
                                     "tensors",
                                     "threadIdx",
                                     "threads_for",
                                     "tile_block",
                                     "tile_columns",
                                     "tile_elements",
                                     "tile_exp",
                                     "tile_product",
                                     "tile_product_bf16",
                                     "tile_word",
                                     "transpose_blocks",
                                     "turn_lines",
                                     "transpose_some",
                                     "unpack_parts",
                                     "unpack_pieces",
                                     "unpack_segments",
                                     "unpack_segments_on",
                                     "update",
                                     "validate",
                                     NULL};

/* By name: whether a kernel has it, or will have it. */
static bool *reserved(const char *name, size_t length)
{
  static struct memo names;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_piece(&q, name, length);
  return answer_to(&names, &q, sizeof(bool), &is_new);
}

void reserve_kernel_name(const char *name)
{
  *reserved(name, strlen(name)) = true;
}

bool is_kernel_name(const char *name)
{
  size_t length = strlen(name);
  if (*reserved(name, length)) return true;
  for (size_t i = 1; i < length; i++)
    if (name[i] == '_' && isdigit((unsigned char)name[i + 1]) && *reserved(name, i)) return true;
  return false;
}

bool is_reserved_name(const char *name)
{
  /* Whether it names a group's communicator or stream. */
  static const char over[] = "over_", stream[] = "_stream";
  size_t n = strlen(name), end = strlen(stream);
  bool is_of_a_group = false;
  if (!strncmp(name, over, strlen(over)) || (n > end && !strcmp(name + n - end, stream)))
    for (int i = 0; i < graph->ngroup && !is_of_a_group; i++)
      is_of_a_group = !strcmp(name, group_name(i)) || !strcmp(name, stream_name(i));
  if (is_of_a_group || is_word_of(listed, name)) return true;
  for (const struct element_function *f = element_function; f->name; f++)
    if (!strcmp(name, f->name)) return true;
  return false;
}
