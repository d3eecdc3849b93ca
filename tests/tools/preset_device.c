/* preset_device.c: preset_device NAME DEVICES NODES: a device.json with the rates of a preset, as
   tpgen --calibrate would leave it where so many devices a node have exactly those: of products,
   attention, kernels and collectives. */
#include "ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = {"float32", "tfloat32", "bfloat16"};
static bool follows;

static const char *comma(void)
{
  const bool first = !follows;
  follows = true;
  return first ? "" : ",\n";
}

static void put_products(void)
{
  enum { SIZES = 14 };
  printf("\"products\": [");
  follows = false;
  for (int type = 0; type < 3; type++) {
    printf("%s{\"type\": \"%s\", \"form\": \"nn\", \"sizes\": [", comma(), types[type]);
    for (int i = 0; i < SIZES; i++) printf("%s%d", i ? ", " : "", 8 << i);
    printf("], \"seconds\": [");
    for (int i = 0; i < SIZES * SIZES * SIZES; i++) {
      const struct product_sizes p = {.count = 1,
                                      .rows = 8 << i / SIZES / SIZES,
                                      .columns = 8 << i / SIZES % SIZES,
                                      .terms = 8 << i % SIZES};
      printf("%s%.6g", i ? ", " : "", product_seconds(&p, (enum arithmetic)type));
    }
    printf("]}");
  }
  printf("],\n\"batches\": [");
  follows = false;
  for (int type = 0; type < 3; type++) {
    printf("%s{\"type\": \"%s\", \"batch\": 64, \"sizes\": [64, 256, 1024], \"seconds\": [",
           comma(), types[type]);
    for (int size = 64; size <= 1024; size *= 4) {
      const struct product_sizes p = {.count = 64, .rows = size, .columns = size, .terms = size};
      printf("%s%.6g", size > 64 ? ", " : "", product_seconds(&p, (enum arithmetic)type));
    }
    printf("]}");
  }
  printf("],\n\"groups\": [");
  follows = false;
  for (int type = 0; type < 3; type++)
    for (int form = 0; form < 3; form++) {
      static const char *const forms[] = {"nt", "nn", "tn"};
      printf("%s{\"type\": \"%s\", \"form\": \"%s\", \"groups\": 8, \"sizes\": [16, 4096], "
             "\"seconds\": [%.6g, %.6g]}",
             comma(), types[type], forms[form],
             arithmetic_seconds(16. * 16 * 16 * 16, (enum arithmetic)type),
             arithmetic_seconds(16. * 4096 * 4096 * 4096, (enum arithmetic)type));
    }
  printf("],\n");
}

/* Of a multiprocessor, for 64 queries and 64 keys. */
static void put_attention(void)
{
  printf("\"attention\": [");
  follows = false;
  for (int type = 0; type < 3; type++)
    for (int depth = 32; depth <= 256; depth *= 2)
      for (int keys = 64; keys <= 1 << 17; keys *= 2)
        for (int back = 0; back < 2; back++) {
          const double tiles = keys / 64, pairs = tiles * (tiles + 1) / 2;
          const double flops = 2. * keys * keys * depth * (back ? 2.5 : 1);
          printf("%s{\"type\": \"%s\", \"pass\": \"%s\", \"depth\": %d, \"keys\": %d, \"seconds\": "
                 "%.6g}",
                 comma(), types[type], back ? "backward" : "forward", depth, keys,
                 attention_seconds(flops, depth, keys, back, (enum arithmetic)type) *
                     device()->processors / pairs);
        }
  printf("],\n");
}

static void put_group(enum op_kind kind, const char *name, const struct group_spread *s)
{
  const struct link link = modeled_link(kind, s);
  const double part =
      kind == OP_send ? 1 : collective_row[kind].passes * (s->members - 1.) / s->members;
  printf("%s{\"kind\": \"%s\", \"ranks\": %d, \"nodes\": %d, \"type\": \"float32\", \"points\": [",
         comma(), name, s->members, s->nodes);
  for (int i = 8; i <= 32; i += 2) {
    const double bytes = ldexp(1, i);
    printf("%s[%.0f, %.6g]", i > 8 ? ", " : "", bytes,
           link.latency + part * bytes / link.bandwidth);
  }
  printf("]}");
}

static void put_collectives(int devices, int nodes)
{
  printf("\"collectives\": [");
  follows = false;
  for (int in_node = 1; in_node <= devices; in_node *= 2)
    for (int across = 1; across <= nodes; across *= 2) {
      const struct group_spread s = {in_node * across, across, in_node};
      if (s.members == 1) continue;
      put_group(OP_all_gather, "all_gather", &s);
      put_group(OP_reduce_scatter, "reduce_scatter", &s);
      put_group(OP_all_reduce, "all_reduce", &s);
      put_group(OP_all_to_all, "all_to_all", &s);
      if (s.members == 2) put_group(OP_send, "send", &s);
    }
  printf("]");
}

int main(int argc, char **argv)
{
  static const char *const uses[] = {"read", "write", "copy", "update", "optimizer", "rows"};
  const int devices = argc == 4 ? atoi(argv[2]) : 0, nodes = argc == 4 ? atoi(argv[3]) : 0;
  const struct device *d = argc == 4 ? device_named(argv[1]) : NULL;
  if (!d || devices < 1 || nodes < 1)
    return fprintf(stderr, "usage: preset_device NAME DEVICES NODES\n"), 2;
  set_target("cuda");
  graph_open();
  graph->mesh.device = *d;
  graph->mesh.cluster = usual_cluster(d);
  graph->mesh.cluster.nodes = nodes;
  graph->mesh.cluster.devices = graph->mesh.cluster.cards = devices;
  printf("{\"version\": 1, \"target\": \"cuda\", \"machine\": \"A %s\", \"host\": \"host\", "
         "\"measured\": \"2026-01-01T00:00:00Z\",\n",
         d->name);
  printf("\"devices\": %d, \"nodes\": %d, \"memory\": %.0f, \"libraries\": %d, \"group\": 0, "
         "\"peaks\": {",
         devices, nodes, (double)memory_of_device(d), 1 << 30);
  for (int i = 0; i < 3; i++) printf("%s\"%s\": %g", i ? ", " : "", types[i], d->flops[i]);
  printf("},\n\"runs\": [{\"ranks\": %d, \"processors\": %d, \"kernel\": 3e-6, \"launch\": 1e-9,\n",
         devices * nodes, d->processors);
  printf("\"beside\": {\"arithmetic\": 1.15, \"collective\": 1}, \"memory\": {");
  for (int i = 0; i < 6; i++)
    printf("%s\"%s\": [[1e3, %g], [1e9, %g]]", i ? ", " : "", uses[i], 1 / memory_seconds(1),
           1 / memory_seconds(1));
  printf("}, \"functions\": {},\n");
  put_products();
  put_attention();
  put_collectives(devices, nodes);
  printf("}]}\n");
  return 0;
}
