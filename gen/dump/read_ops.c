/* read_ops.c: the lines of a dump for values and for operations: read.c has the grammar. */
#include "dump/dump.h"

#include <string.h>

/* ------------------------------------------------------------------------------ lines of values */

static bool is_type_of_value(enum type *type)
{
  static const char *const words[] = {TYPE_WORDS};
  const char *place = token_place();
  int which = take_word_of(words, sizeof words / sizeof *words);
  if (which != NONE && *token_place() == '[') {
    *type = (enum type)which;
    return true;
  }
  return_to(place);
  return false;
}

static bool is_placement(void)
{
  const char *s = token_place();
  return (*s == 'R' && (s[1] == ' ' || s[1] == '\n' || !s[1])) ||
         ((*s == 'S' || *s == 'P') && s[1] == '(');
}

/* The start of a value's kind: the role, the type, the shape and the layout. Returns false, and
   consumes nothing, if the line has none. */
static bool read_kind(int value, const struct op *maker)
{
  static const char *const words[] = {ROLE_WORDS};
  const char *place = token_place();
  int role = take_word_of(words, sizeof words / sizeof *words);
  enum type type;
  if (!is_type_of_value(&type)) {
    return_to(place);
    return false;
  }
  struct value *v = &graph->value[value];
  *v = usual_value(maker, type, r.after);
  v->role = role == NONE ? ACTIVATION : (enum role)role;
  v->shape = read_SHAPE();
  v->placed = graph->mesh.ndim ? is_placement() : r.after >= PASS_PROPAGATE;
  if (v->placed) v->layout = read_LAYOUT();
  return true;
}

static void begin_value(int value)
{
  if (r.value_line[value])
    dump_error(token_line(), "v%d is stated in line %d, too", value, r.value_line[value]);
  reach_value(value);
  r.value_line[value] = token_line();
  r.concat_slice[value] = no_concat_slice;
  r.allocation[value] = no_place(value);
}

/* A field of the value, or of a pass's decision about it, if it is next. Later lines call a value
   by its place in a stack. */
static bool read_field_of(int value)
{
  return read_value_field(&graph->value[value]) || read_in_loop_field(row_in_loop(value)) ||
         read_concat_slice_field(&r.concat_slice[value]) ||
         read_allocation_field(&r.allocation[value]);
}

void read_value_line(void)
{
  int value = take_value_number();
  begin_value(value);
  r.stated_name[value] = token_name();
  need_sign('=');
  if (!read_kind(value, NULL)) unexpected("a role, a type and a shape");
  graph->value[value].name = r.stated_name[value];
  while (!at_line_end())
    if (!read_field_of(value)) unexpected("a field of a value, or the line's end");
  note_bearer(&r.bearers, value);
}

/* -------------------------------------------------------------------------- lines of operations */

enum op_kind read_op_kind(void)
{
  const char *name = token_name();
  for (int k = 0; k < OP_COUNT; k++)
    if (!strcmp(op_row[k].name, name)) return (enum op_kind)k;
  dump_error(token_line(), "%s: no operation is called so", printable(name));
}

/* The outputs in `v12 name, v13 name =`; if the line has none, consumes nothing. */
static int read_outputs(int *out)
{
  int n = 0;
  if (!is_value_number()) return 0;
  do {
    int value = take_value_number();
    if (n == MAX_OUTPUTS) unexpected("=");
    if (n && value != *out + n)
      dump_error(token_line(), "v%d: the values of an operation are numbered one after the other",
                 value);
    if (!n) *out = value;
    n++;
    const char *s = token_place();
    if (*s != '=' && *s != ',') {
      begin_value(value);
      r.stated_name[value] = token_name();
    }
    if (!r.referring_line[value]) r.referring_line[value] = token_line();
  } while (take_sign(','));
  need_sign('=');
  return n;
}

