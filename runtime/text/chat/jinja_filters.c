// SPDX-License-Identifier: MIT
// Jinja: filters, tests, methods and functions, as Jinja 3 and Python have them.
#include <math.h>
#include <stdlib.h>
#include <string.h>
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

static size_t characters(const struct value *v)
{
  size_t n = 0;
  for (size_t i = 0; i < v->count; i++) n += ((unsigned char)v->text[i] & 0xc0) != 0x80;
  return n;
}

enum letter_case { LOWER, UPPER, CAPITAL, TITLE };

static struct value *cased(struct work *w, struct value *v, enum letter_case as)
{
  struct bytes b = {0};
  bool in_word = false;
  add_bytes(&b, "", 0);
  for (size_t i = 0; i < v->count;) {
    uint32_t code;
    const int n = utf8_at(v->text + i, v->count - i, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    const bool is_letter = is_of_word(code) && !is_numeric(code) && code != '_';
    const bool up =
        as == UPPER || (as == TITLE && is_letter && !in_word) || (as == CAPITAL && i == 0);
    add_cased(&b, v->text + i, size, up);
    in_word = is_letter;
    i += size;
  }
  const bool lacks = b.failed;
  struct value *made = lacks ? NULL : text_value(w, work_copy(w, b.at, b.count), b.count);
  free_bytes(&b);
  if (lacks) work_fails(w, "out of memory");
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
    out_add(w, &o, v->text + i, 1);
    i++;
  }
  return text_value(w, o.at, o.count);
}

static struct value *split(struct work *w, struct value *v, struct value *by, long long most,
                           bool from_right)
{
  struct value *list = list_value(w);
  if (!by || by->kind != TEXT) { // at white space
    size_t i = 0;
    while (i < v->count) {
      while (i < v->count && is_in_set(NULL, 0, v->text + i, 1)) i++;
      size_t end = i;
      if (most == 0 && i < v->count) {
        list_add(w, list, stripped(w, text_value(w, v->text + i, v->count - i), NULL, false, true));
        break;
      }
      while (end < v->count && !is_in_set(NULL, 0, v->text + end, 1)) end++;
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

static struct value *split_lines(struct work *w, struct value *v)
{
  struct value *list = list_value(w);
  for (size_t i = 0; i < v->count;) {
    size_t end = i;
    while (end < v->count && v->text[end] != '\n' && v->text[end] != '\r') end++;
    list_add(w, list, text_value(w, v->text + i, end - i));
    i = end + (end < v->count) +
        (end + 1 < v->count && v->text[end] == '\r' && v->text[end + 1] == '\n');
  }
  return list;
}

static bool begins_with(const struct value *v, const struct value *with, bool at_end)
{
  if (with->kind == LIST) {
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
      found = (long long)characters(&(struct value){.text = v->text, .count = i});
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

static bool is_letter_code(uint32_t code)
{
  return is_of_word(code) && !is_numeric(code) && code != '_';
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
  (void)at, (void)n, (void)named;
  return split_lines(w, self);
}
METHOD(text_isdigit)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_numeric));
}
METHOD(text_isalpha)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_letter_code));
}
METHOD(text_isspace)
{
  (void)at, (void)n, (void)named;
  return flag_value(w, all_are(self, is_space));
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
  if (!n) work_fails(w, "startswith() wants an argument");
  return flag_value(w, begins_with(self, at[0], false));
}
METHOD(text_endswith)
{
  (void)named;
  if (!n) work_fails(w, "endswith() wants an argument");
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
METHOD(text_join)
{
  (void)named;
  if (!n) work_fails(w, "join() wants a list");
  return joined(w, sequence_of(w, at[0]), self);
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
                                  : (long long)characters(self) + 1);
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
// Nothing changes a map, so that it is its own copy.
METHOD(map_copy)
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
} methods[] = {{TEXT, "strip", text_strip},
               {TEXT, "lstrip", text_lstrip},
               {TEXT, "rstrip", text_rstrip},
               {TEXT, "lower", text_lower},
               {TEXT, "upper", text_upper},
               {TEXT, "title", text_title},
               {TEXT, "capitalize", text_capitalize},
               {TEXT, "split", text_split},
               {TEXT, "rsplit", text_rsplit},
               {TEXT, "splitlines", text_splitlines},
               {TEXT, "startswith", text_startswith},
               {TEXT, "endswith", text_endswith},
               {TEXT, "find", text_find},
               {TEXT, "rfind", text_rfind},
               {TEXT, "replace", text_replace},
               {TEXT, "join", text_join},
               {TEXT, "count", text_count},
               {TEXT, "removeprefix", text_removeprefix},
               {TEXT, "removesuffix", text_removesuffix},
               {TEXT, "isdigit", text_isdigit},
               {TEXT, "isalpha", text_isalpha},
               {TEXT, "isspace", text_isspace},
               {MAP, "items", map_items},
               {MAP, "keys", map_keys},
               {MAP, "values", map_values},
               {MAP, "get", map_get_method},
               {MAP, "copy", map_copy},
               {LIST, "index", list_index},
               {LIST, "count", list_count}};

