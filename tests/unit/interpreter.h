/* interpreter.h: what a program means: a machine of simulated ranks that runs a graph, collectives
   included, as the generated C would (gen/emit/statement.c, gen/emit/collective.c), by the
   references of reference.h. */
#ifndef INTERPRETER_H
#define INTERPRETER_H

#include "check/check.h"
#include "reference.h"

/* ---------------------------------------------------------------------------------- the machine */

/* part[rank][value]: what each rank holds. */
struct machine {
  int world;
  struct array **part;
};

__attribute__((unused)) static struct machine new_machine(void)
{
  struct machine m = {.world = world_size()};
  m.part = alloc((size_t)m.world * sizeof *m.part);
  for (int r = 0; r < m.world; r++)
    m.part[r] = alloc((size_t)(graph->nvalue + 1) * sizeof **m.part);
  return m;
}

/* Gives every rank its part of a value. */
__attribute__((unused)) static void load(struct machine *m, int value, struct array whole)
{
  struct array *part = scatter_type(whole, graph->value[value].type, graph->value[value].layout);
  for (int r = 0; r < m->world; r++) m->part[r][value] = part[r];
}

/* NULL if the ranks' parts of `value` mean `whole`, else what is wrong. */
__attribute__((unused)) static const char *not_held(const struct machine *m, int value,
                                                    struct array whole, double tolerance)
{
  struct array *part = alloc((size_t)m->world * sizeof *part);
  for (int r = 0; r < m->world; r++) part[r] = m->part[r][value];
  return not_the_whole(part, whole, graph->value[value].layout, tolerance);
}

static int place_among(const int *member, int n, int rank)
{
  int k = 0;
  while (k < n && member[k] != rank) k++;
  must(k < n, "rank %d is not in its own group", rank);
  return k;
}

/* A collective's buffers are flat, and its counts are those that the generated call would name. */
static void run_all_reduce(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  must(give[0] == elements(out.shape), "all_reduce of %" PRId64 " elements into %s", give[0],
       shape_text(out.shape));
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == give[0],
         "all_reduce: rank %d brings %s, rank %d %" PRId64 " elements", member[k],
         shape_text(in.shape), rank, give[0]);
    for (int64_t i = 0; i < give[0]; i++)
      out.at[i] = k ? reduce_two(op->reduction, out.at[i], in.at[i]) : in.at[i];
  }
  m->part[rank][op->out] = out;
}

static void run_all_gather(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t start = 0;
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == give[k], "all_gather: rank %d brings %s, rank %d awaits %" PRId64,
         member[k], shape_text(in.shape), rank, give[k]);
    must(start + give[k] <= elements(out.shape), "all_gather overruns %s", shape_text(out.shape));
    for (int64_t i = 0; i < give[k]; i++) out.at[start + i] = in.at[i];
    start += give[k];
  }
  must(start == elements(out.shape), "all_gather fills %" PRId64 " elements of %s", start,
       shape_text(out.shape));
  m->part[rank][op->out] = out;
}

static void run_reduce_scatter(struct machine *m, const struct op *op, const int *member, int n,
                               int rank, const int64_t *give)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t start = 0, all = 0;
  for (int k = 0; k < n; k++) {
    if (k < place_among(member, n, rank)) start += give[k];
    if (member[k] == rank)
      must(give[k] == elements(out.shape), "reduce_scatter: %" PRId64 " elements into %s", give[k],
           shape_text(out.shape));
    all += give[k];
  }
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    must(elements(in.shape) == all, "reduce_scatter: rank %d brings %s, not %" PRId64 " elements",
         member[k], shape_text(in.shape), all);
    for (int64_t i = 0; i < elements(out.shape); i++)
      out.at[i] = k ? reduce_two(op->reduction, out.at[i], in.at[start + i]) : in.at[start + i];
  }
  m->part[rank][op->out] = out;
}

