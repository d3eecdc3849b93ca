// SPDX-License-Identifier: MIT
// Batches of samples: each rank reads its own rows of each input, adjacent rows in one read.
#include "data/data_set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/target.h"
#include "formats/npy.h"
#include "tensors/file_elements.h"
#include "tensors/integer_inputs.h"

// An input's samples in one file: first .. first + count - 1 of the set.
struct set_part {
  struct kept kept;
  uint64_t first, count;
};

struct set_input {
  int row;       // in the program's table
  bool is_fixed; // the same in every batch
  struct set_part *parts;
  size_t nparts;
};

// ---- opening -----------------------------------------------------------------------------------

static bool is_safetensors(const char *path)
{
  const size_t length = strlen(path);
  return safetensors_is_named(path) ||
         (length > 11 && strcmp(path + length - 11, ".index.json") == 0);
}

bool data_set_is(const struct input_files *files)
{
  for (size_t i = 0; i < files->count; i++)
    if (!is_safetensors(files->all[i].path) && !npy_is_named(files->all[i].path)) return false;
  return files->count > 0;
}

static const struct tensor *tensor_of(const struct set_input *input)
{
  return &program->tensors[input->row];
}

// The input of an .npy file: the given one, or the one with the file's name. NULL, and why: which
// names there are.
static const char *input_of(const struct input_file *file, struct failure *why)
{
  const char *slash = strrchr(file->path, '/'), *base = slash ? slash + 1 : file->path;
  const size_t length = strlen(base) - strlen(".npy");
  char names[512];
  size_t used = 0;
  if (file->input) return file->input;
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    if (t->role != BATCH) continue;
    if (strlen(t->name.name) == length && strncmp(t->name.name, base, length) == 0)
      return t->name.name;
    if (used < sizeof names)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                               t->name.name);
  }
  failed(why, "%s: which input is it? Say INPUT=%s, or name the file so; the inputs are %s",
         file->path, file->path, used ? names : "none");
  return NULL;
}

// An archive with only this array.
static bool open_npy(struct archive *archive, const struct input_file *from, struct failure *why)
{
  const char *name = input_of(from, why);
  if (!name) return false;
  *archive = (struct archive){.path = strdup(from->path),
                              .files = calloc(1, sizeof *archive->files),
                              .all = calloc(1, sizeof *archive->all)};
  if (!archive->path || !archive->files || !archive->all) return failed(why, "out of memory");
  if (!npy_open(archive->files, from->path, name, why)) return false;
  archive->nfiles = archive->count = 1;
  archive->all[0] = (struct kept){.file = archive->files, .entry = archive->files->entries};
  return true;
}

static bool open_file(struct archive *archive, const struct input_file *from, struct failure *why)
{
  if (npy_is_named(from->path)) return open_npy(archive, from, why);
  if (!from->input) return archive_open(archive, from->path, why);
  return failed(why, "%s: a safetensors file has names of its own: leave out %s=", from->path,
                from->input);
}

// Whether all but the number of samples matches the program.
static bool fits(const struct kept *kept, const struct tensor *t, struct failure *why)
{
  const struct entry *e = kept->entry;
  bool same = elements_take(t, e->dtype) && e->ndim == (size_t)t->ndim;
  for (int d = 1; same && d < t->ndim; d++) same = e->shape[d] == t->of[d];
  if (same && t->ndim == 0) return true;
  const struct slice slice = table_slice((int)(t - program->tensors));
  return (same && e->shape[0] > 0) || elements_misfit(kept, t, &slice, why);
}

static bool add_part(struct set_input *input, const struct kept *kept, struct failure *why)
{
  struct set_part *more = realloc(input->parts, (input->nparts + 1) * sizeof *more);
  if (!more) return failed(why, "out of memory");
  input->parts = more;
  const struct set_part *before = input->nparts > 0 ? &more[input->nparts - 1] : NULL;
  more[input->nparts++] =
      (struct set_part){*kept, before ? before->first + before->count : 0,
                        kept->entry->ndim > 0 ? (uint64_t)kept->entry->shape[0] : 1};
  return true;
}

static uint64_t samples_of(const struct set_input *input)
{
  const struct set_part *last = &input->parts[input->nparts - 1];
  return last->first + last->count;
}

