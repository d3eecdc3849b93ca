/* collective.c: the calls of collectives, whose forms are in the rows of ir/collectives.h.

   Sizes are literals in the call, and ranks of equal shapes run the same text. But the elements
   that a rank sends in an exchange, and their receivers, may differ between such ranks: they are in
   a table in rank<N>.c, which the call names. */
#include "emit/emit.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { LARGE_BYTES = 1 << 18 };

static const struct calls *forms_of_calls(enum op_kind kind)
{
  return &collective_row[kind].calls[target->library];
}

/* ----------------------------------------------------------------------------------------- text */

char *list_text(const char *type, const char *name, const int64_t *n, int ranks, bool starts)
{
  enum { MANY = 64 };
  struct buffer b = {0};
  int64_t at = 0;
  int listed = ranks;
  while (listed > 1 && !n[listed - 1]) listed--;
  bool all = ranks - listed < MANY;
  if (all) listed = ranks;
  put(&b, "    static const %s %s[%s] = {", type, name, all ? "" : text("%d", ranks));
  for (int r = 0; r < listed; r++) {
    put(&b, "%s%" PRId64, r ? ", " : "", starts ? at : n[r]);
    at += n[r];
  }
  put(&b, "};\n");
  return b.text;
}

static const char *pointer_or_null(int value)
{
  const char *name = c_name(value);
  return name ? name : text("(%s *)NULL", c_type(graph->value[value].type));
}

/* ------------------------------------------------------------------------------------ exchanges */

/* By library. $x is the rank's table. $in_at and $out_at are the beginnings of the one piece that
   it sends, or receives; $kept_in and $kept_out those of the piece that stays. $all_bytes$: of the
   rank's whole part, after it. */
static const struct {
  const char *all, *permutation, *kept, *idle;
} exchange_row[LIBRARIES] = {
    {"COLLECTIVE($line$, MPI_Alltoallv($in$, $x$.give, $x$.give_at, $type$, $out$, $x$.get, "
     "$x$.get_at, "
     "$type$, $group$));",
     "COLLECTIVE($line$, MPI_Sendrecv($in_at$, $x$.give[0], $type$, $x$.to, 0, $out_at$, "
     "$x$.get[0], "
     "$type$, $x$.from, 0, $group$, MPI_STATUS_IGNORE));",
     "if ($x$.give[1] > 0)\n    memcpy($kept_out$, $kept_in$, (size_t)$x$.give[1] * $bytes$);",
     "if ($x$.from == NOBODY) memset($out$, 0, $all_bytes$); // it needs no block"},
    {"CHECK_NCCL(ncclGroupStart());\n"
     "  for (int r = 0; r < $ranks$; r++) {\n"
     "    if ($x$.give[r] > 0)\n"
     "      CHECK_NCCL(ncclSend($in$ + $x$.give_at[r], $x$.give[r], $type$, r, $group$, "
     "$stream$));\n"
     "    if ($x$.get[r] > 0)\n"
     "      CHECK_NCCL(ncclRecv($out$ + $x$.get_at[r], $x$.get[r], $type$, r, $group$, "
     "$stream$));\n"
     "  }\n"
     "  COLLECTIVE($line$, $stream$, ncclGroupEnd());",
     "CHECK_NCCL(ncclGroupStart());\n"
     "  if ($x$.to != NOBODY)\n"
     "    CHECK_NCCL(ncclSend($in_at$, $x$.give[0], $type$, $x$.to, $group$, $stream$));\n"
     "  if ($x$.from != NOBODY)\n"
     "    CHECK_NCCL(ncclRecv($out_at$, $x$.get[0], $type$, $x$.from, $group$, "
     "$stream$));\n"
     "  COLLECTIVE($line$, $stream$, ncclGroupEnd());",
     "if ($x$.give[1] > 0)\n"
     "    CHECK_CUDA(cudaMemcpyAsync($kept_out$, $kept_in$, $x$.give[1] * $bytes$, "
     "cudaMemcpyDeviceToDevice, $stream$));",
     "if ($x$.from == NOBODY) // it needs no block\n"
     "    CHECK_CUDA(cudaMemsetAsync($out$, 0, $all_bytes$, $stream$));"}};

