/* liveness.c: an order of a function's operations with few live bytes, and the number of live
   bytes. */
#include "folded/folded.h"

#include <string.h>

static int *readers;  /* by value: later operations that read its bytes */
static int *missing;  /* by value: later operations that make it, or a chunk of it */
static bool *leaves;  /* another function reads it: it does not die here */
static int *shown;    /* the value whose bytes it shares: a view has none of its own */
static bool *is_read; /* it has readers: a kernel's other outputs die at once */

int *read_list, *write_list;

void widen_lists(const struct op *op)
{
  static int list_room;
  static const struct graph *of;
  if (is_other_graph(&of)) list_room = 0;
  while (list_room < op_width(op)) {
    int room = list_room;
    read_list = grow(read_list, 0, &room, sizeof *read_list);
    write_list = grow(write_list, 0, &list_room, sizeof *write_list);
  }
}

bool within_budget(int64_t *of, int64_t most)
{
  *of += graph->nop;
  return *of <= most;
}

bool has_no_bytes(int value)
{
  const struct value *v = &graph->value[value];
  bool view = v->op != NONE && graph->op[v->op].kind == OP_view;
  return view && v->role == ACTIVATION && !v->is_output;
}

static int shown_by(int value)
{
  return has_no_bytes(value) ? shown_by(graph->op[graph->value[value].op].in[0]) : value;
}

/* Values come in order, so the value that a view shares is mostly known already. */
static void find_shown(void)
{
  for (int i = 0; i < graph->nvalue; i++) {
    int in = has_no_bytes(i) ? graph->op[graph->value[i].op].in[0] : NONE;
    shown[i] = in == NONE ? i : in < i ? shown[in] : shown_by(in);
  }
}

/* The values whose bytes are needed until an operation is done. After an in-place reduction a value
   has only its new name. */
static int needed_by(const struct op *op, int *list)
{
  const struct op *begun = op->kind == OP_await ? &graph->op[op->awaits] : NULL;
  return begun && begun->kind == OP_all_reduce ? op_writes(begun, list) : op_reads(op, list);
}

static int *met_in, met_now; /* by value: the last call of reads_of that met it */

/* The values that the operation reads, each once even if several views show it. */
static int reads_of(const struct op *op)
{
  int n = 0;
  met_now++;
  for (int i = 0, all = needed_by(op, read_list); i < all; i++) {
    int value = shown[read_list[i]];
    if (met_in[value] == met_now) continue;
    met_in[value] = met_now;
    read_list[n++] = value;
  }
  return n;
}

static int64_t *weights; /* by value, or NONE if nothing asked yet */

static int64_t find_weight(int value)
{
  const struct value *v = &graph->value[value];
  bool in_step = v->stored && v->role == ACTIVATION && !v->is_output && v->op != NONE;
  if (shown[value] != value) return 0;
  return in_step ? arena_stride(value) : 0;
}

static int64_t weight(int value)
{
  if (weights[value] == NONE) weights[value] = find_weight(value);
  return weights[value];
}

/* The live bytes that the operation adds by starting `value`: only the first of its chunks adds
   any. */
static int64_t weight_made(const struct op *op, int value)
{
  bool adds = op->nin && op->in[op->nin - 1] == value;
  bool begins = !op->pieces || (op->piece == 0 && !adds);
  return begins ? weight(value) : 0;
}

/* The live bytes that the operation would add. */
static int64_t growth(const struct op *op)
{
  widen_lists(op);
  int64_t sum = 0;
  for (int n = op_writes(op, write_list); n--;)
    if (is_read[write_list[n]]) sum += weight_made(op, write_list[n]);
  for (int n = reads_of(op); n--;)
    if (readers[read_list[n]] == 1 && !leaves[read_list[n]]) sum -= weight(read_list[n]);
  return sum;
}

static bool dies(int value)
{
  return readers[shown[value]] == 1 && !leaves[shown[value]];
}

/* The bytes of results that take the place of inputs read for the last time: of the first nin of
   read_list. */
static int64_t find_replaced(const struct op *op, int nin)
{
  int64_t sum = 0;
  for (int n = op_writes(op, write_list); n--;) {
    int at = 0, out = write_list[n], in;
    if (!overwrites(op, out, &in)) continue;
    while (at < nin && !((in == NONE || in == read_list[at]) && dies(read_list[at]) &&
                         may_overwrite(graph->memory, op, read_list[at], out)))
      at++;
    if (at == nin || !weight(shown[read_list[at]])) continue;
    sum += weight_made(op, out);
    read_list[at] = read_list[--nin];
  }
  return sum;
}

/* The bytes that an operation replaced when these of its inputs died, as last computed. */
struct replaced {
  bool known;
  struct list dying;
  int64_t bytes;
};
static struct replaced *last_replaced; /* by operation */
static int replaced_room;

