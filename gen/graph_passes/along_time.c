/* along_time.c: a part of the pass cut_time: where the tokens of a whole text are in each value,
   and what the entries need of it. */
#include "graph_passes/graph_passes.h"

static _Noreturn void refuse(const struct op *op, const char *why)
{
  const struct module *m = op->module == NONE ? NULL : &graph->module[op->module];
  const char *name = op->node ? op->node : op->part_of ? op->part_of : op_name(op);
  plan_error(op->line, "generate: %s%s%s %s", printable(name), m && *m->path ? " of " : "",
             m && *m->path ? printable(m->path) : "", why);
}

/* ---------------------------------------------------------------------------- what scans carry */

void find_carries(struct cutting *c)
{
  c->scan_of = alloc((size_t)(graph->nop + 1) * sizeof *c->scan_of);
  c->place = alloc((size_t)(graph->nop + 1) * sizeof *c->place);
  c->of_step = alloc((size_t)(c->known + 1) * sizeof *c->of_step);
  for (int i = 0; i < graph->nop; i++) c->scan_of[i] = NONE;
  for (int at = 0, step = NONE, n = 0; at < c->n; at++) {
    const struct op *op = &graph->op[c->op[at]];
    const int scan = scan_around(op->module);
    const int now = scan == NONE ? NONE : element_within(op->module, scan);
    n = now == step ? n + 1 : 0;
    step = now;
    c->place[c->op[at]] = n;
    if (op->kind != OP_scan_hold) continue;
    const int last = graph->value[op->in[0]].op;
    GROW(c->carry, c->ncarry, c->carry_room);
    c->carry[c->ncarry++] = (struct carry){.scan = scan_around(graph->op[last].module),
                                           .hold = c->op[at],
                                           .first = op->in[1],
                                           .place = c->place[last],
                                           .cache = NONE};
  }
}

static bool is_scan_over_tokens(const struct cutting *c, int at)
{
  const int scan = scan_around(graph->op[c->op[at]].module);
  for (; at < c->n && scan_around(graph->op[c->op[at]].module) == scan; at++) {
    const struct op *op = &graph->op[c->op[at]];
    const struct token_axis a = op->nin ? c->along[op->in[0]] : (struct token_axis){.dim = NONE};
    if (op->kind == OP_scan_take && a.dim == 0) return true;
  }
  return false;
}

int carry_entered_by(const struct cutting *c, int value)
{
  for (int k = 0; k < c->ncarry; k++)
    if (c->carry[k].first == value) return k;
  return NONE;
}

/* ------------------------------------------------------------- where the tokens of the text are */

static int64_t rest_of_axis(const struct letters *l, const struct axis *axis)
{
  int64_t n = 1;
  for (int i = 1; i < axis->n; i++) n *= l->size[axis->letter[i]];
  return n;
}

bool is_reshaped(const struct op *op)
{
  return op->kind == OP_view || op->kind == OP_permute;
}

/* What is not along the tokens takes each token's own element. */
static void need_settled(const struct cutting *c, const struct op *op, struct token_axis a)
{
  if (a.lead < 0 || a.size != c->length * a.inner || a.end < c->length - a.lead)
    refuse(op, "needs later tokens");
}

static int only_letter(const struct op *op, const struct axis *axis)
{
  if (axis->n != 1) refuse(op, "divides the keys of pairs of tokens");
  return axis->letter[0];
}

/* Where an operation combines tokens with tokens, each with every other one: of the letters of both
   the later one in what it makes. Else NONE. */
static int letter_of_keys(const struct cutting *c, const struct op *op, const struct letters *l)
{
  int both[2] = {NONE, NONE}, n = 0;
  for (int i = 0; i < op->nin; i++) {
    const struct token_axis a = c->along[op->in[i]];
    if (a.dim == NONE || l->in[i][a.dim].n != 1 || a.inner != 1) continue;
    const int letter = l->in[i][a.dim].letter[0];
    if (n && both[0] == letter) continue;
    if (n == 2 && both[1] != letter) return NONE;
    if (n < 2) both[n++] = letter;
  }
  int met = 0, key = NONE;
  for (int d = 0; d < l->ndim_out[0] && n == 2; d++)
    for (int k = 0; k < l->out[0][d].n; k++)
      if (l->out[0][d].letter[k] == both[0] || l->out[0][d].letter[k] == both[1])
        met++, key = l->out[0][d].letter[k];
  return met == 2 ? key : NONE;
}

