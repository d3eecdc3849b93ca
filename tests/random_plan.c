/* random_plan SEED: a plan that trains a random small model in a random way, or computes with it,
   for tests/equal.sh, with the mesh to try it on in a line `-- mesh: a=2 b=3`. Its forward is a
   list of statements, each of which makes one more tensor from those that are there; what no
   statement reads goes into the loss, or is an output. Values stay near one and the loss is a sum
   of squares, so that little cancels and a wrong number shows.  */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MAX_NDIM = 4,
  MAX_STATEMENTS = 12,
  MAX_TENSORS = MAX_STATEMENTS + 3,
  MAX_INPUTS = 4 * MAX_TENSORS,
  MAX_MESH = 3,
  MAX_ELEMENTS = 1200
};

struct tensor {
  int ndim, size[MAX_NDIM];
  int reads;
};

/* Modules that styles know, or that consist of such; the latter may be lists of equal ones. */
enum kind { LINEAR, EMBEDDING, NORM, OTHER, MLP, GATED, ATTENDING, IMAGE, NKINDS };

struct module {
  enum kind kind;
  int ndim; /* of what it takes and makes */
  int is_list;
};

static struct tensor tensor[MAX_TENSORS];
static struct {
  struct tensor shape;
  int below; /* whole numbers, from 0; 0: float32 */
} input[MAX_INPUTS];
static struct module module[MAX_STATEMENTS + 1];
static int ntensor, ninput, nmodule, nparameter;
static int mesh[MAX_MESH], nmesh; /* the mesh, and how many dimensions it has */
static char init[1 << 12], forward[1 << 14];
static uint64_t state;

/* 0 ... n - 1, by splitmix64. */
static int any(int n)
{
  uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return (int)((z ^ z >> 31) >> 33) % n;
}

static int any_size(void)
{
  static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};
  return sizes[any(9)];
}

#define COUNT(list)  ((int)(sizeof(list) / sizeof *(list)))
#define ANY_OF(list) ((list)[any(COUNT(list))])

/* Adds to `init` or `forward`. */
#define SAY(text, ...)                                                                             \
  (void)snprintf((text) + strlen(text), sizeof(text) - strlen(text), __VA_ARGS__)

/* ---------------------------------------------------------------------------------- the tensors */

static int elements(const struct tensor *t)
{
  int n = 1;
  for (int d = 0; d < t->ndim; d++) n *= t->size[d];
  return n;
}

static int same_shape(const struct tensor *a, const struct tensor *b)
{
  return a->ndim == b->ndim && !memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size);
}

/* A tensor there is of so many dimensions, the latest more often than the others; or -1. */
static int pick(int least, int most)
{
  int fits[MAX_TENSORS], n = 0;
  for (int i = 0; i < ntensor; i++)
    if (tensor[i].ndim >= least && tensor[i].ndim <= most) fits[n++] = i;
  if (n == 0) return -1;
  return any(2) ? fits[n - 1] : fits[any(n)];
}

/* One of the same shape. */
static int pick_like(int a)
{
  int same[MAX_TENSORS], n = 0;
  for (int b = 0; b < ntensor; b++)
    if (same_shape(&tensor[a], &tensor[b])) same[n++] = b;
  return same[any(n)];
}

static const char *read_of(int i)
{
  static char text[8][16];
  static int turn;
  char *to = text[turn++ % 8];
  tensor[i].reads++;
  snprintf(to, sizeof text[0], "t%d", i);
  return to;
}

/* Begins the statement that makes a tensor of this shape; it is there once done() is called. */
static void begin(struct tensor shape)
{
  tensor[ntensor] = shape;
  tensor[ntensor].reads = 0;
  SAY(forward, "    local t%d = ", ntensor);
}

static int done(void)
{
  SAY(forward, "\n");
  return ++ntensor;
}

/* An input of the step, by its name in the forward. */
static const char *input_of(struct tensor shape, int below)
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

static struct tensor vector(int size)
{
  return (struct tensor){.ndim = 1, .size = {size}};
}

static struct tensor without(struct tensor t, int d)
{
  t.ndim--;
  memmove(t.size + d, t.size + d + 1, (size_t)(t.ndim - d) * sizeof *t.size);
  return t;
}

static struct tensor with(struct tensor t, int d, int size)
{
  memmove(t.size + d + 1, t.size + d, (size_t)(t.ndim - d) * sizeof *t.size);
  t.size[d] = size;
  t.ndim++;
  return t;
}

static struct tensor resized(struct tensor t, int d, int size)
{
  t.size[d] = size;
  return t;
}

/* ------------------------------------------------------------------------- statements, by pattern

   $a: a tensor; $b: another of its shape; $d: one of its dimensions; $s: one, or a list; $i: its
   indices along $d, of $a's shape. */

static void say_dimension(int d, int ndim)
{
  SAY(forward, "%d", any(2) ? d : d - ndim);
}

