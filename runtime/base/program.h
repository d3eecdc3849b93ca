// SPDX-License-Identifier: MIT
// The interface between a generated program and the runtime.
//
// step.c    defines a struct program: the step, the table of tensors, the groups of its collectives
// rank<N>.c defines a struct rank: the constants that differ between ranks
//
// The runtime (main.c and the files beside it) reads both; it has no size and no name of any model.
//
// Compiled as C11 for the CPU target and, with TPGEN_CUDA defined, as C++ for the CUDA target.
#ifndef PROGRAM_H
#define PROGRAM_H

#include "base/box_copy.h"
#include "base/clock.h"
#include "base/of_model.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef TPGEN_CUDA
#include <cuda_runtime.h>
#include <nccl.h>
#include "cuda/ranges.h"
typedef ncclComm_t communicator;
typedef size_t counted; // the library's type of element counts
#else
#ifdef TPGEN_SHARED
#include "cpu/shared_memory/mpi.h" // ranks of one machine, without MPI
#else
#include <mpi.h>
#endif
typedef MPI_Comm communicator;
typedef int counted;
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_MESH = 6 };

// BOOL: one byte, 0 or 1. INT8_BLOCKS and NF4_BLOCKS, of a PARAMETER: bytes; the last dimension is
// a block of weight_blocks.h, and that before it counts blocks: in files of weights these two are
// one, of numbers; a checkpoint has the bytes. E4M3 and E5M2: float8, of operands of products only.
enum type { F32, BF16, I32, I64, BOOL, INT8_BLOCKS, NF4_BLOCKS, E4M3, E5M2 };

// The role of a tensor. A file of weights must hold every PARAMETER, a file of data every BATCH. An
// OUTPUT of a program that trains is a metric of the plan's: F32, and whole on every rank.
enum role { PARAMETER, STATE, BATCH, OUTPUT };

// How a tensor is filled if no file has it: by Philox, with the element's global index as counter,
// so that it is the same on every mesh. Its numbers are a, b, low, high. UNIFORM: a <= x < b.
// NORMAL: mean a, deviation b. TRUNC_NORMAL: likewise, low <= x <= high. ORTHOGONAL: a matrix of
// rows, dimension 0, whose columns or rows are orthogonal, times a. SPARSE: a matrix with the share
// a of each column zeros, the others of deviation b. DIRAC: for each of a groups of rows, ones
// where a convolution hands its channels on; of a matrix, the identity. CONSTANT: a. Integers are
// these, rounded down; a BOOL is whether they are not 0. TOKENS, for a BATCH: the tokens of the
// data, shifted by b from the start of the batch; each is below a. Without data: UNIFORM from 0 to
// a. PRESENT, for a BATCH: a float per sample, 1 for a sample that exists, 0 for one that the
// data's last batch lacks. Without data: 1. NORMAL_ROWS: as NORMAL with mean 0, and row a zeros.
// NESTED: "NAME_nested", the tables of the NF4_BLOCKS of the parameter "NAME". They are made of its
// numbers; of files only checkpoints have them. An OUTPUT is not filled. One of a program that only
// goes forward is OF_SAMPLES if its row i is of sample i of the batch, OF_BATCH if it is of all
// samples together, and else the same for all.
enum how {
  CONSTANT,
  UNIFORM,
  NORMAL,
  TOKENS,
  PRESENT,
  NORMAL_ROWS,
  TRUNC_NORMAL,
  ORTHOGONAL,
  SPARSE,
  DIRAC,
  NESTED,
  OF_SAMPLES,
  OF_BATCH
};
struct init {
  enum how how;
  double of[4];
};

// A tensor's name in files. For a stack, whose tensors belong to the modules of a list: the text
// before the module's number and after it, as in "layers.0.wq.weight".
struct file_name {
  const char *name; // NULL: none
  const char *rest; // of a stack
};

