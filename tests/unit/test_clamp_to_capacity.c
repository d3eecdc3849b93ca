/* The room of rows by expert below the worst, and the pass clamp_to_capacity: which ranks have how
   much, what takes a held count, and that the check finds what goes over rows without one. */
#include "check/check.h"
#include "driver/driver.h"
#include "unit.h"

struct mesh_case {
  const char *dp, *ep, *experts, *bound;
  int64_t room[4]; /* of the first ranks, for rows of their experts */
  bool is_free;    /* no rank's rows can pass the bound */
  const char *microbatches;
  int64_t later[4]; /* the room of the second micro-batch */
};

/* 5 sequences of 4 tokens of 3 places, so at most 60 rows over all ranks. With micro-batches 6
   sequences: two ranks have two each in the first one, then one each. */
static const struct mesh_case cases[] = {
    {"1", "3", "7", "1.25", .room = {33, 33, 11}},
    {"1", "3", "7", "2", .room = {52, 52, 18}},
    {"1", "3", "7", "2.5", .room = {60, 60, 22}},
    {"1", "3", "2", "1", .room = {30, 30, 0}},
    {"1", "1", "7", "1.25", .room = {60}},
    {"2", "2", "7", "1.25", .room = {26, 20, 18, 13}},
    {"2", "1", "7", "1.25", .room = {36, 24}},
    {"1", "3", "7", "7", .room = {60, 60, 60}, .is_free = true},
    {"1", "2", "7", "1.25", .room = {35, 26}, .microbatches = "2", .later = {18, 13}},
    {"1", "2", "7", "2.4", .room = {48, 48}, .is_free = true, .microbatches = "2",
     .later = {24, 24}},
};

static void compile(const struct mesh_case *c)
{
  static struct definition list[6];
  list[0] = (struct definition){"dp", c->dp};
  list[1] = (struct definition){"ep", c->ep};
  list[2] = (struct definition){"experts", c->experts};
  list[3] = (struct definition){"bound", c->bound};
  list[4] = (struct definition){"microbatches", c->microbatches};
  list[5] = (struct definition){"batch", "6"};
  options.plan = "tests/plans/experts/forced.lua";
  options.definition = list;
  options.ndefinition = c->microbatches ? 6 : 4;
  graph_open();
  run_until(PASS_REDISTRIBUTE);
}

static bool takes_places_cut(const struct op *op)
{
  int counted = counted_operand(op);
  return counted != NONE && is_cut(op->in[counted], 0);
}

static bool is_held(const struct op *op)
{
  int maker = graph->value[op->in[counted_operand(op)]].op;
  return maker != NONE && graph->op[maker].kind == OP_clamp_to_capacity;
}

/* How many operations take the count of cut experts; how many of them a held one. */
static int count_takers(int *held)
{
  int n = 0;
  *held = 0;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (!takes_places_cut(op)) continue;
    n++;
    *held += is_held(op);
  }
  return n;
}

static void check_room(const struct mesh_case *c, const int64_t *room, int value)
{
  for (int rank = 0; rank < world_size() && rank < 4; rank++) {
    struct shape here = local_shape(value, rank);
    int64_t rows = here.size[0] * here.size[1] * here.size[2] * here.size[3];
    must(rows == room[rank], "dp=%s ep=%s: rank %d has room for %" PRId64 " rows, not %" PRId64,
         c->dp, c->ep, rank, rows, room[rank]);
  }
}

static void check_case(const void *which)
{
  const struct mesh_case *c = which;
  compile(c);
  const bool cut = strcmp(c->ep, "1"), held_now = cut && !c->is_free;
  int held, takers = count_takers(&held), checked = 0, before = graph->norder;
  must(!held && (takers > 3) == cut, "%d operations take the count of cut experts", takers);
  clamp_to_capacity();
  check(PASS_CLAMP_TO_CAPACITY);
  must(count_takers(&held) == takers && held == (held_now ? takers : 0),
       "%d of %d take a held count", held, takers);
  must((graph->norder > before) == held_now && has_row_bounds() == held_now,
       "holds where nothing is cut, or no rank can pass the bound");
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind != OP_grouped_linear) continue;
    check_room(c, c->room, op->out);
    graph->mesh.now = 1;
    if (c->microbatches) check_room(c, c->later, op->out);
    graph->mesh.now = 0;
    checked++;
  }
  must(checked == 3, "%d products of experts", checked);
}

static void test_rooms(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) passes(check_case, &cases[i]);
}

static void without_the_pass(const void *which)
{
  compile(which);
  check(PASS_CLAMP_TO_CAPACITY);
}

/* The count that is not held. */
static void with_another_count(const void *which)
{
  compile(which);
  clamp_to_capacity();
  for (int at = 0; at < graph->norder; at++) {
    struct op *op = &graph->op[graph->order[at]];
    if (!takes_places_cut(op)) continue;
    int *counts = &op->in[counted_operand(op)];
    *counts = graph->op[graph->value[*counts].op].in[0];
  }
  check(PASS_CLAMP_TO_CAPACITY);
}

/* As if the ranks of dp had all tokens. */
static void in_another_room(const void *which)
{
  compile(which);
  clamp_to_capacity();
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_clamp_to_capacity)
      graph->value[graph->op[i].in[0]].layout.on[0] = R;
  check_rows();
}

static void test_check(void **state)
{
  (void)state;
  const char *what = "it goes over rows that there may be no room for";
  refused(without_the_pass, &cases[0], -SIGABRT, what, NULL);
  refused(without_the_pass, &cases[5], -SIGABRT, what, NULL);
  refused(with_another_count, &cases[0], -SIGABRT, what, NULL);
  passes(without_the_pass, &cases[4]);
  refused(in_another_room, &cases[5], -SIGABRT, "its rows are held to another room", NULL);
}

/* In balance there are as many elements of every expert. */
static void check_balance(const void *which)
{
  const struct mesh_case *c = which;
  compile(c);
  double all = 0;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->kind != OP_grouped_linear) continue;
    for (graph->mesh.now = 0; graph->mesh.now < microbatches(); graph->mesh.now++)
      for (int rank = 0; rank < world_size(); rank++) all += elements_in_balance(op->out, rank);
    graph->mesh.now = 0;
  }
  must(fabs(all - (c->microbatches ? 72 : 60) * (10 + 10 + 6)) < 1e-6, "there are %g elements",
       all);
}

static void test_balance(void **state)
{
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) passes(check_balance, &cases[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rooms), cmocka_unit_test(test_check),
                                     cmocka_unit_test(test_balance)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
