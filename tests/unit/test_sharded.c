/* Whole programs, exhaustively: for every row of the table of operators, with all legal placements
   of its inputs, the forward and backward after the passes are run on simulated ranks, and every
   output and every gradient must equal those of one rank.

   One graph has many placements, each with inputs of its own; their losses are added up. */
#include "check/check.h"
#include "force.h"

#include <sys/mman.h>

static const char *const gradient_of[OP_COUNT] = {
#define OP(name, rule, linear, gradient, ...) [OP_##name] = #gradient,
#include "ir/ops.h"
#undef OP
};

/* What the children count. */
static struct count {
  int placements, reordered, outputs, gradients, moves;
} * count;

/* How an input lies on one dimension of the mesh: as a placement, or strided, as a merge leaves
   it. */
struct form {
  struct placement p;
  bool strided;
};
enum { MAX_FORMS = 2 * MAX_DIMS + 2 };

static int forms_of(struct shape shape, bool pending, struct form *list)
{
  int n = 0;
  list[n++].p = R;
  for (int d = 0; d < shape.ndim; d++) {
    list[n++] = (struct form){S(d), false};
    if (shape.ndim < MAX_DIMS && shape.size[d] > 2 && shape.size[d] % 2 == 0)
      list[n++] = (struct form){S(d), true};
  }
  if (pending) list[n++].p = P;
  return n;
}

/* -------------------------------------------------------------------------------- one placement */

enum { MOST_ROOTS = 4096 };
static struct root {
  int value;
  struct array whole;
} root[MOST_ROOTS];
static int nroot;

/* A value that is there from the start, and its numbers. Its name is its own. */
static int add_root(enum role role, enum type type, struct shape shape, struct layout layout)
{
  must(nroot < MOST_ROOTS, "too many inputs");
  int v = given(role, text("x%d", nroot), shape, layout);
  graph->value[v].type = type;
  root[nroot++].value = v;
  return v;
}

/* The dimension that a form cuts in strides, or NONE. */
static int strided_dim(const struct form *form)
{
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (form[d].strided) return form[d].p.dim;
  return NONE;
}

/* Merges dimensions `dim` and the one after it. */
static int merged(int value, struct shape to, int dim)
{
  struct shape from = graph->value[value].shape;
  struct buffer in = {0}, out = {0};
  for (int d = 0; d < from.ndim; d++) {
    char *letter = text("%c%" PRId64, 'a' + d, from.size[d]);
    put(&in, "(%s)", letter);
    put(&out, "%s%s%s", d == dim + 1 ? "" : "(", letter, d == dim ? "" : ")");
  }
  return append_op_shaped((struct op){.kind = OP_view,
                                      .nin = 1,
                                      .in = {value},
                                      .equation = text("%s->%s", in.text, out.text),
                                      .module = NONE,
                                      .line = 2},
                          to);
}

static int pending(int value, unsigned dims)
{
  struct op op = {.kind = OP_redistribute,
                  .nin = 1,
                  .in = {value},
                  .asked = dims,
                  .module = NONE,
                  .line = 3,
                  .why = "the test"};
  for (int d = 0; d < graph->mesh.ndim; d++) op.to.on[d] = P;
  return append_op(op);
}

/* The dimensions of the mesh cut in the order of the mesh, or in any other. */
static struct layout in_some_order(struct layout layout)
{
  if (draw_below(2)) return layout;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind == SHARD) layout.on[d].cut_order = draw_below(3);
  layout = usual_cut_order(layout);
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].cut_order == 1) count->reordered++;
  return layout;
}

/* A value of this shape that lies as `form` says on each dimension of the mesh. */
static int add_input(enum role role, enum type type, struct shape shape, const struct form *form)
{
  struct layout layout = {0};
  int dim = strided_dim(form);
  unsigned sums = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = form[d].p;
    if (p.kind == PARTIAL) sums |= 1u << d;
    if (p.kind != SHARD) continue;
    bool inside = dim != NONE && (p.dim > dim || (p.dim == dim && form[d].strided));
    layout.on[d] = S(p.dim + inside);
  }
  struct shape split = shape;
  if (dim != NONE) {
    memmove(split.size + dim + 1, split.size + dim,
            (size_t)(shape.ndim - dim) * sizeof *split.size);
    split.ndim++;
    split.size[dim] = 2;
    split.size[dim + 1] /= 2;
  }
  int v = add_root(role, type, split, in_some_order(layout));
  if (dim != NONE) v = merged(v, shape, dim);
  return sums ? pending(v, sums) : v;
}

/* The numbers of an operation's input are those of the root that it was made of. */
static void give_numbers(const struct op *op, int first_root)
{
  struct array in[MAX_INPUTS];
  suitable_inputs(op, in);
  for (int i = 0; i < op->nin; i++) {
    struct root *r = &root[first_root + i];
    r->whole = (struct array){graph->value[r->value].shape, in[i].at};
  }
}

/* A number of each element's own times the element, added up, and added to the loss. */
static void train_down(int value)
{
  struct shape shape = graph->value[value].shape;
  int weights = add_root(BATCH, F32, shape, (struct layout){0});
  root[nroot - 1].whole = random_array(shape);
  int sum = append_op(
      (struct op){.kind = OP_mul, .nin = 2, .in = {value, weights}, .module = NONE, .line = 4});
  if (shape.ndim)
    sum = append_op((struct op){.kind = OP_sum,
                                .nin = 1,
                                .in = {sum},
                                .scalar = 1,
                                .dims = (1u << shape.ndim) - 1,
                                .module = NONE,
                                .line = 4});
  if (graph->loss != NONE)
    sum = append_op(
        (struct op){.kind = OP_add, .nin = 2, .in = {graph->loss, sum}, .module = NONE, .line = 4});
  graph->loss = sum;
}

