/* check_counts.c: a part of prove.c: the counts of a collective are those of the parts that its
   members have.

   Takes   a collective, and the counts that a rank's program states in it.
   Holds   a member sends to another one the elements that its own part, before, and the other's
           part, after, have in common. Of a bucket it sends the sum over the bucket's members, or
           as many elements as the largest part of each. In an exchange a rank gets each element of
           its part once, from a member that has it. A rank that makes the call for equal counts has
           equal ones.

   volume.c and exchange.c find the counts in other ways: by the row of the collective, and by lists
   of pieces. Rows by expert that are exchanged are counted when the program runs. */
#include "check/check.h"

/* The number of ranks that the check compares in pairs, in addition to the last one, which has the
   smallest parts. */
enum { LOOKED_AT = 16 };

static void require_count(bool fact, const struct op *op, const char *what)
{
  if (!fact) bug_at("prove", (int)(op - graph->op), "%s", what);
}

/* The elements that `from` sends to `to`, in a collective that is no bucket, or for a bucket's
   member. */
static int64_t check_counts_sent(const struct op *op, int from, int to)
{
  /* The elements that a rank's part of a value has in common with another rank's part of another
     value of that shape. Rows by expert fill the capacity. */
  int value = op->in[0];
  int result = op->out;
  const struct value *v = &graph->value[value], *w = &graph->value[result];
  const struct cut_tensor t = {v->shape, v->layout}, u = {w->shape, w->layout};
  if (v->on_other_stages || w->on_other_stages) return 0;
  if (v->counts == NONE) return common_part(&t, from, &u, to);
  struct shape room = local_shape(value, from);
  struct part a = part_on(&t, from), b = part_on(&u, to);
  int64_t n = 1;
  for (int d = 0; d < room.ndim; d++) n *= d < 4 ? room.size[d] : common_along(&t, &a, &b, d);
  return n;
}

int64_t elements_together(const struct op *op, int rank)
{
  bool gathers = collective_row[op->kind].from == SHARD;
  int64_t sum = 0;
  if (!op->nbody) return elements(local_shape(gathers ? op->in[0] : op->out, rank));
  for (int k = 0; k < op->nbody; k++) sum += elements_together(&graph->op[op->body[k]], rank);
  return sum;
}

/* ------------------------------------------------------------------------------ kinds of counts */

/* The buffer is large enough for a chunk of each member of the group, and the chunk for its parts.
   Smaller micro-batches use its beginning. */
static void check_chunk(const struct op *op, const int *member, int n, const int64_t *give)
{
  const int64_t room = elements(graph->value[op->buffer].shape);
  const int ends[] = {member[0], member[n - 1]};
  for (int m = 0; m < n; m++)
    require_count(give[m] * n == room || (graph->mesh.now && give[m] * n <= room), op,
                  "its chunks are not the buffer");
  for (int i = 0; i < 2; i++)
    require_count(elements_together(op, ends[i]) <= give[0], op,
                  "its chunks have no room for the parts of a rank");
}

/* The check does not compare the senders: any member that has a piece may send it. If two sent the
   same piece, the sum would show it, unless another piece of just this size were left out: so the
   first pieces are compared. */
static void check_exchange(const struct op *op, int rank, const int *member, int n,
                           const int64_t *give, const int64_t *get)
{
  const struct exchange *e = &graph->exchange[op->exchange];
  const struct cut_tensor from = {e->whole, e->move.from}, to = {e->whole, e->move.to};
  struct part got[LOOKED_AT];
  int me = place_in_group(op->group, rank), pieces = 0;
  bool is_idle = me < e->move.idle_first || me >= n - e->move.idle_last;
  int64_t sum = 0;
  for (int m = 0; m < n; m++) {
    sum += get[m];
    require_count(!give[m] || give[m] == common_part(&from, rank, &to, member[m]), op,
                  "a rank does not send another one just what their parts have in common");
    if (!get[m]) continue;
    require_count(get[m] == common_part(&from, member[m], &to, rank), op,
                  "a rank does not get just what its part and the sender's have in common");
    struct part part = part_on(&from, member[m]);
    for (int k = 0; k < pieces; k++) {
      const struct part *b = &got[k];
      bool same_box = true;
      for (int d = 0; d < part.shape.ndim && same_box; d++)
        same_box = part.first[d] == b->first[d] && part.shape.size[d] == b->shape.size[d];
      require_count(!same_box, op, "a rank gets a piece twice");
    }
    if (pieces < LOOKED_AT) got[pieces++] = part;
  }
  struct part whole = part_on(&to, rank);
  require_count(sum == (is_idle ? 0 : elements(whole.shape)), op,
                "a rank gets more or less than its part");
}

/* Those of the rank's own part are equal to its others, or it sends to one other and gets from one
   other. */
static bool is_equal(const struct op *op, int me, int n, const int64_t *give, const int64_t *get)
{
  int sends = 0, gets = 0;
  for (int m = 0; m < n; m++) {
    if (op->kind != OP_exchange && (give[m] != give[0] || get[m] != get[0])) return false;
    sends += m != me && give[m];
    gets += m != me && get[m];
  }
  return op->kind != OP_exchange || (sends <= 1 && gets <= 1);
}

void check_counts(const struct op *op, int rank, const int64_t *give, const int64_t *get,
                  bool equal)
{
  static int *member, room;
  bool pairs = collective_row[op->kind].pairwise;
  if (op->kind == OP_exchange_rows) return;
  if (pairs && rank >= LOOKED_AT && rank != world_size() - 1) return;
  while (room < group_size(op->group)) member = grow(member, 0, &room, sizeof *member);
  int n = group_members(op->group, rank, member);
  if (op->kind == OP_exchange)
    check_exchange(op, rank, member, n, give, get);
  else if (pairs) {
    for (int m = 0; m < n; m++)
      require_count(give[m] == check_counts_sent(op, rank, member[m]) &&
                        get[m] == check_counts_sent(op, member[m], rank),
                    op, "a rank does not send another one just what their parts have in common");
  } else if (op->packed && moves_shards(op->kind))
    check_chunk(op, member, n, give);
  else {
    /* Each member states the counts of all members, of their parts before, or after; or only the
       count of its own sum. */
    const struct collective_row *row = &collective_row[op->kind];
    const int64_t pieces = op->pieces ? op->pieces : 1;
    for (int m = 0; m < n; m++) {
      int from = row->from == SHARD ? member[m] : rank, to = row->to == SHARD ? member[m] : rank;
      int64_t sum = 0;
      for (int k = 0; k < op->nbody; k++)
        sum += check_counts_sent(&graph->op[op->body[k]], from, to);
      if (!op->nbody) sum = check_counts_sent(op, from, to);
      require_count(give[m] * pieces == sum, op, "its counts are not those of its members' parts");
    }
  }
  require_count(!equal || is_equal(op, place_in_group(op->group, rank), n, give, get), op,
                "its call is for equal counts, and they are not equal");
}
