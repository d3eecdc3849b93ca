/* visible_keys.c: which keys each query of an attention sees, where that depends on positions
   only. A mask is evaluated, whatever operations made it: its elements are followed back to
   indices and numbers.

   Of a block of queries and keys the range of the mask's elements says whether all are seen, or
   none; a block for which it says neither is halved. So all pairs are decided: those along the
   edges of what is seen one by one, the others in large blocks. */
#include "graph_passes/graph_passes.h"

#include <math.h>
#include <string.h>

/* The elements of a value in a box of indices: all are within it. */
struct span {
  double low, high;
  bool known;
};
struct box {
  int64_t first[MAX_DIMS], last[MAX_DIMS];
};
enum seen { HIDDEN, SEEN, SOME, NOT_DECIDED };

/* Constants of at most so many elements are computed whole; a mask may be halved so often. */
enum { LARGE_ELEMENTS = 1 << 16, MOST_ELEMENTS = 1 << 20, MOST_BLOCKS = 1 << 24 };

struct visible {
  const struct op *op;
  int query, key; /* its letters */
  struct letters letters;
  int64_t length, window, blocks;
  double **array; /* by value: its elements, or NULL */
  bool *tried;
  const char *why;
};

/* ------------------------------------------------------------------------------- whole constants
 */

static bool compute(const struct op *op, const double *x, double *y)
{
  switch (op->kind) {
  case OP_add:
    *y = x[0] + x[1];
    return true;
  case OP_sub:
    *y = x[0] - x[1];
    return true;
  case OP_mul:
    *y = x[0] * x[1];
    return true;
  case OP_div:
    *y = x[0] / x[1];
    return true;
  case OP_maximum:
    *y = fmax(x[0], x[1]);
    return true;
  case OP_minimum:
    *y = fmin(x[0], x[1]);
    return true;
  case OP_pow:
    *y = pow(x[0], x[1]);
    return true;
  case OP_power:
    *y = pow(x[0], op->scalar);
    return true;
  case OP_exp:
    *y = exp(x[0]);
    return true;
  case OP_log:
    *y = log(x[0]);
    return true;
  case OP_sqrt:
    *y = sqrt(x[0]);
    return true;
  case OP_square:
    *y = x[0] * x[0];
    return true;
  case OP_neg:
    *y = -x[0];
    return true;
  case OP_abs:
    *y = fabs(x[0]);
    return true;
  case OP_scale:
  case OP_expand:
    *y = op->scalar * x[0];
    return true;
  case OP_eq:
    *y = x[0] == x[1];
    return true;
  case OP_ne:
    *y = x[0] != x[1];
    return true;
  case OP_lt:
    *y = x[0] < x[1];
    return true;
  case OP_le:
    *y = x[0] <= x[1];
    return true;
  case OP_gt:
    *y = x[0] > x[1];
    return true;
  case OP_ge:
    *y = x[0] >= x[1];
    return true;
  case OP_logical_and:
    *y = x[0] != 0 && x[1] != 0;
    return true;
  case OP_logical_or:
    *y = x[0] != 0 || x[1] != 0;
    return true;
  case OP_logical_not:
    *y = x[0] == 0;
    return true;
  case OP_where:
    *y = x[0] != 0 ? x[1] : x[2];
    return true;
  case OP_permute:
    *y = x[0];
    return true;
  case OP_full:
    *y = op->scalar;
    return true;
  case OP_cast:
    *y = op->type == BOOL ? x[0] != 0 : is_floating(op->type) ? x[0] : trunc(x[0]);
    return true;
  default:
    return false;
  }
}