/* Whether some rank keeps a piece of its part. */
static bool is_kept_piece(const struct exchange *x)
{
  struct piece *list = count_buffer(PIECES, group_size(x->group), sizeof *list);
  for (int rank = 0; rank < world_size(); rank++) {
    int own = place_in_group(x->group, rank);
    for (int i = 0, n = pieces_sent(&x->move, x->whole, rank, list); i < n; i++)
      if (list[i].member == own) return true;
  }
  return false;
}

/* Whether all ranks have the parts, before and after, that they have in micro-batch 0. */
static bool has_first_parts(const struct exchange *x, int microbatch)
{
  for (int rank = 0; rank < world_size(); rank++)
    for (int after = 0; after < 2; after++) {
      const struct layout *layout = after ? &x->move.to : &x->move.from;
      int coordinate[MAX_MESH];
      graph->mesh.now = 0;
      coordinate_of(rank, coordinate);
      struct shape first = local_part(&graph->mesh, x->whole, *layout, coordinate).shape;
      graph->mesh.now = microbatch;
      coordinate_of(rank, coordinate);
      struct shape here = local_part(&graph->mesh, x->whole, *layout, coordinate).shape;
      if (!same_shape(first, here)) return false;
    }
  return true;
}

/* The rows of a rank's table of exchanges: one for each exchange, and after these one for each
   exchange that has other parts in micro-batches of a later size. */
static struct {
  int n;
  int *row; /* by size and exchange */
} exchange_rows;

static void find_exchange_rows(void)
{
  static const struct graph *of;
  const int now = graph->mesh.now, sizes = sizes_of_step()->n;
  if (!is_other_graph(&of)) return;
  exchange_rows.row = alloc((size_t)(sizes * graph->nexchange + 1) * sizeof *exchange_rows.row);
  exchange_rows.n = graph->nexchange;
  for (int size = 0; size < sizes; size++)
    for (int k = 0; k < graph->nexchange; k++) {
      const int microbatch = sizes_of_step()->at[size];
      bool is_first = !size || has_first_parts(&graph->exchange[k], microbatch);
      exchange_rows.row[size * graph->nexchange + k] = is_first ? k : exchange_rows.n++;
    }
  graph->mesh.now = now;
}

const char *exchange_row_text(const struct op *op)
{
  find_exchange_rows();
  const int size = size_of_microbatch(sizes_of_step(), graph->mesh.now);
  return text("rank->exchange[%d]", exchange_rows.row[size * graph->nexchange + op->exchange]);
}

/* "x + rank->exchange[0].give_at[1]"; no pointer into an empty part. */
static const char *advanced(int value, const char *x, const char *by)
{
  return c_name(value) ? text("%s + %s.%s", c_name(value), x, by) : pointer_or_null(value);
}

static char *exchange_text(const struct op *op, int rank)
{
  const struct exchange *x = exchange_of(op);
  const char *table = exchange_row_text(op);
  bool permutes = transfer_traits(x)->permutes;
  const char *form =
      permutes ? exchange_row[target->library].permutation : exchange_row[target->library].all;
  int in = op->in[0], out = op->out;
  if (permutes && is_kept_piece(x) && c_name(in) && c_name(out))
    form = text("%s\n  %s", form, exchange_row[target->library].kept);
  int64_t bytes = elements_of_rank(out, rank) * type_bytes(x->type);
  if ((x->move.idle_first || x->move.idle_last) && bytes)
    form = text("%s\n  %s", form, exchange_row[target->library].idle);
  return fill(form, "x", table, "in", pointer_or_null(in), "out", pointer_or_null(out), "in_at",
              advanced(in, table, "give_at[0]"), "out_at", advanced(out, table, "get_at[0]"),
              "kept_in", advanced(in, table, "give_at[1]"), "kept_out",
              advanced(out, table, "get_at[1]"), "type", library_type(x->type), "bytes",
              text("%" PRId64, type_bytes(x->type)), "all_bytes", text("%" PRId64, bytes), "group",
              group_name(op->group), "ranks", text("%d", group_size(op->group)), "line",
              plan_line_text(op->line), "stream", collective_stream(op), NULL);
}

