/* matmul.c: a product of two tensors as calls of BLAS, or of cuBLASLt by the runtime's matmul.

   Takes   an einsum of two operands, with a letter at most once in each; the parts that a rank
           holds have no gaps, and their dimensions have the order that assign_dim_order.c chose.
   Leaves  its statement.

   A letter's operands say what it is: in a and the output it is a row of the output (m), in b and
   the output a column (n), in both operands it is summed (k), in all three it is a batch. A letter
   of only one operand is summed, too. Letters that follow each other in every operand that has them
   are folded into one run, with one size and one stride in each operand; letters of size 1 vanish.

   A call of BLAS takes at most one run each of m, of n and of k, and needs stride 1 on one of the
   two sides of every matrix. Of all calls that this allows, tpgen takes the one that does most
   work. The other runs become loops around it, the largest that is not summed a batch. In loops
   that sum, every call but the first adds to the output.

   Operands are float32, or bfloat16, whose products are summed in float32; the output has their
   type, or float32. A bfloat16 output is rounded by each call that adds to it. Operands of float8
   have an output of float32, or of what follows their scales. */
#include "emit/emit.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ the loops */

static bool is_free_variable(const struct product *p, char letter)
{
  char word[] = {letter, 0};
  for (int i = 0; i < p->nloop; i++)
    if (p->variable[i] == letter) return false;
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++)
    if (has_word(c_name(product_value(p->op, o)), word)) return false;
  return true;
}

/* A loop's variable: the run's own letter, if generated functions do not use it; else one that
   the equation lacks; else any. Letters that they do use come first. */
static char product_counter(const struct product *p, char own)
{
  static const char list[] = "ijpqrsbknacdefghouvwxyz";
  if (is_reserved_name((char[]){own, 0}) && strchr(list, own) && is_free_variable(p, own))
    return own;
  for (const char *c = list; *c; c++)
    if (!strchr(p->op->equation, *c) && is_free_variable(p, *c)) return *c;
  for (const char *c = list; *c; c++)
    if (is_free_variable(p, *c)) return *c;
  bug("emit", "matmul %s: no letter is left to count with", p->op->equation);
}

/* ------------------------------------------------------------------------------------- the text */

/* "a + b * 12 + i" */
static char *product_address(const struct product *p, enum gemm_operand o)
{
  struct buffer b = {0};
  /* The operand's name; of members of a struct side by side, that of all of them. */
  int value = o == GEMM_C && p->then ? p->then->result : product_value(p->op, o);
  const char *name = c_name(value), *at = p->joined ? strchr(p->letters[o], p->joined) : NULL;
  if (at && graph->value[value].role != ACTIVATION) {
    struct shape all = local_shape(value, named_rank);
    all.size[at - p->letters[o]] = p->size;
    name = member_run(value, name, elements(all));
  }
  put(&b, "%s", name);
  for (int i = 0; i < p->nloop; i++) {
    int64_t stride = p->loop[i]->stride[o];
    if (stride == 1) put(&b, " + %c", p->variable[i]);
    if (stride > 1) put(&b, " + %c * %" PRId64, p->variable[i], stride);
  }
  if (p->offset[o]) put(&b, " + %" PRId64, p->offset[o]);
  return b.text;
}

/* Whether the call adds to the output: "i > 0 || j > 0", "false"; "true" if the output is the
   operation's third input. */
static char *adds_text(const struct product *p)
{
  struct buffer b = {0};
  if (p->op->nin > 2) return copy_text("true");
  for (int i = 0; i < p->nloop; i++)
    if (is_summed(p->loop[i])) put(&b, "%s%c > 0", b.length ? " || " : "", p->variable[i]);
  return b.length ? b.text : copy_text("false");
}

/* ", 12": its leading dimension and, for a batch, the stride between its matrices. */
static char *product_strides(const struct product *p, enum gemm_operand o)
{
  char *ld = text(", %" PRId64, p->call.matrix[o].ld);
  return p->batch ? text("%s, %" PRId64, ld, p->batch->stride[o]) : ld;
}