/* Each element of an operation that works element by element. at: the index of each letter. */
static bool by_element(struct visible *s, const struct op *op, double *to)
{
  struct letters l;
  op_letters(op, &l);
  const struct shape shape = graph->value[op->out].shape;
  const int64_t n = elements(shape);
  for (int64_t e = 0; e < n; e++) {
    int64_t at[MAX_LETTERS] = {0}, rest = e;
    double x[MAX_INPUTS];
    for (int d = shape.ndim - 1; d >= 0; d--) {
      const struct axis *axis = &l.out[0][d];
      if (axis->n > 1) return false;
      if (axis->n) at[axis->letter[0]] = rest % shape.size[d];
      rest /= shape.size[d];
    }
    for (int i = 0; i < op->nin; i++) {
      const struct shape in = graph->value[op->in[i]].shape;
      int64_t place = 0;
      for (int d = 0; d < in.ndim; d++) {
        const struct axis *axis = &l.in[i][d];
        if (axis->n > 1) return false;
        place = place * in.size[d] + (axis->n ? at[axis->letter[0]] : 0);
      }
      x[i] = s->array[op->in[i]][place];
    }
    if (!compute(op, x, &to[e])) return false;
  }
  return true;
}

static int named_dimension(const struct op *op)
{
  return op->dims ? __builtin_ctz(op->dims) : 0;
}

/* Along one dimension: sums, parts, zeros around, chosen elements. */
static bool along_dimension(struct visible *s, const struct op *op, double *to)
{
  const int dim = named_dimension(op);
  const struct shape out = graph->value[op->out].shape, in = graph->value[op->in[0]].shape;
  const double *x = s->array[op->in[0]];
  const double *chosen = op->kind == OP_index_select ? s->array[op->in[1]] : NULL;
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < dim; d++) outer *= out.size[d];
  for (int d = dim + 1; d < out.ndim; d++) inner *= out.size[d];
  const int64_t n = out.size[dim], m = in.size[dim];
  for (int64_t k = 0; k < n && chosen; k++)
    if (!(chosen[k] >= 0 && chosen[k] < (double)m)) return false;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      const double *row = x + o * m * inner + i;
      double *y = to + o * n * inner + i, sum = 0;
      for (int64_t k = 0; k < n; k++) {
        const int64_t at = chosen                  ? (int64_t)chosen[k]
                           : op->kind == OP_narrow ? k + number_of(op, "start")
                           : op->kind == OP_pad    ? k - number_of(op, "before")
                                                   : k;
        if (op->kind == OP_cumsum)
          y[k * inner] = sum += row[k * inner];
        else
          y[k * inner] = at >= 0 && at < m ? row[at * inner] : 0;
      }
    }
  return true;
}

static bool joined(struct visible *s, const struct op *op, double *to)
{
  const int dim = named_dimension(op);
  const struct shape out = graph->value[op->out].shape;
  int64_t outer = 1, inner = 1, first = 0;
  for (int d = 0; d < dim; d++) outer *= out.size[d];
  for (int d = dim + 1; d < out.ndim; d++) inner *= out.size[d];
  for (int i = 0; i < op->nin; i++) {
    const int64_t n = graph->value[op->in[i]].shape.size[dim];
    for (int64_t o = 0; o < outer; o++)
      memcpy(to + (o * out.size[dim] + first) * inner, s->array[op->in[i]] + o * n * inner,
             (size_t)(n * inner) * sizeof *to);
    first += n;
  }
  return true;
}

/* All elements of a constant, or NULL. */
static const double *array_of(struct visible *s, int value)
{
  if (s->tried[value]) return s->array[value];
  s->tried[value] = true;
  const int id = graph->value[value].op;
  const int64_t n = elements(graph->value[value].shape);
  if (id == NONE || n > MOST_ELEMENTS || graph->op[id].out != value) return NULL;
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin; i++)
    if (!array_of(s, op->in[i])) return NULL;
  double *to = alloc((size_t)(n ? n : 1) * sizeof *to);
  bool done;
  switch (op->kind) {
  case OP_index:
    for (int64_t k = 0; k < n; k++) to[k] = (double)k;
    done = true;
    break;
  case OP_view:
    memcpy(to, s->array[op->in[0]], (size_t)n * sizeof *to);
    done = true;
    break;
  case OP_narrow:
  case OP_pad:
  case OP_index_select:
    done = along_dimension(s, op, to);
    break;
  case OP_cumsum:
    done = !number_of(op, "reverse") && along_dimension(s, op, to);
    break;
  case OP_cat:
    done = joined(s, op, to);
    break;
  case OP_tril:
  case OP_triu: {
    const struct shape shape = graph->value[value].shape;
    const int64_t columns = shape.size[shape.ndim - 1], rows = shape.size[shape.ndim - 2];
    for (int64_t k = 0; k < n; k++) {
      const int64_t ahead = k % columns - k / columns % rows, d = number_of(op, "diagonal");
      to[k] = (op->kind == OP_tril ? ahead <= d : ahead >= d) ? s->array[op->in[0]][k] : 0;
    }
    done = true;
    break;
  }
  default:
    done = by_element(s, op, to);
  }
  return s->array[value] = done ? to : NULL;
}

