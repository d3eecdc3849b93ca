// SPDX-License-Identifier: MIT
// Tokens: checked before the first step, then read batch by batch, each rank its own slices.
#include "data/tokens.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/open_input.h"
#include "base/program.h"
#include "base/target.h"
#include "data/data_set.h"
#include "tensors/tensor_table.h"

struct token_form {
  const char *name;
  size_t bytes; // of a token
  const char *tokens;
  const char *ends[2]; // of a file's name
};

static const struct token_form forms[] = {
    {"bytes", 1, "bytes", {NULL, NULL}},
    {"uint16", 2, "tokens of uint16", {".uint16", ".u16"}},
    {"uint32", 4, "tokens of uint32", {".uint32", ".u32"}},
};
enum { BYTES, UINT16, UINT32, FORMS };
enum { HEADER = 256 * 4 }; // bytes of the header of llm.c's .bin

struct token_file {
  const char *path;
  int fd;
  const struct token_form *form;
  uint64_t begin;         // the first token's byte
  uint64_t first, length; // tokens first .. first + length - 1 of all
};

// ---- what the program wants --------------------------------------------------------------------

static bool is_tokens(const struct tensor *t)
{
  return t->role == BATCH && t->init.how == TOKENS;
}

long tokens_of_batch(void)
{
  long most = 0;
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    long elements = 1;
    for (int d = 0; d < t->ndim; d++) elements *= t->of[d];
    if (is_tokens(t) && elements > most) most = elements;
  }
  return most;
}

// The largest offset of an input from the start of the batch.
static long furthest(void)
{
  long shift = 0;
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    if (is_tokens(t) && (long)t->init.of[1] > shift) shift = (long)t->init.of[1];
  }
  return shift;
}

static double smallest_vocabulary(void)
{
  double least = INFINITY;
  for (int i = 0; i < program->ntensors; i++)
    if (is_tokens(&program->tensors[i])) least = fmin(least, program->tensors[i].init.of[0]);
  return least;
}

// The use of tokens as indices with the smallest range, if that is smaller than the vocabulary; or
// NULL.
static const struct index_use *strictest_use(void)
{
  const struct index_use *strictest = NULL;
  double least = smallest_vocabulary();
  for (int i = 0; i < program->nindex_uses; i++) {
    const struct index_use *use = &program->index_uses[i];
    if (use->input < 0 || !is_tokens(&program->tensors[use->input])) continue;
    if (use->below <= 0 || (double)use->below >= least) continue; // 0: no limit
    strictest = use;
    least = (double)use->below;
  }
  return strictest;
}

// ---- opening -----------------------------------------------------------------------------------

static bool ends_with(const char *text, const char *end)
{
  size_t length = strlen(text), tail = end ? strlen(end) : 0;
  return tail > 0 && length >= tail && strcmp(text + length - tail, end) == 0;
}

