/* read_fields.c: the names, the values and the fields of a dump, by the rows of fields.h. */
#include "dump/dump.h"

#include <stdlib.h>
#include <string.h>

struct reading r;

/* --------------------------------------------------------------------------------------- values */

void reach_value(int value)
{
  while (graph->nvalue <= value) {
    /* A value that had the number and no longer exists. */
    struct value v = usual_value(NULL, F32, r.after);
    GROW(graph->value, graph->nvalue, graph->value_room);
    v.placed = true;
    v.stored = false;
    v.op = r.gap;
    graph->value[graph->nvalue++] = v;
  }
}

int take_value_number(void)
{
  return take_sign('v') ? (int)token_number(0, MOST_VALUES - 1) : NONE;
}

/* Whether the next item is a value's number, and not a name that begins like one. */
bool is_value_number(void)
{
  const char *s = token_place();
  size_t digits = *s == 'v' ? strspn(s + 1, "0123456789") : 0;
  return digits && (!s[1 + digits] || strchr(" \n,)=[", s[1 + digits]));
}

/* After `v29`: [-1]|v23 or [2]. */
static int read_relative(int stack)
{
  static int depth;
  need_sign('[');
  bool carried = take_sign('+') || *token_place() == '-';
  int n = (int)token_number(carried ? -1 : 0, carried ? 1 : INT32_MAX);
  need_sign(']');
  if (carried) need_sign('|');
  if (++depth > MOST_CARRIED) unexpected("a value that is carried less often");
  int value = carried ? read_VALUE() : n;
  depth--;
  struct bearer *bearer = relative_of(&r.bearers, stack, carried ? n : 0, value);
  if (bearer->n != 1) dump_error(token_line(), "v%d has no such relative above", stack);
  return bearer->value;
}

int read_VALUE(void)
{
  if (is_value_number()) {
    int value = take_value_number();
    if (!r.referring_line[value]) r.referring_line[value] = token_line();
    return *token_place() == '[' ? read_relative(value) : value;
  }
  if (take_word("nothing")) return NONE;
  const char *name = token_name();
  struct bearer *bearer = bearer_of(&r.bearers, name);
  if (bearer->n != 1)
    dump_error(token_line(),
               bearer->n ? "%s: %d values are called so: give its number"
                         : "%s: no value is called so above",
               printable(name), bearer->n);
  return bearer->value;
}

/* --------------------------------------------------------------------------------------- fields */

int64_t read_LONG(void)
{
  return token_number(INT64_MIN, INT64_MAX);
}

int read_INT(void)
{
  return (int)token_number(INT32_MIN, INT32_MAX);
}

static uint64_t read_SEED(void)
{
  return token_bits();
}

static double read_REAL(void)
{
  return token_real();
}

static unsigned read_BITS(void)
{
  return (unsigned)token_bits();
}

const char *read_TEXT(void)
{
  return token_text();
}

/* The figures as the device's file has them. */
static const struct measured *read_MEASURED(void)
{
  const char *why, *json = token_text();
  const struct measured *m = read_measured(json, strlen(json), &why);
  if (!m) dump_error(token_line(), "the figures of the device: %s", why);
  return m;
}

int read_MODULE(void)
{
  if (take_word("nothing")) return NONE;
  if (take_sign('#')) return (int)token_number(0, graph->nmodule - 1);
  const char *path = token_name();
  for (int i = 0; i < graph->nmodule; i++)
    if (!strcmp(graph->module[i].path, path)) return i;
  dump_error(token_line(), "%s: no module has this path", printable(path));
}

int function_named(const char *name)
{
  for (int i = 0; i < graph->nfunction; i++)
    if (!strcmp(graph->function[i].name, name)) return i;
  return NONE;
}

static int read_FUNCTION(void)
{
  if (take_word("nothing")) return NONE;
  const char *name = token_name();
  int function = function_named(name);
  if (function == NONE) dump_error(token_line(), "%s: no function is called so", printable(name));
  return function;
}

int read_MESH_DIM(void)
{
  const char *name = token_name();
  for (int i = 0; i < graph->mesh.ndim; i++)
    if (!strcmp(graph->mesh.name[i], name)) return i;
  dump_error(token_line(), "%s: the mesh has no such dimension", printable(name));
}

int read_GROUP(void)
{
  int n = 0, dim[MAX_MESH];
  do {
    if (n == MAX_MESH) unexpected("the group's end");
    dim[n++] = read_MESH_DIM();
    for (int i = 0; i + 1 < n; i++)
      if (dim[i] == dim[n - 1]) unexpected("another dimension");
  } while (take_sign(','));
  return add_ordered_group(n, dim);
}

int read_OP(void)
{
  if (take_word("nothing")) return NONE;
  need_sign('@');
  int n = (int)token_number(1, MOST_VALUES);
  while (r.labels.n <= n) add(&r.labels, NONE), add(&r.label_lines, 0);
  if (!r.label_lines.at[n]) r.label_lines.at[n] = token_line();
  return LABEL(n);
}

