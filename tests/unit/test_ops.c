/* The table of operators: each row's element in C equals the reference's, on every instance of the
   row; and the properties of a row are consistent. */
#include "check/check.h"
#include "instances.h"

#include <ctype.h>

/* ---------------------------------------------------------------- elements in C, read and worked
 * out
 */

/* A number as C has it: whole numbers divide to whole numbers. */
struct number {
  double x;
  bool whole;
};

static const char *at; /* where in the element we are */

/* Of which operation, over which tensors, and for which place: an index for each letter. */
static const struct op *op;
static const struct array *input;
static struct letters letters;
static int64_t index_of[MAX_LETTERS];

static struct number conditional(void);

static struct number real(double x)
{
  return (struct number){.x = x};
}

static struct number whole(double x)
{
  return (struct number){.x = x, .whole = true};
}

static bool eat(const char *word)
{
  at += strspn(at, " ");
  if (strncmp(at, word, strlen(word))) return false;
  at += strlen(word);
  return true;
}

static void expect_word(const char *word)
{
  must(eat(word), "%s: no %s before: %s", op_name(op), word, at);
}

/* The letter of that name, or NONE: it is left out where its size is 1. */
static int letter_called(char name)
{
  for (int l = 0; l < letters.n; l++)
    if (letters.name[l] == name) return l;
  return NONE;
}

/* The dimension of the i-th input that the first letter of its operand in the rule names: one that
   the operation names, or the first or the last. */
static int first_dim(int i)
{
  const char *c = rule_of(op);
  for (int k = 0; k < i; k++) c = strchr(c, ',') + 1;
  bool rest = *c == '.';
  c += strspn(c, ".");
  if (isupper((unsigned char)*c)) return rest ? named_dim(op) : 0;
  return rest ? input[i].shape.ndim - 1 : 0;
}

/* The i-th input's element at this place, but at `index` of its first letter where there is one; 0
   where there is no such element. */
static double read_input(int i, const int64_t *index)
{
  int64_t own[MAX_DIMS] = {0};
  struct shape shape = input[i].shape;
  for (int d = 0; d < shape.ndim; d++)
    for (int k = 0; k < letters.in[i][d].n; k++) {
      int letter = letters.in[i][d].letter[k];
      own[d] = own[d] * letters.size[letter] + index_of[letter];
    }
  if (index) own[first_dim(i)] = *index;
  if (index && (*index < 0 || *index >= shape.size[first_dim(i)])) return 0;
  return input[i].at[place_in_array(shape, own)];
}

static struct number random_here(void)
{
  int64_t own[MAX_DIMS] = {0};
  struct shape shape = graph->value[op->out].shape;
  for (int d = 0; d < shape.ndim; d++)
    if (letters.out[0][d].n) own[d] = index_of[letters.out[0][d].letter[0]];
  return real(random_at(number_of(op, "stream"), place_in_array(shape, own)));
}

/* What stands behind a `$`. */
static struct number named(void)
{
  char name[32] = {0};
  size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");
  must(n > 0 && n < sizeof name,
       "%s: its element says '%s', which this test does not know: add it to known[]", op_name(op),
       at);
  memcpy(name, at, n);
  at += n;
  if (!strcmp(name, "random") || !strcmp(name, "uniform") || !strcmp(name, "normal"))
    return random_here();
  if (n > 1) return whole((double)number_of(op, name));
  if (*name == 's') return real(op->scalar);
  int i = *name - 'a';
  if (i >= 0 && i < op->nin) {
    bool indexed = eat("(");
    int64_t index = indexed ? (int64_t)conditional().x : 0;
    if (indexed) expect_word(")");
    return real(read_input(i, indexed ? &index : NULL));
  }
  must(strchr(rule_of(op), *name) != NULL, "%s: no letter is is_called %c", op_name(op), *name);
  int letter = letter_called(*name);
  return whole(letter == NONE ? 0 : (double)index_of[letter]);
}

static double power_of(double x, double y)
{
  return pow(x, y);
}

/* index_within(x, below, ignored, where it is noted). */
static struct number index_within(void)
{
  double x = conditional().x;
  expect_word(",");
  double below = conditional().x;
  expect_word(",");
  double ignored = conditional().x;
  expect_word(", $noted)");
  return whole((x >= 0 && x < below) || x == ignored ? x : -1);
}

/* dropped(x, random, p), of a training. */
static struct number dropped(void)
{
  double x = conditional().x;
  expect_word(",");
  double random = conditional().x;
  expect_word(",");
  double p = conditional().x;
  expect_word(")");
  return real(random < p ? 0 : x / (1 - p));
}

