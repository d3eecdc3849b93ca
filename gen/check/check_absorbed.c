/* check_absorbed.c: a part of check.c: attention over a latent, after the pass `absorb`.

   Takes   attention whose values are the first features of its keys.
   Holds   It has one head of keys. Its queries are products of some features of the model's queries
           with a weight of each head, and the other features as they are: each once, beside the
           feature of the key that it meets. Its result goes to one product only, with a weight of
           each head that has a row for each value's feature and column for each of the latent's.
           Both weights are parts of parameters: so the products are linear in the latent. */
#include "check/check.h"

#include <string.h>

static const struct op *maker_of(int value)
{
  return graph->value[value].op == NONE ? NULL : &graph->op[graph->value[value].op];
}

static bool is_made_by(int value, enum op_kind kind)
{
  const struct op *op = maker_of(value);
  return op && op->kind == kind;
}

/* Whether it is a parameter, or a part of one. */
static bool is_part_of_parameter(int value)
{
  while (is_made_by(value, OP_narrow) || is_made_by(value, OP_view)) value = maker_of(value)->in[0];
  return graph->value[value].role == PARAMETER;
}

static bool has_latent(const struct op *op)
{
  const struct op *narrow = op->kind == OP_attention ? maker_of(op->in[2]) : NULL;
  return narrow && narrow->kind == OP_narrow && narrow->in[0] == op->in[1] && narrow->dims == 8;
}

static int64_t features(int value)
{
  return graph->value[value].shape.size[3];
}

/* The inputs of a concatenation, or the value itself: number i, and how many there are. */
static int nth_part(int value, int i, int *n)
{
  const struct op *op = is_made_by(value, OP_cat) ? maker_of(value) : NULL;
  *n = op ? op->nin : 1;
  return op ? op->in[i] : value;
}

static int first_feature(int value, int *of)
{
  const struct op *op = is_made_by(value, OP_narrow) ? maker_of(value) : NULL;
  *of = op && op->dims == 8 ? op->in[0] : value;
  return op && op->dims == 8 ? (int)number_of(op, "start") : 0;
}

static void check_queries(int id, int64_t rank)
{
  const struct op *op = &graph->op[id];
  int n, nkeys, model = NONE;
  int64_t seen = 0, sum = 0;
  nth_part(op->in[0], 0, &n);
  nth_part(op->in[1], 0, &nkeys);
  /* Without a shared part, the latent itself may be a concatenation. */
  require(n == nkeys || (n == 1 && features(op->in[1]) == rank), id,
          "its queries have other parts than its keys");
  for (int i = 0; i < n; i++) {
    int of, own = nth_part(op->in[0], i, &n);
    if (i == 0) {
      require(is_made_by(own, OP_matmul) && features(own) == rank, id,
              "the queries that meet the latent are no products");
      const struct op *product = maker_of(own);
      require(!strcmp(rule_of(product), "bhtd,hdr->bhtr") && is_part_of_parameter(product->in[1]),
              id, "the queries' product is another one");
      own = product->in[0];
    } else {
      require(features(own) == features(nth_part(op->in[1], i, &nkeys)), id,
              "its queries have other parts than its keys");
    }
    if (n == 1) return; /* all features of the queries meet the latent */
    const int first = first_feature(own, &of);
    require(model == NONE || model == of, id, "its queries are of two values");
    model = of;
    sum += features(own);
    for (int64_t k = first; k < first + features(own) && k < 64; k++) {
      require(!(seen >> k & 1), id, "it has a feature of the queries twice");
      seen |= (int64_t)1 << k;
    }
  }
  require(sum == features(model), id, "it lacks features of the queries");
}

static void check_result(int id, int64_t rank)
{
  const struct op *op = &graph->op[id];
  for (int at = 0; at < graph->norder; at++) {
    const struct op *reader = &graph->op[graph->order[at]];
    for (int i = 0; i < reader->nin; i++) {
      if (reader->in[i] != op->out) continue;
      require(i == 0 && reader->kind == OP_matmul && !strcmp(rule_of(reader), "bhtr,her->bhte") &&
                  graph->value[reader->in[1]].shape.size[2] == rank &&
                  is_part_of_parameter(reader->in[1]),
              graph->order[at], "it reads sums of the latent, and is not their product");
    }
  }
}

void check_absorbed(void)
{
  if (plan_options->generate.caches != SMALL_CACHES) return;
  for (int at = 0; at < graph->norder; at++) {
    const int id = graph->order[at];
    const struct op *op = &graph->op[id];
    if (!has_latent(op)) continue;
    const int64_t rank = features(op->in[2]);
    /* A model's own attention may be so, without products. */
    int n, first = nth_part(op->in[0], 0, &n);
    if (!is_made_by(first, OP_matmul) || strcmp(rule_of(maker_of(first)), "bhtd,hdr->bhtr"))
      continue;
    require(!number_of(maker_of(op->in[2]), "start") && graph->value[op->in[1]].shape.size[1] == 1,
            id, "its values are not the first features of keys that all heads share");
    check_queries(id, rank);
    check_result(id, rank);
  }
}
