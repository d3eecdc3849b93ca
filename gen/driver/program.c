/* program.c: the pass `emit`: the files of out/.

   Takes   the finished graph, and the templates.
   Leaves  the text of every file, for output_files.c. Only this pass, with the files that it is
   made of, knows the target.

   Ranks whose parts have the same shapes run the same text: a class of ranks shares a step file.
   What is a rank's alone, where its parts begin and whom it meets, is in its own file, as
   constants. */
#include "driver/driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ functions */

/* The learning rate depends on the number of the step, and so do random numbers: where a step takes
   several batches, on that of the batch. On a GPU the rates lie in memory, and the number does. */
static bool takes_step(const struct function *f)
{
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    bool of_step = is_random(op) || (is_update(op) && !options.cuda);
    bool calls = op->kind == OP_loop || op->kind == OP_round;
    if (calls ? takes_step(&graph->function[op->function]) : of_step) return true;
  }
  return false;
}

/* By operation its statement in the functions that were written last. */
static const char **statement;

static char *stated(int op, int rank)
{
  char *does = statement_text(&graph->op[op], rank);
  statement[op] = does;
  return does;
}

/* Whether a part does no more than to await a collective: then it is no function. */
static bool is_await_alone(const struct function *f)
{
  const struct op *op = &graph->op[f->op[0]];
  return f->is_part && f->nop == 1 && op->kind == OP_await && !awaits_copies(op);
}

static char *loop_text(const struct function *f)
{
  const char *from = f->upward ? "0" : text("%d", f->count - 1);
  const char *next = f->upward ? text("l < %d; l++", f->count) : "l >= 0; l--";
  return text("for (int l = %s; %s) %s(l%s);", from, next, f->name, takes_step(f) ? ", t" : "");
}

/* "if (l < 3) layers_forward_ahead(l + 1);", or what it does there, where it does so for any module
   alike: "if (l < 3) await(done[0]);". */
static char *round_text(const struct op *op, int rank)
{
  const struct function *f = &graph->function[op->function], *body = &graph->function[f->body];
  if (op->iteration == IN_LAST_ITERATION)
    return text("if (l == %d) %s();", body->upward ? body->count - 1 : 0, f->name);
  bool next = op->iteration == NEXT_ITERATION, above = next == f->upward;
  int far = next ? op->distance : 1;
  const char *limit = above ? text("l < %d", f->count - far) : text("l > %d", far - 1);
  bool outside = op->iteration == FIRST_ITERATION || op->iteration == LAST_ITERATION;
  const char *module = outside ? text("%d", module_of_iteration(f, iteration_called(op, 0)))
                               : text("l %s %d", above ? "+" : "-", far);
  char *call = text("%s(%s%s);", f->name, module, takes_step(f) ? ", t" : "");
  if (is_await_alone(f)) call = stated(f->op[0], rank);
  return outside || !*call ? call : text("if (%s) %s", limit, call);
}

static const char *function_parameters(const struct function *f)
{
  const char *t = options.cuda ? "const int *t" : "int t";
  if (f->count > 1) return takes_step(f) ? text("int l, %s", t) : "int l";
  return takes_step(f) ? t : "void";
}

static bool speaks_of(const char *code, const char *locals, const char *variable)
{
  return has_word(code, variable) || has_word(locals, variable);
}

/* A statement, each of its lines broken where it is too long. */
static char *statement_lines(const char *does)
{
  struct buffer b = {0};
  for (const char *line = does; *line;) {
    size_t length = strcspn(line, "\n"), indent = strspn(line, " ");
    if (line == does) indent = 2;
    const char *whole = text("%s%.*s", line == does ? "  " : "", (int)length, line);
    put(&b, "%s\n", wrapped(whole, ", ", text("%*s", (int)indent + 4, "")));
    line += length + (line[length] == '\n');
  }
  return b.text;
}

