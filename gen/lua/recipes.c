/* recipes.c: the functions with which our Lua files say how parameters are updated: the optimizers,
   traced to operations, and the parameters of each. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* The text in a field of the table at the top, or NULL. */
static const char *text_field(lua_State *L, const char *name)
{
  lua_getfield(L, -1, name);
  const char *s = lua_tostring(L, -1);
  s = s ? copy_text(s) : NULL;
  lua_pop(L, 1);
  return s;
}

static int int_at(lua_State *L, int i)
{
  lua_geti(L, -1, i);
  int n = (int)luaL_checkinteger(L, -1);
  lua_pop(L, 1);
  return n;
}

/* Pushes a list in the table at the top; returns its length. */
static int push_names(lua_State *L, const char *name)
{
  lua_getfield(L, -1, name);
  luaL_checktype(L, -1, LUA_TTABLE);
  return (int)luaL_len(L, -1);
}

static enum op_kind row_named(const char *name)
{
  for (int k = 0; k < OP_COUNT; k++)
    if (!strcmp(op_row[k].name, name)) return (enum op_kind)k;
  plan_fails("an optimizer knows no operation '%s'", name);
}

static int int_field(lua_State *L, const char *name)
{
  lua_getfield(L, -1, name);
  int n = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n;
}

static void take_steps(lua_State *L, struct optimizer *o)
{
  o->noperation = int_field(L, "operations");
  o->nstep = push_names(L, "steps");
  o->step = alloc(((size_t)o->nstep + 1) * sizeof *o->step);
  for (int s = 0; s < o->nstep; s++) {
    int i = s + 1;
    lua_geti(L, -1, i);
    struct update_step step = {.kind = row_named(text_field(L, "row")),
                               .dims = (unsigned)int_field(L, "dims"),
                               .equation = text_field(L, "equation")};
    const char *type = text_field(L, "type");
    step.type = type && !strcmp(type, "bfloat16") ? BF16 : F32;
    lua_getfield(L, -1, "keep");
    step.keepdim = lua_toboolean(L, -1);
    lua_getfield(L, -2, "scalar");
    step.scalar = lua_tonumber(L, -1);
    lua_pop(L, 2);
    for (int k = 0; k < inputs_of_step(step.kind); k++) step.in[k] = int_at(L, k + 1);
    lua_pop(L, 1);
    o->step[s] = step;
  }
  lua_pop(L, 1);
  push_names(L, "out");
  for (int k = 0; k <= o->nstate; k++) o->out[k] = int_at(L, k + 1);
  lua_pop(L, 1);
  push_names(L, "ones");
  for (int k = 0; k < o->nstate; k++) o->ones[k] = (unsigned)int_at(L, k + 1);
  lua_pop(L, 1);
}

/* set_optimizers{{name=, settings=, match=, rate=, schedule=, line=, states=, ones=, numbers=,
   steps=, operations=, out=}, ...}: the first is of all parameters that no pattern fits. */
static int set_optimizers(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  int n = (int)luaL_len(L, 1);
  plan_options->noptimizer = n;
  plan_options->optimizer = alloc((size_t)n * sizeof *plan_options->optimizer);
  for (int i = 0; i < n; i++) {
    struct optimizer *o = &plan_options->optimizer[i];
    lua_geti(L, 1, i + 1);
    *o = (struct optimizer){.name = text_field(L, "name"),
                            .settings = text_field(L, "settings"),
                            .match = text_field(L, "match"),
                            .rate = text_field(L, "rate"),
                            .schedule = text_field(L, "schedule")};
    lua_getfield(L, -1, "by_part");
    o->by_part = lua_toboolean(L, -1);
    lua_pop(L, 1);
    lua_getfield(L, -1, "line");
    o->line = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    o->nstate = push_names(L, "states");
    for (int k = 0; k < o->nstate; k++) {
      lua_geti(L, -1, k + 1);
      o->state[k] = copy_text(luaL_checkstring(L, -1));
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    o->nnumber = push_names(L, "numbers");
    o->number = alloc(((size_t)o->nnumber + 1) * sizeof *o->number);
    for (int k = 0; k < o->nnumber; k++) {
      lua_geti(L, -1, k + 1);
      o->number[k] =
          (struct step_number){.name = text_field(L, "name"), .text = text_field(L, "text")};
      lua_getfield(L, -1, "value");
      o->number[k].value = lua_tonumber(L, -1);
      lua_pop(L, 2);
    }
    lua_pop(L, 1);
    take_steps(L, o);
    lua_pop(L, 1);
  }
  return 0;
}

/* fitting(pattern): how many trained parameters it fits. */
static int fitting(lua_State *L)
{
  const char *pattern = luaL_checkstring(L, 1);
  int fit = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    fit += v->role == PARAMETER && !v->frozen && fits_pattern(v->name, pattern, NULL, NULL);
  }
  lua_pushinteger(L, fit);
  return 1;
}