/* ----------------------------------------------------------------------------- ranges of elements
 */

static const struct span unknown_span = {0, 0, false};

static struct span spanned(double low, double high)
{
  return isnan(low) || isnan(high) ? unknown_span : (struct span){low, high, true};
}

static struct span range_in_array(const double *x, struct shape shape, const struct box *box)
{
  int64_t at[MAX_DIMS];
  struct span s = {INFINITY, -INFINITY, true};
  memcpy(at, box->first, sizeof at);
  for (;;) {
    int64_t place = 0;
    for (int d = 0; d < shape.ndim; d++) place = place * shape.size[d] + at[d];
    if (isnan(x[place])) return unknown_span;
    if (x[place] < s.low) s.low = x[place];
    if (x[place] > s.high) s.high = x[place];
    int d = shape.ndim - 1;
    while (d >= 0 && at[d] == box->last[d]) at[d] = box->first[d], d--;
    if (d < 0) return s;
    at[d]++;
  }
}

static struct span truth(bool may_hold, bool may_not)
{
  return spanned(may_not ? 0 : 1, may_hold ? 1 : 0);
}

static struct span extremes(const double *x, int n)
{
  double low = x[0], high = x[0];
  for (int i = 0; i < n; i++) {
    if (isnan(x[i])) return unknown_span;
    low = fmin(low, x[i]);
    high = fmax(high, x[i]);
  }
  return spanned(low, high);
}

static struct span combine(const struct op *op, const struct span *a)
{
  const struct span b = op->nin > 1 ? a[1] : unknown_span;
  switch (op->kind) {
  case OP_add:
    return spanned(a->low + b.low, a->high + b.high);
  case OP_sub:
    return spanned(a->low - b.high, a->high - b.low);
  case OP_mul:
    return extremes((double[]){a->low * b.low, a->low * b.high, a->high * b.low, a->high * b.high},
                    4);
  case OP_neg:
    return spanned(-a->high, -a->low);
  case OP_scale:
  case OP_expand:
    return extremes((double[]){op->scalar * a->low, op->scalar * a->high}, 2);
  case OP_maximum:
    return spanned(fmax(a->low, b.low), fmax(a->high, b.high));
  case OP_minimum:
    return spanned(fmin(a->low, b.low), fmin(a->high, b.high));
  case OP_permute:
  case OP_view:
    return *a;
  case OP_cast:
    if (op->type == BOOL) return truth(a->low != 0 || a->high != 0, a->low <= 0 && a->high >= 0);
    return is_floating(op->type) ? *a : spanned(trunc(a->low), trunc(a->high));
  case OP_lt:
    return truth(a->low < b.high, a->high >= b.low);
  case OP_le:
    return truth(a->low <= b.high, a->high > b.low);
  case OP_gt:
    return truth(a->high > b.low, a->low <= b.high);
  case OP_ge:
    return truth(a->high >= b.low, a->low < b.high);
  case OP_eq:
  case OP_ne: {
    const bool meet = a->low <= b.high && b.low <= a->high;
    const bool one = a->low == a->high && b.low == b.high && a->low == b.low;
    return op->kind == OP_eq ? truth(meet, !one) : truth(!one, meet);
  }
  case OP_logical_not:
    return truth(a->low <= 0 && a->high >= 0, a->low != 0 || a->high != 0);
  case OP_logical_and:
  case OP_logical_or: {
    const bool a0 = a->low <= 0 && a->high >= 0, a1 = a->low != 0 || a->high != 0;
    const bool b0 = b.low <= 0 && b.high >= 0, b1 = b.low != 0 || b.high != 0;
    return op->kind == OP_logical_and ? truth(a1 && b1, a0 || b0) : truth(a1 || b1, a0 && b0);
  }
  case OP_where: {
    const bool may = a->low != 0 || a->high != 0, may_not = a->low <= 0 && a->high >= 0;
    if (!may) return a[2];
    if (!may_not) return a[1];
    return spanned(fmin(a[1].low, a[2].low), fmax(a[1].high, a[2].high));
  }
  default:
    return unknown_span;
  }
}

