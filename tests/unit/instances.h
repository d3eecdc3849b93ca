/* instances.h: for every row of the table of operators that has a rule, operations of that kind,
   and inputs that suit them. */
#ifndef INSTANCES_H
#define INSTANCES_H

#include "util/util.h"
#include "ir/ir.h"
#include "interpreter.h"

/* Shapes are in letters, to each of which a case gives a size:

     ab       two dimensions; letters from e on have the sizes of a, b, c, d again
     1, 2 ..  a dimension of that size
     (ab2)    one dimension: the product
     [ab]     one dimension: the sum
     ?ab #ab  of truths; of whole numbers, indices where the operator takes such

   The letters of a view's equation have these sizes too; those of other equations are their own. */
struct instance {
  enum op_kind kind;
  const char *in[MAX_INPUTS];
  const char *out[MAX_OUTPUTS]; /* where they do not follow from the inputs */
  const char *equation;
  unsigned dims;
  bool keepdim;
  double scalar; /* 0: 0.75 */
  double softcap;
  int64_t number[MAX_NUMBERS];
  enum type type;
  const char *custom;
};

#define UNARY(k)                                                                                   \
  {k, .in = {"ab"}}, {k, .in = {"abc"}}, {k, .in = {""}},                                          \
  {                                                                                                \
    k, .in = { "1b" }                                                                              \
  }
#define BINARY(k)                                                                                  \
  {k, .in = {"ab", "ab"}}, {k, .in = {"ab", "b"}}, {k, .in = {"b", "ab"}},                         \
      {k, .in = {"a1", "1b"}}, {k, .in = {"", "ab"}}, {k, .in = {"abc", "1c"}},                    \
      {k, .in = {"ab", ""}},                                                                       \
  {                                                                                                \
    k, .in = { "b1", "abc" }                                                                       \
  }
#define FEW(k)                                                                                     \
  {k, .in = {"ab", "ab"}},                                                                         \
  {                                                                                                \
    k, .in = { "a1", "b" }                                                                         \
  }
#define REDUCE(k)                                                                                  \
  {k, .in = {"ab"}, .dims = 1}, {k, .in = {"ab"}, .dims = 2}, {k, .in = {"ab"}, .dims = 3},        \
      {k, .in = {"ab"}, .dims = 2, .keepdim = true}, {k, .in = {"abc"}, .dims = 5},                \
      {k, .in = {"abc"}, .dims = 2, .keepdim = true},                                              \
  {                                                                                                \
    k, .in = {"1b"}, .dims = 1                                                                     \
  }

/* The rules of attention with further inputs. */
#define OF_ATTENTION(further)        "b(gr)q@d!,bgk!d!,bgk!e!," further "->b(gr)qe!,b(gr)q:f32"
#define BACK                         "b(gr)q@e!,b(gr)qd!,bgk@d!,bgke!,b(gr)qe!,b(gr)q,"
#define OF_ATTENTION_BACK(further)   BACK further "->b(gr)qd!,bgkd!,bgke!"
#define OF_ATTENTION_BACK_BIAS(bias) BACK bias "->" bias ":f32"

