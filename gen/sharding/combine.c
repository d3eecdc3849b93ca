/* combine.c: the cheapest combination of choices, one for each dimension of the mesh, for an
   operation. It includes the least cost of the next operation after it.

   The price of a combination is the sum of its operands' prices. An operand's price depends on its
   own layout only. The operands of 100,000 combinations have some hundred layouts each: each
   layout has an index, to which each dimension of the mesh adds its part, and is priced once, on
   first use.

   The price of the next operation is computed for as few combinations as possible: for the cheapest
   first, until the next one by itself costs more than the best total so far; and once for all
   combinations that leave the output in the same layout. */
#include "sharding/sharding.h"

#include <math.h>
#include <string.h>

/* With fewer choices than this on each dimension of the mesh, the next operation's price is too
   uncertain. */
enum { FEWEST_AHEAD = 4 };
/* Up to this many layouts, by all choices, prices are kept for when the operation is asked
   again. */
enum { MOST_NUMBERS = 1 << 15 };
enum { MAX_OPERANDS = MAX_INPUTS + MAX_OUTPUTS };

/* The price of an operand in one layout, valid if `stamp` is the operand's. */
struct entry {
  unsigned stamp;
  bool fits;
  struct price price;
};

struct operand {
  int offset[MAX_MESH][MAX_CHOICES]; /* by choice: what it adds to the layout's number */
  int numbers;                       /* of layouts */
  unsigned stamp;
  int nfree, free[MAX_INPUTS]; /* the numbers of the layouts that cost nothing */
  int room;
  struct entry *entry; /* by the layout's number */
};

/* The choices that are tried on each dimension of the mesh: all; or, with too many combinations,
   the cheapest on that dimension by itself. */
struct candidates {
  int n[MAX_MESH], pick[MAX_MESH][MAX_CHOICES];
};

/* All combinations for an operation, and their prices. A combination is given by places in the
   lists of candidates; the place of the last mesh dimension varies first. */
struct combinations {
  struct chooser *chooser;
  const struct op *op;
  const struct letters *letters;
  int nchoices;
  struct choice list[MAX_CHOICES];
  struct candidates candidates;
  int n, noperands;        /* n: how many combinations */
  bool by_choice;          /* layouts have their numbers by all choices */
  int order[MAX_OPERANDS]; /* the operands in the order in which they are priced */
  struct operand operand[MAX_OPERANDS];
};

/* A legal combination, and its price. */
struct combination {
  struct price price;
  int number;
};

/* The least price of the next operation for one layout of the output: exact, or a lower bound. */
struct lookahead {
  unsigned stamp;
  bool is_bound;
  struct price price;
};

/* The search for one operation; its memory serves for the next one. */
struct sharding_search {
  struct combinations combinations;
  struct combination best; /* including the next operation; number NONE: none yet */
  /* The combinations for which the next operation must still be priced: a heap, the cheapest
     first. */
  int n, room;
  struct combination *heap;
  unsigned stamps; /* how many have been given */
  /* The next operation, or NULL. */
  const struct op *next;
  bool depends; /* its price depends on more than the output: on how an input of both was moved */
  bool again;   /* it was priced before */
  struct letters letters;
  struct combinations after;
  int known_room;
  struct lookahead *known; /* by the number of the output's layout */
};

static bool cheaper(struct price a, struct price b)
{
  if (a.refused != b.refused) return a.refused < b.refused;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.sums != b.sums) return a.sums < b.sums;
  if (a.moves != b.moves) return a.moves < b.moves;
  return a.apart < b.apart;
}

static void add_to_price(struct price *sum, const struct price *p)
{
  sum->bytes += p->bytes;
  sum->sums += p->sums;
  sum->moves += p->moves;
  sum->apart += p->apart;
  sum->refused += p->refused;
}

/* ------------------------------------------------------------------------------ the candidates */

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

