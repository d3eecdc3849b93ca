/* Statements on one tensor or several: element by element, along dimensions, parts, views. */
#include "random.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------- statements, by pattern

   $a: a tensor; $b: another of its shape; $d: one of its dimensions; $s: one, or a list; $i: its
   indices along $d, of $a's shape; $t: the type that the model computes in. */

static void say_dimension(int d, int ndim)
{
  SAY(now.forward, "%d", any(2) ? d : d - ndim);
}

static void say_pattern(const char *p, int a, int d)
{
  const struct tensor *t = &now.tensor[a];
  for (; *p; p++) {
    if (*p != '$') {
      SAY(now.forward, "%c", *p);
      continue;
    }
    switch (*++p) {
    case 'a':
      SAY(now.forward, "%s", read_of(a));
      break;
    case 'b':
      SAY(now.forward, "%s", read_of(pick_like(a)));
      break;
    case 'd':
      say_dimension(d, t->ndim);
      break;
    case 's':
      if (t->ndim > 1 && !any(3))
        SAY(now.forward, "{%d, %d}", d, (d + 1 + any(t->ndim - 1)) % t->ndim);
      else
        say_dimension(d, t->ndim);
      break;
    case 'i':
      SAY(now.forward, "%s", input_of(*t, t->size[d]));
      break;
    case 't':
      SAY(now.forward, "%s", type);
      break;
    }
  }
}

int elementwise(void)
{
  static const char *const patterns[] = {
      "$a:tanh()",
      "$a:sigmoid()",
      "$a:silu()",
      "$a:relu()",
      "$a:gelu()",
      "$a:gelu(\"tanh\")",
      "-$a",
      "$a * 0.7",
      "$a:tanh():exp()",
      "$a:tanh()^2",
      "1 - $a",
      "$a / 3 + 0.5",
      "1 / (1.5 + $a:tanh())",
      "$a:sin() + $a:cos()",
      "($a^2 + 1):sqrt()",
      "($a:abs() + 1):rsqrt()",
      "($a^2 + 1):log()",
      "(1.5 + $a:tanh()):pow(1.5)",
      "$a:detach() * $a:tanh()",
      "$a:masked_fill($a:lt(-0.3), 0.7)",
      "F.where($a:gt(0.1):logical_or($a:lt(-0.4)), $a, $a * 0.3)",
      "$a:maximum(-0.2)",
      "$a:minimum(0.9):replicate()",
      "$a + $b",
      "$a - $b",
      "$a:tanh() * $b",
      "$a / (1 + $b^2)",
      "$a:maximum($b)",
      "F.where($a:gt($b), $a, 0.5 * $b)",
      "$a + $b:ge(0.2):to(\"$t\")",
      "(1.5 + $a:tanh())^$b:tanh()",
      "$a:masked_fill($b:lt(0.2), 0.4)",
      "$a - $a",
  };
  int a = pick(0, MAX_NDIM);
  begin(now.tensor[a]);
  say_pattern(ANY_OF(patterns), a, 0);
  return done();
}

int dropout(void)
{
  int a = pick(0, MAX_NDIM);
  begin(now.tensor[a]);
  say_pattern(any(2) ? "$a:dropout(0.3)" : "F.dropout($a) + $b", a, 0);
  return done();
}

/* The shape stays. */
int along(void)
{
  static const char *const patterns[] = {
      "$a - $a:mean($s, true)",
      "$a * $a:mean($s, true):tanh()",
      "$a + ($a:sum($s, true) * 0.1):tanh()",
      "$a - $a:amax($s, true) * 0.5",
      "$a + $a:amin($s, true):tanh()",
      "$a * ($a:norm(2, $s, true) + 1):log()",
      "$a / ($a:norm(1, $s, true) + 1)",
      "($a - $a:logsumexp($d, true)) * 0.3",
      "$a:softmax($d) * 3",
      "$a * $b:softmax($d)",
      "$a:log_softmax($d) * 0.3",
      "$a:cumsum($d):tanh()",
      "($a:sort($d)) * $b",
      "($a:sort($d, true))",
      "$a:gather($d, $b:argsort($d))",
      "$a:gather($d, $i)",
      "$a:scatter_add($d, $i, $b:tanh())",
      "$a:scatter($d, $b:argsort($d), $b)",
      "$a + ($b:max($d, true))",
      "$a:tanh() * $b:argmax($d, true):to(\"$t\") * 0.2",
  };
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(now.tensor[a].ndim);
  begin(now.tensor[a]);
  say_pattern(ANY_OF(patterns), a, d);
  return done();
}

