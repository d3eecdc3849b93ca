/* recompute.c: the pass `recompute`: the backward computes values again instead of keeping them.

   Takes   the flat local program: collectives and the sizes of a rank's parts are known by now.
           Later passes treat a copied operation like any other.
   Leaves  the forward unchanged. The backward has copies of some of its operations, marked `again`,
           and it reads their results instead of the forward's.

   Cheap work is repeated wherever that keeps fewer bytes: pointwise operations, and those that move
   nothing. Products, reductions, collectives and reads by an index are never repeated. A value that
   the backward needs is either kept, at the price of its bytes, or made again, which needs all of
   its inputs. The least price is that of a minimum cut; of equally cheap cuts, the one that makes
   the fewest values again. Parameters and inputs of the step are free.

   A value that the backward compares is kept, too: a number that another kernel makes again may
   differ in its last bit, and then no element would equal the maximum of its row.

   The modules of a list must stay equal (outline.c). So a value is made again only in the backward
   of the module of the list that made it; values that one module passes to the next are kept.

   Gathered parameters of a unit are gathered again where the unit says so, and then not kept.
   Otherwise they are kept, even if a checkpoint repeats everything around them.

   With `checkpoint`, only the values of a ModuleList's module that others read are kept, so its
   inputs. Everything else that its backward reads, products and collectives included, is made again
   before it. Then cheap work is handled as above, so that less is alive in the module's backward.
   A selective checkpoint also keeps the results of operations that multiply (products, attention)
   and of sums over ranks, and makes the rest again.

   With `checkpoint = {memory = ...}` the modules of lists have levels, from 0: only cheap work is
   made again. At the others any operation of the module may run again, at the price of its time,
   and at each a kept byte costs more than at the one before. The cut finds what is least. The first
   modules have a level, and the rest of them the level before it, so that as little as is needed is
   made again; driver/recomputation.c finds that place. Later modules' backward comes first, when
   the most is kept: so they are the ones that make less again. The bits are the same: operators
   give equal results for equal inputs, and a dropout's random numbers depend only on its place in
   the program and in the tensor. */
#include "graph_passes/graph_passes.h"

#include <string.h>

/* More than the price of all values of any program. */
#define NEVER (INT64_MAX / 4)

/* The state of the pass. */
struct recomputing {
  int known;             /* the number of values before the first copy */
  const int *element;    /* by module: itself or its ancestor that is in a list; or NONE */
  const int *checkpoint; /* the same for the outermost ModuleList */
  bool *again;           /* by value: the backward makes it again */
  int *copy;             /* by value: its copy, or NONE */
  int *next_step; /* by value of a step of a scan: that of the next step, and of the last step
                     that of the first; or NONE */
};

/* --------------------------------------------------------------------------- modules and values */

static int place_in(const int *of, const struct op *op)
{
  return op->module == NONE ? NONE : of[op->module];
}

static const struct op *maker(int value)
{
  return &graph->op[graph->value[value].op];
}

/* Whether it takes memory within a step, and is no copy. */
static bool is_kept(struct recomputing *r, int value)
{
  const struct value *v = &graph->value[value];
  if (value >= r->known || v->role != ACTIVATION || v->is_output || v->op == NONE) return false;
  return maker(value)->phase != CONSTANTS;
}

/* Links the values of a scan's steps, op by op, in the forward or where it runs again. If a step
   has more operations than another, the steps are no loop: outline.c reports that. */