/* ----------------------------------------------------------- the tables of exchanges in rank<N> */

/* "static const counted give_0[] = {4, 4}, give_at_0[] = {0, 4};" */
static void put_counts(struct buffer *b, const char *name, int k, const int64_t *count,
                       const int64_t *starts, int n)
{
  struct buffer line = {0};
  put(&line, "static const counted %s_%d[] = {", name, k);
  for (int i = 0; i < n; i++) put(&line, "%s%" PRId64, i ? ", " : "", count[i]);
  put(&line, "}, %s_at_%d[] = {", name, k);
  for (int i = 0; i < n; i++) put(&line, "%s%" PRId64, i ? ", " : "", starts[i]);
  put(&line, "};");
  put(b, "%s\n", wrapped(line.text, ", ", "    "));
}

/* For a permutation: the other rank's number, then the rank's own. Returns the other, or NONE. */
static int two_of(int64_t *count, int64_t *starts, int n, int own)
{
  int other = NONE;
  for (int r = 0; r < n; r++)
    if (r != own && count[r]) other = r;
  int64_t counts[] = {other == NONE ? 0 : count[other], count[own]};
  int64_t begins[] = {other == NONE ? 0 : starts[other], starts[own]};
  memcpy(count, counts, sizeof counts);
  memcpy(starts, begins, sizeof begins);
  return other;
}

static void put_sizes(struct buffer *b, const int64_t *size, int ndim)
{
  put(b, "{");
  for (int d = 0; d < ndim; d++) put(b, "%s%" PRId64, d ? ", " : "", size[d]);
  put(b, ndim ? "}" : "0}");
}

/* The boxes that are packed, or unpacked; returns the text with which the table of the exchange
   refers to them. */
static char *put_boxes(struct buffer *b, const struct exchange *x, int k, int rank, bool gives)
{
  const char *name = gives ? "pack" : "unpack";
  int n = group_size(x->group), coordinate[MAX_MESH];
  if (gives ? transfer_traits(x)->sends_runs : transfer_traits(x)->gets_runs)
    return "{0, {0}, 0, NULL}";
  struct piece *list = count_buffer(PIECES, n, sizeof *list);
  int npiece = (gives ? pieces_sent : pieces_got)(&x->move, x->whole, rank, list);
  if (!npiece) return "{0, {0}, 0, NULL}";
  const int *member = members_of(x->group, rank);
  coordinate_of(rank, coordinate);
  struct shape here =
      local_part(&graph->mesh, x->whole, gives ? x->move.from : x->move.to, coordinate).shape;
  int64_t at = 0;
  put(b, "static const struct piece %s_%d[] = {\n", name, k);
  for (int i = 0; i < npiece; i++) {
    struct buffer row = {0};
    put(&row, "{%" PRId64 ", ", at);
    put_sizes(&row, list[i].part.first, here.ndim);
    put(&row, ", ");
    put_sizes(&row, list[i].part.shape.size, here.ndim);
    put(&row, "},");
    put(b, "    %-30s // %s rank %d\n", row.text, gives ? "to" : "from", member[list[i].member]);
    at += elements(list[i].part.shape);
  }
  put(b, "};\n");
  struct buffer tells = {0};
  put(&tells, "{%d, ", here.ndim);
  put_sizes(&tells, here.size, here.ndim);
  put(&tells, ", %d, %s_%d}", npiece, name, k);
  return tells.text;
}

/* The plan's line of the first operation with this exchange. */
static int line_of_collective(int k)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_exchange && graph->op[i].exchange == k) return graph->op[i].line;
  return 0;
}

