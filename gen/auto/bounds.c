/* bounds.c: makes the domains of variables smaller before they are eliminated: a value goes if
   every answer with it costs more than one that is known.

   Messages between variables move costs from tables to variables and on (TRW-S: Kolmogorov,
   Convergent tree-reweighted message passing, 2006): the sum of what is least in each place is then
   a lower bound of every answer, and with one value in the place of the least one, of every answer
   with that value. Variables that take the least in their order, by messages of those after them,
   give an answer. */
#include "auto/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Costs from here on mean that something cannot be. */
static const double NEVER = 1e19;

struct edge {
  int a, b;            /* a < b */
  double *cost;        /* of a table of ours: by a and b */
  double *to_a, *to_b; /* messages */
};

struct bounding {
  struct cost_tables *t;
  int nedge, edge_room;
  struct edge *edge;
  struct list *edges; /* by variable */
  double **own;       /* by variable: its own costs */
  int *taken;         /* an answer */
  double known;       /* the cost of the best one */
};

static double *sum_at(const struct bounding *b, int v, double *sum)
{
  const int n = b->t->size[v];
  memcpy(sum, b->own[v], (size_t)n * sizeof *sum);
  for (int k = 0; k < b->edges[v].n; k++) {
    const struct edge *e = &b->edge[b->edges[v].at[k]];
    const double *in = e->a == v ? e->to_a : e->to_b;
    for (int i = 0; i < n; i++) sum[i] += in[i];
  }
  return sum;
}

/* Moves to the variable what every pair of the edge costs with each of its values. */
static void take_least(const struct bounding *b, struct edge *e, int v, double *room)
{
  const int na = b->t->size[e->a], nb = b->t->size[e->b];
  if (v == e->b) {
    for (int j = 0; j < nb; j++) room[j] = INFINITY;
    for (int i = 0; i < na; i++) {
      const double own = e->to_a[i], *row = e->cost + (size_t)i * (size_t)nb;
      for (int j = 0; j < nb; j++) {
        const double c = row[j] - own;
        room[j] = c < room[j] ? c : room[j];
      }
    }
    for (int j = 0; j < nb; j++) e->to_b[j] = room[j] < NEVER ? room[j] : NEVER;
    return;
  }
  for (int i = 0; i < na; i++) {
    const double *row = e->cost + (size_t)i * (size_t)nb;
    for (int j = 0; j < nb; j++) room[j] = row[j] - e->to_b[j];
    const double least = least_of_list(room, nb);
    e->to_a[i] = least < NEVER ? least : NEVER;
  }
}

/* Messages of edges to variables that the sweep before came to later are as it left them: unless
   it is the first one, they are not found again. */
static void sweep(struct bounding *b, bool forward, bool is_first, double *sum, double *room)
{
  const int n = b->t->nvariable;
  for (int k = 0; k < n; k++) {
    const int v = forward ? k : n - 1 - k;
    int before = 0, after = 0;
    for (int i = 0; i < b->edges[v].n; i++) {
      struct edge *e = &b->edge[b->edges[v].at[i]];
      const bool is_after = (e->a == v) == forward;
      if (is_first || !is_after) take_least(b, e, v, room);
      *(is_after ? &after : &before) += 1;
    }
    const int most = before > after ? before : after;
    if (!after) continue;
    sum_at(b, v, sum);
    for (int i = 0; i < b->edges[v].n; i++) {
      struct edge *e = &b->edge[b->edges[v].at[i]];
      if ((e->a == v) != forward) continue;
      double *to = e->a == v ? e->to_a : e->to_b;
      for (int x = 0; x < b->t->size[v]; x++) to[x] -= sum[x] / most;
    }
  }
}

/* An answer: each variable takes what is least with those before it. */
static void find_answer(struct bounding *b, double *sum)
{
  const int n = b->t->nvariable;
  int *value = alloc((size_t)(n + 1) * sizeof *value);
  double cost = 0;
  for (int v = 0; v < n; v++) {
    const int size = b->t->size[v];
    double *real = sum + size;
    memcpy(real, b->own[v], (size_t)size * sizeof *real);
    memset(sum, 0, (size_t)size * sizeof *sum);
    for (int k = 0; k < b->edges[v].n; k++) {
      const struct edge *e = &b->edge[b->edges[v].at[k]];
      for (int i = 0; i < size; i++) {
        if (e->a == v)
          sum[i] += e->to_a[i];
        else
          real[i] += e->cost[(size_t)value[e->a] * (size_t)size + (size_t)i];
      }
    }
    int best = 0;
    for (int i = 1; i < size; i++)
      if (sum[i] + real[i] < sum[best] + real[best]) best = i;
    value[v] = best;
    cost += real[best];
  }
  if (cost < b->known) {
    b->known = cost;
    memcpy(b->taken, value, (size_t)n * sizeof *value);
  }
}

