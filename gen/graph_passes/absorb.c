/* absorb.c: the pass `absorb`: latent attention without keys and values.

   Takes   the global graph of a plan with generate{} whose model runs over a whole text, and the
           choice that caches are to be small.
   Leaves  attention over a latent in the place of attention whose keys and values are projections
           of that latent. Its numbers are the same but for rounding.

   DeepSeek's attention makes keys and values of every head of one latent of each token, by
   projections, and each key also has a rotary part that all heads share:

     key   = [latent W_k, rotary]        scores = query key^T
     value = latent W_v                  result = softmax(scores) value

   Products may be taken in another order. Then there is one key for all heads, and the value is a
   part of it, so that a cache has the latent and the rotary part only:

     query' = [query W_k^T, query's rotary part]     scores = query' [latent, rotary]^T
     result = (softmax(scores) latent) W_v

   A score then has more products, as the latent is wider than a head. So it is only done where
   caches are to be small, and where they are smaller by it. */
#include "graph_passes/graph_passes.h"

/* Some features of each head's keys or values: of a latent [1, tokens, rank] by rows of a weight,
   or of a value [1, 1, tokens, features] that all heads share. */
struct features {
  int latent, weight;      /* or NONE */
  int64_t of_head, first;  /* rows of the weight for each head; the first of them */
  int shared;              /* or NONE, */
  int64_t of_shared, size; /* from this feature on; so many */
};

enum { MOST_FEATURES = 8 };

struct feature_list {
  int n;
  struct features at[MOST_FEATURES];
};

/* A value with heads, tokens and features in these dimensions. */
struct in_heads {
  int value, head, token, feature;
};

static bool add_features(struct feature_list *p, struct features some)
{
  struct features *last = p->n ? &p->at[p->n - 1] : NULL;
  if (last && last->latent == some.latent && last->weight == some.weight &&
      last->shared == some.shared && last->first + last->size == some.first &&
      last->of_shared + last->size == some.of_shared) {
    last->size += some.size; /* it goes on */
    return true;
  }
  if (p->n == MOST_FEATURES) return false;
  p->at[p->n++] = some;
  return true;
}

/* Where the value is latent W^T, [1, tokens, heads * features]. */
static bool find_projection(int value, int64_t of_head, int64_t first, int64_t size,
                            struct feature_list *p)
{
  const int maker = graph->value[value].op;
  if (maker == NONE || graph->op[maker].kind != OP_matmul || graph->op[maker].nin != 2)
    return false;
  const struct op *op = &graph->op[maker];
  const struct value *weight = &graph->value[op->in[1]];
  struct letters l;
  op_letters(op, &l);
  const int last = l.ndim_in[0] - 1, out = l.ndim_out[0] - 1;
  if (weight->role != PARAMETER || weight->type != F32 || weight->shape.ndim != 2 ||
      l.in[1][0].n != 1 || l.in[1][1].n != 1 || l.in[0][last].n != 1 || l.out[0][out].n != 1 ||
      l.in[1][1].letter[0] != l.in[0][last].letter[0] ||
      l.in[1][0].letter[0] != l.out[0][out].letter[0])
    return false;
  return add_features(p, (struct features){.latent = op->in[0],
                                           .weight = op->in[1],
                                           .of_head = of_head,
                                           .first = first,
                                           .shared = NONE,
                                           .of_shared = first,
                                           .size = size});
}

/* The view that parts heads and features, which were together behind the tokens. */
static bool find_features_of_view(struct in_heads x, const struct op *op, int64_t first,
                                  int64_t size, struct feature_list *p)
{
  const struct shape from = graph->value[op->in[0]].shape, to = graph->value[x.value].shape;
  const int64_t tokens = to.size[x.token], together = to.size[x.head] * to.size[x.feature];
  if (x.token > x.head || x.head > x.feature || from.ndim < 2 ||
      from.size[from.ndim - 1] != together || from.size[from.ndim - 2] != tokens ||
      elements(from) != tokens * together)
    return false;
  return find_projection(op->in[0], to.size[x.feature], first, size, p);
}

