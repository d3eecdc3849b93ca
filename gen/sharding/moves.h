/* moves.h: redistributions: the layouts, steps and paths of the search, the cost model, and the
   parts that ranks hold and send. */
#ifndef TPGEN_SHARDING_MOVES_H
#define TPGEN_SHARDING_MOVES_H

#include "util/util.h"
#include "ir/ir.h"

static inline int64_t lesser(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t greater(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* ----------------------------------------------------------------------- answers of the search */

enum { MAX_MOVES = 2 * MAX_MESH };
/* Bits: the bounds that ended a search early, so that a quicker path may exist. */
enum { TOO_MANY_LAYOUTS = 1, TOO_MANY_PATHS = 2 };
struct moves {
  int n;
  const struct move *move;
  double time;   /* in seconds, by the model of the links (traffic.c) */
  int64_t bytes; /* received by the rank that receives most */
  unsigned ended_early;
};

/* A redistribution of strided shards goes from waypoint to waypoint. Between two waypoints all
   dimensions are split equally: in such a segment the tensor is viewed with its dimensions split so
   that all its shards are plain. */
enum { MAX_SEGMENTS = 4, MAX_WAYPOINTS = MAX_SEGMENTS + 1 };
struct move_segment {
  struct shape whole; /* after the split */
  const struct moves *moves;
};

/* A value's dimensions, some of them split into factors. */
struct factors {
  struct shape shape;                     /* a factor each */
  int of[MAX_DIMS + 2 * MAX_MESH];        /* the dimension that it belongs to */
  int64_t outer[MAX_DIMS + 2 * MAX_MESH]; /* the product of that dimension's factors outside it */
};

/* A piece of a tensor that one rank sends to another, which is the member-th of the group. */
struct piece {
  int member;
  struct part part; /* `first` counts from the start of the queried rank's part */
};

/* --------------------------------------------------------------------------- layouts and steps */

/* The state of a mesh dimension: the tensor dimension that it cuts, or one of these. OTHER:
   pending, with another reduction than the source's. */
enum { WHOLE = -1, PENDING = -2, OTHER = -3 };

/* A layout of plain shards in compact form. `order`: the position among the cuts of that tensor
   dimension; else 0. `shift`: of a cut. Equal layouts are equal bytes. */
struct compact_layout {
  int8_t at[MAX_MESH], order[MAX_MESH];
  uint8_t shift[MAX_MESH];
};

/* The data that compact layouts leave out: the reductions of PENDING and OTHER; and the cuts of
   strided dimensions, and sums over micro-batches, which do not change. There the compact layout
   has WHOLE, and such a mesh dimension counts as one rank. */
struct fixed_part {
  enum reduction pending, other;
  unsigned fixed, fixed_dims; /* a bit for each dimension of the mesh, and of the tensor */
  struct layout layout;       /* `fixed`: their placements */
};

struct move_step {
  enum op_kind kind;
  int n, dim[MAX_MESH];      /* in the order of the group */
  int idle_first, idle_last; /* as in struct move */
};

/* Steps one after the other. */
struct path {
  int n;
  struct path_step {
    struct move_step step;
    struct compact_layout from, to;
  } at[MAX_MOVES];
};

/* ------------------------------------------------------------------------------ the cost model */

/* The elements first <= i < last along one dimension of a tensor. */
struct interval {
  int64_t first, last;
};

static inline int64_t interval_size(const struct interval *a)
{
  return a->last - a->first;
}

static inline int64_t interval_overlap(const struct interval *a, const struct interval *b)
{
  return greater(0, lesser(a->last, b->last) - greater(a->first, b->first));
}

/* The parts that some ranks hold: for each dimension of the tensor an interval for each rank. */
struct rank_parts {
  const struct interval *along[MAX_DIMS];
};

/* The ranks on which moves are priced: all, unless there are too many. A tier is the links of one
   bandwidth; tier 0 is the slowest. */
enum { MAX_SAMPLES = 32, MANY_RANKS = 256 };
struct rank_sample {
  struct mesh given, mesh; /* the graph's; without fixed dimensions */
  unsigned fixed;
  int number;                  /* identifies the sample */
  int all, n;                  /* ranks of the mesh, and sampled ranks */
  int places[MAX_MESH];        /* sampled ranks by mesh dimension; the last varies fastest */
  int (*coordinate)[MAX_MESH]; /* by sampled rank */
  int tiers, tier[MAX_MESH];   /* by dimension of the mesh */
  double bandwidth[MAX_MESH];  /* by tier */
};

/* Counts by member of a group, for one question each. */
enum { MEMBERS, PIECES, STARTS, COUNT_BUFFERS };

/* Reused memory: its old content is lost. All zeros. */
struct scratch {
  size_t size;
  void *at;
};

/* The state of the search for moves, with the answers to earlier questions. One thread at a time
   may ask a model; several threads may each ask their own. They all read the graph's mesh, the
   plan's options and the target, which nobody may change meanwhile. A model's answers are in its
   thread's arena. */
struct cost_model {
  /* The tensor to move; for layouts with a fixed part, one rank's part of it. */
  struct shape whole;
  int64_t bytes;             /* of an element */
  struct rank_sample *ranks; /* one of these */
  struct rank_sample few, every;
  int samples; /* how many samples there have been */
  int meshes, mesh_room;
  struct mesh *mesh; /* the graph's, as it was at earlier questions */
  unsigned ended_early;
  bool packs_nothing; /* whether parts along any dimension count as contiguous */
  /* The answers to earlier questions, and the question asked now. Buckets, sizes, exchanges' traits
     and volumes are those of the graph's values and operations. */
  struct memo costs, plans, exchanges, intervals, decisions, chunks, sizes, traits, volumes;
  struct query cost, plan, shared_plan, exchange, interval, decision, chunk, size, trait, volume;
  struct sharding_search *search; /* of combine.c */
  struct scratch traffic, members, owners, group, coordinates[2], by_rank, sums,
      counts[COUNT_BUFFERS];
};

/* A member's part before and after a collective; see collectives.h. */
struct share {
  int64_t n, has, gets, kept;
  int member;
};

/* The elements that rank `index` of n, which has `has` of them, receives in an all_reduce. */
static inline int64_t received_in_all_reduce(int64_t has, int n, int index)
{
  int64_t part = chunk_size(has, n, index);
  return has - part + part * (n - 1);
}

/* A step, and the parts of every sampled rank before and after it. */
struct step_parts {
  const struct move_step *step;
  const struct compact_layout *from, *to;
  struct rank_parts has, gets;
};

/* The elements that a step moves. */
struct traffic {
  int64_t *sent, *got; /* by tier and sampled rank: [tier * sampled ranks + sampled rank] */
  int64_t *received;   /* by sampled rank, over all links */
  int64_t *copied;     /* by sampled rank: read and written within the rank */
  bool one_to_one;     /* no rank sends to two, or receives from two */
  bool by_pieces;      /* each piece is counted for the link that it takes */
};

/* ----------------------------------------------------------------------------------- exchanges */

/* A member of a group. */
struct member {
  int coordinate[MAX_MESH];              /* on the dimensions of the group */
  int replica;                           /* the first member that holds the same */
  int64_t load;                          /* the elements that it sends */
  int64_t sent[MAX_MESH], got[MAX_MESH]; /* by tier */
  int sends, gets_from;                  /* number of others that it sends to, receives from */
};
struct send {
  int from, to;
};
/* The sends and receives of one group in a step. */
struct exchange_plan {
  const struct move_step *step;
  struct shape whole; /* what the group shares */
  int n;
  struct member *member;       /* room for n of each, zero */
  int owners, *owner;          /* the members that hold what the first does; others have as many */
  struct rank_parts has, gets; /* by member, of what the group shares */
  bool sends_runs, gets_runs, one_to_one;
  bool listed; /* the sends are listed: for each receiver in order */
  int nsend, room;
  struct send *send;
};

enum { BIG_GROUP = 64 };

/* ------------------------------------------------------------------ collectives of the program */

/* The bytes that the rank sends that sends most, and those that the rank receives that receives
   most: in operations of the graph, each so many times (NULL: once), or in one operation. */
struct max_rank_volume {
  int64_t sent, received;
};

/* Whether on all ranks of an exchange all pieces that are sent, or got, are contiguous, so that
   none needs to be copied; and whether no rank sends to, or receives from, more than one other. */
struct transfer_traits {
  bool sends_runs, gets_runs, permutes;
};

#endif
