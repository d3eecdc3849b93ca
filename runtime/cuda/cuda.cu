// SPDX-License-Identifier: MIT
// The CUDA target: memory is a GPU's, ranks communicate by NCCL, and before that by MPI or over
// TCP. cuda/job.cu has the start and the end of a program.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cuda/kernels/math.h"
#include "cuda/ranks.h"
#include "cuda/steps.h"

cudaStream_t stream;
cudaEvent_t ready;

static ncclComm_t everyone;
static int groups_made;
static bool one_stream; // the groups' streams are `stream`
struct meeting meeting;
bool have_met;
#ifdef TPGEN_MPI
MPI_Comm over_mpi = MPI_COMM_NULL;
#endif

// ---- failing -----------------------------------------------------------------------------------

// NCCL is watched from the creation of its communicators to their release.
static bool communicating;

void cuda_abort()
{
  __atomic_store_n(&communicating, false, __ATOMIC_RELEASE);
  while (groups_made > 0)
    if (rank_communicators[--groups_made]) ncclCommAbort(rank_communicators[groups_made]);
  if (everyone) ncclCommAbort(everyone);
  everyone = NULL;
}

static bool is_broken(ncclComm_t comm, struct failure *what)
{
  ncclResult_t state = ncclSuccess, asked = ncclCommGetAsyncError(comm, &state);
  if (asked != ncclSuccess) state = asked;
  if (state == ncclSuccess || state == ncclInProgress) return false;
  const char *last = ncclGetLastError(comm);
  failed(what, "NCCL says: %s%s%s", ncclGetErrorString(state), last && *last ? ": " : "",
         last ? last : "");
  return true;
}

bool target_trouble(struct failure *what)
{
  int lost = __atomic_load_n(&have_met, __ATOMIC_ACQUIRE) ? meet_lost(&meeting) : -1;
  if (lost >= 0) {
    failed(what, "rank %d has gone away", lost);
    return true;
  }
  if (!__atomic_load_n(&communicating, __ATOMIC_ACQUIRE)) return false;
  for (int i = 0; i < program->ngroups; i++)
    if (rank_communicators[i] && is_broken(rank_communicators[i], what)) return true;
  return is_broken(everyone, what);
}

void target_abandon()
{
  if (__atomic_load_n(&communicating, __ATOMIC_ACQUIRE)) cuda_abort();
}

// ---- meeting before there is NCCL --------------------------------------------------------------

#ifdef TPGEN_MPI

static bool same_over_mpi(struct failure *why)
{
  enum { BYTES = 32 };
  char mine[BYTES] = "", first[BYTES];
  snprintf(mine, sizeof mine, "%s", program->hash);
  memcpy(first, mine, BYTES);
  WAITING("MPI_Bcast", MPI_Bcast(first, BYTES, MPI_CHAR, 0, over_mpi));
  if (memcmp(mine, first, BYTES) == 0) return true;
  return failed(why, "rank %d carries the program %.31s, but rank 0 carries %.31s: build it anew",
                rank->id, mine, first);
}

#endif

// The watchdog acts first: this is for times when it does not run.
static const struct meeting *met_ranks()
{
  const int limit = watch_limit();
  meeting.timeout = limit ? limit + MEETING_SECONDS : 0;
  return &meeting;
}

void target_share(void *bytes, size_t count)
{
  struct failure why;
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) {
    WAITING("MPI_Bcast", MPI_Bcast(bytes, (int)count, MPI_CHAR, 0, over_mpi));
    return;
  }
#endif
  bool shared = true;
  if (meeting.size > 1) WAITING("meet_share", shared = meet_share(met_ranks(), bytes, count, &why));
  if (!shared) fail_call(__FILE__, __LINE__, "meet_share", why.text);
}

int cuda_lowest(int value)
{
  int lowest = value;
  struct failure why;
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) {
    WAITING("MPI_Allreduce", MPI_Allreduce(&value, &lowest, 1, MPI_INT, MPI_MIN, over_mpi));
    return lowest;
  }
#endif
  bool agreed = true;
  if (meeting.size > 1)
    WAITING("meet_lowest", agreed = meet_lowest(met_ranks(), value, &lowest, &why));
  if (!agreed) fail_call(__FILE__, __LINE__, "meet_lowest", why.text);
  return lowest;
}

// Gathers bytes of each rank on all ranks, in their order.
static void gather(void *given, size_t bytes, void *all)
{
  struct failure why;
  memcpy(all, given, bytes);
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) {
    WAITING("MPI_Allgather",
            MPI_Allgather(given, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, over_mpi));
    return;
  }
#endif
  bool gathered = true;
  if (meeting.size > 1)
    WAITING("meet_gather", gathered = meet_gather(met_ranks(), given, bytes, all, &why));
  if (!gathered) fail_call(__FILE__, __LINE__, "meet_gather", why.text);
}

