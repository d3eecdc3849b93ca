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
    a cumulative sum                         the sum so far is kept: running_sum
     anything else                            needs other tokens: the plan's error

   Only the last token's logits are read: what follows from them alone is made of that token. */
#include "graph_passes/graph_passes.h"

#include <inttypes.h>
#include <string.h>

/* The dimension of a value that holds the tokens, or NONE: it is the same for all texts. There, an
   element of a token is `inner` elements. The first `lead` of its `size` elements come before the
   text, and are zero, as those from token `end` on. */
struct along {
  int dim;
  int64_t inner, size, lead, end;
};

/* The forms of a value in an entry: a bit for each that is wanted. A value with tokens is made of
   all tokens of the call, or of the last one. A constant is whole, or cut along one of its
   dimensions. */
enum {
  OF_ALL,
  OF_LAST,
  ENTIRE = OF_ALL,
  AT_ALL = 2, /* and the dimension */
  AT_LAST = AT_ALL + MAX_DIMS,
  FORMS = AT_LAST + MAX_DIMS
};

struct cutting {
  int known; /* the values of the whole text */
  int n;     /* its operations, */
  int *op;   /* in their order */
  int ncall; /* its calls */
  struct call *call;
  int text; /* the operation whole_text */
  int64_t length;
  struct along *along; /* by value of the whole text */
  unsigned *wanted;    /* the forms that are wanted, by value */
  bool *counts;        /* by value: it counts the rows of the call's tokens, by expert */
  bool *live;          /* by operation: the logits depend on it */
  struct list outputs;
  /* By operation of the whole text that is an attention: the caches of its keys and values. */
  struct caches {
    int k, v;
  } * caches;
  int *kept;       /* by value: the cache of its last tokens, or of its sum so far; or NONE */
  int64_t *window; /* by operation: how many tokens back it sees; 0: all */
};

/* An entry while its operations are made. */
struct entry {
  enum phase phase;
  const char *name;
  int64_t tokens; /* of a call */
  int own;        /* the tokens, [1, tokens] */
  int slot, start;
  int last; /* the index of the last token that counts; or NONE: each is the last one of its slot */
  int position[2]; /* by form, OF_ALL and OF_LAST: the positions of these tokens */
  int (*made)[FORMS];
  int *settled; /* by value that has a lead: the value at the call's tokens */
};

static _Noreturn void refuse(const struct op *op, const char *why)
{
  const struct module *m = op->module == NONE ? NULL : &graph->module[op->module];
  plan_error(op->line, "generate: %s%s%s %s", printable(op->part_of ? op->part_of : op_name(op)),
             m && *m->path ? " of " : "", m && *m->path ? printable(m->path) : "", why);
}

/* ------------------------------------------------------------- where the tokens of the text are */

static int64_t rest_of_axis(const struct letters *l, const struct axis *axis)
{
  int64_t n = 1;
  for (int i = 1; i < axis->n; i++) n *= l->size[axis->letter[i]];
  return n;
}

/* The letter of the tokens in the operation's rule, and the elements of it for each token. */
struct token_letter {
  int letter;
  int64_t inner;
};

/* Whether it leaves elements as they are: their order, and how many come before the text. */
static bool is_reshaped(const struct op *op)
{
  return op->kind == OP_view || op->kind == OP_permute;
}

/* What is not along the tokens takes each token's own element. */
static void need_settled(const struct cutting *c, const struct op *op, struct along a)
{
  if (a.lead < 0 || a.size != c->length * a.inner || a.end < c->length - a.lead)
    refuse(op, "needs later tokens");
}

