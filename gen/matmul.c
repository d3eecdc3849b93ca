/* matmul.c: a product of two tensors as calls of BLAS, or of cuBLASLt by the runtime's matmul.

   Takes   an einsum of two operands, a letter at most once in each; the parts that a rank holds
           lie without gaps, their dimensions in the order that arrange.c chose.
   Leaves  its statement.

   Where a letter occurs says what it is: in a and the output it is a row of the output (m), in b
   and the output a column (n), in both operands it is summed (k), in all three it is a batch. A
   letter of one operand alone is summed too. Letters that follow each other in every operand that
   has them are folded into one run, with one size and one stride in each operand; letters of size
   1 vanish.

   A call of BLAS takes one run of m, of n and of k each, or none, and wants stride 1 of one of the
   two sides of every matrix. Of all the calls that this allows the one that does most work is
   taken. The runs that are left become loops around it, the largest that is not summed a batch.
   In loops that sum, every call but the first adds to the output.

   Operands are of float32, or of bfloat16, whose products are summed as float32; the output is as
   they are, or float32. One of bfloat16 is rounded by each call that adds to it.  */
#include "tpgen.h"

#include <inttypes.h>
#include <string.h>

enum operand { A, B, C, OPERANDS };

/* The operands in which a letter of m, n or k occurs. */
enum { IN_M = 1 << A | 1 << C, IN_N = 1 << B | 1 << C, IN_K = 1 << A | 1 << B };

struct run {
  char letter; /* the first of those folded into it */
  unsigned in; /* a bit for each operand that has it */
  int64_t size, stride[OPERANDS];
};

/* A matrix as it lies in memory: its rows, or where it is transposed its columns, are `ld` elements
   apart; tight: without gaps. ld 0: no such matrix. */
struct matrix {
  bool transposed, tight;
  int64_t ld;
};

struct gemm {
  const struct run *m, *n, *k;
  struct matrix matrix[OPERANDS];
};

enum { MAX_RUNS = OPERANDS * MAX_DIMS };

struct product {
  const struct op *op;
  const struct epilogue *then;          /* or NULL */
  char letters[OPERANDS][MAX_DIMS + 1]; /* the equation's */
  int nrun;
  struct run run[MAX_RUNS];
  struct gemm call;
  const struct run *batch;  /* or NULL */
  int64_t offset[OPERANDS]; /* of a piece, where it begins */
  int nloop;
  const struct run *loop[MAX_RUNS]; /* from the outermost to the innermost */
  char variable[MAX_RUNS];
};

/* ------------------------------------------------------------------------------------- the runs */

static int value_of(const struct op *op, enum operand o)
{
  return o == C ? op->out : op->in[o];
}

static void parse_equation(struct product *p)
{
  const char *c = p->op->equation;
  for (int o = A; o < OPERANDS; o++) {
    size_t n = strcspn(c, ",-");
    memcpy(p->letters[o], c, n);
    for (const char *x = p->letters[o]; *x; x++)
      if (strchr(x + 1, *x))
        plan_error(p->op->line, "matmul %s: '%c' occurs twice in one operand", p->op->equation, *x);
    c += n;
    c += o == A ? strlen(",") : o == B ? strlen("->") : 0;
  }
}

static struct run *run_of(struct product *p, char letter)
{
  for (int i = 0; i < p->nrun; i++)
    if (p->run[i].letter == letter) return &p->run[i];
  p->run[p->nrun] = (struct run){.letter = letter};
  return &p->run[p->nrun++];
}

/* The dimension that is cut in pieces: seen as [parts, pieces, size], of which a piece has the
   first and the last. It may lie as [pieces, parts, size]. */
static void add_piece(struct product *p, enum operand o, char letter, int64_t size, int64_t stride)
{
  const struct op *op = p->op;
  bool apart = graph->value[value_of(op, o)].apart;
  int64_t parts = group_size(op->group), rows = size / parts / op->pieces;
  struct run *part = run_of(p, '#');
  part->in |= 1u << o;
  part->size = parts;
  part->stride[o] = rows * stride * (apart ? 1 : op->pieces);
  p->offset[o] = op->piece * rows * stride * (apart ? parts : 1);
  if (rows == 1) return;
  struct run *r = run_of(p, letter);
  r->in |= 1u << o;
  r->size = rows;
  r->stride[o] = stride;
}