static void read_inputs(struct op *op)
{
  if (!take_sign('(')) return;
  while (!take_sign(')')) {
    if (op->nin) need_sign(',');
    if (op->nin == MAX_INPUTS) unexpected(")");
    op->in[op->nin++] = read_VALUE();
    if (op->in[op->nin - 1] == NONE) dump_error(token_line(), "an operation takes a value");
  }
}

static void read_requested(struct op *op)
{
  for (;;) {
    const char *place = token_place();
    size_t n = is_quoted() ? 1 : strcspn(place, " =\n");
    if (!n || (!is_quoted() && place[n] != '=')) return;
    int m = read_MESH_DIM();
    need_sign('=');
    op->asked |= 1u << m;
    op->to.on[m] = read_PLACEMENT();
  }
}

static bool read_other_field(struct op *op)
{
  if (take_word("to")) return read_requested(op), true;
  if (take_word("as")) return op->to = read_LAYOUT(), true;
  if (take_word("out")) return op->out = read_VALUE(), true;
  if (!take_word("numbers")) return false;
  int n = 0;
  do {
    if (n == MAX_NUMBERS) unexpected("the line's end");
    op->number[n++] = read_LONG();
  } while (take_sign(','));
  return true;
}

/* The kind of each output that this line states. */
static void read_outputs_kinds(int id)
{
  const struct op *op = &graph->op[id];
  for (int value = op->out; value < op->out + op->nout; value++) {
    if (r.value_line[value] != token_line() || !r.stated_name[value]) continue;
    if (!read_kind(value, op)) unexpected("a field of the operation, or the type of what it makes");
    graph->value[value].op = id;
    while (read_field_of(value)) continue;
  }
}

static int read_label(void)
{
  if (*token_place() != '@') return 0;
  int n = -2 - read_OP();
  if (r.labels.at[n] != NONE) dump_error(token_line(), "@%d: another line has this label", n);
  return n;
}

void note_scheduled(struct scheduled decided)
{
  GROW(r.schedule.of, r.schedule.nop, r.schedule_room);
  r.schedule.of[r.schedule.nop++] = decided;
}

static int read_op(enum phase phase, struct task *task)
{
  int out = NONE, label = read_label(), nout = read_outputs(&out), line = token_line();
  struct op op = usual_op(read_op_kind(), phase);
  op.nout = nout;
  op.out = out;
  read_inputs(&op);
  struct scheduled decided = {.chained_to = NONE};
  struct work_of_stage work = {.stage = NONE};
  while (read_op_field(&op) || read_other_field(&op) || read_scheduled_field(&decided) ||
         (has_work_of_stages(r.after) && read_work_of_stage_field(&work)) ||
         (task && read_task_field(task)))
    continue;
  int id = store_op(op);
  add(&r.op_line, line);
  note_scheduled(decided);
  note_work(work);
  if (label) r.labels.at[label] = id;
  read_outputs_kinds(id);
  if (take_sign('{')) {
    struct list body = {0};
    struct stages *stages = alloc(sizeof *stages);
    bool any = false;
    *stages = (struct stages){.space = NONE};
    for (; !at_line_end(); any = true)
      if (!read_stages_field(stages)) unexpected("a field of stages, or the line's end");
    to_next_line();
    read_ops(graph->op[id].phase, &body, any ? stages : NULL);
    if (!body.n) dump_error(token_line(), "an operation is made of none");
    graph->op[id].nbody = body.n;
    graph->op[id].body = body.at;
    if (any) graph->op[id].stages = stages;
  }
  return id;
}

/* Up to the closing bracket: appends the operations to the list. */
void read_ops(enum phase phase, struct list *into, struct stages *stages)
{
  static int depth;
  depth++;
  if (depth > 3) unexpected("no further bracket");
  while (!take_sign('}')) {
    if (tokens_end()) unexpected("}");
    if (stages && stages->n == MOST_IN_KERNEL) unexpected("}");
    struct task *task = stages ? &stages->task[stages->n++] : NULL;
    add(into, read_op(phase, task));
    to_next_line();
  }
  depth--;
}
