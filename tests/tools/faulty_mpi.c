/* Disturbs a running CPU program: linked into it, this replaces MPI's functions for the collectives
   of the program's text and of the runtime, and forwards the calls (PMPI).

   DISTURB=kill:RANK:CALL  the rank kills itself right before its CALL-th collective
   DISTURB=sum:RANK:CALL   before its CALL-th of the runtime's own reductions
   DISTURB=send:RANK:CALL  before its CALL-th send of a pipeline's stage
   DISTURB=stop:RANK:CALL  it stops there, like a machine that hangs
   DISTURB=kill:RANK:WHERE, stop:RANK:WHERE  the same at an instant of its start or its end: at load
                           (before main), init (MPI_Init begins), met (it has ended), end
                           (MPI_Finalize begins), or exit (it has ended)
   DISTURB=late:RANK:CALL, late:RANK:WHERE  it sleeps for half a second after the collective, or
                           at that instant
   DISTURB=delay:SEED      every rank sleeps for up to a millisecond before some of its collectives
   REPLICAS=FILE           at the end FILE.<rank> has a hash of each parameter that is replicated

   In an undisturbed run, DISTURB=count writes the number of collectives to FILE.<rank>. */
#include "base/program.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct rank this_rank; /* `rank` is set by main(): not at load */

static long calls;

static void disturb(void)
{
  const char *how = getenv("DISTURB");
  int who;
  long at;
  unsigned long seed;
  calls++;
  if (!how) return;
  if (sscanf(how, "kill:%d:%ld", &who, &at) == 2 && who == this_rank.id && at == calls)
    raise(SIGKILL);
  if (sscanf(how, "stop:%d:%ld", &who, &at) == 2 && who == this_rank.id && at == calls)
    raise(SIGSTOP);
  if (sscanf(how, "delay:%lu", &seed) == 1) {
    uint64_t x = (seed * 1000003 + (unsigned)this_rank.id) * 1000003 + (uint64_t)calls;
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    if (x >> 62 == 0) usleep((unsigned)(x >> 32) % 1000);
  }
}

static int be_late(int error)
{
  const char *how = getenv("DISTURB");
  int who;
  long at;
  bool here =
      how && sscanf(how, "late:%d:%ld", &who, &at) == 2 && who == this_rank.id && at == calls;
  if (here) usleep(500000);
  return error;
}

static void disturb_at(const char *where)
{
  const char *how = getenv("DISTURB");
  char what[8], expected[8];
  int who;
  if (!how || sscanf(how, "%7[a-z]:%d:%7[a-z]", what, &who, expected) != 3 || who != this_rank.id)
    return;
  if (strcmp(where, expected) != 0) return;
  if (strcmp(what, "late") == 0)
    usleep(500000);
  else
    raise(strcmp(what, "kill") ? SIGSTOP : SIGKILL);
}

__attribute__((constructor)) static void loaded(void)
{
  disturb_at("load");
}

int MPI_Init_thread(int *argc, char ***argv, int expected, int *level)
{
  disturb_at("init");
  const int error = PMPI_Init_thread(argc, argv, expected, level);
  disturb_at("met");
  return error;
}