static const struct instance instances[] = {
    {OP_matmul, .in = {"ab", "bc"}, .equation = "mk,kn->mn"},
    {OP_matmul, .in = {"ab", "cb"}, .equation = "mk,nk->mn"},
    {OP_matmul, .in = {"ba", "bc"}, .equation = "km,kn->mn"},
    {OP_matmul, .in = {"ab", "bc"}, .equation = "mk,kn->nm"},
    {OP_matmul, .in = {"abc", "dc"}, .equation = "abk,nk->abn"},
    {OP_matmul, .in = {"dab", "dbc"}, .equation = "bmk,bkn->bmn"},
    {OP_matmul, .in = {"abc", "abd"}, .equation = "abn,abk->nk"},
    {OP_matmul, .in = {"ab", "b"}, .equation = "mk,k->m"},
    {OP_matmul, .in = {"a", "b"}, .equation = "m,n->mn"},
    {OP_matmul, .in = {"a", "a"}, .equation = "k,k->"},
    {OP_matmul, .in = {"abc", "ac"}, .equation = "mxk,mk->m"},
    {OP_matmul, .in = {"dacb", "dcab"}, .equation = "bhqd,bqhd->bhq"},
    BINARY(OP_add),
    {OP_add, .in = {"#ab", "#ab"}},
    BINARY(OP_sub),
    BINARY(OP_running),
    BINARY(OP_in_training),
    {OP_batch_share, .in = {"ab"}, .scalar = 0.3},
    BINARY(OP_mul),
    BINARY(OP_div),
    BINARY(OP_maximum),
    BINARY(OP_minimum),
    BINARY(OP_pow),
    UNARY(OP_power),
    {OP_power, .in = {"ab"}, .scalar = 2},
    UNARY(OP_neg),
    UNARY(OP_scale),
    {OP_float8_scale, .in = {"ab"}},
    {OP_float8_scale, .in = {"ab"}, .number = {1, 1}},
    {OP_inverse_scale, .in = {"ab"}},
    {OP_to_float8, .in = {"ab", "a1"}},
    {OP_to_float8, .in = {"ab", "ab"}, .number = {1}},
    UNARY(OP_abs),
    FEW(OP_abs_back),
    UNARY(OP_exp),
    UNARY(OP_log),
    UNARY(OP_sqrt),
    UNARY(OP_rsqrt),
    UNARY(OP_square),
    UNARY(OP_expm1),
    FEW(OP_expm1_back),
    UNARY(OP_log1p),
    FEW(OP_log1p_back),
    UNARY(OP_erf),
    FEW(OP_erf_back),
    UNARY(OP_erfinv),
    UNARY(OP_lgamma),
    UNARY(OP_digamma),
    FEW(OP_digamma_back),
    UNARY(OP_softplus),
    FEW(OP_softplus_back),
    UNARY(OP_sin),
    UNARY(OP_cos),
    UNARY(OP_relu),
    FEW(OP_relu_back),
    UNARY(OP_sigmoid),
    FEW(OP_sigmoid_back),
    UNARY(OP_tanh),
    FEW(OP_tanh_back),
    UNARY(OP_silu),
    FEW(OP_silu_back),
    UNARY(OP_gelu),
    FEW(OP_gelu_back),
    UNARY(OP_gelu_tanh),
    FEW(OP_gelu_tanh_back),
    {OP_where, .in = {"?ab", "ab", "ab"}},
    {OP_where, .in = {"?b", "ab", "a1"}},
    {OP_where, .in = {"?ab", "", "ab"}},
    {OP_where, .in = {"?", "ab", "b"}},
    FEW(OP_eq),
    FEW(OP_ne),
    FEW(OP_lt),
    FEW(OP_le),
    FEW(OP_gt),
    FEW(OP_ge),
    {OP_logical_and, .in = {"?ab", "?ab"}},
    {OP_logical_and, .in = {"?a1", "?b"}},
    {OP_logical_or, .in = {"?ab", "?ab"}},
    {OP_logical_or, .in = {"?a1", "?b"}},
    {OP_logical_not, .in = {"?ab"}},
    {OP_cast, .in = {"ab"}, .type = BF16},
    {OP_cast, .in = {"ab"}, .type = I32},
    {OP_cast, .in = {"ab"}, .type = BOOL},
    {OP_cast, .in = {"#ab"}, .type = F32},
    {OP_cast, .in = {"#ab"}, .type = BOOL},
    {OP_cast, .in = {"?ab"}, .type = F32},
    {OP_cast, .in = {"?ab"}, .type = I32},
    {OP_dropout, .in = {"ab"}, .scalar = 0.4, .number = {7}},
    {OP_dropout, .in = {"abc"}, .scalar = 0.4, .number = {8}},
    {OP_dropout, .in = {"1b"}, .scalar = 0.4, .number = {9}},
    {OP_uniform_like, .in = {"ab"}, .number = {3}},
    {OP_uniform_like, .in = {"1bc"}, .number = {4}},
    {OP_normal_like, .in = {"ab"}, .number = {5}},
    {OP_normal_like, .in = {"abc"}, .number = {6}},
    {OP_tril, .in = {"ab"}},
    {OP_tril, .in = {"cab"}, .number = {1}},
    {OP_triu, .in = {"ab"}},
    {OP_triu, .in = {"cab"}, .number = {-1}},
    {OP_rotary, .in = {"ab(2c)", "bc", "bc"}},
    {OP_rotary, .in = {"ab(2c)", "a1c", "a1c"}},
    {OP_rotary_pairs, .in = {"ab(2c)", "bc", "bc"}},
    REDUCE(OP_sum),
    REDUCE(OP_amax),
    REDUCE(OP_amax_abs),
    REDUCE(OP_amin),
    {OP_expand, .in = {""}, .dims = 3, .out = {"ab"}},
    {OP_expand, .in = {"b"}, .dims = 1, .out = {"ab"}},
    {OP_expand, .in = {"a"}, .dims = 2, .out = {"ab"}},
    {OP_expand, .in = {"a1"}, .dims = 2, .keepdim = true, .out = {"ab"}},
    {OP_expand, .in = {"11"}, .dims = 3, .keepdim = true, .out = {"ab"}},
    {OP_expand, .in = {"ac"}, .dims = 2, .out = {"abc"}},
    {OP_expand, .in = {"1b1"}, .dims = 5, .keepdim = true, .out = {"abc"}},
    {OP_full, .out = {"ab"}},
    {OP_full, .out = {""}},
    {OP_full, .out = {"1b"}},
    {OP_index, .dims = 1, .out = {"a"}, .type = I32},
    {OP_permute, .in = {"ab"}, .equation = "ab->ba"},
    {OP_permute, .in = {"abc"}, .equation = "abc->cab"},
    {OP_permute, .in = {"abcd"}, .equation = "bshd->bhsd"},
    {OP_view, .in = {"ab"}, .equation = "ab->(ab)", .out = {"(ab)"}},
    {OP_view, .in = {"(ab)c"}, .equation = "(ab)c->abc", .out = {"abc"}},
    {OP_view, .in = {"a(bc)"}, .equation = "a(bc)->abc", .out = {"abc"}},
    {OP_view, .in = {"(ab)c"}, .equation = "(ab)c->a(bc)", .out = {"a(bc)"}},
    {OP_view, .in = {"abc"}, .equation = "abc->(abc)", .out = {"(abc)"}},
    {OP_view, .in = {"(ab)(cd)"}, .equation = "(ab)(cd)->a(bc)d", .out = {"a(bc)d"}},
    {OP_view, .in = {"ab"}, .equation = "ab->a1b1", .out = {"a1b1"}},
    {OP_view, .in = {"1ab"}, .equation = "1ab->ab", .out = {"ab"}},
    {OP_view, .in = {"1"}, .equation = "1->", .out = {""}},
    {OP_cat, .in = {"ab", "ac"}, .dims = 2, .out = {"a[bc]"}},
    {OP_cat, .in = {"ab", "cb", "ab"}, .dims = 1, .out = {"[aca]b"}},
    {OP_scan_take, .in = {"abc"}, .dims = 1},
    {OP_scan_take, .in = {"3ab"}, .dims = 1},
    {OP_scan_put, .in = {"ab"}},
    {OP_scan_put, .in = {"abc"}},
    {OP_scan_stack, .in = {"ab", "ab"}, .dims = 1, .out = {"2ab"}},
    {OP_scan_stack, .in = {"ab", "ab", "ab"}, .dims = 1, .out = {"5ab"}},
    {OP_narrow, .in = {"a(2b)"}, .dims = 2, .number = {1}, .out = {"ab"}},
    {OP_narrow, .in = {"(3a)b"}, .dims = 1, .number = {1}, .out = {"(2a)b"}},
    {OP_pad, .in = {"ab"}, .dims = 2, .number = {1}, .out = {"a(3b)"}},
    {OP_pad, .in = {"abc"}, .dims = 2, .number = {1}, .out = {"a(3b)c"}},
    {OP_every, .in = {"a(2b)"}, .dims = 2, .number = {2}, .out = {"ab"}},
    {OP_every, .in = {"(3a)b"}, .dims = 1, .number = {3}, .out = {"ab"}},
    {OP_spread, .in = {"ab"}, .dims = 2, .number = {2}, .out = {"a(2b)"}},
    {OP_gather, .in = {"ab", "#cb"}, .dims = 1},
    {OP_index_within, .in = {"#ab"}, .number = {3, -1}},
    {OP_place, .in = {"a1", "#a1"}, .dims = 2, .keepdim = true, .out = {"ab"}},
    {OP_place, .in = {"ac", "#ac"}, .dims = 2, .out = {"abc"}},
    {OP_gather, .in = {"ab", "#ac"}, .dims = 2},
    {OP_gather, .in = {"abc", "#adc"}, .dims = 2},
    {OP_scatter_add, .in = {"cb", "#cb"}, .dims = 1, .out = {"ab"}},
    {OP_scatter_add, .in = {"acb", "#acb"}, .dims = 2, .out = {"adb"}},
    {OP_scatter, .in = {"ab", "#cb", "cb"}, .dims = 1},
    {OP_scatter, .in = {"ab", "#ac", "ac"}, .dims = 2},
    {OP_index_select, .in = {"ab", "#c"}, .dims = 1},
    {OP_index_select, .in = {"abc", "#d"}, .dims = 2},
    {OP_index_add, .in = {"cb", "#c"}, .dims = 1, .out = {"ab"}},
    {OP_index_add, .in = {"adc", "#d"}, .dims = 2, .out = {"abc"}},
    {OP_count_places, .in = {"#abc"}, .out = {"d"}},
    {OP_dispatch, .in = {"abd", "#abc", "abc", "#3"}},
    {OP_combine, .in = {"3abcd", "#abc", "abc", "#3"}},
    {OP_combine_back, .in = {"abd", "#abc", "3abcd", "#3"}},
    {OP_grouped_linear, .in = {"cab2d", "c3d", "#c"}},
    {OP_grouped_linear_back_input, .in = {"cab2d", "cd3", "#c"}},
    {OP_grouped_linear_back_weight, .in = {"cab2d", "cab23", "#c"}},
    {OP_embedding, .in = {"ab", "#c"}},
    {OP_embedding, .in = {"ab", "#cd"}},
    {OP_embedding, .in = {"ab", "#"}},
    {OP_embedding_back, .in = {"cb", "#c"}, .out = {"ab"}},
    {OP_embedding_back, .in = {"cdb", "#cd"}, .out = {"ab"}},
    {OP_cumsum, .in = {"ab"}, .dims = 1},
    {OP_cumsum, .in = {"ab"}, .dims = 2, .number = {1}},
    {OP_argsort, .in = {"ab"}, .dims = 1},
    {OP_argsort, .in = {"ab"}, .dims = 2, .number = {1}},
    {OP_argmax, .in = {"ab"}, .dims = 1},
    {OP_cummax, .in = {"ab"}, .dims = 1, .number = {0}},
    {OP_cummax, .in = {"ab"}, .dims = 2, .number = {1}},
    {OP_cummax, .in = {"cab"}, .dims = 2, .number = {0}},
    {OP_eigh, .in = {"a33"}},
    {OP_eigh, .in = {"ab22"}},
    {OP_svd, .in = {"a35"}, .out = {"a33", "a3", "a35"}},
    {OP_svd, .in = {"ab33"}, .out = {"ab33", "ab3", "ab33"}},
    {OP_svd, .in = {"a32"}, .out = {"a33", "a2", "a22"}},
    {OP_svd, .in = {"a23"}, .out = {"a22", "a2", "a33"}},
    {OP_documents, .in = {"#ab"}, .dims = 2},
    {OP_documents, .in = {"#cab"}, .dims = 2, .number = {1}},
    {OP_argmax, .in = {"abc"}, .dims = 2, .keepdim = true},
    {OP_attention, .in = {"a(bc)d2", "abe2", "abe3"}, .out = {"a(bc)d3", "a(bc)d"}},
    {OP_attention, .in = {"a(bc)d2", "abd2", "abd3"}, .out = {"a(bc)d3", "a(bc)d"}, .number = {1}},
    {OP_attention, .in = {"acd2", "a1e2", "a1e2"}, .out = {"acd2", "acd"}, .number = {1}},
    {OP_attention, .in = {"abd2", "abe2", "abe2"}, .out = {"abd2", "abd"}},
    {OP_merge, .in = {"abc", "ab1", "abc", "ab1"}},
    {OP_merge_logs, .in = {"ab", "ab"}},
    {OP_cached_attention, .in = {"abcd2", "abd2", "abd3", "3be2", "3be3", "#a", "#a"},
     .out = {"abcd3"}},
    {OP_cached_attention, .in = {"2b112", "2b12", "2b12", "2bc2", "2bc2", "#2", "#2"},
     .out = {"2b112"}, .number = {2}},
    {OP_cached_latent_attention, .in = {"abcd3", "abd3", "3be3", "#a", "#a"}, .out = {"abcd2"}},
    {OP_cached_latent_attention, .in = {"2b113", "2b13", "2bc3", "#2", "#2"}, .out = {"2b112"},
     .number = {2}},
    {OP_cached_attention_parts, .in = {"abcd2", "abd2", "abd3", "3ebd2", "3ebd3", "#a", "#a"},
     .out = {"eabcd3", "eabcd"}},
    {OP_cached_attention_parts, .in = {"2b112", "2b12", "2b12", "2cbd2", "2cbd2", "#2", "#2"},
     .out = {"c2b112", "c2b11"}, .number = {2}},
    {OP_recent, .in = {"a3b", "36b", "#a", "#a"}, .out = {"a5b"}},
    {OP_recent, .in = {"2cb", "39b", "#2", "#2"}, .out = {"29b"}},
    {OP_running_sum, .in = {"acb", "39b", "#a", "#a"}, .out = {"acb"}},
    {OP_running_max, .in = {"acb", "39b2", "#a", "#a"}, .out = {"acb", "acb"}},
    {OP_running_max, .in = {"acb", "39b2", "#a", "#a"}, .out = {"acb", "acb"}, .number = {1}},
    {OP_all_tokens, .in = {"a2b", "39b", "#a", "#a"}, .out = {"a9b"}},
    {OP_recall_state, .in = {"3bc", "bc", "#a", "#a"}, .out = {"abc"}},
    {OP_keep_state, .in = {"3bc", "abc", "abc", "#a"}, .out = {"a"}},
    {OP_attention_back, .in = {"a(bc)d3", "a(bc)d2", "abe2", "abe3", "a(bc)d3", "a(bc)d"},
     .out = {"a(bc)d2", "abe2", "abe3"}},
    {OP_attention_back, .in = {"a(bc)d2", "a(bc)d2", "abd2", "abd2", "a(bc)d2", "a(bc)d"},
     .out = {"a(bc)d2", "abd2", "abd2"}, .number = {1}},
    {OP_attention_back, .in = {"acd2", "acd2", "a1e2", "a1e2", "acd2", "acd"},
     .out = {"acd2", "a1e2", "a1e2"}},
    {OP_attention, .in = {"a(bc)d2", "abd2", "abd3"}, .out = {"a(bc)d3", "a(bc)d"},
     .number = {1, 2}, .softcap = 1.5},
    {OP_attention, .in = {"acd2", "a1d2", "a1d2"}, .out = {"acd2", "acd"}, .number = {0, 2}},
    {OP_attention, .in = {"a(bc)d2", "abe2", "abe3", "a(bc)de"}, .out = {"a(bc)d3", "a(bc)d"},
     .number = {0, 0, 1}, .equation = OF_ATTENTION("b(gr)qk")},
    {OP_attention, .in = {"a(bc)d2", "abd2", "abd3", "1(bc)dd"}, .out = {"a(bc)d3", "a(bc)d"},
     .number = {1, 0, 1}, .equation = OF_ATTENTION("1(gr)qk")},
    {OP_attention, .in = {"abd2", "abe2", "abe3", "a11e", "b"}, .out = {"abd3", "abd"},
     .number = {0, 0, 1, 0, 1}, .equation = OF_ATTENTION("b 1 1 k,(gr)")},
    {OP_attention, .in = {"a(bc)d2", "abd2", "abd3", "#ad", "#ad"}, .out = {"a(bc)d3", "a(bc)d"},
     .number = {1, 0, 0, 1}, .equation = OF_ATTENTION("bq,bk")},
    {OP_attention, .in = {"a(bc)d2", "abe2", "abe3", "#ad", "#ae", "(bc)"},
     .out = {"a(bc)d3", "a(bc)d"}, .number = {0, 3, 0, 1, 1}, .softcap = 2,
     .equation = OF_ATTENTION("bq,bk,(gr)")},
    {OP_attention, .in = {"a(bc)d2", "abd2", "abd3", "#d", "#d"}, .out = {"a(bc)d3", "a(bc)d"},
     .number = {0, 0, 0, 0, 0, 1, 3}, .equation = OF_ATTENTION("q,k")},
    {OP_attention, .in = {"abd2", "abe2", "abe2", "#d", "#e", "b"}, .out = {"abd2", "abd"},
     .number = {0, 0, 0, 0, 1, 2, 2}, .equation = OF_ATTENTION("q,k,(gr)")},
    {OP_attention_back, .in = {"a(bc)d3", "a(bc)d2", "abd2", "abd3", "a(bc)d3", "a(bc)d"},
     .out = {"a(bc)d2", "abd2", "abd3"}, .number = {1, 2}, .softcap = 1.5},
    {OP_attention_back,
     .in = {"a(bc)d3", "a(bc)d2", "abe2", "abe3", "a(bc)d3", "a(bc)d", "#d", "#e"},
     .out = {"a(bc)d2", "abe2", "abe3"}, .number = {0, 0, 0, 0, 1, 2},
     .equation = OF_ATTENTION_BACK("q,k")},
    {OP_attention_back, .in = {"acd2", "acd2", "a1d2", "a1d2", "acd2", "acd", "a1dd"},
     .out = {"acd2", "a1d2", "a1d2"}, .number = {0, 2, 1}, .equation = OF_ATTENTION_BACK("b 1 qk")},
    {OP_attention_back,
     .in = {"a(bc)d3", "a(bc)d2", "abe2", "abe3", "a(bc)d3", "a(bc)d", "#ad", "#ae"},
     .out = {"a(bc)d2", "abe2", "abe3"}, .number = {0, 0, 0, 1},
     .equation = OF_ATTENTION_BACK("bq,bk")},
    {OP_attention_back_bias,
     .in = {"a(bc)d3", "a(bc)d2", "abe2", "abe3", "a(bc)d3", "a(bc)d", "a(bc)de"}},
    {OP_attention_back_bias,
     .in = {"a(bc)d3", "a(bc)d2", "abd2", "abd3", "a(bc)d3", "a(bc)d", "1(bc)dd"}, .number = {1, 2},
     .softcap = 1.5, .equation = OF_ATTENTION_BACK_BIAS("1(gr)qk")},
    {OP_attention_back_bias, .in = {"abd3", "abd2", "abe2", "abe3", "abd3", "abd", "a11e"},
     .equation = OF_ATTENTION_BACK_BIAS("b 1 1 k")},
    {OP_linear_bf16, .in = {"abc", "%dc"}},
    {OP_linear_bf16_transposed, .in = {"abc", "%cd"}},
    {OP_linear_int8, .in = {"abc(48)", "~dc[9988]"}},
    {OP_linear_int8_transposed, .in = {"abc", "~cd[9988]"}},
    {OP_embedding_int8, .in = {"~cd[9988]", "#ab"}},
    {OP_from_int8, .in = {"~ab[9988]"}},
    {OP_from_nf4, .in = {"^ab[9987]", "[9999999999999999999999999999999]"}, .number = {700}},
    {OP_conv2d, .in = {"ab33", "cb22"}, .out = {"ac42"}, .number = {1, 1, 1, 0, 1, 1}},
    {OP_conv2d, .in = {"a(bc)33", "(bd)c22"}, .out = {"a(bd)42"}, .number = {1, 1, 1, 0, 1, 1}},
    {OP_conv2d, .in = {"ab57", "b122"}, .out = {"ab34"}, .number = {2, 2, 1, 1, 2, 2}},
    {OP_conv2d_back_input, .in = {"ac42", "cb22"}, .out = {"ab33"}, .number = {1, 1, 1, 0, 1, 1}},
    {OP_conv2d_back_input, .in = {"a(bd)42", "(bd)c22"}, .out = {"a(bc)33"},
     .number = {1, 1, 1, 0, 1, 1}},
    {OP_conv2d_back_weight, .in = {"ac42", "ab33"}, .out = {"cb22"}, .number = {1, 1, 1, 0, 1, 1}},
    {OP_conv2d_back_weight, .in = {"a(bd)42", "a(bc)33"}, .out = {"(bd)c22"},
     .number = {1, 1, 1, 0, 1, 1}},
    {OP_max_pool2d, .in = {"ab45"}, .out = {"ab24"}, .number = {3, 2, 2, 1, 1, 0}},
    {OP_max_pool2d_back, .in = {"ab24", "ab45", "ab24"}, .out = {"ab45"},
     .number = {3, 2, 2, 1, 1, 0}},
    {OP_custom, .in = {"ab"}, .custom = "unit_rows"},
    {OP_custom, .in = {"cab"}, .custom = "unit_rows"},
    {OP_custom, .in = {"ab", "b"}, .custom = "merged_rows"},
    {OP_custom, .in = {"ab"}, .custom = "times_row"},
};
enum { INSTANCES = sizeof instances / sizeof *instances, SIZES = 4 };

