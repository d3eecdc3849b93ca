/* collectives.c: the table of collectives (collectives.h), and questions that its rows answer. */
#include "ir/ir.h"

const struct collective_row collective_row[OP_COUNT] = {
#define COLLECTIVE(op, from_, to_, sent, received, ...)                                            \
  [OP_##op] = {.name = #op, .from = from_, .to = to_, __VA_ARGS__},
#include "ir/collectives.h"
#undef COLLECTIVE
};

bool is_collective(enum op_kind k)
{
  return collective_row[k].name;
}

bool gathers_shards(enum op_kind k)
{
  const struct collective_row *row = &collective_row[k];
  return row->name && row->from == SHARD && row->to == REPLICATE;
}

bool scatters_sum(enum op_kind k)
{
  const struct collective_row *row = &collective_row[k];
  return row->name && row->from == PARTIAL && row->to == SHARD;
}

bool moves_shards(enum op_kind k)
{
  const struct collective_row *row = &collective_row[k];
  return row->name && (row->from == SHARD || row->to == SHARD || row->from == ANY_PLACEMENT);
}

int sharded_value(const struct op *op)
{
  return gathers_shards(op->kind) ? op->in[0] : op->out;
}

int whole_value(const struct op *op)
{
  return gathers_shards(op->kind) ? op->out : op->in[0];
}
