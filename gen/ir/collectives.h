/* clang-format off */
/* collectives.h: the table of collectives. One row for each; every other list expands from here,
   and so do their rows of ops.h. To add a collective: a row here, and what gen/README.md lists.

     COLLECTIVE(name, from, to, sent, received, fields)

   from, to   What a value is, before and after, on the dimensions of the mesh that its group spans:
              REPLICATE, SHARD, PARTIAL; ANY_PLACEMENT: several of these. A redistribution takes
              the collective as its step from one to the other. Where either is SHARD, so many
              elements as the shards have are counted for each member.
   sent, received
              How many elements a member sends and receives, in C: `has` it has before, `gets`
              after, `kept` of them are the same; `n` is the size of the group, `member` its place.
   fields     .passes    how often each byte goes over a link: once, or there and back
              .pairwise  each pair of members has counts of its own
              .buckets   several of them can be one call
              .in_place  it may leave what it makes in the place of what it takes
              .tie_break how unfamiliar it is to readers: of paths that are equally quick the one
                         with the least is taken
              .suffix    of the name of a moved value, which else would be that of what it was
              .calls     by library; see struct calls. Holes: $in$ and $out$ are the values; $n$ the
                         elements that this rank gives, or gets; `counts` and `starts` the elements
                         for each rank and where they begin; $line$ the plan's, which the program
                         names where a rank is lost; $stream$ on which it runs */

#ifndef PIECES_BY_NCCL
#define PIECES_BY_NCCL                                                                             \
  "CHECK_NCCL(ncclGroupStart());\n"                                                                \
  "  for (int r = 0; r < $ranks$; r++) {\n"                                                        \
  "    CHECK_NCCL(ncclSend($in$, $n$, $type$, r, $group$, $stream$));\n"                           \
  "    CHECK_NCCL(ncclRecv($out$ + r * $part$L, $n$, $type$, r, $group$, $stream$));\n"            \
  "  }\n"                                                                                          \
  "  COLLECTIVE($line$, $stream$, ncclGroupEnd());"
#endif

COLLECTIVE(all_gather, SHARD, REPLICATE, has * (n - 1), gets - has,
  .passes = 1, .buckets = true, .tie_break = 2, .suffix = "_whole",
  .calls[LIBRARY_MPI] = {
    .equal = "COLLECTIVE($line$, MPI_Allgather($in$, $n$, $type$, $out$, $n$, $type$, $group$));",
    .unequal = "COLLECTIVE($line$, MPI_Allgatherv($in$, $n$, $type$, $out$, counts, starts, "
               "$type$, $group$));",
    .segments = "COLLECTIVE($line$, gather_segments($in$, $out$, $segments$, segment, $type$, "
                "$group$));"},
  .calls[LIBRARY_NCCL] = {
    .equal = "COLLECTIVE($line$, $stream$, ncclAllGather($in$, $out$, $n$, $type$, $group$, "
             "$stream$));",
    .unequal = "CHECK_NCCL(ncclGroupStart());\n"
               "    for (int r = 0; r < $ranks$; r++)\n"
               "      CHECK_NCCL(ncclBroadcast($in$, $out$ + starts[r], counts[r], $type$, r, "
               "$group$, $stream$));\n"
               "    COLLECTIVE($line$, $stream$, ncclGroupEnd());",
    .piece = PIECES_BY_NCCL})

