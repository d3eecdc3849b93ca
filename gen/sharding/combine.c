/* combine.c: the cheapest combination of choices, one for each dimension of the mesh, for an
   operation. It counts the least that the next operation costs after it.

   The price of a combination is the sum of its operands' prices. An operand's price depends on its
   own layout alone. The operands of 100,000 combinations have some hundred layouts each: each
   layout gets a number, with a digit for each dimension of the mesh, and is priced once, on first
   use.

   The price of the next operation is computed for as few combinations as possible: for the cheapest
   first, until the next one alone costs more than the best total so far; and once for all
   combinations that leave the output in the same layout. */
#include "sharding/sharding.h"

#include <math.h>
#include <string.h>

/* How many combinations are weighed for an operation, and each time for the next one. With fewer
   choices than this on each dimension of the mesh, the next operation's price is too uncertain. */
enum { MOST_COMBINATIONS = 100000, MOST_AHEAD = 1500, FEWEST_AHEAD = 4 };
/* Up to this many layouts, by all choices, prices are kept for when the operation is asked
   again. */
enum { MOST_NUMBERS = 1 << 15 };

static bool cheaper(struct price a, struct price b)
{
  if (a.refused != b.refused) return a.refused < b.refused;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.sums != b.sums) return a.sums < b.sums;
  if (a.moves != b.moves) return a.moves < b.moves;
  return a.apart < b.apart;
}

static void add_up(struct price *sum, const struct price *p)
{
  sum->bytes += p->bytes;
  sum->sums += p->sums;
  sum->moves += p->moves;
  sum->apart += p->apart;
  sum->refused += p->refused;
}

/* ------------------------------------------------------------------------------- the shortlists */

/* The choices that are tried on each dimension of the mesh: all; or, with too many combinations,
   the cheapest on that dimension alone. */
struct shortlist {
  int n[MAX_MESH], pick[MAX_MESH][MAX_CHOICES];
};

static int most_choices(int combinations)
{
  int active = 0, most = MAX_CHOICES;
  for (int d = 0; d < graph->mesh.ndim; d++) active += graph->mesh.size[d] > 1;
  for (; most > 2; most--) {
    int64_t n = 1;
    for (int k = 0; k < active; k++) n *= most;
    if (n <= combinations) break;
  }
  return most;
}

/* The price of a choice on mesh dimension d, with everything else as it is. */
static struct price price_alone(const struct op *op, const struct choice *c, int d)
{
  struct price sum = {0};
  for (int o = 0; o < op->nin + op->nout; o++) {
    struct layout layout = {0};
    bool input = o < op->nin;
    if (input) layout = graph->value[op->in[o]].layout;
    layout.on[d] = input ? c->in[o] : c->out[o - op->nin];
    struct price p = price_of_operand(op, o, input ? usual_turns(layout) : layout);
    add_up(&sum, &p);
  }
  return sum;
}

static void shorten(const struct op *op, const struct choice *list, int d, int most,
                    struct shortlist *s)
{
  struct price price[MAX_CHOICES];
  for (int i = 0; i < s->n[d]; i++) {
    struct price p = price_alone(op, &list[i], d);
    int at = i;
    for (; at > 0 && cheaper(p, price[at - 1]); at--) {
      price[at] = price[at - 1];
      s->pick[d][at] = s->pick[d][at - 1];
    }
    price[at] = p;
    s->pick[d][at] = i;
  }
  s->n[d] = most;
  /* Back in rule.c's order, which breaks ties. */
  for (int i = 1; i < most; i++)
    for (int k = i, pick = s->pick[d][i]; k > 0 && pick < s->pick[d][k - 1]; k--) {
      s->pick[d][k] = s->pick[d][k - 1];
      s->pick[d][k - 1] = pick;
    }
}

