/* pending_sums.c: the checks share these: the pass that is checked, and which sums each value still
   lacks. */
#include "check/check.h"

#include <string.h>

struct marks marks;

const char *checked_pass;

void require_fails(int op, const char *what)
{
  bug_at(checked_pass, op, "%s", what);
}

/* A view; or a step that makes each rank's whole value a pending maximum or minimum. */
bool shows_bytes(const struct op *op)
{
  if (op->kind == OP_view || op->kind == OP_scan_take || op->kind == OP_scan_put) return true;
  if (op->kind != OP_to_partial || op->reduction == SUM) return false;
  const struct value *in = &graph->value[op->in[0]], *out = &graph->value[op->out];
  bool same = in->type == out->type && in->order == out->order;
  for (int r = 0, world = world_size(); r < world && same; r++)
    same = same_shape(local_shape(op->in[0], r), local_shape(op->out, r));
  return same;
}

void mark_constants(bool *made)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_full) made[graph->op[i].out] = true;
}

/* A sum that the micro-batches add up is whole after the last one; for the operations that add to
   it, it is pending in time. A count made before them is whole. */
struct placement placement_in(const struct op *op, int value, int d)
{
  const struct value *v = &graph->value[value];
  bool counted = op->phase == COUNT || (v->op != NONE && graph->op[v->op].phase == COUNT);
  bool sum = !counted && (is_gradient(value) || v->role == LOSS);
  bool of_stages = graph->stages && d == graph->stages->mesh_dim;
  if (of_stages && (v->role == LOSS || is_of_metric(value)) && op->phase != UPDATE)
    return (struct placement){0};
  if (!graph->mesh.microbatch_axis[d] || !sum || op->phase == UPDATE || op->last_batch)
    return v->layout.on[d];
  return (struct placement){.kind = PARTIAL, .reduction = SUM};
}

/* The numbers of a list are the coefficients of a polynomial, evaluated at the factor: one
   multiplication each. */
static uint64_t mixed(uint64_t hash, uint64_t n)
{
  return hash * UINT64_C(0x9e3779b97f4a7c15) + n;
}

/* The fields of a placement fill 64 bits. */
static uint64_t mark_of_placement(uint64_t h, const struct placement *p)
{
  uint64_t bits;
  _Static_assert(sizeof *p == sizeof bits, "a placement is not eight bytes");
  memcpy(&bits, p, sizeof bits);
  return mixed(h, bits);
}

uint64_t mark_of_value(const struct value *v, bool laid_out)
{
  uint64_t h = mixed(HASH_START, (uint64_t)v->type << 16 | (uint64_t)v->shape.ndim << 8 |
                                     (uint64_t)v->placed << 1 | laid_out);
  h = mixed(h, v->order);
  for (int d = 0; d < v->shape.ndim; d++) h = mixed(h, (uint64_t)v->shape.size[d]);
  for (int d = 0; d < graph->mesh.ndim; d++) h = mark_of_placement(h, &v->layout.on[d]);
  return h ^ h >> 32;
}

uint64_t mark_of_op(const struct op *op, bool are_steps)
{
  uint64_t h = mixed(HASH_START, (uint64_t)op->kind << 32 | op->dims);
  h = mixed(h, (uint64_t)op->nin << 32 | (uint64_t)op->nout << 16 | (uint64_t)op->keepdim << 1 |
                   are_steps);
  h = mixed(h, (uint64_t)op->type << 32 | (uint64_t)op->custom);
  for (const char *c = op->equation; c && *c; c++) h = mixed(h, (unsigned char)*c);
  for (int i = 0; i < op->nin; i++) h = mixed(h, marks.value[op->in[i]]);
  for (int k = 0; k < op->nout; k++) h = mixed(h, marks.value[op->out + k]);
  /* Whether it is a step that redistribute leaves. */
  if (!are_steps || (!is_collective(op->kind) && op_row[op->kind].step == NO_LOCAL_STEP))
    return h ^ h >> 32;
  h = mixed(h, (uint64_t)op->dim << 32 | (uint32_t)op->dim_to);
  h = mixed(h, (uint64_t)op->reduction << 32 | (uint32_t)op->group);
  h = mixed(h, (uint32_t)op->exchange);
  for (int d = 0; d < graph->mesh.ndim; d++) h = mark_of_placement(h, &op->to.on[d]);
  return h ^ h >> 32;
}

void make_marks(void)
{
  if (marks.of != graph) marks = (struct marks){.of = graph};
  while (marks.value_room < graph->nvalue)
    marks.value = grow(marks.value, marks.nvalue, &marks.value_room, sizeof *marks.value);
  marks.nvalue = graph->nvalue;
  while (marks.op_room < graph->nop)
    marks.op = grow(marks.op, marks.nop, &marks.op_room, sizeof *marks.op);
  marks.nop = graph->nop;
  marks.changed.n = 0;
}

bool is_known(const struct op *op, int way)
{
  static struct memo memo;
  static struct query q;
  begin_query(&q);
  ask_number(&q, (int64_t)mixed(mark_of_op(op, way & (IS_STEP | IS_MOVE)), (uint64_t)way));
  int before = memo.of == graph ? memo.n : 0;
  return number_of_query(&memo, &q) < before;
}
