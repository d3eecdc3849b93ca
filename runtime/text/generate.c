// SPDX-License-Identifier: MIT
// The run of a program that generates: prompts of the command line, and their answers.
#include "text/generate.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"
#include "base/open_input.h"
#include "base/program.h"
#include "text/chat/answer.h"
#include "text/chat/prompts.h"
#include "text/chat/settings.h"
#include "text/chat/slots.h"
#include "text/chat/terminal_chat.h"
#include "text/score.h"
#include "text/server/serve.h"
#include "text/tokenizer/tokenizer.h"

// An answer, as it grows.
struct answer {
  struct job job;
  struct text_answer text;
  json_t *top; // of each token; or NULL
  bool ended;
};

static struct {
  const struct options *options;
  struct tokenizer *tokenizer; // or NULL
  struct chat *chat;           // of --chat; or NULL
  struct text_settings settings;
  struct answer *answer;
  size_t count, written; // answers are written in the order of their prompts
  FILE *to;
  bool streams; // the text of the one answer, as it grows, instead of JSON
  bool failed;  // out of memory, or the output cannot be written
} run;

// ---- answers -----------------------------------------------------------------------------------

static bool made(struct job *job, const struct slot_work *t)
{
  struct answer *a = job->of;
  for (int i = 0; i < job->top && i == 0; i++) {
    json_t *step = json_array();
    for (int k = 0; k < job->top; k++)
      json_array_append_new(step, json_pack("[i,f]", t->best[k].id, (double)t->best[k].logit));
    json_array_append_new(a->top, step);
  }
  if (settings_end_at(&run.settings, t->token)) return true;
  const bool stops = answer_grow(&a->text, job->ids + job->prompt_count,
                                 (size_t)(job->count - job->prompt_count), run.options->stop);
  if (run.streams) run.failed |= !answer_print(&a->text, run.to, stops);
  return stops;
}

static json_t *ids_of(const struct job *job)
{
  json_t *list = json_array();
  for (int i = job->prompt_count; i < job->count; i++)
    json_array_append_new(list, json_integer(job->ids[i]));
  return list;
}

static const char *const reason[] = {[AT_STOP] = "stop",
                                     [AT_LENGTH] = "length",
                                     [AT_CONTEXT] = "context",
                                     [CANCELLED] = "cancelled"};

static void write_answer(struct answer *a)
{
  json_t *object = json_object();
  json_object_set_new(object, "ids", ids_of(&a->job));
  if (run.tokenizer)
    json_object_set_new(
        object, "text",
        json_stringn(a->text.whole.at ? a->text.whole.at : "", a->text.whole.count));
  if (a->top) {
    char name[16];
    snprintf(name, sizeof name, "top%d", a->job.top);
    json_object_set(object, name, a->top);
  }
  json_object_set_new(object, "ended", json_string(reason[a->job.why]));
  char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
  run.failed |=
      json_memory_ended() || !line || fprintf(run.to, "%s\n", line) < 0 || fflush(run.to) != 0;
  free(line);
  json_decref(object);
}

static void ended(struct job *job)
{
  struct answer *a = job->of;
  a->ended = true;
  run.failed |= a->text.failed;
  if (run.streams) {
    run.failed |=
        !answer_print(&a->text, run.to, true) || fputc('\n', run.to) == EOF || fflush(run.to) != 0;
    return;
  }
  while (run.written < run.count && run.answer[run.written].ended) {
    write_answer(&run.answer[run.written]);
    json_decref(run.answer[run.written++].top);
  }
}

// ---- the run -----------------------------------------------------------------------------------

static bool add_jobs(const struct options *o, struct prompts *p, struct failure *why)
{
  run.answer = calloc(p->count + 1, sizeof *run.answer);
  if (!run.answer) return failed(why, "out of memory for answers");
  run.count = p->count;
  for (size_t i = 0; i < p->count; i++) {
    struct answer *a = &run.answer[i];
    a->top = o->top ? json_array() : NULL;
    a->text.tokenizer = run.tokenizer;
    a->job = (struct job){.ids = p->all[i].ids,
                          .prompt_count = p->all[i].count,
                          .most = run.settings.most ? run.settings.most : INT_MAX,
                          .how = run.settings.sampling,
                          .number = (uint32_t)i,
                          .top = o->top,
                          .made = made,
                          .ended = ended,
                          .of = a};
    jobs_add(&a->job);
  }
  return true;
}

