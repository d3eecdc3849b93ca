/* arrange.c: the pass `arrange`: in which order the dimensions of a value lie in memory.

   Takes   the flat local program, with a packing at every collective along a dimension that is not
           the first.
   Leaves  activations that have another dimension than the first outermost in memory where that
           saves copies, and the program without the packings that this makes needless. Others have
           become copies from one order to another: permute, which fuses with its neighbours.

   A gather along the sequence of [batch, sequence, width] puts the members' parts one after the
   other: where the sequence lies outermost that is the value itself, and so is what a
   reduce-scatter along it takes; an all-to-all is left with one packing of two. Kernels that are
   generated read and write any order, a product of matrices those in which it stays one call, a
   view what is the same bytes; moves keep the order. All else, and what lies outside of the arena,
   is as it is written.

   First every value that a packing's dimension reaches through such operations has it raised. It is
   lowered again wherever that cannot be, and with it in all that has to agree. Of what is left that
   is raised which saves most: a least cut between the raised and the others, where a packing is
   paid for that stays, and a kernel for what it does not read or write in the order of memory. With
   no gain nothing is raised. Operations that equal modules have in the same place are twins, and
   decided alike: outline.c can fold them afterwards.

   Costs are bytes read and written. A kernel that does not go along the rows of an operand costs as
   if it took whole lines for each element. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

/* Dearer than all that a program can move. */
#define NEVER (INT64_MAX / 4)

static int *wanted;         /* by value: the dimension that would be raised, or 0 */
static struct list *users;  /* by value: the operations that take or make it */
static int *next_twin;      /* by operation: a ring */
static double *plain_calls; /* by operation, a matmul: its products if nothing is raised */

/* ----------------------------------------------------------------------------- orders in memory */

int dimension_at(int value, int place)
{
  int front = graph->value[value].front;
  return place == 0 ? front : place <= front ? place - 1 : place;
}

int dimension_place(int value, int dim)
{
  int front = graph->value[value].front;
  return dim == front ? 0 : dim < front ? dim + 1 : dim;
}

void local_strides(int value, int rank, int64_t stride[MAX_DIMS])
{
  struct shape here = local_shape(value, rank);
  int64_t inside = 1;
  for (int at = here.ndim; at-- > 0;) {
    int d = dimension_at(value, at);
    stride[d] = inside;
    inside *= here.size[d];
  }
}

/* --------------------------------------------------------------------- operands of an operation */

static int operands(const struct op *op)
{
  return op->nin + op->nout;
}

static int operand(const struct op *op, int i)
{
  return i < op->nin ? op->in[i] : op->out + i - op->nin;
}

static const struct axis *axes(const struct op *op, const struct letters *l, int i)
{
  return i < op->nin ? l->in[i] : l->out[i - op->nin];
}

static int front(int value)
{
  return graph->value[value].front;
}

static bool is_packing(const struct op *op)
{
  return op->kind == OP_pack || op->kind == OP_unpack;
}

/* Whether it moves or reduces elements without a rule: dimensions stay what they are. */
static bool is_move(const struct op *op)
{
  return is_packing(op) || op->kind == OP_all_reduce || op->kind == OP_all_gather ||
         op->kind == OP_reduce_scatter || op->kind == OP_all_to_all || op->kind == OP_slice ||
         op->kind == OP_to_partial;
}

static bool takes_other_orders(const struct op *op)
{
  return is_pointwise(op->kind) || is_reduce(op->kind) || op->kind == OP_matmul ||
         op->kind == OP_view || is_move(op);
}

/* The letters of a value's dimensions in the order in which they lie in memory. */
static int letters_in_memory(const struct axis *axis, int value, int *letter)
{
  int n = 0;
  for (int at = 0; at < graph->value[value].shape.ndim; at++) {
    const struct axis *a = &axis[dimension_at(value, at)];
    for (int k = 0; k < a->n; k++) letter[n++] = a->letter[k];
  }
  return n;
}

/* ----------------------------------------------------------------------------- what can be done */

static bool is_same_bytes(const struct op *view)
{
  struct letters l;
  int in[MAX_LETTERS], out[MAX_LETTERS];
  op_letters(view, &l);
  int n = letters_in_memory(l.in[0], view->in[0], in);
  return n == letters_in_memory(l.out[0], view->out, out) &&
         !memcmp(in, out, (size_t)n * sizeof *in);
}

