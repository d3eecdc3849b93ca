// CRC-32C (Castagnoli) of tensors that several ranks read or write slices of.
//
// The checksum is linear: that of a whole is the exclusive or of what each of its slices adds. So a
// rank looks at its own bytes alone, and the result does not depend on how a tensor is cut.
#ifndef CRC32C_H
#define CRC32C_H

#include <stddef.h>
#include <stdint.h>

// What a rank has seen of a tensor, byte by byte upwards. It begins as zeros.
struct checksum {
  uint32_t state;  // of all bytes before `at`, where what was not seen counts as 0
  uint64_t at;     // from the start of the tensor
  uint64_t gap;    // the last number of bytes that were left out
  uint32_t factor; // that moves a state over them
};

// Adds `count` bytes that begin `at` bytes into the tensor, behind all that were added before.
void checksum_add(struct checksum *sum, uint64_t at, const void *bytes, size_t count);

// What this rank's bytes add to the checksum of a tensor of `size` bytes.
uint32_t checksum_share(struct checksum *sum, uint64_t size);

// The CRC-32C of a tensor of `size` bytes: of the exclusive or of all shares, which hold each byte
// once.
uint32_t checksum_whole(uint32_t shares, uint64_t size);

// The CRC-32C of bytes that lie side by side.
uint32_t crc32c(const void *bytes, size_t count);

#endif