COLLECTIVE(reduce_scatter, PARTIAL, SHARD, has - gets, gets * (n - 1),
  .passes = 1, .buckets = true, .tie_break = 2, .suffix = "_cut",
  .calls[LIBRARY_MPI] = {
    .equal = "COLLECTIVE($line$, MPI_Reduce_scatter_block($in$, $out$, $n$, $type$, $op$, "
             "$group$));",
    .large = "COLLECTIVE($line$, reduce_scatter($in$, $out$, $n$, $type$, $op$, $group$));",
    .unequal = "COLLECTIVE($line$, MPI_Reduce_scatter($in$, $out$, counts, $type$, $op$, "
               "$group$));",
    .segments = "COLLECTIVE($line$, reduce_segments($in$, $out$, $segments$, segment, $type$, "
                "$op$, $group$));"},
  .calls[LIBRARY_NCCL] = {
    .equal = "COLLECTIVE($line$, $stream$, ncclReduceScatter($in$, $out$, $n$, $type$, $op$, "
             "$group$, $stream$));",
    .unequal = "CHECK_NCCL(ncclGroupStart());\n"
               "    for (int r = 0; r < $ranks$; r++)\n"
               "      CHECK_NCCL(ncclReduce($in$ + starts[r], $out$, counts[r], $type$, $op$, r, "
               "$group$, $stream$));\n"
               "    COLLECTIVE($line$, $stream$, ncclGroupEnd());",
    .piece = PIECES_BY_NCCL})

COLLECTIVE(all_reduce, PARTIAL, REPLICATE, received_in_all_reduce(has, n, member),
  received_in_all_reduce(has, n, member),
  .passes = 2, .buckets = true, .in_place = true, .tie_break = 2, .suffix = "",
  .calls[LIBRARY_MPI] = {
    .equal = "COLLECTIVE($line$, MPI_Allreduce($in$, $out$, $n$, $type$, $op$, $group$));"},
  .calls[LIBRARY_NCCL] = {
    .equal = "COLLECTIVE($line$, $stream$, ncclAllReduce($in$, $out$, $n$, $type$, $op$, $group$, "
             "$stream$));"})

COLLECTIVE(all_to_all, SHARD, SHARD, has - kept, gets - kept,
  .passes = 1, .pairwise = true, .tie_break = 3, .suffix = "_exchanged",
  .calls[LIBRARY_MPI] = {
    .equal = "COLLECTIVE($line$, MPI_Alltoall($in$, $n$, $type$, $out$, $n$, $type$, $group$));",
    .unequal = "COLLECTIVE($line$, MPI_Alltoallv($in$, counts, starts, $type$, $out$, counts_in, "
               "starts_in, $type$, $group$));"},
  .calls[LIBRARY_NCCL] = {
    .equal = "CHECK_NCCL(ncclGroupStart());\n"
             "  for (int r = 0; r < $ranks$; r++) {\n"
             "    CHECK_NCCL(ncclSend($in$ + r * $n$L, $n$, $type$, r, $group$, $stream$));\n"
             "    CHECK_NCCL(ncclRecv($out$ + r * $n$L, $n$, $type$, r, $group$, $stream$));\n"
             "  }\n"
             "  COLLECTIVE($line$, $stream$, ncclGroupEnd());",
    .unequal = "CHECK_NCCL(ncclGroupStart());\n"
               "    for (int r = 0; r < $ranks$; r++) {\n"
               "      CHECK_NCCL(ncclSend($in$ + starts[r], counts[r], $type$, r, $group$, "
               "$stream$));\n"
               "      CHECK_NCCL(ncclRecv($out$ + starts_in[r], counts_in[r], $type$, r, $group$, "
               "$stream$));\n"
               "    }\n"
               "    COLLECTIVE($line$, $stream$, ncclGroupEnd());"})

/* For a value by rows, counted by the second input: each rank sends its tokens' rows to the ranks
   that have their experts, or these send them back, only the existing rows. Its further outputs are
   room. Its calls: emit/row_exchange.c. */
COLLECTIVE(exchange_rows, ANY_PLACEMENT, SHARD, has - kept, gets - kept,
  .passes = 1, .pairwise = true, .tie_break = 5, .suffix = "_exchanged")

/* Each rank of the group sends every other the piece of its part that this one lacks. Its counts
   and its calls are of graph->exchange: sharding/exchange.c, emit/collective.c. */
COLLECTIVE(exchange, ANY_PLACEMENT, ANY_PLACEMENT, has - kept, gets - kept,
  .passes = 1, .pairwise = true, .tie_break = 4, .suffix = "_exchanged")
