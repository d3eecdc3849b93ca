/* fold.c: the program of the front end with equal layers folded: values, operations and calls of
   equal modules of a list are one: those of the first module.

   An operation that reads an input of a call of a module reads an entry: the value as it is moved
   there. Where calls within one call take the same value, an entry before theirs is shared. */
#include "auto/auto.h"

#include <string.h>

int node_of(const struct folded *f, int node)
{
  while (f->first_like[node] != node) node = f->first_like[node];
  return node;
}

int value_of_node(const struct folded *f, int node)
{
  if (node < graph->nvalue) return node;
  node -= graph->nvalue;
  return f->entry[node < f->nentry ? node : node - f->nentry].value;
}

/* Makes the two one: the earlier. */
static void join(struct folded *f, int a, int b)
{
  a = node_of(f, a);
  b = node_of(f, b);
  if (a == b) return;
  f->first_like[a > b ? a : b] = a > b ? b : a;
}

/* ------------------------------------------------------------------------------------- entries */

static int input_of_call(const struct call *c, int value)
{
  for (int i = 0; i < c->nin; i++)
    if (c->in[i] == value) return i;
  return NONE;
}

/* What an operation, or a call, within this call reads for the value. */
static int read_within(const int *first_entry, int call, int value)
{
  for (; call != NONE; call = graph->call[call].parent) {
    const int i = first_entry[call] == NONE ? NONE : input_of_call(&graph->call[call], value);
    if (i != NONE) return graph->nvalue + first_entry[call] + i;
  }
  return value;
}

/* Whether nobody can say where the value stays: no style moves it. */
static bool may_be_moved(int value)
{
  const enum role role = graph->value[value].role;
  return role != PARAMETER && role != CACHE;
}

static void find_entries(struct folded *f, const struct automatic *a, int *first_entry)
{
  int room = 0;
  for (int c = 0; c < graph->ncall; c++) {
    const struct call *call = &graph->call[c];
    first_entry[c] = NONE;
    if (!is_chosen(a, call->module)) continue;
    first_entry[c] = f->nentry;
    for (int i = 0; i < call->nin; i++) {
      GROW(f->entry, f->nentry, room);
      f->entry[f->nentry++] = (struct module_input){
          .call = c, .index = i, .value = call->in[i], .from = NONE, .shared = NONE};
    }
    for (int i = 0; i < call->nout; i++) f->leaves[call->out[i]] = true;
  }
}

/* Calls within one call that take the same value share an entry. */
static void share_entries(struct folded *f)
{
  int *last = alloc((size_t)(graph->nvalue + 2 * f->nentry + 1) * sizeof *last);
  for (int i = 0; i < graph->nvalue + 2 * f->nentry; i++) last[i] = NONE;
  int *before = alloc((size_t)(f->nentry + 1) * sizeof *before);
  for (int e = 0; e < f->nentry; e++) {
    struct module_input *x = &f->entry[e];
    const int parent = graph->call[x->call].parent;
    before[e] = last[x->from];
    last[x->from] = e;
    for (int k = before[e]; k != NONE; k = before[k]) {
      struct module_input *y = &f->entry[k];
      if (graph->call[y->call].parent != parent || y->call == x->call) continue;
      if (y->shared == NONE) y->shared = graph->nvalue + f->nentry + k;
      x->shared = y->shared;
      break;
    }
  }
}

/* --------------------------------------------------------------------------------- equal layers */

/* The calls within this one, and it, are those up to here. */
static int end_of_call(int call)
{
  int end = call + 1;
  while (end < graph->ncall && graph->call[end].parent >= call) end++;
  return end;
}

static bool same_requests(int a, int b)
{
  int i = 0, k = 0;
  for (;;) {
    while (i < graph->nstyle && graph->style[i].module != a) i++;
    while (k < graph->nstyle && graph->style[k].module != b) k++;
    if (i == graph->nstyle || k == graph->nstyle) return i == graph->nstyle && k == graph->nstyle;
    const struct style *s = &graph->style[i++], *t = &graph->style[k++];
    bool same = s->mesh_dim == t->mesh_dim && s->nrequest == t->nrequest;
    for (int r = 0; r < s->nrequest && same; r++) {
      const struct layout_request *x = &s->request[r], *y = &t->request[r];
      same = x->what == y->what && x->index == y->index && same_placement(x->to, y->to);
    }
    if (!same) return false;
  }
}

static bool same_operation(const struct op *a, const struct op *b)
{
  if (a->kind != b->kind || a->nin != b->nin || a->nout != b->nout || a->dims != b->dims ||
      a->type != b->type || a->keepdim != b->keepdim || a->asked != b->asked)
    return false;
  if (strcmp(rule_of(a), rule_of(b)) != 0) return false;
  if (a->kind == OP_redistribute && !same_layout(a->to, b->to)) return false;
  for (int i = 0; i < a->nin; i++) {
    const struct value *v = &graph->value[a->in[i]], *w = &graph->value[b->in[i]];
    const bool is_kept = v->role == PARAMETER || v->role == CACHE;
    if (v->type != w->type || !same_shape(v->shape, w->shape) || (is_kept && v->role != w->role))
      return false;
  }
  for (int k = 0; k < a->nout; k++)
    if (!same_shape(graph->value[a->out + k].shape, graph->value[b->out + k].shape)) return false;
  return true;
}

