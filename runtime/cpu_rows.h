// Rows by expert between ranks that have some tokens and ranks that have some experts.
//
// The rows of a rank with tokens stand by expert, and so by the rank that has the expert; there
// counts[e] tells how many. What a rank with experts gets stands by rank, and of each by expert: it
// goes to its place, by expert and of each by rank. Ranks with tokens first tell those with experts
// their counts, in both directions.
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "program.h"

#include <string.h>

// The members of the group, and the first expert of each, with all experts' number at the end.
struct row_exchange {
  int members, place, here; // here: this rank's experts
  const int *first;
  int *table;                         // [members, here]: how many rows each member has of each
  int *give, *give_at, *get, *get_at; // by member
};

// work has room for members * (experts + 4) numbers.
static inline int open_row_exchange(struct row_exchange *x, const int *counts, const int *first,
                                    int *work, MPI_Comm group)
{
  int error = MPI_Comm_size(group, &x->members);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(group, &x->place);
  if (error != MPI_SUCCESS) return error;
  const int n = x->members;
  x->first = first;
  x->here = first[x->place + 1] - first[x->place];
  x->give = work, x->give_at = work + n, x->get = work + 2L * n, x->get_at = work + 3L * n;
  x->table = work + 4L * n;
  for (int r = 0; r < n; r++) {
    x->give[r] = first[r + 1] - first[r];
    x->give_at[r] = first[r];
    x->get[r] = x->here;
    x->get_at[r] = r * x->here;
  }
  return MPI_Alltoallv(counts, x->give, x->give_at, MPI_INT, x->table, x->get, x->get_at, MPI_INT,
                       group);
}

// How many elements of rows this rank exchanges with each member: as a rank with tokens, and as one
// with experts.
static inline void count_rows(const struct row_exchange *x, const int *counts, int width,
                              int *tokens, int *tokens_at, int *experts, int *experts_at)
{
  for (int r = 0, sent = 0, got = 0; r < x->members; r++) {
    int out = 0, in = 0;
    for (int e = x->first[r]; e < x->first[r + 1]; e++) out += counts[e];
    for (int e = 0; e < x->here; e++) in += x->table[(long)r * x->here + e];
    tokens[r] = out * width, tokens_at[r] = sent * width;
    experts[r] = in * width, experts_at[r] = got * width;
    sent += out, got += in;
  }
}

// Copies rows that stand by rank to their places by expert, or back.
static inline void sort_rows(const struct row_exchange *x, char *by_rank, char *by_expert,
                             size_t row, bool back)
{
  size_t to = 0;
  for (int e = 0; e < x->here; e++) {
    size_t from = 0;
    for (int r = 0; r < x->members; r++) {
      const int *const table = x->table + (long)r * x->here;
      for (int i = 0; i < e; i++) from += (size_t)table[i] * row;
      const size_t n = (size_t)table[e] * row;
      if (n && back) memcpy(by_rank + from, by_expert + to, n);
      if (n && !back) memcpy(by_expert + to, by_rank + from, n);
      to += n;
      for (int i = e; i < x->here; i++) from += (size_t)table[i] * row;
    }
  }
}

// Sends the rows of this rank's tokens to the ranks with their experts. A row has `width` elements.
static inline int rows_to_experts(void *out, void *room, int *work, const void *in,
                                  const int *counts, const int *first, int width, MPI_Datatype type,
                                  MPI_Comm group)
{
  struct row_exchange x;
  int bytes, error = open_row_exchange(&x, counts, first, work, group);
  if (error == MPI_SUCCESS) error = MPI_Type_size(type, &bytes);
  if (error != MPI_SUCCESS) return error;
  count_rows(&x, counts, width, x.give, x.give_at, x.get, x.get_at);
  error = MPI_Alltoallv(in, x.give, x.give_at, type, room, x.get, x.get_at, type, group);
  if (error == MPI_SUCCESS) sort_rows(&x, room, out, (size_t)width * (size_t)bytes, false);
  return error;
}

// Sends the rows of this rank's experts back to the ranks with their tokens.
static inline int rows_to_tokens(void *out, void *room, int *work, void *in, const int *counts,
                                 const int *first, int width, MPI_Datatype type, MPI_Comm group)
{
  struct row_exchange x;
  int bytes, error = open_row_exchange(&x, counts, first, work, group);
  if (error == MPI_SUCCESS) error = MPI_Type_size(type, &bytes);
  if (error != MPI_SUCCESS) return error;
  count_rows(&x, counts, width, x.get, x.get_at, x.give, x.give_at);
  sort_rows(&x, room, in, (size_t)width * (size_t)bytes, true);
  return MPI_Alltoallv(room, x.give, x.give_at, type, out, x.get, x.get_at, type, group);
}

#endif
