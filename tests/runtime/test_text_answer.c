// Texts of answers as they are streamed: the pieces make the text that is known in the end, however
// its characters are cut into tokens, and wherever a stop text begins.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../tools/splitmix64.h"
#include "text/chat/answer.h"
#include "text/tokenizer/unicode.h"

enum { TEXTS = 20000, MOST = 64 };

static const char *const character[] = {
    "ab", "ba", "\xc3\xa9", "\xe6\x97\xa5", "\xe6\x9c\xac", "\xf0\x9f\x99\x82", "\xef\xbf\xbd"};
enum { CHARACTERS = sizeof character / sizeof *character };

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
  return splitmix64(&state) % below;
}

// A tokenizer of all bytes, by letters or by names such as <0x0A>, and, from 256 on, of the
// characters above.
static struct tokenizer *tokenizer_of(bool letters)
{
  char path[] = "/tmp/test_text_answerXXXXXX";
  struct failure why = {""};
  FILE *f = fdopen(mkstemp(path), "w");
  assert_non_null(f);
  fprintf(f, "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
  for (int i = 0; i < 256 + CHARACTERS; i++) {
    struct bytes text = {0};
    const char byte = (char)i;
    if (i < 256 && !letters) {
      fprintf(f, "\"<0x%02X>\": %d, ", (unsigned)i, i);
      continue;
    }
    const char *from = i < 256 ? &byte : character[i - 256];
    const size_t count = i < 256 ? 1 : strlen(from);
    if (letters)
      add_letters_of_bytes(&text, from, count);
    else
      add_bytes(&text, from, count);
    const bool quoted = text.at[0] == '"' || text.at[0] == '\\';
    fprintf(f, "\"%s%s\": %d%s", quoted ? "\\" : "", text.at, i,
            i + 1 < 256 + CHARACTERS ? ", " : "");
    free_bytes(&text);
  }
  fprintf(f, "}}, \"decoder\": %s}",
          letters ? "{\"type\": \"ByteLevel\"}"
                  : "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, "
                    "{\"type\": \"Fuse\"}]}");
  fclose(f);
  struct tokenizer *t = tokenizer_open(path, &why);
  unlink(path);
  if (!t) fail_msg("%s", why.text);
  return t;
}

// Tokens of a text of some characters, each as one token or as its bytes; broken: also some bytes
// that are none.
static int some_tokens(int *ids, bool broken)
{
  int n = 0;
  while (n < MOST - 8) {
    const int c = (int)draw(CHARACTERS);
    if (draw(12) == 0) return n;
    if (broken && draw(6) == 0)
      ids[n++] = 128 + (int)draw(128);
    else if (draw(2))
      ids[n++] = 256 + c;
    else
      for (const char *at = character[c]; *at; at++) ids[n++] = (unsigned char)*at;
  }
  return n;
}

// Of characters but U+FFFD, which a character that has begun may be, too.
static void some_stop(char *stop)
{
  *stop = 0;
  for (uint64_t i = 0, n = 1 + draw(3); i < n; i++) strcat(stop, character[draw(CHARACTERS - 1)]);
}

static void stream(const struct tokenizer *t, const int *ids, int n, int prompt,
                   const char *const *stops)
{
  struct text_answer streamed = {.tokenizer = t}, plain = {.tokenizer = t};
  struct bytes pieces = {0};
  const char *from;
  bool ends = false;
  int made = 0;
  add_bytes(&pieces, "", 0);
  answer_grow(&streamed, ids, (size_t)prompt, NULL);
  plain.prompt = streamed.prompt = streamed.whole.count - streamed.held;
  for (made = prompt; made < n && !ends;) {
    ends = answer_grow(&streamed, ids, (size_t)++made, stops);
    assert_int_equal(ends, answer_grow(&plain, ids, (size_t)made, stops));
    const size_t count = answer_next(&streamed, ends, &from);
    add_bytes(&pieces, from, count);
  }
  const size_t count = answer_next(&streamed, true, &from);
  add_bytes(&pieces, from, count);
  if (n > prompt &&
      (pieces.count != plain.whole.count || memcmp(pieces.at, plain.whole.at, pieces.count) != 0))
    fail_msg("'%s' was streamed, not '%.*s', with the stop text '%s'", pieces.at,
             (int)plain.whole.count, plain.whole.at, stops[0]);
  free_bytes(&pieces);
  answer_free(&streamed);
  answer_free(&plain);
}

static void pieces_make_the_text(void **unused)
{
  (void)unused;
  for (int letters = 0; letters < 2; letters++) {
    struct tokenizer *t = tokenizer_of(letters);
    for (int i = 0; i < TEXTS; i++) {
      int ids[MOST];
      char one[32], other[32];
      const char *const stops[] = {one, other, NULL};
      some_stop(one);
      some_stop(other);
      const int n = some_tokens(ids, letters);
      stream(t, ids, n, draw(2) ? 0 : (int)draw((uint64_t)n + 1), stops);
    }
    tokenizer_close(t);
  }
}

// The bytes of tokens make the text, too.
static void tokens_have_bytes(void **unused)
{
  (void)unused;
  struct failure why;
  for (int letters = 0; letters < 2; letters++) {
    struct tokenizer *t = tokenizer_of(letters);
    for (int i = 0; i < TEXTS / 10; i++) {
      int ids[MOST];
      const int n = some_tokens(ids, letters);
      struct bytes whole = {0}, all = {0}, made = {0};
      assert_true(tokenizer_decode(t, ids, (size_t)n, true, &whole, &why));
      for (int k = 0; k < n; k++) assert_true(tokenizer_bytes(t, ids[k], k == 0, &all, &why));
      add_bytes(&made, "", 0);
      add_lossy(&made, all.at, all.count);
      assert_int_equal(made.count, whole.count);
      if (made.count) assert_memory_equal(made.at, whole.at, made.count);
      free_bytes(&whole);
      free_bytes(&all);
      free_bytes(&made);
    }
    tokenizer_close(t);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(pieces_make_the_text),
                                     cmocka_unit_test(tokens_have_bytes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