static void run_all_to_all(struct machine *m, const struct op *op, const int *member, int n,
                           int rank, const int64_t *get)
{
  struct array out = zeros(local_shape(op->out, rank));
  int64_t *theirs = take((size_t)n * sizeof *theirs), *unused = take((size_t)n * sizeof *unused);
  int64_t start = 0;
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    collective_counts(op, member[k], theirs, unused);
    int64_t from = 0, mine = 0, all = 0;
    for (int j = 0; j < n; j++) {
      if (j < place_among(member, n, rank)) from += theirs[j];
      if (member[j] == rank) mine = theirs[j];
      all += theirs[j];
    }
    must(mine == get[k], "all_to_all: rank %d sends %" PRId64 " to rank %d, which awaits %" PRId64,
         member[k], mine, rank, get[k]);
    must(all == elements(in.shape), "all_to_all: rank %d sends %" PRId64 " of %s", member[k], all,
         shape_text(in.shape));
    must(start + mine <= elements(out.shape), "all_to_all overruns %s", shape_text(out.shape));
    for (int64_t i = 0; i < mine; i++) out.at[start + i] = in.at[from + i];
    start += mine;
  }
  must(start == elements(out.shape), "all_to_all fills %" PRId64 " elements of %s", start,
       shape_text(out.shape));
  m->part[rank][op->out] = out;
}

/* The pieces that a rank gives or gets, and where each begins in the value that it lies in: in a
   flat buffer one after the other, else in the part itself. */
struct piece_list {
  int n;
  struct piece *at;
  int64_t *start;
};

static struct piece_list list_pieces(const struct op *op, int rank, bool given, bool flat)
{
  const struct exchange *e = &graph->exchange[op->exchange];
  size_t room = (size_t)group_size(e->group);
  struct piece_list p = {.at = take(room * sizeof *p.at), .start = take(room * sizeof *p.start)};
  p.n = (given ? pieces_sent : pieces_got)(&e->move, e->whole, rank, p.at);
  struct shape own = part_of(e->whole, given ? e->move.from : e->move.to, rank).shape;
  int64_t start = 0;
  for (int i = 0; i < p.n; i++) {
    p.start[i] = flat ? start : place_in_array(own, p.at[i].part.first);
    start += elements(p.at[i].part.shape);
  }
  return p;
}

static int piece_for(const struct piece_list *p, int member)
{
  for (int i = 0; i < p->n; i++)
    if (p->at[i].member == member) return i;
  return NONE;
}

/* An element that nobody has written yet. */
static struct array unwritten(struct shape shape)
{
  struct array t = zeros(shape);
  for (int64_t i = 0, n = elements(shape); i < n; i++) t.at[i] = NAN;
  return t;
}

static void run_exchange(struct machine *m, const struct op *op, const int *member, int n, int rank,
                         const int64_t *get)
{
  const struct exchange *e = &graph->exchange[op->exchange];
  bool packed = !find_traits(&e->move, e->whole).sends_runs,
       packs = !find_traits(&e->move, e->whole).gets_runs;
  int me = place_among(member, n, rank);
  bool idle = me < e->move.idle_first || me >= n - e->move.idle_last;
  struct array out = (idle ? zeros : unwritten)(local_shape(op->out, rank));
  struct piece_list mine = list_pieces(op, rank, false, packs);
  must(!idle || !mine.n, "exchange: rank %d is idle, and awaits pieces", rank);
  for (int k = 0; k < n; k++) {
    struct array in = m->part[member[k]][op->in[0]];
    struct piece_list theirs = list_pieces(op, member[k], true, packed);
    int i = piece_for(&mine, k), j = piece_for(&theirs, me);
    must((i == NONE) == (j == NONE), "exchange: one of rank %d and %d knows no piece", member[k],
         rank);
    int64_t count = i == NONE ? 0 : elements(mine.at[i].part.shape);
    must(i == NONE || count == elements(theirs.at[j].part.shape), "exchange: a piece differs");
    must(count == get[k], "exchange: rank %d awaits %" PRId64 " of rank %d, not %" PRId64, rank,
         get[k], member[k], count);
    if (!count) continue;
    must(theirs.start[j] + count <= elements(in.shape), "exchange: rank %d sends beyond %s",
         member[k], shape_text(in.shape));
    must(mine.start[i] + count <= elements(out.shape), "exchange: rank %d overruns %s", rank,
         shape_text(out.shape));
    memcpy(out.at + mine.start[i], in.at + theirs.start[j], (size_t)count * sizeof *out.at);
  }
  m->part[rank][op->out] = out;
}

/* The call for equal parts names one number for all. */
static void check_equal(const struct op *op, int rank, const int64_t *give, const int64_t *get,
                        int n)
{
  for (int k = 0; k < n && equal_parts(op, rank); k++)
    must(give[k] == give[0] && get[k] == get[0], "%s: equal parts of %" PRId64 " and %" PRId64,
         op_row[op->kind].name, give[0], give[k]);
}

