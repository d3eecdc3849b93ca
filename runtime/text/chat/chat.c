// SPDX-License-Identifier: MIT
// The text of a conversation.
#include "text/chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// In texts of a form: the tokens that begin and end a sequence, and the date.
#define BOS  "\x01"
#define EOS  "\x02"
#define DATE "\x03"

// How a family writes a conversation.
struct form {
  const char *needs[4]; // parts of its template, with ' for " and ends of lines for \n
  const char *begins;   // once
  const char *system[2], *user[2], *assistant[2]; // around the turn's text
  const char *asks;                               // for the next answer
  const char *end;                                // the token that ends an answer
  enum { OWN_TURN, ALWAYS, FIRST_USER, LAST_USER, NOWHERE } system_goes;
  enum { AS_IS, STRIPPED, ANSWERS_STRIPPED, WHOLE_STRIPPED } strip;
  bool alternates;      // user and assistant, else it is refused
  bool has_default;     // system text, in the template
  bool leaves_thoughts; // of answers
};

#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define IM(role)     "<|im_start|>" role "\n"

// The first whose parts are all there counts.
static const struct form forms[] = {
    {.needs = {"<|start_header_id|>", "Cutting Knowledge Date: December 2023"},
     .begins = BOS,
     .system = {HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: " DATE "\n\n",
                "<|eot_id|>"},
     .user = {HEADER("user"), "<|eot_id|>"},
     .assistant = {HEADER("assistant"), "<|eot_id|>"},
     .asks = HEADER("assistant"),
     .end = "<|eot_id|>",
     .system_goes = ALWAYS,
     .strip = STRIPPED},
    {.needs = {"<|start_header_id|>", "<|eot_id|>", "message['content'] | trim"},
     .begins = BOS,
     .system = {HEADER("system"), "<|eot_id|>"},
     .user = {HEADER("user"), "<|eot_id|>"},
     .assistant = {HEADER("assistant"), "<|eot_id|>"},
     .asks = HEADER("assistant"),
     .end = "<|eot_id|>",
     .strip = STRIPPED},
    {.needs = {"<|im_start|>", "<|im_end|>"},
     .begins = "",
     .system = {IM("system"), "<|im_end|>\n"},
     .user = {IM("user"), "<|im_end|>\n"},
     .assistant = {IM("assistant"), "<|im_end|>\n"},
     .asks = IM("assistant"),
     .end = "<|im_end|>",
     .has_default = true},
    {.needs = {"<<SYS>>\n", "bos_token + '[INST] ' + content.strip() + ' [/INST]'"},
     .begins = "",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {BOS "[INST] ", " [/INST]"},
     .assistant = {" ", " " EOS},
     .asks = "",
     .system_goes = FIRST_USER,
     .strip = WHOLE_STRIPPED,
     .alternates = true},
    {.needs = {"' [INST] ' + message['content'] + ' [/INST]'",
               "' ' + message['content'] + eos_token"},
     .begins = BOS,
     .system = {"", "\n\n"},
     .user = {" [INST] ", " [/INST]"},
     .assistant = {" ", EOS},
     .asks = "",
     .system_goes = FIRST_USER,
     .alternates = true},
    {.needs = {"'[INST] ' + message['content'] + ' [/INST]'",
               "message['content'] + eos_token + ' '"},
     .begins = BOS,
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", EOS " "},
     .asks = "",
     .system_goes = NOWHERE,
     .alternates = true},
    {.needs = {"'[INST] ' + message['content'] + ' [/INST]'", "{ message['content'] + eos_token"},
     .begins = BOS,
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", EOS},
     .asks = "",
     .system_goes = NOWHERE,
     .alternates = true},
    {.needs = {"'[INST] ' + message['content'] + '[/INST]'",
               "' ' + message['content']|trim + eos_token"},
     .begins = BOS,
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", EOS},
     .asks = "",
     .system_goes = LAST_USER,
     .strip = ANSWERS_STRIPPED,
     .alternates = true},
    {.needs = {"'[INST]' + message['content'] + '[/INST]'", "{- message['content'] + eos_token"},
     .begins = BOS,
     .system = {"", "\n\n"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", EOS},
     .asks = "",
     .system_goes = LAST_USER,
     .alternates = true},
    {.needs = {"<start_of_turn>", "<end_of_turn>", "first_user_prefix",
               "message['content'] | trim"},
     .begins = BOS,
     .system = {"", "\n\n"},
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .asks = "<start_of_turn>model\n",
     .end = "<end_of_turn>",
     .system_goes = FIRST_USER,
     .strip = STRIPPED,
     .alternates = true},
    {.needs = {"<start_of_turn>", "<end_of_turn>", "message['content'] | trim"},
     .begins = BOS,
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .asks = "<start_of_turn>model\n",
     .end = "<end_of_turn>",
     .system_goes = NOWHERE,
     .strip = STRIPPED,
     .alternates = true},
    {.needs = {"'<|user|>\n' + message['content'] + eos_token }}\n",
               "'<|system|>\n' + message['content'] + eos_token }}\n"},
     .begins = "",
     .system = {"<|system|>\n", EOS "\n"},
     .user = {"<|user|>\n", EOS "\n"},
     .assistant = {"<|assistant|>\n", EOS "\n"},
     .asks = "<|assistant|>\n"},
    {.needs = {"'<|user|>\n' + message['content'] + '<|end|>\n'",
               "'<|system|>\n' + message['content'] + '<|end|>\n'"},
     .begins = "",
     .system = {"<|system|>\n", "<|end|>\n"},
     .user = {"<|user|>\n", "<|end|>\n"},
     .assistant = {"<|assistant|>\n", "<|end|>\n"},
     .asks = "<|assistant|>\n",
     .end = "<|end|>"},
};
static const struct form raw_form = {
    .begins = "", .system = {"", "\n"}, .user = {"", "\n"}, .assistant = {"", "\n"}, .asks = ""};

struct chat {
  struct form form;
  char *bos, *eos, *otherwise; // the template's own system text, or NULL
  bool dates;                  // the day's date, not the template's
  bool raw;
};

// ---- recognising -------------------------------------------------------------------------------

// The template with ' for " and ends of lines for \n, so that they are written in one way.
static char *plain_spelling(const char *text)
{
  char *plain = malloc(strlen(text) + 1), *to = plain;
  for (const char *c = text; plain && *c; c++) {
    *to++ = (char)(*c == '"' ? '\'' : c[0] == '\\' && c[1] == 'n' ? '\n' : *c);
    c += c[0] == '\\' && c[1] == 'n';
  }
  if (plain) *to = 0;
  return plain;
}

static const struct form *form_of(const char *plain)
{
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    bool fits = true;
    for (int k = 0; k < 4 && forms[i].needs[k]; k++)
      fits &= strstr(plain, forms[i].needs[k]) != NULL;
    if (fits) return &forms[i];
  }
  return NULL;
}

