/* bindings.c: the functions with which our Lua files build the graph around its operations:
   parameters and inputs, the mesh and the styles. modules.c has those for the tree of modules,
   training.c those for training. */
#include "lua/lua.h"

#include <lauxlib.h>
#include <lua.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ arguments */

static struct init check_init(lua_State *L, int at)
{
  static const char *const kinds[] = {
      "constant",     "uniform",    "normal", "tokens", "present", "normal_rows",
      "trunc_normal", "orthogonal", "sparse", "dirac",  NULL};
  return (struct init){.kind = (enum init_kind)luaL_checkoption(L, at, NULL, kinds),
                       .a = luaL_checknumber(L, at + 1),
                       .b = luaL_checknumber(L, at + 2)};
}

/* With the bounds of a truncated normal distribution. */
static struct init check_parameter_init(lua_State *L, int at)
{
  struct init init = check_init(L, at);
  init.low = luaL_optnumber(L, at + 3, 0);
  init.high = luaL_optnumber(L, at + 4, 0);
  return init;
}

/* ----------------------------------------------------------------------------------- placements */

static int push_placement(lua_State *L, struct placement p)
{
  *(struct placed_at *)lua_newuserdatauv(L, sizeof(struct placed_at), 0) =
      (struct placed_at){.placement = p};
  luaL_setmetatable(L, "placement");
  return 1;
}

/* Shard(dim, order or nil) */
static int shard(lua_State *L)
{
  lua_Integer dim = luaL_checkinteger(L, 1), order = luaL_optinteger(L, 2, 0);
  bool has_order = !lua_isnoneornil(L, 2);
  if (dim < -MAX_DIMS || dim >= MAX_DIMS)
    plan_fails("Shard(%lld): a tensor has at most %d dimensions", (long long)dim, MAX_DIMS);
  push_placement(L, (struct placement){.kind = SHARD, .dim = (int)dim, .cut_order = (int)order});
  check_placement(L, -1)->has_order = has_order;
  return 1;
}

static int replicate(lua_State *L)
{
  return push_placement(L, (struct placement){.kind = REPLICATE});
}

static int partial(lua_State *L)
{
  enum reduction r = (enum reduction)luaL_checkoption(L, 1, "sum", reduction_names);
  return push_placement(L, (struct placement){.kind = PARTIAL, .reduction = r});
}

/* ---------------------------------------------------------------------- layouts, redistribution */

/* The layout that the plan requests for a tensor. */
struct asked {
  struct layout to;
  unsigned dims;    /* a bit for each mesh dimension with a request */
  unsigned ordered; /* and for each with an explicit cut order */
  int line;
  const char *who;
};

static const char *name_of_dimension(int mesh_dim)
{
  return printable(graph->mesh.name[mesh_dim]);
}

/* An error if the cut order is too large, or if an earlier mesh dimension has the same one, unless
   both were split from one. */
static void check_cut_order(const struct asked *a, int i)
{
  int dim = a->to.on[i].dim, order = a->to.on[i].cut_order, cuts = 0;
  for (int k = 0; k < graph->mesh.ndim; k++) {
    struct placement p = a->to.on[k];
    if (p.kind != SHARD || p.dim != dim) continue;
    cuts++;
    if (k < i && a->ordered >> k & 1 && p.cut_order == order && !(is_within(i) && k + 1 == i))
      plan_error(a->line, "%s: %s and %s both cut dimension %d in order %d", a->who,
                 name_of_dimension(k), name_of_dimension(i), dim, order);
  }
  bool all = a->dims == (1u << graph->mesh.ndim) - 1;
  int orders = all ? cuts : graph->mesh.ndim;
  if (order >= orders)
    plan_error(a->line, "%s: Shard(%d, %d): %s, so that the order is %s", a->who, dim, order,
               all ? text("%d dimension%s of the mesh cut%s dimension %d", cuts,
                          cuts > 1 ? "s" : "", cuts > 1 ? "" : "s", dim)
                   : text("the mesh has %d dimension%s", orders, orders > 1 ? "s" : ""),
               orders > 1 ? text("0 to %d", orders - 1) : "0");
}

