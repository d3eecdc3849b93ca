/* compare.c: --compare: two programs side by side, as text, by their plan.json. */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

static void print_figures(const char *what, double a, double b, char *(*shown)(double))
{
  if (a == 0 && b == 0) return;
  printf("  %-34s %18s %18s", what, shown(a), shown(b));
  if (a > 0 && b > 0 && a != b) printf("  %+.1f %%", 100 * (b / a - 1));
  puts("");
}

static char *bytes_shown(double bytes)
{
  return size_text((int64_t)bytes);
}

static char *count_shown(double n)
{
  return grouped((int64_t)n);
}

static char *share_shown(double share)
{
  return text("%.1f %%", 100 * share);
}

/* "dp=2 tp=4" */
static char *mesh_of(const json_t *plan)
{
  struct buffer b = {0};
  size_t i;
  const json_t *row;
  put_text(&b, "", 0);
  json_array_foreach(json_object_get(plan, "mesh"), i, row)
      put(&b, "%s%s=%d", i ? " " : "", string_of(row, "name"), (int)figure_of(row, "size"));
  return b.text;
}

/* The collectives of a kind, over a dimension, in a phase: in a step, and the bytes a rank sends.
 */
struct transfers {
  const char *name;
  double times[2], sent[2];
};

struct all_transfers {
  int n, room;
  struct transfers *at;
};

static void add_transfers(struct all_transfers *all, const json_t *plan, int side)
{
  size_t i;
  const json_t *row;
  json_array_foreach(json_object_get(plan, "collectives"), i, row)
  {
    const char *name = text("%s over %s, %s", string_of(row, "kind"), string_of(row, "group"),
                            string_of(row, "phase"));
    int k = 0;
    while (k < all->n && strcmp(all->at[k].name, name)) k++;
    if (k == all->n) {
      GROW(all->at, all->n, all->room);
      all->at[all->n++] = (struct transfers){.name = name};
    }
    const double times = figure_of(row, "times");
    all->at[k].times[side] += times;
    all->at[k].sent[side] += times * figure_of(row, "sent");
  }
}

/* Of each stage's file, too. */
static void add_all_transfers(struct all_transfers *all, const json_t *data, int side)
{
  const char *name;
  const json_t *stage;
  add_transfers(all, json_object_get(data, "plan"), side);
  json_object_foreach((json_t *)json_object_get(data, "stages"), name, stage)
      add_transfers(all, stage, side);
}

static char *placement_shown(const json_t *parameter)
{
  struct buffer b = {0};
  const char *name;
  const json_t *at;
  put_text(&b, "", 0);
  if (!parameter) return "-";
  json_object_foreach((json_t *)json_object_get(parameter, "placement"), name, at)
      put(&b, "%s%s %s", b.length ? ", " : "", name, json_string_value(at));
  return b.text;
}

static const json_t *parameter_named(const json_t *plan, const char *name)
{
  size_t i;
  const json_t *row;
  json_array_foreach(json_object_get(plan, "parameters"), i, row)
  {
    if (!strcmp(string_of(row, "name"), name)) return row;
  }
  return NULL;
}

static void print_placement(const char *name, const json_t *a, const json_t *b)
{
  printf("  %s\n      %s\n      %s\n", name, placement_shown(a), placement_shown(b));
}

static void print_placements(const json_t *a, const json_t *b)
{
  size_t i;
  const json_t *row;
  bool any = false;
  for (int side = 0; side < 2; side++)
    json_array_foreach(json_object_get(side ? b : a, "parameters"), i, row)
    {
      const char *name = string_of(row, "name");
      const json_t *other = parameter_named(side ? a : b, name);
      if (side ? other != NULL : other && !strcmp(placement_shown(row), placement_shown(other)))
        continue;
      if (!any) puts("\nplacements that differ");
      any = true;
      print_placement(name, side ? NULL : row, side ? row : other);
    }
  if (!any) puts("\nthe placements of parameters are the same");
}

void print_comparison(const json_t *data)
{
  const json_t *other = json_object_get(data, "other"), *folders = json_object_get(data, "folders");
  const json_t *a = json_object_get(data, "plan"), *b = json_object_get(other, "plan");
  printf("  %-34s %18.18s %18.18s\n", "", json_string_value(json_array_get(folders, 0)),
         json_string_value(json_array_get(folders, 1)));
  printf("  %-34s %18s %18s\n", "mesh", mesh_of(a), mesh_of(b));
  print_figures("ranks", figure_of(a, "ranks"), figure_of(b, "ranks"), count_shown);
  static const struct {
    const char *what, *name;
    char *(*shown)(double);
  } step[] = {{"step", "seconds", duration_text},
              {"arithmetic", "arithmetic", duration_text},
              {"exposed transfers", "exposed", duration_text},
              {"idle, for other stages", "idle", duration_text},
              {"update", "update", duration_text},
              {"tokens a second", "tokens_per_second", count_shown},
              {"MFU", "mfu", share_shown}};
  for (size_t i = 0; i < sizeof step / sizeof *step; i++)
    print_figures(step[i].what, figure_of(json_object_get(a, "simulated_step"), step[i].name),
                  figure_of(json_object_get(b, "simulated_step"), step[i].name), step[i].shown);
  print_figures("memory of a rank", memory_of_plan(a), memory_of_plan(b), bytes_shown);
  static const char *const role[] = {"parameters", "gradients", "optimizer", "activations", NULL};
  for (int i = 0; role[i]; i++)
    print_figures(text("  %s", role[i]), figure_of(json_object_get(a, "memory_of_rank"), role[i]),
                  figure_of(json_object_get(b, "memory_of_rank"), role[i]), bytes_shown);
  struct all_transfers all = {0};
  add_all_transfers(&all, data, 0);
  add_all_transfers(&all, other, 1);
  puts("\ntransfers in a step: calls, and bytes that a rank sends");
  for (int i = 0; i < all.n; i++) {
    const struct transfers *t = &all.at[i];
    printf("  %-34s %7s %10s %7s %10s%s\n", t->name, grouped((int64_t)t->times[0]),
           size_text((int64_t)t->sent[0]), grouped((int64_t)t->times[1]),
           size_text((int64_t)t->sent[1]),
           t->times[0] == t->times[1] && t->sent[0] == t->sent[1] ? "" : "  differs");
  }
  if (!all.n) puts("  none");
  if (!json_object_get(a, "pipeline") && !json_object_get(b, "pipeline")) {
    print_placements(a, b);
    return;
  }
  const char *name;
  const json_t *stage, *stages = json_object_get(data, "stages");
  json_object_foreach((json_t *)stages, name, stage)
  {
    const json_t *there = json_object_get(json_object_get(other, "stages"), name);
    if (!there) continue;
    printf("\n%s", name);
    print_placements(stage, there);
  }
}
