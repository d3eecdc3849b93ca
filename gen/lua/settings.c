/* settings.c: the settings that a plan declares, by settings{...} of prelude/language/settings.lua:
   tpgen PLAN --help (driver/plan_help.c) prints them. And the values of -D. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Lua reads 1e999 as infinity, and keeps only the lowest 64 bits of 0x10000000000000002. */
static bool is_in_range(lua_State *L, const char *value)
{
  if (!lua_isinteger(L, -1)) return isfinite(lua_tonumber(L, -1));
  const char *digits = value + strspn(value, " \t\n\v\f\r+-");
  if (digits[0] != '0' || (digits[1] | 0x20) != 'x') return true;
  digits += 2 + strspn(digits + 2, "0");
  return strspn(digits, "0123456789abcdefABCDEF") <= 16;
}

void push_definition(lua_State *L, const struct definition *d)
{
  if (!strcmp(d->value, "true") || !strcmp(d->value, "false")) {
    lua_pushboolean(L, *d->value == 't');
  } else if (!lua_stringtonumber(L, d->value)) {
    lua_pushstring(L, d->value);
  } else if (!is_in_range(L, d->value)) {
    plan_fails("-D %s=%s: out of range: a number in hexadecimal has at most 64 bits, any other is "
               "below 1.8e308",
               d->name, d->value);
  }
}

/* definitions(): the values of -D by name, and their texts, without noting that the plan has read
   them. */
static int definitions(lua_State *L)
{
  lua_newtable(L);
  lua_newtable(L);
  for (int i = 0; i < options.ndefinition; i++) {
    push_definition(L, &options.definition[i]);
    lua_setfield(L, -3, options.definition[i].name);
    lua_pushstring(L, options.definition[i].value);
    lua_setfield(L, -2, options.definition[i].name);
  }
  return 2;
}

static bool lists_name(lua_State *L, int list, const char *name)
{
  bool found = false;
  for (int k = 1; k <= (int)lua_rawlen(L, list) && !found; k++) {
    lua_rawgeti(L, list, k);
    found = !strcmp(lua_tostring(L, -1), name);
    lua_pop(L, 1);
  }
  return found;
}

/* check_definitions({name, ...}, {[earlier name] = name}, {name, ...}): each -D is one of these
   settings, or of the last ones. */
static int check_definitions(lua_State *L)
{
  for (int i = 0; i < options.ndefinition; i++) {
    const struct definition *d = &options.definition[i];
    if (lists_name(L, 1, d->name) || lists_name(L, 3, d->name)) continue;
    if (lua_getfield(L, 2, d->name) == LUA_TSTRING) {
      sandbox->line = 0;
      plan_fails("-D %s=%s: the setting is called %s now", d->name, d->value, lua_tostring(L, -1));
    }
    lua_pop(L, 1);
    push_suggestion(L, d->name, 1);
    sandbox->line = 0;
    const char *hint = lua_tostring(L, -1);
    plan_fails("-D %s=%s: the plan has no setting '%s'%s tpgen PLAN.lua --help lists its settings",
               d->name, d->value, d->name, *hint ? hint : ":");
  }
  return 0;
}

/* pin_setting(name, value): as if the command line said it, which has the last word. */
static int pin_setting(lua_State *L)
{
  lua_settop(L, 2);
  lua_getfield(L, LUA_REGISTRYINDEX, ARGS_VALUES);
  lua_insert(L, 1);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, 1) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_rawset(L, 1);
  }
  return 0;
}

/* cluster_option(): what --cluster says, or nil. */
static int cluster_option(lua_State *L)
{
  lua_pushstring(L, options.cluster);
  return 1;
}

/* lists_settings(): whether tpgen reads the plan for its settings only. */
static int lists_settings(lua_State *L)
{
  lua_pushboolean(L, options.help);
  return 1;
}

/* add_setting(name, type, default, about, title) */
static int add_setting(lua_State *L)
{
  GROW(plan_options->setting, plan_options->nsetting, plan_options->setting_room);
  plan_options->setting[plan_options->nsetting++] = (struct setting){
      .name = copy_text(luaL_checkstring(L, 1)),
      .type = copy_text(luaL_checkstring(L, 2)),
      .usual = copy_text(luaL_checkstring(L, 3)),
      .about = copy_text(luaL_checkstring(L, 4)),
      .title = copy_text(luaL_checkstring(L, 5)),
      .with = "",
      .without = "",
      .divides = "",
  };
  return 0;
}

/* pin_searched(value or nil, by -D): the setting that was added last is given this value; nil: what
   is off. */
