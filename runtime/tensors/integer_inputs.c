// SPDX-License-Identifier: MIT
// Integers of inputs: converts them from the types of files, and checks them against the plan.
#include "tensors/integer_inputs.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include "base/indices.h"
#include "base/target.h"

// ---- where an element is ------------------------------------------------------------------------

// The indices of the slice's own element i in the whole tensor.
static void find_place(const struct slice *slice, size_t i, long at[MAX_DIMS])
{
  for (size_t d = slice->ndim; d-- > 0;) {
    at[d] = slice->first[d] + (long)(i % (size_t)slice->here[d]);
    i /= (size_t)slice->here[d];
  }
}

// "y[2, 5] (sample 2)", for the slice's own element i; `at`: its indices in the whole tensor.
static const char *place_text(const struct member *m, const struct slice *slice, size_t i,
                              long at[MAX_DIMS], char text[300])
{
  find_place(slice, i, at);
  int used = snprintf(text, 200, "%s", m->name);
  if (used > 199) used = 199;
  for (size_t d = 0; d < slice->ndim; d++)
    used += snprintf(text + used, 300 - (size_t)used, d ? ", %ld" : "[%ld", at[d]);
  if (slice->ndim > 0) snprintf(text + used, 300 - (size_t)used, "] (sample %ld)", at[0]);
  return text;
}

// ---- types --------------------------------------------------------------------------------------

bool numbers_are(const struct tensor *t)
{
  return t->role == BATCH && (t->type == I32 || t->type == I64 || t->type == BOOL);
}

static const struct kind {
  const char *dtype;
  size_t bytes;
  bool negative;
} kinds[] = {{"BOOL", 1, false}, {"U8", 1, false},  {"I8", 1, true},
             {"U16", 2, false},  {"I16", 2, true},  {"U32", 4, false},
             {"I32", 4, true},   {"U64", 8, false}, {"I64", 8, true}};

static const struct kind *kind_of(const char *dtype)
{
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].dtype, dtype) == 0) return &kinds[i];
  return NULL;
}

// Whether it may represent whole numbers: a buffer of indices, say, or images.
static bool holds_counts(const struct tensor *t)
{
  return (t->role == PARAMETER || t->role == BATCH) && t->type == F32;
}

bool numbers_take(const struct tensor *t, const char *dtype)
{
  return (numbers_are(t) || holds_counts(t)) && kind_of(dtype);
}

// Little-endian, like the files.
static int64_t number_at(const unsigned char *bytes, const struct kind *kind, bool *fits)
{
  uint64_t value = 0;
  for (size_t i = kind->bytes; i-- > 0;) value = value << 8 | bytes[i];
  if (kind->negative && kind->bytes < 8 && value >> (8 * kind->bytes - 1))
    value -= UINT64_C(1) << 8 * kind->bytes;
  *fits = kind->negative || value <= INT64_MAX;
  return (int64_t)value;
}

static bool fits_type(int64_t x, enum type type)
{
  const int64_t exact = 1 << 24; // float32 has all whole numbers up to here
  if (type == F32) return x >= -exact && x <= exact;
  return type == BOOL ? x == 0 || x == 1 : type == I64 || (x >= INT32_MIN && x <= INT32_MAX);
}

static void store(enum type type, int64_t x, void *to, size_t i)
{
  const int32_t narrow = (int32_t)x;
  const float real = (float)x;
  if (type == F32)
    memcpy((char *)to + i * sizeof real, &real, sizeof real);
  else if (type == I64)
    memcpy((char *)to + i * sizeof x, &x, sizeof x);
  else if (type == I32)
    memcpy((char *)to + i * sizeof narrow, &narrow, sizeof narrow);
  else
    ((unsigned char *)to)[i] = x != 0;
}

static bool misfit(const struct kept *kept, const struct member *m, const struct slice *slice,
                   size_t i, int64_t x, bool is_huge, struct failure *why)
{
  char place[300], number[40];
  long at[MAX_DIMS];
  enum type type = program->tensors[m->row].type;
  snprintf(number, sizeof number, is_huge ? "%" PRIu64 : "%" PRId64, x);
  return failed(why, "%s: %s is %s, %s", kept->file->path, place_text(m, slice, i, at, place),
                number,
                type == F32    ? "which float32 does not hold exactly"
                : type == BOOL ? "but the program takes a truth there, 0 or 1"
                : type == I32  ? "which is not an int32, as the program takes it"
                               : "which is not an int64, as the program takes it");
}

bool numbers_read(const struct kept *kept, const struct member *m, const struct slice *slice,
                  size_t from, size_t count, void *to, struct failure *why)
{
  const enum type type = program->tensors[m->row].type;
  const struct kind *kind = kind_of(kept->entry->dtype);
  const size_t size = table_type(type).bytes;
  // Narrower ones are read into the end of the buffer, so that none is overwritten too early.
  unsigned char *read = to;
  if (kind->bytes < size) read += count * (size - kind->bytes);
  if (!safetensors_read(kept->file, kept->entry, slice, from, count, read, why)) return false;
  for (size_t i = 0; i < count; i++) {
    bool fits;
    int64_t x = number_at(read + i * kind->bytes, kind, &fits);
    if (!fits || !fits_type(x, type)) return misfit(kept, m, slice, from + i, x, !fits, why);
    store(type, x, to, i);
  }
  return true;
}

