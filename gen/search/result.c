/* result.c: what a search found: the table, and search.json. */
#include "search/search.h"

#include <math.h>
#include <string.h>

/* The order: the chosen one, then by seconds; then what does not fit by its bytes; what is refused.
 */
static int *order_of_found(const struct found *f)
{
  int *order = alloc((size_t)(f->n + 1) * sizeof *order);
  for (int i = 0; i < f->n; i++) {
    int at = i;
    for (; at &&
           (i == f->best || (order[at - 1] != f->best && compare_tried(f, i, order[at - 1]) < 0));
         at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return order;
}

/* "dp_shard=8 tp=2": the numbers of ranks above 1; and the other settings. */
static char *part_of_settings(const struct search_space *s, const struct candidate *c, bool ranks)
{
  struct buffer b = {0};
  put_text(&b, "", 0);
  for (int i = 0; i < s->n; i++) {
    if (is_rank_kind(s->at[i].kind) != ranks || !is_on(s, c, i)) continue;
    put(&b, "%s%s=%s", b.length ? " " : "", s->at[i].name, value_or_usual(s, c, i));
  }
  return b.length ? b.text : ranks ? "one rank" : "-";
}

static char *why_not(const struct search_space *s, const struct evaluated *o)
{
  if (o->stopped) return "the search ended before";
  if (!o->is_there) return text("refused: %s", o->why);
  if (candidate_fits(s, o)) return "";
  const int64_t limit = memory_for(s, o);
  return text("does not fit: %s more than %s", size_text(o->step.bytes + o->reserve - limit),
              size_text(limit));
}

static void print_row(const struct found *f, int i, const int width[2])
{
  const struct search_space *s = f->space;
  const struct evaluated *o = outcome_at(f->tried[i].tried);
  printf("%c %-*s  %-*s ", i == f->best ? '*' : ' ', width[0],
         ascii_text(part_of_settings(s, &f->tried[i], true)), width[1],
         ascii_text(part_of_settings(s, &f->tried[i], false)));
  printf(" %12s %14s %6.1f %% %10s %11s %8.1f %%%s\n", duration_text(o->step.seconds),
         o->step.tokens > 0 ? grouped((int64_t)(o->step.tokens / o->step.seconds)) : "-",
         100 * o->step.mfu, size_text(o->step.bytes), duration_text(o->step.exposed),
         100 * o->step.idle / o->step.seconds, candidate_fits(s, o) ? "" : "  does not fit");
}

/* "context=ring with cp": the default of a choice that the plan refuses. */
static char *refused_usual(const struct search_space *s, int i)
{
  const struct searched *at = &s->at[i];
  return text("%s=%s with %s", at->name, at->usual, s->at[at->refused_with].name);
}

static void print_head(const struct found *f)
{
  const struct search_space *s = f->space;
  int refused = 0;
  for (int i = 0; i < f->n; i++) refused += !outcome_at(f->tried[i].tried)->is_there;
  const char *where =
      s->is_machine ? text("this machine, %d cores of %s", s->devices, ascii_text(s->device))
                    : text("%d %s in nodes of %d", s->devices, ascii_text(s->device), s->node);
  printf("%s on %s%s%s: %d of %s%s plans were tried%s%s\n", ascii_text(options.plan), where,
         s->memory && !s->is_machine ? text(", %s each", size_text(s->memory)) : "",
         s->sets_batch ? text(", batch=%lld, as -D batch says nothing", (long long)s->batch) : "",
         f->n, f->legal == INT64_MAX ? "more than " : "", grouped(f->legal),
         refused ? text(", %d were refused", refused) : "",
         f->was_ended ? "; the search was ended early" : "");
  for (int i = 0; i < s->n; i++)
    if (s->at[i].refused && s->at[i].n == 1)
      printf("%s is not varied: %s\n", ascii_text(s->at[i].name), s->at[i].refused);
    else if (s->at[i].usual_refused)
      printf("%s is not tried: %s\n", ascii_text(refused_usual(s, i)), s->at[i].usual_refused);
}

void print_found(const struct found *f)
{
  enum { MOST_ROWS = 12 };
  static const double NEAR = 1.05;
  const struct search_space *s = f->space;
  const int *order = order_of_found(f);
  int n = 0, width[2] = {4, 8};
  if (!s->devices || (f->was_ended && f->best == NONE && f->closest == NONE)) {
    puts("the search was ended before it found a plan");
    return;
  }
  print_head(f);
  const double best =
      f->best == NONE ? INFINITY : outcome_at(f->tried[f->best].tried)->step.seconds;
  int within = 0;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[order[i]].tried);
    if (f->best == NONE ? !o->is_there : !candidate_fits(s, o)) break;
    within += o->step.seconds <= best * NEAR;
    if (i >= MOST_ROWS || (i > 4 && o->step.seconds > best * NEAR)) continue;
    n = i + 1;
    for (int k = 0; k < 2; k++) {
      const int w = (int)strlen(ascii_text(part_of_settings(s, &f->tried[order[i]], !k)));
      if (w > width[k]) width[k] = w;
    }
  }
  printf("\n  %-*s  %-*s  %12s %14s %8s %10s %11s %10s\n", width[0], "mesh", width[1], "settings",
         "step", "tokens/s", "MFU", "memory", "exposed", "idle");
  for (int i = 0; i < n; i++) print_row(f, order[i], width);
  if (f->best == NONE) {
    const struct evaluated *o = f->closest == NONE ? NULL : outcome_at(f->tried[f->closest].tried);
    if (!o) {
      puts("\nno plan could be evaluated");
      if (f->n)
        printf("the first: %s: %s\n", settings_text(s, &f->tried[0]),
               ascii_text(why_not(s, outcome_at(f->tried[0].tried))));
      return;
    }
    printf(
        "\nnothing fits: %s comes closest, with %s of memory and %s of CUDA and NCCL; a rank may "
        "have %s\n%s",
        settings_text(s, &f->tried[f->closest]), size_text(o->step.bytes), size_text(o->reserve),
        size_text(s->memory), help_to_fit(f));
    return;
  }
  if (within > 1) printf("\n%d plans are within 5 %% of the quickest\n", within);
  bool any = false;
  for (int i = 0; i < s->n; i++) {
    const char *why = reason_for(f, i);
    if (!why) continue;
    if (!any) puts("\nwhy:");
    any = true;
    const char *value = value_or_usual(s, &f->tried[f->best], i);
    printf("  %s%s%s: %s\n", ascii_text(s->at[i].name), *value ? "=" : " not given",
           ascii_text(value), ascii_text(why));
  }
}

