/* query_cache.c: answers to questions that were asked before: equal layers ask the same ones a
   hundred times. A question is a row of numbers. A memo belongs to one graph: tests have several.
 */
#include "ir/ir.h"

#include <string.h>

/* A question that was asked. Its answer follows the numbers, unless it was given later. */
struct asked {
  struct asked *before; /* the previous one at its place in the table, or NULL */
  void *answer;         /* NULL: none was asked for */
  uint64_t hash;
  int n, number;
  int64_t at[];
};

/* Memory for questions and answers. It is used again after the memo was emptied. */
struct chunk {
  struct chunk *next;
  size_t size, used;
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

/* A layout as same_placement compares it, on each dimension of the mesh. Five placements are one
   number; strides and shifts, which are rare, follow. */
void ask_layout(struct query *q, const struct layout *layout)
{
  enum { BITS = 12, IN_A_NUMBER = 60 };
  int64_t number = 0;
  int bits = 0;
  bool more = false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    const struct placement *p = &layout->on[d];
    bool cut = p->kind == SHARD, strided = cut && p->outer > 1, shifted = cut && p->shift;
    int which = cut ? p->dim : p->kind == PARTIAL ? (int)p->reduction : 0;
    int code =
        (int)p->kind | which << 2 | (cut ? p->cut_order : 0) << 6 | strided << 10 | shifted << 11;
    number |= (int64_t)code << bits;
    bits += BITS;
    more |= strided || shifted;
    if (bits < IN_A_NUMBER && d + 1 < graph->mesh.ndim) continue;
    ask_number(q, number);
    number = bits = 0;
  }
  for (int d = 0; d < graph->mesh.ndim && more; d++) {
    const struct placement *p = &layout->on[d];
    if (p->kind == SHARD && (p->outer > 1 || p->shift))
      ask_number(q, (int64_t)p->outer << 8 | (int64_t)p->shift);
  }
}

void ask_value(struct query *q, const struct value *v)
{
  ask_number(q, (int64_t)v->type | v->shape.ndim << 4 | (v->counts != NONE) << 12);
  for (int d = 0; d < v->shape.ndim; d++) ask_number(q, v->shape.size[d]);
  if (v->counts != NONE) {
    /* The room for rows depends on the bound, and on the ranks that have the tokens. */
    int counts = v->counts;
    double bound = bound_of_count(counts);
    int names = names_counted(counts);
    ask_piece(q, (const char *)&bound, sizeof bound);
    if (names != NONE) ask_layout(q, &graph->value[names].layout);
  }
}

void ask_rule(struct query *q, const struct op *op)
{
  ask_number(q, (int64_t)op->kind | op->keepdim << 8 | op->nin << 9 | op->nout << 16 |
                    (op->equation != NULL) << 24);
  ask_number(q, (int64_t)op->dims << 32 | op->custom);
  if (op->equation) ask_text(q, op->equation);
}

/* Zeros, at an address that is valid until the memo is emptied. */
static void *room_in(struct memo *memo, size_t size)
{
  enum { ALIGNED = 16, SMALLEST = 1 << 9, LARGEST = 1 << 16 };
  size = (size + ALIGNED - 1) / ALIGNED * ALIGNED;
  while (memo->chunk && memo->chunk->size - memo->chunk->used < size && memo->chunk->next)
    memo->chunk = memo->chunk->next;
  if (!memo->chunk || memo->chunk->size - memo->chunk->used < size) {
    size_t next = memo->chunk ? 2 * memo->chunk->size : SMALLEST;
    if (next > LARGEST) next = LARGEST;
    if (next < size) next = size;
    struct chunk *new = alloc(sizeof *new + ALIGNED + next);
    new->size = next;
    if (memo->chunk)
      memo->chunk->next = new;
    else
      memo->first = new;
    memo->chunk = new;
  }
  char *start = (char *)memo->chunk + (sizeof *memo->chunk + ALIGNED - 1) / ALIGNED * ALIGNED;
  void *at = start + memo->chunk->used;
  memo->chunk->used += size;
  memo->bytes += size;
  return memset(at, 0, size);
}

void empty_memo(struct memo *memo)
{
  for (struct chunk *c = memo->first; c; c = c->next) c->used = 0;
  memo->chunk = memo->first;
  memo->n = 0;
  memo->bytes = 0;
  if (memo->places) memset(memo->last, 0, (size_t)memo->places * sizeof *memo->last);
}

static struct asked **place_in_cache(const struct memo *memo, uint64_t hash)
{
  return &memo->last[hash & (uint64_t)(memo->places - 1)];
}

/* Doubles the table. */
static void widen(struct memo *memo)
{
  struct memo wider = *memo;
  wider.places = memo->places ? 2 * memo->places : 256;
  wider.last = alloc((size_t)wider.places * sizeof *wider.last);
  for (int i = 0; i < memo->places; i++)
    for (struct asked *a = memo->last[i], *before; a; a = before) {
      struct asked **last = place_in_cache(&wider, a->hash);
      before = a->before;
      a->before = *last;
      *last = a;
    }
  *memo = wider;
}

/* The question, with room for an answer of so many bytes if it is new. */
static struct asked *query_cache_ask(struct memo *memo, const struct query *q, size_t size)
{
  if (memo->of != graph) *memo = (struct memo){.of = graph};
  if (memo->n == memo->places) widen(memo);
  uint64_t h = HASH_START;
  for (int i = 0; i < q->n; i++) {
    h = (h ^ (uint64_t)q->at[i]) * UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 29;
  }
  uint64_t hash = h;
  size_t bytes = (size_t)q->n * sizeof *q->at;
  struct asked **last = place_in_cache(memo, hash), *a = *last;
  while (a && (a->hash != hash || a->n != q->n || memcmp(a->at, q->at, bytes) != 0)) a = a->before;
  if (a) return a;
  size_t asked = (sizeof *a + bytes + 15) / 16 * 16;
  a = room_in(memo, asked + size);
  *a = (struct asked){.before = *last, .hash = hash, .n = q->n, .number = memo->n++};
  if (bytes) memcpy(a->at, q->at, bytes);
  if (size) a->answer = (char *)a + asked;
  return *last = a;
}

int number_of_query(struct memo *memo, const struct query *q)
{
  return query_cache_ask(memo, q, 0)->number;
}

void *answer_to(struct memo *memo, const struct query *q, size_t size, bool *is_new)
{
  int known = memo->of == graph ? memo->n : 0;
  struct asked *a = query_cache_ask(memo, q, size);
  *is_new = a->number >= known || !a->answer;
  if (!a->answer) a->answer = room_in(memo, size);
  return a->answer;
}
