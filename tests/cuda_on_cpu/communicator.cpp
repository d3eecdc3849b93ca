// A stand-in for CUDA, for tests only: the communicators of its NCCL.
#include "nccl_inside.h"

#include <cstdio>
#include <set>
#include <string>
#include <unistd.h>

using namespace cuda_on_cpu;

namespace
{
std::set<ncclComm_t> comms;
std::set<void *> registered;

ncclComm_t new_comm(MPI_Comm mpi, uint64_t id, const char *name)
{
  ncclComm_t comm = new ncclComm{};
  comm->mpi = mpi;
  comm->id = id;
  comm->device = current_device();
  snprintf(comm->name, sizeof comm->name, "%s", name);
  MPI_Comm_rank(mpi, &comm->rank);
  MPI_Comm_size(mpi, &comm->ranks);
  std::vector<int> here((size_t)comm->ranks);
  for (int i = 0; i < comm->ranks; i++) here[(size_t)i] = i;
  comm->world.resize((size_t)comm->ranks);
  MPI_Group group, whole;
  MPI_Comm_group(mpi, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &whole);
  MPI_Group_translate_ranks(group, comm->ranks, here.data(), whole, comm->world.data());
  MPI_Group_free(&group);
  MPI_Group_free(&whole);
  comms.insert(comm);
  return comm;
}

// NCCL accepts one rank per GPU of a host; NCCL_HOSTID makes a process count as another host.
void name_host(char *text, size_t bytes)
{
  const char *given = getenv("NCCL_HOSTID");
  if (given) {
    snprintf(text, bytes, "%s", given);
    return;
  }
  gethostname(text, bytes - 1);
  text[bytes - 1] = '\0';
}

const char MARK[] = "cuda_on_cpu unique id";

// The settings of a config, or the defaults; `parent` is the communicator that is split.
struct settings {
  bool blocking;
  std::string name;
};

settings read_config(const char *call, const ncclConfig_t *config, ncclComm_t parent)
{
  const ncclConfig_t plain = NCCL_CONFIG_INITIALIZER;
  settings s = {!parent || parent->blocking, ""};
  if (!config) return s;
  if (config->size != plain.size || config->magic != plain.magic)
    fail(call, "the config does not begin as NCCL_CONFIG_INITIALIZER");
  if (config->blocking != plain.blocking) {
    if (config->blocking != 0 && config->blocking != 1)
      fail(call, "the config's blocking is %d", config->blocking);
    s.blocking = config->blocking;
  }
  if (config->commName) s.name = config->commName;
  return s;
}

// A non-blocking communicator is ready when ncclCommGetAsyncError says so, at its second call.
void heed(ncclComm_t comm, const settings &s)
{
  comm->blocking = s.blocking;
  comm->answers_open = s.blocking ? 0 : 1;
  if (!s.name.empty()) snprintf(comm->name, sizeof comm->name, "%s", s.name.c_str());
}

void init_rank(ncclComm_t *comm, int ranks, const ncclUniqueId &id, int rank)
{
  const char *call = "ncclCommInitRank";
  static unsigned made;
  begin_mpi();
  int world_rank, world_ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_ranks);
  if (ranks != world_ranks || rank != world_rank)
    fail(call, "rank %d of %d was asked for, but under MPI this is rank %d of %d", rank, ranks,
         world_rank, world_ranks);
  if (memcmp(id.internal, MARK, sizeof MARK) != 0)
    fail(call, "the unique id is not one of ncclGetUniqueId");
  begin_notices(call);

  ncclComm first = {};
  notice mine = about(call, &first);
  snprintf(mine.name, sizeof mine.name, "world");
  mine.number = made++;
  mine.count = (uint64_t)ranks;
  for (char c : id.internal) mine.unique = mix(mine.unique, (uint64_t)(unsigned char)c);
  mine.device = current_device();
  name_host(mine.host, sizeof mine.host);
  std::vector<int> world((size_t)ranks);
  for (int i = 0; i < ranks; i++) world[(size_t)i] = i;
  agree_all(mine, world, [&](const notice &theirs, int peer) {
    if (theirs.device == mine.device && strcmp(theirs.host, mine.host) == 0)
      fail(call, "ranks %d and %d both use device %d of host %s, which NCCL refuses", world_rank,
           peer, mine.device, mine.host);
  });
  MPI_Comm mpi;
  MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
  *comm = new_comm(mpi, mix(mine.unique, made), made > 1 ? "another world" : "world");
}

