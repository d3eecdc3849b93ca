/* view_shape.c: the rule of a view: how the factors of one shape's dimensions become those of
   another.

   Takes two shapes with the same number of elements. Walks both from the outermost dimension: a
   factor that both have there becomes a letter, "(a4b3)c5->a4(b3c5)". If they have no common
   factor, it tries the same from the innermost dimension of the section that does not nest. The
   factors that remain between, some on each side, are marked `!`, never to be cut:
   "a2!(b3!c2)->d3!(e2!c2)" for 2 x 6 as 3 x 4. */
#include "ir/ir.h"

#include <inttypes.h>

/* A factor of one dimension of one side. */
struct factor {
  int dim;
  int64_t size;
  char letter;
  bool whole;
};
/* One side: the rest of each dimension, and the factors found, the outermost first. */
struct side {
  struct shape left;
  int dim; /* the first dimension with a rest */
  int n;
  struct factor factor[MAX_LETTERS];
};
static char next_letter;
static int line;

static int64_t divisor(int64_t a, int64_t b)
{
  return b ? divisor(b, a % b) : a;
}

static void put_factor(struct side *s, int at, int dim, int64_t size, char letter, bool whole)
{
  if (s->n == MAX_LETTERS || letter > 'z')
    plan_error(line, "view: too many dimensions for one step: take two");
  for (int i = s->n++; i > at; i--) s->factor[i] = s->factor[i - 1];
  s->factor[at] = (struct factor){dim, size, letter, whole};
  s->left.size[dim] /= size;
}

static void skip_ones(struct side *s)
{
  while (s->dim < s->left.ndim && s->left.size[s->dim] == 1) s->dim++;
}

/* The last dimension before `end` with a rest. */
static int last_left(const struct side *s, int end)
{
  while (end > s->dim && s->left.size[end - 1] == 1) end--;
  return end - 1;
}

static void put_rest(struct side *s, int at, int end)
{
  for (int d = s->dim; d < end; d++)
    if (s->left.size[d] > 1) put_factor(s, at++, d, s->left.size[d], next_letter++, true);
}

/* The outermost factors of the rests have nothing in common. */
static void take_section(struct side *a, struct side *b)
{
  int end_a, end_b, at_a = a->n, at_b = b->n;
  /* The end of the section after which both sides have covered equally many elements. */
  end_a = a->dim + 1;
  end_b = b->dim + 1;
  int64_t x = a->left.size[a->dim], y = b->left.size[b->dim];
  while (x != y) {
    if (x < y)
      x *= a->left.size[end_a++];
    else
      y *= b->left.size[end_b++];
  }
  for (;;) {
    int x = last_left(a, end_a), y = last_left(b, end_b);
    int64_t size = divisor(a->left.size[x], b->left.size[y]);
    if (size == 1) break;
    put_factor(a, at_a, x, size, next_letter, false);
    put_factor(b, at_b, y, size, next_letter++, false);
  }
  put_rest(a, at_a, end_a);
  put_rest(b, at_b, end_b);
}

static void take_factors(struct side *a, struct side *b)
{
  for (;;) {
    skip_ones(a);
    skip_ones(b);
    if (a->dim == a->left.ndim) return;
    int64_t size = divisor(a->left.size[a->dim], b->left.size[b->dim]);
    if (size == 1) {
      take_section(a, b);
      continue;
    }
    put_factor(a, a->n, a->dim, size, next_letter, false);
    put_factor(b, b->n, b->dim, size, next_letter++, false);
  }
}

/* "(a4b3) 1 c5" */
static void put_side(struct buffer *b, const struct side *s)
{
  for (int d = 0, i = 0; d < s->left.ndim; d++) {
    int n = 0;
    while (i + n < s->n && s->factor[i + n].dim == d) n++;
    bool after_one = d && (i == 0 || s->factor[i - 1].dim != d - 1);
    if (d && (n == 0 || after_one)) put(b, " ");
    if (n == 0) put(b, "1");
    if (n > 1) put(b, "(");
    for (int k = 0; k < n; k++, i++)
      put(b, "%c%" PRId64 "%s", s->factor[i].letter, s->factor[i].size,
          s->factor[i].whole ? "!" : "");
    if (n > 1) put(b, ")");
  }
}

const char *identity_equation(int ndim)
{
  return text("%.*s->%.*s", ndim, "abcdefgh", ndim, "abcdefgh");
}

const char *view_equation(struct shape from, struct shape to, int at)
{
  struct side a = {.left = from}, b = {.left = to};
  struct buffer text = {0};
  next_letter = 'a';
  line = at;
  take_factors(&a, &b);
  put_side(&text, &a);
  put(&text, "->");
  put_side(&text, &b);
  return text.text;
}
