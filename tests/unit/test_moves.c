/* The planners of redistributions. The greedy one against PyTorch's steps: TPGEN_GOLDEN, or
   tests/golden, redistribute_plans.tsv. The fastest against the tables of bytes
   (redistribute_bytes.tsv), the lower bound, the greedy one, and all possible step sequences on
   small meshes. The test computes the meaning, the bytes and the time of a step itself, from the
   definitions. */
#include "graph_passes/graph_passes.h"
#include "unit.h"

#include <time.h>

/* ------------------------------------------------------------------------------ what a step is */

struct dim_cuts {
  int n, at[MAX_MESH];
};

static struct dim_cuts cut_list(struct layout layout, int dim)
{
  struct dim_cuts c = {0};
  c.n = cuts_of(&graph->mesh, layout, dim, c.at);
  return c;
}

/* Whether `longer` is `shorter`, and then `tail`. */
static bool is_followed(struct dim_cuts longer, struct dim_cuts shorter, const int *tail, int n)
{
  if (longer.n != shorter.n + n) return false;
  for (int i = 0; i < longer.n; i++)
    if (longer.at[i] != (i < shorter.n ? shorter.at[i] : tail[i - shorter.n])) return false;
  return true;
}

static bool same_cuts(struct layout a, struct layout b, int dim)
{
  return is_followed(cut_list(a, dim), cut_list(b, dim), NULL, 0);
}

static bool is_moved(const struct move *m, int mesh_dim)
{
  for (int i = 0; i < m->n; i++)
    if (m->dim[i] == mesh_dim) return true;
  return false;
}

/* What is on all of its dimensions; false if it is not the same. */
static bool all_are(const struct move *m, struct layout layout, enum placement_kind kind)
{
  for (int i = 0; i < m->n; i++) {
    struct placement p = layout.on[m->dim[i]], first = layout.on[m->dim[0]];
    if (p.kind != kind || (kind == PARTIAL && p.reduction != first.reduction)) return false;
    if (kind == SHARD && p.dim != first.dim) return false;
  }
  return true;
}

static bool has_one_reduction(struct layout layout)
{
  int first = NONE;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (layout.on[i].kind != PARTIAL) continue;
    if (first != NONE && layout.on[i].reduction != layout.on[first].reduction) return false;
    first = i;
  }
  return true;
}

/* The dimensions beyond the cuts that both layouts begin with. */
static unsigned differing(struct layout a, struct layout b)
{
  unsigned dims = 0;
  for (int d = 0; d < MAX_DIMS; d++) {
    struct dim_cuts x = cut_list(a, d), y = cut_list(b, d);
    int same = 0;
    while (same < x.n && same < y.n && x.at[same] == y.at[same]) same++;
    for (int i = same; i < x.n; i++) dims |= 1u << x.at[i];
    for (int i = same; i < y.n; i++) dims |= 1u << y.at[i];
  }
  return dims;
}

static bool is_slice(const struct move *m)
{
  if (!all_are(m, m->from, REPLICATE)) return false;
  for (int i = 0; i < m->n; i++)
    if (m->to.on[m->dim[i]].kind != SHARD) return false;
  for (int d = 0; d < MAX_DIMS; d++) {
    struct dim_cuts a = cut_list(m->from, d), b = cut_list(m->to, d);
    for (int i = 0; i < a.n; i++)
      if (i >= b.n || a.at[i] != b.at[i]) return false;
  }
  return true;
}

static bool is_exchange(const struct move *m)
{
  unsigned dims = 0;
  for (int i = 0; i < m->n; i++) {
    dims |= 1u << m->dim[i];
    if (i > 0 && m->dim[i] < m->dim[i - 1]) return false;
    if (m->from.on[m->dim[i]].kind == PARTIAL || m->to.on[m->dim[i]].kind == PARTIAL) return false;
  }
  return dims == differing(m->from, m->to);
}

/* Whether the cuts that go, if any do, are the last of their dimension in the order of the group,
   and those that come too; and all other dimensions of the tensor are cut as before. */
static bool goes_in_order(const struct move *m)
{
  struct placement a = m->from.on[m->dim[0]], b = m->to.on[m->dim[0]];
  int from = a.kind == SHARD ? a.dim : NONE, to = b.kind == SHARD ? b.dim : NONE;
  if (from != NONE && from == to) return false;
  for (int d = 0; d < MAX_DIMS; d++) {
    struct dim_cuts x = cut_list(m->from, d), y = cut_list(m->to, d);
    if (d == from && !is_followed(x, y, m->dim, m->n)) return false;
    if (d == to && !is_followed(y, x, m->dim, m->n)) return false;
    if (d != from && d != to && !same_cuts(m->from, m->to, d)) return false;
  }
  return true;
}

/* By the definition of its kind; NULL, or what is wrong. */
static const char *is_illegal(const struct move *m)
{
  struct layout a = m->from, b = m->to;
  if (m->n < 1) return "no dimensions";
  for (int i = 0; i < m->n; i++)
    for (int k = 0; k < i; k++)
      if (m->dim[i] == m->dim[k]) return "a dimension twice";
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = a.on[i], q = b.on[i];
    if (is_moved(m, i)) continue;
    if (p.kind != q.kind) return "changes another dimension of the mesh";
    if (p.kind == SHARD && p.dim != q.dim) return "changes another dimension's cut";
    if (p.kind == PARTIAL && p.reduction != q.reduction) return "changes another's reduction";
  }
  if (!has_one_reduction(a) || !has_one_reduction(b)) return "mixes reductions";
  switch (m->kind) {
  case OP_slice:
    return is_slice(m) ? NULL : "no slice";
  case OP_exchange:
    return is_exchange(m) ? NULL : "no exchange";
  case OP_to_partial:
    if (!all_are(m, b, PARTIAL) || !(all_are(m, a, REPLICATE) || all_are(m, a, SHARD)))
      return "no to_partial";
    break;
  case OP_all_reduce:
    if (!all_are(m, a, PARTIAL) || !all_are(m, b, REPLICATE)) return "no all_reduce";
    break;
  case OP_reduce_scatter:
    if (!all_are(m, a, PARTIAL) || !all_are(m, b, SHARD)) return "no reduce_scatter";
    break;
  case OP_all_gather:
    if (!all_are(m, a, SHARD) || !all_are(m, b, REPLICATE)) return "no all_gather";
    break;
  case OP_all_to_all:
    if (!all_are(m, a, SHARD) || !all_are(m, b, SHARD)) return "no all_to_all";
    break;
  default:
    return "no step";
  }
  return goes_in_order(m) ? NULL : "cuts are not the last, in the order of the group";
}

