/* choose.c: the cheapest placements within a limit of the parameters that a rank keeps.

   A price for each byte of parameters makes placements that keep fewer of them cheaper. The least
   price with which they fit is found by halving. */
#include "auto/auto.h"

#include <math.h>

static double cost_without_price(const struct solution *s, double price)
{
  return s->cost - price * s->parameters;
}

struct solution choose_placements(const struct automatic *a, double caution)
{
  enum { MOST_TRIED = 40 };
  static const double MOST_PRICE = 1e6;
  struct solution s = solve_placements(a, 0, caution);
  if (!a->parameters || s.parameters <= (double)a->parameters) return s;
  const double limit = (double)a->parameters;
  double low = 0, high = 1e-3;
  struct solution best = solve_placements(a, high, caution);
  while (best.parameters > limit && high < MOST_PRICE) {
    low = high;
    high *= 16;
    best = solve_placements(a, high, caution);
  }
  if (best.parameters > limit)
    plan_error(a->line,
               "auto: parameters = %.0f bytes: whatever is cut, a rank keeps %.0f bytes of "
               "parameters: more ranks, or a higher limit",
               limit, best.parameters);
  double least = cost_without_price(&best, high);
  for (int i = 0; i < MOST_TRIED && high - low > 1e-6 * high; i++) {
    const double middle = low > 0 ? sqrt(low * high) : high / 16;
    const struct solution now = solve_placements(a, middle, caution);
    if (now.parameters > limit) {
      low = middle;
      continue;
    }
    if (cost_without_price(&now, middle) < least) {
      best = now;
      least = cost_without_price(&now, middle);
    }
    high = middle;
    if (high < 1e-9) break;
  }
  best.cost = least;
  return best;
}

bool same_solutions(const struct solution *a, const struct solution *b)
{
  for (int i = 0; i < a->folded.nnode; i++) {
    if (a->has_home[i] != b->has_home[i]) return false;
    const struct home *x = &a->home[i], *y = &b->home[i];
    if (a->has_home[i] && (x->layout != y->layout || x->pending != y->pending ||
                           x->gathered != y->gathered))
      return false;
  }
  for (int i = 0; i < graph->nvalue; i++)
    if (a->made_as[i] != b->made_as[i]) return false;
  return true;
}
