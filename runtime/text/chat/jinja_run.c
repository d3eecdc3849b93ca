// SPDX-License-Identifier: MIT
// Jinja: runs the tree of a template.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "text/chat/jinja_tree.h"

enum { MOST_CALLS = 60 };

struct scope {
  struct scope *outer;
  struct value *variables;
};

enum flow { GOES_ON, BREAKS, CONTINUES };

static struct value *evaluate(struct work *w, struct scope *s, const struct node *n);
static enum flow run_body(struct work *w, struct scope *s, const struct node *body, struct out *o);

static struct scope *new_scope(struct work *w, struct scope *outer)
{
  struct scope *s = work_alloc(w, sizeof *s);
  s->outer = outer;
  s->variables = map_value(w);
  return s;
}

static void set_name(struct work *w, struct scope *s, const char *name, struct value *v)
{
  map_set(w, s->variables, text_value(w, name, strlen(name)), v);
}

static struct value *value_named(struct work *w, struct scope *s, const char *name)
{
  for (; s; s = s->outer) {
    struct value *v = map_get(s->variables, name);
    if (v) return v;
  }
  struct value *v = global_named(w, name);
  if (!v && !strcmp(name, "self")) work_fails(w, "'self' is not known here");
  return v ? v : undefined_value(w, name);
}

// ---- operators ---------------------------------------------------------------------------------

static struct value *repeated(struct work *w, struct value *v, long long times)
{
  if (times < 0) times = 0;
  if (v->kind == TEXT) {
    struct out o = {0};
    out_add(w, &o, "", 0);
    for (long long i = 0; i < times; i++) {
      work_step(w);
      out_add(w, &o, v->text, v->count);
    }
    return text_value(w, o.at, o.count);
  }
  struct value *all = list_value(w);
  for (long long i = 0; i < times; i++)
    for (size_t k = 0; k < v->count; k++) list_add(w, all, v->at[k]);
  return all;
}

static long long whole_of(const struct value *v)
{
  return v->kind == FLAG ? v->flag : v->whole;
}

static struct value *calculated(struct work *w, char sign, bool twice, struct value *a,
                                struct value *b)
{
  const bool whole = a->kind != REAL && b->kind != REAL;
  const double x = number_of_value(a), y = number_of_value(b);
  if ((sign == '/' || sign == '%') && y == 0) work_fails(w, "a division by zero");
  if (whole && sign != '/' && !(sign == '*' && twice && y < 0)) {
    long long n = 0;
    const long long p = whole_of(a), q = whole_of(b);
    bool over = false;
    if (sign == '+') over = __builtin_add_overflow(p, q, &n);
    if (sign == '-') over = __builtin_sub_overflow(p, q, &n);
    if (sign == '*' && !twice) over = __builtin_mul_overflow(p, q, &n);
    if (sign == '%') n = q == -1 ? 0 : (p % q + q) % q;
    if (sign == '*' && twice) {
      n = 1;
      for (long long i = 0; i < q && !over && i < 64; i++) over = __builtin_mul_overflow(n, p, &n);
      over |= q > 63 && p > 1;
    }
    if (over) work_fails(w, "a number is too large");
    return whole_value(w, n);
  }
  if (whole && sign == '/' && twice) {
    const long long p = whole_of(a), q = whole_of(b);
    if (q == -1) return calculated(w, '-', false, whole_value(w, 0), a);
    return whole_value(w, p / q - (p % q != 0 && (p < 0) != (q < 0)));
  }
  if (sign == '/') return real_value(w, twice ? floor(x / y) : x / y);
  if (sign == '%') {
    const double r = fmod(x, y);
    return real_value(w, r != 0 && (r < 0) != (y < 0) ? r + y : r);
  }
  return real_value(w, sign == '+' ? x + y : sign == '-' ? x - y : twice ? pow(x, y) : x * y);
}

static void fails_on(struct work *w, const char *sign, const struct value *v)
{
  if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
  work_fails(w, "'%s' does not fit these values", sign);
}

