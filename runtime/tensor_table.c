// The members of the program's families, with their names written out.
#include "tensor_table.h"

#include <stdlib.h>
#include <string.h>

enum { DIGITS = 12 };

static size_t longest(const struct file_name *name)
{
  if (!name->name) return 0;
  return strlen(name->name) + (name->rest ? DIGITS + strlen(name->rest) : 0) + 1;
}

// Writes a member's name at *to, and advances *to.
static const char *write_name(const struct file_name *name, int k, char **to)
{
  const char *text = *to;
  if (!name->name) return NULL;
  if (name->rest)
    *to += sprintf(*to, "%s%d%s", name->name, k, name->rest) + 1;
  else
    *to += sprintf(*to, "%s", name->name) + 1;
  return text;
}

static void write_members(struct members *members)
{
  char *text = members->text;
  for (int row = 0; row < program.ntensors; row++) {
    const struct tensor *t = &program.tensors[row];
    for (int k = 0; k < t->count; k++) {
      size_t i = members->count++;
      const char *name = write_name(&t->name, k, &text), *alias = write_name(&t->alias, k, &text);
      members->all[i] = (struct member){row, k, name, alias};
      members->names[members->nnames++] = (struct called){name, i};
      if (alias) members->names[members->nnames++] = (struct called){alias, i};
    }
  }
}

static int by_name(const void *a, const void *b)
{
  return strcmp(((const struct called *)a)->name, ((const struct called *)b)->name);
}

bool table_members(struct members *members, struct failure *why)
{
  size_t count = 0, bytes = 0;
  for (int row = 0; row < program.ntensors; row++) {
    const struct tensor *t = &program.tensors[row];
    count += (size_t)t->count;
    bytes += (size_t)t->count * (longest(&t->name) + longest(&t->alias));
  }
  *members = (struct members){.all = malloc((count + 1) * sizeof *members->all),
                              .names = malloc((2 * count + 1) * sizeof *members->names),
                              .text = malloc(bytes + 1)};
  if (!members->all || !members->names || !members->text) {
    table_free(members);
    return failed(why, "out of memory for the names of %zu tensors", count);
  }
  write_members(members);
  qsort(members->names, members->nnames, sizeof *members->names, by_name);
  return true;
}

void table_free(struct members *members)
{
  free(members->all);
  free(members->names);
  free(members->text);
  *members = (struct members){0};
}

const struct member *table_find(const struct members *members, const char *name)
{
  struct called key = {.name = name};
  if (members->nnames == 0) return NULL;
  const struct called *found = bsearch(&key, members->names, members->nnames, sizeof key, by_name);
  return found ? &members->all[found->member] : NULL;
}