static void run_collective(struct machine *m, const struct op *op, int rank)
{
  int n = group_size(op->group), *member = take((size_t)n * sizeof *member);
  int64_t *give = take((size_t)n * sizeof *give), *get = take((size_t)n * sizeof *get);
  group_members(op->group, rank, member);
  collective_counts(op, rank, give, get);
  if (op->kind != OP_exchange) check_equal(op, rank, give, get, n);
  switch (op->kind) {
  case OP_all_reduce:
    run_all_reduce(m, op, member, n, rank, give);
    break;
  case OP_all_gather:
    run_all_gather(m, op, member, n, rank, give);
    break;
  case OP_reduce_scatter:
    run_reduce_scatter(m, op, member, n, rank, give);
    break;
  case OP_exchange:
    run_exchange(m, op, member, n, rank, get);
    break;
  default:
    run_all_to_all(m, op, member, n, rank, get);
    break;
  }
}

static int64_t product(struct shape s, int first, int last)
{
  int64_t n = 1;
  for (int d = first; d < last; d++) n *= s.size[d];
  return n;
}

/* Copies a box of one tensor to another, given where it begins in each. */
static void copy_box(struct array to, const int64_t *at, struct array from, const int64_t *first,
                     struct shape box)
{
  int64_t index[MAX_DIMS] = {0}, here[MAX_DIMS], there[MAX_DIMS];
  if (!elements(box)) return;
  do {
    for (int d = 0; d < box.ndim; d++) {
      here[d] = index[d] + (at ? at[d] : 0);
      there[d] = index[d] + (first ? first[d] : 0);
      must(here[d] < to.shape.size[d] && there[d] < from.shape.size[d], "a box %s leaves %s or %s",
           shape_text(box), shape_text(to.shape), shape_text(from.shape));
    }
    to.at[place_in_array(to.shape, here)] = from.at[place_in_array(from.shape, there)];
  } while (next_index(box, index));
}

/* Where the rank's part under `inner` begins in its part under `outer`, which is cut less. */
static void begin_of(struct shape whole, struct layout inner, struct layout outer, int rank,
                     int64_t *begin)
{
  struct part a = part_of(whole, inner, rank), b = part_of(whole, outer, rank);
  for (int d = 0; d < whole.ndim; d++) begin[d] = a.first[d] - b.first[d];
}

static void run_slice(struct machine *m, const struct op *op, int rank)
{
  const struct value *in = &graph->value[op->in[0]], *made = &graph->value[op->out];
  struct array out = zeros(local_shape(op->out, rank));
  int64_t begin[MAX_DIMS];
  begin_of(in->shape, made->layout, in->layout, rank, begin);
  copy_box(out, NULL, m->part[rank][op->in[0]], begin, out.shape);
  m->part[rank][op->out] = out;
}

/* The part of the value that the place-th of the group's members has, or gets, lies in the value of
   `rank` from there on; and in its chunk of the buffer one row after the other. */
static struct shape member_part(const struct op *bucket, int k, int of, int64_t *begin)
{
  const struct op *op = &graph->op[bucket->body[k]];
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  bool gathers = bucket->kind == OP_all_gather;
  struct layout part = gathers ? in->layout : out->layout,
                whole = gathers ? out->layout : in->layout;
  begin_of(in->shape, part, whole, of, begin);
  return part_of(in->shape, part, of).shape;
}

static int64_t chunk_start(const struct op *op, int place, int k)
{
  return place * bucket_chunk(op, op->nbody) + bucket_chunk(op, k);
}

/* Each member's part into the rank's chunk; of a reduction what it has of each rank's into
   theirs. */
static void copy_in(struct machine *m, const struct op *op, const int *member, int n, int rank)
{
  double *buffer = m->part[rank][op->buffer].at;
  int64_t begin[MAX_DIMS];
  for (int k = 0; k < op->nbody; k++) {
    struct array in = m->part[rank][graph->op[op->body[k]].in[0]];
    for (int place = 0; place < n; place++) {
      bool own = member[place] == rank;
      if (op->kind == OP_all_gather && !own) continue;
      struct shape part = member_part(op, k, member[place], begin);
      must(elements(part) <= bucket_chunk(op, k + 1) - bucket_chunk(op, k),
           "member %d overruns its place in a chunk", k);
      copy_box((struct array){part, buffer + chunk_start(op, place, k)}, NULL, in,
               op->kind == OP_all_gather ? NULL : begin, part);
    }
  }
}