// ---- ranges -------------------------------------------------------------------------------------

static int64_t element_at(enum type type, const void *elements, size_t i)
{
  int64_t x = 0;
  int32_t narrow;
  if (type == I64) {
    memcpy(&x, (const char *)elements + i * sizeof x, sizeof x);
    return x;
  }
  if (type == BOOL) return ((const unsigned char *)elements)[i];
  memcpy(&narrow, (const char *)elements + i * sizeof narrow, sizeof narrow);
  return narrow;
}

static const char *path_of(const struct kept *kept)
{
  return kept ? kept->file->path : "no file gives it";
}

// Whether a loss ignores this number of the input: its labels may be it, whatever the plan
// declares. Where batches may be smaller, a row without a bound has only what fills such a batch
// up.
static bool is_ignored(int row, int64_t x)
{
  for (int i = 0; i < program->nindex_uses; i++) {
    const struct index_use *use = &program->index_uses[i];
    const bool is_own = use->below > 0 || program->last_batch != LAST_SMALLER;
    if (use->input == row && use->ignores && use->ignored == x && is_own) return true;
  }
  return false;
}

static bool hold_declared(const struct kept *kept, const struct member *m,
                          const struct slice *slice, size_t from, size_t count,
                          const void *elements, struct failure *why)
{
  const struct tensor *t = &program->tensors[m->row];
  const bool tokens = t->init.how == TOKENS;
  const int64_t low = tokens ? 0 : (int64_t)t->init.of[0];
  const int64_t end = tokens ? (int64_t)t->init.of[0] : (int64_t)t->init.of[1];
  for (size_t i = 0; i < count; i++) {
    const int64_t x = element_at(t->type, elements, i);
    if ((x >= low && x < end) || is_ignored(m->row, x)) continue;
    char place[300];
    long at[MAX_DIMS];
    return failed(why, "%s: %s is %" PRId64 ", but %s of %s declares %" PRId64 " to %" PRId64,
                  path_of(kept), place_text(m, slice, from + i, at, place), x,
                  tokens ? "tokens" : "randint", program->plan, low, end - 1);
  }
  return true;
}

static bool is_in_part(const struct index_use *use, const long at[MAX_DIMS], size_t ndim)
{
  for (size_t d = 0; d < ndim; d++)
    if (at[d] < use->first[d] || at[d] >= use->first[d] + use->part[d]) return false;
  return true;
}

// "0 to 4, or -100"
static const char *taken_text(const struct index_use *use, char text[80])
{
  int used = snprintf(text, 80, "0 to %ld", use->below - 1);
  if (use->ignores) snprintf(text + used, 80 - (size_t)used, ", or %ld", use->ignored);
  return text;
}

static bool hold_use(const struct kept *kept, const struct member *m, const struct slice *slice,
                     long shift, size_t from, size_t count, const void *elements,
                     const struct index_use *use, struct failure *why)
{
  for (size_t i = 0; i < count && use->below > 0; i++) {
    const int64_t x = element_at(program->tensors[m->row].type, elements, i);
    if ((x >= 0 && x < use->below) || (use->ignores && x == use->ignored)) continue;
    char place[300], taken[80];
    long at[MAX_DIMS];
    place_text(m, slice, from + i, at, place);
    if (slice->ndim > 0) at[0] -= shift;
    if (!is_in_part(use, at, slice->ndim)) continue;
    return failed(why, "%s: %s is %" PRId64 ", but %s at %s:%d takes %s", path_of(kept), place, x,
                  use->what, plan_file(program->plan, use->line), plan_line(use->line),
                  taken_text(use, taken));
  }
  return true;
}

bool numbers_hold(const struct kept *kept, const struct member *m, const struct slice *slice,
                  long shift, size_t from, size_t count, const void *elements, struct failure *why)
{
  const struct tensor *t = &program->tensors[m->row];
  const bool declares = (t->init.how == UNIFORM && t->type != BOOL) || t->init.how == TOKENS;
  if (kept && declares && !hold_declared(kept, m, slice, from, count, elements, why)) return false;
  for (int i = 0; i < program->nindex_uses; i++)
    if (program->index_uses[i].input == m->row &&
        !hold_use(kept, m, slice, shift, from, count, elements, &program->index_uses[i], why))
      return false;
  return true;
}

// ---- what counts
// ---------------------------------------------------------------------------------

const struct index_use *numbers_ignoring(int row)
{
  for (int i = 0; i < program->nindex_uses; i++)
    if (program->index_uses[i].input == row && program->index_uses[i].ignores)
      return &program->index_uses[i];
  return NULL;
}

// ---- in steps -----------------------------------------------------------------------------------

bool numbers_computed(int t, struct failure *why)
{
  if (program->noted < 0) return true;
  for (int i = 0; i < program->nindex_uses; i++) {
    const struct index_use *use = &program->index_uses[i];
    const char *notes = (const char *)rank_memory + program->noted;
    unsigned long long note;
    char taken[80];
    target_get(&note, notes + (size_t)i * sizeof note, sizeof note);
    if (note == 0) continue;
    return failed(why, "%s:%d: %s takes indices from %s, but by step %d it was given %lld",
                  plan_file(program->plan, use->line), plan_line(use->line), use->what,
                  taken_text(use, taken), t, noted_index(note));
  }
  return true;
}
