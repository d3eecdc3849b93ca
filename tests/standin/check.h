// What the tests of the stand-in share: a check, and running a program to see how it ends.
//
// All but this file and test_faults.cpp is ordinary CUDA, which nvcc compiles too.
#ifndef STANDIN_CHECK_H
#define STANDIN_CHECK_H

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __CUDACC__
#define LAUNCH(kernel, blocks, threads, on)               kernel<<<blocks, threads, 0, on>>>
#define LAUNCH_SHARED(kernel, blocks, threads, bytes, on) kernel<<<blocks, threads, bytes, on>>>
#define DYNAMIC_SHARED(type, name)                                                                 \
  extern __shared__ __align__(16) unsigned char dynamic_shared[];                                  \
  type *const name = (type *)dynamic_shared
#endif

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

// Runs a command of the shell. Gives its exit status (128 + signal where one ended it) and all that
// it wrote.
static inline int run_command(const std::string &command, std::string &output)
{
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  CHECK(pipe);
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The command that runs this very program again, with one argument: on its own where ranks is 0,
// else under mpirun, or what MPIRUN names, and ended if it takes longer than a minute.
static inline std::string own_command(int ranks, const std::string &argument)
{
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(n > 0);
  std::string command = "timeout -k 5 60 ";
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  const char *mpirun = getenv("MPIRUN");
  if (ranks)
    command += std::string(mpirun ? mpirun : "mpirun --oversubscribe") + " -n " +
               std::to_string(ranks) + " ";
  return command + "'" + std::string(path, (size_t)n) + "' " + argument;
}

#endif
