/* merge_products.c: the pass `merge_products`: one product instead of several that read the same.

   Takes   functions whose products are single.
   Leaves  products that are equal in all but one operand, or in all but the terms of one sum, as
   one operation `products`, which is one call:

             y1 = x W1,  y2 = x W2            of one input with several weights
             d_x = d_y1 W1 + d_y2 W2          the gradient of that input
             d_W1 = d_y1 x,  d_W2 = d_y2 x    the gradients of those weights

   In each operand that differs the parts lie side by side, in the order of the weights: weights and
   their gradients as members of a struct, one after the other; values of the step as parts of a
   wide value, which has a place in the arena and no other meaning. A part of it has rows that are
   apart (local_strides): a kernel or a product reads and writes it by its strides, without a copy.

   It is done where that costs nothing: weights with nothing between them, parts that are equal on
   all ranks, values that only such operations touch that take strides, and that live equally long:
   in a wide value one part keeps the others. A program that looks for numbers that are not finite
   has no wide values, and one that is not trained keeps its products. */
#include "folded/folded.h"

#include <string.h>

enum { MOST_TOGETHER = 8, FARTHEST = 512 }; /* how far the search goes */

/* Products of one function that may be one, in the order of their places. */
struct bunch {
  enum { OF_ONE_INPUT, OF_ONE_SUM, OF_GRADIENTS } form;
  int n, op[MOST_TOGETHER], at[MOST_TOGETHER]; /* at: their places, or that of the adder */
  int result;                                  /* OF_ONE_SUM: the value of the sum */
  int adder; /* the kernel that adds the products up, or NONE: they add themselves */
};

static struct list *readers; /* by value, or its family: the operations that read it */
static int *place_of;        /* by operation, likewise: its place in the function */
static int *function_of;     /* by operation of a function, or of a kernel in it */
static bool *is_tight;   /* by operation: it stands in an epilogue, whose operands have no gaps */
static bool *told_apart; /* by family: a member is read by its own name, or as that of another
                            module */

/* ---------------------------------------------------------------------------------- who reads what
 */

static void note_reads(int id, int function, int place)
{
  const struct op *op = &graph->op[id];
  function_of[id] = function;
  place_of[id] = place;
  for (int k = 0; k < op->nbody; k++) {
    note_reads(op->body[k], function, place);
    is_tight[op->body[k]] = op->kind == OP_epilogue;
  }
  for (int i = 0; i < op->nin && !op->nbody; i++) {
    const struct value *v = &graph->value[op->in[i]];
    int family = v->family == NONE ? op->in[i] : v->family;
    add(&readers[family], id);
    if (v->family != NONE && (v->family != op->in[i] || graph->function[function].count == 1))
      told_apart[family] = true;
    if (v->step && graph->value[v->initial].family != NONE)
      told_apart[graph->value[v->initial].family] = true;
    if (v->step) add(&readers[v->initial], id);
  }
}

static void find_all_readers(void)
{
  readers = alloc((size_t)(graph->nvalue + 1) * sizeof *readers);
  is_tight = alloc((size_t)graph->nop + 1);
  function_of = alloc((size_t)(2 * graph->nop + 1) * sizeof *function_of); /* room for new ones */
  place_of = alloc((size_t)(2 * graph->nop + 1) * sizeof *place_of);
  told_apart = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nop; i++) function_of[i] = NONE;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) note_reads(graph->function[i].op[k], i, k);
}

/* --------------------------------------------------------------------------- parts of a wide value
 */

/* A value, and all that shows its bytes in another shape. */
struct shown {
  int n, value[2 * MOST_TOGETHER];
};

static bool add_shown(struct shown *s, int value)
{
  if (s->n == 2 * MOST_TOGETHER) return false;
  s->value[s->n++] = value;
  for (int k = 0; k < readers[value].n; k++) {
    const struct op *op = &graph->op[readers[value].at[k]];
    if (op->kind == OP_view && !add_shown(s, op->out)) return false;
  }
  return true;
}