static unsigned read_ORDER(void)
{
  unsigned order = 0;
  int place = 0;
  do {
    if (place == MAX_DIMS) unexpected("the order's end");
    order = order_with_dimension(order, place++, (int)token_number(0, MAX_DIMS - 1));
  } while (take_sign(','));
  return order;
}

struct shape read_SHAPE(void)
{
  struct shape s = {0};
  need_sign('[');
  while (!take_sign(']')) {
    if (s.ndim) need_sign(',');
    if (s.ndim == MAX_DIMS) unexpected("the shape's end");
    s.size[s.ndim++] = token_number(INT64_MIN, INT64_MAX);
  }
  return s;
}

struct placement read_PLACEMENT(void)
{
  static const char *const reduction[] = {REDUCTION_WORDS};
  struct placement p = {.kind = REPLICATE};
  if (take_sign('R')) return p;
  bool cut = take_sign('S');
  if (!cut && !take_sign('P')) unexpected("a placement");
  p.kind = cut ? SHARD : PARTIAL;
  need_sign('(');
  if (cut) {
    p.dim = (int)token_number(-MAX_DIMS, MAX_DIMS - 1);
    if (take_sign('/')) p.outer = token_number(0, (int64_t)1 << 40);
  } else {
    int which = take_word_of(reduction, 3);
    if (which == NONE) unexpected("sum, max or min");
    p.reduction = (enum reduction)which;
  }
  need_sign(')');
  if (cut && take_sign('[')) {
    p.cut_order = (int)token_number(0, MAX_MESH - 1);
    need_sign(']');
  }
  if (cut && take_sign('-')) p.shift = (unsigned)token_number(1, MAX_SHIFT);
  return p;
}

struct layout read_LAYOUT(void)
{
  struct layout layout = {0};
  for (int i = 0; i < graph->mesh.ndim; i++) layout.on[i] = read_PLACEMENT();
  return layout;
}

#define WORDS(KIND, type)                                                                          \
  static type read_##KIND(void)                                                                    \
  {                                                                                                \
    static const char *const words[] = {KIND##_WORDS};                                             \
    int which = take_word_of(words, sizeof words / sizeof *words);                                 \
    if (which == NONE) unexpected("one of the words that there are");                              \
    return (type)which;                                                                            \
  }
enum type read_TYPE(void)
{
  static const char *const words[] = {TYPE_WORDS};
  int which = take_word_of(words, sizeof words / sizeof *words);
  if (which == NONE) unexpected("a type");
  return (enum type)which;
}

WORDS(PHASE, enum phase)
WORDS(REDUCTION, enum reduction)
WORDS(ITERATION, enum iteration)
WORDS(INIT, enum init_kind)
WORDS(PREFETCH, enum prefetch)
WORDS(LAST_BATCH, enum last_batch)
WORDS(BUCKETING, enum bucketing)
WORDS(REACH, enum reach)
#undef WORDS

/* A field of the record, if its word is next. A flag has only its word. */
#define FIELD(KIND, member, word) TAKE_##KIND(KIND, member, word)
#define TAKE(KIND, member, word)                                                                   \
  if (take_word(word)) {                                                                           \
    x->member = read_##KIND();                                                                     \
    return true;                                                                                   \
  }
#define TAKE_FLAG(KIND, member, word)                                                              \
  if (take_word(word)) return x->member = true;                                                    \
  if (take_word("no_" word)) {                                                                     \
    x->member = false;                                                                             \
    return true;                                                                                   \
  }
#define TAKE_INT(KIND, member, word)                                                               \
  if (take_word(word)) {                                                                           \
    int n = read_INT();                                                                            \
    x->member = n; /* perhaps a byte */                                                            \
    if (x->member != n) unexpected("a smaller number after " word);                                \
    return true;                                                                                   \
  }
#define TAKE_LONG       TAKE
#define TAKE_SEED       TAKE
#define TAKE_REAL       TAKE
#define TAKE_BITS       TAKE
#define TAKE_TEXT       TAKE
#define TAKE_MEASURED   TAKE
#define TAKE_VALUE      TAKE
#define TAKE_MODULE     TAKE
#define TAKE_FUNCTION   TAKE
#define TAKE_MESH_DIM   TAKE
#define TAKE_GROUP      TAKE
#define TAKE_OP         TAKE
#define TAKE_ORDER      TAKE
#define TAKE_SHAPE      TAKE
#define TAKE_LAYOUT     TAKE
#define TAKE_TYPE       TAKE
#define TAKE_PHASE      TAKE
#define TAKE_REDUCTION  TAKE
#define TAKE_ITERATION  TAKE
#define TAKE_INIT       TAKE
#define TAKE_PREFETCH   TAKE
#define TAKE_LAST_BATCH TAKE
#define TAKE_BUCKETING  TAKE
#define TAKE_REACH      TAKE
#define RECORD(name, type, ROWS)                                                                   \
  bool read_##name##_field(type *x)                                                                \
  {                                                                                                \
    ROWS(FIELD)                                                                                    \
    return false;                                                                                  \
  }
RECORDS(RECORD)
