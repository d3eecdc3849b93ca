/* epilogue.c: the pass `epilogue`: a matrix product changes its result before it stores it.

   Takes   functions with fused kernels; some read a product and do only work that cuBLASLt's
           epilogues can do.
   Leaves  such a kernel and its product as one operation, whose body is the product and the work
           after it: a bias is added, relu or the tanh form of gelu applied, and gelu's input
           kept; gelu's gradient; and, with any product, the sum of one of its operands over the
           product's terms: a bias's gradient with that of its weight; and what a product of float8
           makes, times the two factors of its operands, in the type that follows. A kernel may keep
           the rest of its operations, or vanish.

   Only programs for GPUs have epilogues: there each saves a pass over memory, while on a CPU the
   same loops would run after BLAS's call. relu's gradient stays a kernel: as an epilogue it needs a
   bit mask, which relu would have to store with its result; the kernel uses the result.
   cuBLASLt's relu turns NaN into 0.

   In a product cut into chunks (async_tp.c) each chunk has the epilogue for its rows, in place. So
   the epilogue is cut, too, and its operands must exist before the first chunk. Sums over rows are
   excluded.

   A product qualifies if its letters are x[.. k] w[n k] -> y[.. n], or w[k n], and all operands are
   stored in that order: then it is one call on every rank, and the bias and the kept input have the
   layout that cuBLASLt needs. */
#include "function_passes/function_passes.h"

#include <string.h>

/* ----------------------------------------------------------------------------------- candidates */

static bool lies_as_written(int value)
{
  return graph->value[value].order == 0;
}

/* "...k,nk->...n", or "...k,kn->...n". */
static bool is_linear(const struct op *op)
{
  const char *a = op->equation, *b = strchr(a, ',') + 1, *c = strchr(b, '>') + 1;
  size_t na = (size_t)(b - a) - 1, nb = (size_t)(c - b) - 2, nc = strlen(c);
  if (op->nin != 2 || na < 2 || na != nc || nb != 2 || memcmp(a, c, na - 1)) return false;
  char k = a[na - 1], n = c[nc - 1];
  if (k == n || memchr(a, n, na) || memchr(c, k, nc)) return false;
  return (b[0] == k && b[1] == n) || (b[0] == n && b[1] == k);
}

/* The number of parts in which a dimension of the value is cut. */
static int epilogue_parts_of(int value, int dim)
{
  int cut[MAX_MESH], parts = 1;
  for (int n = cuts_of(&graph->mesh, graph->value[value].layout, dim, cut); n--;)
    parts *= graph->mesh.size[cut[n]];
  return parts;
}

/* Whether every rank's part has the same size: each has something to sum. */
static bool has_equal_parts(int value)
{
  for (int d = 0; d < graph->value[value].shape.ndim; d++)
    if (!is_cut_evenly(value, d)) return false;
  return elements(graph->value[value].shape) > 0;
}

static bool is_product(const int *readers, const struct op *op)
{
  if (op->kind != OP_matmul || !is_linear(op)) return false;
  /* Whether the letter of the terms is whole on every rank: no rank lacks all of a sum. */
  const struct value *a = &graph->value[op->in[0]];
  int last = a->shape.ndim - 1;
  bool has_terms = a->shape.size[last] > 0 && epilogue_parts_of(op->in[0], last) == 1;
  if (!has_terms) return false;
  /* A piece of a value that is stored whole: one call for the members' parts, the same on all
     ranks. */
  if (op->pieces && (op->nin != 2 || graph->value[op->out].is_separate ||
                     !has_equal_parts(op->out) || !matmul_is_one_call(op, 0)))
    return false;
  const struct value *c = &graph->value[op->out];
  return lies_as_written(op->in[0]) && lies_as_written(op->in[1]) && lies_as_written(op->out) &&
         c->role == ACTIVATION && !c->is_output && readers[op->out] == 1;
}