static int64_t size_of(char c, const int64_t *size)
{
  return c >= '0' && c <= '9' ? c - '0' : size[(c - 'a') % SIZES];
}

static struct shape shape_in_letters(const char *letters, const int64_t *size)
{
  struct shape s = {0};
  for (letters += strspn(letters, "?#%~^"); *letters; letters++) {
    int64_t *to = &s.size[s.ndim++];
    if (*letters == '(')
      for (*to = 1; *++letters != ')';) *to *= size_of(*letters, size);
    else if (*letters == '[')
      for (*to = 0; *++letters != ']';) *to += size_of(*letters, size);
    else
      *to = size_of(*letters, size);
  }
  return s;
}

static enum type type_in_letters(const char *letters)
{
  return *letters == '?'   ? BOOL
         : *letters == '#' ? I32
         : *letters == '%' ? BF16
         : *letters == '~' ? I8
         : *letters == '^' ? NF4
                           : F32;
}

/* "(ab)c->ab1c" becomes "(a4b6)(c8)->(a4)(b6)1(c8)". */
static const char *with_sizes(const char *equation, const int64_t *size)
{
  struct buffer b = {0};
  bool merged = false;
  for (const char *c = equation; *c; c++) {
    merged = (merged || *c == '(') && *c != ')';
    if (*c < 'a' || *c > 'z')
      put(&b, "%c", *c);
    else
      put(&b, merged ? "%c%" PRId64 : "(%c%" PRId64 ")", *c, size_of(*c, size));
  }
  return b.text;
}

