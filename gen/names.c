/* names.c: what things are called in the program of one class of ranks, and the declarations of its
   memory. Names come from the model: a struct mirrors the module tree, gradients and the
   optimizer's state are the same struct again, and an activation is called after the module that
   made it. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

static int rank;
static const char **name_of; /* by value */
static struct buffer declaration;

const char *c_type(enum type t)
{
  static const char *const name[] = {[F32] = "float", [BF16] = "bf16",          [I32] = "int",
                                     [I64] = "long",  [BOOL] = "unsigned char", [F64] = "double"};
  return name[t];
}

const char *counter_type(int64_t n)
{
  return n < INT32_MAX ? "int" : "long";
}

/* "20 * 16" */
static char *product_text(struct shape s)
{
  struct buffer b = {0};
  if (elements(s) > INT32_MAX) put(&b, "(size_t)");
  for (int d = 0; d < s.ndim; d++) put(&b, "%s%lld", d ? " * " : "", (long long)s.size[d]);
  if (!s.ndim) put(&b, "1");
  return b.text;
}

static const char *identifier_of_group(int group)
{
  const char *name = identifier(graph->group[group].name);
  for (int i = 0; i < group; i++)
    if (!strcmp(identifier(graph->group[i].name), name)) return text("%s_%d", name, group + 1);
  return name;
}

const char *group_name(int group)
{
  return text("over_%s", identifier_of_group(group));
}

const char *stream_name(int group)
{
  return text("%s_stream", identifier_of_group(group));
}

/* --------------------------------------------------------------------------- names in one scope */

struct name {
  const char *text;
  int again; /* the last number that was tried behind it */
};

/* The names given out in a scope, found by their hash; a second comer gets a number. Local: of
   variables. */
struct scope {
  bool local;
  int n, room;
  struct name *name;
  int places, *at; /* open addressing: which of `name`, or NONE */
};

/* Where the name is, or would be. */
static int *place_of(const struct scope *s, const char *name)
{
  size_t mask = (size_t)s->places - 1, i = hash_bytes(HASH_START, name, strlen(name)) & mask;
  while (s->at[i] != NONE && strcmp(s->name[s->at[i]].text, name)) i = (i + 1) & mask;
  return &s->at[i];
}

static bool is_given(const struct scope *s, const char *name)
{
  return s->n && *place_of(s, name) != NONE;
}

static void give(struct scope *s, const char *name)
{
  if (2 * s->n >= s->places) {
    s->places = s->places ? 2 * s->places : 64;
    s->at = alloc((size_t)s->places * sizeof *s->at);
    for (int i = 0; i < s->places; i++) s->at[i] = NONE;
    for (int i = 0; i < s->n; i++) *place_of(s, s->name[i].text) = i;
  }
  GROW(s->name, s->n, s->room);
  *place_of(s, name) = s->n;
  s->name[s->n++] = (struct name){.text = name, .again = 1};
}

/* Where the language or the program has the name, its first comer is a second one. */
static const char *unique(struct scope *s, const char *wanted)
{
  if (s->local) wanted = spared_name(wanted);
  bool known = is_given(s, wanted);
  if (!known) give(s, wanted);
  if (!known && !(s->local && is_spoken(wanted))) return wanted;
  int first = *place_of(s, wanted);
  const char *name;
  do name = text("%s_%d", wanted, ++s->name[first].again);
  while (is_given(s, name) || (s->local && is_spoken(name)));
  give(s, name);
  return name;
}

/* ------------------------------------------------------------------- the tree of the parameters */

/* A parameter, and how far its dotted name has been taken apart. */
struct leaf {
  int value;
  const char *rest;
};

static bool has_part(int value)
{
  return elements(local_shape(value, rank)) > 0;
}

