/* collective.c: the collectives, one row for each: what each rank gives and gets, and the calls. */
#include "tpgen.h"

#include <inttypes.h>
#include <string.h>

/* The calls. $in and $out are the values; $n the elements that this rank gives, or gets; $counts
   and $starts the elements for each rank and where they begin, where the ranks' parts differ. The
   first form is for equal parts, the second for unequal ones. */
struct call_row {
  enum op_kind kind;
  const char *cpu[2], *cuda[2];
};

static const struct call_row call_row[] = {
    {OP_all_reduce,
     {"CHECK_MPI(MPI_Allreduce($in$, $out$, $n$, $type$, $op$, $group$));", NULL},
     {"CHECK_NCCL(ncclAllReduce($in$, $out$, $n$, $type$, $op$, $group$, stream));", NULL}},
    {OP_all_gather,
     {"CHECK_MPI(MPI_Allgather($in$, $n$, $type$, $out$, $n$, $type$, $group$));",
      "CHECK_MPI(MPI_Allgatherv($in$, $n$, $type$, $out$, counts, starts, $type$, $group$));"},
     {"CHECK_NCCL(ncclAllGather($in$, $out$, $n$, $type$, $group$, stream));",
      "CHECK_NCCL(ncclGroupStart());\n"
      "    for (int r = 0; r < $ranks$; r++)\n"
      "      CHECK_NCCL(ncclBroadcast($in$, $out$ + starts[r], counts[r], $type$, r, $group$, "
      "stream));\n"
      "    CHECK_NCCL(ncclGroupEnd());"}},
    {OP_reduce_scatter,
     {"CHECK_MPI(MPI_Reduce_scatter_block($in$, $out$, $n$, $type$, $op$, $group$));",
      "CHECK_MPI(MPI_Reduce_scatter($in$, $out$, counts, $type$, $op$, $group$));"},
     {"CHECK_NCCL(ncclReduceScatter($in$, $out$, $n$, $type$, $op$, $group$, stream));",
      "CHECK_NCCL(ncclGroupStart());\n"
      "    for (int r = 0; r < $ranks$; r++)\n"
      "      CHECK_NCCL(ncclReduce($in$ + starts[r], $out$, counts[r], $type$, $op$, r, $group$, "
      "stream));\n"
      "    CHECK_NCCL(ncclGroupEnd());"}},
    {OP_all_to_all,
     {"CHECK_MPI(MPI_Alltoall($in$, $n$, $type$, $out$, $n$, $type$, $group$));",
      "CHECK_MPI(MPI_Alltoallv($in$, counts, starts, $type$, $out$, counts_in, starts_in, $type$, "
      "$group$));"},
     {NULL, "CHECK_NCCL(ncclGroupStart());\n"
            "    for (int r = 0; r < $ranks$; r++) {\n"
            "      CHECK_NCCL(ncclSend($in$ + starts[r], counts[r], $type$, r, $group$, stream));\n"
            "      CHECK_NCCL(ncclRecv($out$ + starts_in[r], counts_in[r], $type$, r, $group$, "
            "stream));\n"
            "    }\n"
            "    CHECK_NCCL(ncclGroupEnd());"}},
};

static const char *library_type(enum type t)
{
  static const char *const mpi[] = {[F32] = "MPI_FLOAT",
                                    [BF16] = "MPI_UINT16_T",
                                    [I32] = "MPI_INT32_T",
                                    [I64] = "MPI_INT64_T",
                                    [BOOL] = "MPI_UNSIGNED_CHAR"};
  static const char *const nccl[] = {[F32] = "ncclFloat",
                                     [BF16] = "ncclBfloat16",
                                     [I32] = "ncclInt32",
                                     [I64] = "ncclInt64",
                                     [BOOL] = "ncclUint8"};
  return options.cuda ? nccl[t] : mpi[t];
}

static const char *library_reduction(enum reduction r)
{
  static const char *const mpi[] = {[SUM] = "MPI_SUM", [MAX] = "MPI_MAX", [MIN] = "MPI_MIN"};
  static const char *const nccl[] = {[SUM] = "ncclSum", [MAX] = "ncclMax", [MIN] = "ncclMin"};
  return options.cuda ? nccl[r] : mpi[r];
}

/* ------------------------------------------------------------------------------------- counts */

static int64_t elements_at(int value, int rank)
{
  return elements(local_shape(value, rank));
}

/* What `from` sends to `to` in an all-to-all: its part, cut as `to` will hold dimension dim_to. */
static int64_t exchanged(const struct op *op, int from, int to)
{
  struct shape s = local_shape(op->in[0], from);
  s.size[op->dim_to] = local_shape(op->out, to).size[op->dim_to];
  return elements(s);
}

