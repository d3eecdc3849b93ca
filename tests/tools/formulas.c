/* formulas.c: whether the comments above generated kernels say what the kernels compute.

     formulas KERNELS.c...

   A kernel's body runs once with one number for each array: each loop once, whatever the indices.
   The formulas of its comment are worked out with the same numbers. A kernel whose formulas have a
   function that is not in functions[] below, or that reads an array at two places, is left out. The
   last line has how many kernels were compared; the exit status is 1 if any formula gives another
   number. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 128, LONGEST = 256, ROOM = 1 << 16 };

struct variable {
  char name[LONGEST], index[LONGEST];
  double value;
};
struct variables {
  int n;
  struct variable list[MOST];
};

static struct variables variables, formulas;
static struct {
  char of[LONGEST], parameter[LONGEST];
} places[MOST]; /* what a value is in place of, and the parameter that has it */
static int nplace, nparameter;
static const char *reading; /* where the expression goes on */
static bool in_formula;
static double factor; /* of a mean's sum */
static jmp_buf left_out;

static struct variable *find(struct variables *v, const char *name)
{
  for (int i = 0; i < v->n; i++)
    if (!strcmp(v->list[i].name, name)) return &v->list[i];
  return NULL;
}

static struct variable *set(struct variables *v, const char *name, double value)
{
  struct variable *x = find(v, name);
  if (!x && v->n == MOST) longjmp(left_out, 1);
  if (!x) {
    x = &v->list[v->n++];
    *x = (struct variable){.value = 0};
    snprintf(x->name, sizeof x->name, "%s", name);
  }
  x->value = value;
  return x;
}

/* ------------------------------------------------------------------------------------- functions
 */

static double silu(double x)
{
  return x / (1 + exp(-x));
}
static double sigmoid(double x)
{
  return 1 / (1 + exp(-x));
}
static double relu(double x)
{
  return x < 0 ? 0 : x;
}
static double rsqrt_of(double x)
{
  return 1 / sqrt(x);
}
static double square(double x)
{
  return x * x;
}
static double negative(double x)
{
  return -x;
}
static double same(double x)
{
  return x;
}
static double mean(double x)
{
  if (factor == 0) longjmp(left_out, 1);
  return x * factor;
}
static double gelu(double x)
{
  return 0.5 * x * (1 + erf(x * 0.70710678));
}
static double gelu_tanh(double x)
{
  return 0.5 * x * (1 + tanh(0.79788456 * x * (1 + 0.044715 * x * x)));
}
static double larger(double a, double b)
{
  return a > b ? a : b;
}
static double smaller(double a, double b)
{
  return a < b ? a : b;
}
static double silu_back(double d, double x)
{
  double s = sigmoid(x);
  return d * (s + x * s * (1 - s));
}
static double sigmoid_back(double d, double y)
{
  return d * y * (1 - y);
}
static double tanh_back(double d, double y)
{
  return d * (1 - y * y);
}
static double relu_back(double d, double y)
{
  return y <= 0 ? 0 : d;
}
static double gelu_back(double d, double x)
{
  return d * (0.5 * (1 + erf(x * 0.70710678)) + x * 0.39894228 * exp(-0.5 * x * x));
}

static const struct {
  const char *name;
  double (*one)(double);
  double (*two)(double, double);
} functions[] = {{"sum", same, NULL},
                 {"mean", mean, NULL},
                 {"amax", same, NULL},
                 {"amin", same, NULL},
                 {"cast", same, NULL},
                 {"copy", same, NULL},
                 {"reorder", same, NULL},
                 {"square", square, NULL},
                 {"neg", negative, NULL},
                 {"rsqrt", rsqrt_of, NULL},
                 {"sqrt", sqrt, NULL},
                 {"exp", exp, NULL},
                 {"log", log, NULL},
                 {"sin", sin, NULL},
                 {"cos", cos, NULL},
                 {"tanh", tanh, NULL},
                 {"silu", silu, NULL},
                 {"sigmoid", sigmoid, NULL},
                 {"relu", relu, NULL},
                 {"gelu", gelu, NULL},
                 {"gelu_tanh", gelu_tanh, NULL},
                 {"abs", fabs, NULL},
                 {"pow", NULL, pow},
                 {"power", NULL, pow},
                 {"maximum", NULL, larger},
                 {"minimum", NULL, smaller},
                 {"silu_back", NULL, silu_back},
                 {"relu_back", NULL, relu_back},
                 {"sigmoid_back", NULL, sigmoid_back},
                 {"tanh_back", NULL, tanh_back},
                 {"gelu_back", NULL, gelu_back},
                 /* of C */
                 {"sqrtf", sqrt, NULL},
                 {"expf", exp, NULL},
                 {"logf", log, NULL},
                 {"sinf", sin, NULL},
                 {"cosf", cos, NULL},
                 {"tanhf", tanh, NULL},
                 {"erff", erf, NULL},
                 {"fabsf", fabs, NULL},
                 {"powf", NULL, pow},
                 {"larger", NULL, larger},
                 {"smaller", NULL, smaller},
                 {"bf16_to_float", same, NULL},
                 {"float_to_bf16", same, NULL}};

