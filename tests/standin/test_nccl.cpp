// The collectives of NCCL on the stand-in, on three ranks: every one, in every type and operation,
// in place and not, in groups and in communicators split off. Started plainly, the program runs
// itself under mpirun: once with MPI begun by it and once with MPI left to the stand-in.
#define OMPI_SKIP_MPICXX  1
#define MPICH_SKIP_MPICXX 1
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include "check.h"
#include "on_device.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <vector>

#define OK(call) CHECK((call) == ncclSuccess)

static int rank, ranks;
static cudaStream_t stream;

template <class T> struct type_of;
#define TYPE(c_type, nccl_type)                                                                    \
  template <> struct type_of<c_type> {                                                             \
    static const ncclDataType_t value = nccl_type;                                                 \
  };
TYPE(int8_t, ncclInt8)
TYPE(uint8_t, ncclUint8)
TYPE(int32_t, ncclInt32)
TYPE(uint32_t, ncclUint32)
TYPE(int64_t, ncclInt64)
TYPE(uint64_t, ncclUint64)
TYPE(float, ncclFloat32)
TYPE(double, ncclFloat64)

struct bf16 {
  __nv_bfloat16 x;
  explicit bf16(float from = 0) : x(__float2bfloat16_rn(from))
  {
  }
  operator float() const
  {
    return __bfloat162float(x);
  }
};
TYPE(bf16, ncclBfloat16)

// Small whole numbers, so that sums and products are exact in every type.
static int element(int r, size_t i)
{
  return (int)((i * 5 + (size_t)r * 3) % 4) + 1;
}

template <class T> static std::vector<T> elements(int r, size_t count)
{
  std::vector<T> x(count);
  for (size_t i = 0; i < count; i++) x[i] = (T)element(r, i);
  return x;
}

template <class T> static T reduced(ncclRedOp_t op, int members, size_t i)
{
  int sum = 0, product = 1, most = 0, least = 100;
  for (int r = 0; r < members; r++) {
    int x = element(r, i);
    sum += x;
    product *= x;
    most = x > most ? x : most;
    least = x < least ? x : least;
  }
  T values[5] = {(T)sum, (T)product, (T)most, (T)least, (T)((T)sum / (T)members)};
  return values[op];
}

template <class T> static bool close(T a, T b)
{
  return fabs((double)a - (double)b) <= 1e-6 * fabs((double)b);
}

template <class T> static void test_all_reduce(ncclComm_t comm, ncclRedOp_t op, bool in_place)
{
  const size_t n = 11;
  on_device<T> x(elements<T>(rank, n)), y(std::vector<T>(n, (T)99));
  T *to = in_place ? x.at : y.at;
  OK(ncclAllReduce(x.at, to, n, type_of<T>::value, op, comm, stream));
  std::vector<T> got = in_place ? x.read() : y.read();
  for (size_t i = 0; i < n; i++) CHECK(close(got[i], reduced<T>(op, ranks, i)));
}

template <class T> static void test_reduce(ncclComm_t comm, ncclRedOp_t op, bool in_place)
{
  const size_t n = 7;
  int root = ranks - 1;
  on_device<T> x(elements<T>(rank, n)), y(std::vector<T>(n, (T)99));
  T *to = rank != root ? nullptr : in_place ? x.at : y.at;
  OK(ncclReduce(x.at, to, n, type_of<T>::value, op, root, comm, stream));
  std::vector<T> got = rank != root || in_place ? x.read() : y.read();
  for (size_t i = 0; i < n; i++)
    CHECK(rank == root ? close(got[i], reduced<T>(op, ranks, i)) : got[i] == (T)element(rank, i));
}

template <class T> static void test_reduce_scatter(ncclComm_t comm, ncclRedOp_t op, bool in_place)
{
  const size_t n = 4, all = n * (size_t)ranks, first = n * (size_t)rank;
  on_device<T> x(elements<T>(rank, all)), y(std::vector<T>(n, (T)99));
  T *to = in_place ? x.at + first : y.at;
  OK(ncclReduceScatter(x.at, to, n, type_of<T>::value, op, comm, stream));
  std::vector<T> got = in_place ? x.read() : y.read();
  for (size_t i = 0; i < n; i++)
    CHECK(close(got[in_place ? first + i : i], reduced<T>(op, ranks, first + i)));
}

template <class T> static void test_all_gather(ncclComm_t comm, bool in_place)
{
  const size_t n = 5;
  std::vector<T> mine = elements<T>(rank, n), whole(n * (size_t)ranks, (T)99);
  for (size_t i = 0; in_place && i < n; i++) whole[n * (size_t)rank + i] = mine[i];
  on_device<T> x(mine), y(whole);
  const T *from = in_place ? y.at + n * (size_t)rank : x.at;
  OK(ncclAllGather(from, y.at, n, type_of<T>::value, comm, stream));
  std::vector<T> got = y.read();
  for (int r = 0; r < ranks; r++)
    for (size_t i = 0; i < n; i++) CHECK(got[n * (size_t)r + i] == (T)element(r, i));
}

