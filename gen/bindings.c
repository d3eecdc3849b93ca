/* bindings.c: what the Lua files in gen/ call to build the graph.

   Lua holds tensors and placements as userdata. A tensor is an index into graph->value; a parameter
   that no model has taken up yet is its description, and becomes a value in train or infer. */
#include "tpgen.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

enum { MAX_OPS = 1 << 15, MAX_CALLS = 1 << 15, MAX_MODULES = 1 << 15, MAX_PATH = 1024 };
static const int64_t MAX_ELEMENTS = (int64_t)1 << 40;

struct tensor {
  int value; /* NONE: a parameter that is not part of a model yet */
  struct shape shape;
  struct init init;
  int line;
};

static bool recording; /* train or infer runs the model */
static int open_call = NONE;

extern const luaL_Reg name_functions[];

/* ------------------------------------------------------------------------------------- arguments
 */

static struct tensor *push_tensor(lua_State *L, int value)
{
  struct tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (struct tensor){.value = value};
  if (value != NONE) t->shape = graph->value[value].shape;
  luaL_setmetatable(L, "tensor");
  return t;
}

static struct tensor *check_tensor(lua_State *L, int at)
{
  return luaL_checkudata(L, at, "tensor");
}

/* A tensor that can be computed with. */
static int check_value(lua_State *L, int at)
{
  const struct tensor *t = check_tensor(L, at);
  if (t->value == NONE)
    plan_fails("the parameter of line %d is not part of the model: keep it in one of its modules, "
               "as self.name = nn.Parameter{...}, and use it in forward",
               t->line);
  return t->value;
}

static int64_t check_size(lua_State *L, const char *what)
{
  int is_integer;
  lua_Integer n = lua_tointegerx(L, -1, &is_integer);
  if (!is_integer || lua_type(L, -1) != LUA_TNUMBER)
    plan_fails("%s: a size must be a whole number, not %s", what,
               lua_type(L, -1) == LUA_TNUMBER ? lua_tostring(L, -1) : luaL_typename(L, -1));
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

static struct shape check_shape(lua_State *L, int at, const char *what)
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

static struct init check_init(lua_State *L, int at)
{
  static const char *const kinds[] = {"constant", "uniform", "normal", NULL};
  return (struct init){.kind = (enum init_kind)luaL_checkoption(L, at, NULL, kinds),
                       .a = luaL_checknumber(L, at + 1),
                       .b = luaL_checknumber(L, at + 2)};
}

/* Names become C identifiers, keys in files and text in messages: no zero byte, no endless text. */
static const char *check_name(lua_State *L, int at, const char *what)
{
  enum { LONGEST = 255 };
  size_t length;
  const char *name = luaL_checklstring(L, at, &length);
  if (length == 0 || length > LONGEST)
    plan_fails("%s must have 1 to %d bytes, not %zu", what, LONGEST, length);
  if (strlen(name) != length) plan_fails("%s must not hold a zero byte", what);
  return name;
}

static double check_finite(lua_State *L, int at)
{
  double number = luaL_checknumber(L, at);
  if (!isfinite(number)) plan_fails("a tensor cannot be computed with the number %g", number);
  return number;
}

/* ------------------------------------------------------------------------------------- operations
 */

static struct op here(struct op op)
{
  if (!recording)
    plan_fails("%s: tensors are computed with in the model's forward, in the loss or in the "
               "outputs, nowhere else",
               op_row[op.kind].name);
  if (graph->nop >= MAX_OPS) plan_fails("the model has more than %d operations", MAX_OPS);
  op.line = sandbox->line;
  op.module = open_call == NONE ? 0 : graph->call[open_call].module;
  op.phase = FORWARD;
  return op;
}

static int append_here(struct op op)
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
  push_tensor(L,
              unary_op((enum op_kind)lua_tointeger(L, lua_upvalueindex(1)), check_value(L, 1), 0));
  return 1;
}

/* An operand of + - * /: a tensor, or a number as a tensor without dimensions. */
static int operand(lua_State *L, int at, const char *sign)
{
  if (lua_type(L, at) == LUA_TNUMBER) return full(check_finite(L, at));
  if (!luaL_testudata(L, at, "tensor"))
    plan_fails("%s: a tensor goes with a tensor or a number, not with a %s", sign,
               luaL_typename(L, at));
  return check_value(L, at);
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
    int a = check_value(L, 3 - number);
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
  push_tensor(L, unary_op(OP_square, check_value(L, 1), 0));
  return 1;
}

