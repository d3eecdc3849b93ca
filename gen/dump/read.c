/* read.c: reads what write.c prints: `tpgen --from=PASS FILE` continues after the pass. The words
   of fields are rows of fields.h; a usual field (dump_defaults.c) is left out.

     file     = graph { graph }      one; in a pipeline, after `redistribute`, one for each place
     graph    = "after" PASS "plan" TEXT "for" ("cpu" | "cuda") { line }
     line     = "file" TEXT                           that the plan requires: lines of file n are
                                                      counted from 10000000 n on
              | "mesh" NAME SIZE fields               a dimension of the mesh
              | "device" NAME fields
              | "cluster" NAME fields
              | "group" ("over" NAME {"," NAME} | "from" N "to" N)      of ranks; of two stages
              | "module" PATH fields                  parents first
              | "unit" NAME fields
              | "pipeline" STAGES "over" NAME fields {"may_begin" PATH}
              | "stage" "at" N ["split"] ["begins" PATH] fields         of each stage, in order
              | "stage_edge" N N WORK WORK          what the one makes and the other one reads
              | "operator" NAME "backward" NUMBER {"," NUMBER} fields
              | "exchange" TYPE SHAPE "over" GROUP "by" KIND {"among" NAME} fields
              | "function" NAME fields                its operations come below
              | VALUE NAME "=" kind                   a value that no operation's line makes
              | "style" NAME fields
                  "{" { ("parameter" VALUE | "input" N | "output" N) PLACEMENT } "}"
              | "async_tp" fields
              | "call" PATH fields {"in" VALUE} {"out" VALUE}
              | "index_use" NAME fields "first" SHAPE
              | "program" fields ["events" N] {"bucket" BYTES}
              | "optimizer" NAME fields { "state" NAME ["ones" BITS] | "constant" NUMBER
                  | "number" NAME TEXT | "operation" KIND N {"," N} fields
                  | "step" KIND N {"," N} } "out" N {"out" N}
              | "expect" fields                       the most collectives of each kind
              | PHASE "{" { operation } "}"           of the flat program
              | FUNCTION "{" { operation } "}"        of a function
              | "aside" "{" { operation } "}"         never run, but another line refers to them
              | "cut" fields                          the result for a collective under async_tp
     operation = ["@" N] [VALUE [NAME] {"," VALUE [NAME]} "="] KIND ["(" [VALUE {"," VALUE}] ")"]
                 { field | "to" {NAME "=" PLACEMENT} | "as" LAYOUT | "numbers" N {"," N} }
                 { kind } ["{" fields of its stages NEWLINE { operation } "}"]
     kind     = [ROLE] TYPE SHAPE [LAYOUT] fields     of each output with a name, in order
     VALUE    = "v" N | NAME | "nothing"              NAME: of a line above, if it is unique
     LAYOUT   = a PLACEMENT for each dimension of the mesh
     PLACEMENT = "R" | "S(" DIM ["/" OUTER] ")" ["[" ORDER "]"] | "P(" ("sum" | "max" | "min") ")"
     SHAPE    = "[" [N {"," N}] "]"
     NAME     = letters, digits and _ . - / ; or in quotes, with \n and \xNN

   A line that begins with -- is a comment. An operation's values have its `line` and `in`, its
   phase and that of the block, unless their own lines state others. The number of an operation
   follows from the values that it makes. */
#include "dump/dump.h"

#include <stdlib.h>
#include <string.h>