static void put_member(struct buffer *b, const char *type, const char *name, int value, int indent)
{
  struct shape here = local_shape(value, rank);
  const struct value *v = &graph->value[value];
  char *member = text("%s %s[%s];", type, name, product_text(here));
  put(b, "%*s%-*s // %s", indent, "", 40 - indent, member, shape_text(here));
  if (!same_shape(here, v->shape)) put(b, " of %s", shape_text(v->shape));
  put(b, "  %s\n", layout_text(v->layout));
}

static size_t first_word(const char *s)
{
  return strcspn(s, ".");
}

static void put_tree(struct buffer *b, const struct leaf *leaf, int n, const char *path,
                     int indent);

/* Where each child of a module begins among its leaves; gives how many children. */
static int children(const struct leaf *leaf, int n, int *begin)
{
  int count = 0;
  for (int i = 0; i < n; i++) {
    size_t word = first_word(leaf[i].rest);
    bool same = i && first_word(leaf[i - 1].rest) == word &&
                !strncmp(leaf[i].rest, leaf[i - 1].rest, word) && leaf[i].rest[word] == '.';
    if (!same) begin[count++] = i;
  }
  begin[count] = n;
  return count;
}

/* The leaves with their first word taken off. */
static struct leaf *below(const struct leaf *leaf, int n)
{
  struct leaf *copy = alloc((size_t)n * sizeof *copy);
  for (int i = 0; i < n; i++)
    copy[i] =
        (struct leaf){.value = leaf[i].value, .rest = leaf[i].rest + first_word(leaf[i].rest) + 1};
  return copy;
}

static char *tree_text(const struct leaf *leaf, int n, const char *path, int indent)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_tree(&b, leaf, n, path, indent);
  return b.text;
}

/* Whether two children hold the same, leaf by leaf. */
static bool same_leaves(const struct leaf *a, const struct leaf *b, int n)
{
  for (int i = 0; i < n; i++) {
    const struct value *v = &graph->value[a[i].value], *w = &graph->value[b[i].value];
    if (strcmp(a[i].rest + first_word(a[i].rest), b[i].rest + first_word(b[i].rest)) ||
        v->type != w->type || !same_shape(v->shape, w->shape) || !same_layout(v->layout, w->layout))
      return false;
  }
  return true;
}

/* Whether the leaves are those of `count` children called 0, 1, ..., m each, that hold the same. */
static bool is_list(const struct leaf *leaf, const int *begin, int count)
{
  int m = begin[1] - begin[0];
  for (int i = 0; i < count; i++) {
    const struct leaf *child = &leaf[begin[i]];
    char number[16];
    snprintf(number, sizeof number, "%d.", i);
    if (begin[i + 1] - begin[i] != m || strncmp(child->rest, number, strlen(number)) ||
        !same_leaves(leaf, child, m))
      return false;
  }
  return true;
}

/* A list of modules called 0, 1, ... that hold the same: an array of structs. False if it isn't. */
static bool put_array(struct buffer *b, const struct leaf *leaf, int n, const char *path,
                      const char *name, int indent)
{
  int *begin = alloc((size_t)(n + 1) * sizeof *begin), count = children(leaf, n, begin);
  if (count < 2 || !is_list(leaf, begin, count)) return false;
  int m = begin[1];
  const char *first = text("%s%s[0].", path, name);
  char *members = tree_text(below(leaf, m), m, first, indent + 2);
  if (!*members) return false;
  for (int i = m; i < n; i++) {
    const char *alike = name_of[leaf[i % m].value];
    if (alike)
      name_of[leaf[i].value] = text("%s%s[%d].%s", path, name, i / m, alike + strlen(first));
  }
  put(b, "%*sstruct {\n%s%*s} %s[%d];\n", indent, "", members, indent, "", name, count);
  return true;
}

