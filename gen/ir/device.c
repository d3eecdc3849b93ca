/* device.c: the rates of a device, and which part of them an operation reaches.

   The figures are those of NVIDIA's data sheets for SXM modules: multiplications and additions a
   second in dense matrix products, by the type of the operands (float32 without tensor cores, TF32,
   bfloat16); bytes a second of the memory; the number of multiprocessors. runtime/cuda/cuda.cu has
   the same peaks.

   No operation reaches the peak. By measurements of cuBLAS on such GPUs a large product reaches
   four fifths of it, since clocks fall under the load. One multiprocessor computes a tile of the
   result, so the last wave may leave most of them idle. Smaller tiles read their operands more
   often, and each wave has a start and an end. Attention uses the instructions of sm_80, which
   reach less of a later GPU. A kernel bound by memory reaches four fifths of the bandwidth.

   If the plan names no device, the target's default counts. The CPU target has none, since nothing
   is known of its machine: it has flat figures, good for comparing times with each other. */
#include "ir/ir.h"

#include <math.h>
#include <string.h>

static const struct device devices[] = {
    {"A100", {19.5e12, 156e12, 312e12}, 2.039e12, 108},
    {"H100", {67e12, 494.5e12, 989e12}, 3.35e12, 132},
    {"H200", {67e12, 494.5e12, 989e12}, 4.8e12, 132},
    {"B200", {75e12, 1125e12, 2250e12}, 8e12, 148},
};

static const double PRODUCT_REACH = 0.8, ATTENTION_REACH = 0.4, MEMORY_REACH = 0.8;
static const double ROUND_SECONDS = 1.5e-6;
static const double FLAT_FLOPS[] = {50e12, 300e12, 500e12}, FLAT_BANDWIDTH = 2e12;

const struct device *device_named(const char *name)
{
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    if (!strcmp(devices[i].name, name)) return &devices[i];
  return NULL;
}

const char *device_names(void)
{
  struct buffer b = {0};
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    put(&b, "%s%s", i ? ", " : "", devices[i].name);
  return b.text;
}

const struct device *device(void)
{
  const struct device *given = &graph->mesh.device;
  if (given->name) return given;
  return target->device ? device_named(target->device) : NULL;
}

double product_seconds(const struct product_sizes *p, enum arithmetic a)
{
  static const struct {
    double rows, columns, reach;
  } tile[] = {{256, 128, 1},   {128, 256, 1}, {128, 128, 0.9},
              {128, 64, 0.75}, {64, 64, 0.5}, {32, 32, 0.25}};
  const struct device *d = device();
  double all = 2 * p->count * p->rows * p->columns * p->terms, best = INFINITY;
  if (!d) return all / FLAT_FLOPS[a];
  if (!d->processors) return all / (d->flops[a] * PRODUCT_REACH);
  for (size_t i = 0; i < sizeof tile / sizeof *tile; i++)
    for (double pieces = 1; pieces <= 8; pieces *= 2) {
      /* The seconds of a product on tiles of this size, which reach so much of the rest. Its sums
         are cut into `pieces`, computed in parallel. */
      double tiles =
          p->count * ceil(p->rows / tile[i].rows) * ceil(p->columns / tile[i].columns) * pieces;
      double rounds = ceil(tiles / d->processors);
      double each = 2 * tile[i].rows * tile[i].columns * ceil(p->terms / pieces);
      double seconds_on_tiles =
          rounds *
          (each / (d->flops[a] / d->processors * PRODUCT_REACH * tile[i].reach) + ROUND_SECONDS);
      best = fmin(best, seconds_on_tiles);
    }
  return best;
}

double attention_seconds(double flops, enum arithmetic a)
{
  const struct device *d = device();
  return flops / (d ? d->flops[a] * ATTENTION_REACH : FLAT_FLOPS[a]);
}

double memory_seconds(double bytes)
{
  const struct device *d = device();
  return bytes / (d ? d->bandwidth * MEMORY_REACH : FLAT_BANDWIDTH);
}