struct job {
  const struct instance *instance;
  const char *mesh;
  const int64_t *size;
  bool greedy; /* the planner */
};

/* Which of its inputs may be trained. */
static bool has_gradient(const struct instance *instance, int i)
{
  bool turns = instance->kind == OP_rotary || instance->kind == OP_rotary_pairs;
  return strcmp(gradient_of[instance->kind], "no_grad") && instance->kind != OP_custom &&
         type_in_letters(instance->in[i]) == F32 && !(turns && i > 0);
}

/* The operation on inputs that lie as `pick` says. */
static void add_placement(const struct job *job, struct form form[][MAX_MESH])
{
  const struct instance *instance = job->instance;
  struct op op = op_of_instance(instance, job->size);
  int first = nroot;
  bool trains = false;
  for (; op.nin < MAX_INPUTS && instance->in[op.nin]; op.nin++) {
    const char *in = instance->in[op.nin];
    bool trained = has_gradient(instance, op.nin);
    trains |= trained;
    op.in[op.nin] = add_input(trained ? PARAMETER : BATCH, type_in_letters(in),
                              shape_in_letters(in, job->size), form[op.nin]);
  }
  count->placements++;
  int out = append_instance(instance, job->size, op);
  op = graph->op[graph->value[out].op];
  give_numbers(&op, first);
  for (int k = 0; k < op.nout; k++) {
    graph->value[out + k].is_output = true;
    graph->value[out + k].name = text("y%d", out + k);
  }
  if (trains && is_floating(graph->value[out].type)) train_down(out);
}

/* ------------------------------------------------------------------------------------ one graph */

#ifdef __SANITIZE_ADDRESS__
enum { MOST_PLACEMENTS = 6 };
#else
enum { MOST_PLACEMENTS = 16 };
#endif

/* All placements, or as many random ones. */
static void add_placements(const struct job *job)
{
  struct form list[MAX_INPUTS][MAX_FORMS] = {0}, form[MAX_INPUTS][MAX_MESH];
  int n[MAX_INPUTS], nin = 0, ndim = graph->mesh.ndim;
  double all = 1;
  for (; nin < MAX_INPUTS && job->instance->in[nin]; nin++) {
    const char *in = job->instance->in[nin];
    n[nin] = forms_of(shape_in_letters(in, job->size), type_in_letters(in) == F32, list[nin]);
    for (int d = 0; d < ndim; d++) all *= n[nin];
  }
  for (int which = 0; which < all && which < MOST_PLACEMENTS; which++) {
    int rest = which;
    for (int i = 0; i < nin; i++)
      for (int d = 0; d < ndim; d++) {
        bool is_few = all <= MOST_PLACEMENTS;
        form[i][d] = list[i][is_few ? rest % n[i] : draw_below(n[i])];
        if (!is_few && d && form[i][0].p.kind == SHARD && draw_below(2)) form[i][d] = form[i][0];
        rest /= n[i];
      }
    add_placement(job, form);
  }
}

/* The value of the program that one rank computes alone, by name. */
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
  must(!why, "%s %s: %s", what, graph->value[value].name, why);
}

static void try_job(const void *with)
{
  const struct job *job = with;
  new_mesh(job->mesh);
  plan_options->greedy = job->greedy;
  graph->loss = NONE;
  add_placements(job);
  propagate();
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
  for (int i = 0; i < graph->norder; i++)
    count->moves += graph->op[graph->order[i]].kind == OP_redistribute;
  redistribute();
  check(PASS_REDISTRIBUTE);
  struct machine m = new_machine();
  for (int i = 0; i < nroot; i++) load(&m, root[i].value, root[i].whole);
  run_flat(&m);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->is_output) holds(&m, i, expected_of(whole, known, v->name), "output");
    if (v->role == GRADIENT) holds(&m, i, gradient[v->of], "the gradient of");
    count->outputs += v->is_output;
    count->gradients += v->role == GRADIENT;
  }
}

static int report(const struct job *job)
{
  struct ending e = run_child(try_job, job);
  if (!e.status) return 0;
  print_error("%s %s %s on %s: ended with %d: %s\n", op_row[job->instance->kind].name,
              job->instance->in[0] ? job->instance->in[0] : "",
              job->instance->in[1] ? job->instance->in[1] : "", job->mesh, e.status, e.said);
  return 1;
}

static void test_every_placement(void **state)
{
  (void)state;
  static const char *const mesh[] = {"2", "3", "2x2", "2x3", "2x2x2"};
  enum { THINNED = 4 }; /* of this one, every ninth operation: it takes long */
  static const int64_t sizes[][SIZES] = {{4, 6, 4, 6}, {5, 3, 2, 4}};
  int jobs = 0, wrong = 0;
  count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(count != MAP_FAILED);
  for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      for (int i = 0; i < INSTANCES; i++) {
        if (!is_tried(instances[i].kind) || (m == THINNED && (i + (int)s) % 9)) continue;
        jobs++;
        wrong += report(&(struct job){&instances[i], mesh[m], sizes[s], (s + (size_t)i) % 2 != 0});
      }
  print_message("%d programs, %d placements, %d inputs cut in an order of their own, %d "
                "redistributions; %d outputs, %d gradients\n",
                jobs, count->placements, count->reordered, count->moves, count->outputs,
                count->gradients);
  assert_int_equal(wrong, 0);
  assert_true(getenv("TPGEN_ROWS") || count->reordered > 300);
}

int main(void)
{
  counts_rows = false;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_placement),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
