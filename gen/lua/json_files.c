/* json_files.c: read_json, by which a plan reads a JSON file, such as a model's config.json. */
#include "lua/lua.h"

#include <jansson.h>
#include <lauxlib.h>
#include <lua.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

/* How a file's JSON becomes values of Lua. */
struct reading {
  lua_State *L;
  const char *path; /* of the file, for messages */
  int most_depth;
  int of_null; /* the index in the stack of the value for null; 0: nil */
};

static void push_nested(const struct reading *r, const json_t *json, int depth);

static void push_object(const struct reading *r, json_t *json, int depth)
{
  lua_State *L = r->L;
  lua_createtable(L, 0, (int)json_object_size(json));
  for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
    lua_pushstring(L, json_object_iter_key(at));
    push_nested(r, json_object_iter_value(at), depth);
    lua_rawset(L, -3);
  }
}

/* null becomes the value for null, or false, so that the list has no holes. */
static void push_json_list(const struct reading *r, const json_t *json, int depth)
{
  lua_State *L = r->L;
  size_t n = json_array_size(json);
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    push_nested(r, json_array_get(json, i), depth);
    if (lua_isnil(L, -1)) {
      lua_pushboolean(L, 0);
      lua_replace(L, -2);
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

/* Outside a list, null becomes the value for null, or nil. */
static void push_nested(const struct reading *r, const json_t *json, int depth)
{
  lua_State *L = r->L;
  if (depth == r->most_depth) plan_fails("%s is nested deeper than %d", r->path, r->most_depth);
  luaL_checkstack(L, 4, NULL);
  switch (json_typeof(json)) {
  case JSON_OBJECT:
    push_object(r, (json_t *)json, depth + 1);
    break;
  case JSON_ARRAY:
    push_json_list(r, json, depth + 1);
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
    if (r->of_null)
      lua_pushvalue(L, r->of_null);
    else
      lua_pushnil(L);
    break;
  }
}

void push_json(lua_State *L, const char *path, const json_t *json, int depth)
{
  push_nested(&(struct reading){.L = L, .path = path, .most_depth = depth}, json, 0);
}

/* read_json(path, null, is_cluster): the file's content: an object as a table by name, a list as a
   list, null as `null`, if it is given. is_cluster: it is the file of the mesh's cluster. */
static int read_json(lua_State *L)
{
  size_t length;
  const char *path = luaL_checklstring(L, 1, &length);
  if (!length || strlen(path) != length) plan_fails("read_json: that is not a path of a file");
  const bool is_cluster = lua_toboolean(L, 3);
  const char *who = is_cluster ? "device_mesh's cluster" : "read_json";
  const char *file = requested_text(is_cluster ? BY_CLUSTER : BY_READ_JSON, path, &length);
  json_error_t error;
  json_t *json = json_loadb(file, length, JSON_REJECT_DUPLICATES, &error);
  if (!json) plan_fails("%s: %s:%d is not JSON: %s", who, path, error.line, error.text);
  const struct reading r = {.L = L,
                            .path = text("%s: %s", who, path),
                            .most_depth = MAX_DEPTH,
                            .of_null = lua_isnoneornil(L, 2) ? 0 : 2};
  push_nested(&r, json, 0);
  return 1;
}

void set_json_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"read_json", read_json}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