/* The choice that takes the inputs as they are on one dimension of the mesh, or NONE. */
static int choice_as_it_lies(const struct op *op, const struct choice *list, int n, int d)
{
  for (int c = 0; c < n; c++) {
    bool lies = counts_own(op, &list[c], d);
    for (int i = 0; i < op->nin; i++)
      lies &= same_placement(list[c].in[i], graph->value[op->in[i]].layout.on[d]);
    if (lies) return c;
  }
  return NONE;
}

static int choice_of_all_whole(const struct op *op, const struct choice *list, int n)
{
  for (int c = 0; c < n; c++) {
    bool whole = true;
    for (int i = 0; i < op->nin; i++) whole &= list[c].in[i].kind == REPLICATE;
    for (int k = 0; k < op->nout; k++) whole &= list[c].out[k].kind == REPLICATE;
    if (whole) return c;
  }
  return 0;
}

static int only_choice(const struct op *op, const struct choice *list, int n, int d)
{
  if (is_over_stages(d)) return choice_of_all_whole(op, list, n); /* it is cut over others */
  if (graph->mesh.in_time[d]) return choice_in_time(op, list, n);
  return goes_around(op, d) ? choice_as_it_lies(op, list, n, d) : NONE;
}

static bool all_as_it_lies(const struct op *op, const struct letters *l, const struct choice *list,
                           int n, int *pick)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    pick[d] =
        graph->mesh.in_time[d] ? choice_in_time(op, list, n) : choice_as_it_lies(op, list, n, d);
    if (pick[d] == NONE) return false;
  }
  return op->nin && fits_together(l, op->nin, list, pick);
}

static bool is_reachable(const struct op *op, const struct choice *c, int d)
{
  for (int i = 0; i < op->nin; i++)
    if (!leads_to(graph->value[op->in[i]].layout.on[d], c->in[i])) return false;
  return counts_own(op, c, d);
}

/* Keeps only the choices that the engine may take without a request of the plan. */
static struct shortlist shortlist_of(const struct op *op, const struct letters *l,
                                     const struct choice *list, int n, int combinations)
{
  struct shortlist s = {.n = {0}};
  int most = most_choices(combinations), lies[MAX_MESH];
  bool runs = all_as_it_lies(op, l, list, n, lies);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    s.n[d] = graph->mesh.size[d] > 1 ? n : 1;
    for (int i = 0; i < n; i++) s.pick[d][i] = i;
    int only = only_choice(op, list, n, d), as_it_lies = runs ? lies[d] : NONE;
    if (as_it_lies != NONE && list[as_it_lies].letter == NONE) as_it_lies = NONE;
    int pick = only != NONE ? only : as_it_lies;
    if (pick != NONE) s.n[d] = 1, s.pick[d][0] = pick;
    if (only != NONE) continue;
    if (s.n[d] > most && combinations == MOST_COMBINATIONS)
      ended_early("propagate", "the cheapest way of an operation", combinations, "combinations");
    if (s.n[d] > most) shorten(op, list, d, most, &s);
    int kept = 0;
    for (int i = 0; i < s.n[d]; i++)
      if (is_reachable(op, &list[s.pick[d][i]], d)) s.pick[d][kept++] = s.pick[d][i];
    s.n[d] = kept;
  }
  return s;
}

/* ----------------------------------------------------------------------------- the combinations */

enum { MAX_OPERANDS = MAX_INPUTS + MAX_OUTPUTS };

/* The price of an operand in one layout, valid if `asked` is the operand's. */
struct entry {
  unsigned asked;
  bool fits;
  struct price price;
};

struct operand {
  int digit[MAX_MESH][MAX_CHOICES]; /* by choice: what it adds to the layout's number */
  int numbers;                      /* of layouts */
  unsigned asked;
  int nfree, free[MAX_INPUTS]; /* the numbers of the layouts that cost nothing */
  int room;
  struct entry *entry; /* by the layout's number */
};

/* All combinations for an operation, and their prices. A combination is given by places in the
   shortlists, of which that of the last mesh dimension varies first. */
