// SPDX-License-Identifier: MIT
// Jinja: memory and values, which behave as Python's.
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "text/chat/jinja_tree.h"

enum { MOST_BYTES = 64 << 20, MOST_STEPS = 5000000, CHUNK = 64 << 10 };

void *work_alloc(struct work *w, size_t size)
{
  size = (size + 15) / 16 * 16;
  if (!w->chunk || w->chunk->size - w->chunk->used < size) {
    const size_t room = size > CHUNK ? size : CHUNK;
    struct chunk *c = w->bytes + room > MOST_BYTES ? NULL : calloc(1, sizeof *c + 16 + room);
    if (!c) work_fails(w, "it takes more than %d MiB", MOST_BYTES >> 20);
    c->before = w->chunk;
    c->size = room;
    w->chunk = c;
    w->bytes += room;
  }
  char *data = (char *)w->chunk + (sizeof *w->chunk + 15) / 16 * 16;
  void *at = data + w->chunk->used;
  w->chunk->used += size;
  return at;
}

void work_free(struct work *w)
{
  for (struct chunk *c = w->chunk, *before; c; c = before) {
    before = c->before;
    free(c);
  }
  w->chunk = NULL;
}

char *work_copy(struct work *w, const char *text, size_t count)
{
  char *copy = work_alloc(w, count + 1);
  if (count) memcpy(copy, text, count);
  copy[count] = 0;
  return copy;
}

void work_fails(struct work *w, const char *format, ...)
{
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  failed(w->why, "the chat template, line %d: %s", w->line, text);
  longjmp(w->out, 1);
}

void work_step(struct work *w)
{
  if (++w->steps > MOST_STEPS) work_fails(w, "it takes too long");
}

// ---- making ------------------------------------------------------------------------------------

struct value *value_of(struct work *w, enum value_kind kind)
{
  struct value *v = work_alloc(w, sizeof *v);
  v->kind = kind;
  return v;
}

struct value *undefined_value(struct work *w, const char *name)
{
  struct value *v = value_of(w, UNDEFINED);
  v->name = name;
  return v;
}

struct value *flag_value(struct work *w, bool flag)
{
  struct value *v = value_of(w, FLAG);
  v->flag = flag;
  return v;
}

struct value *whole_value(struct work *w, long long n)
{
  struct value *v = value_of(w, WHOLE);
  v->whole = n;
  return v;
}

struct value *real_value(struct work *w, double x)
{
  struct value *v = value_of(w, REAL);
  v->real = x;
  return v;
}

struct value *text_value(struct work *w, const char *text, size_t count)
{
  struct value *v = value_of(w, TEXT);
  v->text = text ? text : "";
  v->count = count;
  return v;
}

struct value *list_value(struct work *w)
{
  return value_of(w, LIST);
}

struct value *function_value(struct work *w, const char *name, call_function *call,
                             struct value *self)
{
  struct value *f = value_of(w, FUNCTION);
  f->name = name;
  f->call = call;
  f->self = self;
  return f;
}

static struct value **widened(struct work *w, struct value **list, size_t n, size_t room)
{
  struct value **wide = work_alloc(w, room * sizeof *wide);
  if (n) memcpy(wide, list, n * sizeof *list);
  return wide;
}

void list_add(struct work *w, struct value *list, struct value *v)
{
  work_step(w);
  if (list->count == list->room) {
    list->room = 2 * list->room + 4;
    list->at = widened(w, list->at, list->count, list->room);
  }
  list->at[list->count++] = v;
}

struct value *map_value(struct work *w)
{
  return value_of(w, MAP);
}

void map_set(struct work *w, struct value *map, struct value *key, struct value *v)
{
  work_step(w);
  for (size_t i = 0; i < map->count; i++)
    if (are_equal(map->key[i], key)) {
      map->at[i] = v;
      return;
    }
  if (map->count == map->room) {
    map->room = 2 * map->room + 4;
    map->at = widened(w, map->at, map->count, map->room);
    map->key = widened(w, map->key, map->count, map->room);
  }
  map->key[map->count] = key;
  map->at[map->count++] = v;
}