/* Of the edge what is left, the least by value of each end. */
static void least_left(const struct bounding *b, const struct edge *e, double *of_a, double *of_b)
{
  const int na = b->t->size[e->a], nb = b->t->size[e->b];
  for (int j = 0; j < nb; j++) of_b[j] = INFINITY;
  for (int i = 0; i < na; i++) {
    const double *row = e->cost + (size_t)i * (size_t)nb;
    double least = INFINITY;
    for (int j = 0; j < nb; j++) {
      const double c = row[j] - e->to_b[j] - e->to_a[i];
      least = c < least ? c : least;
      of_b[j] = c < of_b[j] ? c : of_b[j];
    }
    of_a[i] = least;
  }
}

/* Keeps these values of the variable. */
static void keep_values(struct bounding *b, int v, const bool *keep)
{
  struct cost_tables *t = b->t;
  const int size = t->size[v];
  int n = 0;
  int *list = alloc((size_t)(size + 1) * sizeof *list);
  for (int i = 0; i < size; i++)
    if (keep[i]) list[n++] = i;
  if (n == size || !n) return;
  for (int i = 0; i < n; i++) b->own[v][i] = b->own[v][list[i]];
  for (int k = 0; k < b->edges[v].n; k++) {
    struct edge *e = &b->edge[b->edges[v].at[k]];
    const size_t nb = (size_t)t->size[e->b];
    if (e->a == v) {
      for (int i = 0; i < n; i++) {
        memmove(e->cost + (size_t)i * nb, e->cost + (size_t)list[i] * nb, nb * sizeof *e->cost);
        e->to_a[i] = e->to_a[list[i]];
      }
    } else {
      for (int r = 0; r < t->size[e->a]; r++)
        for (int i = 0; i < n; i++)
          e->cost[(size_t)r * (size_t)n + (size_t)i] = e->cost[(size_t)r * nb + (size_t)list[i]];
      for (int i = 0; i < n; i++) e->to_b[i] = e->to_b[list[i]];
    }
  }
  for (int i = 0; i < n; i++)
    if (b->taken[v] == list[i]) b->taken[v] = i;
  if (!t->kept) t->kept = alloc((size_t)t->nvariable * sizeof *t->kept);
  for (int i = 0; i < n && t->kept[v]; i++) list[i] = t->kept[v][list[i]];
  t->kept[v] = list;
  t->size[v] = n;
}

/* By variable and value: how much more than the bound every answer with it costs. Returns the
   bound. */
static double find_excess(const struct bounding *b, double **left, double *sum)
{
  const int n = b->t->nvariable;
  double bound = 0;
  for (int v = 0; v < n; v++) {
    const int size = b->t->size[v];
    left[v] = table_memory((size_t)size, sizeof **left);
    sum_at(b, v, sum);
    const double least = least_of_list(sum, size);
    bound += least;
    for (int i = 0; i < size; i++) left[v][i] = sum[i] - least;
  }
  for (int k = 0; k < b->nedge; k++) {
    const struct edge *e = &b->edge[k];
    const int na = b->t->size[e->a], nb = b->t->size[e->b];
    double *of_a = sum, *of_b = sum + na;
    least_left(b, e, of_a, of_b);
    const double least = least_of_list(of_a, na);
    bound += least;
    for (int i = 0; i < na; i++) left[e->a][i] += of_a[i] - least;
    for (int j = 0; j < nb; j++) left[e->b][j] += of_b[j] - least;
  }
  return bound;
}

/* Leaves out the values with which every answer costs more than the known one. */
static void leave_out(struct bounding *b, double bound, double **left)
{
  const double slack = 1e-9 * fabs(b->known) + 1e-6;
  for (int v = 0; v < b->t->nvariable; v++) {
    bool *keep = alloc((size_t)(b->t->size[v] + 1) * sizeof *keep);
    for (int i = 0; i < b->t->size[v]; i++)
      keep[i] = !(bound + left[v][i] > b->known + slack) || i == b->taken[v];
    keep_values(b, v, keep);
  }
}

