// SPDX-License-Identifier: MIT
// Sequences that are generated side by side.
#include "text/chat/slots.h"

#include <stdlib.h>
#include "base/clock.h"
#include "base/program.h"

struct jobs_figures jobs_figures;

static struct {
  struct job *waiting, **last_waiting;
  struct job **in_slot;
  struct slot_work *work;
  struct candidate *best;
} jobs;

bool jobs_open(struct failure *why)
{
  const size_t slots = (size_t)program->generation->slots;
  jobs.last_waiting = &jobs.waiting;
  jobs.in_slot = calloc(slots, sizeof *jobs.in_slot);
  jobs.work = calloc(slots, sizeof *jobs.work);
  jobs.best = calloc(slots * MOST_TOP, sizeof *jobs.best);
  return (jobs.in_slot && jobs.work && jobs.best) || failed(why, "out of memory");
}

void jobs_close(void)
{
  free(jobs.in_slot);
  free(jobs.work);
  free(jobs.best);
}

void jobs_add(struct job *job)
{
  job->next = NULL;
  job->slot = -1;
  job->count = job->prompt_count;
  *jobs.last_waiting = job;
  jobs.last_waiting = &job->next;
}

void jobs_cancel(struct job *job)
{
  job->why = CANCELLED;
}

static struct job *take_waiting(void)
{
  struct job *job = jobs.waiting;
  jobs.waiting = job->next;
  if (!jobs.waiting) jobs.last_waiting = &jobs.waiting;
  return job;
}

static void end(struct job *job)
{
  if (job->slot >= 0) jobs.in_slot[job->slot] = NULL;
  job->ended(job);
}

static struct slot_work work_of_slot(struct job *job, int count)
{
  const int next = job->in_cache + count;
  const bool knows = job->scores_known && next < job->prompt_count;
  return (struct slot_work){.slot = job->slot,
                            .start = job->in_cache,
                            .ids = job->ids + job->in_cache,
                            .count = count,
                            .asks = knows || next == job->count,
                            .known = knows ? job->ids[next] : -1,
                            .how = job->how,
                            .prompt = job->number,
                            .top = job->top,
                            .scores = job->scores,
                            .best = jobs.best + (size_t)job->slot * MOST_TOP};
}

// A token was made, or a known one was scored.
static void grow(struct job *job, const struct slot_work *t)
{
  const int room = program->generation->context;
  job->in_cache += t->count;
  if (!t->asks || job->why) return;
  if (t->known >= 0) {
    job->made(job, t);
    return;
  }
  if (job->count == job->prompt_count) job->first_token = seconds_now();
  job->ids[job->count++] = t->token;
  if (job->made(job, t))
    job->why = AT_STOP;
  else if (job->count - job->prompt_count >= job->most)
    job->why = AT_LENGTH;
  else if (job->count >= room)
    job->why = AT_CONTEXT;
}

// A call of prefill computes a whole chunk, even for fewer tokens. So a few tokens at the end of a
// prompt go one by one with the other sequences' next tokens, and so do those that are scored, as
// prefill gives the logits of one token.
static bool is_few(int tokens)
{
  enum { CALLS_WORTH_A_CHUNK = 16 };
  return tokens <= 1 || tokens <= program->generation->chunk / CALLS_WORTH_A_CHUNK;
}

static bool is_in_prompt(const struct job *job)
{
  return !job->scores_known && !is_few(job->prompt_count - job->in_cache) &&
         job->in_cache < job->prompt_count;
}

// Whether no token is to be made, and none of the prompt is left to be scored.
static bool wants_nothing(const struct job *job)
{
  return job->most == 0 && (!job->scores_known || job->in_cache + 1 >= job->prompt_count);
}

// Takes the next chunk of a prompt.
static void take_chunk(struct job *job)
{
  const int left = job->prompt_count - job->in_cache, chunk = program->generation->chunk;
  const double began = seconds_now();
  struct slot_work t = work_of_slot(job, left < chunk ? left : chunk);
  engine_run(&t, 1);
  grow(job, &t);
  jobs_figures.prompt_tokens += t.count;
  jobs_figures.prompt_seconds += seconds_now() - began;
}

// Those that were cancelled before they had a slot.
static void end_cancelled(void)
{
  for (struct job **at = &jobs.waiting; *at;) {
    struct job *job = *at;
    if (!job->why) {
      at = &job->next;
      continue;
    }
    *at = job->next;
    if (!*at) jobs.last_waiting = at;
    job->ended(job);
  }
}

static void fill_slots(void)
{
  for (int slot = 0; slot < program->generation->slots && jobs.waiting; slot++) {
    if (jobs.in_slot[slot]) continue;
    struct job *job = take_waiting();
    job->slot = slot;
    job->began = seconds_now();
    jobs.in_slot[slot] = job;
  }
}

// The next token of all sequences that are through with their prompts.
static void run_work(int n)
{
  const double began = seconds_now();
  engine_run(jobs.work, n);
  jobs_figures.decode_seconds += seconds_now() - began;
  jobs_figures.decode_calls++;
  for (int i = 0; i < n; i++) {
    struct job *job = jobs.in_slot[jobs.work[i].slot];
    jobs_figures.made_tokens += jobs.work[i].asks && jobs.work[i].known < 0;
    grow(job, &jobs.work[i]);
    if (job->why) end(job);
  }
}

bool jobs_step(void)
{
  int n = 0, there = 0;
  end_cancelled();
  fill_slots();
  for (int slot = 0; slot < program->generation->slots; slot++) {
    struct job *job = jobs.in_slot[slot];
    if (job && !job->why && wants_nothing(job)) job->why = AT_LENGTH;
    if (job && !job->why && is_in_prompt(job)) take_chunk(job);
    if (job && job->why) {
      end(job);
    } else if (job) {
      there++;
      if (!is_in_prompt(job)) jobs.work[n++] = work_of_slot(job, 1);
    }
  }
  if (n > 0) run_work(n);
  return there > 0 || jobs.waiting;
}
