/* decide.c: how one operation runs: the layouts of its inputs and outputs.

   If it can run on its inputs as they are, cut over some dimension of the mesh, it does so there:
   work that the plan divides is not done twice to save a few bytes. Otherwise the cheapest
   combination of legal choices over the dimensions of the mesh (choices.c) wins: the one that moves
   the fewest bytes, including the plan's requests on the output, or the least cost of the next
   operation. If the forward cuts a sum that was pending, training has to gather in the backward:
   one more collective, priced as many bytes as its link carries during its latency. So small sums
   are made whole at once. Ties go to the sharding that turns fewer whole values into pending sums,
   then to the one that moves fewer inputs and outputs, then to the one whose gradients have the
   layouts of their values, then to the first choice: the same on every machine. Decisions are
   cached: equal layers cost one.

   If replication is the only legal choice, a sharded input is the plan's error, unless the plan
   itself made it whole: tpgen replicates nothing in silence. */
#include "sharding/sharding.h"

#include <string.h>

/* -------------------------------------------------------------------------------- the question */

static void ask_op(struct query *q, const struct def_use *uses, const struct op *op)
{
  ask_rule(q, op);
  ask_number(q, op->phase == FORWARD); /* what the forward cuts, the backward gathers */
  ask_number(q, (int64_t)number_if_any(op, "ring"));
  for (int i = 0; i < op->nin; i++) {
    /* An input, and its earlier redistributions; and whether two inputs are the same value. */
    const struct value *v = &graph->value[op->in[i]];
    ask_value(q, v);
    ask_layout(q, &v->layout);
    if (v->counts != NONE) { /* rows by expert have the layout of the names that were counted */
      int maker = graph->value[made_count(op->in[i])].op;
      ask_number(q, maker == NONE);
      if (maker != NONE) ask_layout(q, &graph->value[graph->op[maker].in[0]].layout);
    }
    ask_number(q, v->role == CACHE);
    for (int k = 0; k < i; k++) ask_number(q, op->in[k] == op->in[i]);
    for (int m = uses->moved_to[op->in[i]]; m != NONE; m = uses->moved_before[m])
      if (move_serves(&graph->op[m], op->phase))
        ask_layout(q, &graph->value[graph->op[m].out].layout);
    ask_number(q, NONE);
  }
  for (int k = 0; k < op->nout; k++) {
    /* An output, the plan's requests on it, and the value whose gradient it is. */
    int value = op->out + k;
    const struct value *v = &graph->value[value];
    ask_value(q, v);
    for (int r = uses->asked_of[value]; r != NONE; r = uses->asked_of[graph->op[r].out]) {
      ask_number(q, (int64_t)graph->op[r].asked << 1 | graph->op[r].finishes);
      ask_number(q, (int64_t)graph->value[graph->op[r].out].type);
      ask_layout(q, &graph->op[r].to);
    }
    ask_number(q, NONE);
    ask_number(q, v->of != NONE);
    if (v->of != NONE) ask_layout(q, &graph->value[v->of].layout);
  }
}

/* Everything that a decision depends on: the operation and the next one. */
static void ask_sharding(struct chooser *c, const struct op *op)
{
  struct query *q = &c->m->decision;
  const struct op *ahead = op_ahead(c, op);
  int time = time_dimension();
  begin_query(q);
  ask_op(q, c->uses, op);
  if (time != NONE) {
    struct layout preferred = {0};
    preferred.on[time] = microbatch_preference(c, op);
    ask_layout(q, &preferred);
  }
  if (!ahead) return;
  ask_op(q, c->uses, ahead);
  for (int i = 0; i < ahead->nin; i++) {
    ask_number(q, ahead->in[i] == op->out);
    for (int k = 0; k < op->nin; k++) ask_number(q, ahead->in[i] == op->in[k]);
  }
}

/* ---------------------------------------------------------------------------------- strictness */

static bool may_be_cut(const struct op *op, const struct letters *l, const struct choice *list,
                       int n, int mesh_dim)
{
  for (int i = 0; i < n; i++) {
    int pick[MAX_MESH] = {0};
    pick[mesh_dim] = i;
    if (list[i].letter != NONE && fits_together(l, op->nin, list, pick)) return true;
  }
  return false;
}