/* ----------------------------------------------------------------------------------- expressions
 */

static double choice(void);

static bool takes(const char *mark)
{
  reading += strspn(reading, " ");
  if (strncmp(reading, mark, strlen(mark))) return false;
  reading += strlen(mark);
  return true;
}

static void needs(const char *mark)
{
  if (!takes(mark)) longjmp(left_out, 1);
}

/* The parameter that a value of a formula is: the last words of its name. */
static const char *parameter_of(const char *name)
{
  const char *found = NULL;
  for (const char *rest = name; rest; rest = strchr(rest, '.') ? strchr(rest, '.') + 1 : NULL) {
    char plain[2 * LONGEST];
    bool marked = !strncmp(name, "d_", 2) && rest != name;
    snprintf(plain, sizeof plain, "%s%s", marked ? "d_" : "", rest);
    for (char *c = plain; (c = strchr(c, '.'));) *c = '_';
    for (int i = 0; i < nparameter && !found; i++)
      if (!strcmp(variables.list[i].name, plain)) found = variables.list[i].name;
    if (found) break;
  }
  for (int i = 0; i < nplace; i++) {
    if (strcmp(places[i].of, name)) continue;
    if (found) longjmp(left_out, 1); /* two values of one name */
    found = places[i].parameter;
  }
  return found;
}

static double named(const char *name)
{
  struct variable *v = find(in_formula ? &formulas : &variables, name);
  const char *parameter = v || !in_formula ? NULL : parameter_of(name);
  if (parameter) v = set(&formulas, name, find(&variables, parameter)->value);
  if (!v) longjmp(left_out, 1);
  return v->value;
}

static double word(void)
{
  char name[LONGEST];
  int n = 0;
  while ((isalnum((unsigned char)*reading) || *reading == '_' || (*reading == '.' && in_formula)) &&
         n + 1 < LONGEST)
    name[n++] = *reading++;
  name[n] = 0;
  if (!n) longjmp(left_out, 1);
  if (!strcmp(name, "INFINITY")) return INFINITY;
  if (*reading == '(') {
    double x = 0, y = 0;
    int given = 1;
    reading++;
    x = choice();
    if (takes(",")) y = choice(), given = 2;
    needs(")");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
      if (strcmp(functions[i].name, name)) continue;
      if (given == 1 && functions[i].one) return functions[i].one(x);
      if (given == 2 && functions[i].two) return functions[i].two(x, y);
    }
    longjmp(left_out, 1);
  }
  double value = named(name);
  char index[LONGEST] = "";
  while (*reading == '[') {
    size_t length = strcspn(reading, "]") + 1;
    snprintf(index, sizeof index, "%.*s", (int)length, reading);
    reading += length;
  }
  struct variable *v = *index ? find(&variables, name) : NULL;
  if (v && *v->index && strcmp(v->index, index)) longjmp(left_out, 1);
  if (v) snprintf(v->index, sizeof v->index, "%s", index);
  return value;
}

static double atom(void)
{
  static const char *const casts[] = {"(float)", "(double)", "(int)", "(long)"};
  for (size_t i = 0; i < sizeof casts / sizeof *casts; i++)
    if (takes(casts[i])) return atom();
  if (takes("-")) return -atom();
  if (takes("(")) {
    double x = choice();
    needs(")");
    return x;
  }
  if (!isdigit((unsigned char)*reading)) return word();
  char *end;
  double x = strtod(reading, &end);
  reading = end + (*end == 'f');
  if (in_formula && *reading == '/') { /* "1/96", which binds as a quotient does */
    double divisor = strtod(reading + 1, &end);
    reading = end;
    x /= divisor;
  }
  return x;
}

