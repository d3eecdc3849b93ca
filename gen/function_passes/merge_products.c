/* merge_products.c: the pass `merge_products`: one product instead of several that read the same
   value.

   Takes   functions whose products are single.
   Leaves  products that are equal in all but one operand, or in all but the terms of one sum, as
           one operation `products`, which is one call:

             y1 = x W1,  y2 = x W2            of one input with several weights
             d_x = d_y1 W1 + d_y2 W2          the gradient of that input
             d_W1 = d_y1 x,  d_W2 = d_y2 x    the gradients of those weights

   In each operand that differs the parts are side by side, in the order of the weights: weights and
   their gradients as members of a struct, one after the other; values of the step as parts of a
   concat buffer, which has a place in the arena and no other meaning. The rows of a part
   are not adjacent (local_strides): a kernel or a product reads and writes it by its strides,
   without a copy.

   The pass does this where it costs nothing: weights with nothing between them, parts that are
   equal on all ranks, values that only operations with strides touch. A result that lives longer
   than the others, up to the backward, is copied out of the concat buffer: that takes far less than
   a second product. A program that looks for numbers that are not finite has no concat buffers, and
   one that is not trained keeps its products. */
#include "function_passes/function_passes.h"

#include <string.h>

enum { FARTHEST = 512 }; /* the largest distance of the search */

/* Products of one function that may be one, in the order of their places. */
struct bunch {
  enum { OF_ONE_INPUT, OF_ONE_SUM, OF_GRADIENTS } form;
  int n, op[MOST_TOGETHER], at[MOST_TOGETHER]; /* at: their places, or that of the adder */
  int result;                                  /* OF_ONE_SUM: the value of the sum */
  int adder;         /* the kernel that adds the products up, or NONE: they add themselves */
  struct list moves; /* the places of the operations that move before them, because they make their
                        inputs */
};

/* -------------------------------------------------------------------------- members of a struct */

/* Whether they are adjacent in memory, cut in their outermost dimension, equally on all ranks. */
static bool are_neighbours(int n, const int *value, const int *dim)
{
  for (int k = 0; k < n; k++) {
    const struct value *v = &graph->value[value[k]], *first = &graph->value[value[0]];
    if ((v->role != PARAMETER && v->role != GRADIENT) || v->role != first->role) return false;
    if (dim[k] != 0 || v->order || !parts_are_equal(value[k])) return false;
    if (!k) continue;
    const struct value *before = &graph->value[value[k - 1]];
    bool gradients = v->role == GRADIENT;
    if (!is_next_parameter(gradients ? before->of : value[k - 1], gradients ? v->of : value[k]))
      return false;
  }
  return true;
}

/* -------------------------------------------------------------- products that one call can make */

/* The operands of a product's equation: a, b and the result. */
static int operand(const struct op *op, int o)
{
  return o < 2 ? op->in[o] : op->out;
}

static const char *merge_products_letters_of(const struct op *op, int o)
{
  const char *second = strchr(op->equation, ',') + 1;
  return o == 0 ? op->equation : o == 1 ? second : strchr(second, '>') + 1;
}

/* The dimension of the operand that has the letter, or NONE. */
static int merge_products_dimension_of(const struct op *op, int o, char letter)
{
  const char *letters = merge_products_letters_of(op, o);
  size_t n = strcspn(letters, ",-");
  const char *found = memchr(letters, letter, n);
  return found ? (int)(found - letters) : NONE;
}

/* The letter of the outermost dimension of the weight, or of its gradient. */
static char merge_products_letter_of(const struct op *op, int form)
{
  return merge_products_letters_of(op, form == OF_GRADIENTS ? 2 : 1)[0];
}

/* The operands in which parts are side by side. */
static void apart_in(int form, int o[2])
{
  o[0] = form == OF_ONE_INPUT ? 1 : 0;
  o[1] = form == OF_ONE_SUM ? 1 : 2;
}

