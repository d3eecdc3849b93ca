// What a generated program and the runtime know of each other.
//
// step.c    defines `program`: the step, the table of tensors, the groups that its collectives use
// rank<N>.c defines `rank`: what is that rank's alone, constants only
// the runtime (main.c and the files beside it) reads both; it holds no size and no name of any
// model
//
// Compiled as C11 for the CPU target and, with TPGEN_CUDA defined, as C++ for the CUDA target.
#ifndef PROGRAM_H
#define PROGRAM_H

#include "box_copy.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef TPGEN_CUDA
#include <cuda_runtime.h>
#include <nccl.h>
#include "cuda_ranges.h"
typedef ncclComm_t communicator;
typedef size_t counted; // how the library counts elements
#else
#include <mpi.h>
typedef MPI_Comm communicator;
typedef int counted;
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_MESH = 6 };

enum type { F32, BF16, I32, I64, BOOL }; // BOOL: one byte, 0 or 1

// What a tensor is for. A file of weights must hold every PARAMETER, a file of data every BATCH.
enum role { PARAMETER, STATE, BATCH, OUTPUT };

// How a tensor is filled where no file gives it: by Philox, counted by the element's global index,
// so that it is the same on every mesh. UNIFORM: a <= x < b. NORMAL: mean a, deviation b.
// CONSTANT: a. Whole numbers are these, rounded down; a BOOL says whether they are not 0.
// TOKENS: of a BATCH: the tokens of the data, b further on than where the batch begins; each of
// them is below a. Without data: UNIFORM from 0 to a. PRESENT: of a BATCH, a float for each sample:
// 1 where it is there, 0 where the data's last batch has fewer. Without data: 1.
enum how { CONSTANT, UNIFORM, NORMAL, TOKENS, PRESENT };
struct init {
  enum how how;
  double a, b;
};

// A tensor's name in files. Of a family, of which the modules of a list hold one each: what stands
// before the module's number and behind it, as in "layers.0.wq.weight".
struct file_name {
  const char *name; // NULL: none
  const char *rest; // of a family
};

// A tensor, or a family of `count` of them that differ in their names and places only.
struct tensor {
  struct file_name name;
  struct file_name alias; // what others call it: Hugging Face's name, say
  int count;
  enum role role;
  enum type type;
  size_t offset; // of its shard, in bytes from the start of the rank's memory
  size_t stride; // from one of a family to the next
  int ndim;
  long of[MAX_DIMS];   // the whole tensor's shape
  long here[MAX_DIMS]; // this rank's shard's shape; a size may be 0
  struct init init;
};

// Whole numbers that are used as indices: each is at least 0 and less than `below`, or `ignored`.
struct index_use {
  const char *what; // "embedding"
  int line;         // of the plan
  long below;
  bool ignores;
  long ignored;
  int input; // the tensor that they are of, looked at when it is filled; or -1: the step computes
             // them, and notes what is no index
  long first[MAX_DIMS], part[MAX_DIMS]; // of an input: where the part of it begins; its shape
};

// The ranks that meet in a collective: one or more dimensions of the mesh, in an order of their
// own.
struct group {
  const char *name;   // "tp", "dp_tp"
  communicator *comm; // the runtime makes it before the first step
#ifdef TPGEN_CUDA
  cudaStream_t *stream; // and this, for its collectives that run beside arithmetic; NULL: none do
#endif
};

// What becomes of a data set's last samples where they are no whole batch.
enum last_batch { LAST_UNTOLD, LAST_SMALLER, LAST_DROPPED };

// What is multiplied: TFLOAT32: a float, of which a tensor core takes 10 bits behind the point.
enum arithmetic { FLOAT32, TFLOAT32, BFLOAT16 };

struct program {
  const char *plan; // the plan's path, as it was given
  const char *hash; // of the plan and all that decides the output: 16 hexadecimal digits
  int world;        // ranks in the whole job
  unsigned long long seed;
  int steps; // the last one, unless --steps says otherwise; an inference program has 1
  // Of step t, counted from 1. On a GPU `prepare` puts what the step needs of the host into memory
  // (NULL: it needs nothing), and `step` only sets the device to work, the same at every step.
  void (*prepare)(int t);
#ifdef TPGEN_CUDA
  void (*step)(void);
#else
  void (*step)(int t);
#endif
  long batches;               // that a step takes by next_batch
  bool shuffles;              // each epoch of a data set has an order of its own
  unsigned long long shuffle; // by this seed
  enum last_batch last_batch;
  // Makes the loss of the inputs, of one batch: where a step takes several, the part of a step's
  // loss. Else it changes only what a step makes anew. NULL: it cannot. Where the data for it is,
  // or NULL; after how many steps it runs, 0: it is not told; of how many batches, 0: of all.
  void (*validate)(void);
  const char *validation_data;
  int validate_every, validate_steps;
  double flops; // of the products of a step, forward and backward, of all ranks together
  enum arithmetic arithmetic;     // of most of them
  double (*learning_rate)(int t); // NULL: an inference program
  void **memory;                  // where the program looks for its memory
  size_t bytes;                   // of that memory; it begins zeroed
  ptrdiff_t loss;      // offset of the float32 loss in memory, or -1: an inference program
  ptrdiff_t grad_norm; // offset of the float32 norm of all gradients, or -1 where nothing needs it
  const struct tensor *tensors;
  int ntensors;
  const struct index_use *index_uses;
  int nindex_uses;
  ptrdiff_t noted; // offset of a number for each of these, 0 where nothing was noted, of
                   // index_within (indices.h); or -1 where the step computes none
  const struct group *groups;
  int ngroups;
#ifdef TPGEN_CUDA
  cudaEvent_t *events; // of collectives that run beside arithmetic: the runtime makes them
  int nevents;
#endif
};

