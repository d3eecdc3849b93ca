/* append.c: Lua's handle of a tensor, and operations appended for the plan's current line. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <math.h>
#include <string.h>

/* The largest size, and the most elements of a tensor over all ranks. A rank may have far fewer:
   rows by expert have one expert of all at each place. */
static const int64_t MAX_SIZE = (int64_t)1 << 40, MAX_ELEMENTS = (int64_t)1 << 50;

struct recording recording = {.call = NONE, .phase = FORWARD};

const char *called_function;

const char *const type_names[] = {[F32] = "float32", [BF16] = "bfloat16", [I32] = "int32",
                                  [I64] = "int64",   [BOOL] = "bool",     NULL};

const void *metatable;

struct tensor *push_tensor(lua_State *L, int value)
{
  struct tensor *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (struct tensor){.value = value};
  if (value != NONE) t->shape = graph->value[value].shape;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &metatable);
  lua_setmetatable(L, -2);
  return t;
}

struct tensor *tensor_at(lua_State *L, int at)
{
  if (lua_type(L, at) != LUA_TUSERDATA || !lua_getmetatable(L, at)) return NULL;
  bool is = lua_topointer(L, -1) == metatable;
  lua_pop(L, 1);
  return is ? lua_touserdata(L, at) : NULL;
}

struct tensor *argument_tensor(lua_State *L, int at)
{
  struct tensor *t = tensor_at(L, at);
  return t ? t : luaL_checkudata(L, at, "tensor"); /* this names the mistake */
}

int part_count(const struct tensor *t)
{
  return t->nparts ? t->nparts : 1;
}

int part_value(const struct tensor *t, int k)
{
  if (t->value == NONE)
    plan_fails("the parameter of line %d is not part of the model: keep it in one of its modules, "
               "as self.name = nn.Parameter{...}, and use it in forward",
               t->line);
  return t->value + k;
}

/* The parts joined: for a function that does not know of parts. */
int tensor_value(const struct tensor *t)
{
  int first = part_value(t, 0);
  if (!t->nparts) return first;
  struct op op = op_here((struct op){.kind = OP_cat, .nin = t->nparts, .dims = 1u << t->part_dim});
  for (int k = 0; k < t->nparts; k++) op.in[k] = operand_of(first + k);
  return append_op_shaped(op, t->shape);
}

int argument_value(lua_State *L, int at)
{
  return tensor_value(argument_tensor(L, at));
}

/* By value: the cast of each parameter, and the module call in which it was made. Another call
   makes its own cast, so that none lives longer than it is needed. All steps of a scan have one,
   before the scan. */
static struct cast {
  int value, call;
} * casts;
static int ncast, cast_room;

/* The operation's result; for the steps of a scan it is made before them. */
static int append_around(struct op op, bool for_steps)
{
  int value = append_here(op);
  if (for_steps) put_before_scan();
  return value;
}

/* The tables of an NF4 parameter: they are of its module. */
static int nested_of(int parameter)
{
  const char *name = text("%s_nested", graph->value[parameter].name);
  int value = 0;
  while (graph->value[value].init.kind != INIT_NESTED || strcmp(graph->value[value].name, name))
    value++;
  return value;
}

/* The numbers of a parameter in blocks, as floats of its own shape. */
static int from_blocks(int parameter, bool for_steps)
{
  const struct value v = graph->value[parameter];
  const int64_t numbers = blocks_of(v.type).numbers;
  struct op op = {.kind = OP_from_int8, .nin = 1, .in = {parameter}};
  if (v.type == NF4) {
    op = (struct op){.kind = OP_from_nf4, .nin = 2, .in = {parameter, nested_of(parameter)}};
    op.number[0] = v.file_size ? v.file_first * v.shape.size[1] : 0;
  }
  int value = append_around(op, for_steps);
  struct shape from = graph->value[value].shape, to = from;
  to.size[--to.ndim - 1] *= numbers;
  op = (struct op){.kind = OP_view, .nin = 1, .in = {value}, .line = sandbox->line};
  op.equation = view_equation(from, to, sandbox->line);
  value = append_op_shaped(op_here(op), to);
  if (for_steps) put_before_scan();
  return value;
}

