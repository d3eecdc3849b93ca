/* kernel_file.c: operators whose kernels are files: templates/kernels/NAME.c and NAME.cu, for the
   rows of ops.h that have a rule and no element; and the files that a plan names for its own
   operators. This comment is the page for whoever writes one.

   A file is C or CUDA text with holes. It is filled in with the sizes of a rank's parts and goes
   into the program's kernels; kernels that come out alike are one.

     C      A function  void $name$(...)  at the beginning of a line, and before it, if need be,
            static functions whose names begin with $name$_.
     CUDA   One or more functions  __global__ void $name$(...), $name$_2nd(...)  and so on, all with
            the same parameters, each right behind a line  // launch: BLOCKS, THREADS  of whole
            numbers, holes and + - * / % ( ); behind them may stand how many BYTES of dynamic shared
            memory a block takes. They run in the order in which they stand. Static __device__
            functions may stand among them. There are cuda_kernels.h and cuda_tiles.h.

   The parameters are the outputs and then the inputs in the order of the rule, each the rank's
   part, its elements one after the other, the last dimension's neighbours adjacent:

     float *restrict out, const int *restrict a      in CUDA  float *__restrict__ out

   A parameter for which the file asks how far apart its elements are, $step_a_x$, may have its
   dimensions in another order in memory, which spares copies; but the neighbours of the last are
   adjacent in any case.

   float, int or, of truth values, unsigned char, 0 or 1; bf16, with bf16_to_float and float_to_bf16
   of runtime/elements.h, where it takes bfloat16. A parameter that may be float or bf16 is declared
   const $type_a$ *restrict a, and its elements are read as $float_a$(a[i]); our own kernels take
   every floating input so, and make floats, but for attention. Behind them the kernel may ask, for
   letters of the rule that are marked @, for the index in the whole tensor at which the rank's part
   begins: long first_x  for letter x. (Sizes differ between ranks only where they must; where a
   part begins differs always, so it is no hole: most ranks share one kernel.)

   Holes, of the rule  ...x,...y->...xy :

     $x$        The size of letter x in this rank's part. Of a capital letter: the product of all
                dimensions for which it stands.
     $whole_x$  Its size in the whole tensor.
     $batch$    The product of all dimensions of `...`: they are equal in all operands that have
   them; only element-wise operators stretch. $before$   Of those that stand before the capital
   letter's dimensions, and of those after them: $after$    the operand is [$before$, $D$, $after$].
     $step_a_x$ How many elements neighbours along letter x lie apart in parameter a.
     $type_a$   The type of parameter a's elements.
     $float_a$(x)  x, an element of parameter a, as a float: x, or bf16_to_float(x).
     $s$        The operation's scalar, where no letter of the rule is called s.
     $stride_y$ A number of the row, by its name.

   No size is 0: where a part is empty there is nothing to compute, and outputs that are there
   all the same are sums, maxima or minima of nothing. What a kernel adds up it adds up in the same
   order every time: no atomic additions of floats. Programs may be large: sizes are int literals,
   so multiply as long. The text is compiled with -Wall -Wextra -Wconversion -Wshadow, and by nvcc,
   for all of whose warnings it must give no cause. */
#include "kernel/kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char next_sign(const char **c)
{
  *c += strspn(*c, " \t\r");
  return **c;
}

static int64_t combined(char sign, int64_t a, int64_t b)
{
  int64_t result = 0;
  if ((sign == '/' || sign == '%') && b == 0) fault("a line '// launch:' divides by 0");
  bool wrong = sign == '*'   ? __builtin_mul_overflow(a, b, &result)
               : sign == '+' ? __builtin_add_overflow(a, b, &result)
               : sign == '-' ? __builtin_sub_overflow(a, b, &result)
                             : false;
  if (wrong) fault("a line '// launch:' makes a number that is too large");
  return sign == '/' ? a / b : sign == '%' ? a % b : result;
}
static int64_t atom_at(const char **c);

static int64_t product_at(const char **c)
{
  int64_t value = atom_at(c);
  for (char sign; (sign = next_sign(c)) == '*' || sign == '/' || sign == '%';) {
    ++*c;
    value = combined(sign, value, atom_at(c));
  }
  return value;
}

static int64_t sum_at(const char **c)
{
  int64_t value = product_at(c);
  for (char sign; (sign = next_sign(c)) == '+' || sign == '-';) {
    ++*c;
    value = combined(sign, value, product_at(c));
  }
  return value;
}

