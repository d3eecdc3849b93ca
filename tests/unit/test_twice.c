/* All passes run several times in one process, on different plans, meshes and targets in turn. Each
   time the graph after every pass is the same as in a process of its own: passes keep no state from
   one run to the next. */
#include "driver/driver.h"
#include "unit.h"

#include <stdio.h>

struct plan {
  const char *path, *target;
  const char *arguments[10]; /* "tp", "2", ... */
};

static const struct plan plans[] = {
    {"plans/llama3.lua", "cpu", {"tp", "2", "dp", "2"}},
    {"tests/dump/ahead.lua", "cuda", {NULL}},
    {"plans/llama3.lua", "cuda", {"tp", "4", "async_tp", "2", "dtype", "bfloat16"}},
    {"plans/toy.lua", "cpu", {"tp", "3"}},
    {"tests/equal/llama.lua", "cuda", {"dp", "2", "tp", "2"}},
    {"plans/llama3.lua", "cuda", {"dp_replicate", "2", "dp_shard", "3", "checkpoint", "layer"}},
    {"tests/dump/epilogue.lua", "cuda", {NULL}},
    {"tests/dump/layers.lua", "cpu", {NULL}},
    {"plans/llama3.lua", "cpu", {"dp", "4", "zero", "2", "accumulate", "2"}},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* By pass: the hash of the graph that it leaves, as a dump has it. */
struct graphs {
  uint64_t hash[PASS_COUNT];
};

static void compile(const struct plan *p, struct graphs *left)
{
  static struct definition list[5];
  set_target(p->target);
  options.plan = p->path;
  options.definition = list;
  options.ndefinition = 0;
  for (int i = 0; p->arguments[i]; i += 2)
    list[options.ndefinition++] = (struct definition){p->arguments[i], p->arguments[i + 1]};
  graph_open();
  for (enum pass pass = 0; pass < PASS_COUNT; pass++) {
    run_passes(pass, pass);
    const char *text = dump_text(pass);
    left->hash[pass] = hash_bytes(HASH_START, text, strlen(text));
  }
}

static void compile_alone(const void *plan)
{
  struct graphs left;
  compile(plan, &left);
  for (int pass = 0; pass < PASS_COUNT; pass++) fprintf(stderr, "%" PRIx64 " ", left.hash[pass]);
}

static struct graphs graphs_of_own_process(const struct plan *p)
{
  struct graphs left = {0};
  struct ending e = run_child(compile_alone, p);
  if (e.status) fail_msg("%s: ended with %d: %s", p->path, e.status, e.said);
  char *at = e.said;
  for (int pass = 0; pass < PASS_COUNT; pass++) left.hash[pass] = strtoull(at, &at, 16);
  return left;
}

static void test_passes_run_twice(void **state)
{
  static struct graphs alone[PLANS];
  (void)state;
  for (int i = 0; i < PLANS; i++) alone[i] = graphs_of_own_process(&plans[i]);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < PLANS; i++) {
      struct graphs left = {0};
      compile(&plans[i], &left);
      for (int pass = 0; pass < PASS_COUNT; pass++)
        if (left.hash[pass] != alone[i].hash[pass])
          fail_msg("%s, round %d: %s leaves another graph than in a process of its own",
                   plans[i].path, round, pass_name[pass]);
    }
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_passes_run_twice)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