// What a rank gives in an exchange, and gets: so many elements to and from each member of the
// group, and where they begin. Where no rank meets more than one other, there are two of each
// number: for the members that it gives `to` and gets `from`, or NOBODY, and for what it keeps.
#ifdef TPGEN_CUDA
enum { NOBODY = -1 };
#else
#define NOBODY MPI_PROC_NULL
#endif
struct exchange {
  const counted *give, *give_at, *get, *get_at;
  int to, from;
  struct pieces pack, unpack; // boxes of what it has, and of what it comes to have
};

// A rank's part of a tensor: where it begins in the whole; of the ranks with the same part, one
// saves it.
struct own_part {
  long first[MAX_DIMS];
  bool saves;
};

struct rank {
  int id;
  const int *coordinate;           // on each dimension of the mesh
  const int *const *members;       // for each group: the ranks in it, in its order, then -1
  const struct own_part *parts;    // for each tensor
  const struct exchange *exchange; // the program's exchanges
  const char *plan;                // the program's: a rank of another plan is not linked with it
};

extern const struct program program;
extern const struct rank rank;

// Fills the inputs with batch number i of the data, counted from 0. Without data they stay as they
// are.
void next_batch(long i);

// This rank's place in a group: its rank in the communicator.
static inline int place_in(const int *members)
{
  int i = 0;
  while (members[i] != rank.id) i++;
  return i;
}

// Of n elements cut into parts as torch.chunk does: where part `index` begins, and its size.
static inline long part_first(long n, int parts, int index)
{
  long first = (n + parts - 1) / parts * index;
  return first < n ? first : n;
}
static inline long part_size(long n, int parts, int index)
{
  return part_first(n, parts, index + 1) - part_first(n, parts, index);
}

// A collective in the program's text, and the line of the plan that asks for it; 0: the runtime
// does.
struct place {
  const char *call, *file;
  int line, plan_line;
};

// The collective whose call this rank is in, or NULL, and how many it has begun. The watch
// (watchdog.h) reads both.
extern const struct place *pending;
extern unsigned long collectives;

// Says on standard error what failed and where in the generated program, then ends the whole job
// with a non-zero status. Never returns.
#ifdef __GNUC__
__attribute__((noreturn))
#endif
void fail_call(const char *file, int line, const char *call, const char *why);

#ifdef TPGEN_CUDA
// Where a collective is behind, its end is told by an event, and that is awaited: the host knows so
// which one the GPU waits in.
void mark_collective(const struct place *at, cudaStream_t on);
void mark_end(cudaEvent_t event);
void mark_awaited(cudaEvent_t event);

// With --profile: what is to be done next on the stream is called so, in a text that stays; NULL:
// nothing is.
extern bool profiling;
void note_work(const char *what, cudaStream_t on);

extern cudaStream_t stream; // of all work of a step, but collectives that run beside it
extern cudaEvent_t ready;   // what those begin after: cuda_streams.h
#else
extern MPI_Op bf16_sum, bf16_max, bf16_min; // of bfloat16, which MPI does not know

// As MPI_Reduce_scatter_block, and quicker where much is summed. It gives MPI's error. The parts
// are added in an order that is the same every time.
int reduce_scatter(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm group);

// As MPI_Allgather and reduce_scatter of all that n parcels have in their buffers' chunks, whose
// own one lies at `own`; but each goes to its value, or comes from it, without a copy in the buffer
// where its rows are one. The others go through `room`, which is as large as all chunks.
struct parcel;
int gather_parcels(const void *own, void *room, int n, const struct parcel *p, MPI_Datatype type,
                   MPI_Comm group);
int reduce_parcels(void *room, void *own, int n, const struct parcel *p, MPI_Datatype type,
                   MPI_Op op, MPI_Comm group);
#endif

#ifdef __cplusplus
}
#endif

static inline void begin_waiting(const struct place *at)
{
  __atomic_store_n(&collectives, collectives + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&pending, at, __ATOMIC_RELEASE);
}
static inline void end_waiting(void)
{
  __atomic_store_n(&pending, (const struct place *)NULL, __ATOMIC_RELEASE);
}

// What waits for other ranks though no plan asks for it: WAITING("MPI_Finalize", MPI_Finalize()).
#define WAITING(name, statement)                                                                   \
  do {                                                                                             \
    static const struct place here_ = {name, __FILE__, __LINE__, 0};                               \
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
// A collective: COLLECTIVE(.plan_line = 25, the stream that it runs on, call). Of those that are
// sent off in a group it is the group's end.
#define COLLECTIVE(asked_at, on, statement)                                                        \
  do {                                                                                             \
    static const struct place here_ = {                                                            \
        .call = #statement, .file = __FILE__, .line = __LINE__, asked_at};                         \
    const range shown_(#asked_at ": " #statement);                                                 \
    begin_waiting(&here_);                                                                         \
    note(#statement, on);                                                                          \
    CHECK_NCCL(statement);                                                                         \
    end_waiting();                                                                                 \
    mark_collective(&here_, on);                                                                   \
  } while (0)
static inline void note(const char *what, cudaStream_t on)
{
  if (profiling) note_work(what, on);
}
// A kernel's launch: LAUNCH(kernel, blocks, threads, stream)(arguments); and of one that takes so
// many bytes of dynamic shared memory: LAUNCH_SHARED(kernel, blocks, threads, bytes, stream).
#ifdef __CUDACC__
#define LAUNCH_WITH(kernel, blocks, threads, bytes, on)                                            \
  with_shared(kernel, bytes)<<<blocks, threads, bytes, on>>>
// More than 48 KiB of it are a block's only where the kernel's attribute says so.
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
#endif

#endif
