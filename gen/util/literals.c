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
