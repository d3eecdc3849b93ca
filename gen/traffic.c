/* traffic.c: what a step of a redistribution moves, how long it takes, and what no way can do
   without.

   The model of the links. A rank has a link along each dimension of the mesh, of the plan's
   bandwidth and latency, or of 100 GB/s and 10 us; links of one bandwidth are one link. A
   collective takes the longest latency of its dimensions, and what its busiest rank sends, or
   receives, if that is more, over the slowest of their links:
     all_gather      sends its part to each other member, receives theirs
     reduce_scatter  sends what it does not keep, receives its part from each other member
     all_reduce      both, with its torch.chunk of the elements as its part
     all_to_all      sends what it does not keep, receives what it does not have
     exchange        its pieces; each over the slowest link between the two, all links at once
   A copy within a rank takes 2 TB/s, read and written: a slice, what becomes a pending sum, what a
   rank keeps of its part in a gather, an all_to_all or an exchange, and all that is packed before a
   collective or unpacked after it because the parts along its dimension do not lie one after the
   other. Dimensions of one rank cost nothing.

   Where there are more than 32 ranks a plan looks at some of them, at the same places along every
   dimension of the mesh, the first and the last among them; at the exchanges of the first group and
   of the last. In a group of more than 64 an exchange is not dealt out for a plan: each rank is
   taken to send as much as it receives, and to copy all of it. */
#include "moves.h"

#include <string.h>

static const double memory_bandwidth = 2e12;

enum { BIG_GROUP = 64 };

/* ------------------------------------------------------------------------------------- the world
 */

struct world world;

double link_bandwidth(int mesh_dim)
{
  return graph->mesh.bandwidth[mesh_dim] > 0 ? graph->mesh.bandwidth[mesh_dim] : 100e9;
}

double link_latency(int mesh_dim)
{
  return graph->mesh.latency[mesh_dim] > 0 ? graph->mesh.latency[mesh_dim] : 10e-6;
}

static void order_tiers(void)
{
  world.tiers = 0;
  for (int i = 0; i < world.mesh.ndim; i++) {
    double b = link_bandwidth(i);
    int at = 0;
    world.latency[i] = link_latency(i);
    if (world.mesh.size[i] == 1) continue;
    while (at < world.tiers && world.bandwidth[at] < b) at++;
    if (at < world.tiers && world.bandwidth[at] == b) continue;
    for (int k = world.tiers++; k > at; k--) world.bandwidth[k] = world.bandwidth[k - 1];
    world.bandwidth[at] = b;
  }
  if (world.tiers == 0) world.bandwidth[world.tiers++] = link_bandwidth(0);
  for (int i = 0; i < world.mesh.ndim; i++) {
    world.tier[i] = 0;
    while (world.tier[i] + 1 < world.tiers && world.bandwidth[world.tier[i]] != link_bandwidth(i))
      world.tier[i]++;
  }
}

bool same_mesh(const struct mesh *a, const struct mesh *b)
{
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] != b->size[i] || a->bandwidth[i] != b->bandwidth[i] ||
        a->latency[i] != b->latency[i])
      return false;
  return true;
}

/* How many places to look at along each dimension of the mesh; gives their product. */
static int choose_places(int places[MAX_MESH])
{
  int product = 1;
  bool more = true;
  for (int i = 0; i < world.mesh.ndim; i++) places[i] = 1;
  while (more) {
    more = false;
    for (int i = 0; i < world.mesh.ndim; i++) {
      int wider = product / places[i] * (places[i] + 1);
      if (places[i] == world.mesh.size[i] || wider > MAX_SEATS) continue;
      places[i]++;
      product = wider;
      more = true;
    }
  }
  return product;
}

/* The coordinates of all ranks, or of those at some places along each dimension. */
static int find_seats(bool all, int (**coordinate)[MAX_MESH])
{
  int places[MAX_MESH], n = world.ranks;
  if (all)
    memcpy(places, world.mesh.size, sizeof places);
  else
    n = choose_places(places);
  int(*at)[MAX_MESH] = alloc((size_t)n * sizeof *at);
  for (int k = 0; k < n; k++)
    for (int i = world.mesh.ndim - 1, rest = k; i >= 0; i--) {
      int place = rest % places[i], last = places[i] - 1;
      at[k][i] = last > 0 ? place * (world.mesh.size[i] - 1) / last : 0;
      rest /= places[i];
    }
  *coordinate = at;
  return n;
}

