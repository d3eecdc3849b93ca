/* query_cache.c: answers to questions that were asked before: equal layers ask the same ones a
   hundred times. A question is a row of numbers. The cache belongs to one graph: tests have
   several. */
#include "ir/ir.h"

#include <string.h>

struct asked {
  uint64_t hash;
  const int64_t *at;
  void *answer;
  int n, before; /* before: the previous question with this hash, or NONE */
};

void begin_query(struct query *q)
{
  if (q->of != graph) *q = (struct query){.of = graph};
  q->n = 0;
}

void ask_piece(struct query *q, const char *s, size_t length)
{
  ask_number(q, (int64_t)length);
  while (length) {
    int64_t word = 0;
    size_t n = length < sizeof word ? length : sizeof word;
    memcpy(&word, s, n);
    ask_number(q, word);
    s += n;
    length -= n;
  }
}

void ask_text(struct query *q, const char *s)
{
  ask_piece(q, s, strlen(s));
}

/* A layout as same_placement compares it, on each dimension of the mesh. */
void ask_layout(struct query *q, const struct layout *layout)
{
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const struct placement *p = &layout->on[d];
    bool cut = p->kind == SHARD, strided = cut && p->outer > 1;
    int which = cut ? p->dim : p->kind == PARTIAL ? (int)p->reduction : 0;
    int shift = cut ? (int)p->shift : 0;
    ask_number(q, (int64_t)p->kind | which << 4 | (cut ? p->turn : 0) << 8 | strided << 12 |
                      shift << 16);
    if (strided) ask_number(q, p->outer);
  }
}

/* What the room for rows hangs on: the bound, and who has the tokens. */
static void ask_room(struct query *q, int counts)
{
  double bound = bound_of_count(counts);
  int names = names_counted(counts);
  ask_piece(q, (const char *)&bound, sizeof bound);
  if (names != NONE) ask_layout(q, &graph->value[names].layout);
}

void ask_value(struct query *q, const struct value *v)
{
  ask_number(q, (int64_t)v->type | v->shape.ndim << 4 | (v->counts != NONE) << 12);
  for (int d = 0; d < v->shape.ndim; d++) ask_number(q, v->shape.size[d]);
  if (v->counts != NONE) ask_room(q, v->counts);
}

void ask_rule(struct query *q, const struct op *op)
{
  ask_number(q, (int64_t)op->kind | op->keep << 8 | op->nin << 9 | op->nout << 16 |
                    (op->equation != NULL) << 24);
  ask_number(q, (int64_t)op->dims << 32 | op->custom);
  if (op->equation) ask_text(q, op->equation);
}

static uint64_t hash_of(const struct query *q)
{
  uint64_t h = HASH_START;
  for (int i = 0; i < q->n; i++) {
    h = (h ^ (uint64_t)q->at[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  return h;
}

/* The number of places is a power of two. */
static int *place_in(const struct memo *memo, uint64_t hash)
{
  return &memo->last[hash & (uint64_t)(memo->places - 1)];
}

/* Doubles the table of places. */
static void widen(struct memo *memo)
{
  memo->places = memo->places ? 2 * memo->places : 256;
  memo->last = alloc((size_t)memo->places * sizeof *memo->last);
  for (int i = 0; i < memo->places; i++) memo->last[i] = NONE;
  for (int i = 0; i < memo->n; i++) {
    int *last = place_in(memo, memo->asked[i].hash);
    memo->asked[i].before = *last;
    *last = i;
  }
}

int number_of_query(struct memo *memo, const struct query *q)
{
  if (memo->of != graph) *memo = (struct memo){.of = graph};
  if (memo->n == memo->places) widen(memo);
  uint64_t hash = hash_of(q);
  size_t bytes = (size_t)q->n * sizeof *q->at;
  int *last = place_in(memo, hash);
  for (int i = *last; i != NONE; i = memo->asked[i].before) {
    const struct asked *a = &memo->asked[i];
    if (a->hash == hash && a->n == q->n && !memcmp(a->at, q->at, bytes)) return i;
  }
  GROW(memo->asked, memo->n, memo->room);
  struct asked new = {.hash = hash, .at = memcpy(alloc(bytes), q->at, bytes), .n = q->n};
  new.before = *last;
  *last = memo->n;
  memo->asked[memo->n] = new;
  return memo->n++;
}

void *answer_to(struct memo *memo, const struct query *q, size_t size, bool *is_new)
{
  int number = number_of_query(memo, q);
  void **answer = &memo->asked[number].answer;
  *is_new = !*answer;
  if (*is_new) *answer = alloc(size);
  return *answer;
}
