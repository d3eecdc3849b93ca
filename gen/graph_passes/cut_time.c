/* cut_time.c: the pass `cut_time`: the two entries of a program that generates, from the program
   of a whole text.

   Takes   the global graph of a plan with generate{}. Its model runs once over a whole text of one
           sequence, [1, context]: the result of an operation whole_text, whose inputs are those of
           the two entries. The output "logits" is [1, context, vocabulary].
   Leaves  the operations of a call of each entry, with its outputs "prefill.logits" and
           "decode.logits", and no operation of the whole text. A program without whole_text is left
           as it is.

   Time is a dimension over which the tokens are cut; its ranks are the calls. A call of FORWARD has
   the next tokens of one sequence, a call of DECODE the next token of each slot. The operators'
   rules (ops.h) say what a cut along the tokens does:

     the letter of the tokens goes through    the call computes its own tokens
     a constant has the letter                its elements at the positions of the call's tokens
     attention that sees no later token       the keys and values of earlier tokens are kept in
                                              caches: cached_attention
     a convolution, a shift to later tokens   the last so many tokens are kept: recent
     a cumulative sum, or maximum             that so far is kept: running_sum, running_max
     a scan                                   its carry is kept: cut_scans.c
     pairs of tokens, later ones hidden       all tokens are kept: cut_pairs.c
     anything else                            needs other tokens: the plan's error

   Only the last token's logits are read: what only they need is made for that token. */
#include "graph_passes/graph_passes.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------- operations of an entry */

/* The operation over its own tokens, of this form, and its inputs in theirs. dim[k] is the
   dimension of output k that has the tokens, inner[k] elements for each. */
static int append_own(const struct entry *e, const struct op *whole, struct op op, const int *dim,
                      const int64_t *inner, int form)
{
  struct shape shape[MAX_OUTPUTS];
  const int64_t own = form == OF_LAST && e->last != NONE ? 1 : e->tokens;
  for (int k = 0; k < whole->nout; k++) {
    shape[k] = graph->value[whole->out + k].shape;
    if (dim[k] != NONE) shape[k].size[dim[k]] = inner[k] * own;
  }
  if (op.kind == OP_view)
    op.equation = view_equation(graph->value[op.in[0]].shape, shape[0], op.line);
  op.phase = e->phase;
  const int out = append_op_outputs(op, shape, whole->nout);
  for (int k = 0; k < whole->nout; k++)
    graph->value[out + k].name = graph->value[whole->out + k].name;
  return out;
}

static void make_constant(const struct cutting *c, struct entry *e, const struct op *op)
{
  const int v = op->out;
  if (c->wanted[v] & 1u << ENTIRE) {
    struct op whole = *op;
    whole.phase = e->phase;
    for (int i = 0; i < op->nin; i++) whole.in[i] = value_in_form(c, e, op, op->in[i], ENTIRE);
    const int out = append_op_like(whole, v);
    for (int k = 0; k < op->nout; k++) {
      graph->value[out + k].name = graph->value[v + k].name;
      e->made[v + k][ENTIRE] = out + k;
    }
  }
  struct letters l;
  if (c->wanted[v] >> AT_ALL) op_letters(op, &l);
  for (int form = AT_ALL; form < FORMS; form++) {
    if (!(c->wanted[v] >> form & 1)) continue;
    const bool last = form >= AT_LAST;
    if (last && e->last == NONE) continue;
    const int base = last ? AT_LAST : AT_ALL, dim = form - base;
    int letter;
    if (op->kind == OP_index) {
      e->made[v][form] = e->position[last];
    } else if (goes_through(op, &l, dim, &letter)) {
      struct op own = *op;
      for (int i = 0; i < op->nin; i++) {
        const int d = dimension_having(&l, i, letter);
        own.in[i] = value_in_form(c, e, op, op->in[i], d == NONE ? (int)ENTIRE : base + d);
      }
      e->made[v][form] =
          append_own(e, op, own, &dim, (const int64_t[]){1}, last ? OF_LAST : OF_ALL);
    }
  }
}

