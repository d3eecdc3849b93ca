/* table.c: prints the placements that auto() chose, as a plan would state them. */
#include "auto/auto.h"

#include <inttypes.h>
#include <string.h>

bool parts_of_module(int module)
{
  for (int i = 0; i < graph->nvalue; i++)
    if (graph->value[i].role == PARAMETER && graph->value[i].module == module &&
        graph->value[i].file_size)
      return true;
  return false;
}

static const char *placement_in_lua(struct placement p)
{
  static const char *const reductions[] = {[SUM] = "", [MAX] = "\"max\"", [MIN] = "\"min\""};
  if (p.kind == REPLICATE) return "Replicate()";
  if (p.kind == PARTIAL) return text("Partial(%s)", reductions[p.reduction]);
  if (p.cut_order) return text("Shard(%d, %d)", p.dim, p.cut_order);
  return text("Shard(%d)", p.dim);
}

static const char *last_name(const char *path)
{
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* A placement, or a list of them, false for none. */
static const char *list_in_lua(const struct style *s, int what)
{
  int n = 0;
  for (int k = 0; k < s->nrequest; k++)
    if ((int)s->request[k].what == what && s->request[k].index >= n) n = s->request[k].index + 1;
  struct buffer b = {0};
  for (int i = 0; i < n; i++) {
    const char *one = "false";
    for (int k = 0; k < s->nrequest; k++)
      if ((int)s->request[k].what == what && s->request[k].index == i)
        one = placement_in_lua(s->request[k].to);
    put(&b, "%s%s", i ? ", " : "", one);
  }
  return n == 1 ? b.text : text("{%s}", b.text);
}

static const struct layout_request *asks(const struct style *s, int what)
{
  for (int k = 0; k < s->nrequest; k++)
    if ((int)s->request[k].what == what) return &s->request[k];
  return NULL;
}

static int last_dimension_of_output(const struct style *s)
{
  for (int c = 0; c < graph->ncall; c++)
    if (graph->call[c].module == s->module && graph->call[c].nout)
      return graph->value[graph->call[c].out[0]].shape.ndim - 1;
  return NONE;
}

/* A part of a projection, but not the first. */
static bool is_later_part(int value)
{
  return graph->value[value].file_size && graph->value[value].file_first;
}

/* The sizes of a projection's parts. */
static const char *parts_in_lua(int module)
{
  struct buffer b = {0};
  const char *of = NULL;
  for (int i = 0; i < graph->nvalue; i++) {
    const struct value *v = &graph->value[i];
    if (v->role != PARAMETER || v->module != module || !v->file_size) continue;
    if (of && strcmp(of, v->name) != 0) break;
    put(&b, "%s%" PRId64, of ? ", " : "", v->shape.size[v->file_dim]);
    of = v->name;
  }
  return text("{%s}", b.text);
}

static const char *style_in_lua(const struct style *s)
{
  const struct layout_request *in = asks(s, REQUEST_INPUT), *out = asks(s, REQUEST_OUTPUT);
  if (!strcmp(s->name, "Colwise") || !strcmp(s->name, "Rowwise")) {
    const struct placement p = out->to;
    const bool is_usual =
        s->name[0] == 'R' ? p.kind == REPLICATE
                          : p.kind == SHARD && !p.cut_order && p.dim == last_dimension_of_output(s);
    if (is_usual) return text("%s()", s->name);
    return text("%s{output_layouts = %s}", s->name, placement_in_lua(p));
  }
  if (strcmp(s->name, "ModuleLayouts") != 0) {
    struct buffer b = {0};
    put(&b, "%s{", s->name);
    if (in) put(&b, "desired_input_layouts = %s", list_in_lua(s, REQUEST_INPUT));
    if (out)
      put(&b, "%sdesired_output_layouts = %s", in ? ", " : "", list_in_lua(s, REQUEST_OUTPUT));
    put(&b, "}");
    return b.text;
  }
  struct buffer parameters = {0}, b = {0};
  for (int k = 0; k < s->nrequest; k++) {
    const struct layout_request *r = &s->request[k];
    if (r->what != REQUEST_PARAMETER || is_later_part(r->value)) continue;
    put(&parameters, "%s%s = %s", parameters.length ? ", " : "",
        lua_key(last_name(graph->value[r->value].name)), placement_in_lua(r->to));
  }
  if (parameters.length) put(&b, ", parameters = {%s}", parameters.text);
  if (parts_of_module(s->module)) put(&b, ", parts = %s", parts_in_lua(s->module));
  if (in) put(&b, ", inputs = %s", list_in_lua(s, REQUEST_INPUT));
  if (out) put(&b, ", outputs = %s", list_in_lua(s, REQUEST_OUTPUT));
  return text("ModuleLayouts{%s}", b.text + strlen(", "));
}

/* A line of a table: what a module gets. */
struct line {
  const char *pattern, *path, *what;
  bool is_said;
};

/* Whether each module of the pattern has a line, and all say the same. */
static bool all_have(const struct line *first, const char *const *pattern, const struct line *list,
                     int n)
{
  int modules = 0, lines = 0;
  for (int m = 0; m < graph->nmodule; m++) modules += !strcmp(pattern[m], first->pattern);
  for (int i = 0; i < n; i++)
    lines += !strcmp(list[i].pattern, first->pattern) && !strcmp(list[i].what, first->what);
  return lines == modules;
}

/* The k-th part of a path that is a number; NULL: it has fewer. */
static const char *number_in_path(const char *path, int k)
{
  for (const char *at = path; *at; at += strcspn(at, "."), at += *at == '.')
    if (strspn(at, "0123456789") == strcspn(at, ".") && k-- == 0) return at;
  return NULL;
}

/* Whether two paths are equal but for their k-th number. */
static bool equal_but_for(const char *a, const char *b, int k)
{
  const char *x = number_in_path(a, k), *y = number_in_path(b, k);
  return x && y && x - a == y - b && !strncmp(a, b, (size_t)(x - a)) &&
         !strcmp(x + strcspn(x, "."), y + strcspn(y, "."));
}

static int number_at(const char *path, int k)
{
  const char *at = number_in_path(path, k);
  int number = 0;
  for (; *at >= '0' && *at <= '9' && number < 1 << 24; at++) number = 10 * number + (*at - '0');
  return number;
}

/* The modules that have what the i-th line says, and the same path but for the k-th number. */
static int alike(const struct line *list, int n, int i, int k, bool *is_in)
{
  int found = 0;
  for (int other = i; other < n; other++) {
    is_in[other] = !list[other].is_said && !strcmp(list[other].what, list[i].what) &&
                   equal_but_for(list[other].path, list[i].path, k);
    found += is_in[other];
  }
  return found;
}

/* The path with this in the place of its k-th number. */
static char *path_with(const char *path, int k, const char *number)
{
  const char *at = number_in_path(path, k);
  return text("%.*s%s%s", (int)(at - path), path, number, at + strcspn(at, "."));
}

/* A pattern of numbers from `first` on, at most `last`: they differ in one digit, and those after
   it are any: "[2-9]", "1[0-9]". *next: the number behind them. */
static char *range_pattern(int first, int last, int *next)
{
  int width = 1;
  while (first && first % (10 * width) == 0 && first + 10 * width - 1 <= last) width *= 10;
  const int digit = first / width % 10;
  int count = 1;
  while (digit + count <= 9 && first + (count + 1) * width - 1 <= last) count++;
  struct buffer b = {0};
  if (first / width / 10) put(&b, "%d", first / width / 10);
  put(&b, count > 1 ? "[%d-%d]" : "%d", digit, digit + count - 1);
  *next = first + count * width;
  for (; width > 1; width /= 10) put(&b, "[0-9]");
  return b.text;
}

/* A pattern of all these modules, which differ in the k-th number; NULL: it would be too long. */
static char *pattern_of(const struct line *list, int n, int i, int k, const bool *is_in)
{
  enum { LONGEST = 900 };
  int modules = 0, found = 0, most = 0;
  for (int m = 0; m < graph->nmodule; m++)
    modules += equal_but_for(graph->module[m].path, list[i].path, k);
  for (int other = i; other < n; other++) {
    if (!is_in[other]) continue;
    found++;
    if (number_at(list[other].path, k) > most) most = number_at(list[other].path, k);
  }
  if (found == modules) return path_with(list[i].path, k, "*");
  bool *has = alloc((size_t)most + 2);
  for (int other = i; other < n; other++)
    if (is_in[other]) has[number_at(list[other].path, k)] = true;
  struct buffer b = {0};
  for (int first = 0; first <= most; first++) {
    int last = first, next;
    if (!has[first]) continue;
    while (has[last + 1]) last++;
    for (int at = first; at <= last; at = next) {
      const char *range = range_pattern(at, last, &next);
      put(&b, "%s%s", b.length ? "|" : "", path_with(list[i].path, k, range));
    }
    first = last;
  }
  return b.length > LONGEST ? NULL : b.text;
}

/* One line for as many modules as can be: those that differ in one number. */
static const char *say_alike(struct line *list, int n, int i)
{
  bool *is_in = alloc((size_t)n + 1);
  int best = NONE, most = 1;
  for (int k = 0; number_in_path(list[i].path, k); k++) {
    const int found = alike(list, n, i, k, is_in);
    if (found > most) most = found, best = k;
  }
  list[i].is_said = true;
  if (best == NONE) return list[i].path;
  list[i].is_said = false;
  alike(list, n, i, best, is_in);
  const char *pattern = pattern_of(list, n, i, best, is_in);
  for (int other = i; other < n; other++) list[other].is_said |= pattern && is_in[other];
  list[i].is_said = true;
  return pattern ? pattern : list[i].path;
}

static int first_dimension(const struct automatic *a)
{
  int d = 0;
  while (!(a->dims >> d & 1)) d++;
  return d;
}

/* The modules in parts that no style of ours is for: their parts are made all the same, and a plan
   by hand has to say so. */
static void add_parts(struct line *list, int *n, int first, const struct automatic *a,
                      const char *const *pattern)
{
  bool *has = alloc((size_t)(graph->nmodule + 1) * sizeof *has);
  for (int i = first; i < graph->nstyle; i++) has[graph->style[i].module] = true;
  for (int m = 0; m < graph->nmodule; m++) {
    if (has[m] || !is_chosen(a, m) || !*graph->module[m].path || !parts_of_module(m)) continue;
    const char *what = text("ModuleLayouts{parts = %s}", parts_in_lua(m));
    list[(*n)++] = (struct line){pattern[m], graph->module[m].path, what, false};
  }
}

/* The table of styles over the dimension, a line for each pattern of modules: equal layers have one
   line; and that of the model itself, or NULL. That of the first dimension has the parts. */
static const char *table_of_styles(int first, int mesh_dim, const struct automatic *a,
                                   const char *const *pattern, const char **of_model)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  struct line *list = alloc((size_t)(graph->nstyle - first + graph->nmodule + 1) * sizeof *list);
  int n = 0;
  *of_model = NULL;
  for (int i = first; i < graph->nstyle; i++) {
    const struct style *s = &graph->style[i];
    if (s->mesh_dim != mesh_dim) continue;
    const char *path = graph->module[s->module].path;
    if (!*path)
      *of_model = style_in_lua(s);
    else
      list[n++] = (struct line){pattern[s->module], path, style_in_lua(s), false};
  }
  if (mesh_dim == first_dimension(a)) add_parts(list, &n, first, a, pattern);
  for (int i = 0; i < n; i++) {
    if (list[i].is_said) continue;
    const bool is_whole = all_have(&list[i], pattern, list, n);
    for (int k = i; k < n && is_whole; k++)
      list[k].is_said |= !strcmp(list[k].pattern, list[i].pattern);
    const char *key = is_whole ? list[i].pattern : say_alike(list, n, i);
    put(&b, "  %s = %s,\n", lua_key(key), list[i].what);
  }
  return b.text;
}

