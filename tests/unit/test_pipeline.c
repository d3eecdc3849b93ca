/* Schedules of pipelines: every row of the golden table (TPGEN_GOLDEN, or tests/golden), which
   PyTorch's classes made: stages, orders, what they are lowered to, what PyTorch runs, and costs.
   For many sizes, that each micro-batch is computed once, in its turn, and that no send can hang.
   Then faults are planted. */
#include "pipeline/pipeline.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>

static const char *const names[] = {
    "gpipe",           "1f1b",      "interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble",
    "zbv_zero_bubble", "dualpipe_v"};
enum { NAMES = sizeof names / sizeof *names };

static struct pipeline *order_of(const char *name, int ranks, int stages, int microbatches)
{
  const char *why;
  struct pipeline *p = pipeline_order(name, ranks, stages, microbatches, &why);
  must(p, "%s on %d ranks with %d stages and %d micro-batches: %s", name, ranks, stages,
       microbatches, why);
  return p;
}

static struct pipeline *lowered_of(const struct pipeline *p)
{
  const char *why;
  struct pipeline *all = lowered(p, &why);
  must(all, "%s", why);
  return all;
}

/* ---------------------------------------------------------------------------- the golden table */

struct case_of {
  char about[128], name[64];
  int ranks, stages, microbatches;
  struct pipeline *order, *all;
  struct buffer deferred, executed; /* the rows of all ranks so far, as a file has them */
};

static void read_case(struct case_of *c, const char *line)
{
  const char *why;
  *c = (struct case_of){0};
  snprintf(c->about, sizeof c->about, "%.100s", line);
  must(sscanf(line, "case %63s ranks=%d local=%d microbatches=%d", c->name, &c->ranks, &c->stages,
              &c->microbatches) == 4,
       "%s", line);
  c->order = pipeline_order(c->name, c->ranks, c->stages, c->microbatches, &why);
  c->all = c->order ? lowered_of(c->order) : NULL;
}

/* What stands behind the rank in a row such as "order 3: 0F0,,0B0". */
static const char *row_of(const struct case_of *c, const char *line, int *rank)
{
  int after = 0;
  must(c->order && sscanf(line, "%*s %d:%n", rank, &after) == 1 && *rank < c->ranks, "%s: %s",
       c->about, line);
  return line + after + (line[after] == ' ');
}

static void same_row(const struct case_of *c, const struct pipeline *p, const char *line)
{
  int rank;
  const char *row = row_of(c, line, &rank);
  const char *got = pipeline_csv(&(struct pipeline){.ranks = 1, .order = &p->order[rank]});
  must(strcmp(got, text("%s\n", row)) == 0, "%s, rank %d:\n%s is not\n%s", c->about, rank, got,
       row);
}

/* "stages 1: 1,6" */
static void same_stages(const struct case_of *c, const char *line)
{
  int rank;
  const char *row = row_of(c, line, &rank);
  struct buffer b = {0};
  for (int s = 0; s < c->order->stages; s++)
    if (c->order->rank_of[s] == rank) put(&b, "%s%d", b.length ? "," : "", s);
  must(b.text && strcmp(b.text, row) == 0, "%s, rank %d: its stages are %s, not %s", c->about, rank,
       b.text, row);
}

static void same_cost(const struct case_of *c, const char *line)
{
  const struct pipeline_cost cost = pipeline_cost(c->order);
  struct buffer b = {0};
  put(&b, "cost makespan=%" PRId64 " busy=", cost.time);
  for (int r = 0; r < c->ranks; r++) put(&b, "%s%" PRId64, r ? "," : "", cost.busy[r]);
  put(&b, " bubble=%.6f inflight=", cost.idle);
  for (int r = 0; r < c->ranks; r++) put(&b, "%s%d", r ? "," : "", cost.in_flight[r]);
  must(strcmp(b.text, line) == 0, "%s: %s is not %s", c->about, b.text, line);
}

/* "[0SEND_F1+0RECV_B0] wait[0RECV_B0] 0B0": a send stands where it is posted, a receive where it is
   waited for. */
static void add_executed(struct buffer *rows, const char *row)
{
  struct buffer b = {0};
  const char *word = row;
  for (bool posts = false, waits = false; *word;) {
    const size_t n = strcspn(word, "[+] ");
    if (n == 4 && !strncmp(word, "wait", n)) {
      waits = true;
    } else if (n) {
      const bool receives = strstr(text("%.*s", (int)n, word), "RECV");
      if (posts || waits ? receives == waits : true)
        put(&b, "%s%.*s", b.length ? "," : "", (int)n, word);
    }
    word += n;
    if (*word == '[') posts = !waits;
    if (*word == ']') posts = waits = false;
    word += *word != 0;
  }
  put(rows, "%s\n", b.text);
}

