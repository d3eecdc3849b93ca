/* check_ways.c: a part of check.c: an operation can run on the layouts of its operands.

   Takes   an operation with a rule, whose operands have layouts.
   Holds   one of three cases along each dimension of the mesh. All operands are whole. Or one
           letter of the rule is cut, in all operands that have it and at the same places, and an
           operand without it is whole, or pending if it is a sum over the letter. Or sums are
           pending, and the operator's row lets them through. A merged dimension has on each rank
           just the rank's part of its letters.

   The rules are its own. choices.c lists the layouts that an operation may have; this file checks
   the layouts that it has, each by itself. The letters of a rule, the cuts of a layout, and the
   sizes of parts are definitions that both share. */
#include "check/check.h"

#include <string.h>

/* An operation, the letters of its rule, and the layouts of its inputs and then its outputs. */
struct running {
  int id, n;
  const struct op *op;
  struct letters l;
  struct layout lies[MAX_INPUTS + MAX_OUTPUTS];
};

/* The letter that a shard cuts, and the number of parts outside of the cut. */
struct letter_cut {
  int letter;
  int64_t stride;
};

static bool is_input(const struct running *r, int i)
{
  return i < r->op->nin;
}

static int dimensions(const struct running *r, int i)
{
  return is_input(r, i) ? r->l.ndim_in[i] : r->l.ndim_out[i - r->op->nin];
}

static const struct axis *axes(const struct running *r, int i)
{
  return operand_axes(r->op, &r->l, i);
}

/* A dimension of one letter may be cut in strides. In a merged dimension a stride leads to the
   beginning of a letter. */
static struct letter_cut cut_letter(const struct running *r, int i, struct placement p)
{
  if (p.dim >= dimensions(r, i)) return (struct letter_cut){NONE, 0};
  const struct axis *axis = &axes(r, i)[p.dim];
  int64_t stride = p.outer > 1 ? p.outer : 1;
  if (axis->n == 1) return (struct letter_cut){axis->letter[0], stride};
  for (int k = 0; k < axis->n; k++) {
    if (stride == 1) return (struct letter_cut){axis->letter[k], 1};
    if (stride % r->l.size[axis->letter[k]]) break;
    stride /= r->l.size[axis->letter[k]];
  }
  return (struct letter_cut){NONE, 0};
}

/* The number of the operand's dimensions with the letter; merged: together with other letters. */
static int letter_count(const struct running *r, int i, int letter, bool merged)
{
  int times = 0;
  for (int d = 0; d < dimensions(r, i); d++)
    for (int k = 0; k < axes(r, i)[d].n; k++)
      times += axes(r, i)[d].letter[k] == letter && (!merged || axes(r, i)[d].n > 1);
  return times;
}

/* -------------------------------------------------------------- along one dimension of the mesh */

/* Whether the row lets the letter be cut so: in strides only where it is a dimension of its own in
   all operands, and no kernel asks where its part begins. */
static bool may_cut(const struct running *r, struct letter_cut c)
{
  const struct letters *l = &r->l;
  int alike = 0;
  for (int k = 0; k < l->n; k++) alike += l->name[k] == l->name[c.letter];
  if (l->whole[c.letter]) return false;
  if (l->gets_start[c.letter] && alike > 1 && l->name[c.letter] != '.') return false;
  if (c.stride == 1) return true;
  for (int i = 0; i < r->n; i++)
    if (letter_count(r, i, c.letter, true)) return false;
  return !l->gets_start[c.letter] && l->size[c.letter] % c.stride == 0;
}

