/* check_read.c: whether passes can continue from a dump: numbers are in range, chains end, and
   shapes fit. check.c checks what a pass promises beyond that. */
#include "dump/dump.h"

#include <ctype.h>
#include <string.h>

static int line; /* of the current record */

static void need(bool fact, const char *what)
{
  if (!fact) dump_error(line, "%s", what);
}

static bool is_index(int i, int n)
{
  return i >= NONE && i < n;
}

/* --------------------------------------------------------------------------------------- values */

static void check_shape(const struct shape *s)
{
  const int64_t most = (int64_t)1 << 50;
  int64_t n = 1;
  for (int d = 0; d < s->ndim; d++) {
    need(s->size[d] >= 0, "a size is negative");
    need(!__builtin_mul_overflow(n, s->size[d], &n) && n <= most,
         "the shape has too many elements");
  }
}

static void check_layout(const struct layout *layout, const struct shape *s)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    struct placement p = layout->on[i];
    if (p.kind != SHARD) continue;
    need(p.dim >= 0 && p.dim < s->ndim, "a dimension is cut that the value has not");
    need(p.outer <= 1 || (s->size[p.dim] && s->size[p.dim] % p.outer == 0),
         "a shard's outer does not divide its dimension");
  }
}

static bool is_order(unsigned order, int ndim)
{
  unsigned seen = 0;
  for (int at = 0; at < ndim; at++) seen |= 1u << (order >> 3 * at & 7);
  return !order || (seen == (1u << ndim) - 1 && !(order >> 3 * ndim));
}

/* Whether the chain of values that `next` follows ends. */
static bool check_read_ends(int value, int (*next)(int value))
{
  int steps = 0;
  for (; value != NONE && steps <= graph->nvalue; steps++) value = next(value);
  return value == NONE;
}

static int carried_from(int value)
{
  const struct in_loop *loop = in_loop(value);
  return loop->step ? loop->initial : loop->stack == value ? NONE : loop->stack;
}

static int stored_in(int value)
{
  int storage = graph->memory->of[value].storage;
  return storage == value ? NONE : storage;
}

static const int *modules_in; /* by module that is a list: the number of its modules */

static void check_stack(int value)
{
  const struct in_loop *loop = in_loop(value);
  need(loop->step >= -1 && loop->step <= 1 && loop->index >= 0 &&
           (!loop->step || loop->stack != NONE),
       "a stack has no such value");
  need(loop->stack == NONE || in_loop(loop->stack)->stack == loop->stack,
       "the stack is that of no value of the first module");
  need(loop->stack == NONE || loop->step || loop->index < modules_in[loop->list],
       "its list has no such module");
  need(!loop->step || loop->initial != NONE, "what is carried begins with nothing");
  need(check_read_ends(value, carried_from), "what is carried begins with itself");
}

/* A part of a concat buffer has whole rows, which are within those of the concat buffer. */
static void check_wide(int value)
{
  const struct concat_slice *w = concat_slice(value);
  const struct value *v = &graph->value[value];
  if (w->buffer == NONE) return;
  need(v->role == ACTIVATION && concat_slice(w->buffer)->buffer == NONE,
       "it can be no part of a value");
  need(w->row > 0 && w->row <= elements(v->shape) && w->first >= 0 &&
           w->first <= MOST_ARENA_BYTES && w->pitch >= w->first + w->row &&
           w->pitch <= MOST_ARENA_BYTES,
       "a slice is outside of its concat buffer");
}

/* A part of a tensor in files begins and ends within it; without a tensor, the value has no
   part. */
static void check_file_part(const struct value *v, int dim, int64_t first, int64_t all)
{
  int64_t size = dim >= 0 && dim < v->shape.ndim ? v->shape.size[dim] : 0;
  need(all ? dim >= 0 && dim < v->shape.ndim && first >= 0 && size <= all && first <= all - size
           : !dim && !first,
       "a part is outside of its tensor in files");
}

/* "optim.exp_avg.in_proj.weight": names in programs, and of files, are made of its parts. */
static bool is_name_of_state(const char *name)
{
  const char *kind = strncmp(name, "optim.", 6) ? "" : name + 6;
  const char *dot = strchr(kind, '.');
  return dot && dot > kind && dot[1] && (isalpha((unsigned char)*kind) || *kind == '_');
}

