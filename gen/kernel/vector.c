/* vector.c: neighbours in memory that a thread of a CUDA kernel reads and writes at once.

   Takes   a kernel whose loops are known; the alignment of its operands (alignment.c).
   Leaves  the number of elements of a vector and, in the kernel's code, the vectors: their loads
           before the loop over their elements, and their stores after it.

   Operands with stride one along the innermost loop are vectors; others are loaded where they are
   used. A kernel by rows makes a pass over the row for each stage: vectors that several stages use
   are kept in registers, if there is room. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- elements */

char *vector_type(const struct kernel_builder *k, const char *type)
{
  return text("vec<%s, %d>", type, k->vectors.width);
}

const struct expr *place_after(const struct expr *base, const struct expr *index)
{
  return is_zero_expr(index) ? base : plus_expr(base, "+", index);
}

/* A place in memory has one vector in each stage, or one for all stages if vectors are kept; if an
   index names the place, one in each stage. A result stored over an input is "new_add_v". */
static struct vector *find_vector(struct kernel_builder *k, int value, const struct expr *first,
                                  bool indexed, bool written)
{
  struct vectors *all = &k->vectors;
  for (int i = 0; i < all->n; i++) {
    struct vector *v = &all->list[i];
    bool kept = all->kept && !indexed && !v->indexed;
    bool here = kept || (v->from <= all->stage && all->stage <= v->until);
    if (here && v->value == value && same_expr(v->first, first)) return v;
  }
  const char *plain = text("%s_v", argument_name(k, value)), *name = free_name(k, plain);
  if (written && strcmp(name, plain)) name = free_name(k, text("new_%s", plain));
  GROW(all->list, all->n, all->room);
  all->list[all->n] = (struct vector){.value = value,
                                      .first = first,
                                      .name = name,
                                      .from = all->stage,
                                      .until = all->stage,
                                      .indexed = indexed};
  return &all->list[all->n++];
}

/* The vector, of those that are kept the one of the current part. */
static const struct expr *vector_variable(const struct vectors *all, const struct vector *v)
{
  bool parts = is_kept_in_vector(v) && all->several;
  return parts ? expr("%s[part]", v->name) : word_expr(v->name);
}

static const struct expr *used_element(const struct vectors *all, struct vector *v)
{
  v->used = true;
  if (v->until < all->stage) v->until = all->stage;
  return expr("%e[v]", vector_variable(all, v));
}

/* The place of the vector's first element, valid outside the loop over its elements. */
static const struct expr *first_place(struct kernel_builder *k, int value,
                                      const struct operand *operand, int dim, const struct expr *at)
{
  const struct expr *inner = k->loops.inner;
  k->loops.inner = NULL;
  const struct expr *index = index_of(&k->loops, operand, dim, at);
  k->loops.inner = inner;
  return place_after(word_expr(argument_name(k, value)), index);
}

const struct expr *vector_element(struct kernel_builder *k, int value,
                                  const struct operand *operand, bool written)
{
  struct vectors *all = &k->vectors;
  if (!all->inside || !is_vector(k, value, operand)) return NULL;
  const struct expr *first = first_place(k, value, operand, NONE, NULL);
  struct vector *v = find_vector(k, value, first, false, written);
  v->written |= written;
  return used_element(all, v);
}

bool reads_vector_at(const struct kernel_builder *k, int value, const struct operand *operand,
                     int dim)
{
  const struct vectors *all = &k->vectors;
  if (!all->inside) return false;
  bool along = operand->stride[dim] == 1, neighbours = is_vector(k, value, operand);
  return fits_vector(k, value, operand, all->width) && along != neighbours &&
         (along || operand->stride[dim] % all->width == 0);
}

const struct expr *indexed_vector(struct kernel_builder *k, int value,
                                  const struct operand *operand, int dim, const struct expr *at,
                                  const struct expr *where)
{
  const struct expr *first = first_place(k, value, operand, dim, at);
  struct vector *v = find_vector(k, value, first, true, false);
  v->where = where;
  return used_element(&k->vectors, v);
}

/* --------------------------------------------------------------------------------- around loops */

/* Whether this stage makes it: no stage reads a written value before it is written. */
static bool is_made_in_stage(const struct vectors *all, const struct vector *v)
{
  return v->written && v->from == all->stage;
}

struct code *begin_vector(struct kernel_builder *k)
{
  int n = innermost_loop(&k->loops);
  if (k->vectors.width > 1) {
    k->vectors.inside = true;
    k->vectors.lead = new_code();
    k->vectors.temporaries = k->ntemporary;
    k->loops.inner = expr("%s + v", loop_variable[n]);
  }
  return new_code();
}

void end_vector(struct code *c, struct kernel_builder *k, const struct code *body)
{
  struct vectors *all = &k->vectors;
  all->inside = false;
  k->loops.inner = NULL;
  if (all->width == 1) {
    append_code(c, body);
    return;
  }
  append_code(c, all->lead);
  for (int i = 0; i < all->n; i++) {
    const struct vector *v = &all->list[i];
    if (v->used && !is_made_in_stage(all, v) && v->from >= all->stage) {
      const char *type = vector_type(k, c_type(graph->value[v->value].type));
      const struct expr *load = call_expr(text("load<%d>", all->width), &v->first, 1);
      if (v->where) load = choice_expr(v->where, load, word_expr(text("%s{}", type)));
      if (is_kept_in_vector(v) && all->declared)
        add_assignment(c, vector_variable(all, v), load);
      else
        add_declaration(c, text("const %s", type), v->name, load);
    }
  }
  for (int i = 0; i < all->n; i++) {
    const struct vector *v = &all->list[i];
    if (v->used && is_made_in_stage(all, v) && !(is_kept_in_vector(v) && all->declared))
      add_declaration(c, vector_type(k, c_type(graph->value[v->value].type)), v->name, NULL);
  }
  struct statement *lanes = add_for(c, "int", "v", int_expr(0), int_expr(all->width));
  lanes->marks = UNROLLED;
  append_code(lanes->body, body);
  for (int i = 0; i < all->n; i++) {
    struct vector *v = &all->list[i];
    if (v->used && is_made_in_stage(all, v))
      add_statement(c, expr("store(%e, %e)", v->first, vector_variable(all, v)));
    v->used = false;
  }
}

/* ----------------------------------------------------------------------------------------- kept */

void declare_kept_vectors(struct code *c, const struct kernel_builder *k, int64_t parts)
{
  const char *many = k->vectors.several ? text("[%" PRId64 "]", parts) : "";
  for (int i = 0; k->vectors.declared && i < k->vectors.n; i++) {
    const struct vector *v = &k->vectors.list[i];
    const char *type = vector_type(k, c_type(graph->value[v->value].type));
    if (is_kept_in_vector(v)) add_declaration(c, type, text("%s%s", v->name, many), NULL);
  }
}