/* The operation without its inputs. */
static struct op op_of_instance(const struct instance *instance, const int64_t *size)
{
  struct op op = {.kind = instance->kind,
                  .equation = instance->equation,
                  .dims = instance->dims,
                  .keepdim = instance->keepdim,
                  .scalar = instance->scalar != 0 ? instance->scalar : 0.75,
                  .softcap = instance->softcap,
                  .type = instance->type,
                  .module = NONE,
                  .line = 1};
  memcpy(op.number, instance->number, sizeof op.number);
  if (op.kind == OP_view) op.equation = with_sizes(op.equation, size);
  if (op.kind == OP_custom) op.custom = custom_of_name(instance->custom);
  if (op.kind == OP_rotary) {
    struct shape rotated = shape_in_letters(instance->in[0], size);
    op.number[0] = rotated.size[rotated.ndim - 1] / 2;
  }
  return op;
}

/* Adds it to the graph once it has its inputs; gives the first value that it makes. */
static int append_instance(const struct instance *instance, const int64_t *size, struct op op)
{
  struct shape out[MAX_OUTPUTS];
  int n = 0;
  for (; n < MAX_OUTPUTS && instance->out[n]; n++)
    out[n] = shape_in_letters(instance->out[n], size);
  return n ? append_op_outputs(op, out, n) : append_op(op);
}

