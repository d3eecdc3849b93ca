/* cover: rows of features for covering.sh, and what they have covered.

     cover FEATURES rows STRENGTH SEED [RESULTS]
         rows, such as "layer=attention tp=2 ...", one a line, that cover every pair (STRENGTH 2) or
   triple (3) of values that no row of RESULTS has covered. A value is left out where it is the
   plain one. cover FEATURES alone RESULTS a row for each pair that RESULTS has not covered: these
   two values, and all others plain. cover FEATURES tell STRENGTH RESULTS how many there are, have
   no meaning, were tried, were refused in each row, and were never tried; and those that were
   refused, with the message.

   RESULTS has a line for each row that was tried: "ok", "refused" or "failed", a tab, the
   row, a tab, and a message. A row covers its pairs if it is "ok" or "failed". Rows are made
   greedily: each begins with a pair that is not covered, and takes for each other feature the value
   that covers most. The same arguments give the same rows. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FEATURES = 64, MOST_VALUES = 16, MOST = 320, MOST_BANS = 256, TRIES = 12 };

static struct {
  int n;
  struct {
    char name[32];
    int first, n; /* its values, among those of all features */
  } at[MOST_FEATURES];
} features;
static struct {
  int n, feature[MOST];
  char name[MOST][32];
} values;
static struct {
  int n, a[MOST_BANS], b[MOST_BANS];
} bans;

static _Noreturn void give_up(const char *what, const char *where)
{
  fprintf(stderr, "cover: %s: %s\n", what, where);
  exit(2);
}

static int value_of(const char *text)
{
  char copy[96];
  snprintf(copy, sizeof copy, "%s", text);
  char *equals = strchr(copy, '=');
  if (!equals) give_up("not a feature and its value", text);
  *equals = 0;
  for (int v = 0; v < values.n; v++)
    if (!strcmp(features.at[values.feature[v]].name, copy) && !strcmp(values.name[v], equals + 1))
      return v;
  give_up("no such feature or value", text);
}

static void read_features(const char *path)
{
  char line[1024];
  FILE *f = fopen(path, "r");
  if (!f) give_up("cannot read", path);
  while (fgets(line, sizeof line, f)) {
    char *word = strtok(line, " \t\n");
    if (!word || *word == '#') continue;
    if (!strcmp(word, "not")) {
      if (bans.n == MOST_BANS) give_up("too many lines", "not");
      bans.a[bans.n] = value_of(strtok(NULL, " \t\n"));
      bans.b[bans.n++] = value_of(strtok(NULL, " \t\n"));
      continue;
    }
    if (features.n == MOST_FEATURES) give_up("too many features", word);
    int k = features.n++;
    snprintf(features.at[k].name, sizeof features.at[k].name, "%s", word);
    features.at[k].first = values.n;
    while ((word = strtok(NULL, " \t\n"))) {
      if (values.n == MOST) give_up("too many values", word);
      snprintf(values.name[values.n], sizeof values.name[0], "%s", word);
      values.feature[values.n++] = k;
      features.at[k].n++;
    }
  }
  fclose(f);
}

static bool have_meaning(int a, int b)
{
  for (int i = 0; i < bans.n; i++)
    if ((bans.a[i] == a && bans.b[i] == b) || (bans.a[i] == b && bans.b[i] == a)) return false;
  return true;
}

/* ------------------------------------------------------------------------------------ what is
 * covered */

static int strength;
static unsigned char *covered; /* by two or three values, ascending */

static size_t place(int a, int b, int c)
{
  return strength == 2 ? (size_t)a * MOST + (size_t)b
                       : ((size_t)a * MOST + (size_t)b) * MOST + (size_t)c;
}

/* A row: a value for each feature, or -1. */
struct row {
  int value[MOST_FEATURES];
};

/* Calls it for each combination of the row's first n features with the n-th: counts, or marks. */
static int visit_with(const struct row *r, int k, const bool *set, unsigned char mark)
{
  int news = 0;
  for (int i = 0; i < features.n; i++) {
    if (i == k || !set[i]) continue;
    for (int j = strength == 2 ? i : i + 1; j < features.n; j++) {
      if (strength == 3 && (j == k || !set[j])) continue;
      int of[3] = {r->value[k], r->value[i], strength == 3 ? r->value[j] : -1};
      for (int x = 0; x < 2; x++) /* ascending */
        for (int y = 0; y < strength - 1; y++)
          if (of[y] > of[y + 1]) {
            int t = of[y];
            of[y] = of[y + 1];
            of[y + 1] = t;
          }
      unsigned char *at = &covered[place(of[0], of[1], of[2])];
      news += !*at;
      if (mark && *at < mark) *at = mark;
      if (strength == 2) break;
    }
  }
  return news;
}