// The same for processes that see each other's process ids: of one boot of one machine, in one PID
// namespace.
static unsigned long long machine()
{
  unsigned long long hash = 14695981039346656037ull;
  char text[128] = "";
  struct stat space;
  FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
  size_t n = boot ? fread(text, 1, 64, boot) : 0;
  if (boot) fclose(boot);
  if (stat("/proc/self/ns/pid", &space) == 0)
    snprintf(text + n, sizeof text - n, "%llu", (unsigned long long)space.st_ino);
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
  return hash;
}

int target_first_failure(bool ok)
{
  int lowest = cuda_lowest(ok ? program->world : rank->id);
  return lowest < program->world ? lowest : -1;
}

// Gathers the numbers of all ranks, in pieces.
void target_combine(uint32_t *numbers, size_t count)
{
  const size_t AT_ONCE = 1024;
  uint32_t *all = (uint32_t *)malloc((size_t)program->world * AT_ONCE * sizeof *all);
  if (!all) fail_call(__FILE__, __LINE__, "malloc", "out of memory");
  for (size_t done = 0; done < count; done += AT_ONCE) {
    size_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
    gather(numbers + done, some * sizeof *all, all);
    for (size_t i = 0; i < some; i++) {
      numbers[done + i] = 0;
      for (size_t r = 0; r < (size_t)program->world; r++) numbers[done + i] ^= all[r * some + i];
    }
  }
  free(all);
}

bool target_same_program(struct failure *why)
{
#ifdef TPGEN_MPI
  if (over_mpi != MPI_COMM_NULL) return same_over_mpi(why);
#endif
  (void)why;
  return true; // the rendezvous over TCP has compared them
}

// The report of each rank about itself.
static struct process {
  unsigned long long machine;
  long long pid;
  char gpu[16]; // its PCI address: "0000:3B:00.0"
} * processes;

// ---- the device --------------------------------------------------------------------------------

// NCCL refuses two ranks of one host on one GPU. With different host names they communicate over
// the loopback: slow, but enough to try a program.
static void share_device()
{
  char host[32];
  snprintf(host, sizeof host, "tpgen-%d", rank->id);
  setenv("NCCL_HOSTID", host, 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  setenv("NCCL_IB_DISABLE", "1", 0);
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("NCCL_MNNVL_ENABLE", "0", 0);
}

// Collective. Finds the ranks on this machine, and whether one shares this rank's GPU.
static void see_neighbours()
{
  struct process me = {machine(), getpid(), ""};
  int device = 0;
  processes = (struct process *)calloc((size_t)program->world, sizeof *processes);
  if (!processes) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaDeviceGetPCIBusId(me.gpu, sizeof me.gpu, device));
  gather(&me, sizeof me, processes);
  for (int r = 0; r < program->world; r++)
    if (r != rank->id && processes[r].machine == me.machine && !strcmp(processes[r].gpu, me.gpu))
      share_device();
}

int target_neighbours(struct neighbour **list)
{
  int n = 0;
  *list = (struct neighbour *)calloc((size_t)program->world, sizeof **list);
  if (!*list) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  for (int r = 0; r < program->world; r++)
    if (processes[r].machine == processes[rank->id].machine)
      (*list)[n++] = {r, (int)processes[r].pid};
  return n;
}

