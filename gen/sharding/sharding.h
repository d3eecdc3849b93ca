/* sharding.h: layouts: which ways a rule allows, what moves between two layouts, and what that
   costs. Nothing here changes the graph. */
#ifndef TPGEN_SHARDING_H
#define TPGEN_SHARDING_H

#include "base/base.h"
#include "ir/ir.h"
#include "sharding/moves.h"
#include "sharding/ways.h"

/* ------------------------------------------------------------------------------------- boxes.c */

int64_t volume(const struct box *b);
int64_t box_overlap(const struct box *a, const struct box *b);
struct cut_list cuts_in_turn(const struct compact_layout *b);
void cut_box(const struct cut_list *c, struct shape whole, const int coordinate[MAX_MESH],
             struct box *box);
/* How many meet in a step, and which of them is at these coordinates. */
int members(const struct move_step *s);
int member_at(const struct move_step *s, const int coordinate[MAX_MESH]);
/* The layout as far as the group cuts it. */
struct compact_layout of_group(const struct move_step *s, struct compact_layout b);
/* The members, with what they hold and get of the part that they share. */
void find_group_members(struct deal *d, const struct compact_layout *from,
                        const struct compact_layout *to);

/* ----------------------------------------------------------------------------------- choices.c */

int choices(const struct op *op, const struct letters *l, struct choice *list);
/* Whether one choice for each dimension of the mesh, list[pick[d]], goes together: merged
   dimensions are cut where their letters are, and turns are told as usual. */
bool fits_together(const struct letters *l, int nin, const struct choice *list, const int *pick);
/* The same of one operand, in the layout that the choices give it: an input, or output o - nin. */
bool operand_fits(const struct letters *l, int o, int nin, struct layout layout,
                  const struct choice *list, const int *pick);
/* A maximum of sums is not the sum of maxima: pending results of one value are of one kind. */
bool reductions_agree(struct layout layout);

/* ----------------------------------------------------------------------------------- combine.c */

/* The cheapest of all combinations of the operation's choices. Replicating everything is always
   one. */
struct way cheapest(const struct op *op, const struct letters *l);
/* The operation whose price counts, too, when it is decided how `op` runs, or NULL. */
const struct op *op_ahead(const struct op *op);

/* ------------------------------------------------------------------------------ cost_context.c */

extern struct world world;
/* Sets the world to the part of `whole` that the ranks at these coordinates of what stays hold.
   all: looks at all ranks, however many there are. */
void enter_context(struct shape whole, enum type type, const struct fixed_part *u,
                   const int coordinate[MAX_MESH], bool all);
bool same_mesh(const struct mesh *a, const struct mesh *b);
void *scratch_alloc(struct scratch *s, size_t size);

/* ------------------------------------------------------------------------------------ decide.c */

struct way best_way(const struct surroundings *around, const struct op *op);

/* ------------------------------------------------------------------------------------- einop.c */

/* enforce: by letter the mesh dimension that must shard it, NONE for none, -2 where nothing is
   asked; or NULL. */
struct ruling einop_rule(const char *equation, const struct ruled *op, const int *enforce);
struct ruling pointwise_rule(const struct ruled *op);

/* ---------------------------------------------------------------------------------- exchange.c */

/* What a rank gives in an exchange, and gets, by member; its own part of it, which stays, too. How
   many; the list has room for as many as are in the group. */
int pieces_given(const struct move *m, struct shape whole, int rank, struct piece *list);
int pieces_got(const struct move *m, struct shape whole, int rank, struct piece *list);
/* Whether on every rank every piece lies in one run, so that none needs to be copied first. */
bool gives_runs(const struct move *m, struct shape whole);
bool gets_runs(const struct move *m, struct shape whole);
/* Whether no rank gives to, or gets from, more than one other. */
bool is_permutation(const struct move *m, struct shape whole);
/* Deals out: step, whole, n and listed are told, and the rest is empty. */
void deal_out(struct deal *d, const struct compact_layout *from, const struct compact_layout *to);

/* ----------------------------------------------------------------------------------- extents.c */