// A tensor, or a stack of `count` tensors that differ in names and offsets only.
struct tensor {
  struct file_name name;
  struct file_name alias; // a name used by others, such as Hugging Face's
  int count;
  enum role role;
  enum type type;
  size_t offset; // of its shard, in bytes from the start of the rank's memory
  size_t stride; // between the tensors of a stack
  int ndim;
  long of[MAX_DIMS];   // the whole tensor's shape
  long here[MAX_DIMS]; // this rank's shard's shape; a size may be 0
  struct init init;
};

// A tensor, or each of a stack, that files of others hold as a part of a larger one, under its
// alias.
struct joined {
  int row;           // of the tensor; -1: after the last of the list
  long at[MAX_DIMS]; // where it begins in the larger one
  long of[MAX_DIMS]; // that one's shape
};

// Integers that are used as indices: each is at least 0 and less than `below`, or `ignored`.
struct index_use {
  const char *what; // "embedding"
  int line;         // of the plan: see plan_file
  long below;       // 0: of an input from which labels are computed: `ignored` pads it, and no more
  bool ignores;
  long ignored;
  int input; // their tensor, checked when it is filled; or -1: the step computes them, and records
             // invalid ones
  long first[MAX_DIMS], part[MAX_DIMS]; // of an input: the start of this part; its shape
};

// Rows by expert, if a rank has less room than the most rows that it may get.
struct row_bound {
  const char *name; // the module: "layers.*.mlp" of a list
  int line;         // of the plan
  double bound;     // the room is so many times the rows in balance
  long room;        // in rows
  bool for_one;     // of the rows that go to one rank; else of all that this rank's experts get
};
struct row_bounds {
  const struct row_bound *list; // NULL: of this rank there are none
  ptrdiff_t noted;              // offset of the note (row_bounds.h) that one of them did not hold
};

// The ranks of a collective: one or more dimensions of the mesh, in the group's own order.
struct group {
  const char *name; // "tp", "dp_tp"
#ifdef TPGEN_CUDA
  cudaStream_t *stream; // made by the runtime before the first step, for its collectives that
                        // overlap with arithmetic; NULL: none do
#endif
};

// The treatment of the last samples of a data set, if they do not fill a batch.
enum last_batch { LAST_NOT_GIVEN, LAST_SMALLER, LAST_DROPPED };

// How a validation joins the numbers of its batches to one. BY_MEAN: over all labels that count, or
// all samples, as the loss's.
enum joining { BY_MEAN, BY_SAMPLES, BY_SUM, BY_MAX, BY_MIN };
struct validated {
  const char *metric; // an OUTPUT; NULL: the end of the list
  enum joining by;
};

// The type of multiplication. TFLOAT32: a float; a tensor core uses 10 of its fraction bits.
enum arithmetic { FLOAT32, TFLOAT32, BFLOAT16 };

// The entries of a program that generates text. A call of prefill takes the next tokens of one
// sequence, a call of decode the next token of each slot; both find them in the inputs, and leave
// logits in the outputs, of these names: "prefill.tokens", "prefill.slot" (of the caches),
// "prefill.start" (how many tokens of the sequence are in the caches), "prefill.last" (the index of
// the last token that counts, to which the logits belong), "prefill.logits"; "decode.tokens" and
// so on; slot -1: none.
struct options;
struct failure;
struct generation {
  void (*prefill)(void), (*decode)(void);
  int slots, context;  // sequences side by side; the most tokens of one
  int chunk;           // the tokens that prefill takes
  double weights_read; // the bytes of this rank's weights that a call of decode reads
  bool (*run)(const struct options *, bool (*all_ranks_ok)(bool, const struct failure *));
  bool (*encode)(const struct options *, struct failure *);
};