/* What features first ... first + size of each head are made of. */
static bool find_features(struct in_heads x, int64_t first, int64_t size, struct feature_list *p)
{
  const int maker = graph->value[x.value].op;
  if (maker == NONE || !size) return !size;
  const struct op *op = &graph->op[maker];
  const struct shape shape = graph->value[x.value].shape;
  switch (op->kind) {
  case OP_narrow:
    if (op->dims != 1u << x.feature) return false;
    first += number_of(op, "start");
    x.value = op->in[0];
    return find_features(x, first, size, p);
  case OP_permute: {
    struct letters l;
    op_letters(op, &l);
    struct in_heads from = {.value = op->in[0], .head = NONE, .token = NONE, .feature = NONE};
    for (int d = 0; d < shape.ndim; d++) {
      const int letter = l.in[0][d].letter[0];
      if (l.out[0][x.head].letter[0] == letter) from.head = d;
      if (l.out[0][x.token].letter[0] == letter) from.token = d;
      if (l.out[0][x.feature].letter[0] == letter) from.feature = d;
    }
    return from.head != NONE && from.token != NONE && from.feature != NONE &&
           find_features(from, first, size, p);
  }
  case OP_cat: {
    if (op->dims != 1u << x.feature) return false;
    for (int i = 0; i < op->nin; i++) {
      const int64_t here = graph->value[op->in[i]].shape.size[x.feature];
      const int64_t begin = first > 0 ? first : 0, end = first + size < here ? first + size : here;
      x.value = op->in[i];
      if (end > begin && !find_features(x, begin, end - begin, p)) return false;
      first -= here;
    }
    return true;
  }
  case OP_expand: {
    const struct shape from = graph->value[op->in[0]].shape;
    if (op->dims != 1u << x.head || op->scalar != 1 || !op->keepdim || from.size[x.head] != 1 ||
        elements(from) != from.size[x.token] * from.size[x.feature] || x.token > x.feature)
      return false;
    return add_features(p, (struct features){.latent = NONE,
                                             .weight = NONE,
                                             .first = first,
                                             .shared = op->in[0],
                                             .of_shared = first,
                                             .size = size});
  }
  case OP_view:
    return find_features_of_view(x, op, first, size, p);
  default:
    return false;
  }
}

/* How an attention's keys and values are made. */
struct absorbable {
  struct feature_list keys, values;
  int latent_at; /* the part of the keys that is of the latent */
  int64_t rank, shared;
};

static bool find_absorbable(const struct op *op, struct absorbable *a)
{
  *a = (struct absorbable){.latent_at = NONE};
  if (op->kind != OP_attention || op->nin != 3 || op->softcap) return false;
  const struct shape q = graph->value[op->in[0]].shape, k = graph->value[op->in[1]].shape,
                     v = graph->value[op->in[2]].shape;
  if (q.size[0] != 1 || q.size[1] != k.size[1] || q.size[1] == 1) return false;
  for (int i = 0; i < 3; i++)
    if (graph->value[op->in[i]].type != F32) return false;
  if (!find_features((struct in_heads){op->in[1], 1, 2, 3}, 0, k.size[3], &a->keys) ||
      !find_features((struct in_heads){op->in[2], 1, 2, 3}, 0, v.size[3], &a->values) ||
      a->values.n != 1 || a->values.at[0].latent == NONE)
    return false;
  for (int i = 0; i < a->keys.n; i++) {
    const struct features *some = &a->keys.at[i];
    if (some->latent == NONE) {
      a->shared += some->size;
      if (graph->value[some->shared].type != F32) return false;
      continue;
    }
    if (a->latent_at != NONE) return false;
    a->latent_at = i;
    a->rank = graph->value[some->weight].shape.size[1];
  }
  if (a->latent_at == NONE || a->keys.at[a->latent_at].latent != a->values.at[0].latent ||
      graph->value[a->values.at[0].latent].type != F32)
    return false;
  return a->rank + a->shared < k.size[1] * (k.size[3] + v.size[3]);
}

