/* A rank's part of a tensor, the ranks of a group, and the text of layouts. The parts are those of
   PyTorch: TPGEN_GOLDEN, or tests/golden, local_shapes.tsv. */
#include "sharding/sharding.h"
#include "unit.h"

/* ------------------------------------------------------------------------------------ the table */

enum { MESH, WHOLE_SIZE, PLACEMENTS, COORDINATE, LOCAL, OFFSET, FIELDS };

static void parse_list(const char *s, int64_t *list)
{
  for (char *end; *s; s = end + (*end == ',')) *list++ = strtoll(s, &end, 10);
}

static void check_row(char **field)
{
  int size[MAX_MESH], at[MAX_MESH] = {0};
  int64_t coordinate[MAX_MESH] = {0}, offset[MAX_DIMS] = {0};
  new_graph(parse_mesh(field[MESH], size), size);
  parse_list(field[COORDINATE], coordinate);
  parse_list(field[OFFSET], offset);
  for (int d = 0; d < graph->mesh.ndim; d++) at[d] = (int)coordinate[d];

  struct shape whole = parse_shape(field[WHOLE_SIZE]);
  struct layout layout = parse_layout(field[PLACEMENTS]);
  struct part p = local_part(&graph->mesh, whole, layout, at);
  const char *row = text("mesh %s, %s as %s at %s", field[MESH], field[WHOLE_SIZE],
                         field[PLACEMENTS], field[COORDINATE]);
  must(same_shape(p.shape, parse_shape(field[LOCAL])), "%s: part %s, not %s", row,
       shape_text(p.shape), field[LOCAL]);
  for (int d = 0; d < whole.ndim; d++)
    must(p.first[d] == offset[d], "%s: begins at %" PRId64 " on dimension %d, not %" PRId64, row,
         p.first[d], d, offset[d]);
}

static void test_golden_parts(void **state)
{
  (void)state;
  char line[1024], *field[FIELDS];
  int rows = 0;
  FILE *f = open_golden("local_shapes.tsv");
  for (; golden_line(f, line, sizeof line, field, FIELDS) == FIELDS; rows++) check_row(field);
  fclose(f);
  print_message("%d parts\n", rows);
  assert_true(rows > 100);
}

/* ----------------------------------------------------------------- facts that hold_part for any
 * part */

/* Every element of the whole is in just as many parts as there are ranks that replicate it. */
static void check_cover(struct shape whole, struct layout layout)
{
  int world = world_size(), copies = 1, coordinate[MAX_MESH];
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind != SHARD) copies *= graph->mesh.size[d];
  int *seen = alloc((size_t)(elements(whole) + 1) * sizeof *seen);
  for (int r = 0; r < world; r++) {
    coordinate_of(r, coordinate);
    struct part p = local_part(&graph->mesh, whole, layout, coordinate);
    for (int64_t i = 0; i < p.shape.size[0]; i++)
      for (int64_t j = 0; j < p.shape.size[1]; j++)
        seen[(p.first[0] + i) * whole.size[1] + p.first[1] + j]++;
  }
  for (int64_t i = 0; i < elements(whole); i++)
    must(seen[i] == copies, "%s as %s: element %" PRId64 " is in %d parts, not %d",
         shape_text(whole), layout_text(layout), i, seen[i], copies);
}

static void test_parts_cover_the_whole(void **state)
{
  (void)state;
  static const char *const mesh[] = {"1", "3", "2x3", "3x2x2"};
  static const char *const whole[] = {"12x6", "7x5", "1x2", "0x3", "13x1"};
  for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
    int size[MAX_MESH];
    new_graph(parse_mesh(mesh[m], size), size);
    struct placement list[3] = {R, S(0), S(1)};
    for (int which = 0; which < power(3, graph->mesh.ndim); which++)
      for (size_t w = 0; w < sizeof whole / sizeof *whole; w++)
        check_cover(parse_shape(whole[w]), nth_layout(list, 3, which));
  }
}

