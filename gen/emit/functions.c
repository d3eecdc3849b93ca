/* functions.c: the functions of a step: one for each phase, and one for each loop body; and `step`,
   which calls them. */
#include "emit/emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* By size of micro-batches and operation, its statement in the functions that were written last. */
static const char ***statements_of;
static const char **statement; /* of the size that is written */

const char *const *statements(int size)
{
  return statements_of[size];
}

static char *stated(int op, int rank)
{
  char *does = statement_text(&graph->op[op], rank);
  statement[op] = does;
  return does;
}

/* Whether a part only awaits a collective: then it gets no function. */
static bool is_await_alone(const struct function *f)
{
  if (!f->is_part || f->nop != 1) return false;
  const struct op *op = &graph->op[f->op[0]];
  return op->kind == OP_await && !awaits_copies(op);
}

/* A phase before the forward has no operations if kernels have absorbed them all: it gets no
   function. */
static bool is_nothing(const struct function *f)
{
  return !f->nop && is_phase(f) &&
         (f->phase == GATHER || f->phase == CONSTANTS || f->phase == COUNT);
}

static char *loop_text(const struct function *f)
{
  const char *from = f->upward ? "0" : text("%d", f->count - 1);
  const char *next = f->upward ? text("l < %d; l++", f->count) : "l >= 0; l--";
  return text("for (int l = %s; %s) %s(l%s);", from, next, function_name(f),
              takes_step(f) ? ", t" : "");
}

/* "if (l < 3) layers_forward_ahead(l + 1);", or the part's only statement, if it is the same for
   every module: "if (l < 3) await(done[0]);". */
static char *iteration_text(const struct op *op, int rank)
{
  const struct function *f = &graph->function[op->function], *body = &graph->function[f->body];
  if (op->iteration == IN_LAST_ITERATION)
    return text("if (l == %d) %s();", body->upward ? body->count - 1 : 0, function_name(f));
  bool next = op->iteration == NEXT_ITERATION, above = next == f->upward;
  int far = next ? op->ahead : 1;
  const char *limit = above ? text("l < %d", f->count - far) : text("l > %d", far - 1);
  bool outside = op->iteration == FIRST_ITERATION || op->iteration == LAST_ITERATION;
  const char *module = outside ? text("%d", module_of_iteration(f, iteration_called(op, 0)))
                               : text("l %s %d", above ? "+" : "-", far);
  char *call = text("%s(%s%s);", function_name(f), module, takes_step(f) ? ", t" : "");
  if (is_await_alone(f)) call = stated(f->op[0], rank);
  return outside || !*call ? call : text("if (%s) %s", limit, call);
}

static const char *function_parameters(const struct function *f)
{
  const char *t = target_syntax()->step_parameter;
  if (f->count > 1) return takes_step(f) ? text("int l, %s", t) : "int l";
  return takes_step(f) ? t : "void";
}

/* A statement, with each long line broken. */
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

/* The lines, indented by `by` more spaces. */
static char *indented(const char *lines, int by)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  while (*lines) {
    size_t n = strcspn(lines, "\n");
    if (n) put(&b, "%*s%.*s", by, "", (int)n, lines);
    lines += n;
    if (*lines) put_text(&b, lines++, 1);
  }
  return b.text;
}

/* The path of the list whose modules the loop goes through, or NULL. */
static const char *list_of_functions(const struct function *f)
{
  const struct function *loop = f->is_part ? &graph->function[f->body] : f;
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_loop && &graph->function[graph->op[i].function] == loop)
      return graph->module[graph->op[i].module].path;
  return NULL;
}

/* CHECK_FINITE(relu, 320, l, "layers.*.relu", 14); for each value in memory that the preceding
   statement makes. */
static char *checks_text(const struct function *f, const struct op *op, int rank)
{
  struct buffer b = {0};
  int *made = alloc((size_t)op_width(op) * sizeof *made), n = op_writes(op, made);
  put_text(&b, "", 0);
  if (op->why || is_update(op) || is_collective(op->kind)) return b.text;
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[made[i]];
    const char *at = c_name(made[i]);
    const int64_t count = elements(local_shape(made[i], rank));
    if (!at || count == 0 || (v->type != F32 && v->type != BF16)) continue;
    /* "layers.*.attention.wq", or "norm" without a loop around it: the name of a statement's
     * result. */
    int value = made[i];
    const char *list = f->count > 1 ? list_of_functions(f) : NULL, *name = local_name(value);
    put(&b, "\n  CHECK_FINITE(%s, %" PRId64 ", %s, %s, %d);", at, count, f->count > 1 ? "l" : "0",
        string_text(list ? text("%s%s*.%s", list, *list ? "." : "", name) : name), op->line);
  }
  return b.text;
}

