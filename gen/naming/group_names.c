/* group_names.c: the names of a group's communicator and stream. */
#include "naming/naming.h"

#include <string.h>

struct names_of_group {
  const char *word, *communicator, *stream;
};

static const struct names_of_group *names_of(int group)
{
  static const struct graph *of;
  static struct names_of_group *list;
  static int n, room;
  if (is_other_graph(&of)) n = room = 0;
  for (; n <= group; n++) {
    GROW(list, n, room);
    const char *word = identifier(graph->group[n].name), *own = word;
    for (int i = 0; i < n && own == word; i++)
      if (!strcmp(list[i].word, word)) own = text("%s_%d", word, n + 1);
    list[n] = (struct names_of_group){word, text("over_%s", own), text("%s_stream", own)};
  }
  return &list[group];
}

const char *group_name(int group)
{
  return names_of(group)->communicator;
}

const char *stream_name(int group)
{
  return names_of(group)->stream;
}
