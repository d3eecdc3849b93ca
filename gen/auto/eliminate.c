/* eliminate.c: the least sum of tables of costs. One variable after the other is eliminated: the
   tables that have it become one, of its neighbours, with the least over its values. Which value
   that is, is kept for the way back. Exact, as long as no table grows beyond a bound: then a
   variable gets the value that looks best. */
#include "auto/auto.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_WORK = 4e8, MOST_CELLS = 3e7;

void *table_memory(size_t n, size_t size)
{
  static bool is_told;
  /* Large tables come and go: their pages stay with the process meanwhile. */
  if (!is_told) mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 28);
  is_told = true;
  void *at = malloc(n ? n * size : 1);
  if (!at) plan_error(0, "auto(): there is no memory for the search");
  return at;
}

struct cost_tables *new_tables(void)
{
  struct cost_tables *t = alloc(sizeof *t);
  t->is_exact = true;
  return t;
}

int add_variable(struct cost_tables *t, int n)
{
  GROW(t->size, t->nvariable, t->variable_room);
  t->size[t->nvariable] = n;
  return t->nvariable++;
}

static struct cost_table *new_table(struct cost_tables *t, int n, const int *variable)
{
  GROW(t->table, t->ntable, t->table_room);
  struct cost_table *x = &t->table[t->ntable++];
  *x = (struct cost_table){.n = n};
  size_t cells = 1;
  for (int i = 0; i < n; i++) {
    x->variable[i] = variable[i];
    cells *= (size_t)t->size[variable[i]];
  }
  x->cost = table_memory(cells, sizeof *x->cost);
  return x;
}

static size_t cells_of(const struct cost_tables *t, const struct cost_table *x)
{
  size_t cells = 1;
  for (int i = 0; i < x->n; i++) cells *= (size_t)t->size[x->variable[i]];
  return cells;
}

void add_table(struct cost_tables *t, int n, const int *variable, const double *cost)
{
  struct cost_table *x = new_table(t, n, variable);
  memcpy(x->cost, cost, cells_of(t, x) * sizeof *cost);
}

static bool has_variable(const struct cost_table *x, int variable)
{
  for (int i = 0; i < x->n; i++)
    if (x->variable[i] == variable) return true;
  return false;
}

/* The other variables of the tables with this one; returns how many, or MOST_SCOPE. */
static int neighbours(const struct cost_tables *t, int variable, int *list)
{
  int n = 0;
  for (int k = 0; k < t->ntable; k++) {
    const struct cost_table *x = &t->table[k];
    if (x->is_gone || !has_variable(x, variable)) continue;
    for (int i = 0; i < x->n; i++) {
      if (x->variable[i] == variable || lists_number(list, n, x->variable[i])) continue;
      if (n == MOST_SCOPE - 1) return MOST_SCOPE;
      list[n++] = x->variable[i];
    }
  }
  return n;
}

/* The table with `variable` as its last one. */
static double *with_last(const struct cost_tables *t, const struct cost_table *x, int variable,
                         int order[MOST_SCOPE])
{
  int n = 0, from[MOST_SCOPE];
  size_t stride[MOST_SCOPE], cells = cells_of(t, x), below = 1;
  for (int i = x->n; i-- > 0;) {
    stride[i] = below;
    below *= (size_t)t->size[x->variable[i]];
  }
  for (int i = 0; i < x->n; i++)
    if (x->variable[i] != variable) from[n] = i, order[n++] = x->variable[i];
  for (int i = 0; i < x->n; i++)
    if (x->variable[i] == variable) from[n] = i, order[n++] = variable;
  double *to = table_memory(cells, sizeof *to);
  int at[MOST_SCOPE] = {0};
  size_t where = 0;
  for (size_t c = 0; c < cells; c++) {
    to[c] = x->cost[where];
    for (int i = n - 1; i >= 0; i--) {
      where += stride[from[i]];
      if (++at[i] < t->size[order[i]]) break;
      where -= stride[from[i]] * (size_t)at[i];
      at[i] = 0;
    }
  }
  return to;
}