struct combinations {
  const struct op *op;
  const struct letters *letters;
  int nchoices;
  struct choice list[MAX_CHOICES];
  struct shortlist shortlist;
  int n, noperands;       /* n: how many combinations */
  bool by_choice;         /* layouts have their numbers by all choices */
  int turn[MAX_OPERANDS]; /* the operands in the order in which they are priced */
  struct operand operand[MAX_OPERANDS];
};

static struct placement placement_of(const struct combinations *c, int choice, int o)
{
  return o < c->op->nin ? c->list[choice].in[o] : c->list[choice].out[o - c->op->nin];
}

/* Whether both choices are the same for an operand. For a merged dimension it matters which
   letter is cut. */
static bool same_digit(const struct combinations *c, int a, int b, int o, bool merged)
{
  struct placement p = placement_of(c, a, o), q = placement_of(c, b, o);
  if (merged && p.kind == SHARD && c->list[a].letter != c->list[b].letter) return false;
  return same_placement(p, q);
}

static bool has_merged(const struct letters *l, int o, int nin)
{
  const struct axis *axis = o < nin ? l->in[o] : l->out[o - nin];
  int ndim = o < nin ? l->ndim_in[o] : l->ndim_out[o - nin];
  for (int d = 0; d < ndim; d++)
    if (axis[d].n > 1) return true;
  return false;
}

/* Numbers the layouts that the o-th operand may get by choices in the shortlists, or by all
   choices. False if there are too many. */
static bool number_layouts(struct combinations *c, int o, bool all_choices)
{
  const struct shortlist *s = &c->shortlist;
  bool merged = has_merged(c->letters, o, c->op->nin);
  int64_t weight = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    bool all = all_choices && graph->mesh.size[d] > 1;
    int *digit = c->operand[o].digit[d], digits = 0;
    for (int i = 0, n = all ? c->nchoices : s->n[d]; i < n; i++) {
      int k = 0, choice = all ? i : s->pick[d][i], like = choice;
      for (; k < i; k++)
        if (same_digit(c, choice, like = all ? k : s->pick[d][k], o, merged)) break;
      digit[choice] = k < i ? digit[like] : (int)weight * digits++;
    }
    weight *= digits;
    if (all_choices && weight > MOST_NUMBERS) return false;
  }
  c->operand[o].numbers = (int)weight;
  return true;
}

/* Forgets the prices of the operand's layouts. */
static void forget(struct operand *o)
{
  static unsigned asked;
  if (o->room < o->numbers) {
    o->room = 2 * o->numbers;
    o->entry = alloc((size_t)o->room * sizeof *o->entry);
  }
  o->asked = ++asked;
}

static bool same_choices(const struct choice *a, const struct choice *b, int n, int nin, int nout)
{
  for (int i = 0; i < n; i++) {
    if (a[i].letter != b[i].letter) return false;
    for (int k = 0; k < nin; k++)
      if (!same_placement(a[i].in[k], b[i].in[k])) return false;
    for (int k = 0; k < nout; k++)
      if (!same_placement(a[i].out[k], b[i].out[k])) return false;
  }
  return true;
}

/* Replaces the combinations by those of `op`. If the previous ones were of the same operation
   (`again`), prices of operands with the same choices stay. */
static void begin_combinations(struct combinations *c, const struct op *op, const struct letters *l,
                               int most, bool again)
{
  struct choice list[MAX_CHOICES];
  int n = choices(op, l, list);
  again = again && c->by_choice && c->nchoices == n &&
          same_choices(c->list, list, n, op->nin, op->nout);
  memcpy(c->list, list, (size_t)n * sizeof *list);
  c->op = op;
  c->letters = l;
  c->nchoices = n;
  c->noperands = op->nin + op->nout;
  c->shortlist = shortlist_of(op, l, c->list, n, most);
  c->n = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) c->n *= c->shortlist.n[d];
  if (again) return;
  c->by_choice = true;
  for (int o = 0; o < c->noperands; o++) c->by_choice = c->by_choice && number_layouts(c, o, true);
  for (int o = 0; o < c->noperands; o++) {
    if (!c->by_choice) number_layouts(c, o, false);
    forget(&c->operand[o]);
    c->operand[o].nfree = 0;
    c->turn[o] = o;
  }
}

