// A stand-in for CUDA, for tests only: the order of work on streams, and of its memory accesses.
//
// The host, each stream and each captured stream of a graph is an actor that counts its operations.
// A vector clock says for every actor how many of them are over: an operation has the clock of all
// operations that must be over before it, joined from the order of streams, events, waits of the
// host and edges of graphs. For every two bytes of device memory a cell keeps the operation that
// wrote them last and those that have read them since. An operation that accesses them and is not
// ordered after these would race with them on a device; it ends the job.
#include "cells.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string.h>
#include <string>
#include <vector>

namespace cuda_on_cpu
{
uint32_t now;

namespace
{
std::deque<std::string> actors = {"the host"};
clocks host = {0};

struct operation {
  const char *call;
  uint32_t actor, count;
};
std::vector<operation> operations = {{"nothing", 0, 0}}; // cells refer to them

const clocks *known; // the clock of all before it

// An effect on the host's memory, or a check of it, that happens once the host knows an operation
// to be over.
struct later {
  uint32_t actor, count;
  std::function<void()> work;
  const char *call;
};
std::deque<later> at_host;
std::deque<later> not_over; // operations that have begun

bool is_over(const clocks &when, uint32_t actor, uint32_t count)
{
  return actor < when.size() && when[actor] >= count;
}

// ---- cells

// In a cell's `read`: several operations have read it; the other bits are their row of `readers`.
const uint32_t SEVERAL = 0x80000000u;
const uint32_t OUTSIDE = 0x7fffffffu; // in its `write`: inaccessible

std::vector<std::vector<uint32_t>> readers;
std::map<std::vector<uint32_t>, uint32_t> rows_of_readers;

uint32_t row_of(std::vector<uint32_t> all)
{
  auto [at, is_new] = rows_of_readers.try_emplace(std::move(all), (uint32_t)readers.size());
  if (is_new) readers.push_back(at->first);
  return at->second | SEVERAL;
}

[[noreturn]] void report(const char *does, const void *p, size_t bytes, uint32_t before,
                         const char *did)
{
  const operation &a = operations[now], &b = operations[before];
  const place_in_memory at = place_of(p);
  fail(a.call,
       "on %s: it %s bytes %zu to %zu of an allocation of %zu bytes, which %s on %s %s; nothing"
       " orders the one after the other: an event or a wait is missing",
       actors[a.actor].c_str(), does, at.offset, at.offset + bytes - 1, at.bytes, b.call,
       actors[b.actor].c_str(), did);
}

[[noreturn]] void report_outside(const char *does, const void *p, size_t bytes)
{
  const place_in_memory at = place_of(p);
  fail(operations[now].call, "it %s %zu bytes at offset %td of an allocation of %zu bytes", does,
       bytes, (ptrdiff_t)at.offset, at.bytes);
}

bool ordered(uint32_t before)
{
  const operation &o = operations[before];
  return before == now || is_over(*known, o.actor, o.count);
}

uint32_t with_reader(uint32_t read)
{
  if (!read || (!(read & SEVERAL) && ordered(read))) return now;
  std::vector<uint32_t> all;
  if (read & SEVERAL)
    all = readers[read & ~SEVERAL];
  else
    all = {read};
  all.erase(std::remove_if(all.begin(), all.end(), ordered), all.end());
  all.push_back(now);
  return all.size() == 1 ? now : row_of(std::move(all));
}

// The new state of a cell that is read or written now; fails if that is a race.
cell after_read(cell c, const void *p, size_t bytes)
{
  if (c.write == OUTSIDE) report_outside("reads", p, bytes);
  if (c.write == now || c.read == now) return c;
  if (!ordered(c.write)) report("reads", p, bytes, c.write, "writes");
  return {c.write, with_reader(c.read)};
}

cell after_write(cell c, const void *p, size_t bytes)
{
  if (c.write == OUTSIDE) report_outside("writes", p, bytes);
  if (!ordered(c.write)) report("writes", p, bytes, c.write, "writes, too");
  if (c.read & SEVERAL) {
    for (uint32_t r : readers[c.read & ~SEVERAL])
      if (!ordered(r)) report("writes", p, bytes, r, "reads");
  } else if (!ordered(c.read)) {
    report("writes", p, bytes, c.read, "reads");
  }
  return {now, 0};
}

// The number of bytes from a cell on, up to an end, in the same state: for the message.
size_t alike(const cell *c, const cell *end)
{
  const cell *other = c;
  while (other < end && other->write == c->write && other->read == c->read) other++;
  return (size_t)(other - c) * 2;
}

// Adjacent cells mostly have the same state: a state that was seen before becomes what it became
// then.
template <cell after(cell, const void *, size_t)> void touch(const char *p, size_t bytes)
{
  if (!bytes || !now) return;
  cell *begin = cells_at(p), *end = cells_at(p + bytes - 1) + 1;
  cell seen = {}, made = {};
  for (cell *c = begin; c < end; c++) {
    if (c == begin || c->write != seen.write || c->read != seen.read) {
      seen = *c;
      made = after(seen, p + (c - begin) * 2, std::min(alike(c, end), bytes));
    }
    *c = made;
  }
}
} // namespace

// ---- clocks

void join(clocks &into, const clocks &from)
{
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

unsigned new_actor(const std::string &name)
{
  actors.push_back(name);
  return (unsigned)actors.size() - 1;
}

const clocks &host_clock()
{
  return host;
}

bool host_has(const clocks &done)
{
  for (size_t i = 0; i < done.size(); i++)
    if (done[i] > (i < host.size() ? host[i] : 0)) return false;
  return true;
}

// Runs the effects that wait for no more than that.
static void deliver(const clocks &done)
{
  for (size_t i = 0; i < at_host.size();) {
    if (!is_over(done, at_host[i].actor, at_host[i].count)) {
      i++;
      continue;
    }
    const std::function<void()> work = at_host[i].work;
    at_host.erase(at_host.begin() + (ptrdiff_t)i);
    work();
  }
}

// Ends what must be over before what has this clock, except for this call of this actor: calls that
// go on stand in line.
static void finish(const clocks &before, unsigned actor, const char *call)
{
  const auto stands_in_line = [&](const later &l) {
    return l.actor == actor && !strcmp(l.call, call);
  };
  for (size_t i = 0; i < not_over.size();) {
    if (!is_over(before, not_over[i].actor, not_over[i].count) || stands_in_line(not_over[i])) {
      i++;
      continue;
    }
    const std::function<void()> work = not_over[i].work;
    not_over.erase(not_over.begin() + (ptrdiff_t)i);
    work();
  }
}

void over_when(const std::function<void()> &work)
{
  not_over.push_back({operations[now].actor, operations[now].count, work, operations[now].call});
}

void host_waits(const clocks &done)
{
  finish(done, 0, "");
  join(host, done);
  deliver(host);
}

void when_host_knows(const std::function<void()> &work)
{
  at_host.push_back({operations[now].actor, operations[now].count, work, operations[now].call});
}

void run_operation(const char *call, unsigned actor, clocks &clock,
                   const std::function<void()> &work)
{
  finish(clock, actor, call);
  if (clock.size() <= actor) clock.resize(actor + 1);
  const uint32_t count = ++clock[actor];
  if (operations.size() == OUTSIDE) fail(call, "too many operations");
  operations.push_back({call, actor, count});
  now = (uint32_t)operations.size() - 1;
  known = &clock;
  {
    device_access access;
    work();
    check_edges(call);
  }
  now = 0;
  known = nullptr;
}

void host_waits_for_this()
{
  host_waits(*known);
}

void arrived()
{
  deliver(*known);
}

// ---- what operations touch

void reads(const void *p, size_t bytes)
{
  touch<after_read>(static_cast<const char *>(p), bytes);
}

void writes(const void *p, size_t bytes)
{
  touch<after_write>(static_cast<const char *>(p), bytes);
}

void reads(const stretches &s)
{
  if (s.bytes == s.pitch) return reads(s.at, s.extent());
  for (size_t i = 0; i < s.count; i++) reads(s.at + i * s.pitch, s.bytes);
}

void writes(const stretches &s)
{
  if (s.bytes == s.pitch) return writes(s.at, s.extent());
  for (size_t i = 0; i < s.count; i++) writes(s.at + i * s.pitch, s.bytes);
}

void close_cells(const void *p, size_t bytes)
{
  std::fill_n(cells_at(p), bytes / 2, cell{OUTSIDE, 0});
}
} // namespace cuda_on_cpu
