/* solve.c: the cheapest homes of all values of the folded program, and of its parameters.

   A value is moved where a module takes it or gives it, if placements of that module are chosen;
   pending sums also where an operation takes them. Gradients go the way back: the gradient of a
   value has the value's home, or is pending there; where an operation takes a whole input and makes
   a part, it leaves a term. A parameter that is gathered for the forward is gathered for the
   backward again. */
#include "auto/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOMES = 3000 };

/* The first of equal nodes. */
struct node {
  int n, room;
  struct home *home; /* its domain */
  int variable;      /* or NONE: it has none */
  int users;         /* operands of first operations */
  int members;       /* a parameter: how many are equal, itself included */
  bool is_known;
  bool is_joint; /* a parameter of a module that has others: a unit has all of them */
};

/* The first of equal operations, and the ways in which it may run. */
struct folded_op {
  int op, times;
  int members; /* how many are equal, itself included: times counts a few as more */
  int nstrategy;
  struct op_strategy *strategy;
  int variable;              /* of its strategies; or NONE: they follow from its operands */
  double *base;              /* by strategy: what does not depend on other variables */
  int (*chosen)[MAX_INPUTS]; /* by strategy and input: the home of a parameter that no other
                                operation reads */
};

struct solving {
  const struct search_for *what;
  const struct automatic *asked;
  struct folded f;
  struct auto_space s;
  struct node *node;
  /* By value: whether it, or an equal one, has a gradient; it by itself; whether it is made of
     constants. */
  bool *has_gradient, *has_own, *is_free;
  bool *is_of_rows;   /* by value: rows by expert, or their count */
  bool *works;        /* by operation: ranks are to divide it */
  bool *is_in_memory; /* by value */
  int nmove;
  struct move_between *move;
  bool counts_bytes; /* only bytes that are received count */
  double large; /* a parameter of so many bytes is cut, if anything cuts it; 0: none has to be */
  int npart, part_room;
  struct folded_op *part;
  struct cost_tables *tables;
};

/* A few equal layers count as more of them: what is best for each of many counts, not what it takes
   to come to it from the first value and to leave it for the last. */
static int counted(const struct solving *g, int times)
{
  enum { SHARE = 8, MANY = 64 };
  if (times < 2 || times >= MANY || g->what->few_as_they_are) return times;
  return SHARE * times < MANY ? SHARE * times : MANY;
}

/* -------------------------------------------------------------------------------------- domains */

/* The layout of the gradient of a value in this home. */
static int gradient_home(const struct auto_space *s, struct home h)
{
  struct layout l = layout_of_number(h.layout);
  for (int i = 0; i < s->ndim; i++) {
    struct placement *p = &l.on[s->dim[i]];
    if (p->kind == PARTIAL) *p = (struct placement){0};
    if (h.pending >> s->dim[i] & 1) *p = (struct placement){.kind = PARTIAL, .reduction = SUM};
  }
  return number_of_layout(l);
}

static void add_home(const struct auto_space *s, struct node *n, struct home h)
{
  for (int i = 0; i < n->n; i++)
    if (n->home[i].layout == h.layout && n->home[i].pending == h.pending &&
        n->home[i].gathered == h.gathered)
      return;
  if (n->n == MOST_HOMES) return;
  GROW(n->home, n->n, n->room);
  h.gradient = gradient_home(s, h);
  n->home[n->n++] = h;
}

/* The layout with its pending gradient, in each combination. */
static void add_with_pending(const struct solving *g, struct node *n, int layout, bool has_gradient)
{
  const struct layout l = layout_of_number(layout);
  unsigned whole = 0;
  for (int i = 0; i < g->s.ndim && has_gradient; i++)
    if (l.on[g->s.dim[i]].kind == REPLICATE) whole |= 1u << g->s.dim[i];
  for (unsigned some = whole;; some = (some - 1) & whole) {
    add_home(&g->s, n, (struct home){.layout = layout, .pending = some});
    if (!some) break;
  }
}

/* Adds all layouts in which each dimension of the mesh cuts one of the tensor, or none. */
static void add_plain(const struct solving *g, struct node *n, struct shape shape,
                      bool has_gradient)
{
  int at[MOST_DIMS] = {0}, order[MOST_DIMS];
  const int ndim = g->s.ndim;
  for (;;) {
    struct layout l = {0};
    int ncut = 0;
    for (int i = 0; i < ndim; i++) {
      if (!at[i]) continue;
      l.on[g->s.dim[i]] = (struct placement){.kind = SHARD, .dim = at[i] - 1};
      order[ncut++] = g->s.dim[i];
    }
    if (cuts_all_well(&g->s, shape, l)) {
      /* The cuts in each order: as a permutation of their places. */
      int place[MOST_DIMS] = {0};
      for (;;) {
        bool is_order = true;
        for (int i = 0; i < ncut; i++)
          for (int k = 0; k < i; k++) is_order &= place[i] != place[k];
        for (int i = 0; i < ncut; i++) l.on[order[i]].cut_order = place[i];
        if (is_order) add_with_pending(g, n, number_of_layout(l), has_gradient);
        int i = ncut - 1;
        while (i >= 0 && ++place[i] == ncut) place[i--] = 0;
        if (i < 0) break;
      }
    }
    int i = ndim - 1;
    while (i >= 0 && ++at[i] > shape.ndim) at[i--] = 0;
    if (i < 0) return;
  }
}