// Reads exactly `count` bytes, or says why not.
static bool read_at(const struct token_file *f, uint64_t at, void *to, size_t count,
                    struct failure *why)
{
  for (char *next = to; count > 0;) {
    ssize_t n = pread(f->fd, next, count, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(why, "%s: cannot read: %s", f->path, strerror(errno));
    if (n == 0) return failed(why, "%s: the file ended while it was read", f->path);
    next += n;
    at += (uint64_t)n;
    count -= (size_t)n;
  }
  return true;
}

// Little-endian, like all of these files.
static uint32_t number_at(const unsigned char *bytes, size_t size)
{
  uint32_t value = 0;
  while (size-- > 0) value = value << 8 | bytes[size];
  return value;
}

// llm.c's format: a header of 256 int32, which begins with magic, version and count.
static bool read_llmc(struct token_file *f, uint64_t size, struct failure *why)
{
  enum { OF_UINT16 = 20240520, OF_UINT32 = 20240801 };
  unsigned char header[12];
  if (size < HEADER)
    return failed(why,
                  "%s: %llu bytes are too few for the header of llm.c's .bin (is it flat? then "
                  "say --tokens uint16 or uint32)",
                  f->path, (unsigned long long)size);
  if (!read_at(f, 0, header, sizeof header, why)) return false;
  uint32_t magic = number_at(header, 4), version = number_at(header + 4, 4);
  uint64_t count = number_at(header + 8, 4);
  if (!(magic == OF_UINT16 && version == 1) && !(magic == OF_UINT32 && version == 7))
    return failed(why,
                  "%s: it begins with %u, %u, which is not a header of llm.c's .bin (%d, 1 or %d, "
                  "7): is it flat? then say --tokens uint16 or uint32",
                  f->path, magic, version, OF_UINT16, OF_UINT32);
  f->form = &forms[magic == OF_UINT16 ? UINT16 : UINT32];
  f->begin = HEADER;
  f->length = count;
  uint64_t held = size - HEADER, needed = count * f->form->bytes;
  if (held == needed) return true;
  return failed(why, "%s: its header says %llu tokens, which take %llu bytes, but %llu follow it%s",
                f->path, (unsigned long long)count, (unsigned long long)needed,
                (unsigned long long)held, held < needed ? ": the file is cut short" : "");
}

static bool read_flat(struct token_file *f, uint64_t size, struct failure *why)
{
  f->length = size / f->form->bytes;
  if (size % f->form->bytes == 0) return true;
  return failed(why, "%s: its %llu bytes are not a whole number of %s", f->path,
                (unsigned long long)size, f->form->tokens);
}

static bool find_form(struct token_file *f, const char *name, struct failure *why)
{
  for (int i = 0; i < FORMS; i++) {
    const struct token_form *form = &forms[i];
    bool named = name ? strcmp(name, form->name) == 0
                      : ends_with(f->path, form->ends[0]) || ends_with(f->path, form->ends[1]);
    if (named) f->form = form;
  }
  if (name && !f->form) return failed(why, "--tokens %s: there are bytes, uint16 and uint32", name);
  return true;
}

static bool read_form(struct token_file *f, const char *name, uint64_t size, struct failure *why)
{
  if (!find_form(f, name, why)) return false;
  if (!f->form && ends_with(f->path, ".bin")) return read_llmc(f, size, why);
  if (!f->form) f->form = &forms[BYTES];
  return read_flat(f, size, why);
}

static bool find_period(struct tokens *t, struct failure *why)
{
  uint64_t batch = (uint64_t)tokens_of_batch(), shift = (uint64_t)furthest();
  if (t->length >= batch + shift) {
    t->period = t->length - shift;
    return true;
  }
  return failed(why, "%s%s: it has %llu %s, but a batch of %llu needs at least %llu",
                t->files[0].path, t->nfiles > 1 ? " with the files after it" : "",
                (unsigned long long)t->length, t->form->tokens, (unsigned long long)batch,
                (unsigned long long)(batch + shift));
}

// The length of a row, if all inputs of tokens have the same; else 0.
static uint64_t window_of_inputs(void)
{
  uint64_t window = 0;
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    if (!is_tokens(t)) continue;
    uint64_t row = 1;
    for (int d = 1; d < t->ndim; d++) row *= (uint64_t)t->of[d];
    if (t->ndim == 0 || (window && window != row)) return 0;
    window = row;
  }
  return window;
}

static bool open_file(struct tokens *t, struct token_file *f, const char *form, struct failure *why)
{
  uint64_t size;
  f->fd = open_regular(f->path, &size, why);
  if (f->fd < 0 || !read_form(f, form, size, why)) return false;
  if (!t->form) t->form = f->form;
  f->first = t->length;
  t->length += f->length;
  return t->form == f->form || failed(why, "%s: it has %s, but %s has %s: they are one text",
                                      f->path, f->form->tokens, t->files[0].path, t->form->tokens);
}

