// A stand-in for CUDA, for tests only: the collectives of its NCCL, over MPI.
#include "nccl_inside.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <memory>

using namespace cuda_on_cpu;

namespace
{
const int DATA_TAG = 1;

struct transfer { // a send or a receive, until the group ends
  bool send;
  void *data;
  size_t count;
  ncclDataType_t type;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
};

int group_depth;
std::vector<transfer> transfers;
std::vector<std::function<void()>> collectives;

int mpi_count(const char *call, size_t count)
{
  if (count > INT_MAX) fail(call, "%zu elements are more than the stand-in moves at once", count);
  return (int)count;
}

// ---- sends and receives

void check_transfer(const transfer &t)
{
  const char *call = t.send ? "ncclSend" : "ncclRecv";
  check_comm(call, t.comm);
  check_stream(call, t.stream);
  if (t.peer < 0 || t.peer >= t.comm->ranks)
    fail(call, "peer %d of a communicator of %d", t.peer, t.comm->ranks);
  mpi_count(call, t.count);
  need_device(call, "the buffer", t.data, t.count * find_type(call, t.type).bytes);
}

notice notice_of(const transfer &t)
{
  notice n = about("ncclSend", t.comm);
  n.number = 0; // sends and receives of a pair are matched by their order alone
  n.count = t.count;
  n.type = t.type;
  return n;
}

// First exchanges all notices, so that a receiver knows what comes; then the data, with sends that
// complete only when they are received, as NCCL's may.
void run_transfers(const std::vector<transfer> &all)
{
  std::vector<MPI_Request> requests(all.size());
  std::vector<notice> mine(all.size()), theirs(all.size());
  std::vector<int> peers(all.size());
  for (size_t i = 0; i < all.size(); i++) {
    const transfer &t = all[i];
    peers[i] = t.comm->world[(size_t)t.peer];
    mine[i] = notice_of(t);
    if (t.send)
      MPI_Isend(&mine[i], sizeof(notice), MPI_BYTE, peers[i], 0, notice_channel(), &requests[i]);
    else
      MPI_Irecv(&theirs[i], sizeof(notice), MPI_BYTE, peers[i], 0, notice_channel(), &requests[i]);
  }
  const char *call = all[0].send ? "ncclSend" : "ncclRecv";
  wait_all(call, requests, peers, [&](size_t i) {
    if (all[i].send || agree(mine[i], theirs[i])) return;
    snprintf(mine[i].call, sizeof mine[i].call, "ncclRecv");
    report_mismatch(mine[i], theirs[i], peers[i]);
  });
  for (size_t i = 0; i < all.size(); i++) {
    const transfer &t = all[i];
    MPI_Datatype type = find_type(call, t.type).mpi;
    int count = mpi_count(call, t.count);
    if (t.send)
      MPI_Issend(t.data, count, type, t.peer, DATA_TAG, t.comm->mpi, &requests[i]);
    else
      MPI_Irecv(t.data, count, type, t.peer, DATA_TAG, t.comm->mpi, &requests[i]);
  }
  wait_all(call, requests, peers, [](size_t) {});
}

// Like in NCCL, all transfers of a group are one piece of work on all of their streams.
void start_transfers(const std::vector<transfer> &all)
{
  std::vector<cudaStream_t> streams;
  for (const transfer &t : all)
    if (std::find(streams.begin(), streams.end(), t.stream) == streams.end())
      streams.push_back(t.stream);
  on_streams(all[0].send ? "ncclSend" : "ncclRecv", streams, [all] {
    for (const transfer &t : all)
      if (t.send) reads(t.data, t.count * find_type("ncclSend", t.type).bytes);
    for (const transfer &t : all)
      if (!t.send) writes(t.data, t.count * find_type("ncclRecv", t.type).bytes);
    run_transfers(all);
  });
}

// ---- outside of groups

// A send that is under way, until its stream, or one that waits for it, has further work.
struct sending {
  notice mine;
  std::vector<char> data; // a copy, for which nobody else waits
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
};
std::vector<std::shared_ptr<sending>> under_way;

void start_send(const transfer &t)
{
  on_stream("ncclSend", t.stream, [t] {
    const type_row &type = find_type("ncclSend", t.type);
    const char *from = static_cast<const char *>(t.data);
    auto s = std::make_shared<sending>();
    reads(from, t.count * type.bytes);
    const int peer = t.comm->world[(size_t)t.peer];
    *s = {notice_of(t),
          {from, from + t.count * type.bytes},
          std::vector<MPI_Request>(2),
          {peer, peer}};
    MPI_Isend(&s->mine, sizeof(notice), MPI_BYTE, peer, t.comm->part, notice_channel(),
              &s->requests[0]);
    MPI_Issend(s->data.data(), mpi_count("ncclSend", t.count), type.mpi, t.peer, DATA_TAG,
               t.comm->mpi, &s->requests[1]);
    under_way.push_back(s);
    over_when([s] {
      under_way.erase(std::find(under_way.begin(), under_way.end(), s));
      wait_all("ncclSend", s->requests, s->peers, [](size_t) {});
    });
  });
}

void start_receive(const transfer &t)
{
  on_stream("ncclRecv", t.stream, [t] {
    const type_row &type = find_type("ncclRecv", t.type);
    const notice mine = notice_of(t);
    notice theirs = {};
    std::vector<MPI_Request> request(1);
    const std::vector<int> peer = {t.comm->world[(size_t)t.peer]};
    writes(t.data, t.count * type.bytes);
    MPI_Irecv(&theirs, sizeof(notice), MPI_BYTE, peer[0], t.comm->part, notice_channel(),
              &request[0]);
    wait_all("ncclRecv", request, peer, [&](size_t) {
      if (agree(mine, theirs)) return;
      notice receive = mine;
      snprintf(receive.call, sizeof receive.call, "ncclRecv");
      report_mismatch(receive, theirs, peer[0]);
    });
    MPI_Irecv(t.data, mpi_count("ncclRecv", t.count), type.mpi, t.peer, DATA_TAG, t.comm->mpi,
              &request[0]);
    wait_all("ncclRecv", request, peer, [](size_t) {});
  });
}

ncclResult_t add_transfer(const transfer &t)
{
  check_transfer(t);
  if (group_depth)
    transfers.push_back(t);
  else if (t.send)
    start_send(t);
  else
    start_receive(t);
  return ncclSuccess;
}

// ---- collectives

struct collective {
  const char *call;
  const void *send;
  size_t send_count;
  void *receive;
  size_t receive_count;
  size_t count; // as the caller gave it
  ncclDataType_t type;
  int op, root; // -1: none
  ncclComm_t comm;
  cudaStream_t stream;
};

// Whether the shorter buffer is the rank's own part of the longer: NCCL's in-place form. Any other
// overlap is an error.
bool in_place(const collective &c, size_t offset_in_send, size_t offset_in_receive)
{
  size_t bytes = find_type(c.call, c.type).bytes;
  const char *s = static_cast<const char *>(c.send), *r = static_cast<const char *>(c.receive);
  if (s + offset_in_send * bytes == r + offset_in_receive * bytes) return true;
  if (s < r + c.receive_count * bytes && r < s + c.send_count * bytes)
    fail(c.call, "the buffers overlap, and not as a collective in place has them");
  return false;
}

// Checks the arguments, then runs `work` on the stream after all ranks have agreed.
ncclResult_t collect(const collective &c, const std::function<void()> &work)
{
  check_comm(c.call, c.comm);
  check_stream(c.call, c.stream);
  size_t bytes = find_type(c.call, c.type).bytes;
  if (c.op >= 0) find_op(c.call, (ncclRedOp_t)c.op);
  if (c.root < -1 || c.root >= c.comm->ranks)
    fail(c.call, "root %d of a communicator of %d", c.root, c.comm->ranks);
  mpi_count(c.call, c.count);
  need_device(c.call, "the send buffer", c.send, c.send_count * bytes);
  need_device(c.call, "the receive buffer", c.receive, c.receive_count * bytes);
  in_group([=] {
    check_comm(c.call, c.comm);
    on_stream(c.call, c.stream, [=] {
      notice mine = about(c.call, c.comm);
      mine.count = c.count;
      mine.type = c.type;
      mine.op = c.op;
      mine.root = c.root;
      reads(c.send, c.send_count * bytes);
      writes(c.receive, c.receive_count * bytes);
      agree_all(c.comm, mine);
      if (c.count) work();
    });
  });
  return ncclSuccess;
}

MPI_Datatype mpi_type(const collective &c)
{
  return find_type(c.call, c.type).mpi;
}

MPI_Op mpi_op(const collective &c)
{
  return find_mpi_op(c.call, (ncclRedOp_t)c.op, c.type);
}

void finish_average(const collective &c, void *data)
{
  if (c.op == ncclAvg) find_type(c.call, c.type).divide(data, c.count, c.comm->ranks);
}

} // namespace

