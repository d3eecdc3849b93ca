/* written_attention.c: a part of the pass cut_time: attention that cached_attention does not serve
   is written as products, masks and a softmax. Biases by positions, sinks, a softcap and any mask
   that hides later tokens can be continued then: cut_pairs.c. Numbers of documents are written as
   cumulative sums and maxima of the tokens that end one. */
#include "graph_passes/graph_passes.h"

#include <string.h>

static const double least = -3.4028234663852886e38;

struct op from_origin(const struct op *origin, struct op op)
{
  op.module = origin->module;
  op.line = origin->line;
  op.part_of = origin->part_of ? origin->part_of : op_name(origin);
  op.node = origin->node;
  op.phase = origin->phase;
  return op;
}

static int written(const struct op *origin, enum op_kind kind, int a, int b)
{
  struct op op = {.kind = kind, .nin = b == NONE ? 1 : 2, .in = {a, b == NONE ? 0 : b}};
  return append_op(from_origin(origin, op));
}

static int scaled(const struct op *origin, int x, double by)
{
  const struct op op = {.kind = OP_scale, .nin = 1, .in = {x}, .scalar = by};
  return append_op(from_origin(origin, op));
}

int viewed_from_origin(const struct op *origin, int x, struct shape shape)
{
  if (same_shape(graph->value[x].shape, shape)) return x;
  struct op op = {.kind = OP_view, .nin = 1, .in = {x}};
  op.equation = view_equation(graph->value[x].shape, shape, origin->line);
  return append_op_shaped(from_origin(origin, op), shape);
}

static int number(const struct op *origin, double x, enum type type)
{
  const struct op op = {.kind = OP_full, .type = type, .scalar = x};
  return append_op_shaped(from_origin(origin, op), (struct shape){0});
}

int product_from_origin(const struct op *origin, const char *rule, int a, int b)
{
  const struct op op = {.kind = OP_matmul, .nin = 2, .in = {a, b}, .equation = rule};
  return append_op(from_origin(origin, op));
}

/* Hides the scores where the truth is 0. */
static int hidden(const struct op *origin, int scores, int truth)
{
  const struct op op = {
      .kind = OP_where, .nin = 3, .in = {truth, scores, number(origin, least, F32)}};
  return append_op(from_origin(origin, op));
}

static int over_keys(const struct op *origin, enum op_kind kind, int x)
{
  const struct op op = {
      .kind = kind, .nin = 1, .in = {x}, .dims = 8, .keepdim = true, .scalar = kind == OP_sum};
  return append_op(from_origin(origin, op));
}

static int places(const struct op *origin, int64_t n)
{
  const struct op op = {.kind = OP_index, .dims = 1, .type = I32};
  return append_op_shaped(from_origin(origin, op), (struct shape){.ndim = 1, .size = {n}});
}

/* How far back each key is from each query: [queries, keys]. */
static int distances(const struct op *origin, int64_t n)
{
  const int q =
      viewed_from_origin(origin, places(origin, n), (struct shape){.ndim = 2, .size = {n, 1}});
  return written(origin, OP_sub, q, places(origin, n));
}

static int masked(const struct op *op, int scores, int64_t n)
{
  const int64_t window = number_of(op, "window");
  int input = 3;
  if (number_of(op, "biased")) scores = written(op, OP_add, scores, op->in[input++]);
  if (number_of(op, "documents")) {
    const struct shape q = {.ndim = 4, .size = {1, 1, n, 1}}, k = {.ndim = 4, .size = {1, 1, 1, n}};
    const int same = written(op, OP_eq, viewed_from_origin(op, op->in[input], q),
                             viewed_from_origin(op, op->in[input + 1], k));
    scores = hidden(op, scores, same);
  }
  if (!number_of(op, "causal") && !window) return scores;
  const int back = distances(op, n);
  if (number_of(op, "causal"))
    scores = hidden(op, scores, written(op, OP_ge, back, number(op, 0, I32)));
  if (window)
    scores = hidden(op, scores, written(op, OP_lt, back, number(op, (double)window, I32)));
  if (window && !number_of(op, "causal"))
    scores = hidden(op, scores, written(op, OP_gt, back, number(op, -(double)window, I32)));
  return scores;
}

