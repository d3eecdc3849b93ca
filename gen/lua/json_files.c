/* json_files.c: read_json, by which a plan reads a JSON file, such as a model's config.json.

   The process that reads the plan can open no file. If the plan requests a file that was not read
   yet, the process stores its path and ends. The parent reads the file, if the plan may see it, and
   the plan starts again with the file at hand. A plan may see the files that the command line
   names, as in -D config=FILE, and those in or below its own directory. */
#include "lua/lua.h"

#include <jansson.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 8, MAX_JSON = 1 << 18, MAX_DEPTH = 32 };

static struct {
  const char *path, *text;
  size_t length;
} known[MAX_FILES];
static int nknown;

/* ----------------------------------------------------------------------------------- the parent */

/* Whether a definition of the command line is exactly this path. */
static bool is_defined(const char *path)
{
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].value, path)) return true;
  return false;
}

bool read_wanted_file(void)
{
  if (!*sandbox->wanted) return false;
  const char *path = copy_text(sandbox->wanted), *at = path, *why = NULL;
  if (!is_defined(path)) {
    const char *slash = strrchr(options.plan, '/');
    const char *directory =
        slash ? text("%.*s", (int)(slash + 1 - options.plan), options.plan) : "";
    at = text("%s%s", *path == '/' ? "" : directory, path);
    if (access(at, F_OK) == 0 && !is_below_plan(directory, at))
      why = "a plan reads files that lie beside it, or that -D names";
  }
  if (!why) known[nknown].text = read_file(at, MAX_JSON, &known[nknown].length, &why);
  if (why) plan_error(sandbox->line, "read_json: cannot read %s: %s", printable(path), why);
  known[nknown++].path = path;
  return true;
}

uint64_t hash_files(uint64_t hash)
{
  for (int i = 0; i < nknown; i++) {
    hash = hash_bytes(hash, known[i].path, strlen(known[i].path) + 1);
    hash = hash_bytes(hash, known[i].text, known[i].length);
  }
  return hash;
}

/* --------------------------------------------------------------------------- inside the sandbox */

static void push_json(lua_State *L, const char *path, const json_t *json, int depth);

static void push_object(lua_State *L, const char *path, json_t *json, int depth)
{
  lua_createtable(L, 0, (int)json_object_size(json));
  for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
    lua_pushstring(L, json_object_iter_key(at));
    push_json(L, path, json_object_iter_value(at), depth);
    lua_rawset(L, -3);
  }
}
static void push_list(lua_State *L, const char *path, const json_t *json, int depth);

/* null becomes nil; in a list it becomes false, so that the list has no holes. */
static void push_json(lua_State *L, const char *path, const json_t *json, int depth)
{
  if (depth == MAX_DEPTH) plan_fails("read_json: %s is nested deeper than %d", path, MAX_DEPTH);
  luaL_checkstack(L, 4, NULL);
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    push_object(L, path, (json_t *)json, depth + 1);
    break;
  case JSON_ARRAY:
    push_list(L, path, json, depth + 1);
    break;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(json), json_string_length(json));
    break;
  case JSON_INTEGER:
    lua_pushinteger(L, (lua_Integer)json_integer_value(json));
    break;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(json));
    break;
  case JSON_TRUE:
    lua_pushboolean(L, 1);
    break;
  case JSON_FALSE:
    lua_pushboolean(L, 0);
    break;
  case JSON_NULL:
    lua_pushnil(L);
    break;
  }
}

static void push_list(lua_State *L, const char *path, const json_t *json, int depth)
{
  size_t n = json_array_size(json);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    push_json(L, path, json_array_get(json, i), depth);
    if (lua_isnil(L, -1)) {
      lua_pushboolean(L, 0);
      lua_replace(L, -2);
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static int ask_for(const char *path)
{
  if (nknown == MAX_FILES) plan_fails("read_json: a plan reads at most %d files", MAX_FILES);
  if (strlen(path) >= sizeof sandbox->wanted)
    plan_fails("read_json: a path of %zu letters", strlen(path));
  strcpy(sandbox->wanted, path);
  _exit(0);
}

/* read_json(path): the file's content: an object as a table by name, a list as a list. */
static int read_json(lua_State *L)
{
  size_t length;
  const char *path = luaL_checklstring(L, 1, &length);
  if (!length || strlen(path) != length) plan_fails("read_json: that is no path of a file");
  int i = 0;
  while (i < nknown && strcmp(known[i].path, path)) i++;
  if (i == nknown) return ask_for(path);
  json_error_t error;
  json_t *json = json_loadb(known[i].text, known[i].length, JSON_REJECT_DUPLICATES, &error);
  if (!json) plan_fails("read_json: %s:%d is no JSON: %s", path, error.line, error.text);
  push_json(L, path, json, 0);
  return 1;
}

void set_file_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"read_json", read_json}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
