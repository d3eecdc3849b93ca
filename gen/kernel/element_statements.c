/* element_statements.c: the statements that make the elements of a kernel, one for each operation
   (element.c has the expressions). It decides which elements get a variable, which are put into the
   expression that reads them, and which are stored. */
#include "kernel/kernel.h"

#include <ctype.h>
#include <string.h>

static bool reads(const struct op *op, int value)
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
      live[n] =
          k->stages.task[n].of_row && live[r] && reads(&graph->op[k->group->body[r]], op->out);
    if (live[n] && reads(op, value)) return true;
  }
  return false;
}

/* Whether one of the operations that are made with it reads it. */
static bool is_read(const struct kernel_builder *k, int value, const bool *made)
{
  for (int n = 0; n < k->group->nbody; n++)
    if (made[n] && reads(&graph->op[k->group->body[n]], value)) return true;
  return false;
}

/* Whether an element needs no name of its own: it has one, or is a number. */
static bool is_plain(const char *element)
{
  const char *c = element + strspn(element, "(1.0f / 23456789)");
  if (*element == '(' && !*c) return true; /* "(1.0f / 96)" */
  for (c = element; isalnum((unsigned char)*c) || *c == '_' || *c == '.';) c++;
  return !*c;
}

/* Whether the operation's expression has the value's element exactly once. */
static bool asks_once(const struct op *op, int value)
{
  int times = 0;
  for (const char *c = op_row[op->kind].element; (c = strchr(c, '$')); c++) {
    int i = c[1] - 'a';
    if (isalpha((unsigned char)c[2]) || i < 0 || i >= op->nin || op->in[i] != value) continue;
    times += c[2] == '(' ? 2 : 1;
  }
  return times == 1;
}

/* The number of operators in the expression, without those of indices. */
static int signs(const char *s)
{
  int depth = 0, n = 0;
  for (; *s; s++) {
    depth += (*s == '[') - (*s == ']');
    n += !depth && s[0] == ' ' && s[1] && s[2] == ' ';
  }
  return n;
}

/* Whether body[n]'s element is put, without a name, into the one expression that reads it: it is
   short and its operands are still valid there. */
static bool is_read_in_place(const struct kernel_builder *k, int n, const bool *made,
                             const char *element)
{
  enum { MOST_SIGNS = 4, LONGEST = 100 };
  const struct op *op = &graph->op[k->group->body[n]];
  bool one_element = kept_outside(&k->loops) == k->loops.n; /* all stages share what is made */
  bool of_row = k->stages.task[n].of_row, everywhere = of_row || one_element;
  int reader = NONE;
  if (graph->value[op->out].type != F32 || graph->value[op->out].stored) return false;
  if (signs(element) > MOST_SIGNS || strlen(element) > LONGEST) return false;
  for (int r = n + 1; r < k->group->nbody; r++) {
    if ((!made[r] && !everywhere) || !reads(&graph->op[k->group->body[r]], op->out)) continue;
    if (reader != NONE || !made[r] || k->stages.task[r].of_row != of_row) return false;
    reader = r;
  }
  if (reader == NONE || !asks_once(&graph->op[k->group->body[reader]], op->out)) return false;
  bool reduces = is_reduce(graph->op[k->group->body[reader]].kind);
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
const char *named_element(struct code *c, struct kernel_builder *k, const struct op *op,
                          const char *element)
{
  if (is_plain(element)) {
    name_temporary(k, op->out, element);
    return element;
  }
  const char *preferred = op->kind == OP_expand ? "scale" : op_name(op);
  const char *stored = argument_if_any(k, op->out), *type = c_type(graph->value[op->out].type);
  bool taken = strcmp(free_name(k, preferred), spared_name(preferred)) != 0;
  const char *name =
      new_temporary(k, op->out, stored && taken ? text("new_%s", stored) : preferred);
  add_declaration(c, text("const %s", type), name, element);
  return name;
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
    const char *element = element_text(c, k, op);
    bool read = of_row ? is_read_by_rows(k, op->out) : is_read(k, op->out, made);
    if (read && is_read_in_place(k, n, made, element))
      name_temporary(k, op->out, element);
    else if (read)
      element = named_element(c, k, op, element);
    if (out->stored)
      add_assignment(add_condition(c, of_row ? k->guard : ""), output_text(k, op), element);
  }
}
