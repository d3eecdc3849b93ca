/* fsdp_units.c: part of the pass `plan`: decides where the parameters of FSDP units (fully_shard,
   replicate) are sharded, and where they are gathered.

   A unit's parameters are sharded over some dimensions of the mesh, after the cuts of styles. An
   operation that reads one reads a redistribution that makes it whole over these dimensions. If the
   model computes in a narrower type, that is a redistribution of the cast, so that the narrow type
   travels. From here on these are placements and redistributions like all others: the gradient of
   the redistribution is the reduce-scatter.

   All reads of a parameter by the unit's own modules share one gather. A read elsewhere (an
   embedding's weight that is also the output's) has a gather of its own, if the unit frees the
   parameters that it gathered: otherwise the gathered value would stay in memory in between. A
   parameter from outside of a list of modules is gathered before all of them, so that they stay
   equal; a parameter that the steps of a scan read is gathered before the scan. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* --------------------------------------------------------------------------------- the sharding */

static const char *unit_text(const struct unit *u)
{
  return *u->name ? text("'%s'", printable(u->name)) : "the model";
}

/* The style that places the parameter along the dimension of the mesh, or NULL. */
static const struct style *placed_by(int parameter, int mesh_dim)
{
  for (int i = graph->nstyle; i-- > 0;) {
    const struct style *s = &graph->style[i];
    if (s->mesh_dim != mesh_dim) continue;
    for (int k = 0; k < s->nrequest; k++)
      if (s->request[k].what == REQUEST_PARAMETER && s->request[k].value == parameter) return s;
  }
  return NULL;
}

/* The dimension that the plan gives, if any; else the first that is cut evenly, else 0. The bytes
   of a block of weights stay together. */
static int dimension_for(const struct value *v, const struct unit *u)
{
  int ndim = v->shape.ndim - (blocks_of(v->type).numbers > 0),
      given = u->dim < 0 ? u->dim + ndim : u->dim;
  if (given >= 0 && given < ndim) return given;
  for (int dim = 0; dim < ndim; dim++) {
    /* Whether all parts have equal size if the unit's mesh dimensions cut this dimension, too. */
    int64_t parts = 1;
    for (int d = 0; d < graph->mesh.ndim; d++) {
      struct placement p = v->layout.on[d];
      if (u->shards >> d & 1 || (p.kind == SHARD && p.dim == dim)) parts *= graph->mesh.size[d];
    }
    if (v->shape.size[dim] % parts == 0) return dim;
  }
  return 0;
}

static void cut_over(struct value *v, unsigned shards, int mesh_dim, int dim)
{
  if (shards >> mesh_dim & 1 && graph->mesh.size[mesh_dim] > 1) {
    /* After the existing cuts of the dimension. */
    int order = 0;
    for (int d = 0; d < graph->mesh.ndim; d++) {
      struct placement p = v->layout.on[d];
      if (p.kind == SHARD && p.dim == dim && p.cut_order >= order) order = p.cut_order + 1;
    }
    v->layout.on[mesh_dim] = (struct placement){.kind = SHARD, .dim = dim, .cut_order = order};
  }
}

/* Of these dimensions of the mesh the next one that cuts: in the order of the mesh; where the plan
   gives the links of all of a unit, those of a slow link after the others, so that the smallest
   parts go over it. */
static int next_to_cut(unsigned shards, unsigned left)
{
  int best = NONE;
  bool given = true;
  for (int d = 0; d < graph->mesh.ndim; d++)
    given &= !(shards >> d & 1) || (graph->mesh.bandwidth[d] > 0 && !is_within(d) &&
                                    (d + 1 == graph->mesh.ndim || !is_within(d + 1)));
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (!(left >> d & 1)) continue;
    const bool counts = given && best != NONE && shards >> d & 1 && shards >> best & 1;
    if (best == NONE || (counts && graph->mesh.bandwidth[d] > graph->mesh.bandwidth[best]))
      best = d;
  }
  return best;
}

/* If a mesh dimension was split into groups, the inner dimension cuts first: when the groups
   have gathered, the shards over the outer dimension remain. */
static void place_parameter(int parameter)
{
  struct value *v = &graph->value[parameter];
  const struct unit *u = &graph->unit[v->unit];
  for (int d = 0; d < graph->mesh.ndim; d++)
    if ((u->shards | u->copies) >> d & 1) {
      if (v->layout.on[d].kind != REPLICATE) {
        const struct style *s = placed_by(parameter, d);
        plan_error(u->line,
                   "%s of %s over %s: %s at line %d places %s as %s there: give the two "
                   "different dimensions of the mesh",
                   u->who, unit_text(u), printable(graph->mesh.name[d]), s ? s->name : "the plan",
                   s ? s->line : v->line, printable(v->name), placement_text(v->layout.on[d]));
      }
    }
  if (!v->shape.ndim) return; /* a scalar cannot be cut */
  int dim = dimension_for(v, u);
  unsigned left = (1u << graph->mesh.ndim) - 1;
  for (int d; (d = next_to_cut(u->shards, left)) != NONE;) {
    bool split = d + 1 < graph->mesh.ndim && is_within(d + 1);
    if (split) cut_over(v, u->shards, d + 1, dim);
    cut_over(v, u->shards, d, dim);
    left &= ~(1u << d | (split ? 2u << d : 0));
  }
}

/* -------------------------------------------------------------------------------- the gathering */

static int element(struct gathering *g, int module)
{
  return module == NONE ? NONE : g->element[module];
}