static void put_styles(struct buffer *b, int first, int mesh_dim, const struct automatic *a,
                       const char *const *pattern)
{
  const char *of_model, *table = table_of_styles(first, mesh_dim, a, pattern, &of_model);
  const char *mesh = printable(graph->mesh.name[mesh_dim]);
  if (of_model) put(b, "parallelize(model, mesh.%s, %s)\n", mesh, of_model);
  if (*table) put(b, "parallelize(model, mesh.%s, {\n%s})\n", mesh, table);
}

/* "model.layers[1].attention"; within an element of a list "layer.attention". */
static const char *module_in_lua(int module, int element)
{
  struct buffer b = {0};
  const char *at = graph->module[module].path;
  put(&b, element == NONE ? "model" : "layer");
  if (element != NONE) at += strlen(graph->module[element].path);
  at += *at == '.';
  while (*at) {
    const size_t n = strcspn(at, ".");
    if (strspn(at, "0123456789") >= n) {
      int number = 0;
      for (size_t i = 0; i < n; i++) number = 10 * number + at[i] - '0';
      put(&b, "[%d]", number + 1);
    } else {
      const char *name = text("%.*s", (int)n, at);
      put(&b, is_lua_name(name) ? ".%s" : "%s", lua_key(name));
    }
    at += n;
    at += *at == '.';
  }
  return b.text;
}

