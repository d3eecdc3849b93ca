/* styles.c: a solution as styles and units: for each module and dimension of the mesh the
   placements of its parameters, and the layouts of its inputs and outputs where they change.

   They are what parallelize and fully_shard would make. Linear modules have the styles that a
   person would write, if these ask for the same. */
#include "auto/auto.h"

#include <string.h>

struct writing {
  const struct solution *s;
  const struct automatic *a;
  int *made_by;   /* by value: the innermost call of a chosen module that gives it; or NONE */
  bool *has_call; /* by module: its first call was looked at */
};

static struct home home_of(const struct solution *s, int node)
{
  node = node_of(&s->folded, node);
  if (s->has_home[node]) return s->home[node];
  return whole_home();
}

/* The dimensions of the mesh whose placements a style must state to lead from one layout to the
   other: where several cut one dimension of the tensor, the order counts. */
static unsigned changed_dims(const struct solution *s, struct layout from, struct layout to)
{
  unsigned changed = 0, cut = 0;
  for (int i = 0; i < s->space.ndim; i++) {
    const int d = s->space.dim[i];
    if (same_placement(from.on[d], to.on[d])) continue;
    changed |= 1u << d;
    if (to.on[d].kind == SHARD) cut |= 1u << to.on[d].dim;
  }
  for (int i = 0; i < s->space.ndim; i++) {
    const struct placement p = to.on[s->space.dim[i]];
    if (p.kind == SHARD && cut >> p.dim & 1) changed |= 1u << s->space.dim[i];
  }
  return changed;
}

static struct style *style_of(const struct writing *w, int module, int mesh_dim, int first)
{
  for (int i = first; i < graph->nstyle; i++)
    if (graph->style[i].module == module && graph->style[i].mesh_dim == mesh_dim)
      return &graph->style[i];
  GROW(graph->style, graph->nstyle, graph->style_room);
  struct style *s = &graph->style[graph->nstyle++];
  *s = (struct style){.name = "auto", .module = module, .mesh_dim = mesh_dim, .line = w->a->line};
  s->request = alloc(64 * sizeof *s->request);
  return s;
}

/* Whether the plan's own style says it. */
static bool is_stated(int module, int mesh_dim, int what, int index, int first)
{
  for (int i = 0; i < first; i++) {
    const struct style *s = &graph->style[i];
    if (s->module != module || s->mesh_dim != mesh_dim) continue;
    for (int k = 0; k < s->nrequest; k++)
      if ((int)s->request[k].what == what &&
          (what == REQUEST_PARAMETER ? s->request[k].value : s->request[k].index) == index)
        return true;
  }
  return false;
}

static void request(const struct writing *w, int module, int what, int index, struct layout to,
                    unsigned dims, int first)
{
  for (int i = 0; i < w->s->space.ndim; i++) {
    const int d = w->s->space.dim[i];
    if (!(dims >> d & 1) || is_stated(module, d, what, index, first)) continue;
    struct style *s = style_of(w, module, d, first);
    bool is_there = false;
    for (int k = 0; k < s->nrequest; k++) {
      const struct layout_request *r = &s->request[k];
      is_there |= (int)r->what == what &&
                  (what == REQUEST_PARAMETER ? r->value == index : r->index == index);
    }
    if (is_there || s->nrequest == 64) continue;
    struct layout_request r = {.what = what, .value = NONE, .to = to.on[d]};
    if (what == REQUEST_PARAMETER)
      r.value = index;
    else
      r.index = index;
    s->request[s->nrequest++] = r;
  }
}

static void add_parameters(const struct writing *w, int first)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || !is_chosen(w->a, v->module)) continue;
    const struct home h = home_of(w->s, i);
    const struct layout l = layout_of_number(h.layout);
    unsigned cut = 0;
    for (int k = 0; k < w->s->space.ndim; k++)
      if (l.on[w->s->space.dim[k]].kind == SHARD) cut |= 1u << w->s->space.dim[k];
    request(w, v->module, REQUEST_PARAMETER, i, l, cut, first);
  }
}

static void add_inputs(const struct writing *w, int first)
{
  for (int e = 0; e < w->s->folded.nentry; e++) {
    const struct module_input *x = &w->s->folded.entry[e];
    const int node = node_of(&w->s->folded, graph->nvalue + e);
    if (!w->s->has_home[node]) continue;
    const struct home here = home_of(w->s, node), from = home_of(w->s, x->from);
    const struct layout to = layout_of_number(here.layout);
    const unsigned dims =
        changed_dims(w->s, layout_of_number(from.layout), to) | (here.pending & ~from.pending);
    request(w, graph->call[x->call].module, REQUEST_INPUT, x->index, to, dims, first);
  }
}