/* Keeps the `most` cheapest choices on mesh dimension d, with everything else as it is. */
static void shorten(const struct combinations *c, int d, int most, struct candidates *s)
{
  const struct op *op = c->op;
  struct price price[MAX_CHOICES];
  for (int i = 0; i < s->n[d]; i++) {
    struct price sum = {0};
    for (int o = 0; o < op->nin + op->nout; o++) {
      struct layout layout = {0};
      bool input = o < op->nin;
      if (input) layout = *layout_in(c->chooser, op->in[o]);
      layout.on[d] = input ? c->list[i].in[o] : c->list[i].out[o - op->nin];
      struct price p =
          price_of_operand(c->chooser, op, o, input ? usual_cut_order(layout) : layout);
      add_to_price(&sum, &p);
    }
    int at = i;
    for (; at > 0 && cheaper(sum, price[at - 1]); at--) {
      price[at] = price[at - 1];
      s->pick[d][at] = s->pick[d][at - 1];
    }
    price[at] = sum;
    s->pick[d][at] = i;
  }
  s->n[d] = most;
  /* Back in the order of choices.c, which breaks ties. */
  for (int i = 1; i < most; i++)
    for (int k = i, pick = s->pick[d][i]; k > 0 && pick < s->pick[d][k - 1]; k--) {
      s->pick[d][k] = s->pick[d][k - 1];
      s->pick[d][k - 1] = pick;
    }
}

/* The choice that takes the inputs as they are on one dimension of the mesh, or NONE. */
static int choice_of_inputs(const struct combinations *c, int d)
{
  for (int i = 0; i < c->nchoices; i++) {
    bool same = counts_own(c->chooser, c->op, &c->list[i], d);
    for (int k = 0; k < c->op->nin; k++)
      same &= same_placement(c->list[i].in[k], layout_in(c->chooser, c->op->in[k])->on[d]);
    if (same) return i;
  }
  return NONE;
}

/* The choice that a dimension of the mesh prescribes, or NONE. */
static int only_choice(const struct combinations *c, int d)
{
  if (graph->mesh.microbatch_axis[d])
    return microbatch_choice(c->chooser, c->op, c->list, c->nchoices);
  if (!is_over_stages(d)) return goes_around(c->op, d) ? choice_of_inputs(c, d) : NONE;
  for (int i = 0; i < c->nchoices; i++) { /* everything whole: it is cut over other dimensions */
    bool whole = true;
    for (int k = 0; k < c->op->nin; k++) whole &= c->list[i].in[k].kind == REPLICATE;
    for (int k = 0; k < c->op->nout; k++) whole &= c->list[i].out[k].kind == REPLICATE;
    if (whole) return i;
  }
  return 0;
}

/* Keeps only the choices that may be taken without a request of the plan. If the operation can run
   on its inputs as they are, it does so where it is cut. */
static struct candidates find_candidates(const struct combinations *c, int combinations)
{
  const struct op *op = c->op;
  const int ndim = graph->mesh.ndim, n = c->nchoices;
  struct candidates s = {.n = {0}};
  int most = most_choices(combinations), as_is[MAX_MESH] = {0};
  bool runs = op->nin > 0;
  for (int d = 0; d < ndim && runs; d++) {
    as_is[d] = graph->mesh.microbatch_axis[d] ? microbatch_choice(c->chooser, op, c->list, n)
                                              : choice_of_inputs(c, d);
    runs = as_is[d] != NONE;
  }
  runs = runs && fits_together(c->letters, op->nin, c->list, as_is);
  for (int d = 0; d < ndim; d++) {
    s.n[d] = graph->mesh.size[d] > 1 ? n : 1;
    for (int i = 0; i < n; i++) s.pick[d][i] = i;
    int only = only_choice(c, d);
    int cut = runs && c->list[as_is[d]].letter != NONE ? as_is[d] : NONE;
    int pick = only != NONE || c->chooser->takes_any ? only : cut;
    if (pick != NONE) s.n[d] = 1, s.pick[d][0] = pick;
    if (only != NONE) continue;
    if (s.n[d] > most && combinations == MOST_COMBINATIONS)
      c->chooser->ended_early |= TOO_MANY_COMBINATIONS;
    if (s.n[d] > most) shorten(c, d, most, &s);
    int kept = 0;
    for (int i = 0; i < s.n[d]; i++) {
      const struct choice *choice = &c->list[s.pick[d][i]];
      bool may = counts_own(c->chooser, op, choice, d);
      for (int k = 0; k < op->nin && may; k++)
        may = leads_to(layout_in(c->chooser, op->in[k])->on[d], choice->in[k]);
      if (may) s.pick[d][kept++] = s.pick[d][i];
    }
    s.n[d] = kept;
  }
  return s;
}