static struct value *binary_value(struct work *w, const char *sign, struct value *a,
                                  struct value *b)
{
  if (*sign == '~') {
    struct out o = {0};
    out_add(w, &o, "", 0);
    out_str(w, &o, a);
    out_str(w, &o, b);
    return text_value(w, o.at, o.count);
  }
  if (is_number(a) && is_number(b)) return calculated(w, *sign, sign[1] != 0, a, b);
  if (*sign == '+' && a->kind == TEXT && b->kind == TEXT) {
    const bool is_safe = a->is_safe || b->is_safe;
    struct value *both = binary_value(w, "~", is_safe && !a->is_safe ? escaped(w, a) : a,
                                      is_safe && !b->is_safe ? escaped(w, b) : b);
    both->is_safe = is_safe;
    return both;
  }
  if (*sign == '%' && a->kind == TEXT) return percent_format(w, a, b);
  if (*sign == '+' && a->kind == LIST && b->kind == LIST && a->is_tuple == b->is_tuple &&
      !a->view && !b->view && !a->is_lazy && !b->is_lazy) {
    struct value *all = list_value(w);
    all->is_tuple = a->is_tuple;
    for (size_t i = 0; i < a->count; i++) list_add(w, all, a->at[i]);
    for (size_t i = 0; i < b->count; i++) list_add(w, all, b->at[i]);
    return all;
  }
  const bool repeats = !strcmp(sign, "*") && !a->view && !b->view && !a->is_lazy && !b->is_lazy;
  if (repeats && (a->is_safe || b->is_safe))
    work_fails(w, "a text that is safe is not repeated here");
  if (repeats && (a->kind == TEXT || a->kind == LIST) && b->kind == WHOLE)
    return repeated(w, a, b->whole);
  if (repeats && (b->kind == TEXT || b->kind == LIST) && a->kind == WHOLE)
    return repeated(w, b, a->whole);
  fails_on(w, sign, a->kind == UNDEFINED ? a : b);
  return NULL;
}

static bool compares(struct work *w, const char *sign, struct value *a, struct value *b)
{
  if (!strcmp(sign, "==")) return are_equal(a, b);
  if (!strcmp(sign, "!=")) return !are_equal(a, b);
  if (!strcmp(sign, "in")) return contains(w, b, a);
  if (!strcmp(sign, "not in")) return !contains(w, b, a);
  if (a->kind == UNDEFINED || b->kind == UNDEFINED) fails_on(w, sign, a->kind == UNDEFINED ? a : b);
  const int order = compare_values(w, a, b);
  return sign[0] == '<' ? order < 0 || (sign[1] && !order) : order > 0 || (sign[1] && !order);
}

// ---- slices ------------------------------------------------------------------------------------

static struct value *sliced(struct work *w, struct value *v, struct value *const bound[3])
{
  struct value *of = v->kind == TEXT ? sequence_of(w, v) : v;
  const bool is_range = of->view && !strcmp(of->view, "range");
  if (of->kind != LIST || of->is_lazy || (of->view && !is_range)) fails_on(w, "[:]", v);
  for (int i = 0; i < 3; i++)
    if (bound[i]->kind != WHOLE && bound[i]->kind != NONE_VALUE)
      work_fails(w, "the bounds of [:] are whole numbers");
  const long long n = (long long)of->count, step = bound[2]->kind == WHOLE ? bound[2]->whole : 1;
  if (!step) work_fails(w, "a slice's step is 0");
  long long from = step > 0 ? 0 : n - 1, to = step > 0 ? n : -1;
  if (bound[0]->kind == WHOLE) {
    from = bound[0]->whole < 0 ? bound[0]->whole + n : bound[0]->whole;
    from = from < 0                        ? (step > 0 ? 0 : -1)
           : from > (step > 0 ? n : n - 1) ? (step > 0 ? n : n - 1)
                                           : from;
  }
  if (bound[1]->kind == WHOLE) {
    to = bound[1]->whole < 0 ? bound[1]->whole + n : bound[1]->whole;
    to = to < 0 ? (step > 0 ? 0 : -1) : to > n ? n : to;
  }
  struct value *part = list_value(w);
  part->is_tuple = v->is_tuple;
  part->view = is_range ? of->view : NULL;
  for (long long i = from; step > 0 ? i < to : i > to; i += step) list_add(w, part, of->at[i]);
  if (v->kind != TEXT) return part;
  struct out o = {0};
  out_add(w, &o, "", 0);
  for (size_t i = 0; i < part->count; i++) out_add(w, &o, part->at[i]->text, part->at[i]->count);
  struct value *text = text_value(w, o.at, o.count);
  text->is_safe = v->is_safe;
  return text;
}

