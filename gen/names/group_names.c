/* group_names.c: the names of a group's communicator and stream. */
#include "names/names.h"

#include <string.h>

static const char *identifier_of_group(int group)
{
  const char *name = identifier(graph->group[group].name);
  for (int i = 0; i < group; i++)
    if (!strcmp(identifier(graph->group[i].name), name)) return text("%s_%d", name, group + 1);
  return name;
}

const char *group_name(int group)
{
  return text("over_%s", identifier_of_group(group));
}

const char *stream_name(int group)
{
  return text("%s_stream", identifier_of_group(group));
}
