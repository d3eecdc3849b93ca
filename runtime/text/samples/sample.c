// SPDX-License-Identifier: MIT
#include "text/samples/sample.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/json_memory.h"

static bool out_of_memory(struct failure *why)
{
  return failed(why, "out of memory for a sample");
}

// ---- from places in the text to tokens ---------------------------------------------------------

static size_t common(const struct ids *a, const struct ids *b)
{
  size_t n = 0;
  while (n < a->count && n < b->count && a->at[n] == b->at[n]) n++;
  return n;
}

// The tokens before byte `at` of a text with these ids. *whole: it is an edge between two tokens.
static bool tokens_before(const struct sampling_rules *by, const struct bytes *text, size_t at,
                          bool special, const struct ids *ids, size_t *count, bool *whole,
                          struct failure *why)
{
  struct ids before = {0};
  const bool ok = tokenizer_encode(by->tokenizer, text->at, at, special, &before, why);
  *count = ok ? common(&before, ids) : 0;
  *whole = *count == before.count;
  free(before.at);
  return ok;
}

// The tokens of bytes begin .. end - 1 are learned, with those that are only partly in them.
static bool learn(const struct sampling_rules *by, const struct bytes *text, size_t begin,
                  size_t end, struct sample *to, struct failure *why)
{
  size_t first, last;
  bool whole;
  if (!tokens_before(by, text, begin, false, &to->ids, &first, &whole, why) ||
      !tokens_before(by, text, end, false, &to->ids, &last, &whole, why))
    return false;
  if (!whole && last < to->ids.count) last++;
  for (size_t i = first; i < last; i++) to->learned[i] = true;
  return true;
}

static bool encode(const struct sampling_rules *by, const struct bytes *text, bool special,
                   struct sample *to, struct failure *why)
{
  if (!tokenizer_encode(by->tokenizer, text->at ? text->at : "", text->count, special, &to->ids,
                        why))
    return false;
  to->learned = calloc(to->ids.count + 1, sizeof *to->learned);
  return to->learned || out_of_memory(why);
}

// ---- conversations -----------------------------------------------------------------------------

// The text of the first n messages, with the prompt of an answer or without.
static bool render_first(const struct sampling_rules *by, const json_t *variables, size_t n,
                         bool prompts, struct bytes *text, struct spans *answers,
                         struct failure *why)
{
  json_t *all = json_copy((json_t *)variables), *messages = json_array();
  bool ok = all && messages;
  for (size_t i = 0; ok && i < n; i++)
    ok =
        json_array_append(messages, json_array_get(json_object_get(variables, "messages"), i)) == 0;
  ok = ok && json_object_set(all, "messages", messages) == 0 &&
       json_object_set_new(all, "add_generation_prompt", json_boolean(prompts)) == 0;
  ok = ok ? chat_render(by->chat, all, NULL, text, answers, why) : out_of_memory(why);
  json_decref(messages);
  json_decref(all);
  return ok;
}

static bool begins_with(const struct bytes *text, const struct bytes *with)
{
  return with->count <= text->count && memcmp(text->at, with->at, with->count) == 0;
}

// The end of the answer that begins at byte `from`: behind the mark of a turn's end, within the
// first `most` bytes.
static size_t end_of_turn(const struct sampling_rules *by, const struct bytes *text, size_t from,
                          size_t most)
{
  const size_t length = strlen(by->turn_end);
  const char *at = length ? memmem(text->at + from, most - from, by->turn_end, length) : NULL;
  return at ? (size_t)(at - text->at) + length : most;
}

static size_t common_bytes(const struct bytes *a, const struct bytes *b)
{
  size_t n = 0;
  while (n < a->count && n < b->count && a->at[n] == b->at[n]) n++;
  return n;
}

