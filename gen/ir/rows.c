/* rows.c: values by rows. A rank knows the number of its rows at run time.

   A value [e, b, s, k, ...] has at each place (b, s, k) elements for only one e, or for none: for
   the expert to which the place's token is sent. Its layout is that of the whole tensor: cut along
   e, a rank has the rows of some experts; along b or s, those of some tokens. In memory the
   existing rows follow one another, those of the first e first, and of one e in the order of the
   places. There is room for a row at each place of the rank's part, which no routing can pass; or,
   where the count has a bound, for so many times the rows that the part's experts have in balance.
   The memory after the last row has no meaning.

   The value `counts`, [e], is the number of rows of each e. It is a sum over all places: where b, s
   or k is cut it is pending, and so each rank has the count of its own rows. Operators with such an
   operand (`+` in ops.h) make values by rows; operators by element, over last dimensions, and moves
   keep them so. No other operator takes one. */
#include "ir/ir.h"

#include <string.h>

bool is_counted_along(int value, int mesh_dim, int place)
{
  return graph->value[value].layout.on[mesh_dim].kind == PARTIAL &&
         was_counted_along(value, mesh_dim, place);
}

bool was_counted_along(int value, int mesh_dim, int place)
{
  int maker = graph->value[made_count(value)].op;
  if (maker == NONE) return true;
  struct placement p = graph->value[graph->op[maker].in[0]].layout.on[mesh_dim];
  return p.kind == SHARD && p.dim == place;
}

static bool has_letter(const struct rule_operand *o, char name)
{
  for (int d = 0; d < o->n; d++)
    if (o->dimension[d].n == 1 && o->dimension[d].term[0].name == name) return true;
  return false;
}

/* Whether the output's operand has the letters of a count, and those over which it counts. */
static bool rows_is_counted(const struct rule_operand *o, const struct rule_operand *count)
{
  for (const char *c = count->summed; *c; c++)
    if (!has_letter(o, *c)) return false;
  return has_letter(o, count->dimension[0].term[0].name);
}

/* Whether an operation keeps rows: the inputs have the same, or are equal for all of them. */
static bool keeps_rows(const struct op *op, int counts, struct shape space)
{
  if (is_reduce(op->kind) || op->kind == OP_expand) return !(op->dims & ((1u << ROW_DIMS) - 1));
  if (op->equation && !strcmp(op->equation, identity_equation(space.ndim))) return true;
  if (!is_broadcast(op->kind) || !is_pointwise(op->kind)) return false;
  for (int i = 0; i < op->nin; i++) {
    const struct value *v = &graph->value[op->in[i]];
    int shift = space.ndim - v->shape.ndim; /* it is aligned at the last dimension */
    if (v->counts == counts && shift == 0) continue;
    for (int d = shift; d < ROW_DIMS; d++)
      if (v->shape.size[d - shift] != 1) return false;
  }
  return true;
}

static bool is_of_places(struct placement p)
{
  return p.kind == SHARD && p.dim < ROW_DIMS;
}

bool is_row_exchange(struct placement from, struct placement to)
{
  bool plain = shard_stride(from) == 1 && shard_stride(to) == 1;
  return is_of_places(from) && is_of_places(to) && plain && (from.dim == 0) != (to.dim == 0);
}

/* Whether another dimension of ranks, along which no rows travel, cuts tokens of this layout within
   the cut of one along which they do. Without this cut the former makes other parts, so ranks with
   experts would have rows of other tokens than their layout says. */
static bool is_cut_within(struct layout tokens, struct layout from, struct layout to, int travels)
{
  int cut[MAX_MESH], n, at = 0;
  if (tokens.on[travels].kind != SHARD) return false;
  n = cuts_of(&graph->mesh, tokens, tokens.on[travels].dim, cut);
  while (cut[at] != travels) at++;
  for (int i = at + 1; i < n; i++)
    if (ranks_along(cut[i]) > 1 && !is_row_exchange(from.on[cut[i]], to.on[cut[i]])) return true;
  return false;
}

bool is_cut_within_rows(int value, struct layout to)
{
  struct layout from = graph->value[value].layout;
  int names = names_counted(graph->value[value].counts);
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (ranks_along(d) == 1 || !is_row_exchange(from.on[d], to.on[d])) continue;
    if (is_cut_within(to.on[d].dim == 0 ? from : to, from, to, d)) return true;
    if (names != NONE && is_cut_within(graph->value[names].layout, from, to, d)) return true;
  }
  return false;
}

bool can_move_rows(struct layout from, struct layout to)
{
  /* Whether rows travel along some dimensions of the mesh while others cut the experts, too: which
     rank has which experts then depends on the order of the cuts; or to experts along some and back
     along others. */
  bool there = false, back = false, cut = false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (ranks_along(d) == 1) continue;
    bool travels = is_row_exchange(from.on[d], to.on[d]);
    there |= travels && to.on[d].dim == 0;
    back |= travels && from.on[d].dim == 0;
    cut |= !travels && ((from.on[d].kind == SHARD && from.on[d].dim == 0) ||
                        (to.on[d].kind == SHARD && to.on[d].dim == 0));
  }
  if ((there && back) || ((there || back) && cut)) return false;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement a = from.on[d], b = to.on[d];
    if (ranks_along(d) == 1 || same_placement(a, b) || is_row_exchange(a, b)) continue;
    if (is_of_places(a) || is_of_places(b)) return false;
  }
  return true;
}

