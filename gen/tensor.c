/* tensor.c: tensors as a plan computes with them.

   A tensor is an index into graph->value, held by Lua as userdata. What a plan does with it adds an
   operation to the graph at once. A parameter that no model has taken up yet is only described: it
   becomes a value in train or infer. */
#include "tpgen.h"

#include <math.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

enum { MAX_OPS = 1 << 15 };
static const int64_t MAX_ELEMENTS = (int64_t)1 << 40;

struct recording recording = {.call = NONE};

/* ------------------------------------------------------------------------------------ arguments */

struct tensor *push_tensor(lua_State *L, int value)
{
  struct tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (struct tensor){.value = value};
  if (value != NONE) t->shape = graph->value[value].shape;
  luaL_setmetatable(L, "tensor");
  return t;
}

struct tensor *argument_tensor(lua_State *L, int at)
{
  return luaL_checkudata(L, at, "tensor");
}

/* A tensor that can be computed with. */
int argument_value(lua_State *L, int at)
{
  const struct tensor *t = argument_tensor(L, at);
  if (t->value == NONE)
    plan_fails("the parameter of line %d is not part of the model: keep it in one of its modules, "
               "as self.name = nn.Parameter{...}, and use it in forward",
               t->line);
  return t->value;
}

static int64_t check_size(lua_State *L, const char *what)
{
  if (lua_type(L, -1) != LUA_TNUMBER)
    plan_fails("%s: a size must be a whole number, not a %s", what, luaL_typename(L, -1));
  int is_integer;
  lua_Integer n = lua_tointegerx(L, -1, &is_integer);
  if (!is_integer)
    plan_fails("%s: a size must be a whole number, not %s", what, lua_tostring(L, -1));
  if (n < 1 || n > MAX_ELEMENTS)
    plan_fails("%s: a size must be at least 1 and at most 2^40, not %lld", what, (long long)n);
  return n;
}

static void check_elements(const char *what, struct shape s)
{
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (__builtin_mul_overflow(n, s.size[i], &n) || n > MAX_ELEMENTS)
      plan_fails("%s: a tensor of shape %s has more than 2^40 elements", what, shape_text(s));
}

struct shape argument_shape(lua_State *L, int at, const char *what)
{
  struct shape s = {0};
  luaL_checktype(L, at, LUA_TTABLE);
  lua_Integer n = luaL_len(L, at);
  if (n > MAX_DIMS)
    plan_fails("%s: a tensor has at most %d dimensions, not %lld", what, MAX_DIMS, (long long)n);
  for (; s.ndim < n; s.ndim++) {
    lua_rawgeti(L, at, s.ndim + 1);
    s.size[s.ndim] = check_size(L, what);
    lua_pop(L, 1);
  }
  check_elements(what, s);
  return s;
}

static double check_finite(lua_State *L, int at)
{
  double number = luaL_checknumber(L, at);
  if (!isfinite(number)) plan_fails("a tensor cannot be computed with the number %g", number);
  return number;
}

/* ----------------------------------------------------------------------------------- operations */

static struct op here(struct op op)
{
  if (!recording.on)
    plan_fails("%s: tensors are computed with in the model's forward, in the loss or in the "
               "outputs, nowhere else",
               op_row[op.kind].name);
  if (graph->nop >= MAX_OPS) plan_fails("the model has more than %d operations", MAX_OPS);
  op.line = sandbox->line;
  op.module = recording.call == NONE ? 0 : graph->call[recording.call].module;
  op.phase = FORWARD;
  return op;
}

int append_here(struct op op)
{
  int value = append_op(here(op));
  check_elements(op_row[op.kind].name, graph->value[value].shape);
  return value;
}

static int unary_op(enum op_kind kind, int a, double scalar)
{
  return append_here((struct op){.kind = kind, .nin = 1, .in = {a}, .scalar = scalar});
}

static int binary_op(enum op_kind kind, int a, int b)
{
  return append_here((struct op){.kind = kind, .nin = 2, .in = {a, b}});
}

static int full(double number)
{
  return append_op_shaped(here((struct op){.kind = OP_full, .scalar = number}), (struct shape){0});
}

