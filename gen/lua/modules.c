/* modules.c: the modules that a plan has made: their members, in the order of assignment, and the
   modules that match a pattern of names. model.c adds them to the graph.

   A module is a Lua table. Tables of ours, which a plan cannot reach, hold more about it:

   kinds     what each thing is that our Lua files make for a plan: "module", "mesh" ...
   keys_of   by module: the list of its members' keys, in the order of assignment. The instances of
             a class of ours share one; some of its keys may have no member
   seen_of   by module: the same keys as a set, of those with a list of their own
   made      by module: its struct made
   modules   by its number there: the module
   class_of  by its number: its class. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------- what a module is given */

/* Pushes the table's entry for the thing at `at`. */
static int push_known(lua_State *L, int table, int at)
{
  lua_pushvalue(L, at);
  return lua_rawget(L, table);
}

/* Records the key at the top, and pops it. */
static void note_key(lua_State *L, int keys, int seen)
{
  lua_pushvalue(L, -1);
  lua_pushboolean(L, 1);
  lua_rawset(L, seen);
  lua_rawseti(L, keys, (lua_Integer)lua_rawlen(L, keys) + 1);
}

/* Pushes the module's own list of keys and the same as a set; it starts with those of its class
   that it has. */
static void push_own_keys(lua_State *L, int module)
{
  enum { MOSTLY = 4 };
  lua_createtable(L, MOSTLY, 0);
  lua_createtable(L, 0, MOSTLY);
  int keys = lua_gettop(L) - 1, seen = keys + 1;
  bool has_some = push_known(L, KEYS_OF, module) != LUA_TNIL;
  for (lua_Integer i = 1; has_some && lua_rawgeti(L, seen + 1, i) != LUA_TNIL; i++) {
    bool there = push_known(L, module, -1) != LUA_TNIL;
    lua_pop(L, 1);
    if (there)
      note_key(L, keys, seen);
    else
      lua_pop(L, 1);
  }
  lua_settop(L, seen);
  lua_pushvalue(L, module);
  lua_pushvalue(L, keys);
  lua_rawset(L, KEYS_OF);
  lua_pushvalue(L, module);
  lua_pushvalue(L, seen);
  lua_rawset(L, SEEN_OF);
}

/* --------------------------------------------------------------------------- what a module is */

static int set_attribute(lua_State *L);

/* make_module(table, class, its name, list of its class's keys or nil): turns the table into a
   module, made at the plan's line. */
static int make_module(lua_State *L)
{
  enum { MODULE = 1, CLASS, NAME, KEYS };
  lua_settop(L, KEYS);
  struct made *m = lua_newuserdatauv(L, sizeof *m, 1);
  *m = (struct made){.number = (int)lua_rawlen(L, MODULES) + 1,
                     .line = sandbox->line,
                     .class_name = lua_tostring(L, NAME),
                     .index = NONE};
  lua_pushvalue(L, MODULE);
  lua_insert(L, -2);
  lua_rawset(L, MADE);
  lua_pushvalue(L, MODULE);
  lua_pushliteral(L, "module");
  lua_rawset(L, KINDS);
  if (!lua_isnil(L, KEYS)) {
    lua_pushvalue(L, MODULE);
    lua_pushvalue(L, KEYS);
    lua_rawset(L, KEYS_OF);
  }
  lua_pushvalue(L, MODULE);
  lua_rawseti(L, MODULES, m->number);
  lua_pushvalue(L, CLASS);
  lua_rawseti(L, CLASS_OF, m->number);
  return 0;
}

/* set_attribute(module, key, thing), for a key without a member: __newindex of modules. */
static int set_attribute(lua_State *L)
{
  enum { MODULE = 1, KEY, THING, KEYS, SEEN };
  lua_settop(L, THING);
  bool has_own =
      push_known(L, KEYS_OF, MODULE) != LUA_TNIL && push_known(L, SEEN_OF, MODULE) != LUA_TNIL;
  if (!has_own) {
    lua_settop(L, THING);
    push_own_keys(L, MODULE);
  }
  if (push_known(L, SEEN, KEY) == LUA_TNIL) {
    lua_pushvalue(L, KEY);
    note_key(L, KEYS, SEEN);
  }
  lua_settop(L, THING);
  lua_rawset(L, MODULE);
  return 0;
}

static struct made *made_of(lua_State *L, int at)
{
  push_known(L, MADE, at);
  struct made *m = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return m;
}

struct made *argument_module(lua_State *L, int at)
{
  luaL_checktype(L, at, LUA_TTABLE);
  struct made *m = made_of(L, at);
  if (!m) bug("lua", "a table that is not a module");
  return m;
}

