/* element.c: the elements of a kernel's operations as expressions in C.

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
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- numbers */

static bool is_float(enum type type)
{
  return type == F32 || type == BF16;
}

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

static char *typed_number(double x, enum type type)
{
  if (is_float(type)) return number_text(x);
  return type == BOOL ? copy_text(x != 0 ? "1" : "0") : text("%" PRId64, (int64_t)x);
}

/* The end of the text in the brackets that open at c. */
static const char *closing(const char *c)
{
  int depth = 0;
  do depth += (*c == '(') - (*c == ')');
  while (c++, depth);
  return c;
}

/* A float as a bfloat16; one that was loaded as bfloat16 and not computed with is left as it is. */
static char *rounded(const char *s)
{
  static const char widened[] = "bf16_to_float";
  size_t n = strlen(widened);
  if (!strncmp(s, widened, n) && s[n] == '(' && !*closing(s + n))
    return text("%.*s", (int)(strlen(s) - n - 2), s + n + 1);
  return text("float_to_bf16(%s)", s);
}

static char *converted(char *s, enum type from, enum type to)
{
  if (from == BF16 && to == BF16) return s;
  if (from == BF16) return converted(text("bf16_to_float(%s)", s), F32, to);
  if (to == BF16) return rounded(converted(s, from, F32));
  if (to == BOOL && from != BOOL) return text("%s != 0", in_brackets(s));
  bool narrower = (is_float(from) && !is_float(to)) || (from == I64 && to == I32) ||
                  (is_float(to) && (from == I32 || from == I64));
  return narrower ? text("(%s)%s", c_type(to), in_brackets(s)) : s;
}

/* ------------------------------------------------------------------------- types of expressions */

/* An operation's expression under construction. */
struct writing {
  struct kernel_builder *k;
  const struct op *op;
  struct letters l;
  enum type type;      /* in which it computes */
  struct code *before; /* gets the statements that must come first */
};

/* Whether the expression computes with input i's element: it is no index, and more than its truth
   value is used. */
static bool counts(const struct op *op, int i)
{
  if (op->kind == OP_logical_and || op->kind == OP_logical_or || op->kind == OP_logical_not)
    return false;
  for (const char *c = op_row[op->kind].element; *c; c++) {
    if (*c != '$') continue;
    bool this = c[1] == 'a' + i && !isalpha((unsigned char)c[2]);
    bool index = c > op_row[op->kind].element + 5 && isupper((unsigned char)c[-5]) &&
                 !strncmp(c - 4, " == ", 4);
    if (this && index) continue;
    if (this && strncmp(c + 2, " ?", 2) != 0) return true;
    if (c[2] == '(') c = closing(c + 2) - 1;
  }
  return false;
}

/* "expf($a)", "0.5f" */
static bool is_float_row(const char *element)
{
  for (const struct element_function *f = element_function; f->name; f++)
    if (!f->whole && has_word(element, f->name)) return true;
  for (const char *c = element; (c = strchr(c, 'f')); c++)
    if (c > element && isdigit((unsigned char)c[-1])) return true;
  return strstr(element, "$random");
}

/* "$s", not "$start" */
static bool says_scalar(const char *element)
{
  while ((element = strstr(element, "$s")) && isalpha((unsigned char)element[2])) element += 2;
  return element != NULL;
}

static bool is_letter_row(const struct op *op)
{
  const char *element = op_row[op->kind].element;
  return element[0] == '$' && names_letter(op, element + 1) && !element[2];
}

static enum type type_of_computing(const struct op *op)
{
  const char *element = op_row[op->kind].element;
  enum type type = is_letter_row(op) ? I32 : BOOL, out = graph->value[op->out].type;
  bool decides = rule_type(op, 0) == BOOL;
  if (is_float_row(element) || (says_scalar(element) && op->scalar != floor(op->scalar)))
    return F32;
  if (is_float(out) && !decides && !is_letter_row(op)) return F32;
  for (int i = 0; i < op->nin; i++) {
    enum type in = graph->value[op->in[i]].type;
    if (!counts(op, i)) continue;
    if (is_float(in)) return F32;
    if (in == I64 || (in == I32 && type == BOOL)) type = in;
  }
  return op->nin || is_letter_row(op) ? type : out;
}

