/* literals.c: numbers as C literals: the shortest text that reads back as the same number. */
#include "util/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

char *double_text(double x)
{
  for (int digits = 6; digits < 17; digits++) {
    char *s = text("%.*g", digits, x);
    if (strtod(s, NULL) == x) return s;
  }
  return text("%.17g", x);
}

char *number_text(double x)
{
  if (isnan(x)) return copy_text("NAN");
  if (isinf((float)x)) return copy_text(x < 0 ? "-INFINITY" : "INFINITY");
  char *s = double_text((float)x);
  for (int digits = 1; digits <= 9; digits++) {
    char *shorter = text("%.*g", digits, x);
    if ((float)strtod(shorter, NULL) != (float)x) continue;
    s = shorter;
    break;
  }
  bool plain = strspn(s, "-0123456789") == strlen(s);
  return text("%s%sf", s, plain ? ".0" : "");
}

int one_over(double x)
{
  double n = x ? round(1 / x) : 0;
  bool short_enough = strtod(text("%.3g", x), NULL) == x;
  return fabs(n) < INT32_MAX && n != 0 && 1 / n == x && !short_enough ? (int)n : 0;
}

char *double_factor(double x)
{
  int n = one_over(x);
  return n ? text("(1.0 / %d)", n) : double_text(x);
}

char *float_factor(double x)
{
  int n = one_over(x);
  return n && 1.0f / (float)n == (float)x ? text("(1.0f / %d)", n) : number_text(x);
}

int binding(const char *s)
{
  int depth = 0, least = 3;
  for (const char *c = s; *c; c++) {
    depth += (*c == '(' || *c == '[') - (*c == ')' || *c == ']');
    if (*c != ' ' || depth || c[1] == ' ') continue;
    int sign = strchr("*/%", c[1]) ? 2 : strchr("+-", c[1]) && c[2] == ' ' ? 1 : 0;
    if (sign < least) least = sign;
    c += strcspn(c + 1, " ") + 1;
  }
  return least;
}

char *in_brackets(const char *s)
{
  return binding(s) < 3 ? text("(%s)", s) : copy_text(s);
}

char *bracketed(const struct buffer *before, const char *rest, char *s)
{
  const char *last = before->length ? before->text + before->length - 1 : "(";
  int least = 0;
  if (*last == ' ')
    least = strchr("*/%", last[-1]) ? 3 : strchr("+-", last[-1]) ? 2 : 1;
  else if (*last != '(' && *last != ',')
    least = 3;
  if (*rest == ' ' && least < 2) least = strchr("*/%", rest[1]) ? 2 : 1;
  return binding(s) < least ? text("(%s)", s) : s;
}
