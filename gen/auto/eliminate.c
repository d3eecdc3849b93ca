/* eliminate.c: the least sum of tables of costs. One variable after the other is eliminated: the
   tables that have it become one, of its neighbours, with the least over its values. Which value
   that is, is kept for the way back. Exact, as long as neither a table nor the work grows beyond a
   bound: then a variable gets the value that looks best. */
#include "auto/auto.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of one elimination; of one after so much work in all. */
static const double MOST_WORK = 4e8, MOST_IN_ALL = 1e9, MOST_LATER = 2e6, MOST_CELLS = 3e7;

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

/* Values of a variable with finite costs, and these. */
struct some_values {
  int n, *at;
  double *cost;
};

/* The values for which no row says that they cannot be, with the sum of the rows. */
static void sum_rows(struct some_values *to, const double *const *row, int nrow, int size)
{
  to->n = 0;
  for (int v = 0; v < size; v++) {
    double sum = nrow ? row[0][v] : 0;
    for (int r = 1; r < nrow; r++) sum += row[r][v];
    to->at[to->n] = v;
    to->cost[to->n] = sum;
    to->n += sum < INFINITY;
  }
}

/* The least of these costs with those of further rows: in several strands, which a processor
   follows side by side. */
static double least_with(const struct some_values *s, const double *const *row, int nrow)
{
  enum { STRANDS = 4 };
  double least[STRANDS];
  const double *first = row[0];
  for (int k = 0; k < STRANDS; k++) least[k] = INFINITY;
  int i = 0;
  for (; i + STRANDS <= s->n && nrow == 1; i += STRANDS)
    for (int k = 0; k < STRANDS; k++) {
      const double sum = s->cost[i + k] + first[s->at[i + k]];
      least[k] = sum < least[k] ? sum : least[k];
    }
  for (; i < s->n; i++) {
    double sum = s->cost[i];
    for (int r = 0; r < nrow; r++) sum += row[r][s->at[i]];
    least[0] = sum < least[0] ? sum : least[0];
  }
  for (int k = 1; k < STRANDS; k++) least[0] = least[k] < least[0] ? least[k] : least[0];
  return least[0];
}

/* Takes the tables with the variable out; returns how many cells they have. */
static size_t take_tables_of(struct cost_tables *t, int variable, const int *scope, int nscope,
                             struct elimination *d)
{
  size_t all = 0;
  int room = 0;
  for (int k = 0; k < t->ntable; k++) {
    struct cost_table *x = &t->table[k];
    if (x->is_gone || !has_variable(x, variable)) continue;
    int order[MOST_SCOPE];
    GROW(d->table, d->ntable, room);
    struct table_of_variable *w = &d->table[d->ntable++];
    *w = (struct table_of_variable){.cost = with_last(t, x, variable, order)};
    size_t below = (size_t)t->size[variable];
    for (int i = x->n - 2; i >= 0; i--) {
      for (int s = 0; s < nscope; s++)
        if (scope[s] == order[i]) w->stride[s] = below;
      below *= (size_t)t->size[order[i]];
    }
    all += below;
    x->is_gone = true;
    free(x->cost);
    x->cost = NULL;
  }
  return all;
}

/* Tables without the last neighbour come first; returns how many they are. */
static int put_last_apart(struct elimination *d)
{
  int n = 0;
  for (int k = 0; k < d->ntable; k++) {
    const struct table_of_variable w = d->table[k];
    if (d->n && w.stride[d->n - 1]) continue;
    for (int i = k; i > n; i--) d->table[i] = d->table[i - 1];
    d->table[n++] = w;
  }
  return n;
}

static void free_tables_of(struct elimination *d)
{
  for (int k = 0; k < d->ntable; k++) free(d->table[k].cost);
  d->ntable = 0;
}

/* The first place with the least sum of n rows. */
static int first_least(const double *const *row, int n, int size)
{
  int best = 0;
  double least = INFINITY;
  for (int v = 0; v < size; v++) {
    double sum = row[0][v];
    for (int r = 1; r < n; r++) sum += row[r][v];
    if (sum < least) least = sum, best = v;
  }
  return best;
}