static void test_largest_part_is_counted(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 3});
  int v = given(PARAMETER, "w", parse_shape("7x5"), parse_layout("S(0) S(1)"));
  assert_int_equal(largest_bytes(v), 4 * 2 * 4);
  assert_true(same_shape(local_shape(v, 0), parse_shape("4x2")));
  assert_true(same_shape(local_shape(v, 5), parse_shape("3x1")));
  graph->value[v].type = BF16;
  assert_int_equal(largest_bytes(v), 4 * 2 * 2);
  for (int r = 0; r < 6; r++)
    assert_true(elements(local_shape(v, r)) * type_bytes(BF16) <= largest_bytes(v));
}

/* ----------------------------------------------------------------------------- ranks and groups */

static void test_coordinates(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 4});
  assert_int_equal(world_size(), 24);
  int rank = 0, at[MAX_MESH];
  for (int a = 0; a < 2; a++)
    for (int b = 0; b < 3; b++)
      for (int c = 0; c < 4; c++, rank++) {
        coordinate_of(rank, at);
        assert_int_equal(at[0], a);
        assert_int_equal(at[1], b);
        assert_int_equal(at[2], c);
      }
}

static void check_members(unsigned dims, int rank, int n, const int *expected)
{
  int group = add_group(dims), member[24];
  assert_int_equal(group_size(group), n);
  assert_int_equal(group_members(group, rank, member), n);
  for (int i = 0; i < n; i++) assert_int_equal(member[i], expected[i]);
}

static void test_groups(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 2});
  check_members(1, 7, 2, (int[]){1, 7});
  check_members(2, 7, 3, (int[]){7, 9, 11});
  check_members(4, 7, 2, (int[]){6, 7});
  check_members(3, 3, 6, (int[]){1, 3, 5, 7, 9, 11});
  check_members(5, 4, 4, (int[]){4, 5, 10, 11});
  check_members(6, 8, 6, (int[]){6, 7, 8, 9, 10, 11});
  check_members(7, 5, 12, (int[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

/* Whoever I meet meets me, and the same others, in the same order. */
static void test_groups_are_mutual(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 4});
  for (unsigned dims = 1; dims < 8; dims++)
    for (int r = 0, group = add_group(dims); r < 24; r++) {
      int mine[24], theirs[24], n = group_members(group, r, mine);
      bool me = false;
      for (int i = 0; i < n; i++) {
        me |= mine[i] == r;
        assert_int_equal(group_members(group, mine[i], theirs), n);
        assert_memory_equal(mine, theirs, (size_t)n * sizeof *mine);
        assert_true(i == 0 || mine[i - 1] < mine[i]);
      }
      assert_true(me);
    }
}

static void test_group_names(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 4});
  int b = add_group(2), ac = add_group(5);
  assert_string_equal(graph->group[b].name, "b");
  assert_string_equal(graph->group[ac].name, "a_c");
  assert_int_equal(add_group(2), b);
  assert_int_equal(graph->ngroup, 2);
}

/* ------------------------------------------------------------------------ comparing and showing */

static void test_same_placement(void **state)
{
  (void)state;
  struct placement max = {.kind = PARTIAL, .reduction = MAX}, odd = {.kind = REPLICATE, .dim = 3};
  assert_true(same_placement(R, odd));
  assert_true(same_placement(P, P));
  assert_false(same_placement(P, max));
  assert_false(same_placement(R, P));
  assert_true(same_placement(S(1), S(1)));
  assert_false(same_placement(S(1), S(0)));
  assert_false(same_placement(R, S(0)));
}

static void test_same_layout(void **state)
{
  (void)state;
  new_graph(2, (int[]){2, 3});
  assert_true(same_layout(parse_layout("R S(1)"), parse_layout("R S(1)")));
  assert_false(same_layout(parse_layout("R S(1)"), parse_layout("S(1) R")));
  assert_false(same_layout(parse_layout("R S(1)"), parse_layout("R S(0)")));
  assert_true(same_layout(parse_layout("R R P"), parse_layout("R R R")));
}

