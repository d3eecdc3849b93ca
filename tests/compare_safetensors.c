/* compare_safetensors A B TOLERANCE [LIKE_A ...]: ends with 0 where A and B hold the same tensors,
   by name, type and shape, and no value of B is further from A's than TOLERANCE times the largest
   magnitude in A's tensor; whole numbers and truths are equal. LIKE_A are files of runs that began
   a rounding error away from A's: they show what such errors grow to in each tensor, and ten times
   as much is let pass in B. It reads the format on its own, not by the runtime's code, which it is
   there to test.  */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
  const char *path;
  json_t *header;
  const unsigned char *data;
  size_t size;
};

static _Noreturn void die(const char *path, const char *what)
{
  fprintf(stderr, "compare_safetensors: %s: %s\n", path, what);
  exit(1);
}

static struct file load(const char *path)
{
  FILE *f = fopen(path, "rb");
  if (!f) die(path, "cannot be opened");
  fseek(f, 0, SEEK_END);
  size_t size = (size_t)ftell(f);
  rewind(f);
  unsigned char *bytes = malloc(size + 1);
  if (!bytes || fread(bytes, 1, size, f) != size || size < 8) die(path, "cannot be read");
  fclose(f);
  uint64_t header = 0;
  for (int i = 0; i < 8; i++) header |= (uint64_t)bytes[i] << (8 * i);
  if (header > size - 8) die(path, "its header is longer than the file");
  json_t *json = json_loadb((char *)bytes + 8, header, JSON_REJECT_DUPLICATES, NULL);
  if (!json) die(path, "its header is no JSON");
  json_object_del(json, "__metadata__");
  return (struct file){path, json, bytes + 8 + header, size - 8 - header};
}

/* A tensor's elements; of which type, as the files say it. */
struct elements {
  const char *dtype;
  const unsigned char *bytes;
  size_t n;
};

static size_t size_of(const char *dtype)
{
  static const struct {
    const char *dtype;
    size_t size;
  } known[] = {{"F32", 4}, {"I32", 4}, {"I64", 8}, {"BOOL", 1}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].dtype, dtype)) return known[i].size;
  return 0;
}

static struct elements elements_of(const struct file *f, json_t *tensor)
{
  json_int_t first, end;
  struct elements e;
  if (json_unpack(tensor, "{s:s, s:[I, I]}", "dtype", &e.dtype, "data_offsets", &first, &end) ||
      !size_of(e.dtype) || first < 0 || end < first || (size_t)end > f->size)
    die(f->path, "a tensor of no known type, or outside the file");
  e.bytes = f->data + first;
  e.n = (size_t)(end - first) / size_of(e.dtype);
  return e;
}

static double number(const struct elements *e, size_t i)
{
  float f;
  int32_t i32;
  int64_t i64;
  switch (*e->dtype) {
  case 'F':
    return memcpy(&f, e->bytes + 4 * i, 4), (double)f;
  case 'B':
    return e->bytes[i];
  default:
    if (size_of(e->dtype) == 4) return memcpy(&i32, e->bytes + 4 * i, 4), i32;
    return memcpy(&i64, e->bytes + 8 * i, 8), (double)i64;
  }
}

/* The tensor of this name, with that shape and type. */
static struct elements same_tensor(const struct file *f, const char *name, json_t *like)
{
  json_t *tensor = json_object_get(f->header, name);
  if (!tensor || !json_equal(json_object_get(tensor, "shape"), json_object_get(like, "shape")) ||
      !json_equal(json_object_get(tensor, "dtype"), json_object_get(like, "dtype")))
    die(name, "is not in all files, with one shape and type");
  return elements_of(f, tensor);
}

/* The largest distance of two elements, and which. */
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
    double allowed = *x.dtype == 'F' ? fmax(strtod(argv[3], NULL) * largest, GROWN * grown) : 0;
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
