/* space.c: the space of elements that a kernel walks over: its loops, and where in memory an
   operand's element is at each step.

   Takes   a fused operation; the letters of the operations in it (rule.c).
   Leaves  the loops over a rank's part; indices as text, in terms of the loops' variables.

   An operand's letters may stand in any order, and some of them be missing: each of its dimensions
   runs along one of the space with a stride of its own, along none where it is stretched. The loops
   go through what is written in the order in which it lies in memory. */
#include "kernel.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char loop_variable[][2] = {"i", "j", "k", "l", "p", "q", "r", "s"};

/* ------------------------------------------------------------------------------------- operands */

static const struct axis *space_axes(const struct op *op, const struct letters *l)
{
  return is_reduce(op->kind) ? l->in[0] : l->out[0];
}

static int dimension_with(const struct op *op, const struct letters *l, const struct axis *axis)
{
  const struct axis *space = space_axes(op, l);
  if (axis->n != 1) return NONE;
  for (int d = 0; d < graph->value[space_of(op)].shape.ndim; d++)
    if (space[d].n && space[d].letter[0] == axis->letter[0]) return d;
  return NONE;
}

void find_operand(const struct op *op, const struct letters *l, int i, int rank,
                  struct operand *operand)
{
  int value = i < op->nin ? op->in[i] : op->out;
  const struct axis *axis = i < op->nin ? l->in[i] : l->out[0];
  struct shape here = local_shape(value, rank);
  *operand = (struct operand){.value = value, .ndim = here.ndim};
  local_strides(value, rank, operand->stride);
  for (int d = 0; d < here.ndim; d++) {
    operand->along[d] = dimension_with(op, l, &axis[d]);
    operand->size[d] = here.size[d];
  }
}

int space_dimension(const struct op *op, const struct letters *l, char name)
{
  const struct axis *space = space_axes(op, l);
  for (int d = 0; d < graph->value[space_of(op)].shape.ndim; d++)
    if (space[d].n && l->name[space[d].letter[0]] == name) return d;
  return NONE;
}

/* "...D@" of "...D@,...I->...I" */
static const char *operand_rule(const struct op *op, int i)
{
  const char *c = rule_of(op);
  for (; i; i--) c += strcspn(c, ",") + 1;
  return c;
}

int indexed_dimension(const struct op *op, int i)
{
  const char *c = operand_rule(op, i);
  bool behind_rest = !strncmp(c, "...", 3);
  c += strspn(c, ".");
  if (isupper((unsigned char)*c)) return __builtin_ctz(op->dims);
  int behind = 0; /* letters from this one on */
  for (; *c && *c != ',' && *c != '-'; c++) behind += isalpha((unsigned char)*c) != 0;
  return behind_rest ? graph->value[op->in[i]].shape.ndim - behind : 0;
}

bool reads_by_index(const struct op *op, int i)
{
  const char asks[] = {'$', (char)('a' + i), '(', 0};
  return strstr(op_row[op->kind].element, asks) != NULL;
}

bool reads_elsewhere(const struct op *op, int i)
{
  struct letters l;
  op_letters(op, &l);
  const struct axis *space = space_axes(op, &l);
  int ndim = graph->value[space_of(op)].shape.ndim;
  if (reads_by_index(op, i) || l.ndim_in[i] != ndim) return true;
  for (int d = 0; d < ndim; d++) {
    const struct axis *axis = &l.in[i][d];
    if (axis->n != space[d].n || (axis->n && axis->letter[0] != space[d].letter[0])) return true;
  }
  return false;
}

/* ---------------------------------------------------------------------------------------- loops */

/* Places in the order of the loops at which one must begin: the dimension that stands there may not
   be one loop with the one before. */
typedef bool borders[MAX_DIMS + 1];

/* Whether the value's elements, all of them, are those of the kernel's space. */
static bool fills(const struct draft *k, int value)
{
  return same_shape(local_shape(value, k->rank), k->loops.space);
}

/* The value whose order in memory the loops follow: what is written, else what is read; NONE where
   nothing has the shape of the space. */
static int leader(const struct draft *k)
{
  int *list = alloc((size_t)op_width(k->group) * sizeof *list);
  for (int i = 0, n = op_writes(k->group, list); i < n; i++)
    if (graph->value[list[i]].stored && fills(k, list[i])) return list[i];
  for (int i = 0, n = op_reads(k->group, list); i < n; i++)
    if (fills(k, list[i])) return list[i];
  return NONE;
}

/* By rows, those of a row are the innermost. */
static void find_order(struct draft *k)
{
  int value = leader(k), n = 0, ndim = k->loops.space.ndim;
  for (int within = 0; within < 2; within++)
    for (int at = 0; at < ndim; at++) {
      int d = value == NONE ? at : dimension_at(value, at);
      bool of_row = k->stages.rows != NONE && d >= k->stages.rows;
      if (of_row == within) k->loops.order[n++] = d;
    }
}

