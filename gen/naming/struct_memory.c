/* struct_memory.c: the struct of all of a rank's memory, and the names of its members. */
#include "naming/naming.h"

#include <stdlib.h>
#include <string.h>

int named_rank;
const char **memory_name; /* by value */
static struct buffer declaration;
static bool leaves_none_out; /* values that the rank has no part of have members, too */

/* "20 * 16" */
static char *product_of_sizes_text(struct shape s)
{
  struct buffer b = {0};
  if (elements(s) > INT32_MAX) put(&b, "(size_t)");
  for (int d = 0; d < s.ndim; d++) put(&b, "%s%lld", d ? " * " : "", (long long)s.size[d]);
  if (!s.ndim) put(&b, "1");
  return b.text;
}

/* A parameter, and the rest of its dotted name. */
struct leaf {
  int value;
  const char *rest;
};

bool has_part(int value)
{
  return leaves_none_out || elements(local_shape(value, named_rank)) > 0;
}

static size_t first_word(const char *s)
{
  return strcspn(s, ".");
}

/* Adjacent children of a struct that are used as one array, too: a union of both. */
struct joined {
  const char *path, *first, *last; /* "m->w.layers[0].attention.", "wq", "wv" */
  const char *type, *name;         /* "float", "wq_wk_wv" */
  int64_t n;
};

static struct joined *joined;
static int njoined, joined_room;

bool join_members(const char *path, const char *const *child, int n, const char *type,
                  const char *name, int64_t size)
{
  for (int i = 0; i < njoined; i++) {
    const struct joined *j = &joined[i];
    if (strcmp(j->path, path)) continue;
    if (!strcmp(j->name, name)) return j->n == size && !strcmp(j->type, type);
    for (int k = 0; k < n; k++)
      if (!strcmp(j->first, child[k]) || !strcmp(j->last, child[k])) return false;
  }
  GROW(joined, njoined, joined_room);
  joined[njoined++] = (struct joined){path, child[0], child[n - 1], type, name, size};
  return true;
}

/* Where each child of a module begins among its leaves; returns how many children. */
static int children_of_module(const struct leaf *leaf, int n, int *begin)
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

/* The leaves without their first word. */
static struct leaf *below(const struct leaf *leaf, int n)
{
  struct leaf *copy = alloc((size_t)n * sizeof *copy);
  for (int i = 0; i < n; i++)
    copy[i] =
        (struct leaf){.value = leaf[i].value, .rest = leaf[i].rest + first_word(leaf[i].rest) + 1};
  return copy;
}

/* The child's number in its list; NONE if it is in none. */
static int number_of_child(const struct leaf *child)
{
  const char *rest;
  return child->rest[first_word(child->rest)] ? leading_number('.', child->rest, &rest) : NONE;
}

/* The number of the `count` children, from the first on, that are a list: called i, i + 1, ... and
   with the same members. In a pipeline a rank has some of a list's modules. */
static int count_list(const struct leaf *leaf, const int *begin, int count)
{
  int m = begin[1] - begin[0], first = number_of_child(&leaf[begin[0]]), n = 1;
  if (first == NONE) return 1;
  for (; n < count; n++) {
    const struct leaf *child = &leaf[begin[n]];
    int number = number_of_child(child);
    if (number == NONE || (number != first + n && !graph->stages)) break;
    if (begin[n + 1] - begin[n] != m) break;
    /* Whether two children have the same members. */
    const struct leaf *a = &leaf[begin[0]];
    bool same_leaves = true;
    for (int i = 0; i < m && same_leaves; i++) {
      const struct value *v = &graph->value[a[i].value], *w = &graph->value[child[i].value];
      same_leaves =
          !strcmp(a[i].rest + first_word(a[i].rest), child[i].rest + first_word(child[i].rest)) &&
          v->type == w->type && same_shape(v->shape, w->shape) && same_layout(v->layout, w->layout);
    }
    if (!same_leaves) break;
  }
  return n;
}

static char *tree_text(const struct leaf *leaf, int n, const char *path, int indent);

/* The children, n leaves, which have the same members: an array of structs. False if it has none.
 */