/* {[mesh dimension] = placement} at `at`, for a tensor of this shape; the caller sets a->line and
   a->who. */
static void read_asked_layout(lua_State *L, int at, struct shape shape, struct asked *a)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (lua_rawgeti(L, at, i) != LUA_TNIL) {
      const struct placed_at *given = check_placement(L, -1);
      struct placement p = given->placement;
      if (p.kind == SHARD && (p.dim < -shape.ndim || p.dim >= shape.ndim))
        plan_error(a->line, "%s: Shard(%d): a tensor of shape %s has no such dimension", a->who,
                   p.dim, shape_text(shape));
      if (p.kind == SHARD && p.dim < 0) p.dim += shape.ndim;
      a->to.on[i] = p;
      a->dims |= 1u << i;
      if (given->has_order) a->ordered |= 1u << i;
    }
    lua_pop(L, 1);
  }
  /* Along a mesh dimension of one rank everything is whole. */
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (a->ordered >> i & 1) check_cut_order(a, i);
    if (a->to.on[i].kind == PARTIAL) {
      for (int k = 0; k < i; k++)
        if (a->to.on[k].kind == PARTIAL && a->to.on[k].reduction != a->to.on[i].reduction)
          plan_error(
              a->line,
              "%s: %s over %s and %s over %s: what is pending in a tensor is of one reduction",
              a->who, placement_text(a->to.on[k]), name_of_dimension(k),
              placement_text(a->to.on[i]), name_of_dimension(i));
    }
  }
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (graph->mesh.size[i] == 1) a->to.on[i] = (struct placement){0};
}

/* redistribute(tensor, {[mesh dimension] = placement}, type or nil, type of its gradient or nil,
   why): the same values in another layout, moved and left in that type. */
static int redistribute_tensor(lua_State *L)
{
  int value = argument_operand(L, 1);
  enum type own = graph->value[value].type;
  struct asked a = {.line = sandbox->line, .who = copy_text(luaL_checkstring(L, 5))};
  read_asked_layout(L, 2, graph->value[value].shape, &a);
  struct op op = redistribution_of(value, a.who);
  if (!lua_isnil(L, 3)) op.type = argument_type(L, 3);
  if (!lua_isnil(L, 4)) op.backward_type = argument_type(L, 4);
  op.to = a.to;
  op.asked = a.dims;
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (a.to.on[i].kind == PARTIAL && own == BOOL)
      plan_error(a.line, "%s: a tensor of type bool cannot be pending over %s", a.who,
                 name_of_dimension(i));
  int moved = append_here(op);
  graph->value[moved].name = value_name(value);
  push_tensor(L, moved);
  return 1;
}

/* finish(tensor, why): the same values, with pending sums reduced, on every rank. */
static int finish_tensor(lua_State *L)
{
  int value = argument_operand(L, 1);
  struct op op = redistribution_of(value, copy_text(luaL_checkstring(L, 2)));
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.finishes = true;
  int finished = append_here(op);
  graph->value[finished].name = value_name(value);
  push_tensor(L, finished);
  return 1;
}

/* ------------------------------------------------------------- parameters, and a step's inputs */

/* parameter(what, shape, init kind, a, b, low?, high?): a parameter that is not part of a model
 * yet. */
static int make_parameter(lua_State *L)
{
  struct shape s = argument_shape(L, 2, luaL_checkstring(L, 1));
  struct init init = check_parameter_init(L, 3);
  struct tensor *t = push_tensor(L, NONE);
  *t = (struct tensor){.value = NONE, .shape = s, .init = init, .line = sandbox->line};
  /* Keeps the tensor at the top alive until Lua ends: pending styles point to it. */
  static const char kept; /* its address: the list of them, in Lua's registry */
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &kept) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &kept);
  }
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 1);

  return 1;
}

