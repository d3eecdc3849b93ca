// SPDX-License-Identifier: MIT
#include "checkpoint/save_layout.h"

#include <ctype.h>
#include <fnmatch.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "data/tokens.h"
#include "formats/safetensors_set.h"
#include "tensors/adapters.h"
#include "tensors/file_elements.h"

// ---- names -------------------------------------------------------------------------------------

const char *single_name(const struct save *s)
{
  if (s->what.kind == ADAPTER) return ADAPTER_FILE;
  return s->what.kind == CHECKPOINT && program->loss < 0 ? OUTPUTS : SINGLE;
}

static const char *generation_text(const struct save *s, char to[16])
{
  to[0] = 0;
  if (s->generation > 1) snprintf(to, 16, "%d-", s->generation);
  return to;
}

void final_name(const struct save *s, size_t i, char to[NAME])
{
  char generation[16];
  if (s->nparts == 1)
    snprintf(to, NAME, "%s", single_name(s));
  else
    snprintf(to, NAME, "model-%s%05zu-of-%05zu.safetensors", generation_text(s, generation), i + 1,
             s->nparts);
}

void new_name(const struct save *s, size_t i, char to[NAME])
{
  if (s->nparts == 1)
    snprintf(to, NAME, ".%s.%s.tmp", single_name(s), s->what.token);
  else
    snprintf(to, NAME, ".model-%05zu-of-%05zu.safetensors.%s.tmp", i + 1, s->nparts, s->what.token);
}

void new_index_name(const struct save *s, char to[NAME])
{
  snprintf(to, NAME, ".%s.%s.tmp", INDEX, s->what.token);
}

bool is_own_part(const struct save *s, const char *name)
{
  char begin[NAME], end[NAME], generation[16];
  snprintf(begin, sizeof begin, "model-%s", generation_text(s, generation));
  snprintf(end, sizeof end, "-of-%05zu.safetensors", s->nparts);
  if (s->nparts == 1 || strncmp(name, begin, strlen(begin)) != 0) return false;
  for (name += strlen(begin); isdigit((unsigned char)*name); name++) continue;
  return strcmp(name, end) == 0;
}

// ---- what is saved -----------------------------------------------------------------------------

bool save_widens(const struct save *s, const struct member *m)
{
  const struct tensor *t = &program->tensors[m->row];
  return s->what.kind == EXPORT && t->role == PARAMETER && elements_type(t) != t->type;
}

// Whether the plan's patterns name it.
static bool is_exported(const struct member *m)
{
  bool fits = !program->exports;
  for (const char *at = program->exports; at && *at && !fits;) {
    char one[1024];
    const size_t length = strcspn(at, "|");
    if (length < sizeof one) {
      memcpy(one, at, length);
      one[length] = 0;
      fits = fnmatch(one, m->name, 0) == 0;
    }
    at += length + (at[length] != 0);
  }
  return fits;
}

static bool is_saved(const struct save *s, const struct member *m)
{
  const struct tensor *t = &program->tensors[m->row];
  if (s->what.kind != CHECKPOINT && t->init.how == NESTED) return false;
  if (s->what.kind == ADAPTER) return t->role == PARAMETER && adapters_have(m->name);
  if (s->what.kind == EXPORT)
    return t->role == PARAMETER && !adapters_have(m->name) && is_exported(m);
  return program->loss < 0 ? t->role == OUTPUT : t->role == PARAMETER || t->role == STATE;
}

// Whether the file has it under its alias.
static bool is_by_alias(const struct save *s, const struct member *m)
{
  return s->what.kind != CHECKPOINT && m->alias;
}

const struct member *save_next(const struct save *s, const struct member *m)
{
  return is_by_alias(s, m) ? m->alias_next : m->next;
}

