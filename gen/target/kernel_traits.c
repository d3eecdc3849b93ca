/* kernel_traits.c: the declarations of a kernel's file: its parameters, and whether it takes any
   order of dimensions. */
#include "target/target.h"

#include <ctype.h>
#include <string.h>

/* ----------------------------------------------------------------------------- parts by options */

static bool has_option(const struct op *of, const char *option)
{
  if (!strcmp(option, "softcap")) return of->softcap != 0;
  if (!strcmp(option, "bf16")) return graph->value[of->in[0]].type == BF16;
  return number_of(of, option) != 0;
}

/* Whether the operation has one of the options that a line "#if $window$ || $softcap$" names: a
   number of the row, or softcap, that is not 0; or bf16, the type of the first input. */
static bool has_some_option(const struct op *of, const char *line)
{
  bool some = false;
  for (const char *c = line; *c && *c != '\n'; c++) {
    if (*c != '$') continue;
    size_t n = strcspn(c + 1, "$\n");
    some |= has_option(of, text("%.*s", (int)n, c + 1));
    c += n + 1;
  }
  return some;
}

enum { MOST_NESTED = 8 };

/* The file without the lines for options that the operation does not have, and without the lines
   that say so. */
static const char *text_for_options(const struct op *of, const char *file)
{
  static const char start[] = "#if $";
  bool takes[MOST_NESTED + 1] = {true};
  int depth = 0;
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *line = file, *next; *line; line = next) {
    next = line + strcspn(line, "\n");
    next += *next == '\n';
    if (!strncmp(line, start, strlen(start))) {
      if (depth == MOST_NESTED) bug("emit", "a kernel's file nests too many options");
      takes[depth + 1] = takes[depth] && has_some_option(of, line);
      depth++;
    } else if (!strncmp(line, "#else", strlen("#else")) && depth) {
      takes[depth] = takes[depth - 1] && !takes[depth];
    } else if (!strncmp(line, "#endif", strlen("#endif")) && depth) {
      depth--;
    } else if (takes[depth]) {
      put_text(&b, line, (size_t)(next - line));
    }
  }
  return b.text;
}

/* The text that text_for_options made of a file, by the operation's options. */
struct made_text {
  const char *file, *text;
  int64_t number[MAX_NUMBERS];
  double softcap;
  enum type type; /* of the first input */
};

/* The same text has one address: joined_statements() relies on that. */
static const char *made_text_for_options(const struct op *of, const char *file)
{
  static const struct graph *made_for;
  static struct made_text *made;
  static int n, room;
  const enum type type = graph->value[of->in[0]].type;
  if (made_for != graph) n = room = 0;
  made_for = graph;
  for (int i = 0; i < n; i++)
    if (made[i].file == file && made[i].softcap == of->softcap && made[i].type == type &&
        !memcmp(made[i].number, of->number, sizeof of->number))
      return made[i].text;
  GROW(made, n, room);
  made[n] = (struct made_text){.file = file, .softcap = of->softcap, .type = type};
  made[n].text = text_for_options(of, file);
  memcpy(made[n].number, of->number, sizeof of->number);
  return made[n++].text;
}

/* Whether it multiplies rows by expert on the tensor cores: of bfloat16, rows are copied in chunks
   of 16 bytes, which begin at multiples of 16. */
static bool multiplies_groups_on_tensor_cores(const struct op *of, int rank)
{
  enum { UNIT = 8 };
  bool is_grouped = of->kind == OP_grouped_linear || of->kind == OP_grouped_linear_back_input ||
                    of->kind == OP_grouped_linear_back_weight;
  if (!is_grouped || !target->tensor_cores) return false;
  const int operand[] = {of->in[0], of->in[1], of->out};
  for (int i = 0; i < 3; i++) {
    struct shape here = local_shape(operand[i], rank == NONE ? 0 : rank);
    bool is_sum = i == 2 && of->kind == OP_grouped_linear_back_weight; /* it may be float32 */
    if ((!is_sum && graph->value[operand[i]].type != BF16) || here.size[here.ndim - 1] % UNIT ||
        alignment_of(operand[i], rank) < UNIT * type_bytes(BF16))
      return false;
  }
  return true;
}

const char *kernel_variant(const struct op *of, int rank)
{
  return multiplies_groups_on_tensor_cores(of, rank) ? "_mma" : attention_variant(of, rank);
}

/* The file's text, or NULL if the plan names none, or the operator has none for the target. */
const char *kernel_file(const struct op *of, int rank)
{
  if (of->kind == OP_custom) return graph->custom[of->custom].kernel[target->language];
  const char *file = find_template(
      text("%s%s.%s", op_row[of->kind].name, kernel_variant(of, rank), target->source));
  return file && strstr(file, "#if $") ? made_text_for_options(of, file) : file;
}

/* ----------------------------------------------------------------------------- what it declares */

/* The operand for the functions' n-th parameter: the outputs come first. */
int operand_of_parameter(const struct op *of, int n)
{
  return n < of->nout ? of->nin + n : n - of->nout;
}

/* The name of operand i's parameter in the file. */
const char *kernel_parameter(const struct op *of, const char *file, int i)
{
  const char *c = strstr(file, "$name$(");
  if (!c) return "";
  c += strlen("$name$");
  for (int n = 0; n < of->nin + of->nout && (*c == '(' || *c == ','); n++) {
    const char *begin = ++c, *end = c += strcspn(c, ",)");
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    begin = end;
    while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') begin--;
    if (operand_of_parameter(of, n) == i) return text("%.*s", (int)(end - begin), begin);
  }
  return "";
}

static bool asks_for_steps(const struct op *of, int i)
{
  const char *file = kernel_file(of, NONE);
  return file && strstr(file, text("$step_%s_", kernel_parameter(of, file, i)));
}

bool takes_steps(const struct op *of, int i)
{
  enum { UNKNOWN, NO, YES };
  static unsigned char known[OP_COUNT][MAX_INPUTS + MAX_OUTPUTS];
  static const struct target *files_of;
  if (files_of != target) memset(known, UNKNOWN, sizeof known);
  files_of = target;
  if (of->kind == OP_custom || of->equation) return asks_for_steps(of, i);
  unsigned char *answer = &known[of->kind][i];
  if (*answer == UNKNOWN) *answer = asks_for_steps(of, i) ? YES : NO;
  return *answer == YES;
}