/* Whether a constant of the second entry is wanted along a dimension where the first one wants
   the last token only. */
static void widen_for_slots(struct cutting *c)
{
  for (int v = 0; v < c->known; v++) {
    if (c->along[v].dim != NONE) {
      if (c->wanted[v] & 1u << OF_LAST) c->wanted[v] |= 1u << OF_ALL;
      continue;
    }
    for (int d = 0; d < MAX_DIMS; d++)
      if (c->wanted[v] >> (AT_LAST + d) & 1) c->wanted[v] |= 1u << (AT_ALL + d);
  }
}

/* The dimension of the mesh whose ranks share the context of the caches, or NONE. */
static int context_dimension(const struct cutting *c)
{
  return (int)number_of(&graph->op[c->text], "over") - 1;
}

/* latent: one cache has keys and values. */
static void add_attention_caches(struct cutting *c, const struct op *op, struct caches *kept,
                                 struct shape k, struct shape v, bool latent)
{
  const enum type type = number_of(&graph->op[c->text], "bfloat16") ? BF16 : F32;
  const int over = context_dimension(c);
  struct shape cache = {
      .ndim = 4,
      .size = {plan_options->generate.slots, k.size[1], plan_options->generate.context, k.size[3]}};
  if (over != NONE) {
    const int64_t parts = graph->mesh.size[over];
    cache = (struct shape){.ndim = 5,
                           .size = {cache.size[0], parts, cache.size[1],
                                    (cache.size[2] + parts - 1) / parts, cache.size[3]}};
  }
  if (latent) {
    kept->k = add_state_cache(
        op, "latent", cache, type, c,
        text("the keys of all earlier tokens, whose first numbers are the values, for "
             "%s: %lld numbers a token",
             reader_name(op), (long long)(k.size[1] * k.size[3])));
    return;
  }
  kept->k = add_state_cache(op, "k", cache, type, c, kept_for(c, op, "the keys"));
  cache.size[cache.ndim - 1] = v.size[3];
  kept->v = add_state_cache(op, "v", cache, type, c, kept_for(c, op, "the values"));
  if (over == NONE) return;
  graph->value[kept->k].layout.on[over] = graph->value[kept->v].layout.on[over] =
      (struct placement){.kind = SHARD, .dim = 1};
}

/* An operation of the entry on one value or two. */
static int computed(const struct entry *e, const struct op *origin, enum op_kind kind, int a, int b)
{
  const struct op op = {.kind = kind, .nin = b == NONE ? 1 : 2, .in = {a, b == NONE ? 0 : b}};
  return append_op(op_in_entry(e, origin, op));
}

/* Over the parts, the first dimension; the sum on all ranks. */
static int over_parts(const struct entry *e, const struct op *origin, enum op_kind kind, int x,
                      int over)
{
  struct op op = {.kind = kind, .nin = 1, .in = {x}, .dims = 1, .scalar = kind == OP_sum};
  x = append_op(op_in_entry(e, origin, op));
  if (kind != OP_sum) return x;
  op = (struct op){.kind = OP_redistribute,
                   .nin = 1,
                   .in = {x},
                   .type = F32,
                   .backward_type = F32,
                   .asked = 1u << over,
                   .why = "attention over all parts of the context"};
  return append_op(op_in_entry(e, origin, op));
}

/* Attention over all keys, from that over parts of them and the logarithms of its rows' sums: as
   nn.KVCache. A row that sees no key is zeros. */
