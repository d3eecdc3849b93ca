/* strategies.c: the ways in which an operation may run over the dimensions of the mesh for which
   placements are chosen: from its rule, as sharding/choices.c reads it. */
#include "auto/auto.h"

#include <string.h>

enum { MOST_STRATEGIES = 20000, MOST_ORDERS = 24 };

/* The orders in which the dimensions of the mesh may cut. */
static int find_orders(int n, int order[MOST_ORDERS][MOST_DIMS])
{
  int found = 0, at[MOST_DIMS] = {0};
  for (;;) {
    bool is_order = true;
    for (int i = 0; i < n; i++)
      for (int k = 0; k < i; k++) is_order &= at[i] != at[k];
    if (is_order) memcpy(order[found++], at, sizeof at);
    int i = n - 1;
    while (i >= 0 && ++at[i] == n) at[i--] = 0;
    if (i < 0) return found;
  }
}

/* The choices of the operation where its inputs may have the strided placements. */
static int choices_with(const struct op *op, const struct letters *l, const struct list *strided,
                        struct choice *list)
{
  struct layout before[MAX_INPUTS];
  for (int i = 0; i < op->nin; i++) {
    before[i] = graph->value[op->in[i]].layout;
    struct layout here = {0};
    for (int k = 0; k < strided[i].n && k < graph->mesh.ndim; k++) {
      const struct layout from = layout_of_number(strided[i].at[k]);
      for (int d = 0; d < graph->mesh.ndim; d++)
        if (from.on[d].kind == SHARD && shard_stride(from.on[d]) > 1) {
          here.on[k] = from.on[d];
          here.on[k].cut_order = 0;
        }
    }
    graph->value[op->in[i]].layout = here;
  }
  const int n = choices(op, l, list);
  for (int i = op->nin; i-- > 0;) graph->value[op->in[i]].layout = before[i];
  return n;
}

static struct placement adjoint(struct placement p, bool is_term)
{
  if (p.kind == SHARD) return p;
  if (p.kind == REPLICATE && is_term) return (struct placement){.kind = PARTIAL, .reduction = SUM};
  return (struct placement){0};
}

static bool same_strategy(const struct op_strategy *a, const struct op_strategy *b,
                          const struct op *op)
{
  return !memcmp(a->in, b->in, (size_t)op->nin * sizeof *a->in) &&
         !memcmp(a->in_gradient, b->in_gradient, (size_t)op->nin * sizeof *a->in) &&
         !memcmp(a->out, b->out, (size_t)op->nout * sizeof *a->out);
}

struct finding {
  const struct auto_space *s;
  const struct op *op;
  const struct letters *letters;
  struct choice list[MAX_CHOICES];
  int nlist, n, room;
  struct op_strategy *found;
  int norder, order[MOST_ORDERS][MOST_DIMS];
  bool divides; /* by some choice on each dimension */
};

static struct placement placed_by(const struct finding *f, int pick, int operand)
{
  const int nin = f->op->nin;
  return operand < nin ? f->list[pick].in[operand] : f->list[pick].out[operand - nin];
}

/* Adds the strategy of these choices, in each order of cuts. */
static void add_strategy(struct finding *f, const int *at)
{
  const struct op *op = f->op;
  int pick[MAX_MESH] = {0};
  double cost = 0;
  bool cuts = false;
  for (int i = 0; i < f->s->ndim; i++) {
    pick[f->s->dim[i]] = at[i];
    cuts |= f->list[at[i]].letter != NONE;
    if (f->divides && f->list[at[i]].letter == NONE) cost += UNDIVIDED;
  }
  const int first = f->n;
  for (int o = 0; o < (cuts ? f->norder : 1); o++) {
    struct op_strategy s = {.cost = cost};
    bool fits = true;
    for (int k = 0; k < operand_count(op) && fits; k++) {
      struct layout layout = {0}, gradient = {0};
      for (int i = 0; i < f->s->ndim; i++) {
        const int d = f->s->dim[i];
        const struct choice *c = &f->list[at[i]];
        layout.on[d] = placed_by(f, at[i], k);
        if (layout.on[d].kind == SHARD) layout.on[d].cut_order = f->order[o][i];
        bool term = c->letter != NONE;
        for (int j = 0; j < op->nin && !term && k < op->nin; j++)
          term = j != k && c->in[j].kind == PARTIAL && c->in[k].kind == REPLICATE;
        gradient.on[d] = adjoint(layout.on[d], term && k < op->nin);
      }
      layout = usual_cut_order(layout);
      fits = cuts_all_well(f->s, graph->value[nth_operand(op, k)].shape, layout) &&
             operand_fits(f->letters, k, op->nin, layout, f->list, pick);
      if (!fits) break;
      const int number = number_of_layout(layout), back = number_of_layout(gradient);
      if (k < op->nin)
        s.in[k] = number, s.in_gradient[k] = back;
      else
        s.out[k - op->nin] = number, s.out_gradient[k - op->nin] = back;
    }
    for (int i = first; i < f->n && fits; i++) fits = !same_strategy(&f->found[i], &s, op);
    if (!fits) continue;
    GROW(f->found, f->n, f->room);
    f->found[f->n++] = s;
  }
}

int find_strategies(const struct auto_space *s, const struct op *op, bool works,
                    const struct list *strided, struct op_strategy **list)
{
  struct letters l;
  struct finding *f = alloc(sizeof *f);
  *f = (struct finding){.s = s, .op = op, .letters = &l};
  op_letters(op, &l);
  f->nlist = choices_with(op, &l, strided, f->list);
  f->norder = find_orders(s->ndim, f->order);
  for (int i = 0; i < f->nlist && works; i++) {
    bool divides = f->list[i].letter != NONE;
    for (int d = 0; d < s->ndim && divides; d++)
      divides = cuts_well(l.size[f->list[i].letter], graph->mesh.size[s->dim[d]]);
    f->divides |= divides;
  }
  bool is_uncut = true;
  for (int i = 0; i < f->nlist; i++) is_uncut &= f->list[i].letter == NONE;
  int at[MOST_DIMS] = {0};
  for (;;) {
    add_strategy(f, at);
    int i = s->ndim - 1;
    while (i >= 0 && ++at[i] == f->nlist) at[i--] = 0;
    if (i < 0 || f->n > MOST_STRATEGIES) break;
  }
  for (int i = 0; i < f->n; i++) f->found[i].is_of_uncut = is_uncut;
  *list = f->found;
  return f->n;
}