/* Whether the parts along `dim` that a collective takes from the value, or leaves in it, lie one
   after the other. Where they would not as the value is written, there is a packing, which makes
   them so in any order. */
static bool has_parts(int value, int dim)
{
  if (!front(value) || front(value) == dim) return true;
  struct shape here = local_shape(value, 0);
  for (int d = 0; d < dim; d++)
    if (here.size[d] != 1) return true;
  return false;
}

bool is_arranged(const struct op *op)
{
  bool plain = true;
  for (int i = 0; i < operands(op); i++) plain &= !front(operand(op, i));
  if (plain || is_pointwise(op->kind) || is_reduce(op->kind) || op->kind == OP_matmul) return true;
  if (op->kind == OP_view) return is_same_bytes(op);
  if (!is_move(op) || front(op->in[0]) != front(op->out)) return false;
  switch (op->kind) {
  case OP_all_gather:
    return has_parts(op->out, op->dim);
  case OP_reduce_scatter:
    return has_parts(op->in[0], op->dim);
  case OP_all_to_all:
    return has_parts(op->in[0], op->dim_to) && has_parts(op->out, op->dim);
  default:
    return true;
  }
}

/* Whether the operation can be done with its operands as they lie now; a packing also as a copy to
   where its dimension is outermost, or from there. */
static bool is_possible(int id)
{
  const struct op *op = &graph->op[id];
  if (op->kind == OP_matmul) return matmul_calls(op, 0) <= plain_calls[id];
  if (op->kind == OP_pack && front(op->out) == op->dim) return true;
  if (op->kind == OP_unpack && front(op->in[0]) == op->dim) return true;
  return is_arranged(op);
}

static bool is_needless(const struct op *op)
{
  return is_packing(op) && front(op->in[0]) == op->dim && front(op->out) == op->dim;
}

/* -------------------------------------------------------------------------------- what it costs */

/* Whether operand i has the letters that it shares with operand `space` in the same order. The last
   of them is told, and that of the space. */
static bool walks_alike(const struct op *op, const struct letters *l, int space, int i, int *last,
                        int *last_walked)
{
  int walk[MAX_LETTERS], own[MAX_LETTERS], shared = 0, met = 0;
  int n = letters_in_memory(axes(op, l, space), operand(op, space), walk),
      m = letters_in_memory(axes(op, l, i), operand(op, i), own);
  for (int k = 0; k < m; k++) {
    bool walked = false;
    for (int j = 0; j < n; j++) walked |= walk[j] == own[k];
    if (walked) own[shared++] = own[k];
  }
  for (int j = 0; j < n && met < shared; j++) met += walk[j] == own[met];
  *last = shared ? own[shared - 1] : NONE;
  *last_walked = n ? walk[n - 1] : NONE;
  return met == shared;
}

/* What a kernel that goes through memory as `space` lies has to read or write in vain of operand i,
   in bytes; a permute that has nothing to do costs less than one that moves. */
static int64_t kernel_waste(const struct op *op, const struct letters *l, int space, int i)
{
  enum { LINE = 64, SHARE = 16 };
  int last, last_walked, value = operand(op, i);
  if (walks_alike(op, l, space, i, &last, &last_walked)) return 0;
  int64_t bytes = largest_bytes(value), each = type_bytes(graph->value[value].type);
  int64_t moved = op->kind == OP_permute ? bytes : 0;
  if (last != last_walked) return moved + bytes * LINE / each;
  int64_t run = l->size[last] * each;
  return moved + (run < LINE ? bytes * LINE / run : bytes / SHARE);
}

/* ---------------------------------------------------------------------------------------- twins */

/* Where an operation stands: in modules of this class of paths, as the place-th of its phase. */
struct spot {
  const char *path;
  int phase, place, op;
};

/* "layers.*.attention" */
static const char *class_of_paths(const char *path)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *c = path; *c;) {
    size_t n = strcspn(c, ".");
    bool number = n && strspn(c, "0123456789") == n;
    put(&b, "%s%.*s", b.length ? "." : "", number ? 1 : (int)n, number ? "*" : c);
    c += n + (c[n] == '.');
  }
  return b.text;
}

