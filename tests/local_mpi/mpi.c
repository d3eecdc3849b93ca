/* A collective is a list of parts that are sent and received, which progress side by side until all
   are over. */
#include "mpi.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comms.h"
#include "deferred.h"
#include "messages.h"
#include "rings.h"

enum { MOST_COMMS = 256, MOST_OPS = 16 };

static int ncomm;
static struct comm comms[MOST_COMMS];
static MPI_User_function *op_functions[MOST_OPS];

/* ---- exchanges ------------------------------------------------------------------------------- */

struct comm *ranks_comm(const char *call, MPI_Comm comm)
{
  if (comm < 0 || comm >= ncomm || comms[comm].n == 0)
    ranks_misuse(call, "no communicator", comm, 0);
  return &comms[comm];
}

enum { MOST_PARTS = 2 * MOST_RANKS };
struct exchange {
  const char *call;
  struct comm *comm;
  int n;
  struct message part[MOST_PARTS];
};

static struct exchange begin(const char *call, MPI_Comm of)
{
  return (struct exchange){.call = call, .comm = ranks_comm(call, of)};
}

static void add(struct exchange *e, int place, bool sends, const void *from, void *to, size_t bytes)
{
  struct message *m = &e->part[e->n++];
  *m = (struct message){.is_part = true,
                        .sends = sends,
                        .context = e->comm->context,
                        .peer = e->comm->world[place],
                        .bytes = bytes,
                        .from = from,
                        .to = to};
  strncpy(m->call, e->call + strlen("MPI_"), sizeof m->call - 1);
}

/* A send to the rank itself is a copy. */
static void add_send(struct exchange *e, int place, const void *from, size_t bytes)
{
  if (place != e->comm->me) add(e, place, true, from, NULL, bytes);
}

static void add_receive(struct exchange *e, int place, void *to, size_t bytes)
{
  if (place != e->comm->me) add(e, place, false, NULL, to, bytes);
}

/* One of the parts that are not over, those of ranks that have ended first; or NULL. */
static const struct message *awaited(const struct exchange *e)
{
  const struct message *one = NULL;
  for (int i = 0; i < e->n; i++)
    if (!e->part[i].over && (!one || ranks_has_ended(e->part[i].peer))) one = &e->part[i];
  return one;
}

static int finish(struct exchange *e)
{
  enum { YIELDS = 50 };
  const struct message *m;
  for (int i = 0; i < e->n; i++) ranks_begin_message(&e->part[i]);
  for (int idle = 0; (m = awaited(e)); idle++) {
    const uint32_t heard = ranks_news();
    const bool had_ended = ranks_has_ended(m->peer);
    if (ranks_progress()) {
      idle = -1;
      continue;
    }
    ranks_expect(e->call, m, had_ended);
    if (idle < YIELDS)
      sched_yield();
    else
      ranks_wait_for_news(e->call, heard);
  }
  size_t sent = 0, got = 0;
  for (int i = 0; i < e->n; i++) *(e->part[i].sends ? &sent : &got) += e->part[i].bytes;
  ranks_go_over_link(sent > got ? sent : got);
  return MPI_SUCCESS;
}

/* ---- types and operations -------------------------------------------------------------------- */

/* A type of so many bytes is this number and the bytes. */
enum { CONTIGUOUS = 1 << 8 };

size_t ranks_bytes_of(MPI_Datatype type)
{
  if (type >= CONTIGUOUS) return (size_t)(type - CONTIGUOUS);
  static const size_t sizes[] = {
      [MPI_CHAR] = 1,    [MPI_BYTE] = 1,    [MPI_UNSIGNED_CHAR] = 1, [MPI_UINT16_T] = 2,
      [MPI_INT] = 4,     [MPI_INT32_T] = 4, [MPI_UINT32_T] = 4,      [MPI_INT64_T] = 8,
      [MPI_FLOAT] = 4,   [MPI_DOUBLE] = 8,  [MPI_INT8_T] = 1,        [MPI_UINT8_T] = 1,
      [MPI_UINT64_T] = 8};
  if (type <= 0 || type >= (int)(sizeof sizes / sizeof *sizes))
    ranks_misuse("a type", "unknown", type, 0);
  return sizes[type];
}

