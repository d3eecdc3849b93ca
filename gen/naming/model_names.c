/* model_names.c: the model's name for a value, without the function that uses it: the name that its
   module gives, and a suffix that distinguishes it from others of that name. */
#include "naming/naming.h"

#include <stdlib.h>
#include <string.h>

bool is_buffer(int value)
{
  const struct value *v = &graph->value[value];
  return v->op != NONE && graph->op[v->op].packed && graph->op[v->op].buffer == value;
}

int viewed_value(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE) return NONE;
  enum op_kind kind = graph->op[v->op].kind;
  int storage = storage_of(value);
  bool in_bucket = kind == OP_all_reduce && storage != value && is_buffer(storage);
  if (kind != OP_view && !in_bucket) return NONE;
  int in = graph->op[v->op].in[0];
  return same_place(in, value) ? in : NONE;
}

/* The name of a value in its loop's body: relative to the module. "layers.1.wq", with "layers"
   the list, is "wq"; the module's output is "out", and its input "in". */
static const char *name_in_module(int value, bool in_body)
{
  const struct in_loop *loop = in_loop(value);
  const struct in_loop *first = loop->stack == NONE ? NULL : in_loop(loop->stack);
  if (!in_body || !first || (loop->stack != value && !loop->step) || first->sibling == NONE)
    return value_name(value);
  const char *name = value_name(first->sibling), *mark = strncmp(name, "d_", 2) ? "" : "d_";
  const char *list = graph->module[first->list].path;
  char *prefix = text("%s%s%s", mark, list, *list ? "." : "");
  if (strncmp(name, prefix, strlen(prefix))) return value_name(value);
  char *rest;
  long number =
      strtol(name + strlen(prefix), &rest, 10) - first_of_loop(loop->stack) - 1 + loop->step;
  if (*rest == '.' && number == 0) return text("%s%s", mark, rest + 1);
  if ((*rest == 0 || *rest == '_') && (number == 0 || number == -1))
    return text("%s%s%s", mark, number ? "in" : "out", rest);
  return value_name(value);
}

/* The meaning of a value without a name of its own in the functions of plans that have such values,
   or NULL: "target_logit", where its operator would say "gather". */
static const char *idea_of(const struct op *op)
{
  static const struct {
    const char *function;
    enum op_kind kind, of; /* the operator, and that of its last input; OP_COUNT: any */
    const char *name;
  } ideas[] = {{"rotary_tables", OP_cast, OP_index, "positions"},
               {"rotary_tables", OP_div, OP_pow, "inverse_frequencies"},
               {NULL, OP_neg, OP_sin, "minus_sine"},
               {"cross_entropy", OP_gather, OP_COUNT, "target_logit"},
               {"cross_entropy", OP_amax, OP_COUNT, "largest_logit"},
               {"cross_entropy", OP_sum, OP_exp, "sum_of_exponentials"},
               {"cross_entropy", OP_sum, OP_cast, "label_count"},
               {"nll_loss", OP_sum, OP_cast, "label_count"}};
  int maker = op->nin ? graph->value[op->in[op->nin - 1]].op : NONE; /* of the last input */
  enum op_kind of = maker == NONE ? OP_COUNT : graph->op[maker].kind;
  for (size_t i = 0; i < sizeof ideas / sizeof *ideas; i++) {
    bool same = !ideas[i].function || (op->part_of && !strcmp(op->part_of, ideas[i].function));
    if (!same || op->kind != ideas[i].kind || !op->nin || op->phase == BACKWARD) continue;
    if (ideas[i].of == OP_COUNT || ideas[i].of == of) return ideas[i].name;
  }
  return NULL;
}

const char *model_name(int value, bool in_body)
{
  while (viewed_value(value) != NONE) value = viewed_value(value);
  const struct value *v = &graph->value[value];
  const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
  const char *idea = *v->name || !op ? NULL : idea_of(op);
  if (idea) return idea;
  bool is_moved = op && op->nin && (is_collective(op->kind) || op_row[op->kind].step);
  if (is_moved && !strcmp(v->name, value_name(op->in[0]))) return model_name(op->in[0], in_body);
  const char *name = name_in_module(value, in_body);
  /* Whether it belongs to the making of a gradient and has only its module's name. */
  bool is_on_the_way = op && op->phase == BACKWARD && !op->recomputed && op->module != NONE &&
                       *v->name && !strcmp(v->name, graph->module[op->module].path);
  return is_on_the_way ? text("%s.%s", name, op_name(&graph->op[v->op])) : name;
}

const char *name_in_list(int value)
{
  const struct in_loop *loop = in_loop(value);
  return model_name(value, loop->stack == value && loop->sibling != NONE);
}

const char *moved_suffix(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || is_buffer(value)) return "";
  const struct op *op = &graph->op[v->op];
  if (op->kind == OP_exchange && holds_pieces(value)) return "_pieces";
  if (is_collective(op->kind)) return collective_row[op->kind].suffix;
  if (op_row[op->kind].suffix) return op_row[op->kind].suffix;
  return strcmp(op_name(op), "reorder") ? "" : "_reordered";
}