static struct layout chosen_part(const struct solving *g, struct layout l)
{
  struct layout part = {0};
  for (int i = 0; i < g->s.ndim; i++) part.on[g->s.dim[i]] = l.on[g->s.dim[i]];
  return part;
}

/* Keeps the homes that a style's request allows. */
static void keep_requested(struct node *n, int mesh_dim, struct placement to, int ndim)
{
  int kept = 0;
  if (to.kind == SHARD && to.dim < 0) to.dim += ndim;
  for (int i = 0; i < n->n; i++) {
    const struct placement p = layout_of_number(n->home[i].layout).on[mesh_dim];
    if (p.kind == to.kind && (p.kind != SHARD || p.dim == to.dim)) n->home[kept++] = n->home[i];
  }
  if (kept) n->n = kept;
}

/* The bytes of the part of a rank that has the most. */
static double bytes_of_part(int value, struct layout layout)
{
  const struct value *v = &graph->value[value];
  const int coordinate[MAX_MESH] = {0};
  return (double)(elements(local_part(&graph->mesh, v->shape, layout, coordinate).shape) *
                  type_bytes(v->type));
}

/* What the plan's styles request for this input or output of a module. */
static void keep_styles(const struct solving *g, struct node *n, int module, int what, int index,
                        int ndim)
{
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    if (s->module != module || !(g->asked->dims >> s->mesh_dim & 1)) continue;
    for (int k = 0; k < s->nrequest; k++)
      if ((int)s->request[k].what == what && s->request[k].index == index)
        keep_requested(n, s->mesh_dim, s->request[k].to, ndim);
  }
}

/* The dimension of a parameter that a unit cuts over these dimensions of the mesh. */
static struct layout cut_home(const struct solving *g, const struct shape *shape, struct home h)
{
  struct layout l = layout_of_number(h.layout);
  if (!h.gathered) return l;
  int dim = 0;
  for (int i = shape->ndim - 1; i >= 0; i--) {
    int64_t parts = 1;
    for (int k = 0; k < g->s.ndim; k++) {
      const struct placement p = l.on[g->s.dim[k]];
      if (h.gathered >> g->s.dim[k] & 1 || (p.kind == SHARD && p.dim == i))
        parts *= graph->mesh.size[g->s.dim[k]];
    }
    if (shape->size[i] % parts == 0) dim = i;
  }
  int order = 0;
  for (int k = 0; k < g->s.ndim; k++) {
    const struct placement p = l.on[g->s.dim[k]];
    if (p.kind == SHARD && p.dim == dim && p.cut_order >= order) order = p.cut_order + 1;
  }
  /* As the unit cuts: what goes over the slowest link cuts last. */
  for (unsigned left = h.gathered; left;) {
    int next = NONE;
    for (int k = 0; k < g->s.ndim; k++) {
      const int d = g->s.dim[k];
      if (left >> d & 1 && (next == NONE || g->s.weight[d] < g->s.weight[next])) next = d;
    }
    l.on[next] = (struct placement){.kind = SHARD, .dim = dim, .cut_order = order++};
    left &= ~(1u << next);
  }
  return usual_cut_order(l);
}

static void set_parameter_domain(const struct solving *g, struct node *n, int value)
{
  const struct value *v = &graph->value[value];
  struct node whole = {0};
  add_plain(g, &whole, v->shape, false);
  unsigned open = 0, stated = 0, gathered = 0;
  struct layout at = {0};
  for (int i = 0; i < g->s.ndim; i++) open |= 1u << g->s.dim[i];
  if (!is_chosen(g->asked, v->module)) stated = open;
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    if (s->module == v->module && s->nrequest) stated |= 1u << s->mesh_dim;
    for (int k = 0; k < s->nrequest; k++) {
      if (s->request[k].what != REQUEST_PARAMETER || s->request[k].value != value) continue;
      at.on[s->mesh_dim] = s->request[k].to;
      if (at.on[s->mesh_dim].kind == SHARD && s->request[k].to.dim < 0)
        at.on[s->mesh_dim].dim += v->shape.ndim;
      stated |= 1u << s->mesh_dim;
    }
  }
  if (v->unit != NONE) {
    stated |= graph->unit[v->unit].shards | graph->unit[v->unit].copies;
    gathered = graph->unit[v->unit].shards & open;
  }
  const bool may_gather = v->unit == NONE && v->shape.ndim > 0 && !g->asked->cuts_large;
  for (int i = 0; i < whole.n; i++) {
    const struct layout l = layout_of_number(whole.home[i].layout);
    unsigned is_whole = 0;
    bool fits = true;
    for (int k = 0; k < g->s.ndim; k++) {
      const int d = g->s.dim[k];
      const bool cuts_as_stated =
          l.on[d].kind == at.on[d].kind && (l.on[d].kind != SHARD || l.on[d].dim == at.on[d].dim);
      if (stated >> d & 1) fits &= cuts_as_stated;
      if (l.on[d].kind == REPLICATE && !(stated >> d & 1)) is_whole |= 1u << d;
    }
    if (!fits) continue;
    if (!may_gather) is_whole = 0;
    for (unsigned some = is_whole;; some = (some - 1) & is_whole) {
      add_home(&g->s, n,
               (struct home){.layout = whole.home[i].layout, .gathered = some | gathered});
      if (!some) break;
    }
  }
  if (!n->n) add_home(&g->s, n, (struct home){.layout = number_of_layout(chosen_part(g, at))});
  for (int k = 0; k < g->what->nbound; k++) {
    const struct kept_bound *b = &g->what->bound[k];
    int kept = 0;
    if (node_of(&g->f, b->parameter) != node_of(&g->f, value)) continue;
    for (int i = 0; i < n->n; i++) {
      const double bytes = bytes_of_part(value, cut_home(g, &v->shape, n->home[i]));
      if (bytes >= b->least && bytes <= b->most) n->home[kept++] = n->home[i];
    }
    if (kept) n->n = kept;
  }
}

