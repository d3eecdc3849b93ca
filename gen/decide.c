/* decide.c: how one operation runs: where it takes its inputs, and where its outputs lie.

   What runs as its inputs lie, cut over some dimension of the mesh, runs so there: work that the
   plan divided is not done twice to save a few bytes. Else, of all combinations of legal ways over
   the dimensions of the mesh (choices.c), the one that moves the fewest bytes wins, counting also
   what the plan asks of the output, or else what the operation that takes it will cost at least.
   What training gathers again in the backward, because the forward cut a sum that was pending, is
   a collective more: as many bytes as its link carries while one starts, so that small sums are
   made whole at once. Ties go to the one that turns fewer whole values into pending sums, then to
   the one that moves fewer of the inputs and outputs, then to the one that leaves a gradient as its
   value lies, then to the first in the order of the choices: the same on every machine. Where
   DTensor's rules (einop.c) say that an operation runs as its inputs lie, that is taken as it is.
   What was decided once is remembered: equal layers cost one decision.

   Where nothing but replication is legal, a sharded input is the plan's error, unless the plan made
   it whole itself: nothing is replicated in silence. */
#include "decide.h"

#include <math.h>
#include <string.h>

/* What is known around the operation that is decided. */
static const struct surroundings *known;

struct layout layout_after(const struct op *op, struct layout now)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (op->asked >> i & 1 && (!op->finishes || now.on[i].kind == PARTIAL))
      now.on[i] = op->to.on[i];
  return usual_turns(now);
}

/* Not from a shard to a pending sum, nor from one kind of pending value to another: it moves
   nothing, but each rank would work on all of it then, most of it zeros. */
bool leads(struct placement from, struct placement to)
{
  return to.kind != PARTIAL || same_placement(from, to) || from.kind == REPLICATE;
}

/* A redistribution that changes no type, of the gradient neither. */
static bool is_plain_move(const struct op *op)
{
  enum type type = graph->value[op->in[0]].type;
  return !is_floating(type) || (op->type == type && op->backward_type == type);
}

int moved_before_to(const struct surroundings *around, int value, struct layout to)
{
  for (int i = around->moved_to[value]; i != NONE; i = around->moved_before[i])
    if (is_plain_move(&graph->op[i]) && same_layout(graph->value[graph->op[i].out].layout, to))
      return graph->op[i].out;
  return NONE;
}

/* Whether the value is at hand in this layout. */
static bool is_there(int value, struct layout layout)
{
  if (same_layout(graph->value[value].layout, layout)) return true;
  return moved_before_to(known, value, layout) != NONE;
}

/* The gathers of the backward that this way leads to where an operation of the forward takes or
   leaves a value that is cut after, and was of this kind before. */
static double gathered_again(const struct op *op, enum placement_kind kind, struct layout from,
                             struct layout to)
{
  double bytes = 0;
  if (graph->loss == NONE || op->phase != FORWARD) return 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == kind && to.on[d].kind == SHARD && graph->mesh.size[d] > 1)
      bytes += round(link_latency(d) * link_bandwidth(d));
  return bytes;
}

/* What the plan asks of an output: one redistribution after another, each in its type. */
static void add_asked(struct price *p, const struct op *op, int value, struct layout out)
{
  for (int r = known->asked_of[value]; r != NONE; r = known->asked_of[graph->op[r].out]) {
    const struct value *v = &graph->value[graph->op[r].out];
    struct layout next = layout_after(&graph->op[r], out);
    p->refused += !reductions_agree(next);
    p->moves += !same_layout(out, next);
    p->bytes += move_cost(v->shape, v->type, out, next);
    p->bytes += gathered_again(op, REPLICATE, out, next);
    out = next;
  }
}

static int lies_apart(int value, struct layout out)
{
  int of = graph->value[value].of, apart = 0;
  if (of == NONE) return 0;
  struct layout like = graph->value[of].layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    apart += like.on[d].kind == SHARD && !same_placement(like.on[d], out.on[d]);
  return apart;
}