static int64_t atom_at(const char **c)
{
  char sign = next_sign(c);
  if (sign == '(') {
    ++*c;
    int64_t value = sum_at(c);
    if (next_sign(c) != ')') fault("a '(' in a line '// launch:' is not closed");
    ++*c;
    return value;
  }
  if (!isdigit((unsigned char)sign))
    fault(text("in a line '// launch:' a number should stand before '%.20s'", printable(*c)));
  char *end;
  int64_t value = strtoll(*c, &end, 10);
  *c = end;
  return value;
}

/* "12, 256" of what stands behind "// launch:", which may be "BLOCKS, THREADS, BYTES", too. */
static char *launch_text(const char *line)
{
  const char *c = line;
  int64_t blocks = sum_at(&c), bytes = 0;
  if (next_sign(&c) != ',') fault("a line '// launch:' is not of the form BLOCKS, THREADS");
  c++;
  int64_t threads = sum_at(&c);
  if (next_sign(&c) == ',') c++, bytes = sum_at(&c);
  if (next_sign(&c) != '\n') fault("a line '// launch:' goes on after BLOCKS, THREADS, BYTES");
  if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > 1024)
    fault(text("it launches %" PRId64 " blocks of %" PRId64 " threads", blocks, threads));
  if (bytes < 0 || bytes > target->most_shared)
    fault(text("a block takes %" PRId64 " bytes of shared memory, of %d", bytes,
               target->most_shared));
  char *places = text("%" PRId64 ", %" PRId64, blocks, threads);
  return bytes ? text("%s, %" PRId64, places, bytes) : places;
}

/* The operation at hand, what its rule says of it, and how much of each letter this rank has. */
static const struct op *op;
static int rank;
static struct letters letters;
static int64_t local[MAX_LETTERS];

_Noreturn void fault(const char *what)
{
  if (op->kind != OP_custom)
    bug("emit", "templates/kernels/%s%s.%s: %s", op_row[op->kind].name, attention_variant(op, rank),
        target->source, what);
  const struct custom *custom = &graph->custom[op->custom];
  plan_error(custom->line, "operator %s: its %s kernel: %s", printable(custom->name),
             language_name[target->language], what);
}

static const char *file_text(void)
{
  const char *file = kernel_file(op, rank);
  if (!file) fault("the plan names no file for it");
  return file;
}

/* ------------------------------------------------------------------------------ the local sizes */

/* The operands one after the other: the inputs, then the outputs. */
static int operands(void)
{
  return op->nin + op->nout;
}

static int operand(int i)
{
  return i < op->nin ? op->in[i] : op->out + i - op->nin;
}

static const struct axis *axes(int i)
{
  return i < op->nin ? letters.in[i] : letters.out[i - op->nin];
}

static bool is_empty(int i)
{
  return elements(local_shape(operand(i), rank)) == 0;
}

static void learn(int letter, int64_t size)
{
  if (local[letter] != NONE && local[letter] != size)
    plan_error(op->line, "%s: by its rule %s the sizes %" PRId64 " and %" PRId64 " must be equal",
               printable(op_name(op)), printable(rule_of(op)), local[letter], size);
  local[letter] = size;
}

/* Of a merged dimension, the letter that is not known yet while all others are. */
static void learn_merged(const struct axis *axis, int64_t size)
{
  int64_t known = 1;
  int unknown = NONE;
  for (int k = 0; k < axis->n; k++) {
    if (local[axis->letter[k]] != NONE)
      known *= local[axis->letter[k]];
    else if (unknown == NONE)
      unknown = axis->letter[k];
    else
      return;
  }
  if (unknown != NONE) local[unknown] = size / known;
  if (size % known || (unknown == NONE && size != known))
    bug("emit", "%s: a part of %" PRId64 " is no multiple of %" PRId64, op_name(op), size, known);
}

/* Whether a cut of the value's dimension d cuts the k-th letter of it. */
static bool is_cut_letter(int value, int d, const struct axis *axis, int k)
{
  int64_t outside = 1;
  for (int i = 0; i < k; i++) outside *= letters.size[axis->letter[i]];
  for (int m = 0; m < graph->mesh.ndim; m++) {
    const struct placement *p = &graph->value[value].layout.on[m];
    if (p->kind == SHARD && p->dim == d && (p->outer ? p->outer : 1) == outside) return true;
  }
  return false;
}