static void check_value(int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  bool belongs = v->role == GRADIENT || v->role == SUMS || v->role == STATE;
  check_shape(&v->shape);
  if (v->placed) check_layout(&v->layout, &v->shape);
  need(is_order(v->order, v->shape.ndim), "the order names a dimension twice, or not at all");
  need(!belongs ||
           (v->of != NONE && (graph->value[v->of].role == PARAMETER || is_of_metric(value))),
       "it belongs to no parameter");
  need(v->role != STATE || is_of_metric(value) || (v->name && is_name_of_state(v->name)),
       "a state is called optim., a kind, and what it belongs to");
  need(is_index(v->unit, graph->nunit), "there is no such unit");
  need(v->optimizer >= 0 && (!v->optimizer || v->optimizer < plan_options->noptimizer),
       "there is no such optimizer");
  need(is_index(v->style, graph->nstyle), "there is no such style");
  need(v->pieces >= 0 && v->pieces <= 64, "a value has no such pieces");
  need(loop->list >= 0 && (loop->list < graph->nmodule || loop->list == 0),
       "there is no such list");
  check_stack(value);
  check_wide(value);
  check_file_part(v, v->file_dim, v->file_first, v->file_size);
  check_file_part(v, v->alias_dim, v->alias_first, v->alias_size);
  need(!v->alias_size || v->alias, "a tensor in files of others has no name");
  if (graph->memory) {
    const struct allocation *a = &graph->memory->of[value];
    need(a->storage != NONE && check_read_ends(value, stored_in),
         "a value is in the place of itself");
    need(a->depth >= 1 && a->depth <= 1 << 20 && a->offset >= 0 && a->offset <= MOST_ARENA_BYTES,
         "a value has no place");
    need(a->made >= NONE && a->first >= NONE && a->last >= NONE, "a value lives at no point");
  }
}

/* ----------------------------------------------------------------------------------- operations */

/* Whether an operator with a rule of its own fits its inputs and outputs. */
static void check_rule(const struct op *op)
{
  struct letters l;
  struct op here = *op;
  here.line = line;
  if (op->kind == OP_matmul && op->nin == 3) here.nin = 2; /* the third is an accumulator */
  need(op->kind != OP_custom || (op->custom >= 0 && op->custom < graph->ncustom),
       "there is no such operator");
  bool has_equation = op->kind != OP_custom && !strcmp(op_row[op->kind].rule, "equation");
  need(!has_equation || op->equation, "its rule is missing");
  need(has_equation || !op->equation || is_attention(op), "its rule is that of its row");
  if (!*rule_of(op)) return;
  need(scanned_rule(rule_of(op)), "its rule is none");
  if (op->nbody || !op->nout) return;
  if (!op->nin) return; /* full: its shape is its own */
  op_letters(&here, &l);
  need(l.nout == op->nout, "it makes another number of values");
}

static void check_body(const struct op *op)
{
  bool joins = is_collective(op->kind);
  need(op->nbody || !op_row[op->kind].composed, "such an operation is made of others");
  for (int k = 0; k < op->nbody; k++) {
    const struct op *inner = &graph->op[op->body[k]];
    need(!inner->nbody, "an operation in another is made of others");
    need(!joins || inner->nin == 1, "a member of a bucket takes one value");
    need(!is_update(op) || inner->kind == op->kind, "an update is made of others");
  }
  const struct stages *s = op->stages;
  if (op->kind == OP_fused) need(s && s->n == op->nbody && s->space != NONE, "it has no stages");
  if (op->kind == OP_fused)
    need(op->nin <= 1 && (!op->nin || graph->value[s->space].counts != NONE), "it counts no rows");
  if (!s) return;
  need(s->rows >= NONE && s->rows <= MAX_DIMS && s->count >= 1 && s->count <= MOST_IN_KERNEL,
       "its kernel has no such rows");
  for (int k = 0; k < s->n; k++)
    need(s->task[k].stage >= 0 && s->task[k].stage < MOST_IN_KERNEL, "there is no such stage");
}

/* A phase calls loops and parts, a loop calls body parts, and a part calls nothing. */
static int rank_of(const struct function *f)
{
  return is_phase(f) ? 2 : !f->is_part;
}

static void check_call(const struct op *op, const struct function *in)
{
  if (!op_row[op->kind].calls) return;
  need(in && op->function != NONE, "a call stands where nothing runs, or calls nothing");
  const struct function *f = &graph->function[op->function];
  need(rank_of(f) < rank_of(in) && f->is_part == (op->kind == OP_iteration),
       "it calls what it may not");
  need(op->first >= 0 && op->first < 1 << 16 && op->ahead >= 0 && op->ahead < 1 << 16,
       "there is no such iteration");
}