// ---- calls -------------------------------------------------------------------------------------

static void add_argument(struct work *w, struct value *named, struct value *name, struct value *v)
{
  for (size_t i = 0; i < named->count; i++)
    if (are_equal(named->key[i], name)) work_fails(w, "an argument is given twice");
  map_set(w, named, name, v);
}

static struct value **values_of_arguments(struct work *w, struct scope *s, const struct node *call,
                                          size_t *n, struct value **named)
{
  struct value *all = list_value(w);
  *named = map_value(w);
  for (size_t i = 0; i < call->n; i++) {
    const struct node *one = call->list[i];
    if (one->kind != N_SPREAD) {
      list_add(w, all, evaluate(w, s, one));
      continue;
    }
    struct value *v = evaluate(w, s, one->a), *list = one->flag ? v : sequence_of(w, v);
    if (one->flag && !is_dict(v)) work_fails(w, "** wants a map");
    for (size_t k = 0; k < list->count; k++) {
      if (one->flag && v->key[k]->kind != TEXT) work_fails(w, "the name of an argument is a text");
      if (one->flag)
        add_argument(w, *named, v->key[k], v->at[k]);
      else
        list_add(w, all, list->at[k]);
    }
  }
  for (size_t i = 0; i < call->nnamed; i++) {
    const char *name = call->named[i]->name;
    add_argument(w, *named, text_value(w, name, strlen(name)), evaluate(w, s, call->named[i]->a));
  }
  *n = all->count;
  return all->at;
}

static struct value *call_macro(struct work *w, struct value *f, struct value **at, size_t n,
                                struct value *named)
{
  const struct node *m = f->macro;
  struct scope *s = new_scope(w, f->scope);
  struct out o = {0};
  const char *who = m->name ? m->name : "caller";
  if (n > m->nnamed && !m->uses_varargs)
    work_fails(w, "the macro %s takes %zu arguments, not %zu", who, m->nnamed, n);
  struct value *rest = map_value(w), *caller = map_get(named, "caller");
  for (size_t k = 0; k < named->count; k++) {
    bool is_known = false;
    for (size_t i = 0; i < m->nnamed; i++) {
      const bool is_it = map_get(named, m->named[i]->name) == named->at[k] &&
                         !strcmp(m->named[i]->name, named->key[k]->text);
      if (is_it && i < n) work_fails(w, "an argument of the macro %s is given twice", who);
      is_known |= is_it;
    }
    if (named->at[k] == caller && !strcmp(named->key[k]->text, "caller")) {
      if (!m->uses_caller) work_fails(w, "the macro %s uses no caller", who);
      is_known = true;
    }
    if (is_known) continue;
    if (!m->uses_kwargs)
      work_fails(w, "the macro %s takes no argument '%s'", who, named->key[k]->text);
    map_set(w, rest, named->key[k], named->at[k]);
  }
  if (m->uses_caller) set_name(w, s, "caller", caller ? caller : undefined_value(w, "caller"));
  if (m->uses_kwargs) set_name(w, s, "kwargs", rest);
  if (m->uses_varargs) {
    struct value *more = list_value(w);
    more->is_tuple = true;
    for (size_t i = m->nnamed; i < n; i++) list_add(w, more, at[i]);
    set_name(w, s, "varargs", more);
  }
  for (size_t i = 0; i < m->nnamed; i++) {
    const char *name = m->named[i]->name;
    struct value *v = i < n ? at[i] : map_get(named, name);
    if (!v) v = m->named[i]->a ? evaluate(w, s, m->named[i]->a) : undefined_value(w, name);
    set_name(w, s, name, v);
  }
  out_add(w, &o, "", 0);
  run_body(w, s, m->b, &o);
  return text_value(w, o.at, o.count);
}

