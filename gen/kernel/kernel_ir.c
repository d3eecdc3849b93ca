/* kernel_ir.c: the code of kernels: construction, queries, comparison. */
#include "kernel/kernel.h"

#include <string.h>

/* -------------------------------------------------------------------------- putting it together */

struct code *new_code(void)
{
  return alloc(sizeof(struct code));
}

static struct statement *append_statement(struct code *c, struct statement node)
{
  enum { FEW = 2 }; /* most loops have a statement or two, and there are thousands of kernels */
  if (!c->room) c->list = alloc((size_t)(c->room = FEW) * sizeof *c->list);
  GROW(c->list, c->n, c->room);
  c->list[c->n] = node;
  return &c->list[c->n++];
}

void add_declaration(struct code *c, const char *type, const char *name, const struct expr *value)
{
  append_statement(c,
                   (struct statement){.kind = DECLARE, .type = type, .name = name, .value = value});
}

void add_lazy_declaration(struct code *c, const char *type, const char *name,
                          const struct expr *value)
{
  add_declaration(c, type, name, value);
  c->list[c->n - 1].lazy = true;
}

void add_assignment(struct code *c, const struct expr *to, const struct expr *value)
{
  append_statement(c, (struct statement){.kind = SET, .to = to, .value = value});
}

void add_reduction(struct code *c, const struct op *op, const struct expr *to,
                   const struct expr *term)
{
  append_statement(c, (struct statement){.kind = REDUCE,
                                         .to = to,
                                         .value = term,
                                         .how = reduction_of(op),
                                         .of = type_reduced(op)});
}

void add_combine(struct code *c, const struct op *op, const struct expr *name, int threads)
{
  append_statement(
      c,
      (struct statement){
          .kind = COMBINE, .to = name, .value = name, .how = reduction_of(op), .threads = threads});
}

void add_statement(struct code *c, const struct expr *call)
{
  append_statement(c, (struct statement){.kind = RUN, .value = call});
}

struct code *add_condition(struct code *c, const struct expr *condition)
{
  if (!condition) return c;
  return append_statement(c,
                          (struct statement){.kind = WHEN, .value = condition, .body = new_code()})
      ->body;
}

struct statement *add_for(struct code *c, const char *type, const char *variable,
                          const struct expr *from, const struct expr *below)
{
  return append_statement(c, (struct statement){.kind = LOOP,
                                                .type = type,
                                                .name = variable,
                                                .value = from,
                                                .below = below,
                                                .collapse = 1,
                                                .body = new_code()});
}

void append_code(struct code *c, const struct code *more)
{
  for (int i = 0; i < more->n; i++) append_statement(c, more->list[i]);
}

/* ------------------------------------------------------------------------------------ asking it */

struct code *copy_code(const struct code *c)
{
  struct code *copy = new_code();
  append_code(copy, c);
  for (int i = 0; i < copy->n; i++)
    if (copy->list[i].body) copy->list[i].body = copy_code(copy->list[i].body);
  return copy;
}

void each_expression(const struct code *c, void (*visit)(const struct expr **e, void *with),
                     void *with)
{
  for (int i = 0; i < c->n; i++) {
    struct statement *n = &c->list[i];
    if (n->to) visit(&n->to, with);
    if (n->value) visit(&n->value, with);
    if (n->below) visit(&n->below, with);
    if (n->step) visit(&n->step, with);
    if (n->body) each_expression(n->body, visit, with);
  }
}

struct search {
  const char *name;
  bool found;
};

static void find_name(const struct expr **e, void *with)
{
  struct search *s = with;
  s->found = s->found || expr_names(*e, s->name);
}

bool code_names(const struct code *c, const char *name)
{
  struct search s = {name, false};
  each_expression(c, find_name, &s);
  return s.found;
}

void drop_unnamed(struct code *c)
{
  int kept = c->n;
  for (int i = c->n; i-- > 0;) {
    struct statement node = c->list[i];
    struct code behind = {.list = c->list + kept, .n = c->n - kept};
    if (node.body) drop_unnamed(node.body);
    if (!node.lazy || code_names(&behind, node.name)) c->list[--kept] = node;
  }
  c->n -= kept;
  c->list += kept;
  c->room -= kept;
}

/* ------------------------------------------------------------------------------------ comparing */

struct signature {
  struct buffer b;
  const char **name; /* in the order in which they occur */
  int n, room;
  bool sizes; /* else sizes are left out */
};

static void add_name(struct signature *s, const char *name)
{
  GROW(s->name, s->n, s->room);
  s->name[s->n++] = text("%.*s", (int)strcspn(name, "["), name);
}

/* The number of the name; for equal names the latest one's. */
static int number_of_name(const struct signature *s, const char *name)
{
  for (int i = s->n; i-- > 0;)
    if (!strcmp(s->name[i], name)) return i;
  return NONE;
}

bool is_size(const struct expr *e)
{
  return e->kind == NUMBER_EXPR && strspn(e->word, "0123456789") == strlen(e->word);
}

static void put_signature(struct signature *s, const struct expr *e)
{
  int number = e->kind == NAME_EXPR ? number_of_name(s, e->word) : NONE;
  if (number != NONE)
    put(&s->b, "$%d", number);
  else if (is_size(e) && !s->sizes)
    put_text(&s->b, "#", 1);
  else
    put_text(&s->b, e->word, strlen(e->word));
  if (e->n) put_text(&s->b, "(", 1);
  for (int i = 0; i < e->n; i++) {
    put_signature(s, e->all[i]);
    put_text(&s->b, i + 1 < e->n ? "," : ")", 1);
  }
}

static void put_expression(const struct expr **e, void *with)
{
  struct signature *s = with;
  put_signature(s, *e);
  put_text(&s->b, ";", 1);
}

static void put_code(struct signature *s, const struct code *c)
{
  for (int i = 0; i < c->n; i++) {
    struct statement node = c->list[i];
    struct code body = {0};
    const char *room = node.kind == DECLARE ? node.name + strcspn(node.name, "[") : "";
    put(&s->b, "\n%d %s %s ", node.kind, node.type ? node.type : "", room);
    put(&s->b, "%d %d %d %d %d:", (int)node.marks, node.collapse, node.threads, node.how, node.of);
    if (node.kind == LOOP) add_name(s, node.name);
    struct code alone = {.list = &node, .n = 1};
    if (node.body) body = *node.body;
    node.body = NULL;
    each_expression(&alone, put_expression, s);
    if (node.kind == DECLARE) add_name(s, node.name);
    put_text(&s->b, "{", 1);
    put_code(s, &body);
    put_text(&s->b, "}", 1);
  }
}

char *signature_of(const struct kernel_builder *k, const struct code *c, bool sizes)
{
  struct signature s = {.sizes = sizes};
  put_text(&s.b, "", 0);
  for (int i = 0; i < k->nargument; i++) {
    put(&s.b, "%s %d,", c_type(k->argument[i].type), k->argument[i].written);
    add_name(&s, k->argument[i].name);
  }
  for (int i = 0; i < k->nextra; i++) {
    put(&s.b, "%s,", k->extra[i].type);
    add_name(&s, k->extra[i].name);
  }
  put_code(&s, c);
  return s.b.text;
}
