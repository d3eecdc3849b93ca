/* collective_counts.c: how many elements a member of a group sends and receives in a collective, by
 * the row. */
#include "sharding/sharding.h"

int64_t elements_sent(enum op_kind kind, const struct share *s)
{
  const int64_t n = s->n, has = s->has, gets = s->gets, kept = s->kept;
  const int member = s->member;
  switch (kind) {
#define COLLECTIVE(name, from, to, sent, received, ...)                                            \
  case OP_##name:                                                                                  \
    return sent;
#include "ir/collectives.h"
#undef COLLECTIVE
  default:
    return 0;
  }
}

int64_t elements_received(enum op_kind kind, const struct share *s)
{
  const int64_t n = s->n, has = s->has, gets = s->gets, kept = s->kept;
  const int member = s->member;
  switch (kind) {
#define COLLECTIVE(name, from, to, sent, received, ...)                                            \
  case OP_##name:                                                                                  \
    return received;
#include "ir/collectives.h"
#undef COLLECTIVE
  default:
    return 0;
  }
}
