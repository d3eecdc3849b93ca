/* chosen_plan.c: plan.lua: the plan with the settings of the choice written in, each with a comment
   that says why; and the files that it requires or reads, beside it.

   Takes   the search, and the files that the plan has read when its program was made.
   Leaves  the files in the list of files to write. */
#include "search/search.h"

#include <string.h>

/* A text as Lua reads it: "16", "true" and numbers as such, the rest in quotes. */
static char *lua_value(const char *value)
{
  const size_t digits = strspn(value, "0123456789");
  if (*value && !value[digits] && digits < 16) return text("%s", value);
  if (!strcmp(value, "true") || !strcmp(value, "false")) return text("%s", value);
  struct buffer b = {0};
  put(&b, "\"");
  for (const unsigned char *c = (const unsigned char *)value; *c; c++)
    if (*c == '"' || *c == '\\')
      put(&b, "\\%c", *c);
    else
      put(&b, *c < 0x20 || *c >= 0x7f ? "\\%03d" : "%c", *c);
  put(&b, "\"");
  return b.text;
}

/* Whether -D gives the number in another form, which Lua's literal keeps: 1e-4. */
static char *lua_literal(const char *value)
{
  const size_t of_number = strspn(value, "0123456789.eE+-");
  const bool is_number = *value && !value[of_number] && strpbrk(value, "0123456789") != NULL;
  return is_number && strspn(value, "0123456789.") > 0 ? text("%s", value) : lua_value(value);
}

static const char *base_name(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* The file that this value of -D names, if plan.lua gets it beside it. */
static const struct requested_file *file_of_value(const char *value)
{
  static struct requested_file file;
  for (int i = 0; i < requested_files(); i++) {
    file = requested_file(i);
    if (file.is_defined && file.by != BY_TORCH_EXPORT && !strcmp(file.path, value)) return &file;
  }
  return NULL;
}

static bool is_archive(const char *value)
{
  for (int i = 0; i < requested_files(); i++)
    if (requested_file(i).by == BY_TORCH_EXPORT && !strcmp(requested_file(i).path, value))
      return true;
  return false;
}

static void add_files_of_plan(void)
{
  for (int i = 0; i < requested_files(); i++) {
    const struct requested_file file = requested_file(i);
    const char *name = file.is_defined ? base_name(file.path) : file.path;
    if (file.by == BY_TORCH_EXPORT || *name == '/' || strstr(name, "..") || find_file(name))
      continue;
    add_file(name, file.text, file.length, false);
  }
}

static int setting_named(const struct search_space *s, const char *name)
{
  for (int i = 0; i < s->n; i++)
    if (!strcmp(s->at[i].name, name)) return i;
  return NONE;
}

static void put_line(struct buffer *b, const char *name, const char *value, const char *why)
{
  const char *line = text("  %s = %s,", name, value);
  put(b, "%-26s -- %s\n", line, why);
}

static void put_choice(struct buffer *b, const struct found *f)
{
  const struct search_space *s = f->space;
  const struct candidate *c = &f->tried[f->best];
  struct definition *list;
  const int n = definitions_of(s, c, &list);
  const bool has_cluster = options.cluster != NULL;
  put(b, "pin{\n");
  for (int i = 0; i < n; i++) {
    if (is_archive(list[i].value)) continue;
    const int at = setting_named(s, list[i].name);
    const struct requested_file *file = file_of_value(list[i].value);
    const char *why = at == NONE ? NULL : reason_for(f, at);
    if (!why)
      why = !strcmp(list[i].name, "batch") && s->sets_batch ? "a sample for each device"
                                                            : "given by -D";
    put_line(b, list[i].name, file ? lua_value(base_name(file->path)) : lua_literal(list[i].value),
             printable((char *)why));
  }
  if (has_cluster) {
    const struct requested_file *file = file_of_value(options.cluster);
    if (s->declares_cluster)
      put_line(b, "cluster", lua_value(file ? base_name(file->path) : options.cluster),
               "given by --cluster");
  }
  for (int i = 0; i < s->n; i++) {
    const char *value = value_in(s, c, i), *why = value ? NULL : reason_for(f, i);
    bool said = value != NULL;
    for (int k = 0; k < n; k++) said |= !strcmp(list[k].name, s->at[i].name);
    if (!said && why)
      put(b, "  -- %s %s: %s\n", s->at[i].name,
          *s->at[i].usual ? text("= %s", printable((char *)s->at[i].usual)) : "is not given",
          printable((char *)why));
  }
  put(b, "}\n\n");
}

void add_chosen_plan(const struct found *f)
{
  const struct evaluated *o = outcome_at(f->tried[f->best].tried);
  struct buffer b = {0};
  put(&b, "-- %s with the settings that tpgen --search found: a step of %s, %s a rank.\n",
      printable((char *)base_name(options.plan)), duration_text(o->step.seconds),
      size_text(o->step.bytes));
  for (int i = 0; i < options.ndefinition; i++)
    if (is_archive(options.definition[i].value))
      put(&b, "-- It needs -D %s=FILE.\n", printable((char *)options.definition[i].name));
  if (options.cluster && !f->space->declares_cluster)
    put(&b, "-- Where its ranks run: --cluster %s\n", printable((char *)options.cluster));
  put(&b, "-- A line's comment says why. What -D gives comes before these lines.\n");
  put_choice(&b, f);
  put(&b, "%s", plan_source());
  add_file("plan.lua", b.text, b.length, false);
  add_files_of_plan();
}
