/* rule.c: the rules of ops.h. Applies a rule (rule_text.c) to an operation's operands: finds the
   letters and the size of each dimension. choices.c derives from the letters how the operation may
   be cut. */
#include "ir/ir.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* An operation's rule: the rule's operand for each input, also where one is repeated. */
struct reading {
  const struct rule *rule;
  int nin;
  const struct rule_operand *in[MAX_INPUTS];
};

/* The operand of a lone scalar in a rule without inputs. */
static const struct rule_operand nothing = {.type = NONE};

static struct reading read_rule(const struct op *op)
{
  /* The parsed rule. Most operations of a kind have the same text. */
  static _Thread_local struct {
    const char *text;
    const struct rule *rule;
  } last[OP_COUNT];
  const char *text = rule_of(op);
  const struct rule *r = last[op->kind].rule;
  if (last[op->kind].text != text) {
    last[op->kind].text = text;
    r = last[op->kind].rule = scanned_rule(text);
  }
  if (!r) bug("rule", "%s: '%s' is not a rule", op_name(op), rule_of(op));
  struct reading reading = {.rule = r};
  for (int i = 0; i < r->nin; i++) {
    int times = r->in[i].repeated ? op->nin - r->nin + 1 : 1;
    while (times-- > 0 && reading.nin < MAX_INPUTS) reading.in[reading.nin++] = &r->in[i];
  }
  if (r->nin == 0 && op->nin == 1) reading.in[reading.nin++] = &nothing;
  if (reading.nin != op->nin)
    plan_error(op->line, "%s takes %d inputs, by its rule %s, not %d", printable(op_name(op)),
               r->nin, printable(rule_of(op)), op->nin);
  return reading;
}

int rule_type(const struct op *op, int k)
{
  return read_rule(op).rule->out[k].type;
}

/* ---------------------------------------------------------------------- letters of the operands */

/* One operand while its letters are found. ndim is NONE for an output not made yet. */
struct place {
  const struct rule_operand *operand;
  struct axis *axis;
  int *ndim;
};

/* The state of find_letters, in this thread. */
static _Thread_local const struct op *op;
static _Thread_local struct letters *found;
static _Thread_local struct reading rule;
static _Thread_local int number[MAX_LETTERS];  /* of letters with one name: their index */
static _Thread_local int nbatch, ncapital;     /* dimensions of `...`, and of a capital letter */
static _Thread_local int seen_in[MAX_LETTERS]; /* the input that gave the size */

static bool rule_has_capital(void)
{
  for (int i = 0; i < rule.nin; i++)
    if (operand_has(rule.in[i], is_capital_dimension)) return true;
  for (int k = 0; k < rule.rule->nout; k++)
    if (operand_has(&rule.rule->out[k], is_capital_dimension)) return true;
  return false;
}

/* The number of an operand's dimensions outside `...`. A capital letter next to `...` means as many
   as the operation names; otherwise one. An operand without the capital letter has dimensions of
   size 1 there, if the operation keeps them. */
static int named_dimensions(const struct rule_operand *o)
{
  bool rest = operand_has(o, is_rest_dimension);
  int n = 0;
  for (int i = 0; i < o->n; i++) {
    if (is_rest_dimension(&o->dimension[i])) continue;
    n += rest && is_capital_dimension(&o->dimension[i]) ? ncapital : 1;
  }
  if (rest && op->keepdim && !operand_has(o, is_capital_dimension)) n += ncapital;
  return n;
}

/* A kernel of an operator's own treats `...` as one dimension. */
static _Noreturn void no_broadcast(int i)
{
  plan_error(
      op->line,
      "%s: its input %c, %s, would be broadcast, and an operator with kernels of its own does "
      "not broadcast: expand it",
      printable(op_name(op)), 'a' + i, shape_text(graph->value[op->in[i]].shape));
}

static void put_axis(const struct place *p, const struct rule_dimension *d, int which)
{
  if (*p->ndim == MAX_DIMS)
    plan_error(op->line, "%s: a tensor has at most %d dimensions", printable(op_name(op)),
               MAX_DIMS);
  struct axis *axis = &p->axis[(*p->ndim)++];
  axis->n = d->n;
  for (int i = 0; i < d->n; i++) {
    const struct rule_letter *t = &d->term[i];
    int k = 0;
    while (k < found->n && (found->name[k] != t->name || number[k] != which)) k++;
    if (k == found->n) {
      if (k == MAX_LETTERS)
        plan_error(op->line, "%s: more than %d different dimensions", printable(op_name(op)), k);
      found->name[k] = t->name;
      number[k] = which;
      seen_in[k] = NONE;
      found->n++;
    }
    found->whole[k] |= t->whole;
    found->gets_start[k] |= t->gets_start;
    if (t->size) found->size[k] = t->size;
    axis->letter[i] = k;
  }
}

