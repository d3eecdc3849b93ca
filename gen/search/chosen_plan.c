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
  return lua_string(value);
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
    if (file.by == BY_TORCH_EXPORT || file.is_machine || *name == '/' || strstr(name, "..") ||
        find_file(name))
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

static void put_line(struct buffer *b, const char *indent, const char *name, const char *value,
                     const char *why)
{
  const char *line = text("%s%s = %s,", indent, name, value);
  put(b, "%-26s -- %s\n", line, why);
}

/* A line for each definition of the command line that is no archive. */
static void put_definitions(struct buffer *b, const struct found *f, int n,
                            const struct definition *list)
{
  const struct search_space *s = f->space;
  for (int i = 0; i < n; i++) {
    if (is_archive(list[i].value)) continue;
    int at = setting_named(s, list[i].name);
    if (s->of_parallel && at != NONE && s->at[at].is_defined) continue; /* put_parallel() has it */
    if (s->of_parallel) at = NONE;
    const struct requested_file *file = file_of_value(list[i].value);
    const char *why = at == NONE ? NULL : reason_for(f, at);
    if (!why)
      why = !strcmp(list[i].name, "batch") && s->sets_batch ? "a sample for each device"
                                                            : "given by -D";
    put_line(b, "  ", list[i].name,
             file ? lua_value(base_name(file->path)) : lua_literal(list[i].value), ascii_text(why));
  }
}

/* A comment for each setting that the choice does not state. */
static void put_unsaid(struct buffer *b, const struct found *f, const char *indent, int n,
                       const struct definition *list)
{
  const struct search_space *s = f->space;
  for (int i = 0; i < s->n; i++) {
    const char *value = value_in(s, &f->tried[f->best], i), *why = value ? NULL : reason_for(f, i);
    bool said = value != NULL;
    for (int k = 0; k < n; k++) said |= !strcmp(list[k].name, s->at[i].name);
    if (!said && why)
      put(b, "%s-- %s %s: %s\n", indent, s->at[i].name,
          *s->at[i].usual ? text("= %s", ascii_text(s->at[i].usual)) : "is not given",
          ascii_text(why));
  }
}

static const char *cluster_file(void)
{
  const struct requested_file *file = file_of_value(options.cluster);
  return lua_value(file ? base_name(file->path) : options.cluster);
}

/* {"layers.8", "layers.16"}: the modules with which the stages after the first one begin. */
static void put_split(struct buffer *b)
{
  const struct pipeline_stages *p = graph->stages;
  if (!p) return;
  put(b, "  split = {");
  for (int i = 1; i < p->n; i++)
    put(b, "%s%s", i > 1 ? ", " : "", lua_string(graph->module[p->first_module[i]].path));
  put(b, "},\n");
}

static void put_units_and_styles(struct buffer *b)
{
  const struct parallel_plan *p = &plan_options->parallel;
  put(b, "  units = {");
  for (int i = 0; i < p->nunit; i++) put(b, "%s%s", i ? ", " : "", lua_string(p->unit[i]));
  put(b, "},\n");
  if (!p->styles) return;
  put(b, "  styles = { -- over tp\n");
  for (const char *line = p->styles; *line; line += strcspn(line, "\n") + 1)
    put(b, "  %.*s\n", (int)strcspn(line, "\n"), line);
  put(b, "  },\n");
}

/* pin_parallel{...}: what train's auto{...} found. */
static void put_parallel(struct buffer *b, const struct found *f)
{
  const struct search_space *s = f->space;
  struct definition *list;
  const int n = definitions_of(s, &f->tried[f->best], &list);
  put(b, "pin_parallel{\n");
  for (int i = 0; i < n; i++) {
    const char *why = reason_for(f, setting_named(s, list[i].name));
    put_line(b, "  ", list[i].name, lua_literal(list[i].value), why ? ascii_text(why) : "as usual");
  }
  if (options.cluster) put_line(b, "  ", "cluster", cluster_file(), "given by --cluster");
  put_unsaid(b, f, "  ", n, list);
  put_split(b);
  put_units_and_styles(b);
  put(b, "}\n");
}

static void put_choice(struct buffer *b, const struct found *f)
{
  const struct search_space *s = f->space;
  struct definition *list = options.definition;
  const int n = s->of_parallel ? options.ndefinition : definitions_of(s, &f->tried[f->best], &list);
  const size_t before = b->length;
  put(b, "pin{\n");
  const size_t empty = b->length;
  put_definitions(b, f, n, list);
  if (options.cluster && s->declares_cluster)
    put_line(b, "  ", "cluster", cluster_file(), "given by --cluster");
  if (!s->of_parallel) put_unsaid(b, f, "  ", n, list);
  const bool has_pins = b->length > empty;
  put(b, "}\n");
  if (!has_pins) b->length = before;
  if (s->of_parallel) put_parallel(b, f);
  put(b, "\n");
}

void add_chosen_plan(const struct found *f)
{
  const struct evaluated *o = outcome_at(f->tried[f->best].tried);
  struct buffer b = {0};
  put(&b, "-- %s with the %s: a step of %s, %s a rank.\n", ascii_text(base_name(options.plan)),
      f->space->of_parallel ? "parallel plan that tpgen found"
                            : "settings that tpgen --search found",
      duration_text(o->step.seconds), size_text(o->step.bytes));
  for (int i = 0; i < options.ndefinition; i++)
    if (is_archive(options.definition[i].value))
      put(&b, "-- It needs -D %s=FILE.\n", ascii_text(options.definition[i].name));
  if (options.cluster && !f->space->declares_cluster && !f->space->of_parallel)
    put(&b, "-- Where its ranks run: --cluster %s\n", ascii_text(options.cluster));
  if (target != &targets[TARGET_CPU])
    put(&b, "-- Its programs are those of --target %s.\n", target->name);
  put(&b, "-- A line's comment says why. What -D gives comes before these lines.\n");
  put_choice(&b, f);
  put(&b, "%s", plan_source());
  add_file("plan.lua", b.text, b.length, false);
  add_files_of_plan();
}
