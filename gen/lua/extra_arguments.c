/* extra_arguments.c: reports surplus arguments and keys. Lua drops arguments for which a function
   has no parameter, and unused keys of a list go unnoticed: here both are the plan's error. Lua
   knows the number of a function's parameters. A nil at the end is ignored. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>

int most_arguments(lua_State *L, int at)
{
  lua_Debug about;
  push_behind(L, at);
  if (lua_type(L, -1) != LUA_TFUNCTION || lua_iscfunction(L, -1)) {
    lua_pop(L, 1);
    return ANY_NUMBER;
  }
  lua_getinfo(L, ">u", &about);
  return about.isvararg ? ANY_NUMBER : about.nparams;
}

void forbid_surplus(lua_State *L, const char *what, int function, int skipped, int first)
{
  int most = most_arguments(L, function), top = lua_gettop(L);
  while (top >= first && lua_isnil(L, top)) top--;
  int given = top - first + 1;
  if (most == ANY_NUMBER || given + skipped <= most) return;
  const char *hint = tensor_at(L, first + most - skipped)
                         ? "; a call that gives several results gives one in brackets: (x:max(1))"
                         : "";
  const char *arguments = text("%d argument%s", given, given > 1 ? "s" : "");
  if (most <= skipped) plan_fails("%s is given %s, and takes none%s", what, arguments, hint);
  /* "x, dim": the parameters after the first `skipped`. */
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = skipped + 1; i <= most; i++) {
    push_behind(L, function);
    const char *name = lua_getlocal(L, NULL, i);
    put(&b, "%s%s", b.length ? ", " : "", name ? name : "?");
  }
  plan_fails("%s is given %s, and takes at most %d: %s%s", what, arguments, most - skipped, b.text,
             hint);
}

/* check_given(what, function, skipped, arguments...): fails if these are more than the function has
   parameters after the first `skipped`. */
static int check_given(lua_State *L)
{
  forbid_surplus(L, luaL_checkstring(L, 1), 2, (int)luaL_checkinteger(L, 3), 4);
  return 0;
}

/* Upvalues: the function, its name, whether it takes arguments by name, its refused parameters. */
static int call_counted(lua_State *L)
{
  int function = lua_upvalueindex(1);
  if (lua_toboolean(L, lua_upvalueindex(3))) {
    const char *what = lua_tostring(L, lua_upvalueindex(2));
    place_keywords(L, what, function, 0, NULL);
    check_refused_parameters(L, what, function, (unsigned)lua_tointeger(L, lua_upvalueindex(4)));
  }
  forbid_surplus(L, lua_tostring(L, lua_upvalueindex(2)), function, 0, 1);
  lua_pushvalue(L, function);
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* counted(name, function[, by_name]): the function, which fails on surplus arguments. by_name: its
   last argument may be a table of arguments by name. */
static int count_arguments(lua_State *L)
{
  luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 3);
  bool by_name = lua_toboolean(L, 3);
  lua_settop(L, 2);
  if (most_arguments(L, 2) == ANY_NUMBER) return 1;
  unsigned mask = refused_parameters(L, 2);
  lua_insert(L, 1);
  lua_pushboolean(L, by_name);
  lua_pushinteger(L, mask);
  lua_pushcclosure(L, call_counted, 4);
  return 1;
}

static bool is_in_list(lua_State *L, int key, lua_Integer n)
{
  return lua_isinteger(L, key) && lua_tointeger(L, key) >= 1 && lua_tointeger(L, key) <= n;
}

/* stray_key(table): a key that is not in 1 to its length, always the same one; or nil. */
static int stray_key(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  bool has = false;
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) has |= !is_in_list(L, -2, n);
  if (!has) return 0;
  push_keys(L, 1);
  for (lua_Integer i = 1; lua_rawgeti(L, 2, i) != LUA_TNIL; i++, lua_pop(L, 1))
    if (!is_in_list(L, -1, n)) return 1;
  return 0;
}

void set_surplus_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"check_given", check_given},
                                       {"counted", count_arguments},
                                       {"stray_key", stray_key},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