/* Notes that the operand costs nothing in this layout. */
static void set_free(struct combinations *c, int o, const struct layout *layout)
{
  const struct shortlist *s = &c->shortlist;
  struct operand *operand = &c->operand[o];
  int number = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    int i = 0;
    while (i < s->n[d] && !same_placement(placement_of(c, s->pick[d][i], o), layout->on[d])) i++;
    if (i == s->n[d]) return;
    number += operand->digit[d][s->pick[d][i]];
  }
  operand->free[operand->nfree++] = number;
}

static bool is_free(const struct operand *o, int layout)
{
  return lists_number(o->free, o->nfree, layout);
}

/* The places in the shortlists of combination `number`. */
static void find_places(const struct combinations *c, int number, int *at)
{
  for (int d = graph->mesh.ndim - 1; d >= 0; d--) {
    at[d] = number % c->shortlist.n[d];
    number /= c->shortlist.n[d];
  }
}

static struct layout layout_at(const struct combinations *c, int o, const int *at)
{
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    layout.on[d] = placement_of(c, c->shortlist.pick[d][at[d]], o);
  return layout;
}

static struct way way_at(const struct combinations *c, const int *at)
{
  struct way way;
  memset(&way, 0, sizeof way);
  for (int i = 0; i < c->op->nin; i++) way.in[i] = layout_at(c, i, at);
  for (int k = 0; k < c->op->nout; k++) way.out[k] = layout_at(c, c->op->nin + k, at);
  return way;
}

static void work_out(const struct combinations *c, int o, const int *at, struct entry *e)
{
  struct layout layout = layout_at(c, o, at);
  int pick[MAX_MESH];
  for (int d = 0; d < graph->mesh.ndim; d++) pick[d] = c->shortlist.pick[d][at[d]];
  e->asked = c->operand[o].asked;
  e->fits = operand_fits(c->letters, o, c->op->nin, layout, c->list, pick);
  if (e->fits) e->price = price_of_operand(c->op, o, layout);
}

/* A combination above this many bytes cannot be the cheapest. */
static double limit_of(bool found, struct price least)
{
  return found && !least.refused ? least.bytes : INFINITY;
}

/* A legal combination, of no more bytes than the limit. */
struct candidate {
  struct price price;
  int number;
};

/* Takes a combination, and returns the new limit of bytes. */
typedef double visitor(const struct combinations *c, const struct candidate *candidate,
                       const int *at, void *to);

/* Calls `visit` for every legal combination in turn, except those above `most` bytes. Returns
   whether there were such. */
static bool each_combination(const struct combinations *c, double most, visitor *visit, void *to)
{
  int at[MAX_MESH] = {0}, ndim = graph->mesh.ndim, changed = 0;
  int number[MAX_MESH + 1][MAX_OPERANDS] = {{0}}; /* of the layouts, before each dimension */
  bool left_out = false;
  for (int n = 0; n < c->n; n++) {
    for (int d = changed; d < ndim; d++)
      for (int o = 0; o < c->noperands; o++)
        number[d + 1][o] = number[d][o] + c->operand[o].digit[d][c->shortlist.pick[d][at[d]]];
    struct candidate candidate = {.number = n};
    bool fits = true;
    for (int k = 0; k < c->noperands && fits && candidate.price.bytes <= most; k++) {
      int o = c->turn[k], layout = number[ndim][o];
      struct entry *e = &c->operand[o].entry[layout];
      if (e->asked != c->operand[o].asked) work_out(c, o, at, e);
      fits = e->fits;
      if (fits && !is_free(&c->operand[o], layout)) add_up(&candidate.price, &e->price);
    }
    bool taken = fits && candidate.price.bytes <= most;
    left_out |= fits && !taken;
    if (taken) most = visit(c, &candidate, at, to);
    for (changed = ndim - 1; changed > 0 && ++at[changed] == c->shortlist.n[changed]; changed--)
      at[changed] = 0;
    if (changed == 0) at[0]++;
  }
  return left_out;
}