static void put_operand(const struct place *p, int rest)
{
  *p->ndim = 0;
  bool among = operand_has(p->operand, is_rest_dimension);
  for (int i = 0; i < p->operand->n; i++) {
    const struct rule_dimension *d = &p->operand->dimension[i];
    if (is_rest_dimension(d)) {
      /* `...` with the capital letter in it: `rest` dimensions and those at op->dims. */
      static const struct rule_dimension one = {0};
      const struct rule_dimension *capital = NULL;
      for (int j = 0; j < p->operand->n; j++)
        if (is_capital_dimension(&p->operand->dimension[j])) capital = &p->operand->dimension[j];
      bool ones = !capital && op->keepdim;
      int all = rest + (capital || ones ? ncapital : 0), at = 0, which = 0;
      for (int j = 0; j < all; j++) {
        if (all > rest && op->dims >> j & 1)
          put_axis(p, capital ? capital : &one, which++);
        else
          put_axis(p, d, nbatch - rest + at++);
      }
    } else if (!among || !is_capital_dimension(d))
      put_axis(p, d, 0);
  }
}

static void put_input(int i)
{
  struct place p = {rule.in[i], found->in[i], &found->ndim_in[i]};
  put_operand(&p, graph->value[op->in[i]].shape.ndim - named_dimensions(p.operand));
}

/* ------------------------------------------------------------------------------- letters' sizes */

/* The i-th operand's shape: the inputs, then the outputs as far as they are made. */
static struct shape operand_shape(int i)
{
  return graph->value[nth_operand(op, i)].shape;
}

static const struct axis *operand_axis(int i, int d)
{
  return &operand_axes(op, found, i)[d];
}

/* The sizes of a repeated operand may differ in the dimension along which parts are joined. */
static bool may_differ(int letter)
{
  for (int i = 0; i < rule.nin; i++)
    if (rule.in[i]->repeated) return found->whole[letter];
  return false;
}

/* Sets the letter's size from one dimension of operand i. In `...` a size of 1 broadcasts. */
static void meet(int letter, int64_t size, int i)
{
  int64_t *known = &found->size[letter];
  bool rest = found->name[letter] == '.';
  if (rest && has_kernel(op->kind) && *known && *known != size && (*known == 1 || size == 1))
    no_broadcast(size == 1 || seen_in[letter] == NONE ? i : seen_in[letter]);
  if (*known == 0 || (rest && *known == 1)) {
    *known = size;
    seen_in[letter] = i;
  } else if (*known != size && !may_differ(letter) && !(rest && size == 1)) {
    struct shape a = operand_shape(seen_in[letter] == NONE ? i : seen_in[letter]);
    struct shape b = operand_shape(i);
    if (found->name[letter] == '.')
      plan_error(op->line,
                 "%s: shapes %s and %s do not fit: sizes %" PRId64 " and %" PRId64
                 " at dimension %d from the end",
                 printable(op_name(op)), shape_text(a), shape_text(b), found->size[letter], size,
                 nbatch - number[letter]);
    plan_error(op->line, "%s: shapes %s and %s do not fit: %" PRId64 " is not %" PRId64,
               printable(op_name(op)), shape_text(a), shape_text(b), found->size[letter], size);
  }
}

/* Solves a merged dimension for its one unknown letter; false if several are unknown. */
static bool solve_merged(const struct axis *axis, int64_t size, int i)
{
  int64_t known = 1;
  int unknown = NONE, missing = 0;
  for (int k = 0; k < axis->n; k++) {
    if (found->size[axis->letter[k]])
      known *= found->size[axis->letter[k]];
    else {
      unknown = axis->letter[k];
      missing++;
    }
  }
  if (missing > 1) return false;
  if (missing ? size % known != 0 : known != size)
    plan_error(op->line, "%s: shape %s does not fit: a dimension of %" PRId64 " is not %s%" PRId64,
               printable(op_name(op)), shape_text(operand_shape(i)), size,
               missing ? "a multiple of " : "", known);
  if (missing) meet(unknown, size / known, i);
  return true;
}

static void find_sizes(void)
{
  for (int i = 0; i < operand_count(op); i++)
    for (int d = 0; d < operand_shape(i).ndim; d++)
      if (operand_axis(i, d)->n == 1)
        meet(operand_axis(i, d)->letter[0], operand_shape(i).size[d], i);
  for (int round = 0; round < MAX_LETTERS; round++) {
    bool solved = true;
    for (int i = 0; i < operand_count(op); i++)
      for (int d = 0; d < operand_shape(i).ndim; d++)
        if (operand_axis(i, d)->n > 1)
          solved &= solve_merged(operand_axis(i, d), operand_shape(i).size[d], i);
    if (solved) return;
  }
  plan_error(op->line, "%s: the rule %s does not say how its merged dimensions are made up",
             printable(op_name(op)), printable(rule_of(op)));
}

static void drop_ones(struct axis *axis, int64_t size)
{
  int n = 0;
  bool broadcast = axis->n == 1 && size == 1;
  for (int i = 0; i < axis->n; i++)
    if (found->size[axis->letter[i]] != 1 && !broadcast) axis->letter[n++] = axis->letter[i];
  axis->n = n;
}