/* The type of the expression in C. */
static enum type type_of_text(const struct writing *w, const char *written)
{
  if (rule_type(w->op, 0) == BOOL) return BOOL;
  if (is_letter_row(w->op))
    return strstr(written, "first") || !strcmp(w->k->loops.type, "long") ? I64 : I32;
  bool computes = w->op->kind != OP_expand && strpbrk(op_row[w->op->kind].element, "+-*/") &&
                  !reads_by_index(w->op, 0);
  return w->type == BOOL && computes ? I32 : w->type;
}

/* ------------------------------------------------------------------------------------- operands */

/* The number that input i is: it is not in memory. */
static char *literal_text(const struct writing *w, int i)
{
  const struct value *v = &graph->value[w->op->in[i]];
  double number = graph->op[v->op].scalar;
  if (v->type == BF16) number = rounded_to_bf16(number);
  return typed_number(number, counts(w->op, i) ? w->type : v->type);
}

/* Input i's element, converted to the type of the computation. */
static char *typed_element(const struct writing *w, int i, char *s)
{
  enum type type = graph->value[w->op->in[i]].type;
  if (!counts(w->op, i)) return is_float(type) ? text("(%s != 0)", converted(s, type, F32)) : s;
  return is_float(w->type) ? converted(s, type, F32) : s;
}

/* Input i's element; in dimension `dim` at the index `at`, unless dim is NONE. */
static char *element_of(const struct writing *w, int i, int dim, const char *at)
{
  int value = w->op->in[i];
  const struct value *v = &graph->value[value];
  const char *temporary = temporary_of(w->k, value);
  char *s = copy_text(temporary ? temporary : "0");
  if (!temporary && !v->stored) return literal_text(w, i);
  bool empty = !temporary && !elements(local_shape(value, w->k->rank));
  if (empty && v->type == BF16) return s;
  if (!temporary && !empty) {
    struct operand operand;
    find_operand(w->op, &w->l, i, w->k->rank, &operand);
    s = dim == NONE ? vector_element(w->k, value, &operand, false) : NULL;
    if (!s)
      s = text("%s[%s]", argument_name(w->k, value), index_text(&w->k->loops, &operand, dim, at));
  }
  return typed_element(w, i, s);
}

char *output_text(struct kernel_builder *k, const struct op *op)
{
  struct letters l;
  struct operand operand;
  op_letters(op, &l);
  find_operand(op, &l, op->nin, k->rank, &operand);
  char *element = vector_element(k, op->out, &operand, true);
  if (element) return element;
  return text("%s[%s]", argument_name(k, op->out), index_text(&k->loops, &operand, NONE, NULL));
}

/* The index of a letter of the space in the whole tensor. */
static char *letter_text(const struct writing *w, char name)
{
  int value = space_of(w->op), dim = space_dimension(w->op, &w->l, name);
  const char *here = variable_text(&w->k->loops, dim);
  if (dim == NONE || !is_cut(value, dim)) return copy_text(here);
  const char *first = add_extra(w->k, "long", "first_here", first_text(value, dim));
  return strcmp(here, "0") ? text("%s + %s", first, here) : copy_text(first);
}

static char *random_text(const struct writing *w)
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
  char *index = index_text(&w->k->loops, &whole, NONE, NULL), *first = flat_first_text(w->op->out);
  if (strcmp(first, "0")) index = text("%s + %s", add_extra(w->k, "long", "first", first), index);
  return text("random_at(%s, %s)", name, index);
}

/* --------------------------------------------------------------------------- `$a(i)`: elsewhere */

/* An index in the whole tensor, and its bounds. */
struct index {
  char *text;
  int64_t low, high;
  bool data; /* an element of a tensor: any number */
  enum type type;
};

static struct index constant(int64_t x)
{
  return (struct index){text("%" PRId64, x), x, x, false, I32};
}

static bool is_constant(struct index i, int64_t x)
{
  return i.low == x && i.high == x;
}

static const char *read_name(const char *c, char name[32])
{
  int n = 0;
  for (; (isalpha((unsigned char)*c) || *c == '_') && n < 31; c++) name[n++] = *c;
  name[n] = 0;
  return c;
}