// "<|im_start|>system\nYou are a helpful assistant.<|im_end|>": the text itself.
static char *default_system(const char *plain, const struct form *f)
{
  for (const char *at = plain; (at = strstr(at, f->system[0])); at++) {
    const char *text = at + strlen(f->system[0]), *end = strstr(text, "<|im_end|>");
    if (end && end > text && strcspn(text, "'{}") > (size_t)(end - text))
      return strndup(text, (size_t)(end - text));
  }
  return NULL;
}

struct chat *chat_of(const char *text, const char *bos, const char *eos, struct failure *why)
{
  char *plain = plain_spelling(text);
  const struct form *form = plain ? form_of(plain) : NULL;
  struct chat *c = form ? calloc(1, sizeof *c) : NULL;
  if (c) {
    c->form = *form;
    c->dates = strstr(plain, "strftime_now") != NULL;
    c->bos = strdup(bos);
    c->eos = strdup(eos);
    if (form->has_default) {
      c->otherwise = default_system(plain, form);
      c->form.leaves_thoughts = strstr(plain, "</think>") != NULL;
      if (strstr(plain, "bos_token")) c->form.begins = BOS;
      if (strstr(plain, "message['content'] | trim")) c->form.strip = STRIPPED;
    }
  }
  if (plain && !form)
    failed(
        why,
        "the chat template is of no family that is known here (Llama 2 and 3, ChatML as in Qwen, "
        "Mistral, Gemma, Zephyr, Phi 3): with --raw the turns' texts are lines without a template");
  else if (!c || !c->bos || !c->eos)
    failed(why, "out of memory for the chat template");
  free(plain);
  if (c && c->bos && c->eos) return c;
  chat_close(c);
  return NULL;
}

struct chat *chat_raw(void)
{
  struct chat *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  *c = (struct chat){.form = raw_form, .bos = strdup(""), .eos = strdup(""), .raw = true};
  if (c->bos && c->eos) return c;
  chat_close(c);
  return NULL;
}

void chat_close(struct chat *c)
{
  if (!c) return;
  free(c->bos);
  free(c->eos);
  free(c->otherwise);
  free(c);
}

const char *chat_end(const struct chat *c)
{
  return c->form.end;
}

bool chat_is_special(const struct chat *c)
{
  return !c->raw;
}

// ---- writing -----------------------------------------------------------------------------------

// Adds a text of a form.
static void add_form(const struct chat *c, const char *text, const char *date, struct bytes *to)
{
  for (; text && *text; text++) {
    const char *of = *text == *BOS ? c->bos : *text == *EOS ? c->eos : *text == *DATE ? date : NULL;
    if (of)
      add_bytes(to, of, strlen(of));
    else
      add_bytes(to, text, 1);
  }
}

