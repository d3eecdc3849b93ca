// Lays out checkpoints and writes them by slices: no rank waits for another's data.
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data.h"
#include "program.h"
#include "safetensors.h"
#include "table.h"
#include "target.h"

static const char SINGLE[] = "model.safetensors";
static const char OUTPUTS[] = "outputs.safetensors";
static const char INDEX[] = "model.safetensors.index.json";
static const char NEW_INDEX[] = ".model.safetensors.index.json.tmp";

enum { NAME = 80 }; // room for a file's name

// One of the new files: entries first .. first + count - 1.
struct part {
  size_t first, count;
  uint64_t bytes; // of data
  char *head;
  size_t length; // of head: the data begins there
};

struct save {
  struct saving what;
  char *directory;
  struct members members;
  struct entry *entries;       // what is saved, in the order of the table
  const struct member **saved; // which tensor each of them is
  size_t count;
  struct part *parts;
  size_t nparts;
  int turn;       // of the names of several parts: where it is above 1 they have it in them
  size_t named;   // so many parts have their final names
  bool committed; // the new index may count
};

// ---- names -------------------------------------------------------------------------------------

static const char *single_name(const struct save *s)
{
  return s->what.kind == CHECKPOINT && program.loss < 0 ? OUTPUTS : SINGLE;
}

// What part i is called when it is committed.
static void final_name(const struct save *s, size_t i, char to[NAME])
{
  char turn[16] = "";
  if (s->turn > 1) snprintf(turn, sizeof turn, "%d-", s->turn);
  if (s->nparts == 1)
    snprintf(to, NAME, "%s", single_name(s));
  else
    snprintf(to, NAME, "model-%s%05zu-of-%05zu.safetensors", turn, i + 1, s->nparts);
}

// And before that: a name that does not depend on what rank 0 finds in the folder.
static void new_name(const struct save *s, size_t i, char to[NAME])
{
  if (s->nparts == 1)
    snprintf(to, NAME, ".%s.tmp", single_name(s));
  else
    snprintf(to, NAME, ".model-%05zu-of-%05zu.safetensors.tmp", i + 1, s->nparts);
}

static const char *path_of(const struct save *s, const char *name, char to[PATH_MAX])
{
  snprintf(to, PATH_MAX, "%s/%s", s->directory, name); // save_plan has seen that it fits
  return to;
}

// ---- the layout --------------------------------------------------------------------------------

static bool is_saved(const struct save *s, const struct tensor *t)
{
  if (s->what.kind == EXPORT) return t->role == PARAMETER;
  return program.loss < 0 ? t->role == OUTPUT : t->role == PARAMETER || t->role == STATE;
}

static bool list_saved(struct save *s, struct failure *why)
{
  if (!table_members(&s->members, why)) return false;
  s->entries = calloc(s->members.count + 1, sizeof *s->entries);
  s->saved = calloc(s->members.count + 1, sizeof *s->saved);
  if (!s->entries || !s->saved) return failed(why, "out of memory for saving");
  for (size_t i = 0; i < s->members.count; i++) {
    const struct member *m = &s->members.all[i];
    const struct tensor *t = &program.tensors[m->row];
    if (!is_saved(s, t)) continue;
    s->saved[s->count] = m;
    s->entries[s->count++] =
        (struct entry){.name = s->what.kind == EXPORT && m->alias ? m->alias : m->name,
                       .dtype = table_type(t->type).name,
                       .ndim = (size_t)t->ndim,
                       .shape = t->of};
  }
  return true;
}

static uint64_t whole_bytes(const struct tensor *t)
{
  uint64_t bytes = table_type(t->type).bytes;
  for (int d = 0; d < t->ndim; d++) bytes *= (uint64_t)t->of[d];
  return bytes;
}

// Tensors side by side go into one file until it would have more than shard_bytes.
static bool cut_into_parts(struct save *s, struct failure *why)
{
  s->parts = calloc(s->count + 1, sizeof *s->parts);
  if (!s->parts) return failed(why, "out of memory for saving");
  bool cuts = s->what.shard_bytes > 0 && single_name(s) == SINGLE;
  struct part *part = &s->parts[s->nparts++];
  for (size_t i = 0; i < s->count; i++) {
    uint64_t bytes = whole_bytes(&program.tensors[s->saved[i]->row]);
    if (cuts && part->count > 0 && part->bytes + bytes > s->what.shard_bytes) {
      part = &s->parts[s->nparts++];
      part->first = i;
    }
    part->count++;
    part->bytes += bytes;
  }
  return true;
}

