/* environment.c: the part of Lua that a plan may use.

   This is a list of allowed names, not of forbidden ones. Nothing in it can reach a file, load
   code, reveal an address, a time or a random number, or depend on the order of a hash table: the
   same plan gives the same graph in every process. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_REPEAT = 16 << 20 };

#define METHOD_HINTS "tpgen method hints" /* in the registry */

static const char *const from_base[] = {"assert", "error",  "ipairs", "rawequal", "rawlen",
                                        "rawget", "rawset", "select", "tonumber", "type"};

static const struct {
  const char *name;
  lua_CFunction open;
  const char *without[3];
} libraries[] = {{"math", luaopen_math, {"random", "randomseed"}},
                 {"string", luaopen_string, {"dump"}},
                 {"table", luaopen_table, {NULL}},
                 {"utf8", luaopen_utf8, {NULL}}};

static const char *const absent[] = {"_G",   "collectgarbage", "coroutine", "debug",      "dofile",
                                     "io",   "load",           "loadfile",  "loadstring", "next",
                                     "os",   "package",        "pcall",     "setfenv",    "unpack",
                                     "warn", "xpcall"};

/* ----------------------------------------------------------------------------- the nearest name */

enum { COMPARED = 64 }; /* letters of a name */

static int smaller_of(int a, int b)
{
  return a < b ? a : b;
}