static bool keeps_tokens(enum op_kind kind)
{
  return kind == OP_recent || kind == OP_running_sum || kind == OP_running_max ||
         kind == OP_all_tokens;
}

static bool keeps_state(enum op_kind kind)
{
  return kind == OP_recall_state || kind == OP_keep_state;
}

/* Which inputs are caches: from the first on, up to the end. */
static int first_cache(enum op_kind kind)
{
  if (kind == OP_cached_attention || kind == OP_cached_attention_parts) return 3;
  return kind == OP_cached_latent_attention ? 2 : keeps_tokens(kind) ? 1 : 0;
}

static int end_of_caches(enum op_kind kind)
{
  if (kind == OP_cached_attention || kind == OP_cached_attention_parts) return 5;
  return kind == OP_cached_latent_attention ? 3
         : keeps_tokens(kind)               ? 2
         : keeps_state(kind)                ? 1
                                            : 0;
}

static bool has_caches(const struct op *op)
{
  return end_of_caches(op->kind) > 0;
}

/* Adds the instance to the graph, on inputs of its own. */
__attribute__((unused)) static const struct op *instantiate(const struct instance *instance,
                                                            const int64_t *size)
{
  struct op op = op_of_instance(instance, size);
  for (; op.nin < MAX_INPUTS && instance->in[op.nin]; op.nin++) {
    const char *in = instance->in[op.nin];
    const bool is_cache = op.nin >= first_cache(op.kind) && op.nin < end_of_caches(op.kind);
    op.in[op.nin] =
        given(is_cache ? CACHE : BATCH, "x", shape_in_letters(in, size), (struct layout){0});
    graph->value[op.in[op.nin]].type = type_in_letters(in);
  }
  int out = append_instance(instance, size, op);
  return &graph->op[graph->value[out].op];
}

