// SPDX-License-Identifier: MIT
// The collectives of packed values over shared memory: nothing is packed, for each rank reads and
// writes the values where they are.
#include <string.h>
#include "base/program.h"
#include "cpu/kernels/segments.h"
#include "cpu/shared_memory/shared.h"

// Equal on ranks whose segments are equal.
static uint64_t form_of(int n, const struct segment *p)
{
  uint64_t form = 0;
  for (int k = 0; k < n; k++) form = (form * 31 + (uint64_t)p[k].rows) * 31 + (uint64_t)p[k].run;
  return form;
}

// The segment's elements of one member's chunk.
static struct segment part_of(struct segment p, int member)
{
  p.at = p.at ? (char *)p.at + member * p.run * p.bytes : NULL;
  p.parts = 1;
  return p;
}

int shared_gather_segments(const void *own, int n, const struct segment *p, enum shared_type type,
                           struct shared_group *group)
{
  const long bytes = (long)shared_size(type);
  shared_begin(group, SHARED_GATHER_SEGMENTS, form_of(n, p));
  long end = 0;
  for (int k = 0; k < n; k++)
    if (p[k].place + p[k].rows * p[k].run > end) end = p[k].place + p[k].rows * p[k].run;
  shared_operand(group, own, (size_t)(end * bytes));
  const int error = shared_meet(group);
  for (int m = 0; m < group->n && error == 0; m++) {
    char *chunk = (char *)(uintptr_t)shared_read(group, m);
    for (int k = 0; k < n; k++) {
      const struct segment part = part_of(p[k], m);
      copy_segments((struct segment_buffer){chunk, bytes, 0}, 1, &part, false);
    }
  }
  if (error == 0) shared_leave(group);
  return error;
}

// ---- sums of segments
// ----------------------------------------------------------------------------

enum { AT_ONCE = SHARED_ROOM / sizeof(location), CONVERTED = 2048 };

// A run of this rank's elements in all members' values: `to` = their sum.
struct run {
  char *to;
  const char *from[SHARED_RANKS]; // NULL: zeros
  long n, from_bytes;
};

// Elements of another type than the sum's, or zeros, are converted first.
static void sum_run(struct run r, enum shared_type type, int op, int members)
{
  const long bytes = (long)shared_size(type);
  char room[CONVERTED * sizeof(float)];
  if (r.from_bytes == bytes && r.from[0]) {
    shared_sum(&(struct sum){
        .out = r.to, .from = r.from, .members = members, .n = (size_t)r.n, .type = type, .op = op});
    return;
  }
  for (long at = 0; at < r.n; at += CONVERTED) {
    const long some = r.n - at < CONVERTED ? r.n - at : CONVERTED;
    char *to = r.to + at * bytes;
    for (int m = 0; m < members; m++) {
      const char *from = r.from[m] ? r.from[m] + at * r.from_bytes : NULL;
      copy_run(m ? room : to, bytes, from, r.from_bytes, some);
      if (m)
        shared_sum(&(struct sum){.out = to,
                                 .from = (const char *const[]){to, room},
                                 .members = 2,
                                 .n = (size_t)some,
                                 .type = type,
                                 .op = op});
    }
  }
}

static void sum_segment(struct shared_group *group, int k, struct segment p, char *own,
                        enum shared_type type, int op)
{
  const long bytes = (long)shared_size(type);
  struct run r = {.from_bytes = p.bytes, .n = p.run};
  for (long row = 0; row < p.rows; row++) {
    const long first = (row * p.of + group->me * p.run) * p.bytes;
    r.to = own + (p.place + row * p.run) * bytes;
    for (int m = 0; m < group->n; m++) {
      location place;
      memcpy(&place, shared_post(group, m)->room + (size_t)k * sizeof place, sizeof place);
      const char *at = shared_at(group, m, place);
      r.from[m] = at ? at + first : NULL;
    }
    sum_run(r, type, op, group->n);
  }
}

static int reduce_some(char *own, int n, const struct segment *p, enum shared_type type, int op,
                       struct shared_group *group)
{
  char *room = shared_begin(group, SHARED_REDUCE_SEGMENTS, form_of(n, p));
  for (int k = 0; k < n; k++) {
    const location place = shared_place(p[k].at, 0, NULL);
    if (p[k].at && !place)
      return shared_error("a value outside of the program's memory is to be reduced");
    memcpy(room + (size_t)k * sizeof place, &place, sizeof place);
  }
  group->announced.is_here = false;
  const int error = shared_meet(group);
  for (int k = 0; k < n && error == 0; k++) sum_segment(group, k, p[k], own, type, op);
  if (error == 0) shared_leave(group);
  return error;
}

int shared_reduce_segments(void *own, int n, const struct segment *p, enum shared_type type, int op,
                           struct shared_group *group)
{
  int error = 0;
  for (int k = 0; k < n && error == 0; k += AT_ONCE)
    error = reduce_some(own, n - k < AT_ONCE ? n - k : AT_ONCE, p + k, type, op, group);
  return error;
}