/* A strided shard: the parts of every block of the dimension. */
static void test_strided_parts(void **state)
{
  (void)state;
  static const struct {
    const char *mesh;
    int64_t size, outer[2]; /* of each mesh dimension; 0: a plain shard, -1: replicated */
    int64_t parts[6];       /* of each rank */
  } list[] = {
      {"2", 24, {4}, {12, 12}},
      {"3", 24, {6}, {12, 12, 0}},
      {"4", 24, {4}, {8, 8, 8, 0}},
      {"2x3", 24, {0, 4}, {4, 4, 4, 4, 4, 4}},
      {"2x3", 24, {4, 0}, {6, 6, 0, 6, 6, 0}},
      {"2x3", 30, {0, 5}, {6, 6, 6, 4, 4, 4}},
      {"2x2", 24, {4, 12}, {8, 8, 4, 4}},
      {"2x2", 24, {12, 4}, {8, 4, 8, 4}},
      {"2x2", 24, {4, 4}, {8, 4, 8, 4}},
      {"2x2", 24, {-1, 4}, {12, 12, 12, 12}},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    int size[MAX_MESH], coordinate[MAX_MESH];
    new_graph(parse_mesh(list[i].mesh, size), size);
    struct layout layout = {0};
    for (int d = 0; d < graph->mesh.ndim; d++)
      if (list[i].outer[d] >= 0)
        layout.on[d] = (struct placement){.kind = SHARD, .dim = 1, .outer = list[i].outer[d]};
    struct shape whole = {.ndim = 2, .size = {3, list[i].size}};
    assert_true(is_strided(&graph->mesh, layout, 1));
    assert_false(is_strided(&graph->mesh, layout, 0));
    for (int r = 0; r < world_size(); r++) {
      coordinate_of(r, coordinate);
      struct shape here = local_part(&graph->mesh, whole, layout, coordinate).shape;
      must(here.size[0] == 3 && here.size[1] == list[i].parts[r],
           "case %zu: rank %d has %s, not %" PRId64, i, r, shape_text(here), list[i].parts[r]);
    }
  }
  struct placement strided = {.kind = SHARD, .dim = 0, .outer = 4};
  assert_string_equal(placement_text(strided), "S(0/4)");
  assert_false(same_placement(strided, S(0)));
  assert_true(same_placement((struct placement){.kind = SHARD, .outer = 1}, S(0)));
}

/* One dimension cut by several of the mesh in an order that is not the mesh's: as DTensorSpec of
   PyTorch 2.13 has it with a shard_order. */
static void test_parts_in_cut_order(void **state)
{
  (void)state;
  static const struct {
    const char *mesh, *layout;
    int64_t size, first[8], parts[8]; /* of each rank; first is -1 where there is none */
  } list[] = {
      {"2x2", "S(0)[1] S(0)[0]", 7, {0, 4, 2, 6}, {2, 2, 2, 1}},
      {"2x2", "S(0)[1] S(0)[0]", 12, {0, 6, 3, 9}, {3, 3, 3, 3}},
      {"2x3", "S(0)[1] S(0)[0]", 7, {0, 3, 6, 2, 5, -1}, {2, 2, 1, 1, 1, 0}},
      {"2x3", "S(0)[1] S(0)[0]", 12, {0, 4, 8, 2, 6, 10}, {2, 2, 2, 2, 2, 2}},
      {"2x2x2", "S(0)[2] S(0)[1] S(0)[0]", 7, {0, 4, 2, 6, 1, 5, 3, -1}, {1, 1, 1, 1, 1, 1, 1, 0}},
      {"2x2x2", "S(0)[2] S(0)[0] S(0)[1]", 12, {0, 3, 6, 9, 2, 5, 8, 11}, {2, 2, 2, 2, 1, 1, 1, 1}},
      {"2x2x2", "S(0)[1] R S(0)[0]", 7, {0, 4, 0, 4, 2, 6, 2, 6}, {2, 2, 2, 2, 2, 1, 2, 1}},
      {"2x2x2", "S(0)[5] R S(0)[3]", 7, {0, 4, 0, 4, 2, 6, 2, 6}, {2, 2, 2, 2, 2, 1, 2, 1}},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    int size[MAX_MESH], coordinate[MAX_MESH];
    new_graph(parse_mesh(list[i].mesh, size), size);
    struct layout layout = parse_layout(list[i].layout);
    struct shape whole = {.ndim = 2, .size = {list[i].size, 5}};
    assert_true(is_reordered(&graph->mesh, layout, 0));
    assert_false(is_reordered(&graph->mesh, layout, 1));
    for (int r = 0; r < world_size(); r++) {
      coordinate_of(r, coordinate);
      struct part p = local_part(&graph->mesh, whole, layout, coordinate);
      must(p.shape.size[0] == list[i].parts[r] && p.shape.size[1] == 5 &&
               p.first[0] == (p.shape.size[0] ? list[i].first[r] : list[i].size),
           "case %zu: rank %d has %s from %" PRId64 ", not %" PRId64 " from %" PRId64, i, r,
           shape_text(p.shape), p.first[0], list[i].parts[r], list[i].first[r]);
    }
  }
}

