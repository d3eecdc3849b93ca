// What parts of the CUDA runtime ask of cuda.cu, for a test of such a part.
#ifndef OF_RUNTIME_H
#define OF_RUNTIME_H

#include <cstdio>
#include <cstdlib>

cudaStream_t stream;
bool profiling;

void note_work(const char *, cudaStream_t)
{
}

void fail_call(const char *file, int line, const char *call, const char *why)
{
  fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, why ? why : "failed");
  exit(1);
}

#endif