static int counts_by_rule(const struct op *op, int k)
{
  const struct rule *rule = *rule_of(op) ? scanned_rule(rule_of(op)) : NULL;
  for (int i = 0; rule && i < rule->nin; i++)
    if (*rule->in[i].summed)
      return rows_is_counted(&rule->out[k], &rule->in[i]) ? made_count(op->in[i]) : NONE;
  return NONE - 1; /* the rule has no count */
}

static bool is_by_rows(int value)
{
  return graph->value[value].counts != NONE;
}

/* Whether such a value is made by any of these operations, or by those of their bodies. */
static bool any_makes(bool (*such)(int value), const int *op, int n)
{
  for (int k = 0; k < n; k++) {
    const struct op *o = &graph->op[op[k]];
    for (int i = 0; i < o->nout; i++)
      if (such(o->out + i)) return true;
    if (o->nbody && any_makes(such, o->body, o->nbody)) return true;
  }
  return false;
}

/* Whether the program makes such a value. */
static bool makes_value(bool (*such)(int value))
{
  bool makes = any_makes(such, graph->order, graph->norder);
  for (int i = 0; i < graph->nfunction && !makes; i++)
    makes = any_makes(such, graph->function[i].op, graph->function[i].nop);
  return makes;
}

bool has_values_by_rows(void)
{
  return all_stages() ? all_stages()->has_values_by_rows : makes_value(is_by_rows);
}

/* The places are those of all ranks over which the count is summed up. */
int64_t room_of_count(const struct op *hold, int rank)
{
  const struct value *of = &graph->value[hold->in[0]];
  unsigned dims = 0;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (ranks_along(d) > 1 && of->layout.on[d].kind != PARTIAL) dims |= 1u << d;
  return rows_within(bound_of_count(hold->in[1]), places_along(hold->in[1], dims, rank),
                     local_shape(hold->out, rank).size[0], of->shape.size[0]);
}

int64_t room_for_rows(int value, int rank)
{
  struct shape here = local_shape(value, rank);
  return here.size[0] * places_of_part(here);
}

int64_t rows_of_slot(int tokens, int ranks)
{
  int64_t all = graph->value[tokens].shape.size[0];
  return rows_within(bound_of_rows(tokens), places_of_part(local_shape(tokens, 0)),
                     chunk_size(all, ranks, 0), all);
}

bool counts_rows = true;

int counts_of(const struct op *op, int k)
{
  if (!counts_rows) return NONE;
  int counts = NONE, by_rule = op->nin ? counts_by_rule(op, k) : NONE;
  if (by_rule >= NONE) return by_rule;
  struct shape space = {0};
  for (int i = 0; i < op->nin; i++) {
    const struct value *v = &graph->value[op->in[i]];
    if (v->counts != NONE && counts == NONE) counts = v->counts, space = v->shape;
  }
  if (counts == NONE) return NONE;
  if (*rule_of(op) && !keeps_rows(op, counts, space))
    plan_error(op->line,
               "%s: its input, %s, stands by rows of experts: operators by element take it, with "
               "others of the same rows, sums along the last dimension, and those for experts",
               printable(op_name(op)), shape_text(space));
  return counts;
}

int rows_of_experts(const struct op *exchange)
{
  return exchange->dim_to == 0 ? exchange->out : exchange->in[0];
}

bool notes_rows(const struct op *op)
{
  if (op->kind == OP_clamp_to_capacity) return true;
  return op->kind == OP_exchange_rows && op->dim_to == 0 && has_less_room(rows_of_experts(op));
}

struct list row_notes(void)
{
  struct list notes = {0};
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++)
      if (notes_rows(&graph->op[graph->function[i].op[k]])) add(&notes, graph->function[i].op[k]);
  return notes;
}

static bool is_bounded(int value)
{
  return is_by_rows(value) && has_less_room(value);
}

bool has_row_bounds(void)
{
  return all_stages() ? all_stages()->has_row_bounds : makes_value(is_bounded);
}

int counted_operand(const struct op *op)
{
  const struct rule *rule = *rule_of(op) ? scanned_rule(rule_of(op)) : NULL;
  for (int i = 0; rule && i < rule->nin; i++)
    if (*rule->in[i].summed) return i;
  return NONE;
}

int counts_of_kernel(const struct op *op)
{
  return op->kind == OP_fused && op->nin ? op->in[0] : NONE;
}

int counts_taken(const struct op *op, int counts, struct layout layout)
{
  int counted = counted_operand(op);
  bool has_rows = false;
  for (int i = 0; i < operand_count(op); i++) {
    const struct value *v = &graph->value[nth_operand(op, i)];
    has_rows |= v->counts == counts && same_layout(v->layout, layout);
  }
  return has_rows && counted != NONE ? op->in[counted] : NONE;
}
