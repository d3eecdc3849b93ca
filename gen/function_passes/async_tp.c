/* async_tp.c: the pass `async_tp`: decomposed collective matmuls. Where the plan asks for async_tp,
   collectives along an outermost dimension are cut into chunks, and so are the matrix products next
   to them.

   Takes   functions with whole collectives and products.
   Leaves  an all_gather whose value products read row by row as one all_gather for each chunk, then
           the products, one chunk after the other: the rows of a chunk are computed while the next
           chunks travel. And products whose sum a reduce_scatter reduces as one product for each
           chunk, followed by the reduce_scatter of that chunk: it travels while the next chunk is
           computed. The products themselves add up the sum. overlap.c overlaps the chunks.

   With n members and C chunks, the dimension is seen as [n, C, size / n / C]: the second index is
   the number of the chunk, so that each member sends, or receives, a C-th of its part with each.
   All chunked operations take and make the same values as before, each a chunk of them. A gathered
   value has the same layout in memory as before, and readers of all of it are unchanged. A value to
   be reduced has no other reader, and is stored as [C, n, size / n / C]: each chunk is contiguous.

   Rows of a product do not depend on each other. So the results are the same, except for the order
   in which the products of a sum are added, and for a library's rounding with fewer rows.

   The number of chunks is the plan's; otherwise the quickest by the model of cost.c. A collective
   stays whole if no number is quicker: where products are small, links are fast, or other products
   overlap with a reduce_scatter anyway. A collective that cannot be cut stays whole, too; if that
   holds for everything that a line of the plan asks for, it is an error. graph->async_tp_result has
   the outcome for each. */
#include "function_passes/function_passes.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_PRODUCTS = 8, MOST_PIECES = 16 };

/* A collective and the products that are cut with it. */
struct line {
  int collective, value; /* the value that is gathered, or reduced */
  const struct async *asked;
  int nproduct, product[MOST_PRODUCTS]; /* in the order of the sum, or of the program */
  int64_t adding, other; /* adding: time of adding up whole terms; other: time of other
                              products */
};

/* The state of the pass. */
struct decomposing {
  struct function *f;
  int *place;          /* by operation: its place in the function, or NONE */
  int *readers;        /* by value: the operations that read it, anywhere */
  int *times_of;       /* by operation: the number of times that it runs in a step */
  const char *why_not; /* the reason why the last collective that was tried stays whole */
};

/* ------------------------------------------------------------------------- requests of the plan */

/* The index in plan_options->async, or NONE. */
static int asked_for(const struct op *op)
{
  const struct group *g = &graph->group[op->group];
  for (int i = 0; i < plan_options->nasync && g->n == 1; i++)
    if (plan_options->async[i].mesh_dim == g->dim[0]) {
      int module = op->module;
      int root = plan_options->async[i].module;
      while (module != NONE && module != root) module = graph->module[module].parent;
      if (module == root) return i;
    }
  return NONE;
}

/* The result recorded for the operation, or NULL. */
static struct async_tp_result *noted(int op)
{
  for (int i = 0; i < graph->nasync_tp_result; i++)
    if (graph->async_tp_result[i].op == op) return &graph->async_tp_result[i];
  return NULL;
}

static bool async_tp_refuse(struct decomposing *d, const char *why)
{
  d->why_not = why;
  return false;
}

/* Whether the members' parts along the dimension have equal size on all ranks, and are
   contiguous. */
static bool has_outer_parts(struct decomposing *d, int whole, int part, int dim)
{
  const struct value *v = &graph->value[whole], *p = &graph->value[part];
  int cut[MAX_MESH], parts = 1;
  for (int n = cuts_of(&graph->mesh, p->layout, dim, cut); n--;) parts *= graph->mesh.size[cut[n]];
  if (v->shape.size[dim] == 0 || v->shape.size[dim] % parts)
    return async_tp_refuse(d, text("its dimension %d of %" PRId64 " is cut in unequal parts", dim,
                                   v->shape.size[dim]));
  struct shape here = local_shape(whole, 0);
  for (int at = 0; dimension_at(whole, at) != dim; at++)
    if (here.size[dimension_at(whole, at)] != 1)
      return async_tp_refuse(d, text("its dimension %d is not outermost in memory", dim));
  return true;
}

