/* kernel_file.c: operators whose kernels are files: templates/kernels/SUBJECT/NAME.c and NAME.cu,
   for the rows of ops.h that have a rule and no element; and the files that a plan names for its
   own operators. This comment is the manual for authors of such files.

   A file is C or CUDA text with holes. The sizes of a rank's parts fill them, and the text becomes
   a part of the program's kernels; kernels with the same text are one.

     C      A function  void $name$(...)  at the beginning of a line, and before it, if need be,
            static functions whose names begin with $name$_.
     CUDA   One or more functions  __global__ void $name$(...), $name$_2nd(...)  and so on, all with
            the same parameters, each after a line  // launch: BLOCKS, THREADS  of whole numbers,
            holes and + - * / % ( ); a third number, BYTES, is the dynamic shared memory of a
            block. They run in the order of the file. Static __device__ functions may be among
            them. They may use cuda/kernels/kernels.h and cuda/kernels/tiles.h.

   The parameters are the outputs and then the inputs in the order of the rule, each the rank's
   part, contiguous, in row-major order:

     float *restrict out, const int *restrict a      in CUDA  float *__restrict__ out

   A cache, which is written in place, is not const.

   If the file uses a stride of a parameter, $step_a_x$, the parameter may have its dimensions in
   another order in memory, which saves copies; the last dimension is still innermost.

   Types are float, int or, for truth values, unsigned char, 0 or 1; bf16, with bf16_to_float and
   float_to_bf16 of runtime/base/elements.h, if the kernel takes bfloat16. A parameter that may be
   float or bf16 is declared const $type_a$ *restrict a, and its elements are read as
   $float_a$(a[i]); our own kernels take every floating input so, and make floats, except attention.
   After these parameters the kernel may have, for letters of the rule that are marked @, the index
   in the whole tensor at which the rank's part begins: long first_x  for letter x. (Sizes differ
   between ranks only if they must; the beginning of a part always differs, so it is no hole: most
   ranks share one kernel.)

   Holes, for the rule  ...x,...y->...xy :

     $x$        The size of letter x in this rank's part. For a capital letter: the product of all
                its dimensions.
     $whole_x$  Its size in the whole tensor.
     $batch$    The product of all dimensions of `...`: they are equal in all operands that have
                them; only element-wise operators broadcast.
     $before$, $after$  The product of those before, and of those after, the capital letter's
                dimensions: the operand is [$before$, $D$, $after$].
     $step_a_x$ The stride, in elements, of letter x in parameter a; 0 if a does not have it.
     $size_a_x$ The size of letter x in parameter a; 1 if a does not have it.
     $type_a$   The type of parameter a's elements.
     $float_a$(x)  x, an element of parameter a, as a float: x, or bf16_to_float(x).
     $from_float_a$(x)  A float as an element of parameter a: x, or float_to_bf16(x).
     $suffix_a$ _bf16, or nothing, by the type of parameter a's elements.
     $room$     The number of rows that the operand that is stored by rows has room for.
     $s$        The operation's scalar, if no letter of the rule is called s.
     $stride_y$ A number of the row, by its name; also $softcap$.

   In our own files a line  #if $window$  begins lines that are for operations only whose number of
   that name is not 0, and  #if $bf16$  those for a first input of bfloat16; #else and #endif
   follow. Several may be joined by ||. Such lines may nest, and stand among parameters.

   No size is 0: an empty part needs no kernel; tpgen itself sets outputs that are sums, maxima or
   minima of nothing. A kernel must add in the same order every time: no atomic additions of floats.
   Programs may be large: sizes are int literals, so multiply as long. The text is compiled with
   -Wall -Wextra -Wconversion -Wshadow, and by nvcc, and must not cause any of their warnings. */
#include "kernel/kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The operation whose kernel is under construction, the rank, the letters of its rule, and their
   local sizes: from one begin_file_kernel to the next. */
static struct {
  const struct op *op;
  int rank;
  struct letters letters;
  int64_t local[MAX_LETTERS]; /* after find_local_sizes */
} file_kernel;

static void begin_file_kernel(const struct op *op, int rank)
{
  memset(&file_kernel, 0, sizeof file_kernel);
  file_kernel.op = op;
  file_kernel.rank = rank;
  op_letters(op, &file_kernel.letters);
}