void cuda_on_cpu::push_sends()
{
  for (const auto &s : under_way)
    for (MPI_Request &request : s->requests) {
      int flag;
      if (request != MPI_REQUEST_NULL) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
}

void cuda_on_cpu::in_group(const std::function<void()> &work)
{
  if (group_depth)
    collectives.push_back(work);
  else
    work();
}

// ---- collectives

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  collective c = {"ncclAllReduce", send, count, receive, count, count, type, op, -1, comm, stream};
  return collect(c, [=] {
    const void *from = in_place(c, 0, 0) ? MPI_IN_PLACE : send;
    MPI_Allreduce(from, receive, (int)count, mpi_type(c), mpi_op(c), comm->mpi);
    finish_average(c, receive);
  });
}

ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
  check_comm("ncclAllGather", comm);
  collective c = {"ncclAllGather", send, count, receive, count * (size_t)comm->ranks,
                  count,           type, -1,    -1,      comm,
                  stream};
  return collect(c, [=] {
    const void *from = in_place(c, 0, (size_t)comm->rank * count) ? MPI_IN_PLACE : send;
    MPI_Allgather(from, (int)count, mpi_type(c), receive, (int)count, mpi_type(c), comm->mpi);
  });
}

ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  check_comm("ncclReduceScatter", comm);
  collective c = {"ncclReduceScatter",
                  send,
                  count * (size_t)comm->ranks,
                  receive,
                  count,
                  count,
                  type,
                  op,
                  -1,
                  comm,
                  stream};
  return collect(c, [=] {
    // MPI's in-place form would leave the result at the start of the send buffer: reduces into a
    // copy instead.
    std::vector<char> result(count * find_type(c.call, type).bytes);
    in_place(c, (size_t)comm->rank * count, 0);
    MPI_Reduce_scatter_block(send, result.data(), (int)count, mpi_type(c), mpi_op(c), comm->mpi);
    memcpy(receive, result.data(), result.size());
    finish_average(c, receive);
  });
}

ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
  check_comm("ncclBroadcast", comm);
  if (root < 0) fail("ncclBroadcast", "root %d of a communicator of %d", root, comm->ranks);
  bool sends = root == comm->rank; // the others' send buffer is ignored
  collective c = {"ncclBroadcast",
                  sends ? send : nullptr,
                  sends ? count : 0,
                  receive,
                  count,
                  count,
                  type,
                  -1,
                  root,
                  comm,
                  stream};
  return collect(c, [=] {
    if (sends && !in_place(c, 0, 0)) memcpy(receive, send, count * find_type(c.call, type).bytes);
    MPI_Bcast(receive, (int)count, mpi_type(c), root, comm->mpi);
  });
}

