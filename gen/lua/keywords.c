/* keywords.c: arguments by name, and refused arguments.

   The names are those of the function's parameters, so that there is no second list of them. A
   function has PyTorch's names, in PyTorch's order: softmax(input, dim). The last argument of a
   call may be a table of names: x:softmax{dim = 1}. A parameter whose name is a keyword of Lua ends
   with "_", which callers leave out: ["end"] = 5. Parameters that PyTorch's functions have and ours
   do not support are refused by name, here, for all functions. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

enum { MOST_REFUSED = 64 };

/* An argument that no function supports: the values that change nothing, separated by blanks, in
   addition to nil; and the reason. */
static struct refused {
  const char *name, *harmless, *why;
} refused[MOST_REFUSED];
static int nrefused;

/* refuse(name, harmless, why) */
static int refuse_argument(lua_State *L)
{
  if (nrefused == MOST_REFUSED) bug("lua", "too many arguments are refused");
  refused[nrefused++] =
      (struct refused){copy_text(luaL_checkstring(L, 1)), copy_text(luaL_checkstring(L, 2)),
                       copy_text(luaL_checkstring(L, 3))};
  return 0;
}

static const struct refused *refusal_of(const char *name)
{
  for (int i = 0; i < nrefused; i++)
    if (!strcmp(refused[i].name, name)) return &refused[i];
  return NULL;
}

bool is_refused_name(const char *name)
{
  return refusal_of(name) != NULL;
}

static void check_refused(lua_State *L, const char *what, const struct refused *r, int at)
{
  bool is_harmless = true;
  if (!(lua_isnil(L, at))) {
    if (lua_type(L, at) == LUA_TBOOLEAN) {
      is_harmless = has_word(r->harmless, lua_toboolean(L, at) ? "true" : "false");
    } else {
      is_harmless = lua_type(L, at) == LUA_TSTRING
                        ? has_word(r->harmless, lua_tostring(L, at))
                        : lua_type(L, at) == LUA_TNUMBER &&
                              has_word(r->harmless, text("%g", lua_tonumber(L, at)));
    }
  }
  if (!is_harmless) plan_fails("%s does not take '%s': %s", what, r->name, r->why);
}

void push_behind(lua_State *L, int at)
{
  lua_pushvalue(L, at);
  while (lua_iscfunction(L, -1) && lua_getupvalue(L, -1, 1)) lua_remove(L, -2);
}

/* The name of parameter i, counted from 1, of the Lua function at the top, as callers write it;
   NULL if there is none. */
static const char *parameter_of_top(lua_State *L, int i)
{
  const char *name = lua_getlocal(L, NULL, i);
  size_t n = name ? strlen(name) : 0;
  return n && name[n - 1] == '_' ? text("%.*s", (int)n - 1, name) : name;
}

/* The same of this function, or of the one that it wraps. */
static const char *parameter_behind(lua_State *L, int function, int i)
{
  push_behind(L, function);
  const char *name = parameter_of_top(L, i);
  lua_pop(L, 1);
  return name;
}

/* Whether parameter i of the Lua function at the top is refused. One that is written with an
   underscore behind it, `reduce_`, is taken: where other functions refuse the name. */
static bool is_refused_of_top(lua_State *L, int i)
{
  const char *name = lua_getlocal(L, NULL, i);
  return name && refusal_of(name);
}

unsigned refused_parameters(lua_State *L, int function)
{
  unsigned mask = 0;
  push_behind(L, function);
  for (int i = 1; i < 32 && parameter_of_top(L, i); i++)
    if (is_refused_of_top(L, i)) mask |= 1u << i;
  lua_pop(L, 1);
  return mask;
}

void check_refused_parameters(lua_State *L, const char *what, int function, unsigned mask)
{
  int top = lua_gettop(L);
  for (int i = 1; i <= top && i < 32; i++)
    if (mask >> i & 1) check_refused(L, what, refusal_of(parameter_behind(L, function, i)), i);
}

/* The number of names of the argument if it is a table of names: a plain one with no other keys;
   else NONE. */
static int count_names(lua_State *L, int at)
{
  if (!lua_istable(L, at)) return NONE;
  if (lua_getmetatable(L, at)) {
    lua_pop(L, 1);
    return NONE;
  }
  int n = 0;
  bool all = true;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1), n++) all &= lua_type(L, -2) == LUA_TSTRING;
  return all ? n : NONE;
}