// transformers' templates cannot change what they are given: a dict's methods that would are
// undefined, also where a key has the name.
static bool changes_map(const char *name)
{
  static const char *const names[] = {"clear", "pop", "popitem", "setdefault", "update"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

struct value *member_of_value(struct work *w, struct value *v, const char *name)
{
  struct value *own = v->kind == MAP && v->is_namespace ? map_get(v, name) : NULL;
  if (!own && v->kind == MAP && !v->is_namespace && changes_map(name))
    return undefined_value(w, name);
  for (size_t i = 0; !own && i < sizeof methods / sizeof *methods; i++)
    if (methods[i].of == v->kind && !strcmp(methods[i].name, name)) {
      struct value *f = value_of(w, FUNCTION);
      f->name = name;
      f->call = methods[i].call;
      f->self = v;
      return f;
    }
  return own ? own : v->kind == MAP ? map_get(v, name) : NULL;
}

struct value *item_of(struct work *w, struct value *v, struct value *key)
{
  if (v->kind == MAP) {
    for (size_t i = 0; i < v->count; i++)
      if (are_equal(v->key[i], key)) return v->at[i];
    struct value *member = key->kind == TEXT ? member_of_value(w, v, key->text) : NULL;
    return member ? member : undefined_value(w, key->kind == TEXT ? key->text : "an item");
  }
  if ((v->kind == LIST || v->kind == TEXT) && (key->kind == WHOLE || key->kind == FLAG)) {
    struct value *of = v->kind == TEXT ? sequence_of(w, v) : v;
    long long i = key->kind == FLAG ? key->flag : key->whole;
    if (i < 0) i += (long long)of->count;
    return i >= 0 && i < (long long)of->count ? of->at[i] : undefined_value(w, "an item of a list");
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
  if (v->kind == LIST && !v->view) return v;
  if (v->kind == LIST) {
    for (size_t i = 0; i < v->count; i++) list_add(w, list, v->at[i]);
  } else if (v->kind == MAP) {
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
  // As Python rounds: the number itself, not the product.
  char text[512];
  if (digits < 0 || digits > 100 || fabs(x) > 1e200)
    return real_value(w, nearbyint(x * scale) / scale);
  snprintf(text, sizeof text, "%.*f", (int)digits, x);
  return real_value(w, strtod(text, NULL));
}

// ---- tests -------------------------------------------------------------------------------------

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
  if (IS("mapping")) return v->kind == MAP;
  if (IS("iterable") || IS("sequence"))
    return v->kind == LIST || v->kind == MAP || v->kind == TEXT ||
           (v->kind == UNDEFINED && IS("iterable"));
  if (IS("callable")) return v->kind == FUNCTION;
  if (IS("lower")) return v->kind == TEXT && are_equal(v, cased(w, v, LOWER));
  if (IS("upper")) return v->kind == TEXT && are_equal(v, cased(w, v, UPPER));
  if (IS("odd") || IS("even")) return (whole_argument(w, v, 0) % 2 != 0) == IS("odd");
  if (n) {
    if (IS("divisibleby"))
      return at[0]->kind == WHOLE && at[0]->whole && whole_argument(w, v, 0) % at[0]->whole == 0;
    if (IS("eq") || IS("equalto") || IS("==")) return are_equal(v, at[0]);
    if (IS("sameas")) return v->kind == at[0]->kind && are_equal(v, at[0]);
    if (IS("ne") || IS("!=")) return !are_equal(v, at[0]);
    if (IS("lt") || IS("lessthan")) return compare_values(w, v, at[0]) < 0;
    if (IS("le")) return compare_values(w, v, at[0]) <= 0;
    if (IS("gt") || IS("greaterthan")) return compare_values(w, v, at[0]) > 0;
    if (IS("ge")) return compare_values(w, v, at[0]) >= 0;
    if (IS("in")) {
      struct value *in = sequence_of(w, at[0]);
      if (at[0]->kind == TEXT && v->kind == TEXT) return found_at(at[0], v, false) >= 0;
      for (size_t i = 0; i < in->count; i++)
        if (are_equal(in->at[i], v)) return true;
      return false;
    }
  }
  work_fails(w, "the test '%.40s' is not known here", name);
}

// ---- filters -----------------------------------------------------------------------------------

// "a.b": of each, a member of a member.
static struct value *attribute_of(struct work *w, struct value *v, struct value *name)
{
  if (name->kind == WHOLE) return item_of(w, v, name);
  struct value *path =
      split(w, need_text(w, name, "an attribute"), text_value(w, ".", 1), -1, false);
  for (size_t i = 0; i < path->count; i++) {
    if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
    v = item_of(
        w, v,
        text_value(w, work_copy(w, path->at[i]->text, path->at[i]->count), path->at[i]->count));
  }
  return v;
}

static struct value *selected(struct work *w, const char *name, struct value *v, struct value **at,
                              size_t n)
{
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
  return kept;
}

static struct value *sorted(struct work *w, struct value *list, struct value *attribute,
                            bool reversed, bool exact)
{
  struct value *all = list_value(w);
  struct value **key = work_alloc(w, (list->count + 1) * sizeof *key);
  for (size_t i = 0; i < list->count; i++) {
    struct value *k = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
    if (!exact && k->kind == TEXT) k = cased(w, k, LOWER);
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
  struct value *lines = split(w, need_text(w, v, "indent"), text_value(w, "\n", 1), -1, false);
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

static struct value *as_whole(struct work *w, struct value *v, struct value *otherwise)
{
  char *end = NULL;
  if (v->kind == REAL) return whole_value(w, (long long)v->real);
  if (is_number(v)) return whole_value(w, whole_argument(w, v, 0));
  if (v->kind == TEXT) {
    struct value *digits = stripped(w, v, NULL, true, true);
    const char *text = work_copy(w, digits->text, digits->count);
    const long long whole = strtoll(text, &end, 10);
    if (digits->count && !*end) return whole_value(w, whole);
    const double real = strtod(text, &end);
    if (digits->count && !*end && fabs(real) < 9e18) return whole_value(w, (long long)real);
  }
  return otherwise ? otherwise : whole_value(w, 0);
}

static struct value *as_real(struct work *w, struct value *v, struct value *otherwise)
{
  char *end = NULL;
  if (is_number(v)) return real_value(w, number_of_value(v));
  if (v->kind == TEXT && v->count) {
    const double real = strtod(work_copy(w, v->text, v->count), &end);
    if (!*end) return real_value(w, real);
  }
  return otherwise ? otherwise : real_value(w, 0);
}

static struct value *as_json(struct work *w, struct value *v, struct value **at, size_t n,
                             struct value *named)
{
  struct out o = {0};
  struct value *indent = argument(at, n, 1, named, "indent"),
               *separators = argument(at, n, 2, named, "separators"),
               *order = argument(at, n, 3, named, "sort_keys");
  struct value *ascii = argument(at, n, 0, named, "ensure_ascii");
  if (!n && map_get(named, "indent")) indent = map_get(named, "indent");
  if (n == 1 && at[0]->kind == WHOLE) indent = at[0], ascii = NULL; // Jinja's own: tojson(2)
  if (ascii && is_true(ascii)) work_fails(w, "tojson with ensure_ascii is not known here");
  const int wide = indent && indent->kind == WHOLE ? (int)indent->whole : -1;
  if (wide > 64) work_fails(w, "tojson's indent is too large");
  const char *comma = wide >= 0 ? "," : ", ", *colon = ": ";
  if (separators && separators->kind == LIST && separators->count == 2) {
    comma = need_text(w, separators->at[0], "tojson")->text;
    colon = need_text(w, separators->at[1], "tojson")->text;
  }
  if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
  out_add(w, &o, "", 0);
  out_json(w, &o, v, wide, 0, comma, colon, order && is_true(order));
  return text_value(w, o.at, o.count);
}

static struct value *mapped(struct work *w, struct value *v, struct value **at, size_t n,
                            struct value *named)
{
  struct value *list = sequence_of(w, v), *made = list_value(w),
               *attribute = map_get(named, "attribute"), *otherwise = map_get(named, "default");
  if (!attribute && !n) work_fails(w, "map wants a filter or an attribute");
  for (size_t i = 0; i < list->count; i++) {
    struct value *one = attribute ? attribute_of(w, list->at[i], attribute)
                                  : apply_filter(w, need_text(w, at[0], "map")->text, list->at[i],
                                                 at + 1, n - 1, named);
    list_add(w, made, one->kind == UNDEFINED && otherwise ? otherwise : one);
  }
  return made;
}

static struct value *least(struct work *w, struct value *v, struct value *attribute, bool most)
{
  struct value *list = sorted(w, sequence_of(w, v), attribute, false, false);
  if (!list->count) return undefined_value(w, "the least of nothing");
  return list->at[most ? list->count - 1 : 0];
}

struct value *apply_filter(struct work *w, const char *name, struct value *v, struct value **at,
                           size_t n, struct value *named)
{
  work_step(w);
  if (IS("default") || IS("d")) {
    struct value *otherwise = argument(at, n, 0, named, "default_value"),
                 *empty = argument(at, n, 1, named, "boolean");
    if (v->kind == UNDEFINED || (empty && is_true(empty) && !is_true(v)))
      return otherwise ? otherwise : text_value(w, "", 0);
    return v;
  }
  if (IS("tojson")) return as_json(w, v, at, n, named);
  if (IS("string")) return str_of(w, v);
  if (IS("safe")) return v;
  if (IS("list")) {
    struct value *copy = list_value(w), *list = sequence_of(w, v);
    for (size_t i = 0; i < list->count; i++) list_add(w, copy, list->at[i]);
    return copy;
  }
  if (IS("length") || IS("count")) {
    if (v->kind == TEXT) return whole_value(w, (long long)characters(v));
    if (v->kind != LIST && v->kind != MAP && v->kind != UNDEFINED)
      work_fails(w, "length of what has none");
    return whole_value(w, (long long)v->count);
  }
  if (IS("first") || IS("last")) {
    struct value *list = sequence_of(w, v);
    return list->count ? list->at[IS("first") ? 0 : list->count - 1]
                       : undefined_value(w, "the first of nothing");
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
    return selected(w, name, v, at, n);
  if (IS("items"))
    return v->kind == UNDEFINED ? list_value(w)
           : v->kind == MAP     ? pairs_of(w, v)
                                : (work_fails(w, "items wants a map"), NULL);
  if (IS("dictsort")) {
    if (v->kind != MAP) work_fails(w, "dictsort wants a map");
    struct value *by = argument(at, n, 1, named, "by"),
                 *exact = argument(at, n, 0, named, "case_sensitive"),
                 *back = argument(at, n, 2, named, "reverse");
    const bool by_value = by && by->kind == TEXT && !strcmp(by->text, "value");
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
                 *attribute = argument(at, n, 1, named, "attribute");
    for (size_t i = 0; i < list->count; i++) {
      struct value *key = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
      const size_t before = seen->count;
      map_set(w, seen, key->kind == TEXT ? cased(w, key, LOWER) : key, key);
      if (seen->count > before) list_add(w, made, list->at[i]);
    }
    return made;
  }
  if (IS("reverse")) {
    struct value *list = sequence_of(w, v), *made = list_value(w);
    for (size_t i = list->count; i-- > 0;) list_add(w, made, list->at[i]);
    return v->kind == TEXT ? joined(w, made, NULL) : made;
  }
  if (IS("min") || IS("max")) return least(w, v, argument(at, n, 1, named, "attribute"), IS("max"));
  if (IS("sum")) {
    struct value *list = sequence_of(w, v), *attribute = argument(at, n, 0, named, "attribute");
    double real = 0;
    long long whole = 0;
    bool is_real = false;
    for (size_t i = 0; i < list->count; i++) {
      struct value *one = attribute ? attribute_of(w, list->at[i], attribute) : list->at[i];
      if (!is_number(one)) work_fails(w, "sum of what is no number");
      is_real |= one->kind == REAL;
      real += number_of_value(one);
      whole += one->kind == REAL ? 0 : whole_argument(w, one, 0);
    }
    return is_real ? real_value(w, real) : whole_value(w, whole);
  }
  if (IS("int")) return as_whole(w, v, argument(at, n, 0, named, "default"));
  if (IS("float")) return as_real(w, v, argument(at, n, 0, named, "default"));
  if (IS("abs"))
    return v->kind == REAL ? real_value(w, fabs(v->real))
                           : whole_value(w, llabs(whole_argument(w, v, 0)));
  if (IS("round")) return rounded(w, v, at, n, named);
  if (v->kind == UNDEFINED && (IS("trim") || IS("lower") || IS("upper")))
    return text_value(w, "", 0);
  if (IS("trim")) return stripped(w, str_of(w, v), argument(at, n, 0, named, "chars"), true, true);
  if (IS("upper") || IS("lower") || IS("title") || IS("capitalize"))
    return cased(w, str_of(w, v),
                 IS("upper")   ? UPPER
                 : IS("lower") ? LOWER
                 : IS("title") ? TITLE
                               : CAPITAL);
  if (IS("replace")) return text_replace(w, str_of(w, v), at, n, named);
  if (IS("indent")) {
    struct value *first = argument(at, n, 1, named, "first"),
                 *blank = argument(at, n, 2, named, "blank");
    return indented(w, v, argument(at, n, 0, named, "width"), first && is_true(first),
                    blank && is_true(blank));
  }
  // A map's keys are no attributes.
  if (IS("attr") && v->kind == MAP && !v->is_namespace) return undefined_value(w, "attr");
  if (IS("attr")) return n ? attribute_of(w, v, at[0]) : v;
  work_fails(w, "the filter '%.40s' is not known here", name);
}

// ---- functions ---------------------------------------------------------------------------------

METHOD(raise_exception)
{
  (void)self, (void)named;
  struct value *text = n ? str_of(w, at[0]) : text_value(w, "", 0);
  work_fails(w, "it refuses: %.*s", text->count > 400 ? 400 : (int)text->count, text->text);
}
METHOD(make_namespace)
{
  (void)self;
  struct value *space = map_value(w);
  for (size_t i = 0; n && i < at[0]->count && at[0]->kind == MAP; i++)
    map_set(w, space, at[0]->key[i], at[0]->at[i]);
  for (size_t i = 0; i < named->count; i++) map_set(w, space, named->key[i], named->at[i]);
  space->is_namespace = true;
  return space;
}
METHOD(make_map)
{
  struct value *made = make_namespace(w, self, at, n, named);
  made->is_namespace = false;
  return made;
}
METHOD(range)
{
  (void)self, (void)named;
  long long from = n > 1 ? whole_argument(w, at[0], 0) : 0,
            to = n ? whole_argument(w, at[n > 1], 0) : 0,
            step = n > 2 ? whole_argument(w, at[2], 1) : 1;
  struct value *list = list_value(w);
  if (!step) work_fails(w, "range's step is 0");
  for (long long i = from; step > 0 ? i < to : i > to; i += step)
    list_add(w, list, whole_value(w, i));
  return list;
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
                   {"range", range},
                   {"strftime_now", strftime_now}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name)) {
      struct value *f = value_of(w, FUNCTION);
      f->name = name;
      f->call = functions[i].call;
      return f;
    }
  return NULL;
}
