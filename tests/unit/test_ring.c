/* Attention that goes around a ring, by force: random sizes, options and layouts on several meshes,
   even, uneven and with empty parts. The program after the pass `ring` is run on simulated ranks.
   Its output, the logarithms of its rows' sums and the gradients of its queries, keys, values and
   sinks must be those of one rank, and no rank may gather keys or values. */
#include "check/check.h"
#include "force.h"

#include <inttypes.h>
#include <sys/mman.h>

/* What the children count. */
static struct count {
  int programs, steps;
} * count;

struct job {
  const char *mesh;
  int ring; /* the dimension of the mesh */
};

enum { MOST = 16 };
static struct root {
  int value;
  struct array whole;
} root[MOST];
static int nroot;
static const char *tried; /* what is tried, in words */
static int result[2];     /* copies of what attention gives */

static int add_root(enum role role, enum type type, struct shape shape, struct layout layout,
                    struct array whole)
{
  int v = given(role, text("x%d", nroot), shape, layout);
  graph->value[v].type = type;
  root[nroot++] = (struct root){v, whole};
  return v;
}

static int placed(int value, int mesh_dim, struct placement p)
{
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .asked = 1u << mesh_dim,
                  .module = NONE,
                  .line = 3,
                  .why = "the test"};
  op.to.on[mesh_dim] = p;
  return append_op(op);
}

/* A tensor [batch, heads, sequence, size]: cut by its sequence along the ring, else by anything. */
static int add_heads(struct shape shape, const struct job *job, struct layout others)
{
  struct layout layout = others;
  layout.on[job->ring] = S(2);
  return add_root(PARAMETER, F32, shape, layout, random_array(shape));
}

/* What goes by keys: its blocks, gathered. */
static int keys_of(int value, const struct job *job, int dim)
{
  return placed(placed(value, job->ring, S(dim)), job->ring, R);
}

static struct array numbers_of(struct shape shape, int below, bool rises)
{
  struct array x = zeros(shape);
  for (int64_t i = 0, n = elements(shape); i < n; i++)
    x.at[i] = rises ? (double)(i % shape.size[shape.ndim - 1] * below / shape.size[shape.ndim - 1])
                    : draw_below(below);
  return x;
}

/* The places of tokens in head-tail order over so many ranks: each has as many at the head of the
   sequence as at its tail, or one more. */
static struct array headtail_places(int64_t n, int ranks)
{
  struct array x = zeros((struct shape){1, {n}});
  int64_t part = (n + ranks - 1) / ranks, first = (part + 1) / 2;
  for (int64_t i = 0; i < n; i++) {
    int64_t p = i / part, at = i % part;
    bool head = at < first || p >= n / part;
    x.at[i] = (double)(head ? p * first + at : n - part + at - p * (part - first));
  }
  return x;
}

static void put_rule(struct buffer *b, const char *further)
{
  put(b, ",%s", further);
}

/* Adds attention and a loss of it. */
static void add_attention(const struct job *job)
{
  int ranks = graph->mesh.size[job->ring];
  bool headtail = draw_below(4) == 0;
  int64_t b = 1 + draw_below(2), g = 1 + draw_below(3), r = 1 + draw_below(2),
          t = headtail && draw_below(2) ? 2 * ranks * (1 + draw_below(3)) : 2 + draw_below(8);
  struct shape q = {4, {b, g * r, t, 2}}, k = {4, {b, g, t, 2}}, v = {4, {b, g, t, 3}};
  struct layout others = {0};
  bool causal = draw_below(2), documents = draw_below(2), sinks = draw_below(3) == 0;
  bool places = headtail || draw_below(2);
  int window = draw_below(2) ? 1 + draw_below(6) : 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (d != job->ring && draw_below(2)) others.on[d] = S(0);
  struct layout of_queries = others; /* they may be cut further along their sequence */
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (d != job->ring && others.on[d].kind == REPLICATE && draw_below(2)) of_queries.on[d] = S(2);
  int of_q = add_heads(q, job, of_queries), of_k = add_heads(k, job, others),
      of_v = add_heads(v, job, others);
  struct op op = {.kind = OP_attention, .nin = 3, .scalar = 0.5, .module = NONE, .line = 2};
  struct buffer rule = {0};
  put(&rule, "b(gr)q@d!,bgk!d!,bgk!e!");
  op.in[0] = placed(of_q, job->ring, S(2));
  op.in[1] = keys_of(of_k, job, 2);
  op.in[2] = keys_of(of_v, job, 2);
  if (draw_below(3) == 0) op.softcap = 1.5;
  if (documents) {
    struct shape shape = {2, {b, t}};
    int x = add_root(BATCH, I32, shape, (struct layout){0}, numbers_of(shape, 2, draw_below(2)));
    op.in[op.nin++] = placed(x, job->ring, S(1));
    op.in[op.nin++] = keys_of(x, job, 1);
    put_rule(&rule, "bq,bk");
  }
  if (places) {
    struct shape shape = {1, {t}};
    int x =
        add_root(BATCH, I32, shape, (struct layout){0},
                 headtail ? headtail_places(t, ranks) : numbers_of(shape, (int)t, draw_below(2)));
    op.in[op.nin++] = placed(x, job->ring, S(0));
    op.in[op.nin++] = draw_below(2) ? x : keys_of(x, job, 0); /* x: nothing is sent */
    put_rule(&rule, "q,k");
  }
  if (sinks) {
    struct shape shape = {1, {g * r}};
    op.in[op.nin++] = add_root(PARAMETER, F32, shape, (struct layout){0}, random_array(shape));
    put_rule(&rule, "(gr)");
  }
  put(&rule, "->b(gr)qe!,b(gr)q:f32");
  const int64_t number[] = {
      causal && !places,   places ? 0 : window, 0,       documents, sinks, places ? 2 - causal : 0,
      places ? window : 0, job->ring + 1,       headtail};
  memcpy(op.number, number, sizeof number);
  op.equation = op.nin > 3 ? rule.text : NULL;
  tried = text("%s of %" PRId64 " tokens, %s, window %d, others %s", rule.text, t,
               causal ? "causal" : "all", window, layout_text(others));
  struct shape made[] = {{4, {b, g * r, t, 3}}, {3, {b, g * r, t}}};
  int out = append_op_outputs(op, made, 2);
  int weights = add_root(BATCH, F32, made[0], (struct layout){0}, random_array(made[0]));
  int product = append_op(
      (struct op){.kind = OP_mul, .nin = 2, .in = {out, weights}, .module = NONE, .line = 4});
  graph->loss = append_op((struct op){.kind = OP_sum,
                                      .nin = 1,
                                      .in = {product},
                                      .scalar = 1,
                                      .dims = 15,
                                      .module = NONE,
                                      .line = 4});
  for (int n = 0; n < 2; n++) {
    result[n] = append_op((struct op){
        .kind = OP_scale, .nin = 1, .in = {out + n}, .scalar = 1, .module = NONE, .line = 4});
    graph->value[result[n]].name = text("y%d", n);
  }
}

