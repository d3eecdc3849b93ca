// SPDX-License-Identifier: MIT
// Jinja: filters, tests, methods and functions, as Jinja 3 and Python have them.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "text/chat/jinja_tree.h"

// ---- texts -------------------------------------------------------------------------------------

static struct value *need_text(struct work *w, struct value *v, const char *who)
{
  if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
  if (v->kind != TEXT) work_fails(w, "%s wants a text", who);
  return v;
}

static bool is_in_set(const char *set, size_t nset, const char *c, size_t n)
{
  if (!set) {
    uint32_t code;
    // Python's white space has the separators U+001C to U+001F, too.
    return utf8_at(c, n, &code) > 0 && (is_space(code) || (code >= 0x1c && code <= 0x1f));
  }
  for (size_t i = 0; i < nset;) {
    uint32_t code;
    const int size = utf8_at(set + i, nset - i, &code);
    const size_t k = (size_t)(size > 0 ? size : -size);
    if (k == n && !memcmp(set + i, c, n)) return true;
    i += k;
  }
  return false;
}

static struct value *stripped(struct work *w, struct value *v, struct value *set, bool left,
                              bool right)
{
  const char *of = set && set->kind == TEXT ? set->text : NULL;
  const size_t nset = of ? set->count : 0;
  size_t first = 0, end = v->count;
  while (left && first < end) {
    uint32_t code;
    const int size = utf8_at(v->text + first, end - first, &code);
    const size_t k = (size_t)(size > 0 ? size : -size);
    if (!is_in_set(of, nset, v->text + first, k)) break;
    first += k;
  }
  while (right && end > first) {
    size_t last = end - 1;
    while (last > first && ((unsigned char)v->text[last] & 0xc0) == 0x80) last--;
    if (!is_in_set(of, nset, v->text + last, end - last)) break;
    end = last;
  }
  return text_value(w, v->text + first, end - first);
}

enum letter_case { LOWER, UPPER, CAPITAL, TITLE, TITLE_FILTER };

// Letters whose capital, or title, is several letters, or another one than the capital.
static bool has_odd_capital(uint32_t code, bool is_title)
{
  const bool is_many = code == 0x149 || code == 0x1f0 || code == 0x390 || code == 0x3b0 ||
                       code == 0x587 || (code >= 0x1e96 && code <= 0x1e9a) ||
                       (code >= 0x1f50 && code <= 0x1f56 && code % 2 == 0) ||
                       (code >= 0x1f80 && code <= 0x1ffc) || (code >= 0xfb00 && code <= 0xfb17);
  return is_many ||
         (is_title && (code == 0xdf || (code >= 0x1c4 && code <= 0x1cc) ||
                       (code >= 0x1f1 && code <= 0x1f3) || (code >= 0x10d0 && code <= 0x10ff)));
}

// A sigma at the end of a word has a form of its own. at: behind it.
static bool is_last_of_word(struct work *w, const struct value *v, size_t at, uint32_t before)
{
  uint32_t next = ' ';
  if (at < v->count) utf8_at(v->text + at, v->count - at, &next);
  if ((!is_cased(before) && !is_space(before)) || (!is_cased(next) && !is_space(next)))
    work_fails(w, "a sigma beside such a sign has no small letter here");
  return is_cased(before) && !is_cased(next);
}

// The filter's words begin behind blanks and brackets, those of str.title() where a letter is.
static bool goes_up(enum letter_case as, uint32_t before, size_t at)
{
  if (as == TITLE_FILTER)
    return is_space(before) || (before < 0x80 && strchr("-({[<", (int)before));
  return as == UPPER || (as == TITLE && !is_cased(before)) || (as == CAPITAL && at == 0);
}

