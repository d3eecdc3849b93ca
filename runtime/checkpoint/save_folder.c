// SPDX-License-Identifier: MIT
#include "checkpoint/save_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/json_memory.h"
#include "base/program.h"
#include "formats/safetensors.h"

static const char LOCK[] = ".tpgen.lock";

static const char *path_in(const char *folder, const char *name, char to[PATH_MAX])
{
  to[0] = 0;
  if (snprintf(to, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) to[0] = 0; // no such file exists
  return to;
}

// ---- names -------------------------------------------------------------------------------------

static void host_name(char to[64])
{
  if (gethostname(to, 64) != 0) to[0] = 0;
  to[63] = 0;
  for (char *c = to; *c; c++)
    if (!isalnum((unsigned char)*c) && *c != '-' && *c != '.') *c = '_';
  if (!*to) strcpy(to, "unknown");
}

void folder_token(char token[TOKEN])
{
  char host[64];
  uint64_t number = 0;
  host_name(host);
  if (getrandom(&number, sizeof number, 0) != sizeof number) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    number = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
  }
  snprintf(token, TOKEN, "%.40s-%ld-%016llx", host, (long)getpid(), (unsigned long long)number);
}

// The text after its leading digits, or NULL if they are fewer than `least`.
static const char *behind_digits(const char *text, int least)
{
  int n = 0;
  while (text && isdigit((unsigned char)text[n])) n++;
  return n >= least && n > 0 ? text + n : NULL;
}

// model-00001-of-00002.safetensors, model-2-00001-of-00002.safetensors
bool folder_names_part(const char *name)
{
  const char *first = strncmp(name, "model-", 6) == 0 ? name + 6 : NULL;
  const char *end = behind_digits(first, 1);
  if (end && end[0] == '-' && isdigit((unsigned char)end[1])) first = end + 1;
  end = behind_digits(first, 5);
  if (!end || strncmp(end, "-of-", 4) != 0) return false;
  end = behind_digits(end + 4, 5);
  return end && strcmp(end, ".safetensors") == 0;
}

// .model.safetensors.TOKEN.tmp and the like: a job's files before the commit.
static bool names_unfinished(const char *name)
{
  size_t length = strlen(name);
  return (strncmp(name, ".model.safetensors.", 19) == 0 ||
          (strncmp(name, ".model-", 7) == 0 && isdigit((unsigned char)name[7]) &&
           strstr(name, ".safetensors.")) ||
          strncmp(name, ".outputs.safetensors.", 21) == 0) &&
         strcmp(name + length - 4, ".tmp") == 0;
}

static void remove_unfinished(const char *folder)
{
  char path[PATH_MAX];
  DIR *directory = opendir(folder);
  for (struct dirent *d; directory && (d = readdir(directory));)
    if (names_unfinished(d->d_name)) unlink(path_in(folder, d->d_name, path));
  if (directory) closedir(directory);
}

// ---- the lock ----------------------------------------------------------------------------------

// The contents of the file: the holder of the folder, for people to read, and its token.
struct holder {
  char who[200];
  char token[TOKEN];
};

static bool read_holder(int fd, struct holder *holder)
{
  char text[sizeof holder->who + TOKEN + 2];
  *holder = (struct holder){0};
  ssize_t n = pread(fd, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = 0;
  return sscanf(text, "%199[^\n]\n%95[^\n]", holder->who, holder->token) == 2;
}

static bool write_holder(const struct folder *f, struct failure *why)
{
  char text[sizeof(struct holder) + 2], host[64], since[32];
  time_t now = time(NULL);
  struct tm parts;
  host_name(host);
  strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &parts));
  int size = snprintf(text, sizeof text, "process %ld on %s, since %s\n%s\n", (long)getpid(), host,
                      since, f->token);
  if (ftruncate(f->fd, 0) == 0 && pwrite(f->fd, text, (size_t)size, 0) == size) return true;
  return failed(why, "%s/%s: cannot write: %s", f->path, LOCK, strerror(errno));
}

