/* model.c: makes the model part of the graph: its modules, units and parameters, the styles of its
   modules, and the calls of modules. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <string.h>

enum { MAX_CALLS = 1 << 15, MAX_MODULES = 1 << 15, MAX_PATH = 1024 };

static bool has_model; /* train or infer has begun to add it to the graph */

/* -------------------------------------------------------------------------------------- units */

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

/* add_unit(its first module, the function that makes it, line, {mesh dimension ...} that cut, {...}
   that replicate, {...} over which it is gathered again, the dimension that is cut or nil, whether
   it is gathered once a step, whether each batch's gradients are reduced): its index. */
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

/* ------------------------------------------------------------------------------------ take up */

/* State that a module inherits and passes on to its children, unless they have their own. */
struct inherited {
  int unit;
  bool has_policy;
  enum type used, reduced; /* by the policy: see struct value */
};

/* Arguments of take_up. */
enum { MODEL = 1, POLICIES, CALLS, UNIT_OF };

static enum type type_field(lua_State *L, int at, const char *name)
{
  lua_getfield(L, at, name);
  enum type t = argument_type(L, -1);
  lua_pop(L, 1);
  return t;
}

static void add_parameter(const struct held *h, int module, const struct inherited *from)
{
  struct tensor *t = h->tensor;
  const char *path = graph->module[module].path;
  check_name_text(h->name, h->length, "a parameter's name");
  if (t->value != NONE) return; /* tied: it has the name of its first place */
  const char *name = *path ? text("%s.%s", path, h->name) : h->name;
  int64_t first = 0;
  for (int k = 0; k < (t->nparts ? t->nparts : 1); k++) {
    struct shape shape = t->shape;
    if (t->nparts) shape.size[t->part_dim] = t->part[k];
    int value = add_value(PARAMETER, name, F32, shape, module, t->line);
    if (k == 0) t->value = value;
    struct value *v = &graph->value[value];
    v->init = t->init;
    v->frozen = t->frozen;
    v->unit = t->buffer ? NONE : graph->module[module].unit;
    if (t->nparts) {
      v->file_dim = t->part_dim;
      v->file_first = first;
      v->file_size = t->shape.size[t->part_dim];
      first += t->part[k];
    }
    if (!from->has_policy || t->buffer) continue;
    v->used_as = from->used;
    v->reduced_as = from->reduced;
  }
}

