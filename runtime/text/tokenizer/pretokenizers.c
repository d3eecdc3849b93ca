// SPDX-License-Identifier: MIT
// Words: pre-tokenizers cut a text into them, and decoders make them of tokens.
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/normalizers.h"

void words_free(struct words *w)
{
  free_bytes(&w->text);
  free(w->at);
  *w = (struct words){0};
}

void add_word(struct words *w, size_t first, size_t end)
{
  if (w->count == w->room) {
    const size_t room = 2 * w->room + 16;
    struct word *at = realloc(w->at, room * sizeof *at);
    w->text.failed |= !at;
    if (!at) return;
    w->at = at;
    w->room = room;
  }
  w->at[w->count++] = (struct word){first, end};
}

void add_text_as_word(struct words *w, const char *text, size_t count)
{
  const size_t first = w->text.count;
  add_bytes(&w->text, text, count);
  add_word(w, first, w->text.count);
}

static bool have_memory(const struct words *w, struct failure *why)
{
  return !w->text.failed || failed(why, "out of memory for a text");
}

// ---- pre-tokenizers ----------------------------------------------------------------------------

// A part of a word: a match of a split, or the text between matches.
struct part {
  size_t first, end;
  bool matches;
};

struct cut {
  const struct step *step;
  struct words *to;
  struct part held; // MERGED_*, CONTIGUOUS: not added yet
  bool holds;
};

static void add_held(struct cut *c)
{
  if (c->holds) add_word(c->to, c->held.first, c->held.end);
  c->holds = false;
}

static void take_part(struct cut *c, struct part p)
{
  if (p.first == p.end) return;
  p.matches ^= c->step->inverted;
  bool joins = false;
  switch (c->step->behavior) {
  case REMOVED:
    if (!p.matches) add_word(c->to, p.first, p.end);
    return;
  case MERGED_WITH_PREVIOUS:
    joins = p.matches && !c->held.matches;
    break;
  case MERGED_WITH_NEXT:
    joins = c->held.matches && !p.matches;
    break;
  case CONTIGUOUS:
    joins = p.matches == c->held.matches;
    break;
  default:
    break;
  }
  if (c->holds && joins) {
    c->held.end = p.end;
    c->held.matches = p.matches || c->step->behavior == MERGED_WITH_PREVIOUS;
    if (c->step->behavior == MERGED_WITH_NEXT) c->held.matches = false;
    return;
  }
  add_held(c);
  c->held = p;
  c->holds = true;
}

// The word's text has stand-ins in `searched`; its offsets are those of the text.
static bool split_word(struct cut *c, struct searched *searched, const struct bytes *text,
                       struct word w, struct failure *why)
{
  size_t from = 0, at = 0, first, end;
  const size_t count = w.end - w.first;
  while (at <= count) {
    const int found = search_next(searched, c->step->pattern, at, &first, &end, why);
    if (found < 0) return false;
    if (found == 0) break;
    if (end > first) {
      take_part(c, (struct part){w.first + from, w.first + first, false});
      take_part(c, (struct part){w.first + first, w.first + end, true});
      from = end;
    }
    const struct bytes part = {.at = text->at + w.first, .count = count};
    at = next_place(&part, end, first);
  }
  take_part(c, (struct part){w.first + from, w.end, false});
  add_held(c);
  return true;
}

// Each character that the step is about is a match.
static void split_at_characters(struct cut *c, const struct bytes *text, struct word w)
{
  size_t from = w.first;
  for (size_t at = w.first; at < w.end;) {
    uint32_t code;
    const int n = utf8_at(text->at + at, w.end - at, &code);
    const size_t end = at + (size_t)(n > 0 ? n : -n);
    if (c->step->is(code)) {
      take_part(c, (struct part){from, at, false});
      take_part(c, (struct part){at, end, true});
      from = end;
    }
    at = end;
  }
  take_part(c, (struct part){from, w.end, false});
  add_held(c);
}

