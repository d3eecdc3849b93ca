// Orders of data sets: each epoch has every sample once, and the sequence of batches is that of a
// loop over epochs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
// As it is: only what it offers is used.
#include "../../runtime/data/shuffle.c"

// ---- batches -----------------------------------------------------------------------------------

// The batches from a place on, one after the other.
static void follows_a_loop(struct order o)
{
  uint64_t epoch = o.epoch, sample = o.sample;
  for (long i = o.first; i < o.first + 40; i++) {
    uint64_t left = o.samples - sample;
    if (left == 0 || (o.drops && left < o.batch)) {
      epoch++;
      sample = 0;
      left = o.samples;
    }
    const struct sample_range s = order_batch(&o, i);
    const uint64_t count = left < o.batch ? left : o.batch;
    assert_int_equal(s.epoch, epoch);
    assert_int_equal(s.sample, sample);
    assert_int_equal(s.count, count);
    sample += count;
  }
}

static void batches(void **state)
{
  (void)state;
  for (uint64_t samples = 1; samples < 12; samples++)
    for (uint64_t batch = 1; batch < 14; batch++)
      for (int drops = 0; drops < 2; drops++) {
        struct order o = {.samples = samples, .batch = batch, .drops = drops};
        assert_int_equal(order_has_batches(&o), !drops || batch <= samples);
        if (!order_has_batches(&o)) continue;
        follows_a_loop(o);
        // As a checkpoint says, after steps of another size.
        for (o.sample = 0; o.sample < samples; o.sample++) {
          o.first = 7;
          o.epoch = 3;
          follows_a_loop(o);
        }
      }
}

// ---- shuffling ---------------------------------------------------------------------------------

static void each_sample_once(const struct order *o, uint64_t epoch)
{
  unsigned char *seen = calloc(o->samples, 1);
  for (uint64_t i = 0; i < o->samples; i++) {
    const uint64_t sample = order_sample(o, epoch, i);
    assert_true(sample < o->samples);
    assert_int_equal(seen[sample]++, 0);
  }
  free(seen);
}

static void permutations(void **state)
{
  (void)state;
  static const uint64_t large[] = {1000, 1023, 1024, 1025, 4096, 4097, 100000};
  struct order o = {.batch = 1, .shuffles = true, .seed = 45};
  for (o.samples = 1; o.samples < 130; o.samples++)
    for (uint64_t epoch = 0; epoch < 4; epoch++) each_sample_once(&o, epoch);
  for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
    o.samples = large[i];
    each_sample_once(&o, UINT64_C(1) << 40);
  }
  o.samples = UINT64_C(1) << 61; // each is found at once
  assert_true(order_sample(&o, 0, o.samples - 1) < o.samples);
  o.shuffles = false;
  for (uint64_t i = 0; i < 100; i++) assert_int_equal(order_sample(&o, 5, i), i);
}

static size_t same_places(const struct order *a, uint64_t of, const struct order *b, uint64_t with)
{
  size_t same = 0;
  for (uint64_t i = 0; i < a->samples; i++)
    same += order_sample(a, of, i) == order_sample(b, with, i);
  return same;
}

// Epochs and seeds have orders that have nothing to do with each other, nor with the numbers.
static void orders_differ(void **state)
{
  (void)state;
  const struct order plain = {.samples = 1000, .batch = 1};
  struct order a = plain, b = plain;
  a.shuffles = b.shuffles = true;
  b.seed = UINT64_C(1) << 32;
  for (uint64_t epoch = 0; epoch < 20; epoch++) {
    assert_true(same_places(&plain, 0, &a, epoch) < 10);
    assert_true(same_places(&a, epoch, &a, epoch + 1) < 10);
    assert_true(same_places(&a, epoch, &b, epoch) < 10);
  }
}

// Every order of four samples comes about as often as any other, over many epochs.
static void no_order_is_preferred(void **state)
{
  (void)state;
  enum { EPOCHS = 24000, ORDERS = 256 };
  static int count[ORDERS];
  const struct order o = {.samples = 4, .batch = 1, .shuffles = true, .seed = 9};
  int orders = 0;
  for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
    unsigned number = 0;
    for (uint64_t i = 0; i < 4; i++) number = number << 2 | (unsigned)order_sample(&o, epoch, i);
    count[number]++;
  }
  for (int i = 0; i < ORDERS; i++) {
    if (!count[i]) continue;
    orders++;
    assert_in_range(count[i], 850, 1150); // 1000, and five deviations
  }
  assert_int_equal(orders, 24);
}

// It is the same on every machine and in every version: a resumed job relies on it.
static void it_stays_as_it_is(void **state)
{
  (void)state;
  static const uint64_t first[] = {5, 0, 3, 6, 8, 9, 4, 1, 2, 7};
  static const uint64_t later[] = {27981, 512237, 218317, 172305, 122166};
  const struct order o = {.samples = 10, .batch = 1, .shuffles = true, .seed = 7};
  const struct order p = {
      .samples = 1000000, .batch = 1, .shuffles = true, .seed = UINT64_C(0x123456789abcdef)};
  for (uint64_t i = 0; i < 10; i++) assert_int_equal(order_sample(&o, 0, i), first[i]);
  for (uint64_t i = 0; i < 5; i++)
    assert_int_equal(order_sample(&p, UINT64_C(5) << 32 | 2, i), later[i]);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches),           cmocka_unit_test(permutations),
      cmocka_unit_test(orders_differ),     cmocka_unit_test(no_order_is_preferred),
      cmocka_unit_test(it_stays_as_it_is),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
