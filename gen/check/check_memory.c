/* check_memory.c: a part of check.c: every value is found where it is read.

   Takes   the program with storage for every value.
   Holds   the check executes the step as a rank does, without the arithmetic, one operation after
           the other. Each operation leaves a number of its own in the bytes that it writes. In the
           bytes that it reads it must find the number of that value, of this module and of this
           batch, or of values that persist over batches. A kernel may overwrite its inputs by rules
           of its own. check_order.c proves that streams give the same result as this order. */
#include "check/check.h"

#include <string.h>

/* The number that was left in each byte; 0: unknown. */
static struct bytes bytes;

/* Bytes that are written together become one interval. */
static void check_memory_leave(struct intervals s, int number)
{
  if (!s.n) return;
  make_one(s);
  *row_of(s, 0) = number;
}

/* ------------------------------------------------------------------------ the numbers in memory */

enum { LEFT_OUT = -1 }; /* left by a module that is not run */

static struct list left; /* by value, module and piece: the number left for it last, or 0 */
static struct {
  int n, room;
  struct mark {
    int of;                  /* the value that it was left for */
    const struct op *reader; /* that read it last */
    int whole;               /* the number of the whole value that it became a slice of, or 0 */
  } * at;
} mark; /* by number */
static int most_iterations;
static bool is_last_batch; /* that runs */

static int *number_for(struct one one, int piece)
{
  const struct value *v = &graph->value[one.value];
  int pieces = v->pieces ? v->pieces : 1;
  struct known *k = known_of(one.value);
  if (k->left == NONE) {
    k->left = left.n;
    for (int n = pieces * (in_loop(one.value)->stack == NONE ? 1 : most_iterations); n--;)
      add(&left, 0);
  }
  return &left.at[k->left + one.index * pieces + piece];
}

static int new_number(int value)
{
  GROW(mark.at, mark.n, mark.room);
  mark.at[mark.n] = (struct mark){.of = value};
  return mark.n++;
}

/* -------------------------------------------------------------------------- reading and writing */

/* The operation that runs now. */
static struct {
  const struct op *op;
  int id, module;
  bool replaces; /* it has overwritten its input */
} now;

/* A value that no operation of the step makes exists before it; sums over batches hold those of the
   batch before. */
static int number_before(int value, struct place p)
{
  int *number = row_of(intervals_of(&bytes, p, true), 0);
  if (!*number) *number = new_number(value);
  require(graph->value[mark.at[*number].of].role == graph->value[value].role, now.id,
          "what stays over batches is not there any more");
  return *number;
}

/* Whether the bytes have the number, or that of the value that they became a slice of. */
static bool check_memory_holds(struct intervals s, int k, int number)
{
  int found = *row_of(s, k);
  return found == number || (found && found == mark.at[number].whole);
}

static bool all_hold(struct intervals s, int number)
{
  for (int k = 0; k < s.n; k++)
    if (!check_memory_holds(s, k, number)) return false;
  return true;
}

/* A carried value is, for the first module of a list, its initial value. */
static void read_piece(int value, int *number, struct place p)
{
  int meant = one_of(value, now.module).value;
  if (p.own && graph->value[meant].op == NONE) *number = number_before(meant, p);
  require(*number, now.id, "it reads what nothing has made yet");
  mark.at[*number].reader = now.op;
  require(all_hold(intervals_of(&bytes, p, false), *number), now.id,
          "what it reads is not there any more");
}

static void write_piece(int value, int *number, struct place p)
{
  struct intervals s = intervals_of(&bytes, p, true);
  for (int i = 0; i < s.n; i++) now.replaces |= mark.at[*row_of(s, i)].reader == now.op;
  check_memory_leave(s, *number = new_number(value));
}

static void each_piece(int value, void (*visit)(int value, int *number, struct place p))
{
  struct one one = one_of(value, now.module);
  /* Whether its bytes are not checked: its module is not run, or it has no storage because it is a
     literal. */
  if (!graph->value[value].stored || one.index == NONE || *number_for(one, 0) == LEFT_OUT) return;
  struct place p = place_of(value, now.module);
  struct pieces pieces = pieces_of(now.op, value, one);
  for (int k = pieces.first; k < pieces.end; k++)
    visit(value, number_for(one, k), piece_of(p, k, pieces.all));
}

