/* element.c: the elements of a kernel's operations as expressions in C, and the statements that
   make them. It decides which elements get a variable, which are put into the expression that reads
   them, and which are stored.

   Takes   a kernel whose loops are known; the expressions of the table of operators.
   Leaves  an expression for each operation, in terms of the loops' variables. Numbers that depend
           on the rank, or the step, become parameters.

   Types are C's: if an operation computes in float, whole numbers are converted to float; a value
   that is stored in a narrower type is converted to that. A bfloat16 is a float in all arithmetic,
   and is rounded wherever an operation makes one, stored or not. */
#include "kernel/kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- numbers */

/* Like float_to_bf16 of runtime/base/elements.h. */
static double rounded_to_bf16(double x)
{
  float f = (float)x;
  uint32_t bits;
  if (isnan(x)) return x;
  memcpy(&bits, &f, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static const struct expr *typed_number(double x, enum type type)
{
  if (is_floating(type)) return word_expr(number_text(x));
  return type == BOOL ? word_expr(x != 0 ? "1" : "0") : int_expr((int64_t)x);
}

static const struct expr *call_with(const char *function, const struct expr *of)
{
  return call_expr(function, &of, 1);
}

/* A float as a bfloat16; one that was loaded as bfloat16 and not computed with is left as it is. */
static const struct expr *rounded(const struct expr *e)
{
  if (e->kind == CALL_EXPR && !strcmp(e->word, "bf16_to_float")) return e->all[0];
  return call_with("float_to_bf16", e);
}

static const struct expr *converted(const struct expr *e, enum type from, enum type to)
{
  if (from == BF16 && to == BF16) return e;
  if (from == BF16) return converted(call_with("bf16_to_float", e), F32, to);
  if (to == BF16) return rounded(converted(e, from, F32));
  if (to == E4M3 || to == E5M2)
    return call_with(text("float_to_%s", type_name(to)), converted(e, from, F32));
  if (to == BOOL && from != BOOL) return expr("%e != 0", e);
  bool narrower = (is_floating(from) && !is_floating(to)) || (from == I64 && to == I32) ||
                  (is_floating(to) && (from == I32 || from == I64));
  return narrower ? prefix_expr(text("(%s)", c_type(to)), e) : e;
}

/* -------------------------------------------------------------- what an operator's row computes */

/* An operation's expression under construction. */
struct writing {
  struct kernel_builder *k;
  const struct op *op;
  struct letters l;
  const struct expr *row; /* of the table of operators */
  enum type type;         /* in which it computes */
  struct code *before;    /* gets the statements that must come first */
};

static bool is_row_input(const struct expr *e, int i)
{
  return e->word[0] == '$' && e->word[1] == 'a' + i && !e->word[2];
}

/* Whether the expression computes with input i's element: it is no index, and more than its truth
   value is used. */
static bool counts_in(const struct expr *e, int i)
{
  if (is_row_input(e, i)) return true;
  if (*e->word == '$')
    return false; /* of another input: what is between its brackets is an index */
  bool compares_index = is_sign(e, "==") && isupper((unsigned char)e->at[0]->word[1]);
  for (int k = 0; k < e->n; k++) {
    bool is_truth = is_sign(e, "?") && !k && !e->at[0]->n;
    if (!is_truth && !(compares_index && k) && counts_in(e->all[k], i)) return true;
  }
  return false;
}

static bool counts(const struct op *op, const struct expr *row, int i)
{
  if (op->kind == OP_logical_and || op->kind == OP_logical_or || op->kind == OP_logical_not)
    return false;
  return counts_in(row, i);
}

/* The function for "$random" and the like, or NULL. */
static const char *random_function(const char *word)
{
  static const char *const drawn[][2] = {
      {"$random", "random_at"}, {"$uniform", "uniform_at"}, {"$normal", "normal_at"}};
  for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
    if (!strcmp(word, drawn[i][0])) return drawn[i][1];
  return NULL;
}

/* "expf($a)", "0.5f" */
static bool is_float_row(const struct expr *e)
{
  for (const struct element_function *f = element_function; f->name && e->kind == CALL_EXPR; f++)
    if (!f->whole && !strcmp(e->word, f->name)) return true;
  if (e->kind == NUMBER_EXPR && e->word[strlen(e->word) - 1] == 'f') return true;
  if (random_function(e->word)) return true;
  for (int i = 0; i < e->n; i++)
    if (is_float_row(e->all[i])) return true;
  return false;
}

static bool has_sign(const struct expr *e)
{
  bool computes = e->kind == SIGN_EXPR || e->kind == PREFIX_EXPR;
  if (computes && !e->word[1] && strchr("+-*/", *e->word)) return true;
  for (int i = 0; i < e->n; i++)
    if (has_sign(e->all[i])) return true;
  return false;
}

static bool is_letter_row(const struct op *op, const struct expr *row)
{
  return row->word[0] == '$' && names_letter(op, row->word + 1) && !row->word[2];
}

static enum type type_of_computing(const struct op *op, const struct expr *row)
{
  bool letter = is_letter_row(op, row), decides = rule_type(op, 0) == BOOL;
  enum type type = letter ? I32 : BOOL, out = graph->value[op->out].type;
  if (is_float_row(row) || (expr_names(row, "$s") && op->scalar != floor(op->scalar))) return F32;
  if (is_floating(out) && !decides && !letter) return F32;
  for (int i = 0; i < op->nin; i++) {
    enum type in = graph->value[op->in[i]].type;
    if (!counts(op, row, i)) continue;
    if (is_floating(in)) return F32;
    if (in == I64 || (in == I32 && type == BOOL)) type = in;
  }
  return op->nin || letter ? type : out;
}

/* Whether the index counts from the beginning of the whole tensor. */
static bool has_first(const struct expr *e)
{
  if (e->kind == NAME_EXPR && !strncmp(e->word, "first", 5)) return true;
  for (int i = 0; i < e->n; i++)
    if (has_first(e->all[i])) return true;
  return false;
}

/* ------------------------------------------------------------------------------------- operands */

/* The number that input i is: it is not in memory. */
static const struct expr *literal(const struct writing *w, int i)
{
  const struct value *v = &graph->value[w->op->in[i]];
  double number = graph->op[v->op].scalar;
  if (v->type == BF16) number = rounded_to_bf16(number);
  return typed_number(number, counts(w->op, w->row, i) ? w->type : v->type);
}

/* Input i's element, converted to the type of the computation. */
static const struct expr *typed_element(const struct writing *w, int i, const struct expr *e)
{
  enum type type = graph->value[w->op->in[i]].type;
  if (!counts(w->op, w->row, i))
    return is_floating(type) ? converted(converted(e, type, F32), F32, BOOL) : e;
  return is_floating(w->type) ? converted(e, type, F32) : e;
}

/* Input i's element; in dimension `dim` at the index `at`, unless dim is NONE. */
static const struct expr *input_element(const struct writing *w, int i, int dim,
                                        const struct expr *at)
{
  int value = w->op->in[i];
  const struct value *v = &graph->value[value];
  const struct expr *e = temporary_of(w->k, value);
  if (!e && !v->stored) return literal(w, i);
  if (!e && !elements(local_shape(value, w->k->rank))) {
    e = word_expr("0");
    if (v->type == BF16) return e;
  } else if (!e) {
    struct operand operand;
    find_operand(w->op, &w->l, i, w->k->rank, &operand);
    e = dim == NONE ? vector_element(w->k, value, &operand, false) : NULL;
    if (!e)
      e = index_expr(word_expr(argument_name(w->k, value)),
                     index_of(&w->k->loops, &operand, dim, at));
  }
  return typed_element(w, i, e);
}

const struct expr *output_element(struct kernel_builder *k, const struct op *op)
{
  struct letters l;
  struct operand operand;
  op_letters(op, &l);
  find_operand(op, &l, op->nin, k->rank, &operand);
  const struct expr *element = vector_element(k, op->out, &operand, true);
  if (element) return element;
  return index_expr(word_expr(argument_name(k, op->out)),
                    index_of(&k->loops, &operand, NONE, NULL));
}

/* The index of a letter of the space in the whole tensor. */
static const struct expr *letter_index(const struct writing *w, char name)
{
  int value = space_of(w->op), dim = space_dimension(w->op, &w->l, name);
  const struct expr *here = variable_of(&w->k->loops, dim);
  if (dim == NONE || !is_cut(value, dim)) return here;
  const struct expr *first =
      word_expr(add_extra(w->k, "long", "first_here", first_text(value, dim)));
  return is_zero_expr(here) ? first : plus_expr(first, "+", here);
}

static const struct expr *random_number(const struct writing *w, const char *function)
{
  int64_t stream = number_of(w->op, "stream"), step = w->op->stream_growth;
  char *number = text("%" PRId64, stream);
  if (step) {
    char *start = stream ? text("%s + ", number) : "";
    number = step == 1 ? text("%sl", start) : text("%s%" PRId64 " * l", start, step);
  }
  const char *name = add_extra(w->k, "struct random_stream", "draws",
                               text("stream_of(program->seed, %s, t)", number));
  struct operand whole;
  find_operand(w->op, &w->l, w->op->nin, w->k->rank, &whole);
  struct shape shape = graph->value[w->op->out].shape;
  if (shape.ndim) whole.stride[shape.ndim - 1] = 1;
  for (int d = shape.ndim - 1; d > 0; d--) whole.stride[d - 1] = whole.stride[d] * shape.size[d];
  const struct expr *index = index_of(&w->k->loops, &whole, NONE, NULL);
  const char *first = flat_first_text(w->op->out);
  if (strcmp(first, "0"))
    index = plus_expr(word_expr(add_extra(w->k, "long", "first", first)), "+", index);
  return expr(text("%s(%%s, %%e)", function), name, index);
}

/* --------------------------------------------------------------------------- `$a(i)`: elsewhere */

/* An index in the whole tensor, and its bounds. */
struct index {
  const struct expr *e;
  int64_t low, high;
  bool data; /* an element of a tensor: any number */
  enum type type;
};

static struct index constant_index(int64_t x)
{
  return (struct index){int_expr(x), x, x, false, I32};
}

static bool is_constant(struct index i, int64_t x)
{
  return i.low == x && i.high == x;
}

static struct index sum(struct index a, struct index b)
{
  if (is_constant(a, 0)) return b;
  if (is_constant(b, 0)) return a;
  int64_t low = a.low + b.low, high = a.high + b.high;
  if (low == high) return constant_index(low);
  if (a.low == a.high) return sum(b, a);
  bool minus = b.high < 0 && b.low == b.high;
  const struct expr *e = minus ? plus_expr(a.e, "-", int_expr(-b.low)) : plus_expr(a.e, "+", b.e);
  return (struct index){e, low, high, a.data || b.data, a.type};
}

/* times or by a constant */
static struct index scaled(struct index a, const char *sign, int64_t by)
{
  if (by == 1) return a;
  int64_t low = *sign == '*' ? a.low * by : a.low / by,
          high = *sign == '*' ? a.high * by : a.high / by;
  if (low == high) return constant_index(low);
  return (struct index){times_expr(a.e, sign, by), low, high, a.data, a.type};
}

/* "$E", "$start", "$b", "2", and sums of these, times or by numbers */
static struct index index_in_row(struct writing *w, const struct expr *e)
{
  if (e->kind == SIGN_EXPR) {
    struct index a = index_in_row(w, e->at[0]), b = index_in_row(w, e->at[1]);
    if (*e->word == '*' || *e->word == '/') return scaled(a, e->word, b.low);
    return sum(a, *e->word == '-' ? scaled(b, "*", -1) : b);
  }
  const char *name = e->word + 1;
  if (*e->word != '$') return constant_index(strtoll(e->word, NULL, 10));
  if (names_letter(w->op, name)) {
    int dim = space_dimension(w->op, &w->l, *name);
    int64_t size = dim == NONE ? 1 : graph->value[space_of(w->op)].shape.size[dim];
    struct index i = {letter_index(w, *name), 0, size - 1, false, I32};
    if (has_first(i.e)) i.type = I64;
    return i;
  }
  if (name[1]) return constant_index(number_of(w->op, name));
  int i = *name - 'a';
  return (struct index){input_element(w, i, NONE, NULL), INT32_MIN, INT32_MAX, true,
                        graph->value[w->op->in[i]].type};
}

/* Whether input i's elements are neighbours throughout a vector, at this index of another
   dimension. */
static bool is_read_at_once(const struct writing *w, int i, int dim, const struct expr *index)
{
  const struct loops *loops = &w->k->loops;
  struct operand operand;
  if (!loops->inner || expr_names(index, innermost_variable(loops)) || expr_names(index, "v"))
    return false; /* another in each of its elements */
  const struct kernel_builder *k = w->k;
  for (int t = k->vectors.temporaries; t < k->ntemporary; t++)
    if (has_part_expr(index, k->temporary[t].element))
      return false; /* it is valid only in their loop */
  find_operand(w->op, &w->l, i, w->k->rank, &operand);
  return operand.stride[dim] != 1 && reads_vector_at(w->k, w->op->in[i], &operand, dim);
}

/* Input i's element of a vector that begins at this index of one dimension. */
static const struct expr *vector_at(const struct writing *w, int i, int dim, const struct expr *at,
                                    const struct expr *where)
{
  struct operand operand;
  find_operand(w->op, &w->l, i, w->k->rank, &operand);
  return typed_element(w, i, indexed_vector(w->k, w->op->in[i], &operand, dim, at, where));
}

/* Input i's element at another index of one dimension: 0 if there is no such index, or another rank
   has it. The rotations read an index only if it is in range. */
static const struct expr *indexed_element(struct writing *w, int i, const struct expr *of)
{
  int value = w->op->in[i], dim = indexed_dimension(w->op, i);
  int64_t here = local_shape(value, w->k->rank).size[dim];
  if (!here) return word_expr("0");
  struct index index = index_in_row(w, of);
  bool cut = is_cut(value, dim), anywhere = index.data || cut;
  if (cut) {
    const char *first = add_extra(w->k, "long", "first_here", first_text(value, dim));
    index.e = plus_expr(index.e, "-", word_expr(first));
    index.type = I64;
  }
  bool below = anywhere || index.low < 0, above = anywhere || index.high >= here;
  if (w->op->kind == OP_rotary || w->op->kind == OP_rotary_pairs) below = above = false;
  if (!below && !above) return input_element(w, i, dim, index.e);
  const char *type = index.type == I64 ? "long" : w->k->loops.type;
  const char *name = new_temporary(w->k, NONE, "at");
  const struct expr *at = word_expr(name);
  bool of_all = is_read_at_once(w, i, dim, index.e);
  add_declaration(of_all ? w->k->vectors.lead : w->before, text("const %s", type), name, index.e);
  const struct expr *low = expr("%e >= 0", at), *high = expr("%e < %ld", at, here);
  const struct expr *where = !below ? high : !above ? low : sign_expr("&&", low, high);
  if (of_all) return vector_at(w, i, dim, at, where);
  return choice_expr(where, input_element(w, i, dim, at), word_expr("0"));
}

/* ---------------------------------------------------------------------------- whole expressions */

static const struct expr *scalar(const struct writing *w)
{
  bool factor = w->op->kind == OP_scale || w->op->kind == OP_expand;
  if (factor && is_floating(w->type)) return float_factor(w->op->scalar);
  return typed_number(w->op->scalar, w->type == BOOL ? I32 : w->type);
}

static const struct expr *filled_row(struct writing *w, const struct expr *e);

static bool writes_bf16(const struct kernel_builder *k)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct value *v = &graph->value[body_op(k->group, n)->out];
    if (v->stored && v->type == BF16) return true;
  }
  return false;
}