/* The value whose bytes a view shows, or the value itself. */
static int shows(int value)
{
  const struct value *v = &graph->value[value];
  while (v->op != NONE && graph->op[v->op].kind == OP_view && v->role == ACTIVATION) {
    value = graph->op[v->op].in[0];
    v = &graph->value[value];
  }
  return value;
}

static bool has_equal_parts(int value)
{
  for (int d = 0; d < graph->value[value].shape.ndim; d++)
    if (!is_cut_evenly(value, d)) return false;
  return elements(local_shape(value, 0)) > 0;
}

/* Whether so many elements of a rank's part are its innermost dimensions. */
static bool has_rows_of(int value, int64_t row)
{
  struct shape here = local_shape(value, 0);
  int64_t inside = 1;
  for (int at = here.ndim; at-- > 0 && inside < row;) inside *= here.size[dimension_at(value, at)];
  return inside == row;
}

/* A product adds to a value in its place; or to a copy, which has no gaps. A sum of products that
   are one has nothing to add to. */
static bool copies_what_it_adds_to(const struct op *op)
{
  return op->nin > 2 && op->in[2] != op->out && graph->value[op->in[2]].stored;
}

/* Whether the operation takes any strides of its i-th operand; that behind the last is its result.
 */
static bool takes_strides(const struct op *op, int i)
{
  if (is_tight[op - graph->op]) return false;
  if (op->kind == OP_view) return !op->pieces;
  if (op->kind == OP_matmul) return !op->pieces && (i < 2 || !copies_what_it_adds_to(op));
  if (is_pointwise(op->kind) || is_reduce(op->kind)) return true;
  return has_kernel(op->kind) && takes_steps(op, i);
}

static bool all_take_strides(int value)
{
  const struct op *maker = &graph->op[graph->value[value].op];
  for (int k = 0; k < maker->nout; k++)
    if (maker->out + k == value && !takes_strides(maker, maker->nin + k)) return false;
  for (int k = 0; k < readers[value].n; k++) {
    const struct op *op = &graph->op[readers[value].at[k]];
    for (int i = 0; i < op->nin; i++)
      if (op->in[i] == value && !takes_strides(op, i)) return false;
  }
  return true;
}

/* A sum over ranks takes place in the value, which is then where the sum is to lie. */
static bool is_reduced_in_place(int value)
{
  if (graph->op[graph->value[value].op].kind == OP_all_reduce) return true;
  for (int k = 0; k < readers[value].n; k++)
    if (graph->op[readers[value].at[k]].kind == OP_all_reduce) return true;
  return false;
}

/* Whether the value can lie with its rows apart: `row` elements each. */
static bool can_be_part(int value, int function, int64_t row)
{
  const struct value *v = &graph->value[value];
  bool is_whole = row == elements(local_shape(value, 0));
  if (v->role != ACTIVATION || v->is_output || !v->stored || v->op == NONE || v->wide != NONE)
    return false;
  if (v->step || v->pieces || v->apart || (v->family != NONE && v->family != value)) return false;
  if (v->family != NONE && told_apart[value]) return false;
  if (function_of[v->op] != function || !has_equal_parts(value)) return false;
  if (is_reduced_in_place(value)) return false;
  return has_rows_of(value, row) && (is_whole || all_take_strides(value));
}

/* Whether the same functions read both. */
static bool live_alike(const struct shown *a, const struct shown *b)
{
  const struct shown *of[] = {a, b};
  uint64_t in[2] = {0};
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < of[i]->n; k++)
      for (int r = 0; r < readers[of[i]->value[k]].n; r++) {
        int function = function_of[readers[of[i]->value[k]].at[r]];
        if (function >= 64) return false;
        in[i] |= UINT64_C(1) << function;
      }
  return in[0] == in[1];
}

/* What can become a wide value: the roots of its parts, and all that shows them. */
struct widening {
  int n, root[MOST_TOGETHER];
  int64_t row[MOST_TOGETHER];
  struct shown shown[MOST_TOGETHER];
};

