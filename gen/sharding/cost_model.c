/* cost_model.c: the mesh and the tensor for which moves are priced, on a sample of the ranks. */
#include "sharding/sharding.h"

#include <string.h>

struct cost_model *new_cost_model(void)
{
  return alloc(sizeof(struct cost_model));
}

struct cost_model *cost_model_of_graph(void)
{
  static struct cost_model *model;
  static const struct graph *of;
  if (is_other_graph(&of)) model = new_cost_model();
  return model;
}

void forget_numbers(void)
{
  struct cost_model *m = cost_model_of_graph();
  struct memo *by_number[] = {&m->chunks, &m->sizes, &m->traits, &m->volumes};
  for (size_t i = 0; i < sizeof by_number / sizeof *by_number; i++) empty_memo(by_number[i]);
}

bool same_mesh(const struct mesh *a, const struct mesh *b)
{
  if (a->ndim != b->ndim) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] != b->size[i] || a->bandwidth[i] != b->bandwidth[i] ||
        a->latency[i] != b->latency[i] || a->microbatch_axis[i] != b->microbatch_axis[i])
      return false;
  const struct cluster *x = &a->cluster, *y = &b->cluster;
  return x->nodes == y->nodes && x->devices == y->devices && x->cards == y->cards &&
         x->intra.bandwidth == y->intra.bandwidth && x->intra.latency == y->intra.latency &&
         x->inter.bandwidth == y->inter.bandwidth && x->inter.latency == y->inter.latency &&
         x->adds_in_switch == y->adds_in_switch;
}

int mesh_number(struct cost_model *m)
{
  int at = m->meshes;
  while (at > 0 && !same_mesh(&m->mesh[at - 1], &graph->mesh)) at--;
  if (at > 0) return at - 1;
  GROW(m->mesh, m->meshes, m->mesh_room);
  m->mesh[m->meshes] = graph->mesh;
  return m->meshes++;
}

static void ask_real(struct query *q, double x)
{
  int64_t bits;
  memcpy(&bits, &x, sizeof bits);
  ask_number(q, bits);
}

static void ask_link(struct query *q, struct link link)
{
  ask_real(q, link.bandwidth);
  ask_real(q, link.latency);
}

void ask_machine(struct query *q)
{
  const struct mesh *m = &graph->mesh;
  const struct cluster *c = &m->cluster;
  ask_number(q, m->ndim);
  for (int i = 0; i < m->ndim; i++) {
    ask_number(q, (int64_t)m->size[i] << 1 | m->microbatch_axis[i]);
    ask_link(q, (struct link){m->bandwidth[i], m->latency[i]});
  }
  ask_number(q, (int64_t)c->nodes << 32 | c->adds_in_switch);
  ask_number(q, (int64_t)c->devices << 32 | c->cards);
  ask_link(q, c->intra);
  ask_link(q, c->inter);
  ask_real(q, memory_seconds(1));
}

void *scratch_alloc(struct scratch *s, size_t size)
{
  if (size > s->size) {
    s->size = 2 * size;
    s->at = alloc(s->size);
  }
  return memset(s->at, 0, size);
}

/* Puts the links into tiers, the slowest first. */
static void order_tiers(struct rank_sample *r)
{
  r->tiers = 0;
  for (int i = 0; i < r->mesh.ndim; i++) {
    double b = link_of_dimension(i).bandwidth;
    int at = 0;
    if (r->mesh.size[i] == 1) continue;
    while (at < r->tiers && r->bandwidth[at] < b) at++;
    if (at < r->tiers && r->bandwidth[at] == b) continue;
    for (int k = r->tiers++; k > at; k--) r->bandwidth[k] = r->bandwidth[k - 1];
    r->bandwidth[at] = b;
  }
  if (r->tiers == 0) r->bandwidth[r->tiers++] = link_of_dimension(0).bandwidth;
  for (int i = 0; i < r->mesh.ndim; i++) {
    r->tier[i] = 0;
    double b = link_of_dimension(i).bandwidth;
    while (r->tier[i] + 1 < r->tiers && r->bandwidth[r->tier[i]] != b) r->tier[i]++;
  }
}