static void check_collective(const struct op *op)
{
  bool has_exchange = op->kind == OP_exchange || op_row[op->kind].step == PIECES_PACKING;
  need(op->group != NONE, "over is missing: among whom");
  bool joins = is_collective(op->kind) || usual_op(op->kind, FORWARD).group == NONE;
  need(op->group >= NONE && (op->group < graph->ngroup || (!op->group && !joins)),
       "there is no such group");
  need(!has_exchange || (op->exchange >= 0 && op->exchange < graph->nexchange),
       "there is no such exchange");
  bool moves = is_collective(op->kind) || op->kind == OP_redistribute ||
               op_row[op->kind].step != NO_LOCAL_STEP;
  if (!moves || op->nbody) return;
  if (op->kind == OP_exchange_rows)
    need(op->nin == 2 && op->nout == 3, "it takes rows and their count, and makes rows and room");
  else
    need(op->nin >= 1 && op->nout == 1, "a move takes a value and makes one");
  int ndim = graph->value[op->in[0]].shape.ndim;
  need(op->dim >= 0 && op->dim <= ndim && op->dim_to >= 0 && op->dim_to <= ndim,
       "it has no such dimension");
  if (op->kind == OP_redistribute || op_row[op->kind].step == PACKING)
    check_layout(&op->to, &graph->value[op->in[0]].shape);
}

static void check_op(int id)
{
  const struct op *op = &graph->op[id];
  need(!(op->dims >> MAX_DIMS), "it names dimensions that no value has");
  need(op->kind != OP_await ||
           (op->awaits != NONE && scheduled(&graph->op[op->awaits])->overlapped),
       "it awaits what is not overlapped");
  need(op->pieces >= 0 && op->pieces <= 64 && op->piece >= 0 && op->piece <= op->pieces,
       "there is no such piece");
  need(op->kind != OP_matmul || !op->pieces ||
           (op->piece_group >= 0 && op->piece_group < graph->ngroup && op->piece_dim >= 0 &&
            op->piece_dim < graph->value[op->out].shape.ndim),
       "the product has no such pieces");
  const struct scheduled *s = scheduled(&graph->op[id]);
  need(!s->overlapped || is_collective(graph->op[id].kind),
       "what is overlapped is not a collective");
  need(s->prefetch_distance >= 0 && s->prefetch_distance <= MOST_PREFETCHED,
       "it is issued too far ahead");
  need(s->time >= 0 && s->exposed >= 0, "it takes no such time");
  need(s->event >= 0 && (!graph->schedule || s->event <= graph->schedule->nevent),
       "there is no such event");
  int steps = 0;
  for (int at = id; at != NONE; at = scheduled(&graph->op[at])->chained_to, steps++)
    need(steps <= graph->nop, "it is chained to itself");
  need(!is_update(op) || op->phase == UPDATE, "an update stands in another phase than update");
  need(op->unit >= -2 && op->unit <= graph->nunit, "there is no such unit");
  need(!op->packed || op->buffer != NONE, "its buffer is missing");
  check_body(op);
  check_collective(op);
  check_rule(op);
}

/* ----------------------------------------------------------------------------------- the others */

static void check_modules(void)
{
  need(graph->nmodule > 0, "there is no module");
  for (int i = 0; i < graph->nmodule; i++) {
    need(graph->module[i].parent < i, "a module stands before the one that it is in");
    need((graph->module[i].parent == NONE) == (i == 0),
         "the first module is that without a parent");
    need(is_index(graph->module[i].unit, graph->nunit), "a module is of no unit that there is");
    need(graph->module[i].steps >= 0 && graph->module[i].steps <= LONGEST_LIST,
         "a scan has no such number of steps");
  }
  for (int i = 0; i < graph->nunit; i++)
    need(graph->unit[i].module != NONE && graph->unit[i].dim >= -MAX_DIMS &&
             graph->unit[i].dim <= ANY_DIM && graph->unit[i].who,
         "a unit has no module, or no such dimension");
}

static void check_styles(void)
{
  for (int i = 0; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    need(s->module != NONE, "a style is of no module");
    for (int k = 0; k < s->nrequest; k++)
      need(s->request[k].what != REQUEST_PARAMETER || s->request[k].value != NONE,
           "a style places nothing");
  }
  for (int i = 0; i < plan_options->nasync; i++)
    need(plan_options->async[i].module != NONE && plan_options->async[i].pieces >= 0 &&
             plan_options->async[i].pieces <= 64,
         "async_tp is of no module");
  for (int i = 0; i < graph->nasync_tp_result; i++) {
    const struct async_tp_result *c = &graph->async_tp_result[i];
    need(c->op != NONE && c->async >= 0 && c->async < plan_options->nasync, "a cut is of nothing");
  }
}

/* Whether the text is an expression that the front end can write: no other text reaches a
   program. */
static bool is_expression(const char *s)
{
  static const char *const known[] = {"t",    "lr",   "double", "sqrt", "exp",
                                      "log",  "cos",  "sin",    "pow",  "floor",
                                      "ceil", "fabs", "fmin",   "fmax", NULL};
  if (!s || !*s) return false;
  while (*s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz"), digits = strspn(s, "0123456789.");
    if (digits && s[digits] == 'e') digits += 1 + strspn(s + digits + 1, "+-0123456789");
    if (n && !is_word_of(known, text("%.*s", (int)n, s))) return false;
    if (!n && !digits && !strchr(" +-*/(),<>=?:$", *s)) return false;
    s += n ? n : digits ? digits : 1;
  }
  return true;
}

