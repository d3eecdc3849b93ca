/* space.c: the settings that a search may vary, their values, and which of them go together.

   A plan declares its settings (prelude/language/settings.lua). Numbers of ranks are divisors of
   the number of devices, and multiply to it. */
#include "search/search.h"

#include <stdlib.h>
#include <string.h>

bool is_rank_kind(enum search_kind kind)
{
  return kind >= SEARCH_COPIES && kind <= SEARCH_RANKS;
}

bool may_have_ranks(const struct search_space *s, int64_t ranks)
{
  if (!s->is_machine) return ranks == s->devices;
  return ranks >= 1 && ranks <= s->devices && !(ranks & (ranks - 1));
}

/* Whether so many ranks can be a factor of those of a plan. */
static bool divides_ranks(const struct search_space *s, int64_t ranks)
{
  return s->is_machine ? may_have_ranks(s, ranks) : ranks <= s->devices && s->devices % ranks == 0;
}

/* Whether it is a dimension of the mesh of its own. */
static bool is_dimension(enum search_kind kind)
{
  return is_rank_kind(kind) && kind != SEARCH_DATA && kind != SEARCH_EXPERTS;
}

static const char *definition_of(const char *name)
{
  for (int i = 0; i < options.ndefinition; i++)
    if (!strcmp(options.definition[i].name, name)) return options.definition[i].value;
  return NULL;
}

static int64_t number_in(const char *text)
{
  char *end;
  const double x = text && *text ? strtod(text, &end) : 0;
  if (!text || !*text || *end || x < 1 || x > 1e15 || x != (double)(int64_t)x) return 0;
  return (int64_t)x;
}

/* NULL: the plan's default, without a definition. */
static void add_searched_value(struct searched *s, const char *value)
{
  for (int i = 0; i < s->n; i++) {
    const char *other = s->value[i] ? s->value[i] : s->usual;
    if (!strcmp(other, value ? value : s->usual)) return;
  }
  if (s->n == UINT8_MAX) return;
  int room = s->room;
  GROW(s->value, s->n, room);
  GROW(s->number, s->n, s->room);
  s->value[s->n] = value;
  s->number[s->n++] = number_in(value ? value : s->usual);
}

static void put_memory_last(struct searched *at)
{
  for (int v = 1; v < at->n && at->kind == SEARCH_RECOMPUTE; v++) {
    if (strcmp(at->value[v], "memory") != 0) continue;
    for (; v + 1 < at->n; v++) at->value[v] = at->value[v + 1];
    at->value[v] = "memory";
    at->within_memory = v;
  }
}

/* Adds the setting; given: its pinned value, NULL for what is off. */
static void add_setting(struct search_space *s, const struct setting *l, bool pinned,
                        const char *given)
{
  const int other = s->of_kind[l->search];
  if (other != NONE && l->search != SEARCH_CHOICE && l->search != SEARCH_RANKS)
    usage_error(1,
                "a search varies one setting of each kind, and %s says the same kind for '%s' and "
                "'%s'",
                options.plan, s->at[other].name, l->name);
  s->of_kind[l->search] = s->n;
  struct searched *at = &s->at[s->n++];
  *at = (struct searched){.name = l->name,
                          .usual = l->usual,
                          .with = l->with,
                          .without = l->without,
                          .divides = l->divides,
                          .kind = l->search,
                          .pinned = pinned,
                          .refused_with = NONE,
                          .within_memory = NONE};
  const bool counts_from_one = is_rank_kind(at->kind) || at->kind == SEARCH_MICROBATCHES;
  const char *off = counts_from_one ? "1" : at->usual;
  if (pinned) {
    add_searched_value(at, given);
    at->is_off = !given || !strcmp(given, off);
    if (counts_from_one && at->is_off) at->number[0] = 1;
    return;
  }
  if (!counts_from_one || at->kind == SEARCH_MICROBATCHES || !strcmp(at->usual, "1") || !*at->usual)
    add_searched_value(at, NULL);
  else
    add_searched_value(at, "1");
  if (counts_from_one) at->number[0] = 1;
  for (int k = 0; k < l->nvalue; k++) add_searched_value(at, l->value[k]);
  put_memory_last(at);
}