/* The elements of a value's part from dimension d, in memory, to the innermost. */
static int64_t elements_from(int value, int d)
{
  int64_t stride[MAX_DIMS];
  local_strides(value, 0, stride);
  return stride[d] * local_shape(value, 0).size[d];
}

/* Whether the values, each with its parts along its dimension d, can be parts of a new one. */
static bool can_widen(struct widening *w, int n, const int *value, const int *dim, int function)
{
  w->n = n;
  for (int k = 0; k < n; k++) {
    w->root[k] = shows(value[k]);
    w->row[k] = elements_from(value[k], dim[k]);
    w->shown[k].n = 0;
    /* The step from one row to the next is told by a part's own. */
    if (local_shape(value[k], 0).size[dim[k]] == 1 &&
        w->row[k] == elements(local_shape(value[k], 0)))
      return false;
    for (int i = 0; i < k; i++)
      if (w->root[i] == w->root[k]) return false;
    if (!add_shown(&w->shown[k], w->root[k])) return false;
    for (int i = 0; i < w->shown[k].n; i++)
      if (!can_be_part(w->shown[k].value[i], function, w->row[k])) return false;
    if (k && !live_alike(&w->shown[0], &w->shown[k])) return false;
  }
  return true;
}

/* Whether they are all parts of one, from its first to its last. */
static bool are_parts(int n, const int *value)
{
  const struct value *first = &graph->value[value[0]];
  int64_t at = 0;
  if (first->wide == NONE) return false;
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]];
    if (v->wide != first->wide || v->first != at) return false;
    at += v->row;
  }
  return at == first->pitch;
}

/* The wide value belongs to the operation. */
static void widen(const struct widening *w, int op)
{
  const struct value first = graph->value[w->root[0]];
  int64_t pitch = 0, at = 0, rows = elements(local_shape(w->root[0], 0)) / w->row[0];
  for (int k = 0; k < w->n; k++) pitch += w->row[k];
  struct shape shape = {.ndim = 2, .size = {rows, pitch}};
  int wide = add_value(ACTIVATION, first.name, first.type, shape, first.module, first.line);
  graph->value[wide].placed = graph->value[wide].stored = true;
  graph->value[wide].op = op;
  for (int k = 0; k < w->n; at += w->row[k++])
    for (int i = 0; i < w->shown[k].n; i++) {
      struct value *v = &graph->value[w->shown[k].value[i]];
      v->wide = wide;
      v->row = w->row[k];
      v->pitch = pitch;
      v->first = at;
    }
}

/* -------------------------------------------------------------------------- members of a struct */

/* Whether they lie one after the other, cut in their outermost dimension, equally on all ranks. */
static bool are_neighbours(int n, const int *value, const int *dim)
{
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]], *first = &graph->value[value[0]];
    if ((v->role != PARAMETER && v->role != GRADIENT) || v->role != first->role) return false;
    if (dim[k] != 0 || v->order || !has_equal_parts(value[k])) return false;
    if (!k) continue;
    const struct value *before = &graph->value[value[k - 1]];
    bool gradients = v->role == GRADIENT;
    if (!is_next_parameter(gradients ? before->of : value[k - 1], gradients ? v->of : value[k]))
      return false;
  }
  return true;
}

/* --------------------------------------------------------------------------------- what is one
 * call */

/* The operands of a product's equation: a, b and what it makes. */
static int operand(const struct op *op, int o)
{
  return o < 2 ? op->in[o] : op->out;
}

static const char *letters_of(const struct op *op, int o)
{
  const char *second = strchr(op->equation, ',') + 1;
  return o == 0 ? op->equation : o == 1 ? second : strchr(second, '>') + 1;
}

/* The dimension of the operand that has the letter, or NONE. */
static int dimension_of(const struct op *op, int o, char letter)
{
  const char *letters = letters_of(op, o);
  size_t n = strcspn(letters, ",-");
  const char *found = memchr(letters, letter, n);
  return found ? (int)(found - letters) : NONE;
}

