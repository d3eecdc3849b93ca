/* kernel_arguments.c: the parameters of a kernel, its arguments in a call, and the names within it.
 */
#include "kernel/kernel.h"

#include <string.h>

/* The last word of a dotted name: "weight". */
static const char *leaf(const char *name)
{
  const char *dot = strrchr(name, '.');
  return dot && dot[1] ? dot + 1 : name;
}

/* Further words that kernels on a device use. */
static bool is_reserved_on_device(const char *name)
{
  static const char *const words[] = {"add_parts", "e",   "lane",     "load",     "store",
                                      "v",         "vec", "warp_max", "warp_min", "warp_sum"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(name, words[i])) return true;
  return false;
}

/* Which of "sum", "sum_2", "sum_3" ... are in use. */
struct numbers {
  const char *preferred;
  size_t length;
  bool taken[1024]; /* more than a kernel has names */
};

static void take_number(struct numbers *n, const char *name)
{
  const size_t most = sizeof n->taken;
  if (strncmp(name, n->preferred, n->length)) return;
  const char *rest = name + n->length;
  size_t number = 0;
  if (!*rest) n->taken[1] = true;
  if (rest[0] != '_' || rest[1] == '0') return;
  for (rest++; *rest >= '0' && *rest <= '9' && number < most; rest++)
    number = 10 * number + (size_t)(*rest - '0');
  if (!*rest && number > 1 && number < most) n->taken[number] = true;
}

const char *free_name(const struct kernel_builder *k, const char *preferred)
{
  struct numbers n = {.preferred = spared_name(preferred)};
  n.length = strlen(n.preferred);
  for (int i = 0; i < k->vectors.n; i++) take_number(&n, k->vectors.list[i].name);
  for (int i = 0; i < k->nargument; i++) take_number(&n, k->argument[i].name);
  for (int i = 0; i < k->nextra; i++) take_number(&n, k->extra[i].name);
  for (int i = 0; i < k->ntemporary; i++) take_number(&n, k->temporary[i].element->word);
  for (int again = 1; again < (int)sizeof n.taken; again++) {
    if (n.taken[again]) continue;
    const char *name = again == 1 ? n.preferred : text("%s_%d", n.preferred, again);
    bool is_reserved_in_kernel =
        is_reserved_name(name) || (target->thread_grids && is_reserved_on_device(name));
    if (!is_reserved_in_kernel) return name;
  }
  bug("emit", "a kernel has more than %d names like '%s'", (int)sizeof n.taken, preferred);
}

/* The value's name in comments, "d_norm_cut", without the number that distinguishes it from others
   elsewhere. */
static const char *name_in_kernel(int value)
{
  const char *shown = display_name(value), *end = shown + strlen(shown);
  while (end > shown && end[-1] >= '0' && end[-1] <= '9') end--;
  return *end && end > shown && end[-1] == '_' ? local_name(value) : shown;
}

/* A value's name as an argument: the last word of its name, "weight", "d_weight"; both words of
   "layers.1". */
static char *argument_word(int value)
{
  const char *name = name_in_kernel(value), *last = leaf(name);
  while (last > name && *last >= '0' && *last <= '9')
    for (last--; last > name && last[-1] != '.';) last--;
  bool marked = is_gradient(value) || (!strncmp(name, "d_", 2) && last > name);
  return identifier(text("%s%s", marked && strncmp(last, "d_", 2) ? "d_" : "", last));
}

/* One pointer for each place in memory. */
static void add_argument(struct kernel_builder *k, int value, bool written)
{
  if (!elements(local_shape(value, k->rank))) return;
  for (int i = 0; i < k->nargument; i++)
    if (same_place(k->argument[i].value, value)) {
      k->argument[i].in_place = k->argument[i].written;
      return;
    }
  const char *name = free_name(k, argument_word(value));
  GROW(k->argument, k->nargument, k->argument_room);
  k->argument[k->nargument++] = (struct argument){
      .value = value, .type = graph->value[value].type, .written = written, .name = name};
}

const char *argument_if_any(const struct kernel_builder *k, int value)
{
  for (int i = 0; i < k->nargument; i++)
    if (same_place(k->argument[i].value, value)) return k->argument[i].name;
  return NULL;
}

const char *argument_name(const struct kernel_builder *k, int value)
{
  const char *name = argument_if_any(k, value);
  if (!name) bug_at("emit", graph->value[value].op, "its kernel has no argument for it");
  return name;
}

void find_arguments(struct kernel_builder *k)
{
  int *list = alloc((size_t)op_width(k->group) * sizeof *list);
  for (int i = 0, n = op_writes(k->group, list); i < n; i++) add_argument(k, list[i], true);
  for (int i = 0, n = op_reads(k->group, list); i < n; i++)
    if (graph->value[list[i]].stored) add_argument(k, list[i], false);
}

void drop_unused(struct kernel_builder *k, const struct code *body)
{
  int kept = 0;
  for (int i = 0; i < k->nargument; i++)
    if (code_names(body, k->argument[i].name)) k->argument[kept++] = k->argument[i];
  k->nargument = kept;
}

const char *add_extra(struct kernel_builder *k, const char *type, const char *preferred,
                      const char *call)
{
  for (int i = 0; i < k->nextra; i++)
    if (!strcmp(k->extra[i].call, call)) return k->extra[i].name;
  GROW(k->extra, k->nextra, k->extra_room);
  const char *name = free_name(k, preferred);
  k->extra[k->nextra++] = (struct extra){type, name, call};
  return name;
}

char *parameters_text(const struct kernel_builder *k)
{
  struct buffer b = {0};
  const char *mark = target_syntax()->no_alias;
  for (int i = 0; i < k->nargument; i++)
    put(&b, "%s%s%s *%s%s", i ? ", " : "", k->argument[i].written ? "" : "const ",
        c_type(k->argument[i].type), mark, k->argument[i].name);
  for (int i = 0; i < k->nextra; i++) {
    const char *comma = b.length ? ", " : "";
    const char *type = k->extra[i].type, *blank = type[strlen(type) - 1] == '*' ? "" : " ";
    put(&b, "%s%s%s%s", comma, type, blank, k->extra[i].name);
  }
  return b.text;
}

char *arguments_text(const struct kernel_builder *k)
{
  struct buffer b = {0};
  for (int i = 0; i < k->nargument; i++)
    put(&b, "%s%s", i ? ", " : "", c_name(k->argument[i].value));
  for (int i = 0; i < k->nextra; i++) {
    const struct extra *e = &k->extra[i];
    const char *name = strncmp(e->name, "first", 5) ? "" : text("/* %s */ ", e->name);
    put(&b, "%s%s%s", b.length ? ", " : "", name, e->call);
  }
  return b.text;
}

/* ------------------------------------------------------------------------------ inner values */

const struct expr *temporary_of(const struct kernel_builder *k, int value)
{
  for (int i = 0; i < k->ntemporary; i++)
    if (k->temporary[i].value == value) return k->temporary[i].element;
  return NULL;
}

void name_temporary(struct kernel_builder *k, int value, const struct expr *element)
{
  GROW(k->temporary, k->ntemporary, k->temporary_room);
  k->temporary[k->ntemporary++] = (struct temporary){value, element};
}

const char *new_temporary(struct kernel_builder *k, int value, const char *preferred)
{
  const char *name = free_name(k, preferred);
  name_temporary(k, value, word_expr(name));
  return name;
}