/* Letters that are always merged with each other: those that are not cut are whole. */
static void learn_uncut(void)
{
  for (int i = 0; i < operands(); i++)
    for (int d = 0; d < graph->value[operand(i)].shape.ndim; d++)
      for (int k = 0; k < axes(i)[d].n; k++) {
        int letter = axes(i)[d].letter[k];
        if (local[letter] == NONE && !is_cut_letter(operand(i), d, &axes(i)[d], k))
          local[letter] = letters.size[letter];
      }
}

static void find_local_sizes(void)
{
  for (int k = 0; k < letters.n; k++) local[k] = letters.size[k] == 1 ? 1 : NONE;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < operands(); i++) {
      struct shape here = local_shape(operand(i), rank);
      for (int d = 0; d < here.ndim; d++) {
        const struct axis *axis = &axes(i)[d];
        if (axis->n == 1) learn(axis->letter[0], here.size[d]);
        if (axis->n > 1) learn_merged(axis, here.size[d]);
      }
    }
    if (round == 1) learn_uncut();
  }
  for (int k = 0; k < letters.n; k++)
    if (local[k] == NONE)
      bug("emit", "%s: a part of letter %c has no size", op_name(op), letters.name[k]);
}

/* ------------------------------------------------------------------------- what holes stand for */

/* The product of all letters of a name; NONE if there is none. */
static int64_t product_of(char name, const int64_t *size)
{
  int64_t product = 1;
  bool found = false;
  for (int k = 0; k < letters.n; k++) {
    if (letters.name[k] != name) continue;
    found = true;
    product *= size[k];
  }
  return found ? product : NONE;
}

static bool has_named(const struct axis *axis, bool (*is)(char))
{
  return axis->n == 1 && is(letters.name[axis->letter[0]]);
}

static bool is_capital(char name)
{
  return isupper((unsigned char)name);
}

static bool is_rest(char name)
{
  return name == '.';
}

/* The sizes of `...` before, between and after the capital letter's dimensions in operand i; false
   where it has none of size more than 1. */
static bool measure(int i, int64_t around[3])
{
  int first = NONE, last = NONE, ndim = graph->value[operand(i)].shape.ndim;
  for (int d = 0; d < ndim; d++) {
    if (!has_named(&axes(i)[d], is_capital)) continue;
    if (first == NONE) first = d;
    last = d;
  }
  if (first == NONE) return false;
  around[0] = around[1] = around[2] = 1;
  for (int d = 0; d < ndim; d++)
    if (has_named(&axes(i)[d], is_rest))
      around[d < first ? 0 : d < last ? 1 : 2] *= local[axes(i)[d].letter[0]];
  return true;
}

static int64_t batch(void)
{
  int64_t product = product_of('.', local);
  return product == NONE ? 1 : product;
}

static int64_t size_around(bool after)
{
  int64_t around[3] = {batch(), 1, 1};
  for (int i = 0; i < operands(); i++)
    if (measure(i, around)) break;
  if (around[1] != 1)
    plan_error(op->line, "%s: its dimensions must be neighbours: permute them first",
               printable(op_name(op)));
  return around[after ? 2 : 0];
}

static char *int_text(int64_t n)
{
  return text("%" PRId64, n);
}

/* How far apart elements are in operand i that are neighbours along the letter: 0 where it has one;
   NONE where the operand does not have the letter. */
static int64_t step_along(int i, char letter)
{
  int64_t stride[MAX_DIMS];
  local_strides(operand(i), rank, stride);
  for (int d = 0; d < graph->value[operand(i)].shape.ndim; d++) {
    int64_t step = stride[d];
    for (int k = axes(i)[d].n; k-- > 0; step *= local[axes(i)[d].letter[k]])
      if (letters.name[axes(i)[d].letter[k]] == letter) return step;
  }
  return product_of(letter, local) == 1 ? 0 : NONE;
}

/* "step_q_b" */
static int64_t step_of_hole(const char *name)
{
  static const char start[] = "step_";
  size_t n = strlen(name);
  if (strncmp(name, start, strlen(start)) || n < strlen("step_a_x") || name[n - 2] != '_')
    return NONE;
  char *parameter = text("%.*s", (int)(n - strlen("step__x")), name + strlen(start));
  for (int i = 0; i < operands(); i++)
    if (!strcmp(parameter, kernel_parameter(op, file_text(), i))) return step_along(i, name[n - 1]);
  return NONE;
}

