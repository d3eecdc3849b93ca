/* smaller_caches.c: a part of the pass cut_time: which value of a chain is kept for later calls.
   Attention reads keys and values of all tokens. Each token's own follow from what comes before
   them in the model, as the compressed latent of DeepSeek's attention, or the input of a layer of
   many heads. So a program may keep that, and make the keys and values of all tokens again at each
   call. That takes arithmetic; which values take the fewest bytes is a minimum cut.

   Of equally small ways, the one that makes the least again. */
#include "graph_passes/graph_passes.h"

#include <inttypes.h>

/* Whether a value has an element, or a row, for each token, at its place. */
static bool is_settled(const struct cutting *c, int value)
{
  const struct token_axis a = c->along[value];
  return a.dim != NONE && a.inner == 1 && !a.lead && a.size == c->length && a.end >= c->length &&
         c->keys[value] == NONE && !c->of_step[value];
}

/* Whether it can be made for the tokens of all calls together as for those of one. */
static bool can_be_made_again(const struct cutting *c, int value)
{
  const int id = graph->value[value].op;
  if (id == NONE || id == c->text || !is_settled(c, value)) return false;
  const struct op *op = &graph->op[id];
  if (op->nout != 1 || c->scan_of[id] != NONE || op->kind == OP_attention ||
      op->kind == OP_scan_stack || is_token_margin(c, op) || is_over_tokens(c, op) ||
      counted_operand(op) != NONE || op_row[op->kind].updates || !*rule_of(op))
    return false;
  struct letters l;
  op_letters(op, &l);
  const struct token_letter t = letter_of_tokens(c, op, &l);
  if (t.letter == NONE || t.key != NONE || t.inner != 1) return false;
  for (int i = 0; i < op->nin; i++) {
    const int v = op->in[i], d = dimension_having(&l, i, t.letter);
    if (c->along[v].dim != NONE ? !is_settled(c, v) : c->keys[v] != NONE) return false;
    if (d != NONE && l.in[i][d].n != 1) return false;
  }
  return l.out[0][c->along[value].dim].n == 1;
}

static int64_t numbers_of_token(const struct cutting *c, int value)
{
  return elements(graph->value[value].shape) / c->length;
}

/* The values of an operation that are read of all calls' tokens. */
static struct list read_of_all(const struct cutting *c, int i)
{
  struct list values = {0};
  const struct op *op = &graph->op[i];
  if (!c->live[i] || c->scan_of[i] != NONE || !op->nin) return values;
  if (op->kind == OP_attention) {
    if (c->along[op->in[1]].dim == NONE) return values;
    add(&values, op->in[1]);
    if (op->in[2] != op->in[1] && !has_values_in_keys(op)) add(&values, op->in[2]);
    return values;
  }
  bool any = false;
  for (int k = 0; k < op->nin; k++) any |= c->along[op->in[k]].dim != NONE;
  if (!any || !*rule_of(op) || is_token_margin(c, op) || is_over_tokens(c, op)) return values;
  struct letters l;
  op_letters(op, &l);
  const struct token_letter t = letter_of_tokens(c, op, &l);
  for (int k = 0; k < op->nin; k++)
    if (takes_all_keys(c, &l, t, k, op->in[k])) add(&values, op->in[k]);
  return values;
}

/* What is kept in place of these values, all that is made again from it, and what that takes. */
struct instead {
  bool *seen;
  struct list kept;
  int64_t numbers, in_place_of;
  double flops; /* of a token */
};

static void follow(const struct cutting *c, struct instead *n, int value)
{
  if (n->seen[value]) return;
  n->seen[value] = true;
  if (!c->again[value]) {
    add(&n->kept, value);
    n->numbers += numbers_of_token(c, value);
    return;
  }
  const struct op *op = &graph->op[graph->value[value].op];
  n->flops += flops_of(op) / (double)c->length;
  for (int k = 0; k < op->nin; k++)
    if (c->along[op->in[k]].dim != NONE) follow(c, n, op->in[k]);
}

static const char *names_of(const struct list *values)
{
  struct buffer b = {0};
  for (int k = 0; k < values->n; k++)
    put(&b, "%s%s", !k ? "" : k == values->n - 1 ? " and " : ", ", kept_value_name(values->at[k]));
  return b.text;
}

static const char *instead_text(const struct cutting *c, const struct op *reader,
                                const struct list *read, bool *smaller)
{
  const int64_t absorbed = absorbable_numbers(reader);
  struct instead n = {.seen = alloc((size_t)c->known * sizeof *n.seen)};
  *smaller = false;
  for (int k = 0; k < read->n; k++) {
    n.in_place_of += numbers_of_token(c, read->at[k]);
    *smaller |= c->again[read->at[k]];
    follow(c, &n, read->at[k]);
  }
  if (absorbed)
    return text("; what they are made of, with their projections absorbed, would be %" PRId64
                " numbers a token, not %" PRId64,
                absorbed, n.in_place_of);
  if (!*smaller) return "";
  if (plan_options->generate.caches == SMALL_CACHES)
    return text("; its input is made again at each call from %s: %" PRId64 " numbers a token, not "
                "%" PRId64 ", for %.0f operations for each token of the context",
                names_of(&n.kept), n.numbers, n.in_place_of, n.flops);
  return text("; made again at each call from %s they would be %" PRId64 " numbers a token, not "
              "%" PRId64 ", and take %.0f operations for each token of the context",
              names_of(&n.kept), n.numbers, n.in_place_of, n.flops);
}

void find_smaller(struct cutting *c)
{
  struct cut *cut = new_cut();
  /* By value: the nodes "all tokens of it are needed" and "it is made again". */
  int *needed = alloc((size_t)c->known * sizeof *needed);
  int *made = alloc((size_t)c->known * sizeof *made);
  bool *possible = alloc((size_t)c->known * sizeof *possible);
  struct list *read = alloc((size_t)(graph->nop + 1) * sizeof *read);
  for (int v = 0; v < c->known; v++) {
    if (!is_settled(c, v)) continue;
    needed[v] = add_node(cut);
    made[v] = add_node(cut);
    possible[v] = can_be_made_again(c, v);
    const bool may_be_kept = is_floating(graph->value[v].type);
    add_price(cut, needed[v], made[v], may_be_kept ? numbers_of_token(c, v) : INT32_MAX);
    if (!possible[v]) add_own_price(cut, made[v], INT32_MAX);
  }
  for (int v = 0; v < c->known; v++) {
    if (!possible[v]) continue;
    const struct op *op = &graph->op[graph->value[v].op];
    for (int k = 0; k < op->nin; k++)
      if (c->along[op->in[k]].dim != NONE) add_price(cut, made[v], needed[op->in[k]], INT32_MAX);
  }
  for (int i = 0; i < c->n; i++) {
    const struct list values = read[c->op[i]] = read_of_all(c, c->op[i]);
    for (int k = 0; k < values.n; k++)
      if (is_settled(c, values.at[k])) add_own_price(cut, needed[values.at[k]], -INT32_MAX);
  }
  const bool *near = near_side(cut);
  for (int v = 0; v < c->known; v++) c->again[v] = possible[v] && near[made[v]];
  for (int i = 0; i < c->n; i++)
    if (read[c->op[i]].n)
      c->instead[c->op[i]] =
          instead_text(c, &graph->op[c->op[i]], &read[c->op[i]], &c->reads_smaller[c->op[i]]);
}