static bool is_same_place(struct place a, struct place b)
{
  return a.own == b.own && a.from == b.from && a.bytes == b.bytes;
}

static bool check_memory_overlap(int a, int b)
{
  if (!graph->value[a].stored) return false;
  struct place p = place_of(a, now.module), q = place_of(b, now.module);
  return p.own == q.own && p.from < q.from + q.bytes && q.from < p.from + p.bytes;
}

/* Whether the operation may write `out` over its input `in`. A sum is added to. A bucket reads all
   its members before it writes one, except those that it copies because they are not in its buffer.
   A kernel has read each element when it writes it. */
static bool may_replace(const struct op *op, int in, int out)
{
  const struct value *v = &graph->value[in], *w = &graph->value[out];
  bool adds = v->op == NONE && v->role == w->role && (is_gradient(in) || v->role == LOSS);
  if (op->packed) return out != op->buffer || is_in_buffer(op, now.module);
  if (op->kind == OP_await) return false;
  if (!is_same_place(place_of(in, now.module), place_of(out, now.module))) return false;
  return adds || product_may_replace(op, in, out, check_memory_overlap) ||
         move_may_replace(op, in, out) ||
         (op->kind == OP_fused && kernel_may_replace(op, out, check_memory_overlap));
}

static void check_replaced(int value, int *number, struct place p)
{
  struct intervals s = intervals_of(&bytes, p, false);
  for (int i = 0; i < s.n; i++)
    require(check_memory_holds(s, i, *number) ||
                may_replace(now.op, value, mark.at[*row_of(s, i)].of),
            now.id, "it writes over what it still reads");
}

static void check_written(int value, int *number, struct place p)
{
  bool holds_members =
      now.op->packed && value == now.op->buffer && is_in_buffer(now.op, now.module);
  require(holds_members || all_hold(intervals_of(&bytes, p, false), *number), now.id,
          "two values that it makes overlap");
}

/* ---------------------------------------------------------------------------------- the program */

static int *list, list_room; /* values of an operation */

/* An await reads the buffer from which it copies. */
static int check_memory_reads_of(const struct op *op, int *read)
{
  if (op->kind != OP_await) return op_reads(op, read);
  const struct op *begun = &graph->op[op->awaits];
  if (!needs_copy_out(begun, now.module) || scheduled(begun)->has_chained || !copies_late(begun))
    return 0;
  read[0] = begun->buffer;
  return 1;
}

/* Whether it writes nothing: its output is its input, in the same storage. */
static bool check_memory_shows(const struct op *op)
{
  int in = op->in[0], out = op->out;
  if (!shows_bytes(op) || !graph->value[in].stored || !graph->value[out].stored) return false;
  struct one one = one_of(in, now.module), to = one_of(out, now.module);
  if (to.index == NONE) return true;
  if (one.index == NONE || *number_for(one, 0) == LEFT_OUT) {
    *number_for(to, 0) = LEFT_OUT;
    return true;
  }
  if (op->kind == OP_scan_take)
    return lies_within(place_of(out, now.module), place_of(in, now.module));
  return is_same_place(place_of(in, now.module), place_of(out, now.module));
}

static void name_anew(int value, int *number, struct place p)
{
  (void)value;
  struct intervals s = intervals_of(&bytes, p, true);
  for (int i = 0; i < s.n; i++) *row_of(s, i) = mark.n - 1;
  *number = mark.n - 1;
}

static void begin_op(const struct op *op, int id, int module)
{
  now.op = op;
  now.id = id;
  now.module = module;
  now.replaces = false;
  while (list_room < op_width(op)) list = grow(list, 0, &list_room, sizeof *list);
}

/* A posted receive may write its output from the beginning of the batch on. */
static void receive_early(void *unused, int id, int times)
{
  const struct op *op = &graph->op[id];
  (void)unused;
  (void)times;
  if (!is_posted(op)) return;
  begin_op(op, id, NONE);
  each_piece(op->out, write_piece);
}

