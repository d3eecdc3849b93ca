// SPDX-License-Identifier: MIT
// CRC-32C (Castagnoli) of tensors whose slices several ranks read or write.
//
// The checksum is linear: that of a whole is the exclusive or of its slices' contributions. So a
// rank reads its own bytes only, and the result does not depend on how a tensor is cut.
#ifndef CRC32C_H
#define CRC32C_H

#include <stddef.h>
#include <stdint.h>

// The bytes that a rank has added of a tensor, in ascending order. It begins as zeros.
struct checksum {
  uint32_t state;  // of all bytes before `at`, with 0 for those not added
  uint64_t at;     // from the start of the tensor
  uint64_t gap;    // the size of the last gap
  uint32_t factor; // advances a state over the gap
};

// Adds `count` bytes at offset `at` of the tensor, after all that were added before.
void checksum_add(struct checksum *sum, uint64_t at, const void *bytes, size_t count);

// The contribution of this rank's bytes to the checksum of a tensor of `size` bytes.
uint32_t checksum_share(struct checksum *sum, uint64_t size);

// The CRC-32C of a tensor of `size` bytes, from the exclusive or of all shares; each byte belongs
// to one share.
uint32_t checksum_whole(uint32_t shares, uint64_t size);

// The CRC-32C of contiguous bytes.
uint32_t crc32c(const void *bytes, size_t count);

#endif
