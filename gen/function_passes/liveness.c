/* liveness.c: an order of a function's operations with few live bytes, and the number of live
   bytes. */
#include "function_passes/function_passes.h"

#include <string.h>

/* The bytes that an operation replaced when these of its inputs died, as last computed. */
struct replaced {
  bool known;
  struct list dying;
  int64_t bytes;
};

/* The functions that read a value before functions are changed: one, or several; and whether
   another iteration reads it. */
struct reading {
  enum { BY_NONE, BY_ONE, BY_SEVERAL } by;
  int function;
  bool steps;
};

struct liveness {
  int *readers;                   /* by value: later operations that read its bytes */
  int *missing;                   /* by value: later operations that make it, or a chunk of it */
  bool *leaves;                   /* another function reads it: it does not die here */
  int *shown;                     /* the value whose bytes it shares: a view has none of its own */
  bool *is_read;                  /* it has readers: a kernel's other outputs die at once */
  int *met_in, met_now;           /* by value: the last call of reads_of that met it */
  int64_t *weights;               /* by value, or NONE before the first query */
  struct replaced *last_replaced; /* by operation */
  int replaced_room;
  struct reading *reading; /* by the value that owns the bytes */
  int64_t lives;           /* live_bytes of the current program */
  int64_t asked;           /* the operations visited in such queries */
};

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

/* The values that the operation reads, each once even if several views show it. */
static struct list reads_of(struct liveness *l, const struct op *op)
{
  /* The values whose bytes are needed until an operation is done. After an in-place reduction a
     value has only its new name. */
  const struct op *begun = op->kind == OP_await ? &graph->op[op->awaits] : NULL;
  struct list read =
      begun && begun->kind == OP_all_reduce ? values_written(begun) : values_read(op);
  int n = 0;
  l->met_now++;
  for (int i = 0; i < read.n; i++) {
    int value = l->shown[read.at[i]];
    if (l->met_in[value] == l->met_now) continue;
    l->met_in[value] = l->met_now;
    read.at[n++] = value;
  }
  read.n = n;
  return read;
}

static int64_t find_weight(struct liveness *l, int value)
{
  const struct value *v = &graph->value[value];
  bool in_step = v->stored && v->role == ACTIVATION && !v->is_output && v->op != NONE;
  if (l->shown[value] != value) return 0;
  return in_step ? arena_stride(value) : 0;
}

static int64_t weight(struct liveness *l, int value)
{
  if (l->weights[value] == NONE) l->weights[value] = find_weight(l, value);
  return l->weights[value];
}

/* The live bytes that the operation adds by starting `value`: only the first of its chunks adds
   any. */
static int64_t weight_made(struct liveness *l, const struct op *op, int value)
{
  bool adds = op->nin && op->in[op->nin - 1] == value;
  bool begins = !op->pieces || (op->piece == 0 && !adds);
  return begins ? weight(l, value) : 0;
}

/* The live bytes that the operation would add. */
static int64_t growth(struct liveness *l, const struct op *op)
{
  int64_t sum = 0;
  for (struct list out = values_written(op); out.n--;)
    if (l->is_read[out.at[out.n]]) sum += weight_made(l, op, out.at[out.n]);
  for (struct list in = reads_of(l, op); in.n--;)
    if (l->readers[in.at[in.n]] == 1 && !l->leaves[in.at[in.n]]) sum -= weight(l, in.at[in.n]);
  return sum;
}

static bool dies(struct liveness *l, int value)
{
  return l->readers[l->shown[value]] == 1 && !l->leaves[l->shown[value]];
}

/* The bytes of results that take the place of inputs that are read for the last time. */
static int64_t find_replaced(struct liveness *l, const struct op *op, struct list read)
{
  int64_t sum = 0;
  for (struct list made = values_written(op); made.n--;) {
    int at = 0, out = made.at[made.n], in;
    if (!overwrites(op, out, &in)) continue;
    while (at < read.n && !((in == NONE || in == read.at[at]) && dies(l, read.at[at]) &&
                            may_overwrite(graph->memory, op, read.at[at], out)))
      at++;
    if (at == read.n || !weight(l, l->shown[read.at[at]])) continue;
    sum += weight_made(l, op, out);
    read.at[at] = read.at[--read.n];
  }
  return sum;
}

