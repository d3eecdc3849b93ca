/* optimizers.c: questions about optimizers. The operands of an update are numbered: 0 is the
   parameter, 1 its gradient; then come the states, the numbers, and the results of the steps. */
#include "ir/ir.h"

#include <string.h>

const struct optimizer *optimizer_of(const struct op *op)
{
  return &plan_options->optimizer[op->number[0]];
}

bool is_kernel_alone(const struct op *op)
{
  return op->kind == OP_update && !optimizer_of(op)->noperation;
}

int first_number_operand(const struct optimizer *o)
{
  return 2 + o->nstate;
}

int first_step_operand(const struct optimizer *o)
{
  return first_number_operand(o) + o->nnumber;
}

/* "optim.exp_avg." of a state's name. */
static size_t kind_length(int state)
{
  const char *name = graph->value[state].name, *dot = strchr(name, '.');
  return dot ? strcspn(dot + 1, ".") + (size_t)(dot + 1 - name) : strlen(name);
}

bool is_same_kind(int a, int b)
{
  size_t length = kind_length(a);
  return kind_length(b) == length && !strncmp(graph->value[a].name, graph->value[b].name, length);
}

struct list states_like(int state)
{
  int *of = alloc((size_t)(graph->nvalue + 1) * sizeof *of);
  struct list l = {0};
  for (int i = 0; i < graph->nvalue; i++) of[i] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == STATE && v->of != NONE && is_same_kind(i, state)) of[v->of] = i;
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (of[i] != NONE) add(&l, of[i]);
  return l;
}

static bool find_apart(int state)
{
  struct list like = states_like(state);
  bool *has = alloc((size_t)graph->nvalue + 1);
  for (int k = 0; k < like.n; k++) {
    const struct value *v = &graph->value[like.at[k]];
    if (!same_shape(v->shape, graph->value[v->of].shape)) return true;
    has[v->of] = true;
  }
  for (int i = 0; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    if (op->kind == OP_update && !op->nbody && !has[op->in[0]]) return true;
  }
  return false;
}

bool is_apart(int state)
{
  static struct memo known;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_piece(&q, graph->value[state].name, kind_length(state));
  bool *apart = answer_to(&known, &q, sizeof *apart, &is_new);
  if (is_new) *apart = find_apart(state);
  return *apart;
}

int inputs_of_row(enum op_kind kind)
{
  static const char *const rules[] = {"...->...", "...,...->...", "...,...,...->..."};
  const struct op_row *row = &op_row[kind];
  if (!*row->element || *row->numbers || strstr(row->element, "$s")) return 0;
  if (kind == OP_running || kind == OP_in_training) return 0;
  if (row->type && !strncmp(row->type, "given", 5)) return 0;
  for (int n = 0; n < 3; n++)
    if (!strncmp(row->rule, rules[n], strlen(rules[n]))) return n + 1;
  return 0;
}

int inputs_of_step(enum op_kind kind)
{
  switch (kind) {
  case OP_sum:
  case OP_amax:
  case OP_amin:
  case OP_permute:
  case OP_cast:
  case OP_redistribute:
  case OP_scan_stack:
  case OP_scan_take:
    return 1;
  case OP_matmul:
    return 2;
  default:
    return inputs_of_row(kind);
  }
}

bool kernel_takes(const struct optimizer *o, int operand)
{
  for (int s = o->noperation; s < o->nstep; s++)
    if (lists_number(o->step[s].in, inputs_of_row(o->step[s].kind), operand)) return true;
  for (int k = 0; k <= o->nstate; k++)
    if (o->out[k] == operand && !(k && (o->ones[k - 1] || operand == 1 + k))) return true;
  return false;
}

bool kernel_has_array(const struct optimizer *o, int operand)
{
  bool is_state = operand > 1 && operand < first_number_operand(o);
  if (is_state && o->ones[operand - 2]) return false;
  bool written = operand == 0 || (is_state && o->out[operand - 1] != operand);
  return written || kernel_takes(o, operand);
}

bool update_takes(const struct optimizer *o, int operand)
{
  for (int k = 0; k < o->nstate; k++)
    if (o->ones[k] && o->out[1 + k] == operand) return true;
  return kernel_takes(o, operand);
}

bool is_kernel_number(const struct optimizer *o, int number)
{
  return o->number[number].text && kernel_takes(o, first_number_operand(o) + number);
}
