// SPDX-License-Identifier: MIT
// The members of the program's stacks, with their names written out.
#include "formats/crc32c.h"
#include "formats/safetensors_set.h"
#include "tensors/tensor_table.h"

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

// The names of the tensors that are one of the program's: with "{}" its index.
static void write_stack(struct members *members, const char *name, long count, size_t member,
                        char **to)
{
  for (long i = 0; i < count; i++) {
    members->names[members->nnames++] = (struct called){*to, member};
    stacked_name(name, i, *to, strlen(name) + DIGITS);
    *to += strlen(*to) + 1;
  }
}

// The number of other frameworks' tensors that a member is: 0 if its alias is one name.
static size_t stacked(const struct tensor *t)
{
  const struct file_name *a = &t->alias;
  const bool many = a->name && (strstr(a->name, "{}") || (a->rest && strstr(a->rest, "{}")));
  return many ? (size_t)t->of[0] : 0;
}

long table_stacked(const struct member *m)
{
  const bool stacked = m->alias && strstr(m->alias, "{}");
  return stacked ? program->tensors[m->row].of[0] : 0;
}

static void write_members(struct members *members)
{
  char *text = members->text;
  for (int row = 0; row < program->ntensors; row++) {
    const struct tensor *t = &program->tensors[row];
    for (int k = 0; k < t->count; k++) {
      size_t i = members->count++;
      const char *name = write_name(&t->name, k, &text), *alias = write_name(&t->alias, k, &text);
      struct member *m = &members->all[i];
      *m = (struct member){row, k, name, alias, NULL, m, NULL, m};
      members->names[members->nnames++] = (struct called){name, i};
      if (table_stacked(m))
        write_stack(members, alias, t->of[0], i, &text);
      else if (alias)
        members->names[members->nnames++] = (struct called){alias, i};
    }
  }
}

// Equal names in the order of the table.
static int by_name(const void *a, const void *b)
{
  const struct called *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : (x->member > y->member) - (x->member < y->member);
}

// The last part so far of a tensor that is in parts, and the name under which it was listed.
struct last_part {
  struct member *member;
  const char *name; // NULL: there is none
};

// Whether the member is a further part of that tensor. An output may have a parameter's name.
static bool goes_on(const struct last_part *last, const struct member *m, const char *name)
{
  return last->name && strcmp(last->name, name) == 0 &&
         program->tensors[last->member->row].role == program->tensors[m->row].role;
}

// Chains the parts of each tensor, which have one name or one alias, and leaves that of the first.
static void join_parts(struct members *members)
{
  size_t n = 0;
  struct last_part own = {NULL, NULL}, other = {NULL, NULL};
  for (size_t i = 0; i < members->nnames; i++) {
    const struct called c = members->names[i];
    struct member *m = &members->all[c.member];
    const bool is_own = c.name == m->name;
    if (is_own && goes_on(&own, m, c.name)) own.member->next = m, m->of = own.member->of;
    if (!is_own && goes_on(&other, m, c.name))
      other.member->alias_next = m, m->alias_of = other.member->alias_of;
    if ((is_own ? m->of : m->alias_of) == m) members->names[n++] = c;
    *(is_own ? &own : &other) = (struct last_part){m, c.name};
  }
  members->nnames = n;
}

bool table_members(struct members *members, struct failure *why)
{
  size_t count = 0, names = 0, bytes = 0;
  for (int row = 0; row < program->ntensors; row++) {
    const struct tensor *t = &program->tensors[row];
    const size_t n = (size_t)t->count;
    count += n;
    names += n * (2 + stacked(t));
    bytes += n * (longest(&t->name) + longest(&t->alias));
    bytes += n * stacked(t) * (longest(&t->alias) + DIGITS);
  }
  *members = (struct members){.all = malloc((count + 1) * sizeof *members->all),
                              .names = malloc((names + 1) * sizeof *members->names),
                              .text = malloc(bytes + 1)};
  if (!members->all || !members->names || !members->text) {
    table_free(members);
    return failed(why, "out of memory for the names of %zu tensors", count);
  }
  write_members(members);
  qsort(members->names, members->nnames, sizeof *members->names, by_name);
  join_parts(members);
  return true;
}

void table_free(struct members *members)
{
  free(members->all);
  free(members->names);
  free(members->text);
  *members = (struct members){0};
}

uint32_t table_sum(const struct members *members)
{
  struct checksum sum = {0};
  uint64_t at = 0;
  for (size_t i = 0; i < members->count; i++) {
    const struct member *m = &members->all[i];
    const struct tensor *t = &program->tensors[m->row];
    const char *alias = m->alias ? m->alias : "";
    const long about[] = {t->role, t->type, t->ndim};
    const struct {
      const void *bytes;
      size_t count;
    } part[] = {{m->name, strlen(m->name) + 1},
                {alias, strlen(alias) + 1},
                {about, sizeof about},
                {t->of, (size_t)t->ndim * sizeof *t->of}};
    for (size_t k = 0; k < sizeof part / sizeof *part; k++) {
      checksum_add(&sum, at, part[k].bytes, part[k].count);
      at += part[k].count;
    }
  }
  return checksum_share(&sum, at);
}

const struct member *table_find(const struct members *members, const char *name)
{
  size_t first = 0, end = members->nnames;
  while (first < end) {
    const size_t middle = first + (end - first) / 2;
    const int order = strcmp(name, members->names[middle].name);
    if (order == 0) return &members->all[members->names[middle].member];
    if (order < 0)
      end = middle;
    else
      first = middle + 1;
  }
  return NULL;
}

// The elements of all whole tensors of the role, or their bytes: each tensor once.
static double sum_of(enum role role, bool in_bytes)
{
  struct members members;
  struct failure why;
  double sum = 0;
  if (!table_members(&members, &why)) return 0;
  for (size_t i = 0; i < members.count; i++) {
    const struct member *m = &members.all[i];
    const struct tensor *t = &program->tensors[m->row];
    struct numbers_slice numbers;
    table_numbers(m->row, OWN_NAME, &numbers);
    const int ndim = in_bytes ? t->ndim : (int)numbers.slice.ndim;
    double elements = in_bytes ? (double)table_type(t->type).bytes : 1;
    for (int d = 0; d < ndim; d++) elements *= (double)(in_bytes ? t->of[d] : numbers.of[d]);
    const bool counts = t->role == role && m->of == m && (in_bytes || t->init.how != NESTED);
    if (counts) sum += elements;
  }
  table_free(&members);
  return sum;
}

double table_elements(enum role role)
{
  return sum_of(role, false);
}

double table_bytes_of(enum role role)
{
  return sum_of(role, true);
}