static int64_t replaced(struct liveness *l, const struct op *op)
{
  while (l->replaced_room <= op - graph->op)
    l->last_replaced =
        grow(l->last_replaced, l->replaced_room, &l->replaced_room, sizeof *l->last_replaced);
  struct replaced *last = &l->last_replaced[op - graph->op];
  const struct list read = values_read(op);
  /* Whether the same inputs die as last time; records them. */
  int n = 0;
  bool same = last->known;
  for (int i = 0; i < read.n; i++) {
    if (!dies(l, read.at[i])) continue;
    same &= n < last->dying.n && last->dying.at[n] == read.at[i];
    if (!same) last->dying.n = n, add(&last->dying, read.at[i]);
    n++;
  }
  same &= n == last->dying.n;
  last->dying.n = n;
  last->known = true;
  if (!same) last->bytes = find_replaced(l, op, read);
  return last->bytes;
}

static bool liveness_can_run(struct liveness *l, const struct op *op)
{
  for (struct list in = values_read(op); in.n--;)
    if (l->missing[in.at[in.n]] && piece_touched(op, in.at[in.n]) == NONE) return false;
  return true;
}

static int64_t liveness_run(struct liveness *l, const struct op *op)
{
  int64_t sum = growth(l, op);
  for (struct list in = reads_of(l, op); in.n--;) l->readers[in.at[in.n]]--;
  for (struct list out = values_written(op); out.n--;) l->missing[out.at[out.n]]--;
  return sum;
}

/* Counts the readers in a section of operations; nothing that it makes is live yet. */
static void liveness_begin(struct liveness *l, const int *op, int n)
{
  for (int i = 0; i < n; i++) {
    for (struct list in = reads_of(l, &graph->op[op[i]]); in.n--;) l->readers[in.at[in.n]]++;
    for (struct list out = values_written(&graph->op[op[i]]); out.n--;) l->missing[out.at[out.n]]++;
  }
}

int64_t peak_of(struct liveness *l, const int *op, int n)
{
  int64_t now = 0, peak = 0;
  liveness_begin(l, op, n);
  for (int i = 0; i < n; i++) {
    int64_t made = -replaced(l, &graph->op[op[i]]), grown = liveness_run(l, &graph->op[op[i]]);
    for (struct list out = values_written(&graph->op[op[i]]); out.n--;)
      made += weight_made(l, &graph->op[op[i]], out.at[out.n]);
    if (now + made > peak) peak = now + made;
    now += grown;
  }
  return peak;
}

/* Replaces the order by the better one, unless that has more live bytes anywhere in the program:
   only memory.c knows which values share bytes. Each query walks the whole program, so a very long
   one keeps the rest of its order. */
static void liveness_take_over(struct liveness *l, int *op, const int *better, int n)
{
  enum { MOST_ASKED = 500000 };
  if (!within_budget(&l->asked, MOST_ASKED)) {
    ended_early("schedule", "an order that keeps less", MOST_ASKED, "operations looked at");
    return;
  }
  int *before = alloc((size_t)n * sizeof *before);
  memcpy(before, op, (size_t)n * sizeof *op);
  memcpy(op, better, (size_t)n * sizeof *op);
  int64_t now = live_bytes();
  if (now > l->lives)
    memcpy(op, before, (size_t)n * sizeof *op);
  else
    l->lives = now;
}

/* Whether an operation that it must follow has not run. */
static bool waits_for_stages(const int *op, const bool *gone, int n)
{
  const struct op *it = &graph->op[op[n]];
  for (int i = 0; i < n && (is_transfer(it->kind) || joins_stages(it)); i++)
    if (!gone[i] && keeps_stage_order(&graph->op[op[i]], it)) return true;
  return false;
}

static void order_segment(struct liveness *l, int *op, int n)
{
  int *better = alloc((size_t)n * sizeof *better);
  bool *gone = alloc((size_t)n);
  liveness_begin(l, op, n);
  for (int i_th = 0; i_th < n; i_th++) {
    int best = NONE;
    int64_t least = 0;
    bool follows = false; /* chunks keep their order, and so do calls of several stages */
    for (int i = 0; i < n; i++) {
      bool waits = (follows && graph->op[op[i]].pieces) || waits_for_stages(op, gone, i);
      follows |= !gone[i] && graph->op[op[i]].pieces;
      if (gone[i] || waits || !liveness_can_run(l, &graph->op[op[i]])) continue;
      int64_t grown = growth(l, &graph->op[op[i]]);
      if (best != NONE && grown >= least) continue;
      best = i;
      least = grown;
    }
    gone[best] = true;
    better[i_th] = op[best];
    liveness_run(l, &graph->op[op[best]]);
  }
  if (peak_of(l, better, n) < peak_of(l, op, n)) liveness_take_over(l, op, better, n);
}

static void note_reading(struct liveness *l, int value, int function, bool steps)
{
  struct reading *r = &l->reading[l->shown[value]];
  bool other = r->by != BY_NONE && r->function != function;
  r->by = other || r->by == BY_SEVERAL ? BY_SEVERAL : BY_ONE;
  r->function = function;
  r->steps |= steps;
}