/* The elements that the sampled rank lacks of its part that lacks most. Nothing is pending, and
   there are no more than MANY_RANKS sampled ranks. */
int64_t most_lacking(const struct compact_layout *a, const struct compact_layout *b);
/* The elements that the sampled rank receives on the greedy way that receives most; of MAX_SEATS at
 * most.
 */
int64_t most_received_greedily(const struct compact_layout *from, const struct compact_layout *to,
                               const struct fixed_part *u);

/* -------------------------------------------------------------------------------------- legs.c */

int legs_of(struct shape whole, enum type type, struct layout from, struct layout to,
            struct leg leg[MAX_LEGS]);
/* Bytes that the rank which receives most receives for it. */
double move_cost(struct shape whole, enum type type, struct layout from, struct layout to);
/* False if there are more than a shape can have. */
bool take_move_apart(struct shape whole, struct layout a, struct layout b, struct factors *f);
/* The layout of the factors. Dimensions that are not taken apart keep their strides. */
struct layout on_factors(const struct factors *f, struct layout layout);
/* Where cuts do not come apart alike the dimension is made whole on the way. So is, while there are
   views, a dimension of one element. */
int find_stops(struct shape whole, struct layout from, struct layout to, struct layout *stop);

/* ------------------------------------------------------------------------------------- moves.c */

/* The steps from one layout to another, of plain shards only: of DTensor's greedy planner, or of
   the fastest way, as the plan asks. Remembered: the pointer stays good. */
const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to);
/* The bytes that the rank which receives most receives on the greedy way. */
int64_t greedy_bytes(struct shape whole, enum type type, struct layout from, struct layout to);

/* ----------------------------------------------------------------------------- operand_price.c */

/* What a redistribute makes of a layout. */
struct layout layout_after(const struct op *op, struct layout now);
/* The value as it was redistributed to this layout before, or NONE. */
int moved_before_to(const struct surroundings *around, int value, struct layout to);
/* What it costs to have an operand of the operation in a layout. The o-th one is an input, or
   output o - nin. */
struct price price_of_operand(const struct op *op, int o, struct layout layout);
/* Whether the engine takes a value from one placement to the other unasked. */
bool leads_to(struct placement from, struct placement to);
/* The operation that takes first what `op` makes; NULL where that one's price is not known yet, or
   the plan asks for the output. */
const struct op *taken_next(const struct op *op);
/* What is known around the operation that is decided. */
extern const struct surroundings *decision_around;

/* ------------------------------------------------------------------------------------- share.c */

int64_t elements_sent(enum op_kind kind, const struct share *s);
int64_t elements_received(enum op_kind kind, const struct share *s);

/* ------------------------------------------------------------------------------------- steps.c */

/* DTensor's greedy planner, each step along one dimension of the mesh; gives how many. */
int greedy_moves(struct layout from, struct layout to, struct move *move);
struct fixed_part fixed_part_of(struct layout from, struct layout to);
struct compact_layout compact_of(struct layout layout, const struct fixed_part *u);
/* Turns are told where the order is not that of the mesh. */
struct layout layout_of(const struct compact_layout *b, const struct fixed_part *u);
bool same_compact(const struct compact_layout *a, const struct compact_layout *b);
/* Whether it is on any dimension of the mesh. */
bool is_any(const struct compact_layout *b, int at);
/* How many mesh dimensions cut `dim`. */
int cuts(const struct compact_layout *b, int dim);
/* Puts it on mesh dimension i; a cut becomes the last. */
void put_at(struct compact_layout *b, int i, int at);
/* A bit for each dimension of the tensor that is cut in another order than that of the mesh. */
unsigned reordered_dims(const struct compact_layout *b);
/* The step, other than an exchange, that leads from a to b; false if none does. */
bool step_between(const struct compact_layout *a, const struct compact_layout *b,
                  struct move_step *s);
/* The exchange from a to b, over all dimensions but those that cut a dimension of the tensor alike,
   before any that don't; false if there is none, because something pending changes or nothing
   does. */
bool exchange_between(const struct compact_layout *a, const struct compact_layout *b,
                      struct move_step *s);