static char *function_text(const struct function *f, int rank)
{
  struct buffer body = {0}, code = {0};
  put_text(&body, "", 0);
  put_text(&code, "", 0);
  name_locals(f);
  size_t numbers_at = SIZE_MAX; /* where the numbers of the step are declared */
  bool is_guarded = false;      /* the text is in the block of the last batch */
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    char *does = op->kind == OP_loop        ? loop_text(&graph->function[op->function])
                 : op->kind == OP_iteration ? iteration_text(op, rank)
                                            : stated(f->op[k], rank);
    if (!*does) continue;
    if (options.check_finite) does = text("%s%s", does, checks_text(f, op, rank));
    if (takes_numbers(op) && numbers_at == SIZE_MAX && !target->steps_in_memory)
      numbers_at = body.length;
    char *declared = local_declarations(does);
    /* Declarations stay outside of the block: an await of the block after this one reads them. */
    const bool opens = op->last_batch && (!is_guarded || *declared);
    char *comment = comment_lines(comment_text(op), 2), *lines = statement_lines(does);
    if (is_guarded && (opens || !op->last_batch)) put(&body, "  }\n");
    put(&body, "%s", body.length ? "\n" : "");
    is_guarded = op->last_batch;
    if (is_guarded)
      put(&body, "%s%s%s%s", declared, opens ? "  if (in_last_batch) {\n" : "",
          indented(comment, 2), indented(lines, 2));
    else
      put(&body, "%s%s%s", comment, declared, lines);
    put(&code, "%s%s\n", declared, does);
  }
  if (is_guarded) put(&body, "  }\n");
  if (numbers_at != SIZE_MAX) {
    /* The numbers of the step that the function's code has, in its text at that place. */
    char *numbers = update_constants(code.text), *after = copy_text(body.text + numbers_at);
    if (*numbers) {
      body.text[numbers_at] = 0;
      body.length = numbers_at;
      put(&body, "%s%s%s%s", numbers_at ? "\n" : "", numbers, numbers_at ? "" : "\n", after);
      put(&code, "%s", numbers);
    }
  }
  /* A rank that has no part of any operand has nothing to do. */
  const char *l = f->count > 1 && !has_word(code.text, "l") ? "  (void)l;\n" : "";
  const char *t = takes_step(f) && !has_word(code.text, "t") ? "  (void)t;\n" : "";
  const char *range = fill(target_syntax()->open_function, "name", function_name(f), NULL);
  char *sent = awaits_sent_text(f, rank);
  const char *whose =
      graph->mesh.now
          ? text("// For micro-batches from %d on, which are smaller.\n", graph->mesh.now)
          : "";
  return text("%s%sstatic void %s(%s)\n{\n%s%s%s%s%s%s}\n\n", part_comment(f), whose,
              function_name(f), function_parameters(f), range, l, t, sent, *sent ? "\n" : "",
              body.text);
}

/* Calls the functions of some phases, in order; `t`: the text for the number of the step, or of
   the batch. */
static void put_phases(struct buffer *b, enum phase from, enum phase to, const char *t, int indent)
{
  for (int i = 0; i < graph->nfunction; i++) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f) || is_nothing(f) || f->phase < from || f->phase > to) continue;
    put(b, "%*s%s(%s);\n", indent, "", function_name(f), takes_step(f) ? t : "");
  }
}

/* "memset(&m->grad, 0, sizeof m->grad);" */
static void put_zero(struct buffer *b, const char *what)
{
  put(b, "%s", fill(target_syntax()->zero_member, "member", what, NULL));
}

static const char *is_last_batch(void)
{
  const int n = plan_options->accumulate;
  return fill(target_syntax()->is_last_batch, "n", text("%d", n), "last", text("%d", n - 1), NULL);
}