static char *function_text(const struct function *f, int rank)
{
  struct buffer body = {0}, code = {0}, b = {0};
  put_text(&body, "", 0);
  put_text(&code, "", 0);
  name_locals(f);
  bool constants = false;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    char *does = op->kind == OP_loop    ? loop_text(&graph->function[op->function])
                 : op->kind == OP_round ? round_text(op, rank)
                                        : stated(f->op[k], rank);
    if (!*does) continue;
    if (is_update(op) && !constants && !options.cuda) {
      put(&body, "%s%s", body.length ? "\n" : "", update_constants());
      put(&code, "%s", update_constants());
      constants = true;
    }
    put(&body, "%s%s", body.length ? "\n" : "", comment_lines(comment_text(op), 2));
    put(&body, "%s", statement_lines(does));
    put(&code, "%s\n", does);
  }
  char *locals = local_declarations(code.text);
  /* A rank that has no part of anything here has nothing to do. */
  const char *l = f->count > 1 && !speaks_of(code.text, locals, "l") ? "  (void)l;\n" : "";
  const char *t = takes_step(f) && !speaks_of(code.text, locals, "t") ? "  (void)t;\n" : "";
  const char *range = options.cuda ? text("  const range shown(\"%s\");\n", f->name) : "";
  put(&b, "static void %s(%s)\n{\n%s%s%s%s%s}\n\n", f->name, function_parameters(f), range, locals,
      l, t, body.text);
  return b.text;
}

/* Calls the functions of some phases, in order; `t`: how the number of the step, or of the batch,
   is told. */
static void put_phases(struct buffer *b, enum phase from, enum phase to, const char *t, int indent)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f) || f->phase < from || f->phase > to) continue;
    put(b, "%*s%s(%s);\n", indent, "", f->name, takes_step(f) ? t : "");
  }
}

/* "memset(&m->grad, 0, sizeof m->grad);" */
static void put_zero(struct buffer *b, const char *what)
{
  const char *form = options.cuda ? "  CHECK_CUDA(cudaMemsetAsync(&%s, 0, sizeof %s, stream));\n"
                                  : "  memset(&%s, 0, sizeof %s);\n";
  put(b, form, what, what);
}

/* A step of several batches: their mean loss and gradients are added up, then there is an
   update. */
static void put_batches(struct buffer *b)
{
  int n = graph->accumulate;
  if (has_some_of(GRADIENT)) put_zero(b, "m->grad");
  if (has_some_of(SUMS)) put_zero(b, "m->sum");
  put_zero(b, "m->loss");
  put_phases(b, GATHER, GATHER, "t", 2);
  if (options.cuda)
    put(b, "  for (int i = 0; i < %d; i++) {\n", n);
  else
    put(b, "  for (int i = %d * (t - 1); i < %d * t; i++) {\n", n, n);
  if (keeps_batches() && has_some_of(BATCH))
    put(b, "    CHECK_CUDA(cudaMemcpyAsync(&m->batch, &m->batches[i], sizeof m->batch,\n"
           "                               cudaMemcpyDeviceToDevice, stream));\n");
  else if (reads_tokens() && !options.cuda)
    put(b, "    next_batch(i);\n");
  put_phases(b, FORWARD, BACKWARD, options.cuda ? batch_number() : "i + 1", 4);
  put(b, "  }\n");
  put_phases(b, UPDATE, UPDATE, "t", 2);
}

static char *functions_text(int rank)
{
  struct buffer b = {0}, step = {0};
  forget_products();
  statement = alloc((size_t)(graph->nop + 1) * sizeof *statement);
  for (int others = 0; others < 2; others++) /* a part comes before the body that calls it */
    for (int i = 0; i < graph->nfunction; i++)
      if (graph->function[i].is_part != others && !is_await_alone(&graph->function[i]))
        put(&b, "%s", function_text(&graph->function[i], rank));
  put_text(&step, "", 0);
  if (graph->accumulate > 1) {
    put_batches(&step);
  } else {
    if (reads_tokens() && !options.cuda) put(&step, "  next_batch(t - 1);\n");
    put_phases(&step, FORWARD, UPDATE, options.cuda ? batch_number() : "t", 2);
  }
  const char *unused = options.cuda || has_word(step.text, "t") ? "" : "  (void)t;\n";
  put(&b, "%sstatic void step(%s)\n{\n%s%s}\n", prepare_text(), options.cuda ? "void" : "int t",
      step.text, unused);
  return b.text;
}

/* ----------------------------------------------------------------------------- table of tensors */

/* "m->w.layers[31].wq" for "m->w.layers[0].wq": how much of the first stands before the number; 0
   where it is no such thing. */
static size_t before_number(const char *first, const char *at, int number)
{
  size_t n = 0;
  char *rest;
  while (first[n] && first[n] == at[n]) n++;
  if (!n || first[n - 1] != '[' || first[n] != '0') return 0;
  return strtol(at + n, &rest, 10) == number && !strcmp(rest, first + n + 1) ? n : 0;
}