static void add_operand(struct product *p, enum operand o, int rank)
{
  struct shape here = local_shape(value_of(p->op, o), rank);
  int64_t stride[MAX_DIMS];
  local_strides(value_of(p->op, o), rank, stride);
  for (int d = 0; d < here.ndim; d++) {
    if (here.size[d] == 1) continue;
    if (p->op->pieces && p->letters[o][d] == p->letters[C][p->op->dim]) {
      add_piece(p, o, p->letters[o][d], here.size[d], stride[d]);
      continue;
    }
    struct run *r = run_of(p, p->letters[o][d]);
    r->in |= 1u << o;
    r->size = here.size[d];
    r->stride[o] = stride[d];
  }
}

/* Whether y comes right after x in every operand that has one of them. */
static bool follows(const struct run *x, const struct run *y)
{
  if (x == y) return false;
  for (int o = A; o < OPERANDS; o++)
    if (x->stride[o] != y->size * y->stride[o]) return false;
  return true;
}

static bool fold_two(struct product *p)
{
  for (int i = 0; i < p->nrun; i++)
    for (int j = 0; j < p->nrun; j++) {
      struct run *x = &p->run[i], *y = &p->run[j];
      if (!follows(x, y)) continue;
      x->size *= y->size;
      memcpy(x->stride, y->stride, sizeof x->stride);
      memmove(y, y + 1, (size_t)(--p->nrun - j) * sizeof *y);
      return true;
    }
  return false;
}

/* No part is empty. The runs stand in the order of the output's letters, then of a's and b's. */
static void find_runs(struct product *p, int rank)
{
  static const enum operand order[] = {C, A, B};
  for (int i = 0; i < OPERANDS; i++) add_operand(p, order[i], rank);
  while (fold_two(p)) continue;
}

/* ------------------------------------------------------------------------------------- the call */

/* Where a call takes no run: one row, one column, or one term. */
static const struct run single = {.size = 1};

static unsigned operands_with(const struct product *p, char letter)
{
  unsigned in = 0;
  for (int o = A; o < OPERANDS; o++)
    if (strchr(p->letters[o], letter)) in |= 1u << o;
  return in;
}

/* Whether the equation has the rows' letters behind the columns': where the sizes leave it open, a
   matrix is named as the equation has it. */
