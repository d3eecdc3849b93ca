/* test_shared_store.c: answers that processes share: they come back whole in every process, and a
   question without one, or for which there was no room, has none. */
#include "unit.h"

#include <stdio.h>

enum { NUMBERS = 5, MOST = 40000 };

/* Question k has NUMBERS or one less of them; its answer is text whose length depends on k. */
static size_t question_of(int k, int64_t *at)
{
  for (int i = 0; i < NUMBERS; i++) at[i] = (int64_t)k * (i + 1) - 7;
  return NUMBERS - (size_t)(k & 1);
}

static size_t answer_of(int k, char *at)
{
  return 1 + (size_t)sprintf(at, "%d%*s", k, 1 + k % 900, "");
}

static void give(int k)
{
  int64_t question[NUMBERS];
  char answer[1024];
  const size_t n = question_of(k, question);
  share_answer(question, n, answer, answer_of(k, answer));
}

/* Whether there is an answer; a wrong one ends the test. */
static bool is_known(int k)
{
  int64_t question[NUMBERS];
  char answer[1024];
  const size_t n = question_of(k, question), size = answer_of(k, answer);
  const char *found = shared_answer(question, n);
  if (found) assert_memory_equal(found, answer, size);
  return found != NULL;
}

static void shares_between_processes(void **state)
{
  (void)state;
  open_shared_store();
  enum { PROCESSES = 4, EACH = 500 };
  assert_false(is_known(0));
  for (int p = 0; p < PROCESSES; p++) {
    if (fork()) continue;
    for (int k = 0; k < EACH; k++) give(p % 2 ? EACH - 1 - k : k); /* all give the same answers */
    _exit(0);
  }
  for (int p = 0; p < PROCESSES; p++) {
    int status;
    wait(&status);
    assert_int_equal(status, 0);
  }
  for (int k = 0; k < EACH; k++) assert_true(is_known(k));
  assert_false(is_known(EACH));
}

static void keeps_what_there_is_room_for(void **state)
{
  (void)state;
  open_shared_store();
  for (int k = 0; k < MOST; k++) give(k);
  int known = 0;
  for (int k = 0; k < MOST; k++) known += is_known(k);
  assert_in_range(known, 10000, MOST - 1);
  static char large[32 << 20];
  const int64_t question = -1;
  share_answer(&question, 1, large, sizeof large);
  assert_null(shared_answer(&question, 1));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(shares_between_processes),
                                     cmocka_unit_test(keeps_what_there_is_room_for)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
