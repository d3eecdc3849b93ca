/* vector.c: neighbours in memory, which a thread of a CUDA kernel reads and writes at once.

   Takes   a kernel whose loops are known; how its operands are aligned (alignment.c).
   Leaves  how many elements a vector has, and in the kernel's text the vectors: their loads before
           the loop over their elements, and their stores behind it.

   What runs along the innermost loop with a stride of one is vectors; what all of them have in
   common, or lies otherwise, is read where it is asked for. A kernel by rows goes over the row in
   several stages: vectors that more than one of them speaks of are kept, where there is room. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- elements */

char *vector_type(const struct draft *k, const char *type)
{
  return text("vec<%s, %d>", type, k->vectors.width);
}

char *place_text(const char *base, const char *index)
{
  return strcmp(index, "0") ? text("%s + %s", base, index) : copy_text(base);
}

/* Of a place there is one vector in each stage, or in all of them where they are kept; of one that
   an index names, in each stage. What is stored where something was read is "new_add_v". */
static struct vector *find_vector(struct draft *k, int value, const char *first, bool indexed,
                                  bool written)
{
  struct vectors *all = &k->vectors;
  for (int i = 0; i < all->n; i++) {
    struct vector *v = &all->list[i];
    bool kept = all->kept && !indexed && !v->indexed;
    bool here = kept || (v->from <= all->stage && all->stage <= v->until);
    if (here && v->value == value && !strcmp(v->first, first)) return v;
  }
  const char *plain = text("%s_v", argument_name(k, value)), *name = free_name(k, plain);
  if (written && strcmp(name, plain)) name = free_name(k, text("new_%s", plain));
  GROW(all->list, all->n, all->room);
  all->list[all->n] = (struct vector){.value = value,
                                      .first = first,
                                      .name = name,
                                      .from = all->stage,
                                      .until = all->stage,
                                      .indexed = indexed,
                                      .where = ""};
  return &all->list[all->n++];
}

static char *spoken_element(const struct vectors *all, struct vector *v)
{
  v->spoken = true;
  if (v->until < all->stage) v->until = all->stage;
  return text("%s%s[v]", v->name, is_kept_in_vector(v) && all->several ? "[part]" : "");
}

/* The index of the vector's first element: outside of the loop over its elements. */
static char *first_index(struct draft *k, const struct operand *operand, int dim, const char *at)
{
  const char *inner = k->loops.inner;
  k->loops.inner = NULL;
  char *index = index_text(&k->loops, operand, dim, at);
  k->loops.inner = inner;
  return index;
}

char *vector_element(struct draft *k, int value, const struct operand *operand, bool written)
{
  struct vectors *all = &k->vectors;
  if (!all->inside || !is_vector(k, value, operand)) return NULL;
  const char *first = place_text(argument_name(k, value), first_index(k, operand, NONE, NULL));
  struct vector *v = find_vector(k, value, first, false, written);
  v->written |= written;
  return spoken_element(all, v);
}

bool reads_vector_at(const struct draft *k, int value, const struct operand *operand, int dim)
{
  const struct vectors *all = &k->vectors;
  if (!all->inside) return false;
  bool along = operand->stride[dim] == 1, neighbours = is_vector(k, value, operand);
  return fits_vector(k, value, operand, all->width) && along != neighbours &&
         (along || operand->stride[dim] % all->width == 0);
}

char *indexed_vector(struct draft *k, int value, const struct operand *operand, int dim,
                     const char *at, const char *where)
{
  const char *first = place_text(argument_name(k, value), first_index(k, operand, dim, at));
  struct vector *v = find_vector(k, value, first, true, false);
  v->where = where;
  return spoken_element(&k->vectors, v);
}

/* --------------------------------------------------------------------------------- around loops */

static void put_load(struct buffer *b, const struct draft *k, const struct vector *v, int indent)
{
  const struct vectors *all = &k->vectors;
  const char *type = vector_type(k, c_type(graph->value[v->value].type));
  char *load = text("load<%d>(%s);", all->width, v->first);
  if (*v->where) load = text("%s ? load<%d>(%s) : %s{};", v->where, all->width, v->first, type);
  if (is_kept_in_vector(v) && all->declared)
    put_statement(b, indent, text("%s%s = %s", v->name, all->several ? "[part]" : "", load));
  else
    put_statement(b, indent, text("const %s %s = %s", type, v->name, load));
}

/* Whether this stage makes it: what is written is not read before. */
static bool is_made(const struct vectors *all, const struct vector *v)
{
  return v->written && v->from == all->stage;
}

void begin_vector(struct draft *k)
{
  int n = innermost_loop(&k->loops);
  if (k->vectors.width == 1) return;
  k->vectors.inside = true;
  k->loops.inner = text("%s + v", variable_text(&k->loops, k->loops.last[n]));
}

void end_vector(struct buffer *b, struct draft *k, const char *body, int indent)
{
  struct vectors *all = &k->vectors;
  all->inside = false;
  k->loops.inner = NULL;
  if (all->width == 1) {
    put(b, "%s", body);
    return;
  }
  if (all->lead.length) put(b, "%s", all->lead.text);
  all->lead.length = 0;
  for (int i = 0; i < all->n; i++) {
    const struct vector *v = &all->list[i];
    if (!v->spoken || is_made(all, v) || v->from < all->stage) continue;
    put_load(b, k, v, indent);
  }
  for (int i = 0; i < all->n; i++) {
    const struct vector *v = &all->list[i];
    if (v->spoken && is_made(all, v) && !(is_kept_in_vector(v) && all->declared))
      put(b, "%*s%s %s;\n", indent, "", vector_type(k, c_type(graph->value[v->value].type)),
          v->name);
  }
  put(b, "#pragma unroll\n");
  put(b, "%*sfor (int v = 0; v < %d; v++) {\n%s%*s}\n", indent, "", all->width, body, indent, "");
  for (int i = 0; i < all->n; i++) {
    struct vector *v = &all->list[i];
    if (v->spoken && is_made(all, v))
      put_statement(b, indent,
                    text("store(%s, %s%s);", v->first, v->name,
                         is_kept_in_vector(v) && all->several ? "[part]" : ""));
    v->spoken = false;
  }
}

/* ----------------------------------------------------------------------------------------- kept */

void put_kept_vectors(struct buffer *b, const struct draft *k, int64_t parts, int indent)
{
  if (!k->vectors.declared) return;
  for (int i = 0; i < k->vectors.n; i++) {
    const struct vector *v = &k->vectors.list[i];
    if (!is_kept_in_vector(v)) continue;
    const char *type = vector_type(k, c_type(graph->value[v->value].type));
    put(b, "%*s%s %s", indent, "", type, v->name);
    if (k->vectors.several) put(b, "[%" PRId64 "]", parts);
    put(b, ";\n");
  }
}
