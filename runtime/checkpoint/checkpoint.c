// SPDX-License-Identifier: MIT
// Writes checkpoints by slices: no rank waits for another's data.
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/open_input.h"
#include "base/program.h"
#include "base/target.h"
#include "checkpoint/save_layout.h"
#include "formats/safetensors_set.h"
#include "tensors/adapters.h"
#include "tensors/stored_blocks.h"

static const char *path_of(const struct save *s, const char *name, char to[PATH_MAX])
{
  snprintf(to, PATH_MAX, "%s/%s", s->directory, name); // save_plan has checked that it fits
  return to;
}

// ---- new files ---------------------------------------------------------------------------------

// Closes the file; reports a deferred write error.
static bool finish(int fd, bool ok, const char *path, struct failure *why)
{
  if (ok && fsync(fd) != 0) ok = failed(why, "%s: cannot sync: %s", path, strerror(errno));
  if (close(fd) != 0 && ok) ok = failed(why, "%s: cannot close: %s", path, strerror(errno));
  return ok;
}

static int create_new(const char *path, struct failure *why)
{
  unlink(path); // from this job's own last save, if it failed
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) failed(why, "%s: cannot create: %s", path, strerror(errno));
  return fd;
}

static bool write_whole(int fd, const char *path, const char *text, size_t length,
                        struct failure *why)
{
  long size = (long)length, first = 0;
  struct slice whole = {.ndim = 1, .of = &size, .here = &size, .first = &first};
  return safetensors_write(fd, path, 0, 1, &whole, 0, length, text, why);
}

static bool create_part(const struct save *s, size_t i, struct failure *why)
{
  char name[NAME], path[PATH_MAX];
  struct part *p = &s->parts[i];
  struct stat about;
  new_name(s, i, name);
  int fd = create_new(path_of(s, name, path), why);
  if (fd < 0) return false;
  int error = posix_fallocate(fd, 0, (off_t)(p->length + p->bytes));
  bool ok = error == 0 || failed(why, "%s: no room for %llu bytes: %s", path,
                                 (unsigned long long)(p->length + p->bytes), strerror(error));
  ok = ok && (fstat(fd, &about) == 0 || failed(why, "%s: %s", path, strerror(errno)));
  p->device = ok ? about.st_dev : 0;
  p->inode = ok ? about.st_ino : 0;
  return finish(fd, ok, path, why);
}

bool save_create(struct save *s, struct failure *why)
{
  bool ok = folder_make(s->directory, why) && folder_keep(s->what.folder, why);
  for (size_t i = 0; ok && i < s->nparts; i++) ok = create_part(s, i, why);
  return ok;
}

void save_batch(struct save *s, uint64_t first, uint64_t count)
{
  s->first_sample = first;
  s->samples = count;
}

// A slice of several batches' rows: the present rows of this batch, among those of all.
static void move_to_batch(const struct save *s, struct slice *slice, long of[MAX_DIMS],
                          long here[MAX_DIMS], long first[MAX_DIMS])
{
  for (size_t d = 0; d < slice->ndim; d++) {
    of[d] = slice->of[d];
    here[d] = slice->here[d];
    first[d] = slice->first[d];
  }
  const long present = (long)s->samples - first[0];
  if (here[0] > present) here[0] = present > 0 ? present : 0;
  of[0] = (long)s->what.samples;
  first[0] += (long)s->first_sample;
  *slice = (struct slice){slice->ndim, of, here, first};
}

// ---- slices ------------------------------------------------------------------------------------

