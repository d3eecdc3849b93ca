/* The pieces of a direct exchange, exhaustively: between every two layouts of R and shards, in
   every cut order, on small meshes, the pieces that ranks send are those that others receive, and
   they make up each rank's new part, each element once. */
#include "sharding/sharding.h"
#include "unit.h"

enum { MOST = 4096 };

/* A part of a tensor whose elements are numbered in the whole. */
struct numbers {
  struct part part;
  int64_t at[MOST];
};

static int64_t number_at(struct shape whole, const struct part *p, const int64_t *index)
{
  int64_t n = 0;
  for (int d = 0; d < whole.ndim; d++) n = n * whole.size[d] + p->first[d] + index[d];
  return n;
}

static int64_t place_in(struct shape s, const int64_t *index)
{
  int64_t n = 0;
  for (int d = 0; d < s.ndim; d++) n = n * s.size[d] + index[d];
  return n;
}

static bool next(struct shape s, int64_t *index)
{
  for (int d = s.ndim - 1; d >= 0; d--) {
    if (++index[d] < s.size[d]) return true;
    index[d] = 0;
  }
  return false;
}

static void part_at(struct numbers *n, struct shape whole, struct layout layout, int rank,
                    bool filled)
{
  int at[MAX_MESH];
  int64_t index[MAX_DIMS] = {0};
  coordinate_of(rank, at);
  n->part = local_part(&graph->mesh, whole, layout, at);
  if (elements(n->part.shape) == 0) return;
  do n->at[place_in(n->part.shape, index)] = filled ? number_at(whole, &n->part, index) : NONE;
  while (next(n->part.shape, index));
}

struct tried {
  struct shape whole;
  struct move move;
  struct numbers *from, *to; /* of each rank */
  int member[64];            /* the ranks of the group */
};

static const struct piece *piece_for(const struct piece *list, int n, int member)
{
  for (int i = 0; i < n; i++)
    if (list[i].member == member) return &list[i];
  return NULL;
}

/* Whether the elements of a box lie one after the other. */
static bool lies_in_a_run(struct shape of, const struct part *box)
{
  int64_t index[MAX_DIMS] = {0}, last = 0;
  bool first = true, run = true;
  do {
    int64_t at[MAX_DIMS];
    for (int d = 0; d < of.ndim; d++) at[d] = box->first[d] + index[d];
    run &= first || place_in(of, at) == last + 1;
    last = place_in(of, at);
    first = false;
  } while (next(box->shape, index));
  return run;
}

static void copy_piece(const struct numbers *from, const struct part *give, struct numbers *to,
                       const struct part *get)
{
  int64_t index[MAX_DIMS] = {0};
  int ndim = give->shape.ndim;
  must(same_shape(give->shape, get->shape), "one gives %s, the other gets %s",
       shape_text(give->shape), shape_text(get->shape));
  do {
    int64_t a[MAX_DIMS], b[MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
      a[d] = give->first[d] + index[d];
      b[d] = get->first[d] + index[d];
      must(a[d] >= 0 && a[d] < from->part.shape.size[d] && b[d] >= 0 &&
               b[d] < to->part.shape.size[d],
           "a piece lies outside the part");
    }
    int64_t *place = &to->at[place_in(to->part.shape, b)];
    must(*place == NONE, "an element comes twice");
    *place = from->at[place_in(from->part.shape, a)];
  } while (next(give->shape, index));
}

static int64_t held_already(const struct numbers *from, const struct numbers *to)
{
  int64_t n = 1;
  for (int d = 0; d < to->part.shape.ndim; d++) {
    int64_t x = from->part.first[d], y = to->part.first[d];
    int64_t x_end = x + from->part.shape.size[d], y_end = y + to->part.shape.size[d];
    int64_t both = (x_end < y_end ? x_end : y_end) - (x > y ? x : y);
    n *= both > 0 ? both : 0;
  }
  return n;
}

static void check_pieces(const struct tried *t, int rank, int me, bool *gives, bool *gets,
                         int *others)
{
  struct piece give[64], get[64];
  int64_t own = 0, index[MAX_DIMS] = {0};
  struct numbers *to = &t->to[rank];
  for (int i = 0, n = pieces_got(&t->move, t->whole, rank, get); i < n; i++) {
    int other = t->member[get[i].member];
    int given = pieces_sent(&t->move, t->whole, other, give);
    const struct piece *p = piece_for(give, given, me);
    must(p != NULL, "rank %d gets what rank %d does not give", rank, other);
    copy_piece(&t->from[other], &p->part, to, &get[i].part);
    *gets &= lies_in_a_run(to->part.shape, &get[i].part);
    *gives &= lies_in_a_run(t->from[other].part.shape, &p->part);
    if (other == rank)
      own = elements(get[i].part.shape);
    else
      others[rank]++, others[64 + other]++;
  }
  must(own == held_already(&t->from[rank], to), "rank %d does not keep all that it has", rank);
  if (elements(to->part.shape) == 0) return;
  do {
    must(to->at[place_in(to->part.shape, index)] == number_at(t->whole, &to->part, index),
         "rank %d holds another element", rank);
  } while (next(to->part.shape, index));
}