/* Pushes the names of the function's parameters after the first `skipped`, without refused ones. */
static void push_parameters(lua_State *L, int function, int skipped, const char *rest)
{
  const char *name;
  lua_newtable(L);
  int list = lua_gettop(L);
  for (int i = skipped + 1; (name = parameter_behind(L, function, i)); i++) {
    push_behind(L, function);
    const bool is_refused = is_refused_of_top(L, i);
    lua_pop(L, 1);
    if (is_refused) continue;
    lua_pushstring(L, name);
    lua_rawseti(L, list, (lua_Integer)lua_rawlen(L, list) + 1);
  }
  if (!rest) return;
  lua_pushstring(L, rest);
  lua_rawseti(L, list, (lua_Integer)lua_rawlen(L, list) + 1);
}

/* The index of the parameter of that name, from 1; 0 if there is none. */
static int place_of_parameter(lua_State *L, int function, const char *sought)
{
  const char *name;
  int i = 1;
  push_behind(L, function);
  while ((name = parameter_of_top(L, i)) && strcmp(name, sought)) i++;
  lua_pop(L, 1);
  return name ? i : 0;
}

/* The index of the parameter for a named argument; 0 for a refused one with a harmless value. Its
   value is at the top. */
static int place_of_named(lua_State *L, const char *what, const char *name, int function,
                          int skipped, const char *rest)
{
  int at = place_of_parameter(L, function, name);
  if (at > skipped) return at;
  if (rest && !strcmp(name, rest)) {
    for (at = 1; parameter_behind(L, function, at);) at++;
    return at;
  }
  const struct refused *r = refusal_of(name);
  if (!r) {
    push_parameters(L, function, skipped, rest);
    int list = lua_gettop(L);
    push_suggestion(L, name, list);
    const char *hint = lua_tostring(L, -1);
    if (*hint) plan_fails("%s knows no '%s'%s", what, name, hint);
    struct buffer b = {0};
    put_text(&b, "", 0);
    for (lua_Integer i = 1; lua_rawgeti(L, list, i) == LUA_TSTRING; i++)
      put(&b, "%s%s", i > 1 ? ", " : "", lua_tostring(L, -1));
    if (!b.length) plan_fails("%s knows no '%s'; it takes nothing by name", what, name);
    plan_fails("%s knows no '%s'; it knows %s", what, name, b.text);
  }
  check_refused(L, what, r, lua_gettop(L));
  return 0;
}

/* A call with arguments by name. */
struct named_call {
  const char *what;
  int function, skipped;
  const char *rest;
  int given, last; /* the arguments before the table; the last index that has a value */
};

/* Likewise. Of several wrong names the first one of the alphabet is the error: Lua's own order
   differs from process to process. */
static void sort_by_place(lua_State *L, struct named_call *c, int named)
{
  int row = lua_gettop(L);
  /* Fills the table at the top with the values of the names; false where one may be wrong. */
  bool fits = true;
  for (lua_pushnil(L); lua_next(L, named);) {
    int at = place_of_parameter(L, c->function, lua_tostring(L, -2));
    fits &= at > c->skipped && (at > c->given || lua_isnil(L, at));
    if (fits && at > c->last) c->last = at;
    if (fits)
      lua_rawseti(L, row, at);
    else
      lua_pop(L, 1);
  }
  if (fits) return;
  push_keys(L, named);
  for (lua_Integer k = 1; lua_rawgeti(L, row + 1, k) == LUA_TSTRING; k++) {
    lua_pushvalue(L, -1);
    lua_rawget(L, named);
    /* Moves the value at the top, which the name below it has, into the table at `row`: by the
       index of the parameter. */
    const char *name = lua_tostring(L, -2);
    int at = place_of_named(L, c->what, name, c->function, c->skipped, c->rest);
    if (at && at <= c->given && !lua_isnil(L, at))
      plan_fails("%s is given '%s' twice: by its place, and by its name", c->what, name);
    if (at) lua_rawseti(L, row, at);
    if (at > c->last) c->last = at;
    lua_settop(L, row + 1);
  }
  lua_settop(L, row);
}

void place_keywords(lua_State *L, const char *what, int function, int skipped, const char *rest)
{
  enum { MOSTLY = 8 }; /* parameters */
  int n = lua_gettop(L), names = n ? count_names(L, n) : NONE;
  if (names == NONE || (rest && !names)) return; /* an empty list */
  struct named_call c = {what, function, skipped, rest, n - 1, n - 1};
  luaL_checkstack(L, 64, NULL);
  lua_createtable(L, MOSTLY, 0);
  sort_by_place(L, &c, n);
  lua_replace(L, n);
  for (int i = 1; i <= c.given; i++) {
    if (!lua_isnil(L, i)) continue;
    lua_rawgeti(L, n, i);
    lua_replace(L, i);
  }
  for (int i = c.given + 1; i <= c.last; i++) lua_rawgeti(L, n, i);
  lua_remove(L, n);
}

void set_keyword_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"refuse", refuse_argument}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