static void check_memory_run_op(void *unused, int id, int module)
{
  const struct op *op = &graph->op[id];
  (void)unused;
  if (op_row[op->kind].calls || (op->last_batch && !is_last_batch)) return;
  begin_op(op, id, module);
  if (is_posted(op)) {
    each_piece(op->out, read_piece);
    return;
  }
  if (op->kind == OP_scan_stack) {
    /* The stack that the steps of a scan have made: each slice has its step's number. */
    int stack = op->in[0], steps = modules_run(stack);
    for (int step = 0; step < steps; step++) {
      int number = *number_for((struct one){stack, step}, 0);
      struct place slice = place_of(stack, step);
      if (!graph->value[stack].stored || number == LEFT_OUT) continue;
      require(number && all_hold(intervals_of(&bytes, slice, false), number), now.id,
              "a slice of it is not there any more");
      require(lies_within(slice, place_of(op->out, NONE)), now.id, "a slice is outside of it");
      mark.at[number].whole = mark.n; /* the number that the next line gives */
    }
    each_piece(op->out, write_piece);
    return;
  }
  if (op->nin == 1 && op->nout == 1 && check_memory_shows(op)) {
    /* The output of a view also has the number of its input; pieces become one. */
    int in = op->in[0], out = op->out;
    struct one from = one_of(in, now.module), to = one_of(out, now.module);
    if (to.index != NONE && *number_for(to, 0) != LEFT_OUT) {
      each_piece(in, read_piece);
      if (graph->value[from.value].pieces) {
        new_number(in);
        each_piece(in, name_anew);
      }
      int pieces = pieces_of(NULL, out, to).all, number = *number_for(from, 0);
      for (int k = 0; k < pieces; k++) *number_for(to, k) = number;
    }
    return;
  }
  if (op->packed) check_bucket_copies(id, module);
  for (int n = check_memory_reads_of(op, list); n--;) each_piece(list[n], read_piece);
  /* The values that a collective writes. A scattered bucket does not write those that are copied
     out of its buffer when it is awaited. */
  int n = scheduled(op)->overlapped ? pending_writes(op, list) : op_writes(op, list);
  bool is_late = copies_late(op) && scatters_sum(op->kind);
  int written = n;
  if (is_late && !scheduled(op)->has_chained && needs_copy_out(op, now.module)) {
    list[0] = op->buffer;
    written = 1;
  }
  for (int n = written; n--;) each_piece(list[n], write_piece); /* a buffer, then its members */
  for (int n = written > 1 ? written : 0; n--;) each_piece(list[n], check_written);
  for (int n = now.replaces ? check_memory_reads_of(op, list) : 0; n--;)
    each_piece(list[n], check_replaced);
}

static void check_memory_run_phases(bool of_batch, enum phase first, enum phase last)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    bool runs = is_phase(f) && f->phase >= first && f->phase <= last;
    if (runs && is_of_batch(f->phase) == of_batch) each_run_of(f, check_memory_run_op, NULL);
  }
}

void check_memory(void)
{
  most_iterations = begin_run();
  open_bytes(&bytes, 1);
  memset(&left, 0, sizeof left);
  memset(&mark, 0, sizeof mark);
  new_number(NONE);
  list_room = 0;
  check_memory_run_phases(false, CONSTANTS, CONSTANTS);
  for (int batch = 0; batch < 2; batch++) check_memory_run_phases(false, COUNT, COUNT);
  for (int batch = 0; batch < (runs_in_step() > 1 ? 2 : 1); batch++) {
    is_last_batch = batch || runs_in_step() == 1;
    if (!batch || gathers_each_batch()) check_memory_run_phases(false, GATHER, GATHER);
    /* The stages of a pipeline may put off the part of their backwards that makes weights'
       gradients. */
    each_op(receive_early, NULL);
    for (int late = 0; late <= batch; late++)
      for (int i = 0; i < graph->nfunction; i++) {
        const struct function *f = &graph->function[i];
        bool runs = is_phase(f) && f->phase <= BACKWARD && (!batch || f->of_weights == late);
        if (runs) each_run_of(f, check_memory_run_op, NULL);
      }
  }
  check_memory_run_phases(false, UPDATE, UPDATE);
  check_memory_run_phases(true, DECODE, DECODE);
  /* Checks the values that are read after the step: results, and the values that the next step
     reads and that were computed before the first one. */
  struct list constants = kept_constants();
  now.id = now.module = NONE;
  now.op = NULL;
  for (int k = 0; k < constants.n; k++) each_piece(constants.at[k], read_piece);
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (i == graph->loss || v->role == NORM || v->is_output) each_piece(i, read_piece);
  }
  end_run();
}
