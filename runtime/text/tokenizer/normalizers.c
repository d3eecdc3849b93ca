// SPDX-License-Identifier: MIT
// The steps of a tokenizer.json: normalizers and pre-tokenizers.
#include "text/tokenizer/normalizers.h"

#include <stdlib.h>
#include <string.h>

// ---- reading -----------------------------------------------------------------------------------

static bool take_text(struct step *s, const json_t *object, const char *name, const char *otherwise,
                      const char *path, struct failure *why)
{
  const json_t *text = json_object_get(object, name);
  if (text && !json_is_string(text)) return failed(why, "%s: \"%s\" is not text", path, name);
  const char *from = text ? json_string_value(text) : otherwise;
  if (!from) return failed(why, "%s: a step has no \"%s\"", path, name);
  add_bytes(&s->text, from, text ? json_string_length(text) : strlen(from));
  return !s->text.failed || failed(why, "%s: out of memory", path);
}

// {"String": ...} or {"Regex": ...}
static bool take_pattern(struct step *s, const json_t *object, const char *path,
                         struct failure *why)
{
  const json_t *pattern = json_object_get(object, "pattern"),
               *text = json_object_get(pattern, "String"),
               *regex = json_object_get(pattern, "Regex");
  const json_t *given = text ? text : regex;
  struct failure reason;
  if (!json_is_string(given) || json_string_length(given) == 0)
    return failed(why, "%s: a step's pattern is neither a String nor a Regex", path);
  s->pattern =
      pattern_open(json_string_value(given), json_string_length(given), text != NULL, &reason);
  return s->pattern || failed(why, "%s: %s", path, reason.text);
}

