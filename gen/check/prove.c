/* prove.c: proves that a program cannot hang; one that could is not written.

   A job hangs when a rank waits in a collective that another member of the group never enters, or
   enters after a different one. So the ranks' sequences are run against each other: a collective is
   done when every member of its group has reached it, and all must mean the same one. If the
   sequences reach their ends in one order they do in every order, since each rank does one thing at
   a time.

   An interval of operations without a call is run by itself. All ranks run the same intervals in
   the same order and equally often: a function differs from rank to rank only in counts. So if
   every interval ends on all ranks once all enter it, the program ends too. A body needs only one
   iteration of its loop; operations for other iterations are intervals as well. The proof runs
   every rank's sequence with the counts of its program; ranks with equal counts share one sequence
   in memory. */
#include "check/check.h"

#include <inttypes.h>
#include <string.h>

/* The members' counts look the same from each member, unless each pair has its own, or each member
   states only its own part. They are computed once for each operation and each set of ranks that
   meet, identified by its first rank, and stored once for all sets with equal counts. */
struct counted {
  const int64_t *give, *get;
  bool equal;
};
static struct counts_of {
  bool alone;                /* each rank has counts of its own: see counts_alone */
  const struct counted **of; /* by the first rank of the group; with `alone`: by rank */
} * counted;                 /* by operation */
static const struct graph *counted_of;
static int counted_in; /* of that micro-batch */

struct counts {
  int n;
  const int64_t *count;
  struct counts *next;
};

