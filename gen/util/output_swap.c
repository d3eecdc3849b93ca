/* output_swap.c: replaces the files of a program by those of another: all of them, or none.

   The folder itself stays: it may be mounted or linked to, a job may run in it, and files of others
   in it are not touched. New files are first written to .tpgen-new within it. If they replace
   anything they are synced before the next step. Then run.sh and CMakeLists.txt, without which
   nothing is built or run, are renamed away. Then the other files that change or go are renamed
   away, and the new ones renamed to their places; CMakeLists.txt and run.sh come last. Each step is
   a rename, which can be undone: if one fails, all is as before. A tpgen that is killed in between
   leaves a folder without run.sh. The next tpgen repairs it.

   One tpgen at a time works on the folder: it holds a lock on it. On a file system without locks,
   .tpgen-new is the lock. */
#include "util/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define NEW                                                                                        \
  ".tpgen-new" /* new/, old/, and the lists of files of before and of the time                     \
                  between */

/* A folder, and those below it that were asked for: all are open. */
struct tree {
  int top; /* or -1 */
  struct subfolder {
    const char *path; /* "runtime/cpu/" */
    int fd;
    bool is_new;
  } * below;
  int nbelow, room;
};
static struct tree out = {.top = -1}, new = {.top = -1}, old = {.top = -1};
static int waiting = -1; /* NEW, open */
static bool is_locked, had_program, replaces;

/* The folders that were created, and are removed if tpgen fails. */
static const char **made;
static int nmade, made_room;
static bool made_waiting;

/* The renames, in order. */
struct moved {
  struct tree *from, *to;
  const char *name;
};
static struct moved *moved;
static int nmoved;
static const struct lists *list_moved;

static _Noreturn void failed(const char *what, const char *name)
{
  usage_error(3, "cannot %s %s%s%s: %s", what, options.out, name ? "/" : "", name ? name : "",
              strerror(errno));
}

static int open_folder(int at, const char *name, int flags)
{
  return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
}

/* The folder of the file of that path, open; *last: the file's own name. Links are not followed. A
   folder that does not exist is made, or with `make` false the result is -1. */
static int folder_of(struct tree *t, const char *path, const char **last, bool make)
{
  const char *slash = strrchr(path, '/');
  *last = slash ? slash + 1 : path;
  if (!slash) return t->top;
  size_t n = (size_t)(*last - path);
  for (int i = 0; i < t->nbelow; i++)
    if (!strncmp(t->below[i].path, path, n) && !t->below[i].path[n]) return t->below[i].fd;
  const char *name, *own = text("%.*s", (int)n - 1, path);
  int above = folder_of(t, own, &name, make);
  if (above < 0) return -1;
  int fd = open_folder(above, name, O_NOFOLLOW);
  bool is_new = fd < 0 && errno == ENOENT;
  if (is_new && !make) return -1;
  if (is_new && !mkdirat(above, name, 0777)) fd = open_folder(above, name, O_NOFOLLOW);
  if (fd < 0) failed("open the folder", own);
  GROW(t->below, t->nbelow, t->room);
  t->below[t->nbelow++] = (struct subfolder){text("%s/", own), fd, is_new};
  return fd;
}

/* ----------------------------------------------------------------------------------- the folder */

/* Makes the folder and those above it. */
static bool make_folder(const char *path)
{
  bool is_new = !mkdir(path, 0777);
  if (!is_new && errno == ENOENT) {
    size_t n = strlen(path);
    while (n && path[n - 1] == '/') n--;
    while (n && path[n - 1] != '/') n--;
    if (n && make_folder(text("%.*s", (int)n - 1, path))) is_new = !mkdir(path, 0777);
  }
  if (is_new) {
    GROW(made, nmade, made_room);
    made[nmade++] = path;
  }
  return is_new || errno == EEXIST;
}

static void lock(void)
{
  enum { SECONDS = 10, A_SECOND = 100 };
  const struct timespec pause = {.tv_nsec = 1000000000 / A_SECOND};
  for (int i = 0; flock(out.top, LOCK_EX | LOCK_NB); i++) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (i == SECONDS * A_SECOND)
      usage_error(3, "%s is locked, by another tpgen perhaps, for %d s", options.out, SECONDS);
    nanosleep(&pause, NULL);
  }
  is_locked = true;
}

static bool holds_program(int folder)
{
  return !faccessat(folder, "run.sh", F_OK, 0) && !faccessat(folder, FILE_LIST, F_OK, 0);
}

