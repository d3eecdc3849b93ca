// SPDX-License-Identifier: MIT
#include "text/score.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/open_input.h"
#include "base/program.h"
#include "text/chat/prompts.h"
#include "text/chat/slots.h"
#include "text/chat/text_file.h"

// ---- texts -------------------------------------------------------------------------------------

struct given {
  int *ids; // room for the context
  size_t count;
  size_t prompt; // tokens of a prompt, which are not counted
};

struct texts {
  const struct tokenizer *tokenizer;
  struct given *all;
  size_t count;
};

// A prompt with its completion as one text; *prompt is the tokens of the prompt by itself.
static bool encode_pair(const struct texts *to, const json_t *prompt, const json_t *completion,
                        struct ids *ids, size_t *count, const char *where, struct failure *why)
{
  struct bytes text = {0};
  struct ids before = {0};
  add_bytes(&text, json_string_value(prompt), json_string_length(prompt));
  bool ok = text_ids(to->tokenizer, text.at ? text.at : "", text.count, &before, where, why);
  add_bytes(&text, json_string_value(completion), json_string_length(completion));
  ok = ok && text_ids(to->tokenizer, text.at ? text.at : "", text.count, ids, where, why);
  *count = before.count < ids->count ? before.count : ids->count;
  if (ok && text.failed) ok = failed(why, "out of memory for texts");
  free(before.at);
  free_bytes(&text);
  return ok;
}

static bool encode_object(const struct texts *to, const json_t *object, struct ids *ids,
                          size_t *prompt, const char *where, struct failure *why)
{
  const json_t *text = json_object_get(object, "text"), *list = json_object_get(object, "ids"),
               *first = json_object_get(object, "prompt"),
               *rest = json_object_get(object, "completion");
  if (json_is_array(list)) return listed_ids(list, ids, where, why);
  if (json_is_string(text))
    return text_ids(to->tokenizer, json_string_value(text), json_string_length(text), ids, where,
                    why);
  if (json_is_string(first) && json_is_string(rest))
    return encode_pair(to, first, rest, ids, prompt, where, why);
  return failed(why,
                "%s: a line is a text, or {\"text\"}, {\"ids\"}, or {\"prompt\", \"completion\"}",
                where);
}

static bool add_given(struct texts *to, const struct ids *ids, size_t prompt, const char *where,
                      struct failure *why)
{
  const size_t context = (size_t)program->generation->context;
  if (ids->failed) return failed(why, "out of memory for texts");
  if (ids->count < 2)
    return failed(why, "%s: a text of %zu tokens has none to look at", where, ids->count);
  if (ids->count > context)
    return failed(why, "%s: the text has %zu tokens, and the context is %zu", where, ids->count,
                  context);
  if (!ids_are_known(ids, where, why)) return false;
  struct given *all = realloc(to->all, (to->count + 1) * sizeof *all);
  int *own = calloc(context + 1, sizeof *own);
  if (all) to->all = all;
  if (!all || !own) {
    free(own);
    return failed(why, "out of memory for texts");
  }
  memcpy(own, ids->at, ids->count * sizeof *own);
  to->all[to->count++] = (struct given){own, ids->count, prompt};
  return true;
}

static bool take_line(void *of, const char *line, size_t length, const char *where,
                      struct failure *why)
{
  struct texts *to = of;
  struct ids ids = {0};
  size_t prompt = 0;
  json_error_t error;
  json_t *object = line[0] == '{'
                       ? json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error)
                       : NULL;
  bool ok;
  if (line[0] != '{')
    ok = text_ids(to->tokenizer, line, length, &ids, where, why);
  else
    ok = object ? encode_object(to, object, &ids, &prompt, where, why)
                : failed(why, "%s: not JSON: %s", where, error.text);
  ok = ok && add_given(to, &ids, prompt, where, why);
  json_decref(object);
  free(ids.at);
  return ok;
}

static bool read_texts(struct texts *to, const char *path, struct failure *why)
{
  return each_line(path, take_line, to, why) &&
         (to->count > 0 || failed(why, "%s: it has no texts", path));
}

static void free_texts(struct texts *t)
{
  for (size_t i = 0; i < t->count; i++) free(t->all[i].ids);
  free(t->all);
}

// ---- scores ------------------------------------------------------------------------------------

struct scored {
  struct job job;
  const struct given *of;
  json_t *each; // of each token behind the first
  double sum;
  bool best; // each counted token is the best one
  bool ended;
};

static struct {
  struct scored *all;
  size_t count, written;
  FILE *to;
  bool failed;
} scores;

static bool took(struct job *job, const struct slot_work *t)
{
  struct scored *s = job->of;
  const size_t at = json_array_size(s->each) + 1;
  scores.failed |= json_array_append_new(s->each, json_real(t->log_probability)) != 0;
  if (at < s->of->prompt) return false;
  s->sum += t->log_probability;
  s->best &= t->best && t->best[0].id == t->token;
  return false;
}

static bool write_scores(struct scored *s)
{
  json_t *ids = json_array();
  for (size_t i = 0; i < s->of->count; i++) json_array_append_new(ids, json_integer(s->of->ids[i]));
  json_t *line = json_pack("{s:o, s:O, s:f, s:b, s:I}", "ids", ids, "log_probabilities", s->each,
                           "log_likelihood", s->sum, "is_greedy", s->best, "tokens",
                           (json_int_t)(s->of->count - (s->of->prompt > 0 ? s->of->prompt : 1)));
  char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  const bool ok = !json_memory_ended() && text && fprintf(scores.to, "%s\n", text) >= 0;
  free(text);
  json_decref(line);
  return ok;
}

