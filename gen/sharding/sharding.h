/* sharding.h: placements: the shardings that a rule allows, the moves between two layouts, and
   their cost. Nothing here changes the graph.

   Functions take the state of the question as a `struct cost_model` or a `struct chooser`, with the
   answers to earlier questions. Functions without one are for the compiler's thread: they ask the
   model of the graph. */
#ifndef TPGEN_SHARDING_H
#define TPGEN_SHARDING_H

#include "util/util.h"
#include "ir/ir.h"
#include "sharding/moves.h"
#include "sharding/op_sharding.h"

/* ----------------------------------------------------------------------------------- buckets.c */

/* The number of elements of a value that the rank has. */
int64_t elements_of_rank(int value, int rank);
/* The unit whose parameter the operation gathers, whose gradient it reduces, or whose parameter or
   gradient it casts or moves on the way; else NONE. */
int unit_of(const struct op *op);
/* The type in which a collective moves its values; for a packed bucket that of its buffer. */
enum type moved_type(const struct op *op);
const struct op *bucket_member(const struct op *op, int k);
/* The offset, in elements, of the k-th member of a packed gather or scatter in the chunk that each
   rank of the group has in its buffer; for k = nbody the length of the chunk. Equal on all ranks:
   smaller parts are padded. */
int64_t bucket_chunk(const struct op *op, int k);
/* For a packed bucket, whether: its buffer has a chunk for each rank; a rank's part outside the
   buffer is already laid out as its chunk, so that it is sent from there or received there; the
   reduced values are in the buffer; anything is copied before the call; anything is copied after
   it; one call moves its segments in place. */
bool has_chunks(const struct op *op);
bool lies_as_chunk(const struct op *op);
bool lies_in_buffer(const struct op *op);
bool is_copied_in(const struct op *op);
bool is_copied_out(const struct op *op);
bool goes_by_segments(const struct op *op);

/* ----------------------------------------------------------------------------------- choices.c */

/* The layout that the value has for the chooser. NULL: its own. */
const struct layout *layout_in(const struct chooser *c, int value);
int choices(const struct op *op, const struct letters *l, struct choice *list);
int choices_of(const struct chooser *c, const struct op *op, const struct letters *l,
               struct choice *list);
/* Whether the counts among the inputs are of the rank's own places: they were counted where the
   same dimension was cut. Any other terms of the same sum would not do. */
bool counts_own(const struct chooser *c, const struct op *op, const struct choice *choice, int d);
/* Whether the choices list[pick[d]], one for each mesh dimension, fit together: merged dimensions
   are cut where their letters are, and the order of cuts is in the usual form. */
bool fits_together(const struct letters *l, int nin, const struct choice *list, const int *pick);
/* The same for one operand in the layout that the choices give it: an input, or output o - nin. */
bool operand_fits(const struct letters *l, int o, int nin, struct layout layout,
                  const struct choice *list, const int *pick);
/* A maximum of sums is not the sum of maxima: all pending reductions of a value are of one kind. */
bool reductions_agree(struct layout layout);

/* ----------------------------------------------------------------------------------- combine.c */

/* The cheapest of all combinations of the operation's choices. Full replication is always one. */
struct op_sharding search_shardings(struct chooser *c, const struct op *op,
                                    const struct letters *l);
/* Its cheapest combinations, without the next operation's price, from the cheapest on; returns how
   many, at most `most`. Those count, too, that leave work undivided. */
int cheapest_shardings(struct chooser *c, const struct op *op, struct priced_sharding *list,
                       int most);
/* The operation whose price also counts in the decision about `op`, or NULL. */
const struct op *op_ahead(struct chooser *c, const struct op *op);

/* -------------------------------------------------------------------------------- cost_model.c */

struct cost_model *new_cost_model(void);
/* The compiler's own. It is another one for each graph. */
struct cost_model *cost_model_of_graph(void);
/* Forgets its answers about values and operations by number, which may get other meanings. */
void forget_numbers(void);
/* Sets the tensor to the part of `whole` of the ranks at these coordinates of the fixed dimensions.
   all: samples all ranks, however many there are. */
