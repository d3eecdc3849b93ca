/* check_kernels.c: a part of check.c: a kernel for several operations computes what they do.

   Takes   the program from the pass `fuse` on: for each fused operation the iteration space of its
           kernel and the dimensions outside of a row; for each member whether it makes one element
           per row, over what it reduces, and in which pass over the row.
   Holds   each member has the kernel's iteration space, or one element for each of its rows. A
           reduction is over the dimensions that its reach says. If a member reads another member's
           result, that is already made, at the same place or for the same row.

   The rules are its own: row_passes.c decides what one kernel can do. */
#include "check/check.h"

#include <string.h>

/* A fused operation, and the member that is checked. */
struct looked_at {
  int id;
  const struct op *kernel;
  const struct stages *stages;
  const struct op *op;
  const struct task *task;
};

static bool is_row_kernel(const struct stages *s)
{
  return s->rows != NONE;
}

/* A loop goes over every dimension of an operand that has several elements on a rank: the rule
   gives it a letter. */
static void check_letters(const struct looked_at *m)
{
  struct letters l;
  op_letters(m->op, &l);
  for (int i = 0; i <= m->op->nin; i++) {
    struct shape here = local_shape(i < m->op->nin ? m->op->in[i] : m->op->out, 0);
    const struct axis *axis = i < m->op->nin ? l.in[i] : l.out[0];
    for (int d = 0; d < here.ndim; d++)
      require(axis[d].n > 0 || here.size[d] <= 1, m->id, "no loop goes over one of its dimensions");
  }
}

static unsigned bits(int first, int end)
{
  return (1u << end) - (1u << first);
}

static void check_reduction(const struct looked_at *m, unsigned *some)
{
  int ndim = graph->value[m->stages->space].shape.ndim, rows = m->stages->rows;
  unsigned dims = m->op->dims;
  bool fits = false;
  switch (m->task->reach) {
  case OVER_ROW:
    fits = is_row_kernel(m->stages) && !m->task->of_row && dims == bits(rows, ndim);
    break;
  case OVER_COLUMN:
    fits = is_row_kernel(m->stages) && !m->task->of_row && dims == bits(0, rows);
    break;
  case OVER_ROWS: /* all elements, one for each row */
    fits = is_row_kernel(m->stages) && m->task->of_row && (dims & bits(0, rows)) == bits(0, rows);
    break;
  case OVER_SOME:
    fits = !is_row_kernel(m->stages) && (!*some || *some == dims);
    *some = dims;
    break;
  default:
    break;
  }
  require(fits, m->id, "what is fused in it reduces other dimensions than its kernel does");
}

/* Whether input i varies only along the first dimensions of the member's space, and is indexed in
   each by the kernel's own index. */
static bool reads_own_place(const struct op *op, int i, int dims)
{
  struct letters l;
  op_letters(op, &l);
  const struct axis *space = space_axes(op, &l);
  if (reads_by_index(op, i)) return false;
  for (int d = 0; d < l.ndim_in[i]; d++) {
    const struct axis *axis = &l.in[i][d];
    if (!axis->n) continue;
    if (d >= dims || axis->n != space[d].n) return false;
    for (int k = 0; k < axis->n; k++)
      if (axis->letter[k] != space[d].letter[k]) return false;
  }
  return true;
}

static void check_member(struct looked_at *m, int k)
{
  require(m->task->stage >= 0 && m->task->stage < m->stages->count, m->id,
          "its kernel goes through a row less often than it has to");
  for (int i = 0; i < m->op->nin; i++)
    for (int before = 0; before < m->kernel->nbody; before++) {
      if (graph->op[m->kernel->body[before]].out != m->op->in[i]) continue;
      require(before < k, m->id, "what is fused in it reads what comes later");
      /* Input i of the member is the output of another member of the same kernel. */
      const struct task *maker = &m->stages->task[before];
      bool is_complete = maker->reach == NO_REDUCTION || maker->reach == OVER_ROW;
      bool is_of_row = maker->of_row || maker->reach == OVER_ROW;
      int ndim = graph->value[m->stages->space].shape.ndim;
      require(is_complete, m->id, "what is reduced to the kernel's end is read in it");
      require(m->task->stage >= maker->stage + (maker->reach == OVER_ROW), m->id,
              "a row is read before it is reduced");
      require(is_of_row || !m->task->of_row, m->id, "one element for a row reads all of the row");
      require(reads_own_place(m->op, i, is_of_row ? m->stages->rows : ndim), m->id,
              "an element is read at another place than that at which the kernel makes it");
    }
}