static bool split(const struct step *s, const struct words *from, struct words *to,
                  struct failure *why)
{
  bool ok = true;
  for (size_t i = 0; i < from->count && ok; i++) {
    struct cut cut = {.step = s, .to = to};
    const struct word w = from->at[i];
    if (s->is) {
      split_at_characters(&cut, &from->text, w);
      continue;
    }
    struct searched *searched = search_begin(from->text.at + w.first, w.end - w.first, why);
    ok = searched && split_word(&cut, searched, &from->text, w, why);
    search_end(searched);
  }
  return ok;
}

enum kind { PLAIN, MARKED, GONE };

// The kind of a character: a word has characters of one kind, or one character that is MARKED.
static enum kind kind_of(const struct step *s, uint32_t code)
{
  if (s->kind == DIGITS) return is_numeric(code) ? MARKED : PLAIN;
  if (is_space(code)) return GONE;
  return s->kind == WORDS && is_of_word(code) ? MARKED : PLAIN;
}

// Cuts where the kind of the characters changes, or after so many.
static void cut_by(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    size_t begin = w.first;
    int count = 0;
    enum kind before = PLAIN;
    for (size_t at = w.first; at < w.end; count++) {
      uint32_t code;
      const int n = utf8_at(from->text.at + at, w.end - at, &code);
      const enum kind here = s->kind == LENGTHS ? PLAIN : kind_of(s, code);
      const bool ends =
          s->kind == LENGTHS ? count == s->first : here != before || (here == MARKED && s->each);
      if (at > begin && ends) {
        if (before != GONE) add_word(to, begin, at);
        begin = at;
        count = 0;
      }
      before = here;
      at += (size_t)(n > 0 ? n : -n);
    }
    if (begin < w.end && before != GONE) add_word(to, begin, w.end);
  }
}

// Blanks become the text, one more before the first, and words begin there.
static void metaspace(const struct step *s, const struct words *from, struct words *to, bool starts)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    const char *text = from->text.at + w.first;
    const size_t count = w.end - w.first;
    const bool has = count >= s->text.count && memcmp(text, s->text.at, s->text.count) == 0;
    const bool prepends = count > 0 && text[0] != ' ' && !has &&
                          (s->prepends == ALWAYS || (s->prepends == FIRST && starts && i == 0));
    size_t begin = to->text.count;
    if (prepends) add_bytes(&to->text, s->text.at, s->text.count);
    for (size_t k = 0; k < count; k++) {
      const bool mark = text[k] == ' ' || (count - k >= s->text.count &&
                                           memcmp(text + k, s->text.at, s->text.count) == 0);
      if (mark && s->splits && to->text.count > begin) {
        add_word(to, begin, to->text.count);
        begin = to->text.count;
      }
      if (text[k] == ' ')
        add_bytes(&to->text, s->text.at, s->text.count);
      else
        add_bytes(&to->text, text + k, 1);
    }
    add_word(to, begin, to->text.count);
  }
}

static void to_letters(const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const size_t begin = to->text.count;
    add_letters_of_bytes(&to->text, from->text.at + from->at[i].first,
                         from->at[i].end - from->at[i].first);
    add_word(to, begin, to->text.count);
  }
}

static void add_blanks(const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    const size_t begin = to->text.count;
    if (w.end > w.first && from->text.at[w.first] != ' ') add_bytes(&to->text, " ", 1);
    add_bytes(&to->text, from->text.at + w.first, w.end - w.first);
    add_word(to, begin, to->text.count);
  }
}

// Words of the same text, or of another.
static bool cut(const struct step *s, struct words *words, bool starts, struct failure *why)
{
  struct words made = {0};
  bool ok = true, same = false;
  add_bytes(&made.text, "", 0);
  if (s->kind == SPLIT && s->adds_blank) {
    add_blanks(words, &made);
    words_free(words);
    *words = made;
    made = (struct words){0};
  }
  switch (s->kind) {
  case SPLIT:
    if (!s->pattern && !s->is) return have_memory(words, why);
    same = true;
    ok = split(s, words, &made, why);
    break;
  case DIGITS:
  case WHITESPACE:
  case WORDS:
  case LENGTHS:
    same = true;
    cut_by(s, words, &made);
    break;
  case METASPACE:
    metaspace(s, words, &made, starts);
    break;
  case BYTES:
    to_letters(words, &made);
    break;
  default:
    free_bytes(&made.text);
    return true;
  }
  if (same) {
    const bool failed = made.text.failed;
    free_bytes(&made.text);
    made.text = words->text;
    made.text.failed |= failed;
    words->text = (struct bytes){0};
  }
  words_free(words);
  *words = made;
  return ok && have_memory(words, why);
}

