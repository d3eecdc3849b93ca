// Fills the program's tensors: from safetensors files by slices, else by Philox.
#include "tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "elements.h"
#include "philox.h"
#include "program.h"
#include "safetensors.h"
#include "table.h"
#include "target.h"

static const struct tensor *find_tensor(const char *name)
{
  for (int i = 0; i < program.ntensors; i++)
    if (strcmp(program.tensors[i].name.name, name) == 0) return &program.tensors[i];
  return NULL;
}

// ---- by Philox ---------------------------------------------------------------------------------

// The nearest float, or bfloat16, that is below the limit.
static float below(enum type type, double x, double limit)
{
  float y = (float)x;
  if (!((double)y < limit)) y = nextafterf((float)limit, -INFINITY);
  if (type != BF16) return y;
  bf16 half = float_to_bf16(y);
  if ((double)bf16_to_float(half) < limit) return bf16_to_float(half);
  bool zero = !(half & 0x7fff), negative = half & 0x8000;
  return bf16_to_float((bf16)(zero ? 0x8001 : negative ? half + 1 : half - 1));
}

static void store(enum type type, float x, double exact, void *to, size_t i)
{
  switch (type) {
  case F32:
    ((float *)to)[i] = x;
    break;
  case BF16:
    ((bf16 *)to)[i] = float_to_bf16(x);
    break;
  case I32:
    ((int32_t *)to)[i] = (int32_t)floor(exact);
    break;
  case I64:
    ((int64_t *)to)[i] = (int64_t)floor(exact);
    break;
  case BOOL:
    ((unsigned char *)to)[i] = floor(exact) != 0;
    break;
  }
}

// Elements first .. first + count - 1 of the whole tensor.
static void draw(const struct tensor *t, uint64_t first, size_t count, void *to)
{
  enum { AT_ONCE = 512 };
  double x[AT_ONCE] = {0};
  struct philox named = philox_named(program.seed, t->name.name);
  const struct init *init = &t->init;
  for (size_t done = 0; done < count;) {
    size_t n = count - done < AT_ONCE ? count - done : AT_ONCE;
    if (init->how == UNIFORM) philox_uniform(&named, first + done, n, x);
    if (init->how == NORMAL) philox_normal(&named, first + done, n, x);
    for (size_t i = 0; i < n; i++) {
      double value = init->how == CONSTANT  ? init->a
                     : init->how == UNIFORM ? init->a + (init->b - init->a) * x[i]
                                            : init->a + init->b * x[i];
      float narrow = init->how == UNIFORM ? below(t->type, value, init->b) : (float)value;
      store(t->type, narrow, value, to, done + i);
    }
    done += n;
  }
}

// ---- piece by piece ----------------------------------------------------------------------------

// Is it bfloat16 in the file, but float32 in the program? That loses nothing.
static bool widens(const struct entry *e, const struct tensor *t)
{
  return t->type == F32 && strcmp(e->dtype, table_type(BF16).name) == 0;
}

// Makes the shard's own elements from .. from + count - 1 in `to`.
struct source {
  const struct safetensors *file; // NULL: drawn
  const struct entry *entry;
};

// Elements of bfloat16 in the file as floats: they are read behind where the floats end up.
static bool read_widened(const struct source *source, const struct slice *slice, size_t from,
                         size_t count, void *to, struct failure *why)
{
  char *narrow = (char *)to + count * (sizeof(float) - sizeof(bf16));
  if (!safetensors_read(source->file, source->entry, slice, from, count, narrow, why)) return false;
  for (size_t i = 0; i < count; i++) {
    bf16 x;
    memcpy(&x, narrow + i * sizeof x, sizeof x);
    ((float *)to)[i] = bf16_to_float(x);
  }
  return true;
}

static bool make_piece(const struct source *source, int index, size_t from, size_t count, void *to,
                       struct failure *why)
{
  const struct tensor *t = &program.tensors[index];
  struct slice slice = table_slice(index);
  if (source->file && widens(source->entry, t))
    return read_widened(source, &slice, from, count, to, why);
  if (source->file)
    return safetensors_read(source->file, source->entry, &slice, from, count, to, why);
  size_t size = table_type(t->type).bytes;
  for (char *next = to; count > 0;) {
    struct run run = slice_run(&slice, from, count);
    draw(t, run.first, run.count, next);
    from += run.count;
    count -= run.count;
    next += run.count * size;
  }
  return true;
}

static bool fill_tensor(const struct source *source, int index, void *stage, struct failure *why)
{
  const struct tensor *t = &program.tensors[index];
  if (!source->file && t->init.how == CONSTANT && fpclassify(t->init.a) == FP_ZERO) return true;
  struct slice slice = table_slice(index);
  size_t size = table_type(t->type).bytes, elements = slice_elements(&slice);
  char *memory = (char *)*program.memory + t->offset;
  for (size_t from = 0; from < elements;) {
    size_t count = STAGED_BYTES / size;
    if (count > elements - from) count = elements - from;
    if (!make_piece(source, index, from, count, stage, why)) return false;
    target_put(memory + from * size, stage, count * size);
    from += count;
  }
  return true;
}