/* Whether the value lies in memory behind the family's others, as they lie behind each other. */
static bool lies_behind(const struct family *f, int value)
{
  const char *first = c_name(f->member.at[0]), *at = c_name(value);
  if (!same_tensor(f->member.at[0], value) || !alias_goes_on(f, value)) return false;
  return first && at ? before_number(first, at, f->member.n) > 0 : first == at;
}

/* What the runtime fills, reads and writes, in this order, of the class of ranks whose names are
   known. */
static struct families find_tensors(void)
{
  int n = 0, *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  static const enum role order[] = {PARAMETER, STATE, BATCH, ACTIVATION};
  for (size_t k = 0; k < sizeof order / sizeof *order; k++)
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role == order[k] && (v->role != ACTIVATION || v->is_output)) list[n++] = i;
    }
  return find_families(n, list, lies_behind);
}

/* A name as it stands in files, as a C string: bytes that are not plain are escaped. */
static char *string_text(const char *s)
{
  struct buffer b = {0};
  put(&b, "\"");
  for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
    bool plain = *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\' && *c != '?';
    if (plain)
      put_text(&b, (const char *)c, 1);
    else
      put(&b, "\\%03o", *c);
  }
  put(&b, "\"");
  return b.text;
}

static char *sizes_text(struct shape s)
{
  struct buffer b = {0};
  for (int d = 0; d < s.ndim; d++) put(&b, "%s%" PRId64, d ? ", " : "", s.size[d]);
  if (!s.ndim) put(&b, "1");
  return b.text;
}

static char *name_text(const char *name, const char *rest)
{
  return text("{%s, %s}", string_text(name), rest ? string_text(rest) : "NULL");
}

static char *alias_text(const struct family *f)
{
  const char *name, *rest;
  family_alias(f, &name, &rest);
  return name ? name_text(name, rest) : copy_text("{NULL, NULL}");
}

/* Where the family begins in memory, and how far it is from one to the next. */
static char *tensor_place_text(const struct family *f)
{
  const char *first = c_name(f->member.at[0]), *member = first ? first + strlen("m->") : NULL;
  if (!first) return "0, 0";
  if (!f->rest) return text("offsetof(struct memory, %s), 0", member);
  int n = (int)before_number(first, c_name(f->member.at[1]), 1);
  return text("offsetof(struct memory, %s), sizeof %.*s0]", member, n, first);
}

/* A row of the table, broken behind commas, but within no name: those have their quotes escaped. */
static const char *row_lines(char *row)
{
  bool named = false;
  for (char *c = row; *c; c++) {
    if (*c == '"') named = !named;
    if (named && *c == ' ') *c = KEPT_BLANK;
  }
  return wrapped(row, ", ", "     ");
}

static char *tensors_text(const struct families *tensors, int rank)
{
  static const char *const role[] = {
      [PARAMETER] = "PARAMETER", [STATE] = "STATE", [BATCH] = "BATCH", [ACTIVATION] = "OUTPUT"};
  static const char *const type[] = {
      [F32] = "F32", [BF16] = "BF16", [I32] = "I32", [I64] = "I64", [BOOL] = "BOOL"};
  static const char *const how[] = {[INIT_CONSTANT] = "CONSTANT",
                                    [INIT_UNIFORM] = "UNIFORM",
                                    [INIT_NORMAL] = "NORMAL",
                                    [INIT_TOKENS] = "TOKENS"};
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < tensors->n; i++) {
    const struct family *f = &tensors->at[i];
    const struct value *v = &graph->value[f->member.at[0]];
    struct shape here = local_shape(f->member.at[0], rank);
    char *names = text("    {%s, %s, %d, %s, %s,", name_text(f->name, f->rest), alias_text(f),
                       f->member.n, role[v->role], type[v->type]);
    put(&b, "%s\n%s\n", row_lines(names), row_lines(text("     %s,", tensor_place_text(f))));
    put(&b, "     %d, {%s}, {%s}, {%s, %.17g, %.17g}},\n", here.ndim, sizes_text(v->shape),
        sizes_text(here), how[v->init.kind], v->init.a, v->init.b);
  }
  return b.text;
}