struct move move_of(const struct move_step *s, const struct compact_layout *from,
                    const struct compact_layout *to, const struct fixed_part *u);
void walk_to(struct walk *w, int i, int at);
/* By DTensor's greedy planner. */
void walk_greedily(struct walk *w, const struct compact_layout *to);

/* ----------------------------------------------------------------------------------- traffic.c */

/* Adds the bytes that each rank of the mesh sends and receives in a step. */
void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received);
/* The lower bound of the bytes: what the rank that lacks most lacks of its part, and what
   the reduction of pending sums takes on average, whichever is more. */
int64_t least_bytes(struct shape whole, enum type type, struct layout from, struct layout to);
/* The boxes of all sampled ranks. */
void find_boxes(const struct compact_layout *b, struct box *box);
/* The elements that the busiest rank must get at least; and what each sampled rank lacks of its
 * part. */
int64_t least_elements(const struct compact_layout *a, const struct compact_layout *b,
                       const struct box *has, const struct box *wants, int64_t *lacks);
/* Lasts until it is asked for again. planning: in a big group an exchange is not dealt out. */
struct traffic traffic_of(const struct stage *g, bool planning);
struct traffic traffic_of_move(const struct move *m, const struct fixed_part *u, bool planning);
/* Times are picoseconds: whole numbers, so that equal times are equal; rounded up, so that those of
   parts are no less than that of the whole. None is more than 40 hours: a way's can be added up,
   whatever the links are. */
int64_t picoseconds(double seconds);
int64_t transfer_time(int64_t elements, double bandwidth);
int64_t latency_of(const struct move_step *s);
int64_t traffic_time(const struct move_step *s, const struct traffic *t);

/* ------------------------------------------------------------------------------------ volume.c */

/* The unit whose parameter the operation gathers, or whose gradient it reduces, or casts or moves
   on the way; NONE for others. */
int unit_of(const struct op *op);
/* The type in which a collective's values travel: a packed bucket's, as its buffer has them. */
enum type moved_type(const struct op *op);
/* Where the k-th member of a packed gather or scatter begins in the chunk that each rank of the
   group has of its buffer, in elements; with k = nbody how long that is. The same on all ranks:
   parts that are smaller are followed by what nobody reads. */
int64_t bucket_chunk(const struct op *op, int k);
/* Whether a packed bucket's buffer has a chunk for each rank; whether what a rank gathers, or what
   is scattered to it, lies elsewhere as it would in its chunk, so that it is sent from there, or
   left there; whether what is reduced lies in the buffer; whether anything is copied before the
   call and after it; whether one call takes its parcels from their places to their places. */
bool has_chunks(const struct op *op);
bool lies_as_chunk(const struct op *op);
bool lies_in_buffer(const struct op *op);
bool is_copied_in(const struct op *op);
bool is_copied_out(const struct op *op);
bool goes_by_parcels(const struct op *op);
/* The elements that `rank` gives to each member of the group, and gets from it; for all_gather what
   each member gives to all, for reduce_scatter what each gets. */
void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get);
/* Whether all members of the group hold equal parts; of an exchange, whether it is a permutation.
   Every one of them has to choose the same call, so it is asked of the group, not of this rank. */
bool equal_parts(const struct op *op, int rank);
/* The bytes of the value that `rank` brings to it. */
int64_t collective_bytes(const struct op *op, int rank);
struct busiest busiest_in(int n, const int *op, const int *times);
struct busiest busiest_of(const struct op *op);
void *counts_room(int what, int n, size_t size);
/* The ranks that `rank` meets in a group: good until it is asked again. */
const int *members_of(int group, int rank);
/* Of a value. */
int64_t elements_of_rank(int value, int rank);
const struct traits *traits_of(const struct exchange *x);
/* By member of the group what `rank` gives, or gets, in an exchange, and where that begins: in its
   part, or in the flat buffer that holds all pieces one after the other. */
void count_pieces(const struct exchange *x, int rank, bool gives, int64_t *count, int64_t *starts);
const struct exchange *exchange_of(const struct op *op);
const struct op *bucket_member(const struct op *op, int k);

#endif
