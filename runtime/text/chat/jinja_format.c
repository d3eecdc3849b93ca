// SPDX-License-Identifier: MIT
// Jinja: text % values and text.format(...), as Python has them.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/chat/jinja_tree.h"

enum { MOST_WIDTH = 10000, MOST_PLACES = 100 };

// What stands between % and its letter, or behind the colon of {}.
struct spec {
  bool is_left, is_zero;
  char sign; // '+', ' ' or 0
  const char *fill;
  enum place place;
  bool has_place;
  int width, places; // places: -1: none are given
  char kind;
};

static int digits_at(struct work *w, const char **at, int most)
{
  int n = 0;
  while (**at >= '0' && **at <= '9') {
    n = 10 * n + *(*at)++ - '0';
    if (n > most) work_fails(w, "a width of a format is too large");
  }
  return n;
}

static struct value *text_of(struct work *w, const struct out *o)
{
  return text_value(w, o->at, o->count);
}

// Adds a number's digits, with its sign, as wide as wanted.
static void out_number(struct work *w, struct out *o, const struct spec *s, bool is_negative,
                       const char *digits)
{
  char sign[2] = {is_negative ? '-' : s->sign, 0};
  struct out text = {0};
  out_text(w, &text, sign);
  const bool fills = s->is_zero && !s->is_left && !s->has_place;
  if (fills)
    out_padded(w, &text, text_value(w, digits, strlen(digits)), s->width - (sign[0] != 0), "0",
               AT_RIGHT);
  else
    out_text(w, &text, digits);
  const enum place place = s->has_place ? s->place : s->is_left ? AT_LEFT : AT_RIGHT;
  out_padded(w, o, text_of(w, &text), s->width, s->fill ? s->fill : " ", place);
}

static void out_formatted_number(struct work *w, struct out *o, const struct spec *s,
                                 const struct value *v)
{
  char digits[512];
  if (!is_number(v)) work_fails(w, "the format %%%c wants a number", s->kind);
  if (strchr("eEfFgG", s->kind)) {
    char format[8] = {'%', '.', '*', s->kind, 0};
    const double x = number_of_value(v);
    if (fabs(x) > 1e200 && !isinf(x)) work_fails(w, "a number is too large for this format");
    snprintf(digits, sizeof digits, format, s->places < 0 ? 6 : s->places, fabs(x));
    struct spec plain = *s;
    plain.is_zero &= isfinite(x) != 0;
    out_number(w, o, &plain, signbit(x) && !isnan(x), digits);
    return;
  }
  if (v->kind == REAL && (s->kind != 'd' || !(fabs(v->real) < 9e18)))
    work_fails(w, "the format %%%c wants a whole number", s->kind);
  const long long whole = v->kind == REAL   ? (long long)v->real
                          : v->kind == FLAG ? v->flag
                                            : v->whole;
  const unsigned long long size =
      whole < 0 ? -(unsigned long long)whole : (unsigned long long)whole;
  if (s->places >= 0) work_fails(w, "digits of a whole number in a format are not known here");
  snprintf(digits, sizeof digits,
           s->kind == 'x'   ? "%llx"
           : s->kind == 'X' ? "%llX"
           : s->kind == 'o' ? "%llo"
                            : "%llu",
           size);
  out_number(w, o, s, whole < 0, digits);
}

// As many characters of a text as wanted, as wide as wanted.
static void out_formatted_text(struct work *w, struct out *o, const struct spec *s, struct value *v)
{
  size_t bytes = 0;
  for (int n = 0; bytes < v->count; bytes++) {
    n += ((unsigned char)v->text[bytes] & 0xc0) != 0x80;
    if (s->places >= 0 && n > s->places) break;
  }
  out_padded(w, o, text_value(w, v->text, bytes), s->width, s->fill ? s->fill : " ", s->place);
}

// ---- % -----------------------------------------------------------------------------------------

static struct spec percent_spec(struct work *w, const char **at)
{
  struct spec s = {.places = -1};
  for (; **at && strchr("-+ 0", **at); ++*at) {
    s.is_left |= **at == '-';
    s.is_zero |= **at == '0';
    if (**at == '+' || (**at == ' ' && !s.sign)) s.sign = **at;
  }
  s.width = digits_at(w, at, MOST_WIDTH);
  if (**at == '.') {
    ++*at;
    s.places = digits_at(w, at, MOST_PLACES);
  }
  s.kind = **at;
  s.place = s.is_left ? AT_LEFT : AT_RIGHT;
  if (!s.kind || !strchr("sdiuxXoeEfFgGcr%", s.kind))
    work_fails(w, "the format %%%.1s is not known here", *at);
  if (s.kind == 'i' || s.kind == 'u') s.kind = 'd';
  ++*at;
  return s;
}

static void out_percent(struct work *w, struct out *o, const struct spec *s, struct value *v)
{
  struct out text = {0};
  out_add(w, &text, "", 0);
  if (s->kind == 'c') {
    if (v->kind != TEXT || characters_of(v) != 1) work_fails(w, "the format %%c wants a character");
    out_formatted_text(w, o, s, v);
  } else if (s->kind == 's' || s->kind == 'r') {
    if (s->kind == 's')
      out_str(w, &text, v);
    else
      out_repr(w, &text, v);
    out_formatted_text(w, o, s, text_of(w, &text));
  } else {
    out_formatted_number(w, o, s, v);
  }
}