/* Reports an error to the file's author. */
static _Noreturn void fault(const char *what)
{
  if (file_kernel.op->kind != OP_custom)
    bug("emit", "template %s%s.%s: %s", op_row[file_kernel.op->kind].name,
        kernel_variant(file_kernel.op, file_kernel.rank), target->source, what);
  const struct custom *custom = &graph->custom[file_kernel.op->custom];
  plan_error(custom->line, "operator %s: its %s kernel: %s", printable(custom->name),
             language_name[target->language], what);
}

static const char *file_text(void)
{
  const struct op *op = file_kernel.op;
  const char *file = kernel_file(op, file_kernel.rank);
  if (!file && op->kind != OP_custom)
    plan_error(op->line, "%s is computed by LAPACK, on CPUs only: it has no kernel for %s",
               op_row[op->kind].name, language_name[target->language]);
  if (!file) fault("the plan names no file for it");
  return file;
}

/* ------------------------------------------------------------------------------ the local sizes */

/* The operands one after the other: the inputs, then the outputs. */
static int file_operands(void)
{
  return file_kernel.op->nin + file_kernel.op->nout;
}

static int file_operand(int i)
{
  return i < file_kernel.op->nin ? file_kernel.op->in[i]
                                 : file_kernel.op->out + i - file_kernel.op->nin;
}

static const struct axis *file_axes(int i)
{
  return i < file_kernel.op->nin ? file_kernel.letters.in[i]
                                 : file_kernel.letters.out[i - file_kernel.op->nin];
}

/* The last unknown letter of a merged dimension. */
static void learn_merged(const struct axis *axis, int64_t size)
{
  int64_t known = 1;
  int unknown = NONE;
  for (int k = 0; k < axis->n; k++) {
    if (file_kernel.local[axis->letter[k]] != NONE)
      known *= file_kernel.local[axis->letter[k]];
    else if (unknown == NONE)
      unknown = axis->letter[k];
    else
      return;
  }
  if (unknown != NONE) file_kernel.local[unknown] = size / known;
  if (size % known || (unknown == NONE && size != known))
    bug("emit", "%s: a part of %" PRId64 " is not a multiple of %" PRId64, op_name(file_kernel.op),
        size, known);
}

/* Whether a cut of the value's dimension d cuts its k-th letter. */
static bool is_cut_letter(int value, int d, const struct axis *axis, int k)
{
  int64_t outside = 1;
  for (int i = 0; i < k; i++) outside *= file_kernel.letters.size[axis->letter[i]];
  for (int m = 0; m < graph->mesh.ndim; m++) {
    const struct placement *p = &graph->value[value].layout.on[m];
    if (p->kind == SHARD && p->dim == d && (p->outer ? p->outer : 1) == outside) return true;
  }
  return false;
}

/* By rows the letters of places are those of the part, be there room for fewer rows. */
static void find_local_sizes(void)
{
  for (int k = 0; k < file_kernel.letters.n; k++)
    file_kernel.local[k] = file_kernel.letters.size[k] == 1 ? 1 : NONE;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < file_operands(); i++) {
      int value = file_operand(i);
      bool by_rows = graph->value[value].counts != NONE;
      struct shape here =
          by_rows ? shape_of_part(value, file_kernel.rank) : local_shape(value, file_kernel.rank);
      for (int d = by_rows ? 1 : 0; d < here.ndim; d++) {
        const struct axis *axis = &file_axes(i)[d];
        if (axis->n == 1) {
          int letter = axis->letter[0];
          int64_t size = here.size[d];
          if (file_kernel.local[letter] != NONE && file_kernel.local[letter] != size)
            plan_error(file_kernel.op->line,
                       "%s: by its rule %s the sizes %" PRId64 " and %" PRId64 " must be equal",
                       printable(op_name(file_kernel.op)), printable(rule_of(file_kernel.op)),
                       file_kernel.local[letter], size);
          file_kernel.local[letter] = size;
        }
        if (axis->n > 1) learn_merged(axis, here.size[d]);
      }
    }
    if (round == 1) {
      /* Letters that are always merged with each other: those that are not cut are whole. */
      for (int i = 0; i < file_operands(); i++)
        for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++)
          for (int k = 0; k < file_axes(i)[d].n; k++) {
            int letter = file_axes(i)[d].letter[k];
            if (file_kernel.local[letter] == NONE &&
                !is_cut_letter(file_operand(i), d, &file_axes(i)[d], k))
              file_kernel.local[letter] = file_kernel.letters.size[letter];
          }
    }
  }
  for (int k = 0; k < file_kernel.letters.n; k++)
    if (file_kernel.local[k] == NONE)
      bug("emit", "%s: a part of letter %c has no size", op_name(file_kernel.op),
          file_kernel.letters.name[k]);
}

