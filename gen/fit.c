/* fit.c: a plan may tell how much memory a rank has, by device_mesh{ ..., memory = "80GiB" }. One
   that needs more is the plan's error, which tells what for, and what would help.

   Takes   the finished graph.
   Leaves  it as it is. */
#include "report.h"

#include <inttypes.h>

int64_t memory_besides(void)
{
  return options.cuda ? INT64_C(1) << 30 : 0;
}

char *size_text(int64_t bytes)
{
  static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 10240) return text("%" PRId64 " B", bytes);
  int u = 0;
  int64_t one = 1024;
  for (; u < 3 && bytes / one >= 1024; u++) one *= 1024;
  int64_t tenths = bytes / one * 10 + (bytes % one * 10 + one - 1) / one;
  return text("%" PRId64 ".%" PRId64 " %s", tenths / 10, tenths % 10, unit[u]);
}

static void put_part(struct buffer *b, const char *name, int64_t bytes)
{
  if (bytes) put(b, "%s%s %s", b->length ? ", " : "", name, size_text(bytes));
}

static char *parts_text(void)
{
  struct buffer b = {0};
  for (int i = 0; i < MEMORY_PARTS; i++)
    put_part(&b, memory_part[i].name, memory_of_role(memory_part[i].role));
  put_part(&b, "activations", graph->arena_bytes);
  put_part(&b, "parts of sums", parts_bytes());
  put_part(&b, "workspace", product_workspace());
  put_part(&b, "CUDA and NCCL", memory_besides());
  return b.text;
}

static const char *help_text(void)
{
  if (graph->loss == NONE || graph->checkpoint)
    return "more ranks to cut it over, or a smaller batch";
  return "checkpoint = \"layer\" in train, which keeps less of the activations, "
         "more ranks to cut it over, or a smaller batch";
}

void fit(void)
{
  int64_t limit = graph->mesh.memory;
  if (!limit) return;
  int64_t needed = memory_of_rank() + memory_besides();
  if (needed <= limit) return;
  plan_error(graph->mesh.line,
             "a rank needs %s of memory, and device_mesh gives it %s: %s. What would help: %s",
             size_text(needed), size_text(limit), parts_text(), help_text());
}