/* Whether the two calls run the same program on values of the same shapes. */
static bool same_calls(const struct automatic *a, int one, int other, const int *place)
{
  const struct call *x = &graph->call[one], *y = &graph->call[other];
  const int n = end_of_call(one) - one;
  if (x->last - x->first != y->last - y->first || end_of_call(other) - other != n) return false;
  for (int i = 0; i < n; i++) {
    const struct call *c = &graph->call[one + i], *d = &graph->call[other + i];
    const struct module *m = &graph->module[c->module], *w = &graph->module[d->module];
    if (strcmp(m->class_name, w->class_name) != 0 || c->nin != d->nin || c->nout != d->nout ||
        c->first - x->first != d->first - y->first || c->last - x->first != d->last - y->first ||
        is_chosen(a, c->module) != is_chosen(a, d->module) ||
        !same_requests(c->module, d->module) || (m->unit == NONE) != (w->unit == NONE))
      return false;
  }
  for (int at = 0; at < x->last - x->first; at++) {
    const struct op *p = &graph->op[graph->order[x->first + at]];
    const struct op *q = &graph->op[graph->order[y->first + at]];
    if (!same_operation(p, q)) return false;
    for (int i = 0; i < p->nin; i++) {
      const int u = graph->value[p->in[i]].op, v = graph->value[q->in[i]].op;
      const bool in_x = u != NONE && place[u] >= x->first && place[u] < x->last;
      const bool in_y = v != NONE && place[v] >= y->first && place[v] < y->last;
      if (in_x != in_y) return false;
      if (in_x && (place[u] - x->first != place[v] - y->first ||
                   p->in[i] - graph->op[u].out != q->in[i] - graph->op[v].out))
        return false;
    }
  }
  return true;
}

static void fold_calls(struct folded *f, const int *first_entry, int one, int other)
{
  const struct call *x = &graph->call[one], *y = &graph->call[other];
  const int n = end_of_call(one) - one;
  for (int i = 0; i < n; i++) {
    if (first_entry[one + i] == NONE) continue;
    for (int k = 0; k < graph->call[one + i].nin; k++) {
      const int e = first_entry[one + i] + k, g = first_entry[other + i] + k;
      join(f, graph->nvalue + e, graph->nvalue + g);
      if (f->entry[e].shared != NONE && f->entry[g].shared != NONE && i)
        join(f, f->entry[e].shared, f->entry[g].shared);
    }
  }
  for (int at = 0; at < x->last - x->first; at++) {
    const int p = graph->order[x->first + at], q = graph->order[y->first + at];
    const struct op *s = &graph->op[p], *t = &graph->op[q];
    f->first_op[q] = p;
    for (int k = 0; k < s->nout; k++) join(f, s->out + k, t->out + k);
    for (int i = 0; i < s->nin; i++)
      if (f->reads[q][i] == t->in[i] && f->reads[p][i] == s->in[i]) join(f, s->in[i], t->in[i]);
  }
}

/* Folds runs of equal modules of each list: each is called once. */
static void fold_lists(struct folded *f, const struct automatic *a, const int *first_entry,
                       const int *place)
{
  int *call_of = alloc((size_t)(graph->nmodule + 1) * sizeof *call_of);
  for (int m = 0; m < graph->nmodule; m++) call_of[m] = NONE;
  enum { SEVERAL = -2 };
  for (int c = 0; c < graph->ncall; c++) {
    int *of = &call_of[graph->call[c].module];
    *of = *of == NONE ? c : SEVERAL;
  }
  for (int m = 0; m < graph->nmodule; m++) {
    int first = NONE;
    for (int e = m + 1; e < graph->nmodule; e++) {
      if (graph->module[e].parent != m || place_in_list(e) == NONE || call_of[e] < 0) continue;
      if (first != NONE && same_calls(a, call_of[first], call_of[e], place))
        fold_calls(f, first_entry, call_of[first], call_of[e]);
      else
        first = e;
    }
  }
}

struct folded fold_program(const struct automatic *a)
{
  struct folded f = {.leaves = alloc((size_t)(graph->nvalue + 1) * sizeof *f.leaves)};
  int *first_entry = alloc((size_t)(graph->ncall + 1) * sizeof *first_entry);
  find_entries(&f, a, first_entry);
  for (int e = 0; e < f.nentry; e++)
    f.entry[e].from =
        read_within(first_entry, graph->call[f.entry[e].call].parent, f.entry[e].value);
  share_entries(&f);
  f.nnode = graph->nvalue + 2 * f.nentry;
  f.first_like = alloc((size_t)(f.nnode + 1) * sizeof *f.first_like);
  for (int i = 0; i < f.nnode; i++) f.first_like[i] = i;
  f.first_op = alloc((size_t)(graph->nop + 1) * sizeof *f.first_op);
  int *place = alloc((size_t)(graph->nop + 1) * sizeof *place);
  for (int i = 0; i < graph->nop; i++) f.first_op[i] = i, place[i] = NONE;
  for (int at = 0; at < graph->norder; at++) place[graph->order[at]] = at;

  /* What operations read: by the innermost call around each. */
  f.reads = alloc((size_t)(graph->nop + 1) * sizeof *f.reads);
  int open = NONE, next = 0;
  for (int at = 0; at < graph->norder; at++) {
    while (open != NONE && graph->call[open].last <= at) open = graph->call[open].parent;
    while (next < graph->ncall && graph->call[next].first <= at) {
      if (graph->call[next].last > at) open = next;
      next++;
    }
    const int id = graph->order[at];
    const struct op *op = &graph->op[id];
    for (int i = 0; i < op->nin; i++)
      f.reads[id][i] =
          may_be_moved(op->in[i]) ? read_within(first_entry, open, op->in[i]) : op->in[i];
    /* A parameter that is cast where it is used. */
    if (op->kind == OP_cast && graph->value[op->in[0]].role == PARAMETER)
      join(&f, op->in[0], op->out);
  }
  fold_lists(&f, a, first_entry, place);
  return f;
}
