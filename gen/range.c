/* range.c: between which numbers the elements of a tensor of whole numbers lie.

   Takes   the graph as it is while the plan is read.
   Leaves  nothing: what randint and tokens declare of an input, followed through the operations
           that keep, choose or compute whole numbers. The runtime holds a file to what is declared,
           so that what follows from it is so at run time. */
#include "tpgen.h"

#include <math.h>

#include <lauxlib.h>
#include <lua.h>

/* Of an operation that is asked, so many of those before it: what is further away is not known. */
enum { MOST_ASKED = 64 };

static const struct range unknown = {INT64_MIN, INT64_MAX};

static bool is_known(struct range r)
{
  return r.low > INT32_MIN - (int64_t)1 && r.high < INT32_MAX + (int64_t)1;
}

/* What int32 cannot hold may have become anything. */
static struct range between(int64_t low, int64_t high)
{
  struct range r = {low, high};
  return is_known(r) ? r : unknown;
}

static int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

static struct range either(struct range a, struct range b)
{
  return between(least(a.low, b.low), most(a.high, b.high));
}

/* The end of randint is not among its numbers, nor is that of tokens. */
struct range declared_range(int value)
{
  const struct value *v = &graph->value[value];
  if (v->type == BOOL) return between(0, 1);
  if (v->role != BATCH || is_floating(v->type)) return unknown;
  if (v->init.kind == INIT_TOKENS) return between(0, (int64_t)v->init.a - 1);
  if (v->init.kind != INIT_UNIFORM) return unknown; /* a file may hold anything */
  return between((int64_t)v->init.a, (int64_t)v->init.b - 1);
}

static struct range product(struct range a, struct range b)
{
  int64_t p = a.low * b.low, q = a.low * b.high, r = a.high * b.low, s = a.high * b.high;
  return between(least(least(p, q), least(r, s)), most(most(p, q), most(r, s)));
}

/* where(x < y, x, y) is the lesser of the two, where(x > y, x, y) the greater. */
static struct range chosen(const struct op *op, struct range a, struct range b)
{
  int made_by = graph->value[op->in[0]].op;
  const struct op *by = made_by == NONE ? NULL : &graph->op[made_by];
  bool of_both = by && by->nin == 2 && by->in[0] == op->in[1] && by->in[1] == op->in[2];
  if (of_both && (by->kind == OP_lt || by->kind == OP_le))
    return between(least(a.low, b.low), least(a.high, b.high));
  if (of_both && (by->kind == OP_gt || by->kind == OP_ge))
    return between(most(a.low, b.low), most(a.high, b.high));
  return either(a, b);
}

static struct range range_within(int value, int *asked);

static struct range range_of_made(const struct op *op, int *asked)
{
  static const struct range zero = {0, 0};
  struct range in[MAX_INPUTS];
  for (int k = 0; k < op->nin; k++) in[k] = range_within(op->in[k], asked);
  switch (op->kind) {
  case OP_view:
  case OP_permute:
  case OP_cast:
  case OP_narrow:
  case OP_every:
  case OP_redistribute:
  case OP_gather:
  case OP_index_select:
  case OP_embedding:
  case OP_amax:
  case OP_amin:
    return in[0];
  case OP_expand:
    return op->scalar == 1 ? in[0] : unknown;
  case OP_pad:
  case OP_spread:
  case OP_place:
  case OP_tril:
  case OP_triu:
  case OP_relu:
    return either(in[0], zero);
  case OP_cat:
    for (int k = 1; k < op->nin; k++) in[0] = either(in[0], in[k]);
    return in[0];
  case OP_where:
    return chosen(op, in[1], in[2]);
  case OP_full:
    return op->scalar == floor(op->scalar) && fabs(op->scalar) < INT32_MAX
               ? between((int64_t)op->scalar, (int64_t)op->scalar)
               : unknown;
  case OP_index:
    return between(0, graph->value[op->out].shape.size[0] - 1);
  case OP_argsort:
  case OP_argmax:
    for (int d = 0; d < MAX_DIMS; d++)
      if (op->dims >> d & 1) return between(0, graph->value[op->in[0]].shape.size[d] - 1);
    return unknown;
  case OP_neg:
    return is_known(in[0]) ? between(-in[0].high, -in[0].low) : unknown;
  case OP_add:
    return is_known(in[0]) && is_known(in[1])
               ? between(in[0].low + in[1].low, in[0].high + in[1].high)
               : unknown;
  case OP_sub:
    return is_known(in[0]) && is_known(in[1])
               ? between(in[0].low - in[1].high, in[0].high - in[1].low)
               : unknown;
  case OP_mul:
    return is_known(in[0]) && is_known(in[1]) ? product(in[0], in[1]) : unknown;
  default:
    return unknown;
  }
}

static struct range range_within(int value, int *asked)
{
  const struct value *v = &graph->value[value];
  if (is_floating(v->type) || ++*asked > MOST_ASKED) return unknown;
  if (v->op == NONE || v->type == BOOL) return declared_range(value);
  return range_of_made(&graph->op[v->op], asked);
}

struct range range_of(int value)
{
  int asked = 0;
  return range_within(value, &asked);
}

/* may_be(tensor of whole numbers, number): whether an element may be the number, as far as is
   known. It depends on more than the tensor's shape and type: the call is not replayed. */
static int may_be(lua_State *L)
{
  struct range r = range_of(argument_value(L, 1));
  int64_t number = luaL_checkinteger(L, 2);
  call_is_unlike();
  lua_pushboolean(L, number >= r.low && number <= r.high);
  return 1;
}

void set_range_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"may_be", may_be}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