/* The suffix of a function's name: the types of operands and result. */
static const char *type_suffix(const struct op *op)
{
  if (type_at(op, GEMM_A) == F32) return "";
  if (type_bytes(type_at(op, GEMM_A)) == 1) return "_float8";
  return type_at(op, GEMM_C) == F32 ? "_bf16_f32" : "_bf16";
}

/* The text of the call. A transposed output is computed as C^T = B^T A^T. */
struct written {
  enum gemm_operand a, b;
  char form[3]; /* "nt": a as it is, b transposed */
  int64_t m, n, k;
  bool has_gaps;
  const char *adds;
};

static struct written written(const struct product *p)
{
  const struct gemm *x = &p->call;
  bool swapped = x->matrix[GEMM_C].transposed;
  enum gemm_operand a = swapped ? GEMM_B : GEMM_A, b = swapped ? GEMM_A : GEMM_B;
  return (struct written){.a = a,
                          .b = b,
                          .form = {x->matrix[a].transposed != swapped ? 't' : 'n',
                                   x->matrix[b].transposed != swapped ? 't' : 'n'},
                          .m = swapped ? x->n->size : x->m->size,
                          .n = swapped ? x->m->size : x->n->size,
                          .k = x->k->size,
                          .has_gaps = !x->matrix[GEMM_A].tight || !x->matrix[GEMM_B].tight ||
                                      !x->matrix[GEMM_C].tight,
                          .adds = adds_text(p)};
}

static char *product_call_text(const struct product *p)
{
  struct written w = written(p);
  char *sizes = text(".m = %" PRId64 ", .n = %" PRId64 ", .k = %" PRId64, w.m, w.n, w.k);
  if (p->batch) sizes = text("%s, .batch = %" PRId64, sizes, p->batch->size);
  const char *batch = p->batch ? "_batch" : "", *of = type_suffix(p->op);
  if (w.has_gaps || strcmp(w.adds, "false") || (p->batch && *of))
    return text("gemm%s%s('%c', '%c', %s%s, %s%s, %s%s, %s, .add = %s);", batch, of, w.form[0],
                w.form[1], product_address(p, GEMM_C), product_strides(p, GEMM_C),
                product_address(p, w.a), product_strides(p, w.a), product_address(p, w.b),
                product_strides(p, w.b), sizes, w.adds);
  if (p->batch)
    sizes = text("%s, .step_c = %" PRId64 ", .step_a = %" PRId64 ", .step_b = %" PRId64, sizes,
                 p->batch->stride[GEMM_C], p->batch->stride[w.a], p->batch->stride[w.b]);
  return text("matmul_%s%s%s(%s, %s, %s, %s);", w.form, of, batch, product_address(p, GEMM_C),
              product_address(p, w.a), product_address(p, w.b), sizes);
}

/* "BIAS_RELU": an enumerator of runtime/cuda/kernels/math.h. */
static const char *epilogue_name(const struct product *p, const struct written *w)
{
  const struct epilogue *e = p->then;
  if (e->function == OP_mul) return "SCALED";
  if (e->function == OP_gelu_tanh_back) return e->summed == NONE ? "GELU_BACK" : "GELU_BACK_SUMS";
  if (e->summed != NONE) return e->summed == product_value(p->op, w->a) ? "SUMS_OF_A" : "SUMS_OF_B";
  if (e->function == OP_matmul) return "BIAS";
  const char *function = e->function == OP_relu ? "RELU" : e->kept == NONE ? "GELU" : "GELU_KEPT";
  return text("%s%s", e->bias == NONE ? "" : "BIAS_", function);
}

/* ".a = 't', .b = 'n', .m = 256, .n = 64, .k = 128": the fields that the runtime needs beyond the
   operands' addresses. */
