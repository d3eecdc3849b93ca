/* mutate TPGEN PLAN DIRECTORY COUNT [ONLY]: runs tpgen on COUNT mutants of a plan and checks each
   result. A mutant is a function of its number. tpgen must end by itself within 3 seconds and 512
   MiB, with status 0 and an output of plain file names, or with status 1, a message with a line
   that begins with the plan's path, and no output; and it must change nothing outside its output.
   With ONLY, just the mutant of that number, and its plan is kept. Two run at a time. */
#include "splitmix64.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 2, SECONDS = 3, KIB = 512 * 1024, MAX_PLAN = 1 << 20 };

/* ------------------------------------------------------------------------------ random numbers */

static uint64_t state;

static size_t below(size_t n)
{
  return n ? (size_t)(splitmix64(&state) % n) : 0;
}

/* ------------------------------------------------------------------------------------ mutations */

static char plan[MAX_PLAN];
static size_t length;

/* Replaces [at, at + gone) by `bytes`. */
static void replace(size_t at, size_t gone, const char *bytes, size_t n)
{
  if (length - gone + n >= sizeof plan) return;
  memmove(plan + at + n, plan + at + gone, length - at - gone);
  memcpy(plan + at, bytes, n);
  length += n - gone;
}

static void flip_bytes(void)
{
  for (size_t n = 1 + below(4); n > 0 && length > 0; n--) {
    size_t at = below(length);
    plan[at] = below(2) ? (char)(plan[at] ^ (1 << below(8))) : (char)splitmix64(&state);
  }
}

static void cut_bytes(void)
{
  size_t at = below(length);
  replace(at, below(length - at < 20 ? length - at : 20), "", 0);
}

/* A random run of characters for which `is` holds: its start and length. */
static bool a_run(bool (*is)(size_t at), size_t *at, size_t *n)
{
  size_t runs = 0, expected = 0;
  for (int pass = 0; pass < 2; pass++) {
    size_t seen = 0;
    for (size_t i = 0; i < length; i++) {
      if (!is(i) || (i > 0 && is(i - 1))) continue;
      if (pass == 1 && seen == expected) {
        *at = i;
        for (*n = 0; i + *n < length && is(i + *n);) ++*n;
        return true;
      }
      seen++;
    }
    runs = seen;
    expected = below(runs);
    if (runs == 0) return false;
  }
  return false;
}

static bool in_number(size_t i)
{
  return isdigit((unsigned char)plan[i]) != 0;
}
static bool in_word(size_t i)
{
  return isalnum((unsigned char)plan[i]) || plan[i] == '_';
}
static bool in_line(size_t i)
{
  return plan[i] != '\n';
}
/* Between two quotes on a line. */
static bool in_string(size_t i)
{
  if (plan[i] == '"' || plan[i] == '\n') return false;
  size_t quotes = 0;
  for (size_t k = i; k > 0 && plan[k - 1] != '\n'; k--) quotes += plan[k - 1] == '"';
  return quotes % 2 == 1;
}

static void put_one_of(const char *const *list, size_t n, bool (*is)(size_t))
{
  size_t at, gone;
  if (!a_run(is, &at, &gone)) return;
  const char *bytes = list[below(n)];
  replace(at, gone, bytes, strlen(bytes));
}

static void change_number(void)
{
  // clang-format off
  static const char *const numbers[] = {
      "0", "-1", "1", "7", "2147483647", "2147483648", "4294967296", "9223372036854775807",
      "9223372036854775808", "-9223372036854775808", "3037000500", "1e308", "1e999", "-1e999",
      "(0/0)", "0.5", "1e-320", "0x7fffffffffffffff", "99999999999999999999999999", "65537",
      "1000000", "nil", "{}", "\"20\"", "true", "math.huge", "math.mininteger"};
  // clang-format on
  put_one_of(numbers, sizeof numbers / sizeof *numbers, in_number);
}