/* -------------------------------------------------------------------------------------- reductions
 */

static unsigned check_dim(lua_State *L, int at, struct shape s, const char *what)
{
  lua_Integer d = luaL_checkinteger(L, at);
  if (d < -s.ndim || d >= s.ndim)
    plan_fails("%s: dimension %lld of a tensor of shape %s", what, (long long)d, shape_text(s));
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
  int a = check_value(L, 1);
  struct shape s = graph->value[a].shape;
  unsigned dims = check_dims(L, 2, s, name);
  double scalar = *name == 'm' ? 1 / count(s, dims) : 1;
  push_tensor(L, reduce(a, dims, lua_toboolean(L, 3), scalar));
  return 1;
}

/* x:var(dim, keep): with Bessel's correction, as PyTorch's. */
static int var(lua_State *L)
{
  int a = check_value(L, 1);
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

/* --------------------------------------------------------------------------------- matrix products
 */

static int product(int a, int b, const char *equation)
{
  return append_here(
      (struct op){.kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = copy_text(equation)});
}

/* Whose forward runs, for messages: "layers.0.w1". */
static const char *place(const char *otherwise)
{
  const char *path = open_call == NONE ? "" : graph->module[graph->call[open_call].module].path;
  return *path ? path : otherwise;
}

/* linear(x, weight, bias or nil): x [..., in], weight [out, in], bias [out]. */
static int linear(lua_State *L)
{
  int x = check_value(L, 1), w = check_value(L, 2);
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
    int b = check_value(L, 3);
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
  int a = check_value(L, 1), b = check_value(L, 2);
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

/* ------------------------------------------------------------------------------- a tensor's fields
 */

static int size(lua_State *L)
{
  const struct tensor *t = check_tensor(L, 1);
  unsigned dim = check_dim(L, 2, t->shape, "size");
  lua_pushinteger(L, t->shape.size[__builtin_ctz(dim)]);
  return 1;
}

static int dim(lua_State *L)
{
  lua_pushinteger(L, check_tensor(L, 1)->shape.ndim);
  return 1;
}

static int length(lua_State *L)
{
  const struct tensor *t = check_tensor(L, 1);
  if (t->shape.ndim == 0) plan_fails("#: a tensor without dimensions has no length");
  lua_pushinteger(L, t->shape.size[0]);
  return 1;
}

static int describe(lua_State *L)
{
  lua_pushfstring(L, "tensor %s", shape_text(check_tensor(L, 1)->shape));
  return 1;
}

/* upvalue 1: the methods, which know all their names. */
static int field(lua_State *L)
{
  const struct tensor *t = check_tensor(L, 1);
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
  check_tensor(L, 1);
  plan_fails("a tensor's fields cannot be changed");
}

/* -------------------------------------------------------------------------------------- placements
 */

static struct placement check_placement(lua_State *L, int at)
{
  return *(struct placement *)luaL_checkudata(L, at, "placement");
}

static int push_placement(lua_State *L, struct placement p)
{
  *(struct placement *)lua_newuserdatauv(L, sizeof p, 0) = p;
  luaL_setmetatable(L, "placement");
  return 1;
}

static int shard(lua_State *L)
{
  lua_Integer dim = luaL_checkinteger(L, 1);
  if (dim < -MAX_DIMS || dim >= MAX_DIMS)
    plan_fails("Shard(%lld): a tensor has at most %d dimensions", (long long)dim, MAX_DIMS);
  return push_placement(L, (struct placement){.kind = SHARD, .dim = (int)dim});
}

static int replicate(lua_State *L)
{
  return push_placement(L, (struct placement){.kind = REPLICATE});
}

static int partial(lua_State *L)
{
  static const char *const names[] = {"sum", "max", "min", NULL};
  enum reduction r = (enum reduction)luaL_checkoption(L, 1, "sum", names);
  return push_placement(L, (struct placement){.kind = PARTIAL, .reduction = r});
}

static int placement_name(lua_State *L)
{
  struct placement p = check_placement(L, 1);
  if (p.kind == SHARD)
    lua_pushfstring(L, "Shard(%d)", p.dim);
  else
    lua_pushstring(L, p.kind == PARTIAL ? "Partial()" : "Replicate()");
  return 1;
}

/* ------------------------------------------------------------------------- modules and their calls
 */

/* add_module(name, class, parent or -1, line): its index. */
static int new_module(lua_State *L)
{
  int parent = (int)luaL_checkinteger(L, 3);
  const char *name = parent == NONE ? "" : check_name(L, 1, "a module's name");
  if (graph->nmodule >= MAX_MODULES) plan_fails("the model has more than %d modules", MAX_MODULES);
  if (parent != NONE && strlen(graph->module[parent].path) > MAX_PATH)
    plan_fails("the modules are nested too deeply, from the one of line %d on",
               (int)luaL_checkinteger(L, 4));
  const char *class_name = check_name(L, 2, "the name of a class");
  lua_pushinteger(L, add_module(name, class_name, parent, (int)luaL_checkinteger(L, 4)));
  return 1;
}

/* parameter(what, shape, init kind, a, b): one that is not part of a model yet. */
static int parameter(lua_State *L)
{
  struct shape s = check_shape(L, 2, luaL_checkstring(L, 1));
  struct init init = check_init(L, 3);
  struct tensor *t = push_tensor(L, NONE);
  *t = (struct tensor){.value = NONE, .shape = s, .init = init, .line = sandbox->line};
  return 1;
}

/* add_parameter(parameter, name, module) */
static int add_parameter(lua_State *L)
{
  struct tensor *t = check_tensor(L, 1);
  const char *name = check_name(L, 2, "a parameter's name");
  int module = (int)luaL_checkinteger(L, 3);
  const char *path = graph->module[module].path;
  if (t->value != NONE)
    plan_fails("the parameter of line %d is in two places: %s and %s%s%s", t->line,
               graph->value[t->value].name, path, *path ? "." : "", name);
  name = *path ? text("%s.%s", path, name) : copy_text(name);
  t->value = add_value(PARAMETER, name, F32, t->shape, module, t->line);
  graph->value[t->value].init = t->init;
  return 0;
}

static void forbid_parameters_name(const char *name, int line)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && !strcmp(graph->value[i].name, name))
      plan_error(line, "the batch and the model both have a '%s'", printable(name));
}