struct token_letter letter_of_tokens(const struct cutting *c, const struct op *op,
                                     const struct letters *l)
{
  struct token_letter t = {NONE, 1, NONE};
  for (int i = 0; i < op->nin; i++)
    if (c->keys[op->in[i]] != NONE) t.key = only_letter(op, &l->in[i][c->keys[op->in[i]]]);
  if (t.key == NONE) t.key = letter_of_keys(c, op, l);
  for (int i = 0; i < op->nin; i++) {
    const struct token_axis a = c->along[op->in[i]];
    if (a.dim == NONE) continue;
    if (takes_all_keys(c, l, t, i, op->in[i])) {
      if (a.inner != 1) refuse(op, "combines pairs of tokens with tokens of several elements");
      need_settled(c, op, a);
      continue;
    }
    const struct axis *axis = &l->in[i][a.dim];
    if (!axis->n) refuse(op, "is over something else than the tokens, in their dimension");
    const int letter = axis->letter[0];
    if (a.lead && !is_reshaped(op)) need_settled(c, op, a);
    const int64_t tokens = a.size / a.inner;
    const int64_t inner = l->size[letter] / tokens;
    if (l->size[letter] % tokens || inner * rest_of_axis(l, axis) != a.inner)
      refuse(op, "divides the text in another way than into its tokens");
    if (t.letter != NONE && (t.letter != letter || t.inner != inner))
      refuse(op, "combines each token with every other one, later ones too");
    t.letter = letter;
    t.inner = inner;
  }
  return t;
}

static struct token_axis along_output(const struct cutting *c, const struct op *op,
                                      const struct letters *l, int k, struct token_letter t)
{
  for (int d = 0; d < l->ndim_out[k]; d++) {
    const struct axis *axis = &l->out[k][d];
    for (int i = 0; i < axis->n; i++) {
      if (axis->letter[i] != t.letter) continue;
      if (i) refuse(op, "puts the tokens within another dimension");
      const int64_t inner = t.inner * rest_of_axis(l, axis);
      struct token_axis a = {d, inner, graph->value[op->out + k].shape.size[d], 0, INT64_MAX};
      for (int n = 0; n < op->nin; n++) {
        const struct token_axis from = c->along[op->in[n]];
        const int64_t end = from.lead && !is_reshaped(op) ? c->length : from.end;
        if (from.dim != NONE && end < a.end) a.end = end;
      }
      if (is_reshaped(op)) a.lead = c->along[op->in[0]].lead;
      if (a.lead && inner != 1) refuse(op, "merges tokens that are shifted with another dimension");
      return a;
    }
  }
  refuse(op, "takes all tokens of the text together: it needs later tokens");
}

bool is_token_margin(const struct cutting *c, const struct op *op)
{
  return (op->kind == OP_pad || op->kind == OP_narrow) && op->dims == 1u << c->along[op->in[0]].dim;
}

bool is_over_tokens(const struct cutting *c, const struct op *op)
{
  if (op->kind == OP_conv2d) return true;
  return (op->kind == OP_cumsum || op->kind == OP_cummax) &&
         op->dims == 1u << c->along[op->in[0]].dim;
}

static void find_margin(struct cutting *c, const struct op *op)
{
  struct token_axis a = c->along[op->in[0]];
  if (a.inner != 1) refuse(op, "is over something else than the tokens, in their dimension");
  a.size = graph->value[op->out].shape.size[a.dim];
  if (op->kind == OP_pad) {
    if (a.lead < 0) c->zeroed[op->out] = -a.lead; /* the first tokens, which were cut off */
    a.lead += number_of(op, "before");
  } else {
    const int64_t end = number_of(op, "start") + a.size - a.lead;
    a.end = end < a.end ? end : a.end;
    a.lead -= number_of(op, "start");
  }
  c->along[op->out] = a;
}

