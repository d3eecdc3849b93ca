// SPDX-License-Identifier: MIT
// Of a model that generates: sequences in slots, whose caches remember their tokens.
#include "library/library.h"

#include <stdlib.h>
#include <string.h>
#include "base/target.h"
#include "checkpoint/across_ranks.h"

// The input or output of that name.
static const struct member *tensor_called(const struct library *m, const char *name)
{
  for (size_t i = 0; i < m->members.count; i++)
    if (strcmp(m->members.all[i].name, name) == 0) return &m->members.all[i];
  return NULL;
}

static bool generates(struct library *m)
{
  if (!program->generation) return failed(&m->error, "the plan does not generate: it has no slots");
  if (m->lengths) return true;
  m->lengths = calloc((size_t)program->generation->slots, sizeof *m->lengths);
  struct failure why = {"out of memory"};
  return all_ranks_ok(m->lengths, &why);
}

static bool has_slot(struct library *m, int slot)
{
  if (!generates(m)) return false;
  if (slot < 0 || slot >= program->generation->slots)
    return failed(&m->error, "there is no slot %d: they are 0 to %d", slot,
                  program->generation->slots - 1);
  return true;
}

static bool is_token(struct library *m, int token)
{
  const struct member *tokens = tensor_called(m, "decode.tokens");
  const int below = (int)program->tensors[tokens->row].init.b;
  if (token < 0 || token >= below)
    return failed(&m->error, "%d is not a token: they are 0 to %d", token, below - 1);
  return true;
}

static void put(const struct library *m, const char *name, const int *numbers, int count)
{
  target_put(table_memory(tensor_called(m, name)), numbers, (size_t)count * sizeof *numbers);
}

struct addition {
  int slot;
  const int *tokens;
  long count;
  float *logits;
  bool begins;
};

// All pieces of the tokens; the logits are those of the last one.
static bool extend(struct library *m, void *with)
{
  const struct addition *a = with;
  if (!has_slot(m, a->slot)) return false;
  const struct generation *g = program->generation;
  long *length = &m->lengths[a->slot];
  const long before = a->begins ? 0 : *length;
  if (a->count < 1) return failed(&m->error, "slot %d is given no tokens", a->slot);
  if (a->count > g->context - before)
    return failed(&m->error, "slot %d has %ld tokens: %ld more do not fit into a context of %d",
                  a->slot, before, a->count, g->context);
  for (long i = 0; i < a->count; i++)
    if (!is_token(m, a->tokens[i])) return false;
  int *piece = m->stage; // STAGED_BYTES are more than a piece
  *length = before;
  for (long done = 0; done < a->count;) {
    const int n = a->count - done < g->chunk ? (int)(a->count - done) : g->chunk;
    const int start = (int)*length, last = n - 1;
    for (int i = 0; i < g->chunk; i++) piece[i] = i < n ? a->tokens[done + i] : 0;
    put(m, "prefill.tokens", piece, g->chunk);
    put(m, "prefill.slot", &a->slot, 1);
    put(m, "prefill.start", &start, 1);
    put(m, "prefill.last", &last, 1);
    target_run(g->prefill);
    target_wait();
    *length += n;
    done += n;
  }
  if (a->logits) library_gather(m, tensor_called(m, "prefill.logits"), a->logits);
  return true;
}

int library_begin(struct library *m, int slot, const int tokens[], long count, float logits[])
{
  return library_call(m, extend, &(struct addition){slot, tokens, count, logits, true});
}

int library_extend(struct library *m, int slot, const int tokens[], long count, float logits[])
{
  return library_call(m, extend, &(struct addition){slot, tokens, count, logits, false});
}

static bool decode(struct library *m, void *with)
{
  const struct addition *a = with;
  if (!generates(m)) return false;
  const struct generation *g = program->generation;
  for (int slot = 0; slot < g->slots; slot++) {
    if (a->tokens[slot] < 0) continue;
    if (!is_token(m, a->tokens[slot])) return false;
    if (m->lengths[slot] >= g->context)
      return failed(&m->error, "slot %d has %d tokens, as many as its context", slot, g->context);
  }
  int *token = m->stage, *of = token + g->slots, *start = of + g->slots;
  for (int slot = 0; slot < g->slots; slot++) {
    const bool rests = a->tokens[slot] < 0;
    token[slot] = rests ? 0 : a->tokens[slot];
    of[slot] = rests ? -1 : slot;
    start[slot] = rests ? 0 : (int)m->lengths[slot]++;
  }
  put(m, "decode.tokens", token, g->slots);
  put(m, "decode.slot", of, g->slots);
  put(m, "decode.start", start, g->slots);
  target_run(g->decode);
  target_wait();
  if (a->logits) library_gather(m, tensor_called(m, "decode.logits"), a->logits);
  return true;
}

int library_decode(struct library *m, const int tokens[], float logits[])
{
  return library_call(m, decode, &(struct addition){.tokens = tokens, .logits = logits});
}

static bool reset(struct library *m, void *with)
{
  const int slot = *(const int *)with;
  if (!has_slot(m, slot)) return false;
  m->lengths[slot] = 0;
  return true;
}

int library_reset(struct library *m, int slot)
{
  return library_call(m, reset, &slot);
}

long library_length(const struct library *m, int slot)
{
  const struct generation *g = m->rank->program->generation;
  return g && m->lengths && slot >= 0 && slot < g->slots ? m->lengths[slot] : 0;
}