/* relu(x), -x ...; upvalue 1: the kind. */
static int unary(lua_State *L)
{
  push_tensor(
      L, unary_op((enum op_kind)lua_tointeger(L, lua_upvalueindex(1)), argument_value(L, 1), 0));
  return 1;
}

/* An operand of + - * /: a tensor, or a number as a tensor without dimensions. */
static int operand(lua_State *L, int at, const char *sign)
{
  if (lua_type(L, at) == LUA_TNUMBER) return full(check_finite(L, at));
  if (!luaL_testudata(L, at, "tensor"))
    plan_fails("%s: a tensor goes with a tensor or a number, not with a %s", sign,
               luaL_typename(L, at));
  return argument_value(L, at);
}

/* a + b ...; upvalues: the kind, the sign. A product with a number is a scaling. */
static int binary(lua_State *L)
{
  enum op_kind kind = (enum op_kind)lua_tointeger(L, lua_upvalueindex(1));
  const char *sign = lua_tostring(L, lua_upvalueindex(2));
  int number = lua_type(L, 1) == LUA_TNUMBER ? 1 : lua_type(L, 2) == LUA_TNUMBER ? 2 : 0;
  bool scales = number && (kind == OP_mul || (kind == OP_div && number == 2));
  if (scales) {
    double by = check_finite(L, number);
    if (kind == OP_div && by == 0) plan_fails("a tensor cannot be divided by 0");
    int a = argument_value(L, 3 - number);
    push_tensor(L, unary_op(OP_scale, a, kind == OP_div ? 1 / by : by));
  } else {
    int a = operand(L, 1, sign), b = operand(L, 2, sign);
    push_tensor(L, binary_op(kind, a, b));
  }
  return 1;
}

static int power(lua_State *L)
{
  if (!lua_isnumber(L, 2) || lua_tonumber(L, 2) != 2)
    plan_fails("^: a tensor can be raised to the power 2 alone");
  push_tensor(L, unary_op(OP_square, argument_value(L, 1), 0));
  return 1;
}

/* ----------------------------------------------------------------------------------- reductions */

static unsigned check_dim(lua_State *L, int at, struct shape s, const char *what)
{
  int is_integer;
  lua_Integer d = lua_tointegerx(L, at, &is_integer);
  if (!is_integer)
    plan_fails("%s: a dimension must be a whole number, not a %s", what, luaL_typename(L, at));
  if (d < -s.ndim || d >= s.ndim)
    plan_fails("%s: a tensor of shape %s has no dimension %lld", what, shape_text(s), (long long)d);
  return 1u << (d < 0 ? d + s.ndim : d);
}

/* A dimension, a list of them, or nothing: all. */
static unsigned check_dims(lua_State *L, int at, struct shape s, const char *what)
{
  if (lua_isnoneornil(L, at)) return (1u << s.ndim) - 1;
  if (!lua_istable(L, at)) return check_dim(L, at, s, what);
  unsigned dims = 0;
  lua_Integer n = luaL_len(L, at);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, at, i);
    unsigned dim = check_dim(L, -1, s, what);
    if (dims & dim) plan_fails("%s: a dimension is named twice", what);
    dims |= dim;
    lua_pop(L, 1);
  }
  return dims;
}

static double count(struct shape s, unsigned dims)
{
  double n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (dims >> i & 1) n *= (double)s.size[i];
  return n;
}

static int reduce(int a, unsigned dims, bool keep, double scalar)
{
  return append_here((struct op){
      .kind = OP_sum, .nin = 1, .in = {a}, .dims = dims, .keep = keep, .scalar = scalar});
}

/* x:sum(dim, keep) and x:mean(dim, keep); upvalue 1: its name. */
static int sum(lua_State *L)
{
  const char *name = lua_tostring(L, lua_upvalueindex(1));
  int a = argument_value(L, 1);
  struct shape s = graph->value[a].shape;
  unsigned dims = check_dims(L, 2, s, name);
  double scalar = *name == 'm' ? 1 / count(s, dims) : 1;
  push_tensor(L, reduce(a, dims, lua_toboolean(L, 3), scalar));
  return 1;
}

