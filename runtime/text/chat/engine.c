// SPDX-License-Identifier: MIT
// The entries of a program that generates. Rank 0 sends each call to the others: its work and
// their tokens; then all run it, and combine their best candidates.
#include "text/chat/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/program.h"
#include "base/target.h"
#include "text/chat/slots.h"

enum { CANDIDATES = 64 };

// The tensors of an entry: rows of the program's table.
struct entry {
  void (*run)(void);
  int tokens, slot, start, last, logits;
};

// The message ahead of a call.
struct header {
  int slots; // 0: the end
  int rest;  // above 0: no call, but so many milliseconds without one
};

static struct {
  struct entry prefill, decode;
  struct slot_work *work; // of the call
  int *ids, *numbers;
  float *logits, *changed; // of this rank's tokens, for each slot; as the draw takes them
  uint32_t *meeting;
  size_t meeting_size;
  int **seen, *nseen; // by slot: the tokens of its sequence
  long vocab;         // of this rank's part
  int first;          // its first token
  bool gives;         // this rank's candidates count: no rank before it has the same part
} engine;

static int find_row(const char *name)
{
  for (int i = 0; i < program->ntensors; i++)
    if (!program->tensors[i].name.rest && strcmp(program->tensors[i].name.name, name) == 0)
      return i;
  return -1;
}

static struct entry entry_called(const char *name, void (*run)(void))
{
  char of[64];
  struct entry e = {.run = run};
  const struct {
    const char *input;
    int *row;
  } inputs[] = {{"tokens", &e.tokens},
                {"slot", &e.slot},
                {"start", &e.start},
                {"last", &e.last},
                {"logits", &e.logits}};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
    snprintf(of, sizeof of, "%s.%s", name, inputs[i].input);
    *inputs[i].row = find_row(of);
  }
  return e;
}

static void *memory_of(int row)
{
  return (char *)rank_memory + program->tensors[row].offset;
}

bool engine_open(struct failure *why)
{
  const struct generation *g = program->generation;
  engine.prefill = entry_called("prefill", g->prefill);
  engine.decode = entry_called("decode", g->decode);
  const struct tensor *logits = &program->tensors[engine.decode.logits];
  const struct own_part *part = &rank->parts[engine.decode.logits];
  engine.vocab = logits->here[logits->ndim - 1];
  engine.first = (int)part->first[logits->ndim - 1];
  engine.gives = part->saves && engine.vocab > 0;
  const size_t slots = (size_t)g->slots, all = slots * (size_t)engine.vocab;
  engine.work = calloc(slots, sizeof *engine.work);
  engine.ids = calloc((size_t)(g->chunk > g->slots ? g->chunk : g->slots), sizeof *engine.ids);
  engine.numbers = calloc((size_t)(g->chunk > g->slots ? g->chunk : g->slots), sizeof(int));
  engine.logits = calloc(all + 1, sizeof *engine.logits);
  engine.changed = calloc((size_t)engine.vocab + 1, sizeof *engine.changed);
  engine.seen = calloc(slots, sizeof *engine.seen);
  engine.nseen = calloc(slots, sizeof *engine.nseen);
  bool ok = engine.work && engine.ids && engine.numbers && engine.logits && engine.changed &&
            engine.seen && engine.nseen;
  for (size_t i = 0; ok && i < slots; i++)
    ok = (engine.seen[i] = calloc((size_t)g->context, sizeof(int))) != NULL;
  return ok || failed(why, "out of memory for %d slots", g->slots);
}

void engine_close(void)
{
  for (int i = 0; engine.seen && i < program->generation->slots; i++) free(engine.seen[i]);
  void *all[] = {engine.work,    engine.ids,  engine.numbers, engine.logits,
                 engine.changed, engine.seen, engine.nseen,   engine.meeting};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  memset(&engine, 0, sizeof engine);
}

// ---- a call ------------------------------------------------------------------------------------

static void put(int row, const int *numbers, int count)
{
  target_put(memory_of(row), numbers, (size_t)count * sizeof *numbers);
}

static void run_prompt(const struct slot_work *t)
{
  const struct generation *g = program->generation;
  const int last = t->count - 1;
  for (int i = 0; i < g->chunk; i++) engine.numbers[i] = i < t->count ? t->ids[i] : 0;
  put(engine.prefill.tokens, engine.numbers, g->chunk);
  put(engine.prefill.slot, &t->slot, 1);
  put(engine.prefill.start, &t->start, 1);
  put(engine.prefill.last, &last, 1);
  target_run(engine.prefill.run);
}

// One number for each slot: `of` that of the slot's work, or `otherwise`.
static void put_by_slot(int row, const struct slot_work *work, int n,
                        int (*of)(const struct slot_work *), int otherwise)
{
  for (int i = 0; i < program->generation->slots; i++) engine.numbers[i] = otherwise;
  for (int i = 0; i < n; i++) engine.numbers[work[i].slot] = of(&work[i]);
  put(row, engine.numbers, program->generation->slots);
}