static void find_over_tokens(struct cutting *c, const struct op *op)
{
  struct token_axis a = c->along[op->in[0]];
  if (op->kind != OP_conv2d) {
    need_settled(c, op, a);
    if (a.inner != 1 || (op->kind == OP_cumsum && number_of(op, "reverse")))
      refuse(op, "needs later tokens");
    for (int k = 0; k < op->nout; k++)
      c->along[op->out + k] = (struct token_axis){a.dim, 1, c->length, 0, c->length};
    return;
  }
  const struct shape weight = graph->value[op->in[1]].shape;
  const int64_t reach = (weight.size[3] - 1) * number_of(op, "dilation_x");
  if (a.dim != 3 || a.inner != 1 || c->along[op->in[1]].dim != NONE || weight.size[2] != 1 ||
      number_of(op, "stride_x") != 1 || number_of(op, "pad_y") ||
      graph->value[op->in[0]].shape.size[0] != 1)
    refuse(op, "is no convolution along the tokens that can be continued: it has a stride, or is "
               "over images");
  a.lead += number_of(op, "pad_x") - reach;
  a.size = graph->value[op->out].shape.size[3];
  c->along[op->out] = a;
}

static void find_attention(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  for (int k = 0; k < 3; k++) {
    const struct token_axis a = c->along[op->in[k]];
    if (a.dim != 2 || a.inner != 1)
      refuse(op, "has no tokens in queries, keys or values: only attention of a text to itself can "
                 "be continued");
    need_settled(c, op, a);
  }
  for (int k = 3; k < op->nin; k++)
    if (c->along[op->in[k]].dim != NONE)
      refuse(op, "has a mask, or documents, that depend on the tokens");
  if (number_of(op, "sinks") || op->softcap || number_of(op, "places"))
    refuse(op, "has sinks, a softcap or a context in parts, which the attention over caches lacks");
  const char *why;
  c->window[i] = window_of_attention(op, c->length, &why);
  if (c->window[i] < 0) refuse(op, why);
  c->along[op->out] = c->along[op->out + 1] = (struct token_axis){2, 1, c->length, 0, c->length};
}

/* A scan over the tokens: its steps have operations of each token's own and of what is carried. */
static void find_of_step(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  for (int k = 0; k < op->nin; k++) {
    const int v = op->in[k];
    const struct token_axis a = c->along[v];
    if (c->of_step[v]) continue;
    if (op->kind == OP_scan_take) {
      if (a.dim != NONE && (a.dim != 0 || a.inner != 1))
        refuse(op, "goes over something else than the tokens in the scan's dimension");
      if (a.dim != NONE) need_settled(c, op, a);
    } else if (a.dim != NONE || c->counts[v]) {
      refuse(op, carry_entered_by(c, v) == NONE
                     ? "reads all tokens of the text in each step of a scan"
                     : "begins a scan with what depends on the tokens");
    }
    if (carry_entered_by(c, v) != NONE && !is_floating(graph->value[v].type))
      refuse(op, "carries whole numbers from step to step of a scan, which no cache keeps");
    if (carry_entered_by(c, v) != NONE && graph->value[v].shape.ndim == MAX_DIMS)
      refuse(op, "carries a tensor of too many dimensions from step to step");
  }
  for (int k = 0; k < op->nout; k++) c->of_step[op->out + k] = true;
}

