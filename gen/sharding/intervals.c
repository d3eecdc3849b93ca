/* intervals.c: the part of a tensor that a rank holds: an interval along each dimension; and the
   members of a step's group.

   The interval along a dimension depends on its size and on the mesh dimensions that cut it, in
   their order. The same few recur for all layouts, so they are computed once for all sampled ranks.
 */
#include "sharding/sharding.h"

#include <string.h>

/* The mesh dimensions that cut one dimension of a tensor, in order, and their shifts. */
struct cut_list {
  int n, by[MAX_MESH], shift[MAX_MESH];
};

static struct cut_list cuts_of_dim(const struct compact_layout *b, int dim, int ndim)
{
  struct cut_list c = {.n = 0};
  for (int i = 0; i < ndim; i++) {
    if (b->at[i] != dim) continue;
    c.by[b->order[i]] = i;
    c.shift[b->order[i]] = b->shift[i];
    c.n++;
  }
  return c;
}

/* The intervals of a dimension of this size, for n ranks at these coordinates. */
static void cut_intervals(const struct mesh *mesh, int64_t size, const struct cut_list *c,
                          int (*coordinate)[MAX_MESH], int n, struct interval *at)
{
  for (int k = 0; k < n; k++) at[k] = (struct interval){0, size};
  for (int i = 0; i < c->n; i++) {
    int by = c->by[i], parts = mesh->size[by], shift = c->shift[i] % parts;
    int64_t whole = -1, chunk = 0;
    for (int k = 0; k < n; k++) {
      int index = coordinate[k][by] - shift;
      if (index < 0) index += parts;
      if (interval_size(&at[k]) != whole) {
        whole = interval_size(&at[k]);
        chunk = (whole + parts - 1) / parts;
      }
      if (mesh->microbatch_axis[by]) {
        at[k].first += cut_first(mesh, by, whole, index);
        at[k].last = at[k].first + cut_size(mesh, by, whole, index);
      } else {
        at[k].first = lesser(at[k].first + chunk * index, at[k].last);
        at[k].last = lesser(at[k].first + chunk, at[k].last);
      }
    }
  }
}

const struct interval *intervals_along(struct cost_model *m, const struct compact_layout *b,
                                       int dim)
{
  const struct rank_sample *r = m->ranks;
  struct query *q = &m->interval;
  int64_t by = 0, shifts = 0;
  for (int i = 0; i < r->mesh.ndim; i++) {
    if (b->at[i] != dim) continue;
    by |= (int64_t)(i + 1) << 4 * b->order[i];
    shifts |= (int64_t)b->shift[i] << 8 * b->order[i];
  }
  begin_query(q);
  ask_number(q, (int64_t)r->number << 32 | by);
  ask_number(q, m->whole.size[dim]);
  ask_number(q, shifts);
  bool is_new;
  struct interval *at = answer_to(&m->intervals, q, (size_t)r->n * sizeof *at, &is_new);
  if (!is_new) return at;
  struct cut_list c = cuts_of_dim(b, dim, r->mesh.ndim);
  cut_intervals(&r->mesh, m->whole.size[dim], &c, r->coordinate, r->n, at);
  return at;
}

struct rank_parts find_parts(struct cost_model *m, const struct compact_layout *b)
{
  struct rank_parts p = {0};
  for (int d = 0; d < m->whole.ndim; d++) p.along[d] = intervals_along(m, b, d);
  return p;
}

int64_t size_of_part(int ndim, const struct rank_parts *p, int k)
{
  int64_t n = 1;
  for (int d = 0; d < ndim; d++) n *= interval_size(&p->along[d][k]);
  return n;
}

int64_t part_overlap(int ndim, const struct rank_parts *a, int i, const struct rank_parts *b, int k)
{
  int64_t n = 1;
  for (int d = 0; d < ndim && n; d++) n *= interval_overlap(&a->along[d][i], &b->along[d][k]);
  return n;
}

/* ----------------------------------------------------------------------------------- the group */

int members(const struct cost_model *m, const struct move_step *s)
{
  int n = 1;
  for (int i = 0; i < s->n; i++) n *= m->ranks->mesh.size[s->dim[i]];
  return n;
}

int member_at(const struct cost_model *m, const struct move_step *s, const int coordinate[MAX_MESH])
{
  int member = 0;
  for (int i = 0; i < s->n; i++)
    member = member * m->ranks->mesh.size[s->dim[i]] + coordinate[s->dim[i]];
  return member;
}

/* With only the cuts of the group's mesh dimensions, or only the others. */
struct compact_layout cuts_of_group(const struct move_step *s, struct compact_layout b, bool inside)
{
  unsigned dims = 0;
  for (int i = 0; i < s->n; i++) dims |= 1u << s->dim[i];
  for (int i = 0; i < graph->mesh.ndim; i++)
    if ((dims >> i & 1) != inside) set_state(&b, i, WHOLE);
  return b;
}

/* The parts that the group's n members hold of the elements that the group shares; `room` for n *
   ndim intervals. */
struct rank_parts parts_of_members(const struct cost_model *m, struct shape whole,
                                   const struct compact_layout *b, int (*coordinate)[MAX_MESH],
                                   int n, struct interval *room)
{
  struct rank_parts p = {0};
  for (int d = 0; d < whole.ndim; d++) {
    struct cut_list c = cuts_of_dim(b, d, m->ranks->mesh.ndim);
    cut_intervals(&m->ranks->mesh, whole.size[d], &c, coordinate, n, room + d * n);
    p.along[d] = room + d * n;
  }
  return p;
}

/* The part that the ranks of the group at `coordinate` share: by the cuts over the other
   dimensions. */
struct shape shape_of_group(const struct cost_model *m, const struct move_step *s,
                            const struct compact_layout *from, const int coordinate[MAX_MESH])
{
  struct compact_layout b = cuts_of_group(s, *from, false);
  struct shape shape = m->whole;
  int at_group[MAX_MESH];
  memcpy(at_group, coordinate, sizeof at_group);
  for (int d = 0; d < shape.ndim; d++) {
    struct cut_list c = cuts_of_dim(&b, d, m->ranks->mesh.ndim);
    struct interval at;
    cut_intervals(&m->ranks->mesh, shape.size[d], &c, &at_group, 1, &at);
    shape.size[d] = interval_size(&at);
  }
  return shape;
}