/* The phases for each micro-batch: a loop for each size. */
static void put_microbatches(struct buffer *b, enum phase from, enum phase to, const char *t)
{
  for (int size = NONE; next_size(sizes_of_step(), &size);) {
    const int end = size + 1 < sizes_of_step()->n ? sizes_of_step()->at[size + 1] : microbatches();
    put(b, "  for (microbatch = %d; microbatch < %d; microbatch++) {\n", graph->mesh.now, end);
    if (to == BACKWARD && step_has(is_of_last_batch))
      put(b, "    in_last_batch = microbatch == %d%s;\n", microbatches() - 1,
          plan_options->accumulate > 1 ? text(" && %s", is_last_batch()) : "");
    put_phases(b, from, to, t, 4);
    put(b, "  }\n");
  }
}

/* The head of the loop over a step's batches, and its first statements. */
static void open_loop(struct buffer *b)
{
  put(b, "  %s\n", fill(target_syntax()->batches, "n", text("%d", plan_options->accumulate), NULL));
  if (keeps_batches() && has_some_of(BATCH))
    put(b, "    %s",
        fill(target_syntax()->copy_member, "to", "m->batch", "from", "m->batches[i]", "batch",
             "m->batch", NULL));
  else if (takes_batches() && !target->steps_in_memory)
    put(b, "    next_batch(i);\n");
}

static bool has_phase(enum phase phase)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (is_phase(&graph->function[i]) && graph->function[i].phase == phase) return true;
  return false;
}

/* The inputs of a later batch are read at once, like those of a step of one batch. */
static void put_next_batch(struct buffer *b)
{
  if (takes_batches() && !target->steps_in_memory) put(b, "  next_batch(t - 1);\n");
}

/* The work of a batch: all actions of a pipeline, or the forward and the backward. */
static char *batch_text(int indent)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (gathers_each_batch()) put_phases(&b, GATHER, GATHER, "t", 2);
  if (graph->stages)
    put(&b, "%s", actions_text());
  else if (microbatches() > 1)
    put_microbatches(&b, FORWARD, BACKWARD, batch_number());
  else
    put_phases(&b, FORWARD, BACKWARD, batch_number(), 2);
  return indented(b.text, indent);
}

bool ends_early(void)
{
  return graph->loss != NONE && !target->streams && has_row_bounds();
}

static void put_update_function(struct buffer *b, const char *t)
{
  if (ends_early()) put(b, "  if (!all_rows_have_room()) return;\n");
  put_phases(b, UPDATE, UPDATE, t, 2);
}

/* A step of several batches accumulates the mean loss and the gradients, then runs an update. */
static void put_batches(struct buffer *b)
{
  const bool loops = plan_options->accumulate > 1;
  if (!loops) put_next_batch(b);
  if (has_some_of(GRADIENT)) put_zero(b, "m->grad");
  if (has_some_of(SUMS)) put_zero(b, "m->sum");
  put_zero(b, "m->loss");
  if (has_phase(COUNT)) {
    open_loop(b);
    put_phases(b, COUNT, COUNT, batch_number(), 4);
    put(b, "  }\n");
  }
  if (!gathers_each_batch()) put_phases(b, GATHER, GATHER, "t", 2);
  if (loops) open_loop(b);
  if (loops && microbatches() == 1 && step_has(is_of_last_batch))
    put(b, "    in_last_batch = %s;\n", is_last_batch());
  put(b, "%s", batch_text(loops ? 2 : 0));
  if (loops) put(b, "  }\n");
  put_update_function(b, "t");
  bool sends_in_update = false;
  for (int i = 0; i < graph->nfunction && !sends_in_update; i++)
    for (int k = 0; k < graph->function[i].nop && !sends_in_update; k++) {
      const struct op *op = &graph->op[graph->function[i].op[k]];
      sends_in_update = op->kind == OP_send && op->phase == UPDATE;
    }
  if (sends_in_update) put(b, "%s", awaits_all_sent_text());
}

/* Whether the operation, or one in it, makes the value. */
static bool function_makes(const struct op *op, int value)
{
  if (op->out != NONE && value >= op->out && value < op->out + op->nout) return true;
  for (int k = 0; k < op->nbody; k++)
    if (function_makes(&graph->op[op->body[k]], value)) return true;
  return false;
}

