/* time_entry.c: a part of the pass cut_time: operations that are added to an entry, and the values
   of the whole text as an entry has them. */
#include "graph_passes/graph_passes.h"

#include <string.h>

struct op op_in_entry(const struct entry *e, const struct op *origin, struct op op)
{
  op.module = origin->module == NONE ? NONE : e->module[origin->module];
  op.line = origin->line;
  op.part_of = origin->part_of;
  op.node = origin->node;
  op.phase = e->phase;
  return op;
}

int view_in_entry(const struct entry *e, const struct op *origin, int value, struct shape shape)
{
  if (same_shape(graph->value[value].shape, shape)) return value;
  const char *rule = view_equation(graph->value[value].shape, shape, origin->line);
  return append_op_shaped(
      op_in_entry(e, origin,
                  (struct op){.kind = OP_view, .nin = 1, .in = {value}, .equation = rule}),
      shape);
}

int number_in_entry(const struct entry *e, const struct op *origin, double number, enum type type)
{
  const struct op op = {.kind = OP_full, .type = type, .scalar = number};
  return append_op_shaped(op_in_entry(e, origin, op), (struct shape){0});
}

int selected_in_entry(const struct entry *e, const struct op *origin, int value, int dim, int index)
{
  return append_op(op_in_entry(
      e, origin,
      (struct op){.kind = OP_index_select, .nin = 2, .in = {value, index}, .dims = 1u << dim}));
}

/* The value in a form; it is made before. */
int value_in_form(const struct cutting *c, struct entry *e, const struct op *reader, int value,
                  int form)
{
  if (value >= c->known) return value;
  const struct value *v = &graph->value[value];
  if (e->last == NONE && form == OF_LAST && c->along[value].dim != NONE) form = OF_ALL;
  if (e->last == NONE && form >= AT_LAST) form += AT_ALL - AT_LAST;
  int *made = &e->made[value][form];
  if (*made != NONE) return *made;
  if (c->along[value].dim != NONE && form == OF_LAST && e->made[value][OF_ALL] != NONE)
    return *made =
               selected_in_entry(e, reader, e->made[value][OF_ALL], c->along[value].dim, e->last);
  if (c->along[value].dim == NONE && form == ENTIRE && v->op == NONE) return *made = value;
  if (c->along[value].dim == NONE && form >= AT_ALL) {
    const bool last = form >= AT_LAST;
    const int whole = value_in_form(c, e, reader, value, ENTIRE);
    return *made = selected_in_entry(e, reader, whole, form - (last ? AT_LAST : AT_ALL),
                                     e->position[last]);
  }
  bug("cut_time", "%s is read before it is made", printable(value_name(value)));
}

/* The value with its dimensions in another order; a view, if only those of one element move. */
int permuted_in_entry(const struct entry *e, const struct op *origin, int value, const char *rule)
{
  const struct shape from = graph->value[value].shape;
  struct shape to = {.ndim = from.ndim};
  const char *order = strstr(rule, "->") + 2;
  bool moves = false;
  for (int d = 0, last = NONE; d < from.ndim; d++) {
    const int at = order[d] - 'a';
    to.size[d] = from.size[at];
    if (to.size[d] == 1) continue;
    moves |= at < last;
    last = at;
  }
  if (!moves) return view_in_entry(e, origin, value, to);
  return append_op(op_in_entry(
      e, origin, (struct op){.kind = OP_permute, .nin = 1, .in = {value}, .equation = rule}));
}

/* A rule that moves one dimension: "abcd->dabc" for the last one to the front. */
static const char *moving(int ndim, int from, int to)
{
  struct buffer b = {0};
  for (int d = 0; d < ndim; d++) put(&b, "%c", 'a' + d);
  put(&b, "->");
  for (int d = 0, at = 0; d < ndim; d++) {
    if (at == from) at++;
    put(&b, "%c", 'a' + (d == to ? from : at++));
  }
  return b.text;
}