static bool put_array(struct buffer *b, const struct leaf *leaf, int n, int count, const char *path,
                      const char *name, int indent)
{
  int m = n / count;
  const char *first = text("%s%s[0].", path, name);
  char *members = tree_text(below(leaf, m), m, first, indent + 2);
  if (!*members) return false;
  for (int i = m; i < n; i++) {
    const char *equal = memory_name[leaf[i % m].value];
    if (equal)
      memory_name[leaf[i].value] = text("%s%s[%d].%s", path, name, i / m, equal + strlen(first));
  }
  put(b, "%*sstruct {\n%s%*s} %s[%d];\n", indent, "", members, indent, "", name, count);
  return true;
}

/* The same of all leaves, if they are a list from its first module on, or in a pipeline of some. */
static bool put_list_members(struct buffer *b, const struct leaf *leaf, int n, const char *path,
                             const char *name, int indent)
{
  int *begin = alloc((size_t)(n + 1) * sizeof *begin), count = children_of_module(leaf, n, begin);
  bool from_start = graph->stages || number_of_child(leaf) == 0;
  return count > 1 && from_start && count_list(leaf, begin, count) == count &&
         put_array(b, leaf, n, count, path, name, indent);
}

/* The members of a module's child, whose n leaves these are, or that is one. */
static void put_child(struct buffer *b, const struct leaf *child, int n, const char *path,
                      const char *name, int indent)
{
  if (child->rest[first_word(child->rest)] == 0) {
    if (!has_part(child->value)) return;
    memory_name[child->value] = text("%s%s", path, name);
    const char *type = c_type(graph->value[child->value].type);
    int value = child->value;
    struct shape here = local_shape(value, named_rank);
    const struct value *v = &graph->value[value];
    char *member = text("%s %s[%s];", type, name, product_of_sizes_text(here));
    put(b, "%*s%-*s // %s", indent, "", 40 - indent, member, shape_text(here));
    if (!same_shape(here, v->shape)) put(b, " of %s", shape_text(v->shape));
    put(b, "  %s\n", layout_text(v->layout));
    return;
  }
  struct leaf *inner = below(child, n);
  if (put_list_members(b, inner, n, path, name, indent)) return;
  char *members = tree_text(inner, n, text("%s%s.", path, name), indent + 2);
  if (*members) put(b, "%*sstruct {\n%s%*s} %s;\n", indent, "", members, indent, "", name);
}

/* The members for leaf[0 .. n-1], which are in the order of the tree. */
static void put_tree(struct buffer *b, const struct leaf *leaf, int n, const char *path, int indent)
{
  int *begin = alloc((size_t)(n + 1) * sizeof *begin), count = children_of_module(leaf, n, begin);
  struct scope scope = {0};
  const struct joined *within = NULL;
  for (int i = 0, run; i < count; i += run) {
    const struct leaf *child = &leaf[begin[i]];
    int m = begin[i + 1] - begin[i];
    run = count_list(leaf, begin + i, count - i);
    if (run > 1) {
      /* "n3_to_60": a run of modules with the same members, in a list where others have other ones.
       */
      const struct leaf *last = &leaf[begin[i + run - 1]];
      char *run_name = identifier(text("%d_to_%d", number_of_child(child), number_of_child(last)));
      const char *name = unique_name(&scope, run_name);
      put_array(b, child, begin[i + run] - begin[i], run, path, name, indent);
      continue;
    }
    size_t word = first_word(child->rest);
    const char *name = unique_name(&scope, identifier(text("%.*s", (int)word, child->rest)));
    bool is_outside = !within;
    for (int k = 0; k < njoined && !within; k++)
      if (!strcmp(joined[k].path, path) && !strcmp(joined[k].first, name)) within = &joined[k];
    if (is_outside && within) {
      char *array = text("%s %s[%lld];", within->type, within->name, (long long)within->n);
      put(b, "%*sunion {\n%*s%-*s // %s to %s as one\n%*sstruct {\n", indent, "", indent + 2, "",
          38 - indent, array, within->first, within->last, indent + 2, "");
      indent += 4;
    }
    put_child(b, child, m, path, name, indent);
    if (within && !strcmp(within->last, name)) {
      within = NULL;
      indent -= 4;
      put(b, "%*s};\n%*s};\n", indent + 2, "", indent, "");
    }
  }
}

