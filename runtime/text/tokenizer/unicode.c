// SPDX-License-Identifier: MIT
// Unicode for tokenizers.
#include "text/tokenizer/unicode.h"

#include <oniguruma.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "text/tokenizer/unicode_ranges.h"

// ---- bytes -------------------------------------------------------------------------------------

void add_bytes(struct bytes *b, const char *from, size_t count)
{
  if (b->count + count + 1 > b->room) {
    const size_t room = 2 * b->room + count + 64;
    char *at = realloc(b->at, room);
    b->failed |= !at;
    if (!at) return;
    b->at = at;
    b->room = room;
  }
  if (count > 0) memcpy(b->at + b->count, from, count);
  b->count += count;
  b->at[b->count] = 0;
}

void free_bytes(struct bytes *b)
{
  free(b->at);
  *b = (struct bytes){0};
}

// ---- UTF-8 -------------------------------------------------------------------------------------

int utf8_at(const char *at, size_t left, uint32_t *code)
{
  const unsigned char *c = (const unsigned char *)at;
  const int count = c[0] < 0x80   ? 1
                    : c[0] < 0xc2 ? 0
                    : c[0] < 0xe0 ? 2
                    : c[0] < 0xf0 ? 3
                    : c[0] < 0xf5 ? 4
                                  : 0;
  *code = 0xfffd;
  if (count == 0) return -1;
  if (count == 1) {
    *code = c[0];
    return 1;
  }
  uint32_t all = c[0] & (0xff >> (count + 1));
  for (int i = 1; i < count; i++) {
    // The second byte's bounds exclude long forms, surrogates and codes above U+10FFFF.
    const unsigned least = i > 1 ? 0x80 : c[0] == 0xe0 ? 0xa0 : c[0] == 0xf0 ? 0x90 : 0x80;
    const unsigned most = i > 1 ? 0xbf : c[0] == 0xed ? 0x9f : c[0] == 0xf4 ? 0x8f : 0xbf;
    if ((size_t)i >= left || c[i] < least || c[i] > most) return -i;
    all = all << 6 | (c[i] & 0x3f);
  }
  *code = all;
  return count;
}

void add_code(struct bytes *b, uint32_t code)
{
  char c[4];
  if (code < 0x80) {
    c[0] = (char)code;
    add_bytes(b, c, 1);
    return;
  }
  const int count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int i = count - 1; i > 0; i--, code >>= 6) c[i] = (char)(0x80 | (code & 0x3f));
  c[0] = (char)(0xf00 >> count | code);
  add_bytes(b, c, (size_t)count);
}

void add_lossy(struct bytes *b, const char *text, size_t count)
{
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(text + i, count - i, &code);
    if (n > 0)
      add_bytes(b, text + i, (size_t)n);
    else
      add_code(b, 0xfffd);
    i += (size_t)(n > 0 ? n : -n);
  }
}

// The library `tokenizers` has the characters of Unicode 16, and Oniguruma 6.9.8 those of Unicode
// 14: a text is searched with others of the same classes, of as many bytes, in the place of those
// that it does not have.
static uint32_t stand_in(uint32_t code)
{
  int low = 0, high = stand_in_count;
  while (low < high) {
    const int at = (low + high) / 2;
    if (code > stand_ins[at].last)
      low = at + 1;
    else if (code < stand_ins[at].first)
      high = at;
    else
      return stand_ins[at].other;
  }
  return code;
}

bool is_space(uint32_t code)
{
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

static bool is_among(const struct code_range *list, int count, uint32_t code)
{
  int low = 0, high = count;
  while (low < high) {
    const int at = (low + high) / 2;
    if (code > list[at].last)
      low = at + 1;
    else if (code < list[at].first)
      high = at;
    else
      return true;
  }
  return false;
}

bool is_of_word(uint32_t code)
{
  return is_among(word_ranges, word_count, code);
}

bool is_numeric(uint32_t code)
{
  return is_among(numeric_ranges, numeric_count, code);
}

bool is_mark(uint32_t code)
{
  return is_among(combining_ranges, combining_count, code);
}

bool is_nonspacing(uint32_t code)
{
  return is_among(nonspacing_ranges, nonspacing_count, code);
}

bool is_punctuation(uint32_t code)
{
  return is_among(punctuation_ranges, punctuation_count, code);
}

bool is_control(uint32_t code)
{
  return code == 0 || is_among(control_ranges, control_count, code);
}

bool is_printable(uint32_t code)
{
  switch (utf8proc_category((utf8proc_int32_t)code)) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
    return false;
  case UTF8PROC_CATEGORY_ZS:
    return code == ' ';
  default:
    return true;
  }
}