/* The operand whose parameter the hole's name tells behind `start`, or NONE. */
static int operand_of_hole(const char *name, const char *start)
{
  if (strncmp(name, start, strlen(start))) return NONE;
  for (int i = 0; i < operands(); i++)
    if (!strcmp(name + strlen(start), kernel_parameter(op, file_text(), i))) return i;
  return NONE;
}

static bool is_bf16(int i)
{
  return graph->value[operand(i)].type == BF16;
}

static bool has_number(const char *name)
{
  size_t n = strlen(name);
  for (const char *c = op_row[op->kind].numbers; (c = strstr(c, name)); c += n)
    if ((c == op_row[op->kind].numbers || c[-1] == ' ') && (c[n] == ' ' || !c[n])) return true;
  return false;
}

/* What the hole is filled with, or NULL. */
static const char *hole_text(const char *name)
{
  static const char whole[] = "whole_";
  int64_t size = NONE;
  if (!strcmp(name, "name")) return "$name$";
  if (!strcmp(name, "batch")) return int_text(batch());
  if (!strcmp(name, "before")) return int_text(size_around(false));
  if (!strcmp(name, "after")) return int_text(size_around(true));
  if (strlen(name) == 1 && *name != '.') size = product_of(*name, local);
  if (!strncmp(name, whole, strlen(whole)) && strlen(name) == strlen(whole) + 1)
    size = product_of(name[strlen(whole)], letters.size);
  if (size == NONE) size = step_of_hole(name);
  if (size != NONE) return int_text(size);
  int i = operand_of_hole(name, "type_");
  if (i != NONE) return c_type(graph->value[operand(i)].type);
  i = operand_of_hole(name, "float_");
  if (i != NONE) return is_bf16(i) ? "bf16_to_float" : "";
  const char *of_tiles =
      attention_hole(op, rank, name, product_of('d', local), product_of('e', local));
  if (of_tiles) return of_tiles;
  if (!strcmp(name, "s")) return number_text(op->scalar);
  return has_number(name) ? int_text(number_of(op, name)) : NULL;
}

/* The end of what stands in the brackets that open at c, or NULL. */
static const char *closing(const char *c)
{
  int depth = 0;
  for (; *c; c++) {
    depth += (*c == '(') - (*c == ')');
    if (!depth) return c;
  }
  return NULL;
}

/* Puts the text up to `end`, or to its own, with its holes filled. */
static void put_filled(struct buffer *b, const char *c, const char *end)
{
  while (*c && c != end) {
    size_t plain = strcspn(c, "$");
    if (end && plain > (size_t)(end - c)) plain = (size_t)(end - c);
    put_text(b, c, plain);
    c += plain;
    if (*c != '$' || c == end) continue;
    size_t n = strspn(c + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (n == 0 || c[n + 1] != '$')
      fault(text("a '$' begins no hole: '%s'", printable(text("%.20s", c))));
    const char *value = hole_text(text("%.*s", (int)n, c + 1));
    if (!value)
      fault(text("it has a hole $%.*s$, which is no letter of the rule %s and no number", (int)n,
                 c + 1, printable(rule_of(op))));
    put(b, "%s", value);
    c += n + 2;
    const char *close = *value || *c != '(' ? NULL : closing(c);
    if (!close) continue; /* of a float element there is nothing to convert, nor to hold together */
    put_filled(b, c + 1, close);
    c = close + 1;
  }
}

static char *filled(const char *file)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_filled(&b, op->kind == OP_custom ? file : joined_statements(file), NULL);
  if (b.length && b.text[b.length - 1] != '\n') put_text(&b, "\n", 1);
  return b.text;
}

/* -------------------------------------------------------------------------------- the functions */

/* A function that the program calls. */
struct function_text {
  const char *begin, *end; /* its head in the file's text, up to the brace */
  const char *head;        /* in one line */
  const char *suffix;      /* its name is $name$ and this */
  const char *launch;      /* CUDA: blocks and threads, and bytes of shared memory if any */
};

/* Its words, parted by one blank each. */
static char *in_one_line(const char *begin, const char *end)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *c = begin; c < end; c++) {
    bool blank = isspace((unsigned char)*c);
    if (!blank) put_text(&b, c, 1);
    bool ends = c + 1 == end || isspace((unsigned char)c[1]);
    if (blank && !ends && b.length) put_text(&b, " ", 1);
  }
  while (b.length && b.text[b.length - 1] == ' ') b.text[--b.length] = 0;
  return b.text;
}