static const char *moves_text(const struct move *move, int n)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    put(&b, "%s%s [", i ? "; " : "", op_row[move[i].kind].name);
    for (int k = 0; k < move[i].n; k++) put(&b, "%d", move[i].dim[k]);
    put(&b, "] %s -> ", layout_text(move[i].from));
    put(&b, "%s", layout_text(move[i].to));
  }
  if (!n) put(&b, "nothing");
  return b.text;
}

static void check_steps(const struct move *move, int n, struct layout from, struct layout to)
{
  struct layout now = from;
  for (int i = 0; i < n; i++) {
    const char *why = is_illegal(&move[i]);
    must(!why, "%s -> %s, step %d: %s: %s", layout_text(from), layout_text(to), i, why,
         moves_text(move, n));
    must(same_layout(move[i].from, now), "%s -> %s: step %d begins elsewhere: %s",
         layout_text(from), layout_text(to), i, moves_text(move, n));
    now = move[i].to;
  }
  must(same_layout(now, to), "%s -> %s: ends elsewhere: %s", layout_text(from), layout_text(to),
       moves_text(move, n));
}

/* ------------------------------------------------------------------ what it moves, and how long */

struct load {
  int64_t sent, got;
};

static struct part part_of(struct shape whole, struct layout layout, int rank)
{
  int at[MAX_MESH] = {0};
  coordinate_of(rank, at);
  return local_part(&graph->mesh, whole, layout, at);
}

static int64_t size_of(struct shape whole, struct layout layout, int rank)
{
  return elements(part_of(whole, layout, rank).shape);
}

/* The elements of `a` that are in `b` too. */
static int64_t in_both(struct part a, struct part b)
{
  int64_t n = 1;
  for (int d = 0; d < a.shape.ndim; d++) {
    int64_t first = a.first[d] > b.first[d] ? a.first[d] : b.first[d];
    int64_t x = a.first[d] + a.shape.size[d], y = b.first[d] + b.shape.size[d];
    int64_t last = x < y ? x : y;
    n *= last > first ? last - first : 0;
  }
  return n;
}

static int rank_at(const int at[MAX_MESH])
{
  int rank = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) rank = rank * graph->mesh.size[i] + at[i];
  return rank;
}

/* The ranks that `rank` meets, in the order of the group; gives how many, and which it is
   itself. */
static int meets(const struct move *m, int rank, int *list, int *me)
{
  int at[MAX_MESH] = {0}, n = 1;
  coordinate_of(rank, at);
  for (int i = 0; i < m->n; i++) n *= graph->mesh.size[m->dim[i]];
  for (int k = 0; k < n; k++) {
    for (int i = m->n - 1, rest = k; i >= 0; i--) {
      at[m->dim[i]] = rest % graph->mesh.size[m->dim[i]];
      rest /= graph->mesh.size[m->dim[i]];
    }
    list[k] = rank_at(at);
    if (list[k] == rank) *me = k;
  }
  return n;
}

/* The slowest link on which two ranks differ. */
static double link_between(const struct move *m, int a, int b)
{
  int x[MAX_MESH] = {0}, y[MAX_MESH] = {0};
  double slowest = INFINITY;
  coordinate_of(a, x);
  coordinate_of(b, y);
  for (int i = 0; i < m->n; i++)
    if (x[m->dim[i]] != y[m->dim[i]])
      slowest = fmin(slowest, link_of_dimension(m->dim[i]).bandwidth);
  return slowest;
}

enum { MOST_RANKS = 32 };

/* What a rank sends and receives in a collective, peer by peer; of an all_to_all over links of this
   bandwidth, or over all where it is 0. */
static struct load load_of(const struct move *m, struct shape whole, int rank, double bandwidth)
{
  int list[MOST_RANKS], me = 0, n = meets(m, rank, list, &me);
  struct load l = {0};
  struct part has = part_of(whole, m->from, rank), gets = part_of(whole, m->to, rank);
  for (int k = 0; k < n; k++) {
    int64_t mine = elements(has.shape), theirs = size_of(whole, m->from, list[k]);
    if (k == me) continue;
    switch (m->kind) {
    case OP_all_gather:
      l.sent += mine;
      l.got += theirs;
      break;
    case OP_reduce_scatter:
      l.sent += size_of(whole, m->to, list[k]);
      l.got += elements(gets.shape);
      break;
    case OP_all_reduce:
      l.sent += chunk_size(mine, n, k) + chunk_size(mine, n, me);
      l.got += chunk_size(mine, n, k) + chunk_size(mine, n, me);
      break;
    case OP_all_to_all:
      if (bandwidth > 0 && link_between(m, rank, list[k]) != bandwidth) break;
      l.sent += in_both(has, part_of(whole, m->to, list[k]));
      l.got += in_both(gets, part_of(whole, m->from, list[k]));
      break;
    default:
      break;
    }
  }
  return l;
}

/* What goes over the links of one bandwidth in an exchange. */
static struct load exchanged(const struct move *m, struct shape whole, int rank, double bandwidth)
{
  int list[MOST_RANKS], me = 0;
  struct piece piece[MOST_RANKS];
  struct load l = {0};
  meets(m, rank, list, &me);
  for (int k = 0, n = pieces_sent(m, whole, rank, piece); k < n; k++)
    if (piece[k].member != me && link_between(m, rank, list[piece[k].member]) == bandwidth)
      l.sent += elements(piece[k].part.shape);
  for (int k = 0, n = pieces_got(m, whole, rank, piece); k < n; k++)
    if (piece[k].member != me && link_between(m, rank, list[piece[k].member]) == bandwidth)
      l.got += elements(piece[k].part.shape);
  return l;
}

static int64_t gives(const struct move *m, struct shape whole, int rank)
{
  struct piece piece[MOST_RANKS];
  int64_t sum = 0;
  for (int n = pieces_sent(m, whole, rank, piece); n--;) sum += elements(piece[n].part.shape);
  return sum;
}

static bool is_outermost(struct shape part, int dim)
{
  for (int d = 0; d < dim; d++)
    if (part.size[d] > 1) return elements(part) == 0;
  return true;
}

/* Elements that a rank reads and writes to have them in order. */
static int64_t copied(const struct move *m, struct shape whole, int rank)
{
  int64_t has = size_of(whole, m->from, rank), gets = size_of(whole, m->to, rank), n = 0;
  struct placement a = m->from.on[m->dim[0]], b = m->to.on[m->dim[0]];
  if (m->kind == OP_slice || m->kind == OP_to_partial) return gets;
  if (m->kind == OP_all_gather) n = has;
  if (m->kind == OP_all_to_all || m->kind == OP_exchange)
    n = in_both(part_of(whole, m->from, rank), part_of(whole, m->to, rank));
  if (m->kind == OP_exchange)
    return n + (find_traits(m, whole).sends_runs ? 0 : gives(m, whole, rank)) +
           (find_traits(m, whole).gets_runs ? 0 : gets);
  if (b.kind == SHARD && !is_outermost(part_of(whole, m->from, 0).shape, b.dim)) n += has;
  if (a.kind == SHARD && !is_outermost(part_of(whole, m->to, 0).shape, a.dim)) n += gets;
  return n;
}