static int merged_parts(const struct entry *e, const struct op *op, int y, int over)
{
  static const double least = -3.4028234663852886e38, small = 1e-37;
  const int logs = y + 1;
  struct shape rows = graph->value[logs].shape;
  const int most = computed(e, op, OP_maximum, over_parts(e, op, OP_amax, logs, over),
                            number_in_entry(e, op, least, F32));
  const int weight = computed(e, op, OP_exp, computed(e, op, OP_sub, logs, most), NONE);
  int total = computed(e, op, OP_maximum, over_parts(e, op, OP_sum, weight, over),
                       number_in_entry(e, op, small, F32));
  rows.size[rows.ndim++] = 1;
  const int column = view_in_entry(e, op, weight, rows);
  y = over_parts(e, op, OP_sum, computed(e, op, OP_mul, y, column), over);
  for (int d = 0; d < rows.ndim - 1; d++) rows.size[d] = rows.size[d + 1];
  rows.ndim--;
  return computed(e, op, OP_div, y, view_in_entry(e, op, total, rows));
}

/* Attention over the caches. The new tokens of a call of the second entry are of a slot each: to
   the operator they are as many sequences of one token. */
static void make_attention(struct cutting *c, struct entry *e, int i)
{
  const struct op *op = &graph->op[i];
  const bool by_slot = e->last == NONE && e->tokens > 1;
  const int over = context_dimension(c);
  const bool latent = over == NONE && has_values_in_keys(op);
  int in[3];
  struct shape s[3];
  s[2] = graph->value[op->in[2]].shape;
  for (int k = 0; k < (latent ? 2 : 3); k++) {
    in[k] = tokens_of_call(c, e, op, op->in[k], OF_ALL);
    if (by_slot) in[k] = permuted_in_entry(e, op, in[k], "abcd->cbad");
    s[k] = graph->value[in[k]].shape;
  }
  struct caches *kept = &c->caches[i];
  const int64_t groups = s[1].size[1];
  if (kept->k == NONE) add_attention_caches(c, op, kept, s[1], s[2], latent);
  const int64_t each = s[0].size[1] / groups;
  struct shape grouped = {.ndim = 5,
                          .size = {s[0].size[0], groups, each, s[0].size[2], s[0].size[3]}};
  const int queries = view_in_entry(e, op, in[0], grouped);
  grouped.size[4] = s[2].size[3];
  struct op cached = {.kind = over == NONE ? OP_cached_attention : OP_cached_attention_parts,
                      .nin = 7,
                      .in = {queries, in[1], in[2], kept->k, kept->v, e->slot, e->start}};
  if (latent)
    cached = (struct op){.kind = OP_cached_latent_attention,
                         .nin = 5,
                         .in = {queries, in[1], kept->k, e->slot, e->start}};
  cached.scalar = op->scalar;
  cached = op_in_entry(e, op, cached);
  set_number(&cached, "window", c->window[i]);
  int y;
  if (over == NONE) {
    y = append_op_shaped(cached, grouped);
  } else {
    struct shape of_parts[2] = {{.ndim = 6, .size = {graph->mesh.size[over]}}, {.ndim = 5}};
    memcpy(of_parts[0].size + 1, grouped.size, 5 * sizeof *grouped.size);
    memcpy(of_parts[1].size, of_parts[0].size, 5 * sizeof *grouped.size);
    y = merged_parts(e, op, append_op_outputs(cached, of_parts, 2), over);
  }
  y = cast_in_entry(e, op, y, op->out);
  const struct shape together = {.ndim = 4,
                                 .size = {s[0].size[0], s[0].size[1], s[0].size[2], s[2].size[3]}};
  y = view_in_entry(e, op, y, together);
  if (by_slot) y = permuted_in_entry(e, op, y, "abcd->cbad");
  graph->value[y].name = graph->value[op->out].name;
  e->made[op->out][OF_ALL] = y;
}