/* The domain of a node that no operation of the program makes. */
static void need_domain(struct solving *g, int node)
{
  struct node *n = &g->node[node];
  if (n->is_known) return;
  n->is_known = true;
  const int value = value_of_node(&g->f, node);
  const struct value *v = &graph->value[value];
  if (v->role == PARAMETER && node < graph->nvalue) {
    set_parameter_domain(g, n, value);
    return;
  }
  if (node < graph->nvalue) { /* an input of the step */
    add_home(&g->s, n, (struct home){.layout = number_of_layout(chosen_part(g, v->layout))});
    return;
  }
  const int e = node - graph->nvalue;
  const bool is_shared = e >= g->f.nentry;
  const struct module_input *x = &g->f.entry[is_shared ? e - g->f.nentry : e];
  const int from = node_of(&g->f, is_shared || x->shared == NONE ? x->from : x->shared);
  need_domain(g, from);
  /* Where it comes from, and wherever it may go. */
  for (int i = 0; i < g->node[from].n; i++)
    add_with_pending(g, n, g->node[from].home[i].layout, g->has_gradient[value]);
  if (g->is_of_rows[value]) return;
  add_plain(g, n, v->shape, g->has_gradient[value]);
  if (!is_shared)
    keep_styles(g, n, graph->call[x->call].module, REQUEST_INPUT, x->index, v->shape.ndim);
}

/* The domain of an operation's output, by the strategies. */
static void set_output_domain(struct solving *g, const struct folded_op *p, int k)
{
  const int value = graph->op[p->op].out + k, node = node_of(&g->f, value);
  struct node *n = &g->node[node];
  const struct value *v = &graph->value[value];
  if (n->is_known) return;
  n->is_known = true;
  for (int i = 0; i < p->nstrategy; i++)
    add_with_pending(g, n, p->strategy[i].out[k], g->has_gradient[value]);
  if (!g->f.leaves[value]) return;
  add_plain(g, n, v->shape, g->has_gradient[value]);
  for (int c = 0; c < graph->ncall; c++)
    for (int i = 0; i < graph->call[c].nout; i++)
      if (graph->call[c].out[i] == value)
        keep_styles(g, n, graph->call[c].module, REQUEST_OUTPUT, i, v->shape.ndim);
}

/* ---------------------------------------------------------------------------------------- costs */

static double bytes_of(int value, enum type type)
{
  return (double)(elements(graph->value[value].shape) * type_bytes(type));
}

/* A count is pending where its places are cut; one of whole places does not become pending. */
static bool can_move_count(const struct solving *g, struct layout from, struct layout to)
{
  for (int i = 0; i < g->s.ndim; i++) {
    const int d = g->s.dim[i];
    if (to.on[d].kind == PARTIAL && from.on[d].kind != PARTIAL) return false;
  }
  return true;
}

/* Rows by expert have one expert at each place, and know few moves (ir/rows.c). */
static double cost_of_value(const struct solving *g, int value, int from, int to)
{
  const struct value *v = &graph->value[value];
  const double bytes = bytes_of(value, v->type);
  if (from == to) return 0;
  if (g->is_of_rows[value] && v->counts == NONE &&
      !can_move_count(g, layout_of_number(from), layout_of_number(to)))
    return INFINITY;
  if (v->counts == NONE) return cost_of_move(&g->s, bytes, from, to);
  if (!can_move_rows(layout_of_number(from), layout_of_number(to))) return INFINITY;
  return cost_of_move(&g->s, bytes / (double)v->shape.size[0], from, to);
}

/* From one home of a value to another one, and its gradient back. */
static double cost_between(const struct solving *g, int value, bool has_gradient, struct home from,
                           struct home to)
{
  double cost = cost_of_value(g, value, from.layout, to.layout);
  if (has_gradient) cost += cost_of_value(g, value, to.gradient, from.gradient);
  return cost / g->s.parts;
}

/* Whether the backward of the operation reads this input for the gradient of another one. */
static bool is_read_again(const struct solving *g, const struct op *op, int input)
{
  if (op->kind == OP_add || op->kind == OP_sub) return false;
  for (int i = 0; i < op->nin; i++)
    if (i != input && g->has_gradient[op->in[i]]) return true;
  return false;
}

