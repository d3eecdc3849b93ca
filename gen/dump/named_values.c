/* named_values.c: which values a dump calls by a name: a value that is the only one so far with
   this name, or with this place in a stack. All others are called by their numbers. */
#include "dump/dump.h"

static struct bearer *answer(struct memo *known, const struct query *q)
{
  bool is_new;
  struct bearer *bearer = answer_to(known, q, sizeof *bearer, &is_new);
  if (is_new) *bearer = (struct bearer){0};
  return bearer;
}

struct bearer *bearer_of(struct bearers *known, const char *name)
{
  static struct query q;
  begin_query(&q);
  ask_text(&q, name);
  return answer(&known->names, &q);
}

struct bearer *relative_of(struct bearers *known, int stack, int step, int which)
{
  static struct query q;
  begin_query(&q);
  ask_number(&q, stack);
  ask_number(&q, step);
  ask_number(&q, which);
  return answer(&known->relatives, &q);
}

struct bearer *bearer_of_value(struct bearers *known, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (v->role != ACTIVATION) return bearer_of(known, v->name);
  if (loop->stack == NONE || (!loop->step && !loop->index)) return NULL;
  return relative_of(known, loop->stack, loop->step, loop->step ? loop->initial : loop->index);
}

void note_bearer(struct bearers *known, int value)
{
  struct bearer *bearer = bearer_of_value(known, value);
  if (bearer) *bearer = (struct bearer){bearer->n + 1, value};
}
