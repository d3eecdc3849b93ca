// SPDX-License-Identifier: MIT
// The text of an answer as its tokens come.
#include "text/chat/answer.h"

#include <string.h>

// Bytes at the end that the next token may change: U+FFFD of a character that has begun, and what
// may be the beginning of a stop text.
static size_t unsure_end(const struct bytes *text, const char *const *stops)
{
  static const char replaced[] = "\xef\xbf\xbd";
  size_t held = 0;
  for (int i = 0; i < 4 && text->count >= held + 3; i++) {
    if (memcmp(text->at + text->count - held - 3, replaced, 3) != 0) break;
    held += 3;
  }
  for (int i = 0; stops && stops[i]; i++) {
    size_t n = strlen(stops[i]);
    for (n = n - 1 < text->count ? n - 1 : text->count; n > held; n--)
      if (memcmp(text->at + text->count - n, stops[i], n) == 0) held = n;
  }
  return held;
}

bool answer_grow(struct text_answer *a, const int *ids, size_t count, const char *const *stops)
{
  struct failure why;
  bool ends = false;
  if (!a->tokenizer) return false;
  a->whole.count = 0;
  if (!tokenizer_decode(a->tokenizer, ids, count, true, &a->whole, &why)) a->failed = true;
  a->held = unsure_end(&a->whole, stops);
  for (int i = 0; stops && stops[i] && a->whole.at; i++) {
    const char *at = memmem(a->whole.at, a->whole.count, stops[i], strlen(stops[i]));
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