/* An element that is asked for at one index of many, "$D == $b ? $a : 0". It is read before: a
   compiler does not vectorise a loop that reads the same place only sometimes. In float32 that
   would change sums of exponentials in the last bit. */
static const struct expr *seldom_asked(struct writing *w, const struct expr *e)
{
  const struct expr *when = e->at[0];
  bool at_index = e->n == 3 && is_sign(e, "?") && is_sign(when, "==") &&
                  *when->at[0]->word == '$' && isupper((unsigned char)when->at[0]->word[1]);
  if (!at_index || !is_row_input(e->at[1], 0) || !writes_bf16(w->k)) return NULL;
  const char *name = new_temporary(w->k, NONE, "there");
  add_declaration(w->before, text("const %s", c_type(w->type)), name, filled_row(w, e->at[1]));
  return choice_expr(filled_row(w, when), word_expr(name), filled_row(w, e->at[2]));
}

/* The row's expression with the values of its names. */
static const struct expr *filled_row(struct writing *w, const struct expr *e)
{
  enum { MOST = 4 };
  const struct expr *at[MOST];
  if (*e->word == '$') {
    if (e->n) return indexed_element(w, e->word[1] - 'a', e->at[0]);
    const char *name = e->word + 1;
    if (names_letter(w->op, name)) return letter_index(w, *name);
    if (!strcmp(name, "s")) return scalar(w);
    if (random_function(e->word)) return random_number(w, random_function(e->word));
    if (!strcmp(name, "now")) return word_expr(add_extra(w->k, "step_number", "now", "t"));
    if (!strcmp(name, "noted"))
      return word_expr(add_extra(w->k, "unsigned long long *", "noted",
                                 text("&m->noted[%" PRId64 "]", number_of(w->op, "use"))));
    return name[1] ? int_expr(number_of(w->op, name)) : input_element(w, *name - 'a', NONE, NULL);
  }
  if (is_sign(e, "*") && !strcmp(e->at[0]->word, "$s")) { /* 1 * x, s * 1 */
    if (w->op->scalar == 1) return filled_row(w, e->at[1]);
    if (is_row_input(e->at[1], 0) && is_floating(w->type)) {
      /* Whether input i is the number 1, so that the product is the other factor. */
      const struct value *v = &graph->value[w->op->in[0]];
      bool is_one = !v->stored && v->op != NONE && graph->op[v->op].kind == OP_full &&
                    graph->op[v->op].scalar == 1;
      if (is_one) return scalar(w);
    }
  }
  if (e->n > MOST)
    bug_at("emit", (int)(w->op - graph->op), "its row has a call of %d operands", e->n);
  const struct expr *seldom = seldom_asked(w, e);
  if (seldom) return seldom;
  for (int i = 0; i < e->n; i++) at[i] = filled_row(w, e->all[i]);
  return expr_with(e, at);
}