static void check_fused(int id, const struct op *kernel)
{
  const struct stages *s = kernel->stages;
  unsigned some = 0;
  require(s && s->n == kernel->nbody && s->n <= MOST_IN_KERNEL && s->space != NONE, id,
          "its kernel has no stages");
  require(s->rows >= NONE && s->rows < graph->value[s->space].shape.ndim + (s->n == 1), id,
          "its kernel has no such rows");
  for (int k = 0; k < s->n; k++) {
    struct looked_at m = {id, kernel, s, &graph->op[kernel->body[k]], &s->task[k]};
    require(is_pointwise(m.op->kind) || is_reduce(m.op->kind), id, "no kernel runs its members");
    require(is_row_kernel(s) || !m.task->of_row, id, "its kernel has no rows");
    require(is_reduce(m.op->kind) == (m.task->reach != NO_REDUCTION), id,
            "what its kernel reduces is not a reduction");
    int whole = m.stages->space, here = space_of(m.op);
    struct shape space = graph->value[whole].shape, own = graph->value[here].shape;
    int dims = m.task->of_row ? m.stages->rows : space.ndim;
    require(m.task->of_row || same_shape(own, space), m.id,
            "what is fused in it goes through another space");
    /* Compares the first and the last rank: they have the largest and the smallest parts. */
    int last = world_size() - 1;
    bool same_parts = true;
    for (int r = 0; r <= last && same_parts; r += last ? last : 1) {
      struct shape x = local_shape(whole, r), y = local_shape(here, r);
      for (int d = 0; d < dims && same_parts; d++)
        same_parts = d < x.ndim && d < y.ndim && x.size[d] == y.size[d];
    }
    require(same_parts, m.id, "what is fused in it has other parts");
    for (int d = dims; d < own.ndim; d++)
      require(own.size[d] == 1, m.id, "what is fused in it has more than one element for a row");
    check_letters(&m);
    if (is_reduce(m.op->kind)) check_reduction(&m, &some);
    check_member(&m, k);
  }
}

/* Each member reads the result of the one before, which nothing else reads, except gelu's input,
   which may be kept for its gradient. A sum comes last, for a bias's gradient. */
static void check_epilogue(int id, const struct op *op)
{
  const struct op *product = &graph->op[op->body[0]];
  int result = product->out;
  require(product->kind == OP_matmul && op->nbody > 1, id, "an epilogue of no product");
  for (int k = 1; k < op->nbody; k++) {
    const struct op *after = &graph->op[op->body[k]];
    if (after->kind == OP_sum) {
      require(k == op->nbody - 1, id, "its sum is not what comes last");
      break;
    }
    bool is_kept = after->kind == OP_gelu_tanh && result != product->out;
    require(after->in[0] == result || (after->nin > 1 && after->in[1] == result), id,
            "it goes on with something else than its product");
    require(is_kept || !graph->value[result].stored, id,
            "what a function is applied to is stored, and not as what is kept");
    result = after->out;
  }
  require(graph->value[result].stored, id, "the result is not stored");
}

/* The dimension of operand o of the product (2: the result) that has the letter, or NONE. */
static int check_kernels_dimension_with(const struct op *op, int o, char letter)
{
  const char *c = op->equation;
  for (int i = 0; i < o; i++) c = strpbrk(c, ",>") + 1;
  const char *found = memchr(c, letter, strcspn(c, ",-"));
  return found ? (int)(found - c) : NONE;
}

