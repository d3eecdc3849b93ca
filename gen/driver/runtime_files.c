/* runtime_files.c: the runtime's files that a program has: those that its CMakeLists.txt and run.sh
   name, those that its own files include, and those that these include. */
#include "driver/driver.h"

#include <string.h>

#define FOLDER "runtime/"

static void add_runtime_file(const char *name);

/* The runtime's files for all targets include each target's own files, behind an #if. */
static bool is_of_other_target(const char *name)
{
  for (int i = 0; i < TARGETS; i++) {
    const char *folder = text(FOLDER "%s/", targets[i].name);
    if (&targets[i] != target && !strncmp(name, folder, strlen(folder))) return true;
  }
  return false;
}

/* Adds the files that a C text includes. A name that the runtime does not have is the program's. */
static void add_included(const char *c)
{
  static const char directive[] = "#include \"";
  for (const char *at = c; (at = strstr(at, directive));) {
    bool is_line = at == c || at[-1] == '\n';
    at += strlen(directive);
    const char *name = text(FOLDER "%.*s", (int)strcspn(at, "\"\n"), at);
    if (is_line && find_embedded(name) && !is_of_other_target(name)) add_runtime_file(name);
  }
}

static void add_runtime_file(const char *name)
{
  if (find_file(name)) return;
  const struct embedded *e = find_embedded(name);
  if (!e) bug("emit", "the runtime has no file %s", name);
  add_file(e->name, (const char *)e->text, e->size, false);
  add_included((const char *)e->text);
}

static void add_named(const struct file *file)
{
  for (const char *at = file ? file->contents : ""; (at = strstr(at, FOLDER));) {
    const char *name = text("%.*s", (int)strspn(at, "abcdefghijklmnopqrstuvwxyz_0123456789/."), at);
    at += strlen(name);
    if (strchr(name, '.')) add_runtime_file(name);
  }
}

void add_runtime(void)
{
  add_named(find_file("CMakeLists.txt"));
  add_named(find_file("run.sh"));
  const int own = added_files();
  for (int i = 0; i < own; i++) {
    const char *suffix = strrchr(added_file(i)->name, '.');
    if (suffix && (suffix[1] == 'c' || suffix[1] == 'h')) add_included(added_file(i)->contents);
  }
}
