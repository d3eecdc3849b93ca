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
#include "tpgen.h"

#include <math.h>
#include <string.h>

/* What one combination costs. */
struct price {
  double bytes;
  int sums, moves;
  int apart;   /* dimensions of the mesh on which a gradient does not lie as its value */
  int refused; /* what the plan asks of the output that cannot be made of it */
};

/* What is known around the operation that is decided. */
static const struct surroundings *known;

struct layout layout_after(const struct op *op, struct layout now)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (op->asked >> i & 1 && (!op->finishes || now.on[i].kind == PARTIAL))
      now.on[i] = op->to.on[i];
  return usual_turns(now);
}

/* Whether the engine takes a value there unasked. Not from a shard to a pending sum, nor from one
   kind of pending value to another: it moves nothing, but each rank would work on all of it then,
   most of it zeros. */
static bool leads(struct layout from, struct layout to)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (to.on[d].kind == PARTIAL && !same_placement(from.on[d], to.on[d]) &&
        from.on[d].kind != REPLICATE)
      return false;
  return true;
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

/* An operation that runs in a way, for the sake of what comes after it. */
struct step {
  const struct op *op;
  const struct way *way;
};

/* Whether the value is at hand in this layout, with `before` done, if that is not NULL. */
static bool is_there(int value, struct layout layout, const struct step *before)
{
  if (same_layout(graph->value[value].layout, layout)) return true;
  for (int i = 0; before && i < before->op->nin; i++)
    if (before->op->in[i] == value && same_layout(before->way->in[i], layout)) return true;
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
      bytes += link_latency(d) * link_bandwidth(d);
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

/* Beyond these bytes no way is cheaper than the cheapest so far. */
static double limit_of(bool found, struct price least)
{
  return found && !least.refused ? least.bytes : INFINITY;
}

/* What a way costs; where it is more than `most` bytes, that it is more. */
static struct price price_of(const struct op *op, const struct way *way, const struct step *before,
                             double most)
{
  struct price p = {0};
  for (int i = 0; i < op->nin && p.bytes <= most; i++) {
    const struct value *v = &graph->value[op->in[i]];
    if (is_there(op->in[i], way->in[i], before)) continue;
    p.moves++;
    p.bytes += move_cost(v->shape, v->type, v->layout, way->in[i]);
    p.bytes += gathered_again(op, PARTIAL, v->layout, way->in[i]);
    for (int d = 0; d < graph->mesh.ndim; d++)
      p.sums += way->in[i].on[d].kind == PARTIAL && v->layout.on[d].kind != PARTIAL;
  }
  for (int k = 0; k < op->nout && p.bytes <= most; k++) {
    add_asked(&p, op, op->out + k, way->out[k]);
    p.apart += lies_apart(op->out + k, way->out[k]);
  }
  return p;
}

static bool cheaper(struct price a, struct price b)
{
  if (a.refused != b.refused) return a.refused < b.refused;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.sums != b.sums) return a.sums < b.sums;
  if (a.moves != b.moves) return a.moves < b.moves;
  return a.apart < b.apart;
}

static bool reachable(const struct op *op, const struct way *way)
{
  for (int i = 0; i < op->nin; i++)
    if (!leads(graph->value[op->in[i]].layout, way->in[i])) return false;
  return true;
}

/* One choice on each dimension of the mesh, put together. */
static struct way way_of(const struct op *op, const struct choice *list, const int *pick)
{
  struct way way;
  memset(&way, 0, sizeof way);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    for (int i = 0; i < op->nin; i++) way.in[i].on[d] = list[pick[d]].in[i];
    for (int k = 0; k < op->nout; k++) way.out[k].on[d] = list[pick[d]].out[k];
  }
  return way;
}

/* The choices that are tried on each dimension of the mesh: all, or where there are too many
   combinations those that are cheapest on that dimension alone. */
struct shortlist {
  int n[MAX_MESH], pick[MAX_MESH][MAX_CHOICES];
};

