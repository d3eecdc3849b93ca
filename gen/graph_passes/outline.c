/* outline.c: the pass `outline`: from one flat program to functions.

   Takes   the flat local program in graph->order, and the phase and module of each operation.
   Leaves  a function for each phase that has work, and one for each run of equal modules of a list
           (layers.0, layers.1, ...), which the phase's function calls in a loop. Later passes see
           each distinct layer once. Operations that neither the loss, nor an output, nor an update
           needs are removed (remove_unused.c), and graph->order is empty. Steps of a scan must be
           equal.

   Modules of a list are equal if their operations are, one by one: kind, attributes, shapes,
   layouts, and the source of each input. Dropouts differ in their streams of random numbers, by an
   equal step from each module to the next. The operations of module 0 then represent those of all
   modules, and its values represent stacks: a value of module i has `stack` and `index` i. The
   sources of an input:

     from within            an operation of the same module makes it
     with the module        the module's parameter, or a value that it saved in an earlier loop
     from the neighbour     the module before or after it makes it: the body reads a carried
                            value, `initial` for the module at the end of the list
     from outside           the same value for all

   If anything differs, the modules are not folded; nor beyond a bound that no real model reaches.
   Where the first or the last one differs, the others are folded without it.
 */
#include "graph_passes/graph_passes.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Operations order[first .. first + length): those of one module of a list in one phase. */
struct run {
  int first, length;
};

/* Modules of a list that may be folded: a run of those with equal parameters; in a pipeline, of
   those of a stage. */
struct iteration_range {
  int list, stage;
  int first, count;
};

/* A loop over a list's modules in one phase. The last run is that of the last of `modules`. */
struct region {
  struct iteration_range of;
  int list, count, modules, phase;
  int first, last; /* places in graph->order */
  bool upward;     /* from module 0 to the last */
  struct run *run;
};

/* The state of the pass. */
struct outlining {
  struct region *region;
  int nregion, region_room;
  int *place_of;        /* by operation: its place in graph->order */
  int *region_at;       /* by place: the region that begins there, and 1, or 0 */
  bool *inside;         /* by place: of a region */
  struct list *places;  /* by module that is a list: the operations of its modules, in order */
  bool *is_read_by_all; /* by value: a loop reads it as one value for all of its modules */
  int64_t compared;
};

/* Bounds of the search for regions, far above the needs of models: regions beyond them are not
   folded. */
enum { MOST_COMPARED = 20000000, MOST_REGIONS = 512 };

/* ----------------------------------------------------------------------------- finding the runs */

/* The index, in the span, of the operation's module; NONE if that is not in the span. */
static int index_at(int place, const struct iteration_range *of)
{
  int id = graph->order[place], module = graph->op[id].module;
  int element = module == NONE ? NONE : element_within(module, of->list);
  if (element == NONE) return NONE;
  /* An operation of an update on numbers that all ranks have belongs to no stage, and so to every
     span. */
  bool of_none = stage_of(id) == NONE && !is_of_batch(graph->op[id].phase);
  bool is_in_range = of_none || stage_of(id) == of->stage;
  if (!is_in_range) return NONE;
  int index = place_in_list(element) - of->first;
  return index >= 0 && index < of->count ? index : NONE;
}

/* The runs of all modules of the span, from `place` on, in either direction, without a loop.
   The first gives the length: further operations of the last module stay outside. */
static bool find_region(struct outlining *o, int place, const struct iteration_range *of,
                        struct region *r)
{
  int list = of->list, count = of->count;
  int first = index_at(place, of), phase = (int)graph->op[graph->order[place]].phase;
  *r = (struct region){.of = *of,
                       .list = list,
                       .count = count,
                       .modules = graph->module[list].steps ? graph->module[list].steps : count,
                       .phase = phase,
                       .first = place,
                       .last = place,
                       .upward = first == 0};
  if (first != 0 && first != count - 1) return false;
  r->run = alloc((size_t)count * sizeof *r->run);
  for (int k = 0, length = INT_MAX; k < count; k++) {
    int index = r->upward ? k : count - 1 - k;
    struct run *run = &r->run[index];
    run->first = r->last;
    while (r->last < graph->norder && r->last - run->first < length && !o->inside[r->last] &&
           index_at(r->last, of) == index &&
           in_one_function(graph->order[r->last], graph->order[place]))
      r->last++;
    run->length = r->last - run->first;
    o->compared += run->length;
    if (k == 0) length = run->length;
    if (!length || run->length != length) return false;
  }
  return true;
}

