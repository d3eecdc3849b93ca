/* modules.c: what the Lua files in gen/ call to build the tree of modules: what a module holds, in
   the order in which the plan gave it; the modules, units and parameters of the graph; and the
   calls of modules.

   A module is a table of Lua's. Three tables of ours, which a plan cannot reach, say more:

   kinds     by each thing that our Lua files make for a plan, what it is: "module", "mesh" ...
   keys_of   by module: the list of the keys under which it was given something, in this order. The
             instances of a class of ours share one; some of its keys may lead to nothing
   seen_of   by module: the same keys as a set, of those with a list of their own. */
#include "tpgen.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include <lauxlib.h>
#include <lua.h>

enum { MAX_CALLS = 1 << 15, MAX_MODULES = 1 << 15, MAX_PATH = 1024 };

/* Where a function of these finds them: its upvalues. */
enum { KINDS = lua_upvalueindex(1), KEYS_OF = lua_upvalueindex(2), SEEN_OF = lua_upvalueindex(3) };

/* ------------------------------------------------------------------------------- what a module
 * holds */

/* Pushes what the table has for the thing at `at`. */
static int push_known(lua_State *L, int table, int at)
{
  lua_pushvalue(L, at);
  return lua_rawget(L, table);
}

/* Notes the key at the top, and takes it away. */
static void note_key(lua_State *L, int keys, int seen)
{
  lua_pushvalue(L, -1);
  lua_pushboolean(L, 1);
  lua_rawset(L, seen);
  lua_rawseti(L, keys, (lua_Integer)lua_rawlen(L, keys) + 1);
}

