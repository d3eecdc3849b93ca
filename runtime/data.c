// Tokens: judged before the first step, then read batch by batch, each rank its own slices.
#include "data.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "open_input.h"
#include "program.h"
#include "tensor_table.h"
#include "target.h"

struct form {
  const char *name;
  size_t bytes; // of a token
  const char *tokens;
  const char *ends[2]; // of a file's name
};

static const struct form forms[] = {
    {"bytes", 1, "bytes", {NULL, NULL}},
    {"uint16", 2, "tokens of uint16", {".uint16", ".u16"}},
    {"uint32", 4, "tokens of uint32", {".uint32", ".u32"}},
};
enum { BYTES, UINT16, UINT32, FORMS };
enum { HEADER = 256 * 4 }; // bytes of the header of llm.c's .bin

// The open file. fd: -1 where no input is from it.
static struct {
  char *path;
  int fd;
  const struct form *form;
  uint64_t begin;    // the first token's byte
  uint64_t length;   // how many tokens there are
  uint64_t period;   // so many tokens follow one another, then the file begins again
  double vocabulary; // tokens must be below it: the plan's, or what a use of them as indices takes
  const struct index_use *use; // that, or NULL
  unsigned char *read;         // room for STAGED_BYTES
  void *stage;
  char summary[256];
} data = {.fd = -1};

// Batch `batch` begins behind so many tokens: where a checkpoint says so, or at the beginning.
static struct {
  long batch;
  uint64_t tokens;
} start;

// ---- what the program wants --------------------------------------------------------------------

static bool is_tokens(const struct tensor *t)
{
  return t->role == BATCH && t->init.how == TOKENS;
}

long data_batch_tokens(void)
{
  long most = 0;
  for (int i = 0; i < program.ntensors; i++) {
    const struct tensor *t = &program.tensors[i];
    long elements = 1;
    for (int d = 0; d < t->ndim; d++) elements *= t->of[d];
    if (is_tokens(t) && elements > most) most = elements;
  }
  return most;
}

// How far behind the batch's beginning the furthest input begins.
static long furthest(void)
{
  long shift = 0;
  for (int i = 0; i < program.ntensors; i++) {
    const struct tensor *t = &program.tensors[i];
    if (is_tokens(t) && (long)t->init.b > shift) shift = (long)t->init.b;
  }
  return shift;
}

static double smallest_vocabulary(void)
{
  double least = INFINITY;
  for (int i = 0; i < program.ntensors; i++)
    if (is_tokens(&program.tensors[i])) least = fmin(least, program.tensors[i].init.a);
  return least;
}