static int by_spot(const void *a, const void *b)
{
  const struct spot *x = a, *y = b;
  int paths = strcmp(x->path, y->path);
  if (paths) return paths;
  if (x->phase != y->phase) return x->phase < y->phase ? -1 : 1;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  return (x->op > y->op) - (x->op < y->op);
}

static bool are_alike(const struct op *a, const struct op *b)
{
  if (a->kind != b->kind || a->nin != b->nin || a->nout != b->nout || a->dim != b->dim ||
      (a->equation && strcmp(a->equation, b->equation)))
    return false;
  for (int i = 0; i < operands(a); i++)
    if (!same_shape(graph->value[operand(a, i)].shape, graph->value[operand(b, i)].shape))
      return false;
  return true;
}

static int find_spots(struct spot *spot)
{
  const char **path = alloc((size_t)(graph->nmodule + 1) * sizeof *path);
  int *count = alloc((size_t)(graph->nmodule + 1) * PHASES * sizeof *count), n = 0;
  for (int m = 0; m < graph->nmodule; m++) path[m] = class_of_paths(graph->module[m].path);
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->module == NONE || !strchr(path[op->module], '*')) continue;
    spot[n++] = (struct spot){.path = path[op->module],
                              .phase = (int)op->phase,
                              .place = count[op->module * PHASES + (int)op->phase]++,
                              .op = graph->order[i]};
  }
  return n;
}

static void find_twins(void)
{
  next_twin = alloc((size_t)(graph->nop + 1) * sizeof *next_twin);
  struct spot *spot = alloc((size_t)(graph->norder + 1) * sizeof *spot);
  for (int i = 0; i < graph->nop; i++) next_twin[i] = i;
  int n = find_spots(spot);
  qsort(spot, (size_t)n, sizeof *spot, by_spot);
  for (int i = 1; i < n; i++) {
    const struct spot *x = &spot[i - 1], *y = &spot[i];
    if (strcmp(x->path, y->path) || x->phase != y->phase || x->place != y->place ||
        !are_alike(&graph->op[x->op], &graph->op[y->op]))
      continue;
    next_twin[y->op] = next_twin[x->op];
    next_twin[x->op] = y->op;
  }
}

/* ---------------------------------------------------------------------- raising all that can be */

/* Whether the value's order is ours to choose: it lies in the arena, and whatever takes or makes it
   may do so in another. */
static bool is_free(int value)
{
  const struct value *v = &graph->value[value];
  if (v->role != ACTIVATION || v->is_output || v->op == NONE) return false;
  for (int k = 0; k < users[value].n; k++)
    if (!takes_other_orders(&graph->op[users[value].at[k]])) return false;
  return true;
}

static void find_users(void)
{
  users = alloc((size_t)(graph->nvalue + 1) * sizeof *users);
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    for (int i = 0; i < operands(op); i++) {
      struct list *list = &users[operand(op, i)];
      if (!list->n || list->at[list->n - 1] != graph->order[k]) add(list, graph->order[k]);
    }
  }
}

/* The dimension of operand j that goes with dimension `dim` of operand i; 0 where there is none, or
   it is the first in any case. */
static int dimension_with(const struct op *op, const struct letters *l, int i, int dim, int j)
{
  if (is_move(op)) return dim;
  const struct axis *a = &axes(op, l, i)[dim], *b = axes(op, l, j);
  if (a->n != 1) return 0;
  for (int d = 1; d < graph->value[operand(op, j)].shape.ndim; d++)
    if (b[d].n == 1 && b[d].letter[0] == a->letter[0]) return d;
  return 0;
}

static void want(struct list *reached, int value, int dim)
{
  if (!dim || wanted[value] || !is_free(value)) return;
  wanted[value] = dim;
  add(reached, value);
}

/* Carries the wish of a value on to all that its operations take and make. */
static void carry_on(struct list *reached, int value)
{
  for (int k = 0; k < users[value].n; k++) {
    const struct op *op = &graph->op[users[value].at[k]];
    struct letters l;
    if (!is_move(op)) op_letters(op, &l);
    for (int i = 0; i < operands(op); i++) {
      if (operand(op, i) != value) continue;
      for (int j = 0; j < operands(op); j++)
        want(reached, operand(op, j), dimension_with(op, &l, i, wanted[value], j));
    }
  }
}