/* A vector is in one half of a row: x cos - y sin in the first half, with y from the second, and x
   cos + y sin in the second, with y from the first. */
static const struct expr *rotary_element(struct writing *w)
{
  struct loops *loops = &w->k->loops;
  int64_t half = number_of(w->op, "half");
  struct operand operand[3];
  int dim[3];
  if (!loops->inner || half % w->k->vectors.width) return NULL;
  for (int i = 0; i < 3; i++) {
    find_operand(w->op, &w->l, i, w->k->rank, &operand[i]);
    dim[i] = i ? indexed_dimension(w->op, i) : operand[0].ndim - 1;
    if (operand[i].stride[dim[i]] != 1) return NULL;
    if (i && !reads_vector_at(w->k, w->op->in[i], &operand[i], dim[i])) return NULL;
  }
  if (stride_along(loops, &operand[0], innermost_loop(loops)) != 1) return NULL;
  const char *d = innermost_variable(loops), *first = new_temporary(w->k, NONE, "is_first");
  const struct expr *x = input_element(w, 0, NONE, NULL);
  const struct expr *other = expr("%s ? %s + %ld : %s - %ld", first, d, half, d, half);
  const struct expr *angle = expr("%s ? %s : %s - %ld", first, d, d, half);
  add_declaration(w->k->vectors.lead, "const bool", first, expr("%s < %ld", d, half));
  const struct expr *y = vector_at(w, 0, dim[0], other, NULL);
  const struct expr *c = vector_at(w, 1, dim[1], angle, NULL);
  const struct expr *s = vector_at(w, 2, dim[2], angle, NULL);
  return expr("%s ? %e * %e - %e * %e : %e * %e + %e * %e", first, x, c, y, s, x, c, y, s);
}

