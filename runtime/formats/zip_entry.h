// SPDX-License-Identifier: MIT
// The place of an entry of a ZIP in its file, also in one of more than 4 GiB: the ZIP library finds
// an entry by its name, but reads only sizes and offsets of 32 bits.
#ifndef ZIP_ENTRY_H
#define ZIP_ENTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// In an archive of torch.export, the entry that has the program. Its checksum distinguishes
// exports.
static const char ZIP_PROGRAM[] = "models/model.json";

struct zip_entry {
  uint64_t begin, size; // its bytes
  uint32_t crc;
};

// Reads n bytes at a place of the file. False: there are none.
typedef bool zip_read(void *file, uint64_t at, void *to, size_t n);

static inline uint64_t zip_number(const unsigned char *at, int bytes)
{
  uint64_t n = 0;
  while (bytes-- > 0) n = n << 8 | at[bytes];
  return n;
}

// The sizes and the offset; those that 32 bits do not hold are in an extra field.
static inline bool zip_long_numbers(zip_read *read, void *file, uint64_t at, uint64_t end,
                                    uint64_t numbers[3])
{
  unsigned char field[4], number[8];
  while (at + sizeof field <= end && read(file, at, field, sizeof field)) {
    const uint64_t next = at + sizeof field + zip_number(field + 2, 2);
    if (zip_number(field, 2) != 1) {
      at = next;
      continue;
    }
    at += sizeof field;
    for (int i = 0; i < 3; i++) {
      if (numbers[i] != UINT32_MAX) continue;
      if (at + sizeof number > next || !read(file, at, number, sizeof number)) return false;
      numbers[i] = zip_number(number, sizeof number);
      at += sizeof number;
    }
    return true;
  }
  return numbers[0] != UINT32_MAX && numbers[1] != UINT32_MAX && numbers[2] != UINT32_MAX;
}

// The entry whose place in the ZIP's directory is `at`, of a file of `size` bytes. False if it is
// damaged, or compressed, or encrypted.
static inline bool zip_entry_at(zip_read *read, void *file, uint64_t size, uint64_t at,
                                struct zip_entry *entry)
{
  enum { CENTRAL = 46, LOCAL = 30 };
  unsigned char central[CENTRAL], local[LOCAL];
  if (!read(file, at, central, CENTRAL) || memcmp(central, "PK\1\2", 4) != 0) return false;
  if (zip_number(central + 8, 2) & 1 || zip_number(central + 10, 2) != 0) return false;
  const uint64_t extra = at + CENTRAL + zip_number(central + 28, 2);
  uint64_t numbers[3] = {zip_number(central + 24, 4), zip_number(central + 20, 4),
                         zip_number(central + 42, 4)};
  if (!zip_long_numbers(read, file, extra, extra + zip_number(central + 30, 2), numbers))
    return false;
  const uint64_t offset = numbers[2];
  if (numbers[0] != numbers[1] || offset > size || !read(file, offset, local, LOCAL) ||
      memcmp(local, "PK\3\4", 4) != 0)
    return false;
  entry->begin = offset + LOCAL + zip_number(local + 26, 2) + zip_number(local + 28, 2);
  entry->size = numbers[0];
  entry->crc = (uint32_t)zip_number(central + 16, 4);
  return entry->begin <= size && entry->size <= size - entry->begin;
}

#endif