/* The dimensions whose loops are told apart from the others: a row's, or those that are reduced. */
static unsigned marked_dims(const struct draft *k)
{
  unsigned dims = 0;
  for (int d = 0; d < k->loops.space.ndim; d++)
    if (k->stages.rows != NONE && d >= k->stages.rows) dims |= 1u << d;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    if (k->stages.rows == NONE && is_reduce(op->kind)) dims = op->dims;
  }
  return dims;
}

/* Where an operand does not lie row by row. */
static void part_at_operand(const struct loops *loops, const struct operand *o, int replaced,
                            borders apart)
{
  int64_t stride[MAX_DIMS] = {0};
  for (int d = 0; d < o->ndim; d++)
    if (o->along[d] != NONE && d != replaced) stride[o->along[d]] = o->stride[d];
  for (int at = 1; at < loops->space.ndim; at++) {
    int d = loops->order[at];
    apart[at] |= stride[loops->order[at - 1]] != stride[d] * loops->space.size[d];
  }
}

bool names_letter(const struct op *op, const char *name)
{
  bool is_input = name[0] >= 'a' && name[0] < 'a' + op->nin;
  return isalpha((unsigned char)name[0]) && !isalpha((unsigned char)name[1]) && !is_input &&
         name[0] != 's';
}

/* An index that the expression asks for has a loop of its own. */
static void part_at_letters(const struct loops *loops, const struct op *op, const struct letters *l,
                            borders apart)
{
  for (const char *c = op_row[op->kind].element; (c = strchr(c, '$'));) {
    int d = names_letter(op, ++c) ? space_dimension(op, l, *c) : NONE;
    for (int at = 0; at < loops->space.ndim; at++)
      if (loops->order[at] == d) apart[at] = apart[at + 1] = true;
  }
}

/* The random number of an element goes by its place in the whole. */
static void part_at_cuts(const struct loops *loops, int value, borders apart)
{
  for (int at = 1; at < loops->space.ndim; at++) {
    int d = loops->order[at];
    apart[at] |= is_cut(value, d) || loops->order[at - 1] + 1 != d;
  }
}

static void part_at(const struct draft *k, const struct op *op, borders apart)
{
  struct letters l;
  op_letters(op, &l);
  for (int i = 0; i <= op->nin; i++) {
    struct operand o;
    find_operand(op, &l, i, k->rank, &o);
    bool indexed = i < op->nin && reads_by_index(op, i);
    part_at_operand(&k->loops, &o, indexed ? indexed_dimension(op, i) : NONE, apart);
  }
  part_at_letters(&k->loops, op, &l, apart);
  if (strstr(op_row[op->kind].element, "$random")) part_at_cuts(&k->loops, op->out, apart);
}

static bool is_whole_counted(const struct op *op)
{
  return strstr(op_row[op->kind].element, "$random") != NULL;
}

/* The most elements that an index counts to. */
static int64_t farthest(const struct draft *k)
{
  int64_t most = 0;
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    for (int i = 0; i <= op->nin; i++) {
      int value = i < op->nin ? op->in[i] : op->out;
      int64_t size =
          elements(is_whole_counted(op) ? graph->value[value].shape : local_shape(value, k->rank));
      if (most < size) most = size;
    }
  }
  return most;
}

void find_loops(struct draft *k)
{
  struct loops *loops = &k->loops;
  borders apart = {false};
  *loops = (struct loops){.space = local_shape(k->stages.space, k->rank),
                          .type = counter_type(farthest(k) + BLOCK * (options.cuda ? 8 : 1))};
  unsigned reduced = marked_dims(k);
  find_order(k);
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    part_at(k, op, apart);
  }
  for (int at = 0; at < loops->space.ndim; at++) {
    int d = loops->order[at];
    if (loops->space.size[d] == 1) {
      apart[at + 1] = true;
      continue;
    }
    int n = loops->n;
    bool joins = n && !apart[at] && loops->reduced[n - 1] == (reduced >> d & 1);
    if (!joins) {
      loops->size[n] = 1;
      loops->first[n] = d;
      loops->reduced[n] = reduced >> d & 1;
      n = ++loops->n;
    }
    loops->last[n - 1] = d;
    loops->size[n - 1] *= loops->space.size[d];
  }
}

/* -------------------------------------------------------------------------------------- indices */

static int loop_that_ends(const struct loops *loops, int dim)
{
  for (int n = 0; n < loops->n; n++)
    if (loops->last[n] == dim) return n;
  return NONE;
}

int innermost_loop(const struct loops *loops)
{
  return loops->n ? loops->n - 1 : NONE;
}