/* "$E", "$start", "$b", "2" */
static const char *read_term(struct writing *w, const char *c, struct index *term)
{
  if (*c != '$') {
    char *end;
    *term = constant(strtoll(c, &end, 10));
    return end;
  }
  char name[32];
  bool letter = names_letter(w->op, ++c);
  c = read_name(c, name);
  if (letter) {
    int dim = space_dimension(w->op, &w->l, *name);
    int64_t size = dim == NONE ? 1 : graph->value[space_of(w->op)].shape.size[dim];
    *term = (struct index){letter_text(w, *name), 0, size - 1, false, I32};
    if (strstr(term->text, "first")) term->type = I64;
  } else if (!name[1]) {
    int i = name[0] - 'a';
    *term = (struct index){element_of(w, i, NONE, NULL), INT32_MIN, INT32_MAX, true,
                           graph->value[w->op->in[i]].type};
  } else {
    *term = constant(number_of(w->op, name));
  }
  return c;
}

static struct index sum(struct index a, struct index b)
{
  if (is_constant(a, 0)) return b;
  if (is_constant(b, 0)) return a;
  int64_t low = a.low + b.low, high = a.high + b.high;
  if (low == high) return constant(low);
  if (a.low == a.high) return sum(b, a);
  char *s = b.high < 0 && b.low == b.high ? text("%s - %" PRId64, a.text, -b.low)
                                          : text("%s + %s", a.text, b.text);
  return (struct index){s, low, high, a.data || b.data, a.type};
}

/* times or by a constant */
static struct index scaled(struct index a, char sign, int64_t by)
{
  if (by == 1) return a;
  int64_t low = sign == '*' ? a.low * by : a.low / by,
          high = sign == '*' ? a.high * by : a.high / by;
  if (low == high) return constant(low);
  char *s = text("%s %c %" PRId64, in_brackets(a.text), sign, by);
  return (struct index){s, low, high, a.data, a.type};
}

/* Terms with operators between them, from left to right. */
static struct index read_index(struct writing *w, const char *c, const char *end)
{
  struct index index, term;
  for (c = read_term(w, c, &index); c < end;) {
    char sign = c[1];
    c = read_term(w, c + 3, &term);
    if (sign == '-') term = scaled(term, '*', -1);
    index = sign == '*' || sign == '/' ? scaled(index, sign, term.low) : sum(index, term);
  }
  return index;
}

/* Rows whose index is read only if it is in range. */
static bool looks_ahead(enum op_kind kind)
{
  return kind == OP_rotary || kind == OP_rotary_pairs;
}

/* Whether input i's elements are neighbours throughout a vector, at this index of another
   dimension. */
static bool is_read_at_once(const struct writing *w, int i, int dim, const char *index)
{
  const struct loops *loops = &w->k->loops;
  struct operand operand;
  if (!loops->inner || has_word(index, innermost_variable(loops)) || has_word(index, "v"))
    return false; /* another in each of its elements */
  const struct kernel_builder *k = w->k;
  for (int t = k->vectors.temporaries; t < k->ntemporary; t++)
    if (has_word(index, k->temporary[t].name)) return false; /* it is valid in their loop alone */
  find_operand(w->op, &w->l, i, w->k->rank, &operand);
  return operand.stride[dim] != 1 && reads_vector_at(w->k, w->op->in[i], &operand, dim);
}

/* Input i's element of a vector that begins at this index of one dimension. */
static char *vector_at(const struct writing *w, int i, int dim, const char *at, const char *where)
{
  struct operand operand;
  find_operand(w->op, &w->l, i, w->k->rank, &operand);
  return typed_element(w, i, indexed_vector(w->k, w->op->in[i], &operand, dim, at, where));
}

/* Input i's element at another index of one dimension: 0 if there is no such index, or another rank
   has it. */
static char *indexed_text(struct writing *w, int i, const char *from, const char *to, bool last)
{
  int value = w->op->in[i], dim = indexed_dimension(w->op, i);
  int64_t here = local_shape(value, w->k->rank).size[dim];
  if (!here) return copy_text("0");
  struct index index = read_index(w, from, to);
  bool cut = is_cut(value, dim), anywhere = index.data || cut;
  if (cut) {
    const char *first = add_extra(w->k, "long", "first_here", first_text(value, dim));
    index.text = text("%s - %s", index.text, first);
    index.type = I64;
  }
  bool below = anywhere || index.low < 0, above = anywhere || index.high >= here;
  if (looks_ahead(w->op->kind)) below = above = false;
  if (!below && !above) return element_of(w, i, dim, index.text);
  const char *type = index.type == I64 ? "long" : w->k->loops.type;
  const char *at = new_temporary(w->k, NONE, "at");
  bool of_all = is_read_at_once(w, i, dim, index.text);
  add_declaration(of_all ? w->k->vectors.lead : w->before, text("const %s", type), at, index.text);
  char *low = below ? text("%s >= 0", at) : "",
       *high = above ? text("%s < %" PRId64, at, here) : "";
  char *where = text("%s%s%s", low, below && above ? " && " : "", high);
  if (of_all) return vector_at(w, i, dim, at, where);
  char *s = text("%s ? %s : 0", where, element_of(w, i, dim, at));
  return last ? s : text("(%s)", s);
}