void enter_context(struct cost_model *m, struct shape whole, enum type type,
                   const struct fixed_part *u, const int coordinate[MAX_MESH], bool all);
bool same_mesh(const struct mesh *a, const struct mesh *b);
/* Everything of the mesh and its machine on which prices depend, where its figures are not
   measured ones. */
void ask_machine(struct query *q);
/* The number of the graph's mesh among those of earlier questions. */
int mesh_number(struct cost_model *m);
void *scratch_alloc(struct scratch *s, size_t size);
/* Times are in picoseconds: integers, so that equal times compare equal; rounded up, so that the
   times of parts are no less than that of the whole. None is more than 40 hours: times of a path
   can be added up, whatever the links. */
int64_t picoseconds(double seconds);
int64_t transfer_time(const struct cost_model *m, int64_t elements, double bandwidth);
struct link link_of_step(const struct cost_model *m, const struct move_step *s);

/* ------------------------------------------------------------------------------------ counts.c */

/* Room for n counts of a purpose: its earlier content is lost. */
void *count_buffer(int what, int n, size_t size);
/* The ranks of `rank`'s group, itself included: valid until the next call. */
const int *members_of(int group, int rank);
const struct transfer_traits *transfer_traits(const struct exchange *x);
/* By member of the group the elements that `rank` sends, or receives, in an exchange, and their
   offset: in its part, or in the flat buffer that concatenates all pieces. */
void count_pieces(const struct exchange *x, int rank, bool sends, int64_t *count, int64_t *starts);
const struct exchange *exchange_of(const struct op *op);
/* The elements that `rank` sends to each member of the group, and receives from it; for all_gather
   what each member sends to all, for reduce_scatter what each receives. */
void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get);
/* The bytes of the value that `rank` contributes. */
int64_t collective_bytes(const struct op *op, int rank);
/* Whether all members of the group hold equal parts; for an exchange, whether it is a permutation.
   All members have to choose the same call, so the answer is for the group, not for this rank. */
bool equal_parts(const struct op *op, int rank);

/* ------------------------------------------------------------------------------------ decide.c */

/* How the operation runs. */
struct op_sharding choose_sharding(const struct def_use *uses, const struct op *op);
struct op_sharding find_sharding(struct chooser *c, const struct op *op);

/* ---------------------------------------------------------------------------------- exchange.c */

/* The pieces that a rank sends in an exchange, and those that it receives, by member, with its own
   part that stays. Returns their number; the list has room for as many as are in the group. */
int pieces_sent(const struct move *m, struct shape whole, int rank, struct piece *list);
int pieces_got(const struct move *m, struct shape whole, int rank, struct piece *list);
struct transfer_traits find_traits(const struct move *m, struct shape whole);
/* Whether nothing is sent to the member. */
bool is_idle_member(const struct cost_model *m, const struct move_step *s, int member);
/* Finds the sends and receives. The caller sets step, whole, n, member, owner and listed; the rest
   is empty. The parts are in `room`; NULL: in the arena. */
void plan_exchange(struct cost_model *m, struct exchange_plan *p, const struct compact_layout *from,
                   const struct compact_layout *to, struct scratch *room);

/* --------------------------------------------------------------------------------- intervals.c */

/* The intervals of a dimension of the model's tensor, by sampled rank; of all dimensions: valid
   until the next question. */
const struct interval *intervals_along(struct cost_model *m, const struct compact_layout *b,
                                       int dim);
struct rank_parts find_parts(struct cost_model *m, const struct compact_layout *b);
/* The elements of the k-th part; those that the i-th and the k-th part have in common. */
int64_t size_of_part(int ndim, const struct rank_parts *p, int k);
int64_t part_overlap(int ndim, const struct rank_parts *a, int i, const struct rank_parts *b,
                     int k);
/* The number of members of a step's group; the index of the member at these coordinates. */
int members(const struct cost_model *m, const struct move_step *s);
int member_at(const struct cost_model *m, const struct move_step *s,
              const int coordinate[MAX_MESH]);
