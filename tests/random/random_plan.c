/* random_plan SEED [RANKS [auto]]: a plan that trains a random small model in a random way, or
   computes with it, for random.sh and equal.sh, with the mesh to try it on in a line
   `-- mesh: a=2 b=3`: of at most 16 ranks, and 64 now and then. Where RANKS is given it has at most
   so many, and nothing is rounded to bfloat16: ranks can be compared with one. A line
   `-- rounds: bfloat16` says that something is. auto: in the place of styles it has auto().

   A forward is a list of statements, each of which makes one more tensor from those that are there
   (tensors.c, statements.c, products.c, modules.c, layouts.c); what no statement reads goes into
   the loss, or is an output. Values stay near one and the loss is a sum of squares, so that little
   cancels and a wrong number shows.  */
#include "random.h"

#include "../tools/splitmix64.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scope now;
struct input input[MAX_INPUTS];
int ninput, mesh[MAX_MESH], nmesh, rounds, is_even, is_exact;
const char *type = "float32";
static uint64_t state;

/* 0 ... n - 1. */
int any(int n)
{
  return (int)(splitmix64(&state) >> 33) % n;
}

int any_size(void)
{
  static const int sizes[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 13}, even[] = {1, 2, 4, 8, 8, 16};
  return is_even ? ANY_OF(even) : ANY_OF(sizes);
}

/* ------------------------------------------------------------------------------------ the model */

void say_statements(int n, int has_blocks)
{
  static int (*const statement[])(void) = {
      elementwise,   elementwise,   elementwise,   dropout,
      along,         along,         along,         variance,
      reduction,     part,          join,          triangle,
      permute,       reshape,       merge,         split_dimension,
      stretch,       parameter,     product,       rows_with_rows,
      embedded,      linear,        linear,        linear,
      norm,          norm,          identity,      convolution,
      convolution,   pool,          attention,     redistributed,
      redistributed, redistributed, redistributed, redistributed,
      blocks,        blocks,        blocks,        own_blocks,
      own_blocks};
  for (n += now.ntensor; now.ntensor < n;) {
    struct tensor *last = &now.tensor[now.ntensor];
    size_t length = strlen(now.forward), made = strlen(now.init);
    int reads[MAX_TENSORS], modules = now.nmodule, parameters = now.nparameter, inputs = ninput;
    int owns = nown, rounded = rounds;
    for (int i = 0; i < now.ntensor; i++) reads[i] = now.tensor[i].reads;
    if (statement[any(COUNT(statement) - (has_blocks ? 0 : 2))]() && last->ndim > 0 &&
        elements(last) <= MAX_ELEMENTS)
      continue;
    /* What does not fit is taken back. */
    now.ntensor = (int)(last - now.tensor);
    now.forward[length] = now.init[made] = '\0';
    now.nmodule = modules;
    now.nparameter = parameters;
    ninput = inputs;
    nown = owns;
    rounds = rounded;
    for (int i = 0; i < now.ntensor; i++) now.tensor[i].reads = reads[i];
  }
}

static void make_model(void)
{
  now.tensor[0].ndim = 2 + any(3);
  do
    for (int d = 0; d < now.tensor[0].ndim; d++) now.tensor[0].size[d] = any_size();
  while (elements(&now.tensor[0]) > MAX_ELEMENTS);
  now.tensor[1] = now.tensor[0];
  now.ntensor = 2;
  for (int i = 0; i < 2; i++) input[ninput++].shape = now.tensor[i];
  linear();
  say_statements(3 + any(MAX_STATEMENTS - 3), 1);
}

/* ------------------------------------------------------------------------- the mesh and the batch
 */

/* Half of all meshes are plain ones; the others have up to six dimensions, some of them of one
   rank. */
static void choose_mesh(int ranks)
{
  static const int plain[][MAX_MESH] = {{2}, {3}, {4}, {2, 2}, {2, 3}, {3, 2}, {5}, {2, 2, 2}, {6}};
  static const int sizes[] = {1, 2, 2, 2, 2, 3, 3, 4};
  if (any(2)) {
    const int *size = ANY_OF(plain);
    while (nmesh < MAX_MESH && size[nmesh] > 0) mesh[nmesh] = size[nmesh], nmesh++;
  } else {
    nmesh = 1 + any(MAX_MESH);
    for (int d = 0; d < nmesh; d++) mesh[d] = ANY_OF(sizes);
  }
  for (int d = 0, world = 1; d < nmesh; world *= mesh[d++])
    while (world * mesh[d] > ranks) mesh[d] = mesh[d] > 2 ? 2 : 1;
}