/* Which of the tensors the value is. */
static int row_of_tensor(const struct families *tensors, int value)
{
  for (int i = 0; i < tensors->n; i++)
    if (tensors->at[i].member.at[0] == value) return i;
  return NONE;
}

static char *index_uses_text(const struct families *tensors)
{
  struct buffer b = {0};
  if (!graph->nindex_use) return "";
  put(&b,
      "// Whole numbers that are used as indices, and that may be out of range:\n"
      "// by what, its line of the plan, below what they must be, which other one is ignored;\n"
      "// the input that they are of, or -1: the step computes them; which part of that it is.\n"
      "static const struct index_use index_uses[] = {\n");
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *use = &graph->index_use[i];
    struct shape first = {.ndim = use->part.ndim};
    memcpy(first.size, use->first, sizeof first.size);
    char *ignored = use->ignores ? text("true, %" PRId64, use->ignored) : "false, 0";
    bool of_input = use->input != NONE;
    put(&b, "%s\n",
        row_lines(text(
            "    {%s, %d, %" PRId64 ", %s, %d, {%s}, {%s}},", string_text(use->what), use->line,
            use->below, ignored, of_input ? row_of_tensor(tensors, use->input) : NONE,
            of_input ? sizes_text(first) : "0", of_input ? sizes_text(use->part) : "0")));
  }
  put(&b, "};\n\n");
  return b.text;
}

/* ------------------------------------------------------------------------------- the rank files */

static char *members_text(int rank)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  int *member = alloc((size_t)world_size() * sizeof *member);
  for (int g = 0; g < graph->ngroup; g++) {
    struct buffer list = {0};
    put(&list, "static const int %s[] = {", group_name(g));
    int n = group_members(g, rank, member);
    for (int i = 0; i < n; i++) put(&list, "%d, ", member[i]);
    put(&list, "-1};");
    put(&b, "%s\n", wrapped(list.text, ", ", "    "));
  }
  put(&b, "static const int *const members[] = {");
  for (int g = 0; g < graph->ngroup; g++) put(&b, "%s, ", group_name(g));
  put(&b, "NULL};");
  return b.text;
}

static char *coordinate_text(int rank)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++) put(&b, "%s%d", d ? ", " : "", coordinate[d]);
  return b.text;
}

static char *mesh_names(void)
{
  struct buffer b = {0};
  for (int d = 0; d < graph->mesh.ndim; d++)
    put(&b, "%s%s", d ? ", " : "", printable(graph->mesh.name[d]));
  return b.text;
}

/* The first rank, of those that hold the same part, is the one that writes it. */
static bool owns(int value, int rank)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  for (int d = 0; d < graph->mesh.ndim; d++)
    if (graph->value[value].layout.on[d].kind != SHARD && coordinate[d]) return false;
  return elements(local_shape(value, rank)) > 0;
}

/* `step`: the file of the program; `shown`: the tensors' names as comments have them. */
static char *rank_text(int rank, const char *step, const struct families *tensors,
                       const char *const *shown)
{
  int coordinate[MAX_MESH];
  coordinate_of(rank, coordinate);
  enum { OWNS_IN_A_ROW = 32 };
  struct buffer first = {0}, own = {0};
  for (int i = 0; i < tensors->n; i++) {
    int value = tensors->at[i].member.at[0];
    const struct value *v = &graph->value[value];
    struct part p = local_part(&graph->mesh, v->shape, v->layout, coordinate);
    struct shape at = {.ndim = v->shape.ndim};
    memcpy(at.size, p.first, sizeof at.size);
    if (!at.ndim) at = (struct shape){.ndim = 1};
    put(&first, "    %-14s // %s\n", text("{%s},", sizes_text(at)), shown[i]);
    const char *row_end = i % OWNS_IN_A_ROW ? " " : "\n    ";
    put(&own, "%s%d", !i ? "" : text(",%s", row_end), owns(value, rank));
  }
  if (tensors->n > OWNS_IN_A_ROW) own.text = text("\n    %s,\n", own.text);
  if (!tensors->n) put(&first, "    {0},\n"), put(&own, "0");
  return fill(embedded_text("templates/rank.c"), "version", TPGEN_VERSION, "plan", plan_shown(),
              "hash", graph->hash, "rank", text("%d", rank), "step", step, "coordinate",
              coordinate_text(rank), "mesh", mesh_names(), "members", members_text(rank), "first",
              first.text, "owns", own.text, "exchanges", exchanges_text(rank), "exchange",
              graph->nexchange ? "exchange" : "NULL", NULL);
}