static int cast_of(int parameter)
{
  int call = recording.call, around;
  bool for_steps = in_step(&around);
  if (for_steps) call = around;
  while (ncast <= parameter) {
    GROW(casts, ncast, cast_room);
    casts[ncast++] = (struct cast){NONE, NONE};
  }
  struct cast *known = &casts[parameter];
  if (known->value != NONE && known->call == call) return known->value;
  const enum type used = graph->value[parameter].used_as;
  int value = parameter;
  if (blocks_of(graph->value[parameter].type).numbers) value = from_blocks(parameter, for_steps);
  if (graph->value[value].type != used)
    value = append_around((struct op){.kind = OP_cast, .nin = 1, .in = {value}, .type = used},
                          for_steps);
  graph->value[value].name = text("%s_%s", graph->value[parameter].name, type_name(used));
  *known = (struct cast){value, call};
  return value;
}

bool is_cast_for_use(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == PARAMETER && v->used_as != v->type;
}

int operand_of(int value)
{
  return is_cast_for_use(value) ? cast_of(value) : value;
}

int known_cast(int value)
{
  int call = recording.call, around;
  if (in_step(&around)) call = around;
  if (value >= ncast || casts[value].call != call) return NONE;
  return casts[value].value;
}

int argument_operand(lua_State *L, int at)
{
  return operand_of(argument_value(L, at));
}

int64_t check_tensor_size(lua_State *L, const char *what)
{
  if (lua_type(L, -1) != LUA_TNUMBER)
    plan_fails("%s: a size must be a whole number, not a %s", what, luaL_typename(L, -1));
  int is_integer;
  lua_Integer n = lua_tointegerx(L, -1, &is_integer);
  const double given = lua_tonumber(L, -1);
  if (!is_integer && fabs(given) >= 0x1p63 && fabs(given) < 1e30)
    plan_fails("%s: a size must be at least 1 and at most 2^40, not %.0f", what, given);
  if (!is_integer)
    plan_fails("%s: a size must be a whole number, not %s", what, lua_tostring(L, -1));
  if (n < 1 || n > MAX_SIZE)
    plan_fails("%s: a size must be at least 1 and at most 2^40, not %lld", what, (long long)n);
  return n;
}

void check_elements(const char *what, struct shape s)
{
  int64_t n = 1;
  for (int i = 0; i < s.ndim; i++)
    if (__builtin_mul_overflow(n, s.size[i], &n) || n > MAX_ELEMENTS)
      plan_fails("%s: a tensor of shape %s has more than 2^50 elements", what, shape_text(s));
}

struct shape argument_shape(lua_State *L, int at, const char *what)
{
  struct shape s = {0};
  luaL_checktype(L, at, LUA_TTABLE);
  lua_Unsigned n = lua_rawlen(L, at);
  if (n > MAX_DIMS)
    plan_fails("%s: a tensor has at most %d dimensions, not %llu", what, MAX_DIMS,
               (unsigned long long)n);
  for (; s.ndim < (int)n; s.ndim++) {
    lua_rawgeti(L, at, s.ndim + 1);
    s.size[s.ndim] = check_tensor_size(L, what);
    lua_pop(L, 1);
  }
  check_elements(what, s);
  return s;
}

enum type argument_type(lua_State *L, int at)
{
  const char *name = luaL_checkstring(L, at);
  for (int t = 0; type_names[t]; t++)
    if (!strcmp(name, type_names[t])) return (enum type)t;
  plan_fails("there is no type '%s'; the types are float32, bfloat16, int32, int64 and bool",
             printable(name));
}

const char *called_or(const char *otherwise)
{
  return called_function ? called_function : otherwise;
}

bool is_unlike;

void call_is_unlike(void)
{
  is_unlike = true;
}

struct op op_here(struct op op)
{
  if (!recording.on)
    plan_fails("%s: tensors are computed with in the model's forward, in the loss or in the "
               "outputs, nowhere else",
               called_or(op_row[op.kind].name));
  if (graph->nop >= MAX_OPS) plan_fails("the model has more than %d operations", MAX_OPS);
  op.line = sandbox->line;
  op.part_of = called_function;
  op.node = node_words();
  op.module = module_of_call(recording.call);
  op.phase = recording.phase;
  return op;
}

struct op redistribution_of(int value, const char *why)
{
  enum type own = graph->value[value].type;
  return (struct op){.kind = OP_redistribute,
                     .nin = 1,
                     .in = {value},
                     .type = own,
                     .backward_type = own,
                     .why = why};
}

int append_here(struct op op)
{
  int value = append_op(op_here(op));
  const struct op *appended = &graph->op[graph->value[value].op];
  for (int k = 0; k < appended->nout; k++)
    check_elements(called_or(op_name(appended)), graph->value[value + k].shape);
  return value;
}

int append_again(int number, const int *in)
{
  struct op op = graph->op[number];
  int like = op.out;
  memcpy(op.in, in, (size_t)op.nin * sizeof *in);
  return append_op_like(op_here(op), like);
}
