/* tensor_table.c: the table of the tensors that the runtime fills, reads and writes, and the table
   of the numbers that a program uses as indices. */
#include "emit/emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "m->w.layers[31].wq" for "m->w.layers[0].wq": the length of the text before the number; 0 if
   the second is no such name. */
static size_t before_number(const char *first, const char *at, int number)
{
  size_t n = 0;
  char *rest;
  while (first[n] && first[n] == at[n]) n++;
  if (!n || first[n - 1] != '[' || first[n] != '0') return 0;
  return strtol(at + n, &rest, 10) == number && !strcmp(rest, first + n + 1) ? n : 0;
}

static const char *const *name_on_all_ranks; /* by value */

static const char *name_in_memory(int value)
{
  while (!name_on_all_ranks[value] && storage_of(value) != value) value = storage_of(value);
  return name_on_all_ranks[value];
}

/* Whether the value follows the stack's others in memory at the same stride, on all ranks that have
   a part of them. */
static bool lies_behind(const struct stack *f, int value)
{
  if (graph->stages) return false; /* the ranks of all stages have the same rows */
  const char *first = name_in_memory(f->member.at[0]), *at = name_in_memory(value);
  if (!same_tensor(f->member.at[0], value) || !alias_goes_on(f, value)) return false;
  return first && at && before_number(first, at, f->member.n) > 0;
}

static int by_name(const void *a, const void *b)
{
  return strcmp(graph->value[*(const int *)a].name, graph->value[*(const int *)b].name);
}

/* The tensors that the runtime fills, reads and writes. All ranks have them in one order: the order
   in a file follows from it. A rank may have no part of some. */
const struct stacks *find_tensors(void)
{
  static const struct graph *of;
  static struct stacks tensors;
  static const enum role order[] = {PARAMETER, STATE, BATCH};
  if (!is_other_graph(&of)) return &tensors;
  int n = 0, *list = alloc((size_t)(graph->nvalue + 1) * sizeof *list);
  for (size_t k = 0; k < sizeof order / sizeof *order; k++)
    for (int i = 0; i < graph->nvalue; i++)
      if (graph->value[i].role == order[k]) list[n++] = i;
  int first = n;                      /* of the outputs */
  const int labels = labels_output(); /* only for the runtime */
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == ACTIVATION && graph->value[i].is_output && i != labels)
      list[n++] = i;
  qsort(list + first, (size_t)(n - first), sizeof *list, by_name);
  name_on_all_ranks = names_on_all_ranks();
  tensors = find_stacks(n, list, lies_behind, false);
  return &tensors;
}

/* A name as in files, as a C string: bytes that are not plain are escaped. */
char *string_text(const char *s)
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

char *sizes_text(struct shape s)
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

/* A row of the table, broken after commas, but not within a name: names have their quotes
   escaped. */
static const char *row_lines(char *row)
{
  bool named = false;
  for (char *c = row; *c; c++) {
    if (*c == '"') named = !named;
    if (named && *c == ' ') *c = KEPT_BLANK;
  }
  return wrapped(row, ", ", "     ");
}

struct shape file_shape(int value)
{
  const struct value *v = &graph->value[value];
  struct shape s = v->shape;
  if (v->file_size) s.size[v->file_dim] = v->file_size;
  return s;
}

struct shape file_start(int value, const int coordinate[MAX_MESH])
{
  const struct value *v = &graph->value[value];
  struct part p = local_part(&graph->mesh, v->shape, v->layout, coordinate);
  struct shape at = {.ndim = v->shape.ndim};
  for (int d = 0; d < at.ndim; d++) at.size[d] = p.first[d];
  if (v->file_size) at.size[v->file_dim] += v->file_first;
  return at;
}