/* The call of fully_shard that makes the unit. */
static const char *unit_in_lua(int u, int element)
{
  const struct unit *unit = &graph->unit[u];
  struct buffer list = {0}, dims = {0}, b = {0};
  int n = 0, ndim = 0, first = NONE;
  for (int m = 0; m < graph->nmodule; m++) {
    if (graph->module[m].unit != u) continue;
    const int parent = graph->module[m].parent;
    if (parent != NONE && graph->module[parent].unit == u) continue;
    put(&list, "%s%s", n++ ? ", " : "", module_in_lua(m, element));
  }
  for (int d = 0; d < graph->mesh.ndim; d++) {
    if (!(unit->shards >> d & 1)) continue;
    if (ndim++) put(&dims, "%s\"%s\"", ndim > 2 ? ", " : "", graph->mesh.name[d]);
    if (first == NONE) first = d;
  }
  put(&b, n > 1 ? "fully_shard({%s}, mesh.%s" : "fully_shard(%s, mesh.%s", list.text,
      graph->mesh.name[first]);
  if (ndim > 1) put(&b, ", {also = mesh{%s}}", dims.text);
  put(&b, ")");
  return b.text;
}

static void put_units(struct buffer *b, int first)
{
  const int *element = outermost_elements();
  const int n = graph->nunit - first;
  bool *is_said = alloc((size_t)(n + 1) * sizeof *is_said);
  const char **call = alloc((size_t)(n + 1) * sizeof *call);
  int *list = alloc((size_t)(n + 1) * sizeof *list); /* that it is in an element of */
  for (int u = 0; u < n; u++) {
    const int e = element[graph->unit[first + u].module];
    list[u] = e == NONE ? NONE : graph->module[e].parent;
    call[u] = unit_in_lua(first + u, e);
  }
  for (int u = 0; u < n; u++) {
    if (is_said[u]) continue;
    int members = 0, alike = 0;
    for (int m = 0; m < graph->nmodule; m++) members += graph->module[m].parent == list[u];
    for (int k = u; k < n; k++) alike += list[k] == list[u] && !strcmp(call[k], call[u]);
    if (list[u] == NONE || alike != members || members == 1) {
      put(b, "%s\n", unit_in_lua(first + u, NONE));
      continue;
    }
    put(b, "for _, layer in ipairs(%s) do %s end\n", module_in_lua(list[u], NONE), call[u]);
    for (int k = u; k < n; k++) is_said[k] |= list[k] == list[u] && !strcmp(call[k], call[u]);
  }
}

/* For plan.lua: the styles over the one dimension that auto() is for where tpgen finds the mesh. */
static void note_table(int first, const struct automatic *a, const char *const *pattern)
{
  const char *of_model, *table = table_of_styles(first, first_dimension(a), a, pattern, &of_model);
  plan_options->parallel.styles =
      of_model ? text("  %s, -- of the model itself\n%s", of_model, table) : table;
}

void print_styles(int first, int units, const struct automatic *a)
{
  struct buffer b = {0};
  put(&b, "%s:%d: note: auto() chose\n", file_of_line(plan_options->path, a->line),
      a->line % LINES_OF_FILE);
  const char **pattern = alloc((size_t)(graph->nmodule + 1) * sizeof *pattern);
  for (int m = 0; m < graph->nmodule; m++) pattern[m] = starred_name(graph->module[m].path);
  const size_t before = b.length;
  for (int d = 0; d < graph->mesh.ndim; d++) put_styles(&b, first, d, a, pattern);
  if (a->cuts_large) note_table(first, a, pattern);
  put_units(&b, units);
  if (b.length == before && units == graph->nunit) put(&b, "nothing: all is as it is\n");
  plan_options->notes = text("%s%s", plan_options->notes ? plan_options->notes : "", b.text);
}
