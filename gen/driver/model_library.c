/* model_library.c: the files of a library: the model as functions, instead of a program's `main`.
 */
#include "driver/driver.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

/* Whether a program has or includes a header of that name, which the library's would hide, or the
   runtime's headers have such a struct. */
static bool is_of_program(const char *name)
{
  static const char *const headers[] = {"kernels", "memory", "tensors", "library_names", NULL};
  for (int i = 0; headers[i]; i++)
    if (!strncmp(name, headers[i], strlen(headers[i]))) return true;
  for (const struct embedded *e = embedded; e->name; e++) {
    if (strncmp(e->name, "runtime/", 8)) continue;
    if (strstr((const char *)e->text, text("<%s.h>", name))) return true;
    const char *at = (const char *)e->text, *tag = text("struct %s", name);
    for (size_t n = strlen(tag); (at = strstr(at, tag)); at += n)
      if (!isalnum((unsigned char)at[n]) && at[n] != '_') return true;
  }
  return false;
}

const char *model_library(void)
{
  static const char *checked;
  const char *name = options.library_name ? options.library_name : plan_options->library_name;
  if (options.emit ? !strcmp(options.emit, "program") : !plan_options->emits_library) {
    if (options.library_name)
      usage_error(2, "--library-name %s: there is no library: write --emit library, too",
                  options.library_name);
    return NULL;
  }
  if (!name) name = "model";
  if (!checked || strcmp(checked, name)) {
    /* It begins the names of functions, files and a Fortran module. */
    enum { LONGEST = 32 };
    bool plain = islower((unsigned char)name[0]);
    for (const char *c = name; *c; c++)
      plain &= islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_';
    if (!plain || strlen(name) > LONGEST || strcmp(identifier(name), name) || is_of_program(name)) {
      const char *why = text("a library cannot be called '%s': its name is at most %d small "
                             "letters, digits and _, begins with a letter, and is not a word of C "
                             "or of a program",
                             printable(name), LONGEST);
      if (options.library_name) usage_error(2, "--library-name: %s", why);
      plan_error(plan_options->train_line, "%s", why);
    }
  }
  checked = name;
  return name;
}

static char *model_library_upper(const char *name)
{
  char *up = copy_text(name);
  for (char *c = up; *c; c++) *c = (char)toupper((unsigned char)*c);
  return up;
}

/* "input F32[20, 10]" */
static char *tensor_text(const struct stack *f)
{
  static const char *const type[] = {
      [F32] = "F32", [BF16] = "BF16", [I32] = "I32", [I64] = "I64", [BOOL] = "BOOL"};
  const struct value *v = &graph->value[f->member.at[0]];
  const char *sizes = v->shape.ndim ? sizes_text(v->shape) : "";
  return text("%s %s[%s]", printable(stack_text(f)), type[v->type], sizes);
}

/* "The inputs, in their order:", and a line for each; *n: their number. */
static char *list_of(const char *what, const struct stacks *tensors, bool inputs, int *n)
{
  struct buffer b = {0};
  *n = 0;
  put(&b, "// %s, in their order:", what);
  if (!inputs && graph->loss != NONE) {
    put(&b, "\n//   loss F32[]");
    ++*n;
  }
  for (int i = 0; i < tensors->n; i++) {
    const struct value *v = &graph->value[tensors->at[i].member.at[0]];
    if (inputs ? v->role != BATCH || v->init.kind == INIT_PRESENT
               : v->role != ACTIVATION || !v->is_output)
      continue;
    put(&b, "\n//   %s", tensor_text(&tensors->at[i]));
    *n += tensors->at[i].member.n;
  }
  if (!*n) put(&b, " none");
  return b.text;
}

/* "\"input\": (\"float32\", (20, 10), 0), ": what fills rows that a smaller batch lacks is a label
   that the loss ignores, or 0. *smaller: whether there is such a label; then it says all that is
   missing. */