template <class T> static void test_broadcast(ncclComm_t comm, int root, bool in_place)
{
  const size_t n = 6;
  on_device<T> x(elements<T>(rank, n)), y(std::vector<T>(n, (T)99));
  const T *from = rank == root ? x.at : nullptr;
  T *to = in_place ? x.at : y.at;
  OK(ncclBroadcast(from, to, n, type_of<T>::value, root, comm, stream));
  std::vector<T> got = in_place ? x.read() : y.read();
  for (size_t i = 0; i < n; i++) CHECK(got[i] == (T)element(root, i));
}

template <class T> static void test_type(ncclComm_t comm)
{
  for (int in_place = 0; in_place < 2; in_place++) {
    for (int op = 0; op < 5; op++) {
      test_all_reduce<T>(comm, (ncclRedOp_t)op, in_place);
      test_reduce<T>(comm, (ncclRedOp_t)op, in_place);
      test_reduce_scatter<T>(comm, (ncclRedOp_t)op, in_place);
    }
    test_all_gather<T>(comm, in_place);
    for (int root = 0; root < ranks; root++) test_broadcast<T>(comm, root, in_place);
  }
}

// Each sends to the next, and all exchange with all; sizes differ by pair and one is empty.
static void test_groups(ncclComm_t comm)
{
  const size_t most = 16;
  int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  on_device<float> x(elements<float>(rank, most)), y(std::vector<float>(most * (size_t)ranks, -1));
  OK(ncclGroupStart());
  OK(ncclSend(x.at, 9, ncclFloat, next, comm, stream));
  OK(ncclRecv(y.at, 9, ncclFloat, before, comm, stream));
  OK(ncclGroupEnd());
  std::vector<float> got = y.read();
  for (size_t i = 0; i < most; i++) CHECK(got[i] == (i < 9 ? (float)element(before, i) : -1));

  OK(ncclGroupStart());
  for (int r = 0; r < ranks; r++) {
    OK(ncclRecv(y.at + most * (size_t)r, (size_t)(rank + r), ncclFloat, r, comm, stream));
    OK(ncclSend(x.at, (size_t)(rank + r), ncclFloat, r, comm, stream));
  }
  OK(ncclGroupStart()); // a group within a group ends with the outer one
  OK(ncclAllReduce(x.at, x.at, 3, ncclFloat, ncclMax, comm, stream));
  OK(ncclGroupEnd());
  OK(ncclGroupEnd());
  got = y.read();
  for (int r = 0; r < ranks; r++)
    for (size_t i = 0; i < (size_t)(rank + r); i++)
      CHECK(got[most * (size_t)r + i] == (float)element(r, i));
  got = x.read();
  for (size_t i = 0; i < 3; i++) CHECK(got[i] == reduced<float>(ncclMax, ranks, i));
}

static void test_plain_send(ncclComm_t comm)
{
  on_device<int> x(elements<int>(rank, 8));
  if (rank == 0) OK(ncclSend(x.at, 8, ncclInt, 1, comm, stream));
  if (rank == 1) {
    OK(ncclRecv(x.at, 8, ncclInt, 0, comm, stream));
    std::vector<int> got = x.read();
    for (size_t i = 0; i < 8; i++) CHECK(got[i] == element(0, i));
  }
}

// Two ranks send two things each before either receives one: on a device only the sends' streams
// wait.
static void test_sends_in_line(ncclComm_t comm)
{
  cudaStream_t receives;
  ncclComm_t back;
  OK(ncclCommSplit(comm, 0, rank, &back, NULL));
  CHECK(cudaStreamCreateWithFlags(&receives, cudaStreamNonBlocking) == cudaSuccess);
  on_device<int> x(elements<int>(rank, 8)), y(elements<int>(rank + 2, 8));
  on_device<int> first(elements<int>(9, 8)), second(elements<int>(9, 8));
  for (int i = 0; i < 2 && rank < 2; i++)
    OK(ncclSend(i ? y.at : x.at, 8, ncclInt, 1 - rank, rank ? back : comm, stream));
  for (int i = 0; i < 2 && rank < 2; i++)
    OK(ncclRecv(i ? second.at : first.at, 8, ncclInt, 1 - rank, rank ? comm : back, receives));
  CHECK(cudaStreamSynchronize(receives) == cudaSuccess);
  if (rank < 2)
    CHECK(first.read()[3] == element(1 - rank, 3) && second.read()[3] == element(3 - rank, 3));
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(receives) == cudaSuccess);
  OK(ncclCommDestroy(back));
}

