/* compare_safetensors A B TOLERANCE: ends with 0 where two safetensors files hold the same float32
   tensors, by name and shape, with values no further apart than TOLERANCE times the largest
   magnitude in A's tensor.
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

/* How far y[i] is from x[i] at most, over the largest |x[i]|. Ends the program beyond the
 * tolerance. */
static double distance(const char *name, const unsigned char *x, const unsigned char *y, size_t n,
                       double tolerance)
{
  double largest = 0, worst = 0;
  for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)number(x, i)));
  for (size_t i = 0; i < n; i++) {
    double u = (double)number(x, i), v = (double)number(y, i), apart = fabs(u - v);
    if (!(apart <= tolerance * largest)) {
      fprintf(stderr, "%s[%zu]: %.9g and %.9g, where the largest is %.9g\n", name, i, u, v,
              largest);
      exit(1);
    }
    if (largest > 0) worst = fmax(worst, apart / largest);
  }
  return worst;
}

int main(int argc, char **argv)
{
  if (argc != 4) die("usage", "compare_safetensors A B TOLERANCE");
  struct file a = load(argv[1]), b = load(argv[2]);
  double tolerance = strtod(argv[3], NULL), worst = 0;
  if (json_object_size(a.header) != json_object_size(b.header) || !json_object_size(a.header))
    die(b.path, "has another number of tensors");
  const char *name;
  json_t *tensor;
  json_object_foreach(a.header, name, tensor)
  {
    json_t *other = json_object_get(b.header, name);
    if (!other || !json_equal(json_object_get(tensor, "shape"), json_object_get(other, "shape")))
      die(name, "is not in both files, with one shape");
    size_t n, m;
    const unsigned char *x = bytes_of(&a, tensor, &n), *y = bytes_of(&b, other, &m);
    if (n != m) die(name, "differs in size");
    worst = fmax(worst, distance(name, x, y, n / 4, tolerance));
  }
  printf("  %zu tensors, at most %.1e apart\n", json_object_size(a.header), worst);
  return 0;
}