struct price price_of_operand(const struct op *op, int o, struct layout layout)
{
  struct price p = {0};
  if (o >= op->nin) {
    int value = op->out + o - op->nin;
    add_asked(&p, op, value, layout);
    p.apart = lies_apart(value, layout);
    return p;
  }
  const struct value *v = &graph->value[op->in[o]];
  if (is_there(op->in[o], layout)) return p;
  p.moves = 1;
  p.bytes = move_cost(v->shape, v->type, v->layout, layout);
  p.bytes += gathered_again(op, PARTIAL, v->layout, layout);
  for (int d = 0; d < graph->mesh.ndim; d++)
    p.sums += layout.on[d].kind == PARTIAL && v->layout.on[d].kind != PARTIAL;
  return p;
}

const struct op *taken_next(const struct op *op)
{
  if (op->nout != 1 || known->asked_of[op->out] != NONE || known->taken_by[op->out] == NONE)
    return NULL;
  const struct op *user = &graph->op[known->taken_by[op->out]];
  for (int i = 0; i < user->nin; i++)
    if (user->in[i] != op->out && !graph->value[user->in[i]].placed) return NULL;
  return *rule_of(user) ? user : NULL;
}

/* ---------------------------------------------------------------------------- as the inputs lie */

/* DTensor's rules know neither pending maxima, nor strides, nor one dimension cut twice, and take a
   stretched dimension of size 1 for one that is summed. */
static bool is_plain(const struct value *v)
{
  unsigned cut = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = v->layout.on[d];
    if (p.kind == PARTIAL && p.reduction != SUM) return false;
    if (p.kind != SHARD) continue;
    if (p.outer > 1 || cut >> p.dim & 1 || v->shape.size[p.dim] == 1) return false;
    cut |= 1u << p.dim;
  }
  return true;
}

/* Whether all inputs may be pending sums together, which is what DTensor's rules call linear. */
static bool is_linear(const struct op *op)
{
  const char *c = linear_of(op);
  size_t n = strcspn(c, "|");
  return n == (size_t)op->nin && !strchr(c, ':') && !strncmp(c, "abcdefgh", n);
}

struct answer {
  bool runs;
  struct layout out;
};

static struct answer ask_rules(const struct op *op)
{
  struct ruled ruled = {.nin = op->nin, .linear = is_linear(op)};
  for (int i = 0; i < op->nin; i++) {
    ruled.shape[i] = graph->value[op->in[i]].shape;
    ruled.layout[i] = graph->value[op->in[i]].layout;
  }
  bool product = op->kind == OP_matmul;
  struct ruling r = product ? einop_rule(op->equation, &ruled, NULL) : pointwise_rule(&ruled);
  return (struct answer){r.what == RULE_RUNS, r.out};
}

/* What DTensor's rules say of the operation as its inputs lie: asked once of equal ones. */
static const struct answer *answer_of_rules(const struct op *op)
{
  static struct memo asked;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_rule(&q, op);
  for (int i = 0; i < op->nin; i++) {
    ask_value(&q, &graph->value[op->in[i]]);
    ask_layout(&q, &graph->value[op->in[i]].layout);
  }
  struct answer *answer = answer_to(&asked, &q, sizeof *answer, &is_new);
  if (is_new) *answer = ask_rules(op);
  return answer;
}

/* Whether the operation runs as its inputs lie, by DTensor's rules, and nothing is asked of what it
   makes. */
static bool runs_as_it_lies(const struct op *op, struct way *way)
{
  if (op->kind != OP_matmul && !is_broadcast(op->kind)) return false;
  if (known->asked_of[op->out] != NONE) return false;
  for (int i = 0; i < op->nin; i++) {
    if (!is_plain(&graph->value[op->in[i]])) return false;
    way->in[i] = graph->value[op->in[i]].layout;
  }
  const struct answer *answer = answer_of_rules(op);
  way->out[0] = answer->out;
  return answer->runs;
}