static struct array expected_of(const struct array *whole, int known, const char *name)
{
  for (int i = known - 1; i >= 0; i--)
    if (whole[i].at && !strcmp(graph->value[i].name, name)) return whole[i];
  give_up("%s is not known", name);
  return (struct array){0};
}

static void holds(const struct machine *m, int value, struct array expected, const char *what)
{
  const char *why = not_held(m, value, expected, 1e-9);
  must(!why, "%s: %s %s: %s", tried, what, graph->value[value].name, why);
}

/* Blocks go from rank to rank, and nothing of heads is gathered. */
static void check_moves_around(const struct job *job)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    bool over = is_collective(op->kind) && graph->group[op->group].dims >> job->ring & 1;
    must(!over || op->kind != OP_all_gather || graph->value[op->out].shape.ndim < 4,
         "%s: %s is gathered", tried, graph->value[op->out].name);
    count->steps += is_block_of_keys(op);
  }
}

static void try_job(const void *with)
{
  const struct job *job = with;
  new_mesh(job->mesh);
  graph->loss = NONE;
  nroot = 0;
  add_attention(job);
  propagate();
  /* Not before: outputs of a program with a loss are metrics, which are whole. */
  for (int n = 0; n < 2; n++) graph->value[result[n]].is_output = true;
  check(PASS_PROPAGATE);
  grad();
  check(PASS_GRAD);
  int known = graph->nvalue;
  struct array *whole = alloc((size_t)known * sizeof *whole);
  for (int i = 0; i < nroot; i++) whole[root[i].value] = root[i].whole;
  run_whole(whole);
  struct array *gradient = alloc((size_t)known * sizeof *gradient);
  for (int i = 0; i < known; i++)
    if (graph->value[i].role == GRADIENT) gradient[graph->value[i].of] = whole[i];
  ring();
  check(PASS_RING);
  redistribute();
  check(PASS_REDISTRIBUTE);
  check_moves_around(job);
  struct machine m = new_machine();
  for (int i = 0; i < nroot; i++) load(&m, root[i].value, root[i].whole);
  run_flat(&m);
  int outputs = 0, gradients = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->is_output) holds(&m, i, expected_of(whole, known, v->name), "output");
    if (v->role == GRADIENT) holds(&m, i, gradient[v->of], "the gradient of");
    outputs += v->is_output;
    gradients += v->role == GRADIENT;
  }
  must(outputs == 2 && gradients >= 3, "%d outputs and %d gradients", outputs, gradients);
  count->programs++;
}

static void test_rings(void **state)
{
  (void)state;
  static const struct job jobs[] = {{"2", 0},   {"3", 0},   {"4", 0},  {"5", 0},
                                    {"2x2", 0}, {"2x3", 1}, {"2x4", 1}};
  enum { TIMES = 120 };
  int wrong = 0;
  count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(count != MAP_FAILED);
  for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++)
    for (int k = 0; k < TIMES; k++) {
      draw_below(7); /* the child draws other numbers each time */
      struct ending e = run_child(try_job, &jobs[j]);
      if (e.status) print_error("%s: %d: ended with %d: %s\n", jobs[j].mesh, k, e.status, e.said);
      wrong += e.status != 0;
    }
  print_message("%d programs, %d steps\n", count->programs, count->steps);
  assert_int_equal(wrong, 0);
  assert_true(count->steps > 4 * count->programs);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
