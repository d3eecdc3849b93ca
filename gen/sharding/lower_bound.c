/* lower_bound.c: the least traffic of a redistribution between two layouts of plain shards, without
   planning its steps. Propagation asks this for each pair of layouts that it weighs. */
#include "sharding/sharding.h"

int64_t most_lacking(struct cost_model *m, const struct compact_layout *a,
                     const struct compact_layout *b)
{
  const struct rank_sample *r = m->ranks;
  const struct interval *has[MAX_DIMS], *wants[MAX_DIMS];
  int n = 0;       /* dimensions of the tensor that the layouts cut differently */
  unsigned by = 0; /* the mesh dimensions that cut these */
  int64_t others =
      1; /* elements along the other dimensions: the largest part is the same in both */
  for (int d = 0; d < m->whole.ndim; d++) {
    unsigned cut = 0;
    int64_t parts = 1;
    bool same = true;
    for (int i = 0; i < r->mesh.ndim; i++) {
      if (a->at[i] != d && b->at[i] != d) continue;
      same &= a->at[i] == b->at[i] && a->order[i] == b->order[i] && a->shift[i] == b->shift[i];
      parts *= r->mesh.size[i];
      cut |= 1u << i;
    }
    if (same) {
      others *= (m->whole.size[d] + parts - 1) / parts;
      continue;
    }
    has[n] = intervals_along(m, a, d);
    wants[n++] = intervals_along(m, b, d);
    by |= cut;
  }
  int64_t most = 0;
  int place[MAX_MESH] = {0}, k = 0, i = 0; /* the sampled ranks that differ along `by` */
  while (i >= 0) {
    int64_t needed = others, kept = others;
    for (int d = 0; d < n; d++) {
      needed *= interval_size(&wants[d][k]);
      kept *= interval_overlap(&has[d][k], &wants[d][k]);
    }
    most = greater(most, needed - kept);
    int stride = 1;
    for (i = r->mesh.ndim - 1; i >= 0; stride *= r->places[i--]) {
      if (!(by >> i & 1)) continue;
      k += stride;
      if (++place[i] < r->places[i]) break;
      k -= stride * place[i];
      place[i] = 0;
    }
  }
  return most;
}

/* The elements that all ranks together must receive. Ranks that differ only where the target is
   pending count as one: each element must reach one of them. An element with `terms` terms that
   `needers` ranks need is sent terms + needers - 1 times, or once less if a rank that needs it has
   a term: every other owner of a term sends once until one rank has the sum, and then each other
   rank that needs it receives it once. */
static int64_t least_in_all(const struct cost_model *m, const struct compact_layout *a,
                            const struct compact_layout *b, const struct rank_parts *has,
                            const struct rank_parts *wants)
{
  const struct rank_sample *r = m->ranks;
  int64_t terms = 1, needers = 1, copies = 1, all = elements(m->whole);
  bool other = is_any(b, OTHER);
  for (int i = 0; i < r->mesh.ndim; i++) {
    int n = r->mesh.size[i];
    bool shared = b->at[i] < WHOLE;
    if (a->at[i] < WHOLE && (!shared || other)) terms *= n;
    if (shared || b->at[i] >= 0) continue;
    needers *= n;
    if (a->at[i] == WHOLE) copies *= n;
  }
  /* The elements of its part, or of a term of it, that one of the target's ranks holds already. */
  int64_t met = r->n < r->all ? all : 0;
  for (int k = 0; k < r->n && r->n == r->all; k++) {
    bool counts = true;
    for (int i = 0; i < r->mesh.ndim; i++)
      counts &= a->at[i] >= 0 || b->at[i] >= 0 || r->coordinate[k][i] == 0;
    if (counts) met += part_overlap(m->whole.ndim, has, k, wants, k);
  }
  return terms == 1 ? all * needers - met * copies : all * (terms - 1 + needers) - met;
}

/* If the target is pending, no rank needs a particular part; a term of a sum does not count as the
   sum. */
int64_t least_elements(const struct cost_model *m, const struct compact_layout *a,
                       const struct compact_layout *b, const struct rank_parts *has,
                       const struct rank_parts *wants, int64_t *lacks)
{
  const struct rank_sample *r = m->ranks;
  int64_t most = 0;
  bool terms = false, shared = false;
  for (int i = 0; i < r->mesh.ndim; i++) {
    terms |= a->at[i] < WHOLE && r->mesh.size[i] > 1;
    shared |= b->at[i] < WHOLE && r->mesh.size[i] > 1;
  }
  for (int k = 0; k < r->n; k++) {
    int64_t kept = terms ? 0 : part_overlap(m->whole.ndim, has, k, wants, k);
    lacks[k] = shared ? 0 : size_of_part(m->whole.ndim, wants, k) - kept;
    most = greater(most, lacks[k]);
  }
  if (!is_anything_pending(a, b)) return most;
  return greater(most, (least_in_all(m, a, b, has, wants) + r->all - 1) / r->all);
}

int64_t least_bytes(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                    struct layout to)
{
  static const int origin[MAX_MESH];
  struct fixed_part u = fixed_part_of(from, to);
  int64_t lacks[MANY_RANKS], places = 1; /* ranks, each in all micro-batches */
  for (int i = 0; i < graph->mesh.ndim; i++) places *= graph->mesh.size[i];
  enter_context(m, whole, type, &u, origin, places <= MANY_RANKS);
  struct compact_layout a = compact_of(from, &u), b = compact_of(to, &u);
  if (!is_anything_pending(&a, &b)) return m->bytes * most_lacking(m, &a, &b);
  struct rank_parts has = find_parts(m, &a), wants = find_parts(m, &b);
  return m->bytes * least_elements(m, &a, &b, &has, &wants, lacks);
}