const struct expr *element_expr(struct code *before, struct kernel_builder *k, const struct op *op)
{
  struct writing w = {.k = k, .op = op, .row = row_expr(op->kind), .before = before};
  w.type = type_of_computing(op, w.row);
  op_letters(op, &w.l);
  const struct expr *e = op->kind == OP_rotary ? rotary_element(&w) : NULL;
  if (e) return converted(e, F32, graph->value[op->out].type);
  e = filled_row(&w, w.row);
  if (is_reduce(op->kind)) return e;
  /* The type of the expression in C. */
  enum type type_of_written = BOOL;
  if (rule_type(w.op, 0) != BOOL) {
    if (is_letter_row(w.op, w.row)) {
      type_of_written = has_first(e) || !strcmp(w.k->loops.type, "long") ? I64 : I32;
    } else {
      bool computes = w.op->kind != OP_expand && has_sign(w.row) && !reads_by_index(w.op, 0);
      type_of_written = w.type == BOOL && computes ? I32 : w.type;
    }
  }
  return converted(e, type_of_written, graph->value[op->out].type);
}

/* ----------------------------------------------------------------------------------- statements */

static bool reads_in_kernel(const struct op *op, int value)
{
  return lists_number(op->in, op->nin, value);
}

/* Where rows are empty nothing reads the values that only their elements need. */
bool is_read_by_rows(const struct kernel_builder *k, int value)
{
  bool empty = !row_elements(&k->loops), live[MOST_IN_KERNEL] = {false};
  for (int n = k->group->nbody; n-- > 0;) {
    const struct op *op = &graph->op[k->group->body[n]];
    live[n] = !empty ||
              (k->stages.task[n].of_row && (is_reduce(op->kind) || graph->value[op->out].stored));
    for (int r = n + 1; r < k->group->nbody && !live[n]; r++)
      live[n] = k->stages.task[n].of_row && live[r] &&
                reads_in_kernel(&graph->op[k->group->body[r]], op->out);
    if (live[n] && reads_in_kernel(op, value)) return true;
  }
  return false;
}