// Where the answer begins that is message i: behind the prompt of an answer, or behind what the
// text has of it, as a prompt may begin a thought that the answer does not have. False, and why.
static bool find_answer(const struct sampling_rules *by, const json_t *variables, size_t i,
                        const struct bytes *text, size_t *begin, struct failure *why)
{
  struct bytes asked = {0}, before = {0};
  struct failure unused;
  if (!render_first(by, variables, i, true, &asked, NULL, why)) return false;
  *begin = common_bytes(text, &asked);
  bool ok = *begin == asked.count;
  if (!ok && (i == 0 || render_first(by, variables, i, false, &before, NULL, &unused)))
    ok = begins_with(text, &before) && *begin >= before.count;
  free_bytes(&asked);
  free_bytes(&before);
  return ok ||
         failed(why,
                "ahead of message %zu, an answer, the template makes another text where it is "
                "asked for the answer: say --learn all",
                i);
}

// Learns the answer that is message i.
static bool learn_answer(const struct sampling_rules *by, const json_t *variables, size_t i,
                         const struct bytes *text, struct sample *to, struct failure *why)
{
  struct bytes with = {0};
  struct failure unused;
  size_t begin, most = text->count;
  if (!find_answer(by, variables, i, text, &begin, why)) return false;
  // What follows the answer is no part of it, where the template shows how far it goes.
  if (render_first(by, variables, i + 1, false, &with, NULL, &unused) && begins_with(text, &with) &&
      with.count >= begin)
    most = with.count;
  free_bytes(&with);
  return learn(by, text, begin, end_of_turn(by, text, begin, most), to, why);
}

static bool is_answer(const json_t *message)
{
  const char *role = json_string_value(json_object_get(message, "role"));
  return role && strcmp(role, "assistant") == 0;
}

static bool of_messages(const struct sampling_rules *by, const json_t *variables, struct sample *to,
                        struct failure *why)
{
  const json_t *messages = json_object_get(variables, "messages");
  struct bytes text = {0};
  struct spans answers = {0};
  bool ok = render_first(by, variables, json_array_size(messages), false, &text, &answers, why) &&
            encode(by, &text, false, to, why);
  if (ok && by->learns_all) memset(to->learned, true, to->ids.count);
  for (size_t i = 0; ok && !by->learns_all && i < answers.count; i++)
    ok = learn(by, &text, answers.at[i].begin, answers.at[i].end, to, why);
  for (size_t i = 0; ok && !by->learns_all && !answers.count && i < json_array_size(messages); i++)
    if (is_answer(json_array_get(messages, i))) ok = learn_answer(by, variables, i, &text, to, why);
  free(answers.at);
  free_bytes(&text);
  return ok;
}

// ---- prompts with completions, and texts -------------------------------------------------------

static bool of_two_lists(const struct sampling_rules *by, const json_t *object, struct sample *to,
                         struct failure *why)
{
  const json_t *prompt = json_object_get(object, "prompt");
  json_t *variables = json_copy((json_t *)object), *messages = json_copy((json_t *)prompt);
  struct bytes text = {0}, before = {0};
  bool ok = variables && messages &&
            json_array_extend(messages, json_object_get(object, "completion")) == 0 &&
            json_object_set(variables, "messages", messages) == 0 &&
            json_object_del(variables, "prompt") == 0 &&
            json_object_del(variables, "completion") == 0;
  ok = ok ? render_first(by, variables, json_array_size(messages), false, &text, NULL, why) &&
                render_first(by, variables, json_array_size(prompt), true, &before, NULL, why) &&
                encode(by, &text, false, to, why)
          : out_of_memory(why);
  if (ok && !begins_with(&text, &before))
    ok = failed(why,
                "the template makes another text of the prompt, where it is asked for the answer");
  ok = ok && learn(by, &text, by->learns_all ? 0 : before.count, text.count, to, why);
  json_decref(messages);
  json_decref(variables);
  free_bytes(&text);
  free_bytes(&before);
  return ok;
}