int variance(void)
{
  int a = pick(1, MAX_NDIM), d = a < 0 ? 0 : any(now.tensor[a].ndim);
  if (a < 0 || now.tensor[a].size[d] < 2) return 0;
  begin(now.tensor[a]);
  say_pattern("$a / ($a:var($s, true, true) + 1)", a, d);
  return done();
}

/* One dimension less. */
int reduction(void)
{
  static const char *const patterns[] = {
      "$a:mean($d)",
      "$a:sum($d):tanh()",
      "$a:amax($d)",
      "$a:amin($d) + 0.2",
      "($a:max($d))",
      "($a:min($d)) * 0.7",
      "$a:norm(2, $d):tanh()",
      "$a:logsumexp($d) * 0.5",
      "$a:select($d, 0)",
      "$a:select($d, -1)",
      "$a:mean($d) + $a:argmax($d):to(\"$t\") * 0.1",
      "($a:flatten():mean() + 1) * $a:mean($d)",
  };
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(now.tensor[a].ndim);
  begin(without(now.tensor[a], d));
  say_pattern(ANY_OF(patterns), a, d);
  return done();
}

/* What is left has another size at the dimension. */
int part(void)
{
  int a = pick(1, MAX_NDIM), d = a < 0 ? 0 : any(now.tensor[a].ndim);
  if (a < 0 || (now.tensor[a].ndim == 1 && now.tensor[a].size[0] < 4)) return 0;
  int n = now.tensor[a].size[d], size = 1 + any(n), start = any(n - size + 1), step = 1 + any(3);
  const char *t = read_of(a);
  switch (any(6)) {
  case 0:
    begin(resized(now.tensor[a], d, size));
    SAY(now.forward, "%s:narrow(%d, %d, %d)", t, d, start, size);
    break;
  case 1:
    begin(resized(now.tensor[a], d, (size + step - 1) / step));
    SAY(now.forward, "%s:slice(%d, %d, %d, %d)", t, d, start, start + size, step);
    break;
  case 2:
    if (now.tensor[a].ndim < 2) return 0;
    begin(resized(now.tensor[a], d, size));
    SAY(now.forward, "(%s:topk(%d, %d, %s))", t, size, d, any(2) ? "true" : "false");
    break;
  case 3:
    begin(resized(now.tensor[a], d, n + 3));
    SAY(now.forward, "%s:pad({[%d] = {2, 1}}, %s)", t, d, any(2) ? "0" : "0.5");
    break;
  case 4:
    step = any_size();
    begin(resized(now.tensor[a], d, step));
    SAY(now.forward, "%s:index_select(%d, %s)", t, d, input_of(vector(step), n));
    break;
  case 5:
    begin(now.tensor[a]);
    SAY(now.forward, "%s:index_add(%d, %s, %s:narrow(%d, %d, %d):tanh())", t, d,
        input_of(vector(size), n), read_of(pick_like(a)), d, start, size);
    break;
  }
  return done();
}