// index: see struct save.
static void add_entry(struct save *s, const struct member *m, const char *name, long index)
{
  const struct tensor *t = &program->tensors[m->row];
  const struct joined *joined = is_by_alias(s, m) ? table_joined(m->row) : NULL;
  const int without = index >= 0;
  s->saved[s->count] = m;
  s->index[s->count] = index;
  s->entries[s->count++] =
      (struct entry){.name = name,
                     .dtype = table_type(save_widens(s, m) ? F32 : t->type).name,
                     .ndim = (size_t)(t->ndim - without),
                     .shape = (joined ? joined->of : t->of) + without,
                     .has_crc = s->has_crcs};
  struct entry *e = &s->entries[s->count - 1];
  long *shape = s->shapes[s->count - 1];
  if (save_widens(s, m) && table_block(t->type) && !joined) {
    struct numbers_slice numbers;
    table_numbers(m->row, OWN_NAME, &numbers);
    memcpy(shape, numbers.of, sizeof t->of);
    e->ndim = numbers.slice.ndim;
    e->shape = shape;
  }
  if (!s->what.samples || t->init.how != OF_SAMPLES) return;
  memcpy(shape, t->of, sizeof t->of);
  shape[0] = (long)s->what.samples;
  e->shape = shape;
}

static bool list_saved(struct save *s, struct failure *why)
{
  if (!table_members(&s->members, why)) return false;
  const size_t most = s->members.nnames + s->members.count + 1;
  s->entries = calloc(most, sizeof *s->entries);
  s->saved = calloc(most, sizeof *s->saved);
  s->index = calloc(most, sizeof *s->index);
  s->shares = calloc(most, sizeof *s->shares);
  s->shapes = calloc(most, sizeof *s->shapes);
  if (!s->entries || !s->saved || !s->index || !s->shares || !s->shapes)
    return failed(why, "out of memory for saving");
  for (size_t i = 0; i < s->members.count; i++) {
    const struct member *m = &s->members.all[i];
    const bool by_alias = is_by_alias(s, m);
    const char *name = by_alias ? m->alias : m->name;
    if (!is_saved(s, m) || (by_alias ? m->alias_of : m->of) != m) continue;
    const long stacked = by_alias ? table_stacked(m) : 0;
    for (long k = 0; k < stacked; k++) {
      name += strlen(name) + 1; // the names of a stack follow its alias
      add_entry(s, m, name, k);
    }
    if (!stacked) add_entry(s, m, name, -1);
  }
  return true;
}

static uint64_t whole_bytes(const struct entry *e)
{
  uint64_t bytes = safetensors_bits(e->dtype) / 8;
  for (size_t d = 0; d < e->ndim; d++) bytes *= (uint64_t)e->shape[d];
  return bytes;
}

// Adjacent tensors share a file until it would exceed shard_bytes.
static bool cut_into_parts(struct save *s, struct failure *why)
{
  s->parts = calloc(s->count + 1, sizeof *s->parts);
  if (!s->parts) return failed(why, "out of memory for saving");
  bool cuts = s->what.shard_bytes > 0 && strcmp(single_name(s), SINGLE) == 0;
  struct part *part = &s->parts[s->nparts++];
  for (size_t i = 0; i < s->count; i++) {
    uint64_t bytes = whole_bytes(&s->entries[i]);
    if (cuts && part->count > 0 && part->bytes + bytes > s->what.shard_bytes) {
      part = &s->parts[s->nparts++];
      part->first = i;
    }
    part->count++;
    part->bytes += bytes;
  }
  return true;
}

// ---- texts -------------------------------------------------------------------------------------

