/* Views, exhaustively. A view moves nothing only if every rank's part, reshaped locally, is the
   rank's part of the reshaped whole. All pairs of small shapes, all layouts, strided ones among
   them, on small meshes: whatever propagate decides, the elements of a rank before the view, after
   any move of the input, must be those of the output's layout, element by element. If propagate
   moves or refuses, every possible layout of the output is tried: none may work without a move.

   The test computes a rank's elements from the definition of placements in the header, not by
   shard.c, which is compared with it. */
#include "graph_passes/graph_passes.h"
#include "unit.h"

#include <sys/mman.h>

enum { MOST_ELEMENTS = 96, MOST_BY_FORCE = 48, MOST_SHAPES = 128, MOST_PLACEMENTS = 64 };

/* ----------------------------------------------------------------- the elements that a rank has */

static int64_t stride_of(struct placement p)
{
  return p.outer > 1 ? p.outer : 1;
}

static bool cuts_dim(struct placement p, int dim)
{
  return p.kind == SHARD && p.dim == dim;
}

/* The next stride after `stride` at which the layout cuts_dim the dimension; its size: none. */
static int64_t next_stride(struct layout layout, int dim, int64_t size, int64_t stride)
{
  int64_t next = size;
  for (int m = 0; m < graph->mesh.ndim; m++) {
    int64_t s = stride_of(layout.on[m]);
    if (cuts_dim(layout.on[m], dim) && s > stride && s < next) next = s;
  }
  return next;
}

/* A dimension is a number with a digit for each of its factors; the rank has a range of each. */
static bool holds_index(struct layout layout, int dim, int64_t size, const int *coordinate,
                        int64_t index)
{
  int64_t stride = 1, next;
  do {
    next = next_stride(layout, dim, size, stride);
    int64_t n = next / stride, digit = index / (size / next) % n;
    for (int m = 0; m < graph->mesh.ndim; m++) {
      if (!cuts_dim(layout.on[m], dim) || stride_of(layout.on[m]) != stride) continue;
      int64_t chunk = (n + graph->mesh.size[m] - 1) / graph->mesh.size[m];
      digit -= chunk * coordinate[m];
      n -= chunk * coordinate[m];
      if (n > chunk) n = chunk;
      if (digit < 0 || digit >= n) return false;
    }
    stride = next;
  } while (stride < size);
  return true;
}

/* Which elements of the whole the rank holds, in row-major order. They lie in the same order in its
   part, so that reshaping the part changes nothing of this. */
struct part_of {
  bool has[MOST_ELEMENTS];
};

static struct part_of held(struct shape shape, struct layout layout, int rank)
{
  int coordinate[MAX_MESH];
  struct part_of part = {{true}};
  coordinate_of(rank, coordinate);
  int64_t n = 1;
  for (int d = 0; d < shape.ndim; n *= shape.size[d++]) {
    struct part_of outer = part;
    for (int64_t i = 0; i < shape.size[d]; i++) {
      bool holds = holds_index(layout, d, shape.size[d], coordinate, i);
      for (int64_t k = 0; k < n; k++) part.has[k * shape.size[d] + i] = holds && outer.has[k];
    }
  }
  return part;
}

static bool same_part(struct part_of a, struct part_of b)
{
  return !memcmp(a.has, b.has, sizeof a.has);
}

static bool same_parts(struct shape a, struct layout in, struct shape b, struct layout out)
{
  for (int m = 0; m < graph->mesh.ndim; m++) {
    bool pending = in.on[m].kind == PARTIAL, still = out.on[m].kind == PARTIAL;
    if (pending != still || (pending && in.on[m].reduction != out.on[m].reduction)) return false;
  }
  for (int r = 0; r < world_size(); r++)
    if (!same_part(held(a, in, r), held(b, out, r))) return false;
  return true;
}

/* -------------------------------------------------------------------------------------- layouts */