static double cost_of_parameter(const struct solving *g, const struct op *op, int input,
                                struct home h, const struct op_strategy *s)
{
  const int value = op->in[input];
  int parameter = node_of(&g->f, value);
  const struct value *v = &graph->value[parameter];
  const struct layout use = layout_of_number(s->in[input]);
  const struct layout home = layout_of_number(h.layout);
  for (int i = 0; i < g->s.ndim; i++) {
    const int d = g->s.dim[i];
    if (h.gathered >> d & 1 ? use.on[d].kind != REPLICATE : !same_placement(use.on[d], home.on[d]))
      return INFINITY;
  }
  const int cut = number_of_layout(cut_home(g, &v->shape, h));
  double cost = 0;
  if (h.gathered) {
    const double gather = cost_of_move(&g->s, bytes_of(parameter, v->used_as), cut, s->in[input]);
    cost =
        gather * microbatches() * (g->has_gradient[op->out] && is_read_again(g, op, input) ? 2 : 1);
  }
  if (g->has_gradient[parameter])
    cost += cost_of_move(&g->s, bytes_of(parameter, v->reduced_as), s->in_gradient[input], cut);
  return cost;
}

/* Whether the home cuts the value somewhere. */
static bool is_cut_home(const struct solving *g, int value, struct home h)
{
  const struct layout l = layout_of_number(h.layout);
  for (int i = 0; i < g->s.ndim; i++) {
    const struct placement p = l.on[g->s.dim[i]];
    if (p.kind == SHARD && graph->value[value].shape.size[p.dim] > 1) return true;
  }
  return false;
}

static double cost_of_input(const struct solving *g, const struct op *op, int input, int node,
                            struct home h, const struct op_strategy *s)
{
  const int value = op->in[input];
  if (s->is_of_uncut && is_cut_home(g, value, h)) return INFINITY;
  if (node < graph->nvalue && graph->value[node].role == PARAMETER)
    return cost_of_parameter(g, op, input, h, s);
  double cost = cost_of_value(g, value, h.layout, s->in[input]);
  if (g->has_gradient[value] && g->has_gradient[op->out])
    cost += cost_of_value(g, value, s->in_gradient[input], h.gradient);
  return cost / g->s.parts * (g->counts_bytes ? 1 : g->what->caution);
}

/* Of moves that cost the same, elements of a list ask for that at their output rather than at their
   input: so the first element, whose input comes from elsewhere, is as the others are. */
static const double OF_MAKER = 5e-4, OF_ELEMENT = 1e-3;

static double cost_of_output(const struct solving *g, const struct op *op, int k, struct home h,
                             const struct op_strategy *s)
{
  const int value = op->out + k;
  if (!g->f.leaves[value] && h.layout != s->out[k]) return INFINITY;
  /* Else the readers ask for the move, not the maker. */
  const double aside = OF_MAKER * (s->out[k] != h.layout || h.pending);
  double cost = cost_of_value(g, value, s->out[k], h.layout) + aside;
  if (g->has_gradient[value]) cost += cost_of_value(g, value, h.gradient, s->out_gradient[k]);
  return cost / g->s.parts;
}

/* The price of the bytes that a rank keeps, and the time of their update. */
static double price_of_home(const struct solving *g, int parameter, struct home h)
{
  static const double OF_LARGE = 1e4; /* whatever moves */
  static const double UPDATE = 7;     /* an update's passes: of the gradient and two states */
  const struct value *v = &graph->value[parameter];
  const bool is_large = g->large > 0 && bytes_of(parameter, v->type) >= g->large;
  const double bytes = bytes_of_part(parameter, cut_home(g, &v->shape, h));
  const double update = g->s.second > 0 && g->has_gradient[parameter]
                            ? g->s.second * memory_seconds(UPDATE * bytes)
                            : 0;
  return g->node[parameter].members * ((is_large ? OF_LARGE : g->what->price) * bytes + update);
}

/* Where all large parameters are to be cut: not norms, biases and the like. */
static double least_large(const struct automatic *a)
{
  static const double PART_OF_MEAN = 1.0 / 16;
  double sum = 0;
  int n = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || !is_chosen(a, v->module)) continue;
    sum += bytes_of(i, v->type);
    n++;
  }
  return a->cuts_large && n ? sum / n * PART_OF_MEAN : 0;
}

/* ------------------------------------------------------------------------------------ the tables
 */

static bool is_parameter(int node)
{
  return node < graph->nvalue && graph->value[node].role == PARAMETER;
}

/* Whether no other operation has a part in the choice of the parameter. */
static bool is_alone(const struct solving *g, int node)
{
  return is_parameter(node) && g->node[node].users == 1 && !g->node[node].is_joint;
}

/* The operand's node, or NONE: it has no cost. */
static int node_of_operand(const struct solving *g, const struct folded_op *p, int o)
{
  const struct op *op = &graph->op[p->op];
  if (g->is_free[nth_operand(op, o)]) return NONE;
  if (o < op->nin) return node_of(&g->f, g->f.reads[p->op][o]);
  const int node = node_of(&g->f, op->out + o - op->nin);
  return g->node[node].users ? node : NONE;
}

static double cost_of_operand(const struct solving *g, const struct folded_op *p, int o, int node,
                              struct home h, const struct op_strategy *s)
{
  const struct op *op = &graph->op[p->op];
  return o < op->nin ? cost_of_input(g, op, o, node, h, s)
                     : cost_of_output(g, op, o - op->nin, h, s);
}