int64_t absorbable_numbers(const struct op *op)
{
  struct absorbable a;
  return find_absorbable(op, &a) ? a.rank + a.shared : 0;
}

bool has_values_in_keys(const struct op *op)
{
  const int maker = op->kind == OP_attention ? graph->value[op->in[2]].op : NONE;
  const struct op *narrow = maker == NONE ? NULL : &graph->op[maker];
  return narrow && narrow->kind == OP_narrow && narrow->in[0] == op->in[1] && narrow->dims == 8 &&
         !number_of(narrow, "start");
}

/* Some elements along a dimension. */
static int part(const struct op *origin, int x, int dim, int64_t first, int64_t size)
{
  struct shape shape = graph->value[x].shape;
  if (shape.size[dim] == size) return x;
  shape.size[dim] = size;
  struct op op = {.kind = OP_narrow, .nin = 1, .in = {x}, .dims = 1u << dim};
  set_number(&op, "start", first);
  return append_op_shaped(from_origin(origin, op), shape);
}

static int joined(const struct op *origin, const int *x, int n)
{
  if (n == 1) return x[0];
  struct op op = {.kind = OP_cat, .nin = n, .dims = 8};
  struct shape shape = graph->value[x[0]].shape;
  shape.size[3] = 0;
  for (int i = 0; i < n; i++) {
    op.in[i] = x[i];
    shape.size[3] += graph->value[x[i]].shape.size[3];
  }
  return append_op_shaped(from_origin(origin, op), shape);
}

/* Of a projection, the weight of each head's features: [heads, features, rank]. */
static int weight_of(const struct op *origin, const struct features *some, int64_t heads)
{
  const int64_t rank = graph->value[some->weight].shape.size[1];
  const struct shape by_head = {.ndim = 3, .size = {heads, some->of_head, rank}};
  return part(origin, viewed_from_origin(origin, some->weight, by_head), 1, some->first,
              some->size);
}

/* The attention over the latent in the place of the operation; false: it stays. */
static bool absorbed(int id, const void *unused, int *made)
{
  const struct op op = graph->op[id]; /* a copy: operations are added */
  struct absorbable a;
  (void)unused;
  if (!find_absorbable(&op, &a)) return false;
  const struct shape q = graph->value[op.in[0]].shape;
  const int64_t heads = q.size[1], tokens = q.size[2];
  int queries[MOST_FEATURES + 1], keys[MOST_FEATURES + 1], n = 1;
  int64_t at = 0;
  for (int i = 0; i < a.keys.n; at += a.keys.at[i++].size) {
    const struct features *some = &a.keys.at[i];
    const int own = part(&op, op.in[0], 3, at, some->size);
    if (some->latent == NONE) {
      const struct shape all = {
          .ndim = 4, .size = {1, 1, tokens, elements(graph->value[some->shared].shape) / tokens}};
      queries[n] = own;
      keys[n++] =
          part(&op, viewed_from_origin(&op, some->shared, all), 3, some->of_shared, some->size);
      continue;
    }
    queries[0] = product_from_origin(&op, "bhtd,hdr->bhtr", own, weight_of(&op, some, heads));
    keys[0] = viewed_from_origin(&op, some->latent,
                                 (struct shape){.ndim = 4, .size = {1, 1, tokens, a.rank}});
  }
  struct op attention = op;
  attention.in[0] = joined(&op, queries, n);
  attention.in[1] = joined(&op, keys, n);
  attention.in[2] = part(&op, attention.in[1], 3, 0, a.rank);
  const struct shape of_latent[2] = {{.ndim = 4, .size = {1, heads, tokens, a.rank}},
                                     {.ndim = 3, .size = {1, heads, tokens}}};
  const int y = append_op_outputs(attention, of_latent, 2);
  made[0] = product_from_origin(&op, "bhtr,her->bhte", y, weight_of(&op, &a.values.at[0], heads));
  return true;
}

void absorb(void)
{
  if (plan_options->generate.caches == SMALL_CACHES) replace_operations(absorbed, NULL);
}