/* All operands with the letter have the part that `like` has. */
static bool is_cut_alike(const struct running *r, int d, struct letter_cut c, struct placement like)
{
  for (int i = 0; i < r->n; i++) {
    struct placement p = r->lies[i].on[d];
    bool counts = is_input(r, i) && r->l.summed[i] >> c.letter & 1;
    if (counts || !letter_count(r, i, c.letter, false)) {
      /* Whether an operand without the cut letter has the right placement. */
      bool is_right_without =
          counts ? p.kind == PARTIAL && p.reduction == SUM : p.kind == REPLICATE;
      if (!is_input(r, i)) {
        is_right_without = p.kind == PARTIAL && p.reduction == r->l.reduction[i - r->op->nin];
      }
      if (!is_right_without) return false;
      continue;
    }
    if (p.kind != SHARD || p.shift != like.shift) return false;
    struct letter_cut own = cut_letter(r, i, p);
    if (own.letter != c.letter || own.stride != c.stride) return false;
  }
  return true;
}

/* A cast to another type rounds each term, not the sum, unless it rounds nothing. */
static bool rounds(const struct op *op)
{
  enum type from = graph->value[op->in[0]].type, to = op->type;
  bool widens = to == from || to == F32 || to == F64;
  bool of_whole =
      (from == I32 || from == I64 || from == BOOL || blocks_of(from).numbers) && to != BOOL;
  return op->kind == OP_cast && !widens && !(of_whole && to != BF16);
}

/* Whether the row has an alternative of just these inputs, with this reduction. */
static bool lets_through(const struct op *op, unsigned pending, enum reduction reduction)
{
  static const char *const name[] = {[SUM] = "", [MAX] = ":max", [MIN] = ":min"};
  for (const char *c = linear_of(op); *c; c += strspn(c, "|")) {
    size_t n = strcspn(c, ":|"), all = strcspn(c, "|");
    unsigned inputs = 0;
    for (size_t k = 0; k < n; k++) inputs |= c[k] == '*' ? (1u << op->nin) - 1 : 1u << (c[k] - 'a');
    const char *of = all > n ? c + n : "";
    bool is_of = strlen(name[reduction]) == all - n && !strncmp(of, name[reduction], all - n);
    if (is_of && inputs == pending) return true;
    c += all;
  }
  return false;
}

static bool runs_along(const struct running *r, int d)
{
  for (int i = 0; i < r->n; i++) {
    struct placement p = r->lies[i].on[d];
    if (p.kind != SHARD) continue;
    struct letter_cut c = cut_letter(r, i, p);
    return c.letter != NONE && may_cut(r, c) && is_cut_alike(r, d, c, p);
  }
  unsigned inputs = 0;
  int first = NONE, outputs = 0;
  for (int i = 0; i < r->n; i++) {
    struct placement p = r->lies[i].on[d];
    if (p.kind != PARTIAL) continue;
    if (first == NONE) first = (int)p.reduction;
    if ((int)p.reduction != first) return false;
    if (is_input(r, i)) inputs |= 1u << i;
    outputs += !is_input(r, i);
  }
  if (first == NONE) return true;
  return outputs == r->op->nout && !rounds(r->op) &&
         lets_through(r->op, inputs, (enum reduction)first);
}

/* ----------------------------------------------------------- several dimensions of the mesh
 * together */

/* Two cuts of one letter at one place have the same order in all operands. Strides of a dimension
   divide each other. A value is pending in one way. */
static bool check_ways_agree(const struct running *r, int d, int e)
{
  int order = NONE;
  for (int i = 0; i < r->n; i++) {
    struct placement p = r->lies[i].on[d], q = r->lies[i].on[e];
    if (p.kind == PARTIAL && q.kind == PARTIAL && p.reduction != q.reduction) return false;
    if (p.kind != SHARD || q.kind != SHARD || p.dim != q.dim) continue;
    int64_t a = p.outer > 1 ? p.outer : 1, b = q.outer > 1 ? q.outer : 1;
    if (a != b) {
      if ((a > b ? a % b : b % a) != 0) return false;
      continue;
    }
    int now = p.cut_order <= q.cut_order;
    if (order != NONE && now != order) return false;
    order = now;
  }
  return true;
}

/* The part [first, first + size) of a letter at a coordinate, as the operand's dimension cuts it.
 */
struct letter_part {
  int64_t first, size;
};

