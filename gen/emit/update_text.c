/* update_text.c: the update of one element by an optimizer, as lines of a kernel in C: an
   expression for each operation, by the table of operators. A result that is used more than once,
   and a new state, becomes a variable; the parameter and the states are stored at the end. */
#include "emit/emit.h"

#include <string.h>

struct writing {
  const struct optimizer *o;
  int *uses;                   /* by operand: the number of its uses in expressions */
  const struct expr **element; /* by operand */
  struct scope scope;
  struct update_lines l;
};

/* The number of times that an element's expression has its input i. */
static int mentions_of(const struct expr *row, int i)
{
  int n = row->word[0] == '$' && row->word[1] == 'a' + i;
  for (int k = 0; k < row->n; k++) n += mentions_of(row->all[k], i);
  return n;
}

static void count_uses(struct writing *w)
{
  const struct optimizer *o = w->o;
  for (int k = 0; k <= o->nstate; k++) w->uses[o->out[k]] += !(k && o->ones[k - 1]);
  for (int s = o->nstep - 1; s >= o->noperation; s--) {
    const struct update_step *step = &o->step[s];
    if (!w->uses[first_step_operand(o) + s]) continue;
    for (int i = 0; i < inputs_of_row(step->kind); i++)
      w->uses[step->in[i]] += mentions_of(row_expr(step->kind), i);
  }
}

/* ---------------------------------------------------------------------------------- expressions */

static const struct expr *recipe_variable(struct writing *w, const char *preferred,
                                          const struct expr *e)
{
  const char *name = unique_name(&w->scope, preferred);
  put(&w->l.body, "    const float %s = %s;\n", name, expr_text(e));
  return word_expr(name);
}

/* The row's expression with the operands of the step. */
static const struct expr *filled_recipe_row(const struct writing *w, const struct update_step *step,
                                            const struct expr *row)
{
  const struct expr *at[3];
  if (*row->word == '$') return w->element[step->in[row->word[1] - 'a']];
  for (int i = 0; i < row->n; i++) at[i] = filled_recipe_row(w, step, row->all[i]);
  return row->n ? expr_with(row, at) : row;
}

static void put_steps(struct writing *w)
{
  const struct optimizer *o = w->o;
  for (int s = o->noperation; s < o->nstep; s++) {
    int operand = first_step_operand(o) + s, state = NONE; /* the state that it becomes */
    if (!w->uses[operand]) continue;
    for (int k = 0; k < o->nstate && state == NONE; k++)
      if (o->out[1 + k] == operand) state = k;
    const struct expr *e = filled_recipe_row(w, &o->step[s], row_expr(o->step[s].kind));
    if (state != NONE)
      e = recipe_variable(w, text("new_%s", o->state[state]), e);
    else if (w->uses[operand] > 1)
      e = recipe_variable(w, o->out[0] == operand ? "new_w" : "x", e);
    w->element[operand] = e;
  }
}

/* ------------------------------------------------------------------------------------- operands */

/* Adds a parameter that is an array; a kernel of vectors loads it. */
static const struct expr *add_array(struct writing *w, const char *preferred, bool written,
                                    int width)
{
  const char *name = unique_name(&w->scope, preferred), *alias = target_syntax()->no_alias;
  const char *sign = *w->l.parameters ? ", " : "", *fixed = written ? "" : "const ";
  w->l.parameters = text("%s%s%sfloat *%s%s", w->l.parameters, sign, fixed, alias, name);
  put(&w->l.loads, "  %svec<float, %d> %s_v = load<%d>(%s + i);\n", fixed, width, name, width,
      name);
  if (written) put(&w->l.stores, "  store(%s + i, %s_v);\n", name, name);
  return expr(fill(target_syntax()->updated, "name", name, NULL));
}

static bool takes_step_numbers(const struct optimizer *o)
{
  for (int k = 0; k < o->nnumber; k++)
    if (is_kernel_number(o, k)) return true;
  return false;
}