bool steps_cut(const struct steps *s, struct words *words, bool starts, struct failure *why)
{
  for (size_t i = 0; i < s->count; i++) {
    const size_t first = words->count ? words->at[0].first : 0;
    if (!cut(&s->at[i], words, starts, why)) return false;
    starts &= words->count > 0 && words->at[0].first == first; // nothing before it has gone
  }
  return true;
}

// ---- decoders ----------------------------------------------------------------------------------

// Adds the bytes of a token's letters; of a token with another character its text.
static void add_bytes_of_letters(struct bytes *to, const char *token, size_t count)
{
  const size_t before = to->count;
  for (size_t at = 0; at < count;) {
    uint32_t code;
    const int n = utf8_at(token + at, count - at, &code), byte = n > 0 ? byte_of_letter(code) : -1;
    const char c = (char)byte;
    if (byte < 0) {
      to->count = before;
      add_bytes(to, token, count);
      return;
    }
    add_bytes(to, &c, 1);
    at += (size_t)n;
  }
}

// All tokens as one text of bytes.
static void from_letters(const struct words *from, struct words *to)
{
  struct bytes all = {0};
  const size_t begin = to->text.count;
  add_bytes(&all, "", 0);
  for (size_t i = 0; i < from->count; i++)
    add_bytes_of_letters(&all, from->text.at + from->at[i].first,
                         from->at[i].end - from->at[i].first);
  to->text.failed |= all.failed;
  if (!all.failed) add_lossy(&to->text, all.at, all.count);
  add_word(to, begin, to->text.count);
  free_bytes(&all);
}

