/* file_names.c: the parameters' names in foreign files, and the tensors there that contain them. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <string.h>

/* Whether it is a part of a tensor in files, and not the first one. */
static bool is_further_part(int value)
{
  return graph->value[value].file_first > 0;
}

/* parameters(): the names of all the graph's values so far, in order; these are the parameters. One
   that is kept in parts has one name. */
static int parameters(lua_State *L)
{
  lua_createtable(L, graph->nvalue, 0);
  for (int i = 0; i < graph->nvalue; i++) {
    if (is_further_part(i)) continue;
    lua_pushstring(L, graph->value[i].name);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  return 1;
}

/* Pushes the text with its stars replaced. A star that matches no part also drops its dot. */
static void push_replaced(lua_State *L, const char *pattern, const struct starred *part, int n)
{
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (int k = 0; k < n; k++) {
    size_t before = strcspn(pattern, "*");
    luaL_addlstring(&b, pattern, before);
    pattern += before;
    bool deep = pattern[0] == '*' && pattern[1] == '*';
    if (*pattern) pattern += 1 + deep;
    luaL_addlstring(&b, part[k].at, part[k].n);
    if (deep && part[k].n == 0 && *pattern == '.') pattern++;
  }
  luaL_addstring(&b, pattern);
  luaL_pushresult(&b);
}

/* The letters with which each name ends that fits the pattern, "" where there are none. */
static const char *common_end(const char *pattern)
{
  const char *end = pattern + strlen(pattern);
  while (end > pattern && !strchr("*?[]|", end[-1])) end--;
  bool of_any = end > pattern && end[-1] == '*'; /* the dot of "**." may match nothing */
  return strchr(pattern, '|') ? "" : of_any && *end == '.' ? end + 1 : end;
}

#define ALIAS_NAME "a parameter's other name"

/* set_aliases(pattern, other): gives the parameters that match the pattern their names in files of
   others; `other` has as many stars. Returns a list: of each its name, its other name, and its
   value. */
static int set_aliases(lua_State *L)
{
  enum { PATTERN = 1, OTHER, LIST };
  const char *pattern = luaL_checkstring(L, PATTERN);
  struct starred part[MOST_STARS];
  lua_Integer found = 0;
  int n;
  if (strlen(luaL_checkstring(L, OTHER)) != lua_rawlen(L, OTHER)) check_name(L, OTHER, ALIAS_NAME);
  bool is_text = strlen(pattern) == lua_rawlen(L, PATTERN); /* else no name can match */
  const char *end = common_end(pattern);
  const size_t length = strlen(end);
  lua_newtable(L);
  for (int i = 0; is_text && i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    size_t all = strlen(v->name);
    if (!(all >= length && !memcmp(v->name + all - length, end, length)) ||
        !fits_pattern(v->name, pattern, part, &n))
      continue;
    if (is_further_part(i)) {
      v->alias = graph->value[i - 1].alias;
      continue;
    }
    push_replaced(L, lua_tostring(L, OTHER), part, n);
    v->alias = copy_text(check_name(L, LIST + 1, ALIAS_NAME));
    lua_rawseti(L, LIST, found + 2);
    lua_pushstring(L, v->name);
    lua_rawseti(L, LIST, found + 1);
    lua_pushinteger(L, i);
    lua_rawseti(L, LIST, found + 3);
    found += 3;
  }
  return 1;
}

/* The parameter's shape in files where it is a tensor of its own. */
static struct shape shape_alone(int value)
{
  const struct value *v = &graph->value[value];
  struct shape s = v->shape;
  if (v->file_size) s.size[v->file_dim] = v->file_size;
  return s;
}

/* Whether the parameters can be parts of one tensor along the dimension. */
static void check_joined(const char *who, int first, int value, int dim)
{
  const struct value *v = &graph->value[first], *w = &graph->value[value];
  struct shape a = shape_alone(first), b = shape_alone(value);
  if (dim >= b.ndim)
    plan_fails("%s's names: %s, of shape %s, has no dimension %d to be a part along", who, w->name,
               shape_text(b), dim);
  struct shape other = b;
  if (dim < a.ndim) other.size[dim] = a.size[dim];
  if (!same_shape(a, other) || v->type != w->type)
    plan_fails("%s's names: %s is %s and %s is %s, and parts of '%.80s' along dimension %d "
               "must have the same other sizes",
               who, v->name, shape_text(a), w->name, shape_text(b), v->alias, dim);
}

/* join(who, dimension, the values that are one tensor in files of others, side by side). */
static int join_parts(lua_State *L)
{
  enum { WHO = 1, DIM, VALUES };
  const char *who = luaL_checkstring(L, WHO);
  int dim = (int)luaL_checkinteger(L, DIM), n = (int)lua_rawlen(L, VALUES);
  int *value = alloc((size_t)(n + 1) * sizeof *value);
  int64_t size = 0, first = 0;
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, VALUES, k + 1);
    value[k] = (int)luaL_checkinteger(L, -1);
    check_joined(who, value[0], value[k], dim);
    size += shape_alone(value[k]).size[dim];
  }
  for (int k = 0; k < n; first += shape_alone(value[k++]).size[dim])
    for (int i = value[k]; i == value[k] || (i < graph->nvalue && is_further_part(i)); i++) {
      graph->value[i].alias_dim = (signed char)dim;
      graph->value[i].alias_first = first;
      graph->value[i].alias_size = size;
    }
  return 0;
}

void set_file_name_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {
      {"parameters", parameters}, {"set_aliases", set_aliases}, {"join", join_parts}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