/* What a rank sends and receives in a step, over links of this bandwidth; 0: over all. */
static struct load load_over(const struct move *m, struct shape whole, int rank, double bandwidth)
{
  if (m->kind != OP_exchange) return load_of(m, whole, rank, bandwidth);
  struct load sum = {0};
  for (int i = 0; i < m->n; i++) {
    double b = link_of_dimension(m->dim[i]).bandwidth;
    bool counted = bandwidth > 0 && b != bandwidth;
    for (int k = 0; k < i; k++) counted |= link_of_dimension(m->dim[k]).bandwidth == b;
    if (counted) continue;
    struct load l = exchanged(m, whole, rank, b);
    sum.sent += l.sent;
    sum.got += l.got;
  }
  return sum;
}

static double busier(struct load l)
{
  return (double)(l.sent > l.got ? l.sent : l.got);
}

/* Seconds that a step of F32 takes. */
static double step_time(const struct move *m, struct shape whole)
{
  double latency = 0, slowest = INFINITY, busy = 0, copies = 0;
  for (int i = 0; i < m->n; i++) {
    if (graph->mesh.size[m->dim[i]] == 1) continue;
    latency = fmax(latency, link_of_dimension(m->dim[i]).latency);
    slowest = fmin(slowest, link_of_dimension(m->dim[i]).bandwidth);
  }
  for (int r = 0; r < world_size(); r++) {
    bool direct = m->kind == OP_exchange || m->kind == OP_all_to_all;
    if (!direct) busy = fmax(busy, busier(load_of(m, whole, r, 0)) * 4 / slowest);
    for (int i = 0; i < m->n && direct; i++) {
      double b = link_of_dimension(m->dim[i]).bandwidth;
      busy = fmax(busy, busier(load_over(m, whole, r, b)) * 4 / b);
    }
    copies = fmax(copies, (double)copied(m, whole, r));
  }
  return (is_collective(m->kind) ? latency : 0) + busy + copies * 8 / 2e12;
}

/* Whether the plan is described rightly: its steps, their time and bytes, and what add_traffic
   says. */
static void check_plan(const struct moves *p, struct shape whole, struct layout from,
                       struct layout to)
{
  double time = 0;
  struct load sum[MOST_RANKS] = {{0}};
  int64_t got[MOST_RANKS] = {0}, sent[MOST_RANKS] = {0}, busiest = 0;
  check_steps(p->move, p->n, from, to);
  for (int i = 0; i < p->n; i++) {
    time += step_time(&p->move[i], whole);
    add_traffic(&p->move[i], whole, F32, sent, got);
    for (int r = 0; r < world_size(); r++) {
      struct load l = load_over(&p->move[i], whole, r, 0);
      sum[r].sent += l.sent;
      sum[r].got += l.got;
    }
  }
  const char *text = moves_text(p->move, p->n);
  for (int r = 0; r < world_size(); r++) {
    if (sum[r].got > busiest) busiest = sum[r].got;
    must(sum[r].got * 4 == got[r] && sum[r].sent * 4 == sent[r],
         "%s: rank %d sends %" PRId64 " bytes and gets %" PRId64 ": %s", shape_text(whole), r,
         sent[r], got[r], text);
  }
  must(busiest * 4 == p->bytes, "%s: %" PRId64 " bytes, not %" PRId64 ": %s", shape_text(whole),
       busiest * 4, p->bytes, text);
  must(fabs(time - p->time) < 1e-11 * (1 + p->n), "%s: %g s, not %g: %s", shape_text(whole), time,
       p->time, text);
}

/* ---------------------------------------------------------------------------------- all layouts */

struct layouts {
  int n, room;
  struct layout *at;
};

static void add_layout(struct layouts *l, struct layout layout)
{
  for (int i = 0; i < l->n; i++)
    if (same_layout(l->at[i], layout)) return;
  GROW(l->at, l->n, l->room);
  l->at[l->n++] = layout;
}

/* The cut orders of an order of the mesh's dimensions, of which there are as many as permutations.
 */
static struct layout in_order(struct layout layout, int permutation)
{
  int left[MAX_MESH], n = graph->mesh.ndim;
  for (int i = 0; i < n; i++) left[i] = i;
  for (int order = 0; n > 0; order++) {
    int which = permutation % n;
    permutation /= n;
    if (layout.on[left[which]].kind == SHARD) layout.on[left[which]].cut_order = order;
    left[which] = left[--n];
  }
  return layout;
}

/* All layouts of these placements whose pending values are of one reduction, in all orders if
   asked. */
static struct layouts layouts_of(const struct placement *list, int n, bool orders)
{
  struct layouts l = {0};
  int permutations = 1;
  for (int i = 2; orders && i <= graph->mesh.ndim; i++) permutations *= i;
  for (int i = 0; i < power(n, graph->mesh.ndim); i++) {
    struct layout layout = nth_layout(list, n, i);
    if (!has_one_reduction(layout)) continue;
    add_layout(&l, layout);
    for (int k = 0; orders && k < permutations; k++) add_layout(&l, in_order(layout, k));
  }
  return l;
}

static bool is_pending(struct layout layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (layout.on[i].kind == PARTIAL) return true;
  return false;
}

static const struct placement max_of = {.kind = PARTIAL, .reduction = MAX};

static void mesh(const char *text)
{
  int size[MAX_MESH];
  new_graph(parse_mesh(text, size), size);
}

/* --------------------------------------------------------------------------- the greedy planner */

enum { MESH, SHAPE, FROM, TO, STEPS, SHAPES, FIELDS };

static char *steps_text(const struct move *move, int n)
{
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    int d = move[i].dim[0];
    put(&b, "%s%d:%s->", i ? " ; " : "", d, placement_text(move[i].from.on[d]));
    put(&b, "%s", placement_text(move[i].to.on[d]));
  }
  if (!n) put(&b, "none");
  return b.text;
}

/* The table writes P for a pending sum. */
static char *without_sum(char *s)
{
  for (char *at; (at = strstr(s, "(sum)"));) memmove(at, at + 5, strlen(at + 5) + 1);
  return s;
}

/* The shape that the first rank has of the source, as far as the dimensions before a step's cut
   it. */