// Writes the rank's shard of a tensor, or of one of its parts.
static bool write_tensor(const struct save *s, size_t k, const struct member *m, uint64_t at,
                         int fd, const char *path, void *stage, struct failure *why)
{
  const struct entry *e = &s->entries[k];
  struct checksum sum = {0};
  const struct tensor *t = &program->tensors[m->row];
  const bool widens = save_widens(s, m);
  struct numbers_slice numbers;
  table_numbers(m->row, s->what.kind == CHECKPOINT ? OWN_NAME : ALIAS, &numbers);
  const bool as_blocks = table_block(t->type) && !widens;
  struct slice slice = as_blocks ? table_slice(m->row) : numbers.slice;
  size_t size = table_type(widens ? F32 : t->type).bytes;
  const char *memory = s->copy ? s->copy + s->copied[m - s->members.all] : table_memory(m);
  if (s->index[k] >= 0) {
    const long own = s->index[k] - slice.first[0];
    if (own < 0 || own >= slice.here[0]) return true;
    slice = (struct slice){slice.ndim - 1, slice.of + 1, slice.here + 1, slice.first + 1};
    memory += (size_t)own * slice_elements(&slice) * size;
  }
  long of[MAX_DIMS], here[MAX_DIMS], first[MAX_DIMS];
  if (s->what.samples && t->init.how == OF_SAMPLES)
    move_to_batch(s, &slice, of, here, first);
  else if (s->first_sample > 0)
    return true; // the same in all batches
  const size_t elements = slice_elements(&slice);
  float *nested = NULL;
  if (widens && !blocks_tables(&s->members, m, &nested, why)) return false;
  bool ok = true;
  for (size_t from = 0, count; ok && from < elements; from += count) {
    count = STAGED_BYTES / size / (widens ? 2 : 1);
    if (count > elements - from) count = elements - from;
    char *const got = (char *)stage + (widens ? STAGED_BYTES / 2 : 0); // is narrower than floats
    const size_t at_byte = widens ? blocks_bytes(t->type, from) : from * size;
    const size_t bytes = widens ? blocks_bytes(t->type, count) : count * size;
    if (s->copy)
      memcpy(got, memory + at_byte, bytes);
    else
      target_get(got, memory + at_byte, bytes);
    if (widens) blocks_unpack(m, from, count, nested, got, stage);
    if (s->what.kind == EXPORT) adapters_add(m, from, count, stage);
    if (e->has_crc) slice_checksum(&sum, &slice, size, from, count, stage);
    ok = safetensors_write(fd, path, at, size, &slice, from, count, stage, why);
  }
  free(nested);
  if (!ok) return false;
  s->shares[k] ^= checksum_share(&sum, e->end - e->begin);
  return true;
}