static void open_device()
{
  CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_CUDA(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  prepare_products();
}

static void open_nccl()
{
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); // several communicators, one order
  if (rank->id == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  target_share(&id, sizeof id);
  WAITING("ncclCommInitRank",
          CHECK_NCCL(ncclCommInitRank(&everyone, program->world, id, rank->id)));
}

// A stream for each group with overlapped collectives: of the highest priority, so that they start
// between the blocks of running kernels.
//
// Collectives of several groups may then run at the same time, and each occupies its part of the
// GPU until the others of its group have started. There is no deadlock if those that were issued
// first, in the same order on all ranks, are never kept out by later ones: NCCL ensures this from
// 2.26 on, if NCCL_LAUNCH_ORDER_IMPLICIT is set. With an older version all run on one stream, one
// by one.
static void make_streams()
{
  enum { LAUNCHES_IN_ORDER = 22600 };
  int version = 0, lowest = 0, highest = 0;
  CHECK_NCCL(ncclGetVersion(&version));
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  one_stream = program->ngroups > 1 && version < LAUNCHES_IN_ORDER;
  for (int i = 0; i < program->ngroups; i++) {
    cudaStream_t *own = program->groups[i].stream;
    if (own && one_stream) *own = stream;
    if (own && !one_stream)
      CHECK_CUDA(cudaStreamCreateWithPriority(own, cudaStreamNonBlocking, highest));
  }
  for (int i = 0; i < program->nevents; i++)
    CHECK_CUDA(cudaEventCreateWithFlags(&program->events[i], cudaEventDisableTiming));
}

static void drop_streams()
{
  for (int i = 0; i < program->nevents; i++) cudaEventDestroy(program->events[i]);
  for (int i = 0; i < program->ngroups && !one_stream; i++)
    if (program->groups[i].stream) cudaStreamDestroy(*program->groups[i].stream);
}

void target_groups()
{
  const int n = program->ngroups;
  rank_communicators = (communicator *)calloc((size_t)n + 1, sizeof *rank_communicators);
  if (!rank_communicators) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  for (int i = 0; i < n; i++, groups_made++) {
    const int *members = rank->members[i];
    bool is_member = members[0] >= 0; // not all ranks are in the groups of two stages
    WAITING("ncclCommSplit", CHECK_NCCL(ncclCommSplit(
                                 everyone, is_member ? members[0] : NCCL_SPLIT_NOCOLOR,
                                 is_member ? place_in(members) : 0, &rank_communicators[i], NULL)));
  }
  if (n > 0) program->set_communicators(rank_communicators);
  make_streams();
  __atomic_store_n(&communicating, true, __ATOMIC_RELEASE);
}

// ---- memory ------------------------------------------------------------------------------------

static bool of_nccl; // memory was allocated by NCCL

// "78.3 GiB", "0.21 MiB"
static const char *size_text(size_t bytes, char to[32])
{
  if (bytes >= 1 << 30)
    snprintf(to, 32, "%.1f GiB", (double)bytes / (1 << 30));
  else
    snprintf(to, 32, "%.2f MiB", (double)bytes / (1 << 20));
  return to;
}

// Only the memory that is free now is available: CUDA, NCCL and other processes have taken theirs.
static bool is_free(size_t bytes, struct failure *why)
{
  size_t free_bytes = 0, total = 0;
  char a[32], b[32], c[32];
  int device = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total));
  if (bytes <= free_bytes) return true;
  return failed(
      why,
      "the program needs %s (plan.txt has the parts), but of GPU %d's %s only %s are free: "
      "see in nvidia-smi who has the rest, or let the plan need less: checkpoint = "
      "\"layer\", a smaller batch, more ranks to cut it over",
      size_text(bytes, a), device, size_text(total, b), size_text(free_bytes, c));
}

// NCCL's own memory: ranks of one machine can access it directly, and it can be registered. All of
// a rank's memory is one block, at the same offsets on all ranks.
void *target_allocate(size_t bytes, struct failure *why)
{
  void *memory = NULL;
  size_t some = bytes ? bytes : 1;
  if (!is_free(some, why)) return NULL;
  of_nccl = ncclMemAlloc(&memory, some) == ncclSuccess;
  if (!of_nccl) {
    cudaGetLastError(); // of ncclMemAlloc
    cudaError_t error = cudaMalloc(&memory, some);
    if (error != cudaSuccess) {
      failed(why, "no GPU memory for the program's %zu bytes: ncclMemAlloc says %s, cudaMalloc %s",
             bytes, ncclGetLastError(NULL), cudaGetErrorString(error));
      return NULL;
    }
  }
  CHECK_CUDA(cudaMemsetAsync(memory, 0, some, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  return memory;
}

void target_free(void *memory)
{
  if (of_nccl)
    ncclMemFree(memory);
  else
    cudaFree(memory);
}

size_t target_peak()
{
  return program->bytes; // nothing else is allocated
}

// From NVIDIA's data sheets, for dense products: FLOAT32, TFLOAT32, BFLOAT16. If a device's name
// contains two of these names, the first one is used.
static const struct {
  const char *name;
  double tflops[3];
} peaks[] = {
    {"A100", {19.5, 156, 312}},  {"H100 PCIe", {51, 378, 756}},  {"H100 NVL", {60, 417.5, 835}},
    {"H100", {67, 494.5, 989}},  {"H200 NVL", {60, 417.5, 835}}, {"H200", {67, 494.5, 989}},
    {"GH200", {67, 494.5, 989}}, {"GB200", {80, 1250, 2500}},    {"B200", {75, 1125, 2250}},
    {"L40S", {91.6, 183, 362}},
};

double target_peak_tflops()
{
  struct cudaDeviceProp about;
  int device = 0;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaGetDeviceProperties(&about, device));
  for (const auto &peak : peaks)
    if (strstr(about.name, peak.name)) return peak.tflops[program->arithmetic];
  return 0;
}

static void drop_communicators()
{
  while (groups_made > 0)
    if (rank_communicators[--groups_made]) ncclCommDestroy(rank_communicators[groups_made]);
  ncclCommDestroy(everyone);
  free(rank_communicators);
}

void cuda_join()
{
  see_neighbours();
  open_device();
  open_nccl();
}

void cuda_leave()
{
  __atomic_store_n(&communicating, false, __ATOMIC_RELEASE);
  close_steps(); // a graph holds communicators
  WAITING("ncclCommDestroy", drop_communicators());
  everyone = NULL;
  forget_products();
  drop_streams();
  cudaEventDestroy(ready);
  cudaStreamDestroy(stream);
  free(processes);
}
