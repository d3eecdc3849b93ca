/* names.c: what things are called in the program of one class of ranks, and the declarations of its
   memory. Names come from the model: a struct mirrors the module tree, gradients and the optimizer's
   state are the same struct again, and an activation is called after the module that made it. */
#include "tpgen.h"

#include <stdlib.h>
#include <string.h>

static int rank;
static const char **name_of;       /* by value */
static struct buffer declaration;

const char *c_type(enum type t)
{
  static const char *const name[] = {[F32] = "float", [BF16] = "bf16", [I32] = "int", [I64] = "long"};
  return name[t];
}

const char *counter_type(int64_t n)
{
  return n < INT32_MAX ? "int" : "long";
}

char *product_text(struct shape s)
{
  struct buffer b = {0};
  if (elements(s) > INT32_MAX) put(&b, "(size_t)");
  for (int d = 0; d < s.ndim; d++) put(&b, "%s%lld", d ? " * " : "", (long long)s.size[d]);
  if (!s.ndim) put(&b, "1");
  return b.text;
}

/* ------------------------------------------------------------------------- names in one scope */

/* The names given out in a scope; a second comer gets a number. */
struct scope {
  int n, room;
  const char **name;
};

static const char *unique(struct scope *s, const char *wanted)
{
  const char *name = wanted;
  for (int again = 2;; again++) {
    bool taken = false;
    for (int i = 0; i < s->n; i++) taken |= !strcmp(s->name[i], name);
    if (!taken) break;
    name = text("%s_%d", wanted, again);
  }
  GROW(s->name, s->n, s->room);
  s->name[s->n++] = name;
  return name;
}

/* ----------------------------------------------------------------- the tree of the parameters */

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

static void put_tree(struct buffer *b, const struct leaf *leaf, int n, const char *path, int indent);

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
    copy[i] = (struct leaf){.value = leaf[i].value, .rest = leaf[i].rest + first_word(leaf[i].rest) + 1};
  return copy;
}

static char *tree_text(const struct leaf *leaf, int n, const char *path, int indent)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  put_tree(&b, leaf, n, path, indent);
  return b.text;
}

/* A list of modules called 0, 1, ... that hold the same: an array of structs. False if it isn't. */
static bool put_array(struct buffer *b, const struct leaf *leaf, int n, const char *path,
                      const char *name, int indent)
{
  int *begin = alloc((size_t)(n + 1) * sizeof *begin), count = children(leaf, n, begin);
  char *members = NULL;
  for (int i = 0; i < count; i++) {
    const struct leaf *child = &leaf[begin[i]];
    char *number = text("%d.", i);
    if (strncmp(child->rest, number, strlen(number))) return false;
    int m = begin[i + 1] - begin[i];
    char *mine = tree_text(below(child, m), m, text("%s%s[%d].", path, name, i), indent + 2);
    if (members && strcmp(members, mine)) return false;
    members = mine;
  }
  if (count < 2 || !*members) return false;
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

/* --------------------------------------------------------------------------- struct memory */

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
  struct leaf *leaf = alloc((size_t)(graph->nvalue + 1) * sizeof *leaf);
  int n = 0;
  for (int i = 0; i < graph->nvalue; i++)
    if (is_role(i, role)) leaf[n++] = (struct leaf){.value = i, .rest = graph->value[i].name};
  char *members = tree_text(leaf, n, path, 2);
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
    bool known = false;
    for (int k = 0; k < kinds.n; k++) known |= !strcmp(kinds.name[k], kind);
    if (!known) put(members, ", %s", unique(&kinds, kind));
  }
}

static void declare_memory(void)
{
  declaration = (struct buffer){0};
  struct buffer members = {0};
  put_text(&members, "", 0);
  if (put_struct(&declaration, "parameters", PARAMETER, "m->w.")) {
    put(&members, "  struct parameters w");
    name_followers(&members);
    put(&members, ";\n");
  }
  if (put_struct(&declaration, "batch", BATCH, "m->batch."))
    put(&members, "  struct batch batch;\n");
  if (put_struct(&declaration, "outputs", ACTIVATION, "m->outputs."))
    put(&members, "  struct outputs outputs;\n");
  if (graph->loss != NONE) {
    put(&members, "  float loss;\n");
    name_of[graph->loss] = "&m->loss";
  }
  if (graph->arena_bytes)
    put(&members, "  alignas(64) unsigned char arena[%lld];\n", (long long)graph->arena_bytes);
  put(&declaration, "// All of a rank's memory.\nstruct memory {\n%s};\n", members.text);
}

char *memory_declaration(void)
{
  return declaration.text;
}

/* ------------------------------------------------------------------------------- activations */

static bool in_arena(int value)
{
  const struct value *v = &graph->value[value];
  return v->stored && v->role == ACTIVATION && !v->is_output && v->op != NONE;
}

/* A value that is made in place of another has a name of its own for the same address, unless it is
   called the same. */
static void name_activations(void)
{
  struct scope scope = {0};
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (!in_arena(i) || !in_arena(v->storage)) continue;
    const char *wanted = identifier(value_name(i));
    bool same = v->storage != i && !strcmp(wanted, identifier(value_name(v->storage)));
    name_of[i] = same ? name_of[v->storage] : unique(&scope, wanted);
  }
}

void name_values(int of_rank)
{
  rank = of_rank;
  name_of = alloc((size_t)(graph->nvalue + 1) * sizeof *name_of);
  declare_memory();
  name_activations();
}

const char *c_name(int value)
{
  if (!has_part(value)) return NULL;
  return name_of[value] ? name_of[value] : name_of[graph->value[value].storage];
}

static const char *lifetime(const struct value *v)
{
  const char *from = graph->op[v->op].phase == FORWARD ? "forward" : "backward";
  int forward = graph->nfunction ? graph->function[0].nop : 0;
  bool crosses = graph->op[v->op].phase == FORWARD && v->last >= forward;
  return crosses ? text("%s .. backward", from) : from;
}

static void put_local(struct buffer *b, int value)
{
  const struct value *v = &graph->value[value], *place = &graph->value[v->storage];
  struct shape here = local_shape(value, rank);
  char *line = text("float *const %s = (float *)(m->arena + %lld);", name_of[value],
                    (long long)v->offset);
  put(b, "  %-50s // %s", line, shape_text(here));
  if (!same_shape(here, v->shape)) put(b, " of %s", shape_text(v->shape));
  put(b, "  %s", layout_text(v->layout));
  if (v->storage == value)
    put(b, "  %s\n", lifetime(place));
  else
    put(b, "  in place of %s\n", name_of[v->storage]);
}

char *local_declarations(const struct function *f)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  bool *used = alloc((size_t)(graph->nvalue + 1) * sizeof *used);
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    int *list = alloc((size_t)op_width(op) * sizeof *list);
    for (int n = op_reads(op, list); n--;) used[list[n]] = true;
    for (int n = op_writes(op, list); n--;) used[list[n]] = true;
  }
  for (int i = 0; i < graph->nvalue; i++) {
    int place = graph->value[i].storage;
    if (!used[i] || !name_of[i] || !in_arena(i) || !has_part(i)) continue;
    bool same = place != i && name_of[place] == name_of[i];
    if (same && used[place]) continue;
    put_local(&b, same ? place : i);
    if (same) used[place] = true;
  }
  if (b.length) put(&b, "\n");
  return b.text;
}
