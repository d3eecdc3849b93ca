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
  if (!text && !otherwise) return failed(why, "%s: a step has no \"%s\"", path, name);
  const char *from = text ? json_string_value(text) : otherwise;
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

static bool read_metaspace(struct steps *s, const json_t *object, const char *path,
                           struct failure *why)
{
  const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
  if (!add_step(s, (struct step){.kind = METASPACE, .splits = flag(object, "split", true)}, why))
    return false;
  struct step *step = last_of(s);
  step->prepends = flag(object, "add_prefix_space", true) ? ALWAYS : NEVER;
  if (scheme)
    step->prepends = !strcmp(scheme, "first") ? FIRST : !strcmp(scheme, "never") ? NEVER : ALWAYS;
  return take_text(step, object, "replacement", "\xe2\x96\x81", path, why);
}

// The patterns of Whitespace, in which \w has what joins letters, and of Punctuation.
static const char WORDS[] = "[\\w\\x{200C}\\x{200D}]+|[^\\w\\s\\x{200C}\\x{200D}]+";
static const char PUNCTUATION[] = "[\\p{P}!-/:-@\\[-`{-~]";

static bool take_regex(struct step *s, const char *regex, const char *path, struct failure *why)
{
  struct failure reason;
  s->pattern = pattern_open(regex, strlen(regex), false, &reason);
  return s->pattern || failed(why, "%s: %s", path, reason.text);
}

static bool read_step(struct steps *s, const json_t *object, const char *of, const char *path,
                      struct failure *why)
{
  const char *type = json_string_value(json_object_get(object, "type"));
  const bool decodes = strcmp(of, "decoder") == 0;
  static const struct {
    const char *type;
    struct step step;
  } plain[] = {{"NFC", {.kind = NORMAL_FORM, .form = NFC}},
               {"NFD", {.kind = NORMAL_FORM, .form = NFD}},
               {"NFKC", {.kind = NORMAL_FORM, .form = NFKC}},
               {"NFKD", {.kind = NORMAL_FORM, .form = NFKD}},
               {"Lowercase", {.kind = LOWERCASE}},
               {"StripAccents", {.kind = STRIP_ACCENTS}},
               {"WhitespaceSplit", {.kind = WHITESPACE}},
               {"ByteFallback", {.kind = BYTE_FALLBACK}},
               {"Fuse", {.kind = FUSE}}};
  if (!type) return failed(why, "%s: the %s has a step without a type", path, of);
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(type, plain[i].type) == 0) return add_step(s, plain[i].step, why);
  if (strcmp(type, "ByteLevel") == 0 && strcmp(of, "normalizer") == 0)
    return add_step(s, (struct step){.kind = BYTES}, why);
  if (strcmp(type, "ByteLevel") == 0) return read_byte_level(s, object, decodes, why);
  if (strcmp(type, "Whitespace") == 0)
    return add_step(s, (struct step){.kind = SPLIT, .inverted = true, .behavior = REMOVED}, why) &&
           take_regex(last_of(s), WORDS, path, why);
  if (strcmp(type, "Punctuation") == 0)
    return add_step(s, (struct step){.kind = SPLIT}, why) &&
           take_regex(last_of(s), PUNCTUATION, path, why) &&
           (!json_object_get(object, "behavior") || take_behavior(last_of(s), object, path, why));
  if (strcmp(type, "BPEDecoder") == 0)
    return add_step(s, (struct step){.kind = END_OF_WORD}, why) &&
           take_text(last_of(s), object, "suffix", "</w>", path, why);
  if (strcmp(type, "Metaspace") == 0) return read_metaspace(s, object, path, why);
  if (strcmp(type, "Prepend") == 0)
    return add_step(s, (struct step){.kind = PREPEND}, why) &&
           take_text(last_of(s), object, "prepend", NULL, path, why);
  if (strcmp(type, "Replace") == 0)
    return add_step(s, (struct step){.kind = REPLACE}, why) &&
           take_pattern(last_of(s), object, path, why) &&
           take_text(last_of(s), object, "content", NULL, path, why);
  if (strcmp(type, "Strip") == 0)
    return add_step(s,
                    (struct step){.kind = STRIP,
                                  .first = decodes ? whole_number(object, "start")
                                                   : flag(object, "strip_left", true),
                                  .last = decodes ? whole_number(object, "stop")
                                                  : flag(object, "strip_right", true)},
                    why) &&
           take_text(last_of(s), object, "content", "", path, why);
  if (strcmp(type, "Split") == 0)
    return add_step(s, (struct step){.kind = SPLIT, .inverted = flag(object, "invert", false)},
                    why) &&
           take_pattern(last_of(s), object, path, why) &&
           take_behavior(last_of(s), object, path, why);
  if (strcmp(type, "Digits") == 0)
    return add_step(
        s, (struct step){.kind = DIGITS, .each = flag(object, "individual_digits", false)}, why);
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
  return !object || json_is_null(object) || read_steps(s, object, name, path, 0, why);
}

void steps_free(struct steps *s)
{
  for (size_t i = 0; i < s->count; i++) {
    free_bytes(&s->at[i].text);
    pattern_close(s->at[i].pattern);
  }
  free(s->at);
  *s = (struct steps){0};
}

// ---- normalizers -------------------------------------------------------------------------------

// The text with the step's text in the place of each match.
static bool replace(const struct step *s, struct bytes *text, struct failure *why)
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

static void strip(const struct step *s, struct bytes *text)
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
  memmove(text->at, text->at + first, end - first);
  text->count = end - first;
}

static bool normalize(const struct step *s, struct bytes *text, struct failure *why)
{
  struct bytes made = {0};
  bool ok = true;
  switch (s->kind) {
  case REPLACE:
    return replace(s, text, why);
  case STRIP:
    strip(s, text);
    return true;
  case PREPEND:
    if (text->count == 0) return true;
    add_bytes(&made, s->text.at, s->text.count);
    add_bytes(&made, text->at, text->count);
    break;
  case LOWERCASE:
    add_bytes(&made, "", 0);
    add_lowercase(&made, text->at, text->count);
    break;
  case BYTES:
    add_bytes(&made, "", 0);
    add_letters_of_bytes(&made, text->at, text->count);
    break;
  case STRIP_ACCENTS:
    add_bytes(&made, "", 0);
    for (size_t i = 0; i < text->count;) {
      uint32_t code;
      const int n = utf8_at(text->at + i, text->count - i, &code);
      const size_t size = (size_t)(n > 0 ? n : -n);
      if (n < 0 || !is_mark(code)) add_bytes(&made, text->at + i, size);
      i += size;
    }
    break;
  case NORMAL_FORM:
    add_bytes(&made, "", 0);
    ok = add_normalized(&made, text->at, text->count, s->form, why);
    break;
  default:
    return true;
  }
  free_bytes(text);
  *text = made;
  return ok && (!made.failed || failed(why, "out of memory for a text"));
}

bool steps_normalize(const struct steps *s, struct bytes *text, struct failure *why)
{
  for (size_t i = 0; i < s->count; i++)
    if (!normalize(&s->at[i], text, why)) return false;
  return true;
}