/* ----------------------------------------------------------------------------- what fills holes */

/* The product of all letters of a name; NONE if there is none. */
static int64_t product_of_letters(char name, const int64_t *size)
{
  int64_t product = 1;
  bool found = false;
  for (int k = 0; k < file_kernel.letters.n; k++) {
    if (file_kernel.letters.name[k] != name) continue;
    found = true;
    product *= size[k];
  }
  return found ? product : NONE;
}

/* The name of operand i's dimension, if it is one letter; else 0. */
static char kernel_file_name_of_dimension(int i, int d)
{
  const struct axis *axis = &file_axes(i)[d];
  return axis->n == 1 ? file_kernel.letters.name[axis->letter[0]] : 0;
}

/* The sizes of `...` before, between and after the capital letter's dimensions in operand i; false
   where it has none of size more than 1. */
static bool measure_around(int i, int64_t around[3])
{
  int first = NONE, last = NONE, ndim = graph->value[file_operand(i)].shape.ndim;
  for (int d = 0; d < ndim; d++) {
    if (!isupper((unsigned char)kernel_file_name_of_dimension(i, d))) continue;
    if (first == NONE) first = d;
    last = d;
  }
  if (first == NONE) return false;
  around[0] = around[1] = around[2] = 1;
  for (int d = 0; d < ndim; d++)
    if (kernel_file_name_of_dimension(i, d) == '.')
      around[d < first ? 0 : d < last ? 1 : 2] *= file_kernel.local[file_axes(i)[d].letter[0]];
  return true;
}

static int64_t batch(void)
{
  int64_t product = product_of_letters('.', file_kernel.local);
  return product == NONE ? 1 : product;
}

/* The room for rows of the first operand by rows. Without one: all places that the count counts. */
static int64_t room(void)
{
  int64_t rows = 1;
  int i = 0, counted = counted_operand(file_kernel.op);
  while (i < file_operands() && graph->value[file_operand(i)].counts == NONE) i++;
  if (i < file_operands()) return room_for_rows(file_operand(i), file_kernel.rank);
  for (int k = 0; k < file_kernel.letters.n && counted != NONE; k++)
    if (file_kernel.letters.summed[counted] >> k & 1) rows *= file_kernel.local[k];
  return rows;
}

static int64_t size_around(bool after)
{
  int64_t around[3] = {batch(), 1, 1};
  for (int i = 0; i < file_operands(); i++)
    if (measure_around(i, around)) break;
  if (around[1] != 1)
    plan_error(file_kernel.op->line, "%s: its dimensions must be neighbours: permute them first",
               printable(op_name(file_kernel.op)));
  return around[after ? 2 : 0];
}

static char *int_text(int64_t n)
{
  return text("%" PRId64, n);
}

/* The stride of operand i along the letter: 0 if the operand is the same along it; NONE if the rule
   does not have the letter. */
static int64_t step_along(int i, char letter)
{
  int64_t stride[MAX_DIMS];
  local_strides(file_operand(i), file_kernel.rank, stride);
  for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++) {
    int64_t step = stride[d];
    for (int k = file_axes(i)[d].n; k-- > 0; step *= file_kernel.local[file_axes(i)[d].letter[k]])
      if (file_kernel.letters.name[file_axes(i)[d].letter[k]] == letter) return step;
  }
  return product_of_letters(letter, file_kernel.local) == NONE ? NONE : 0;
}

/* The size of operand i along the letter: 1 if the operand is the same along it. */
static int64_t size_along_letter(int i, char letter)
{
  for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++)
    for (int k = 0; k < file_axes(i)[d].n; k++)
      if (file_kernel.letters.name[file_axes(i)[d].letter[k]] == letter)
        return file_kernel.local[file_axes(i)[d].letter[k]];
  return product_of_letters(letter, file_kernel.local) == NONE ? NONE : 1;
}

/* "step_q_b" or "size_q_b": what `along` says of operand q and letter b. */
static int64_t hole_along(const char *name, const char *start, int64_t (*along)(int, char))
{
  size_t n = strlen(name);
  if (strncmp(name, start, strlen(start)) || n < strlen("step_a_x") || name[n - 2] != '_')
    return NONE;
  char *parameter = text("%.*s", (int)(n - strlen("step__x")), name + strlen(start));
  for (int i = 0; i < file_operands(); i++)
    if (!strcmp(parameter, kernel_parameter(file_kernel.op, file_text(), i)))
      return along(i, name[n - 1]);
  return NONE;
}

