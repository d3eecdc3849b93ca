/* choices.c: from an operation's letters (rule.c), every choice of how it may run on sharded
   inputs.

   The reasoning for one dimension of the mesh follows DTensor's einop_rule. An operation whose
   operands are all replicated runs as it is. If it is cut along a letter, every operand that has
   the letter is sharded there and the others are whole, except a count, which is a pending sum.
   Each rank then makes its part of the output or, if the output lacks the letter, one term of a
   sum. If the operation is linear, pending terms go in and pending terms come out. The dimensions
   of the mesh are independent of each other, except for merged dimensions, whose parts must fit the
   parts of their letters. An input that is strided, shifted, or cut in another order than that of
   the mesh, may be used as it is. */
#include "sharding/sharding.h"

#include <string.h>

/* The place of the letter in an operand: its dimension, or NONE, and the size outside of it. */
static int choices_dimension_with(const struct letters *l, const struct axis *axis, int ndim,
                                  int letter, int64_t *outer)
{
  for (int d = 0; d < ndim; d++) {
    *outer = 1;
    for (int i = 0; i < axis[d].n; *outer *= l->size[axis[d].letter[i++]])
      if (axis[d].letter[i] == letter) return d;
  }
  return NONE;
}

/* How a letter is cut: the outer factor within its dimension, the place in the order of cuts, and
 * the shift. */
struct letter_cut {
  int64_t outer;
  int cut_order;
  unsigned shift;
};

static struct placement shard_of(const struct letters *l, const struct axis *axis, int ndim,
                                 int letter, struct letter_cut cut)
{
  int64_t outside;
  int d = choices_dimension_with(l, axis, ndim, letter, &outside);
  if (d == NONE) return (struct placement){.kind = REPLICATE};
  if (outside > cut.outer) cut.outer = outside;
  return (struct placement){.kind = SHARD,
                            .dim = d,
                            .outer = cut.outer > 1 ? cut.outer : 0,
                            .cut_order = cut.cut_order,
                            .shift = cut.shift};
}

/* Cut along a letter. outer > 1: the letter's own dimension is cut inside so many parts. */
static struct choice cut_along(const struct letters *l, int nin, int letter, struct letter_cut cut)
{
  struct choice c = {.letter = letter};
  for (int i = 0; i < nin; i++) {
    c.in[i] = shard_of(l, l->in[i], l->ndim_in[i], letter, cut);
    if (!(l->summed[i] >> letter & 1)) continue;
    c.in[i] = (struct placement){.kind = PARTIAL, .reduction = SUM};
    c.counted |= 1u << i;
    c.place = __builtin_popcount(l->summed[i] & ((1u << letter) - 1));
  }
  for (int k = 0; k < l->nout; k++) {
    c.out[k] = shard_of(l, l->out[k], l->ndim_out[k], letter, cut);
    if (c.out[k].kind == REPLICATE)
      c.out[k] = (struct placement){.kind = PARTIAL, .reduction = l->reduction[k]};
  }
  return c;
}

/* Whether the letter is a whole dimension in every operand: then it may be cut in strides. */
static bool stands_alone(const struct letters *l, int nin, int letter)
{
  int64_t outer;
  for (int i = 0; i < nin + l->nout; i++) {
    const struct axis *axis = i < nin ? l->in[i] : l->out[i - nin];
    int d = choices_dimension_with(l, axis, i < nin ? l->ndim_in[i] : l->ndim_out[i - nin], letter,
                                   &outer);
    if (d != NONE && axis[d].n > 1) return false;
  }
  return !l->gets_start[letter];
}

static int add_cut(struct letter_cut *list, int n, struct letter_cut cut)
{
  for (int k = 0; k < n; k++)
    if (list[k].outer == cut.outer && list[k].cut_order == cut.cut_order &&
        list[k].shift == cut.shift)
      return n;
  list[n] = cut;
  return n + 1;
}

/* The ways to cut a letter, without repeats: plainly, and as the inputs are cut along it now. A
   kernel that takes the start of its part as an argument cannot take strides. */
