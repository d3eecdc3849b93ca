/* check.c: after every pass, checks what the pass promises to leave. A failure is a bug of tpgen,
   except after the pass `lua`: its graph comes from another process and is not trusted.

   Later passes keep what a pass promises of the flat program. A long program is checked when it is
   new, and once more before it is folded, for all passes in between. A shorter one is checked after
   each pass, so the failing pass is the one with the bug. */
#include "check/check.h"

#include <float.h>
#include <string.h>

/* ------------------------------------------------------------------------ facts about one thing */

static bool is_value(int v)
{
  return v >= 0 && v < graph->nvalue;
}

/* 0, or a permutation of the dimensions other than the written order. */
static bool is_sane_order(unsigned order, int ndim)
{
  unsigned seen = 0;
  if (!order) return true;
  for (int at = 0; at < ndim; at++) seen |= 1u << (order >> 3 * at & 7);
  return seen == (1u << ndim) - 1 && !(order >> 3 * ndim) && order != moved_to_front(0, ndim);
}

static void sane_op(int id)
{
  const struct op *op = &graph->op[id];
  require(op->kind < OP_COUNT, NONE, "an operation of no kind");
  require(op->nin >= 0 && op->nin <= MAX_INPUTS, id, "too many inputs");
  for (int i = 0; i < op->nin; i++) require(is_value(op->in[i]), id, "an input is not a value");
  require(op->nout >= 0 && op->nout <= MAX_OUTPUTS, id, "too many outputs");
  require((op->out == NONE) == (op->nout == 0), id, "it counts its outputs wrongly");
  for (int k = 0; k < op->nout; k++) require(is_value(op->out + k), id, "an output is not a value");
  require(op->module >= NONE && op->module < graph->nmodule, id, "it is in no module");
}

/* An operation of the program and its body. */
static void sane_run(int id)
{
  sane_op(id);
  const struct op *op = &graph->op[id];
  for (int k = 0; k < op->nbody; k++) sane_run(op->body[k]);
}

/* ---------------------------------------------------------------------- facts about the program */

/* The loop makes the values of a stack. A carried value is made where its initial value is. Values
   without an operation are marked from the start: see check_values. */
static bool check_is_made(int value, const bool *made)
{
  if (made[value]) return true;
  const struct in_loop *loop = in_loop(value);
  if (loop->step) return check_is_made(loop->initial, made);
  return loop->stack != NONE && made[loop->stack];
}

/* Asserts that the inputs of `op` are made, and marks its outputs. */
static void check_run(int id, bool *made)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin && (!op->nbody || op->kind == OP_fused); i++)
    require(check_is_made(op->in[i], made), id, "it reads a value not made yet");
  for (int k = 0; k < op->nbody && is_collective(op->kind); k++)
    require(check_is_made(graph->op[op->body[k]].in[0], made), id,
            "a member reads a value not made yet");
  for (int k = 0; k < op->nbody; k++) check_run(op->body[k], made);
  for (int k = 0; k < op->nout; k++) made[op->out + k] = true;
}

/* A gradient is added to those of earlier batches in its own layout. Its parameter may be sharded
   along a dimension of size 1, which no rule allows. */
static bool adds_batch(const struct op *op)
{
  if (op->kind != OP_add || !is_gradient(op->out)) return false;
  struct layout layout = graph->value[op->out].layout;
  if (graph->value[op->out].role == LOSS) return false;
  return same_layout(graph->value[op->in[0]].layout, layout) &&
         same_layout(over_time(graph->value[op->in[1]].layout), layout);
}

/* A copy, also to another order in memory or another type, has the layout of its source. That
   layout may be sharded along a dimension of size 1, or be a pending sum that the plan moves in a
   narrower type and that is rounded while pending. No rule allows either. */
static bool is_plain_copy(const struct op *op)
{
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  if (op->kind != OP_view && op->kind != OP_permute && op->kind != OP_cast) return false;
  if (!same_shape(in->shape, out->shape) || !same_layout(in->layout, out->layout)) return false;
  if (op->kind == OP_permute) return !strcmp(op->equation, identity_equation(in->shape.ndim));
  return op->kind == OP_view || (is_floating(in->type) && is_floating(out->type));
}

