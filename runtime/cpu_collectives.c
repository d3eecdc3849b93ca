// Collectives of the CPU target that are quicker than MPI's own where much is moved.
#include <stdbool.h>
#include <string.h>
#include "cpu_parcels.h"
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

static int place_among(MPI_Comm group, struct among *of)
{
  of->group = group;
  const int error = MPI_Comm_rank(group, &of->place);
  return error == MPI_SUCCESS ? MPI_Comm_size(group, &of->members) : error;
}

// Each member's part has n elements, of so many bytes each.
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

// Where the parts of a value lie one after the other: in itself, if it has them so, else here.
static char *parts_at(const struct parcel *p, void *room)
{
  return p->rows == 1 ? p->at : room;
}

// From there to the value, or back.
static void copy_parts(struct parcel p, long bytes, void *room, bool in)
{
  const long part = p.rows * p.run;
  if (p.rows == 1) return;
  p.place = 0;
  copy_parcels((struct parcel_buffer){room, bytes, part}, 1, &p, in);
}

int gather_parcels(const void *own, void *room, int n, const struct parcel *p, MPI_Datatype type,
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

int reduce_parcels(void *room, void *own, int n, const struct parcel *p, MPI_Datatype type,
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
