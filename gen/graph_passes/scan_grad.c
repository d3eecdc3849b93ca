/* scan_grad.c: a part of the pass `grad`: the backward of a scan, which is a scan in the other
   direction.

   The steps of the backward must be as equal as those of the forward. So before the last step

     a carry            has a gradient of zeros, if nothing after the scan reads the last step's;
     a shared value     from outside that steps read, mostly a weight, has a gradient of zeros, to
                        which each step adds; after the scan it is added to the gradient that comes
                        from elsewhere.

   The gradients of the slices that a scan goes over are put together, as the results of steps are.
   The carry that the first step of the forward takes has a gradient whether or not it is needed. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* The scan whose steps are under work, or NONE, and the state of that work. */
static struct {
  int module, line;
  struct list shared;         /* the values that its steps share */
  struct list elsewhere;      /* by number of these: the gradient from elsewhere, or NONE */
  struct list zeros;          /* likewise: the zeros with which the sum begins */
  struct list begins, enters; /* of each carry: the gradient that the last step takes, and the value
                                 that the first step of the forward takes */
  struct list over, part;     /* the gradients of slices: the value, and the slice, from the last
                                 step on */
} scan = {.module = NONE};

static struct list holds; /* the OP_scan_hold of the forward */
static const bool *has_gradient;
static int *gradient;

static int maker_scan(int value)
{
  int op = graph->value[value].op;
  return op == NONE ? NONE : scan_around(graph->op[op].module);
}

bool takes_part_in_scan(enum op_kind kind)
{
  return kind == OP_scan_take || kind == OP_scan_put || kind == OP_scan_stack;
}

void begin_scans(const bool *needs, int *gradients)
{
  has_gradient = needs;
  gradient = gradients;
  memset(&scan, 0, sizeof scan);
  scan.module = NONE;
  holds = (struct list){0};
  for (int i = 0; i < graph->norder; i++)
    if (graph->op[graph->order[i]].kind == OP_scan_hold) add(&holds, graph->order[i]);
}

bool want_carried(bool *needs)
{
  bool any = false;
  for (int i = 0; i < holds.n; i++) {
    const struct op *hold = &graph->op[holds.at[i]];
    if (!needs[hold->in[0]] || needs[hold->in[1]]) continue;
    needs[hold->in[1]] = any = true;
  }
  return any;
}

/* ---------------------------------------------------------------------------- at the last step */

/* An operation of the backward in the module around the scan. */
static struct op around_scan(void)
{
  return (struct op){.module = graph->module[scan.module].parent, .line = scan.line};
}

static int zeros_like(int value)
{
  struct op op = around_scan();
  op.kind = OP_full;
  op.phase = BACKWARD;
  op.type = gradient_type(value);
  int zeros = append_op_shaped(op, graph->value[value].shape);
  name_gradient(zeros, value);
  return zeros;
}

/* The gradient as the last step takes it: of no layout of its own. */
static int entering(int g)
{
  struct op op = around_scan();
  op.kind = OP_redistribute;
  op.nin = 1;
  op.in[0] = g;
  op.phase = BACKWARD;
  op.type = op.backward_type = graph->value[g].type;
  op.why = "what a scan carries";
  int out = append_op(op);
  graph->value[out].name = graph->value[g].name;
  return out;
}

static bool is_entering(int value)
{
  for (int i = 0; i < holds.n; i++)
    if (graph->op[holds.at[i]].in[1] == value) return true;
  return false;
}

/* The steps' operations are those of the order from `last` on backwards. */
static void begin_shared(int last)
{
  scan.shared.n = scan.elsewhere.n = scan.zeros.n = 0;
  for (int at = last; at >= 0; at--) {
    const struct op op = graph->op[graph->order[at]];
    if (scan_around(op.module) != scan.module) break;
    for (int i = 0; i < op.nin && op.kind != OP_scan_take; i++) {
      int value = op.in[i];
      if (!has_gradient[value] || maker_scan(value) == scan.module || is_entering(value) ||
          lists_number(scan.shared.at, scan.shared.n, value))
        continue;
      add(&scan.shared, value);
      add(&scan.elsewhere, gradient[value]);
      add(&scan.zeros, gradient[value] = zeros_like(value));
    }
  }
}

/* ------------------------------------------------------------------------- after the first step */

static void hold_both(int last, int first)
{
  struct op op = around_scan();
  op.kind = OP_scan_hold;
  op.phase = BACKWARD;
  op.nin = 2;
  op.in[0] = last;
  op.in[1] = first;
  append_update(op);
}

static void give(int value, int g)
{
  struct op op = around_scan();
  op.nin = 1;
  op.in[0] = value;
  begin_gradient(&op, has_gradient, gradient);
  give_gradient(0, g);
}

/* Stacks the slices that the steps of the backward have made, the last step's slice first. */
static void end_slices(void)
{
  for (int i = 0; i < scan.over.n; i++) {
    int value = scan.over.at[i];
    struct op op = around_scan();
    if (value == NONE) continue;
    op.kind = OP_scan_stack;
    op.phase = BACKWARD;
    op.dims = 1;
    for (int k = scan.over.n; k-- > i;) {
      if (scan.over.at[k] != value) continue;
      op.in[op.nin++] = scan.part.at[k];
      scan.over.at[k] = NONE;
    }
    give(value, append_op_shaped(op, graph->value[value].shape));
  }
  scan.over.n = scan.part.n = 0;
}

bool pass_step(const struct op *op, int at)
{
  int next = op ? scan_around(op->module) : NONE;
  if (next == scan.module) return false;
  bool ended = scan.module != NONE;
  if (ended) {
    for (int i = 0; i < scan.begins.n; i++)
      if (gradient[scan.enters.at[i]] != NONE)
        hold_both(gradient[scan.enters.at[i]], scan.begins.at[i]);
    end_slices();
    for (int i = 0; i < scan.shared.n; i++) {
      int value = scan.shared.at[i], sum = gradient[value];
      hold_both(sum, scan.zeros.at[i]);
      gradient[value] = scan.elsewhere.at[i];
      give(value, sum);
    }
  }
  scan.module = next;
  if (next == NONE) return ended;
  scan.line = op->line;
  scan.begins.n = scan.enters.n = 0;
  for (int i = 0; i < holds.n; i++) {
    const struct op hold = graph->op[holds.at[i]];
    if (maker_scan(hold.in[0]) != scan.module || !has_gradient[hold.in[0]]) continue;
    int *g = &gradient[hold.in[0]];
    *g = *g == NONE ? zeros_like(hold.in[0]) : entering(*g);
    add(&scan.begins, *g);
    add(&scan.enters, hold.in[1]);
  }
  begin_shared(at);
  return ended;
}

bool is_in_scan(void)
{
  return scan.module != NONE;
}

void write_scan_gradient(const struct op *op, int g)
{
  begin_gradient(op, has_gradient, gradient);
  if (op->kind == OP_scan_stack) {
    /* The slice that a step puts in has the gradient of the whole: the backward of the step takes
       its slice. */
    for (int i = 0; i < op->nin; i++) gradient[op->in[i]] = g;
  } else if (op->kind == OP_scan_put) {
    give_gradient(
        0, append_backward((struct op){.kind = OP_scan_take, .nin = 1, .in = {g}, .dims = 1}));
  } else {
    add(&scan.over, op->in[0]);
    add(&scan.part, append_backward((struct op){.kind = OP_scan_put, .nin = 1, .in = {g}}));
  }
}
