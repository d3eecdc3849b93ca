/* prove_stages.c: proves that the stages of a pipeline do not wait for each other forever.

   A rank goes through its actions in their order. A forward begins when that of the stage before
   has ended, and a backward when that of the stage behind has: each receives what that one sent. A
   sender does not wait; but a backward makes its gradient where that of its last micro-batch was,
   so it begins when the stage before has run the backward that takes that one. */
#include "check/check.h"

/* What a stage has run, by micro-batch. */
struct done {
  bool *forward, *backward;
  int last; /* the micro-batch of its last backward, or NONE */
};

static bool can_begin(const struct pipeline *p, const struct done *done, const struct action *a)
{
  int s = a->stage, m = a->microbatch;
  if (a->kind == ACTION_F) return s == 0 || done[s - 1].forward[m];
  if (!done[s].forward[m]) return false;
  if (s + 1 < p->stages && !done[s + 1].backward[m]) return false;
  return s == 0 || done[s].last == NONE || done[s - 1].backward[done[s].last];
}

/* Runs the action if it can begin. */
static bool run(const struct pipeline *p, struct done *done, const struct action *a)
{
  int s = a->stage, m = a->microbatch;
  if (a->kind == ACTION_IDLE) return true;
  if (!can_begin(p, done, a)) return false;
  if (a->kind == ACTION_F) {
    done[s].forward[m] = true;
    return true;
  }
  done[s].backward[m] = true;
  done[s].last = m;
  return true;
}

const char *stages_wait(const struct pipeline *p)
{
  struct done *done = alloc((size_t)p->stages * sizeof *done);
  int *next = alloc((size_t)p->ranks * sizeof *next);
  for (int s = 0; s < p->stages; s++) {
    size_t n = (size_t)p->microbatches + 1;
    done[s] = (struct done){alloc(n), alloc(n), NONE};
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < p->ranks; r++)
      while (next[r] < p->order[r].n && run(p, done, &p->order[r].at[next[r]])) {
        next[r]++;
        moved = true;
      }
  }
  struct buffer b = {0};
  for (int r = 0; r < p->ranks; r++)
    if (next[r] < p->order[r].n)
      put(&b, "%srank %d in %s", b.length ? ", " : "", r, action_text(&p->order[r].at[next[r]]));
  return b.length ? text("these wait for each other: %s", b.text) : NULL;
}