static void add_outputs(const struct writing *w, int first)
{
  for (int c = graph->ncall - 1; c >= 0; c--) {
    const struct call *call = &graph->call[c];
    if (!is_chosen(w->a, call->module)) continue;
    for (int i = 0; i < call->nout; i++) {
      const int value = call->out[i], node = node_of(&w->s->folded, value);
      if (w->made_by[value] != NONE || !w->s->has_home[node] || node >= graph->nvalue) continue;
      w->made_by[value] = c;
      if (w->s->made_as[node] == NONE) continue;
      const struct home h = home_of(w->s, value);
      const struct layout from = layout_of_number(w->s->made_as[node]);
      const struct layout to = layout_of_number(h.layout);
      unsigned dims = changed_dims(w->s, from, to);
      for (int k = 0; k < w->s->space.ndim; k++) {
        const int d = w->s->space.dim[k];
        if (h.pending >> d & 1 && from.on[d].kind == REPLICATE) dims |= 1u << d;
      }
      request(w, call->module, REQUEST_OUTPUT, i, to, dims, first);
    }
  }
}

/* ---------------------------------------------------------------------------------------- units */

/* The parameters that are gathered over the same dimensions, of one module of a list or of one
   module, are a unit. */
static void add_units(const struct writing *w)
{
  const int *element = outermost_elements();
  const int first = graph->nunit;
  for (int m = 0; m < graph->nmodule; m++) {
    unsigned dims = 0;
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role == PARAMETER && v->module == m && v->unit == NONE && is_chosen(w->a, m))
        dims |= home_of(w->s, i).gathered;
    }
    if (!dims) continue;
    int unit = NONE;
    for (int u = first; u < graph->nunit && unit == NONE; u++)
      if (element[m] != NONE && element[graph->unit[u].module] == element[m] &&
          graph->unit[u].shards == dims)
        unit = u;
    if (unit == NONE) {
      GROW(graph->unit, graph->nunit, graph->unit_room);
      unit = graph->nunit++;
      graph->unit[unit] = (struct unit){.name = graph->module[m].path,
                                        .module = m,
                                        .line = w->a->line,
                                        .who = "fully_shard",
                                        .shards = dims,
                                        .again = dims,
                                        .dim = ANY_DIM};
    }
    graph->module[m].unit = unit;
    for (int i = 0; i < graph->nvalue; i++)
      if (graph->value[i].role == PARAMETER && graph->value[i].module == m)
        graph->value[i].unit = unit;
  }
}

/* ---------------------------------------------------------------------------------------- names */

/* A module of a layer that Colwise and Rowwise know: the dimension of its weight that each cuts. */
static const struct known_class {
  const char *name;
  int by_outputs, by_inputs;
} known_classes[] = {{"Linear", 0, 1}, {"Conv1D", 1, 0}, {"Embedding", 1, 0}};

static const struct known_class *class_of_module(int module)
{
  for (size_t i = 0; i < sizeof known_classes / sizeof *known_classes; i++)
    if (!strcmp(graph->module[module].class_name, known_classes[i].name)) return &known_classes[i];
  return NULL;
}

static bool is_weight(int value)
{
  const char *name = strrchr(graph->value[value].name, '.');
  return !strcmp(name ? name + 1 : graph->value[value].name, "weight");
}

static struct layout_request *request_of(const struct style *s, int what)
{
  for (int k = 0; k < s->nrequest; k++)
    if ((int)s->request[k].what == what) return &s->request[k];
  return NULL;
}

/* Whether all of its parameters are cut as Colwise, or Rowwise, cuts them. */
static bool cuts_by(const struct style *s, const struct known_class *known, bool outputs)
{
  bool has_weight = false;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->module != s->module) continue;
    const int dim = is_weight(i) ? (outputs ? known->by_outputs : known->by_inputs)
                    : outputs    ? 0
                                 : NONE;
    struct placement at = {0};
    for (int k = 0; k < s->nrequest; k++)
      if (s->request[k].what == REQUEST_PARAMETER && s->request[k].value == i)
        at = s->request[k].to;
    if (dim == NONE ? at.kind != REPLICATE : at.kind != SHARD || at.dim != dim || at.cut_order)
      return false;
    has_weight |= is_weight(i);
  }
  return has_weight;
}

static bool is_cut_at(struct placement p, int dim)
{
  return p.kind == SHARD && p.dim == dim && !p.cut_order && p.outer <= 1;
}

/* The first call of the module. */
static const struct call *call_of_module(int module)
{
  for (int c = 0; c < graph->ncall; c++)
    if (graph->call[c].module == module) return &graph->call[c];
  return NULL;
}

/* The placement of the module's input in its call, if a request for it changes nothing; else a
   pending one. */
static struct placement input_as_it_is(const struct writing *w, int module, int d)
{
  const struct placement pending = {.kind = PARTIAL};
  for (int e = 0; e < w->s->folded.nentry; e++) {
    const struct module_input *x = &w->s->folded.entry[e];
    if (graph->call[x->call].module != module || x->index) continue;
    const int node = node_of(&w->s->folded, graph->nvalue + e);
    if (!w->s->has_home[node]) return (struct placement){0};
    const struct home h = home_of(w->s, node);
    return h.pending >> d & 1 ? pending : layout_of_number(h.layout).on[d];
  }
  return pending;
}

