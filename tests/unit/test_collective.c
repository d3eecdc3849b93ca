/* What each rank sends and receives in a collective, exhaustively: over the steps between random
   layouts, by both planners, on groups in every order. Every byte that one rank sends, another
   receives; the bytes are those of the reports; and the form of the call is the same on all
   members. */
#include "sharding/sharding.h"
#include "unit.h"

static struct layout random_layout(int ndim, bool pending)
{
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) {
    int which = draw_below(ndim + 1 + pending);
    layout.on[d] = which < ndim ? S(which) : which == ndim ? R : P;
    layout.on[d].cut_order = draw_below(2);
  }
  return usual_cut_order(layout);
}

/* The operation that a step becomes. */
static struct op operation_of(const struct move *m, struct shape whole)
{
  struct op op = {.kind = m->kind, .nin = 1, .module = NONE, .line = 1};
  op.group = add_ordered_group(m->n, m->dim);
  op.in[0] = given(ACTIVATION, "x", whole, m->from);
  op.out = given(ACTIVATION, "y", whole, m->to);
  op.dim = (m->kind == OP_reduce_scatter ? m->to : m->from).on[m->dim[0]].dim;
  op.dim_to = m->to.on[m->dim[0]].dim;
  if (m->kind != OP_exchange) return op;
  GROW(graph->exchange, graph->nexchange, graph->exchange_room);
  graph->exchange[graph->nexchange] = (struct exchange){whole, F32, *m, op.group};
  op.exchange = graph->nexchange++;
  return op;
}

enum { MOST = 12 };
struct counts {
  int64_t give[MOST][MOST], get[MOST][MOST]; /* by member, to and from each member */
};

static int64_t elements_of(int value, int rank)
{
  return elements(local_shape(value, rank));
}

/* What is given in all, by a member whose number in the group is `at`. */
static int64_t sent_by(const struct op *op, const struct counts *c, int at, int n)
{
  int64_t all = 0;
  for (int r = 0; r < n; r++) all += c->give[at][r];
  if (op->kind == OP_all_gather) return (n - 1) * c->give[at][at];
  return all - c->give[at][at];
}

static int64_t received_by(const struct op *op, const struct counts *c, int at, int n)
{
  int64_t all = 0;
  for (int r = 0; r < n; r++) all += c->get[at][r];
  if (op->kind == OP_reduce_scatter) return (n - 1) * c->get[at][at];
  return all - c->get[at][at];
}

static void check_pairs(const struct op *op, const struct counts *c, int n)
{
  bool pairwise = op->kind == OP_all_to_all || op->kind == OP_exchange;
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++)
      if (pairwise)
        must(c->give[a][b] == c->get[b][a], "%s: %d gives %d %" PRId64 ", who awaits %" PRId64,
             op_row[op->kind].name, a, b, c->give[a][b], c->get[b][a]);
      else
        must(c->give[a][b] == c->give[0][b] && c->get[a][b] == c->get[0][b],
             "%s: %d and the first count otherwise", op_row[op->kind].name, a);
}

/* Whether the parts are equal, or each meets one other at most. */
static bool is_even(const struct op *op, const struct counts *c, const int *member, int n)
{
  for (int a = 0; a < n; a++) {
    int to = 0, from = 0;
    for (int b = 0; b < n; b++) {
      to += b != a && c->give[a][b] > 0;
      from += b != a && c->get[a][b] > 0;
    }
    if (op->kind == OP_exchange && (to > 1 || from > 1)) return false;
    if (op->kind == OP_exchange) continue;
    if (elements_of(op->in[0], member[a]) != elements_of(op->in[0], member[0])) return false;
    if (elements_of(op->out, member[a]) != elements_of(op->out, member[0])) return false;
  }
  return true;
}

static int kinds[OP_COUNT], even_ones, uneven;

