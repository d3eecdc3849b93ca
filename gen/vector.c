/* vector.c: neighbours in memory, which a thread of a CUDA kernel reads and writes at once.

   Takes   a kernel whose loops are known; how its operands are aligned (align.c).
   Leaves  how many elements a vector has, and in the kernel's text the vectors: their loads before
           the loop over their elements, and their stores behind it.

   What runs along the innermost loop with a stride of one is vectors; what all of them have in
   common, or lies otherwise, is read where it is asked for. A kernel by rows goes over the row in
   several stages: vectors that more than one of them speaks of are kept, where there is room. */
#include "kernel.h"

#include <inttypes.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- width */

static bool is_vector(const struct draft *k, int value, const struct operand *operand)
{
  const struct value *v = &graph->value[value];
  return v->stored && elements(local_shape(value, k->rank)) &&
         stride_along(&k->loops, operand, innermost_loop(&k->loops)) == 1;
}

/* Whether `width` elements lie in one piece, from wherever the other loops stand. */
static bool fits(const struct draft *k, int value, const struct operand *operand, int width)
{
  int64_t bytes = width * type_bytes(graph->value[value].type);
  for (int n = 0; n < innermost_loop(&k->loops); n++)
    if (stride_along(&k->loops, operand, n) % width) return false;
  return alignment_of(value) % (bytes < 16 ? bytes : 16) == 0;
}

/* Calls `each` with every operand of the operations on elements that is read at its own place. */
static void each_operand(const struct draft *k, int *width,
                         void (*each)(const struct draft *, int, const struct operand *, int *))
{
  for (int n = 0; n < k->group->nbody; n++) {
    const struct op *op = &graph->op[k->group->body[n]];
    struct letters l;
    op_letters(op, &l);
    for (int i = 0; i <= op->nin; i++) {
      struct operand operand;
      bool other_place = (i < op->nin && reads_by_index(op, i)) || k->stages.task[n].of_row ||
                         (i == op->nin && is_reduce(op->kind));
      if (other_place) continue;
      find_operand(op, &l, i, k->rank, &operand);
      int value = i < op->nin ? op->in[i] : op->out;
      if (is_vector(k, value, &operand)) each(k, value, &operand, width);
    }
  }
}

/* 16 bytes of the smallest elements, but of those of one byte. */
static void find_widest(const struct draft *k, int value, const struct operand *operand, int *width)
{
  (void)k, (void)operand;
  int here = type_bytes(graph->value[value].type) == 2 ? 8 : 4;
  if (*width < here) *width = here;
}

static void narrow(const struct draft *k, int value, const struct operand *operand, int *width)
{
  while (*width > 1 && !fits(k, value, operand, *width)) *width /= 2;
}

int vector_width(const struct draft *k)
{
  int width = 1, n = innermost_loop(&k->loops);
  if (n == NONE) return 1;
  each_operand(k, &width, find_widest);
  while (width > 1 && k->loops.size[n] % width) width /= 2;
  each_operand(k, &width, narrow);
  return width;
}

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

static bool is_kept(const struct vector *v)
{
  return v->until > v->from;
}

static char *spoken_element(const struct vectors *all, struct vector *v)
{
  v->spoken = true;
  if (v->until < all->stage) v->until = all->stage;
  return text("%s%s[v]", v->name, is_kept(v) && all->several ? "[part]" : "");
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
  return fits(k, value, operand, all->width) && along != neighbours &&
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
  if (is_kept(v) && all->declared)
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
    if (v->spoken && is_made(all, v) && !(is_kept(v) && all->declared))
      put(b, "%*s%s %s;\n", indent, "", vector_type(k, c_type(graph->value[v->value].type)),
          v->name);
  }
  put(b, "#pragma unroll\n");
  put(b, "%*sfor (int v = 0; v < %d; v++) {\n%s%*s}\n", indent, "", all->width, body, indent, "");
  for (int i = 0; i < all->n; i++) {
    struct vector *v = &all->list[i];
    if (v->spoken && is_made(all, v))
      put_statement(
          b, indent,
          text("store(%s, %s%s);", v->first, v->name, is_kept(v) && all->several ? "[part]" : ""));
    v->spoken = false;
  }
}

/* ----------------------------------------------------------------------------------------- kept */

int64_t kept_elements(const struct draft *k)
{
  int64_t n = 0;
  for (int i = 0; i < k->vectors.n; i++)
    if (is_kept(&k->vectors.list[i])) n += k->vectors.width;
  return n;
}

void put_kept_vectors(struct buffer *b, const struct draft *k, int64_t parts, int indent)
{
  if (!k->vectors.declared) return;
  for (int i = 0; i < k->vectors.n; i++) {
    const struct vector *v = &k->vectors.list[i];
    if (!is_kept(v)) continue;
    const char *type = vector_type(k, c_type(graph->value[v->value].type));
    put(b, "%*s%s %s", indent, "", type, v->name);
    if (k->vectors.several) put(b, "[%" PRId64 "]", parts);
    put(b, ";\n");
  }
}