/* Wishes begin at the packings along a dimension that is not the last, then at the others: rows
   that stay rows suit more operations. */
static void want_packed(bool last)
{
  struct list reached = {0};
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (!is_packing(op) || (op->dim + 1 == graph->value[op->out].shape.ndim) != last) continue;
    reached.n = 0;
    want(&reached, op->in[0], op->dim);
    want(&reached, op->out, op->dim);
    for (int i = 0; i < reached.n; i++) carry_on(&reached, reached.at[i]);
  }
}

static void raise_all(void)
{
  wanted = alloc((size_t)(graph->nvalue + 1) * sizeof *wanted);
  want_packed(false);
  want_packed(true);
  plain_calls = alloc((size_t)(graph->nop + 1) * sizeof *plain_calls);
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (op->kind == OP_matmul) plain_calls[graph->order[k]] = matmul_calls(op, 0);
  }
  for (int v = 0; v < graph->nvalue; v++) graph->value[v].front = wanted[v];
}

/* ------------------------------------------------------------------------------- lowering again */

static void lower(struct list *lowered, int value)
{
  if (!front(value)) return;
  graph->value[value].front = 0;
  add(lowered, value);
}

/* Lowers what stands where `value` does in the operation's twins. */
static void lower_twins(struct list *lowered, int id, int value)
{
  for (int i = 0; i < operands(&graph->op[id]); i++) {
    if (operand(&graph->op[id], i) != value) continue;
    for (int t = next_twin[id]; t != id; t = next_twin[t])
      lower(lowered, operand(&graph->op[t], i));
  }
}

static void settle_op(struct list *lowered, int id)
{
  const struct op *op = &graph->op[id];
  if (!is_possible(id))
    for (int i = 0; i < operands(op); i++) lower(lowered, operand(op, i));
}

/* Lowers what those that were lowered, from `from` on, leave no other choice. */
static void settle(struct list *lowered, int from)
{
  for (int i = from; i < lowered->n; i++) {
    int value = lowered->at[i];
    for (int k = 0; k < users[value].n; k++) {
      lower_twins(lowered, users[value].at[k], value);
      settle_op(lowered, users[value].at[k]);
    }
  }
}

static void lower_impossible(void)
{
  struct list lowered = {0};
  for (int k = 0; k < graph->norder; k++) {
    int id = graph->order[k], twin = next_twin[id];
    settle_op(&lowered, id);
    for (int i = 0; i < operands(&graph->op[id]); i++) {
      int a = operand(&graph->op[id], i), b = operand(&graph->op[twin], i);
      if (front(a) == front(b)) continue;
      lower(&lowered, a);
      lower(&lowered, b);
    }
    settle(&lowered, 0);
    lowered.n = 0;
  }
}

/* ----------------------------------------------------------------------------------- the choice */

static struct cut *choice; /* near: raised */
static int *node_of;       /* by value: its node; twins' have one */
static int *same_as;       /* by value: an earlier one of the same node, or itself */

static int first_of(int value)
{
  while (same_as[value] != value) value = same_as[value];
  return value;
}

static void unite(int a, int b)
{
  a = first_of(a);
  b = first_of(b);
  same_as[a < b ? b : a] = a < b ? a : b;
}

static void find_nodes(void)
{
  same_as = alloc((size_t)(graph->nvalue + 1) * sizeof *same_as);
  node_of = alloc((size_t)(graph->nvalue + 1) * sizeof *node_of);
  for (int v = 0; v < graph->nvalue; v++) same_as[v] = v;
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    const struct op *twin = &graph->op[next_twin[graph->order[k]]];
    for (int i = 0; i < operands(op); i++) unite(operand(op, i), operand(twin, i));
  }
  choice = new_cut();
  for (int v = 0; v < graph->nvalue; v++)
    node_of[v] = same_as[v] == v ? add_node(choice) : node_of[first_of(v)];
}