/* What a plan takes of a file, without idle steps. */
static const char *computed(const char *about, const char *csv)
{
  const char *why;
  struct pipeline *p = schedule_of_csv("schedule.csv", csv, &why);
  must(p, "%s: %s", about, why);
  for (int r = 0; r < p->ranks; r++) {
    const struct actions with_idle = p->order[r];
    p->order[r] = (struct actions){0};
    for (int k = 0; k < with_idle.n; k++)
      if (with_idle.at[k].kind != ACTION_IDLE) put_action(&p->order[r], with_idle.at[k]);
  }
  return pipeline_csv(p);
}

/* PyTorch's lists whose receives stand late, and those of its own loops: as files, a plan takes
   them, and they compute what the order does. */
static void same_computation(const struct case_of *c)
{
  const struct buffer *const lists[] = {&c->deferred, &c->executed};
  for (int i = 0; i < 2; i++) {
    if (!lists[i]->text) continue;
    const char *got = computed(c->about, lists[i]->text), *order = pipeline_csv(c->order);
    must(strcmp(got, computed(c->about, order)) == 0, "%s: %s is not %s", c->about, got, order);
  }
}

static bool begins(const char *line, const char *kind)
{
  return strncmp(line, kind, strlen(kind)) == 0;
}

/* Beyond PyTorch: every_size_runs looks at these orders. */
static bool takes_fewer_microbatches(const struct case_of *c)
{
  return !strcmp(c->name, "1F1B") && c->stages == 1 && c->microbatches < c->ranks;
}

static void compare_line(struct case_of *c, const char *line)
{
  int rank;
  if (begins(line, "error ")) {
    must(!c->order == !takes_fewer_microbatches(c), "%s is refused by PyTorch", c->about);
  } else if (begins(line, "stages ")) {
    same_stages(c, line);
  } else if (begins(line, "order ")) {
    same_row(c, c->order, line);
  } else if (begins(line, "lowered ")) {
    same_row(c, c->all, line);
  } else if (begins(line, "deferred ")) {
    put(&c->deferred, "%s\n", row_of(c, line, &rank));
  } else if (begins(line, "executed ")) {
    add_executed(&c->executed, row_of(c, line, &rank));
  } else if (begins(line, "cost ")) {
    same_cost(c, line);
  } else {
    give_up("no test reads the row: %.100s", line);
  }
}

static void compare(const void *file)
{
  static char line[1 << 20];
  struct case_of c = {0};
  int cases = 0;
  while (fgets(line, sizeof line, (FILE *)(uintptr_t)file)) {
    line[strcspn(line, "\n")] = 0;
    if (!line[0] || line[0] == '#') continue;
    if (!begins(line, "case ")) {
      compare_line(&c, line);
      continue;
    }
    same_computation(&c);
    read_case(&c, line);
    cases++;
  }
  same_computation(&c);
  must(cases > 30, "only %d cases", cases);
}

static void golden(void **state)
{
  FILE *f = open_golden("pipeline/schedules.txt");
  (void)state;
  passes(compare, f);
  fclose(f);
}

/* -------------------------------------------------------------------------------- all schedules */

static int sizes; /* that a schedule has taken */

static void of_size(const char *name, int ranks, int stages, int microbatches)
{
  const char *why;
  const struct pipeline *p = pipeline_order(name, ranks, stages, microbatches, &why);
  if (!p) return;
  why = wrong_order(p);
  must(!why, "%s, %d ranks, %d stages, %d micro-batches: %s", name, ranks, stages, microbatches,
       why);
  why = what_hangs(lowered_of(p));
  must(!why, "%s, %d ranks, %d stages, %d micro-batches: %s", name, ranks, stages, microbatches,
       why);
  sizes++;
}

static void all_sizes(const void *name)
{
  for (int ranks = 1; ranks <= 6; ranks++)
    for (int stages = 1; stages <= 3; stages++)
      for (int n = 1; n <= 14; n++) of_size(name, ranks, stages, n);
  of_size(name, 16, 2, 64);
  of_size(name, 16, 1, 64);
  must(sizes >= 40, "only %d sizes", sizes);
}

static void every_size_runs(void **state)
{
  (void)state;
  for (int i = 0; i < NAMES; i++) passes(all_sizes, names[i]);
}