struct op_sharding find_sharding(struct chooser *c, const struct op *op)
{
  /* The answer is the decision, and the bounds that it met. */
  struct decision {
    struct op_sharding sharding;
    unsigned ended_early;
  } * decision;
  bool is_new;
  ask_sharding(c, op);
  decision = answer_to(&c->m->decisions, &c->m->decision, sizeof *decision, &is_new);
  if (is_new) {
    struct letters l;
    struct choice list[MAX_CHOICES];
    op_letters(op, &l);
    int n = choices_of(c, op, &l, list);
    decision->sharding = search_shardings(c, op, &l);
    decision->ended_early = c->ended_early;
    /* A sharded input would be made whole because nothing else is legal: the plan has to ask for
       that. */
    const struct op_sharding *sharding = &decision->sharding;
    for (int d = 0; d < graph->mesh.ndim; d++)
      for (int i = 0; i < op->nin && !graph->mesh.microbatch_axis[d]; i++) {
        const struct value *v = &graph->value[op->in[i]];
        struct placement now = v->layout.on[d];
        if (now.kind != SHARD || sharding->in[i].on[d].kind != REPLICATE) continue;
        if (v->shape.size[now.dim] == 1) continue; /* one rank has it all */
        if (may_be_cut(op, &l, list, n, d)) continue;
        plan_error(
            op->line,
            "%s%s cannot be sharded over %s: its input %d, %s, is %s there, and the operator's "
            "rule, %s, allows no cut; where it is to be replicated, write x:replicate(), or a "
            "style that makes it whole",
            op->phase == BACKWARD ? "the backward's " : "", printable(op_name(op)),
            printable(graph->mesh.name[d]), i, shape_text(v->shape),
            placement_text(v->layout.on[d]), printable(rule_of(op)));
      }
  }
  c->ended_early |= decision->ended_early;
  return decision->sharding;
}

/* ---------------------------------------------------------------------------- the alternatives */

/* "S(0) R, R S(0) -> S(0) S(1)": the layouts of the inputs, and of the outputs. */
static const char *sharding_text(const struct op *op, const struct op_sharding *s)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < op->nin; i++) put(&b, "%s%s", i ? ", " : "", layout_text(s->in[i]));
  for (int k = 0; k < op->nout; k++)
    put(&b, "%s%s", k ? ", " : op->nin ? " -> " : "", layout_text(s->out[k]));
  return b.text;
}

/* The sharding that --explain-cost forces on the operation, or the one that was found. The
   alternatives of an operation that it asks about are noted. */
static struct op_sharding explained_sharding(struct chooser *c, const struct op *op,
                                             struct op_sharding found)
{
  struct priced_sharding list[MOST_ALTERNATIVES];
  struct alternative shown[MOST_ALTERNATIVES + 1];
  if (!op->nout) return found;
  const char *subject =
      text("%s%s: %s of shape %s", op->phase == FORWARD ? "" : text("%s, ", phase_name[op->phase]),
           starred_name(value_name(op->out)), op_row[op->kind].name,
           shape_text(graph->value[op->out].shape));
  const char *forced = forced_way_of("placement", subject);
  if (!forced && !is_op_explained(op)) return found;
  const char *way = sharding_text(op, &found);
  int n = cheapest_shardings(c, op, list, MOST_ALTERNATIVES);
  int taken = NONE;
  for (int i = 0; i < n; i++) {
    shown[i] = (struct alternative){sharding_text(op, &list[i].sharding), list[i].bytes, NONE};
    if (forced && !strcmp(shown[i].way, forced)) return list[i].sharding;
    if (!strcmp(shown[i].way, way)) taken = i;
  }
  if (forced) return found;
  if (taken == NONE) {
    memmove(shown + 1, shown, (size_t)n * sizeof *shown);
    shown[taken = 0] = (struct alternative){way, NONE, NONE};
    n++;
  }
  note_decision("placement", subject, shown, n, taken);
  return found;
}

/* A cast of a parameter has the parameter's layout: a slice of it would cost nothing here, and a
   product of slices leaves sums whose price is that of a later operation. */
static bool keeps_layout(const struct op *op)
{
  const struct value *v = &graph->value[op->in[0]];
  return op->kind == OP_cast && v->role == PARAMETER;
}

struct op_sharding choose_sharding(const struct def_use *uses, const struct op *op)
{
  if (keeps_layout(op)) {
    const struct layout layout = graph->value[op->in[0]].layout;
    return (struct op_sharding){.in = {layout}, .out = {layout}};
  }
  struct chooser c = {.m = cost_model_of_graph(), .uses = uses, .assumed = NONE};
  struct op_sharding sharding = find_sharding(&c, op);
  if (are_decisions_explained()) sharding = explained_sharding(&c, op, sharding);
  if (c.ended_early & TOO_MANY_AHEAD)
    ended_early("propagate", "ways that suit the next operation", MOST_AHEAD, "combinations");
  if (c.ended_early & TOO_MANY_COMBINATIONS)
    ended_early("propagate", "the cheapest way of an operation", MOST_COMBINATIONS, "combinations");
  return sharding;
}
