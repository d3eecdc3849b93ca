// SPDX-License-Identifier: MIT
// Rows by expert between ranks that have some tokens and ranks that have some experts.
//
// The rows of a rank with tokens are by expert, and so by the rank that has the expert; counts[e]
// is their number there. The rows that a rank with experts gets are by rank, and of each by expert:
// they go to their places, by expert and of each by rank. All ranks first exchange their counts. If
// some rank has too little room for its rows, no rank sends any: the step will end before its
// update.
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "base/program.h"
#include "tensors/row_bounds.h"

#include <string.h>

// The experts of each member: the first of each, and their number at the end. room: the number of
// rows that each member has room for; NULL: for all.
struct row_ranks {
  const int *first;
  const long *room;
  struct row_note note;
};

struct row_exchange {
  int members, place, experts;
  const int *first;
  int *table;                         // [members, experts]: the rows of each member for each
  int *give, *give_at, *get, *get_at; // in rows, by member
};

// The number of rows that member r has for the experts of another.
static inline long rows_from(const struct row_exchange *x, int r, int with_experts)
{
  const int *const own = x->table + (long)r * x->experts;
  long n = 0;
  for (int e = x->first[with_experts]; e < x->first[with_experts + 1]; e++) n += own[e];
  return n;
}

// The numbers of rows that this rank exchanges with each member: as one with tokens, and as one
// with experts.
static inline void count_rows(const struct row_exchange *x, int *tokens, int *tokens_at,
                              int *experts, int *experts_at)
{
  int sent = 0, got = 0;
  for (int r = 0; r < x->members; r++) {
    tokens[r] = (int)rows_from(x, x->place, r), tokens_at[r] = sent;
    experts[r] = (int)rows_from(x, r, x->place), experts_at[r] = got;
    sent += tokens[r], got += experts[r];
  }
}

// The number of rows that the experts of a member get.
static inline long rows_to(const struct row_exchange *x, int member)
{
  long n = 0;
  for (int r = 0; r < x->members; r++) n += rows_from(x, r, member);
  return n;
}

// Whether each member has room for its rows; all members find the same.
static inline bool all_have_room(const struct row_exchange *x, const struct row_ranks *of)
{
  bool fits = true;
  for (int q = 0; q < x->members && of->room; q++) fits &= rows_to(x, q) <= of->room[q];
  if (fits) return true;
  if (rows_to(x, x->place) > of->room[x->place])
    note_rows(of->note, rows_to(x, x->place));
  else
    set_note(of->note, ANOTHER_RANK);
  return false;
}

// work has room for members * (experts + 4) numbers.
static inline int open_row_exchange(struct row_exchange *x, const int *counts, const int *first,
                                    int *work, MPI_Comm group)
{
  int error = MPI_Comm_size(group, &x->members);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(group, &x->place);
  if (error != MPI_SUCCESS) return error;
  const int n = x->members;
  x->first = first;
  x->experts = first[n];
  x->give = work, x->give_at = work + n, x->get = work + 2L * n, x->get_at = work + 3L * n;
  x->table = work + 4L * n;
  return MPI_Allgather(counts, x->experts, MPI_INT, x->table, x->experts, MPI_INT, group);
}

// Copies rows that are sorted by rank to their places by expert, or back.
static inline void sort_rows(const struct row_exchange *x, char *by_rank, char *by_expert,
                             size_t row, bool back)
{
  const int begin = x->first[x->place], end = x->first[x->place + 1];
  size_t to = 0;
  for (int e = begin; e < end; e++) {
    size_t from = 0;
    for (int r = 0; r < x->members; r++) {
      const int *const own = x->table + (long)r * x->experts;
      for (int i = begin; i < e; i++) from += (size_t)own[i] * row;
      const size_t n = (size_t)own[e] * row;
      if (n && back) memcpy(by_rank + from, by_expert + to, n);
      if (n && !back) memcpy(by_expert + to, by_rank + from, n);
      to += n;
      for (int i = e; i < end; i++) from += (size_t)own[i] * row;
    }
  }
}

// Sends the rows of this rank's tokens to the ranks with their experts. A row has so many bytes.
static inline int rows_to_experts(void *out, void *room, int *work, const void *in,
                                  const int *counts, const struct row_ranks *of, long bytes,
                                  MPI_Comm group)
{
  struct row_exchange x;
  int error = open_row_exchange(&x, counts, of->first, work, group);
  if (error != MPI_SUCCESS || !all_have_room(&x, of)) return error;
  count_rows(&x, x.give, x.give_at, x.get, x.get_at);
  error = alltoall_rows(in, x.give, x.give_at, room, x.get, x.get_at, bytes, group);
  if (error == MPI_SUCCESS) sort_rows(&x, room, out, (size_t)bytes, false);
  return error;
}

// Sends the rows of this rank's experts back to the ranks with their tokens.
static inline int rows_to_tokens(void *out, void *room, int *work, void *in, const int *counts,
                                 const struct row_ranks *of, long bytes, MPI_Comm group)
{
  struct row_exchange x;
  int error = open_row_exchange(&x, counts, of->first, work, group);
  if (error != MPI_SUCCESS || !all_have_room(&x, of)) return error;
  count_rows(&x, x.get, x.get_at, x.give, x.give_at);
  sort_rows(&x, room, in, (size_t)bytes, true);
  return alltoall_rows(room, x.give, x.give_at, out, x.get, x.get_at, bytes, group);
}

static inline void clamp_to_capacity(int *out, const int *counts, int experts, long room,
                                     struct row_note note)
{
  held_counts(out, counts, experts, room, note);
}

#endif