static void mark_row(const struct row *r, unsigned char mark)
{
  bool set[MOST_FEATURES] = {false};
  for (int k = 0; k < features.n; k++) {
    visit_with(r, k, set, mark);
    set[k] = true;
  }
}

static struct row read_row(char *text)
{
  struct row r;
  for (int k = 0; k < features.n; k++) r.value[k] = features.at[k].first;
  for (char *save, *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
    int v = value_of(word);
    r.value[values.feature[v]] = v;
  }
  return r;
}

enum { NEVER, REFUSED, TRIED };

/* The line's row; false: there is no more. */
static bool next_result(FILE *f, char *line, size_t room, bool *refused, struct row *r,
                        char **message)
{
  char *save;
  if (!fgets(line, (int)room, f)) return false;
  line[strcspn(line, "\n")] = 0;
  char *how = strtok_r(line, "\t", &save), *row = strtok_r(NULL, "\t", &save);
  *message = strtok_r(NULL, "\t", &save);
  *refused = how && !strcmp(how, "refused");
  *r = read_row(row ? row : "");
  return true;
}

static void read_results(const char *path, bool refused_too)
{
  static char line[8192];
  char *message;
  bool refused;
  struct row r;
  FILE *f = fopen(path, "r");
  if (!f) give_up("cannot read", path);
  while (next_result(f, line, sizeof line, &refused, &r, &message))
    if (!refused || refused_too) mark_row(&r, refused ? REFUSED : TRIED);
  fclose(f);
}

/* -------------------------------------------------------------------------------------------- the
 * rows */

static uint64_t state;