/* float8_scale(largest, wide, power_of_2). */
static struct number float8_scale(void)
{
  double largest = conditional().x;
  expect_word(",");
  double wide = conditional().x;
  expect_word(",");
  double power_of_2 = conditional().x;
  expect_word(")");
  return real(scale_of_float8(largest, wide != 0, power_of_2 != 0));
}

static double rounded_to_float8(double x, double wide)
{
  return to_nearest_float8(x, wide != 0);
}

/* A call of one of the functions of C that elements may name. */
static bool is_called(struct number *y)
{
  static const struct {
    const char *name;
    double (*one)(double), (*two)(double, double);
  } known[] = {{"expf(", exp, NULL},
               {"logf(", log, NULL},
               {"sqrtf(", sqrt, NULL},
               {"sinf(", sin, NULL},
               {"cosf(", cos, NULL},
               {"tanhf(", tanh, NULL},
               {"fabsf(", fabs, NULL},
               {"erff(", erf, NULL},
               {"powf(", NULL, power_of},
               {"to_float8(", NULL, rounded_to_float8},
               {"expm1f(", expm1, NULL},
               {"log1pf(", log1p, NULL},
               {"inverse_erf(", inverse_erf_of, NULL},
               {"lgammaf(", lgamma, NULL},
               {"digamma(", digamma_of, NULL},
               {"trigamma(", trigamma_of, NULL},
               {"gelu_tanh_slope(", gelu_tanh_derivative, NULL},
               {"silu_slope(", silu_derivative, NULL}};
  if (eat("dropped(")) {
    *y = dropped();
    return true;
  }
  if (eat("float8_scale(")) {
    *y = float8_scale();
    return true;
  }
  if (eat("is_training(")) { /* in the tests it is */
    expect_word("$now)");
    *y = whole(1);
    return true;
  }
  if (eat("index_within(")) {
    *y = index_within();
    return true;
  }
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (!eat(known[i].name)) continue;
    double a = conditional().x;
    if (known[i].two) {
      expect_word(",");
      *y = real(known[i].two(a, conditional().x));
    } else {
      *y = real(known[i].one(a));
    }
    expect_word(")");
    return true;
  }
  return false;
}

static struct number factor(void)
{
  struct number y;
  if (eat("-")) {
    y = factor();
    y.x = -y.x;
    return y;
  }
  if (eat("!")) return whole(factor().x == 0);
  if (eat("$")) return named();
  if (is_called(&y)) return y;
  if (eat("(")) {
    y = conditional();
    expect_word(")");
    return y;
  }
  at += strspn(at, " ");
  must(isdigit((unsigned char)*at), "%s: what is: %s", op_name(op), at);
  char *end;
  y = real(strtod(at, &end));
  y.whole = strspn(at, "0123456789") == (size_t)(end - at) && *end != 'f';
  at = end + (*end == 'f');
  return y;
}

static struct number term(void)
{
  struct number x = factor();
  for (;;) {
    char sign = eat("*") ? '*' : eat("/") ? '/' : eat("%") ? '%' : 0;
    if (!sign) return x;
    struct number y = factor();
    bool both = x.whole && y.whole;
    x = real(sign == '*' ? x.x * y.x : sign == '/' ? x.x / y.x : fmod(x.x, y.x));
    x.whole = both;
    if (both) x.x = trunc(x.x);
  }
}

static struct number sum(void)
{
  struct number x = term();
  for (;;) {
    char sign = eat("+") ? '+' : eat("-") ? '-' : 0;
    if (!sign) return x;
    struct number y = term();
    x = (struct number){sign == '+' ? x.x + y.x : x.x - y.x, x.whole && y.whole};
  }
}

static struct number relation(void)
{
  struct number x = sum();
  if (eat("<=")) return whole(x.x <= sum().x);
  if (eat(">=")) return whole(x.x >= sum().x);
  if (eat("==")) return whole(x.x == sum().x);
  if (eat("!=")) return whole(x.x != sum().x);
  if (eat("<")) return whole(x.x < sum().x);
  if (eat(">")) return whole(x.x > sum().x);
  return x;
}

static struct number both(void)
{
  struct number x = relation();
  while (eat("&&")) {
    struct number y = relation();
    x = whole(x.x != 0 && y.x != 0);
  }
  return x;
}

static struct number conditional(void)
{
  struct number x = both();
  while (eat("||")) {
    struct number y = both();
    x = whole(x.x != 0 || y.x != 0);
  }
  if (!eat("?")) return x;
  struct number yes = conditional();
  expect_word(":");
  struct number no = conditional();
  return x.x != 0 ? yes : no;
}

