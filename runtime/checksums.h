// Whether what is read is what was saved: by the checksums that a checkpoint has of its tensors'
// bytes, of its headers (so of the step and the place in the data), and of its files together.
#ifndef CHECKSUMS_H
#define CHECKSUMS_H

#include "safetensors_set.h"

// A tensor whose bytes several ranks read.
struct check {
  char *where; // "FILE: NAME", or NULL: it has no checksum
  uint64_t bytes;
  uint32_t crc; // as it was saved
};

// The same number of them on all ranks.
struct checks {
  size_t count;
  struct check *all;
  uint32_t *shares; // what this rank's bytes add to each checksum; in the end what all ranks' do
};

// Room for so many tensors, none of which has a checksum. False, and why, where memory ends.
bool checks_make(struct checks *checks, size_t count, struct failure *why);
void checks_free(struct checks *checks);

// Tensor i is this one of a file. False, and why, where memory ends.
bool checks_expect(struct checks *checks, size_t i, const struct kept *kept, struct failure *why);

// With all ranks' shares: whether tensor i is as it was saved. False, and why, where it is not.
bool checks_hold(const struct checks *checks, size_t i, struct failure *why);

// What has changed, with the way to load it all the same. Returns false.
bool verify_refuse(const struct failure *changed, struct failure *why);

// Are the headers as they were written, and the files of one save? *has: they have checksums; where
// no file has, there is nothing to compare. False, and why, where they are not.
bool verify_headers(const struct archive *archive, bool *has, struct failure *why);

// Reads part `index` of `parts` of each tensor, for checks of archive->count tensors.
bool verify_read(const struct archive *archive, int index, int parts, struct checks *checks,
                 struct failure *why);

#endif
