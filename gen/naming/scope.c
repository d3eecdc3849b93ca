/* scope.c: unique names in a scope. */
#include "naming/naming.h"

#include <string.h>

/* The place of the name, or of an absent one. */
static int *place_of_name(const struct scope *s, const char *name)
{
  size_t mask = (size_t)s->places - 1, i = hash_bytes(HASH_START, name, strlen(name)) & mask;
  while (s->at[i] != NONE && strcmp(s->name[s->at[i]].text, name)) i = (i + 1) & mask;
  return &s->at[i];
}

bool is_name_given(const struct scope *s, const char *name)
{
  return s->n && *place_of_name(s, name) != NONE;
}

void give_name(struct scope *s, const char *name)
{
  if (2 * s->n >= s->places) {
    s->places = s->places ? 2 * s->places : 64;
    s->at = alloc((size_t)s->places * sizeof *s->at);
    for (int i = 0; i < s->places; i++) s->at[i] = NONE;
    for (int i = 0; i < s->n; i++) *place_of_name(s, s->name[i].text) = i;
  }
  GROW(s->name, s->n, s->room);
  *place_of_name(s, name) = s->n;
  s->name[s->n++] = (struct name){.text = name, .again = 1};
}

/* Whether no variable may have it. */
static bool is_taken_in_scope(const char *name)
{
  return is_reserved_name(name) || is_kernel_name(name);
}

const char *unique_name(struct scope *s, const char *preferred)
{
  if (s->local) preferred = spared_name(preferred);
  /* Whether a kernel's name, or that of a function of the activations' table, may begin so. */
  bool begins_another =
      s->local && (!strncmp(preferred, "at_", 3) || is_kernel_name(text("%s_0x", preferred)));
  if (begins_another) preferred = text("own_%s", preferred);
  bool known = is_name_given(s, preferred);
  if (!known) give_name(s, preferred);
  if (!known && !(s->local && is_taken_in_scope(preferred))) return preferred;
  int first = *place_of_name(s, preferred);
  const char *name;
  do name = text("%s_%d", preferred, ++s->name[first].again);
  while (is_name_given(s, name) || (s->local && is_taken_in_scope(name)));
  give_name(s, name);
  return name;
}
