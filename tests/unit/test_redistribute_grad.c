/* The gradient of a redistribution, exhaustively: from every layout to every other, by either
   planner, on shapes that divide evenly, unevenly and not at all.

   A redistribution does not change a value, so its gradient is the incoming one; it must have the
   input's layout, or be replicated if the input was pending. The program is

     x = p.redistribute(from);  y = x.redistribute(to);  loss += sum(w * y)  or  sum(w * (y @ A))

   for many pairs at once; it goes through the passes and is run on simulated ranks. The gradient of
   x is w, or w @ A^T. A is sharded along its columns, so that the gradient of y is pending. */
#include "check/check.h"
#include "interpreter.h"

#include <sys/mman.h>

/* What the children count. */
static struct count {
  int pairs, moves, pending;
} * count;

/* ------------------------------------------------------------------------------------- one pair */

enum { MOST_PAIRS = 64, COLUMNS = 5 };
static struct pair {
  struct layout from, to;
  int parameter, weights, matrix; /* matrix: or NONE */
  struct array w, a, p;
  int gradient; /* of x */
} pair[MOST_PAIRS];
static int npair;

static int redistributed(int value, struct layout to, const char *why)
{
  return append_op((struct op){.kind = OP_redistribute,
                               .nin = 1,
                               .in = {value},
                               .to = to,
                               .asked = (1u << graph->mesh.ndim) - 1,
                               .module = NONE,
                               .line = 3,
                               .why = why});
}

static int sum_of(int value)
{
  unsigned all = (1u << graph->value[value].shape.ndim) - 1;
  return append_op((struct op){.kind = OP_sum,
                               .nin = 1,
                               .in = {value},
                               .scalar = 1,
                               .dims = all,
                               .module = NONE,
                               .line = 5});
}

static int of_two(enum op_kind kind, int a, int b)
{
  return append_op((struct op){.kind = kind,
                               .nin = 2,
                               .in = {a, b},
                               .equation = kind == OP_matmul ? "mk,kn->mn" : NULL,
                               .module = NONE,
                               .line = 4});
}

/* Cut along its columns over every dimension of the mesh. */
static int add_matrix(struct pair *p, int64_t rows)
{
  struct shape shape = {.ndim = 2, .size = {rows, COLUMNS}};
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) layout.on[d] = S(1);
  p->a = random_array(shape);
  return p->matrix = given(BATCH, "A", shape, layout);
}

static void add_pair(struct shape shape, struct layout from, struct layout to, bool multiplied)
{
  struct pair *p = &pair[npair];
  *p = (struct pair){.from = from, .to = to, .matrix = NONE, .p = random_array(shape)};
  p->parameter = given(PARAMETER, text("p%d", npair), shape, (struct layout){0});
  int x = redistributed(p->parameter, from, "first");
  int y = redistributed(x, to, text("second %d", npair));
  if (multiplied) y = of_two(OP_matmul, y, add_matrix(p, shape.size[1]));
  shape = graph->value[y].shape;
  p->w = random_array(shape);
  p->weights = given(BATCH, "w", shape, (struct layout){0});
  int loss = sum_of(of_two(OP_mul, y, p->weights));
  graph->loss = graph->loss == NONE ? loss : of_two(OP_add, graph->loss, loss);
  npair++;
}

/* What comes back to x: w, or w @ A^T. */
static struct array gradient_of(const struct pair *p)
{
  if (p->matrix == NONE) return p->w;
  struct array g = zeros(p->p.shape);
  int64_t rows = g.shape.size[0], columns = g.shape.size[1];
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      for (int k = 0; k < COLUMNS; k++)
        g.at[i * columns + j] += p->w.at[i * COLUMNS + k] * p->a.at[j * COLUMNS + k];
  return g;
}

/* -------------------------------------------------------------------------------- one program */

/* The operation of the backward program that makes x's gradient of y's, or NONE: the last that is
   there for its sake. */
static int way_back(int which)
{
  char *why = text("backward of second %d", which);
  for (int i = graph->norder - 1; i >= 0; i--) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->kind == OP_redistribute && op->why && !strcmp(op->why, why)) return graph->order[i];
  }
  return NONE;
}

static struct layout as_it_lay(struct layout from)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (from.on[d].kind == PARTIAL) from.on[d] = R;
  return from;
}

static bool is_pending(struct layout layout)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == PARTIAL) return true;
  return false;
}

static char *pair_text(const struct pair *p)
{
  return text("%s -> %s", layout_text(p->from), layout_text(p->to));
}

/* The gradient of every x lies as x did. It is kept as an output. */
static void find_gradients(void)
{
  for (int i = 0; i < npair; i++) {
    int back = way_back(i);
    must(back != NONE, "%s: nothing makes the gradient", pair_text(&pair[i]));
    struct value *g = &graph->value[graph->op[back].out];
    must(same_layout(g->layout, as_it_lay(pair[i].from)), "%s: the gradient is %s",
         pair_text(&pair[i]), layout_text(g->layout));
    count->pending += is_pending(graph->value[graph->op[back].in[0]].layout);
    g->is_output = true;
    g->name = text("g%d", i);
  }
}