/* What the strategies cost for all that is not a variable. */
static void set_base(struct solving *g, struct folded_op *p)
{
  const struct op *op = &graph->op[p->op];
  p->base = alloc((size_t)(p->nstrategy + 1) * sizeof *p->base);
  p->chosen = alloc((size_t)(p->nstrategy + 1) * sizeof *p->chosen);
  for (int i = 0; i < p->nstrategy; i++) p->base[i] = p->strategy[i].cost + p->strategy[i].work;
  for (int o = 0; o < op->nin; o++) {
    const int node = node_of_operand(g, p, o);
    if (node == NONE || !is_alone(g, node)) continue;
    for (int i = 0; i < p->nstrategy; i++) {
      double least = INFINITY;
      for (int h = 0; h < g->node[node].n; h++) {
        const struct home home = g->node[node].home[h];
        const double cost = cost_of_input(g, op, o, node, home, &p->strategy[i]) +
                            price_of_home(g, node, home) / p->times;
        if (cost < least) least = cost, p->chosen[i][o] = h;
      }
      p->base[i] += least;
    }
  }
  int kept = 0;
  for (int i = 0; i < p->nstrategy; i++) {
    if (!isfinite(p->base[i])) continue;
    p->base[kept] = p->base[i];
    p->strategy[kept] = p->strategy[i];
    memcpy(p->chosen[kept++], p->chosen[i], sizeof *p->chosen);
  }
  if (kept) p->nstrategy = kept;
}

/* The nodes of the operation that are variables; returns how many. */
static int variable_nodes(const struct solving *g, const struct folded_op *p, int *list)
{
  const struct op *op = &graph->op[p->op];
  int n = 0;
  for (int o = 0; o < operand_count(op); o++) {
    const int node = node_of_operand(g, p, o);
    if (node == NONE || lists_number(list, n, node)) continue;
    if (is_alone(g, node)) continue;
    list[n++] = node;
  }
  return n;
}

static bool same_way(const struct op *op, int o, const struct op_strategy *a,
                     const struct op_strategy *b)
{
  if (o < op->nin) return a->in[o] == b->in[o] && a->in_gradient[o] == b->in_gradient[o];
  o -= op->nin;
  return a->out[o] == b->out[o] && a->out_gradient[o] == b->out_gradient[o];
}

/* By home of the node and strategy: the cost of all its operands. */
static double *costs_of_node(const struct solving *g, const struct folded_op *p, int node)
{
  const struct op *op = &graph->op[p->op];
  const struct node *n = &g->node[node];
  const size_t cells = (size_t)n->n * (size_t)p->nstrategy;
  double *cost = table_memory(cells, sizeof *cost);
  memset(cost, 0, cells * sizeof *cost);
  int *like = alloc((size_t)(p->nstrategy + 1) * sizeof *like);
  double *each = alloc((size_t)(p->nstrategy + 1) * sizeof *each);
  for (int o = 0; o < operand_count(op); o++) {
    if (node_of_operand(g, p, o) != node) continue;
    /* Strategies that take, or leave, it in the same way cost the same. */
    for (int i = 0; i < p->nstrategy; i++) {
      like[i] = 0;
      while (!same_way(op, o, &p->strategy[like[i]], &p->strategy[i])) like[i]++;
    }
    for (int h = 0; h < n->n; h++) {
      double *row = cost + (size_t)h * (size_t)p->nstrategy;
      for (int i = 0; i < p->nstrategy; i++) {
        each[i] = like[i] < i ? each[like[i]]
                              : cost_of_operand(g, p, o, node, n->home[h], &p->strategy[i]);
        row[i] += each[i];
      }
    }
  }
  return cost;
}

static int variable_of(struct solving *g, int node)
{
  struct node *n = &g->node[node];
  if (n->variable != NONE) return n->variable;
  n->variable = add_variable(g->tables, n->n);
  if (is_parameter(node)) {
    double *cost = alloc((size_t)n->n * sizeof *cost);
    for (int h = 0; h < n->n; h++) cost[h] = price_of_home(g, node, n->home[h]);
    add_table(g->tables, 1, &n->variable, cost);
  }
  return n->variable;
}

static void add_part_tables(struct solving *g, struct folded_op *p)
{
  enum { MOST_NODES = MAX_INPUTS + MAX_OUTPUTS };
  int node[MOST_NODES], n = variable_nodes(g, p, node), variable[2];
  double *cost[MOST_NODES];
  const size_t ns = (size_t)p->nstrategy;
  for (int i = 0; i < n; i++) cost[i] = costs_of_node(g, p, node[i]);
  for (size_t s = 0; s < ns; s++) p->base[s] *= p->times;
  if (n == 0) return;
  static const double MOST_WORK = 1e6;
  const size_t na = (size_t)g->node[node[0]].n, nb = n == 2 ? (size_t)g->node[node[1]].n : 1;
  if (n <= 2 && (double)na * (double)nb * (double)ns <= MOST_WORK) {
    double *sum = table_memory(na * nb, sizeof *sum);
    for (size_t a = 0; a < na; a++) {
      for (size_t b = 0; b < nb; b++) {
        double least = INFINITY;
        for (size_t s = 0; s < ns; s++) {
          const double here =
              p->base[s] + p->times * (cost[0][a * ns + s] + (n == 2 ? cost[1][b * ns + s] : 0));
          if (here < least) least = here;
        }
        sum[a * nb + b] = least;
      }
    }
    for (int i = 0; i < n; i++) variable[i] = variable_of(g, node[i]);
    add_table(g->tables, n, variable, sum);
    free(sum);
    for (int i = 0; i < n; i++) free(cost[i]);
    return;
  }
  p->variable = add_variable(g->tables, p->nstrategy);
  add_table(g->tables, 1, &p->variable, p->base);
  for (int i = 0; i < n; i++) {
    for (size_t k = 0; k < ns * (size_t)g->node[node[i]].n; k++) cost[i][k] *= p->times;
    variable[0] = variable_of(g, node[i]);
    variable[1] = p->variable;
    add_table(g->tables, 2, variable, cost[i]);
    free(cost[i]);
  }
}