static struct function_text function_at(const char *begin, const char *start)
{
  struct function_text f = {.begin = begin, .end = begin + strcspn(begin, "{;")};
  if (*f.end != '{') fault("a head has no body");
  f.head = in_one_line(f.begin, f.end);
  if (strncmp(f.begin, start, strlen(start)))
    fault(text("a function should begin with '%s'", start));
  const char *suffix = f.head + strlen(start);
  f.suffix = text("%.*s", (int)strcspn(suffix, "( "), suffix);
  return f;
}

/* Where the line begins that starts so, from `from` on, or NULL. */
static const char *line_with(const char *file, const char *from, const char *start)
{
  for (const char *c = from; (c = strstr(c, start)); c++)
    if (c == file || c[-1] == '\n') return c;
  return NULL;
}

enum { MOST_FUNCTIONS = 8 };

static int find_c_function(const char *file, struct function_text *list)
{
  static const char start[] = "void $name$";
  const char *at = line_with(file, file, "void $name$(");
  if (!at) fault("no line begins with 'void $name$('");
  list[0] = function_at(at, start);
  if (line_with(file, list[0].end, "void $name$(")) fault("it has two functions $name$");
  return 1;
}

static int find_cuda_functions(const char *file, struct function_text *list)
{
  static const char launch[] = "// launch:", start[] = "__global__ void $name$";
  int n = 0, kernels = 0;
  for (const char *c = file; (c = line_with(file, c, launch)); n++) {
    if (n == MOST_FUNCTIONS) fault("it has too many functions");
    const char *end = c + strcspn(c, "\n");
    if (!*end) fault("nothing follows a line '// launch:'");
    list[n] = function_at(end + 1, start);
    list[n].launch = launch_text(c + strlen(launch));
    c = list[n].end;
  }
  for (const char *c = file; (c = line_with(file, c, "__global__")); c++) kernels++;
  if (n == 0 || n != kernels)
    fault("each __global__ function needs a line '// launch: BLOCKS, THREADS' before it");
  return n;
}

/* The text that goes into the program: without the lines on launching, and each head in one line,
   which add_kernel breaks when it knows the name. */
static char *definition_of(const char *file, const struct function_text *list, int n)
{
  struct buffer b = {0};
  const char *from = file;
  for (int i = 0; i < n; i++) {
    const char *begin = list[i].begin;
    if (list[i].launch)
      for (begin--; begin > from && begin[-1] != '\n';) begin--;
    put_text(&b, from, (size_t)(begin - from));
    put(&b, "%s\n", list[i].head);
    from = list[i].end;
  }
  put(&b, "%s", from);
  return b.text;
}

/* -------------------------------------------------------------------------------- the arguments */

static void refuse_bf16(void)
{
  for (int i = 0; i < op->nin; i++)
    if (graph->value[op->in[i]].type == BF16)
      plan_error(op->line,
                 "%s: %s is bfloat16, which its kernel does not take: cast it to float32 first, "
                 "with x:to(\"float32\")",
                 printable(op_name(op)), printable(value_name(op->in[i])));
}

/* The address of operand i, whose parameter must be of its type. */
static void put_operand(struct buffer *b, int i, const char *parameter)
{
  int value = operand(i);
  bool output = i >= op->nin;
  char *type = text("%s%s *", output ? "" : "const ", c_type(graph->value[value].type));
  bool fits = !strncmp(parameter, type, strlen(type));
  if (!fits) refuse_bf16();
  if (!fits)
    plan_error(op->line, "%s: its kernel takes %s%s as '%s', which is %s", printable(op_name(op)),
               output ? "output " : "", printable(value_name(value)), printable(parameter),
               type_name(graph->value[value].type));
  put(b, "%s%s", b->length ? ", " : "", c_name(value));
}

/* Where the rank's part of the letter begins. */
static char *first_of(char name)
{
  for (int i = 0; i < operands(); i++)
    for (int d = 0; d < graph->value[operand(i)].shape.ndim; d++)
      if (axes(i)[d].n == 1 && letters.name[axes(i)[d].letter[0]] == name)
        return first_text(operand(i), d);
  return copy_text("0");
}

static bool is_told(char name)
{
  for (int k = 0; k < letters.n; k++)
    if (letters.name[k] == name && letters.told[k] && name != '.') return true;
  return false;
}