/* set_init(parameter, init kind, a, b, low?, high?): other initial values, of a parameter that is
 * not part of a model yet. */
static int set_init(lua_State *L)
{
  struct tensor *t = tensor_at(L, 1);
  luaL_argexpected(L, t, 1, "tensor");
  if (t->value != NONE || t->nparts)
    plan_fails("a parameter's initial values are set before train and styles");
  t->init = check_parameter_init(L, 2);
  return 0;
}

/* The parameter gets blocks of this type. Only its layout is known. */
static void store_in_blocks(int value, enum type type)
{
  struct value *v = &graph->value[value];
  const struct block block = blocks_of(type);
  int last = v->shape.ndim - 1;
  for (int i = 0; i < graph->nstyle; i++)
    for (int k = 0; k < graph->style[i].nrequest; k++) {
      struct layout_request *w = &graph->style[i].request[k];
      if (w->what == REQUEST_PARAMETER && w->value == value && w->to.kind == SHARD && w->to.dim < 0)
        w->to.dim += v->shape.ndim; /* which is about to become more */
    }
  v->type = type;
  v->shape.size[last] /= block.numbers;
  v->shape.size[v->shape.ndim++] = block.bytes;
  if (!v->file_size || v->file_dim != last) return;
  v->file_first /= block.numbers;
  v->file_size /= block.numbers;
}

/* Whether the parameter's rows are whole blocks, so that each rank can have some. Those of NF4
   follow each other in the files' tensors, so parts of these are whole rows. */
static bool fits_blocks(const struct value *v, enum type type)
{
  const int last = v->shape.ndim - 1, numbers = blocks_of(type).numbers;
  const bool is_part_of_row = v->file_size && v->file_dim == last;
  const bool parts_of_rows = is_part_of_row || (v->alias_size && v->alias_dim == last);
  return v->shape.size[last] % numbers == 0 && (!is_part_of_row || v->file_first % numbers == 0) &&
         (type != NF4 || (v->shape.ndim == 2 && !parts_of_rows));
}

/* store_as(parameter, "bfloat16", "int8" or "nf4", of nf4 the parameter of its tables): how the
   program, which only reads it, stores it; once its layout is known. A matrix whose rows are no
   whole blocks is bfloat16. */
static int store_as(lua_State *L)
{
  static const char *const names[] = {"bfloat16", "int8", "nf4", NULL};
  static const enum type types[] = {BF16, I8, NF4};
  const struct tensor *t = argument_tensor(L, 1);
  enum type type = types[luaL_checkoption(L, 2, NULL, names)];
  const int nparts = t->value == NONE ? 0 : t->nparts ? t->nparts : 1;
  for (int k = 0; k < nparts && type != BF16; k++)
    if (!fits_blocks(&graph->value[t->value + k], type)) type = BF16;
  for (int k = 0; k < nparts; k++)
    if (type == BF16)
      graph->value[t->value + k].type = BF16;
    else
      store_in_blocks(t->value + k, type);
  /* Tables of a matrix that is bfloat16 after all, by its layout, are read by nobody. */
  if (nparts && !lua_isnoneornil(L, 3))
    graph->value[argument_tensor(L, 3)->value].init.kind = INIT_NESTED;
  return 0;
}

/* is_frozen(parameter): whether it is not trained. */
static int is_frozen(lua_State *L)
{
  lua_pushboolean(L, argument_tensor(L, 1)->frozen);
  return 1;
}

/* stored(tensor): "bfloat16", "int8" or "nf4" of a parameter that is stored so; else nil. */
static int stored(lua_State *L)
{
  const struct tensor *t = argument_tensor(L, 1);
  const struct value *v = t->value == NONE ? NULL : &graph->value[t->value];
  if (!v || v->role != PARAMETER || v->type == F32) return 0;
  lua_pushstring(L, v->type == NF4 ? "nf4" : v->type == I8 ? "int8" : "bfloat16");
  return 1;
}