// Rank 0 alone, the others together, in reverse order; then one that leaves rank 1 out.
static void test_splits(ncclComm_t comm)
{
  ncclComm_t part, outer;
  int count, member;
  OK(ncclCommSplit(comm, rank == 0 ? 7 : 3, -rank, &part, NULL));
  OK(ncclCommCount(part, &count));
  OK(ncclCommUserRank(part, &member));
  CHECK(count == (rank == 0 ? 1 : ranks - 1) && member == (rank == 0 ? 0 : ranks - 1 - rank));
  on_device<int> x(std::vector<int>(1, rank)), all(std::vector<int>((size_t)ranks, -1));
  OK(ncclAllGather(x.at, all.at, 1, ncclInt, part, stream));
  std::vector<int> got = all.read();
  for (int i = 0; i < count; i++) CHECK(got[(size_t)i] == (rank == 0 ? 0 : ranks - 1 - i));

  OK(ncclGroupStart());
  OK(ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, rank, &outer, NULL));
  OK(ncclGroupEnd());
  CHECK((outer == NULL) == (rank == 1));
  if (outer) {
    OK(ncclAllReduce(x.at, x.at, 1, ncclInt, ncclSum, outer, stream));
    CHECK(x.read()[0] == ranks * (ranks - 1) / 2 - 1);
    OK(ncclCommDestroy(outer));
  }
  OK(ncclCommFinalize(part));
  OK(ncclCommDestroy(part));
}

static void test_rest(ncclComm_t comm)
{
  ncclResult_t error;
  int version, device;
  void *memory;
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, stream));
  OK(ncclCommGetAsyncError(comm, &error));
  CHECK(error == ncclSuccess);
  OK(ncclGetVersion(&version));
  CHECK(version > 20000);
  OK(ncclCommCuDevice(comm, &device));
  CHECK(device == rank);
  CHECK(strlen(ncclGetErrorString(ncclInvalidUsage)) > 0 && ncclGetLastError(comm));
  OK(ncclMemAlloc(&memory, 100));
  OK(ncclMemFree(memory));
}

// The ranks share the id through a file where MPI is not theirs to use before NCCL is up.
static ncclUniqueId share_id(const char *path)
{
  ncclUniqueId id;
  std::string half = std::string(path) + ".half";
  if (rank == 0) {
    OK(ncclGetUniqueId(&id));
    int f = open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(f >= 0 && write(f, &id, sizeof id) == (ssize_t)sizeof id && close(f) == 0);
    CHECK(rename(half.c_str(), path) == 0);
    return id;
  }
  int f;
  while ((f = open(path, O_RDONLY)) < 0) usleep(1000);
  CHECK(read(f, &id, sizeof id) == (ssize_t)sizeof id && close(f) == 0);
  return id;
}

static int number(const char *name)
{
  const char *text = getenv(name);
  return text ? atoi(text) : -1;
}

static int test_as_rank(const char *path)
{
  ncclUniqueId id;
  if (path) {
    rank =
        number("OMPI_COMM_WORLD_RANK") >= 0 ? number("OMPI_COMM_WORLD_RANK") : number("PMI_RANK");
    ranks = 3;
    id = share_id(path);
  } else {
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0) OK(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  }
  CHECK(cudaSetDevice(rank) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  ncclComm_t comm;
  OK(ncclCommInitRank(&comm, ranks, id, rank));
  test_type<int8_t>(comm);
  test_type<uint8_t>(comm);
  test_type<int32_t>(comm);
  test_type<uint32_t>(comm);
  test_type<int64_t>(comm);
  test_type<uint64_t>(comm);
  test_type<float>(comm);
  test_type<double>(comm);
  test_type<bf16>(comm);
  test_groups(comm);
  test_plain_send(comm);
  test_sends_in_line(comm);
  test_splits(comm);
  test_rest(comm);
  OK(ncclCommDestroy(comm));
  if (!path) MPI_Finalize();
  printf("rank %d: ok\n", rank);
  return 0;
}

static void test_under_mpirun(const std::string &argument)
{
  std::string output;
  int status = run_command(own_command(3, argument), output);
  for (const char *line : {"rank 0: ok", "rank 1: ok", "rank 2: ok"})
    if (status != 0 || output.find(line) == std::string::npos) {
      fprintf(stderr, "status %d\n%s", status, output.c_str());
      exit(1);
    }
}

int main(int argc, char **argv)
{
  if (argc > 1) return test_as_rank(strcmp(argv[1], "mpi") == 0 ? NULL : argv[1]);
  char folder[] = "/tmp/standin-XXXXXX";
  CHECK(mkdtemp(folder));
  test_under_mpirun("mpi");
  test_under_mpirun(std::string(folder) + "/id");
  CHECK(unlink((std::string(folder) + "/id").c_str()) == 0 && rmdir(folder) == 0);
  puts("nccl: ok");
}