static char *shapes_text(const struct move *move, int n, struct shape whole, struct layout from)
{
  static const int origin[MAX_MESH];
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    struct layout before = {0};
    for (int d = 0; d < move[i].dim[0]; d++) before.on[d] = from.on[d];
    struct shape s = local_part(&graph->mesh, whole, before, origin).shape;
    put(&b, "%s", i ? " ; " : "");
    for (int d = 0; d < s.ndim; d++) put(&b, "%s%" PRId64, d ? "x" : "", s.size[d]);
  }
  if (!n) put(&b, "none");
  return b.text;
}

static void test_golden_steps(void **state)
{
  (void)state;
  char line[1024], *field[FIELDS];
  int rows = 0, wrong = 0;
  FILE *f = open_golden("redistribute_plans.tsv");
  for (; golden_line(f, line, sizeof line, field, FIELDS) == FIELDS; rows++) {
    mesh(field[MESH]);
    struct layout from = parse_layout(field[FROM]), to = parse_layout(field[TO]);
    struct move move[MAX_MOVES];
    int n = greedy_moves(from, to, move);
    char *steps = without_sum(steps_text(move, n));
    char *shapes = shapes_text(move, n, parse_shape(field[SHAPE]), from);
    check_steps(move, n, from, to);
    if (!strcmp(steps, field[STEPS]) && !strcmp(shapes, field[SHAPES])) continue;
    wrong++;
    print_error("mesh %s, %s: %s -> %s:\n  %s, %s, not\n  %s, %s\n", field[MESH], field[SHAPE],
                field[FROM], field[TO], steps, shapes, field[STEPS], field[SHAPES]);
  }
  fclose(f);
  print_message("%d plans\n", rows);
  assert_true(rows > 100);
  assert_int_equal(wrong, 0);
}

/* From any layout to any other, whatever the order of the cuts and what is pending. */
static void test_greedy_steps_are_legal(void **state)
{
  (void)state;
  static const char *const meshes[] = {"2", "2x3", "3x2", "2x2x2"};
  struct placement list[] = {R, S(0), S(1), P, max_of};
  struct move move[MAX_MOVES];
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    mesh(meshes[i]);
    struct layouts l = layouts_of(list, 5, true);
    for (int a = 0; a < l.n; a++)
      for (int b = 0; b < l.n; b++) {
        int n = greedy_moves(l.at[a], l.at[b], move);
        assert_true(n <= 2 * graph->mesh.ndim && (n == 0) == (a == b));
        for (int k = 0; k < n; k++) assert_int_equal(move[k].n, 1);
        check_steps(move, n, l.at[a], l.at[b]);
      }
  }
}

/* ------------------------------------------------------------------------------------ the bytes */

/* The tables of bytes: a (2,4) mesh and a 16384x8192 tensor of float32; PyTorch's planners,
   Shardy's, and the bound. */
static void test_golden_bytes(void **state)
{
  (void)state;
  enum { TABLE_FROM = 1, TABLE_TO, GREEDY, COLLECTIVES, SHARDY = 7, BOUND = 9, COLUMNS };
  char line[1024], *field[COLUMNS];
  int rows = 0;
  int64_t bytes = 0, bounds = 0;
  FILE *f = open_golden("redistribute_bytes.tsv");
  for (; golden_line(f, line, sizeof line, field, COLUMNS) == COLUMNS; rows++) {
    struct shape whole = parse_shape("16384x8192");
    if (rows == 0) mesh(field[0]);
    struct layout from = parse_layout(field[TABLE_FROM]), to = parse_layout(field[TABLE_TO]);
    const struct moves *p = plan_moves(whole, F32, from, to);
    int64_t bound = strtoll(field[BOUND], NULL, 10);
    bytes += p->bytes;
    bounds += bound;
    check_plan(p, whole, from, to);
    must(p->bytes <= strtoll(field[SHARDY], NULL, 10), "%s -> %s: more than Shardy",
         field[TABLE_FROM], field[TABLE_TO]);
    must(p->bytes == bound && least_bytes(cost_model_of_graph(), whole, F32, from, to) == bound,
         "%s -> %s: %" PRId64 " bytes, bound %" PRId64, field[TABLE_FROM], field[TABLE_TO],
         p->bytes, least_bytes(cost_model_of_graph(), whole, F32, from, to));
    plan_options->greedy = true;
    p = plan_moves(whole, F32, from, to);
    plan_options->greedy = false;
    int collectives = 0;
    for (int i = 0; i < p->n; i++) collectives += is_collective(p->move[i].kind);
    must(p->bytes == strtoll(field[GREEDY], NULL, 10) && collectives == atoi(field[COLLECTIVES]),
         "%s -> %s, greedy: %" PRId64 " bytes, %d collectives", field[TABLE_FROM], field[TABLE_TO],
         p->bytes, collectives);
  }
  fclose(f);
  print_message("%d moves, %" PRId64 " bytes, bound %" PRId64 "\n", rows, bytes, bounds);
  assert_true(rows > 40);
  assert_true(bytes == bounds);
}

/* What the rank that lacks most lacks. */
static int64_t most_lacked(struct shape whole, struct layout from, struct layout to)
{
  int64_t most = 0;
  for (int r = 0; r < world_size(); r++) {
    struct part a = part_of(whole, from, r), b = part_of(whole, to, r);
    int64_t lacks = elements(b.shape) - in_both(a, b);
    if (lacks > most) most = lacks;
  }
  return most;
}

static int reach_the_bound(const char *on, const char *shape, bool orders)
{
  mesh(on);
  struct shape whole = parse_shape(shape);
  struct layouts l = layouts_of((struct placement[]){R, S(0), S(1)}, 3, orders);
  for (int a = 0; a < l.n; a++)
    for (int b = 0; b < l.n; b++) {
      const struct moves *p = plan_moves(whole, F32, l.at[a], l.at[b]);
      int64_t bound = 4 * most_lacked(whole, l.at[a], l.at[b]);
      must(least_bytes(cost_model_of_graph(), whole, F32, l.at[a], l.at[b]) == bound &&
               p->bytes == bound,
           "mesh %s, %s: %s -> %s: %" PRId64 " bytes, bound %" PRId64 ": %s", on, shape,
           layout_text(l.at[a]), layout_text(l.at[b]), p->bytes, bound, moves_text(p->move, p->n));
      if ((a * l.n + b) % 7 == 0)
        check_plan(p, whole, l.at[a], l.at[b]);
      else
        check_steps(p->move, p->n, l.at[a], l.at[b]);
    }
  return l.n * l.n;
}

static void test_the_bound_is_reached(void **state)
{
  (void)state;
  static const char *const meshes[] = {"8", "4x2", "2x4", "2x3", "2x2x2"};
  static const char *const shapes[] = {"16384x8192", "24x16", "7x5", "1x3", "9x1", "0x4", "5x3x2"};
  int tried = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
      tried += reach_the_bound(meshes[i], shapes[k], k % 2 == 0);
  print_message("%d moves\n", tried);
}

