/* assign_dim_order.c: the pass `assign_dim_order`: the order of a value's dimensions in memory.

   Takes   the flat local program, with a packing at every collective along a dimension other than
           the first.
   Leaves  activations with another order of dimensions in memory where that saves copies, and the
           program without the packings and permutes that this makes redundant. Other packings
           become copies from one order to another: permute, which fuses with its neighbours.

   A gather along the sequence of [batch, sequence, width] concatenates the members' parts. If the
   sequence is outermost, the result is the value itself, and a reduce-scatter along it takes the
   value itself. An all-to-all keeps one packing of two. Orders that operations take: generated
   kernels any; a product of matrices those in which it stays one call; a view those in which it is
   the same bytes; a move keeps the order; a kernel from a file takes any for the operands whose
   strides it asks for. All else, and values outside of the arena, keep the written order.

   First, every value that a packing's dimension reaches through such operations gets it moved to
   the front, that is outermost. Then the operands of kernels that take any order get the one in
   which a permute before or after them moves nothing: attention finds its heads where the products
   leave them. Where that is impossible a value returns to the written order ("is lowered"), and
   with it all that have to agree. A minimum cut then selects, among the values still moved to the
   front, those that save most: the price of a cut is that of the packings that stay, and of kernels
   that read or write out of memory order. Without a gain nothing is moved to the front. Operations
   at the same place in equal modules are counterparts and get one decision, so that outline.c can
   fold them.

   Costs are bytes read and written. A kernel that does not walk along an operand's rows is charged
   a whole cache line for each element. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* More than the cost of all moves of a program. */
#define NEVER (INT64_MAX / 4)

/* The state of the pass. */
struct ordering {
  unsigned *requested;   /* by value: its requested order, or 0 */
  struct list *users;    /* by value: the operations that read or make it */
  int *next_counterpart; /* by operation: a ring */
  double *plain_calls;   /* by operation, a matmul: its products if nothing is moved to the front */
  struct cut *choice;    /* near: moved to the front */
  int *node_of;          /* by value: its node; counterparts share one */
  int *same_as;          /* by value: an earlier one of the same node, or itself */
  int64_t counterparts;
};

/* ----------------------------------------------------------------------------- orders in memory */

static bool is_packing(const struct op *op)
{
  return op_row[op->kind].step == PACKING;
}

/* Whether the operation is possible with its operands' present orders; a packing also as a copy to
   an order with its dimension outermost, or from one. */
static bool is_possible(struct ordering *o, int id)
{
  const struct op *op = &graph->op[id];
  if (!has_other_orders(op)) return true;
  if (op->kind == OP_matmul) return matmul_calls(op, 0) <= o->plain_calls[id];
  if (op->kind == OP_pack && dimension_at(op->out, 0) == op->dim) return true;
  if (op->kind == OP_unpack && dimension_at(op->in[0], 0) == op->dim) return true;
  return follows_dim_order(op);
}

static bool is_needless(const struct op *op)
{
  return is_packing(op) && dimension_at(op->in[0], 0) == op->dim &&
         graph->value[op->in[0]].order == graph->value[op->out].order;
}

/* ------------------------------------------------------------------------------------ the costs */

/* ---------------------------------------------------------------------- raising all that can be */

/* The dimension of operand j for dimension `dim` of operand i; 0 if it has none, or that is the
   first. */
static int dimension_with(const struct op *op, const struct letters *l, int i, int dim, int j)
{
  const struct axis *a = &operand_axes(op, l, i)[dim], *b = operand_axes(op, l, j);
  if (a->n != 1) return 0;
  for (int d = 1; d < graph->value[nth_operand(op, j)].shape.ndim; d++)
    if (b[d].n == 1 && b[d].letter[0] == a->letter[0]) return d;
  return 0;
}

/* The index in the list of the first of the dimension's letters; NONE if the list has none. */
static int place_of(const struct axis *axis, const int *letter, int n)
{
  for (int at = 0; at < n; at++)
    for (int k = 0; k < axis->n; k++)
      if (axis->letter[k] == letter[at]) return at;
  return NONE;
}

/* The order in which the dimensions with letters of the list follow the list; the others stay in
   place. */
