/* program.c: the pass `emit`: the files of a program.

   Takes   the finished graph, and the templates.
   Leaves  the text of every file, for output_files.c.

   Ranks whose parts have the same shapes run the same text: a class of ranks shares a step file.
   The differences between its ranks (where parts begin, which ranks form a group) are constants in
   a file for each rank. */
#include "driver/driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void add_text(const char *name, const char *contents)
{
  add_file(name, contents, strlen(contents), false);
}

/* ------------------------------------------------------------------------------- the step files */

/* "static cudaStream_t dp_stream, tp_stream;": those that operations run on. */
static void declare_streams_of(struct buffer *b, bool are_edges, const char *what)
{
  bool any = false;
  for (int g = 0; g < graph->ngroup; g++) {
    if (graph->group[g].is_edge != are_edges || !has_stream(g)) continue;
    put(b, "%s%s", any ? ", " : text("static %s ", target_syntax()->stream_type), stream_name(g));
    any = true;
  }
  if (any) put(b, "; // of %s\n", what);
}

/* In a library each thread has the state of the model whose function it is in. */
static const char *own_static(void)
{
  return model_library() ? target_syntax()->own_static : "static";
}

/* Whether collectives of these functions run beside arithmetic by MPI's calls that do not wait. */
static bool has_requests(const char *functions)
{
  return !target->streams && strstr(functions, "begun(&done[");
}

static void declare_requests(struct buffer *b)
{
  struct buffer list = {0};
  put(&list, "%s MPI_Request done[] = {", own_static());
  for (int k = 0; k < program_events(); k++) put(&list, "%sMPI_REQUEST_NULL", k ? ", " : "");
  put(b, "// Of collectives that overlap with arithmetic.\n%s};\n",
      wrapped(list.text, ", ", "    "));
}

static void declare_streams(struct buffer *b)
{
  declare_streams_of(b, false, "collectives that overlap with arithmetic");
  declare_streams_of(b, true, "what stages send each other");
  if (program_events())
    put(b, "static %s done[%d]; // recorded when such a %s ends\n", target_syntax()->event_type,
        program_events(), graph->stages ? "call" : "collective");
}

static char *microbatch_text(void)
{
  const char *last =
      step_has(is_of_last_batch)
          ? text("%s bool in_last_batch; // in its backward the sums of gradients are "
                 "complete, and reduced\n\n",
                 own_static())
          : "";
  if (microbatches() == 1 && !graph->stages) return copy_text(last);
  char *number = text("%s%s int microbatch; // which of the step's %d micro-batches runs\n\n", last,
                      own_static(), microbatches());
  if (!graph->stages) return number;
  return text("%s%s", number, begin_actions_text());
}

static char *set_communicators_text(void)
{
  struct buffer b = {0};
  put(&b, "static void set_communicators(const communicator *made)\n{\n");
  for (int g = 0; g < graph->ngroup; g++) put(&b, "  %s = made[%d];\n", group_name(g), g);
  put(&b, "}\n");
  return b.text;
}

static char *communicators_text(const char *functions)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int g = 0; g < graph->ngroup; g++)
    put(&b, "%s%s", g ? ", " : text("%s communicator ", own_static()), group_name(g));
  const char *list = wrapped(text("%s;", b.text), ", ", "    ");
  b = (struct buffer){0};
  put_text(&b, "", 0);
  if (graph->ngroup)
    put(&b, "// The runtime creates them from members[] in the file of the rank.\n%s\n%s", list,
        set_communicators_text());
  if (target->streams) declare_streams(&b);
  if (has_requests(functions)) declare_requests(&b);
  return b.text;
}

static char *groups_text(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int g = 0; g < graph->ngroup; g++) {
    const char *stream = has_stream(g) ? text("&%s", stream_name(g)) : "NULL";
    put(&b, "    {%s%s%s},\n", string_text(graph->group[g].name), target->streams ? ", " : "",
        target->streams ? stream : "");
  }
  if (!graph->ngroup) put(&b, "    {0%s},\n", target->streams ? ", 0" : "");
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

static const char *const last_batch_name[] = {[LAST_NOT_GIVEN] = "LAST_NOT_GIVEN",
                                              [LAST_SMALLER] = "LAST_SMALLER",
                                              [LAST_DROPPED] = "LAST_DROPPED"};

