/* member_runs.c: adjacent members of a rank's memory as one array. A pointer to the first of them
   would end with that member. So the call gets a pointer to the struct that contains them all; or
   to an array of a union with these members, which memory.h then declares; or, where they are of
   several structs, a pointer into the whole memory. memory.h asserts that there are no gaps. */
#include "naming/naming.h"

#include <inttypes.h>
#include <string.h>

static struct buffer asserts;

void forget_member_runs(void)
{
  asserts = (struct buffer){0};
  put_text(&asserts, "", 0);
}

char *member_run_asserts(void)
{
  if (!asserts.length) return asserts.text;
  return text("\n// Between members that are used as one array there is no padding.\n%s",
              asserts.text);
}

static void assert_once(const char *condition, const char *why)
{
  bool several = strchr(condition, '\n') != NULL;
  const char *line = text("static_assert(%s,%s\"%s\");", condition, several ? "\n    " : " ", why);
  if (!several) line = wrapped(line, " == ", "    ");
  if (!strstr(asserts.text, line)) put(&asserts, "%s\n", line);
}

/* The parameter that a member belongs to, or that it is. */
static int parameter_of_member(int value)
{
  const struct value *v = &graph->value[value];
  return v->role == PARAMETER ? value : v->of;
}

/* Whether its struct has not a member for each parameter, of the parameter's size. */
static bool has_own_struct(int value)
{
  enum role role = graph->value[value].role;
  return role == SUMS || (role == STATE && is_apart(value));
}

/* A member has the size of its parameter, unless its struct is another. */
static int64_t member_elements(int value)
{
  bool own = has_own_struct(value);
  return elements(local_shape(own ? value : parameter_of_member(value), named_rank));
}

/* The members of the value's struct, by parameter, whose order they have; or NONE. */
static const int *struct_members(int value)
{
  int *member = alloc((size_t)(graph->nvalue + 1) * sizeof *member);
  size_t length = strcspn(memory_name[value], ".") + 1;
  for (int i = 0; i < graph->nvalue; i++) member[i] = NONE;
  for (int i = 0; i < graph->nvalue; i++) {
    if (!memory_name[i] || strncmp(memory_name[i], memory_name[value], length)) continue;
    int of = parameter_of_member(i);
    if (of != NONE && member[of] == NONE) member[of] = i;
  }
  return member;
}

/* Whether the struct that ends there in a name has a member for this parameter. Gradients and
   most states have one for each parameter, even an empty one; the sums do not. */
static bool has_member(int value, int parameter, size_t length)
{
  const char *name = memory_name[value], *of = memory_name[parameter];
  if (!of || graph->value[parameter].role != PARAMETER || has_own_struct(value) ||
      graph->value[parameter].frozen != graph->value[parameter_of_member(value)].frozen)
    return false;
  size_t from = strcspn(name, ".") + 1;
  if (length < from) return true;
  of += strcspn(of, ".") + 1;
  return !strncmp(of, name + from, length - from) && of[length - from] == '.';
}

/* Where the struct that is exactly the run ends in a name; 0: there is none. */
static size_t enclosing_struct(int value, const int *member, int64_t n)
{
  const char *name = memory_name[value];
  for (size_t length = strlen(name); length-- > strlen("m->");) {
    if (name[length] != '.') continue;
    int64_t all = 0;
    for (int i = 0; i < graph->nvalue; i++) {
      if (member[i] == NONE && has_member(value, i, length)) return 0;
      bool is_below = member[i] != NONE && !strncmp(memory_name[member[i]], name, length) &&
                      memory_name[member[i]][length] == '.';
      if (!is_below) continue;
      if (!all && i != parameter_of_member(value)) return 0;
      all += member_elements(member[i]);
    }
    if (all >= n) return all == n ? length : 0;
  }
  return 0;
}

/* The end of the struct in a name with l for 0: "m->w.layers[l]" of "m->w.layers[0]". */
static size_t same_end(const char *shown, const char *name, size_t length)
{
  int dots = 0;
  for (size_t i = 0; i < length; i++) dots += name[i] == '.';
  for (size_t i = 0; shown[i]; i++)
    if (shown[i] == '.' && dots-- == 0) return i;
  return strlen(shown);
}

/* "m->w.layers[0].attention." of "m->w.layers[7].attention.": the text of a list's struct is that
   of its first module. */