/* Whether one of the operations that are made with it reads it. */
static bool is_read(const struct kernel_builder *k, int value, const bool *made)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (made[n] && reads_in_kernel(&graph->op[k->group->body[n]], value)) return true;
  return false;
}

/* The number of times that the operation's expression has the value's element; at another index it
   counts twice. */
static int times_asked(const struct op *op, const struct expr *e, int value)
{
  int i = e->word[1] - 'a', times = 0;
  bool input = *e->word == '$' && e->word[1] && !e->word[2] && i >= 0 && i < op->nin;
  if (input && op->in[i] == value) times = e->n ? 2 : 1;
  for (int k = 0; k < e->n; k++) times += times_asked(op, e->all[k], value);
  return times;
}

/* The number of signs in the expression, without those of indices and those that join conditions.
 */
static int signs(const struct expr *e)
{
  bool joins = is_sign(e, "&&") || is_sign(e, "||");
  int n = e->kind == SIGN_EXPR && !joins ? e->n - 1 : 0;
  for (int i = 0; i < (e->kind == INDEX_EXPR ? 1 : e->n); i++) n += signs(e->all[i]);
  return n;
}

/* Whether body[n]'s element is put, without a name, into the one expression that reads it: it is
   short and its operands are still valid there. */
static bool is_read_in_place(const struct kernel_builder *k, int n, const bool *made,
                             const struct expr *element)
{
  enum { MOST_SIGNS = 4, LONGEST = 100 };
  const struct op *op = &graph->op[k->group->body[n]];
  bool one_element = kept_outside(&k->loops) == k->loops.n; /* all stages share what is made */
  bool of_row = k->stages.task[n].of_row, everywhere = of_row || one_element;
  int reader = NONE;
  if (graph->value[op->out].type != F32 || graph->value[op->out].stored) return false;
  if (signs(element) > MOST_SIGNS || strlen(expr_text(element)) > LONGEST) return false;
  for (int r = n + 1; r < k->group->nbody; r++) {
    if ((!made[r] && !everywhere) || !reads_in_kernel(&graph->op[k->group->body[r]], op->out))
      continue;
    if (reader != NONE || !made[r] || k->stages.task[r].of_row != of_row) return false;
    reader = r;
  }
  const struct op *read_by = &graph->op[k->group->body[reader == NONE ? n : reader]];
  if (reader == NONE || times_asked(read_by, row_expr(read_by->kind), op->out) != 1) return false;
  bool reduces = is_reduce(read_by->kind);
  if (reduces && of_row) return false; /* it comes after the row */
  if (reduces) reader = k->group->nbody;
  for (int r = n + 1; r < reader; r++) {
    const struct op *other = &graph->op[k->group->body[r]];
    if (made[r] && !is_reduce(other->kind) && graph->value[other->out].stored) return false;
  }
  return true;
}

