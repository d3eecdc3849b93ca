/* Slots of micro-batches in flight: what the pass memory leaves for several stages of a rank, with
   backwards in two parts, passes its check, and planted faults do not. */
#include "driver/driver.h"
#include "unit.h"

/* The program of the ranks that have the stages 1 and 2: a V's turn. Stage 2 computes gradients of
   weights after the last action of stage 1 for the same micro-batch. */
static void compile(void)
{
  static struct definition list[] = {
      {"pp", "2"},       {"schedule", "tests/plans/pipeline/late_weights.csv"},
      {"n_layers", "4"}, {"batch", "8"},
      {"dim", "16"},     {"hidden", "32"},
      {"vocab", "64"}};
  options.plan = "plans/llama3.lua";
  options.definition = list;
  options.ndefinition = sizeof list / sizeof *list;
  graph_open();
  run_until(PASS_REDISTRIBUTE);
  struct stage_room room = {0};
  graph = program_of_stages(graph, 1, &room);
  own_program_of_stages();
  run_passes(PASS_REDISTRIBUTE + 1, PASS_LAST);
}

static bool is_in_slots(int value)
{
  const struct allocation *a = &graph->memory->of[value];
  return a->in_flight != NONE && a->storage == value;
}

static void move_to(int value, int stage)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->memory->of[i].storage == value) graph->memory->of[i].in_flight = stage;
}

static void in_no_slot(const void *value)
{
  move_to(*(const int *)value, NONE);
  check(PASS_MEMORY);
}

static void with_stage_2(const void *value)
{
  move_to(*(const int *)value, 2);
  check(PASS_MEMORY);
}

static void test_values(void **state)
{
  (void)state;
  int in_slots = 0, turns = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    if (!is_in_slots(i)) continue;
    in_slots++;
    refused(in_no_slot, &i, -SIGABRT, "it is in no slot", NULL);
    if (graph->memory->of[i].in_flight != 1) continue;
    refused(with_stage_2, &i, -SIGABRT, "slot", NULL);
    turns += graph->op[graph->value[i].op].kind != OP_receive;
  }
  assert_true(in_slots > 20 && turns > 5);
}

static void one_slot_less(const void *stage)
{
  graph->memory->slots[*(const int *)stage].n--;
  check(PASS_MEMORY);
}

/* Without what the backward of stage 1 reads of stage 2, a slot is taken anew too early. */
static void without_edges(const void *with)
{
  (void)with;
  graph->stages->nedge = 0;
  check(PASS_MEMORY);
}

static void test_slots(void **state)
{
  (void)state;
  for (int stage = 1; stage <= 2; stage++) {
    assert_true(graph->memory->slots[stage].n > 1);
    refused(one_slot_less, &stage, -SIGABRT, "slot", NULL);
  }
  refused(without_edges, NULL, -SIGABRT, "slot", NULL);
}

int main(void)
{
  arena_open(1);
  compile();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_slots),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