static char *full_row(const struct stack *f, int rank)
{
  static const char *const role[] = {
      [PARAMETER] = "PARAMETER", [STATE] = "STATE", [BATCH] = "BATCH", [ACTIVATION] = "OUTPUT"};
  static const char *const type[] = {
      [F32] = "F32",   [BF16] = "BF16",      [I32] = "I32",       [I64] = "I64",
      [BOOL] = "BOOL", [I8] = "INT8_BLOCKS", [NF4] = "NF4_BLOCKS"};
  static const char *const how[] = {[INIT_CONSTANT] = "CONSTANT",
                                    [INIT_UNIFORM] = "UNIFORM",
                                    [INIT_NORMAL] = "NORMAL",
                                    [INIT_TOKENS] = "TOKENS",
                                    [INIT_PRESENT] = "PRESENT",
                                    [INIT_NORMAL_ROWS] = "NORMAL_ROWS",
                                    [INIT_TRUNC_NORMAL] = "TRUNC_NORMAL",
                                    [INIT_ORTHOGONAL] = "ORTHOGONAL",
                                    [INIT_SPARSE] = "SPARSE",
                                    [INIT_DIRAC] = "DIRAC",
                                    [INIT_NESTED] = "NESTED"};
  const struct value *v = &graph->value[f->member.at[0]];
  struct shape here = local_shape(f->member.at[0], rank);
  const char *alias, *rest, *first = c_name(f->member.at[0]), *place = "0, 0";
  const char *made = how[v->init.kind];
  if (v->is_output && graph->loss == NONE && !plan_options->generate.slots)
    made = v->rows == ROWS_OF_SAMPLES ? "OF_SAMPLES" : v->rows == ROWS_OF_BATCH ? "OF_BATCH" : made;
  stack_alias(f, &alias, &rest);
  char *names = text("    {%s, %s, %d, %s, %s,", name_text(f->name, f->rest),
                     alias ? name_text(alias, rest) : "{NULL, NULL}", f->member.n, role[v->role],
                     type[v->type]);
  if (first) /* where the stack begins in memory, and its stride */
    place = text("offsetof(struct memory, %s), %s", first + strlen("m->"),
                 f->rest ? text("sizeof %.*s0]",
                                (int)before_number(first, c_name(f->member.at[1]), 1), first)
                         : "0");
  const char *bounds = "";
  if (v->init.kind == INIT_TRUNC_NORMAL) bounds = text(", %.17g, %.17g", v->init.low, v->init.high);
  return text("%s\n%s\n     %d, {%s}, {%s}, {%s, {%.17g, %.17g%s}}},\n", row_lines(names),
              row_lines(text("     %s,", place)), here.ndim,
              sizes_text(file_shape(f->member.at[0])), sizes_text(here), made, v->init.a, v->init.b,
              bounds);
}

/* "exp_avg" for a state whose name, place and initial value the macro STATE_ROW gives; else
   NULL. */
static const char *state_kind(const struct stack *f)
{
  const struct value *v = &graph->value[f->member.at[0]];
  const char *at = c_name(f->member.at[0]), *name, *rest;
  stack_alias(f, &name, &rest);
  if (v->role != STATE || is_apart(f->member.at[0]) || v->type != F32 || name || !at ||
      !graph->value[v->of].name)
    return NULL;
  if (v->init.kind != INIT_CONSTANT || v->init.a != 0 || v->init.b != 0) return NULL;
  char *kind = text("%.*s", (int)strcspn(at + strlen("m->"), "."), at + strlen("m->"));
  const char *start = text("optim.%s.", kind);
  return strncmp(f->name, start, strlen(start)) ? NULL : kind;
}

/* The arguments of STATE_ROW after the kind: equal for all states of a parameter. */
static char *state_arguments(const struct stack *f, const char *kind, int rank)
{
  const char *at = c_name(f->member.at[0]) + strlen("m->") + strlen(kind) + 1;
  struct shape here = local_shape(f->member.at[0], rank);
  const char *stride = "0";
  if (f->rest) {
    const char *first = c_name(f->member.at[0]);
    int n = (int)before_number(first, c_name(f->member.at[1]), 1);
    int skipped = (int)(strlen("m->") + strlen(kind));
    stride = text("sizeof m->w%.*s0]", n - skipped, first + skipped);
  }
  return text("%s, %s, %d, %s, %s, %d, {%s}, {%s}",
              string_text(f->name + strlen("optim..") + strlen(kind)),
              f->rest ? string_text(f->rest) : "NULL", f->member.n, at, stride, here.ndim,
              sizes_text(file_shape(f->member.at[0])), sizes_text(here));
}

/* The number of states from the i-th tensor on that belong to one parameter and have the usual
   kinds. */
static int states_at(const struct stacks *tensors, int i, int rank, const char *const *kind, int n)
{
  const char *first = NULL;
  for (int k = 0; k < n; k++) {
    const struct stack *f = &tensors->at[i + k];
    const char *its = i + k < tensors->n ? state_kind(f) : NULL;
    if (!its || strcmp(its, kind[k])) return 0;
    const char *arguments = state_arguments(f, its, rank);
    if (first && strcmp(first, arguments)) return 0;
    first = arguments;
  }
  return n;
}

/* The kinds of the states of the first parameter that has any. */
static int find_kinds(const struct stacks *tensors, const char **kind)
{
  int n = 0, of = NONE;
  for (int i = 0; i < tensors->n; i++) {
    const struct stack *f = &tensors->at[i];
    const char *its = state_kind(f);
    if (!its) continue;
    if (of == NONE) of = graph->value[f->member.at[0]].of;
    if (graph->value[f->member.at[0]].of != of) break;
    kind[n++] = its;
  }
  return n;
}