// A checkpoint names its program and its step; an export, which is the same for every program of a
// model, only says that such a program wrote it.
char *make_head(struct save *s, size_t i, size_t *length, struct failure *why)
{
  char step[16], tokens[24], epoch[24], sample[24], best[32], best_step[16], without[16],
      of_all[16], *head;
  const char *pairs[10][2] = {{"format", "pt"}, {WRITTEN_BY, "tpgen"}};
  size_t n = 2;
  const struct part *p = &s->parts[i];
  snprintf(step, sizeof step, "%d", s->what.step);
  const struct position at = s->at;
  snprintf(tokens, sizeof tokens, "%llu", (unsigned long long)at.tokens);
  snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)at.epoch);
  snprintf(sample, sizeof sample, "%llu", (unsigned long long)at.sample);
  snprintf(best, sizeof best, "%.17g", s->validations.best);
  snprintf(best_step, sizeof best_step, "%d", s->validations.best_step);
  snprintf(without, sizeof without, "%d", s->validations.without);
  snprintf(of_all, sizeof of_all, "%08x", (unsigned)s->of_all);
  if (s->what.kind == CHECKPOINT) {
    pairs[1][0] = PLAN_HASH, pairs[1][1] = program->hash;
    pairs[n][0] = "step", pairs[n++][1] = step;
    if (program->exported) pairs[n][0] = "exported", pairs[n++][1] = program->exported;
  }
  if (s->what.kind == CHECKPOINT && at.of_samples) {
    pairs[n][0] = "epoch", pairs[n++][1] = epoch;
    pairs[n][0] = "sample", pairs[n++][1] = sample;
  } else if (s->what.kind == CHECKPOINT && tokens_of_batch() > 0) {
    pairs[n][0] = "tokens", pairs[n++][1] = tokens;
  }
  if (s->what.kind == CHECKPOINT && s->validations.best_step > 0) {
    pairs[n][0] = validations_best_name(), pairs[n++][1] = best;
    pairs[n][0] = "best_step", pairs[n++][1] = best_step;
    pairs[n][0] = "validations_without", pairs[n++][1] = without;
  }
  if (s->has_crcs && p->count > 0) pairs[n][0] = "crc32c_of_all", pairs[n++][1] = of_all;
  return safetensors_layout(s->entries + p->first, p->count, (const char *const(*)[2])pairs, n,
                            &head, length, why)
             ? head
             : NULL;
}

json_t *make_index(const struct save *s, struct failure *why)
{
  char name[NAME];
  uint64_t bytes = 0;
  json_t *map = json_object();
  for (size_t i = 0; i < s->nparts; i++) {
    const struct part *p = &s->parts[i];
    final_name(s, i, name);
    bytes += p->bytes;
    for (size_t k = p->first; k < p->first + p->count; k++)
      json_object_set_new(map, s->entries[k].name, json_string(name));
  }
  bool whole = json_object_size(map) == s->count;
  json_t *index = json_pack("{s:{s:I, s:s}, s:o}", "metadata", "total_size", (json_int_t)bytes,
                            WRITTEN_BY, "tpgen", "weight_map", map);
  if (!json_memory_ended() && index && whole) return index;
  failed(why, "%s: out of memory for its index", s->directory);
  json_decref(index);
  return NULL;
}

// The start of each file's data: the length of a header does not depend on its checksums.
static bool measure_heads(struct save *s, struct failure *why)
{
  for (size_t i = 0; i < s->nparts; i++) {
    char *head = make_head(s, i, &s->parts[i].length, why);
    if (!head) return false;
    free(head);
  }
  return true;
}

void save_end(struct save *s)
{
  if (!s) return;
  adapters_end();
  free(s->parts);
  free(s->entries);
  free(s->saved);
  free(s->index);
  free(s->shares);
  free(s->shapes);
  free(s->copied);
  free(s->directory);
  table_free(&s->members);
  free(s);
}

struct save *save_plan(const struct saving *what, struct failure *why)
{
  struct save *s = calloc(1, sizeof *s);
  bool ok = s || failed(why, "out of memory for saving");
  if (ok) {
    s->what = *what;
    s->generation = 1;
    s->has_crcs = what->kind == CHECKPOINT;
    s->at = batches_position(what->step * program->batches);
    s->validations = validations;
    s->directory = strdup(what->directory);
    ok = s->directory || failed(why, "out of memory for saving");
  }
  ok = ok && (strlen(s->directory) + NAME + 2 < PATH_MAX ||
              failed(why, "%s: the path is too long", s->directory));
  ok = ok && list_saved(s, why) && cut_into_parts(s, why) && measure_heads(s, why);
  if (ok) return s;
  save_end(s);
  return NULL;
}