struct value *map_get(const struct value *map, const char *key)
{
  const size_t n = strlen(key);
  for (size_t i = 0; i < map->count; i++)
    if (map->key[i]->kind == TEXT && map->key[i]->count == n && !memcmp(map->key[i]->text, key, n))
      return map->at[i];
  return NULL;
}

struct value *value_of_json(struct work *w, const json_t *json)
{
  struct value *v;
  const char *key;
  json_t *member;
  size_t i;
  if (++w->depth > 200) work_fails(w, "what it is given is nested too deep");
  switch (json ? json_typeof(json) : JSON_NULL) {
  case JSON_OBJECT:
    v = map_value(w);
    json_object_foreach((json_t *)json, key, member) map_set(
        w, v, text_value(w, work_copy(w, key, strlen(key)), strlen(key)), value_of_json(w, member));
    break;
  case JSON_ARRAY:
    v = list_value(w);
    json_array_foreach((json_t *)json, i, member) list_add(w, v, value_of_json(w, member));
    break;
  case JSON_STRING:
    v = text_value(w, work_copy(w, json_string_value(json), json_string_length(json)),
                   json_string_length(json));
    break;
  case JSON_INTEGER:
    v = whole_value(w, json_integer_value(json));
    break;
  case JSON_REAL:
    v = real_value(w, json_real_value(json));
    break;
  case JSON_TRUE:
  case JSON_FALSE:
    v = flag_value(w, json_is_true(json));
    break;
  default:
    v = value_of(w, NONE_VALUE);
  }
  w->depth--;
  return v;
}

// ---- asking ------------------------------------------------------------------------------------

bool is_true(const struct value *v)
{
  switch (v->kind) {
  case UNDEFINED:
  case NONE_VALUE:
    return false;
  case FLAG:
    return v->flag;
  case WHOLE:
    return v->whole != 0;
  case REAL:
    return v->real != 0;
  case FUNCTION:
    return true;
  default:
    return v->is_namespace || v->is_object || v->is_lazy || v->count > 0;
  }
}

bool is_dict(const struct value *v)
{
  return v->kind == MAP && !v->is_namespace && !v->is_object;
}

bool is_number(const struct value *v)
{
  return v->kind == WHOLE || v->kind == REAL || v->kind == FLAG;
}

double number_of_value(const struct value *v)
{
  return v->kind == REAL ? v->real : v->kind == FLAG ? v->flag : (double)v->whole;
}

bool are_equal(const struct value *a, const struct value *b)
{
  if (is_number(a) && is_number(b)) {
    if (a->kind == WHOLE && b->kind == WHOLE) return a->whole == b->whole;
    return number_of_value(a) == number_of_value(b);
  }
  if (a->kind != b->kind) return false;
  if (a == b) return true;
  if (a->is_lazy || b->is_lazy || is_dict(a) != is_dict(b)) return false;
  if (a->kind == MAP && !is_dict(a)) return false;
  if ((a->view || b->view) && (!a->view || !b->view || strcmp(a->view, b->view))) return false;
  switch (a->kind) {
  case TEXT:
    return a->count == b->count && !memcmp(a->text, b->text, a->count);
  case LIST:
    if (a->count != b->count || a->is_tuple != b->is_tuple) return false;
    for (size_t i = 0; i < a->count; i++)
      if (!are_equal(a->at[i], b->at[i])) return false;
    return true;
  case MAP:
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++) {
      bool found = false;
      for (size_t k = 0; k < b->count && !found; k++)
        found = are_equal(a->key[i], b->key[k]) && are_equal(a->at[i], b->at[k]);
      if (!found) return false;
    }
    return true;
  case FUNCTION:
    return a == b;
  default:
    return true;
  }
}

static const char *kind_name(const struct value *v)
{
  static const char *const names[] = {"undefined", "none",   "a truth", "a number",  "a number",
                                      "a text",    "a list", "a map",   "a function"};
  return names[v->kind];
}

