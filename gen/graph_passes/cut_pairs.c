/* cut_pairs.c: a part of the pass cut_time: values with an element for each pair of tokens, as the
   scores of an attention that a model writes as products and a softmax. One of their dimensions has
   the queries, a call's own tokens; another one the keys, all tokens of the context, which are read
   from caches (all_tokens).

   No later token may count. So such a value has bounds of its elements whose key is later than
   their query: a mask makes them very low, their exponential is zero then, and a sum of zeros is
   zero. It also has bounds of those of each token with itself: if these are plain numbers, the
   greatest of a row is no masked one. Numbers that a model computes are taken to be within 1e29,
   masked ones to be below -1e30. */
#include "graph_passes/graph_passes.h"

#include <math.h>

static const double greatest = 1e29, low = -1e30;

enum { MOST_MAKERS = 12 }; /* of a score: sums, masks, softmax */

static const struct bounds unknown_bounds = {0, 0, false}, plain_number = {-1e29, 1e29, true};

static bool is_plain(struct bounds b)
{
  return b.known && b.low >= 9 * low / 10 && b.high <= -9 * low / 10;
}

static bool is_zero(struct bounds b)
{
  return b.known && b.low == 0 && b.high == 0;
}

static struct bounds bounded(double least, double most)
{
  if (isnan(least) || isnan(most)) return unknown_bounds;
  return (struct bounds){least, most, true};
}

int dimension_having(const struct letters *l, int input, int letter)
{
  for (int d = 0; d < l->ndim_in[input]; d++)
    for (int i = 0; i < l->in[input][d].n; i++)
      if (l->in[input][d].letter[i] == letter) return d;
  return NONE;
}

bool takes_all_keys(const struct cutting *c, const struct letters *l, struct token_letter t,
                    int input, int value)
{
  const struct token_axis a = c->along[value];
  return t.key != NONE && a.dim != NONE && c->keys[value] == NONE &&
         l->in[input][a.dim].letter[0] == t.key;
}

static bool is_true(struct bounds b)
{
  return b.known && (b.low > 0 || b.high < 0);
}

static struct bounds truth(bool holds, bool fails)
{
  return (struct bounds){holds, !fails, true};
}

static struct bounds of_either(struct bounds a, struct bounds b)
{
  if (!a.known || !b.known) return unknown_bounds;
  return bounded(fmin(a.low, b.low), fmax(a.high, b.high));
}

/* Bounds of what an operation makes, from those of its inputs. */
static struct bounds bounds_of_result(const struct op *op, const struct bounds *in)
{
  const struct bounds a = in[0], b = op->nin > 1 ? in[1] : unknown_bounds;
  bool plain = true, known = true;
  for (int i = 0; i < op->nin; i++) plain &= is_plain(in[i]), known &= in[i].known;
  switch (op->kind) {
  case OP_view:
  case OP_permute:
  case OP_expand:
  case OP_narrow:
  case OP_cat:
  case OP_redistribute:
    return op->kind == OP_expand && op->scalar != 1 && !is_zero(a) ? unknown_bounds : a;
  case OP_cast:
    return is_floating(op->type) ? a : unknown_bounds;
  case OP_where:
    if (is_true(a)) return b;
    return is_zero(a) ? in[2] : of_either(b, in[2]);
  case OP_logical_not:
    return truth(is_zero(a), is_true(a));
  case OP_logical_and:
    return truth(is_true(a) && is_true(b), is_zero(a) || is_zero(b));
  case OP_logical_or:
    return truth(is_true(a) || is_true(b), is_zero(a) && is_zero(b));
  case OP_exp:
    return a.known ? bounded(exp(a.low), fmin(exp(a.high), greatest)) : unknown_bounds;
  case OP_mul:
    if (is_zero(a) || is_zero(b)) return is_zero(a) ? a : b;
    break;
  case OP_div:
    if (is_zero(a)) return a;
    break;
  case OP_sum:
  case OP_scale:
    if (is_zero(a)) return a;
    if (op->kind == OP_scale && known && !plain)
      return bounded(fmin(op->scalar * a.low, op->scalar * a.high),
                     fmax(op->scalar * a.low, op->scalar * a.high));
    break;
  case OP_add:
    if (known && !plain) return bounded(a.low + b.low, a.high + b.high);
    break;
  case OP_sub:
    if (known && !plain) return bounded(a.low - b.high, a.high - b.low);
    break;
  case OP_maximum:
    if (known) return bounded(fmax(a.low, b.low), fmax(a.high, b.high));
    break;
  case OP_minimum:
    if (known) return bounded(fmin(a.low, b.low), fmin(a.high, b.high));
    break;
  case OP_matmul:
    for (int i = 0; i < op->nin; i++)
      if (is_zero(in[i])) return in[i];
    break;
  case OP_gather:
  case OP_index_select: /* some of the first one's elements */
    return is_plain(a) ? plain_number : unknown_bounds;
  default:
    break;
  }
  return plain ? plain_number : unknown_bounds;
}

