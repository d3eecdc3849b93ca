/* require.c: the files of Lua that a plan requires from beside it. They run in the plan's sandbox,
   within its limits, with its variables. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* The number of the required file, from 1. */
static int file_number(const char *path)
{
  for (int i = 1; i <= plan_files(); i++)
    if (!strcmp(file_of_line("", i * LINES_OF_FILE), path)) return i;
  return 0;
}

/* required(name, environment): the file as a function, and its path. */
static int required(lua_State *L)
{
  size_t length;
  const char *name = luaL_checklstring(L, 1, &length), *path = path_of_name(name, length);
  if (!path)
    plan_fails("require: '%.80s' is not a name of a file below the plan's folder: write "
               "\"lib.model\" for lib/model.lua",
               name);
  const char *file = requested_text(BY_REQUIRE, path, &length);
  const char *chunk = text("=" PLAN_NAME "%d", file_number(path));
  if (luaL_loadbufferx(L, file, length, chunk, "t") != LUA_OK) return lua_error(L);
  lua_pushvalue(L, 2);
  lua_setupvalue(L, -2, 1);
  lua_pushstring(L, path);
  return 2;
}

void set_require_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"required", required}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