/* add_batch(name, shape, init kind, a, b, {[mesh dimension] = placement}, line): the tensor. */
static int add_batch(lua_State *L)
{
  const char *name = check_name(L, 1, "a name in the batch");
  struct shape s = check_shape(L, 2, name);
  int line = (int)luaL_checkinteger(L, 7);
  forbid_parameters_name(name, line);
  int value = add_value(BATCH, name, F32, s, 0, line);
  graph->value[value].init = check_init(L, 3);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (lua_rawgeti(L, 6, i) != LUA_TNIL) {
      struct placement p = check_placement(L, -1);
      if (p.kind == PARTIAL || (p.kind == SHARD && (p.dim < -s.ndim || p.dim >= s.ndim)))
        plan_error(line, "distribute: '%s' of shape %s cannot lie as %s", printable(name),
                   shape_text(s), placement_text(p));
      if (p.kind == SHARD && p.dim < 0) p.dim += s.ndim;
      graph->value[value].layout.on[i] = p;
    }
    lua_pop(L, 1);
  }
  graph->value[value].placed = true;
  push_tensor(L, value);
  return 1;
}

/* Notes the tensors among the arguments from `first` on; gives how many. */
static int note_tensors(lua_State *L, int first, int *noted, const char *what)
{
  int n = 0, top = lua_gettop(L);
  for (int i = first; i <= top; i++) {
    if (!luaL_testudata(L, i, "tensor")) continue;
    if (n == MAX_INPUTS) plan_fails("a module %s at most %d tensors", what, MAX_INPUTS);
    noted[n++] = check_value(L, i);
  }
  return n;
}

/* enter(module, arguments...): the call. */
static int enter(lua_State *L)
{
  if (!recording) plan_fails("train and infer call the model; a plan does not call it by itself");
  if (graph->ncall >= MAX_CALLS) plan_fails("the modules are called more than %d times", MAX_CALLS);
  GROW(graph->call, graph->ncall, graph->call_room);
  struct call *c = &graph->call[graph->ncall];
  *c = (struct call){.module = (int)luaL_checkinteger(L, 1),
                     .parent = open_call,
                     .first = graph->norder,
                     .last = graph->norder};
  c->nin = note_tensors(L, 2, c->in, "takes");
  open_call = graph->ncall++;
  lua_pushinteger(L, open_call);
  return 1;
}