void enter_function(struct liveness *l, const struct function *f)
{
  /* Marks values that other functions than `mine` read: they outlive the function, or the iteration
     of a loop. */
  memset(l->leaves, 0, (size_t)graph->nvalue);
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *function = &graph->function[i];
    for (int k = 0; k < function->nop; k++) {
      const struct op *op = &graph->op[function->op[k]];
      for (struct list in = values_read(op); in.n--;) {
        const struct in_loop *loop = in_loop(in.at[in.n]);
        if (function != f) l->leaves[l->shown[in.at[in.n]]] = true;
        if ((function != f || loop->step) && loop->stack != NONE)
          l->leaves[l->shown[loop->stack]] = true;
      }
    }
  }

  for (int i = 0; i < graph->nvalue; i++) {
    l->readers[i] = 0;
    l->missing[i] = 0;
  }
}

struct liveness *open_liveness(void)
{
  struct liveness *l = alloc(sizeof *l);
  l->readers = alloc((size_t)graph->nvalue * sizeof *l->readers);
  l->missing = alloc((size_t)graph->nvalue * sizeof *l->missing);
  l->leaves = alloc((size_t)graph->nvalue);
  l->shown = alloc((size_t)graph->nvalue * sizeof *l->shown);
  l->weights = alloc((size_t)graph->nvalue * sizeof *l->weights);
  for (int i = 0; i < graph->nvalue; i++) l->weights[i] = NONE;
  /* Values come in order, so the value that a view shares is mostly known already. */
  for (int i = 0; i < graph->nvalue; i++) {
    int in = has_no_bytes(i) ? graph->op[graph->value[i].op].in[0] : NONE;
    l->shown[i] = in == NONE ? i : in < i ? l->shown[in] : shown_by(in);
  }
  l->met_in = alloc((size_t)graph->nvalue * sizeof *l->met_in);
  l->is_read = alloc((size_t)graph->nvalue);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      for (struct list in = values_read(op); in.n--;) {
        int stack = in_loop(in.at[in.n])->stack;
        l->is_read[l->shown[in.at[in.n]]] = true;
        if (stack != NONE) l->is_read[l->shown[stack]] = true;
      }
    }
  l->lives = live_bytes();
  l->reading = alloc((size_t)(graph->nvalue + 1) * sizeof *l->reading);
  for (int i = 0; i < graph->nfunction; i++)
    for (int k = 0; k < graph->function[i].nop; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      for (struct list in = values_read(op); in.n--;) {
        const struct in_loop *loop = in_loop(in.at[in.n]);
        note_reading(l, in.at[in.n], i, false);
        if (loop->stack != NONE) note_reading(l, loop->stack, i, loop->step != 0);
      }
    }
  return l;
}

int64_t order_functions(struct liveness *l)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (is_of_batch(graph->function[i].phase)) {
      struct function *f = &graph->function[i];
      enum { LONGEST = 512 }; /* the search is quadratic: longer functions are divided */
      /* Values that other functions read outlive this one. */
      int mine = (int)(f - graph->function);
      for (int k = 0; k < graph->nvalue; k++) {
        const struct reading *r = &l->reading[k];
        l->leaves[k] = r->steps || r->by == BY_SEVERAL || (r->by == BY_ONE && r->function != mine);
      }
      for (int first = 0; first < f->nop;) {
        int n = 0;
        while (first + n < f->nop && n < LONGEST && graph->op[f->op[first + n]].kind != OP_loop)
          n++;
        if (n == LONGEST && first + n < f->nop)
          ended_early("schedule", "an order of a long function", LONGEST, "operations at a time");
        if (n) order_segment(l, f->op + first, n);
        first += n ? n : 1;
      }
    }
  return l->lives;
}

bool is_of_stack(int value, int of)
{
  int stack = in_loop(of)->stack;
  return value == of || (stack != NONE && in_loop(value)->stack == stack);
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
  int *touched = alloc((size_t)(2 * op_width(op)) * sizeof *touched), n = op_reads(op, touched);
  n += op_makes(op, touched + n);
  for (struct list made = values_made(reduction); made.n--;)
    for (int i = 0; i < n; i++) {
      const struct value *v = &graph->value[touched[i]], *w = &graph->value[made.at[made.n]];
      if (is_of_stack(touched[i], made.at[made.n])) return true;
      if (v->role != GRADIENT || w->role != GRADIENT) continue;
      if (v->of == w->of || is_of_stack(v->of, w->of)) return true;
    }
  return false;
}