/* ----------------------------------------------------------------------------- what was decided */

/* All that a decision depends on is a question; the decisions are its answers. */
static struct memo memo;

/* An input, and where it was moved to before; the same one twice is told. */
static void ask_input(struct query *q, const struct op *op, int i)
{
  const struct value *v = &graph->value[op->in[i]];
  ask_value(q, v);
  ask_layout(q, &v->layout);
  for (int k = 0; k < i; k++) ask_number(q, op->in[k] == op->in[i]);
  for (int m = known->moved_to[op->in[i]]; m != NONE; m = known->moved_before[m])
    ask_layout(q, &graph->value[graph->op[m].out].layout);
  ask_number(q, NONE);
}

static void ask_op(struct query *q, const struct op *op)
{
  ask_rule(q, op);
  for (int i = 0; i < op->nin; i++) ask_input(q, op, i);
  for (int k = 0; k < op->nout; k++) {
    ask_value(q, &graph->value[op->out + k]);
    for (int r = known->asked_of[op->out + k]; r != NONE; r = known->asked_of[graph->op[r].out]) {
      ask_number(q, graph->op[r].asked);
      ask_number(q, (int64_t)graph->value[graph->op[r].out].type);
      ask_layout(q, &graph->op[r].to);
    }
    ask_number(q, NONE);
  }
}

/* And what the operation ahead depends on. */
static void ask_with_ahead(struct query *q, const struct op *op)
{
  const struct op *ahead = op_ahead(op);
  begin_query(q);
  ask_op(q, op);
  if (!ahead) return;
  ask_op(q, ahead);
  for (int i = 0; i < ahead->nin; i++) {
    ask_number(q, ahead->in[i] == op->out);
    for (int k = 0; k < op->nin; k++) ask_number(q, ahead->in[i] == op->in[k]);
  }
}

/* ----------------------------------------------------------------------------------- strictness */

static bool may_be_cut(const struct op *op, const struct letters *l, const struct choice *list,
                       int n, int mesh_dim)
{
  for (int c = 0; c < n; c++) {
    int pick[MAX_MESH] = {0};
    pick[mesh_dim] = c;
    if (list[c].letter != NONE && fits_together(l, op->nin, list, pick)) return true;
  }
  return false;
}

/* A sharded input is made whole because nothing else is legal: the plan has to say so itself. */
static void forbid_silence(const struct op *op, const struct letters *l, const struct choice *list,
                           int n, const struct way *way)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    for (int i = 0; i < op->nin; i++) {
      const struct value *v = &graph->value[op->in[i]];
      struct placement lies = v->layout.on[d];
      if (lies.kind != SHARD || way->in[i].on[d].kind != REPLICATE) continue;
      if (v->shape.size[lies.dim] == 1) continue; /* one rank has it all */
      if (may_be_cut(op, l, list, n, d)) continue;
      plan_error(
          op->line,
          "%s%s cannot be sharded over %s: its input %d, %s, is %s there, and the operator's "
          "rule, %s, allows no cut; where it is to be replicated, write x:replicate(), or a "
          "style that makes it whole",
          op->phase == BACKWARD ? "the backward's " : "", printable(op_name(op)),
          printable(graph->mesh.name[d]), i, shape_text(v->shape), placement_text(v->layout.on[d]),
          printable(rule_of(op)));
    }
}

struct way best_way(const struct surroundings *of, const struct op *op)
{
  static struct query q;
  struct way way;
  known = of;
  memset(&way, 0, sizeof way);
  if (runs_as_it_lies(op, &way)) return way;
  ask_with_ahead(&q, op);
  bool is_new;
  struct way *decision = answer_to(&memo, &q, sizeof *decision, &is_new);
  if (!is_new) return *decision;
  struct letters l;
  struct choice list[MAX_CHOICES];
  op_letters(op, &l);
  int n = choices(op, &l, list);
  way = cheapest(op, &l);
  forbid_silence(op, &l, list, n, &way);
  *decision = way;
  return way;
}