static bool async_tp_is_plain(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == ACTIVATION && !v->is_output && !in_loop(value)->step && !v->pieces;
}

/* The letter of dimension `dim` of input i in the equation, if it is one of the rows or columns
   of the result; `*to` is the dimension there. */
static bool stays_in_output(const struct op *op, int i, int dim, int *to)
{
  const char *a = op->equation, *b = strchr(a, ',') + 1, *c = strchr(b, '>') + 1;
  char letter = (i ? b : a)[dim];
  size_t length = i ? strcspn(a, ",") : strcspn(b, "-");
  const char *at = strchr(c, letter);
  if (!at || memchr(i ? a : b, letter, length)) return false;
  *to = (int)(at - c);
  return true;
}

static bool is_whole_product(const struct op *op)
{
  return op->kind == OP_matmul && op->nin == 2 && op->in[0] != op->in[1] && !op->pieces &&
         async_tp_is_plain(op->out);
}

/* ----------------------------------------------------------------------------------- the pieces */

/* The operation for one of this number of chunks. */
static struct op piece_of_op(const struct line *l, int id, int pieces, int piece)
{
  const struct op *c = &graph->op[l->collective];
  struct op op = graph->op[id];
  op.pieces = pieces;
  op.piece = piece;
  if (op.kind != OP_matmul) return op;
  int i = gathers_shards(c->kind) && op.in[1] == l->value;
  int dim = c->dim;
  if (gathers_shards(c->kind)) stays_in_output(&op, i, c->dim, &dim);
  op.piece_group = c->group;
  op.piece_dim = (signed char)dim;
  return op;
}

/* Members' parts along the dimension, on rank 0. */
static int64_t part_size(const struct line *l)
{
  const struct op *c = &graph->op[l->collective];
  return local_shape(l->value, 0).size[c->dim] / group_size(c->group);
}

/* Whether a chunk of each product is one call, with a batch over the members. */
static bool has_simple_calls(const struct line *l, int pieces)
{
  const struct op *c = &graph->op[l->collective];
  bool simple = true, apart = scatters_sum(c->kind);
  for (int k = 0; k < l->nproduct; k++) {
    struct op op = piece_of_op(l, l->product[k], pieces, 0);
    if (apart) op.out = l->value;
    simple &= piece_calls(&op, 0, apart) <= group_size(c->group);
  }
  return simple;
}

/* The time of the collective and its products in this number of chunks, or whole, with other
   products that overlap anyway: these run after the products, so that nothing waits for them. */
static int64_t time_in_pieces(const struct line *l, int pieces)
{
  struct op c = pieces > 1 ? piece_of_op(l, l->collective, pieces, 0) : graph->op[l->collective];
  int64_t moving = time_taken(&c), computing = 0;
  for (int k = 0; k < l->nproduct; k++) {
    int id = l->product[k];
    struct op op = pieces > 1 ? piece_of_op(l, id, pieces, 0) : graph->op[id];
    computing += time_taken(&op);
  }
  if (pieces > 1 || l->other) moving += events_time();
  if (pieces == 1) computing += l->adding;
  int64_t in_sequence = moving + computing + (pieces - 1) * greater(moving, computing);
  return greater(in_sequence, pieces * computing + l->other);
}

static bool choose_by_model(struct decomposing *d, const struct line *l, struct async_tp_result *p)
{
  /* The quickest number of chunks, 2 or more; 0 if none is possible. */
  int64_t part = part_size(l);
  int best = 0;
  for (int n = 2; n <= MOST_PIECES; n++) {
    if (part % n || !has_simple_calls(l, n)) continue;
    int64_t time = time_in_pieces(l, n);
    if (best && time >= p->in_pieces) continue;
    best = n;
    p->in_pieces = time;
  }
  p->tried = best;
  if (!p->tried)
    return async_tp_refuse(d, text("no number from 2 to %d cuts a part of %" PRId64
                                   " so that each product is "
                                   "one call",
                                   MOST_PIECES, part_size(l)));
  p->whole = time_in_pieces(l, 1);
  if (p->in_pieces < p->whole) p->pieces = p->tried;
  return true;
}