bool open_output(bool make)
{
  enum { TRIES = 100 };
  for (int i = 0; i < TRIES; i++) {
    out.top = open_folder(AT_FDCWD, options.out, 0);
    if (out.top < 0 && !make) return false;
    if (out.top < 0 && errno == ENOENT && !make_folder(options.out))
      failed("make the directory", NULL);
    if (out.top < 0) out.top = open_folder(AT_FDCWD, options.out, 0);
    if (out.top < 0 && errno == ENOENT) continue;
    if (out.top < 0) failed("make the directory", NULL);
    if (make) lock();
    if (!make) break;
    /* Another tpgen that fails removes the folder that it created. */
    struct stat mine, there;
    if (fstat(out.top, &mine)) failed("look at", NULL);
    if (!stat(options.out, &there) && mine.st_dev == there.st_dev && mine.st_ino == there.st_ino)
      break;
    close(out.top);
    out.top = -1;
  }
  if (out.top < 0) failed("make the directory", NULL);
  had_program = holds_program(out.top);
  return true;
}

bool look_at_output(const char *name, struct stat *about)
{
  const char *last;
  int folder = folder_of(&out, name, &last, false);
  if (folder < 0) return false;
  if (!fstatat(folder, last, about, AT_SYMLINK_NOFOLLOW)) return true;
  if (errno != ENOENT) failed("look at", name);
  return false;
}

int open_in_output(const char *name)
{
  const char *last;
  int folder = folder_of(&out, name, &last, false);
  return openat(folder, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Removes what an earlier, killed tpgen left, or this one. */
static bool remove_tree(int at, const char *name, int depth)
{
  if (!unlinkat(at, name, 0) || errno == ENOENT) return true;
  int fd = errno == EISDIR && depth ? open_folder(at, name, O_NOFOLLOW) : -1;
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    if (fd >= 0) close(fd);
    return false;
  }
  bool well = true;
  struct dirent *e;
  errno = 0;
  while (well && (e = readdir(d))) {
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
      well = remove_tree(fd, e->d_name, depth - 1);
    }
    if (well) errno = 0;
  }
  int error = errno; /* readdir's errors, too */
  closedir(d);
  errno = error;
  return !error && !unlinkat(at, name, AT_REMOVEDIR);
}

bool is_half_done(void)
{
  struct stat about;
  return !fstatat(out.top, NEW, &about, AT_SYMLINK_NOFOLLOW);
}

static bool remove_waiting(void)
{
  enum { DEPTH = 8 };
  return remove_tree(out.top, NEW, DEPTH);
}

/* ------------------------------------------------------------------------------- writing beside */

static void sync_file(int fd, const char *name)
{
  if (!replaces) return;
  while (fsync(fd)) {
    if (errno == EINVAL || errno == ENOTSUP) return; /* of folders, in some file systems */
    if (errno != EINTR) failed("write", name);
  }
}

static void write_file(int folder, const char *last, const struct file *f)
{
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int fd = openat(folder, last, flags, f->executable ? 0777 : 0666);
  if (fd < 0) failed("write", f->name);
  size_t n = 0;
  while (n < f->size) {
    ssize_t put = write(fd, f->contents + n, f->size - n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) failed("write", f->name);
    n += (size_t)put;
  }
  /* starts the write; see sync_all */
  if (replaces) sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
  if (close(fd) && errno != EINTR) failed("write", f->name);
}

static void sync_written(int folder, const char *last)
{
  int fd = openat(folder, last, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) failed("open again", last);
  sync_file(fd, last);
  close(fd);
}

static int make_in(int at, const char *name)
{
  int fd = mkdirat(at, name, 0777) ? -1 : open_folder(at, name, O_NOFOLLOW);
  if (fd < 0) failed("make in", NEW);
  return fd;
}

/* -------------------------------------------------------------------------------- putting there */

static bool rename_to(struct tree *from, struct tree *to, const char *name)
{
  const char *last;
  int a = folder_of(from, name, &last, true), b = folder_of(to, name, &last, true);
  int error;
  do error = renameat(a, last, b, last);
  while (error && errno == EINTR);
  return !error;
}

static void output_swap_bring(struct tree *from, struct tree *to, const char *name)
{
  if (!rename_to(from, to, name)) failed("put in place", name);
  moved[nmoved++] = (struct moved){from, to, name};
}

static bool put_list(const char *from)
{
  int error;
  do error = renameat(waiting, from, out.top, FILE_LIST);
  while (error && errno == EINTR);
  return !error;
}