/* Whether each stride divides the next, and the last the dimension. */
static bool well_formed(struct shape shape, struct layout layout)
{
  for (int m = 0; m < graph->mesh.ndim; m++) {
    struct placement p = layout.on[m];
    if (p.kind != SHARD) continue;
    if (p.dim < 0 || p.dim >= shape.ndim || shape.size[p.dim] % stride_of(p)) return false;
    if (next_stride(layout, p.dim, shape.size[p.dim], stride_of(p)) % stride_of(p)) return false;
  }
  return true;
}

/* What a tensor of this shape can be on one dimension of the mesh; gives how many. */
static int placements(struct shape shape, bool pending, struct placement *list)
{
  int n = every_placement(shape.ndim, pending, list);
  for (int d = 0; d < shape.ndim; d++)
    for (int64_t outer = 2; outer < shape.size[d]; outer++)
      if (shape.size[d] % outer == 0)
        list[n++] = (struct placement){.kind = SHARD, .dim = d, .outer = outer};
  return n;
}

static bool cuts_one(struct shape shape, struct layout layout)
{
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (layout.on[m].kind == SHARD && shape.size[layout.on[m].dim] == 1) return true;
  return false;
}

/* Whether two dimensions of the mesh cut the same factor of a dimension, one after the other. */
static bool cuts_twice(struct layout layout)
{
  for (int m = 0; m < graph->mesh.ndim; m++)
    for (int k = 0; k < m; k++)
      if (layout.on[m].kind == SHARD && same_placement(layout.on[m], layout.on[k])) return true;
  return false;
}

/* Whether the view needs no move: whether the output has any layout in which the parts are those
   that the ranks have. A dimension of size 1, of which one rank has all, is not kept cut. */
static bool could_stay(struct shape from, struct layout in, struct shape to)
{
  struct placement list[MOST_PLACEMENTS];
  int n = placements(to, true, list);
  for (int i = 0; i < power(n, graph->mesh.ndim); i++) {
    struct layout out = nth_layout(list, n, i);
    if (well_formed(to, out) && !cuts_one(to, out) && same_parts(from, in, to, out)) return true;
  }
  return false;
}

/* --------------------------------------------------------------------------------------- shapes */

static struct shape with_size(struct shape s, int64_t size)
{
  s.size[s.ndim++] = size;
  return s;
}

/* All shapes of n elements, of at most `most` dimensions of 2 and more, that begin with `head`. */
static void put_shapes(struct shape *list, int *count, struct shape head, int64_t n, int most)
{
  must(*count < MOST_SHAPES, "more than %d shapes", MOST_SHAPES);
  if (n == 1) list[(*count)++] = head;
  for (int64_t size = 2; size <= n && most > 0; size++)
    if (n % size == 0) put_shapes(list, count, with_size(head, size), n / size, most - 1);
}

/* The same with a dimension of 1 somewhere. */
static void put_ones(struct shape *list, int *count)
{
  for (int i = 0, n = *count; i < n; i++)
    for (int at = 0; at <= list[i].ndim && list[i].ndim < 3; at++) {
      struct shape s = {0};
      for (int d = 0; d <= list[i].ndim; d++) {
        if (d == at) s = with_size(s, 1);
        if (d < list[i].ndim) s = with_size(s, list[i].size[d]);
      }
      must(*count < MOST_SHAPES, "more than %d shapes", MOST_SHAPES);
      list[(*count)++] = s;
    }
}

static int shapes_of(int64_t n, struct shape *list)
{
  int count = 0;
  put_shapes(list, &count, (struct shape){0}, n, n == 16 || n == 24 ? 4 : 3);
  if (n < 10) put_ones(list, &count);
  return count;
}

/* ----------------------------------------------------------------------- what propagate decides */

/* What the children of one test find, in memory that they share with it. */
struct found {
  long total, next; /* cases tried, those of this mesh apart */
  long stay, moved, refused, strided, required, missed;
  bool at_work; /* on this case: where a child ended, propagate refused it */
  struct shape from, to;
  struct layout in;
};
static struct found *found;