static unsigned order_along(const struct axis *axis, int ndim, const int *letter, int n)
{
  int dim[MAX_DIMS], place[MAX_DIMS], shared = 0, taken = 0;
  for (int d = 0; d < ndim; d++) {
    place[d] = place_of(&axis[d], letter, n);
    if (place[d] == NONE) continue;
    int at = shared++;
    for (; at > 0 && place[dim[at - 1]] > place[d]; at--) dim[at] = dim[at - 1];
    dim[at] = d;
  }
  unsigned order = 0;
  for (int at = 0; at < ndim; at++)
    order = order_with_dimension(order, at, place[at] == NONE ? at : dim[taken++]);
  bool is_written = true;
  for (int at = 0; at < ndim && is_written; at++) is_written = (int)(order >> 3 * at & 7) == at;
  return is_written ? 0 : order;
}

/* The order of operand j for the one requested for operand i. */
static unsigned order_with(struct ordering *o, const struct op *op, const struct letters *l, int i,
                           int j)
{
  int value = nth_operand(op, i), letter[MAX_LETTERS];
  int ndim = graph->value[nth_operand(op, j)].shape.ndim;
  if (keeps_dimensions(op)) return o->requested[value];
  int first = (int)(o->requested[value] & 7);
  if (o->requested[value] == moved_to_front(first, graph->value[value].shape.ndim))
    return moved_to_front(dimension_with(op, l, i, first, j), ndim);
  graph->value[value].order = o->requested[value];
  int n = letters_in_memory(operand_axes(op, l, i), value, letter);
  graph->value[value].order = 0;
  return order_along(operand_axes(op, l, j), ndim, letter, n);
}

static void want(struct ordering *o, struct list *reached, int value, unsigned order)
{
  if (!order || o->requested[value]) return;
  /* Whether the pass may choose the value's order: it is in the arena, and all its readers and its
     maker take another order. */
  const struct value *v = &graph->value[value];
  bool is_free = v->role == ACTIVATION && !v->is_output && v->op != NONE && v->counts == NONE;
  for (int k = 0; k < o->users[value].n && is_free; k++) {
    const struct op *op = &graph->op[o->users[value].at[k]];
    for (int i = 0; i < operand_count(op) && is_free; i++)
      is_free = nth_operand(op, i) != value || takes_other_orders(op, i);
  }
  if (!is_free) return;
  o->requested[value] = order;
  add(reached, value);
}
/* Propagates the request for a value to all operands of its operations. */
static void carry_on(struct ordering *o, struct list *reached, int value)
{
  for (int k = 0; k < o->users[value].n; k++) {
    const struct op *op = &graph->op[o->users[value].at[k]];
    struct letters l;
    bool has_letters = keeps_dimensions(op);
    for (int i = 0; i < operand_count(op); i++) {
      if (nth_operand(op, i) != value) continue;
      for (int j = 0; j < operand_count(op); j++) {
        if (o->requested[nth_operand(op, j)]) continue;
        if (!has_letters) op_letters(op, &l);
        has_letters = true;
        want(o, reached, nth_operand(op, j), order_with(o, op, &l, i, j));
      }
    }
  }
}

/* Requests begin at the packings along a dimension that is not the last, then at the others: more
   operations can use rows that stay rows. */
static void want_packed(struct ordering *o, bool last)
{
  struct list reached = {0};
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (!is_packing(op) || (op->dim + 1 == graph->value[op->out].shape.ndim) != last) continue;
    reached.n = 0;
    unsigned order = moved_to_front(op->dim, graph->value[op->out].shape.ndim);
    want(o, &reached, op->in[0], order);
    want(o, &reached, op->out, order);
    for (int i = 0; i < reached.n; i++) carry_on(o, &reached, reached.at[i]);
  }
}

/* The order of operand j, one side of a permute, in which the permute moves nothing. */
static unsigned order_unmoved(const struct op *permute, int j)
{
  struct letters l;
  int letter[MAX_LETTERS], i = !j;
  op_letters(permute, &l);
  int n = letters_in_memory(operand_axes(permute, &l, i), nth_operand(permute, i), letter);
  return order_along(operand_axes(permute, &l, j), graph->value[nth_operand(permute, j)].shape.ndim,
                     letter, n);
}

/* Whether each element of the output depends only on input elements at its own place. */
static bool keeps_places(const struct op *op)
{
  return is_pointwise(op->kind) && op->nin &&
         same_shape(graph->value[op->in[0]].shape, graph->value[op->out].shape);
}