void enter(struct shape whole, enum type type, bool all)
{
  static int(*every)[MAX_MESH], (*some)[MAX_MESH];
  static int nsome;
  world.whole = whole;
  world.bytes = type_bytes(type);
  if (!world.ranks || !same_mesh(&world.mesh, &graph->mesh)) {
    world.mesh = graph->mesh;
    world.ranks = world_size();
    nsome = find_seats(world.ranks <= MAX_SEATS, &some);
    every = nsome == world.ranks ? some : NULL;
    order_tiers();
  }
  if (all && !every) find_seats(true, &every);
  world.coordinate = all ? every : some;
  world.seats = all ? world.ranks : nsome;
}

void *take(struct scratch *s, size_t size)
{
  if (size > s->size) {
    s->size = 2 * size;
    s->at = alloc(s->size);
  }
  return memset(s->at, 0, size);
}

/* ------------------------------------------------------------------------------- who holds what
 */

int64_t overlap(const struct box *a, const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++)
    n *= most(0, least(a->last[d], b->last[d]) - most(a->first[d], b->first[d]));
  return n;
}

int64_t volume(const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++) n *= b->last[d] - b->first[d];
  return n;
}

/* The cuts of a layout, one after the other. */
struct cut_list {
  int n;
  struct {
    int dim, by;
  } at[MAX_MESH];
};

static struct cut_list cuts_in_turn(const struct brief *b)
{
  struct cut_list c = {0};
  for (int turn = 0; turn < world.mesh.ndim; turn++)
    for (int i = 0; i < world.mesh.ndim; i++) {
      if (b->at[i] < 0 || b->turn[i] != turn) continue;
      c.at[c.n].dim = b->at[i];
      c.at[c.n++].by = i;
    }
  return c;
}

static void cut_box(const struct cut_list *c, const int coordinate[MAX_MESH], struct box *box)
{
  for (int d = 0; d < world.whole.ndim; d++) {
    box->first[d] = 0;
    box->last[d] = world.whole.size[d];
  }
  for (int k = 0; k < c->n; k++) {
    int64_t *first = &box->first[c->at[k].dim], *last = &box->last[c->at[k].dim];
    int parts = world.mesh.size[c->at[k].by];
    int64_t chunk = (*last - *first + parts - 1) / parts;
    *first = least(*first + chunk * coordinate[c->at[k].by], *last);
    *last = least(*first + chunk, *last);
  }
}

void find_boxes(const struct brief *b, struct box *box)
{
  struct cut_list c = cuts_in_turn(b);
  for (int k = 0; k < world.seats; k++) cut_box(&c, world.coordinate[k], &box[k]);
}

/* ------------------------------------------------------------------------- what a rank must get
 */

/* What each seat lacks of its part, and the most of it. What is pending in the end is nobody's
   alone; a term of a sum is not the sum. */
static int64_t find_lacks(const struct brief *a, const struct brief *b, const struct box *has,
                          const struct box *wants, int64_t *lacks)
{
  int64_t worst = 0;
  bool terms = false, shared = false;
  for (int i = 0; i < world.mesh.ndim; i++) {
    terms |= a->at[i] < WHOLE && world.mesh.size[i] > 1;
    shared |= b->at[i] < WHOLE && world.mesh.size[i] > 1;
  }
  for (int k = 0; k < world.seats; k++) {
    int64_t kept = terms ? 0 : overlap(&has[k], &wants[k]);
    lacks[k] = shared ? 0 : volume(&wants[k]) - kept;
    worst = most(worst, lacks[k]);
  }
  return worst;
}

/* How many elements one of the ranks that want it has of its part, or of a term of it, already. */
static int64_t met_elements(const struct brief *a, const struct brief *b, const struct box *has,
                            const struct box *wants)
{
  int64_t met = 0;
  if (world.seats < world.ranks) return elements(world.whole);
  for (int k = 0; k < world.seats; k++) {
    bool counts = true;
    for (int i = 0; i < world.mesh.ndim; i++)
      counts &= a->at[i] >= 0 || b->at[i] >= 0 || world.coordinate[k][i] == 0;
    if (counts) met += overlap(&has[k], &wants[k]);
  }
  return met;
}

/* What all ranks must get together. Ranks that differ only where the target is pending count as
   one: each element must come to one of them. An element of which there are `terms`, and that
   `wanted` of these have to have, goes from rank to rank terms + wanted - 1 times, or once less if
   one who wants it has a term: until somebody has the sum it is sent once by all others that have a
   term, or by all if it is none of them, and then once to each that wants it and is not the one. */
