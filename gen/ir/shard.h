/* shard.h: which part of a tensor a rank holds, and which ranks form a group (shard.c,
   local_shape.c). */
#ifndef TPGEN_IR_SHARD_H
#define TPGEN_IR_SHARD_H

#include "ir/layout.h"

int world_size(void);
/* The number of ranks along the dimension: one along a dimension in time. */
int ranks_along(int mesh_dim);
/* A bit for each dimension that is not in time. */
unsigned dimensions_of_ranks(void);
/* The dimension in time, or NONE; the number of micro-batches of a step; the layout of all of them
   together. */
int time_dimension(void);
int microbatches(void);
struct layout over_time(struct layout layout);
/* Whether each micro-batch has a value of its own: its part of the whole, or its term of a sum. */
bool is_of_microbatch(int value);
/* Whether samples would go from one micro-batch to another: the cuts of a dimension before its cut
   in time differ, or the factor of the dimension that the micro-batches cut, if they have unlike
   parts of it. */
bool moves_in_time(struct shape whole, struct layout from, struct layout to);
void coordinate_of(int rank, int coordinate[MAX_MESH]);
int rank_at_coordinate(const int coordinate[MAX_MESH]);
/* The outer factor of a shard: 1 for a plain one. */
int64_t shard_stride(struct placement p);
/* The mesh dimensions that cut `dim`, in the order in which they cut it; returns how many. */
int cuts_of(const struct mesh *mesh, struct layout layout, int dim, int cut[MAX_MESH]);
/* Whether the cuts of `dim` have another order than the dimensions of the mesh. */
bool is_reordered(const struct mesh *mesh, struct layout layout, int dim);
/* The size of part `index` of n, cut as torch.chunk does. */
int64_t chunk_size(int64_t n, int parts, int index);
/* Where part `index` of n begins along a dimension of the mesh, and its size: of ranks as
   torch.chunk cuts, in time as torch.tensor_split, so that no micro-batch has two samples more than
   another. */
int64_t cut_first(const struct mesh *mesh, int mesh_dim, int64_t n, int index);
int64_t cut_size(const struct mesh *mesh, int mesh_dim, int64_t n, int index);
/* Whether the layout has a strided shard in the dimension. */
bool is_strided(const struct mesh *mesh, struct layout layout, int dim);
/* Whether the dimension in time makes equal parts of each rank's part of the dimension of `whole`
   that it cuts. */
bool is_cut_evenly_in_time(const struct mesh *mesh, struct layout layout, int mesh_dim,
                           struct shape whole);
/* The part of `whole` that the rank at `coordinate` holds. For a dimension with a strided shard,
   `first` has no meaning. */
struct part local_part(const struct mesh *mesh, struct shape whole, struct layout layout,
                       const int coordinate[MAX_MESH]);
/* The shape of the rank's part of the value. */
struct shape shape_of_part(int value, int rank);
/* The ranks that meet `rank` in a group, in the group's order; returns how many. */
int group_members(int group, int rank, int *members);
int first_member(int group, int rank);
/* Which member of its group a rank is. */
int place_in_group(int group, int rank);
int group_size(int group);
/* The layout in canonical form: cut_order is 0 where a dimension is cut in the order of the mesh,
   else 0, 1, 2 ... in the order of the cuts. Layouts of placed values are canonical. */
struct layout usual_cut_order(struct layout layout);
/* Compares cut_order, too: by meaning, not by representation. */
bool same_placement(struct placement a, struct placement b);
bool same_layout(struct layout a, struct layout b);
/* Whether they differ only on mesh dimensions of size 1. */
bool same_layout_but_units(struct layout a, struct layout b);
/* Whether all ranks' parts have equal size in both: a pending dimension counts as a replicated
   one. */
bool same_local_shape(struct layout a, struct layout b);
/* "R S(0)": for each mesh dimension larger than 1; "S(0/4)" is strided, with outer factor 4;
   "S(0)[1] S(0)[0]" shows the order where the second dimension cuts first. */
char *layout_text(struct layout layout);
/* The text for one mesh dimension; and of a placement by itself, without its cut_order. */
char *placement_over(struct layout layout, int mesh_dim);
char *placement_text(struct placement p);
char *shape_text(struct shape s); /* "[20, 10]" */

/* ------------------------------------------------------------------------------ local_shape.c */

/* The shape of the rank's room: of its part, unless it is stored by rows. */
struct shape local_shape(int value, int rank);
/* The number of elements of the rank's part; by rows, if all experts have as many. */
double elements_in_balance(int value, int rank);
/* Whether the ranks' parts have equal length in a dimension: rank 0 has the longest, and the
   last rank's is as long only if all are equal. */
bool is_cut_evenly(int value, int dim);
/* The largest local shard of any rank, in bytes. */
int64_t largest_bytes(int value);
/* Whether each rank's parts of the value are of one size in all micro-batches. */
bool is_even_in_time(int value);
/* The micro-batches in which ranks have other parts than in the one before them; the first is 0. */
struct list microbatch_sizes(void);
/* Goes to the next of them, from *size, NONE at first: local_shape() gives the parts of these
   micro-batches. false after the last one, where it gives those of micro-batch 0 again. */
bool next_size(const struct list *sizes, int *size);
/* The place in the list of the size that a micro-batch has. */
int size_of_microbatch(const struct list *sizes, int microbatch);

#endif
