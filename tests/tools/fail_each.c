/* fail_each SHIM CALL HOW OLD NEW PLACE COMMAND...: repeats a command that writes the folder PLACE,
   and makes its first CALL fail, then its second, and so on until no call fails. The library SHIM
   (fail_nth.c) does so, with CALL and HOW as FAIL_CALL and FAIL_HOW. Before each run PLACE is a
   copy of the folder OLD; if OLD is -, it does not exist. After each run PLACE must equal OLD or
   NEW: NEW if the status is 0; else there must be a message. After a kill PLACE may also lack
   run.sh and CMakeLists.txt; another run must then turn it into NEW. If PLACE is -, nothing is
   written: if the status is 0, the command must print the contents of the file NEW. Prints how
   often each result occurred. Status 1 if there was any other result. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 512, LONGEST = 4096 };

/* The files of a folder and of its subfolders. */
struct files {
  int n;
  struct {
    char *name, *text;
    size_t size;
    mode_t mode;
  } file[FILES];
};

static _Noreturn void give_up(const char *what)
{
  perror(what);
  exit(2);
}

static char *read_text(const char *path, size_t *size)
{
  FILE *f = fopen(path, "r");
  struct stat s;
  if (!f || fstat(fileno(f), &s)) give_up(path);
  char *text = calloc(1, (size_t)s.st_size + 1);
  *size = fread(text, 1, (size_t)s.st_size, f);
  fclose(f);
  return text;
}

/* Adds all files below top/sub; leaves out `left_out`, of the top. */
static void read_folder(struct files *to, const char *top, const char *sub, const char *left_out)
{
  char path[LONGEST];
  snprintf(path, sizeof path, "%s/%s", top, sub);
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));) {
    char name[LONGEST];
    struct stat s;
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, left_out))
      continue;
    snprintf(name, sizeof name, "%.1000s%s%.1000s", sub, *sub ? "/" : "", e->d_name);
    snprintf(path, sizeof path, "%.1000s/%.2000s", top, name);
    if (lstat(path, &s)) give_up(path);
    if (S_ISDIR(s.st_mode)) {
      read_folder(to, top, name, left_out);
      continue;
    }
    int i = to->n++;
    if (to->n > FILES) give_up("too many files");
    to->file[i].name = strdup(name);
    to->file[i].text = read_text(path, &to->file[i].size);
    to->file[i].mode = s.st_mode;
  }
  if (d) closedir(d);
}

static void forget(struct files *f)
{
  for (int i = 0; i < f->n; i++) free(f->file[i].name), free(f->file[i].text);
  f->n = 0;
}

static int find(const struct files *in, const char *name)
{
  for (int i = 0; i < in->n; i++)
    if (!strcmp(in->file[i].name, name)) return i;
  return -1;
}

/* Whether all of a is in b, except for files that do not change a program. */
static bool is_in(const struct files *a, const struct files *b, const char *but,
                  const char *but_too)
{
  bool same = true;
  for (int i = 0; i < a->n && same; i++) {
    int k = find(b, a->file[i].name);
    if (!strcmp(a->file[i].name, but) || !strcmp(a->file[i].name, but_too)) continue;
    same = k >= 0 && a->file[i].size == b->file[k].size && a->file[i].mode == b->file[k].mode &&
           !memcmp(a->file[i].text, b->file[k].text, a->file[i].size);
  }
  return same;
}

static bool equal_but(const struct files *a, const struct files *b, const char *but,
                      const char *but_too)
{
  return is_in(a, b, but, but_too) && is_in(b, a, but, but_too);
}

static void remove_folder(const char *path)
{
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d));) {
    char inner[LONGEST];
    snprintf(inner, sizeof inner, "%.2000s/%.1000s", path, e->d_name);
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    if (unlink(inner)) remove_folder(inner);
  }
  if (d) closedir(d);
  rmdir(path);
}

static void write_folder(const struct files *f, const char *top)
{
  mkdir(top, 0777);
  for (int i = 0; i < f->n; i++) {
    char path[LONGEST];
    snprintf(path, sizeof path, "%.1000s/%.2000s", top, f->file[i].name);
    for (char *c = path + strlen(top) + 1; (c = strchr(c, '/')); *c++ = '/') {
      *c = 0;
      mkdir(path, 0777);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, f->file[i].mode & 0777);
    if (fd < 0 || write(fd, f->file[i].text, f->file[i].size) < 0) give_up(path);
    close(fd);
  }
}

/* --------------------------------------------------------------------------------------- one run
 */

static char **command;
static int seen; /* a file whose first byte is set when a call has failed */
static char *has_failed, *shim, *call, *how;
static char said[LONGEST], *printed;
static size_t nprinted;

/* A file without a name. */
static int some_file(void)
{
  FILE *f = tmpfile();
  if (!f) give_up("tmpfile");
  return fileno(f);
}

static size_t take(int fd, char *to, size_t most)
{
  ssize_t n = pread(fd, to, most, 0);
  if (n < 0 || ftruncate(fd, 0)) give_up("what the command says");
  lseek(fd, 0, SEEK_SET);
  return (size_t)n;
}