// The value of a digit, to base 16; or -1.
static int digit_of(char c)
{
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// "<0x0A>": the byte, or -1. Of two characters the first may be a sign, as Rust reads numbers.
static int byte_of_token(const char *text, size_t count)
{
  if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  const int high = text[3] == '+' ? 0 : digit_of(text[3]), low = digit_of(text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

// Runs of tokens of bytes become their text, or U+FFFD for each of a run that is no UTF-8.
static void from_bytes(const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count;) {
    struct bytes run = {0};
    size_t next = i;
    for (; next < from->count; next++) {
      const struct word w = from->at[next];
      const int byte = byte_of_token(from->text.at + w.first, w.end - w.first);
      const char c = (char)byte;
      if (byte < 0) break;
      add_bytes(&run, &c, 1);
    }
    bool valid = true;
    for (size_t at = 0; at < run.count && valid;) {
      uint32_t code;
      const int n = utf8_at(run.at + at, run.count - at, &code);
      valid = n > 0;
      at += (size_t)(n > 0 ? n : 1);
    }
    if (next == i) {
      add_text_as_word(to, from->text.at + from->at[i].first, from->at[i].end - from->at[i].first);
      next++;
    } else if (valid) {
      add_text_as_word(to, run.at, run.count);
    } else {
      for (size_t k = 0; k < run.count; k++) add_text_as_word(to, "\xef\xbf\xbd", 3);
    }
    to->text.failed |= run.failed;
    free_bytes(&run);
    i = next;
  }
}

// Up to `first` times the text at the beginning of a token, and `last` at its end, go.
static struct word stripped(const struct step *s, const struct words *from, struct word w)
{
  const size_t n = s->text.count;
  for (int k = 0; n && k < s->first && w.end - w.first >= n; k++) {
    if (memcmp(from->text.at + w.first, s->text.at, n) != 0) break;
    w.first += n;
  }
  for (int k = 0; n && k < s->last && w.end - w.first >= n; k++) {
    if (memcmp(from->text.at + w.end - n, s->text.at, n) != 0) break;
    w.end -= n;
  }
  return w;
}

// Blanks in the place of the text; in the first token nothing, where one was added.
static void from_metaspace(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    const size_t begin = to->text.count, n = s->text.count;
    for (size_t at = w.first; at < w.end;) {
      const bool mark = w.end - at >= n && memcmp(from->text.at + at, s->text.at, n) == 0;
      if (!mark)
        add_bytes(&to->text, from->text.at + at, 1);
      else if (i > 0 || s->prepends == NEVER)
        add_bytes(&to->text, " ", 1);
      at += mark ? n : 1;
    }
    add_word(to, begin, to->text.count);
  }
}

// Adds the text with `by` in the place of each `of`, which is not empty.
static void add_replaced(struct bytes *to, const char *text, size_t count, const struct bytes *of,
                         const char *by)
{
  for (size_t at = 0; at < count;) {
    const bool is = of->count && count - at >= of->count && !memcmp(text + at, of->at, of->count);
    if (is)
      add_bytes(to, by, strlen(by));
    else
      add_bytes(to, text + at, 1);
    at += is ? of->count : 1;
  }
}

// No blanks before punctuation and English endings.
static void tidy(struct bytes *text)
{
  static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                         {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                         {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                         {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    const struct bytes of = {.at = (char *)rules[i][0], .count = strlen(rules[i][0])};
    struct bytes made = {0};
    add_bytes(&made, "", 0);
    add_replaced(&made, text->at, text->count, &of, rules[i][1]);
    made.failed |= text->failed;
    free_bytes(text);
    *text = made;
  }
}

static void add_tidied(const struct step *s, struct words *to, struct bytes *text)
{
  if (s->tidies) tidy(text);
  to->text.failed |= text->failed;
  if (s->kind == CTC && s->tidies) {
    const size_t begin = to->text.count;
    add_replaced(&to->text, text->at, text->count, &s->other, " ");
    if (to->text.count > begin) add_word(to, begin, to->text.count);
  } else if (s->kind != CTC || text->count > 0) {
    add_text_as_word(to, text->at, text->count);
  }
}

// WORD_PIECES: a blank before each token but the first, or those that go on with a word.
static void from_pieces(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const char *token = from->text.at + from->at[i].first;
    const size_t count = from->at[i].end - from->at[i].first, n = s->text.count;
    const bool goes_on = i > 0 && count >= n && memcmp(token, s->text.at, n) == 0;
    struct bytes text = {0};
    add_bytes(&text, " ", i > 0 && !goes_on);
    add_bytes(&text, token + (goes_on ? n : 0), count - (goes_on ? n : 0));
    add_tidied(s, to, &text);
    free_bytes(&text);
  }
}

// CTC: of equal tokens one, without the padding.
static void from_ctc(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i], last = from->at[i > 0 ? i - 1 : 0];
    const char *token = from->text.at + w.first;
    struct bytes text = {0};
    if (i > 0 && w.end - w.first == last.end - last.first &&
        memcmp(token, from->text.at + last.first, w.end - w.first) == 0)
      continue;
    add_bytes(&text, "", 0);
    add_replaced(&text, token, w.end - w.first, &s->text, "");
    add_tidied(s, to, &text);
    free_bytes(&text);
  }
}

static bool replace_in_each(const struct step *s, const struct words *from, struct words *to,
                            struct failure *why)
{
  const struct steps one = {.at = (struct step *)s, .count = 1};
  bool ok = true;
  for (size_t i = 0; i < from->count && ok; i++) {
    struct bytes text = {0};
    bool begins = true;
    add_bytes(&text, from->text.at + from->at[i].first, from->at[i].end - from->at[i].first);
    ok = !text.failed && steps_normalize(&one, &text, &begins, why);
    if (ok) add_text_as_word(to, text.at, text.count);
    to->text.failed |= text.failed;
    free_bytes(&text);
  }
  return ok || (to->text.failed && have_memory(to, why));
}

