/* stream_times.c: the model of streams: when a collective begins and ends, and for how long the
   main stream waits for it. `schedule` asks it about spans of a function, the simulated step about
   the whole program.

   The main stream runs the arithmetic in program order. Each group has a stream, which runs the
   group's collectives in the order in which they are issued. A collective begins when the main
   stream has reached the place of its issue, the group's stream is free, and the predecessor to
   which it is chained has ended. Its copies into a buffer take time from the main stream before it,
   and those out of it after its await; if another one is chained to it, the copies out are on the
   group's stream, at its end. */
#include "target/target.h"

void open_stream_times(struct stream_times *t)
{
  *t = (struct stream_times){.until = alloc((size_t)(graph->ngroup + 1) * sizeof *t->until)};
}

/* How much longer each takes beside the other: collectives take multiprocessors and memory from the
   arithmetic. Galvatron's authors measure 1.1 to 1.3; tpgen --calibrate measures both. */
static struct slower_beside slower_beside(void)
{
  static const struct slower_beside usual = {1.15, 1};
  const struct slower_beside measured = is_measured() ? measured_beside() : usual;
  return measured.arithmetic > 0 ? measured : usual;
}

static int64_t more_of(int64_t takes, double slower)
{
  return (int64_t)((double)takes * (slower - 1));
}

int64_t issue_on_stream(struct stream_times *t, const struct stream_issue *c)
{
  int64_t *until = &t->until[c->group], begin = *until > t->now ? *until : t->now;
  if (begin < c->predecessor_ends) begin = c->predecessor_ends;
  const int64_t beside =
      c->async ? events_time() + more_of(c->takes, slower_beside().collective) : 0;
  const int64_t takes = c->takes + beside + (c->has_chained ? c->copies_out : 0);
  *until = plus_times(begin, 1, takes);
  return begin;
}

int64_t wait_for_stream(struct stream_times *t, int64_t end)
{
  const int64_t waited = end > t->now ? end - t->now : 0;
  t->now += waited;
  return waited;
}

int64_t time_beside_streams(const struct stream_times *t, int64_t takes)
{
  int64_t until = t->now;
  for (int i = 0; i < graph->ngroup; i++)
    if (t->until[i] > until) until = t->until[i];
  const int64_t beside = until - t->now < takes ? until - t->now : takes;
  return plus_times(takes, 1, more_of(beside, slower_beside().arithmetic));
}