bool tokens_open(struct tokens *t, const struct input_files *files, const char *form,
                 struct failure *why)
{
  *t = (struct tokens){.files = calloc(files->count, sizeof *t->files),
                       .read = malloc(STAGED_BYTES),
                       .stage = malloc(STAGED_BYTES)};
  if (!t->files || !t->read || !t->stage) return failed(why, "out of memory");
  t->use = strictest_use();
  t->vocabulary = t->use ? (double)t->use->below : smallest_vocabulary();
  t->window = window_of_inputs();
  for (size_t i = 0; i < files->count; i++) {
    struct token_file *f = &t->files[t->nfiles++];
    *f = (struct token_file){.path = files->all[i].path, .fd = -1};
    if (!open_file(t, f, form, why)) return false;
  }
  char more[40] = "";
  if (t->nfiles > 1) snprintf(more, sizeof more, " and %zu more", t->nfiles - 1);
  snprintf(t->summary, sizeof t->summary, "%.180s%s, %llu %s", t->files[0].path, more,
           (unsigned long long)t->length, t->form->tokens);
  return find_period(t, why);
}

bool tokens_are_bytes(const struct tokens *t)
{
  return t->form == &forms[BYTES];
}

void tokens_close(struct tokens *t)
{
  for (size_t i = 0; i < t->nfiles; i++)
    if (t->files[i].fd >= 0) close(t->files[i].fd);
  free(t->files);
  free(t->read);
  free(t->stage);
  *t = (struct tokens){0};
}

// ---- reading -----------------------------------------------------------------------------------

// Checks `count` tokens that were read, from token `first` of the file on.
static bool below_vocabulary(const struct tokens *t, const struct token_file *f,
                             const unsigned char *read, uint64_t first, size_t count,
                             struct failure *why)
{
  size_t size = f->form->bytes;
  for (size_t i = 0; i < count; i++) {
    uint32_t token = number_at(read + i * size, size);
    if (token < t->vocabulary) continue;
    const unsigned long long place = first + i;
    if (t->use)
      return failed(why, "%s: token %llu is %u, but %s at %s:%d takes 0 to %ld", f->path, place,
                    token, t->use->what, plan_file(program->plan, t->use->line),
                    plan_line(t->use->line), t->use->below - 1);
    return failed(why, "%s: token %llu is %u, which is not below the vocabulary of %.0f", f->path,
                  place, token, t->vocabulary);
  }
  return true;
}

// Tokens first .. first + count - 1 of all files.
static bool read_tokens(const struct tokens *t, uint64_t first, size_t count, unsigned char *to,
                        struct failure *why)
{
  const size_t size = t->form->bytes;
  const struct token_file *f = t->files;
  while (count > 0) {
    while (first - f->first >= f->length) f++;
    const uint64_t at = first - f->first, left = f->length - at;
    const size_t some = count < left ? count : (size_t)left;
    if (!read_at(f, f->begin + at * size, to, some * size, why) ||
        !below_vocabulary(t, f, to, at, some, why))
      return false;
    first += some;
    count -= some;
    to += some * size;
  }
  return true;
}

// ---- judging -----------------------------------------------------------------------------------

bool tokens_check(const struct tokens *t, uint64_t first, uint64_t last, struct failure *why)
{
  if (first >= last || t->vocabulary >= ldexp(1, 8 * (int)t->form->bytes)) return true;
  uint64_t from = first % t->period, length = last - first + (uint64_t)furthest();
  // If the text begins again here, this range has tokens of both its ends.
  if (length > t->length || from > t->length - length) {
    from = 0;
    length = t->length;
  }
  uint64_t begin = from + (uint64_t)part_first((long)length, program->world, rank->id);
  uint64_t end = begin + (uint64_t)part_size((long)length, program->world, rank->id);
  while (begin < end) {
    size_t count = STAGED_BYTES / t->form->bytes;
    if (count > end - begin) count = (size_t)(end - begin);
    if (!read_tokens(t, begin, count, t->read, why)) return false;
    begin += count;
  }
  return true;
}