static struct search_space *empty_space(void)
{
  struct search_space *s = alloc(sizeof *s);
  *s = (struct search_space){.batch_at = NONE};
  for (int k = 0; k < SEARCH_COUNT; k++) s->of_kind[k] = NONE;
  return s;
}

bool is_named(const char *name, const char *names)
{
  for (; *names; names += strcspn(names, ","), names += *names == ',') {
    const size_t n = strcspn(names, ",");
    if (strlen(name) == n && !strncmp(name, names, n)) return true;
  }
  return false;
}

static uint64_t settings_named(const struct search_space *s, const char *names)
{
  uint64_t named = 0;
  for (int i = 0; i < s->n && *names; i++) named |= (uint64_t)is_named(s->at[i].name, names) << i;
  return named;
}

/* Notes which settings the others name, once all are in the list. */
static void find_named(struct search_space *s)
{
  for (int i = 0; i < s->n; i++) {
    s->at[i].with_any = settings_named(s, s->at[i].with);
    s->at[i].without_any = settings_named(s, s->at[i].without);
  }
}

struct search_space *read_space(void)
{
  int n;
  const struct setting *list = settings_of_plan(&n);
  graph_open(); /* what reading the plan left can still be read */
  struct search_space *s = empty_space();
  s->ngiven = options.ndefinition;
  s->given = options.definition;
  for (int i = 0; i < n; i++) {
    const char *given = definition_of(list[i].name);
    if (!strcmp(list[i].name, "batch")) {
      s->batch_at = i;
      s->batch = number_in(given ? given : list[i].usual);
    }
    s->declares_cluster |= !strcmp(list[i].name, "cluster");
    if (list[i].search == NO_SEARCH || s->n == MOST_SEARCHED) continue;
    add_setting(s, &list[i], given != NULL, given);
  }
  find_named(s);
  return s->n ? s : NULL;
}

struct search_space *space_of_parallel(void)
{
  struct search_space *s = empty_space();
  const struct plan_options *plan = plan_options;
  s->of_parallel = true;
  s->batch = plan->parallel.samples;
  s->given = alloc((size_t)(plan->nsetting + 1) * sizeof *s->given);
  for (int i = 0; i < plan->nsetting && s->n < MOST_SEARCHED; i++) {
    const struct setting *l = &plan->setting[i];
    add_setting(s, l, l->is_pinned, l->pinned);
    s->at[s->n - 1].is_defined = l->is_defined;
    if (l->pinned) s->given[s->ngiven++] = (struct definition){l->name, l->pinned};
  }
  find_named(s);
  return s;
}

char *pinned_by(const struct search_space *s)
{
  return text("%s", s->of_parallel ? "given" : "given by -D");
}

void take_definitions(const struct search_space *s, int n, struct definition *list)
{
  options.has_parallel |= s->of_parallel;
  *(s->of_parallel ? &options.nparallel : &options.ndefinition) = n;
  *(s->of_parallel ? &options.parallel : &options.definition) = list;
}

void set_values(struct search_space *s)
{
  for (int i = 0; i < s->n; i++) {
    struct searched *at = &s->at[i];
    if (at->pinned || at->refused) continue;
    const bool listed = at->n > 1;
    const bool divisors = (is_rank_kind(at->kind) && !listed) || *at->divides;
    for (int d = 2; d <= s->devices && divisors; d++)
      if (divides_ranks(s, d)) add_searched_value(at, text("%d", d));
    if (at->kind != SEARCH_MICROBATCHES || listed) continue;
    enum { MOST_MICROBATCHES = 512 };
    for (int64_t m = 2; m <= (s->batch ? s->batch : 64) && m <= MOST_MICROBATCHES; m++)
      if (s->batch ? s->batch % m == 0 : !(m & (m - 1)))
        add_searched_value(at, text("%lld", (long long)m));
  }
}

