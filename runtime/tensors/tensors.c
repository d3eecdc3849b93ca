// SPDX-License-Identifier: MIT
// Fills the program's tensors: from safetensors files by slices, else by Philox.
#include "tensors/tensors.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/elements.h"
#include "base/program.h"
#include "base/target.h"
#include "formats/safetensors_set.h"
#include "tensors/adapters.h"
#include "tensors/file_elements.h"
#include "tensors/initial_values.h"
#include "tensors/integer_inputs.h"
#include "tensors/stored_blocks.h"
#include "tensors/tensor_table.h"

// ---- piece by piece ----------------------------------------------------------------------------

// The name by which a file has the member; NULL, of no file: its own.
static enum naming naming_in(const struct kept *kept, const struct member *m)
{
  return kept && m->alias && strcmp(kept->entry->name, m->alias) == 0 ? ALIAS : OWN_NAME;
}

// The rank's part of the member as the file has it: blocks as such, or in numbers.
static void slice_in(const struct kept *kept, const struct member *m, struct numbers_slice *to)
{
  table_numbers(m->row, naming_in(kept, m), to);
  if (kept && elements_are_blocks(&program->tensors[m->row], kept->entry))
    to->slice = table_slice(m->row);
}

// Makes the slice's own elements from .. from + count - 1 in `to`: reads them and adds them to the
// checksum, if `kept` is not NULL; else draws them.
static bool make_piece(const struct kept *kept, const struct drawn *drawn, const struct member *m,
                       const struct slice *slice, size_t from, size_t count, void *to,
                       struct checksum *sum, struct failure *why)
{
  const struct tensor *t = &program->tensors[m->row];
  if (kept && !elements_read(kept, m, slice, from, count, to, sum, why)) return false;
  size_t size = table_type(elements_type(t)).bytes;
  for (size_t done = 0; !kept && done < count;) {
    struct run run = slice_run(slice, from + done, count - done);
    draw(drawn, run.first, run.count, (char *)to + done * size);
    done += run.count;
  }
  return true;
}

static bool piece_holds(const struct kept *kept, const struct member *m, size_t from, size_t count,
                        const void *piece, struct failure *why)
{
  struct numbers_slice numbers;
  table_numbers(m->row, naming_in(kept, m), &numbers);
  return !numbers_are(&program->tensors[m->row]) ||
         numbers_hold(kept, m, &numbers.slice, 0, from, count, piece, why);
}

// Makes the tables of a parameter of NF4 blocks, from its whole tensor: this rank's memory has them
// afterwards, and the caller a copy.
static bool make_tables(const struct kept *kept, const struct drawn *drawn, const struct member *m,
                        const struct member *tables, void *stage, float **nested,
                        struct failure *why)
{
  static const long from_0[MAX_DIMS];
  struct numbers_slice numbers;
  slice_in(kept, m, &numbers);
  const struct slice part = numbers.slice, whole = {part.ndim, part.of, part.of, from_0};
  struct numbers_slice own;
  table_numbers(m->row, OWN_NAME, &own);
  const size_t count = slice_elements(&whole), length = (size_t)program->tensors[tables->row].of[0];
  float *sizes = malloc(count / NF4_NUMBERS * sizeof *sizes + 1);
  *nested = malloc(length * sizeof **nested);
  bool ok = (sizes && *nested) || failed(why, "out of memory for the tables of %s", m->name);
  for (size_t from = 0, n; ok && from < count; from += n) {
    n = STAGED_BYTES / elements_staged(kept, &program->tensors[m->row]);
    if (n > count - from) n = count - from;
    ok = make_piece(kept, drawn, m, &whole, from, n, stage, NULL, why);
    if (ok) nf4_sizes(stage, n, sizes + from / NF4_NUMBERS);
  }
  // A part of a larger tensor of files is whole rows of it.
  const size_t begin = (size_t)((part.first[0] - own.slice.first[0]) * part.of[1]) / NF4_NUMBERS;
  if (ok) nf4_make_tables(sizes, count / NF4_NUMBERS, begin, length - NESTED_GROUPS, *nested);
  if (ok) target_put(table_memory(tables), *nested, length * sizeof **nested);
  free(sizes);
  return ok;
}

