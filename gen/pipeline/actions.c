/* actions.c: the steps of a schedule, and schedules as PyTorch's CSV. */
#include "pipeline/pipeline.h"

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

bool has_microbatch(enum action_kind kind)
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

bool is_lowered(const struct pipeline *p)
{
  for (int r = 0; r < p->ranks; r++)
    for (int k = 0; k < p->order[r].n; k++)
      if (p->order[r].at[k].kind > ACTION_OVERLAP) return true;
  return false;
}

enum action_kind action_kind(const char **at)
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
