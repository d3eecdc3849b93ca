// The tokenizer against Hugging Face's: ids and texts of tests/golden/tokenizer, or of the
// directory that TPGEN_GOLDEN names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "text/tokenizer/tokenizer.h"

static const char *golden(const char *folder, const char *file)
{
  static char path[4096];
  const char *directory = getenv("TPGEN_GOLDEN");
  snprintf(path, sizeof path, "%s/tokenizer/%s/%s", directory ? directory : "tests/golden", folder,
           file);
  return path;
}

static struct tokenizer *opened(const char *folder)
{
  struct failure why = {""};
  struct tokenizer *t = tokenizer_open(golden(folder, "tokenizer.json"), &why);
  if (!t) fail_msg("%s", why.text);
  return t;
}

static bool same_ids(const struct ids *ids, const json_t *list)
{
  if (ids->count != json_array_size(list)) return false;
  for (size_t i = 0; i < ids->count; i++)
    if (ids->at[i] != json_integer_value(json_array_get(list, i))) return false;
  return true;
}

static bool encodes_as(const struct tokenizer *t, const json_t *text, bool special,
                       const json_t *expected)
{
  struct failure why = {""};
  struct ids ids = {0};
  if (!tokenizer_encode(t, json_string_value(text), json_string_length(text), special, &ids, &why))
    fail_msg("%s", why.text);
  const bool same = same_ids(&ids, expected);
  if (!same) {
    for (size_t i = 0; i < ids.count; i++) print_message("%d ", ids.at[i]);
    print_message("for '%s'\n", json_string_value(text));
  }
  free(ids.at);
  return same;
}

static bool decodes_as(const struct tokenizer *t, const json_t *list, bool skip,
                       const json_t *expected)
{
  struct failure why = {""};
  struct ids ids = {0};
  struct bytes text = {0};
  for (size_t i = 0; i < json_array_size(list); i++)
    add_id(&ids, (int)json_integer_value(json_array_get(list, i)));
  if (!tokenizer_decode(t, ids.at, ids.count, skip, &text, &why)) fail_msg("%s", why.text);
  const bool same = text.count == json_string_length(expected) &&
                    (!text.count || memcmp(text.at, json_string_value(expected), text.count) == 0);
  if (!same) print_message("'%s', not '%s'\n", text.at ? text.at : "", json_string_value(expected));
  free(ids.at);
  free_bytes(&text);
  return same;
}

static int walk(const char *folder, const char *file,
                bool (*holds)(const struct tokenizer *t, const json_t *line))
{
  char line[1 << 16];
  int lines = 0, wrong = 0;
  struct tokenizer *t = opened(folder);
  FILE *f = fopen(golden(folder, file), "r");
  assert_non_null(f);
  while (fgets(line, sizeof line, f)) {
    json_error_t error;
    json_t *object = json_loads(line, JSON_ALLOW_NUL, &error);
    assert_non_null(object);
    wrong += !holds(t, object);
    json_decref(object);
    lines++;
  }
  fclose(f);
  tokenizer_close(t);
  assert_true(lines >= 50);
  return wrong;
}

static bool case_holds(const struct tokenizer *t, const json_t *line)
{
  const json_t *text = json_object_get(line, "text"), *ids = json_object_get(line, "ids");
  bool holds = encodes_as(t, text, false, ids); /* all four: each tells what differs */
  holds &= encodes_as(t, text, true, json_object_get(line, "ids_special"));
  holds &= decodes_as(t, ids, false, json_object_get(line, "decoded"));
  holds &= decodes_as(t, ids, true, json_object_get(line, "decoded_skip"));
  return holds;
}

static bool decoding_holds(const struct tokenizer *t, const json_t *line)
{
  return decodes_as(t, json_object_get(line, "ids"), false, json_object_get(line, "decoded"));
}

static void gpt2(void **state)
{
  (void)state;
  assert_int_equal(walk("gpt2", "cases.jsonl", case_holds), 0);
  assert_int_equal(walk("gpt2", "decode.jsonl", decoding_holds), 0);
}

static void llama3(void **state)
{
  (void)state;
  assert_int_equal(walk("llama3", "cases.jsonl", case_holds), 0);
  assert_int_equal(walk("llama3", "decode.jsonl", decoding_holds), 0);
}

static void llama2(void **state)
{
  (void)state;
  assert_int_equal(walk("llama2", "cases.jsonl", case_holds), 0);
  assert_int_equal(walk("llama2", "decode.jsonl", decoding_holds), 0);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2),
      cmocka_unit_test(llama3),
      cmocka_unit_test(llama2),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