/* --------------------------------------------------------------------------- comparing the runs */

static const struct op *op_at(const struct region *r, int index, int k)
{
  return &graph->op[graph->order[r->run[index].first + k]];
}

static bool same_numbers(const struct op *a, const struct op *b)
{
  bool streams = draws_stream(a->kind);
  for (int i = streams; i < MAX_NUMBERS; i++)
    if (a->number[i] != b->number[i]) return false;
  return a->type == b->type && a->typed == b->typed && a->constant == b->constant &&
         a->custom == b->custom;
}

/* Moves are equal whichever style asks for them: what one layer asks for may be what follows the
   last one asks for. */
static bool same_op(struct outlining *o, const struct op *a, const struct op *b)
{
  const bool same_line = a->line == b->line || (a->why && b->why);
  if (a->kind != b->kind || a->nin != b->nin || !same_line || a->recomputed != b->recomputed ||
      a->last_batch != b->last_batch)
    return false;
  if (!a->equation != !b->equation || (a->equation && strcmp(a->equation, b->equation)))
    return false;
  if (a->scalar != b->scalar || a->softcap != b->softcap || a->dims != b->dims ||
      a->keepdim != b->keepdim)
    return false;
  if (a->group != b->group || a->exchange != b->exchange || a->reduction != b->reduction)
    return false;
  if (a->dim != b->dim || a->dim_to != b->dim_to || !same_layout(a->to, b->to)) return false;
  if (a->nout != b->nout || !same_numbers(a, b)) return false;
  for (int k = 0; k < a->nout; k++) {
    /* Whether one loop may make both, `a` for module 0. A value that a loop of an outer list reads
       by its modules is in that loop's stack: it can be in no other one. */
    bool may_stack = same_value_kind(a->out + k, b->out + k) &&
                     in_loop(a->out + k)->stack == NONE && in_loop(b->out + k)->stack == NONE &&
                     !o->is_read_by_all[a->out + k];
    if (!may_stack) return false;
  }
  return true;
}

/* The step by which the k-th operation's stream grows from each module to the next; false if it
   varies. */
static bool find_growth(const struct region *r, int k, int64_t *growth)
{
  *growth = 0;
  if (!draws_stream(op_at(r, 0, k)->kind)) return true;
  *growth = op_at(r, 1, k)->number[0] - op_at(r, 0, k)->number[0];
  for (int i = 2; i < r->count; i++)
    if (op_at(r, i, k)->number[0] - op_at(r, i - 1, k)->number[0] != *growth) return false;
  return true;
}

/* The index of that run's module. */
static int module_of_run(const struct region *r, int run)
{
  return run < r->count - 1 ? run : r->modules - 1;
}

/* The place at which run `index` makes the value, from its start; NONE if it does not. */
static int made_in(struct outlining *o, const struct region *r, int index, int value)
{
  int op = graph->value[value].op;
  if (op == NONE || o->place_of[op] == NONE) return NONE;
  int k = o->place_of[op] - r->run[index].first;
  return k >= 0 && k < r->run[index].length ? k : NONE;
}

static bool made_by_region(struct outlining *o, const struct region *r, int value)
{
  int op = graph->value[value].op;
  return op != NONE && o->place_of[op] >= r->first && o->place_of[op] < r->last;
}

/* "weight" of "layers.3.weight": the value's name within module `index` of the list. */
static const char *name_within(const struct region *r, int index, int value)
{
  const char *list = graph->module[r->list].path, *name = graph->value[value].name, *rest;
  size_t n = strlen(list);
  if (strncmp(name, list, n) || (n && name[n++] != '.')) return NULL;
  return leading_number('.', name + n, &rest) == r->of.first + index ? rest : NULL;
}

/* The parameter or cache that the value is; or the parameter of the state, of the sum of gradients,
   or of the gradient outside of loops that the value is; or NONE. */
static int parameter_of(int value)
{
  const struct value *v = &graph->value[value];
  if (is_of_module(v)) return value;
  if (v->role == STATE) return v->of;
  return is_gradient(value) && in_loop(value)->stack == NONE ? v->of : NONE;
}