/* In the form between a Lua string's quotes. */
// clang-format off
static const char *const hostile[] = {
    "a\\\"); system(\\\"touch escaped", "../../x", "/tmp/x", "..", ".", "", "*/", "/*", "//",
    "?\?/", "a\\nb", "a\\r\\n#include <x>", "\\xe2\\x80\\xae", "\\xe2\\x81\\xa6x", "int", "for",
    "main", "MPI_Comm", "_Generic", "%s%n%s", "$name$", "${HOME}", "$(touch escaped)",
    "`touch escaped`", "\\0", "a\\0b", "\\xff\\xfe", "\\\\", "a.b", "*", "[", "[a-", "?", "\\127",
    "CON", "-rf", " ", "a b", "\\u{202e}", "\\u{7fffffff}", "0", "1x", "__proto__", "\\x1b[31m",
    "'", ";", "<script>", "a,b", "{", "}", "\\t",
};
// clang-format on
enum { HOSTILE = sizeof hostile / sizeof *hostile };

static void change_string(void)
{
  put_one_of(hostile, HOSTILE, in_string);
}

/* Replaces one of the model's names by a hostile one everywhere: `.name` and `name =` by
   ["..."]. */
static void rename_everywhere(void)
{
  static const char *const names[] = {"in_proj", "out_proj", "relu",     "input", "target",
                                      "dp",      "tp",       "ToyModel", "weight"};
  const char *name = names[below(sizeof names / sizeof *names)], *other = hostile[below(HOSTILE)];
  size_t n = strlen(name);
  char bytes[1024];
  for (size_t i = 0; i + n <= length; i++) {
    if (memcmp(plan + i, name, n) || (i > 0 && in_word(i - 1)) ||
        (i + n < length && in_word(i + n)))
      continue;
    size_t at = i, gone = n;
    int put;
    if (i > 0 && plan[i - 1] == '"') {
      put = snprintf(bytes, sizeof bytes, "%s", other);
    } else {
      if (i > 0 && plan[i - 1] == '.') at--, gone++;
      put = snprintf(bytes, sizeof bytes, "[\"%s\"]", other);
    }
    replace(at, gone, bytes, (size_t)put);
    i = at + (size_t)put;
  }
}

static void change_word(void)
{
  // clang-format off
  static const char *const words[] = {
      "nil", "self", "true", "1", "{}", "\"\"", "function() end", "nn", "F", "args", "print",
      "error", "parallelize", "Colwise", "Rowwise", "Shard(7)", "Partial()", "Replicate()",
      "tostring", "end", "return", "_G", "randn{1,2,3}", "relu", "var"};
  // clang-format on
  put_one_of(words, sizeof words / sizeof *words, in_word);
}

static void double_line(void)
{
  size_t at, n;
  char line[4096];
  if (!a_run(in_line, &at, &n) || n + 1 >= sizeof line || at + n >= length) return;
  memcpy(line, plan + at, n + 1);
  for (size_t times = 1 + below(3); times > 0; times--) replace(at, 0, line, n + 1);
}

static void drop_line(void)
{
  size_t at, n;
  if (a_run(in_line, &at, &n)) replace(at, n, "", 0);
}

static void swap_lines(void)
{
  size_t a, n, b, m;
  char first[4096], second[4096];
  if (!a_run(in_line, &a, &n) || !a_run(in_line, &b, &m) || a == b) return;
  if (n >= sizeof first || m >= sizeof second) return;
  memcpy(first, plan + a, n);
  memcpy(second, plan + b, m);
  bool a_is_later = a > b;
  replace(a_is_later ? a : b, a_is_later ? n : m, a_is_later ? second : first, a_is_later ? m : n);
  replace(a_is_later ? b : a, a_is_later ? m : n, a_is_later ? first : second, a_is_later ? n : m);
}

static const struct {
  const char *name;
  void (*mutate)(void);
} mutation[] = {
    {"bytes flipped", flip_bytes},  {"bytes cut out", cut_bytes}, {"numbers", change_number},
    {"strings", change_string},     {"names", rename_everywhere}, {"words", change_word},
    {"lines doubled", double_line}, {"lines dropped", drop_line}, {"lines swapped", swap_lines},
};
enum { MUTATIONS = sizeof mutation / sizeof *mutation };

