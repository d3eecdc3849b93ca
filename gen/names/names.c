/* names.c: what things are called in the program of one class of ranks, and the declarations of its
   memory. Names come from the model: a struct mirrors the module tree, gradients and the
   optimizer's state are the same struct again, and an activation is called after the module that
   made it. */
#include "names/names.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------- names within a function */

static const struct function *speaking; /* the function whose names are given, or NULL */
static const char **local;              /* by value: its name in that function, or NULL */
static bool *declares;                  /* by value: it is the first of that name */

static bool loops(void)
{
  return speaking && speaking->count > 1;
}

static bool is_buffer(int value)
{
  const struct value *v = &graph->value[value];
  return v->op != NONE && graph->op[v->op].packed && graph->op[v->op].buffer == value;
}

/* What a view shows where it lies, and what became whole in a bucket; NONE of any other value. */
static int shown_by(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE) return NONE;
  enum op_kind kind = graph->op[v->op].kind;
  int storage = storage_of(value);
  bool in_bucket = kind == OP_all_reduce && storage != value && is_buffer(storage);
  if (kind != OP_view && !in_bucket) return NONE;
  int in = graph->op[v->op].in[0];
  return same_place(in, value) ? in : NONE;
}

/* What a value of a loop's body is called in it: by its place in the module. "layers.1.wq", with
   "layers" the list, is "wq"; what the module makes is "out", and what it is given "in". */
static const char *name_in_module(int value)
{
  const struct value *v = &graph->value[value];
  const struct value *first = v->family == NONE ? NULL : &graph->value[v->family];
  if (!loops() || !first || (v->family != value && !v->step) || first->sibling == NONE)
    return value_name(value);
  const char *name = value_name(first->sibling), *mark = strncmp(name, "d_", 2) ? "" : "d_";
  const char *list = graph->module[first->list].path;
  char *prefix = text("%s%s%s", mark, list, *list ? "." : "");
  if (strncmp(name, prefix, strlen(prefix))) return value_name(value);
  char *rest;
  long number = strtol(name + strlen(prefix), &rest, 10) - 1 + v->step;
  if (*rest == '.' && number == 0) return text("%s%s", mark, rest + 1);
  if ((*rest == 0 || *rest == '_') && (number == 0 || number == -1))
    return text("%s%s%s", mark, number ? "in" : "out", rest);
  return value_name(value);
}

/* Whether it is made on the way to a gradient and has no name but its module's. */
static bool is_on_the_way(const struct value *v)
{
  const struct op *op = v->op == NONE ? NULL : &graph->op[v->op];
  return op && op->phase == BACKWARD && !op->again && op->module != NONE && *v->name &&
         !strcmp(v->name, graph->module[op->module].path);
}

const char *local_name(int value)
{
  while (shown_by(value) != NONE) value = shown_by(value);
  const struct value *v = &graph->value[value];
  const char *name = name_in_module(value);
  return is_on_the_way(v) ? text("%s.%s", name, op_name(&graph->op[v->op])) : name;
}

/* "m->w.layers[0].wq" as "m->w.layers[l].wq": the number is where it differs from module 1's. */
static const char *with_index(int value)
{
  const char *name = memory_name[value];
  int sibling = graph->value[value].sibling;
  if (!name || sibling == NONE || !memory_name[sibling]) return name;
  int at = 0;
  while (name[at] && name[at] == memory_name[sibling][at]) at++;
  return text("%.*sl%s", at, name, name + at + 1);
}

const char *c_name(int value)
{
  if (!has_part(value)) return NULL;
  if (local && local[value]) return local[value];
  if (memory_name[value]) return loops() ? with_index(value) : memory_name[value];
  return storage_of(value) == value ? NULL : c_name(storage_of(value));
}

bool has_some_of(enum role role)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == role && v->op == NONE && c_name(i)) return true;
  }
  return false;
}

/* What comments call a value: as its module does, with the number by which the function that is
   being written tells it from others of that name. */
const char *spoken_name(int value)
{
  const char *name = local_name(value);
  if (local && local[value]) name = spared_name(name);
  const char *plain = identifier(name);
  size_t n = strlen(plain);
  bool numbered = local && local[value] && !strncmp(local[value], plain, n) && local[value][n];
  return numbered ? text("%s%s", name, local[value] + n) : name;
}

static void count_place(void *to, int op, int times)
{
  (void)op, (void)times;
  ++*(int *)to;
}

/* The phases' functions, in their order: each with the place in the program where it ends. */
struct phase_end {
  int function, place;
};
static struct {
  int n;
  struct phase_end *at;
} ends;

