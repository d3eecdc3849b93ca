/* fuzz_text TOKENIZER.JSON PATH FIRST COUNT: mutants of a tokenizer.json, which the runtime reads
   from PATH: it says in one line why not, or takes texts of all kinds (bytes, zeros, what is no
   UTF-8, a megabyte), whose ids are tokens, and decodes any ids. Some mutants are of bytes, the
   others are JSON in which values are others. A hundred mutants run in a process of their own, for
   a minute at most. Chat templates and conversations are drawn, too. */
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "splitmix64.h"
#include "chat_text.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

enum { AT_ONCE = 100, SECONDS = 60, LARGE = 1 << 20 };

static uint64_t state;
static char *original;
static size_t original_size;

static uint64_t draw(uint64_t below)
{
  return splitmix64(&state) % below;
}

/* ------------------------------------------------------------------------------------- mutants */

static json_t *drawn_value(void)
{
  static const char *const texts[] = {
      "",          "BPE",          "ByteLevel",        "Sequence",
      "Metaspace", "Split",        "Always",           "(?=",
      "(a+)+$",    "\\p{L}+",      "<0x0A>",           "<unk>",
      "a b",       "\xef\xbf\xbd", "Isolated",         "NFC",
      "Unigram",   "WordPiece",    "WordLevel",        "BertNormalizer",
      "Nmt",       "Precompiled",  "BertPreTokenizer", "FixedLength",
      "CTC",       "##",           "AAQAAAABAAAA"};
  switch (draw(8)) {
  case 0:
    return json_null();
  case 1:
    return json_boolean(draw(2));
  case 2:
    return json_integer((json_int_t)(draw(2) ? draw(300) : splitmix64(&state)));
  case 3:
    return json_real((double)draw(1000) / 7);
  case 4:
    return json_array();
  case 5:
    return json_object();
  default:
    return json_string(texts[draw(sizeof texts / sizeof *texts)]);
  }
}

static void change_object(json_t *object)
{
  uint64_t at = draw(json_object_size(object));
  void *i = json_object_iter(object);
  while (at-- > 0) i = json_object_iter_next(object, i);
  json_t *child = json_object_iter_value(i);
  const char *key = json_object_iter_key(i);
  if (draw(5) > 0 && (json_is_object(child) || json_is_array(child))) return;
  if (draw(3) == 0)
    json_object_del(object, key);
  else
    json_object_set_new(object, key, drawn_value());
}

static json_t *child_of(json_t *value)
{
  if (json_is_object(value) && json_object_size(value) > 0) {
    uint64_t at = draw(json_object_size(value));
    void *i = json_object_iter(value);
    while (at-- > 0) i = json_object_iter_next(value, i);
    return json_object_iter_value(i);
  }
  return json_is_array(value) && json_array_size(value) > 0
             ? json_array_get(value, draw(json_array_size(value)))
             : NULL;
}

/* Changes a value somewhere below this one. */
static void change(json_t *value)
{
  json_t *child;
  while (draw(4) > 0 && (child = child_of(value)) &&
         (json_is_object(child) || json_is_array(child)))
    value = child;
  if (json_is_object(value) && json_object_size(value) > 0)
    change_object(value);
  else if (json_is_array(value) && json_array_size(value) > 0 && draw(2))
    json_array_set_new(value, draw(json_array_size(value)), drawn_value());
  else if (json_is_array(value) && json_array_size(value) > 0)
    json_array_append(value, json_array_get(value, draw(json_array_size(value))));
}

static char *changed_json(size_t *count)
{
  json_t *file = json_loadb(original, original_size, 0, NULL);
  for (uint64_t i = 0, n = 1 + draw(4); i < n; i++) change(file);
  char *text = json_dumps(file, JSON_COMPACT);
  json_decref(file);
  *count = text ? strlen(text) : 0;
  return text;
}

static char *changed_bytes(size_t *count)
{
  char *text = malloc(original_size);
  if (!text) return NULL;
  memcpy(text, original, original_size);
  for (uint64_t i = 0, n = 1 + draw(8); i < n; i++)
    text[draw(original_size)] = draw(2) ? (char)draw(256) : "\"{}[],:0\\"[draw(9)];
  *count = draw(4) ? original_size : draw(original_size);
  return text;
}

/* --------------------------------------------------------------------------------------- texts */

static size_t draw_text(char *text, size_t most)
{
  static const char *const pieces[] = {" ",
                                       "\n",
                                       "Hello",
                                       "'ll",
                                       "12345",
                                       "<s>",
                                       "<|endoftext|>",
                                       "\xe2\x96\x81",
                                       "\xf0\x9f\x98\x80",
                                       "e\xcc\x81",
                                       "\xff",
                                       "\xe2\x82",
                                       "\t\t "};
  const size_t count = draw(most);
  for (size_t n = 0; n < count;) {
    const char *piece = pieces[draw(sizeof pieces / sizeof *pieces)];
    if (draw(2)) {
      text[n++] = (char)draw(256);
    } else {
      for (; *piece && n < count; piece++) text[n++] = *piece;
    }
  }
  return count;
}

