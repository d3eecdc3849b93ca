/* instances.h: for every row of the table of operators that has a rule, operations of that kind. */
#ifndef INSTANCES_H
#define INSTANCES_H

#include "interpreter.h"

/* Shapes in letters, each of which a case gives a size; 1 is 1. */
struct instance {
  enum op_kind kind;
  const char *in[MAX_INPUTS];
  const char *equation; /* matmul */
  unsigned dims;        /* reduce, expand */
  bool keep;
  const char *out; /* expand, full */
};

#define UNARY(kind)                                                                                \
  {kind, {"ab"}, NULL, 0, false, NULL}, {kind, {"abc"}, NULL, 0, false, NULL},                     \
      {kind, {""}, NULL, 0, false, NULL},                                                          \
  {                                                                                                \
    kind, {"1b"}, NULL, 0, false, NULL                                                             \
  }
#define BINARY(kind)                                                                               \
  {kind, {"ab", "ab"}, NULL, 0, false, NULL}, {kind, {"ab", "b"}, NULL, 0, false, NULL},           \
      {kind, {"b", "ab"}, NULL, 0, false, NULL}, {kind, {"a1", "1b"}, NULL, 0, false, NULL},       \
      {kind, {"", "ab"}, NULL, 0, false, NULL}, {kind, {"abc", "1c"}, NULL, 0, false, NULL},       \
      {kind, {"ab", ""}, NULL, 0, false, NULL},                                                    \
  {                                                                                                \
    kind, {"b1", "abc"}, NULL, 0, false, NULL                                                      \
  }

static const struct instance instances[] = {
    {OP_matmul, {"ab", "bc"}, "mk,kn->mn", 0, false, NULL},
    {OP_matmul, {"ab", "cb"}, "mk,nk->mn", 0, false, NULL},
    {OP_matmul, {"ba", "bc"}, "km,kn->mn", 0, false, NULL},
    {OP_matmul, {"ab", "bc"}, "mk,kn->nm", 0, false, NULL},
    {OP_matmul, {"abc", "dc"}, "abk,nk->abn", 0, false, NULL},
    {OP_matmul, {"dab", "dbc"}, "bmk,bkn->bmn", 0, false, NULL},
    {OP_matmul, {"abc", "abd"}, "abn,abk->nk", 0, false, NULL},
    {OP_matmul, {"ab", "b"}, "mk,k->m", 0, false, NULL},
    BINARY(OP_add),
    BINARY(OP_sub),
    BINARY(OP_mul),
    BINARY(OP_div),
    UNARY(OP_neg),
    UNARY(OP_scale),
    UNARY(OP_relu),
    BINARY(OP_relu_back),
    UNARY(OP_sigmoid),
    BINARY(OP_sigmoid_back),
    UNARY(OP_tanh),
    BINARY(OP_tanh_back),
    UNARY(OP_silu),
    BINARY(OP_silu_back),
    UNARY(OP_exp),
    UNARY(OP_square),
    {OP_expand, {""}, NULL, 3, false, "ab"},
    {OP_expand, {"b"}, NULL, 1, false, "ab"},
    {OP_expand, {"a"}, NULL, 2, false, "ab"},
    {OP_expand, {"a1"}, NULL, 2, true, "ab"},
    {OP_expand, {"11"}, NULL, 3, true, "ab"},
    {OP_expand, {"ac"}, NULL, 2, false, "abc"},
    {OP_expand, {"1b1"}, NULL, 5, true, "abc"},
    {OP_sum, {"ab"}, NULL, 1, false, NULL},
    {OP_sum, {"ab"}, NULL, 2, false, NULL},
    {OP_sum, {"ab"}, NULL, 3, false, NULL},
    {OP_sum, {"ab"}, NULL, 2, true, NULL},
    {OP_sum, {"abc"}, NULL, 5, false, NULL},
    {OP_sum, {"abc"}, NULL, 2, true, NULL},
    {OP_sum, {"1b"}, NULL, 1, false, NULL},
    {OP_variance, {"ab", ""}, NULL, 3, false, NULL},
    {OP_variance, {"ab", "a1"}, NULL, 2, true, NULL},
    {OP_variance, {"ab", "1b"}, NULL, 1, true, NULL},
    {OP_variance, {"abc", "1b1"}, NULL, 5, true, NULL},
    {OP_variance_back, {"", "ab", ""}, NULL, 0, false, NULL},
    {OP_variance_back, {"a1", "ab", "a1"}, NULL, 0, false, NULL},
    {OP_variance_back, {"1b1", "abc", "1b1"}, NULL, 0, false, NULL},
    {OP_full, {NULL}, NULL, 0, false, "ab"},
    {OP_full, {NULL}, NULL, 0, false, ""},
    {OP_full, {NULL}, NULL, 0, false, "1b"},
};

static struct shape shape_in_letters(const char *letters, const int64_t *size)
{
  struct shape s = {0};
  for (; *letters; letters++) s.size[s.ndim++] = *letters == '1' ? 1 : size[*letters - 'a'];
  return s;
}

/* Adds the instance to the graph. */
__attribute__((unused)) static const struct op *instantiate(const struct instance *instance,
                                                            const int64_t *size)
{
  struct op op = {.kind = instance->kind,
                  .equation = instance->equation,
                  .dims = instance->dims,
                  .keep = instance->keep,
                  .scalar = 0.75,
                  .module = NONE,
                  .line = 1};
  for (; op.nin < MAX_INPUTS && instance->in[op.nin]; op.nin++)
    op.in[op.nin] =
        given(BATCH, "x", shape_in_letters(instance->in[op.nin], size), (struct layout){0});
  int out =
      instance->out ? append_op_shaped(op, shape_in_letters(instance->out, size)) : append_op(op);
  return &graph->op[graph->value[out].op];
}

#endif
