/* moves.h: the moves between two layouts: their steps, who holds and gives what, and what that
   takes. */
#ifndef TPGEN_SHARDING_MOVES_H
#define TPGEN_SHARDING_MOVES_H

#include "base/base.h"
#include "ir/ir.h"

enum { MAX_MOVES = 2 * MAX_MESH };
struct moves {
  int n;
  const struct move *move;
  double time;   /* in seconds, by the model of the links (traffic.c) */
  int64_t bytes; /* that the rank which receives most receives */
};

/* A piece of a tensor that one rank gives another, which is the member-th of the group. */
struct piece {
  int member;
  struct part part; /* `first` counts from where the part of the rank that is asked begins */
};

/* From one layout to another, strided shards too: in legs, on each of which the
   tensor is seen with its dimensions taken apart so that all its shards are plain. How many; NONE
   where that gives more dimensions than a tensor has. */
enum { MAX_LEGS = 4 };
struct leg {
  struct shape whole; /* taken apart */
  const struct moves *moves;
};

/* The bytes that the rank sends which sends most, and those of the one that receives most, in some
   of the graph's operations, so many times each (NULL: once); or in one. */
struct busiest {
  int64_t sent, received;
};

static inline int64_t lesser(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t greater(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* What is on a dimension of the mesh: the dimension of the tensor that it cuts, or one of these.
   OTHER: pending, of another reduction than the source's. */
enum { WHOLE = -1, PENDING = -2, OTHER = -3 };

/* A layout of plain shards, told briefly. `turn`: as how manieth it cuts that dimension; else 0. So
   layouts that mean the same are the same bytes. */
struct compact_layout {
  int8_t at[MAX_MESH], turn[MAX_MESH];
};

/* What two layouts have that is not told of them: which reductions PENDING and OTHER stand for; and
   what stays as it is, the cuts of dimensions that are cut in strides. There the compact layout
   says WHOLE, and such a dimension of the mesh is taken to have one rank. */
struct fixed_part {
  enum reduction pending, other;
  unsigned fixed, fixed_dims; /* a bit for each dimension of the mesh, and of the tensor */
  struct layout layout;       /* `fixed`: what is there */
};

struct move_step {
  enum op_kind kind;
  int n, dim[MAX_MESH]; /* in the order of the group */
};

/* A step along one dimension of the mesh. */
struct leap {
  enum op_kind kind;
  int along, before; /* before: what was on that dimension */
  struct compact_layout after;
};
/* Steps along one dimension of the mesh each, and where they have come to. */
struct walk {
  int n;
  struct move *move; /* has room for MAX_MOVES; or NULL: */
  struct leap *leap; /* so has this */
  struct compact_layout now;
  const struct fixed_part *fixed_part;
};

/* What is moved, and on what mesh: of what stays as it is, the part of one rank, without the
   dimensions of the mesh over which it is cut. A tier is the links of one bandwidth; tier 0 is the
   slowest. `sampled ranks` are the ranks that are looked at: all, where these are not too many. */
struct world {
  struct mesh given, mesh; /* the graph's; without what is fixed */
  unsigned fixed;
  struct shape whole;
  int64_t bytes; /* of an element */
  int number;    /* those in which other sampled ranks are looked at have another one */
  int ranks, sampled_ranks;
  int places[MAX_MESH]; /* of sampled ranks along each dimension of the mesh; the last's come first
                         */
  int (*coordinate)[MAX_MESH]; /* by sampled rank */
  int tiers, tier[MAX_MESH];
  double bandwidth[MAX_MESH]; /* by tier */
  double latency[MAX_MESH];   /* by dimension of the mesh */
};

enum { MAX_SEATS = 32, MANY_RANKS = 256 };

/* What a rank holds: elements first <= i < last of each dimension. */
struct box {
  int64_t first[MAX_DIMS], last[MAX_DIMS];
};

/* The cuts of a layout, one after the other. */
struct cut_list {
  int n;
  struct {
    int dim, by;
  } at[MAX_MESH];
};

/* What a rank that has so many elements receives as the index-th of n in an all_reduce. */
static inline int64_t received_in_all_reduce(int64_t has, int n, int index)
{
  int64_t part = chunk_size(has, n, index);
  return has - part + part * (n - 1);
}

/* What a member has of a collective before and after; see collectives.h. */
struct share {
  int64_t n, has, gets, kept;
  int member;
};

/* A step, with what every sampled rank holds before and after it. */
struct stage {
  const struct move_step *step;
  const struct compact_layout *from, *to;
  const struct box *has, *gets;
};
/* What it moves, in elements. */
struct traffic {
  int64_t *sent, *got; /* by tier and sampled rank: [tier * world.sampled ranks + sampled rank] */
  int64_t *received;   /* by sampled rank, over all links */
  int64_t *copied;     /* by sampled rank: read and written within the rank */
  bool one_to_one;     /* nobody gives to two, or gets from two */
};

/* Memory that is used again: what it held before is lost. All zeros. */
struct scratch {
  const struct graph *of;
  size_t size;
  void *at;
};

/* One of those that meet in a group. */
struct member {
  int coordinate[MAX_MESH];              /* on the dimensions of the group */
  int cell;                              /* the first member that holds the same */
  struct box has, gets;                  /* of what the group shares */
  int64_t load;                          /* the elements that it sends; */
  int64_t sent[MAX_MESH], got[MAX_MESH]; /* by tier */
  int gives, gets_from;                  /* to and from how many others */
};
struct given {
  int from, to;
};
/* Who gives what to whom. */
struct deal {
  const struct move_step *step;
  struct shape whole; /* what the group shares */
  int n;
  struct member *member; /* room for n of each, zero */
  int holders, *holder;  /* of what the first holds; of what others hold as many further */
  bool gives_runs, gets_runs, one_to_one;
  bool listed; /* the pieces are asked for: for each receiver in turn */
  int ngiven, room;
  struct given *given;
};

enum { BIG_GROUP = 64 };

/* A value's dimensions, some of them taken apart into factors. */
struct factors {
  struct shape shape;                     /* a factor each */
  int of[MAX_DIMS + 2 * MAX_MESH];        /* the dimension that it is of */
  int64_t outer[MAX_DIMS + 2 * MAX_MESH]; /* how much of that dimension is outside it */
};

/* A redistribution goes from stop to stop. Between two of them every dimension comes apart
   alike. */
enum { MAX_STOPS = MAX_LEGS + 1 };

/* Room that is used again and again, by what for. */
enum { MEMBERS, PIECES, STARTS, ROOMS };

/* What holds of an exchange on all ranks, found out once. */
struct traits {
  const struct exchange *of;
  bool gives_runs, gets_runs, permutes;
};

#endif