/* One exchange's tables, and its row in the table of all. */
static char *put_exchange(struct buffer *b, int exchange, int k, int rank)
{
  const struct exchange *x = &graph->exchange[exchange];
  int n = group_size(x->group), own = place_in_group(x->group, rank), to = NONE, from = NONE;
  size_t room = (size_t)(n < 2 ? 2 : n) * sizeof(int64_t);
  int64_t *give = alloc(room), *give_at = alloc(room), *get = alloc(room), *get_at = alloc(room);
  count_pieces(x, rank, true, give, give_at);
  count_pieces(x, rank, false, get, get_at);
  int64_t given = 0, got = 0;
  for (int r = 0; r < n; r++) given += give[r], got += get[r];
  check_count(line_of_collective(exchange), given > got ? given : got);
  bool permutes = transfer_traits(x)->permutes;
  const char *title =
      text("// Exchange %d, of %s%s over %s: %s -> %s.%s%s", k, type_name(x->type),
           shape_text(x->whole), printable(graph->group[x->group].name), layout_text(x->move.from),
           layout_text(x->move.to), permutes ? " For one other rank each, and for what stays." : "",
           graph->mesh.now ? text(" For micro-batches from %d on.", graph->mesh.now) : "");
  put(b, "\n%s\n", wrapped(title, " ", "// "));
  if (permutes) {
    to = two_of(give, give_at, n, own);
    from = two_of(get, get_at, n, own);
    n = 2;
  }
  put_counts(b, "give", k, give, give_at, n);
  put_counts(b, "get", k, get, get_at, n);
  char *pack = put_boxes(b, x, k, rank, true), *unpack = put_boxes(b, x, k, rank, false);
  const char *nobody = "NOBODY";
  return text("    {give_%d, give_at_%d, get_%d, get_at_%d, %s, %s,\n     %s,\n     %s},\n", k, k,
              k, k, to == NONE ? nobody : text("%d", to), from == NONE ? nobody : text("%d", from),
              pack, unpack);
}

char *exchanges_text(int rank)
{
  struct buffer b = {0}, rows = {0};
  if (!graph->nexchange) return "";
  put(&b, "\n// What this rank sends and receives in exchanges, for each member of the group: ");
  put(&b, "how many elements,\n// and where they begin; and the boxes of ");
  put(&b, "its parts before and after.\n");
  find_exchange_rows();
  for (int size = NONE, n = 0; next_size(sizes_of_step(), &size);)
    for (int k = 0; k < graph->nexchange; k++)
      if (exchange_rows.row[size * graph->nexchange + k] == n)
        put(&rows, "%s", put_exchange(&b, k, n++, rank));
  put(&b, "\nstatic const struct exchange exchange[] = {\n%s};\n", rows.text);
  return b.text;
}

/* ---------------------------------------------------------------------------- other collectives */

/* The operands of the call, in C. */
struct ends {
  const char *in, *out;
};

/* A part of a packed collective that is already in memory like its chunk: its members one by
   one. */
static const char *chunk_in_memory(const struct op *op, int value)
{
  return member_run(value, c_name(value), bucket_chunk(op, op->nbody));
}

/* n: the elements that it moves. */
static struct ends ends_of(const struct op *op, int64_t n)
{
  if (has_chunks(op)) { /* NCCL works in place if the pointers are equal, MPI by MPI_IN_PLACE */
    bool gather = gathers_shards(op->kind);
    const char *buffer = c_name(op->buffer), *own = own_chunk_text(op);
    if (gather && lies_as_chunk(op)) return (struct ends){chunk_in_memory(op, op->in[0]), buffer};
    if (lies_as_chunk(op)) return (struct ends){buffer, chunk_in_memory(op, op->out)};
    if (*library()->in_place) return (struct ends){library()->in_place, buffer};
    return gather ? (struct ends){own, buffer} : (struct ends){buffer, own};
  }
  /* The result of a collective, or the start of a bucket. */
  int out = op->buffer;
  if (!op->packed) {
    int first = op->out;
    for (int k = op->nbody; k-- > 0;) {
      const struct op *inner = &graph->op[op->body[k]];
      if (!same_place(inner->in[0], inner->out))
        bug_at("emit", op->body[k], "a bucket's gradient is not reduced in its place");
      if (c_name(inner->out)) first = inner->out;
    }
    out = first;
  }
  bool in_place = op->nbody || same_place(op->in[0], op->out);
  if (!in_place) return (struct ends){pointer_or_null(op->in[0]), pointer_or_null(out)};
  const char *all = op->packed ? pointer_or_null(out) : member_run(out, pointer_or_null(out), n);
  return (struct ends){*library()->in_place ? library()->in_place : all, all};
}

