/* name_groups.c: groups equal tensors of a list of modules under one name: "layers.0.wq.weight",
   "layers.1.wq.weight" and so on are the stack "layers.", ".wq.weight". So tables and reports are
   as long for a hundred layers as for two. */
#include "ir/ir.h"

#include <string.h>

/* A name, divided at the first number that is a whole word and has another word after it. */
struct parts {
  const char *name, *rest; /* rest: after the number; NULL if there is none */
  size_t before;
  int number;
  uint64_t hash; /* hash of all but the number */
};

static struct parts name_groups_parts_of(const char *name)
{
  struct parts p = {.name = name};
  for (const char *c = name; *c; c += *c == '.') {
    size_t n = 0;
    int number = 0;
    for (; c[n] >= '0' && c[n] <= '9'; n++)
      if (n < 9) number = 10 * number + (c[n] - '0');
    bool plain = n && n < 9 && (n == 1 || *c != '0');
    if (plain && c[n] == '.') {
      p.rest = c + n;
      p.before = (size_t)(c - name);
      p.number = number;
      p.hash = hash_bytes(hash_bytes(HASH_START, name, p.before), p.rest, strlen(p.rest));
      return p;
    }
    c += strcspn(c, ".");
  }
  return p;
}

/* Whether the name is the next member's in the stack. */
static bool goes_on(const struct stack *f, const struct parts *p)
{
  return f->rest && p->number == f->first + f->member.n && strlen(f->name) == p->before &&
         !memcmp(f->name, p->name, p->before) && !strcmp(f->rest, p->rest);
}

/* Whether the value is the same part of its tensor in files as the stack's values are. */
static bool same_file_part(const struct stack *f, int value)
{
  int first = f->member.at[0];
  const struct value *v = &graph->value[first], *w = &graph->value[value];
  if (v->role == STATE && w->role == STATE) v = &graph->value[v->of], w = &graph->value[w->of];
  return v->file_dim == w->file_dim && v->file_first == w->file_first &&
         v->file_size == w->file_size;
}

/* Families by the hash of their names: the last one at each place, and the one before it. */
struct index {
  size_t mask;
  int *last, *before;
};

static struct index new_index(int n)
{
  struct index index = {.mask = 1};
  while (index.mask < 2 * (size_t)n) index.mask *= 2;
  index.last = alloc(index.mask * sizeof *index.last);
  index.before = alloc((size_t)(n + 1) * sizeof *index.before);
  for (size_t i = 0; i < index.mask; i++) index.last[i] = NONE;
  index.mask--;
  return index;
}

struct stacks find_stacks(int n, const int *value, bool (*fits)(const struct stack *f, int value),
                          bool from_any)
{
  struct stacks all = {.at = alloc((size_t)(n + 1) * sizeof *all.at)};
  struct index index = new_index(n);
  for (int i = 0; i < n; i++) {
    struct parts p = name_groups_parts_of(graph->value[value[i]].name);
    int *last = &index.last[p.hash & index.mask], k = p.rest ? *last : NONE;
    while (k != NONE && !(goes_on(&all.at[k], &p) && same_file_part(&all.at[k], value[i])))
      k = index.before[k];
    if (k == NONE || !fits(&all.at[k], value[i])) {
      k = all.n++;
      /* A stack of one name, which others may join. */
      all.at[k] = (!p.rest || (p.number && !from_any))
                      ? (struct stack){.name = p.name}
                      : (struct stack){.name = text("%.*s", (int)p.before, p.name),
                                       .rest = p.rest,
                                       .first = p.number};
      index.before[k] = *last;
      if (all.at[k].rest) *last = k;
    }
    add(&all.at[k].member, value[i]);
  }
  for (int k = 0; k < all.n; k++)
    if (all.at[k].member.n == 1)
      all.at[k].name = graph->value[all.at[k].member.at[0]].name, all.at[k].rest = NULL;
  return all;
}

void stack_alias(const struct stack *f, const char **name, const char **rest)
{
  *name = graph->value[f->member.at[0]].alias;
  *rest = NULL;
  if (!*name || !f->rest) return;
  struct parts p = name_groups_parts_of(*name);
  *rest = p.rest;
  *name = text("%.*s", (int)p.before, p.name);
}

bool alias_goes_on(const struct stack *f, int value)
{
  const struct value *v = &graph->value[f->member.at[0]], *w = &graph->value[value];
  const char *first = v->alias, *next = w->alias;
  if (!first || !next) return first == next;
  if (v->alias_dim != w->alias_dim || v->alias_first != w->alias_first ||
      v->alias_size != w->alias_size)
    return false;
  struct parts a = name_groups_parts_of(first), b = name_groups_parts_of(next);
  return a.rest && b.rest && a.number == 0 && b.number == f->member.n && a.before == b.before &&
         !memcmp(first, next, a.before) && !strcmp(a.rest, b.rest);
}

char *stack_text(const struct stack *f)
{
  return f->rest ? text("%s%d-%d%s", f->name, f->first, f->first + f->member.n - 1, f->rest)
                 : copy_text(f->name);
}

bool same_tensor(int a, int b)
{
  const struct value *v = &graph->value[a], *w = &graph->value[b];
  return v->role == w->role && v->type == w->type && same_shape(v->shape, w->shape) &&
         same_layout(v->layout, w->layout) && v->init.kind == w->init.kind &&
         v->init.a == w->init.a && v->init.b == w->init.b && v->init.low == w->init.low &&
         v->init.high == w->init.high;
}
