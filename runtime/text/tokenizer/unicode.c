// SPDX-License-Identifier: MIT
// Unicode for tokenizers.
#include "text/tokenizer/unicode.h"

#include <oniguruma.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

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

// The library `tokenizers` has the letters and digits of Unicode 16; these are the ones that
// Oniguruma 6.9.8, with Unicode 14, does not have. A text is searched with another letter, or
// digit, of as many bytes in their place.
enum category { LETTER, DIGIT };
static const struct {
  uint32_t first, last;
  enum category is;
} newer[] = {{0x1c89, 0x1c8a, LETTER},   {0xa7cb, 0xa7cd, LETTER},   {0xa7da, 0xa7dc, LETTER},
             {0x105c0, 0x105f3, LETTER}, {0x10d40, 0x10d49, DIGIT},  {0x10d4a, 0x10d65, LETTER},
             {0x10d6f, 0x10d85, LETTER}, {0x10ec2, 0x10ec4, LETTER}, {0x1123f, 0x11240, LETTER},
             {0x11380, 0x11389, LETTER}, {0x1138b, 0x1138b, LETTER}, {0x1138e, 0x1138e, LETTER},
             {0x11390, 0x113b5, LETTER}, {0x113b7, 0x113b7, LETTER}, {0x113d1, 0x113d1, LETTER},
             {0x113d3, 0x113d3, LETTER}, {0x116d0, 0x116e3, DIGIT},  {0x11bc0, 0x11be0, LETTER},
             {0x11bf0, 0x11bf9, DIGIT},  {0x11f02, 0x11f02, LETTER}, {0x11f04, 0x11f10, LETTER},
             {0x11f12, 0x11f33, LETTER}, {0x11f50, 0x11f59, DIGIT},  {0x1342f, 0x1342f, LETTER},
             {0x13441, 0x13446, LETTER}, {0x13460, 0x143fa, LETTER}, {0x16100, 0x1611d, LETTER},
             {0x16130, 0x16139, DIGIT},  {0x16d40, 0x16d6c, LETTER}, {0x16d70, 0x16d79, DIGIT},
             {0x18cff, 0x18cff, LETTER}, {0x1b132, 0x1b132, LETTER}, {0x1b155, 0x1b155, LETTER},
             {0x1ccf0, 0x1ccf9, DIGIT},  {0x1d2c0, 0x1d2d3, DIGIT},  {0x1df25, 0x1df2a, LETTER},
             {0x1e030, 0x1e06d, LETTER}, {0x1e4d0, 0x1e4eb, LETTER}, {0x1e4f0, 0x1e4f9, DIGIT},
             {0x1e5d0, 0x1e5ed, LETTER}, {0x1e5f0, 0x1e5f0, LETTER}, {0x1e5f1, 0x1e5fa, DIGIT},
             {0x2b739, 0x2b739, LETTER}, {0x2ebf0, 0x2ee5d, LETTER}, {0x31350, 0x323af, LETTER}};

// A letter, and a digit, of so many bytes.
static uint32_t stand_in(uint32_t code)
{
  static const uint32_t letter[] = {[2] = 0x5d0, [3] = 0xe01, [4] = 0x10450};
  static const uint32_t digit[] = {[2] = 0x660, [3] = 0xe50, [4] = 0x1d7ce};
  size_t low = 0, high = sizeof newer / sizeof *newer;
  while (low < high) {
    const size_t at = (low + high) / 2;
    if (code > newer[at].last)
      low = at + 1;
    else if (code < newer[at].first)
      high = at;
    else
      return (newer[at].is == LETTER ? letter : digit)[code < 0x800 ? 2 : code < 0x10000 ? 3 : 4];
  }
  return code;
}

bool is_space(uint32_t code)
{
  return (code >= 9 && code <= 13) || code == ' ' || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_of_word(uint32_t code)
{
  const bool joins = code == 0x200c || code == 0x200d;
  return joins || ONIGENC_IS_CODE_CTYPE(ONIG_ENCODING_UTF8, stand_in(code), ONIGENC_CTYPE_WORD);
}

static bool is_of_category(uint32_t code, const utf8proc_category_t *list, int n)
{
  const utf8proc_category_t is = utf8proc_category((utf8proc_int32_t)code);
  for (int i = 0; i < n; i++)
    if (list[i] == is) return true;
  return false;
}

bool is_numeric(uint32_t code)
{
  static const utf8proc_category_t numbers[] = {UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL,
                                                UTF8PROC_CATEGORY_NO};
  return is_of_category(stand_in(code), numbers, 3);
}

bool is_mark(uint32_t code)
{
  static const utf8proc_category_t marks[] = {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC,
                                              UTF8PROC_CATEGORY_ME};
  return is_of_category(code, marks, 3);
}

void add_lowercase(struct bytes *b, const char *text, size_t count)
{
  for (size_t i = 0; i < count;) {
    uint32_t code;
    const int n = utf8_at(text + i, count - i, &code);
    add_code(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
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

bool add_normalized(struct bytes *b, const char *text, size_t count, enum normal_form form,
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

struct pattern *pattern_open(const char *text, size_t count, bool is_literal, struct failure *why)
{
  static pthread_once_t started = PTHREAD_ONCE_INIT;
  OnigErrorInfo about = {0};
  struct pattern *p = calloc(1, sizeof *p);
  pthread_once(&started, start_oniguruma);
  const OnigUChar *at = (const OnigUChar *)text;
  const int error = p ? onig_new(&p->code, at, at + count, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                                 is_literal ? ONIG_SYNTAX_ASIS : ONIG_SYNTAX_ONIGURUMA, &about)
                      : ONIGERR_MEMORY;
  if (error == ONIG_NORMAL) return p;
  OnigUChar what[ONIG_MAX_ERROR_MESSAGE_LEN + 1] = "";
  onig_error_code_to_str(what, error, &about);
  free(p);
  failed(why, "the regular expression '%.200s': %s", text, (const char *)what);
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