static int written_attention(const struct op *op)
{
  const struct shape q = graph->value[op->in[0]].shape, k = graph->value[op->in[1]].shape,
                     v = graph->value[op->in[2]].shape;
  const int64_t b = q.size[0], heads = q.size[1], groups = k.size[1], n = q.size[2], m = k.size[2];
  const int64_t each = heads / groups;
  const struct shape grouped = {.ndim = 5, .size = {b, groups, each, n, q.size[3]}};
  int x = product_from_origin(op, "bgrqd,bgkd->bgrqk", viewed_from_origin(op, op->in[0], grouped),
                              op->in[1]);
  x = viewed_from_origin(op, x, (struct shape){.ndim = 4, .size = {b, heads, n, m}});
  if (graph->value[x].type != F32)
    x = append_op(from_origin(op, (struct op){.kind = OP_cast, .nin = 1, .in = {x}, .type = F32}));
  x = scaled(op, x, op->scalar);
  if (op->softcap)
    x = scaled(op, written(op, OP_tanh, scaled(op, x, 1 / op->softcap), NONE), op->softcap);
  x = masked(op, x, n);
  const bool sinks = number_of(op, "sinks");
  if (sinks) {
    const struct shape column = {.ndim = 4, .size = {1, heads, 1, 1}};
    struct op expand = {.kind = OP_expand, .nin = 1, .dims = 4, .keepdim = true, .scalar = 1};
    expand.in[0] = viewed_from_origin(op, op->in[op->nin - 1], column);
    const struct shape rows = {.ndim = 4, .size = {b, heads, n, 1}};
    const int sink = append_op_shaped(from_origin(op, expand), rows);
    struct op cat = {.kind = OP_cat, .nin = 2, .in = {x, sink}, .dims = 8};
    x = append_op_shaped(from_origin(op, cat),
                         (struct shape){.ndim = 4, .size = {b, heads, n, m + 1}});
  }
  x = written(op, OP_exp, written(op, OP_sub, x, over_keys(op, OP_amax, x)), NONE);
  x = written(op, OP_div, x, over_keys(op, OP_sum, x));
  if (sinks)
    x = append_op_shaped(
        from_origin(op, (struct op){.kind = OP_narrow, .nin = 1, .in = {x}, .dims = 8}),
        (struct shape){.ndim = 4, .size = {b, heads, n, m}});
  if (graph->value[op->in[2]].type != F32)
    x = append_op(from_origin(
        op,
        (struct op){.kind = OP_cast, .nin = 1, .in = {x}, .type = graph->value[op->in[2]].type}));
  x = viewed_from_origin(op, x, (struct shape){.ndim = 5, .size = {b, groups, each, n, m}});
  x = product_from_origin(op, "bgrqk,bgke->bgrqe", x, op->in[2]);
  x = viewed_from_origin(op, x, (struct shape){.ndim = 4, .size = {b, heads, n, v.size[3]}});
  if (graph->value[x].type != graph->value[op->out].type)
    x = append_op(from_origin(
        op, (struct op){.kind = OP_cast, .nin = 1, .in = {x}, .type = graph->value[op->out].type}));
  return x;
}

/* Whether the attention over caches lacks it, and nothing says that it sees later tokens. */
static bool is_to_be_written(const struct op *op, int64_t length, bool again)
{
  const struct shape q = graph->value[op->in[0]].shape, k = graph->value[op->in[1]].shape;
  if (op->kind != OP_attention || number_of(op, "places") || number_of(op, "ring")) return false;
  if (q.size[0] != 1 || q.size[2] != length || k.size[2] != length) return false;
  if (again || number_of(op, "sinks") || op->softcap) return true;
  const char *why = "";
  return window_of_attention(op, length, &why) < 0 && strcmp(why, SEES_LATER) != 0;
}

/* The number of each token's document, and its place in it: a document begins behind a token
   eos. */
