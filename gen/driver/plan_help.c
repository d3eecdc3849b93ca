/* plan_help.c: tpgen PLAN --help: the settings of a plan, for -D. */
#include "driver/driver.h"

#include <string.h>

/* The first paragraph of the comment at the beginning of the plan, one line for each of its lines.
 */
static void print_head(const char *plan)
{
  bool first = true;
  for (; !strncmp(plan, "--", 2); plan++) {
    const char *line = plan + 2 + strspn(plan + 2, "-");
    line += *line == ' ';
    size_t n = strcspn(line, "\r\n");
    plan = line + strcspn(line, "\n");
    if (!n) break;
    if (first) printf("%s: ", printable(options.plan));
    printf("%s\n", printable(text("%.*s", (int)n, line)));
    first = false;
    if (!*plan) break;
  }
  if (first) printf("%s\n", printable(options.plan));
}

static int plan_help_width_of(const struct setting *s)
{
  return (int)(strlen(s->name) + (*s->usual ? 1 + strlen(s->usual) : 0));
}

/* The words from column `at` on, in lines of at most 128 columns; further lines begin at `further`.
 */
static void print_words(const char *words, int at, int further)
{
  enum { WIDTH = 128 };
  for (bool first = true; *words; first = false) {
    int n = (int)strcspn(words, " ");
    if (!first && at + 1 + n > WIDTH)
      printf("\n%*s", at = further, "");
    else if (!first)
      at += printf(" ");
    at += printf("%.*s", n, words);
    words += n + strspn(words + n, " ");
  }
}

/* The meaning of each type that a setting has. */
static void print_types(const struct setting *list, int n)
{
  static const struct {
    const char *type, *meaning;
  } row[] = {
      {"size", "a whole number, 1 or more: 65536, 0x10000 or 1e6; KiB and the like are not known"},
      {"count", "the same, or 0"},
      {"whole", "a whole number"},
      {"number", "a number: 0.05, 5e-2"},
      {"flag", "true or false"},
      {"text", "any text, such as a path"},
  };
  bool any = false;
  for (int k = 0; k < (int)(sizeof row / sizeof *row); k++) {
    bool has = false;
    for (int i = 0; i < n && !has; i++) {
      const char *last = strrchr(list[i].type, '|');
      has = !strcmp(last ? last + 1 : list[i].type, row[k].type);
    }
    if (has) printf("%s  %-6s  %s\n", any ? "" : "\nTypes:\n", row[k].type, row[k].meaning);
    any |= has;
  }
}

void help_with_plan(void)
{
  if (!options.help) return;
  enum { MOST = 24 };
  const char *title = "";
  int n = 0, widest = 0, widest_type = 0;
  const struct setting *list = settings_of_plan(&n);
  print_head(plan_source());
  if (!n) puts("\nThe plan has no settings.");
  for (int i = 0; i < n; i++) {
    if (plan_help_width_of(&list[i]) > widest && plan_help_width_of(&list[i]) <= MOST)
      widest = plan_help_width_of(&list[i]);
    if ((int)strlen(list[i].type) > widest_type && (int)strlen(list[i].type) <= MOST)
      widest_type = (int)strlen(list[i].type);
  }
  for (int i = 0; i < n; i++) {
    const struct setting *s = &list[i];
    if (!i) printf("\nSettings, -D NAME=VALUE%s:\n", *s->about ? ", with their defaults" : "");
    if (strcmp(s->title, title)) printf("\n%s\n", printable(s->title));
    title = s->title;
    int at = printf("  %s%s%s", printable(s->name), *s->usual ? "=" : "", printable(s->usual));
    if (*s->about) {
      at += printf("%*s  %-*s  ", at < widest + 2 ? widest + 2 - at : 0, "", widest_type,
                   printable(s->type));
      const char *about =
          printable(text("%s%s", s->about, s->search != NO_SEARCH ? " (search)" : ""));
      print_words(about, at, widest + widest_type + 6);
    }
    puts("");
  }
  print_types(list, n);
  end_printing();
}