const char *value_in(const struct search_space *s, const struct candidate *c, int setting)
{
  return s->at[setting].value[c->v[setting]];
}

const char *value_or_usual(const struct search_space *s, const struct candidate *c, int setting)
{
  const char *value = value_in(s, c, setting);
  return value ? value : s->at[setting].usual;
}

static int64_t number_of_value(const struct search_space *s, const struct candidate *c, int setting)
{
  return s->at[setting].number[c->v[setting]];
}

/* Copies of the parameters: where the plan has none, what its ranks of data have beside shards. */
int64_t ranks_in(const struct search_space *s, const struct candidate *c, enum search_kind kind)
{
  const int at = s->of_kind[kind];
  if (kind == SEARCH_COPIES && at == NONE && s->of_kind[SEARCH_DATA] != NONE) {
    const int64_t shards = ranks_in(s, c, SEARCH_SHARDS);
    const int64_t data = number_of_value(s, c, s->of_kind[SEARCH_DATA]);
    return data % shards ? 0 : data / shards;
  }
  return at == NONE ? 1 : number_of_value(s, c, at);
}

int64_t microbatches_in(const struct search_space *s, const struct candidate *c)
{
  const int at = s->of_kind[SEARCH_MICROBATCHES];
  return at == NONE ? ranks_in(s, c, SEARCH_STAGES) : number_of_value(s, c, at);
}

bool is_on(const struct search_space *s, const struct candidate *c, int setting)
{
  return s->at[setting].pinned ? !s->at[setting].is_off : c->v[setting] > 0;
}

/* A bit for each setting that is on. */
static uint64_t settings_on_of(const struct search_space *s, const struct candidate *c)
{
  uint64_t on = 0;
  for (int i = 0; i < s->n; i++) on |= (uint64_t)is_on(s, c, i) << i;
  return on;
}

/* Whether the setting counts beside those that are on. */
static bool counts_beside(const struct searched *at, uint64_t on)
{
  return (!*at->with || at->with_any & on) && !(at->without_any & on);
}

bool counts_in(const struct search_space *s, const struct candidate *c, int setting)
{
  const struct searched *at = &s->at[setting];
  return (!*at->with && !at->without_any) || counts_beside(at, settings_on_of(s, c));
}

int64_t choices_with(const struct search_space *s, const struct candidate *c)
{
  const uint64_t on = settings_on_of(s, c);
  int64_t choices = 1;
  for (int i = 0; i < s->n; i++)
    if (s->at[i].kind == SEARCH_CHOICE && counts_beside(&s->at[i], on))
      choices = plus_times(0, choices, s->at[i].n);
  return choices;
}

void settle_values(const struct search_space *s, struct candidate *c)
{
  uint64_t on = settings_on_of(s, c);
  for (int i = 0; i < s->n; i++) {
    const struct searched *at = &s->at[i];
    if (at->pinned) continue;
    if (c->v[i] && !counts_beside(at, on)) c->v[i] = 0;
    if (!c->v[i] && at->refused_with != NONE && on >> at->refused_with & 1)
      c->v[i] = (unsigned char)at->first;
    on = (on & ~(UINT64_C(1) << i)) | (uint64_t)is_on(s, c, i) << i;
  }
}

static bool ranks_multiply(const struct search_space *s, const struct candidate *c)
{
  int64_t all = s->of_kind[SEARCH_COPIES] == NONE ? ranks_in(s, c, SEARCH_COPIES) : 1;
  for (int i = 0; i < s->n; i++)
    if (is_dimension(s->at[i].kind)) all *= number_of_value(s, c, i);
  if (!may_have_ranks(s, all)) return false;
  const int64_t data = ranks_in(s, c, SEARCH_COPIES) * ranks_in(s, c, SEARCH_SHARDS);
  const int of_data = s->of_kind[SEARCH_DATA];
  if (of_data != NONE && s->of_kind[SEARCH_COPIES] != NONE &&
      (s->at[of_data].pinned ? s->at[of_data].number[0] != data : c->v[of_data] != 0))
    return false; /* it follows from the other two */
  return data % ranks_in(s, c, SEARCH_EXPERTS) == 0;
}

