// SPDX-License-Identifier: MIT
#include "text/samples/samples_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "text/chat/text_file.h"
#include "text/samples/packing.h"

enum { IGNORED = -100, HEAD = 2048, MOST_WORKERS = 64 };

// What the workers have counted, and the first error of each.
struct counts {
  uint64_t tokens, learned, cut;
  struct failure why;
  bool failed;
};

struct work {
  const struct samples_file *f;
  int worker, workers;
  size_t line;             // of all files, counted from 0
  int32_t *input, *target; // of all lines
  uint32_t *length;        // of each line: its tokens; 0: nothing is learned
  int32_t *rating;         // of each line
  struct counts *counts;   // of each worker; memory that they share
};

// ---- one line ----------------------------------------------------------------------------------

static bool fits_vocabulary(const struct work *w, const struct ids *ids, const char *where,
                            struct failure *why)
{
  for (size_t i = 0; i < ids->count; i++)
    if (ids->at[i] < 0 || ids->at[i] >= w->f->vocabulary)
      return failed(why,
                    "%s: token %d: the program knows 0 to %ld: is it another model's tokenizer?",
                    where, ids->at[i], w->f->vocabulary - 1);
  return true;
}

// Returns whether it has a label.
static bool put(const struct work *w, const struct sample *s, size_t row)
{
  const long sequence = w->f->sequence;
  struct counts *counts = &w->counts[w->worker];
  int32_t *input = w->input + row * (size_t)sequence, *target = w->target + row * (size_t)sequence;
  const long n = (long)s->ids.count < sequence ? (long)s->ids.count : sequence;
  long learned = 0;
  for (long i = 0; i < sequence; i++) {
    const bool learns = i + 1 < n && s->learned[i + 1];
    input[i] = i < n ? s->ids.at[i] : w->f->pad;
    target[i] = learns ? s->ids.at[i + 1] : IGNORED;
    learned += learns;
  }
  if (learned == 0) return false;
  counts->tokens += (uint64_t)n;
  counts->learned += (uint64_t)learned;
  counts->cut += (long)s->ids.count > sequence;
  return true;
}

static bool take_line(void *to, const char *line, size_t length, const char *where,
                      struct failure *why)
{
  struct work *w = to;
  struct sample samples[2] = {{{0}, NULL}, {{0}, NULL}};
  const size_t at = w->line++, rows = (size_t)w->f->rows;
  bool learns = true;
  if (at % (size_t)w->workers != (size_t)w->worker) return true;
  bool ok, is_good = false;
  if (w->f->rating)
    ok = rated_of_line(w->f->rules, line, length, where, samples, &is_good, why);
  else if (rows == 2)
    ok = pair_of_line(w->f->rules, line, length, where, samples, why);
  else
    ok = sample_of_line(w->f->rules, line, length, where, samples, why);
  w->rating[at] = is_good;
  for (size_t i = 0; ok && i < (w->f->rating ? 1 : rows); i++) {
    ok = fits_vocabulary(w, &samples[i].ids, where, why);
    learns = ok && put(w, &samples[i], at * rows + i) && learns;
  }
  const size_t tokens = samples[0].ids.count, most = (size_t)w->f->sequence;
  if (learns) w->length[at] = (uint32_t)(tokens < most ? tokens : most);
  for (size_t i = 0; i < rows; i++) sample_free(&samples[i]);
  return ok;
}

static bool count_line(void *to, const char *line, size_t length, const char *where,
                       struct failure *why)
{
  (void)line, (void)length, (void)where, (void)why;
  ++*(size_t *)to;
  return true;
}

static bool each_line_of_all(const struct samples_file *f,
                             bool (*take)(void *, const char *, size_t, const char *,
                                          struct failure *),
                             void *to, struct failure *why)
{
  for (size_t i = 0; f->files[i]; i++)
    if (!each_line(f->files[i], take, to, why)) return false;
  return true;
}

// ---- all of them -------------------------------------------------------------------------------

