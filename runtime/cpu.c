// The CPU target: memory is the process's own, ranks communicate by MPI.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include "elements.h"
#include "program.h"
#include "target.h"

static int last_error = MPI_SUCCESS;

// MPI calls this when a call fails, and then returns from that call.
static void remember_error(MPI_Comm *comm, int *error, ...)
{
  (void)comm;
  last_error = *error;
}

static MPI_Errhandler handler;
static int groups_made;
static int here, size; // this rank, and the number of ranks, in MPI

void fail_call(const char *file, int line, const char *call, const char *why)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length;
  const char *base = strrchr(file, '/');
  if (!why && last_error != MPI_SUCCESS && MPI_Error_string(last_error, text, &length) == 0)
    why = text;
  fprintf(stderr, "rank %d: %s failed at %s:%d%s%s\n", rank.id, call, base ? base + 1 : file, line,
          why ? ": " : "", why ? why : "");
  fflush(NULL);
  neighbours_hush();
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

// ---- reductions of bfloat16 ---------------------------------------------------------------------

MPI_Op bf16_sum, bf16_max, bf16_min;

// A step of a reduction in MPI's form: combines `from` into `to`.
static void sum_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++) b[i] = float_to_bf16(bf16_to_float(a[i]) + bf16_to_float(b[i]));
}

static void max_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++)
    b[i] = float_to_bf16(larger(bf16_to_float(a[i]), bf16_to_float(b[i])));
}

static void min_bf16(void *from, void *to, int *n, MPI_Datatype *type)
{
  const bf16 *a = from;
  bf16 *b = to;
  (void)type;
  for (int i = 0; i < *n; i++)
    b[i] = float_to_bf16(smaller(bf16_to_float(a[i]), bf16_to_float(b[i])));
}

static void make_reductions(void)
{
  CHECK_MPI(MPI_Op_create(sum_bf16, 1, &bf16_sum));
  CHECK_MPI(MPI_Op_create(max_bf16, 1, &bf16_max));
  CHECK_MPI(MPI_Op_create(min_bf16, 1, &bf16_min));
}

// ---- what the runtime asks ----------------------------------------------------------------------

bool target_capture(struct failure *why)
{
  return failed(why, "--graph: there are graphs in programs for GPUs only");
}

bool target_profile(struct failure *why)
{
  return failed(why, "--profile: programs for GPUs alone tell it; perf tells it of others");
}

// MPI allocates a buffer in every call of a reduction: keeps freed memory for the next one.
// Otherwise the system would clear these pages again, which takes as long as the sum.
static void keep_room(void)
{
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20); // the most that is allowed
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

bool target_start(struct identity *me, struct failure *why)
{
  int level, error;
  keep_room();
  WAITING("MPI_Init", error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
  if (error != MPI_SUCCESS) return failed(why, "MPI_Init failed");
  CHECK_MPI(MPI_Comm_create_errhandler(remember_error, &handler));
  CHECK_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &here));
  CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (me->launcher && (me->rank != here || me->size != size))
    return failed(why,
                  "%s says rank %d of %d (%s, %s), but MPI says rank %d of %d: "
                  "start it with run.sh, mpirun, or srun --mpi=pmix",
                  me->launcher, me->rank, me->size, me->rank_variable, me->size_variable, here,
                  size);
  me->rank = here;
  me->size = size;
  make_reductions();
  return true;
}