/* The letter of the weight, or its gradient, that lies outermost in it. */
static char letter_of(const struct op *op, int form)
{
  return letters_of(op, form == OF_GRADIENTS ? 2 : 1)[0];
}

/* The operands in which parts lie side by side. */
static void apart_in(int form, int o[2])
{
  o[0] = form == OF_ONE_INPUT ? 1 : 0;
  o[1] = form == OF_ONE_SUM ? 1 : 2;
}

/* All but the two operands are equal in all of them; and the two have the letter. */
static bool differ_in_two(const struct bunch *b)
{
  int o[2];
  const struct op *first = &graph->op[b->op[0]];
  char letter = letter_of(first, b->form);
  apart_in(b->form, o);
  for (int k = 0; k < b->n; k++) {
    const struct op *op = &graph->op[b->op[k]];
    if (strcmp(op->equation, first->equation)) return false;
    for (int i = 0; i < 3; i++) {
      bool differs = i == o[0] || i == o[1];
      if (differs != (dimension_of(op, i, letter) != NONE)) return false;
      if (!differs && operand(op, i) != operand(first, i) && b->form != OF_ONE_SUM) return false;
      if (!differs && i < 2 && operand(op, i) != operand(first, i)) return false;
    }
  }
  return true;
}

/* The parameter that is cast or gathered to this value; or what that was made of. */
static int origin_of(int value)
{
  for (;;) {
    const struct value *v = &graph->value[value];
    const struct op *op = v->op == NONE || v->role == PARAMETER ? NULL : &graph->op[v->op];
    bool moves = op && (op->kind == OP_cast || op->kind == OP_view || is_collective(op->kind) ||
                        op_row[op->kind].step != NO_LOCAL_STEP);
    if (!moves) return value;
    value = op->in[0];
  }
}

static int weight_of(const struct op *op, int form)
{
  int weight = form == OF_GRADIENTS ? graph->value[op->out].of : op->in[1];
  return weight == NONE ? NONE : origin_of(weight);
}

/* By the places of the weights. */
static void sort(struct bunch *b)
{
  for (int i = 1; i < b->n; i++)
    for (int k = i; k > 0; k--) {
      int *op = &b->op[k];
      if (weight_of(&graph->op[op[-1]], b->form) < weight_of(&graph->op[op[0]], b->form)) break;
      int other = op[-1];
      op[-1] = op[0];
      op[0] = other;
    }
}

/* Whether they are equal in all but the sizes of the dimension. */
static bool lie_alike(int n, const int *value, const int *dim)
{
  const struct value *first = &graph->value[value[0]];
  for (int k = 1; k < n; k++) {
    const struct value *v = &graph->value[value[k]];
    if (v->type != first->type || v->order != first->order || dim[k] != dim[0]) return false;
    if (v->shape.ndim != first->shape.ndim || !same_layout(v->layout, first->layout)) return false;
    for (int d = 0; d < v->shape.ndim; d++)
      if (d != dim[0] && v->shape.size[d] != first->shape.size[d]) return false;
  }
  return true;
}

/* Whether the parts are side by side in both operands, or can be; makes what can be a wide value,
   for the operation that is stored next. */
static bool lie_side_by_side(const struct bunch *b, int function)
{
  int o[2], value[2][MOST_TOGETHER], dim[2][MOST_TOGETHER], wide[2] = {0};
  struct widening *w = alloc(2 * sizeof *w);
  char letter = letter_of(&graph->op[b->op[0]], b->form);
  apart_in(b->form, o);
  for (int s = 0; s < 2; s++) {
    for (int k = 0; k < b->n; k++) {
      value[s][k] = operand(&graph->op[b->op[k]], o[s]);
      dim[s][k] = dimension_of(&graph->op[b->op[k]], o[s], letter);
    }
    if (!lie_alike(b->n, value[s], dim[s])) return false;
    if (are_neighbours(b->n, value[s], dim[s]) || are_parts(b->n, value[s])) continue;
    wide[s] = can_widen(&w[s], b->n, value[s], dim[s], function);
    if (!wide[s]) return false;
  }
  for (int s = 0; s < 2; s++)
    if (wide[s]) widen(&w[s], graph->nop);
  return true;
}