/* The convolution over the call's tokens and the last ones before. Slots are as many sequences. */
static void make_convolution(struct cutting *c, struct entry *e, const struct op *op)
{
  const struct shape weight = graph->value[op->in[1]].shape;
  const int64_t back = (weight.size[3] - 1) * number_of(op, "dilation_x");
  const int made = value_in_form(c, e, op, op->in[0], OF_ALL);
  int x = recent_in_entry(c, e, op, op->in[0], made, back);
  const struct shape rows = graph->value[x].shape;
  x = permuted_in_entry(e, op, x, "abc->acb");
  x = view_in_entry(
      e, op, x, (struct shape){.ndim = 4, .size = {rows.size[0], rows.size[2], 1, rows.size[1]}});
  struct op own = *op;
  own.phase = e->phase;
  own.in[0] = cast_in_entry(e, op, x, op->in[0]);
  own.in[1] = value_in_form(c, e, op, op->in[1], ENTIRE);
  set_number(&own, "pad_x", 0);
  const struct shape shape = {.ndim = 4,
                              .size = {rows.size[0], weight.size[0], 1, rows.size[1] - back}};
  int y = append_op_shaped(own, shape);
  if (rows.size[0] > 1) y = permuted_in_entry(e, op, y, "abcd->dbca");
  graph->value[y].name = graph->value[op->out].name;
  e->made[op->out][OF_ALL] = y;
}

/* A cumulative sum, or maximum with its place. */
static void make_running(struct cutting *c, struct entry *e, const struct op *op)
{
  const bool is_sum = op->kind == OP_cumsum;
  const int dim = c->along[op->in[0]].dim;
  const int made = tokens_of_call(c, e, op, op->in[0], OF_ALL), x = rows_in_entry(e, op, made, dim);
  const struct shape rows[2] = {graph->value[x].shape, graph->value[x].shape};
  const char *name = is_sum ? "sum" : number_of(op, "least") ? "minimum" : "maximum";
  const int cache = cache_of_value(c, op, op->out, name, 1, rows[0].size[2], is_sum ? 1 : 2,
                                   text("the %s so far of %s", name, reader_name(op)));
  struct op running = {.kind = is_sum ? OP_running_sum : OP_running_max,
                       .nin = 4,
                       .in = {x, cache, e->slot, e->start}};
  if (!is_sum) set_number(&running, "least", number_of(op, "least"));
  const int y = append_op_outputs(op_in_entry(e, op, running), rows, op->nout);
  for (int k = 0; k < op->nout; k++)
    e->made[op->out + k][OF_ALL] = cast_in_entry(
        e, op, from_rows_in_entry(e, op, y + k, graph->value[made].shape, dim), op->out + k);
}

/* The tokens of the call, with zeros in the place of the text's first ones. */
static int without_first(const struct cutting *c, struct entry *e, const struct op *op, int made)
{
  const int first = number_in_entry(e, op, (double)c->zeroed[op->out], I32);
  struct shape along = graph->value[made].shape;
  for (int d = 0; d < along.ndim; d++)
    if (d != c->along[op->in[0]].dim) along.size[d] = 1;
  const int is_later =
      view_in_entry(e, op, computed(e, op, OP_ge, e->position[OF_ALL], first), along);
  const int zero = number_in_entry(e, op, 0, graph->value[made].type);
  return append_op(
      op_in_entry(e, op, (struct op){.kind = OP_where, .nin = 3, .in = {is_later, made, zero}}));
}

static void make_of_tokens(struct cutting *c, struct entry *e, int i)
{
  const struct op *op = &graph->op[i];
  unsigned wanted = 0;
  for (int k = 0; k < op->nout; k++) wanted |= c->wanted[op->out + k];
  const bool all = wanted & 1u << OF_ALL || counted_operand(op) != NONE;
  if (!wanted || (e->last == NONE && !all)) return;
  if (op->kind == OP_attention) {
    make_attention(c, e, i);
    return;
  }
  if (is_token_margin(c, op)) {
    const int made = value_in_form(c, e, op, op->in[0], OF_ALL);
    e->made[op->out][OF_ALL] = c->zeroed[op->out] ? without_first(c, e, op, made) : made;
    return;
  }
  if (is_over_tokens(c, op)) {
    (op->kind == OP_conv2d ? make_convolution : make_running)(c, e, op);
    return;
  }
  const int form = all ? OF_ALL : OF_LAST;
  struct letters l;
  op_letters(op, &l);
  const struct token_letter t = letter_of_tokens(c, op, &l);
  struct op own = *op;
  int dim[MAX_OUTPUTS];
  int64_t inner[MAX_OUTPUTS];
  for (int k = 0; k < op->nin; k++) {
    const int d = dimension_having(&l, k, t.letter);
    const int at = form == OF_ALL ? AT_ALL : AT_LAST;
    if (takes_all_keys(c, &l, t, k, op->in[k]))
      own.in[k] = gathered_in_entry(c, e, &own, op, &l, t, k);
    else if (c->along[op->in[k]].dim != NONE)
      own.in[k] = tokens_of_call(c, e, op, op->in[k], form);
    else
      own.in[k] = value_in_form(c, e, op, op->in[k], d == NONE ? (int)ENTIRE : at + d);
  }
  for (int k = 0; k < op->nout; k++) {
    dim[k] = c->along[op->out + k].dim;
    inner[k] = c->along[op->out + k].inner;
  }
  const int out = append_own(e, op, own, dim, inner, form);
  for (int k = 0; k < op->nout; k++) e->made[op->out + k][form] = out + k;
}