bool can_validate(void)
{
  if (graph->stages) return graph->loss != NONE;
  for (int i = 0; i < graph->nfunction && graph->loss != NONE; i++) {
    const struct function *f = &graph->function[i];
    for (int k = 0; k < f->nop && is_phase(f) && f->phase == FORWARD; k++)
      if (function_makes(&graph->op[f->op[k]], graph->loss)) return true;
  }
  return false;
}

/* The number of the step in a validation's forward, as the target writes it: 0. */
static const char *step_of_validation(void)
{
  if (!target->steps_in_memory) return "0";
  return plan_options->accumulate > 1 ? "m->now.batch" : batch_number();
}

/* Whether the operation, or one in it, makes a value that is needed; then the values that it reads
   are needed too. Other members of a bucket may serve another purpose, as may the first one, whose
   values identify the bucket. */
static bool is_needed_in_step(const struct op *op, bool *needed)
{
  bool of_body = false;
  for (int k = op->nbody; k-- > 0;) of_body |= is_needed_in_step(&graph->op[op->body[k]], needed);
  bool own = of_body && op->out == NONE;
  for (int k = 0; op->out != NONE && k < op->nout; k++) own |= needed[op->out + k];
  for (int k = 0; own && k < op->nin; k++) needed[op->in[k]] = true;
  return own || of_body;
}

/* The part of the update that serves the loss, the number of its labels, and metrics: the sums over
   ranks that make them whole, and the values that are made of these. */
static char *loss_in_update_text(int rank)
{
  struct buffer b = {0};
  bool *needed = alloc((size_t)(graph->nvalue + 1) * sizeof *needed);
  put_text(&b, "", 0);
  needed[graph->loss] = true;
  for (int i = 0; i < graph->nvalue; i++) needed[i] |= graph->value[i].is_output;
  for (int i = graph->nfunction; i-- > 0;) {
    const struct function *f = &graph->function[i];
    if (!is_phase(f) || f->phase != UPDATE) continue;
    struct list ops = {0};
    for (int k = f->nop; k-- > 0;) {
      const struct op *op = &graph->op[f->op[k]];
      const struct op *made = op->kind == OP_await ? &graph->op[op->awaits] : op;
      if (is_needed_in_step(made, needed)) add(&ops, f->op[k]);
    }
    name_locals(f);
    for (int k = ops.n; k-- > 0;) {
      const char *does = stated(ops.at[k], rank);
      if (*does) put(&b, "%s%s", local_declarations(does), statement_lines(does));
    }
  }
  return b.text;
}

/* Only the forward. In a step of several batches it adds the loss of the one batch to 0. */
static char *validate_text(int rank)
{
  struct buffer b = {0};
  if (!can_validate()) return "";
  if (step_has(knows_step) && target->steps_in_memory) put_zero(&b, "m->now");
  if (adds_up_loss()) put_zero(&b, "m->loss");
  if (adds_up_loss() && has_some_of(SUMS)) put_zero(&b, "m->sum");
  if (has_phase(COUNT)) {
    put(&b, "  for (int i = 0; i < %d; i++) { // as if all batches had as many\n",
        plan_options->accumulate);
    put_phases(&b, COUNT, COUNT, step_of_validation(), 4);
    put(&b, "  }\n");
  }
  put_phases(&b, GATHER, GATHER, step_of_validation(), 2);
  if (graph->stages)
    put(&b, "%s", forwards_text(step_of_validation()));
  else if (microbatches() > 1)
    put_microbatches(&b, FORWARD, FORWARD, step_of_validation());
  else
    put_phases(&b, FORWARD, FORWARD, step_of_validation(), 2);
  put(&b, "%s", loss_in_update_text(rank));
  const char *as_step =
      step_has(knows_step) ? " It is step 0, by which dropouts and batch norms know it." : "";
  const char *part =
      plan_options->accumulate > 1 ? ", as the part that a batch has of a step's" : "";
  return text("\n// A validation: the loss of the inputs%s.%s\n"
              "static void validate(void)\n{\n%s}\n",
              part, as_step, b.text);
}

bool has_constants(void)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (graph->function[i].phase == CONSTANTS) return true;
  return false;
}

/* The function that runs before the first step. */
static char *constants_entry(void)
{
  struct buffer b = {0};
  if (!has_constants()) return "";
  put_phases(&b, CONSTANTS, CONSTANTS, "", 2);
  return text("// Before the first step: what all steps read, and none changes.\n"
              "static void begin(void)\n{\n%s}\n\n",
              b.text);
}

