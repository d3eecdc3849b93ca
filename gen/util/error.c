/* error.c: messages and ends: the plan's errors, wrong usage, and mistakes of tpgen itself. */
#include "util/util.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LONGEST_MESSAGE = 16384 };

/* The message of the process that reads a plan, for its parent: shared memory. */
static struct message {
  bool is_there;
  char text[LONGEST_MESSAGE];
} * left;
static bool in_child;
static const char *plan_path = "plan";

void open_messages(void)
{
  plan_path = "plan";
  forget_plan_files();
  if (left) munmap(left, sizeof *left);
  left = mmap(NULL, sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (left != MAP_FAILED) return;
  left = NULL;
  usage_error(3, "no memory for messages");
}

void errors_are_of(const char *path)
{
  plan_path = path;
}

void child_mode(void)
{
  in_child = true;
}

void say(const char *format, ...)
{
  static char message[LONGEST_MESSAGE], shown[4 * LONGEST_MESSAGE + 2];
  char *at = shown;
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  for (const unsigned char *c = (const unsigned char *)message; *c; c++)
    at += *c >= 0x20 && *c < 0x7f ? sprintf(at, "%c", *c) : sprintf(at, "\\x%02x", *c);
  *at++ = '\n';
  fwrite(shown, 1, (size_t)(at - shown), stderr);
}

static void (*before_leaving)(void);

void on_failure(void (*f)(void))
{
  before_leaving = f;
}

static void prepare_to_leave(void)
{
  void (*f)(void) = before_leaving;
  before_leaving = NULL; /* a failure within the function does not call it again */
  if (f && !in_child) f();
}

void end_printing(void)
{
  if (fflush(stdout) || ferror(stdout)) usage_error(3, "cannot write to standard output");
  exit(0);
}

void fail_with(int status)
{
  prepare_to_leave();
  exit(status);
}

void fail_by_abort(void)
{
  prepare_to_leave();
  abort();
}

void report_child_error(void)
{
  if (!left->is_there) return;
  say("%s", left->text);
  fail_with(1);
}

void plan_error(int line, const char *format, ...)
{
  char raw[LONGEST_MESSAGE / 2], what[LONGEST_MESSAGE - 1024];
  va_list list;
  va_start(list, format);
  vsnprintf(raw, sizeof raw, format, list);
  va_end(list);
  tell_files(what, sizeof what, raw);
  const char *at = line > 0 ? ":" : "", *name = required_file(line);
  int folder = name ? folder_length(plan_path) : (int)strlen(plan_path);
  char digits[16] = "";
  if (line > 0) snprintf(digits, sizeof digits, "%d", name ? line % LINES_OF_FILE : line);
  snprintf(left->text, sizeof left->text, "%.*s%s%s%s: error: %s", folder, plan_path,
           name ? name : "", at, digits, what);
  left->is_there = true;
  if (in_child) _exit(1);
  report_child_error();
  fail_with(1);
}

void usage_error(int status, const char *format, ...)
{
  char what[LONGEST_MESSAGE];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  say("tpgen: error: %s", what);
  fail_with(status);
}

/* The file that the graph was read from, and the line of each operation. */
static struct {
  const char *path;
  const int *line;
  int n, at;
} read_from;

void bugs_are_of(const char *path, const int *line, int n)
{
  read_from.path = path;
  read_from.line = line;
  read_from.n = n;
  read_from.at = -1;
}

void bug_is_at(int op)
{
  read_from.at = op;
}

void bug(const char *pass, const char *format, ...)
{
  char what[LONGEST_MESSAGE];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  if (read_from.path) {
    /* No file holds what a pass leaves. */
    int at = read_from.at, line = at >= 0 && at < read_from.n ? read_from.line[at] : 0;
    char digits[16] = "";
    if (line > 0) snprintf(digits, sizeof digits, ":%d", line);
    say("%s%s: error: no pass leaves such a graph, by %s: %s", read_from.path, digits, pass, what);
    fail_with(1);
  }
  say("tpgen: a mistake in tpgen itself, found in %s: %s", pass, what);
  fail_by_abort();
}