/* Moves from a node into entries: so many times. */
struct move_between {
  int from, to, times, value;
  bool has_gradient, is_element; /* what takes it */
};

static void add_moves(struct solving *g)
{
  struct move_between *list = NULL;
  int n = 0, room = 0;
  const int *element = outermost_elements();
  for (int e = 0; e < g->f.nentry; e++) {
    const struct module_input *x = &g->f.entry[e];
    if (g->is_free[x->value] || graph->value[x->value].role == PARAMETER) continue;
    const int here = graph->nvalue + e, shared = x->shared;
    const int pair[2][2] = {{shared == NONE ? x->from : shared, here}, {x->from, shared}};
    for (int k = 0; k < 2; k++) {
      /* What is shared is moved once: for the call after which it is named. */
      if (k && shared != here + g->f.nentry) continue;
      if (k && shared == NONE) continue;
      const int from = node_of(&g->f, pair[k][0]), to = node_of(&g->f, pair[k][1]);
      if (!g->node[to].is_known || !g->node[from].is_known || from == to) continue;
      int i = 0;
      const bool has = g->has_own[x->value];
      while (i < n && (list[i].from != from || list[i].to != to || list[i].has_gradient != has))
        i++;
      if (i == n) {
        GROW(list, n, room);
        const int module = graph->call[x->call].module;
        list[n++] = (struct move_between){from, to, 0, x->value, has, element[module] == module};
      }
      list[i].times++;
    }
  }
  for (int i = 0; i < n; i++) {
    const struct node *a = &g->node[list[i].from], *b = &g->node[list[i].to];
    /* Of equal layers most take it from the layer before. */
    int all = 0, most = i;
    for (int k = 0; k < n; k++) {
      if (list[k].to != list[i].to) continue;
      all += list[k].times;
      if (list[k].times > list[most].times) most = k;
    }
    const int times = most == i ? counted(g, all) - (all - list[i].times) : list[i].times;
    double *cost = table_memory((size_t)a->n * (size_t)b->n, sizeof *cost);
    for (int h = 0; h < a->n; h++)
      for (int k = 0; k < b->n; k++)
        cost[h * b->n + k] =
            times * (cost_between(g, list[i].value, list[i].has_gradient, a->home[h], b->home[k]) +
                     OF_ELEMENT * (list[i].is_element && a->home[h].layout != b->home[k].layout));
    int variable[2] = {variable_of(g, list[i].from), variable_of(g, list[i].to)};
    add_table(g->tables, 2, variable, cost);
    free(cost);
  }
  g->move = list;
  g->nmove = n;
}

/* The parameters of one module are gathered together, or none of them is. */
static void find_joint_parameters(struct solving *g)
{
  int *last = alloc((size_t)(graph->nmodule + 1) * sizeof *last);
  for (int m = 0; m < graph->nmodule; m++) last[m] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (!is_parameter(i) || node_of(&g->f, i) != i || !is_chosen(g->asked, v->module)) continue;
    if (!g->node[i].users || v->unit != NONE || !v->shape.ndim) continue;
    if (last[v->module] != NONE) g->node[i].is_joint = g->node[last[v->module]].is_joint = true;
    last[v->module] = i;
  }
}

static void join_parameters(struct solving *g)
{
  int *last = alloc((size_t)(graph->nmodule + 1) * sizeof *last);
  for (int m = 0; m < graph->nmodule; m++) last[m] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct node *n = &g->node[i];
    if (!n->is_joint || !n->n) continue;
    const int before = last[graph->value[i].module];
    last[graph->value[i].module] = i;
    if (before == NONE) continue;
    const struct node *b = &g->node[before];
    double *cost = table_memory((size_t)n->n * (size_t)b->n, sizeof *cost);
    for (int h = 0; h < b->n; h++)
      for (int k = 0; k < n->n; k++)
        cost[h * n->n + k] = b->home[h].gathered == n->home[k].gathered ? 0 : INFINITY;
    const int variable[2] = {variable_of(g, before), variable_of(g, i)};
    add_table(g->tables, 2, variable, cost);
    free(cost);
  }
}

/* ---------------------------------------------------------------------------------- the program */

/* Rows by expert, and their count, go together: operations that take them ask for both, and no
   style for one of them. */
static void mark_rows(struct solving *g)
{
  g->is_of_rows = alloc((size_t)(graph->nvalue + 1) * sizeof *g->is_of_rows);
  for (int i = 0; i < graph->nvalue; i++) {
    const int count = graph->value[i].counts;
    if (count == NONE) continue;
    g->is_of_rows[i] = g->is_of_rows[count] = true;
    g->f.leaves[i] = g->f.leaves[count] = false;
  }
}

