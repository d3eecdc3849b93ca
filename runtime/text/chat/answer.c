// SPDX-License-Identifier: MIT
// The text of an answer as its tokens come.
#include "text/chat/answer.h"

#include <string.h>

// Bytes at the end that the next token may change: U+FFFD of a character that has begun, and what
// may be the beginning of a stop text behind the prompt, also ahead of such a character.
static size_t unsure_end(const struct bytes *text, size_t prompt, const char *const *stops)
{
  static const char replaced[] = "\xef\xbf\xbd";
  size_t begun = 0, held;
  while (text->count >= begun + 3 && !memcmp(text->at + text->count - begun - 3, replaced, 3))
    begun += 3;
  held = begun;
  for (int i = 0; stops && stops[i]; i++) {
    const size_t most = strlen(stops[i]) - 1;
    // Of U+FFFD, some may be the text's own.
    for (size_t cut = 0; cut <= begun && prompt + cut < text->count; cut += 3) {
      const size_t end = text->count - cut;
      size_t n = most < end - prompt ? most : end - prompt;
      while (n > 0 && memcmp(text->at + end - n, stops[i], n) != 0) n--;
      if (n + cut > held) held = n + cut;
    }
  }
  return held;
}

bool answer_grow(struct text_answer *a, const int *ids, size_t count, const char *const *stops)
{
  struct failure why;
  bool ends = false;
  if (!a->tokenizer) return false;
  a->whole.count = 0;
  add_bytes(&a->whole, "", 0);
  if (!tokenizer_decode(a->tokenizer, ids, count, true, &a->whole, &why) || a->whole.failed)
    a->failed = true;
  a->held = unsure_end(&a->whole, a->prompt, stops);
  for (int i = 0; stops && stops[i] && a->whole.count > a->prompt; i++) {
    const char *at =
        memmem(a->whole.at + a->prompt, a->whole.count - a->prompt, stops[i], strlen(stops[i]));
    if (!at) continue;
    ends = true;
    a->held = 0;
    a->whole.count = (size_t)(at - a->whole.at);
  }
  return ends;
}

size_t answer_next(struct text_answer *a, bool ends, const char **from)
{
  const size_t end = ends ? a->whole.count : a->whole.count - a->held;
  const size_t count = end > a->given ? end - a->given : 0;
  *from = a->whole.at + (count ? a->given : 0);
  a->given += count;
  return count;
}

bool answer_print(struct text_answer *a, FILE *to, bool ends)
{
  const char *from;
  const size_t count = answer_next(a, ends, &from);
  return count == 0 || (fwrite(from, 1, count, to) == count && fflush(to) == 0);
}

void answer_free(struct text_answer *a)
{
  free_bytes(&a->whole);
}