// ---- batches -----------------------------------------------------------------------------------

// The position of a batch's tokens in the text.
struct source {
  const struct tokens *tokens;
  uint64_t begin;            // of a stream: the batch's first token
  const struct order *order; // of windows; NULL: a stream
  const struct sample_range *of;
};

static void store_tokens(const struct tokens *t, enum type type, size_t count)
{
  const size_t size = t->form->bytes;
  for (size_t i = 0; i < count; i++) {
    uint32_t token = number_at(t->read + i * size, size);
    if (type == I64)
      ((int64_t *)t->stage)[i] = token;
    else
      ((int32_t *)t->stage)[i] = (int32_t)token;
  }
}

// A run of a batch's elements, from its element `at` on, that is contiguous in the text: its start
// there, and its length, at most `count`.
static struct run run_in_text(const struct source *from, uint64_t at, size_t count)
{
  const struct tokens *t = from->tokens;
  uint64_t first = (from->begin + at) % t->period, left = t->period - first;
  if (from->order) {
    const uint64_t row = at / t->window, column = at % t->window;
    first = order_sample(from->order, from->of->epoch, from->of->sample + row) * t->window + column;
    left = t->window - column;
  }
  return (struct run){first, count < left ? count : (size_t)left};
}

// Reads the input's own elements at .. at + count - 1 into the stage.
static bool read_piece(const struct source *from, int row, const struct slice *slice, size_t at,
                       size_t count, struct failure *why)
{
  const struct tensor *t = &program->tensors[row];
  const size_t size = from->tokens->form->bytes;
  for (size_t done = 0; done < count;) {
    const struct run mine = slice_run(slice, at + done, count - done);
    const struct run run = run_in_text(from, mine.first, mine.count);
    if (!read_tokens(from->tokens, run.first + (uint64_t)t->init.of[1], run.count,
                     from->tokens->read + done * size, why))
      return false;
    done += run.count;
  }
  store_tokens(from->tokens, t->type, count);
  return true;
}

// The rows of this rank's part of an input that exist in the batch.
static long rows_there(const struct source *from, int row)
{
  const struct tensor *t = &program->tensors[row];
  if (!from->order) return t->here[0];
  const long left = (long)from->of->count - rank->parts[row].first[0];
  return left < 0 ? 0 : left < t->here[0] ? left : t->here[0];
}

static bool fill_input(const struct source *from, int row, struct failure *why)
{
  const struct tensor *t = &program->tensors[row];
  const struct slice slice = table_slice(row);
  const size_t size = table_type(t->type).bytes;
  size_t elements = slice_elements(&slice);
  char *memory = (char *)rank_memory + t->offset;
  if (elements > 0 && t->ndim > 0)
    elements = elements / (size_t)t->here[0] * (size_t)rows_there(from, row);
  for (size_t at = 0; at < elements;) {
    size_t count = STAGED_BYTES / size;
    if (count > elements - at) count = elements - at;
    if (!read_piece(from, row, &slice, at, count, why)) return false;
    target_put(memory + at * size, from->tokens->stage, count * size);
    at += count;
  }
  if (from->order) rows_pad(row, (long)from->of->count, from->tokens->stage);
  return true;
}

static bool fill_inputs(const struct source *from, struct failure *why)
{
  for (int row = 0; row < program->ntensors; row++)
    if (is_tokens(&program->tensors[row]) && !fill_input(from, row, why)) return false;
  return true;
}

bool tokens_fill(const struct tokens *t, uint64_t begin, struct failure *why)
{
  return fill_inputs(&(struct source){.tokens = t, .begin = begin % t->period}, why);
}

uint64_t tokens_windows(const struct tokens *t)
{
  return t->window ? t->period / t->window : 0;
}

bool tokens_fill_windows(const struct tokens *t, const struct order *order,
                         const struct sample_range *of, struct failure *why)
{
  return fill_inputs(&(struct source){.tokens = t, .order = order, .of = of}, why);
}