/* Cuts in strides alike have a cut order; those of other strides do not count. */
static void test_strided_parts_in_cut_order(void **state)
{
  (void)state;
  static const struct {
    const char *layout;
    int64_t parts[12];
  } list[] = {
      {"S(0/4)[1] S(0/4)[0] R", {8, 8, 8, 8, 4, 4, 4, 4, 4, 4, 0, 0}},
      {"S(0/4)[0] S(0/4)[1] R", {8, 8, 8, 8, 0, 0, 4, 4, 4, 4, 4, 4}},
      {"S(0/4)[1] R S(0)[0]", {8, 8, 8, 8, 8, 8, 6, 6, 6, 6, 6, 6}},
      {"S(0)[1] R S(0/4)[0]", {8, 6, 8, 6, 8, 6, 8, 6, 8, 6, 8, 6}},
  };
  new_graph(3, (int[]){2, 3, 2});
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    for (int r = 0; r < world_size(); r++) {
      int coordinate[MAX_MESH];
      coordinate_of(r, coordinate);
      struct shape whole = {.ndim = 1, .size = {28}};
      struct shape here =
          local_part(&graph->mesh, whole, parse_layout(list[i].layout), coordinate).shape;
      must(here.size[0] == list[i].parts[r], "%s: rank %d has %s, not %" PRId64, list[i].layout, r,
           shape_text(here), list[i].parts[r]);
    }
}

static void usual(const char *layout, const char *expected)
{
  struct layout l_usual = usual_cut_order(parse_layout(layout)), l = parse_layout(expected);
  for (int d = 0; d < graph->mesh.ndim; d++)
    must(same_placement(l_usual.on[d], l.on[d]), "%s is written as %s, not %s", layout,
         layout_text(l_usual), expected);
  assert_true(same_layout(parse_layout(layout), l));
  assert_true(same_layout(l, parse_layout(layout)));
}

static void test_cuts_have_one_form(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 2});
  usual("S(0) S(0) S(0)", "S(0) S(0) S(0)");
  usual("S(0)[1] S(0)[2] S(0)[3]", "S(0) S(0) S(0)");
  usual("S(0)[1] S(0)[1] S(0)[1]", "S(0) S(0) S(0)");
  usual("S(0)[1] S(1)[0] S(2)[4]", "S(0) S(1) S(2)");
  usual("S(0)[1] R P", "S(0) R P");
  usual("S(0)[4] S(0)[2] S(0)", "S(0)[2] S(0)[1] S(0)[0]");
  usual("S(0)[1] S(0) S(0)", "S(0)[2] S(0)[0] S(0)[1]");
  usual("S(0)[2] S(1) S(0)[1]", "S(0)[1] S(1) S(0)[0]");
  usual("S(0)[3] S(0)[1] S(0)[2]", "S(0)[2] S(0)[0] S(0)[1]");
  usual("S(0) S(0)[2] S(0)[1]", "S(0)[0] S(0)[2] S(0)[1]");
  usual("S(0/4)[1] S(0) S(0/4)", "S(0/4)[1] S(0) S(0/4)[0]");
  usual("S(0/4)[1] S(0) S(0/2)", "S(0/4) S(0) S(0/2)");
  assert_false(same_layout(parse_layout("S(0)[1] S(0) R"), parse_layout("S(0) S(0) R")));
  assert_false(same_layout(parse_layout("S(0) S(0)[2] S(0)[1]"), parse_layout("S(0) S(0) S(0)")));
  assert_string_equal(layout_text(parse_layout("S(0)[7] S(0) R")), "S(0)[1] S(0)[0] R");
  assert_string_equal(layout_text(parse_layout("S(0)[1] S(0)[3] R")), "S(0) S(0) R");
  assert_string_equal(layout_text(parse_layout("S(0)[1] S(1) S(0)[0]")), "S(0)[1] S(1) S(0)[0]");
}