// Whether tables of a file are such that kernels read nothing outside of them.
static bool tables_hold(const struct kept *kept, const struct member *m, size_t from,
                        const float *piece, struct failure *why)
{
  if (program->tensors[m->row].init.how != NESTED || from > 0) return true;
  const float shift = piece[NESTED_SHIFT];
  return (shift >= 0 && shift < NF4_GROUP) ||
         failed(why,
                "%s: %s: no tables of NF4 blocks: the place of the first block is %g, not 0 to %d",
                kept->file->path, m->name, (double)shift, NF4_GROUP - 1);
}

// *share: gets the contribution of this rank's slice to the tensor's checksum; NULL: not needed.
static bool fill_tensor(const struct members *members, const struct kept *kept,
                        const struct member *m, void *stage, uint32_t *share, bool checks,
                        struct failure *why)
{
  struct checksum sum = {0};
  const struct tensor *t = &program->tensors[m->row];
  const struct member *tables = blocks_nested(members, m);
  const bool as_is = elements_type(t) == t->type || (kept && elements_are_blocks(t, kept->entry));
  const size_t size = as_is ? table_type(t->type).bytes : 0;
  struct numbers_slice numbers;
  slice_in(kept, m, &numbers);
  const size_t elements = slice_elements(&numbers.slice);
  float *nested = NULL;
  // A rank of another stage of a pipeline has neither.
  const bool makes = !as_is && tables && program->tensors[tables->row].here[0] > 0;
  struct drawn drawn = {0};
  bool ok = kept || (elements == 0 && !makes) || draw_begin(&drawn, m, why);
  ok = ok && (!makes || make_tables(kept, &drawn, m, tables, stage, &nested, why));
  char *memory = table_memory(m);
  for (size_t from = 0, count; ok && from < elements; from += count) {
    count = STAGED_BYTES / elements_staged(kept, t);
    if (count > elements - from) count = elements - from;
    ok = make_piece(kept, &drawn, m, &numbers.slice, from, count, stage, share ? &sum : NULL, why);
    if (ok && kept) ok = tables_hold(kept, m, from, stage, why);
    if (ok && checks) ok = piece_holds(kept, m, from, count, stage, why);
    if (!ok) break;
    size_t bytes = as_is ? count * size : blocks_pack(m, from, count, nested, stage);
    target_put(memory, stage, bytes);
    memory += bytes;
  }
  free(nested);
  draw_end(&drawn);
  if (ok && share) *share ^= checksum_share(&sum, kept->entry->end - kept->entry->begin);
  return ok;
}

// ---- from files --------------------------------------------------------------------------------

// Memory is zeroed at the start.
static bool is_zero(const struct tensor *t)
{
  return t->init.how == CONSTANT && fpclassify(t->init.of[0]) == FP_ZERO;
}

// The source of each member: NULL if it is drawn.
struct filling {
  struct members members;
  const struct kept **from;
  struct archive weights, adapter, data, exported; // exported: the plan's own archive
  struct surplus_patterns patterns;
  struct checks *checks; // NULL: does not verify
  struct failure *note;
  bool without_inputs, checks_later;
  bool goes_on; // from a checkpoint, which has everything
};

static bool fits(const struct kept *kept, const struct member *m, struct failure *why)
{
  const struct tensor *t = &program->tensors[m->row];
  const struct entry *e = kept->entry;
  struct numbers_slice numbers;
  slice_in(kept, m, &numbers);
  const size_t ndim = numbers.slice.ndim;
  return ((elements_are_blocks(t, e) || elements_take(t, e->dtype)) && e->ndim == ndim &&
          memcmp(e->shape, numbers.slice.of, ndim * sizeof *numbers.of) == 0) ||
         elements_misfit(kept, t, &numbers.slice, why);
}