/* A part of a JSON text as a C string, with its quotes as people write them. */
static char *json_literal(const char *json, size_t n)
{
  struct buffer b = {0};
  for (const char *c = string_text(text("%.*s", (int)n, json)); *c; c++) {
    bool quote = !strncmp(c, "\\042", 4);
    put(&b, "%s", quote ? "\\\"" : text("%c", *c));
    if (quote) c += 3;
  }
  return b.text;
}

/* A member of struct program. A member that is 0, NULL or false is left out: that is its
   default. */
static void put_field(struct buffer *b, const char *name, const char *value)
{
  static const char *const zero[] = {"0", "0u", "NULL", "false", NULL};
  if (target_syntax()->names_zeros || !is_word_of(zero, value))
    put(b, "    .%s = %s,\n", name, value);
}

/* A string of several lines, which begin on the next one; or NULL. */
static void put_lines(struct buffer *b, const char *name, const char *lines)
{
  if (lines)
    put(b, "    .%s =%s,\n", name, lines);
  else
    put_field(b, name, "NULL");
}

static void put_number(struct buffer *b, const char *name, int n)
{
  put_field(b, name, text("%d", n));
}

static const char *string_or_null(const char *s)
{
  return s ? string_text(s) : "NULL";
}

/* "offsetof(struct memory, loss)", or -1. */
static char *offset_text(bool is_there, const char *member)
{
  return is_there ? text("offsetof(struct memory, %s)", member) : "-1";
}

/* The plan's adapters. The text of a file has a line for each of its members. */
static void put_adapter(struct buffer *b)
{
  const char *rest = plan_options->adapter, *transposed = rest ? plan_options->transposed : NULL;
  struct buffer members = {0}, lines = {0};
  for (size_t n; rest && *rest; rest += n) {
    const char *comma = strstr(rest, ", ");
    n = comma ? (size_t)(comma - rest) + 2 : strlen(rest);
    put(&members, "\n        %s", json_literal(rest, n));
  }
  for (size_t n; transposed && *transposed; transposed += n) {
    n = strcspn(transposed, "\n");
    n += transposed[n] != 0;
    put(&lines, "\n        %s", string_text(text("%.*s", (int)n, transposed)));
  }
  put_lines(b, "adapter", members.text);
  put_field(b, "adapter_scale",
            plan_options->adapter ? double_text(plan_options->adapter_scale) : "0");
  put_lines(b, "transposed", lines.text);
  put_field(b, "exports", plan_options->exports ? string_text(plan_options->exports) : "NULL");
}

/* The rows of a validation's metrics, from lines "NAME BY_MEAN". */
static char *validated_text(void)
{
  struct buffer b = {0};
  const char *line = plan_options->validated;
  if (!line) return "";
  put(&b, "// The metrics of a validation, and how the numbers of its batches become one.\n"
          "static const struct validated validated[] = {\n");
  while (*line) {
    const int name = (int)strcspn(line, " "), all = (int)strcspn(line, "\n");
    put(&b, "    {\"%.*s\", %.*s},\n", name, line, all - name - 1, line + name + 1);
    line += all + (line[all] != 0);
  }
  put(&b, "    {NULL, BY_MEAN},\n};\n\n");
  return b.text;
}