/* Puts one table in the place of those with the variable. Its value follows from these later, or,
   where they are large, is found here for each cell. */
static void eliminate_one(struct cost_tables *t, int variable)
{
  static const size_t MOST_KEPT = 1 << 23;
  int scope[MOST_SCOPE], nscope = neighbours(t, variable, scope);
  const int size = t->size[variable];
  struct elimination d = {.variable = variable, .n = nscope};
  memcpy(d.neighbour, scope, sizeof scope);
  const size_t taken = take_tables_of(t, variable, scope, nscope, &d);
  struct cost_table *to = new_table(t, nscope, scope);
  const size_t cells = cells_of(t, to);
  const bool is_kept = d.ntable && t->kept_cells + taken <= MOST_KEPT;
  if (!is_kept) d.value = table_memory(cells, sizeof *d.value);
  const int apart = put_last_apart(&d);
  const double **row = alloc((size_t)(d.ntable + 1) * sizeof *row);
  for (int k = 0; k < d.ntable; k++) row[k] = d.table[k].cost;
  struct some_values some = {.at = alloc((size_t)(size + 1) * sizeof *some.at),
                             .cost = alloc((size_t)(size + 1) * sizeof *some.cost)};
  int at[MOST_SCOPE] = {0};
  for (size_t c = 0; c < cells; c++) {
    if (!nscope || !at[nscope - 1]) sum_rows(&some, row, apart, size);
    to->cost[c] = d.ntable ? least_with(&some, row + apart, d.ntable - apart) : 0;
    if (!is_kept) d.value[c] = (uint16_t)(d.ntable ? first_least(row, d.ntable, size) : 0);
    for (int i = nscope - 1; i >= 0; i--) {
      const bool is_over = ++at[i] == t->size[scope[i]];
      for (int k = 0; k < d.ntable; k++) {
        const ptrdiff_t stride = (ptrdiff_t)d.table[k].stride[i];
        row[k] += is_over ? -stride * (at[i] - 1) : stride;
      }
      if (!is_over) break;
      at[i] = 0;
    }
  }
  if (is_kept)
    t->kept_cells += taken;
  else
    free_tables_of(&d);
  GROW(t->decision, t->ndecision, t->decision_room);
  t->decision[t->ndecision++] = d;
}

/* The value of an eliminated variable, by those of its neighbours. */
static int decided_value(const struct cost_tables *t, const struct elimination *d, const int *value)
{
  if (!d->value && !d->ntable) return d->fixed;
  if (d->value) {
    size_t where = 0;
    for (int i = 0; i < d->n; i++)
      where = where * (size_t)t->size[d->neighbour[i]] + (size_t)value[d->neighbour[i]];
    return d->value[where];
  }
  const double **row = alloc((size_t)d->ntable * sizeof *row);
  for (int k = 0; k < d->ntable; k++) {
    row[k] = d->table[k].cost;
    for (int i = 0; i < d->n; i++) row[k] += d->table[k].stride[i] * (size_t)value[d->neighbour[i]];
  }
  return first_least(row, d->ntable, t->size[d->variable]);
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
  double all = 0;
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
    if (work[best] > (all < MOST_IN_ALL ? MOST_WORK : MOST_LATER)) {
      /* The variable with the most values leaves the most behind. */
      for (int v = 0; v < t->nvariable; v++)
        if (!is_gone[v] && t->size[v] > t->size[best]) best = v;
      fix(t, best, likely_value(t, best));
      t->is_exact = false;
      for (int v = 0; v < t->nvariable; v++) work[v] = ANEW;
    } else {
      all += work[best];
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
    value[d->variable] = decided_value(t, d, value);
  }
  return t->is_exact;
}

void free_tables(struct cost_tables *t)
{
  for (int k = 0; k < t->ntable; k++) free(t->table[k].cost);
  for (int k = 0; k < t->ndecision; k++) {
    free(t->decision[k].value);
    free_tables_of(&t->decision[k]);
  }
}