/* nth: 0: nothing fails. Returns the status, or 128 + the signal. */
static int run(long nth, bool and_on)
{
  static int out = -1, err = -1;
  enum { PRINTED = 1 << 20 };
  if (out < 0) out = some_file(), err = some_file(), printed = malloc(PRINTED);
  *has_failed = 0;
  pid_t child = fork();
  if (child == 0) {
    char digits[32];
    snprintf(digits, sizeof digits, "%ld", nth);
    setenv("FAIL_NTH", digits, 1);
    setenv("FAIL_CALL", call, 1);
    setenv("FAIL_HOW", how, 1);
    setenv("FAIL_ON", and_on ? "1" : "0", 1);
    snprintf(digits, sizeof digits, "%d", seen);
    setenv("FAIL_SEEN", digits, 1);
    if (nth) setenv("LD_PRELOAD", shim, 1);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(command[0], command);
    _exit(126);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) give_up("the command");
  said[take(err, said, sizeof said - 1)] = 0;
  nprinted = take(out, printed, PRINTED);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ------------------------------------------------------------------------------------- all of them
 */

static struct files old, new, now;
static const char *place;
static bool has_old;
static int failures;

static void complain(long nth, int status, const char *what)
{
  enum { SHOWN = 5 };
  if (failures++ < SHOWN)
    printf("  FAILED: %s %ld (%s): %s; status %d: %s\n", call, nth, how, what, status, said);
}

/* Checks that the output names no unfinished folder and no temporary file of tpgen. */
static void judge_words(long nth, int status, bool killed)
{
  if (status && !killed && !*said) complain(nth, status, "no message");
  if (status > 127 && !killed) complain(nth, status, "ended by a signal");
  if (strstr(said, "mistake in tpgen")) complain(nth, status, "calls it a mistake of its own");
}

/* The state of the folder: the old program, the new one, none that runs, or a mixture. After a kill
   tpgen's list of files may name those of both. */
enum holds { OLD, NEW, NONE, MIXTURE };
static enum holds look(bool killed)
{
  const char *list = killed ? "files.txt" : "";
  forget(&now);
  read_folder(&now, place, "", ".tpgen-new");
  if (equal_but(&now, &new, list, "")) return NEW;
  if (has_old ? equal_but(&now, &old, list, "") : !now.n) return OLD;
  if (find(&now, "run.sh") >= 0) return MIXTURE;
  if (find(&now, "CMakeLists.txt") < 0) return NONE;
  bool whole = equal_but(&now, &old, list, "run.sh") || equal_but(&now, &new, list, "run.sh");
  return whole ? NONE : MIXTURE;
}

static bool is_left(void)
{
  char left[LONGEST];
  snprintf(left, sizeof left, "%.4000s/.tpgen-new", place);
  return !access(left, F_OK);
}

static void make_anew(long nth)
{
  int status = run(0, false);
  if (status || look(false) != NEW) complain(nth, status, "the next tpgen does not write it anew");
  if (is_left()) complain(nth, status, "the next tpgen leaves .tpgen-new");
}

/* once: one call alone has failed. */
static void judge_folder(long nth, int status, bool killed, bool once, int came[])
{
  enum holds holds = look(killed || !once);
  came[holds]++;
  judge_words(nth, status, killed);
  if (holds == MIXTURE) complain(nth, status, "a mixture");
  if (once && !killed && is_left() && !strstr(said, ".tpgen-new"))
    complain(nth, status, ".tpgen-new is left");
  if (holds == NONE && once && !killed) complain(nth, status, "the old program is gone");
  if (status == 0 && holds != NEW) complain(nth, status, "status 0, and not the new program");
  if (killed || !once) make_anew(nth);
}

static void judge_print(long nth, int status, int came[])
{
  bool same = nprinted == new.file[0].size && !memcmp(printed, new.file[0].text, nprinted);
  judge_words(nth, status, false);
  if (status == 0 && !same) complain(nth, status, "prints something else");
  came[status == 0 ? NEW : OLD]++;
}

int main(int argc, char **argv)
{
  if (argc < 8) return 2;
  shim = argv[1], call = argv[2], how = argv[3], place = argv[6], command = argv + 7;
  bool prints = !strcmp(place, "-"), killed = !strcmp(how, "0");
  has_old = strcmp(argv[4], "-") != 0;
  if (has_old) read_folder(&old, argv[4], "", "");
  if (!prints) read_folder(&new, argv[5], "", "");
  if (prints) new.file[new.n++].text = read_text(argv[5], &new.file[0].size);
  seen = some_file();
  if (ftruncate(seen, 1)) give_up("ftruncate");
  has_failed = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, seen, 0);
  const char *on = getenv("FAIL_ON");
  bool once = !on || *on != '1';
  int came[] = {0, 0, 0, 0};
  long nth = 1;
  for (bool anew = true;; nth++) {
    if (!prints && anew) {
      remove_folder(place);
      if (has_old) write_folder(&old, place);
    }
    int status = run(nth, !once);
    if (!*has_failed) break;
    if (prints) {
      judge_print(nth, status, came);
      continue;
    }
    judge_folder(nth, status, killed, once, came);
    anew = killed || !once || look(false) != OLD;
  }
  printf("  %s %s: %ld tried: old %d, new %d, none %d, mixtures %d\n", call, how, nth - 1,
         came[OLD], came[NEW], came[NONE], came[MIXTURE]);
  return failures != 0;
}