/* -------------------------------------------------------------------------- one operation ahead */

const struct op *op_ahead(const struct op *op)
{
  if (most_choices(MOST_AHEAD) >= FEWEST_AHEAD) return taken_next(op);
  ended_early("propagate", "ways that suit the next operation", MOST_AHEAD, "combinations");
  return NULL;
}

static bool share_an_input(const struct op *a, const struct op *b)
{
  for (int i = 0; i < a->nin; i++)
    for (int k = 0; k < b->nin; k++)
      if (a->in[i] == b->in[k]) return true;
  return false;
}

/* The least price of the next operation for one layout of the output: exact, or a lower bound. */
struct outlook {
  unsigned asked;
  bool is_more;
  struct price price;
};

/* The next operation, or NULL. */
struct ahead {
  const struct op *op;
  bool depends; /* its price depends on more than the output: on how an input of both was moved */
  bool again;   /* it was priced before */
  struct letters letters;
  struct combinations combinations;
  int room;
  struct outlook *known; /* by the number of the output's layout */
};

struct least {
  struct candidate candidate;
  bool found;
};

static double take_least(const struct combinations *c, const struct candidate *candidate,
                         const int *at, void *to)
{
  struct least *l = to;
  (void)c, (void)at;
  if (!l->found || cheaper(candidate->price, l->candidate.price)) l->candidate = *candidate;
  l->found = true;
  return limit_of(true, l->candidate.price);
}

/* The inputs that the next operation shares with `op` have new prices each time. `op`'s output
   is priced last. */
static void run_before(struct combinations *c, const struct op *op, const struct way *way)
{
  int first = 0, last = c->noperands;
  for (int o = 0; o < c->noperands; o++) {
    bool taken = o < c->op->nin && c->op->in[o] == op->out;
    c->turn[taken ? --last : first++] = o;
    if (taken) forget(&c->operand[o]);
    c->operand[o].nfree = 0;
    for (int i = 0; i < op->nin && o < c->op->nin; i++)
      if (c->op->in[o] == op->in[i]) set_free(c, o, &way->in[i]);
  }
}

/* With `op` run in this way: prices above so many bytes do not matter. */
static struct outlook look_ahead(struct ahead *a, const struct op *op, const struct way *way,
                                 double most)
{
  struct combinations *c = &a->combinations;
  struct least least = {.found = false};
  graph->value[op->out].layout = way->out[0];
  begin_combinations(c, a->op, &a->letters, MOST_AHEAD, a->again);
  run_before(c, op, way);
  a->again = true;
  bool left_out = each_combination(c, most, take_least, &least);
  struct outlook o = {.price = least.candidate.price};
  if (!least.found && !left_out) o.price.bytes = HUGE_VAL; /* it cannot run after that */
  o.is_more = !least.found && left_out;
  if (o.is_more) o.price.bytes = most;
  return o;
}

/* ----------------------------------------------------------------------------- the cheapest way */

/* The combinations for which the next operation must still be priced: a heap, the cheapest
   first. */
struct search {
  struct combinations combinations;
  struct ahead ahead;
  struct candidate best; /* including the next operation; number NONE: none yet */
  int n, room;
  struct candidate *heap;
};

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
  return cheaper(a->price, b->price) || (!cheaper(b->price, a->price) && a->number < b->number);
}