static int token_of(const struct slot_work *t)
{
  return t->ids[0];
}

static int slot_of(const struct slot_work *t)
{
  return t->slot;
}

static int start_of(const struct slot_work *t)
{
  return t->start;
}

static void run_next(const struct slot_work *work, int n)
{
  put_by_slot(engine.decode.tokens, work, n, token_of, 0);
  put_by_slot(engine.decode.slot, work, n, slot_of, -1);
  put_by_slot(engine.decode.start, work, n, start_of, 0);
  target_run(engine.decode.run);
}

// The logits of work[i], in the host's memory.
static float *logits_of(const struct slot_work *work, int i)
{
  return engine.logits + (work[i].count > 1 ? 0 : work[i].slot) * engine.vocab;
}

static void remember(const struct slot_work *t)
{
  int *n = &engine.nseen[t->slot];
  *n = t->start;
  for (int i = 0; i < t->count && *n < program->generation->context; i++)
    engine.seen[t->slot][(*n)++] = t->ids[i];
}

// ---- the choice --------------------------------------------------------------------------------

// The summary that each rank sends of its logits, for one slot; its candidates follow.
struct logits_part {
  uint32_t count, all; // candidates; whether it has no others
  float largest, own;  // own: the logit of the token that is asked for
  uint32_t has_own, unused;
  double sum; // of exp(logit - largest)
};

static size_t room_for(int candidates)
{
  return sizeof(struct logits_part) + (size_t)candidates * sizeof(struct candidate);
}

// Collective. Each rank's bytes, by rank: combines the bytes that each has at its own place.
static unsigned char *meet(const void *mine, size_t bytes)
{
  const size_t words = bytes / sizeof(uint32_t), all = words * (size_t)program->world;
  if (engine.meeting_size < all) {
    free(engine.meeting);
    engine.meeting = calloc(all, sizeof *engine.meeting);
    engine.meeting_size = all;
    if (!engine.meeting) fail_call(__FILE__, __LINE__, "the choice of a token", "out of memory");
  }
  memset(engine.meeting, 0, all * sizeof *engine.meeting);
  memcpy(engine.meeting + words * (size_t)rank->id, mine, bytes);
  target_combine(engine.meeting, all);
  return (unsigned char *)engine.meeting;
}

// The best candidates of all ranks, in order.
struct merged {
  struct candidate *best;
  int n;
  bool all; // there are no others; else those that a rank has left out are at most `floor`
  float floor;
  double sum; // of exp(logit - best[0].logit) of all tokens; 0 if it is not asked for
  float own;  // the logit of the token that is asked for
};

// Collective. The `most` best of each rank's logits, merged; best is to be freed. sums: with the
// sum. token: with its logit; -1: none.
static struct merged merge(const float *logits, int most, bool sums, int token)
{
  unsigned char *mine = calloc(1, room_for(most));
  struct merged m = {.best = calloc((size_t)most * (size_t)program->world, sizeof *m.best),
                     .all = true,
                     .floor = -INFINITY,
                     .own = -INFINITY};
  if (!mine || !m.best) fail_call(__FILE__, __LINE__, "the choice of a token", "out of memory");
  struct logits_part *part = (struct logits_part *)mine;
  if (engine.gives) {
    const long some = most < engine.vocab ? most : engine.vocab;
    struct candidate *own = (struct candidate *)(part + 1);
    part->count = (uint32_t)sampling_best(logits, engine.vocab, engine.first, (int)some, own);
    part->all = some == engine.vocab;
    if (sums) sampling_sum(logits, engine.vocab, &part->largest, &part->sum);
    part->has_own = token >= engine.first && token - engine.first < engine.vocab;
    if (part->has_own) part->own = logits[token - engine.first];
  }
  const unsigned char *all = meet(mine, room_for(most));
  float largest = -INFINITY;
  for (int r = 0; r < program->world; r++) {
    const struct logits_part *t = (const struct logits_part *)(all + (size_t)r * room_for(most));
    const struct candidate *c = (const struct candidate *)(t + 1);
    if (t->count == 0) continue;
    memcpy(m.best + m.n, c, t->count * sizeof *c);
    m.n += (int)t->count;
    if (!t->all && c[t->count - 1].logit > m.floor) m.floor = c[t->count - 1].logit;
    m.all &= t->all != 0;
    if (t->largest > largest) largest = t->largest;
    if (t->has_own) m.own = t->own;
  }
  for (int r = 0; r < program->world; r++) {
    const struct logits_part *t = (const struct logits_part *)(all + (size_t)r * room_for(most));
    if (t->count > 0) m.sum += t->sum * exp((double)t->largest - largest);
  }
  sampling_sort(m.best, m.n);
  while (!m.all && m.n > 1 && m.best[m.n - 1].logit < m.floor) m.n--;
  free(mine);
  return m;
}