/* The bubbles of the papers. */
static void costs(const void *unused)
{
  (void)unused;
  for (int ranks = 2; ranks <= 8; ranks++)
    for (int n = 2 * ranks; n <= 32; n += ranks) {
      const int hops = ranks - 1;
      const struct {
        const char *name;
        int stages, idle; /* of a rank, in units of a forward */
      } of[] = {{"gpipe", 1, 3 * hops},
                {"1f1b", 1, 3 * hops},
                {"looped_bfs", 3, 3 * hops},
                {"interleaved_1f1b", 2, 3 * hops},
                {"interleaved_zero_bubble", 2, hops},
                {"zbv_zero_bubble", 2, hops},
                {"dualpipe_v", 2, 2 * hops}};
      for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct pipeline_cost c = pipeline_cost(order_of(of[i].name, ranks, of[i].stages, n));
        must(c.time - 3 * of[i].stages * n == of[i].idle,
             "%s on %d ranks, %d micro-batches: %d idle", of[i].name, ranks, n,
             (int)c.time - 3 * of[i].stages * n);
      }
    }
}

/* Of the smaller and of the larger pipeline: the idle time in thousandths of the time in which
   ranks compute, and the most micro-batches, of a rank's share of the layers, that the first rank
   holds, and the last one. A rank computes the two of a pair one after the other. */
static void costs_in_numbers(const void *unused)
{
  static const struct {
    int ranks, microbatches;
  } size[] = {{4, 8}, {8, 32}};
  static const struct {
    const char *name;
    int stages;
    struct {
      int idle;
      double first, last;
    } of[2];
  } row[] = {{"gpipe", 1, {{375, 8, 8}, {219, 32, 32}}},
             {"1f1b", 1, {{375, 4, 1}, {219, 8, 1}}},
             {"looped_bfs", 2, {{188, 8, 8}, {109, 32, 32}}},
             {"interleaved_1f1b", 2, {{188, 5.5, 2.5}, {109, 11.5, 4.5}}},
             {"interleaved_zero_bubble", 1, {{125, 4, 4}, {73, 8, 8}}},
             {"interleaved_zero_bubble", 2, {{63, 4, 4}, {36, 8, 8}}},
             {"zbv_zero_bubble", 2, {{63, 4, 4}, {36, 8, 8}}},
             {"dualpipe_v", 2, {{63, 4.5, 4.5}, {36, 8.5, 8.5}}}};
  (void)unused;
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    for (int k = 0; k < 2; k++) {
      const int ranks = size[k].ranks, stages = row[i].stages;
      struct pipeline *p = order_of(row[i].name, ranks, stages, size[k].microbatches);
      const int *held = pipeline_cost(p).in_flight;
      const double first = (double)held[0] / stages, last = (double)held[ranks - 1] / stages;
      for (int r = 0; r < ranks; r++) p->order[r] = actions_of(p, r);
      const double busy = 3. * stages * size[k].microbatches;
      const int idle = (int)lround(1000 * ((double)pipeline_cost(p).time / busy - 1));
      must(idle == row[i].of[k].idle && first == row[i].of[k].first && last == row[i].of[k].last,
           "%s on %d ranks with %d stages: idle %d, in flight %g ... %g", row[i].name, ranks,
           stages, idle, first, last);
    }
}

static void bubbles(void **state)
{
  (void)state;
  passes(costs, NULL);
  passes(costs_in_numbers, NULL);
}

/* ------------------------------------------------------------------------------- planted faults */

static struct action *find(struct pipeline *p, int rank, const char *action)
{
  for (int k = 0; k < p->order[rank].n; k++)
    if (strcmp(action_text(&p->order[rank].at[k]), action) == 0) return &p->order[rank].at[k];
  give_up("there is no %s", action);
  return NULL;
}

static void swap(struct action *a, struct action *b)
{
  const struct action was = *a;
  *a = *b;
  *b = was;
}

static void is_wrong(const char *why, const char *word)
{
  must(why && strstr(why, word), "'%s' is not in: %s", word, why ? why : "nothing");
}