// Finds a tensor by its name or its alias; NULL where the archive has neither.
static bool look_up(struct archive *archive, const struct member *m, const struct kept **found,
                    struct failure *why)
{
  const struct kept *named = archive_find(archive, m->name), *other = NULL;
  if (table_stacked(m)) {
    if (!archive_stack(archive, m->alias, table_stacked(m), &other, why)) return false;
  } else if (m->alias && strcmp(m->alias, m->name) != 0)
    other = archive_find(archive, m->alias);
  *found = named ? named : other;
  if (!named || !other) return true;
  return failed(why, "%s: it holds both %s and %s, which are one tensor of the program",
                archive->path, m->name, m->alias);
}

static bool missing(const struct archive *archive, const struct member *m, size_t others,
                    struct failure *why)
{
  char more[40] = "";
  if (others > 0) snprintf(more, sizeof more, " and %zu more", others);
  return failed(why, "%s: it has no %s%s%s%s%s, which the program needs", archive->path, m->name,
                m->alias ? " (" : "", m->alias ? m->alias : "", m->alias ? ")" : "", more);
}

// A model has numbers beside its weights, such as the frequencies of a rotary embedding. Other
// files lack them; the archive that the program was made from has them. NULL: it is no such number.
static const struct kept *exported_constant(struct filling *f, const struct member *m)
{
  struct failure why;
  if (!program->exported || f->goes_on) return NULL;
  if (!f->exported.nfiles && !archive_open(&f->exported, program->weights, &why)) return NULL;
  if (strcmp(f->exported.files[0].exported, program->exported) != 0) return NULL;
  const struct kept *found = archive_find(&f->exported, m->name);
  return found && found->entry->is_constant ? found : NULL;
}

// Whether the member is made of the numbers of its parameter, which are not blocks in the file.
static bool comes_of_numbers(const struct filling *f, const struct member *m)
{
  const struct member *of = blocks_of_nested(&f->members, m);
  const struct kept *kept = of ? f->from[of - f->members.all] : NULL;
  return of && !(kept && elements_are_blocks(&program->tensors[of->row], kept->entry));
}

// Takes all tensors of a role from the archive; weights may lack the adapters.
static bool take(struct filling *f, struct archive *archive, enum role role, struct failure *why)
{
  const struct member *lacked = NULL;
  size_t others = 0;
  for (size_t i = 0; i < f->members.count; i++) {
    const struct member *m = &f->members.all[i];
    const struct tensor *t = &program->tensors[m->row];
    if (t->role != role) continue;
    if (comes_of_numbers(f, m)) continue;
    if (!look_up(archive, m, &f->from[i], why)) return false;
    if (!f->from[i] && role == PARAMETER && !f->goes_on)
      f->from[i] = surplus_tied(archive, m, &f->members);
    if (!f->from[i] && role == PARAMETER) f->from[i] = exported_constant(f, m);
    if (f->from[i] && !fits(f->from[i], m, why)) return false;
    if (f->from[i] || (archive == &f->weights && role == PARAMETER && !f->goes_on &&
                       (adapters_have(m->name) || surplus_may_lack(m, &f->patterns))))
      continue;
    if (lacked)
      others++;
    else
      lacked = m;
  }
  return !lacked || missing(archive, lacked, others, why);
}

