/* boxes.c: the part of a tensor that a rank holds as a box of indices, and the ranks of a group. */
#include "sharding/sharding.h"

int64_t box_overlap(const struct box *a, const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim && n; d++)
    n *= greater(0, lesser(a->last[d], b->last[d]) - greater(a->first[d], b->first[d]));
  return n;
}

int64_t volume(const struct box *b)
{
  int64_t n = 1;
  for (int d = 0; d < world.whole.ndim; d++) n *= b->last[d] - b->first[d];
  return n;
}

struct cut_list cuts_in_turn(const struct compact_layout *b)
{
  struct cut_list c = {0};
  for (int turn = 0; turn < world.mesh.ndim; turn++)
    for (int i = 0; i < world.mesh.ndim; i++) {
      if (b->at[i] < 0 || b->turn[i] != turn) continue;
      c.at[c.n].dim = b->at[i];
      c.at[c.n].shift = b->shift[i];
      c.at[c.n++].by = i;
    }
  return c;
}

void cut_box(const struct cut_list *c, struct shape whole, const int coordinate[MAX_MESH],
             struct box *box)
{
  for (int d = 0; d < whole.ndim; d++) {
    box->first[d] = 0;
    box->last[d] = whole.size[d];
  }
  for (int k = 0; k < c->n; k++) {
    int64_t *first = &box->first[c->at[k].dim], *last = &box->last[c->at[k].dim];
    int parts = world.mesh.size[c->at[k].by];
    int index = (coordinate[c->at[k].by] + parts - c->at[k].shift % parts) % parts;
    int64_t n = *last - *first;
    *first += cut_first(&world.mesh, c->at[k].by, n, index);
    *last = *first + cut_size(&world.mesh, c->at[k].by, n, index);
  }
}

int members(const struct move_step *s)
{
  int n = 1;
  for (int i = 0; i < s->n; i++) n *= world.mesh.size[s->dim[i]];
  return n;
}

int member_at(const struct move_step *s, const int coordinate[MAX_MESH])
{
  int member = 0;
  for (int i = 0; i < s->n; i++)
    member = member * world.mesh.size[s->dim[i]] + coordinate[s->dim[i]];
  return member;
}

static bool is_of(const struct move_step *s, int mesh_dim)
{
  for (int i = 0; i < s->n; i++)
    if (s->dim[i] == mesh_dim) return true;
  return false;
}

struct compact_layout of_group(const struct move_step *s, struct compact_layout b)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!is_of(s, i)) put_at(&b, i, WHOLE);
  return b;
}

void find_group_members(struct deal *d, const struct compact_layout *from,
                        const struct compact_layout *to)
{
  struct compact_layout a = of_group(d->step, *from), b = of_group(d->step, *to);
  struct cut_list has = cuts_in_turn(&a), gets = cuts_in_turn(&b);
  for (int k = 0; k < d->n; k++) {
    struct member *m = &d->member[k];
    for (int i = d->step->n - 1, rest = k, stride = 1; i >= 0; i--) {
      int dim = d->step->dim[i], size = world.mesh.size[dim];
      m->coordinate[dim] = rest % size;
      if (from->at[dim] >= 0) m->cell += rest % size * stride;
      rest /= size;
      stride *= size;
    }
    if (m->cell == 0) d->holder[d->holders++] = k;
    cut_box(&has, d->whole, m->coordinate, &m->has);
    cut_box(&gets, d->whole, m->coordinate, &m->gets);
  }
}