/* ---------------------------------------------------------------------------- the combinations */

static struct placement placement_of(const struct combinations *c, int choice, int o)
{
  return o < c->op->nin ? c->list[choice].in[o] : c->list[choice].out[o - c->op->nin];
}

/* Numbers the layouts that the o-th operand may get by the candidates, or by all choices. False if
   there are too many. */
static bool number_layouts(struct combinations *c, int o, bool all_choices)
{
  const struct candidates *s = &c->candidates;
  const int nin = c->op->nin;
  const struct axis *axis = o < nin ? c->letters->in[o] : c->letters->out[o - nin];
  int naxis = o < nin ? c->letters->ndim_in[o] : c->letters->ndim_out[o - nin];
  bool merged = false; /* then it matters which letter of a dimension is cut */
  int64_t stride = 1;
  for (int d = 0; d < naxis; d++) merged |= axis[d].n > 1;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    bool all = all_choices && graph->mesh.size[d] > 1;
    int *offset = c->operand[o].offset[d], distinct = 0;
    for (int i = 0, n = all ? c->nchoices : s->n[d]; i < n; i++) {
      int k = 0, choice = all ? i : s->pick[d][i], like = choice;
      struct placement p = placement_of(c, choice, o);
      for (; k < i; k++) {
        like = all ? k : s->pick[d][k];
        if (merged && p.kind == SHARD && c->list[choice].letter != c->list[like].letter) continue;
        if (same_placement(p, placement_of(c, like, o))) break;
      }
      offset[choice] = k < i ? offset[like] : (int)stride * distinct++;
    }
    stride *= distinct;
    if (all_choices && stride > MOST_NUMBERS) return false;
  }
  c->operand[o].numbers = (int)stride;
  return true;
}

/* Forgets the prices of the operand's layouts. */
static void forget_prices(struct sharding_search *s, struct operand *o)
{
  if (o->room < o->numbers) {
    o->room = 2 * o->numbers;
    o->entry = alloc((size_t)o->room * sizeof *o->entry);
  }
  o->stamp = ++s->stamps;
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
static void set_combinations(struct sharding_search *s, struct combinations *c,
                             struct chooser *chooser, const struct op *op, const struct letters *l,
                             int most, bool again)
{
  struct choice list[MAX_CHOICES];
  int n = choices_of(chooser, op, l, list);
  again = again && c->by_choice && c->nchoices == n &&
          same_choices(c->list, list, n, op->nin, op->nout);
  memcpy(c->list, list, (size_t)n * sizeof *list);
  c->chooser = chooser;
  c->op = op;
  c->letters = l;
  c->nchoices = n;
  c->noperands = op->nin + op->nout;
  c->candidates = find_candidates(c, most);
  c->n = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) c->n *= c->candidates.n[d];
  if (again) return;
  c->by_choice = true;
  for (int o = 0; o < c->noperands; o++) c->by_choice = c->by_choice && number_layouts(c, o, true);
  for (int o = 0; o < c->noperands; o++) {
    if (!c->by_choice) number_layouts(c, o, false);
    forget_prices(s, &c->operand[o]);
    c->operand[o].nfree = 0;
    c->order[o] = o;
  }
}