/* "done[3]"; with several iterations in flight "done[3 + l % 2]". */
static char *collective_event(const struct op *begun)
{
  if (scheduled(begun)->prefetch_distance < 2) return text("done[%d]", scheduled(begun)->event);
  return scheduled(begun)->event ? text("done[%d + l %% %d]", scheduled(begun)->event,
                                        scheduled(begun)->prefetch_distance)
                                 : text("done[l %% %d]", scheduled(begun)->prefetch_distance);
}

static const char *offset_pointer(int value, int64_t offset)
{
  return offset ? text("%s + %" PRId64, pointer_or_null(value), offset) : pointer_or_null(value);
}

/* The call for equal parts of n elements. */
static const char *equal_form(const struct op *op, int64_t n)
{
  const struct calls *calls = forms_of_calls(op->kind);
  bool large = n * group_size(op->group) * type_bytes(moved_type(op)) >= LARGE_BYTES;
  return large && calls->large && !runs_beside(op) ? calls->large : calls->equal;
}

/* The call of MPI that does not wait: MPI_Iallgather for MPI_Allgather. $event$ is its request. */
static const char *without_wait(const char *form)
{
  static const char mpi[] = "MPI_", end[] = "$group$));";
  const char *name = strstr(form, mpi), *last = strstr(form, end);
  if (!name || !last) bug("emit", "no call without a wait: %s", form);
  name += strlen(mpi);
  return text("%.*sbegun(&$event$, MPI_I%c%.*s$group$, &$event$)));", (int)(name - form - 4), form,
              tolower((unsigned char)*name), (int)(last - name - 1), name + 1);
}

/* The call for one chunk; n: the elements that each member sends, or receives, with it. */
static char *piece_call_text(const struct op *op, int64_t n)
{
  const struct calls *calls = forms_of_calls(op->kind);
  bool gather = gathers_shards(op->kind), apart = graph->value[whole_value(op)].is_separate;
  bool begins = runs_beside(op) && !target->streams;
  int ranks = group_size(op->group);
  int64_t part = n * op->pieces, whole_at = op->piece * n * (apart ? ranks : 1);
  int64_t in_at = gather ? op->piece * n : whole_at, out_at = gather ? whole_at : op->piece * n;
  const char *form = equal_form(op, n);
  bool counted = !apart && !calls->piece;
  if (!apart) form = calls->piece ? calls->piece : calls->unequal;
  if (counted) out_at = 0;
  char *call = fill(begins ? without_wait(form) : form, "in", offset_pointer(op->in[0], in_at),
                    "out", offset_pointer(op->out, out_at), "n", text("%" PRId64, n), "type",
                    library_type(graph->value[op->out].type), "op",
                    library_reduction(op->reduction, graph->value[op->out].type), "group",
                    group_name(op->group), "ranks", text("%d", ranks), "part",
                    text("%" PRId64, part), "line", plan_line_text(op->line), "stream",
                    collective_stream(op), "event", begins ? collective_event(op) : "", NULL);
  if (!counted) return call;
  struct buffer b = {0};
  put(&b, "{\n    static const int counts[] = {");
  for (int r = 0; r < ranks; r++) put(&b, "%s%" PRId64, r ? ", " : "", n);
  put(&b, "};\n    static const int starts[] = {");
  for (int r = 0; r < ranks; r++) put(&b, "%s%" PRId64, r ? ", " : "", r * part + op->piece * n);
  put(&b, "};\n    %s\n  }", call);
  return b.text;
}

/* Whether the rank makes no call: a sum of no elements. */
static bool moves_nothing(const struct op *op, int rank)
{
  if (moves_shards(op->kind)) return false;
  int ranks = group_size(op->group);
  int64_t *give = alloc((size_t)ranks * sizeof *give), *get = alloc((size_t)ranks * sizeof *get);
  collective_counts(op, rank, give, get);
  for (int r = 0; r < ranks; r++)
    if (give[r]) return false;
  return !op->pieces;
}