static char *product_fields(const struct product *p, const struct written *w)
{
  const struct matrix *x = p->call.matrix;
  enum type of = type_at(p->op, w->a), b_of = type_at(p->op, w->b);
  enum type makes = p->then ? graph->value[p->then->result].type : type_at(p->op, GEMM_C);
  static const char *const runtime_name[] = {
      [BF16] = "BF16", [E4M3] = "E4M3", [E5M2] = "E5M2", [F32] = "F32"};
  struct buffer b = {0};
  put(&b, ".a = '%c', .b = '%c', .m = %" PRId64 ", .n = %" PRId64 ", .k = %" PRId64, w->form[0],
      w->form[1], w->m, w->n, w->k);
  if (of != F32) put(&b, ", .of = %s", runtime_name[of]);
  if (b_of != of) put(&b, ", .b_of = %s", runtime_name[b_of]);
  if (makes != of) put(&b, ", .makes = %s", runtime_name[makes]);
  if (of == F32 && plan_options->tf32) put(&b, ", .tf32 = true");
  if (w->has_gaps)
    put(&b, ", .ld_c = %" PRId64 ", .ld_a = %" PRId64 ", .ld_b = %" PRId64, x[GEMM_C].ld,
        x[w->a].ld, x[w->b].ld);
  if (p->batch)
    put(&b,
        ", .batch = %" PRId64 ", .step_c = %" PRId64 ", .step_a = %" PRId64 ", .step_b = %" PRId64,
        p->batch->size, p->batch->stride[GEMM_C], p->batch->stride[w->a], p->batch->stride[w->b]);
  if (p->then) put(&b, ", .then = %s", epilogue_name(p, w));
  return b.text;
}

/* "matmul(&product.nt_256x64x128, wq, x, m->w.wq);" */
static char *table_call_text(const struct product *p)
{
  struct written w = written(p);
  char *preferred =
      text("%s_%" PRId64 "x%" PRId64 "x%" PRId64 "%s", w.form, w.m, w.n, w.k, type_suffix(p->op));
  if (p->batch) preferred = text("%s_x%" PRId64, preferred, p->batch->size);
  if (p->then) {
    const char *s = epilogue_name(p, &w);
    char *t = copy_text(s);
    for (char *c = t; *c; c++)
      if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    preferred = text("%s_%s", preferred, t);
  }
  const char *name = add_product(preferred, product_fields(p, &w));
  char *operands = text("&product.%s, %s, %s, %s", name, product_address(p, GEMM_C),
                        product_address(p, w.a), product_address(p, w.b));
  if (p->then && p->then->function == OP_mul)
    return text("multiply(%s, %s, %s, %s);", operands, w.adds,
                c_name(p->then->scale[w.a == GEMM_B]), c_name(p->then->scale[w.a == GEMM_A]));
  if (p->then) {
    /* ", m->w.up.bias, up": the bias, or its gradient, and gelu's input, which has the layout of
       the result. */
    const struct epilogue *e = p->then;
    char *bias = text(", %s", e->bias == NONE ? "NULL" : c_name(e->bias));
    char *epilogue_operands = bias;
    if (e->kept != NONE) {
      const char *moved = p->offset[GEMM_C] ? text(" + %" PRId64, p->offset[GEMM_C]) : "";
      epilogue_operands = text("%s, %s%s", bias, c_name(e->kept), moved);
    }
    operands = text("%s%s", operands, epilogue_operands);
  }
  if (!strcmp(w.adds, "false")) return text("matmul(%s);", operands);
  return text("matmul_add(%s%s%s);", operands, strcmp(w.adds, "true") ? ", " : "",
              strcmp(w.adds, "true") ? w.adds : "");
}

