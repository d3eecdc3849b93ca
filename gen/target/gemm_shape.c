/* gemm_shape.c: a product of matrices as calls of a library: operands folded to matrices, batches,
   leading dimensions, the number of calls. */
#include "target/target.h"

#include <string.h>

/* The operands in which a letter of m, n or k occurs. */
enum {
  IN_M = 1 << GEMM_A | 1 << GEMM_C,
  IN_N = 1 << GEMM_B | 1 << GEMM_C,
  IN_K = 1 << GEMM_A | 1 << GEMM_B
};

int product_value(const struct op *op, enum gemm_operand o)
{
  return o == GEMM_C ? op->out : op->in[o];
}

static void parse_equation(struct product *p)
{
  const char *c = p->op->equation;
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++) {
    size_t n = strcspn(c, ",-");
    memcpy(p->letters[o], c, n);
    for (const char *x = p->letters[o]; *x; x++)
      if (strchr(x + 1, *x))
        plan_error(p->op->line, "matmul %s: '%c' occurs twice in one operand", p->op->equation, *x);
    c += n;
    c += o == GEMM_A ? strlen(",") : o == GEMM_B ? strlen("->") : 0;
  }
}

static struct letter_run *run_of(struct product *p, char letter)
{
  for (int i = 0; i < p->nrun; i++)
    if (p->run[i].letter == letter) return &p->run[i];
  p->run[p->nrun] = (struct letter_run){.letter = letter};
  return &p->run[p->nrun++];
}

/* The dimension that is cut in pieces: seen as [parts, pieces, size]; a piece has the first and the
   last. In memory it may be [pieces, parts, size]. */
static void add_piece(struct product *p, enum gemm_operand o, char letter, int64_t size,
                      int64_t stride)
{
  const struct op *op = p->op;
  bool apart = o == GEMM_C ? p->apart : graph->value[op->in[o]].is_separate;
  int64_t parts = group_size(op->piece_group), rows = size / parts / op->pieces;
  struct letter_run *part = run_of(p, '#');
  part->in |= 1u << o;
  part->size = parts;
  part->stride[o] = rows * stride * (apart ? 1 : op->pieces);
  p->offset[o] = op->piece * rows * stride * (apart ? parts : 1);
  if (rows == 1) return;
  struct letter_run *r = run_of(p, letter);
  r->in |= 1u << o;
  r->size = rows;
  r->stride[o] = stride;
}

/* Whether y comes right after x in every operand that has one of them. */
static bool follows(const struct letter_run *x, const struct letter_run *y)
{
  if (x == y) return false;
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++)
    if (x->stride[o] != y->size * y->stride[o]) return false;
  return true;
}

static bool fold_two(struct product *p)
{
  for (int i = 0; i < p->nrun; i++)
    for (int j = 0; j < p->nrun; j++) {
      struct letter_run *x = &p->run[i], *y = &p->run[j];
      if (!follows(x, y)) continue;
      x->size *= y->size;
      memcpy(x->stride, y->stride, sizeof x->stride);
      memmove(y, y + 1, (size_t)(--p->nrun - j) * sizeof *y);
      return true;
    }
  return false;
}

/* No part is empty. The runs are in the order of the output's letters, then of a's and b's. */
static void gemm_shape_find_runs(struct product *p, int rank)
{
  static const enum gemm_operand order[] = {GEMM_C, GEMM_A, GEMM_B};
  for (int i = 0; i < GEMM_OPERANDS; i++) {
    enum gemm_operand o = order[i];
    struct shape here = local_shape(product_value(p->op, o), rank);
    int64_t stride[MAX_DIMS];
    local_strides(product_value(p->op, o), rank, stride);
    for (int d = 0; d < here.ndim; d++) {
      int64_t size = p->letters[o][d] == p->joined ? p->size : here.size[d];
      if (size == 1) continue;
      if (p->op->pieces && p->letters[o][d] == p->letters[GEMM_C][p->op->piece_dim]) {
        add_piece(p, o, p->letters[o][d], here.size[d], stride[d]);
        continue;
      }
      struct letter_run *r = run_of(p, p->letters[o][d]);
      r->in |= 1u << o;
      r->size = size;
      r->stride[o] = stride[d];
    }
  }
  while (fold_two(p)) continue;
}

