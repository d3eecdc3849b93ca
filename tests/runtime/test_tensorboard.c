// Files of events: the same bytes as those of TensorBoard's own writer for the same numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "metrics/tensorboard.h"
#include "temporary.h"

static void bytes_of_tensorboard(void **state)
{
  (void)state;
  // Event(wall_time=1.5, step=300, summary=Summary(value=[Value(tag="loss", simple_value=2.5),
  // Value(tag="lr", simple_value=1e-3)])), by the RecordWriter of tensorboard 2.21.
  static const unsigned char expected[] = {
      0x26, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x73, 0x4f, 0xe3, 0x00, 0x09, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0xac, 0x02, 0x2a, 0x18, 0x0a, 0x0b,
      0x0a, 0x04, 0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x20, 0x40, 0x0a, 0x09, 0x0a,
      0x02, 0x6c, 0x72, 0x15, 0x6f, 0x12, 0x83, 0x3a, 0xb3, 0x9a, 0xc2, 0xa5};
  enum { HEAD = 40 }; // the record that says which version the file is of
  unsigned char got[200];
  char name[EVENTS_NAME];
  struct failure why = {""};
  FILE *f = events_open(directory, name, &why);
  assert_non_null(f);
  events_begin(1.5, 300);
  events_number("loss", 2.5);
  events_number("lr", 1e-3);
  events_end(f);
  assert_int_equal(fclose(f), 0);
  assert_non_null(strstr(name, "/events.out.tfevents."));
  f = fopen(name, "rb");
  assert_non_null(f);
  const size_t count = fread(got, 1, sizeof got, f);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(count, HEAD + sizeof expected);
  assert_memory_equal(got + HEAD - 17, "brain.Event:2", 13);
  assert_memory_equal(got + HEAD, expected, sizeof expected);
}

// More numbers than an event has room for end with a whole one.
static void many_numbers(void **state)
{
  (void)state;
  char name[EVENTS_NAME], tag[60];
  struct failure why = {""};
  FILE *f = events_open(directory, name, &why);
  assert_non_null(f);
  events_begin(2, 1);
  for (int i = 0; i < 1000; i++) {
    snprintf(tag, sizeof tag, "a number with a long name, number %d", i);
    events_number(tag, i);
  }
  events_end(f);
  assert_int_equal(ftell(f) > 3900 && ftell(f) < 4200, 1);
  assert_int_equal(fclose(f), 0);
  assert_null(events_open("/dev/null/nonexistent", name, &why));
  assert_non_null(strstr(why.text, "/nonexistent: cannot make the directory"));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_of_tensorboard),
                                     cmocka_unit_test(many_numbers)};
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