/* The value as rows of tokens: [sequences, their tokens, all else]. */
static int rows_of_tokens(const struct entry *e, const struct op *origin, int value, int dim,
                          int64_t sequences)
{
  struct shape shape = graph->value[value].shape;
  const int64_t tokens = shape.size[dim];
  if (dim) value = permuted_in_entry(e, origin, value, moving(shape.ndim, dim, 0));
  const struct shape rows = {.ndim = 3,
                             .size = {sequences, tokens / sequences, elements(shape) / tokens}};
  return view_in_entry(e, origin, value, rows);
}

int rows_in_entry(const struct entry *e, const struct op *origin, int value, int dim)
{
  return rows_of_tokens(e, origin, value, dim, e->last == NONE ? e->tokens : 1);
}

/* And back: so many tokens of each sequence, as in the shape, which has the call's tokens. */
int from_rows_in_entry(const struct entry *e, const struct op *origin, int rows, struct shape shape,
                       int dim)
{
  struct shape first = {.ndim = shape.ndim, .size = {shape.size[dim]}};
  for (int d = 0, at = 1; d < shape.ndim; d++)
    if (d != dim) first.size[at++] = shape.size[d];
  const int value = view_in_entry(e, origin, rows, first);
  return dim ? permuted_in_entry(e, origin, value, moving(shape.ndim, 0, dim)) : value;
}

int add_state_cache(const struct op *op, const char *name, struct shape shape, enum type type,
                    const struct cutting *c, const char *why)
{
  const char *path = op->module == NONE ? "" : graph->module[op->module].path;
  const char *full = text("%s%s%s", path, *path ? "." : "", name);
  for (int i = 2, again = 1; again; i++) { /* a module may have several */
    again = 0;
    for (int v = c->known; v < graph->nvalue && !again; v++)
      again = graph->value[v].role == CACHE && !strcmp(graph->value[v].name, full);
    if (again) full = text("%s%s%s_%d", path, *path ? "." : "", name, i);
  }
  const int cache =
      add_value(CACHE, full, type, shape, op->module == NONE ? 0 : op->module, op->line);
  graph->value[cache].why = why;
  return cache;
}

const char *reader_name(const struct op *op)
{
  return printable(op->part_of ? op->part_of : op_name(op));
}

const char *kept_value_name(int value)
{
  const int op = graph->value[value].op;
  const char *shape = shape_text(graph->value[value].shape);
  return op == NONE ? shape : text("%s %s", reader_name(&graph->op[op]), shape);
}

const char *kept_for(struct cutting *c, const struct op *reader, const char *what)
{
  const char *instead = c->instead[c->reader];
  c->instead[c->reader] = ""; /* once */
  return text("%s of all earlier tokens, for %s%s", what, reader_name(reader), instead);
}

/* Floats are kept in float32, whole numbers and truths as such. */
static enum type type_of_state(int value)
{
  const enum type type = graph->value[value].type;
  return is_floating(type) ? F32 : type;
}

/* The cache of a value's last tokens, or of its sum so far, for both entries. A call of the first
   one may write as many tokens as it has, and the last ones may be padding: those that the
   next call reads are still there. */
int cache_of_value(struct cutting *c, const struct op *origin, int value, const char *name,
                   int64_t back, int64_t width, int64_t each, const char *why)
{
  int *kept = &c->kept[value];
  const struct shape shape = {
      .ndim = each > 1 ? 4 : 3,
      .size = {plan_options->generate.slots, back + plan_options->generate.prefill, width, each}};
  if (*kept == NONE) *kept = add_state_cache(origin, name, shape, type_of_state(value), c, why);
  return *kept;
}

/* The rows of the value's tokens in this call, after those of the `back` tokens before. */
int recent_in_entry(struct cutting *c, const struct entry *e, const struct op *origin, int value,
                    int made, int64_t back)
{
  const int x = rows_in_entry(e, origin, made, c->along[value].dim);
  struct shape shape = graph->value[x].shape;
  const int cache = cache_of_value(
      c, origin, value, "recent", back, shape.size[2], 1,
      text("the last tokens, which %s reads: %lld", reader_name(origin), (long long)back));
  shape.size[1] += back;
  struct op op = {.kind = OP_recent, .nin = 4, .in = {x, cache, e->slot, e->start}};
  return append_op_shaped(op_in_entry(e, origin, op), shape);
}

