/* Statements that multiply: parameters of the class's own, products, lookups. */
#include "random.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------- statements: products */

/* A parameter of the model's own: of the last dimensions of what it goes with, some of them 1. */
int parameter(void)
{
  static const char *const between[] = {" + ", " * ", " - "};
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  SAY(now.init, "  self.p%d = nn.Parameter{", now.nparameter);
  for (int d = any(now.tensor[a].ndim); d < now.tensor[a].ndim; d++)
    SAY(now.init, "%d, ", any(4) ? now.tensor[a].size[d] : 1);
  SAY(now.init, "init = nn.init.uniform(0.5, 1.5)}\n");
  begin(now.tensor[a]);
  SAY(now.forward, "%s%sself.p%d", read_of(a), ANY_OF(between), now.nparameter++);
  return done();
}

/* A product with a parameter, with one matrix or with one for each row of the batch. */
int product(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int last = now.tensor[a].ndim - 1, n = any_size();
  SAY(now.init, "  self.p%d = nn.Parameter{", now.nparameter);
  for (int d = last > 1 && any(2) ? 0 : last - 1; d < last - 1; d++)
    SAY(now.init, "%d, ", now.tensor[a].size[d]);
  SAY(now.init, "%d, %d, init = nn.init.normal(0, 0.5)}\n", now.tensor[a].size[last], n);
  begin(resized(now.tensor[a], last, n));
  SAY(now.forward, "F.matmul(%s, self.p%d)", read_of(a), now.nparameter++);
  return done();
}

/* Of two tensors: all rows with all rows, or all columns with all columns. */
int rows_with_rows(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int last = now.tensor[a].ndim - 1;
  const char *t = read_of(a), *u = read_of(pick_like(a));
  static const char *const batch[] = {"", "a", "ab"};
  const char *const b = batch[last - 1];
  switch (any(3)) {
  case 0:
    begin(resized(now.tensor[a], last, now.tensor[a].size[last - 1]));
    SAY(now.forward, "F.matmul(%s, %s:transpose(-1, -2)):tanh()", t, u);
    break;
  case 1:
    begin(resized(now.tensor[a], last - 1, now.tensor[a].size[last]));
    SAY(now.forward, "F.einsum(\"%skm,%skn->%smn\", %s, %s):tanh()", b, b, b, t, u);
    break;
  case 2:
    begin((struct tensor){2, {now.tensor[a].size[last], now.tensor[a].size[last]}, 0});
    SAY(now.forward, "F.einsum(\"%skm,%skn->nm\", %s, %s):tanh()", b, b, t, u);
    break;
  }
  return done();
}

int embedded(void)
{
  int rows = 2 + any(9);
  struct tensor shape = {.ndim = 1 + any(2), .size = {any_size(), any_size()}};
  int size = any_size();
  begin(with(shape, shape.ndim, size));
  if (any(3)) {
    now.module[now.nmodule] = (struct module){EMBEDDING, shape.ndim + 1, 0};
    SAY(now.init, "  self.m%d = nn.Embedding(%d, %d)\n", now.nmodule, rows, size);
    SAY(now.forward, "self.m%d(%s)", now.nmodule++, input_of(shape, rows));
  } else {
    SAY(now.init, "  self.p%d = nn.Parameter(randn{%d, %d})\n", now.nparameter, rows, size);
    SAY(now.forward, "F.embedding(%s, self.p%d)", input_of(shape, rows), now.nparameter++);
  }
  return done();
}
