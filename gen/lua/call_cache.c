/* call_cache.c: replays earlier calls of F's functions, and of tensors' methods and operators.

   The operations that such a function appends follow from the shapes and types of its tensors, and
   from its numbers and texts. A model of a hundred equal layers calls each of them a hundred times
   with the same ones. The first call is recorded: the operations that it appended, and their
   operands. An equal call appends them again and runs no Lua. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

enum { MOST_TENSORS = 16, MOST_STEPS = 64, MOST_ENTRIES = 32, MOST_RESULTS = 8 };

/* An operand of a recorded operation, or a result of the call: the k-th tensor argument of the
   call; that argument in the type that the model computes with; the k-th value that the call's
   operations make. */
enum { GIVEN = 0, OPERAND = MOST_TENSORS, MADE_BY_CALL = 2 * MOST_TENSORS };

struct noted_call {
  enum { NEW, NOTED, NEVER } state; /* NEVER: it cannot be replayed */
  int nstep, nresult;
  struct step {
    int op; /* the one that the first call appended */
    int in[MAX_INPUTS];
  } * step;
  int result[MOST_RESULTS];
};

/* The tensors of the current call: their values, and their indices among the arguments; 0: in a
   table. */
static int given[MOST_TENSORS], place[MOST_TENSORS], ngiven;
static struct query question;

/* --------------------------------------------------------------------------------- is it known? */

/* The number of the call's tensor that has the value, or NONE. */
static int number_given(int value)
{
  for (int k = 0; k < ngiven; k++)
    if (given[k] == value) return k;
  return NONE;
}

/* at: the argument's index, or 0 for an element of a table. */
static bool ask_thing(lua_State *L, int at)
{
  int type = lua_type(L, at ? at : -1);
  ask_number(&question, type);
  size_t length;
  const char *s;
  switch (type) {
  case LUA_TNONE:
  case LUA_TNIL:
    return true;
  case LUA_TBOOLEAN:
    ask_number(&question, lua_toboolean(L, at ? at : -1));
    return true;
  case LUA_TNUMBER:
    ask_number(&question, lua_isinteger(L, at ? at : -1));
    if (lua_isinteger(L, at ? at : -1)) {
      ask_number(&question, lua_tointeger(L, at ? at : -1));
    } else {
      double number = lua_tonumber(L, at ? at : -1);
      int64_t bits;
      memcpy(&bits, &number, sizeof bits);
      ask_number(&question, bits);
    }
    return true;
  case LUA_TSTRING:
    s = lua_tolstring(L, at ? at : -1, &length);
    ask_piece(&question, s, length);
    return true;
  case LUA_TUSERDATA: {
    const struct tensor *t = tensor_at(L, at ? at : -1);
    if (!t) return false;
    if (t->value == NONE || t->nparts || ngiven == MOST_TENSORS) return false;
    const struct value *v = &graph->value[t->value];
    /* The result of a function of a join may depend on the joined values: views.lua. */
    if (v->op != NONE && graph->op[v->op].kind == OP_cat) return false;
    int before = number_given(t->value);
    place[ngiven] = at;
    given[ngiven++] = t->value;
    ask_number(&question, before);
    ask_number(&question, (int64_t)v->used_as | (int64_t)v->role << 8);
    ask_value(&question, v);
    return true;
  }
  default:
    return false;
  }
}

/* Equal tables may have their entries in another order: then the calls count as different. */
static bool ask_table(lua_State *L, int at)
{
  int n = 0;
  if (lua_getmetatable(L, at)) return false;
  ask_number(&question, LUA_TTABLE);
  lua_pushnil(L);
  while (lua_next(L, at)) {
    bool plain = ++n <= MOST_ENTRIES && ask_thing(L, 0);
    lua_pop(L, 1);
    if (!plain || !ask_thing(L, 0)) return false;
  }
  ask_number(&question, NONE);
  return true;
}