// Without locks: whether a process of this machine has exited can be determined.
static bool seems_gone(const struct holder *holder)
{
  long pid;
  char its[64] = "", host[64];
  host_name(host);
  if (sscanf(holder->who, "process %ld on %63[^,],", &pid, its) != 2) return true;
  return strcmp(its, host) != 0 || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static bool refuse(const struct folder *f, const struct holder *holder, struct failure *why)
{
  return failed(why,
                "%s: another job saves here: %s. Wait for its end, or end it, or give this job a "
                "folder of its own",
                f->path, *holder->who ? holder->who : "its lock does not say which");
}

static bool has_no_locks(int error)
{
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

static bool is_at(const struct folder *f)
{
  char path[PATH_MAX];
  struct stat own, there;
  return fstat(f->fd, &own) == 0 && lstat(path_in(f->path, LOCK, path), &there) == 0 &&
         own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

// The holder writes its name into the file after it locks it, not at the same instant.
static void wait_for_holder(int fd, struct holder *holder)
{
  const struct timespec some = {.tv_nsec = 20000000};
  for (int i = 0; i < 10 && !read_holder(fd, holder); i++) nanosleep(&some, NULL);
}

static void close_lock(struct folder *f)
{
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
}

static bool open_lock(struct folder *f, struct failure *why)
{
  char path[PATH_MAX];
  struct stat about;
  path_in(f->path, LOCK, path);
  f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (f->fd < 0) return failed(why, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(f->fd, &about) == 0 && S_ISREG(about.st_mode)) return true;
  return failed(why, "%s: not a file", path);
}

// A job that releases the folder removes the file: checks that the locked file is the existing one.
static bool lock(struct folder *f, struct failure *note, struct failure *why)
{
  struct holder holder;
  for (;;) {
    if (!open_lock(f, why)) return false;
    if (flock(f->fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_at(f)) return true;
    } else if (errno == EWOULDBLOCK) {
      wait_for_holder(f->fd, &holder);
      return refuse(f, &holder, why);
    } else if (has_no_locks(errno)) {
      const char *reason = strerror(errno);
      bool is_known = read_holder(f->fd, &holder) && strcmp(holder.token, f->token) != 0;
      if (is_known && !seems_gone(&holder)) return refuse(f, &holder, why);
      failed(note, "%s: its file system has no locks (%s)%s%s%s", f->path, reason,
             is_known ? ": if there still is " : ": let no two jobs save there",
             is_known ? holder.who : "", is_known ? ", it ends when it saves" : "");
      return true;
    } else if (errno != EINTR) {
      return failed(why, "%s/%s: cannot lock: %s", f->path, LOCK, strerror(errno));
    }
    close_lock(f);
  }
}

static bool take(struct folder *f, struct failure *note, struct failure *why)
{
  note->text[0] = 0;
  if (lock(f, note, why) && write_holder(f, why)) return true;
  close_lock(f);
  return false;
}

bool folder_take(struct folder *f, const char *path, const char *token, struct failure *note,
                 struct failure *why)
{
  *f = (struct folder){.path = strdup(path), .fd = -1};
  if (!f->path) return failed(why, "out of memory");
  snprintf(f->token, sizeof f->token, "%s", token);
  if (!take(f, note, why)) return false;
  if (!note->text[0]) remove_unfinished(path); // else another job may need it
  return true;
}

bool folder_keep(struct folder *f, struct failure *why)
{
  char path[PATH_MAX];
  struct stat about;
  struct holder holder;
  struct failure note;
  if (f->fd >= 0 && is_at(f)) {
    if (read_holder(f->fd, &holder) && strcmp(holder.token, f->token) == 0) return true;
    return failed(why, "%s: another job has taken this folder: %s. This one saves nothing more",
                  f->path, holder.who);
  }
  close_lock(f);
  if (lstat(path_in(f->path, LOCK, path), &about) == 0)
    return failed(why, "%s: another job has taken this folder. This one saves nothing more",
                  f->path);
  return take(f, &note, why);
}

void folder_release(struct folder *f)
{
  char path[PATH_MAX];
  struct holder holder;
  if (f->path && f->fd >= 0 && is_at(f) && read_holder(f->fd, &holder) &&
      strcmp(holder.token, f->token) == 0)
    unlink(path_in(f->path, LOCK, path));
  close_lock(f);
  free(f->path);
  f->path = NULL;
}

// ---- others' files -----------------------------------------------------------------------------

static bool wrote_tensors(const char *path, struct failure *why)
{
  struct safetensors file;
  struct stat about;
  if (stat(path, &about) != 0) return failed(why, "%s: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) return failed(why, "%s: not a file", path);
  if (!safetensors_open(&file, path, why)) return false;
  bool ours = safetensors_metadata(&file, PLAN_HASH) != NULL ||
              safetensors_metadata(&file, WRITTEN_BY) != NULL;
  safetensors_close(&file);
  return ours ||
         failed(why, "%s: its metadata have neither %s nor %s", path, PLAN_HASH, WRITTEN_BY);
}

// An index says so itself; an index of a former version names only files that do.
static bool wrote_index(const char *folder, const char *path, struct failure *why)
{
  char part[PATH_MAX];
  const char *name;
  json_t *file;
  json_error_t error;
  struct stat about;
  if (stat(path, &about) != 0) return failed(why, "%s: %s", path, strerror(errno));
  if (!S_ISREG(about.st_mode)) return failed(why, "%s: not a file", path);
  json_t *index = json_load_file(path, 0, &error), *map = json_object_get(index, "weight_map");
  bool ours = json_object_get(json_object_get(index, "metadata"), WRITTEN_BY) != NULL;
  bool memory = !json_memory_ended(), names = json_object_size(map) > 0;
  if (!ours) failed(why, "%s: %s", path, names ? "it does not say so" : "not an index in JSON");
  if (!ours && names) {
    ours = true;
    json_object_foreach(map, name, file)
    {
      const char *text = json_string_value(file);
      ours = ours && text && !strchr(text, '/') && wrote_tensors(path_in(folder, text, part), why);
    }
  }
  json_decref(index);
  return memory ? ours : failed(why, "%s: out of memory for reading it", path);
}

bool folder_wrote(const char *folder, const char *name, struct failure *why)
{
  char path[PATH_MAX];
  path_in(folder, name, path);
  return strcmp(name, INDEX) == 0 ? wrote_index(folder, path, why) : wrote_tensors(path, why);
}

static bool is_replaced(const char *name, bool outputs)
{
  if (outputs) return strcmp(name, OUTPUTS) == 0;
  return strcmp(name, SINGLE) == 0 || strcmp(name, INDEX) == 0 || folder_names_part(name);
}

bool folder_refuses(const char *path, const char *name, const struct failure *reason,
                    struct failure *why)
{
  return failed(
      why,
      "%s: it holds %s, which no checkpoint or export of such a program wrote (%.300s), and "
      "which this job would replace: give it another folder, or move that file away",
      path, name, reason->text);
}

bool folder_is_ours(const char *path, bool outputs, struct failure *why)
{
  bool ours = true;
  struct failure reason;
  DIR *directory = opendir(path);
  if (!directory) return failed(why, "%s: cannot open: %s", path, strerror(errno));
  errno = 0;
  for (struct dirent *d; ours && (d = readdir(directory)); errno = 0)
    if (is_replaced(d->d_name, outputs) && !folder_wrote(path, d->d_name, &reason))
      ours = folder_refuses(path, d->d_name, &reason, why);
  if (ours && errno) ours = failed(why, "%s: cannot read: %s", path, strerror(errno));
  closedir(directory);
  return ours;
}