/* The members of struct program, in its order: the runtime's facts about the program. */
static char *fields_text(const struct stacks *tensors, const char *functions)
{
  const struct plan_options *p = plan_options;
  const int nevents = target->streams ? program_events() : 0;
  const int labels = labels_output();
  const char *label = labels == NONE ? NULL : c_name(labels);
  struct buffer b = {0};
  put_field(&b, "plan", text("plan_%s", p->hash));
  put_field(&b, "hash", text("\"%s\"", p->hash));
  put_number(&b, "world", world_size());
  put_field(&b, "seed", text("%" PRIu64 "u", p->seed));
  put_number(&b, "steps", p->steps);
  put_field(&b, "begin", has_constants() ? "begin" : "NULL");
  if (target->steps_in_memory) put_field(&b, "prepare", *prepare_text() ? "prepare" : "NULL");
  put_field(&b, "step", p->generate.slots ? "NULL" : "step");
  put_number(&b, "batches", takes_batches() ? p->accumulate : 0);
  put_field(&b, "shuffles", p->shuffles ? "true" : "false");
  put_field(&b, "shuffle", text("%" PRIu64 "u", p->shuffle));
  put_field(&b, "last_batch", last_batch_name[p->last_batch]);
  put_field(&b, "validate", can_validate() ? "validate" : "NULL");
  put_field(&b, "validation_data", string_or_null(p->validation_data));
  put_field(&b, "validated", p->validated ? "validated" : "NULL");
  const bool knows = p->last_batch == LAST_SMALLER || p->says_validated;
  put_field(&b, "metrics_know_samples", p->validated && knows ? "true" : "false");
  put_field(&b, "weights", string_or_null(p->weights));
  put_field(&b, "exported", p->exported ? text("\"%s\"", p->exported) : "NULL");
  put_number(&b, "validate_every", p->validate_every);
  put_number(&b, "validate_steps", p->validate_steps);
  put_adapter(&b);
  put_field(&b, "generation", p->generate.slots ? "&generation" : "NULL");
  put_field(&b, "flops", double_text(step_flops()));
  put_field(&b, "arithmetic", arithmetic_name[step_arithmetic()]);
  put_field(&b, "learning_rate", graph->loss == NONE ? "NULL" : "learning_rate");
  put_field(&b, "set_memory", "set_memory");
  put_field(&b, "set_communicators", graph->ngroup ? "set_communicators" : "NULL");
  put_field(&b, "bytes", "sizeof(struct memory)");
  put_field(&b, "loss", offset_text(graph->loss != NONE, "loss"));
  put_field(&b, "labels", offset_text(label != NULL, label ? label + strlen("m->") : ""));
  put_field(&b, "grad_norm", offset_text(graph->norm != NONE, "grad_norm"));
  put_field(&b, "tensors", "tensors");
  put_number(&b, "ntensors", tensors->n);
  put_field(&b, "joined", has_joined(tensors) ? "joined" : "NULL");
  put_field(&b, "index_uses", graph->nindex_use ? "index_uses" : "NULL");
  put_number(&b, "nindex_uses", graph->nindex_use);
  put_field(&b, "noted", offset_text(notes_indices(), "noted"));
  put_field(&b, "row_bounds", has_row_bounds() ? "&row_bounds" : "NULL");
  put_field(&b, "groups", "groups");
  put_number(&b, "ngroups", graph->ngroup);
  if (target->streams) {
    put_field(&b, "events", nevents ? "done" : "NULL");
    put_number(&b, "nevents", nevents);
  }
  if (has_requests(functions)) put_field(&b, "overlaps", "true");
  if (target->product_table) put_field(&b, "products", "&products");
  return b.text;
}

static char *program_text(const char *step, const struct stacks *tensors, const char *functions)
{
  const char *products =
      text("static const struct products products = {\n%s};\n\n", product_list());
  return fill(
      embedded_template("step_program.c"), "name", step, "declaration",
      fill(target_syntax()->declares, "struct", "program", "name", text("%s_program", step), NULL),
      "validated", validated_text(), "groups", groups_text(), "products",
      target->product_table ? products : "", "fields", fields_text(tensors, functions), "unnamed",
      target_syntax()->names_zeros ? "" : " Those that are not named are 0, NULL or false.", NULL);
}

/* The end of a step file's head: the text for numbers that are used as indices. */
static const char *indices_legend(void)
{
  if (!graph->nindex_use) return "";
  const char *inputs =
      "index_uses[], in the file of tensors[], lists the numbers that are used as indices, and "
      "their bounds. The runtime checks those of an input when it reads the input.";
  const char *computed =
      " Kernels check those that the step computes: noted[], in struct memory, has an element for "
      "each of index_uses[], which is 0 as long as all numbers are in range.";
  return text("\n//\n%s",
              wrapped(text("// %s%s", inputs, notes_indices() ? computed : ""), " ", "// "));
}

static bool moves_rows(const struct op *op)
{
  return op->kind == OP_exchange_rows || op->kind == OP_clamp_to_capacity;
}

/* The headers that only some programs include. */
static const char *includes_text(const char *functions)
{
  const char *stages = text("#include \"%s/stages.h\"\n", target->name);
  return text("%s%s%s%s", graph->stages ? stages : "",
              has_requests(functions) ? "#include \"cpu/overlap.h\"\n" : "",
              step_has(moves_rows) || ends_early()
                  ? text("#include \"%s/kernels/rows.h\"\n", target->name)
                  : "",
              options.check_finite ? "#include \"base/finite.h\"\n" : "");
}

