/* decisions.c: --explain-cost. A pass that decides something with alternatives notes what it takes,
   and its alternatives. A later run of the passes is forced to one of these, and its step is
   compared (driver/explain_cost.c).

   A decision is known by its kind and its subject. The numbers of modules in a subject are stars:
   equal layers decide alike, and are forced alike, so that they stay equal. */
#include "ir/ir.h"

#include <ctype.h>
#include <string.h>

static struct noted_decisions *noted;
static const char *forced_kind, *forced_subject, *forced_way;

bool are_decisions_explained(void)
{
  return options.explain_cost != NULL;
}

void note_decisions_in(struct noted_decisions *to)
{
  noted = to;
}

void force_decision(const char *kind, const char *subject, const char *way)
{
  forced_kind = kind;
  forced_subject = subject;
  forced_way = way;
}

const char *starred_name(const char *name)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (const char *at = name; *at;) {
    size_t n = strcspn(at, ". "), digits = strspn(at, "0123456789");
    if (n && digits == n)
      put(&b, "*");
    else
      put(&b, "%.*s", (int)n, at);
    at += n;
    if (*at) put(&b, "%c", *at++);
  }
  return b.text;
}

/* Whether it is what --explain-cost asks about, by its own name or with stars. */
static bool is_asked(const char *name)
{
  const char *asked = options.explain_cost;
  return !strcmp(name, asked) || (strchr(asked, '*') && !strcmp(starred_name(name), asked));
}

/* Whether the module or one around it is asked about. */
static bool is_module_asked(int module)
{
  for (; module != NONE; module = graph->module[module].parent)
    if (*graph->module[module].path && is_asked(graph->module[module].path)) return true;
  return false;
}

/* A gradient of a parameter belongs to it. */
static bool is_value_asked(int value)
{
  const int of = graph->value[value].of;
  if (is_asked(value_name(value))) return true;
  return of != NONE && graph->value[of].role == PARAMETER && is_asked(value_name(of));
}

bool is_value_explained(int value)
{
  return is_value_asked(value) || is_module_asked(graph->value[value].module);
}

bool is_op_explained(const struct op *op)
{
  if (is_module_asked(op->module)) return true;
  for (int i = 0; i < operand_count(op); i++)
    if (is_value_asked(nth_operand(op, i))) return true;
  for (int k = 0; k < op->nbody; k++)
    if (is_op_explained(&graph->op[op->body[k]])) return true;
  return false;
}

bool is_module_explained(int module)
{
  return is_module_asked(module);
}

void note_names(void)
{
  if (!noted) return;
  for (int i = 0; i < graph->nmodule && !noted->is_named; i++)
    noted->is_named = *graph->module[i].path && is_asked(graph->module[i].path);
  for (int i = 0; i < graph->nvalue && !noted->is_named; i++)
    noted->is_named = is_asked(value_name(i));
}

const char *forced_way_of(const char *kind, const char *subject)
{
  if (!forced_kind || strcmp(kind, forced_kind) || strcmp(subject, forced_subject)) return NULL;
  return forced_way;
}

/* The place of the decision in the list; noted->n: it is not noted. */
static int place_of_decision(const char *kind, const char *subject)
{
  int i = 0;
  while (i < noted->n &&
         (strcmp(noted->at[i].kind, kind) != 0 || strcmp(noted->at[i].subject, subject) != 0))
    i++;
  return i;
}

void forget_decision(const char *kind, const char *subject)
{
  const int at = noted ? place_of_decision(kind, subject) : 0;
  if (!noted || at == noted->n) return;
  noted->n--;
  memmove(&noted->at[at], &noted->at[at + 1], (size_t)(noted->n - at) * sizeof *noted->at);
}

static struct noted_decision *noted_decision(const char *kind, const char *subject)
{
  const int at = place_of_decision(kind, subject);
  if (at < noted->n) return &noted->at[at];
  if (noted->n == MOST_DECISIONS) {
    noted->left_some = true;
    return NULL;
  }
  struct noted_decision *d = &noted->at[noted->n++];
  snprintf(d->kind, sizeof d->kind, "%s", kind);
  snprintf(d->subject, sizeof d->subject, "%s", subject);
  return d;
}

void note_decision(const char *kind, const char *subject, const struct alternative *list, int n,
                   int taken)
{
  bool has_other = false;
  for (int i = 0; i < n; i++) has_other |= i != taken && strcmp(list[i].way, list[taken].way) != 0;
  if (!noted || !has_other || strlen(subject) >= LONGEST_SUBJECT) return;
  struct noted_decision *d = noted_decision(kind, subject);
  if (!d) return;
  d->n = 0;
  d->taken = NONE;
  for (int i = 0; i < n && d->n < MOST_ALTERNATIVES; i++) {
    bool is_known = strlen(list[i].way) >= LONGEST_WAY;
    for (int k = 0; k < d->n && !is_known; k++) is_known = !strcmp(d->at[k].way, list[i].way);
    if (is_known) continue;
    struct noted_alternative *a = &d->at[d->n];
    snprintf(a->way, sizeof a->way, "%s", list[i].way);
    a->bytes = list[i].bytes;
    a->seconds = list[i].seconds;
    if (i == taken) d->taken = d->n;
    d->n++;
  }
}
