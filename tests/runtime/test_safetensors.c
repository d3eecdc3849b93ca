// safetensors: which files are accepted, which are refused with which messages; slices of uneven
// shards.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "formats/safetensors.h"
#include "safetensors_corpus.h"
#include "temporary.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// A file: a length, a header and so many bytes of data, 0, 1, 2 ...
static void write_file(uint64_t length, const char *header, size_t bytes, size_t data)
{
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 0xff), f);
  fwrite(header, 1, bytes, f);
  for (size_t i = 0; i < data; i++) fputc((int)(i & 0xff), f);
  assert_int_equal(fclose(f), 0);
}

static void refused(const char *says)
{
  struct safetensors file;
  struct failure why = {""};
  if (safetensors_open(&file, path, &why)) fail_msg("taken, though it should say: %s", says);
  if (!strstr(why.text, says)) fail_msg("said: %s\nnot: %s", why.text, says);
  if (strncmp(why.text, path, strlen(path)) != 0) fail_msg("does not name the file: %s", why.text);
}

static void judged(const struct judgement *row)
{
  struct safetensors file;
  struct failure why = {""};
  size_t bytes = strlen(row->header);
  write_file(bytes, row->header, bytes, row->data);
  if (row->says) {
    refused(row->says);
    return;
  }
  if (!safetensors_open(&file, path, &why)) fail_msg("%s, of %s", why.text, row->header);
  safetensors_close(&file);
}

static void headers(void **state)
{
  (void)state;
  for (size_t i = 0; i < COUNT(taken); i++) judged(&taken[i]);
  for (size_t i = 0; i < COUNT(refused_by_all); i++) judged(&refused_by_all[i]);
  for (size_t i = 0; i < COUNT(refused_here); i++) judged(&refused_here[i]);
}

// The reference refuses what is nested deeper than 127; what is in a key that it does not know
// begins at the third level.
static void deep_headers(void **state)
{
  (void)state;
  static const char start[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":";
  for (int depth = 120; depth <= 130; depth++) {
    char header[400], *end = header + sprintf(header, "%s", start);
    for (int i = 2; i < depth; i++) *end++ = '[';
    for (int i = 2; i < depth; i++) *end++ = ']';
    end += sprintf(end, "}}");
    judged(&(struct judgement){header, 1, depth > 127 ? "nested too deeply" : NULL});
  }
}

static void bad_lengths(void **state)
{
  (void)state;
  write_file(3, "{}", 2, 0);
  refused("a header of 3 bytes does not fit in the file, which has 10");
  write_file(100000001, "{}", 2, 0);
  refused("above the limit of 100000000");
  write_file(UINT64_MAX, "{}", 2, 0);
  refused("above the limit");
  write_file(100000000, "{}", 2, 0);
  refused("does not fit in the file");
  for (off_t size = 0; size < 8; size++) {
    assert_int_equal(truncate(path, size), 0);
    refused("too few");
  }
}

static void no_files(void **state)
{
  (void)state;
  unlink(path);
  refused("No such file");
  struct safetensors file;
  struct failure why = {""};
  assert_false(safetensors_open(&file, directory, &why));
  assert_non_null(strstr(why.text, "not a file"));
}

// Every file that is cut short, and every header with one bit turned, is judged without a crash.
static void mutations(void **state)
{
  (void)state;
  const char header[] = "{\"__metadata__\":{\"step\":\"3\"},"
                        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ";
  char turned[sizeof header];
  size_t bytes = sizeof header - 1;
  struct safetensors file;
  struct failure why;
  for (size_t bit = 0; bit < bytes * 8; bit++) {
    memcpy(turned, header, sizeof header);
    turned[bit / 8] = (char)(turned[bit / 8] ^ 1 << bit % 8);
    write_file(bytes, turned, bytes, 20);
    if (safetensors_open(&file, path, &why)) safetensors_close(&file);
  }
  write_file(bytes, header, bytes, 20);
  assert_true(safetensors_open(&file, path, &why));
  safetensors_close(&file);
  for (off_t size = (off_t)(8 + bytes + 19); size >= 0; size--) {
    assert_int_equal(truncate(path, size), 0);
    assert_false(safetensors_open(&file, path, &why));
  }
}

static void finding(void **state)
{
  (void)state;
  static const struct {
    const char *header;
    size_t data, count;
  } rows[] = {
      {"{}      ", 0, 0},
      {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
      {"{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
       "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
       7, 2},
      {"{\"a\":[\"F32\",[1],[0,4]]}", 4, 1},
  };
  for (size_t i = 0; i < COUNT(rows); i++) {
    struct safetensors file;
    struct failure why = {""};
    size_t bytes = strlen(rows[i].header);
    write_file(bytes, rows[i].header, bytes, rows[i].data);
    if (!safetensors_open(&file, path, &why)) fail_msg("%s", why.text);
    assert_int_equal(file.count, rows[i].count);
    assert_int_equal(safetensors_find(&file, "a") != NULL, rows[i].count > 0);
    assert_null(safetensors_find(&file, "__metadata__"));
    assert_null(safetensors_find(&file, "c"));
    safetensors_close(&file);
  }
}

// ---- slices ------------------------------------------------------------------------------------

enum { DIMS = 3, MOST = 512 };

// The part c of n of a size, as torch.chunk cuts: parts of the same size until nothing is left.
static void chunk(long size, long n, long c, long *first, long *here)
{
  long part = (size + n - 1) / n;
  *first = c * part < size ? c * part : size;
  *here = *first + part < size ? part : size - *first;
}

static struct slice part_of(const long of[DIMS], const long cuts[DIMS], long coordinate,
                            long first[DIMS], long here[DIMS])
{
  for (int d = DIMS - 1; d >= 0; d--) {
    chunk(of[d], cuts[d], coordinate % cuts[d], &first[d], &here[d]);
    coordinate /= cuts[d];
  }
  return (struct slice){DIMS, of, here, first};
}

// The whole tensor's index of a slice's own element, found the slow way.
static size_t whole_index(const struct slice *s, size_t own)
{
  size_t index = 0, stride = 1;
  for (size_t d = s->ndim; d-- > 0;) {
    index += ((size_t)s->first[d] + own % (size_t)s->here[d]) * stride;
    own /= (size_t)s->here[d];
    stride *= (size_t)s->of[d];
  }
  return index;
}

static const long shapes[][DIMS] = {{5, 7, 3}, {1, 4, 6}, {8, 1, 1}, {2, 2, 9}, {0, 3, 2}};
static const long cuts[][DIMS] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 3, 1},
                                  {1, 1, 2}, {1, 1, 4}, {2, 3, 2}, {9, 1, 1}};