/* Whether all products are equal except in the two operands, and these have the letter. */
static bool differ_in_two(const struct bunch *b)
{
  int o[2];
  const struct op *first = &graph->op[b->op[0]];
  char letter = merge_products_letter_of(first, b->form);
  apart_in(b->form, o);
  for (int k = 0; k < b->n; k++) {
    const struct op *op = &graph->op[b->op[k]];
    if (strcmp(op->equation, first->equation)) return false;
    for (int i = 0; i < 3; i++) {
      bool differs = i == o[0] || i == o[1];
      if (differs != (merge_products_dimension_of(op, i, letter) != NONE)) return false;
      if (!differs && operand(op, i) != operand(first, i) && b->form != OF_ONE_SUM) return false;
      if (!differs && i < 2 && operand(op, i) != operand(first, i)) return false;
    }
  }
  return true;
}

/* The parameter that is cast or gathered to this value; or the value from which it was made. */
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

/* Whether they are equal in all but the sizes of the dimension. */
static bool merge_products_have_equal_places(int n, const int *value, const int *dim)
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

/* Whether the parts are side by side in both operands, or can be. Makes the candidates for wide
   values. */
static bool lie_side_by_side(struct placed_ops *p, const struct bunch *b, int function,
                             struct widening w[2])
{
  int o[2], value[2][MOST_TOGETHER], dim[2][MOST_TOGETHER];
  char letter = merge_products_letter_of(&graph->op[b->op[0]], b->form);
  apart_in(b->form, o);
  for (int s = 0; s < 2; s++) {
    for (int k = 0; k < b->n; k++) {
      value[s][k] = operand(&graph->op[b->op[k]], o[s]);
      dim[s][k] = merge_products_dimension_of(&graph->op[b->op[k]], o[s], letter);
    }
    if (!merge_products_have_equal_places(b->n, value[s], dim[s])) return false;
    w[s] = (struct widening){0};
    if (are_neighbours(b->n, value[s], dim[s]) || are_parts(b->n, value[s])) continue;
    bool is_result = b->form == OF_ONE_INPUT && o[s] == 2;
    if (!can_widen(p, &w[s], b->n, value[s], dim[s], function, is_result)) return false;
  }
  for (int s = 0; s < 2; s++)
    if (w[s].n) make_wide(p, &w[s]);
  return true;
}

/* --------------------------------------------------------------------------------- the function */

static bool is_single(const struct op *op)
{
  return op->kind == OP_matmul && !op->pieces && op->in[0] != op->in[1];
}

/* Whether the value is made before the function runs this operation. */
static bool made_before(struct placed_ops *p, const struct function *f, int value, int id)
{
  int op = graph->value[value].op;
  bool here = op != NONE && p->function_of[op] == (int)(f - graph->function);
  return !here || p->place_of[op] < p->place_of[id];
}

static bool merge_products_makes(const struct op *op, int value)
{
  int maker = graph->value[value].op;
  return op == &graph->op[maker] || lists_number(op->body, op->nbody, maker);
}

/* Whether the value can be made before the function's operation `first`: it exists already, or only
   views and kernels make it, from values that can be made before. Adds these operations to the
   list. */
static bool can_come_before(struct placed_ops *p, const struct function *f, int first, int value,
                            struct list *moves)
{
  if (made_before(p, f, value, f->op[first])) return true;
  int at = first + 1;
  while (at < f->nop && !merge_products_makes(&graph->op[f->op[at]], value)) at++;
  const struct op *op = at < f->nop ? &graph->op[f->op[at]] : NULL;
  if (!op || (op->kind != OP_fused && op->kind != OP_view)) return false;
  if (graph->value[value].role != ACTIVATION) return false;
  int *list = alloc((size_t)op_width(op) * sizeof *list);
  add_once(moves, at);
  for (int n = op_writes(op, list); n--;)
    if (graph->value[list[n]].role != ACTIVATION) return false;
  for (int n = op_reads(op, list); n--;)
    if (!can_come_before(p, f, first, list[n], moves)) return false;
  return true;
}