/* "_stage1" of the files of a stage of a pipeline, "_2" of those of a class of ranks. */
static const char *suffix_of(int class)
{
  const struct pipeline_stages *s = graph->stages;
  return text("%s%s", s ? text("_stage%d", s->here) : "", class ? text("_%d", class) : "");
}

static char *step_name(int class)
{
  return text("step%s", suffix_of(class));
}

/* The names of a class's files. */
struct class_files {
  const char *name; /* "step_1" */
  const char *step, *memory, *tensors;
};

/* The step's files, except the table of tensors. */
static void program_add_step(const struct class_files *names, int rank, const char *ranks,
                             const struct stacks *tensors)
{
  reserve_kernel_names(rank);
  char *functions = functions_text(rank);
  const char *factor = model_library() ? "learning_rate_factor" : "";
  char *head = fill(embedded_template("step_head.c"), "version", TPGEN_VERSION, "plan",
                    plan_shown(), "hash", plan_options->hash, "summary", summary_text(rank),
                    "ranks", ranks, "memory", names->memory, "indices", indices_legend(), NULL);
  char *body =
      fill(embedded_template(text("step.%s", target->source)), "memory", names->memory, "tensors",
           names->tensors, "communicators", communicators_text(functions), "finite",
           includes_text(functions), "functions", text("%s%s", microbatch_text(), functions),
           "products", product_table(), "learning_rate",
           graph->loss == NONE ? "" : text("%s\n", learning_rate_text(functions, factor)), NULL);
  add_text(names->step, text("%s%s%s", head, body, program_text(names->name, tensors, functions)));
  const char *on_device = target_syntax()->memory_is;
  add_text(names->memory,
           fill(embedded_template("memory.h"), "version", TPGEN_VERSION, "plan", plan_shown(),
                "hash", plan_options->hash, "ranks", ranks, "step", names->step, "memory",
                memory_declaration(), "asserts", member_run_asserts(), "static", own_static(),
                "on_device", on_device, "arena",
                text("%s%s", slots_text(own_static()), activation_table()), NULL));
}

/* The counts that the rank moves in a function, except in exchanges: those are in the rank's own
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

/* The text of a rank's step depends on the rank's class, by the shapes of all its parts, and on the
   counts that it moves. */
static uint64_t signature(int rank)
{
  const int *class = &graph->kernel_forms->ranks.of[rank];
  uint64_t h = hash_bytes(HASH_START, class, sizeof *class);
  const struct list *sizes = &graph->kernel_forms->ranks.sizes;
  for (int size = NONE; next_size(sizes, &size);)
    for (int i = 0; i < graph->nfunction; i++) h = hash_issued(h, &graph->function[i], rank);
  return h;
}

/* Whether the program has a product for which it pays to load oneDNN: that takes a hundredth of a
   second, and some MiB. */
bool multiplies_by_onednn(void)
{
  if (all_stages()) return all_stages()->multiplies_by_onednn;
  const double worth_it = 256. * 256 * 256;
  for (int i = 0; i < graph->nop; i++) {
    const struct op *op = &graph->op[i];
    if (op->kind != OP_matmul) continue;
    if (graph->value[op->in[0]].type == BF16 || multiplications(op) >= worth_it) return true;
  }
  return false;
}

/* Whether it is tokens that text is made to: tokens(), or of pairs [n, 2, sequence], whole numbers.
 */
static bool is_of_texts(const struct value *v)
{
  if (v->role != BATCH || v->type != I32 || !is_plain_name(v->name)) return false;
  if (v->shape.ndim == 2) return v->init.kind == INIT_TOKENS && v->init.b == 0;
  return v->shape.ndim == 3 && v->shape.size[1] == 2 && v->init.kind == INIT_UNIFORM &&
         v->init.a == 0;
}

/* Whether it is labels that may be -100: its range has this number, or a loss ignores it. */
static bool is_of_labels(int id)
{
  static const double IGNORED = -100;
  const struct value *v = &graph->value[id];
  if (v->init.kind == INIT_UNIFORM && v->init.a == IGNORED) return true;
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *use = &graph->index_use[i];
    if (use->input == id && use->ignores && (double)use->ignored == IGNORED && use->below > 0)
      return true;
  }
  return false;
}

/* Whether it is 0 or 1 for each place of texts of one row, or for each sample of two rows. */
static bool goes_with(const struct value *v, const struct value *input)
{
  if (v->type != I32 || !is_plain_name(v->name)) return false;
  if (input->shape.ndim == 2) return same_shape(v->shape, input->shape);
  return v->shape.ndim == 1 && v->shape.size[0] == input->shape.size[0];
}