static struct token_letter letter_of_tokens(const struct cutting *c, const struct op *op,
                                            const struct letters *l)
{
  struct token_letter t = {NONE, 1};
  for (int i = 0; i < op->nin; i++) {
    const struct along a = c->along[op->in[i]];
    if (a.dim == NONE) continue;
    const struct axis *axis = &l->in[i][a.dim];
    if (!axis->n) refuse(op, "is over something else than the tokens, in their dimension");
    const int letter = axis->letter[0];
    if (a.lead && !is_reshaped(op)) need_settled(c, op, a);
    const int64_t tokens = a.size / a.inner;
    const int64_t inner = l->size[letter] / tokens;
    if (l->size[letter] % tokens || inner * rest_of_axis(l, axis) != a.inner)
      refuse(op, "divides the text in another way than into its tokens");
    if (t.letter != NONE && (t.letter != letter || t.inner != inner))
      refuse(op, "combines each token with every other one, later ones too: attention is "
                 "F.scaled_dot_product_attention");
    t = (struct token_letter){letter, inner};
  }
  return t;
}

static struct along along_output(const struct cutting *c, const struct op *op,
                                 const struct letters *l, int k, struct token_letter t)
{
  for (int d = 0; d < l->ndim_out[k]; d++) {
    const struct axis *axis = &l->out[k][d];
    for (int i = 0; i < axis->n; i++) {
      if (axis->letter[i] != t.letter) continue;
      if (i) refuse(op, "puts the tokens within another dimension");
      const int64_t inner = t.inner * rest_of_axis(l, axis);
      struct along a = {d, inner, graph->value[op->out + k].shape.size[d], 0, INT64_MAX};
      for (int n = 0; n < op->nin; n++) {
        const struct along from = c->along[op->in[n]];
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

/* Operations along the tokens. Elements before and behind the text come and go: only which of them
   is which token changes. */
static bool is_margin(const struct cutting *c, const struct op *op)
{
  return (op->kind == OP_pad || op->kind == OP_narrow) && op->dims == 1u << c->along[op->in[0]].dim;
}

static bool is_over_tokens(const struct cutting *c, const struct op *op)
{
  if (op->kind == OP_conv2d) return true;
  return op->kind == OP_cumsum && op->dims == 1u << c->along[op->in[0]].dim;
}

static void find_margin(struct cutting *c, const struct op *op)
{
  struct along a = c->along[op->in[0]];
  if (a.inner != 1) refuse(op, "is over something else than the tokens, in their dimension");
  a.size = graph->value[op->out].shape.size[a.dim];
  if (op->kind == OP_pad) {
    if (a.lead < 0) refuse(op, "puts zeros in the place of tokens");
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
  struct along a = c->along[op->in[0]];
  if (op->kind == OP_cumsum) {
    need_settled(c, op, a);
    if (a.inner != 1 || number_of(op, "reverse")) refuse(op, "needs later tokens");
    c->along[op->out] = (struct along){a.dim, 1, c->length, 0, c->length};
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
    const struct along a = c->along[op->in[k]];
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
  c->along[op->out] = c->along[op->out + 1] = (struct along){2, 1, c->length, 0, c->length};
}

static void find_tokens(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  bool any = false;
  for (int k = 0; k < op->nin; k++) any |= c->along[op->in[k]].dim != NONE || c->counts[op->in[k]];
  if (i == c->text) {
    c->along[op->out] = (struct along){1, 1, c->length, 0, c->length};
  } else if (!any) {
    return;
  } else if (op->kind == OP_attention) {
    find_attention(c, i);
  } else if (is_margin(c, op)) {
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
    if (op->kind == OP_count_places)
      c->counts[op->out] = true;
    else
      for (int k = 0; k < op->nout; k++) c->along[op->out + k] = along_output(c, op, &l, k, t);
  }
}

/* ------------------------------------------------------------------------- which forms are wanted
 */

/* Of an input that is a constant: the dimension that has the letter, or NONE. */
static int dimension_with(const struct letters *l, int input, int letter)
{
  for (int d = 0; d < l->ndim_in[input]; d++)
    for (int i = 0; i < l->in[input][d].n; i++)
      if (l->in[input][d].letter[i] == letter) return d;
  return NONE;
}

/* Whether the operation makes a constant's elements along the dimension from those of its inputs
   there; if so, the letter. */
static bool goes_through(const struct op *op, const struct letters *l, int dim, int *letter)
{
  if (op->kind == OP_attention || op->nout != 1 || !*rule_of(op)) return false;
  const struct axis *axis = &l->out[0][dim];
  if (axis->n != 1 || l->whole[axis->letter[0]] || l->gets_start[axis->letter[0]]) return false;
  *letter = axis->letter[0];
  for (int i = 0; i < op->nin; i++) {
    const int d = dimension_with(l, i, *letter);
    if (d != NONE && l->in[i][d].n != 1) return false;
  }
  return true;
}

static bool is_constant(const struct cutting *c, const struct op *op)
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
        const int d = dimension_with(&l, i, letter);
        c->wanted[op->in[i]] |= 1u << (d == NONE ? (int)ENTIRE : base + d);
      }
    }
  }
  if (*wanted & 1u << ENTIRE)
    for (int i = 0; i < op->nin; i++) c->wanted[op->in[i]] |= 1u << ENTIRE;
}

static void want_inputs(struct cutting *c, int i)
{
  const struct op *op = &graph->op[i];
  unsigned wanted = 0;
  for (int k = 0; k < op->nout; k++) wanted |= c->wanted[op->out + k];
  if (!wanted) return;
  if (i == c->text) return;
  if (is_constant(c, op)) {
    want_of_constant(c, op);
    return;
  }
  if (c->counts[op->out] || counted_operand(op) != NONE) wanted = 1u << OF_ALL;
  if (op->kind == OP_attention) {
    for (int k = 0; k < 3; k++) c->wanted[op->in[k]] |= 1u << OF_ALL;
    return;
  }
  if (is_margin(c, op) || is_over_tokens(c, op)) {
    c->wanted[op->in[0]] |= 1u << OF_ALL;
    for (int k = 1; k < op->nin; k++) c->wanted[op->in[k]] |= 1u << ENTIRE;
    return;
  }
  struct letters l;
  op_letters(op, &l);
  const struct token_letter t = letter_of_tokens(c, op, &l);
  for (int k = 0; k < op->nin; k++) {
    const struct along a = c->along[op->in[k]];
    if (a.dim != NONE) {
      c->wanted[op->in[k]] |=
          a.inner == 1 && !a.lead && a.size == c->length ? wanted : 1u << OF_ALL;
      continue;
    }
    const int d = dimension_with(&l, k, t.letter);
    if (d != NONE && (t.inner != 1 || l.in[k][d].n != 1))
      refuse(op, "reads a constant that has several elements for each token");
    for (int form = OF_ALL; form <= OF_LAST; form++)
      if (wanted >> form & 1)
        c->wanted[op->in[k]] |= 1u << (d == NONE        ? (int)ENTIRE
                                       : form == OF_ALL ? AT_ALL + d
                                                        : AT_LAST + d);
  }
}

/* ----------------------------------------------------------------------------------- an entry */

static struct op op_of(const struct entry *e, const struct op *origin, struct op op)
{
  op.module = origin->module;
  op.line = origin->line;
  op.part_of = origin->part_of;
  op.phase = e->phase;
  return op;
}

static int append_view(const struct entry *e, const struct op *origin, int value,
                       struct shape shape)
{
  if (same_shape(graph->value[value].shape, shape)) return value;
  const char *rule = view_equation(graph->value[value].shape, shape, origin->line);
  return append_op_shaped(
      op_of(e, origin, (struct op){.kind = OP_view, .nin = 1, .in = {value}, .equation = rule}),
      shape);
}

static int append_selected(const struct entry *e, const struct op *origin, int value, int dim,
                           int index)
{
  return append_op(op_of(
      e, origin,
      (struct op){.kind = OP_index_select, .nin = 2, .in = {value, index}, .dims = 1u << dim}));
}

/* The value in a form; it is made before. */
static int in_form(const struct cutting *c, struct entry *e, const struct op *reader, int value,
                   int form)
{
  if (value >= c->known) return value;
  const struct value *v = &graph->value[value];
  if (e->last == NONE && form == OF_LAST && c->along[value].dim != NONE) form = OF_ALL;
  if (e->last == NONE && form >= AT_LAST) form += AT_ALL - AT_LAST;
  int *made = &e->made[value][form];
  if (*made != NONE) return *made;
  if (c->along[value].dim != NONE && form == OF_LAST && e->made[value][OF_ALL] != NONE)
    return *made = append_selected(e, reader, e->made[value][OF_ALL], c->along[value].dim, e->last);
  if (c->along[value].dim == NONE && form == ENTIRE && v->op == NONE) return *made = value;
  if (c->along[value].dim == NONE && form >= AT_ALL) {
    const bool last = form >= AT_LAST;
    const int whole = in_form(c, e, reader, value, ENTIRE);
    return *made = append_selected(e, reader, whole, form - (last ? AT_LAST : AT_ALL),
                                   e->position[last]);
  }
  bug("cut_time", "%s is read before it is made", printable(value_name(value)));
}

static int append_permuted(const struct entry *e, const struct op *origin, int value,
                           const char *rule)
{
  return append_op(
      op_of(e, origin, (struct op){.kind = OP_permute, .nin = 1, .in = {value}, .equation = rule}));
}

/* A rule that moves one dimension: "abcd->dabc" for the last one to the front. */
static const char *moving(int ndim, int from, int to)
{
  struct buffer b = {0};
  for (int d = 0; d < ndim; d++) put(&b, "%c", 'a' + d);
  put(&b, "->");
  for (int d = 0, at = 0; d < ndim; d++) {
    if (at == from) at++;
    put(&b, "%c", 'a' + (d == to ? from : at++));
  }
  return b.text;
}

/* The value as rows of tokens: [sequences, their tokens, all else]. */
static int rows_of(const struct entry *e, const struct op *origin, int value, int dim)
{
  struct shape shape = graph->value[value].shape;
  if (dim) value = append_permuted(e, origin, value, moving(shape.ndim, dim, 0));
  const bool slots = e->last == NONE;
  const struct shape rows = {
      .ndim = 3,
      .size = {slots ? e->tokens : 1, slots ? 1 : e->tokens, elements(shape) / e->tokens}};
  return append_view(e, origin, value, rows);
}

/* And back: so many tokens of each sequence, as in the shape, which has the call's tokens. */
static int from_rows(const struct entry *e, const struct op *origin, int rows, struct shape shape,
                     int dim)
{
  struct shape first = {.ndim = shape.ndim, .size = {e->tokens}};
  for (int d = 0, at = 1; d < shape.ndim; d++)
    if (d != dim) first.size[at++] = shape.size[d];
  const int value = append_view(e, origin, rows, first);
  return dim ? append_permuted(e, origin, value, moving(shape.ndim, 0, dim)) : value;
}

static int add_cache(const struct op *op, const char *name, struct shape shape, enum type type,
                     const struct cutting *c)
{
  const char *path = op->module == NONE ? "" : graph->module[op->module].path;
  const char *full = text("%s%s%s", path, *path ? "." : "", name);
  for (int i = 2, again = 1; again; i++) { /* a module may have several */
    again = 0;
    for (int v = c->known; v < graph->nvalue && !again; v++)
      again = graph->value[v].role == CACHE && !strcmp(graph->value[v].name, full);
    if (again) full = text("%s%s%s_%d", path, *path ? "." : "", name, i);
  }
  return add_value(CACHE, full, type, shape, op->module == NONE ? 0 : op->module, op->line);
}

/* The cache of a value's last tokens, or of its sum so far, for both entries. A call of the first
   one may write as many tokens as it has, of which the last are none of the text: those that the
   next call reads are still there. */
static int cache_of(struct cutting *c, const struct op *origin, int value, const char *name,
                    int64_t back, int64_t width)
{
  int *kept = &c->kept[value];
  const struct shape shape = {
      .ndim = 3,
      .size = {plan_options->generate.slots, back + plan_options->generate.prefill, width}};
  if (*kept == NONE) *kept = add_cache(origin, name, shape, F32, c);
  return *kept;
}

/* The rows of the value's tokens in this call, after those of the `back` tokens before. */
static int append_recent(struct cutting *c, const struct entry *e, const struct op *origin,
                         int value, int made, int64_t back)
{
  const int x = rows_of(e, origin, made, c->along[value].dim);
  struct shape shape = graph->value[x].shape;
  const int cache = cache_of(c, origin, value, "recent", back, shape.size[2]);
  shape.size[1] += back;
  struct op op = {.kind = OP_recent, .nin = 4, .in = {x, cache, e->slot, e->start}};
  return append_op_shaped(op_of(e, origin, op), shape);
}

static int as_type_of(const struct entry *e, const struct op *origin, int made, int like)
{
  const enum type type = graph->value[like].type;
  if (graph->value[made].type == type) return made;
  const struct op op = {.kind = OP_cast, .nin = 1, .in = {made}, .type = type};
  return append_op(op_of(e, origin, op));
}

/* The value that a reader takes, at the call's own tokens: of a value with a lead, the element that
   so many tokens before have. */
static int own_tokens(struct cutting *c, struct entry *e, const struct op *reader, int value,
                      int form)
{
  const struct along a = c->along[value];
  if (value >= c->known || !a.lead || is_reshaped(reader))
    return in_form(c, e, reader, value, form);
  int *settled = &e->settled[value];
  if (*settled == NONE) {
    const int made = in_form(c, e, reader, value, OF_ALL);
    const int rows = append_recent(c, e, reader, value, made, a.lead);
    struct shape shape = graph->value[rows].shape;
    shape.size[1] -= a.lead;
    const struct op first = {.kind = OP_narrow, .nin = 1, .in = {rows}, .dims = 2};
    const int y = append_op_shaped(op_of(e, reader, first), shape);
    *settled =
        as_type_of(e, reader, from_rows(e, reader, y, graph->value[made].shape, a.dim), value);
  }
  if (form != OF_LAST || e->last == NONE) return *settled;
  return append_selected(e, reader, *settled, a.dim, e->last);
}

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
    for (int i = 0; i < op->nin; i++) whole.in[i] = in_form(c, e, op, op->in[i], ENTIRE);
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
        const int d = dimension_with(&l, i, letter);
        own.in[i] = in_form(c, e, op, op->in[i], d == NONE ? (int)ENTIRE : base + d);
      }
      e->made[v][form] =
          append_own(e, op, own, &dim, (const int64_t[]){1}, last ? OF_LAST : OF_ALL);
    }
  }
}