int target_neighbours(struct neighbour **list)
{
  MPI_Comm machine;
  int n;
  struct neighbour me = {here, (int)getpid()};
  COLLECTIVE(.plan_line = 0,
             MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  CHECK_MPI(MPI_Comm_size(machine, &n));
  *list = calloc((size_t)n, sizeof **list);
  if (!*list) fail_call(__FILE__, __LINE__, "calloc", "out of memory");
  COLLECTIVE(.plan_line = 0, MPI_Allgather(&me, 2, MPI_INT, *list, 2, MPI_INT, machine));
  COLLECTIVE(.plan_line = 0, MPI_Comm_free(&machine));
  return n;
}

int target_first_failure(bool ok)
{
  int mine = ok ? size : here, lowest;
  COLLECTIVE(.plan_line = 0, MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  return lowest < size ? lowest : -1;
}

bool target_same_program(struct failure *why)
{
  enum { BYTES = 32 };
  char mine[BYTES] = "", first[BYTES];
  snprintf(mine, sizeof mine, "%s", program.hash);
  memcpy(first, mine, BYTES);
  COLLECTIVE(.plan_line = 0, MPI_Bcast(first, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD));
  if (memcmp(mine, first, BYTES) == 0) return true;
  return failed(why, "rank %d carries the program %.31s, but rank 0 carries %.31s: build it anew",
                here, mine, first);
}

void target_share(void *bytes, size_t count)
{
  COLLECTIVE(.plan_line = 0, MPI_Bcast(bytes, (int)count, MPI_BYTE, 0, MPI_COMM_WORLD));
}

void target_combine(uint32_t *numbers, size_t count)
{
  enum { AT_ONCE = 1 << 20 };
  for (size_t done = 0; done < count; done += AT_ONCE) {
    int some = (int)(count - done < AT_ONCE ? count - done : AT_ONCE);
    COLLECTIVE(.plan_line = 0, MPI_Allreduce(MPI_IN_PLACE, numbers + done, some, MPI_UINT32_T,
                                             MPI_BXOR, MPI_COMM_WORLD));
  }
}

void target_groups(void)
{
  for (int i = 0; i < program.ngroups; i++, groups_made++) {
    communicator *comm = program.groups[i].comm;
    COLLECTIVE(.plan_line = 0,
               MPI_Comm_split(MPI_COMM_WORLD, rank.members[i][0], place_in(rank.members[i]), comm));
    CHECK_MPI(MPI_Comm_set_errhandler(*comm, handler));
  }
}

void *target_allocate(size_t bytes, struct failure *why)
{
  enum { PAGE = 4096, HUGE = 2 << 20 };
  size_t align = bytes < HUGE ? PAGE : HUGE;
  void *memory = NULL;
  if (posix_memalign(&memory, align, bytes ? bytes : 1) != 0) {
    failed(why, "no memory for the program's %zu bytes", bytes);
    return NULL;
  }
  if (align == HUGE) madvise(memory, bytes, MADV_HUGEPAGE); // a hint; it may be refused
  memset(memory, 0, bytes);
  return memory;
}

void target_begin(void)
{
  if (program.begin) program.begin();
}

void target_step(int t)
{
  program.step(t);
}

void target_run(void (*entry)(void))
{
  entry();
}

void target_put(void *memory, const void *from, size_t bytes)
{
  memcpy(memory, from, bytes);
}

void target_get(void *to, const void *memory, size_t bytes)
{
  memcpy(to, memory, bytes);
}

void target_wait(void)
{
}

struct waiting target_waiting(void)
{
  return waiting_in_call();
}

// MPI ends the job by itself.
bool target_trouble(struct failure *what)
{
  (void)what;
  return false;
}

void target_abandon(void)
{
}

// From /proc: getrusage would include the peak of the launcher before it started this program.
size_t target_peak(void)
{
  char line[128];
  size_t kilobytes = 0;
  FILE *status = fopen("/proc/self/status", "re");
  if (!status) return 0;
  while (kilobytes == 0 && fgets(line, sizeof line, status))
    sscanf(line, "VmHWM: %zu kB", &kilobytes);
  fclose(status);
  return kilobytes * 1024;
}

double target_peak_tflops(void)
{
  return 0;
}

void target_stop(void)
{
  WAITING("MPI_Comm_free",
          while (groups_made > 0) MPI_Comm_free(program.groups[--groups_made].comm));
  MPI_Op_free(&bf16_sum);
  MPI_Op_free(&bf16_max);
  MPI_Op_free(&bf16_min);
  MPI_Errhandler_free(&handler);
  WAITING("MPI_Finalize", MPI_Finalize());
}
