/* decide.c: how one operation runs: in which layouts it takes its inputs and leaves its outputs.

   If it can run on its inputs as they are, cut over some dimension of the mesh, it does so there:
   work that the plan divides is not done twice to save a few bytes. Otherwise the cheapest
   combination of legal ways over the dimensions of the mesh (choices.c) wins: the one that moves
   the fewest bytes, counting what the plan asks of the output, or the least that the next operation
   costs. If the forward cuts a sum that was pending, training has to gather in the backward: one
   more collective, priced as many bytes as its link carries during its latency. So small sums are
   made whole at once. Ties go to the way that turns fewer whole values into pending sums, then to
   the one that moves fewer inputs and outputs, then to the one whose gradients have the layouts of
   their values, then to the first choice: the same on every machine. Where DTensor's rules
   (einop.c) say that an operation runs on its inputs as they are, that is taken. Decisions are
   cached: equal layers cost one.

   If replication is the only legal way, a sharded input is the plan's error, unless the plan itself
   made it whole: tpgen replicates nothing in silence. */
#include "sharding/sharding.h"

#include <string.h>

/* ---------------------------------------------------------------------------- as the inputs lie */

/* DTensor's rules know neither pending maxima, nor strides, nor a dimension that is cut twice.
   They take a broadcast dimension of size 1 for one that is summed. */
static bool is_plain(const struct value *v)
{
  unsigned cut = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = v->layout.on[d];
    if (graph->mesh.in_time[d]) continue;
    if (p.kind == PARTIAL && p.reduction != SUM) return false;
    if (p.kind != SHARD) continue;
    if (p.outer > 1 || cut >> p.dim & 1 || v->shape.size[p.dim] == 1) return false;
    cut |= 1u << p.dim;
  }
  return true;
}

/* Whether all inputs may be pending sums together: this is DTensor's `linear`. */
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
    ruled.layout[i] = over_time(graph->value[op->in[i]].layout);
  }
  bool product = op->kind == OP_matmul;
  struct ruling r = product ? einop_rule(op->equation, &ruled, NULL) : pointwise_rule(&ruled);
  return (struct answer){r.what == RULE_RUNS, r.out};
}

/* DTensor's ruling for the inputs' layouts, cached. */
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

/* Whether the operation runs on its inputs as they are, by DTensor's rules, and the plan asks
   nothing of its output. */
static bool runs_as_it_lies(const struct op *op, struct way *way)
{
  if (op->kind != OP_matmul && !is_broadcast(op->kind)) return false;
  if (decision_around->asked_of[op->out] != NONE) return false;
  for (int i = 0; i < op->nin; i++) {
    if (!is_plain(&graph->value[op->in[i]])) return false;
    way->in[i] = graph->value[op->in[i]].layout;
  }
  const struct answer *answer = answer_of_rules(op);
  way->out[0] = answer->out;
  return answer->runs;
}

/* ----------------------------------------------------------------------------- what was decided */

/* The question is everything that a decision depends on. The answer is the decision. */
static struct memo memo;

/* How the rows by expert lie whose count the value has: by what they are counted. */
static void ask_counted(struct query *q, const struct value *v)
{
  if (v->counts == NONE) return;
  int maker = graph->value[made_count((int)(v - graph->value))].op;
  ask_number(q, maker == NONE);
  if (maker != NONE) ask_layout(q, &graph->value[graph->op[maker].in[0]].layout);
}

/* An input, and its earlier redistributions; and whether two inputs are the same value. */
static void ask_input(struct query *q, const struct op *op, int i)
{
  const struct value *v = &graph->value[op->in[i]];
  ask_value(q, v);
  ask_layout(q, &v->layout);
  ask_counted(q, v);
  ask_number(q, v->role == CACHE);
  for (int k = 0; k < i; k++) ask_number(q, op->in[k] == op->in[i]);
  for (int m = decision_around->moved_to[op->in[i]]; m != NONE;
       m = decision_around->moved_before[m])
    if (is_plain_move(&graph->op[m])) ask_layout(q, &graph->value[graph->op[m].out].layout);
  ask_number(q, NONE);
}

/* An output, what the plan asks of it, and what it is the gradient of. */
static void ask_output(struct query *q, int value)
{
  const struct value *v = &graph->value[value];
  ask_value(q, v);
  for (int r = decision_around->asked_of[value]; r != NONE;
       r = decision_around->asked_of[graph->op[r].out]) {
    ask_number(q, (int64_t)graph->op[r].asked << 1 | graph->op[r].finishes);
    ask_number(q, (int64_t)graph->value[graph->op[r].out].type);
    ask_layout(q, &graph->op[r].to);
  }
  ask_number(q, NONE);
  ask_number(q, v->of != NONE);
  if (v->of != NONE) ask_layout(q, &graph->value[v->of].layout);
}

static void ask_op(struct query *q, const struct op *op)
{
  ask_rule(q, op);
  /* What the forward cuts, the backward gathers. */
  ask_number(q, op->phase == FORWARD);
  ask_number(q, (int64_t)number_if_any(op, "ring"));
  for (int i = 0; i < op->nin; i++) ask_input(q, op, i);
  for (int k = 0; k < op->nout; k++) ask_output(q, op->out + k);
}

/* The same for the next operation. Along the dimension in time more is looked at. */
static void ask_with_ahead(struct query *q, const struct op *op)
{
  const struct op *ahead = op_ahead(op);
  int time = time_dimension();
  begin_query(q);
  ask_op(q, op);
  if (time != NONE) {
    struct layout suits = {0};
    suits.on[time] = suits_in_time(op);
    ask_layout(q, &suits);
  }
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

/* A sharded input would be made whole because nothing else is legal: the plan has to ask for
   that. */
static void forbid_silence(const struct op *op, const struct letters *l, const struct choice *list,
                           int n, const struct way *way)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    for (int i = 0; i < op->nin && !graph->mesh.in_time[d]; i++) {
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

/* DTensor's rules know no time. */
static struct way along_time(const struct op *op, struct way way)
{
  struct letters l;
  struct choice list[MAX_CHOICES];
  int dim = time_dimension();
  if (dim == NONE) return way;
  op_letters(op, &l);
  const struct choice *c = &list[choice_in_time(op, list, choices(op, &l, list))];
  for (int i = 0; i < op->nin; i++) way.in[i].on[dim] = c->in[i];
  for (int k = 0; k < op->nout; k++) way.out[k].on[dim] = c->out[k];
  return way;
}

struct way best_way(const struct surroundings *of, const struct op *op)
{
  static struct query q;
  struct way way;
  decision_around = of;
  memset(&way, 0, sizeof way);
  if (runs_as_it_lies(op, &way)) return along_time(op, way);
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
