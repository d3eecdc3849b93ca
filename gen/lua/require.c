/* require.c: the files of Lua that a plan requires from beside it. They run in the plan's sandbox,
   within its limits, with its variables. */
#include "lua/lua.h"

#include <ctype.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* "lib.model" and "lib/model" are lib/model.lua: names of letters, digits, _ and -. */
static const char *path_of(const char *name, size_t length)
{
  char *path = text("%s.lua", name);
  bool wrong = !length || strlen(name) != length;
  for (size_t i = 0; i < length && !wrong; i++) {
    bool parts = name[i] == '.' || name[i] == '/';
    bool before = i > 0 && name[i - 1] != '.' && name[i - 1] != '/', after = i + 1 < length;
    bool plain = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
    wrong = parts ? !before || !after : !plain;
    if (parts) path[i] = '/';
  }
  if (wrong)
    plan_fails("require: '%.80s' is no name of a file below the plan's folder: write "
               "\"lib.model\" for lib/model.lua",
               name);
  return path;
}

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
  const char *name = luaL_checklstring(L, 1, &length), *path = path_of(name, length);
  const char *file = wanted_text(BY_REQUIRE, path, &length);
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
