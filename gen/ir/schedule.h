/* schedule.h: what the pass `schedule` decides, beside the order of the operations. */
#ifndef TPGEN_IR_SCHEDULE_H
#define TPGEN_IR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* What is decided about a collective. */
struct scheduled {
  bool overlapped;               /* it runs on its group's stream from its issue to its await */
  bool awaited_next_iteration;   /* overlapped, in a loop: the iteration that follows awaits it */
  bool issued_in_last_iteration; /* overlapped: a loop's last iteration issues what is awaited
                                    behind the loop */
  bool has_chained; /* overlapped: one is chained to it; its own stream copies out what it leaves */
  int prefetch_distance; /* overlapped, in a loop: it is issued so many iterations before the one
                            that awaits it; or 0 */
  int chained_to;        /* overlapped: the collective whose result it starts with when that is
                            there, whatever else is at work; or NONE */
  int event; /* overlapped: which of the program's events tells that it is done; of several
                iterations ahead the first of as many: see event_slots */
  int64_t time, exposed; /* by the model of cost.c, and how long of that nothing runs beside it;
                            picoseconds */
};

/* A trial keeps a copy of it, and goes back to that: edit.c. */
struct schedule {
  int nop; /* operations that are made later have no row: nothing is decided about them */
  struct scheduled *of; /* by operation */
  int nevent;           /* as many as collectives that are pending at once */
};

#endif