/* The number of letters to add, drop, change or swap with their neighbour. */
static int distance(const char *a, const char *b)
{
  int n = (int)strnlen(a, COMPARED), m = (int)strnlen(b, COMPARED);
  int cost[COMPARED + 1][COMPARED + 1];
  for (int i = 0; i <= n; i++) cost[i][0] = i;
  for (int j = 0; j <= m; j++) cost[0][j] = j;
  for (int i = 1; i <= n; i++)
    for (int j = 1; j <= m; j++) {
      int same = a[i - 1] == b[j - 1];
      cost[i][j] =
          smaller_of(cost[i - 1][j - 1] + !same, smaller_of(cost[i - 1][j], cost[i][j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = smaller_of(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[n][m];
}

void push_suggestion(lua_State *L, const char *name, int list)
{
  list = lua_absindex(L, list);
  int n = (int)lua_rawlen(L, list), best = 0, length = (int)strnlen(name, COMPARED);
  int best_distance = length < 6 ? 2 : length / 3 + 1; /* no more than every third letter */
  for (int i = 1; i <= n; i++) {
    if (lua_rawgeti(L, list, i) == LUA_TSTRING) {
      int d = distance(name, lua_tostring(L, -1));
      if (d < best_distance) {
        best = i;
        best_distance = d;
      }
    }
    lua_pop(L, 1);
  }
  if (!best) {
    lua_pushliteral(L, "");
    return;
  }
  lua_rawgeti(L, list, best);
  lua_pushfstring(L, "; did you mean '%s'?", lua_tostring(L, -1));
  lua_remove(L, -2);
}

struct near {
  int distance, index;
};

static int nearer(const void *a, const void *b)
{
  const struct near *x = a, *y = b;
  if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* nearest(name, list): the list, sorted by distance from the name. */
static int nearest(lua_State *L)
{
  const char *name = luaL_checkstring(L, 1);
  int n = (int)luaL_len(L, 2);
  struct near *order = lua_newuserdatauv(L, (size_t)n * sizeof *order + 1, 0);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 2, i + 1);
    order[i] = (struct near){.distance = distance(name, luaL_checkstring(L, -1)), .index = i};
    lua_pop(L, 1);
  }
  qsort(order, (size_t)n, sizeof *order, nearer);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 2, order[i].index + 1);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* all_known(table, names): whether each of the table's keys is one of these; false also for a table
   with a metatable. */
static int all_known(lua_State *L)
{
  int n = (int)lua_rawlen(L, 2);
  bool known = !lua_getmetatable(L, 1);
  lua_settop(L, 2);
  lua_pushnil(L);
  while (known && lua_next(L, 1)) {
    lua_pop(L, 1);
    known = false;
    for (int i = 1; i <= n && !known; i++) {
      lua_rawgeti(L, 2, i);
      known = lua_rawequal(L, -1, -2);
      lua_pop(L, 1);
    }
  }
  lua_pushboolean(L, known);
  return 1;
}

/* suggestion(name, list) */
static int suggestion(lua_State *L)
{
  push_suggestion(L, luaL_checkstring(L, 1), 2);
  return 1;
}

/* -------------------------------------------------------------------------------- ordered pairs */

struct key {
  const char *text; /* NULL: a whole number */
  size_t length;
  lua_Integer number;
};

static int compare_keys(const void *a, const void *b)
{
  const struct key *x = a, *y = b;
  if (!x->text || !y->text) {
    if (x->text || y->text) return x->text ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
  }
  int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
  return order ? order : (x->length > y->length) - (x->length < y->length);
}

static struct key read_key(lua_State *L, int at)
{
  struct key k = {0};
  if (lua_type(L, at) == LUA_TSTRING)
    k.text = lua_tolstring(L, at, &k.length);
  else if (lua_isinteger(L, at))
    k.number = lua_tointeger(L, at);
  else
    luaL_error(L,
               "pairs: one of the table's keys is a %s: only whole numbers and strings have an "
               "order",
               luaL_typename(L, at));
  return k;
}

void push_keys(lua_State *L, int table)
{
  table = lua_absindex(L, table);
  luaL_checkstack(L, 8, NULL);
  size_t k = 0;
  lua_pushnil(L);
  while (lua_next(L, table)) {
    k++;
    lua_pop(L, 1);
  }
  size_t n = k, i = 0;
  struct key *keys = lua_newuserdatauv(L, n * sizeof *keys + 1, 0);
  lua_pushnil(L);
  while (lua_next(L, table)) {
    lua_pop(L, 1);
    keys[i++] = read_key(L, -1);
  }
  qsort(keys, n, sizeof *keys, compare_keys);
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n; i++) {
    if (keys[i].text)
      lua_pushlstring(L, keys[i].text, keys[i].length);
    else
      lua_pushinteger(L, keys[i].number);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_remove(L, -2);
}

/* Upvalues: the table, its keys in order, the number of visited ones. */
static int next_pair(lua_State *L)
{
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(3));
  for (;;) {
    i++;
    if (lua_rawgeti(L, lua_upvalueindex(2), i) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL) break;
    lua_pop(L, 2); /* its key was removed while the loop ran */
  }
  lua_pushinteger(L, i);
  lua_replace(L, lua_upvalueindex(3));
  return 2;
}

static int ordered_pairs(lua_State *L)
{
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
    lua_pushvalue(L, 1);
    lua_call(L, 1, 3);
    return 3;
  }
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_pushvalue(L, 1);
  push_keys(L, 1);
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_pair, 3);
  return 1;
}

/* ----------------------------------------------------------------------- text without addresses */

void push_text(lua_State *L, int at)
{
  if (luaL_callmeta(L, at, "__tostring")) {
    if (!lua_isstring(L, -1)) luaL_error(L, "'__tostring' must return a string");
    return;
  }
  switch (lua_type(L, at)) {
  case LUA_TNIL:
  case LUA_TBOOLEAN:
  case LUA_TNUMBER:
  case LUA_TSTRING:
    luaL_tolstring(L, at, NULL);
    break;
  default:
    lua_pushstring(L, luaL_typename(L, at));
  }
}

static int to_string(lua_State *L)
{
  luaL_checkany(L, 1);
  push_text(L, 1);
  return 1;
}

static void print_text(const char *s, size_t n)
{
  size_t room = sizeof sandbox->print - sandbox->printed;
  if (n > room) plan_fails("print: more than %zu bytes", sizeof sandbox->print);
  memcpy(sandbox->print + sandbox->printed, s, n);
  sandbox->printed += n;
}

static int print_values(lua_State *L)
{
  int n = lua_gettop(L);
  for (int i = 1; i <= n; i++) {
    size_t length;
    push_text(L, i);
    const char *s = lua_tolstring(L, -1, &length);
    if (i > 1) print_text("\t", 1);
    print_text(s, length);
    lua_pop(L, 1);
  }
  print_text("\n", 1);
  return 0;
}

/* string.format, upvalue 1, where "%s" uses our tostring and "%p" does not exist. */
static int format(lua_State *L)
{
  const char *c = luaL_checkstring(L, 1);
  int top = lua_gettop(L), argument = 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  for (; *c; c++) {
    if (*c != '%' || *++c == '%') continue;
    c += strspn(c, "-+ #0123456789.");
    argument++;
    if (*c == 'p') return luaL_error(L, "string.format: a plan has no '%%p'");
    if (*c == 's' && argument <= top) {
      push_text(L, argument + 1);
      lua_replace(L, argument + 1);
    }
    if (!*c) break;
  }
  lua_call(L, top, 1);
  return 1;
}

/* string.rep, upvalue 1, if the result fits in memory. */
static int repeat(lua_State *L)
{
  size_t length, between;
  luaL_checklstring(L, 1, &length);
  lua_Integer n = luaL_checkinteger(L, 2);
  luaL_optlstring(L, 3, "", &between);
  if (n > 0 && (size_t)n > LONGEST_REPEAT / (length + between + 1))
    return luaL_error(L, "string.rep: the result is longer than %d bytes", LONGEST_REPEAT);
  lua_settop(L, 3);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 3, 1);
  return 1;
}