/* The row's element at the place of index_of. A cast converts as C does. */
static double in_c(void)
{
  at = op_row[op->kind].element;
  double x = conditional().x;
  at += strspn(at, " ");
  must(!*at, "%s: left over: %s", op_name(op), at);
  if (op->kind == OP_cast && op->type == BOOL) return x != 0;
  if (op->kind == OP_cast && op->type == I32) return trunc(x);
  return x;
}

/* ------------------------------------------------------------------------ against the reference */

static void set_indices(const struct axis *axis, struct shape shape, int64_t flat)
{
  int64_t index[MAX_DIMS];
  indices_of(shape, flat, index);
  memset(index_of, 0, sizeof index_of);
  for (int d = 0; d < shape.ndim; d++)
    for (int k = axis[d].n; k-- > 0; index[d] /= letters.size[axis[d].letter[k]])
      index_of[axis[d].letter[k]] = index[d] % letters.size[axis[d].letter[k]];
}

/* What the operation makes, each element as its row says. */
static struct array made_in_c(void)
{
  bool reduces = is_reduce(op->kind);
  struct array out = zeros(graph->value[op->out].shape);
  struct shape space = reduces ? input[0].shape : out.shape;
  for (int64_t i = 0; reduces && i < elements(out.shape); i++)
    out.at[i] = op->kind == OP_sum ? 0 : op->kind == OP_amin ? INFINITY : -INFINITY;
  for (int64_t i = 0; i < elements(space); i++) {
    set_indices(reduces ? letters.in[0] : letters.out[0], space, i);
    double x = in_c();
    int64_t index[MAX_DIMS], own[MAX_DIMS];
    indices_of(space, i, index);
    reduced_index(op, space.ndim, index, own);
    double *y = &out.at[reduces ? place_in_array(out.shape, own) : i];
    if (!reduces)
      *y = x;
    else if (op->kind == OP_sum)
      *y += op->scalar * x;
    else
      *y = op->kind == OP_amin ? fmin(*y, x) : fmax(*y, x);
  }
  return out;
}

static void test_elements(void **state)
{
  (void)state;
  static const int64_t sizes[][SIZES] = {{2, 3, 4, 5}, {3, 1, 2, 2}, {1, 4, 1, 3}};
  int tried = 0;
  new_graph(1, (int[]){1});
  for (int i = 0; i < INSTANCES; i++)
    for (size_t s = 0; *op_row[instances[i].kind].element && s < 3; s++, tried++) {
      struct array in[MAX_INPUTS];
      forget();
      input = in;
      op = instantiate(&instances[i], sizes[s]);
      op_letters(op, &letters);
      suitable_inputs(op, in);
      struct array expected = zeros(graph->value[op->out].shape);
      must(evaluate(op, in, &expected, NULL), "%s refuses its own inputs", op_name(op));
      struct array made = made_in_c();
      /* The expression is computed in float; what is kept of it is rounded. */
      for (int64_t k = 0; op->type == BF16 && k < elements(made.shape); k++)
        made.at[k] = to_bf16(made.at[k]);
      /* Constants of C are floats: 0.7f. */
      int64_t where = difference(made, expected, 1e-6);
      must(where == NONE, "%s: element %" PRId64 " of %s is %.9g in C, not %.9g", op_name(op),
           where, shape_text(made.shape), made.at[where], expected.at[where]);
    }
  print_message("%d operations\n", tried);
  assert_true(tried > 300);
}

/* What is no number stays none: a training that goes astray must not look healthy. */
static void test_no_number_stays_none(void **state)
{
  (void)state;
  static const enum op_kind kind[] = {OP_add,  OP_mul,  OP_div,     OP_maximum, OP_minimum,
                                      OP_relu, OP_sqrt, OP_sigmoid, OP_tanh,    OP_silu,
                                      OP_gelu, OP_exp,  OP_square,  OP_scale,   OP_abs};
  new_graph(1, (int[]){1});
  for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
    for (int k = 0; k < 2; k++) {
      struct instance instance = {kind[i], .in = {"1", "1"}};
      bool binary = strchr(op_row[kind[i]].rule, ',') != NULL;
      if (k > 0 && !binary) continue;
      if (!binary) instance.in[1] = NULL;
      double x[2] = {1, 1};
      x[k] = NAN;
      struct array in[] = {{{1, {1}}, &x[0]}, {{1, {1}}, &x[1]}};
      input = in;
      op = instantiate(&instance, (int64_t[SIZES]){1, 1, 1, 1});
      op_letters(op, &letters);
      must(isnan(in_c()), "%s of no number is one", op_row[kind[i]].name);
    }
}