static void tell_figures(void)
{
  const struct jobs_figures *f = &jobs_figures;
  double first = 0;
  size_t n = 0;
  for (size_t i = 0; i < run.count; i++)
    if (run.answer[i].job.first_token > 0)
      first += run.answer[i].job.first_token - run.answer[i].job.began, n++;
  if (f->prompt_seconds > 0)
    fprintf(stderr, "prompts: %ld tokens, %.1f tokens a second; ", f->prompt_tokens,
            (double)f->prompt_tokens / f->prompt_seconds);
  if (n > 0) fprintf(stderr, "first token after %.3f s; ", first / (double)n);
  if (f->decode_seconds > 0)
    fprintf(stderr, "then %ld tokens, %.1f tokens a second, %.3f GB/s of weights", f->made_tokens,
            (double)f->made_tokens / f->decode_seconds,
            1e-9 * program->generation->weights_read * (double)f->decode_calls / f->decode_seconds);
  fprintf(stderr, "\n");
}

// Rank 0, before the others follow.
static bool begin(const struct options *o, struct prompts *p, struct failure *why)
{
  const bool looks = o->score || o->check_causal;
  if (!o->prompt && !o->prompts && !o->chat && !o->serve && !looks)
    return failed(
        why,
        "there is nothing to continue: say --prompt TEXT, --prompts FILE, --chat or --serve PORT");
  if (!settings_read(&run.settings, o, why) || !settings_tokenizer(&run.tokenizer, o, why))
    return false;
  if (!jobs_open(why)) return false;
  if ((o->chat || o->serve) && !run.tokenizer)
    return failed(
        why,
        "chats and servers need a tokenizer: --tokenizer FILE, or --weights with a folder that has "
        "tokenizer.json");
  if (o->chat) return settings_chat(&run.chat, o, why);
  if (o->serve || looks) return true;
  if (!prompts_read(p, o, run.tokenizer, why)) return false;
  run.to = o->output ? create_stream(o->output, why) : stdout;
  run.streams = o->prompt && !o->output;
  if (o->stop[0] && !run.tokenizer)
    return failed(why, "--stop needs a tokenizer: --tokenizer FILE");
  return run.to && add_jobs(o, p, why);
}

static bool finish(struct failure *why)
{
  if (run.to && run.to != stdout && fclose(run.to) != 0) run.failed = true;
  return !run.failed ||
         failed(why, "%s: the answers could not be written: %s",
                run.options->output ? run.options->output : "standard output", strerror(errno));
}

bool text_generate(const struct options *o, bool (*all_ranks_ok)(bool, const struct failure *))
{
  struct failure why = {""};
  struct prompts p = {0};
  const bool leads = rank->id == 0;
  run.options = o;
  bool ok = all_ranks_ok(engine_open(&why) && (!leads || begin(o, &p, &why)), &why);
  if (ok && o->serve) serve_signals(leads);
  if (ok && leads) {
    bool done = true;
    if (o->chat) done = talk(o, &run.settings, run.tokenizer, run.chat, &why);
    if (o->serve) done = serve(o, &run.settings, run.tokenizer, &why);
    if (o->score) done = text_score(o, run.tokenizer, &why);
    if (o->check_causal) done = text_check_causal(o, run.tokenizer, &why);
    while (!run.failed && done && jobs_step()) {
    }
    engine_end();
  } else if (ok) {
    engine_follow();
  }
  ok = ok && all_ranks_ok(!leads || (!*why.text && finish(&why)), &why);
  if (ok && leads && !o->check_causal && !o->score) tell_figures();
  if (leads) jobs_close();
  chat_close(run.chat);
  tokenizer_close(run.tokenizer);
  settings_free(&run.settings);
  prompts_free(&p);
  for (size_t k = 0; k < run.count; k++) answer_free(&run.answer[k].text);
  free(run.answer);
  engine_close();
  return ok;
}