/* Whether a token ends documents: of a conversation it would end parts of one. */
static bool cuts_documents(void)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_documents) return true;
  return false;
}

/* An input with the program's tokens and one, of the same shape, with labels that may be -100; and
   perhaps one of 0 and 1, which says where texts end, or of pairs that they are one answer and its
   rating. Files give other inputs, which only go with pairs. */
struct text_inputs text_inputs(void)
{
  if (all_stages()) return all_stages()->text;
  const struct value *input = NULL, *target = NULL, *binary = NULL;
  int others = 0;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != BATCH) continue;
    if (!target && is_of_labels(i))
      target = v;
    else if (!input && is_of_texts(v))
      input = v;
    else if (v->init.kind == INIT_UNIFORM && v->init.a == 0 && v->init.b == 2 && !binary)
      binary = v;
    else
      others++;
  }
  if (!input || !target || !same_shape(input->shape, target->shape) || target->type != I32 ||
      !is_plain_name(target->name))
    return (struct text_inputs){0};
  const bool pairs = input->shape.ndim == 3;
  if (binary && !goes_with(binary, input)) {
    others++;
    binary = NULL;
  }
  if (!pairs && (others || graph->loss == NONE)) return (struct text_inputs){0};
  if (!binary && cuts_documents()) return (struct text_inputs){0};
  return (struct text_inputs){.rows = pairs ? 2 : 1,
                              .sequence = input->shape.size[input->shape.ndim - 1],
                              .vocabulary = (int64_t)(pairs ? input->init.b : input->init.a),
                              .batch = input->shape.size[0],
                              .input = input->name,
                              .target = target->name,
                              .ends = binary && !pairs ? binary->name : NULL,
                              .rating = binary && pairs ? binary->name : NULL};
}

/* The plan's path, and after it those of the files that it requires, each with a zero and on a
   line of its own. */
static char *plan_string(void)
{
  struct buffer b = {0};
  put(&b, "%s%s", plan_files() ? "\n    " : " ", string_text(plan_shown()));
  for (int i = 1; i <= plan_files(); i++)
    put(&b, " \"\\0\"\n    %s", string_text(file_shown(i * LINES_OF_FILE)));
  if (plan_files()) put(&b, " \"\\0\"");
  return b.text;
}

static void add_kernels(void)
{
  const char *suffix = target->source;
  char *common[] = {"version", TPGEN_VERSION,
                    "plan",    copy_text(plan_shown()),
                    "hash",    copy_text(plan_options->hash)};
  const char *c = embedded_template(text("kernels.%s", suffix));
  const char *h = embedded_template(text("kernels.%s", target->header));
  share_bodies();
  add_text(text("kernels.%s", suffix),
           fill(c, common[0], common[1], common[2], common[3], common[4], common[5], "kernels",
                kernel_definitions(), "plan_string", plan_string(), "weights", runtime_includes(),
                NULL));
  add_text("kernels.h", fill(h, common[0], common[1], common[2], common[3], common[4], common[5],
                             "includes", kernel_includes(), "constants", constants_text(),
                             "prototypes", kernel_prototypes(), NULL));
}

/* For the program text_data; "": there is none. */
static const char *text_data_arguments(void)
{
  const struct text_inputs of = text_inputs();
  if (!of.sequence) return "";
  return text("%d %lld %lld %s %s %s %s %lld", of.rows, (long long)of.sequence,
              (long long)of.vocabulary, of.input, of.target, of.ends ? of.ends : "-",
              of.rating ? of.rating : "-", (long long)of.batch);
}

static void add_launcher(const char *ranks)
{
  char *world = text("%d", world_size());
  const char *cmake = text("CMakeLists.%s.txt", target->name);
  add_text("CMakeLists.txt",
           fill(embedded_template(cmake), "plan", plan_shown(), "hash", plan_options->hash, "ranks",
                ranks, "world", world, "stages",
                graph->stages ? embedded_template("stages.txt") : "", "torch_archive",
                plan_options->weights ? embedded_template("torch_archive.txt") : "", "generate",
                plan_options->generate.slots ? embedded_template("generate.txt") : "", "onednn",
                multiplies_by_onednn() ? embedded_template("onednn.txt") : "", "runtime_files",
                embedded_template("runtime_files.txt"), "object_cache",
                embedded_template("object_cache.txt"), "text_data",
                text_inputs().sequence ? embedded_template("text_data.txt") : "", "library",
                library_build(), NULL));
  const char *other_help = plan_options->generate.slots ? "HELP_OF_TRAINING" : "HELP_OF_GENERATING";
  char *run =
      fill(embedded_template("run.sh"), "plan", plan_shown(), "world", world, "hash",
           plan_options->hash, "transport", target->library == LIBRARY_MPI ? "shared" : "nccl",
           "other_help", other_help, "text_data", text_data_arguments(), NULL);
  add_file("run.sh", run, strlen(run), true);
}