/* The representative of a stack and the value's index in it; false if it belongs to none, or to
   one of another list. In the current region, the value that run i makes at k belongs to the
   stack of the one that run 0 makes there. */
static bool stack_of(struct outlining *o, const struct region *r, int value, int *stack, int *index)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (loop->stack != NONE) {
    *stack = loop->stack;
    *index = loop->index;
    return loop->list == r->list;
  }
  if (!made_by_region(o, r, value)) return false;
  int run = index_at(o->place_of[v->op], &r->of), k = made_in(o, r, run, value);
  *index = module_of_run(r, run);
  *stack = op_at(r, 0, k)->out + (value - op_at(r, run, k)->out);
  return true;
}

/* The source from which the body reads input j of its k-th operation. */
struct source {
  int value;                /* the value itself, unless it is carried */
  int stack, step, initial; /* carried: from the neighbour at index + step */
};

/* One value for all modules. It must not be module 0's own: in the body that would mean each
   module's own. */
static bool all_same(struct outlining *o, const struct region *r, int k, int j)
{
  int value = op_at(r, 0, k)->in[j];
  const struct value *v = &graph->value[value];
  for (int i = 0; i < r->count; i++)
    if (op_at(r, i, k)->in[j] != value) return false;
  bool of_list = parameter_of(value) != NONE && element_within(v->module, r->list) != NONE;
  return !of_list && in_loop(value)->stack != value && !made_by_region(o, r, value);
}

/* Values are no stack of this loop if an earlier loop numbers them by the modules of another list,
   or reads module 0's at each of those, as a scan does. An update that is only a kernel stays
   outside: with its neighbours it is one. */
static bool all_parameters(struct outlining *o, const struct region *r, int k, int j)
{
  const struct op *op = op_at(r, 0, k);
  if (o->is_read_by_all[op->in[j]]) return false;
  bool is_state = graph->value[op->in[j]].role == STATE;
  if (is_state && is_kernel_alone(op)) return false;
  if (is_state && !have_equal_states(op->in[j], r->list, r->of.first, r->count)) return false;
  for (int i = 0; i < r->count; i++) {
    int value = op_at(r, i, k)->in[j];
    const struct in_loop *loop = in_loop(value);
    if (loop->stack != NONE && loop->list != r->list) return false;
    int first = op->in[j];
    int mine = parameter_of(value), its = parameter_of(first);
    bool is_own_parameter = false;
    if (mine != NONE && its != NONE &&
        (graph->value[value].role != STATE || is_same_kind(value, first))) {
      const char *a = name_within(r, 0, its), *b = name_within(r, i, mine);
      is_own_parameter = a && b && !strcmp(a, b) && same_value_kind(first, value);
    }
    if (!is_own_parameter) return false;
  }
  return true;
}

/* Whether every run, except one at the end, reads the same stack at its own index + `step`. */
static bool all_stack(struct outlining *o, const struct region *r, int k, int j, int step,
                      int *stack)
{
  *stack = NONE;
  for (int i = 0; i < r->count; i++) {
    int f, index;
    if (i + step < 0 || i + step >= r->count) continue;
    if (!stack_of(o, r, op_at(r, i, k)->in[j], &f, &index)) return false;
    if (index != module_of_run(r, i + step)) return false;
    if (*stack != NONE && f != *stack) return false;
    *stack = f;
  }
  return *stack != NONE;
}

static bool find_source(struct outlining *o, const struct region *r, int k, int j, struct source *s)
{
  *s = (struct source){.value = op_at(r, 0, k)->in[j], .stack = NONE};
  int stack;
  if (all_stack(o, r, k, j, 0, &stack)) {
    s->value = stack;
    return true;
  }
  if (all_same(o, r, k, j) || all_parameters(o, r, k, j)) return true;
  for (int step = -1; step <= 1; step += 2) {
    int end = step < 0 ? 0 : r->count - 1;
    if (!all_stack(o, r, k, j, step, &stack)) continue;
    /* A carried value of this loop must come from the module that ran before. */
    if (made_in(o, r, 0, stack) != NONE && (step < 0) != r->upward) continue;
    int initial = op_at(r, end, k)->in[j], f, index;
    if (stack_of(o, r, initial, &f, &index) && f == stack) continue;
    if (!same_value_kind(initial, stack) || made_by_region(o, r, initial)) continue;
    *s = (struct source){.stack = stack, .step = step, .initial = initial};
    return true;
  }
  return false;
}