#define COLLECTIVES                                                                                \
  CALL(Allreduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),           \
       (a, b, n, t, o, c))                                                                         \
  CALL(Allgather,                                                                                  \
       (const void *a, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c),         \
       (a, n, t, b, m, u, c))                                                                      \
  CALL(Allgatherv,                                                                                 \
       (const void *a, int n, MPI_Datatype t, void *b, const int *m, const int *at,                \
        MPI_Datatype u, MPI_Comm c),                                                               \
       (a, n, t, b, m, at, u, c))                                                                  \
  CALL(Reduce_scatter,                                                                             \
       (const void *a, void *b, const int *n, MPI_Datatype t, MPI_Op o, MPI_Comm c),               \
       (a, b, n, t, o, c))                                                                         \
  CALL(Reduce_scatter_block,                                                                       \
       (const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (a, b, n, t, o, c))  \
  CALL(Alltoall,                                                                                   \
       (const void *a, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c),         \
       (a, n, t, b, m, u, c))                                                                      \
  CALL(Alltoallv,                                                                                  \
       (const void *a, const int *n, const int *from, MPI_Datatype t, void *b, const int *m,       \
        const int *to, MPI_Datatype u, MPI_Comm c),                                                \
       (a, n, from, t, b, m, to, u, c))

#define CALL(name, parameters, arguments)                                                          \
  int MPI_##name parameters                                                                        \
  {                                                                                                \
    disturb();                                                                                     \
    return be_late(PMPI_##name arguments);                                                         \
  }
COLLECTIVES

static void disturb_sum(void)
{
  static long sums;
  const char *how = getenv("DISTURB");
  int who;
  long at;
  disturb();
  sums++;
  if (how && sscanf(how, "sum:%d:%ld", &who, &at) == 2 && who == this_rank.id && at == sums)
    raise(SIGKILL);
}

/* The runtime's own collectives, which the linker calls __real. */
int __real_reduce_scatter(const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c);
int __wrap_reduce_scatter(const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c);
int __wrap_reduce_scatter(const void *a, void *b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c)
{
  disturb_sum();
  return __real_reduce_scatter(a, b, n, t, o, c);
}

int __real_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype t,
                           MPI_Op o, MPI_Comm c);
int __wrap_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype t,
                           MPI_Op o, MPI_Comm c);
int __wrap_reduce_segments(void *room, void *own, int n, const struct segment *p, MPI_Datatype t,
                           MPI_Op o, MPI_Comm c)
{
  disturb_sum();
  return __real_reduce_segments(room, own, n, p, t, o, c);
}

int __real_send_to(const void *value, int n, MPI_Datatype t, int to, int tag, MPI_Comm c);
int __wrap_send_to(const void *value, int n, MPI_Datatype t, int to, int tag, MPI_Comm c);
int __wrap_send_to(const void *value, int n, MPI_Datatype t, int to, int tag, MPI_Comm c)
{
  static long sends;
  const char *how = getenv("DISTURB");
  int who;
  long at;
  sends++;
  if (how && sscanf(how, "send:%d:%ld", &who, &at) == 2 && who == this_rank.id && at == sends)
    raise(SIGKILL);
  return __real_send_to(value, n, t, to, tag, c);
}

static uint64_t hash_of(const unsigned char *bytes, size_t n)
{
  uint64_t h = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
  return h;
}

static void put_replicas(FILE *to, const struct tensor *t)
{
  size_t n = sizeof(float);
  if (t->role != PARAMETER || memcmp(t->of, t->here, sizeof t->of) != 0) return;
  for (int d = 0; d < t->ndim; d++) n *= (size_t)t->here[d];
  for (int k = 0; k < t->count; k++) {
    const unsigned char *at = (const unsigned char *)rank_memory + t->offset;
    fprintf(to, "%s %d %s %016llx\n", t->name.name, k, t->name.rest ? t->name.rest : "",
            (unsigned long long)hash_of(at + (size_t)k * t->stride, n));
  }
}

int MPI_Finalize(void)
{
  char path[4096];
  const char *prefix = getenv("REPLICAS"), *how = getenv("DISTURB");
  snprintf(path, sizeof path, "%s.%d", prefix ? prefix : "replicas", this_rank.id);
  disturb_at("end");
  FILE *file = prefix ? fopen(path, "w") : NULL;
  if (prefix && !file) fail_call(__FILE__, __LINE__, "fopen", path);
  if (file && how && !strcmp(how, "count")) fprintf(file, "%ld\n", calls);
  for (int i = 0; file && (!how || strcmp(how, "count")) && i < program->ntensors; i++)
    put_replicas(file, &program->tensors[i]);
  if (file && fclose(file) != 0) fail_call(__FILE__, __LINE__, "fclose", path);
  const int error = PMPI_Finalize();
  disturb_at("exit");
  return error;
}
