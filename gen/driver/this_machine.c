/* this_machine.c: --cluster this: the device.json of this machine, which is in the user's cache.
   Where there is none, or one of another machine, the program of --calibrate is written there, and
   run. */
#include "driver/driver.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_PATH = 3000, MOST_FILE = 1 << 22 };

static int cores(void)
{
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

/* The text without other letters than run.sh of --calibrate keeps. */
static char *only(const char *of, const char *more)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (; *of; of++) {
    const bool is_plain = (*of >= '0' && *of <= '9') || (*of >= 'A' && *of <= 'Z') ||
                          (*of >= 'a' && *of <= 'z') || strchr(more, *of);
    if (is_plain) put(&b, "%c", *of);
  }
  return b.text;
}

/* The folder of this machine's program: users may share theirs between machines. */
static char *folder_of_machine(void)
{
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  struct utsname name;
  if (uname(&name)) usage_error(3, "--cluster this: this machine has no name");
  if (!cache || *cache != '/') cache = home && *home == '/' ? text("%s/.cache", home) : NULL;
  if (!cache || strlen(cache) > MOST_PATH)
    usage_error(2, "--cluster this keeps what it has measured in $XDG_CACHE_HOME/tpgen, by default "
                   "~/.cache/tpgen: set XDG_CACHE_HOME to a folder's whole path");
  const char *host = only(name.nodename, "._-");
  return text("%s/tpgen/%s-%d", cache, *host && *host != '.' ? host : "machine", cores());
}

/* The processor's name, as run.sh writes it. */
static char *processor(void)
{
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[512], *found = NULL;
  while (file && !found && fgets(line, sizeof line, file))
    if (!strncmp(line, "model name", strlen("model name")) && strchr(line, ':'))
      found = only(strchr(line, ':') + 2, " .,()@/_-");
  if (file) fclose(file);
  return found && *found ? found : "a processor";
}

/* Runs it with its output on standard error, and waits; whether it ended well. */
static bool run_command(const char *const *arguments)
{
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(arguments[0], (char *const *)arguments);
    _exit(127);
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void measure(const char *folder)
{
  const char *program = text("%s/run.sh", folder);
  say("note: this machine is measured now, which takes a minute for each number of ranks: start "
      "nothing else meanwhile. The figures stay in %s",
      folder);
  const char *const write[] = {"/proc/self/exe", "--calibrate", "-o", folder, NULL};
  const char *const run[] = {program, NULL};
  if (!run_command(write) || !run_command(run))
    usage_error(1,
                "--cluster this: measuring this machine failed; the messages are above. Run %s by "
                "hand, or name a device.json that tpgen --calibrate has made",
                program);
}

/* Whether the file exists, and is of this machine with its present cores. Ends tpgen if it is no
   such file. */
static bool is_measured_here(const char *path)
{
  size_t length;
  const char *why;
  if (access(path, F_OK)) return false;
  const char *json = read_file(path, MOST_FILE, &length, &why);
  const struct measured *m = json ? read_measured(json, length, &why) : NULL;
  if (!m)
    usage_error(3, "--cluster this: %s: %s; remove it, and this machine is measured again", path,
                why);
  if (measured_cores(m) == cores() && !strcmp(measured_machine(m), processor())) {
    say("note: this machine's figures are those of %s, measured %s", path, measured_when(m));
    return true;
  }
  say("note: %s is of a machine with other processors", path);
  return false;
}

static const char *path_of_machine;

static const char *device_of_this_machine(void)
{
  if (path_of_machine) return path_of_machine;
  const char *file = text("%s/device.json", folder_of_machine());
  if (!is_measured_here(file))
    usage_error(3,
                "nothing is known of this machine yet: tpgen with --cluster this measures it, "
                "and leaves %s",
                file);
  return path_of_machine = file;
}

/* A plan by itself starts no measuring. */
void know_this_machine(void)
{
  set_reader_of_machine(device_of_this_machine);
  bool is_asked = options.cluster && !strcmp(options.cluster, THIS_MACHINE);
  for (int i = 0; i < options.ndefinition; i++)
    is_asked |= !strcmp(options.definition[i].value, THIS_MACHINE) &&
                (!strcmp(options.definition[i].name, "cluster") ||
                 !strcmp(options.definition[i].name, "device"));
  if (!is_asked) return;
  if (target->streams)
    usage_error(2, "--cluster this is for programs of the target cpu: leave out --target %s",
                target->name);
  const char *folder = folder_of_machine(), *file = text("%s/device.json", folder);
  if (!is_measured_here(file)) measure(folder);
  if (access(file, R_OK)) usage_error(3, "--cluster this: there is no %s", file);
  path_of_machine = file;
}