void push_module(lua_State *L, const struct made *m)
{
  lua_rawgeti(L, MODULES, m->number);
}

static int class_of_module(lua_State *L)
{
  lua_rawgeti(L, CLASS_OF, argument_module(L, 1)->number);
  return 1;
}

static int class_name(lua_State *L)
{
  lua_pushstring(L, argument_module(L, 1)->class_name);
  return 1;
}

static int line_of_module(lua_State *L)
{
  lua_pushinteger(L, argument_module(L, 1)->line);
  return 1;
}

/* index(module): in the graph, or nil. */
static int modules_index_of(lua_State *L)
{
  int index = argument_module(L, 1)->index;
  if (index == NONE) return 0;
  lua_pushinteger(L, index);
  return 1;
}

/* -------------------------------------------------------------------------- what a module holds */

static unsigned look_now = 1;

void look_anew(void)
{
  look_now++;
}

/* look_anew(): called at the start of a function during which no code of the plan runs. */
static int begin_look(lua_State *L)
{
  (void)L;
  look_anew();
  return 0;
}

/* Whether the thing at the top can be a member; records which. */
static bool is_in_module(lua_State *L, struct held *h)
{
  int type = lua_type(L, -1);
  if (type == LUA_TUSERDATA) h->tensor = tensor_at(L, -1);
  if (type == LUA_TTABLE) h->module = made_of(L, -1);
  return h->tensor || h->module;
}

/* The name of the key's member in paths and files: members of lists count from 0 there; or NULL.
   before: its name at the last look, or NULL. */
static const char *name_of_key(lua_State *L, int at, const char *before, size_t *length)
{
  if (lua_isinteger(L, at) && lua_tointeger(L, at) >= 1) {
    char digits[24];
    *length = (size_t)snprintf(digits, sizeof digits, "%lld", (long long)lua_tointeger(L, at) - 1);
    return before && !strcmp(before, digits) ? before : copy_text(digits);
  }
  const char *name = lua_type(L, at) == LUA_TSTRING ? lua_tolstring(L, at, length) : NULL;
  return name && !strchr(name, '.') ? name : NULL;
}

void look(lua_State *L, struct made *m)
{
  if (m->looked == look_now) return;
  int module = lua_gettop(L) + 1, keys = module + 1, key = keys + 1;
  luaL_checkstack(L, 10, NULL);
  push_module(L, m);
  m->looked = look_now;
  m->n = 0;
  m->unnamed = m->numbered = m->named = false;
  if (push_known(L, KEYS_OF, module) != LUA_TNIL) {
    /* Makes room for n members. */
    int n = (int)lua_rawlen(L, keys);
    if (n > m->room) {
      push_known(L, MADE, module);
      m->held = memset(lua_newuserdatauv(L, (size_t)n * sizeof *m->held, 0), 0,
                       (size_t)n * sizeof *m->held);
      m->room = n;
      lua_setiuservalue(L, -2, 1);
      lua_pop(L, 1);
    }
    for (lua_Integer i = 1; lua_rawgeti(L, keys, i) != LUA_TNIL; i++, lua_settop(L, keys)) {
      struct held h = {0};
      push_known(L, module, key);
      if (!is_in_module(L, &h)) continue;
      h.name = name_of_key(L, key, m->held[m->n].name, &h.length);
      bool is_number = lua_type(L, key) == LUA_TNUMBER;
      m->numbered |= is_number;
      m->named |= !is_number;
      m->unnamed |= !h.name;
      m->held[m->n++] = h;
    }
  }
  lua_settop(L, module - 1);
}

void refuse_bad_keys(lua_State *L, const struct made *m, bool of_modules)
{
  int k = 0;
  while (k < m->n && (m->held[k].name || (m->held[k].module != NULL) != of_modules)) k++;
  if (k == m->n) return;
  push_module(L, m);
  push_known(L, KEYS_OF, lua_gettop(L));
  for (lua_Integer i = 1; lua_rawgeti(L, -1, i) != LUA_TNIL; i++, lua_pop(L, 2)) {
    push_known(L, lua_gettop(L) - 2, lua_gettop(L));
    struct held h = {0};
    bool is_it =
        is_in_module(L, &h) && h.module == m->held[k].module && h.tensor == m->held[k].tensor;
    if (is_it && !name_of_key(L, lua_gettop(L) - 1, NULL, &h.length)) {
      int key = lua_gettop(L) - 1;
      push_text(L, key);
      if (lua_type(L, key) != LUA_TSTRING)
        plan_fails(
            "the %s of line %d holds a module or parameter under a key that is not a name: %s",
            m->class_name, m->line, lua_tostring(L, -1));
      plan_fails("the %s of line %d: a name must not hold a dot: '%s'", m->class_name, m->line,
                 lua_tostring(L, -1));
    }
  }
}