/* All fields up to the line's end. */
#define READ_FIELDS(name, x)                                                                       \
  while (!at_line_end())                                                                           \
    if (!read_##name##_field(x)) unexpected("a field, or the line's end")

/* -------------------------------------------------------------------------------- other lines */

#define NAMED(member) token_name()
#define NAMELESS      NULL
#define LINE(word, of, array, type, record, NAME, usual)                                           \
  static void read_##word(void)                                                                    \
  {                                                                                                \
    int i = of->n##array;                                                                          \
    const char *name = NAME;                                                                       \
    GROW(of->array, of->n##array, of->array##_room);                                               \
    of->array[i] = usual;                                                                          \
    READ_FIELDS(record, &of->array[i]);                                                            \
    of->n##array++;                                                                                \
    (void)name;                                                                                    \
  }
LINES(LINE)
#undef LINE

static void read_new_function(void)
{
  int new = graph->nfunction;
  read_function();
  if (function_named(graph->function[new].name) != new)
    dump_error(token_line(), "two functions have this name");
}

static void read_mesh(void)
{
  struct mesh *m = &graph->mesh;
  if (m->ndim == MAX_MESH) unexpected("no further dimension of the mesh");
  int i = m->ndim;
  m->name[i] = token_name();
  m->size[i] = (int)token_number(1, MOST_RANKS_READ);
  for (;;)
    if (take_word("bandwidth"))
      m->bandwidth[i] = token_real();
    else if (take_word("latency"))
      m->latency[i] = token_real();
    else if (take_word("whole"))
      m->whole[i] = read_TEXT();
    else if (take_word("microbatch_axis"))
      m->microbatch_axis[i] = true;
    else
      break;
  m->ndim++;
  if (m->microbatch_axis[i] && m->size[i] > MOST_MICROBATCHES_READ)
    dump_error(token_line(), "a step has at most %d micro-batches", MOST_MICROBATCHES_READ);
  if (world_size() > MOST_RANKS_READ) dump_error(token_line(), "the mesh has too many ranks");
}

static void read_device(void)
{
  graph->mesh.device.name = token_name();
  READ_FIELDS(device, &graph->mesh.device);
}

static void read_cluster(void)
{
  graph->mesh.cluster.name = token_name();
  READ_FIELDS(cluster, &graph->mesh.cluster);
}

static void read_group(void)
{
  if (take_word("from")) {
    read_edge();
    return;
  }
  if (!take_word("over")) unexpected("over, or from");
  read_GROUP();
}

static void read_operator(void)
{
  struct custom c = {.name = token_name()};
  if (!take_word("backward")) unexpected("backward");
  for (int k = 0; k < MAX_INPUTS; k++) {
    if (k) need_sign(',');
    c.backward[k] = (int)token_number(NONE, MOST_VALUES);
  }
  READ_FIELDS(custom, &c);
  GROW(graph->custom, graph->ncustom, graph->custom_room);
  graph->custom[graph->ncustom++] = c;
}

static void read_exchange(void)
{
  struct exchange e = {0};
  e.type = read_TYPE();
  e.whole = read_SHAPE();
  if (!take_word("over")) unexpected("over");
  e.group = read_GROUP();
  if (!take_word("by")) unexpected("by");
  e.move.kind = read_op_kind();
  while (take_word("among")) {
    if (e.move.n == MAX_MESH) unexpected("the line's end");
    e.move.dim[e.move.n++] = read_MESH_DIM();
  }
  READ_FIELDS(move, &e.move);
  GROW(graph->exchange, graph->nexchange, graph->exchange_room);
  graph->exchange[graph->nexchange++] = e;
}

static void read_request(struct style *s)
{
  static const char *const words[] = {"parameter", "input", "output"};
  int what = take_word_of(words, 3);
  struct layout_request w = {.what = REQUEST_PARAMETER, .value = NONE};
  if (what == NONE) unexpected("parameter, input or output");
  w.what = what == 0 ? REQUEST_PARAMETER : what == 1 ? REQUEST_INPUT : REQUEST_OUTPUT;
  if (what == 0)
    w.value = read_VALUE();
  else
    w.index = (int)token_number(0, MOST_VALUES);
  w.to = read_PLACEMENT();
  s->request =
      memcpy(alloc((size_t)(s->nrequest + 1) * sizeof *s->request), s->nrequest ? s->request : &w,
             (size_t)(s->nrequest ? s->nrequest : 1) * sizeof *s->request);
  s->request[s->nrequest++] = w;
}

static void read_style(void)
{
  struct style s = {.name = token_name(), .module = NONE};
  while (!take_sign('{'))
    if (!read_style_field(&s)) unexpected("a field of a style, or {");
  to_next_line();
  while (!take_sign('}')) {
    if (tokens_end()) unexpected("}");
    read_request(&s);
    to_next_line();
  }
  GROW(graph->style, graph->nstyle, graph->style_room);
  graph->style[graph->nstyle++] = s;
}

static void read_call(void)
{
  int module = read_MODULE();
  struct call c = {.module = module, .within = module, .parent = NONE, .first = NONE, .last = NONE};
  while (!at_line_end()) {
    bool in = take_word("in");
    if (!in && !take_word("out")) {
      if (!read_call_field(&c)) unexpected("a field of a call, or the line's end");
      continue;
    }
    if ((in ? c.nin : c.nout) == MAX_CALL_TENSORS) unexpected("the line's end");
    *(in ? &c.in[c.nin++] : &c.out[c.nout++]) = read_VALUE();
  }
  GROW(graph->call, graph->ncall, graph->call_room);
  graph->call[graph->ncall++] = c;
}

static void read_index_use(void)
{
  struct index_use u = {.what = token_name(), .input = NONE};
  while (!take_word("first"))
    if (!read_index_use_field(&u)) unexpected("a field of the use of an index, or first");
  struct shape first = read_SHAPE();
  memcpy(u.first, first.size, sizeof u.first);
  GROW(graph->index_use, graph->nindex_use, graph->index_use_room);
  graph->index_use[graph->nindex_use++] = u;
}

static void read_program(void)
{
  while (!at_line_end()) {
    if (read_graph_field(graph) || read_options_field(plan_options) || read_arena_field(&r.arena))
      continue;
    if (take_word("events")) {
      r.schedule.nevent = (int)token_number(0, MOST_VALUES);
      continue;
    }
    if (!take_word("bucket") || plan_options->ncap == MAX_CAPS)
      unexpected("a field of the program");
    plan_options->cap[plan_options->ncap++] = read_LONG();
  }
}

static void read_expect(void)
{
  plan_options->expected.given = true;
  while (!at_line_end())
    if (take_word("line"))
      plan_options->expected.line = read_INT();
    else {
      enum op_kind kind = read_op_kind();
      plan_options->expected.most[kind] = read_INT();
    }
}

/* The operations of a phase of the flat program, of a function, or of `aside`. */
static void read_block(const char *name)
{
  static const char *const phases[] = {PHASE_WORDS};
  struct list ops = {0};
  enum phase phase = FORWARD;
  bool is_flat = r.after < PASS_OUTLINE, is_aside = !strcmp(name, "aside");
  int function = is_flat || is_aside ? NONE : function_named(name), known = is_aside;
  for (enum phase p = FORWARD; p < PHASES && is_flat; p++)
    if (!strcmp(phases[p], name)) phase = p, known = 1;
  if (function != NONE) phase = graph->function[function].phase, known = 1;
  if (!known) dump_error(token_line(), "%s: no line begins so", printable(name));
  need_sign('{');
  to_next_line();
  read_ops(phase, &ops, NULL);
  for (int i = 0; i < ops.n && is_flat && !is_aside; i++) append_to_order(ops.at[i]);
  if (function == NONE) return;
  if (graph->function[function].op) dump_error(token_line(), "%s stands here twice", name);
  graph->function[function].op = ops.n ? ops.at : alloc(sizeof(int));
  graph->function[function].nop = ops.n;
}

static void read_file_name(void)
{
  if (plan_files() == MOST_PLAN_FILES) unexpected("no further file");
  add_plan_file(token_text());
}

static void read_line(void)
{
  static const struct {
    const char *word;
    void (*read)(void);
  } lines[] = {{"file", read_file_name},
               {"mesh", read_mesh},
               {"device", read_device},
               {"cluster", read_cluster},
               {"group", read_group},
               {"module", read_module},
               {"unit", read_unit},
               {"pipeline", read_pipeline},
               {"stage", read_stage},
               {"stage_edge", read_stage_edge},
               {"operator", read_operator},
               {"exchange", read_exchange},
               {"function", read_new_function},
               {"style", read_style},
               {"async_tp", read_async_tp},
               {"call", read_call},
               {"index_use", read_index_use},
               {"program", read_program},
               {"optimizer", read_optimizer},
               {"expect", read_expect},
               {"cut", read_cut},
               {"ended_early", read_ended_early}};
  if (is_value_number()) {
    read_value_line();
    return;
  }
  const char *place = token_place();
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    if (!take_word(lines[i].word)) continue;
    if (*token_place() != '{') {
      lines[i].read();
      return;
    }
    return_to(place);
  }
  read_block(token_name());
}

/* -------------------------------------------------------------------------------------- the end */

/* The order in which the operations were made, by the numbers of their values; then the operations
   that make none of their own. */
static int by_value(const void *a, const void *b)
{
  int x = *(const int *)a, y = *(const int *)b;
  const struct op *p = &graph->op[x], *q = &graph->op[y];
  bool p_makes = p->nout && !p->nbody, q_makes = q->nout && !q->nbody;
  if (p_makes != q_makes) return p_makes ? -1 : 1;
  if (p_makes && p->out != q->out) return p->out < q->out ? -1 : 1;
  return x < y ? -1 : x > y;
}

static int read_moved(const int *to, int id)
{
  int op = IS_LABEL(id) ? r.labels.at[-2 - id] : id;
  return op == NONE ? NONE : to[op];
}

static void move_list(const int *to, int *list, int n)
{
  for (int i = 0; i < n; i++) list[i] = to[list[i]];
}

static void move_op(const int *to, struct op *op)
{
  if (op->kind == OP_await) op->awaits = read_moved(to, op->awaits);
  int *body =
      memcpy(alloc((size_t)(op->nbody + 1) * sizeof *body), op->nbody ? op->body : &(int){0},
             (size_t)(op->nbody ? op->nbody : 1) * sizeof *body);
  move_list(to, body, op->nbody);
  if (op->nbody) op->body = body;
}

static void give_schedule(const int *at, const int *to)
{
  if (r.after < PASS_SCHEDULE) return;
  graph->schedule = new_schedule();
  graph->schedule->nevent = r.schedule.nevent;
  for (int i = 0; i < graph->nop; i++) {
    struct scheduled *s = &graph->schedule->of[i];
    *s = r.schedule.of[at[i]];
    s->chained_to = read_moved(to, s->chained_to);
  }
}

/* Sorts the operations, and replaces labels by numbers. */
static void number_ops(void)
{
  int n = graph->nop, *at = alloc((size_t)(n + 1) * sizeof *at),
      *to = alloc((size_t)(n + 1) * sizeof *to);
  struct op *op = memcpy(alloc((size_t)(n + 1) * sizeof *op), graph->op, (size_t)n * sizeof *op);
  int *line = memcpy(alloc((size_t)(n + 1) * sizeof *line), r.op_line.at, (size_t)n * sizeof *line);
  for (int i = 0; i < n; i++) at[i] = i;
  qsort(at, (size_t)n, sizeof *at, by_value);
  for (int i = 0; i < n; i++) to[at[i]] = i;
  for (int i = 0; i < n; i++) {
    graph->op[i] = op[at[i]];
    r.op_line.at[i] = line[at[i]];
    move_op(to, &graph->op[i]);
  }
  for (int i = 0; i < graph->nvalue; i++) graph->value[i].op = read_moved(to, graph->value[i].op);
  /* Sets the fields that follow from the stacks. */
  for (int i = 0; i < graph->nvalue; i++) {
    struct value *v = &graph->value[i];
    const struct in_loop *loop = in_loop(i);
    if (!is_other_of_stack(i) || !r.value_line[i]) continue;
    if (v->op == NONE) v->op = graph->value[loop->stack].op;
    if (loop->index == 1) row_in_loop(loop->stack)->sibling = i;
  }
  give_schedule(at, to);
  give_work(at);
  move_list(to, graph->order, graph->norder);
  for (int i = 0; i < graph->nfunction; i++)
    move_list(to, graph->function[i].op, graph->function[i].nop);
  for (int i = 0; i < graph->nasync_tp_result; i++)
    graph->async_tp_result[i].op = read_moved(to, graph->async_tp_result[i].op);
}

/* Before the pass `outline` no value is in a loop: the graph has no table, as places of a pipeline
   would share it. */
static void leave_no_loops(void)
{
  const struct values_in_loops *l = graph->in_loops;
  if (r.after >= PASS_OUTLINE || !l) return;
  for (int i = 0; i < l->nvalue; i++)
    if (memcmp(&l->of[i], &in_no_loop, sizeof in_no_loop))
      dump_error(r.value_line[i], "before %s no value is in a loop", pass_name[PASS_OUTLINE]);
  graph->in_loops = NULL;
}

static void read_place_values(void)
{
  if (r.after != PASS_MEMORY) return;
  struct allocation *of = new_memory_plan()->of;
  graph->memory = memcpy(alloc(sizeof r.arena), &r.arena, sizeof r.arena);
  graph->memory->of = of;
  graph->memory->placed = true;
  graph->memory->slots = r.slots;
  for (int i = 0; i < graph->nvalue; i++)
    if (r.value_line[i]) graph->memory->of[i] = r.allocation[i];
}

static void read_head(enum pass after)
{
  r.head = token_line();
  if (!take_word("after")) unexpected("after");
  if (!take_word(pass_name[after]))
    unexpected(text("%s, the pass of --from=%s,", pass_name[after], pass_name[after]));
  if (!take_word("plan")) unexpected("plan");
  plan_options->path = token_text();
  if (!take_word("for")) unexpected("for");
  bool known = false;
  for (int i = 0; i < TARGETS && !known; i++)
    known = take_word(targets[i].name) && set_target(targets[i].name);
  if (!known) unexpected("a target");
  to_next_line();
}

/* The file, and the text that all of its graphs have in common. */
static struct {
  const char *path, *hash, *alike;
  const struct pipeline_stages *first; /* those of the first graph */
  enum pass after;
  int ngraph;
} file;

void open_dump_file(const char *path, const char *dump, enum pass after)
{
  memset(&file, 0, sizeof file);
  file.path = path;
  file.after = after;
  file.hash = text("%016llx", (unsigned long long)hash_bytes(HASH_START, dump, strlen(dump)));
  open_tokens(path, dump);
  memset(&r, 0, sizeof r);
  r.value_line = alloc(MOST_VALUES * sizeof *r.value_line);
  r.referring_line = alloc(MOST_VALUES * sizeof *r.referring_line);
  r.stated_name = alloc(MOST_VALUES * sizeof *r.stated_name);
  r.concat_slice = alloc(MOST_VALUES * sizeof *r.concat_slice);
  r.allocation = alloc(MOST_VALUES * sizeof *r.allocation);
}

/* The tables by value serve one graph after the other. */
static void begin_graph(void)
{
  const struct reading last = r;
  const size_t n = (size_t)graph->nvalue;
  errors_are_of(file.path);
  r = (struct reading){.after = file.after,
                       .place = file.ngraph,
                       .value_line = last.value_line,
                       .referring_line = last.referring_line,
                       .stated_name = last.stated_name,
                       .concat_slice = last.concat_slice,
                       .allocation = last.allocation};
  if (file.ngraph++) {
    memset(r.value_line, 0, n * sizeof *r.value_line);
    memset(r.referring_line, 0, n * sizeof *r.referring_line);
    memset(r.stated_name, 0, n * sizeof *r.stated_name);
    another_graph();
    forget_plan_files();
  }
  r.gap = store_op((struct op){.kind = OP_view, .out = NONE, .module = NONE});
  add(&r.op_line, 0);
  note_scheduled((struct scheduled){.chained_to = NONE});
  note_work((struct work_of_stage){.stage = NONE});
}

/* Whether the graph of the next place begins. */
static bool at_next_graph(void)
{
  const char *place = token_place();
  bool is = graph->stages && graph->stages->here != NONE && take_word("after");
  is = is && *token_place() != '{';
  return_to(place);
  return is;
}

/* The graphs of places belong together, and share the facts about all stages. */
static void check_alike(void)
{
  struct pipeline_stages *s = graph->stages;
  if (!s || s->here == NONE) return;
  const char *alike = text_of_all_places();
  if (!s->here) {
    make_edges();
    file.alike = alike;
    file.first = s;
  }
  if (strcmp(alike, file.alike))
    dump_error(r.head, "the graph of place %d is of another program than that of place 0", s->here);
  s->all = file.first->all;
  s->ends = file.first->ends;
  s->joins = file.first->joins;
  if (tokens_end() && s->here + 1 < graph->mesh.size[s->mesh_dim])
    dump_error(token_line(), "place %d of the pipeline is missing", s->here + 1);
}

bool read_graph(void)
{
  if (file.ngraph && tokens_end()) return false;
  begin_graph();
  read_head(file.after);
  while (!tokens_end() && !at_next_graph()) {
    read_line();
    to_next_line();
  }
  for (int i = 0; i < MOST_VALUES; i++)
    if (r.referring_line[i] && !r.value_line[i])
      dump_error(r.referring_line[i], "v%d: no line states it", i);
  for (int i = 0; i < r.labels.n; i++)
    if (r.label_lines.at[i] && r.labels.at[i] == NONE)
      dump_error(r.label_lines.at[i], "@%d: no line has this label", i);
  check_pipeline();
  /* The decisions of passes about values. */
  leave_no_loops();
  for (int i = 0; i < graph->nvalue; i++) {
    if (!r.value_line[i]) continue;
    if (r.concat_slice[i].buffer != NONE) make_concat_slice(i, r.concat_slice[i]);
  }
  number_ops();
  read_place_values();
  check_dump(r.op_line.at, r.value_line);
  bugs_are_of(file.path, r.op_line.at, r.op_line.n);
  /* A value's name is made of its module's path, unless its line gives another. */
  for (int i = 0; i < graph->nvalue; i++)
    if (r.stated_name[i] &&
        (!takes_usual_name(&graph->value[i]) || strcmp(value_name(i), r.stated_name[i])))
      graph->value[i].name = r.stated_name[i];
  check_alike();
  plan_options->hash = file.hash;
  errors_are_of(plan_options->path);
  return true;
}
