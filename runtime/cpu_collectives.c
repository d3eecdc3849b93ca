// Collectives of the CPU target that are quicker than MPI's own where much is moved.
#include <stdbool.h>
#include <string.h>
#include "program.h"

// What is moved at a time, in bytes: it is still in a core's cache when it is added. Ranks wait for
// each other at every piece, which costs little where each has a core.
enum { PIECE = 1 << 20 };

// A tag that no other message in a group has.
enum { TAG = 1 };

// A rank's place in a group.
struct among {
  MPI_Comm group;
  int place, members;
};

// What is the same of all parts: a piece of n elements.
struct piece_of_parts {
  const char *in; // where it is in the first member's part
  size_t part;    // from there to where it is in the next one's, in bytes
  char *sum;      // where that of this rank's part comes to lie
  int n;
};

// Each sends the piece to the member behind it, then to the one behind that, and adds what comes:
// no two send to the same one at a time, and what is added is added in the same order every time.
static int reduce_pieces(struct among of, struct piece_of_parts p, MPI_Datatype type, MPI_Op op)
{
  static char room[PIECE];
  const char *own = p.in + (size_t)of.place * p.part;
  for (int step = 1; step < of.members; step++) {
    const int to = (of.place + step) % of.members;
    const int from = (of.place + of.members - step) % of.members;
    // What comes first may come where the sum will be, and be what the rank's own is added to.
    const bool begins = step == 1 && own != p.sum;
    int error = MPI_Sendrecv(p.in + (size_t)to * p.part, p.n, type, to, TAG, begins ? p.sum : room,
                             p.n, type, from, TAG, of.group, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS) error = MPI_Reduce_local(begins ? own : room, p.sum, p.n, type, op);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm group)
{
  struct among of = {.group = group};
  int bytes, error = MPI_Type_size(type, &bytes);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(group, &of.place);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(group, &of.members);
  if (error != MPI_SUCCESS) return error;
  const bool in_place = in == MPI_IN_PLACE;
  const size_t part = (size_t)n * (size_t)bytes;
  const char *from = in_place ? out : in;
  char *sum = in_place ? (char *)out + (size_t)of.place * part : out;
  if (of.members == 1 && !in_place) memcpy(out, in, part);
  const int most = PIECE / bytes;
  for (int first = 0; first < n && error == MPI_SUCCESS; first += most) {
    const size_t at = (size_t)first * (size_t)bytes;
    const int some = n - first < most ? n - first : most;
    error = reduce_pieces(of, (struct piece_of_parts){from + at, part, sum + at, some}, type, op);
  }
  if (error == MPI_SUCCESS && sum != out) memcpy(out, sum, part);
  return error;
}
