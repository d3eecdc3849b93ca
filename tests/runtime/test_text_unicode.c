// Classes of characters in the regular expressions of tokenizers: those of Unicode 16, whatever
// Oniguruma's tables have. Normalizers make of all characters what the library `tokenizers` makes
// of them (tests/golden/unicode_forms.json).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "text/tokenizer/normalizers.h"

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

static void add_to_hash(uint64_t *hash, const struct steps *steps, struct bytes *text)
{
  struct failure why = {""};
  bool begins = true;
  if (!steps_normalize(steps, text, &begins, &why)) fail_msg("%s", why.text);
  for (size_t i = 0; i < text->count; i++)
    *hash = (*hash ^ (unsigned char)text->at[i]) * UINT64_C(0x100000001b3);
}

// FNV-1a of what the normalizer makes of all characters, each alone and between marks.
static uint64_t hash_of_all(const char *normalizer)
{
  struct failure why = {""};
  struct steps steps = {0};
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  json_t *file = json_pack("{so}", "normalizer", json_loads(normalizer, 0, NULL));
  if (!steps_read(&steps, file, "normalizer", "the test", &why)) fail_msg("%s", why.text);
  for (uint32_t code = 1; code < 0x110000; code++) {
    struct bytes text = {0};
    if (code >= 0xd800 && code < 0xe000) continue;
    add_code(&text, code);
    add_to_hash(&hash, &steps, &text);
    text.count = 0;
    add_bytes(&text, "a\xcc\x81", 3);
    add_code(&text, code);
    add_bytes(&text, "\xcc\x96\xcc\x81", 4);
    add_to_hash(&hash, &steps, &text);
    free_bytes(&text);
  }
  steps_free(&steps);
  json_decref(file);
  return hash;
}

static void all_characters_are_normalized(void **state)
{
  (void)state;
  static const char *const rows[][2] = {
      {"NFC", "{\"type\": \"NFC\"}"},
      {"NFD", "{\"type\": \"NFD\"}"},
      {"NFKC", "{\"type\": \"NFKC\"}"},
      {"NFKD", "{\"type\": \"NFKD\"}"},
      {"Lowercase", "{\"type\": \"Lowercase\"}"},
      {"Nmt", "{\"type\": \"Nmt\"}"},
      {"StripAccents", "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
                       "\"StripAccents\"}]}"},
      {"Bert",
       "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, "
       "\"strip_accents\": null, \"lowercase\": true}"}};
  char path[4096];
  json_error_t error;
  const char *directory = getenv("TPGEN_GOLDEN");
  snprintf(path, sizeof path, "%s/unicode_forms.json", directory ? directory : "tests/golden");
  json_t *golden = json_load_file(path, 0, &error);
  assert_non_null(golden);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char found[32];
    const char *expected = json_string_value(json_object_get(golden, rows[i][0]));
    snprintf(found, sizeof found, "%016llx", (unsigned long long)hash_of_all(rows[i][1]));
    if (!expected || strcmp(found, expected) != 0)
      fail_msg("%s makes other texts of some characters", rows[i][0]);
  }
  json_decref(golden);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(classes_are_those_of_unicode_16),
      cmocka_unit_test(what_is_no_utf8_is_replaced),
      cmocka_unit_test(all_characters_are_normalized),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