/* A value that cuBLASLt adds to each row: as long as one. */
static bool is_bias(int bias, int to)
{
  const struct value *b = &graph->value[bias], *c = &graph->value[to];
  return b->shape.ndim == 1 && b->shape.size[0] == c->shape.size[c->shape.ndim - 1] &&
         b->type == c->type;
}

/* cuBLASLt requires the rows of gelu's kept input to be multiples of 8 long. */
static bool has_even_rows(int value)
{
  enum { EVEN = 8 };
  int last = graph->value[value].shape.ndim - 1;
  return is_cut_evenly(value, last) && local_shape(value, 0).size[last] % EVEN == 0;
}

static bool same_tensors(int a, int b)
{
  const struct value *x = &graph->value[a], *y = &graph->value[b];
  return x->type == y->type && same_shape(x->shape, y->shape) && lies_as_written(a) &&
         lies_as_written(b);
}

/* --------------------------------------------------------- kernels that become only an epilogue */

/* Whether `op` sums over the rows of `value`, and keeps the type. */
static bool sums_rows(const struct op *op, int value)
{
  const struct value *v = &graph->value[value];
  if (v->shape.ndim < 2) return false;
  unsigned rows = (1u << (v->shape.ndim - 1)) - 1;
  return op->kind == OP_sum && op->in[0] == value && op->scalar == 1 && op->dims == rows &&
         !op->keepdim && lies_as_written(value);
}

/* Bias, then relu or gelu. */
static bool follows_forward(const struct op *group, int value)
{
  const struct op *first = &graph->op[group->body[0]], *last = first;
  /* The value after a bias is added to `value`, or NONE. */
  int added = NONE;
  if (first->kind == OP_add && same_tensors(first->out, value)) {
    int other = first->in[first->in[0] == value];
    bool adds = first->in[0] == value || first->in[1] == value;
    added = adds && is_bias(other, value) ? first->out : NONE;
  }
  if (group->nbody > (added == NONE ? 1 : 2)) return false;
  if (added != NONE) value = added;
  if (added != NONE && group->nbody == 1) return true;
  last = &graph->op[group->body[group->nbody - 1]];
  if (last->in[0] != value || !same_tensors(last->out, value)) return false;
  bool kept = added != NONE && graph->value[added].stored;
  if (last->kind == OP_relu) return !kept;
  return last->kind == OP_gelu_tanh && (!kept || has_even_rows(value));
}

static bool is_slope(const struct op *op, int value)
{
  return op->kind == OP_gelu_tanh_back && op->in[0] == value && same_tensors(op->out, value) &&
         same_tensors(op->in[1], value) && has_even_rows(value);
}

static int together(int product, int n, const int *after)
{
  const struct op *last = &graph->op[after[n - 1]];
  int *body = alloc((size_t)(n + 1) * sizeof *body);
  body[0] = product;
  memcpy(body + 1, after, (size_t)n * sizeof *body);
  struct op op = {.kind = OP_epilogue,
                  .out = NONE,
                  .nbody = n + 1,
                  .body = body,
                  .phase = last->phase,
                  .module = last->module,
                  .line = graph->op[product].line,
                  .pieces = graph->op[product].pieces,
                  .piece = graph->op[product].piece};
  return store_op(op);
}

/* Whether the inputs of the operations, except the results of each other and of the product, exist
   before place `at` of the function. */
static bool have_inputs(const struct function *f, int at, const int *after, int n)
{
  for (int k = at; k < f->nop; k++) {
    int *made = alloc((size_t)op_width(&graph->op[f->op[k]]) * sizeof *made);
    for (int m = op_makes(&graph->op[f->op[k]], made); m--;)
      for (int i = 0; i < n; i++) {
        const struct op *op = &graph->op[after[i]];
        bool waits = op->in[0] == made[m] || (op->nin > 1 && op->in[1] == made[m]);
        bool is_its_own = made[m] == graph->op[f->op[at]].out;
        for (int j = 0; j < n; j++) is_its_own |= made[m] == graph->op[after[j]].out;
        if (waits && !is_its_own) return false;
      }
  }
  return true;
}