/* In one operand the letter becomes two, outer and inner. */
static void split_in(struct axis *axis, int ndim, int letter, int inner)
{
  for (int d = 0; d < ndim; d++)
    for (int k = 0; k < axis[d].n && axis[d].n < MAX_DIMS; k++) {
      if (axis[d].letter[k] != letter) continue;
      for (int m = axis[d].n++; m > k + 1; m--) axis[d].letter[m] = axis[d].letter[m - 1];
      axis[d].letter[k + 1] = inner;
    }
}

static void split_at_stride(int dim, int64_t stride)
{
  const struct axis *axis = &found->in[0][dim];
  int64_t outside = 1;
  for (int k = 0; k < axis->n; outside *= found->size[axis->letter[k++]]) {
    int letter = axis->letter[k];
    int64_t size = found->size[letter], outer = stride / outside;
    if (stride <= outside || stride >= outside * size) continue;
    /* A view of a strided shard: letters end where the strides do. */
    if (!found->whole[letter] && stride % outside == 0 && size % outer == 0 &&
        found->n != MAX_LETTERS) {
      int inner = found->n++;
      found->size[inner] = found->size[letter] / outer;
      found->size[letter] = outer;
      found->name[inner] = found->name[letter];
      split_in(found->in[0], found->ndim_in[0], letter, inner);
      split_in(found->out[0], found->ndim_out[0], letter, inner);
    }
    return;
  }
}

static void find_letters(const struct op *of, struct letters *l)
{
  op = of;
  found = l;
  rule = read_rule(op);
  nbatch = 0;
  ncapital = rule_has_capital() ? __builtin_popcount(op->dims) : 0;
  for (int i = 0; i < rule.nin; i++) {
    int ndim = graph->value[op->in[i]].shape.ndim, rest = ndim - named_dimensions(rule.in[i]);
    if (rest < 0 || (rest > 0 && !operand_has(rule.in[i], is_rest_dimension)))
      plan_error(op->line, "%s: input %d has shape %s, which does not fit the rule %s",
                 printable(op_name(op)), i, shape_text(graph->value[op->in[i]].shape),
                 printable(rule_of(op)));
    if (rest > nbatch) nbatch = rest;
  }
  for (int i = 0; i < rule.nin && has_kernel(op->kind); i++) {
    int rest = graph->value[op->in[i]].shape.ndim - named_dimensions(rule.in[i]);
    if (operand_has(rule.in[i], is_rest_dimension) && rest != nbatch) no_broadcast(i);
  }
  if (op->nin == 0 && op->nout && operand_has(&rule.rule->out[0], is_rest_dimension))
    nbatch = graph->value[op->out].shape.ndim - named_dimensions(&rule.rule->out[0]);
  /* The operand that gives the iteration space is first, so that its letters are in order. */
  bool reduces = is_reduce(op->kind);
  found->nout = rule.rule->nout;
  if (reduces) put_input(0);
  for (int k = 0; k < rule.rule->nout; k++) {
    struct place p = {&rule.rule->out[k], found->out[k], &found->ndim_out[k]};
    put_operand(&p, nbatch);
    found->reduction[k] = p.operand->reduction;
    found->type[k] = p.operand->type;
  }
  for (int i = reduces; i < rule.nin; i++) put_input(i);
  for (int i = 0; i < rule.nin; i++)
    for (int letter = 0; letter < found->n; letter++)
      if (strchr(rule.in[i]->summed, found->name[letter])) found->summed[i] |= 1u << letter;
  for (int k = 0; k < op->nout; k++)
    if (l->ndim_out[k] != graph->value[op->out + k].shape.ndim)
      plan_error(op->line, "%s: output %d has shape %s, which does not fit the rule %s",
                 printable(op_name(op)), k, shape_text(graph->value[op->out + k].shape),
                 printable(rule_of(op)));
  find_sizes();
  for (int i = 0; i < op->nin; i++)
    for (int d = 0; d < l->ndim_in[i]; d++)
      drop_ones(&l->in[i][d], graph->value[op->in[i]].shape.size[d]);
  for (int k = 0; k < l->nout; k++)
    for (int d = 0; d < l->ndim_out[k]; d++) drop_ones(&l->out[k][d], 0);
  if (op->kind == OP_view) {
    struct layout lies = graph->value[op->in[0]].layout;
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (lies.on[d].kind == SHARD && lies.on[d].outer > 1)
        split_at_stride(lies.on[d].dim, lies.on[d].outer);
  }
}

void op_letters(const struct op *of, struct letters *l)
{
  static _Thread_local struct memo memo;
  static _Thread_local struct query q;
  bool is_new;
  /* Everything that determines an operation's letters. */
  begin_query(&q);
  ask_rule(&q, of);
  if (of->kind == OP_custom) ask_text(&q, rule_of(of));
  for (int i = 0; i < operand_count(of); i++) ask_value(&q, &graph->value[nth_operand(of, i)]);
  if (of->kind == OP_view) ask_layout(&q, &graph->value[of->in[0]].layout);
  struct letters *answer = answer_to(&memo, &q, sizeof *answer, &is_new);
  if (is_new) find_letters(of, answer);
  *l = *answer;
}
