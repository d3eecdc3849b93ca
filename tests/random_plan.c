/* random_plan SEED: a plan that trains a random small model in a random way, for tests/equal.sh,
   with the mesh to try it on in a line `-- mesh: a=2 b=3`. Its forward is a list of statements,
   each of which makes one more tensor from those that are there; what no statement reads goes into
   the loss. Values stay near one and the loss is a sum of squares, so that little cancels and a
   wrong number shows.  */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NDIM = 3, MAX_STATEMENTS = 12, MAX_TENSORS = MAX_STATEMENTS + 3, MAX_MESH = 3 };

struct tensor {
  int ndim, size[MAX_NDIM];
  int reads;
};

/* A Linear, or a list of blocks, each of an `up` and a `down`. */
struct module {
  int ndim; /* of what it takes and makes */
  int is_list;
};

static struct tensor tensor[MAX_TENSORS];
static struct module module[MAX_STATEMENTS + 1];
static int ntensor, nmodule, nparameter;
static char init[1 << 12], forward[1 << 12];
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

/* Adds to `init` or `forward`. */
#define SAY(text, ...)                                                                             \
  (void)snprintf((text) + strlen(text), sizeof(text) - strlen(text), __VA_ARGS__)

/* ------------------------------------------------------------------------------- the statements */

/* A tensor there is, the latest more often than the others. */
static int pick(void)
{
  int i = any(2) ? ntensor - 1 : any(ntensor);
  tensor[i].reads++;
  return i;
}

/* Adds a tensor of the shape of another, and begins the statement that makes it. */
static struct tensor *make(int like)
{
  struct tensor *t = &tensor[ntensor];
  *t = tensor[like];
  t->reads = 0;
  SAY(forward, "    local t%d = ", ntensor++);
  return t;
}

static void unary(void)
{
  static const char *const before[] = {"", "", "", "", "-", "", "", "", "1 - ", "", "1 / (1.5 + "};
  static const char *const after[] = {":tanh()", ":sigmoid()", ":silu()",       ":relu()",
                                      "",        " * 0.7",     ":tanh():exp()", ":tanh()^2",
                                      "",        " / 3 + 0.5", ":tanh())"};
  int a = pick(), i = any(11);
  make(a);
  SAY(forward, "%st%d%s\n", before[i], a, after[i]);
}

static int same_shape(const struct tensor *a, const struct tensor *b)
{
  return a->ndim == b->ndim && !memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size);
}

static void binary(void)
{
  static const char *const between[] = {" + ", " - ", ":tanh() * ", " / (1 + "};
  int a = pick(), same[MAX_TENSORS], n = 0, i = any(4);
  for (int b = 0; b < ntensor; b++)
    if (same_shape(&tensor[a], &tensor[b])) same[n++] = b;
  int b = same[any(n)];
  tensor[b].reads++;
  make(a);
  SAY(forward, "t%d%st%d%s\n", a, between[i], b, i == 3 ? "^2)" : "");
}

/* A tensor with its own mean, sum or variance over one dimension or two. */
static void reduction(void)
{
  int a = pick(), d = any(tensor[a].ndim), e = any(tensor[a].ndim);
  char dims[32];
  if (d == e)
    snprintf(dims, sizeof dims, "%d", any(2) ? d : d - tensor[a].ndim);
  else
    snprintf(dims, sizeof dims, "{%d, %d}", d, e);
  make(a);
  switch (any(tensor[a].size[d] > 1 ? 4 : 3)) {
  case 0:
    SAY(forward, "t%d - t%d:mean(%s, true)\n", a, a, dims);
    break;
  case 1:
    SAY(forward, "t%d * t%d:mean(%s, true):tanh()\n", a, a, dims);
    break;
  case 2:
    SAY(forward, "t%d + (t%d:sum(%s, true) * 0.1):tanh()\n", a, a, dims);
    break;
  case 3:
    SAY(forward, "t%d / (t%d:var(%s, true) + 1)\n", a, a, dims);
    break;
  }
}