/* The operand whose parameter the hole names after `start`, or NONE. */
static int operand_of_hole(const char *name, const char *start)
{
  if (strncmp(name, start, strlen(start))) return NONE;
  for (int i = 0; i < file_operands(); i++)
    if (!strcmp(name + strlen(start), kernel_parameter(file_kernel.op, file_text(), i))) return i;
  return NONE;
}

static bool is_bf16(int i)
{
  return graph->value[file_operand(i)].type == BF16;
}

/* The value of the hole, or NULL. */
static const char *hole_text(const char *name)
{
  static const char whole[] = "whole_";
  int64_t size = NONE;
  if (!strcmp(name, "name")) return "$name$";
  if (!strcmp(name, "batch")) return int_text(batch());
  if (!strcmp(name, "room")) return int_text(room());
  if (!strcmp(name, "before")) return int_text(size_around(false));
  if (!strcmp(name, "after")) return int_text(size_around(true));
  if (strlen(name) == 1 && *name != '.') size = product_of_letters(*name, file_kernel.local);
  if (!strncmp(name, whole, strlen(whole)) && strlen(name) == strlen(whole) + 1)
    size = product_of_letters(name[strlen(whole)], file_kernel.letters.size);
  if (size == NONE) size = hole_along(name, "step_", step_along);
  if (size == NONE) size = hole_along(name, "size_", size_along_letter);
  if (size != NONE) return int_text(size);
  int i = operand_of_hole(name, "type_");
  if (i != NONE) return c_type(graph->value[file_operand(i)].type);
  i = operand_of_hole(name, "float_");
  if (i != NONE) return is_bf16(i) ? "bf16_to_float" : "";
  i = operand_of_hole(name, "from_float_");
  if (i != NONE) return is_bf16(i) ? "float_to_bf16" : "";
  i = operand_of_hole(name, "suffix_");
  if (i != NONE) return is_bf16(i) ? "_bf16" : "";
  const char *of_tiles = attention_hole(file_kernel.op, file_kernel.rank, name,
                                        product_of_letters('d', file_kernel.local),
                                        product_of_letters('e', file_kernel.local));
  if (of_tiles) return of_tiles;
  if (!strcmp(name, "s")) return number_text(file_kernel.op->scalar);
  if (!strcmp(name, "softcap")) return number_text(file_kernel.op->softcap);
  size_t n = strlen(name);
  bool row_has_number = false;
  for (const char *c = op_row[file_kernel.op->kind].numbers;
       (c = strstr(c, name)) && !row_has_number; c += n)
    row_has_number =
        (c == op_row[file_kernel.op->kind].numbers || c[-1] == ' ') && (c[n] == ' ' || !c[n]);
  return row_has_number ? int_text(number_of(file_kernel.op, name)) : NULL;
}

/* The end of the text in the brackets that open at c, or NULL. */
static const char *closing(const char *c)
{
  int depth = 0;
  for (; *c; c++) {
    depth += (*c == '(') - (*c == ')');
    if (!depth) return c;
  }
  return NULL;
}

/* Puts the text up to `end`, or to its own end, with its holes filled. */
static void put_filled(struct buffer *b, const char *c, const char *end)
{
  while (*c && c != end) {
    size_t plain = strcspn(c, "$");
    if (end && plain > (size_t)(end - c)) plain = (size_t)(end - c);
    put_text(b, c, plain);
    c += plain;
    if (*c != '$' || c == end) continue;
    size_t n = word_length(c + 1);
    if (n == 0 || c[n + 1] != '$')
      fault(text("a '$' begins no hole: '%s'", printable(text("%.20s", c))));
    const char *name = text("%.*s", (int)n, c + 1), *value = hole_text(name);
    bool converts = strstr(name, "float_");
    if (!value)
      fault(text("it has a hole $%.*s$, which is neither a letter of the rule %s nor a number",
                 (int)n, c + 1, printable(rule_of(file_kernel.op))));
    put(b, "%s", value);
    c += n + 2;
    const char *close = !converts || *value || *c != '(' ? NULL : closing(c);
    if (!close) continue; /* a float element needs no conversion, and so no brackets */
    put_filled(b, c + 1, close);
    c = close + 1;
  }
}