static bool batch_divides(const struct search_space *s, const struct candidate *c)
{
  const int64_t data = ranks_in(s, c, SEARCH_COPIES) * ranks_in(s, c, SEARCH_SHARDS);
  const int64_t m = microbatches_in(s, c);
  if (!s->batch) return true;
  if (data > s->batch) return false;
  return m == 1 || s->batch % (data * m) == 0;
}

/* The questions about schedules, and their answers. A table by hash: a place that is taken is taken
   over. */
struct schedule_query {
  const char *name;
  int64_t ranks, stages, microbatches;
  bool legal;
};
enum { SCHEDULE_PLACES = 1 << 14 };

static bool can_be_so(struct schedule_query q)
{
  static struct schedule_query known[SCHEDULE_PLACES];
  const int64_t numbers[] = {q.ranks, q.stages, q.microbatches};
  uint64_t hash =
      hash_bytes(hash_bytes(HASH_START, numbers, sizeof numbers), q.name, strlen(q.name));
  struct schedule_query *at = &known[(hash ^ hash >> 32) % SCHEDULE_PLACES];
  if (at->name && !strcmp(at->name, q.name) && at->ranks == q.ranks && at->stages == q.stages &&
      at->microbatches == q.microbatches)
    return at->legal;
  enum { MOST = MAX_ACTIONS / 16 };
  q.legal = q.ranks * q.stages <= MAX_STAGES && q.ranks * q.stages * q.microbatches <= MOST &&
            !schedule_fault(q.name, (int)q.ranks, (int)q.stages, (int)q.microbatches);
  *at = q;
  return q.legal;
}

static bool schedule_is_legal(const struct search_space *s, const struct candidate *c)
{
  const int at = s->of_kind[SEARCH_SCHEDULE], per_rank = s->of_kind[SEARCH_STAGES_OF_RANK];
  const int64_t ranks = ranks_in(s, c, SEARCH_STAGES);
  if (ranks == 1 || at == NONE) return true;
  const char *name = value_or_usual(s, c, at);
  if (!is_schedule(name)) return true; /* a file, or what the plan knows */
  int64_t stages = per_rank == NONE ? 0 : number_of_value(s, c, per_rank);
  const bool is_free = per_rank != NONE && !s->at[per_rank].pinned && !s->at[at].pinned;
  if (is_free && stages == stages_implied(name)) return false; /* the default says the same */
  if (!stages) stages = stages_implied(name);
  if (is_free && stages == 1 && is_for_several_stages(name)) return false;
  if (s->layers && ranks * stages > s->layers) return false;
  const int64_t most = ranks * stages <= s->listed ? s->pieces : s->blocks;
  if (most && ranks * stages > most) return false;
  return can_be_so((struct schedule_query){name, ranks, stages, microbatches_in(s, c), false});
}

static bool divisors_divide(const struct search_space *s, const struct candidate *c)
{
  for (int i = 0; i < s->n; i++) {
    if (!*s->at[i].divides) continue;
    for (int k = 0; k < s->n; k++)
      if (!strcmp(s->at[k].name, s->at[i].divides) && number_of_value(s, c, i) &&
          number_of_value(s, c, k) % number_of_value(s, c, i))
        return false;
  }
  return true;
}

bool is_legal(const struct search_space *s, const struct candidate *c)
{
  if (!ranks_multiply(s, c) || !batch_divides(s, c)) return false;
  const uint64_t on = settings_on_of(s, c);
  for (int i = 0; i < s->n; i++)
    if (on >> i & 1 && !counts_beside(&s->at[i], on)) return false;
  return divisors_divide(s, c) && schedule_is_legal(s, c);
}