/* The place in the function of the product, or of its first piece, whose epilogue the kernel at
   place `k` can be; or NONE. */
static int followed_by(const int *readers, const struct function *f, int k)
{
  const struct op *group = &graph->op[f->op[k]];
  if (group->kind != OP_fused) return NONE;
  for (int i = 0; i < k; i++) {
    const struct op *op = &graph->op[f->op[i]];
    /* Whether the epilogue ends with a sum over rows: a piece does not have all rows. */
    if (!is_product(readers, op) ||
        (op->pieces && graph->op[group->body[group->nbody - 1]].kind == OP_sum))
      continue;
    if (!follows_forward(group, op->out)) {
      /* gelu's gradient, then the sum that is the bias's. */
      const struct op *first = &graph->op[group->body[0]],
                      *sum = &graph->op[group->body[group->nbody - 1]];
      bool follows_backward =
          is_slope(first, op->out) && group->nbody <= 2 &&
          (group->nbody == 1 || (sums_rows(sum, first->out) &&
                                 graph->value[sum->out].type == graph->value[op->out].type));
      if (!follows_backward) continue;
    }
    /* Whether the product at place `at` can do its epilogue at that place: only pieces have to. */
    bool can_stay = !graph->op[f->op[i]].pieces || have_inputs(f, i, group->body, group->nbody);
    return can_stay ? i : NONE;
  }
  return NONE;
}

/* The epilogue's operations for one piece. */
static int *as_piece(const int *after, int n, const struct op *product)
{
  int *copy = alloc((size_t)n * sizeof *copy);
  for (int i = 0; i < n; i++) {
    struct op op = graph->op[after[i]];
    op.pieces = product->pieces;
    op.piece = product->piece;
    graph->value[op.out].pieces = product->pieces;
    copy[i] = store_op(op);
  }
  return copy;
}

/* The product at place `at`, or each of its pieces, gets the epilogue at its own place. */
static void do_in_place(struct function *f, int at, int n, const int *after)
{
  const struct op product = graph->op[f->op[at]];
  for (int i = at; i < f->nop; i++) {
    struct op op = graph->op[f->op[i]];
    if (i > at && (!op.pieces || op.kind != OP_matmul || op.out != product.out)) continue;
    f->op[i] = together(f->op[i], n, op.pieces ? as_piece(after, n, &op) : after);
  }
}

static void remove_at(struct function *f, int k)
{
  memmove(f->op + k, f->op + k + 1, (size_t)(--f->nop - k) * sizeof *f->op);
}

/* Removes body[n] from the kernel if one kernel can run its other operations; false if not, or if
   another of them reads the result. */
static bool take_out(struct op *group, int n)
{
  int *body = alloc((size_t)group->nbody * sizeof *body), kept = 0;
  struct stages *stages = alloc(sizeof *stages);
  int out = graph->op[group->body[n]].out;
  for (int k = 0; k < group->nbody; k++) {
    const struct op *op = &graph->op[group->body[k]];
    if (lists_number(op->in, op->nin, out)) return false;
    if (k != n) body[kept++] = group->body[k];
  }
  if (kept && !find_stages(body, kept, stages)) return false;
  group->body = body;
  group->nbody = kept;
  group->stages = stages;
  return true;
}

/* Whether the kernel itself makes an input of its body[n]: gelu's input, where that is computed
   again. */
static bool makes_input_of(const struct op *group, int n)
{
  const struct op *op = &graph->op[group->body[n]];
  for (int i = 0; i < op->nin; i++)
    if (lists_number(group->body, group->nbody, graph->value[op->in[i]].op)) return true;
  return false;
}