/* Chooses the number of coordinates to sample along each dimension of the mesh: one more along
   each in turn, as long as there are at most MAX_SAMPLES ranks. Returns the number of ranks. */
static int choose_places(const struct mesh *mesh, int places[MAX_MESH])
{
  int product = 1;
  bool more = true;
  for (int i = 0; i < mesh->ndim; i++) places[i] = 1;
  while (more) {
    more = false;
    for (int i = 0; i < mesh->ndim; i++) {
      int wider = product / places[i] * (places[i] + 1);
      if (places[i] == mesh->size[i] || wider > MAX_SAMPLES) continue;
      places[i]++;
      product = wider;
      more = true;
    }
  }
  return product;
}

/* Samples ranks of the graph's mesh, whose fixed dimensions count as one rank. */
static void sample_ranks(struct cost_model *m, unsigned fixed, bool all)
{
  struct rank_sample *r = m->ranks;
  r->number = ++m->samples;
  r->given = r->mesh = graph->mesh;
  r->fixed = fixed;
  r->all = 1;
  for (int i = 0; i < r->mesh.ndim; i++) {
    if (fixed >> i & 1) r->mesh.size[i] = 1;
    r->all *= r->mesh.size[i];
  }
  order_tiers(r);
  memcpy(r->places, r->mesh.size, sizeof r->places);
  r->n = all ? r->all : choose_places(&r->mesh, r->places);
  r->coordinate = scratch_alloc(&m->coordinates[all], (size_t)r->n * sizeof *r->coordinate);
  for (int k = 0; k < r->n; k++)
    for (int i = r->mesh.ndim - 1, rest = k; i >= 0; i--) {
      int64_t place = rest % r->places[i], last = r->places[i] - 1; /* from the first to the last */
      r->coordinate[k][i] = last > 0 ? (int)(place * (r->mesh.size[i] - 1) / last) : 0;
      rest /= r->places[i];
    }
}

/* Questions with a sample and with all ranks alternate, so both are kept. */
void enter_context(struct cost_model *m, struct shape whole, enum type type,
                   const struct fixed_part *u, const int coordinate[MAX_MESH], bool all)
{
  enum { MOST_BYTES = 8 << 20 };
  m->ranks = all ? &m->every : &m->few;
  if (!m->ranks->all || m->ranks->fixed != u->fixed || !same_mesh(&m->ranks->given, &graph->mesh))
    sample_ranks(m, u->fixed, all);
  m->whole = u->fixed ? local_part(&graph->mesh, whole, u->layout, coordinate).shape : whole;
  m->bytes = type_bytes(type);
  if (m->intervals.bytes > MOST_BYTES) empty_memo(&m->intervals);
}

int64_t picoseconds(double seconds)
{
  static const int64_t longest = INT64_MAX / 64;
  double p = seconds * 1e12;
  if (p >= (double)longest) return longest;
  int64_t down = (int64_t)p;
  return (double)down < p ? down + 1 : down;
}

int64_t transfer_time(const struct cost_model *m, int64_t elements, double bandwidth)
{
  return picoseconds((double)(elements * m->bytes) / bandwidth);
}

/* The latency is that of a ring of all members, whatever the kind: a small value goes into a bucket
   with others, which waits once, so a kind that starts sooner is no gain. */
struct link link_of_step(const struct cost_model *m, const struct move_step *s)
{
  unsigned dims = 0;
  for (int i = 0; i < s->n && is_collective(s->kind); i++)
    if (m->ranks->mesh.size[s->dim[i]] > 1) dims |= 1u << s->dim[i];
  if (!dims) return (struct link){m->ranks->bandwidth[0], 0};
  return (struct link){collective_link(s->kind, dims).bandwidth,
                       collective_link(OP_all_gather, dims).latency};
}