/* set_parts(parameter, dimension, {size ...}): it is kept in parts of these sizes. */
static int set_parts(lua_State *L)
{
  enum { TENSOR = 1, DIM, SIZES };
  struct tensor *t = argument_tensor(L, TENSOR);
  int n = (int)lua_rawlen(L, SIZES);
  int64_t *size = alloc((size_t)n * sizeof *size);
  for (int k = 0; k < n; k++, lua_pop(L, 1)) {
    lua_rawgeti(L, SIZES, k + 1);
    size[k] = luaL_checkinteger(L, -1);
  }
  bool same = t->nparts == n;
  for (int k = 0; same && k < n; k++) same = t->part[k] == size[k];
  if (t->nparts && !same)
    plan_fails("two styles part the parameter of line %d in two ways", t->line);
  t->nparts = n;
  t->part_dim = (int)luaL_checkinteger(L, DIM);
  t->part = size;
  return 0;
}

/* parts(tensor): the list of its parts, and their dimension; nil for a tensor that
   is not a parameter in parts. */
static int parts(lua_State *L)
{
  const struct tensor *t = tensor_at(L, 1);
  if (!t || !t->nparts) return 0;
  lua_createtable(L, t->nparts, 0);
  for (int k = 0; k < t->nparts; k++) {
    push_tensor(L, part_value(t, k));
    lua_rawseti(L, -2, k + 1);
  }
  lua_pushinteger(L, t->part_dim);
  return 2;
}

/* add_batch(name, shape, init kind, a, b, {[mesh dimension] = placement}, line, type): the
   tensor. */
static int add_batch(lua_State *L)
{
  const char *name = check_name(L, 1, "a name in the batch");
  struct shape s = argument_shape(L, 2, name);
  int line = (int)luaL_checkinteger(L, 7);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && !strcmp(graph->value[i].name, name))
      plan_error(line, "the batch and the model both have a '%s'", printable(name));
  int value = add_value(BATCH, name, argument_type(L, 8), s, 0, line);
  graph->value[value].init = check_init(L, 3);
  struct asked a = {.line = line, .who = text("distribute: '%s'", printable(name))};
  read_asked_layout(L, 6, s, &a);
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (a.to.on[i].kind == PARTIAL)
      plan_error(line, "%s: an input of the step cannot be pending over %s", a.who,
                 name_of_dimension(i));
  graph->value[value].layout = a.to;
  graph->value[value].placed = true;
  push_tensor(L, value);
  return 1;
}

/* add_cache(name, shape, type, {[mesh dimension] = placement}, what it keeps): the tensor, of the
   module that runs now; zeros at first. */
static int add_cache(lua_State *L)
{
  const char *name = check_name(L, 1, "a cache's name");
  struct shape s = argument_shape(L, 2, name);
  int module = recording.call == NONE ? 0 : graph->call[recording.call].module;
  const char *path = graph->module[module].path;
  name = text("%s%s%s", path, *path ? "." : "", name);
  call_is_unlike();
  int value = add_value(CACHE, name, argument_type(L, 3), s, module, sandbox->line);
  struct asked a = {.line = sandbox->line, .who = text("the cache '%s'", printable(name))};
  read_asked_layout(L, 4, s, &a);
  graph->value[value].layout = a.to;
  graph->value[value].why = copy_text(luaL_checkstring(L, 5));
  push_tensor(L, value);
  return 1;
}

/* -------------------------------------------------------------------------- the mesh and styles */

static double number_at(lua_State *L, int list, int i)
{
  lua_rawgeti(L, list, i);
  double n = luaL_checknumber(L, -1);
  lua_pop(L, 1);
  return n;
}

