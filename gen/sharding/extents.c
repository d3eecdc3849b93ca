/* extents.c: how many bytes the busiest rank must receive between two layouts of plain shards: the
   lower bound, and on the greedy way, without planning steps. Propagation asks this for each pair
   of layouts that it weighs.

   A part is a box: an extent along each dimension of the tensor. The extent depends on the size of
   the dimension and on the mesh dimensions that cut it, in their order. The same few recur, and are
   computed once for all sampled ranks. */
#include "sharding/sharding.h"

#include <string.h>

struct extent {
  int64_t first, last;
};

/* The mesh dimensions that cut one dimension, in order: a digit each. */
typedef uint32_t packed_cuts;

/* The extents along one dimension, by sampled rank. */
struct ruler {
  int world;
  packed_cuts cuts;
  int64_t size;
  struct extent *extent;
};

enum { RULER_BITS = 10, RULERS = 1 << RULER_BITS, EXTENTS = 1 << 16 };
/* In one question: of both ends at least, or of two dimensions for each step. */
enum { MOST_EXTENTS = 2 * MAX_DIMS * MANY_RANKS, MOST_RULERS = MAX_DIMS + 2 * MAX_MOVES };

/* The known extents, in a shared buffer. Each question begins with room for all that it may
   need; otherwise all are forgotten. */
static struct {
  struct ruler ruler[RULERS];
  int n, used;
  struct extent extent[EXTENTS];
} known;

static void begin_question(void)
{
  if (known.used + MOST_EXTENTS <= EXTENTS && known.n + MOST_RULERS <= RULERS / 2) return;
  memset(known.ruler, 0, sizeof known.ruler);
  known.n = known.used = 0;
}

static packed_cuts cuts_of_dim(const struct compact_layout *b, int dim)
{
  packed_cuts cuts = 0;
  for (int i = 0; i < world.mesh.ndim; i++)
    if (b->at[i] == dim) cuts |= (packed_cuts)(i + 1) << 4 * b->turn[i];
  return cuts;
}

static void measure(struct ruler *r)
{
  for (int k = 0; k < world.sampled_ranks; k++) r->extent[k] = (struct extent){0, r->size};
  for (packed_cuts cuts = r->cuts; cuts; cuts >>= 4) {
    int by = (int)(cuts & 15) - 1;
    int64_t parts = world.mesh.size[by], length = -1, chunk = 0;
    bool in_time = world.mesh.in_time[by];
    for (int k = 0; k < world.sampled_ranks; k++) {
      struct extent *e = &r->extent[k];
      if (e->last - e->first != length) {
        length = e->last - e->first;
        chunk = (length + parts - 1) / parts;
      }
      if (in_time) {
        e->first += cut_first(&world.mesh, by, length, world.coordinate[k][by]);
        e->last = e->first + cut_size(&world.mesh, by, length, world.coordinate[k][by]);
        continue;
      }
      e->first = lesser(e->first + chunk * world.coordinate[k][by], e->last);
      e->last = lesser(e->first + chunk, e->last);
    }
  }
}

/* The extents of a dimension of this size, for all sampled ranks: valid until the next question. */
static const struct extent *extents(int64_t size, packed_cuts cuts)
{
  uint64_t hash = (uint64_t)size * UINT64_C(0x9e3779b97f4a7c15);
  hash = (hash ^ hash >> 29 ^ cuts ^ (uint64_t)world.number << 32) * UINT64_C(0x9e3779b97f4a7c15);
  for (unsigned at = (unsigned)(hash >> (64 - RULER_BITS));; at++) {
    struct ruler *r = &known.ruler[at % RULERS];
    if (r->extent && (r->size != size || r->cuts != cuts || r->world != world.number)) continue;
    if (!r->extent) {
      *r = (struct ruler){world.number, cuts, size, &known.extent[known.used]};
      known.used += world.sampled_ranks;
      known.n++;
      measure(r);
    }
    return r->extent;
  }
}

static int64_t length(const struct extent *e)
{
  return e->last - e->first;
}

static int64_t common(const struct extent *a, const struct extent *b)
{
  return greater(0, lesser(a->last, b->last) - greater(a->first, b->first));
}

/* The dimensions of the tensor that the two layouts cut differently, and their cuts. */
struct extent_change {
  int n;
  const struct extent *has[MAX_DIMS], *wants[MAX_DIMS];
  unsigned by;
};