static void put_first(struct buffer *b, const char *parameter)
{
  static const char start[] = "long first_";
  const char *letter = parameter + strlen(start);
  if (strncmp(parameter, start, strlen(start)) || strlen(letter) != 1 || !is_told(*letter))
    fault(text("parameter '%s' is too much: behind %d outputs and %d inputs may only stand "
               "'long first_x' for a letter x that the rule %s marks with @",
               printable(parameter), op->nout, op->nin, printable(rule_of(op))));
  put(b, "%s/* %s */ %s", b->length ? ", " : "", parameter + strlen("long "), first_of(*letter));
}

/* The arguments for the head's parameters. */
static char *arguments(const char *head)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  const char *c = head + strcspn(head, "(");
  int n = 0;
  for (; *c == '(' || *c == ','; n++) {
    c += 1 + strspn(c + 1, " ");
    size_t length = strcspn(c, ",)");
    char *parameter = text("%.*s", (int)length, c);
    c += length;
    if (n < operands())
      put_operand(&b, operand_of_parameter(op, n), parameter);
    else
      put_first(&b, parameter);
  }
  if (n < operands())
    fault(text("it has %d parameters for %d outputs and %d inputs", n, op->nout, op->nin));
  return b.text;
}

/* ------------------------------------------------------------------------------------- the call */

/* "cumsum_4x12x5": the operator and the shape of the first input's part. */
static char *kernel_name(void)
{
  struct buffer b = {0};
  struct shape here = local_shape(op->nin ? op->in[0] : op->out, rank);
  put(&b, "%s", identifier(op_name(op)));
  for (int d = 0; d < here.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "_", here.size[d]);
  return b.text;
}

/* The functions of a filled file, which are added to the program's kernels; gives their name. */
static const char *add_functions(const char *file, const char *wanted, struct function_text *list,
                                 int *n)
{
  *n = target->language == LANGUAGE_CUDA ? find_cuda_functions(file, list)
                                         : find_c_function(file, list);
  struct buffer heads = {0};
  for (int i = 0; i < *n; i++) put(&heads, "%s%s", i ? "\n" : "", list[i].head);
  return add_kernel(wanted, heads.text, "", definition_of(file, list, *n), op->kind != OP_custom);
}

static char *call_text(const struct function_text *f, const char *name, const char *given)
{
  if (!f->launch) return text("%s%s(%s);", name, f->suffix, given);
  bool shared = strchr(strchr(f->launch, ',') + 1, ',');
  return text("LAUNCH%s(%s%s, %s, stream)(%s);", shared ? "_SHARED" : "", name, f->suffix,
              f->launch, given);
}

/* Sets output k, a maximum or a minimum, to what that is of no element. */
static char *fill_text(int k)
{
  int value = op->out + k, n;
  if (graph->value[value].type != F32)
    plan_error(op->line, "%s: a rank has an empty part of its inputs; output %d must be f32 then",
               printable(op_name(op)), k);
  const char *least = letters.reduction[k] == MAX ? "-INFINITY" : "INFINITY";
  const char *file = text("templates/kernels/fill.%s", target->source);
  char *size = int_text(elements(local_shape(value, rank)));
  struct function_text list[MOST_FUNCTIONS];
  const char *name = add_functions(fill(embedded_text(file), "n", size, "value", least, NULL),
                                   text("fill_%s", size), list, &n);
  return call_text(list, name, c_name(value));
}

/* Outputs of an empty part: sums, maxima or minima of nothing. */
static char *nothing_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int k = 0; k < op->nout; k++) {
    if (is_empty(op->nin + k)) continue;
    bool sum = letters.reduction[k] == SUM;
    put(&b, "%s%s", b.length ? "\n  " : "", sum ? zero_text(op->out + k, rank) : fill_text(k));
  }
  return b.text;
}

/* Of several statements emit does not break the lines. */
static char *calls_text(const struct function_text *list, int n, const char *name)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    char *call = call_text(&list[i], name, arguments(list[i].head));
    if (n > 1) call = wrapped(text("  %s", call), ", ", "      ") + 2;
    put(&b, "%s%s", i ? "\n  " : "", call);
  }
  return b.text;
}

void reserve_file_name(const struct op *of, int on)
{
  op = of;
  rank = on;
  reserve_kernel_name(kernel_name());
}

char *file_kernel_call(const struct op *of, int on)
{
  op = of;
  rank = on;
  op_letters(op, &letters);
  for (int i = 0; i < operands(); i++)
    if (is_empty(i)) return nothing_text();
  find_local_sizes();
  struct function_text list[MOST_FUNCTIONS];
  int n;
  const char *name = add_functions(filled(file_text()), kernel_name(), list, &n);
  return calls_text(list, n, name);
}