int compare_values(struct work *w, const struct value *a, const struct value *b)
{
  if (is_number(a) && is_number(b)) {
    const double x = number_of_value(a), y = number_of_value(b);
    if (a->kind == WHOLE && b->kind == WHOLE) return (a->whole > b->whole) - (a->whole < b->whole);
    return (x > y) - (x < y);
  }
  if (a->kind == TEXT && b->kind == TEXT) {
    const size_t n = a->count < b->count ? a->count : b->count;
    const int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : (a->count > b->count) - (a->count < b->count);
  }
  if (a->kind == LIST && b->kind == LIST) {
    for (size_t i = 0; i < a->count && i < b->count; i++)
      if (!are_equal(a->at[i], b->at[i])) return compare_values(w, a->at[i], b->at[i]);
    return (a->count > b->count) - (a->count < b->count);
  }
  work_fails(w, "%s and %s have no order", kind_name(a), kind_name(b));
}

// ---- as text -----------------------------------------------------------------------------------

void out_add(struct work *w, struct out *o, const char *text, size_t count)
{
  if (o->count + count + 1 > o->room) {
    o->room = 2 * o->room + count + 64;
    char *at = work_alloc(w, o->room);
    if (o->count) memcpy(at, o->at, o->count);
    o->at = at;
  }
  if (count) memcpy(o->at + o->count, text, count);
  o->count += count;
  o->at[o->count] = 0;
}

void out_text(struct work *w, struct out *o, const char *text)
{
  out_add(w, o, text, strlen(text));
}

// The shortest digits that read back as the number, as Python writes them.
static void out_real(struct work *w, struct out *o, double x, bool is_json)
{
  char digits[64];
  if (isnan(x) || isinf(x)) {
    out_text(w, o,
             isnan(x)  ? (is_json ? "NaN" : "nan")
             : x > 0   ? (is_json ? "Infinity" : "inf")
             : is_json ? "-Infinity"
                       : "-inf");
    return;
  }
  for (int precision = 1; precision <= 17; precision++) {
    snprintf(digits, sizeof digits, "%.*e", precision - 1, x);
    if (strtod(digits, NULL) == x) break;
  }
  const int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent < -4 || exponent >= 16) {
    char *e = strchr(digits, 'e');
    out_add(w, o, digits, (size_t)(e - digits));
    snprintf(digits, sizeof digits, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    out_text(w, o, digits);
    return;
  }
  const char *point = strchr(digits, '.');
  const int given = point ? (int)strcspn(point + 1, "e") : 0;
  snprintf(digits, sizeof digits, "%.*f", given - exponent > 0 ? given - exponent : 1, x);
  out_text(w, o, digits);
}

static void out_whole(struct work *w, struct out *o, long long n)
{
  char digits[32];
  snprintf(digits, sizeof digits, "%lld", n);
  out_text(w, o, digits);
}

void out_repr(struct work *w, struct out *o, const struct value *v)
{
  work_step(w);
  if (++w->depth > 200) work_fails(w, "it is nested too deep");
  if (v->kind == TEXT) {
    if (v->is_safe) out_text(w, o, "Markup(");
    const bool has_one = memchr(v->text, '\'', v->count) != NULL,
               has_two = memchr(v->text, '"', v->count) != NULL;
    const char quote = has_one && !has_two ? '"' : '\'';
    out_add(w, o, &quote, 1);
    for (size_t i = 0; i < v->count; i++) {
      const char c = v->text[i];
      uint32_t letter = (unsigned char)c;
      const int size = utf8_at(v->text + i, v->count - i, &letter);
      const char *as = c == '\n'   ? "\\n"
                       : c == '\t' ? "\\t"
                       : c == '\r' ? "\\r"
                       : c == '\\' ? "\\\\"
                                   : NULL;
      char code[16];
      if (!as && c == quote) as = quote == '\'' ? "\\'" : "\\\"";
      if (!as && !is_printable(letter)) {
        snprintf(code, sizeof code,
                 letter < 0x100     ? "\\x%02x"
                 : letter < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                 (unsigned)letter);
        as = code;
      }
      const size_t bytes = size > 0 ? (size_t)size : 1;
      out_add(w, o, as ? as : v->text + i, as ? strlen(as) : bytes);
      i += bytes - 1;
    }
    out_add(w, o, &quote, 1);
    if (v->is_safe) out_text(w, o, ")");
  } else if (v->kind == LIST || v->kind == MAP) {
    if (v->is_lazy || v->is_object)
      work_fails(w, "%s is printed", v->is_object ? "a loop's own value" : "an iterator");
    if (v->view && !strcmp(v->view, "range")) {
      if (!v->name) work_fails(w, "a part of a range is printed");
      out_text(w, o, v->name);
      w->depth--;
      return;
    }
    if (v->is_namespace) out_text(w, o, "<Namespace ");
    if (v->view) out_text(w, o, v->view), out_text(w, o, "(");
    out_text(w, o, v->kind == MAP ? "{" : v->is_tuple ? "(" : "[");
    for (size_t i = 0; i < v->count; i++) {
      if (i) out_text(w, o, ", ");
      if (v->kind == MAP) {
        out_repr(w, o, v->key[i]);
        out_text(w, o, ": ");
      }
      out_repr(w, o, v->at[i]);
    }
    if (v->is_tuple && v->count == 1) out_text(w, o, ",");
    out_text(w, o, v->kind == MAP ? "}" : v->is_tuple ? ")" : "]");
    if (v->view) out_text(w, o, ")");
    if (v->is_namespace) out_text(w, o, ">");
  } else if (v->kind == UNDEFINED) {
    out_text(w, o, "Undefined");
  } else {
    out_str(w, o, v);
  }
  w->depth--;
}