/* For a side of a call without a run: one row, one column, or one term. */
static const struct letter_run single = {.size = 1};

static unsigned operands_with(const struct product *p, char letter)
{
  unsigned in = 0;
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++)
    if (strchr(p->letters[o], letter)) in |= 1u << o;
  return in;
}

/* Whether the equation has the rows' letters after the columns'. If the sizes leave open whether a
   matrix is transposed, the equation decides. */
static bool reads_transposed(const struct product *p, enum gemm_operand o, unsigned rows,
                             unsigned columns)
{
  bool rows_behind = false;
  for (size_t d = strlen(p->letters[o]); d-- > 0;) {
    unsigned in = operands_with(p, p->letters[o][d]);
    if (in == columns) return rows_behind;
    rows_behind |= in == rows;
  }
  return false;
}

static int64_t leading(enum gemm_operand o, const struct letter_run *outer,
                       const struct letter_run *inner)
{
  if (inner->size > 1 && inner->stride[o] != 1) return 0;
  return outer->size > 1 ? outer->stride[o] : inner->size;
}

static struct matrix lay(enum gemm_operand o, const struct letter_run *rows,
                         const struct letter_run *columns, bool transposed)
{
  int64_t ld = transposed ? leading(o, columns, rows) : leading(o, rows, columns);
  if (!ld) {
    transposed = !transposed;
    ld = transposed ? leading(o, columns, rows) : leading(o, rows, columns);
  }
  int64_t inner = transposed ? rows->size : columns->size;
  return (struct matrix){.transposed = transposed, .tight = ld == inner, .ld = ld};
}

/* Whether BLAS supports it. */
static bool lay_out_gemm(const struct product *p, struct gemm *call)
{
  struct matrix *x = call->matrix;
  x[GEMM_A] = lay(GEMM_A, call->m, call->k, reads_transposed(p, GEMM_A, IN_M, IN_K));
  x[GEMM_B] = lay(GEMM_B, call->k, call->n, reads_transposed(p, GEMM_B, IN_K, IN_N));
  x[GEMM_C] = lay(GEMM_C, call->m, call->n, reads_transposed(p, GEMM_C, IN_M, IN_N));
  return x[GEMM_A].ld && x[GEMM_B].ld && x[GEMM_C].ld;
}

/* The runs that may be this side of the call, from the last on, then none. */
static int sides(const struct product *p, unsigned in, const struct letter_run **list)
{
  int n = 0;
  for (int i = p->nrun; i-- > 0;)
    if (p->run[i].in == in) list[n++] = &p->run[i];
  list[n++] = &single;
  return n;
}

static bool is_better(const struct gemm *x, const struct gemm *y)
{
  double work_x = (double)x->m->size * (double)x->n->size * (double)x->k->size,
         work_y = (double)y->m->size * (double)y->n->size * (double)y->k->size;
  return work_x > work_y || (work_x == work_y && x->k->size > y->k->size);
}

bool is_summed(const struct letter_run *r)
{
  return !(r->in & 1u << GEMM_C);
}

static void choose_batch(struct product *p)
{
  const struct gemm *c = &p->call;
  for (int i = 0; i < p->nrun; i++) {
    const struct letter_run *r = &p->run[i];
    if (r == c->m || r == c->n || r == c->k) continue;
    p->loop[p->nloop++] = r;
    if (!is_summed(r) && (!p->batch || r->size >= p->batch->size)) p->batch = r;
  }
  int n = 0;
  for (int i = 0; i < p->nloop; i++)
    if (p->loop[i] != p->batch) p->loop[n++] = p->loop[i];
  p->nloop = n;
}

enum type type_at(const struct op *op, enum gemm_operand o)
{
  return graph->value[product_value(op, o)].type;
}

