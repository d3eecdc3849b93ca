/* local_shape.c: the shape of a rank's part of a value, of its room, and of micro-batches that
   differ in size. */
#include "ir/ir.h"

struct shape local_shape(int value, int rank)
{
  struct shape shape = shape_of_part(value, rank);
  return graph->value[value].counts == NONE ? shape : room_by_rows(value, rank, shape);
}

double elements_in_balance(int value, int rank)
{
  const struct value *v = &graph->value[value];
  struct shape part = shape_of_part(value, rank);
  int64_t all = elements(part);
  if (v->counts == NONE || all == 0) return (double)all;
  double places = (double)places_here(value, rank, part) / (double)places_of_part(part);
  return (double)all * places / (double)v->shape.size[0];
}

/* The part that the rank would have if nothing were shifted. */
static struct shape unshifted_shape(int value, int rank)
{
  const struct value *v = &graph->value[value];
  int coordinate[MAX_MESH] = {0};
  bool has_shift = false;
  for (int i = 0; i < graph->mesh.ndim && !has_shift; i++) has_shift = v->layout.on[i].shift;
  if (!has_shift || v->on_other_stages) return local_shape(value, rank);
  coordinate_of(rank, coordinate);
  struct layout layout = v->layout;
  for (int i = 0; i < graph->mesh.ndim; i++) layout.on[i].shift = 0;
  return local_part(&graph->mesh, v->shape, layout, coordinate).shape;
}

/* The same in that micro-batch. */
static struct shape shape_in(int microbatch, int value, int rank)
{
  const int now = graph->mesh.now;
  graph->mesh.now = microbatch;
  struct shape shape = unshifted_shape(value, rank);
  graph->mesh.now = now;
  return shape;
}

/* torch.chunk gives the largest parts to the first ranks, so rank 0's part is the largest, where
   none is shifted. */
int64_t largest_bytes(int value)
{
  return elements(shape_in(0, value, 0)) * type_bytes(graph->value[value].type);
}

bool is_cut_evenly(int value, int dim)
{
  struct shape least = shape_in(microbatches() - 1, value, world_size() - 1);
  return shape_in(0, value, 0).size[dim] == least.size[dim];
}

bool is_even_in_time(int value)
{
  const int dim = time_dimension(), counts = graph->value[value].counts;
  /* Rows of experts are of the micro-batches of all that have their tokens. */
  if (counts != NONE && names_counted(counts) != NONE) value = names_counted(counts);
  const struct value *v = &graph->value[value];
  return dim == NONE || v->layout.on[dim].kind != SHARD ||
         is_cut_evenly_in_time(&graph->mesh, v->layout, dim, v->shape);
}

/* The parts that ranks have of these values in a micro-batch. */
static uint64_t hash_parts_in(int microbatch, const struct list *values)
{
  uint64_t h = HASH_START;
  graph->mesh.now = microbatch;
  for (int r = 0; r < world_size(); r++)
    for (int i = 0; i < values->n; i++) {
      struct shape here = local_shape(values->at[i], r);
      h = hash_bytes(h, here.size, (size_t)here.ndim * sizeof *here.size);
    }
  graph->mesh.now = 0;
  return h;
}

struct list microbatch_sizes(void)
{
  struct list first = {0}, uneven = {0};
  add(&first, 0);
  for (int i = 0; i < graph->nvalue && microbatches() > 1; i++)
    if (!is_even_in_time(i)) add(&uneven, i);
  if (!uneven.n) return first;
  uint64_t before = hash_parts_in(0, &uneven);
  for (int k = 1; k < microbatches(); k++) {
    const uint64_t h = hash_parts_in(k, &uneven);
    if (h != before) add(&first, k);
    before = h;
  }
  return first;
}

bool next_size(const struct list *sizes, int *size)
{
  const bool is_one = ++*size < sizes->n;
  graph->mesh.now = is_one ? sizes->at[*size] : 0;
  return is_one;
}

int size_of_microbatch(const struct list *sizes, int microbatch)
{
  int size = sizes->n - 1;
  while (sizes->at[size] > microbatch) size--;
  return size;
}