/* Whether the same inputs die as last time; records them. */
static bool die_as_before(struct replaced *last, int nin)
{
  int n = 0;
  bool same = last->known;
  for (int i = 0; i < nin; i++) {
    if (!dies(read_list[i])) continue;
    same &= n < last->dying.n && last->dying.at[n] == read_list[i];
    if (!same) last->dying.n = n, add(&last->dying, read_list[i]);
    n++;
  }
  same &= n == last->dying.n;
  last->dying.n = n;
  last->known = true;
  return same;
}

static int64_t replaced(const struct op *op)
{
  while (replaced_room <= op - graph->op)
    last_replaced = grow(last_replaced, replaced_room, &replaced_room, sizeof *last_replaced);
  struct replaced *last = &last_replaced[op - graph->op];
  widen_lists(op);
  int nin = op_reads(op, read_list);
  if (!die_as_before(last, nin)) last->bytes = find_replaced(op, nin);
  return last->bytes;
}

static bool can_run(const struct op *op)
{
  widen_lists(op);
  for (int n = op_reads(op, read_list); n--;)
    if (missing[read_list[n]] && piece_touched(op, read_list[n]) == NONE) return false;
  return true;
}

static int64_t run(const struct op *op)
{
  int64_t sum = growth(op);
  for (int n = reads_of(op); n--;) readers[read_list[n]]--;
  for (int n = op_writes(op, write_list); n--;) missing[write_list[n]]--;
  return sum;
}

/* Counts the readers in a section of operations; nothing that it makes is live yet. */
static void begin(const int *op, int n)
{
  for (int i = 0; i < n; i++) {
    widen_lists(&graph->op[op[i]]);
    for (int k = reads_of(&graph->op[op[i]]); k--;) readers[read_list[k]]++;
    for (int k = op_writes(&graph->op[op[i]], write_list); k--;) missing[write_list[k]]++;
  }
}

int64_t peak_of(const int *op, int n)
{
  int64_t now = 0, peak = 0;
  begin(op, n);
  for (int i = 0; i < n; i++) {
    int64_t made = -replaced(&graph->op[op[i]]), grown = run(&graph->op[op[i]]);
    for (int k = op_writes(&graph->op[op[i]], write_list); k--;)
      made += weight_made(&graph->op[op[i]], write_list[k]);
    if (now + made > peak) peak = now + made;
    now += grown;
  }
  return peak;
}

static int64_t lives; /* live_bytes of the current program */
static int64_t asked; /* the operations visited in such queries */

/* Takes the better order, unless it has more live bytes anywhere in the program: only memory.c
   knows which values share bytes. Each query walks the whole program, so a very long one keeps the
   rest of its order. */
static void take_over(int *op, const int *better, int n)
{
  enum { MOST_ASKED = 500000 };
  if (!within_budget(&asked, MOST_ASKED)) {
    ended_early("schedule", "an order that keeps less", MOST_ASKED, "operations looked at");
    return;
  }
  int *before = alloc((size_t)n * sizeof *before);
  memcpy(before, op, (size_t)n * sizeof *op);
  memcpy(op, better, (size_t)n * sizeof *op);
  int64_t now = live_bytes();
  if (now > lives)
    memcpy(op, before, (size_t)n * sizeof *op);
  else
    lives = now;
}

/* Whether one behind which it stays has not run. */
static bool waits_for_turn(const int *op, const bool *gone, int n)
{
  const struct op *it = &graph->op[op[n]];
  for (int i = 0; i < n && (is_transfer(it->kind) || joins_stages(it)); i++)
    if (!gone[i] && keeps_turn(&graph->op[op[i]], it)) return true;
  return false;
}

static void order_stretch(int *op, int n)
{
  int *better = alloc((size_t)n * sizeof *better);
  bool *gone = alloc((size_t)n);
  begin(op, n);
  for (int turn = 0; turn < n; turn++) {
    int best = NONE;
    int64_t least = 0;
    bool follows = false; /* chunks keep their order, and so do calls of several stages */
    for (int i = 0; i < n; i++) {
      bool waits = (follows && graph->op[op[i]].pieces) || waits_for_turn(op, gone, i);
      follows |= !gone[i] && graph->op[op[i]].pieces;
      if (gone[i] || waits || !can_run(&graph->op[op[i]])) continue;
      int64_t grown = growth(&graph->op[op[i]]);
      if (best != NONE && grown >= least) continue;
      best = i;
      least = grown;
    }
    gone[best] = true;
    better[turn] = op[best];
    run(&graph->op[op[best]]);
  }
  if (peak_of(better, n) < peak_of(op, n)) take_over(op, better, n);
}

/* Which functions read a value before functions are changed: one, or several; and whether another
   iteration reads it. */
struct reading {
  enum { BY_NONE, BY_ONE, BY_SEVERAL } by;
  int function;
  bool steps;
};
static struct reading *reading; /* by the value that owns the bytes */

static void note_reading(int value, int function, bool steps)
{
  struct reading *r = &reading[shown[value]];
  bool other = r->by != BY_NONE && r->function != function;
  r->by = other || r->by == BY_SEVERAL ? BY_SEVERAL : BY_ONE;
  r->function = function;
  r->steps |= steps;
}