static bool find_input(struct data_set *set, struct set_input *input, struct failure *why)
{
  const struct tensor *t = tensor_of(input);
  for (size_t i = 0; i < set->narchives; i++) {
    const struct kept *kept = archive_find(&set->archives[i], t->name.name);
    if (kept && (!fits(kept, t, why) || !add_part(input, kept, why))) return false;
  }
  if (input->nparts > 0) return true;
  return failed(why, "%s%s: it has no %s, which the program needs", set->archives[0].path,
                set->narchives > 1 ? " and the files beside it" : "", t->name.name);
}

static bool is_of_one_batch(const struct set_input *input)
{
  const struct tensor *t = tensor_of(input);
  return t->ndim == 0 || (input->nparts == 1 && samples_of(input) == (uint64_t)t->of[0]);
}

// Whether the first dimensions of all inputs are samples, by their sizes.
static bool are_alike(const struct data_set *set)
{
  const struct tensor *first = NULL;
  for (size_t i = 0; i < set->ninputs; i++) {
    const struct tensor *t = tensor_of(&set->inputs[i]);
    if (t->ndim == 0) continue;
    if (first && t->of[0] != first->of[0]) return false;
    first = t;
  }
  return true;
}

// Inputs of one batch are fixed if others have more samples, or fewer; all inputs are, if their
// first dimensions are no samples.
static bool count_samples(struct data_set *set, struct failure *why)
{
  const struct set_input *varying = NULL;
  for (size_t i = 0; i < set->ninputs; i++)
    if (!is_of_one_batch(&set->inputs[i])) varying = &set->inputs[i];
  const bool some_vary = varying != NULL || !are_alike(set);
  for (size_t i = 0; i < set->ninputs; i++) {
    struct set_input *input = &set->inputs[i];
    input->is_fixed = tensor_of(input)->ndim == 0 || (some_vary && is_of_one_batch(input));
    if (input->is_fixed) continue;
    if (!varying) varying = input;
    if (tensor_of(input)->of[0] != tensor_of(varying)->of[0])
      return failed(why, "%s: a batch has %ld samples of %s, but %ld of %s", program->plan,
                    tensor_of(input)->of[0], tensor_of(input)->name.name, tensor_of(varying)->of[0],
                    tensor_of(varying)->name.name);
    if (samples_of(input) == samples_of(varying)) continue;
    return failed(why, "%s: there are %llu samples of %s, but %llu of %s", set->archives[0].path,
                  (unsigned long long)samples_of(input), tensor_of(input)->name.name,
                  (unsigned long long)samples_of(varying), tensor_of(varying)->name.name);
  }
  set->samples = varying ? samples_of(varying) : 1;
  set->batch = varying ? (uint64_t)tensor_of(varying)->of[0] : 1;
  return true;
}

static bool find_inputs(struct data_set *set, struct failure *why)
{
  set->inputs = calloc((size_t)program->ntensors + 1, sizeof *set->inputs);
  set->stage = malloc(STAGED_BYTES);
  if (!set->inputs || !set->stage) return failed(why, "out of memory");
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    if (t->role != BATCH || t->init.how == PRESENT) continue;
    set->inputs[set->ninputs].row = i;
    if (!find_input(set, &set->inputs[set->ninputs++], why)) return false;
  }
  return count_samples(set, why);
}

bool data_set_open(struct data_set *set, const struct input_files *files, struct failure *why)
{
  *set = (struct data_set){.archives = calloc(files->count, sizeof *set->archives)};
  if (!set->archives) return failed(why, "out of memory");
  for (size_t i = 0; i < files->count; i++)
    if (!open_file(&set->archives[set->narchives++], &files->all[i], why)) return false;
  if (!find_inputs(set, why)) return false;
  char more[40] = "";
  if (files->count > 1) snprintf(more, sizeof more, " and %zu more", files->count - 1);
  snprintf(set->summary, sizeof set->summary, "%.180s%s, %llu sample%s", files->all[0].path, more,
           (unsigned long long)set->samples, set->samples == 1 ? "" : "s");
  return true;
}