int64_t stride_along(const struct loops *loops, const struct operand *operand, int n)
{
  for (int d = 0; d < operand->ndim; d++)
    if (operand->along[d] == loops->last[n]) return operand->stride[d];
  return 0;
}

static const char *loop_text(const struct loops *loops, int n)
{
  return loops->inner && n == innermost_loop(loops) ? loops->inner : loop_variable[n];
}

const char *variable_text(const struct loops *loops, int dim)
{
  int n = dim == NONE ? NONE : loop_that_ends(loops, dim);
  return n == NONE ? "0" : loop_text(loops, n);
}

const char *innermost_variable(const struct loops *loops)
{
  return loop_variable[innermost_loop(loops)];
}

int64_t row_elements(const struct loops *loops)
{
  int64_t n = 1;
  for (int i = 0; i < loops->n; i++) n *= loops->reduced[i] ? loops->size[i] : 1;
  return n;
}

static void put_term(struct buffer *b, const char *index, int64_t stride)
{
  bool brackets = stride != 1 && strchr(index, ' ');
  put(b, "%s%s%s%s", b->length ? " + " : "", brackets ? "(" : "", index, brackets ? ")" : "");
  if (stride != 1) put(b, " * %" PRId64, stride);
}

char *index_text(const struct loops *loops, const struct operand *operand, int dim, const char *at)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int place = 0; place < operand->ndim; place++) {
    int d = dimension_at(operand->value, place);
    int n = operand->along[d] == NONE ? NONE : loop_that_ends(loops, operand->along[d]);
    if (d == dim && strcmp(at, "0") != 0)
      put_term(&b, at, operand->stride[d]);
    else if (d != dim && n != NONE)
      put_term(&b, loop_text(loops, n), operand->stride[d]);
  }
  if (!b.length) put(&b, "0");
  return b.text;
}

char *row_index_text(const struct loops *loops)
{
  struct buffer b = {0};
  int64_t stride = row_elements(loops);
  for (int n = 0; n < loops->n; n++) {
    if (!loops->reduced[n]) continue;
    stride /= loops->size[n];
    put_term(&b, loop_variable[n], stride);
  }
  return b.length ? b.text : copy_text("0");
}

/* ------------------------------------------------------------- where a part begins in the whole */

static bool cuts(int mesh_dim, int value, int dim)
{
  struct placement p = graph->value[value].layout.on[mesh_dim];
  return p.kind == SHARD && p.dim == dim && graph->mesh.size[mesh_dim] > 1;
}

bool is_cut(int value, int dim)
{
  for (int m = 0; m < graph->mesh.ndim; m++)
    if (cuts(m, value, dim)) return true;
  return false;
}

char *begin_text(const int *cut, int ncut, int64_t n, int64_t factor)
{
  struct buffer b = {0};
  const char *size = NULL; /* the program knows it */
  for (int i = 0; i < ncut; i++) {
    int parts = graph->mesh.size[cut[i]];
    int64_t chunk = (n + parts - 1) / parts;
    if (b.length) put(&b, " + ");
    if (!size && (n % parts == 0 || i + 1 == ncut)) {
      put(&b, "%" PRId64 "L * rank.coordinate[%d]", chunk * factor, cut[i]);
      n = chunk;
      continue;
    }
    if (!size) size = text("%" PRId64, n);
    if (factor != 1) put(&b, "%" PRId64 " * ", factor);
    put(&b, "part_first(%s, %d, rank.coordinate[%d])", size, parts, cut[i]);
    size = text("part_size(%s, %d, rank.coordinate[%d])", size, parts, cut[i]);
  }
  return b.text ? b.text : "0";
}

/* Adds `factor` times the first index of a rank's part in dimension `dim`. */
static void put_first(struct buffer *b, int value, int dim, int64_t factor)
{
  const struct value *v = &graph->value[value];
  int cut[MAX_MESH], ncut = cuts_of(&graph->mesh, v->layout, dim, cut);
  if (is_strided(&graph->mesh, v->layout, dim))
    bug("emit", v->op, "a kernel asks where a strided part begins");
  if (!ncut) return;
  const char *begin = begin_text(cut, ncut, v->shape.size[dim], factor);
  put(b, "%s%s", b->length ? " + " : "", begin);
}

char *first_text(int value, int dim)
{
  struct buffer b = {0};
  put_first(&b, value, dim, 1);
  return b.length ? b.text : "0";
}

char *flat_first_text(int value)
{
  struct buffer b = {0};
  const struct shape *whole = &graph->value[value].shape;
  int64_t stride = elements(*whole);
  for (int d = 0; d < whole->ndim; d++) {
    stride /= whole->size[d];
    put_first(&b, value, d, stride);
  }
  return b.length ? b.text : "0";
}