static int most_choices(int combinations)
{
  int active = 0, most = MAX_CHOICES;
  for (int d = 0; d < graph->mesh.ndim; d++) active += graph->mesh.size[d] > 1;
  for (; most > 2; most--) {
    int64_t n = 1;
    for (int k = 0; k < active; k++) n *= most;
    if (n <= combinations) break;
  }
  return most;
}

/* What a choice costs on mesh dimension d, everything else as it lies. */
static struct price price_alone(const struct op *op, const struct choice *c, int d)
{
  struct way way;
  memset(&way, 0, sizeof way);
  for (int i = 0; i < op->nin; i++) {
    way.in[i] = graph->value[op->in[i]].layout;
    way.in[i].on[d] = c->in[i];
    way.in[i] = usual_turns(way.in[i]);
  }
  for (int k = 0; k < op->nout; k++) way.out[k].on[d] = c->out[k];
  return price_of(op, &way, NULL, INFINITY);
}

static void shorten(const struct op *op, const struct choice *list, int d, int most,
                    struct shortlist *s)
{
  struct price price[MAX_CHOICES];
  for (int i = 0; i < s->n[d]; i++) {
    struct price p = price_alone(op, &list[i], d);
    int at = i;
    for (; at > 0 && cheaper(p, price[at - 1]); at--) {
      price[at] = price[at - 1];
      s->pick[d][at] = s->pick[d][at - 1];
    }
    price[at] = p;
    s->pick[d][at] = i;
  }
  if (s->n[d] > most) s->n[d] = most;
  /* In rule.c's order again, which breaks ties. */
  for (int i = 1; i < s->n[d]; i++)
    for (int k = i; k > 0 && s->pick[d][k] < s->pick[d][k - 1]; k--) {
      int swap = s->pick[d][k];
      s->pick[d][k] = s->pick[d][k - 1];
      s->pick[d][k - 1] = swap;
    }
}

/* The choice that takes the inputs as they lie on one dimension of the mesh, or NONE. */
static int choice_as_it_lies(const struct op *op, const struct choice *list, int n, int d)
{
  for (int c = 0; c < n; c++) {
    bool lies = true;
    for (int i = 0; i < op->nin; i++)
      lies &= same_placement(list[c].in[i], graph->value[op->in[i]].layout.on[d]);
    if (lies) return c;
  }
  return NONE;
}

static bool all_as_it_lies(const struct op *op, const struct letters *l, const struct choice *list,
                           int n, int *pick)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    pick[d] = choice_as_it_lies(op, list, n, d);
    if (pick[d] == NONE) return false;
  }
  return op->nin && fits_together(l, op->nin, list, pick);
}

static struct shortlist shortlist_of(const struct op *op, const struct letters *l,
                                     const struct choice *list, int n, int combinations)
{
  struct shortlist s;
  int most = most_choices(combinations), lies[MAX_MESH];
  bool runs = all_as_it_lies(op, l, list, n, lies);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    s.n[d] = graph->mesh.size[d] > 1 ? n : 1;
    for (int i = 0; i < n; i++) s.pick[d][i] = i;
    if (runs && list[lies[d]].letter != NONE) {
      s.n[d] = 1;
      s.pick[d][0] = lies[d];
    }
    if (s.n[d] > most) shorten(op, list, d, most, &s);
  }
  return s;
}

/* How many combinations are weighed for an operation, and for the one ahead each time; with fewer
   choices than these on each dimension of the mesh, what lies ahead is not known well enough. */
enum { MOST_COMBINATIONS = 100000, MOST_AHEAD = 1500, FEWEST_AHEAD = 4 };

typedef void visitor(const struct op *op, const struct way *way, void *to);

/* Calls `visit` for every legal combination of the n choices, or for so many of them. */
static void each_way(const struct op *op, const struct letters *l, const struct choice *list, int n,
                     int combinations, visitor *visit, void *to)
{
  struct shortlist s = shortlist_of(op, l, list, n, combinations);
  int at[MAX_MESH] = {0}, pick[MAX_MESH] = {0}, ndim = graph->mesh.ndim;
  for (bool more = true; more;) {
    for (int d = 0; d < ndim; d++) pick[d] = s.pick[d][at[d]];
    struct way way = way_of(op, list, pick);
    if (reachable(op, &way) && fits_together(l, op->nin, list, pick)) visit(op, &way, to);
    more = false;
    for (int d = ndim - 1; d >= 0 && !more; d--) {
      more = ++at[d] < s.n[d];
      if (!more) at[d] = 0;
    }
  }
}