static char *first_path(const char *path, size_t length)
{
  struct buffer b = {0};
  for (size_t i = 0; i < length; i++) {
    put_text(&b, path + i, 1);
    if (path[i] != '[') continue;
    put_text(&b, "0", 1);
    while (path[i + 1] >= '0' && path[i + 1] <= '9') i++;
  }
  return b.text;
}

/* "wq_wk_wv", "n0_to_n7" */
static char *joined_name(const char *const *child, int n)
{
  enum { FEW = 4 };
  struct buffer b = {0};
  if (n > FEW) return text("%s_to_%s", child[0], child[n - 1]);
  for (int i = 0; i < n; i++) put(&b, "%s%s", i ? "_" : "", child[i]);
  return b.text;
}

/* The array of a union with the members from one parameter to another one, which are n elements:
   all of some adjacent children of one struct. NULL if they are not. */
static const char *union_array(int value, const char *shown, int last, int64_t n)
{
  const char *name = memory_name[parameter_of_member(value)],
             *end = memory_name[parameter_of_member(last)];
  size_t common = 0, dots = 0;
  const char *of_struct = NULL; /* the child that was seen last */
  if (has_own_struct(value) || !name || !end) return NULL;
  for (size_t i = 0; name[i] && name[i] == end[i]; i++)
    if (name[i] == '.') common = i + 1, dots++;
  const char **child = alloc((size_t)(graph->nvalue + 1) * sizeof *child);
  int children = 0;
  bool begun = false, ended = false, taken = false;
  for (int i = 0; i < graph->nvalue; i++) {
    const char *own = memory_name[i];
    if (graph->value[i].role != PARAMETER || !own || strncmp(own, name, common)) continue;
    const char *word = text("%.*s", (int)strcspn(own + common, "."), own + common);
    bool is_new = !of_struct || strcmp(of_struct, word);
    of_struct = word;
    if (i == parameter_of_member(value) && !is_new) return NULL; /* not the first of its child */
    if (ended && !is_new) return NULL;                           /* not the last one */
    begun |= i == parameter_of_member(value);
    if (begun && !ended && is_new) child[children++] = word;
    if (strchr(word, '[') && begun && !ended) return NULL;
    ended |= i == parameter_of_member(last);
  }
  if (!ended || children < 2) return NULL;
  const char *joined = joined_name(child, children);
  for (int i = 0; i < graph->nvalue; i++) {
    const char *own = memory_name[i];
    if (own && !strncmp(own, name, common) && !strncmp(own + common, joined, strlen(joined)))
      taken = true;
  }
  if (taken || !join_members(first_path(name, common), child, children,
                             c_type(graph->value[value].type), joined, n))
    return NULL;
  size_t length = 0; /* of the struct's path in the value's own name */
  for (const char *c = memory_name[value]; dots; c++) dots -= *c == '.', length++;
  return text("%.*s.%s", (int)same_end(shown, memory_name[value], length - 1), shown, joined);
}

const char *member_run(int value, const char *shown, int64_t n)
{
  const struct value *v = &graph->value[value];
  const char *name = memory_name[value], *type = c_type(v->type);
  if (!shown || strncmp(shown, "m->", 3) || !name) return shown;
  if (parameter_of_member(value) == NONE || n <= member_elements(value)) return shown;
  const int *member = struct_members(value);
  size_t length = enclosing_struct(value, member, n);
  if (length) {
    size_t end = same_end(shown, name, length);
    assert_once(
        text("sizeof m->%.*s == %" PRId64 " * sizeof(%s)", (int)length - 3, name + 3, n, type),
        "no padding");
    return text("(%s *)&%.*s", type, (int)end, shown);
  }
  int last = NONE; /* the member that ends the run */
  int64_t left = n;
  for (int i = parameter_of_member(value); i < graph->nvalue && left > 0; i++) {
    if (member[i] == NONE) continue;
    left -= member_elements(member[i]);
    if (left == 0) last = member[i];
  }
  if (last == NONE) bug_at("emit", value, "a run of %" PRId64 " elements ends in no member", n);
  assert_once(text("offsetof(struct memory, %s) +\n        sizeof %s -\n"
                   "        offsetof(struct memory, %s) ==\n        %" PRId64 " * sizeof(%s)",
                   memory_name[last] + 3, memory_name[last], name + 3, n, type),
              "no padding");
  const char *array = union_array(value, shown, last, n);
  return array ? array : text("(%s *)run_from(%s)", type, shown);
}