static char *filled_file(void)
{
  struct buffer b = {0};
  const char *file = file_text();
  put_text(&b, "", 0);
  put_filled(&b, file_kernel.op->kind == OP_custom ? file : joined_statements(file), NULL);
  if (b.length && b.text[b.length - 1] != '\n') put_text(&b, "\n", 1);
  return b.text;
}

/* ------------------------------------------------------------------------------------ launches */

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

static int64_t launch_sum_at(const char **c)
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
    int64_t value = launch_sum_at(c);
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

/* "12, 256", the text after "// launch:"; it may be "BLOCKS, THREADS, BYTES", too. */
static char *launch_text(const char *line)
{
  const char *c = line;
  int64_t blocks = launch_sum_at(&c), bytes = 0;
  if (next_sign(&c) != ',') fault("a line '// launch:' is not of the form BLOCKS, THREADS");
  c++;
  int64_t threads = launch_sum_at(&c);
  if (next_sign(&c) == ',') c++, bytes = launch_sum_at(&c);
  if (next_sign(&c) != '\n') fault("a line '// launch:' goes on after BLOCKS, THREADS, BYTES");
  if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > 1024)
    fault(text("it launches %" PRId64 " blocks of %" PRId64 " threads", blocks, threads));
  if (bytes < 0 || bytes > target->most_shared)
    fault(text("a block takes %" PRId64 " bytes of shared memory, of %d", bytes,
               target->most_shared));
  char *places = text("%" PRId64 ", %" PRId64, blocks, threads);
  return bytes ? text("%s, %" PRId64, places, bytes) : places;
}

/* -------------------------------------------------------------------------------- the functions */

/* A function that the program calls. */
struct function_text {
  const char *begin, *end; /* its head in the file's text, up to the brace */
  const char *head;        /* in one line */
  const char *suffix;      /* its name is $name$ and this */
  const char *launch;      /* CUDA: blocks and threads, and bytes of shared memory if any */
};

char *in_one_line(const char *begin, const char *end)
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

/* The next line from `from` on that begins with `start`, or NULL. */
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

/* The program's text of the functions: without the lines on launches, and each head in one line,
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

/* The address of operand i, whose parameter must be of its type. */
static void put_operand_argument(struct buffer *b, int i, const char *parameter)
{
  int value = file_operand(i);
  bool output = i >= file_kernel.op->nin;
  bool written = output || graph->value[value].role == CACHE;
  char *type = text("%s%s *", written ? "" : "const ", c_type(graph->value[value].type));
  bool fits = !strncmp(parameter, type, strlen(type));
  if (!fits) {
    for (int k = 0; k < file_kernel.op->nin; k++)
      if (graph->value[file_kernel.op->in[k]].type == BF16)
        plan_error(file_kernel.op->line,
                   "%s: %s is bfloat16, which its kernel does not take: cast it to float32 first, "
                   "with x:to(\"float32\")",
                   printable(op_name(file_kernel.op)),
                   printable(value_name(file_kernel.op->in[k])));
  }
  if (!fits)
    plan_error(file_kernel.op->line, "%s: its kernel takes %s%s as '%s', which is %s",
               printable(op_name(file_kernel.op)), output ? "output " : "",
               printable(value_name(value)), printable(parameter),
               type_name(graph->value[value].type));
  put(b, "%s%s", b->length ? ", " : "", c_name(value));
}

/* The start of the rank's part along the letter. */
static char *first_of_letter(char name)
{
  for (int i = 0; i < file_operands(); i++)
    for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++)
      if (file_axes(i)[d].n == 1 && file_kernel.letters.name[file_axes(i)[d].letter[0]] == name)
        return first_text(file_operand(i), d);
  return copy_text("0");
}

static bool gets_start(char name)
{
  for (int k = 0; k < file_kernel.letters.n; k++)
    if (file_kernel.letters.name[k] == name && file_kernel.letters.gets_start[k] && name != '.')
      return true;
  return false;
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
    if (n < file_operands())
      put_operand_argument(&b, operand_of_parameter(file_kernel.op, n), parameter);
    else {
      static const char start[] = "long first_";
      const char *letter = parameter + strlen(start);
      if (strncmp(parameter, start, strlen(start)) || strlen(letter) != 1 || !gets_start(*letter))
        fault(text("parameter '%s' is too much: after %d outputs and %d inputs may only stand "
                   "'long first_x' for a letter x that the rule %s marks with @",
                   printable(parameter), file_kernel.op->nout, file_kernel.op->nin,
                   printable(rule_of(file_kernel.op))));
      put(&b, "%s/* %s */ %s", b.length ? ", " : "", parameter + strlen("long "),
          first_of_letter(*letter));
    }
  }
  if (n < file_operands())
    fault(text("it has %d parameters for %d outputs and %d inputs", n, file_kernel.op->nout,
               file_kernel.op->nin));
  return b.text;
}