/* The members for leaf[0 .. n-1], which stand in the order of the tree. */
static void put_tree(struct buffer *b, const struct leaf *leaf, int n, const char *path, int indent)
{
  int *begin = alloc((size_t)(n + 1) * sizeof *begin), count = children(leaf, n, begin);
  struct scope scope = {0};
  for (int i = 0; i < count; i++) {
    const struct leaf *child = &leaf[begin[i]];
    int m = begin[i + 1] - begin[i];
    size_t word = first_word(child->rest);
    const char *name = unique(&scope, identifier(text("%.*s", (int)word, child->rest)));
    if (child->rest[word] == 0) {
      if (!has_part(child->value)) continue;
      name_of[child->value] = text("%s%s", path, name);
      put_member(b, c_type(graph->value[child->value].type), name, child->value, indent);
      continue;
    }
    struct leaf *inner = below(child, m);
    if (put_array(b, inner, m, path, name, indent)) continue;
    char *members = tree_text(inner, m, text("%s%s.", path, name), indent + 2);
    if (*members) put(b, "%*sstruct {\n%s%*s} %s;\n", indent, "", members, indent, "", name);
  }
}

/* -------------------------------------------------------------------------------- struct memory */

/* "exp_avg" of "optim.exp_avg.in_proj.weight". */
static const char *state_kind(int value)
{
  const char *kind = strchr(graph->value[value].name, '.') + 1;
  return text("%.*s", (int)first_word(kind), kind);
}

static bool is_role(int value, enum role role)
{
  const struct value *v = &graph->value[value];
  return v->role == role && !(role == ACTIVATION && !v->is_output);
}

/* A struct of all values with this role, outputs for ACTIVATION. False if this rank has none. */
static bool put_struct(struct buffer *b, const char *name, enum role role, const char *path)
{
  int n = 0, room = 0;
  struct leaf *leaf = NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    if (!is_role(i, role)) continue;
    GROW(leaf, n, room);
    leaf[n++] = (struct leaf){.value = i, .rest = graph->value[i].name};
  }
  char *members = n ? tree_text(leaf, n, path, 2) : "";
  if (!*members) return false;
  put(b, "struct %s {\n%s};\n\n", name, members);
  return true;
}

/* The gradients and states of a parameter lie in their structs where it lies in its own. */
static void name_followers(struct buffer *members)
{
  struct scope kinds = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != GRADIENT && v->role != STATE) continue;
    const char *parameter = name_of[v->of];
    if (!parameter) continue;
    const char *kind = v->role == STATE ? state_kind(i) : "grad";
    name_of[i] = text("m->%s.%s", kind, parameter + strlen("m->w."));
    if (!is_given(&kinds, kind)) put(members, ", %s", unique(&kinds, kind));
  }
}

/* What batches add up lies in a struct of its own where it takes more room than the gradients. */
static bool put_sums(struct buffer *b)
{
  const int *first = sums_by_parameter();
  int n = 0, room = 0;
  struct leaf *leaf = NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    if (first[i] == NONE) continue;
    GROW(leaf, n, room);
    leaf[n++] = (struct leaf){first[i], graph->value[i].name};
  }
  char *members = n ? tree_text(leaf, n, "m->sum.", 2) : "";
  if (!*members) return false;
  put(b, "// What the batches of a step add up, before it is reduced.\nstruct sums {\n%s};\n\n",
      members);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == SUMS) name_of[i] = name_of[first[graph->value[i].of]];
  return true;
}