/* The files of a class of ranks: its step, and the files of its ranks. */
static void add_class(int class, int first, const int *class_of)
{
  const char *number = suffix_of(class);
  struct class_files names = (struct class_files){.name = step_name(class),
                                                  .step = text("step%s.%s", number, target->source),
                                                  .memory = text("memory%s.h", number),
                                                  .tensors = text("tensors%s.h", number)};
  name_values(first);
  const struct stacks *tensors = find_tensors();
  const int *states = find_state_rows(tensors, first);
  const char **shown = alloc((size_t)(tensors->n + 1) * sizeof *shown);
  for (int i = 0; i < tensors->n; i++) shown[i] = printable(stack_text(&tensors->at[i]));
  for (int r = 0; r < world_size(); r++)
    if (class_of[r] == class)
      add_text(text("rank%d.%s", r, target->source),
               rank_text(r, names.name, tensors, shown, states));
  bool is_first = !class && !(graph->stages && graph->stages->here);
  if (is_first) add_library_files(tensors);
  add_text(
      names.tensors,
      fill(embedded_template("tensors.h"), "version", TPGEN_VERSION, "plan", plan_shown(), "hash",
           plan_options->hash, "states", states_macro(tensors), "tensors",
           tensors_text(tensors, first), "index_uses",
           text("%s%s%s", joined_text(tensors), index_uses_text(tensors), row_bounds_text(first)),
           NULL)); /* while names belong to no function */
  program_add_step(&names, first, ranks_text(class_of, class), tensors);
  const struct list *sizes = &graph->kernel_forms->ranks.sizes;
  for (int size = NONE; target->streams && next_size(sizes, &size);)
    check_issued(first, statements(size));
}

/* Uneven ranks have programs of their own. The memory taken by the first few shows how many fit. */
static void add_classes(int n, const int *first_of, const int *class_of)
{
  enum { FEW = 4 };
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

void emit_steps(struct buffer *programs)
{
  int world = world_size(), nclass = 0;
  int *class_of = alloc((size_t)world * sizeof *class_of);
  int *first_of = alloc((size_t)world * sizeof *first_of);
  uint64_t *seen = alloc((size_t)world * sizeof *seen);
  for (int r = 0; r < world; r++) {
    class_of[r] = NONE;
    if (r < options.first_rank || r > options.last_rank || !runs_here(r)) continue;
    uint64_t mine = signature(r);
    int class = 0;
    while (class < nclass && seen[class] != mine) class ++;
    if (class == nclass) first_of[nclass++] = r;
    seen[class] = mine;
    class_of[r] = class;
  }
  if (graph->stages) note_stage();
  if (graph->stages && !nclass) return; /* another run writes the files of these ranks */
  add_classes(nclass, first_of, class_of);
  /* "0:step 1:step_1": the step of each rank. */
  for (int r = 0; r < world_size(); r++)
    if (class_of[r] != NONE)
      put(programs, "%s%d:%s", programs->length ? " " : "", r, step_name(class_of[r]));
  if (!graph->stages) add_kernels();
  struct buffer plan = {0}, json = {0};
  report_text(&plan);
  report_json(&json);
  const char *stage = suffix_of(0);
  add_text(text("plan%s.txt", stage), plan.text);
  add_text(text("plan%s.json", stage), json.text);
  add_trace();
}

void emit_rest(const struct buffer *programs)
{
  struct buffer plan = {0}, json = {0};
  if (graph->stages) {
    add_kernels(); /* of all stages */
    report_pipeline(&plan);
    report_pipeline_json(&json);
    add_text("plan.txt", plan.text);
    add_text("plan.json", json.text);
  }
  add_pipeline_trace();
  add_launcher(programs->text ? programs->text : "");
  add_runtime();
}