static void say_pattern(const char *p, int a, int d)
{
  const struct tensor *t = &tensor[a];
  for (; *p; p++) {
    if (*p != '$') {
      SAY(forward, "%c", *p);
      continue;
    }
    switch (*++p) {
    case 'a':
      SAY(forward, "%s", read_of(a));
      break;
    case 'b':
      SAY(forward, "%s", read_of(pick_like(a)));
      break;
    case 'd':
      say_dimension(d, t->ndim);
      break;
    case 's':
      if (t->ndim > 1 && !any(3))
        SAY(forward, "{%d, %d}", d, (d + 1 + any(t->ndim - 1)) % t->ndim);
      else
        say_dimension(d, t->ndim);
      break;
    case 'i':
      SAY(forward, "%s", input_of(*t, t->size[d]));
      break;
    }
  }
}

static int elementwise(void)
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
      "$a + $b:ge(0.2):to(\"float32\")",
      "(1.5 + $a:tanh())^$b:tanh()",
  };
  int a = pick(0, MAX_NDIM);
  begin(tensor[a]);
  say_pattern(ANY_OF(patterns), a, 0);
  return done();
}

static int dropout(void)
{
  int a = pick(0, MAX_NDIM);
  begin(tensor[a]);
  say_pattern(any(2) ? "$a:dropout(0.3)" : "F.dropout($a) + $b", a, 0);
  return done();
}

/* The shape stays. */
static int along(void)
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
      "$a:tanh() * $b:argmax($d, true):to(\"float32\") * 0.2",
  };
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(tensor[a].ndim);
  begin(tensor[a]);
  say_pattern(ANY_OF(patterns), a, d);
  return done();
}

static int variance(void)
{
  int a = pick(1, MAX_NDIM), d = a < 0 ? 0 : any(tensor[a].ndim);
  if (a < 0 || tensor[a].size[d] < 2) return 0;
  begin(tensor[a]);
  say_pattern("$a / ($a:var($s, true) + 1)", a, d);
  return done();
}

/* One dimension less. */
static int reduction(void)
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
      "$a:mean($d) + $a:argmax($d):to(\"float32\") * 0.1",
      "$a:flatten():mean() * $a:mean($d)",
  };
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(tensor[a].ndim);
  begin(without(tensor[a], d));
  say_pattern(ANY_OF(patterns), a, d);
  return done();
}

/* What is left has another size at the dimension. */
static int part(void)
{
  int a = pick(1, MAX_NDIM), d = a < 0 ? 0 : any(tensor[a].ndim);
  if (a < 0 || (tensor[a].ndim == 1 && tensor[a].size[0] < 4)) return 0;
  int n = tensor[a].size[d], size = 1 + any(n), start = any(n - size + 1), step = 1 + any(3);
  const char *t = read_of(a);
  switch (any(6)) {
  case 0:
    begin(resized(tensor[a], d, size));
    SAY(forward, "%s:narrow(%d, %d, %d)", t, d, start, size);
    break;
  case 1:
    begin(resized(tensor[a], d, (size + step - 1) / step));
    SAY(forward, "%s:slice(%d, %d, %d, %d)", t, d, start, start + size, step);
    break;
  case 2:
    if (tensor[a].ndim < 2) return 0;
    begin(resized(tensor[a], d, size));
    SAY(forward, "(%s:topk(%d, %d, %s))", t, size, d, any(2) ? "true" : "false");
    break;
  case 3:
    begin(resized(tensor[a], d, n + 3));
    SAY(forward, "%s:pad({[%d] = {2, 1}}, %s)", t, d, any(2) ? "0" : "0.5");
    break;
  case 4:
    step = any_size();
    begin(resized(tensor[a], d, step));
    SAY(forward, "%s:index_select(%d, %s)", t, d, input_of(vector(step), n));
    break;
  case 5:
    begin(tensor[a]);
    SAY(forward, "%s:index_add(%d, %s, %s:narrow(%d, %d, %d):tanh())", t, d,
        input_of(vector(size), n), read_of(pick_like(a)), d, start, size);
    break;
  }
  return done();
}

/* Cut into parts that are put together again, in another order or with another tensor's. */
static int join(void)
{
  int a = pick(1, MAX_NDIM - 1), d = a < 0 ? 0 : any(tensor[a].ndim);
  if (a < 0) return 0;
  int n = tensor[a].size[d], size = 1 + any(n);
  const char *t = read_of(a), *u = read_of(pick_like(a));
  switch (any(4)) {
  case 0:
    begin(resized(tensor[a], d, 2 * n));
    SAY(forward, "F.cat({%s, %s:tanh()}, %d)", t, u, d);
    break;
  case 1:
    begin(with(tensor[a], d, 3));
    SAY(forward, "F.stack({%s, %s, %s * 0.5}, %d)", t, u, t, d);
    break;
  case 2:
    begin(tensor[a]);
    SAY(forward, "turned(%s, %d, %s:chunk(%d, %d))", t, d, u, 1 + any(3), d);
    break;
  case 3:
    begin(tensor[a]);
    SAY(forward, "turned(%s, %d, %s:split(%d, %d))", t, d, t, n - size > 3 ? n / 3 : size, d);
    break;
  }
  return done();
}