// ---- from files --------------------------------------------------------------------------------

static void shape_text(size_t ndim, const long *shape, char *to, size_t size)
{
  size_t used = (size_t)snprintf(to, size, "[");
  for (size_t d = 0; d < ndim && used < size; d++)
    used += (size_t)snprintf(to + used, size - used, "%s%ld", d ? ", " : "", shape[d]);
  if (used < size) snprintf(to + used, size - used, "]");
}

static bool fits(const struct safetensors *file, const struct entry *e, const struct tensor *t,
                 struct failure *why)
{
  const char *dtype = table_type(t->type).name;
  size_t ndim = (size_t)t->ndim;
  if ((strcmp(e->dtype, dtype) == 0 || widens(e, t)) && e->ndim == ndim &&
      memcmp(e->shape, t->of, ndim * sizeof *t->of) == 0)
    return true;
  char there[200], here[200];
  shape_text(e->ndim, e->shape, there, sizeof there);
  shape_text(ndim, t->of, here, sizeof here);
  return failed(why, "%s: %s is %s %s in the file, but %s %s in the program", file->path,
                t->name.name, e->dtype, there, dtype, here);
}

// Takes the tensors of a role from the file; a missing one is an error where it is `needed`.
static bool take(const struct safetensors *file, enum role role, bool needed,
                 struct source *sources, struct failure *why)
{
  for (int i = 0; i < program.ntensors; i++) {
    const struct tensor *t = &program.tensors[i];
    if (t->role != role) continue;
    const struct entry *e = safetensors_find(file, t->name.name);
    if (!e && !needed) continue;
    if (!e)
      return failed(why, "%s: it has no %s, which the program needs", file->path, t->name.name);
    if (!fits(file, e, t, why)) return false;
    sources[i] = (struct source){file, e};
  }
  return true;
}

// May an inference program leave this tensor of the weights' file aside? The training's state, and
// other data where the file is that of the data, too.
static bool needless(const char *name, bool data_too)
{
  return program.loss < 0 && (data_too || strncmp(name, "optim.", strlen("optim.")) == 0);
}

// A weight that the program does not know would be dropped in silence.
static bool all_known(const struct safetensors *file, bool data_too, struct failure *why)
{
  for (size_t i = 0; i < file->count; i++) {
    const char *name = file->entries[i].name;
    const struct tensor *t = find_tensor(name);
    if ((t && t->role != OUTPUT) || needless(name, data_too)) continue;
    return failed(why, "%s: it holds %s, which the program does not know", file->path, name);
  }
  return true;
}

// Training goes on behind the file's step where the file holds the optimizer's whole state.
static bool find_step(const struct safetensors *file, const struct source *sources, int *step,
                      struct failure *why)
{
  int states = 0, found = 0, missing = -1;
  for (int i = 0; i < program.ntensors; i++) {
    if (program.tensors[i].role != STATE) continue;
    states++;
    if (sources[i].file)
      found++;
    else
      missing = i;
  }
  const char *text = safetensors_metadata(file, "step");
  if (found == 0 || !text) return true;
  if (found < states)
    return failed(why, "%s: it holds a part of the training's state, but no %s", file->path,
                  program.tensors[missing].name.name);
  char *end;
  long n = strtol(text, &end, 10);
  if (*end || end == text || n < 0 || n > 1000000000)
    return failed(why, "%s: its step \"%s\" is not a number of steps", file->path, text);
  *step = (int)n;
  return true;
}

static bool take_weights(struct safetensors *file, const char *path, bool data_too,
                         struct source *sources, int *step, struct failure *why)
{
  return safetensors_open(file, path, why) && all_known(file, data_too, why) &&
         take(file, PARAMETER, true, sources, why) && take(file, STATE, false, sources, why) &&
         find_step(file, sources, step, why);
}

static bool take_data(struct safetensors *file, const char *path, struct source *sources,
                      struct failure *why)
{
  return safetensors_open(file, path, why) && take(file, BATCH, true, sources, why);
}

static bool fill_all(const struct source *sources, struct failure *why)
{
  void *stage = malloc(STAGED_BYTES);
  if (!stage) return failed(why, "out of memory for reading");
  bool ok = true;
  for (int i = 0; ok && i < program.ntensors; i++)
    if (program.tensors[i].role != OUTPUT) ok = fill_tensor(&sources[i], i, stage, why);
  free(stage);
  return ok;
}

bool tensors_fill(const char *weights, const char *data, int *step, struct failure *why)
{
  struct safetensors weights_file = {.fd = -1}, data_file = {.fd = -1};
  struct source *sources = calloc((size_t)program.ntensors + 1, sizeof *sources);
  *step = 0;
  if (!sources) return failed(why, "out of memory");
  bool ok = true, same = weights && data && strcmp(weights, data) == 0;
  if (weights) ok = take_weights(&weights_file, weights, same, sources, step, why);
  if (ok && data) ok = take_data(&data_file, data, sources, why);
  ok = ok && fill_all(sources, why);
  safetensors_close(&weights_file);
  safetensors_close(&data_file);
  free(sources);
  return ok;
}