void collective_counts(const struct op *op, int rank, int64_t *give, int64_t *get)
{
  int *member = alloc((size_t)world_size() * sizeof *member);
  int n = group_members(op->group, rank, member);
  int64_t sum = 0;
  for (int k = 0; k < op->nbody; k++) sum += elements_at(graph->op[op->body[k]].out, rank);
  for (int r = 0; r < n; r++) {
    switch (op->kind) {
    case OP_all_gather:
      give[r] = elements_at(op->in[0], member[r]);
      break;
    case OP_reduce_scatter:
      give[r] = elements_at(op->out, member[r]);
      break;
    case OP_all_to_all:
      give[r] = exchanged(op, rank, member[r]);
      break;
    default:
      give[r] = op->nbody ? sum : elements_at(op->out, rank);
      break;
    }
    get[r] = op->kind == OP_all_to_all ? exchanged(op, member[r], rank) : give[r];
  }
}

int64_t collective_bytes(const struct op *op, int rank)
{
  if (op->kind == OP_all_reduce && op->nbody) {
    int64_t sum = 0;
    for (int k = 0; k < op->nbody; k++) {
      int out = graph->op[op->body[k]].out;
      sum += elements_at(out, rank) * type_bytes(graph->value[out].type);
    }
    return sum;
  }
  return elements_at(op->in[0], rank) * type_bytes(graph->value[op->in[0]].type);
}

/* --------------------------------------------------------------------------------------- text */

static char *list_text(const char *type, const char *name, const int64_t *n, int ranks, bool starts)
{
  struct buffer b = {0};
  int64_t at = 0;
  put(&b, "    static const %s %s[] = {", type, name);
  for (int r = 0; r < ranks; r++) {
    put(&b, "%s%" PRId64, r ? ", " : "", starts ? at : n[r]);
    at += n[r];
  }
  put(&b, "};\n");
  return b.text;
}

/* Parts do not grow from a member to the next: the first and the last tell. */
bool equal_parts(const struct op *op, int rank)
{
  int ranks = group_size(op->group);
  int *member = alloc((size_t)world_size() * sizeof *member);
  group_members(op->group, rank, member);
  int first = member[0], last = member[ranks - 1];
  return elements_at(op->in[0], first) == elements_at(op->in[0], last) &&
         elements_at(op->out, first) == elements_at(op->out, last);
}

static const char *pointer(int value)
{
  const char *name = c_name(value);
  return name ? name : text("(%s *)NULL", c_type(graph->value[value].type));
}

/* The elements that this rank names in the call of equal parts, and what it gives otherwise. */
static int64_t own_count(const struct op *op, int rank, const int64_t *give)
{
  if (op->kind == OP_all_gather) return elements_at(op->in[0], rank);
  if (op->kind == OP_reduce_scatter) return elements_at(op->out, rank);
  return give[0];
}

char *collective_text(const struct op *op, int rank)
{
  const struct call_row *row = call_row;
  while (row->kind != op->kind) row++;
  int ranks = group_size(op->group);
  int64_t *give = alloc((size_t)ranks * sizeof *give), *get = alloc((size_t)ranks * sizeof *get);
  collective_counts(op, rank, give, get);
  int64_t total = 0;
  for (int r = 0; r < ranks; r++) total += give[r];
  if (total > INT32_MAX)
    plan_error(op->line, "a collective of %" PRId64 " elements: more than %d cannot be counted",
               total, INT32_MAX);
  const char *const *form = options.cuda ? row->cuda : row->cpu;
  bool equal = form[0] && equal_parts(op, rank);
  int in = op->nbody ? graph->op[op->body[0]].in[0] : op->in[0];
  int first = op->out;
  for (int k = op->nbody; k-- > 0;)
    if (c_name(graph->op[op->body[k]].out)) first = graph->op[op->body[k]].out;
  bool in_place = same_place(in, op->nbody ? graph->op[op->body[0]].out : op->out);
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    if (!same_place(inner->in[0], inner->out))
      bug("emit", op->body[k], "a bucket's gradient is not reduced where it lies");
  }
  const char *from = in_place ? (options.cuda ? pointer(first) : "MPI_IN_PLACE") : pointer(in);
  if (op->kind == OP_all_reduce && total == 0) return "";
  char *call =
      fill(form[equal || !form[1] ? 0 : 1], "in", from, "out", pointer(first), "n",
           text("%" PRId64, own_count(op, rank, give)), "type",
           library_type(graph->value[op->out].type), "op", library_reduction(op->reduction),
           "group", group_name(op->group), "ranks", text("%d", ranks), NULL);
  if (equal || !form[1]) return call;
  const char *type = options.cuda ? "size_t" : "int";
  struct buffer b = {0};
  put(&b, "{\n%s", list_text(type, "counts", give, ranks, false));
  if (strstr(call, "starts")) put(&b, "%s", list_text(type, "starts", give, ranks, true));
  if (op->kind == OP_all_to_all)
    put(&b, "%s%s", list_text(type, "counts_in", get, ranks, false),
        list_text(type, "starts_in", get, ranks, true));
  put(&b, "    %s\n  }", call);
  return b.text;
}