static bool make_heads(struct save *s, struct failure *why)
{
  char step[16], tokens[24];
  snprintf(step, sizeof step, "%d", s->what.step);
  snprintf(tokens, sizeof tokens, "%llu",
           (unsigned long long)data_position(s->what.step * program.batches));
  const char *const checkpoint[][2] = {
      {"format", "pt"}, {"plan_hash", program.hash}, {"step", step}, {"tokens", tokens}};
  size_t pairs = s->what.kind == EXPORT ? 1 : program.batches > 0 ? 4 : 3;
  bool ok = true;
  for (size_t i = 0; ok && i < s->nparts; i++) {
    struct part *p = &s->parts[i];
    ok = safetensors_layout(s->entries + p->first, p->count, checkpoint, pairs, &p->head,
                            &p->length, why);
  }
  return ok;
}

struct save *save_plan(const struct saving *what, struct failure *why)
{
  struct save *s = calloc(1, sizeof *s);
  bool ok = s || failed(why, "out of memory for saving");
  if (ok) s->what = *what;
  if (ok) s->turn = 1;
  if (ok) s->directory = strdup(what->directory);
  ok = ok && (s->directory || failed(why, "out of memory for saving"));
  ok = ok && (strlen(s->directory) + NAME + 2 < PATH_MAX ||
              failed(why, "%s: the path is too long", s->directory));
  ok = ok && list_saved(s, why) && cut_into_parts(s, why) && make_heads(s, why);
  if (ok) return s;
  save_end(s);
  return NULL;
}

void save_end(struct save *s)
{
  if (!s) return;
  for (size_t i = 0; i < s->nparts; i++) free(s->parts[i].head);
  free(s->parts);
  free(s->entries);
  free(s->saved);
  free(s->directory);
  table_free(&s->members);
  free(s);
}

// ---- new files ---------------------------------------------------------------------------------

// Closes the file: an error that waited until now counts.
static bool finish(int fd, bool ok, const char *path, struct failure *why)
{
  if (ok && fsync(fd) != 0) ok = failed(why, "%s: cannot sync: %s", path, strerror(errno));
  if (close(fd) != 0 && ok) ok = failed(why, "%s: cannot close: %s", path, strerror(errno));
  return ok;
}

bool save_directory(const char *directory, struct failure *why)
{
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s", directory) >= (int)sizeof path)
    return failed(why, "%s: the path is too long", directory);
  for (char *slash = path + 1; *path && (slash = strchr(slash, '/')); slash++) {
    *slash = 0;
    mkdir(path, 0777); // where this fails, the last one does
    *slash = '/';
  }
  struct stat about;
  if (mkdir(path, 0777) == 0 ||
      (errno == EEXIST && stat(path, &about) == 0 && S_ISDIR(about.st_mode)))
    return true;
  return failed(why, "%s: cannot make the directory: %s", path,
                strerror(errno == EEXIST ? ENOTDIR : errno));
}

static int create_new(const char *path, struct failure *why)
{
  unlink(path); // what an earlier job left when it was killed
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
  const struct part *p = &s->parts[i];
  new_name(s, i, name);
  int fd = create_new(path_of(s, name, path), why);
  if (fd < 0) return false;
  int error = posix_fallocate(fd, 0, (off_t)(p->length + p->bytes));
  bool ok = error == 0 || failed(why, "%s: no room for %llu bytes: %s", path,
                                 (unsigned long long)(p->length + p->bytes), strerror(error));
  ok = ok && write_whole(fd, path, p->head, p->length, why);
  return finish(fd, ok, path, why);
}

bool save_create(struct save *s, struct failure *why)
{
  bool ok = save_directory(s->directory, why);
  for (size_t i = 0; ok && i < s->nparts; i++) ok = create_part(s, i, why);
  return ok;
}

// ---- slices ------------------------------------------------------------------------------------

static bool write_tensor(int fd, const char *path, uint64_t at, const struct member *m, void *stage,
                         struct failure *why)
{
  struct slice slice = table_slice(m->row);
  size_t size = table_type(program.tensors[m->row].type).bytes, elements = slice_elements(&slice);
  const char *memory = table_memory(m);
  for (size_t from = 0; from < elements;) {
    size_t count = STAGED_BYTES / size;
    if (count > elements - from) count = elements - from;
    target_get(stage, memory + from * size, count * size);
    if (!safetensors_write(fd, path, at, size, &slice, from, count, stage, why)) return false;
    from += count;
  }
  return true;
}