/* ------------------------------------------------------------------------------- the step files */

/* "static cudaStream_t dp_stream, tp_stream;": those that anything runs on, and the events. */
static void declare_streams(struct buffer *b)
{
  bool any = false;
  for (int g = 0; g < graph->ngroup; g++) {
    if (!has_stream(g)) continue;
    put(b, "%s%s", any ? ", " : "static cudaStream_t ", stream_name(g));
    any = true;
  }
  if (any) put(b, "; // for what runs beside arithmetic\n");
  if (graph->schedule->nevent)
    put(b, "static cudaEvent_t done[%d]; // what is pending there\n", graph->schedule->nevent);
}

static char *communicators_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int g = 0; g < graph->ngroup; g++)
    put(&b, "%s%s", g ? ", " : "static communicator ", group_name(g));
  const char *list = wrapped(text("%s;", b.text), ", ", "    ");
  b = (struct buffer){0};
  put_text(&b, "", 0);
  if (graph->ngroup) put(&b, "// The runtime makes them from the members in rank<N>.\n%s\n", list);
  if (options.cuda) declare_streams(&b);
  return b.text;
}

static char *groups_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int g = 0; g < graph->ngroup; g++) {
    const char *stream = has_stream(g) ? text("&%s", stream_name(g)) : "NULL";
    put(&b, "    {%s, &%s%s%s},\n", string_text(graph->group[g].name), group_name(g),
        options.cuda ? ", " : "", options.cuda ? stream : "");
  }
  if (!graph->ngroup) put(&b, "    {0%s},\n", options.cuda ? ", 0, 0" : ", 0");
  return b.text;
}

static char *ranks_text(const int *class_of, int mine)
{
  struct buffer b = {0};
  int world = world_size();
  for (int r = 0; r < world; r++) {
    if (class_of[r] != mine) continue;
    int last = r;
    while (last + 1 < world && class_of[last + 1] == mine) last++;
    put(&b, "%s%d", b.length ? ", " : "", r);
    if (last > r) put(&b, "-%d", last);
    r = last;
  }
  return b.text;
}

static const char *const arithmetic_name[] = {
    [IN_FLOAT32] = "FLOAT32", [IN_TFLOAT32] = "TFLOAT32", [IN_BFLOAT16] = "BFLOAT16"};

/* What the runtime is told of the program, and what it needs for CUDA alone. */
static char *program_text(const struct families *families, const char *tensors)
{
  bool cuda = options.cuda;
  const char *products = text("const struct products products = {\n%s};\n\n", product_list());
  const char *prepare = text("    .prepare = %s,\n", *prepare_text() ? "prepare" : "NULL");
  const char *events = text("    .events = %s,\n    .nevents = %d,\n",
                            graph->schedule->nevent ? "done" : "NULL", graph->schedule->nevent);
  return fill(embedded_text("templates/step_program.c"), "hash", graph->hash, "tensors", tensors,
              "ntensors", text("%d", families->n), "index_uses", index_uses_text(families),
              "index_list", graph->nindex_use ? "index_uses" : "NULL", "nindex_uses",
              text("%d", graph->nindex_use), "noted",
              notes_indices() ? "offsetof(struct memory, noted)" : "-1", "groups", groups_text(),
              "ngroups", text("%d", graph->ngroup), "products", cuda ? products : "", "prepare",
              cuda ? prepare : "", "events", cuda ? events : "", "world", text("%d", world_size()),
              "seed", text("%" PRIu64 "u", graph->seed), "steps", text("%d", graph->steps),
              "batches", text("%d", reads_tokens() ? graph->accumulate : 0), "flops",
              double_text(step_flops()), "arithmetic", arithmetic_name[step_arithmetic()], "rate",
              graph->loss == NONE ? "NULL" : "learning_rate", "loss",
              graph->loss == NONE ? "-1" : "offsetof(struct memory, loss)", "norm",
              graph->norm == NONE ? "-1" : "offsetof(struct memory, grad_norm)", NULL);
}