static int64_t least_in_all(const struct brief *a, const struct brief *b, const struct box *has,
                            const struct box *wants)
{
  int64_t terms = 1, wanted = 1, copies = 1;
  bool other = is_any(b, OTHER);
  for (int i = 0; i < world.mesh.ndim; i++) {
    int n = world.mesh.size[i];
    bool shared = b->at[i] < WHOLE;
    if (a->at[i] < WHOLE && (!shared || other)) terms *= n;
    if (shared || b->at[i] >= 0) continue;
    wanted *= n;
    if (a->at[i] == WHOLE) copies *= n;
  }
  int64_t met = met_elements(a, b, has, wants);
  if (terms == 1) return elements(world.whole) * wanted - met * copies;
  return elements(world.whole) * (terms - 1 + wanted) - met;
}

int64_t least_elements(const struct brief *a, const struct brief *b, const struct box *has,
                       const struct box *wants, int64_t *lacks)
{
  int64_t worst = find_lacks(a, b, has, wants, lacks);
  bool pending = is_any(a, PENDING) || is_any(b, PENDING) || is_any(b, OTHER);
  if (!pending) return worst;
  return most(worst, (least_in_all(a, b, has, wants) + world.ranks - 1) / world.ranks);
}

int64_t least_bytes(struct shape whole, enum type type, struct layout from, struct layout to)
{
  static struct scratch room;
  enter(whole, type, true);
  struct reductions r = reductions_of(from, to);
  struct brief a = brief_of(from, r), b = brief_of(to, r);
  size_t n = (size_t)world.seats;
  struct box *has = take(&room, n * (2 * sizeof *has + sizeof(int64_t)));
  find_boxes(&a, has);
  find_boxes(&b, has + n);
  return world.bytes * least_elements(&a, &b, has, has + n, (int64_t *)(has + 2 * n));
}

/* ----------------------------------------------------------------------------- what a step moves
 */

static struct traffic no_traffic(void)
{
  static struct scratch room;
  size_t n = (size_t)world.seats, all = n * (size_t)world.tiers;
  int64_t *at = take(&room, 2 * (all + n) * sizeof *at);
  return (struct traffic){at, at + all, at + 2 * all, at + 2 * all + n, false};
}

static int members(const struct step *s)
{
  int n = 1;
  for (int i = 0; i < s->n; i++) n *= world.mesh.size[s->dim[i]];
  return n;
}

/* The slowest link of a step. */
static int slowest(const struct step *s)
{
  int tier = world.tiers - 1;
  for (int i = 0; i < s->n; i++)
    if (world.mesh.size[s->dim[i]] > 1 && world.tier[s->dim[i]] < tier)
      tier = world.tier[s->dim[i]];
  return tier;
}

/* Whether no rank has parts along `dim` that do not lie one after the other. The first has most. */
static bool outermost(const struct box *box, int dim)
{
  for (int d = 0; d < dim; d++)
    if (box->last[d] - box->first[d] > 1) return volume(box) == 0;
  return true;
}

static int member_at(const struct step *s, const int coordinate[MAX_MESH])
{
  int member = 0;
  for (int i = 0; i < s->n; i++)
    member = member * world.mesh.size[s->dim[i]] + coordinate[s->dim[i]];
  return member;
}

static void add_collective(const struct stage *g, struct traffic *t)
{
  const struct step *s = g->step;
  int64_t n = members(s), *sent = t->sent + slowest(s) * world.seats, part;
  int dim = g->from->at[s->dim[0]], dim_to = g->to->at[s->dim[0]];
  bool pack = dim_to >= 0 && !outermost(&g->has[0], dim_to);
  bool unpack = dim >= 0 && !outermost(&g->gets[0], dim);
  for (int k = 0; k < world.seats; k++) {
    int64_t has = volume(&g->has[k]), gets = volume(&g->gets[k]), kept = 0;
    switch (s->kind) {
    case OP_all_gather:
      kept = has;
      sent[k] = has * (n - 1);
      t->received[k] = gets - has;
      break;
    case OP_reduce_scatter:
      sent[k] = has - gets;
      t->received[k] = gets * (n - 1);
      break;
    case OP_all_reduce:
      part = chunk_size(has, (int)n, member_at(s, world.coordinate[k]));
      sent[k] = t->received[k] = has - part + part * (n - 1);
      break;
    case OP_all_to_all:
      kept = overlap(&g->has[k], &g->gets[k]);
      sent[k] = has - kept;
      t->received[k] = gets - kept;
      break;
    default: /* slice, to_partial */
      kept = gets;
    }
    t->copied[k] = kept;
    if (is_collective(s->kind)) t->copied[k] += (pack ? has : 0) + (unpack ? gets : 0);
  }
  memcpy(t->got + slowest(s) * world.seats, t->received, (size_t)world.seats * sizeof *t->received);
}