static void join_steps(struct recomputing *r, bool again)
{
  struct list *made = alloc((size_t)(graph->nmodule + 1) * sizeof *made); /* by step, a module */
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    int scan = scan_around(op->module);
    bool runs = op->nout && (again ? op->recomputed : op->phase == FORWARD);
    for (int k = 0; runs && scan != NONE && k < op->nout; k++)
      add(&made[element_within(op->module, scan)], op->out + k);
  }
  for (int m = 0, first = NONE, last = NONE; m < graph->nmodule; m++) {
    if (!made[m].n) continue;
    bool begins = first == NONE || graph->module[first].parent != graph->module[m].parent;
    if (begins) first = last = m;
    if (begins || made[m].n != made[first].n) continue;
    for (int k = 0; k < made[m].n; k++) {
      r->next_step[made[last].at[k]] = made[m].at[k];
      r->next_step[made[m].at[k]] = made[first].at[k];
    }
    last = m;
  }
}

static void begin(struct recomputing *r)
{
  r->known = graph->nvalue;
  r->again = alloc((size_t)r->known);
  r->copy = alloc((size_t)r->known * sizeof *r->copy);
  r->next_step = alloc((size_t)r->known * sizeof *r->next_step);
  for (int v = 0; v < r->known; v++) r->copy[v] = r->next_step[v] = NONE;
  for (int again = 0; again < 2; again++) join_steps(r, again);
}

/* ----------------------------------------------------------------------------------- the copies */

/* Writes the operation again, on its inputs' current copies. */
static void write_again(struct recomputing *r, int id, const int *in)
{
  struct op op = graph->op[id];
  struct shape shape[MAX_OUTPUTS] = {0};
  for (int i = 0; i < op.nin; i++) op.in[i] = in[i];
  if (op.kind == OP_scan_hold) {
    op.phase = BACKWARD;
    set_stage_of(append_update(op), graph->value[graph->op[id].in[0]].op);
    return;
  }
  for (int k = 0; k < op.nout; k++) shape[k] = graph->value[op.out + k].shape;
  op.phase = BACKWARD;
  op.recomputed = true;
  int first = op.out, out = append_op_outputs(op, shape, op.nout);
  for (int k = 0; k < op.nout; k++) {
    struct value v = graph->value[first + k];
    v.op = graph->value[out + k].op;
    graph->value[out + k] = v;
    r->copy[first + k] = out + k;
  }
}

/* ---------------------------------------------------------------------------- under checkpoints */

bool gathers(const struct op *op)
{
  return unit_of(op) != NONE && (op->phase == FORWARD || op->recomputed);
}

bool reshards(const struct op *op)
{
  return graph->unit[unit_of(op)].again && !op->held;
}

/* checkpoint = "selective" keeps what multiplies, and sums over ranks. */
static bool is_selected(const struct op *op)
{
  return *op_row[op->kind].flops || op->kind == OP_all_reduce || scatters_sum(op->kind);
}

/* Whether an operation of the backward reads a copy of this value: both belong to one module. */
static bool in_one_checkpoint(struct recomputing *r, int value, const struct op *reader)
{
  int at = place_in(r->checkpoint, reader);
  if (at == NONE || !is_kept(r, value) || maker(value)->phase != FORWARD) return false;
  if (gathers(maker(value)) && !reshards(maker(value))) return false;
  if (plan_options->selective && is_selected(maker(value))) return false;
  return place_in(r->checkpoint, maker(value)) == at;
}

static void mark_with_inputs(struct recomputing *r, int value)
{
  const struct op *op = maker(value);
  if (r->again[value]) return;
  for (int k = 0; k < op->nout; k++) r->again[op->out + k] = true;
  for (int i = 0; i < op->nin; i++)
    if (in_one_checkpoint(r, op->in[i], op)) mark_with_inputs(r, op->in[i]);
}

/* One loop makes the steps of a scan again: a value that one step makes again, all steps make
   again, even the last one, whose carry nothing reads. Returns whether this adds values to make
   again. */
static bool even_out(struct recomputing *r)
{
  bool adds = false;
  for (int v = 0; v < r->known; v++) {
    int like = r->next_step[v];
    if (like == NONE || !r->again[v] || r->again[like]) continue;
    mark_with_inputs(r, like);
    adds = true;
  }
  return adds;
}

