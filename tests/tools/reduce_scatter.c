/* The runtime's collectives against MPI's: started by mpirun on some ranks, this reduces parts of
   several sizes by sum, maximum and minimum, out of place and in place; and repeats it, to the same
   bits. Then gathers and sums several values in one buffer's chunks, and compares with copies into
   and out of the buffer. The numbers are integers, whose sum does not depend on the order. */
#include "cpu/kernels/segments.h"
#include "base/program.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300007, RANKS = 4 };

static int place, ranks;
static unsigned char given[MOST * RANKS * sizeof(double)], whole[sizeof given];
static unsigned char expected[MOST * sizeof(double)], got[sizeof expected];

static void fill(MPI_Datatype type, int n)
{
  for (int i = 0; i < n; i++) {
    int x = (i * 7 + place * 1009 + i % (place + 2)) % 2003 - 1001;
    if (type == MPI_FLOAT) ((float *)given)[i] = (float)x;
    if (type == MPI_DOUBLE) ((double *)given)[i] = x;
    if (type == MPI_INT32_T) ((int32_t *)given)[i] = x;
  }
}

static void check(bool same, const char *what, int n)
{
  if (same) return;
  fprintf(stderr, "rank %d of %d: parts of %d elements %s: another result than MPI's\n", place,
          ranks, n, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void compare(MPI_Datatype type, MPI_Op op, int n)
{
  int each;
  MPI_Type_size(type, &each);
  size_t part = (size_t)n * (size_t)each;
  fill(type, n * ranks);
  MPI_Reduce_scatter_block(given, expected, n, type, op, MPI_COMM_WORLD);
  for (int again = 0; again < 2; again++) {
    memset(got, 0x55, sizeof got);
    int error = reduce_scatter(given, got, n, type, op, MPI_COMM_WORLD);
    check(error == MPI_SUCCESS && !memcmp(got, expected, part), "to elsewhere", n);
    check(part == sizeof got || got[part] == 0x55, "written behind", n);
  }
  memcpy(whole, given, sizeof whole);
  int error = reduce_scatter(MPI_IN_PLACE, whole, n, type, op, MPI_COMM_WORLD);
  check(error == MPI_SUCCESS && !memcmp(whole, expected, part), "in place", n);
}

enum { SEGMENTS = 5 };

/* Segments of so many rows, whose parts have so many elements; one after the other. */
static int make_segments(struct segment *p, float *at)
{
  static const long rows[SEGMENTS] = {1, 1, 3, 1, 64}, run[SEGMENTS] = {7, 140000, 501, 1, 33};
  long next = 0;
  for (int k = 0; k < SEGMENTS; k++) {
    p[k] = (struct segment){at, sizeof *at, next, ranks, rows[k], run[k], ranks * run[k]};
    next += rows[k] * run[k];
    at += ranks * rows[k] * run[k];
  }
  return (int)next;
}

static void compare_segments(void)
{
  enum { ROOM = 150000 };
  static float room[ROOM * RANKS], one[ROOM * RANKS], other[ROOM * RANKS], sums[ROOM], own[ROOM];
  struct segment here[SEGMENTS], there[SEGMENTS];
  const int chunk = make_segments(here, one);
  const size_t part = (size_t)chunk * sizeof(float);
  make_segments(there, other);
  fill(MPI_FLOAT, chunk);
  MPI_Allgather(given, chunk, MPI_FLOAT, room, chunk, MPI_FLOAT, MPI_COMM_WORLD);
  unpack_segments(room, sizeof(float), chunk, SEGMENTS, here);
  memset(room, 0x55, sizeof room);
  int error = gather_segments(given, room, SEGMENTS, there, MPI_FLOAT, MPI_COMM_WORLD);
  check(error == MPI_SUCCESS && !memcmp(one, other, sizeof one), "gathered by segments", chunk);

  pack_segments(room, sizeof(float), chunk, SEGMENTS, here);
  for (int i = 0; i < chunk * ranks; i++) room[i] *= (float)(place + 1);
  for (int i = 0; i < chunk * ranks; i++) other[i] *= (float)(place + 1);
  MPI_Reduce_scatter_block(room, sums, chunk, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  memset(room, 0x55, sizeof room);
  error = reduce_segments(room, own, SEGMENTS, there, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  check(error == MPI_SUCCESS && !memcmp(sums, own, part), "summed by segments", chunk);
  check(chunk == ROOM || own[chunk] == 0, "written behind", chunk);
}

int main(int argc, char **argv)
{
  static const int sizes[] = {1, 7, 131072, 131073, 262144, MOST};
  MPI_Init(&argc, &argv);
  const MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_INT32_T};
  const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_MIN};
  MPI_Comm_rank(MPI_COMM_WORLD, &place);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > RANKS) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int t = 0; t < 3; t++)
      for (int o = 0; o < 3; o++) compare(types[t], ops[o], sizes[s]);
  compare_segments();
  MPI_Finalize();
  return 0;
}