static void written_documents(const struct op *op, int *made)
{
  const struct shape shape = graph->value[op->in[0]].shape;
  const int dim = __builtin_ctz(op->dims);
  struct shape one_less = shape, along = {.ndim = shape.ndim};
  one_less.size[dim]--;
  for (int d = 0; d < shape.ndim; d++) along.size[d] = d == dim ? shape.size[d] : 1;
  const struct op cast = {.kind = OP_cast, .nin = 1, .type = F32};
  struct op as_float = cast, cut = {.kind = OP_narrow, .nin = 1, .dims = op->dims},
            shift = {.kind = OP_pad, .nin = 1, .dims = op->dims};
  as_float.in[0] = written(op, OP_eq, op->in[0], number(op, (double)number_of(op, "eos"), I32));
  cut.in[0] = append_op(from_origin(op, as_float));
  shift.in[0] = append_op_shaped(from_origin(op, cut), one_less);
  set_number(&shift, "before", 1);
  const int begins = append_op_shaped(from_origin(op, shift), shape);
  as_float.in[0] = places(op, shape.size[dim]);
  const int place = viewed_from_origin(op, append_op(from_origin(op, as_float)), along);
  const struct op begun = {
      .kind = OP_mul, .nin = 2, .in = {begins, place}}; /* the place of a document's first token */
  const struct op sum = {.kind = OP_cumsum, .nin = 1, .in = {begins}, .dims = op->dims};
  const struct op last = {
      .kind = OP_cummax, .nin = 1, .in = {append_op(from_origin(op, begun))}, .dims = op->dims};
  const int result[2] = {append_op(from_origin(op, sum)),
                         written(op, OP_sub, place, append_op(from_origin(op, last)))};
  for (int k = 0; k < 2; k++) {
    struct op whole = cast;
    whole.type = I32;
    whole.in[0] = result[k];
    made[k] = append_op(from_origin(op, whole));
  }
}

/* What write_out_attention is asked. */
struct writing {
  int64_t length;
  const bool *also; /* by operation, or NULL */
};

static bool written_if_needed(int id, const void *with, int *made)
{
  const struct writing *w = with;
  const struct op op = graph->op[id]; /* operations are added */
  if (op.kind == OP_documents) {
    written_documents(&op, made);
    return true;
  }
  if (!is_to_be_written(&op, w->length, w->also && w->also[id])) return false;
  made[0] = written_attention(&op);
  return true;
}

void write_out_attention(int64_t length, const bool *also)
{
  replace_operations(written_if_needed, &(struct writing){length, also});
}

void replace_operations(bool (*replacement)(int op, const void *with, int *made), const void *with)
{
  const int n = graph->norder, *order = graph->order, known = graph->nvalue;
  int *at = alloc((size_t)(n + 1) * sizeof *at), *now = alloc((size_t)(known + 1) * sizeof *now);
  for (int v = 0; v < known; v++) now[v] = v;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int i = 0; i < n; i++) {
    at[i] = graph->norder;
    struct op *op = &graph->op[order[i]];
    for (int k = 0; k < op->nin; k++)
      if (op->in[k] < known) op->in[k] = now[op->in[k]];
    const int out = op->out, nout = op->nout;
    int made[MAX_OUTPUTS];
    for (int k = 0; k < nout; k++) made[k] = NONE;
    if (!replacement(order[i], with, made)) {
      append_to_order(order[i]);
      continue;
    }
    for (int k = 0; k < nout; k++) {
      if (made[k] == NONE) continue;
      now[out + k] = made[k];
      graph->value[made[k]].name = graph->value[out + k].name;
    }
  }
  at[n] = graph->norder;
  for (int i = 0; i < graph->ncall; i++) {
    struct call *call = &graph->call[i];
    call->first = at[call->first];
    call->last = at[call->last];
    for (int k = 0; k < call->nin; k++) call->in[k] = now[call->in[k]];
    for (int k = 0; k < call->nout; k++) call->out[k] = now[call->out[k]];
  }
}
