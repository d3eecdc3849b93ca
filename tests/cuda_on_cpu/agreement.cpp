// A stand-in for CUDA, for tests only: the checks between the ranks of its NCCL.
//
// Before every common operation the ranks exchange notices about it, over an MPI communicator that
// serves nothing else and that all NCCL communicators share. So notices arrive in the order of the
// calls, and a rank that is in another collective, or in one of another communicator, count, type
// or operation, is detected at once. Notices of a send or a receive outside of groups, on a
// communicator that is a part of another one, have a tag of that part: two ranks may have several
// such communicators, and use each in an order of its own. A rank that never comes is detected
// after CUDA_ON_CPU_DEADLINE seconds (60 unless set).
#include "nccl_inside.h"

#include <cstdio>
#include <cuda_bf16.h>
#include <sched.h>
#include <set>
#include <string>
#include <time.h>

namespace cuda_on_cpu
{
namespace
{
MPI_Comm channel = MPI_COMM_NULL;

template <class T> void divide(void *data, size_t count, int by)
{
  T *x = static_cast<T *>(data);
  for (size_t i = 0; i < count; i++) x[i] = (T)(x[i] / (T)by);
}

template <> void divide<__nv_bfloat16>(void *data, size_t count, int by)
{
  __nv_bfloat16 *x = static_cast<__nv_bfloat16 *>(data);
  for (size_t i = 0; i < count; i++) x[i] = __float2bfloat16_rn(__bfloat162float(x[i]) / (float)by);
}

// MPI has no bfloat16: each step of a reduction is computed in float, and rounded.
template <float (*two)(float, float)>
void reduce_bfloat16(void *from, void *to, int *count, MPI_Datatype *)
{
  const __nv_bfloat16 *a = static_cast<const __nv_bfloat16 *>(from);
  __nv_bfloat16 *b = static_cast<__nv_bfloat16 *>(to);
  for (int i = 0; i < *count; i++)
    b[i] = __float2bfloat16_rn(two(__bfloat162float(a[i]), __bfloat162float(b[i])));
}

float sum_of(float a, float b)
{
  return a + b;
}
float product_of(float a, float b)
{
  return a * b;
}
float greater_of(float a, float b)
{
  return a > b || a != a ? a : b;
}
float less_of(float a, float b)
{
  return a < b || a != a ? a : b;
}

MPI_Op make_op(MPI_User_function *reduce)
{
  MPI_Op op;
  MPI_Op_create(reduce, 1, &op);
  return op;
}

// A program that did not initialise MPI itself need not finalise it either. A program that fails
// must not wait for the ranks that continue.
void end_mpi(int status, void *)
{
  int ended;
  MPI_Finalized(&ended);
  if (ended) return;
  if (status) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}

std::string describe(const notice &n)
{
  std::string text = std::string(n.call) + " on communicator " + n.name;
  bool point = strcmp(n.call, "ncclSend") == 0 || strcmp(n.call, "ncclRecv") == 0;
  if (!point) text += ", call " + std::to_string(n.number + 1) + " on it";
  if (n.type >= 0)
    text += ", " + std::to_string(n.count) + " x " + find_type(n.call, (ncclDataType_t)n.type).name;
  if (n.op >= 0) text += std::string(", ") + find_op(n.call, (ncclRedOp_t)n.op).name;
  if (n.root >= 0) text += ", root " + std::to_string(n.root);
  return text;
}

double now_in_seconds()
{
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

} // namespace

// ---- types and operations

const type_row &find_type(const char *call, ncclDataType_t type)
{
  static const type_row rows[] = {
      {ncclInt8, "ncclInt8", 1, MPI_INT8_T, divide<int8_t>},
      {ncclUint8, "ncclUint8", 1, MPI_UINT8_T, divide<uint8_t>},
      {ncclInt32, "ncclInt32", 4, MPI_INT32_T, divide<int32_t>},
      {ncclUint32, "ncclUint32", 4, MPI_UINT32_T, divide<uint32_t>},
      {ncclInt64, "ncclInt64", 8, MPI_INT64_T, divide<int64_t>},
      {ncclUint64, "ncclUint64", 8, MPI_UINT64_T, divide<uint64_t>},
      {ncclFloat32, "ncclFloat32", 4, MPI_FLOAT, divide<float>},
      {ncclFloat64, "ncclFloat64", 8, MPI_DOUBLE, divide<double>},
      {ncclBfloat16, "ncclBfloat16", 2, MPI_UINT16_T, divide<__nv_bfloat16>},
  };
  for (const type_row &r : rows)
    if (r.type == type) return r;
  fail(call, "the stand-in does not know type %d of NCCL", (int)type);
}

const op_row &find_op(const char *call, ncclRedOp_t op)
{
  static const op_row rows[] = {
      {ncclSum, "ncclSum", MPI_SUM}, {ncclProd, "ncclProd", MPI_PROD},
      {ncclMax, "ncclMax", MPI_MAX}, {ncclMin, "ncclMin", MPI_MIN},
      {ncclAvg, "ncclAvg", MPI_SUM}, // divided afterwards
  };
  for (const op_row &r : rows)
    if (r.op == op) return r;
  fail(call, "the stand-in does not know operation %d", (int)op);
}

MPI_Op find_mpi_op(const char *call, ncclRedOp_t op, ncclDataType_t type)
{
  if (type != ncclBfloat16) return find_op(call, op).mpi;
  static const MPI_Op sum = make_op(reduce_bfloat16<sum_of>);
  static const MPI_Op product = make_op(reduce_bfloat16<product_of>);
  static const MPI_Op most = make_op(reduce_bfloat16<greater_of>);
  static const MPI_Op least = make_op(reduce_bfloat16<less_of>);
  return op == ncclProd ? product : op == ncclMax ? most : op == ncclMin ? least : sum;
}

// ---- notices

void begin_mpi()
{
  int begun, ended;
  MPI_Finalized(&ended);
  if (ended) fail("NCCL", "MPI has ended already");
  MPI_Initialized(&begun);
  if (begun) return;
  int given;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
    fail("NCCL", "MPI could not begin");
  on_exit(end_mpi, nullptr);
}

void begin_notices(const char *call)
{
  if (channel != MPI_COMM_NULL) return;
  int ranks;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<MPI_Request> requests(1);
  MPI_Comm_idup(MPI_COMM_WORLD, &channel, &requests[0]);
  wait_all(call, requests, {-1}, [](size_t) {});
}

MPI_Comm notice_channel()
{
  return channel;
}

uint64_t mix(uint64_t hash, uint64_t value)
{
  for (int i = 0; i < 8; i++) hash = (hash ^ (value >> 8 * i & 0xff)) * 0x100000001b3ull;
  return hash;
}

notice about(const char *call, ncclComm_t comm)
{
  notice n = {};
  snprintf(n.call, sizeof n.call, "%s", call);
  snprintf(n.name, sizeof n.name, "%s", comm->name);
  n.comm = comm->id;
  n.number = comm->calls;
  n.type = n.op = n.root = -1;
  return n;
}

bool agree(const notice &a, const notice &b)
{
  return strcmp(a.call, b.call) == 0 && a.comm == b.comm && a.number == b.number &&
         a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root &&
         a.unique == b.unique;
}

void report_mismatch(const notice &mine, const notice &theirs, int their_rank)
{
  int my_rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  fail(mine.call, "the ranks disagree: rank %d is in %s; rank %d is in %s%s", my_rank,
       describe(mine).c_str(), their_rank, describe(theirs).c_str(),
       mine.unique != theirs.unique ? "; their unique ids differ" : "");
}

void wait_all(const char *call, std::vector<MPI_Request> &requests, const std::vector<int> &peers,
              const std::function<void(size_t)> &arrived)
{
  long deadline = setting("CUDA_ON_CPU_DEADLINE", 60);
  double begun = now_in_seconds();
  std::vector<bool> done(requests.size());
  for (size_t left = requests.size(); left;) {
    bool moved = false;
    for (size_t i = 0; i < requests.size(); i++) {
      int flag = 0;
      if (done[i]) continue;
      MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
      if (!flag) continue;
      done[i] = moved = true;
      left--;
      arrived(i);
    }
    if (moved) continue;
    if (now_in_seconds() - begun > (double)deadline) {
      std::set<int> missing;
      for (size_t i = 0; i < requests.size(); i++)
        if (!done[i]) missing.insert(peers[i]);
      std::string text;
      for (int r : missing) text += (text.empty() ? "" : ", ") + std::to_string(r);
      fail(call, "waited %ld s in vain for rank(s) %s", deadline, text.c_str());
    }
    push_sends();
    sched_yield();
  }
}

void agree_all(const notice &mine, const std::vector<int> &world,
               const std::function<void(const notice &, int)> &fits)
{
  int self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self);
  std::vector<notice> theirs(world.size());
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
  for (size_t i = 0; i < world.size(); i++) {
    if (world[i] == self) continue;
    peers.push_back(world[i]);
    requests.emplace_back();
    MPI_Irecv(&theirs[i], sizeof(notice), MPI_BYTE, world[i], 0, channel, &requests.back());
  }
  size_t receives = requests.size();
  for (size_t i = 0; i < receives; i++) {
    peers.push_back(peers[i]);
    requests.emplace_back();
    MPI_Isend(&mine, sizeof(notice), MPI_BYTE, peers[i], 0, channel, &requests.back());
  }
  wait_all(mine.call, requests, peers, [&](size_t i) {
    if (i >= receives) return;
    size_t member = 0;
    while (world[member] != peers[i]) member++;
    if (!agree(mine, theirs[member])) report_mismatch(mine, theirs[member], peers[i]);
    fits(theirs[member], peers[i]);
  });
}

void agree_all(ncclComm_t comm, const notice &mine)
{
  agree_all(mine, comm->world, [](const notice &, int) {});
  comm->calls++;
}
} // namespace cuda_on_cpu