/* Queries of a rank with a block of keys, which a ring brings: all operands with a dimension of
   queries are cut in the same way, and so are all with a dimension of keys. */
static bool is_block(const struct op *op)
{
  struct placement at[2] = {{.kind = REPLICATE}, {.kind = REPLICATE}};
  bool fits = true;
  if (!is_block_of_keys(op)) return false;
  int mesh_dim = -(int)number_of(op, "ring") - 1;
  struct letters l;
  op_letters(op, &l);
  for (int i = 0; i < op->nin + op->nout; i++) {
    struct placement p =
        graph->value[i < op->nin ? op->in[i] : op->out + i - op->nin].layout.on[mesh_dim];
    if (p.kind == REPLICATE) continue; /* sinks */
    const struct axis *axis = i < op->nin ? l.in[i] : l.out[i - op->nin];
    char letter = p.kind == SHARD && axis[p.dim].n == 1 ? l.name[axis[p.dim].letter[0]] : 0;
    struct placement *is = &at[letter == 'k'];
    fits &= letter == 'q' || letter == 'k';
    fits &= is->kind == REPLICATE || is->shift == p.shift;
    *is = p;
  }
  return fits && at[0].kind == SHARD && at[1].kind == SHARD && at[0].shift == 0;
}

/* ---------------------------------------------------------------------------------- the layouts */

static bool has_usual_cut_order(const struct layout *layout)
{
  bool ordered = false;
  for (int d = 0; d < graph->mesh.ndim; d++) ordered |= layout->on[d].cut_order != 0;
  struct layout usual = ordered ? usual_cut_order(*layout) : *layout;
  for (int d = 0; d < graph->mesh.ndim && ordered; d++)
    if (usual.on[d].cut_order != layout->on[d].cut_order) return false;
  return true;
}

/* A gradient, or a value that leaves the program. `grad` adds up the losses of micro-batches, and
   `optimize` their gradients. */
static void check_end(enum pass after, int value)
{
  const struct value *v = &graph->value[value];
  if (v->role == GRADIENT) {
    struct layout own = after < PASS_OPTIMIZE ? over_time(v->layout) : v->layout;
    struct layout of = graph->value[v->of].layout;
    require(same_layout(own, of) || (runs_in_step() > 1 && same_local_shape(own, of)), v->op,
            "a gradient has another dimension order than its parameter");
  }
  if (value == graph->loss || v->role == NORM || v->is_output) {
    /* summed: the micro-batches' terms are added up. */
    bool summed = after >= PASS_GRAD;
    bool no_sum_left = true;
    for (int d = 0; d < graph->mesh.ndim && no_sum_left; d++)
      no_sum_left = graph->value[value].layout.on[d].kind != PARTIAL ||
                    (!summed && graph->mesh.microbatch_axis[d]);
    require(no_sum_left, v->op, "a pending sum is left in it");
  }
}

/* --------------------------------------------------------------------------------- the programs */

static bool is_laid_out(enum pass after)
{
  return after >= PASS_PROPAGATE && after <= PASS_OUTLINE;
}

