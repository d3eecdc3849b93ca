/* device.c: the rates of a device, and which part of them an operation reaches.

   The figures are those of NVIDIA's data sheets for SXM modules: multiplications and additions a
   second in dense matrix products, by the type of the operands (float32 without tensor cores, TF32,
   bfloat16); bytes a second of the memory (an A100 with 40 GB has HBM2, that with 80 GB HBM2e); the
   number of multiprocessors; NVLink's bytes a second in one direction (A100 600, H100 and H200 900,
   B200 1800 GB/s for both), and the cards of a DGX node, one a device (A100: ConnectX-6 of 200
   Gb/s, H100, H200 and B200: ConnectX-7 of 400 Gb/s). runtime/cuda/cuda.cu has the same peaks.

   A device has memory that no plan can use: the CUDA context, NCCL's buffers, cuBLAS's own memory
   (the workspace of products is counted apart: function_passes/footprint.c). The reserve for it is
   what NVIDIA's nccl-tests leave free of a device, 1 GiB (src/common.cu: "total device memory -
   1GiB"). On A100 an NCCL group of two takes 544 MB and one of four 688 MB, with the context
   (github.com/NVIDIA/nccl/issues/964). More groups take more, by as much as channels and peers they
   have: no figure for that is public.

   No operation reaches the peak. The clocks fall under the load of a large product. One
   multiprocessor computes a tile of the result, so the last wave may leave most of them idle.
   Smaller tiles read their operands more often, and each wave has a start and an end. Attention
   reaches less with short sequences and small heads: by the figures of FlashAttention-2's paper
   half of its best at 512 tokens, and nine tenths of it with heads of 64.

   Four constants of a device are fitted, to published step times of training runs (not row by row:
   one value for all rows of a device): the parts of the peak that products and attention reach, and
   the part of the bandwidth that a kernel reaches that only reads and writes. So they have in them
   what the programs of these runs do beside the least work: kernels of attention that compute
   masked tiles, element-wise kernels that are not fused. B200's are those of H100, scaled. The rest
   is public.

   A step ends when the slowest rank ends it. GPUs of one kind differ in speed by 8 %, by their
   manufacture and power limits (P. Sinha et al., "Not All GPUs Are Created Equal", 2022,
   arXiv:2208.11035, on five clusters): that is the range of a box plot's whiskers, of 5.4 standard
   deviations. The slowest of n is as much slower as the mean of the largest of n normal numbers.
   The reaches above have that of a node's eight in them, and measured figures that of all measured.

   If the plan names no device, the target's default counts. The CPU target has none, since nothing
   is known of its machine: it has flat figures, good for comparing times with each other. */
#include "ir/ir.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const struct preset {
  struct device device;
  double intra, inter; /* bytes a second: NVLink, and a card */
  bool adds_in_switch; /* NVLink SHARP */
  int64_t memory;
  int64_t reserve; /* of it: for the CUDA context, NCCL and cuBLAS's own */
} presets[] = {
    {{"A100", {19.5e12, 156e12, 312e12}, 2.039e12, 108, 0.75, 0.35, 0.31, 0.46, NULL},
     300e9,
     25e9,
     false,
     INT64_C(80) << 30,
     INT64_C(1) << 30},
    {{"A100-40GB", {19.5e12, 156e12, 312e12}, 1.555e12, 108, 0.75, 0.35, 0.31, 0.46, NULL},
     300e9,
     25e9,
     false,
     INT64_C(40) << 30,
     INT64_C(1) << 30},
    {{"H100", {67e12, 494.5e12, 989e12}, 3.35e12, 132, 0.64, 0.195, 0.17, 0.53, NULL},
     450e9,
     50e9,
     true,
     INT64_C(80) << 30,
     INT64_C(1) << 30},
    {{"H200", {67e12, 494.5e12, 989e12}, 4.8e12, 132, 0.64, 0.195, 0.17, 0.53, NULL},
     450e9,
     50e9,
     true,
     INT64_C(141000000000),
     INT64_C(1) << 30},
    {{"B200", {75e12, 1125e12, 2250e12}, 8e12, 148, 0.64, 0.135, 0.105, 0.53, NULL},
     900e9,
     50e9,
     true,
     INT64_C(180000000000),
     INT64_C(1) << 30},
};

enum { NODE_DEVICES = 8 };
static const double HOP_INSIDE = 2e-6, HOP_OUTSIDE = 5e-6;

static const double ROUND_SECONDS = 1.5e-6;
static const double FLAT_FLOPS[] = {50e12, 300e12, 500e12}, FLAT_BANDWIDTH = 2e12;
/* At so many keys, and with heads of that size, attention reaches half of its best. */
static const double HALF_KEYS = 512, HALF_HEAD = 8;

