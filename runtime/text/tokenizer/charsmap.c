// SPDX-License-Identifier: MIT
// sentencepiece's precompiled rules: a trie in a double array (darts), and the texts that it leads
// to.
#include "text/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct charsmap {
  struct bytes all; // the file's: the trie's size in bytes, the trie, the texts
  size_t units;
  const char *texts; // each ends with a zero byte
  size_t count;
};

static bool add_base64(struct bytes *to, const char *text, size_t count)
{
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t word = 0;
  while (count > 0 && text[count - 1] == '=') count--;
  for (size_t i = 0; i < count; i++) {
    const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
    if (!digit) return false;
    word = word << 6 | (uint32_t)(digit - digits);
    if (i % 4 > 0) add_bytes(to, (char[]){(char)(word >> (6 - 2 * (i % 4)))}, 1);
  }
  return count % 4 != 1;
}

static uint32_t word_at(const struct bytes *b, size_t at)
{
  const unsigned char *c = (const unsigned char *)b->at + at;
  return c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
}

struct charsmap *charsmap_open(const char *text, size_t count, struct failure *why)
{
  struct charsmap *m = calloc(1, sizeof *m);
  const bool is_text = m && add_base64(&m->all, text, count);
  const size_t size = is_text && !m->all.failed && m->all.count >= 4 ? word_at(&m->all, 0) : 0;
  if (m && !m->all.failed && size >= 4 && size % 4 == 0 && size <= m->all.count - 4) {
    m->units = size / 4;
    m->texts = m->all.at + 4 + size;
    m->count = m->all.count - 4 - size;
    return m;
  }
  failed(why, m && !m->all.failed ? "precompiled_charsmap is damaged" : "out of memory");
  charsmap_close(m);
  return NULL;
}

void charsmap_close(struct charsmap *m)
{
  if (!m) return;
  free_bytes(&m->all);
  free(m);
}

static size_t offset_of(uint32_t unit)
{
  return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

// The text in the place of the shortest beginning of `from` that has one; NULL: none has.
static const char *rule_of(const struct charsmap *m, const char *from, size_t count, size_t *length)
{
  enum { HAS_LEAF = 1 << 8 };
  const uint32_t label = 1u << 31 | 0xff, value = ~(1u << 31);
  size_t node = offset_of(word_at(&m->all, 4));
  for (size_t i = 0; i < count && from[i]; i++) {
    node ^= (unsigned char)from[i];
    if (node >= m->units) return NULL;
    const uint32_t unit = word_at(&m->all, 4 + 4 * node);
    if ((unit & label) != (unsigned char)from[i]) return NULL;
    node ^= offset_of(unit);
    if (node >= m->units) return NULL;
    if (!(unit & HAS_LEAF)) continue;
    const size_t at = word_at(&m->all, 4 + 4 * node) & value;
    if (at > m->count) return NULL;
    const char *end = memchr(m->texts + at, 0, m->count - at);
    *length = end ? (size_t)(end - m->texts) - at : m->count - at;
    return m->texts + at;
  }
  return NULL;
}

// The bytes of the first character together with those that cannot be apart from it.
static size_t cluster_of(const char *text, size_t count)
{
  utf8proc_int32_t state = 0;
  uint32_t before, code;
  int n = utf8_at(text, count, &before);
  size_t end = (size_t)(n > 0 ? n : -n);
  for (; end < count; end += (size_t)(n > 0 ? n : -n), before = code) {
    n = utf8_at(text + end, count - end, &code);
    if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)code, &state))
      return end;
  }
  return end;
}

void charsmap_add(const struct charsmap *m, struct bytes *to, const char *text, size_t count)
{
  enum { LONG = 6 }; // bytes: longer clusters are looked at by characters only
  for (size_t at = 0, end; at < count; at = end) {
    const size_t size = cluster_of(text + at, count - at);
    size_t length;
    const char *rule = size < LONG ? rule_of(m, text + at, size, &length) : NULL;
    end = at + size;
    if (rule) {
      add_lossy(to, rule, length);
      continue;
    }
    for (size_t i = at; i < end;) {
      uint32_t code;
      const int n = utf8_at(text + i, end - i, &code);
      const size_t own = (size_t)(n > 0 ? n : -n);
      rule = rule_of(m, text + i, own, &length);
      if (rule)
        add_lossy(to, rule, length);
      else
        add_bytes(to, text + i, own);
      i += own;
    }
  }
}
