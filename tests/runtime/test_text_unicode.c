// Classes of characters in the regular expressions of tokenizers: those of Unicode 16, whatever
// Oniguruma's tables have.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "text/tokenizer/unicode.h"

static bool is_in_class(uint32_t code, const char *class)
{
  struct failure why = {""};
  struct bytes text = {0};
  size_t first, end;
  add_code(&text, code);
  struct pattern *pattern = pattern_open(class, strlen(class), false, &why);
  struct searched *searched = pattern ? search_begin(text.at, text.count, &why) : NULL;
  if (!searched) fail_msg("%s", why.text);
  const int found = search_next(searched, pattern, 0, &first, &end, &why);
  assert_true(found >= 0 && (found == 0 || (first == 0 && end == text.count)));
  search_end(searched);
  pattern_close(pattern);
  free_bytes(&text);
  return found;
}

static void classes_are_those_of_unicode_16(void **state)
{
  (void)state;
  static const struct {
    uint32_t code;
    bool letter, number, space;
  } rows[] = {
      {'a', true, false, false},     {'7', false, true, false},     {' ', false, false, true},
      {0x85, false, false, true},    {0xa0, false, false, true},    {0x2028, false, false, true},
      {0x3000, false, false, true},  {0x1c, false, false, false},   {0x180e, false, false, false},
      {0x200b, false, false, false}, {0xfeff, false, false, false}, {0x1c89, true, false, false},
      {0xa7cb, true, false, false},  {0x10d4a, true, false, false}, {0x10d40, false, true, false},
      {0x301, false, false, false},  {0x323b0, false, false, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (is_in_class(rows[i].code, "\\p{L}") != rows[i].letter ||
        is_in_class(rows[i].code, "\\p{N}") != rows[i].number ||
        is_in_class(rows[i].code, "\\s") != rows[i].space ||
        is_space(rows[i].code) != rows[i].space)
      fail_msg("U+%04X is in another class", rows[i].code);
  }
}

// Each maximal part that is no character becomes U+FFFD, as Rust's from_utf8_lossy does.
static void what_is_no_utf8_is_replaced(void **state)
{
  (void)state;
  static const struct {
    const char *text, *made;
  } rows[] = {{"a\xe2\x82z", "a\xef\xbf\xbdz"},
              {"\xf0\x9f\x98", "\xef\xbf\xbd"},
              {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
              {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
              {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
              {"\xe2\x82\xac", "\xe2\x82\xac"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct bytes made = {0};
    add_lossy(&made, rows[i].text, strlen(rows[i].text));
    assert_string_equal(made.at, rows[i].made);
    free_bytes(&made);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_are_those_of_unicode_16),
      cmocka_unit_test(what_is_no_utf8_is_replaced),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
