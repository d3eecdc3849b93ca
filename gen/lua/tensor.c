/* tensor.c: tensors as a plan computes with them.

   A tensor is an index into graph->value, held by Lua as userdata. Each function of the plan on
   tensors appends operations to the graph at once: our Lua files say which, and `append` adds them.
   A parameter that belongs to no model yet is only described: it becomes a value in train or
   infer. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* ------------------------------------------------------------------------ functions of the plan */

/* unlike(): the function that calls it is not replayed. */
static int unlike(lua_State *L)
{
  (void)L;
  call_is_unlike();
  return 0;
}

/* Runs the function of the closure, or appends the operations that it appended for equal
   arguments. */
static int call_named(lua_State *L, bool is_outer)
{
  struct noted_call *call =
      is_outer && recording.on ? noted_call(L, (int)lua_tointeger(L, lua_upvalueindex(4))) : NULL;
  if (call && is_noted(call)) return replay(L, call);
  int first_op = graph->nop;
  if (is_outer) is_unlike = false;
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_insert(L, 1);
  call_unwatched(L, lua_gettop(L) - 1);
  if (call && is_unlike)
    never_note(call);
  else if (call)
    note_call(L, call, first_op);
  return lua_gettop(L);
}

/* Upvalues: the name, the function, whether it takes a tensor first, a number of its own, how many
   arguments it takes, whether it takes arguments by name, the name of those after its parameters,
   and the refused parameters. */
static int call_function(lua_State *L)
{
  const char *outer = called_function;
  if (!called_function) called_function = lua_touserdata(L, lua_upvalueindex(1));
  int most = (int)lua_tointeger(L, lua_upvalueindex(5));
  unsigned refused = (unsigned)lua_tointeger(L, lua_upvalueindex(8));
  if (lua_toboolean(L, lua_upvalueindex(6)))
    place_keywords(L, called_function, lua_upvalueindex(2), 0,
                   lua_tostring(L, lua_upvalueindex(7)));
  if (refused) check_refused_parameters(L, called_function, lua_upvalueindex(2), refused);
  if (most != ANY_NUMBER && lua_gettop(L) > most)
    forbid_surplus(L, called_function, lua_upvalueindex(2), 0, 1);
  if (lua_toboolean(L, lua_upvalueindex(3)) && !tensor_at(L, 1))
    plan_fails("%s takes a tensor first, not %s%s", called_function,
               lua_isnoneornil(L, 1) ? "" : "a ",
               lua_isnoneornil(L, 1) ? "nothing" : luaL_typename(L, 1));
  int n = call_named(L, !outer);
  called_function = outer;
  return n;
}

/* named(name, function, takes a tensor first, by_name): the function, whose messages begin with the
   name, also those of functions that it calls. by_name: its last argument may be a table of
   arguments by name; a text: the name there of the arguments after its parameters. */
static int named_function(lua_State *L)
{
  static int functions;
  const char *name = copy_text(luaL_checkstring(L, 1));
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 4);
  lua_pushlightuserdata(L, (char *)name);
  lua_replace(L, 1);
  const char *rest = lua_type(L, 4) == LUA_TSTRING ? copy_text(lua_tostring(L, 4)) : NULL;
  bool by_name = lua_toboolean(L, 4) && (rest || most_arguments(L, 2) != ANY_NUMBER);
  lua_settop(L, 3);
  lua_pushinteger(L, functions++);
  lua_pushinteger(L, most_arguments(L, 2));
  lua_pushboolean(L, by_name);
  lua_pushstring(L, rest);
  lua_pushinteger(L, refused_parameters(L, 2));
  lua_pushcclosure(L, call_function, 8);
  return 1;
}

/* Upvalue: the function. */
static int run_unwatched(lua_State *L)
{
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  call_unwatched(L, lua_gettop(L) - 1);
  return lua_gettop(L);
}

/* unwatched(function): the same without line hooks; it must call no function of the plan's. */
static int unwatched(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, run_unwatched, 1);
  return 1;
}

/* ----------------------------------------------------------------------------------- operations */

static enum op_kind check_kind(lua_State *L, int at)
{
  /* Equal names are mostly one string in Lua: a cache of operators by the string's address. */
  enum { PLACES = 256 };
  static enum op_kind found[PLACES];
  const char *name = luaL_checkstring(L, at);
  enum op_kind *last = &found[(uintptr_t)name / 16 % PLACES];
  if (!strcmp(op_row[*last].name, name)) return *last;
  for (int k = 0; k < OP_COUNT; k++)
    if (!strcmp(op_row[k].name, name)) return *last = (enum op_kind)k;
  bug("lua", "there is no operator '%s'", name);
}

