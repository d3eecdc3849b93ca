/* activation_table.c: the activations of a rank as a table: for each a function at_NAME() that
   points to it in the arena, with its shape, its placement, its life, and whose bytes it reuses.

   A value of a loop's body is one row for all modules; its function takes the module's number. The
   text of a function makes a row when it first asks for it, so the table has the order of the
   program. */
#include "naming/naming.h"

#include <string.h>

struct row {
  int value;     /* of a stack: that of module 0 */
  int count;     /* modules that have one; 1: no stack */
  int64_t bytes; /* bytes of one */
  struct allocation at;
  int64_t stride;               /* stride from one slot to the next */
  const char *preferred, *name; /* the name without and with the number that makes it unique */
  const char *function;
};

static struct row *row;
static int nrow, row_room;
static int *row_of;     /* by value: its row, from 1 on; 0: none yet */
static int *modules_of; /* by stack: how many modules have one */
static struct scope row_names;

/* The functions of phases, in their order, each with the program point at which it ends. */
struct phase_end {
  int function, place;
};
static struct {
  int n;
  struct phase_end *at;
} ends;

static void count_place(void *to, int op, int times)
{
  (void)op, (void)times;
  ++*(int *)to;
}

void forget_activations(void)
{
  nrow = 0;
  row_names = (struct scope){.local = true};
  row_of = alloc((size_t)(graph->nvalue + 1) * sizeof *row_of);
  int place = 0;
  ends.n = 0;
  ends.at = alloc((size_t)(graph->nfunction + 1) * sizeof *ends.at);
  for (int i = 0; i < graph->nfunction; i++) {
    if (!is_phase(&graph->function[i])) continue;
    each_op_of(&graph->function[i], count_place, &place);
    ends.at[ends.n++] = (struct phase_end){i, place};
  }
  /* As many as the body has that makes it, or more, where one outside of the loop belongs to it. */
  modules_of = alloc((size_t)(graph->nvalue + 1) * sizeof *modules_of);
  for (int i = 0; i < graph->nvalue; i++) {
    int maker = allocation_of(i).made_by;
    modules_of[i] = maker == NONE ? 1 : graph->function[maker].count;
  }
  for (int i = 0; i < graph->nvalue; i++) {
    const struct in_loop *loop = in_loop(i);
    if (loop->stack != NONE && loop->index >= modules_of[loop->stack])
      modules_of[loop->stack] = loop->index + 1;
  }
}

bool is_activation(int value)
{
  const struct value *v = &graph->value[value], *place = &graph->value[storage_of(value)];
  if (in_loop(value)->step) return v->stored;
  if (!v->stored || v->op == NONE) return false;
  if (allocation_of(value).slice) return v->role == ACTIVATION && !v->is_output;
  return place->role == ACTIVATION && !place->is_output;
}

/* ----------------------------------------------------------------------------------------- rows */

static int slots(const struct row *r)
{
  return r->at.depth < r->count ? r->at.depth : r->count;
}

/* Whether the value is where the row of its stack says that its module's is. */
static bool is_in_stack_row(int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  if (loop->stack == NONE || loop->stack == value || !is_activation(loop->stack)) return false;
  struct allocation a = allocation_of(loop->stack);
  int64_t at = a.offset + loop->index % a.depth * arena_stride(a.storage);
  return v->type == graph->value[loop->stack].type && allocation_of(value).offset == at;
}

static const struct row *row_for(int value, const char *function)
{
  if (is_in_stack_row(value)) value = in_loop(value)->stack;
  if (row_of[value]) return &row[row_of[value] - 1];
  const struct value *v = &graph->value[value];
  struct row new = {.value = value, .count = 1, .at = allocation_of(value), .function = function};
  if (in_loop(value)->stack == value && new.at.depth > 1) new.count = modules_of[value];
  new.bytes = elements(local_shape(value, named_rank)) * type_bytes(v->type);
  new.stride = arena_stride(new.at.storage);
  /* "layers_attention_wq": the list, and the module's name for it; for a bucket, which has no
     module, "layers_forward_gathered". */
  const struct in_loop *loop = in_loop(value);
  const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
  const char *list =
      loop->stack == value && loop->sibling != NONE ? graph->module[loop->list].path : "";
  const char *name = identifier(text("%s%s%s", list, *list ? "." : "", name_in_list(value)));
  const char *again = op && op->recomputed ? "_again" : "";
  new.preferred = is_buffer(value) ? text("%s_%s", function, name)
                                   : text("%s%s%s", name, moved_suffix(value), again);
  /* A row with the same bytes and the same name: of the value that this one is a view of, say. */
  const struct row *same = NULL;
  for (const struct row *r = row; r < row + nrow && !same; r++)
    if (r->at.offset == new.at.offset && r->at.depth == new.at.depth && r->count == new.count &&
        (r->count == 1 || r->stride == new.stride) &&
        graph->value[r->value].type == graph->value[new.value].type &&
        !strcmp(r->preferred, new.preferred))
      same = r;
  if (!same) {
    new.name = unique_name(&row_names, new.preferred);
    GROW(row, nrow, row_room);
    row[nrow++] = new;
    same = &row[nrow - 1];
  }
  row_of[value] = (int)(same - row) + 1;
  return same;
}