/* leave(results...): of the call that began last. */
static int leave(lua_State *L)
{
  struct call *c = &graph->call[open_call];
  c->nout = note_tensors(L, 1, c->out, "gives");
  c->last = graph->norder;
  open_call = c->parent;
  return lua_gettop(L);
}

/* ---------------------------------------------------------------------------- the mesh and styles
 */

/* set_mesh(names, sizes) */
static int set_mesh(lua_State *L)
{
  struct mesh *m = &graph->mesh;
  m->line = sandbox->line;
  m->ndim = (int)luaL_len(L, 1);
  for (int i = 0; i < m->ndim; i++) {
    lua_rawgeti(L, 1, i + 1);
    m->name[i] = copy_text(check_name(L, -1, "the name of a dimension of the mesh"));
    lua_rawgeti(L, 2, i + 1);
    m->size[i] = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 2);
  }
  return 0;
}

/* A wish as Lua has it: {what, tensor or index, placement}. */
static struct wish check_wish(lua_State *L)
{
  static const char *const kinds[] = {"parameter", "input", "output", NULL};
  int at = lua_gettop(L);
  for (int i = 1; i <= 3; i++) lua_rawgeti(L, at, i);
  struct wish w = {.value = NONE, .to = check_placement(L, at + 3)};
  int kind = luaL_checkoption(L, at + 1, NULL, kinds);
  w.what = kind == 0 ? WISH_PARAMETER : kind == 1 ? WISH_INPUT : WISH_OUTPUT;
  if (w.what == WISH_PARAMETER)
    w.value = check_value(L, at + 2);
  else
    w.index = (int)luaL_checkinteger(L, at + 2);
  lua_settop(L, at);
  return w;
}

static void forbid_both(const struct style *s, const struct wish *w, const struct style *other)
{
  static const char *const what[] = {
      [WISH_PARAMETER] = "the parameters", [WISH_INPUT] = "an input", [WISH_OUTPUT] = "an output"};
  for (int k = 0; k < other->nwish; k++)
    if (other->wish[k].what == w->what && other->wish[k].index == w->index &&
        other->wish[k].value == w->value)
      plan_error(s->line, "%s and the %s of line %d both place %s of '%s' over %s", s->name,
                 other->name, other->line, what[w->what], printable(graph->module[s->module].path),
                 printable(graph->mesh.name[s->mesh_dim]));
}

static void forbid_second_wish(const struct style *s)
{
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *other = &graph->style[i];
    if (other->module != s->module || other->mesh_dim != s->mesh_dim) continue;
    for (int k = 0; k < s->nwish; k++) forbid_both(s, &s->wish[k], other);
  }
}

/* add_style(name, module, mesh dimension, line, list of wishes) */
static int add_style(lua_State *L)
{
  struct style s = {.name = copy_text(luaL_checkstring(L, 1)),
                    .module = (int)luaL_checkinteger(L, 2),
                    .mesh_dim = (int)luaL_checkinteger(L, 3),
                    .line = (int)luaL_checkinteger(L, 4),
                    .nwish = (int)luaL_len(L, 5)};
  s.wish = alloc((size_t)s.nwish * sizeof *s.wish);
  for (int i = 0; i < s.nwish; i++) {
    lua_rawgeti(L, 5, i + 1);
    s.wish[i] = check_wish(L);
    lua_pop(L, 1);
  }
  forbid_second_wish(&s);
  GROW(graph->style, graph->nstyle, graph->style_room);
  graph->style[graph->nstyle++] = s;
  return 0;
}

/* check_name(name, what): refuses what cannot be one. */
static int check_plain_name(lua_State *L)
{
  check_name(L, 1, luaL_checkstring(L, 2));
  return 0;
}

/* matches(name, pattern): as the shell matches file names; a backslash is an ordinary letter. */
static int matches(lua_State *L)
{
  lua_pushboolean(L, fnmatch(luaL_checkstring(L, 2), luaL_checkstring(L, 1), FNM_NOESCAPE) == 0);
  return 1;
}

/* --------------------------------------------------------------------------- training, and the end
 */

/* A value of its own for what would be an input, a parameter, or an output already. */
static int own_value(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == ACTIVATION && !v->is_output ? value : unary_op(OP_scale, value, 1);
}

