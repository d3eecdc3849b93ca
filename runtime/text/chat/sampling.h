// SPDX-License-Identifier: MIT
// The choice of the next token from its logits. Each rank has the logits of some tokens: its best
// ones travel, the others stay. Temperature, top-k, top-p and min-p are those of Hugging Face's
// transformers, in its order: each works on the tokens that the one before has left.
#ifndef TEXT_SAMPLING_H
#define TEXT_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

struct sampling {
  float temperature; // 0: the token with the largest logit
  int top_k;         // 0: all
  float top_p;       // 1: all
  float min_p;       // 0: all
  float penalty;     // logits of tokens that the text has are divided by it, or multiplied if they
                     // are negative; 1: none
  uint64_t seed;
};

struct candidate {
  int id;
  float logit;
};

// A draw: the same for a seed, prompt and position on every mesh.
struct draw {
  uint64_t seed;
  uint32_t prompt, position;
};

// Logits of `count` tokens from `first` on as the draw takes them: penalty of the tokens in `seen`,
// then temperature.
void sampling_prepare(const float *logits, float *to, long count, int first,
                      const struct sampling *how, const int *seen, int nseen);

// Whether one of the filters is on. Without them any token may be drawn.
bool sampling_filters(const struct sampling *how);

// The `most` best of some logits, largest first, of equals the lowest id first; returns how many.
int sampling_best(const float *logits, long count, int first, int most, struct candidate *best);

// Puts candidates in that order.
void sampling_sort(struct candidate *list, int n);

// The largest logit, and the sum of exp(logit - largest).
void sampling_sum(const float *logits, long count, float *largest, double *sum);

// Applies the filters to the n best candidates of all, in the order of sampling_best: the first
// `*kept` stay. `sum`: of exp(logit - the largest) of all tokens; all: there are no others. False:
// more candidates are needed.
bool sampling_keep(const struct candidate *best, int n, bool all, double sum,
                   const struct sampling *how, int *kept);

// The candidate that the draw takes, by its share: the index.
int sampling_draw(const struct candidate *from, int n, const struct draw *draw);

// The same among logits of tokens from `first` on: its id, and a score to compare with those of
// other ranks.
int sampling_draw_logits(const float *logits, long count, int first, const struct draw *draw,
                         double *score);

#endif
