/* layout.h: the mesh, shapes, and layouts: which part of a tensor each rank holds. */
#ifndef TPGEN_IR_LAYOUT_H
#define TPGEN_IR_LAYOUT_H

#include "util/util.h"

/* A link: bytes a second, in one direction, and seconds for the first of them. */
struct link {
  double bandwidth, latency;
};

/* The rates of a device: device.c. */
enum arithmetic { IN_FLOAT32, IN_TFLOAT32, IN_BFLOAT16 };
struct device {
  const char *name; /* "H100"; NULL: not given */
  double flops[3];  /* multiplications and additions a second, by enum arithmetic: the peak */
  double bandwidth; /* bytes a second of its memory */
  int processors;   /* multiprocessors; 0: not given */
  double products;  /* the part of the peak that a large product reaches; */
  double attention; /* that attention's forward reaches, with long sequences and heads of 128; */
  double attention_back; /* its backward */
  double streaming; /* the part of the bandwidth that a kernel reaches that only reads and writes */
  const struct measured *measured; /* the figures of tpgen --calibrate; NULL: none */
};

/* What the figures of a machine answer: measured.c. */
struct measured;
enum memory_use {
  READ_BYTES,
  WRITTEN_BYTES,
  COPIED_BYTES,
  UPDATED_BYTES,
  OPTIMIZER_BYTES,
  ROW_BYTES, /* of GPUs: by kernels that sum over rows */
  MEMORY_USES
};
enum element_function_kind {
  FUNCTION_COPY,
  FUNCTION_ADD,
  FUNCTION_DIV,
  FUNCTION_SQRT,
  FUNCTION_EXP,
  FUNCTION_LOG,
  FUNCTION_SIN,
  FUNCTION_POW,
  FUNCTION_TANH,
  FUNCTION_ERF,
  FUNCTION_SUM,
  FUNCTION_NORM, /* an operation of a kernel that sums over rows; of another one */
  FUNCTION_GATE,
  FUNCTION_BF16, /* from bfloat16 and back */
  ELEMENT_FUNCTIONS
};
struct measured_product {
  enum arithmetic type;
  char form[3]; /* "nt": the second operand is stored transposed */
  double rows, columns, terms, count;
};
struct measured_attention {
  enum arithmetic type;
  bool is_back;
  double depth, keys; /* keys: the length of a causal sequence with as many tiles in a row */
  double tiles;       /* of the busiest thread */
};

/* Where the ranks run: links.c. They fill the nodes from the first on. */
struct cluster {
  const char *name;         /* for reports */
  int nodes;                /* 0: not given */
  int devices, cards;       /* of a node */
  struct link intra, inter; /* of a device within a node, and of a card between nodes */
  bool adds_in_switch;      /* the switches of a node add up */
};

struct mesh {
  int ndim;
  const char *name[MAX_MESH];
  int size[MAX_MESH];
  double bandwidth[MAX_MESH];  /* bandwidth of a rank's link along it, in bytes a second; 0: not
                                  given */
  double latency[MAX_MESH];    /* latency of a collective over it, in seconds; 0: not given */
  const char *whole[MAX_MESH]; /* if a dimension of the plan was split into this one and another:
                                  its name */
  /* A dimension in time: each rank goes through its coordinates one after the other. They are the
     micro-batches of a step. */
  bool microbatch_axis[MAX_MESH];
  int now;        /* in time: the micro-batch whose parts are asked for; 0 has the largest */
  int64_t memory; /* bytes of a rank; 0: not given */
  struct device device;
  struct cluster cluster;
  int line;
};

enum placement_kind { REPLICATE, SHARD, PARTIAL };
enum reduction { SUM, MAX, MIN };

/* The placement on one dimension of the mesh. SHARD: the ranks along it hold consecutive parts
   of dimension `dim`, cut as torch.chunk does; micro-batches, as torch.tensor_split. With `outer`
   more than 1 the shard is strided: the dimension is seen as [outer, size / outer], and the second
   factor is cut. Such a shard results when a cut dimension is merged with one outside it. With a
   `shift` the part that a rank holds is that of the rank so many places before it, around the ring.
   PARTIAL: the value is the `reduction` of the ranks' values. A placement has eight bytes, since
   every value and operation holds six of them. */
enum { MAX_SHIFT = 255 };
struct placement {
  enum placement_kind kind : 2;
  int dim : 4;
  enum reduction reduction : 2;
  int cut_order : 4;  /* SHARD: see struct layout */
  unsigned shift : 8; /* SHARD: up to MAX_SHIFT */
  int64_t outer : 44; /* 0 and 1: a plain shard */
};

/* Several mesh dimensions may cut one tensor dimension: the second cuts the parts of the first.
   `cut_order` gives their order, and equal ones the order of the mesh. */
struct layout {
  struct placement on[MAX_MESH];
};

struct shape {
  int ndim;
  int64_t size[MAX_DIMS];
};

static inline bool same_shape(struct shape a, struct shape b)
{
  bool same = a.ndim == b.ndim;
  for (int i = 0; i < a.ndim && same; i++) same = a.size[i] == b.size[i];
  return same;
}

/* A plan's tensors have no types I8 and NF4, of the bytes of blocks of weights, no E4M3 and E5M2,
   to which the pass float8 rounds what products take, and no F64, in which the norm of gradients is
   summed. */
enum type { F32, BF16, I32, I64, BOOL, I8, NF4, E4M3, E5M2, F64 };

/* Blocks of weights (runtime/base/weight_blocks.h): the numbers of one, and its bytes. 0: the type
   has no blocks. */
struct block {
  int numbers, bytes;
};
struct block blocks_of(enum type type);

/* The numbers that a parameter of this type and shape is, where it is stored in blocks; else its
   elements. */
int64_t numbers_in(enum type type, struct shape s);

struct part {
  struct shape shape;
  int64_t first[MAX_DIMS]; /* the offset of its start in the whole */
};

/* The ranks that differ only in the mesh dimensions `dim` form a group: "tp", "dp_tp". Its members
   are in the order of these dimensions: ranks that differ in the last one are neighbours. An edge
   has two members: of stage `from` of a pipeline, which sends, and of stage `to`. */
struct group {
  int n, dim[MAX_MESH];
  unsigned dims; /* a bit for each */
  const char *name;
  bool is_edge;
  int from, to;
};

#endif