/* What is known of pending sums: T is the whole. */
static void needs(const char *on, const char *from, const char *to, int64_t bytes)
{
  mesh(on);
  struct shape whole = parse_shape("24x16");
  int64_t stated =
      least_bytes(cost_model_of_graph(), whole, F32, parse_layout(from), parse_layout(to));
  must(stated == bytes, "mesh %s: %s -> %s needs %" PRId64 " bytes, not %" PRId64, on, from, to,
       stated, bytes);
}

static void test_bounds_of_pending_sums(void **state)
{
  (void)state;
  enum { T = 24 * 16 * 4 };
  needs("4", "P", "R", T * 2 * 3 / 4);
  needs("4", "P", "S(1)", T * 3 / 4);
  needs("4", "P(max)", "P(max)", 0);
  needs("4", "R", "P", 0);
  needs("4", "S(0)", "P", 0);
  needs("2x4", "P P", "R R", T * 2 * 7 / 8);
  needs("2x4", "P R", "R R", T); /* (1 + 7) / 8: what a rank lacks is as much */
  needs("4x2", "P R", "R R", T * (3 + 7) / 8);
  needs("2x4", "P P", "S(0) S(1)", T * 7 / 8);
  needs("2x4", "P S(0)", "R S(0)", T / 4); /* (1 + 1) / 8 of all, a quarter of it on each */
  needs("2x4", "P S(0)", "S(0)[1] S(0)[0]", T / 8);
  needs("2x4", "P S(0)", "S(0) S(0)", T * (2 * 8 - 2) / 64); /* a quarter lies with who wants it */
  needs("2x4", "P S(0)", "R R", T);
  needs("2x4", "P P", "P R", T * (3 + 3) / 8);
  needs("4x2", "P R", "P P", 0);
}

/* ------------------------------------------------------------------ against the greedy planner */

static const struct moves *plan_by(bool greedy, struct shape whole, struct layout from,
                                   struct layout to)
{
  plan_options->greedy = greedy;
  const struct moves *p = plan_moves(whole, F32, from, to);
  plan_options->greedy = false;
  return p;
}

static int no_dearer(const char *on, const char *shape)
{
  mesh(on);
  struct shape whole = parse_shape(shape);
  struct layouts l = layouts_of((struct placement[]){R, S(0), S(1), P, max_of}, 5, false);
  for (int a = 0; a < l.n; a++)
    for (int b = 0; b < l.n; b++) {
      const struct moves *p = plan_by(false, whole, l.at[a], l.at[b]);
      const struct moves *g = plan_by(true, whole, l.at[a], l.at[b]);
      must(p->time <= g->time && p->bytes <= g->bytes,
           "mesh %s, %s: %s -> %s: %g s and %" PRId64 " bytes by\n  %s\ngreedy %g and %" PRId64
           " by\n  %s",
           on, shape, layout_text(l.at[a]), layout_text(l.at[b]), p->time, p->bytes,
           moves_text(p->move, p->n), g->time, g->bytes, moves_text(g->move, g->n));
      must(greedy_bytes(cost_model_of_graph(), whole, F32, l.at[a], l.at[b]) == g->bytes,
           "other greedy bytes");
      must(p->bytes >= least_bytes(cost_model_of_graph(), whole, F32, l.at[a], l.at[b]),
           "mesh %s, %s: %s -> %s: less than the bound %" PRId64 ": %s", on, shape,
           layout_text(l.at[a]), layout_text(l.at[b]),
           least_bytes(cost_model_of_graph(), whole, F32, l.at[a], l.at[b]),
           moves_text(p->move, p->n));
      if ((a * l.n + b) % 11 == 0) {
        check_plan(p, whole, l.at[a], l.at[b]);
        check_plan(g, whole, l.at[a], l.at[b]);
      } else {
        check_steps(p->move, p->n, l.at[a], l.at[b]);
      }
    }
  return l.n * l.n;
}

static void test_never_dearer_than_greedy(void **state)
{
  (void)state;
  static const char *const meshes[] = {"2", "3", "4", "2x2", "2x3", "2x2x2"};
  static const char *const shapes[] = {"16x24", "7x5", "1x3", "0x4", "640x1", "3x4x5", "4096x4096"};
  int tried = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < (strlen(meshes[i]) > 3 ? 2 : sizeof shapes / sizeof *shapes); k++)
      tried += no_dearer(meshes[i], shapes[k]);
  print_message("%d moves\n", tried);
}

/* --------------------------------------------------------------------------- against all ways */

/* The quickest legal step between two layouts, and what every rank receives in it. */
struct edge {
  bool is;
  double time;
  int64_t got[8];
};

static void try_edge(struct edge *e, struct move m, struct shape whole)
{
  if (is_illegal(&m)) return;
  double time = step_time(&m, whole);
  if (e->is && e->time <= time) return;
  e->is = true;
  e->time = time;
  for (int r = 0; r < world_size(); r++) e->got[r] = load_over(&m, whole, r, 0).got;
}

static struct edge edge_between(struct shape whole, struct layout from, struct layout to)
{
  static const enum op_kind kinds[] = {OP_slice,      OP_to_partial,     OP_all_reduce,
                                       OP_all_gather, OP_reduce_scatter, OP_all_to_all};
  struct edge e = {0};
  struct move m = {.kind = OP_exchange, .from = from, .to = to};
  unsigned dims = differing(from, to);
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (dims >> i & 1) m.dim[m.n++] = i;
  }
  try_edge(&e, m, whole);
  m.n = 0;
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement a = from.on[i], b = to.on[i];
    if (a.kind != b.kind || (a.kind == SHARD && a.dim != b.dim)) m.dim[m.n++] = i;
  }
  /* in every order of up to three dimensions */
  for (int p = 0; p < 6 && m.n > 0; p++) {
    struct move in = m;
    if (m.n >= 2 && p % 2) in.dim[0] = m.dim[1], in.dim[1] = m.dim[0];
    if (m.n == 3 && p / 2) {
      int last = in.dim[2], with = p / 2 - 1;
      in.dim[2] = in.dim[with];
      in.dim[with] = last;
    }
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
      in.kind = kinds[k];
      try_edge(&e, in, whole);
    }
  }
  return e;
}

/* All layouts on a mesh, and the steps between them. */
struct map {
  struct shape whole;
  struct layouts l;
  struct edge *edge; /* [from * l.n + to] */
};

static struct map map_of(const char *shape, const struct placement *list, int n)
{
  struct map m = {parse_shape(shape), layouts_of(list, n, true), NULL};
  m.edge = alloc((size_t)(m.l.n * m.l.n) * sizeof *m.edge);
  for (int a = 0; a < m.l.n; a++)
    for (int b = 0; b < m.l.n; b++)
      if (a != b) m.edge[a * m.l.n + b] = edge_between(m.whole, m.l.at[a], m.l.at[b]);
  return m;
}

