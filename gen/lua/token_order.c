/* token_order.c: which tensors are in the order of the sequence, where context_parallel deals its
   tokens out in another one. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* in_sequence(tensor, n, order, ...): the name of something with n elements in the order of the
   sequence that the tensor is made of, other than by the new order: by `order`, what follows it, of
   the same numbers, or an index_select with `order`; or nil. */
static int in_sequence(lua_State *L)
{
  int value = argument_operand(L, 1), order = argument_operand(L, 3);
  int64_t n = (int64_t)luaL_checkinteger(L, 2);
  bool *is_read = alloc((size_t)value + 1);
  memset(is_read, 0, (size_t)value + 1);
  is_read[value] = true;
  bool *is_new = alloc((size_t)graph->nvalue);
  memset(is_new, 0, (size_t)graph->nvalue);
  for (int at = 3; at <= lua_gettop(L); at++) is_new[argument_operand(L, at)] = true;
  for (int i = value; i >= 0; i--) {
    if (!is_read[i] || is_new[i]) continue;
    /* Whether the value, which nothing is made of before, has elements in the order of n tokens. */
    const struct value *v = &graph->value[i];
    bool counts = v->op != NONE && graph->op[v->op].kind == OP_index;
    bool goes_by_tokens = false;
    if (v->role == BATCH || counts)
      for (int d = 0; d < v->shape.ndim && !goes_by_tokens; d++)
        goes_by_tokens = v->shape.size[d] == n;
    if (goes_by_tokens) {
      lua_pushstring(L, value_name(i));
      return 1;
    }
    if (graph->value[i].op == NONE) continue;
    const struct op *op = &graph->op[graph->value[i].op];
    if (op->kind == OP_index_select && op->in[1] == order) continue;
    int first = op->kind == OP_embedding; /* a table is not in the order of tokens */
    for (int k = first; k < op->nin; k++) is_read[op->in[k]] = true;
  }
  return 0;
}

void set_order_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"in_sequence", in_sequence}, {NULL, NULL}};
  luaL_setfuncs(L, functions, 0);
}
