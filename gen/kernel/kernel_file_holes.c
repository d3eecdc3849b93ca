/* kernel_file_holes.c: the values of the holes of a kernel's file (kernel_file.c lists the holes),
   from the operation's rule and the sizes of a rank's parts. */
#include "kernel/kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

struct file_kernel file_kernel;

void begin_file_kernel(const struct op *op, int rank)
{
  file_kernel = (struct file_kernel){.op = op, .rank = rank};
  op_letters(op, &file_kernel.letters);
}

_Noreturn void fault(const char *what)
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
  const char *file = kernel_file(file_kernel.op, file_kernel.rank);
  if (!file) fault("the plan names no file for it");
  return file;
}

/* ------------------------------------------------------------------------------ the local sizes */

/* The operands one after the other: the inputs, then the outputs. */
int file_operands(void)
{
  return file_kernel.op->nin + file_kernel.op->nout;
}

int file_operand(int i)
{
  return i < file_kernel.op->nin ? file_kernel.op->in[i]
                                 : file_kernel.op->out + i - file_kernel.op->nin;
}

const struct axis *file_axes(int i)
{
  return i < file_kernel.op->nin ? file_kernel.letters.in[i]
                                 : file_kernel.letters.out[i - file_kernel.op->nin];
}

static void learn(int letter, int64_t size)
{
  if (file_kernel.local[letter] != NONE && file_kernel.local[letter] != size)
    plan_error(file_kernel.op->line,
               "%s: by its rule %s the sizes %" PRId64 " and %" PRId64 " must be equal",
               printable(op_name(file_kernel.op)), printable(rule_of(file_kernel.op)),
               file_kernel.local[letter], size);
  file_kernel.local[letter] = size;
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

/* Letters that are always merged with each other: those that are not cut are whole. */
static void learn_uncut(void)
{
  for (int i = 0; i < file_operands(); i++)
    for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++)
      for (int k = 0; k < file_axes(i)[d].n; k++) {
        int letter = file_axes(i)[d].letter[k];
        if (file_kernel.local[letter] == NONE &&
            !is_cut_letter(file_operand(i), d, &file_axes(i)[d], k))
          file_kernel.local[letter] = file_kernel.letters.size[letter];
      }
}

/* By rows the letters of places are those of the part, be there room for fewer rows. */
static struct shape sizes_of_letters(int value, int rank)
{
  bool by_rows = graph->value[value].counts != NONE;
  return by_rows ? shape_of_part(value, rank) : local_shape(value, rank);
}

void find_local_sizes(void)
{
  for (int k = 0; k < file_kernel.letters.n; k++)
    file_kernel.local[k] = file_kernel.letters.size[k] == 1 ? 1 : NONE;
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < file_operands(); i++) {
      struct shape here = sizes_of_letters(file_operand(i), file_kernel.rank);
      for (int d = 0; d < here.ndim; d++) {
        const struct axis *axis = &file_axes(i)[d];
        if (d == 0 && graph->value[file_operand(i)].counts != NONE) continue; /* by rows */
        if (axis->n == 1) learn(axis->letter[0], here.size[d]);
        if (axis->n > 1) learn_merged(axis, here.size[d]);
      }
    }
    if (round == 1) learn_uncut();
  }
  for (int k = 0; k < file_kernel.letters.n; k++)
    if (file_kernel.local[k] == NONE)
      bug("emit", "%s: a part of letter %c has no size", op_name(file_kernel.op),
          file_kernel.letters.name[k]);
}

/* ------------------------------------------------------------------------- what holes stand for */

/* The product of all letters of a name; NONE if there is none. */
static int64_t product_of(char name, const int64_t *size)
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

static bool has_named(const struct axis *axis, bool (*is)(char))
{
  return axis->n == 1 && is(file_kernel.letters.name[axis->letter[0]]);
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
  int first = NONE, last = NONE, ndim = graph->value[file_operand(i)].shape.ndim;
  for (int d = 0; d < ndim; d++) {
    if (!has_named(&file_axes(i)[d], is_capital)) continue;
    if (first == NONE) first = d;
    last = d;
  }
  if (first == NONE) return false;
  around[0] = around[1] = around[2] = 1;
  for (int d = 0; d < ndim; d++)
    if (has_named(&file_axes(i)[d], is_rest))
      around[d < first ? 0 : d < last ? 1 : 2] *= file_kernel.local[file_axes(i)[d].letter[0]];
  return true;
}

static int64_t batch(void)
{
  int64_t product = product_of('.', file_kernel.local);
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
    if (measure(i, around)) break;
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
  return product_of(letter, file_kernel.local) == NONE ? NONE : 0;
}

/* The size of operand i along the letter: 1 if the operand is the same along it. */
static int64_t size_along(int i, char letter)
{
  for (int d = 0; d < graph->value[file_operand(i)].shape.ndim; d++)
    for (int k = 0; k < file_axes(i)[d].n; k++)
      if (file_kernel.letters.name[file_axes(i)[d].letter[k]] == letter)
        return file_kernel.local[file_axes(i)[d].letter[k]];
  return product_of(letter, file_kernel.local) == NONE ? NONE : 1;
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

static bool has_number(const char *name)
{
  size_t n = strlen(name);
  for (const char *c = op_row[file_kernel.op->kind].numbers; (c = strstr(c, name)); c += n)
    if ((c == op_row[file_kernel.op->kind].numbers || c[-1] == ' ') && (c[n] == ' ' || !c[n]))
      return true;
  return false;
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
  if (strlen(name) == 1 && *name != '.') size = product_of(*name, file_kernel.local);
  if (!strncmp(name, whole, strlen(whole)) && strlen(name) == strlen(whole) + 1)
    size = product_of(name[strlen(whole)], file_kernel.letters.size);
  if (size == NONE) size = hole_along(name, "step_", step_along);
  if (size == NONE) size = hole_along(name, "size_", size_along);
  if (size != NONE) return int_text(size);
  int i = operand_of_hole(name, "type_");
  if (i != NONE) return c_type(graph->value[file_operand(i)].type);
  i = operand_of_hole(name, "float_");
  if (i != NONE) return is_bf16(i) ? "bf16_to_float" : "";
  i = operand_of_hole(name, "from_float_");
  if (i != NONE) return is_bf16(i) ? "float_to_bf16" : "";
  i = operand_of_hole(name, "suffix_");
  if (i != NONE) return is_bf16(i) ? "_bf16" : "";
  const char *of_tiles =
      attention_hole(file_kernel.op, file_kernel.rank, name, product_of('d', file_kernel.local),
                     product_of('e', file_kernel.local));
  if (of_tiles) return of_tiles;
  if (!strcmp(name, "s")) return number_text(file_kernel.op->scalar);
  if (!strcmp(name, "softcap")) return number_text(file_kernel.op->softcap);
  return has_number(name) ? int_text(number_of(file_kernel.op, name)) : NULL;
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

char *filled_file(void)
{
  struct buffer b = {0};
  const char *file = file_text();
  put_text(&b, "", 0);
  put_filled(&b, file_kernel.op->kind == OP_custom ? file : joined_statements(file), NULL);
  if (b.length && b.text[b.length - 1] != '\n') put_text(&b, "\n", 1);
  return b.text;
}