/* Moves only gelu's gradient from a kernel with other work to the product before it. */
static void give_slopes(const int *readers, struct function *f, int k)
{
  struct op *group = &graph->op[f->op[k]];
  for (int n = 0; n < group->nbody; n++)
    for (int i = 0; i < k; i++) {
      const struct op *op = &graph->op[f->op[i]];
      int id = group->body[n];
      if (!is_product(readers, op) || !is_slope(&graph->op[id], op->out)) continue;
      if (makes_input_of(group, n) || !have_inputs(f, i, &id, 1) || !take_out(group, n)) continue;
      graph->value[op->out].stored = false;
      do_in_place(f, i, 1, &id);
      return;
    }
}

/* ------------------------------------------------------------------------ the scales of float8 */

/* The operation in the kernel that multiplies the value by a number, or casts it, if nothing else
   reads the value; or NONE. */
static int goes_on(const int *readers, const struct op *group, int value, enum op_kind kind)
{
  for (int n = 0; n < group->nbody && readers[value] == 1; n++) {
    const struct op *op = &graph->op[group->body[n]];
    if (op->kind != kind || op->in[0] != value) continue;
    bool is_scale = kind == OP_cast || !graph->value[op->in[1]].shape.ndim;
    for (int m = 0; m < group->nbody && kind == OP_mul; m++)
      is_scale &= graph->op[group->body[m]].out != op->in[1];
    return is_scale ? group->body[n] : NONE;
  }
  return NONE;
}

/* The operations of the kernel that scale the product of float8, in order; their number, or 0. */
static int scales_of(const int *readers, const struct op *group, const struct op *product,
                     int *after)
{
  if (product->kind != OP_matmul || product->nin != 2 || product->pieces ||
      type_bytes(graph->value[product->in[0]].type) != 1)
    return 0;
  after[0] = goes_on(readers, group, product->out, OP_mul);
  after[1] = after[0] == NONE ? NONE : goes_on(readers, group, graph->op[after[0]].out, OP_mul);
  if (after[1] == NONE) return 0;
  after[2] = goes_on(readers, group, graph->op[after[1]].out, OP_cast);
  return after[2] == NONE || graph->value[graph->op[after[2]].out].type != BF16 ? 2 : 3;
}

/* Moves the scales from the kernel at place k to the products of float8 before it. */
static void give_factors(const int *readers, struct function *f, int k)
{
  for (int i = 0; i < k; i++) {
    struct op *group = &graph->op[f->op[k]];
    int after[3], left = 0, n = scales_of(readers, group, &graph->op[f->op[i]], after);
    if (!n || !have_inputs(f, i, after, n)) continue;
    int *body = alloc((size_t)group->nbody * sizeof *body);
    struct stages *stages = alloc(sizeof *stages);
    for (int m = 0; m < group->nbody; m++)
      if (!lists_number(after, n, group->body[m])) body[left++] = group->body[m];
    if (left && !find_stages(body, left, stages)) continue;
    group->body = body;
    group->nbody = left;
    group->stages = stages;
    graph->value[graph->op[f->op[i]].out].stored = false;
    for (int m = 0; m < n; m++) graph->value[graph->op[after[m]].out].stored = m == n - 1;
    f->op[i] = together(f->op[i], n, after);
    if (left) continue;
    remove_at(f, k);
    return;
  }
}

/* A product moves to the place of its kernel: nothing else waits for it. Pieces stay in place. */
static void join_kernels(const int *readers, struct function *f)
{
  for (int k = f->nop - 1; k >= 0; k--)
    if (graph->op[f->op[k]].kind == OP_fused) give_factors(readers, f, k);
  for (int k = 0; k < f->nop; k++) {
    int product = followed_by(readers, f, k);
    if (product == NONE && graph->op[f->op[k]].kind == OP_fused) give_slopes(readers, f, k);
    if (product == NONE) continue;
    const struct op group = graph->op[f->op[k]];
    bool pieces = graph->op[f->op[product]].pieces;
    graph->value[graph->op[f->op[product]].out].stored = false;
    if (pieces)
      do_in_place(f, product, group.nbody, group.body);
    else
      f->op[k] = together(f->op[product], group.nbody, group.body);
    remove_at(f, pieces ? k : product);
    k--;
  }
}