void data_set_close(struct data_set *set)
{
  for (size_t i = 0; i < set->ninputs; i++) free(set->inputs[i].parts);
  for (size_t i = 0; i < set->narchives; i++) archive_close(&set->archives[i]);
  free(set->inputs);
  free(set->archives);
  free(set->stage);
  *set = (struct data_set){0};
}

// ---- reading -----------------------------------------------------------------------------------

static const struct set_part *part_with(const struct set_input *input, uint64_t sample)
{
  const struct set_part *part = input->parts;
  while (sample - part->first >= part->count) part++;
  return part;
}

// Rows of an input, all in one file: samples sample .. sample + count - 1 are rows row .. of the
// batch. `part` is the part of each row that is read: this rank's, or all.
struct rows {
  uint64_t sample, count;
  long row;
  struct slice part;
};

// Elements read: from .. from + count - 1 of a slice of the file.
struct read {
  const struct set_input *input;
  const struct kept *kept;
  struct slice slice;
  long shift; // sample s of the file is row s - shift of the batch
  size_t from, count;
  const void *elements;
};

static bool read_elements(const struct read *piece, void *stage, struct failure *why)
{
  const struct tensor *t = tensor_of(piece->input);
  const struct member m = {.row = piece->input->row, .name = t->name.name};
  return elements_read(piece->kept, &m, &piece->slice, piece->from, piece->count, stage, NULL,
                       why) &&
         (!numbers_are(t) || numbers_hold(piece->kept, &m, &piece->slice, piece->shift, piece->from,
                                          piece->count, stage, why));
}

// Reads the rows, and calls `with` for each piece of them.
static bool read_rows(const struct data_set *set, const struct set_input *input,
                      const struct rows *rows, void (*with)(const struct read *piece, void *to),
                      void *to, struct failure *why)
{
  const struct set_part *part = part_with(input, rows->sample);
  long here[MAX_DIMS] = {0}, first[MAX_DIMS] = {0};
  const size_t ndim = rows->part.ndim;
  memcpy(here, rows->part.here, ndim * sizeof *here);
  memcpy(first, rows->part.first, ndim * sizeof *first);
  struct read piece = {.input = input,
                       .kept = &part->kept,
                       .slice = {ndim, part->kept.entry->shape, here, first},
                       .elements = set->stage};
  if (ndim > 0) {
    here[0] = (long)rows->count;
    first[0] = (long)(rows->sample - part->first);
    piece.shift = first[0] - rows->row;
  }
  const size_t elements = slice_elements(&piece.slice);
  for (; piece.from < elements; piece.from += piece.count) {
    piece.count = STAGED_BYTES / elements_staged(piece.kept, tensor_of(input));
    if (piece.count > elements - piece.from) piece.count = elements - piece.from;
    if (!read_elements(&piece, set->stage, why)) return false;
    if (with) with(&piece, to);
  }
  return true;
}

// ---- judging -----------------------------------------------------------------------------------