void split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm)
{
  check_comm("ncclCommSplit", comm);
  agree_all(comm, about("ncclCommSplit", comm));
  unsigned number = ++comm->splits;
  MPI_Comm mpi;
  MPI_Comm_split(comm->mpi, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &mpi);
  *newcomm = nullptr;
  if (mpi == MPI_COMM_NULL) return;
  char name[sizeof comm->name];
  snprintf(name, sizeof name, "%.24s/split %u, color %d", comm->name, number, color);
  *newcomm = new_comm(mpi, mix(mix(comm->id, number), (uint64_t)(unsigned)color), name);
  (*newcomm)->part = (int)number;
}

void check_alive(const char *call, ncclComm_t comm)
{
  host_call(call);
  if (!comms.count(comm)) fail(call, "%p is no live communicator", (const void *)comm);
}

void free_comm(const char *call, ncclComm_t comm)
{
  check_alive(call, comm);
  comms.erase(comm);
  delete comm; // MPI's own stays: freeing it is collective
}
} // namespace

void cuda_on_cpu::check_comm(const char *call, ncclComm_t comm)
{
  check_alive(call, comm);
  if (comm->answers_open)
    fail(call, "the communicator is still being made: ask ncclCommGetAsyncError until it is");
}

ncclResult_t ncclGetVersion(int *version)
{
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  host_call("ncclGetUniqueId");
  memset(id, 0, sizeof *id);
  memcpy(id->internal, MARK, sizeof MARK);
  if (getentropy(id->internal + sizeof MARK, 16) != 0) fail("ncclGetUniqueId", "no random bytes");
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
  host_call("ncclCommInitRank");
  not_in_capture("ncclCommInitRank");
  const settings s = read_config("ncclCommInitRankConfig", config, nullptr);
  *comm = nullptr;
  in_group([=] {
    init_rank(comm, ranks, id, rank);
    heed(*comm, s);
  });
  return s.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
  check_comm("ncclCommSplit", comm);
  not_in_capture("ncclCommSplit");
  const settings s = read_config("ncclCommSplit", config, comm);
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) fail("ncclCommSplit", "color %d", color);
  *newcomm = nullptr;
  in_group([=] {
    split(comm, color, key, newcomm);
    if (*newcomm) heed(*newcomm, s);
  });
  return s.blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
  check_comm("ncclCommFinalize", comm);
  return ncclSuccess; // nothing is ever in flight
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  free_comm("ncclCommDestroy", comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
  free_comm("ncclCommAbort", comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
  check_alive("ncclCommGetAsyncError", comm);
  *error = comm->answers_open ? ncclInProgress : ncclSuccess;
  if (comm->answers_open) comm->answers_open--;
  const char *broken = getenv("CUDA_ON_CPU_REMOTE_ERROR");
  if (broken && access(broken, F_OK) == 0) *error = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
  check_comm("ncclCommCount", comm);
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
  check_comm("ncclCommUserRank", comm);
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
  check_comm("ncclCommCuDevice", comm);
  *device = comm->device;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclUnhandledCudaError:
    return "unhandled cuda error";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInternalError:
    return "internal error";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  case ncclInProgress:
    return "NCCL operation in progress";
  case ncclNumResults:
    break;
  }
  fail("ncclGetErrorString", "result %d is unknown here", (int)result);
}

const char *ncclGetLastError(ncclComm_t comm)
{
  if (comm) check_comm("ncclGetLastError", comm);
  return ""; // every failure here ends the job
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *pointer, size_t bytes, void **handle)
{
  check_comm("ncclCommRegister", comm);
  need_device("ncclCommRegister", "the buffer", pointer, bytes);
  registered.insert(*handle = new char);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
  check_comm("ncclCommDeregister", comm);
  if (!registered.erase(handle)) fail("ncclCommDeregister", "%p is not registered", handle);
  delete static_cast<char *>(handle);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **pointer, size_t bytes)
{
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *pointer)
{
  cudaFree(pointer);
  return ncclSuccess;
}