static void copy_out(struct machine *m, const struct op *op, const int *member, int n, int rank)
{
  double *buffer = m->part[rank][op->buffer].at;
  int64_t begin[MAX_DIMS];
  for (int k = 0; k < op->nbody; k++) {
    struct array out = unwritten(local_shape(graph->op[op->body[k]].out, rank));
    for (int place = 0; place < n; place++) {
      if (op->kind == OP_reduce_scatter && member[place] != rank) continue;
      struct shape part = member_part(op, k, member[place], begin);
      copy_box(out, op->kind == OP_all_gather ? begin : NULL,
               (struct array){part, buffer + chunk_start(op, place, k)}, NULL, part);
    }
    m->part[rank][graph->op[op->body[k]].out] = out;
  }
}

/* A bucket of gathers or scatters as its call would run it: on chunks of equal length, the members'
   own in their buffers. What pads them is no number. */
static void run_chunks(struct machine *m, const struct op *op)
{
  int n = group_size(op->group), *member = take((size_t)n * sizeof *member);
  int64_t chunk = bucket_chunk(op, op->nbody);
  for (int r = 0; r < m->world; r++) {
    struct array *buffer = &m->part[r][op->buffer];
    if (!buffer->at) *buffer = zeros(graph->value[op->buffer].shape);
    must(elements(buffer->shape) == n * chunk, "a buffer of %s for %d chunks of %" PRId64,
         shape_text(buffer->shape), n, chunk);
    for (int64_t i = 0; i < n * chunk; i++) buffer->at[i] = NAN;
    group_members(op->group, r, member);
    copy_in(m, op, member, n, r);
  }
  for (int r = 0; r < m->world; r++) {
    group_members(op->group, r, member);
    int me = place_among(member, n, r);
    struct array mine = m->part[r][op->buffer];
    for (int k = 0; k < n; k++) {
      struct array theirs = m->part[member[k]][op->buffer];
      for (int64_t i = 0; i < chunk; i++) {
        double *at = &mine.at[(op->kind == OP_all_gather ? k : me) * chunk + i];
        if (op->kind == OP_all_gather) *at = theirs.at[k * chunk + i];
        if (op->kind == OP_reduce_scatter && k != me)
          *at = reduce_two(op->reduction, *at, theirs.at[me * chunk + i]);
      }
    }
  }
  for (int r = 0; r < m->world; r++) {
    group_members(op->group, r, member);
    copy_out(m, op, member, n, r);
  }
}

static void run_pieces(struct machine *m, const struct op *op, int rank)
{
  bool pack = op->kind == OP_pack_pieces;
  struct array in = m->part[rank][op->in[0]], out = unwritten(local_shape(op->out, rank));
  struct piece_list p = list_pieces(op, rank, pack, true);
  for (int i = 0; i < p.n; i++) {
    struct shape box = p.at[i].part.shape;
    must(p.start[i] + elements(box) <= elements(pack ? out.shape : in.shape),
         "%s: the pieces overrun %s", op_row[op->kind].name,
         shape_text(pack ? out.shape : in.shape));
    struct array piece = {box, (pack ? out : in).at + p.start[i]};
    if (pack)
      copy_box(piece, NULL, in, p.at[i].part.first, box);
    else
      copy_box(out, p.at[i].part.first, piece, NULL, box);
  }
  m->part[rank][op->out] = out;
}

/* As pack_text: between rows that hold_part a interval of every part, and the parts one after the
   other. */
static void run_pack(struct machine *m, const struct op *op, int rank)
{
  struct array in = m->part[rank][op->in[0]], out = zeros(local_shape(op->out, rank));
  must(elements(in.shape) == elements(out.shape), "%s changes the size", op_row[op->kind].name);
  int n = group_size(op->group), *member = take((size_t)n * sizeof *member);
  group_members(op->group, rank, member);
  int64_t inner = product(in.shape, op->dim + 1, in.shape.ndim),
          rows = product(in.shape, 0, op->dim);
  int64_t of = in.shape.size[op->dim] * inner, begin = 0;
  for (int p = 0; p < n; p++) {
    struct part part = part_of(graph->value[op->in[0]].shape, op->to, member[p]);
    int64_t length = part.shape.size[op->dim] * inner;
    must(begin + length <= of, "%s: the parts overrun %s", op_row[op->kind].name,
         shape_text(in.shape));
    for (int64_t row = 0; row < rows; row++)
      for (int64_t i = 0; i < length; i++) {
        int64_t in_row = row * of + begin + i, in_part = rows * begin + row * length + i;
        if (op->kind == OP_pack)
          out.at[in_part] = in.at[in_row];
        else
          out.at[in_row] = in.at[in_part];
      }
    begin += length;
  }
  must(begin == of, "%s: the parts fill %" PRId64 " of %" PRId64, op_row[op->kind].name, begin, of);
  m->part[rank][op->out] = out;
}