/* x:var(dim, keep): with Bessel's correction, as PyTorch's. */
static int var(lua_State *L)
{
  int a = argument_value(L, 1);
  struct shape s = graph->value[a].shape;
  unsigned dims = check_dims(L, 2, s, "var");
  double n = count(s, dims);
  if (n < 2)
    plan_fails("var: the variance of one number alone is not defined; the shape is %s",
               shape_text(s));
  bool whole = dims == (1u << s.ndim) - 1 && !lua_toboolean(L, 3);
  int mean = reduce(a, dims, !whole, 1 / n);
  int v = append_here((struct op){.kind = OP_variance,
                                  .nin = 2,
                                  .in = {a, mean},
                                  .dims = dims,
                                  .keep = !whole,
                                  .scalar = 1 / (n - 1)});
  /* The mean has to line up with its tensor, so the dimensions stay at first, with size 1. */
  if (!whole && !lua_toboolean(L, 3)) v = reduce(v, dims, false, 1);
  push_tensor(L, v);
  return 1;
}

/* ------------------------------------------------------------------------------ matrix products */

static int product(int a, int b, const char *equation)
{
  return append_here(
      (struct op){.kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = copy_text(equation)});
}

/* Whose forward runs, for messages: "layers.0.w1". */
static const char *place(const char *otherwise)
{
  const char *path =
      recording.call == NONE ? "" : graph->module[graph->call[recording.call].module].path;
  return *path ? path : otherwise;
}

/* linear(x, weight, bias or nil): x [..., in], weight [out, in], bias [out]. */
static int linear(lua_State *L)
{
  int x = argument_value(L, 1), w = argument_value(L, 2);
  struct shape s = graph->value[x].shape, of = graph->value[w].shape;
  if (of.ndim != 2)
    plan_fails("%s: the weight must have two dimensions, out and in, not the shape %s",
               place("linear"), shape_text(of));
  if (s.ndim < 1 || s.size[s.ndim - 1] != of.size[1])
    plan_fails("%s: an input of shape %s does not fit a weight of shape %s, which takes %lld "
               "numbers in the input's last dimension",
               place("linear"), shape_text(s), shape_text(of), (long long)of.size[1]);
  char equation[32];
  snprintf(equation, sizeof equation, "%.*sk,nk->%.*sn", s.ndim - 1, "abcdefg", s.ndim - 1,
           "abcdefg");
  int y = product(x, w, equation);
  if (!lua_isnoneornil(L, 3)) {
    int b = argument_value(L, 3);
    struct shape bias = graph->value[b].shape;
    if (bias.ndim != 1 || bias.size[0] != of.size[0])
      plan_fails("%s: a bias of shape %s does not fit a weight of shape %s", place("linear"),
                 shape_text(bias), shape_text(of));
    y = binary_op(OP_add, y, b);
  }
  push_tensor(L, y);
  return 1;
}

/* matmul(a, b): a [..., m, k]; b [k, n], or [..., k, n] with a's leading dimensions. */
static int matmul(lua_State *L)
{
  int a = argument_value(L, 1), b = argument_value(L, 2);
  struct shape s = graph->value[a].shape, t = graph->value[b].shape;
  bool fits = s.ndim >= 2 && t.ndim >= 2 && (t.ndim == 2 || t.ndim == s.ndim) &&
              s.size[s.ndim - 1] == t.size[t.ndim - 2];
  for (int i = 0; i < t.ndim - 2 && fits; i++) fits = s.size[i] == t.size[i];
  if (!fits)
    plan_fails("matmul: shapes %s and %s do not fit: it takes [..., m, k] and [k, n], or "
               "[..., k, n] with equal leading sizes",
               shape_text(s), shape_text(t));
  char equation[40];
  snprintf(equation, sizeof equation, "%.*smk,%.*skn->%.*smn", s.ndim - 2, "abcdef", t.ndim - 2,
           "abcdef", s.ndim - 2, "abcdef");
  push_tensor(L, product(a, b, equation));
  return 1;
}