static char *inputs_table(const struct stacks *tensors, bool *smaller)
{
  static const char *const type[] = {
      [F32] = "float32", [BF16] = "bfloat16", [I32] = "int32", [I64] = "int64", [BOOL] = "bool"};
  struct buffer b = {0};
  bool ignores = false, counts = false;
  put_text(&b, "", 0);
  for (int i = 0; i < tensors->n; i++) {
    const int id = tensors->at[i].member.at[0];
    const struct value *v = &graph->value[id];
    int64_t fills = 0;
    if (v->role != BATCH) continue;
    counts |= v->init.kind == INIT_PRESENT;
    if (v->init.kind == INIT_PRESENT) continue;
    for (int k = 0; k < graph->nindex_use; k++)
      if (graph->index_use[k].input == id && graph->index_use[k].ignores) {
        fills = graph->index_use[k].ignored;
        ignores = true;
      }
    put(&b, "\n    %s: (\"%s\", (", string_text(stack_text(&tensors->at[i])), type[v->type]);
    for (int d = 0; d < v->shape.ndim; d++)
      put(&b, d ? " %" PRId64 "," : "%" PRId64 ",", v->shape.size[d]);
    put(&b, "), %" PRId64 "),", fills);
  }
  if (b.length) put(&b, "\n");
  *smaller = ignores && !counts;
  return b.text;
}

/* "input=..., target=..." */
static char *example_of(const struct stacks *tensors)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < tensors->n; i++) {
    const struct value *v = &graph->value[tensors->at[i].member.at[0]];
    if (v->role != BATCH || v->init.kind == INIT_PRESENT || !is_plain_name(v->name)) continue;
    put(&b, "%s%s=...", b.length ? ", " : "", v->name);
  }
  return b.text;
}

/* Of the logits of a model that generates; else 0. */
static int64_t vocabulary(void)
{
  for (int v = 0; v < graph->nvalue && plan_options->generate.slots; v++) {
    const struct shape s = graph->value[v].shape;
    if (graph->value[v].is_output) return s.size[s.ndim - 1];
  }
  return 0;
}

static void add_filled(const char *file, const char *template, const struct stacks *tensors)
{
  const char *name = model_library();
  int inputs, outputs, world = world_size();
  char *inputs_list = list_of("The inputs", tensors, true, &inputs);
  char *outputs_list = list_of("The outputs", tensors, false, &outputs);
  bool smaller;
  char *table = inputs_table(tensors, &smaller);
  struct buffer declarations = {0}, ranks = {0};
  for (int r = 0; r < world; r++) {
    put(&declarations, "extern const struct rank rank%d;\n", r);
    put(&ranks, "    &rank%d,\n", r);
  }
  char *whole = fill(embedded_template(template), "version", TPGEN_VERSION, "plan", plan_shown(),
                     "hash", plan_options->hash, "name", name, "NAME", model_library_upper(name),
                     "world", text("%d", world), "ranks", ranks.text, "declarations",
                     declarations.text, "many", world == 1 ? "One rank" : text("%d ranks", world),
                     "inputs", text("%d", inputs), "outputs", text("%d", outputs), "batches",
                     text("%d", takes_batches() ? plan_options->accumulate : 0), "inputs_list",
                     inputs_list, "outputs_list", outputs_list, "inputs_table", table, "smaller",
                     smaller ? "True" : "False", "example", example_of(tensors), "in_memory",
                     target->streams ? "False" : "True", "data", target_syntax()->library_data,
                     "source", target->source, "slots", text("%d", plan_options->generate.slots),
                     "context", text("%d", plan_options->generate.context), "vocabulary",
                     text("%" PRId64, vocabulary()), NULL);
  add_file(file, whole, strlen(whole), false);
}

char *library_build(void)
{
  const char *name = model_library();
  if (!name) return "";
  return fill(embedded_template("library.cmake"), "name", name, "source", target->source, "target",
              embedded_template(text("%s.cmake", target->name)), NULL);
}

void add_library_files(const struct stacks *tensors)
{
  const char *name = model_library();
  if (!name) return;
  if (options.first_rank > 0 || options.last_rank < world_size() - 1)
    plan_error(0, "a library has all ranks: leave out --ranks");
  add_filled(text("%s.h", name), "library.h", tensors);
  add_filled(text("%s.f90", name), "library.f90", tensors);
  if (options.emit && !strcmp(options.emit, "python"))
    add_filled(text("%s.py", name), "library.py", tensors);
  add_filled("library_names.h", "names.h", tensors);
  add_filled(text("library_ranks.%s", target->source), "ranks.c", tensors);
  add_filled("library_symbols.txt", "symbols.txt", tensors);
  add_filled(text("%sConfig.cmake.in", name), "config.cmake.in", tensors);
}