static uint64_t least_of(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

static bool check_input(const struct data_set *set, const struct set_input *input, uint64_t begin,
                        uint64_t end, struct failure *why)
{
  const struct tensor *t = tensor_of(input);
  const long none[MAX_DIMS] = {0};
  struct rows rows = {.sample = begin, .part = {(size_t)t->ndim, t->of, t->of, none}};
  for (; rows.sample < end; rows.sample += rows.count) {
    const struct set_part *part = part_with(input, rows.sample);
    rows.count = least_of(end - rows.sample, part->first + part->count - rows.sample);
    rows.count = least_of(rows.count, (uint64_t)t->of[0]);
    if (!read_rows(set, input, &rows, NULL, NULL, why)) return false;
  }
  return true;
}

bool data_set_check(const struct data_set *set, uint64_t first, uint64_t last, struct failure *why)
{
  const uint64_t ranks = (uint64_t)program->world, share = (last - first + ranks - 1) / ranks;
  const uint64_t begin = least_of(first + share * (uint64_t)rank->id, last);
  const uint64_t end = least_of(begin + share, last);
  for (size_t i = 0; i < set->ninputs; i++) {
    const struct set_input *input = &set->inputs[i];
    if (numbers_are(tensor_of(input)) && !input->is_fixed &&
        !check_input(set, input, begin, end, why))
      return false;
  }
  return true;
}

// ---- batches -----------------------------------------------------------------------------------

// The bytes of each of this rank's rows of an input.
static size_t row_bytes(int row)
{
  const struct tensor *t = &program->tensors[row];
  size_t bytes = table_type(t->type).bytes;
  for (int d = 1; d < t->ndim; d++) bytes *= (size_t)t->here[d];
  return bytes;
}

void rows_pad(int row, long first, void *stage)
{
  const struct tensor *t = &program->tensors[row];
  const struct index_use *use = numbers_ignoring(row);
  const long mine = t->ndim > 0 ? rank->parts[row].first[0] : 0,
             rows = t->ndim > 0 ? t->here[0] : 0;
  if (first < mine) first = mine;
  if (first >= mine + rows) return;
  char *to = (char *)rank_memory + t->offset + (size_t)(first - mine) * row_bytes(row);
  size_t bytes = (size_t)(mine + rows - first) * row_bytes(row);
  const size_t room = bytes < STAGED_BYTES ? bytes : STAGED_BYTES;
  memset(stage, 0, room);
  for (size_t i = 0; use && i < room / table_type(t->type).bytes; i++)
    if (t->type == I64)
      ((int64_t *)stage)[i] = use->ignored;
    else
      ((int32_t *)stage)[i] = (int32_t)use->ignored;
  for (size_t some; bytes > 0; bytes -= some, to += some)
    target_put(to, stage, some = bytes < room ? bytes : room);
}

// memory: the destination of the rows.
static void put_piece(const struct read *piece, void *memory)
{
  const size_t size = table_type(program->tensors[piece->input->row].type).bytes;
  target_put((char *)memory + piece->from * size, piece->elements, piece->count * size);
}

// The rows of an input from row `first` on, before `end`, that are contiguous in a file.
static struct rows next_rows(const struct set_input *input, const struct order *order,
                             const struct sample_range *of, long first, long end)
{
  const uint64_t at = of->sample + (uint64_t)first;
  struct rows rows = {.sample = order_sample(order, of->epoch, at), .count = 1, .row = first};
  const struct set_part *part = part_with(input, rows.sample);
  const uint64_t most = least_of((uint64_t)(end - first), part->first + part->count - rows.sample);
  while (rows.count < most &&
         order_sample(order, of->epoch, at + rows.count) == rows.sample + rows.count)
    rows.count++;
  rows.part = table_slice(input->row);
  return rows;
}

static bool fill_fixed(const struct data_set *set, const struct set_input *input,
                       struct failure *why)
{
  const struct slice own = table_slice(input->row);
  const uint64_t first = own.ndim > 0 ? (uint64_t)own.first[0] : 0;
  const struct rows rows = {first, own.ndim > 0 ? (uint64_t)own.here[0] : 1, (long)first, own};
  char *to = (char *)rank_memory + tensor_of(input)->offset;
  return rows.count == 0 || read_rows(set, input, &rows, put_piece, to, why);
}

static bool fill_input(const struct data_set *set, const struct set_input *input,
                       const struct order *order, const struct sample_range *of,
                       struct failure *why)
{
  const struct tensor *t = tensor_of(input);
  if (input->is_fixed) return fill_fixed(set, input, why);
  const long begin = rank->parts[input->row].first[0], own = begin + t->here[0];
  const long end = (long)least_of((uint64_t)own, of->count);
  for (long row = begin; row < end;) {
    const struct rows rows = next_rows(input, order, of, row, end);
    const size_t skipped = (size_t)(row - begin) * row_bytes(input->row);
    char *to = (char *)rank_memory + t->offset + skipped;
    if (!read_rows(set, input, &rows, put_piece, to, why)) return false;
    row += (long)rows.count;
  }
  rows_pad(input->row, (long)of->count, set->stage);
  return true;
}

bool data_set_fill(const struct data_set *set, const struct order *order,
                   const struct sample_range *of, struct failure *why)
{
  for (size_t i = 0; i < set->ninputs; i++)
    if (!fill_input(set, &set->inputs[i], order, of, why)) return false;
  return true;
}