/* Whether a constant of the second entry is wanted along a dimension of which the first one wants
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

/* Attention over the caches. The new tokens of a call of the second entry are of a slot each: to
   the operator they are as many sequences of one token. */
static void make_attention(struct cutting *c, struct entry *e, int i)
{
  const struct op *op = &graph->op[i];
  const bool by_slot = e->last == NONE && e->tokens > 1;
  int in[3];
  struct shape s[3];
  for (int k = 0; k < 3; k++) {
    in[k] = own_tokens(c, e, op, op->in[k], OF_ALL);
    if (by_slot) in[k] = append_permuted(e, op, in[k], "abcd->cbad");
    s[k] = graph->value[in[k]].shape;
  }
  struct caches *kept = &c->caches[i];
  const int64_t groups = s[1].size[1];
  if (kept->k == NONE) {
    const enum type type = number_of(&graph->op[c->text], "bfloat16") ? BF16 : F32;
    struct shape cache = {.ndim = 4,
                          .size = {plan_options->generate.slots, groups,
                                   plan_options->generate.context, s[1].size[3]}};
    kept->k = add_cache(op, "k", cache, type, c);
    cache.size[3] = s[2].size[3];
    kept->v = add_cache(op, "v", cache, type, c);
  }
  const int64_t each = s[0].size[1] / groups;
  struct shape grouped = {.ndim = 5,
                          .size = {s[0].size[0], groups, each, s[0].size[2], s[0].size[3]}};
  const int queries = append_view(e, op, in[0], grouped);
  grouped.size[4] = s[2].size[3];
  struct op cached =
      op_of(e, op,
            (struct op){.kind = OP_cached_attention,
                        .nin = 7,
                        .in = {queries, in[1], in[2], kept->k, kept->v, e->slot, e->start},
                        .scalar = op->scalar});
  set_number(&cached, "window", c->window[i]);
  int y = append_op_shaped(cached, grouped);
  y = as_type_of(e, op, y, op->out);
  const struct shape together = {.ndim = 4,
                                 .size = {s[0].size[0], s[0].size[1], s[0].size[2], s[2].size[3]}};
  y = append_view(e, op, y, together);
  if (by_slot) y = append_permuted(e, op, y, "abcd->cbad");
  graph->value[y].name = graph->value[op->out].name;
  e->made[op->out][OF_ALL] = y;
}

