// SPDX-License-Identifier: MIT
// Log-probabilities of tokens.
#include "text/server/logprobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct scored_token {
  struct logprob own;
  bool scored;                  // false: nothing was before it
  bool first;                   // of the text: it may lose a blank
  size_t begin, end, character; // bytes of the text; characters ahead of it
};

static bool grow(struct logprobs *l)
{
  if (l->count < l->room) return true;
  const size_t room = 2 * l->room + 16, top = (size_t)l->top;
  struct scored_token *at = realloc(l->at, room * sizeof *at);
  if (at) l->at = at;
  struct logprob *best = at && top ? realloc(l->best, room * top * sizeof *best) : NULL;
  if (best) l->best = best;
  l->failed |= !at || (top && !best);
  if (!l->failed) l->room = room;
  return !l->failed;
}

// Whether bytes are the beginning of a character, which others may complete.
static bool may_go_on(const char *at, size_t left)
{
  uint32_t code;
  const unsigned char lead = (unsigned char)*at;
  return lead >= 0xc2 && lead <= 0xf4 && utf8_at(at, left, &code) == -(int)left;
}

// Adds a token's bytes to the text, in which what is no character is U+FFFD. The token begins
// with the character that it goes on with.
static void add_text(struct logprobs *l, struct scored_token *s, const struct bytes *own)
{
  enum { REPLACED = 3 };
  struct bytes all = {0};
  size_t at = 0;
  add_bytes(&all, l->begun, l->nbegun);
  add_bytes(&all, own->at, own->count);
  s->begin = l->bytes;
  s->character = l->characters;
  while (at < all.count && !may_go_on(all.at + at, all.count - at)) {
    uint32_t code;
    const int n = utf8_at(all.at + at, all.count - at, &code);
    const size_t size = (size_t)(n > 0 ? n : -n);
    l->bytes += n > 0 ? size : REPLACED;
    l->characters++;
    if (at == 0 && size == l->nbegun) { // the token does not go on with it
      s->begin = l->bytes;
      s->character = l->characters;
    }
    at += size;
  }
  l->nbegun = all.count - at;
  memcpy(l->begun, all.at + at, l->nbegun);
  s->end = l->bytes + (l->nbegun > 0);
  l->failed |= all.failed;
  free_bytes(&all);
}

void logprobs_add(struct logprobs *l, int id, const struct slot_work *t)
{
  struct bytes own = {0};
  struct failure why;
  if (l->failed || !grow(l)) return;
  const bool skipped = tokenizer_skips(l->tokenizer, id), first = l->bytes == 0 && l->nbegun == 0;
  struct scored_token *s = &l->at[l->count];
  *s = (struct scored_token){
      .own = {id, t ? t->log_probability : 0}, .scored = t != NULL, .first = first};
  l->failed |= !skipped && !tokenizer_bytes(l->tokenizer, id, first, &own, &why);
  add_text(l, s, &own);
  for (int i = 0; i < l->top; i++)
    l->best[l->count * (size_t)l->top + (size_t)i] =
        t ? (struct logprob){t->best[i].id, t->best[i].logit - t->log_sum} : (struct logprob){0};
  l->count++;
  free_bytes(&own);
}

size_t logprobs_begun(const struct logprobs *l, size_t bytes)
{
  size_t n = l->count;
  while (n > 0 && l->at[n - 1].begin >= bytes) n--;
  return n;
}

size_t logprobs_ended(const struct logprobs *l, size_t bytes)
{
  size_t n = l->count;
  while (n > 0 && l->at[n - 1].end > bytes) n--;
  return n;
}

// A number that JSON has.
static json_t *number(double log_probability)
{
  const double least = -9999; // OpenAI's, of what is as good as impossible
  return json_real(log_probability > least ? log_probability : least);
}

static bool is_text(const struct bytes *b)
{
  uint32_t code = 1;
  int n = 1;
  for (size_t i = 0; i < b->count && n > 0 && code; i += (size_t)n)
    n = utf8_at(b->at + i, b->count - i, &code);
  return n > 0 && code;
}