const char *arena_pointer(int value, const char *module, const char *function)
{
  if (allocation_of(value).slice) {
    /* "at_inp() + (l - 1) * 24": the slice of a scan's step in the whole value. */
    const struct value *v = &graph->value[value];
    const struct in_loop *loop = in_loop(value);
    struct allocation a = allocation_of(value), whole = allocation_of(a.storage);
    const char *step = module ? module : text("%d", loop->index);
    if (strchr(step, ' ')) step = text("(%s)", step);
    if (largest_bytes(a.storage) > INT32_MAX) step = text("(size_t)%s", step);
    int64_t bytes = type_bytes(v->type), inside = a.offset - whole.offset;
    if (loop->stack != value) inside -= loop->index * a.slice;
    const char *at = is_activation(a.storage) ? arena_pointer(a.storage, NULL, function)
                                              : memory_name[a.storage];
    if (inside) at = text("%s + %lld", at, (long long)(inside / bytes));
    return text("%s + %s * %lld", at, step, (long long)elements(local_shape(value, named_rank)));
  }
  const struct row *r = row_for(value, function);
  if (r->count == 1) return text("at_%s()", r->name);
  return text("at_%s(%s)", r->name, module ? module : text("%d", in_loop(value)->index));
}

/* ---------------------------------------------------------------------------------------- about */

/* "; reuses the bytes of wq and others": of values that died before, the last one first. */
static void put_reused(struct buffer *b, const struct row *r)
{
  const struct row *last = NULL;
  int n = 0;
  for (const struct row *q = row; q < row + nrow; q++) {
    if (q->at.storage != q->value || q->at.first >= r->at.first) continue;
    int64_t a_end = q->at.offset + (slots(q) - 1) * q->stride + q->bytes;
    int64_t b_end = r->at.offset + (slots(r) - 1) * r->stride + r->bytes;
    bool rows_overlap = q->at.offset < b_end && r->at.offset < a_end;
    if (!rows_overlap) continue;
    if (!last || q->at.first > last->at.first) last = q;
    n++;
  }
  if (last) put(b, "; reuses the bytes of %s%s", last->name, n > 1 ? " and others" : "");
}

static char *about(const struct row *r)
{
  const struct value *v = &graph->value[r->value];
  const struct concat_slice *w = concat_slice(r->value);
  struct shape here = local_shape(r->value, named_rank);
  struct buffer b = {0};
  int storage = r->at.storage;
  put(&b, "// %s", shape_text(here));
  if (!same_shape(here, v->shape)) put(&b, " of %s", shape_text(v->shape));
  put(&b, "  %s",
      is_buffer(r->value)      ? "a bucket"
      : holds_pieces(r->value) ? "pieces of an exchange"
                               : layout_text(v->layout));
  if (v->order) put(&b, ", %s", order_text(v));
  if (w->buffer != NONE)
    put(&b, ", rows of %lld, %lld apart", (long long)w->row, (long long)w->pitch);
  /* "forward", "forward .. backward": the phases in which the value lives. A value that is made
     before the first step and outlives the last operation of a step lives in all. */
  int value = w->buffer == NONE ? storage : r->value;
  enum phase from = graph->op[graph->value[value].op].phase, to = from;
  int last = allocation_of(value).last;
  const char *lifetime = "all steps";
  if (from != CONSTANTS || last < ends.at[ends.n - 1].place) {
    for (int i = 0; i < ends.n; i++) {
      if (last >= ends.at[i].place) continue;
      to = graph->function[ends.at[i].function].phase;
      break;
    }
    lifetime = from == to ? phase_name[from] : text("%s .. %s", phase_name[from], phase_name[to]);
  }
  put(&b, "  %s", lifetime);
  if (storage == r->value)
    put_reused(&b, r);
  else if (row_of[storage])
    put(&b, "; in%s %s", is_buffer(storage) ? "" : " place of", row[row_of[storage] - 1].name);
  return b.text;
}

const char *slot_variable(int stage)
{
  return stages_here() == 1 ? "in_flight" : text("in_flight_stage%d", stage);
}

const char *slots_table(int stage)
{
  return text("slots_stage%d", stage);
}

const char *slot_number(int stage)
{
  if (stages_here() > 1) return text("%s[microbatch]", slots_table(stage));
  return text("%s / %lld", slot_variable(stage), (long long)graph->memory->slots[stage].bytes);
}

char *activation_table(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const struct row *r = row; r < row + nrow; r++) {
    const char *type = c_type(graph->value[r->value].type);
    if (r == row || strcmp(r->function, r[-1].function))
      put(&b, "%s// ---- %s\n", r == row ? "" : "\n", r->function);
    put(&b, "%s(%s, %s, %lld%s",
        r->count == 1          ? "ACTIVATION"
        : slots(r) == r->count ? "STACKED"
                               : "ROTATING",
        type, r->name, (long long)r->at.offset,
        r->at.in_flight == NONE ? "" : text(" + %s", slot_variable(r->at.in_flight)));
    if (r->count > 1) put(&b, ", %lld", (long long)r->stride);
    if (r->count > 1 && slots(r) < r->count) put(&b, ", %d", slots(r));
    put(&b, ")\n%s\n", wrapped(text("    %s", about(r)), "  ", "    //     "));
  }
  return nrow ? fill(embedded_template("arena.h"), "rows", b.text, NULL) : "";
}