static void mark_values(struct solving *g)
{
  g->has_gradient = alloc((size_t)(graph->nvalue + 1) * sizeof *g->has_gradient);
  g->is_free = alloc((size_t)(graph->nvalue + 1) * sizeof *g->is_free);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    g->has_gradient[i] =
        graph->loss != NONE && v->role == PARAMETER && is_floating(v->type) && !v->frozen;
    g->is_free[i] = v->role == CACHE;
  }
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    bool gradient = false, made_of_constants = true;
    for (int i = 0; i < op->nin; i++) {
      gradient |= g->has_gradient[op->in[i]];
      made_of_constants &= g->is_free[op->in[i]];
    }
    for (int k = 0; k < op->nout; k++) {
      g->has_gradient[op->out + k] =
          gradient && !op->constant && is_floating(graph->value[op->out + k].type);
      g->is_free[op->out + k] = made_of_constants;
    }
  }
  g->has_own = g->has_gradient;
  g->has_gradient = alloc((size_t)(graph->nvalue + 1) * sizeof *g->has_gradient);
  memcpy(g->has_gradient, g->has_own, (size_t)graph->nvalue * sizeof *g->has_own);
  mark_rows(g);
  for (int e = 0; e < g->f.nentry; e++) {
    const int stands = value_of_node(&g->f, node_of(&g->f, graph->nvalue + e));
    g->has_gradient[stands] |= g->has_own[g->f.entry[e].value];
  }
}

/* A redistribution that the plan asks for. */
static int strategies_of_request(struct solving *g, const struct op *op, int node,
                                 struct op_strategy **list)
{
  const struct node *n = &g->node[node];
  struct op_strategy *s = alloc((size_t)(n->n + 1) * sizeof *s);
  const int value = op->in[0];
  for (int i = 0; i < n->n; i++) {
    struct layout from = layout_of_number(n->home[i].layout);
    const struct layout to = chosen_part(g, layout_after(op, from));
    s[i].in[0] = n->home[i].layout;
    s[i].out[0] = number_of_layout(to);
    s[i].in_gradient[0] = gradient_home(&g->s, (struct home){.layout = s[i].in[0]});
    s[i].out_gradient[0] = gradient_home(&g->s, (struct home){.layout = s[i].out[0]});
    s[i].cost = cost_of_value(g, value, s[i].in[0], s[i].out[0]);
    if (g->has_gradient[op->in[0]])
      s[i].cost += cost_of_value(g, value, s[i].out_gradient[0], s[i].in_gradient[0]);
    s[i].cost /= g->s.parts;
  }
  *list = s;
  return n->n;
}

static void add_strided(struct list *to, const struct node *n)
{
  for (int i = 0; i < n->n; i++) {
    const struct layout l = layout_of_number(n->home[i].layout);
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (l.on[d].kind == SHARD && shard_stride(l.on[d]) > 1) add_once(to, n->home[i].layout);
  }
}

static void take_operation(struct solving *g, int id, int members)
{
  const int times = counted(g, members);
  const struct op *op = &graph->op[id];
  if (!op->nout || g->is_free[op->out] || is_update(op)) return;
  if (op->kind == OP_cast && is_parameter(node_of(&g->f, op->out))) return;
  struct folded_op p = {.op = id, .times = times, .members = members, .variable = NONE};
  struct list strided[MAX_INPUTS] = {{0}};
  for (int i = 0; i < op->nin; i++) {
    const int node = node_of_operand(g, &p, i);
    if (node == NONE) continue;
    need_domain(g, node);
    add_strided(&strided[i], &g->node[node]);
  }
  if (op->kind == OP_redistribute)
    p.nstrategy = strategies_of_request(g, op, node_of_operand(g, &p, 0), &p.strategy);
  else if (*rule_of(op))
    p.nstrategy = find_strategies(&g->s, op, g->works[id], strided, &p.strategy);
  else {
    const int whole = number_of_layout((struct layout){0});
    p.nstrategy = 1;
    p.strategy = alloc(sizeof *p.strategy);
    for (int i = 0; i < MAX_INPUTS; i++) p.strategy->in[i] = p.strategy->in_gradient[i] = whole;
    for (int k = 0; k < MAX_OUTPUTS; k++) p.strategy->out[k] = p.strategy->out_gradient[k] = whole;
  }
  for (int i = 0; i < p.nstrategy && g->s.second > 0 && !g->works[id]; i++)
    p.strategy[i].work = g->s.second * seconds_of_way(&g->s, g->is_in_memory, op, &p.strategy[i],
                                                      g->has_gradient[op->out]);
  set_base(g, &p);
  for (int k = 0; k < op->nout; k++) set_output_domain(g, &p, k);
  GROW(g->part, g->npart, g->part_room);
  g->part[g->npart++] = p;
}

static int op_of(const struct folded *f, int op)
{
  while (f->first_op[op] != op) op = f->first_op[op];
  return op;
}

/* ----------------------------------------------------------------------------------- the answer */

static int best_strategy(const struct solving *g, const struct folded_op *p,
                         const struct home *home)
{
  const struct op *op = &graph->op[p->op];
  int best = 0;
  double least = INFINITY;
  for (int i = 0; i < p->nstrategy; i++) {
    double cost = p->base[i];
    for (int o = 0; o < operand_count(op); o++) {
      const int node = node_of_operand(g, p, o);
      if (node == NONE || is_alone(g, node)) continue;
      cost += p->times * cost_of_operand(g, p, o, node, home[node], &p->strategy[i]);
    }
    if (cost < least) least = cost, best = i;
  }
  return best;
}

