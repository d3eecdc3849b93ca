// The stand-in for CUDA must not be quiet: every fault below ends the program, soon, with a status
// other than 0 and a message that names the call. Each fault is a run of this program of its own.
#include <cuda_runtime.h>
#include <nccl.h>

#include "faults.h"

#include <vector>

static int rank = -1, ranks;
static ncclComm_t world;

static float *memory(size_t floats)
{
  float *at;
  CHECK(cudaMalloc(&at, floats * sizeof(float)) == cudaSuccess);
  CHECK(cudaMemset(at, 0, floats * sizeof(float)) == cudaSuccess);
  return at;
}

// ---- kernels

__global__ static void two_barriers(int)
{
  if (threadIdx.x < 40)
    __syncthreads();
  else
    __syncthreads();
}
__global__ static void barrier_and_warp(int)
{
  if (threadIdx.x < 31)
    __syncwarp();
  else
    __syncthreads();
}
__global__ static void half_a_warp_shuffles(float *x)
{
  if (threadIdx.x < 16)
    x[threadIdx.x] = __shfl_down_sync(0xffffffffu, x[threadIdx.x], 1);
  else
    __syncthreads();
}
__global__ static void parted_shuffles(float *x)
{
  float y = x[threadIdx.x];
  if (threadIdx.x < 16)
    y = __shfl_down_sync(0xffffffffu, y, 1);
  else
    y = __shfl_up_sync(0xffffffffu, y, 1);
  x[threadIdx.x] = y;
}
__global__ static void part_of_a_warp_multiplies(float *x)
{
  float d[4] = {};
  const unsigned a[4] = {};
  if (threadIdx.x < 30) mma_bf16(d, a, 0, 0);
  x[threadIdx.x] = d[0];
}
__global__ static void multiply_unrounded(float *x)
{
  float d[4] = {};
  const unsigned a[4] = {0x3f800001u};
  mma_tf32(d, a, 0, 0);
  x[threadIdx.x] = d[0];
}
__global__ static void load_uneven_row(float *x)
{
  unsigned d[4];
  DYNAMIC_SHARED(char, rows);
  load_matrices(d, rows + 16 * threadIdx.x + (threadIdx.x == 9 ? 4 : 0));
  x[threadIdx.x] = (float)d[0];
}
__global__ static void load_from_global(float *x)
{
  unsigned d[4];
  load_matrices(d, x);
  x[threadIdx.x] = (float)d[0];
}
__global__ static void copy_uneven(float *x)
{
  DYNAMIC_SHARED(float, to);
  copy_16(to, x + 1, true);
}
__global__ static void copy_far(float *x)
{
  DYNAMIC_SHARED(float, to);
  copy_16(to, x + 1024, true);
}
__global__ static void write_behind_shared(float *x)
{
  DYNAMIC_SHARED(float, shared);
  shared[256] = x[0];
}
__global__ static void read_ended_lane(float *x)
{
  if (threadIdx.x >= 20) return;
  x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 16);
}
__global__ static void not_in_own_mask(float *x)
{
  x[threadIdx.x] = __shfl_sync(0x0000ffffu, x[threadIdx.x], 0);
}
__global__ static void odd_width(float *x)
{
  x[threadIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 0, 12);
}
__global__ static void write_at(float *x, int i)
{
  if (threadIdx.x == 3) x[i] = 1;
}
__global__ static void allocate(float *x)
{
  cudaMalloc(&x, 4);
}
__global__ static void recurse(int *x, int depth)
{
  volatile int big[1000];
  big[depth % 1000] = depth;
  if (depth < 1000000) recurse(x, depth + 1);
  x[0] = big[depth % 1000];
}
struct pointers {
  float *at;
};
__global__ static void write_hidden(pointers p)
{
  p.at[0] = 1;
}
__global__ static void nothing()
{
}