/* ------------------------------------------------------------------------ what rows say of
 * themselves
 */

static int inputs_of(const char *rule)
{
  int n = *rule && strncmp(rule, "->", 2) ? 1 : 0;
  for (; *rule && strncmp(rule, "->", 2); rule++) n += *rule == ',';
  return n;
}

/* Which inputs an element names. */
static unsigned operands(const char *element, int nin)
{
  unsigned set = 0;
  for (const char *c = element; (c = strchr(c, '$'));) {
    c++;
    if (!isalpha((unsigned char)c[1]) && *c >= 'a' && *c < 'a' + nin) set |= 1u << (*c - 'a');
  }
  return set;
}

static bool has_name(const char *numbers, const char *name, size_t n)
{
  for (const char *c = numbers; *c; c += strcspn(c, " "), c += strspn(c, " "))
    if (strcspn(c, " ") == n && !strncmp(c, name, n)) return true;
  return false;
}

/* The words behind `$` in an element: numbers of the row's, or `random` and the like, `noted`,
   `now`. */
static void check_words(const struct op_row *row)
{
  for (const char *c = row->element; (c = strchr(c, '$'));) {
    size_t n = strspn(++c, "abcdefghijklmnopqrstuvwxyz");
    must(n < 2 || has_name(row->numbers, c, n) || !strncmp(c, "random", n) ||
             !strncmp(c, "uniform", n) || !strncmp(c, "normal", n) || !strncmp(c, "noted", n) ||
             !strncmp(c, "now", n),
         "%s has no number %.*s", row->name, (int)n, c);
  }
}

static bool is_element_function(const char *name, size_t n)
{
  for (const struct element_function *f = element_function; f->name; f++)
    if (strlen(f->name) == n && !strncmp(f->name, name, n)) return true;
  return false;
}

/* The functions that an element calls. */
static void check_calls(const struct op_row *row)
{
  for (const char *end = row->element; (end = strchr(end, '(')); end++) {
    const char *name = end;
    while (name > row->element && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
    bool is_operand = name > row->element && name[-1] == '$';
    must(name == end || is_operand || is_element_function(name, (size_t)(end - name)),
         "%s calls %.*s, which has no row in element_functions.h", row->name, (int)(end - name),
         name);
  }
}

/* Alternatives of inputs that there are, each at most once, and `:max` or `:min`. */
static void check_linear(const struct op_row *row, int nin)
{
  for (const char *c = row->linear; *c; c += *c == '|') {
    size_t n = strcspn(c, "|:");
    must(n > 0, "%s: an alternative of no inputs: %s", row->name, row->linear);
    for (size_t i = 0; i < n; i++)
      must((n == 1 && *c == '*') || (c[i] >= 'a' && c[i] < 'a' + nin && !memchr(c, c[i], i)),
           "%s: %s names no input, or one twice", row->name, row->linear);
    c += n;
    if (*c != ':') continue;
    must(!strncmp(c, ":max", 4) || !strncmp(c, ":min", 4), "%s: %s", row->name, row->linear);
    c += 4;
    must(!*c || *c == '|', "%s: %s", row->name, row->linear);
  }
}

/* Operators that make elements name the operands from the first on; what has no rule says nothing
   about operands. */
static void test_rows_fit_together(void **state)
{
  (void)state;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    const struct op_row *row = &op_row[kind];
    enum op_kind k = (enum op_kind)kind;
    bool own = !strcmp(row->rule, "equation");
    int nin = own ? MAX_INPUTS : inputs_of(row->rule), stacks = 0;
    unsigned used = operands(row->element, nin);
    must(!(used & (used + 1)), "%s leaves out an operand", row->name);
    /* The buffer of `running` is read in its gradient alone; random numbers are of a place. */
    const bool of_places = k == OP_uniform_like || k == OP_normal_like;
    int read = nin - (k == OP_running || of_places);
    must(!*row->element || own || used + 1 == 1u << read, "%s does not use all operands",
         row->name);
    must(*row->rule || (!*row->linear && !*row->element), "%s has no rule", row->name);
    check_words(row);
    check_calls(row);
    check_linear(row, nin);
    stacks += is_pointwise(k);
    stacks += is_reduce(k);
    stacks += has_kernel(k);
    stacks += k == OP_matmul || k == OP_cat || op_row[k].shows;
    must(stacks == (*row->rule != 0), "%s is of %d stacks", row->name, stacks);
    for (int other = 0; other < kind; other++)
      must(strcmp(row->name, op_row[other].name), "two rows are is_called %s", row->name);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_elements),
      cmocka_unit_test(test_no_number_stays_none),
      cmocka_unit_test(test_rows_fit_together),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