static bool depends_on_parameter(int value)
{
  bool *depends = alloc((size_t)graph->nvalue * sizeof *depends);
  for (int i = 0; i < graph->nvalue; i++) depends[i] = graph->value[i].role == PARAMETER;
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    for (int k = 0; k < op->nin; k++)
      if (depends[op->in[k]]) depends[op->out] = true;
  }
  return depends[value];
}

static int set_loss(lua_State *L)
{
  int loss = check_value(L, 1);
  struct value v = graph->value[loss];
  if (v.shape.ndim != 0)
    plan_error(v.line,
               "the loss must be a single number, not a tensor of shape %s: end it with "
               ":mean(), :sum() or :var()",
               shape_text(v.shape));
  if (!depends_on_parameter(loss))
    plan_error(v.line, "the loss depends on no parameter of the model: there is nothing to train");
  graph->loss = own_value(loss);
  graph->value[graph->loss].name = "loss";
  return 0;
}

/* set_output(name, tensor) */
static int set_output(lua_State *L)
{
  const char *name = check_name(L, 1, "an output's name");
  int value = own_value(check_value(L, 2));
  graph->value[value].is_output = true;
  graph->value[value].name = copy_text(name);
  return 0;
}

/* begin(steps, seed): from here on modules may be called. */
static int begin(lua_State *L)
{
  graph->steps = (int)luaL_checkinteger(L, 1);
  graph->seed = (uint64_t)luaL_checkinteger(L, 2);
  graph->train_line = sandbox->line;
  recording = true;
  return 0;
}

static int end(lua_State *L)
{
  (void)L;
  recording = false;
  return 0;
}

static double number_field(lua_State *L, const char *name)
{
  lua_getfield(L, 1, name);
  double n = luaL_optnumber(L, -1, 0);
  lua_pop(L, 1);
  return n;
}

/* set_optimizer{name=, lr=, beta1=, beta2=, eps=, weight_decay=, line=} */
static int set_optimizer(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_getfield(L, 1, "name");
  graph->optimizer = (struct optimizer){.name = copy_text(luaL_checkstring(L, -1)),
                                        .lr = number_field(L, "lr"),
                                        .beta1 = number_field(L, "beta1"),
                                        .beta2 = number_field(L, "beta2"),
                                        .eps = number_field(L, "eps"),
                                        .weight_decay = number_field(L, "weight_decay"),
                                        .line = (int)number_field(L, "line")};
  return 0;
}

/* line(): of the plan. */
static int line(lua_State *L)
{
  lua_pushinteger(L, sandbox->line);
  return 1;
}

/* kind(anything): "tensor", "placement", or what type says. */
static int kind(lua_State *L)
{
  luaL_checkany(L, 1);
  if (luaL_testudata(L, 1, "tensor"))
    lua_pushliteral(L, "tensor");
  else if (luaL_testudata(L, 1, "placement"))
    lua_pushliteral(L, "placement");
  else
    lua_pushstring(L, luaL_typename(L, 1));
  return 1;
}

/* ---------------------------------------------------------------------------------------- the
 * table */

static const luaL_Reg functions[] = {{"Shard", shard},
                                     {"Replicate", replicate},
                                     {"Partial", partial},
                                     {"linear", linear},
                                     {"matmul", matmul},
                                     {"add_module", new_module},
                                     {"parameter", parameter},
                                     {"add_parameter", add_parameter},
                                     {"add_batch", add_batch},
                                     {"enter", enter},
                                     {"leave", leave},
                                     {"set_mesh", set_mesh},
                                     {"add_style", add_style},
                                     {"matches", matches},
                                     {"check_name", check_plain_name},
                                     {"set_loss", set_loss},
                                     {"set_output", set_output},
                                     {"set_optimizer", set_optimizer},
                                     {"begin", begin},
                                     {"end_", end},
                                     {"line", line},
                                     {"kind", kind},
                                     {NULL, NULL}};

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

/* Leaves the methods at the top. */
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

static void make_placements(lua_State *L)
{
  luaL_newmetatable(L, "placement");
  lua_pushcfunction(L, placement_name);
  lua_setfield(L, -2, "__tostring");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}

void push_bindings(lua_State *L)
{
  luaL_newlib(L, functions);
  luaL_setfuncs(L, name_functions, 0);
  make_placements(L);
  make_tensors(L);
  lua_setfield(L, -2, "methods");
}