ncclResult_t ncclReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
  check_comm("ncclReduce", comm);
  if (root < 0) fail("ncclReduce", "root %d of a communicator of %d", root, comm->ranks);
  bool receives = root == comm->rank; // the others' receive buffer is ignored
  collective c = {"ncclReduce",
                  send,
                  count,
                  receives ? receive : nullptr,
                  receives ? count : 0,
                  count,
                  type,
                  op,
                  root,
                  comm,
                  stream};
  return collect(c, [=] {
    const void *from = receives && in_place(c, 0, 0) ? MPI_IN_PLACE : send;
    MPI_Reduce(from, receive, (int)count, mpi_type(c), mpi_op(c), root, comm->mpi);
    if (receives) finish_average(c, receive);
  });
}

// ---- point to point

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
  return add_transfer({true, const_cast<void *>(send), count, type, peer, comm, stream});
}

ncclResult_t ncclRecv(void *receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  return add_transfer({false, receive, count, type, peer, comm, stream});
}

// ---- groups

ncclResult_t ncclGroupStart(void)
{
  host_call("ncclGroupStart");
  group_depth++;
  return ncclSuccess;
}

// Runs the sends and receives of the group first, all at once; then the rest, in its order.
ncclResult_t ncclGroupEnd(void)
{
  host_call("ncclGroupEnd");
  if (!group_depth) fail("ncclGroupEnd", "no group was started");
  if (--group_depth) return ncclSuccess;
  std::vector<transfer> all;
  std::vector<std::function<void()>> rest;
  all.swap(transfers);
  rest.swap(collectives);
  for (const transfer &t : all) check_transfer(t);
  if (!all.empty()) start_transfers(all);
  for (const auto &work : rest) work();
  return ncclSuccess;
}
