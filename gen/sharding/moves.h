/* moves.h: the moves between two layouts: their steps, the pieces that ranks hold and send, and
   their cost. */
#ifndef TPGEN_SHARDING_MOVES_H
#define TPGEN_SHARDING_MOVES_H

#include "util/util.h"
#include "ir/ir.h"

enum { MAX_MOVES = 2 * MAX_MESH };
struct moves {
  int n;
  const struct move *move;
  double time;   /* in seconds, by the model of the links (traffic.c) */
  int64_t bytes; /* received by the rank that receives most */
};

/* A piece of a tensor that one rank sends to another, which is the member-th of the group. */
struct piece {
  int member;
  struct part part; /* `first` counts from the start of the queried rank's part */
};

/* The legs from one layout to another, strided shards too: in each leg the tensor is viewed with
   its dimensions split so that all its shards are plain. Returns their number; NONE if the view
   would have too many dimensions. */
enum { MAX_LEGS = 4 };
struct leg {
  struct shape whole; /* after the split */
  const struct moves *moves;
};

/* The bytes that the busiest sender sends, and those that the busiest receiver receives: in
   operations of the graph, each so many times (NULL: once), or in one operation. */
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

/* The state of a mesh dimension: the tensor dimension that it cuts, or one of these. OTHER:
   pending, with another reduction than the source's. */
enum { WHOLE = -1, PENDING = -2, OTHER = -3 };

/* A layout of plain shards in compact form. `turn`: the position among the cuts of that dimension;
   else 0. `shift`: of a cut. Equal layouts are equal bytes. */
struct compact_layout {
  int8_t at[MAX_MESH], turn[MAX_MESH];
  uint8_t shift[MAX_MESH];
};

/* What compact layouts leave out: the reductions of PENDING and OTHER; and the cuts of strided
   dimensions, and sums in time, which stay. There the compact layout has WHOLE, and such a mesh
   dimension counts as one rank. */
struct fixed_part {
  enum reduction pending, other;
  unsigned fixed, fixed_dims; /* a bit for each dimension of the mesh, and of the tensor */
  struct layout layout;       /* `fixed`: their placements */
};

struct move_step {
  enum op_kind kind;
  int n, dim[MAX_MESH];      /* in the order of the group */
  int idle_first, idle_last; /* as of struct move */
};

/* A step along one dimension of the mesh. */
struct leap {
  enum op_kind kind;
  int along, before; /* before: the state of that dimension */
  struct compact_layout after;
};
/* Steps along single dimensions of the mesh, and the layout that they have reached. */
struct walk {
  int n;
  struct move *move; /* room for MAX_MOVES; or NULL */
  struct leap *leap; /* likewise */
  struct compact_layout now;
  const struct fixed_part *fixed_part;
};

/* The tensor to move, and the mesh: of what stays fixed, one rank's part, without the mesh
   dimensions over which it is cut. A tier is the links of one bandwidth; tier 0 is the slowest.
   `sampled ranks` are the ranks that are simulated: all, unless there are too many. */
struct world {
  struct mesh given, mesh; /* the graph's; without fixed dimensions */
  unsigned fixed;
  struct shape whole;
  int64_t bytes; /* of an element */
  int number;    /* identifies the set of sampled ranks */
  int ranks, sampled_ranks;
  int places[MAX_MESH];        /* sampled ranks by mesh dimension; the last varies fastest */
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

/* The cuts of a layout, in order. */
struct cut_list {
  int n;
  struct {
    int dim, by, shift;
  } at[MAX_MESH];
};

/* The elements that rank `index` of n, which has `has` of them, receives in an all_reduce. */
static inline int64_t received_in_all_reduce(int64_t has, int n, int index)
{
  int64_t part = chunk_size(has, n, index);
  return has - part + part * (n - 1);
}

/* A member's part before and after a collective; see collectives.h. */
struct share {
  int64_t n, has, gets, kept;
  int member;
};

/* A step, and the boxes of every sampled rank before and after it. */
struct stage {
  const struct move_step *step;
  const struct compact_layout *from, *to;
  const struct box *has, *gets;
};
/* The elements that a step moves. */
struct traffic {
  int64_t *sent, *got; /* by tier and sampled rank: [tier * world.sampled ranks + sampled rank] */
  int64_t *received;   /* by sampled rank, over all links */
  int64_t *copied;     /* by sampled rank: read and written within the rank */
  bool one_to_one;     /* no rank sends to two, or receives from two */
};

/* Reused memory: its old content is lost. All zeros. */
struct scratch {
  const struct graph *of;
  size_t size;
  void *at;
};

/* A member of a group. */
struct member {
  int coordinate[MAX_MESH];              /* on the dimensions of the group */
  int cell;                              /* the first member that holds the same */
  struct box has, gets;                  /* of what the group shares */
  int64_t load;                          /* the elements that it sends */
  int64_t sent[MAX_MESH], got[MAX_MESH]; /* by tier */
  int gives, gets_from;                  /* number of others that it sends to, receives from */
};
struct given {
  int from, to;
};
/* The sends and receives of a step. */
struct deal {
  const struct move_step *step;
  struct shape whole; /* what the group shares */
  int n;
  struct member *member; /* room for n of each, zero */
  int holders, *holder;  /* those of the first cell; each other cell has as many */
  bool gives_runs, gets_runs, one_to_one;
  bool listed; /* the pieces are listed: for each receiver in turn */
  int ngiven, room;
  struct given *given;
};

enum { BIG_GROUP = 64 };

/* A value's dimensions, some of them split into factors. */
struct factors {
  struct shape shape;                     /* a factor each */
  int of[MAX_DIMS + 2 * MAX_MESH];        /* the dimension that it belongs to */
  int64_t outer[MAX_DIMS + 2 * MAX_MESH]; /* the product of that dimension's factors outside it */
};

/* A redistribution goes from stop to stop. Between two stops every dimension is split equally. */
enum { MAX_STOPS = MAX_LEGS + 1 };

/* Reused memory, by purpose. */
enum { MEMBERS, PIECES, STARTS, ROOMS };

/* Facts about an exchange on all ranks, computed once. */
struct traits {
  const struct exchange *of;
  bool gives_runs, gets_runs, permutes;
};

#endif
