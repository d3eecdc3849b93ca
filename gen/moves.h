/* moves.h: what the files share that plan redistributions: steps.c, traffic.c, exchange.c and
   moves.c. */
#ifndef MOVES_H
#define MOVES_H

#include "tpgen.h"

static inline int64_t least(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* -------------------------------------------------------------------------------------- steps.c */

/* What is on a dimension of the mesh: the dimension of the tensor that it cuts, or one of these.
   OTHER: pending, of another reduction than the source's. */
enum { WHOLE = -1, PENDING = -2, OTHER = -3 };

/* A layout of plain shards, told briefly. `turn`: as how manieth it cuts that dimension; else 0. So
   layouts that mean the same are the same bytes. */
struct brief {
  int8_t at[MAX_MESH], turn[MAX_MESH];
};

/* What two layouts have that is not told of them: which reductions PENDING and OTHER stand for; and
   what stays as it is, the cuts of dimensions that are cut in strides. There the brief says WHOLE,
   and such a dimension of the mesh is taken to have one rank. */
struct untold {
  enum reduction pending, other;
  unsigned fixed, fixed_dims; /* a bit for each dimension of the mesh, and of the tensor */
  struct layout layout;       /* `fixed`: what is there */
};

struct untold untold_of(struct layout from, struct layout to);
struct brief brief_of(struct layout layout, const struct untold *u);
/* Turns are told where the order is not that of the mesh. */
struct layout layout_of(const struct brief *b, const struct untold *u);
bool same_brief(const struct brief *a, const struct brief *b);
/* Whether it is on any dimension of the mesh. */
bool is_any(const struct brief *b, int at);
/* How many mesh dimensions cut `dim`. */
int cuts(const struct brief *b, int dim);
/* Puts it on mesh dimension i; a cut becomes the last. */
void put_at(struct brief *b, int i, int at);
/* A bit for each dimension of the tensor that is cut in another order than that of the mesh. */
unsigned reordered_dims(const struct brief *b);

struct step {
  enum op_kind kind;
  int n, dim[MAX_MESH]; /* in the order of the group */
};

/* The step, other than an exchange, that leads from a to b; false if none does. */
bool step_between(const struct brief *a, const struct brief *b, struct step *s);
/* The exchange from a to b, over all dimensions but those that cut a dimension of the tensor alike,
   before any that don't; false if there is none, because something pending changes or nothing
   does. */
bool exchange_between(const struct brief *a, const struct brief *b, struct step *s);
struct move move_of(const struct step *s, const struct brief *from, const struct brief *to,
                    const struct untold *u);

/* A step along one dimension of the mesh. */
struct leap {
  enum op_kind kind;
  int along, before; /* before: what was on that dimension */
  struct brief after;
};
/* Steps along one dimension of the mesh each, and where they have come to. */
struct walk {
  int n;
  struct move *move; /* has room for MAX_MOVES; or NULL: */
  struct leap *leap; /* so has this */
  struct brief now;
  const struct untold *untold;
};
void walk_to(struct walk *w, int i, int at);
/* By DTensor's greedy planner. */
void walk_greedily(struct walk *w, const struct brief *to);

/* ------------------------------------------------------------------------------------ traffic.c */

/* What is moved, and on what mesh: of what stays as it is, the part of one rank, without the
   dimensions of the mesh over which it is cut. A tier is the links of one bandwidth; tier 0 is the
   slowest. `seats` are the ranks that are looked at: all, where these are not too many. */
struct world {
  struct mesh given, mesh; /* the graph's; without what is fixed */
  unsigned fixed;
  struct shape whole;
  int64_t bytes; /* of an element */
  int number;    /* those in which other seats are looked at have another one */
  int ranks, seats;
  int places[MAX_MESH]; /* of seats along each dimension of the mesh; the last's come first */
  int (*coordinate)[MAX_MESH]; /* by seat */
  int tiers, tier[MAX_MESH];
  double bandwidth[MAX_MESH]; /* by tier */
  double latency[MAX_MESH];   /* by dimension of the mesh */
};
extern struct world world;
enum { MAX_SEATS = 32, MANY_RANKS = 256 };
/* Sets the world to the part of `whole` that the ranks at these coordinates of what stays hold.
   all: looks at all ranks, however many there are. */
void enter(struct shape whole, enum type type, const struct untold *u,
           const int coordinate[MAX_MESH], bool all);
bool same_mesh(const struct mesh *a, const struct mesh *b);

/* What a rank holds: elements first <= i < last of each dimension. */
struct box {
  int64_t first[MAX_DIMS], last[MAX_DIMS];
};
int64_t volume(const struct box *b);
int64_t overlap(const struct box *a, const struct box *b);
/* The cuts of a layout, one after the other. */
struct cut_list {
  int n;
  struct {
    int dim, by;
  } at[MAX_MESH];
};
struct cut_list cuts_in_turn(const struct brief *b);
void cut_box(const struct cut_list *c, struct shape whole, const int coordinate[MAX_MESH],
             struct box *box);
/* The boxes of all seats. */
void find_boxes(const struct brief *b, struct box *box);
/* The elements that the busiest rank must get at least; and what each seat lacks of its part. */
int64_t least_elements(const struct brief *a, const struct brief *b, const struct box *has,
                       const struct box *wants, int64_t *lacks);

/* What a rank that has so many elements receives as the index-th of n in an all_reduce. */
static inline int64_t received_in_all_reduce(int64_t has, int n, int index)
{
  int64_t part = chunk_size(has, n, index);
  return has - part + part * (n - 1);
}

/* A step, with what every seat holds before and after it. */
struct stage {
  const struct step *step;
  const struct brief *from, *to;
  const struct box *has, *gets;
};
/* What it moves, in elements. */
struct traffic {
  int64_t *sent, *got; /* by tier and seat: [tier * world.seats + seat] */
  int64_t *received;   /* by seat, over all links */
  int64_t *copied;     /* by seat: read and written within the rank */
  bool one_to_one;     /* nobody gives to two, or gets from two */
};
/* Lasts until it is asked for again. planning: in a big group an exchange is not dealt out. */
struct traffic traffic_of(const struct stage *g, bool planning);
struct traffic traffic_of_move(const struct move *m, const struct untold *u, bool planning);

/* Times are picoseconds: whole numbers, so that equal times are equal; rounded up, so that those of
   parts are no less than that of the whole. None is more than 40 hours: a way's can be added up,
   whatever the links are. */
int64_t picoseconds(double seconds);
int64_t transfer_time(int64_t elements, double bandwidth);
int64_t latency_of(const struct step *s);
int64_t time_of(const struct step *s, const struct traffic *t);

/* Memory that is used again: what it held before is lost. All zeros. */
struct scratch {
  size_t size;
  void *at;
};
void *take(struct scratch *s, size_t size);

/* ------------------------------------------------------------------------------------ extents.c */

/* The elements that the seat lacks of its part that lacks most. Nothing is pending, and there are
   no more than MANY_RANKS seats. */
int64_t most_lacking(const struct brief *a, const struct brief *b);
/* The elements that the seat receives on the greedy way that receives most; of MAX_SEATS at most.
 */
int64_t most_received_greedily(const struct brief *from, const struct brief *to,
                               const struct untold *u);

/* ----------------------------------------------------------------------------------- exchange.c */

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
  const struct step *step;
  struct shape whole; /* what the group shares */
  int n;
  struct member *member; /* room for n of each, zero */
  int holders, *holder;  /* of what the first holds; of what others hold as many further */
  bool gives_runs, gets_runs, one_to_one;
  bool listed; /* the pieces are asked for: for each receiver in turn */
  int ngiven, room;
  struct given *given;
};
/* How many meet in a step, and which of them is at these coordinates. */
int members(const struct step *s);
int member_at(const struct step *s, const int coordinate[MAX_MESH]);
/* Deals out: step, whole, n and listed are told, and the rest is empty. */
void deal_out(struct deal *d, const struct brief *from, const struct brief *to);

#endif