struct program {
  const char *plan; // the plan's path, as it was given; after it those of the files it requires
  const char *hash; // of the plan and all other inputs of tpgen: 16 hexadecimal digits
  int world;        // ranks in the whole job
  unsigned long long seed;
  int steps;           // the last step, unless --steps is given; an inference program has 1
  void (*begin)(void); // before the first step: computes the values that all steps share; or NULL
  // Runs step t, counted from 1. On a GPU `prepare` copies the host's data for the step to memory
  // (NULL: none), and `step` only issues work, the same at every step.
  void (*prepare)(int t);
#ifdef TPGEN_CUDA
  void (*step)(void);
#else
  void (*step)(int t);
#endif
  long batches;               // taken by a step by next_batch
  bool shuffles;              // each epoch of a data set has its own order
  unsigned long long shuffle; // the seed of the order
  enum last_batch last_batch;
  // Computes the loss of one batch of inputs; if a step takes several, that batch's part of a
  // step's loss. Else it changes only values that a step recomputes. NULL: not possible. Then the
  // path of the validation data, or NULL; the steps between validations, 0: not given; their
  // batches, 0: all.
  void (*validate)(void);
  const char *validation_data;
  const struct validated *validated; // its metrics; NULL: there are none
  bool metrics_know_samples;         // they leave out the samples that a smaller batch lacks
  const char *weights; // the initial values, unless --weights or --load is given; or NULL
  // If they are an archive of torch.export, the CRC-32 of the exported program that the plan has
  // read of it: 8 hexadecimal digits. Else NULL.
  const char *exported;
  int validate_every, validate_steps;
  const char *adapter;    // PEFT's adapter_config.json of the plan's adapters; NULL: it has none
  double adapter_scale;   // an adapted weight is W + scale B A
  const char *transposed; // the names, a line each, of those that are W + scale (B A)^T; or NULL
  const char *exports;    // patterns of fnmatch, parted by "|", of what an export has; or NULL: all
  const struct generation *generation; // NULL: it generates no text, and has a step
  double flops; // of the products of a step, forward and backward, on all ranks together
  enum arithmetic arithmetic;     // of most products
  double (*learning_rate)(int t); // NULL: an inference program
  // Sets the program's pointer to its memory, and its communicators: one for each group.
  void (*set_memory)(void *memory);
  void (*set_communicators)(const communicator *made); // NULL: there are no groups
  size_t bytes;     // of the memory, which is zeroed at the start
  ptrdiff_t loss;   // offset of the float32 loss in memory, or -1: an inference program
  ptrdiff_t labels; // offset of the float32 number of labels, if the loss is their mean; -1: it is
                    // no such mean, or all labels count
  ptrdiff_t grad_norm; // offset of the float32 norm of all gradients in memory, or -1 if unused
  const struct tensor *tensors;
  int ntensors;
  const struct joined *joined; // ends with a row of -1; NULL: there are none
  const struct index_use *index_uses;
  int nindex_uses;
  ptrdiff_t noted; // offset of a note (indices.h) for each of these, 0: none yet; or -1 if the step
                   // computes none
  const struct row_bounds *row_bounds; // NULL: no rank has any
  const struct group *groups;
  int ngroups;
#ifdef TPGEN_CUDA
  cudaEvent_t *events; // of overlapped collectives; made by the runtime
  int nevents;
  const struct products *products; // of the step: cuda/kernels/math.h
#else
  bool overlaps; // collectives run beside arithmetic: cpu/overlap.h
#endif
};

// The sends and receives of a rank in an exchange: the numbers of elements to and from each member
// of the group, and their offsets. If no rank exchanges with more than one other, there are two of
// each number: for the members `to` and `from`, or NOBODY, and for the part that stays.
#ifdef TPGEN_CUDA
enum { NOBODY = -1 };
#else
#define NOBODY MPI_PROC_NULL
#endif
struct exchange {
  const counted *give, *give_at, *get, *get_at;
  int to, from;
  struct pieces pack, unpack; // boxes of its old part, and of its new part
};

// A rank's part of a tensor: its start in the whole; of the ranks with the same part, one saves it.
struct own_part {
  long first[MAX_DIMS];
  bool saves;
};

