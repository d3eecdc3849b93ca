/* cost_context.c: the mesh and the tensor for which moves are priced, on a sample of the ranks. */
#include "sharding/sharding.h"

#include <string.h>

struct world world;

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

void *scratch_alloc(struct scratch *s, size_t size)
{
  if (is_other_graph(&s->of)) s->size = 0;
  if (size > s->size) {
    s->size = 2 * size;
    s->at = alloc(s->size);
  }
  return memset(s->at, 0, size);
}

/* How many coordinates to sample along each dimension of the mesh; returns their product. */
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

/* Samples ranks at so many coordinates along each dimension, from the first to the last. */
static void set_coordinates(int (*at)[MAX_MESH])
{
  for (int k = 0; k < world.sampled_ranks; k++)
    for (int i = world.mesh.ndim - 1, rest = k; i >= 0; i--) {
      int64_t place = rest % world.places[i], last = world.places[i] - 1;
      at[k][i] = last > 0 ? (int)(place * (world.mesh.size[i] - 1) / last) : 0;
      rest /= world.places[i];
    }
  world.coordinate = at;
}

static void enter_mesh(unsigned fixed, bool all)
{
  static struct scratch some, every;
  static int worlds;
  world.number = ++worlds;
  world.given = world.mesh = graph->mesh;
  world.fixed = fixed;
  world.ranks = 1;
  for (int i = 0; i < world.mesh.ndim; i++) {
    if (fixed >> i & 1) world.mesh.size[i] = 1;
    world.ranks *= world.mesh.size[i];
  }
  order_tiers();
  memcpy(world.places, world.mesh.size, sizeof world.places);
  world.sampled_ranks = all ? world.ranks : choose_places(world.places);
  set_coordinates(
      scratch_alloc(all ? &every : &some, (size_t)world.sampled_ranks * sizeof *world.coordinate));
}

/* The last contexts are kept, with all ranks and with a sample: questions about them alternate. */
void enter_context(struct shape whole, enum type type, const struct fixed_part *u,
                   const int coordinate[MAX_MESH], bool all)
{
  static struct world kept[2];
  static bool now;
  static const struct graph *of;
  if (is_other_graph(&of)) kept[0] = kept[1] = world = (struct world){0};
  if (all != now) {
    kept[now] = world;
    world = kept[all];
    now = all;
  }
  if (!world.ranks || world.fixed != u->fixed || !same_mesh(&world.given, &graph->mesh))
    enter_mesh(u->fixed, all);
  world.whole = u->fixed ? local_part(&graph->mesh, whole, u->layout, coordinate).shape : whole;
  world.bytes = type_bytes(type);
}
