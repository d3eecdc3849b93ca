/* read_csv.c: reads a schedule of PyTorch's CSV. */
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool is_csv(const char *schedule)
{
  const char *dot = strrchr(schedule, '.');
  return strchr(schedule, '/') || (dot && strcmp(dot, ".csv") == 0);
}

/* A place in a file, and the fault there. */
struct place {
  const char *file;
  int row, field; /* from 1 */
  const char *why;
};

/* Keeps the first that is wrong. */
static void wrong(struct place *at, const char *what)
{
  if (!at->why) at->why = text("%s:%d: field %d: %s", at->file, at->row, at->field, what);
}

/* The number at *at, below `below`; steps over it. NONE where there is none. */
static int read_number(const char **at, int below)
{
  char *end;
  errno = 0;
  const long n = isdigit((unsigned char)**at) ? strtol(*at, &end, 10) : NONE;
  if (n < 0 || errno || n >= below) return NONE;
  *at = end;
  return (int)n;
}

/* "2F0", "1UNSHARD"; false: it is none. */
static bool read_simple(const char **at, struct action *a)
{
  a->stage = read_number(at, MAX_STAGES);
  if (a->stage == NONE) return false;
  a->kind = action_kind(at);
  if (a->kind == ACTION_IDLE || a->kind == ACTION_OVERLAP) return false;
  a->microbatch = 0;
  if (!has_microbatch(a->kind)) return true;
  a->microbatch = read_number(at, MAX_MICROBATCHES);
  return a->microbatch != NONE;
}

/* "(0F3;3B1)OVERLAP_F_B" */
static bool read_overlap(const char **at, struct action *a)
{
  struct action backward;
  ++*at;
  if (!read_simple(at, a) || a->kind != ACTION_F || *(*at)++ != ';') return false;
  if (!read_simple(at, &backward) || backward.kind != ACTION_B || *(*at)++ != ')') return false;
  a->other_stage = backward.stage;
  a->other_microbatch = backward.microbatch;
  a->kind = action_kind(at);
  return a->kind == ACTION_OVERLAP;
}

static struct action read_action(struct place *at, const char *field)
{
  struct action a = {0};
  const char *end = field;
  if (!*field) return a;
  if (!(*field == '(' ? read_overlap(&end, &a) : read_simple(&end, &a)) || *end)
    wrong(at, text("'%s' is not an action: as in 2F0, 1B3, 0SEND_F2, (0F4;7B1)OVERLAP_F_B",
                   printable(field)));
  return a;
}

/* Puts a row's actions into the list. */
static void read_row(struct place *at, char *row, struct actions *list)
{
  for (at->field = 1; row; at->field++) {
    char *comma = strchr(row, ',');
    if (comma) *comma = 0;
    while (isspace((unsigned char)*row)) row++;
    for (size_t n = strlen(row); n > 0 && isspace((unsigned char)row[n - 1]);) row[--n] = 0;
    put_action(list, read_action(at, row));
    row = comma ? comma + 1 : NULL;
  }
}

static void count_stage(struct pipeline *p, int stage, int microbatch)
{
  if (stage >= p->stages) p->stages = stage + 1;
  if (microbatch >= p->microbatches) p->microbatches = microbatch + 1;
}

/* A stage is on the rank that computes its forwards. Returns the fault, or NULL. */
static const char *read_csv_place_stages(struct pipeline *p)
{
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++) {
      const struct action *a = &p->order[r].at[k];
      if (a->kind == ACTION_IDLE) continue;
      count_stage(p, a->stage, a->microbatch);
      if (a->kind == ACTION_OVERLAP) count_stage(p, a->other_stage, a->other_microbatch);
    }
  if ((int64_t)p->stages * p->microbatches > MAX_ACTIONS)
    return text("%d stages with %d micro-batches are more than tpgen takes", p->stages,
                p->microbatches);
  p->rank_of = alloc((size_t)(p->stages + 1) * sizeof *p->rank_of);
  for (int s = 0; s < p->stages; s++) p->rank_of[s] = NONE;
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++) {
      const struct action *a = &p->order[r].at[k];
      if (a->kind == ACTION_F || a->kind == ACTION_OVERLAP) p->rank_of[a->stage] = r;
    }
  for (int s = 0; s < p->stages; s++)
    if (p->rank_of[s] == NONE) return text("stage %d of %d has no forward", s, p->stages);
  return p->stages ? NULL : "it has no action";
}

struct pipeline *read_csv(const char *name, const char *csv, const char **why)
{
  struct pipeline *p = alloc(sizeof *p);
  struct place at = {.file = name};
  int ranks = 0;
  int64_t actions = 0;
  for (const char *line = csv; *line && !at.why;) {
    size_t n = strcspn(line, "\n");
    at.row++;
    GROW(p->order, p->ranks, ranks);
    p->order[p->ranks] = (struct actions){0};
    read_row(&at, text("%.*s", (int)n, line), &p->order[p->ranks]);
    actions += p->order[p->ranks++].n;
    if (actions > MAX_ACTIONS) wrong(&at, text("more than %d actions", (int)MAX_ACTIONS));
    line += n + (line[n] == '\n');
  }
  *why = at.why;
  if (*why) return NULL;
  *why = p->ranks ? read_csv_place_stages(p) : "it has no row; each rank has one";
  if (*why) *why = text("%s: %s", name, *why);
  return *why ? NULL : p;
}

struct pipeline *schedule_of_csv(const char *name, const char *csv, const char **why)
{
  struct pipeline *p = read_csv(name, csv, why);
  if (!p) return NULL;
  *why = is_lowered(p) ? wrong_moves(p) : NULL;
  for (int r = 0; r < p->ranks; r++) {
    const struct actions all = p->order[r];
    p->order[r] = (struct actions){0}; /* of the actions that compute only */
    for (int i = 0; i < all.n; i++)
      if (all.at[i].kind <= ACTION_OVERLAP) put_action(&p->order[r], all.at[i]);
  }
  if (!*why) *why = wrong_order(p);
  if (*why) *why = text("%s: %s", name, *why);
  return *why ? NULL : p;
}
