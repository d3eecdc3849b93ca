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
    return v->is_namespace || v->count > 0;
  }
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
    const bool has_one = memchr(v->text, '\'', v->count) != NULL,
               has_two = memchr(v->text, '"', v->count) != NULL;
    const char quote = has_one && !has_two ? '"' : '\'';
    out_add(w, o, &quote, 1);
    for (size_t i = 0; i < v->count; i++) {
      const char c = v->text[i];
      const char *as = c == '\n'   ? "\\n"
                       : c == '\t' ? "\\t"
                       : c == '\r' ? "\\r"
                       : c == '\\' ? "\\\\"
                                   : NULL;
      char code[8];
      if (!as && c == quote) as = quote == '\'' ? "\\'" : "\\\"";
      if (!as && (unsigned char)c < 0x20) {
        snprintf(code, sizeof code, "\\x%02x", (unsigned char)c);
        as = code;
      }
      out_add(w, o, as ? as : &c, as ? strlen(as) : 1);
    }
    out_add(w, o, &quote, 1);
  } else if (v->kind == LIST || v->kind == MAP) {
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

static void out_json_text(struct work *w, struct out *o, const char *text, size_t count)
{
  out_text(w, o, "\"");
  for (size_t i = 0; i < count; i++) {
    const char c = text[i];
    char code[8];
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

void out_json(struct work *w, struct out *o, const struct value *v, int indent, int level,
              const char *comma, const char *colon, bool sorted)
{
  work_step(w);
  if (level > 200) work_fails(w, "it is nested too deep");
  if (v->kind == LIST && v->view) work_fails(w, "%s has no form in JSON", v->view);
  if (v->kind == TEXT) {
    out_json_text(w, o, v->text, v->count);
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
      for (; sorted && v->kind == MAP && at &&
             compare_values(w, v->key[i], v->key[order[at - 1]]) < 0;
           at--)
        order[at] = order[at - 1];
      order[at] = i;
    }
    out_text(w, o, v->kind == MAP ? "{" : "[");
    for (size_t i = 0; i < v->count; i++) {
      if (i) out_text(w, o, comma);
      new_line(w, o, indent, level + 1);
      if (v->kind == MAP) {
        struct value *key = str_of(w, v->key[order[i]]);
        out_json_text(w, o, key->text, key->count);
        out_text(w, o, colon);
      }
      out_json(w, o, v->at[order[i]], indent, level + 1, comma, colon, sorted);
    }
    if (v->count) new_line(w, o, indent, level);
    out_text(w, o, v->kind == MAP ? "}" : "]");
  } else if (v->kind == WHOLE) {
    out_whole(w, o, v->whole);
  } else {
    work_fails(w, "tojson of %s", kind_name(v));
  }
}