// Runs are right and as long as they can be: where one ends, the next element is elsewhere.
static void runs(void **state)
{
  (void)state;
  long first[DIMS], here[DIMS];
  for (size_t i = 0; i < COUNT(shapes); i++)
    for (size_t j = 0; j < COUNT(cuts); j++)
      for (long c = 0; c < cuts[j][0] * cuts[j][1] * cuts[j][2]; c++) {
        struct slice s = part_of(shapes[i], cuts[j], c, first, here);
        size_t elements = slice_elements(&s);
        for (size_t from = 0; from < elements;) {
          struct run run = slice_run(&s, from, elements - from);
          assert_true(run.count > 0 && run.count <= elements - from);
          for (size_t k = 0; k < run.count; k++)
            assert_int_equal(run.first + k, whole_index(&s, from + k));
          from += run.count;
          if (from < elements) assert_int_not_equal(run.first + run.count, whole_index(&s, from));
        }
      }
}

static void scalar_is_one_run(void **state)
{
  (void)state;
  struct slice s = {0, NULL, NULL, NULL};
  struct run run = slice_run(&s, 0, 1);
  assert_int_equal(slice_elements(&s), 1);
  assert_int_equal(run.first, 0);
  assert_int_equal(run.count, 1);
}

// A new file with a scalar, a tensor of 2-byte elements and one of 4: laid out and pre-sized.
static int create(struct entry entries[3], const long *shape, uint64_t *data)
{
  static const char *const metadata[][2] = {{"step", "12"}, {"plan", "a \"quoted\" name"}};
  struct failure why = {""};
  char *head;
  size_t length;
  entries[0] = (struct entry){.name = "half", .dtype = "BF16", .ndim = DIMS, .shape = shape};
  entries[1] = (struct entry){.name = "full", .dtype = "F32", .ndim = DIMS, .shape = shape};
  entries[2] = (struct entry){.name = "scalar", .dtype = "I64", .ndim = 0, .shape = shape};
  if (!safetensors_layout(entries, 3, metadata, 2, &head, &length, &why)) fail_msg("%s", why.text);
  assert_int_equal(length % 8, 0);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  uint64_t end = 0;
  for (int i = 0; i < 3; i++) end = entries[i].end > end ? entries[i].end : end;
  assert_int_equal(ftruncate(fd, (off_t)(length + end)), 0);
  assert_int_equal(pwrite(fd, head, length, 0), length);
  free(head);
  *data = length;
  return fd;
}

