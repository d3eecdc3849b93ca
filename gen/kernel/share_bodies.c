/* share_bodies.c: kernels that differ only in sizes become instances of one template.

   Takes   all kernels of a CUDA program, those of fused operations with their code.
   Leaves  one body for kernels with the same code except sizes, before the first of them; the sizes
           are parameters of a template. Each kernel calls it with its sizes, so that compilers
           still see constants.

   A size has the name of its loop: "ni", "nj"; a stride is a product of sizes. Other numbers are
   "size_1", "size_2". Numbers that all the kernels share stay as they are.

   C has no templates. A static inline function with the sizes as parameters is several times
   slower there, because gcc sees the constants too late: it has already turned OpenMP's loops into
   functions, and conditional loads into gathers. The latter also happens if only the body of the
   parallel loop is such a function. */
#include "kernel/kernel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARAMETERS = 8, MOST_OTHER = 4 };

/* One number in each of the kernels. */
struct parameter {
  const char *name;
  const int64_t *size;
};

struct template
{
  const struct kernel **member;
  int n;
  int64_t **size; /* by member: the whole numbers of its code, in their order */
  int position;   /* how many of them are replaced */
  struct parameter parameter[MOST_PARAMETERS];
  int nparameter, nother;
  bool fails; /* it needs too many parameters */
};

/* ---------------------------------------------------------------------------------- the numbers */

struct numbers_found {
  int64_t *list;
  int n, room;
};

static void find_sizes_in(struct numbers_found *found, const struct expr *e)
{
  for (int i = 0; i < e->n; i++) find_sizes_in(found, e->all[i]);
  if (!is_size(e)) return;
  GROW(found->list, found->n, found->room);
  found->list[found->n++] = strtoll(e->word, NULL, 10);
}

static void find_numbers(const struct expr **e, void *with)
{
  find_sizes_in(with, *e);
}

static bool is_same_in_all(const struct template *t, const int64_t *size)
{
  for (int m = 1; m < t->n; m++)
    if (size[m] != size[0]) return false;
  return true;
}

/* ------------------------------------------------------------------------ their new expressions */

static const char *parameter_name(struct template *t, const char *name, const int64_t *size)
{
  for (int i = 0; i < t->nparameter; i++) {
    const struct parameter *p = &t->parameter[i];
    bool same = !memcmp(p->size, size, (size_t)t->n * sizeof *size);
    if (name ? !strcmp(p->name, name) : same) return p->name;
  }
  t->fails |= t->nparameter == MOST_PARAMETERS || (!name && t->nother == MOST_OTHER);
  if (t->fails) return "0";
  if (!name) name = text("size_%d", ++t->nother);
  t->parameter[t->nparameter++] = (struct parameter){name, size};
  return name;
}

static const struct expr *product_of_sizes(struct template *t, int from, int to, int divisor)
{
  const struct expr *product = NULL;
  for (int n = from; n <= to; n++) {
    int64_t *size = alloc((size_t)t->n * sizeof *size); /* of the loop, in all kernels */
    for (int m = 0; m < t->n; m++) size[m] = t->member[m]->builder->loops.size[n];
    const char *name = text("n%s", loop_variable[n]);
    const struct expr *factor =
        is_same_in_all(t, size) ? int_expr(size[0]) : word_expr(parameter_name(t, name, size));
    product = product ? sign_expr("*", product, factor) : factor;
  }
  return times_expr(product, "/", divisor);
}

/* The expression for a number that differs between the kernels. */
static const struct expr *size_in_all(struct template *t, const int64_t *number)
{
  const struct kernel_builder *k = t->member[0]->builder;
  for (int by_vector = 0; by_vector < 1 + (k->vectors.width > 1); by_vector++)
    for (int length = 0; length < k->loops.n; length++)
      for (int from = 0; from + length < k->loops.n; from++) {
        int divisor = by_vector ? k->vectors.width : 1;
        /* Whether the number is the product of the sizes of these loops, by `divisor`. */
        int to = from + length;
        bool is_product_of_sizes = true;
        for (int m = 0; m < t->n && is_product_of_sizes; m++) {
          const struct loops *loops = &t->member[m]->builder->loops;
          int64_t product = 1;
          for (int n = from; n <= to; n++) product *= loops->size[n];
          is_product_of_sizes = product == number[m] * divisor;
        }
        if (is_product_of_sizes) return product_of_sizes(t, from, from + length, divisor);
      }
  return word_expr(parameter_name(t, NULL, number));
}

static const struct expr *with_sizes(struct template *t, const struct expr *e)
{
  const struct expr **at = e->n ? alloc((size_t)e->n * sizeof *at) : NULL;
  for (int i = 0; i < e->n; i++) at[i] = with_sizes(t, e->all[i]);
  if (!is_size(e)) return e->n ? expr_with(e, at) : e;
  int64_t *number = alloc((size_t)t->n * sizeof *number);
  for (int m = 0; m < t->n; m++) number[m] = t->size[m][t->position];
  t->position++;
  return is_same_in_all(t, number) ? e : size_in_all(t, number);
}

