// SPDX-License-Identifier: MIT
// Collectives of the CPU target that are faster than MPI's own for large data.
#include <stdbool.h>
#include <string.h>
#include "base/program.h"
#include "cpu/kernels/segments.h"

#ifdef TPGEN_MIXED
#include "cpu/collectives_by_mpi.h"
#define reduce_scatter  reduce_scatter_by_mpi
#define gather_segments gather_segments_by_mpi
#define reduce_segments reduce_segments_by_mpi
#define alltoall_rows   alltoall_rows_by_mpi
#endif

// The bytes that are moved at a time: they are still in a core's cache when they are added. Ranks
// wait for each other at every piece, which costs little if each has a core.
enum { PIECE = 1 << 20 };

// A tag that no other message in a group uses.
enum { TAG = 1 };

// A rank's position in a group.
struct among {
  MPI_Comm group;
  int place, members;
};

// A piece of n elements, at the same place in all parts.
struct piece_of_parts {
  const char *in; // its address in the first member's part
  size_t part;    // the distance to the next member's part, in bytes
  char *sum;      // the address of the sum for this rank's part
  int n;
};

// In each step a rank sends the piece to the next member in turn, and adds what it receives: no two
// ranks send to the same one at a time, and the order of addition is always the same.
static int reduce_pieces(struct among of, struct piece_of_parts p, MPI_Datatype type, MPI_Op op)
{
  static char room[PIECE];
  const char *own = p.in + (size_t)of.place * p.part;
  for (int step = 1; step < of.members; step++) {
    const int to = (of.place + step) % of.members;
    const int from = (of.place + of.members - step) % of.members;
    // The first message may be received at the address of the sum; the rank's own piece is then
    // added to it.
    const bool begins = step == 1 && own != p.sum;
    int error = MPI_Sendrecv(p.in + (size_t)to * p.part, p.n, type, to, TAG, begins ? p.sum : room,
                             p.n, type, from, TAG, of.group, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS) error = MPI_Reduce_local(begins ? own : room, p.sum, p.n, type, op);
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

static int place_among(MPI_Comm group, struct among *of)
{
  of->group = group;
  const int error = MPI_Comm_rank(group, &of->place);
  return error == MPI_SUCCESS ? MPI_Comm_size(group, &of->members) : error;
}

// Each member's part has n elements of `bytes` bytes.
static int reduce_parts(struct among of, const char *in, char *sum, int n, int bytes,
                        MPI_Datatype type, MPI_Op op)
{
  const size_t part = (size_t)n * (size_t)bytes;
  const int most = PIECE / bytes;
  int error = MPI_SUCCESS;
  if (of.members == 1 && sum != in) memcpy(sum, in, part);
  for (int first = 0; first < n && error == MPI_SUCCESS; first += most) {
    const size_t at = (size_t)first * (size_t)bytes;
    const int some = n - first < most ? n - first : most;
    error = reduce_pieces(of, (struct piece_of_parts){in + at, part, sum + at, some}, type, op);
  }
  return error;
}

int reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm group)
{
  struct among of;
  int bytes, error = MPI_Type_size(type, &bytes);
  if (error == MPI_SUCCESS) error = place_among(group, &of);
  if (error != MPI_SUCCESS) return error;
  const bool in_place = in == MPI_IN_PLACE;
  const size_t part = (size_t)n * (size_t)bytes;
  const char *from = in_place ? out : in;
  char *sum = in_place ? (char *)out + (size_t)of.place * part : out;
  error = reduce_parts(of, from, sum, n, bytes, type, op);
  if (error == MPI_SUCCESS && sum != out) memcpy(out, sum, part);
  return error;
}

// ---- buckets: several values in one message -----------------------------------------------------

// The address of a value's parts one after the other: in the value, if they are contiguous there,
// else in `room`.
static char *parts_at(const struct segment *p, void *room)
{
  return p->rows == 1 ? p->at : room;
}

// Copies from there to the value, or back.
static void copy_parts(struct segment p, long bytes, void *room, bool in)
{
  const long part = p.rows * p.run;
  if (p.rows == 1) return;
  p.place = 0;
  copy_segments((struct segment_buffer){room, bytes, part}, 1, &p, in);
}

int gather_segments(const void *own, void *room, int n, const struct segment *p, MPI_Datatype type,
                    MPI_Comm group)
{
  int bytes, error = MPI_Type_size(type, &bytes);
  for (int k = 0; k < n && error == MPI_SUCCESS; k++) {
    const int part = (int)(p[k].rows * p[k].run);
    error = MPI_Allgather((const char *)own + p[k].place * bytes, part, type, parts_at(&p[k], room),
                          part, type, group);
    if (error == MPI_SUCCESS) copy_parts(p[k], bytes, room, false);
  }
  return error;
}

int reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                    MPI_Op op, MPI_Comm group)
{
  struct among of;
  int bytes, error = MPI_Type_size(type, &bytes);
  if (error == MPI_SUCCESS) error = place_among(group, &of);
  for (int k = 0; k < n && error == MPI_SUCCESS; k++) {
    copy_parts(p[k], bytes, room, true);
    error = reduce_parts(of, parts_at(&p[k], room), (char *)own + p[k].place * bytes,
                         (int)(p[k].rows * p[k].run), bytes, type, op);
  }
  return error;
}

// ---- rows ---------------------------------------------------------------------------------------

int alltoall_rows(const void *in, const int *n, const int *first, void *out, const int *n_out,
                  const int *first_out, long bytes, MPI_Comm group)
{
  MPI_Datatype row;
  int error = MPI_Type_contiguous((int)bytes, MPI_BYTE, &row);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Type_commit(&row);
  if (error == MPI_SUCCESS)
    error = MPI_Alltoallv(in, n, first, row, out, n_out, first_out, row, group);
  MPI_Type_free(&row);
  return error;
}