static int triangle(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  begin(tensor[a]);
  SAY(forward, "%s:%s(%d)", read_of(a), any(2) ? "tril" : "triu", any(5) - 2);
  return done();
}

/* ---------------------------------------------------------------------------- statements: views */

static int any_factor(int n)
{
  int f[16], count = 0;
  for (int i = 1; i <= n && count < 16; i++)
    if (n % i == 0) f[count++] = i;
  return f[any(count)];
}

static int permute(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  struct tensor new = tensor[a];
  int order[MAX_NDIM] = {0, 1, 2, 3};
  for (int d = new.ndim - 1; d > 0; d--) {
    int e = any(d + 1), o = order[d];
    order[d] = order[e];
    order[e] = o;
  }
  for (int d = 0; d < new.ndim; d++) new.size[d] = tensor[a].size[order[d]];
  begin(new);
  SAY(forward, "%s:permute(", read_of(a));
  for (int d = 0; d < new.ndim; d++) SAY(forward, "%s%d", d ? ", " : "", order[d]);
  SAY(forward, ")");
  return done();
}

static void say_sizes(const struct tensor *t)
{
  for (int d = 0; d < t->ndim; d++) SAY(forward, "%s%d", d ? ", " : "", t->size[d]);
}

/* The same elements, in any other shape; a sharded tensor has no parts of most shapes. */
static int reshape(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int n = elements(&tensor[a]);
  struct tensor new = {.ndim = 1 + any(MAX_NDIM)};
  for (int d = 0; d < new.ndim - 1; d++) n /= new.size[d] = any_factor(n);
  new.size[new.ndim - 1] = n;
  begin(new);
  SAY(forward, "%s%s:view(", read_of(a), any(3) ? ":replicate()" : "");
  say_sizes(&new);
  SAY(forward, ")");
  return done();
}

static int merge(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int d = any(tensor[a].ndim - 1), size = tensor[a].size[d] * tensor[a].size[d + 1];
  begin(resized(without(tensor[a], d), d, size));
  SAY(forward, "%s:flatten(%d, %d)", read_of(a), d, d + 1);
  return done();
}

static int split_dimension(void)
{
  int a = pick(1, MAX_NDIM - 1);
  if (a < 0) return 0;
  int d = any(tensor[a].ndim), n = tensor[a].size[d], outer = any_factor(n);
  begin(with(resized(tensor[a], d, n / outer), d, outer));
  SAY(forward, "%s:unflatten(%d, %d, -1)", read_of(a), d, outer);
  return done();
}

static int stretch(void)
{
  int a = pick(1, MAX_NDIM - 1);
  if (a < 0 || elements(&tensor[a]) > MAX_ELEMENTS / 4) return 0;
  int d = any(tensor[a].ndim + 1);
  struct tensor new = with(tensor[a], d, 1 + any(4));
  begin(new);
  SAY(forward, "%s:unsqueeze(%d):expand(", read_of(a), d);
  say_sizes(&new);
  SAY(forward, "):tanh()");
  return done();
}

/* ------------------------------------------------------------------------- statements: products */

/* A parameter of the model's own: of the last dimensions of what it goes with, some of them 1. */
static int parameter(void)
{
  static const char *const between[] = {" + ", " * ", " - "};
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  SAY(init, "  self.p%d = nn.Parameter{", nparameter);
  for (int d = any(tensor[a].ndim); d < tensor[a].ndim; d++)
    SAY(init, "%d, ", any(4) ? tensor[a].size[d] : 1);
  SAY(init, "init = nn.init.uniform(0.5, 1.5)}\n");
  begin(tensor[a]);
  SAY(forward, "%s%sself.p%d", read_of(a), ANY_OF(between), nparameter++);
  return done();
}

/* A product with a parameter, with one matrix or with one for each row of the batch. */
static int product(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int last = tensor[a].ndim - 1, n = any_size();
  SAY(init, "  self.p%d = nn.Parameter{", nparameter);
  for (int d = last > 1 && any(2) ? 0 : last - 1; d < last - 1; d++)
    SAY(init, "%d, ", tensor[a].size[d]);
  SAY(init, "%d, %d, init = nn.init.normal(0, 0.5)}\n", tensor[a].size[last], n);
  begin(resized(tensor[a], last, n));
  SAY(forward, "F.matmul(%s, self.p%d)", read_of(a), nparameter++);
  return done();
}

