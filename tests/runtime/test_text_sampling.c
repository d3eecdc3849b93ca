// The filters of sampling against Hugging Face's, by tests/golden/generate/sampling.json or that of
// the directory that TPGEN_GOLDEN names; and draws.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>
#include "text/chat/sampling.h"

enum { MOST = 1024 };

static json_t *table(void)
{
  char path[4096];
  const char *directory = getenv("TPGEN_GOLDEN");
  json_error_t error;
  snprintf(path, sizeof path, "%s/generate/sampling.json", directory ? directory : "tests/golden");
  json_t *file = json_load_file(path, 0, &error);
  if (!file) fail_msg("%s: %s", path, error.text);
  return file;
}

static double number_or(const json_t *of, const char *name, double otherwise)
{
  const json_t *n = json_object_get(of, name);
  return json_is_number(n) ? json_number_value(n) : otherwise;
}

static int take_vector(const json_t *list, float *logits)
{
  const int n = (int)json_array_size(list);
  for (int i = 0; i < n; i++) {
    const json_t *x = json_array_get(list, (size_t)i);
    logits[i] = json_is_string(x) ? -INFINITY : (float)json_number_value(x);
  }
  return n;
}

static struct sampling settings(const json_t *row)
{
  return (struct sampling){.temperature = (float)number_or(row, "temperature", 1),
                           .top_k = (int)number_or(row, "top_k", 0),
                           .top_p = (float)number_or(row, "top_p", 1),
                           .min_p = (float)number_or(row, "min_p", 0),
                           .penalty = 1};
}

// What stays of n logits, of which the `most` best are known at first.
static int kept_of(const float *logits, int n, int most, const struct sampling *how,
                   struct candidate *best)
{
  float changed[MOST], largest;
  double sum;
  int kept = 0;
  sampling_prepare(logits, changed, n, 0, how, NULL, 0);
  sampling_sum(changed, n, &largest, &sum);
  for (;; most *= 2) {
    if (most > n) most = n;
    const int known = sampling_best(changed, n, 0, most, best);
    assert_int_equal(known, most);
    if (sampling_keep(best, known, most == n, sum, how, &kept)) return kept;
    assert_true(most < n);
  }
}

static bool has(const struct candidate *best, int n, int id)
{
  for (int i = 0; i < n; i++)
    if (best[i].id == id) return true;
  return false;
}

static void check_case(const json_t *row, const json_t *vectors, int most)
{
  float logits[MOST];
  struct candidate best[MOST];
  const json_t *expected = json_object_get(row, "kept"),
               *shares = json_object_get(row, "probabilities");
  const int n = take_vector(
      json_array_get(vectors, (size_t)json_integer_value(json_object_get(row, "logits"))), logits);
  const struct sampling how = settings(row);
  const int kept = kept_of(logits, n, most, &how, best);
  // Where all stay those of logit -inf are counted too.
  const int count = json_is_string(expected) ? n : (int)json_array_size(expected);
  assert_int_equal(kept, count);
  if (json_is_true(json_object_get(row, "rounding_decides")) || json_is_string(expected)) return;
  double sum = 0;
  for (int i = 0; i < kept; i++) sum += exp((double)best[i].logit - best[0].logit);
  for (int i = 0; i < count; i++) {
    const int id = (int)json_integer_value(json_array_get(expected, (size_t)i));
    assert_true(has(best, kept, id));
    const json_t *share = json_array_get(shares, (size_t)i);
    for (int k = 0; share && k < kept; k++)
      if (best[k].id == id)
        assert_true(fabs(exp((double)best[k].logit - best[0].logit) / sum -
                         json_number_value(share)) < 2e-6);
  }
}

static void filters_are_those_of_transformers(void **state)
{
  (void)state;
  json_t *file = table();
  const json_t *cases = json_object_get(file, "cases"), *vectors = json_object_get(file, "vectors");
  assert_true(json_array_size(cases) > 50);
  for (int most = 1; most <= MOST; most *= 4)
    for (size_t i = 0; i < json_array_size(cases); i++)
      check_case(json_array_get(cases, i), vectors, most);
  json_decref(file);
}

// The best are the first of a sort, for every number of them.
static void best_are_first_of_sort(void **state)
{
  (void)state;
  enum { N = 37 };
  float logits[N];
  struct candidate best[N], all[N];
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < N; i++) logits[i] = (float)((i * 7919 + round * 104729) % 23);
    if (round == 1) logits[5] = NAN;
    assert_int_equal(sampling_best(logits, N, 100, N, all), N);
    for (int i = 1; i < N; i++)
      assert_true(all[i - 1].logit > all[i].logit || all[i].logit != all[i].logit ||
                  (all[i - 1].logit == all[i].logit && all[i - 1].id < all[i].id));
    for (int most = 1; most < N; most++) {
      assert_int_equal(sampling_best(logits, N, 100, most, best), most);
      for (int i = 0; i < most; i++) assert_int_equal(best[i].id, all[i].id);
    }
  }
}

// A penalty is of each token once; logits below 0 are multiplied.
static void penalty_is_of_each_token_once(void **state)
{
  (void)state;
  const float logits[] = {2, -2, 1, 4};
  const int seen[] = {10, 11, 10, 13, 7};
  float changed[4];
  const struct sampling how = {.penalty = 2, .temperature = 0};
  sampling_prepare(logits, changed, 4, 10, &how, seen, 5);
  const float expected[] = {1, -4, 1, 2};
  for (int i = 0; i < 4; i++) assert_true(changed[i] == expected[i]);
}

// Draws have the shares of a softmax, whether a rank has all logits or only some.
static void draws_have_the_shares(void **state)
{
  (void)state;
  enum { N = 5, DRAWS = 20000 };
  const float logits[N] = {0, 1, -1, 2, 0.5f};
  struct candidate all[N];
  int count[N] = {0};
  double sum = 0, worst = 0;
  sampling_best(logits, N, 0, N, all);
  for (int i = 0; i < N; i++) sum += exp(logits[i]);
  for (int i = 0; i < DRAWS; i++) {
    const struct draw draw = {
        .seed = 3, .prompt = (uint32_t)i / 100, .position = (uint32_t)i % 100};
    double score[2];
    const int id = all[sampling_draw(all, N, &draw)].id;
    const int low = sampling_draw_logits(logits, 2, 0, &draw, &score[0]);
    const int high = sampling_draw_logits(logits + 2, N - 2, 2, &draw, &score[1]);
    assert_int_equal(id, score[0] > score[1] ? low : high);
    count[id]++;
  }
  for (int i = 0; i < N; i++)
    worst = fmax(worst, fabs(count[i] / (double)DRAWS - exp(logits[i]) / sum));
  assert_true(worst < 0.012); // four deviations
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(filters_are_those_of_transformers),
      cmocka_unit_test(best_are_first_of_sort),
      cmocka_unit_test(penalty_is_of_each_token_once),
      cmocka_unit_test(draws_have_the_shares),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