/* Programs have many values and operations: one loop makes all checks of each. */
static void check_values(enum pass after, bool *made, struct list *ends)
{
  bool laid_out = is_laid_out(after);
  make_marks();
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    /* The indices in a value's fields. */
    require(v->op >= NONE && v->op < graph->nop, NONE, "a value is made by no operation");
    require(v->shape.ndim >= 0 && v->shape.ndim <= MAX_DIMS, v->op,
            "a value has too many dimensions");
    require(v->module >= NONE && v->module < graph->nmodule, v->op, "a value is in no module");
    require(!v->order || v->role == ACTIVATION, v->op,
            "its dimensions have an order that may not be");
    if (v->role == GRADIENT || v->role == SUMS || v->role == STATE)
      require(is_value(v->of) && !graph->value[v->of].frozen, v->op,
              "it belongs to nothing, or to a frozen parameter");
    made[i] = v->op == NONE && !in_loop(i)->step;
    uint64_t mark = mark_of_value(v, laid_out);
    if (marks.value[i] != mark) {
      marks.value[i] = mark;
      /* The value's own fields: reads only what mark_of_value hashes. */
      for (int d = 0; d < v->shape.ndim; d++)
        require(v->shape.size[d] >= 0, v->op, "a value has a negative size");
      require(is_sane_order(v->order, v->shape.ndim), v->op,
              "its dimensions have an order that may not be");
      for (int d = 0; v->placed && d < graph->mesh.ndim; d++) {
        const struct placement *p = &v->layout.on[d];
        require(p->kind != SHARD || (p->dim >= 0 && p->dim < v->shape.ndim), v->op,
                "a value is sharded on a dimension that it has not");
      }
      require(!laid_out || !v->placed || has_usual_cut_order(&v->layout), v->op,
              "its cuts are not numbered as usual");
    }
    if (!laid_out) continue;
    if (v->role == GRADIENT || v->role == NORM || v->is_output || i == graph->loss) add(ends, i);
  }
}

static void check_laid_out(enum pass after, int id)
{
  const struct op *op = &graph->op[id];
  bool are_steps = after >= PASS_REDISTRIBUTE;
  require(!are_steps || op->kind != OP_redistribute, id, "a redistribution is left");
  /* A check that passed stays true while the operation and its operands stay the same. */
  uint64_t mark = mark_of_op(op, are_steps);
  if (marks.op[id] == mark) return;
  marks.op[id] = mark;
  for (int k = 0; k < op->nout; k++)
    require(graph->value[op->out + k].placed, id, "its value is not placed");
  /* Zeros are a part, and a term of a sum, of zeros. */
  /* Whether the layouts need not follow the operation's rule. */
  bool in_no_way = op->nout == 0 || !*rule_of(op) || adds_batch(op) || is_plain_copy(op) ||
                   (op->kind == OP_full && op->scalar == 0) || is_block(op);
  if (is_known(op, (in_no_way ? LIES_IN_NO_WAY : 0) | (are_steps ? IS_STEP : 0))) return;
  if (!in_no_way) check_way(id);
  if (are_steps) add(&marks.changed, id);
}

/* The arguments of the callback for each_op. */
struct looks {
  enum pass after;
  bool *made;
};

static void check_in_program(void *to, int id, int times)
{
  const struct looks *looks = to;
  (void)times;
  sane_run(id);
  check_run(id, looks->made);
  if (is_laid_out(looks->after)) check_laid_out(looks->after, id);
  check_moves_of(id);
}

/* ---------------------------------------------------------------------------- recomputed values */

/* The element of the outermost ModuleList that contains `module`, or NONE. */
static int layer_of(int module)
{
  int layer = NONE;
  for (int parent; module != NONE; module = parent) {
    parent = graph->module[module].parent;
    if (parent != NONE && !strcmp(graph->module[parent].class_name, "ModuleList")) layer = module;
  }
  return layer;
}

/* Whether the operation gathers a unit's parameter that is freed after the forward. */
static bool gives_up_gathered(const struct op *op)
{
  return op->of_unit && op->unit >= 0 && op->unit < graph->nunit && graph->unit[op->unit].again &&
         !op->held;
}

/* Recomputing a value costs no more than reading and writing it. By the operator's row: it has an
   expression per element without a sum or a look-up, or it moves nothing. Or it gathers a parameter
   that was freed. */
static bool costs_little(const struct op *op)
{
  if (gives_up_gathered(op) || op->kind == OP_view || op->kind == OP_slice) return true;
  if (op->kind == OP_from_int8 || op->kind == OP_from_nf4) return true;
  const struct op_row *row = &op_row[op->kind];
  bool looks_up = false, sums = false;
  for (const char *c = row->element; *c; c++) looks_up |= !strncmp(c, "$a($b", strlen("$a($b"));
  for (const char *c = row->rule; *c; c++) sums |= *c == 'D' && c[1] == '-';
  return *row->element && !*row->flops && !sums && !looks_up;
}