/* Equal lists of counts are stored once: most ranks have equal ones. */
static const int64_t *shared_counts(const int64_t *count, int n)
{
  enum { LISTS = 4096 };
  static struct counts *list[LISTS];
  size_t bytes = (size_t)n * sizeof *count;
  uint64_t h = HASH_START;
  for (int i = 0; i < n; i++) {
    h = (h ^ (uint64_t)count[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  struct counts **at = &list[h % LISTS];
  for (const struct counts *l = *at; l; l = l->next)
    if (l->n == n && !memcmp(l->count, count, bytes)) return l->count;
  struct counts *l = alloc(sizeof *l);
  *l = (struct counts){n, memcpy(alloc(bytes), count, bytes), *at};
  *at = l;
  return l->count;
}

/* The size of a rank's part of a value. */
static void ask_size(struct query *q, int value, int rank)
{
  struct shape here = local_shape(value, rank);
  for (int d = 0; d < here.ndim; d++) ask_number(q, here.size[d]);
}

static const struct counted *count_for(int id, int rank)
{
  static struct memo memo;
  static struct query q;
  const struct op *op = &graph->op[id];
  if (counted_of != graph || counted_in != graph->mesh.now)
    counted = alloc((size_t)graph->nop * sizeof *counted);
  counted_of = graph;
  counted_in = graph->mesh.now;
  struct counts_of *known = &counted[id];
  if (!known->of) {
    known->of = alloc((size_t)world_size() * sizeof *known->of);
    /* A member of an all-reduce states only its own part. The first rank has the largest part, the
       last one the smallest. */
    const struct collective_row *row = &collective_row[op->kind];
    known->alone = (row->pairwise || moves_shards(op->kind))
                       ? row->pairwise
                       : elements_together(op, 0) != elements_together(op, world_size() - 1);
  }
  const struct counted **c = &known->of[known->alone ? rank : first_member(op->group, rank)];
  if (*c) return *c;
  bool is_new;
  /* Everything that determines a rank's counts in a collective; for an exchange its position. */
  begin_query(&q);
  ask_number(&q, id);
  ask_number(&q, graph->mesh.now);
  ask_number(&q, op->kind == OP_exchange ? rank : first_member(op->group, rank));
  if (known->alone && op->kind != OP_exchange) {
    ask_size(&q, op->in[0], rank);
    ask_size(&q, op->out, rank);
    for (int k = 0; k < op->nbody; k++) ask_size(&q, graph->op[op->body[k]].out, rank);
  }
  struct counted *new = answer_to(&memo, &q, sizeof *new, &is_new);
  if (is_new) {
    int n = group_size(op->group);
    static int64_t *give, *get;
    static int room;
    if (room < n) {
      give = alloc((size_t)n * sizeof *give);
      get = alloc((size_t)n * sizeof *get);
      room = n;
    }
    collective_counts(op, rank, give, get);
    bool equal = equal_parts(op, rank);
    check_counts(op, rank, give, get, equal);
    *new = (struct counted){shared_counts(give, n), shared_counts(get, n), equal};
  }
  return *c = new;
}

static struct issue issue_of(int id, int rank)
{
  const struct op *op = &graph->op[id];
  const struct counted *c = count_for(id, rank);
  return (struct issue){.group = op->group,
                        .kind = op->kind,
                        .reduction = op->reduction,
                        .type = graph->value[op->out].type,
                        .give = c->give,
                        .get = c->get,
                        .equal = c->equal,
                        .line = op->line};
}

struct sequence issued_by(const int *op, int n, int rank)
{
  struct sequence s = {0};
  int collectives = 0;
  for (int k = 0; k < n; k++) collectives += is_collective(graph->op[op[k]].kind);
  s.issue = alloc((size_t)collectives * sizeof *s.issue);
  for (int k = 0; k < n; k++)
    if (is_collective(graph->op[op[k]].kind)) s.issue[s.n++] = issue_of(op[k], rank);
  return s;
}

static char *issue_text(const struct issue *x, int members)
{
  struct buffer b = {0};
  put(&b, "%s of %s over %s (line %d), elements", op_row[x->kind].name, type_name(x->type),
      printable(graph->group[x->group].name), x->line);
  for (int i = 0; i < members; i++) put(&b, " %" PRId64, x->give[i]);
  return b.text;
}

/* Equal except for the counts. */
static bool same_call(const struct issue *x, const struct issue *y)
{
  return x->group == y->group && x->kind == y->kind && x->type == y->type &&
         x->reduction == y->reduction && x->equal == y->equal;
}

/* The members' counts for which every pair agreed: a loop meets the same ones repeatedly. */
struct agreement {
  int n;
  const int64_t **give, **get;
  const struct agreement *next;
};
enum { AGREEMENTS = 1024 };

static const struct agreement **agreements(const int64_t *give)
{
  static const struct agreement *list[AGREEMENTS];
  return &list[hash_bytes(HASH_START, &give, sizeof give) % AGREEMENTS];
}

/* The classes of members with equal counts. */
struct count_classes {
  int n, *class_of; /* by member */
  int *one;         /* by class: its first member */
};

static struct count_classes find_classes(const struct issue *const *x, int n)
{
  static struct query q;
  struct memo memo = {0};
  struct count_classes a = {.class_of = alloc((size_t)n * sizeof *a.class_of),
                            .one = alloc((size_t)n * sizeof *a.one)};
  for (int i = 0; i < n; i++) {
    bool as_before = i && x[i]->give == x[i - 1]->give && x[i]->get == x[i - 1]->get;
    begin_query(&q);
    ask_number(&q, (intptr_t)x[i]->give);
    ask_number(&q, (intptr_t)x[i]->get);
    a.class_of[i] = as_before ? a.class_of[i - 1] : number_of_query(&memo, &q);
    if (a.class_of[i] == a.n) a.one[a.n++] = i;
  }
  return a;
}

/* Whether each member receives from every other what that one sends: so all members of one class
   send equal counts to those of another. */
static bool pairs_agree(const struct issue *const *x, int n)
{
  for (int b = 1; b < n; b++)
    if (!same_call(x[0], x[b])) return false;
  struct count_classes a = find_classes(x, n);
  for (int k = 0; k < a.n; k++) {
    const struct issue *mine = x[a.one[k]];
    for (int b = 0; b < n; b++) {
      int class = a.class_of[b], one = a.one[class];
      if (mine->give[b] != mine->give[one] || mine->get[b] != mine->get[one]) return false;
      if (mine->give[b] != x[b]->get[a.one[k]]) return false;
    }
  }
  return true;
}

/* Whether the members' calls are one collective; else a text names the two that differ. A call that
   agrees with the first one agrees with all, except for pairs with counts of their own, and a
   member's count with itself. */
static const char *prove_misfit(const struct issue *const *x, const int *member, int n)
{
  bool pairwise = collective_row[x[0]->kind].pairwise, known = false; /* to agree */
  const struct agreement *a = pairwise ? *agreements(x[0]->give) : NULL;
  for (; a && !known; a = a->next) {
    int i = 0;
    while (i < n && a->n == n && a->give[i] == x[i]->give && a->get[i] == x[i]->get) i++;
    known = i == n;
  }
  int others = pairwise && !known && !pairs_agree(x, n) ? n : 1;
  for (int a = 0; a < others; a++)
    for (int b = a; b < n; b++) {
      /* Whether the calls of members a and b, the a-th and b-th of the group, match. */
      bool agree = same_call(x[a], x[b]) &&
                   (collective_row[x[a]->kind].pairwise
                        ? x[a]->give[b] == x[b]->get[a] && x[a]->get[b] == x[b]->give[a]
                        : x[a]->give == x[b]->give ||
                              !memcmp(x[a]->give, x[b]->give, (size_t)n * sizeof *x[a]->give));
      if (!agree)
        return text("rank %d enters %s while rank %d enters %s", member[a], issue_text(x[a], n),
                    member[b], issue_text(x[b], n));
    }
  if (pairwise && !known) {
    struct agreement *a = alloc(sizeof *a);
    const struct agreement **list = agreements(x[0]->give);
    a->n = n;
    a->give = alloc((size_t)n * sizeof *a->give);
    a->get = alloc((size_t)n * sizeof *a->get);
    for (int i = 0; i < n; i++) a->give[i] = x[i]->give, a->get[i] = x[i]->get;
    a->next = *list;
    *list = a;
  }
  return NULL;
}

/* Runs the collective at which `rank` waits, if all its members have reached it. */
static const char *advance(const struct sequence *of_rank, int *next, int rank, bool *done)
{
  const struct issue *mine = &of_rank[rank].issue[next[rank]];
  static int *member;
  static const struct issue **at;
  static int room, rooms;
  while (room < world_size()) member = grow(member, 0, &room, sizeof *member);
  while (rooms < world_size()) at = grow(at, 0, &rooms, sizeof *at);
  int n = group_members(mine->group, rank, member);
  *done = false;
  for (int i = 0; i < n; i++) {
    const struct sequence *s = &of_rank[member[i]];
    if (next[member[i]] == s->n)
      return text("rank %d waits in %s, but rank %d has no more collectives", rank,
                  issue_text(mine, n), member[i]);
    at[i] = &s->issue[next[member[i]]];
    if (at[i]->group != mine->group) return NULL;
  }
  const char *why = prove_misfit(at, member, n);
  if (why) return why;
  for (int i = 0; i < n; i++) next[member[i]]++;
  *done = true;
  return NULL;
}

/* Only one member tests whether its group is complete: the first, or, if that has reached its end,
   each of the others. */
static bool speaks(const struct sequence *of_rank, const int *next, int rank)
{
  int first = first_member(of_rank[rank].issue[next[rank]].group, rank);
  return first == rank || next[first] == of_rank[first].n;
}

const char *prove_order(const struct sequence *of_rank)
{
  int world = world_size(), *next = alloc((size_t)world * sizeof *next);
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < world; r++) {
      bool done = true;
      while (done && next[r] < of_rank[r].n && speaks(of_rank, next, r)) {
        const char *why = advance(of_rank, next, r, &done);
        if (why) return why;
        moved |= done;
      }
    }
  }
  for (int r = 0; r < world; r++)
    if (next[r] < of_rank[r].n)
      return text(
          "rank %d waits in %s for ranks that wait in other groups", r,
          issue_text(&of_rank[r].issue[next[r]], group_size(of_rank[r].issue[next[r]].group)));
  return NULL;
}

/* Proves an interval of operations, which all ranks enter together. */
static void prove_interval(const int *op, int n)
{
  struct memo memo = {0};
  int world = world_size(), some = 0;
  for (int k = 0; k < n; k++) some += is_collective(graph->op[op[k]].kind);
  if (!some) return;
  struct sequence *of_rank = alloc((size_t)world * sizeof *of_rank);
  for (int r = 0; r < world; r++) {
    /* The same, stored once for all ranks with the same counts. */
    static struct query q;
    bool is_new;
    begin_query(&q);
    for (int k = 0; k < n; k++) {
      if (!is_collective(graph->op[op[k]].kind)) continue;
      ask_number(&q, (intptr_t)count_for(op[k], r));
    }
    struct sequence *s = answer_to(&memo, &q, sizeof *s, &is_new);
    if (is_new) *s = issued_by(op, n, r);
    of_rank[r] = *s;
  }
  const char *why = prove_order(of_rank);
  if (why) bug("prove", "the programs could hang: %s", why);
}

void prove(void)
{
  if (graph->stages) {
    const struct pipeline_stages *s = graph->stages;
    const char *why;
    const struct pipeline *p = pipeline_here(&why);
    why = waits_forever(p);
    if (!why) why = unlike_ends();
    if (!why) why = unlike_joins();
    if (why) plan_error(s->line, "pipeline: the schedule %s: %s", printable(s->schedule), why);
  }
  const struct list sizes = microbatch_sizes();
  for (int size = NONE; next_size(&sizes, &size);)
    for (int i = 0; i < graph->nfunction; i++)
      if (!size || is_of_batch(graph->function[i].phase)) {
        const struct function *f = &graph->function[i];
        for (int first = 0, k = 0; k <= f->nop; k++) {
          enum op_kind kind = k < f->nop ? graph->op[f->op[k]].kind : OP_loop;
          if (!op_row[kind].calls) continue;
          prove_interval(f->op + first, k - first);
          first = k + 1;
        }
      }
}