static int pin_searched(lua_State *L)
{
  struct setting *s = &plan_options->setting[plan_options->nsetting - 1];
  s->is_pinned = true;
  s->pinned = lua_isnoneornil(L, 1) ? NULL : copy_text(luaL_checkstring(L, 1));
  s->is_defined = lua_toboolean(L, 2);
  return 0;
}

/* search_parallel(samples, blocks): train's parallel is for a search of the settings that were
   added. */
static int search_parallel(lua_State *L)
{
  struct parallel_plan *p = &plan_options->parallel;
  p->is_asked = true;
  p->line = sandbox->line;
  p->samples = luaL_checkinteger(L, 1);
  p->blocks = (int)luaL_checkinteger(L, 2);
  return 0;
}

/* found_parallel(): the values that a search gives train's parallel, by name; or nil. */
static int found_parallel(lua_State *L)
{
  if (!options.has_parallel) return 0;
  lua_newtable(L);
  for (int i = 0; i < options.nparallel; i++) {
    push_definition(L, &options.parallel[i]);
    lua_setfield(L, -2, options.parallel[i].name);
  }
  return 1;
}

/* note_units({pattern, ...}) */
static int note_units(lua_State *L)
{
  struct parallel_plan *p = &plan_options->parallel;
  p->nunit = (int)lua_rawlen(L, 1);
  p->unit = alloc((size_t)(p->nunit + 1) * sizeof *p->unit);
  for (int i = 0; i < p->nunit; i++) {
    lua_rawgeti(L, 1, i + 1);
    p->unit[i] = copy_text(luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  return 0;
}

/* shows_settings(): whether a report shows them. show_setting(name, value, is given) */
static int shows_settings(lua_State *L)
{
  lua_pushboolean(L, options.report);
  return 1;
}

static int show_setting(lua_State *L)
{
  GROW(plan_options->shown, plan_options->nshown, plan_options->shown_room);
  plan_options->shown[plan_options->nshown++] =
      (struct shown_setting){.name = copy_text(luaL_checkstring(L, 1)),
                             .value = copy_text(luaL_checkstring(L, 2)),
                             .is_given = lua_toboolean(L, 3)};
  return 0;
}

/* add_search(kind, {value, ...}, with, without, divides): how a search varies the setting that was
   added last. */
static int add_search(lua_State *L)
{
  struct setting *s = &plan_options->setting[plan_options->nsetting - 1];
  const char *kind = luaL_checkstring(L, 1);
  s->search = (enum search_kind)1;
  while (strcmp(search_kind_name[s->search], kind)) s->search++;
  s->nvalue = (int)lua_rawlen(L, 2);
  s->value = alloc((size_t)(s->nvalue + 1) * sizeof *s->value);
  for (int i = 0; i < s->nvalue; i++) {
    lua_rawgeti(L, 2, i + 1);
    s->value[i] = copy_text(luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  s->with = copy_text(luaL_checkstring(L, 3));
  s->without = copy_text(luaL_checkstring(L, 4));
  s->divides = copy_text(luaL_checkstring(L, 5));
  return 0;
}

/* end_of_settings(): nothing else of the plan is needed. Ends the process that reads the plan. */
static int end_of_settings(lua_State *L)
{
  (void)L;
  _exit(0);
}

void add_read_settings(lua_State *L, int names)
{
  for (lua_Integer i = 1; i <= (lua_Integer)lua_rawlen(L, names); i++) {
    lua_rawgeti(L, names, i);
    GROW(plan_options->setting, plan_options->nsetting, plan_options->setting_room);
    plan_options->setting[plan_options->nsetting++] =
        (struct setting){.name = copy_text(lua_tostring(L, -1)),
                         .type = "",
                         .usual = "",
                         .about = "",
                         .title = "",
                         .with = "",
                         .without = "",
                         .divides = ""};
    lua_pop(L, 1);
  }
}

void set_settings_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"definitions", definitions},
                                       {"check_definitions", check_definitions},
                                       {"lists_settings", lists_settings},
                                       {"add_setting", add_setting},
                                       {"shows_settings", shows_settings},
                                       {"show_setting", show_setting},
                                       {"add_search", add_search},
                                       {"pin_searched", pin_searched},
                                       {"search_parallel", search_parallel},
                                       {"found_parallel", found_parallel},
                                       {"note_units", note_units},
                                       {"end_of_settings", end_of_settings},
                                       {"pin_setting", pin_setting},
                                       {"cluster_option", cluster_option},
                                       {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