/* In PyTorch's order: a module's own parameters, then one child after the other. */
static void take_up_module(lua_State *L, const struct held *h, int parent, struct inherited from)
{
  struct made *m = h->module;
  luaL_checkstack(L, 10, NULL);
  push_module(L, m);
  /* The module at the top may have a policy of its own. */
  lua_pushvalue(L, -1);
  if (lua_rawget(L, POLICIES) != LUA_TNIL) {
    from.has_policy = true;
    from.used = type_field(L, lua_gettop(L), "used");
    from.reduced = type_field(L, lua_gettop(L), "reduced");
  }
  lua_pop(L, 1);
  if (m->index != NONE) {
    const char *above = parent == NONE ? "" : graph->module[parent].path;
    plan_fails("the %s of line %d is in two places of the model: '%s' and '%s%s%s'", m->class_name,
               m->line, graph->module[m->index].path, above, *above ? "." : "", h->name);
  }
  if (parent != NONE) check_name_text(h->name, h->length, "a module's name");
  if (graph->nmodule >= MAX_MODULES) plan_fails("the model has more than %d modules", MAX_MODULES);
  if (parent != NONE && strlen(graph->module[parent].path) > MAX_PATH)
    plan_fails("the modules are nested too deeply, from the one of line %d on", m->line);
  m->index = add_module(h->name, m->class_name, parent, m->line);
  /* It may also be the first of a unit. */
  lua_pushvalue(L, -1);
  bool has_unit = lua_rawget(L, CALLS) != LUA_TNIL;
  lua_pop(L, 1);
  if (has_unit) {
    lua_pushvalue(L, UNIT_OF);
    lua_pushvalue(L, -2);
    lua_pushinteger(L, m->index);
    lua_call(L, 2, 1);
    from.unit = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  graph->module[m->index].unit = from.unit;
  look(L, m);
  for (int of_modules = 0; of_modules < 2 && m->unnamed; of_modules++)
    refuse_bad_keys(L, m, of_modules);
  if (m->numbered && m->named) {
    /* A number and a text may be one name. */
    lua_newtable(L);
    for (int of_modules = 0; of_modules < 2; of_modules++)
      for (int i = 0; i < m->n; i++) {
        if ((m->held[i].module != NULL) != of_modules) continue;
        if (lua_getfield(L, -1, m->held[i].name) != LUA_TNIL)
          plan_fails("the %s of line %d holds two things of the name '%s'", m->class_name, m->line,
                     m->held[i].name);
        lua_pushboolean(L, 1);
        lua_setfield(L, -3, m->held[i].name);
        lua_pop(L, 1);
      }
    lua_pop(L, 1);
  }
  for (int i = 0; i < m->n; i++)
    if (m->held[i].tensor) add_parameter(&m->held[i], m->index, &from);
  for (int i = 0; i < m->n; i++)
    if (m->held[i].module) take_up_module(L, &m->held[i], m->index, from);
}

/* take_up(model, policies by module, calls that make units by module, function that returns the
   unit of one of these modules, given its index): makes the model's modules and parameters part of
   the graph. A policy is {used = type that the model computes with, reduced = type of gradients in
   collectives}. */
static int take_up(lua_State *L)
{
  lua_settop(L, UNIT_OF);
  has_model = true;
  look_anew();
  struct held model = {.name = "", .module = argument_module(L, MODEL)};
  take_up_module(L, &model, NONE, (struct inherited){.unit = NONE});
  return 0;
}

/* ------------------------------------------------------------------------------------- adapters */

/* The weight of the module at `at`, which is part of the graph. */
static struct value *weight_of_module(lua_State *L, int at)
{
  struct made *m = argument_module(L, at);
  look(L, m);
  for (int i = 0; i < m->n; i++)
    if (m->held[i].tensor && m->held[i].name && !strcmp(m->held[i].name, "weight"))
      return &graph->value[m->held[i].tensor->value];
  plan_fails("the %s of line %d has no weight any more", m->class_name, m->line);
}

/* The path of the module at `at` in others' files: the name of its weight there, without that. */
static const char *path_of_weight(lua_State *L, int at)
{
  const struct value *v = weight_of_module(L, at);
  const char *name = v->alias ? v->alias : v->name, *last = strrchr(name, '.');
  return text("%.*s", last ? (int)(last - name) : 0, name);
}

/* weight_path(module) */
static int weight_path(lua_State *L)
{
  lua_pushstring(L, path_of_weight(L, 1));
  return 1;
}

/* name_adapter(module, one of its adapter's parameters, what PEFT calls it): the parameter's name
   in PEFT's files. */
static int name_adapter(lua_State *L)
{
  enum { MODULE = 1, PARAMETER_AT, KEY };
  const char *path = path_of_weight(L, MODULE), *dot = *path ? "." : "";
  const struct tensor *t = argument_tensor(L, PARAMETER_AT);
  const char *name = text("base_model.model.%s%s%s", path, dot, luaL_checkstring(L, KEY));
  const struct value *weight = weight_of_module(L, MODULE);
  if (weight->alias_size)
    plan_fails(
        "lora: %s is a part of '%.80s' in files of others, and PEFT has no adapter of a part: "
        "leave it out of names",
        weight->name, weight->alias);
  for (int k = 0; k < (t->nparts ? t->nparts : 1); k++) graph->value[t->value + k].alias = name;
  return 0;
}

/* add_transposed(module): the adapter's product is added to the module's weight the other way
 * round. */
static int add_transposed(lua_State *L)
{
  const char *before = plan_options->transposed;
  plan_options->transposed = text("%s%s\n", before ? before : "", weight_of_module(L, 1)->name);
  return 0;
}

/* --------------------------------------------------------------------------------------- styles */

/* A style's request for a module, until the module is part of the graph. */
struct pending_request {
  struct layout_request request; /* without the value */
  const struct tensor *parameter;
};
struct pending_style {
  const char *name;
  int line, dim; /* by the plan's count of the mesh dimensions; below 0: one of several */
  const struct made *module;
  int nrequest;
  struct pending_request request[];
};
static const char pending; /* its address: the list of them, in Lua's registry */

static void push_pending(lua_State *L)
{
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &pending) != LUA_TNIL) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &pending);
}

