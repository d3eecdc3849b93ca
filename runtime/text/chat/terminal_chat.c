// SPDX-License-Identifier: MIT
// A conversation on a terminal.
#include "text/chat/terminal_chat.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/program.h"
#include "text/chat/answer.h"
#include "text/chat/prompts.h"
#include "text/chat/slots.h"

enum { REST = 50, MOST_LINE = 1 << 20 }; // milliseconds; bytes

static struct {
  const struct options *options;
  const struct text_settings *settings;
  const struct tokenizer *tokenizer;
  const struct chat *chat;
  int turn_end;               // a token
  struct turn_of_chat *turns; // their texts are this file's
  size_t count;
  struct bytes input; // read, and not yet taken
  bool at_end;        // of the input
  struct job job;
  struct text_answer text;
  bool ended, failed;
} now;

// ---- the conversation --------------------------------------------------------------------------

static bool add_turn(enum chat_role role, const char *text, size_t count)
{
  struct turn_of_chat *turns = realloc(now.turns, (now.count + 1) * sizeof *turns);
  char *own = turns ? malloc(count + 1) : NULL;
  if (turns) now.turns = turns;
  if (!own) return false;
  if (count > 0) memcpy(own, text, count);
  own[count] = 0;
  now.turns[now.count++] = (struct turn_of_chat){role, own, count};
  return true;
}

static void drop_turns(size_t left)
{
  while (now.count > left) free((char *)now.turns[--now.count].text);
}

static size_t first_turns(void) // those that stay
{
  return now.options->system ? 1 : 0;
}

// ---- an answer ---------------------------------------------------------------------------------

static bool made(struct job *job, const struct slot_work *t)
{
  if (settings_end_at(now.settings, t->token) || t->token == now.turn_end) return true;
  const bool stops = answer_grow(&now.text, job->ids + job->prompt_count,
                                 (size_t)(job->count - job->prompt_count), now.options->stop);
  now.failed |= now.text.failed || !answer_print(&now.text, stdout, stops);
  return stops || now.failed;
}

static void ended(struct job *job)
{
  (void)job;
  now.ended = true;
}

// Answers the conversation, whose tokens these are.
static bool answer(const struct ids *ids, struct failure *why)
{
  static uint32_t number;
  const int context = program->generation->context;
  int *own = calloc((size_t)context, sizeof *own);
  if (!own) return failed(why, "out of memory for an answer");
  memcpy(own, ids->at, ids->count * sizeof *own);
  now.text = (struct text_answer){.tokenizer = now.tokenizer};
  now.ended = false;
  now.job = (struct job){.ids = own,
                         .prompt_count = (int)ids->count,
                         .most = now.settings->most ? now.settings->most : INT_MAX,
                         .how = now.settings->sampling,
                         .number = number++,
                         .made = made,
                         .ended = ended};
  jobs_add(&now.job);
  while (!now.ended && jobs_step()) {
  }
  now.failed |=
      !answer_print(&now.text, stdout, true) || fputc('\n', stdout) == EOF || fflush(stdout) != 0;
  if (now.job.why == AT_CONTEXT)
    fprintf(stderr, "the context of %d tokens is full: /clear begins anew\n", context);
  const bool ok = add_turn(ROLE_ASSISTANT, now.text.whole.at, now.text.whole.count);
  answer_free(&now.text);
  free(own);
  return ok || failed(why, "out of memory for a conversation");
}

// Takes the user's message, and answers it.
static bool reply(const char *text, size_t count, struct failure *why)
{
  struct ids ids = {0};
  struct failure not_taken;
  const size_t before = now.count;
  if (!add_turn(ROLE_USER, text, count)) return failed(why, "out of memory for a conversation");
  json_t *variables = chat_variables(now.turns, now.count);
  bool ok = variables ? conversation_ids(now.chat, now.tokenizer, variables, &ids, &not_taken)
                      : failed(&not_taken, "out of memory for a conversation"),
       fits = ok;
  json_decref(variables);
  if (!ok) {
    fprintf(stderr, "%s\n", not_taken.text);
  } else if (ids.count == 0 || ids.count >= (size_t)program->generation->context) {
    fprintf(
        stderr,
        "the conversation has %zu tokens, and the context is %d: say less, or /clear begins anew\n",
        ids.count, program->generation->context);
    fits = false;
  }
  for (size_t i = 0; fits && i < ids.count; i++)
    if (ids.at[i] >= vocabulary()) {
      free(ids.at);
      return failed(why, "the tokenizer has token %d, and the model knows %ld", ids.at[i],
                    vocabulary());
    }
  if (fits)
    ok = answer(&ids, why);
  else
    drop_turns(before);
  free(ids.at);
  return !fits || ok;
}

// ---- lines -------------------------------------------------------------------------------------

static void ask(void)
{
  if (getenv("TPGEN_TERMINAL") || isatty(STDOUT_FILENO)) fputs("> ", stdout), fflush(stdout);
}

// Reads more of the input; the other ranks sleep meanwhile.
static void wait_for_input(void)
{
  char some[4096];
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  while (poll(&in, 1, REST) == 0) engine_rest(REST);
  const ssize_t n = read(STDIN_FILENO, some, sizeof some);
  if (n > 0)
    add_bytes(&now.input, some, (size_t)n);
  else if (n == 0 || errno != EINTR)
    now.at_end = true;
}

// The next line: its length, at the beginning of the input; -1: there is none.
static ssize_t next_line(void)
{
  for (size_t looked = 0;;) {
    const char *end = now.input.count > looked
                          ? memchr(now.input.at + looked, '\n', now.input.count - looked)
                          : NULL;
    if (end) return end - now.input.at;
    if (now.input.count > MOST_LINE || now.at_end) break;
    looked = now.input.count;
    wait_for_input();
    if (now.input.failed) return -1;
  }
  return now.input.count > 0 ? (ssize_t)now.input.count : -1;
}

static void drop_line(size_t length)
{
  const size_t gone = length < now.input.count ? length + 1 : length;
  now.input.count -= gone;
  memmove(now.input.at, now.input.at + gone, now.input.count);
}

static bool is_line(const char *line, size_t length, const char *text)
{
  return strlen(text) == length && memcmp(line, text, length) == 0;
}

bool talk(const struct options *o, const struct text_settings *settings,
          const struct tokenizer *tokenizer, const struct chat *chat, struct failure *why)
{
  now.options = o;
  now.settings = settings;
  now.tokenizer = tokenizer;
  now.chat = chat;
  now.turn_end = settings_turn_end(tokenizer, chat);
  bool ok = !o->system || add_turn(ROLE_SYSTEM, o->system, strlen(o->system)) ||
            failed(why, "out of memory for a conversation");
  ssize_t length = 0;
  for (ask(); ok && !now.failed && (length = next_line()) >= 0; ask()) {
    size_t count = (size_t)length;
    if (count > 0 && now.input.at[count - 1] == '\r') count--;
    if (is_line(now.input.at, count, "/exit")) break;
    if (is_line(now.input.at, count, "/clear"))
      drop_turns(first_turns());
    else if (count > 0)
      ok = reply(now.input.at, count, why);
    drop_line((size_t)length);
  }
  if (now.input.failed) ok = failed(why, "out of memory for a line");
  drop_turns(0);
  free(now.turns);
  free_bytes(&now.input);
  return ok;
}