/* set_mesh(names, sizes, bandwidths, latencies, memory): 0 for those not given. */
static int set_mesh(lua_State *L)
{
  struct mesh *m = &graph->mesh;
  m->line = sandbox->line;
  m->ndim = (int)luaL_len(L, 1);
  for (int i = 0; i < m->ndim; i++) {
    lua_rawgeti(L, 1, i + 1);
    m->name[i] = copy_text(check_name(L, -1, "the name of a dimension of the mesh"));
    lua_rawgeti(L, 2, i + 1);
    m->size[i] = (int)luaL_checkinteger(L, -1);
    lua_pop(L, 2);
    m->bandwidth[i] = number_at(L, 3, i + 1);
    m->latency[i] = number_at(L, 4, i + 1);
  }
  m->memory = luaL_checkinteger(L, 5);
  return 0;
}

static bool is_json_name(const char *name)
{
  size_t n = strlen(name);
  return n > strlen(".json") && !strcmp(name + n - strlen(".json"), ".json");
}

/* What tpgen --calibrate has measured of a machine. */
static const struct measured *measured_in_file(const char *path)
{
  size_t length;
  const char *why, *json = requested_text(BY_DEVICE, path, &length);
  const struct measured *m = read_measured(json, length, &why);
  if (!m) plan_fails("the device %s: %s", printable(path), why);
  return m;
}

static struct device device_of_file(const char *path)
{
  return measured_device(measured_in_file(path));
}

/* this_machine(): {cores =, memory =, bandwidth =, latency =}, as it was measured. */
static int push_this_machine(lua_State *L)
{
  const struct measured *m = measured_in_file(THIS_MACHINE);
  const struct link link = measured_gather_link(m);
  lua_newtable(L);
  lua_pushinteger(L, measured_cores(m));
  lua_setfield(L, -2, "cores");
  lua_pushnumber(L, measured_memory_size(m));
  lua_setfield(L, -2, "memory");
  lua_pushnumber(L, link.bandwidth);
  lua_setfield(L, -2, "bandwidth");
  lua_pushnumber(L, link.latency);
  lua_setfield(L, -2, "latency");
  return 1;
}

/* set_device(name), or (flops, bandwidth); a name that ends with .json is a file's. */
static int set_device(lua_State *L)
{
  struct device *d = &graph->mesh.device;
  if (lua_type(L, 1) == LUA_TSTRING) {
    if (is_json_name(lua_tostring(L, 1)) || !strcmp(lua_tostring(L, 1), THIS_MACHINE)) {
      *d = device_of_file(lua_tostring(L, 1));
      return 0;
    }
    const struct device *known = device_named(lua_tostring(L, 1));
    if (!known)
      plan_fails("there is no device '%.60s': there are %s, or say {flops = 989e12, "
                 "memory_bandwidth = 3.35e12}",
                 printable(lua_tostring(L, 1)), device_names());
    *d = *known;
    return 0;
  }
  double flops = luaL_checknumber(L, 1);
  *d = (struct device){
      "a device", {flops, flops, flops}, luaL_checknumber(L, 2), 0, 0.8, 0.4, 0.4, 0.8, NULL};
  return 0;
}

/* The preset of this name, or a GPU that was measured, from its file; else NULL. */
static const struct device *device_with_links(const char *name)
{
  static struct device measured;
  if (!is_json_name(name)) return device_named(name);
  if (!target->streams) return NULL;
  measured = device_of_file(name);
  return &measured;
}

/* device_facts(name): {memory, devices, cards, intra_bandwidth, intra_latency, inter_bandwidth,
   inter_latency} of a device, and of its usual node, as far as they are known; nil if no links
   are. */