/* The variable has the operation's name; if the element becomes one of a parameter, the
   parameter's. */
const struct expr *named_element(struct code *c, struct kernel_builder *k, const struct op *op,
                                 const struct expr *element)
{
  /* Whether an element needs no name of its own: it has one, or is a number. */
  if (element->fenced || (!element->n && *element->word != '-' && !strstr(element->word, "->"))) {
    name_temporary(k, op->out, element);
    return element;
  }
  const char *preferred = op->kind == OP_expand ? "scale" : op_name(op);
  const char *stored = argument_if_any(k, op->out), *type = c_type(graph->value[op->out].type);
  bool taken = strcmp(free_name(k, preferred), spared_name(preferred)) != 0;
  const char *name =
      new_temporary(k, op->out, stored && taken ? text("new_%s", stored) : preferred);
  add_declaration(c, text("const %s", type), name, element);
  return word_expr(name);
}

void add_elements(struct code *c, struct kernel_builder *k, const bool *made)
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = body_op(k->group, n);
    if (!made[n] || is_reduce(op->kind)) continue;
    const struct value *out = &graph->value[op->out];
    if (temporary_of(k, op->out)) continue; /* of a row of one element: it exists already */
    bool of_row = k->stages.task[n].of_row;
    if (of_row && !out->stored && !is_read_by_rows(k, op->out)) continue;
    const struct expr *element = element_expr(c, k, op);
    bool read = of_row ? is_read_by_rows(k, op->out) : is_read(k, op->out, made);
    if (read && is_read_in_place(k, n, made, element))
      name_temporary(k, op->out, element);
    else if (read)
      element = named_element(c, k, op, element);
    if (out->stored)
      add_assignment(add_condition(c, of_row ? k->guard : NULL), output_element(k, op), element);
  }
}