static bool begins_with(const char *name, const char *prefix)
{
  return name && strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_state(const char *name)
{
  return begins_with(name, "optim.");
}

// If there are no checksums, says so with `note`.
static bool check_headers(const struct filling *f, const struct archive *archive, const char *note,
                          struct failure *why)
{
  bool has = true;
  struct failure changed;
  if (!f->checks) return true;
  if (!verify_headers(archive, &has, &changed)) return verify_refuse(&changed, why);
  if (!has && note && rank->id == 0 && f->note) failed(f->note, "%s %s", archive->path, note);
  return true;
}

// Another export may have the same names and shapes. In the plan's own archive that is an error:
// the file has changed since. Else `note` says it.
static bool check_export(const struct filling *f, const char *path, struct failure *why)
{
  const char *exported = f->weights.nfiles == 1 ? f->weights.files[0].exported : "";
  if (!program->exported || !*exported || strcmp(exported, program->exported) == 0) return true;
  if (strcmp(path, program->weights) == 0)
    return failed(why,
                  "%s: it is another export than that which this program was made from: make the "
                  "program again by tpgen, or give that export by --weights",
                  path);
  if (rank->id == 0 && f->note)
    failed(f->note,
           "%s is another export than that which this program was made from: its weights are "
           "taken, its graph is not",
           path);
  return true;
}

enum { PREFIX = 100 };

// PREFIX=PATH: the path, and the prefix that names in the file get, which ends with a point. An
// argument that is no such text is a path, and the prefix is empty.
static const char *path_behind_prefix(const char *given, char prefix[PREFIX])
{
  const char *equals = strchr(given, '=');
  const size_t length = equals ? (size_t)(equals - given) : 0;
  bool is_name = equals && length > 0 && length < PREFIX - 1;
  for (size_t i = 0; is_name && i < length; i++)
    is_name = isalnum((unsigned char)given[i]) || given[i] == '_' || given[i] == '.';
  if (is_name)
    snprintf(prefix, PREFIX, "%.*s%s", (int)length, given, equals[-1] == '.' ? "" : ".");
  else
    prefix[0] = 0;
  return is_name ? equals + 1 : given;
}

// Further weights: PATH, or PREFIX=PATH.
static bool join_weights(struct filling *f, const char *given, struct failure *why)
{
  char prefix[PREFIX];
  const char *path = path_behind_prefix(given, prefix);
  struct archive other;
  bool is_known = !*prefix;
  for (size_t i = 0; i < f->members.count && !is_known; i++)
    is_known =
        begins_with(f->members.all[i].name, prefix) || begins_with(f->members.all[i].alias, prefix);
  if (!is_known)
    return failed(why, "--weights %s: the program has no parameter whose name begins with '%s'",
                  given, prefix);
  if (!archive_open(&other, path, why)) return false;
  if (!check_headers(f, &other, NULL, why)) {
    archive_close(&other);
    return false;
  }
  return archive_join(&f->weights, &other, prefix, why);
}

// Parameters only. The file may also have the optimizer's state, and the inputs if it is also the
// file of data.
static bool take_weights(struct filling *f, const char *path, const char *const *more,
                         bool data_too, struct failure *why)
{
  if (!archive_open(&f->weights, path, why)) return false;
  if (!check_headers(f, &f->weights, NULL, why)) return false;
  for (; more && *more; more++)
    if (!join_weights(f, *more, why)) return false;
  if (!check_export(f, path, why)) return false;
  size_t noted = 0;
  for (size_t i = 0; i < f->weights.count; i++) {
    const char *name = f->weights.all[i].entry->name;
    const struct member *m = table_find(&f->members, name);
    enum role role = m ? program->tensors[m->row].role : OUTPUT;
    const char *own = name + f->weights.all[i].file->prefix;
    bool known = role != OUTPUT || is_state(own) || (data_too && program->loss < 0);
    const bool surplus = !known && !f->weights.all[i].file->has_others;
    if (surplus &&
        !surplus_takes(&f->weights, &f->weights.all[i], &f->members, &f->patterns, &noted, why))
      return false;
  }
  if (noted && rank->id == 0 && f->note)
    failed(
        f->note,
        "%s: %zu tensors of layers that predict several tokens at once are left out: the program "
        "has no such layers",
        f->weights.path, noted);
  return take(f, &f->weights, PARAMETER, why);
}

// All adapters, and nothing else.
static bool take_adapter(struct filling *f, const char *path, struct failure *why)
{
  char file[PATH_MAX];
  if (!adapters_find_file(path, file, sizeof file, why) || !archive_open(&f->adapter, file, why))
    return false;
  for (size_t i = 0; i < f->adapter.count; i++) {
    const char *name = f->adapter.all[i].entry->name;
    const struct member *m = table_find(&f->members, name);
    if (surplus_is_base_layer(name)) return surplus_refuse_base_layer(&f->adapter, name, why);
    if (!m || !adapters_have(m->name))
      return failed(why, "%s: it holds %s, which is not an adapter of the program", f->adapter.path,
                    name);
  }
  for (size_t i = 0; i < f->members.count; i++) {
    const struct member *m = &f->members.all[i];
    if (!adapters_have(m->name) || program->tensors[m->row].role != PARAMETER) continue;
    if (!look_up(&f->adapter, m, &f->from[i], why)) return false;
    if (!f->from[i]) return missing(&f->adapter, m, 0, why);
    if (!fits(f->from[i], m, why)) return false;
  }
  return true;
}

// An integer from 0 to `most` in the checkpoint's metadata. False, and why, if it is not one.
static bool read_count(const struct archive *checkpoint, const char *key, long long most,
                       long long *n, struct failure *why)
{
  const char *text = archive_metadata(checkpoint, key);
  char *end;
  errno = 0;
  *n = strtoll(text, &end, 10);
  if (!*end && end != text && errno == 0 && *n >= 0 && *n <= most) return true;
  return failed(why, "%s: its %s \"%s\" is not a number of %ss", checkpoint->path, key, text, key);
}

// The position in its data that the checkpoint records.
static bool take_position(const struct archive *checkpoint, struct progress *at,
                          struct failure *why)
{
  long long tokens = 0, epoch = 0, sample = 0;
  at->of_samples = archive_metadata(checkpoint, "epoch") != NULL;
  at->has_data = at->of_samples || archive_metadata(checkpoint, "tokens");
  if (!at->has_data) return true;
  if (at->of_samples ? !read_count(checkpoint, "epoch", INT64_MAX / 2, &epoch, why) ||
                           !read_count(checkpoint, "sample", INT64_MAX / 2, &sample, why)
                     : !read_count(checkpoint, "tokens", INT64_MAX / 2, &tokens, why))
    return false;
  at->tokens = (uint64_t)tokens;
  at->epoch = (uint64_t)epoch;
  at->sample = (uint64_t)sample;
  return true;
}

// The results of its validations.
static bool take_validations(const struct archive *checkpoint, const char *best_name,
                             struct progress *at, struct failure *why)
{
  const char *best = best_name ? archive_metadata(checkpoint, best_name) : NULL;
  long long step, without;
  char *end;
  at->has_validations = best != NULL;
  if (!best) return true;
  if (!read_count(checkpoint, "best_step", 1000000000, &step, why) ||
      !read_count(checkpoint, "validations_without", 1000000000, &without, why))
    return false;
  at->best = strtod(best, &end);
  at->best_step = (int)step;
  at->without = (int)without;
  return (end != best && !*end) ||
         failed(why, "%s: its %s \"%s\" is not a number", checkpoint->path, best_name, best);
}

// Exactly the parameters, the state and the step.
static bool take_checkpoint(struct filling *f, const char *path, const char *best_name,
                            struct progress *at, struct failure *why)
{
  const char *note = "was saved without checksums: nothing shows whether it has changed since";
  if (!archive_open(&f->weights, path, why) || !check_headers(f, &f->weights, note, why))
    return false;
  if (f->weights.stale)
    return failed(why, "%s: it lists %s, which none of its files has", f->weights.path,
                  f->weights.stale);
  const char *exported = archive_metadata(&f->weights, "exported");
  if (program->exported && exported && strcmp(exported, program->exported) != 0 && rank->id == 0 &&
      f->note)
    failed(f->note, "%s was saved by a program that was made from another export", path);
  for (size_t i = 0; i < f->weights.count; i++) {
    const char *name = f->weights.all[i].entry->name;
    const struct member *m = table_find(&f->members, name);
    enum role role = m ? program->tensors[m->row].role : OUTPUT;
    if (role != PARAMETER && role != STATE && !is_count_of_batches(name))
      return failed(why, "%s: it holds %s, which the program does not know", f->weights.path, name);
  }
  if (!take(f, &f->weights, PARAMETER, why) || !take(f, &f->weights, STATE, why)) return false;
  long long n;
  if (!archive_metadata(&f->weights, "step"))
    return failed(why,
                  "%s: no checkpoint: it does not say which step it was saved after "
                  "(--weights takes only the parameters)",
                  f->weights.path);
  if (!read_count(&f->weights, "step", 1000000000, &n, why)) return false;
  at->step = (int)n;
  return take_position(&f->weights, at, why) && take_validations(&f->weights, best_name, at, why);
}

static bool take_data(struct filling *f, const char *path, struct failure *why)
{
  return archive_open(&f->data, path, why) && take(f, &f->data, BATCH, why);
}

// Each byte of a file counts once in its checksum: on the rank that would save it.
static bool is_checked(const struct filling *f, size_t i)
{
  const struct kept *kept = f->from[i];
  const int row = f->members.all[i].row;
  return f->checks && kept && kept->entry->has_crc && program->tensors[row].role != BATCH &&
         rank->parts[row].saves;
}

static bool fill_all(const struct filling *f, struct failure *why)
{
  void *stage = malloc(STAGED_BYTES);
  if (!stage) return failed(why, "out of memory for reading");
  bool ok = true;
  for (size_t i = 0; ok && i < f->members.count; i++) {
    const struct member *m = &f->members.all[i];
    enum role role = program->tensors[m->row].role;
    const struct member *first = naming_in(f->from[i], m) == ALIAS ? m->alias_of : m->of;
    uint32_t *share = is_checked(f, i) ? &f->checks->shares[first - f->members.all] : NULL;
    const bool is_there = !f->from[i] && is_zero(&program->tensors[m->row]);
    const bool comes_later = role == BATCH && f->without_inputs;
    if (role != OUTPUT && !is_there && !comes_later && !comes_of_numbers(f, m))
      ok = fill_tensor(&f->members, f->from[i], m, stage, share, f->from[i] || !f->checks_later,
                       why);
    if (ok && f->checks && f->from[i] && role != BATCH && first == m)
      ok = checks_expect(f->checks, i, f->from[i], why);
  }
  free(stage);
  return ok;
}

bool tensors_fill(const struct origins *from, struct progress *at, struct failure *why)
{
  struct filling f = {.checks = from->checks,
                      .note = from->note,
                      .without_inputs = from->without_inputs,
                      .checks_later = from->checks_later,
                      .goes_on = from->load != NULL,
                      .patterns = from->patterns};
  *at = (struct progress){0};
  if (!table_members(&f.members, why)) return false;
  f.from = calloc(f.members.count + 1, sizeof *f.from);
  bool ok = f.from || failed(why, "out of memory");
  if (ok && f.checks) ok = checks_make(f.checks, f.members.count, why);
  bool same = from->weights && from->data && strcmp(from->weights, from->data) == 0;
  if (ok && from->weights) ok = take_weights(&f, from->weights, from->more_weights, same, why);
  if (ok && from->adapter) ok = take_adapter(&f, from->adapter, why);
  if (ok && from->load) ok = take_checkpoint(&f, from->load, from->best_name, at, why);
  if (ok && from->data) ok = take_data(&f, from->data, why);
  ok = ok && fill_all(&f, why);
  archive_close(&f.weights);
  archive_close(&f.adapter);
  archive_close(&f.data);
  archive_close(&f.exported);
  free(f.from);
  table_free(&f.members);
  return ok;
}

bool tensors_draw_inputs(struct failure *why)
{
  struct members members;
  void *stage = malloc(STAGED_BYTES);
  if (!stage) return failed(why, "out of memory for random inputs");
  bool ok = table_members(&members, why);
  for (size_t i = 0; ok && i < members.count; i++)
    if (program->tensors[members.all[i].row].role == BATCH)
      ok = fill_tensor(&members, NULL, &members.all[i], stage, NULL, true, why);
  table_free(&members);
  free(stage);
  return ok;
}
