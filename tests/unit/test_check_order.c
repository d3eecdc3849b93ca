/* CUDA programs of ranks with empty parts: the work that their statements issue is in order, and
   the checker finds a missing wait, or a write outside the statement's own bytes. */
#include "driver/driver.h"
#include "unit.h"

struct plan {
  const char *path;
  const char *arguments[8]; /* "tp", "2", ... */
};

static void compile(const struct plan *p)
{
  static struct definition list[4];
  options.plan = p->path;
  set_target("cuda");
  options.definition = list;
  for (int i = 0; p->arguments[i]; i += 2)
    list[options.ndefinition++] = (struct definition){p->arguments[i], p->arguments[i + 1]};
  graph_open();
  run_until(PASS_MEMORY);
}

/* By operation the statement of this rank. */
static const char **statements_of(int rank)
{
  const char **list = alloc((size_t)(graph->nop + 1) * sizeof *list);
  name_values(rank);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    name_locals(f);
    for (int k = 0; k < f->nop; k++) {
      const struct op *op = &graph->op[f->op[k]];
      if (op->kind != OP_loop && op->kind != OP_iteration)
        list[f->op[k]] = statement_text(op, rank);
    }
  }
  return list;
}

/* What is changed of a statement; NULL: nothing. */
static const char *without(const char *statement, const char *call)
{
  const char *at = strstr(statement, call);
  if (!at) return NULL;
  return text("%.*s%s", (int)(at - statement), statement, strchr(at, ';') + 1);
}

static const char *without_await(const struct op *op, const char *statement)
{
  return op->kind == OP_await ? without(statement, "await(") : NULL;
}

static const char *without_begin(const struct op *op, const char *statement)
{
  (void)op;
  return without(statement, "begin_on(");
}

static const char *without_leader(const struct op *op, const char *statement)
{
  (void)op;
  return without(statement, "begin_behind(");
}

/* A product of no terms that makes more than its own piece zeros. */
static const char *with_zeros(const struct op *op, const char *statement)
{
  const char *bytes = strstr(statement, ", 0, ");
  if (op->kind != OP_matmul || !op->piece || !strstr(statement, "cudaMemsetAsync(")) return NULL;
  return text("%.*s, 0, %lld%s", (int)(bytes - statement), statement,
              strtoll(bytes + strlen(", 0, "), NULL, 10) * 2, strchr(bytes + strlen(", 0, "), ','));
}

/* Each statement that there is to change in the programs of these ranks is found changed. */
struct sweep {
  struct plan plan;
  const char *(*change)(const struct op *op, const char *statement);
  int nrank, rank[8];
};

struct program {
  int rank;
  const char **statement;
};

static void look_at(const void *with)
{
  const struct program *p = with;
  check_issued(p->rank, p->statement);
}

static void change_each(const struct sweep *s, struct program *p)
{
  int changes = 0, found = 0;
  for (int i = 0; i < graph->nop; i++) {
    const char *was = p->statement[i];
    const char *changed = was ? s->change(&graph->op[i], was) : NULL;
    if (!changed) continue;
    p->statement[i] = changed;
    struct ending e = run_child(look_at, p);
    p->statement[i] = was;
    must(!e.status || e.status == -SIGABRT, "ended with %d: %s", e.status, e.said);
    changes++;
    found += e.status != 0;
  }
  must(changes > 0 && found == changes, "%s, rank %d: %d of %d are found", s->plan.path, p->rank,
       found, changes);
}

static void change_in_ranks(const void *with)
{
  const struct sweep *s = with;
  compile(&s->plan);
  for (int rank = 0; rank < world_size(); rank++) {
    struct program p = {rank, statements_of(rank)};
    look_at(&p);
    for (int k = 0; k < s->nrank; k++)
      if (s->rank[k] == rank) change_each(s, &p);
  }
}

#define LED                                                                                        \
  "tests/equal/led_last_round.lua",                                                                \
  {                                                                                                \
    "a", "2", "b", "2", "c", "2"                                                                   \
  }
#define PIECES                                                                                     \
  "tests/equal/sequence_pieces.lua",                                                               \
  {                                                                                                \
    "cp", "2", "dp", "2", "pieces", "2"                                                            \
  }

static void test_what_ranks_issue(void **state)
{
  (void)state;
  static const struct sweep list[] = {
      /* Ranks that have nothing of what is summed last, and await what that would follow. */
      {{LED}, without_await, 4, {2, 3, 6, 7}},
      {{LED}, without_begin, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
      {{LED}, without_leader, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
      /* Ranks that have nothing of the batch: their products are of no terms. */
      {{PIECES}, with_zeros, 2, {1, 3}},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) passes(change_in_ranks, &list[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_ranks_issue)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
