/* library.c: a library's names of types, reductions and counts, in a row for each library of
   collectives; and the text that all calls of a library share. */
#include "emit/emit.h"

#include <inttypes.h>

static const struct library_words library_words[LIBRARIES] = {
    [LIBRARY_MPI] =
        {
            .type = {[F32] = "MPI_FLOAT",
                     [BF16] = "MPI_UINT16_T",
                     [I32] = "MPI_INT32_T",
                     [I64] = "MPI_INT64_T",
                     [BOOL] = "MPI_UNSIGNED_CHAR",
                     [I8] = "MPI_UNSIGNED_CHAR",
                     [NF4] = "MPI_UNSIGNED_CHAR",
                     [F64] = "MPI_DOUBLE"},
            .reduction = {[SUM] = "MPI_SUM", [MAX] = "MPI_MAX", [MIN] = "MPI_MIN"},
            .reduction_of_bf16 = {[SUM] = "bf16_sum", [MAX] = "bf16_max", [MIN] = "bf16_min"},
            .in_place = "MPI_IN_PLACE",
            .count = "int",
        },
    [LIBRARY_NCCL] =
        {
            .type = {[F32] = "ncclFloat",
                     [BF16] = "ncclBfloat16",
                     [I32] = "ncclInt32",
                     [I64] = "ncclInt64",
                     [BOOL] = "ncclUint8",
                     [I8] = "ncclInt8",
                     [NF4] = "ncclUint8",
                     [F64] = "ncclFloat64"},
            .reduction = {[SUM] = "ncclSum", [MAX] = "ncclMax", [MIN] = "ncclMin"},
            .reduction_of_bf16 = {[SUM] = "ncclSum", [MAX] = "ncclMax", [MIN] = "ncclMin"},
            .in_place = "",
            .count = "size_t",
        },
};

const struct library_words *library(void)
{
  return &library_words[target->library];
}

const char *library_type(enum type t)
{
  return library()->type[t];
}

const char *library_reduction(enum reduction r, enum type t)
{
  return t == BF16 ? library()->reduction_of_bf16[r] : library()->reduction[r];
}

const char *collective_stream(const struct op *op)
{
  return scheduled(op)->overlapped ? stream_name(op->group) : "stream";
}

/* ".plan_line = 25"; in a file that the plan requires ".plan_line = OF_FILE(2) + 82". */
char *plan_line_text(int line)
{
  if (line < LINES_OF_FILE) return text(".plan_line = %d", line);
  return text(".plan_line = OF_FILE(%d) + %d", line / LINES_OF_FILE, line % LINES_OF_FILE);
}

void check_count(int line, int64_t total)
{
  if (total > target->most_counted)
    plan_error(line,
               "a collective of %" PRId64 " elements: more than %" PRId64 " cannot be counted",
               total, target->most_counted);
}