void out_str(struct work *w, struct out *o, const struct value *v)
{
  switch (v->kind) {
  case UNDEFINED:
    break;
  case NONE_VALUE:
    out_text(w, o, "None");
    break;
  case FLAG:
    out_text(w, o, v->flag ? "True" : "False");
    break;
  case WHOLE:
    out_whole(w, o, v->whole);
    break;
  case REAL:
    out_real(w, o, v->real, false);
    break;
  case TEXT:
    out_add(w, o, v->text, v->count);
    break;
  case FUNCTION:
    work_fails(w, "%s is a function, and is not called", v->name ? v->name : "it");
  default:
    out_repr(w, o, v);
  }
}

struct value *str_of(struct work *w, const struct value *v)
{
  struct out o = {0};
  out_str(w, &o, v);
  return text_value(w, o.at, o.count);
}

static void new_line(struct work *w, struct out *o, int indent, int level)
{
  if (indent < 0) return;
  out_text(w, o, "\n");
  for (int i = 0; i < indent * level; i++) out_text(w, o, " ");
}

size_t characters_of(const struct value *text)
{
  size_t n = 0;
  for (size_t i = 0; i < text->count; i++) n += ((unsigned char)text->text[i] & 0xc0) != 0x80;
  return n;
}

struct value *escaped(struct work *w, const struct value *v)
{
  struct out o = {0};
  out_add(w, &o, "", 0);
  for (size_t i = 0; i < v->count; i++) {
    const char c = v->text[i];
    const char *as = c == '&'    ? "&amp;"
                     : c == '<'  ? "&lt;"
                     : c == '>'  ? "&gt;"
                     : c == '\'' ? "&#39;"
                     : c == '"'  ? "&#34;"
                                 : NULL;
    out_add(w, &o, as ? as : &c, as ? strlen(as) : 1);
  }
  struct value *made = text_value(w, o.at, o.count);
  made->is_safe = true;
  return made;
}

static void out_signs(struct work *w, struct out *o, const char *sign, long long times)
{
  for (long long i = 0; i < times; i++) {
    work_step(w);
    out_text(w, o, sign);
  }
}

void out_padded(struct work *w, struct out *o, const struct value *text, long long width,
                const char *sign, enum place place)
{
  const long long lacks = width - (long long)characters_of(text);
  // str.center() of Python has the odd sign behind an even text, before an odd one
  const long long before = lacks <= 0          ? 0
                           : place == AT_RIGHT ? lacks
                           : place == AT_LEFT
                               ? 0
                               : lacks / 2 + (place == IN_MIDDLE ? lacks & width & 1 : 0);
  out_signs(w, o, sign, before);
  out_add(w, o, text->text, text->count);
  out_signs(w, o, sign, lacks - before);
}