/* ------------------------------------------------------------------------------------ an exchange
 */

/* Those that meet in a group. */
struct member {
  int coordinate[MAX_MESH];
  int cell;             /* the first member that holds the same: differs in what is not cut */
  struct box has, gets; /* parts */
  int64_t load;         /* what it sends, */
  int64_t *sent, *got;  /* and receives, by tier */
  int gives_to, gets_from;
};

struct deal {
  const struct step *step;
  int n;
  struct member *member;
  int holders, *holder; /* of what the first holds; of what others hold as many further */
  bool gives_runs, gets_runs;
};

/* The group of those that differ from `base` in the dimensions of the step alone. */
static struct deal find_members(const struct stage *g, const int base[MAX_MESH])
{
  static struct scratch room, counts, holders;
  const struct step *s = g->step;
  struct deal d = {.step = s, .n = members(s), .gives_runs = true, .gets_runs = true};
  struct cut_list has = cuts_in_turn(g->from), gets = cuts_in_turn(g->to);
  d.member = take(&room, (size_t)d.n * sizeof *d.member);
  d.holder = take(&holders, (size_t)d.n * sizeof *d.holder);
  int64_t *count = take(&counts, (size_t)(2 * world.tiers * d.n) * sizeof *count);
  for (int k = 0; k < d.n; k++) {
    struct member *m = &d.member[k];
    memcpy(m->coordinate, base, sizeof m->coordinate);
    for (int i = s->n - 1, rest = k, step = 1; i >= 0; i--) {
      int dim = s->dim[i], size = world.mesh.size[dim];
      m->coordinate[dim] = rest % size;
      if (g->from->at[dim] >= 0) m->cell += rest % size * step;
      rest /= size;
      step *= size;
    }
    if (m->cell == 0) d.holder[d.holders++] = k;
    cut_box(&has, m->coordinate, &m->has);
    cut_box(&gets, m->coordinate, &m->gets);
    m->sent = count + 2 * world.tiers * k;
    m->got = m->sent + world.tiers;
  }
  return d;
}

/* The slowest link between two members. */
static int tier_between(const struct deal *d, const struct member *a, const struct member *b)
{
  int tier = world.tiers - 1;
  for (int i = 0; tier > 0 && i < d->step->n; i++) {
    int dim = d->step->dim[i];
    if (a->coordinate[dim] != b->coordinate[dim]) tier = (int)least(tier, world.tier[dim]);
  }
  return tier;
}

/* Who of those that hold what `first` does gives to `to`; as exchange.c has it. */
static struct member *giver(const struct deal *d, int first, const struct member *to)
{
  struct member *best = NULL;
  int quickest = NONE;
  for (int k = 0; k < d->holders; k++) {
    struct member *m = &d->member[first + d->holder[k]];
    int tier = tier_between(d, m, to);
    if (best && (tier < quickest || (tier == quickest && m->load >= best->load))) continue;
    best = m;
    quickest = tier;
  }
  return best;
}

/* Whether where the boxes meet lies in one run of the first. */
static bool meets_in_run(const struct box *of, const struct box *with)
{
  bool inside = false; /* a dimension outside of this one takes more than one place */
  for (int d = 0; d < world.whole.ndim; d++) {
    int64_t n = least(of->last[d], with->last[d]) - most(of->first[d], with->first[d]);
    if (inside && n != of->last[d] - of->first[d]) return false;
    inside |= n > 1;
  }
  return true;
}

static void deal_out(struct deal *d)
{
  for (int k = 0; k < d->n; k++) {
    struct member *to = &d->member[k];
    for (int first = 0; first < d->n; first++) {
      const struct member *f = &d->member[first];
      int64_t n = f->cell == first ? overlap(&f->has, &to->gets) : 0;
      if (n == 0) continue;
      d->gives_runs = d->gives_runs && meets_in_run(&f->has, &to->gets);
      d->gets_runs = d->gets_runs && meets_in_run(&to->gets, &f->has);
      if (to->cell == first) continue;
      struct member *from = giver(d, first, to);
      int tier = tier_between(d, from, to);
      from->load += n;
      from->sent[tier] += n;
      to->got[tier] += n;
      from->gives_to++;
      to->gets_from++;
    }
  }
}