const int *find_state_rows(const struct stacks *tensors, int rank)
{
  const char **kind = alloc((size_t)(tensors->n + 1) * sizeof *kind);
  int nkind = find_kinds(tensors, kind), *states = alloc((size_t)(tensors->n + 1) * sizeof *states);
  for (int i = 0; i < tensors->n; i += states[i] ? states[i] : 1)
    states[i] = nkind ? states_at(tensors, i, rank, kind, nkind) : 0;
  return states;
}

char *tensors_text(const struct stacks *tensors, int rank)
{
  struct buffer b = {0};
  const char **kind = alloc((size_t)(tensors->n + 1) * sizeof *kind);
  const int *states = find_state_rows(tensors, rank);
  find_kinds(tensors, kind);
  put_text(&b, "", 0);
  for (int i = 0; i < tensors->n; i++) {
    int n = states[i];
    if (!n) put(&b, "%s", full_row(&tensors->at[i], rank));
    if (!n) continue;
    put(&b, "%s\n",
        row_lines(text("    STATES(%s)", state_arguments(&tensors->at[i], kind[0], rank))));
    i += n - 1;
  }
  return b.text;
}

/* The macro STATES, of these kinds; "" without any. */
char *states_macro(const struct stacks *tensors)
{
  struct buffer rows = {0};
  const char **kind = alloc((size_t)(tensors->n + 1) * sizeof *kind);
  int n = find_kinds(tensors, kind);
  for (int k = 0; k < n; k++) put(&rows, "%sSTATE_ROW(%s, __VA_ARGS__)", k ? " " : "", kind[k]);
  return n ? fill(embedded_template("state_rows.h"), "rows", rows.text, NULL) : "";
}

static bool is_joined(const struct stack *f)
{
  return graph->value[f->member.at[0]].alias_size > 0;
}

bool has_joined(const struct stacks *tensors)
{
  for (int i = 0; i < tensors->n; i++)
    if (is_joined(&tensors->at[i])) return true;
  return false;
}

char *joined_text(const struct stacks *tensors)
{
  struct buffer b = {0};
  if (!has_joined(tensors)) return "";
  put(&b, "\n// Tensors that files of others hold as parts of larger ones. A row: the row in "
          "tensors[]; where\n"
          "// it begins in the larger tensor, and the shape of that. -1 ends the list.\n"
          "static const struct joined joined[] = {\n");
  for (int i = 0; i < tensors->n; i++)
    if (is_joined(&tensors->at[i])) {
      /* In numbers, as in files, also where the program has blocks. */
      const struct stack *f = &tensors->at[i];
      const int value = f->member.at[0];
      const struct value *v = &graph->value[value];
      struct shape of = file_shape(value), at = {.ndim = of.ndim};
      if (blocks_of(v->type).numbers) of.size[--of.ndim - 1] *= blocks_of(v->type).numbers;
      of.size[v->alias_dim] = v->alias_size;
      at.ndim = of.ndim;
      at.size[v->alias_dim] = v->alias_first;
      put(&b, "    {%d, {%s}, {%s}}, // %s\n", i, sizes_text(at), sizes_text(of),
          printable(stack_text(f)));
    }
  put(&b, "    {-1, {0}, {0}},\n};\n");
  return b.text;
}

char *index_uses_text(const struct stacks *tensors)
{
  struct buffer b = {0};
  if (!graph->nindex_use) return "";
  put(&b, "\n// Numbers that are used as indices, and may be out of range. A row: the operator, "
          "its line\n"
          "// in the plan, the bound below which they must be, whether one more number is ignored, "
          "and\n"
          "// which; the row in tensors[] of the input that has them, and the start and shape of "
          "the part\n"
          "// that is used; row -1: the step computes them.\n"
          "static const struct index_use index_uses[] = {\n");
  for (int i = 0; i < graph->nindex_use; i++) {
    const struct index_use *use = &graph->index_use[i];
    struct shape first = {.ndim = use->part.ndim};
    memcpy(first.size, use->first, sizeof first.size);
    char *ignored = use->ignores ? text("true, %" PRId64, use->ignored) : "false, 0";
    bool of_input = use->input != NONE;
    int row = NONE; /* of the input, among the tensors */
    for (int k = 0; k < tensors->n && of_input && row == NONE; k++)
      if (tensors->at[k].member.at[0] == use->input) row = k;
    put(&b, "%s\n",
        row_lines(text("    {%s, %d, %" PRId64 ", %s, %d, {%s}, {%s}},", string_text(use->what),
                       use->line, use->below, ignored, row, of_input ? sizes_text(first) : "0",
                       of_input ? sizes_text(use->part) : "0")));
  }
  put(&b, "};\n");
  return b.text;
}