static struct span range_of(struct visible *s, int value, const struct box *box);

/* By the ranges of what it is made of. */
static struct span range_by_operation(struct visible *s, int value, const struct box *box)
{
  const struct op *op = &graph->op[graph->value[value].op];
  if (op->nout != 1 || op->nin == 0 || op->nin > 3 || !*rule_of(op)) {
    if (op->kind != OP_full) return unknown_span;
    return spanned(op->scalar, op->scalar);
  }
  struct letters l;
  op_letters(op, &l);
  struct box of_letter = {{0}, {0}};
  int64_t first[MAX_LETTERS] = {0}, last[MAX_LETTERS] = {0};
  for (int d = 0; d < l.ndim_out[0]; d++) {
    const struct axis *axis = &l.out[0][d];
    if (axis->n > 1) return unknown_span;
    if (!axis->n) continue;
    first[axis->letter[0]] = box->first[d];
    last[axis->letter[0]] = box->last[d];
  }
  struct span in[3];
  for (int i = 0; i < op->nin; i++) {
    for (int d = 0; d < l.ndim_in[i]; d++) {
      const struct axis *axis = &l.in[i][d];
      if (axis->n > 1) return unknown_span;
      of_letter.first[d] = axis->n ? first[axis->letter[0]] : 0;
      of_letter.last[d] = axis->n ? last[axis->letter[0]] : 0;
    }
    in[i] = range_of(s, op->in[i], &of_letter);
    if (!in[i].known) return unknown_span;
  }
  if (op->kind == OP_tril || op->kind == OP_triu) {
    const int n = l.ndim_out[0];
    const double least = (double)(box->first[n - 1] - box->last[n - 2]);
    const double most = (double)(box->last[n - 1] - box->first[n - 2]);
    const double d = (double)number_of(op, "diagonal");
    const bool kept = op->kind == OP_tril ? most <= d : least >= d;
    const bool gone = op->kind == OP_tril ? least > d : most < d;
    if (gone) return spanned(0, 0);
    return kept ? in[0] : spanned(fmin(in[0].low, 0), fmax(in[0].high, 0));
  }
  return combine(op, in);
}

/* The elements of a large value, as a mask, are computed only where ranges do not say enough. */
static struct span range_of(struct visible *s, int value, const struct box *box)
{
  const struct shape shape = graph->value[value].shape;
  if (graph->value[value].op == NONE) return unknown_span;
  const bool is_large = elements(shape) > LARGE_ELEMENTS;
  if (is_large) {
    const struct span r = range_by_operation(s, value, box);
    if (r.known) return r;
  }
  const double *x = array_of(s, value);
  if (x) return range_in_array(x, shape, box);
  return is_large ? unknown_span : range_by_operation(s, value, box);
}

/* ------------------------------------------------------------------------- what a block of pairs
 * is */

static enum seen both_seen(enum seen a, enum seen b)
{
  if (a == HIDDEN || b == HIDDEN) return HIDDEN;
  if (a == NOT_DECIDED || b == NOT_DECIDED) return NOT_DECIDED;
  return a == SOME || b == SOME ? SOME : SEEN;
}

