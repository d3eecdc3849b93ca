/* actions.c: what the steps of a schedule are, and schedules as PyTorch's CSV, written and read. */
#include "pipeline/pipeline.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ACTION_LETTERS(name, letters) [name] = letters,
static const char *const letters_of[] = {ACTION_KINDS(ACTION_LETTERS)};
#undef ACTION_LETTERS

void put_action(struct actions *list, struct action a)
{
  GROW(list->at, list->n, list->room);
  list->at[list->n++] = a;
}

size_t microbatch_places(const struct pipeline *p)
{
  return (size_t)p->stages * (size_t)p->microbatches;
}

size_t microbatch_place(const struct pipeline *p, int stage, int microbatch)
{
  return (size_t)stage * (size_t)p->microbatches + (size_t)microbatch;
}

int action_parts(const struct action *a, struct action part[ACTION_PARTS])
{
  part[0] = *a;
  if (a->kind != ACTION_OVERLAP) return a->kind != ACTION_IDLE;
  part[0].kind = ACTION_F;
  part[1] =
      (struct action){.kind = ACTION_B, .stage = a->other_stage, .microbatch = a->other_microbatch};
  return 2;
}

static bool has_microbatch(enum action_kind kind)
{
  return kind < ACTION_UNSHARD;
}

char *action_text(const struct action *a)
{
  if (a->kind == ACTION_IDLE) return "";
  if (a->kind == ACTION_OVERLAP)
    return text("(%dF%d;%dB%d)%s", a->stage, a->microbatch, a->other_stage, a->other_microbatch,
                letters_of[a->kind]);
  if (!has_microbatch(a->kind)) return text("%d%s", a->stage, letters_of[a->kind]);
  return text("%d%s%d", a->stage, letters_of[a->kind], a->microbatch);
}

char *pipeline_csv(const struct pipeline *p)
{
  struct buffer b = {0};
  for (int r = 0; r < p->ranks; r++) {
    for (int k = 0; k < p->order[r].n; k++)
      put(&b, "%s%s", k ? "," : "", action_text(&p->order[r].at[k]));
    put(&b, "\n");
  }
  return b.text;
}

/* --------------------------------------------------------------------------------------- reading
 */

/* A place in a file. */
struct place {
  const char *file;
  int row, field; /* from 1 */
};

static _Noreturn void wrong(const struct place *at, const char *what)
{
  usage_error(1, "%s:%d: field %d: %s", at->file, at->row, at->field, what);
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

/* The longest letters that stand there. */
static enum action_kind read_kind(const char **at)
{
  enum action_kind kind = ACTION_IDLE;
  for (int k = ACTION_IDLE + 1; k < ACTION_COUNT; k++) {
    const size_t n = strlen(letters_of[k]);
    if (strncmp(*at, letters_of[k], n) == 0 && n > strlen(letters_of[kind]))
      kind = (enum action_kind)k;
  }
  *at += strlen(letters_of[kind]);
  return kind;
}

/* "2F0", "1UNSHARD"; false: it is none. */
static bool read_simple(const char **at, struct action *a)
{
  a->stage = read_number(at, MAX_STAGES);
  if (a->stage == NONE) return false;
  a->kind = read_kind(at);
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
  a->kind = read_kind(at);
  return a->kind == ACTION_OVERLAP;
}

static struct action read_action(const struct place *at, const char *field)
{
  struct action a = {0};
  const char *end = field;
  if (!*field) return a;
  if (!(*field == '(' ? read_overlap(&end, &a) : read_simple(&end, &a)) || *end)
    wrong(at, text("'%s' is no action: as in 2F0, 1B3, 0SEND_F2, (0F4;7B1)OVERLAP_F_B",
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

/* ------------------------------------------------------------------------------------ whose it is
 */

static void count_stage(struct pipeline *p, int stage, int microbatch)
{
  if (stage >= p->stages) p->stages = stage + 1;
  if (microbatch >= p->microbatches) p->microbatches = microbatch + 1;
}

/* A stage is on the rank that computes its forwards. */
static void place_stages(struct pipeline *p, const char *name)
{
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++) {
      const struct action *a = &p->order[r].at[k];
      if (a->kind == ACTION_IDLE) continue;
      count_stage(p, a->stage, a->microbatch);
      if (a->kind == ACTION_OVERLAP) count_stage(p, a->other_stage, a->other_microbatch);
    }
  if ((int64_t)p->stages * p->microbatches > MAX_ACTIONS)
    usage_error(1, "%s: %d stages with %d micro-batches are more than tpgen takes", name, p->stages,
                p->microbatches);
  p->rank_of = alloc((size_t)p->stages * sizeof *p->rank_of);
  for (int s = 0; s < p->stages; s++) p->rank_of[s] = NONE;
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++) {
      const struct action *a = &p->order[r].at[k];
      if (a->kind == ACTION_F || a->kind == ACTION_OVERLAP) p->rank_of[a->stage] = r;
    }
  for (int s = 0; s < p->stages; s++)
    if (p->rank_of[s] == NONE)
      usage_error(1, "%s: stage %d of %d has no forward", name, s, p->stages);
}

bool is_lowered(const struct pipeline *p)
{
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++)
      if (p->order[r].at[k].kind > ACTION_OVERLAP) return true;
  return false;
}

static FILE *open_schedule(const char *name)
{
  FILE *file = fopen(name, "re");
  if (!file) usage_error(3, "%s: %s", name, strerror(errno));
  return file;
}

struct pipeline *read_pipeline(const char *name)
{
  struct pipeline *p = alloc(sizeof *p);
  struct place at = {.file = name};
  char *line = NULL;
  size_t room = 0;
  int ranks = 0;
  int64_t actions = 0;
  FILE *file = open_schedule(name);
  for (ssize_t n; (n = getline(&line, &room, file)) >= 0;) {
    at.row++;
    if (memchr(line, 0, (size_t)n)) usage_error(1, "%s:%d: this is no text", name, at.row);
    GROW(p->order, p->ranks, ranks);
    p->order[p->ranks] = (struct actions){0};
    read_row(&at, line, &p->order[p->ranks]);
    actions += p->order[p->ranks++].n;
    if (actions > MAX_ACTIONS) usage_error(1, "%s: more than %d actions", name, (int)MAX_ACTIONS);
  }
  if (ferror(file)) usage_error(3, "%s: it cannot be read", name);
  fclose(file);
  free(line);
  if (!p->ranks) usage_error(1, "%s: it has no row; each rank has one", name);
  place_stages(p, name);
  return p;
}
