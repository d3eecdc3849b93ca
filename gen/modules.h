/* modules.h: what the front end knows of the modules that a plan has made: modules.c and model.c.
 */
#ifndef MODULES_H
#define MODULES_H

#include <lua.h>

#include "tpgen.h"

/* What a module holds: another one, or a tensor. Lua's is the name, or the arena's. */
struct held {
  const char *name;
  size_t length;
  struct made *module; /* or NULL */
  struct tensor *tensor;
};

struct made {
  int number, line;
  const char *class_name;
  int index;          /* in the graph, or NONE */
  int taken;          /* by which call of fully_shard or replicate, from 1; 0: by none */
  struct made *queue; /* behind it, where modules stand in line to be looked at */
  unsigned looked;    /* at which look its members were noted: they are as they were only while
                         nothing of the plan's runs */
  int n, room;        /* its members, in the order in which they were given */
  struct held *held;
  bool unnamed, numbered, named; /* some of their keys are no names; are numbers; are texts */
};

/* Where the functions that are given the tables of modules.c find them: their upvalues. */
enum {
  KINDS = lua_upvalueindex(1),
  KEYS_OF = lua_upvalueindex(2),
  SEEN_OF = lua_upvalueindex(3),
  MADE = lua_upvalueindex(4),
  MODULES = lua_upvalueindex(5),
  CLASS_OF = lua_upvalueindex(6),
  TABLES = 6
};

/* The module that is the argument `at`. */
struct made *argument_module(lua_State *L, int at);
/* Pushes it. */
void push_module(lua_State *L, const struct made *m);
/* From here on what modules hold is to be looked at anew. */
void look_anew(void);
/* Notes what it holds, unless that is known. What lies under a key that is no name has none: that
   it is a module, or a tensor, is the plan's error. */
void look(lua_State *L, struct made *m);
void refuse_bad_keys(lua_State *L, const struct made *m, bool of_modules);

/* Adds the functions of model.c to the table below the tables, which stay at the top. */
void set_model_bindings(lua_State *L);

#endif
