// SPDX-License-Identifier: MIT
// The profile of a step: cuda/profile.h.
#include "cuda/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/program.h"
#include "base/target.h"

bool profiling;
const char WAITS[] = "waits for a collective";

namespace
{
const int WARM = 2; // warm-up steps, which load kernels and choose algorithms, are not counted

struct noted {
  const char *what; // null: no work until the next note
  cudaStream_t on;
  cudaEvent_t at;
};
struct share {
  std::string what;
  bool beside; // not on the stream of arithmetic
  double milliseconds;
  long calls;
};

std::vector<noted> notes;        // of the step that is being issued
std::vector<cudaEvent_t> events; // a pool; the notes use the first ones
std::vector<share> shares;
int steps;
bool tells; // at the end

share &share_of(const char *what, bool beside)
{
  for (share &s : shares)
    if (s.beside == beside && s.what == what) return s;
  shares.push_back({what, beside, 0, 0});
  return shares.back();
}

void close_streams()
{
  std::vector<cudaStream_t> seen;
  for (const noted &n : notes)
    if (std::find(seen.begin(), seen.end(), n.on) == seen.end()) seen.push_back(n.on);
  for (cudaStream_t s : seen) note_work(nullptr, s);
}

void count(const noted &from, const noted &to)
{
  float milliseconds = 0;
  CHECK_CUDA(cudaEventElapsedTime(&milliseconds, from.at, to.at));
  share &s = share_of(from.what, from.on != stream);
  s.milliseconds += milliseconds;
  s.calls++;
}
} // namespace

bool target_profile(struct failure *why)
{
  (void)why;
  profiling = tells = true;
  return true;
}

void target_measure_work(bool takes_apart)
{
  profiling |= takes_apart;
}

double target_worked(void)
{
  double milliseconds = 0;
  for (const share &s : shares)
    if (!s.beside && s.what != WAITS && s.what.compare(0, 4, "nccl") != 0)
      milliseconds += s.milliseconds;
  return milliseconds * 1e-3;
}

void note_work(const char *what, cudaStream_t on)
{
  if (events.size() == notes.size()) {
    events.emplace_back();
    CHECK_CUDA(cudaEventCreate(&events.back()));
  }
  cudaEvent_t at = events[notes.size()];
  CHECK_CUDA(cudaEventRecord(at, on));
  notes.push_back({what, on, at});
}

void profile_step()
{
  if (!profiling) return;
  close_streams();
  CHECK_CUDA(cudaDeviceSynchronize());
  for (size_t i = 0; steps >= WARM && i < notes.size(); i++) {
    size_t next = i + 1;
    while (next < notes.size() && notes[next].on != notes[i].on) next++;
    if (notes[i].what && next < notes.size()) count(notes[i], notes[next]);
  }
  steps++;
  notes.clear();
}

void profile_tell()
{
  if (!tells || rank->id != 0) return;
  const int counted = steps - WARM;
  if (counted < 1) {
    printf("profile: the first %d steps are not counted, and there was no other\n", WARM);
    return;
  }
  double whole = 0;
  for (const share &s : shares)
    if (!s.beside) whole += s.milliseconds;
  std::stable_sort(shares.begin(), shares.end(),
                   [](const share &a, const share &b) { return a.milliseconds > b.milliseconds; });
  printf("where a step's time goes, on rank 0: %.3f ms, the mean of %d\n", whole / counted,
         counted);
  printf("%12s %8s %8s\n", "ms", "share", "calls");
  for (const share &s : shares)
    printf("%12.3f %6.1f %% %8ld  %.70s%s\n", s.milliseconds / counted,
           100 * s.milliseconds / whole, s.calls / counted, s.what.c_str(),
           s.beside ? "  (beside)" : "");
  fflush(stdout);
}