/* ------------------------------------------------------------------------------------ the function
 */

static bool is_single(const struct op *op)
{
  return op->kind == OP_matmul && !op->pieces && op->in[0] != op->in[1];
}

static bool reads(const struct op *op, int value)
{
  static struct kept_list kept;
  int *list = kept_room(&kept, op_width(op));
  for (int n = op_reads(op, list); n--;)
    if (list[n] == value) return true;
  return false;
}

/* Whether the value is made before the function runs this operation. */
static bool made_before(const struct function *f, int value, int id)
{
  int op = graph->value[value].op;
  bool here = op != NONE && function_of[op] == (int)(f - graph->function);
  return !here || place_of[op] < place_of[id];
}

/* The place at which all of them can run: the first one's, or the last one's; or NONE. */
static int place_for(const struct function *f, const struct bunch *b)
{
  if (b->adder != NONE) return b->at[0];
  int first = b->at[0], last = b->at[b->n - 1];
  bool early = b->form == OF_ONE_INPUT, late = true;
  for (int at = first; at <= last; at++)
    if (op_row[graph->op[f->op[at]].kind].calls) return NONE; /* that may read, or make, any */
  for (int k = 0; k < b->n; k++) {
    const struct op *op = &graph->op[b->op[k]];
    for (int i = 0; i < 2; i++) early &= made_before(f, op->in[i], f->op[first]);
    for (int at = b->at[k] + 1; at <= last && late; at++) {
      const struct op *between = &graph->op[f->op[at]];
      late = (b->form == OF_ONE_SUM && is_single(between)) || !reads(between, op->out);
    }
  }
  return early ? first : late ? last : NONE;
}

/* A sum of products is added up in the order of its parts now. */
static void chain(const struct bunch *b)
{
  int *out = alloc((size_t)b->n * sizeof *out), n = 0;
  for (int k = 0; k < b->n; k++)
    if (graph->op[b->op[k]].out != b->result) out[n++] = graph->op[b->op[k]].out;
  for (int k = 0; k < b->n; k++) {
    struct op *op = &graph->op[b->op[k]];
    op->nin = k ? 3 : 2;
    if (k) op->in[2] = out[k - 1];
    op->out = k + 1 < b->n ? out[k] : b->result;
    graph->value[op->out].op = b->op[k];
    graph->value[op->out].stored = op->out == b->result;
  }
}

static bool merge_bunch(struct function *f, struct bunch *b)
{
  int at = b->n > 1 ? place_for(f, b) : NONE;
  if (at == NONE || !differ_in_two(b)) return false;
  sort(b);
  if (!lie_side_by_side(b, (int)(f - graph->function))) return false;
  if (b->form == OF_ONE_SUM) chain(b);
  int *body = alloc((size_t)b->n * sizeof *body), kept = 0, stays = f->op[at];
  memcpy(body, b->op, (size_t)b->n * sizeof *body);
  const struct op *last = &graph->op[stays];
  int id = store_op((struct op){.kind = OP_products,
                                .out = NONE,
                                .nbody = b->n,
                                .number = {letter_of(&graph->op[b->op[0]], b->form)},
                                .body = body,
                                .phase = last->phase,
                                .module = last->module,
                                .line = last->line});
  function_of[id] = (int)(f - graph->function);
  place_of[id] = place_of[stays];
  for (int k = 0; k < b->n; k++) place_of[body[k]] = place_of[stays];
  for (int k = 0; k < f->nop; k++) {
    bool gone = false;
    for (int i = 0; i < b->n; i++) gone |= f->op[k] == body[i];
    if (f->op[k] == stays)
      f->op[kept++] = id;
    else if (!gone)
      f->op[kept++] = f->op[k];
  }
  f->nop = kept;
  return true;
}