/* The end of a step file's head: what the program has for numbers that are used as indices. */
static const char *indices_legend(void)
{
  if (!graph->nindex_use) return "";
  const char *inputs =
      "index_uses[], near the end, lists the numbers that are used as indices, and "
      "what they must be below. Those of an input the runtime checks as it is read.";
  const char *computed =
      " Those that the step computes are checked by the kernels that use them: "
      "noted[], in struct memory, has a place for each of index_uses[], which is "
      "0 as long as all were right.";
  return text("\n//\n%s",
              wrapped(text("// %s%s", inputs, notes_indices() ? computed : ""), " ", "// "));
}

static char *step_text(int rank, const char *ranks, const struct families *tensors)
{
  char *rows = tensors_text(tensors, rank); /* while names are those of no function */
  char *functions = functions_text(rank);
  if (clashes_with_kernels()) functions = functions_text(rank);
  char *head = fill(embedded_text("templates/step_head.c"), "version", TPGEN_VERSION, "plan",
                    plan_shown(), "hash", graph->hash, "summary", summary_text(rank), "ranks",
                    ranks, "indices", indices_legend(), NULL);
  char *body = fill(embedded_text(options.cuda ? "templates/step.cu" : "templates/step.c"),
                    "memory", memory_declaration(), "communicators", communicators_text(),
                    "functions", functions, "products", product_table(), "learning_rate",
                    graph->loss == NONE ? "" : text("%s\n", learning_rate_text()), NULL);
  return text("%s%s%s", head, body, program_text(tensors, rows));
}

/* The shapes and layouts that occur, each once: what is cut alike on a rank is cut alike there. */
static int *distinct, ndistinct;

static void find_distinct(void)
{
  struct memo memo = {0};
  struct query q = {0};
  distinct = alloc((size_t)(graph->nvalue + 1) * sizeof *distinct);
  for (int i = 0; i < graph->nvalue; i++) {
    begin_query(&q);
    ask_value(&q, &graph->value[i]);
    ask_layout(&q, &graph->value[i].layout);
    if (number_of_query(&memo, &q) == ndistinct) distinct[ndistinct++] = i;
  }
}

/* What the rank moves in a function, but in exchanges: what it gives there stands in its own
   file. */
static uint64_t hash_issued(uint64_t h, const struct function *f, int rank)
{
  struct sequence s = issued_by(f->op, f->nop, rank);
  for (int i = 0; i < s.n; i++) {
    if (s.issue[i].kind == OP_exchange) continue;
    size_t bytes = (size_t)group_size(s.issue[i].group) * sizeof(int64_t);
    h = hash_bytes(hash_bytes(h, s.issue[i].give, bytes), s.issue[i].get, bytes);
    h = hash_bytes(h, &s.issue[i].equal, sizeof s.issue[i].equal);
  }
  return h;
}

/* What decides the text of a rank's step: the shapes of all its parts and of those that it
   moves. */
static uint64_t signature(int rank)
{
  uint64_t h = HASH_START;
  for (int i = 0; i < ndistinct; i++) {
    struct shape here = local_shape(distinct[i], rank);
    h = hash_bytes(h, here.size, (size_t)here.ndim * sizeof *here.size);
  }
  for (int i = 0; i < graph->nfunction; i++) h = hash_issued(h, &graph->function[i], rank);
  return h;
}

static char *step_name(int class)
{
  return class ? text("step_%d", class) : copy_text("step");
}

static void add_text(const char *name, const char *contents)
{
  add_file(name, contents, strlen(contents), false);
}

/* Whether there is a product that is worth loading oneDNN for: it takes a hundredth of a second,
   and some MiB. */
static bool multiplies_by_onednn(void)
{
  const double worth_it = 256. * 256 * 256;
  for (int i = 0; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    if (op->kind != OP_matmul) continue;
    if (graph->value[op->in[0]].type == BF16 || multiplications(op) >= worth_it) return true;
  }
  return false;
}

/* What is the other target's stays behind; so does what multiplies by oneDNN where nothing does. */
static void add_runtime(void)
{
  const char *other = options.cuda ? "runtime/cpu" : "runtime/cuda";
  bool onednn = multiplies_by_onednn();
  for (const struct embedded *e = embedded; e->name; e++) {
    if (strncmp(e->name, "runtime/", 8) || !strncmp(e->name, other, strlen(other))) continue;
    if (onednn || strcmp(e->name, "runtime/cpu_onednn.c"))
      add_file(e->name, (const char *)e->text, e->size, false);
  }
}