/* ---------------------------------------------------------------------------------------- files */

static _Noreturn void die(const char *what)
{
  perror(what);
  _exit(2);
}

static int remove_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
  (void)s, (void)flag, (void)f;
  return remove(path);
}
static void remove_tree(const char *path)
{
  if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT) die(path);
}

static size_t read_file(const char *path, char *to, size_t room)
{
  FILE *f = fopen(path, "rb");
  if (!f) die(path);
  size_t n = fread(to, 1, room, f);
  fclose(f);
  return n;
}

/* Files that tpgen must not leave: all but `a/b/plan.lua` and plain names under a/b/out. */
static char stray[4096];
static size_t base;
static int look(const char *path, const struct stat *s, int flag, struct FTW *f)
{
  (void)s, (void)f;
  const char *name = path + base, *out = "/a/b/out";
  if (!strncmp(name, out, strlen(out)) && (name[strlen(out)] == '/' || !name[strlen(out)])) {
    bool plain = flag == FTW_F || flag == FTW_D;
    for (const char *c = name; *c; c++)
      plain = plain && (isalnum((unsigned char)*c) || strchr("/_.-", *c));
    if (plain) return 0;
  } else if (!*name || !strcmp(name, "/a") || !strcmp(name, "/a/b") ||
             !strcmp(name, "/a/b/plan.lua") || !strcmp(name, "/a/messages")) {
    return 0;
  }
  snprintf(stray, sizeof stray, "%s", name);
  return 1;
}

/* ----------------------------------------------------------------------------------- one mutant */

static pid_t child;
static volatile sig_atomic_t out_of_time;
static void on_alarm(int signal_number)
{
  (void)signal_number;
  out_of_time = 1;
  kill(-child, SIGKILL);
}

/* Runs `tpgen plan.lua -o out` in the current directory; returns wait's status. */
static int run(const char *tpgen, struct rusage *used)
{
  child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    setpgid(0, 0);
    int in = open("/dev/null", O_RDONLY), messages = creat("../messages", 0666);
    if (in < 0 || messages < 0 || dup2(in, 0) < 0 || dup2(messages, 1) < 0 || dup2(messages, 2) < 0)
      die("messages");
    execl(tpgen, "tpgen", "plan.lua", "-o", "out", (char *)NULL);
    die(tpgen);
  }
  setpgid(child, child);
  out_of_time = 0;
  signal(SIGALRM, on_alarm);
  alarm(SECONDS);
  int status = 0;
  while (wait4(child, &status, 0, used) < 0)
    if (errno != EINTR) die("wait");
  alarm(0);
  return status;
}

/* NULL, or the fault in tpgen's result for the mutant in `plan`. */
static const char *judge(const char *tpgen, const char *where, bool *accepted)
{
  static char now[MAX_PLAN];
  struct rusage used;
  struct stat s;
  int status = run(tpgen, &used);
  bool output = !lstat("out", &s);
  size_t n = read_file("../messages", now, sizeof now - 1);
  now[n] = 0;
  *accepted = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (out_of_time) return "did not end in time";
  if (WIFSIGNALED(status)) return "was ended by a signal";
  if (WEXITSTATUS(status) > 1) return "ended with a status that is neither 0 nor 1";
  if (used.ru_maxrss > KIB) return "took more than 512 MiB";
  if (*accepted && !output) return "ended with 0 and wrote nothing";
  if (!*accepted && output) return "ended with 1 and left output";
  if (!*accepted && strncmp(now, "plan.lua:", 9) && !strstr(now, "\nplan.lua:"))
    return "no line of its message begins with the plan";
  base = strlen(where);
  if (nftw(where, look, 16, FTW_PHYS)) return "there is a file that should not be";
  if (read_file("plan.lua", now, sizeof now) != length || memcmp(now, plan, length))
    return "the plan was changed";
  return NULL;
}