bool same_candidate(const struct search_space *s, const struct candidate *a,
                    const struct candidate *b)
{
  return !memcmp(a->v, b->v, (size_t)s->n);
}

struct walk {
  const struct search_space *s;
  void (*f)(void *to, const struct candidate *c);
  void *to;
  struct candidate c;
};

/* Whether the walk varies the setting: data that is a product is none of its own. */
static bool is_walked(const struct search_space *s, int i)
{
  const enum search_kind kind = s->at[i].kind;
  if (kind == SEARCH_CHOICE) return false;
  return kind != SEARCH_DATA || s->of_kind[SEARCH_COPIES] == NONE;
}

/* First the dimensions, then the rest; product: of those before. */
static void walk_from(struct walk *w, int i, bool dimensions, int64_t product)
{
  const struct search_space *s = w->s;
  if (i == s->n && dimensions) {
    if (ranks_multiply(s, &w->c)) walk_from(w, 0, false, 0);
    return;
  }
  if (i == s->n) {
    struct candidate settled = w->c;
    settle_values(s, &settled);
    if (is_legal(s, &settled)) w->f(w->to, &settled);
    return;
  }
  const struct searched *at = &s->at[i];
  const bool is_first = is_rank_kind(at->kind) && at->kind != SEARCH_EXPERTS;
  if (is_first != dimensions || !is_walked(s, i)) {
    walk_from(w, i + 1, dimensions, product);
    return;
  }
  for (int v = 0; v < at->n; v++) {
    if (v == at->within_memory) continue;
    w->c.v[i] = (unsigned char)v;
    const int64_t all = is_dimension(at->kind) ? product * at->number[v] : product;
    if (dimensions && !divides_ranks(s, all)) continue;
    if (v && !at->pinned && !dimensions && !counts_in(s, &w->c, i)) continue;
    if (at->kind == SEARCH_MICROBATCHES && !batch_divides(s, &w->c)) continue;
    walk_from(w, i + 1, dimensions, all);
  }
  w->c.v[i] = 0;
}

void each_candidate(const struct search_space *s, void (*f)(void *to, const struct candidate *c),
                    void *to)
{
  struct walk w = {.s = s, .f = f, .to = to, .c = {.tried = NONE}};
  walk_from(&w, 0, true, 1);
}

/* What a candidate says of the setting; NULL: nothing. */
static const char *said_of(const struct search_space *s, const struct candidate *c, int i)
{
  const struct searched *at = &s->at[i];
  if (at->kind == SEARCH_MICROBATCHES && ranks_in(s, c, SEARCH_STAGES) > 1 && !at->pinned)
    return text("%lld", (long long)microbatches_in(s, c)); /* else as many as ranks */
  return value_in(s, c, i);
}

int definitions_of(const struct search_space *s, const struct candidate *c,
                   struct definition **list)
{
  int n = 0;
  struct definition *d = alloc((size_t)(s->ngiven + s->n + 1) * sizeof *d);
  for (int i = 0; i < s->ngiven; i++) d[n++] = s->given[i];
  for (int i = 0; i < s->n; i++) {
    const char *value = said_of(s, c, i);
    if (!s->at[i].pinned && value) d[n++] = (struct definition){s->at[i].name, value};
  }
  if (s->sets_batch) d[n++] = (struct definition){"batch", text("%lld", (long long)s->batch)};
  *list = d;
  return n;
}

char *settings_text(const struct search_space *s, const struct candidate *c)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < s->n; i++) {
    const char *value = said_of(s, c, i);
    if (!value || (!is_on(s, c, i) && !s->at[i].pinned)) continue;
    put(&b, "%s%s=%s", b.length ? " " : "", s->at[i].name, value);
  }
  return b.length ? b.text : "one rank";
}
