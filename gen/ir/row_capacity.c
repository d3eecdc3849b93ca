/* row_capacity.c: the number of rows by expert (rows.c) that a rank has room for. */
#include "ir/ir.h"

#include <math.h>

int made_count(int value)
{
  while (graph->value[value].op != NONE) {
    const struct op *op = &graph->op[graph->value[value].op];
    bool moves = op->kind == OP_redistribute || is_collective(op->kind) ||
                 op->kind == OP_clamp_to_capacity || op_row[op->kind].step != NO_LOCAL_STEP;
    if (!op->nin || !moves) break;
    value = op->in[0];
  }
  return value;
}

/* The operation that made a count, or NULL. */
static const struct op *maker_of(int made)
{
  int maker = graph->value[made].op;
  bool counts = maker != NONE && graph->op[maker].kind == OP_count_places;
  return counts ? &graph->op[maker] : NULL;
}

int names_counted(int made)
{
  const struct op *maker = maker_of(made);
  return maker ? maker->in[0] : NONE;
}

double bound_of_count(int made)
{
  const struct op *maker = maker_of(made);
  if (!maker) return 0;
  /* If ranks have parts of the places that the bound covers, one can have more than its share. */
  const struct layout *l = &graph->value[maker->in[0]].layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (ranks_along(d) > 1 && l->on[d].kind == SHARD && (maker->dims >> l->on[d].dim & 1)) return 0;
  return maker->scalar;
}

double bound_of_rows(int value)
{
  return graph->value[value].counts == NONE ? 0 : bound_of_count(graph->value[value].counts);
}

int64_t rows_within(double bound, int64_t places, int64_t experts, int64_t all)
{
  double room = ceil(bound * (double)places * (double)experts / (double)all);
  bool holds = bound > 0 && experts < all && room < (double)places;
  return holds ? (int64_t)room : places;
}

/* The smallest part of n that is not empty. */
static int64_t least_part(int64_t n, const int *cut, int ncut)
{
  if (!ncut) return n;
  int64_t chunk = chunk_size(n, graph->mesh.size[*cut], 0), last = n - (n - 1) / chunk * chunk;
  int64_t a = least_part(chunk, cut + 1, ncut - 1), b = least_part(last, cut + 1, ncut - 1);
  return a < b ? a : b;
}

bool has_less_room(int value)
{
  const struct value *v = &graph->value[value];
  double bound = bound_of_count(v->counts == NONE ? made_count(value) : v->counts);
  int cut[MAX_MESH], ncut = cuts_of(&graph->mesh, v->layout, 0, cut);
  int64_t all = v->shape.size[0], least = least_part(all, cut, ncut);
  return bound > 0 && least < all && bound * (double)least < (double)all;
}

int64_t places_of_part(struct shape part)
{
  int64_t n = 1;
  for (int d = 1; d < ROW_DIMS; d++) n *= part.size[d];
  return n;
}

/* Over all ranks along these dimensions of the mesh. */
static int64_t sum_of_places(const struct value *names, unsigned dims, int at[MAX_MESH])
{
  int d = 0;
  int64_t n = 0;
  while (d < graph->mesh.ndim && !(dims >> d & 1)) d++;
  if (d == graph->mesh.ndim)
    return elements(local_part(&graph->mesh, names->shape, names->layout, at).shape);
  for (at[d] = 0; at[d] < ranks_along(d); at[d]++) n += sum_of_places(names, dims & ~(1u << d), at);
  return n;
}

int64_t places_along(int counts, unsigned dims, int rank)
{
  const struct value *names = &graph->value[names_counted(counts)];
  int at[MAX_MESH];
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (names->layout.on[d].kind != SHARD) dims &= ~(1u << d); /* all have the same */
  coordinate_of(rank, at);
  return sum_of_places(names, dims, at);
}

/* The dimensions of ranks by which the value's layout cuts no places. */
static unsigned dims_without_places(const struct value *v)
{
  unsigned dims = dimensions_of_ranks();
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (v->layout.on[d].kind == SHARD && v->layout.on[d].dim > 0 && v->layout.on[d].dim < ROW_DIMS)
      dims &= ~(1u << d);
  return dims;
}

/* In micro-batches the part's shape says nothing: the ranks' micro-batches are parts of each rank's
   places, and not of all places. */
int64_t places_here(int value, int rank, struct shape part)
{
  const struct value *v = &graph->value[value];
  bool by_shape =
      v->on_other_stages || names_counted(v->counts) == NONE || time_dimension() == NONE;
  return by_shape ? places_of_part(part) : places_along(v->counts, dims_without_places(v), rank);
}

struct shape room_by_rows(int value, int rank, struct shape part)
{
  const struct shape *whole = &graph->value[value].shape;
  int64_t experts = part.size[0], all = whole->size[0];
  int64_t places = places_here(value, rank, part), room = places;
  if (experts > 0) room = rows_within(bound_of_rows(value), places, experts, all);
  if (experts > 1) part.size[0] = 1;
  if (room == places_of_part(part)) return part;
  for (int d = 1; d < ROW_DIMS; d++) part.size[d] = 1;
  /* The innermost dimension of places that has more than one: a rule gives no letter to others, so
     kernels have no loop over them. */
  int d = ROW_DIMS - 1;
  while (d > 1 && whole->size[d] == 1) d--;
  part.size[d] = room;
  return part;
}