static int device_facts(lua_State *L)
{
  const struct device *d = device_with_links(luaL_checkstring(L, 1));
  if (!d) return 0;
  struct cluster c = usual_cluster(d);
  const struct {
    const char *name;
    double number;
  } fact[] = {{"memory", (double)memory_of_device(d)},
              {"devices", c.devices},
              {"cards", c.cards},
              {"intra_bandwidth", c.intra.bandwidth},
              {"intra_latency", c.intra.latency},
              {"inter_bandwidth", c.inter.bandwidth},
              {"inter_latency", c.inter.latency}};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof fact / sizeof *fact; i++) {
    if (fact[i].number <= 0) continue;
    lua_pushnumber(L, fact[i].number);
    lua_setfield(L, -2, fact[i].name);
  }
  return 1;
}

/* cluster_names(): the presets. */
static int push_cluster_names(lua_State *L)
{
  lua_pushstring(L, cluster_names());
  return 1;
}

/* set_cluster(name, device, nodes, devices, cards, bandwidth and latency within a node, and between
   nodes): `device` is the one that says the rest, or "". */
static int set_cluster(lua_State *L)
{
  struct cluster *c = &graph->mesh.cluster;
  const struct device *d = device_with_links(luaL_checkstring(L, 2));
  *c = d ? usual_cluster(d) : (struct cluster){0};
  c->name = copy_text(luaL_checkstring(L, 1));
  c->nodes = (int)luaL_checkinteger(L, 3);
  c->devices = (int)luaL_checkinteger(L, 4);
  c->cards = (int)luaL_checkinteger(L, 5);
  c->intra = (struct link){luaL_checknumber(L, 6), luaL_checknumber(L, 7)};
  c->inter = (struct link){luaL_checknumber(L, 8), luaL_checknumber(L, 9)};
  return 0;
}

/* Makes room in the mesh for a dimension before number `at`. */
static void add_dimension(struct mesh *m, int at)
{
  for (int i = m->ndim++; i > at; i--) {
    m->name[i] = m->name[i - 1];
    m->whole[i] = m->whole[i - 1];
    m->size[i] = m->size[i - 1];
    m->bandwidth[i] = m->bandwidth[i - 1];
    m->latency[i] = m->latency[i - 1];
    m->microbatch_axis[i] = m->microbatch_axis[i - 1];
  }
}

/* split_mesh(dimension, ranks, name, inner name): splits the dimension in two: one over groups of
   `ranks` ranks, one within a group. */
static int split_mesh(lua_State *L)
{
  struct mesh *m = &graph->mesh;
  int d = (int)luaL_checkinteger(L, 1), inner = (int)luaL_checkinteger(L, 2);
  luaL_argcheck(L, d >= 0 && d < m->ndim && m->ndim < MAX_MESH && inner > 0, 1,
                "no such dimension");
  add_dimension(m, d);
  m->whole[d] = m->whole[d + 1] = m->name[d];
  m->name[d] = copy_text(luaL_checkstring(L, 3));
  m->name[d + 1] = copy_text(luaL_checkstring(L, 4));
  m->size[d] /= inner;
  m->size[d + 1] = inner;
  return 0;
}

/* add_time(dimension, name, micro-batches): a dimension of the mesh in time, before that one. */
static int add_time(lua_State *L)
{
  struct mesh *m = &graph->mesh;
  int at = (int)luaL_checkinteger(L, 1), n = (int)luaL_checkinteger(L, 3);
  luaL_argcheck(L, at >= 0 && at <= m->ndim && m->ndim < MAX_MESH && n > 0, 1, "no such dimension");
  add_dimension(m, at);
  m->name[at] = copy_text(luaL_checkstring(L, 2));
  m->size[at] = n;
  m->whole[at] = NULL;
  m->bandwidth[at] = m->latency[at] = 0;
  m->microbatch_axis[at] = true;
  return 0;
}

/* The styles that a module has so far. */
static struct list *styles_of(int module)
{
  static struct list *of;
  static int room;
  while (room <= module) of = grow(of, room, &room, sizeof *of);
  return &of[module];
}