static void find_tokens_of(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  bool any = false, of_step = false, of_pairs = false;
  for (int k = 0; k < op->nin; k++) {
    of_pairs |= c->keys[op->in[k]] != NONE;
    any |= c->along[op->in[k]].dim != NONE || c->counts[op->in[k]];
    of_step |= c->of_step[op->in[k]];
  }
  if (of_pairs && (c->scan_of[i] != NONE || op->kind == OP_attention || is_token_margin(c, op) ||
                   is_over_tokens(c, op)))
    refuse(op, "takes values of pairs of tokens, which it cannot");
  if (c->scan_of[i] != NONE) {
    find_of_step(c, i);
    return;
  }
  if (of_step && op->kind == OP_scan_stack) {
    c->along[op->out] = (struct token_axis){0, 1, c->length, 0, c->length};
    return;
  }
  if (of_step && op->kind == OP_scan_hold) return;
  if (op->kind == OP_scan_hold)
    refuse(op,
           "carries something along another dimension than the tokens: F.scan(f, carry, xs, dim, "
           "true) writes the steps one after the other");
  if (of_step)
    refuse(op, "reads what a scan hands on behind the last token of the text: it needs later "
               "tokens");
  if (i == c->text) {
    c->along[op->out] = (struct token_axis){1, 1, c->length, 0, c->length};
  } else if (!any) {
    return;
  } else if (op->kind == OP_attention) {
    find_attention(c, i);
  } else if (is_token_margin(c, op)) {
    find_margin(c, op);
  } else if (is_over_tokens(c, op)) {
    find_over_tokens(c, op);
  } else {
    if (!*rule_of(op) || op_row[op->kind].updates)
      refuse(op, "cannot be continued from token to token");
    for (int k = 0; k < op->nin; k++)
      if (c->counts[op->in[k]] && k != counted_operand(op))
        refuse(op, "reads how many tokens of the text each expert gets");
    struct letters l;
    op_letters(op, &l);
    const struct token_letter t = letter_of_tokens(c, op, &l);
    if (l.whole[t.letter] || l.gets_start[t.letter])
      refuse(op, "needs other tokens of the text than each one's own");
    if (t.key != NONE) {
      if (t.letter == NONE || t.inner != 1) refuse(op, "divides pairs of tokens in another way");
      const char *why = find_pairs(c, op, &l, t);
      if (why) refuse(op, why);
    }
    if (op->kind == OP_count_places)
      c->counts[op->out] = true;
    else
      for (int k = 0; k < op->nout; k++) c->along[op->out + k] = along_output(c, op, &l, k, t);
  }
}

/* ------------------------------------------------------------------------- which forms are wanted
 */

bool goes_through(const struct op *op, const struct letters *l, int dim, int *letter)
{
  if (op->kind == OP_attention || op->nout != 1 || !*rule_of(op)) return false;
  const struct axis *axis = &l->out[0][dim];
  if (axis->n != 1 || l->whole[axis->letter[0]] || l->gets_start[axis->letter[0]]) return false;
  *letter = axis->letter[0];
  for (int i = 0; i < op->nin; i++) {
    const int d = dimension_having(l, i, *letter);
    if (d != NONE && l->in[i][d].n != 1) return false;
  }
  return true;
}

bool has_no_tokens(const struct cutting *c, const struct op *op)
{
  return op->nout && c->along[op->out].dim == NONE && !c->counts[op->out];
}

static void want_of_constant(struct cutting *c, const struct op *op)
{
  unsigned *wanted = &c->wanted[op->out];
  if (*wanted >> AT_ALL && op->kind != OP_index) {
    struct letters l;
    op_letters(op, &l);
    for (int form = AT_ALL; form < FORMS; form++) {
      if (!(*wanted >> form & 1)) continue;
      const int base = form < AT_LAST ? AT_ALL : AT_LAST;
      int letter;
      if (!goes_through(op, &l, form - base, &letter)) {
        *wanted |= 1u << ENTIRE;
        continue;
      }
      for (int i = 0; i < op->nin; i++) {
        const int d = dimension_having(&l, i, letter);
        c->wanted[op->in[i]] |= 1u << (d == NONE ? (int)ENTIRE : base + d);
      }
    }
  }
  if (*wanted & 1u << ENTIRE)
    for (int i = 0; i < op->nin; i++) c->wanted[op->in[i]] |= 1u << ENTIRE;
}

/* All operations of a scan's steps that the logits depend on run in each call. */
static void want_of_step(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  for (int k = 0; k < op->nin && c->live[i]; k++) {
    const int v = op->in[k];
    if (c->of_step[v]) continue;
    const bool slice = op->kind == OP_scan_take && c->along[v].dim == NONE;
    c->wanted[v] |= 1u << (slice ? (int)AT_ALL : (int)ENTIRE); /* of tokens: OF_ALL */
  }
}

/* Of all calls' tokens, what is made again is made of what is kept, and of whole constants. */
static void want_for_all_calls(struct cutting *c, const struct op *op)
{
  for (int k = 0; k < op->nin; k++) {
    const int v = op->in[k];
    if (c->along[v].dim == NONE)
      c->wanted[v] |= 1u << ENTIRE;
    else if (!c->again[v])
      c->wanted[v] |= 1u << OF_ALL;
  }
}