/* Whether the table of attributes, at 3, has the field; then it is at the top. */
static bool has_field(lua_State *L, const char *name)
{
  if (lua_getfield(L, 3, name) != LUA_TNIL) return true;
  lua_pop(L, 1);
  return false;
}

static bool boolean_field(lua_State *L, const char *name)
{
  if (!has_field(L, name)) return false;
  bool is = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is;
}

static void read_attributes(lua_State *L, struct op *op)
{
  if (has_field(L, "scalar")) op->scalar = luaL_checknumber(L, -1);
  if (has_field(L, "softcap")) op->softcap = luaL_checknumber(L, -1);
  if (has_field(L, "type")) op->type = argument_type(L, -1);
  if (has_field(L, "equation")) op->equation = copy_text(luaL_checkstring(L, -1));
  op->keepdim = boolean_field(L, "keep");
  op->constant = boolean_field(L, "constant");
  if (has_field(L, "dims")) {
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
      lua_rawgeti(L, -1, i);
      lua_Integer dim = luaL_checkinteger(L, -1);
      if (dim < 0 || dim >= MAX_DIMS)
        plan_fails("%s: a tensor has at most %d dimensions", called_or(op_row[op->kind].name),
                   MAX_DIMS);
      op->dims |= 1u << dim;
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  const char *c = op_row[op->kind].numbers;
  for (int i = 0; *c; i++, c += strspn(c, " ")) {
    size_t n = strcspn(c, " ");
    lua_pushlstring(L, c, n);
    if (lua_gettable(L, 3) != LUA_TNIL) op->number[i] = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    c += n;
  }
}

/* A buffer is a parameter of its own type. */
static int buffer_value(lua_State *L)
{
  int value = argument_value(L, -1);
  if (graph->value[value].role != PARAMETER)
    plan_fails("%s: what follows the batches must be a parameter: nn.Parameter",
               called_or("running"));
  graph->value[value].frozen = false; /* a buffer requires no gradient, and is updated */
  return value;
}

/* Few rows of a table are read: the rows are cast, not the table. */
static bool picks_rows(enum op_kind kind)
{
  return !strcmp(op_row[kind].element, "$a($b)");
}

static void read_tensors(lua_State *L, struct op *op)
{
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_Unsigned n = lua_rawlen(L, 2);
  if (n > MAX_INPUTS)
    plan_fails("%s takes at most %d tensors, not %llu", called_or(op_row[op->kind].name),
               MAX_INPUTS, (unsigned long long)n);
  for (; op->nin < (int)n; op->nin++) {
    lua_rawgeti(L, 2, op->nin + 1);
    bool table = op->nin == 0 && picks_rows(op->kind);
    bool buffer = op->nin == 1 && (op->kind == OP_running || op->kind == OP_in_training);
    op->in[op->nin] = buffer                                   ? buffer_value(L)
                      : table || op_row[op->kind].takes_stored ? argument_value(L, -1)
                                                               : argument_operand(L, -1);
    lua_pop(L, 1);
  }
  if (op->nin == 0 || !picks_rows(op->kind) || !is_cast_for_use(op->in[0])) return;
  op->typed = true;
  op->type = graph->value[op->in[0]].used_as;
}

/* The field shapes, a list of shapes; returns their number. */
static int read_shapes(lua_State *L, struct shape list[MAX_OUTPUTS])
{
  int n = 0;
  if (!has_field(L, "shapes")) return 0;
  for (; n < MAX_OUTPUTS && lua_rawgeti(L, -1, n + 1) != LUA_TNIL; n++) {
    list[n] = argument_shape(L, lua_gettop(L), called_or("tensor"));
    lua_pop(L, 1);
  }
  return n;
}

/* The field sizes, by letter. Returns the shapes that follow from it and the inputs, or none. */
static int solve_shapes(lua_State *L, const struct op *op, struct shape list[MAX_OUTPUTS])
{
  if (!has_field(L, "sizes")) return 0;
  struct letters l;
  op_letters(op, &l);
  for (int i = 0; i < l.n; i++) {
    lua_pushlstring(L, &l.name[i], 1);
    if (lua_gettable(L, -2) != LUA_TNIL && !l.size[i])
      l.size[i] = check_tensor_size(L, op_name(op));
    lua_pop(L, 1);
  }
  for (int k = 0; k < l.nout; k++) {
    struct shape s = {.ndim = l.ndim_out[k]};
    for (int d = 0; d < s.ndim; d++) {
      s.size[d] = 1;
      for (int i = 0; i < l.out[k][d].n; i++) {
        int letter = l.out[k][d].letter[i];
        if (!l.size[letter])
          plan_fails("%s: by its rule %s the output has a dimension %c that no input has: "
                     "sizes = {%c = 8}, say",
                     op_name(op), rule_of(op), l.name[letter], l.name[letter]);
        s.size[d] *= l.size[letter];
      }
    }
    check_elements(op_name(op), s);
    list[k] = s;
  }
  return l.nout;
}

static int push_outputs(lua_State *L, int value)
{
  int n = graph->op[graph->value[value].op].nout;
  for (int k = 0; k < n; k++) push_tensor(L, value + k);
  return n;
}

/* append(operator, {tensors}, {attributes}): appends the operation; returns its outputs. The
   attributes are those of struct op, and the row's numbers, by name. shapes: those of the outputs,
   if they do not follow from the inputs. */
static int append_operation(lua_State *L)
{
  struct op op = {.kind = check_kind(L, 1)};
  struct shape list[MAX_OUTPUTS];
  lua_settop(L, 3);
  read_tensors(L, &op);
  if (lua_isnil(L, 3)) return push_outputs(L, append_here(op));
  read_attributes(L, &op);
  op = op_here(op);
  int nout = read_shapes(L, list);
  if (!nout) nout = solve_shapes(L, &op, list);
  if (op.kind == OP_view)
    op.equation = view_equation(graph->value[op.in[0]].shape, list[0], sandbox->line);
  lua_settop(L, 3);
  return push_outputs(L, nout ? append_op_outputs(op, list, nout) : append_here(op));
}

/* rows(): the operators with a rule of their own: {name =, rule =, numbers =} each, without those
   only for the backward. */
static int list_rows(lua_State *L)
{
  lua_newtable(L);
  for (int k = 0; k < OP_COUNT; k++) {
    const struct op_row *row = &op_row[k];
    if (!*row->rule || !strcmp(row->rule, "equation") || strstr(row->name, "_back")) continue;
    lua_createtable(L, 0, 3);
    lua_pushstring(L, row->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, row->rule);
    lua_setfield(L, -2, "rule");
    lua_pushstring(L, row->numbers);
    lua_setfield(L, -2, "numbers");
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  return 1;
}

/* ------------------------------------------------------------------------- the plan's operators */

static const char *optional_text(lua_State *L, int at)
{
  return lua_isnoneornil(L, at) ? NULL : copy_text(luaL_checkstring(L, at));
}

/* declare_operator(name, rule, linear, kernel, kernel for CUDA, {index of each input's gradient, or
   -1}): its index. The kernels are only paths here: the process that reads the plan cannot open
   files. */
static int declare_operator(lua_State *L)
{
  struct custom c = {
      .name = copy_text(luaL_checkstring(L, 1)),
      .rule = copy_text(luaL_checkstring(L, 2)),
      .linear = copy_text(luaL_checkstring(L, 3)),
      .kernel = {[LANGUAGE_C] = optional_text(L, 4), [LANGUAGE_CUDA] = optional_text(L, 5)},
      .line = sandbox->line};
  const char *name = c.name;
  for (int k = 0; k < OP_COUNT; k++)
    if (!strcmp(op_row[k].name, name))
      plan_fails("operator: tpgen has an operator '%s' itself: give yours another name", name);
  for (int i = 0; i < graph->ncustom; i++)
    if (!strcmp(graph->custom[i].name, name))
      plan_fails("operator: there is an operator '%s' already, of line %d", name,
                 graph->custom[i].line);
  if (graph->ncustom == MAX_CUSTOM) plan_fails("operator: there are more than %d", MAX_CUSTOM);
  const char *wrong = rule_error(c.rule, c.linear);
  if (wrong) plan_fails("operator '%s': %s", c.name, wrong);
  const char *arrow = strstr(c.rule, "->");
  int nin = arrow && arrow > c.rule; /* and one more for each comma before the arrow */
  for (const char *at = c.rule; arrow && at < arrow; at++) nin += *at == ',';
  lua_Unsigned given = lua_rawlen(L, 6);
  if (given > (lua_Unsigned)nin)
    plan_fails("operator '%s': backward is given for %llu inputs, and the rule %s has %d", c.name,
               (unsigned long long)given, c.rule, nin);
  for (int i = 0; i < MAX_INPUTS; i++) {
    c.backward[i] = NONE;
    if (i >= (int)given) continue;
    lua_rawgeti(L, 6, i + 1);
    c.backward[i] = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  GROW(graph->custom, graph->ncustom, graph->custom_room);
  graph->custom[graph->ncustom] = c;
  lua_pushinteger(L, graph->ncustom++);
  return 1;
}

/* apply_operator(index, {tensors}, {scalar =}): its outputs. */
static int apply_operator(lua_State *L)
{
  struct op op = {.kind = OP_custom, .custom = (int)luaL_checkinteger(L, 1)};
  lua_settop(L, 3);
  luaL_checktype(L, 3, LUA_TTABLE);
  read_tensors(L, &op);
  read_attributes(L, &op);
  lua_settop(L, 3);
  return push_outputs(L, append_here(op));
}

/* ---------------------------------------------------------------------------- a tensor's fields */

static void push_shape(lua_State *L, struct shape s)
{
  lua_createtable(L, s.ndim, 0);
  for (int i = 0; i < s.ndim; i++) {
    lua_pushinteger(L, s.size[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* shape(tensor): a list of its sizes. */
static int shape_of_tensor(lua_State *L)
{
  push_shape(L, argument_tensor(L, 1)->shape);
  return 1;
}

/* type(tensor): the name of the type in which it is used. */
static int type_of_tensor(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  const struct value *v = t->value == NONE ? NULL : &graph->value[t->value];
  lua_pushstring(L, type_names[!v ? F32 : v->role == PARAMETER ? v->used_as : v->type]);
  return 1;
}

/* line_of_tensor(tensor): the line of the plan that makes it. */
static int line_of_tensor(lua_State *L)
{
  const struct value *v = &graph->value[argument_value(L, 1)];
  lua_pushinteger(L, v->op == NONE ? v->line : graph->op[v->op].line);
  return 1;
}

static int length_of_tensor(lua_State *L)
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

/* An index into a shape's list: it begins at 1, as Lua's lists do. */
static int no_such_size(lua_State *L)
{
  if (lua_isinteger(L, 2) && lua_tointeger(L, 2) < 1)
    plan_fails("x.shape[%lld]: a shape is a list of Lua's, which begins at 1; x:size(d) counts as "
               "PyTorch does, x:size(-1) is the last",
               (long long)lua_tointeger(L, 2));
  return 0;
}

/* upvalue 1: the methods, where an absent name is an error. */
static int field(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  if (lua_type(L, 2) != LUA_TSTRING)
    plan_fails("a tensor is not indexed by a %s: use narrow, select or slice", luaL_typename(L, 2));
  if (!strcmp(lua_tostring(L, 2), "shape")) {
    struct shape s = t->shape;
    push_shape(L, s);
    if (luaL_newmetatable(L, "shape")) {
      lua_pushcfunction(L, no_such_size);
      lua_setfield(L, -2, "__index");
      lua_pushboolean(L, 0);
      lua_setfield(L, -2, "__metatable");
    }
    lua_setmetatable(L, -2);
    return 1;
  }
  if (!strcmp(lua_tostring(L, 2), "dtype")) return type_of_tensor(L);
  lua_pushvalue(L, 2);
  lua_gettable(L, lua_upvalueindex(1));
  return 1;
}

static int no_assignment(lua_State *L)
{
  argument_tensor(L, 1);
  plan_fails("a tensor's fields cannot be changed");
}

/* called(): the name of the function that the plan has called. */
static int called_name(lua_State *L)
{
  lua_pushstring(L, called_or("tensor"));
  return 1;
}

/* place(): the path of the module whose forward runs, "layers.0.w1", or "". */
static int place_in_plan(lua_State *L)
{
  lua_pushstring(
      L, recording.call == NONE ? "" : graph->module[graph->call[recording.call].module].path);
  return 1;
}

/* recording(): whether tensors can be computed with now. */
static int is_recording(lua_State *L)
{
  lua_pushboolean(L, recording.on);
  return 1;
}

/* ----------------------------------------------------------------------------------- the tables */

/* Sets, in the table at the top, `methods` and `events`, for x.name and for x + y; our Lua files
   fill both. */
static void make_tensors(lua_State *L)
{
  static const luaL_Reg events[] = {{"__len", length_of_tensor},
                                    {"__tostring", describe},
                                    {"__newindex", no_assignment},
                                    {NULL, NULL}};
  lua_newtable(L);
  forbid_absent(L, "a tensor");
  luaL_newmetatable(L, "tensor");
  metatable = lua_topointer(L, -1);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &metatable);
  luaL_setfuncs(L, events, 0);
  lua_pushvalue(L, -2);
  lua_pushcclosure(L, field, 1);
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setfield(L, -3, "events");
  lua_setfield(L, -2, "methods");
}

void set_tensor_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"named", named_function},
                                       {"unwatched", unwatched},
                                       {"unlike", unlike},
                                       {"called", called_name},
                                       {"place", place_in_plan},
                                       {"recording", is_recording},
                                       {"append", append_operation},
                                       {"rows", list_rows},
                                       {"declare_operator", declare_operator},
                                       {"apply_operator", apply_operator},
                                       {"shape", shape_of_tensor},
                                       {"type", type_of_tensor},
                                       {"line_of_tensor", line_of_tensor},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
  make_tensors(L);
}