/* Whether a module around it has a level by which any of its work may be done again. */
static bool has_level(const struct op *op)
{
  int m = op->module;
  while (m != NONE && !graph->module[m].again) m = graph->module[m].parent;
  return m != NONE && plan_options->within;
}

static void check_recomputed(void)
{
  for (int at = 0; at < graph->norder; at++) {
    int id = graph->order[at];
    const struct op *op = &graph->op[id];
    require(!op->last_batch || (op->phase == BACKWARD && runs_in_step() > 1 && !graph->stages), id,
            "it cannot be of the last batch alone");
    require(!op->recomputed || op->phase == BACKWARD, id,
            "what is computed again is not in the backward");
    if (!plan_options->checkpoint)
      require(!op->recomputed || costs_little(op) || has_level(op), id,
              "it is not cheap to compute again");
    for (int i = 0; i < op->nin && plan_options->checkpoint && op->phase == BACKWARD; i++) {
      /* Whether the value is made in the forward of the reader's own list element: it must be
         recomputed. */
      const struct value *v = &graph->value[op->in[i]];
      bool is_kept_inside = false;
      if (v->role == ACTIVATION && !v->is_output && v->op != NONE) {
        const struct op *maker = &graph->op[v->op];
        is_kept_inside = (!maker->of_unit || gives_up_gathered(maker)) && maker->phase == FORWARD &&
                         layer_of(op->module) != NONE &&
                         layer_of(op->module) == layer_of(maker->module);
        if (plan_options->selective && (*op_row[maker->kind].flops || is_collective(maker->kind)))
          is_kept_inside = false;
      }
      require(!is_kept_inside, id, "it reads what is not to be kept");
    }
  }
}

static void check_parameter_order(void)
{
  bool *ended = alloc((size_t)graph->nmodule + 1); /* by module: all of its parameters were met */
  int before = NONE;
  for (int v = 0; v < graph->nvalue; v++) {
    if (graph->value[v].role != PARAMETER) continue;
    for (int m = before == NONE ? NONE : graph->value[before].module; m != NONE;
         m = graph->module[m].parent) {
      /* The parameters of a module and of all below it are consecutive: the structs of names.c rely
         on it, and so do the runs that bucket and fuse make. */
      bool is_under = false;
      for (int i = graph->value[v].module; i != NONE && !is_under; i = graph->module[i].parent)
        is_under = i == m;
      ended[m] |= !is_under;
    }
    for (int m = graph->value[v].module; m != NONE; m = graph->module[m].parent)
      require(!ended[m], NONE, "the parameters do not stand in the order of the modules");
    before = v;
  }
}

/* The training options have values that train.lua allows. */
static void check_training(void)
{
  require(plan_options->accumulate >= 1 && plan_options->accumulate <= 4096, NONE,
          "a step takes no batches");
  require(plan_options->ncap >= 0 && plan_options->ncap <= MAX_CAPS &&
              plan_options->bucketing <= BUCKETS_NONE,
          NONE, "buckets are made in no way");
  for (int i = 0; i < plan_options->ncap; i++)
    require(plan_options->cap[i] > 0, NONE, "a bucket has room for nothing");
  require(plan_options->clip >= 0 && plan_options->clip <= DBL_MAX, NONE,
          "gradients are clipped to no number");
  for (int i = 0; i < plan_options->noptimizer; i++) {
    /* The steps of an update take only values that exist before them. */
    const struct optimizer *o = &plan_options->optimizer[i];
    int end = first_step_operand(o) + o->nstep;
    require(o->nstate >= 0 && o->nstate <= MAX_OPTIMIZER_STATES, NONE,
            "an update has no such states");
    for (int s = 0; s < o->nstep; s++)
      for (int j = 0; j < inputs_of_step(o->step[s].kind); j++)
        require(o->step[s].in[j] >= 0 && o->step[s].in[j] < first_step_operand(o) + s, NONE,
                "a step of an update takes what comes later");
    for (int k = 0; k <= o->nstate; k++)
      require(o->out[k] >= 0 && o->out[k] < end, NONE, "an update makes nothing");
  }
}

