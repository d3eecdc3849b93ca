/* wanted_files.c: the files that a plan reads while it runs.

   The process that reads the plan can open no file. If the plan requests a file that was not read
   yet, the process stores its path and ends. The parent reads the file, if the plan may see it, and
   the plan starts again with the file at hand. read_json may see the files that the command line
   names, as in -D config=FILE, and those in or below the plan's directory, and so may torch_export;
   require the latter. */
#include "lua/lua.h"

#include <string.h>
#include <unistd.h>

enum { MAX_JSON_FILES = 8, MAX_ARCHIVES = 4 };
enum { MAX_FILES = MAX_JSON_FILES + MAX_ARCHIVES + MOST_PLAN_FILES };
enum { MAX_JSON = 1 << 18, MAX_REQUIRED = 1 << 20 };

static const char *const asker[] = {
    [BY_READ_JSON] = "read_json", [BY_REQUIRE] = "require", [BY_TORCH_EXPORT] = "torch_export"};
static struct {
  enum wanted_by by;
  const char *path, *text;
  size_t length;
} known[MAX_FILES];
static int nknown;

/* ----------------------------------------------------------------------------------- the parent */

/* Whether a definition of the command line is exactly this path. */
static bool is_defined(const char *path)
{
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].value, path)) return true;
  return false;
}

/* A text that Lua can read, without bytes that are no text. */
static const char *why_no_plan(const char *at, size_t length)
{
  if (memchr(at, 0, length) || memchr(at, '\x1b', length)) return "it is no text";
  return NULL;
}

void forget_wanted_files(void)
{
  nknown = 0;
  forget_plan_files();
}

bool read_wanted_file(void)
{
  if (!*sandbox->wanted) return false;
  enum wanted_by by = sandbox->wanted_by;
  const char *path = copy_text(sandbox->wanted), *at = path, *why = NULL;
  size_t most = by == BY_REQUIRE ? MAX_REQUIRED : MAX_JSON;
  if (by == BY_REQUIRE || !is_defined(path)) {
    const char *slash = strrchr(options.plan, '/');
    const char *directory =
        slash ? text("%.*s", (int)(slash + 1 - options.plan), options.plan) : "";
    at = text("%s%s", *path == '/' ? "" : directory, path);
    if (access(at, F_OK) == 0 && !is_below_plan(directory, at))
      why = by == BY_REQUIRE ? "a plan requires files that lie beside it or below its folder"
                             : "a plan reads files that lie beside it, or that -D names";
  }
  if (!why)
    known[nknown].text = by == BY_TORCH_EXPORT ? map_file(at, &known[nknown].length, &why)
                                               : read_file(at, most, &known[nknown].length, &why);
  if (!why && by == BY_REQUIRE) why = why_no_plan(known[nknown].text, known[nknown].length);
  if (why) plan_error(sandbox->line, "%s: cannot read %s: %s", asker[by], printable(path), why);
  known[nknown].by = by;
  known[nknown++].path = path;
  if (by == BY_REQUIRE) add_plan_file(path);
  return true;
}

uint64_t hash_files(uint64_t hash)
{
  for (int i = 0; i < nknown; i++) {
    hash = hash_bytes(hash, known[i].path, strlen(known[i].path) + 1);
    if (known[i].by == BY_TORCH_EXPORT) continue; /* of what is read of it: hash_archives */
    hash = hash_bytes(hash, known[i].text, known[i].length);
  }
  return hash;
}

/* --------------------------------------------------------------------------- inside the sandbox */

static int count_known(enum wanted_by by)
{
  int n = 0;
  for (int i = 0; i < nknown; i++) n += known[i].by == by;
  return n;
}

_Noreturn static void ask_for(enum wanted_by by, const char *path)
{
  int most = by == BY_REQUIRE        ? MOST_PLAN_FILES
             : by == BY_TORCH_EXPORT ? MAX_ARCHIVES
                                     : MAX_JSON_FILES;
  if (count_known(by) == most) plan_fails("%s: a plan reads at most %d files", asker[by], most);
  if (strlen(path) >= sizeof sandbox->wanted)
    plan_fails("%s: a path of %zu letters", asker[by], strlen(path));
  sandbox->wanted_by = by;
  strcpy(sandbox->wanted, path);
  _exit(0);
}

const char *wanted_text(enum wanted_by by, const char *path, size_t *length)
{
  for (int i = 0; i < nknown; i++)
    if (known[i].by == by && !strcmp(known[i].path, path)) {
      *length = known[i].length;
      return known[i].text;
    }
  ask_for(by, path);
}