// Rows of a rank's table of parts, one or as many as the name says: of tensors of other stages of a
// pipeline; the rank has no part of them.
#define ELSEWHERE_1    {{0}, false},
#define ELSEWHERE_2    ELSEWHERE_1 ELSEWHERE_1
#define ELSEWHERE_4    ELSEWHERE_2 ELSEWHERE_2
#define ELSEWHERE_8    ELSEWHERE_4 ELSEWHERE_4
#define ELSEWHERE_16   ELSEWHERE_8 ELSEWHERE_8
#define ELSEWHERE_32   ELSEWHERE_16 ELSEWHERE_16
#define ELSEWHERE_64   ELSEWHERE_32 ELSEWHERE_32
#define ELSEWHERE_128  ELSEWHERE_64 ELSEWHERE_64
#define ELSEWHERE_256  ELSEWHERE_128 ELSEWHERE_128
#define ELSEWHERE_512  ELSEWHERE_256 ELSEWHERE_256
#define ELSEWHERE_1024 ELSEWHERE_512 ELSEWHERE_512

struct rank {
  int id;
  const struct program *program;   // of its step file
  const int *coordinate;           // on each dimension of the mesh
  const int *const *members;       // for each group: the ranks in it, in its order, then -1
  const struct own_part *parts;    // for each tensor
  const struct exchange *exchange; // one for each of the program's exchanges
  const char *plan;                // the program's: prevents linking with a rank of another plan
};

extern OF_MODEL const struct rank *rank; // the one that this process is
extern OF_MODEL const struct program *program;
extern OF_MODEL void *rank_memory;                // program->bytes, from target_allocate
extern OF_MODEL communicator *rank_communicators; // of program->groups

// Of a library: its caller multiplies the plan's learning rate by it.
extern OF_MODEL double learning_rate_factor;

// The moving averages of the weights: states AVERAGE_PREFIX NAME. Whether that is one's name, and
// whether the program has any.
#define AVERAGE_PREFIX "optim.ema."
bool is_average(const char *name);
bool keeps_average(void);

// The runtime's (text/generate.h).
bool text_generate(const struct options *o, bool (*all_ranks_ok)(bool, const struct failure *));
bool text_encode(const struct options *o, struct failure *why);

// A line of the plan may be one of a file that the plan requires: file n's lines are counted from
// n * LINES_OF_FILE on.
enum { LINES_OF_FILE = 10000000 };
#define OF_FILE(n) ((n)*LINES_OF_FILE)
static inline const char *plan_file(const char *plan, int line)
{
  const char *file = plan;
  for (int n = line / LINES_OF_FILE; n > 0; n--) file += strlen(file) + 1;
  return file;
}
static inline int plan_line(int line)
{
  return line % LINES_OF_FILE;
}

// Fills the inputs with batch number i of the data, counted from 0. Without data they are
// unchanged.
void next_batch(long i);

// This rank's index in a group: its rank in the communicator.
static inline int place_in(const int *members)
{
  int i = 0;
  while (members[i] != rank->id) i++;
  return i;
}

// Parts of n elements, cut like torch.chunk: the start of part `index`, and its size.
static inline long part_first(long n, int parts, int index)
{
  long first = (n + parts - 1) / parts * index;
  return first < n ? first : n;
}
static inline long part_size(long n, int parts, int index)
{
  return part_first(n, parts, index + 1) - part_first(n, parts, index);
}

// Micro-batches of n samples, cut like torch.tensor_split: none has two more than another.
static inline long split_first(long n, int parts, int index)
{
  const long rest = n % parts;
  return n / parts * index + (index < rest ? index : rest);
}
static inline long split_size(long n, int parts, int index)
{
  return n / parts + (index < n % parts);
}

// A collective in the program's text, and its line of the plan; 0: the runtime's own. A send or a
// receive of a pipeline's stage has the name of its action, as in a schedule: "1RECV_F", and then
// the micro-batch; else NULL.
struct place {
  const char *call, *file;
  int line, plan_line;
  const char *action;
};

// The collective whose call this rank is in, or NULL, and the number of calls begun. Read by the
// watchdog (watchdog.h).
extern OF_MODEL const struct place *pending;
extern OF_MODEL int pending_microbatch; // of its action
extern OF_MODEL unsigned long collectives;
#ifndef TPGEN_CUDA
// The seconds that this rank has been in these, if it measures them: target_measure_work.
struct waits {
  bool measured;
  double since, seconds;
};
extern OF_MODEL struct waits rank_waits;
#endif

