/* reason.c: why a setting has its value: its runner-up. And what would help where nothing fits. */
#include "search/search.h"

#include <math.h>
#include <string.h>

/* How many other settings two candidates have unlike. */
static int unlike(const struct search_space *s, const struct candidate *a,
                  const struct candidate *b)
{
  int n = 0;
  for (int i = 0; i < s->n; i++) n += a->v[i] != b->v[i];
  return n;
}

static const char *value_shown(const struct search_space *s, const struct candidate *c, int setting)
{
  const char *value = value_or_usual(s, c, setting);
  return *value ? text("%s=%s", s->at[setting].name, value) : text("no %s", s->at[setting].name);
}

/* "exposed" or "idle" of the other candidate, if that is what takes the time. */
static char *cause_of(const struct evaluated *best, const struct evaluated *other)
{
  const double more = other->step.seconds - best->step.seconds;
  const double exposed = other->step.exposed - best->step.exposed,
               idle = other->step.idle - best->step.idle;
  if (exposed > more / 2 && exposed >= idle)
    return text(": %s exposed", duration_text(other->step.exposed));
  if (idle > more / 2) return text(": %s idle", duration_text(other->step.idle));
  return "";
}

/* Whether a candidate was evaluated that has another value here, and is else equal to the best. */
static bool has_alone(const struct found *f, int setting)
{
  const struct candidate *best = &f->tried[f->best];
  for (int i = 0; i < f->n; i++)
    if (f->tried[i].v[setting] != best->v[setting] && outcome_at(f->tried[i].tried)->is_there &&
        unlike(f->space, best, &f->tried[i]) == 1)
      return true;
  return false;
}

/* The runner-up of a choice is the same plan with the other choice, if that was evaluated; of other
   settings it is the best plan that has another value. */
char *reason_for(const struct found *f, int setting)
{
  const struct search_space *s = f->space;
  const struct candidate *best = &f->tried[f->best];
  const struct evaluated *chosen = outcome_at(best->tried);
  if (s->at[setting].pinned) return is_on(s, best, setting) ? pinned_by(s) : NULL;
  if (!counts_in(s, best, setting)) return NULL;
  const bool alone = s->at[setting].kind == SEARCH_CHOICE && has_alone(f, setting);
  int second = NONE, too_large = NONE;
  for (int i = 0; i < f->n; i++) {
    const struct evaluated *o = outcome_at(f->tried[i].tried);
    if (f->tried[i].v[setting] == best->v[setting] || !o->is_there) continue;
    if (alone && unlike(s, best, &f->tried[i]) > 1) continue;
    if (candidate_fits(s, o)) {
      const double seconds =
          second == NONE ? INFINITY : outcome_at(f->tried[second].tried)->step.seconds;
      if (o->step.seconds < seconds ||
          (o->step.seconds <= seconds &&
           unlike(s, best, &f->tried[i]) < unlike(s, best, &f->tried[second])))
        second = i;
    } else if (too_large == NONE ||
               o->step.bytes < outcome_at(f->tried[too_large].tried)->step.bytes) {
      too_large = i;
    }
  }
  if (second != NONE) {
    const struct evaluated *o = outcome_at(f->tried[second].tried);
    const double more = 100 * (o->step.seconds / chosen->step.seconds - 1);
    if (more < -0.05)
      return text("%s would take %.2g %% less, and is less simple",
                  value_shown(s, &f->tried[second], setting), -more);
    if (more < 0.05)
      return text("%s would be as quick", value_shown(s, &f->tried[second], setting));
    return text("%s would take %.3g %% more%s", value_shown(s, &f->tried[second], setting), more,
                cause_of(chosen, o));
  }
  if (too_large != NONE) {
    const struct evaluated *o = outcome_at(f->tried[too_large].tried);
    return text("%s does not fit: %s", value_shown(s, &f->tried[too_large], setting),
                size_text(o->step.bytes + o->reserve));
  }
  return is_on(s, best, setting) ? "nothing else was tried" : NULL;
}

static void put_help(struct buffer *b, const char *what, double bytes)
{
  if (bytes >= 1) put(b, "  %s: %s less\n", what, size_text((int64_t)bytes));
}

char *help_to_fit(const struct found *f)
{
  const struct search_space *s = f->space;
  const struct candidate *c = &f->tried[f->closest];
  const struct evaluated *o = outcome_at(c->tried);
  struct buffer b = {0};
  const struct model_figures *m = &o->model;
  const double of_states = m->parameter_memory + m->gradient_memory + m->state_memory;
  put(&b, "%s are lacking. These would help:\n", size_text(o->step.bytes + o->reserve - s->memory));
  const int again = s->of_kind[SEARCH_RECOMPUTE];
  if (again != NONE && s->at[again].pinned)
    put_help(&b, text("%s free to the search, to keep only inputs of layers", s->at[again].name),
             m->activations / 2);
  put_help(&b, text("twice the devices, %d", 2 * s->devices), of_states / 2);
  put_help(&b, "states of the optimizer in bfloat16", m->state_memory / 2);
  const int micro = s->of_kind[SEARCH_MICROBATCHES];
  const int64_t data = ranks_in(s, c, SEARCH_COPIES) * ranks_in(s, c, SEARCH_SHARDS);
  const double samples = (double)s->batch / ((double)data * (double)microbatches_in(s, c));
  if (samples > 1 && micro != NONE && !s->at[micro].pinned)
    put_help(
        &b,
        text("micro-batches of one sample, of a batch that is a multiple of %lld", (long long)data),
        m->activations * (1 - 1 / samples));
  if (s->batch > 1) put_help(&b, "half the batch, or half the sequence", m->activations / 2);
  return b.text;
}
