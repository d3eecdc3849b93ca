/* parcel.c: what travels together in a buffer, as text: the copies into it, the call, and the
   copies out of it.

   Takes   a packed all_reduce (bucket.c), every value in its place.
   Leaves  the statements around its call. Members that follow one another in memory are one run of
   bytes; runs of the modules of a list, each as long as the others, are the rows of one copy. */
#include "tpgen.h"

#include <inttypes.h>
#include <string.h>

/* The bytes of some members, which lie one after the other, in `count` modules of a list. */
struct rows {
  const char *in, *out; /* of the first */
  int first, n;         /* members of one row */
  int64_t bytes;        /* of one row */
  int count;
  const char *stride; /* from one row to the next, where there are several */
};

static const struct op *member(const struct op *op, int k)
{
  return &graph->op[op->body[k]];
}

static int64_t bytes_of(const struct op *op, int k, int rank)
{
  int out = member(op, k)->out;
  return elements(local_shape(out, rank)) * type_bytes(graph->value[out].type);
}

bool lies_in_buffer(const struct op *op)
{
  for (int k = 0; k < op->nbody; k++) {
    int in = member(op, k)->in[0], out = member(op, k)->out;
    if (!same_place(in, out) || graph->value[out].storage != op->buffer) return false;
  }
  return true;
}

/* Whether the gradient of the k-th member lies behind that of the one before. */
static bool follows(const struct op *op, int k)
{
  const struct value *a = &graph->value[member(op, k - 1)->out];
  const struct value *b = &graph->value[member(op, k)->out];
  return a->role == GRADIENT && b->role == GRADIENT && is_next_parameter(a->of, b->of) &&
         same_place(member(op, k - 1)->in[0], member(op, k - 1)->out) &&
         same_place(member(op, k)->in[0], member(op, k)->out);
}

static struct rows row_from(const struct op *op, int k, int rank)
{
  struct rows r = {.in = c_name(member(op, k)->in[0]), .out = c_name(member(op, k)->out)};
  r.first = k;
  r.count = 1;
  do {
    if (!r.in) {
      r.in = c_name(member(op, k)->in[0]);
      r.out = c_name(member(op, k)->out);
    }
    r.bytes += bytes_of(op, k, rank);
    r.n++;
    k++;
  } while (k < op->nbody && follows(op, k));
  return r;
}

/* "m->grad.layers[" and the number, of "m->grad.layers[3].norm.weight"; NONE where there is none.
 */
static int number_in(const char *name, size_t *before)
{
  const char *bracket = name ? strchr(name, '[') : NULL;
  int number;
  if (!bracket || sscanf(bracket, "[%d]", &number) != 1) return NONE;
  *before = (size_t)(bracket - name);
  return number;
}

/* Whether b is in the next module of the list what `a` is in the one before. */
static bool is_next(const char *a, int count, const char *b)
{
  size_t at = 0, there = 0;
  int first = number_in(a, &at), second = number_in(b, &there);
  if (first == NONE || second != first + count || at != there || strncmp(a, b, at)) return false;
  return !strcmp(strchr(a, ']'), strchr(b, ']'));
}

/* Adds the row of the next module, if it is one. */
static bool add_row(struct rows *r, const struct rows *next)
{
  if (!r->in || !next->in || r->bytes != next->bytes || r->n != next->n) return false;
  if (!is_next(r->in, r->count, next->in) || !is_next(r->out, r->count, next->out)) return false;
  size_t at = 0;
  number_in(r->in, &at);
  if (strncmp(r->in, r->out, at)) return false;
  r->stride = text("sizeof %.*s[0]", (int)at, r->in);
  r->count++;
  return true;
}

/* "together + 32" */
static char *place_in(const struct op *op, int64_t bytes)
{
  int64_t n = bytes / type_bytes(graph->value[op->buffer].type);
  return n ? text("%s + %" PRId64, c_name(op->buffer), n) : copy_text(c_name(op->buffer));
}

/* One copy into the buffer, from `at` on, or out of it. */
static void put_copy(struct buffer *b, const struct op *op, const struct rows *r, int64_t at,
                     bool in)
{
  const char *bytes = text("%" PRId64, r->bytes), *stride = r->count > 1 ? r->stride : bytes;
  const char *there = place_in(op, at), *sizes = text("%d, %s, %s, 0", r->count, bytes, stride);
  if (!r->bytes) return;
  if (in)
    put(b, "slice_rows(%s, %s, %s);\n  ", there, r->in, sizes);
  else
    put(b, "\n  put_rows(%s, %s, %s);", r->out, there, sizes);
}

static void put_copies(struct buffer *b, const struct op *op, int rank, bool in)
{
  int64_t at = 0;
  for (int k = 0; k < op->nbody;) {
    struct rows r = row_from(op, k, rank), next;
    for (k += r.n; k < op->nbody; k += next.n) {
      next = row_from(op, k, rank);
      if (!add_row(&r, &next)) break;
    }
    put_copy(b, op, &r, at, in);
    at += r.bytes * r.count;
  }
}

char *copies_in_text(const struct op *op, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_copies(&b, op, rank, true);
  return b.text;
}

char *copies_out_text(const struct op *op, int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_copies(&b, op, rank, false);
  return b.text;
}
