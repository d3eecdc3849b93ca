/* reshard_data make FILE SHAPE N: writes a file of data for tests/plans/redistributions/pairs.lua:
   equal tensors x1 ... xN of float32 with that shape, such as "7x5", whose elements all differ.
   reshard_data check FILE SHAPE: ends with 0 if all tensors in the file, of any type, equal this
   one; prints their number. */
#include "tensor_file.h"

/* A number of either sign that is exact in bfloat16, for at most 256 elements. */
static double element(size_t i)
{
  return (i * 2654435761U >> 7 & 1 ? -1.0 : 1.0) * (double)(i + 1);
}

static size_t elements_in(const char *shape)
{
  size_t n = 1;
  for (char *end; *shape; shape = *end ? end + 1 : end) n *= strtoul(shape, &end, 10);
  return n;
}

static json_t *sizes_of(const char *shape)
{
  json_t *list = json_array();
  for (char *end; *shape; shape = *end ? end + 1 : end)
    json_array_append_new(list, json_integer(strtol(shape, &end, 10)));
  return list;
}

static int make(const char *path, const char *shape, int count)
{
  size_t n = elements_in(shape);
  json_t *header = json_object();
  for (int t = 0; t < count; t++) {
    char name[16];
    snprintf(name, sizeof name, "x%d", t + 1);
    json_int_t first = (json_int_t)(4 * n) * t;
    json_object_set_new(header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", sizes_of(shape),
                                  "data_offsets", first, first + (json_int_t)(4 * n)));
  }
  char *text = json_dumps(header, JSON_COMPACT);
  uint64_t length = strlen(text);
  FILE *f = fopen(path, "wb");
  if (!f) die(path, "cannot be created");
  for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 0xff), f);
  fputs(text, f);
  for (int t = 0; t < count; t++)
    for (size_t i = 0; i < n; i++) {
      float x = (float)element(i);
      fwrite(&x, sizeof x, 1, f);
    }
  if (ferror(f) || fclose(f)) die(path, "cannot be written");
  return 0;
}

static int check(const char *path, const char *shape)
{
  struct file file = load(path);
  const char *name;
  json_t *tensor, *sizes = sizes_of(shape);
  json_object_foreach(file.header, name, tensor)
  {
    struct elements e = elements_of(&file, tensor);
    if (!json_equal(json_object_get(tensor, "shape"), sizes) || e.n != elements_in(shape))
      die(name, "has another shape");
    for (size_t i = 0; i < e.n; i++) {
      double expected = strcmp(e.dtype, "BOOL") ? element(i) : element(i) > 0;
      if (number(&e, i) == expected) continue;
      fprintf(stderr, "%s: %s[%zu] is %.9g, not %.9g\n", path, name, i, number(&e, i), expected);
      return 1;
    }
  }
  printf("%zu\n", json_object_size(file.header));
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 5 && !strcmp(argv[1], "make")) return make(argv[2], argv[3], atoi(argv[4]));
  if (argc == 4 && !strcmp(argv[1], "check")) return check(argv[2], argv[3]);
  die("usage", "moved make FILE SHAPE N, moved check FILE SHAPE");
}