/* The convolution over the call's tokens and the last ones before. Slots are as many sequences. */
static void make_convolution(struct cutting *c, struct entry *e, const struct op *op)
{
  const struct shape weight = graph->value[op->in[1]].shape;
  const int64_t back = (weight.size[3] - 1) * number_of(op, "dilation_x");
  const int made = in_form(c, e, op, op->in[0], OF_ALL);
  int x = append_recent(c, e, op, op->in[0], made, back);
  const struct shape rows = graph->value[x].shape;
  x = append_permuted(e, op, x, "abc->acb");
  x = append_view(e, op, x,
                  (struct shape){.ndim = 4, .size = {rows.size[0], rows.size[2], 1, rows.size[1]}});
  struct op own = *op;
  own.phase = e->phase;
  own.in[0] = as_type_of(e, op, x, op->in[0]);
  own.in[1] = in_form(c, e, op, op->in[1], ENTIRE);
  set_number(&own, "pad_x", 0);
  const struct shape shape = {.ndim = 4,
                              .size = {rows.size[0], weight.size[0], 1, rows.size[1] - back}};
  int y = append_op_shaped(own, shape);
  if (rows.size[0] > 1) y = append_permuted(e, op, y, "abcd->dbca");
  graph->value[y].name = graph->value[op->out].name;
  e->made[op->out][OF_ALL] = y;
}