/* A request as Lua has it, at the top: {"input" or "output", index, placement}. */
static struct pending_request request_at_top(lua_State *L)
{
  static const char *const kinds[] = {"input", "output", NULL};
  int at = lua_gettop(L);
  for (int i = 1; i <= 3; i++) lua_rawgeti(L, at, i);
  struct layout_request w = {.what = luaL_checkoption(L, at + 1, NULL, kinds) ? REQUEST_OUTPUT
                                                                              : REQUEST_INPUT,
                             .value = NONE,
                             .index = (int)luaL_checkinteger(L, at + 2),
                             .to = placement_at(L, at + 3)};
  lua_settop(L, at);
  return (struct pending_request){.request = w};
}

/* Pushes the requests for the module: the placements of its parameters, and the requests of a
   list. */
static struct pending_style *push_style(lua_State *L, const struct made *m, int places, int others)
{
  int nothers = (int)lua_rawlen(L, others), most = m->n + nothers;
  struct pending_style *s = lua_newuserdatauv(L, sizeof *s + (size_t)most * sizeof *s->request, 0);
  *s = (struct pending_style){.module = m};
  for (int k = 0; k < m->n; k++) {
    struct layout_request w = {.what = REQUEST_PARAMETER};
    if (m->held[k].tensor) {
      /* Whether the parameter has a placement: `places` is one, or a table of them by name. */
      const char *name = m->held[k].name;
      bool is_table = lua_istable(L, places);
      if (is_table)
        lua_getfield(L, places, name);
      else
        lua_pushvalue(L, places);
      bool has = !lua_isnil(L, -1);
      if (has) w.to = placement_at(L, lua_gettop(L));
      lua_pop(L, 1);
      if (has) s->request[s->nrequest++] = (struct pending_request){w, m->held[k].tensor};
    }
  }
  for (int k = 1; k <= nothers; k++) {
    lua_rawgeti(L, others, k);
    s->request[s->nrequest++] = request_at_top(L);
    lua_pop(L, 1);
  }
  return s;
}
static int apply_style(lua_State *L);

/* The style along a dimension of the graph's mesh; or, of several, along one that auto() finds. A
   parameter in parts has a request for each. */
static struct style lowered_style(const struct pending_style *p, int mesh_dim, unsigned among)
{
  int n = 0;
  for (int w = 0; w < p->nrequest; w++)
    n += p->request[w].parameter ? part_count(p->request[w].parameter) : 1;
  struct style s = {.name = p->name,
                    .module = p->module->index,
                    .mesh_dim = mesh_dim,
                    .among = among,
                    .line = p->line,
                    .request = alloc((size_t)n * sizeof *s.request)};
  for (int w = 0; w < p->nrequest; w++) {
    const struct tensor *t = p->request[w].parameter;
    for (int k = 0; k < (t ? part_count(t) : 1); k++) {
      struct layout_request *r = &s.request[s.nrequest++];
      *r = p->request[w].request;
      if (t) r->value = part_value(t, k);
    }
  }
  return s;
}

/* lower_styles({[dimension] = {dimension of the graph's mesh ...}}): adds the styles to the
   graph. Those of a dimension below 0 are along one of its dimensions, others along each. */
static int lower_styles(lua_State *L)
{
  enum { DIMS = 1, ALL };
  lua_settop(L, DIMS);
  push_pending(L);
  for (lua_Integer i = 1; lua_rawgeti(L, ALL, i) != LUA_TNIL; i++, lua_settop(L, ALL)) {
    const struct pending_style *p = lua_touserdata(L, -1);
    if (p->module->index == NONE)
      plan_fails("%s of line %d is for a %s that is not part of the model", p->name, p->line,
                 p->module->class_name);
    lua_rawgeti(L, DIMS, p->dim);
    unsigned among = 0;
    int last = NONE;
    for (lua_Integer k = 1; lua_rawgeti(L, -1, k) != LUA_TNIL; k++, lua_pop(L, 1)) {
      last = (int)luaL_checkinteger(L, -1);
      among |= 1u << last;
      if (p->dim >= 0) place_by_style(lowered_style(p, last, 0));
    }
    if (p->dim < 0) place_by_style(lowered_style(p, last, among));
  }
  return 0;
}

/* apply_style(modules, dimension, name, line, function): applies the style to the modules. The
   function gets a class and one of its modules, and returns the style's requests for these: the
   placement of parameters (a table by name, one for all, or nil), and a list of its other
   requests. */
