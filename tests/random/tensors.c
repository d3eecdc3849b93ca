/* The tensors of the class that is being made, and its statements. */
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int elements(const struct tensor *t)
{
  int n = 1;
  for (int d = 0; d < t->ndim; d++) n *= t->size[d];
  return n;
}

int same_shape(const struct tensor *a, const struct tensor *b)
{
  return a->ndim == b->ndim && !memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size);
}

/* A tensor there is of so many dimensions, the latest more often than the others; or -1. */
int pick(int least, int most)
{
  int fits[MAX_TENSORS], n = 0;
  for (int i = 0; i < now.ntensor; i++)
    if (now.tensor[i].ndim >= least && now.tensor[i].ndim <= most) fits[n++] = i;
  if (n == 0) return -1;
  return any(2) ? fits[n - 1] : fits[any(n)];
}

/* One of the same shape. */
int pick_like(int a)
{
  int same[MAX_TENSORS], n = 0;
  for (int b = 0; b < now.ntensor; b++)
    if (same_shape(&now.tensor[a], &now.tensor[b])) same[n++] = b;
  return same[any(n)];
}

const char *read_of(int i)
{
  static char text[8][16];
  static int turn;
  char *to = text[turn++ % 8];
  now.tensor[i].reads++;
  snprintf(to, sizeof text[0], "t%d", i);
  return to;
}

/* Begins the statement that makes a tensor of this shape; it is there once done() is called. */
void begin(struct tensor shape)
{
  now.tensor[now.ntensor] = shape;
  now.tensor[now.ntensor].reads = 0;
  SAY(now.forward, "    local t%d = ", now.ntensor);
}

int done(void)
{
  SAY(now.forward, "\n");
  return ++now.ntensor;
}

/* An input of the step, by its name in the forward. */
const char *input_of(struct tensor shape, int below)
{
  static char text[16];
  int i = 0;
  while (i < ninput && !(below && input[i].below == below && same_shape(&input[i].shape, &shape)))
    i++;
  if (i == ninput) {
    input[ninput].shape = shape;
    input[ninput++].below = below;
  }
  snprintf(text, sizeof text, "b.i%d", i);
  return text;
}

struct tensor vector(int size)
{
  return (struct tensor){.ndim = 1, .size = {size}};
}

struct tensor without(struct tensor t, int d)
{
  t.ndim--;
  memmove(t.size + d, t.size + d + 1, (size_t)(t.ndim - d) * sizeof *t.size);
  return t;
}

struct tensor with(struct tensor t, int d, int size)
{
  memmove(t.size + d + 1, t.size + d, (size_t)(t.ndim - d) * sizeof *t.size);
  t.size[d] = size;
  t.ndim++;
  return t;
}

struct tensor resized(struct tensor t, int d, int size)
{
  t.size[d] = size;
  return t;
}

int any_factor(int n)
{
  int f[16], count = 0;
  for (int i = 1; i <= n && count < 16; i++)
    if (n % i == 0) f[count++] = i;
  return f[any(count)];
}

void say_sizes(const struct tensor *t)
{
  for (int d = 0; d < t->ndim; d++) SAY(now.forward, "%s%d", d ? ", " : "", t->size[d]);
}