static void plant(const void *unused)
{
  (void)unused;
  struct pipeline *p = order_of("1f1b", 3, 1, 4);
  swap(find(p, 0, "0F1"), find(p, 0, "0B1"));
  is_wrong(wrong_order(p), "0B1 of rank 0 comes before its forward");

  p = order_of("1f1b", 3, 1, 4);
  find(p, 2, "2B3")->kind = ACTION_IDLE;
  is_wrong(wrong_order(p), "the backward of micro-batch 3 on stage 2 is missing");

  p = order_of("interleaved_zero_bubble", 2, 2, 4);
  find(p, 1, "3W1")->microbatch = 2;
  is_wrong(wrong_order(p), "3W2 of rank 1");

  p = order_of("interleaved_1f1b", 2, 2, 4);
  find(p, 1, "1F1")->stage = 2;
  is_wrong(wrong_order(p), "that stage is on rank 0");

  /* Each row is right alone, and the ranks wait for each other. */
  p = order_of("gpipe", 2, 1, 2);
  swap(find(p, 0, "0F1"), find(p, 0, "0B0"));
  is_wrong(wrong_order(p), "rank 0 for what 0B0 needs, rank 1 for what 1F1 needs");

  p = lowered_of(order_of("1f1b", 2, 1, 4));
  struct action *receive = find(p, 1, "1RECV_F2");
  receive->kind = ACTION_IDLE;
  is_wrong(what_hangs(p), "rank 0 in 0SEND_F2");

  p = lowered_of(order_of("1f1b", 2, 1, 4));
  find(p, 1, "1RECV_F2")->microbatch = 3;
  is_wrong(what_hangs(p), "rank 0 in 0SEND_F2, rank 1 in 1RECV_F3");

  p = lowered_of(order_of("1f1b", 2, 1, 4));
  swap(find(p, 0, "0SEND_F1"), find(p, 0, "0RECV_B0"));
  is_wrong(what_hangs(p), "rank 0 in 0RECV_B0");
}

static void planted(void **state)
{
  (void)state;
  passes(plant, NULL);
}

/* ------------------------------------------------------------------------------------ its text */

static struct pipeline *read_text(const char *csv)
{
  const char *why;
  struct pipeline *p = read_csv("schedule.csv", csv, &why);
  if (!p) usage_error(1, "%s", why);
  return p;
}

static void there_and_back(const void *unused)
{
  (void)unused;
  for (int i = 0; i < NAMES; i++) {
    const int stages = i < 2 ? 1 : 2;
    const struct pipeline *p = order_of(names[i], 3, stages, 6), *all = lowered_of(p);
    const char *order = pipeline_csv(p), *whole = pipeline_csv(all);
    const struct pipeline *same = read_text(order);
    must(strcmp(pipeline_csv(same), order) == 0 && !is_lowered(same), "%s", names[i]);
    must(strcmp(pipeline_csv(lowered_of(same)), whole) == 0, "%s, lowered", names[i]);
    must(is_lowered(read_text(whole)), "%s has no sends", names[i]);
  }
}

static void text_stays(void **state)
{
  (void)state;
  passes(there_and_back, NULL);
}

static void reads(const void *csv)
{
  const struct pipeline *p = read_text(csv);
  const char *why = is_lowered(p) ? what_hangs(p) : wrong_order(p);
  if (why) usage_error(1, "%s", why);
}

static void wrong_files(void **state)
{
  (void)state;
  refused(reads, "", 1, "it has no row", NULL);
  refused(reads, "0F0,0B0\n0X1\n", 1, ":2: field 1: '0X1' is not an action", NULL);
  refused(reads, "0F0,0B0,0F\n", 1, "'0F' is not an action", NULL);
  refused(reads, "0F0,99999F0\n", 1, "'99999F0' is not an action", NULL);
  refused(reads, "(0F0;0B0OVERLAP_F_B\n", 1, "is not an action", NULL);
  refused(reads, "0F0,2F0,0B0,2B0\n", 1, "stage 1 of 3 has no forward", NULL);
  refused(reads, "0F0,0B0,0B0\n", 1, "0B0 of rank 0 stands twice", NULL);
  refused(reads, "4095F65535\n", 1, "more than tpgen takes", NULL);
  refused(reads, "0F0,0SEND_F0\n1F0\n", 1, "rank 0 in 0SEND_F0", NULL);
}

/* What a plan takes of a lowered schedule: a receive may stand later than where it is posted. */
static void plans(const void *csv)
{
  const char *why;
  if (!schedule_of_csv("schedule.csv", csv, &why)) usage_error(1, "%s", why);
}

static void what_plans_take(void **state)
{
  (void)state;
  passes(plans, "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  passes(plans, "0F0,0F1,0SEND_F1,0SEND_F0,0RECV_B0,0B0,0RECV_B1,0B1\n"
                "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n");
  refused(plans, "0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "rank 0 in 0B0", NULL);
  refused(plans, "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", 1, "rank 0 in 0RECV_B0", NULL);
  refused(plans, "0F0,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0F1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1,
          "rank 0 in 0B1", NULL);
  refused(plans, "0F0,0SEND_F0,0SEND_F1,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1,
          "1RECV_F1 is missing", NULL);
  refused(plans, "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", 1, "rank 1 in 1F0",
          NULL);
}

int main(void)
{
  arena_open(1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(golden),          cmocka_unit_test(every_size_runs),
      cmocka_unit_test(bubbles),         cmocka_unit_test(planted),
      cmocka_unit_test(text_stays),      cmocka_unit_test(wrong_files),
      cmocka_unit_test(what_plans_take),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