static void out_json_text(struct work *w, struct out *o, const char *text, size_t count,
                          bool is_ascii)
{
  out_text(w, o, "\"");
  for (size_t i = 0; i < count; i++) {
    const char c = text[i];
    char code[16];
    uint32_t letter = 0;
    if (is_ascii && (unsigned char)c >= 0x7f) {
      const int size = c == 0x7f ? 1 : utf8_at(text + i, count - i, &letter);
      if (c == 0x7f) letter = 0x7f;
      if (letter < 0x10000)
        snprintf(code, sizeof code, "\\u%04x", (unsigned)letter);
      else
        snprintf(code, sizeof code, "\\u%04x\\u%04x",
                 (unsigned)(0xd800 + ((letter - 0x10000) >> 10)),
                 (unsigned)(0xdc00 + ((letter - 0x10000) & 0x3ff)));
      out_text(w, o, code);
      i += (size_t)(size > 0 ? size : -size) - 1;
      continue;
    }
    const char *as = c == '"'    ? "\\\""
                     : c == '\\' ? "\\\\"
                     : c == '\n' ? "\\n"
                     : c == '\r' ? "\\r"
                     : c == '\t' ? "\\t"
                     : c == '\b' ? "\\b"
                     : c == '\f' ? "\\f"
                                 : NULL;
    if (!as && (unsigned char)c < 0x20) {
      snprintf(code, sizeof code, "\\u%04x", (unsigned char)c);
      as = code;
    }
    out_add(w, o, as ? as : &c, as ? strlen(as) : 1);
  }
  out_text(w, o, "\"");
}

// A key: its text, or that of the number or word that JSON has.
static void out_json_key(struct work *w, struct out *o, const struct value *key, bool is_ascii)
{
  const struct json_form form = {.indent = -1, .comma = ",", .colon = ":"};
  struct out text = {0};
  if (key->kind == LIST || key->kind == MAP) work_fails(w, "a key in JSON is a text or a number");
  if (key->kind == TEXT)
    out_add(w, &text, key->text, key->count);
  else
    out_json(w, &text, key, &form, 0);
  out_json_text(w, o, text.at, text.count, is_ascii);
}

void out_json(struct work *w, struct out *o, const struct value *v, const struct json_form *form,
              int level)
{
  work_step(w);
  if (level > 200) work_fails(w, "it is nested too deep");
  if ((v->kind == LIST && (v->view || v->is_lazy)) || (v->kind == MAP && !is_dict(v)))
    work_fails(w, "%s has no form in JSON", v->view ? v->view : "an iterator or namespace");
  if (v->kind == TEXT) {
    out_json_text(w, o, v->text, v->count, form->is_ascii);
  } else if (v->kind == NONE_VALUE) {
    out_text(w, o, "null");
  } else if (v->kind == FLAG) {
    out_text(w, o, v->flag ? "true" : "false");
  } else if (v->kind == REAL) {
    out_real(w, o, v->real, true);
  } else if (v->kind == LIST || v->kind == MAP) {
    size_t *order = work_alloc(w, (v->count + 1) * sizeof *order);
    for (size_t i = 0; i < v->count; i++) {
      size_t at = i;
      for (; form->is_sorted && v->kind == MAP && at &&
             compare_values(w, v->key[i], v->key[order[at - 1]]) < 0;
           at--)
        order[at] = order[at - 1];
      order[at] = i;
    }
    out_text(w, o, v->kind == MAP ? "{" : "[");
    for (size_t i = 0; i < v->count; i++) {
      if (i) out_text(w, o, form->comma);
      new_line(w, o, form->indent, level + 1);
      if (v->kind == MAP) {
        out_json_key(w, o, v->key[order[i]], form->is_ascii);
        out_text(w, o, form->colon);
      }
      out_json(w, o, v->at[order[i]], form, level + 1);
    }
    if (v->count) new_line(w, o, form->indent, level);
    out_text(w, o, v->kind == MAP ? "}" : "]");
  } else if (v->kind == WHOLE) {
    out_whole(w, o, v->whole);
  } else {
    work_fails(w, "tojson of %s", kind_name(v));
  }
}
