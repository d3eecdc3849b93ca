// SPDX-License-Identifier: MIT
#include "data/input_files.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/program.h"

static bool is_there(const char *path)
{
  struct stat about;
  return stat(path, &about) == 0;
}

// The input whose name and '=' begin the text, or NULL.
static const char *input_named(const char *text)
{
  for (int i = 0; i < program->ntensors; i++) {
    const struct tensor *t = &program->tensors[i];
    const size_t length = strlen(t->name.name);
    if (t->role == BATCH && strncmp(text, t->name.name, length) == 0 && text[length] == '=')
      return t->name.name;
  }
  return NULL;
}

static bool add_file(struct input_files *files, const char *input, const char *path,
                     struct failure *why)
{
  struct input_file *more = realloc(files->all, (files->count + 1) * sizeof *more);
  if (more) files->all = more;
  char *copy = more ? strdup(path) : NULL;
  if (!copy) return failed(why, "out of memory");
  files->all[files->count++] = (struct input_file){input, copy};
  return true;
}

static bool add_pattern(struct input_files *files, const char *input, const char *pattern,
                        struct failure *why)
{
  glob_t found;
  const int result = glob(pattern, 0, NULL, &found);
  if (result == GLOB_NOSPACE) return failed(why, "out of memory");
  if (result != 0) return failed(why, "%s: there is no such file, nor one that it fits", pattern);
  bool ok = true;
  for (size_t i = 0; ok && i < found.gl_pathc; i++)
    ok = add_file(files, input, found.gl_pathv[i], why);
  globfree(&found);
  return ok;
}

bool input_files_find(struct input_files *files, const char *const *names, struct failure *why)
{
  *files = (struct input_files){0};
  for (; *names; names++) {
    const char *input = is_there(*names) ? NULL : input_named(*names);
    const char *path = input ? *names + strlen(input) + 1 : *names;
    const bool is_pattern = !is_there(path) && strpbrk(path, "*?[");
    if (is_pattern ? !add_pattern(files, input, path, why) : !add_file(files, input, path, why))
      return false;
  }
  return true;
}

void input_files_free(struct input_files *files)
{
  for (size_t i = 0; i < files->count; i++) free(files->all[i].path);
  free(files->all);
  *files = (struct input_files){0};
}
