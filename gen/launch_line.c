/* launch_line.c: the lines  // launch: BLOCKS, THREADS  of kernel_file.c, and the arithmetic in
 * them. */
#include "kernel_file.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* sum = product {("+" | "-") product}; product = atom {("*" | "/" | "%") atom} */
static int64_t sum_at(const char **c);

static char next_sign(const char **c)
{
  *c += strspn(*c, " \t\r");
  return **c;
}

static int64_t atom_at(const char **c)
{
  char sign = next_sign(c);
  if (sign == '(') {
    ++*c;
    int64_t value = sum_at(c);
    if (next_sign(c) != ')') fault("a '(' in a line '// launch:' is not closed");
    ++*c;
    return value;
  }
  if (!isdigit((unsigned char)sign))
    fault(text("in a line '// launch:' a number should stand before '%.20s'", printable(*c)));
  char *end;
  int64_t value = strtoll(*c, &end, 10);
  *c = end;
  return value;
}

static int64_t combined(char sign, int64_t a, int64_t b)
{
  int64_t result = 0;
  if ((sign == '/' || sign == '%') && b == 0) fault("a line '// launch:' divides by 0");
  bool wrong = sign == '*'   ? __builtin_mul_overflow(a, b, &result)
               : sign == '+' ? __builtin_add_overflow(a, b, &result)
               : sign == '-' ? __builtin_sub_overflow(a, b, &result)
                             : false;
  if (wrong) fault("a line '// launch:' makes a number that is too large");
  return sign == '/' ? a / b : sign == '%' ? a % b : result;
}

static int64_t product_at(const char **c)
{
  int64_t value = atom_at(c);
  for (char sign; (sign = next_sign(c)) == '*' || sign == '/' || sign == '%';) {
    ++*c;
    value = combined(sign, value, atom_at(c));
  }
  return value;
}

static int64_t sum_at(const char **c)
{
  int64_t value = product_at(c);
  for (char sign; (sign = next_sign(c)) == '+' || sign == '-';) {
    ++*c;
    value = combined(sign, value, product_at(c));
  }
  return value;
}

char *launch_text(const char *line)
{
  const char *c = line;
  int64_t blocks = sum_at(&c), bytes = 0;
  if (next_sign(&c) != ',') fault("a line '// launch:' is not of the form BLOCKS, THREADS");
  c++;
  int64_t threads = sum_at(&c);
  if (next_sign(&c) == ',') c++, bytes = sum_at(&c);
  if (next_sign(&c) != '\n') fault("a line '// launch:' goes on after BLOCKS, THREADS, BYTES");
  if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > 1024)
    fault(text("it launches %" PRId64 " blocks of %" PRId64 " threads", blocks, threads));
  if (bytes < 0 || bytes > MOST_SHARED)
    fault(text("a block takes %" PRId64 " bytes of shared memory, of %d", bytes, MOST_SHARED));
  char *places = text("%" PRId64 ", %" PRId64, blocks, threads);
  return bytes ? text("%s, %" PRId64, places, bytes) : places;
}