void check_types(const struct op *op)
{
  enum type a = type_at(op, GEMM_A), b = type_at(op, GEMM_B), c = type_at(op, GEMM_C);
  for (int o = GEMM_A; o < GEMM_C; o++)
    if (!is_floating(type_at(op, o)))
      plan_error(op->line, "matmul: %s is %s; products are of float32 or bfloat16",
                 value_name(op->in[o]), type_name(type_at(op, o)));
  if (a != b && !(type_bytes(a) == 1 && type_bytes(b) == 1))
    plan_error(op->line, "matmul: %s is %s and %s is %s: cast one of them, with x:to(\"%s\")",
               value_name(op->in[GEMM_A]), type_name(a), value_name(op->in[GEMM_B]), type_name(b),
               a == BF16 || b == BF16 ? "bfloat16" : "float32");
  if (c != a && !(a != F32 && c == F32))
    bug("emit", "matmul: %s of %s", type_name(c), type_name(a));
}

void check_sizes(const struct product *p)
{
  const struct gemm *c = &p->call;
  const int64_t size[] = {c->m->size,
                          c->n->size,
                          c->k->size,
                          c->matrix[GEMM_A].ld,
                          c->matrix[GEMM_B].ld,
                          c->matrix[GEMM_C].ld,
                          p->batch ? p->batch->size : 1};
  for (size_t i = 0; i < sizeof size / sizeof *size; i++)
    if (size[i] > INT32_MAX)
      plan_error(p->op->line, "matmul: a rank's part has a side of more than %d", INT32_MAX);
}

bool is_empty_product(const struct op *op, int rank)
{
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++)
    if (!elements(local_shape(product_value(op, o), rank))) return true;
  return false;
}

static void gemm_shape_choose(struct product *p, const struct op *op, int rank, bool apart)
{
  *p = (struct product){.op = op, .apart = apart, .joined = p->joined, .size = p->size};
  parse_equation(p);
  if (is_empty_product(op, rank)) return;
  gemm_shape_find_runs(p, rank);
  /* With no run on any side there is always a call: a product of two numbers. */
  const struct letter_run *m[MAX_RUNS + 1], *n[MAX_RUNS + 1], *k[MAX_RUNS + 1];
  int nm = sides(p, IN_M, m), nn = sides(p, IN_N, n), nk = sides(p, IN_K, k);
  p->call.m = NULL;
  for (int i = 0; i < nm * nn * nk; i++) {
    struct gemm call = {.m = m[i / nk / nn], .n = n[i / nk % nn], .k = k[i % nk]};
    if (lay_out_gemm(p, &call) && (!p->call.m || is_better(&call, &p->call))) p->call = call;
  }
  choose_batch(p);
}

void choose_product(struct product *p, const struct op *op, int rank)
{
  p->joined = 0, p->size = 0;
  gemm_shape_choose(p, op, rank, graph->value[op->out].is_separate);
}

/* The size of the letter in a product. */
static int64_t size_along(const struct op *op, char letter, int rank)
{
  struct product p = {.op = op};
  parse_equation(&p);
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++) {
    const char *found = strchr(p.letters[o], letter);
    if (found) return local_shape(product_value(op, o), rank).size[found - p.letters[o]];
  }
  return 0;
}

void choose_products(struct product *p, const struct op *op, struct op *first, int rank)
{
  *first = graph->op[op->body[0]];
  if (graph->op[op->body[1]].nin > first->nin) first->out = graph->op[op->body[op->nbody - 1]].out;
  p->joined = (char)number_of(op, "letter");
  p->size = 0;
  for (int k = 0; k < op->nbody; k++)
    p->size += size_along(&graph->op[op->body[k]], p->joined, rank);
  gemm_shape_choose(p, first, rank, false);
}

static double calls_of(const struct product *p)
{
  double calls = p->batch ? (double)p->batch->size : 1;
  for (int i = 0; i < p->nloop; i++) calls *= (double)p->loop[i]->size;
  return calls;
}

double matmul_calls(const struct op *op, int rank)
{
  struct product p;
  choose_product(&p, op, rank);
  return calls_of(&p);
}

double piece_calls(const struct op *op, int rank, bool apart)
{
  struct product p = {.joined = 0};
  gemm_shape_choose(&p, op, rank, apart);
  return calls_of(&p);
}

bool matmul_is_one_call(const struct op *op, int rank)
{
  struct product p;
  if (is_empty_product(op, rank)) return false;
  choose_product(&p, op, rank);
  return !p.nloop && !p.call.matrix[GEMM_C].transposed && p.call.matrix[GEMM_C].tight;
}
