// SPDX-License-Identifier: MIT
// Verifies loaded data by the checksums of a checkpoint: of its tensors' bytes, of its headers
// (thus of the step and the position in the data), and of all its files together.
#ifndef CHECKSUMS_H
#define CHECKSUMS_H

#include "formats/safetensors_set.h"

// A tensor whose bytes several ranks read.
struct check {
  char *where; // "FILE: NAME", or NULL: no checksum
  uint64_t bytes;
  uint32_t crc; // from the file
};

// All ranks have the same number of checks.
struct checks {
  size_t count;
  struct check *all;
  uint32_t *shares; // this rank's contribution to each checksum; finally that of all ranks
};

// Allocates `count` checks, each without a checksum. False, and why, if out of memory.
bool checks_make(struct checks *checks, size_t count, struct failure *why);
void checks_free(struct checks *checks);

// Sets the expected checksum of tensor i from its file. False, and why, if out of memory.
bool checks_expect(struct checks *checks, size_t i, const struct kept *kept, struct failure *why);

// Once all ranks' shares are combined: whether tensor i is unchanged. False, and why, if not.
bool checks_hold(const struct checks *checks, size_t i, struct failure *why);

// The message that the data has changed, and how to load it nevertheless. Returns false.
bool verify_refuse(const struct failure *changed, struct failure *why);

// Verifies that the headers are unchanged and the files belong to one save. *has: the files have
// checksums; if none has, nothing is compared. False, and why.
bool verify_headers(const struct archive *archive, bool *has, struct failure *why);

// Reads part `index` of `parts` of each tensor into the checks of the archive->count tensors.
bool verify_read(const struct archive *archive, int index, int parts, struct checks *checks,
                 struct failure *why);

#endif
