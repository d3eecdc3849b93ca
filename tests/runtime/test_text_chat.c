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
    struct chat *c = chat_of(text_of(file, "template"), text_of(file, "bos_token"),
                             text_of(file, "eos_token"), &why);
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

static void other_templates_are_refused(void **state)
{
  static const char *const others[] = {
      "",
      "{{ messages[0]['content'] }}",
      "<|start_header_id|>",
      "[INST] <<SYS>>\\n",
      "{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] }}",
      "{{ '<|user|>\\n' + message['content'] + eos_token }}"};
  (void)state;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    struct failure why = {""};
    assert_null(chat_of(others[i], "<s>", "</s>", &why));
    assert_non_null(strstr(why.text, "--raw"));
  }
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
      cmocka_unit_test(other_templates_are_refused),
      cmocka_unit_test(raw_turns_are_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