// A method's arguments: how many it takes, and which may have names, its value says.
static void check_arguments(struct work *w, const struct value *f, size_t n,
                            const struct value *named)
{
  if (n + named->count > f->count) work_fails(w, "%s() has too many arguments", f->name);
  for (size_t i = 0; i < named->count && *f->text != '*'; i++)
    if (!is_among_words(f->text, named->key[i]->text))
      work_fails(w, "%s() has no argument that is called %s", f->name, named->key[i]->text);
  if (!f->self->is_safe) return;
  work_fails(w, "%s() of a text that is safe is not known here", f->name);
}

struct value *call_value(struct work *w, struct value *f, struct value **at, size_t n,
                         struct value *named)
{
  work_step(w);
  if (f->kind == UNDEFINED) work_fails(w, "'%s' is undefined", f->name ? f->name : "it");
  if (f->is_object && f->macro) {
    if (n != 1 || named->count) work_fails(w, "a recursive loop takes one list");
    return loop_again(w, f, at[0]);
  }
  if (f->kind != FUNCTION) work_fails(w, "what is called is no function");
  if (++w->depth > MOST_CALLS) work_fails(w, "calls are nested too deep");
  if (f->text) check_arguments(w, f, n, named);
  struct value *v =
      f->macro ? call_macro(w, f, at, n, named) : f->call(w, f->self ? f->self : f, at, n, named);
  w->depth--;
  return v;
}

// caller: what a call block gives; or NULL.
static struct value *evaluate_call(struct work *w, struct scope *s, const struct node *n,
                                   struct value *caller)
{
  size_t count;
  struct value *named, **at = values_of_arguments(w, s, n, &count, &named), *f;
  if (caller) add_argument(w, named, text_value(w, "caller", 6), caller);
  if (n->a->kind == N_MEMBER) {
    struct value *of = evaluate(w, s, n->a->a);
    if (of->kind == UNDEFINED) work_fails(w, "'%s' is undefined", of->name ? of->name : "it");
    f = member_of_value(w, of, n->a->name);
    w->line = n->line;
    if (!f) work_fails(w, "there is no method '%s' here", n->a->name);
  } else {
    f = evaluate(w, s, n->a);
  }
  if (caller && !f->macro) work_fails(w, "'call' wants a macro");
  return call_value(w, f, at, count, named);
}

// ---- expressions -------------------------------------------------------------------------------

static struct value *evaluate_list(struct work *w, struct scope *s, const struct node *n)
{
  struct value *v = n->kind == N_MAP ? map_value(w) : list_value(w);
  v->is_tuple = n->kind == N_TUPLE;
  for (size_t i = 0; i < n->n; i++) {
    if (n->kind == N_MAP)
      map_set(w, v, evaluate(w, s, n->list[i]->a), evaluate(w, s, n->list[i]->b));
    else
      list_add(w, v, evaluate(w, s, n->list[i]));
  }
  return v;
}

static struct value *filtered(struct work *w, struct scope *s, const struct node *n,
                              struct value *v)
{
  size_t count;
  struct value *named, **at = values_of_arguments(w, s, n, &count, &named);
  w->line = n->line;
  return apply_filter(w, n->name, v, at, count, named);
}

// The filters of a block, from the innermost on.
static struct value *filtered_by_all(struct work *w, struct scope *s, const struct node *n,
                                     struct value *v)
{
  return filtered(w, s, n, n->a ? filtered_by_all(w, s, n->a, v) : v);
}

static bool evaluate_comparison(struct work *w, struct scope *s, const struct node *n)
{
  struct value *a = evaluate(w, s, n->a);
  for (size_t i = 0; i < n->n; i++) {
    struct value *b = evaluate(w, s, n->list[i]->a);
    w->line = n->line;
    if (!compares(w, n->list[i]->name, a, b)) return false;
    a = b;
  }
  return true;
}