// A token drawn from all, by the ranks' best scores.
static int draw_of_all(const float *logits, const struct draw *draw)
{
  struct {
    double score;
    int id, has;
  } mine = {0}, best = {0};
  if (engine.gives)
    mine.id = sampling_draw_logits(logits, engine.vocab, engine.first, draw, &mine.score),
    mine.has = 1;
  const unsigned char *all = meet(&mine, sizeof mine);
  for (int r = 0; r < program->world; r++) {
    memcpy(&mine, all + (size_t)r * sizeof mine, sizeof mine);
    if (mine.has && (!best.has || mine.score > best.score)) best = mine;
  }
  return best.id;
}

// Draws among the candidates that the filters leave: takes more candidates until these are certain.
static int draw_filtered(const float *logits, const struct sampling *how, const struct draw *draw)
{
  const struct tensor *whole = &program->tensors[engine.decode.logits];
  const int all = (int)whole->of[whole->ndim - 1];
  for (long most = how->top_k > CANDIDATES ? how->top_k + 1L : CANDIDATES;; most *= 4) {
    struct merged m = merge(logits, most < all ? (int)most : all, true, -1);
    int kept = m.n;
    const bool certain = sampling_keep(m.best, m.n, m.all, m.sum, how, &kept); // of all it is
    const int token = certain ? m.best[sampling_draw(m.best, kept, draw)].id : -1;
    free(m.best);
    if (certain) return token;
  }
}

static int chosen(const struct slot_work *t, const float *logits)
{
  const struct draw draw = {t->how.seed, t->prompt, (uint32_t)(t->start + t->count)};
  sampling_prepare(logits, engine.changed, engine.vocab, engine.first, &t->how,
                   engine.seen[t->slot], t->how.penalty == 1 ? 0 : engine.nseen[t->slot]);
  if (t->how.temperature > 0)
    return sampling_filters(&t->how) ? draw_filtered(engine.changed, &t->how, &draw)
                                     : draw_of_all(engine.changed, &draw);
  struct merged m = merge(engine.changed, 1, false, -1);
  const int token = m.best[0].id;
  free(m.best);
  return token;
}

// The next token, and what is asked about it.
static void choose(struct slot_work *t, const float *logits)
{
  t->token = t->known >= 0 ? t->known : chosen(t, logits);
  if (t->top == 0 && !t->scores) return;
  struct merged m = merge(logits, t->top > 0 ? t->top : 1, t->scores, t->token);
  for (int i = 0; i < t->top; i++)
    if (t->best) t->best[i] = m.best[i < m.n ? i : m.n - 1];
  t->log_sum = m.best[0].logit + log(m.sum);
  t->log_probability = m.own - t->log_sum;
  free(m.best);
}

// All ranks.
static void run(struct slot_work *work, int n)
{
  const bool is_prompt = work[0].count > 1;
  bool asked = false;
  if (is_prompt)
    run_prompt(work);
  else
    run_next(work, n);
  for (int i = 0; i < n; i++) remember(&work[i]), asked |= work[i].asks;
  if (!asked) return;
  const size_t rows = is_prompt ? 1 : (size_t)program->generation->slots;
  target_get(engine.logits, memory_of((is_prompt ? engine.prefill : engine.decode).logits),
             rows * (size_t)engine.vocab * sizeof *engine.logits);
  for (int i = 0; i < n; i++)
    if (work[i].asks) choose(&work[i], logits_of(work, i));
}

// ---- among the ranks ---------------------------------------------------------------------------

void engine_run(struct slot_work *work, int n)
{
  struct header header = {.slots = n};
  target_share(&header, sizeof header);
  if (program->world > 1) {
    memcpy(engine.work, work, (size_t)n * sizeof *work);
    target_share(engine.work, (size_t)n * sizeof *work);
    int count = 0;
    for (int i = 0; i < n; i++)
      for (int k = 0; k < work[i].count; k++) engine.ids[count++] = work[i].ids[k];
    target_share(engine.ids, (size_t)count * sizeof *engine.ids);
  }
  run(work, n);
}

void engine_follow(void)
{
  for (;;) {
    struct header header = {0};
    target_share(&header, sizeof header);
    if (header.rest > 0) {
      const struct timespec rest = {.tv_nsec = header.rest * 1000000L};
      nanosleep(&rest, NULL);
      continue;
    }
    if (header.slots == 0) return;
    target_share(engine.work, (size_t)header.slots * sizeof *engine.work);
    int count = 0;
    for (int i = 0; i < header.slots; i++) {
      engine.work[i].ids = engine.ids + count;
      engine.work[i].best = NULL;
      count += engine.work[i].count;
    }
    target_share(engine.ids, (size_t)count * sizeof *engine.ids);
    run(engine.work, header.slots);
  }
}

void engine_end(void)
{
  struct header header = {0};
  target_share(&header, sizeof header);
}

// Rank 0 does not wait for the others here: while they sleep, it sends them nothing more.
void engine_rest(int milliseconds)
{
  static double until;
  struct header header = {.rest = milliseconds};
  const double now = seconds_now();
  if (program->world == 1 || now < until) return;
  until = now + 1e-3 * milliseconds;
  target_share(&header, sizeof header);
}
