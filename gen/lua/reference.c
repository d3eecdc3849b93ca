/* reference.c: the sources of the reference of the plan language (prelude/language/reference.lua):
   the texts of our own Lua files, and the parameters of functions. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdlib.h>
#include <string.h>

/* sources(): {{name, text}, ...} of the Lua side, by name. */
static int sources(lua_State *L)
{
  static const char folder[] = "gen/lua/prelude/";
  lua_newtable(L);
  for (int i = 0; i < nembedded; i++) {
    if (strncmp(embedded[i].name, folder, strlen(folder)) != 0) continue;
    lua_createtable(L, 2, 0);
    lua_pushstring(L, embedded[i].name + strlen(folder));
    lua_rawseti(L, -2, 1);
    lua_pushstring(L, (const char *)embedded[i].text);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  return 1;
}

/* Replaces the function at the top, which may be one of our C functions, by the Lua function that
   it wraps: the first function among its upvalues. */
static void unwrap(lua_State *L)
{
  bool wraps = true;
  while (wraps && lua_iscfunction(L, -1)) {
    wraps = false;
    for (int i = 1; !wraps && lua_getupvalue(L, -1, i); i++) {
      wraps = lua_isfunction(L, -1);
      lua_remove(L, wraps ? -2 : -1);
    }
  }
}

/* behind(f): the Lua function that f wraps. */
static int behind(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  unwrap(L);
  return 1;
}

/* parameters_of_function(f, is_ours): the names of its parameters, unless it is ours without those
   that PyTorch has and no function supports; whether more arguments may follow; and whether it is a
   function of Lua's own. */
static int parameters_of_function(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TFUNCTION);
  bool is_ours = lua_toboolean(L, 2);
  lua_settop(L, 1);
  unwrap(L);
  int f = lua_gettop(L);
  lua_newtable(L);
  if (lua_iscfunction(L, f)) {
    lua_pushboolean(L, 1);
    lua_pushboolean(L, 1);
    return 3;
  }
  for (int i = 1;; i++) {
    lua_pushvalue(L, f);
    const char *name = lua_getlocal(L, NULL, i);
    if (!name) break;
    if (!is_ours && is_refused_name(name)) continue;
    size_t n = strlen(name);
    lua_pushlstring(L, name, n > 1 && name[n - 1] == '_' ? n - 1 : n);
    lua_rawseti(L, f + 1, (lua_Integer)lua_rawlen(L, f + 1) + 1);
  }
  lua_settop(L, f + 1);
  lua_Debug about;
  lua_pushvalue(L, f);
  lua_getinfo(L, ">u", &about);
  lua_pushboolean(L, about.isvararg);
  lua_pushboolean(L, 0);
  return 3;
}

/* reference_form(): "markdown" or "types". */
static int reference_form(lua_State *L)
{
  lua_pushstring(L, options.reference);
  return 1;
}

/* write(text): to standard output. */
static int write_text(lua_State *L)
{
  fputs(luaL_checkstring(L, 1), stdout);
  return 0;
}

void set_reference_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"sources", sources},
                                       {"behind", behind},
                                       {"parameters_of_function", parameters_of_function},
                                       {"reference_form", reference_form},
                                       {"write", write_text},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