static const struct edge *known_edge(const struct map *m, int from, int to)
{
  return &m->edge[from * m->l.n + to];
}

/* Whether a way from a to b may come by here: only what is pending at one end may be. */
static bool is_between(const struct map *m, int here, int a, int b)
{
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (m->l.at[here].on[i].kind == PARTIAL && m->l.at[a].on[i].kind != PARTIAL &&
        m->l.at[b].on[i].kind != PARTIAL)
      return false;
  return true;
}

/* Elements that the rank which receives most receives on the way of up to three steps. */
static int64_t received(const struct edge *const *step, int n)
{
  int64_t most = 0;
  for (int r = 0; r < world_size(); r++) {
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += step[i]->got[r];
    if (sum > most) most = sum;
  }
  return most;
}

/* No way of up to three steps on which no rank receives more is quicker than the plan. */
static void check_against(const struct map *m, int a, int b, const struct moves *p, int64_t limit)
{
  const struct edge *step[3];
  double time = p->time - 1e-11 * (1 + p->n);
  for (int x = 0; x < m->l.n; x++) {
    step[0] = known_edge(m, a, x);
    if (!step[0]->is || step[0]->time >= time || !is_between(m, x, a, b)) continue;
    must(x != b || received(step, 1) > limit, "%s: %s -> %s: %g s in one step, not %g: %s",
         shape_text(m->whole), layout_text(m->l.at[a]), layout_text(m->l.at[b]), step[0]->time,
         p->time, moves_text(p->move, p->n));
    for (int y = 0; y < m->l.n && x != b; y++) {
      step[1] = known_edge(m, x, y);
      double so_far = step[0]->time + step[1]->time;
      if (!step[1]->is || so_far >= time || !is_between(m, y, a, b)) continue;
      step[2] = known_edge(m, y, b);
      int n = y == b ? 2 : 3;
      if (n == 3 && (!step[2]->is || so_far + step[2]->time >= time)) continue;
      must(received(step, n) > limit, "%s: %s -> %s: %g s by %s, %s, not %g: %s",
           shape_text(m->whole), layout_text(m->l.at[a]), layout_text(m->l.at[b]),
           so_far + (n == 3 ? step[2]->time : 0), layout_text(m->l.at[x]), layout_text(m->l.at[y]),
           p->time, moves_text(p->move, p->n));
    }
  }
}

/* Where links are alike, no rank may receive more than it has to, or on the greedy way. */
static int beats_all(const char *shape, const struct placement *list, int n, bool alike)
{
  struct map m = map_of(shape, list, n);
  for (int a = 0; a < m.l.n; a++)
    for (int b = 0; b < m.l.n; b++) {
      if (a == b) continue;
      const struct moves *p = plan_by(false, m.whole, m.l.at[a], m.l.at[b]);
      int64_t limit = INT64_MAX;
      if (alike && (is_pending(m.l.at[a]) || is_pending(m.l.at[b])))
        limit = plan_by(true, m.whole, m.l.at[a], m.l.at[b])->bytes / 4;
      else if (alike)
        limit = most_lacked(m.whole, m.l.at[a], m.l.at[b]);
      check_against(&m, a, b, p, limit);
      if ((a * m.l.n + b) % 5 == 0) check_plan(p, m.whole, m.l.at[a], m.l.at[b]);
    }
  return m.l.n * (m.l.n - 1);
}

static void test_no_way_is_quicker(void **state)
{
  (void)state;
  static const char *const meshes[] = {"2", "3", "4", "2x2", "2x3", "3x2"};
  static const char *const shapes[] = {"4x4", "5x3", "1x7", "6", "2048x1536", "3x3000", "1x100000"};
  int tried = 0;
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
      struct placement list[] = {R, S(0), P, S(1)};
      mesh(meshes[i]);
      tried += beats_all(shapes[k], list, parse_shape(shapes[k]).ndim + 2, true);
    }
  mesh("2x2x2");
  tried += beats_all("16x24", (struct placement[]){R, S(0), S(1), P}, 4, true);
  mesh("2x2x2");
  tried += beats_all("4096x1024", (struct placement[]){R, S(0), S(1), P}, 4, true);
  print_message("%d moves\n", tried);
}

/* ---------------------------------------------------------------------------- links that differ */

static void links(int mesh_dim, double bandwidth, double latency)
{
  graph->mesh.bandwidth[mesh_dim] = bandwidth;
  graph->mesh.latency[mesh_dim] = latency;
}

static void test_no_way_is_quicker_over_links_that_differ(void **state)
{
  (void)state;
  static const char *const shapes[] = {"8x12", "2048x1536", "5x3", "7x30000"};
  int tried = 0;
  for (int k = 0; k < 8; k++) {
    mesh(k % 2 ? "2x3" : "3x2");
    links(k / 4, 5e9, k / 2 % 2 ? 50e-6 : 0);
    links(1 - k / 4, 200e9, 3e-6);
    tried += beats_all(shapes[k / 2], (struct placement[]){R, S(0), S(1), P}, 4, false);
  }
  mesh("2x2x2");
  links(1, 10e9, 20e-6);
  links(2, 400e9, 2e-6);
  tried += beats_all("512x384", (struct placement[]){R, S(0), S(1)}, 3, false);
  print_message("%d moves\n", tried);
}

static const struct moves *steps_are(const char *shape, const char *from, const char *to,
                                     const char *steps)
{
  const struct moves *p = plan_moves(parse_shape(shape), F32, parse_layout(from), parse_layout(to));
  check_plan(p, parse_shape(shape), parse_layout(from), parse_layout(to));
  const char *stated = moves_text(p->move, p->n);
  must(!strcmp(stated, steps), "%s: %s -> %s:\n  %s, not\n  %s", shape, from, to, stated, steps);
  return p;
}

/* The slow link first, while there is less to send. */
static void test_slow_links_come_first(void **state)
{
  (void)state;
  mesh("2x4");
  links(0, 5e9, 0);
  links(1, 100e9, 0);
  steps_are("4096x4096", "S(0) S(1)", "R R",
            "all_gather [0] S(0) S(1) -> R S(1); all_gather [1] R S(1) -> R R");
  steps_are("4096x4096", "S(1) S(0)", "R R",
            "all_gather [0] S(1) S(0) -> R S(0); all_gather [1] R S(0) -> R R");
  /* Each of the replicas along the quick link brings a part over the slow one. */
  steps_are("4096x4096", "S(1) R", "R R",
            "exchange [01] S(1) R -> R S(0); all_gather [1] R S(0) -> R R");
  links(0, 400e9, 0);
  links(1, 400e9, 0);
  steps_are("4096x4096", "S(1) R", "R R", "all_gather [0] S(1) R -> R R");
}

