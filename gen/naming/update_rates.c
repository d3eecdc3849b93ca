/* update_rates.c: the learning rates and the other numbers of updates that change from step to
   step. */
#include "naming/naming.h"

#include <string.h>

char *optimizer_text(const struct optimizer *o)
{
  struct buffer b = {0};
  put(&b, "%s", o->settings);
  if (plan_options->clip > 0)
    put(&b, ", gradients clipped to %snorm %s", plan_options->norm_of_largest ? "infinity " : "",
        double_text(plan_options->clip));
  return b.text;
}

const char *update_template(const char *name)
{
  return embedded_template(text("%s.%s", name, target->source));
}

/* ------------------------------------------------------------------------------- names by group */

/* The name as it is in the optimizer of all others, or in that of a group. */
static const char *name_in(const char *name, int optimizer)
{
  return optimizer ? text("%s_group%d", name, optimizer) : name;
}

const char *step_number_name(const struct optimizer *o, int number)
{
  return name_in(spared_name(o->number[number].name), (int)(o - plan_options->optimizer));
}

const char *kernel_of_optimizer(const struct optimizer *o)
{
  char *name = copy_text(o->name);
  for (char *c = name; *c; c++)
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
  return name_in(identifier(name), (int)(o - plan_options->optimizer));
}

bool has_step_numbers(const struct optimizer *o)
{
  for (int k = 0; k < o->nnumber; k++)
    if (o->number[k].text) return true;
  return false;
}

/* ------------------------------------------------------------------------------------ the lines */

/* Whether an update of the step uses it. */
static bool is_used(int optimizer)
{
  for (int i = 0; i < graph->nop; i++)
    if (graph->op[i].kind == OP_update && graph->op[i].number[0] == optimizer) return true;
  return false;
}

/* Whether the code, or with NULL any, has this number of the step. */
static bool names_number(const struct optimizer *o, int k, const char *code)
{
  return o->number[k].text && (!code || has_word(code, step_number_name(o, k)));
}

char *update_constants(const char *code)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < plan_options->noptimizer; i++)
    if (is_used(i)) {
      const struct optimizer *o = &plan_options->optimizer[i];
      const char *lr = name_in("lr", i);
      bool uses_rate = false;
      for (int k = 0; k < o->nnumber && !uses_rate; k++)
        uses_rate = names_number(o, k, code) && strstr(o->number[k].text, "$lr$");
      /* The first optimizer with the same learning rate that has a function for it: the one of all
         others, or one that the step uses. */
      int first = 0;
      while (strcmp(plan_options->optimizer[first].rate, o->rate) != 0 ||
             (first && !is_used(first)))
        first++;
      if (uses_rate) put(&b, "  const double %s = %s(t);\n", lr, name_in("learning_rate", first));
      for (int k = 0; k < o->nnumber; k++)
        if (names_number(o, k, code))
          put(&b, "  %s%s = %s;\n", target->steps_in_memory ? "now." : "const float ",
              step_number_name(o, k),
              expr_text(prefix_expr("(float)", expr(fill(o->number[k].text, "lr", lr, NULL)))));
    }
  return b.text;
}

bool updates_have_numbers(void)
{
  bool have = false;
  for (int i = 0; i < plan_options->noptimizer; i++)
    have |= is_used(i) && has_step_numbers(&plan_options->optimizer[i]);
  return have;
}

/* The program of one stage knows the updates of no other. */
char *step_number_members(void)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < plan_options->noptimizer; i++) {
    const struct optimizer *o = &plan_options->optimizer[i];
    const char *sign = "  float ";
    if ((!graph->stages && !is_used(i)) || !has_step_numbers(o)) continue;
    for (int k = 0; k < o->nnumber; k++) {
      if (!o->number[k].text) continue;
      put(&b, "%s%s", sign, step_number_name(o, k));
      sign = ", ";
    }
    put(&b, ";\n");
  }
  return b.text;
}

char *learning_rate_text(const char *code, const char *factor)
{
  struct buffer b = {0};
  for (int i = 0; i < plan_options->noptimizer; i++) {
    const struct optimizer *o = &plan_options->optimizer[i];
    const char *name = name_in("learning_rate", i);
    if (i && !has_word(code, name)) continue;
    const char *of = o->match ? text(" of %s", printable(o->match)) : "";
    const char *head = text("// The learning rate%s%s.", of, o->schedule);
    put(&b, "%s%s", b.length ? "\n" : "",
        fill(embedded_template("learning_rate.c"), "about", wrapped(head, " ", "// "), "name", name,
             "unused", has_word(o->rate, "t") ? "" : "  (void)t;\n", "rate",
             wrapped(*factor ? text("  return %s * (%s);", factor, o->rate)
                             : text("  return %s;", o->rate),
                     " : ", "      "),
             NULL));
  }
  return b.text;
}
