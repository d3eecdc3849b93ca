/* limits.c: the limits that a plan states. expect = {all_gather = 10} gives the most collectives of
   each kind in a step; a kind that it does not name may have none. More is the plan's error.

   Takes   the finished graph.
   Leaves  the graph unchanged. */
#include "report/report.h"

#include <string.h>

static void put_memory_part(struct buffer *b, const char *name, int64_t bytes)
{
  if (bytes) put(b, "%s%s %s", b->length ? ", " : "", name, size_text(bytes));
}

static char *parts_text(void)
{
  struct buffer b = {0};
  for (int i = 0; i < MEMORY_PARTS; i++)
    put_memory_part(&b, memory_part[i].name, memory_of_role(memory_part[i].role));
  put_memory_part(&b, "activations", arena_bytes());
  put_memory_part(&b, "parts of sums", parts_bytes());
  put_memory_part(&b, "workspace", product_workspace());
  put_memory_part(&b, "CUDA and NCCL", library_reserve());
  return b.text;
}

int64_t memory_limit(void)
{
  if (graph->mesh.memory) return graph->mesh.memory;
  return graph->mesh.device.name ? memory_of_device(&graph->mesh.device) : 0;
}

/* The plan states no limit, but its device has one: once in a program, for print_notes(). */
static void note_memory_of_device(int64_t needed)
{
  static const char words[] = "and the device has";
  const char *notes = plan_options->notes ? plan_options->notes : "";
  const int line = graph->mesh.line;
  int64_t has = memory_limit();
  if (!has || needed <= has || strstr(notes, words)) return;
  plan_options->notes =
      text("%s%s:%d: note: a rank needs %s of memory, %s %s: with memory = in device_mesh this "
           "is an error\n",
           notes, file_of_line(plan_options->path, line), line % LINES_OF_FILE, size_text(needed),
           words, size_text(has));
}

void check_memory_limit(void)
{
  int64_t limit = graph->mesh.memory;
  int64_t needed = memory_of_rank() + library_reserve();
  if (!limit) note_memory_of_device(needed);
  if (!limit) return;
  if (needed <= limit) return;
  bool keeps_all = graph->loss != NONE && !plan_options->checkpoint;
  plan_error(graph->mesh.line,
             "a rank needs %s of memory, and device_mesh gives it %s: %s. To make it fit: %s"
             "more ranks to cut it over, or a smaller batch",
             size_text(needed), size_text(limit), parts_text(),
             keeps_all ? "checkpoint = \"layer\" in train, which keeps less of the activations, "
                       : "");
}

enum { MOST_SHOWN = 4 }; /* reasons in a message */

/* The collectives of one kind, by the operation that requires them. */
struct reason {
  const char *why;
  int line, times;
};
static struct reason reason[64];
static int nreason, counted;

static void count(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  if ((int)op->kind != *(const int *)to) return;
  const char *why = op->why ? op->why : "";
  counted += times;
  int k = 0;
  while (k < nreason && (reason[k].line != op->line || strcmp(reason[k].why, why))) k++;
  if (k == (int)(sizeof reason / sizeof *reason)) return;
  if (k == nreason) reason[nreason++] = (struct reason){.why = why, .line = op->line};
  reason[k].times += times;
}

static char *reasons_text(void)
{
  struct buffer b = {0};
  for (int k = 0; k < nreason && k < MOST_SHOWN; k++)
    put(&b, "%s%d for %s, line %d", k ? "; " : "", reason[k].times, reason[k].why, reason[k].line);
  if (nreason > MOST_SHOWN) put(&b, "; and more: see plan.txt of a program without expect");
  return b.text;
}

void check_expectations(void)
{
  if (!plan_options->expected.given) return;
  for (int kind = 0; kind < OP_COUNT; kind++) {
    if (!is_collective((enum op_kind)kind)) continue;
    nreason = counted = 0;
    memset(reason, 0, sizeof reason);
    each_op(count, &kind);
    if (counted > plan_options->expected.most[kind])
      plan_error(plan_options->expected.line,
                 "expect: a step has %d %s, and at most %d are expected: %s", counted,
                 op_row[kind].name, plan_options->expected.most[kind], reasons_text());
  }
}