struct weights_read {
  int rank;
  int64_t bytes;
};

/* Adds the weights that an operation reads. A token reads one row of a table of embeddings. */
static void add_weights_read(void *to, int op, int times)
{
  struct weights_read *read = to;
  const struct op *o = &graph->op[op];
  if (o->phase != DECODE || o->kind == OP_embedding || o->kind == OP_embedding_int8) return;
  for (int i = 0; i < o->nin; i++)
    if (graph->value[o->in[i]].role == PARAMETER)
      read->bytes += times * elements(local_shape(o->in[i], read->rank)) *
                     type_bytes(graph->value[o->in[i]].type);
}

/* The entries of a program that generates. */
static char *entries_text(int rank)
{
  struct buffer prefill = {0}, decode = {0};
  struct weights_read read = {.rank = rank};
  each_op(add_weights_read, &read);
  put_phases(&prefill, FORWARD, FORWARD, "0", 2);
  put_phases(&decode, DECODE, DECODE, "0", 2);
  return text(
      "// Takes the next tokens of a prompt into a slot of the caches.\n"
      "static void enter_prefill(void)\n{\n%s}\n\n"
      "// Takes the next token of each slot.\n"
      "static void enter_decode(void)\n{\n%s}\n\n"
      "static const struct generation generation = {\n    .prefill = enter_prefill,\n"
      "    .decode = enter_decode,\n    .slots = %d,\n    .context = %d,\n    .chunk = %d,\n"
      "    .weights_read = %" PRId64 ",\n#ifndef TPGEN_LIBRARY\n    .run = text_generate,\n    "
      ".encode = text_encode,\n#endif\n};\n",
      prefill.text, decode.text, plan_options->generate.slots, plan_options->generate.context,
      plan_options->generate.prefill, read.bytes);
}

static char *step_function_text(void)
{
  struct buffer step = {0};
  put_text(&step, "", 0);
  if (runs_in_step() > 1 || graph->stages) {
    put_batches(&step);
  } else {
    put_next_batch(&step);
    put_phases(&step, FORWARD, BACKWARD, batch_number(), 2);
    put_update_function(&step, batch_number());
  }
  const char *unused = target->steps_in_memory || has_word(step.text, "t") ? "" : "  (void)t;\n";
  return text("static void step(%s)\n{\n%s%s}\n", target_syntax()->step_parameters, step.text,
              unused);
}

/* The functions that micro-batches of a size run; with those of the first size, all others. */
static void put_step_functions(struct buffer *b, int size, int rank)
{
  statement = statements_of[size] = alloc((size_t)(graph->nop + 1) * sizeof *statement);
  if (size) memcpy(statement, statements_of[0], (size_t)graph->nop * sizeof *statement);
  for (int others = 0; others < 2; others++) /* a part comes before the body that calls it */
    for (int i = 0; i < graph->nfunction; i++) {
      const struct function *f = &graph->function[i];
      if (f->is_part == others || is_await_alone(f) || is_nothing(f)) continue;
      if (size && !is_of_batch(f->phase)) continue;
      const char *function = function_text(f, rank);
      put_text(b, function, strlen(function));
      if (has_posts(f)) {
        /* Posts the receives of a stage's function. */
        struct buffer body = {0};
        name_locals(f);
        for (int k = 0; k < f->nop; k++) {
          const struct op *op = &graph->op[f->op[k]];
          const char *does = is_posted(op) ? post_text(op, rank) : "";
          if (*does) put(&body, "%s%s", local_declarations(does), statement_lines(does));
        }
        put(b, "static void %s(%s)\n{\n  %s(%s);\n%s}\n\n", post_name(f), action_parameters("int "),
            begin_action_name(f->stage), action_parameters(""), body.text ? body.text : "");
      }
    }
}

char *functions_text(int rank)
{
  struct buffer b = {0};
  forget_products();
  statements_of = alloc((size_t)sizes_of_step()->n * sizeof *statements_of);
  for (int size = NONE; next_size(sizes_of_step(), &size);) put_step_functions(&b, size, rank);
  const char *steps = plan_options->generate.slots ? entries_text(rank) : step_function_text();
  put(&b, "%s%s%s%s", constants_entry(), prepare_text(), steps, validate_text(rank));
  return b.text;
}
