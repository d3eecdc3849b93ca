/* write.c: puts the files of out/ on the disk.

   Every file's text is complete before the first is written. A file is written beside its place and
   renamed into it, and only where its contents changed; files of an earlier generation that this
   one no longer has (a rank, a class) are taken away. With --check nothing is written. */
#include "tpgen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file {
  const char *name, *contents;
  size_t size;
  bool executable;
  char *beside; /* where its new text waits, or NULL */
};

static struct file *file;
static int nfile, file_room;

const char *embedded_text(const char *name)
{
  for (const struct embedded *e = embedded; e->name; e++)
    if (!strcmp(e->name, name)) return (const char *)e->text;
  bug("emit", NONE, "no embedded file is called %s", name);
}

void add_file(const char *name, const char *contents, size_t size, bool executable)
{
  GROW(file, nfile, file_room);
  file[nfile++] = (struct file){name, contents, size, executable, NULL};
}

static char *path_of(const char *name)
{
  return text("%s/%s", options.out, name);
}

static bool is_current(const struct file *f)
{
  int fd = open(path_of(f->name), O_RDONLY | O_CLOEXEC);
  struct stat s;
  bool same = fd >= 0 && !fstat(fd, &s) && (size_t)s.st_size == f->size;
  if (same) {
    char *there = alloc(f->size + 1);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n<f->size; n += got> 0 ? (size_t)got : 0)
      got = read(fd, there + n, f->size - n);
    same = n == f->size && !memcmp(there, f->contents, f->size) &&
           !!(s.st_mode & S_IXUSR) == f->executable;
  }
  if (fd >= 0) close(fd);
  return same;
}

/* Nothing half-written is left behind. */
static _Noreturn void failed(const char *what, const char *path)
{
  int error = errno;
  for (int i = 0; i < nfile; i++)
    if (file[i].beside) unlink(file[i].beside);
  usage_error(3, "cannot %s %s: %s", what, path, strerror(error));
}

static void make_directory(const char *path)
{
  if (mkdir(path, 0777) && errno != EEXIST) failed("make the directory", path);
}

/* Writes the whole of a file beside its place. */
static void write_beside(struct file *f)
{
  char *beside = path_of(text("%s.tpgen-new", f->name));
  int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, f->executable ? 0777 : 0666);
  if (fd < 0) failed("write", beside);
  f->beside = beside;
  size_t n = 0;
  while (n < f->size) {
    ssize_t put = write(fd, f->contents + n, f->size - n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) failed("write", beside);
    n += (size_t)put;
  }
  if (close(fd)) failed("write", beside);
}

/* Whether a name in out/ is one that tpgen gives: rank12.c, step_1.cu and the like. */
static bool is_ours(const char *name)
{
  static const char *const stem[] = {"rank", "step_", "step", "kernels"};
  static const char *const suffix[] = {".c", ".cu", ".h"};
  for (size_t i = 0; i < sizeof stem / sizeof *stem; i++) {
    if (strncmp(name, stem[i], strlen(stem[i]))) continue;
    const char *rest = name + strlen(stem[i]);
    rest += strspn(rest, "0123456789");
    for (size_t k = 0; k < sizeof suffix / sizeof *suffix; k++)
      if (!strcmp(rest, suffix[k])) return true;
  }
  return false;
}

static bool is_written(const char *name)
{
  for (int i = 0; i < nfile; i++)
    if (!strcmp(file[i].name, name)) return true;
  return false;
}

static void remove_stale(void)
{
  DIR *d = opendir(options.out);
  if (!d) failed("read the directory", options.out);
  for (struct dirent *e; (e = readdir(d));)
    if (is_ours(e->d_name) && !is_written(e->d_name) && unlink(path_of(e->d_name)))
      failed("remove", path_of(e->d_name));
  closedir(d);
}

static void check_files(void)
{
  for (int i = 0; i < nfile; i++)
    if (!is_current(&file[i])) {
      fprintf(stderr, "%s: error: %s is not what this plan gives: generate it again\n", graph->path,
              path_of(file[i].name));
      exit(1);
    }
}

void write_files(void)
{
  if (options.check) {
    check_files();
    return;
  }
  make_directory(options.out);
  make_directory(path_of("runtime"));
  for (int i = 0; i < nfile; i++)
    if (!is_current(&file[i])) write_beside(&file[i]);
  for (int i = 0; i < nfile; i++) {
    if (!file[i].beside) continue;
    if (rename(file[i].beside, path_of(file[i].name)))
      failed("put in place", path_of(file[i].name));
    file[i].beside = NULL;
  }
  remove_stale();
}