static const char *case_text(struct shape from, struct layout in, struct shape to)
{
  return text("%s %s on %dx%d seen as %s", shape_text(from), layout_text(in), graph->mesh.size[0],
              graph->mesh.ndim > 1 ? graph->mesh.size[1] : 1, shape_text(to));
}

/* The view of a value that lies so, propagated: gives the operation. */
static const struct op *viewed(struct shape from, struct layout in, struct shape to)
{
  int first = graph->norder;
  struct op op = {.kind = OP_view,
                  .nin = 1,
                  .in = {given(BATCH, "x", from, in)},
                  .equation = view_equation(from, to, 1),
                  .module = NONE,
                  .line = 1};
  int out = append_op_shaped(op, to);
  propagate_from(first);
  return &graph->op[graph->value[out].op];
}

static void compare_with_shard(struct shape shape, struct layout layout)
{
  for (int r = 0; r < world_size(); r++) {
    int coordinate[MAX_MESH];
    coordinate_of(r, coordinate);
    int64_t n = elements(local_part(&graph->mesh, shape, layout, coordinate).shape);
    struct part_of part = held(shape, layout, r);
    int expected = 0;
    for (int i = 0; i < MOST_ELEMENTS; i++) expected += part.has[i];
    must(n == expected, "%s %s: rank %d holds %" PRId64 " elements, not %d", shape_text(shape),
         layout_text(layout), r, n, expected);
  }
}

/* On a mesh of one dimension, where the cut is even: the layout that the output must have, the
   value staying where it is. The cut splits off `ranks` parts behind `outside` of the elements: it
   is a cut of any dimension that begins before it and ends behind it. */
static bool must_stay(struct shape from, struct placement in, struct shape to,
                      struct placement *expected)
{
  int64_t outside = stride_of(in), ranks = graph->mesh.size[0];
  if (in.kind != SHARD) {
    *expected = in;
    return true;
  }
  for (int d = 0; d < in.dim; d++) outside *= from.size[d];
  if (from.size[in.dim] / stride_of(in) % ranks) return false;
  int64_t begin = 1;
  for (int d = 0; d < to.ndim; begin *= to.size[d++]) {
    if (outside % begin || begin * to.size[d] % (outside * ranks)) continue;
    *expected = (struct placement){.kind = SHARD, .dim = d, .outer = outside / begin};
    return true;
  }
  return false;
}

/* What is moved or refused could not stay where it is, in any layout of the output. Left out are a
   cut along a dimension of size 1, whose ranks but one have nothing, and a factor that is cut
   twice: S(0) S(0) is S(0) S(0/2) too where the first cut is into 2, and propagate does not see
   this. */
static void check_no_way(struct shape from, struct layout in, struct shape to)
{
  if (cuts_one(from, in) || !could_stay(from, in, to)) return;
  must(cuts_twice(in), "%s: it is not taken as it lies, but could stay", case_text(from, in, to));
  found->missed++;
}

static void try_case(struct shape from, struct layout in, struct shape to)
{
  const struct op *op = viewed(from, in, to);
  const struct value *taken = &graph->value[op->in[0]], *made = &graph->value[op->out];
  must(well_formed(from, taken->layout) && well_formed(to, made->layout),
       "%s: %s -> %s is no layout", case_text(from, in, to), layout_text(taken->layout),
       layout_text(made->layout));
  must(same_parts(from, taken->layout, to, made->layout), "%s: %s -> %s has the wrong elements",
       case_text(from, in, to), layout_text(taken->layout), layout_text(made->layout));
  compare_with_shard(to, made->layout);
  bool stays = same_layout(taken->layout, in);
  struct placement expected;
  if (graph->mesh.ndim == 1 && must_stay(from, in.on[0], to, &expected)) {
    must(stays && same_layout(made->layout, (struct layout){.on = {expected}}),
         "%s by %s: %s -> %s, not %s", case_text(from, in, to), op->equation,
         layout_text(taken->layout), layout_text(made->layout), placement_text(expected));
    found->required++;
  }
  if (!stays) check_no_way(from, in, to);
  found->stay += stays;
  found->moved += !stays;
  for (int m = 0; m < graph->mesh.ndim; m++)
    found->strided += made->layout.on[m].kind == SHARD && made->layout.on[m].outer > 1;
}

