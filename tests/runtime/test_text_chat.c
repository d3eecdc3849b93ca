// Texts of conversations against Hugging Face's apply_chat_template: tests/golden/chat, or that of
// the directory that TPGEN_GOLDEN names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "../tools/chat_text.h"
#include "text/chat/chat.h"

enum { MOST_TURNS = 16 };

static json_t *golden(const char *name)
{
  char path[4096];
  const char *directory = getenv("TPGEN_GOLDEN");
  snprintf(path, sizeof path, "%s/chat/%s.json", directory ? directory : "tests/golden", name);
  json_t *file = json_load_file(path, 0, NULL);
  if (!file) fail_msg("%s cannot be read", path);
  return file;
}

static const char *text_of(const json_t *object, const char *name)
{
  const char *text = json_string_value(json_object_get(object, name));
  return text ? text : "";
}

static size_t turns_of(const json_t *messages, struct turn_of_chat *turns)
{
  size_t i;
  json_t *message;
  json_array_foreach((json_t *)messages, i, message)
  {
    const char *role = text_of(message, "role");
    turns[i].role = role[0] == 's' ? ROLE_SYSTEM : role[0] == 'u' ? ROLE_USER : ROLE_ASSISTANT;
    turns[i].text = text_of(message, "content");
    turns[i].count = strlen(turns[i].text);
  }
  return json_array_size(messages);
}

static void check_case(const struct chat *c, const json_t *given, const char *name, size_t number)
{
  struct turn_of_chat turns[MOST_TURNS];
  struct failure why = {""};
  struct bytes text = {0};
  const size_t n = turns_of(json_object_get(given, "messages"), turns);
  const json_t *expected = json_object_get(given, "text");
  const bool ok = chat_text(c, turns, n, "DATE", &text, &why);
  if (ok != json_is_string(expected)) fail_msg("%s, case %zu: %s", name, number, why.text);
  if (ok && (text.count != json_string_length(expected) ||
             memcmp(text.at, json_string_value(expected), text.count) != 0))
    fail_msg("%s, case %zu:\n%.*s\ninstead of\n%s", name, number, (int)text.count, text.at,
             json_string_value(expected));
  free_bytes(&text);
}

static void texts_are_hugging_faces(void **state)
{
  static const char *const names[] = {
      "llama2", "llama3",   "llama31",      "llama32",  "chatml",   "chatml_bos",
      "qwen2",  "qwen25",   "qwen3",        "mistral1", "mistral2", "mistral2_system",
      "gemma",  "mistral3", "mistral_nemo", "gemma3",   "zephyr",   "phi3"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    json_t *file = golden(names[i]), *given;
    struct failure why = {""};
    size_t k;
    struct chat *c = chat_of(text_of(file, "template"), file, &why);
    if (!c) fail_msg("%s: %s", names[i], why.text);
    assert_true(json_array_size(json_object_get(file, "cases")) >= 5);
    json_array_foreach(json_object_get(file, "cases"), k, given)
    {
      check_case(c, given, names[i], k);
    }
    chat_close(c);
    json_decref(file);
  }
}

// Templates of many kinds, with tools, documents and other variables.
// The texts that are the same, and those that both refuse.
static void check_templates(const char *name, size_t least_same, size_t least_refused)
{
  json_t *all = golden(name), *row, *given;
  size_t i, k, same = 0, refused = 0;
  json_array_foreach(all, i, row)
  {
    struct failure why = {""};
    struct chat *c = chat_of(text_of(row, "template"), row, &why);
    json_array_foreach(json_object_get(row, "cases"), k, given)
    {
      const json_t *expected = json_object_get(given, "text");
      struct bytes text = {0};
      const bool ok =
          c && chat_render(c, json_object_get(given, "variables"), "DATE", &text, NULL, &why);
      if (ok != json_is_string(expected))
        fail_msg("%s, case %zu: %s", text_of(row, "name"), k, ok ? "it is not refused" : why.text);
      if (ok && (text.count != json_string_length(expected) ||
                 memcmp(text.at, json_string_value(expected), text.count) != 0))
        fail_msg("%s, case %zu:\n%.*s\ninstead of\n%s", text_of(row, "name"), k, (int)text.count,
                 text.at, json_string_value(expected));
      *(ok ? &same : &refused) += 1;
      free_bytes(&text);
    }
    chat_close(c);
  }
  assert_true(same > least_same && refused > least_refused);
  json_decref(all);
}