/* Cut into parts that are put together again, in another order or with another tensor's. */
int join(void)
{
  int a = pick(1, MAX_NDIM - 1), d = a < 0 ? 0 : any(now.tensor[a].ndim);
  if (a < 0) return 0;
  int n = now.tensor[a].size[d], size = 1 + any(n), rest = size < n ? n - size : n;
  const char *t = read_of(a), *u = read_of(pick_like(a));
  switch (any(5)) {
  case 0:
    begin(resized(now.tensor[a], d, 2 * n));
    SAY(now.forward, "F.cat({%s, %s:tanh()}, %d)", t, u, d);
    break;
  case 4:
    begin(resized(now.tensor[a], d, size + rest));
    SAY(now.forward, "F.cat({%s:narrow(%d, 0, %d), %s:narrow(%d, %d, %d)}, %d)", t, d, size, u, d,
        n - rest, rest, d);
    break;
  case 1:
    begin(with(now.tensor[a], d, 3));
    SAY(now.forward, "F.stack({%s, %s, %s * 0.5}, %d)", t, u, t, d);
    break;
  case 2:
    begin(now.tensor[a]);
    SAY(now.forward, "turned(%s, %d, %s:chunk(%d, %d))", t, d, u, 1 + any(3), d);
    break;
  case 3:
    begin(now.tensor[a]);
    SAY(now.forward, "turned(%s, %d, %s:split(%d, %d))", t, d, t, n - size > 3 ? n / 3 : size, d);
    break;
  }
  return done();
}

int triangle(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  begin(now.tensor[a]);
  SAY(now.forward, "%s:%s(%d)", read_of(a), any(2) ? "tril" : "triu", any(5) - 2);
  return done();
}

/* ---------------------------------------------------------------------------- statements: views */

int permute(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  struct tensor new = now.tensor[a];
  int order[MAX_NDIM] = {0, 1, 2, 3};
  for (int d = new.ndim - 1; d > 0; d--) {
    int e = any(d + 1), o = order[d];
    order[d] = order[e];
    order[e] = o;
  }
  for (int d = 0; d < new.ndim; d++) new.size[d] = now.tensor[a].size[order[d]];
  begin(new);
  SAY(now.forward, "%s:permute(", read_of(a));
  for (int d = 0; d < new.ndim; d++) SAY(now.forward, "%s%d", d ? ", " : "", order[d]);
  SAY(now.forward, ")");
  return done();
}

/* The same elements, in any other shape; a sharded tensor has no parts of most shapes. */
int reshape(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int n = elements(&now.tensor[a]);
  struct tensor new = {.ndim = 1 + any(MAX_NDIM)};
  for (int d = 0; d < new.ndim - 1; d++) n /= new.size[d] = any_factor(n);
  new.size[new.ndim - 1] = n;
  begin(new);
  SAY(now.forward, "%s%s:view(", read_of(a), any(3) ? ":replicate()" : "");
  say_sizes(&new);
  SAY(now.forward, ")");
  return done();
}

int merge(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(now.tensor[a].ndim - 1), size = now.tensor[a].size[d] * now.tensor[a].size[d + 1];
  begin(resized(without(now.tensor[a], d), d, size));
  SAY(now.forward, "%s:flatten(%d, %d)", read_of(a), d, d + 1);
  return done();
}

int split_dimension(void)
{
  int a = pick(1, MAX_NDIM - 1);
  if (a < 0) return 0;
  int d = any(now.tensor[a].ndim), n = now.tensor[a].size[d], outer = any_factor(n);
  begin(with(resized(now.tensor[a], d, n / outer), d, outer));
  SAY(now.forward, "%s:unflatten(%d, %d, -1)", read_of(a), d, outer);
  return done();
}

int stretch(void)
{
  int a = pick(1, MAX_NDIM - 1);
  if (a < 0 || elements(&now.tensor[a]) > MAX_ELEMENTS / 4) return 0;
  int d = any(now.tensor[a].ndim + 1);
  struct tensor new = with(now.tensor[a], d, 1 + any(4));
  begin(new);
  SAY(now.forward, "%s:unsqueeze(%d):expand(", read_of(a), d);
  say_sizes(&new);
  SAY(now.forward, "):tanh()");
  return done();
}
