/* compare_safetensors A B TOLERANCE [LIKE_A ...]: ends with 0 where A and B hold the same float32
   tensors, by name and shape, and no value of B is further from A's than TOLERANCE times the
   largest magnitude in A's tensor. LIKE_A are files of runs that began a rounding error away from
   A's: they show what such errors grow to in each tensor, and ten times as much is let pass in B.
   It reads the format on its own, not by the runtime's code, which it is there to test.  */
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

/* The bytes of one tensor, and how many. */
static const unsigned char *bytes_of(const struct file *f, json_t *tensor, size_t *n)
{
  json_int_t first, end;
  const char *dtype;
  if (json_unpack(tensor, "{s:s, s:[I, I]}", "dtype", &dtype, "data_offsets", &first, &end) ||
      strcmp(dtype, "F32") || first < 0 || end < first || (size_t)end > f->size)
    die(f->path, "a tensor that is not float32 or lies outside the file");
  *n = (size_t)(end - first);
  return f->data + first;
}

static float number(const unsigned char *bytes, size_t i)
{
  float x;
  memcpy(&x, bytes + 4 * i, 4);
  return x;
}

/* The tensor of this name and shape. */
static const unsigned char *same_tensor(const struct file *f, const char *name, json_t *like,
                                        size_t n)
{
  json_t *tensor = json_object_get(f->header, name);
  size_t bytes = 0;
  if (!tensor || !json_equal(json_object_get(tensor, "shape"), json_object_get(like, "shape")))
    die(name, "is not in all files, with one shape");
  const unsigned char *data = bytes_of(f, tensor, &bytes);
  if (bytes != n) die(name, "differs in size");
  return data;
}

/* The largest distance of two elements, and which. */
static double distance(const unsigned char *x, const unsigned char *y, size_t n, size_t *where)
{
  double worst = 0;
  *where = 0;
  for (size_t i = 0; i < n; i++) {
    double apart = fabs((double)number(x, i) - (double)number(y, i));
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
    size_t bytes, n, where, ignored;
    const unsigned char *x = bytes_of(a, tensor, &bytes);
    const unsigned char *y = same_tensor(b, name, tensor, bytes);
    double largest = 0, grown = 0, worst = distance(x, y, n = bytes / 4, &where);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)number(x, i)));
    for (int i = 4; i < argc; i++)
      grown = fmax(grown, distance(x, same_tensor(&file[i], name, tensor, bytes), n, &ignored));
    if (!(worst <= fmax(strtod(argv[3], NULL) * largest, GROWN * grown))) {
      fprintf(stderr,
              "%s[%zu]: %.9g and %.9g; the largest is %.9g, a rounding error grows to %.1e\n", name,
              where, (double)number(x, where), (double)number(y, where), largest, grown);
      return 1;
    }
    if (largest > 0) worst_of_all = fmax(worst_of_all, worst / largest);
  }
  printf("  %zu tensors, at most %.1e apart\n", json_object_size(a->header), worst_of_all);
  return 0;
}
