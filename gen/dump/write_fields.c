/* write_fields.c: the names, the values and the fields of a dump, by the rows of fields.h. */
#include "dump/dump.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

struct writing d;

/* ---------------------------------------------------------------------------------------- words */

static bool write_fields_is_plain(const char *s, const char *also)
{
  for (const char *c = s; *c; c++)
    if (!isalnum((unsigned char)*c) && !strchr(also, *c)) return false;
  return *s;
}

void put_quoted(const char *s)
{
  put(&d.b, "\"");
  for (const unsigned char *c = (const unsigned char *)s; *c; c++)
    if (*c == '\n')
      put(&d.b, "\\n");
    else if (*c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\')
      put(&d.b, "\\x%02x", *c);
    else
      put(&d.b, "%c", *c);
  put(&d.b, "\"");
}

void put_name(const char *s)
{
  /* Whether the name could be taken for a value's number. */
  bool is_number = *s == 'v' && s[1] && strspn(s + 1, "0123456789") == strlen(s + 1);
  if (write_fields_is_plain(s, NAME_SIGNS) && !is_number)
    put(&d.b, "%s", s);
  else
    put_quoted(s);
}

void put_value(int value)
{
  const struct value *v = value == NONE ? NULL : &graph->value[value];
  const struct bearer *bearer =
      v && d.is_written[value] ? bearer_of_value(&d.bearers, value) : NULL;
  if (bearer && (bearer->n != 1 || bearer->value != value)) bearer = NULL;
  if (!v)
    put(&d.b, "nothing");
  else if (bearer && v->role == ACTIVATION) {
    /* `v29[-1]|v23`: carried from the module before, with the initial value v23; `v79[2]`: of
       module 2. */
    const struct in_loop *loop = in_loop(value);
    put(&d.b, loop->step ? "v%d[%+d]" : "v%d[%d]", loop->stack,
        loop->step ? loop->step : loop->index);
    if (loop->step) put(&d.b, "|");
    if (loop->step) put_value(loop->initial);
  } else if (bearer && *v->name)
    put_name(v->name);
  else
    put(&d.b, "v%d", value);
}

void put_module(int module)
{
  if (module == NONE) put(&d.b, "nothing");
  if (module == NONE) return;
  const char *path = graph->module[module].path;
  int bearers = 0;
  for (int i = 0; i < graph->nmodule; i++) bearers += !strcmp(graph->module[i].path, path);
  if (bearers > 1)
    put(&d.b, "#%d", module);
  else
    put_name(path);
}

void put_placement(struct placement p)
{
  static const char *const reduction[] = {REDUCTION_WORDS};
  if (p.kind == SHARD && p.outer > 1)
    put(&d.b, "S(%d/%" PRId64 ")", p.dim, (int64_t)p.outer);
  else if (p.kind == SHARD)
    put(&d.b, "S(%d)", p.dim);
  else
    put(&d.b, p.kind == PARTIAL ? "P(%s)" : "R", reduction[p.reduction]);
  if (p.kind == SHARD && p.cut_order) put(&d.b, "[%d]", p.cut_order);
  if (p.kind == SHARD && p.shift) put(&d.b, "-%d", (int)p.shift);
}

/* A placement for each dimension of the mesh, also for those of one rank. */
void put_layout(const struct layout *layout)
{
  for (int i = 0; i < graph->mesh.ndim; i++) {
    if (i) put(&d.b, " ");
    put_placement(layout->on[i]);
  }
}

void put_shape(const struct shape *s)
{
  put(&d.b, "[");
  for (int i = 0; i < s->ndim; i++) put(&d.b, "%s%" PRId64, i ? ", " : "", s->size[i]);
  put(&d.b, "]");
}

/* --------------------------------------------------------------------------------------- fields */

/* Each writes the word and the field, unless it is usual. */
void put_LONG(const char *word, int64_t x, int64_t usual)
{
  if (x != usual) put(&d.b, " %s %" PRId64, word, x);
}

static void put_INT(const char *word, int64_t x, int64_t usual)
{
  put_LONG(word, x, usual);
}

static void put_SEED(const char *word, uint64_t x, uint64_t usual)
{
  if (x != usual) put(&d.b, " %s %" PRIu64, word, x);
}

static void put_FLAG(const char *word, bool x, bool usual)
{
  if (x != usual) put(&d.b, " %s%s", x ? "" : "no_", word);
}

void put_REAL(const char *word, double x, double usual)
{
  if (memcmp(&x, &usual, sizeof x)) put(&d.b, " %s %s", word, double_text(x));
}

static void put_BITS(const char *word, unsigned x, unsigned usual)
{
  if (x != usual) put(&d.b, " %s %#x", word, x);
}

void put_TEXT(const char *word, const char *x, const char *usual)
{
  if (!x || (usual && !strcmp(x, usual))) return;
  put(&d.b, " %s ", word);
  if (write_fields_is_plain(x, TEXT_SIGNS))
    put(&d.b, "%s", x);
  else
    put_quoted(x);
}

static void put_MEASURED(const char *word, const struct measured *x, const struct measured *usual)
{
  if (x != usual) put_TEXT(word, measured_text(x), NULL);
}

void put_VALUE(const char *word, int x, int usual)
{
  if (x == usual) return;
  put(&d.b, " %s ", word);
  put_value(x);
}

static void put_MODULE(const char *word, int x, int usual)
{
  if (x == usual) return;
  put(&d.b, " %s ", word);
  put_module(x);
}

static void put_FUNCTION(const char *word, int x, int usual)
{
  if (x != usual) put(&d.b, " %s %s", word, x == NONE ? "nothing" : graph->function[x].name);
}

void put_GROUP(const char *word, int x, int usual)
{
  if (x == usual) return;
  put(&d.b, " %s ", word);
  for (int i = 0; i < graph->group[x].n; i++) {
    if (i) put(&d.b, ",");
    put_name(graph->mesh.name[graph->group[x].dim[i]]);
  }
}

void put_MESH_DIM(const char *word, int x, int usual)
{
  (void)usual;
  put(&d.b, " %s ", word);
  put_name(graph->mesh.name[x]);
}

static void put_OP(const char *word, int x, int usual)
{
  if (x == usual) return;
  put(&d.b, x == NONE ? " %s nothing" : " %s @%d", word, x == NONE ? 0 : d.label[x]);
}

static void put_ORDER(const char *word, unsigned x, unsigned usual)
{
  unsigned n = 0;
  if (x == usual) return;
  for (int at = 0; at < MAX_DIMS; at++) n = (x >> 3 * at & 7) > n ? x >> 3 * at & 7 : n;
  put(&d.b, " %s ", word);
  for (unsigned at = 0; at <= n; at++) put(&d.b, at ? ",%u" : "%u", x >> 3 * at & 7);
}

void put_SHAPE(const char *word, struct shape x, struct shape usual)
{
  (void)usual;
  put(&d.b, " %s ", word);
  put_shape(&x);
}

static void put_LAYOUT(const char *word, struct layout x, struct layout usual)
{
  (void)usual;
  put(&d.b, " %s ", word);
  put_layout(&x);
}

static void put_word(const char *word, const char *const *words, unsigned x, unsigned usual)
{
  if (x != usual) put(&d.b, " %s %s", word, words[x]);
}

#define WORDS(KIND)                                                                                \
  static void put_##KIND(const char *word, unsigned x, unsigned usual)                             \
  {                                                                                                \
    static const char *const words[] = {KIND##_WORDS};                                             \
    put_word(word, words, x, usual);                                                               \
  }
WORDS(TYPE)
WORDS(PHASE)
WORDS(REDUCTION)
WORDS(ITERATION)
WORDS(INIT)
WORDS(PREFETCH)
WORDS(LAST_BATCH)
WORDS(BUCKETING)
WORDS(REACH)

#define FIELD(KIND, member, word) put_##KIND(word, x->member, usual->member);
#define RECORD(name, type, ROWS)                                                                   \
  void put_##name##_fields(const type *x, const type *usual)                                       \
  {                                                                                                \
    ROWS(FIELD)                                                                                    \
  }
RECORDS(RECORD)
#undef FIELD
#undef RECORD