// Learns a text behind its first `prompt` bytes. It gets the token that ends texts.
static bool of_text(const struct sampling_rules *by, struct bytes *text, size_t prompt,
                    struct sample *to, struct failure *why)
{
  const size_t length = strlen(by->end);
  size_t first = 0;
  bool whole;
  if (length && (text->count < length || memcmp(text->at + text->count - length, by->end, length)))
    add_bytes(text, by->end, length);
  if (text->failed) return out_of_memory(why);
  if (!encode(by, text, true, to, why)) return false;
  if (prompt > 0 && !by->learns_all &&
      !tokens_before(by, text, prompt, true, &to->ids, &first, &whole, why))
    return false;
  for (size_t i = first; i < to->ids.count; i++) to->learned[i] = true;
  return true;
}

static void add_string(struct bytes *to, const json_t *text)
{
  add_bytes(to, json_string_value(text), json_string_length(text));
}

static bool of_object(const struct sampling_rules *by, const json_t *object, struct sample *to,
                      struct failure *why)
{
  const json_t *prompt = json_object_get(object, "prompt"),
               *completion = json_object_get(object, "completion"),
               *text = json_object_get(object, "text"),
               *messages = json_object_get(object, "messages");
  const bool lists = json_is_array(prompt) && json_is_array(completion);
  struct bytes all = {0};
  size_t of_prompt = 0;
  if ((json_is_array(messages) || lists) && !by->chat)
    return failed(why, "a conversation needs a chat template, in tokenizer_config.json or "
                       "chat_template.jinja beside the tokenizer");
  if (json_is_array(messages)) return of_messages(by, object, to, why);
  if (lists) return of_two_lists(by, object, to, why);
  if (json_is_string(prompt) && json_is_string(completion)) {
    add_string(&all, prompt);
    of_prompt = all.count;
    add_string(&all, completion);
  } else if (json_is_string(text)) {
    add_string(&all, text);
  } else {
    return failed(why,
                  "it has no \"messages\", no \"prompt\" with \"completion\", and no \"text\"");
  }
  const bool ok = of_text(by, &all, of_prompt, to, why);
  free_bytes(&all);
  return ok;
}

// The line with one of its answers, as a prompt with its completion or a text. NULL: out of memory.
static json_t *with_answer(const json_t *object, const json_t *answer, size_t common)
{
  const json_t *prompt = json_object_get(object, "prompt");
  json_t *one = json_copy((json_t *)object), *first = NULL, *rest = NULL;
  bool ok = one && json_object_del(one, "chosen") == 0 && json_object_del(one, "rejected") == 0;
  const bool has_prompt = prompt && json_is_array(prompt) == json_is_array(answer);
  if (ok && prompt && !has_prompt) ok = json_object_del(one, "prompt") == 0;
  if (ok && (has_prompt || common == 0)) {
    ok = json_object_set(one, has_prompt ? "completion" : "text", (json_t *)answer) == 0;
  } else if (ok && json_is_string(answer)) {
    const char *text = json_string_value(answer);
    first = json_stringn_nocheck(text, common);
    rest = json_stringn_nocheck(text + common, json_string_length(answer) - common);
    ok = first && rest && json_object_set(one, "prompt", first) == 0 &&
         json_object_set(one, "completion", rest) == 0;
  } else if (ok) {
    first = json_array();
    rest = json_array();
    ok = first && rest;
    for (size_t i = 0; ok && i < json_array_size(answer); i++)
      ok = json_array_append(i < common ? first : rest, json_array_get(answer, i)) == 0;
    ok = ok && json_object_set(one, "prompt", first) == 0 &&
         json_object_set(one, "completion", rest) == 0;
  }
  json_decref(first);
  json_decref(rest);
  if (ok) return one;
  json_decref(one);
  return NULL;
}

// What two answers begin with, where the line says no prompt of their kind: so many messages, or
// bytes of whole letters, without a blank at their end. Something is left of both.
static size_t common_of(const json_t *a, const json_t *b)
{
  size_t common = 0;
  if (json_is_array(a)) {
    while (common + 1 < json_array_size(a) && common + 1 < json_array_size(b) &&
           json_equal(json_array_get(a, common), json_array_get(b, common)))
      common++;
    return common;
  }
  const char *text = json_string_value(a), *other = json_string_value(b);
  while (common + 1 < json_string_length(a) && common + 1 < json_string_length(b) &&
         text[common] == other[common])
    common++;
  while (common > 0 && (text[common] & 0xc0) == 0x80) common--;
  return common > 0 && text[common - 1] == ' ' ? common - 1 : common;
}