bool is_alphabetic(uint32_t code)
{
  const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)code);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_cased(uint32_t code)
{
  const utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)code);
  const bool is_other = code == 0xaa || code == 0xba || code == 0x345 || code == 0x37a ||
                        (code >= 0x2b0 && code <= 0x2b8) || (code >= 0x2160 && code <= 0x217f) ||
                        (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1d2c && code <= 0x1d6a);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT || is_other;
}

static uint32_t small_of(uint32_t code)
{
  for (int i = 0; i < lower_count && code >= lower_steps[i].first; i++)
    if (code <= lower_steps[i].last) return (uint32_t)((int32_t)code + lower_steps[i].by);
  return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

void add_lowercase(struct bytes *b, const char *text, size_t count)
{
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(text + i, count - i, &code);
    add_code(b, small_of(code));
    if (code == 0x130) add_code(b, 0x307); // the only letter whose small one is two characters
    i += (size_t)(n > 0 ? n : -n);
  }
}

void add_cased(struct bytes *b, const char *text, size_t count, bool upper)
{
  if (!upper) {
    add_lowercase(b, text, count);
    return;
  }
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(text + i, count - i, &code);
    if (code == 0xdf)
      add_bytes(b, "SS", 2);
    else
      add_code(b, (uint32_t)utf8proc_toupper((utf8proc_int32_t)code));
    i += (size_t)(n > 0 ? n : -n);
  }
}

size_t next_place(const struct bytes *text, size_t end, size_t first)
{
  uint32_t code;
  if (end > first) return end;
  if (end >= text->count) return end + 1;
  const int n = utf8_at(text->at + end, text->count - end, &code);
  return end + (size_t)(n > 0 ? n : -n);
}