static bool decode(const struct step *s, struct words *tokens, struct failure *why)
{
  struct words made = {0};
  bool ok = true;
  add_bytes(&made.text, "", 0);
  switch (s->kind) {
  case BYTES:
    from_letters(tokens, &made);
    break;
  case BYTE_FALLBACK:
    from_bytes(tokens, &made);
    break;
  case REPLACE:
    ok = replace_in_each(s, tokens, &made, why);
    break;
  case METASPACE:
    from_metaspace(s, tokens, &made);
    break;
  case STRIP:
    for (size_t i = 0; i < tokens->count; i++) {
      const struct word w = stripped(s, tokens, tokens->at[i]);
      add_text_as_word(&made, tokens->text.at + w.first, w.end - w.first);
    }
    break;
  case END_OF_WORD:
    for (size_t i = 0; i < tokens->count; i++) {
      const size_t begin = made.text.count;
      add_replaced(&made.text, tokens->text.at + tokens->at[i].first,
                   tokens->at[i].end - tokens->at[i].first, &s->text,
                   i + 1 < tokens->count ? " " : "");
      add_word(&made, begin, made.text.count);
    }
    break;
  case WORD_PIECES:
    from_pieces(s, tokens, &made);
    break;
  case CTC:
    from_ctc(s, tokens, &made);
    break;
  case FUSE:
    for (size_t i = 0; i < tokens->count; i++)
      add_bytes(&made.text, tokens->text.at + tokens->at[i].first,
                tokens->at[i].end - tokens->at[i].first);
    add_word(&made, 0, made.text.count);
    break;
  default:
    free_bytes(&made.text);
    return true;
  }
  words_free(tokens);
  *tokens = made;
  return ok && have_memory(tokens, why);
}

bool steps_decode(const struct steps *s, struct words *tokens, struct bytes *text,
                  struct failure *why)
{
  for (size_t i = 0; i < s->count; i++)
    if (!decode(&s->at[i], tokens, why)) return false;
  for (size_t i = 0; i < tokens->count; i++) {
    if (i > 0 && !s->given) add_bytes(text, " ", 1);
    add_bytes(text, tokens->text.at + tokens->at[i].first, tokens->at[i].end - tokens->at[i].first);
  }
  return !text->failed || failed(why, "out of memory for a text");
}

bool steps_decode_token(const struct steps *s, const char *token, size_t count, struct bytes *bytes,
                        struct failure *why)
{
  struct bytes text = {0};
  const int byte = byte_of_token(token, count);
  bool ok = true;
  if (!s->given) add_bytes(&text, " ", 1);
  add_bytes(&text, token, count);
  for (size_t i = 0; i < s->count && ok && s->at[i].kind != FUSE; i++) {
    struct words words = {0};
    if (s->at[i].kind == BYTES || (s->at[i].kind == BYTE_FALLBACK && byte >= 0)) {
      struct bytes made = {0};
      if (s->at[i].kind == BYTES)
        add_bytes_of_letters(&made, text.at, text.count);
      else
        add_bytes(&made, (char[]){(char)byte}, 1);
      free_bytes(&text);
      text = made;
      break;
    }
    // Between two empty tokens, unless equal ones would be one.
    const bool is_alone = s->at[i].kind == CTC;
    add_bytes(&words.text, "", 0);
    if (!is_alone) add_word(&words, 0, 0);
    add_text_as_word(&words, text.at, text.count);
    if (!is_alone) add_word(&words, text.count, text.count);
    ok = have_memory(&words, why) && decode(&s->at[i], &words, why);
    const size_t at = is_alone ? 0 : 1;
    const struct word w = ok && words.count > at ? words.at[at] : (struct word){0};
    text.count = 0;
    if (ok) add_bytes(&text, words.text.at + w.first, w.end - w.first);
    words_free(&words);
  }
  add_bytes(bytes, text.at, text.count);
  bytes->failed |= text.failed;
  free_bytes(&text);
  return ok && (!bytes->failed || failed(why, "out of memory for a text"));
}