static bool write_part(const struct save *s, size_t i, void *stage, struct failure *why)
{
  char name[NAME], path[PATH_MAX];
  const struct part *p = &s->parts[i];
  new_name(s, i, name);
  int fd = open(path_of(s, name, path), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return failed(why, "%s: cannot open what rank 0 made (do all ranks see this directory?): %s",
                  path, strerror(errno));
  bool ok = true;
  for (size_t k = p->first; k < p->first + p->count; k++)
    for (const struct member *m = s->saved[k]; ok && m; m = save_next(s, m))
      if (rank->parts[m->row].saves)
        ok = write_tensor(s, k, m, p->length + s->entries[k].begin, fd, path, stage, why);
  return finish(fd, ok, path, why);
}

static bool has_some(const struct save *s, const struct part *p)
{
  for (size_t k = p->first; k < p->first + p->count; k++)
    for (const struct member *m = s->saved[k]; m; m = save_next(s, m))
      if (rank->parts[m->row].saves) return true;
  return false;
}

// ---- a copy ------------------------------------------------------------------------------------

// Calls `use` with each member that this rank saves, once, and its bytes.
static void each_saved_here(const struct save *s, void *context,
                            void (*use)(void *context, const struct member *m, size_t bytes))
{
  for (size_t k = 0; k < s->count; k++) {
    if (s->index[k] > 0) continue; // of the same member
    for (const struct member *m = s->saved[k]; m; m = save_next(s, m)) {
      if (!rank->parts[m->row].saves) continue;
      const struct slice slice = table_slice(m->row);
      use(context, m, slice_elements(&slice) * table_type(program->tensors[m->row].type).bytes);
    }
  }
}

static void add_bytes(void *context, const struct member *m, size_t bytes)
{
  (void)m;
  *(size_t *)context += bytes;
}

size_t save_bytes_here(const struct save *s)
{
  size_t bytes = 0;
  each_saved_here(s, &bytes, add_bytes);
  return bytes;
}

struct copying {
  struct save *save;
  char *to;
  size_t at;
};

static void copy_member(void *context, const struct member *m, size_t bytes)
{
  struct copying *copying = context;
  target_get(copying->to + copying->at, table_memory(m), bytes);
  copying->save->copied[m - copying->save->members.all] = copying->at;
  copying->at += bytes;
}

bool save_copy_room(struct copy *copy, size_t bytes, struct failure *why)
{
  if (bytes <= copy->room) return true;
  save_copy_free(copy);
  copy->bytes = malloc(bytes);
  copy->room = copy->bytes ? bytes : 0;
  return copy->bytes || failed(why, "out of memory for saving");
}

bool save_copy(struct save *s, struct copy *copy, struct failure *why)
{
  const size_t bytes = save_bytes_here(s);
  s->copied = calloc(s->members.count + 1, sizeof *s->copied);
  if (!s->copied || !save_copy_room(copy, bytes, why))
    return failed(why, "out of memory for saving");
  each_saved_here(s, &(struct copying){s, copy->bytes, 0}, copy_member);
  s->copy = copy->bytes;
  return true;
}

void save_copy_free(struct copy *copy)
{
  free(copy->bytes);
  *copy = (struct copy){0};
}

bool save_merge(struct save *s, struct failure *why)
{
  return s->what.kind != EXPORT || adapters_begin(&s->members, why);
}

bool save_write(struct save *s, struct failure *why)
{
  void *stage = malloc(STAGED_BYTES);
  bool ok = stage || failed(why, "out of memory for saving");
  for (size_t i = 0; ok && i < s->nparts; i++)
    if (has_some(s, &s->parts[i])) ok = write_part(s, i, stage, why);
  free(stage);
  return ok;
}

uint32_t *save_shares(struct save *s, size_t *count)
{
  *count = s->has_crcs ? s->count : 0;
  return s->shares;
}

// ---- what was made, seen again -----------------------------------------------------------------

// Whether it is the file that create made, and not another job's.
static bool is_made(const struct part *p, const char *path)
{
  struct stat about;
  return lstat(path, &about) == 0 && about.st_dev == p->device && about.st_ino == p->inode;
}

static bool still_made(const struct part *p, const char *path, struct failure *why)
{
  return is_made(p, path) ||
         failed(why, "%s: it is not the file that this job made: does another one save here?",
                path);
}

static bool read_back(const struct save *s, const struct part *p, const char *path,
                      struct failure *why)
{
  struct safetensors file;
  if (!safetensors_open(&file, path, why)) return false;
  bool same = file.data == p->length && file.count == p->count;
  for (size_t k = p->first; same && k < p->first + p->count; k++) {
    const struct entry *e = &s->entries[k], *read = safetensors_find(&file, e->name);
    same = read && read->begin == e->begin && read->end == e->end && read->crc == e->crc;
  }
  same = same && (p->count == 0 || (file.seal == INTACT) == s->has_crcs);
  safetensors_close(&file);
  return same || failed(why, "%s: its header is not what was written", path);
}

// Writes the header before the data: the checksums are known now.
static bool write_head(struct save *s, size_t i, struct failure *why)
{
  char name[NAME], path[PATH_MAX];
  const struct part *p = &s->parts[i];
  size_t length;
  new_name(s, i, name);
  char *head = make_head(s, i, &length, why);
  if (!head) return false;
  bool ok = still_made(p, path_of(s, name, path), why);
  int fd = ok ? open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
  if (ok && fd < 0) ok = failed(why, "%s: cannot open: %s", path, strerror(errno));
  if (ok) ok = finish(fd, write_whole(fd, path, head, length, why), path, why);
  free(head);
  return ok && read_back(s, p, path, why);
}

static bool write_heads(struct save *s, struct failure *why)
{
  bool ok = true;
  for (size_t k = 0; s->has_crcs && k < s->count; k++)
    s->entries[k].crc = checksum_whole(s->shares[k], s->entries[k].end - s->entries[k].begin);
  s->of_all = entries_crc(s->entries, s->count);
  for (size_t i = 0; ok && i < s->nparts; i++) ok = write_head(s, i, why);
  return ok;
}

// ---- committing --------------------------------------------------------------------------------

static bool sync_directory(const struct save *s, struct failure *why)
{
  int fd = open(s->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed(why, "%s: cannot open: %s", s->directory, strerror(errno));
  return finish(fd, true, s->directory, why);
}

// Renames, replacing an existing file.
static bool give_name(const struct save *s, const char *from, const char *to, struct failure *why)
{
  char old[PATH_MAX], new[PATH_MAX];
  if (rename(path_of(s, from, old), path_of(s, to, new)) == 0) return true;
  return failed(why, "%s: cannot rename to %s: %s", old, new, strerror(errno));
}

// Renames only if the new name is free; some file systems have no links.
static bool give_free_name(const struct save *s, const char *from, const char *to,
                           struct failure *why)
{
  char old[PATH_MAX], new[PATH_MAX];
  if (link(path_of(s, from, old), path_of(s, to, new)) == 0) {
    unlink(old);
    return true;
  }
  if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK)
    return give_name(s, from, to, why);
  return failed(why, "%s: cannot be named %s: %s", old, new, strerror(errno));
}

static bool is_there(const struct save *s, const char *name)
{
  char path[PATH_MAX];
  struct stat about;
  return lstat(path_of(s, name, path), &about) == 0;
}

// New parts must not take the names of files that the last index still needs.
static void choose_generation(struct save *s)
{
  char name[NAME];
  bool taken = true;
  for (s->generation = 0; taken;) {
    s->generation++;
    taken = false;
    for (size_t i = 0; i < s->nparts && !taken; i++) {
      final_name(s, i, name);
      taken = is_there(s, name);
    }
  }
}

static bool index_reads_back(const struct save *s, const char *path, const json_t *index,
                             struct failure *why)
{
  json_error_t error;
  json_t *read = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  bool same = json_equal(read, index) == 1;
  json_decref(read);
  if (json_memory_ended()) return failed(why, "%s: out of memory for its index", s->directory);
  return same || failed(why, "%s: it is not what was written", path);
}

static bool write_index(const struct save *s, const char *name, struct failure *why)
{
  char path[PATH_MAX];
  json_t *index = make_index(s, why);
  if (!index) return false;
  char *text = json_dumps(index, JSON_INDENT(2));
  bool ok = !json_memory_ended() && text;
  if (!ok) failed(why, "%s: out of memory for its index", s->directory);
  int fd = ok ? create_new(path_of(s, name, path), why) : -1;
  ok = fd >= 0 && finish(fd, write_whole(fd, path, text, strlen(text), why), path, why) &&
       index_reads_back(s, path, index, why);
  free(text);
  json_decref(index);
  return ok;
}

// Removes such programs' files that nothing names any more. A file that cannot be removed does no
// harm.
static void remove_old(const struct save *s)
{
  char path[PATH_MAX];
  struct failure reason;
  if (s->nparts == 1 && folder_wrote(s->directory, INDEX, &reason)) unlink(path_of(s, INDEX, path));
  DIR *directory = opendir(s->directory);
  for (struct dirent *d; directory && (d = readdir(directory));)
    if (folder_names_part(d->d_name) && !is_own_part(s, d->d_name) &&
        folder_wrote(s->directory, d->d_name, &reason))
      unlink(path_of(s, d->d_name, path));
  if (directory) closedir(directory);
}

// For a file that appeared while the job ran.
static bool is_replaceable(const struct save *s, const char *name, struct failure *why)
{
  struct failure reason;
  if (!is_there(s, name) || folder_wrote(s->directory, name, &reason)) return true;
  return folder_refuses(s->directory, name, &reason, why);
}

static bool commit_single(struct save *s, struct failure *why)
{
  char name[NAME], path[PATH_MAX];
  new_name(s, 0, name);
  return is_replaceable(s, single_name(s), why) && folder_keep(s->what.folder, why) &&
         still_made(&s->parts[0], path_of(s, name, path), why) &&
         give_name(s, name, single_name(s), why) && sync_directory(s, why);
}

static bool name_parts(struct save *s, struct failure *why)
{
  char from[NAME], to[NAME], path[PATH_MAX];
  choose_generation(s);
  for (size_t i = 0; i < s->nparts; i++) {
    new_name(s, i, from);
    final_name(s, i, to);
    if (!still_made(&s->parts[i], path_of(s, from, path), why) || !give_free_name(s, from, to, why))
      return false;
    s->named++;
  }
  return true;
}

// The index is valid from its renaming on or, if there was a single file, from the removal of that
// file on.
static bool commit_parts(struct save *s, struct failure *why)
{
  char index[NAME], path[PATH_MAX];
  new_index_name(s, index);
  if (!is_replaceable(s, SINGLE, why) || !is_replaceable(s, INDEX, why) || !name_parts(s, why) ||
      !write_index(s, index, why) || !sync_directory(s, why) || !folder_keep(s->what.folder, why))
    return false;
  s->committed = true;
  if (!give_name(s, index, INDEX, why) || !sync_directory(s, why)) return false;
  if (unlink(path_of(s, SINGLE, path)) == 0) return sync_directory(s, why);
  return errno == ENOENT || failed(why, "%s: cannot remove: %s", path, strerror(errno));
}

bool save_commit(struct save *s, struct failure *why)
{
  bool ok = write_heads(s, why) && (s->nparts > 1 ? commit_parts(s, why) : commit_single(s, why));
  if (ok && strcmp(single_name(s), SINGLE) == 0) remove_old(s);
  return ok;
}

void save_abandon(struct save *s)
{
  char name[NAME], path[PATH_MAX];
  for (size_t i = 0; i < s->nparts; i++) {
    new_name(s, i, name);
    unlink(path_of(s, name, path));
  }
  for (size_t i = 0; !s->committed && i < s->named; i++) {
    final_name(s, i, name);
    if (is_made(&s->parts[i], path_of(s, name, path))) unlink(path);
  }
  new_index_name(s, name);
  if (s->nparts > 1) unlink(path_of(s, name, path));
}
