/* cut_pairs.c: a part of the pass cut_time: values with an element for each pair of tokens, as
   scores of an attention that a model writes as products and a softmax. One of their dimensions has
   the queries, which are a call's own tokens; another one all keys: the whole context. What comes
   from the keys alone is gathered over all calls: all_tokens.

   No later token may count. Each such value has bounds of its elements whose key is later than
   their query: a mask makes them very low, and then their exponential is zero, and no sum has
   them. And it has bounds of those of a token with itself: these must be plain numbers, so that the
   greatest of a row is none of the low ones. Numbers that a model computes are taken to be less
   than 1e29; a mask's are below -1e30. */
#include "graph_passes/graph_passes.h"

#include <math.h>

static const double greatest = 1e29, low = -1e30;

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

bool takes_all_keys(const struct cutting *c, const struct letters *l, struct token_letter t, int input,
                 int value)
{
  const struct token_axis a = c->along[value];
  return t.key != NONE && a.dim != NONE && c->keys[value] == NONE &&
         l->in[input][a.dim].letter[0] == t.key;
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
    if (a.known && (a.low > 0 || a.high < 0)) return b;
    return is_zero(a) ? in[2] : of_either(b, in[2]);
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
  default:
    break;
  }
  return plain ? plain_number : unknown_bounds;
}

static struct bounds bounds_of_input(struct cutting *c, const struct op *op,
                                     const struct letters *l, struct token_letter t, int i,
                                     bool own)
{
  const int v = op->in[i];
  if (c->keys[v] != NONE) return own ? c->own[v] : c->ahead[v];
  if (c->along[v].dim != NONE) return plain_number;
  if (graph->value[v].op == NONE) return plain_number; /* a weight */
  struct bounds b =
      bounds_of_pairs(c, v, dimension_having(l, i, t.letter), dimension_having(l, i, t.key), own);
  /* Of a number that cannot be followed: that which it is ahead is no reason to see it. */
  return b.known || own ? b : plain_number;
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
    return hidden ? NULL : "sees later tokens: no mask that depends on positions hides them";
  }
  c->keys[op->out] = dim;
  c->ahead[op->out] = bounds_of_result(op, ahead);
  c->own[op->out] = bounds_of_result(op, own);
  return NULL;
}

/* ------------------------------------------------------------------------------------- an entry */

/* The rule with the letter in front of an operand: of matmul. */
static const char *with_letter(const char *rule, int operand, char letter)
{
  const char *c = rule;
  for (int i = 0; i < operand; i++)
    while (*c && *c++ != ',') continue;
  return text("%.*s%c%s", (int)(c - rule), rule, letter, c);
}

/* The keys of a value, all of the context, for an operation of which it is input i. Slots, which
   are the queries of decode, have keys of their own. */
int gathered_in_entry(struct cutting *c, struct entry *e, struct op *own, const struct op *op,
                      const struct letters *l, struct token_letter t, int i)
{
  const int v = op->in[i], dim = c->along[v].dim;
  const struct shape whole = graph->value[v].shape;
  const int made = tokens_of_call(c, e, op, v, OF_ALL);
  if (e->gathered[v] == NONE) {
    const int x = rows_in_entry(e, op, made, dim);
    struct shape shape = graph->value[x].shape;
    shape.size[1] = c->length;
    if (c->kept[v] == NONE) {
      const bool is_short = number_of(&graph->op[c->text], "bfloat16");
      struct shape cache = shape;
      cache.size[0] = plan_options->generate.slots;
      c->kept[v] = add_state_cache(op, "tokens", cache, is_short ? BF16 : F32, c);
    }
    const struct op all = {
        .kind = OP_all_tokens, .nin = 4, .in = {x, c->kept[v], e->slot, e->start}};
    e->gathered[v] = append_op_shaped(op_in_entry(e, op, all), shape);
  }
  const int rows = e->gathered[v];
  const int64_t slots = graph->value[rows].shape.size[0];
  if (slots == 1) {
    const int y = from_rows_in_entry(e, op, rows, whole, dim);
    return cast_in_entry(e, op, y, v);
  }
  /* From [slots, context, the others] to the slots in front, for a product, or in the place of the
     queries, of which there is one. */
  const bool is_product = op->kind == OP_matmul;
  int query = 0;
  while (l->out[0][query].n != 1 || l->out[0][query].letter[0] != t.letter) query++;
  query -= graph->value[op->out].shape.ndim - whole.ndim;
  if (is_product ? whole.ndim == MAX_DIMS : query < 0 || whole.size[query] != 1)
    plan_error(op->line,
               "generate: %s combines tokens with keys in a way that only one slot can: slots = 1",
               printable(op_name(op)));
  struct shape from = {.ndim = 2, .size = {slots, c->length}};
  struct buffer order = {0}, rule = {0};
  put(&order, "%s", is_product ? "a" : "");
  for (int d = 0; d < whole.ndim; d++) {
    const bool of_query = !is_product && d == query;
    put(&order, "%c", d == dim ? 'b' : of_query ? 'a' : 'a' + from.ndim);
    if (d != dim && !of_query) from.size[from.ndim++] = whole.size[d];
  }
  for (int d = 0; d < from.ndim; d++) put(&rule, "%c", 'a' + d);
  put(&rule, "->%s", order.text);
  if (is_product) own->equation = with_letter(own->equation, i, l->name[t.letter]);
  return cast_in_entry(e, op, permuted_in_entry(e, op, view_in_entry(e, op, rows, from), rule.text),
                       v);
}