/* The order in which a permute would move nothing: one that makes the value, or reads it, through
   kernels that keep all elements in place; 0 without such a permute. */
static unsigned order_of_source(int value)
{
  for (;;) {
    const struct value *v = &graph->value[value];
    if (v->op == NONE) return 0;
    const struct op *op = &graph->op[v->op];
    if (op->kind == OP_permute) return order_unmoved(op, 1);
    if (!keeps_places(op)) return 0;
    value = op->in[0];
  }
}

static unsigned order_of_target(struct ordering *o, int value, int depth)
{
  for (int k = 0; k < o->users[value].n; k++) {
    const struct op *op = &graph->op[o->users[value].at[k]];
    if (op->in[0] != value || op->nin == 0) continue;
    if (op->kind == OP_permute) return order_unmoved(op, 0);
    if (!keeps_places(op) || depth == 0) continue;
    unsigned order = order_of_target(o, op->out, depth - 1);
    if (order) return order;
  }
  return 0;
}

static void raise_all(struct ordering *o)
{
  o->requested = alloc((size_t)(graph->nvalue + 1) * sizeof *o->requested);
  want_packed(o, false);
  want_packed(o, true);
  /* Requests also begin at kernels that take their operands in any order. */
  enum { DEPTH = 4 };
  struct list reached = {0};
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (!has_kernel(op->kind)) continue;
    for (int i = 0; i < operand_count(op); i++) {
      int value = nth_operand(op, i);
      if (o->requested[value] || !takes_steps(op, i)) continue;
      reached.n = 0;
      want(o, &reached, value,
           i < op->nin ? order_of_source(value) : order_of_target(o, value, DEPTH));
      for (int r = 0; r < reached.n; r++) carry_on(o, &reached, reached.at[r]);
    }
  }

  o->plain_calls = alloc((size_t)(graph->nop + 1) * sizeof *o->plain_calls);
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (op->kind == OP_matmul) {
      bool is_requested = false;
      for (int i = 0; i < operand_count(op) && !is_requested; i++)
        is_requested = o->requested[nth_operand(op, i)];
      if (is_requested) o->plain_calls[graph->order[k]] = matmul_calls(op, 0);
    }
  }
  for (int v = 0; v < graph->nvalue; v++) graph->value[v].order = o->requested[v];
}

/* ------------------------------------------------------------------------------- lowering again */

static void lower(struct list *lowered, int value)
{
  if (!lies_in_other_order(value)) return;
  graph->value[value].order = 0;
  add(lowered, value);
}

static void settle_op(struct ordering *o, struct list *lowered, int id)
{
  const struct op *op = &graph->op[id];
  if (!is_possible(o, id))
    for (int i = 0; i < operand_count(op); i++) lower(lowered, nth_operand(op, i));
}

/* Lowers the values for which the lowered ones, from `from` on, leave no other choice. */
static void settle(struct ordering *o, struct list *lowered, int from)
{
  for (int i = from; i < lowered->n; i++) {
    int value = lowered->at[i];
    for (int k = 0; k < o->users[value].n; k++) {
      /* Lowers the values in the place of `value` in the operation's counterparts. */
      int id = o->users[value].at[k];
      for (int j = 0; j < operand_count(&graph->op[id]); j++) {
        if (nth_operand(&graph->op[id], j) != value) continue;
        for (int t = o->next_counterpart[id]; t != id; t = o->next_counterpart[t])
          lower(lowered, nth_operand(&graph->op[t], j));
      }
      settle_op(o, lowered, o->users[value].at[k]);
    }
  }
}

static void lower_impossible(struct ordering *o)
{
  struct list lowered = {0};
  for (int k = 0; k < graph->norder; k++) {
    int id = graph->order[k], counterpart = o->next_counterpart[id];
    settle_op(o, &lowered, id);
    for (int i = 0; i < operand_count(&graph->op[id]); i++) {
      int a = nth_operand(&graph->op[id], i), b = nth_operand(&graph->op[counterpart], i);
      if (graph->value[a].order == graph->value[b].order) continue;
      lower(&lowered, a);
      lower(&lowered, b);
    }
    settle(o, &lowered, 0);
    lowered.n = 0;
  }
}

/* ----------------------------------------------------------------------------------- the choice */