/* -------------------------------------------------------------------------------------- folding */

static int carried_value(const struct source *s)
{
  static struct memo carried;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_number(&q, s->stack);
  ask_number(&q, s->step);
  ask_number(&q, s->initial);
  int *value = answer_to(&carried, &q, sizeof *value, &is_new);
  if (is_new) {
    struct value from = graph->value[s->initial];
    int c = add_value(ACTIVATION, value_name(s->initial), from.type, from.shape, from.module,
                      from.line);
    struct value *v = &graph->value[c];
    v->layout = from.layout;
    v->order = from.order;
    v->placed = true;
    struct in_loop *loop = row_in_loop(c);
    loop->stack = s->stack;
    loop->step = s->step;
    loop->initial = s->initial;
    *value = c;
  }
  return *value;
}

/* Compares module by module, in memory order. */
static bool has_same_ops(struct outlining *o, const struct region *r)
{
  for (int i = 1; i < r->count; i++)
    for (int k = 0; k < r->run[0].length; k++, o->compared++)
      if (!same_op(o, op_at(r, 0, k), op_at(r, i, k))) return false;
  return true;
}

/* The inputs of the body's operations: source[k * MAX_INPUTS + j] of the k-th; NULL if the
   modules cannot be folded. */
static struct source *find_sources(struct outlining *o, const struct region *r)
{
  int64_t growth;
  int length = r->run[0].length;
  if (!has_same_ops(o, r)) return NULL;
  struct source *source = alloc((size_t)length * MAX_INPUTS * sizeof *source);
  for (int k = 0; k < length; k++) {
    if (!find_growth(r, k, &growth)) return NULL;
    for (int j = 0; j < op_at(r, 0, k)->nin; j++)
      if (!find_source(o, r, k, j, &source[k * MAX_INPUTS + j])) return NULL;
  }
  return source;
}

/* Value `of` has the role in the module of that run that `first` has in module 0. */
static void join(const struct region *r, int of, int first, int run)
{
  struct in_loop *loop = row_in_loop(of);
  loop->stack = first;
  loop->index = module_of_run(r, run);
  loop->list = r->list;
  if (loop->index == 1) row_in_loop(first)->sibling = of;
}

static void find_regions_of(struct outlining *o, const struct iteration_range *of)
{
  for (int k = 0; k < o->places[of->list].n; k++) {
    struct region r;
    int place = o->places[of->list].at[k];
    if (o->compared > MOST_COMPARED || o->nregion == MOST_REGIONS) {
      if (o->compared > MOST_COMPARED)
        ended_early("outline", "equal layers", MOST_COMPARED, "operations compared");
      else
        ended_early("outline", "equal layers", MOST_REGIONS, "loops");
      return;
    }
    if (o->inside[place] || !find_region(o, place, of, &r)) continue;
    const struct source *source = find_sources(o, &r);
    if (!source) continue;
    for (int n = 0; n < r.run[0].length; n++) {
      struct op *op = &graph->op[graph->order[r.run[0].first + n]];
      for (int j = 0; j < op->nin; j++) {
        const struct source *s = &source[n * MAX_INPUTS + j];
        if (s->stack == NONE && all_parameters(o, &r, n, j))
          for (int i = r.count; i-- > 0;) join(&r, op_at(&r, i, n)->in[j], op->in[j], i);
        op->in[j] = s->stack == NONE ? s->value : carried_value(s);
        if (s->stack == NONE && in_loop(s->value)->stack == NONE)
          o->is_read_by_all[s->value] = true;
      }
      for (int i = 0; i < r.count; i++)
        for (int out = 0; out < op->nout; out++)
          join(&r, op_at(&r, i, n)->out + out, op->out + out, i);
      int64_t growth;
      if (find_growth(&r, n, &growth) && draws_stream(op->kind)) op->stream_growth = growth;
    }
    for (int i = r.first; i < r.last; i++) o->inside[i] = true;
    GROW(o->region, o->nregion, o->region_room);
    o->region[o->nregion++] = r;
    o->region_at[r.first] = o->nregion;
  }
}

/* Whether the inputs of all modules' operations are of the same kinds. */
static bool has_same_inputs(const struct region *r)
{
  for (int k = 0; k < r->run[0].length; k++)
    for (int j = 0; j < op_at(r, 0, k)->nin; j++)
      for (int i = 1; i < r->count; i++)
        if (!same_value_kind(op_at(r, 0, k)->in[j], op_at(r, i, k)->in[j])) return false;
  return true;
}