static bool of_pair(const struct sampling_rules *by, const json_t *object, struct sample to[2],
                    struct failure *why)
{
  const json_t *answers[] = {json_object_get(object, "chosen"),
                             json_object_get(object, "rejected")};
  const bool lists = json_is_array(answers[0]) && json_is_array(answers[1]);
  if (!lists && !(json_is_string(answers[0]) && json_is_string(answers[1])))
    return failed(why,
                  "it has no \"chosen\" with \"rejected\", two texts or two lists of messages");
  const json_t *prompt = json_object_get(object, "prompt");
  const size_t common = common_of(answers[0], answers[1]);
  if (json_is_array(prompt) && !lists)
    return failed(why, "its \"prompt\" is a list of messages, and its answers are texts");
  if (lists && !json_is_array(prompt) && common == 0)
    return failed(why, "its answers begin with unlike messages, so that they have no prompt");
  bool ok = true;
  for (int i = 0; ok && i < 2; i++) {
    json_t *one = with_answer(object, answers[i], common);
    ok = one ? of_object(by, one, &to[i], why) : out_of_memory(why);
    json_decref(one);
  }
  return ok;
}

static bool of_rated(const struct sampling_rules *by, const json_t *object, struct sample *to,
                     bool *is_good, struct failure *why)
{
  const json_t *label = json_object_get(object, "label");
  const bool is_number =
      json_is_integer(label) && (json_integer_value(label) == 0 || json_integer_value(label) == 1);
  if (!json_object_get(object, "prompt") || !json_object_get(object, "completion") ||
      !(json_is_boolean(label) || is_number))
    return failed(why, "it has no \"prompt\" with \"completion\" and \"label\", true or false");
  if (by->learns_all) return failed(why, "--learn all: a rated answer is learned, and no prompt");
  *is_good = json_is_true(label) || (is_number && json_integer_value(label) == 1);
  return of_object(by, object, to, why);
}

// Reads the line and calls one of the three: rating is of that for rated ones, else NULL.
static bool of_line(const struct sampling_rules *by, const char *line, size_t length,
                    const char *where, struct sample *to, bool is_pair, bool *rating,
                    struct failure *why)
{
  json_error_t error;
  struct failure reason = {""};
  json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  bool ok;
  if (json_memory_ended())
    ok = out_of_memory(why);
  else if (!json_is_object(object))
    ok = failed(why, "%s: %s%s", where,
                object ? "it is no JSON object" : "not JSON: ", object ? "" : error.text);
  else
    ok = (rating    ? of_rated(by, object, to, rating, &reason)
          : is_pair ? of_pair(by, object, to, &reason)
                    : of_object(by, object, to, &reason)) ||
         failed(why, "%s: %s", where, reason.text);
  json_decref(object);
  return ok;
}

bool sample_of_line(const struct sampling_rules *by, const char *line, size_t length,
                    const char *where, struct sample *to, struct failure *why)
{
  *to = (struct sample){0};
  return of_line(by, line, length, where, to, false, NULL, why);
}

bool pair_of_line(const struct sampling_rules *by, const char *line, size_t length,
                  const char *where, struct sample to[2], struct failure *why)
{
  to[0] = to[1] = (struct sample){0};
  return of_line(by, line, length, where, to, true, NULL, why);
}

bool rated_of_line(const struct sampling_rules *by, const char *line, size_t length,
                   const char *where, struct sample *to, bool *is_good, struct failure *why)
{
  *to = (struct sample){0};
  return of_line(by, line, length, where, to, false, is_good, why);
}

void sample_free(struct sample *s)
{
  free(s->ids.at);
  free(s->learned);
  *s = (struct sample){0};
}
