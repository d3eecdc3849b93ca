// A stand-in for CUDA, for tests only: its failures.
#define OMPI_SKIP_MPICXX  1
#define MPICH_SKIP_MPICXX 1
#include "stand_in.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mpi.h>

namespace cuda_on_cpu
{
void fail(const char *call, const char *format, ...)
{
  int begun = 0, ended = 0, rank = -1;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  bool job = begun && !ended;
  if (job) MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  char text[4096], where[512];
  size_t used = 0;
  auto add = [&](int n) { used = n < 0 ? used : std::min(used + (size_t)n, sizeof text - 2); };
  add(snprintf(text, sizeof text, "cuda_on_cpu: "));
  if (job) add(snprintf(text + used, sizeof text - used, "rank %d: ", rank));
  add(snprintf(text + used, sizeof text - used, "%s: ", call));
  va_list arguments;
  va_start(arguments, format);
  add(vsnprintf(text + used, sizeof text - used, format, arguments));
  va_end(arguments);
  if (in_kernel(where, sizeof where))
    add(snprintf(text + used, sizeof text - used, " (in %s)", where));
  text[used] = '\n';
  text[used + 1] = '\0';

  fflush(stdout);
  fputs(text, stderr);
  fflush(stderr);
  if (job) MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

long setting(const char *name, long otherwise)
{
  const char *text = getenv(name);
  if (!text) return otherwise;
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < 0)
    fail(name, "the environment says '%s'; a whole number is expected", text);
  return value;
}

bool rounds_to_tf32()
{
  return setting("NVIDIA_TF32_OVERRIDE", 1);
}
} // namespace cuda_on_cpu