// Memory that this process and its children share.
static void *shared(size_t bytes)
{
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void work(struct work *w)
{
  struct counts *own = &w->counts[w->worker];
  own->failed = !each_line_of_all(w->f, take_line, w, &own->why);
}

// Runs all workers; the error of the first that has one.
static bool run(struct work *w, struct failure *why)
{
  pid_t children[MOST_WORKERS];
  bool ok = true;
  for (w->worker = 1; w->worker < w->workers; w->worker++) {
    children[w->worker] = fork();
    if (children[w->worker] != 0) continue;
    work(w);
    _exit(0);
  }
  w->worker = 0;
  work(w);
  for (int i = 0; i < w->workers; i++) {
    int status = 0;
    if (i > 0 && children[i] < 0) {
      w->worker = i; // no process could be had
      w->line = 0;
      work(w);
    } else if (i > 0 && (waitpid(children[i], &status, 0) != children[i] || status != 0)) {
      ok = ok && failed(why, "a process that made samples was killed");
    }
    if (ok && w->counts[i].failed) {
      *why = w->counts[i].why;
      ok = false;
    }
  }
  return ok;
}

// The second row of each of these samples: its prompt, and behind it the answer of the one before
// it; of the first, that of the last.
static void exchange(const struct work *w, size_t first, size_t n)
{
  const long sequence = w->f->sequence;
  const size_t row = 2 * (size_t)sequence;
  for (size_t i = first; i < first + n; i++) {
    const size_t other = i > first ? i - 1 : first + n - 1;
    int32_t *input = w->input + i * row, *target = w->target + i * row;
    const int32_t *from = w->target + other * row;
    long at = 0, k = 0;
    while (target[at] == IGNORED) at++;
    while (from[k] == IGNORED) k++;
    for (long t = 0; t < sequence; t++) {
      input[sequence + t] = t <= at ? input[t] : w->f->pad;
      target[sequence + t] = IGNORED;
    }
    for (; at < sequence && k < sequence && from[k] != IGNORED; at++, k++) {
      target[sequence + at] = from[k];
      if (at + 1 < sequence) input[sequence + at + 1] = from[k];
    }
  }
}

// Moves the samples that stay together.
static void close_up(const struct work *w, size_t lines)
{
  const size_t row = (size_t)(w->f->rows * w->f->sequence);
  size_t kept = 0;
  for (size_t i = 0; i < lines; i++) {
    if (!w->length[i]) continue;
    memmove(w->input + kept * row, w->input + i * row, row * sizeof *w->input);
    memmove(w->target + kept * row, w->target + i * row, row * sizeof *w->target);
    w->rating[kept] = w->rating[i];
    kept++;
  }
  for (size_t i = 0, n; w->f->rating && i < kept; i += n) {
    n = kept - i < (size_t)w->f->batch ? kept - i : (size_t)w->f->batch;
    exchange(w, i, n);
  }
  memmove(w->input + kept * row, w->target, kept * row * sizeof *w->target);
  if (w->f->rating) memcpy(w->input + 2 * kept * row, w->rating, kept * sizeof *w->rating);
}

// The header has its length, so that the data can be written first. A plan's names have at most 255
// letters, so that it holds three of them.
static void put_header(const struct samples_file *f, char *at, size_t samples)
{
  const size_t bytes = samples * (size_t)(f->rows * f->sequence) * sizeof(int32_t);
  char text[HEAD], shape[64];
  snprintf(shape, sizeof shape, f->rows == 2 ? "[%zu,2,%ld]" : "[%zu,%ld]", samples, f->sequence);
  const char *const names[] = {f->input, f->target, f->ends};
  int n = 0;
  for (size_t i = 0; i < 3 && names[i]; i++)
    n += snprintf(text + n, sizeof text - (size_t)n,
                  "%s\"%s\":{\"dtype\":\"I32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                  i ? "," : "{", names[i], shape, i * bytes, (i + 1) * bytes);
  if (f->rating)
    n += snprintf(text + n, sizeof text - (size_t)n,
                  ",\"%s\":{\"dtype\":\"I32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                  f->rating, samples, 2 * bytes, 2 * bytes + samples * sizeof(int32_t));
  n += snprintf(text + n, sizeof text - (size_t)n, "}");
  const uint64_t length = HEAD - sizeof length;
  memcpy(at, &length, sizeof length);
  memset(at + sizeof length, ' ', length);
  memcpy(at + sizeof length, text, (size_t)n);
}

// Copies the samples of all lines to `input` and what follows it, each behind the one before it in
// its packed sample. begin: of each of these, 0.
static void put_packed(const struct work *w, size_t lines, const size_t *in, size_t packed,
                       uint32_t *begin, int32_t *input)
{
  const size_t sequence = (size_t)w->f->sequence, all = packed * sequence;
  int32_t *target = input + all, *ends = target + all;
  for (size_t i = 0; i < all; i++) {
    input[i] = w->f->pad;
    target[i] = IGNORED;
    ends[i] = 0;
  }
  for (size_t i = 0; i < lines; i++) {
    if (!w->length[i]) continue;
    const size_t to = in[i] * sequence + begin[in[i]];
    memcpy(input + to, w->input + i * sequence, w->length[i] * sizeof *input);
    memcpy(target + to, w->target + i * sequence, w->length[i] * sizeof *target);
    begin[in[i]] += w->length[i];
    ends[to + w->length[i] - 1] = 1;
  }
}

// Writes the packed samples to a file of their own, in the place of that with one for each line.
static bool pack(const struct work *w, const char *path, size_t lines, size_t *packed,
                 struct failure *why)
{
  const uint32_t room = (uint32_t)w->f->sequence;
  size_t *in = malloc((lines + 1) * sizeof *in);
  uint32_t *begin = calloc(lines + 1, sizeof *begin);
  bool ok = (in && begin && pack_texts(w->length, lines, room, in, packed)) ||
            failed(why, "out of memory for packing %zu texts", lines);
  ok = ok && (*packed > 0 || failed(why, "%s: nothing of it is learned", w->f->files[0]));
  if (ok) {
    const size_t bytes = HEAD + 3 * *packed * room * sizeof(int32_t);
    const int fd = unlink(path) == 0 ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    ok = (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0) ||
         failed(why, "%s: no room for %zu bytes", path, bytes);
    char *at = ok ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    ok = ok && (at != MAP_FAILED || failed(why, "%s: %s", path, strerror(errno)));
    if (ok) {
      put_packed(w, lines, in, *packed, begin, (int32_t *)(at + HEAD));
      put_header(w->f, at, *packed);
      munmap(at, bytes);
    }
    if (fd >= 0) ok = close(fd) == 0 && ok;
  }
  free(in);
  free(begin);
  return ok;
}

static void tell(const struct work *w, size_t lines, size_t kept, size_t packed)
{
  struct counts all = {0};
  for (int i = 0; i < w->workers; i++) {
    all.tokens += w->counts[i].tokens;
    all.learned += w->counts[i].learned;
    all.cut += w->counts[i].cut;
  }
  fprintf(stderr, "%s%s: %zu %s, %" PRIu64 " tokens, %" PRIu64 " of them learned", w->f->files[0],
          w->f->files[1] ? " and more" : "", kept,
          w->f->ends        ? "texts"
          : w->f->rating    ? "rated answers"
          : w->f->rows == 2 ? "pairs"
                            : "samples",
          all.tokens, all.learned);
  if (all.cut) fprintf(stderr, "; %" PRIu64 " cut to %ld tokens", all.cut, w->f->sequence);
  if (w->f->ends) fprintf(stderr, "; packed into %zu samples", packed);
  if (kept < lines) fprintf(stderr, "; %zu without a label are left out", lines - kept);
  fprintf(stderr, "\n");
}

// The bytes of a file of so many lines that is not packed.
static size_t bytes_of(const struct samples_file *f, size_t lines)
{
  const size_t values = (size_t)(2 * f->rows * f->sequence + (f->rating != NULL));
  return HEAD + lines * values * sizeof(int32_t);
}

// Fills the new file.
static bool fill(const struct samples_file *f, int fd, const char *path, size_t lines,
                 struct failure *why)
{
  const size_t values = lines * (size_t)(f->rows * f->sequence), bytes = bytes_of(f, lines);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const int workers = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores;
  if (posix_fallocate(fd, 0, (off_t)bytes) != 0)
    return failed(why, "%s: no room for %zu bytes", path, bytes);
  char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  struct work w = {.f = f,
                   .workers = workers,
                   .length = shared((lines + 1) * sizeof *w.length),
                   .rating = shared((lines + 1) * sizeof *w.rating),
                   .counts = shared((size_t)workers * sizeof *w.counts)};
  bool ok = (at != MAP_FAILED && w.length && w.rating && w.counts) ||
            failed(why, "%s: out of memory for %zu samples", path, lines);
  size_t kept = 0, packed = 0;
  if (ok) {
    w.input = (int32_t *)(at + HEAD);
    w.target = w.input + values;
    ok = run(&w, why);
  }
  for (size_t i = 0; ok && i < lines; i++) kept += w.length[i] > 0;
  if (ok && f->ends)
    ok = pack(&w, path, lines, &packed, why);
  else if (ok) {
    close_up(&w, lines);
    ok = kept > 0 || failed(why, "%s: nothing of it is learned", f->files[0]);
    put_header(f, at, kept);
  }
  if (ok) tell(&w, lines, kept, packed);
  if (at != MAP_FAILED) munmap(at, bytes);
  if (w.length) munmap(w.length, (lines + 1) * sizeof *w.length);
  if (w.rating) munmap(w.rating, (lines + 1) * sizeof *w.rating);
  if (w.counts) munmap(w.counts, (size_t)workers * sizeof *w.counts);
  return ok && (f->ends || ftruncate(fd, (off_t)bytes_of(f, kept)) == 0 ||
                failed(why, "%s: %s", path, strerror(errno)));
}

bool samples_write(const struct samples_file *f, struct failure *why)
{
  char part[PATH_MAX];
  size_t lines = 0;
  if (!each_line_of_all(f, count_line, &lines, why)) return false;
  if (lines == 0) return failed(why, "%s: it has no lines", f->files[0]);
  if (snprintf(part, sizeof part, "%s.%ld.tmp", f->to, (long)getpid()) >= PATH_MAX)
    return failed(why, "%s: the path is too long", f->to);
  const int fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return failed(why, "%s: cannot create: %s", part, strerror(errno));
  bool ok = fill(f, fd, part, lines, why);
  ok = close(fd) == 0 && ok;
  if (ok && rename(part, f->to) != 0) ok = failed(why, "%s: %s", f->to, strerror(errno));
  if (!ok) unlink(part);
  return ok;
}