/* ------------------------------------------------------- the gradients of a weight and its bias */

/* The place of the product after place `k` whose terms the sum is over, before anything reads the
   sum; or NONE. */
static int product_for(const struct function *f, int k, const struct op *sum)
{
  for (int i = k + 1; i < f->nop && !reads_value(&graph->op[f->op[i]], sum->out); i++) {
    const struct op *op = &graph->op[f->op[i]];
    if (op->kind == OP_loop) return NONE;
    /* "...n,...k->nk" or its like: the terms are all dimensions of `value` but the last. */
    const struct value *v = &graph->value[sum->in[0]];
    bool sums_terms = false;
    if (op->kind == OP_matmul && op->nin == 2 && op->in[0] != op->in[1] && !op->pieces) {
      const char *a = op->equation, *b = strchr(a, ',') + 1, *c = strchr(b, '>') + 1;
      size_t n = (size_t)v->shape.ndim - 1;
      sums_terms = (op->in[0] == sum->in[0] || op->in[1] == sum->in[0]) && strlen(c) == 2 &&
                   (size_t)(b - a) == n + 2 && (size_t)(c - b) == n + 3 && !memcmp(a, b, n) &&
                   strchr(c, a[n]) && strchr(c, b[n]) && a[n] != b[n] &&
                   lies_as_written(op->in[0]) && lies_as_written(op->in[1]) &&
                   lies_as_written(op->out) && v->shape.size[0] > 0;
    }
    if (sums_terms && has_equal_parts(op->in[0]) && has_equal_parts(op->in[1]) &&
        graph->value[op->out].type == graph->value[sum->out].type)
      return i;
  }
  return NONE;
}

/* A sum that a kernel leaves becomes the product's. */
static bool give_sum(struct function *f, int k)
{
  struct op *group = &graph->op[f->op[k]];
  for (int n = 0; n < group->nbody; n++) {
    int id = group->body[n];
    const struct op *sum = &graph->op[id];
    if (!sums_rows(sum, sum->in[0]) || graph->value[sum->out].is_output) continue;
    int product = product_for(f, k, sum);
    if (product == NONE || !take_out(group, n)) continue;
    graph->value[sum->in[0]].stored = true;
    f->op[product] = together(f->op[product], 1, &id);
    return true;
  }
  return false;
}

void epilogue(void)
{
  if (!target->epilogues) return;
  const int *readers = count_readers(); /* inside and outside of kernels */
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop; k++) {
      if (graph->op[f->op[k]].kind != OP_fused || !give_sum(f, k)) continue;
      if (!graph->op[f->op[k]].nbody) remove_at(f, k);
      k--;
    }
    join_kernels(readers, &graph->function[i]);
  }
}

/* --------------------------------------------------------------- the description of an epilogue */

struct epilogue epilogue_of(const struct op *op)
{
  struct epilogue e = {
      .function = OP_matmul, .bias = NONE, .kept = NONE, .summed = NONE, .scale = {NONE, NONE}};
  const struct op *product = &graph->op[op->body[0]];
  e.result = product->out;
  for (int k = 1; k < op->nbody; k++) {
    const struct op *after = &graph->op[op->body[k]];
    if (after->kind == OP_sum) {
      e.bias = after->out;
      e.summed = after->in[0];
      break;
    }
    if (after->kind == OP_mul) e.scale[k - 1] = after->in[1];
    if (after->kind == OP_add) e.bias = after->in[after->in[0] == e.result];
    if (after->kind != OP_add && after->kind != OP_cast) e.function = after->kind;
    if (after->kind == OP_gelu_tanh && graph->value[e.result].stored) e.kept = e.result;
    if (after->kind == OP_gelu_tanh_back) e.kept = after->in[1];
    e.result = after->out;
  }
  return e;
}
