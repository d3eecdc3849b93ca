// A stand-in for CUDA, for tests only: operations of a warp's lanes together.
//
// If the mask has all lanes, a lane that reaches such a call leaves its value, and continues as
// soon as its result is available: for a shuffle when its source lane has come, for any other call
// when all have. So most shuffles need no switch between threads. A barrier and a thread's end wait
// for all. If the mask has some lanes, the last of them computes the results of all.
#include "kernel_inside.h"

#include <algorithm>

namespace cuda_on_cpu
{
namespace
{
const char *name_of(warp_call call)
{
  switch (call) {
  case warp_call::sync:
    return "__syncwarp";
  case warp_call::shfl:
    return "__shfl_sync";
  case warp_call::shfl_up:
    return "__shfl_up_sync";
  case warp_call::shfl_down:
    return "__shfl_down_sync";
  case warp_call::shfl_xor:
    return "__shfl_xor_sync";
  case warp_call::ballot:
    return "__ballot_sync (or __any_sync, __all_sync)";
  case warp_call::match_any:
    return "__match_any_sync";
  case warp_call::reduce_add:
    return "__reduce_add_sync";
  case warp_call::reduce_min:
  case warp_call::reduce_min_signed:
    return "__reduce_min_sync";
  case warp_call::reduce_max:
  case warp_call::reduce_max_signed:
    return "__reduce_max_sync";
  case warp_call::reduce_and:
    return "__reduce_and_sync";
  case warp_call::reduce_or:
    return "__reduce_or_sync";
  case warp_call::reduce_xor:
    return "__reduce_xor_sync";
  case warp_call::all:
    break;
  }
  return "a call of the whole warp";
}

// The source lane of a lane, by CUDA's rules; the lane itself if the source is out of range.
unsigned source_lane(warp_call call, unsigned lane, unsigned by, unsigned width)
{
  const unsigned in = lane & (width - 1), first = lane - in;
  switch (call) {
  case warp_call::shfl:
    return first + (by & (width - 1));
  case warp_call::shfl_up:
    return by > in ? lane : lane - by;
  case warp_call::shfl_down:
    return by >= width - in ? lane : lane + by;
  case warp_call::shfl_xor:
    return (lane ^ by) >= first + width ? lane : lane ^ by;
  default:
    return lane;
  }
}

uint64_t reduce_two(warp_call call, uint64_t a, uint64_t b)
{
  const unsigned x = (unsigned)a, y = (unsigned)b;
  switch (call) {
  case warp_call::reduce_add:
    return x + y;
  case warp_call::reduce_min:
    return std::min(x, y);
  case warp_call::reduce_max:
    return std::max(x, y);
  case warp_call::reduce_min_signed:
    return (unsigned)std::min((int)x, (int)y);
  case warp_call::reduce_max_signed:
    return (unsigned)std::max((int)x, (int)y);
  case warp_call::reduce_and:
    return x & y;
  case warp_call::reduce_or:
    return x | y;
  default:
    return x ^ y;
  }
}

unsigned lowest(unsigned lanes)
{
  return (unsigned)__builtin_ctz(lanes);
}

[[noreturn]] void report_parted(unsigned a, const std::string &its, unsigned b)
{
  fail("a warp's call", "the warp has parted: %s is in %s, %s in %s", describe(a).c_str(),
       its.c_str(), describe(b).c_str(), waits_in(b).c_str());
}

std::string place_of_call(const char *name, const place &at)
{
  return std::string(name) + " at " + at.file + ":" + std::to_string(at.line);
}

// An operation of all lanes of a warp at once, each with its own operands.
void work_together(const thread &t, unsigned members, const uint64_t *given)
{
  if (members != 0xffffffffu)
    fail(name_of(t), "lanes 0x%08x of the warp alone come to %s:%d; all 32 must", members,
         t.at.file, t.at.line);
  void *lanes[WARP];
  for (unsigned lane = 0; lane < WARP; lane++) lanes[lane] = (void *)given[lane];
  t.work(lanes);
}

// The part of the result that is the same for all members, or computed for all at once.
uint64_t make(const thread &t, unsigned members, const uint64_t *given)
{
  uint64_t made = 0;
  if (t.call == warp_call::all) {
    work_together(t, members, given);
  } else if (t.call == warp_call::ballot) {
    for (unsigned left = members; left; left &= left - 1)
      if (given[lowest(left)]) made |= left & -left;
  } else if (t.call >= warp_call::reduce_add) {
    made = given[lowest(members)];
    for (unsigned left = members & (members - 1); left; left &= left - 1)
      made = reduce_two(t.call, made, given[lowest(left)]);
  }
  return made;
}

// The result of one lane.
uint64_t take(const thread &t, unsigned lane, unsigned members, const uint64_t *given,
              uint64_t made)
{
  if (t.call >= warp_call::ballot && t.call != warp_call::match_any) return made;
  if (t.call == warp_call::match_any) {
    uint64_t same = 0;
    for (unsigned left = members; left; left &= left - 1)
      if (given[lowest(left)] == given[lane]) same |= left & -left;
    return same;
  }
  const unsigned from = source_lane(t.call, lane, (unsigned)t.argument, (unsigned)t.width);
  if (!(members >> from & 1))
    fail(name_of(t), "%s reads lane %u of its warp, which takes no part in the call at %s:%d",
         describe((unsigned)(&t - threads)).c_str(), from, t.at.file, t.at.line);
  return given[from];
}

// ---- meetings of all lanes

bool needs_all(warp_call call)
{
  return call == warp_call::sync || call >= warp_call::ballot;
}

void wake(warp &w, unsigned &lanes)
{
  w.in_call &= ~lanes;
  w.ready |= lanes;
  lanes = 0;
}

bool complete(const warp &w, const meeting &m)
{
  return (m.arrived & w.live) == w.live;
}

// All lanes have come, or have ended.
void finish(warp &w, meeting &m)
{
  if (needs_all(m.call) && m.waiting_for_all) m.made = make(threads[m.first], m.arrived, m.given);
  wake(w, m.waiting_for_all);
}

void wait_for_all(warp &w, meeting &m, unsigned bit)
{
  w.in_call |= bit;
  m.waiting_for_all |= bit;
  if (complete(w, m)) finish(w, m);
  if (w.in_call & bit)
    wait_here();
  else
    w.ready &= ~bit; // it continues at once
}

// The meeting that the lane comes to next. Its slot is free when all lanes have taken the previous
// results.
meeting &next_meeting(warp &w, unsigned t)
{
  const unsigned lane = t % WARP, number = w.meetings[lane] + 1;
  meeting &m = w.last[number % AHEAD];
  if (m.number == number) {
    if (m.call != threads[t].call || !same_place(m.at, threads[t].at))
      report_parted(m.first, place_of_call(name_of(m.call), m.at), t);
    return m;
  }
  if (m.number && (m.taken & w.live) != w.live) {
    wait_for_warp();
    return next_meeting(w, t); // another lane may have begun it meanwhile
  }
  m.number = number;
  m.arrived = m.taken = m.waiting_for_all = 0;
  memset(m.waiting_for, 0, sizeof m.waiting_for);
  m.call = threads[t].call;
  m.at = threads[t].at;
  m.first = t;
  return m;
}

uint64_t meet_whole(warp &w, unsigned t, uint64_t given)
{
  const unsigned lane = t % WARP, bit = 1u << lane;
  const thread &self = threads[t];
  meeting &m = next_meeting(w, t);
  m.given[lane] = given;
  m.arrived |= bit;
  w.meetings[lane]++;
  if (m.waiting_for[lane]) wake(w, m.waiting_for[lane]);
  if (needs_all(self.call)) {
    wait_for_all(w, m, bit);
  } else {
    if (m.waiting_for_all && complete(w, m)) finish(w, m);
    const unsigned from =
        source_lane(self.call, lane, (unsigned)self.argument, (unsigned)self.width);
    if (!(m.arrived >> from & 1) && w.live >> from & 1) {
      w.in_call |= bit;
      m.waiting_for[from] |= bit;
      wait_here();
    }
  }
  m.taken |= bit;
  return take(self, lane, m.arrived, m.given, m.made);
}

// ---- meetings of some

bool agree(unsigned a, unsigned b)
{
  return threads[a].call == threads[b].call && same_place(threads[a].at, threads[b].at);
}

// Lets the lanes of a waiting thread's mask continue once all of them that live have come.
void try_part(warp &w, unsigned t)
{
  const unsigned begin = t / WARP * WARP, mask = threads[t].mask, members = mask & w.live;
  uint64_t given[WARP] = {};
  if ((w.in_call & members) != members) return;
  for (unsigned left = members; left; left &= left - 1)
    if (threads[begin + lowest(left)].mask != mask) return;
  for (unsigned left = members; left; left &= left - 1) {
    const unsigned other = begin + lowest(left);
    if (!agree(t, other)) report_parted(t, waits_in(t), other);
    given[lowest(left)] = threads[other].given;
  }
  const uint64_t made = make(threads[t], members, given);
  for (unsigned left = members; left; left &= left - 1) {
    thread &other = threads[begin + lowest(left)];
    other.taken = take(other, lowest(left), members, given, made);
  }
  w.in_call &= ~members;
  w.ready |= members;
}

uint64_t meet_part(warp &w, unsigned t, uint64_t given)
{
  const unsigned bit = 1u << t % WARP;
  threads[t].given = given;
  w.in_call |= bit;
  try_part(w, t);
  if (w.in_call & bit)
    wait_here();
  else
    w.ready &= ~bit; // it continues at once
  return threads[t].taken;
}
} // namespace

const char *name_of(const thread &w)
{
  return w.call == warp_call::all ? w.name : name_of(w.call);
}

void wait_for_warp()
{
  const unsigned t = current;
  warp &w = warps[t / WARP];
  const unsigned number = w.meetings[t % WARP];
  meeting &m = w.last[number % AHEAD];
  if (number && m.number == number && !complete(w, m)) wait_for_all(w, m, 1u << t % WARP);
}

void try_calls(warp &w)
{
  const unsigned begin = (unsigned)(&w - warps) * WARP;
  for (meeting &m : w.last) {
    if (!m.number) continue;
    if (m.waiting_for_all && complete(w, m)) finish(w, m);
    for (unsigned lane = 0; lane < WARP; lane++)
      if (m.waiting_for[lane] && !(w.live >> lane & 1)) wake(w, m.waiting_for[lane]);
  }
  for (unsigned left = w.in_call; left; left &= left - 1) {
    const unsigned t = begin + lowest(left);
    if (w.in_call & left & -left && threads[t].mask != 0xffffffffu) try_part(w, t);
  }
}

uint64_t meet_in_warp(warp_call call, unsigned mask, uint64_t given, int argument, int width,
                      const char *file, int line)
{
  if (!kernel_name) fail(name_of(call), "called outside a kernel, at %s:%d", file, line);
  const unsigned t = current, lane = t % WARP;
  if (width < 1 || width > 32 || (width & (width - 1)))
    fail(name_of(call), "width %d at %s:%d; a power of two up to 32 is expected", width, file,
         line);
  if (!(mask >> lane & 1))
    fail(name_of(call), "lane %u calls it with mask 0x%08x, where it is not itself, at %s:%d", lane,
         mask, file, line);
  if (mask != 0xffffffffu) wait_for_warp();
  thread &self = threads[t];
  self.call = call;
  self.at = {file, line};
  self.mask = mask;
  self.argument = argument;
  self.width = width;
  if (mask == 0xffffffffu) return meet_whole(warps[t / WARP], t, given);
  return meet_part(warps[t / WARP], t, given);
}

void meet_all(const char *name, void *mine, void (*work)(void *const *lanes), const char *file,
              int line)
{
  if (!kernel_name) fail(name, "called outside a kernel, at %s:%d", file, line);
  threads[current].name = name;
  threads[current].work = work;
  meet_in_warp(warp_call::all, 0xffffffffu, (uint64_t)mine, 0, 32, file, line);
}
} // namespace cuda_on_cpu