static void add_output(const struct cutting *c, struct entry *e, int value)
{
  const struct op *op = &graph->op[graph->value[value].op];
  int y = value_in_form(c, e, op, value, OF_LAST);
  struct shape shape = graph->value[y].shape;
  if (e->last == NONE) { /* the sequences of the entry are the slots */
    shape.size[0] = e->tokens;
    shape.size[1] = 1;
    y = view_in_entry(e, op, y, shape);
  }
  if (graph->value[y].type != F32)
    y = append_op(
        op_in_entry(e, op, (struct op){.kind = OP_cast, .nin = 1, .in = {y}, .type = F32}));
  /* Each rank looks for the best words of its part of the vocabulary. */
  struct op cut = {.kind = OP_redistribute,
                   .nin = 1,
                   .in = {y},
                   .type = F32,
                   .backward_type = F32,
                   .why = "the logits, by words"};
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (graph->mesh.size[d] == 1) continue;
    cut.asked |= 1u << d;
    cut.to.on[d] = (struct placement){.kind = SHARD, .dim = 2};
  }
  if (cut.asked) y = append_op(op_in_entry(e, op, cut));
  graph->value[y].is_output = true;
  graph->value[y].name = text("%s.logits", e->name);
}

static int first_made(const struct cutting *c, const struct entry *e, int value)
{
  if (value >= c->known) return value;
  for (int form = 0; form < FORMS; form++)
    if (e->made[value][form] != NONE) return e->made[value][form];
  return c->along[value].dim == NONE && graph->value[value].op == NONE ? value : NONE;
}

static bool is_made_for_all_calls(const struct cutting *c, const struct call *call)
{
  for (int k = 0; k < call->nout; k++)
    if (call->out[k] < c->known && c->again[call->out[k]]) return true;
  return false;
}

/* The calls of modules in the entry, which has their operations; styles belong to calls. at[i]:
   where the operations for the i-th one begin in the order. */
static void add_calls(const struct cutting *c, const struct entry *e, const int *at)
{
  int *number = alloc((size_t)(c->ncall + 1) * sizeof *number);
  for (int i = 0; i < c->ncall; i++) {
    struct call call = c->call[i];
    call.first = at[call.first];
    call.last = at[call.last];
    call.parent = call.parent == NONE ? NONE : number[call.parent];
    call.within = call.within == NONE ? NONE : e->module[call.within];
    bool complete = true;
    int made = 0; /* what only a training reads is not, as the last state of a recurrence */
    for (int k = 0; k < call.nin; k++)
      complete &= (call.in[k] = first_made(c, e, call.in[k])) != NONE;
    while (made < call.nout && (call.out[made] = first_made(c, e, call.out[made])) != NONE) made++;
    if (!complete || !made) call.nin = made = 0;
    call.nout = made;
    const bool idle = call.first == call.last; /* as that of an absorbed projection */
    if (!made && (idle || is_made_for_all_calls(c, &c->call[i]))) { /* styles ask nothing of it */
      number[i] = call.parent;
      continue;
    }
    number[i] = graph->ncall;
    GROW(graph->call, graph->ncall, graph->call_room);
    graph->call[graph->ncall++] = call;
  }
}