// Reports on standard error what failed and where in the generated program, then ends the whole job
// with a non-zero status; in a library ends the call of the library instead, with that error. Never
// returns.
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void fail_call(const char *file, int line, const char *call, const char *why);

#ifdef TPGEN_CUDA
// Records an event after a collective and waits for it: so the host knows in which one the GPU
// waits.
void mark_collective(const struct place *at, cudaStream_t on);
void mark_end(cudaEvent_t event);
void mark_awaited(cudaEvent_t event);
// Whether a call of this step ends with the event, and nothing has awaited it.
bool is_unawaited(cudaEvent_t event);

// With --profile: names the next work on the stream; the text must stay valid; NULL: no work.
extern bool profiling;
extern const char WAITS[]; // where `stream` waits for a collective
void note_work(const char *what, cudaStream_t on);

extern cudaStream_t stream; // of all work of a step but overlapped collectives
extern cudaEvent_t ready;   // the start of those: cuda/streams.h
#else
extern OF_MODEL MPI_Op bf16_sum, bf16_max, bf16_min; // of bfloat16, which MPI does not have

// Like MPI_Reduce_scatter_block, and faster for large sums. Returns MPI's error. The parts are
// always added in the same order.
int reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm group);

// Like MPI_Allgather and reduce_scatter of the chunks of n segments; this rank's chunk is at `own`.
// A segment whose rows are contiguous is sent from, or received into, its value without a copy in
// the buffer. The others pass through `room`, which is as large as all chunks.
struct segment;
int gather_segments(const void *own, void *room, int n, const struct segment *p, MPI_Datatype type,
                    MPI_Comm group);
int reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype type,
                    MPI_Op op, MPI_Comm group);

// MPI_Alltoallv of rows of so many bytes, by the number of rows: elements may be more than an int
// counts.
int alltoall_rows(const void *in, const int *n, const int *first, void *out, const int *n_out,
                  const int *first_out, long bytes, MPI_Comm group);
#endif

#ifdef __cplusplus
}
#endif

static inline void begin_waiting(const struct place *at)
{
  __atomic_store_n(&collectives, collectives + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&pending, at, __ATOMIC_RELEASE);
#ifndef TPGEN_CUDA
  if (rank_waits.measured) rank_waits.since = seconds_now();
#endif
}
static inline void end_waiting(void)
{
#ifndef TPGEN_CUDA
  if (rank_waits.measured) rank_waits.seconds += seconds_now() - rank_waits.since;
#endif
  __atomic_store_n(&pending, (const struct place *)NULL, __ATOMIC_RELEASE);
}

// The same of an action of a pipeline.
static inline void begin_action_of(const struct place *at, int microbatch)
{
  __atomic_store_n(&pending_microbatch, microbatch, __ATOMIC_RELAXED);
  begin_waiting(at);
}

// A wait for other ranks that is in no plan: WAITING("MPI_Finalize", MPI_Finalize()).
#define WAITING(name, statement)                                                                   \
  do {                                                                                             \
    static const struct place here_ = {name, __FILE__, __LINE__, 0, NULL};                         \
    begin_waiting(&here_);                                                                         \
    statement;                                                                                     \
    end_waiting();                                                                                 \
  } while (0)