/* ---------------------------------------------------------------------------------- search.json */

static json_t *json_value(const char *value)
{
  int64_t n = 0;
  const size_t digits = strspn(value, "0123456789");
  if (*value && !value[digits] && digits < 16) {
    for (const char *c = value; *c; c++) n = 10 * n + (*c - '0');
    return json_integer(n);
  }
  if (!strcmp(value, "true") || !strcmp(value, "false")) return json_boolean(*value == 't');
  return json_string(ascii_text(value));
}

static json_t *json_candidate(const struct found *f, int i)
{
  const struct search_space *s = f->space;
  const struct candidate *c = &f->tried[i];
  const struct evaluated *o = outcome_at(c->tried);
  struct definition *list;
  const int n = definitions_of(s, c, &list);
  json_t *settings = json_object();
  for (int k = 0; k < n; k++)
    json_member(settings, ascii_text(list[k].name), json_value(list[k].value));
  json_t *row = json_pack("{s:o, s:b}", "settings", settings, "fits", candidate_fits(s, o));
  if (o->is_there) {
    json_member(row, "seconds", json_real(o->step.seconds));
    json_member(row, "bytes", json_integer(o->step.bytes));
    json_member(row, "exposed", json_real(o->step.exposed));
    json_member(row, "idle", json_real(o->step.idle));
    if (o->step.tokens > 0)
      json_member(row, "tokens_per_second", json_real(o->step.tokens / o->step.seconds));
    json_member(row, "mfu", json_real(o->step.mfu));
  }
  json_member(row, "closed_form",
              json_pack("{s:f, s:I}", "seconds", c->seconds, "bytes", (json_int_t)c->bytes));
  const double best = f->best == NONE ? 0 : outcome_at(f->tried[f->best].tried)->step.seconds;
  const char *why = i == f->best ? "chosen" : why_not(s, o);
  if (!*why && best > 0)
    why = o->step.seconds < best
              ? text("takes %.1f %% less, and is less simple", 100 * (1 - o->step.seconds / best))
              : text("takes %.1f %% more", 100 * (o->step.seconds / best - 1));
  json_member(row, "why", json_string(ascii_text(why)));
  return row;
}

/* What no candidate has, and why. */
static json_t *json_not_tried(const struct search_space *s)
{
  json_t *all = json_object();
  for (int i = 0; i < s->n; i++)
    if (s->at[i].refused && s->at[i].n == 1)
      json_member(all, s->at[i].name, json_string(ascii_text(s->at[i].refused)));
    else if (s->at[i].usual_refused)
      json_member(all, refused_usual(s, i), json_string(ascii_text(s->at[i].usual_refused)));
  return all;
}

void add_search_json(const struct found *f)
{
  const struct search_space *s = f->space;
  const int *order = order_of_found(f);
  json_t *all = json_array(), *whole = json_object(), *reasons = json_object();
  for (int i = 0; i < f->n; i++) json_append(all, json_candidate(f, order[i]));
  json_member(whole, "version", json_integer(1));
  json_member(whole, "tpgen", json_string(TPGEN_VERSION));
  json_member(whole, "plan", json_string(ascii_text(options.plan)));
  json_member(whole, "devices", json_integer(s->devices));
  json_member(whole, "target", json_string(target->name));
  if (s->device) json_member(whole, "device", json_string(ascii_text(s->device)));
  if (s->memory) json_member(whole, "limit", json_integer(s->memory));
  json_member(whole, "legal", json_integer(f->legal));
  json_member(whole, "ended_early", json_boolean(f->was_ended));
  json_member(whole, "best", f->best == NONE ? json_null() : json_candidate(f, f->best));
  if (f->best == NONE && f->closest != NONE)
    json_member(whole, "closest", json_candidate(f, f->closest));
  for (int i = 0; i < s->n && f->best != NONE; i++) {
    const char *why = reason_for(f, i);
    if (why) json_member(reasons, s->at[i].name, json_string(ascii_text(why)));
  }
  json_member(whole, "reasons", reasons);
  json_member(whole, "not_tried", json_not_tried(s));
  json_member(whole, "candidates", all);
  const char *json = json_text(whole, JSON_INDENT(2));
  struct buffer b = {0};
  put(&b, "%s\n", json);
  add_file("search.json", b.text, b.length, false);
}