/* Like look, and an error if it has a module under a key that is no name. */
static void look_at_modules(lua_State *L, struct made *m)
{
  look(L, m);
  if (m->unnamed) refuse_bad_keys(L, m, true);
}

/* children(module): its modules as {name, module, name, module ...}. */
static int list_children(lua_State *L)
{
  struct made *m = argument_module(L, 1);
  look_at_modules(L, m);
  lua_Integer n = 0;
  lua_newtable(L);
  for (int i = 0; i < m->n; i++) {
    if (!m->held[i].module) continue;
    lua_pushstring(L, m->held[i].name);
    lua_rawseti(L, -2, ++n);
    push_module(L, m->held[i].module);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* taken(module): the call that took it; 0: none. */
static int unit_of_module(lua_State *L)
{
  lua_pushinteger(L, argument_module(L, 1)->taken);
  return 1;
}

/* take(module, call): the call takes the module and those below it that no call has taken. */
static int take_module(lua_State *L)
{
  struct made *first = argument_module(L, 1), *last = first;
  int call = (int)luaL_checkinteger(L, 2);
  if (first->taken) return 0;
  first->taken = call;
  first->queue = NULL;
  for (; first; first = first->queue) {
    look_at_modules(L, first);
    for (int i = 0; i < first->n; i++) {
      struct made *m = first->held[i].module;
      if (!m || m->taken) continue;
      m->taken = call;
      m->queue = NULL;
      last = last->queue = m;
    }
  }
  return 0;
}

/* -------------------------------------------------------------------------- patterns of names */

/* Pushes a list of the members with matching names of the modules in the list at the top, and pops
   that list. */
static void push_fitting(lua_State *L, const char *pattern)
{
  bool by_pattern = is_pattern(pattern);
  int from = lua_gettop(L), to = from + 1;
  lua_Integer n = 0;
  lua_newtable(L);
  for (lua_Integer i = 1; lua_rawgeti(L, from, i) != LUA_TNIL; i++, lua_settop(L, to)) {
    struct made *m = made_of(L, to + 1);
    look_at_modules(L, m);
    for (int k = 0; k < m->n; k++) {
      const struct held *h = &m->held[k];
      bool fits = h->module && (by_pattern ? fits_pattern(h->name, pattern, NULL, NULL)
                                           : !strcmp(h->name, pattern));
      if (!fits) continue;
      push_module(L, h->module);
      lua_rawseti(L, to, ++n);
    }
  }
  lua_settop(L, to);
  lua_remove(L, from);
}

/* A walk through all paths: the modules in the list at `list`, each once. */
struct path_walk {
  const char *pattern;
  int list, visits;
};

/* Adds the modules below this one, whose path is given, that match. */
static void add_below(lua_State *L, struct path_walk *w, struct made *m, const char *path,
                      int depth)
{
  enum { DEEPEST = 64, MOST_VISITS = 1 << 17 };
  look_at_modules(L, m);
  for (int k = 0; k < m->n; k++) {
    struct made *child = m->held[k].module;
    if (!child) continue;
    if (depth == DEEPEST || ++w->visits > MOST_VISITS)
      plan_fails("the pattern '%s' has too many modules to go through", w->pattern);
    const char *own = text("%s%s%s", path, *path ? "." : "", m->held[k].name);
    if (fits_pattern(own, w->pattern, NULL, NULL)) {
      bool is_listed = false;
      for (lua_Integer i = 1; !is_listed && lua_rawgeti(L, w->list, i) != LUA_TNIL; i++) {
        is_listed = made_of(L, lua_gettop(L)) == child;
        lua_pop(L, 1);
      }
      if (!is_listed) {
        push_module(L, child);
        lua_rawseti(L, w->list, (lua_Integer)lua_rawlen(L, w->list) + 1);
      }
    }
    add_below(L, w, child, own, depth + 1);
  }
}

/* matching(modules, pattern): the modules below these that match the pattern (patterns.c). */
static int matching(lua_State *L)
{
  const char *pattern = luaL_checkstring(L, 2);
  if (strstr(pattern, "**") || strchr(pattern, '|')) {
    /* Matches patterns that do not consist of one pattern for each part. */
    lua_newtable(L);
    struct path_walk w = {.pattern = pattern, .list = lua_gettop(L)};
    for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; i++, lua_settop(L, w.list))
      add_below(L, &w, made_of(L, w.list + 1), "", 0);
    lua_settop(L, w.list);
    return 1;
  }
  lua_pushvalue(L, 1);
  while (*(pattern += strspn(pattern, "."))) {
    size_t n = strcspn(pattern, ".");
    lua_pushlstring(L, pattern, n); /* at 3, while the list is at the top */
    lua_insert(L, 3);
    push_fitting(L, lua_tostring(L, 3));
    lua_remove(L, 3);
    pattern += n;
  }
  return 1;
}

/* ------------------------------------------------------------------------- what is not trained */

/* The parameters of a module that begin or cease to be trained: those whose name, or that of a
   module around them, matches. */
struct freezing {
  const char *pattern; /* NULL: all */
  bool frozen;
  int n; /* so far */
};

static void freeze_below(lua_State *L, struct freezing *f, struct made *m, const char *path,
                         bool all)
{
  look(L, m);
  if (m->unnamed) refuse_bad_keys(L, m, false);
  for (int k = 0; k < m->n; k++) {
    const struct held *h = &m->held[k];
    const char *own = text("%s%s%s", path, *path ? "." : "", h->name ? h->name : "");
    bool fits = all || fits_pattern(own, f->pattern, NULL, NULL);
    if (h->module) freeze_below(L, f, h->module, own, fits);
    if (!h->tensor || !fits || h->tensor->buffer) continue;
    h->tensor->frozen = f->frozen;
    f->n++;
  }
}

/* freeze(module or parameter, whether it is frozen from now on, pattern or nil): how many
   parameters match. */
static int freeze(lua_State *L)
{
  struct freezing f = {.pattern = luaL_optstring(L, 3, NULL), .frozen = lua_toboolean(L, 2)};
  struct tensor *t = tensor_at(L, 1);
  look_anew();
  if (t)
    t->frozen = f.frozen;
  else
    freeze_below(L, &f, argument_module(L, 1), "", !f.pattern);
  lua_pushinteger(L, t ? 1 : f.n);
  return 1;
}

/* make_buffer(parameter): it is never trained. */
static int make_buffer(lua_State *L)
{
  struct tensor *t = tensor_at(L, 1);
  luaL_argexpected(L, t, 1, "tensor");
  t->frozen = t->buffer = true;
  return 0;
}

static void add_names(lua_State *L, int list, struct made *m, const char *path)
{
  look(L, m);
  for (int k = 0; k < m->n; k++) {
    const struct held *h = &m->held[k];
    if (!h->name) continue;
    const char *own = text("%s%s%s", path, *path ? "." : "", h->name);
    if (h->module) add_names(L, list, h->module, own);
    if (!h->tensor) continue;
    lua_pushstring(L, own);
    lua_rawseti(L, list, (lua_Integer)lua_rawlen(L, list) + 1);
  }
}

/* parameter_names(module): a list of the names of the parameters in and below it. */
static int parameter_names(lua_State *L)
{
  look_anew();
  lua_newtable(L);
  add_names(L, lua_gettop(L), argument_module(L, 1), "");
  return 1;
}

/* The number of elements of the parameters in and below the module. */
static double elements_below(lua_State *L, struct made *m, int depth)
{
  enum { DEEPEST = 100 };
  double n = 0;
  if (depth > DEEPEST)
    plan_fails("the modules are nested too deeply, or in themselves, from the one of line %d on",
               m->line);
  look(L, m);
  for (int k = 0; k < m->n; k++) {
    const struct held *h = &m->held[k];
    if (h->module) n += elements_below(L, h->module, depth + 1);
    if (h->tensor) n += (double)elements(h->tensor->shape);
  }
  return n;
}

/* elements_of(module) */
static int elements_of_module(lua_State *L)
{
  lua_pushnumber(L, elements_below(L, argument_module(L, 1), 0));
  return 1;
}

/* ---------------------------------------------------------------------------------- the table */

void set_module_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"set_attribute", set_attribute},
                                       {"make_module", make_module},
                                       {"class_of", class_of_module},
                                       {"class_name", class_name},
                                       {"line_of", line_of_module},
                                       {"index", modules_index_of},
                                       {"look_anew", begin_look},
                                       {"children", list_children},
                                       {"taken", unit_of_module},
                                       {"take", take_module},
                                       {"matching", matching},
                                       {"freeze", freeze},
                                       {"make_buffer", make_buffer},
                                       {"parameter_names", parameter_names},
                                       {"elements_of", elements_of_module},
                                       {NULL, NULL}};
  int core = lua_gettop(L);
  for (int i = 0; i < TABLES; i++) lua_newtable(L);
  lua_pushvalue(L, core + 1);
  lua_setfield(L, core, "kinds");
  for (int i = 0; i <= TABLES; i++) lua_pushvalue(L, core + i);
  luaL_setfuncs(L, functions, TABLES);
  lua_pop(L, 1);
}
