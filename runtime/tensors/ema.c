// SPDX-License-Identifier: MIT
// Exchanges, piece by piece, this rank's parts of the weights and of their averages.
#include "tensors/ema.h"

#include <stdlib.h>
#include <string.h>
#include "base/program.h"
#include "base/target.h"
#include "tensors/tensor_table.h"

static struct members members;
static char *stage; // two pieces; NULL: not open

bool ema_open(struct failure *why)
{
  stage = malloc(2 * STAGED_BYTES);
  return (stage && table_members(&members, why)) || failed(why, "out of memory for --ema");
}

static void exchange(char *a, char *b, size_t bytes)
{
  for (size_t done = 0; done < bytes;) {
    const size_t count = bytes - done < STAGED_BYTES ? bytes - done : STAGED_BYTES;
    target_get(stage, a + done, count);
    target_get(stage + STAGED_BYTES, b + done, count);
    target_put(a + done, stage + STAGED_BYTES, count);
    target_put(b + done, stage, count);
    done += count;
  }
}

// The parts of an average are those of its weight, in the same order.
static void exchange_parts(const struct member *average)
{
  const struct member *weight = table_find(&members, average->name + strlen(AVERAGE_PREFIX));
  for (; average && weight; average = average->next, weight = weight->next) {
    const struct slice slice = table_slice(average->row);
    exchange(table_memory(average), table_memory(weight),
             slice_elements(&slice) * table_type(F32).bytes);
  }
}

void ema_exchange(int t)
{
  if (!stage || t == 0) return;
  for (size_t i = 0; i < members.count; i++) {
    const struct member *m = &members.all[i];
    if (program->tensors[m->row].role == STATE && m->of == m && is_average(m->name))
      exchange_parts(m);
  }
}

void ema_close(void)
{
  free(stage);
  stage = NULL;
  table_free(&members);
}