/* The layout with only the cuts of the group's mesh dimensions, or only the others. */
struct compact_layout cuts_of_group(const struct move_step *s, struct compact_layout b,
                                    bool inside);
/* The parts that the group's n members hold of the elements that the group shares; `room` for n *
   ndim intervals. */
struct rank_parts parts_of_members(const struct cost_model *m, struct shape whole,
                                   const struct compact_layout *b, int (*coordinate)[MAX_MESH],
                                   int n, struct interval *room);
/* The part that the ranks of the group at `coordinate` share: by the cuts over the other
   dimensions. */
struct shape shape_of_group(const struct cost_model *m, const struct move_step *s,
                            const struct compact_layout *from, const int coordinate[MAX_MESH]);

/* ------------------------------------------------------------------------------- lower_bound.c */

/* The elements that a sampled rank lacks of its part, at most. Nothing is pending, and there are no
   more than MANY_RANKS sampled ranks. */
int64_t most_lacking(struct cost_model *m, const struct compact_layout *a,
                     const struct compact_layout *b);
/* The least number of elements that the rank with the most to receive must receive; and the
   elements that each sampled rank lacks of its part. */
int64_t least_elements(const struct cost_model *m, const struct compact_layout *a,
                       const struct compact_layout *b, const struct rank_parts *has,
                       const struct rank_parts *wants, int64_t *lacks);
/* The lower bound of the bytes: the greater of the bytes that any rank lacks of its part, and those
   that the reduction of pending sums takes on average. */
int64_t least_bytes(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                    struct layout to);

/* ------------------------------------------------------------------------- microbatch_choice.c */

/* The best placement of the output along the micro-batch axis of the mesh: that of the value whose
   gradient it is; or that of the next operation's other operand, if it has the same shape. */
struct placement microbatch_preference(const struct chooser *c, const struct op *op);
/* Which of the operation's n choices it takes along this axis. */
int microbatch_choice(const struct chooser *c, const struct op *op, const struct choice *list,
                      int n);
/* Which it takes if its inputs are placed so: of choices that need the same, the one whose output
   is placed as `like` comes first. */
int choice_by_inputs(const struct op *op, const struct placement *in, struct placement like,
                     const struct choice *list, int n);

/* ------------------------------------------------------------------------------------- moves.c */

/* The steps between two layouts of plain shards only: by DTensor's greedy planner, or the fastest
   path, as the plan says. Cached: the pointer stays valid. */
const struct moves *plan_moves(struct shape whole, enum type type, struct layout from,
                               struct layout to);
/* The same where packing costs nothing: assign_dim_order may find an order in memory without it. */
const struct moves *plan_moves_unpacked(struct shape whole, enum type type, struct layout from,
                                        struct layout to);
const struct moves *find_moves(struct cost_model *m, struct shape whole, enum type type,
                               struct layout from, struct layout to);
/* The most bytes that any rank receives on the greedy path. */
int64_t greedy_bytes(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                     struct layout to);
/* Everything that a move between two layouts depends on. */
void ask_move(struct cost_model *m, struct query *q, struct shape whole, enum type type,
              const struct layout *from, const struct layout *to);

/* ----------------------------------------------------------------------------- operand_price.c */

/* The layout after a redistribute. */
struct layout layout_after(const struct op *op, struct layout now);
/* A redistribution that changes no type, neither of the value nor of its gradient. */
bool is_plain_move(const struct op *op);
/* Whether it is such a redistribution, and an operation of the phase can read its result. */
bool move_serves(const struct op *move, enum phase phase);
/* What an earlier redistribution to this layout made of it, for an operation of the phase; or NONE.
 */
int moved_before_to(const struct def_use *uses, int value, struct layout to, enum phase phase);
/* The cost of a layout for operand o of the operation: an input, or output o - nin. */
struct price price_of_operand(const struct chooser *c, const struct op *op, int o,
                              struct layout layout);
/* Whether tpgen converts a value from one placement to the other without a request. */
bool leads_to(struct placement from, struct placement to);
/* The first operation that takes an output of `op`; NULL if its price is not known yet, or the plan
   asks for the output. */
const struct op *next_user(const struct chooser *c, const struct op *op);