static struct value *cased(struct work *w, struct value *v, enum letter_case as)
{
  struct out o = {0};
  uint32_t before = ' ', code;
  out_add(w, &o, "", 0);
  for (size_t i = 0; i < v->count;) {
    const int n = utf8_at(v->text + i, v->count - i, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    const bool up = goes_up(as, before, i);
    struct bytes letter = {0};
    work_step(w);
    if (up && has_odd_capital(code, as == TITLE || as == CAPITAL))
      work_fails(w, "the letter U+%04X has no capital here", (unsigned)code);
    const bool is_last = !up && code == 0x3a3 && is_last_of_word(w, v, i + size, before);
    if (is_last)
      add_code(&letter, 0x3c2);
    else
      add_cased(&letter, v->text + i, size, up);
    char made[16];
    const size_t bytes = letter.failed || letter.count > sizeof made ? 0 : letter.count;
    memcpy(made, letter.at ? letter.at : "", bytes);
    free_bytes(&letter);
    if (!bytes) work_fails(w, "out of memory");
    out_add(w, &o, made, bytes);
    before = code;
    i += size;
  }
  struct value *made = text_value(w, o.at, o.count);
  made->is_safe = v->is_safe;
  return made;
}

static struct value *replaced(struct work *w, struct value *v, struct value *from, struct value *to,
                              long long most)
{
  struct out o = {0};
  out_add(w, &o, "", 0);
  size_t i = 0;
  while (i < v->count || (!from->count && i == v->count)) {
    work_step(w);
    if (most != 0 && i + from->count <= v->count &&
        (!from->count || !memcmp(v->text + i, from->text, from->count))) {
      out_add(w, &o, to->text, to->count);
      most -= most > 0;
      if (from->count) {
        i += from->count;
        continue;
      }
    }
    if (i == v->count) break;
    uint32_t code;
    const int size = utf8_at(v->text + i, v->count - i, &code);
    const size_t bytes = (size_t)(size > 0 ? size : -size);
    out_add(w, &o, v->text + i, bytes);
    i += bytes;
  }
  return text_value(w, o.at, o.count);
}

// The bytes of the white space at a place of a text; 0: there is none.
static size_t blank_at(const struct value *v, size_t at)
{
  uint32_t code;
  const int n = utf8_at(v->text + at, v->count - at, &code);
  const size_t size = (size_t)(n > 0 ? n : -n);
  return is_in_set(NULL, 0, v->text + at, size) ? size : 0;
}

static struct value *split(struct work *w, struct value *v, struct value *by, long long most,
                           bool from_right)
{
  struct value *list = list_value(w);
  if (!by || by->kind != TEXT) { // at white space
    size_t i = 0, blank;
    if (by && by->kind != NONE_VALUE) work_fails(w, "split() wants a text");
    if (from_right && most >= 0) work_fails(w, "rsplit() of a number at white space");
    while (i < v->count) {
      while (i < v->count && (blank = blank_at(v, i))) i += blank;
      size_t end = i;
      if (most == 0 && i < v->count) {
        list_add(w, list, text_value(w, v->text + i, v->count - i));
        break;
      }
      while (end < v->count && !blank_at(v, end)) end++;
      if (end > i) list_add(w, list, text_value(w, v->text + i, end - i));
      most -= most > 0;
      i = end;
    }
    return list;
  }
  if (!by->count) work_fails(w, "split by an empty text");
  size_t pieces = 1, begin = 0;
  for (size_t i = 0; i + by->count <= v->count; i++)
    if (!memcmp(v->text + i, by->text, by->count)) pieces++, i += by->count - 1;
  size_t skip =
      from_right && most >= 0 && pieces > (size_t)most + 1 ? pieces - 1 - (size_t)most : 0;
  for (size_t i = 0; i + by->count <= v->count && most != 0;) {
    if (memcmp(v->text + i, by->text, by->count)) {
      i++;
      continue;
    }
    if (skip) {
      skip--;
      i += by->count;
      continue;
    }
    list_add(w, list, text_value(w, v->text + begin, i - begin));
    i += by->count;
    begin = i;
    if (!from_right) most -= most > 0;
  }
  list_add(w, list, text_value(w, v->text + begin, v->count - begin));
  return list;
}

// The bytes of the end of a line at a place of a text; 0: there is none.
static size_t line_end_at(const struct value *v, size_t at)
{
  uint32_t code;
  const int n = utf8_at(v->text + at, v->count - at, &code);
  if (code == '\r' && at + 1 < v->count && v->text[at + 1] == '\n') return 2;
  const bool ends = (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                    code == 0x2028 || code == 0x2029;
  return ends ? (size_t)(n > 0 ? n : -n) : 0;
}

static struct value *split_lines(struct work *w, struct value *v, bool keeps_ends)
{
  struct value *list = list_value(w);
  for (size_t i = 0; i < v->count;) {
    size_t end = i, ends = 0;
    while (end < v->count && !(ends = line_end_at(v, end))) end++;
    list_add(w, list, text_value(w, v->text + i, end - i + (keeps_ends ? ends : 0)));
    i = end + ends;
  }
  return list;
}

static bool begins_with(const struct value *v, const struct value *with, bool at_end)
{
  if (with->kind == LIST && with->is_tuple) {
    for (size_t i = 0; i < with->count; i++)
      if (begins_with(v, with->at[i], at_end)) return true;
    return false;
  }
  if (with->kind != TEXT || with->count > v->count) return false;
  return !with->count ||
         !memcmp(v->text + (at_end ? v->count - with->count : 0), with->text, with->count);
}

static long long found_at(const struct value *v, const struct value *what, bool last)
{
  long long found = -1;
  for (size_t i = 0; i + what->count <= v->count && (last || found < 0); i++)
    if (!what->count || !memcmp(v->text + i, what->text, what->count))
      found = (long long)characters_of(&(struct value){.text = v->text, .count = i});
  return found;
}

static bool all_are(const struct value *v, bool (*is)(uint32_t))
{
  for (size_t i = 0; i < v->count;) {
    uint32_t code;
    const int n = utf8_at(v->text + i, v->count - i, &code);
    if (!is(code)) return false;
    i += (size_t)(n > 0 ? n : -n);
  }
  return v->count > 0;
}

static struct value *joined(struct work *w, struct value *list, struct value *by)
{
  struct out o = {0};
  out_add(w, &o, "", 0);
  for (size_t i = 0; i < list->count; i++) {
    if (i && by) out_str(w, &o, by);
    out_str(w, &o, list->at[i]);
  }
  return text_value(w, o.at, o.count);
}

// ---- methods -----------------------------------------------------------------------------------

static struct value *argument(struct value **at, size_t n, size_t i, struct value *named,
                              const char *name)
{
  return i < n ? at[i] : name && named ? map_get(named, name) : NULL;
}

static long long whole_argument(struct work *w, struct value *v, long long otherwise)
{
  if (!v || v->kind == NONE_VALUE) return otherwise;
  if (v->kind != WHOLE && v->kind != FLAG) work_fails(w, "a whole number is wanted");
  return v->kind == FLAG ? v->flag : v->whole;
}

#define METHOD(name)                                                                               \
  static struct value *name(struct work *w, struct value *self, struct value **at, size_t n,       \
                            struct value *named)

METHOD(text_strip)
{
  (void)named;
  return stripped(w, self, n ? at[0] : NULL, true, true);
}
METHOD(text_lstrip)
{
  (void)named;
  return stripped(w, self, n ? at[0] : NULL, true, false);
}
METHOD(text_rstrip)
{
  (void)named;
  return stripped(w, self, n ? at[0] : NULL, false, true);
}
METHOD(text_lower)
{
  (void)at, (void)n, (void)named;
  return cased(w, self, LOWER);
}
METHOD(text_upper)
{
  (void)at, (void)n, (void)named;
  return cased(w, self, UPPER);
}
METHOD(text_title)
{
  (void)at, (void)n, (void)named;
  return cased(w, self, TITLE);
}
METHOD(text_capitalize)
{
  (void)at, (void)n, (void)named;
  return cased(w, self, CAPITAL);
}
METHOD(text_splitlines)
{
  const struct value *keeps = argument(at, n, 0, named, "keepends");
  return split_lines(w, self, keeps && is_true(keeps));
}
// What these say of the signs of other writings than ASCII differs from kind to kind.
static bool all_plain(struct work *w, const struct value *v, bool (*is)(uint32_t))
{
  for (size_t i = 0; i < v->count; i++)
    if ((unsigned char)v->text[i] >= 0x80)
      work_fails(w, "this question about a text of other signs than ASCII's is not known here");
  return all_are(v, is);
}
METHOD(text_isdigit)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_plain(w, self, is_numeric));
}
METHOD(text_isalpha)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_alphabetic));
}
static bool is_letter_or_digit(uint32_t code)
{
  return is_alphabetic(code) || is_numeric(code);
}
METHOD(text_isalnum)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_letter_or_digit));
}
static bool is_blank_code(uint32_t code)
{
  return is_space(code) || (code >= 0x1c && code <= 0x1f);
}
METHOD(text_isspace)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_blank_code));
}
// Whether it has letters with a case, all as in `as`.
static bool all_cased(struct work *w, struct value *v, enum letter_case as)
{
  bool any = false;
  uint32_t code;
  for (size_t i = 0; i < v->count;) {
    const int n = utf8_at(v->text + i, v->count - i, &code);
    any |= is_cased(code);
    i += (size_t)(n > 0 ? n : -n);
  }
  return any && are_equal(v, cased(w, v, as));
}
METHOD(text_islower)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_cased(w, self, LOWER));
}
METHOD(text_isupper)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_cased(w, self, UPPER));
}
METHOD(text_split)
{
  return split(w, self, argument(at, n, 0, named, "sep"),
               whole_argument(w, argument(at, n, 1, named, "maxsplit"), -1), false);
}
METHOD(text_rsplit)
{
  return split(w, self, argument(at, n, 0, named, "sep"),
               whole_argument(w, argument(at, n, 1, named, "maxsplit"), -1), true);
}

static struct value *one_text(struct work *w, struct value **at, size_t n, const char *who)
{
  if (!n) work_fails(w, "%s() wants an argument", who);
  return need_text(w, at[0], who);
}

METHOD(text_startswith)
{
  (void)named;
  if (!n || (at[0]->kind != TEXT && !at[0]->is_tuple))
    work_fails(w, "startswith() wants a text or a tuple");
  return flag_value(w, begins_with(self, at[0], false));
}
METHOD(text_endswith)
{
  (void)named;
  if (!n || (at[0]->kind != TEXT && !at[0]->is_tuple))
    work_fails(w, "endswith() wants a text or a tuple");
  return flag_value(w, begins_with(self, at[0], true));
}
METHOD(text_find)
{
  (void)named;
  return whole_value(w, found_at(self, one_text(w, at, n, "find"), false));
}
METHOD(text_rfind)
{
  (void)named;
  return whole_value(w, found_at(self, one_text(w, at, n, "rfind"), true));
}
METHOD(text_index)
{
  (void)named;
  const long long found = found_at(self, one_text(w, at, n, "index"), false);
  if (found < 0) work_fails(w, "index(): it is not in the text");
  return whole_value(w, found);
}
METHOD(text_join)
{
  (void)named;
  if (!n) work_fails(w, "join() wants a list");
  struct value *list = sequence_of(w, at[0]);
  for (size_t i = 0; i < list->count; i++) need_text(w, list->at[i], "join()");
  return joined(w, list, self);
}