/* The bytes that a rank receives, by the homes: without the time of work, prices and caution, and
   each layer once. */
static double moved_bytes(struct solving *g, const struct solution *of, const int *chosen)
{
  const double step = g->s.step;
  double sum = 0;
  g->counts_bytes = true;
  g->s.step = STEP;
  for (int k = 0; k < g->npart; k++) {
    const struct folded_op *p = &g->part[k];
    for (int o = 0; o < operand_count(&graph->op[p->op]); o++) {
      const int node = node_of_operand(g, p, o);
      if (node == NONE) continue;
      sum += p->members * cost_of_operand(g, p, o, node, of->home[node], &p->strategy[chosen[k]]);
    }
  }
  for (int i = 0; i < g->nmove; i++) {
    const struct move_between *m = &g->move[i];
    sum +=
        m->times * cost_between(g, m->value, m->has_gradient, of->home[m->from], of->home[m->to]);
  }
  g->counts_bytes = false;
  g->s.step = step;
  return sum;
}

static void read_solution(struct solving *g, struct solution *to, const int *value)
{
  to->home = alloc((size_t)(g->f.nnode + 1) * sizeof *to->home);
  to->has_home = alloc((size_t)(g->f.nnode + 1) * sizeof *to->has_home);
  to->kept = alloc((size_t)(graph->nvalue + 1) * sizeof *to->kept);
  to->made_as = alloc((size_t)(graph->nvalue + 1) * sizeof *to->made_as);
  for (int i = 0; i < graph->nvalue; i++) to->made_as[i] = NONE;
  int *chosen = alloc((size_t)(g->npart + 1) * sizeof *chosen);
  for (int i = 0; i < g->f.nnode; i++)
    if (g->node[i].variable != NONE) {
      to->home[i] = g->node[i].home[value[g->node[i].variable]];
      to->has_home[i] = true;
    }
  for (int k = 0; k < g->npart; k++) {
    const struct folded_op *p = &g->part[k];
    const struct op *op = &graph->op[p->op];
    const int best = p->variable != NONE ? value[p->variable] : best_strategy(g, p, to->home);
    for (int o = 0; o < op->nin; o++) {
      const int node = node_of_operand(g, p, o);
      if (node == NONE || !is_alone(g, node)) continue;
      to->home[node] = g->node[node].home[p->chosen[best][o]];
      to->has_home[node] = true;
    }
    for (int o = 0; o < op->nout; o++) to->made_as[op->out + o] = p->strategy[best].out[o];
    chosen[k] = best;
  }
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER) continue;
    const int node = node_of(&g->f, i);
    const struct home h = to->has_home[node] ? to->home[node] : whole_home();
    const double bytes = bytes_of_part(i, cut_home(g, &v->shape, h));
    to->parameters += bytes;
    to->kept[node] = bytes;
  }
  to->moved = g->s.second > 0 ? moved_bytes(g, to, chosen) : to->cost;
}

struct solution solve_placements(const struct search_for *what)
{
  const struct automatic *a = what->asked;
  struct solving *g = alloc(sizeof *g);
  *g = (struct solving){.what = what,
                        .asked = a,
                        .f = fold_program(a),
                        .s = make_space(a->dims),
                        .large = least_large(a)};
  if (what->by_bytes) g->s.second = 0, g->s.step = STEP;
  g->node = alloc((size_t)(g->f.nnode + 1) * sizeof *g->node);
  for (int i = 0; i < g->f.nnode; i++) g->node[i].variable = NONE;
  mark_values(g);
  int *times = alloc((size_t)(graph->nop + 1) * sizeof *times);
  for (int at = 0; at < graph->norder; at++) times[op_of(&g->f, graph->order[at])]++;
  for (int at = 0; at < graph->norder; at++) {
    const int id = graph->order[at];
    const struct op *op = &graph->op[id];
    if (!times[id]) continue;
    if (op->kind == OP_cast && is_parameter(node_of(&g->f, op->out))) continue;
    for (int i = 0; i < op->nin; i++) g->node[node_of(&g->f, g->f.reads[id][i])].users++;
  }
  /* What only a later entry reads is read. */
  for (int e = 0; e < g->f.nentry; e++) {
    const struct module_input *x = &g->f.entry[e];
    g->node[node_of(&g->f, x->from)].users++;
    if (x->shared != NONE) g->node[node_of(&g->f, x->shared)].users++;
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (is_parameter(i)) {
      g->node[node_of(&g->f, i)].members++;
      if (node_of(&g->f, i) != i) g->node[i].users = 0;
    }
  find_joint_parameters(g);
  g->works = operations_that_work(times);
  if (g->s.second > 0) g->is_in_memory = values_in_memory();
  g->tables = new_tables();
  for (int at = 0; at < graph->norder; at++)
    if (times[graph->order[at]]) take_operation(g, graph->order[at], times[graph->order[at]]);
  for (int k = 0; k < g->npart; k++) add_part_tables(g, &g->part[k]);
  add_moves(g);
  join_parameters(g);
  int *value = alloc((size_t)(100000 + g->f.nnode) * sizeof *value);
  struct solution to = {.folded = g->f, .space = g->s};
  to.is_exact = find_least(g->tables, value, &to.cost);
  free_tables(g->tables);
  read_solution(g, &to, value);
  return to;
}