/* ------------------------------------------------------------------------------- known plans */

static void test_known_plans(void **state)
{
  (void)state;
  mesh("2x4");
  steps_are("24x16", "R R", "S(0) S(1)", "slice [01] R R -> S(0) S(1)");
  steps_are("24x16", "S(0) S(0)", "R R", "all_gather [01] S(0) S(0) -> R R");
  steps_are("24x16", "S(0)[1] S(0)[0]", "R R", "all_gather [10] S(0)[1] S(0)[0] -> R R");
  steps_are("24x16", "S(0) S(0)", "S(1) S(1)", "all_to_all [01] S(0) S(0) -> S(1) S(1)");
  steps_are("24x16", "P P", "R R", "all_reduce [01] P(sum) P(sum) -> R R");
  steps_are("24x16", "P P", "S(0) S(0)", "reduce_scatter [01] P(sum) P(sum) -> S(0) S(0)");
  steps_are("24x16", "P(max) P(max)", "S(1)[1] S(1)[0]",
            "reduce_scatter [10] P(max) P(max) -> S(1)[1] S(1)[0]");
  steps_are("24x16", "S(0)[1] S(0)[0]", "S(0) S(0)", "exchange [01] S(0)[1] S(0)[0] -> S(0) S(0)");
  steps_are("24x16", "S(0) R", "R S(0)", "exchange [01] S(0) R -> R S(0)");
  steps_are("24x16", "S(1) S(0)", "P P",
            "to_partial [0] S(1) S(0) -> P(sum) S(0); "
            "to_partial [1] P(sum) S(0) -> P(sum) P(sum)");
  steps_are("24x16", "P R", "P(max) R",
            "all_reduce [0] P(sum) R -> R R; to_partial [0] R R -> P(max) R");
  /* Before it is gathered it is reduced in parts. */
  mesh("4x2");
  steps_are("4096x4096", "P R", "R R",
            "slice [1] P(sum) R -> P(sum) S(0); "
            "reduce_scatter [0] P(sum) S(0) -> S(0)[1] S(0)[0]; "
            "all_gather [10] S(0)[1] S(0)[0] -> R R");
}

/* What is cut in strides stays so, whatever else moves. */
static void check_strided(const char *shape, const char *from, const char *to, int64_t bytes)
{
  struct shape whole = parse_shape(shape);
  struct layout a = parse_layout(from), b = parse_layout(to);
  for (int greedy = 0; greedy < 2; greedy++) {
    const struct moves *p = plan_by(greedy, whole, a, b);
    int64_t sent[MOST_RANKS] = {0}, got[MOST_RANKS] = {0}, busiest = 0;
    struct layout now = a;
    assert_true(p->n > 0);
    for (int i = 0; i < p->n; i++) {
      const struct move *m = &p->move[i];
      assert_true(same_layout(m->from, now));
      now = m->to;
      for (int d = 0; d < graph->mesh.ndim; d++)
        assert_true(a.on[d].outer <= 1 || same_placement(a.on[d], now.on[d]));
      add_traffic(m, whole, F32, sent, got);
    }
    assert_true(same_layout(now, b));
    for (int r = 0; r < world_size(); r++)
      if (got[r] > busiest) busiest = got[r];
    must(busiest == p->bytes && (greedy || busiest == bytes),
         "%s -> %s: %" PRId64 " bytes, stated %" PRId64, from, to, busiest, p->bytes);
  }
  must(least_bytes(cost_model_of_graph(), whole, F32, a, b) <= bytes &&
           greedy_bytes(cost_model_of_graph(), whole, F32, a, b) >= bytes,
       "%s -> %s: bounds", from, to);
}

static void test_strides_stay(void **state)
{
  (void)state;
  mesh("2x2x3");
  check_strided("12x6x5", "S(0/2) R R", "S(0/2) P R", 0);
  check_strided("12x6x5", "S(0/2) S(1) R", "S(0/2) R R", 6 * 3 * 5 * 4);
  check_strided("12x6x5", "S(0/3) S(1) S(2)", "S(0/3) S(2) S(1)", 6 * 2 * 3 * 4);
  check_strided("12x7x5", "P S(0/2) S(2)", "R S(0/2) S(2)", 6 * 7 * 2 * 4);
  check_strided("12x7x5", "S(1) S(0/2) S(0)", "R S(0/2) S(0)", 3 * 4 * 5 * 4);
  mesh("3x2");
  check_strided("10x4", "S(0/5) S(1)", "S(0/5) R", 5 * 2 * 4);
}

/* Where a dimension of the mesh has one rank there is nothing to send. */
static void test_dimensions_of_one_rank(void **state)
{
  (void)state;
  mesh("1x2x1");
  struct placement list[] = {R, S(0), S(1), P};
  struct layouts l = layouts_of(list, 4, false);
  for (int a = 0; a < l.n; a++)
    for (int b = 0; b < l.n; b++) {
      struct shape whole = parse_shape("5x4");
      const struct moves *p = plan_moves(whole, F32, l.at[a], l.at[b]);
      struct layout now = l.at[a];
      assert_true((p->n == 0) == (a == b));
      for (int i = 0; i < p->n; i++) {
        assert_true(same_layout(p->move[i].from, now));
        now = p->move[i].to;
      }
      assert_true(same_layout(now, l.at[b]));
      assert_true(p->time < 30e-6);
      assert_true(!same_placement(l.at[a].on[1], l.at[b].on[1]) || p->bytes == 0);
    }
}

/* ------------------------------------------------------------------------ remembered, and quick */

static void test_plans_are_remembered(void **state)
{
  (void)state;
  mesh("2x2");
  struct shape whole = parse_shape("64x64");
  struct layout from = parse_layout("S(0) R"), to = parse_layout("R S(0)");
  const struct moves *p = plan_moves(whole, F32, from, to);
  assert_ptr_equal(plan_moves(whole, F32, from, to), p);
  assert_ptr_equal(plan_moves(whole, I32, from, to), p);
  assert_ptr_not_equal(plan_moves(whole, BF16, from, to), p);
  assert_ptr_not_equal(plan_moves(parse_shape("64x65"), F32, from, to), p);
  assert_ptr_not_equal(plan_moves(whole, F32, to, from), p);
  assert_ptr_not_equal(plan_by(true, whole, from, to), p);
  double before = p->time;
  links(0, 1e9, 0);
  assert_true(plan_moves(whole, F32, from, to)->time > before);
  links(0, 0, 1e-3);
  assert_true(plan_moves(whole, F32, from, to)->time > 1e-3);
  links(0, 0, 0);
  assert_ptr_equal(plan_moves(whole, F32, from, to), p);
  assert_true(p->time == before);
}

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All pairs on 2x2x2; gives the seconds for one. */
static double plan_all(const struct layouts *l, struct shape whole)
{
  double begin = seconds();
  for (int a = 0; a < l->n; a++)
    for (int b = 0; b < l->n; b++) plan_moves(whole, F32, l->at[a], l->at[b]);
  return (seconds() - begin) / (l->n * l->n);
}