/* What both styles of a module place: the first one's request; or NULL. */
static const struct layout_request *placed_by_both(const struct style *s, const struct style *other)
{
  for (int k = 0; k < s->nrequest; k++)
    for (int j = 0; j < other->nrequest; j++) {
      const struct layout_request *a = &s->request[k], *b = &other->request[j];
      if (a->what == b->what && a->index == b->index && a->value == b->value) return a;
    }
  return NULL;
}

/* Whether the two, which place the same, can be over different dimensions. A style of several
   dimensions keeps those that the other one is not over. All of these get the same one. */
static bool differ(struct style *s, struct style *other)
{
  if (!s->among && !other->among) return s->mesh_dim != other->mesh_dim;
  if (s->among && other->among) return false;
  struct style *open = s->among ? s : other;
  open->among &= ~(1u << (open == s ? other : s)->mesh_dim);
  return open->among;
}

void place_by_style(struct style s)
{
  static const char *const what[] = {[REQUEST_PARAMETER] = "the parameters",
                                     [REQUEST_INPUT] = "an input",
                                     [REQUEST_OUTPUT] = "an output"};
  const struct list *styles = styles_of(s.module);
  for (int i = 0; i < styles->n; i++) {
    struct style *other = &graph->style[styles->at[i]];
    const struct layout_request *w = placed_by_both(&s, other);
    if (w && !differ(&s, other))
      plan_error(s.line, "%s and the %s of line %d both place %s of '%s' over %s", s.name,
                 other->name, other->line, what[w->what], printable(graph->module[s.module].path),
                 printable(graph->mesh.name[s.mesh_dim]));
  }
  add(styles_of(s.module), graph->nstyle);
  GROW(graph->style, graph->nstyle, graph->style_room);
  graph->style[graph->nstyle++] = s;
}

/* place_parameter(parameter, {[mesh dimension] = placement}, line): sets its layout, as a style of
   its module would. */
static int place_distributed(lua_State *L)
{
  int value = argument_value(L, 1);
  const struct value *v = &graph->value[value];
  struct asked a = {.line = (int)luaL_checkinteger(L, 3),
                    .who = text("distribute: '%s'", printable(v->name))};
  read_asked_layout(L, 2, v->shape, &a);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (!(a.dims >> i & 1)) continue;
    if (a.to.on[i].kind == PARTIAL)
      plan_error(a.line, "%s: a parameter cannot be pending over %s", a.who, name_of_dimension(i));
    if (a.ordered >> i & 1)
      plan_error(a.line, "%s: the mesh has the order in which a parameter is cut: say Shard(%d)",
                 a.who, a.to.on[i].dim);
    struct layout_request *request = alloc(sizeof *request);
    *request = (struct layout_request){.what = REQUEST_PARAMETER, .value = value, .to = a.to.on[i]};
    place_by_style((struct style){.name = "distribute",
                                  .module = v->module,
                                  .mesh_dim = i,
                                  .line = a.line,
                                  .nrequest = 1,
                                  .request = request});
  }
  return 0;
}

/* add_async(module, mesh dimension, pieces, line) */
static int add_async(lua_State *L)
{
  GROW(plan_options->async, plan_options->nasync, plan_options->async_room);
  plan_options->async[plan_options->nasync++] =
      (struct async){.module = (int)luaL_checkinteger(L, 1),
                     .mesh_dim = (int)luaL_checkinteger(L, 2),
                     .pieces = (int)luaL_checkinteger(L, 3),
                     .line = (int)luaL_checkinteger(L, 4)};
  return 0;
}

/* add_automatic({module ...}, {mesh dimension ...}, memory, parameters, cuts large ones, line):
   auto() chooses their placements. Several calls are one choice. */