static double push(const struct combinations *c, const struct candidate *candidate, const int *at,
                   void *to)
{
  struct search *s = to;
  (void)c, (void)at;
  if (!cheaper(s->best.price, candidate->price)) {
    GROW(s->heap, s->n, s->room);
    int i = s->n++;
    for (; i > 0 && comes_before(candidate, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
      s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = *candidate;
  }
  return limit_of(true, s->best.price);
}

static struct candidate pop(struct search *s)
{
  struct candidate first = s->heap[0], last = s->heap[--s->n];
  int at = 0;
  for (int next; (next = 2 * at + 1) < s->n; at = next) {
    if (next + 1 < s->n && comes_before(&s->heap[next + 1], &s->heap[next])) next++;
    if (!comes_before(&s->heap[next], &last)) break;
    s->heap[at] = s->heap[next];
  }
  s->heap[at] = last;
  return first;
}

/* The price of the next operation after a combination; exact up to `most`. */
static struct outlook outlook_of(struct search *s, int number, double most)
{
  const struct combinations *c = &s->combinations;
  int at[MAX_MESH], layout = 0;
  find_places(c, number, at);
  for (int d = 0; d < graph->mesh.ndim; d++)
    layout += c->operand[c->op->nin].digit[d][c->shortlist.pick[d][at[d]]];
  unsigned asked = c->operand[c->op->nin].asked;
  struct outlook *o = &s->ahead.known[layout];
  bool is_known = o->asked == asked && !s->ahead.depends;
  if (is_known && (!o->is_more || o->price.bytes >= most)) return *o;
  struct way way = way_at(c, at);
  *o = look_ahead(&s->ahead, c->op, &way, most);
  o->asked = asked;
  return *o;
}

/* Takes the combination as the best if its total is the least. The limit is a little higher than
   the best total: sums are rounded. */
static void weigh(struct search *s, struct candidate candidate)
{
  double most = limit_of(s->best.number != NONE, s->best.price) - candidate.price.bytes;
  struct outlook o = outlook_of(s, candidate.number, most + 1e-9 * most);
  if (o.is_more) return;
  candidate.price.bytes += o.price.bytes;
  candidate.price.moves += o.price.moves;
  candidate.price.apart += o.price.apart;
  if (s->best.number == NONE || comes_before(&candidate, &s->best)) s->best = candidate;
}

static void weigh_with_ahead(struct search *s, const struct candidate *cheapest_alone)
{
  const struct combinations *c = &s->combinations;
  const int numbers = c->operand[c->op->nin].numbers;
  while (s->ahead.room < numbers)
    s->ahead.known = grow(s->ahead.known, 0, &s->ahead.room, sizeof *s->ahead.known);
  op_letters(s->ahead.op, &s->ahead.letters);
  s->ahead.again = false;
  s->ahead.depends = share_an_input(c->op, s->ahead.op);
  s->best.number = NONE;
  weigh(s, *cheapest_alone);
  s->n = 0;
  each_combination(c, limit_of(true, s->best.price), push, s);
  while (s->n > 0) {
    struct candidate next = pop(s);
    if (cheaper(s->best.price, next.price)) break;
    if (next.number != cheapest_alone->number) weigh(s, next);
  }
}

/* Everything whole is a way of any operation, but in time. */
static _Noreturn void refuse_divided_samples(const struct op *op)
{
  plan_error(op->line,
             "%s merges a dimension that microbatches = %d cut with others, and no part of the "
             "result begins where a micro-batch does on each rank: let each of them have whole "
             "groups of samples, as nn.MoE's load_batch or unflatten takes them together, by "
             "another number of micro-batches or of samples",
             printable(op_name(op)), microbatches());
}

struct way cheapest(const struct op *op, const struct letters *l)
{
  static struct search s;
  static const struct graph *of;
  if (is_other_graph(&of)) memset(&s, 0, sizeof s);
  struct least least = {.found = false};
  int at[MAX_MESH];
  begin_combinations(&s.combinations, op, l, MOST_COMBINATIONS, false);
  each_combination(&s.combinations, INFINITY, take_least, &least);
  const bool is_possible = least.found && isfinite(least.candidate.price.bytes);
  if (!least.found || (!is_possible && op->kind == OP_view)) refuse_divided_samples(op);
  s.best = least.candidate;
  s.ahead.op = is_possible ? op_ahead(op) : NULL;
  if (s.ahead.op) weigh_with_ahead(&s, &least.candidate);
  find_places(&s.combinations, s.best.number, at);
  return way_at(&s.combinations, at);
}