/* Of two tensors: all rows with all rows, or all columns with all columns. */
static int rows_with_rows(void)
{
  int a = pick(2, MAX_NDIM);
  if (a < 0) return 0;
  int last = tensor[a].ndim - 1;
  const char *t = read_of(a), *u = read_of(pick_like(a));
  static const char *const batch[] = {"", "a", "ab"};
  const char *const b = batch[last - 1];
  switch (any(3)) {
  case 0:
    begin(resized(tensor[a], last, tensor[a].size[last - 1]));
    SAY(forward, "F.matmul(%s, %s:transpose(-1, -2)):tanh()", t, u);
    break;
  case 1:
    begin(resized(tensor[a], last - 1, tensor[a].size[last]));
    SAY(forward, "F.einsum(\"%skm,%skn->%smn\", %s, %s):tanh()", b, b, b, t, u);
    break;
  case 2:
    begin((struct tensor){2, {tensor[a].size[last], tensor[a].size[last]}, 0});
    SAY(forward, "F.einsum(\"%skm,%skn->nm\", %s, %s):tanh()", b, b, t, u);
    break;
  }
  return done();
}

static int embedded(void)
{
  int rows = 2 + any(9);
  struct tensor shape = {.ndim = 1 + any(2), .size = {any_size(), any_size()}};
  int size = any_size();
  begin(with(shape, shape.ndim, size));
  if (any(3)) {
    module[nmodule] = (struct module){EMBEDDING, shape.ndim + 1, 0};
    SAY(init, "  self.m%d = nn.Embedding(%d, %d)\n", nmodule, rows, size);
    SAY(forward, "self.m%d(%s)", nmodule++, input_of(shape, rows));
  } else {
    SAY(init, "  self.p%d = nn.Parameter(randn{%d, %d})\n", nparameter, rows, size);
    SAY(forward, "F.embedding(%s, self.p%d)", input_of(shape, rows), nparameter++);
  }
  return done();
}

/* -------------------------------------------------------------------------- statements: modules */

static int add_module(enum kind kind, int a, int is_list)
{
  module[nmodule] = (struct module){kind, tensor[a].ndim, is_list};
  return nmodule++;
}

