/* streams.c: the collectives of each stream, for plan.txt; where there are no streams, those that
   run beside arithmetic.

   Takes   functions with asynchronous collectives, and their awaits. */
#include "report/report.h"

/* ---------------------------------------------------------------------------------- in plan.txt */

struct sums {
  struct buffer *to;
  double taken, exposed;       /* picoseconds */
  double of_gather, of_update; /* exposed time of collectives that several batches share */
};

static char *time_text(double picoseconds)
{
  return picoseconds > 0 ? seconds_text(picoseconds * 1e-12) : copy_text("0");
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
  const char *on = !runs_beside(op)  ? target->streams ? "stream" : "waits"
                   : target->streams ? stream_name(op->group)
                                     : "goes on";
  const char *name = printable(graph->group[op->group].name);
  put(sums->to, "  %-8s %-15s %-6s %15s", phase_name[op->phase], kind_of(op), name, on);
  if (device()) put(sums->to, " %15s %15s", time_text((double)takes), time_text((double)waited));
  const char *from = scheduled(op)->prefetch_distance > 1
                         ? text(", %d iterations ahead", scheduled(op)->prefetch_distance)
                     : scheduled(op)->prefetch_distance        ? ", one iteration ahead"
                     : scheduled(op)->issued_in_last_iteration ? ", issued in the last iteration"
                     : scheduled(op)->awaited_next_iteration   ? ", awaited in the next iteration"
                                                               : "";
  if (times > 1) put(sums->to, "   %d times", times);
  /* The value that a collective moves, or the name of what a bucket moves. */
  const char *what =
      text("      %s%s: overlaps with %s", op->nbody ? reduced_text(op) : shown_name(op->in[0]),
           from, beside_text(op, shown_name));
  put(sums->to, "\n%s\n", wrapped(what, " ", "          "));
}

void put_streams(struct buffer *b)
{
  struct buffer rows = {0};
  struct sums sums = {.to = &rows};
  each_op(put_stream, &sums);
  if (!rows.length) return;
  if (!device()) {
    put(b, "\n%-33s %15s\n%s", "collectives beside arithmetic", "the program", rows.text);
    return;
  }
  put(b, "\n%-33s %15s %15s %15s\n%s",
      target->streams ? "streams, times by the model" : "overlap, times by the model",
      target->streams ? "on" : "the program", "takes", "waited for", rows.text);
  put(b, "  collectives take %s of a step; %s of it is exposed\n", time_text(sums.taken),
      time_text(sums.exposed));
  /* Why collectives that all batches share are not hidden, if that is worth a line. */
  double once = sums.of_gather + sums.of_update;
  if (runs_in_step() == 1 || once < sums.exposed / 100) return;
  bool can_reduce =
      sums.of_update > once / 2 && !plan_options->reduce_each_batch && !step_has(is_of_last_batch);
  put(b, "  %s of these: gathered before the first batch or reduced after the last, where little\n",
      time_text(once));
  put(b, "  arithmetic can overlap%s\n",
      can_reduce ? "; with reduce_each_batch each batch's backward overlaps with its reductions"
                 : "");
}
