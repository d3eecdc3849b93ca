// A stand-in for CUDA that exists for tests only: what the sources of its NCCL share.
#ifndef CUDA_ON_CPU_NCCL_INSIDE_H
#define CUDA_ON_CPU_NCCL_INSIDE_H

#define OMPI_SKIP_MPICXX  1
#define MPICH_SKIP_MPICXX 1
#include "nccl.h"
#include "stand_in.h"

#include <mpi.h>
#include <vector>

struct ncclComm {
  MPI_Comm mpi;
  uint64_t id;   // the same for all members, another for each communicator
  char name[64]; // for messages: how it came to be
  int rank, ranks;
  int device;
  std::vector<int> world; // each member's rank in MPI_COMM_WORLD
  uint64_t calls;         // made on it so far
  unsigned splits;
  int part; // of which split of its parent it is, from 1 on; 0: of none
  bool blocking;
  int answers_open; // ncclInProgress, so often, before ncclCommGetAsyncError says ncclSuccess
};

namespace cuda_on_cpu
{
// ---- agreement.cpp

struct type_row {
  ncclDataType_t type;
  const char *name;
  size_t bytes;
  MPI_Datatype mpi;
  void (*divide)(void *data, size_t count, int by);
};

struct op_row {
  ncclRedOp_t op;
  const char *name;
  MPI_Op mpi;
};

const type_row &find_type(const char *call, ncclDataType_t type); // fails on one it does not know
const op_row &find_op(const char *call, ncclRedOp_t op);          // likewise
MPI_Op find_mpi_op(const char *call, ncclRedOp_t op, ncclDataType_t type);

// What a rank tells another one about a call.
struct notice {
  char call[24];
  char name[64];         // of the communicator
  char host[80];         // ncclCommInitRank: where the rank is
  uint64_t comm, number; // the communicator's id; which call on it this is (not for send, recv)
  uint64_t count;
  uint64_t unique;    // ncclCommInitRank: of the id
  int type, op, root; // -1 where the call has none
  int device;         // ncclCommInitRank
};

// Begins MPI where the program has not.
void begin_mpi();

// Makes what notices travel on; of all ranks at once.
void begin_notices(const char *call);
MPI_Comm notice_channel();

uint64_t mix(uint64_t hash, uint64_t value);
notice about(const char *call, ncclComm_t comm);
bool agree(const notice &a, const notice &b);
[[noreturn]] void report_mismatch(const notice &mine, const notice &theirs, int their_rank);

// Waits for all requests. Calls arrived(i) as each completes. After the deadline fails, naming the
// ranks that peers[i] gives for those still open.
void wait_all(const char *call, std::vector<MPI_Request> &requests, const std::vector<int> &peers,
              const std::function<void(size_t)> &arrived);

// Tells the other members of `world` and hears from them; fails where one says something else.
// Then `fits` may look at what each says, and at its rank.
void agree_all(const notice &mine, const std::vector<int> &world,
               const std::function<void(const notice &, int)> &fits);
void agree_all(ncclComm_t comm, const notice &mine);

// ---- communicator.cpp

// Fails unless the communicator is alive, and not being made.
void check_comm(const char *call, ncclComm_t comm);

// ---- nccl.cpp

// Sends that nothing has waited for go on.
void push_sends();

// Does the work at the end of the group, or at once where there is none.
void in_group(const std::function<void()> &work);
} // namespace cuda_on_cpu

#endif