static int linear(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int last = tensor[a].ndim - 1, n = any_size(), m = add_module(LINEAR, a, 0);
  SAY(init, "  self.m%d = nn.Linear(%d, %d%s)\n", m, tensor[a].size[last], n,
      any(3) ? "" : ", {bias = false}");
  begin(resized(tensor[a], last, n));
  SAY(forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

static int norm(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int first = any(3) ? tensor[a].ndim - 1 : any(tensor[a].ndim), m = add_module(NORM, a, 0);
  SAY(init, "  self.m%d = nn.%s({", m, any(2) ? "LayerNorm" : "RMSNorm");
  for (int d = first; d < tensor[a].ndim; d++) SAY(init, "%d, ", tensor[a].size[d]);
  SAY(init, "}, {eps = 0.1})\n");
  begin(tensor[a]);
  SAY(forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

/* A module for the sake of the layouts that styles ask for there. */
static int identity(void)
{
  static const char *const known[] = {"Identity()", "Tanh()", "Softmax(-1)", "Dropout(0.2)"};
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  int m = add_module(OTHER, a, 0);
  SAY(init, "  self.m%d = nn.%s\n", m, ANY_OF(known));
  begin(tensor[a]);
  SAY(forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

static int convolution(void)
{
  int a = pick(4, 4);
  if (a < 0) return 0;
  const int *s = tensor[a].size;
  int groups = any(2) ? 1 : any_factor(s[1]), out = groups * (1 + any(3)), m;
  int ky = 1 + any(3), kx = 1 + any(2), stride = 1 + any(2), pad = any(2), dilation = 1 + any(2);
  int y = s[2] + 2 * pad - dilation * (ky - 1) - 1, x = s[3] + 2 * pad - dilation * (kx - 1) - 1;
  if (y < 0 || x < 0) return 0;
  m = add_module(OTHER, a, 0);
  SAY(init,
      "  self.m%d = nn.Conv2d(%d, %d, {%d, %d}, {stride = %d, padding = %d, dilation = %d, "
      "groups = %d, bias = %s})\n",
      m, s[1], out, ky, kx, stride, pad, dilation, groups, any(2) ? "true" : "false");
  begin((struct tensor){4, {s[0], out, y / stride + 1, x / stride + 1}, 0});
  SAY(forward, "self.m%d(%s)", m, read_of(a));
  return done();
}

static int pool(void)
{
  int a = pick(3, 4);
  if (a < 0) return 0;
  int d = tensor[a].ndim - 2, ky = 1 + any(3), kx = 1 + any(3), stride = 1 + any(2);
  int pad = ky > 1 && kx > 1 && any(2);
  int y = tensor[a].size[d] + 2 * pad - ky, x = tensor[a].size[d + 1] + 2 * pad - kx;
  if (y < 0 || x < 0) return 0;
  begin(resized(resized(tensor[a], d, y / stride + 1), d + 1, x / stride + 1));
  SAY(forward, "%s:max_pool2d({%d, %d}, {stride = %d, padding = %d})", read_of(a), ky, kx, stride,
      pad);
  return done();
}

/* Queries, keys and values, each a part of one tensor [batch, sequence, width]. */
static int attention(void)
{
  int a = pick(3, 3);
  if (a < 0) return 0;
  struct tensor t = tensor[a];
  int groups = 1 + any(2), heads = groups * (1 + any(3)), size = 1 + any(4), m = nmodule;
  add_module(LINEAR, a, 0);
  SAY(init, "  self.m%d = nn.Linear(%d, %d)\n", m, t.size[2], (heads + 2 * groups) * size);
  begin(resized(t, 2, heads * size));
  SAY(forward, "attend(self.m%d(%s), %d, %d, %d, {causal = %s})", m, read_of(a), heads, groups,
      size, any(2) ? "true" : "false");
  return done();
}

/* One of the plan's own modules, or a list of equal ones, with or without something past them. */
static int blocks(void)
{
  static const char *const past[] = {"y", "t + y", "x * y:tanh()", "x + t + y"};
  static const char *const name[NKINDS] = {
      [MLP] = "Block", [GATED] = "Gated", [ATTENDING] = "Attending", [IMAGE] = "Image"};
  int a = pick(1, MAX_NDIM), is_list = any(4) > 0;
  if (a < 0) return 0;
  enum kind kind = any(2) ? MLP : GATED;
  if (tensor[a].ndim == 3 && any(2)) kind = ATTENDING;
  if (tensor[a].ndim == 4 && any(2)) kind = IMAGE;
  int width = tensor[a].size[kind == IMAGE ? 1 : tensor[a].ndim - 1], hidden = any_size();
  int m = add_module(kind, a, is_list);
  if (kind == ATTENDING) hidden = 1 + any(3);
  SAY(init, "  self.m%d = nn.ModuleList{", m);
  for (int i = 0, n = is_list ? 2 + any(2) : 1; i < n; i++)
    SAY(init, "%s%s(%d, %d)", i ? ", " : "", name[kind], width, hidden);
  SAY(init, "}\n");
  begin(tensor[a]);
  SAY(forward, "through(self.m%d, %s, function(x, t, y) return %s end)", m, read_of(a),
      ANY_OF(past));
  return done();
}

/* --------------------------------------------------------------------------- where tensors lie */

static const char *placement(int ndim)
{
  static char text[16];
  if (!any(4)) return "Replicate()";
  snprintf(text, sizeof text, "Shard(%d)", any(2) ? any(ndim) : -1 - any(ndim));
  return text;
}

/* Where several dimensions of the mesh cut the same dimension of the tensor, in either order. */
static void say_placements(int ndim)
{
  int often = any(ndim), cuts = 0, turned = any(2), is_cut[MAX_MESH];
  for (int i = 0; i < nmesh; i++) cuts += is_cut[i] = any(2);
  for (int i = 0, done = 0; i < nmesh; i++) {
    SAY(forward, "%s", i ? ", " : "");
    if (is_cut[i] && turned)
      SAY(forward, "Shard(%d, %d)", often, cuts - ++done);
    else if (is_cut[i])
      SAY(forward, "Shard(%d)", often);
    else if (!any(4))
      SAY(forward, "%s", any(2) ? "false" : "Partial()");
    else if (ndim > 1 && any(2))
      SAY(forward, "Shard(%d)", (often + 1 + any(ndim - 1)) % ndim);
    else
      SAY(forward, "Replicate()");
  }
}

static int redistributed(void)
{
  int a = pick(1, MAX_NDIM);
  if (a < 0) return 0;
  begin(tensor[a]);
  if (any(4)) {
    SAY(forward, "%s:redistribute(mesh, {", read_of(a));
    say_placements(tensor[a].ndim);
    SAY(forward, "})%s", any(2) ? ":tanh()" : "");
  } else {
    SAY(forward, "%s:redistribute(mesh.%c, %s)", read_of(a), 'a' + any(nmesh),
        placement(tensor[a].ndim));
  }
  return done();
}

/* The plan's own classes. */
static const char *const classes[NKINDS] = {
    [MLP] = "local Block = nn.module(\"Block\", function(self, width, hidden)\n"
            "  self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)\n"
            "  function self:forward(x) return self.down(self.up(x):tanh()) end\n"
            "end)\n\n",
    [GATED] = "local Gated = nn.module(\"Gated\", function(self, width, hidden)\n"
              "  local plain = {bias = false}\n"
              "  self.norm, self.drop = nn.RMSNorm(width, {eps = 0.1}), nn.Dropout(0.1)\n"
              "  self.w1, self.w3 = nn.Linear(width, hidden, plain), nn.Linear(width, hidden)\n"
              "  self.w2 = nn.Linear(hidden, width, plain)\n"
              "  function self:forward(x)\n"
              "    local h = self.norm(x)\n"
              "    return x + self.drop(self.w2(self.w1(h):silu() * self.w3(h)))\n"
              "  end\n"
              "end)\n\n",
    [ATTENDING] =
        "local Attending = nn.module(\"Attending\", function(self, width, groups)\n"
        "  self.norm = nn.LayerNorm(width, {eps = 0.1})\n"
        "  self.wq, self.wk = nn.Linear(width, 8 * groups), nn.Linear(width, 4 * groups)\n"
        "  self.wv, self.wo = nn.Linear(width, 4 * groups), nn.Linear(8 * groups, width)\n"
        "  local function heads(x) return x:unflatten(-1, -1, 4):transpose(1, 2) end\n"
        "  function self:forward(x)\n"
        "    local h = self.norm(x)\n"
        "    local cos, sin = F.rotary_tables(x:size(1), 4, 100)\n"
        "    local q, k = heads(self.wq(h)):rotary(cos, sin), heads(self.wk(h)):rotary(cos, sin)\n"
        "    local y = F.scaled_dot_product_attention(q, k, heads(self.wv(h)), {causal = true})\n"
        "    return self.wo(y:transpose(1, 2):flatten(2))\n"
        "  end\n"
        "end)\n\n",
    [IMAGE] = "local Image = nn.module(\"Image\", function(self, channels, hidden)\n"
              "  self.norm = nn.Conv2d(channels, hidden, 3, {padding = 1})\n"
              "  self.pool = nn.MaxPool2d(3, {stride = 1, padding = 1})\n"
              "  self.back = nn.Conv2d(hidden, channels, 1)\n"
              "  function self:forward(x) return self.back(self.pool(self.norm(x):gelu())) end\n"
              "end)\n\n"};

/* Their modules, for which there are styles. */
static const struct {
  const char *name;
  enum kind kind;
} members[NKINDS][6] = {
    [MLP] = {{"up", LINEAR}, {"down", LINEAR}},
    [GATED] = {{"norm", NORM}, {"w1", LINEAR}, {"w3", LINEAR}, {"w2", LINEAR}, {"drop", OTHER}},
    [ATTENDING] = {{"norm", NORM}, {"wq", LINEAR}, {"wk", LINEAR}, {"wv", LINEAR}, {"wo", LINEAR}},
    [IMAGE] = {{"norm", OTHER}, {"pool", OTHER}, {"back", OTHER}},
};

/* ----------------------------------------------------------------------------------- the styles */

static void put_prepare_style(const char *path, int ndim)
{
  const char *form = any(2) ? "  [\"%s\"] = PrepareModuleInput{desired_input_layouts = %s},\n"
                            : "  [\"%s\"] = PrepareModuleOutput{desired_output_layouts = %s},\n";
  printf(form, path, placement(ndim));
}

static void put_divided_style(const char *path, int ndim, int rowwise)
{
  printf("  [\"%s\"] = %s{", path, rowwise ? "Rowwise" : "Colwise");
  if (!any(8) && rowwise)
    printf("output_layouts = Partial()");
  else if (any(2))
    printf("output_layouts = %s", placement(ndim));
  printf("},\n");
}

static void put_style(const char *path, enum kind kind, int ndim, int rowwise)
{
  if ((kind == LINEAR || kind == EMBEDDING) && any(8))
    put_divided_style(path, ndim, rowwise);
  else if (kind == NORM && any(3))
    printf("  [\"%s\"] = SequenceParallel{sequence_dim = %d},\n", path, any(ndim));
  else if (kind != EMBEDDING)
    put_prepare_style(path, ndim);
}

/* What the modules, or the modules in them, are to be over one dimension of the mesh. */
static void put_styles(char dimension)
{
  printf("parallelize(model, mesh.%c, {\n", dimension);
  for (int i = 0; i < nmodule; i++) {
    const struct module *m = &module[i];
    char path[32];
    int rowwise = any(2), other = any(4) ? !rowwise : rowwise;
    if (!any(4)) continue;
    snprintf(path, sizeof path, "m%d", i);
    if (m->kind < MLP) {
      put_style(path, m->kind, m->ndim, rowwise);
      continue;
    }
    if (!any(5)) {
      snprintf(path, sizeof path, "m%d.*", i);
      put_prepare_style(path, m->ndim);
    }
    for (int k = 0; members[m->kind][k].name; k++) {
      int is_last = !members[m->kind][k + 1].name || members[m->kind][k + 1].kind != LINEAR;
      snprintf(path, sizeof path, "m%d.*.%s", i, members[m->kind][k].name);
      if (members[m->kind][k].kind == LINEAR || !any(2))
        put_style(path, members[m->kind][k].kind, m->ndim, is_last ? other : rowwise);
    }
  }
  printf("})\n");
}

/* --------------------------------------------------------------------------------------- units */

/* The dimensions of the mesh that cut the parameters of units, and that have copies; -1: none. */
static int unit_cut = -1, unit_copies = -1;

/* Of half of all plans. */
static void choose_units(void)
{
  if (any(2)) return;
  unit_cut = any(nmesh);
  if (nmesh > 1 && !any(3)) unit_copies = (unit_cut + 1) % nmesh;
}

static void put_unit(const char *modules)
{
  printf("fully_shard(%s, mesh{", modules);
  if (unit_copies >= 0) printf("\"%c\", ", 'a' + unit_copies);
  printf("\"%c\"}, {reshard_after_forward = %s", 'a' + unit_cut, any(3) ? "true" : "false");
  if (!any(4)) printf(", shard_dim = -1");
  printf("})\n");
}

/* Some modules, the members of some lists, and perhaps the rest. */
static void put_units(void)
{
  char list[1 << 10] = "";
  for (int i = 0; i < nmodule; i++) {
    char one[64];
    snprintf(one, sizeof one, "%s.m%d", "model", i);
    if (module[i].kind >= MLP) {
      printf("for _, part in ipairs(%s) do ", one);
      put_unit("part");
      printf("end\n");
    } else if (!any(3)) {
      snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", one);
    } else if (any(2)) {
      put_unit(one);
    }
  }
  if (*list) {
    char modules[sizeof list + 2];
    snprintf(modules, sizeof modules, "{%s}", list);
    put_unit(modules);
  }
  if (any(4)) put_unit("model");
}

/* ------------------------------------------------------------------------------------ the whole */

static void make_model(void)
{
  static int (*const statement[])(void) = {
      elementwise,     elementwise,  elementwise,   dropout,
      along,           along,        along,         variance,
      reduction,       part,         part,          join,
      triangle,        permute,      reshape,       merge,
      split_dimension, stretch,      parameter,     product,
      rows_with_rows,  embedded,     linear,        linear,
      linear,          norm,         identity,      convolution,
      convolution,     pool,         attention,     blocks,
      blocks,          blocks,       redistributed, redistributed,
      redistributed,   redistributed};
  tensor[0].ndim = 2 + any(3);
  do
    for (int d = 0; d < tensor[0].ndim; d++) tensor[0].size[d] = any_size();
  while (elements(&tensor[0]) > MAX_ELEMENTS);
  tensor[1] = tensor[0];
  ntensor = 2;
  for (int i = 0; i < 2; i++) input[ninput++].shape = tensor[i];
  linear();
  for (int n = ntensor + 3 + any(MAX_STATEMENTS - 3); ntensor < n;) {
    struct tensor *last = &tensor[ntensor];
    size_t length = strlen(forward), made = strlen(init);
    int reads[MAX_TENSORS], modules = nmodule, parameters = nparameter, inputs = ninput;
    for (int i = 0; i < ntensor; i++) reads[i] = tensor[i].reads;
    if (ANY_OF(statement)() && last->ndim > 0 && elements(last) <= MAX_ELEMENTS) continue;
    /* What does not fit is taken back. */
    ntensor = (int)(last - tensor);
    forward[length] = init[made] = '\0';
    nmodule = modules;
    nparameter = parameters;
    ninput = inputs;
    for (int i = 0; i < ntensor; i++) tensor[i].reads = reads[i];
  }
}

static void choose_mesh(void)
{
  static const int sizes[][MAX_MESH] = {{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {2, 2, 1},
                                        {2, 3, 1}, {3, 2, 1}, {5, 1, 1}, {2, 2, 2},
                                        {2, 2, 1}, {3, 1, 1}, {2, 1, 1}, {6, 1, 1}};
  const int *size = ANY_OF(sizes);
  for (nmesh = 0; nmesh < MAX_MESH && size[nmesh] > 1; nmesh++) mesh[nmesh] = size[nmesh];
}

static void put_mesh(void)
{
  printf("-- mesh:");
  for (int d = 0; d < nmesh; d++) printf(" %c=%d", 'a' + d, mesh[d]);
  printf("\nlocal mesh = device_mesh{");
  for (int d = 0; d < nmesh; d++)
    printf("%s{\"%c\", args.%c or 1}", d ? ", " : " ", 'a' + d, 'a' + d);
  printf(" }\n\n");
}

static void put_sizes(const struct tensor *t)
{
  printf("{");
  for (int d = 0; d < t->ndim; d++) printf("%s%d", d ? ", " : "", t->size[d]);
  printf("}");
}

static void put_batch(void)
{
  printf("local batch = {\n");
  for (int i = 0; i < ninput; i++) {
    printf("  i%d = ", i);
    if (input[i].below)
      printf("randint(%d)", input[i].below);
    else
      printf("randn");
    put_sizes(&input[i].shape);
    printf(",\n");
  }
  printf("}\n");
  for (int d = 0; d < nmesh; d++)
    for (int i = 0; i < ninput; i++)
      if (any(4))
        printf("distribute(batch.i%d, mesh.%c, %s)\n", i, 'a' + d, placement(input[i].shape.ndim));
}

static void put_classes(void)
{
  int used[NKINDS] = {0};
  for (int i = 0; i < nmodule; i++)
    if (!used[module[i].kind]++ && classes[module[i].kind]) printf("%s", classes[module[i].kind]);
  if (strstr(forward, "through("))
    printf("local function through(blocks, x, past)\n"
           "  local t = x\n"
           "  for _, block in ipairs(blocks) do t = past(x, t, block(t)) end\n"
           "  return t\n"
           "end\n\n");
  if (strstr(forward, "turned("))
    printf("local function turned(x, dim, ...)\n"
           "  local parts = {...}\n"
           "  table.insert(parts, 1, table.remove(parts))\n"
           "  return x + F.cat(parts, dim)\n"
           "end\n\n");
  if (strstr(forward, "attend("))
    printf("local function attend(x, heads, groups, size, options)\n"
           "  local q, k, v = x:split({heads * size, groups * size, groups * size}, -1)\n"
           "  local function apart(t) return t:unflatten(-1, -1, size):transpose(1, 2) end\n"
           "  local y = F.scaled_dot_product_attention(apart(q), apart(k), apart(v), options)\n"
           "  return y:transpose(1, 2):flatten(2)\n"
           "end\n\n");
}

/* What nothing has read yet, each with a say in the loss. */
static void say_loss(void)
{
  SAY(forward, "    local loss = 0\n");
  for (int i = 0; i < ntensor; i++) {
    struct tensor *t = &tensor[i];
    if (t->reads) continue;
    int last = t->ndim - 1;
    SAY(forward, "    loss = loss + ");
    switch (any(t->ndim > 1 ? 4 : 2)) {
    case 0:
      SAY(forward, "(t%d^2):mean()\n", i);
      break;
    case 1:
      SAY(forward, "((t%d - 0.5)^2):sum(%d):mean() * 0.2\n", i, any(t->ndim));
      break;
    case 2:
      SAY(forward, "F.cross_entropy(t%d, %s%s)\n", i, input_of(without(*t, last), t->size[last]),
          any(2) ? "" : ", {reduction = \"none\"}):mean(");
      break;
    case 3:
      SAY(forward,
          "F.nll_loss(t%d:log_softmax(), %s, {ignore_index = 0, reduction = \"sum\"}) * 0.1\n", i,
          input_of(without(*t, last), t->size[last]));
      break;
    }
  }
  SAY(forward, "    return loss\n");
}

static void say_outputs(void)
{
  SAY(forward, "    return {\n");
  for (int i = 0; i < ntensor; i++) {
    if (tensor[i].reads) continue;
    SAY(forward, "      t%d = t%d,\n", i, i);
    int d = any(tensor[i].ndim);
    if (!any(3) && tensor[i].ndim > 1) SAY(forward, "      best%d = t%d:argmax(%d),\n", i, i, d);
    if (!any(3)) SAY(forward, "      large%d = t%d:gt(0.3),\n", i, i);
    if (!any(3)) SAY(forward, "      count%d = t%d:gt(0.3):sum(%d),\n", i, i, d);
  }
  SAY(forward, "    }\n");
}

static const char *any_optimizer(void)
{
  static const char *const list[] = {"SGD{lr = 0.05}", "SGD{lr = 0.05}",
                                     "AdamW{lr = 0.01, eps = 1e-2}",
                                     "SGD{lr = 0.02, momentum = 0.9, weight_decay = 0.01}",
                                     "SGD{lr = 0.02, momentum = 0.5, nesterov = true}"};
  return list[any(sizeof list / sizeof *list)];
}

/* Each batch of a step is the same one, but for what dropouts leave of it. */
static void put_training(const char *seed)
{
  printf("\nreturn train{\n  model = model, batch = batch,\n"
         "  forward = function(model, batch) return model(batch) end,\n"
         "  loss = function(output) return output end,\n"
         "  optimizer = %s,\n  steps = 3, seed = %s,\n",
         any_optimizer(), seed);
  if (!any(3)) printf("  clip = %s,\n", any(2) ? "0.5" : "100");
  if (!any(3)) printf("  accumulate = %d,\n", 2 + any(2));
  if (!any(3)) printf("  schedule = WarmupCosine{warmup = %d, least = 0.5},\n", any(3));
  printf("}\n");
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: random_plan SEED\n");
    return 2;
  }
  state = strtoull(argv[1], NULL, 10) * UINT64_C(0xd1342543de82ef95);
  choose_mesh();
  make_model();
  int infers = !any(6);
  if (infers)
    say_outputs();
  else
    say_loss();
  put_mesh();
  put_classes();
  printf("local Model = nn.module(\"Model\", function(self)\n%s"
         "  function self:forward(b)\n    local t0, t1 = b.i0, b.i1\n%s  end\nend)\n\n"
         "local model = Model()\n",
         init, forward);
  choose_units();
  for (int d = 0; d < nmesh; d++)
    if (d != unit_cut && d != unit_copies) put_styles((char)('a' + d));
  if (unit_cut >= 0) put_units();
  put_batch();
  if (infers)
    printf("\nreturn infer{\n  model = model, batch = batch, seed = %s,\n"
           "  outputs = function(model, batch) return model(batch) end,\n}\n",
           argv[1]);
  else
    put_training(argv[1]);
  return 0;
}