static bool take_behavior(struct step *s, const json_t *object, const char *path,
                          struct failure *why)
{
  static const char *const names[] = {[ISOLATED] = "Isolated",
                                      [REMOVED] = "Removed",
                                      [MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                      [MERGED_WITH_NEXT] = "MergedWithNext",
                                      [CONTIGUOUS] = "Contiguous"};
  const char *name = json_string_value(json_object_get(object, "behavior"));
  for (int i = 0; name && i <= CONTIGUOUS; i++)
    if (strcmp(name, names[i]) == 0) {
      s->behavior = (enum behavior)i;
      return true;
    }
  return failed(why, "%s: a split's behavior is not known", path);
}

static int whole_number(const json_t *object, const char *name)
{
  const json_int_t n = json_integer_value(json_object_get(object, name));
  return n < 0 ? 0 : n > 1000 ? 1000 : (int)n;
}

static bool flag(const json_t *object, const char *name, bool otherwise)
{
  const json_t *given = json_object_get(object, name);
  return json_is_boolean(given) ? json_is_true(given) : otherwise;
}

// The pattern of ByteLevel.
static const char GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool add_step(struct steps *s, struct step step, struct failure *why)
{
  struct step *at = realloc(s->at, (s->count + 1) * sizeof *at);
  if (!at) return failed(why, "out of memory for a tokenizer");
  s->at = at;
  s->at[s->count++] = step;
  return true;
}

static struct step *last_of(struct steps *s)
{
  return &s->at[s->count - 1];
}

// A pre-tokenizer, or a decoder, of bytes. The first splits, too.
static bool read_byte_level(struct steps *s, const json_t *object, bool decodes,
                            struct failure *why)
{
  if (!decodes && flag(object, "use_regex", true)) {
    if (!add_step(s,
                  (struct step){.kind = SPLIT,
                                .behavior = ISOLATED,
                                .adds_blank = flag(object, "add_prefix_space", true)},
                  why))
      return false;
    last_of(s)->pattern = pattern_open(GPT2, sizeof GPT2 - 1, false, why);
    if (!last_of(s)->pattern) return false;
  } else if (!decodes && flag(object, "add_prefix_space", true)) {
    if (!add_step(s, (struct step){.kind = SPLIT, .adds_blank = true}, why)) return false;
  }
  return add_step(s, (struct step){.kind = BYTES}, why);
}

// A text that is one character.
static bool take_character(struct step *s, const json_t *object, const char *name, const char *path,
                           struct failure *why)
{
  uint32_t code;
  if (!take_text(s, object, name, NULL, path, why)) return false;
  return (s->text.count > 0 && utf8_at(s->text.at, s->text.count, &code) == (int)s->text.count) ||
         failed(why, "%s: a step's \"%s\" is not one character", path, name);
}

static bool read_metaspace(struct steps *s, const json_t *object, const char *path,
                           struct failure *why)
{
  const json_t *scheme = json_object_get(object, "prepend_scheme");
  const char *name = scheme ? json_string_value(scheme) : "always";
  if (!add_step(s, (struct step){.kind = METASPACE, .splits = flag(object, "split", true)}, why))
    return false;
  struct step *step = last_of(s);
  const bool never = json_is_false(json_object_get(object, "add_prefix_space"));
  if (!name ||
      (strcmp(name, "first") != 0 && strcmp(name, "never") != 0 && strcmp(name, "always") != 0))
    return failed(why, "%s: a prepend_scheme is not first, never or always", path);
  if (never && scheme && strcmp(name, "never") != 0)
    return failed(why, "%s: add_prefix_space is false, and prepend_scheme is %s", path, name);
  step->prepends = never || !strcmp(name, "never") ? NEVER
                   : !strcmp(name, "first")        ? FIRST
                                                   : ALWAYS;
  if (json_object_get(object, "replacement"))
    return take_character(step, object, "replacement", path, why);
  return take_text(step, object, "replacement", "\xe2\x96\x81", path, why);
}

// ---- kinds of characters -----------------------------------------------------------------------

// What BertNormalizer's clean_text makes of a character.
static uint32_t cleaned(uint32_t code)
{
  return is_control(code) ? NO_CODE : is_space(code) ? ' ' : code;
}

static uint32_t without_marks(uint32_t code)
{
  return is_mark(code) ? NO_CODE : code;
}

static uint32_t without_accents(uint32_t code)
{
  return is_nonspacing(code) ? NO_CODE : code;
}

// Nmt's.
static uint32_t tidied(uint32_t code)
{
  if ((code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f ||
      code == 0x8f || code == 0x9f)
    return NO_CODE;
  const bool is_blank = code == 9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                        (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                        code == 0x2581 || code == 0xfeff || code == 0xfffd;
  return is_blank ? ' ' : code;
}

// Of Chinese; one range begins where BERT's has a slip.
static bool is_ideograph(uint32_t code)
{
  return (code >= 0x4e00 && code <= 0x9fff) || (code >= 0x3400 && code <= 0x4dbf) ||
         (code >= 0x20000 && code <= 0x2a6df) || (code >= 0x2a700 && code <= 0x2b73f) ||
         (code >= 0x2b740 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x2f800 && code <= 0x2fa1f);
}

// ---- steps -------------------------------------------------------------------------------------

// A flag that the library wants.
static bool need_flag(const json_t *object, const char *name, bool *to, const char *path,
                      struct failure *why)
{
  const json_t *given = json_object_get(object, name);
  *to = json_is_true(given);
  return json_is_boolean(given) ||
         failed(why, "%s: a step's \"%s\" is neither true nor false", path, name);
}

static bool read_bert(struct steps *s, const json_t *object, const char *path, struct failure *why)
{
  const json_t *strips = json_object_get(object, "strip_accents");
  bool cleans, parts, lowers;
  if (!need_flag(object, "clean_text", &cleans, path, why) ||
      !need_flag(object, "handle_chinese_chars", &parts, path, why) ||
      !need_flag(object, "lowercase", &lowers, path, why))
    return false;
  if (strips && !json_is_null(strips) && !json_is_boolean(strips))
    return failed(why, "%s: a step's \"strip_accents\" is neither true nor false", path);
  const bool no_accents = json_is_boolean(strips) ? json_is_true(strips) : lowers;
  return (!cleans || add_step(s, (struct step){.kind = CHARACTERS, .becomes = cleaned}, why)) &&
         (!parts || add_step(s, (struct step){.kind = APART, .is = is_ideograph}, why)) &&
         (!no_accents ||
          (add_step(s, (struct step){.kind = NORMAL_FORM, .form = NFD}, why) &&
           add_step(s, (struct step){.kind = CHARACTERS, .becomes = without_accents}, why))) &&
         (!lowers || add_step(s, (struct step){.kind = LOWERCASE}, why));
}

static bool read_rules(struct steps *s, const json_t *object, const char *path, struct failure *why)
{
  const json_t *text = json_object_get(object, "precompiled_charsmap");
  struct failure reason;
  if (!json_is_string(text))
    return failed(why, "%s: the Precompiled normalizer has no precompiled_charsmap", path);
  if (!add_step(s, (struct step){.kind = RULES}, why)) return false;
  last_of(s)->rules = charsmap_open(json_string_value(text), json_string_length(text), &reason);
  return last_of(s)->rules || failed(why, "%s: %s", path, reason.text);
}

static bool read_lengths(struct steps *s, const json_t *object, const char *path,
                         struct failure *why)
{
  const json_t *length = json_object_get(object, "length");
  const json_int_t n = length ? json_integer_value(length) : 5;
  if (n < 1 || n > 1 << 30)
    return failed(why, "%s: a step's \"length\" is not a whole number, 1 or more", path);
  return add_step(s, (struct step){.kind = LENGTHS, .first = (int)n}, why);
}

static bool read_decoder_of_pieces(struct steps *s, const json_t *object, const char *type,
                                   const char *path, struct failure *why)
{
  const bool is_ctc = strcmp(type, "CTC") == 0;
  bool tidies;
  if (!need_flag(object, "cleanup", &tidies, path, why) ||
      !add_step(s, (struct step){.kind = is_ctc ? CTC : WORD_PIECES, .tidies = tidies}, why) ||
      !take_text(last_of(s), object, is_ctc ? "pad_token" : "prefix", NULL, path, why))
    return false;
  if (!is_ctc) return true;
  struct step *step = last_of(s);
  const json_t *other = json_object_get(object, "word_delimiter_token");
  if (!json_is_string(other))
    return failed(why, "%s: a step has no \"word_delimiter_token\"", path);
  add_bytes(&step->other, json_string_value(other), json_string_length(other));
  return !step->other.failed || failed(why, "%s: out of memory", path);
}

static bool read_step(struct steps *s, const json_t *object, const char *of, const char *path,
                      struct failure *why)
{
  const char *type = json_string_value(json_object_get(object, "type"));
  const bool decodes = strcmp(of, "decoder") == 0;
  static const struct {
    const char *type, *of;
    struct step step;
  } plain[] = {{"NFC", "normalizer", {.kind = NORMAL_FORM, .form = NFC}},
               {"NFD", "normalizer", {.kind = NORMAL_FORM, .form = NFD}},
               {"NFKC", "normalizer", {.kind = NORMAL_FORM, .form = NFKC}},
               {"NFKD", "normalizer", {.kind = NORMAL_FORM, .form = NFKD}},
               {"Lowercase", "normalizer", {.kind = LOWERCASE}},
               {"StripAccents", "normalizer", {.kind = CHARACTERS, .becomes = without_marks}},
               {"Nmt", "normalizer", {.kind = CHARACTERS, .becomes = tidied}},
               {"ByteLevel", "normalizer", {.kind = BYTES}},
               {"WhitespaceSplit", "pre_tokenizer", {.kind = WHITESPACE}},
               {"Whitespace", "pre_tokenizer", {.kind = WORDS}},
               {"Punctuation", "pre_tokenizer", {.kind = SPLIT, .is = is_punctuation}},
               {"ByteFallback", "decoder", {.kind = BYTE_FALLBACK}},
               {"Fuse", "decoder", {.kind = FUSE}}};
  const bool normalizes = strcmp(of, "normalizer") == 0, cuts = strcmp(of, "pre_tokenizer") == 0;
  if (!type) return failed(why, "%s: the %s has a step without a type", path, of);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(type, plain[i].type) == 0 && strcmp(of, plain[i].of) == 0)
      return add_step(s, plain[i].step, why) &&
             (!plain[i].step.is || !json_object_get(object, "behavior") ||
              take_behavior(last_of(s), object, path, why));
  if (normalizes && strcmp(type, "BertNormalizer") == 0) return read_bert(s, object, path, why);
  if (normalizes && strcmp(type, "Precompiled") == 0) return read_rules(s, object, path, why);
  if (normalizes && strcmp(type, "Prepend") == 0)
    return add_step(s, (struct step){.kind = PREPEND}, why) &&
           take_text(last_of(s), object, "prepend", NULL, path, why);
  if (cuts && strcmp(type, "BertPreTokenizer") == 0)
    return add_step(s, (struct step){.kind = WHITESPACE}, why) &&
           add_step(s, (struct step){.kind = SPLIT, .is = is_punctuation}, why);
  if (cuts && strcmp(type, "CharDelimiterSplit") == 0) {
    struct failure reason;
    if (!add_step(s, (struct step){.kind = SPLIT, .behavior = REMOVED}, why) ||
        !take_character(last_of(s), object, "delimiter", path, why))
      return false;
    struct step *step = last_of(s);
    step->pattern = pattern_open(step->text.at, step->text.count, true, &reason);
    return step->pattern || failed(why, "%s: %s", path, reason.text);
  }
  if (cuts && strcmp(type, "FixedLength") == 0) return read_lengths(s, object, path, why);
  if (cuts && strcmp(type, "Digits") == 0)
    return add_step(
        s, (struct step){.kind = DIGITS, .each = flag(object, "individual_digits", false)}, why);
  if (cuts && strcmp(type, "Split") == 0)
    return add_step(s, (struct step){.kind = SPLIT, .inverted = flag(object, "invert", false)},
                    why) &&
           take_pattern(last_of(s), object, path, why) &&
           take_behavior(last_of(s), object, path, why);
  if (decodes && strcmp(type, "BPEDecoder") == 0)
    return add_step(s, (struct step){.kind = END_OF_WORD}, why) &&
           take_text(last_of(s), object, "suffix", "</w>", path, why);
  if (decodes && (strcmp(type, "WordPiece") == 0 || strcmp(type, "CTC") == 0))
    return read_decoder_of_pieces(s, object, type, path, why);
  if (decodes && strcmp(type, "Strip") == 0)
    return add_step(s,
                    (struct step){.kind = STRIP,
                                  .first = whole_number(object, "start"),
                                  .last = whole_number(object, "stop")},
                    why) &&
           take_character(last_of(s), object, "content", path, why);
  if (normalizes && strcmp(type, "Strip") == 0)
    return add_step(s,
                    (struct step){.kind = STRIP,
                                  .first = flag(object, "strip_left", true),
                                  .last = flag(object, "strip_right", true)},
                    why);
  if (!normalizes && strcmp(type, "ByteLevel") == 0)
    return read_byte_level(s, object, decodes, why);
  if (!normalizes && strcmp(type, "Metaspace") == 0) return read_metaspace(s, object, path, why);
  if (!cuts && strcmp(type, "Replace") == 0)
    return add_step(s, (struct step){.kind = REPLACE}, why) &&
           take_pattern(last_of(s), object, path, why) &&
           take_text(last_of(s), object, "content", NULL, path, why);
  return failed(why, "%s: its %s has a step %.40s, which is not known to this program", path, of,
                type);
}

static bool read_steps(struct steps *s, const json_t *object, const char *of, const char *path,
                       int depth, struct failure *why)
{
  static const char *const lists[] = {"normalizers", "pretokenizers", "decoders"};
  const char *type = json_string_value(json_object_get(object, "type"));
  const json_t *list = NULL;
  if (!type || strcmp(type, "Sequence") != 0) return read_step(s, object, of, path, why);
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !list; i++)
    list = json_object_get(object, lists[i]);
  if (!json_is_array(list) || depth > 8)
    return failed(why, "%s: the %s is not a sequence", path, of);
  for (size_t i = 0; i < json_array_size(list); i++)
    if (!read_steps(s, json_array_get(list, i), of, path, depth + 1, why)) return false;
  return true;
}

bool steps_read(struct steps *s, const json_t *file, const char *name, const char *path,
                struct failure *why)
{
  const json_t *object = json_object_get(file, name);
  s->given = object && !json_is_null(object);
  return !s->given || read_steps(s, object, name, path, 0, why);
}

void steps_free(struct steps *s)
{
  for (size_t i = 0; i < s->count; i++) {
    free_bytes(&s->at[i].text);
    free_bytes(&s->at[i].other);
    pattern_close(s->at[i].pattern);
    charsmap_close(s->at[i].rules);
  }
  free(s->at);
  *s = (struct steps){0};
}

// ---- normalizers -------------------------------------------------------------------------------

// The text with the step's text in the place of each match.
static bool replace(const struct step *s, struct bytes *text, bool *begins, struct failure *why)
{
  struct bytes made = {0};
  size_t from = 0, at = 0, first, end;
  struct searched *searched = search_begin(text->at, text->count, why);
  int found = searched ? 1 : -1;
  add_bytes(&made, "", 0);
  while (found > 0 && at <= text->count) {
    found = search_next(searched, s->pattern, at, &first, &end, why);
    if (found <= 0) break;
    if (first > from || end > first || first == from) {
      add_bytes(&made, text->at + from, first - from);
      add_bytes(&made, s->text.at, s->text.count);
      // The library places a replacement where its last original character was.
      uint32_t code;
      const int size = end > 0 ? utf8_at(text->at, text->count, &code) : 0;
      *begins &= first > 0 || end == 0 || (s->text.count > 0 && end == (size_t)abs(size));
      from = end;
    }
    at = next_place(text, end, first);
  }
  search_end(searched);
  if (from < text->count) add_bytes(&made, text->at + from, text->count - from);
  free_bytes(text);
  *text = made;
  return found >= 0 && (!made.failed || failed(why, "out of memory for a text"));
}

static void strip(const struct step *s, struct bytes *text, bool *begins)
{
  size_t first = 0, end = text->count;
  uint32_t code;
  while (s->first && first < end) {
    const int n = utf8_at(text->at + first, end - first, &code);
    if (n < 0 || !is_space(code)) break;
    first += (size_t)n;
  }
  while (s->last && end > first) {
    size_t last = end - 1;
    while (last > first && ((unsigned char)text->at[last] & 0xc0) == 0x80) last--;
    if (utf8_at(text->at + last, end - last, &code) < 0 || !is_space(code)) break;
    end = last;
  }
  *begins &= first == 0;
  memmove(text->at, text->at + first, end - first);
  text->count = end - first;
}

// Each character by itself: others in its place, or blanks around it.
static void change_characters(const struct step *s, struct bytes *made, const struct bytes *text,
                              bool *begins)
{
  for (size_t i = 0; i < text->count;) {
    uint32_t code;
    const int n = utf8_at(text->at + i, text->count - i, &code);
    const uint32_t other = s->becomes ? s->becomes(code) : code;
    const bool is_apart = s->is && s->is(code);
    if (is_apart) add_bytes(made, " ", 1);
    if (other != NO_CODE) add_code(made, other);
    if (is_apart) add_bytes(made, " ", 1);
    *begins &= i > 0 || other != NO_CODE;
    i += (size_t)(n > 0 ? n : -n);
  }
}

static bool normalize(const struct step *s, struct bytes *text, bool *begins, struct failure *why)
{
  struct bytes made = {0};
  bool ok = true;
  if (s->kind == REPLACE) return replace(s, text, begins, why);
  if (s->kind == STRIP) {
    strip(s, text, begins);
    return true;
  }
  add_bytes(&made, "", 0);
  switch (s->kind) {
  case PREPEND:
    if (text->count > 0) add_bytes(&made, s->text.at, s->text.count);
    add_bytes(&made, text->at, text->count);
    break;
  case LOWERCASE:
    add_lowercase(&made, text->at, text->count);
    break;
  case BYTES:
    add_letters_of_bytes(&made, text->at, text->count);
    break;
  case CHARACTERS:
  case APART:
    change_characters(s, &made, text, begins);
    break;
  case RULES:
    charsmap_add(s->rules, &made, text->at, text->count);
    break;
  case NORMAL_FORM:
    ok = add_normalized(&made, text->at, text->count, s->form, why);
    break;
  default:
    break;
  }
  free_bytes(text);
  *text = made;
  return ok && (!made.failed || failed(why, "out of memory for a text"));
}

bool steps_normalize(const struct steps *s, struct bytes *text, bool *begins, struct failure *why)
{
  for (size_t i = 0; i < s->count; i++)
    if (!normalize(&s->at[i], text, begins, why)) return false;
  return true;
}