struct value *percent_format(struct work *w, const struct value *text, struct value *with)
{
  struct out o = {0};
  const bool is_tuple = with->kind == LIST && with->is_tuple;
  size_t used = 0;
  bool by_name = false;
  if (text->is_safe) work_fails(w, "a format of a text that is safe is not known here");
  if (strlen(text->text) < text->count && memchr(text->text, 0, text->count))
    work_fails(w, "a format has a zero byte");
  out_add(w, &o, "", 0);
  const char *const copy = work_copy(w, text->text, text->count);
  for (const char *at = copy; *at;) {
    work_step(w);
    if (*at != '%') {
      out_add(w, &o, at++, 1);
      continue;
    }
    struct value *v = NULL;
    if (*++at == '(') {
      const char *end = strchr(at, ')');
      if (!end || !is_dict(with)) work_fails(w, "a format with names wants a map");
      v = map_get(with, work_copy(w, at + 1, (size_t)(end - at) - 1));
      if (!v) work_fails(w, "a format names what is not there");
      at = end + 1;
      by_name = true;
    }
    const struct spec s = percent_spec(w, &at);
    if (s.kind == '%') {
      if (at[-2] != '%') work_fails(w, "a format has a width for %%");
      out_text(w, &o, "%");
      continue;
    }
    if (!v && used >= (is_tuple ? with->count : 1)) work_fails(w, "a format has too few values");
    if (!v) v = is_tuple ? with->at[used++] : (used++, with);
    out_percent(w, &o, &s, v);
  }
  const bool may_rest = by_name || with->kind == MAP || (with->kind == LIST && !is_tuple);
  if (!may_rest && used < (is_tuple ? with->count : 1))
    work_fails(w, "a format has too many values");
  return text_of(w, &o);
}

// ---- {} ----------------------------------------------------------------------------------------

static bool place_of(char c, enum place *place)
{
  *place = c == '<' ? AT_LEFT : c == '>' ? AT_RIGHT : IN_FORMAT;
  return c == '<' || c == '>' || c == '^';
}

static struct spec brace_spec(struct work *w, const char *at)
{
  struct spec s = {.places = -1};
  uint32_t code;
  const int size = *at ? utf8_at(at, strlen(at), &code) : 0;
  if (size > 0 && place_of(at[size], &s.place)) {
    s.fill = work_copy(w, at, (size_t)size);
    s.has_place = true;
    at += size + 1;
  } else if (place_of(*at, &s.place)) {
    s.has_place = true;
    at++;
  }
  if (*at == '+' || *at == ' ' || *at == '-') s.sign = *at++;
  if (s.sign == '-') s.sign = 0;
  s.is_zero = *at == '0';
  if (s.is_zero && s.has_place) work_fails(w, "zeros and a place in a format are not known here");
  s.width = digits_at(w, &at, MOST_WIDTH);
  if (*at == '.') {
    at++;
    s.places = digits_at(w, &at, MOST_PLACES);
  }
  s.kind = *at ? *at++ : 0;
  if (*at || (s.kind && !strchr("sdxXoeEfF", s.kind)))
    work_fails(w, "this format is not known here");
  return s;
}

static void out_brace(struct work *w, struct out *o, struct value *v, const char *spec)
{
  if (!*spec) {
    out_str(w, o, v);
    return;
  }
  struct spec s = brace_spec(w, spec);
  if (v->kind == TEXT && (!s.kind || s.kind == 's')) {
    if (!s.has_place) s.place = AT_LEFT;
    if (s.is_zero || s.sign) work_fails(w, "this format of a text is not known here");
    out_formatted_text(w, o, &s, v);
    return;
  }
  if (v->kind != WHOLE && v->kind != REAL) work_fails(w, "a format of such a value");
  if (!s.kind && v->kind == REAL) work_fails(w, "a format of a number without a letter");
  if (!s.kind) s.kind = 'd';
  if (s.kind == 's' || (v->kind == REAL && !strchr("eEfF", s.kind)))
    work_fails(w, "a format that does not fit the value");
  out_formatted_number(w, o, &s, v);
}

struct value *brace_format(struct work *w, const struct value *text, struct value **at, size_t n,
                           struct value *named)
{
  struct out o = {0};
  size_t next = 0;
  bool counts = false, by_number = false;
  out_add(w, &o, "", 0);
  const char *const copy = work_copy(w, text->text, text->count);
  for (const char *c = copy; *c;) {
    work_step(w);
    if ((*c == '{' || *c == '}') && c[1] == *c) {
      out_add(w, &o, c, 1);
      c += 2;
      continue;
    }
    if (*c != '{') {
      if (*c == '}') work_fails(w, "a format has a single }");
      out_add(w, &o, c++, 1);
      continue;
    }
    const size_t size = strcspn(++c, "{}"), name_size = strcspn(c, ":!{}");
    if (c[size] != '}') work_fails(w, "a format in a format is not known here");
    const char *name = work_copy(w, c, name_size),
               *rest = work_copy(w, c + name_size, size - name_size);
    char *end;
    const unsigned long number = strtoul(name, &end, 10);
    struct value *v = NULL;
    if (!*name) {
      counts = true;
      v = next < n ? at[next] : NULL;
      next++;
    } else if (*name >= '0' && *name <= '9' && !*end) {
      by_number = true;
      v = number < n ? at[number] : NULL;
    } else if (!strpbrk(name, ".[")) {
      v = map_get(named, name);
    } else {
      work_fails(w, "a member in a format is not known here");
    }
    if (!v || (counts && by_number)) work_fails(w, "a format names what is not there");
    if (!strncmp(rest, "!r", 2) || !strncmp(rest, "!s", 2)) {
      struct out as = {0};
      out_add(w, &as, "", 0);
      if (rest[1] == 'r')
        out_repr(w, &as, v);
      else
        out_str(w, &as, v);
      v = text_of(w, &as);
      rest += 2;
    }
    if (*rest && *rest != ':') work_fails(w, "this format is not known here");
    out_brace(w, &o, v, *rest ? rest + 1 : rest);
    c += size + 1;
  }
  return text_of(w, &o);
}