/* To the seats of the members, if all are looked at; else to that of the first rank. */
static void add_deal(const struct deal *d, struct traffic *t)
{
  for (int k = 0; k < d->n; k++) {
    const struct member *m = &d->member[k];
    int seat = 0;
    for (int i = 0; i < world.mesh.ndim && world.seats == world.ranks; i++)
      seat = seat * world.mesh.size[i] + m->coordinate[i];
    t->one_to_one &= m->gives_to <= 1 && m->gets_from <= 1;
    for (int tier = 0; tier < world.tiers; tier++) {
      int at = tier * world.seats + seat;
      t->sent[at] = most(t->sent[at], m->sent[tier]);
      t->got[at] = most(t->got[at], m->got[tier]);
    }
  }
}

static int64_t sent_by(const struct traffic *t, int seat)
{
  int64_t sum = 0;
  for (int tier = 0; tier < world.tiers; tier++) sum += t->sent[tier * world.seats + seat];
  return sum;
}

static void add_exchange(const struct stage *g, bool planning, struct traffic *t)
{
  bool gives_runs = true, gets_runs = true, guess = planning && members(g->step) > BIG_GROUP;
  int last = world.seats - 1;
  while (last > 0 && member_at(g->step, world.coordinate[last]) != 0) last--;
  t->one_to_one = !guess;
  for (int k = 0; k <= last && !guess; k++) {
    bool some = world.seats < world.ranks && k != 0 && k != last;
    if (some || member_at(g->step, world.coordinate[k]) != 0) continue;
    struct deal d = find_members(g, world.coordinate[k]);
    deal_out(&d);
    add_deal(&d, t);
    gives_runs = gives_runs && d.gives_runs;
    gets_runs = gets_runs && d.gets_runs;
  }
  for (int k = 0; k < world.seats; k++) {
    int64_t gets = volume(&g->gets[k]), kept = overlap(&g->has[k], &g->gets[k]);
    int at = slowest(g->step) * world.seats + k;
    t->received[k] = gets - kept;
    if (guess) t->sent[at] = t->got[at] = gets - kept;
    t->copied[k] = kept;
    if (guess || !gives_runs) t->copied[k] += sent_by(t, k) + kept;
    if (guess || !gets_runs) t->copied[k] += gets;
  }
}

/* --------------------------------------------------------------------------------------- a step
 */

struct traffic traffic_of(const struct stage *g, bool planning)
{
  struct traffic t = no_traffic();
  if (g->step->kind == OP_exchange)
    add_exchange(g, planning, &t);
  else
    add_collective(g, &t);
  return t;
}

struct traffic traffic_of_move(const struct move *m, struct reductions r, bool planning)
{
  static struct scratch room;
  struct box *has = take(&room, (size_t)world.seats * 2 * sizeof *has), *gets = has + world.seats;
  struct step s = {.kind = m->kind, .n = m->n};
  memcpy(s.dim, m->dim, sizeof s.dim);
  struct brief from = brief_of(m->from, r), to = brief_of(m->to, r);
  find_boxes(&from, has);
  find_boxes(&to, gets);
  return traffic_of(&(struct stage){&s, &from, &to, has, gets}, planning);
}

void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received)
{
  enter(whole, type, true);
  struct traffic t = traffic_of_move(m, reductions_of(m->from, m->to), false);
  for (int k = 0; k < world.seats; k++) {
    sent[k] += sent_by(&t, k) * world.bytes;
    received[k] += t.received[k] * world.bytes;
  }
}

int64_t picoseconds(double seconds)
{
  double p = seconds * 1e12;
  int64_t down = (int64_t)p;
  return (double)down < p ? down + 1 : down;
}

int64_t transfer_time(int64_t elements, double bandwidth)
{
  return picoseconds((double)(elements * world.bytes) / bandwidth);
}

int64_t latency_of(const struct step *s)
{
  double longest = 0;
  for (int i = 0; i < s->n && is_collective(s->kind); i++) {
    double l = world.latency[s->dim[i]];
    if (world.mesh.size[s->dim[i]] > 1 && l > longest) longest = l;
  }
  return picoseconds(longest);
}

int64_t time_of(const struct step *s, const struct traffic *t)
{
  int64_t busy = 0, copied = 0;
  for (int tier = 0; tier < world.tiers; tier++) {
    int64_t n = 0;
    for (int k = 0, at = tier * world.seats; k < world.seats; k++, at++)
      n = most(n, most(t->sent[at], t->got[at]));
    busy = most(busy, transfer_time(n, world.bandwidth[tier]));
  }
  for (int k = 0; k < world.seats; k++) copied = most(copied, t->copied[k]);
  return latency_of(s) + busy + transfer_time(2 * copied, memory_bandwidth);
}