static int first_of(struct ordering *o, int value)
{
  while (o->same_as[value] != value) value = o->same_as[value];
  return value;
}

static void find_nodes(struct ordering *o)
{
  o->same_as = alloc((size_t)(graph->nvalue + 1) * sizeof *o->same_as);
  o->node_of = alloc((size_t)(graph->nvalue + 1) * sizeof *o->node_of);
  for (int v = 0; v < graph->nvalue; v++) o->same_as[v] = v;
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    const struct op *counterpart = &graph->op[o->next_counterpart[graph->order[k]]];
    for (int i = 0; i < operand_count(op); i++) {
      int a = nth_operand(op, i);
      int b = nth_operand(counterpart, i);
      a = first_of(o, a);
      b = first_of(o, b);
      o->same_as[a < b ? b : a] = a < b ? a : b;
    }
  }
  o->choice = new_cut();
  for (int v = 0; v < graph->nvalue; v++)
    o->node_of[v] = o->same_as[v] == v ? add_node(o->choice) : o->node_of[first_of(o, v)];
}

/* The number of operations priced at once: an operation and its counterparts, which share nodes. */

/* The waste if the space, and operand i, are moved to the front or not. */
static int64_t waste_if(const struct op *op, const struct letters *l, int space, int i,
                        bool space_raised, bool other_raised)
{
  struct value *a = &graph->value[nth_operand(op, space)], *b = &graph->value[nth_operand(op, i)];
  unsigned order_a = a->order, order_b = b->order;
  if (!space_raised) a->order = 0;
  if (!other_raised) b->order = 0;
  /* The useless bytes of operand i that a kernel walking in the memory order of `space` reads or
     writes. A permute that moves nothing costs less than one that moves. */
  enum { LINE = 64, SHARE = 16 };
  int last, last_walked, value = nth_operand(op, i);
  int64_t waste = 0;
  /* Whether operand i has the letters that it shares with operand `space` in the same order. *last
     is the last of them, *last_walked that of the space. */
  int walk[MAX_LETTERS], own[MAX_LETTERS], shared = 0, met = 0;
  int n = letters_in_memory(operand_axes(op, l, space), nth_operand(op, space), walk),
      m = letters_in_memory(operand_axes(op, l, i), nth_operand(op, i), own);
  for (int k = 0; k < m; k++) {
    bool walked = false;
    for (int j = 0; j < n; j++) walked |= walk[j] == own[k];
    if (walked) own[shared++] = own[k];
  }
  for (int j = 0; j < n && met < shared; j++) met += walk[j] == own[met];
  last = shared ? own[shared - 1] : NONE;
  last_walked = n ? walk[n - 1] : NONE;
  if (met != shared) {
    int64_t bytes = largest_bytes(value), each = type_bytes(graph->value[value].type);
    int64_t moved = op->kind == OP_permute ? bytes : 0;
    if (last != last_walked) {
      waste = moved + bytes * LINE / each;
    } else {
      int64_t run = l->size[last] * each;
      waste = moved + (run < LINE ? bytes * LINE / run : bytes / SHARE);
    }
  }
  a->order = order_a;
  b->order = order_b;
  return waste;
}

static void price_operand(struct ordering *o, const struct op *op, const struct letters *l,
                          int space, int i)
{
  int a = nth_operand(op, space), b = nth_operand(op, i);
  int64_t none = waste_if(op, l, space, i, false, false),
          first = waste_if(op, l, space, i, true, false),
          second = waste_if(op, l, space, i, false, true),
          both = waste_if(op, l, space, i, true, true);
  if (o->node_of[a] == o->node_of[b]) {
    add_own_price(o->choice, o->node_of[a], o->counterparts * (both - none));
  } else if (!lies_in_other_order(b)) {
    add_own_price(o->choice, o->node_of[a], o->counterparts * (first - none));
  } else if (!lies_in_other_order(a)) {
    add_own_price(o->choice, o->node_of[b], o->counterparts * (second - none));
  } else {
    add_own_price(o->choice, o->node_of[a], o->counterparts * (first - none));
    add_own_price(o->choice, o->node_of[b], o->counterparts * (both - first));
    add_price(o->choice, o->node_of[b], o->node_of[a],
              o->counterparts * (first + second - none - both));
  }
}