static struct value *padded(struct work *w, struct value *self, struct value **at, size_t n,
                            enum place place)
{
  struct out o = {0};
  const char *sign = n > 1 ? need_text(w, at[1], "the sign that fills up")->text : " ";
  if (!n || (n > 1 && characters_of(at[1]) != 1)) work_fails(w, "a width and one sign are wanted");
  out_add(w, &o, "", 0);
  out_padded(w, &o, self, whole_argument(w, at[0], 0), sign, place);
  return text_value(w, o.at, o.count);
}
METHOD(text_center)
{
  (void)named;
  return padded(w, self, at, n, IN_MIDDLE);
}
METHOD(text_ljust)
{
  (void)named;
  return padded(w, self, at, n, AT_LEFT);
}
METHOD(text_rjust)
{
  (void)named;
  return padded(w, self, at, n, AT_RIGHT);
}
METHOD(text_zfill)
{
  (void)named;
  struct out o = {0};
  const bool has_sign = self->count && (*self->text == '-' || *self->text == '+');
  if (!n) work_fails(w, "zfill() wants a width");
  out_add(w, &o, self->text, has_sign);
  out_padded(w, &o, text_value(w, self->text + has_sign, self->count - has_sign),
             whole_argument(w, at[0], 0) - has_sign, "0", AT_RIGHT);
  return text_value(w, o.at, o.count);
}
// (before, count bytes at a place, after)
static struct value *parts_at(struct work *w, const struct value *v, size_t at, size_t count)
{
  struct value *parts = list_value(w);
  parts->is_tuple = true;
  list_add(w, parts, text_value(w, v->text, at));
  list_add(w, parts, text_value(w, v->text + at, count));
  list_add(w, parts, text_value(w, v->text + at + count, v->count - at - count));
  return parts;
}
static size_t byte_of_place(const struct value *v, long long place)
{
  size_t i = 0;
  for (; i < v->count && (place || ((unsigned char)v->text[i] & 0xc0) == 0x80); i++)
    place -= i + 1 >= v->count || ((unsigned char)v->text[i + 1] & 0xc0) != 0x80;
  return i;
}
METHOD(text_partition)
{
  (void)named;
  const struct value *by = one_text(w, at, n, "partition");
  const long long found = by->count ? found_at(self, by, false) : -1;
  if (!by->count) work_fails(w, "partition() by an empty text");
  return found < 0 ? parts_at(w, self, self->count, 0)
                   : parts_at(w, self, byte_of_place(self, found), by->count);
}
METHOD(text_rpartition)
{
  (void)named;
  const struct value *by = one_text(w, at, n, "rpartition");
  const long long found = by->count ? found_at(self, by, true) : -1;
  if (!by->count) work_fails(w, "rpartition() by an empty text");
  return found < 0 ? parts_at(w, self, 0, 0)
                   : parts_at(w, self, byte_of_place(self, found), by->count);
}
METHOD(text_format)
{
  return brace_format(w, self, at, n, named);
}
METHOD(text_replace)
{
  (void)named;
  if (n < 2) work_fails(w, "replace() wants two texts");
  return replaced(w, self, need_text(w, at[0], "replace"), need_text(w, at[1], "replace"),
                  n > 2 ? whole_argument(w, at[2], -1) : -1);
}
METHOD(text_removeprefix)
{
  (void)named;
  struct value *by = one_text(w, at, n, "removeprefix");
  return begins_with(self, by, false)
             ? text_value(w, self->text + by->count, self->count - by->count)
             : self;
}
METHOD(text_removesuffix)
{
  (void)named;
  struct value *by = one_text(w, at, n, "removesuffix");
  return begins_with(self, by, true) ? text_value(w, self->text, self->count - by->count) : self;
}
METHOD(text_count)
{
  (void)named;
  struct value *by = one_text(w, at, n, "count");
  return whole_value(w, by->count ? (long long)split(w, self, by, -1, false)->count - 1
                                  : (long long)characters_of(self) + 1);
}

static struct value *pairs_of(struct work *w, struct value *map)
{
  struct value *list = list_value(w);
  for (size_t i = 0; i < map->count; i++) {
    struct value *pair = list_value(w);
    pair->is_tuple = true;
    list_add(w, pair, map->key[i]);
    list_add(w, pair, map->at[i]);
    list_add(w, list, pair);
  }
  return list;
}

// Python prints a view with its name.
static struct value *view_of(struct value *list, const char *name)
{
  list->view = name;
  return list;
}
METHOD(map_items)
{
  (void)at, (void)n, (void)named;
  return view_of(pairs_of(w, self), "dict_items");
}
METHOD(map_keys)
{
  (void)at, (void)n, (void)named;
  return view_of(sequence_of(w, self), "dict_keys");
}
METHOD(map_values)
{
  (void)at, (void)n, (void)named;
  struct value *list = list_value(w);
  for (size_t i = 0; i < self->count; i++) list_add(w, list, self->at[i]);
  return view_of(list, "dict_values");
}
// Nothing changes a map or list, so that it is its own copy.
METHOD(own_copy)
{
  (void)w, (void)at, (void)n, (void)named;
  return self;
}
METHOD(map_get_method)
{
  (void)named;
  if (!n) work_fails(w, "get() wants a key");
  for (size_t i = 0; i < self->count; i++)
    if (are_equal(self->key[i], at[0])) return self->at[i];
  return n > 1 ? at[1] : value_of(w, NONE_VALUE);
}
METHOD(list_index)
{
  (void)named;
  for (size_t i = 0; n && i < self->count; i++)
    if (are_equal(self->at[i], at[0])) return whole_value(w, (long long)i);
  work_fails(w, "index(): it is not in the list");
}
METHOD(list_count)
{
  (void)named;
  long long found = 0;
  for (size_t i = 0; n && i < self->count; i++) found += are_equal(self->at[i], at[0]);
  return whole_value(w, found);
}

static const struct {
  enum value_kind of;
  const char *name;
  call_function *call;
  size_t most;       // arguments
  const char *named; // which of them may have names; "*": any
} methods[] = {{TEXT, "strip", text_strip, 1, ""},
               {TEXT, "lstrip", text_lstrip, 1, ""},
               {TEXT, "rstrip", text_rstrip, 1, ""},
               {TEXT, "lower", text_lower, 0, ""},
               {TEXT, "upper", text_upper, 0, ""},
               {TEXT, "title", text_title, 0, ""},
               {TEXT, "capitalize", text_capitalize, 0, ""},
               {TEXT, "split", text_split, 2, "sep maxsplit"},
               {TEXT, "rsplit", text_rsplit, 2, "sep maxsplit"},
               {TEXT, "splitlines", text_splitlines, 1, "keepends"},
               {TEXT, "startswith", text_startswith, 1, ""},
               {TEXT, "endswith", text_endswith, 1, ""},
               {TEXT, "find", text_find, 1, ""},
               {TEXT, "rfind", text_rfind, 1, ""},
               {TEXT, "index", text_index, 1, ""},
               {TEXT, "replace", text_replace, 3, ""},
               {TEXT, "join", text_join, 1, ""},
               {TEXT, "count", text_count, 1, ""},
               {TEXT, "removeprefix", text_removeprefix, 1, ""},
               {TEXT, "removesuffix", text_removesuffix, 1, ""},
               {TEXT, "isdigit", text_isdigit, 0, ""},
               {TEXT, "isalpha", text_isalpha, 0, ""},
               {TEXT, "isalnum", text_isalnum, 0, ""},
               {TEXT, "isspace", text_isspace, 0, ""},
               {TEXT, "islower", text_islower, 0, ""},
               {TEXT, "isupper", text_isupper, 0, ""},
               {TEXT, "center", text_center, 2, ""},
               {TEXT, "ljust", text_ljust, 2, ""},
               {TEXT, "rjust", text_rjust, 2, ""},
               {TEXT, "zfill", text_zfill, 1, ""},
               {TEXT, "partition", text_partition, 1, ""},
               {TEXT, "rpartition", text_rpartition, 1, ""},
               {TEXT, "format", text_format, 99, "*"},
               {MAP, "items", map_items, 0, ""},
               {MAP, "keys", map_keys, 0, ""},
               {MAP, "values", map_values, 0, ""},
               {MAP, "get", map_get_method, 2, ""},
               {MAP, "copy", own_copy, 0, ""},
               {LIST, "index", list_index, 1, ""},
               {LIST, "count", list_count, 1, ""},
               {LIST, "copy", own_copy, 0, ""}};

