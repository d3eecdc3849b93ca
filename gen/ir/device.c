/* device.c: what a rank computes with, and how much of it an operation reaches.

   The figures are those of NVIDIA's data sheets, for the modules that are linked by NVLink (SXM):
   multiplications and additions a second in products of matrices that are not sparse, by what is
   multiplied (float32 without tensor cores, TF32, bfloat16); bytes a second of the memory; how many
   multiprocessors. runtime/cuda.cu has the same peaks.

   Nothing reaches its peak. By measurements of cuBLAS on such GPUs a large product comes to four
   fifths of it, where clocks fall under the load; a tile of the result is a multiprocessor's work,
   so the last round of them may leave most idle; smaller tiles read their operands more often; and
   each round has a beginning and an end. Attention runs on
   the instructions of sm_80, which reach less of a later GPU. A kernel that goes through memory
   reaches four fifths of its bandwidth.

   Where the plan names no device the target's is taken. The CPU target, of whose machine nothing is
   known, has none: it goes by flat figures that are good for comparing times with each other. */
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
  const struct device *told = &graph->mesh.device;
  if (told->name) return told;
  return target->device ? device_named(target->device) : NULL;
}

/* The seconds of a product on tiles of this size, each of which reaches so much of the rest, its
   sums cut into `pieces` that run beside each other. */
static double seconds_on_tiles(const struct device *d, double flops, const struct product_sizes *p,
                               double rows, double columns, double reach, double pieces)
{
  double tiles = p->count * ceil(p->rows / rows) * ceil(p->columns / columns) * pieces;
  double rounds = ceil(tiles / d->processors);
  double each = 2 * rows * columns * ceil(p->terms / pieces);
  return rounds * (each / (flops / d->processors * PRODUCT_REACH * reach) + ROUND_SECONDS);
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
    for (double pieces = 1; pieces <= 8; pieces *= 2)
      best = fmin(best, seconds_on_tiles(d, d->flops[a], p, tile[i].rows, tile[i].columns,
                                         tile[i].reach, pieces));
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
