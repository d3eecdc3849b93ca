/* choose.c: the cheapest placements within a limit of the parameters that a rank keeps.

   A price for each byte of parameters makes placements that keep fewer of them cheaper. The least
   price with which they fit is found by halving. */
#include "auto/auto.h"

#include <math.h>

enum { MOST_HALVINGS = 30, MOST_BRANCHES = 60, MOST_BOUNDS = 24 };

static double cost_without_price(const struct solution *s, double price)
{
  return s->cost - price * s->parameters;
}

struct choosing {
  struct search_for what;
  double limit;
  struct solution best;
  double least;          /* its cost, without the price */
  struct solution above; /* one that costs less, and keeps too much */
  int left;              /* how many more may be solved */
  struct kept_bound bound[MOST_BOUNDS];
};

static void take_if_better(struct choosing *c, const struct solution *s)
{
  const double cost = cost_without_price(s, c->what.price);
  if (s->parameters > c->limit || cost >= c->least) return;
  c->best = *s;
  c->least = cost;
}

/* A parameter, without bounds yet, whose parts differ in the two solutions; or NONE. */
static int differing_parameter(const struct choosing *c, int nbound, const struct solution *a,
                               const struct solution *b)
{
  for (int i = 0; i < graph->nvalue; i++) {
    bool has = a->kept[i] == b->kept[i];
    for (int k = 0; k < nbound && !has; k++) has = c->bound[k].parameter == i;
    if (!has) return i;
  }
  return NONE;
}

/* All solutions within these bounds, as far as one may be better than the best one: those that keep
   at most so much of a parameter, and those that keep more. With a price no solution within the
   limit costs less than the cheapest one with the price, less the price of the limit. */
static void branch(struct choosing *c, int nbound)
{
  c->what.nbound = nbound;
  c->what.bound = c->bound;
  if (--c->left < 0) return;
  const struct solution s = solve_placements(&c->what);
  if (s.cost - c->what.price * c->limit >= c->least * (1 - 1e-9)) return;
  take_if_better(c, &s);
  if (s.parameters > c->limit) c->above = s;
  const int parameter = differing_parameter(c, nbound, &c->best, &c->above);
  if (parameter == NONE || nbound == MOST_BOUNDS) return;
  const double a = c->above.kept[parameter], b = c->best.kept[parameter], at = a < b ? a : b;
  c->bound[nbound] = (struct kept_bound){parameter, 0, at};
  branch(c, nbound + 1);
  c->bound[nbound] = (struct kept_bound){parameter, at + 1, INFINITY};
  branch(c, nbound + 1);
}

/* The search has room for so many dimensions of more than one rank. */
static void check_dimensions(const struct automatic *a)
{
  int n = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) n += a->dims >> d & 1 && graph->mesh.size[d] > 1;
  if (n > MOST_DIMS)
    plan_error(
        a->line,
        "auto() chooses over at most %d dimensions of the mesh, not %d: join some of them, or give "
        "it one, as in mesh.%s",
        MOST_DIMS, n, printable(graph->mesh.name[0]));
}

struct solution choose_placements(const struct search_for *what)
{
  const struct automatic *a = what->asked;
  check_dimensions(a);
  static const double MOST_PRICE = 1e6;
  struct choosing *c = alloc(sizeof *c);
  *c = (struct choosing){
      .what = *what, .limit = (double)a->parameters, .least = INFINITY, .left = MOST_BRANCHES};
  struct solution s = solve_placements(&c->what);
  if (!a->parameters || s.parameters <= c->limit) return s;
  c->above = s;
  double low = 0, high = 1e-3;
  for (;; low = high, high *= 16) {
    c->what.price = high;
    s = solve_placements(&c->what);
    if (s.parameters <= c->limit || high >= MOST_PRICE) break;
    c->above = s;
  }
  if (s.parameters > c->limit)
    plan_error(a->line,
               "auto: parameters = %.0f bytes: whatever is cut, a rank keeps %.0f bytes of "
               "parameters: more ranks, or a higher limit",
               c->limit, s.parameters);
  take_if_better(c, &s);
  for (int i = 0; i < MOST_HALVINGS && high - low > 1e-4 * high && high > 1e-9; i++) {
    const double middle = low > 0 ? sqrt(low * high) : high / 16;
    c->what.price = middle;
    s = solve_placements(&c->what);
    take_if_better(c, &s);
    if (s.parameters > c->limit) c->above = s;
    *(s.parameters > c->limit ? &low : &high) = middle;
  }
  if (s.space.ndim > 2) return c->best;
  c->what.price = high;
  branch(c, 0);
  if (c->left < 0) ended_early("auto", "placements within a limit", MOST_BRANCHES, "solutions");
  return c->best;
}

double least_parameters(const struct automatic *a)
{
  const struct search_for what = {.asked = a, .price = 1e6, .caution = 1.01};
  return solve_placements(&what).parameters;
}

bool same_solutions(const struct solution *a, const struct solution *b)
{
  for (int i = 0; i < a->folded.nnode; i++) {
    if (a->has_home[i] != b->has_home[i]) return false;
    const struct home *x = &a->home[i], *y = &b->home[i];
    if (a->has_home[i] &&
        (x->layout != y->layout || x->pending != y->pending || x->gathered != y->gathered))
      return false;
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (a->made_as[i] != b->made_as[i]) return false;
  return true;
}