static struct value *evaluate(struct work *w, struct scope *s, const struct node *n)
{
  struct value *v, *named, *bound[3];
  work_step(w);
  w->line = n->line;
  switch (n->kind) {
  case N_CONSTANT:
    return n->value;
  case N_NAME:
    return value_named(w, s, n->name);
  case N_LIST:
  case N_TUPLE:
  case N_MAP:
    return evaluate_list(w, s, n);
  case N_MEMBER:
    v = evaluate(w, s, n->a);
    w->line = n->line;
    if (v->kind == UNDEFINED)
      work_fails(w, "'%s' is undefined, and has no '%s'", v->name ? v->name : "it", n->name);
    named = member_of_value(w, v, n->name);
    return named ? named : undefined_value(w, n->name);
  case N_ITEM:
    v = evaluate(w, s, n->a);
    if (v->kind == UNDEFINED) work_fails(w, "'%s' is undefined", v->name ? v->name : "it");
    return item_of(w, v, evaluate(w, s, n->b));
  case N_SLICE:
    v = evaluate(w, s, n->a);
    for (int i = 0; i < 3; i++)
      bound[i] = n->list[i] ? evaluate(w, s, n->list[i]) : value_of(w, NONE_VALUE);
    return sliced(w, v, bound);
  case N_CALL:
    return evaluate_call(w, s, n, NULL);
  case N_FILTER:
    return filtered(w, s, n, evaluate(w, s, n->a));
  case N_TEST:
    v = evaluate(w, s, n->a);
    {
      size_t count;
      struct value **at = values_of_arguments(w, s, n, &count, &named);
      w->line = n->line;
      if (named->count) work_fails(w, "a test has no named arguments");
      return flag_value(w, apply_test(w, n->name, v, at, count) != n->flag);
    }
  case N_NOT:
    return flag_value(w, !is_true(evaluate(w, s, n->a)));
  case N_AND:
    v = evaluate(w, s, n->a);
    return is_true(v) ? evaluate(w, s, n->b) : v;
  case N_OR:
    v = evaluate(w, s, n->a);
    return is_true(v) ? v : evaluate(w, s, n->b);
  case N_NEGATIVE:
    v = evaluate(w, s, n->a);
    if (!is_number(v)) fails_on(w, "-", v);
    return v->kind == REAL ? real_value(w, -v->real)
                           : calculated(w, '-', false, whole_value(w, 0), v);
  case N_BINARY:
    v = evaluate(w, s, n->a);
    named = evaluate(w, s, n->b);
    w->line = n->line;
    return binary_value(w, n->name, v, named);
  case N_COMPARE:
    return flag_value(w, evaluate_comparison(w, s, n));
  case N_CHOICE:
    if (is_true(evaluate(w, s, n->b))) return evaluate(w, s, n->a);
    return n->c ? evaluate(w, s, n->c) : undefined_value(w, "it");
  default:
    work_fails(w, "it is no expression");
  }
}

// ---- statements --------------------------------------------------------------------------------

static void assign(struct work *w, struct scope *s, const struct node *targets, struct value *v)
{
  struct value *of_all = targets->n > 1 ? sequence_of(w, v) : v;
  if (targets->n > 1 && of_all->count != targets->n)
    work_fails(w, "%zu values are wanted here", targets->n);
  for (size_t i = 0; i < targets->n; i++) {
    const struct node *t = targets->list[i];
    struct value *one = targets->n > 1 ? of_all->at[i] : v;
    if (t->kind == N_TUPLE) {
      assign(w, s, t, one);
      continue;
    }
    if (t->kind == N_NAME) {
      set_name(w, s, t->name, one);
      continue;
    }
    struct value *of = value_named(w, s, t->a->name);
    if (!of->is_namespace) work_fails(w, "'%s' is no namespace", t->a->name);
    map_set(w, of, text_value(w, t->name, strlen(t->name)), one);
  }
}

static struct value *cycle(struct work *w, struct value *self, struct value **at, size_t n,
                           struct value *named)
{
  (void)named;
  if (!n) work_fails(w, "loop.cycle() wants values");
  return at[(size_t)map_get(self, "index0")->whole % n];
}

// Whether the values are others than those of the call before; `self` has those.
static struct value *changed(struct work *w, struct value *self, struct value **at, size_t n,
                             struct value *named)
{
  struct value *now = list_value(w);
  if (named->count) work_fails(w, "loop.changed() has no named arguments");
  for (size_t i = 0; i < n; i++) list_add(w, now, at[i]);
  const bool is_other = !self->count || !are_equal(self->at[0], now);
  self->count = 0;
  list_add(w, self, now);
  return flag_value(w, is_other);
}