static void put_mesh(void)
{
  printf("-- mesh:");
  for (int d = 0; d < nmesh; d++) printf(" %c=%d", 'a' + d, mesh[d]);
  printf("\nlocal mesh = device_mesh{");
  for (int d = 0; d < nmesh; d++)
    printf("%s{\"%c\", args.%c or 1}", d ? ", " : " ", 'a' + d, 'a' + d);
  printf("%s }\n\n", any(4) ? "" : ", device = \"H100\"");
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

/* ------------------------------------------------------------------------------ what it is for */

/* Whether the targets' shape tells which dimension is of the classes: the last, not dimension 1. */
static int has_classes_last(const struct tensor *t)
{
  int differ = t->ndim == 2;
  for (int d = 1; d + 1 < t->ndim; d++) differ |= t->size[d] != t->size[d + 1];
  return differ;
}

/* What nothing has read yet, each with a say in the loss. */
static void say_loss(void)
{
  SAY(now.forward, "    local loss = 0\n");
  for (int i = 0; i < now.ntensor; i++) {
    struct tensor *t = &now.tensor[i];
    char x[32];
    if (t->reads) continue;
    int last = t->ndim - 1;
    SAY(now.forward, "    loss = loss + ");
    snprintf(x, sizeof x, strcmp(type, "float32") ? "t%d:to(\"float32\")" : "t%d", i);
    switch (any(has_classes_last(t) ? 4 : 2)) {
    case 0:
      SAY(now.forward, "(%s^2):mean()\n", x);
      break;
    case 1:
      SAY(now.forward, "((%s - 0.5)^2):sum(%d):mean() * 0.2\n", x, any(t->ndim));
      break;
    case 2:
      SAY(now.forward, "F.cross_entropy(t%d, %s%s)\n", i,
          input_of(without(*t, last), t->size[last]),
          any(2) ? "" : ", {reduction = \"none\"}):mean(");
      break;
    case 3:
      SAY(now.forward,
          "F.nll_loss(t%d:log_softmax(-1), %s, {ignore_index = 0, reduction = \"sum\"}) * 0.1\n", i,
          input_of(without(*t, last), t->size[last]));
      break;
    }
  }
  SAY(now.forward, "    return loss\n");
}

static void say_outputs(void)
{
  SAY(now.forward, "    return {\n");
  for (int i = 0; i < now.ntensor; i++) {
    if (now.tensor[i].reads) continue;
    SAY(now.forward, "      t%d = t%d,\n", i, i);
    int d = any(now.tensor[i].ndim);
    if (!any(3) && now.tensor[i].ndim > 1)
      SAY(now.forward, "      best%d = t%d:argmax(%d),\n", i, i, d);
    if (!any(3)) SAY(now.forward, "      large%d = t%d:gt(0.3),\n", i, i);
    if (!any(3)) SAY(now.forward, "      count%d = t%d:gt(0.3):sum(%d),\n", i, i, d);
  }
  SAY(now.forward, "    }\n");
}

static const char *any_optimizer(void)
{
  static const char *const list[] = {"SGD{lr = 0.05}", "SGD{lr = 0.05}",
                                     "AdamW{lr = 0.01, eps = 1e-2}",
                                     "SGD{lr = 0.02, momentum = 0.9, weight_decay = 0.01}",
                                     "SGD{lr = 0.02, momentum = 0.5, nesterov = true}"};
  return list[any(sizeof list / sizeof *list)];
}

/* How moves are planned, what travels together and what ahead. */
static void put_choices(void)
{
  static const char *const buckets[] = {"bucketing = \"greedy\"", "bucketing = \"none\"",
                                        "bucket_mb = 0.0001", "bucket_mb = {0.0001, 0.001}"};
  if (!any(4)) printf("  planner = \"greedy\",\n");
  if (!any(4)) printf("  %s,\n", ANY_OF(buckets));
  if (!any(8)) printf("  prefetch = %d,\n", any(8) ? 0 : 1 + any(2));
  if (!any(8)) printf("  matmul_precision = \"tf32\",\n");
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
  if (!any(3)) {
    printf("  accumulate = %d,\n", 2 + any(2));
    if (!any(2)) printf("  reduce_each_batch = %s,\n", any(2) ? "true" : "false");
  }
  if (!any(3)) printf("  schedule = WarmupCosine{warmup = %d, least = 0.5},\n", any(3));
  if (!any(3) && strstr(now.init, "ModuleList")) printf("  checkpoint = \"layer\",\n");
  put_choices();
  printf("}\n");
}

int main(int argc, char **argv)
{
  const int is_automatic = argc == 4 && !strcmp(argv[3], "auto");
  if (argc < 2 || argc > 4 || (argc == 4 && !is_automatic)) {
    fprintf(stderr, "usage: random_plan SEED [RANKS [auto]]\n");
    return 2;
  }
  state = strtoull(argv[1], NULL, 10) * UINT64_C(0xd1342543de82ef95);
  choose_mesh(argc > 2 ? atoi(argv[2]) : any(8) ? 16 : 64);
  is_even = !any(3);
  is_exact = argc > 2;
  if (!any(6) && !is_exact) {
    type = "bfloat16";
    rounds = 1;
  }
  make_model();
  int infers = !any(6);
  if (infers)
    say_outputs();
  else
    say_loss();
  put_mesh();
  put_classes();
  const char *cast = strcmp(type, "float32") ? ":to(\"bfloat16\")" : "";
  printf("local Model = nn.module(\"Model\", function(self)\n%s"
         "  function self:forward(batch)\n    b = batch\n    local t0, t1 = b.i0%s, b.i1%s\n%s"
         "  end\nend)\n\nlocal model = Model()\n",
         now.init, cast, cast, now.forward);
  (is_automatic ? put_automatic : put_styles)();
  put_batch();
  if (infers) {
    printf("\nreturn infer{\n  model = model, batch = batch, seed = %s,\n"
           "  outputs = function(model, batch) return model(batch) end,\n",
           argv[1]);
    put_choices();
    printf("}\n");
  } else {
    put_training(argv[1]);
  }
  if (rounds) printf("-- rounds: bfloat16\n");
  return 0;
}
