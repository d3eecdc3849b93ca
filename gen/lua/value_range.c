/* value_range.c: the range of the elements of an integer tensor, and which of them must be checked
   before they are used as indices.

   Takes   the graph while the plan is read: the ranges that randint and tokens declare of inputs,
           followed through the operations that keep, choose or compute integers. The runtime checks
           that a file is within its declared range, so that the derived ranges hold at run time.
   Leaves  graph->index_use: for an input that may be out of range, a check when the runtime fills
           it; for computed indices, an operation index_within in the step. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <math.h>
#include <string.h>

/* A query visits at most this many earlier operations: beyond, the range is unknown. */
enum { MOST_ASKED = 64 };

static const struct range unknown = {.low = INT64_MIN, .high = INT64_MAX};

static bool is_range_known(struct range r)
{
  return r.low > INT32_MIN - (int64_t)1 && r.high < INT32_MAX + (int64_t)1;
}

/* A range that int32 cannot hold becomes unknown. */
static struct range between(int64_t low, int64_t high)
{
  struct range r = {.low = low, .high = high};
  return is_range_known(r) ? r : unknown;
}

static int64_t value_range_lower(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t upper(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static struct range either(struct range a, struct range b)
{
  return between(value_range_lower(a.low, b.low), upper(a.high, b.high));
}

static struct range product(struct range a, struct range b)
{
  int64_t p = a.low * b.low, q = a.low * b.high, r = a.high * b.low, s = a.high * b.high;
  return between(value_range_lower(value_range_lower(p, q), value_range_lower(r, s)),
                 upper(upper(p, q), upper(r, s)));
}

/* where(x < y, x, y) is the lesser of the two, where(x > y, x, y) the greater. */
static struct range chosen(const struct op *op, struct range a, struct range b)
{
  int made_by = graph->value[op->in[0]].op;
  const struct op *by = made_by == NONE ? NULL : &graph->op[made_by];
  bool of_both = by && by->nin == 2 && by->in[0] == op->in[1] && by->in[1] == op->in[2];
  if (of_both && (by->kind == OP_lt || by->kind == OP_le))
    return between(value_range_lower(a.low, b.low), value_range_lower(a.high, b.high));
  if (of_both && (by->kind == OP_gt || by->kind == OP_ge))
    return between(upper(a.low, b.low), upper(a.high, b.high));
  return either(a, b);
}

static struct range range_of_made(const struct op *op, const struct range *in)
{
  static const struct range zero = {.low = 0};
  struct range all;
  enum elements elements = op_row[op->kind].elements;
  if (elements == ALL_OF_FIRST || elements == SOME_OF_FIRST) return in[0];
  if (elements == SOME_OR_ZERO) return either(in[0], zero);
  switch (op->kind) {
  case OP_amax:
  case OP_amin:
    return in[0];
  case OP_expand:
    return op->scalar == 1 ? in[0] : unknown;
  case OP_relu:
    return either(in[0], zero);
  case OP_cat:
    all = in[0];
    for (int k = 1; k < op->nin; k++) all = either(all, in[k]);
    return all;
  case OP_index_within: /* -1, an index, or what is ignored */
    return is_range_known(in[0])
               ? either(in[0], (struct range){.low = -1, .high = -1})
               : between(value_range_lower(-1, number_of(op, "ignored")),
                         upper(number_of(op, "below") - 1, number_of(op, "ignored")));
  case OP_where:
    return chosen(op, in[1], in[2]);
  case OP_full:
    return op->scalar == floor(op->scalar) && fabs(op->scalar) < INT32_MAX
               ? between((int64_t)op->scalar, (int64_t)op->scalar)
               : unknown;
  case OP_documents: /* each number is below the number of tokens */
    return between(0,
                   graph->value[op->in[0]].shape.size[graph->value[op->in[0]].shape.ndim - 1] - 1);
  case OP_index:
    return between(0, graph->value[op->out].shape.size[0] - 1);
  case OP_argsort:
  case OP_argmax:
  case OP_cummax: /* the second output: the first one is of floats */
    for (int d = 0; d < MAX_DIMS; d++)
      if (op->dims >> d & 1) return between(0, graph->value[op->in[0]].shape.size[d] - 1);
    return unknown;
  case OP_neg:
    return is_range_known(in[0]) ? between(-in[0].high, -in[0].low) : unknown;
  case OP_add:
    return is_range_known(in[0]) && is_range_known(in[1])
               ? between(in[0].low + in[1].low, in[0].high + in[1].high)
               : unknown;
  case OP_sub:
    return is_range_known(in[0]) && is_range_known(in[1])
               ? between(in[0].low - in[1].high, in[0].high - in[1].low)
               : unknown;
  case OP_mul:
    return is_range_known(in[0]) && is_range_known(in[1]) ? product(in[0], in[1]) : unknown;
  default:
    return unknown;
  }
}

/* Whether the output reaches both ends of its range, and whether each element does, as far as that
   is certain; `in` are the ranges of the inputs. */
static void find_taken(const struct op *op, const struct range *in, struct range *made)
{
  bool constant[2] = {in[0].uniform && in[0].low == in[0].high,
                      in[1].uniform && in[1].low == in[1].high};
  enum elements elements = op_row[op->kind].elements;
  if (elements == ALL_OF_FIRST || op->kind == OP_expand || op->kind == OP_neg) {
    made->taken = in[0].taken;
    made->uniform = in[0].uniform;
  }
  if (elements == SOME_OF_FIRST) made->taken = made->uniform = in[0].uniform;
  switch (op->kind) {
  case OP_cat:
    made->taken = true;
    for (int k = 0; k < op->nin; k++) made->taken &= in[k].taken;
    break;
  case OP_add:
  case OP_sub:
  case OP_mul:
    made->taken = (constant[0] && in[1].taken) || (constant[1] && in[0].taken);
    made->uniform = (constant[0] && in[1].uniform) || (constant[1] && in[0].uniform);
    break;
  case OP_full:
  case OP_argmax:
    made->taken = made->uniform = true;
    break;
  case OP_index:
  case OP_argsort:
    made->taken = true;
    break;
  default:
    break;
  }
  made->taken &= is_range_known(*made);
  made->uniform &= made->taken;
}

/* The numbers that files may hold of an input: the declared ones. Labels may be a number that their
   loss ignores, whatever the plan declares. */
static struct range range_of_input(int value)
{
  const struct value *v = &graph->value[value];
  struct range r = unknown;
  if (v->role != BATCH) return unknown;
  if (v->init.kind == INIT_TOKENS) r = between(0, (int64_t)v->init.a - 1);
  if (v->init.kind == INIT_UNIFORM) r = between((int64_t)v->init.a, (int64_t)v->init.b - 1);
  r.taken = r.uniform = is_range_known(r);
  for (int i = 0; i < graph->nindex_use && is_range_known(r); i++) {
    const struct index_use *use = &graph->index_use[i];
    if (use->input != value || !use->ignores) continue;
    if (use->ignored < r.low || use->ignored > r.high)
      r = either(r, between(use->ignored, use->ignored));
  }
  return r; /* unknown: a file may hold anything */
}

static struct range range_within(int value, int *asked)
{
  const struct value *v = &graph->value[value];
  if (is_floating(v->type) || ++*asked > MOST_ASKED) return unknown;
  if (v->op == NONE || v->type == BOOL) {
    if (v->type == BOOL) return between(0, 1);
    /* The end of randint is not among its numbers, nor is that of tokens. */
    return range_of_input(value);
  }
  const struct op *op = &graph->op[v->op];
  struct range in[MAX_INPUTS] = {{0}};
  for (int k = 0; k < op->nin; k++) in[k] = range_within(op->in[k], asked);
  struct range made = range_of_made(op, in);
  find_taken(op, in, &made);
  return made;
}

static struct range range_of(int value)
{
  int asked = 0;
  return range_within(value, &asked);
}

/* numbers_taken(integer tensor): the least and the greatest number that its elements can reach; or
   nothing, if that is not known or a condition of the plan's may prevent it. */
static int numbers_taken(lua_State *L)
{
  struct range r = range_of(argument_value(L, 1));
  call_is_unlike();
  if (!r.taken) return 0;
  lua_pushinteger(L, r.low);
  lua_pushinteger(L, r.high);
  return 2;
}

/* --------------------------------------------------------------------------- uses of indices */

/* Follows the value to the input whose elements it has, unchanged, all or those of one part. False
   if it is computed. */
static bool find_input(int value, struct index_use *use)
{
  bool is_part = false;
  for (; graph->value[value].op != NONE; value = graph->op[graph->value[value].op].in[0]) {
    const struct op *op = &graph->op[graph->value[value].op];
    bool reshapes =
        op->kind == OP_view || op->kind == OP_permute || (op->kind == OP_expand && op->scalar == 1);
    bool keeps = op->kind == OP_redistribute ||
                 (op->kind == OP_cast && !is_floating(graph->value[op->in[0]].type));
    if (op->kind == OP_narrow) {
      if (!is_part) use->part = graph->value[value].shape;
      is_part = true;
      for (int d = 0; d < use->part.ndim; d++)
        if (op->dims >> d & 1) use->first[d] += number_of(op, "start");
    } else if (!keeps && (!reshapes || is_part)) {
      return false;
    }
  }
  use->input = value;
  if (!is_part) use->part = graph->value[value].shape;
  return graph->value[value].role == BATCH && !is_floating(graph->value[value].type);
}

static bool is_always(int value, int64_t number)
{
  struct range r = range_of(value);
  return r.uniform && r.low == number && r.high == number;
}

/* The number that the runtime puts into labels, if a loss ignores this number, where a batch lacks
   samples. Where the plan says that batches may be smaller, it is one number for all losses, as
   each may ignore another one of the same labels. */
static int64_t filling_of(int64_t ignored)
{
  return plan_options->last_batch == LAST_SMALLER ? -100 : ignored;
}

static int input_filled(int value, int64_t ignored);

/* The one input that gives these operands their elements, if all other operands have only `ignored`
   or the number that fills labels up; or NONE. */
static int input_of_all(const int *in, int nin, int64_t ignored)
{
  int found = NONE;
  for (int k = 0; k < nin; k++) {
    if (is_always(in[k], ignored) || is_always(in[k], filling_of(ignored))) continue;
    const int input = input_filled(in[k], ignored);
    if (input == NONE || (found != NONE && found != input)) return NONE;
    found = input;
  }
  return found;
}

/* The input of whole numbers that gives the value its elements, in any order; some may be `ignored`
   or the number that fills labels up instead: if a sample of the input has only these, so has the
   value. NONE: no such input. */
static int input_filled(int value, int64_t ignored)
{
  const struct value *v = &graph->value[value];
  if (is_floating(v->type)) return NONE;
  if (v->op == NONE) return v->role == BATCH ? value : NONE;
  const struct op *op = &graph->op[v->op];
  const enum elements elements = op_row[op->kind].elements;
  if (op->kind == OP_where) return input_of_all(op->in + 1, op->nin - 1, ignored);
  if (op->kind == OP_cat) return input_of_all(op->in, op->nin, ignored);
  /* A number that is out of range ends the program. */
  const bool takes = elements == ALL_OF_FIRST || elements == SOME_OF_FIRST ||
                     (op->kind == OP_expand && op->scalar == 1) || op->kind == OP_index_within;
  return takes ? input_filled(op->in[0], ignored) : NONE;
}

/* Whether indices are computed of the input's numbers that are not checked, as the declared range
   fits. Files may then hold nothing else. */
static bool is_computed_with(int input)
{
  for (int i = 0; i < graph->nfitting_use; i++)
    if (graph->fitting_use[i].input == input && graph->fitting_use[i].below == 0) return true;
  return false;
}

/* Whether the labels may be the number that is ignored, whatever the plan declares: files give
   them, and the runtime fills them up where a smaller batch has no samples. */
static bool are_from_files(int value, int64_t ignored)
{
  const int input = input_filled(value, ignored);
  return input != NONE && (plan_options->last_batch == LAST_SMALLER || !is_computed_with(input));
}

/* filling(integer tensor, the number that labels ignore): the number that fills the labels up, if
   it is another one; or nothing. */
static int filling(lua_State *L)
{
  const int64_t ignored = luaL_checkinteger(L, 2), fills = filling_of(ignored);
  call_is_unlike();
  if (fills == ignored || !are_from_files(argument_value(L, 1), ignored)) return 0;
  lua_pushinteger(L, fills);
  return 1;
}

/* may_be(integer tensor, number that labels ignore): whether an element may be it, as far as is
   known. It depends on more than the tensor's shape and type: the call is not replayed. */
static int may_be(lua_State *L)
{
  struct range r = range_of(argument_value(L, 1));
  int64_t number = luaL_checkinteger(L, 2);
  call_is_unlike();
  lua_pushboolean(L, (number >= r.low && number <= r.high) ||
                         are_from_files(argument_value(L, 1), number));
  return 1;
}

/* Equal modules use indices at the same line: they share one record. */
static int number_of_use(const struct index_use *use)
{
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *u = &graph->index_use[i];
    bool same = u->line == use->line && !strcmp(u->what, use->what) && u->below == use->below &&
                u->ignores == use->ignores && u->ignored == use->ignored &&
                u->input == use->input && !memcmp(&u->part, &use->part, sizeof u->part) &&
                !memcmp(u->first, use->first, sizeof u->first);
    if (same) return i;
  }
  GROW(graph->index_use, graph->nindex_use, graph->index_use_room);
  graph->index_use[graph->nindex_use] = *use;
  return graph->nindex_use++;
}

/* Uses of the input whose declared range fits have to be checked, too, as its files may hold a
   label that is ignored. */
static void note_fitting_uses(int input)
{
  int kept = 0;
  for (int i = 0; i < graph->nfitting_use; i++) {
    const struct index_use use = graph->fitting_use[i];
    if (use.input == input && use.below > 0)
      number_of_use(&use);
    else
      graph->fitting_use[kept++] = use;
  }
  graph->nfitting_use = kept;
}

static void keep_fitting_use(const struct index_use *use)
{
  GROW(graph->fitting_use, graph->nfitting_use, graph->fitting_use_room);
  graph->fitting_use[graph->nfitting_use++] = *use;
}

/* Notes the inputs from whose numbers the value is computed: uses with a bound of 0. */
static void note_computed(int value, int *asked)
{
  const struct value *v = &graph->value[value];
  if (is_floating(v->type) || v->type == BOOL || ++*asked > MOST_ASKED) return;
  if (v->op == NONE) {
    if (v->role == BATCH) keep_fitting_use(&(struct index_use){.input = value});
    return;
  }
  const struct op *op = &graph->op[v->op];
  for (int k = 0; k < op->nin; k++) note_computed(op->in[k], asked);
}

/* The input that a smaller batch pads, and the number that pads it. */
static void note_padding(int value, const struct index_use *of)
{
  struct index_use use = *of;
  use.input = input_filled(value, use.ignored);
  use.below = 0;
  if (use.input == NONE) return;
  use.ignored = filling_of(use.ignored);
  use.part = graph->value[use.input].shape;
  memset(use.first, 0, sizeof use.first);
  number_of_use(&use);
}

/* index_use(tensor, below, ignored or nil, the function): its elements are used as indices. Returns
   the number of the use if index_within has to check them in the step; else nothing. */
static int index_use(lua_State *L)
{
  int value = argument_value(L, 1);
  struct index_use use = {.line = sandbox->line, .below = luaL_checkinteger(L, 2)};
  use.ignores = !lua_isnil(L, 3);
  use.ignored = use.ignores ? luaL_checkinteger(L, 3) : 0;
  const struct range r = range_of(value);
  call_is_unlike();
  const bool may_be_ignored = use.ignores && are_from_files(value, use.ignored);
  const bool fits = r.low >= 0 && r.high < use.below;
  use.what = copy_text(luaL_checkstring(L, 4));
  const bool is_input = find_input(value, &use);
  if (fits && may_be_ignored && is_computed_with(input_filled(value, use.ignored))) {
    note_padding(value, &use);
    return 0;
  }
  if (fits && !may_be_ignored) {
    int asked = 0;
    if (is_input)
      keep_fitting_use(&use);
    else
      note_computed(value, &asked);
    return 0;
  }
  if (use.ignores && (!is_input || filling_of(use.ignored) != use.ignored))
    note_padding(value, &use);
  if (!is_input) {
    use.input = NONE;
    use.part = (struct shape){0};
    memset(use.first, 0, sizeof use.first);
  }
  int number = number_of_use(&use);
  if (may_be_ignored) note_fitting_uses(input_filled(value, use.ignored));
  if (use.input != NONE) return 0;
  lua_pushinteger(L, number);
  return 1;
}

void set_range_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"may_be", may_be},
                                       {"numbers_taken", numbers_taken},
                                       {"index_use", index_use},
                                       {"filling", filling},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