#ifdef TPGEN_CUDA
#define CHECK_CUDA(call)                                                                           \
  do {                                                                                             \
    cudaError_t error_ = (call);                                                                   \
    if (error_ != cudaSuccess) fail_call(__FILE__, __LINE__, #call, cudaGetErrorString(error_));   \
  } while (0)
#define CHECK_NCCL(call)                                                                           \
  do {                                                                                             \
    ncclResult_t error_ = (call);                                                                  \
    if (error_ != ncclSuccess) fail_call(__FILE__, __LINE__, #call, ncclGetErrorString(error_));   \
  } while (0)
// A collective: COLLECTIVE(.plan_line = 25, the stream that it runs on, call). For collectives that
// are issued as a group it is the end of the group.
#define COLLECTIVE(asked_at, on, statement)                                                        \
  do {                                                                                             \
    static const struct place here_ = {                                                            \
        .call = #statement, .file = __FILE__, .line = __LINE__, asked_at, .action = NULL};         \
    const range shown_(#asked_at ": " #statement);                                                 \
    begin_waiting(&here_);                                                                         \
    note(#statement, on);                                                                          \
    CHECK_NCCL(statement);                                                                         \
    end_waiting();                                                                                 \
    mark_collective(&here_, on);                                                                   \
  } while (0)
// A send or a receive of a stage: TRANSFER("1RECV_F", microbatch, .plan_line = 4, stream, call).
#define TRANSFER(of, microbatch, asked_at, on, statement)                                          \
  do {                                                                                             \
    static const struct place here_ = {                                                            \
        .call = #statement, .file = __FILE__, .line = __LINE__, asked_at, .action = of};           \
    const range shown_(of " " #asked_at ": " #statement);                                          \
    begin_action_of(&here_, microbatch);                                                           \
    note(#statement, on);                                                                          \
    CHECK_NCCL(statement);                                                                         \
    end_waiting();                                                                                 \
    mark_collective(&here_, on);                                                                   \
  } while (0)
static inline void note(const char *what, cudaStream_t on)
{
  if (profiling) note_work(what, on);
}
// A kernel's launch: LAUNCH(kernel, blocks, threads, stream)(arguments); with so many bytes of
// dynamic shared memory: LAUNCH_SHARED(kernel, blocks, threads, bytes, stream).
#ifdef __CUDACC__
#define LAUNCH_WITH(kernel, blocks, threads, bytes, on)                                            \
  with_shared(kernel, bytes)<<<blocks, threads, bytes, on>>>
// A block gets more than 48 KiB of it only if the kernel's attribute allows that.
template <class... P> static inline auto with_shared(void (*kernel)(P...), int bytes)
{
  if (bytes > 48 * 1024)
    CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  return kernel;
}
#else
#undef LAUNCH
#undef LAUNCH_SHARED
#endif
#define LAUNCH(kernel, blocks, threads, on)                                                        \
  note(#kernel, on), LAUNCH_WITH(kernel, blocks, threads, 0, on)
#define LAUNCH_SHARED(kernel, blocks, threads, bytes, on)                                          \
  note(#kernel, on), LAUNCH_WITH(kernel, blocks, threads, bytes, on)
#else
#define CHECK_MPI(call)                                                                            \
  do {                                                                                             \
    int error_ = (call);                                                                           \
    if (error_ != MPI_SUCCESS) fail_call(__FILE__, __LINE__, #call, NULL);                         \
  } while (0)
// A collective: COLLECTIVE(.plan_line = 25, call).
#define COLLECTIVE(asked_at, statement)                                                            \
  do {                                                                                             \
    static const struct place here_ = {                                                            \
        .call = #statement, .file = __FILE__, .line = __LINE__, asked_at};                         \
    begin_waiting(&here_);                                                                         \
    int error_ = (statement);                                                                      \
    if (error_ != MPI_SUCCESS) fail_call(__FILE__, __LINE__, #statement, NULL);                    \
    end_waiting();                                                                                 \
  } while (0)
// A send or a receive of a stage: TRANSFER("1RECV_F", microbatch, .plan_line = 4, call).
#define TRANSFER(of, microbatch, asked_at, statement)                                              \
  do {                                                                                             \
    static const struct place here_ = {                                                            \
        .call = #statement, .file = __FILE__, .line = __LINE__, asked_at, .action = of};           \
    begin_action_of(&here_, microbatch);                                                           \
    int error_ = (statement);                                                                      \
    if (error_ != MPI_SUCCESS) fail_call(__FILE__, __LINE__, #statement, NULL);                    \
    end_waiting();                                                                                 \
  } while (0)
#endif

#endif