static void divergent_barrier()
{
  LAUNCH(two_barriers, 1, 64, 0)(0);
}
static void barrier_not_reached()
{
  LAUNCH(barrier_and_warp, 2, 64, 0)(0);
}
static void shuffle_not_reached()
{
  LAUNCH(half_a_warp_shuffles, 1, 32, 0)(memory(32));
}
static void divergent_shuffle()
{
  LAUNCH(parted_shuffles, 1, 32, 0)(memory(32));
}
static void shuffle_from_ended()
{
  LAUNCH(read_ended_lane, 1, 32, 0)(memory(32));
}
static void shuffle_mask()
{
  LAUNCH(not_in_own_mask, 1, 32, 0)(memory(32));
}
static void shuffle_width()
{
  LAUNCH(odd_width, 1, 32, 0)(memory(32));
}
static void kernel_writes_behind()
{
  LAUNCH(write_at, 1, 32, 0)(memory(100), 100);
}
// Large memory is made in another way.
static const size_t LARGE = (20 << 20) + 1;
static void kernel_writes_behind_large()
{
  LAUNCH(write_at, 1, 32, 0)(memory(LARGE), (int)LARGE);
}
static void host_reads_large()
{
  printf("%g\n", (double)memory(LARGE)[1]);
}
static void kernel_writes_before()
{
  LAUNCH(write_at, 1, 32, 0)(memory(100), -1);
}
static void kernel_writes_far()
{
  LAUNCH(write_at, 1, 32, 0)(memory(100), 2000000);
}
static void kernel_given_host_memory()
{
  float x[4] = {};
  LAUNCH(write_at, 1, 32, 0)(x, 0);
}
static void kernel_given_freed_memory()
{
  float *x = memory(4);
  cudaFree(x);
  LAUNCH(write_hidden, 1, 32, 0)(pointers{x});
}
static void kernel_calls_host()
{
  LAUNCH(allocate, 1, 1, 0)(nullptr);
}
static void kernel_recurses()
{
  LAUNCH(recurse, 1, 1, 0)(reinterpret_cast<int *>(memory(1)), 0);
}
static void part_of_a_warp()
{
  LAUNCH(part_of_a_warp_multiplies, 1, 32, 0)(memory(32));
}
static void unrounded_product()
{
  LAUNCH(multiply_unrounded, 1, 32, 0)(memory(32));
}
static void uneven_row()
{
  LAUNCH_SHARED(load_uneven_row, 1, 32, 1024, 0)(memory(32));
}
static void matrix_in_global_memory()
{
  LAUNCH(load_from_global, 1, 32, 0)(memory(32));
}
static void uneven_copy()
{
  LAUNCH_SHARED(copy_uneven, 1, 1, 1024, 0)(memory(32));
}
static void copy_from_afar()
{
  LAUNCH_SHARED(copy_far, 1, 1, 1024, 0)(memory(1024));
}
static void shared_overrun()
{
  LAUNCH_SHARED(write_behind_shared, 1, 1, 1024, 0)(memory(32));
}
static void shared_not_given()
{
  LAUNCH(write_behind_shared, 1, 1, 0)(memory(32));
}
static void too_much_shared()
{
  LAUNCH_SHARED(write_behind_shared, 1, 1, 1 << 20, 0)(memory(32));
}
static void too_many_threads()
{
  LAUNCH(nothing, 1, 1025, 0)();
}
static void no_blocks()
{
  LAUNCH(nothing, 0, 32, 0)();
}
static void barrier_on_host()
{
  __syncthreads();
}

// ---- the runtime

static void copy_out_of_bounds()
{
  std::vector<float> x(11);
  cudaMemcpy(memory(10), x.data(), 44, cudaMemcpyHostToDevice);
}
static void rows_out_of_bounds()
{
  std::vector<float> x(12);
  cudaMemcpy2D(memory(10), 16, x.data(), 12, 12, 3, cudaMemcpyHostToDevice);
}
static void rows_too_long()
{
  std::vector<float> x(12);
  cudaMemcpy2D(memory(12), 8, x.data(), 12, 12, 3, cudaMemcpyHostToDevice);
}
static void copy_wrong_kind()
{
  float x[4];
  cudaMemcpy(x, memory(4), 16, cudaMemcpyHostToDevice);
}
static void copy_device_as_host()
{
  cudaMemcpy(memory(4), memory(4), 16, cudaMemcpyHostToDevice);
}
static void copy_overlaps()
{
  float *x = memory(8);
  cudaMemcpy(x, x + 2, 16, cudaMemcpyDeviceToDevice);
}
static void copy_unknown_kind()
{
  cudaMemcpy(memory(4), memory(4), 16, (cudaMemcpyKind)7);
}
static void set_out_of_bounds()
{
  cudaMemsetAsync(memory(4) + 2, 0, 12);
}
static void host_reads_device()
{
  volatile float *x = memory(4);
  printf("%g\n", (double)x[1]);
}
static void free_twice()
{
  float *x = memory(4);
  cudaFree(x);
  cudaFree(x);
}
static void free_inside()
{
  cudaFree(memory(4) + 1);
}
static void dead_stream()
{
  cudaStream_t s;
  cudaStreamCreate(&s);
  cudaStreamDestroy(s);
  cudaMemsetAsync(memory(4), 0, 4, s);
}
static void event_never_recorded()
{
  cudaEvent_t e;
  cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
  cudaStreamWaitEvent(nullptr, e);
}
static void stream_flags()
{
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, 64);
}
static void bad_setting()
{
  int n;
  setenv("CUDA_ON_CPU_DEVICES", "many", 1);
  cudaGetDeviceCount(&n);
}