// A token's text, to be freed; of a part of a character OpenAI's notation of its bytes, behind
// `mark`. NULL: out of memory. raw: its bytes, unless NULL.
static char *text_of(struct logprobs *l, int id, bool first, const char *mark, struct bytes *raw)
{
  struct bytes own = {0}, text = {0};
  struct failure why;
  char part[32];
  bool ok = tokenizer_bytes(l->tokenizer, id, first, &own, &why);
  add_bytes(&text, "", 0);
  if (ok && !own.at) { // the tokenizer has no such token
    add_bytes(&text, part, (size_t)snprintf(part, sizeof part, "token_id:%d", id));
  } else if (is_text(&own)) {
    add_bytes(&text, own.at, own.count);
  } else {
    add_bytes(&text, mark, strlen(mark));
    for (size_t i = 0; i < own.count; i++)
      add_bytes(&text, part,
                (size_t)snprintf(part, sizeof part, "\\x%02x", (unsigned char)own.at[i]));
  }
  if (raw) *raw = own;
  if (!raw) free_bytes(&own);
  if (ok && !text.failed) return text.at;
  l->failed = true;
  free_bytes(&text);
  return NULL;
}

json_t *logprobs_of_text(struct logprobs *l, size_t first, size_t end)
{
  json_t *tokens = json_array(), *own = json_array(), *top = json_array(), *offset = json_array();
  for (size_t i = first; i < end; i++) {
    const struct scored_token *s = &l->at[i];
    json_t *others = s->scored ? json_object() : json_null();
    char *text = text_of(l, s->own.id, s->first, "bytes:", NULL);
    json_array_append_new(tokens, text ? json_string(text) : NULL);
    json_array_append_new(own, s->scored ? number(s->own.is) : json_null());
    json_array_append_new(offset, json_integer((json_int_t)s->character));
    for (int k = 0; k < l->top && s->scored; k++) {
      const struct logprob *one = &l->best[i * (size_t)l->top + (size_t)k];
      char *other = text_of(l, one->id, s->first, "bytes:", NULL);
      // Of several tokens with one text the likeliest counts.
      if (other && !json_object_get(others, other))
        json_object_set_new(others, other, number(one->is));
      free(other);
    }
    if (s->scored && text && !json_object_get(others, text))
      json_object_set_new(others, text, number(s->own.is));
    json_array_append_new(top, others);
    free(text);
  }
  return json_pack("{sosososo}", "tokens", tokens, "token_logprobs", own, "top_logprobs", top,
                   "text_offset", offset);
}

static json_t *chat_token(struct logprobs *l, const struct logprob *one, bool first)
{
  struct bytes raw = {0};
  char *text = text_of(l, one->id, first, "", &raw);
  json_t *token = json_object(), *bytes = raw.at ? json_array() : json_null();
  for (size_t i = 0; i < raw.count; i++)
    json_array_append_new(bytes, json_integer((unsigned char)raw.at[i]));
  json_object_set_new(token, "token", text ? json_string(text) : NULL);
  json_object_set_new(token, "logprob", number(one->is));
  json_object_set_new(token, "bytes", bytes);
  free_bytes(&raw);
  free(text);
  return token;
}

json_t *logprobs_of_chat(struct logprobs *l, size_t first, size_t end)
{
  json_t *list = json_array();
  for (size_t i = first; i < end; i++) {
    const struct scored_token *s = &l->at[i];
    json_t *token = chat_token(l, &s->own, s->first), *top = json_array();
    for (int k = 0; k < l->top; k++)
      json_array_append_new(top, chat_token(l, &l->best[i * (size_t)l->top + (size_t)k], s->first));
    json_object_set_new(token, "top_logprobs", top);
    json_array_append_new(list, token);
  }
  return json_pack("{soso}", "content", list, "refusal", json_null());
}

void logprobs_free(struct logprobs *l)
{
  free(l->at);
  free(l->best);
  *l = (struct logprobs){0};
}