/* The places in the lists of candidates of combination `number`. */
static void find_places(const struct combinations *c, int number, int *at)
{
  for (int d = graph->mesh.ndim - 1; d >= 0; d--) {
    at[d] = number % c->candidates.n[d];
    number /= c->candidates.n[d];
  }
}

static struct layout layout_at(const struct combinations *c, int o, const int *at)
{
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    layout.on[d] = placement_of(c, c->candidates.pick[d][at[d]], o);
  return layout;
}

static struct op_sharding sharding_at(const struct combinations *c, const int *at)
{
  struct op_sharding sharding;
  memset(&sharding, 0, sizeof sharding);
  for (int i = 0; i < c->op->nin; i++) sharding.in[i] = layout_at(c, i, at);
  for (int k = 0; k < c->op->nout; k++) sharding.out[k] = layout_at(c, c->op->nin + k, at);
  return sharding;
}

/* A combination above this many bytes cannot be the cheapest. */
static double limit_of(bool found, struct price least)
{
  return found && !least.refused ? least.bytes : INFINITY;
}

/* Takes a combination, and returns the new limit of bytes. */
typedef double visitor(struct sharding_search *s, const struct combination *c);

/* Calls `visit` for every legal combination in turn, except those above `most` bytes. Returns
   whether there were such. */
static bool each_combination(struct sharding_search *s, struct combinations *c, double most,
                             visitor *visit)
{
  const struct candidates *list = &c->candidates;
  int at[MAX_MESH] = {0}, ndim = graph->mesh.ndim, changed = 0;
  int number[MAX_MESH + 1][MAX_OPERANDS] = {{0}}; /* of the layouts, before each dimension */
  bool left_out = false;
  for (int n = 0; n < c->n; n++) {
    for (int d = changed; d < ndim; d++)
      for (int o = 0; o < c->noperands; o++)
        number[d + 1][o] = number[d][o] + c->operand[o].offset[d][list->pick[d][at[d]]];
    struct combination now = {.number = n};
    bool fits = true;
    for (int k = 0; k < c->noperands && fits && now.price.bytes <= most; k++) {
      int o = c->order[k], layout = number[ndim][o];
      const struct operand *operand = &c->operand[o];
      struct entry *e = &operand->entry[layout];
      if (e->stamp != operand->stamp) {
        struct layout asked = layout_at(c, o, at);
        int pick[MAX_MESH];
        for (int d = 0; d < ndim; d++) pick[d] = list->pick[d][at[d]];
        e->stamp = operand->stamp;
        e->fits = operand_fits(c->letters, o, c->op->nin, asked, c->list, pick);
        if (e->fits) e->price = price_of_operand(c->chooser, c->op, o, asked);
      }
      fits = e->fits;
      if (fits && !lists_number(operand->free, operand->nfree, layout))
        add_to_price(&now.price, &e->price);
    }
    bool taken = fits && now.price.bytes <= most;
    left_out |= fits && !taken;
    if (taken) most = visit(s, &now);
    for (changed = ndim - 1; changed > 0 && ++at[changed] == list->n[changed]; changed--)
      at[changed] = 0;
    if (changed == 0) at[0]++;
  }
  return left_out;
}

static double take_least(struct sharding_search *s, const struct combination *c)
{
  if (s->best.number == NONE || cheaper(c->price, s->best.price)) s->best = *c;
  return limit_of(true, s->best.price);
}

/* ------------------------------------------------------------------------- one operation ahead */

const struct op *op_ahead(struct chooser *c, const struct op *op)
{
  if (most_choices(MOST_AHEAD) >= FEWEST_AHEAD) return next_user(c, op);
  c->ended_early |= TOO_MANY_AHEAD;
  return NULL;
}