static void check_collective(const struct op *op, const struct move *m, struct shape whole)
{
  int64_t sent[MOST] = {0}, received[MOST] = {0};
  bool even = true, stated = true;
  add_traffic(m, whole, F32, sent, received);
  for (int rank = 0; rank < world_size(); rank++) {
    if (first_member(op->group, rank) != rank) continue;
    int member[MOST], n = group_members(op->group, rank, member);
    struct counts c = {0};
    for (int a = 0; a < n; a++) collective_counts(op, member[a], c.give[a], c.get[a]);
    check_pairs(op, &c, n);
    for (int a = 0; a < n; a++) {
      must(equal_parts(op, member[a]) == equal_parts(op, rank), "members choose other calls");
      if (op->kind == OP_all_reduce) continue;
      must(4 * sent_by(op, &c, a, n) == sent[member[a]] &&
               4 * received_by(op, &c, a, n) == received[member[a]],
           "%s %s: %s -> %s: rank %d sends %" PRId64 " and receives %" PRId64 " bytes, not %" PRId64
           " and %" PRId64,
           op_row[op->kind].name, shape_text(whole), layout_text(m->from), layout_text(m->to),
           member[a], sent[member[a]], received[member[a]], 4 * sent_by(op, &c, a, n),
           4 * received_by(op, &c, a, n));
    }
    even &= is_even(op, &c, member, n);
    stated &= equal_parts(op, rank);
    if (op->kind != OP_exchange) must(is_even(op, &c, member, n) == equal_parts(op, rank), "even");
  }
  must(even == stated, "%s: even %d, stated %d", op_row[op->kind].name, even, stated);
  kinds[op->kind]++;
  even_ones += even;
  uneven += !even;
}

static void try_moves(const char *mesh, const char *shape, int times)
{
  int size[MAX_MESH];
  struct shape whole = parse_shape(shape);
  new_graph(parse_mesh(mesh, size), size);
  for (int i = 0; i < times; i++) {
    plan_options->greedy = i % 4 == 0;
    struct layout from = random_layout(whole.ndim, true), to = random_layout(whole.ndim, false);
    const struct moves *moves = plan_moves(whole, F32, from, to);
    for (int k = 0; k < moves->n; k++) {
      if (!is_collective(moves->move[k].kind)) continue;
      struct op op = operation_of(&moves->move[k], whole);
      check_collective(&op, &moves->move[k], whole);
    }
  }
}

static void test_counts(void **state)
{
  static const char *const mesh[] = {"2", "5", "2x2", "2x3", "3x2", "4x3", "2x2x2", "2x3x2"};
  static const char *const shape[] = {"8x12", "7x5", "9", "3x2x4", "1x13", "11x4x3"};
  (void)state;
  for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++)
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) try_moves(mesh[m], shape[s], 150);
  print_message("%d all_gather, %d reduce_scatter, %d all_to_all, %d exchange; %d of them uneven\n",
                kinds[OP_all_gather], kinds[OP_reduce_scatter], kinds[OP_all_to_all],
                kinds[OP_exchange], uneven);
  assert_true(kinds[OP_all_gather] > 100 && kinds[OP_reduce_scatter] > 100);
  assert_true(kinds[OP_all_to_all] > 100 && kinds[OP_exchange] > 100);
  assert_true(even_ones > 100 && uneven > 100);
}

/* Of a 2x3 mesh the group over the second dimension and then the first: 0 3 1 4 2 5. Over it the
   first dimension of 7 rows is cut 3 3 1, and each of these in two. */
static void test_a_group_in_another_order(void **state)
{
  (void)state;
  int size[MAX_MESH];
  new_graph(parse_mesh("2x3", size), size);
  struct move m = {.kind = OP_all_gather,
                   .n = 2,
                   .dim = {1, 0},
                   .from = parse_layout("S(0)[1] S(0)[0]"),
                   .to = parse_layout("R R")};
  struct op op = operation_of(&m, parse_shape("7x5"));
  int member[6], order[] = {0, 3, 1, 4, 2, 5};
  int64_t give[6], get[6], rows[] = {2, 1, 2, 1, 1, 0};
  assert_int_equal(group_members(op.group, 4, member), 6);
  assert_memory_equal(member, order, sizeof order);
  collective_counts(&op, 4, give, get);
  for (int i = 0; i < 6; i++) assert_int_equal(give[i], 5 * rows[i]);
  assert_false(equal_parts(&op, 4));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_a_group_in_another_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
