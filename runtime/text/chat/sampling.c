// SPDX-License-Identifier: MIT
// The choice of the next token.
#include "text/chat/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/philox4x32.h"

void sampling_prepare(const float *logits, float *to, long count, int first,
                      const struct sampling *how, const int *seen, int nseen)
{
  memcpy(to, logits, (size_t)count * sizeof *to);
  for (int i = 0; i < nseen && how->penalty != 1; i++) {
    const long at = (long)seen[i] - first;
    if (at < 0 || at >= count) continue;
    to[at] = logits[at] < 0 ? logits[at] * how->penalty : logits[at] / how->penalty;
  }
  for (long i = 0; i < count && how->temperature > 0; i++) to[i] /= how->temperature;
}

bool sampling_filters(const struct sampling *how)
{
  return how->top_k > 0 || how->top_p < 1 || how->min_p > 0;
}

// NaN is never the best.
static bool is_better(const struct candidate *a, const struct candidate *b)
{
  if (a->logit != b->logit) return a->logit > b->logit || b->logit != b->logit;
  return a->id < b->id;
}

// Lets the worst of n candidates, a heap, sink from the top to its place.
static void sink(struct candidate *heap, int n)
{
  int at = 0;
  for (;;) {
    int worst = at;
    for (int child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
      if (is_better(&heap[worst], &heap[child])) worst = child;
    if (worst == at) return;
    const struct candidate moved = heap[at];
    heap[at] = heap[worst];
    heap[worst] = moved;
    at = worst;
  }
}

static int by_rank(const void *a, const void *b)
{
  return is_better(a, b) ? -1 : is_better(b, a);
}

void sampling_sort(struct candidate *list, int n)
{
  qsort(list, (size_t)n, sizeof *list, by_rank);
}

int sampling_best(const float *logits, long count, int first, int most, struct candidate *best)
{
  int n = 0;
  for (long i = 0; i < count; i++) {
    const struct candidate here = {(int)(first + i), logits[i]};
    if (n < most) {
      best[n++] = here;
      if (n == most) sampling_sort(best, n);
      // The worst at the top: the reversed order is a heap.
      for (int k = 0; n == most && k < n / 2; k++) {
        const struct candidate moved = best[k];
        best[k] = best[n - 1 - k];
        best[n - 1 - k] = moved;
      }
    } else if (is_better(&here, &best[0])) {
      best[0] = here;
      sink(best, n);
    }
  }
  sampling_sort(best, n);
  return n;
}

void sampling_sum(const float *logits, long count, float *largest, double *sum)
{
  *largest = -INFINITY;
  *sum = 0;
  for (long i = 0; i < count; i++)
    if (logits[i] > *largest) *largest = logits[i];
  for (long i = 0; i<count && * largest> - INFINITY; i++) *sum += exp((double)logits[i] - *largest);
}

bool sampling_keep(const struct candidate *best, int n, bool all, double sum,
                   const struct sampling *how, int *kept)
{
  int left = n;
  if (how->top_k > 0 && (how->top_k < n || !all)) {
    if (how->top_k >= n) return false; // those like the last that stays may be elsewhere
    for (left = how->top_k; left < n && best[left].logit == best[how->top_k - 1].logit;) left++;
    if (left == n && !all) return false;
    all = true;
    sum = 0;
    for (int i = 0; i < left; i++) sum += exp((double)best[i].logit - best[0].logit);
  }
  if (how->top_p < 1) {
    double before = 0;
    int i = 0;
    for (; i < left && (i == 0 || before / sum < how->top_p); i++)
      before += exp((double)best[i].logit - best[0].logit);
    if (i == left && !all && before / sum < how->top_p) return false;
    left = i;
    all = true;
  }
  if (how->min_p > 0) {
    int i = 1;
    while (i < left && exp((double)best[i].logit - best[0].logit) >= how->min_p) i++;
    if (i == left && !all) return false;
    left = i;
    all = true;
  }
  while (left > 1 && best[left - 1].logit == -INFINITY) left--; // no draw takes them
  *kept = left;
  return all;
}

// A logit plus a number of Gumbel's distribution: the largest of these is a draw by shares, and no
// rank needs to know the others' logits.
static double score_of(int id, float logit, const struct draw *draw)
{
  const uint32_t counter[4] = {(uint32_t)id, draw->position, draw->prompt, 0x74657874};
  const uint32_t key[2] = {(uint32_t)draw->seed, (uint32_t)(draw->seed >> 32)};
  uint32_t words[4];
  philox4x32(counter, key, words);
  const double u = (words[0] * 0x1p-32 + words[1] * 0x1p-64) * (1 - 0x1p-52) + 0x1p-70;
  return (double)logit - log(-log(u));
}

int sampling_draw(const struct candidate *from, int n, const struct draw *draw)
{
  int best = 0;
  double most = -INFINITY;
  for (int i = 0; i < n; i++) {
    const double score = score_of(from[i].id, from[i].logit, draw);
    if (score > most) most = score, best = i;
  }
  return best;
}

int sampling_draw_logits(const float *logits, long count, int first, const struct draw *draw,
                         double *score)
{
  int best = first;
  *score = -INFINITY;
  for (long i = 0; i < count; i++) {
    const double here = score_of((int)(first + i), logits[i], draw);
    if (here > *score) *score = here, best = (int)(first + i);
  }
  return best;
}
