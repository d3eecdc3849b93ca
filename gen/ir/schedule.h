/* schedule.h: the decisions of the pass `schedule`, apart from the order of the operations. */
#ifndef TPGEN_IR_SCHEDULE_H
#define TPGEN_IR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* The decisions about a collective. */
struct scheduled {
  bool overlapped;               /* it runs on its group's stream from its issue to its await */
  bool awaited_next_iteration;   /* overlapped, in a loop: the next iteration awaits it */
  bool issued_in_last_iteration; /* overlapped: the last iteration of a loop issues it, and it is
                                    awaited after the loop */
  bool has_chained;      /* overlapped: another one is chained to it; its own stream unpacks its
                            result */
  int prefetch_distance; /* overlapped, in a loop: it is issued so many iterations before the one
                            that awaits it; or 0 */
  int chained_to;        /* overlapped: it starts as soon as this collective is complete, on the
                            same stream; or NONE */
  int event; /* overlapped: its event. With several iterations in flight, the first of as many
                events: see event_slots */
  int64_t time, exposed; /* by the cost model: its time, and how much of it nothing overlaps;
                            picoseconds */
};

/* A trial keeps a copy of it and can go back to that: edit.c. */
struct schedule {
  int nop;              /* operations made later have no row: no decisions */
  struct scheduled *of; /* by operation */
  int nevent;           /* the largest number of collectives pending at once */
};

#endif
