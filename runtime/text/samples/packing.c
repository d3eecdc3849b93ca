// SPDX-License-Identifier: MIT
#include "text/samples/packing.h"

#include <stdlib.h>

// The samples that have each number of tokens left, as lists.
struct rooms {
  size_t *first; // by room: its newest sample, plus 1; 0: none
  size_t *next;  // by sample
  uint32_t room;
};

// The least room of at least `length`; above `room`: none.
static uint32_t least_room(const struct rooms *r, uint32_t length)
{
  while (length <= r->room && r->first[length] == 0) length++;
  return length;
}

static void give_room(struct rooms *r, uint32_t room, size_t sample)
{
  r->next[sample] = r->first[room];
  r->first[room] = sample + 1;
}

// The texts by their lengths, the longest first, equal ones in their order.
static bool by_length(const uint32_t *length, size_t count, uint32_t room, size_t *order, size_t *n)
{
  size_t *at = calloc((size_t)room + 2, sizeof *at);
  if (!at) return false;
  for (size_t i = 0; i < count; i++)
    if (length[i]) at[room - length[i] + 1]++;
  for (uint32_t k = 0; k <= room; k++) at[k + 1] += at[k];
  *n = at[room];
  for (size_t i = 0; i < count; i++)
    if (length[i]) order[at[room - length[i]]++] = i;
  free(at);
  return true;
}

// Numbers the samples by their first texts. number: of each sample, SIZE_MAX.
static void in_order(size_t count, size_t *in, size_t *number)
{
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (in[i] == SIZE_MAX) continue;
    if (number[in[i]] == SIZE_MAX) number[in[i]] = n++;
    in[i] = number[in[i]];
  }
}

bool pack_texts(const uint32_t *length, size_t count, uint32_t room, size_t *in, size_t *samples)
{
  size_t n = 0, *order = malloc((count + 1) * sizeof *order);
  struct rooms r = {.first = calloc((size_t)room + 1, sizeof *r.first),
                    .next = malloc((count + 1) * sizeof *r.next),
                    .room = room};
  bool ok = order && r.first && r.next && by_length(length, count, room, order, &n);
  *samples = 0;
  for (size_t i = 0; ok && i < count; i++) in[i] = SIZE_MAX;
  for (size_t k = 0; ok && k < n; k++) {
    const uint32_t need = length[order[k]], has = least_room(&r, need);
    size_t sample = *samples;
    if (has <= room) {
      sample = r.first[has] - 1;
      r.first[has] = r.next[sample];
    } else
      ++*samples;
    in[order[k]] = sample;
    give_room(&r, (has <= room ? has : room) - need, sample);
  }
  for (size_t i = 0; ok && i < *samples; i++) r.next[i] = SIZE_MAX;
  if (ok) in_order(count, in, r.next);
  free(order);
  free(r.first);
  free(r.next);
  return ok;
}