// ---- NCCL

// The ranks can't share an id without MPI, nor need they: this is as good as one for all.
static ncclUniqueId fixed_id()
{
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  memset(id.internal + 64, 0, sizeof id.internal - 64);
  for (size_t i = strlen(id.internal) + 1; i < 64; i++) id.internal[i] = 1;
  return id;
}
static void begin_nccl()
{
  rank = atoi(getenv(getenv("PMI_RANK") ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK"));
  ranks = atoi(getenv(getenv("PMI_SIZE") ? "PMI_SIZE" : "OMPI_COMM_WORLD_SIZE"));
  cudaSetDevice(rank);
  CHECK(ncclCommInitRank(&world, ranks, fixed_id(), rank) == ncclSuccess);
}
static void all_reduce(size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm)
{
  float *x = memory(100);
  ncclAllReduce(x, x, count, type, op, comm, nullptr);
}
static void different_count()
{
  begin_nccl();
  all_reduce(rank == 1 ? 99 : 100, ncclFloat, ncclSum, world);
}
static void different_type()
{
  begin_nccl();
  all_reduce(50, rank == 1 ? ncclInt : ncclFloat, ncclSum, world);
}
static void different_op()
{
  begin_nccl();
  all_reduce(50, ncclFloat, rank == 1 ? ncclMax : ncclSum, world);
}
static void different_root()
{
  begin_nccl();
  float *x = memory(4);
  ncclBroadcast(x, x, 4, ncclFloat, rank, world, nullptr);
}
static void different_kind()
{
  begin_nccl();
  float *x = memory(100);
  if (rank == 1)
    ncclAllGather(x, x + 20, 10, ncclFloat, world, nullptr);
  else
    ncclAllReduce(x, x, 10, ncclFloat, ncclSum, world, nullptr);
}
static void different_order()
{
  begin_nccl();
  ncclComm_t other;
  ncclCommSplit(world, 0, rank, &other, nullptr);
  for (int i = 0; i < 2; i++) all_reduce(8, ncclFloat, ncclSum, (i ^ rank) & 1 ? other : world);
}
static void different_communicator()
{
  begin_nccl();
  ncclComm_t parts[2];
  for (ncclComm_t &part : parts) ncclCommSplit(world, 0, rank, &part, nullptr);
  all_reduce(8, ncclFloat, ncclSum, parts[rank]);
}
static void collective_and_receive()
{
  begin_nccl();
  float *x = memory(4);
  if (rank == 0)
    ncclRecv(x, 4, ncclFloat, 1, world, nullptr);
  else
    ncclAllReduce(x, x, 4, ncclFloat, ncclSum, world, nullptr);
}
static void different_send()
{
  begin_nccl();
  float *x = memory(4);
  if (rank == 0)
    ncclRecv(x, 4, ncclFloat, 1, world, nullptr);
  else
    ncclSend(x, 3, ncclFloat, 0, world, nullptr);
}
static void sends_that_block()
{
  begin_nccl();
  setenv("CUDA_ON_CPU_DEADLINE", "2", 1);
  float *x = memory(4), *y = memory(4);
  ncclSend(x, 4, ncclFloat, 1 - rank, world, nullptr);
  ncclRecv(y, 4, ncclFloat, 1 - rank, world, nullptr);
}
static void one_stays_away()
{
  begin_nccl();
  setenv("CUDA_ON_CPU_DEADLINE", "2", 1);
  if (rank == 0) all_reduce(4, ncclFloat, ncclSum, world);
}
static void one_fails()
{
  begin_nccl();
  if (rank == 1) exit(3);
  all_reduce(4, ncclFloat, ncclSum, world);
}
static void unknown_type()
{
  begin_nccl();
  all_reduce(4, ncclFloat16, ncclSum, world);
}
static void unknown_op()
{
  begin_nccl();
  all_reduce(4, ncclFloat, (ncclRedOp_t)7, world);
}
static void reduce_out_of_bounds()
{
  begin_nccl();
  all_reduce(101, ncclFloat, ncclSum, world);
}
static void reduce_host_memory()
{
  begin_nccl();
  float x[4] = {};
  ncclAllReduce(x, x, 4, ncclFloat, ncclSum, world, nullptr);
}
static void reduce_overlap()
{
  begin_nccl();
  float *x = memory(8);
  ncclAllReduce(x, x + 2, 4, ncclFloat, ncclSum, world, nullptr);
}
static void dead_communicator()
{
  begin_nccl();
  ncclCommDestroy(world);
  all_reduce(4, ncclFloat, ncclSum, world);
}
static void wrong_world()
{
  ncclCommInitRank(&world, 3, fixed_id(), 0);
}
static void foreign_id()
{
  ncclUniqueId id = {};
  rank = atoi(getenv(getenv("PMI_RANK") ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK"));
  ncclCommInitRank(&world, 2, id, rank);
}
static void one_device()
{
  rank = atoi(getenv(getenv("PMI_RANK") ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK"));
  ncclCommInitRank(&world, 2, fixed_id(), rank);
}
static void group_end_alone()
{
  ncclGroupEnd();
}

static const fault faults[] = {
    FAULT(divergent_barrier, 0, "__syncthreads: the block has parted: thread (0, 0, 0)"),
    FAULT(barrier_not_reached, 0, "barrier_and_warp: block (0, 0, 0) is stuck"),
    FAULT(shuffle_not_reached, 0, "16 thread(s), the first thread (0, 0, 0), wait in __shfl_down"),
    FAULT(divergent_shuffle, 0, "the warp has parted"),
    FAULT(shuffle_from_ended, 0, "reads lane 20 of its warp, which takes no part"),
    FAULT(shuffle_mask, 0, "__shfl_sync: lane 16 calls it with mask 0x0000ffff"),
    FAULT(shuffle_width, 0, "__shfl_sync: width 12"),
    FAULT(kernel_writes_behind, 0, "write_at: wrote just behind the end of an allocation of 400"),
    FAULT(kernel_writes_behind_large, 0,
          "write_at: wrote just behind the end of an allocation of 83886084"),
    FAULT(host_reads_large, 0,
          "the host: touched device memory, 4 bytes into an allocation of 83886084"),
    FAULT(kernel_writes_before, 0, "write_at: wrote just before an allocation of 400"),
    FAULT(kernel_writes_far, 0,
          "an allocation of 400 bytes (in kernel write_at, block (0, 0, 0), thread (3, 0, 0))"),
    FAULT(kernel_given_host_memory, 0, "write_at: argument 1, 0x"),
    FAULT(kernel_given_freed_memory, 0, "which is no device memory (in kernel write_hidden"),
    FAULT(kernel_calls_host, 0, "cudaMalloc: a kernel called it"),
    FAULT(kernel_recurses, 0, "a thread's stack is full"),
    FAULT(part_of_a_warp, 0, "mma_bf16: lanes 0x3fffffff of the warp alone come to"),
    FAULT(unrounded_product, 0, "mma_tf32: 0x1.000002p+0 is not rounded"),
    FAULT(uneven_row, 0, "ldmatrix: lane 9's row is not at a multiple of 16 bytes"),
    FAULT(matrix_in_global_memory, 0, "ldmatrix: lane 0's row is not in shared memory"),
    FAULT(uneven_copy, 0, "an address is not aligned to 16 bytes"),
    FAULT(copy_from_afar, 0, "the source is out of bounds: 16 bytes"),
    FAULT(shared_overrun, 0, "kernel write_behind_shared"),
    FAULT(shared_not_given, 0, "DYNAMIC_SHARED: the launch gave 0 bytes: use LAUNCH_SHARED"),
    FAULT(too_much_shared, 0, "1048576 bytes of dynamic shared memory; 49152 are allowed"),
    FAULT(too_many_threads, 0, "nothing: a block of 1025 x 1 x 1 threads"),
    FAULT(no_blocks, 0, "nothing: a grid of 0 x 1 x 1 blocks"),
    FAULT(barrier_on_host, 0, "__syncthreads: called outside a kernel"),
    FAULT(copy_out_of_bounds, 0, "cudaMemcpy: the destination is out of bounds: 44 bytes"),
    FAULT(rows_out_of_bounds, 0, "cudaMemcpy2D: the destination is out of bounds: 44 bytes"),
    FAULT(rows_too_long, 0, "cudaMemcpy2D: rows of 12 bytes, 8 and 12 bytes apart"),
    FAULT(copy_wrong_kind, 0, "cudaMemcpy: the destination, 0x"),
    FAULT(copy_device_as_host, 0, "is device memory; the host's is expected"),
    FAULT(copy_overlaps, 0, "cudaMemcpy: source and destination overlap"),
    FAULT(copy_unknown_kind, 0, "cudaMemcpy: unknown kind 7"),
    FAULT(set_out_of_bounds, 0, "cudaMemsetAsync: the destination is out of bounds: 12 bytes"),
    FAULT(host_reads_device, 0,
          "the host: touched device memory, 4 bytes into an allocation of 16"),
    FAULT(free_twice, 0, "cudaFree: 0x"),
    FAULT(free_inside, 0, "cudaFree: 0x"),
    FAULT(dead_stream, 0, "cudaMemsetAsync: 0x"),
    FAULT(event_never_recorded, 0, "cudaStreamWaitEvent: the event was never recorded"),
    FAULT(stream_flags, 0, "cudaStreamCreateWithFlags: unsupported flags 0x40"),
    FAULT(bad_setting, 0, "CUDA_ON_CPU_DEVICES: the environment says 'many'"),
    FAULT(different_count, 2, "call 1 on it, 99 x ncclFloat32, ncclSum"),
    FAULT(different_type, 2, "50 x ncclInt32, ncclSum"),
    FAULT(different_op, 2, "50 x ncclFloat32, ncclMax"),
    FAULT(different_root, 2, "4 x ncclFloat32, root 1"),
    FAULT(different_kind, 3, "ncclAllGather on communicator world, call 1 on it, 10 x ncclFloat32"),
    FAULT(different_order, 2, "ncclAllReduce on communicator world/split 1, color 0, call 1 on it"),
    FAULT(different_communicator, 2, "communicator world/split 2, color 0, call 1 on it, 8 x"),
    FAULT(
        collective_and_receive, 2,
        "rank 0 is in ncclRecv on communicator world, 4 x ncclFloat32; rank 1 is in ncclAllReduce"),
    FAULT(different_send, 2, "rank 1 is in ncclSend on communicator world, 3 x ncclFloat32"),
    FAULT(sends_that_block, 2, "ncclSend: waited 2 s in vain for rank(s)"),
    FAULT(one_stays_away, 2, "ncclAllReduce: waited 2 s in vain for rank(s) 1"),
    FAULT(one_fails, 2, ""),
    FAULT(unknown_type, 2, "ncclAllReduce: the stand-in does not know type 6 of NCCL"),
    FAULT(unknown_op, 2, "ncclAllReduce: the stand-in does not know operation 7"),
    FAULT(reduce_out_of_bounds, 2, "ncclAllReduce: the send buffer is out of bounds: 404 bytes"),
    FAULT(reduce_host_memory, 2, "ncclAllReduce: the send buffer, 0x"),
    FAULT(reduce_overlap, 2, "ncclAllReduce: the buffers overlap"),
    FAULT(dead_communicator, 2, "is no live communicator"),
    FAULT(wrong_world, 2,
          "ncclCommInitRank: rank 0 of 3 was asked for, but under MPI this is rank"),
    FAULT(foreign_id, 2, "ncclCommInitRank: the unique id is not one of ncclGetUniqueId"),
    FAULT(one_device, 2, "both use device 0 of host"),
    FAULT(group_end_alone, 0, "ncclGroupEnd: no group was started"),
};

int main(int argc, char **argv)
{
  return run_faults(faults, argc, argv);
}