static void declare_memory(void)
{
  declaration = (struct buffer){0};
  struct buffer members = {0};
  const char *aligned = options.cuda ? "alignas(64) " : "";
  put_text(&members, "", 0);
  if (put_struct(&declaration, "parameters", PARAMETER, "m->w.")) {
    put(&members, "  %sstruct parameters w", aligned);
    name_followers(&members);
    put(&members, ";\n");
  }
  if (put_sums(&declaration)) put(&members, "  %sstruct sums sum;\n", aligned);
  if (put_struct(&declaration, "batch", BATCH, "m->batch."))
    put(&members, "  %sstruct batch batch%s;\n", aligned,
        keeps_batches() ? text(", batches[%d]", graph->accumulate) : "");
  if (put_struct(&declaration, "outputs", ACTIVATION, "m->outputs."))
    put(&members, "  %sstruct outputs outputs;\n", aligned);
  if (*constants_text()) put(&members, "  struct constants now;\n");
  if (graph->loss != NONE) {
    put(&members, "  float loss;\n");
    for (int i = 0; i < graph->nvalue; i++)
      if (graph->value[i].role == LOSS) name_of[i] = "&m->loss";
  }
  if (graph->norm != NONE) {
    put(&members, "  float grad_norm;\n");
    name_of[graph->norm] = "&m->grad_norm";
  }
  if (notes_indices())
    put(&members, "  unsigned long long noted[%d]; // what was no index\n", graph->nindex_use);
  if (options.cuda && parts_room(rank))
    put(&members, "  alignas(64) float parts[%lld];\n", (long long)parts_room(rank));
  if (graph->arena_bytes)
    put(&members, "  alignas(64) unsigned char arena[%lld];\n", (long long)graph->arena_bytes);
  if (product_workspace())
    put(&members, "  alignas(256) unsigned char workspace[%lld]; // of the products of matrices\n",
        (long long)product_workspace());
  put(&declaration, "// All of a rank's memory.\nstruct memory {\n%s};\n", members.text);
}

char *memory_declaration(void)
{
  return declaration.text;
}

/* ---------------------------------------------------------------------- names within a function */

/* All names of variables that were given since the names of values. */
static struct scope given;

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
  bool in_bucket = kind == OP_all_reduce && v->storage != value && is_buffer(v->storage);
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
  const char *name = name_of[value];
  int sibling = graph->value[value].sibling;
  if (!name || sibling == NONE || !name_of[sibling]) return name;
  int at = 0;
  while (name[at] && name[at] == name_of[sibling][at]) at++;
  return text("%.*sl%s", at, name, name + at + 1);
}

