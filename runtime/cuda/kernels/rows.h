// SPDX-License-Identifier: MIT
// Rows by expert between ranks that have some tokens and ranks that have some experts, as in
// cpu/kernels/rows.h. The host does not know the number of rows, so each pair of ranks exchanges a
// slot of so many rows: the most possible, or with a bound so many times those in balance. A rank
// that has more for another rank notes it, and does not send those beyond; the step goes on, with
// numbers of no meaning, and the runtime ends the job.
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include "base/program.h"
#include "tensors/row_bounds.h"

// The parameters of an exchange: the number of rows of `bytes` bytes in a slot; the number of this
// rank's experts; the first expert of each rank; the number of rows that this rank has room for as
// one with experts.
struct row_slots {
  int ranks, here;
  const int *first;
  long most, bytes, room;
  struct row_note note;
};

// Each slot, of `most` rows, has a rank's rows by expert; in `rows` they are by expert, and of each
// by rank. table: [ranks, here], the numbers of rows. A block for each row of a slot.
__global__ static void sort_rows(unsigned short *slots, unsigned short *rows, const int *table,
                                 int ranks, int here, long most, long room, long units, bool back)
{
  const long rank = (long)blockIdx.x / most, row = (long)blockIdx.x % most;
  const int *const own = table + rank * here;
  long before = 0, to = 0;
  int e = 0;
  while (e < here && before + own[e] <= row) before += own[e++];
  if (e == here) return;
  for (long r = 0; r < ranks; r++)
    for (int i = 0; i <= e; i++)
      if (i < e || r < rank) to += table[r * here + i];
  if (to + row - before >= room) return;
  unsigned short *const slot = slots + (long)blockIdx.x * units;
  unsigned short *const place = rows + (to + row - before) * units;
  for (long i = (long)threadIdx.x; i < units; i += 256) {
    if (back)
      slot[i] = place[i];
    else
      place[i] = slot[i];
  }
}

// Copies the rows of this rank's tokens, by expert, to a slot for each rank with experts, `each` of
// them, or back.
__global__ static void cut_rows(unsigned short *slots, unsigned short *rows, const int *counts,
                                int experts, int each, long most, long units, bool back,
                                struct row_note note)
{
  const long rank = (long)blockIdx.x / most, row = (long)blockIdx.x % most;
  long before = 0, has = 0;
  for (long e = 0; e < experts && e < (rank + 1) * each; e++)
    if (e < rank * each)
      before += counts[e];
    else
      has += counts[e];
  if (row == 0 && has > most && threadIdx.x == 0) note_rows(note, has);
  if (row >= has) return;
  unsigned short *const slot = slots + (long)blockIdx.x * units;
  unsigned short *const place = rows + (before + row) * units;
  for (long i = (long)threadIdx.x; i < units; i += 256) {
    if (back)
      place[i] = slot[i];
    else
      slot[i] = place[i];
  }
}

static inline ncclResult_t exchange_counts(const struct row_slots &x, const int *counts, int *table,
                                           ncclComm_t group, cudaStream_t on)
{
  ncclResult_t error = ncclGroupStart();
  for (int r = 0; r < x.ranks && error == ncclSuccess; r++) {
    const size_t there = (size_t)(x.first[r + 1] - x.first[r]);
    if (there) error = ncclSend(counts + x.first[r], there, ncclInt32, r, group, on);
    if (x.here && error == ncclSuccess)
      error = ncclRecv(table + (long)r * x.here, (size_t)x.here, ncclInt32, r, group, on);
  }
  return error == ncclSuccess ? ncclGroupEnd() : error;
}

// sends, gets: whether this rank does, and whether rank r does, by whether it has experts.
static inline ncclResult_t exchange_slots(const struct row_slots &x, const char *from, char *to,
                                          bool to_experts, ncclComm_t group, cudaStream_t on)
{
  const size_t slot = (size_t)(x.most * x.bytes);
  ncclResult_t error = ncclGroupStart();
  for (int r = 0; r < x.ranks && error == ncclSuccess; r++) {
    const bool there = x.first[r + 1] > x.first[r];
    if (to_experts ? there : x.here > 0)
      error = ncclSend(from + (size_t)r * slot, slot, ncclUint8, r, group, on);
    if (error == ncclSuccess && (to_experts ? x.here > 0 : there))
      error = ncclRecv(to + (size_t)r * slot, slot, ncclUint8, r, group, on);
  }
  return error == ncclSuccess ? ncclGroupEnd() : error;
}

// room: for the slots that it sends, and those that it gets. table: of [ranks, here] numbers.
static inline ncclResult_t rows_to_experts(void *out, void *room, int *table, const void *in,
                                           const int *counts, const struct row_slots &x,
                                           ncclComm_t group, cudaStream_t on)
{
  const long slots = x.ranks * x.most;
  char *const sent = (char *)room, *const got = sent + slots * x.bytes;
  ncclResult_t error = exchange_counts(x, counts, table, group, on);
  if (error != ncclSuccess) return error;
  LAUNCH(cut_rows, slots, 256, on)
  ((unsigned short *)sent, (unsigned short *)in, counts, x.first[x.ranks], x.first[1], x.most,
   x.bytes / 2, false, x.note);
  error = exchange_slots(x, sent, got, true, group, on);
  if (error != ncclSuccess || !x.here) return error;
  LAUNCH(sort_rows, slots, 256, on)
  ((unsigned short *)got, (unsigned short *)out, table, x.ranks, x.here, x.most, x.room,
   x.bytes / 2, false);
  return error;
}

static inline ncclResult_t rows_to_tokens(void *out, void *room, int *table, const void *in,
                                          const int *counts, const struct row_slots &x,
                                          ncclComm_t group, cudaStream_t on)
{
  const long slots = x.ranks * x.most;
  char *const sent = (char *)room, *const got = sent + slots * x.bytes;
  ncclResult_t error = exchange_counts(x, counts, table, group, on);
  if (error != ncclSuccess) return error;
  if (x.here) LAUNCH(sort_rows, slots, 256, on)
  ((unsigned short *)sent, (unsigned short *)in, table, x.ranks, x.here, x.most, x.room,
   x.bytes / 2, true);
  error = exchange_slots(x, sent, got, false, group, on);
  if (error != ncclSuccess) return error;
  LAUNCH(cut_rows, slots, 256, on)
  ((unsigned short *)got, (unsigned short *)out, counts, x.first[x.ranks], x.first[1], x.most,
   x.bytes / 2, true, x.note);
  return error;
}

__global__ static void held_rows(int *out, const int *counts, int experts, long room,
                                 struct row_note note)
{
  held_counts(out, counts, experts, room, note);
}

static inline void clamp_to_capacity(int *out, const int *counts, int experts, long room,
                                     struct row_note noted, cudaStream_t on)
{
  LAUNCH(held_rows, 1, 1, on)(out, counts, experts, room, noted);
}

#endif