struct noted_call *noted_call(lua_State *L, int function)
{
  static struct memo memo;
  int top = lua_gettop(L);
  begin_query(&question);
  ngiven = 0;
  ask_number(&question, function);
  bool ask_arguments = true;
  for (int at = 1; at <= top && ask_arguments; at++)
    ask_arguments = lua_istable(L, at) ? ask_table(L, at) : ask_thing(L, at);
  bool can_be_asked = ask_arguments, is_new;
  lua_settop(L, top);
  if (!can_be_asked) return NULL;
  struct noted_call *call = answer_to(&memo, &question, sizeof *call, &is_new);
  if (is_new) *call = (struct noted_call){.state = NEW};
  return call->state == NEVER ? NULL : call;
}

/* ------------------------------------------------------------------------------------ it is not */

/* How a recorded call refers to the value; `made` are the values of its operations so far. NONE: it
   cannot. */
static int number_in_call(int value, const int *made, int nmade)
{
  int k = number_given(value);
  if (k != NONE || value == NONE) return k;
  for (k = 0; k < ngiven; k++)
    if (known_cast(given[k]) == value) return OPERAND + k;
  for (k = 0; k < nmade; k++)
    if (made[k] == value) return MADE_BY_CALL + k;
  return NONE;
}

static bool note_steps(struct noted_call *call, int first_op, int *made, int *nmade)
{
  for (int i = first_op; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    struct step step = {.op = i};
    if (op->out != NONE && number_in_call(op->out, NULL, 0) != NONE)
      continue; /* an operand's cast */
    for (int k = 0; k < op->nin; k++)
      if ((step.in[k] = number_in_call(op->in[k], made, *nmade)) == NONE) return false;
    for (int k = 0; k < op->nout; k++) {
      const struct value *v = &graph->value[op->out + k];
      if (strcmp(v->name, graph->module[v->module].path) != 0)
        return false; /* a replay would not set a name of its own */
      made[(*nmade)++] = op->out + k;
    }
    call->step[call->nstep++] = step;
  }
  return true;
}

static bool note_results(lua_State *L, struct noted_call *call, const int *made, int nmade)
{
  int n = lua_gettop(L);
  if (n > MOST_RESULTS) return false;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = tensor_at(L, i + 1);
    int k = t ? number_in_call(t->value, made, nmade) : NONE;
    bool is_argument = k >= GIVEN && k < OPERAND && place[k];
    if (k < MADE_BY_CALL && !is_argument) return false;
    call->result[call->nresult++] = k;
  }
  return true;
}

void note_call(lua_State *L, struct noted_call *call, int first_op)
{
  int made[MOST_STEPS * MAX_OUTPUTS], nmade = 0, n = graph->nop - first_op;
  call->state = NEVER;
  if (n > MOST_STEPS) return;
  call->step = alloc((size_t)n * sizeof *call->step);
  if (note_steps(call, first_op, made, &nmade) && note_results(L, call, made, nmade))
    call->state = NOTED;
}

void never_note(struct noted_call *call)
{
  call->state = NEVER;
}

/* ---------------------------------------------------------------------------------------- it is */

bool is_noted(const struct noted_call *call)
{
  return call->state == NOTED;
}

int replay(lua_State *L, const struct noted_call *call)
{
  int made[MOST_STEPS * MAX_OUTPUTS], nmade = 0;
  for (int i = 0; i < call->nstep; i++) {
    const struct step *s = &call->step[i];
    int in[MAX_INPUTS], nin = graph->op[s->op].nin;
    for (int k = 0; k < nin; k++) {
      int from = s->in[k];
      in[k] = from >= MADE_BY_CALL ? made[from - MADE_BY_CALL]
              : from >= OPERAND    ? operand_of(given[from - OPERAND])
                                   : given[from];
    }
    int out = append_again(s->op, in);
    for (int k = 0; k < graph->op[s->op].nout; k++) made[nmade++] = out + k;
  }
  for (int i = 0; i < call->nresult; i++) {
    int k = call->result[i];
    if (k < OPERAND)
      lua_pushvalue(L, place[k]);
    else
      push_tensor(L, made[k - MADE_BY_CALL]);
  }
  return call->nresult;
}