static void test_plans_are_quick(void **state)
{
  (void)state;
  mesh("2x2x2");
  struct layouts l = layouts_of((struct placement[]){R, S(0), S(1), P}, 4, false);
  double first = plan_all(&l, parse_shape("1024x4096")), again = INFINITY;
  for (int i = 0; i < 3; i++) again = fmin(again, plan_all(&l, parse_shape("1024x4096")));
  print_message("a plan takes %.1f us, and %.2f us when it is remembered\n", first * 1e6,
                again * 1e6);
  assert_true(again < 50e-6);
  assert_true(first < 20e-3);
}

/* Many ranks, and many dimensions of the mesh. */
static void test_big_meshes(void **state)
{
  (void)state;
  static const char *const meshes[] = {"1024",    "16x64", "8x8x16", "2x2x2x2x2x2",
                                       "4x4x4x4", "64x64", "8192x8", "256x256"};
  static const char *const from[] = {
      "S(0)",          "S(0) S(1)",       "S(0) R P", "S(0) S(1) S(2) R P R",
      "S(0) R S(0) P", "S(0)[1] S(0)[0]", "S(1) P",   "S(0) S(1)"};
  static const char *const to[] = {
      "S(1)",      "S(1) S(0)", "S(1) S(0) R", "R S(0) S(1) S(3) S(2) P", "R S(0) S(1) S(2)",
      "S(0) S(0)", "R S(0)",    "S(1) S(0)"};
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    mesh(meshes[i]);
    struct shape whole = parse_shape("4096x512x64x8");
    struct layout a = parse_layout(from[i]), b = parse_layout(to[i]);
    double begin = seconds();
    const struct moves *p = plan_moves(whole, F32, a, b), *g = plan_by(true, whole, a, b);
    print_message("%s: %.0f us; %.3g of %.3g ms\n", meshes[i], (seconds() - begin) * 1e6,
                  p->time * 1e3, g->time * 1e3);
    check_steps(p->move, p->n, a, b);
    assert_true(p->time <= g->time && p->bytes <= g->bytes);
    assert_true(greedy_bytes(cost_model_of_graph(), whole, F32, a, b) == g->bytes);
    assert_true(least_bytes(cost_model_of_graph(), whole, F32, a, b) <= p->bytes);
    for (int k = 0; k < p->n && world_size() > 1024; k++) {
      int ranks = 1;
      for (int d = 0; d < p->move[k].n; d++) ranks *= graph->mesh.size[p->move[k].dim[d]];
      assert_true(p->move[k].kind != OP_exchange || ranks <= 1024);
    }
    assert_true(seconds() - begin < 5);
  }
}

/* Sums that stay pending from micro-batch to micro-batch do not travel there, however quick its
   links seem: a gradient that is reduced in each of them is reduced over the ranks alone. */
static void test_nothing_moves_in_time(void **state)
{
  (void)state;
  mesh("8x4x8");
  graph->mesh.microbatch_axis[1] = true;
  links(0, 50e9, 3e-5);
  links(1, 100e9, 1e-5);
  links(2, 450e9, 1e-5);
  struct layout from = parse_layout("P P S(0)"), to = parse_layout("S(0) P S(0)");
  to.on[0].cut_order = 1;
  const struct moves *p = plan_moves(parse_shape("128256x16384"), F32, from, to);
  assert_int_equal(p->n, 1);
  assert_true(p->move[0].kind == OP_reduce_scatter && p->move[0].n == 1 && p->move[0].dim[0] == 0);
  /* Micro-batches of one sample, which only one rank has: no way leads over another cut in time. */
  static const char *const cuts[] = {"S(0) S(0)", "S(0) S(1)", "S(0) S(2)", "S(0) R"};
  for (int links_differ = 0; links_differ < 2; links_differ++)
    for (int i = 0; i < 16; i++) {
      mesh("64x16");
      graph->mesh.microbatch_axis[0] = true;
      if (links_differ) links(0, 1e12, 1e-6);
      links(1, 25e9, 3e-5);
      struct layout a = parse_layout(cuts[i / 4]), b = parse_layout(cuts[i % 4]);
      p = plan_moves(parse_shape("64x64x5120"), F32, a, b);
      for (int k = 0; k < p->n; k++) {
        const struct placement in_time = p->move[k].to.on[0];
        must(in_time.kind == SHARD && in_time.dim == 0 && in_time.cut_order == 0,
             "%s -> %s: step %d moves in time", cuts[i / 4], cuts[i % 4], k);
      }
    }
}

/* Each rank's pieces of an exchange among many, as a program asks for them. */
static void test_pieces_are_quick(void **state)
{
  (void)state;
  mesh("32x16");
  struct piece list[512];
  struct shape whole = parse_shape("8192x8192");
  struct move m = {.kind = OP_exchange, .n = 2, .dim = {0, 1}};
  m.from = parse_layout("S(0) S(1)");
  m.to = parse_layout("S(1) S(0)");
  double begin = seconds();
  int64_t sum = 0, given = 0;
  for (int r = 0; r < world_size(); r++) {
    for (int n = pieces_got(&m, whole, r, list); n--;) sum += elements(list[n].part.shape);
    for (int n = pieces_sent(&m, whole, r, list); n--;) given += elements(list[n].part.shape);
  }
  print_message("the pieces of 512 ranks take %.0f ms\n", (seconds() - begin) * 1e3);
  assert_true(sum == elements(whole) && given == sum);
  assert_true(seconds() - begin < 3);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_steps),
      cmocka_unit_test(test_greedy_steps_are_legal),
      cmocka_unit_test(test_golden_bytes),
      cmocka_unit_test(test_the_bound_is_reached),
      cmocka_unit_test(test_bounds_of_pending_sums),
      cmocka_unit_test(test_never_dearer_than_greedy),
      cmocka_unit_test(test_no_way_is_quicker),
      cmocka_unit_test(test_no_way_is_quicker_over_links_that_differ),
      cmocka_unit_test(test_slow_links_come_first),
      cmocka_unit_test(test_known_plans),
      cmocka_unit_test(test_strides_stay),
      cmocka_unit_test(test_dimensions_of_one_rank),
      cmocka_unit_test(test_plans_are_remembered),
      cmocka_unit_test(test_plans_are_quick),
      cmocka_unit_test(test_big_meshes),
      cmocka_unit_test(test_nothing_moves_in_time),
      cmocka_unit_test(test_pieces_are_quick),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