static struct value *loop_value(struct work *w, const struct value *list, size_t i, int depth,
                                struct value *before)
{
  struct value *loop = map_value(w);
  const struct {
    const char *name;
    struct value *v;
  } members[] = {
      {"index", whole_value(w, (long long)i + 1)},
      {"index0", whole_value(w, (long long)i)},
      {"revindex", whole_value(w, (long long)(list->count - i))},
      {"revindex0", whole_value(w, (long long)(list->count - i) - 1)},
      {"first", flag_value(w, i == 0)},
      {"last", flag_value(w, i + 1 == list->count)},
      {"length", whole_value(w, (long long)list->count)},
      {"depth", whole_value(w, depth)},
      {"depth0", whole_value(w, depth - 1)},
      {"previtem", i ? list->at[i - 1] : undefined_value(w, "previtem")},
      {"nextitem", i + 1 < list->count ? list->at[i + 1] : undefined_value(w, "nextitem")}};
  for (size_t k = 0; k < sizeof members / sizeof *members; k++)
    map_set(w, loop, text_value(w, members[k].name, strlen(members[k].name)), members[k].v);
  map_set(w, loop, text_value(w, "cycle", 5), function_value(w, "cycle", cycle, loop));
  map_set(w, loop, text_value(w, "changed", 7), function_value(w, "changed", changed, before));
  loop->is_object = true;
  return loop;
}

// depth: 1, and more in a recursive loop.
static enum flow run_for(struct work *w, struct scope *outer, const struct node *n,
                         struct value *over, int depth, struct out *o)
{
  const bool was_lazy = over->is_lazy;
  struct value *list = sequence_of(w, over), *taken = list, *before = list_value(w);
  if (n->list[1]) {
    taken = list_value(w);
    for (size_t i = 0; i < list->count; i++) {
      struct scope *s = new_scope(w, outer);
      assign(w, s, n->list[0], list->at[i]);
      if (is_true(evaluate(w, s, n->list[1]))) list_add(w, taken, list->at[i]);
    }
  }
  for (size_t i = 0; i < taken->count; i++) {
    struct scope *s = new_scope(w, outer);
    assign(w, s, n->list[0], taken->at[i]);
    struct value *loop = loop_value(w, taken, i, depth, before);
    if (n->flag) { // it can be called
      loop->macro = n;
      loop->scope = outer;
      loop->whole = depth;
    }
    set_name(w, s, "loop", loop);
    if (run_body(w, s, n->b, o) != BREAKS) continue;
    if (was_lazy) over->view = "an iterator that a loop left";
    break;
  }
  return !taken->count && n->c ? run_body(w, new_scope(w, outer), n->c, o) : GOES_ON;
}

struct value *loop_again(struct work *w, struct value *loop, struct value *list)
{
  struct out o = {0};
  out_add(w, &o, "", 0);
  if (++w->depth > MOST_CALLS) work_fails(w, "calls are nested too deep");
  run_for(w, loop->scope, loop->macro, list, (int)loop->whole + 1, &o);
  w->depth--;
  return text_value(w, o.at, o.count);
}

static enum flow run_with(struct work *w, struct scope *s, const struct node *n, struct out *o)
{
  struct scope *inner = new_scope(w, s);
  for (size_t i = 0; i < n->n; i++) assign(w, inner, n->list[i]->a, evaluate(w, s, n->list[i]->b));
  return run_body(w, inner, n->b, o);
}

// A block sees what stands outside of all loops, but for a scoped one.
static void run_block(struct work *w, struct scope *s, const struct node *n, struct out *o)
{
  while (!n->flag && s->outer) s = s->outer;
  if (run_body(w, new_scope(w, s), n->b, o) != GOES_ON)
    work_fails(w, "break and continue leave no block");
}

static void run_call_block(struct work *w, struct scope *s, const struct node *n, struct out *o)
{
  struct value *caller = value_of(w, FUNCTION);
  caller->name = "caller";
  caller->macro = n;
  caller->scope = s;
  out_str(w, o, evaluate_call(w, s, n->a, caller));
}

