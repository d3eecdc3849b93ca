// SPDX-License-Identifier: MIT
// Words: pre-tokenizers cut a text into them, and decoders make them of tokens.
#include <stdlib.h>
#include <string.h>
#include "text/tokenizer/bpe.h"
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

static bool split(const struct step *s, const struct words *from, struct words *to,
                  struct failure *why)
{
  bool ok = true;
  for (size_t i = 0; i < from->count && ok; i++) {
    struct cut cut = {.step = s, .to = to};
    const struct word w = from->at[i];
    struct searched *searched = search_begin(from->text.at + w.first, w.end - w.first, why);
    ok = searched && split_word(&cut, searched, &from->text, w, why);
    search_end(searched);
  }
  return ok;
}

// Cuts where the kind of the characters changes: by digits, or by white space, which goes.
static void cut_by(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    size_t begin = w.first;
    bool before = false;
    for (size_t at = w.first; at < w.end;) {
      uint32_t code;
      const int n = utf8_at(from->text.at + at, w.end - at, &code);
      const size_t size = (size_t)(n > 0 ? n : -n);
      const bool here = s->kind == DIGITS ? is_numeric(code) : is_space(code);
      if (at > begin && (here != before || (here && s->each))) {
        if (s->kind == DIGITS || !before) add_word(to, begin, at);
        begin = at;
      }
      before = here;
      at += size;
    }
    if (begin < w.end && (s->kind == DIGITS || !before)) add_word(to, begin, w.end);
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
    if (!s->pattern) return have_memory(words, why);
    same = true;
    ok = split(s, words, &made, why);
    break;
  case DIGITS:
  case WHITESPACE:
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
  for (size_t i = 0; i < s->count; i++)
    if (!cut(&s->at[i], words, starts, why)) return false;
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

// Blanks in the place of the text; none at the beginning of the first token, where one was added.
static void from_metaspace(const struct step *s, const struct words *from, struct words *to)
{
  for (size_t i = 0; i < from->count; i++) {
    const struct word w = from->at[i];
    const size_t begin = to->text.count, n = s->text.count;
    for (size_t at = w.first; at < w.end;) {
      const bool mark = w.end - at >= n && memcmp(from->text.at + at, s->text.at, n) == 0;
      const bool added = i == 0 && at == w.first && s->prepends != NEVER;
      if (!mark)
        add_bytes(&to->text, from->text.at + at, 1);
      else if (!added)
        add_bytes(&to->text, " ", 1);
      at += mark ? n : 1;
    }
    add_word(to, begin, to->text.count);
  }
}

static bool replace_in_each(const struct step *s, const struct words *from, struct words *to,
                            struct failure *why)
{
  const struct steps one = {(struct step *)s, 1};
  bool ok = true;
  for (size_t i = 0; i < from->count && ok; i++) {
    struct bytes text = {0};
    add_bytes(&text, from->text.at + from->at[i].first, from->at[i].end - from->at[i].first);
    ok = !text.failed && steps_normalize(&one, &text, why);
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
      const struct step ends = {.text = s->text, .last = 1};
      const struct word w = stripped(&ends, tokens, tokens->at[i]);
      const bool is_end = w.end < tokens->at[i].end && i + 1 < tokens->count;
      const size_t begin = made.text.count;
      add_bytes(&made.text, tokens->text.at + w.first, w.end - w.first);
      if (is_end) add_bytes(&made.text, " ", 1);
      add_word(&made, begin, made.text.count);
    }
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
    if (i > 0 && s->count == 0) add_bytes(text, " ", 1);
    add_bytes(text, tokens->text.at + tokens->at[i].first, tokens->at[i].end - tokens->at[i].first);
  }
  return !text->failed || failed(why, "out of memory for a text");
}

bool steps_decode_token(const struct steps *s, const char *token, size_t count, struct bytes *bytes,
                        struct failure *why)
{
  struct words words = {0}; // the token between two empty ones
  const int byte = byte_of_token(token, count);
  bool ok = true, has_bytes = false;
  add_bytes(&words.text, "", 0);
  add_word(&words, 0, 0);
  add_text_as_word(&words, token, count);
  add_word(&words, count, count);
  if (s->count == 0) add_bytes(bytes, " ", 1);
  for (size_t i = 0; i < s->count && ok && !has_bytes && s->at[i].kind != FUSE; i++) {
    const struct word *w = words.text.failed ? NULL : &words.at[1];
    has_bytes = w && (s->at[i].kind == BYTES || (s->at[i].kind == BYTE_FALLBACK && byte >= 0));
    if (has_bytes && s->at[i].kind == BYTES)
      add_bytes_of_letters(bytes, words.text.at + w->first, w->end - w->first);
    else if (has_bytes)
      add_bytes(bytes, (char[]){(char)byte}, 1);
    else
      ok = have_memory(&words, why) && decode(&s->at[i], &words, why);
  }
  ok = ok && have_memory(&words, why);
  if (ok && !has_bytes)
    add_bytes(bytes, words.text.at + words.at[1].first, words.at[1].end - words.at[1].first);
  words_free(&words);
  return ok && (!bytes->failed || failed(why, "out of memory for a text"));
}