/* -------------------------------------------------------------------------- one operation ahead */

/* The operation that takes first what `op` makes: `op` runs so that both together are cheap. NULL
   where that one's price is not known yet, or the plan asks for the output. */
static const struct op *op_ahead(const struct op *op)
{
  if (op->nout != 1 || known->asked_of[op->out] != NONE || known->taken_by[op->out] == NONE)
    return NULL;
  if (most_choices(MOST_AHEAD) < FEWEST_AHEAD) return NULL;
  const struct op *user = &graph->op[known->taken_by[op->out]];
  for (int i = 0; i < user->nin; i++)
    if (user->in[i] != op->out && !graph->value[user->in[i]].placed) return NULL;
  return *rule_of(user) ? user : NULL;
}

static bool share_an_input(const struct op *a, const struct op *b)
{
  for (int i = 0; i < a->nin; i++)
    for (int k = 0; k < b->nin; k++)
      if (a->in[i] == b->in[k]) return true;
  return false;
}

/* The operation ahead, or NULL, and what it costs at least where the output lies as told. */
struct ahead {
  const struct op *op;
  bool depends; /* on more than that: on how an input that both take was moved */
  int n;
  struct {
    struct layout layout;
    struct price price;
  } known[MAX_CHOICES];
};

static void look_ahead(const struct op *op, struct ahead *a)
{
  a->n = 0;
  a->op = op_ahead(op);
  a->depends = a->op && share_an_input(op, a->op);
}

/* The least that an operation costs after a step. */
struct least {
  struct step before;
  struct price price;
  bool found;
};

static void take_least(const struct op *op, const struct way *way, void *to)
{
  struct least *l = to;
  struct price p = price_of(op, way, &l->before, limit_of(l->found, l->price));
  if (l->found && !cheaper(p, l->price)) return;
  l->price = p;
  l->found = true;
}

static struct price price_ahead(struct ahead *a, const struct op *op, const struct way *way)
{
  struct letters l;
  struct choice list[MAX_CHOICES];
  struct layout out = way->out[0];
  struct least least = {.before = {op, way}};
  for (int i = 0; i < a->n; i++)
    if (same_layout(a->known[i].layout, out)) return a->known[i].price;
  graph->value[op->out].layout = out;
  op_letters(a->op, &l);
  each_way(a->op, &l, list, choices(a->op, &l, list), MOST_AHEAD, take_least, &least);
  if (a->n < MAX_CHOICES && !a->depends) {
    a->known[a->n].layout = out;
    a->known[a->n++].price = least.price;
  }
  return least.price;
}

/* ----------------------------------------------------------------------------- the cheapest way */

struct search {
  struct ahead ahead;
  struct way best;
  struct price least;
  bool found;
};

static void take_cheapest(const struct op *op, const struct way *way, void *to)
{
  struct search *s = to;
  struct price p = price_of(op, way, NULL, limit_of(s->found, s->least));
  if (s->found && !cheaper(p, s->least)) return;
  if (s->ahead.op) {
    struct price ahead = price_ahead(&s->ahead, op, way);
    p.bytes += ahead.bytes;
    p.moves += ahead.moves;
    p.apart += ahead.apart;
  }
  if (s->found && !cheaper(p, s->least)) return;
  s->least = p;
  s->best = *way;
  s->found = true;
}

/* Replicating everything is always a way. */
static struct way cheapest(const struct op *op, const struct letters *l, const struct choice *list,
                           int n)
{
  struct search s = {.found = false};
  look_ahead(op, &s.ahead);
  each_way(op, l, list, n, MOST_COMBINATIONS, take_cheapest, &s);
  return s.best;
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
  way = cheapest(op, &l, list, n);
  forbid_silence(op, &l, list, n, &way);
  *decision = way;
  return way;
}