static bool reads_transposed(const struct product *p, enum operand o, unsigned rows,
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

static int64_t leading(enum operand o, const struct run *outer, const struct run *inner)
{
  if (inner->size > 1 && inner->stride[o] != 1) return 0;
  return outer->size > 1 ? outer->stride[o] : inner->size;
}

static struct matrix lay(enum operand o, const struct run *rows, const struct run *columns,
                         bool transposed)
{
  int64_t ld = transposed ? leading(o, columns, rows) : leading(o, rows, columns);
  if (!ld) {
    transposed = !transposed;
    ld = transposed ? leading(o, columns, rows) : leading(o, rows, columns);
  }
  int64_t inner = transposed ? rows->size : columns->size;
  return (struct matrix){.transposed = transposed, .tight = ld == inner, .ld = ld};
}

/* Whether BLAS can do it. */
static bool lay_out(const struct product *p, struct gemm *call)
{
  struct matrix *x = call->matrix;
  x[A] = lay(A, call->m, call->k, reads_transposed(p, A, IN_M, IN_K));
  x[B] = lay(B, call->k, call->n, reads_transposed(p, B, IN_K, IN_N));
  x[C] = lay(C, call->m, call->n, reads_transposed(p, C, IN_M, IN_N));
  return x[A].ld && x[B].ld && x[C].ld;
}

/* The runs that may be this side of the call, from the last on, and none. */
static int sides(const struct product *p, unsigned in, const struct run **list)
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

/* With no run on any side there is always one: a product of two numbers. */
static void choose_call(struct product *p)
{
  const struct run *m[MAX_RUNS + 1], *n[MAX_RUNS + 1], *k[MAX_RUNS + 1];
  int nm = sides(p, IN_M, m), nn = sides(p, IN_N, n), nk = sides(p, IN_K, k);
  p->call.m = NULL;
  for (int i = 0; i < nm * nn * nk; i++) {
    struct gemm call = {.m = m[i / nk / nn], .n = n[i / nk % nn], .k = k[i % nk]};
    if (lay_out(p, &call) && (!p->call.m || is_better(&call, &p->call))) p->call = call;
  }
}

/* ------------------------------------------------------------------------------------ the loops */

static bool is_summed(const struct run *r)
{
  return !(r->in & 1u << C);
}

static void choose_batch(struct product *p)
{
  const struct gemm *c = &p->call;
  for (int i = 0; i < p->nrun; i++) {
    const struct run *r = &p->run[i];
    if (r == c->m || r == c->n || r == c->k) continue;
    p->loop[p->nloop++] = r;
    if (!is_summed(r) && (!p->batch || r->size >= p->batch->size)) p->batch = r;
  }
  int n = 0;
  for (int i = 0; i < p->nloop; i++)
    if (p->loop[i] != p->batch) p->loop[n++] = p->loop[i];
  p->nloop = n;
}

static bool is_free(const struct product *p, char letter)
{
  char word[] = {letter, 0};
  for (int i = 0; i < p->nloop; i++)
    if (p->variable[i] == letter) return false;
  for (int o = A; o < OPERANDS; o++)
    if (has_word(c_name(value_of(p->op, o)), word)) return false;
  return true;
}

/* What a loop counts with: the run's own letter, where generated functions have no other use for
   it, else one that the equation has not, else any. Those that they do speak come first. */
static char counter(const struct product *p, char own)
{
  static const char list[] = "ijpqrsbknacdefghouvwxyz";
  if (is_spoken((char[]){own, 0}) && strchr(list, own) && is_free(p, own)) return own;
  for (const char *c = list; *c; c++)
    if (!strchr(p->op->equation, *c) && is_free(p, *c)) return *c;
  for (const char *c = list; *c; c++)
    if (is_free(p, *c)) return *c;
  bug("emit", NONE, "matmul %s: no letter is left to count with", p->op->equation);
}

/* ------------------------------------------------------------------------------------- the text */

/* "a + b * 12 + i" */
static char *address(const struct product *p, enum operand o)
{
  struct buffer b = {0};
  put(&b, "%s", c_name(o == C && p->then ? p->then->result : value_of(p->op, o)));
  for (int i = 0; i < p->nloop; i++) {
    int64_t stride = p->loop[i]->stride[o];
    if (stride == 1) put(&b, " + %c", p->variable[i]);
    if (stride > 1) put(&b, " + %c * %" PRId64, p->variable[i], stride);
  }
  if (p->offset[o]) put(&b, " + %" PRId64, p->offset[o]);
  return b.text;
}

/* Whether the call adds to what the output holds: "i > 0 || j > 0", "false"; "true" where that is
   the operation's third input. */
static char *adds_text(const struct product *p)
{
  struct buffer b = {0};
  if (p->op->nin > 2) return copy_text("true");
  for (int i = 0; i < p->nloop; i++)
    if (is_summed(p->loop[i])) put(&b, "%s%c > 0", b.length ? " || " : "", p->variable[i]);
  return b.length ? b.text : copy_text("false");
}

/* ", 12": its leading dimension, and where there is a batch how far its matrices are apart. */
static char *strides_text(const struct product *p, enum operand o)
{
  char *ld = text(", %" PRId64, p->call.matrix[o].ld);
  return p->batch ? text("%s, %" PRId64, ld, p->batch->stride[o]) : ld;
}

static enum type type_at(const struct op *op, enum operand o)
{
  return graph->value[value_of(op, o)].type;
}

/* What is behind a function's name: of which type the operands are, and what they make. */
static const char *type_suffix(const struct op *op)
{
  if (type_at(op, A) == F32) return "";
  return type_at(op, C) == F32 ? "_bf16_f32" : "_bf16";
}

/* The call as it is written. An output that is transposed is computed as C^T = B^T A^T. */
struct written {
  enum operand a, b;
  char form[3]; /* "nt": a as it is, b stored transposed */
  int64_t m, n, k;
  bool has_gaps;
  const char *adds;
};

static struct written written(const struct product *p)
{
  const struct gemm *x = &p->call;
  bool swapped = x->matrix[C].transposed;
  enum operand a = swapped ? B : A, b = swapped ? A : B;
  return (struct written){.a = a,
                          .b = b,
                          .form = {x->matrix[a].transposed != swapped ? 't' : 'n',
                                   x->matrix[b].transposed != swapped ? 't' : 'n'},
                          .m = swapped ? x->n->size : x->m->size,
                          .n = swapped ? x->m->size : x->n->size,
                          .k = x->k->size,
                          .has_gaps =
                              !x->matrix[A].tight || !x->matrix[B].tight || !x->matrix[C].tight,
                          .adds = adds_text(p)};
}

static char *call_text(const struct product *p)
{
  struct written w = written(p);
  char *sizes = text("%" PRId64 ", %" PRId64 ", %" PRId64, w.m, w.n, w.k);
  if (p->batch) sizes = text("%s, %" PRId64, sizes, p->batch->size);
  const char *batch = p->batch ? "_batch" : "", *of = type_suffix(p->op);
  if (w.has_gaps || strcmp(w.adds, "false") || (p->batch && *of))
    return text("gemm%s%s('%c', '%c', %s%s, %s%s, %s%s, %s, %s);", batch, of, w.form[0], w.form[1],
                address(p, C), strides_text(p, C), address(p, w.a), strides_text(p, w.a),
                address(p, w.b), strides_text(p, w.b), sizes, w.adds);
  if (p->batch)
    sizes = text("%s, %" PRId64 ", %" PRId64 ", %" PRId64, sizes, p->batch->stride[C],
                 p->batch->stride[w.a], p->batch->stride[w.b]);
  return text("matmul_%s%s%s(%s, %s, %s, %s);", w.form, of, batch, address(p, C), address(p, w.a),
              address(p, w.b), sizes);
}

/* "BIAS_RELU": an enumerator of runtime/cuda_math.h. */
static const char *epilogue_name(const struct product *p, const struct written *w)
{
  const struct epilogue *e = p->then;
  if (e->function == OP_gelu_tanh_back) return e->summed == NONE ? "GELU_BACK" : "GELU_BACK_SUMS";
  if (e->summed != NONE) return e->summed == value_of(p->op, w->a) ? "SUMS_OF_A" : "SUMS_OF_B";
  if (e->function == OP_matmul) return "BIAS";
  const char *function = e->function == OP_relu ? "RELU" : e->kept == NONE ? "GELU" : "GELU_KEPT";
  return text("%s%s", e->bias == NONE ? "" : "BIAS_", function);
}

static char *lower(const char *s)
{
  char *t = copy_text(s);
  for (char *c = t; *c; c++)
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
  return t;
}

/* ", m->w.up.bias, up": the bias, or its gradient, and what gelu is applied to, which lies as the
   result does. */
static char *epilogue_operands(const struct product *p)
{
  const struct epilogue *e = p->then;
  char *bias = text(", %s", e->bias == NONE ? "NULL" : c_name(e->bias));
  if (e->kept == NONE) return bias;
  const char *moved = p->offset[C] ? text(" + %" PRId64, p->offset[C]) : "";
  return text("%s, %s%s", bias, c_name(e->kept), moved);
}

/* ".a = 't', .b = 'n', .m = 256, .n = 64, .k = 128": what the runtime has to know of it, besides
   the operands' addresses. */
static char *fields_text(const struct product *p, const struct written *w)
{
  const struct matrix *x = p->call.matrix;
  enum type of = type_at(p->op, A), makes = type_at(p->op, C);
  struct buffer b = {0};
  put(&b, ".a = '%c', .b = '%c', .m = %" PRId64 ", .n = %" PRId64 ", .k = %" PRId64, w->form[0],
      w->form[1], w->m, w->n, w->k);
  if (of == BF16) put(&b, ", .of = BF16");
  if (makes != of) put(&b, ", .makes = F32");
  if (of == F32 && graph->tf32) put(&b, ", .tf32 = true");
  if (w->has_gaps)
    put(&b, ", .ld_c = %" PRId64 ", .ld_a = %" PRId64 ", .ld_b = %" PRId64, x[C].ld, x[w->a].ld,
        x[w->b].ld);
  if (p->batch)
    put(&b,
        ", .batch = %" PRId64 ", .step_c = %" PRId64 ", .step_a = %" PRId64 ", .step_b = %" PRId64,
        p->batch->size, p->batch->stride[C], p->batch->stride[w->a], p->batch->stride[w->b]);
  if (p->then) put(&b, ", .then = %s", epilogue_name(p, w));
  return b.text;
}

/* "matmul(&product.nt_256x64x128, wq, x, m->w.wq);" */
static char *cuda_call_text(const struct product *p)
{
  struct written w = written(p);
  char *wanted =
      text("%s_%" PRId64 "x%" PRId64 "x%" PRId64 "%s", w.form, w.m, w.n, w.k, type_suffix(p->op));
  if (p->batch) wanted = text("%s_x%" PRId64, wanted, p->batch->size);
  if (p->then) wanted = text("%s_%s", wanted, lower(epilogue_name(p, &w)));
  const char *name = add_product(wanted, fields_text(p, &w));
  char *operands =
      text("&product.%s, %s, %s, %s", name, address(p, C), address(p, w.a), address(p, w.b));
  if (p->then) operands = text("%s%s", operands, epilogue_operands(p));
  if (!strcmp(w.adds, "false")) return text("matmul(%s);", operands);
  return text("matmul_add(%s%s%s);", operands, strcmp(w.adds, "true") ? ", " : "",
              strcmp(w.adds, "true") ? w.adds : "");
}

/* Loops around a call are more than a line, which emit leaves as they are. */
static char *nested_loops(const struct product *p, const char *call)
{
  if (!p->nloop) return copy_text(call);
  struct buffer b = {0};
  int64_t most = 0;
  for (int o = A; o < OPERANDS; o++)
    for (int i = 0; i < p->nloop; i++)
      if (p->loop[i]->stride[o] * p->loop[i]->size > most)
        most = p->loop[i]->stride[o] * p->loop[i]->size;
  for (int i = 0; i < p->nloop; i++) {
    char v = p->variable[i];
    put(&b, "%*sfor (%s %c = 0; %c < %" PRId64 "; %c++)\n", i ? 2 + 2 * i : 0, "",
        counter_type(most), v, v, p->loop[i]->size, v);
  }
  int indent = 2 + 2 * p->nloop;
  put(&b, "%s", wrapped(text("%*s%s", indent, "", call), ", ", text("%*s", indent + 4, "")));
  return b.text;
}

/* Operands are of one type; of bfloat16 they may make float32. */
static void check_types(const struct op *op)
{
  enum type a = type_at(op, A), b = type_at(op, B), c = type_at(op, C);
  for (int o = A; o < C; o++)
    if (!is_floating(type_at(op, o)))
      plan_error(op->line, "matmul: %s is %s; products are of float32 or bfloat16",
                 value_name(op->in[o]), type_name(type_at(op, o)));
  if (a != b)
    plan_error(op->line, "matmul: %s is %s and %s is %s: cast one of them, with x:to(\"%s\")",
               value_name(op->in[A]), type_name(a), value_name(op->in[B]), type_name(b),
               a == BF16 || b == BF16 ? "bfloat16" : "float32");
  if (c != a && !(a == BF16 && c == F32))
    bug("emit", NONE, "matmul: %s of %s", type_name(c), type_name(a));
}

static void check_sizes(const struct product *p)
{
  const struct gemm *c = &p->call;
  const int64_t size[] = {c->m->size,
                          c->n->size,
                          c->k->size,
                          c->matrix[A].ld,
                          c->matrix[B].ld,
                          c->matrix[C].ld,
                          p->batch ? p->batch->size : 1};
  for (size_t i = 0; i < sizeof size / sizeof *size; i++)
    if (size[i] > INT32_MAX)
      plan_error(p->op->line, "matmul: a rank's part has a side of more than %d", INT32_MAX);
}

static bool is_empty(const struct op *op, int rank)
{
  for (int o = A; o < OPERANDS; o++)
    if (!elements(local_shape(value_of(op, o), rank))) return true;
  return false;
}

static void choose(struct product *p, const struct op *op, int rank)
{
  *p = (struct product){.op = op};
  parse_equation(p);
  if (is_empty(op, rank)) return;
  find_runs(p, rank);
  choose_call(p);
  choose_batch(p);
}

double matmul_calls(const struct op *op, int rank)
{
  struct product p;
  choose(&p, op, rank);
  double calls = p.batch ? (double)p.batch->size : 1;
  for (int i = 0; i < p.nloop; i++) calls *= (double)p.loop[i]->size;
  return calls;
}

bool matmul_is_one_call(const struct op *op, int rank)
{
  struct product p;
  if (is_empty(op, rank)) return false;
  choose(&p, op, rank);
  return !p.nloop && !p.call.matrix[C].transposed && p.call.matrix[C].tight;
}

/* What a product of no terms makes: zeros, in its piece alone where it has one. That lies in as
   many blocks, equally far apart, as the dimensions before the one in pieces say; see add_piece. */
static char *zeros_text(const struct op *op, int rank)
{
  struct shape here = local_shape(op->out, rank);
  int64_t stride[MAX_DIMS];
  if (!op->pieces) return zero_text(op->out, rank);
  local_strides(op->out, rank, stride);
  int64_t block = here.size[op->dim] / op->pieces * stride[op->dim];
  if (!graph->value[op->out].apart) block /= group_size(op->group);
  int64_t blocks = elements(here) / op->pieces / block;
  const char *at = c_name(op->out);
  if (op->piece > 0) at = text("%s + %" PRId64, at, op->piece * block);
  if (blocks > 1) at = text("%s + i * %" PRId64, at, block * op->pieces);
  char *zeros = zeros_at_text(at, block * type_bytes(graph->value[op->out].type));
  if (blocks == 1) return zeros;
  return text("for (long i = 0; i < %" PRId64 "; i++) %s", blocks, zeros);
}

char *matmul_text(const struct op *op, int rank)
{
  struct product *p = alloc(sizeof *p);
  check_types(op);
  choose(p, op, rank);
  if (!elements(local_shape(op->out, rank))) return "";
  if (is_empty(op, rank)) return op->nin > 2 ? "" : zeros_text(op, rank);
  check_sizes(p);
  for (int i = 0; i < p->nloop; i++) p->variable[i] = counter(p, p->loop[i]->letter);
  return nested_loops(p, options.cuda ? cuda_call_text(p) : call_text(p));
}

/* Whether cuBLASLt's one call can do what follows. To the rows of the result it does it only where
   they are rows of the call's; an operand is summed over the terms however the result lies. */
static bool takes_epilogue(const struct product *p, const struct epilogue *then)
{
  const struct matrix *result = &p->call.matrix[C];
  bool sums_alone = then->function == OP_matmul && then->summed != NONE;
  return !p->nloop && (!p->batch || p->op->pieces) && result->tight &&
         (!result->transposed || sums_alone);
}

/* epilogue.c lets through what is one call; see there. A sum of no rows is zero. */
char *epilogue_text(const struct op *op, int rank)
{
  const struct op *product = &graph->op[op->body[0]];
  struct epilogue then = epilogue_of(op);
  struct product *p = alloc(sizeof *p);
  check_types(product);
  if (!elements(local_shape(product->out, rank)))
    return then.summed == NONE ? "" : zero_text(then.bias, rank);
  choose(p, product, rank);
  check_sizes(p);
  p->then = &then;
  if (!takes_epilogue(p, &then)) bug("epilogue", op->body[0], "the product is no single call");
  return cuda_call_text(p);
}
