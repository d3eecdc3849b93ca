// Saves the program's tensors: written beside, synced, renamed, so that a file is whole or old.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "program.h"
#include "safetensors.h"
#include "table.h"
#include "target.h"
#include "tensors.h"

// What the file will hold. `tensors` says which tensor of the table each entry is.
struct layout {
  struct entry *entries;
  int *tensors;
  size_t count;
  char *head;
  size_t length; // of head: the data begins there
};

struct paths {
  char new[PATH_MAX], final[PATH_MAX];
};

static bool name_paths(struct paths *paths, const char *directory, struct failure *why)
{
  const char *file = program.loss < 0 ? "outputs.safetensors" : "model.safetensors";
  int new = snprintf(paths->new, sizeof paths->new, "%s/.%s.tmp", directory, file);
  int final = snprintf(paths->final, sizeof paths->final, "%s/%s", directory, file);
  if (new < (int)sizeof paths->new &&final < (int)sizeof paths->final) return true;
  return failed(why, "%s: the path is too long", directory);
}

static bool is_saved(const struct tensor *t)
{
  return program.loss < 0 ? t->role == OUTPUT : t->role == PARAMETER || t->role == STATE;
}

static void free_layout(struct layout *layout)
{
  free(layout->entries);
  free(layout->tensors);
  free(layout->head);
  *layout = (struct layout){0};
}

static bool make_layout(struct layout *layout, int step, struct failure *why)
{
  char step_text[16];
  snprintf(step_text, sizeof step_text, "%d", step);
  const char *const metadata[][2] = {
      {"format", "pt"}, {"plan_hash", program.hash}, {"step", step_text}};

  size_t most = (size_t)program.ntensors + 1;
  *layout = (struct layout){.entries = calloc(most, sizeof *layout->entries),
                            .tensors = calloc(most, sizeof *layout->tensors)};
  if (!layout->entries || !layout->tensors) {
    free_layout(layout);
    return failed(why, "out of memory for saving");
  }
  for (int i = 0; i < program.ntensors; i++) {
    const struct tensor *t = &program.tensors[i];
    if (!is_saved(t)) continue;
    layout->tensors[layout->count] = i;
    layout->entries[layout->count++] = (struct entry){.name = t->name.name,
                                                      .dtype = table_type(t->type).name,
                                                      .ndim = (size_t)t->ndim,
                                                      .shape = t->of};
  }
  bool ok =
      safetensors_layout(layout->entries, layout->count, metadata,
                         sizeof metadata / sizeof *metadata, &layout->head, &layout->length, why);
  if (!ok) free_layout(layout);
  return ok;
}

static uint64_t file_size(const struct layout *layout)
{
  uint64_t data = 0;
  for (size_t i = 0; i < layout->count; i++)
    if (layout->entries[i].end > data) data = layout->entries[i].end;
  return layout->length + data;
}

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

static bool create(const char *path, const struct layout *layout, struct failure *why)
{
  unlink(path); // what an earlier job left when it was killed
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return failed(why, "%s: cannot create: %s", path, strerror(errno));
  struct slice head = {.ndim = 1,
                       .of = (long[]){(long)layout->length},
                       .here = (long[]){(long)layout->length},
                       .first = (long[]){0}};
  int error = posix_fallocate(fd, 0, (off_t)file_size(layout));
  bool ok = error == 0 || failed(why, "%s: no room for %llu bytes: %s", path,
                                 (unsigned long long)file_size(layout), strerror(error));
  ok = ok && safetensors_write(fd, path, 0, 1, &head, 0, layout->length, layout->head, why);
  return finish(fd, ok, path, why);
}

bool save_begin(const char *directory, int step, struct failure *why)
{
  struct paths paths;
  struct layout layout;
  if (!name_paths(&paths, directory, why) || !save_directory(directory, why) ||
      !make_layout(&layout, step, why))
    return false;
  bool ok = create(paths.new, &layout, why);
  free_layout(&layout);
  return ok;
}

static bool write_tensor(int fd, const char *path, uint64_t at, int index, void *stage,
                         struct failure *why)
{
  const struct tensor *t = &program.tensors[index];
  struct slice slice = table_slice(index);
  size_t size = table_type(t->type).bytes, elements = slice_elements(&slice);
  const char *memory = (const char *)*program.memory + t->offset;
  for (size_t from = 0; from < elements;) {
    size_t count = STAGED_BYTES / size;
    if (count > elements - from) count = elements - from;
    target_get(stage, memory + from * size, count * size);
    if (!safetensors_write(fd, path, at, size, &slice, from, count, stage, why)) return false;
    from += count;
  }
  return true;
}

static bool write_shards(int fd, const char *path, const struct layout *layout, struct failure *why)
{
  void *stage = malloc(STAGED_BYTES);
  if (!stage) return failed(why, "out of memory for saving");
  bool ok = true;
  for (size_t i = 0; ok && i < layout->count; i++) {
    uint64_t at = layout->length + layout->entries[i].begin;
    int index = layout->tensors[i];
    if (rank.owns[index]) ok = write_tensor(fd, path, at, index, stage, why);
  }
  free(stage);
  return ok;
}

bool save_write(const char *directory, int step, struct failure *why)
{
  struct paths paths;
  struct layout layout;
  if (!name_paths(&paths, directory, why) || !make_layout(&layout, step, why)) return false;
  int fd = open(paths.new, O_WRONLY | O_CLOEXEC);
  bool ok = fd >= 0;
  if (!ok)
    failed(why, "%s: cannot open what rank 0 made (do all ranks see this directory?): %s",
           paths.new, strerror(errno));
  else
    ok = finish(fd, write_shards(fd, paths.new, &layout, why), paths.new, why);
  free_layout(&layout);
  return ok;
}

static bool sync_directory(const char *directory, struct failure *why)
{
  int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return failed(why, "%s: cannot open: %s", directory, strerror(errno));
  return finish(fd, true, directory, why);
}

bool save_commit(const char *directory, struct failure *why)
{
  struct paths paths;
  if (!name_paths(&paths, directory, why)) return false;
  if (rename(paths.new, paths.final) != 0)
    return failed(why, "%s: cannot rename to %s: %s", paths.new, paths.final, strerror(errno));
  return sync_directory(directory, why);
}

void save_abandon(const char *directory)
{
  struct paths paths;
  struct failure ignored;
  if (name_paths(&paths, directory, &ignored)) unlink(paths.new);
}
