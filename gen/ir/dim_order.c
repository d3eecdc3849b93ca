/* dim_order.c: the order of a value's dimensions in memory, and their strides. */
#include "ir/ir.h"

unsigned order_with_dimension(unsigned order, int place, int dim)
{
  return order | (unsigned)dim << 3 * place;
}

int dimension_at(int value, int place)
{
  unsigned order = graph->value[value].order;
  return order ? (int)(order >> 3 * place & 7) : place;
}

int dimension_place(int value, int dim)
{
  int at = 0;
  while (dimension_at(value, at) != dim) at++;
  return at;
}

unsigned moved_to_front(int dim, int ndim)
{
  unsigned order = 0;
  if (dim == 0) return 0;
  for (int at = 0; at < ndim; at++)
    order = order_with_dimension(order, at, at == 0 ? dim : at <= dim ? at - 1 : at);
  return order;
}

const char *order_text(const struct value *v)
{
  int first = (int)(v->order & 7);
  if (v->order == moved_to_front(first, v->shape.ndim))
    return text("dimension %d outermost", first);
  struct buffer b = {0};
  for (int at = 0; at < v->shape.ndim; at++)
    put(&b, "%s%u", at ? " " : "dimensions ordered ", v->order >> 3 * at & 7);
  return b.text;
}

void local_strides(int value, int rank, int64_t stride[MAX_DIMS])
{
  const struct concat_slice *w = concat_slice(value);
  struct shape here = local_shape(value, rank);
  int64_t inside = 1;
  bool apart = w->buffer == NONE;
  for (int at = here.ndim; at-- > 0;) {
    int d = dimension_at(value, at);
    stride[d] = inside;
    inside *= here.size[d];
    if (apart || inside != w->row) continue;
    inside = w->pitch;
    apart = true;
  }
}

int64_t bytes_before(int value)
{
  const struct concat_slice *w = concat_slice(value);
  if (w->buffer == NONE) return 0;
  int64_t rows = elements(local_shape(value, 0)) / w->row;
  return rows < 1 ? 0 : (rows - 1) * w->first * type_bytes(graph->value[value].type);
}

bool same_place(int a, int b)
{
  struct allocation x = allocation_of(a), y = allocation_of(b);
  return storage_of(a) == storage_of(b) && x.offset == y.offset && x.slice == y.slice;
}