int MPI_Type_size(MPI_Datatype type, int *bytes)
{
  *bytes = (int)ranks_bytes_of(type);
  return MPI_SUCCESS;
}

int MPI_Type_contiguous(int n, MPI_Datatype of, MPI_Datatype *made)
{
  *made = CONTIGUOUS + n * (int)ranks_bytes_of(of);
  return MPI_SUCCESS;
}

int MPI_Type_commit(MPI_Datatype *type)
{
  (void)type;
  return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *type)
{
  *type = 0;
  return MPI_SUCCESS;
}

int MPI_Op_create(MPI_User_function *function, int commutes, MPI_Op *op)
{
  (void)commutes;
  for (*op = MPI_BXOR + 1; *op < MOST_OPS && op_functions[*op]; ++*op) continue;
  if (*op == MOST_OPS) ranks_misuse("MPI_Op_create", "too many", *op, 0);
  op_functions[*op] = function;
  return MPI_SUCCESS;
}

int MPI_Op_free(MPI_Op *op)
{
  op_functions[*op] = NULL;
  *op = 0;
  return MPI_SUCCESS;
}

#define REDUCE(type)                                                                               \
  do {                                                                                             \
    const type *a = in;                                                                            \
    type *b = inout;                                                                               \
    for (int i = 0; i < n; i++)                                                                    \
      b[i] = op == MPI_SUM                      ? (type)(a[i] + b[i])                              \
             : op == MPI_PROD                   ? (type)(a[i] * b[i])                              \
             : (op == MPI_MAX) == (a[i] > b[i]) ? a[i]                                             \
                                                : b[i];                                            \
  } while (0)

int MPI_Reduce_local(const void *in, void *inout, int n, MPI_Datatype type, MPI_Op op)
{
  if (op > MPI_BXOR && op < MOST_OPS && op_functions[op]) {
    op_functions[op]((void *)(uintptr_t)in, inout, &n, &type);
    return MPI_SUCCESS;
  }
  if (op == MPI_BXOR && type == MPI_UINT32_T) {
    const uint32_t *a = in;
    for (int i = 0; i < n; i++) ((uint32_t *)inout)[i] ^= a[i];
    return MPI_SUCCESS;
  }
  if (op == MPI_BOR && type == MPI_BYTE) {
    for (int i = 0; i < n; i++) ((unsigned char *)inout)[i] |= ((const unsigned char *)in)[i];
    return MPI_SUCCESS;
  }
  if (op < MPI_SUM || op > MPI_PROD) ranks_misuse("a reduction", "unknown operation", op, 0);
  switch (type) {
  case MPI_FLOAT:
    REDUCE(float);
    break;
  case MPI_DOUBLE:
    REDUCE(double);
    break;
  case MPI_INT:
  case MPI_INT32_T:
    REDUCE(int32_t);
    break;
  case MPI_INT64_T:
    REDUCE(int64_t);
    break;
  case MPI_UINT32_T:
    REDUCE(uint32_t);
    break;
  case MPI_UINT64_T:
    REDUCE(uint64_t);
    break;
  case MPI_INT8_T:
    REDUCE(int8_t);
    break;
  case MPI_UINT8_T:
  case MPI_UNSIGNED_CHAR:
    REDUCE(unsigned char);
    break;
  default:
    ranks_misuse("a reduction", "a type that has none", type, op);
  }
  return MPI_SUCCESS;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static MPI_Comm new_comm(const char *call)
{
  MPI_Comm comm = 0;
  while (comm < ncomm && comms[comm].n > 0) comm++;
  if (comm == MOST_COMMS) ranks_misuse(call, "too many communicators", MOST_COMMS, 0);
  if (comm == ncomm) ncomm++;
  return comm;
}

static bool has_begun, has_ended_all;

int MPI_Init(int *argc, char ***argv)
{
  (void)argc, (void)argv;
  has_begun = true;
  comms[new_comm("MPI_Init")] = (struct comm){.n = ranks_in_all, .me = ranks_me};
  for (int i = 0; i < ranks_in_all; i++) comms[MPI_COMM_WORLD].world[i] = i;
  return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int expected, int *given)
{
  *given = expected;
  return MPI_Init(argc, argv);
}

int MPI_Initialized(int *has)
{
  *has = has_begun;
  return MPI_SUCCESS;
}

int MPI_Finalized(int *has)
{
  *has = has_ended_all;
  return MPI_SUCCESS;
}

/* All meet: none takes another's end for its loss. Then all that was sent is there. */
int MPI_Finalize(void)
{
  has_ended_all = true;
  char none = 0, from[MOST_RANKS];
  MPI_Allgather(&none, 1, MPI_CHAR, from, 1, MPI_CHAR, MPI_COMM_WORLD);
  ranks_expect_no_messages("MPI_Finalize");
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ranks_tell_slept(rank);
  return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int status)
{
  (void)comm;
  _exit(status);
}

int MPI_Error_string(int error, char *text, int *length)
{
  *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", error);
  return MPI_SUCCESS;
}

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *handler)
{
  (void)function;
  *handler = 1;
  return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
  (void)comm, (void)handler;
  return MPI_SUCCESS;
}