/* The most that a sampled rank lacks. Other dimensions are cut equally in both layouts: there
   the first part is the largest. */
static int64_t most_lacked(const struct extent_change *c, int64_t others)
{
  int64_t worst = 0;
  int place[MAX_MESH] = {0}, sampled_rank = 0, i = 0;
  while (i >= 0) {
    int64_t wants = others, kept = others;
    for (int d = 0; d < c->n; d++) {
      wants *= length(&c->wants[d][sampled_rank]);
      kept *= common(&c->has[d][sampled_rank], &c->wants[d][sampled_rank]);
    }
    worst = greater(worst, wants - kept);
    int stride = 1;
    for (i = world.mesh.ndim - 1; i >= 0; stride *= world.places[i--]) {
      if (!(c->by >> i & 1)) continue;
      sampled_rank += stride;
      if (++place[i] < world.places[i]) break;
      sampled_rank -= stride * place[i];
      place[i] = 0;
    }
  }
  return worst;
}

int64_t most_lacking(const struct compact_layout *a, const struct compact_layout *b)
{
  struct extent_change c = {0};
  int64_t others = 1;
  begin_question();
  for (int d = 0; d < world.whole.ndim; d++) {
    packed_cuts before = cuts_of_dim(a, d), after = cuts_of_dim(b, d);
    const struct extent *wants = extents(world.whole.size[d], after);
    if (before == after) {
      others *= length(&wants[0]);
      continue;
    }
    c.has[c.n] = extents(world.whole.size[d], before);
    c.wants[c.n++] = wants;
    for (int i = 0; i < world.mesh.ndim; i++)
      if (a->at[i] == d || b->at[i] == d) c.by |= 1u << i;
  }
  return most_lacked(&c, others);
}

/* ------------------------------------------------------------------------------- the greedy way */

/* What sampled ranks hold on the way, and have received. */
struct received {
  const struct extent *extent[MAX_DIMS];
  int64_t volume[MAX_SEATS], got[MAX_SEATS];
};

static void find_volumes(const struct extent *const *extent, int64_t *volume)
{
  for (int k = 0; k < world.sampled_ranks; k++) volume[k] = 1;
  for (int d = 0; d < world.whole.ndim; d++)
    for (int k = 0; k < world.sampled_ranks; k++) volume[k] *= length(&extent[d][k]);
}

/* What a sampled rank keeps of its part. */
static int64_t kept_in(const struct extent *const *has, const struct extent *const *gets, int k)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++) n *= common(&has[d][k], &gets[d][k]);
  return n;
}

/* Adds what each sampled rank receives in a step: see traffic.c. */
static void receive(struct received *r, const struct leap *l)
{
  const struct extent *gets[MAX_DIMS];
  int64_t volume[MAX_SEATS], n = world.mesh.size[l->along];
  int before = l->before, after = l->after.at[l->along];
  memcpy(gets, r->extent, sizeof gets);
  for (int d = 0; d < world.whole.ndim; d++)
    if (d == before || d == after)
      gets[d] = extents(world.whole.size[d], cuts_of_dim(&l->after, d));
  find_volumes(gets, volume);
  for (int k = 0; k < world.sampled_ranks; k++) {
    if (!is_collective(l->kind)) continue;
    struct share s = {.n = n, .has = r->volume[k], .gets = volume[k]};
    s.member = world.coordinate[k][l->along];
    if (collective_row[l->kind].pairwise) s.kept = kept_in(r->extent, gets, k);
    r->got[k] += elements_received(l->kind, &s);
  }
  memcpy(r->extent, gets, sizeof gets);
  memcpy(r->volume, volume, sizeof volume);
}

int64_t most_received_greedily(const struct compact_layout *from, const struct compact_layout *to,
                               const struct fixed_part *u)
{
  struct leap leap[MAX_MOVES];
  struct walk w = {.leap = leap, .now = *from, .fixed_part = u};
  struct received r = {.got = {0}};
  int64_t busiest = 0;
  begin_question();
  walk_greedily(&w, to);
  for (int d = 0; d < world.whole.ndim; d++)
    r.extent[d] = extents(world.whole.size[d], cuts_of_dim(from, d));
  find_volumes(r.extent, r.volume);
  for (int n = 0; n < w.n; n++) receive(&r, &leap[n]);
  for (int k = 0; k < world.sampled_ranks; k++) busiest = greater(busiest, r.got[k]);
  return busiest;
}