/* A parameter of the model's own: of the last dimensions of what it goes with, some of them 1. */
static void parameter(void)
{
  static const char *const between[] = {" + ", " * ", " - "};
  int a = pick(), from = any(tensor[a].ndim);
  SAY(init, "  self.p%d = nn.Parameter{", nparameter);
  for (int d = from; d < tensor[a].ndim; d++) SAY(init, "%d, ", any(4) ? tensor[a].size[d] : 1);
  SAY(init, "init = nn.init.uniform(0.5, 1.5)}\n");
  make(a);
  SAY(forward, "t%d%sself.p%d\n", a, between[any(3)], nparameter++);
}

/* A product with a parameter, with one matrix or with one for each row of the batch. */
static void product(void)
{
  int a = pick(), last = tensor[a].ndim - 1, n = any_size();
  SAY(init, "  self.p%d = nn.Parameter{", nparameter);
  for (int d = last == 2 && any(2) ? 0 : 1; d < last - 1; d++) SAY(init, "%d, ", tensor[a].size[d]);
  SAY(init, "%d, %d, init = nn.init.normal(0, 0.5)}\n", tensor[a].size[last], n);
  make(a)->size[last] = n;
  SAY(forward, "F.matmul(t%d, self.p%d)\n", a, nparameter++);
}

static void linear(void)
{
  int a = pick(), last = tensor[a].ndim - 1, n = any_size();
  module[nmodule] = (struct module){.ndim = last + 1};
  SAY(init, "  self.m%d = nn.Linear(%d, %d%s)\n", nmodule, tensor[a].size[last], n,
      any(3) ? "" : ", {bias = false}");
  make(a)->size[last] = n;
  SAY(forward, "self.m%d(t%d)\n", nmodule++, a);
}

/* Equal blocks one after the other, with or without something past them. */
static void blocks(void)
{
  static const char *const past[] = {"", "t + ", "x * ", "x + t + "};
  int a = pick(), last = tensor[a].ndim - 1, dim = tensor[a].size[last], hidden = any_size();
  module[nmodule] = (struct module){.ndim = last + 1, .is_list = 1};
  SAY(init, "  self.m%d = nn.ModuleList{", nmodule);
  for (int i = 0, n = 2 + any(2); i < n; i++)
    SAY(init, "%sBlock(%d, %d)", i ? ", " : "", dim, hidden);
  SAY(init, "}\n");
  make(a);
  SAY(forward, "through(self.m%d, t%d, function(x, t, y) return %sy end)\n", nmodule++, a,
      past[any(4)]);
}

/* ----------------------------------------------------------------------------------- the styles */

static const char *placement(int ndim)
{
  static char text[16];
  if (!any(3)) return "Replicate()";
  snprintf(text, sizeof text, "Shard(%d)", any(2) ? any(ndim) : -1 - any(ndim));
  return text;
}

static void put_linear_style(const char *path, int ndim, int rowwise)
{
  printf("  [\"%s\"] = %s{", path, rowwise ? "Rowwise" : "Colwise");
  if (!any(8) && rowwise)
    printf("output_layouts = Partial()");
  else if (any(2))
    printf("output_layouts = %s", placement(ndim));
  printf("},\n");
}

static void put_prepare_style(const char *path, int ndim)
{
  const char *form = any(2) ? "  [\"%s\"] = PrepareModuleInput{desired_input_layouts = %s},\n"
                            : "  [\"%s\"] = PrepareModuleOutput{desired_output_layouts = %s},\n";
  printf(form, path, placement(ndim));
}

/* What the module's Linears, or the module itself, are to be over one dimension of the mesh. */
static void put_styles(char mesh)
{
  printf("parallelize(model, mesh.%c, {\n", mesh);
  for (int i = 0; i < nmodule; i++) {
    char path[32];
    int first = any(2), second = any(4) ? !first : first;
    if (!any(4)) continue;
    snprintf(path, sizeof path, module[i].is_list ? "m%d.*" : "m%d", i);
    if (!any(5)) {
      put_prepare_style(path, module[i].ndim);
      if (!module[i].is_list) continue;
    }
    if (module[i].is_list) snprintf(path, sizeof path, "m%d.*.up", i);
    put_linear_style(path, module[i].ndim, first);
    if (!module[i].is_list) continue;
    snprintf(path, sizeof path, "m%d.*.down", i);
    put_linear_style(path, module[i].ndim, second);
  }
  printf("})\n");
}