static void check_exchange(const struct tried *t)
{
  int others[128] = {0};
  bool gives = true, gets = true, single = true;
  for (int r = 0; r < world_size(); r++) {
    part_at(&t->from[r], t->whole, t->move.from, r, true);
    part_at(&t->to[r], t->whole, t->move.to, r, false);
  }
  for (int me = 0; me < world_size(); me++)
    check_pieces(t, t->member[me], me, &gives, &gets, others);
  for (int i = 0; i < 128; i++) single &= others[i] <= 1;
  must(find_traits(&t->move, t->whole).sends_runs == gives, "gives_runs says %d", !gives);
  must(find_traits(&t->move, t->whole).gets_runs == gets, "gets_runs says %d", !gets);
  must(find_traits(&t->move, t->whole).permutes == single, "is_permutation says %d", !single);
}

/* On each mesh dimension: R, S(0), S(1), and these two again, as the last to cut. */
enum { MOVE_KINDS = 5 };

static struct layout layout_number(int which)
{
  struct layout layout = {0};
  for (int d = 0; d < graph->mesh.ndim; d++, which /= MOVE_KINDS) {
    int k = which % MOVE_KINDS;
    if (k) layout.on[d] = (struct placement){.kind = SHARD, .dim = (k - 1) % 2, .cut_order = k > 2};
  }
  return layout;
}

struct rank_world {
  const char *mesh, *whole;
  int order[MAX_MESH]; /* of the group's dimensions */
};

static void check_world(const void *with)
{
  const struct rank_world *w = with;
  int size[MAX_MESH], tried = 0;
  new_graph(parse_mesh(w->mesh, size), size);
  int ndim = graph->mesh.ndim, n = power(MOVE_KINDS, ndim), world = world_size();
  struct tried t = {.whole = parse_shape(w->whole), .move = {.kind = OP_exchange, .n = ndim}};
  memcpy(t.move.dim, w->order, sizeof t.move.dim);
  t.from = alloc((size_t)world * sizeof *t.from);
  t.to = alloc((size_t)world * sizeof *t.to);
  group_members(add_ordered_group(ndim, w->order), 0, t.member);
  for (int pair = 0; pair<n * n; pair += n> 100 ? 7 : 1, tried++) {
    t.move.from = layout_number(pair % n);
    t.move.to = layout_number(pair / n);
    check_exchange(&t);
  }
  must(tried > 20, "%d pairs", tried);
}

static void test_every_pair_by_force(void **state)
{
  (void)state;
  static const struct rank_world worlds[] = {
      {"4", "8x3", {0}},           {"3", "7x5", {0}},       {"3", "2x0", {0}},
      {"2x2", "6x5", {0, 1}},      {"2x2", "8x4", {1, 0}},  {"2x3", "7x5", {0, 1}},
      {"3x2", "4x1", {1, 0}},      {"2x4", "16x8", {0, 1}}, {"2x2x2", "8x8", {0, 1, 2}},
      {"2x2x2", "5x3", {2, 0, 1}},
  };
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) passes(check_world, &worlds[i]);
}

/* Of several that hold_part a piece the one over the quickest link gives it, and all give alike
 * much. */
static void check_givers(const void *with)
{
  (void)with;
  int dims[MAX_MESH] = {0, 1}, most = 0, members[4] = {0};
  struct piece list[8];
  new_graph(2, (int[]){2, 4});
  graph->mesh.bandwidth[0] = 1e9;
  graph->mesh.bandwidth[1] = 100e9;
  struct move m = {.kind = OP_exchange, .n = 2, .dim = {dims[0], dims[1]}};
  m.from = parse_layout("R S(0)");
  m.to = parse_layout("R R");
  for (int r = 0; r < 8; r++) {
    int n = pieces_got(&m, parse_shape("8x4"), r, list);
    must(n == 4, "rank %d gets %d pieces", r, n);
    for (int i = 0; i < n; i++)
      must(list[i].member / 4 == r / 4, "rank %d gets over the slow link", r);
  }
  m.from = parse_layout("S(0) R");
  m.to = parse_layout("R S(0)");
  for (int r = 0; r < 8; r++) {
    int others = 0;
    for (int n = pieces_sent(&m, parse_shape("8x4"), r, list); n--;) others += list[n].member != r;
    if (others > most) most = others;
    members[others < 3 ? others : 3]++;
  }
  must(most == 1 && members[1] == 4, "a rank gives %d pieces", most);
}

static void test_who_gives(void **state)
{
  (void)state;
  passes(check_givers, NULL);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_pair_by_force),
      cmocka_unit_test(test_who_gives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