/* The results of the update's operations: arrays like the parameter, or one number each. */
static void add_made_operands(struct writing *w, const struct op *update, int width)
{
  const struct optimizer *o = w->o;
  int at = 2 + o->nstate + (plan_options->clip > 0);
  for (int k = first_step_operand(o); k < first_step_operand(o) + o->noperation; k++) {
    if (!update_takes(o, k)) continue;
    int value = update->in[at++];
    const char *preferred = identifier(op_row[o->step[k - first_step_operand(o)].kind].name);
    if (!kernel_takes(o, k)) continue;
    if (same_shape(graph->value[value].shape, graph->value[update->in[0]].shape)) {
      w->element[k] = add_array(w, preferred, false, width);
    } else {
      const char *name = unique_name(&w->scope, preferred);
      w->l.parameters =
          text("%s, const float *%s%s", w->l.parameters, target_syntax()->no_alias, name);
      w->element[k] = expr("*%s", name);
    }
  }
}

/* The numbers of the step are parameters, or in memory. */
static void add_numbers(struct writing *w)
{
  const struct optimizer *o = w->o;
  const char *sign = "  const float ";
  for (int k = 0; k < o->nnumber; k++) {
    const struct step_number *n = &o->number[k];
    int operand = first_number_operand(o) + k;
    const char *name = n->text ? step_number_name(o, k) : number_text(n->value);
    w->element[operand] = word_expr(name);
    if (!is_kernel_number(o, k)) continue;
    if (!target->steps_in_memory)
      w->l.parameters = text("%s, float %s", w->l.parameters, name);
    else
      w->l.numbers = text("%s%s%s = now->%s", w->l.numbers, sign, name, name);
    sign = ", ";
  }
  if (*w->l.numbers) w->l.numbers = text("%s;\n", w->l.numbers);
  if (target->steps_in_memory && takes_step_numbers(o))
    w->l.parameters =
        text("%s, const struct constants *%snow", w->l.parameters, target_syntax()->no_alias);
}

static void put_new_element(struct writing *w, int operand, int made)
{
  put(&w->l.body, "    %s = %s;\n", expr_text(w->element[operand]), expr_text(w->element[made]));
}

struct update_lines lines_of_update(const struct op *update, int width)
{
  const struct optimizer *o = optimizer_of(update);
  static const char *const taken[] = {"i", "e", "now", "norm", "clip", "factor"};
  struct writing w = {.o = o, .scope = {.local = true}};
  size_t n = (size_t)(first_step_operand(o) + o->nstep);
  w.l = (struct update_lines){.parameters = "", .clip = "", .numbers = ""};
  w.uses = memset(alloc(n * sizeof *w.uses), 0, n * sizeof *w.uses);
  w.element = alloc(n * sizeof *w.element);
  for (struct buffer *b[] = {&w.l.loads, &w.l.body, &w.l.stores}, **at = b; at < b + 3; at++)
    put_text(*at, "", 0);
  for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) give_name(&w.scope, taken[i]);
  for (int k = 0; k < o->nnumber; k++)
    if (is_kernel_number(o, k)) give_name(&w.scope, step_number_name(o, k));
  count_uses(&w);
  w.element[0] = add_array(&w, "w", true, width);
  const struct expr *gradient = kernel_has_array(o, 1) ? add_array(&w, "g", false, width) : NULL;
  for (int k = 0; k < o->nstate; k++)
    if (kernel_has_array(o, 2 + k))
      w.element[2 + k] = add_array(&w, identifier(o->state[k]), o->out[1 + k] != 2 + k, width);
  if (gradient) {
    w.element[1] = gradient;
    if (!(plan_options->clip <= 0)) {
      w.l.parameters = text("%s, const float *norm", w.l.parameters);
      w.l.clip = fill(embedded_template("clip.c"), "clip", number_text(plan_options->clip), NULL);
      w.element[1] = expr("clip * %e", gradient);
      if (w.uses[1] > 1) w.element[1] = recipe_variable(&w, "d", w.element[1]);
    }
  }
  add_made_operands(&w, update, width);
  add_numbers(&w);
  put_steps(&w);
  put_new_element(&w, 0, o->out[0]);
  for (int k = 0; k < o->nstate; k++)
    if (!o->ones[k] && o->out[1 + k] != 2 + k) put_new_element(&w, 2 + k, o->out[1 + k]);
  return w.l;
}

char *step_number_arguments(const struct optimizer *o)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  if (target->steps_in_memory) return takes_step_numbers(o) ? ", &m->now" : b.text;
  for (int k = 0; k < o->nnumber; k++)
    if (is_kernel_number(o, k)) put(&b, ", %s", step_number_name(o, k));
  return b.text;
}