static void find_reading(void)
{
  reading = alloc((size_t)(graph->nvalue + 1) * sizeof *reading);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      widen_lists(op);
      for (int n = op_reads(op, read_list); n--;) {
        const struct value *v = &graph->value[read_list[n]];
        note_reading(read_list[n], i, false);
        if (v->stack != NONE) note_reading(v->stack, i, v->step != 0);
      }
    }
}

/* Like mark_leaving, for functions as find_reading found them. */
static void mark_leaving_in_order(int mine)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct reading *r = &reading[i];
    leaves[i] = r->steps || r->by == BY_SEVERAL || (r->by == BY_ONE && r->function != mine);
  }
}

/* Marks values that other functions than `mine` read: they outlive the function, or the iteration
   of a loop. */
static void mark_leaving(const struct function *mine)
{
  memset(leaves, 0, (size_t)graph->nvalue);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop; k++) {
      const struct op *op = &graph->op[f->op[k]];
      widen_lists(op);
      for (int n = op_reads(op, read_list); n--;) {
        const struct value *v = &graph->value[read_list[n]];
        if (f != mine) leaves[shown[read_list[n]]] = true;
        if ((f != mine || v->step) && v->stack != NONE) leaves[shown[v->stack]] = true;
      }
    }
  }
}

void enter_function(const struct function *f)
{
  mark_leaving(f);
  for (int i = 0; i < graph->nvalue; i++) {
    readers[i] = 0;
    missing[i] = 0;
  }
}

static void order_function(struct function *f)
{
  enum { LONGEST = 512 }; /* the search is quadratic: longer functions are divided */
  mark_leaving_in_order((int)(f - graph->function));
  for (int first = 0; first < f->nop;) {
    int n = 0;
    while (first + n < f->nop && n < LONGEST && graph->op[f->op[first + n]].kind != OP_loop) n++;
    if (n == LONGEST && first + n < f->nop)
      ended_early("schedule", "an order of a long function", LONGEST, "operations at a time");
    if (n) order_stretch(f->op + first, n);
    first += n ? n : 1;
  }
}

static void find_read(void)
{
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      widen_lists(op);
      for (int n = op_reads(op, read_list); n--;) {
        int stack = graph->value[read_list[n]].stack;
        is_read[shown[read_list[n]]] = true;
        if (stack != NONE) is_read[shown[stack]] = true;
      }
    }
}

int64_t order_functions(void)
{
  readers = alloc((size_t)graph->nvalue * sizeof *readers);
  missing = alloc((size_t)graph->nvalue * sizeof *missing);
  leaves = alloc((size_t)graph->nvalue);
  shown = alloc((size_t)graph->nvalue * sizeof *shown);
  weights = alloc((size_t)graph->nvalue * sizeof *weights);
  for (int i = 0; i < graph->nvalue; i++) weights[i] = NONE;
  find_shown();
  met_in = alloc((size_t)graph->nvalue * sizeof *met_in);
  last_replaced = NULL;
  replaced_room = 0;
  is_read = alloc((size_t)graph->nvalue);
  find_read();
  lives = live_bytes();
  asked = 0;
  find_reading();
  for (int i = 0; i < graph->nfunction; i++)
    if (is_of_batch(graph->function[i].phase)) order_function(&graph->function[i]);
  return lives;
}

bool is_of_stack(int value, int of)
{
  const struct value *v = &graph->value[value], *w = &graph->value[of];
  return value == of || (w->stack != NONE && v->stack == w->stack);
}

bool is_worth_it(const struct op *op)
{
  return !op->pieces && time_taken(op) > 2 * events_time();
}

/* Whether the operation, or one that it calls, touches the gradients, or values that become
   gradients, of the same parameters in any module of the loop; or those of the collective to
   which the reduction is chained, which is awaited with it. */
bool touches_gradients_of(const struct op *op, const struct op *reduction)
{
  if (op->kind == OP_iteration) {
    const struct function *part = &graph->function[op->function];
    for (int k = 0; k < part->nop; k++)
      if (touches_gradients_of(&graph->op[part->op[k]], reduction)) return true;
    return false;
  }
  if (op->kind == OP_await) return touches_gradients_of(&graph->op[op->awaits], reduction);
  if (predecessor_of(reduction) && touches_gradients_of(op, predecessor_of(reduction))) return true;
  widen_lists(op);
  widen_lists(reduction);
  int n = op_reads(op, read_list), *touched = alloc((size_t)(2 * op_width(op)) * sizeof *touched);
  memcpy(touched, read_list, (size_t)n * sizeof *touched);
  n += op_makes(op, touched + n);
  for (int m = op_makes(reduction, write_list); m--;)
    for (int i = 0; i < n; i++) {
      const struct value *v = &graph->value[touched[i]], *w = &graph->value[write_list[m]];
      if (is_of_stack(touched[i], write_list[m])) return true;
      if (v->role != GRADIENT || w->role != GRADIENT) continue;
      if (v->of == w->of || is_of_stack(v->of, w->of)) return true;
    }
  return false;
}