/* Loops around a call are several lines, which emit does not break. */
static char *nested_loops(const struct product *p, const char *call)
{
  if (!p->nloop) return copy_text(call);
  struct buffer b = {0};
  int64_t most = 0;
  for (int o = GEMM_A; o < GEMM_OPERANDS; o++)
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

/* The copy of the value that the product adds to, where that is in another place; or "". */
static char *moved_text(const struct op *op, int rank)
{
  struct op copy = {.nin = 1, .in = {op->nin > 2 ? op->in[2] : NONE}, .out = op->out};
  return op->nin > 2 && op->in[2] != op->out ? same_bytes_text(&copy, rank) : "";
}

char *matmul_text(const struct op *op, int rank)
{
  struct product one = {0}, *p = &one;
  check_types(op);
  choose_product(p, op, rank);
  if (!elements(local_shape(op->out, rank))) return "";
  if (is_empty_product(op, rank)) {
    if (op->nin > 2) return moved_text(op, rank);
    /* The result of a product without terms: zeros; if it has a chunk, zeros only there. The chunk
       is a number of blocks, equally far apart: the number follows from the dimensions before the
       chunked one; see add_piece. */
    struct shape here = local_shape(op->out, rank);
    int64_t stride[MAX_DIMS];
    if (!op->pieces) return zero_text(op->out, rank);
    local_strides(op->out, rank, stride);
    int64_t block = here.size[op->piece_dim] / op->pieces * stride[op->piece_dim];
    if (!graph->value[op->out].is_separate) block /= group_size(op->piece_group);
    int64_t blocks = elements(here) / op->pieces / block;
    const char *at = c_name(op->out);
    if (op->piece > 0) at = text("%s + %" PRId64, at, op->piece * block);
    if (blocks > 1) at = text("%s + i * %" PRId64, at, block * op->pieces);
    char *zeros = zeros_at_text(at, block * type_bytes(graph->value[op->out].type));
    if (blocks == 1) return zeros;
    return text("for (long i = 0; i < %" PRId64 "; i++) %s", blocks, zeros);
  }
  check_sizes(p);
  for (int i = 0; i < p->nloop; i++) p->variable[i] = product_counter(p, p->loop[i]->letter);
  char *moved = moved_text(op, rank);
  char *call = nested_loops(p, target->product_table ? table_call_text(p) : product_call_text(p));
  return *moved ? text("%s\n  %s", moved, call) : call;
}

char *products_text(const struct op *op, int rank)
{
  struct product one = {0}, *p = &one;
  struct op first = {0};
  choose_products(p, op, &first, rank);
  check_types(&first);
  check_sizes(p);
  for (int i = 0; i < p->nloop; i++) p->variable[i] = product_counter(p, p->loop[i]->letter);
  return nested_loops(p, target->product_table ? table_call_text(p) : product_call_text(p));
}

/* epilogue.c admits only one call; see there. A sum of no rows is zero. */
char *epilogue_text(const struct op *op, int rank)
{
  const struct op *product = &graph->op[op->body[0]];
  struct epilogue then = epilogue_of(op);
  struct product one = {0}, *p = &one;
  check_types(product);
  if (!elements(local_shape(product->out, rank)))
    return then.summed == NONE ? "" : zero_text(then.bias, rank);
  choose_product(p, product, rank);
  check_sizes(p);
  p->then = &then;
  /* Whether one call of cuBLASLt can do the epilogue. It works on rows of the result only if they
     are rows of the call; an operand is summed over the terms whatever the result's layout. */
  const struct matrix *result = &p->call.matrix[GEMM_C];
  bool sums_alone = then.function == OP_matmul && then.summed != NONE;
  for (int i = 0; i < p->nloop; i++) p->variable[i] = product_counter(p, p->loop[i]->letter);
  if (then.function == OP_mul) return nested_loops(p, table_call_text(p));
  if (!(!p->nloop && (!p->batch || p->op->pieces) && result->tight &&
        (!result->transposed || sums_alone)))
    bug_at("epilogue", op->body[0], "the product is not a single call");
  return table_call_text(p);
}