/* The number of chunks; false if no number is possible, or not the plan's. */
static bool choose_pieces(struct decomposing *d, const struct line *l, struct async_tp_result *p)
{
  int64_t part = part_size(l);
  int asked = l->asked->pieces;
  if (!asked) return choose_by_model(d, l, p);
  if (part % asked)
    return async_tp_refuse(d, text("a part of %" PRId64 " is not cut in %d", part, asked));
  if (!has_simple_calls(l, asked))
    return async_tp_refuse(d, "a chunk of a product would not be one call");
  p->pieces = asked;
  return true;
}

static int async_tp_add_piece(const struct line *l, int id, int pieces, int piece)
{
  struct op op = piece_of_op(l, id, pieces, piece);
  if (piece == 0) {
    graph->op[id] = op;
    return id;
  }
  return store_op(op);
}

static void put_pieces(struct list *to, const struct line *l, int pieces)
{
  bool gathers = gathers_shards(graph->op[l->collective].kind);
  struct op whole[MOST_PRODUCTS + 1];
  for (int k = 0; k < l->nproduct; k++) whole[k] = graph->op[l->product[k]];
  graph->value[l->value].is_separate = !gathers;
  for (int k = 0; k < l->nproduct && !gathers; k++) {
    struct op *op = &graph->op[l->product[k]];
    op->out = l->value;
    if (k) op->in[op->nin++] = l->value;
  }
  if (!gathers) graph->value[l->value].op = l->product[0];
  for (int c = 0; c < pieces && gathers; c++)
    add(to, async_tp_add_piece(l, l->collective, pieces, c));
  for (int c = 0; c < pieces; c++) {
    for (int k = 0; k < l->nproduct; k++) add(to, async_tp_add_piece(l, l->product[k], pieces, c));
    if (!gathers) add(to, async_tp_add_piece(l, l->collective, pieces, c));
  }
  for (int k = 0; k < l->nproduct && gathers; k++) graph->value[whole[k].out].pieces = pieces;
  graph->value[l->value].pieces = pieces;
  graph->value[graph->op[l->collective].out].pieces = pieces;
}

/* ----------------------------------------------------------------------------------- all_gather */

/* Marks the operations after place `first` that must run before the operation; false if one of them
   depends on something marked `made`. */
static bool mark_needed(struct decomposing *d, int id, int first, int except, bool *needed,
                        const bool *made)
{
  const struct list read = values_read(&graph->op[id]);
  int n = read.n, reads[MAX_INPUTS];
  if (graph->op[id].kind == OP_loop || n > MAX_INPUTS) return false;
  memcpy(reads, read.at, (size_t)n * sizeof *reads);
  for (int i = 0; i < n; i++) {
    int maker = graph->value[reads[i]].op;
    if (reads[i] == except || maker == NONE || d->place[maker] < first) continue;
    if (made[d->place[maker]]) return false;
    if (needed[d->place[maker]]) continue;
    if (!mark_needed(d, maker, first, NONE, needed, made)) return false;
    needed[d->place[maker]] = true;
  }
  return true;
}

/* The products that read the gathered value row by row, and can all run before any other reader of
   it, or of them. Marks the operations that must come before. */
static void find_products(struct decomposing *d, struct line *l, bool *needed)
{
  int first = d->place[l->collective], to;
  int dim = graph->op[l->collective].dim;
  bool *made = alloc((size_t)d->f->nop + 1), *before = alloc((size_t)d->f->nop + 1);
  made[first] = true;
  for (int at = first + 1; at < d->f->nop && l->nproduct < MOST_PRODUCTS; at++) {
    const struct op *op = &graph->op[d->f->op[at]];
    if (op->kind == OP_loop) break;
    if (!is_whole_product(op) || (op->in[0] != l->value && op->in[1] != l->value)) continue;
    if (!stays_in_output(op, op->in[1] == l->value, dim, &to)) continue;
    memcpy(before, needed, (size_t)d->f->nop);
    if (!mark_needed(d, d->f->op[at], first, l->value, before, made)) continue;
    memcpy(needed, before, (size_t)d->f->nop);
    made[at] = true;
    l->product[l->nproduct++] = d->f->op[at];
  }
}