int cast_in_entry(const struct entry *e, const struct op *origin, int made, int like)
{
  const enum type type = graph->value[like].type;
  if (graph->value[made].type == type) return made;
  const struct op op = {.kind = OP_cast, .nin = 1, .in = {made}, .type = type};
  return append_op(op_in_entry(e, origin, op));
}

/* The value that a reader takes, at the call's own tokens: of a value with a lead, the element that
   so many tokens before have. */
int tokens_of_call(struct cutting *c, struct entry *e, const struct op *reader, int value, int form)
{
  const struct token_axis a = c->along[value];
  if (value >= c->known || !a.lead || is_reshaped(reader))
    return value_in_form(c, e, reader, value, form);
  int *settled = &e->settled[value];
  if (*settled == NONE) {
    const int made = value_in_form(c, e, reader, value, OF_ALL);
    const int rows = recent_in_entry(c, e, reader, value, made, a.lead);
    struct shape shape = graph->value[rows].shape;
    shape.size[1] -= a.lead;
    const struct op first = {.kind = OP_narrow, .nin = 1, .in = {rows}, .dims = 2};
    const int y = append_op_shaped(op_in_entry(e, reader, first), shape);
    *settled = cast_in_entry(
        e, reader, from_rows_in_entry(e, reader, y, graph->value[made].shape, a.dim), value);
  }
  if (form != OF_LAST || e->last == NONE) return *settled;
  return selected_in_entry(e, reader, *settled, a.dim, e->last);
}

/* The rule with the letter in front of an operand: of matmul. */
static const char *with_letter(const char *rule, int operand, char letter)
{
  const char *c = rule;
  for (int i = 0; i < operand; i++)
    while (*c && *c++ != ',') continue;
  return text("%.*s%c%s", (int)(c - rule), rule, letter, c);
}

/* The value's tokens of all calls from its cache: [slots, context, all else]. */
static int rows_of_all_calls(struct cutting *c, struct entry *e, const struct op *reader, int v)
{
  if (e->gathered[v] != NONE) return e->gathered[v];
  const int made = tokens_of_call(c, e, reader, v, OF_ALL);
  const int x = rows_in_entry(e, reader, made, c->along[v].dim);
  struct shape shape = graph->value[x].shape;
  shape.size[1] = c->length;
  if (c->kept[v] == NONE) {
    /* What is compared, as the numbers of documents, is not rounded. */
    const bool is_short = number_of(&graph->op[c->text], "bfloat16") &&
                          is_floating(graph->value[v].type) && reader->kind == OP_matmul;
    struct shape cache = shape;
    cache.size[0] = plan_options->generate.slots;
    const char *why = kept_for(c, reader, kept_value_name(v));
    const int over = (int)number_of(&graph->op[c->text], "over") - 1;
    c->kept[v] =
        add_state_cache(reader, "tokens", cache, is_short ? BF16 : type_of_state(v), c, why);
    if (over != NONE)
      graph->value[c->kept[v]].layout.on[over] = (struct placement){.kind = SHARD, .dim = 1};
  }
  const struct op all = {.kind = OP_all_tokens, .nin = 4, .in = {x, c->kept[v], e->slot, e->start}};
  return e->gathered[v] = append_op_shaped(op_in_entry(e, reader, all), shape);
}

/* The place in the context of each token of all calls, a slot's after another's. */
static int places_of_all(const struct cutting *c, struct entry *e, const struct op *reader,
                         int64_t slots)
{
  if (e->places != NONE) return e->places;
  const struct op index = {.kind = OP_index, .dims = 1, .type = I32};
  const int places = append_op_shaped(op_in_entry(e, reader, index),
                                      (struct shape){.ndim = 1, .size = {c->length}});
  const struct op expand = {.kind = OP_expand, .nin = 1, .in = {places}, .dims = 1, .scalar = 1};
  const int of_slots = append_op_shaped(op_in_entry(e, reader, expand),
                                        (struct shape){.ndim = 2, .size = {slots, c->length}});
  return e->places = view_in_entry(e, reader, of_slots,
                                   (struct shape){.ndim = 1, .size = {slots * c->length}});
}