/* The layouts in which `op` takes its inputs cost the next operation nothing. Prices of the output
   are computed anew, and last. */
static void set_free_layouts(struct sharding_search *s, const struct op *op,
                             const struct op_sharding *sharding)
{
  struct combinations *c = &s->after;
  const struct candidates *list = &c->candidates;
  int first = 0, last = c->noperands;
  for (int o = 0; o < c->noperands; o++) {
    struct operand *operand = &c->operand[o];
    bool taken = o < c->op->nin && c->op->in[o] == op->out;
    c->order[taken ? --last : first++] = o;
    if (taken) forget_prices(s, operand);
    operand->nfree = 0;
    for (int i = 0; i < op->nin && o < c->op->nin; i++) {
      int number = 0, d = 0;
      if (c->op->in[o] != op->in[i]) continue;
      for (; d < graph->mesh.ndim; d++) {
        int k = 0;
        while (k < list->n[d] &&
               !same_placement(placement_of(c, list->pick[d][k], o), sharding->in[i].on[d]))
          k++;
        if (k == list->n[d]) break;
        number += operand->offset[d][list->pick[d][k]];
      }
      if (d == graph->mesh.ndim) operand->free[operand->nfree++] = number;
    }
  }
}

/* The least price of the next operation after a combination; exact up to `most` bytes. */
static struct lookahead look_ahead(struct sharding_search *s, int number, double most)
{
  const struct combinations *c = &s->combinations;
  struct chooser *chooser = c->chooser;
  const struct operand *output = &c->operand[c->op->nin];
  int at[MAX_MESH], layout = 0;
  find_places(c, number, at);
  for (int d = 0; d < graph->mesh.ndim; d++)
    layout += output->offset[d][c->candidates.pick[d][at[d]]];
  struct lookahead *known = &s->known[layout];
  bool is_known = known->stamp == output->stamp && !s->depends;
  if (is_known && (!known->is_bound || known->price.bytes >= most)) return *known;
  struct op_sharding sharding = sharding_at(c, at);
  struct combination best = s->best;
  s->best = (struct combination){.number = NONE};
  chooser->assumed = c->op->out;
  chooser->assumed_layout = sharding.out[0];
  set_combinations(s, &s->after, chooser, s->next, &s->letters, MOST_AHEAD, s->again);
  set_free_layouts(s, c->op, &sharding);
  s->again = true;
  bool left_out = each_combination(s, &s->after, most, take_least), found = s->best.number != NONE;
  chooser->assumed = NONE;
  *known = (struct lookahead){.stamp = output->stamp, .price = s->best.price};
  if (!found)
    known->price = (struct price){.bytes = left_out ? most : HUGE_VAL}; /* it cannot run */
  known->is_bound = !found && left_out;
  s->best = best;
  return *known;
}

/* ------------------------------------------------------------------------- the cheapest of all */

static bool combine_comes_before(const struct combination *a, const struct combination *b)
{
  return cheaper(a->price, b->price) || (!cheaper(b->price, a->price) && a->number < b->number);
}