static double product(void)
{
  double x = atom();
  for (;;) {
    if (takes("* "))
      x *= atom();
    else if (takes("/ "))
      x /= atom();
    else
      return x;
  }
}

static double sum(void)
{
  double x = product();
  for (;;) {
    if (takes("+ "))
      x += product();
    else if (takes("- "))
      x -= product();
    else
      return x;
  }
}

static double comparison(void)
{
  double x = sum();
  if (takes("<= ")) return x <= sum();
  if (takes(">= ")) return x >= sum();
  if (takes("< ")) return x < sum();
  if (takes("> ")) return x > sum();
  return x;
}

static double choice(void)
{
  double x = comparison();
  if (!takes("? ")) return x;
  double yes = choice();
  needs(":");
  double no = choice();
  return x != 0 ? yes : no;
}

static double value_of(const char *text, bool formula)
{
  reading = text;
  in_formula = formula;
  double x = choice();
  if (*reading) longjmp(left_out, 1);
  return x;
}

/* --------------------------------------------------------------------------------------- kernels
 */

/* The numbers of parameters: positive, and each another. A name with a number, "weight_2", is one
   of several, which the formula calls otherwise. */
static void read_parameters(char *head)
{
  int n = 0;
  for (char *c = strtok(strchr(head, '(') + 1, ",)\n"); c; c = strtok(NULL, ",)\n")) {
    char *name = strrchr(c, '*') ? strrchr(c, '*') + 1 : strrchr(c, ' ') ? strrchr(c, ' ') + 1 : c;
    if (!strncmp(name, "restrict ", 9)) name += 9;
    size_t length = strlen(name);
    if (length > 2 && name[length - 2] == '_' && isdigit((unsigned char)name[length - 1]))
      longjmp(left_out, 1);
    if (*name) set(&variables, name, 0.4 + 0.37 * fmod(++n * 0.618, 1));
  }
  nparameter = variables.n;
}

/* Runs the statements of the body, whose ends are at `;`. */
static void run_body(char *body)
{
  for (char *c = strtok(body, ";{}"); c; c = strtok(NULL, ";{}")) {
    char *sign = strstr(c, " = "), left[LONGEST], place[LONGEST];
    char *adds = strstr(c, " += ");
    if (adds && (!sign || adds < sign)) sign = adds;
    if (!sign) {
      if (strspn(c, " ") == strlen(c) || strchr(c, '[')) continue; /* "float part[16][64]" */
      longjmp(left_out, 1);
    }
    snprintf(left, sizeof left, "%.*s", (int)(sign - c), c);
    char *index = strchr(left, '[');
    snprintf(place, sizeof place, "%s", index ? index : "");
    if (index) *index = 0;
    char *name = strrchr(left, ' ') ? strrchr(left, ' ') + 1 : left;
    double x = value_of(strstr(sign, "= ") + 2, false);
    struct variable *v = find(&variables, name);
    bool is_part = strstr(name, "_part") != NULL;
    if (!is_part && v && *v->index && *place && !strstr(place, v->index)) longjmp(left_out, 1);
    v = set(&variables, name, sign == adds ? named(name) + x : x);
    if (*place && !is_part) snprintf(v->index, sizeof v->index, "%s", strrchr(place, '['));
  }
}

/* Without pragmas and the heads of loops, in one line; an `if` is not understood. */
static void plain_body(char *body)
{
  char *to = body;
  for (char *c = body; *c;) {
    if (*c == '#') c += strcspn(c, "\n");
    if (!strncmp(c, "if (", 4)) longjmp(left_out, 1);
    if (!strncmp(c, "for (", 5)) {
      int depth = 0;
      c += 4;
      do depth += (*c == '(') - (*c == ')');
      while (c++, depth);
    }
    *to++ = *c == '\n' ? ' ' : *c;
    c += *c != 0;
  }
  *to = 0;
}

/* The formulas, one after the other, each compared with what its parameter has now. Returns how
 * many. */