static char *collective_call(const struct op *op, int rank)
{
  if (op->kind == OP_exchange) return exchange_text(op, rank);
  if (op->kind == OP_exchange_rows) return row_exchange_text(op, rank);
  const struct calls *calls = forms_of_calls(op->kind);
  int ranks = group_size(op->group);
  int64_t *give = alloc((size_t)ranks * sizeof *give), *get = alloc((size_t)ranks * sizeof *get);
  collective_counts(op, rank, give, get);
  int64_t total = 0;
  for (int r = 0; r < ranks; r++) total += give[r];
  check_count(op->line, total);
  if (op->pieces) return piece_call_text(op, give[0]);
  bool equal = !calls->unequal || equal_parts(op, rank);
  /* The elements that this rank passes to the call for equal parts; otherwise those that it sends.
   */
  int64_t n = give[0];
  if (!has_chunks(op)) {
    n = (gathers_shards(op->kind) || scatters_sum(op->kind))
            ? elements_of_rank(sharded_value(op), rank)
            : give[0];
  }
  const char *form = equal ? equal_form(op, n) : calls->unequal;
  bool by_segments = goes_by_segments(op), begins = runs_beside(op) && !target->streams;
  if (by_segments) form = calls->segments;
  if (begins) form = without_wait(form);
  if (moves_nothing(op, rank)) return "";
  struct ends ends = ends_of(op, n);
  char *call = fill(
      form, "in", ends.in, "out", ends.out, "n", text("%" PRId64, n), "type",
      library_type(moved_type(op)), "op", library_reduction(op->reduction, moved_type(op)), "group",
      group_name(op->group), "ranks", text("%d", ranks), "line", plan_line_text(op->line), "stream",
      collective_stream(op), "segments", by_segments ? text("%d", count_segments(op, rank)) : "",
      "event", begins ? collective_event(op) : "", NULL);
  if (op->packed || equal) return call;
  const char *type = library()->count;
  struct buffer b = {0};
  put(&b, "{\n%s", list_text(type, "counts", give, ranks, false));
  if (strstr(call, "starts")) put(&b, "%s", list_text(type, "starts", give, ranks, true));
  if (collective_row[op->kind].pairwise)
    put(&b, "%s%s", list_text(type, "counts_in", get, ranks, false),
        list_text(type, "starts_in", get, ranks, true));
  put(&b, "    %s\n  }", call);
  return b.text;
}

/* The collective or, if this rank has nothing to move in it, its predecessor: the last one that
   the rank calls. NULL: it calls none. */
static const struct op *last_called(const struct op *op, int rank)
{
  while (op && moves_nothing(op, rank)) op = predecessor_of(op);
  return op;
}

char *collective_text(const struct op *op, int rank)
{
  char *call = collective_call(op, rank);
  bool begins = runs_beside(op);
  if (begins && *call && target->streams) { /* on the group's stream once its operands are ready */
    const char *on = stream_name(op->group);
    const struct op *before = last_called(predecessor_of(op), rank);
    char *begin = text("begin_on(%s);", on);
    if (before) begin = text("begin_behind(%s, %s);", on, collective_event(before));
    call =
        text("%s\n  %s%s\n  end_on(%s, %s);", begin, call,
             scheduled(op)->has_chained ? copies_out_text(op, rank) : "", on, collective_event(op));
  }
  if (!op->packed || !*call) return call;
  if (goes_by_segments(op)) return with_segments(op, rank, call);
  return with_copies(op, rank, call, !begins);
}

bool awaits_copies(const struct op *op)
{
  return is_copied_out(&graph->op[op->awaits]) && !scheduled(&graph->op[op->awaits])->has_chained;
}

char *await_text(const struct op *op, int rank)
{
  const struct op *begun = &graph->op[op->awaits], *last = last_called(begun, rank);
  if (!runs_beside(begun) || !last) return "";
  bool copies = last == begun && awaits_copies(op);
  const char *form = target->streams ? "await($event$);" : "COLLECTIVE($line$, await(&$event$));";
  const char *call =
      fill(form, "event", collective_event(last), "line", plan_line_text(begun->line), NULL);
  return text("%s%s", call, copies ? copies_out_text(begun, rank) : "");
}