/* ---------------------------------------------------------------------------- whole expressions */

static char *scalar_text(const struct writing *w)
{
  bool factor = w->op->kind == OP_scale || w->op->kind == OP_expand;
  if (factor && is_float(w->type)) return float_factor(w->op->scalar);
  return typed_number(w->op->scalar, w->type == BOOL ? I32 : w->type);
}

/* Whether input i is the number 1, so that the product is the other factor. */
static bool is_one(const struct op *op, int i)
{
  const struct value *v = &graph->value[op->in[i]];
  return !v->stored && v->op != NONE && graph->op[v->op].kind == OP_full &&
         graph->op[v->op].scalar == 1;
}

/* Puts the text for the name at c, after its `$`; returns the name's end. */
static const char *put_name(struct buffer *b, struct writing *w, const char *c)
{
  char name[32], *s;
  bool letter = names_letter(w->op, c);
  const char *end = read_name(c, name);
  if (letter) {
    s = letter_text(w, *name);
    if (!is_letter_row(w->op)) s = bracketed(b, end, s);
  } else if (!strcmp(name, "s")) {
    s = scalar_text(w);
    if (w->op->scalar == 1 && !strncmp(end, " * ", 3)) return end + 3;
    if (!strcmp(end, " * $a") && is_float(w->type) && is_one(w->op, 0)) end += strlen(end);
  } else if (!strcmp(name, "random")) {
    s = random_text(w);
  } else if (!strcmp(name, "now")) {
    s = copy_text(add_extra(w->k, "step_number", "now", "t"));
  } else if (!strcmp(name, "noted")) {
    s = copy_text(add_extra(w->k, "unsigned long long *", "noted",
                            text("&m->noted[%" PRId64 "]", number_of(w->op, "use"))));
  } else if (name[1]) {
    s = text("%" PRId64, number_of(w->op, name));
  } else if (*end == '(') {
    const char *close = closing(end);
    s = indexed_text(w, *name - 'a', end + 1, close - 1, !*close);
    end = close;
  } else {
    s = bracketed(b, end, element_of(w, *name - 'a', NONE, NULL));
  }
  bool twice = *s == '-' && b->length && b->text[b->length - 1] == '-';
  put(b, twice ? "(%s)" : "%s", s);
  return end;
}

/* A vector is in one half of a row: x cos - y sin in the first half, with y from the second, and x
   cos + y sin in the second, with y from the first. */
static char *rotary_text(struct writing *w)
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
  char *x = element_of(w, 0, NONE, NULL);
  char *other = text("(%s ? %s + %" PRId64 " : %s - %" PRId64 ")", first, d, half, d, half);
  char *angle = text("(%s ? %s : %s - %" PRId64 ")", first, d, d, half);
  add_declaration(w->k->vectors.lead, "const bool", first, text("%s < %" PRId64, d, half));
  char *y = vector_at(w, 0, dim[0], other, ""), *c = vector_at(w, 1, dim[1], angle, "");
  char *s = vector_at(w, 2, dim[2], angle, "");
  return text("%s ? %s * %s - %s * %s : %s * %s + %s * %s", first, x, c, y, s, x, c, y, s);
}

char *element_text(struct code *before, struct kernel_builder *k, const struct op *op)
{
  struct writing w = {.k = k, .op = op, .type = type_of_computing(op), .before = before};
  struct buffer b = {0};
  op_letters(op, &w.l);
  char *rotary = op->kind == OP_rotary ? rotary_text(&w) : NULL;
  if (rotary) return converted(rotary, F32, graph->value[op->out].type);
  put_text(&b, "", 0);
  for (const char *c = op_row[op->kind].element; *c;) {
    if (*c == '$')
      c = put_name(&b, &w, c + 1);
    else
      put_text(&b, c++, 1);
  }
  if (is_reduce(op->kind)) return b.text;
  return converted(b.text, type_of_text(&w, b.text), graph->value[op->out].type);
}