static int compare(const char *file, char *comment, const char *kernel)
{
  struct variables after = variables;
  int compared = 0;
  for (int i = 0; i < nparameter; i++) /* formulas begin with what the kernel began with */
    variables.list[i].value = 0.4 + 0.37 * fmod((i + 1) * 0.618, 1);
  char *next;
  for (char *c = comment; c && *c; c = next) {
    char name[LONGEST], *end = strstr(c, "; ");
    next = end ? end + 2 : NULL;
    if (end) *end = 0;
    char *sign = strstr(c, " = ");
    if (!sign || strchr(c, '@')) longjmp(left_out, 1);
    snprintf(name, sizeof name, "%.*s", (int)(sign - c), c);
    double x = value_of(sign + 3, true);
    set(&formulas, name, x);
    const char *parameter = parameter_of(name);
    if (!parameter) longjmp(left_out, 1);
    double made = find(&after, parameter)->value;
    if (!(fabs(made - x) <= 1e-5 * (fabs(made) + fabs(x)) + 1e-9)) {
      printf("%s: %s: the comment says %g, the statements make %g: %s\n", file, kernel, x, made, c);
      return -1;
    }
    compared++;
  }
  return compared;
}

/* What "// a is in place of b" lines say goes to places[]; the rest is formulas, joined by "; ". */
static void read_comment(const char *text, char *formula)
{
  static char one[ROOM];
  *formula = 0;
  nplace = 0;
  for (const char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    snprintf(one, sizeof one, "%.*s", (int)n, line + 3);
    one[n - 3] = 0;
    for (line += n + 1; !strncmp(line, "//     ", 7); line += n + 1) {
      n = strcspn(line, "\n");
      strcat(one, " ");
      strncat(one, line + 7, n - 7);
    }
    char *is = strstr(one, " is in place of "), *of = is + strlen(" is in place of ");
    if (!is) {
      strcat(strcat(formula, *formula ? "; " : ""), one);
      continue;
    }
    *is = 0;
    const char *parameter = parameter_of(one);
    if (!parameter || nplace == MOST || isdigit((unsigned char)*of)) longjmp(left_out, 1);
    snprintf(places[nplace].of, LONGEST, "%s", of);
    snprintf(places[nplace++].parameter, LONGEST, "%s", parameter);
  }
}

static int compared, kernels, wrong;

static void look_at_kernel(const char *file, const char *comment, char *head, char *body)
{
  static char formula[ROOM];
  char name[LONGEST];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(head + 5, "("), head + 5);
  variables.n = formulas.n = 0;
  factor = 0;
  if (setjmp(left_out)) return;
  for (char *c = body; strstr(comment, "mean(") && (c = strstr(c, "(float)("));) {
    c += strlen("(float)(");
    char *sign = c + strcspn(c, " ();");
    if (strncmp(sign, " * ", 3)) continue;
    double of =
        strncmp(sign + 3, "(1.0 / ", 7) ? strtod(sign + 3, NULL) : 1 / strtod(sign + 10, NULL);
    if (factor != 0 && of != factor) longjmp(left_out, 1);
    factor = of;
  }
  read_parameters(head);
  read_comment(comment, formula);
  plain_body(body);
  run_body(body);
  int n = compare(file, formula, name);
  wrong += n < 0;
  compared += n > 0 ? n : 0;
  kernels += n > 0;
}

static void look_at(const char *file)
{
  FILE *in = fopen(file, "r");
  static char line[ROOM], comment[ROOM], head[ROOM], body[ROOM];
  if (!in) perror(file), exit(2);
  *comment = 0;
  while (fgets(line, sizeof line, in)) {
    if (!strncmp(line, "//", 2)) {
      strcat(comment, line);
      continue;
    }
    if (!strncmp(line, "void ", 5) && *comment) {
      *head = *body = 0;
      do strcat(head, line);
      while (fgets(line, sizeof line, in) && strcmp(line, "{\n"));
      while (fgets(line, sizeof line, in) && strcmp(line, "}\n")) strcat(body, line);
      look_at_kernel(file, comment, head, body);
    }
    *comment = 0;
  }
  fclose(in);
}

int main(int argc, char **argv)
{
  for (int i = 1; i < argc; i++) look_at(argv[i]);
  printf("%d formulas of %d kernels compared, %d wrong\n", compared, kernels, wrong);
  return wrong > 0;
}