/* join_group(which, pattern): the parameters that no group has and that the pattern fits are of
   plan_options->optimizer[which]. Returns how many fit, and how many are new. */
static int join_group(lua_State *L)
{
  int which = (int)luaL_checkinteger(L, 1), fit = 0, joined = 0;
  const char *pattern = luaL_checkstring(L, 2);
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->frozen || !fits_pattern(v->name, pattern, NULL, NULL)) continue;
    fit++;
    if (v->optimizer) continue;
    v->optimizer = which;
    joined++;
  }
  lua_pushinteger(L, fit);
  lua_pushinteger(L, joined);
  return 2;
}

/* By value: whether the forward holds the parameter as `running`: a buffer, which no optimizer
   trains. */
static bool *buffers_of_model(void)
{
  bool *is_buffer = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    if (op->kind != OP_running) continue;
    int buffer = op->in[1];
    while (graph->value[buffer].op != NONE) buffer = graph->op[graph->value[buffer].op].in[0];
    is_buffer[buffer] = true;
  }
  return is_buffer;
}

/* The shape of a parameter as an optimizer sees it: of the whole that files have, or of a part. */
static struct shape shape_seen(int parameter, bool by_part)
{
  const struct value *v = &graph->value[parameter];
  struct shape s = v->shape;
  if (v->file_size && !by_part) s.size[v->file_dim] = v->file_size;
  return s;
}

/* The parameters that the optimizer trains: all, or the first of each shape. */
static struct list trained_by(int which, bool of_each_shape, bool by_part)
{
  const bool *is_buffer = buffers_of_model();
  struct list found = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->frozen || v->optimizer != which || is_buffer[i]) continue;
    bool again = false;
    for (int k = 0; k < found.n && of_each_shape; k++)
      again |= same_shape(shape_seen(found.at[k], by_part), shape_seen(i, by_part));
    if (!again) add(&found, i);
  }
  return found;
}

/* shapes_of(which, by_part): the shapes of the optimizer's parameters, and the name of the first of
   each. */
static int shapes_of(lua_State *L)
{
  bool by_part = lua_toboolean(L, 2);
  struct list first = trained_by((int)luaL_checkinteger(L, 1), true, by_part);
  lua_newtable(L);
  lua_newtable(L);
  for (int i = 0; i < first.n; i++) {
    struct shape s = shape_seen(first.at[i], by_part);
    lua_createtable(L, s.ndim, 0);
    for (int d = 0; d < s.ndim; d++) {
      lua_pushinteger(L, s.size[d]);
      lua_seti(L, -2, d + 1);
    }
    lua_seti(L, -3, i + 1);
    lua_pushstring(L, graph->value[first.at[i]].name);
    lua_seti(L, -2, i + 1);
  }
  return 2;
}

/* move_to(from, shape, to, by_part): the parameters of optimizer `from` that have that shape are of
   `to`. */
static int move_to(lua_State *L)
{
  bool by_part = lua_toboolean(L, 4);
  struct list of = trained_by((int)luaL_checkinteger(L, 1), false, by_part);
  int to = (int)luaL_checkinteger(L, 3);
  struct shape shape = {.ndim = (int)luaL_len(L, 2)};
  if (shape.ndim > MAX_DIMS) plan_fails("a parameter has at most %d dimensions", MAX_DIMS);
  lua_settop(L, 2);
  for (int d = 0; d < shape.ndim; d++) {
    lua_geti(L, 2, d + 1);
    shape.size[d] = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  for (int i = 0; i < of.n; i++)
    if (same_shape(shape_seen(of.at[i], by_part), shape)) graph->value[of.at[i]].optimizer = to;
  return 0;
}

/* element_rows(): {name = number of inputs} of the operations that an optimizer may use. */
static int element_rows(lua_State *L)
{
  lua_newtable(L);
  for (int k = 0; k < OP_COUNT; k++) {
    int n = inputs_of_row((enum op_kind)k);
    if (!n) continue;
    lua_pushinteger(L, n);
    lua_setfield(L, -2, op_row[k].name);
  }
  return 1;
}

/* double_text(number): the shortest text that reads back as it. */
static int text_of_double(lua_State *L)
{
  lua_pushstring(L, double_text(luaL_checknumber(L, 1)));
  return 1;
}

void set_recipe_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {
      {"set_optimizers", set_optimizers}, {"fitting", fitting}, {"join_group", join_group},
      {"shapes_of", shapes_of},           {"move_to", move_to}, {"element_rows", element_rows},
      {"double_text", text_of_double},    {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