static enum seen within_range(int64_t least, int64_t most, int64_t from, int64_t to)
{
  if (most < from || least > to) return HIDDEN;
  return least >= from && most <= to ? SEEN : SOME;
}

/* The box of the attention's input for queries and keys of the block. */
static bool box_of_input(struct visible *s, int input, const int64_t block[4], struct box *box)
{
  for (int d = 0; d < s->letters.ndim_in[input]; d++) {
    const struct axis *axis = &s->letters.in[input][d];
    box->first[d] = box->last[d] = 0;
    if (!axis->n) continue;
    const bool of_query = axis->n == 1 && axis->letter[0] == s->query;
    if (!of_query && (axis->n > 1 || axis->letter[0] != s->key)) return false;
    box->first[d] = block[of_query ? 0 : 2];
    box->last[d] = block[of_query ? 1 : 3];
  }
  return true;
}

static enum seen seen_by_bias(struct visible *s, int input, const int64_t block[4])
{
  static const double least = -1e30;
  struct box box;
  if (!box_of_input(s, input, block, &box)) {
    s->why = "has a mask that differs from head to head, which the attention over caches lacks";
    return NOT_DECIDED;
  }
  const struct span r = range_of(s, s->op->in[input], &box);
  if (!r.known) return NOT_DECIDED;
  if (r.high <= least) return HIDDEN;
  if (r.low == 0 && r.high == 0) return SEEN;
  if (r.low > least) {
    s->why = "adds numbers to its scores, which the attention over caches lacks";
    return NOT_DECIDED;
  }
  return SOME;
}

static enum seen seen_in_document(struct visible *s, int input, const int64_t block[4])
{
  struct box q, k;
  if (!box_of_input(s, input, block, &q) || !box_of_input(s, input + 1, block, &k))
    return NOT_DECIDED;
  const struct span a = range_of(s, s->op->in[input], &q),
                    b = range_of(s, s->op->in[input + 1], &k);
  if (!a.known || !b.known) return NOT_DECIDED;
  if (a.high < b.low || b.high < a.low) return HIDDEN;
  return a.low == a.high && b.low == b.high ? SEEN : SOME;
}

/* The block: the first and the last query, the first and the last key. */
static enum seen seen_in(struct visible *s, const int64_t block[4])
{
  const struct op *op = s->op;
  const int64_t least = block[0] - block[3], most = block[1] - block[2]; /* how far back */
  enum seen seen = SEEN;
  const int64_t window = number_of(op, "window");
  if (number_of(op, "causal")) seen = within_range(least, most, 0, INT64_MAX);
  if (window) seen = both_seen(seen, within_range(least, most, 1 - window, window - 1));
  int input = 3;
  if (seen != HIDDEN && number_of(op, "biased"))
    seen = both_seen(seen, seen_by_bias(s, input, block));
  input += number_of(op, "biased") != 0;
  if (seen != HIDDEN && number_of(op, "documents"))
    seen = both_seen(seen, seen_in_document(s, input, block));
  return seen;
}

/* Whether each query of the block sees the keys from `window` tokens back up to its own. */
static bool is_as_expected(struct visible *s, const int64_t block[4])
{
  const int64_t least = block[0] - block[3], most = block[1] - block[2];
  const enum seen expected = within_range(least, most, 0, s->window ? s->window - 1 : INT64_MAX);
  if (expected != SOME) {
    const enum seen is = seen_in(s, block);
    if (is == expected) return true;
    const bool one = block[0] == block[1] && block[2] == block[3];
    if (s->why) return false;
    if (is == NOT_DECIDED && one)
      s->why = "has a mask whose elements cannot be followed to positions";
    if ((is == SEEN || is == SOME) && most < 0) s->why = SEES_LATER;
    if (one || is == SEEN || is == HIDDEN) {
      if (!s->why)
        s->why =
            "sees other tokens than all earlier ones, or the last so many, which the attention "
            "over caches lacks";
      return false;
    }
  }
  if (++s->blocks > MOST_BLOCKS) {
    s->why = "has a mask that takes too long to evaluate";
    return false;
  }
  const int halved = block[1] - block[0] >= block[3] - block[2] ? 0 : 2;
  const int64_t middle = (block[halved] + block[halved + 1]) / 2;
  int64_t half[4];
  memcpy(half, block, sizeof half);
  half[halved + 1] = middle;
  if (!is_as_expected(s, half)) return false;
  memcpy(half, block, sizeof half);
  half[halved] = middle + 1;
  return is_as_expected(s, half);
}