static void find_ends(void)
{
  int place = 0;
  ends.n = 0;
  ends.at = alloc((size_t)(graph->nfunction + 1) * sizeof *ends.at);
  for (int i = 0; i < graph->nfunction; i++) {
    if (!is_phase(&graph->function[i])) continue;
    each_op_of(&graph->function[i], count_place, &place);
    ends.at[ends.n++] = (struct phase_end){i, place};
  }
}

void name_values(int of_rank)
{
  named_rank = of_rank;
  speaking = NULL;
  local = NULL;
  given_names = (struct scope){0};
  find_ends();
  memory_name = alloc((size_t)(graph->nvalue + 1) * sizeof *memory_name);
  find_alignments(of_rank);
  declare_memory();
}

/* ---------------------------------------------------------------------------------- activations */

/* "(float *)(m->arena + 128)" */
static char *arena_address(const struct value *v, const char *at)
{
  return text("(%s *)(m->arena + %s)", c_type(v->type), at);
}

/* The bytes of the family's value at module l + step. */
static char *moving_address(int value, int step)
{
  const struct value *v = &graph->value[value];
  struct allocation a = allocation_of(value);
  char *base = text("%lld", (long long)a.offset);
  if (a.depth == 1) return arena_address(v, base);
  char *l = !step ? "l" : text("(l %c 1)", step < 0 ? '-' : '+');
  char *slot = a.depth < speaking->count ? text("%s %% %d", l, a.depth) : l;
  return arena_address(v, text("%s + %s * %lldL", base, slot, (long long)arena_stride(a.storage)));
}

/* Whether the value's bytes are in the arena, whoever's they are. */
static bool is_activation(int value)
{
  const struct value *v = &graph->value[value], *place = &graph->value[storage_of(value)];
  if (v->step) return v->stored;
  return v->stored && v->op != NONE && place->role == ACTIVATION && !place->is_output;
}

/* The bytes of one certain value, of whatever family. */
static const char *own_address(int value)
{
  const struct value *v = &graph->value[value];
  if (!is_activation(value)) return memory_name[memory_name[value] ? value : storage_of(value)];
  return arena_address(v, text("%lld", (long long)allocation_of(value).offset));
}

static const char *address(int value)
{
  const struct value *v = &graph->value[value];
  if (v->step)
    return text("%s ? %s : %s", v->step < 0 ? "l > 0" : text("l < %d", speaking->count - 1),
                moving_address(v->family, v->step), own_address(v->initial));
  if (loops() && v->family == value) return moving_address(value, 0);
  return own_address(value);
}

/* "forward", "forward .. backward": in which phases it is needed. */
static const char *lifetime(int value)
{
  static const char *const phase[] = {"forward", "backward", "update", "gather"};
  enum phase from = graph->op[graph->value[value].op].phase, to = from;
  for (int i = 0; i < ends.n; i++) {
    if (allocation_of(value).last >= ends.at[i].place) continue;
    to = graph->function[ends.at[i].function].phase;
    break;
  }
  return from == to ? phase[from] : text("%s .. %s", phase[from], phase[to]);
}

static void put_local(struct buffer *b, int value)
{
  const struct value *v = &graph->value[value];
  struct shape here = local_shape(value, named_rank);
  struct buffer about = {0};
  int storage = storage_of(value);
  put(&about, "// %s", shape_text(here));
  if (!same_shape(here, v->shape)) put(&about, " of %s", shape_text(v->shape));
  put(&about, "  %s",
      holds_pieces(value) ? "pieces of an exchange"
      : is_buffer(value)  ? "values that travel together"
                          : layout_text(v->layout));
  if (v->order) put(&about, ", %s", order_text(v));
  if (v->step)
    put(&about, "  made by the module %s", v->step < 0 ? "before" : "behind");
  else if (storage != value && local[storage] && local[storage] != local[value])
    put(&about, "  %s %s", is_buffer(storage) ? "part of" : "in place of", local[storage]);
  else
    put(&about, "  %s", lifetime(storage));
  char *line = text("  %s *const %s = %s;", c_type(v->type), local[value], address(value));
  enum { COLUMN = 52, COLUMNS = 100 };
  if (strlen(line) <= COLUMN && COLUMN + 1 + about.length <= COLUMNS)
    put(b, "%-*s %s\n", COLUMN, line, about.text);
  else
    put(b, "%s\n%s\n", wrapped(text("  %s", about.text), "  ", "  //     "),
        wrapped(line, " : ", "      "));
}