static void holds(const struct machine *m, int value, const struct pair *p, struct array expected)
{
  const char *why = not_held(m, value, expected, 1e-9);
  must(!why, "%s of %s: %s is %s: %s", pair_text(p), shape_text(p->p.shape),
       graph->value[value].name, layout_text(graph->value[value].layout), why);
}

static void run_program(void)
{
  propagate();
  check(PASS_PROPAGATE);
  grad();
  check(PASS_GRAD);
  find_gradients();
  redistribute();
  check(PASS_REDISTRIBUTE);
  struct machine m = new_machine();
  for (int i = 0; i < npair; i++) {
    load(&m, pair[i].parameter, pair[i].p);
    load(&m, pair[i].weights, pair[i].w);
    if (pair[i].matrix != NONE) load(&m, pair[i].matrix, pair[i].a);
  }
  run_flat(&m);
  int outputs = 0, gradients = 0;
  for (int v = 0; v < graph->nvalue; v++) {
    const struct value *value = &graph->value[v];
    bool of_parameter = value->role == GRADIENT;
    if (!value->is_output && !of_parameter) continue;
    const struct pair *p =
        &pair[atoi(of_parameter ? graph->value[value->of].name + 1 : value->name + 1)];
    holds(&m, v, p, gradient_of(p));
    outputs += value->is_output;
    gradients += of_parameter;
  }
  must(outputs == npair && gradients == npair, "%d pairs, %d gradients, of %d parameters", npair,
       outputs, gradients);
  for (int i = 0; i < graph->norder; i++)
    count->moves += is_collective(graph->op[graph->order[i]].kind);
}

/* ----------------------------------------------------------------------------------- all pairs */

struct job {
  const char *mesh, *shape;
  bool greedy;
  int first, step; /* of the pairs, by number */
};

enum { MOST_LAYOUTS = 256 };
static struct layout layouts[MOST_LAYOUTS];
static int nlayout;

/* All of R, S(0), S(1), pending sums, pending maxima; not both of these in one. And what two
   dimensions of the mesh cut in another order than theirs. */
static void list_layouts(void)
{
  const struct placement max = {.kind = PARTIAL, .reduction = MAX};
  const struct placement list[] = {R, S(0), S(1), P, max};
  nlayout = 0;
  for (int i = 0; i < power(5, graph->mesh.ndim); i++) {
    struct layout layout = nth_layout(list, 5, i);
    if (!reductions_agree(layout)) continue;
    layouts[nlayout++] = layout;
    layout.on[0].cut_order = 1;
    if (is_reordered(&graph->mesh, layout, layout.on[0].dim))
      layouts[nlayout++] = usual_cut_order(layout);
  }
}

static int pairs_of(const char *mesh)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(mesh, size), size);
  list_layouts();
  return nlayout * nlayout;
}

static void try_job(const void *with)
{
  const struct job *job = with;
  int all = pairs_of(job->mesh);
  plan_options->greedy = job->greedy;
  graph->loss = NONE;
  struct shape shape = parse_shape(job->shape);
  for (int i = job->first; i < all && npair < MOST_PAIRS; i += job->step)
    add_pair(shape, layouts[i / nlayout], layouts[i % nlayout], (i + shape.size[0]) % 2);
  count->pairs += npair;
  run_program();
}

static int report(const struct job *job)
{
  struct ending e = run_child(try_job, job);
  if (!e.status) return 0;
  print_error("%s on %s%s: ended with %d: %s\n", job->shape, job->mesh,
              job->greedy ? ", greedy" : "", e.status, e.said);
  return 1;
}

/* Every thin-th pair: of a shape that cuts unevenly with both planners, else with one. */
static int try_mesh(const char *mesh, int thin)
{
  static const struct {
    const char *shape;
    bool greedy;
  } list[] = {{"5x7", false}, {"5x7", true}, {"12x6", false}, {"1x2", true}};
  int all = pairs_of(mesh), wrong = 0;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    for (int first = 0; first < all; first += MOST_PAIRS * thin)
      wrong += report(&(struct job){mesh, list[i].shape, list[i].greedy, first, thin});
  return wrong;
}

#ifdef __SANITIZE_ADDRESS__
enum { THIN = 5 };
#else
enum { THIN = 1 };
#endif

static void test_every_pair(void **state)
{
  (void)state;
  int wrong = 0;
  count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(count != MAP_FAILED);
  wrong += try_mesh("2", 1);
  wrong += try_mesh("3", 1);
  wrong += try_mesh("2x2", THIN);
  wrong += try_mesh("2x3", THIN);
  wrong += try_mesh("2x2x2", 41 * THIN);
  print_message("%d gradients, %d of them came back pending; %d collectives\n", count->pairs,
                count->pending, count->moves);
  assert_int_equal(wrong, 0);
  assert_true(count->pairs > 6000 / THIN && count->pending > 300 / THIN);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_pair),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