static void make_any(struct cutting *c, struct entry *e, int i)
{
  const struct op op = graph->op[i]; /* a copy: operations are added */
  const int entered = op.nout ? carry_entered_by(c, op.out) : NONE;
  c->reader = i;
  if (i == c->text) {
    e->made[op.out][OF_ALL] = e->own;
  } else if (c->scan_of[i] != NONE) {
    make_of_step(c, e, i);
  } else if (op.kind == OP_scan_hold) {
    for (int k = 0; k < c->ncarry; k++)
      if (c->carry[k].hold == i && c->live[i]) make_held(c, e, k);
  } else if (entered != NONE && c->live[i]) {
    make_entering(c, e, entered, &op);
  } else if (op.kind == OP_scan_stack && c->live[i]) {
    make_stack(e, &op);
  } else if (has_no_tokens(c, &op)) {
    make_constant(c, e, &op);
  } else {
    make_of_tokens(c, e, i);
  }
}

static void make_entry(struct cutting *c, struct entry *e)
{
  e->made = alloc((size_t)c->known * sizeof *e->made);
  for (int v = 0; v < c->known; v++)
    for (int form = 0; form < FORMS; form++) e->made[v][form] = NONE;
  e->gathered = alloc((size_t)c->known * sizeof *e->gathered);
  e->of_all = alloc((size_t)c->known * sizeof *e->of_all);
  for (int v = 0; v < c->known; v++) e->gathered[v] = e->of_all[v] = NONE;
  e->places = NONE;
  e->settled = alloc((size_t)c->known * sizeof *e->settled);
  for (int v = 0; v < c->known; v++) e->settled[v] = NONE;
  e->state = alloc((size_t)(c->ncarry + 1) * sizeof *e->state);
  e->recalled = alloc((size_t)(c->ncarry + 1) * sizeof *e->recalled);
  e->taken = alloc((size_t)(c->ncarry + 1) * sizeof *e->taken);
  e->taken_in = alloc((size_t)(c->ncarry + 1) * sizeof *e->taken_in);
  e->begun = alloc((size_t)(e->modules + 1) * sizeof *e->begun);
  e->counted = e->counted_in = NONE;
  int *at = alloc((size_t)(c->n + 1) * sizeof *at);
  for (int i = 0; i < c->n; i++) {
    at[i] = graph->norder;
    make_any(c, e, c->op[i]);
  }
  at[c->n] = graph->norder;
  for (int i = 0; i < c->outputs.n; i++) add_output(c, e, c->outputs.at[i]);
  add_calls(c, e, at);
}

/* ------------------------------------------------------------------------------------ the pass */

static void begin_modules(struct entry *e)
{
  e->modules = graph->nmodule;
  e->module = alloc((size_t)(e->modules + 1) * sizeof *e->module);
  for (int m = 0; m < e->modules; m++) e->module[m] = m;
}

/* The positions of a call's tokens, from the start; none is beyond the context. */
static int positions_from(const struct cutting *c, const struct entry *e, int start)
{
  const struct op *text_op = &graph->op[c->text];
  struct op op = {.kind = OP_minimum,
                  .nin = 2,
                  .in = {start, number_in_entry(e, text_op, (double)(c->length - 1), I32)}};
  return append_op(op_in_entry(e, text_op, op));
}

static void begin_prefill(const struct cutting *c, struct entry *e)
{
  const struct op text_op = graph->op[c->text];
  *e = (struct entry){.phase = FORWARD,
                      .name = "prefill",
                      .own = text_op.in[0],
                      .slot = text_op.in[1],
                      .start = text_op.in[2],
                      .last = text_op.in[3]};
  e->tokens = graph->value[e->own].shape.size[1];
  begin_modules(e);
  const int index = append_op_shaped(
      op_in_entry(e, &text_op, (struct op){.kind = OP_index, .dims = 1, .type = I32}),
      (struct shape){.ndim = 1, .size = {e->tokens}});
  const int place = append_op(
      op_in_entry(e, &text_op, (struct op){.kind = OP_add, .nin = 2, .in = {e->start, index}}));
  e->position[OF_ALL] = positions_from(c, e, place);
  e->position[OF_LAST] = selected_in_entry(e, &text_op, e->position[OF_ALL], 0, e->last);
}

