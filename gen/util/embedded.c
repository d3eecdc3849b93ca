/* embedded.c: the files that tpgen carries with it, by name. */
#include "util/util.h"

#include <stdlib.h>
#include <string.h>

static int compare_name(const void *name, const void *file)
{
  return strcmp(name, ((const struct embedded *)file)->name);
}

const struct embedded *find_embedded(const char *name)
{
  return bsearch(name, embedded, (size_t)nembedded, sizeof *embedded, compare_name);
}

const char *embedded_text(const char *name)
{
  const struct embedded *file = find_embedded(name);
  if (!file) bug("emit", "no embedded file is called %s", name);
  return (const char *)file->text;
}

const char *find_template(const char *name)
{
  static const char folder[] = "templates/";
  for (const struct embedded *e = embedded; e->name; e++)
    if (!strncmp(e->name, folder, strlen(folder)) && !strcmp(strrchr(e->name, '/') + 1, name))
      return (const char *)e->text;
  return NULL;
}

const char *embedded_template(const char *name)
{
  const char *text = find_template(name);
  if (!text) bug("emit", "no template is called %s", name);
  return text;
}