struct gathering place_units(void)
{
  struct gathering run = {.known = graph->nvalue, .element = outermost_elements()}, *g = &run;
  size_t lists = (size_t)graph->nmodule + 1;
  g->here = alloc((size_t)(g->known + 1) * sizeof *g->here);
  g->elsewhere = alloc((size_t)(g->known + 1) * sizeof *g->elsewhere);
  for (int i = 0; i < g->known; i++) {
    g->here[i] = g->elsewhere[i] = NONE;
    if (graph->value[i].unit != NONE) place_parameter(i);
  }
  for (int u = 0; u < graph->nunit; u++) {
    /* Checks that some parameter of the unit has the dimension that the plan gives. */
    const struct unit *unit = &graph->unit[u];
    int most = 0;
    for (int i = 0; i < g->known; i++)
      if (graph->value[i].unit == u && graph->value[i].shape.ndim > most)
        most = graph->value[i].shape.ndim;
    if (most && unit->dim != ANY_DIM && (unit->dim >= most || unit->dim < -most))
      plan_error(unit->line, "%s of %s: shard_dim = %d: its parameters have at most %d dimension%s",
                 unit->who, unit_text(unit), unit->dim, most, most > 1 ? "s" : "");
  }
  g->began = memset(alloc(lists * sizeof *g->began), NONE, lists * sizeof *g->began);
  return run;
}

void note_list(struct gathering *g, const struct op *op, const struct list *order)
{
  int at = element(g, op->module), list = at == NONE ? NONE : graph->module[at].parent;
  if (list != NONE && g->began[list] == NONE) g->began[list] = order->n;
  int scan = scan_around(op->module);
  if (scan != NONE && g->began[scan] == NONE) g->began[scan] = order->n;
}

bool is_kept_cut(int value)
{
  const struct value *v = &graph->value[value];
  if (v->role != PARAMETER || v->unit == NONE) return false;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->unit[v->unit].shards >> d & 1 && v->layout.on[d].kind == SHARD) return true;
  return false;
}

/* Whether the parameter is cast before it is gathered: the narrower of the two types travels. */
static bool travels_as_used(const struct value *v)
{
  return type_bytes(v->used_as) < type_bytes(v->type);
}

bool casts_for_use(const struct op *op)
{
  if (op->kind != OP_cast || !is_kept_cut(op->in[0])) return false;
  const struct value *v = &graph->value[op->in[0]];
  return travels_as_used(v) && op->type == v->used_as;
}

/* Adds the operation to the order: at the end, or before all operations of the modules of a
   list. */
static void put_in(struct gathering *g, struct list *order, int id, int list)
{
  add(order, id);
  if (list == NONE || g->began[list] == NONE) return;
  int at = g->began[list];
  memmove(&order->at[at + 1], &order->at[at], (size_t)(order->n - 1 - at) * sizeof *order->at);
  order->at[at] = id;
  for (int m = 0; m < graph->nmodule; m++)
    if (g->began[m] >= at) g->began[m]++;
}

static int cast_as_used(int parameter, struct op op)
{
  struct value v = graph->value[parameter];
  op.kind = OP_cast;
  op.type = v.used_as;
  int id = make_op(op);
  graph->value[graph->op[id].out].name = text("%s_%s", v.name, type_name(v.used_as));
  return id;
}

/* Makes the value whole over these dimensions of the mesh. */
static int whole_again(int value, int parameter, unsigned over, struct op op)
{
  struct value v = graph->value[parameter];
  op.kind = OP_redistribute;
  op.in[0] = value;
  op.type = graph->value[value].type;
  op.backward_type = v.reduced_as;
  op.asked = (1u << graph->mesh.ndim) - 1;
  op.to = v.layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (over >> d & 1) op.to.on[d] = (struct placement){0};
  op.why = text("%s's gather", graph->unit[v.unit].who);
  int id = make_op(op);
  graph->value[graph->op[id].out].name = graph->value[value].name;
  return id;
}

int gathered(struct gathering *g, int parameter, const struct op *reader, struct list *order)
{
  struct value v = graph->value[parameter];
  const struct unit *u = &graph->unit[v.unit];
  bool own = reader->module != NONE && graph->module[reader->module].unit == v.unit;
  int *as = own || !u->again ? &g->here[parameter] : &g->elsewhere[parameter];
  if (*as != NONE) return *as;
  /* Whether a list of modules that does not contain the parameter reads it. */
  int module = reader->module;
  bool outside = element(g, module) != NONE &&
                 element(g, module) != element(g, graph->value[parameter].module);
  int scan = scan_around(reader->module), value = parameter;
  int list = outside ? graph->module[element(g, reader->module)].parent : scan;
  struct op op = {.nin = 1, .in = {parameter}, .line = u->line, .of_unit = true, .unit = v.unit};
  op.module = own            ? v.module
              : outside      ? 0
              : scan != NONE ? graph->module[scan].parent
                             : reader->module;
  if (u->once && runs_in_step() > 1) op.phase = GATHER;
  unsigned once = u->again ? u->shards & ~u->again : 0;
  op.held = once != 0;
  if (travels_as_used(&v)) {
    int cast = cast_as_used(parameter, op);
    put_in(g, order, cast, list);
    value = graph->op[cast].out;
  }
  if (once) {
    int part = whole_again(value, parameter, once, op);
    put_in(g, order, part, list);
    value = graph->op[part].out;
  }
  op.held = false;
  int whole = whole_again(value, parameter, u->shards, op);
  put_in(g, order, whole, list);
  return *as = graph->op[whole].out;
}