// Each part writes its shard in pieces of `piece` elements; element i of the whole has the value i.
static void write_parts(int fd, uint64_t at, const long *shape, const long *cut, size_t piece)
{
  long first[DIMS], here[DIMS];
  float values[MOST];
  struct failure why = {""};
  for (long c = 0; c < cut[0] * cut[1] * cut[2]; c++) {
    struct slice s = part_of(shape, cut, c, first, here);
    size_t elements = slice_elements(&s);
    for (size_t from = 0; from < elements; from += piece) {
      size_t count = elements - from < piece ? elements - from : piece;
      for (size_t k = 0; k < count; k++) values[k] = (float)whole_index(&s, from + k);
      assert_true(safetensors_write(fd, path, at, 4, &s, from, count, values, &why));
    }
  }
}

static void read_parts(const struct safetensors *file, const long *shape, const long *cut)
{
  long first[DIMS], here[DIMS];
  float values[MOST];
  struct failure why = {""};
  const struct entry *e = safetensors_find(file, "full");
  assert_non_null(e);
  for (long c = 0; c < cut[0] * cut[1] * cut[2]; c++) {
    struct slice s = part_of(shape, cut, c, first, here);
    size_t elements = slice_elements(&s);
    assert_true(safetensors_read(file, e, &s, 0, elements, values, &why));
    for (size_t k = 0; k < elements; k++) assert_int_equal((size_t)values[k], whole_index(&s, k));
    if (elements < 2) continue;
    assert_true(safetensors_read(file, e, &s, 1, elements - 1, values, &why));
    for (size_t k = 1; k < elements; k++)
      assert_int_equal((size_t)values[k - 1], whole_index(&s, k));
  }
}

static void written_by_slices(void **state)
{
  (void)state;
  struct entry entries[3];
  struct safetensors file;
  struct failure why = {""};
  uint64_t data;
  for (size_t i = 0; i < COUNT(shapes); i++)
    for (size_t j = 0; j < COUNT(cuts); j++)
      for (size_t k = 0; k < COUNT(cuts); k++) {
        int fd = create(entries, shapes[i], &data);
        write_parts(fd, data + entries[1].begin, shapes[i], cuts[j], 1 + j);
        assert_int_equal(close(fd), 0);
        if (!safetensors_open(&file, path, &why)) fail_msg("%s", why.text);
        assert_int_equal(file.data, data);
        assert_string_equal(safetensors_metadata(&file, "step"), "12");
        assert_string_equal(safetensors_metadata(&file, "plan"), "a \"quoted\" name");
        assert_null(safetensors_metadata(&file, "none"));
        assert_int_equal(safetensors_find(&file, "scalar")->begin, 0);
        assert_int_equal(safetensors_find(&file, "half")->ndim, DIMS);
        read_parts(&file, shapes[i], cuts[k]);
        safetensors_close(&file);
      }
}

static void names_that_are_no_text(void **state)
{
  (void)state;
  struct entry e = {.name = "a\xff", .dtype = "F32"};
  struct failure why = {""};
  char *head;
  size_t length;
  assert_false(safetensors_layout(&e, 1, NULL, 0, &head, &length, &why));
  assert_non_null(strstr(why.text, "UTF-8"));
}

static void cut_while_reading(void **state)
{
  (void)state;
  const long shape[] = {4}, first[] = {0};
  struct slice s = {1, shape, shape, first};
  const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}";
  struct safetensors file;
  struct failure why = {""};
  float values[4];
  write_file(sizeof header - 1, header, sizeof header - 1, 16);
  assert_true(safetensors_open(&file, path, &why));
  assert_int_equal(truncate(path, (off_t)file.data + 8), 0);
  assert_false(safetensors_read(&file, &file.entries[0], &s, 0, 4, values, &why));
  assert_non_null(strstr(why.text, "the file ended while it was read"));
  safetensors_close(&file);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(headers),
      cmocka_unit_test(deep_headers),
      cmocka_unit_test(bad_lengths),
      cmocka_unit_test(no_files),
      cmocka_unit_test(mutations),
      cmocka_unit_test(finding),
      cmocka_unit_test(runs),
      cmocka_unit_test(scalar_is_one_run),
      cmocka_unit_test(written_by_slices),
      cmocka_unit_test(cut_while_reading),
      cmocka_unit_test(names_that_are_no_text),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