static int apply_style(lua_State *L)
{
  enum { LIST = 1, DIM, NAME, LINE, WISHES, ALL, CLASS, PLACES, OTHERS, HERE };
  lua_settop(L, WISHES);
  const char *name = copy_text(luaL_checkstring(L, NAME));
  push_pending(L);
  lua_settop(L, OTHERS);
  lua_Integer n = (lua_Integer)lua_rawlen(L, ALL);
  for (lua_Integer i = 1; lua_rawgeti(L, LIST, i) != LUA_TNIL; i++, lua_settop(L, OTHERS)) {
    struct made *m = argument_module(L, HERE);
    lua_rawgeti(L, CLASS_OF, m->number);
    if (!lua_rawequal(L, -1, CLASS)) {
      lua_copy(L, -1, CLASS);
      lua_pushvalue(L, WISHES);
      lua_pushvalue(L, CLASS);
      lua_pushvalue(L, HERE);
      lua_call(L, 2, 2);
      lua_replace(L, OTHERS);
      lua_replace(L, PLACES);
    }
    look(L, m);
    if (m->unnamed) refuse_bad_keys(L, m, false);
    struct pending_style *s = push_style(L, m, PLACES, OTHERS);
    s->name = name;
    s->line = (int)luaL_checkinteger(L, LINE);
    s->dim = (int)luaL_checkinteger(L, DIM);
    lua_rawseti(L, ALL, ++n);
  }
  return 0;
}

/* -------------------------------------------------------------------------------------- calls */

/* Records the tensors among the arguments from `first` on; returns their number. */
static int note_tensors(lua_State *L, int first, int *noted, const char *what)
{
  int n = 0, top = lua_gettop(L);
  for (int i = first; i <= top; i++) {
    if (!tensor_at(L, i)) continue;
    if (n == MAX_CALL_TENSORS) plan_fails("a module %s at most %d tensors", what, MAX_CALL_TENSORS);
    noted[n++] = argument_value(L, i);
  }
  return n;
}

/* An error if the module cannot be called now. */
static void check_callable(const struct made *m)
{
  if (m->index != NONE && recording.on) return;
  if (m->index == NONE && has_model)
    plan_fails("the %s of line %d is not part of the model: keep it as an attribute of one of its "
               "modules, as self.name = ..., or in an nn.ModuleList",
               m->class_name, m->line);
  plan_fails("train and infer call the model; a plan does not call it by itself");
}

/* check_callable(module) */
static int check_module_callable(lua_State *L)
{
  const struct made *m = argument_module(L, 1);
  if (m->index == NONE) check_callable(m);
  return 0;
}

/* enter(module, arguments...): begins a call of the module. */
static int enter(lua_State *L)
{
  const struct made *m = argument_module(L, 1);
  check_callable(m);
  if (graph->ncall >= MAX_CALLS) plan_fails("the modules are called more than %d times", MAX_CALLS);
  int within = module_within(m->index, recording.call);
  GROW(graph->call, graph->ncall, graph->call_room);
  struct call *c = &graph->call[graph->ncall];
  *c = (struct call){.module = m->index,
                     .within = within,
                     .parent = recording.call,
                     .first = graph->norder,
                     .last = graph->norder};
  c->nin = note_tensors(L, 2, c->in, "takes");
  recording.call = graph->ncall++;
  return 0;
}

/* leave(results...): ends the call that began last. */
static int leave_module(lua_State *L)
{
  struct call *c = &graph->call[recording.call];
  c->nout = note_tensors(L, 1, c->out, "gives");
  c->last = graph->norder;
  recording.call = c->parent;
  return lua_gettop(L);
}

/* Upvalues: a function that calls an instance of one of our classes, whose forward calls no
   function of the plan's; and one for an instance with a forward that the plan assigned. */
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

/* ---------------------------------------------------------------------------------- the table */

void set_model_bindings(lua_State *L)
{
  static const luaL_Reg functions[] = {{"add_unit", add_unit},
                                       {"take_up", take_up},
                                       {"weight_path", weight_path},
                                       {"name_adapter", name_adapter},
                                       {"add_transposed", add_transposed},
                                       {"apply_style", apply_style},
                                       {"lower_styles", lower_styles},
                                       {"check_callable", check_module_callable},
                                       {"enter", enter},
                                       {"leave", leave_module},
                                       {"calls", calls_of_instances},
                                       {NULL, NULL}};
  set_module_bindings(L);
  luaL_setfuncs(L, functions, TABLES);
}