// Narrows a text to the part without white space at its ends.
static void strip(const char **text, size_t *count)
{
  uint32_t code;
  for (int n; *count > 0; *text += n, *count -= (size_t)n) {
    n = utf8_at(*text, *count, &code);
    if (n <= 0 || !is_space(code)) break;
  }
  while (*count > 0) {
    size_t first = *count - 1;
    while (first > 0 && *count - first < 4 && ((unsigned char)(*text)[first] & 0xc0) == 0x80)
      first--;
    if (utf8_at(*text + first, *count - first, &code) != (int)(*count - first) || !is_space(code))
      return;
    *count = first;
  }
}

// Leaves what is after the last "</think>" and the ends of lines that follow.
static void leave_thoughts(const char **text, size_t *count)
{
  static const char mark[] = "</think>";
  const size_t length = sizeof mark - 1;
  bool found = false;
  for (const char *at; (at = memmem(*text, *count, mark, length)); found = true) {
    *count -= (size_t)(at + length - *text);
    *text = at + length;
  }
  for (; found && *count > 0 && **text == '\n'; ++*text) --*count;
}

static void add_turn(const struct chat *c, const char *const around[2], const char *text,
                     size_t count, bool strips, const char *date, struct bytes *to)
{
  if (strips) strip(&text, &count);
  add_form(c, around[0], date, to);
  add_bytes(to, text, count);
  add_form(c, around[1], date, to);
}

// Adds a user's turn, with the system's text in it, if there is one.
static void add_user(const struct chat *c, const struct turn_of_chat *turn,
                     const struct turn_of_chat *system, const char *date, struct bytes *to)
{
  const struct form *f = &c->form;
  struct bytes all = {0};
  const char *text = turn->text;
  size_t count = turn->count;
  if (f->strip == STRIPPED) strip(&text, &count);
  add_bytes(&all, "", 0);
  if (system) add_turn(c, f->system, system->text, system->count, false, date, &all);
  add_bytes(&all, text, count);
  to->failed |= all.failed;
  if (!all.failed)
    add_turn(c, f->user, all.at ? all.at : "", all.count, f->strip == WHOLE_STRIPPED, date, to);
  free_bytes(&all);
}

static bool check_turns(const struct form *f, const struct turn_of_chat *turns, size_t count,
                        struct failure *why)
{
  const bool begins = count > 0 && turns[0].role == ROLE_SYSTEM;
  if (count == 0) return failed(why, "a conversation has no messages");
  if (f->system_goes == NOWHERE && begins)
    return failed(why, "this model's chat template has no system message");
  for (size_t i = begins; i < count && f->system_goes != OWN_TURN; i++)
    if (turns[i].role == ROLE_SYSTEM)
      return failed(why, "this model's chat template takes a system message only as the first");
  for (size_t i = begins; i < count && f->alternates; i++)
    if ((turns[i].role == ROLE_USER) != ((i - begins) % 2 == 0))
      return failed(why, "this model's chat template wants messages of user and assistant in turn");
  return true;
}

bool chat_text(const struct chat *c, const struct turn_of_chat *turns, size_t count,
               const char *date, struct bytes *to, struct failure *why)
{
  const struct form *f = &c->form;
  if (!check_turns(f, turns, count, why)) return false;
  const struct turn_of_chat *system = turns[0].role == ROLE_SYSTEM ? turns : NULL;
  const bool own = f->system_goes == OWN_TURN || f->system_goes == ALWAYS;
  const struct turn_of_chat none = {ROLE_SYSTEM, c->otherwise,
                                    c->otherwise ? strlen(c->otherwise) : 0};
  if (!c->dates) date = "26 Jul 2024";
  if (!system && (c->otherwise || f->system_goes == ALWAYS)) system = &none;
  add_form(c, f->begins, date, to);
  if (own && system)
    add_turn(c, f->system, system->text ? system->text : "", system->count, f->strip == STRIPPED,
             date, to);
  for (size_t i = turns[0].role == ROLE_SYSTEM; i < count; i++) {
    const struct turn_of_chat *t = &turns[i];
    const bool has_system = f->system_goes == FIRST_USER ? t == turns + 1 : i + 1 == count;
    if (t->role == ROLE_USER) {
      add_user(c, t, !own && has_system ? system : NULL, date, to);
      continue;
    }
    const char *text = t->text;
    size_t length = t->count;
    if (f->leaves_thoughts && t->role == ROLE_ASSISTANT) leave_thoughts(&text, &length);
    add_turn(c, t->role == ROLE_SYSTEM ? f->system : f->assistant, text, length, f->strip != AS_IS,
             date, to);
  }
  add_form(c, f->asks, date, to);
  return !to->failed || failed(why, "out of memory for a conversation");
}

const char *chat_date(void)
{
  static char date[40];
  static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const time_t now = time(NULL);
  struct tm day;
  localtime_r(&now, &day);
  snprintf(date, sizeof date, "%02d %.3s %d", day.tm_mday, months + (ptrdiff_t)3 * day.tm_mon,
           day.tm_year + 1900);
  return date;
}
