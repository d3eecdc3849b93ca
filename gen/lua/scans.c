/* scans.c: the functions with which F.scan (recurrent.lua) records a loop over steps.

   The program has the operations of at most three steps: the first two, and the last one. outline.c
   makes a loop of them. A scan is a module of its own, whose modules are its steps, "scan.0" and so
   on: an operation of a step has the step as its module, or for a module that the step calls, one
   of that name below the step. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* begin_scan(steps): the next operations belong to a scan. */
static int begin_scan(lua_State *L)
{
  int parent = module_of_call(recording.call);
  const char *name = "scan";
  for (int again = 2; child_named(name, parent) != NONE; again++) name = text("scan_%d", again);
  scan.module = add_module(name, "Scan", parent, sandbox->line);
  graph->module[scan.module].steps = (int)luaL_checkinteger(L, 1);
  graph->module[scan.module].unit = graph->module[parent].unit;
  scan.call = recording.call;
  scan.first = graph->norder;
  return 0;
}

/* begin_step(number): the operations that follow are of the first, the second, ... step. */
static int begin_step(lua_State *L)
{
  const char *name = text("%d", (int)luaL_checkinteger(L, 1));
  scan.step = add_module(name, "Step", scan.module, sandbox->line);
  graph->module[scan.step].unit = graph->module[scan.module].unit;
  return 0;
}

/* end_step(): the next operations belong to no step. */
static int end_step(lua_State *L)
{
  (void)L;
  scan.step = NONE;
  return 0;
}

/* end_scan() */
static int end_scan(lua_State *L)
{
  (void)L;
  scan.module = NONE;
  return 0;
}

/* in_scan(): whether a scan is recorded. */
static int in_scan(lua_State *L)
{
  lua_pushboolean(L, scan.module != NONE);
  return 1;
}

/* enter_scan(tensor): a carry, as the first step reads it. */
static int enter_scan(lua_State *L)
{
  push_tensor(L, append_here(redistribution_of(argument_operand(L, 1), "what a scan carries")));
  return 1;
}

/* pass_on(tensor): the carry of the step, which the next step reads. */
static int pass_carry(lua_State *L)
{
  int value = argument_operand(L, 1);
  struct op op = {.kind = OP_view, .nin = 1, .in = {value}};
  op.equation = identity_equation(graph->value[value].shape.ndim);
  push_tensor(L, append_here(op));
  return 1;
}

/* hold(the carry of the last step, the carry that the first step reads): see OP_scan_hold. */
static int hold_scan(lua_State *L)
{
  struct op op = {
      .kind = OP_scan_hold, .nin = 2, .in = {argument_operand(L, 1), argument_operand(L, 2)}};
  append_update(op_here(op));
  return 0;
}

void set_scan_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {
      {"begin_scan", begin_scan}, {"begin_step", begin_step}, {"end_step", end_step},
      {"end_scan", end_scan},     {"in_scan", in_scan},       {"enter_scan", enter_scan},
      {"pass_on", pass_carry},    {"hold", hold_scan},        {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