static void add_request(struct style *s, int what, struct placement to)
{
  s->request[s->nrequest++] = (struct layout_request){.what = what, .value = NONE, .to = to};
}

static struct style *with_bias(struct style *s)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && graph->value[i].module == s->module && !is_weight(i))
      s->request[s->nrequest++] = (struct layout_request){.what = REQUEST_PARAMETER, .value = i};
  return s;
}

/* Makes it the style that a person would write, where that asks for the same. */
static void name_style(const struct writing *w, struct style *s)
{
  const struct known_class *known = class_of_module(s->module);
  const struct call *call = call_of_module(s->module);
  const struct layout_request *in = request_of(s, REQUEST_INPUT),
                              *out = request_of(s, REQUEST_OUTPUT);
  const bool has_parameters = request_of(s, REQUEST_PARAMETER);
  const bool is_in_parts = parts_of_module(s->module);
  s->name = has_parameters || is_in_parts ? "ModuleLayouts"
            : in && out                   ? "PrepareModuleInputOutput"
            : in                          ? "PrepareModuleInput"
                                          : "PrepareModuleOutput";
  if (is_in_parts) return;
  if (!known || !has_parameters || !call || call->nin != 1 || call->nout != 1) return;
  const int last_in = graph->value[call->in[0]].shape.ndim - 1;
  const int last_out = graph->value[call->out[0]].shape.ndim - 1;
  const struct home made = home_of(w->s, call->out[0]);
  const struct placement home = layout_of_number(made.layout).on[s->mesh_dim];
  const struct placement here = in ? in->to : input_as_it_is(w, s->module, s->mesh_dim);
  const bool is_embedding = !strcmp(known->name, "Embedding");
  const struct placement cut = {.kind = SHARD, .dim = last_out};
  for (int outputs = 0; outputs < 2; outputs++) {
    if (!cuts_by(s, known, outputs)) continue;
    if (outputs || is_embedding ? here.kind != REPLICATE : !is_cut_at(here, last_in)) continue;
    /* The output is asked for, or is as the style would ask. */
    if (!out && (outputs ? !is_cut_at(home, last_out)
                         : home.kind != REPLICATE || made.pending >> s->mesh_dim & 1))
      continue;
    s->name = outputs ? "Colwise" : "Rowwise";
    if (!in) add_request(s, REQUEST_INPUT, here);
    if (!out) add_request(s, REQUEST_OUTPUT, outputs ? cut : (struct placement){0});
    if (!outputs) with_bias(s);
    return;
  }
}

/* In the order of the dimensions of the mesh, as one would write them. */
static void order_styles(int first)
{
  struct style *list = &graph->style[first];
  const int n = graph->nstyle - first;
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0; k--) {
      const struct style *a = &list[k - 1], *b = &list[k];
      if (a->mesh_dim < b->mesh_dim || (a->mesh_dim == b->mesh_dim && a->module <= b->module))
        break;
      const struct style before = list[k - 1];
      list[k - 1] = list[k];
      list[k] = before;
    }
}

/* Whether the module is this one or within it. */
static bool is_below(int module, int above)
{
  while (module != NONE && module != above) module = graph->module[module].parent;
  return module != NONE;
}

/* A unit of all parameters of a module of a list is a unit of that module. */
static void widen_units(int first)
{
  const int *element = outermost_elements();
  for (int u = first; u < graph->nunit; u++) {
    const int e = element[graph->unit[u].module];
    bool is_whole = e != NONE;
    for (int i = 0; i < graph->nvalue && is_whole; i++)
      if (graph->value[i].role == PARAMETER && is_below(graph->value[i].module, e))
        is_whole = graph->value[i].unit == u;
    if (!is_whole) continue;
    for (int m = e; m < graph->nmodule; m++)
      if (is_below(m, e)) graph->module[m].unit = u;
    graph->unit[u].module = e;
    graph->unit[u].name = graph->module[e].path;
  }
}

void add_styles_of(const struct solution *s, const struct automatic *a)
{
  struct writing w = {.s = s, .a = a};
  w.made_by = alloc((size_t)(graph->nvalue + 1) * sizeof *w.made_by);
  for (int i = 0; i < graph->nvalue; i++) w.made_by[i] = NONE;
  const int first = graph->nstyle;
  add_parameters(&w, first);
  add_inputs(&w, first);
  add_outputs(&w, first);
  for (int i = first; i < graph->nstyle; i++) name_style(&w, &graph->style[i]);
  order_styles(first);
  const int units = graph->nunit;
  add_units(&w);
  widen_units(units);
  print_styles(first, units, a);
}