int64_t window_of_attention(const struct op *op, int64_t length, const char **why)
{
  struct visible s = {.op = op, .length = length};
  op_letters(op, &s.letters);
  s.query = s.letters.in[0][2].letter[0];
  s.key = s.letters.in[1][2].letter[0];
  s.array = alloc((size_t)graph->nvalue * sizeof *s.array);
  s.tried = alloc((size_t)graph->nvalue * sizeof *s.tried);
  /* What the last query sees, back from its own place. */
  int64_t n = 0;
  for (int64_t key = length - 1; key >= 0; key--, n++)
    if (seen_in(&s, (int64_t[]){length - 1, length - 1, key, key}) != SEEN) break;
  s.window = n == length ? 0 : n ? n : 1;
  if (!s.why && is_as_expected(&s, (int64_t[]){0, length - 1, 0, length - 1})) return s.window;
  *why = s.why;
  return -1;
}

/* -------------------------------------------------------------------------- constants of pairs */

/* A constant's elements at pairs of tokens. */
struct pairs {
  struct visible s;
  int value, query, key; /* its dimensions, or NONE */
  bool own;
  struct span all; /* of the pairs so far */
  int64_t blocks;
};

/* Queries and keys from the first to the last; false: nothing is known, so all is. */
static bool add_pairs(struct pairs *p, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
  if (p->own ? k1 < q0 || k0 > q1 : k1 <= q0) return true;
  const bool inside = p->own ? q0 == q1 && k0 == k1 : k0 > q1;
  if (inside) {
    const struct shape shape = graph->value[p->value].shape;
    struct box box;
    for (int d = 0; d < shape.ndim; d++) {
      box.first[d] = d == p->query ? q0 : d == p->key ? k0 : 0;
      box.last[d] = d == p->query ? q1 : d == p->key ? k1 : shape.size[d] - 1;
    }
    const struct span r = range_of(&p->s, p->value, &box);
    p->all = (struct span){fmin(p->all.low, r.low), fmax(p->all.high, r.high), r.known};
    return r.known;
  }
  if (++p->blocks > MOST_BLOCKS) return p->all.known = false;
  const int64_t q = (q0 + q1) / 2, k = (k0 + k1) / 2;
  return add_pairs(p, q0, q, k0, k) && (q == q1 || add_pairs(p, q + 1, q1, k0, k)) &&
         (k == k1 || add_pairs(p, q0, q, k + 1, k1)) &&
         (q == q1 || k == k1 || add_pairs(p, q + 1, q1, k + 1, k1));
}

struct bounds bounds_of_pairs(struct cutting *c, int value, int query_dim, int key_dim, bool own)
{
  const int64_t last = c->length - 1;
  struct pairs p = {.value = value, .query = query_dim, .key = key_dim, .own = own};
  p.all = (struct span){INFINITY, -INFINITY, true};
  p.s.array = c->array;
  p.s.tried = c->tried;
  if (query_dim != NONE && key_dim != NONE) {
    add_pairs(&p, 0, last, 0, last);
  } else { /* the same for all queries, or for all keys */
    struct box box = {{0}, {0}};
    for (int d = 0; d < graph->value[value].shape.ndim; d++)
      box.last[d] = graph->value[value].shape.size[d] - 1;
    p.all = range_of(&p.s, value, &box);
  }
  return (struct bounds){p.all.low, p.all.high, p.all.known};
}