static bool is_update_phase(int place)
{
  return !is_of_batch(graph->op[graph->order[place]].phase);
}

/* The operations of the modules of the range that would be in loops, before their inputs' sources
   are known. */
static int64_t foldable(struct outlining *o, const struct iteration_range *of)
{
  int64_t all = 0;
  int behind = 0;
  for (int k = 0; k < o->places[of->list].n; k++) {
    struct region r;
    const int place = o->places[of->list].at[k];
    if (o->compared > MOST_COMPARED) return 0;
    if (place < behind || is_update_phase(place) || o->inside[place]) continue;
    if (!find_region(o, place, of, &r)) continue;
    if (!has_same_ops(o, &r) || !has_same_inputs(&r)) continue;
    all += r.last - r.first;
    behind = r.last;
  }
  return all;
}

/* What find_regions_of changes, to go back to. Values that it has added stay, and nothing reads
   them. */
struct before_folding {
  struct op *op;
  struct in_loop *in_loop;
  int nloop, nregion;
  int *region_at;
  bool *inside, *is_read_by_all;
};

static void *copy_of(const void *list, size_t bytes)
{
  void *copy = malloc(bytes + 1);
  if (!copy) usage_error(3, "no memory");
  if (bytes) memcpy(copy, list, bytes);
  return copy;
}

static struct before_folding remember_folding(const struct outlining *o)
{
  const struct values_in_loops *l = graph->in_loops;
  const int nloop = l ? l->nvalue : 0;
  const size_t places = (size_t)graph->norder;
  return (struct before_folding){
      .op = copy_of(graph->op, (size_t)graph->nop * sizeof *graph->op),
      .in_loop = copy_of(l ? l->of : NULL, (size_t)nloop * sizeof(struct in_loop)),
      .nloop = nloop,
      .nregion = o->nregion,
      .region_at = copy_of(o->region_at, (places + 1) * sizeof *o->region_at),
      .inside = copy_of(o->inside, places),
      .is_read_by_all = copy_of(o->is_read_by_all, (size_t)graph->nvalue)};
}

/* values: how many there were. */
static void go_back_before(struct outlining *o, const struct before_folding *b, int values)
{
  struct values_in_loops *l = graph->in_loops;
  const size_t places = (size_t)graph->norder;
  memcpy(graph->op, b->op, (size_t)graph->nop * sizeof *graph->op);
  memcpy(o->region_at, b->region_at, (places + 1) * sizeof *o->region_at);
  memcpy(o->inside, b->inside, places);
  memcpy(o->is_read_by_all, b->is_read_by_all, (size_t)values);
  o->nregion = b->nregion;
  for (int i = 0; l && i < l->nvalue && i < values; i++)
    l->of[i] = i < b->nloop ? b->in_loop[i] : in_no_loop;
}

static void forget_folding(struct before_folding *b)
{
  free(b->op);
  free(b->in_loop);
  free(b->region_at);
  free(b->inside);
  free(b->is_read_by_all);
}

/* The first module may take its input in another layout, and the last one leave its output so: then
   the others are folded without it, if much remains apart else. */
static void fold_range(struct outlining *o, struct iteration_range *run)
{
  enum { FEW = 8 };
  static const double MOST_PART = 0.75;
  if (run->count < FEW) {
    find_regions_of(o, run);
    return;
  }
  const int values = graph->nvalue;
  struct before_folding before = remember_folding(o);
  find_regions_of(o, run);
  int64_t here = 0, most = 0;
  for (int k = 0; k < o->places[run->list].n; k++) {
    const int place = o->places[run->list].at[k];
    if (is_update_phase(place) || index_at(place, run) == NONE) continue;
    here++;
    most += o->inside[place];
  }
  if ((double)most < MOST_PART * (double)here) {
    struct iteration_range best = *run;
    go_back_before(o, &before, values);
    for (int ends = 1; ends < 4; ends++) {
      struct iteration_range part = *run;
      part.first += ends & 1;
      part.count -= (ends & 1) + (ends >> 1);
      const int64_t n = foldable(o, &part);
      if (n > most) best = part, most = n;
    }
    *run = best;
    find_regions_of(o, run);
  }
  forget_folding(&before);
}