static double combine_push(struct sharding_search *s, const struct combination *c)
{
  if (!cheaper(s->best.price, c->price)) {
    GROW(s->heap, s->n, s->room);
    int i = s->n++;
    for (; i > 0 && combine_comes_before(c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
      s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = *c;
  }
  return limit_of(true, s->best.price);
}

static struct combination combine_pop(struct sharding_search *s)
{
  struct combination first = s->heap[0], last = s->heap[--s->n];
  int at = 0;
  for (int next; (next = 2 * at + 1) < s->n; at = next) {
    if (next + 1 < s->n && combine_comes_before(&s->heap[next + 1], &s->heap[next])) next++;
    if (!combine_comes_before(&s->heap[next], &last)) break;
    s->heap[at] = s->heap[next];
  }
  s->heap[at] = last;
  return first;
}

/* Takes the combination as the best if its total is the least. The limit is a little higher than
   the best total: sums are rounded. */
static void weigh(struct sharding_search *s, struct combination c)
{
  double most = limit_of(s->best.number != NONE, s->best.price) - c.price.bytes;
  struct lookahead next = look_ahead(s, c.number, most + 1e-9 * most);
  if (next.is_bound) return;
  c.price.bytes += next.price.bytes;
  c.price.moves += next.price.moves;
  c.price.apart += next.price.apart;
  if (s->best.number == NONE || combine_comes_before(&c, &s->best)) s->best = c;
}

struct op_sharding search_shardings(struct chooser *chooser, const struct op *op,
                                    const struct letters *l)
{
  if (!chooser->m->search) chooser->m->search = alloc(sizeof *chooser->m->search);
  struct sharding_search *s = chooser->m->search;
  struct combinations *c = &s->combinations;
  int at[MAX_MESH];
  set_combinations(s, c, chooser, op, l, MOST_COMBINATIONS, false);
  s->best = (struct combination){.number = NONE};
  each_combination(s, c, INFINITY, take_least);
  const bool found = s->best.number != NONE;
  const bool is_possible = found && isfinite(s->best.price.bytes);
  /* Everything whole is a sharding of any operation, but for micro-batches. */
  if (!found || (!is_possible && op->kind == OP_view))
    plan_error(op->line,
               "%s merges a dimension that microbatches = %d cut with others, and no part of the "
               "result begins where a micro-batch does on each rank: let each of them have whole "
               "groups of samples, as nn.MoE's load_batch or unflatten takes them together, by "
               "another number of micro-batches or of samples",
               printable(op_name(op)), microbatches());
  s->next = is_possible ? op_ahead(chooser, op) : NULL;
  if (s->next) {
    const struct combination cheapest = s->best;
    while (s->known_room < c->operand[op->nin].numbers)
      s->known = grow(s->known, 0, &s->known_room, sizeof *s->known);
    op_letters(s->next, &s->letters);
    s->again = s->depends = false;
    for (int i = 0; i < op->nin; i++)
      for (int k = 0; k < s->next->nin; k++) s->depends |= op->in[i] == s->next->in[k];
    s->best.number = NONE;
    weigh(s, cheapest);
    s->n = 0;
    each_combination(s, c, limit_of(true, s->best.price), combine_push);
    while (s->n > 0) {
      struct combination next = combine_pop(s);
      if (cheaper(s->best.price, next.price)) break;
      if (next.number != cheapest.number) weigh(s, next);
    }
  }
  find_places(c, s->best.number, at);
  return sharding_at(c, at);
}

/* --------------------------------------------------------------------------------- all of them */

static double combine_push_all(struct sharding_search *s, const struct combination *c)
{
  GROW(s->heap, s->n, s->room);
  int i = s->n++;
  for (; i > 0 && combine_comes_before(c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
    s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = *c;
  return INFINITY;
}

int cheapest_shardings(struct chooser *chooser, const struct op *op, struct priced_sharding *list,
                       int most)
{
  if (!chooser->m->search) chooser->m->search = alloc(sizeof *chooser->m->search);
  struct sharding_search *s = chooser->m->search;
  struct combinations *c = &s->combinations;
  struct letters l;
  int at[MAX_MESH], n = 0;
  op_letters(op, &l);
  chooser->takes_any = true;
  set_combinations(s, c, chooser, op, &l, MOST_COMBINATIONS, false);
  s->n = 0;
  each_combination(s, c, INFINITY, combine_push_all);
  while (s->n > 0 && n < most) {
    const struct combination next = combine_pop(s);
    if (!isfinite(next.price.bytes)) break;
    find_places(c, next.number, at);
    list[n++] = (struct priced_sharding){sharding_at(c, at), next.price.bytes};
  }
  chooser->takes_any = false;
  return n;
}