static void make_sum(struct cutting *c, struct entry *e, const struct op *op)
{
  const int dim = c->along[op->in[0]].dim;
  const int made = own_tokens(c, e, op, op->in[0], OF_ALL), x = rows_of(e, op, made, dim);
  const struct shape shape = graph->value[x].shape;
  const int cache = cache_of(c, op, op->out, "sum", 1, shape.size[2]);
  const struct op sum = {.kind = OP_running_sum, .nin = 4, .in = {x, cache, e->slot, e->start}};
  const int y = append_op_shaped(op_of(e, op, sum), shape);
  e->made[op->out][OF_ALL] =
      as_type_of(e, op, from_rows(e, op, y, graph->value[made].shape, dim), op->out);
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
  if (is_margin(c, op)) {
    e->made[op->out][OF_ALL] = in_form(c, e, op, op->in[0], OF_ALL);
    return;
  }
  if (is_over_tokens(c, op)) {
    (op->kind == OP_cumsum ? make_sum : make_convolution)(c, e, op);
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
    const int d = dimension_with(&l, k, t.letter);
    const bool of_tokens = c->along[op->in[k]].dim != NONE;
    own.in[k] = of_tokens ? own_tokens(c, e, op, op->in[k], form)
                          : in_form(c, e, op, op->in[k],
                                    d == NONE        ? (int)ENTIRE
                                    : form == OF_ALL ? AT_ALL + d
                                                     : AT_LAST + d);
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
  int y = in_form(c, e, op, value, OF_LAST);
  struct shape shape = graph->value[y].shape;
  if (e->last == NONE) { /* the sequences of the entry are the slots */
    shape.size[0] = e->tokens;
    shape.size[1] = 1;
    y = append_view(e, op, y, shape);
  }
  if (graph->value[y].type != F32)
    y = append_op(op_of(e, op, (struct op){.kind = OP_cast, .nin = 1, .in = {y}, .type = F32}));
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
  if (cut.asked) y = append_op(op_of(e, op, cut));
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

/* The calls of modules in the entry, whose operations are there; styles are of them. at[i]: where
   the operations for the i-th one begin in the order. */
static void add_calls(const struct cutting *c, const struct entry *e, const int *at)
{
  int *number = alloc((size_t)(c->ncall + 1) * sizeof *number);
  for (int i = 0; i < c->ncall; i++) {
    struct call call = c->call[i];
    call.first = at[call.first];
    call.last = at[call.last];
    call.parent = call.parent == NONE ? NONE : number[call.parent];
    bool complete = true;
    for (int k = 0; k < call.nin; k++)
      complete &= (call.in[k] = first_made(c, e, call.in[k])) != NONE;
    for (int k = 0; k < call.nout; k++)
      complete &= (call.out[k] = first_made(c, e, call.out[k])) != NONE;
    if (!complete) {
      call.nin = call.nout = 0;
    }
    number[i] = graph->ncall;
    GROW(graph->call, graph->ncall, graph->call_room);
    graph->call[graph->ncall++] = call;
  }
}

static void make_entry(struct cutting *c, struct entry *e)
{
  e->made = alloc((size_t)c->known * sizeof *e->made);
  for (int v = 0; v < c->known; v++)
    for (int form = 0; form < FORMS; form++) e->made[v][form] = NONE;
  e->settled = alloc((size_t)c->known * sizeof *e->settled);
  for (int v = 0; v < c->known; v++) e->settled[v] = NONE;
  int *at = alloc((size_t)(c->n + 1) * sizeof *at);
  for (int i = 0; i < c->n; i++) {
    at[i] = graph->norder;
    const struct op op = graph->op[c->op[i]]; /* a copy: operations are added */
    if (c->op[i] == c->text)
      e->made[op.out][OF_ALL] = e->own;
    else if (is_constant(c, &op))
      make_constant(c, e, &op);
    else
      make_of_tokens(c, e, c->op[i]);
  }
  at[c->n] = graph->norder;
  for (int i = 0; i < c->outputs.n; i++) add_output(c, e, c->outputs.at[i]);
  add_calls(c, e, at);
}

/* ------------------------------------------------------------------------------------ the pass */

static int number_op(const struct entry *e, const struct op *origin, double number)
{
  return append_op_shaped(
      op_of(e, origin, (struct op){.kind = OP_full, .type = I32, .scalar = number}),
      (struct shape){0});
}

/* The positions of a call's tokens, from the start; none is beyond the context. */
static int positions_from(const struct cutting *c, const struct entry *e, int start)
{
  const struct op *text_op = &graph->op[c->text];
  struct op op = {
      .kind = OP_minimum, .nin = 2, .in = {start, number_op(e, text_op, (double)(c->length - 1))}};
  return append_op(op_of(e, text_op, op));
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
  const int index =
      append_op_shaped(op_of(e, &text_op, (struct op){.kind = OP_index, .dims = 1, .type = I32}),
                       (struct shape){.ndim = 1, .size = {e->tokens}});
  const int place =
      append_op(op_of(e, &text_op, (struct op){.kind = OP_add, .nin = 2, .in = {e->start, index}}));
  e->position[OF_ALL] = positions_from(c, e, place);
  e->position[OF_LAST] = append_selected(e, &text_op, e->position[OF_ALL], 0, e->last);
}

static void begin_decode(const struct cutting *c, struct entry *e)
{
  const struct op text_op = graph->op[c->text];
  *e = (struct entry){.phase = DECODE,
                      .name = "decode",
                      .slot = text_op.in[5],
                      .start = text_op.in[6],
                      .last = NONE};
  struct shape shape = graph->value[text_op.in[4]].shape; /* [slots, 1] */
  e->tokens = shape.size[0];
  shape.size[0] = 1;
  shape.size[1] = e->tokens;
  e->own = append_view(e, &text_op, text_op.in[4], shape);
  e->position[OF_ALL] = e->position[OF_LAST] = positions_from(c, e, e->start);
}

/* A model also makes what only its training reads. */
static void find_live(struct cutting *c)
{
  bool *is_read = alloc((size_t)c->known * sizeof *is_read);
  for (int v = 0; v < c->known; v++) is_read[v] = graph->value[v].is_output;
  for (int i = c->n - 1; i >= 0; i--) {
    const struct op *op = &graph->op[c->op[i]];
    for (int k = 0; k < op->nout; k++) c->live[c->op[i]] |= is_read[op->out + k];
    for (int k = 0; k < op->nin && c->live[c->op[i]]; k++) is_read[op->in[k]] = true;
  }
}

static int find_text(void)
{
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].kind == OP_whole_text) return graph->order[i];
  return NONE;
}