/* The values that the function at hand reads or writes, in their order; and by value whether it
   does. */
static struct list used_values;
static bool *used;

static void use(const int *list, int n)
{
  for (int i = 0; i < n; i++) {
    if (!used[list[i]]) add(&used_values, list[i]);
    used[list[i]] = true;
  }
}

static int by_number(const void *a, const void *b)
{
  return *(const int *)a - *(const int *)b;
}

static void find_used(const struct function *f)
{
  int *list = NULL, room = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
    use(list, op_reads(op, list));
    use(list, op_writes(op, list));
  }
  qsort(used_values.at, (size_t)used_values.n, sizeof *used_values.at, by_number);
}

/* Forgets the names of the function before. */
static void forget_locals(void)
{
  if (!local) {
    local = alloc((size_t)(graph->nvalue + 1) * sizeof *local);
    declares = alloc((size_t)(graph->nvalue + 1) * sizeof *declares);
    used = alloc((size_t)(graph->nvalue + 1) * sizeof *used);
    used_values = (struct list){0};
  }
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    local[value] = NULL;
    declares[value] = used[value] = false;
  }
  used_values.n = 0;
}

/* What tells a value that was moved from the one of the same name that it was. */
static const char *moved_suffix(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE || is_buffer(value)) return "";
  const struct op *op = &graph->op[v->op];
  switch (op->kind) {
  case OP_all_gather:
    return "_whole";
  case OP_reduce_scatter:
  case OP_slice:
    return "_cut";
  case OP_all_to_all:
    return "_exchanged";
  case OP_exchange:
    return holds_pieces(value) ? "_pieces" : "_exchanged";
  case OP_pack:
  case OP_pack_pieces:
    return "_packed";
  default:
    return strcmp(op_name(op), "reorder") ? "" : "_reordered";
  }
}

/* The variable that stands for a value: what is made in place under the same name is the same one,
   and so is a view of what the function uses too. */
static const char *variable(int value, struct scope *scope)
{
  if (local[value]) return local[value];
  for (int in = shown_by(value); in != NONE; in = shown_by(in))
    if (used[in] && is_activation(in)) return local[value] = variable(in, scope);
  int place = storage_of(value);
  const char *wanted = identifier(local_name(value));
  bool same = place != value && local[place] && !strcmp(address(place), address(value)) &&
              !strcmp(wanted, identifier(local_name(place)));
  declares[value] = !same;
  if (!same) wanted = text("%s%s", wanted, moved_suffix(value));
  return local[value] = same ? local[place] : unique_name(scope, wanted);
}

bool clashes_with_kernels(void)
{
  for (const char *const *name = kernel_names(); *name; name++)
    if (is_name_given(&given_names, *name)) return true;
  return false;
}

void name_locals(const struct function *f)
{
  forget_locals();
  find_used(f);
  struct scope scope = {.local = true};
  for (const char *const *name = kernel_names(); *name; name++) unique_name(&scope, *name);
  int kernels = scope.n;
  speaking = f;
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    if (is_activation(value) && has_part(value)) variable(value, &scope);
  }
  for (int i = kernels; i < scope.n; i++)
    if (!is_name_given(&given_names, scope.name[i].text))
      give_name(&given_names, scope.name[i].text);
}

/* The words of a text that has_word finds in it, found at once. */
static struct memo words_of(const char *text)
{
  struct memo words = {0};
  static struct query q;
  bool quoted = false, comment = false;
  for (const char *c = text; *c;) {
    size_t n = strspn(c, word_letters);
    bool member = c > text && (c[-1] == '.' || (c > text + 1 && c[-1] == '>' && c[-2] == '-'));
    if (n && !comment && !member && !(c > text && c[-1] == '\'')) {
      begin_query(&q);
      ask_piece(&q, c, n);
      number_of_query(&words, &q);
    }
    c += n;
    if (n || !*c) continue;
    if (*c == '"') quoted = !quoted;
    if (!quoted && c[0] == '/' && c[1] == '/') comment = true;
    if (*c == '\n') quoted = comment = false;
    c++;
  }
  return words;
}

char *local_declarations(const char *code)
{
  struct buffer b = {0};
  struct memo words = words_of(code);
  struct query q = {0};
  put_text(&b, "", 0);
  for (int i = 0, known = words.n; i < used_values.n; i++) {
    int value = used_values.at[i];
    if (!declares[value]) continue;
    begin_query(&q);
    ask_text(&q, local[value]);
    if (number_of_query(&words, &q) < known) put_local(&b, value);
  }
  if (b.length) put(&b, "\n");
  return b.text;
}