static void use(const struct tokenizer *t, const char *text, size_t count)
{
  struct ids ids = {0};
  struct bytes decoded = {0};
  struct failure why = {""};
  if (tokenizer_encode(t, text, count, draw(2), &ids, &why)) {
    for (size_t i = 0; i < ids.count; i++)
      if (ids.at[i] < 0) abort();
    for (uint64_t i = 0; i < 8; i++) add_id(&ids, (int)draw(400) - 20);
    tokenizer_decode(t, ids.at, ids.count, draw(2), &decoded, &why);
  }
  free(ids.at);
  free_bytes(&decoded);
}

static void talk(void)
{
  static const char *const templates[] = {
      "{% set ns = namespace(n=0) %}{% for m in messages[::-1] if m.role != 'x' %}{% set ns.n = "
      "ns.n + 1 %}"
      "{{- loop.index ~ m['content'] | trim | replace('a', 'b') }}{% else %}none{% endfor %}{{ "
      "ns.n }}",
      "{% macro f(a, b=[1, {'k': 2.5}]) -%}{{ a }}{{ b | tojson(indent=2) }}{%- endmacro %}{{ "
      "f(messages) }}"
      "{{ f('x', b=messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | "
      "list) }}",
      "{%- if messages[0].role == 'system' and not tools %}{{ "
      "messages[0].content.split('a')[-1].strip() }}\n"
      "{%- elif messages | length % 2 == 0 %}{{ raise_exception('no') }}{% else %}{# c #}{{ 7 // 2 "
      "** 2 }}{% endif %}",
      "{% raw %}{{ x }}{% endraw %}{{ bos_token }}{{ 'a' if add_generation_prompt is defined else "
      "none }}"
      "{% filter upper %}{{ [3, 1] | sort | join(', ') }}{{ 'abc'[1:-1] * 3 }}{% endfilter %}{{ "
      "{'b': 1}.items() }}"};
  char text[600], said[4][200];
  struct turn_of_chat turns[4];
  struct failure why;
  struct bytes to = {0};
  strcpy(text, templates[draw(4)]);
  for (size_t i = draw(6); i > 0; i--) {
    const size_t at = draw(strlen(text));
    if (draw(2))
      text[at] = (char)(1 + draw(255));
    else if (draw(2))
      text[at] = "{}%#|()[]'\"+-*~.,:"[draw(18)];
    else
      memmove(text + at, text + at + 1, strlen(text + at));
  }
  struct chat *c = chat_of(text, NULL, &why);
  const size_t n = draw(5);
  for (size_t i = 0; i < n; i++)
    turns[i] =
        (struct turn_of_chat){(enum chat_role)draw(3), said[i], draw_text(said[i], sizeof said[i])};
  if (c) chat_text(c, turns, n, "DATE", &to, &why);
  free_bytes(&to);
  chat_close(c);
}

static void write_file(const char *path, const char *text, size_t count)
{
  FILE *file = fopen(path, "w");
  if (!text || !file || fwrite(text, 1, count, file) != count || fclose(file) != 0) exit(2);
}

static void write_mutant(const char *path, uint64_t number)
{
  size_t count = 0;
  state = number;
  char *mutant = draw(4) ? changed_json(&count) : changed_bytes(&count);
  write_file(path, mutant, count);
  free(mutant);
}

static bool run(uint64_t number, const char *path)
{
  static char text[LARGE];
  struct failure why = {""};
  write_mutant(path, number);
  talk();
  struct tokenizer *t = tokenizer_open(path, &why);
  if (!t) {
    if (!*why.text || strchr(why.text, '\n')) abort();
    return false;
  }
  for (int i = 0; i < 4; i++) use(t, text, draw_text(text, 300));
  if (number % 500 == 0) use(t, text, draw_text(text, LARGE));
  tokenizer_close(t);
  return true;
}

static void read_original(const char *path)
{
  FILE *file = fopen(path, "r");
  original = malloc(LARGE);
  original_size = file && original ? fread(original, 1, LARGE, file) : 0;
  if (original_size == 0) exit(2);
  fclose(file);
}

static int *taken; /* of all processes */

/* Runs some mutants in a process of its own. False: it did not end well. */
static bool run_some(uint64_t first, uint64_t end, const char *path)
{
  int status = 0;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    for (uint64_t i = first; i < end; i++) *taken += run(i, path);
    exit(0);
  }
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
  static char text[LARGE];
  if (argc < 5) return 2;
  const uint64_t number = strtoull(argv[4], NULL, 10);
  if (strcmp(argv[1], "mutant") == 0) {
    read_original(argv[2]);
    write_mutant(argv[3], number);
    return 0;
  }
  if (strcmp(argv[1], "bytes") == 0) {
    state = number;
    write_file(argv[3], text, draw_text(text, strtoull(argv[2], NULL, 10)));
    return 0;
  }
  const uint64_t first = strtoull(argv[3], NULL, 10), end = first + number;
  int wrong = 0;
  read_original(argv[1]);
  taken = mmap(NULL, sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (taken == MAP_FAILED) return 2;
  for (uint64_t i = first; i < end; i += AT_ONCE) {
    const uint64_t last = i + AT_ONCE < end ? i + AT_ONCE : end;
    if (run_some(i, last, argv[2])) continue;
    printf("one of the mutants %" PRIu64 " to %" PRIu64 "\n", i, last - 1);
    wrong++;
  }
  printf("%" PRIu64 " mutants, %d taken, %d hundreds wrong\n", end - first, *taken, wrong);
  return wrong > 0 || *taken == 0;
}