/* Units come from another process. */
static void check_units(void)
{
  unsigned all = (1u << graph->mesh.ndim) - 1;
  for (int i = 0; i < graph->nunit; i++) {
    const struct unit *u = &graph->unit[i];
    require((u->shards | u->copies) && !(u->shards & u->copies) &&
                !((u->shards | u->copies) & ~all),
            NONE, "a unit is over no dimension of the mesh");
    require(!(u->again & ~u->shards), NONE, "a unit is gathered again where it is not cut");
    require(u->module >= 0 && u->module < graph->nmodule, NONE, "a unit has no module");
    require(u->dim >= -MAX_DIMS && u->dim <= ANY_DIM, NONE, "a unit is cut nowhere");
  }
  for (int i = 0; i < graph->nvalue; i++)
    require(graph->value[i].unit >= NONE && graph->value[i].unit < graph->nunit, NONE,
            "a value is of no unit that there is");
  for (int m = 0; m < graph->nmodule; m++)
    require(graph->module[m].unit >= NONE && graph->module[m].unit < graph->nunit, NONE,
            "a module is of no unit that there is");
}

static void check_program(enum pass after)
{
  begin_moves();
  bool *made = alloc((size_t)graph->nvalue + 1);
  if (after < PASS_OUTLINE) {
    struct list ends = {0};
    check_values(after, made, &ends);
    /* Operations that never run are checked only in a graph from another process. */
    for (int i = 0; i < graph->nop && after == PASS_LUA; i++) sane_op(i);
    for (int i = 0; i < graph->norder; i++) {
      int id = graph->order[i];
      sane_op(id);
      check_run(id, made);
      if (is_laid_out(after)) check_laid_out(after, id);
    }
    for (int i = 0; i < ends.n; i++) check_end(after, ends.at[i]);
    for (int i = 0; i < marks.changed.n; i++) check_moves_of(marks.changed.at[i]);
  } else {
    /* Once equal modules are folded, operations of the other modules of a list are not checked. */
    struct list ends = {0};
    check_values(after, made, &ends);
    if (after >= PASS_FUSE) mark_constants(made);
    each_op(check_in_program, &(struct looks){after, made});
    for (int i = 0; i < ends.n; i++) check_end(after, ends.at[i]);
  }
  if (graph->loss != NONE) require(made[graph->loss], NONE, "the loss is not made");
}

/* Further promises of passes; each holds from its first to its last pass. */
static const struct promise {
  enum pass first, last;
  void (*check)(void);
} promises[] = {
    {PASS_LUA, PASS_LUA, check_parameter_order},
    {PASS_LUA, PASS_LUA, check_training},
    {PASS_LUA, PASS_LUA, check_units},
    {PASS_RECOMPUTE, PASS_RECOMPUTE, check_recomputed},
    {PASS_STAGES, PASS_REDISTRIBUTE, check_transfers},
    {PASS_CLAMP_TO_CAPACITY, PASS_LAST, check_rows},
    {PASS_ASYNC_TP, PASS_LAST, check_in_pieces},
    {PASS_FUSE, PASS_LAST, check_kernels},
    {PASS_KERNEL_FORMS, PASS_LAST, check_forms},
    {PASS_MEMORY, PASS_MEMORY, check_order},
    {PASS_MEMORY, PASS_MEMORY, check_memory},
    {PASS_MEMORY, PASS_MEMORY, check_slots},
};

void check(enum pass after)
{
  checked_pass = pass_name[after];
  enum { LONG = 4096 };
  if (after == PASS_PLAN && graph->norder > LONG)
    ended_early("check", "the flat program, between lua and outline", LONG, "operations");
  if (after == PASS_LUA || after >= PASS_OUTLINE || graph->norder <= LONG) check_program(after);
  for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
    if (after >= promises[i].first && after <= promises[i].last) promises[i].check();
}