static void templates_are_run_as_transformers_runs_them(void **state)
{
  (void)state;
  check_templates("templates", 400, 50);
  check_templates("odd", 100, 40);
}

static void what_is_not_known_is_refused_with_its_line(void **state)
{
  static const char *const others[][2] = {
      {"{{ messages", "line 1: a tag does not end"},
      {"a\n{% if true %}", "line 2: 'elif' is missing at the end"},
      {"\n\n{% include 'x' %}", "line 3: the statement 'include' is not known here"},
      {"{{ 1 + }}", "line 1: an expression is missing"},
      {"{{ ((((1)))) }}{{ $ }}", "the character '$' is not known here"}};
  static const char *const failing[][2] = {
      {"{{ messages[0].content | nothing }}", "the filter 'nothing' is not known here"},
      {"{{ messages is odd_one }}", "the test 'odd_one' is not known here"},
      {"\n{{ nobody.x }}", "line 2: 'nobody' is undefined, and has no 'x'"},
      {"{{ raise_exception('only ' ~ 3) }}", "it refuses: only 3"},
      {"{% for i in range(100000000) %}{% endfor %}", "a range has at most 100000 numbers"},
      {"{% for i in range(9999) %}{% for k in range(9999) %}{% endfor %}{% endfor %}", "it takes"},
      {"{{ [1]|map('string') }}", "an iterator is printed"},
      {"{{ 'a'.swapcase is defined }}", "Python's 'swapcase' is not known here"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "calls are nested too deep"},
      {"{% set x = 'abcdefgh' * 100000000 %}", "it takes"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls are nested too deep"},
      {"{{ ''.__class__.__mro__ }}", "is undefined"},
      {"{{ 1 / 0 }}", "a division by zero"}};
  const struct turn_of_chat turn = {ROLE_USER, "b", 1};
  struct failure why;
  (void)state;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    why = (struct failure){""};
    assert_null(chat_of(others[i][0], NULL, &why));
    if (!strstr(why.text, others[i][1])) fail_msg("%s: %s", others[i][0], why.text);
  }
  for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
    struct bytes text = {0};
    why = (struct failure){""};
    struct chat *c = chat_of(failing[i][0], NULL, &why);
    assert_non_null(c);
    assert_false(chat_text(c, &turn, 1, NULL, &text, &why));
    if (!strstr(why.text, failing[i][1])) fail_msg("%s: %s", failing[i][0], why.text);
    free_bytes(&text);
    chat_close(c);
  }
}

static void the_end_of_an_answer_is_found(void **state)
{
  static const char template[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>\n{% endfor %}";
  struct failure why = {""};
  (void)state;
  struct chat *c = chat_of(template, NULL, &why);
  assert_non_null(c);
  assert_string_equal(chat_behind_answer(c), "<|end|>\n");
  chat_close(c);
}

static void raw_turns_are_lines(void **state)
{
  const struct turn_of_chat turns[] = {
      {ROLE_SYSTEM, "a", 1}, {ROLE_USER, "b", 1}, {ROLE_USER, "", 0}};
  struct failure why = {""};
  struct bytes text = {0};
  (void)state;
  struct chat *c = chat_raw();
  assert_non_null(c);
  assert_true(chat_text(c, turns, 3, "", &text, &why));
  assert_int_equal(text.count, 5);
  assert_memory_equal(text.at, "a\nb\n\n", 5);
  assert_false(chat_text(c, turns, 0, "", &text, &why));
  free_bytes(&text);
  chat_close(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_are_hugging_faces),
      cmocka_unit_test(templates_are_run_as_transformers_runs_them),
      cmocka_unit_test(what_is_not_known_is_refused_with_its_line),
      cmocka_unit_test(the_end_of_an_answer_is_found),
      cmocka_unit_test(raw_turns_are_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