static const double SPEED_RANGE = 0.08, WHISKERS = 5.4;

/* The mean of the largest of so many numbers with a normal distribution, in its deviations. */
static double mean_of_largest(int n)
{
  static const double of[] = {0,      0.5642, 1.0294, 1.4236, 1.7660, 2.0697,
                              2.3437, 2.5946, 2.8269, 3.0439, 3.2482, 3.4418,
                              3.6261, 3.8023, 3.9714, 4.1341, 4.2911};
  const int last = (int)(sizeof of / sizeof *of) - 1; /* of 1, 2, 4, ... */
  int low = 0;
  while (low < last - 1 && n >= 2 << low) low++;
  const double part = (double)(n - (1 << low)) / (1 << low);
  return of[low] + (part < 1 ? part : 1) * (of[low + 1] - of[low]);
}

double slowest_of_ranks(int ranks)
{
  const struct device *d = device();
  const int known = d && d->measured ? measured_gpus(d->measured) : NODE_DEVICES;
  if (!target->streams || ranks <= known) return 1;
  return 1 + SPEED_RANGE / WHISKERS * (mean_of_largest(ranks) - mean_of_largest(known));
}

static const struct preset *preset_named(const char *name)
{
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
    if (!strcmp(presets[i].device.name, name)) return &presets[i];
  return NULL;
}

const struct device *device_named(const char *name)
{
  const struct preset *p = preset_named(name);
  return p ? &p->device : NULL;
}

const char *device_names(void)
{
  struct buffer b = {0};
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
    put(&b, "%s%s", i ? ", " : "", presets[i].device.name);
  return b.text;
}

const char *cluster_names(void)
{
  struct buffer b = {0};
  for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
    put(&b, "%sdgx-", i ? ", " : "");
    for (const char *c = presets[i].device.name; *c; c++) put(&b, "%c", tolower((unsigned char)*c));
  }
  return b.text;
}

int64_t memory_of_device(const struct device *d)
{
  if (d->measured) return measured_bytes(d->measured);
  const struct preset *p = preset_named(d->name);
  return p ? p->memory : 0;
}

int64_t reserve_of_device(void)
{
  const struct device *d = device();
  if (d && d->measured && target->libraries) return measured_reserve(graph->ngroup);
  const struct preset *p = d && d->name ? preset_named(d->name) : NULL;
  return p && target->libraries ? p->reserve : target->library_reserve;
}

double peak_of_device(const struct device *d, enum arithmetic a)
{
  const double known = d->measured ? measured_peak(d->measured, a) : 0;
  return known > 0 ? known : d->flops[a];
}

struct cluster usual_cluster(const struct device *d)
{
  const struct preset *p = preset_named(d->name);
  struct cluster c = {.name = d->name, .devices = NODE_DEVICES, .cards = NODE_DEVICES};
  if (d->measured && target->streams) {
    c.devices = c.cards = measured_devices(d->measured);
    c.intra.latency = HOP_INSIDE;
    c.inter.latency = HOP_OUTSIDE;
    set_measured_links(&c, d->measured);
    return c;
  }
  if (!p) return c;
  c.intra = (struct link){p->intra, HOP_INSIDE};
  c.inter = (struct link){p->inter, HOP_OUTSIDE};
  c.adds_in_switch = p->adds_in_switch;
  return c;
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
  if (d->measured) {
    /* A whole product, before its calls are known. */
    const struct measured_product whole = {a, "nn", p->rows, p->columns, p->terms, p->count};
    return measured_product(&whole);
  }
  if (!d->processors) return all / (d->flops[a] * d->products);
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
          (each / (d->flops[a] / d->processors * d->products * tile[i].reach) + ROUND_SECONDS);
      best = fmin(best, seconds_on_tiles);
    }
  return best;
}

double attention_seconds(double flops, double head_dim, double keys, bool backward,
                         enum arithmetic a)
{
  const struct device *d = device();
  if (!d) return flops / FLAT_FLOPS[a];
  double reach = (backward ? d->attention_back : d->attention) * keys / (keys + HALF_KEYS) *
                 fmin(1, head_dim / (head_dim + HALF_HEAD) * (128 + HALF_HEAD) / 128);
  return flops / (d->flops[a] * reach);
}

double arithmetic_seconds(double flops, enum arithmetic a)
{
  const struct device *d = device();
  return flops / (d ? d->flops[a] * d->products : FLAT_FLOPS[a]);
}

double memory_seconds(double bytes)
{
  const struct device *d = device();
  if (d && d->measured) return measured_memory(COPIED_BYTES, bytes, bytes);
  return bytes / (d ? d->bandwidth * d->streaming : FLAT_BANDWIDTH);
}