static struct letter_part part_of_letter(const struct running *r, int i, int dim, int letter,
                                         const int *coordinate)
{
  struct letter_part part = {0, r->l.size[letter]};
  int cut[MAX_MESH], n = cuts_of(&graph->mesh, r->lies[i], dim, cut);
  for (int k = 0; k < n; k++) {
    struct placement p = r->lies[i].on[cut[k]];
    if (cut_letter(r, i, p).letter != letter) continue;
    int parts = graph->mesh.size[cut[k]];
    int at = (coordinate[cut[k]] + parts - (int)p.shift % parts) % parts;
    part.first += cut_first(&graph->mesh, cut[k], part.size, at);
    part.size = cut_size(&graph->mesh, cut[k], part.size, at);
  }
  return part;
}

/* Whether the rank's part of a merged dimension is made of its parts of the letters. */
static bool is_made_of_letters(const struct running *r, int i, int dim, const int *coordinate)
{
  const struct axis *axis = &axes(r, i)[dim];
  struct shape whole = {.ndim = dim + 1};
  struct layout layout = r->lies[i];
  int64_t first = 0, size = 1;
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (layout.on[d].kind != SHARD || layout.on[d].dim != dim) layout.on[d] = (struct placement){0};
  for (int d = 0; d < dim; d++) whole.size[d] = 1;
  whole.size[dim] = 1;
  for (int k = 0; k < axis->n; k++) {
    struct letter_part part = part_of_letter(r, i, dim, axis->letter[k], coordinate);
    first = first * r->l.size[axis->letter[k]] + part.first;
    size *= part.size;
    whole.size[dim] *= r->l.size[axis->letter[k]];
  }
  struct part here = local_part(&graph->mesh, whole, layout, coordinate);
  if (here.shape.size[dim] != size) return false;
  return !size || is_strided(&graph->mesh, layout, dim) || here.first[dim] == first;
}

/* The k-th of the coordinates that the check compares along a dimension of the mesh: all, or of
   many the first and the last ones and one between. */
static int looked_at(int mesh_dim, int k)
{
  int n = graph->mesh.size[mesh_dim];
  const int some[] = {0, 1, n / 2, n - 2, n - 1};
  if (n <= 8) return k < n ? k : NONE;
  return k < 5 ? some[k] : NONE;
}

static bool check_ways_is_aligned(const struct running *r, int i, int dim)
{
  int cut[MAX_MESH], n = cuts_of(&graph->mesh, r->lies[i], dim, cut), k[MAX_MESH] = {0};
  int coordinate[MAX_MESH] = {0}, at = 0;
  while (at < n) {
    if (!is_made_of_letters(r, i, dim, coordinate)) return false;
    for (at = 0; at < n; at++) {
      int next = looked_at(cut[at], ++k[at]);
      coordinate[cut[at]] = next == NONE ? 0 : next;
      if (next != NONE) break;
      k[at] = 0;
    }
  }
  return true;
}

void check_way(int id)
{
  struct running r = {.id = id, .op = &graph->op[id]};
  op_letters(r.op, &r.l);
  r.n = operand_count(r.op);
  for (int i = 0; i < r.n; i++)
    for (int d = 0; d < graph->mesh.ndim; d++)
      r.lies[i].on[d] = placement_in(r.op, nth_operand(r.op, i), d);
  for (int d = 0; d < graph->mesh.ndim; d++)
    require(runs_along(&r, d), id, "it does not run on the layouts of its inputs");
  for (int d = 0; d < graph->mesh.ndim; d++)
    for (int e = 0; e < d; e++)
      require(check_ways_agree(&r, e, d), id, "its operands are cut in other orders");
  for (int i = 0; i < r.n; i++)
    for (int dim = 0; dim < dimensions(&r, i); dim++)
      require(axes(&r, i)[dim].n < 2 || check_ways_is_aligned(&r, i, dim), id,
              "its merged dimensions are not where they seem");
}
