// .npy files: every type and version that NumPy writes, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "formats/npy.h"
#include "temporary.h"

// A file of this version, header and as many bytes of data.
static void write_file(int version, const char *text, size_t bytes)
{
  FILE *f = fopen(path, "wb");
  const size_t length = strlen(text);
  assert_non_null(f);
  fputs("\x93NUMPY", f);
  fputc(version, f);
  fputc(0, f);
  for (int i = 0; i < (version > 1 ? 4 : 2); i++) fputc((int)(length >> 8 * i & 0xff), f);
  fputs(text, f);
  for (size_t i = 0; i < bytes; i++) fputc((int)(i & 0xff), f);
  assert_int_equal(fclose(f), 0);
}

static void taken(const char *dtype, size_t ndim, const long *shape)
{
  struct safetensors file;
  struct failure why = {""};
  unsigned char first;
  const long one[] = {1, 1, 1}, none[] = {0, 0, 0};
  if (!npy_open(&file, path, "x", &why)) fail_msg("%s", why.text);
  const struct entry *e = safetensors_find(&file, "x");
  assert_non_null(e);
  assert_string_equal(e->dtype, dtype);
  assert_int_equal(e->ndim, ndim);
  for (size_t d = 0; d < ndim; d++) assert_int_equal(e->shape[d], shape[d]);
  if (ndim > 0 && shape[0] > 0 && safetensors_bits(dtype) == 8) {
    const struct slice slice = {ndim, e->shape, one, none};
    assert_true(safetensors_read(&file, e, &slice, 0, 1, &first, &why));
    assert_int_equal(first, 0);
  }
  safetensors_close(&file);
}

static void refused(const char *says)
{
  struct safetensors file;
  struct failure why = {""};
  if (npy_open(&file, path, "x", &why)) fail_msg("taken, though: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
}

static void every_type(void **state)
{
  (void)state;
  static const char *const rows[][2] = {{"|b1", "BOOL"}, {"|u1", "U8"},  {"|i1", "I8"},
                                        {"<u2", "U16"},  {"<i2", "I16"}, {"<u4", "U32"},
                                        {"<i4", "I32"},  {"<u8", "U64"}, {"<i8", "I64"},
                                        {"<f2", "F16"},  {"<f4", "F32"}, {"<f8", "F64"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char text[200];
    snprintf(text, sizeof text,
             "{'descr': '%s', 'fortran_order': False, 'shape': (3, 2), }            \n",
             rows[i][0]);
    write_file(1, text, 6 * safetensors_bits(rows[i][1]) / 8);
    taken(rows[i][1], 2, (const long[]){3, 2});
  }
}

static void shapes_and_versions(void **state)
{
  (void)state;
  write_file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }\n", 1);
  taken("U8", 0, NULL);
  write_file(2, "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }\n", 7);
  taken("U8", 1, (const long[]){7});
  write_file(3, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4), }\n", 24);
  taken("U8", 3, (const long[]){2, 3, 4});
  write_file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 3), }\n", 0);
  taken("U8", 2, (const long[]){0, 3});
  assert_true(npy_is_named("a/b.npy"));
  assert_false(npy_is_named("b.npz"));
  assert_false(npy_is_named(".npy"));
}

static void bad_files(void **state)
{
  (void)state;
  write_file(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }\n", 12);
  refused("its elements are of NumPy's type '>f4'; whole numbers, bools and floats are read");
  write_file(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }\n", 24);
  refused("NumPy's type '<c8'");
  write_file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }\n", 12);
  refused("its elements are records");
  write_file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }\n", 24);
  refused("its array is in Fortran's order: save numpy.ascontiguousarray(x)");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 11);
  refused("its header says 12 bytes, but 11 follow it");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 13);
  refused("its header says 12 bytes, but 13 follow it");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }\n",
             8);
  refused("its header says");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, -2), }\n", 24);
  refused("not a .npy file");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3", 24);
  refused("not a .npy file");
  write_file(1, "{'descr': '<f4', 'fortran_order': False, }", 24);
  refused("not a .npy file");
  write_file(4, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12);
  refused("not a .npy file");
  // Cut short anywhere, and other bytes.
  write_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12);
  for (long length = 79; length >= 0; length--) {
    assert_int_equal(truncate(path, length), 0);
    refused("");
  }
  struct safetensors file;
  struct failure why = {""};
  assert_false(npy_open(&file, "/nonexistent.npy", "x", &why));
  assert_non_null(strstr(why.text, "/nonexistent.npy: cannot open: No such file"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_type),
                                     cmocka_unit_test(shapes_and_versions),
                                     cmocka_unit_test(bad_files)};
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
