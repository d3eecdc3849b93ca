/* distances DATA SAVED MEAN TOGETHER: the largest distances of what far_means/plan.lua made of DATA
   + MEAN from the same in double, in a line: of `value`, `gradient`, and of a batch norm (TOGETHER
   is 0) running_mean and running_var. Otherwise so many elements, one after the other, have a mean
   of their own. */
#include <math.h>
#include "tensor_file.h"

enum { CHANNELS = 4, SIZE = 1024 };

static struct elements tensor(const struct file *f, const char *name, size_t n)
{
  json_t *found = json_object_get(f->header, name);
  if (!found) die(f->path, "lacks a tensor");
  struct elements e = elements_of(f, found);
  if (e.n != n) die(f->path, "has a tensor of another size");
  return e;
}

static double farther(double most, const struct elements *e, size_t i, double truth)
{
  double apart = fabs(number(e, i) - truth);
  return apart <= most ? most : apart;
}

int main(int argc, char **argv)
{
  if (argc != 5) die("usage", "distances DATA SAVED MEAN TOGETHER");
  struct file data = load(argv[1]), saved = load(argv[2]);
  struct elements input = tensor(&data, "input", SIZE), weight = tensor(&data, "weight", SIZE);
  struct elements value = tensor(&saved, "value", SIZE),
                  gradient = tensor(&saved, "gradient", SIZE);
  /* rows [256, 4], or images [4, 4, 64] */
  json_t *shape = json_object_get(json_object_get(data.header, "input"), "shape");
  size_t pixels = json_array_size(shape) == 2 ? 1 : 64;
  size_t together = strtoul(argv[4], NULL, 10), n = together ? together : SIZE / CHANNELS;
  float above = strtof(argv[3], NULL);
  double worst[4] = {0};
  for (size_t set = 0; set < SIZE / n; set++) {
    double x[SIZE], w[SIZE], mean = 0, variance = 0, w_mean = 0, product = 0;
    size_t at[SIZE];
    for (size_t k = 0; k < n; k++) {
      at[k] = together ? set * n + k : (k / pixels * CHANNELS + set) * pixels + k % pixels;
      x[k] = (float)number(&input, at[k]) + above;
      w[k] = number(&weight, at[k]);
      mean += x[k] / (double)n;
      w_mean += w[k] / (double)n;
    }
    for (size_t k = 0; k < n; k++) variance += (x[k] - mean) * (x[k] - mean) / (double)n;
    double deviation = sqrt(variance + 1e-5);
    for (size_t k = 0; k < n; k++) product += w[k] * (x[k] - mean) / deviation / (double)n;
    for (size_t k = 0; k < n; k++) {
      double y = (x[k] - mean) / deviation;
      worst[0] = farther(worst[0], &value, at[k], y);
      worst[1] = farther(worst[1], &gradient, at[k], (w[k] - w_mean - y * product) / deviation);
    }
    if (together) continue;
    struct elements running_mean = tensor(&saved, "norm.running_mean", CHANNELS);
    struct elements running_var = tensor(&saved, "norm.running_var", CHANNELS);
    worst[2] = farther(worst[2], &running_mean, set, 0.1 * mean);
    worst[3] =
        farther(worst[3], &running_var, set, 0.9 + 0.1 * variance * (double)n / (double)(n - 1));
  }
  printf("%.3g\t%.3g", worst[0], worst[1]);
  if (!together) printf("\t%.3g\t%.3g", worst[2], worst[3]);
  printf("\n");
  return 0;
}