/* Ties the values that cannot stay moved to the front if operand i is lowered. */
static void tie_operands(struct ordering *o, int id)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < operand_count(op); i++) {
    struct value *v = &graph->value[nth_operand(op, i)];
    unsigned order = v->order;
    v->order = 0;
    bool possible = !order || is_possible(o, id);
    v->order = order;
    for (int j = 0; j < operand_count(op) && !possible; j++)
      if (lies_in_other_order(nth_operand(op, j)))
        add_price(o->choice, o->node_of[nth_operand(op, j)], o->node_of[nth_operand(op, i)], NEVER);
  }
}

static void choose(struct ordering *o)
{
  bool *priced = alloc((size_t)graph->nop + 1);
  find_nodes(o);
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (priced[graph->order[k]] || !takes_other_orders(op, NONE)) continue;
    o->counterparts = 0;
    for (int t = graph->order[k]; !priced[t]; t = o->next_counterpart[t], o->counterparts++)
      priced[t] = true;
    tie_operands(o, graph->order[k]);
    /* A packing is saved if both sides are moved to the front. */
    if (is_packing(op) && is_needless(op)) {
      int spared = add_node(o->choice);
      add_own_price(o->choice, spared, -2 * o->counterparts * largest_bytes(op->out));
      add_price(o->choice, spared, o->node_of[op->in[0]], NEVER);
      add_price(o->choice, spared, o->node_of[op->out], NEVER);
    }
    if (is_pointwise(op->kind) || is_reduce(op->kind)) {
      struct letters l;
      if (has_other_orders(op)) {
        op_letters(op, &l);
        int space = is_reduce(op->kind) ? 0 : op->nin;
        for (int i = 0; i < operand_count(op); i++)
          if (i != space && (lies_in_other_order(nth_operand(op, i)) ||
                             lies_in_other_order(nth_operand(op, space))))
            price_operand(o, op, &l, space, i);
      }
    }
  }
  bool *near = near_side(o->choice);
  for (int v = 0; v < graph->nvalue; v++)
    if (!near[o->node_of[v]]) graph->value[v].order = 0;
}

/* ---------------------------------------------------------------------------------- the program */

static void take_packings_out(void)
{
  int *stands_for = alloc((size_t)(graph->nvalue + 1) * sizeof *stands_for), kept = 0;
  for (int v = 0; v < graph->nvalue; v++) stands_for[v] = v;
  for (int k = 0; k < graph->norder; k++) {
    struct op *op = &graph->op[graph->order[k]];
    for (int i = 0; i < op->nin; i++) {
      int was = op->in[i];
      op->in[i] = stands_for[was];
      if (op->in[i] != was) op->continues &= graph->op[graph->value[was].op].continues;
    }
    if (is_needless(op)) {
      stands_for[op->out] = op->in[0];
      continue;
    }
    if (is_packing(op) && graph->value[op->in[0]].order != graph->value[op->out].order) {
      op->kind = OP_permute;
      op->equation = identity_equation(graph->value[op->out].shape.ndim);
    }
    if (op->kind == OP_permute && is_same_bytes(op)) op->kind = OP_view;
    graph->order[kept++] = graph->order[k];
  }
  graph->norder = kept;
}

/* Whether the program has a packing, or a kernel that takes other orders next to a permute. */
static bool has_work(void)
{
  bool permutes = false, kernels = false;
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (is_packing(op)) return true;
    permutes |= op->kind == OP_permute;
    for (int i = 0; i < operand_count(op) && has_kernel(op->kind); i++)
      kernels |= takes_steps(op, i);
  }
  return permutes && kernels;
}

void assign_dim_order(void)
{
  struct ordering run = {0}, *o = &run;
  if (has_work()) {
    o->users = alloc((size_t)(graph->nvalue + 1) * sizeof *o->users);
    for (int k = 0; k < graph->norder; k++) {
      const struct op *op = &graph->op[graph->order[k]];
      for (int i = 0; i < operand_count(op); i++) {
        struct list *list = &o->users[nth_operand(op, i)];
        if (!list->n || list->at[list->n - 1] != graph->order[k]) add(list, graph->order[k]);
      }
    }
    o->next_counterpart = find_counterparts();
    raise_all(o);
    lower_impossible(o);
    choose(o);
    lower_impossible(o);
  }
  take_packings_out();
}