void cut_time(void)
{
  struct cutting c = {.text = find_text(),
                      .known = graph->nvalue,
                      .n = graph->norder,
                      .op = graph->order,
                      .ncall = graph->ncall,
                      .call = graph->call};
  if (c.text == NONE) return;
  c.length = graph->value[graph->op[c.text].out].shape.size[1];
  c.along = alloc((size_t)c.known * sizeof *c.along);
  c.wanted = alloc((size_t)c.known * sizeof *c.wanted);
  c.counts = alloc((size_t)c.known * sizeof *c.counts);
  c.live = alloc((size_t)graph->nop * sizeof *c.live);
  c.kept = alloc((size_t)c.known * sizeof *c.kept);
  for (int v = 0; v < c.known; v++) c.kept[v] = NONE;
  c.caches = alloc((size_t)graph->nop * sizeof *c.caches);
  c.window = alloc((size_t)graph->nop * sizeof *c.window);
  for (int v = 0; v < c.known; v++) c.along[v] = (struct along){NONE, 1, 0, 0, 0};
  for (int i = 0; i < graph->nop; i++) c.caches[i] = (struct caches){NONE, NONE};
  find_live(&c);
  for (int i = 0; i < c.n; i++)
    if (c.live[c.op[i]]) find_tokens(&c, c.op[i]);
  for (int v = 0; v < c.known; v++) {
    if (!graph->value[v].is_output) continue;
    if (c.along[v].dim != 1 || c.along[v].inner != 1)
      plan_error(graph->value[v].line, "generate: the logits do not depend on the tokens");
    need_settled(&c, &graph->op[graph->value[v].op], c.along[v]);
    graph->value[v].is_output = false;
    c.wanted[v] |= 1u << OF_LAST;
    add(&c.outputs, v);
  }
  /* The second entry takes the last token of each slot: all of its own. */
  graph->order = NULL;
  graph->call = NULL;
  graph->norder = graph->order_room = graph->ncall = graph->call_room = 0;
  for (int i = c.n - 1; i >= 0; i--) want_inputs(&c, c.op[i]);
  struct entry e;
  begin_prefill(&c, &e);
  make_entry(&c, &e);
  widen_for_slots(&c);
  begin_decode(&c, &e);
  make_entry(&c, &e);
}