/* Those that do not change are renamed away, too, and come back. */
static void exchange_all(const struct change *change, int n, const struct lists *lists)
{
  static const char *const gate[] = {"CMakeLists.txt", "run.sh"};
  enum { GATES = sizeof gate / sizeof *gate };
  bool goes_out[GATES];
  struct stat about;
  if (!put_list("meanwhile")) failed("put in place", FILE_LIST);
  list_moved = lists;
  for (int i = GATES; i-- > 0;) {
    goes_out[i] = n > 0 && look_at_output(gate[i], &about);
    if (goes_out[i]) output_swap_bring(&out, &old, gate[i]);
  }
  for (int i = 0; i < n; i++) {
    const struct change *c = &change[i];
    if (!strcmp(c->name, gate[0]) || !strcmp(c->name, gate[1])) continue;
    if (c->is_there) output_swap_bring(&out, &old, c->name);
    if (c->to) output_swap_bring(&new, &out, c->name);
  }
  for (int i = 0; i < GATES; i++) {
    const char *name = gate[i];
    const struct change *c = NULL;
    for (int k = 0; k < n && !c; k++)
      if (!strcmp(change[k].name, name)) c = &change[k];
    if (c && c->to) output_swap_bring(&new, &out, gate[i]);
    if (!c && goes_out[i]) output_swap_bring(&old, &out, gate[i]);
  }
  if (!put_list("then")) failed("put in place", FILE_LIST);
  sync_file(out.top, ".");
  for (int i = 0; i < out.nbelow; i++) sync_file(out.below[i].fd, out.below[i].path);
}

/* Undoes all renames; false if one fails. run.sh exists only if the program is complete. A build in
   the meantime may have compiled files of the other program: files that come back are touched, so
   that they are compiled again. */
static bool take_back(void)
{
  for (; nmoved; nmoved--) {
    const struct moved *m = &moved[nmoved - 1];
    if (!rename_to(m->to, m->from, m->name)) return false;
    const char *last;
    int folder = folder_of(m->from, m->name, &last, true);
    if (m->from == &out) utimensat(folder, last, NULL, AT_SYMLINK_NOFOLLOW);
  }
  const struct lists *lists = list_moved;
  list_moved = NULL;
  if (!lists) return true;
  return lists->before ? put_list("before") : !unlinkat(out.top, FILE_LIST, 0);
}

/* Removes folders below that have no file any more; with `added` only those that are new. */
static void remove_empty(bool added)
{
  for (int i = out.nbelow; i-- > 0;) /* what is in a folder was opened after it */
    if (!added || out.below[i].is_new) unlinkat(out.top, out.below[i].path, AT_REMOVEDIR);
}

void put_in_place(const struct change *change, int n, const struct lists *lists)
{
  moved = alloc((size_t)(2 * n + 4) * sizeof *moved); /* and run.sh and CMakeLists.txt, twice */
  replaces = lists->before || had_program;
  for (int i = 0; i < n; i++) replaces = replaces || change[i].is_there;
  if (is_locked && !remove_waiting()) failed("remove", NEW);
  if (mkdirat(out.top, NEW, 0777)) {
    if (errno != EEXIST) failed("write to", NULL);
    usage_error(3, "%s/%s exists: another tpgen is at work, or was killed: then remove it",
                options.out, NEW);
  }
  made_waiting = true;
  waiting = open_folder(out.top, NEW, O_NOFOLLOW);
  if (waiting < 0) failed("open", NEW);
  new.top = make_in(waiting, "new");
  old.top = make_in(waiting, "old");
  for (int i = 0; i < n; i++) {
    const char *last;
    if (!change[i].to) continue;
    int folder = folder_of(&new, change[i].name, &last, true);
    write_file(folder, last, change[i].to);
    folder_of(&out, change[i].name, &last, true);
  }
  if (lists->before) write_file(waiting, "before", lists->before);
  write_file(waiting, "meanwhile", lists->meanwhile);
  write_file(waiting, "then", lists->then);
  if (replaces) {
    /* Writing has begun for all files, so syncing them one by one takes little longer than the
       first. */
    for (int i = 0; i < n; i++) {
      const char *last;
      int folder = folder_of(&new, change[i].name, &last, true);
      if (change[i].to) sync_written(folder, last);
    }
    sync_written(waiting, "meanwhile");
    sync_written(waiting, "then");
    sync_file(waiting, NEW);
  }

  /* A signal that asks tpgen to stop waits for some milliseconds. */
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  exchange_all(change, n, lists);
  nmoved = nmade = 0;
  list_moved = NULL;
  made_waiting = false;
  remove_empty(false);
  if (!remove_waiting())
    say("tpgen: %s is written, but %s in it cannot be removed: %s", options.out, NEW,
        strerror(errno));
  sigprocmask(SIG_SETMASK, &before, NULL);
}

bool output_holds_program(void)
{
  const int top = open_folder(AT_FDCWD, options.out, 0);
  const bool holds = top >= 0 && holds_program(top);
  if (top >= 0) close(top);
  return holds;
}

void keep_output(void)
{
  if (!options.out || options.check) return;
  bool is_whole = take_back();
  if (is_whole && made_waiting) remove_waiting();
  if (is_whole) remove_empty(true);
  while (is_whole && nmade) rmdir(made[--nmade]);
  if (out.top < 0) had_program = output_holds_program();
  if (!is_whole && faccessat(out.top, "run.sh", F_OK, 0))
    say("tpgen: %s is half written and cannot be run: generate it again", options.out);
  else if (is_whole && had_program)
    say("tpgen: %s still holds the program of before", options.out);
}
