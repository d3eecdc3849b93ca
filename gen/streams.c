/* streams.c: what runs on which stream of the CUDA target: for those that write it, and plan.txt.

   Takes   functions with collectives that run beside others, and their awaits. */
#include "report.h"
#include "simulate.h"

#include <string.h>

static const struct function *function_with(int id)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (graph->function[i].op[k] == id) return &graph->function[i];
  bug("emit", id, "no function runs it");
}

/* Where the function runs the operation, or the part that does, or what calls that; NONE if not. */
static int place_in(const struct function *f, int id)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    if (f->op[k] == id) return k;
    if (op->kind == OP_round && place_in(&graph->function[op->function], id) != NONE) return k;
  }
  return NONE;
}

/* Whether the operation awaits the collective, or one that follows it, or what it calls does. */
static bool awaits(const struct op *op, int id)
{
  if (op->kind == OP_round) op = &graph->op[graph->function[op->function].op[0]];
  if (op->kind != OP_await) return false;
  return op->begun == id || graph->op[op->begun].follows_plus_1 == id + 1;
}

static bool is_work(const struct op *op)
{
  return op->kind != OP_await && op->kind != OP_round && op->kind != OP_view &&
         !is_collective(op->kind);
}

/* What is pending between rounds runs beside what follows its begin, and, in the next round, beside
   what comes before its await. */
struct list beside(const struct op *op)
{
  struct list found = {0};
  if (!op->beside) return found;
  int id = (int)(op - graph->op), end = 0;
  const struct function *f = function_with(id);
  if (f->is_part) f = &graph->function[f->body];
  int begin = place_in(f, id);
  while (end < f->nop && !awaits(&graph->op[f->op[end]], id)) end++;
  for (int k = begin + 1; k != end && found.n < f->nop; k++) {
    if (k == f->nop && !(op->ahead || op->behind)) break;
    if (k == f->nop) k = 0;
    if (k == end) break;
    if (is_work(&graph->op[f->op[k]])) add(&found, f->op[k]);
  }
  return found;
}

const char *called(const struct op *op, const char *(*name)(int value))
{
  if (op->kind == OP_loop) return graph->function[op->function].name;
  if (op->kind != OP_fused && op->kind != OP_epilogue)
    return name(op->out == NONE ? op->in[0] : op->out);
  const struct op *inner = NULL;
  for (int k = 0; k < op->nbody; k++)
    if (graph->value[graph->op[op->body[k]].out].stored) inner = &graph->op[op->body[k]];
  return name(inner ? inner->out : graph->op[op->body[0]].out);
}

char *beside_text(const struct op *op, const char *(*name)(int value))
{
  enum { TOLD = 4 };
  struct list found = beside(op);
  struct buffer b = {0};
  if (!found.n) return copy_text("nothing");
  int told = found.n > TOLD + 1 ? TOLD : found.n;
  for (int i = 0; i < told; i++)
    put(&b, "%s%s", i ? ", " : "", called(&graph->op[found.at[i]], name));
  if (told < found.n) put(&b, " and %d more", found.n - told);
  return b.text;
}

bool has_stream(int group)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      if (is_collective(op->kind) && op->beside && op->group == group) return true;
    }
  return false;
}

/* ---------------------------------------------------------------------------------- in plan.txt */

struct sums {
  struct buffer *to;
  double taken, exposed;       /* picoseconds */
  double of_gather, of_update; /* of what is exposed, where several batches have them once */
};

static const char *report_name(int value)
{
  return printable(value_name(value));
}

static char *time_text(double picoseconds)
{
  return picoseconds > 0 ? seconds_text(picoseconds * 1e-12) : copy_text("0");
}

/* The value that a collective moves, or what it moves several of. */
static const char *moved_name(const struct op *op)
{
  return op->nbody ? reduced_text(op) : report_name(op->in[0]);
}

static void put_stream(void *to, int id, int times)
{
  const struct op *op = &graph->op[id];
  struct sums *sums = to;
  if (!is_collective(op->kind)) return;
  int64_t takes, waited;
  simulated_mean(id, &takes, &waited);
  sums->taken += times * (double)takes;
  sums->exposed += times * (double)waited;
  if (op->phase == GATHER) sums->of_gather += times * (double)waited;
  if (op->phase == UPDATE) sums->of_update += times * (double)waited;
  const char *on = op->beside ? stream_name(op->group) : "stream";
  put(sums->to, "  %-8s %-15s %-6s %15s %15s %15s   ", phase_name[op->phase], kind_of(op),
      printable(graph->group[op->group].name), on, time_text((double)takes),
      time_text((double)waited));
  const char *from = op->ahead > 1 ? text(", %d rounds ahead", op->ahead)
                     : op->ahead   ? ", a round ahead"
                     : op->late    ? ", begun in the last round"
                     : op->behind  ? ", awaited a round behind"
                                   : "";
  put(sums->to, "%s%s: beside %s", moved_name(op), from, beside_text(op, report_name));
  put(sums->to, times > 1 ? ", %d times\n" : "\n", times);
}

/* Why what the batches of a step have once is not hidden, where that is worth a word. */
static void put_once(struct buffer *b, const struct sums *s)
{
  double once = s->of_gather + s->of_update;
  if (graph->accumulate == 1 || once < s->exposed / 100) return;
  bool can_reduce = s->of_update > once / 2 && !graph->reduce_each_batch;
  put(b,
      "  %s of these: gathered before the first batch or reduced behind the last, where next to\n",
      time_text(once));
  put(b, "  nothing is computed beside it%s\n",
      can_reduce ? "; with reduce_each_batch each batch's backward is beside its reductions" : "");
}

void put_streams(struct buffer *b)
{
  struct buffer rows = {0};
  struct sums sums = {.to = &rows};
  each_op(put_stream, &sums);
  if (!rows.length) return;
  put(b, "\n%-33s %15s %15s %15s   %s\n%s", "streams, times by the model", "on", "takes",
      "waited for", "what, and what runs meanwhile", rows.text);
  put(b, "  collectives take %s in a step, arithmetic waits %s for them\n", time_text(sums.taken),
      time_text(sums.exposed));
  put_once(b, &sums);
}