static void check_optimizer(const struct optimizer *o)
{
  need(is_expression(o->rate), "an optimizer has no learning rate");
  for (int k = 0; k < o->nstate; k++) need(*o->state[k], "a state has no name");
  for (int s = 0; s < o->noperation; s++) {
    const struct update_step *step = &o->step[s];
    bool ruled = !strcmp(op_row[step->kind].rule, "equation");
    need(!ruled || (step->equation && scanned_rule(step->equation)), "an update's rule is none");
    need(step->type == F32 || step->type == BF16, "an update casts to no such type");
  }
  for (int k = 0; k < o->nnumber; k++)
    need(!o->number[k].text || is_expression(o->number[k].text), "a number of no known expression");
}

/* For programs in which values are or will be updated. */
static void check_optimizers(void)
{
  bool updates = r.after < PASS_OPTIMIZE && graph->loss != NONE;
  for (int i = 0; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    updates |= op->kind == OP_update;
    bool trains = op->kind == OP_update || op->kind == OP_step_number;
    need(!trains || (op->number[0] >= 0 && op->number[0] < plan_options->noptimizer),
         "there is no optimizer that it could be trained by");
    if (op->kind == OP_step_number) {
      const struct optimizer *o = &plan_options->optimizer[op->number[0]];
      need(op->number[1] >= 0 && op->number[1] < o->nnumber && o->number[op->number[1]].text,
           "an optimizer has no such number");
    }
  }
  need(!updates || plan_options->noptimizer, "there is no optimizer that it could be trained by");
  for (int i = 0; i < plan_options->noptimizer; i++) check_optimizer(&plan_options->optimizer[i]);
}

static void check_others(void)
{
  for (int i = 0; i < graph->ncustom; i++) {
    const struct custom *c = &graph->custom[i];
    need(c->rule && c->linear && !rule_error(c->rule, c->linear), "an operator has no proper rule");
    for (int k = 0; k < MAX_INPUTS; k++)
      need(is_index(c->backward[k], graph->ncustom), "an operator's backward is none");
  }
  for (int i = 0; i < graph->nexchange; i++) {
    const struct exchange *e = &graph->exchange[i];
    check_shape(&e->whole);
    check_layout(&e->move.from, &e->whole);
    check_layout(&e->move.to, &e->whole);
  }
  for (int i = 0; i < graph->nindex_use; i++) check_shape(&graph->index_use[i].part);
  for (int i = 0; i < graph->mesh.ndim; i++)
    need(graph->mesh.bandwidth[i] >= 0 && graph->mesh.latency[i] >= 0, "a link is of no speed");
  const struct cluster *c = &graph->mesh.cluster;
  need(!c->nodes || (c->nodes > 0 && c->devices > 0 && c->cards > 0 && c->intra.bandwidth > 0 &&
                     c->inter.bandwidth > 0 && c->intra.latency >= 0 && c->inter.latency >= 0),
       "a cluster's nodes have no links");
  check_optimizers();
  need(plan_options->accumulate >= 1 && plan_options->accumulate <= 4096,
       "a step takes no batches");
  need(plan_options->prefetched >= 0 && plan_options->prefetched <= MOST_PREFETCHED,
       "too many are prefetched");
  need(plan_options->steps >= 0, "there are no steps");
  const struct memory_plan *m = graph->memory;
  need(!m || (m->arena_bytes >= 0 && m->live_bytes >= 0 && m->scratch_bytes >= 0),
       "the arena has no size");
}

void check_dump(const int *op_line, const int *value_line)
{
  line = 0;
  check_modules();
  modules_in = count_modules_of_lists();
  check_styles();
  for (int i = 0; i < graph->ncall; i++) {
    const struct call *c = &graph->call[i];
    need(c->module != NONE && c->within != NONE && c->parent >= NONE && c->parent < i,
         "a call is made in no module");
    need(c->first >= 0 && c->first <= c->last && c->last <= graph->norder, "a call is of nothing");
    for (int k = 0; k < c->nin; k++) need(c->in[k] != NONE, "a call takes nothing");
    for (int k = 0; k < c->nout; k++) need(c->out[k] != NONE, "a call gives nothing");
  }
  check_others();
  for (int i = 0; i < graph->nvalue; i++) {
    line = value_line[i];
    if (line) check_value(i);
  }
  for (int i = 0; i < graph->nop; i++) {
    line = op_line[i];
    if (line) check_op(i);
  }
  line = 0;
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    need(f->count >= 1 && f->count <= LONGEST_LIST && f->body != NONE,
         "a function runs for no module");
    for (int k = 0; k < f->nop; k++) check_call(&graph->op[f->op[k]], f);
  }
}