static bool can_all_come_before(struct placed_ops *p, const struct function *f, int first,
                                struct bunch *b)
{
  b->moves = (struct list){0};
  for (int k = 0; k < b->n; k++)
    for (int i = 0; i < 2; i++)
      if (!can_come_before(p, f, first, graph->op[b->op[k]].in[i], &b->moves)) return false;
  return true;
}

/* The place at which all of them can run: the first one's, or the last one's; or NONE. */
static int place_for(struct placed_ops *p, const struct function *f, struct bunch *b)
{
  if (b->adder != NONE) return b->at[0];
  int first = b->at[0], last = b->at[b->n - 1];
  bool early = b->form == OF_ONE_INPUT, late = true;
  for (int at = first; at <= last; at++)
    if (op_row[graph->op[f->op[at]].kind].calls) return NONE; /* it may read, or make, any value */
  for (int k = 0; k < b->n; k++) {
    const struct op *op = &graph->op[b->op[k]];
    for (int i = 0; i < 2; i++) early &= made_before(p, f, op->in[i], f->op[first]);
    for (int at = b->at[k] + 1; at <= last && late; at++) {
      const struct op *between = &graph->op[f->op[at]];
      late = (b->form == OF_ONE_SUM && is_single(between)) || !reads_value(between, op->out);
    }
  }
  if (early || late) return early ? first : last;
  return b->form == OF_ONE_INPUT && can_all_come_before(p, f, first, b) ? first : NONE;
}

/* Puts the operation in the place of one of its products; before it the operations that it needs,
   after it the copies of its results. */
static void take_place(struct placed_ops *p, struct function *f, int id, int at,
                       const struct bunch *b, const struct widening *w)
{
  int function = (int)(f - graph->function), place = p->place_of[f->op[at]], stay = 0;
  p->order.n = 0;
  for (int k = at; k < f->nop; k++)
    if (lists_number(b->moves.at, b->moves.n, k)) add(&p->order, f->op[k]);
  add(&p->order, id);
  for (int k = 0; k < w->ncopy; k++) add(&p->order, w->copy[k]);
  for (int k = 0; k < p->order.n; k++) note_place(p, p->order.at[k], function, place);
  for (int k = at + 1; k < f->nop; k++)
    if (!lists_number(b->moves.at, b->moves.n, k) && !lists_number(b->op, b->n, f->op[k]))
      add(&p->order, f->op[k]);
  for (int k = 0; k < at; k++)
    if (!lists_number(b->op, b->n, f->op[k])) f->op[stay++] = f->op[k];
  if (stay + p->order.n > f->nop) {
    int *wider = alloc((size_t)(stay + p->order.n) * sizeof *wider);
    memcpy(wider, f->op, (size_t)stay * sizeof *wider);
    f->op = wider;
  }
  memcpy(f->op + stay, p->order.at, (size_t)p->order.n * sizeof *p->order.at);
  f->nop = stay + p->order.n;
}