/* Of a value that depends on no key's token: a constant, or one of the queries. It has dimensions
   of the queries and of the keys, or NONE. Weights are plain, and what tokens make is, unless it
   was made for keys within so many operations. */
static struct bounds bounds_without_keys(struct cutting *c, int value, int query, int key, bool own,
                                         int depth)
{
  const int maker = graph->value[value].op;
  const int along = c->along[value].dim;
  if (maker == NONE || (along != NONE && (key == NONE || key == along))) return plain_number;
  if (!depth) return unknown_bounds;
  const struct bounds followed =
      along != NONE ? unknown_bounds : bounds_of_pairs(c, value, query, key, own);
  const struct op *op = &graph->op[maker];
  if (followed.known || op->nout != 1 || !op->nin || !*rule_of(op)) return followed;
  struct letters l;
  op_letters(op, &l);
  struct token_letter t = {NONE, 1, NONE};
  if (query != NONE && l.out[0][query].n == 1) t.letter = l.out[0][query].letter[0];
  if (key != NONE && l.out[0][key].n == 1) t.key = l.out[0][key].letter[0];
  if ((query != NONE && t.letter == NONE) || (key != NONE && t.key == NONE)) return unknown_bounds;
  struct bounds in[MAX_INPUTS];
  for (int i = 0; i < op->nin; i++)
    in[i] = bounds_without_keys(c, op->in[i], dimension_having(&l, i, t.letter),
                                dimension_having(&l, i, t.key), own, depth - 1);
  return bounds_of_result(op, in);
}

static struct bounds bounds_of_input(struct cutting *c, const struct op *op,
                                     const struct letters *l, struct token_letter t, int i,
                                     bool own)
{
  const int v = op->in[i];
  if (c->keys[v] != NONE) return own ? c->own[v] : c->ahead[v];
  return bounds_without_keys(c, v, dimension_having(l, i, t.letter), dimension_having(l, i, t.key),
                             own, MOST_MAKERS);
}

/* Whether an operation over the keys of an input is the same without those that come later. */
static bool counts_no_later(const struct op *op, int i, struct bounds ahead, struct bounds own)
{
  const bool is_low = ahead.known && ahead.high <= low && is_plain(own);
  switch (op->kind) {
  case OP_amax:
  case OP_argmax:
    return is_low;
  case OP_gather: { /* the greatest one */
    const int index = graph->value[op->in[1]].op;
    return i == 0 && is_low && index != NONE && graph->op[index].kind == OP_argmax &&
           graph->op[index].in[0] == op->in[0] && graph->op[index].dims == op->dims;
  }
  case OP_sum:
  case OP_matmul:
    return is_zero(ahead);
  default:
    return false;
  }
}

/* Whether an operation leaves each key at its place: no other may make values of pairs. */
static bool keeps_keys(const struct op *op)
{
  switch (op->kind) {
  case OP_view:
  case OP_permute:
  case OP_expand:
  case OP_matmul:
  case OP_sum:
  case OP_amax:
  case OP_amin:
    return true;
  default:
    return is_broadcast(op->kind);
  }
}