static int below(int n)
{
  state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = (state ^ (state >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

static void print_row(const struct row *r)
{
  const char *blank = "";
  for (int k = 0; k < features.n; k++) {
    if (r->value[k] == features.at[k].first) continue;
    printf("%s%s=%s", blank, features.at[k].name, values.name[r->value[k]]);
    blank = " ";
  }
  printf("\n");
}

/* Whether the value goes with those that are set. */
static bool fits(const struct row *r, const bool *set, int v)
{
  for (int i = 0; i < features.n; i++)
    if (set[i] && !have_meaning(r->value[i], v)) return false;
  return true;
}

/* The rest of a row whose first values are set. Returns what it covers, or -1: no value fits. */
static int complete(struct row *r, bool *set)
{
  int order[MOST_FEATURES], news = 0;
  for (int k = 0; k < features.n; k++) {
    int at = below(k + 1);
    order[k] = order[at];
    order[at] = k;
  }
  for (int i = 0; i < features.n; i++) {
    int k = order[i], best = -1, most = -1, ties = 0;
    if (set[k]) continue;
    for (int v = features.at[k].first; v < features.at[k].first + features.at[k].n; v++) {
      if (!fits(r, set, v)) continue;
      r->value[k] = v;
      int n = visit_with(r, k, set, 0);
      if (n > most) ties = 0;
      if (n > most || (n == most && below(++ties + 1) == 0)) best = v, most = n;
    }
    if (best < 0) return -1;
    r->value[k] = best;
    set[k] = true;
    news += most;
  }
  return news;
}

/* A combination that is not covered, and has a meaning. From a random one on. */
static bool begin_row(struct row *r, bool *set)
{
  int start = below(values.n);
  for (int i = 0; i < values.n; i++)
    for (int j = 0; j < values.n; j++) {
      int a = (start + i) % values.n, b = (start + j) % values.n;
      if (a >= b || values.feature[a] == values.feature[b] || !have_meaning(a, b)) continue;
      for (int c = strength == 2 ? values.n - 1 : b + 1; c < values.n; c++) {
        bool third = strength == 3;
        if (third &&
            (values.feature[c] == values.feature[b] || !have_meaning(a, c) || !have_meaning(b, c)))
          continue;
        if (covered[place(a, b, c)]) continue;
        memset(set, 0, MOST_FEATURES * sizeof *set);
        r->value[values.feature[a]] = a;
        r->value[values.feature[b]] = b;
        set[values.feature[a]] = set[values.feature[b]] = true;
        if (third) r->value[values.feature[c]] = c, set[values.feature[c]] = true;
        return true;
      }
    }
  return false;
}

static void print_rows(void)
{
  struct row first;
  bool first_set[MOST_FEATURES];
  while (begin_row(&first, first_set)) {
    struct row best = first;
    int most = -1;
    for (int t = 0; t < TRIES; t++) {
      struct row r = first;
      bool set[MOST_FEATURES];
      memcpy(set, first_set, sizeof set);
      int n = complete(&r, set);
      if (n > most) most = n, best = r;
    }
    if (most < 0) give_up("no row has a combination that should have a meaning", "FEATURES");
    print_row(&best);
    mark_row(&best, TRIED);
  }
}

/* A plain value that has no meaning beside a or b makes way for the next one. */
static void leave_plain(struct row *r, int feature, int a, int b)
{
  if (feature == values.feature[a] || feature == values.feature[b]) return;
  int *value = &r->value[feature], end = features.at[feature].first + features.at[feature].n;
  while (*value < end - 1 && !(have_meaning(*value, a) && have_meaning(*value, b))) ++*value;
}

static void print_alone(void)
{
  struct row r;
  for (int a = 0; a < values.n; a++)
    for (int b = a + 1; b < values.n; b++) {
      if (values.feature[a] == values.feature[b] || !have_meaning(a, b) || covered[place(a, b, 0)])
        continue;
      for (int k = 0; k < features.n; k++) r.value[k] = features.at[k].first;
      r.value[values.feature[a]] = a;
      r.value[values.feature[b]] = b;
      for (int k = 0; k < features.n; k++) leave_plain(&r, k, a, b);
      print_row(&r);
      mark_row(&r, TRIED);
    }
}

/* --------------------------------------------------------------------------------------------- the
 * report */

static void tell(const char *results)
{
  static char line[8192];
  long all = 0, without = 0, tried = 0, refused = 0;
  for (int a = 0; a < values.n; a++)
    for (int b = a + 1; b < values.n; b++) {
      if (values.feature[a] == values.feature[b]) continue;
      for (int c = strength == 2 ? values.n - 1 : b + 1; c < values.n; c++) {
        bool third = strength == 3;
        if (third && values.feature[c] == values.feature[b]) continue;
        bool means = have_meaning(a, b) && (!third || (have_meaning(a, c) && have_meaning(b, c)));
        int is = covered[place(a, b, c)];
        all++;
        without += !means;
        tried += means && is == TRIED;
        refused += means && is == REFUSED;
      }
    }
  printf("%s of %d values of %d features: %ld; without a meaning %ld; tried %ld; refused wherever "
         "they were tried %ld; never tried %ld\n",
         strength == 2 ? "pairs" : "triples", values.n, features.n, all, without, tried, refused,
         all - without - tried - refused);
  /* Those that are refused, by the shortest row that was. */
  FILE *f = fopen(results, "r");
  char *message;
  bool is_refused;
  struct row r;
  for (int most = 0; strength == 2 && f && most <= features.n; most++, rewind(f))
    while (next_result(f, line, sizeof line, &is_refused, &r, &message)) {
      int n = 0;
      for (int k = 0; k < features.n; k++) n += r.value[k] != features.at[k].first;
      if (!is_refused || n != most) continue;
      for (int i = 0; i < features.n; i++)
        for (int k = i + 1; k < features.n; k++) {
          unsigned char *at = &covered[place(r.value[i], r.value[k], 0)];
          if (*at != REFUSED || !have_meaning(r.value[i], r.value[k])) continue;
          *at = TRIED; /* told */
          printf("  refused: %s=%s %s=%s: %s\n", features.at[i].name, values.name[r.value[i]],
                 features.at[k].name, values.name[r.value[k]], message ? message : "");
        }
    }
  if (f) fclose(f);
}

int main(int argc, char **argv)
{
  if (argc < 4)
    give_up("usage",
            "cover FEATURES rows STRENGTH SEED [RESULTS] | alone RESULTS | tell STRENGTH RESULTS");
  read_features(argv[1]);
  bool alone = !strcmp(argv[2], "alone"), tells = !strcmp(argv[2], "tell");
  strength = alone ? 2 : atoi(argv[3]);
  if (strength != 2 && strength != 3) give_up("the strength is 2 or 3", argv[3]);
  covered = calloc(strength == 2 ? (size_t)MOST * MOST : (size_t)MOST * MOST * MOST, 1);
  if (!covered) give_up("out of memory", "covered");
  if (alone) {
    read_results(argv[3], false);
    print_alone();
  } else if (tells && argc == 5) {
    read_results(argv[4], true);
    tell(argv[4]);
  } else if (argc >= 5) {
    state = strtoull(argv[4], NULL, 10);
    if (argc > 5) read_results(argv[5], false);
    print_rows();
  }
  return 0;
}