static bool decompose_gather(struct decomposing *d, int id, const struct async *asked,
                             struct async_tp_result *p)
{
  const struct op *op = &graph->op[id];
  struct line l = {.collective = id, .value = op->out, .asked = asked};
  bool *needed = alloc((size_t)d->f->nop + 1);
  if (!async_tp_is_plain(op->out)) return async_tp_refuse(d, "it is not a value of a step alone");
  if (!has_outer_parts(d, op->out, op->in[0], op->dim)) return false;
  find_products(d, &l, needed);
  if (!l.nproduct) return async_tp_refuse(d, "no product reads it row by row");
  if (!choose_pieces(d, &l, p)) return false;
  if (p->pieces) {
    /* The function's operations, with the chunks in the place of the gather, and before it the
       operations that its products need. */
    struct list all = {0};
    int first = d->place[l.collective];
    for (int at = 0; at < first; at++) add(&all, d->f->op[at]);
    for (int at = first; at < d->f->nop; at++)
      if (needed[at]) add(&all, d->f->op[at]);
    bool *taken = alloc((size_t)d->f->nop + 1);
    for (int k = 0; k < l.nproduct; k++) taken[d->place[l.product[k]]] = true;
    put_pieces(&all, &l, p->pieces);
    for (int at = first + 1; at < d->f->nop; at++)
      if (!needed[at] && !taken[at]) add(&all, d->f->op[at]);
    d->f->op = all.at;
    d->f->nop = all.n;
  }
  return true;
}

/* ------------------------------------------------------------------------------- reduce_scatter */

/* The products that add up to the value; false if the sum has other terms, or a product has
   another reader. gone: the places of the operations that add them. */
static bool async_tp_find_terms(struct decomposing *d, struct line *l, int value, int dim,
                                bool *gone)
{
  const struct value *v = &graph->value[value];
  if (!async_tp_is_plain(value) || d->readers[value] != 1 || v->op == NONE ||
      d->place[v->op] == NONE || l->nproduct == MOST_PRODUCTS)
    return false;
  const struct op *op = &graph->op[v->op];
  if (op->kind == OP_add) {
    for (int i = 0; i < 2; i++) {
      const struct value *term = &graph->value[op->in[i]];
      if (!same_shape(term->shape, v->shape) || !same_layout(term->layout, v->layout) ||
          term->type != v->type || term->order != v->order ||
          !async_tp_find_terms(d, l, op->in[i], dim, gone))
        return false;
    }
    gone[d->place[v->op]] = true;
    return true;
  }
  int to;
  if (!is_whole_product(op)) return false;
  for (int i = 0; i < 2; i++) {
    const struct value *in = &graph->value[op->in[i]];
    bool cut_too = in->pieces && gathers_shards(graph->op[in->op].kind);
    if (cut_too) return false;
    for (int at = 0; at < in->shape.ndim; at++)
      if (stays_in_output(op, i, at, &to) && to == dim) {
        gone[d->place[v->op]] = true;
        l->product[l->nproduct++] = v->op;
        return true;
      }
  }
  return false;
}

/* Whether a product of these reads the value, an activation. */
static bool reads(const struct line *l, int value)
{
  if (graph->value[value].role != ACTIVATION) return false;
  for (int k = 0; k < l->nproduct; k++) {
    const struct op *op = &graph->op[l->product[k]];
    if (op->in[0] == value || op->in[1] == value) return true;
  }
  return false;
}

/* The time of operations that only add up the products; and of other products that read the
   products' operands, and not the reduced value: a weight's gradient, where these make the gradient
   of its input. They can overlap with the whole collective. */
static void time_others(struct decomposing *d, struct line *l, const bool *gone)
{
  bool *mine = alloc((size_t)d->f->nop + 1), *after = alloc((size_t)graph->nvalue + 1);
  for (int k = 0; k < l->nproduct; k++) mine[d->place[l->product[k]]] = true;
  after[graph->op[l->collective].out] = true;
  for (int at = 0; at < d->f->nop; at++) {
    const struct op *op = &graph->op[d->f->op[at]];
    if (gone[at] && !mine[at]) l->adding += time_taken(op);
    bool waits = false;
    for (int i = 0; i < op->nin; i++) waits |= after[op->in[i]];
    for (int k = 0; k < op->nout; k++) after[op->out + k] |= waits;
    if (mine[at] || waits || op->kind != OP_matmul || op->pieces) continue;
    if (reads(l, op->in[0]) || reads(l, op->in[1])) l->other += time_taken(op);
  }
}