/* By module under a checkpoint: the operations of its forward that run again, in order. */
static struct list *find_runs(struct recomputing *r)
{
  struct list *run = alloc((size_t)(graph->nmodule + 1) * sizeof *run);
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin && op->phase == BACKWARD; i++)
      if (in_one_checkpoint(r, op->in[i], op)) mark_with_inputs(r, op->in[i]);
  }
  while (even_out(r)) continue;
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    /* Where the steps of a scan run again, the last step also makes its carry, which nothing reads.
     */
    bool held = op->phase == FORWARD && op->kind == OP_scan_hold &&
                place_in(r->checkpoint, op) != NONE && r->again[op->in[0]];
    if (held || (op->phase == FORWARD && op->nout && r->again[op->out]))
      add(&run[place_in(r->checkpoint, op)], graph->order[at]);
  }
  return run;
}

/* Makes the operation read the copies. */
static void read_copies(struct recomputing *r, int id, int *in)
{
  const struct op *op = &graph->op[id];
  for (int i = 0; i < op->nin; i++)
    in[i] = in_one_checkpoint(r, op->in[i], op) ? r->copy[op->in[i]] : op->in[i];
}

static void need_a_list(struct recomputing *r)
{
  for (int m = 0; m < graph->nmodule; m++)
    if (r->checkpoint[m] != NONE) return;
  plan_error(plan_options->train_line,
             "checkpoint computes the modules of an nn.ModuleList "
             "again, each before its backward; this model has no such list");
}

static void write_checkpoints(struct recomputing *r)
{
  need_a_list(r);
  begin(r);
  struct list *run = find_runs(r);
  int norder = graph->norder, *order = graph->order, in[MAX_INPUTS];
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    int module = place_in(r->checkpoint, &graph->op[order[at]]);
    if (module != NONE && graph->op[order[at]].phase == BACKWARD) {
      for (int k = 0; k < run[module].n; k++) {
        read_copies(r, run[module].at[k], in);
        write_again(r, run[module].at[k], in);
      }
      run[module].n = 0;
      read_copies(r, order[at], graph->op[order[at]].in);
    }
    append_to_order(order[at]);
  }
}

/* ----------------------------------------------------------------------------------- cheap work */

bool is_cheap(const struct op *op)
{
  if (gathers(op) && reshards(op)) return true;
  enum cheap cheap = op_row[op->kind].cheap;
  return cheap == BY_ELEMENT ? is_pointwise(op->kind) : cheap == CHEAP;
}

/* The backward may make values of the forward again, and values that a checkpoint repeats. */
static bool is_backward(const struct op *op)
{
  return op->phase == BACKWARD && !op->recomputed;
}

/* The level of the module whose operation it is. */
static int level_of(struct recomputing *r, const struct op *op)
{
  const int module = place_in(r->element, op);
  return module == NONE ? 0 : graph->module[module].again;
}

/* Whether the backward may make its results again. The steps of a scan keep what is not cheap. */
static bool may_run_again(struct recomputing *r, const struct op *op)
{
  if (is_cheap(op)) return true;
  if (!level_of(r, op) || op->phase != FORWARD || gathers(op)) return false;
  if (is_transfer(op->kind) || joins_stages(op) || op_row[op->kind].updates) return false;
  return scan_around(op->module) == NONE;
}

static bool is_choice(struct recomputing *r, int value)
{
  return is_kept(r, value) && !is_backward(maker(value));
}

/* The cut: a value that the backward may need is a node, near if it needs it. A second node is
   near if the value is made again. */
struct need {
  struct cut *cut;
  int *node;        /* by value: its node, the next number is its second node; or NONE */
  int *run;         /* by operation that is not cheap: its node, near if it runs again; or NONE */
  bool *leaves;     /* by value: it passes between modules of a list, or out of the list, or is
                       compared */
  struct list list; /* the values that have nodes */
};