enum { MAX_CUTS = 1 + MAX_INPUTS * MAX_MESH };
static int find_cuts(const struct chooser *c, const struct op *o, const struct letters *l,
                     int letter, struct letter_cut *list)
{
  bool alone = stands_alone(l, o->nin, letter);
  int n = add_cut(list, 0, (struct letter_cut){1, 0, 0});
  for (int i = 0; i < o->nin; i++) {
    int64_t outside;
    int dim = choices_dimension_with(l, l->in[i], l->ndim_in[i], letter, &outside);
    for (int d = 0; d < graph->mesh.ndim && dim != NONE; d++) {
      struct placement p = layout_in(c, o->in[i])->on[d];
      int64_t stride = shard_stride(p);
      if (p.kind != SHARD || p.dim != dim) continue;
      if (alone ? l->size[letter] % stride == 0 : stride == outside)
        n = add_cut(list, n, (struct letter_cut){alone ? stride : 1, p.cut_order, p.shift});
    }
  }
  return n;
}

static void add_choice(struct choice *list, int *n, struct choice choice)
{
  if (*n < MAX_CHOICES) list[(*n)++] = choice;
}

static void add_linear(const struct op *o, const struct letters *l, struct choice *list, int *n)
{
  for (const char *c = linear_of(o); *c; c += *c == '|') {
    struct placement pending = {.kind = PARTIAL, .reduction = SUM};
    struct choice choice = {.letter = NONE};
    const char *name = c;
    c += strcspn(c, "|:");
    const char *end = c;
    if (*c == ':') {
      pending.reduction = !strncmp(c, ":max", 4) ? MAX : !strncmp(c, ":min", 4) ? MIN : SUM;
      c += strcspn(c, "|");
    }
    for (; name < end; name++)
      for (int i = 0; i < o->nin; i++)
        if (*name == '*' || *name == 'a' + i) choice.in[i] = pending;
    for (int k = 0; k < l->nout; k++) choice.out[k] = pending;
    add_choice(list, n, choice);
  }
}

const struct layout *layout_in(const struct chooser *c, int value)
{
  return c && value == c->assumed ? &c->assumed_layout : &graph->value[value].layout;
}

int choices(const struct op *o, const struct letters *l, struct choice *list)
{
  return choices_of(NULL, o, l, list);
}

int choices_of(const struct chooser *c, const struct op *o, const struct letters *l,
               struct choice *list)
{
  int n = 0;
  add_choice(list, &n, (struct choice){.letter = NONE});
  for (int letter = 0; letter < l->n; letter++) {
    struct letter_cut cut[MAX_CUTS];
    int of_that_name = 0;
    for (int i = 0; i < l->n; i++) of_that_name += l->name[i] == l->name[letter];
    if (l->size[letter] == 1 || l->whole[letter]) continue;
    /* A kernel takes the start of one dimension: of several under one letter none is cut. */
    if (l->gets_start[letter] && of_that_name > 1 && l->name[letter] != '.') continue;
    for (int k = 0, m = find_cuts(c, o, l, letter, cut); k < m; k++)
      add_choice(list, &n, cut_along(l, o->nin, letter, cut[k]));
  }
  bool linear = true;
  if (o->kind == OP_cast) { /* it is linear unless it rounds */
    enum type from = graph->value[o->in[0]].type;
    linear = o->type == F32 || o->type == from ||
             (o->type != BOOL && o->type != BF16 && !is_floating(from));
  }
  if (linear) add_linear(o, l, list, &n);
  return n;
}

bool counts_own(const struct chooser *c, const struct op *op, const struct choice *choice, int d)
{
  for (int i = 0; i < op->nin; i++) {
    if (!(choice->counted >> i & 1)) continue;
    if (layout_in(c, op->in[i])->on[d].kind != PARTIAL) return false;
    if (!was_counted_along(op->in[i], d, choice->place)) return false;
  }
  return true;
}

/* --------------------------------------------------------------------------- merged dimensions */