static void fix(struct cost_tables *t, int variable, int value);

static void add_tables(double *sum, const double *a, const double *b, int n)
{
  for (int i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

/* In several strands, which a processor follows side by side. */
double least_of_list(const double *list, int n)
{
  enum { STRANDS = 8 };
  double least[STRANDS];
  for (int k = 0; k < STRANDS; k++) least[k] = list[0];
  int i = 0;
  for (; i + STRANDS <= n; i += STRANDS)
    for (int k = 0; k < STRANDS; k++) least[k] = list[i + k] < least[k] ? list[i + k] : least[k];
  for (; i < n; i++) least[0] = list[i] < least[0] ? list[i] : least[0];
  for (int k = 1; k < STRANDS; k++) least[0] = least[k] < least[0] ? least[k] : least[0];
  return least[0];
}

/* Puts one table in the place of those with the variable. */
static void eliminate_one(struct cost_tables *t, int variable)
{
  enum { MOST_TABLES = 256 };
  int scope[MOST_SCOPE], nscope = neighbours(t, variable, scope);
  const int size = t->size[variable];
  int ntable = 0;
  static struct {
    double *cost;
    int n, order[MOST_SCOPE];
    size_t stride[MOST_SCOPE]; /* by neighbour */
    size_t where;
  } with[MOST_TABLES];
  for (int k = 0; k < t->ntable; k++) {
    struct cost_table *x = &t->table[k];
    if (x->is_gone || !has_variable(x, variable)) continue;
    with[ntable].cost = with_last(t, x, variable, with[ntable].order);
    with[ntable].n = x->n;
    with[ntable].where = 0;
    for (int s = 0; s < nscope; s++) with[ntable].stride[s] = 0;
    size_t below = (size_t)size;
    for (int i = x->n - 2; i >= 0; i--) {
      for (int s = 0; s < nscope; s++)
        if (scope[s] == with[ntable].order[i]) with[ntable].stride[s] = below;
      below *= (size_t)t->size[with[ntable].order[i]];
    }
    x->is_gone = true;
    free(x->cost);
    x->cost = NULL;
    ntable++;
    if (ntable == MOST_TABLES) bug("auto", "a variable with too many tables");
  }
  struct cost_table *to = new_table(t, nscope, scope);
  const size_t cells = cells_of(t, to);
  GROW(t->decision, t->ndecision, t->decision_room);
  struct elimination *d = &t->decision[t->ndecision++];
  *d = (struct elimination){.variable = variable, .n = nscope};
  memcpy(d->neighbour, scope, sizeof scope);
  d->value = table_memory(cells, sizeof *d->value);
  double *sum = table_memory((size_t)size, sizeof *sum);
  int at[MOST_SCOPE] = {0};
  for (size_t c = 0; c < cells; c++) {
    const double *all = sum;
    if (!ntable) memset(sum, 0, (size_t)size * sizeof *sum);
    if (ntable == 1) all = with[0].cost + with[0].where;
    if (ntable > 1)
      add_tables(sum, with[0].cost + with[0].where, with[1].cost + with[1].where, size);
    for (int k = 2; k < ntable; k++) add_tables(sum, sum, with[k].cost + with[k].where, size);
    const double least = least_of_list(all, size);
    int best = 0;
    while (all[best] != least) best++;
    to->cost[c] = least;
    d->value[c] = (uint16_t)best;
    for (int i = nscope - 1; i >= 0; i--) {
      const bool is_over = ++at[i] == t->size[scope[i]];
      for (int k = 0; k < ntable; k++)
        with[k].where += is_over ? 0 - with[k].stride[i] * (size_t)(at[i] - 1) : with[k].stride[i];
      if (!is_over) break;
      at[i] = 0;
    }
  }
  for (int k = 0; k < ntable; k++) free(with[k].cost);
  free(sum);
}

/* Leaves the variable out of all tables: it has this value. */
static void fix(struct cost_tables *t, int variable, int value)
{
  for (int k = 0; k < t->ntable; k++) {
    struct cost_table *x = &t->table[k];
    if (x->is_gone || !has_variable(x, variable)) continue;
    int order[MOST_SCOPE];
    double *last = with_last(t, x, variable, order);
    const size_t cells = cells_of(t, x) / (size_t)t->size[variable];
    for (size_t c = 0; c < cells; c++)
      x->cost[c] = last[c * (size_t)t->size[variable] + (size_t)value];
    free(last);
    x->n--;
    memcpy(x->variable, order, sizeof order);
  }
  GROW(t->decision, t->ndecision, t->decision_room);
  t->decision[t->ndecision++] = (struct elimination){.variable = variable, .fixed = value};
}

/* The value with the least cost, if each table is as cheap as it can be. */
static int likely_value(const struct cost_tables *t, int variable)
{
  const int size = t->size[variable];
  double *sum = table_memory((size_t)size, sizeof *sum);
  for (int v = 0; v < size; v++) sum[v] = 0;
  for (int k = 0; k < t->ntable; k++) {
    const struct cost_table *x = &t->table[k];
    if (x->is_gone || !has_variable(x, variable)) continue;
    int order[MOST_SCOPE];
    double *last = with_last(t, x, variable, order);
    const size_t cells = cells_of(t, x) / (size_t)size;
    for (int v = 0; v < size; v++) {
      double least = INFINITY;
      for (size_t c = 0; c < cells; c++)
        if (last[c * (size_t)size + (size_t)v] < least) least = last[c * (size_t)size + (size_t)v];
      sum[v] += least;
    }
    free(last);
  }
  int best = 0;
  for (int v = 1; v < size; v++)
    if (sum[v] < sum[best]) best = v;
  free(sum);
  return best;
}

bool eliminate(struct cost_tables *t, int *value, double *least)
{
  bool *is_gone = alloc((size_t)(t->nvariable + 1) * sizeof *is_gone);
  double *work = alloc((size_t)(t->nvariable + 1) * sizeof *work);
  enum { ANEW = -1 };
  for (int v = 0; v < t->nvariable; v++) work[v] = ANEW;
  for (int left = t->nvariable; left > 0; left--) {
    int best = NONE;
    for (int v = 0; v < t->nvariable; v++) {
      if (is_gone[v]) continue;
      int list[MOST_SCOPE];
      if (work[v] == ANEW) {
        const int n = neighbours(t, v, list);
        double cells = 1;
        for (int i = 0; i < n && n < MOST_SCOPE; i++) cells *= t->size[list[i]];
        work[v] = n == MOST_SCOPE || cells > MOST_CELLS ? INFINITY : cells * t->size[v];
      }
      if (best == NONE || work[v] < work[best]) best = v;
    }
    int list[MOST_SCOPE];
    const int n = neighbours(t, best, list);
    if (work[best] > MOST_WORK) {
      /* The variable with the most values leaves the most behind. */
      for (int v = 0; v < t->nvariable; v++)
        if (!is_gone[v] && t->size[v] > t->size[best]) best = v;
      fix(t, best, likely_value(t, best));
      t->is_exact = false;
      for (int v = 0; v < t->nvariable; v++) work[v] = ANEW;
    } else {
      eliminate_one(t, best);
      for (int i = 0; i < n; i++) work[list[i]] = ANEW;
    }
    is_gone[best] = true;
  }
  *least = 0;
  for (int k = 0; k < t->ntable; k++)
    if (!t->table[k].is_gone) *least += t->table[k].cost[0];
  for (int k = t->ndecision; k-- > 0;) {
    const struct elimination *d = &t->decision[k];
    size_t where = 0;
    for (int i = 0; i < d->n; i++)
      where = where * (size_t)t->size[d->neighbour[i]] + (size_t)value[d->neighbour[i]];
    value[d->variable] = d->value ? d->value[where] : d->fixed;
  }
  return t->is_exact;
}

void free_tables(struct cost_tables *t)
{
  for (int k = 0; k < t->ntable; k++) free(t->table[k].cost);
  for (int k = 0; k < t->ndecision; k++) free(t->decision[k].value);
}