static bool add_known(struct bytes *b, const char *text, size_t count, enum normal_form form,
                      struct failure *why)
{
  static const utf8proc_option_t how[] = {
      [NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
      [NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
      [NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
      [NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
  };
  utf8proc_uint8_t *made = NULL;
  const utf8proc_ssize_t n =
      utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)count, &made, how[form]);
  if (n < 0) return failed(why, "a text cannot be normalized: %s", utf8proc_errmsg(n));
  add_bytes(b, (char *)made, (size_t)n);
  free(made);
  return true;
}

bool add_normalized(struct bytes *b, const char *text, size_t count, enum normal_form form,
                    struct failure *why)
{
  size_t from = 0;
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(text + i, count - i, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    if (is_among(newer_ranges, newer_count, code)) {
      if (i > from && !add_known(b, text + from, i - from, form, why)) return false;
      add_bytes(b, text + i, size);
      from = i + size;
    }
    i += size;
  }
  return from == count || add_known(b, text + from, count - from, form, why);
}

// ---- the letters of bytes ----------------------------------------------------------------------

// GPT-2's: a byte that is a visible character of Latin-1 is that; the others are U+0100 and on.
static uint32_t letter_of(unsigned byte)
{
  const bool visible =
      (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  if (visible) return byte;
  return 0x100 + (byte <= 0x20 ? byte : byte <= 0xa0 ? byte - 0x7f + 33 : 67);
}

void add_letters_of_bytes(struct bytes *b, const char *bytes, size_t count)
{
  for (size_t i = 0; i < count; i++) add_code(b, letter_of((unsigned char)bytes[i]));
}

int byte_of_letter(uint32_t letter)
{
  if (letter < 0x100) return letter_of(letter) == letter ? (int)letter : -1;
  if (letter <= 0x120) return (int)letter - 0x100;
  if (letter <= 0x142) return (int)letter - 0x121 + 0x7f;
  return letter == 0x143 ? 0xad : -1;
}

// ---- regular expressions -----------------------------------------------------------------------

// Oniguruma's syntax, as in the library `tokenizers`.
static void start_oniguruma(void)
{
  OnigEncoding all[] = {ONIG_ENCODING_UTF8};
  onig_initialize(all, 1);
}

struct pattern {
  OnigRegex code;
};

// In newer versions, as in the library, [:punct:] has symbols, too.
static void add_punctuation(struct bytes *b, const char *text, size_t count)
{
  static const char name[] = "[:punct:]";
  for (size_t i = 0; i < count;) {
    const bool is = count - i >= sizeof name - 1 && !memcmp(text + i, name, sizeof name - 1);
    add_bytes(b, is ? "\\p{P}\\p{S}" : text + i, is ? 10 : 1);
    i += is ? sizeof name - 1 : 1;
  }
}

struct pattern *pattern_open(const char *given, size_t length, bool is_literal, struct failure *why)
{
  struct bytes rule = {0};
  add_bytes(&rule, "", 0);
  if (is_literal)
    add_bytes(&rule, given, length);
  else
    add_punctuation(&rule, given, length);
  const char *text = rule.at;
  const size_t count = rule.count;
  static pthread_once_t started = PTHREAD_ONCE_INIT;
  OnigErrorInfo about = {0};
  struct pattern *p = calloc(1, sizeof *p);
  pthread_once(&started, start_oniguruma);
  const OnigUChar *at = (const OnigUChar *)text;
  const int error = p && !rule.failed
                        ? onig_new(&p->code, at, at + count, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                                   is_literal ? ONIG_SYNTAX_ASIS : ONIG_SYNTAX_ONIGURUMA, &about)
                        : ONIGERR_MEMORY;
  OnigUChar what[ONIG_MAX_ERROR_MESSAGE_LEN + 1] = "";
  if (error != ONIG_NORMAL) onig_error_code_to_str(what, error, &about); // it reads the rule
  free_bytes(&rule);
  if (error == ONIG_NORMAL) return p;
  free(p);
  failed(why, "the regular expression '%.200s': %s", given, (const char *)what);
  return NULL;
}

void pattern_close(struct pattern *p)
{
  if (!p) return;
  onig_free(p->code);
  free(p);
}

struct searched {
  struct bytes text; // with stand-ins
  OnigMatchParam *limits;
  OnigRegion *match;
};

struct searched *search_begin(const char *text, size_t count, struct failure *why)
{
  enum { MOST_STEPS = 100000000, MOST_PLACES = 1 << 20 };
  struct searched *s = calloc(1, sizeof *s);
  if (s) {
    add_bytes(&s->text, text, 0);
    for (size_t i = 0; i < count;) {
      uint32_t code;
      const int n = utf8_at(text + i, count - i, &code);
      const uint32_t other = n > 1 ? stand_in(code) : code;
      if (other == code && n > 0)
        add_bytes(&s->text, text + i, (size_t)n);
      else
        add_code(&s->text, other);
      i += (size_t)(n > 0 ? n : -n);
    }
    s->limits = onig_new_match_param();
    s->match = onig_region_new();
  }
  if (s && !s->text.failed && s->limits && s->match) {
    onig_initialize_match_param(s->limits);
    onig_set_retry_limit_in_match_of_match_param(s->limits, MOST_STEPS);
    onig_set_retry_limit_in_search_of_match_param(s->limits, MOST_STEPS);
    onig_set_match_stack_limit_size_of_match_param(s->limits, MOST_PLACES);
    return s;
  }
  search_end(s);
  failed(why, "out of memory for a text of %zu bytes", count);
  return NULL;
}

void search_end(struct searched *s)
{
  if (!s) return;
  free_bytes(&s->text);
  if (s->match) onig_region_free(s->match, 1);
  if (s->limits) onig_free_match_param(s->limits);
  free(s);
}

int search_next(struct searched *s, const struct pattern *p, size_t from, size_t *first,
                size_t *end, struct failure *why)
{
  const OnigUChar *text = (const OnigUChar *)s->text.at, *behind = text + s->text.count;
  const int at = onig_search_with_param(p->code, text, behind, text + from, behind, s->match,
                                        ONIG_OPTION_NONE, s->limits);
  if (at == ONIG_MISMATCH) return 0;
  if (at < 0) {
    OnigUChar what[ONIG_MAX_ERROR_MESSAGE_LEN + 1] = "";
    onig_error_code_to_str(what, at);
    failed(why, "a regular expression of the tokenizer: %s", (const char *)what);
    return -1;
  }
  *first = (size_t)s->match->beg[0];
  *end = (size_t)s->match->end[0];
  return 1;
}