/* ---------------------------------------------------------------------------- a tensor's fields */

static int size(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  unsigned dim = check_dim(L, 2, t->shape, "size");
  lua_pushinteger(L, t->shape.size[__builtin_ctz(dim)]);
  return 1;
}

static int dim(lua_State *L)
{
  lua_pushinteger(L, argument_tensor(L, 1)->shape.ndim);
  return 1;
}

static int length(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  if (t->shape.ndim == 0) plan_fails("#: a tensor without dimensions has no length");
  lua_pushinteger(L, t->shape.size[0]);
  return 1;
}

static int describe(lua_State *L)
{
  lua_pushfstring(L, "tensor %s", shape_text(argument_tensor(L, 1)->shape));
  return 1;
}

/* upvalue 1: the methods, which know all their names. */
static int field(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING)
    plan_fails("a tensor is not indexed by a %s", luaL_typename(L, 2));
  if (strcmp(lua_tostring(L, 2), "shape") != 0) {
    lua_pushvalue(L, 2);
    lua_gettable(L, lua_upvalueindex(1));
    return 1;
  }
  lua_createtable(L, t->shape.ndim, 0);
  for (int i = 0; i < t->shape.ndim; i++) {
    lua_pushinteger(L, t->shape.size[i]);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int no_assignment(lua_State *L)
{
  argument_tensor(L, 1);
  plan_fails("a tensor's fields cannot be changed");
}

/* ----------------------------------------------------------------------------------- the tables */

static const luaL_Reg tensor_events[] = {{"__len", length},
                                         {"__tostring", describe},
                                         {"__newindex", no_assignment},
                                         {"__pow", power},
                                         {NULL, NULL}};

static void set_operator(lua_State *L, const char *event, enum op_kind kind, const char *sign)
{
  lua_pushinteger(L, kind);
  lua_pushstring(L, sign);
  lua_pushcclosure(L, binary, 2);
  lua_setfield(L, -2, event);
}

/* Pushes the methods of a tensor, which are also the functions of F. */
static void push_methods(lua_State *L)
{
  static const enum op_kind unaries[] = {OP_relu, OP_silu,   OP_sigmoid, OP_tanh,
                                         OP_exp,  OP_square, OP_neg};
  static const char *const sums[] = {"sum", "mean"};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof unaries / sizeof *unaries; i++) {
    lua_pushinteger(L, unaries[i]);
    lua_pushcclosure(L, unary, 1);
    lua_setfield(L, -2, op_row[unaries[i]].name);
  }
  for (size_t i = 0; i < 2; i++) {
    lua_pushstring(L, sums[i]);
    lua_pushcclosure(L, sum, 1);
    lua_setfield(L, -2, sums[i]);
  }
  lua_pushcfunction(L, var);
  lua_setfield(L, -2, "var");
  lua_pushcfunction(L, size);
  lua_setfield(L, -2, "size");
  lua_pushcfunction(L, dim);
  lua_setfield(L, -2, "dim");
}

/* Makes the metatable of tensors; leaves their methods at the top. */
static void make_tensors(lua_State *L)
{
  push_methods(L);
  luaL_newmetatable(L, "tensor");
  luaL_setfuncs(L, tensor_events, 0);
  set_operator(L, "__add", OP_add, "+");
  set_operator(L, "__sub", OP_sub, "-");
  set_operator(L, "__mul", OP_mul, "*");
  set_operator(L, "__div", OP_div, "/");
  lua_pushinteger(L, OP_neg);
  lua_pushcclosure(L, unary, 1);
  lua_setfield(L, -2, "__unm");
  lua_pushvalue(L, -2);
  forbid_absent(L, "a tensor");
  lua_pushcclosure(L, field, 1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

void set_tensor_bindings(lua_State *L)
{
  make_tensors(L);
  lua_setfield(L, -2, "methods");
  lua_pushcfunction(L, linear);
  lua_setfield(L, -2, "linear");
  lua_pushcfunction(L, matmul);
  lua_setfield(L, -2, "matmul");
}
