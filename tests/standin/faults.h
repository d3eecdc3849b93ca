// Faults that the stand-in for CUDA must not be quiet about: each ends the program, soon, with a
// status other than 0 and a message that names the call. Each is a run of the program of its own.
#ifndef FAULTS_H
#define FAULTS_H

#include "check.h"

#include <chrono>
#include <cstring>
#include <string>

struct fault {
  const char *name;
  void (*run)();
  int ranks;           // 0: without mpirun
  const char *message; // what the output must hold
};

#define FAULT(name, ranks, message)                                                                \
  {                                                                                                \
#name, name, ranks, message                                                                    \
  }

static inline bool is_caught(const fault &f)
{
  std::string output;
  auto begun = std::chrono::steady_clock::now();
  int status = run_command(own_command(f.ranks, f.name), output);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  bool said = output.find(f.message) != std::string::npos;
  if (status != 0 && status != 124 && status != 137 && took.count() < 30 && said) return true;
  fprintf(stderr, "%s: status %d after %.1f s; '%s' %s in:\n%s\n", f.name, status, took.count(),
          f.message, said ? "is" : "is not", output.c_str());
  return false;
}

// With a fault's name for its argument the program runs it: it comes back where it was not caught.
template <size_t n> int run_faults(const fault (&faults)[n], int argc, char **argv)
{
  if (argc > 1) {
    for (const fault &f : faults)
      if (strcmp(f.name, argv[1]) == 0) f.run();
    return 0;
  }
  int missed = 0;
  for (const fault &f : faults) missed += !is_caught(f);
  printf("%d of %d faults caught\n", (int)n - missed, (int)n);
  return missed != 0;
}

#endif