/* ------------------------------------------------------------------------------------- the call */

/* "cumsum_4x12x5": the operator and the shape of the first input's part. */
static char *file_kernel_name(void)
{
  struct buffer b = {0};
  struct shape here = local_shape(file_kernel.op->nin ? file_kernel.op->in[0] : file_kernel.op->out,
                                  file_kernel.rank);
  put(&b, "%s", identifier(op_name(file_kernel.op)));
  for (int d = 0; d < here.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "_", here.size[d]);
  return b.text;
}

static int (*const find_functions[LANGUAGES])(const char *file, struct function_text *list) = {
    [LANGUAGE_C] = find_c_function, [LANGUAGE_CUDA] = find_cuda_functions};

/* Adds the functions of a filled file to the program's kernels; returns their name. */
static const char *add_functions(const char *file, const char *preferred,
                                 struct function_text *list, int *n)
{
  *n = find_functions[target->language](file, list);
  struct buffer heads = {0};
  for (int i = 0; i < *n; i++) put(&heads, "%s%s", i ? "\n" : "", list[i].head);
  return add_kernel(preferred, heads.text, "", definition_of(file, list, *n),
                    file_kernel.op->kind != OP_custom);
}

static char *function_call(const struct function_text *f, const char *name, const char *given)
{
  if (!f->launch) return text("%s%s(%s);", name, f->suffix, given);
  bool shared = strchr(strchr(f->launch, ',') + 1, ',');
  return text("LAUNCH%s(%s%s, %s, stream)(%s);", shared ? "_SHARED" : "", name, f->suffix,
              f->launch, given);
}

/* Sets output k, a maximum or a minimum, to its value over no elements. */
static char *fill_text(int k)
{
  int value = file_kernel.op->out + k, n;
  if (graph->value[value].type != F32)
    plan_error(file_kernel.op->line,
               "%s: a rank has an empty part of its inputs; output %d must be f32 then",
               printable(op_name(file_kernel.op)), k);
  const char *least = file_kernel.letters.reduction[k] == MAX ? "-INFINITY" : "INFINITY";
  const char *file = text("fill.%s", target->source);
  char *size = text("%" PRId64, elements(local_shape(value, file_kernel.rank)));
  struct function_text list[MOST_FUNCTIONS];
  const char *name = add_functions(fill(embedded_template(file), "n", size, "value", least, NULL),
                                   text("fill_%s", size), list, &n);
  return function_call(list, name, c_name(value));
}

static bool is_empty(int i)
{
  return elements(local_shape(file_operand(i), file_kernel.rank)) == 0;
}

/* Outputs of an empty part: sums, maxima or minima of nothing. */
static char *nothing_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int k = 0; k < file_kernel.op->nout; k++) {
    if (is_empty(file_kernel.op->nin + k)) continue;
    bool sum = file_kernel.letters.reduction[k] == SUM;
    put(&b, "%s%s", b.length ? "\n  " : "",
        sum ? zero_text(file_kernel.op->out + k, file_kernel.rank) : fill_text(k));
  }
  return b.text;
}

void reserve_file_name(const struct op *of, int on)
{
  begin_file_kernel(of, on);
  reserve_kernel_name(file_kernel_name());
}

char *file_kernel_call(const struct op *of, int on)
{
  begin_file_kernel(of, on);
  for (int i = 0; i < file_operands(); i++)
    if (is_empty(i)) return nothing_text();
  find_local_sizes();
  struct function_text list[MOST_FUNCTIONS];
  int n;
  const char *name = add_functions(filled_file(), file_kernel_name(), list, &n);
  /* The calls. This function wraps several calls: emit does not wrap the lines of several
   * statements.
   */
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    char *call = function_call(&list[i], name, arguments(list[i].head));
    if (n > 1) call = wrapped(text("  %s", call), ", ", "      ") + 2;
    put(&b, "%s%s", i ? "\n  " : "", call);
  }
  return b.text;
}