/* The number of the list's modules from the first on, up to `most`, whose backward makes the same
   again. */
static int count_made_alike(int list, int first, int most)
{
  int *again = alloc((size_t)most * sizeof *again), n = 1;
  for (int m = list; m < graph->nmodule; m++) {
    if (graph->module[m].parent != list) continue;
    const int place = place_in_list(m) - first;
    if (place >= 0 && place < most) again[place] = graph->module[m].again;
  }
  while (n < most && again[n] == again[0]) n++;
  return n;
}

static void find_regions_of_list(struct outlining *o, const struct list *inner, int list, int count)
{
  for (int stage = NONE; stage < (graph->stages ? graph->stages->n : 0); stage++) {
    /* The list's modules that the stage has; without a pipeline, all. */
    struct iteration_range s = {.list = list, .stage = stage, .count = graph->stages ? 0 : count};
    for (int k = 0; k < o->places[list].n && graph->stages; k++) {
      int id = graph->order[o->places[list].at[k]];
      if (stage_of(id) != stage) continue;
      int place = place_in_list(element_within(graph->op[id].module, list));
      if (!s.count || place < s.first) s.count += s.count ? s.first - place : 1, s.first = place;
      if (place >= s.first + s.count) s.count = place - s.first + 1;
    }
    struct iteration_range all = s, run = all;
    for (; run.first < all.first + all.count; run.first += run.count) {
      run.count = count_equal(inner, list, run.first, all.first + all.count - run.first);
      run.count = count_made_alike(list, run.first, run.count);
      if (run.count > 1) fold_range(o, &run);
    }
  }
}

static void find_regions(struct outlining *o)
{
  const int *counts = count_elements();
  o->nregion = o->region_room = 0;
  o->compared = 0;
  o->region_at = alloc((size_t)(graph->norder + 1) * sizeof *o->region_at);
  o->inside = alloc((size_t)graph->norder + 1);
  o->places = alloc((size_t)(graph->nmodule + 1) * sizeof *o->places);
  o->is_read_by_all = alloc((size_t)graph->nvalue + 1);
  for (int i = 0; i < graph->norder; i++)
    add_to_lists(o->places, counts, graph->op[graph->order[i]].module, i);
  const struct list *inner = parameters_of_lists(counts);
  for (int scans = 1; scans >= 0; scans--) { /* before the lists that contain them */
    for (int list = 0; list < graph->nmodule; list++)
      if ((graph->module[list].steps > 0) == scans && counts[list] > 1)
        find_regions_of_list(o, &inner[list], list, counts[list]);
    if (scans) {
      /* An operation of a step must be in the loop of its scan, whatever loop is around that. */
      for (int at = 0; at < graph->norder; at++) {
        const struct op *op = &graph->op[graph->order[at]];
        if (o->inside[at] || scan_around(op->module) == NONE) continue;
        plan_error(
            op->line,
            "%s: the steps of the scan of line %d differ here, so they cannot be a loop: make them "
            "equal, or say F.scan(f, carry, xs, dim, true), which writes them one after the other",
            printable(op_name(op)), graph->module[scan_around(op->module)].line);
      }
    }
  }
  /* An update's slices of a stack are also known by the module of a loop. */
  for (int at = 0; at < graph->norder; at++) {
    const struct op *op = &graph->op[graph->order[at]];
    if (o->inside[at]) continue;
    if (op->kind == OP_scan_put)
      plan_error(op->line, "%s: the updates of equal modules differ here, so they cannot be a loop",
                 printable(op_name(op)));
  }
}

/* ------------------------------------------------------------------------------------ functions */

static int add_function(struct function f)
{
  GROW(graph->function, graph->nfunction, graph->function_room);
  graph->function[graph->nfunction] = f;
  return graph->nfunction++;
}

/* "forward", "forward_stage2" where ranks have several stages, "backward_weights". */
static const char *function_name(int op)
{
  const char *phase = phase_name[graph->op[op].phase];
  if (!graph->stages || !is_of_batch(graph->op[op].phase)) return phase;
  int stage = stage_of(op);
  bool is_part = graph->op[op].phase == BACKWARD && graph->stages->is_split[stage];
  const char *part = !is_part ? "" : is_of_weights(op) ? "_weights" : "_input";
  return text("%s%s%s", phase, part, stages_here() > 1 ? text("_stage%d", stage) : "");
}

