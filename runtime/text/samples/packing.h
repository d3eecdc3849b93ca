// SPDX-License-Identifier: MIT
// Best fit decreasing, as TRL packs by default: the longest first, each into the sample whose room
// it leaves the least of.
#ifndef TEXT_PACKING_H
#define TEXT_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Gives each of the `count` texts a sample: in[i], counted from 0 in the order of their first
// texts. length[i]: from 1 to `room` tokens; 0: it gets no sample, which is SIZE_MAX. Texts of one
// sample stay in their order. *samples gets their number. False if out of memory.
bool pack_texts(const uint32_t *length, size_t count, uint32_t room, size_t *in, size_t *samples);

#endif