/* ------------------------------------------------------------------------------------- by force */

/* A mesh, and the numbers of elements that are tried on it. */
struct force {
  const char *mesh;
  int64_t least, most;
  int one_in; /* of so many cases one is tried */
};

static void try_refused(void)
{
  if (!found->at_work) return;
  found->at_work = false;
  check_no_way(found->from, found->in, found->to);
  found->refused++;
}

enum { FULL = 3, MOST_IN_CHILD = 256 << 20 };

static void try_layouts(struct shape from, struct shape to, long *number, int one_in)
{
  struct placement list[MOST_PLACEMENTS];
  int n = placements(from, true, list);
  for (int i = 0; i < power(n, graph->mesh.ndim); i++) {
    struct layout in = nth_layout(list, n, i);
    if (!well_formed(from, in) || draw_below(one_in) || (*number)++ < found->next) continue;
    found->next = *number;
    found->from = from;
    found->in = in;
    found->to = to;
    found->at_work = true;
    try_case(from, in, to);
    found->at_work = false;
    if (arena_used() > MOST_IN_CHILD) _exit(FULL); /* the next child goes on */
  }
}

/* Goes on where the child before it ended. */
static void force(const void *with)
{
  const struct force *f = with;
  int size[MAX_MESH], ndim = parse_mesh(f->mesh, size);
  long number = 0;
  new_graph(ndim, size);
  try_refused();
  for (int64_t n = f->least; n <= f->most; n++) {
    struct shape list[MOST_SHAPES];
    int count = shapes_of(n, list);
    for (int i = 0; i < count; i++)
      for (int k = 0; k < count; k++) try_layouts(list[i], list[k], &number, f->one_in);
  }
}

static void try_mesh(const char *mesh, int64_t least, int64_t most, int one_in)
{
  struct force f = {mesh, least, most, one_in};
  found->total += found->next;
  found->next = 0;
  for (;;) {
    struct ending e = run_child(force, &f);
    if (e.status == 0) return;
    if (e.status == FULL) continue;
    if (e.status != 1 || !strstr(e.said, "cannot be sharded"))
      fail_msg("ended with %d: %s", e.status, e.said);
  }
}

static void test_force(void **state)
{
  (void)state;
  static const char *const line[] = {"2", "3", "4"}, *const grid[] = {"2x2", "2x3"};
  for (int i = 0; i < 3; i++) {
    try_mesh(line[i], 1, 24, 1);
    try_mesh(line[i], 25, MOST_BY_FORCE, 4);
  }
  for (int i = 0; i < 2; i++) {
    try_mesh(grid[i], 1, 12, 1);
    try_mesh(grid[i], 16, 24, 50);
  }
  print_message(
      "%ld views: %ld stay, as %ld of them must (%ld strided cuts_dim come of it); %ld move and "
      "%ld are refused, %ld of both although they could stay\n",
      found->total + found->next, found->stay, found->required, found->strided, found->moved,
      found->refused, found->missed);
  assert_true(found->stay > 0 && found->strided > 0 && found->required > 0 && found->moved > 0 &&
              found->refused > 0);
  assert_true(found->missed < 400);
}

/* -------------------------------------------------------------------------------------- by name */

/* "S(0/4)" */
static struct layout layout_from(const char *s)
{
  struct layout layout = parse_layout(s);
  for (int m = 0; *s; m++) {
    size_t n = strcspn(s, " ");
    const char *slash = memchr(s, '/', n);
    if (slash) layout.on[m].outer = atoi(slash + 1);
    s += n + (s[n] == ' ');
  }
  return layout;
}

