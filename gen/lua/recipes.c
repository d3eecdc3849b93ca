/* recipes.c: the functions with which our Lua files say how parameters are updated: the optimizers,
   traced to operations on one element, and the parameters of each. */
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
static int push_list(lua_State *L, const char *name)
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

static void take_states(lua_State *L, struct optimizer *o)
{
  o->nstate = push_list(L, "states");
  for (int k = 0; k < o->nstate; k++) {
    lua_geti(L, -1, k + 1);
    o->state[k] = copy_text(luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

static void take_numbers(lua_State *L, struct optimizer *o)
{
  o->nnumber = push_list(L, "numbers");
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
}

static void take_steps(lua_State *L, struct optimizer *o)
{
  o->nstep = push_list(L, "steps");
  o->step = alloc(((size_t)o->nstep + 1) * sizeof *o->step);
  for (int s = 0; s < o->nstep; s++) {
    lua_geti(L, -1, s + 1);
    struct update_step *step = &o->step[s];
    *step = (struct update_step){.kind = row_named(text_field(L, "row"))};
    for (int i = 0; i < inputs_of_row(step->kind); i++) step->in[i] = int_at(L, i + 1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  push_list(L, "out");
  for (int k = 0; k <= o->nstate; k++) o->out[k] = int_at(L, k + 1);
  lua_pop(L, 1);
}

/* set_optimizers{{name=, settings=, match=, rate=, schedule=, line=, states=, numbers=, steps=,
   out=}, ...}: the first is of all parameters that no pattern fits. */
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
    lua_getfield(L, -1, "line");
    o->line = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
    take_states(L, o);
    take_numbers(L, o);
    take_steps(L, o);
    lua_pop(L, 1);
  }
  return 0;
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
  static const luaL_Reg functions[] = {{"set_optimizers", set_optimizers},
                                       {"join_group", join_group},
                                       {"element_rows", element_rows},
                                       {"double_text", text_of_double},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
