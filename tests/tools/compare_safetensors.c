/* compare_safetensors A B TOLERANCE [LIKE_A ...]: ends with 0 if A and B have the same tensors, by
   name, type and shape, and no value of B differs from A's by more than TOLERANCE times the largest
   magnitude in A's tensor; integers and booleans must be equal. LIKE_A are files of runs that began
   a rounding error away from A's: they show the growth of such errors in each tensor, and B may
   differ by ten times as much. */
#include <math.h>
#include "tensor_file.h"

/* The tensor of this name, with that shape and type. */
static struct elements same_tensor(const struct file *f, const char *name, json_t *like)
{
  json_t *tensor = json_object_get(f->header, name);
  if (!tensor || !json_equal(json_object_get(tensor, "shape"), json_object_get(like, "shape")) ||
      !json_equal(json_object_get(tensor, "dtype"), json_object_get(like, "dtype")))
    die(name, "is not in all files, with one shape and type");
  return elements_of(f, tensor);
}

/* The largest distance of two elements, and its index. */
static double distance(const struct elements *x, const struct elements *y, size_t *where)
{
  double worst = 0;
  *where = 0;
  if (x->n != y->n) die("tensors", "differ in size");
  for (size_t i = 0; i < x->n; i++) {
    double apart = fabs(number(x, i) - number(y, i));
    if (apart <= worst) continue;
    *where = i;
    worst = apart;
    if (isnan(apart)) break;
  }
  return worst;
}

int main(int argc, char **argv)
{
  enum { GROWN = 10 };
  if (argc < 4) die("usage", "compare_safetensors A B TOLERANCE [LIKE_A ...]");
  struct file *file = calloc((size_t)argc, sizeof *file), *a = &file[1], *b = &file[2];
  for (int i = 1; i < argc; i++)
    if (i != 3) file[i] = load(argv[i]);
  double worst_of_all = 0;
  if (json_object_size(a->header) != json_object_size(b->header) || !json_object_size(a->header))
    die(b->path, "has another number of tensors");
  const char *name;
  json_t *tensor;
  json_object_foreach(a->header, name, tensor)
  {
    size_t where, ignored;
    struct elements x = elements_of(a, tensor), y = same_tensor(b, name, tensor);
    double largest = 0, grown = 0, worst = distance(&x, &y, &where);
    for (size_t i = 0; i < x.n; i++) largest = fmax(largest, fabs(number(&x, i)));
    for (int i = 4; i < argc; i++) {
      struct elements like = same_tensor(&file[i], name, tensor);
      grown = fmax(grown, distance(&x, &like, &ignored));
    }
    double allowed =
        strchr(x.dtype, 'F') ? fmax(strtod(argv[3], NULL) * largest, GROWN * grown) : 0;
    if (!(worst <= allowed)) {
      fprintf(stderr,
              "%s[%zu]: %.9g and %.9g; the largest is %.9g, a rounding error grows to %.1e\n", name,
              where, number(&x, where), number(&y, where), largest, grown);
      return 1;
    }
    if (largest > 0) worst_of_all = fmax(worst_of_all, worst / largest);
  }
  printf("  %zu tensors, at most %.1e apart\n", json_object_size(a->header), worst_of_all);
  return 0;
}