static bool merge_bunch(struct placed_ops *p, struct function *f, struct bunch *b)
{
  struct widening w[2];
  int at = b->n > 1 ? place_for(p, f, b) : NONE;
  if (at == NONE || !differ_in_two(b)) return false;
  /* By the places of the weights. */
  for (int i = 1; i < b->n; i++)
    for (int k = i; k > 0; k--) {
      int *op = &b->op[k];
      if (weight_of(&graph->op[op[-1]], b->form) < weight_of(&graph->op[op[0]], b->form)) break;
      int other = op[-1];
      op[-1] = op[0];
      op[0] = other;
    }
  if (!lie_side_by_side(p, b, (int)(f - graph->function), w)) return false;
  if (b->form == OF_ONE_SUM) {
    /* A sum of products is added up in the order of its parts now. */
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
  int *body = alloc((size_t)b->n * sizeof *body), stays = f->op[at];
  memcpy(body, b->op, (size_t)b->n * sizeof *body);
  const struct op *last = &graph->op[stays];
  int id = store_op((struct op){.kind = OP_products,
                                .out = NONE,
                                .nbody = b->n,
                                .number = {merge_products_letter_of(&graph->op[b->op[0]], b->form)},
                                .body = body,
                                .phase = last->phase,
                                .module = last->module,
                                .line = last->line});
  for (int s = 0; s < 2; s++)
    if (w[s].n) graph->value[w[s].buffer].op = id;
  take_place(p, f, id, at, b, &w[1]);
  return true;
}

/* Whether the search from `at` goes on to k. */
static bool is_searched(const struct function *f, int at, int k)
{
  if (k < f->nop && k == at + FARTHEST)
    ended_early("merge_products", "products of one input", FARTHEST, "operations further on");
  return k < f->nop && k < at + FARTHEST;
}

/* The products after this one that read the same input, or make gradients by the same one. */
static struct bunch bunch_at(const struct function *f, int at, int form)
{
  int same = form == OF_GRADIENTS;
  const struct op *first = &graph->op[f->op[at]];
  struct bunch b = {
      .form = form, .n = 1, .op = {f->op[at]}, .at = {at}, .result = NONE, .adder = NONE};
  for (int k = at + 1; b.n < MOST_TOGETHER && is_searched(f, at, k); k++) {
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
static struct bunch summed(struct placed_ops *p, const struct function *f, int at)
{
  struct bunch b = {.form = OF_ONE_SUM, .n = 1, .op = {f->op[at]}, .at = {at}, .adder = NONE};
  for (int k = at + 1; b.n < MOST_TOGETHER && is_searched(f, at, k); k++) {
    const struct op *op = &graph->op[f->op[k]];
    int before = graph->op[b.op[b.n - 1]].out;
    if (!is_single(op) || op->nin != 3 || op->in[2] != before || p->readers[before].n != 1)
      continue;
    b.at[b.n] = k;
    b.op[b.n++] = f->op[k];
  }
  b.result = graph->op[b.op[b.n - 1]].out;
  return b;
}

/* The products that a kernel adds up, if it does nothing else: in bfloat16 they do not add
   themselves. */
static struct bunch merge_products_added(struct placed_ops *p, const struct function *f, int at)
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
      bool is_term = op && is_single(op) && op->nin == 2 && p->readers[add->in[i]].n == 1;
      if (!is_term || p->function_of[v->op] != (int)(f - graph->function)) return none;
      if (b.n == MOST_TOGETHER) return none;
      if (!same_shape(v->shape, graph->value[add->out].shape)) return none;
      if (v->order != graph->value[add->out].order) return none;
      b.op[b.n++] = v->op;
    }
  }
  return b;
}

static bool merge_at(struct placed_ops *p, struct function *f, int at)
{
  const struct op *op = &graph->op[f->op[at]];
  struct bunch b;
  if (op->kind == OP_fused) {
    b = merge_products_added(p, f, at);
    return merge_bunch(p, f, &b);
  }
  if (!is_single(op)) return false;
  bool gradient = graph->value[op->out].role == GRADIENT;
  if (gradient && op->nin == 3 && graph->value[op->in[2]].role != GRADIENT) return false;
  if (!gradient && op->nin != 2) return false;
  if (!gradient) {
    b = summed(p, f, at);
    if (merge_bunch(p, f, &b)) return true;
    b = bunch_at(f, at, OF_ONE_INPUT);
    if (merge_bunch(p, f, &b)) return true;
    if (graph->value[op->out].of == NONE) return false;
  }
  b = bunch_at(f, at, OF_GRADIENTS);
  return merge_bunch(p, f, &b);
}

void merge_products(void)
{
  if (options.check_finite || graph->loss == NONE) return;
  struct placed_ops run = find_all_readers(), *p = &run;
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (merge_at(p, &graph->function[i], k))
        k--; /* the function now has another operation
                there */
}