/* Whether every rank's part of a merged dimension is made of its parts of the letters. */
static bool choices_is_aligned(const struct letters *l, const struct axis *axis, int dim,
                               int64_t whole, struct layout layout, const struct choice *list,
                               const int *pick)
{
  struct shape shape = {.ndim = dim + 1};
  int coordinate[MAX_MESH] = {0};
  for (int d = 0; d < dim; d++) shape.size[d] = 1;
  shape.size[dim] = whole;
  unsigned cut = 0;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (layout.on[d].kind == SHARD && layout.on[d].dim == dim)
      cut |= 1u << d;
    else
      layout.on[d] = (struct placement){0};
  }
  int by[MAX_MESH], ncut = cuts_of(&graph->mesh, layout, dim, by);
  for (bool more = cut != 0; more;) {
    int64_t size = 1;
    for (int i = 0; i < axis->n; i++) { /* the letter's part, with the cuts in their order */
      int letter = axis->letter[i];
      int64_t n = l->size[letter];
      for (int k = 0; k < ncut; k++)
        if (list[pick[by[k]]].letter == letter)
          n = cut_size(&graph->mesh, by[k], n, coordinate[by[k]]);
      size *= n;
    }
    if (local_part(&graph->mesh, shape, layout, coordinate).shape.size[dim] != size) return false;
    more = false;
    for (int d = graph->mesh.ndim - 1; d >= 0 && !more; d--) {
      if (!(cut >> d & 1)) continue;
      more = ++coordinate[d] < graph->mesh.size[d];
      if (!more) coordinate[d] = 0;
    }
  }
  return true;
}

/* Several strided cuts of one dimension are ordered by their outer factors: each must be a
   multiple of the one outside it. */
static bool strides_nest(struct layout layout, int dim, int64_t size)
{
  int64_t stride[MAX_MESH + 1] = {size};
  int n = 1;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    struct placement p = layout.on[d];
    if (p.kind != SHARD || p.dim != dim || p.outer <= 1) continue;
    int at = n++;
    for (; at > 0 && stride[at - 1] < p.outer; at--) stride[at] = stride[at - 1];
    stride[at] = p.outer;
  }
  for (int i = 1; i < n; i++)
    if (stride[i - 1] % stride[i]) return false;
  return true;
}

bool reductions_agree(struct layout layout)
{
  int first = NONE;
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (layout.on[d].kind != PARTIAL) continue;
    if (first == NONE) first = d;
    if (layout.on[d].reduction != layout.on[first].reduction) return false;
  }
  return true;
}

bool operand_fits(const struct letters *l, int o, int nin, struct layout layout,
                  const struct choice *list, const int *pick)
{
  const struct axis *axis = o < nin ? l->in[o] : l->out[o - nin];
  int ndim = o < nin ? l->ndim_in[o] : l->ndim_out[o - nin];
  struct layout usual = usual_cut_order(layout);
  if (!reductions_agree(layout)) return false;
  for (int d = 0; d < graph->mesh.ndim;
       d++) /* of several layouts with one meaning one is offered */
    if (usual.on[d].cut_order != layout.on[d].cut_order) return false;
  for (int dim = 0; dim < ndim; dim++) {
    int64_t size = 1;
    for (int i = 0; i < axis[dim].n; i++) size *= l->size[axis[dim].letter[i]];
    if (!strides_nest(layout, dim, size)) return false;
    if (axis[dim].n > 1 && !choices_is_aligned(l, &axis[dim], dim, size, layout, list, pick))
      return false;
  }
  return true;
}

bool fits_together(const struct letters *l, int nin, const struct choice *list, const int *pick)
{
  for (int i = 0; i < nin + l->nout; i++) {
    struct layout layout = {0};
    bool input = i < nin;
    for (int d = 0; d < graph->mesh.ndim; d++)
      layout.on[d] = input ? list[pick[d]].in[i] : list[pick[d]].out[i - nin];
    if (!operand_fits(l, i, nin, layout, list, pick)) return false;
  }
  return true;
}
