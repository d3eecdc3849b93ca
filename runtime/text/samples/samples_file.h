// SPDX-License-Identifier: MIT
// Files of lines (sample.h) as one safetensors file of samples: input[N, sequence] has tokens, and
// target[N, sequence] the token behind each, or -100 where nothing is learned. Of pairs they are
// [N, 2, sequence]. Packed, a sample is several lines' tokens one behind the other, and
// ends[N, sequence] is 1 at the last of each. Of rated answers rating[N] is 1 or 0, and input and
// target are [N, 2, sequence], too: the second row has the answer of another line of the batch
// behind the prompt, for the divergence of KTO (arXiv:2402.01306).
#ifndef TEXT_SAMPLES_FILE_H
#define TEXT_SAMPLES_FILE_H

#include "text/samples/sample.h"

struct samples_file {
  const struct sampling_rules *rules;
  const char *const *files; // NULL-terminated
  const char *input, *target, *to;
  const char *ends;   // NULL: not packed
  const char *rating; // NULL: not rated
  long batch;         // the samples among which answers are exchanged
  long rows;          // of a line: 1; or 2, its better and its worse answer
  long sequence, vocabulary;
  int pad; // the token behind the end of a shorter sample
};

// Writes it, with all cores: samples in the order of the lines; of packed ones, which are filled as
// well as can be (packing.h), of their first. A longer one is cut behind its
// first `sequence` tokens; one without a label is left out. Reports the numbers on standard error.
// False, and why; then there is no such file.
bool samples_write(const struct samples_file *f, struct failure *why);

#endif