static void want_inputs(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  if (op->nout && c->again[op->out]) want_for_all_calls(c, op);
  if (c->scan_of[i] != NONE) {
    want_of_step(c, i);
    return;
  }
  if (op->nin && c->of_step[op->in[0]]) return; /* they are made anyway */
  unsigned wanted = 0;
  for (int k = 0; k < op->nout; k++) wanted |= c->wanted[op->out + k];
  if (!wanted) return;
  if (i == c->text) return;
  if (has_no_tokens(c, op)) {
    want_of_constant(c, op);
    return;
  }
  if (c->counts[op->out] || counted_operand(op) != NONE) wanted = 1u << OF_ALL;
  if (op->kind == OP_attention) {
    for (int k = 0; k < 3; k++) c->wanted[op->in[k]] |= 1u << OF_ALL; /* unused ones are left out */
    return;
  }
  if (is_token_margin(c, op) || is_over_tokens(c, op)) {
    c->wanted[op->in[0]] |= 1u << OF_ALL;
    for (int k = 1; k < op->nin; k++) c->wanted[op->in[k]] |= 1u << ENTIRE;
    return;
  }
  struct letters l;
  op_letters(op, &l);
  const struct token_letter t = letter_of_tokens(c, op, &l);
  for (int k = 0; k < op->nin; k++) {
    const struct token_axis a = c->along[op->in[k]];
    if (takes_all_keys(c, &l, t, k, op->in[k])) {
      if (!c->again[op->in[k]]) c->wanted[op->in[k]] |= 1u << OF_ALL;
      continue;
    }
    if (a.dim != NONE) {
      c->wanted[op->in[k]] |=
          a.inner == 1 && !a.lead && a.size == c->length ? wanted : 1u << OF_ALL;
      continue;
    }
    const int d = dimension_having(&l, k, t.letter);
    if (d != NONE && (t.inner != 1 || l.in[k][d].n != 1))
      refuse(op, "reads a constant that has several elements for each token");
    for (int form = OF_ALL; form <= OF_LAST; form++)
      if (wanted >> form & 1)
        c->wanted[op->in[k]] |= 1u << (d == NONE        ? (int)ENTIRE
                                       : form == OF_ALL ? AT_ALL + d
                                                        : AT_LAST + d);
  }
}

void find_wanted(struct cutting *c)
{
  for (int v = 0; v < c->known; v++) {
    if (!graph->value[v].is_output) continue;
    if (c->along[v].dim != 1 || c->along[v].inner != 1)
      plan_error(graph->value[v].line, "generate: the logits do not depend on the tokens");
    need_settled(c, &graph->op[graph->value[v].op], c->along[v]);
    c->wanted[v] |= 1u << OF_LAST;
    add(&c->outputs, v);
  }
  for (int i = c->n - 1; i >= 0; i--) want_inputs(c, c->op[i]);
}

/* A model also makes what only its training reads. */
static void find_live(struct cutting *c)
{
  bool *is_read = alloc((size_t)c->known * sizeof *is_read);
  for (int v = 0; v < c->known; v++) is_read[v] = graph->value[v].is_output;
  /* What a scan carries lives if its steps read it: then the last step makes it, too. */
  bool more = true;
  for (int times = 0; more; times++) {
    more = times == 0; /* what comes before a scan says whether it reads what is carried */
    for (int i = c->n - 1; i >= 0; i--) {
      const struct op *op = &graph->op[c->op[i]];
      bool *live = &c->live[c->op[i]];
      if (op->kind == OP_scan_hold && is_read[op->in[1]] && !*live) *live = more = true;
      for (int k = 0; k < op->nout; k++) *live |= is_read[op->out + k];
      for (int k = 0; k < op->nin && *live; k++) is_read[op->in[k]] = true;
    }
  }
}

void find_tokens(struct cutting *c)
{
  find_live(c);
  int scan = NONE;
  bool over_tokens = false;
  for (int i = 0; i < c->n; i++) {
    const int now = scan_around(graph->op[c->op[i]].module);
    if (now != scan) over_tokens = now != NONE && is_scan_over_tokens(c, i);
    scan = now;
    if (over_tokens) c->scan_of[c->op[i]] = scan;
    if (c->live[c->op[i]]) find_tokens_of(c, c->op[i]);
  }
}