/* ------------------------------------------------------------------------------------ the whole */

static void make_model(void)
{
  static void (*const statement[])(void) = {unary,     binary,    linear,  linear,
                                            parameter, reduction, product, blocks};
  tensor[0].ndim = 2 + any(2);
  for (int d = 0; d < tensor[0].ndim; d++) tensor[0].size[d] = any_size();
  tensor[1] = tensor[0];
  ntensor = 2;
  linear();
  for (int i = 0, n = 3 + any(MAX_STATEMENTS - 3); i < n; i++) statement[any(8)]();
}

static int put_mesh(void)
{
  static const int sizes[][MAX_MESH] = {{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 3, 1},
                                        {3, 2, 1}, {5, 1, 1}, {2, 2, 2}, {2, 2, 1}, {3, 1, 1}};
  const int *size = sizes[any(10)];
  int ndim = 0;
  printf("-- mesh:");
  while (ndim < MAX_MESH && size[ndim] > 1) {
    printf(" %c=%d", 'a' + ndim, size[ndim]);
    ndim++;
  }
  printf("\nlocal mesh = device_mesh{");
  for (int d = 0; d < ndim; d++)
    printf("%s{\"%c\", args.%c or 1}", d ? ", " : " ", 'a' + d, 'a' + d);
  printf(" }\n");
  return ndim;
}

static void put_batch(int nmesh)
{
  printf("local batch = {");
  for (int i = 0; i < 2; i++) {
    printf("%s = randn{", i ? ", other" : "input");
    for (int d = 0; d < tensor[i].ndim; d++) printf("%s%d", d ? ", " : "", tensor[i].size[d]);
    printf("}");
  }
  printf("}\n");
  for (int d = 0; d < nmesh; d++)
    for (int i = 0; i < 2; i++)
      if (any(2))
        printf("distribute(batch.%s, mesh.%c, %s)\n", i ? "other" : "input", 'a' + d,
               placement(tensor[i].ndim));
}

static void put_model(void)
{
  printf("local Block = nn.module(\"Block\", function(self, dim, hidden)\n"
         "  self.up = nn.Linear(dim, hidden)\n"
         "  self.down = nn.Linear(hidden, dim, {bias = %s})\n"
         "  function self:forward(x) return self.down(self.up(x):%s()) end\n"
         "end)\n\n"
         "local function through(blocks, x, past)\n"
         "  local t = x\n"
         "  for _, block in ipairs(blocks) do t = past(x, t, block(t)) end\n"
         "  return t\n"
         "end\n\n",
         any(2) ? "true" : "false", any(2) ? "tanh" : "silu");
  printf("local Model = nn.module(\"Model\", function(self)\n%s"
         "  function self:forward(t0, t1)\n%s    local loss = 0\n",
         init, forward);
  for (int i = 0; i < ntensor; i++) {
    if (tensor[i].reads) continue;
    if (any(2))
      printf("    loss = loss + (t%d^2):mean()\n", i);
    else
      printf("    loss = loss + ((t%d - 0.5)^2):sum(%d):mean() * 0.2\n", i, any(tensor[i].ndim));
  }
  printf("    return loss\n  end\nend)\n\n");
}

int main(int argc, char **argv)
{
  if (argc != 2) {
    fprintf(stderr, "usage: random_plan SEED\n");
    return 2;
  }
  state = strtoull(argv[1], NULL, 10) * UINT64_C(0xd1342543de82ef95);
  make_model();
  int nmesh = put_mesh();
  put_model();
  printf("local model = Model()\n");
  for (int d = 0; d < nmesh; d++) put_styles((char)('a' + d));
  put_batch(nmesh);
  printf("\nreturn train{\n  model = model, batch = batch,\n"
         "  forward = function(model, batch) return model(batch.input, batch.other) end,\n"
         "  loss = function(output) return output end,\n"
         "  optimizer = %s,\n  steps = 3, seed = %s,\n}\n",
         any(3) ? "SGD{lr = 0.05}" : "AdamW{lr = 0.01, eps = 1e-2}", argv[1]);
  return 0;
}