int MPI_Errhandler_free(MPI_Errhandler *handler)
{
  *handler = MPI_ERRHANDLER_NULL;
  return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
  *rank = comms[comm].me;
  return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
  *size = comms[comm].n;
  return MPI_SUCCESS;
}

/* Those of one color, by key; none of MPI_UNDEFINED. The context is the world rank of the first and
   how many communicators that one has made. */
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *made)
{
  const MPI_Comm at = new_comm("MPI_Comm_split");
  const struct comm *old = &comms[comm];
  struct comm *new = &comms[at];
  int mine[] = {color, key, at}, all[3 * MOST_RANKS], place[MOST_RANKS];
  MPI_Allgather(mine, 3, MPI_INT, all, 3, MPI_INT, comm);
  new->n = 0;
  *made = MPI_COMM_NULL;
  if (color == MPI_UNDEFINED) return MPI_SUCCESS;
  for (int i = 0; i < old->n; i++) {
    if (all[3 * i] != color) continue;
    int to = new->n++;
    for (; to > 0 && all[3 * place[to - 1] + 1] > all[3 * i + 1]; to--) place[to] = place[to - 1];
    place[to] = i;
  }
  for (int i = 0; i < new->n; i++) {
    new->world[i] = old->world[place[i]];
    if (place[i] == old->me) new->me = i;
  }
  new->context = new->world[0] * MOST_COMMS + all[3 * place[0] + 2];
  *made = at;
  return MPI_SUCCESS;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made)
{
  (void)info;
  return MPI_Comm_split(comm, type, key, made);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made)
{
  return MPI_Comm_split(comm, 0, ranks_comm("MPI_Comm_dup", comm)->me, made);
}

int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *made, MPI_Request *request)
{
  *request = MPI_REQUEST_NULL;
  return MPI_Comm_dup(comm, made);
}

