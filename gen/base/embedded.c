/* embedded.c: the files that tpgen carries with it, by name. */
#include "base/base.h"

#include <string.h>

const char *embedded_text(const char *name)
{
  for (const struct embedded *e = embedded; e->name; e++)
    if (!strcmp(e->name, name)) return (const char *)e->text;
  bug("emit", "no embedded file is called %s", name);
}