static void add_kernels(const char *suffix)
{
  char *common[] = {"version", TPGEN_VERSION,         "plan", copy_text(plan_shown()),
                    "hash",    copy_text(graph->hash)};
  const char *c = embedded_text(text("templates/kernels.%s", suffix));
  const char *h = embedded_text(options.cuda ? "templates/kernels.cuh" : "templates/kernels.h");
  add_text(text("kernels.%s", suffix),
           fill(c, common[0], common[1], common[2], common[3], common[4], common[5], "kernels",
                kernel_definitions(), "plan_string", string_text(plan_shown()), NULL));
  add_text("kernels.h", fill(h, common[0], common[1], common[2], common[3], common[4], common[5],
                             "includes", kernel_includes(), "constants", constants_text(),
                             "prototypes", kernel_prototypes(), NULL));
}

static void add_launcher(const char *ranks)
{
  char *world = text("%d", world_size());
  const char *cmake =
      options.cuda ? "templates/CMakeLists.cuda.txt" : "templates/CMakeLists.cpu.txt";
  add_text("CMakeLists.txt", fill(embedded_text(cmake), "plan", plan_shown(), "hash", graph->hash,
                                  "ranks", ranks, "world", world, NULL));
  char *run = fill(embedded_text("templates/run.sh"), "plan", plan_shown(), "world", world, "hash",
                   graph->hash, NULL);
  add_file("run.sh", run, strlen(run), true);
}

/* The files of a class of ranks: its step, and its ranks'. */
static void add_class(int class, int first, const int *class_of)
{
  const char *suffix = options.cuda ? "cu" : "c";
  const char *step = text("%s.%s", step_name(class), suffix);
  name_values(first);
  struct families tensors = find_tensors();
  const char **shown = alloc((size_t)(tensors.n + 1) * sizeof *shown);
  for (int i = 0; i < tensors.n; i++) shown[i] = printable(family_text(&tensors.at[i]));
  for (int r = 0; r < world_size(); r++)
    if (class_of[r] == class)
      add_text(text("rank%d.%s", r, suffix), rank_text(r, step, &tensors, shown));
  add_text(step, step_text(first, ranks_text(class_of, class), &tensors));
  if (options.cuda) check_issued(first, statement);
}

/* Uneven ranks have programs of their own. How many of these there is room for, the first few tell.
 */
static void add_classes(int n, const int *first_of, const int *class_of)
{
  enum { FEW = 8 };
  size_t before = arena_used();
  for (int c = 0; c < n; c++) {
    add_class(c, first_of[c], class_of);
    double each = (double)(arena_used() - before) / (c + 1), all = (double)before + each * n;
    if (c + 1 == FEW && all > (double)arena_room())
      plan_error(0,
                 "the ranks differ, and have %d programs, for which there is no room: %zu MiB hold "
                 "some %.0f; say which to write, as in --ranks 0-7",
                 n, arena_room() >> 20, ((double)arena_room() - (double)before) / each);
  }
}

/* "0:step 1:step_1": which step is each rank's. */
static char *programs_text(const int *class_of)
{
  struct buffer b = {0};
  for (int r = 0; r < world_size(); r++)
    if (class_of[r] != NONE) put(&b, "%s%d:%s", b.length ? " " : "", r, step_name(class_of[r]));
  return b.text;
}

void emit(void)
{
  const char *suffix = options.cuda ? "cu" : "c";
  int world = world_size(), nclass = 0;
  find_distinct();
  int *class_of = alloc((size_t)world * sizeof *class_of);
  int *first_of = alloc((size_t)world * sizeof *first_of);
  uint64_t *seen = alloc((size_t)world * sizeof *seen);
  for (int r = 0; r < world; r++) {
    class_of[r] = NONE;
    if (r < options.first_rank || r > options.last_rank) continue;
    uint64_t mine = signature(r);
    int class = 0;
    while (class < nclass && seen[class] != mine) class ++;
    if (class == nclass) first_of[nclass++] = r;
    seen[class] = mine;
    class_of[r] = class;
  }
  add_classes(nclass, first_of, class_of);
  add_kernels(suffix);
  struct buffer plan = {0}, json = {0};
  report_text(&plan);
  report_json(&json);
  add_text("plan.txt", plan.text);
  add_text("plan.json", json.text);
  add_trace();
  add_launcher(programs_text(class_of));
  add_runtime();
}