/* Whether truths about the tokens themselves made a value of pairs: a mask of padding, say. */
static bool is_masked_by_tokens(const struct cutting *c, int value, int depth)
{
  const int maker = graph->value[value].op;
  const bool of_tokens = c->keys[value] != NONE || c->along[value].dim != NONE;
  if (!of_tokens || maker == NONE || depth == 0) return false;
  if (graph->value[value].type == BOOL) return true;
  const struct op *op = &graph->op[maker];
  if (c->keys[value] == NONE && op->kind == OP_matmul) return false; /* of queries, or keys */
  for (int i = 0; i < op->nin; i++)
    if (is_masked_by_tokens(c, op->in[i], depth - 1)) return true;
  return false;
}

/* Follows views back to their value. */
static int viewed(int value)
{
  while (graph->value[value].op != NONE) {
    const struct op *op = &graph->op[graph->value[value].op];
    if (op->kind != OP_view && op->kind != OP_permute) break;
    value = op->in[0];
  }
  return value;
}

/* Of a comparison of one number of each token with that of every other one, as those of their
   documents: what it says of a token and itself. */
static struct bounds bounds_with_itself(const struct cutting *c, const struct op *op,
                                        struct bounds others)
{
  const bool same = op->nin == 2 && viewed(op->in[0]) == viewed(op->in[1]) &&
                    elements(graph->value[viewed(op->in[0])].shape) == c->length;
  if (!same) return others;
  switch (op->kind) {
  case OP_eq:
  case OP_le:
  case OP_ge:
    return truth(true, false);
  case OP_ne:
  case OP_lt:
  case OP_gt:
    return truth(false, true);
  default:
    return others;
  }
}

const char *find_pairs(struct cutting *c, const struct op *op, const struct letters *l,
                       struct token_letter t)
{
  if (op->nout != 1) return "has several results for each pair of tokens, which is not known";
  struct bounds ahead[MAX_INPUTS], own[MAX_INPUTS];
  for (int i = 0; i < op->nin; i++) {
    ahead[i] = bounds_of_input(c, op, l, t, i, false);
    own[i] = bounds_of_input(c, op, l, t, i, true);
  }
  int dim = NONE;
  const int first = c->keys[op->in[0]];
  if (op->kind == OP_narrow && first != NONE && op->dims == 1u << first) {
    if (number_of(op, "start") || graph->value[op->out].shape.size[first] < c->length)
      return "takes some of the keys, which need not be those before the token";
    dim = first;
  } else if (op->kind == OP_cat && op->dims == (first == NONE ? 0 : 1u << first)) {
    for (int i = 1; i < op->nin; i++)
      if (c->keys[op->in[i]] != NONE || takes_all_keys(c, l, t, i, op->in[i]))
        return "puts keys behind keys";
    dim = first;
  }
  const bool is_at_place = dim != NONE || keeps_keys(op);
  for (int d = 0; d < l->ndim_out[0] && dim == NONE; d++)
    for (int k = 0; k < l->out[0][d].n; k++)
      if (l->out[0][d].letter[k] == t.key) {
        if (l->out[0][d].n > 1) return "merges the keys with another dimension";
        dim = d;
      }
  if (dim == NONE) {
    bool hidden = false;
    for (int i = 0; i < op->nin; i++)
      hidden |= c->keys[op->in[i]] != NONE && counts_no_later(op, i, ahead[i], own[i]);
    if (hidden) return NULL;
    for (int i = 0; i < op->nin; i++)
      if (is_masked_by_tokens(c, op->in[i], MOST_MAKERS))
        return "has a mask that depends on the tokens: only one by positions shows that later ones "
               "are hidden, and a prompt is not filled up, so it needs none of padding";
    return "sees later tokens: no mask that depends on positions hides them";
  }
  if (!is_at_place) return "puts keys in other places: a key may be a later token's then";
  c->keys[op->out] = dim;
  c->ahead[op->out] = bounds_of_result(op, ahead);
  c->own[op->out] = bounds_with_itself(c, op, bounds_of_result(op, own));
  return NULL;
}