/* ---------------------------------------------------------------------------------- segments.c */

int segments_of(struct shape whole, enum type type, struct layout from, struct layout to,
                struct move_segment segment[MAX_SEGMENTS]);
/* Whether a sum, or a maximum, is pending over any dimension of the mesh. */
bool is_pending_layout(const struct layout *layout);
/* The most bytes of the move that any rank receives. */
double move_cost(struct cost_model *m, struct shape whole, enum type type, struct layout from,
                 struct layout to);
/* False if there are more dimensions than a shape can have. */
bool take_move_apart(struct shape whole, struct layout a, struct layout b, struct factors *f);
/* The layout of the factors. Dimensions that are not split keep their strides. */
struct layout on_factors(const struct factors *f, struct layout layout);
/* A dimension that the two layouts split differently is whole on the way. While the tensor is
   viewed with split dimensions, so is a dimension of one element: a view's rule has no letter for
   it. */
int find_waypoints(struct shape whole, struct layout from, struct layout to,
                   struct layout *waypoint);

/* ------------------------------------------------------------------------------------- steps.c */

/* DTensor's greedy planner, each step along one dimension of the mesh; returns the number of
   steps. */
int greedy_moves(struct layout from, struct layout to, struct move *move);
struct fixed_part fixed_part_of(struct layout from, struct layout to);
struct compact_layout compact_of(struct layout layout, const struct fixed_part *u);
/* Cut orders are set where the order is not that of the mesh. */
struct layout layout_of(const struct compact_layout *b, const struct fixed_part *u);
bool same_compact(const struct compact_layout *a, const struct compact_layout *b);
/* Whether any mesh dimension is in the state `at`; whether anything is pending at either end. */
bool is_any(const struct compact_layout *b, int at);
bool is_anything_pending(const struct compact_layout *from, const struct compact_layout *to);
/* The number of mesh dimensions that cut `dim`. */
int cuts(const struct compact_layout *b, int dim);
/* Sets the state of mesh dimension i; a cut becomes the last. */
void set_state(struct compact_layout *b, int i, int at);
/* A bit for each dimension of the tensor that is cut in another order than that of the mesh. */
unsigned reordered_dims(const struct compact_layout *b);
/* The step, other than an exchange, that leads from a to b; false if none does. */
bool step_between(const struct compact_layout *a, const struct compact_layout *b,
                  struct move_step *s);
/* The exchange from a to b, over all mesh dimensions except those that cut a tensor dimension
   equally in both, before any that do not. False if there is none, because something pending
   changes or nothing does. */
bool exchange_between(const struct compact_layout *a, const struct compact_layout *b,
                      struct move_step *s);
struct move_step step_of_move(const struct move *m);
struct move move_of(const struct path_step *s, const struct fixed_part *u);
/* Adds the step that sets the state of mesh dimension i, if it is another one. */
void add_step_along(struct path *p, struct compact_layout *now, int i, int at, int shift);
/* By DTensor's greedy planner. */
void add_greedy_steps(struct path *p, const struct compact_layout *from,
                      const struct compact_layout *to);

/* ----------------------------------------------------------------------------------- traffic.c */

int64_t elements_sent(enum op_kind kind, const struct share *s);
int64_t elements_received(enum op_kind kind, const struct share *s);
/* The traffic of a step: valid until the next call. planning: in a big group the sends of an
   exchange are not found. */
struct traffic traffic_of(struct cost_model *m, const struct step_parts *g, bool planning);
struct traffic traffic_of_step(struct cost_model *m, const struct path_step *s, bool planning);
int64_t traffic_time(const struct cost_model *m, const struct move_step *s,
                     const struct traffic *t);
/* Adds the bytes that each rank of the mesh sends and receives in a step. */
void add_traffic(const struct move *m, struct shape whole, enum type type, int64_t *sent,
                 int64_t *received);

/* ------------------------------------------------------------------------------------ volume.c */

struct max_rank_volume max_volume_of_ops(int n, const int *op, const int *times);
struct max_rank_volume max_volume_of(const struct op *op);

#endif