/* ----------------------------------------------------------------------------------- the inputs */

/* How many elements its indices may name; 0: it takes none. */
static int64_t index_bound(const struct op *op, int i)
{
  struct shape first = graph->value[op->in[0]].shape, made = graph->value[op->out].shape;
  switch (op->kind) {
  case OP_gather:
  case OP_index_select:
  case OP_scatter:
    return first.size[named_dim(op)];
  case OP_place:
  case OP_scatter_add:
  case OP_index_add:
    return made.size[named_dim(op)];
  case OP_count_places:
    return made.size[0];
  case OP_dispatch:
  case OP_combine:
  case OP_combine_back:
    return graph->value[op->in[3]].shape.size[0];
  case OP_embedding:
  case OP_embedding_int8:
    return first.size[0];
  case OP_embedding_back:
    return made.size[0];
  case OP_documents:
    return 3; /* tokens */
  case OP_attention:
  case OP_attention_back:
    return graph->value[op->in[i]].shape.ndim == 1 ? 9 : 2; /* places; numbers of documents */
  default:
    return 0;
  }
}

/* Numbers on which the operator is defined; of both signs, and equal ones, where it matters. */
static double suitable_number(const struct op *op, int i)
{
  double x = 3 * draw_number();
  switch (op->kind) {
  case OP_log:
  case OP_log1p:
  case OP_log1p_back:
  case OP_sqrt:
  case OP_rsqrt:
  case OP_lgamma:
  case OP_digamma:
    return 0.1 + fabs(x);
  case OP_digamma_back:
    return i == 1 ? 0.1 + fabs(x) : x;
  case OP_erfinv:
    return tanh(x);
  case OP_power:
    return op->scalar == 2 ? x : 0.1 + fabs(x);
  case OP_pow:
    return i == 0 ? 0.2 + fabs(x) / 2 : x;
  case OP_div:
    return i == 0 ? x : x < 0 ? x - 0.5 : x + 0.5;
  case OP_eq:
  case OP_ne:
  case OP_lt:
  case OP_le:
  case OP_gt:
  case OP_ge:
  case OP_argsort:
  case OP_argmax:
  case OP_cast:
  case OP_max_pool2d_back:
    return draw_below(6) ? draw_below(7) - 3 : x;
  default:
    return x;
  }
}