bool is_among_words(const char *words, const char *word)
{
  const size_t n = strlen(word);
  for (const char *at = words; (at = strstr(at, word)); at++)
    if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

// What Python has, and is not there: using it is an error, as is asking for it.
static bool is_pythons(const struct value *v, const char *name)
{
  static const char text[] =
      "casefold encode expandtabs format_map isascii isdecimal isidentifier isnumeric isprintable "
      "istitle maketrans rindex swapcase translate",
                    number[] = "as_integer_ratio bit_count bit_length conjugate denominator "
                               "from_bytes fromhex hex imag is_integer numerator real to_bytes",
                    list[] = "append clear extend insert pop remove reverse sort",
                    iterator[] = "close gi_code gi_frame gi_running gi_suspended gi_yieldfrom "
                                 "send throw index count copy",
                    function[] = "name arguments catch_kwargs catch_varargs caller explicit_caller";
  switch (v->kind) {
  case TEXT:
    return is_among_words(text, name);
  case MAP:
    return is_dict(v) && is_among_words("fromkeys", name);
  case LIST:
    return v->is_lazy || v->view ? is_among_words(iterator, name) ||
                                       is_among_words("start stop step mapping isdisjoint", name)
                                 : !v->is_tuple && is_among_words(list, name);
  case FUNCTION:
    return is_among_words(function, name);
  case UNDEFINED:
  case NONE_VALUE:
    return false;
  default:
    return is_among_words(number, name);
  }
}

// transformers' templates cannot change what they are given: a dict's methods that would are
// undefined, also where a key has the name.
static bool changes_map(const char *name)
{
  static const char *const names[] = {"clear", "pop", "popitem", "setdefault", "update"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

// A method of the value, whose call checks the number of its arguments; NULL: it has none.
static struct value *method_of(struct work *w, struct value *v, const char *name)
{
  const bool has = (v->kind != MAP || is_dict(v)) && !v->is_lazy && !v->view &&
                   !(v->is_tuple && !strcmp(name, "copy"));
  for (size_t i = 0; has && i < sizeof methods / sizeof *methods; i++)
    if (methods[i].of == v->kind && !strcmp(methods[i].name, name)) {
      struct value *f = function_value(w, name, methods[i].call, v);
      f->count = methods[i].most;
      f->text = methods[i].named;
      return f;
    }
  if (is_pythons(v, name)) work_fails(w, "Python's '%s' is not known here", name);
  return NULL;
}

struct value *member_of_value(struct work *w, struct value *v, const char *name)
{
  if (v->kind == MAP && !is_dict(v)) return map_get(v, name);
  if (v->is_group && !strcmp(name, "grouper")) return v->at[0];
  if (v->is_group && !strcmp(name, "list")) return v->at[1];
  if (v->kind == MAP && changes_map(name)) return undefined_value(w, name);
  struct value *f = method_of(w, v, name);
  return f ? f : v->kind == MAP ? map_get(v, name) : NULL;
}

struct value *item_of(struct work *w, struct value *v, struct value *key)
{
  if (v->kind == MAP) {
    for (size_t i = 0; i < v->count && is_dict(v); i++)
      if (are_equal(v->key[i], key)) return v->at[i];
    struct value *member = key->kind == TEXT ? member_of_value(w, v, key->text) : NULL;
    return member ? member : undefined_value(w, key->kind == TEXT ? key->text : "an item");
  }
  const bool has_places = v->kind == TEXT || (v->kind == LIST && !v->is_lazy &&
                                              (!v->view || !strcmp(v->view, "range")));
  if (has_places && (key->kind == WHOLE || key->kind == FLAG)) {
    struct value *of = v->kind == TEXT ? sequence_of(w, v) : v;
    long long i = key->kind == FLAG ? key->flag : key->whole;
    if (i < 0) i += (long long)of->count;
    if (i < 0 || i >= (long long)of->count) return undefined_value(w, "an item of a list");
    of->at[i]->is_safe |= v->kind == TEXT && v->is_safe;
    return of->at[i];
  }
  if (key->kind == TEXT) {
    struct value *member = member_of_value(w, v, key->text);
    if (member) return member;
  }
  return undefined_value(w, key->kind == TEXT ? key->text : "an item");
}

struct value *sequence_of(struct work *w, struct value *v)
{
  struct value *list = list_value(w);
  if (v->kind == LIST && !v->view && !v->is_lazy) return v;
  if (v->kind == LIST) {
    if (v->is_lazy && v->view) work_fails(w, "%s is used again", v->view);
    for (size_t i = 0; i < v->count; i++) list_add(w, list, v->at[i]);
    if (v->is_lazy) v->count = 0; // what goes through it has all
  } else if (is_dict(v)) {
    for (size_t i = 0; i < v->count; i++) list_add(w, list, v->key[i]);
  } else if (v->kind == TEXT) {
    for (size_t i = 0; i < v->count;) {
      uint32_t code;
      const int n = utf8_at(v->text + i, v->count - i, &code);
      const size_t size = (size_t)(n > 0 ? n : -n);
      list_add(w, list, text_value(w, work_copy(w, v->text + i, size), size));
      i += size;
    }
  } else if (v->kind != UNDEFINED) {
    work_fails(w, "there is no list to go through");
  }
  return list;
}

static struct value *rounded(struct work *w, struct value *v, struct value **at, size_t n,
                             struct value *named)
{
  const long long digits = whole_argument(w, argument(at, n, 0, named, "precision"), 0);
  const struct value *method = argument(at, n, 1, named, "method");
  const char *how = method && method->kind == TEXT ? method->text : "common";
  if (!is_number(v)) work_fails(w, "round of what is no number");
  const double x = number_of_value(v), scale = pow(10, (double)digits);
  if (!strcmp(how, "ceil")) return real_value(w, ceil(x * scale) / scale);
  if (!strcmp(how, "floor")) return real_value(w, floor(x * scale) / scale);
  if (strcmp(how, "common")) work_fails(w, "round knows common, ceil and floor");
  if (digits < 0) work_fails(w, "round to tens is not known here");
  if (v->kind != REAL) return whole_value(w, whole_argument(w, v, 0));
  // As Python rounds: the number itself, not the product.
  char text[512];
  if (digits > 100 || fabs(x) > 1e200) return v;
  snprintf(text, sizeof text, "%.*f", (int)digits, x);
  return real_value(w, strtod(text, NULL));
}

// ---- tests -------------------------------------------------------------------------------------

bool contains(struct work *w, struct value *in, struct value *v)
{
  if (in->kind == TEXT && v->kind == TEXT)
    return !v->count || memmem(in->text, in->count, v->text, v->count);
  if (in->is_lazy) work_fails(w, "'in' of an iterator is not known here");
  if (in->kind == LIST)
    for (size_t i = 0; i < in->count; i++)
      if (are_equal(in->at[i], v)) return true;
  if (is_dict(in))
    for (size_t i = 0; i < in->count; i++)
      if (are_equal(in->key[i], v)) return true;
  if (in->kind != LIST && !is_dict(in) && in->kind != UNDEFINED)
    work_fails(w, "'in' wants a list, a map or a text");
  return false;
}

// The names of a filter's arguments, in their order; "*": any. NULL: there is no such filter here.
static const char *filter_arguments(const char *name)
{
  static const char *const known[][2] = {
      {"abs", ""},
      {"attr", "name"},
      {"batch", "linecount fill_with"},
      {"capitalize", ""},
      {"center", "width"},
      {"count", ""},
      {"d", "default_value boolean"},
      {"default", "default_value boolean"},
      {"dictsort", "case_sensitive by reverse"},
      {"e", ""},
      {"escape", ""},
      {"first", ""},
      {"float", "default"},
      {"forceescape", ""},
      {"format", "*"},
      {"groupby", "attribute default case_sensitive"},
      {"indent", "width first blank"},
      {"int", "default base"},
      {"items", ""},
      {"join", "d attribute"},
      {"last", ""},
      {"length", ""},
      {"list", ""},
      {"lower", ""},
      {"map", "*"},
      {"max", "case_sensitive attribute"},
      {"min", "case_sensitive attribute"},
      {"reject", "*"},
      {"rejectattr", "*"},
      {"replace", "old new count"},
      {"reverse", ""},
      {"round", "precision method"},
      {"safe", ""},
      {"select", "*"},
      {"selectattr", "*"},
      {"slice", "slices fill_with"},
      {"sort", "reverse case_sensitive attribute"},
      {"string", ""},
      {"sum", "attribute start"},
      {"title", ""},
      {"tojson", "ensure_ascii indent separators sort_keys"},
      {"trim", "chars"},
      {"truncate", "length killwords end leeway"},
      {"unique", "case_sensitive attribute"},
      {"upper", ""},
      {"wordcount", ""},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i][0], name)) return known[i][1];
  return NULL;
}

static void check_filter(struct work *w, const char *name, size_t n, const struct value *named)
{
  const char *names = filter_arguments(name);
  if (!names) work_fails(w, "the filter '%.40s' is not known here", name);
  if (*names == '*') return;
  size_t most = *names != 0;
  for (const char *c = names; *c; c++) most += *c == ' ';
  for (size_t i = 0; i < named->count; i++)
    if (!is_among_words(names, named->key[i]->text))
      work_fails(w, "the filter %s has no argument that is called %s", name, named->key[i]->text);
  if (n + named->count > most) work_fails(w, "the filter %s has too many arguments", name);
}

// Whether both are one object of Python.
static bool is_same(struct work *w, const struct value *a, const struct value *b)
{
  if (a == b) return a->kind != UNDEFINED;
  if (a->kind != b->kind || !are_equal(a, b)) return false;
  if (a->kind == NONE_VALUE || a->kind == FLAG) return true;
  if (a->kind == WHOLE && a->whole >= -5 && a->whole <= 256) return true;
  if (a->kind == WHOLE || a->kind == REAL || a->kind == TEXT || a->kind == FUNCTION)
    work_fails(w, "whether two equal values are the same is not known here");
  return false;
}

bool apply_test(struct work *w, const char *name, struct value *v, struct value **at, size_t n)
{
#define IS(test) (!strcmp(name, test))
  if (IS("defined")) return v->kind != UNDEFINED;
  if (IS("undefined")) return v->kind == UNDEFINED;
  if (IS("none")) return v->kind == NONE_VALUE;
  if (IS("string")) return v->kind == TEXT;
  if (IS("boolean")) return v->kind == FLAG;
  if (IS("true")) return v->kind == FLAG && v->flag;
  if (IS("false")) return v->kind == FLAG && !v->flag;
  if (IS("integer")) return v->kind == WHOLE;
  if (IS("float")) return v->kind == REAL;
  if (IS("number")) return is_number(v);
  if (IS("escaped")) return v->kind == TEXT && v->is_safe;
  if (v->is_object && (IS("mapping") || IS("iterable") || IS("sequence") || IS("callable")))
    work_fails(w, "such a question about a loop's own value");
  if (IS("mapping")) return is_dict(v);
  if (IS("iterable") || IS("sequence")) {
    const bool has_places = !v->is_lazy && (!v->view || !strcmp(v->view, "range"));
    return is_dict(v) || v->kind == TEXT || v->kind == UNDEFINED ||
           (v->kind == LIST && (has_places || IS("iterable")));
  }
  if (IS("callable")) return v->kind == FUNCTION || v->kind == UNDEFINED;
  if (IS("lower") || IS("upper")) return all_cased(w, str_of(w, v), IS("lower") ? LOWER : UPPER);
  if (IS("filter") && is_among_words("filesizeformat pprint random striptags urlencode urlize "
                                     "wordwrap xmlattr",
                                     need_text(w, v, "filter")->text))
    work_fails(w, "the filter '%s' is not known here", v->text);
  if (IS("filter")) return filter_arguments(need_text(w, v, "filter")->text) != NULL;
  if (IS("odd") || IS("even")) return (whole_argument(w, v, 0) % 2 != 0) == IS("odd");
  if (n) {
    if (IS("divisibleby")) {
      if (!whole_argument(w, at[0], 1)) work_fails(w, "a division by zero");
      return whole_argument(w, v, 0) % whole_argument(w, at[0], 1) == 0;
    }
    if (IS("eq") || IS("equalto") || IS("==")) return are_equal(v, at[0]);
    if (IS("sameas")) return is_same(w, v, at[0]);
    if (IS("ne") || IS("!=")) return !are_equal(v, at[0]);
    if (IS("lt") || IS("lessthan") || IS("<")) return compare_values(w, v, at[0]) < 0;
    if (IS("le") || IS("<=")) return compare_values(w, v, at[0]) <= 0;
    if (IS("gt") || IS("greaterthan") || IS(">")) return compare_values(w, v, at[0]) > 0;
    if (IS("ge") || IS(">=")) return compare_values(w, v, at[0]) >= 0;
    if (IS("in")) return contains(w, at[0], v);
  }
  work_fails(w, "the test '%.40s' is not known here", name);
}

// ---- filters -----------------------------------------------------------------------------------

// "a.b": of each, a member of a member.
static struct value *attribute_or(struct work *w, struct value *v, struct value *name,
                                  struct value *otherwise)
{
  if (name->kind == WHOLE) return item_of(w, v, name);
  struct value *path =
      split(w, need_text(w, name, "an attribute"), text_value(w, ".", 1), -1, false);
  for (size_t i = 0; i < path->count; i++) {
    const char *part = work_copy(w, path->at[i]->text, path->at[i]->count);
    const bool is_number = *part && part[strspn(part, "0123456789")] == 0 && strlen(part) < 10;
    if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
    v = item_of(w, v,
                is_number ? whole_value(w, atoi(part)) : text_value(w, part, path->at[i]->count));
    if (v->kind == UNDEFINED && otherwise) v = otherwise;
  }
  return v;
}

static struct value *attribute_of(struct work *w, struct value *v, struct value *name)
{
  return attribute_or(w, v, name, NULL);
}

// Several, with commas between them: all of them.
static struct value *attributes_of(struct work *w, struct value *v, struct value *name)
{
  if (name->kind != TEXT || !memchr(name->text, ',', name->count)) return attribute_of(w, v, name);
  struct value *names = split(w, name, text_value(w, ",", 1), -1, false), *all = list_value(w);
  for (size_t i = 0; i < names->count; i++) list_add(w, all, attribute_of(w, v, names->at[i]));
  return all;
}

// What is compared where small and capital letters are the same.
static struct value *without_case(struct work *w, struct value *v)
{
  if (v->kind == TEXT) return cased(w, v, LOWER);
  if (v->kind != LIST) return v;
  struct value *all = list_value(w);
  for (size_t i = 0; i < v->count; i++) list_add(w, all, without_case(w, v->at[i]));
  return all;
}

// What an iterator of Python is made of.
static struct value *lazy(struct value *list)
{
  list->is_lazy = true;
  return list;
}

static struct value *selected(struct work *w, const char *name, struct value *v, struct value **at,
                              size_t n, const struct value *named)
{
  if (named->count) work_fails(w, "%s with named arguments", name);
  const bool by_attribute = strlen(name) > 6 && !strcmp(name + 6, "attr"), rejects = name[0] == 'r';
  struct value *list = sequence_of(w, v), *kept = list_value(w);
  const size_t skip = by_attribute;
  if (by_attribute && !n) work_fails(w, "%s wants an attribute", name);
  for (size_t i = 0; i < list->count; i++) {
    struct value *of = by_attribute ? attribute_of(w, list->at[i], at[0]) : list->at[i];
    const bool holds = n > skip ? apply_test(w, need_text(w, at[skip], name)->text, of,
                                             at + skip + 1, n - skip - 1)
                                : is_true(of);
    if (holds != rejects) list_add(w, kept, list->at[i]);
  }
  return lazy(kept);
}

static struct value *sorted(struct work *w, struct value *list, struct value *attribute,
                            bool reversed, bool exact)
{
  struct value *all = list_value(w);
  struct value **key = work_alloc(w, (list->count + 1) * sizeof *key);
  for (size_t i = 0; i < list->count; i++) {
    struct value *k = attribute ? attributes_of(w, list->at[i], attribute) : list->at[i];
    if (!exact) k = without_case(w, k);
    list_add(w, all, list->at[i]);
    size_t at = i;
    for (; at; at--) {
      const int order = compare_values(w, k, key[at - 1]);
      work_step(w);
      if (reversed ? order <= 0 : order >= 0) break;
      key[at] = key[at - 1];
      all->at[at] = all->at[at - 1];
    }
    key[at] = k;
    all->at[at] = list->at[i];
  }
  return all;
}

static struct value *indented(struct work *w, struct value *v, struct value *width, bool first,
                              bool blank)
{
  struct out whole = {0};
  out_add(w, &whole, need_text(w, v, "indent")->text, v->count);
  out_text(w, &whole, "\n");
  struct value *lines = split_lines(w, text_value(w, whole.at, whole.count), false);
  struct out by = {0}, o = {0};
  out_add(w, &by, "", 0);
  out_add(w, &o, "", 0);
  if (width && width->kind == TEXT)
    out_add(w, &by, width->text, width->count);
  else
    for (long long i = whole_argument(w, width, 4); i > 0; i--) out_text(w, &by, " ");
  for (size_t i = 0; i < lines->count; i++) {
    if (i) out_text(w, &o, "\n");
    if (i ? blank || lines->at[i]->count : first) out_add(w, &o, by.at, by.count);
    out_add(w, &o, lines->at[i]->text, lines->at[i]->count);
  }
  return text_value(w, o.at, o.count);
}

// The text without blanks at its ends and with no underscores between digits; NULL: it cannot be a
// number. Other digits than ASCII's are an error.
static char *plain_number(struct work *w, struct value *v)
{
  struct value *text = stripped(w, v, NULL, true, true);
  char *plain = work_alloc(w, text->count + 1);
  size_t n = 0;
  for (size_t i = 0; i < text->count; i++) {
    const char c = text->text[i];
    if ((unsigned char)c >= 0x80) work_fails(w, "a number in other signs than ASCII's");
    if (c == '_') {
      const bool between = i && i + 1 < text->count && isalnum((unsigned char)text->text[i - 1]) &&
                           isalnum((unsigned char)text->text[i + 1]);
      if (!between) return NULL;
      continue;
    }
    if (!c) return NULL;
    plain[n++] = c;
  }
  plain[n] = 0;
  return n ? plain : NULL;
}

// As float() reads a text: false if it does not.
static bool read_real(const char *text, double *x)
{
  char *end;
  const char *digits = text + (*text == '-' || *text == '+');
  if (!strncasecmp(digits, "0x", 2) || strchr(digits, '(')) return false;
  *x = strtod(text, &end);
  return *digits && !*end;
}

static struct value *as_whole(struct work *w, struct value *v, struct value *otherwise,
                              struct value *base)
{
  const long long by = whole_argument(w, base, 10);
  struct value *none = otherwise ? otherwise : whole_value(w, 0);
  double real = v->kind == REAL ? v->real : 0;
  if (is_number(v) && v->kind != REAL) return whole_value(w, whole_argument(w, v, 0));
  if (v->kind == TEXT) {
    char *end = NULL, *text = plain_number(w, v);
    if (!text) return none;
    const char *digits = text + (*text == '-' || *text == '+');
    const char kind = *digits == '0' ? (char)(digits[1] | 0x20) : 0;
    const bool has_base = (by == 2 && kind == 'b') || (by == 8 && kind == 'o');
    if (by < 2 || by > 36) work_fails(w, "the base of int is 2 to 36 here");
    errno = 0;
    const bool is_hex = kind == 'x' && by != 16;
    long long whole = is_hex ? 0 : strtoll(has_base ? digits + 2 : text, &end, (int)by);
    if (errno) work_fails(w, "a number is too large");
    if (has_base && *text == '-') whole = -whole;
    if (!is_hex && end > digits && !*end && !isspace((unsigned char)*digits))
      return whole_value(w, whole);
    if (!read_real(text, &real)) return none;
  } else if (v->kind != REAL) {
    if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
    return none;
  }
  if (isnan(real)) return none;
  if (!(fabs(real) < 9e18)) work_fails(w, "a number is too large");
  return whole_value(w, (long long)real);
}

static struct value *as_real(struct work *w, struct value *v, struct value *otherwise)
{
  double real;
  if (is_number(v)) return real_value(w, number_of_value(v));
  if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
  if (v->kind == TEXT) {
    const char *text = plain_number(w, v);
    if (text && read_real(text, &real)) return real_value(w, real);
  }
  return otherwise ? otherwise : real_value(w, 0);
}

static struct value *as_json(struct work *w, struct value *v, struct value **at, size_t n,
                             struct value *named)
{
  struct out o = {0};
  struct value *ascii = argument(at, n, 0, named, "ensure_ascii"),
               *indent = argument(at, n, 1, named, "indent"),
               *separators = argument(at, n, 2, named, "separators"),
               *order = argument(at, n, 3, named, "sort_keys");
  if (indent && indent->kind != WHOLE && indent->kind != NONE_VALUE)
    work_fails(w, "tojson's indent is a whole number here");
  if (indent && indent->kind == WHOLE && (indent->whole < 0 || indent->whole > 64))
    work_fails(w, "tojson's indent is 0 to 64 here");
  const bool is_wide = indent && indent->kind == WHOLE;
  struct json_form form = {.indent = is_wide ? (int)indent->whole : -1,
                           .comma = is_wide ? "," : ", ",
                           .colon = ": ",
                           .is_sorted = order && is_true(order),
                           .is_ascii = ascii && is_true(ascii)};
  if (separators && separators->kind != NONE_VALUE) {
    if (separators->kind != LIST || separators->count != 2)
      work_fails(w, "tojson's separators are two texts");
    form.comma = need_text(w, separators->at[0], "tojson")->text;
    form.colon = need_text(w, separators->at[1], "tojson")->text;
  }
  if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
  out_add(w, &o, "", 0);
  out_json(w, &o, v, &form, 0);
  return text_value(w, o.at, o.count);
}

static struct value *mapped(struct work *w, struct value *v, struct value **at, size_t n,
                            struct value *named)
{
  struct value *list = sequence_of(w, v), *made = list_value(w),
               *attribute = n ? NULL : map_get(named, "attribute"),
               *otherwise = map_get(named, "default");
  if (!attribute && !n) work_fails(w, "map wants a filter or an attribute");
  if (attribute && named->count > 1 + (otherwise != NULL))
    work_fails(w, "map by an attribute has no other arguments than default");
  if (otherwise && otherwise->kind == NONE_VALUE) otherwise = NULL;
  for (size_t i = 0; i < list->count; i++)
    list_add(w, made,
             attribute ? attribute_or(w, list->at[i], attribute, otherwise)
                       : apply_filter(w, need_text(w, at[0], "map")->text, list->at[i], at + 1,
                                      n - 1, named));
  return lazy(made);
}

static struct value *least(struct work *w, struct value *v, struct value *attribute, bool exact,
                           bool most)
{
  struct value *list = sequence_of(w, v), *found = NULL, *key = NULL;
  for (size_t i = 0; i < list->count; i++) {
    struct value *k = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
    if (!exact) k = without_case(w, k);
    const int order = found ? compare_values(w, k, key) : 0;
    if (found && (most ? order <= 0 : order >= 0)) continue;
    found = list->at[i];
    key = k;
  }
  return found ? found : undefined_value(w, "the least of nothing");
}

// Elements of one key each, in the order of the keys: (key, elements).
static struct value *grouped(struct work *w, struct value *v, struct value *attribute,
                             struct value *otherwise, bool exact)
{
  struct value *list = sequence_of(w, v), *pairs = list_value(w), *groups = list_value(w);
  if (!attribute) work_fails(w, "groupby wants an attribute");
  if (otherwise && otherwise->kind == NONE_VALUE) otherwise = NULL;
  for (size_t i = 0; i < list->count; i++) {
    struct value *pair = list_value(w), *key = attribute_or(w, list->at[i], attribute, otherwise);
    if (key->kind == UNDEFINED) work_fails(w, "groupby by what is not there");
    list_add(w, pair, exact ? key : without_case(w, key));
    list_add(w, pair, list->at[i]);
    list_add(w, pair, key);
    list_add(w, pairs, pair);
  }
  pairs = sorted(w, pairs, whole_value(w, 0), false, true);
  for (size_t i = 0; i < pairs->count; i++) {
    struct value *pair = pairs->at[i];
    if (!i || !are_equal(pair->at[0], pairs->at[i - 1]->at[0])) {
      struct value *group = list_value(w);
      group->is_tuple = group->is_group = true;
      list_add(w, group, pair->at[2]);
      list_add(w, group, list_value(w));
      list_add(w, groups, group);
    }
    list_add(w, groups->at[groups->count - 1]->at[1], pair->at[1]);
  }
  return groups;
}

// Lists of `size` elements, the last one filled up if there is a value to do so.
static struct value *batches(struct work *w, struct value *v, struct value *size,
                             struct value *fill)
{
  struct value *list = sequence_of(w, v), *made = list_value(w), *one = NULL;
  const long long most = whole_argument(w, size, 0);
  if (most < 1) work_fails(w, "batch wants a size above 0");
  for (size_t i = 0; i < list->count; i++) {
    if (i % (size_t)most == 0) list_add(w, made, one = list_value(w));
    list_add(w, one, list->at[i]);
  }
  while (one && fill && fill->kind != NONE_VALUE && one->count < (size_t)most)
    list_add(w, one, fill);
  return lazy(made);
}

// `count` lists; the first ones have one element more if need be.
static struct value *slices(struct work *w, struct value *v, struct value *count,
                            struct value *fill)
{
  struct value *list = sequence_of(w, v), *made = list_value(w);
  const long long n = whole_argument(w, count, 0);
  if (n < 1) work_fails(w, "slice wants a number above 0");
  const size_t each = list->count / (size_t)n, more = list->count % (size_t)n;
  size_t at = 0;
  for (size_t i = 0; i < (size_t)n; i++) {
    struct value *one = list_value(w);
    for (size_t k = 0; k < each + (i < more); k++) list_add(w, one, list->at[at++]);
    if (i >= more && fill && fill->kind != NONE_VALUE) list_add(w, one, fill);
    list_add(w, made, one);
  }
  return lazy(made);
}

// The first `n` characters.
static struct value *beginning(struct work *w, const struct value *v, long long n)
{
  return text_value(w, v->text, byte_of_place(v, n < 0 ? 0 : n));
}

static struct value *truncated(struct work *w, struct value *v, struct value **at, size_t n,
                               struct value *named)
{
  const long long length = whole_argument(w, argument(at, n, 0, named, "length"), 255),
                  leeway = whole_argument(w, argument(at, n, 3, named, "leeway"), 5);
  const struct value *kills = argument(at, n, 1, named, "killwords");
  struct value *end = argument(at, n, 2, named, "end");
  if (!end) end = text_value(w, "...", 3);
  const long long kept = length - (long long)characters_of(need_text(w, end, "truncate"));
  if (kept < 0 || leeway < 0) work_fails(w, "truncate's length is too small");
  if ((long long)characters_of(need_text(w, v, "truncate")) <= length + leeway) return v;
  struct value *head = beginning(w, v, kept);
  const char *blank = memrchr(head->text, ' ', head->count);
  if (blank && !(kills && is_true(kills))) head->count = (size_t)(blank - head->text);
  struct out o = {0};
  out_add(w, &o, head->text, head->count);
  out_add(w, &o, end->text, end->count);
  return text_value(w, o.at, o.count);
}

static long long words_of(const struct value *v)
{
  long long words = 0;
  bool was_in = false;
  for (size_t i = 0; i < v->count;) {
    uint32_t code;
    const int n = utf8_at(v->text + i, v->count - i, &code);
    const bool is_in = is_letter_or_digit(code) || code == '_';
    words += is_in && !was_in;
    was_in = is_in;
    i += (size_t)(n > 0 ? n : -n);
  }
  return words;
}

struct value *apply_filter(struct work *w, const char *name, struct value *v, struct value **at,
                           size_t n, struct value *named)
{
  work_step(w);
  check_filter(w, name, n, named);
  if (v->kind == TEXT && v->is_safe &&
      !is_among_words("capitalize count d default e escape first forceescape last length list "
                      "lower safe string title tojson trim upper wordcount",
                      name))
    work_fails(w, "the filter %s of a text that is safe is not known here", name);
  if (IS("default") || IS("d")) {
    struct value *otherwise = argument(at, n, 0, named, "default_value"),
                 *empty = argument(at, n, 1, named, "boolean");
    if (v->kind == UNDEFINED || (empty && is_true(empty) && !is_true(v)))
      return otherwise ? otherwise : text_value(w, "", 0);
    return v;
  }
  if (IS("tojson")) return as_json(w, v, at, n, named);
  if (IS("string")) return v->kind == TEXT ? v : str_of(w, v);
  if (IS("safe") || IS("e") || IS("escape") || IS("forceescape")) {
    if (v->kind == TEXT && v->is_safe && !IS("forceescape")) return v;
    struct value *text = str_of(w, v);
    if (!IS("safe")) return escaped(w, text);
    text->is_safe = true;
    return text;
  }
  if (IS("format")) {
    struct value *values = list_value(w);
    values->is_tuple = true;
    for (size_t i = 0; i < n; i++) list_add(w, values, at[i]);
    if (n && named->count) work_fails(w, "format has values by place or by name");
    return percent_format(w, need_text(w, v, "format"), named->count ? named : values);
  }
  if (IS("batch"))
    return batches(w, v, argument(at, n, 0, named, "linecount"),
                   argument(at, n, 1, named, "fill_with"));
  if (IS("slice"))
    return slices(w, v, argument(at, n, 0, named, "slices"),
                  argument(at, n, 1, named, "fill_with"));
  if (IS("groupby")) {
    const struct value *exact = argument(at, n, 2, named, "case_sensitive");
    return grouped(w, v, argument(at, n, 0, named, "attribute"),
                   argument(at, n, 1, named, "default"), exact && is_true(exact));
  }
  if (IS("truncate")) return truncated(w, v, at, n, named);
  if (IS("wordcount")) return whole_value(w, words_of(str_of(w, v)));
  if (IS("center")) {
    struct out o = {0};
    out_add(w, &o, "", 0);
    out_padded(w, &o, str_of(w, v), whole_argument(w, argument(at, n, 0, named, "width"), 80), " ",
               IN_MIDDLE);
    return text_value(w, o.at, o.count);
  }
  if (IS("list")) {
    struct value *copy = list_value(w), *list = sequence_of(w, v);
    for (size_t i = 0; i < list->count; i++) list_add(w, copy, list->at[i]);
    return copy;
  }
  if (IS("length") || IS("count")) {
    if (v->kind == TEXT) return whole_value(w, (long long)characters_of(v));
    if ((v->kind != LIST && !is_dict(v) && v->kind != UNDEFINED) || v->is_lazy)
      work_fails(w, "length of what has none");
    return whole_value(w, (long long)v->count);
  }
  if (IS("first") || IS("last")) {
    if (v->is_lazy && IS("last")) work_fails(w, "the last of an iterator");
    struct value *list = v->is_lazy ? v : sequence_of(w, v);
    if (!list->count) return undefined_value(w, "the first of nothing");
    if (!v->is_lazy) return list->at[IS("first") ? 0 : list->count - 1];
    list->count--; // an iterator goes on from there
    return *list->at++;
  }
  if (IS("join")) {
    struct value *by = argument(at, n, 0, named, "d"),
                 *attribute = argument(at, n, 1, named, "attribute"), *list = sequence_of(w, v);
    if (attribute) {
      struct value *some = list_value(w);
      for (size_t i = 0; i < list->count; i++)
        list_add(w, some, attribute_of(w, list->at[i], attribute));
      list = some;
    }
    return joined(w, list, by);
  }
  if (IS("map")) return mapped(w, v, at, n, named);
  if (IS("select") || IS("reject") || IS("selectattr") || IS("rejectattr"))
    return selected(w, name, v, at, n, named);
  if (IS("items"))
    return lazy(v->kind == UNDEFINED ? list_value(w)
                : is_dict(v)         ? pairs_of(w, v)
                                     : (work_fails(w, "items wants a map"), NULL));
  if (IS("dictsort")) {
    if (!is_dict(v)) work_fails(w, "dictsort wants a map");
    struct value *by = argument(at, n, 1, named, "by"),
                 *exact = argument(at, n, 0, named, "case_sensitive"),
                 *back = argument(at, n, 2, named, "reverse");
    const bool by_value = by && by->kind == TEXT && !strcmp(by->text, "value");
    if (by && !by_value && (by->kind != TEXT || strcmp(by->text, "key")))
      work_fails(w, "dictsort is by \"key\" or \"value\"");
    return sorted(w, pairs_of(w, v), whole_value(w, by_value), back && is_true(back),
                  exact && is_true(exact));
  }
  if (IS("sort")) {
    struct value *back = argument(at, n, 0, named, "reverse"),
                 *exact = argument(at, n, 1, named, "case_sensitive"),
                 *attribute = argument(at, n, 2, named, "attribute");
    return sorted(w, sequence_of(w, v), attribute, back && is_true(back), exact && is_true(exact));
  }
  if (IS("unique")) {
    struct value *list = sequence_of(w, v), *made = list_value(w), *seen = map_value(w),
                 *exact = argument(at, n, 0, named, "case_sensitive"),
                 *attribute = argument(at, n, 1, named, "attribute");
    for (size_t i = 0; i < list->count; i++) {
      struct value *key = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
      const size_t before = seen->count;
      map_set(w, seen, exact && is_true(exact) ? key : without_case(w, key), key);
      if (seen->count > before) list_add(w, made, list->at[i]);
    }
    return lazy(made);
  }
  if (IS("reverse")) {
    const bool was_lazy = v->is_lazy;
    struct value *list = sequence_of(w, v), *made = list_value(w);
    for (size_t i = list->count; i-- > 0;) list_add(w, made, list->at[i]);
    return v->kind == TEXT ? joined(w, made, NULL) : was_lazy ? made : lazy(made);
  }
  if (IS("min") || IS("max")) {
    const struct value *exact = argument(at, n, 0, named, "case_sensitive");
    return least(w, v, argument(at, n, 1, named, "attribute"), exact && is_true(exact), IS("max"));
  }
  if (IS("sum")) {
    struct value *list = sequence_of(w, v), *attribute = argument(at, n, 0, named, "attribute");
    const struct value *start = argument(at, n, 1, named, "start");
    if (start && !is_number(start)) work_fails(w, "sum from what is no number");
    double real = start ? number_of_value(start) : 0;
    long long whole = start && start->kind != REAL ? (long long)real : 0;
    bool is_real = start && start->kind == REAL;
    for (size_t i = 0; i < list->count; i++) {
      struct value *one = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
      if (!is_number(one)) work_fails(w, "sum of what is no number");
      is_real |= one->kind == REAL;
      real += number_of_value(one);
      const long long more = one->kind == REAL ? 0 : whole_argument(w, one, 0);
      if (__builtin_add_overflow(whole, more, &whole)) work_fails(w, "a number is too large");
    }
    return is_real ? real_value(w, real) : whole_value(w, whole);
  }
  if (IS("int"))
    return as_whole(w, v, argument(at, n, 0, named, "default"), argument(at, n, 1, named, "base"));
  if (IS("float")) return as_real(w, v, argument(at, n, 0, named, "default"));
  if (IS("abs"))
    return v->kind == REAL ? real_value(w, fabs(v->real))
                           : whole_value(w, llabs(whole_argument(w, v, 0)));
  if (IS("round")) return rounded(w, v, at, n, named);
  if (v->kind == UNDEFINED && (IS("trim") || IS("lower") || IS("upper")))
    return text_value(w, "", 0);
  if (IS("trim")) {
    struct value *text = stripped(w, str_of(w, v), argument(at, n, 0, named, "chars"), true, true);
    text->is_safe = v->is_safe;
    return text;
  }
  if (IS("upper") || IS("lower") || IS("title") || IS("capitalize"))
    return cased(w, v->kind == TEXT ? v : str_of(w, v),
                 IS("upper")   ? UPPER
                 : IS("lower") ? LOWER
                 : IS("title") ? TITLE_FILTER
                               : CAPITAL);
  if (IS("replace")) return text_replace(w, str_of(w, v), at, n, named);
  if (IS("indent")) {
    struct value *first = argument(at, n, 1, named, "first"),
                 *blank = argument(at, n, 2, named, "blank");
    return indented(w, v, argument(at, n, 0, named, "width"), first && is_true(first),
                    blank && is_true(blank));
  }
  if (IS("attr")) { // a map's keys are none
    struct value *given = argument(at, n, 0, named, "name");
    if (!given) work_fails(w, "attr wants a name");
    const char *attribute = need_text(w, given, "attr")->text;
    struct value *member = is_dict(v) ? changes_map(attribute) ? NULL : method_of(w, v, attribute)
                                      : member_of_value(w, v, attribute);
    return member ? member : undefined_value(w, attribute);
  }
  work_fails(w, "the filter '%.40s' is not known here", name);
}

// ---- functions ---------------------------------------------------------------------------------

METHOD(raise_exception)
{
  (void)self, (void)named;
  struct value *text = n ? str_of(w, at[0]) : text_value(w, "", 0);
  work_fails(w, "it refuses: %.*s", text->count > 400 ? 400 : (int)text->count, text->text);
}
static struct value *map_of(struct work *w, struct value **at, size_t n, struct value *named)
{
  struct value *made = map_value(w);
  if (n > 1) work_fails(w, "a map is made of one value and of named ones");
  struct value *pairs = !n ? NULL : is_dict(at[0]) ? pairs_of(w, at[0]) : sequence_of(w, at[0]);
  for (size_t i = 0; pairs && i < pairs->count; i++) {
    struct value *pair = sequence_of(w, pairs->at[i]);
    if (pair->count != 2) work_fails(w, "a map is made of pairs");
    map_set(w, made, pair->at[0], pair->at[1]);
  }
  for (size_t i = 0; i < named->count; i++) map_set(w, made, named->key[i], named->at[i]);
  return made;
}
METHOD(make_namespace)
{
  (void)self;
  struct value *space = map_of(w, at, n, named);
  space->is_namespace = true;
  return space;
}
METHOD(make_map)
{
  (void)self;
  return map_of(w, at, n, named);
}
METHOD(range)
{
  (void)self;
  char name[100], by[40] = "";
  if (!n || n > 3 || named->count) work_fails(w, "range takes one to three numbers");
  for (size_t i = 0; i < n; i++)
    if (at[i]->kind != WHOLE && at[i]->kind != FLAG) work_fails(w, "range wants whole numbers");
  const long long from = n > 1 ? whole_argument(w, at[0], 0) : 0,
                  to = whole_argument(w, at[n > 1], 0),
                  step = n > 2 ? whole_argument(w, at[2], 1) : 1;
  struct value *list = list_value(w);
  if (!step) work_fails(w, "range's step is 0");
  for (long long i = from; step > 0 ? i < to : i > to; i += step) {
    if (list->count >= 100000) work_fails(w, "a range has at most 100000 numbers");
    list_add(w, list, whole_value(w, i));
  }
  if (step != 1) snprintf(by, sizeof by, ", %lld", step);
  snprintf(name, sizeof name, "range(%lld, %lld%s)", from, to, by);
  list->view = "range";
  list->name = work_copy(w, name, strlen(name));
  return list;
}
METHOD(lipsum)
{
  (void)self, (void)at, (void)n, (void)named;
  work_fails(w, "lipsum() has another text each time");
}

static void set_member(struct work *w, struct value *of, const char *name, struct value *v)
{
  map_set(w, of, text_value(w, name, strlen(name)), v);
}
// A cycler: `whole` is the place of its list `at` that is next.
METHOD(next_of_cycler)
{
  (void)at;
  if (n || named->count) work_fails(w, "next() takes nothing");
  struct value *list = map_get(self, "items"), *now = list->at[self->whole];
  self->whole = (self->whole + 1) % (long long)list->count;
  set_member(w, self, "current", list->at[self->whole]);
  return now;
}
METHOD(reset_cycler)
{
  (void)at;
  if (n || named->count) work_fails(w, "reset() takes nothing");
  self->whole = 0;
  set_member(w, self, "current", map_get(self, "items")->at[0]);
  return value_of(w, NONE_VALUE);
}
METHOD(make_cycler)
{
  (void)self;
  struct value *cycler = map_value(w), *items = list_value(w);
  if (!n || named->count) work_fails(w, "cycler() wants values");
  for (size_t i = 0; i < n; i++) list_add(w, items, at[i]);
  items->is_tuple = true;
  cycler->is_object = true;
  set_member(w, cycler, "items", items);
  set_member(w, cycler, "current", at[0]);
  set_member(w, cycler, "next", function_value(w, "next", next_of_cycler, cycler));
  set_member(w, cycler, "reset", function_value(w, "reset", reset_cycler, cycler));
  return cycler;
}
// Nothing the first time, then the separator.
METHOD(join_next)
{
  (void)at;
  if (n || named->count) work_fails(w, "a joiner takes nothing");
  const bool was_called = self->flag;
  self->flag = true;
  return was_called ? self->at[0] : text_value(w, "", 0);
}
METHOD(make_joiner)
{
  (void)self;
  struct value *state = list_value(w), *by = argument(at, n, 0, named, "sep");
  if (n + named->count > (by != NULL)) work_fails(w, "joiner() takes one text");
  list_add(w, state, by ? by : text_value(w, ", ", 2));
  return function_value(w, "joiner", join_next, state);
}
METHOD(strftime_now)
{
  (void)self, (void)named;
  char text[200] = "";
  const time_t now = time(NULL);
  struct tm day;
  localtime_r(&now, &day);
  if (w->date) return text_value(w, w->date, strlen(w->date));
  if (n && at[0]->count)
    strftime(text, sizeof text, need_text(w, at[0], "strftime_now")->text, &day);
  return text_value(w, work_copy(w, text, strlen(text)), strlen(text));
}

struct value *global_named(struct work *w, const char *name)
{
  static const struct {
    const char *name;
    call_function *call;
  } functions[] = {{"raise_exception", raise_exception},
                   {"namespace", make_namespace},
                   {"dict", make_map},
                   {"lipsum", lipsum},
                   {"cycler", make_cycler},
                   {"joiner", make_joiner},
                   {"range", range},
                   {"strftime_now", strftime_now}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name)) return function_value(w, name, functions[i].call, NULL);
  return NULL;
}
