/* names.c: names in the program of one class of ranks, and the declarations of its memory. Names
   come from the model: a struct mirrors the module tree, gradients and the optimizer's state are
   the same struct again, and an activation is named after the module that made it. */
#include "naming/naming.h"

#include <stdlib.h>
#include <inttypes.h>
#include <string.h>

/* ---------------------------------------------------------------------- names within a function */

static const struct function *speaking; /* the function whose names are given, or NULL */
static const char **local;              /* by value: its name in that function, or NULL */
static bool *declares;                  /* by value: it is the first with this name */

/* The variables of that function: a number for each name; by number, the value that declares it,
   and whether it is declared. */
static struct memo variables;
static struct list declarers;
static bool *declared;

static bool loops(void)
{
  return speaking && speaking->count > 1;
}

const char *local_name(int value)
{
  return model_name(value, loops());
}

const char *c_name(int value)
{
  if (!has_part(value)) return NULL;
  if (local && local[value]) return local[value];
  if (memory_name[value]) {
    if (!loops()) return memory_name[value];
    /* "m->w.layers[0].wq" as "m->w.layers[l].wq", "m->w.layers[4].wq" as "m->w.layers[l + 4].wq":
       the number is where it differs from module 1's. */
    const char *name = memory_name[value];
    int sibling = in_loop(value)->sibling;
    if (!name || sibling == NONE || !memory_name[sibling]) return name;
    int at = 0;
    while (name[at] && name[at] == memory_name[sibling][at]) at++;
    while (at && name[at - 1] != '[') at--;
    if (!at) bug("emit", "%s and its like are not an array", name);
    char *rest;
    long first = strtol(name + at, &rest, 10);
    return text("%.*sl%s%s", at, name, first ? text(" + %ld", first) : "", rest);
  }
  return storage_of(value) == value ? NULL : c_name(storage_of(value));
}

bool has_some_of(enum role role)
{
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role == role && v->op == NONE && c_name(i)) return true;
  }
  return false;
}

/* The name of a value in comments: its module's name for it, with the number by which the current
   function distinguishes it from others of that name. */
const char *display_name(int value)
{
  const char *name = local_name(value);
  if (local && local[value]) name = spared_name(name);
  const char *plain = identifier(name);
  size_t n = strlen(plain);
  bool numbered = local && local[value] && !strncmp(local[value], plain, n) && local[value][n];
  return numbered ? text("%s%s", name, local[value] + n) : name;
}

void name_values(int of_rank)
{
  named_rank = of_rank;
  speaking = NULL;
  local = NULL;
  forget_activations();
  forget_member_runs();
  memory_name = alloc((size_t)(graph->nvalue + 1) * sizeof *memory_name);
  declare_memory();
}

/* ---------------------------------------------------------------------------------- activations */

/* The pointer to one particular value, of any stack. */
static const char *own_address(int value)
{
  if (!is_activation(value)) return memory_name[memory_name[value] ? value : storage_of(value)];
  return arena_pointer(value, NULL, speaking->name);
}

static const char *address_of_value(int value)
{
  const struct in_loop *loop = in_loop(value);
  if (loop->step && same_place(value, loop->stack)) return address_of_value(loop->stack);
  if (loop->step) {
    /* A carried value: the stack's value of the module before, or after, in the loop. */
    const char *module = loop->step < 0 ? "l - 1" : "l + 1";
    const char *condition = loop->step < 0 ? "l > 0" : text("l < %d", speaking->count - 1);
    const char *from = arena_pointer(loop->stack, module, speaking->name);
    return text("%s ? %s : %s", condition, from, own_address(loop->initial));
  }
  if (loops() && loop->stack == value && is_activation(value))
    return arena_pointer(value, "l", speaking->name);
  return own_address(value);
}

/* The storage of a stack's value is that of module 0's, whichever module it is of. */
static bool is_of_same_module(int value, int storage)
{
  const struct in_loop *a = in_loop(value), *b = in_loop(storage);
  return a->stack == NONE || b->stack == NONE || a->index == b->index;
}

/* "// [2, 64], in place of x": the facts that a reader of the function needs; the arena's table has
   the rest. */