static int compare_doubles(const void *x, const void *y)
{
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* The best answer of values that exceed the bound by no more than `window`, but at most so many of
   each variable. Returns whether that left none out. */
static bool solve_some(struct bounding *b, double **left, double window, int most, double *sum)
{
  const int n = b->t->nvariable;
  struct cost_tables *t = new_tables();
  bool is_whole = true;
  int **list = alloc((size_t)(n + 1) * sizeof *list);
  for (int v = 0; v < n; v++) {
    const int size = b->t->size[v];
    memcpy(sum, left[v], (size_t)size * sizeof *sum);
    qsort(sum, (size_t)size, sizeof *sum, compare_doubles);
    double limit = window;
    if (size > most && sum[most] <= window) {
      limit = sum[most - 1];
      is_whole = false;
    }
    int count = 0;
    list[v] = alloc((size_t)(size + 1) * sizeof **list);
    for (int i = 0; i < size; i++)
      if ((left[v][i] <= limit && count < most) || i == b->taken[v]) list[v][count++] = i;
    add_variable(t, count);
    for (int i = 0; i < count; i++) sum[i] = b->own[v][list[v][i]];
    add_table(t, 1, &v, sum);
  }
  for (int k = 0; k < b->nedge; k++) {
    const struct edge *e = &b->edge[k];
    const int na = t->size[e->a], nb = t->size[e->b], variable[2] = {e->a, e->b};
    double *cost = table_memory((size_t)na * (size_t)nb, sizeof *cost);
    for (int i = 0; i < na; i++)
      for (int j = 0; j < nb; j++)
        cost[i * nb + j] =
            e->cost[(size_t)list[e->a][i] * (size_t)b->t->size[e->b] + (size_t)list[e->b][j]];
    add_table(t, 2, variable, cost);
    free(cost);
  }
  int *value = alloc((size_t)(n + 1) * sizeof *value);
  double cost;
  is_whole &= eliminate(t, value, &cost);
  free_tables(t);
  if (cost >= b->known) return is_whole;
  b->known = cost;
  for (int v = 0; v < n; v++) b->taken[v] = list[v][value[v]];
  return is_whole;
}

/* The known answer is the best. */
static void keep_answer(struct bounding *b)
{
  for (int v = 0; v < b->t->nvariable; v++) {
    bool *keep = alloc((size_t)(b->t->size[v] + 1) * sizeof *keep);
    keep[b->taken[v]] = true;
    keep_values(b, v, keep);
  }
}

/* No cost is below 0: a value, or a pair, that costs more by itself is in no better answer. */
static void leave_out_dear(struct bounding *b)
{
  struct cost_tables *t = b->t;
  for (bool is_less = true; is_less;) {
    is_less = false;
    for (int v = 0; v < t->nvariable; v++) {
      const int size = t->size[v];
      bool *keep = alloc((size_t)(size + 1) * sizeof *keep);
      for (int i = 0; i < size; i++) {
        double sum = b->own[v][i];
        for (int k = 0; k < b->edges[v].n; k++) {
          const struct edge *e = &b->edge[b->edges[v].at[k]];
          const size_t nb = (size_t)t->size[e->b];
          double least = INFINITY;
          if (e->a == v)
            least = least_of_list(e->cost + (size_t)i * nb, (int)nb);
          else
            for (int r = 0; r < t->size[e->a]; r++)
              if (e->cost[(size_t)r * nb + (size_t)i] < least)
                least = e->cost[(size_t)r * nb + (size_t)i];
          sum += least;
        }
        keep[i] = !(sum > b->known * (1 + 1e-9) + 1e-6) || i == b->taken[v];
      }
      keep_values(b, v, keep);
      is_less |= t->size[v] < size;
    }
  }
  for (int k = 0; k < b->nedge; k++) {
    struct edge *e = &b->edge[k];
    const size_t na = (size_t)t->size[e->a], nb = (size_t)t->size[e->b];
    for (size_t i = 0; i < na * nb; i++)
      if (e->cost[i] > 2 * b->known + 1) e->cost[i] = INFINITY;
  }
}

/* The work of an elimination that begins with these domains, about. */
static double work_left(const struct bounding *b)
{
  double work = 0;
  for (int k = 0; k < b->nedge; k++) {
    const double na = b->t->size[b->edge[k].a], nb = b->t->size[b->edge[k].b];
    work += na * nb * (na > nb ? na : nb);
  }
  return work;
}

static struct bounding take_tables(struct cost_tables *t)
{
  struct bounding b = {.t = t, .known = NEVER};
  b.edges = alloc((size_t)(t->nvariable + 1) * sizeof *b.edges);
  b.own = alloc((size_t)(t->nvariable + 1) * sizeof *b.own);
  b.taken = alloc((size_t)(t->nvariable + 1) * sizeof *b.taken);
  for (int v = 0; v < t->nvariable; v++) {
    b.own[v] = table_memory((size_t)t->size[v], sizeof **b.own);
    memset(b.own[v], 0, (size_t)t->size[v] * sizeof **b.own);
  }
  for (int k = 0; k < t->ntable; k++) {
    struct cost_table *x = &t->table[k];
    const size_t na = (size_t)t->size[x->variable[0]];
    if (x->n == 1) {
      for (size_t i = 0; i < na; i++) b.own[x->variable[0]][i] += x->cost[i];
      free(x->cost);
      continue;
    }
    const size_t nb = (size_t)t->size[x->variable[1]];
    struct edge e = {.a = x->variable[0], .b = x->variable[1], .cost = x->cost};
    if (e.a > e.b) { /* the other way round */
      e.cost = table_memory(na * nb, sizeof *e.cost);
      for (size_t i = 0; i < na; i++)
        for (size_t j = 0; j < nb; j++) e.cost[j * na + i] = x->cost[i * nb + j];
      free(x->cost);
      e.a = x->variable[1];
      e.b = x->variable[0];
    }
    const size_t n = (size_t)(t->size[e.a] > t->size[e.b] ? t->size[e.a] : t->size[e.b]);
    e.to_a = table_memory(n, sizeof *e.to_a);
    e.to_b = table_memory(n, sizeof *e.to_b);
    memset(e.to_a, 0, n * sizeof *e.to_a);
    memset(e.to_b, 0, n * sizeof *e.to_b);
    add(&b.edges[e.a], b.nedge);
    add(&b.edges[e.b], b.nedge);
    GROW(b.edge, b.nedge, b.edge_room);
    b.edge[b.nedge++] = e;
  }
  for (int v = 0; v < t->nvariable; v++)
    for (int i = 0; i < t->size[v]; i++)
      if (!(b.own[v][i] < NEVER)) b.own[v][i] = NEVER;
  t->ntable = 0;
  return b;
}

static void give_tables_back(struct bounding *b)
{
  for (int v = 0; v < b->t->nvariable; v++) {
    add_table(b->t, 1, &v, b->own[v]);
    free(b->own[v]);
  }
  for (int k = 0; k < b->nedge; k++) {
    struct edge *e = &b->edge[k];
    const int variable[2] = {e->a, e->b};
    add_table(b->t, 2, variable, e->cost);
    free(e->cost);
    free(e->to_a);
    free(e->to_b);
  }
}

static void leave_out_values(struct cost_tables *t)
{
  enum { SWEEPS = 10, MOST = 128 };
  static const double LITTLE = 4e8, FIRST_WINDOW = 0.004;
  int most = 1;
  for (int v = 0; v < t->nvariable; v++)
    if (t->size[v] > most) most = t->size[v];
  struct bounding b = take_tables(t);
  double *sum = table_memory(2 * (size_t)most, sizeof *sum);
  double *room = table_memory((size_t)most, sizeof *room);
  double **left = alloc((size_t)(t->nvariable + 1) * sizeof *left);
  if (work_left(&b) > LITTLE) leave_out_dear(&b); /* what cannot be */
  /* A value in a better answer than one of cost c exceeds the bound by no more than c does. */

  for (double window = FIRST_WINDOW; window < 1 && work_left(&b) > LITTLE; window *= 4) {
    for (int k = 0; k < SWEEPS; k++) {
      sweep(&b, true, k == 0, sum, room);
      sweep(&b, false, false, sum, room);
    }
    find_answer(&b, sum);
    const double bound = find_excess(&b, left, sum), width = window * fabs(bound);
    const bool is_whole = solve_some(&b, left, width, MOST, sum);
    if (is_whole && b.known <= bound + width)
      keep_answer(&b);
    else {
      leave_out(&b, bound, left);
      leave_out_dear(&b);
    }
    for (int v = 0; v < t->nvariable; v++) free(left[v]);
  }
  free(sum);
  free(room);
  give_tables_back(&b);
}

bool find_least(struct cost_tables *t, int *value, double *least)
{
  leave_out_values(t);
  const bool is_exact = eliminate(t, value, least);
  for (int v = 0; v < t->nvariable; v++)
    if (t->kept && t->kept[v]) value[v] = t->kept[v][value[v]];
  return is_exact;
}