// The use of tokens as indices that takes the fewest of them, where that is fewer than the
// vocabulary has; or NULL.
static const struct index_use *strictest_use(void)
{
  const struct index_use *strictest = NULL;
  double least = smallest_vocabulary();
  for (int i = 0; i < program.nindex_uses; i++) {
    const struct index_use *use = &program.index_uses[i];
    if (use->input < 0 || !is_tokens(&program.tensors[use->input])) continue;
    if ((double)use->below >= least) continue;
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

bool data_is_tokens(const char *path, const char *form)
{
  return data_batch_tokens() > 0 && (form || !ends_with(path, ".safetensors"));
}

// Reads exactly so many bytes, or says why not.
static bool read_at(uint64_t at, void *to, size_t count, struct failure *why)
{
  for (char *next = to; count > 0;) {
    ssize_t n = pread(data.fd, next, count, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(why, "%s: cannot read: %s", data.path, strerror(errno));
    if (n == 0) return failed(why, "%s: the file ended while it was read", data.path);
    next += n;
    at += (uint64_t)n;
    count -= (size_t)n;
  }
  return true;
}

// Little-endian, as all of these files are.
static uint32_t number_at(const unsigned char *bytes, size_t size)
{
  uint32_t value = 0;
  while (size-- > 0) value = value << 8 | bytes[size];
  return value;
}

// llm.c's: 256 int32 of header, of which the first are magic, version and count.
static bool read_llmc(uint64_t size, struct failure *why)
{
  enum { OF_UINT16 = 20240520, OF_UINT32 = 20240801 };
  unsigned char header[12];
  if (size < HEADER)
    return failed(why,
                  "%s: %llu bytes are too few for the header of llm.c's .bin (is it flat? then "
                  "say --tokens uint16 or uint32)",
                  data.path, (unsigned long long)size);
  if (!read_at(0, header, sizeof header, why)) return false;
  uint32_t magic = number_at(header, 4), version = number_at(header + 4, 4);
  uint64_t count = number_at(header + 8, 4);
  if (!(magic == OF_UINT16 && version == 1) && !(magic == OF_UINT32 && version == 7))
    return failed(why,
                  "%s: it begins with %u, %u, which is no header of llm.c's .bin (%d, 1 or %d, "
                  "7): is it flat? then say --tokens uint16 or uint32",
                  data.path, magic, version, OF_UINT16, OF_UINT32);
  data.form = &forms[magic == OF_UINT16 ? UINT16 : UINT32];
  data.begin = HEADER;
  data.length = count;
  uint64_t held = size - HEADER, wanted = count * data.form->bytes;
  if (held == wanted) return true;
  return failed(why, "%s: its header says %llu tokens, which take %llu bytes, but %llu follow it%s",
                data.path, (unsigned long long)count, (unsigned long long)wanted,
                (unsigned long long)held, held < wanted ? ": the file is cut short" : "");
}

static bool read_flat(uint64_t size, struct failure *why)
{
  data.length = size / data.form->bytes;
  if (size % data.form->bytes == 0) return true;
  return failed(why, "%s: its %llu bytes are not a whole number of %s", data.path,
                (unsigned long long)size, data.form->tokens);
}

static bool find_form(const char *name, struct failure *why)
{
  for (int i = 0; i < FORMS; i++) {
    const struct form *f = &forms[i];
    bool named = name ? strcmp(name, f->name) == 0
                      : ends_with(data.path, f->ends[0]) || ends_with(data.path, f->ends[1]);
    if (named) data.form = f;
  }
  if (name && !data.form)
    return failed(why, "--tokens %s: there are bytes, uint16 and uint32", name);
  return true;
}

static bool read_form(const char *name, uint64_t size, struct failure *why)
{
  if (!find_form(name, why)) return false;
  if (!data.form && ends_with(data.path, ".bin")) return read_llmc(size, why);
  if (!data.form) data.form = &forms[BYTES];
  return read_flat(size, why);
}

static bool find_period(struct failure *why)
{
  uint64_t batch = (uint64_t)data_batch_tokens(), shift = (uint64_t)furthest();
  if (data.length >= batch + shift) {
    data.period = data.length - shift;
    return true;
  }
  return failed(why, "%s: it has %llu %s, but a batch of %llu needs at least %llu", data.path,
                (unsigned long long)data.length, data.form->tokens, (unsigned long long)batch,
                (unsigned long long)(batch + shift));
}

bool data_open(const char *path, const char *form, struct failure *why)
{
  uint64_t size;
  data.path = strdup(path);
  data.read = malloc(STAGED_BYTES);
  data.stage = malloc(STAGED_BYTES);
  if (!data.path || !data.read || !data.stage) return failed(why, "out of memory");
  data.use = strictest_use();
  data.vocabulary = data.use ? (double)data.use->below : smallest_vocabulary();
  data.fd = open_regular(path, &size, why);
  if (data.fd < 0 || !read_form(form, size, why) || !find_period(why)) return false;
  snprintf(data.summary, sizeof data.summary, "%.200s, %llu %s", path,
           (unsigned long long)data.length, data.form->tokens);
  return true;
}

const char *data_summary(void)
{
  return data.summary;
}

void data_close(void)
{
  if (data.fd >= 0) close(data.fd);
  data.fd = -1;
  free(data.path);
  free(data.read);
  free(data.stage);
  data.path = NULL;
  data.read = data.stage = NULL;
  data.form = NULL;
  data.begin = data.length = 0;
  data_go_on(0, 0);
}

// ---- where batches begin -----------------------------------------------------------------------

uint64_t data_position(long batch)
{
  return start.tokens + (uint64_t)(batch - start.batch) * (uint64_t)data_batch_tokens();
}

void data_go_on(long batch, uint64_t tokens)
{
  start.batch = batch;
  start.tokens = tokens;
}

// ---- judging -----------------------------------------------------------------------------------

// Of `count` tokens that are read, of which the first is token `first` of the file.
static bool below_vocabulary(const unsigned char *read, uint64_t first, size_t count,
                             struct failure *why)
{
  size_t size = data.form->bytes;
  for (size_t i = 0; i < count; i++) {
    uint32_t token = number_at(read + i * size, size);
    if (token < data.vocabulary) continue;
    const unsigned long long place = first + i;
    if (data.use)
      return failed(why, "%s: token %llu is %u, but %s at %s:%d takes 0 to %ld", data.path, place,
                    token, data.use->what, program.plan, data.use->line, data.use->below - 1);
    return failed(why, "%s: token %llu is %u, which is not below the vocabulary of %.0f", data.path,
                  place, token, data.vocabulary);
  }
  return true;
}

static bool read_tokens(uint64_t first, size_t count, unsigned char *to, struct failure *why)
{
  size_t size = data.form->bytes;
  return read_at(data.begin + first * size, to, count * size, why) &&
         below_vocabulary(to, first, count, why);
}

bool data_check(long first, long last, struct failure *why)
{
  if (data.fd < 0 || first >= last || data.vocabulary >= ldexp(1, 8 * (int)data.form->bytes))
    return true;
  uint64_t from = data_position(first) % data.period;
  uint64_t length = data_position(last) - data_position(first) + (uint64_t)furthest();
  // Where the file begins again, some are read of both its ends.
  if (length > data.length || from > data.length - length) {
    from = 0;
    length = data.length;
  }
  uint64_t begin = from + (uint64_t)part_first((long)length, program.world, rank.id);
  uint64_t end = begin + (uint64_t)part_size((long)length, program.world, rank.id);
  while (begin < end) {
    size_t count = STAGED_BYTES / data.form->bytes;
    if (count > end - begin) count = (size_t)(end - begin);
    if (!read_tokens(begin, count, data.read, why)) return false;
    begin += count;
  }
  return true;
}

// ---- batches -----------------------------------------------------------------------------------

static void store_tokens(enum type type, const unsigned char *from, size_t count, void *to)
{
  size_t size = data.form->bytes;
  for (size_t i = 0; i < count; i++) {
    uint32_t token = number_at(from + i * size, size);
    if (type == I64)
      ((int64_t *)to)[i] = token;
    else
      ((int32_t *)to)[i] = (int32_t)token;
  }
}

// The input's own elements from .. from + count - 1, of a batch that begins at token `begin`.
static bool read_piece(const struct tensor *t, const struct slice *slice, uint64_t begin,
                       size_t from, size_t count, struct failure *why)
{
  size_t size = data.form->bytes, done = 0;
  while (done < count) {
    struct run run = slice_run(slice, from + done, count - done);
    uint64_t first = (begin + run.first) % data.period, left = data.period - first;
    size_t some = run.count < left ? run.count : (size_t)left;
    if (!read_tokens(first + (uint64_t)t->init.b, some, data.read + done * size, why)) return false;
    done += some;
  }
  store_tokens(t->type, data.read, count, data.stage);
  return true;
}

static bool fill_input(int row, uint64_t begin, struct failure *why)
{
  const struct tensor *t = &program.tensors[row];
  struct slice slice = table_slice(row);
  size_t size = table_type(t->type).bytes, elements = slice_elements(&slice);
  char *memory = (char *)*program.memory + t->offset;
  for (size_t from = 0; from < elements;) {
    size_t count = STAGED_BYTES / size;
    if (count > elements - from) count = elements - from;
    if (!read_piece(t, &slice, begin, from, count, why)) return false;
    target_put(memory + from * size, data.stage, count * size);
    from += count;
  }
  return true;
}

void next_batch(long i)
{
  struct failure why;
  if (data.fd < 0) return; // every batch is the one that the inputs were filled with
  uint64_t begin = data_position(i) % data.period;
  for (int row = 0; row < program.ntensors; row++)
    if (is_tokens(&program.tensors[row]) && !fill_input(row, begin, &why))
      fail_call(__FILE__, __LINE__, "next_batch", why.text);
}