static double suitable(const struct op *op, int i)
{
  enum type type = graph->value[op->in[i]].type;
  int64_t bound = index_bound(op, i);
  if (type == BOOL) return draw_below(2);
  if (type == I32) return bound ? draw_below((int)bound) : draw_below(9) - 4;
  return suitable_number(op, i);
}

/* The i-th input of an operation, whole; `before` are those before it. */
static struct array suitable_input(const struct op *op, int i, const struct array *before)
{
  struct array x = zeros(graph->value[op->in[i]].shape);
  const enum type type = graph->value[op->in[i]].type;
  for (int64_t k = 0, n = elements(x.shape); k < n; k++) x.at[k] = suitable(op, i);
  /* Slots of their own, or none; and a place in the cache. */
  for (int64_t k = 0; keeps_state(op->kind) && type == I32 && k < x.shape.size[0]; k++) {
    const int64_t slots = graph->value[op->in[0]].shape.size[0];
    const bool is_start = op->kind == OP_recall_state && i == op->nin - 1;
    x.at[k] = is_start ? draw_below(3) : k < slots && draw_below(5) ? (double)k : -1;
  }
  const bool is_place = has_caches(op) && !keeps_state(op->kind) && i > op->nin - 3;
  for (int64_t k = 0; is_place && k < x.shape.size[0]; k++) {
    const struct shape cache = graph->value[op->in[first_cache(op->kind)]].shape;
    const int64_t context = op->nin == 4      ? 2 * cache.size[1]
                            : cache.ndim == 4 ? cache.size[2]
                                              : cache.size[1] * cache.size[3];
    x.at[k] = i == op->nin - 1                     ? draw_below((int)context)
              : k < cache.size[0] && draw_below(5) ? (double)k
                                                   : -1;
  }
  /* Blocks of weights: a scale between 1/128 and 1/32, and the numbers. */
  for (int64_t k = 0, n = elements(x.shape); type == I8 && k < n; k++)
    x.at[k] = k % blocks_of(I8).bytes == 1 ? 0x3c : draw_below(255) - 127;
  for (int64_t k = 0, n = elements(x.shape); type == NF4 && k < n; k++) x.at[k] = draw_below(256);
  if (op->kind == OP_from_nf4 && i == 1) x.at[1] = draw_below(256); /* the shift */
  /* Documents one behind the other, which have tiles of their own. */
  int64_t length = x.shape.ndim == 2 ? x.shape.size[1] : 0;
  if (is_attention(op) && graph->value[op->in[i]].type == I32 && length > 64)
    for (int64_t k = 0, n = elements(x.shape); k < n; k++)
      x.at[k] = (double)(k % length * 3 / length);
  /* What the operator before it made of its input. */
  if (op->kind == OP_max_pool2d_back && i == 2) {
    struct op pool = *op;
    pool.kind = OP_max_pool2d;
    run_max_pool2d(&pool, before + 1, &x, NULL);
  }
  return x;
}

__attribute__((unused)) static void suitable_inputs(const struct op *op, struct array *in)
{
  for (int i = 0; i < op->nin; i++) in[i] = suitable_input(op, i, in);
}

#endif