static bool decompose_scatter(struct decomposing *d, int id, const struct async *asked,
                              struct async_tp_result *p)
{
  const struct op *op = &graph->op[id];
  struct line l = {.collective = id, .value = op->in[0], .asked = asked};
  bool *gone = alloc((size_t)d->f->nop + 1);
  if (op->nbody || !async_tp_is_plain(op->out))
    return async_tp_refuse(d, "it is not a value of a step alone");
  if (!has_outer_parts(d, op->in[0], op->out, op->dim)) return false;
  if (!async_tp_find_terms(d, &l, op->in[0], op->dim, gone))
    return async_tp_refuse(d, "it is not a sum of products alone");
  time_others(d, &l, gone);
  if (!choose_pieces(d, &l, p)) return false;
  if (p->pieces) {
    int pieces = p->pieces;
    struct list all = {0};
    for (int at = 0; at < d->f->nop; at++)
      if (d->f->op[at] == l.collective)
        put_pieces(&all, &l, pieces);
      else if (!gone[at])
        add(&all, d->f->op[at]);
    d->f->op = all.at;
    d->f->nop = all.n;
  }
  return true;
}

/* ---------------------------------------------------------------------------------- the program */

static void async_tp_note_times(void *to, int id, int times)
{
  int *times_of = to;
  times_of[id] = times;
}

/* Checks that each line of the plan that asks for async_tp applies somewhere. A candidate of a
   search is the same program without it. */
static void refuse_unmet(const struct async *a)
{
  const struct async_tp_result *first = NULL;
  if (options.is_candidate) return;
  for (int i = 0; i < plan_options->nasync; i++)
    if (plan_options->async[i].line == a->line && plan_options->async[i].met) return;
  for (int i = 0; i < graph->nasync_tp_result && !first; i++)
    if (plan_options->async[graph->async_tp_result[i].async].line == a->line)
      first = &graph->async_tp_result[i];
  const char *why = graph->mesh.size[a->mesh_dim] == 1
                        ? "it has one rank"
                        : "there is no all_gather and no reduce_scatter: sequence parallelism "
                          "makes them, as by Rowwise{output_layouts = Shard(1)}";
  if (first)
    why = text("%s of %s: %s", op_row[graph->op[first->op].kind].name,
               printable(value_name(graph->op[first->op].in[0])), first->why_not);
  plan_error(a->line, "async_tp: over %s nothing can be cut into chunks: %s",
             printable(graph->mesh.name[a->mesh_dim]), why);
}

void async_tp(void)
{
  struct decomposing run = {0}, *d = &run;
  if (!plan_options->nasync) return;
  d->readers = count_readers();
  d->times_of = alloc((size_t)(graph->nop + 1) * sizeof *d->times_of);
  each_op(async_tp_note_times, d->times_of);
  for (int i = 0; i < graph->nfunction; i++) {
    d->f = &graph->function[i];
    if (d->f->phase != UPDATE) {
      for (int at = 0; at < d->f->nop; at++) {
        int id = d->f->op[at];
        const struct op *op = &graph->op[id];
        bool is_kind = gathers_shards(op->kind) || scatters_sum(op->kind);
        if (!is_kind || op->pieces || noted(id) || asked_for(op) == NONE) continue;
        /* Whether the function was changed for it. */
        int async = asked_for(op);
        struct async *asked = &plan_options->async[async];
        struct async_tp_result p = {.op = id, .async = async, .times = d->times_of[id]};
        d->place = alloc((size_t)(graph->nop + 1) * sizeof *d->place);
        for (int k = 0; k < graph->nop; k++) d->place[k] = NONE;
        for (int j = 0; j < d->f->nop; j++) d->place[d->f->op[j]] = j;
        bool gathers = gathers_shards(graph->op[id].kind);
        bool can =
            gathers ? decompose_gather(d, id, asked, &p) : decompose_scatter(d, id, asked, &p);
        if (!can) p.why_not = d->why_not;
        asked->met |= can;
        GROW(graph->async_tp_result, graph->nasync_tp_result, graph->async_tp_result_room);
        graph->async_tp_result[graph->nasync_tp_result++] = p;
        if (p.pieces) at = -1;
      }
    }
  }
  for (int i = 0; i < plan_options->nasync; i++) refuse_unmet(&plan_options->async[i]);
}
