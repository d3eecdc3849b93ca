/* bucket_select.c: chooses the collectives to merge, on a plain list.

   Takes   single collectives in the order in which they run, and for each the earlier ones that it
           needs; and caps.
   Leaves  buckets of two or more.

   choose_in_order is greedy, as in PyTorch: it takes consecutive collectives of one kind, with none
   of another group or type between them, up to the cap. Then the next bucket begins, with the next
   cap. A collective that needs a member of the bucket stays single. So no collective overtakes
   another of its kind. choose_of_one_kind may skip others. */
#include "function_passes/function_passes.h"

bool travels_like(const struct single *a, const struct single *b)
{
  return a->kind == b->kind && a->group == b->group && a->reduction == b->reduction &&
         a->type == b->type && a->last_batch == b->last_batch;
}

int64_t cap_of(const struct caps *caps, int bucket)
{
  if (!caps->n) return INT64_MAX;
  return caps->bytes[bucket < caps->n ? bucket : caps->n - 1];
}

/* Adds a bucket of two members or more. */
static void add_bucket(struct buckets *found, const struct list *member)
{
  if (member->n < 2) return;
  GROW(found->at, found->n, found->room);
  found->at[found->n++] = *member;
}

/* The buckets of some collectives of one kind. */
static void choose_among(const struct single *s, const struct list *some, const struct caps *caps,
                         struct buckets *found)
{
  struct list now = {0};
  int64_t bytes = 0;
  int bucket = 0;
  for (int k = 0; k < some->n; k++) {
    int i = some->at[k];
    /* Whether the i-th needs any of these. */
    bool needs_any = false;
    for (int j = 0; j < now.n && s[i].needs && !needs_any; j++)
      needs_any = s[i].needs[now.at[j] / 64] >> now.at[j] % 64 & 1;
    if (needs_any) continue;
    if (now.n && s[i].bytes > cap_of(caps, bucket) - bytes) {
      add_bucket(found, &now);
      now = (struct list){0};
      bytes = 0;
      bucket++;
    }
    bytes += s[i].bytes;
    add(&now, i);
  }
  add_bucket(found, &now);
}

/* Adds the buckets of one kind. */
static void choose_kind_in_order(const struct single *s, int n, enum op_kind kind,
                                 const struct caps *caps, struct buckets *found)
{
  struct list run = {0};
  for (int i = 0; i < n; i++) {
    if (s[i].kind != kind) continue;
    if (run.n && (!travels_like(&s[run.at[0]], &s[i]) || s[run.at[0]].unit != s[i].unit)) {
      choose_among(s, &run, caps, found);
      run = (struct list){0};
    }
    add(&run, i);
  }
  choose_among(s, &run, caps, found);
}

struct buckets choose_in_order(const struct single *s, int n, const struct caps *caps)
{
  struct buckets found = {0};
  for (int kind = 0; kind < OP_COUNT; kind++)
    if (collective_row[kind].buckets) choose_kind_in_order(s, n, (enum op_kind)kind, caps, &found);
  return found;
}

static int bucket_select_kind_of(struct memo *kinds, const struct single *s)
{
  static struct query q;
  begin_query(&q);
  ask_number(&q, (int64_t)s->kind << 32 | s->group);
  ask_number(&q, (int64_t)s->reduction << 32 | (int64_t)s->type);
  ask_number(&q, (int64_t)s->unit * 2 + s->last_batch);
  return number_of_query(kinds, &q);
}

struct buckets choose_of_one_kind(const struct single *s, int n, const struct caps *caps)
{
  struct buckets found = {0};
  struct memo kinds = {0};
  struct list *like = alloc((size_t)(n + 1) * sizeof *like);
  for (int i = 0; i < n; i++) add(&like[bucket_select_kind_of(&kinds, &s[i])], i);
  for (int k = 0; k < kinds.n; k++) choose_among(s, &like[k], caps, &found);
  return found;
}