static void begin_decode(const struct cutting *c, struct entry *e)
{
  const struct op text_op = graph->op[c->text];
  *e = (struct entry){.phase = DECODE,
                      .name = "decode",
                      .slot = text_op.in[5],
                      .start = text_op.in[6],
                      .last = NONE};
  begin_modules(e);
  struct shape shape = graph->value[text_op.in[4]].shape; /* [slots, 1] */
  e->tokens = shape.size[0];
  shape.size[0] = 1;
  shape.size[1] = e->tokens;
  e->own = view_in_entry(e, &text_op, text_op.in[4], shape);
  e->position[OF_ALL] = e->position[OF_LAST] = positions_from(c, e, e->start);
}

static int find_text(void)
{
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].kind == OP_whole_text) return graph->order[i];
  return NONE;
}

/* What the pass knows of the whole text. */
static struct cutting known_of_text(void)
{
  struct cutting c = {.text = find_text(),
                      .known = graph->nvalue,
                      .n = graph->norder,
                      .op = graph->order,
                      .ncall = graph->ncall,
                      .call = graph->call};
  const size_t values = (size_t)c.known, operations = (size_t)graph->nop;
  c.length = graph->value[graph->op[c.text].out].shape.size[1];
  c.along = alloc(values * sizeof *c.along);
  c.wanted = alloc(values * sizeof *c.wanted);
  c.zeroed = alloc(values * sizeof *c.zeroed);
  c.counts = alloc(values * sizeof *c.counts);
  c.live = alloc(operations * sizeof *c.live);
  c.kept = alloc(values * sizeof *c.kept);
  c.caches = alloc(operations * sizeof *c.caches);
  c.window = alloc(operations * sizeof *c.window);
  c.keys = alloc(values * sizeof *c.keys);
  c.ahead = alloc(values * sizeof *c.ahead);
  c.own = alloc(values * sizeof *c.own);
  c.array = alloc(values * sizeof *c.array);
  c.tried = alloc(values * sizeof *c.tried);
  c.again = alloc(values * sizeof *c.again);
  c.reads_smaller = alloc(operations * sizeof *c.reads_smaller);
  c.instead = alloc(operations * sizeof *c.instead);
  for (int v = 0; v < c.known; v++) {
    c.kept[v] = c.keys[v] = NONE;
    c.along[v] = (struct token_axis){NONE, 1, 0, 0, 0};
  }
  for (int i = 0; i < graph->nop; i++) {
    c.caches[i] = (struct caches){NONE, NONE};
    c.instead[i] = "";
  }
  find_carries(&c);
  find_tokens(&c);
  find_smaller(&c);
  return c;
}

void cut_time(void)
{
  if (find_text() == NONE) return;
  const int64_t length = graph->value[graph->op[find_text()].out].shape.size[1];
  write_out_attention(length, NULL);
  struct cutting c = known_of_text();
  if (plan_options->generate.caches == SMALL_CACHES) {
    write_out_attention(length, c.reads_smaller);
    c = known_of_text();
  } else {
    memset(c.again, 0, (size_t)c.known * sizeof *c.again);
  }
  find_wanted(&c);
  for (int i = 0; i < c.outputs.n; i++) graph->value[c.outputs.at[i]].is_output = false;
  graph->order = NULL;
  graph->call = NULL;
  graph->norder = graph->order_room = graph->ncall = graph->call_room = 0;
  struct entry e;
  begin_prefill(&c, &e);
  make_entry(&c, &e);
  widen_for_slots(&c);
  begin_decode(&c, &e);
  make_entry(&c, &e);
}