/* "layers_forward", with a number if a phase walks the list twice. */
static const char *body_name(const struct region *r)
{
  const char *list = graph->module[r->list].path;
  return free_function_name(
      text("%s_%s", *list ? identifier(list) : "list", function_name(graph->order[r->first])));
}

/* The loop's body as a function, and the operation that calls it. */
static int call_of(const struct region *r)
{
  int id = graph->order[r->first];
  struct function f = {.name = body_name(r),
                       .phase = (enum phase)r->phase,
                       .stage = is_of_batch((enum phase)r->phase) ? stage_of(id) : NONE,
                       .of_weights = is_of_weights(id),
                       .count = r->modules,
                       .upward = r->upward};
  f.op = alloc((size_t)r->run[0].length * sizeof *f.op);
  for (int k = 0; k < r->run[0].length; k++) f.op[f.nop++] = graph->order[r->run[0].first + k];
  return store_op((struct op){.kind = OP_loop,
                              .out = NONE,
                              .function = add_function(f),
                              .phase = (enum phase)r->phase,
                              .module = r->list,
                              .line = graph->module[r->list].line});
}

/* Adds a function with the operations of that phase, from the place on, that are in one function.
   Returns the place after the last one. */
static int add_function_from(struct outlining *o, int place)
{
  int first = graph->order[place], i = place;
  enum phase phase = graph->op[first].phase;
  struct function f = {.name = function_name(first),
                       .phase = phase,
                       .stage = is_of_batch(phase) ? stage_of(first) : NONE,
                       .of_weights = is_of_batch(phase) && is_of_weights(first),
                       .count = 1,
                       .upward = true};
  f.op = alloc((size_t)(graph->norder + 1) * sizeof *f.op);
  for (; i < graph->norder; i++) {
    struct op *op = &graph->op[graph->order[i]];
    if (op->phase != phase) continue;
    if (!in_one_function(first, graph->order[i])) break;
    const struct region *r = o->region_at[i] ? &o->region[o->region_at[i] - 1] : NULL;
    if (op->kind == OP_scan_hold) continue;
    if (op->kind == OP_scan_stack) op->nin = 1; /* after the loop the slices are one value */
    f.op[f.nop++] = r ? call_of(r) : graph->order[i];
    if (r) i = r->last - 1;
  }
  if (f.nop) add_function(f);
  return i;
}

void fold_modules(void)
{
  struct outlining run = {0}, *o = &run;
  leave_out_dead();
  bring_ahead();
  divide_in_functions();
  o->place_of = alloc((size_t)(graph->nop + 1) * sizeof *o->place_of);
  for (int i = 0; i < graph->nop; i++) o->place_of[i] = NONE;
  for (int i = 0; i < graph->norder; i++) o->place_of[graph->order[i]] = i;
  find_regions(o);
  static const enum phase phases[] = {CONSTANTS, COUNT, GATHER, FORWARD, BACKWARD, UPDATE, DECODE};
  for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
    enum phase phase = phases[i];
    for (int k = 0; k < graph->norder;)
      k = graph->op[graph->order[k]].phase == phase ? add_function_from(o, k) : k + 1;
  }
}

/* Reductions of the last batch that belong to a module of a list, but are in no loop, go back to
   the update: in a long function they have little room for what is in flight, and they keep other
   collectives from their streams. */
static void put_off_unfolded(void)
{
  const int *element = outermost_elements();
  struct list off = {0};
  int update = NONE;
  for (int i = 0; i < graph->nfunction; i++) {
    struct function *f = &graph->function[i];
    if (!is_phase(f)) continue;
    if (f->phase == UPDATE) update = i;
    int kept = 0;
    for (int k = 0; k < f->nop; k++) {
      const struct op *op = &graph->op[f->op[k]];
      const bool is_off = op->last_batch && op->module != NONE && element[op->module] != NONE;
      if (is_off)
        add(&off, f->op[k]);
      else
        f->op[kept++] = f->op[k];
    }
    f->nop = kept;
  }
  if (!off.n) return;
  for (int k = 0; k < off.n; k++) {
    struct op *op = &graph->op[off.at[k]];
    op->last_batch = false;
    op->phase = UPDATE;
    insert(&graph->function[update], k, off.at[k]);
  }
}

void outline(void)
{
  fold_modules();
  put_off_unfolded();
  drop_rest();
}