static void replace_numbers(const struct expr **e, void *with)
{
  *e = with_sizes(with, *e);
}

/* ------------------------------------------------------------------------------ the new kernels */

static char *template_text(const struct template *t, const char *name, const struct code *code)
{
  const struct kernel_builder *k = t->member[0]->builder;
  struct buffer head = {0}, body = {0};
  put_text(&head, "", 0);
  for (int i = 0; i < t->nparameter; i++)
    put(&head, "%s%s %s", i ? ", " : "template <", k->loops.type, t->parameter[i].name);
  if (t->nparameter) put(&head, ">\n");
  put_text(&body, "", 0);
  print_code(&body, code, 2);
  return wrapped_lines(text("%s__device__ __forceinline__\nvoid %s(%s)\n{\n%s}\n", head.text, name,
                            parameters_text(k), without_braces(body.text)),
                       true);
}

/* "  add_of_sizes<64, 128>(out, a, b);" */
static char *instance_call(const struct template *t, int member, const char *name)
{
  const struct kernel_builder *k = t->member[member]->builder;
  struct buffer b = {0};
  put(&b, "  %s", name);
  for (int i = 0; i < t->nparameter; i++)
    put(&b, "%s%" PRId64, i ? ", " : "<", t->parameter[i].size[member]);
  put(&b, t->nparameter ? ">(" : "(");
  for (int i = 0; i < k->nargument; i++) put(&b, "%s%s", i ? ", " : "", k->argument[i].name);
  for (int i = 0; i < k->nextra; i++)
    put(&b, "%s%s", i + k->nargument ? ", " : "", k->extra[i].name);
  put(&b, ");\n");
  return b.text;
}

static struct template template_of(struct kernel *const *member, int n)
{
  struct template t = {.member = alloc((size_t)n * sizeof *t.member), .n = n};
  t.size = alloc((size_t)n * sizeof *t.size);
  for (int m = 0; m < n; m++) {
    struct numbers_found found = {0};
    each_expression(member[m]->code, find_numbers, &found);
    t.member[m] = member[m];
    t.size[m] = found.list;
  }
  return t;
}

static void share_body(struct kernel *const *member, int n)
{
  struct template t = template_of(member, n);
  struct code *code = copy_code(member[0]->code);
  each_expression(code, replace_numbers, &t);
  if (t.fails) return;
  /* No name in the kernel may equal that of a parameter. */
  for (int i = 0; i < t.nparameter; i++) {
    const char *parameter = t.parameter[i].name;
    if (strcmp(free_name(member[0]->builder, parameter), parameter) ||
        code_names(member[0]->code, parameter))
      return;
  }
  /* "add_of_sizes", "add_of_sizes_2" */
  const char *words = member[0]->builder->words;
  int *known = planned(text("%s_of_sizes", words));
  const char *name =
      ++*known == 1 ? text("%s_of_sizes", words) : text("%s_of_sizes_%d", words, *known);
  char *body = template_text(&t, name, code);
  for (int m = 0; m < n; m++) {
    const char *head = member[m]->definition, *begin = strstr(head, "\n{\n") + 3;
    member[m]->definition = text("%.*s%s}\n", (int)(begin - head), head,
                                 wrapped_lines(instance_call(&t, m, name), true));
  }
  /* "For add_8 and add_12." */
  struct buffer b = {0};
  for (int m = 0; m < t.n; m++)
    put(&b, "%s%s", !m ? "For " : m < t.n - 1 ? ", " : " and ", t.member[m]->name);
  member[0]->shared = text("%s%s\n", comment_lines(text("%s.", b.text), 0), body);
}

/* By the code without sizes: the kernels that have it. */
struct same_code {
  struct kernel **member;
  int n, room;
};

static struct same_code *same_code_as(const struct kernel *k)
{
  static struct memo codes;
  static struct query q;
  bool is_new;
  begin_query(&q);
  ask_text(&q, k->builder->words);
  ask_text(&q, signature_of(k->builder, k->code, false));
  return answer_to(&codes, &q, sizeof(struct same_code), &is_new);
}

void share_bodies(void)
{
  for (int i = 0; has_blocks() && i < nkernels; i++) {
    struct same_code *same = kernels[i].code ? same_code_as(&kernels[i]) : NULL;
    if (!same) continue;
    GROW(same->member, same->n, same->room);
    same->member[same->n++] = &kernels[i];
  }
  for (int i = 0; has_blocks() && i < nkernels; i++) {
    struct same_code *same = kernels[i].code ? same_code_as(&kernels[i]) : NULL;
    if (same && same->n > 1 && same->member[0] == &kernels[i]) share_body(same->member, same->n);
  }
}