/* Pushes the module's own list of keys and the same as a set; it begins with those of its class
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

/* set_attribute(module, key, thing), of a key under which it has nothing: __newindex of modules. */
static int set_attribute(lua_State *L)
{
  enum { MODULE = 1, KEY, THING, KEYS, SEEN };
  lua_settop(L, THING);
  if (push_known(L, KEYS_OF, MODULE) != LUA_TNIL && push_known(L, SEEN_OF, MODULE) != LUA_TNIL) {
    /* it has a list of its own */
  } else {
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

enum member { NO_MEMBER, TENSOR, MODULE };

static enum member kind_of_member(lua_State *L, int at)
{
  int type = lua_type(L, at);
  if (type == LUA_TUSERDATA) return tensor_at(L, at) ? TENSOR : NO_MEMBER;
  if (type != LUA_TTABLE) return NO_MEMBER;
  bool is_module =
      push_known(L, KINDS, at) == LUA_TSTRING && !strcmp(lua_tostring(L, -1), "module");
  lua_pop(L, 1);
  return is_module ? MODULE : NO_MEMBER;
}

/* Pushes the next thing that the module holds, above its key, and says what it is; i: which of the
   keys, from 0, was the last. Pushes nothing where there are no more. */
static enum member next_member(lua_State *L, int module, int keys, lua_Integer *i)
{
  for (; lua_rawgeti(L, keys, ++*i) != LUA_TNIL; lua_pop(L, 2)) {
    push_known(L, module, -1);
    enum member is = kind_of_member(L, lua_gettop(L));
    if (is != NO_MEMBER) return is;
  }
  lua_pop(L, 1);
  return NO_MEMBER;
}

/* The name that what lies under the key has in paths and files, or NULL: members of lists count
   from 0 there. */
static const char *name_of_key(lua_State *L, int at, char room[24])
{
  if (lua_isinteger(L, at) && lua_tointeger(L, at) >= 1) {
    snprintf(room, 24, "%lld", (long long)lua_tointeger(L, at) - 1);
    return room;
  }
  const char *name = lua_type(L, at) == LUA_TSTRING ? lua_tostring(L, at) : NULL;
  return name && !strchr(name, '.') ? name : NULL;
}

/* members(module): its tensors as {name, tensor, name, tensor ...}; its modules, likewise; of
   either the first key that is no name, or nil; and whether two of its keys may be one name. */
static int members(lua_State *L)
{
  enum { OF = 1, KEYS, LIST, BAD = LIST + 2, RESULTS = 5 };
  lua_settop(L, OF);
  bool has_keys = push_known(L, KEYS_OF, OF) != LUA_TNIL, numbered = false, named = false;
  int most = has_keys ? 2 * (int)lua_rawlen(L, KEYS) : 0;
  lua_createtable(L, most < 4 ? most : 4, 0);
  lua_createtable(L, most, 0);
  lua_settop(L, BAD + 1);
  lua_Integer n[2] = {0, 0}, i = 0;
  for (enum member is; has_keys && (is = next_member(L, OF, KEYS, &i)); lua_settop(L, BAD + 1)) {
    char room[24];
    const char *name = name_of_key(L, -2, room);
    int k = is == MODULE;
    numbered |= name == room;
    named |= name != room;
    if (!name && lua_isnil(L, BAD + k)) {
      lua_pushvalue(L, -2);
      lua_replace(L, BAD + k);
    }
    if (!name) continue;
    lua_rawseti(L, LIST + k, n[k] + 2);
    if (name == room) lua_pushstring(L, name);
    lua_rawseti(L, LIST + k, n[k] + 1);
    n[k] += 2;
  }
  lua_pushboolean(L, numbered && named);
  return RESULTS;
}

static bool fits(const char *name, const char *wanted, bool is_pattern)
{
  if (!wanted || !strcmp(name, wanted)) return true;
  return is_pattern && fnmatch(wanted, name, FNM_NOESCAPE) == 0;
}

/* children(modules[, name, whether that is a pattern]): the modules that these hold, of this name,
   in a list; then the first of them with a module under a key that is no name, and this key, or
   nil. Patterns are those of the shell's file names; a backslash is an ordinary letter. */
static int children(lua_State *L)
{
  enum { OF = 1, NAME, IS_PATTERN, FOUND, BAD_MODULE, BAD_KEY, HOLDER, KEYS };
  const char *wanted = luaL_optstring(L, NAME, NULL);
  bool is_pattern = lua_toboolean(L, IS_PATTERN);
  lua_settop(L, IS_PATTERN);
  lua_newtable(L);
  lua_settop(L, BAD_KEY);
  lua_Integer n = 0;
  for (lua_Integer m = 1; lua_rawgeti(L, OF, m) != LUA_TNIL; m++, lua_settop(L, BAD_KEY)) {
    if (push_known(L, KEYS_OF, HOLDER) == LUA_TNIL) continue;
    lua_Integer i = 0;
    for (enum member is; (is = next_member(L, HOLDER, KEYS, &i)); lua_settop(L, KEYS)) {
      if (is != MODULE) continue;
      char room[24];
      const char *name = name_of_key(L, -2, room);
      if (!name && lua_isnil(L, BAD_KEY)) {
        lua_copy(L, HOLDER, BAD_MODULE);
        lua_copy(L, -2, BAD_KEY);
      }
      if (name && fits(name, wanted, is_pattern)) lua_rawseti(L, FOUND, ++n);
    }
  }
  lua_settop(L, BAD_KEY);
  return 3;
}

/* ------------------------------------------------------------------------------- into the graph */

/* add_module(name, class, parent or -1, line): its index. */
static int new_module(lua_State *L)
{
  int parent = (int)luaL_checkinteger(L, 3);
  const char *name = parent == NONE ? "" : check_name(L, 1, "a module's name");
  if (graph->nmodule >= MAX_MODULES) plan_fails("the model has more than %d modules", MAX_MODULES);
  if (parent != NONE && strlen(graph->module[parent].path) > MAX_PATH)
    plan_fails("the modules are nested too deeply, from the one of line %d on",
               (int)luaL_checkinteger(L, 4));
  const char *class_name = check_name(L, 2, "the name of a class");
  lua_pushinteger(L, add_module(name, class_name, parent, (int)luaL_checkinteger(L, 4)));
  return 1;
}

/* path(module): "layers.0.attention", of one of the graph. */
static int path(lua_State *L)
{
  lua_pushstring(L, graph->module[luaL_checkinteger(L, 1)].path);
  return 1;
}

static unsigned dims_at(lua_State *L, int list)
{
  unsigned dims = 0;
  for (lua_Integer i = 1, n = luaL_len(L, list); i <= n; i++) {
    lua_rawgeti(L, list, i);
    dims |= 1u << luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  return dims;
}

/* add_unit(its first module, who makes it, line, {mesh dimension ...} that cut, {...} that have
   copies, {...} over which it is gathered again, the dimension that is cut or nil, whether it is
   gathered once a step, whether each batch's gradients are reduced): its index. */
static int add_unit(lua_State *L)
{
  GROW(graph->unit, graph->nunit, graph->unit_room);
  int module = (int)luaL_checkinteger(L, 1);
  graph->unit[graph->nunit] = (struct unit){.name = graph->module[module].path,
                                            .module = module,
                                            .who = copy_text(luaL_checkstring(L, 2)),
                                            .line = (int)luaL_checkinteger(L, 3),
                                            .shards = dims_at(L, 4),
                                            .copies = dims_at(L, 5),
                                            .again = dims_at(L, 6),
                                            .dim = (int)luaL_optinteger(L, 7, ANY_DIM),
                                            .once = lua_toboolean(L, 8),
                                            .reduces_each = lua_toboolean(L, 9)};
  lua_pushinteger(L, graph->nunit++);
  return 1;
}

/* set_unit(module, unit): the parameters that it gets are of this unit. */
static int set_unit(lua_State *L)
{
  graph->module[luaL_checkinteger(L, 1)].unit = (int)luaL_checkinteger(L, 2);
  return 0;
}

/* The parameter at the top, whose name lies below it, becomes a value of the module. */
static struct value *add_parameter(lua_State *L, int module)
{
  struct tensor *t = argument_tensor(L, -1);
  const char *name = check_name(L, -2, "a parameter's name");
  const char *path = graph->module[module].path;
  if (t->value != NONE)
    plan_fails("the parameter of line %d is in two places: %s and %s%s%s. Keep it in one, and give "
               "it to the other's forward as an argument: F.linear(x, weight)",
               t->line, graph->value[t->value].name, path, *path ? "." : "", name);
  name = *path ? text("%s.%s", path, name) : copy_text(name);
  t->value = add_value(PARAMETER, name, F32, t->shape, module, t->line);
  struct value *v = &graph->value[t->value];
  v->init = t->init;
  v->unit = graph->module[module].unit;
  return v;
}

/* add_parameters({name, parameter ...}, module, type that the model computes with or nil, type that
   their gradients are moved in) */
static int add_parameters(lua_State *L)
{
  int module = (int)luaL_checkinteger(L, 2);
  bool is_told = !lua_isnoneornil(L, 3);
  enum type used = is_told ? argument_type(L, 3) : F32;
  enum type reduced = is_told ? argument_type(L, 4) : F32;
  for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; i += 2) {
    lua_rawgeti(L, 1, i + 1);
    struct value *v = add_parameter(L, module);
    if (is_told) {
      v->used_as = used;
      v->reduced_as = reduced;
    }
    lua_pop(L, 2);
  }
  return 0;
}

/* parameters(): the names of all that the graph has so far, in its order; the graph has nothing
   else yet. */
static int parameters(lua_State *L)
{
  lua_createtable(L, graph->nvalue, 0);
  for (int i = 0; i < graph->nvalue; i++) {
    lua_pushstring(L, graph->value[i].name);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* set_alias(which of parameters(), name): what files of others call it. */
static int set_alias(lua_State *L)
{
  graph->value[luaL_checkinteger(L, 1) - 1].alias =
      copy_text(check_name(L, 2, "a parameter's other name"));
  return 0;
}

/* ---------------------------------------------------------------------------------------- calls */

/* Notes the tensors among the arguments from `first` on; gives how many. */
static int note_tensors(lua_State *L, int first, int *noted, const char *what)
{
  int n = 0, top = lua_gettop(L);
  for (int i = first; i <= top; i++) {
    if (!tensor_at(L, i)) continue;
    if (n == MAX_INPUTS) plan_fails("a module %s at most %d tensors", what, MAX_INPUTS);
    noted[n++] = argument_value(L, i);
  }
  return n;
}

/* enter(module, arguments...): the call. */
static int enter(lua_State *L)
{
  if (!recording.on)
    plan_fails("train and infer call the model; a plan does not call it by itself");
  if (graph->ncall >= MAX_CALLS) plan_fails("the modules are called more than %d times", MAX_CALLS);
  GROW(graph->call, graph->ncall, graph->call_room);
  struct call *c = &graph->call[graph->ncall];
  *c = (struct call){.module = (int)luaL_checkinteger(L, 1),
                     .parent = recording.call,
                     .first = graph->norder,
                     .last = graph->norder};
  c->nin = note_tensors(L, 2, c->in, "takes");
  recording.call = graph->ncall++;
  lua_pushinteger(L, recording.call);
  return 1;
}

/* leave(results...): of the call that began last. */
static int leave(lua_State *L)
{
  struct call *c = &graph->call[recording.call];
  c->nout = note_tensors(L, 1, c->out, "gives");
  c->last = graph->norder;
  recording.call = c->parent;
  return lua_gettop(L);
}

/* Upvalues: what calls an instance of a class of ours, whose forward calls no function of the
   plan's; and what does where the plan has put a forward of its own into it. */
static int call_instance(lua_State *L)
{
  lua_pushliteral(L, "forward");
  bool is_ours = lua_rawget(L, 1) == LUA_TNIL;
  lua_pop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(is_ours ? 1 : 2));
  lua_insert(L, 1);
  if (is_ours)
    call_unwatched(L, lua_gettop(L) - 1);
  else
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* calls(function, function): __call of the instances of our classes. */
static int calls_of_instances(lua_State *L)
{
  lua_settop(L, 2);
  lua_pushcclosure(L, call_instance, 2);
  return 1;
}

/* ------------------------------------------------------------------------------------ the table */

void set_module_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"set_attribute", set_attribute},
                                       {"members", members},
                                       {"children", children},
                                       {"add_module", new_module},
                                       {"path", path},
                                       {"add_unit", add_unit},
                                       {"set_unit", set_unit},
                                       {"add_parameters", add_parameters},
                                       {"parameters", parameters},
                                       {"set_alias", set_alias},
                                       {"enter", enter},
                                       {"leave", leave},
                                       {"calls", calls_of_instances},
                                       {NULL, NULL}};
  static const char *const tables[] = {"kinds", "keys_of", NULL};
  int core = lua_gettop(L);
  for (int i = 0; i < 3; i++) {
    lua_newtable(L);
    if (!tables[i]) continue;
    lua_pushvalue(L, -1);
    lua_setfield(L, core, tables[i]);
  }
  luaL_setfuncs(L, functions, 3);
}