/* ----------------------------------------------------------------------------------- metatables */

static int get_metatable(lua_State *L)
{
  luaL_checkany(L, 1);
  if (lua_type(L, 1) == LUA_TSTRING || !lua_getmetatable(L, 1)) return 0;
  luaL_getmetafield(L, 1, "__metatable");
  return 1;
}

static int set_metatable(lua_State *L)
{
  static const char *const refused[] = {"__gc", "__mode", "__close"};
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
    return luaL_error(L, "cannot change a protected metatable");
  lua_settop(L, 2);
  for (size_t i = 0; i < sizeof refused / sizeof *refused && lua_istable(L, 2); i++) {
    lua_pushstring(L, refused[i]);
    if (lua_rawget(L, 2) != LUA_TNIL)
      return luaL_error(L, "setmetatable: a plan has no '%s'", refused[i]);
    lua_pop(L, 1);
  }
  lua_setmetatable(L, 1);
  return 1;
}

/* __index of a table with fixed names; upvalue 1: the table's description, for the message; upvalue
   2: nil, or a function that may give what to do instead of a name. */
static int absent_name(lua_State *L)
{
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const char *name = lua_tostring(L, 2), *what = lua_tostring(L, lua_upvalueindex(1));
  if (!what) {
    bool is_absent = false;
    for (size_t i = 0; i < sizeof absent / sizeof *absent && !is_absent; i++)
      is_absent = !strcmp(name, absent[i]);
    if (is_absent)
      return luaL_error(L, "a plan has no '%s': it cannot reach files, processes or other code",
                        name);
  }
  if (lua_isfunction(L, lua_upvalueindex(2))) {
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    if (lua_isstring(L, -1))
      return luaL_error(L, "%s has no '%s': %s", what, name, lua_tostring(L, -1));
  }
  if (!what && !strcmp(name, "torch"))
    return luaL_error(
        L, "a plan has no 'torch': its functions are in F and of tensors, as F.cat{x, y} "
           "and x:exp(), torch.nn is nn, and types are texts, as x:to(\"int64\")");
  push_keys(L, 1);
  push_suggestion(L, name, -1);
  const char *hint = lua_tostring(L, -1);
  if (!what) return luaL_error(L, "the variable '%s' has no value%s", name, hint);
  return luaL_error(L, "%s has no '%s'%s", what, name, hint);
}