static void check_cut_order(const char *layout, int n, const int *expected)
{
  int cut[MAX_MESH];
  assert_int_equal(cuts_of(&graph->mesh, parse_layout(layout), 0, cut), n);
  for (int i = 0; i < n; i++) assert_int_equal(cut[i], expected[i]);
}

static void test_order_of_cuts(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 2});
  check_cut_order("S(1) R P", 0, NULL);
  check_cut_order("S(0) S(1) S(0)", 2, (int[]){0, 2});
  check_cut_order("S(0)[1] S(1) S(0)[0]", 2, (int[]){2, 0});
  check_cut_order("S(0)[1] S(0)[0] S(0)[1]", 3, (int[]){1, 0, 2});
}

/* In another order the members of a group stand as those of a mesh with its dimensions so. */
static void test_ordered_groups(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 3, 2});
  int ca = add_ordered_group(2, (int[]){2, 0}), member[12];
  assert_string_equal(graph->group[ca].name, "c_a");
  assert_int_not_equal(ca, add_group(5));
  assert_int_equal(ca, add_ordered_group(2, (int[]){2, 0}));
  assert_int_equal(group_members(ca, 3, member), 4);
  static const int expected[] = {2, 8, 3, 9};
  for (int i = 0; i < 4; i++) assert_int_equal(member[i], expected[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(first_member(ca, expected[i]), 2);
}

static void test_texts(void **state)
{
  (void)state;
  new_graph(3, (int[]){2, 1, 3});
  struct placement max = {.kind = PARTIAL, .reduction = MAX},
                   min = {.kind = PARTIAL, .reduction = MIN};
  assert_string_equal(placement_text(R), "R");
  assert_string_equal(placement_text(S(3)), "S(3)");
  assert_string_equal(placement_text(P), "P(sum)");
  assert_string_equal(placement_text(max), "P(max)");
  assert_string_equal(placement_text(min), "P(min)");
  assert_string_equal(layout_text(parse_layout("S(0) S(1) P")), "S(0) P(sum)");
  assert_string_equal(shape_text(parse_shape("20x10")), "[20, 10]");
  assert_string_equal(shape_text(parse_shape("")), "[]");
  new_graph(2, (int[]){1, 1});
  assert_string_equal(layout_text(parse_layout("S(0) S(1)")), "R");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_golden_parts),
      cmocka_unit_test(test_parts_cover_the_whole),
      cmocka_unit_test(test_largest_part_is_counted),
      cmocka_unit_test(test_coordinates),
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_groups_are_mutual),
      cmocka_unit_test(test_group_names),
      cmocka_unit_test(test_same_placement),
      cmocka_unit_test(test_same_layout),
      cmocka_unit_test(test_strided_parts),
      cmocka_unit_test(test_parts_in_cut_order),
      cmocka_unit_test(test_strided_parts_in_cut_order),
      cmocka_unit_test(test_cuts_have_one_form),
      cmocka_unit_test(test_order_of_cuts),
      cmocka_unit_test(test_ordered_groups),
      cmocka_unit_test(test_texts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