static void put_local(struct buffer *b, int value)
{
  const struct value *v = &graph->value[value];
  const struct in_loop *loop = in_loop(value);
  const struct concat_slice *w = concat_slice(value);
  int storage = storage_of(value);
  struct buffer about = {0};
  put(&about, "// %s", shape_text(local_shape(value, named_rank)));
  int first = (int)(v->order & 7);
  if (v->order)
    put(&about, ", %s",
        v->order == moved_to_front(first, v->shape.ndim) ? text("dim %d first", first)
                                                         : order_text(v));
  if (loop->step)
    put(&about, ", of the %s %s", loop->step < 0 ? "previous" : "next",
        graph->module[in_loop(loop->stack)->list].steps ? "step" : "layer");
  else if (allocation_of(value).slice)
    put(&about, ", of this step");
  else if (storage != value && local[storage] && local[storage] != local[value] &&
           is_of_same_module(value, storage))
    put(&about, ", in%s %s", is_buffer(storage) ? "" : " place of", local[storage]);
  if (w->buffer != NONE && w->row < w->pitch)
    put(&about, ", rows of %" PRId64 ", %" PRId64 " apart", w->row, w->pitch);
  char *left = text("  %s *const %s =", c_type(v->type), local[value]);
  char *line = text("%s %s;", left, address_of_value(value));
  enum { COLUMNS = 100 };
  if (strlen(line) + 1 + about.length <= COLUMNS)
    put(b, "%s %s\n", line, about.text);
  else
    put(b, "%s %s\n%s\n", left, about.text,
        wrapped(text("      %s;", address_of_value(value)), " : ", "          "));
}

/* The values that the current function reads or writes, in their order; and by value whether it
   does. */
static struct list used_values;
static bool *used;

static void use(const int *list, int n)
{
  for (int i = 0; i < n; i++) {
    if (!used[list[i]]) add(&used_values, list[i]);
    used[list[i]] = true;
  }
}

static int by_number(const void *a, const void *b)
{
  return *(const int *)a - *(const int *)b;
}

/* The variable for a value: an in-place result of the same name has the variable of its operand,
   and so has a view of a value that the function uses, too. */
static const char *local_variable(int value, struct scope *scope)
{
  if (local[value]) return local[value];
  for (int in = viewed_value(value); in != NONE; in = viewed_value(in))
    if (used[in] && is_activation(in)) return local[value] = local_variable(in, scope);
  int place = storage_of(value);
  const char *preferred = identifier(local_name(value));
  const struct value *v = &graph->value[value], *other = &graph->value[place];
  bool same = place != value && local[place] && !strcmp(preferred, identifier(local_name(place)));
  /* One variable serves both if the value has exactly the other's bytes. */
  same = same && same_place(place, value) && v->type == other->type && !in_loop(place)->step &&
         !in_loop(value)->step && allocation_of(place).depth == allocation_of(value).depth;
  declares[value] = !same;
  if (!same) preferred = text("%s%s", preferred, moved_suffix(value));
  return local[value] = same ? local[place] : unique_name(scope, preferred);
}

void name_locals(const struct function *f)
{
  /* Forgets the names of the previous function. */
  if (!local) {
    local = alloc((size_t)(graph->nvalue + 1) * sizeof *local);
    declares = alloc((size_t)(graph->nvalue + 1) * sizeof *declares);
    used = alloc((size_t)(graph->nvalue + 1) * sizeof *used);
    used_values = (struct list){0};
  }
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    local[value] = NULL;
    declares[value] = used[value] = false;
  }
  used_values.n = 0;
  int *list = NULL, room = 0;
  for (int k = 0; k < f->nop; k++) {
    const struct op *op = &graph->op[f->op[k]];
    while (room < op_width(op)) list = grow(list, 0, &room, sizeof *list);
    use(list, op_reads(op, list));
    use(list, op_writes(op, list));
  }
  if (used_values.n) {
    qsort(used_values.at, (size_t)used_values.n, sizeof *used_values.at, by_number);
  }
  struct scope scope = {.local = true};
  speaking = f;
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    if (is_activation(value) && has_part(value)) local_variable(value, &scope);
  }
  struct query q = {0};
  variables = (struct memo){0};
  declarers.n = 0;
  for (int i = 0; i < used_values.n; i++) {
    int value = used_values.at[i];
    if (!declares[value]) continue;
    begin_query(&q);
    ask_text(&q, local[value]);
    if (number_of_query(&variables, &q) == declarers.n) add(&declarers, value);
  }
  declared = alloc((size_t)(declarers.n + 1) * sizeof *declared);
}

/* Calls has_word for the words of the code. */
char *local_declarations(const char *code)
{
  struct buffer b = {0};
  bool quoted = false, comment = false;
  put_text(&b, "", 0);
  for (const char *c = code; *c;) {
    size_t n = word_length(c);
    bool member = c > code && (c[-1] == '.' || (c > code + 1 && c[-1] == '>' && c[-2] == '-'));
    if (n && !quoted && !comment && !member && !(c > code && c[-1] == '\'')) {
      /* A word of the function's text: declares the variable of this name, if there is one. */
      static struct query q;
      begin_query(&q);
      ask_piece(&q, c, n);
      int number = number_of_query(&variables, &q);
      if (number < declarers.n && !declared[number]) {
        declared[number] = true;
        put_local(&b, declarers.at[number]);
      }
    }
    c += n;
    if (n || !*c) continue;
    if (*c == '"') quoted = !quoted;
    if (!quoted && c[0] == '/' && (c[1] == '/' || c[1] == '*')) comment = true;
    if (*c == '\n' || (c[0] == '*' && c[1] == '/')) quoted = comment = false;
    c++;
  }
  return b.text;
}
