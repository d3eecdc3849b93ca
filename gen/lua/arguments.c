/* arguments.c: arguments that several bindings take: names and placements. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* Names become C identifiers, keys in files and text in messages: no zero byte, no endless text. */
void check_name_text(const char *name, size_t length, const char *what)
{
  enum { LONGEST = 255 };
  if (length == 0 || length > LONGEST)
    plan_fails("%s must have 1 to %d bytes, not %zu", what, LONGEST, length);
  if (strlen(name) != length) plan_fails("%s must not hold a zero byte", what);
}

const char *check_name(lua_State *L, int at, const char *what)
{
  size_t length;
  const char *name = luaL_checklstring(L, at, &length);
  check_name_text(name, length, what);
  return name;
}

struct placed_at *check_placement(lua_State *L, int at)
{
  return luaL_checkudata(L, at, "placement");
}

struct placement placement_at(lua_State *L, int at)
{
  return check_placement(L, at)->placement;
}

const char *const reduction_names[] = {[SUM] = "sum", [MAX] = "max", [MIN] = "min", NULL};

int placement_name(lua_State *L)
{
  struct placement p = placement_at(L, 1);
  if (p.kind == SHARD && check_placement(L, 1)->has_order)
    lua_pushfstring(L, "Shard(%d, %d)", p.dim, p.cut_order);
  else if (p.kind == SHARD)
    lua_pushfstring(L, "Shard(%d)", p.dim);
  else if (p.kind == PARTIAL && p.reduction != SUM)
    lua_pushfstring(L, "Partial('%s')", reduction_names[p.reduction]);
  else
    lua_pushstring(L, p.kind == PARTIAL ? "Partial()" : "Replicate()");
  return 1;
}
