// SPDX-License-Identifier: MIT
#include "checkpoint/keep_checkpoints.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint/save_folder.h"

static const char *path_in(const char *folder, const char *name, char to[PATH_MAX])
{
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) to[0] = 0; // no such file exists
  return to;
}

static bool is_of_checkpoint(const char *name)
{
  return strcmp(name, SINGLE) == 0 || strcmp(name, INDEX) == 0 || folder_names_part(name);
}

// Whether the folder, if it exists, holds nothing but a kept checkpoint.
static bool is_ours(const char *path, struct failure *why)
{
  struct failure reason;
  bool ours = true;
  DIR *directory = opendir(path);
  if (!directory && errno == ENOENT) return true;
  if (!directory) return failed(why, "%s: cannot open: %s", path, strerror(errno));
  for (struct dirent *d; ours && (d = readdir(directory));)
    ours = strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
           (is_of_checkpoint(d->d_name) && folder_wrote(path, d->d_name, &reason)) ||
           failed(why, "%s: no checkpoint is kept in its place: it holds %s", path, d->d_name);
  closedir(directory);
  return ours;
}

bool keep_is_free(const char *folder, const char *name, struct failure *why)
{
  char path[PATH_MAX];
  return is_ours(path_in(folder, name, path), why);
}

// Removes a kept checkpoint: its own files only, then the folder.
static bool remove_kept(const char *path, struct failure *why)
{
  char file[PATH_MAX];
  struct failure reason;
  DIR *directory = opendir(path);
  if (!directory && errno == ENOENT) return true;
  for (struct dirent *d; directory && (d = readdir(directory));)
    if (is_of_checkpoint(d->d_name) && folder_wrote(path, d->d_name, &reason))
      unlink(path_in(path, d->d_name, file));
  if (directory) closedir(directory);
  return rmdir(path) == 0 || failed(why, "%s: cannot remove: %s", path, strerror(errno));
}

// Links the files of a save into the new folder.
static bool link_files(const char *folder, const char *to, struct failure *why)
{
  char old[PATH_MAX], new[PATH_MAX];
  struct failure reason;
  bool ok = true;
  DIR *directory = opendir(folder);
  if (!directory) return failed(why, "%s: cannot open: %s", folder, strerror(errno));
  for (struct dirent *d; ok && (d = readdir(directory));) {
    if (!is_of_checkpoint(d->d_name) || !folder_wrote(folder, d->d_name, &reason)) continue;
    ok = link(path_in(folder, d->d_name, old), path_in(to, d->d_name, new)) == 0 ||
         failed(why, "%s: cannot be kept as %s: %s", old, new, strerror(errno));
  }
  closedir(directory);
  return ok;
}

// ".NAME.old" or ".NAME.new" in the folder.
static const char *hidden_path(const char *folder, const char *name, const char *end,
                               char to[PATH_MAX])
{
  char hidden[KEPT_NAME + 8];
  snprintf(hidden, sizeof hidden, ".%s.%s", name, end);
  return path_in(folder, hidden, to);
}

// Renames a kept checkpoint, if there is one: a job that is killed while its files are removed
// leaves no folder that looks like a whole checkpoint.
static bool hide_kept(const char *path, const char *old, struct failure *why)
{
  return rename(path, old) == 0 || errno == ENOENT ||
         failed(why, "%s: cannot rename to %s: %s", path, old, strerror(errno));
}

// Renames the old checkpoint, gives its name to the new one, then removes the old one. If the job
// is killed in between, one of the two exists, perhaps under a name that begins with a dot.
bool keep_checkpoint(const char *folder, const char *name, struct failure *why)
{
  char new[PATH_MAX], old[PATH_MAX], path[PATH_MAX];
  hidden_path(folder, name, "new", new);
  hidden_path(folder, name, "old", old);
  path_in(folder, name, path);
  if (!is_ours(path, why) || !remove_kept(new, why) || !remove_kept(old, why)) return false;
  if (mkdir(new, 0777) != 0)
    return failed(why, "%s: cannot make the directory: %s", new, strerror(errno));
  if (!link_files(folder, new, why) || !hide_kept(path, old, why)) return false;
  if (rename(new, path) != 0)
    return failed(why, "%s: cannot rename to %s: %s", new, path, strerror(errno));
  return remove_kept(old, why);
}

const char *keep_name(int step, char to[KEPT_NAME])
{
  snprintf(to, KEPT_NAME, "step-%08d", step);
  return to;
}

static bool is_kept_name(const char *name)
{
  if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13) return false;
  for (name += 5; *name; name++)
    if (!isdigit((unsigned char)*name)) return false;
  return true;
}

// The number of kept checkpoints by step, and the least name after `least`: names sort like steps.
static int count_kept(const char *folder, char least[KEPT_NAME])
{
  int count = 0;
  DIR *directory = opendir(folder);
  least[0] = 0;
  for (struct dirent *d; directory && (d = readdir(directory));) {
    if (!is_kept_name(d->d_name) || strlen(d->d_name) >= KEPT_NAME) continue;
    count++;
    if (!least[0] || strcmp(d->d_name, least) < 0) snprintf(least, KEPT_NAME, "%.23s", d->d_name);
  }
  if (directory) closedir(directory);
  return count;
}

// Removes the remains of those that a killed job was removing.
static void remove_hidden(const char *folder)
{
  char name[KEPT_NAME], path[PATH_MAX];
  struct failure reason;
  DIR *directory = opendir(folder);
  for (struct dirent *d; directory && (d = readdir(directory));) {
    const size_t count = strlen(d->d_name);
    if (count < 6 || count - 5 >= sizeof name || strcmp(d->d_name + count - 4, ".old") != 0)
      continue;
    snprintf(name, count - 4, "%s", d->d_name + 1);
    if (d->d_name[0] == '.' && is_kept_name(name))
      remove_kept(path_in(folder, d->d_name, path), &reason);
  }
  if (directory) closedir(directory);
}

bool keep_last(const char *folder, int count, struct failure *why)
{
  char least[KEPT_NAME], path[PATH_MAX], old[PATH_MAX];
  remove_hidden(folder);
  while (count_kept(folder, least) > count) {
    path_in(folder, least, path);
    hidden_path(folder, least, "old", old);
    if (!is_ours(path, why) || !hide_kept(path, old, why) || !remove_kept(old, why)) return false;
  }
  return true;
}
