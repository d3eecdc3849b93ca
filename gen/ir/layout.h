/* layout.h: the mesh, shapes, and how a tensor lies on the ranks. */
#ifndef TPGEN_IR_LAYOUT_H
#define TPGEN_IR_LAYOUT_H

#include "base/base.h"

/* What a rank computes with: device.c. */
enum arithmetic { IN_FLOAT32, IN_TFLOAT32, IN_BFLOAT16 };
struct device {
  const char *name; /* "H100"; NULL: not told */
  double flops[3];  /* multiplications and additions a second, by enum arithmetic: the peak */
  double bandwidth; /* bytes a second that its memory carries */
  int processors;   /* that share a product; 0: not told */
};

struct mesh {
  int ndim;
  const char *name[MAX_MESH];
  int size[MAX_MESH];
  double bandwidth[MAX_MESH];  /* bytes a second that a rank's link along it carries; 0: not told */
  double latency[MAX_MESH];    /* seconds that a collective over it takes besides; 0: not told */
  const char *whole[MAX_MESH]; /* of the two that the plan's dimension was split in: its name */
  int64_t memory;              /* bytes that a rank has; 0: not told */
  struct device device;
  int line;
};

enum placement_kind { REPLICATE, SHARD, PARTIAL };
enum reduction { SUM, MAX, MIN };

/* On one dimension of the mesh. SHARD: the ranks along it hold consecutive parts of dimension
   `dim`, cut as torch.chunk does. Where `outer` is more than 1 the shard is strided: the dimension
   is seen as [outer, size / outer], and the second of these is cut: what a cut dimension becomes
   that is merged with one outside it. PARTIAL: the value is the `reduction` of what they hold.
   Eight bytes: every value and operation holds six of them. */
struct placement {
  enum placement_kind kind : 4;
  int dim : 6;
  enum reduction reduction : 4;
  int turn : 6;       /* SHARD: see struct layout */
  int64_t outer : 44; /* 0 and 1: a plain shard */
};

/* Several mesh dimensions on one tensor dimension cut it one after the other, the first one's parts
   are cut again by the second: in the order of their turns, and where these are equal in that of
   the mesh. */
struct layout {
  struct placement on[MAX_MESH];
};

struct shape {
  int ndim;
  int64_t size[MAX_DIMS];
};

/* A plan can't name F64: the norm of the gradients is summed in it. */
enum type { F32, BF16, I32, I64, BOOL, F64 };

struct part {
  struct shape shape;
  int64_t first[MAX_DIMS]; /* where it begins in the whole */
};

/* Ranks that differ in the mesh dimensions `dim` alone meet in a group: "tp", "dp_tp". Its members
   stand in the order of these: those that differ in the last of them follow one another. */
struct group {
  int n, dim[MAX_MESH];
  unsigned dims; /* a bit for each */
  const char *name;
};

/* The slowest of the group's links. */
struct link {
  double bandwidth, latency;
};

#endif