/* What changes nothing in a reduction. */
static double neutral(enum reduction how)
{
  return how == SUM ? 0 : how == MAX ? -INFINITY : INFINITY;
}

/* Each rank has its part, in a place of its own among what changes nothing; of what several have
   the first has it for a sum. */
static void run_to_partial(struct machine *m, const struct op *op, int rank)
{
  const struct value *in = &graph->value[op->in[0]], *made = &graph->value[op->out];
  struct array out = zeros(local_shape(op->out, rank)), own = m->part[rank][op->in[0]];
  int coordinate[MAX_MESH];
  int64_t begin[MAX_DIMS];
  bool first = true;
  coordinate_of(rank, coordinate);
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (in->layout.on[d].kind == REPLICATE && made->layout.on[d].kind == PARTIAL)
      first &= coordinate[d] == 0;
  for (int64_t i = 0, n = elements(out.shape); i < n; i++) out.at[i] = neutral(op->reduction);
  begin_of(in->shape, in->layout, made->layout, rank, begin);
  if (op->reduction != SUM || first) copy_box(out, begin, own, NULL, own.shape);
  m->part[rank][op->out] = out;
}

/* Every rank does its part of an operation with a rule. */
static void run_row(struct machine *m, const struct op *op)
{
  struct layout in_layout[MAX_INPUTS], out_layout[MAX_OUTPUTS];
  struct letters l;
  op_letters(op, &l);
  for (int i = 0; i < op->nin; i++) in_layout[i] = graph->value[op->in[i]].layout;
  for (int k = 0; k < op->nout; k++) out_layout[k] = graph->value[op->out + k].layout;
  for (int r = 0; r < m->world; r++) {
    struct array in[MAX_INPUTS], out[MAX_OUTPUTS];
    for (int i = 0; i < op->nin; i++) in[i] = m->part[r][op->in[i]];
    for (int k = 0; k < op->nout; k++) out[k] = zeros(local_shape(op->out + k, r));
    struct places at = places_at(op, &l, in_layout, out_layout, r);
    must(evaluate(op, in, out, &at), "%s: the parts of rank %d do not fit", op_name(op), r);
    for (int k = 0; k < op->nout; k++) m->part[r][op->out + k] = out[k];
  }
}

/* Runs one operation on all ranks. */
static void run_op(struct machine *m, const struct op *op)
{
  if (*rule_of(op)) {
    run_row(m, op);
    return;
  }
  if (op->packed && op->kind != OP_all_reduce) {
    run_chunks(m, op);
    return;
  }
  for (int r = 0; r < m->world; r++) {
    if (is_collective(op->kind))
      run_collective(m, op, r);
    else if (op->kind == OP_slice)
      run_slice(m, op, r);
    else if (op->kind == OP_pack || op->kind == OP_unpack)
      run_pack(m, op, r);
    else if (op->kind == OP_pack_pieces || op->kind == OP_unpack_pieces)
      run_pieces(m, op, r);
    else if (op->kind == OP_to_partial)
      run_to_partial(m, op, r);
    else
      give_up("the machine cannot run %s", op_name(op));
  }
}

/* What the flat program means on whole arrays, whatever the layouts: whole[value] for each value.
   The arrays of what no operation makes are given. */
__attribute__((unused)) static void run_whole(struct array *whole)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    struct array in[MAX_INPUTS];
    if (op->out == NONE) continue;
    for (int k = 0; k < op->nin; k++) in[k] = whole[op->in[k]];
    if (op->kind == OP_redistribute) {
      whole[op->out] = in[0];
      continue;
    }
    for (int k = 0; k < op->nout; k++) whole[op->out + k] = zeros(graph->value[op->out + k].shape);
    must(evaluate(op, in, whole + op->out, NULL), "%s: the inputs do not fit", op_name(op));
  }
}

/* Runs the flat program, from its first operation to its last, but for the updates. */
__attribute__((unused)) static void run_flat(struct machine *m)
{
  for (int i = 0; i < graph->norder; i++) {
    const struct op *op = &graph->op[graph->order[i]];
    if (op->out != NONE) run_op(m, op);
  }
}

#endif
