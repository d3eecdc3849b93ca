/* What the stages of a pipeline take from each other: what the pass `stages` leaves passes its
   check, and planted faults do not. */
#include "driver/driver.h"
#include "unit.h"

static void compile(void)
{
  static struct definition list[] = {
      {"pp", "2"},       {"stages", "2"},       {"schedule", "zbv_zero_bubble"},
      {"n_layers", "4"}, {"microbatches", "4"}, {"batch", "8"}};
  options.plan = "plans/llama3.lua";
  options.definition = list;
  options.ndefinition = sizeof list / sizeof *list;
  graph_open();
  run_until(PASS_STAGES);
}

/* The place in the order of the first one of that kind. */
static int place_of_first(enum op_kind kind)
{
  int at = 0;
  while (graph->op[graph->order[at]].kind != kind) at++;
  return at;
}

static struct op *first(enum op_kind kind)
{
  return &graph->op[graph->order[place_of_first(kind)]];
}

static void without_first(enum op_kind kind)
{
  graph->norder--;
  for (int at = place_of_first(kind); at < graph->norder; at++)
    graph->order[at] = graph->order[at + 1];
}

static void nothing(void)
{
}

static void large_number(void)
{
  first(OP_send)->number[0] = INT32_MAX;
}

static void negative_number(void)
{
  first(OP_receive)->number[0] = -1;
}

static void other_number(void)
{
  first(OP_receive)->number[0]++;
}

static void number_of_the_next(void)
{
  first(OP_send)->number[0]++;
  first(OP_receive)->number[0]++;
}

static void no_send(void)
{
  without_first(OP_send);
}

static void no_receive(void)
{
  int received = first(OP_receive)->out, sent = first(OP_send)->in[0];
  without_first(OP_receive);
  for (int i = 0; i < graph->nop; i++)
    for (int k = 0; k < graph->op[i].nin; k++)
      if (graph->op[i].in[k] == received) graph->op[i].in[k] = sent;
}

static void other_stage(void)
{
  first(OP_send)->number[2] = 3;
}

static void other_shape(void)
{
  graph->value[first(OP_receive)->out].shape.size[0]++;
}

static void once_in_a_step(void)
{
  first(OP_send)->phase = UPDATE;
}

static void no_edges(void)
{
  graph->stages->nedge = 0;
}

static const struct fault {
  void (*put)(void);
  const char *message;
} faults[] = {{large_number, "its number is that of no transfer"},
              {negative_number, "its number is that of no transfer"},
              {other_number, "nothing is sent with its number"},
              {number_of_the_next, "another send has its number"},
              {no_send, "nothing is sent with its number"},
              {no_receive, "it reads what ranks of another stage have"},
              {other_stage, "goes elsewhere"},
              {other_shape, "is another tensor"},
              {once_in_a_step, "a send for each micro-batch has a receive for each"},
              {no_edges, "no edge of the pipeline says"}};

static void check_with(const void *put)
{
  (*(void (*const *)(void))put)();
  check_transfers();
}

static void test_faults(void **state)
{
  (void)state;
  void (*none)(void) = nothing;
  passes(check_with, &none);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
    refused(check_with, &faults[i].put, -SIGABRT, faults[i].message, NULL);
}

int main(void)
{
  arena_open(1);
  compile();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