const char *c_name(int value)
{
  const struct value *v = &graph->value[value];
  if (!has_part(value)) return NULL;
  if (local && local[value]) return local[value];
  if (name_of[value]) return loops() ? with_index(value) : name_of[value];
  return v->storage == value ? NULL : c_name(v->storage);
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
  rank = of_rank;
  speaking = NULL;
  local = NULL;
  given = (struct scope){0};
  find_ends();
  name_of = alloc((size_t)(graph->nvalue + 1) * sizeof *name_of);
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
static char *moving_address(const struct value *v, int step)
{
  char *base = text("%lld", (long long)v->offset);
  if (v->depth == 1) return arena_address(v, base);
  char *l = !step ? "l" : text("(l %c 1)", step < 0 ? '-' : '+');
  char *slot = v->depth < speaking->count ? text("%s %% %d", l, v->depth) : l;
  return arena_address(v, text("%s + %s * %lldL", base, slot, (long long)arena_stride(v->storage)));
}

/* Whether the value's bytes are in the arena, whoever's they are. */
static bool is_activation(int value)
{
  const struct value *v = &graph->value[value], *place = &graph->value[v->storage];
  if (v->step) return v->stored;
  return v->stored && v->op != NONE && place->role == ACTIVATION && !place->is_output;
}

/* The bytes of one certain value, of whatever family. */
static const char *own_address(int value)
{
  const struct value *v = &graph->value[value];
  if (!is_activation(value)) return name_of[name_of[value] ? value : v->storage];
  return arena_address(v, text("%lld", (long long)v->offset));
}

static const char *address(int value)
{
  const struct value *v = &graph->value[value];
  if (v->step)
    return text("%s ? %s : %s", v->step < 0 ? "l > 0" : text("l < %d", speaking->count - 1),
                moving_address(&graph->value[v->family], v->step), own_address(v->initial));
  if (loops() && v->family == value) return moving_address(v, 0);
  return own_address(value);
}

/* "forward", "forward .. backward": in which phases it is needed. */
static const char *lifetime(const struct value *v)
{
  static const char *const phase[] = {"forward", "backward", "update", "gather"};
  enum phase from = graph->op[v->op].phase, to = from;
  for (int i = 0; i < ends.n; i++) {
    if (v->last >= ends.at[i].place) continue;
    to = graph->function[ends.at[i].function].phase;
    break;
  }
  return from == to ? phase[from] : text("%s .. %s", phase[from], phase[to]);
}

bool holds_pieces(int value)
{
  const struct value *v = &graph->value[value];
  if (v->op == NONE) return false;
  const struct op *op = &graph->op[v->op];
  return op->kind == OP_pack_pieces ||
         (op->kind == OP_exchange && !same_shape(v->shape, graph->exchange[op->exchange].whole));
}

static void put_local(struct buffer *b, int value)
{
  const struct value *v = &graph->value[value];
  struct shape here = local_shape(value, rank);
  struct buffer about = {0};
  put(&about, "// %s", shape_text(here));
  if (!same_shape(here, v->shape)) put(&about, " of %s", shape_text(v->shape));
  put(&about, "  %s",
      holds_pieces(value) ? "pieces of an exchange"
      : is_buffer(value)  ? "values that travel together"
                          : layout_text(v->layout));
  if (v->order) put(&about, ", %s", order_text(v));
  if (v->step)
    put(&about, "  made by the module %s", v->step < 0 ? "before" : "behind");
  else if (v->storage != value && local[v->storage] && local[v->storage] != local[value])
    put(&about, "  %s %s", is_buffer(v->storage) ? "part of" : "in place of", local[v->storage]);
  else
    put(&about, "  %s", lifetime(&graph->value[v->storage]));
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
  int place = graph->value[value].storage;
  const char *wanted = identifier(local_name(value));
  bool same = place != value && local[place] && !strcmp(address(place), address(value)) &&
              !strcmp(wanted, identifier(local_name(place)));
  declares[value] = !same;
  if (!same) wanted = text("%s%s", wanted, moved_suffix(value));
  return local[value] = same ? local[place] : unique(scope, wanted);
}

bool clashes_with_kernels(void)
{
  for (const char *const *name = kernel_names(); *name; name++)
    if (is_given(&given, *name)) return true;
  return false;
}

void name_locals(const struct function *f)
{
  forget_locals();
  find_used(f);
  struct scope scope = {.local = true};
  for (const char *const *name = kernel_names(); *name; name++) unique(&scope, *name);
  int kernels = scope.n;
  speaking = f;
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    if (is_activation(value) && has_part(value)) variable(value, &scope);
  }
  for (int i = kernels; i < scope.n; i++)
    if (!is_given(&given, scope.name[i].text)) give(&given, scope.name[i].text);
}

/* Whether a comment, up to the line's end, has begun before this. */
static bool in_comment(const char *text, const char *at)
{
  const char *line = at;
  while (line > text && line[-1] != '\n') line--;
  bool quoted = false;
  for (; line < at; line++) {
    if (*line == '"') quoted = !quoted;
    if (!quoted && line[0] == '/' && line[1] == '/') return true;
  }
  return false;
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

bool has_word(const char *text, const char *word)
{
  size_t n = strlen(word);
  for (const char *at = text; (at = strstr(at, word)); at++) {
    /* "m->w.c" names no variable c or w, nor does 'c'. */
    bool begins = at == text || (!strchr(letters, at[-1]) && at[-1] != '\''),
         arrow = at > text + 1 && at[-1] == '>' && at[-2] == '-',
         member = begins && at > text && (at[-1] == '.' || arrow);
    bool whole = begins && !member && (!at[n] || !strchr(letters, at[n]));
    if (whole && !in_comment(text, at)) return true;
  }
  return false;
}

/* The words of a text that has_word finds in it, found at once. */
static struct memo words_of(const char *text)
{
  struct memo words = {0};
  static struct query q;
  bool quoted = false, comment = false;
  for (const char *c = text; *c;) {
    size_t n = strspn(c, letters);
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