/* What it wastes if the space, and operand i, are raised or not. */
static int64_t waste_if(const struct op *op, const struct letters *l, int space, int i,
                        bool space_raised, bool raised)
{
  struct value *a = &graph->value[operand(op, space)], *b = &graph->value[operand(op, i)];
  int front_a = a->front, front_b = b->front;
  if (!space_raised) a->front = 0;
  if (!raised) b->front = 0;
  int64_t waste = kernel_waste(op, l, space, i);
  a->front = front_a;
  b->front = front_b;
  return waste;
}

static void price_operand(const struct op *op, const struct letters *l, int space, int i)
{
  int a = operand(op, space), b = operand(op, i);
  int64_t none = waste_if(op, l, space, i, false, false),
          first = waste_if(op, l, space, i, true, false),
          second = waste_if(op, l, space, i, false, true),
          both = waste_if(op, l, space, i, true, true);
  if (node_of[a] == node_of[b]) {
    add_own_price(choice, node_of[a], both - none);
  } else if (!front(b)) {
    add_own_price(choice, node_of[a], first - none);
  } else if (!front(a)) {
    add_own_price(choice, node_of[b], second - none);
  } else {
    add_own_price(choice, node_of[a], first - none);
    add_own_price(choice, node_of[b], both - first);
    add_price(choice, node_of[b], node_of[a], first + second - none - both);
  }
}

static void price_kernel(const struct op *op)
{
  struct letters l;
  op_letters(op, &l);
  int space = is_reduce(op->kind) ? 0 : op->nin;
  for (int i = 0; i < operands(op); i++)
    if (i != space && (front(operand(op, i)) || front(operand(op, space))))
      price_operand(op, &l, space, i);
}

/* A packing is spared where both sides are raised. */
static void price_packing(const struct op *op)
{
  if (!is_needless(op)) return;
  int spared = add_node(choice);
  add_own_price(choice, spared, -2 * largest_bytes(op->out));
  add_price(choice, spared, node_of[op->in[0]], NEVER);
  add_price(choice, spared, node_of[op->out], NEVER);
}

/* What cannot stay raised if operand i is lowered. */
static void tie_operands(int id)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < operands(op); i++) {
    struct value *v = &graph->value[operand(op, i)];
    int raised = v->front;
    v->front = 0;
    bool possible = !raised || is_possible(id);
    v->front = raised;
    for (int j = 0; j < operands(op) && !possible; j++)
      if (front(operand(op, j)))
        add_price(choice, node_of[operand(op, j)], node_of[operand(op, i)], NEVER);
  }
}

static void choose(void)
{
  find_nodes();
  for (int k = 0; k < graph->norder; k++) {
    const struct op *op = &graph->op[graph->order[k]];
    if (!takes_other_orders(op)) continue;
    tie_operands(graph->order[k]);
    if (is_packing(op)) price_packing(op);
    if (is_pointwise(op->kind) || is_reduce(op->kind)) price_kernel(op);
  }
  bool *raised = near_side(choice);
  for (int v = 0; v < graph->nvalue; v++)
    if (!raised[node_of[v]]) graph->value[v].front = 0;
}

/* ---------------------------------------------------------------------------------- the program */

static void take_packings_out(void)
{
  int *stands_for = alloc((size_t)(graph->nvalue + 1) * sizeof *stands_for), kept = 0;
  for (int v = 0; v < graph->nvalue; v++) stands_for[v] = v;
  for (int k = 0; k < graph->norder; k++) {
    struct op *op = &graph->op[graph->order[k]];
    for (int i = 0; i < op->nin; i++) op->in[i] = stands_for[op->in[i]];
    if (is_needless(op)) {
      stands_for[op->out] = op->in[0];
      continue;
    }
    if (is_packing(op) && front(op->in[0]) != front(op->out)) {
      op->kind = OP_permute;
      op->equation = identity_equation(graph->value[op->out].shape.ndim);
    }
    if (op->kind == OP_permute && is_same_bytes(op)) op->kind = OP_view;
    graph->order[kept++] = graph->order[k];
  }
  graph->norder = kept;
}

static bool has_packings(void)
{
  for (int k = 0; k < graph->norder; k++)
    if (is_packing(&graph->op[graph->order[k]])) return true;
  return false;
}

void arrange(void)
{
  if (has_packings()) {
    find_users();
    find_twins();
    raise_all();
    lower_impossible();
    choose();
    lower_impossible();
  }
  take_packings_out();
}
