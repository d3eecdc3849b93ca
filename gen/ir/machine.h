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
struct link measured_link(const struct measured *m);
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
/* bytes: of the whole value. */
double measured_collective(enum op_kind kind, int ranks, double bytes, bool is_bf16);
/* Where and when it was measured. */
void put_measured(struct buffer *b);

#endif