static int add_automatic(lua_State *L)
{
  enum { LIST = 1, DIMS, MEMORY, PARAMETERS, CUTS, LINE };
  if (!graph->automatic) graph->automatic = alloc(sizeof *graph->automatic);
  struct automatic *a = graph->automatic;
  if (a->nmodule < graph->nmodule) {
    bool *chooses = alloc((size_t)graph->nmodule * sizeof *chooses);
    if (a->nmodule) memcpy(chooses, a->chooses, (size_t)a->nmodule * sizeof *chooses);
    a->chooses = chooses;
    a->nmodule = graph->nmodule;
  }
  for (lua_Integer i = 1; lua_rawgeti(L, LIST, i) != LUA_TNIL; i++, lua_pop(L, 1))
    a->chooses[luaL_checkinteger(L, -1)] = true;
  lua_pop(L, 1);
  for (lua_Integer i = 1; lua_rawgeti(L, DIMS, i) != LUA_TNIL; i++, lua_pop(L, 1))
    a->dims |= 1u << luaL_checkinteger(L, -1);
  lua_pop(L, 1);
  const int64_t memory = luaL_checkinteger(L, MEMORY);
  const int64_t parameters = luaL_checkinteger(L, PARAMETERS);
  if (memory && (!a->memory || memory < a->memory)) a->memory = memory;
  if (parameters && (!a->parameters || parameters < a->parameters)) a->parameters = parameters;
  a->cuts_large |= lua_toboolean(L, CUTS);
  a->line = (int)luaL_checkinteger(L, LINE);
  return 0;
}

/* argument_name(name, what): an error if it cannot be an argument's name. */
static int check_plain_name(lua_State *L)
{
  check_name(L, 1, luaL_checkstring(L, 2));
  return 0;
}

/* ----------------------------------------------------------------- facts that Lua does not have */

/* line(): of the plan. */
static int line(lua_State *L)
{
  lua_pushinteger(L, sandbox->line);
  return 1;
}

/* kind(anything): "tensor", "placement", or the result of type. */
static int kind(lua_State *L)
{
  luaL_checkany(L, 1);
  if (tensor_at(L, 1))
    lua_pushliteral(L, "tensor");
  else if (luaL_testudata(L, 1, "placement"))
    lua_pushliteral(L, "placement");
  else
    lua_pushstring(L, luaL_typename(L, 1));
  return 1;
}

static int is_tensor(lua_State *L)
{
  lua_pushboolean(L, tensor_at(L, 1) != NULL);
  return 1;
}

/* ------------------------------------------------------------------------------------ the table */

static const luaL_Reg functions[] = {{"is_tensor", is_tensor},
                                     {"Shard", shard},
                                     {"Replicate", replicate},
                                     {"Partial", partial},
                                     {"redistribute", redistribute_tensor},
                                     {"finish", finish_tensor},
                                     {"parameter", make_parameter},
                                     {"set_init", set_init},
                                     {"set_parts", set_parts},
                                     {"parts", parts},
                                     {"add_batch", add_batch},
                                     {"add_cache", add_cache},
                                     {"store_as", store_as},
                                     {"stored", stored},
                                     {"is_frozen", is_frozen},
                                     {"set_mesh", set_mesh},
                                     {"set_device", set_device},
                                     {"this_machine", push_this_machine},
                                     {"device_facts", device_facts},
                                     {"cluster_names", push_cluster_names},
                                     {"set_cluster", set_cluster},
                                     {"split_mesh", split_mesh},
                                     {"add_time", add_time},
                                     {"place_parameter", place_distributed},
                                     {"add_async", add_async},
                                     {"add_automatic", add_automatic},
                                     {"check_name", check_plain_name},
                                     {"line", line},
                                     {"kind", kind},
                                     {NULL, NULL}};

void set_plan_bindings(lua_State *L)
{
  luaL_setfuncs(L, functions, 0);
  luaL_newmetatable(L, "placement");
  lua_pushcfunction(L, placement_name);
  lua_setfield(L, -2, "__tostring");
  lua_pushboolean(L, 0);
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}