static int needed(struct need *n, int value)
{
  if (n->node[value] == NONE) {
    n->node[value] = add_node(n->cut);
    add_node(n->cut);
    add(&n->list, value);
  }
  return n->node[value];
}

static bool compares(const struct op *op)
{
  return strstr(rule_of(op), ":bool") || op_row[op->kind].compares;
}

/* By level the time that a kept byte is worth, in units of so many to a picosecond: it doubles with
   every eighth level. */
enum { PER_PICOSECOND = 256 };

static int64_t price_at_level(int64_t bytes, int level)
{
  /* 1024 times the powers of the eighth root of 2. */
  static const int power[] = {1024, 1117, 1218, 1328, 1448, 1579, 1722, 1878};
  return (int64_t)((double)bytes * power[(level - 1) % 8] / 1024) << (level - 1) / 8;
}

/* The node of an operation that is not cheap. All that it takes must be there if it runs again. */
static int run_node(struct recomputing *r, struct need *n, const struct op *op)
{
  int *node = &n->run[op - graph->op];
  if (*node != NONE) return *node;
  *node = add_node(n->cut);
  add_own_price(n->cut, *node, time_taken(op) * PER_PICOSECOND);
  for (int i = 0; i < op->nin; i++)
    if (is_choice(r, op->in[i])) add_price(n->cut, *node, needed(n, op->in[i]), NEVER);
  return *node;
}

static void set_prices(struct recomputing *r, struct need *n, int value)
{
  const struct op *op = maker(value);
  int node = n->node[value], made = node + 1;
  /* Constants are written where they are read. A view of a value that is kept costs nothing. */
  int64_t price = 0;
  if ((op->kind != OP_full || elements(graph->value[value].shape) != 1) &&
      (op->kind != OP_view || graph->value[op->in[0]].role == ACTIVATION)) {
    price = largest_bytes(value);
    if (level_of(r, op)) price = price_at_level(price, level_of(r, op));
  }
  add_price(n->cut, node, made, price);
  /* A parameter that a checkpoint casts or gathers again is available in the module's backward: it
     is not made again once more. */
  if (n->leaves[value] || !may_run_again(r, op) ||
      (op->recomputed &&
       (gathers(op) || (op->kind == OP_cast && graph->value[op->in[0]].role == PARAMETER)))) {
    add_own_price(n->cut, made, NEVER);
    return;
  }
  if (!is_cheap(op)) {
    add_price(n->cut, made, run_node(r, n, op), NEVER);
    return;
  }
  for (int i = 0; i < op->nin; i++)
    if (is_choice(r, op->in[i])) add_price(n->cut, made, needed(n, op->in[i]), NEVER);
}

static void mark_again(struct recomputing *r)
{
  struct need n = {.cut = new_cut()};
  n.run = alloc((size_t)graph->nop * sizeof *n.run);
  for (int i = 0; i < graph->nop; i++) n.run[i] = NONE;
  n.node = alloc((size_t)r->known * sizeof *n.node);
  n.leaves = alloc((size_t)r->known);
  for (int v = 0; v < r->known; v++) n.node[v] = NONE;
  /* Also marks values for which only the forward's own result will do. */
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (op->phase == FORWARD && !may_run_again(r, op)) continue;
    for (int i = 0; i < op->nin; i++)
      if (is_choice(r, op->in[i]) &&
          (place_in(r->element, maker(op->in[i])) != place_in(r->element, op) ||
           (is_backward(op) && compares(op))))
        n.leaves[op->in[i]] = true;
  }
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    for (int i = 0; i < op->nin && is_backward(op); i++)
      if (is_choice(r, op->in[i]) && n.node[op->in[i]] == NONE)
        add_own_price(n.cut, needed(&n, op->in[i]), -NEVER);
  }
  for (int k = 0; k < n.list.n; k++) {
    set_prices(r, &n, n.list.at[k]);
    /* The steps of a scan make the same again. */
    int value = n.list.at[k];
    int like = r->next_step[value];
    if (like != NONE) add_price(n.cut, n.node[value] + 1, needed(&n, like) + 1, NEVER);
  }
  const bool *near = near_side(n.cut);
  for (int k = 0; k < n.list.n; k++) r->again[n.list.at[k]] = near[n.node[n.list.at[k]] + 1];
}