static char *tree_text(const struct leaf *leaf, int n, const char *path, int indent)
{
  enum { OUTERMOST = 2 };
  struct buffer b = {0};
  put_text(&b, "", 0);
  /* The model itself may be a list. */
  if (indent != OUTERMOST || !put_list_members(&b, leaf, n, path, "modules", indent))
    put_tree(&b, leaf, n, path, indent);
  return b.text;
}

/* Members of struct memory that are no states. */
static const char *const other_members[] = {
    "w",   "grad", "frozen",    "sum",   "batch",      "batches", "cache", "outputs",
    "now", "loss", "grad_norm", "noted", "noted_rows", "parts",   "arena", "workspace"};

/* The members of struct memory with the states of each kind, by the kind's name. */
struct kinds {
  struct scope members;
  int n, room;
  struct {
    const char *kind, *member;
  } * at;
};

/* "exp_avg" of "optim.exp_avg.in_proj.weight"; "sum_2" where it is the name of another member. */
static const char *state_member(struct kinds *k, int value)
{
  const char *kind = strchr(graph->value[value].name, '.') + 1;
  kind = text("%.*s", (int)first_word(kind), kind);
  for (int i = 0; i < k->n; i++)
    if (!strcmp(k->at[i].kind, kind)) return k->at[i].member;
  GROW(k->at, k->n, k->room);
  k->at[k->n].kind = kind;
  return k->at[k->n++].member = unique_name(&k->members, identifier(kind));
}

/* A struct of all values with this role, frozen or not, of outputs for ACTIVATION. False if this
   rank has none. */
static bool put_struct(struct buffer *b, const char *name, enum role role, bool frozen,
                       const char *path)
{
  int n = 0, room = 0;
  struct leaf *leaf = NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (!(v->role == role && !(role == ACTIVATION && !v->is_output)) ||
        graph->value[i].frozen != frozen || graph->value[i].on_other_stages)
      continue;
    GROW(leaf, n, room);
    leaf[n++] = (struct leaf){.value = i, .rest = graph->value[i].name};
  }
  char *members = n ? tree_text(leaf, n, path, 2) : "";
  if (!*members) return false;
  put(b, "struct %s {\n%s};\n\n", name, members);
  return true;
}

/* States that not every parameter has, or that have another shape, have a struct for each kind. */
static void put_states_apart(struct kinds *kinds, struct buffer *b, struct buffer *members,
                             const char *aligned)
{
  for (int i = 0; i < graph->nvalue; i++) {
    if (graph->value[i].role != STATE || !is_apart(i)) continue;
    struct list like = states_like(i);
    struct leaf *leaf = alloc((size_t)like.n * sizeof *leaf);
    const char *member = state_member(kinds, i);
    if (like.at[0] != i) continue;
    int n = 0;
    for (int k = 0; k < like.n; k++)
      if (!graph->value[like.at[k]].on_other_stages)
        leaf[n++] = (struct leaf){like.at[k], graph->value[graph->value[like.at[k]].of].name};
    if (!n) continue;
    char *tree = tree_text(leaf, n, text("m->%s.", member), 2);
    if (!*tree) continue;
    put(b, "struct %s_states {\n%s};\n\n", member, tree);
    put(members, "  %sstruct %s_states %s;\n", aligned, member, member);
  }
}

/* Sums over batches have a struct of their own: those of gradients that are larger than these, and
   those of metrics. */
static bool put_sums_struct(struct buffer *b)
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
  put(b,
      "// Sums over the batches of a step, of gradients or for metrics, before they are "
      "reduced.\nstruct sums {\n%s};\n\n",
      members);
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == SUMS) memory_name[i] = memory_name[first[graph->value[i].of]];
  return true;
}