/* Whether the elements of one begin where those of the other end, along dimension d. */
static bool check_kernels_follows(int before, int value, int d)
{
  const struct value *v = &graph->value[before], *w = &graph->value[value];
  int64_t a[MAX_DIMS], b[MAX_DIMS];
  local_strides(before, 0, a);
  local_strides(value, 0, b);
  for (int i = 0; i < v->shape.ndim; i++)
    if (v->shape.ndim != w->shape.ndim || a[i] != b[i]) return false;
  const struct concat_slice *p = concat_slice(before), *q = concat_slice(value);
  if (p->buffer != NONE && q->buffer != NONE)
    return p->buffer == q->buffer && q->first == p->first + local_shape(before, 0).size[d] * a[d];
  bool gradients = v->role == GRADIENT;
  return v->role == w->role && (gradients || v->role == PARAMETER) && d == 0 &&
         is_next_parameter(gradients ? v->of : before, gradients ? w->of : value);
}

/* One call makes the results of all products. The products have one equation; of each operand they
   have either one value or, where the operand has the letter, parts side by side. A sum has its
   result in the last one. */
static void check_products(int id, const struct op *op)
{
  const struct op *first = &graph->op[op->body[0]];
  char letter = (char)op->number[0];
  require(op->nbody > 1 && letter >= 'a' && letter <= 'z', id, "products that are not one");
  for (int k = 0; k < op->nbody; k++) {
    const struct op *product = &graph->op[op->body[k]];
    require(product->kind == OP_matmul && !product->pieces, id, "its products are others");
    require(!strcmp(product->equation, first->equation), id, "its products have other equations");
  }
  bool is_sum = check_kernels_dimension_with(first, 2, letter) == NONE;
  for (int k = 1; k < op->nbody; k++) {
    const struct op *before = &graph->op[op->body[k - 1]], *product = &graph->op[op->body[k]];
    require(!is_sum || (product->nin == 3 && product->in[2] == before->out), id,
            "its products are not a sum");
    require(is_sum || product->nin == first->nin, id,
            "some of its products add, and others do not");
    for (int o = 0; o < (is_sum ? 2 : 3); o++) {
      int a = o < 2 ? before->in[o] : before->out, b = o < 2 ? product->in[o] : product->out;
      int d = check_kernels_dimension_with(product, o, letter);
      require(d == NONE ? a == b : check_kernels_follows(a, b, d), id,
              "its operands are not side by side");
    }
  }
}

static void check_kernel(void *unused, int id, int times)
{
  (void)unused, (void)times;
  const struct op *op = &graph->op[id];
  if (op->kind == OP_fused) check_fused(id, op);
  if (op->kind == OP_epilogue) check_epilogue(id, op);
  if (op->kind == OP_products) check_products(id, op);
}

void check_kernels(void)
{
  each_op(check_kernel, NULL);
}

/* ----------------------------------------------------------------------------- kernels' forms */

static void check_forms_of(void *unused, int id, int times)
{
  const struct rank_classes *c = &graph->kernel_forms->ranks;
  (void)unused, (void)times;
  for (int i = 0; i < c->n && graph->op[id].kind == OP_fused; i++)
    for (int size = NONE; next_size(&c->sizes, &size);) {
      /* Checks what a device can launch, vectors that divide the rank's part, and scratch memory.
       */
      int rank = c->first[i];
      const struct op *op = &graph->op[id];
      const struct kernel_form *f = kernel_form(op, rank);
      int64_t here = elements(local_shape(op->stages->space, rank));
      require(here || f->scratch == 0, id, "a kernel of no element has scratch");
      require(f->scheme != NO_KERNEL || !here, id, "elements that no kernel computes");
      require(f->parts >= 1 && f->scratch <= kernel_scratch(rank), id, "no scratch for its parts");
      if (target->thread_grids) {
        require(f->threads > 0 && f->threads <= 1024 && f->threads % 32 == 0, id,
                "no block of threads");
        require(f->width >= 1 && f->width <= 8 && here % f->width == 0, id, "no whole vectors");
        require(f->scheme == NO_KERNEL || !here || f->blocks > 0, id, "no block is launched");
      }
    }
}

/* For a graph from a dump the forms are decided after the check of that graph. */
void check_forms(void)
{
  if (graph->kernel_forms) each_op(check_forms_of, NULL);
}