/* The value of the tokens of all calls, in the place of its tokens: a slot's after another's. Of
   what is kept, or made again. */
static int value_of_all_calls(struct cutting *c, struct entry *e, const struct op *reader, int v)
{
  if (e->of_all[v] != NONE) return e->of_all[v];
  const int64_t slots = e->last == NONE ? e->tokens : 1;
  const int dim = c->along[v].dim;
  struct shape shape = graph->value[v].shape;
  shape.size[dim] = slots * c->length;
  if (!c->again[v]) {
    const int rows = rows_of_all_calls(c, e, reader, v);
    return e->of_all[v] =
               cast_in_entry(e, reader, from_rows_in_entry(e, reader, rows, shape, dim), v);
  }
  const struct op op = graph->op[graph->value[v].op]; /* a copy: operations are added */
  struct letters l;
  op_letters(&op, &l);
  const struct token_letter t = letter_of_tokens(c, &op, &l);
  struct op own = op;
  for (int k = 0; k < op.nin; k++) {
    const int d = dimension_having(&l, k, t.letter);
    if (c->along[op.in[k]].dim != NONE) {
      own.in[k] = value_of_all_calls(c, e, reader, op.in[k]);
      continue;
    }
    own.in[k] = value_in_form(c, e, &op, op.in[k], ENTIRE);
    if (d != NONE && slots > 1 && graph->value[op.in[k]].shape.size[d] > 1)
      own.in[k] = selected_in_entry(e, &op, own.in[k], d, places_of_all(c, e, reader, slots));
  }
  if (op.kind == OP_view)
    own.equation = view_equation(graph->value[own.in[0]].shape, shape, op.line);
  own = op_in_entry(e, &op, own);
  const int out = append_op_outputs(own, &shape, 1);
  graph->value[out].name = graph->value[v].name;
  return e->of_all[v] = out;
}

/* Input i of an operation on pairs of tokens: a value's elements for all keys of the context. In
   decode each slot is a query, and has keys of its own. */
int gathered_in_entry(struct cutting *c, struct entry *e, struct op *own, const struct op *op,
                      const struct letters *l, struct token_letter t, int i)
{
  const int v = op->in[i], dim = c->along[v].dim;
  const struct shape whole = graph->value[v].shape;
  const int64_t slots = e->last == NONE ? e->tokens : 1;
  if (slots == 1) return value_of_all_calls(c, e, op, v);
  const int rows = c->again[v] ? rows_of_tokens(e, op, value_of_all_calls(c, e, op, v), dim, slots)
                               : rows_of_all_calls(c, e, op, v);
  /* From [slots, context, the others] to those of the value, with the slots in front of them, for a
     product, or in the place of the one query. */
  const bool is_product = op->kind == OP_matmul;
  int query = 0;
  while (l->out[0][query].n != 1 || l->out[0][query].letter[0] != t.letter) query++;
  query -= graph->value[op->out].shape.ndim - whole.ndim;
  if (is_product ? whole.ndim == MAX_DIMS : query < 0 || whole.size[query] != 1)
    plan_error(op->line,
               "generate: %s combines tokens with keys in a way that only one slot can: slots = 1",
               printable(op_name(op)));
  struct shape from = {.ndim = 2, .size = {slots, c->length}};
  struct buffer order = {0}, rule = {0};
  put(&order, "%s", is_product ? "a" : "");
  for (int d = 0; d < whole.ndim; d++) {
    const bool of_query = !is_product && d == query;
    put(&order, "%c", d == dim ? 'b' : of_query ? 'a' : 'a' + from.ndim);
    if (d != dim && !of_query) from.size[from.ndim++] = whole.size[d];
  }
  for (int d = 0; d < from.ndim; d++) put(&rule, "%c", 'a' + d);
  put(&rule, "->%s", order.text);
  if (is_product) own->equation = with_letter(own->equation, i, l->name[t.letter]);
  return cast_in_entry(e, op, permuted_in_entry(e, op, view_in_entry(e, op, rows, from), rule.text),
                       v);
}