/* The structs of all values by their roles, and the members that they are. */
static void put_structs(struct buffer *members)
{
  struct kinds k = {0};
  for (size_t i = 0; i < sizeof other_members / sizeof *other_members; i++)
    unique_name(&k.members, other_members[i]);
  struct kinds kinds = k;
  const char *aligned =
      target->member_alignment ? text("alignas(%d) ", target->member_alignment) : "";
  if (put_struct(&declaration, "parameters", PARAMETER, false, "m->w.")) {
    put(members, "  %sstruct parameters w", aligned);
    /* The gradients and states of a parameter have the same place in their structs as it has in its
       own. */
    struct scope given = {0};
    for (int i = 0; i < graph->nvalue; i++) {
      const struct value *v = &graph->value[i];
      if (v->role != GRADIENT && v->role != STATE) continue;
      const char *parameter = memory_name[v->of];
      if (!parameter || (v->role == STATE && is_apart(i))) continue;
      const char *member = v->role == STATE ? state_member(&kinds, i) : "grad";
      memory_name[i] = text("m->%s.%s", member, parameter + strlen("m->w."));
      if (!is_name_given(&given, member)) put(members, ", %s", unique_name(&given, member));
    }
    put(members, ";\n");
  }
  put_states_apart(&kinds, &declaration, members, aligned);
  if (put_struct(&declaration, "frozen", PARAMETER, true, "m->frozen."))
    put(members, "  %sstruct frozen frozen; // parameters that are not trained\n", aligned);
  if (put_sums_struct(&declaration)) put(members, "  %sstruct sums sum;\n", aligned);
  if (put_struct(&declaration, "batch", BATCH, false, "m->batch."))
    put(members, "  %sstruct batch batch%s;\n", aligned,
        keeps_batches() ? text(", batches[%d]", plan_options->accumulate) : "");
  if (put_struct(&declaration, "cache", CACHE, false, "m->cache."))
    put(members, "  %sstruct cache cache; // kept from call to call\n", aligned);
  if (put_struct(&declaration, "outputs", ACTIVATION, false, "m->outputs."))
    put(members, "  %sstruct outputs outputs;\n", aligned);
}

const char *const *names_on_all_ranks(void)
{
  struct buffer members = {0};
  const char **of_rank = memory_name;
  const struct buffer declared = declaration;
  declaration = (struct buffer){0};
  memory_name = alloc((size_t)(graph->nvalue + 1) * sizeof *memory_name);
  leaves_none_out = true;
  put_structs(&members);
  leaves_none_out = false;
  const char *const *names = memory_name;
  memory_name = of_rank;
  declaration = declared;
  return names;
}

static void write_declaration(void)
{
  declaration = (struct buffer){0};
  struct buffer members = {0};
  put_text(&members, "", 0);
  put_structs(&members);
  if (has_step_constants()) put(&members, "  struct constants now;\n");
  if (graph->loss != NONE) {
    put(&members, "  float loss;\n");
    for (int i = 0; i < graph->nvalue; i++)
      if (graph->value[i].role == LOSS) memory_name[i] = "&m->loss";
  }
  if (graph->norm != NONE) {
    put(&members, "  float grad_norm;\n");
    memory_name[graph->norm] = "&m->grad_norm";
  }
  if (notes_indices())
    put(&members,
        "  unsigned long long noted[%d]; // a value of index_uses[i] out of range, or 0\n",
        graph->nindex_use);
  if (row_notes().n)
    put(&members,
        "  unsigned long long noted_rows; // than one of row_bound[] has room for, or 0\n");
  if (kernel_scratch(named_rank))
    put(&members, "  alignas(64) float parts[%lld];\n", (long long)kernel_scratch(named_rank));
  if (arena_bytes())
    put(&members, "  alignas(64) unsigned char arena[%lld];\n", (long long)arena_bytes());
  if (product_workspace())
    put(&members, "  alignas(256) unsigned char workspace[%lld]; // of matrix products\n",
        (long long)product_workspace());
  put(&declaration, "// All of a rank's memory.\nstruct memory {\n%s};\n", members.text);
}

void declare_memory(void)
{
  njoined = 0;
  write_declaration();
}

/* Which members are joined is known when statements are written. */
char *memory_declaration(void)
{
  if (njoined) write_declaration();
  return declaration.text;
}