// Lines are in the order of the texts.
static void ended(struct job *job)
{
  struct scored *s = job->of;
  job->of = NULL;
  s->ended = true;
  while (scores.written < scores.count && scores.all[scores.written].ended)
    scores.failed |= !write_scores(&scores.all[scores.written++]);
}

static bool score(const struct texts *texts, const struct options *o, struct failure *why)
{
  scores.all = calloc(texts->count, sizeof *scores.all);
  scores.count = texts->count;
  scores.to = o->output ? create_stream(o->output, why) : stdout;
  if (!scores.all || !scores.to)
    return scores.all ? false : failed(why, "out of memory for %zu texts", texts->count);
  for (size_t i = 0; i < texts->count; i++) {
    struct scored *s = &scores.all[i];
    const struct given *g = &texts->all[i];
    *s = (struct scored){.of = g, .each = json_array(), .best = true};
    json_array_append_new(s->each, json_null()); // nothing is ahead of the first token
    s->job = (struct job){.ids = g->ids,
                          .prompt_count = (int)g->count,
                          .number = (uint32_t)i,
                          .how = {.top_p = 1, .penalty = 1},
                          .top = 1,
                          .scores = true,
                          .scores_known = true,
                          .made = took,
                          .ended = ended,
                          .of = s};
    jobs_add(&s->job);
  }
  while (!scores.failed && jobs_step()) {
  }
  const bool closed = (scores.to == stdout ? fflush(stdout) : fclose(scores.to)) == 0;
  return (!scores.failed && closed) ||
         failed(why, "the scores could not be written: %s", strerror(errno));
}

bool text_score(const struct options *o, const struct tokenizer *tokenizer, struct failure *why)
{
  struct texts texts = {.tokenizer = tokenizer};
  const bool ok = read_texts(&texts, o->score, why) && score(&texts, o, why);
  for (size_t i = 0; scores.all && i < scores.count; i++) json_decref(scores.all[i].each);
  free(scores.all);
  free_texts(&texts);
  return ok;
}

// ---- calls of several sizes --------------------------------------------------------------------

// The best candidates behind each token of a text, MOST_TOP of each; those of calls that nobody
// asks for are not there.
struct run_of_text {
  struct candidate *best;
  bool *has;
};

static void run_in_pieces(const struct given *g, int piece, struct run_of_text *to)
{
  for (int start = 0; start < (int)g->count;) {
    const int left = (int)g->count - start, count = left < piece ? left : piece;
    const size_t last = (size_t)(start + count - 1);
    struct slot_work work = {.start = start,
                             .ids = g->ids + start,
                             .count = count,
                             .asks = true,
                             .known = 0,
                             .how = {.top_p = 1, .penalty = 1},
                             .top = MOST_TOP,
                             .best = to->best + last * MOST_TOP};
    engine_run(&work, 1);
    to->has[last] = true;
    start += count;
  }
}

// How far two runs are apart: the largest difference of a logit that both have.
static double apart(const struct given *g, const struct run_of_text *a, const struct run_of_text *b)
{
  double most = 0;
  for (size_t i = 0; i < g->count; i++) {
    if (!a->has[i] || !b->has[i]) continue;
    const struct candidate *x = a->best + i * MOST_TOP, *y = b->best + i * MOST_TOP;
    bool both = false;
    for (int k = 0; k < MOST_TOP; k++)
      for (int n = 0; n < MOST_TOP; n++) {
        if (x[k].id != y[n].id) continue;
        both = true;
        most = fmax(most, fabs((double)x[k].logit - (double)y[n].logit));
        break;
      }
    if (!both) return INFINITY;
  }
  return most;
}

static bool make_run(struct run_of_text *r, size_t tokens)
{
  r->best = calloc(tokens * MOST_TOP, sizeof *r->best);
  r->has = calloc(tokens, sizeof *r->has);
  return r->best && r->has;
}

// A text in calls of prefill, in pieces of odd sizes, and token by token, all behind one another.
static bool check_text(const struct given *g, size_t number, double *most, struct failure *why)
{
  static const int SIZES[] = {0, 3, 5, 7, 13}; // 0: as large as a call may be
  struct run_of_text one = {0}, many = {0};
  const int chunk = program->generation->chunk;
  bool ok = make_run(&one, g->count) || failed(why, "out of memory for a text");
  if (ok) run_in_pieces(g, 1, &one);
  for (size_t i = 0; ok && i < sizeof SIZES / sizeof *SIZES; i++) {
    const int piece = SIZES[i] ? SIZES[i] : chunk;
    if (piece > chunk || (i > 0 && (size_t)piece >= g->count)) continue;
    ok = make_run(&many, g->count) || failed(why, "out of memory for a text");
    if (ok) run_in_pieces(g, piece, &many);
    const double far = ok ? apart(g, &one, &many) : 0;
    if (ok)
      printf(
          "text %zu, %zu tokens: in pieces of %d and token by token: logits at most %.1e apart\n",
          number + 1, g->count, piece, far);
    *most = fmax(*most, far);
    free(many.best);
    free(many.has);
    many = (struct run_of_text){0};
  }
  free(one.best);
  free(one.has);
  return ok;
}

bool text_check_causal(const struct options *o, const struct tokenizer *tokenizer,
                       struct failure *why)
{
  static const double WITHIN = 1e-2; // rounding is far below it, another order of tokens far above
  struct texts texts = {.tokenizer = tokenizer};
  double most = 0;
  bool ok = read_texts(&texts, o->check_causal, why);
  for (size_t i = 0; ok && i < texts.count; i++) ok = check_text(&texts.all[i], i, &most, why);
  free_texts(&texts);
  if (ok) printf("all texts: logits at most %.1e apart\n", most);
  return ok &&
         (most <= WITHIN ||
          failed(why, "the logits are %.1e apart: calls of different sizes compute other numbers",
                 most));
}