/* The value for the backward to read. If it is made again: its copy, which is appended here with
   the copies of its inputs, unless it exists. */
static int bring(struct recomputing *r, int value)
{
  if (value >= r->known || !r->again[value]) return value;
  if (r->copy[value] != NONE) return r->copy[value];
  int id = graph->value[value].op, in[MAX_INPUTS];
  for (int i = 0; i < graph->op[id].nin; i++) in[i] = bring(r, graph->op[id].in[i]);
  write_again(r, id, in);
  return r->copy[value];
}

/* -------------------------------------------------------------------------------- within memory */

struct list modules_with_levels(void)
{
  struct list modules = {0};
  const int *element = list_elements();
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    const int module = place_in(element, op);
    if (op->phase == FORWARD && module != NONE && scan_around(module) == NONE)
      add_once(&modules, module);
  }
  return modules;
}

/* What the first module of a level makes again, by name: "feed_forward.w1, attention". */
static const char *names_of_module(struct recomputing *r, int module)
{
  struct buffer b = {0};
  const char *list = graph->module[graph->module[module].parent].path, *last = "";
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    bool again = false;
    if (op->phase != FORWARD || place_in(r->element, op) != module || is_cheap(op)) continue;
    for (int k = 0; k < op->nout; k++) again |= op->out + k < r->known && r->again[op->out + k];
    if (!again) continue;
    const char *name = behind_number(list, value_name(op->out));
    name += *name == '.';
    if (strcmp(name, last)) put(&b, "%s%s", b.length ? ", " : "", printable(name));
    last = name;
  }
  return b.text ? b.text : "nothing";
}

/* "12 of 32 modules make again: ...; the others: ..." */
static const char *again_text(struct recomputing *r)
{
  const struct list modules = modules_with_levels();
  struct buffer b = {0};
  for (int k = 0, n; k < modules.n; k += n) {
    const int level = graph->module[modules.at[k]].again;
    n = 0;
    while (k + n < modules.n && graph->module[modules.at[k + n]].again == level) n++;
    put(&b, "%s%d of %d modules of lists: %s", k ? "; " : "", n, modules.n,
        names_of_module(r, modules.at[k]));
  }
  return b.text ? b.text : "no modules of lists";
}

uint64_t hash_of_levels(void)
{
  struct recomputing run = {.element = list_elements()};
  begin(&run);
  mark_again(&run);
  uint64_t hash = HASH_START;
  for (int v = 0; v < run.known; v++)
    if (run.again[v]) hash = hash_bytes(hash, &v, sizeof v);
  return hash;
}

void recompute(void)
{
  struct recomputing run = {0}, *r = &run;
  if (graph->loss == NONE) return;
  r->element = list_elements();
  r->checkpoint = outermost_elements();
  if (plan_options->checkpoint) write_checkpoints(r);
  begin(r);
  mark_again(r);
  if (plan_options->within)
    graph->recomputation =
        text("%s%s", again_text(r), graph->recomputation ? graph->recomputation : "");
  int norder = graph->norder, *order = graph->order;
  graph->order = NULL;
  graph->norder = graph->order_room = 0;
  for (int at = 0; at < norder; at++) {
    int nin = is_backward(&graph->op[order[at]]) ? graph->op[order[at]].nin : 0;
    for (int i = 0; i < nin; i++) {
      int value = bring(r, graph->op[order[at]].in[i]);
      graph->op[order[at]].in[i] = value;
    }
    append_to_order(order[at]);
  }
}