/* A group is its communicator. */
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group)
{
  *group = comm;
  return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *group)
{
  *group = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

int MPI_Group_translate_ranks(MPI_Group from, int n, const int *members, MPI_Group to, int *there)
{
  const struct comm *a = ranks_comm("a group", from), *b = ranks_comm("a group", to);
  for (int i = 0; i < n; i++) {
    there[i] = MPI_UNDEFINED;
    for (int j = 0; j < b->n; j++)
      if (b->world[j] == a->world[members[i]]) there[i] = j;
  }
  return MPI_SUCCESS;
}

int MPI_Comm_free(MPI_Comm *comm)
{
  comms[*comm].n = 0;
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

MPI_Comm MPI_Comm_f2c(MPI_Fint comm)
{
  return comm;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static void copy(void *to, const void *from, size_t bytes)
{
  if (to != from && bytes > 0) memmove(to, from, bytes);
}

static void *room_for(size_t bytes)
{
  void *room = malloc(bytes + 1);
  if (!room) ranks_misuse("malloc", "no memory", (long)bytes, 0);
  return room;
}

int MPI_Bcast(void *at, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
  struct exchange e = begin("MPI_Bcast", comm);
  const size_t bytes = (size_t)n * ranks_bytes_of(type);
  for (int i = 0; i < e.comm->n && e.comm->me == root; i++) add_send(&e, i, at, bytes);
  if (e.comm->me != root) add_receive(&e, root, at, bytes);
  return finish(&e);
}

int MPI_Allgatherv(const void *in, int n, MPI_Datatype type, void *out, const int *n_out,
                   const int *first, MPI_Datatype type_out, MPI_Comm comm)
{
  struct exchange e = begin("MPI_Allgatherv", comm);
  const size_t each = ranks_bytes_of(type_out);
  char *to = out, *own = to + (size_t)first[e.comm->me] * each;
  const size_t bytes = (size_t)n_out[e.comm->me] * each;
  if (in != MPI_IN_PLACE) {
    if ((size_t)n * ranks_bytes_of(type) != bytes)
      ranks_misuse(e.call, "other bytes than are taken", n, n_out[e.comm->me]);
    copy(own, in, bytes);
  }
  for (int i = 0; i < e.comm->n; i++) {
    add_send(&e, i, own, bytes);
    add_receive(&e, i, to + (size_t)first[i] * each, (size_t)n_out[i] * each);
  }
  return finish(&e);
}

int MPI_Allgather(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                  MPI_Datatype type_out, MPI_Comm comm)
{
  int counts[MOST_RANKS], first[MOST_RANKS];
  for (int i = 0; i < MOST_RANKS; i++) counts[i] = n_out, first[i] = i * n_out;
  return MPI_Allgatherv(in, n, type, out, counts, first, type_out, comm);
}

int MPI_Alltoallv(const void *in, const int *n, const int *first, MPI_Datatype type, void *out,
                  const int *n_out, const int *first_out, MPI_Datatype type_out, MPI_Comm comm)
{
  struct exchange e = begin("MPI_Alltoallv", comm);
  const size_t give = ranks_bytes_of(type), get = ranks_bytes_of(type_out);
  const int me = e.comm->me;
  const char *from = in;
  char *to = out;
  if (in == MPI_IN_PLACE) ranks_misuse(e.call, "in place is not known here", 0, 0);
  if (n[me] != n_out[me])
    ranks_misuse(e.call, "a rank gives itself other than it takes", n[me], n_out[me]);
  copy(to + (size_t)first_out[me] * get, from + (size_t)first[me] * give, (size_t)n[me] * give);
  for (int i = 0; i < e.comm->n; i++) {
    add_send(&e, i, from + (size_t)first[i] * give, (size_t)n[i] * give);
    add_receive(&e, i, to + (size_t)first_out[i] * get, (size_t)n_out[i] * get);
  }
  return finish(&e);
}

int MPI_Alltoall(const void *in, int n, MPI_Datatype type, void *out, int n_out,
                 MPI_Datatype type_out, MPI_Comm comm)
{
  int counts[MOST_RANKS], first[MOST_RANKS];
  if (n != n_out) ranks_misuse("MPI_Alltoall", "gives other than it takes", n, n_out);
  for (int i = 0; i < MOST_RANKS; i++) counts[i] = n, first[i] = i * n;
  return MPI_Alltoallv(in, counts, first, type, out, counts, first, type_out, comm);
}

/* Each rank gets its part of all, and adds them up in the order of the ranks. */
static int reduce_parts(const char *call, const void *in, void *out, const int *n,
                        MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  struct exchange e = begin(call, comm);
  const size_t each = ranks_bytes_of(type);
  const int me = e.comm->me;
  const char *from = in == MPI_IN_PLACE ? out : in;
  const size_t part = (size_t)n[me] * each;
  char *room = room_for((size_t)e.comm->n * part);
  for (int i = 0; i < e.comm->n; i++) {
    const size_t bytes = (size_t)n[i] * each;
    if (i == me) copy(room + (size_t)i * part, from, bytes);
    add_send(&e, i, from, bytes);
    add_receive(&e, i, room + (size_t)i * part, part);
    from += bytes;
  }
  finish(&e);
  for (int i = 1; i < e.comm->n; i++)
    MPI_Reduce_local(room + (size_t)(i - 1) * part, room + (size_t)i * part, n[me], type, op);
  copy(out, room + (size_t)(e.comm->n - 1) * part, part);
  free(room);
  return MPI_SUCCESS;
}

int MPI_Reduce_scatter(const void *in, void *out, const int *n, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
{
  return reduce_parts("MPI_Reduce_scatter", in, out, n, type, op, comm);
}

int MPI_Reduce_scatter_block(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
  int counts[MOST_RANKS];
  for (int i = 0; i < MOST_RANKS; i++) counts[i] = n;
  return reduce_parts("MPI_Reduce_scatter_block", in, out, counts, type, op, comm);
}

int MPI_Allreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
  struct exchange e = begin("MPI_Allreduce", comm);
  const size_t bytes = (size_t)n * ranks_bytes_of(type);
  const char *own = in == MPI_IN_PLACE ? out : in;
  char *room = room_for((size_t)e.comm->n * bytes);
  for (int i = 0; i < e.comm->n; i++) {
    if (i == e.comm->me) copy(room + (size_t)i * bytes, own, bytes);
    add_send(&e, i, own, bytes);
    add_receive(&e, i, room + (size_t)i * bytes, bytes);
  }
  finish(&e);
  for (int i = 1; i < e.comm->n; i++)
    MPI_Reduce_local(room + (size_t)(i - 1) * bytes, room + (size_t)i * bytes, n, type, op);
  copy(out, room + (size_t)(e.comm->n - 1) * bytes, bytes);
  free(room);
  return MPI_SUCCESS;
}

int MPI_Reduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm)
{
  struct exchange e = begin("MPI_Reduce", comm);
  const size_t bytes = (size_t)n * ranks_bytes_of(type);
  const bool sums = e.comm->me == root;
  char *room = sums ? room_for((size_t)e.comm->n * bytes) : NULL;
  if (!sums) add_send(&e, root, in, bytes);
  for (int i = 0; i < e.comm->n && sums; i++) {
    if (i == root) copy(room + (size_t)i * bytes, in == MPI_IN_PLACE ? out : in, bytes);
    add_receive(&e, i, room + (size_t)i * bytes, bytes);
  }
  finish(&e);
  for (int i = 1; i < e.comm->n && sums; i++)
    MPI_Reduce_local(room + (size_t)(i - 1) * bytes, room + (size_t)i * bytes, n, type, op);
  if (sums) copy(out, room + (size_t)(e.comm->n - 1) * bytes, bytes);
  free(room);
  return MPI_SUCCESS;
}

int MPI_Sendrecv(const void *in, int n, MPI_Datatype type, int to, int tag, void *out, int n_out,
                 MPI_Datatype type_out, int from, int tag_from, MPI_Comm comm, MPI_Status *status)
{
  struct exchange e = begin("MPI_Sendrecv", comm);
  const size_t give = (size_t)n * ranks_bytes_of(type),
               get = (size_t)n_out * ranks_bytes_of(type_out);
  (void)status;
  if (tag != tag_from) ranks_misuse(e.call, "two tags", tag, tag_from);
  if (to == e.comm->me || from == e.comm->me) {
    if (to != from || give != get)
      ranks_misuse(e.call, "a rank gives itself other than it takes", to, from);
    copy(out, in, get);
    return MPI_SUCCESS;
  }
  if (to != MPI_PROC_NULL) add_send(&e, to, in, give);
  if (from != MPI_PROC_NULL) add_receive(&e, from, out, get);
  return finish(&e);
}