static void add_span(struct spans *to, size_t begin, size_t end)
{
  struct span *all = realloc(to->at, (to->count + 1) * sizeof *all);
  to->failed |= !all;
  if (!all) return;
  to->at = all;
  to->at[to->count++] = (struct span){begin, end};
}

static enum flow run_statement(struct work *w, struct scope *s, const struct node *n, struct out *o)
{
  struct out text = {0};
  struct value *v;
  enum flow flow;
  size_t begin;
  work_step(w);
  w->line = n->line;
  switch (n->kind) {
  case N_TEXT:
    out_add(w, o, n->value->text, n->value->count);
    return GOES_ON;
  case N_PRINT:
    out_str(w, o, evaluate(w, s, n->a));
    return GOES_ON;
  case N_IF:
    if (is_true(evaluate(w, s, n->a))) return run_body(w, s, n->b, o);
    if (!n->c) return GOES_ON;
    return n->c->kind == N_IF ? run_statement(w, s, n->c, o) : run_body(w, s, n->c, o);
  case N_FOR:
    return run_for(w, s, n, evaluate(w, s, n->a), 1, o);
  case N_WITH:
    return run_with(w, s, n, o);
  case N_BLOCK:
    run_block(w, s, n, o);
    return GOES_ON;
  case N_CALL_BLOCK:
    run_call_block(w, s, n, o);
    return GOES_ON;
  case N_SET:
    assign(w, s, n->a, evaluate(w, s, n->b));
    return GOES_ON;
  case N_SET_BLOCK:
  case N_FILTER_BLOCK:
    out_add(w, &text, "", 0);
    flow = run_body(w, new_scope(w, s), n->b, &text);
    v = text_value(w, text.at, text.count);
    if (n->kind == N_SET_BLOCK) {
      assign(w, s, n->a, n->c ? filtered_by_all(w, s, n->c, v) : v);
      return flow;
    }
    out_str(w, o, filtered_by_all(w, s, n->a, v));
    return flow;
  case N_MACRO:
    v = value_of(w, FUNCTION);
    v->name = n->name;
    v->macro = n;
    v->scope = s;
    set_name(w, s, n->name, v);
    return GOES_ON;
  case N_GENERATION:
    begin = o->count;
    flow = run_body(w, s, n->b, o);
    if (w->generation && o == w->whole) add_span(w->generation, begin, o->count);
    return flow;
  case N_BREAK:
    return BREAKS;
  case N_CONTINUE:
    return CONTINUES;
  default:
    return run_body(w, s, n, o);
  }
}

static enum flow run_body(struct work *w, struct scope *s, const struct node *body, struct out *o)
{
  for (size_t i = 0; i < body->n; i++) {
    const enum flow flow = run_statement(w, s, body->list[i], o);
    if (flow != GOES_ON) return flow;
  }
  return GOES_ON;
}

// ---- from outside ------------------------------------------------------------------------------

static bool parse_into(struct jinja *j, const char *text)
{
  if (setjmp(j->work.out)) return false;
  j->body = jinja_parse(&j->work, text);
  return true;
}

struct jinja *jinja_open(const char *text, struct failure *why)
{
  struct jinja *j = calloc(1, sizeof *j);
  if (!j) {
    failed(why, "out of memory for the chat template");
    return NULL;
  }
  j->work.why = why;
  if (parse_into(j, text)) return j;
  jinja_close(j);
  return NULL;
}

void jinja_close(struct jinja *j)
{
  if (!j) return;
  work_free(&j->work);
  free(j);
}

bool jinja_render(const struct jinja *j, const json_t *variables, const char *date,
                  struct bytes *text, struct spans *generation, struct failure *why)
{
  struct work w = {.why = why, .generation = generation};
  if (setjmp(w.out)) {
    work_free(&w);
    return false;
  }
  struct scope *s = new_scope(&w, NULL);
  struct out o = {0};
  s->variables = value_of_json(&w, variables);
  w.date = date;
  out_add(&w, &o, "", 0);
  w.whole = &o;
  run_body(&w, s, j->body, &o);
  add_bytes(text, o.at, o.count);
  work_free(&w);
  return (!text->failed && !(generation && generation->failed)) ||
         failed(why, "out of memory for a conversation");
}
