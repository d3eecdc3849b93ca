/* machine.h: how long the machine of a plan takes: its devices, their links, and measured figures.
 */
#ifndef TPGEN_IR_MACHINE_H
#define TPGEN_IR_MACHINE_H

#include "ir/graph.h"

/* ------------------------------------------------------------------------------------ device.c */

const struct device *device_named(const char *name);
const char *device_names(void);
/* Of the clusters that are presets, "dgx-h100". */
const char *cluster_names(void);
/* The usual node of a device, with its links; and the bytes of a device's memory. */
struct cluster usual_cluster(const struct device *d);
int64_t memory_of_device(const struct device *d);
/* The bytes of it that the device's libraries take for themselves, on the target. */
int64_t reserve_of_device(void);
/* How many times the step of a usual rank that of the slowest of so many takes. */
double slowest_of_ranks(int ranks);
/* The peak that MFU is a part of. */
double peak_of_device(const struct device *d, enum arithmetic a);
/* The device of the plan, else the target's default, else NULL. The seconds of products of these
   sizes. */
const struct device *device(void);
double product_seconds(const struct product_sizes *p, enum arithmetic a);
/* Of so many operations, over heads of that size and so many keys for each query. */
double attention_seconds(double flops, double head_dim, double keys, bool backward,
                         enum arithmetic a);
/* Of so many operations in products of other kinds; and of reading and writing so many bytes. */
double arithmetic_seconds(double flops, enum arithmetic a);
double memory_seconds(double bytes);

/* ------------------------------------------------------------------------------------- links.c */

/* Whether the plan says where its ranks run. */
bool has_cluster(void);
/* The link of a collective of this kind over these dimensions of the mesh: the bytes that a rank
   sends take bytes / bandwidth, and the collective the latency once. */
struct link collective_link(enum op_kind kind, unsigned dims);
/* The link of a rank to another one along a dimension; and that of a gather in a group. */
struct link link_of_dimension(int mesh_dim);
/* No collective in a cluster is faster; 0 without a cluster. */
double fastest_ring(void);
struct link link_of(int group);

/* How the members of a group are spread: in how many nodes, and the least in a node. */
struct group_spread {
  int members, nodes, in_node;
};
struct group_spread spread_of_dimensions(unsigned dims);
/* Whether the plan itself gives the links of one of these dimensions; else the link of a collective
   in such a group by the model, whatever was measured. */
bool gives_links(unsigned dims);
struct link modeled_link(enum op_kind kind, const struct group_spread *s);
/* Those of GPUs that were measured; bandwidth 0: not between these. */
void set_measured_links(struct cluster *c, const struct measured *m);

/* ---------------------------------------------------------------------------------- measured.c */

/* The figures in a device.json; NULL, and which of its fields is wrong. */
const struct measured *read_measured(const char *json, size_t length, const char **why);
const char *measured_text(const struct measured *m);
/* Of which machine it is, and when it was measured. */
int measured_cores(const struct measured *m);
double measured_memory_size(const struct measured *m);
const char *measured_machine(const struct measured *m);
const char *measured_when(const struct measured *m);
/* About what ranks of it send each other: bytes a second, and the seconds of the least. */
struct link measured_gather_link(const struct measured *m);
/* A device with these figures, and with the best of them as its peaks. */
struct device measured_device(const struct measured *m);
/* Whether the plan's device has figures: the questions below are of those, in seconds for a rank of
   the plan. A question that they do not answer has an answer below 0. */
bool is_measured(void);
int measured_threads(void);
double measured_kernel(void);
/* `reach`: the bytes that are touched between two uses of the same ones. */
double measured_memory(enum memory_use use, double bytes, double reach);
/* Of a thread. */
double measured_function(enum element_function_kind f, double elements);
double measured_product(const struct measured_product *p);
/* `count` groups of rows, such as those of experts. */
double measured_groups(const struct measured_product *p);
double measured_attention(const struct measured_attention *a);
/* bytes: of the whole value; in the nearest group that was measured, whose spread measured_group()
   gives: false if none was. */
double measured_collective(enum op_kind kind, const struct group_spread *group, double bytes,
                           bool is_bf16);
bool measured_group(enum op_kind kind, const struct group_spread *group,
                    struct group_spread *nearest);
/* Of all groups: the most bytes a second that a rank sent, and the seconds of the shortest call. */
double measured_fastest(void);
double measured_shortest(void);

/* Of GPUs. The seconds of the host for a kernel; 0: not measured. How much longer arithmetic takes
   while a collective runs, and the collective; 0: not measured. */
double measured_launch(void);
struct slower_beside {
  double arithmetic, collective;
};
struct slower_beside measured_beside(void);
/* The bytes a second that a rank sends in a gather, within a node or from node to node; 0: not
   measured. The devices of a node, and of all nodes. */
double measured_bus(const struct measured *m, bool over_nodes);
int measured_devices(const struct measured *m);
int measured_gpus(const struct measured *m);
/* The bytes of a device's memory, and those that libraries take of it for so many groups. */
int64_t measured_bytes(const struct measured *m);
int64_t measured_reserve(int groups);
/* Multiplications and additions a second, by the data sheet; 0: not known. */
double measured_peak(const struct measured *m, enum arithmetic type);
/* Where and when it was measured. */
void put_measured(struct buffer *b);

#endif