/* The function on the top of the stack, or nil, is the hint for names. */
static void forbid_with_hint(lua_State *L, const char *what)
{
  lua_createtable(L, 0, 2);
  lua_pushstring(L, what);
  lua_pushvalue(L, -3);
  lua_pushcclosure(L, absent_name, 2);
  lua_setfield(L, -2, "__index");
  lua_remove(L, -2);
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

void forbid_absent(lua_State *L, const char *what)
{
  lua_pushnil(L);
  forbid_with_hint(L, what);
}

/* forbid_absent(table, what, hint?): the table, in which reading an absent name is an error.
   hint(name) may give a text that says what to do instead. */
static int forbid(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  const char *what = luaL_checkstring(L, 2);
  lua_settop(L, 3);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 3);
  forbid_with_hint(L, what);
  return 1;
}

/* set_method_hints(table): by name of a method that modules lack, what to do instead. */
static int set_method_hints(lua_State *L)
{
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, METHOD_HINTS);
  return 0;
}

const char *explain_call_of_nothing(lua_State *L, const char *message)
{
  static const char *const kinds[] = {"method", "field", "local", "upvalue", "global"};
  char kind[16], name[64];
  if (sscanf(message, "attempt to call a nil value (%15[a-z] '%63[A-Za-z0-9_]')", kind, name) != 2)
    return NULL;
  bool is_method = !strcmp(kind, "method"), is_known = false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) is_known |= !strcmp(kind, kinds[i]);
  if (!is_known) return NULL;
  if (is_method && lua_getfield(L, LUA_REGISTRYINDEX, METHOD_HINTS) == LUA_TTABLE &&
      lua_getfield(L, -1, name) == LUA_TSTRING)
    return lua_pushfstring(L, "a module has no method '%s': %s", name, lua_tostring(L, -1));
  if (is_method)
    return lua_pushfstring(L, "the method '%s' is called of a value that has none of this name",
                           name);
  return lua_pushfstring(L, "the %s '%s' is called as a function, and has no value", kind, name);
}

/* ------------------------------------------------------------------------------ the environment */

static const luaL_Reg own[] = {{"pairs", ordered_pairs},        {"tostring", to_string},
                               {"print", print_values},         {"getmetatable", get_metatable},
                               {"setmetatable", set_metatable}, {NULL, NULL}};

void set_name_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"nearest", nearest},
                                       {"suggestion", suggestion},
                                       {"all_known", all_known},
                                       {"forbid_absent", forbid},
                                       {"set_method_hints", set_method_hints},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}

/* Puts `wrapper` around the function of that name in the library at the top. */
static void wrap(lua_State *L, const char *name, lua_CFunction wrapper)
{
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, wrapper, 1);
  lua_setfield(L, -2, name);
}

static void open_library(lua_State *L, int i)
{
  luaL_requiref(L, libraries[i].name, libraries[i].open, 0);
  for (int k = 0; k < 3 && libraries[i].without[k]; k++) {
    lua_pushnil(L);
    lua_setfield(L, -2, libraries[i].without[k]);
  }
  if (!strcmp(libraries[i].name, "string")) {
    wrap(L, "format", format);
    wrap(L, "rep", repeat);
  }
  forbid_absent(L, libraries[i].name);
  lua_setfield(L, -2, libraries[i].name);
}

void push_environment(lua_State *L)
{
  lua_newtable(L);
  luaL_requiref(L, "_G", luaopen_base, 0);
  for (size_t i = 0; i < sizeof from_base / sizeof *from_base; i++) {
    lua_getfield(L, -1, from_base[i]);
    lua_setfield(L, -3, from_base[i]);
  }
  lua_pop(L, 1);
  luaL_setfuncs(L, own, 0);
  for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) open_library(L, (int)i);
}