/* Makes mutant `number` of the plan at `path`; returns its first mutation. */
static size_t make_mutant(const char *path, uint64_t number)
{
  length = read_file(path, plan, sizeof plan);
  state = number * UINT64_C(0xd1342543de82ef95) + 1;
  size_t first = number % MUTATIONS;
  mutation[first].mutate();
  for (size_t more = below(3); more > 0; more--) mutation[below(MUTATIONS)].mutate();
  return first;
}

struct tally {
  int accepted[MUTATIONS], refused[MUTATIONS], failed;
};

static void try_mutant(const char *tpgen, const char *path, const char *where, uint64_t number,
                       struct tally *tally)
{
  char inside[4096];
  remove_tree(where);
  snprintf(inside, sizeof inside, "%s/a", where);
  if (mkdir(where, 0777) || mkdir(inside, 0777)) die(where);
  strcat(inside, "/b");
  if (mkdir(inside, 0777) || chdir(inside)) die(inside);
  size_t first = make_mutant(path, number);
  FILE *f = fopen("plan.lua", "wb");
  if (!f || fwrite(plan, 1, length, f) != length || fclose(f)) die("plan.lua");
  bool accepted;
  const char *wrong = judge(tpgen, where, &accepted);
  accepted ? tally->accepted[first]++ : tally->refused[first]++;
  if (!wrong) return;
  tally->failed++;
  char kept[4200];
  snprintf(kept, sizeof kept, "%s.failed.%llu", where, (unsigned long long)number);
  remove_tree(kept);
  if (rename(where, kept)) die(kept);
  printf("mutant %llu (%s): %s%s; its plan: %s/a/b/plan.lua\n", (unsigned long long)number,
         mutation[first].name, wrong, stray, kept);
  stray[0] = 0;
  fflush(stdout);
}

int main(int argc, char **argv)
{
  if (argc < 5) {
    fprintf(stderr, "usage: mutate TPGEN PLAN DIRECTORY COUNT [ONLY]\n");
    return 2;
  }
  char *tpgen = realpath(argv[1], NULL), *path = realpath(argv[2], NULL),
       *directory = realpath(argv[3], NULL);
  if (!tpgen || !path || !directory) die("mutate");
  uint64_t from = argc > 5 ? strtoull(argv[5], NULL, 10) : 0,
           to = argc > 5 ? from + 1 : strtoull(argv[4], NULL, 10);
  int results[2];
  if (pipe(results)) die("pipe");
  for (uint64_t w = 0; w < WORKERS; w++) {
    pid_t worker = fork();
    if (worker < 0) die("fork");
    if (worker > 0) continue;
    struct tally tally = {0};
    char where[4000];
    snprintf(where, sizeof where, "%s/worker%llu", directory, (unsigned long long)w);
    for (uint64_t i = from + w; i < to; i += WORKERS) try_mutant(tpgen, path, where, i, &tally);
    if (write(results[1], &tally, sizeof tally) != sizeof tally) die("write");
    _exit(0);
  }
  struct tally total = {0}, one;
  for (int w = 0; w < WORKERS; w++) {
    int status;
    if (wait(&status) < 0 || status != 0) return 2;
    if (read(results[0], &one, sizeof one) != sizeof one) return 2;
    total.failed += one.failed;
    for (int m = 0; m < MUTATIONS; m++) {
      total.accepted[m] += one.accepted[m];
      total.refused[m] += one.refused[m];
    }
  }
  int accepted = 0, refused = 0;
  for (int m = 0; m < MUTATIONS; m++) {
    printf("  %-15s %4d accepted, %4d refused\n", mutation[m].name, total.accepted[m],
           total.refused[m]);
    accepted += total.accepted[m];
    refused += total.refused[m];
  }
  printf("  %d mutants: %d accepted, %d refused, %d failures\n", accepted + refused, accepted,
         refused, total.failed);
  return total.failed > 0 || (argc <= 5 && (accepted == 0 || refused == 0));
}