struct named {
  const char *mesh, *from, *in, *to, *out;
};

static void stays_in(const void *with)
{
  const struct named *c = with;
  int size[MAX_MESH], ndim = parse_mesh(c->mesh, size);
  new_graph(ndim, size);
  struct shape from = parse_shape(c->from), to = parse_shape(c->to);
  const struct op *op = viewed(from, layout_from(c->in), to);
  must(graph->norder == 1, "%s %s on %s is moved to %s", c->from, c->in, c->mesh,
       layout_text(graph->value[op->in[0]].layout));
  must(same_layout(graph->value[op->out].layout, layout_from(c->out)), "%s %s on %s as %s is %s",
       c->from, c->in, c->mesh, c->to, layout_text(graph->value[op->out].layout));
  must(same_parts(from, layout_from(c->in), to, layout_from(c->out)), "%s %s on %s is not %s %s",
       c->from, c->in, c->mesh, c->to, c->out);
}

static void test_what_stays(void **state)
{
  (void)state;
  static const struct named list[] = {
      /* The outermost of those that are merged. */
      {"4", "4x6x3", "S(0)", "24x3", "S(0)"},
      {"2", "4x2x5", "S(0)", "40", "S(0)"},
      /* An inner one, evenly and unevenly. */
      {"2", "4x6x3", "S(1)", "24x3", "S(0/4)"},
      {"4", "4x6x3", "S(1)", "24x3", "S(0/4)"},
      {"2", "2x4x3", "S(1)", "24", "S(0/2)"},
      /* Taken apart: the outer factor is a multiple of the ranks; strides go back. */
      {"4", "32x3", "S(0)", "4x8x3", "S(0)"},
      {"4", "24x3", "S(0/4)", "4x6x3", "S(1)"},
      {"2", "24", "S(0/2)", "4x6", "S(0/2)"},
      /* What the view leaves alone, however it is cut. */
      {"4", "6x5", "S(0)", "6x1x5", "S(0)"},
      {"3", "2x3x7", "S(2)", "6x7", "S(1)"},
      {"2", "4x6", "P", "24", "P"},
      /* Two dimensions of the mesh. */
      {"2x2", "4x6x3", "S(0) S(1)", "24x3", "S(0) S(0/4)"},
      {"2x3", "4x6x3", "S(1) S(0)", "24x3", "S(0/4) S(0)"},
      {"2x2", "4x8", "S(1) S(1)", "32", "S(0/4) S(0/4)"},
      {"2x2", "8x3x2", "S(0) P", "24x2", "S(0) P"},
      {"2x2", "24", "S(0) S(0/4)", "4x6", "S(0) S(1)"},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(stays_in, &list[i]);
}

/* 12 x 8 with its columns cut over four ranks, seen as 16 x 6. The rows have a factor of 4 in
   common, and so has the number of columns: but that is another 4. Whoever keeps the parts and
   calls them the parts of the 16 rows gives wrong numbers without a word. */
static void columns_to_other_rows(const void *with)
{
  (void)with;
  new_graph(1, (int[]){4});
  struct shape from = parse_shape("12x8"), to = parse_shape("16x6");
  struct layout columns = layout_from("S(1)"), rows = layout_from("S(0)");
  must(!same_parts(from, columns, to, rows), "the columns are the rows");
  must(!could_stay(from, columns, to), "the columns could stay");
  const struct op *op = viewed(from, columns, to);
  struct layout taken = graph->value[op->in[0]].layout, made = graph->value[op->out].layout;
  must(!same_layout(taken, columns), "the columns are taken as they lie");
  must(same_parts(from, taken, to, made), "%s is not %s", layout_text(taken), layout_text(made));
}

static void test_other_factors(void **state)
{
  (void)state;
  passes(columns_to_other_rows, NULL);
}

int main(void)
{
  found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_force),
      cmocka_unit_test(test_what_stays),
      cmocka_unit_test(test_other_factors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
