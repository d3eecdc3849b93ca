/* ops_table.c: the table of operators (ops.h), and questions that its rows answer. */
#include "ir/ir.h"

#include <stdarg.h>
#include <string.h>

void bug_at(const char *pass, int op, const char *format, ...)
{
  char where[512], what[3072];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (op < 0) bug(pass, "%s", what);
  bug_is_at(op);
  snprintf(where, sizeof where, "%s at operation %d (%s, line %d of the plan)", pass, op,
           op_row[graph->op[op].kind].name, graph->op[op].line);
  bug(where, "%s", what);
}

const struct op_row op_row[OP_COUNT] = {
#define OP(kind, way, linearity, back, attributes, expression, ...)                                \
  [OP_##kind] = {.name = #kind,                                                                    \
                 .rule = way,                                                                      \
                 .linear = linearity,                                                              \
                 .numbers = attributes,                                                            \
                 .element = expression,                                                            \
                 __VA_ARGS__},
#include "ir/ops.h"
#undef OP
};

const struct element_function element_function[] = {
#define FUNCTION(called, where, ...) {.name = #called, .header = where, __VA_ARGS__},
#include "ir/element_functions.h"
#undef FUNCTION
    {0}};

const struct expr *row_expr(enum op_kind k)
{
  static const struct expr *known[OP_COUNT];
  if (!known[k]) known[k] = expr(op_row[k].element);
  return known[k];
}

bool is_reduce(enum op_kind k)
{
  static _Thread_local enum {
    NOT_ASKED,
    NO,
    YES
  } known[OP_COUNT]; /* passes ask this for every operation */
  if (known[k] == NOT_ASKED) {
    bool has_reduced_rule = *op_row[k].element &&
                            !strncmp(op_row[k].rule, "...D->...", strlen("...D->...")) &&
                            op_row[k].rule[strlen("...D->...")] != 'D';
    known[k] = has_reduced_rule ? YES : NO;
  }
  return known[k] == YES;
}

bool is_pointwise(enum op_kind k)
{
  return *op_row[k].element && !is_reduce(k);
}

bool is_broadcast(enum op_kind k)
{
  const char *rule = op_row[k].rule;
  const char *type = rule + strspn(rule, ".,->"); /* of the output, as in `...,...->...:bool` */
  return !strncmp(rule, "...", 3) && (*type == 0 || *type == ':');
}

bool has_kernel(enum op_kind k)
{
  const struct op_row *row = &op_row[k];
  return *row->rule && !*row->element && !row->product && !row->copies;
}

bool is_attention(const struct op *op)
{
  return op->kind == OP_attention || op->kind == OP_attention_back ||
         op->kind == OP_attention_back_bias;
}

const char *rule_of(const struct op *op)
{
  if (op->kind == OP_custom) return graph->custom[op->custom].rule;
  return op->equation ? op->equation : op_row[op->kind].rule;
}

const char *linear_of(const struct op *op)
{
  return op->kind == OP_custom ? graph->custom[op->custom].linear : op_row[op->kind].linear;
}

/* The place, among the numbers of such an operation, of the one with this name; or NONE. */
static int place_of_number(enum op_kind kind, const char *name, size_t length)
{
  const char *c = op_row[kind].numbers;
  for (int i = 0; *c; i++, c += strspn(c, " ")) {
    size_t n = strcspn(c, " ");
    if (n == length && !strncmp(c, name, n)) return i;
    c += n;
  }
  return NONE;
}

int64_t number_if_any(const struct op *op, const char *name)
{
  int i = place_of_number(op->kind, name, strlen(name));
  return i == NONE ? 0 : op->number[i];
}

static int known_number(const struct op *op, const char *name)
{
  int i = place_of_number(op->kind, name, strlen(name));
  if (i == NONE) bug("ops", "%s has no number '%s'", op_row[op->kind].name, name);
  return i;
}

int64_t number_of(const struct op *op, const char *name)
{
  return op->number[known_number(op, name)];
}

void set_number(struct op *op, const char *name, int64_t number)
{
  op->number[known_number(op, name)] = number;
}

void copy_numbers(struct op *op, const struct op *from)
{
  const char *c = op_row[op->kind].numbers;
  memset(op->number, 0, sizeof op->number);
  for (int i = 0; *c; i++, c += strspn(c, " ")) {
    size_t n = strcspn(c, " ");
    int k = place_of_number(from->kind, c, n);
    if (k != NONE) op->number[i] = from->number[k];
    c += n;
  }
}

bool is_causal(const struct op *op)
{
  return number_of(op, "causal") || number_if_any(op, "places") == 1;
}

int64_t reach_of(const struct op *op)
{
  int64_t window = number_of(op, "window");
  return window ? window : number_if_any(op, "reach");
}

bool goes_around(const struct op *op, int mesh_dim)
{
  return number_if_any(op, "ring") == mesh_dim + 1;
}

bool is_block_of_keys(const struct op *op)
{
  return number_if_any(op, "ring") < 0;
}

const char *op_name(const struct op *op)
{
  if (op->kind == OP_custom) return graph->custom[op->custom].name;
  /* "abc->abc": from one order in memory to another (assign_dim_order.c), or out of a concat buffer
     (concat_buffers.c). */
  bool ops_table_keeps_dimensions = false;
  if (op->kind == OP_permute) {
    size_t n = strcspn(op->equation, "-");
    ops_table_keeps_dimensions = !strncmp(op->equation, op->equation + n + strlen("->"), n);
  }
  if (ops_table_keeps_dimensions)
    return graph->value[op->in[0]].order != graph->value[op->out].order ? "reorder" : "copy";
  bool is_mean = false;
  if (op->kind == OP_sum && op->scalar != 1) {
    struct shape s = graph->value[op->in[0]].shape;
    double n = 1;
    for (int d = 0; d < s.ndim; d++)
      if (op->dims >> d & 1) n *= (double)s.size[d];
    is_mean = op->scalar == 1 / n;
  }
  return is_mean ? "mean" : op_row[op->kind].name;
}

bool is_copy(enum op_kind k)
{
  return op_row[k].copies;
}

bool is_transfer(enum op_kind kind)
{
  return kind == OP_send || kind == OP_receive;
}

bool is_update(const struct op *op)
{
  return op_row[op->kind].updates;
}

bool draws_stream(enum op_kind kind)
{
  return kind != OP_custom && !strncmp(op_row[kind].numbers, "stream", strlen("stream"));
}

bool knows_step(const struct op *op)
{
  const char *element = op->kind == OP_custom ? "" : op_row[op->kind].element;
  bool knows = draws_stream(op->kind) || strstr(element, "$now");
  for (int k = 0; k < op->nbody; k++) knows |= knows_step(&graph->op[op->body[k]]);
  return knows;
}

/* Before outline the order has the operations, after it the functions. */
bool has_step_number(void)
{
  if (all_stages()) return all_stages()->has_step_number;
  bool has = step_has(knows_step);
  for (int at = 0; at < graph->norder && !has; at++) has = knows_step(&graph->op[graph->order[at]]);
  return has;
}

bool step_has(bool (*such)(const struct op *op))
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (such(&graph->op[graph->function[i].op[k]])) return true;
  return false;
}

bool is_of_last_batch(const struct op *op)
{
  return op->last_batch;
}