/* The products behind this one that read the same input, or make gradients by the same one. */
static struct bunch alike(const struct function *f, int at, int form)
{
  int same = form == OF_GRADIENTS;
  const struct op *first = &graph->op[f->op[at]];
  struct bunch b = {
      .form = form, .n = 1, .op = {f->op[at]}, .at = {at}, .result = NONE, .adder = NONE};
  for (int k = at + 1; k < f->nop && k < at + FARTHEST && b.n < MOST_TOGETHER; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (!is_single(op) || op->nin != first->nin || op->in[same] != first->in[same]) continue;
    if (strcmp(op->equation, first->equation)) continue;
    if (graph->value[op->out].role != graph->value[first->out].role) continue;
    b.at[b.n] = k;
    b.op[b.n++] = f->op[k];
  }
  return b;
}

/* The products that add up to one value, from the first on. */
static struct bunch summed(const struct function *f, int at)
{
  struct bunch b = {.form = OF_ONE_SUM, .n = 1, .op = {f->op[at]}, .at = {at}, .adder = NONE};
  for (int k = at + 1; k < f->nop && k < at + FARTHEST && b.n < MOST_TOGETHER; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int before = graph->op[b.op[b.n - 1]].out;
    if (!is_single(op) || op->nin != 3 || op->in[2] != before || readers[before].n != 1) continue;
    b.at[b.n] = k;
    b.op[b.n++] = f->op[k];
  }
  b.result = graph->op[b.op[b.n - 1]].out;
  return b;
}

/* The products that a kernel adds up, if it does no more: in bfloat16 they do not add themselves.
 */
static struct bunch added(const struct function *f, int at)
{
  const struct op *kernel = &graph->op[f->op[at]];
  struct bunch none = {.n = 0, .result = NONE},
               b = {.form = OF_ONE_SUM, .adder = f->op[at], .at = {at}};
  for (int n = 0; n < kernel->nbody; n++) {
    const struct op *add = &graph->op[kernel->body[n]];
    if (add->kind != OP_add || graph->value[add->out].role != ACTIVATION) return none;
    if (graph->value[add->out].stored != (n + 1 == kernel->nbody)) return none;
    b.result = add->out;
    for (int i = 0; i < 2; i++) {
      const struct value *v = &graph->value[add->in[i]];
      if (n && add->in[i] == graph->op[kernel->body[n - 1]].out) continue;
      const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
      bool is_term = op && is_single(op) && op->nin == 2 && readers[add->in[i]].n == 1;
      if (!is_term || function_of[v->op] != (int)(f - graph->function)) return none;
      if (b.n == MOST_TOGETHER) return none;
      if (!same_shape(v->shape, graph->value[add->out].shape)) return none;
      if (v->order != graph->value[add->out].order) return none;
      b.op[b.n++] = v->op;
    }
  }
  return b;
}

static bool merge_at(struct function *f, int at)
{
  const struct op *op = &graph->op[f->op[at]];
  struct bunch b;
  if (op->kind == OP_fused) {
    b = added(f, at);
    return merge_bunch(f, &b);
  }
  if (!is_single(op)) return false;
  bool gradient = graph->value[op->out].role == GRADIENT;
  if (gradient && op->nin == 3 && graph->value[op->in[2]].role != GRADIENT) return false;
  if (!gradient && op->nin != 2) return false;
  if (!gradient) {
    b = summed(f, at);
    if (merge_bunch(f, &b)) return true;
    b = alike(f, at, OF_ONE_INPUT);
    if (merge_bunch(f, &b)) return true;
    if (graph->value[op->out].of == NONE) return false;
  }
  b = alike(f, at, OF_GRADIENTS);
  return merge_bunch(f, &b);
}

void merge_products(void)
{
  if (options.check_finite || graph->loss == NONE) return;
  find_all_readers();
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (merge_at(&graph->function[i], k)) k--; /* there is another operation now */
}