static bool write_part(const struct save *s, size_t i, void *stage, struct failure *why)
{
  char name[NAME], path[PATH_MAX];
  const struct part *p = &s->parts[i];
  new_name(s, i, name);
  int fd = open(path_of(s, name, path), O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return failed(why, "%s: cannot open what rank 0 made (do all ranks see this directory?): %s",
                  path, strerror(errno));
  bool ok = true;
  for (size_t k = p->first; ok && k < p->first + p->count; k++)
    if (rank.owns[s->saved[k]->row])
      ok = write_tensor(fd, path, p->length + s->entries[k].begin, s->saved[k], stage, why);
  return finish(fd, ok, path, why);
}

static bool has_some(const struct save *s, const struct part *p)
{
  for (size_t k = p->first; k < p->first + p->count; k++)
    if (rank.owns[s->saved[k]->row]) return true;
  return false;
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

// ---- committing --------------------------------------------------------------------------------

static bool sync_directory(const struct save *s, struct failure *why)
{
  int fd = open(s->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed(why, "%s: cannot open: %s", s->directory, strerror(errno));
  return finish(fd, true, s->directory, why);
}

static bool give_name(const struct save *s, const char *from, const char *to, struct failure *why)
{
  char old[PATH_MAX], new[PATH_MAX];
  if (rename(path_of(s, from, old), path_of(s, to, new)) == 0) return true;
  return failed(why, "%s: cannot rename to %s: %s", old, new, strerror(errno));
}

static bool is_there(const struct save *s, const char *name)
{
  char path[PATH_MAX];
  struct stat about;
  return lstat(path_of(s, name, path), &about) == 0;
}

// Parts must not take the names of those that the last index still needs.
static void choose_turn(struct save *s)
{
  char name[NAME];
  bool taken = true;
  for (s->turn = 0; taken;) {
    s->turn++;
    taken = false;
    for (size_t i = 0; i < s->nparts && !taken; i++) {
      final_name(s, i, name);
      taken = is_there(s, name);
    }
  }
}

static json_t *make_index(const struct save *s)
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
  if (json_object_size(map) == s->count)
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map",
                     map);
  json_decref(map);
  return NULL;
}

static bool write_index(const struct save *s, const char *name, struct failure *why)
{
  char path[PATH_MAX];
  json_t *index = make_index(s);
  char *text = index ? json_dumps(index, JSON_INDENT(2)) : NULL;
  json_decref(index);
  if (!text) return failed(why, "%s: out of memory for its index", s->directory);
  int fd = create_new(path_of(s, name, path), why);
  bool ok = fd >= 0;
  if (ok) ok = finish(fd, write_whole(fd, path, text, strlen(text), why), path, why);
  free(text);
  return ok;
}

// The names of all parts that any save may have left, and of this one's own.
static bool compile_patterns(const struct save *s, regex_t *any, regex_t *own)
{
  char own_pattern[NAME], turn[16] = "";
  if (s->turn > 1) snprintf(turn, sizeof turn, "%d-", s->turn);
  snprintf(own_pattern, sizeof own_pattern, "^model-%s[0-9]{5,}-of-%05zu\\.safetensors$", turn,
           s->nparts);
  if (regcomp(any, "^\\.?model-([0-9]+-)?[0-9]{5,}-of-[0-9]{5,}\\.safetensors(\\.tmp)?$",
              REG_EXTENDED | REG_NOSUB) != 0)
    return false;
  if (regcomp(own, own_pattern, REG_EXTENDED | REG_NOSUB) == 0) return true;
  regfree(any);
  return false;
}

// Removes what nothing leads to any more. Where it cannot be removed it does no harm.
static void remove_old(const struct save *s)
{
  char path[PATH_MAX];
  regex_t any, own;
  if (s->nparts == 1) unlink(path_of(s, INDEX, path));
  if (!compile_patterns(s, &any, &own)) return;
  DIR *directory = opendir(s->directory);
  for (struct dirent *d; directory && (d = readdir(directory));) {
    bool part = strlen(d->d_name) < NAME && regexec(&any, d->d_name, 0, NULL, 0) == 0;
    bool needed = s->nparts > 1 && regexec(&own, d->d_name, 0, NULL, 0) == 0;
    if (part && !needed) unlink(path_of(s, d->d_name, path));
  }
  if (directory) closedir(directory);
  regfree(&any);
  regfree(&own);
}

static bool commit_single(struct save *s, struct failure *why)
{
  char name[NAME];
  new_name(s, 0, name);
  return give_name(s, name, single_name(s), why) && sync_directory(s, why);
}

// The index counts from when it has its name, or, where a single file was there, from when that is
// gone.
static bool commit_parts(struct save *s, struct failure *why)
{
  char from[NAME], to[NAME], path[PATH_MAX];
  choose_turn(s);
  for (size_t i = 0; i < s->nparts; i++) {
    new_name(s, i, from);
    final_name(s, i, to);
    if (!give_name(s, from, to, why)) return false;
    s->named++;
  }
  if (!write_index(s, NEW_INDEX, why) || !sync_directory(s, why)) return false;
  s->committed = true;
  if (!give_name(s, NEW_INDEX, INDEX, why) || !sync_directory(s, why)) return false;
  if (unlink(path_of(s, SINGLE, path)) == 0) return sync_directory(s, why);
  return errno == ENOENT || failed(why, "%s: cannot remove: %s", path, strerror(errno));
}

bool save_commit(struct save *s, struct failure *why)
{
  bool ok = s->nparts > 1 ? commit_parts(s, why) : commit_single(s, why);
  if (ok && single_name(s) == SINGLE) remove_old(s);
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
    unlink(path_of(s, name, path));
  }
  if (s->nparts > 1) unlink(path_of(s, NEW_INDEX, path));
}
